/* From a program to the three calls of a block.
 *
 * Steps: forward runs every operation in order. Backward goes through them in reverse; a value that it needs and nobody
 * kept is made again just before, from what was kept, by the operation that made it first, so it has the same bits.
 * Weight gradients come in a second call, which needs the gradients of the outputs of operations with parameters (they
 * are carried from the first call), and their inputs: kept, made again, or, when the first call made them again at the
 * price of a matrix product, carried too. Where nobody waits for the input's gradient both halves are one call: each
 * operation's weight gradient comes right before its input gradient, so that what was made again for the first is dead
 * when the second needs room, and nothing is carried.
 *
 * Places: a value lives from the first step that touches it to the last. Those that are neither kept nor arguments of
 * the call get slots, one or several behind each other; a slot is used again when its value is dead, cut in two when it
 * is larger than the next. What is carried, and statistics, which would leave odd pieces, have places of their own.
 * Some values share a place on purpose (join): the result of a sum with an input, gradients along the residual stream,
 * in forward a nonlinearity's input with its result, in backward its gradients.
 *
 * Nothing here depends on B and S: sizes are bytes per row (plus bytes per row and token for S x S values), which is
 * what lets bytes.c write the same layout as expressions. A fused kernel belongs in op_types as one operation that
 * makes both values, or none that is kept. */
#include "schedule.h"

#include <string.h>

typedef struct slot {
  int64_t row, row_s; /* bytes */
  int busy;
} slot;

enum { SLOTS_MAX = PIECES_MAX / 2 };

/* Slots behind each other. */
typedef struct run {
  int first, n; /* n 0: none */
} run;

typedef struct builder {
  const program *p;
  const int *carry; /* representatives that stay for the weight call, in pieces of `carried` */
  layer_pieces *carried;
  schedule *s;
  int known[PROGRAM_VALUES], has[IDS]; /* values at hand, and gradients that have a part, while steps are listed */
  int with[IDS];                       /* whose place an id shares: the class's representative */
  int last[IDS];                       /* by representative: last step that touches it */
  int slots;
  slot slot[SLOTS_MAX];
  run of[IDS]; /* by representative */
  atoll_err err;
} builder;

static int64_t value_bytes(const program *p, int value) {
  value_type t = p->value[value].type;
  return t == VALUE_BYTE    ? 1
         : t == VALUE_CODE  ? p->element / 2
         : t == VALUE_FLOAT ? (int64_t)sizeof(float)
                            : p->element;
}

static void add_piece(layer_pieces *p, int64_t row, int64_t row_s) {
  p->row[p->n] = row;
  p->row_s[p->n++] = row_s;
}

void block_saved(const program *p, layer_pieces *out) {
  memset(out, 0, sizeof *out);
  for (int v = 0; v < p->values; v++)
    if (p->kept[v])
      add_piece(out, value_bytes(p, v) * p->value[v].width, value_bytes(p, v) * p->value[v].width_s);
}

/* ---- what a step touches ---- */

typedef struct id_list {
  int n, id[16];
} id_list;

static void list_add(id_list *l, int id) {
  if (id != NO_VALUE)
    l->id[l->n++] = id;
}

static void list_needs(id_list *l, const program_op *o, int needs) {
  for (int i = 0; i < OP_INPUTS; i++)
    list_add(l, needs & NEED_IN ? o->in[i] : NO_VALUE);
  for (int i = 0; i < OP_EXTRAS; i++)
    list_add(l, needs & NEED_EXTRA ? o->extra[i] : NO_VALUE);
  list_add(l, needs & NEED_OUT ? o->out : NO_VALUE);
}

static id_list touched(const program *p, const step *s) {
  const program_op *o = &p->op[s->op];
  id_list l = {0};
  if (s->kind == STEP_FORWARD) {
    list_needs(&l, o, NEED_IN | NEED_OUT | NEED_EXTRA);
    return l;
  }
  list_needs(&l, o, s->kind == STEP_INPUT ? op_types[o->kind].input_needs : op_types[o->kind].weight_needs);
  list_add(&l, GRAD(o->out));
  if (s->kind == STEP_INPUT) {
    list_add(&l, o->scratch);
    for (int i = 0; i < OP_INPUTS; i++)
      list_add(&l, o->in[i] == NO_VALUE ? NO_VALUE : GRAD(o->in[i]));
  }
  return l;
}

/* ---- steps ---- */

static void add_step(builder *b, step_kind kind, int op) {
  if (b->s->n == STEPS_MAX) {
    b->err = atoll_fail(ATOLL_INTERNAL, "a block of more than %d steps", STEPS_MAX);
    return;
  }
  b->s->step[b->s->n++] = (step){.kind = kind, .op = op};
}

static void make(builder *b, int op) {
  const program_op *o = &b->p->op[op];
  add_step(b, STEP_FORWARD, op);
  b->known[o->out] = 1;
  for (int i = 0; i < OP_EXTRAS; i++)
    if (o->extra[i] != NO_VALUE)
      b->known[o->extra[i]] = 1;
}

/* Steps that make value v again, unless it is at hand. */
static void want(builder *b, int v) {
  if (v == NO_VALUE || b->known[v] || b->err != ATOLL_OK)
    return;
  int again = b->p->again[v];
  if (again < 0) {
    b->err = atoll_fail(ATOLL_INTERNAL, "the memory policy drops a block's input, but backward needs it");
    return;
  }
  for (int i = 0; i < OP_INPUTS; i++)
    want(b, b->p->op[again].in[i]);
  make(b, again);
}

static void want_all(builder *b, const program_op *o, int needs) {
  id_list l = {0};
  list_needs(&l, o, needs);
  for (int i = 0; i < l.n; i++)
    want(b, l.id[i]);
}

static void steps_forward(builder *b) {
  for (int i = 0; i < b->p->ops; i++)
    make(b, i);
}

static void step_input(builder *b, int i) {
  const program_op *o = &b->p->op[i];
  if (!op_types[o->kind].input)
    return;
  want_all(b, o, op_types[o->kind].input_needs);
  add_step(b, STEP_INPUT, i);
  for (int k = 0; k < OP_INPUTS && b->err == ATOLL_OK; k++)
    if (o->in[k] != NO_VALUE) {
      b->s->step[b->s->n - 1].add[k] = b->has[GRAD(o->in[k])];
      b->has[GRAD(o->in[k])] = 1;
    }
}

static void step_weight(builder *b, int i) {
  if (!op_types[b->p->op[i].kind].weight)
    return;
  want_all(b, &b->p->op[i], op_types[b->p->op[i].kind].weight_needs);
  add_step(b, STEP_WEIGHT, i);
}

static void steps_backward(builder *b, int input, int weight) {
  b->has[GRAD(program_y(b->p))] = 1;
  for (int i = b->p->ops - 1; i >= 0; i--) {
    int turns = b->p->op[i].turned_heads > 0; /* its input gradient turns the output's, which the weights' reads */
    if (weight && !turns)
      step_weight(b, i);
    if (input)
      step_input(b, i);
    if (weight && turns)
      step_weight(b, i);
  }
}

/* ---- places ---- */

static void join(builder *b, int id, int other) {
  int from = b->with[id], to = b->with[other];
  for (int i = 0; i < IDS; i++)
    if (b->with[i] == from)
      b->with[i] = to;
}

static int readers(const program *p, int v, int *last) {
  int n = 0;
  for (int i = 0; i < p->ops; i++)
    for (int k = 0; k < OP_INPUTS; k++)
      if (p->op[i].in[k] == v)
        n++, *last = i;
  return n;
}

static void join_gradients(builder *b) {
  const program *p = b->p;
  int dy = GRAD(program_y(p)); /* read only: it belongs to the caller */
  for (int i = 0; i < p->ops; i++) {
    const program_op *o = &p->op[i];
    int out = GRAD(o->out);
    if (o->kind == OP_RESIDUAL || o->kind == OP_RESIDUAL_MASK) {
      if (out != dy)
        join(b, GRAD(o->in[0]), out);
      else if (!o->drops)
        join(b, GRAD(o->in[1]), out);
    } else if (op_types[o->kind].in_place && out != dy) {
      join(b, GRAD(o->in[0]), out);
    }
  }
}

/* The result of a sum takes the place of its branch; in forward, where each value is made once, that of the stream if
 * nobody reads it later, and so does what a nonlinearity gives. */
static void join_values(builder *b, int forward) {
  const program *p = b->p;
  for (int i = 0; i < p->ops; i++) {
    const program_op *o = &p->op[i];
    int last = -1, sum = o->kind == OP_RESIDUAL || o->kind == OP_RESIDUAL_MASK;
    (void)readers(p, o->in[0], &last);
    int over = forward && last == i && o->in[0] != PROGRAM_X && !p->kept[o->in[0]];
    if (over && (sum || (op_types[o->kind].in_place && !p->kept[o->out])))
      join(b, o->in[0], o->out);
    else if (sum && !p->kept[o->in[1]] && readers(p, o->in[1], &last) == 1)
      join(b, o->in[1], o->out);
  }
}

/* Behind a dead slot or all, so in the middle of no live value's run; where those of dead ones begin is what counts. */
static void insert_slot(builder *b, int at, slot s) {
  if (b->slots == SLOTS_MAX) {
    b->err = atoll_fail(ATOLL_INTERNAL, "a block of more than %d pieces of scratch", SLOTS_MAX);
    return;
  }
  memmove(&b->slot[at + 1], &b->slot[at], (size_t)(b->slots++ - at) * sizeof s);
  b->slot[at] = s;
  for (int i = 0; i < IDS; i++)
    b->of[i].first += b->of[i].first >= at;
}

static slot sum_of(const builder *b, run r) {
  slot sum = {0};
  for (int i = r.first; i < r.first + r.n; i++)
    sum.row += b->slot[i].row, sum.row_s += b->slot[i].row_s;
  return sum;
}

static int fits(slot s, slot in) { return s.row <= in.row && s.row_s <= in.row_s; }

static int larger(slot a, slot b) { return a.row_s > b.row_s || (a.row_s == b.row_s && a.row > b.row); }

/* Dead slots from `first` on, as many as s needs or as there are. */
static run dead_run(const builder *b, int first, slot s) {
  run r = {first, 0};
  while (r.first + r.n < b->slots && !b->slot[r.first + r.n].busy && !(r.n && fits(s, sum_of(b, r))))
    r.n++;
  return r;
}

/* Of all runs of dead slots the smallest that is large enough, else the largest. */
static run best_run(const builder *b, slot s) {
  run best = {b->slots, 0};
  for (int i = 0; i < b->slots; i++) {
    run r = dead_run(b, i, s);
    slot now = sum_of(b, r), then = sum_of(b, best);
    int large = fits(s, now), was = fits(s, then);
    if (r.n && (large != was ? large : larger(large ? then : now, large ? now : then)))
      best = r;
  }
  return best;
}

static int64_t missing(int64_t n, int64_t of) { return n < of ? of - n : 0; }

static void set_busy(builder *b, run r, int busy) {
  for (int i = r.first; i < r.first + r.n; i++)
    b->slot[i].busy = busy;
}

/* A run for s: what it lacks is added behind it, what it has too much cut off before it, where earlier and so perhaps
 * sooner dead values are. */
static run take_run(builder *b, slot s) {
  run r = best_run(b, s);
  slot has = sum_of(b, r);
  if (!fits(s, has)) {
    insert_slot(b, r.first + r.n, (slot){missing(has.row, s.row), missing(has.row_s, s.row_s), 0});
    r.n++;
  } else if (larger(has, s)) {
    slot rest = {has.row - s.row, has.row_s - s.row_s, 0}, first = b->slot[r.first];
    if (fits(rest, first)) {
      b->slot[r.first] = rest;
      insert_slot(b, ++r.first, (slot){first.row - rest.row, first.row_s - rest.row_s, 0});
    }
  }
  if (b->err != ATOLL_OK)
    return (run){0};
  set_busy(b, r, 1);
  return r;
}

static void place_id(builder *b, int rep, int value) {
  const program_value *v = &b->p->value[value];
  const int64_t bytes = value_bytes(b->p, value);
  slot s = {bytes * v->width, bytes * v->width_s, 0};
  if (b->carry[rep] || v->type == VALUE_FLOAT) {
    layer_pieces *to = b->carry[rep] ? b->carried : &b->s->work;
    b->s->at[rep] = (place){b->carry[rep] ? PLACE_CARRIED : PLACE_WORK, to->n};
    add_piece(to, s.row, s.row_s);
  } else if (b->of[rep].n == 0) {
    b->of[rep] = take_run(b, s);
  }
}

/* Places for all ids that have none yet, step by step. */
static void place_all(builder *b) {
  schedule *s = b->s;
  for (int i = 0; i < s->n; i++) {
    id_list l = touched(b->p, &s->step[i]);
    for (int k = 0; k < l.n; k++)
      b->last[b->with[l.id[k]]] = i;
  }
  for (int i = 0; i < s->n && b->err == ATOLL_OK; i++) {
    id_list l = touched(b->p, &s->step[i]);
    for (int k = 0; k < l.n; k++)
      if (s->at[b->with[l.id[k]]].kind == PLACE_NONE)
        place_id(b, b->with[l.id[k]], l.id[k] % PROGRAM_VALUES);
    for (int k = 0; k < l.n; k++)
      if (b->last[b->with[l.id[k]]] == i)
        set_busy(b, b->of[b->with[l.id[k]]], 0);
  }
}

/* Slots become pieces of the work bytes; ids get the places of their classes. */
static void number(builder *b) {
  schedule *s = b->s;
  int first = s->work.n;
  for (int i = 0; i < b->slots; i++)
    add_piece(&s->work, b->slot[i].row, b->slot[i].row_s);
  for (int id = 0; id < IDS; id++) {
    int rep = b->with[id];
    s->at[id] = b->of[rep].n ? (place){PLACE_WORK, first + b->of[rep].first} : s->at[rep];
  }
}

/* ---- one call ---- */

static void begin(builder *b, block_plan *plan, int call, const int *carry) {
  memset(b, 0, sizeof *b);
  b->p = &plan->p;
  b->s = &plan->call[call];
  b->carry = carry;
  b->carried = &plan->carried;
  memset(b->s, 0, sizeof *b->s);
  for (int i = 0; i < IDS; i++)
    b->with[i] = i;
  join_values(b, call == STEP_FORWARD);
  join_gradients(b);
}

static void set(builder *b, int id, place_kind kind, int piece) { b->s->at[b->with[id]] = (place){kind, piece}; }

static void set_kept(builder *b) {
  int piece = 0;
  for (int v = 0; v < b->p->values; v++)
    if (b->p->kept[v]) {
      b->known[v] = 1;
      set(b, v, v == PROGRAM_X ? PLACE_X : PLACE_SAVED, piece++);
    }
}

static const int nothing[IDS];

static atoll_err make_forward(block_plan *out) {
  const program *p = &out->p;
  builder b;
  begin(&b, out, STEP_FORWARD, nothing);
  set_kept(&b);
  set(&b, PROGRAM_X, PLACE_X, 0);
  set(&b, program_y(p), PLACE_Y, 0);
  steps_forward(&b);
  place_all(&b);
  number(&b);
  return b.err;
}

/* Marks what the weight call cannot cheaply make from what is kept. */
static void carry_value(const program *p, int *carry, int v) {
  if (v == NO_VALUE || p->kept[v] || p->again[v] < 0)
    return;
  const program_op *o = &p->op[p->again[v]];
  if (op_types[o->kind].costly) {
    carry[v] = 1;
    return;
  }
  for (int i = 0; i < OP_INPUTS; i++)
    carry_value(p, carry, o->in[i]);
}

static void carry_all(const program *p, int *carry) {
  for (int i = 0; i < p->ops; i++) {
    const program_op *o = &p->op[i];
    if (!op_types[o->kind].weight)
      continue;
    carry[GRAD(o->out)] = 1;
    id_list l = {0};
    list_needs(&l, o, op_types[o->kind].weight_needs);
    for (int k = 0; k < l.n; k++)
      carry_value(p, carry, l.id[k]);
  }
}

static atoll_err make_backward(block_plan *out) {
  const program *p = &out->p;
  builder b;
  begin(&b, out, CALL_BACKWARD, nothing);
  set_kept(&b);
  set(&b, GRAD(program_y(p)), PLACE_DY, 0);
  set(&b, GRAD(PROGRAM_X), PLACE_DX, 0);
  steps_backward(&b, 1, 1);
  place_all(&b);
  number(&b);
  return b.err;
}

static atoll_err make_halves(block_plan *out) {
  const program *p = &out->p;
  int carry[IDS] = {0}, by_class[IDS] = {0};
  builder b;
  carry_all(p, carry);
  begin(&b, out, STEP_INPUT, by_class);
  for (int id = 0; id < IDS; id++)
    by_class[b.with[id]] |= carry[id];
  set_kept(&b);
  set(&b, GRAD(program_y(p)), PLACE_DY, 0);
  set(&b, GRAD(PROGRAM_X), PLACE_DX, 0);
  steps_backward(&b, 1, 0);
  place_all(&b);
  number(&b);
  ATOLL_TRY(b.err);

  builder w;
  begin(&w, out, STEP_WEIGHT, by_class);
  set_kept(&w);
  for (int id = 0; id < IDS; id++)
    if (carry[id] && out->call[STEP_INPUT].at[id].kind != PLACE_NONE) {
      w.s->at[w.with[id]] = out->call[STEP_INPUT].at[id];
      if (id < PROGRAM_VALUES)
        w.known[id] = 1;
    }
  steps_backward(&w, 0, 1);
  place_all(&w);
  number(&w);
  return w.err;
}

atoll_err block_make(const atoll_model *m, int layer, atoll_policy policy, layer_way way, block_plan *out) {
  memset(out, 0, sizeof *out);
  ATOLL_TRY(program_make(m, layer, policy, way, &out->p));
  block_saved(&out->p, &out->saved);
  ATOLL_TRY(make_forward(out));
  ATOLL_TRY(make_backward(out));
  return make_halves(out);
}

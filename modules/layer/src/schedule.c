/* From a program to the three calls of a block.
 *
 * Steps: forward runs every operation in order. Backward goes through them in reverse; a value that it needs and nobody
 * kept is made again just before, from what was kept, by the operation that made it first, so it has the same bits.
 * Weight gradients come in a second call, which needs the gradients of the outputs of operations with parameters (they
 * are carried from the first call), and their inputs: kept, made again, or, when the first call made them again at the
 * price of a matrix product, carried too. Where nobody waits for the input's gradient both halves are one call: each
 * operation's weight gradient follows its input gradient, and nothing is carried.
 *
 * Places: a value lives from the first step that touches it to the last. Those that are neither kept nor arguments of
 * the call get slots; a slot is used again when its value is dead, and a slot that ever holds something carried
 * belongs to the carried bytes. Some values share a place on purpose (join): the result of a residual with its second
 * input, gradients along the residual stream, the gradient before a nonlinearity with the one after it.
 *
 * Nothing here depends on B and S: sizes are bytes per row (plus bytes per row and token for S x S values), which is
 * what lets bytes.c write the same layout as expressions. A fused kernel belongs in op_types as one operation that
 * makes both values, or none that is kept. */
#include "schedule.h"

#include <string.h>

typedef struct slot {
  int64_t row, row_s; /* bytes */
  int busy, carried;
} slot;

typedef struct builder {
  const program *p;
  const int *carry; /* ids that stay for the weight call */
  schedule *s;
  int known[PROGRAM_VALUES], has[IDS]; /* values at hand, and gradients that have a part, while steps are listed */
  int with[IDS];                       /* whose place an id shares: the class's representative */
  int last[IDS];                       /* by representative: last step that touches it */
  int slots, of[IDS];                  /* by representative */
  slot slot[IDS];
  atoll_err err;
} builder;

static int64_t value_bytes(const program *p, int value) {
  value_type t = p->value[value].type;
  return t == VALUE_BYTE ? 1 : t == VALUE_CODE ? 2 : t == VALUE_FLOAT ? (int64_t)sizeof(float) : p->element;
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
    if (input)
      step_input(b, i);
    if (weight)
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

static int readers(const program *p, int v) {
  int n = 0;
  for (int i = 0; i < p->ops; i++)
    for (int k = 0; k < OP_INPUTS; k++)
      n += p->op[i].in[k] == v;
  return n;
}

static void join_all(builder *b) {
  const program *p = b->p;
  int dy = GRAD(program_y(p)); /* read only: it belongs to the caller */
  for (int i = 0; i < p->ops; i++) {
    const program_op *o = &p->op[i];
    int out = GRAD(o->out);
    if (o->kind == OP_RESIDUAL || o->kind == OP_RESIDUAL_MASK) {
      if (!p->kept[o->in[1]] && readers(p, o->in[1]) == 1)
        join(b, o->in[1], o->out);
      if (out != dy)
        join(b, GRAD(o->in[0]), out);
      else if (!o->drops)
        join(b, GRAD(o->in[1]), out);
    } else if (op_types[o->kind].in_place && out != dy) {
      join(b, GRAD(o->in[0]), out);
    }
  }
}

static int fits(const slot *s, int64_t row, int64_t row_s) { return s->row >= row && s->row_s >= row_s; }

/* A dead slot: the smallest that is large enough, else one that need only grow, else a new one. */
static int take_slot(builder *b, int64_t row, int64_t row_s) {
  int best = -1;
  for (int i = 0; i < b->slots; i++) {
    const slot *s = &b->slot[i], *t = best < 0 ? NULL : &b->slot[best];
    if (s->busy || (!fits(s, row, row_s) && !(s->row <= row && s->row_s <= row_s)))
      continue;
    int large = fits(s, row, row_s);
    if (!t || (large && (!fits(t, row, row_s) || fits(t, s->row, s->row_s))) ||
        (!large && !fits(t, row, row_s) && fits(s, t->row, t->row_s)))
      best = i;
  }
  if (best < 0)
    best = b->slots++;
  slot *s = &b->slot[best];
  s->row = s->row > row ? s->row : row;
  s->row_s = s->row_s > row_s ? s->row_s : row_s;
  s->busy = 1;
  return best;
}

static void place_slot(builder *b, int rep, int value) {
  const program_value *v = &b->p->value[value];
  if (b->of[rep] < 0)
    b->of[rep] = take_slot(b, value_bytes(b->p, value) * v->width, value_bytes(b->p, value) * v->width_s);
  if (b->carry[rep])
    b->slot[b->of[rep]].carried = 1;
}

/* Slots for all ids that have no place yet, step by step. */
static void place_all(builder *b) {
  schedule *s = b->s;
  for (int i = 0; i < s->n; i++) {
    id_list l = touched(b->p, &s->step[i]);
    for (int k = 0; k < l.n; k++)
      b->last[b->with[l.id[k]]] = i;
  }
  for (int i = 0; i < s->n; i++) {
    id_list l = touched(b->p, &s->step[i]);
    for (int k = 0; k < l.n; k++)
      if (s->at[b->with[l.id[k]]].kind == PLACE_NONE)
        place_slot(b, b->with[l.id[k]], l.id[k] % PROGRAM_VALUES);
    for (int k = 0; k < l.n; k++) {
      int rep = b->with[l.id[k]];
      if (b->last[rep] == i && b->of[rep] >= 0 && !b->carry[rep])
        b->slot[b->of[rep]].busy = 0;
    }
  }
}

/* Slots become pieces of the carried or the work bytes; ids get the places of their classes. */
static void number(builder *b, layer_pieces *carried) {
  schedule *s = b->s;
  int piece[IDS];
  for (int i = 0; i < b->slots; i++) {
    layer_pieces *to = b->slot[i].carried ? carried : &s->work;
    piece[i] = to->n;
    add_piece(to, b->slot[i].row, b->slot[i].row_s);
  }
  for (int id = 0; id < IDS; id++) {
    int rep = b->with[id], at = b->of[rep];
    if (at >= 0)
      s->at[id] = (place){b->slot[at].carried ? PLACE_CARRIED : PLACE_WORK, piece[at]};
    else
      s->at[id] = s->at[rep];
  }
}

/* ---- one call ---- */

static void begin(builder *b, const program *p, const int *carry, schedule *s) {
  memset(b, 0, sizeof *b);
  memset(s, 0, sizeof *s);
  b->p = p;
  b->s = s;
  b->carry = carry;
  for (int i = 0; i < IDS; i++) {
    b->with[i] = i;
    b->of[i] = -1;
  }
  join_all(b);
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

static atoll_err make_forward(const program *p, block_plan *out) {
  builder b;
  begin(&b, p, nothing, &out->call[STEP_FORWARD]);
  set_kept(&b);
  set(&b, PROGRAM_X, PLACE_X, 0);
  set(&b, program_y(p), PLACE_Y, 0);
  steps_forward(&b);
  place_all(&b);
  number(&b, NULL);
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

static atoll_err make_backward(const program *p, block_plan *out) {
  builder b;
  begin(&b, p, nothing, &out->call[CALL_BACKWARD]);
  set_kept(&b);
  set(&b, GRAD(program_y(p)), PLACE_DY, 0);
  set(&b, GRAD(PROGRAM_X), PLACE_DX, 0);
  steps_backward(&b, 1, 1);
  place_all(&b);
  number(&b, NULL);
  return b.err;
}

static atoll_err make_halves(const program *p, block_plan *out) {
  int carry[IDS] = {0}, by_class[IDS] = {0};
  builder b;
  carry_all(p, carry);
  begin(&b, p, by_class, &out->call[STEP_INPUT]);
  for (int id = 0; id < IDS; id++)
    by_class[b.with[id]] |= carry[id];
  set_kept(&b);
  set(&b, GRAD(program_y(p)), PLACE_DY, 0);
  set(&b, GRAD(PROGRAM_X), PLACE_DX, 0);
  steps_backward(&b, 1, 0);
  place_all(&b);
  number(&b, &out->carried);
  ATOLL_TRY(b.err);

  builder w;
  begin(&w, p, by_class, &out->call[STEP_WEIGHT]);
  set_kept(&w);
  for (int id = 0; id < IDS; id++)
    if (carry[id] && out->call[STEP_INPUT].at[id].kind != PLACE_NONE) {
      w.s->at[w.with[id]] = out->call[STEP_INPUT].at[id];
      if (id < PROGRAM_VALUES)
        w.known[id] = 1;
    }
  steps_backward(&w, 0, 1);
  place_all(&w);
  number(&w, &out->carried);
  return w.err;
}

atoll_err block_make(const atoll_model *m, int layer, atoll_policy policy, layer_way way, block_plan *out) {
  memset(out, 0, sizeof *out);
  ATOLL_TRY(program_make(m, layer, policy, way, &out->p));
  block_saved(&out->p, &out->saved);
  ATOLL_TRY(make_forward(&out->p, out));
  ATOLL_TRY(make_backward(&out->p, out));
  return make_halves(&out->p, out);
}

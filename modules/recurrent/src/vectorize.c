/* Vectorisation over a dimension d: nodes lose d from their domain and get its bound B as leading axis, so that one
 * statement works on all points of d at once.
 *
 * Nodes stay as they are when they cannot do that: calls of the user and sinks (per point), conditions or shapes that
 * depend on d, indices that use d in another way than "this point" or "a slice that does not depend on it", and what
 * lies on a cycle along d: recurrences over d and their gradients. What passes between the two kinds goes through
 * adapters: an unchanged source is read over the slice 0:B, from a changed source a reader takes its element. */
#include "passes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct vectorization {
  rt_graph *g;
  int d;
  int nodes;    /* before this pass */
  char *chosen; /* per node */
};

/* ---- which nodes ---- */

static int depends(const struct vectorization *a, const atoll_sym *e) {
  return (int)(rt_dims_of(a->g, e) >> a->d & 1u);
}

static int is_batch(const struct vectorization *a, const rt_edge *e) {
  return rt_has(rt_src(a->g, e), a->d) && !e->item[a->d].hi && e->item[a->d].lo == a->g->dim[a->d].var;
}

/* d occurs in an edge at most as "this point". */
static int plain_edge(const struct vectorization *a, const rt_edge *e) {
  const rt_graph *g = a->g;
  if (depends(a, e->cond))
    return 0;
  for (int d = 0; d < g->dims; d++) {
    if (!rt_has(rt_src(g, e), d) || (d == a->d && is_batch(a, e)))
      continue;
    if (depends(a, e->item[d].lo) || depends(a, e->item[d].hi))
      return 0;
  }
  return 1;
}

/* The source can be read at all points of d at once: they have one shape, and there is room for one more axis. */
static int is_uniform(const struct vectorization *a, const rt_edge *e) {
  const atoll_rt *src = rt_src(a->g, e);
  for (int k = 0; k < src->axes; k++)
    if (depends(a, src->shape[k]))
      return 0;
  return rt_slices(a->g, e) + src->axes < RT_AXES;
}

static int can_change(const struct vectorization *a, const atoll_rt *x) {
  int batched = 0;
  if (!rt_has(x, a->d) || depends(a, x->where) || x->axes == RT_AXES)
    return 0;
  for (int k = 0; k < x->axes; k++)
    if (depends(a, x->shape[k]))
      return 0;
  for (int k = 0; k < x->inputs; k++) {
    if (!plain_edge(a, &x->in[k]) || (is_batch(a, &x->in[k]) && !is_uniform(a, &x->in[k])))
      return 0;
    batched += is_batch(a, &x->in[k]);
  }
  switch (x->op) {
  case RT_INPUT:
  case RT_CONST:
  case RT_CALL:
  case RT_SINK:
  case RT_PICK:
  case RT_SCATTER:
  case RT_GRAD:
    return 0;
  case RT_EVAL:
  case RT_RAND:
  case RT_IDENT:
  case RT_DETACH:
  case RT_MERGE:
    return 1;
  case RT_TAKE:
    return !is_batch(a, &x->in[0]) && is_batch(a, &x->in[1]);
  case RT_SLICE:
  case RT_PAD:
    return batched && !depends(a, x->start[0]);
  default:
    return batched > 0;
  }
}

/* A PICK with a mask looks at single points, and its view may be ragged; the source stays one of points then. */
static void keep_for_picks(struct vectorization *a) {
  for (int i = 0; i < a->nodes; i++) {
    const atoll_rt *x = a->g->node[i];
    if (!x || x->op != RT_PICK)
      continue;
    const atoll_rt *src = rt_src(a->g, &x->in[0]);
    unsigned sliced = 0, shape = 0;
    for (int d = 0; d < a->g->dims; d++)
      if (rt_has(src, d) && x->in[0].item[d].hi)
        sliced |= 1u << d;
    for (int k = 0; k < src->axes; k++)
      shape |= rt_dims_of(a->g, src->shape[k]);
    if (x->expr || shape & sliced)
      a->chosen[src->id] = 0;
  }
}

/* ---- cycles ---- */

/* One statement for all points of d needs everything that any of them needs. Where nodes form a cycle and one of them
 * reads other points of d than its own, it would need itself. A node has to stay as it is even if it reads nothing but
 * its own point: the adjoint of a recurrence has such nodes, and where a tensor is also needed outside of its cycle, no
 * condition on them tells that they are part of one.
 *
 * Cycles that another dimension orders do no harm. Within a component of the graph let all edges go one way along that
 * dimension, or stay at their point. Then what is read strictly before is there before the loop comes to the reader,
 * whatever happens to d, and such edges are left out; the rest falls into components again. What remains of the cycles
 * after all these loops (cf. shifts.c) is along d if an edge in it is not plain. If all are plain, taking points of d
 * together adds no cycle: every step around it exists for each of them, so it would be one without vectorization. */
struct cycles {
  struct vectorization *a;
  int *part; /* per node: what is looked at together; -1: nothing more to find out */
  int *visit, *low, *stack;
  int n, visits, parts;
};

/* Where x reads through e along dimension d, seen by a loop over it, upwards (way 0) or downwards (way 1): 2: strictly
 * before, 1: not after, 0: neither is known. */
static int precedes(const atoll_rt *x, const rt_edge *e, int d, int way) {
  rt_graph *g = x->g;
  const rt_item *item = &e->item[d];
  int64_t ahead;
  if (!rt_has(x, d) || !rt_has(rt_src(g, e), d))
    return 0;
  const int last = way == 0 && item->hi != NULL; /* of a slice */
  if (!rt_is_const(atoll_sym_sub(g->syms, last ? item->hi : item->lo, g->dim[d].var), &ahead))
    return 0;
  ahead -= last;
  const int64_t before = way ? ahead : -ahead;
  return before < 0 ? 0 : 1 + (before > 0);
}

/* Bit 2 d + way of loops: the loop over d that way. */
static int is_within(const struct cycles *c, const atoll_rt *x, const rt_edge *e, unsigned loops) {
  if (c->part[x->id] < 0 || c->part[e->src] != c->part[x->id])
    return 0;
  for (int l = 0; l < 2 * x->g->dims; l++)
    if (loops >> l & 1u && precedes(x, e, l / 2, l % 2) == 2)
      return 0;
  return 1;
}

/* Tarjan's components, as new parts. */
static void connect(struct cycles *c, int v, unsigned loops) {
  const atoll_rt *x = c->a->g->node[v];
  c->visit[v] = c->low[v] = ++c->visits;
  c->stack[c->n++] = v;
  for (int k = 0; k < x->inputs; k++) {
    const int w = x->in[k].src;
    if (!is_within(c, x, &x->in[k], loops))
      continue;
    if (!c->visit[w])
      connect(c, w, loops);
    if (c->part[w] == c->part[v] && c->low[w] < c->low[v])
      c->low[v] = c->low[w];
  }
  if (c->low[v] != c->visit[v])
    return;
  for (int w = -1; w != v;) {
    w = c->stack[--c->n];
    c->part[w] = c->parts;
  }
  c->parts++;
}

/* Whether all edges of a part go one way in loop l, some of them strictly. */
static int is_ordered(const struct cycles *c, int part, unsigned loops, int l) {
  int strictly = 0;
  for (int i = 0; i < c->a->nodes; i++) {
    const atoll_rt *x = c->part[i] == part ? c->a->g->node[i] : NULL;
    for (int k = 0; x && k < x->inputs; k++) {
      if (!is_within(c, x, &x->in[k], loops))
        continue;
      const int before = precedes(x, &x->in[k], l / 2, l % 2);
      if (!before)
        return 0;
      strictly |= before == 2;
    }
  }
  return strictly;
}

static void split(struct cycles *c, int part, unsigned loops);

/* A part with a cycle on which an edge is not plain. */
static void resolve(struct cycles *c, int part, unsigned loops) {
  for (int l = 0; l < 2 * c->a->g->dims; l++)
    if (l / 2 != c->a->d && !(loops >> l & 1u) && is_ordered(c, part, loops, l)) {
      split(c, part, loops | 1u << l);
      return;
    }
  for (int i = 0; i < c->a->nodes; i++)
    if (c->part[i] == part) {
      c->a->chosen[i] = 0;
      c->part[i] = -1;
    }
}

static int has_turn(const struct cycles *c, const atoll_rt *x, unsigned loops) {
  for (int k = 0; k < x->inputs; k++)
    if (is_within(c, x, &x->in[k], loops) &&
        (!plain_edge(c->a, &x->in[k]) || (x->op == RT_PICK && depends(c->a, x->expr))))
      return 1;
  return 0;
}

static void split(struct cycles *c, int part, unsigned loops) {
  const int first = c->parts;
  for (int i = 0; i < c->a->nodes; i++)
    if (c->part[i] == part)
      c->visit[i] = 0;
  for (int i = 0; i < c->a->nodes; i++)
    if (c->part[i] == part)
      connect(c, i, loops);
  const int end = c->parts;
  for (int i = 0; i < c->a->nodes; i++)
    if (c->part[i] >= first && c->part[i] < end && has_turn(c, c->a->g->node[i], loops))
      resolve(c, c->part[i], loops);
}

static atoll_err keep_cycles(struct vectorization *a) {
  const size_t n = (size_t)a->nodes + 1;
  int *memory = calloc(4 * n, sizeof *memory);
  if (!memory)
    return atoll_fail(ATOLL_NOMEM, "vectorize: no memory");
  struct cycles c = {a, memory, memory + n, memory + 2 * n, memory + 3 * n, 0, 0, 1};
  for (int i = 0; i < a->nodes; i++)
    c.part[i] = a->g->node[i] ? 0 : -1;
  split(&c, 0, 0);
  free(memory);
  return ATOLL_OK;
}

/* ---- adapters ---- */

static int slices_before(const struct vectorization *a, const rt_edge *e, int d) {
  int n = 0;
  for (int k = 0; k < d; k++)
    n += rt_has(rt_src(a->g, e), k) && e->item[k].hi;
  return n;
}

/* Moves an axis of x. */
static atoll_rt *move_axis(atoll_rt *x, int from, int to) {
  int order[RT_AXES], n = 0;
  if (!x || from == to)
    return x;
  for (int k = 0; k < x->axes; k++) {
    if (n == to)
      order[n++] = from;
    if (k != from)
      order[n++] = k;
  }
  if (n == to)
    order[n++] = from;
  return atoll_rt_permute(x, order);
}

/* The view through e with the batch as leading axis; e's source has d or had it. */
static atoll_rt *batch_view(struct vectorization *a, const rt_edge *e) {
  rt_graph *g = a->g;
  atoll_rt *src = rt_src(g, e);
  rt_item item[RT_DIMS];
  int at;
  memcpy(item, e->item, sizeof item);
  if (a->chosen[src->id]) {
    item[a->d] = (rt_item){NULL, NULL};
    at = rt_slices(g, e);
  } else {
    item[a->d] = (rt_item){rt_int(g, 0), g->dim[a->d].size};
    at = slices_before(a, e, a->d);
  }
  return move_axis(rt_view(src, item, e->text), at, 0);
}

/* The view through e as it was, from a source that has changed. */
static atoll_rt *point_view(struct vectorization *a, const rt_edge *e) {
  rt_graph *g = a->g;
  atoll_rt *src = rt_src(g, e);
  const rt_item *own = &e->item[a->d];
  const atoll_sym *shape[RT_AXES];
  rt_item item[RT_DIMS];
  int at = 0;
  memcpy(item, e->item, sizeof item);
  item[a->d] = (rt_item){NULL, NULL};
  for (int d = 0; d < g->dims; d++)
    at += rt_has(src, d) && item[d].hi;
  atoll_rt *x = rt_view(src, item, e->text);
  if (!x)
    return NULL;
  if (own->hi) {
    if (own->lo != rt_int(g, 0) || own->hi != g->dim[a->d].size)
      x = rt_slice(x, at, own->lo, atoll_sym_sub(g->syms, own->hi, own->lo));
    return move_axis(x, at, slices_before(a, e, a->d));
  }
  x = rt_slice(x, at, own->lo, rt_int(g, 1));
  for (int k = 0; x && k < x->axes - 1; k++)
    shape[k] = x->shape[k < at ? k : k + 1];
  return x ? rt_reshape(x, x->axes - 1, shape) : NULL;
}

/* x [B, v...] as [B, 1..., v...] with `axes` axes. */
static atoll_rt *align(atoll_rt *x, int axes) {
  const atoll_sym *shape[RT_AXES];
  if (!x || x->axes == axes)
    return x;
  for (int k = 0; k < axes; k++) {
    int own = k - (axes - x->axes);
    shape[k] = k == 0 ? x->shape[0] : own >= 1 ? x->shape[own] : rt_int(x->g, 1);
  }
  return rt_reshape(x, axes, shape);
}

/* ---- operations ---- */

/* A letter that the spec does not use. */
static char free_label(const char *spec) {
  for (char c = 'a'; c <= 'z'; c++)
    if (!strchr(spec, c))
      return c;
  for (char c = 'A'; c <= 'Z'; c++)
    if (!strchr(spec, c))
      return c;
  return 0;
}

static int batch_einsum(atoll_rt *x, const int *batched) {
  const char *comma = strchr(x->spec, ','), *arrow = strstr(comma, "->");
  char label = free_label(x->spec), spec[4 * RT_AXES], both[2][2] = {{0}, {0}};
  for (int k = 0; k < 2; k++)
    both[k][0] = batched[k] ? label : 0;
  (void)snprintf(spec, sizeof spec, "%s%.*s,%s%.*s->%c%s", both[0], (int)(comma - x->spec), x->spec, both[1],
                 (int)(arrow - comma - 1), comma + 1, label, arrow + 2);
  x->spec = rt_copy_text(x->g, spec);
  return label != 0;
}

/* Positions move by one axis, d becomes the first. */
static const atoll_sym *shift_axes(const struct vectorization *a, const atoll_sym *e, int axes) {
  rt_graph *g = a->g;
  const atoll_sym *by[RT_AXES], *first[RT_DIMS];
  for (int k = 0; k < axes; k++)
    by[k] = rt_axis(g, k + 1);
  first[a->d] = rt_axis(g, 0);
  return rt_substitute(g, rt_substitute_axes(g, e, axes, by), 1u << a->d, first);
}

static void change_attributes(const struct vectorization *a, atoll_rt *x, const int *batched) {
  int old = x->axes - 1; /* axes before */
  switch (x->op) {
  case RT_SUM:
  case RT_MAXIMUM:
  case RT_ARGMAX:
  case RT_SLICE:
  case RT_PAD:
  case RT_CONCAT:
    x->axis++;
    break;
  case RT_PERMUTE:
    for (int k = old; k > 0; k--)
      x->order[k] = x->order[k - 1] + 1;
    x->order[0] = 0;
    break;
  case RT_EINSUM:
    if (!batch_einsum(x, batched))
      (void)rt_refuse(x->g, ATOLL_UNSUPPORTED, "vectorize: einsum '%s' has no free label", x->spec);
    break;
  case RT_RAND:
    for (int k = 0; k < x->picks; k++)
      x->start[k] = shift_axes(a, x->start[k], old);
    x->expr = shift_axes(a, x->expr, old);
    break;
  case RT_EVAL:
    x->expr = shift_axes(a, x->expr, old);
    break;
  case RT_IDENT:
  case RT_DETACH:
    if (!batched[0])
      x->op = RT_EXPAND;
    break;
  default:
    break;
  }
}

/* The operand that a changed node reads through e. */
static atoll_rt *changed_operand(struct vectorization *a, const atoll_rt *x, const rt_edge *e, int batched) {
  const atoll_rt *src = rt_src(a->g, e);
  atoll_rt *v;
  if (batched)
    v = batch_view(a, e);
  else if (a->chosen[src->id])
    v = point_view(a, e);
  else
    v = rt_view(rt_src(a->g, e), e->item, e->text);
  if (batched && (rt_is_element(x->op) || x->op == RT_EXPAND))
    return align(v, x->axes);
  if (!batched && v && (x->op == RT_MERGE || x->op == RT_CONCAT)) {
    const atoll_sym *shape[RT_AXES];
    shape[0] = x->shape[0];
    for (int k = 0; k < v->axes; k++)
      shape[k + 1] = v->shape[k];
    return rt_expand(v, v->axes + 1, shape);
  }
  return v;
}

static atoll_err rebuild(struct vectorization *a, atoll_rt *x, const char *was_batch) {
  rt_graph *g = a->g;
  int n = x->inputs, chosen = a->chosen[x->id], batched[3] = {0};
  const rt_edge *old = x->in;
  x->in = NULL;
  x->inputs = 0;
  for (int k = 0; k < n; k++) {
    const rt_edge *e = &old[k];
    int batch = chosen && was_batch[k];
    if (k < 3)
      batched[k] = batch;
    if (!chosen && !a->chosen[e->src]) {
      if (!rt_add_edge(x, e))
        return rt_graph_error(g);
      continue;
    }
    atoll_rt *v = chosen ? changed_operand(a, x, e, batch) : point_view(a, e);
    unsigned dims = x->dims;
    rt_edge *now = v ? rt_connect(x, v) : NULL;
    if (!now)
      return rt_graph_error(g);
    x->dims = dims;
    now->cond = e->cond;
    now->text = e->text;
  }
  if (chosen)
    change_attributes(a, x, batched);
  return rt_graph_error(g);
}

static atoll_err change(struct vectorization *a, char **was_batch) {
  rt_graph *g = a->g;
  for (int i = 0; i < a->nodes; i++) {
    atoll_rt *x = g->node[i];
    if (!x)
      continue;
    was_batch[i] = rt_alloc(g, (size_t)x->inputs + 1);
    if (!was_batch[i])
      return rt_graph_error(g);
    for (int k = 0; k < x->inputs; k++)
      was_batch[i][k] = (char)is_batch(a, &x->in[k]);
  }
  for (int i = 0; i < a->nodes; i++) {
    atoll_rt *x = g->node[i];
    if (!x || !a->chosen[i])
      continue;
    x->dims &= ~(1u << a->d);
    memmove(&x->shape[1], &x->shape[0], (size_t)x->axes * sizeof *x->shape);
    x->shape[0] = g->dim[a->d].size;
    x->axes++;
  }
  for (int i = 0; i < a->nodes; i++) {
    atoll_rt *x = g->node[i];
    int touched = x && a->chosen[i];
    for (int k = 0; x && k < x->inputs; k++)
      touched |= a->chosen[x->in[k].src];
    if (touched)
      ATOLL_TRY(rebuild(a, x, was_batch[i]));
  }
  return ATOLL_OK;
}

static atoll_err vectorize(rt_graph *g, int d) {
  struct vectorization a = {.g = g, .d = d, .nodes = g->nodes};
  /* Adapters are nodes too: they come behind, and are not chosen. */
  a.chosen = calloc((size_t)g->nodes + 1, 1);
  char **was_batch = calloc((size_t)g->nodes + 1, sizeof(char *));
  atoll_err err = ATOLL_OK;
  if (!a.chosen || !was_batch)
    err = atoll_fail(ATOLL_NOMEM, "vectorize: no memory");
  if (err == ATOLL_OK) {
    for (int i = 0; i < g->nodes; i++)
      a.chosen[i] = (char)(g->node[i] && can_change(&a, g->node[i]));
    keep_for_picks(&a);
    err = keep_cycles(&a);
    if (err == ATOLL_OK)
      err = change(&a, was_batch);
  }
  free(a.chosen);
  free(was_batch);
  return err;
}

atoll_err rt_pass_vectorize(rt_graph *g, const char *dims) {
  unsigned mask;
  if (!dims || !*dims)
    return ATOLL_OK;
  ATOLL_TRY(rt_parse_domain(g, dims, &mask));
  for (int d = 0; d < g->dims; d++)
    if (mask >> d & 1u) {
      ATOLL_TRY(vectorize(g, d));
      ATOLL_TRY(rt_graph_error(g));
      ATOLL_TRY(rt_pass_simplify(g));
    }
  return ATOLL_OK;
}

/* Local rewriting until nothing changes: views folded into the edges that read them, equal nodes shared, and algebra.
 * What nothing reads any more is removed by the domain pass that follows. */
#include "interp.h"
#include "passes.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- replacing ---- */

/* Every reader of `old` reads `by`, a node of the same domain, shape and type. */
static void redirect(rt_graph *g, const atoll_rt *old, atoll_rt *by) {
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++)
      if (g->node[i]->in[k].src == old->id)
        g->node[i]->in[k].src = by->id;
  if (old->where && by->where) /* needed wherever either was */
    by->where = atoll_sym_binary(g->syms, ATOLL_SYM_OR, by->where, old->where);
  else
    by->where = NULL;
  by->accumulates |= old->accumulates;
  if (!by->name)
    by->name = old->name;
}

/* Only nodes with the dimensions of `old` can stand for it under every index. */
static int can_stand_for(const atoll_rt *old, const atoll_rt *by) {
  if (by == old || by->dims != old->dims || by->axes != old->axes || by->dtype != old->dtype)
    return 0;
  return memcmp(by->shape, old->shape, (size_t)old->axes * sizeof *old->shape) == 0;
}

/* ---- views ---- */

/* c when e is d + c with c free of d. */
static const atoll_sym *offset_from(rt_graph *g, const atoll_sym *e, int d) {
  const atoll_sym *c = atoll_sym_sub(g->syms, e, g->dim[d].var);
  return c && !(rt_dims_of(g, c) >> d & 1u) ? c : NULL;
}

/* Item d of the composed edge: what f's item becomes when m's dimensions are read through e. */
static int compose_item(rt_graph *g, const rt_edge *e, const atoll_rt *m, const rt_item *f,
                        const atoll_sym *const *point, unsigned sliced, int d, rt_item *out) {
  unsigned uses = (rt_dims_of(g, f->lo) | rt_dims_of(g, f->hi)) & sliced;
  if (!uses) {
    *out = (rt_item){rt_substitute(g, f->lo, m->dims, point), rt_substitute(g, f->hi, m->dims, point)};
    return 1;
  }
  /* A slice of m becomes one of the source when m walks the same dimension at a constant distance. */
  if (uses != 1u << d || f->hi)
    return 0;
  const atoll_sym *c = offset_from(g, f->lo, d);
  if (!c || rt_dims_of(g, c) & sliced)
    return 0;
  c = rt_substitute(g, c, m->dims & ~sliced, point);
  *out = (rt_item){atoll_sym_add(g->syms, e->item[d].lo, c), atoll_sym_add(g->syms, e->item[d].hi, c)};
  return 1;
}

int rt_compose(rt_graph *g, const rt_edge *e, const atoll_rt *m, const rt_edge *f, rt_edge *out) {
  const atoll_rt *src = rt_src(g, f);
  const atoll_sym *point[RT_DIMS];
  unsigned sliced = 0, found = 0;
  int last_outer = -1, first_inner = RT_DIMS;
  *out = *e;
  out->src = f->src;
  memset(out->item, 0, sizeof out->item);
  if (!out->text)
    out->text = f->text;
  for (int d = 0; d < g->dims; d++) {
    point[d] = e->item[d].lo;
    if (rt_has(m, d) && e->item[d].hi)
      sliced |= 1u << d;
  }
  for (int d = 0; d < g->dims; d++) {
    if (!rt_has(src, d))
      continue;
    if (!compose_item(g, e, m, &f->item[d], point, sliced, d, &out->item[d]))
      return 0;
    if (f->item[d].hi && d < first_inner)
      first_inner = d;
    if (!f->item[d].hi && out->item[d].hi) {
      found |= 1u << d;
      last_outer = d;
    }
  }
  /* The axes of e's slices come before those of m's own. */
  return found == sliced && last_outer < first_inner;
}

static int fold_views(rt_graph *g) {
  int changed = 0;
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      rt_edge *e = &g->node[i]->in[k], folded;
      const atoll_rt *m = rt_src(g, e);
      if ((m->op != RT_IDENT && m->op != RT_DETACH) || m->in[0].src == m->id || m->id == i ||
          !rt_compose(g, e, m, &m->in[0], &folded))
        continue;
      rt_src(g, &folded)->accumulates |= m->accumulates;
      *e = folded;
      changed = 1;
    }
  return changed;
}

/* ---- equal nodes ---- */

static int same_edge(const rt_graph *g, const rt_edge *a, const rt_edge *b) {
  if (a->src != b->src || a->cond != b->cond)
    return 0;
  for (int d = 0; d < g->dims; d++)
    if (rt_has(rt_src(g, a), d) && (a->item[d].lo != b->item[d].lo || a->item[d].hi != b->item[d].hi))
      return 0;
  return 1;
}

static int same_node(const atoll_rt *a, const atoll_rt *b) {
  if (a->op != b->op || !can_stand_for(a, b) || a->inputs != b->inputs || a->value != b->value || a->expr != b->expr ||
      a->axis != b->axis || a->picks != b->picks || a->normal != b->normal || a->serial != b->serial)
    return 0;
  if (memcmp(a->start, b->start, sizeof a->start) || memcmp(a->order, b->order, sizeof a->order))
    return 0;
  if ((a->spec || b->spec) && (!a->spec || !b->spec || strcmp(a->spec, b->spec)))
    return 0;
  for (int k = 0; k < a->inputs; k++)
    if (!same_edge(a->g, &a->in[k], &b->in[k]))
      return 0;
  return 1;
}

static int share(rt_graph *g) {
  int changed = 0;
  for (int i = 0; i < g->nodes; i++) {
    atoll_rt *a = g->node[i];
    if (!a || a->op == RT_CALL || a->op == RT_SINK || a->op == RT_INPUT || a->accumulates)
      continue;
    for (int j = 0; j < i; j++) {
      atoll_rt *b = g->node[j];
      if (!b || b->accumulates || !same_node(a, b))
        continue;
      redirect(g, a, b);
      g->node[i] = NULL;
      changed = 1;
      break;
    }
  }
  return changed;
}

/* ---- algebra ---- */

static int is_number(const rt_graph *g, const rt_edge *e, double v) {
  const atoll_rt *x = rt_src(g, e);
  return x->op == RT_CONST && x->axes == 0 && x->value == v;
}

static void become_view(atoll_rt *x, int k) {
  x->in[0] = x->in[k];
  x->op = RT_IDENT;
  x->inputs = 1;
}

/* The operand that the result equals, or -1. */
static int neutral(const atoll_rt *x) {
  const rt_graph *g = x->g;
  switch (x->op) {
  case RT_ADD:
    return is_number(g, &x->in[0], 0) ? 1 : is_number(g, &x->in[1], 0) ? 0 : -1;
  case RT_SUB:
    return is_number(g, &x->in[1], 0) ? 0 : -1;
  case RT_MUL:
    return is_number(g, &x->in[0], 1) ? 1 : is_number(g, &x->in[1], 1) ? 0 : -1;
  case RT_DIV:
    return is_number(g, &x->in[1], 1) ? 0 : -1;
  case RT_CAST:
    return rt_src(g, &x->in[0])->dtype == x->dtype ? 0 : -1;
  case RT_RESHAPE:
  case RT_EXPAND:
    return 0;
  default:
    return -1;
  }
}

static int drop_neutral(atoll_rt *x) {
  const atoll_sym *shape[RT_AXES];
  int k = neutral(x);
  if (k < 0 || rt_view_shape(x->g, &x->in[k], shape) != x->axes ||
      memcmp(shape, x->shape, (size_t)x->axes * sizeof *shape) != 0)
    return 0;
  become_view(x, k);
  return 1;
}

/* (x * 2) * 3, -(-x), reshape of a reshape */
static int merge_chain(atoll_rt *x) {
  rt_graph *g = x->g;
  atoll_rt *y = x->inputs ? rt_src(g, &x->in[0]) : NULL;
  if (!y || y->inputs == 0 || !rt_is_identity(g, &x->in[0]) || y->dims & ~x->dims)
    return 0;
  if (x->op == RT_RESHAPE && y->op == RT_RESHAPE) {
    x->in[0] = y->in[0];
    return 1;
  }
  if (!rt_is_nearly_real(x->dtype))
    return 0;
  if (x->op == RT_NEG && y->op == RT_NEG) {
    x->in[0] = y->in[0];
    x->op = RT_IDENT;
    return 1;
  }
  if (x->op != RT_MUL || y->op != RT_MUL)
    return 0;
  const atoll_rt *a = rt_src(g, &x->in[1]), *b = rt_src(g, &y->in[1]);
  if (a->op != RT_CONST || b->op != RT_CONST || a->axes || b->axes)
    return 0;
  const double factor = rt_round(x->dtype, rt_round(x->dtype, a->value) * rt_round(x->dtype, b->value));
  if (!isfinite(factor) || fabs(factor) < (x->dtype == ATOLL_F32 ? FLT_MIN : DBL_MIN))
    return 0; /* one after the other they may do more than both at once */
  atoll_rt *c = rt_number(a, factor);
  if (!c)
    return 0;
  x->in[0] = y->in[0];
  x->in[1].src = c->id;
  return 1;
}

/* A gradient that takes one element of what was repeated is what was repeated. */
static int pick_repeated(atoll_rt *x) {
  rt_graph *g = x->g;
  const rt_edge *e = &x->in[0];
  if (x->op != RT_PICK || x->axis || x->expr)
    return 0;
  const atoll_rt *y = rt_src(g, e);
  const atoll_sym *shape[RT_AXES];
  rt_edge through;
  if (y->op != RT_EXPAND || !rt_compose(g, e, y, &y->in[0], &through))
    return 0;
  int axes = rt_view_shape(g, &through, shape), own = y->axes - x->picks;
  if (axes < 0 || axes > own)
    return 0;
  x->op = RT_EXPAND;
  x->in[0] = through;
  x->picks = 0;
  memset(x->start, 0, sizeof x->start);
  return 1;
}

/* Whether a reshape only puts axes of extent 1 in front, which a repetition does by itself. */
static int adds_leading_axes(const atoll_rt *x) {
  const atoll_sym *shape[RT_AXES];
  const int axes = x->op == RT_RESHAPE ? rt_view_shape(x->g, &x->in[0], shape) : -1, more = x->axes - axes;
  int64_t extent;
  if (axes < 0 || more < 0 || memcmp(shape, x->shape + more, (size_t)axes * sizeof *shape) != 0)
    return 0;
  for (int k = 0; k < more; k++)
    if (!rt_is_const(x->shape[k], &extent) || extent != 1)
      return 0;
  return 1;
}

/* The sum, over a slice, of one element of what was repeated is the sum of what was repeated: so is the gradient of a
 * sum over the past one over the future. */
static int sum_of_repeated(atoll_rt *x) {
  rt_graph *g = x->g;
  const rt_edge *e = &x->in[0];
  if (x->op != RT_PICK || x->axis != 1 || x->expr || rt_slices(g, e) != 1)
    return 0;
  const atoll_rt *y = rt_src(g, e);
  const atoll_sym *shape[RT_AXES];
  rt_edge through;
  if (y->op != RT_EXPAND || !rt_compose(g, e, y, &y->in[0], &through))
    return 0;
  const atoll_rt *r = rt_src(g, &through);
  const rt_edge reshaped = through;
  if (adds_leading_axes(r) && !rt_compose(g, &reshaped, r, &r->in[0], &through))
    return 0;
  if (rt_src(g, &through)->axes != x->axes || rt_view_shape(g, &through, shape) != x->axes + 1)
    return 0;
  if (memcmp(shape + 1, x->shape, (size_t)x->axes * sizeof *shape) != 0)
    return 0;
  x->op = RT_SUM;
  x->axis = 0;
  x->in[0] = through;
  x->picks = 0;
  memset(x->start, 0, sizeof x->start);
  return 1;
}

/* x of scalars, where x and its operands are scalars that were repeated: computed once, then repeated. */
static int expand_last(atoll_rt *x) {
  rt_graph *g = x->g;
  atoll_rt *scalar[3];
  int repeated = 0;
  if (!rt_is_element(x->op) || x->axes == 0)
    return 0;
  for (int k = 0; k < x->inputs; k++) {
    atoll_rt *y = rt_src(g, &x->in[k]);
    if (!rt_is_identity(g, &x->in[k]))
      return 0;
    if (y->op == RT_EXPAND && rt_is_identity(g, &y->in[0])) {
      repeated = 1;
      y = rt_src(g, &y->in[0]);
    }
    if (y->axes)
      return 0;
    scalar[k] = y;
  }
  atoll_rt *once = repeated ? rt_element(x->op, x->inputs, scalar) : NULL;
  if (!once)
    return 0;
  once->dtype = x->dtype;
  x->op = RT_EXPAND;
  x->inputs = 0;
  return rt_connect(x, once) != NULL;
}

/* A reshape or a repetition of a repeated scalar repeats the scalar; an expression without variables is a number. */
static int repeat_directly(atoll_rt *x) {
  rt_graph *g = x->g;
  int64_t v;
  if (x->op == RT_EVAL && x->axes == 0 && rt_is_const(x->expr, &v) && !x->dims) {
    x->op = RT_CONST;
    x->value = (double)v;
    x->expr = NULL;
    return 1;
  }
  if (x->op != RT_RESHAPE && x->op != RT_EXPAND)
    return 0;
  const atoll_rt *y = rt_src(g, &x->in[0]);
  if (!rt_is_identity(g, &x->in[0]))
    return 0;
  if (x->op == RT_EXPAND && y->op == RT_RESHAPE && rt_is_identity(g, &y->in[0]) && rt_src(g, &y->in[0])->axes == 0) {
    x->in[0] = y->in[0];
    return 1;
  }
  if (y->op != RT_EXPAND || !rt_is_identity(g, &y->in[0]) || rt_src(g, &y->in[0])->axes)
    return 0;
  x->in[0] = y->in[0];
  x->op = RT_EXPAND;
  return 1;
}

/* A sum over an axis of a contraction is the contraction without that label. */
static int sum_of_einsum(atoll_rt *x) {
  rt_graph *g = x->g;
  if (x->op != RT_SUM || !rt_is_identity(g, &x->in[0]))
    return 0;
  const atoll_rt *y = rt_src(g, &x->in[0]);
  if (y->op != RT_EINSUM || y->dims & ~x->dims || !rt_is_nearly_real(x->dtype))
    return 0;
  const char *comma = strchr(y->spec, ','), *arrow = strstr(comma, "->");
  char label = arrow[2 + x->axis], spec[4 * RT_AXES];
  if (!memchr(y->spec, label, (size_t)(comma - y->spec)) || !memchr(comma, label, (size_t)(arrow - comma)))
    return 0;
  (void)snprintf(spec, sizeof spec, "%.*s%s", (int)(arrow + 2 + x->axis - y->spec), y->spec, arrow + 3 + x->axis);
  x->spec = rt_copy_text(g, spec);
  x->op = RT_EINSUM;
  x->axis = 0;
  x->inputs = 0;
  return x->spec && rt_add_edge(x, &y->in[0]) && rt_add_edge(x, &y->in[1]);
}

/* A sum over the source's own axis is taken at the source's points, before they are read together: less is kept. */
static int sum_at_source(atoll_rt *x) {
  rt_graph *g = x->g;
  if (x->op != RT_SUM || rt_is_identity(g, &x->in[0]))
    return 0;
  atoll_rt *src = rt_src(g, &x->in[0]);
  int slices = rt_slices(g, &x->in[0]);
  if (slices == 0 || x->axis < slices || rt_is_free(src))
    return 0;
  atoll_rt *inner = atoll_rt_sum(src, x->axis - slices);
  if (!inner || inner->dims != src->dims)
    return 0;
  inner->where = src->where;
  x->in[0].src = inner->id;
  x->op = RT_IDENT;
  x->axis = 0;
  return 1;
}

/* Sums and permutations change places, so that sums meet what they can become part of. */
static int sum_of_permute(atoll_rt *x) {
  rt_graph *g = x->g;
  if (x->op != RT_SUM || !rt_is_identity(g, &x->in[0]))
    return 0;
  const atoll_rt *y = rt_src(g, &x->in[0]);
  if (y->op != RT_PERMUTE || y->dims & ~x->dims)
    return 0;
  const int axis = y->order[x->axis];
  atoll_rt *view = rt_view(rt_src(g, &y->in[0]), y->in[0].item, y->in[0].text), *inner = atoll_rt_sum(view, axis);
  if (!inner || inner->dims & ~x->dims)
    return 0;
  x->op = RT_PERMUTE;
  for (int k = 0, n = 0; k < y->axes; k++)
    if (k != x->axis)
      x->order[n++] = y->order[k] - (y->order[k] > axis);
  x->axis = 0;
  x->inputs = 0;
  return rt_connect(x, inner) != NULL;
}

/* A contraction takes axes in any order: it reads what was permuted. */
static int einsum_of_permute(atoll_rt *x) {
  rt_graph *g = x->g;
  for (int k = 0; x->op == RT_EINSUM && k < 2; k++) {
    const atoll_rt *y = rt_src(g, &x->in[k]);
    if (y->op != RT_PERMUTE || !rt_is_identity(g, &x->in[k]) || y->dims & ~x->dims)
      continue;
    char *spec = (char *)rt_copy_text(g, x->spec);
    if (!spec)
      return 0;
    const size_t at = k ? (size_t)(strchr(spec, ',') + 1 - spec) : 0;
    for (int a = 0; a < y->axes; a++)
      spec[at + (size_t)y->order[a]] = x->spec[at + (size_t)a];
    x->spec = spec;
    x->in[k] = y->in[0];
    return 1;
  }
  return 0;
}

/* A permutation that moves nothing. */
static int drop_permute(atoll_rt *x) {
  if (x->op != RT_PERMUTE)
    return 0;
  for (int k = 0; k < x->axes; k++)
    if (x->order[k] != k)
      return 0;
  x->op = RT_IDENT;
  memset(x->order, 0, sizeof x->order);
  return 1;
}

/* A scalar constant repeated is as good as the scalar where shapes are broadcast and another operand has the shape. */
static int read_scalar(atoll_rt *x) {
  rt_graph *g = x->g;
  const atoll_sym *shape[RT_AXES];
  int changed = 0;
  for (int k = 0; rt_is_element(x->op) && x->inputs > 1 && k < x->inputs; k++) {
    const atoll_rt *y = rt_src(g, &x->in[k]);
    if (y->op != RT_EXPAND || rt_src(g, &y->in[0])->op != RT_CONST || rt_slices(g, &x->in[k]))
      continue;
    int full = 0;
    for (int i = 0; i < x->inputs; i++)
      full |= i != k && rt_view_shape(g, &x->in[i], shape) == x->axes &&
              memcmp(shape, x->shape, (size_t)x->axes * sizeof *shape) == 0;
    if (!full)
      continue;
    x->in[k] = (rt_edge){.src = y->in[0].src};
    changed = 1;
  }
  return changed;
}

static double apply(rt_op op, double a, double b) {
  switch (op) {
  case RT_NEG:
    return -a;
  case RT_ADD:
    return a + b;
  case RT_SUB:
    return a - b;
  case RT_MUL:
    return a * b;
  default:
    return a / b;
  }
}

static int fold_constants(atoll_rt *x) {
  rt_graph *g = x->g;
  if (x->op != RT_NEG && x->op != RT_ADD && x->op != RT_SUB && x->op != RT_MUL && x->op != RT_DIV)
    return 0;
  if (!rt_is_nearly_real(x->dtype))
    return 0;
  for (int k = 0; k < x->inputs; k++)
    if (rt_src(g, &x->in[k])->op != RT_CONST || x->dims)
      return 0;
  const double a = rt_round(x->dtype, rt_src(g, &x->in[0])->value);
  const double b = x->inputs > 1 ? rt_round(x->dtype, rt_src(g, &x->in[1])->value) : 0;
  x->value = rt_round(x->dtype, apply(x->op, a, b));
  x->op = RT_CONST;
  x->inputs = 0;
  return 1;
}

static int algebra(rt_graph *g) {
  int changed = 0;
  for (int i = 0; i < g->nodes; i++) {
    atoll_rt *x = g->node[i];
    if (x)
      changed |= drop_neutral(x) || expand_last(x) || repeat_directly(x) || merge_chain(x) || pick_repeated(x) ||
                 sum_of_repeated(x) || sum_of_einsum(x) || sum_at_source(x) || sum_of_permute(x) ||
                 einsum_of_permute(x) || drop_permute(x) || read_scalar(x) || fold_constants(x);
  }
  return changed;
}

atoll_err rt_pass_simplify(rt_graph *g) {
  enum { ROUNDS = 50 }; /* each rule removes something, so this is never reached */
  for (int round = 0; round < ROUNDS; round++) {
    int changed = fold_views(g) | algebra(g);
    changed |= share(g);
    ATOLL_TRY(rt_graph_error(g));
    if (!changed)
      break;
  }
  return rt_pass_domains(g);
}

/* Lifting between scans and recurrences.
 *
 * A sum over all of dimension d, y = sum x[0:D], becomes a running sum: s[0] = x[0], s[d] = s[d-1] + x[d], y = s[D-1].
 * The values of x then live for one step instead of until the end, and what makes them can be fused with what adds them
 * up: gradients of parameters are such sums over time. The sum runs against time where x comes from the future
 * (returns, back-propagation), so that both go the same way.
 *
 * Where x is summed over several dimensions, the others become dimensions of the running sum, y = (sum over d)[0:B], so
 * that each is lifted in its turn and what makes x can be done for one point of all of them at a time. */
#include "passes.h"

#include <stdlib.h>
#include <string.h>

/* Whether x depends on later points of d through a recurrence or a shift. */
static int looks_ahead(const rt_graph *g, const atoll_rt *x, int d, char *seen) {
  int64_t c;
  if (seen[x->id] || !rt_has(x, d))
    return 0;
  seen[x->id] = 1;
  for (int k = 0; k < x->inputs; k++) {
    const rt_item *item = &x->in[k].item[d];
    const atoll_rt *src = rt_src(g, &x->in[k]);
    if (!rt_has(src, d))
      continue;
    if (!item->hi && rt_is_const(atoll_sym_sub(g->syms, item->lo, g->dim[d].var), &c) && c > 0)
      return 1;
    if (looks_ahead(g, src, d, seen))
      return 1;
  }
  return 0;
}

static int is_whole(const rt_graph *g, const rt_item *item, int d) {
  int64_t lo;
  return rt_is_const(item->lo, &lo) && lo == 0 && item->hi == g->dim[d].size;
}

/* The dimension over whose whole range x sums, or -1. */
static int summed_dimension(const atoll_rt *x) {
  const rt_graph *g = x->g;
  const rt_edge *e = &x->in[0];
  const atoll_rt *src;
  int slice = 0;
  if (x->op != RT_SUM || !rt_is_nearly_real(x->dtype) || rt_is_free(src = rt_src(g, e)))
    return -1;
  for (int d = 0; d < g->dims; d++) {
    if (!rt_has(src, d) || !e->item[d].hi || slice++ != x->axis)
      continue;
    return is_whole(g, &e->item[d], d) && !rt_has(x, d) ? d : -1;
  }
  return -1;
}

/* Dimensions besides d of which the sum x reads the whole range; 0 if of one it reads another range. */
static unsigned other_dimensions(const atoll_rt *x, int d) {
  const rt_graph *g = x->g;
  unsigned others = 0;
  for (int k = 0; k < g->dims; k++) {
    const rt_item *item = &x->in[0].item[k];
    if (k == d || !rt_has(rt_src(g, &x->in[0]), k) || !item->hi)
      continue;
    if (!is_whole(g, item, k) || rt_has(x, k))
      return 0;
    others |= 1u << k;
  }
  return others;
}

static rt_edge *add_case(atoll_rt *s, const atoll_rt *value, const atoll_sym *cond) {
  rt_edge *e = rt_connect(s, value);
  if (e)
    e->cond = cond;
  return e;
}

static atoll_err run_sum(atoll_rt *x, int d, int backward) {
  rt_graph *g = x->g;
  const rt_dim *dim = &g->dim[d];
  const atoll_sym *last = atoll_sym_sub(g->syms, dim->size, rt_int(g, 1)), *zero = rt_int(g, 0);
  const atoll_sym *first = backward ? last : zero, *end = backward ? zero : last;
  const unsigned others = other_dimensions(x, d);
  const int leading = __builtin_popcount(others);
  rt_item item[RT_DIMS];
  memcpy(item, x->in[0].item, sizeof item);
  for (int k = 0; k < g->dims; k++)
    if (k == d || others >> k & 1)
      item[k] = (rt_item){g->dim[k].var, NULL};
  atoll_rt *term = rt_view(rt_src(g, &x->in[0]), item, x->in[0].text);
  atoll_rt *s = rt_node(g, RT_MERGE, x->dtype);
  if (!term || !s)
    return rt_graph_error(g);
  s->name = x->name;
  s->dims = x->dims | 1u << d | others;
  s->where = x->where;
  rt_set_shape(s, x->axes - leading, x->shape + leading);
  for (int k = 0; k < g->dims; k++)
    item[k] = rt_has(s, k) ? (rt_item){g->dim[k].var, NULL} : (rt_item){NULL, NULL};
  item[d].lo = atoll_sym_add(g->syms, dim->var, rt_int(g, backward ? 1 : -1));
  atoll_rt *sum = atoll_rt_add(rt_view(s, item, NULL), term);
  if (!sum || !add_case(s, term, atoll_sym_binary(g->syms, ATOLL_SYM_EQ, dim->var, first)) ||
      !add_case(s, sum, atoll_sym_bool(g->syms, 1)))
    return rt_graph_error(g);
  x->op = RT_IDENT;
  x->axis = 0;
  x->inputs = 0;
  rt_edge *e = rt_connect(x, s);
  x->dims &= ~(1u << d | others);
  for (int k = 0; e && k < g->dims; k++)
    if (k == d)
      e->item[k].lo = end;
    else if (others >> k & 1)
      e->item[k] = (rt_item){zero, g->dim[k].size};
  return rt_graph_error(g);
}

static atoll_err lift_all(rt_graph *g, int *lifted) {
  const int n = g->nodes;
  for (int i = 0; i < n; i++) {
    atoll_rt *x = g->node[i];
    int d = x ? summed_dimension(x) : -1;
    if (d < 0)
      continue;
    char *seen = calloc((size_t)g->nodes, 1);
    if (!seen)
      return atoll_fail(ATOLL_NOMEM, "lift: no memory");
    int backward = looks_ahead(g, rt_src(g, &x->in[0]), d, seen);
    free(seen);
    ATOLL_TRY(run_sum(x, d, backward));
    *lifted = 1;
  }
  return ATOLL_OK;
}

/* Until nothing is left: what one sum leaves for the next stands in its index when views have been folded. */
atoll_err rt_pass_lift(rt_graph *g) {
  for (int lifted = 1; lifted;) {
    lifted = 0;
    ATOLL_TRY(lift_all(g, &lifted));
    if (lifted)
      ATOLL_TRY(rt_pass_simplify(g));
  }
  return ATOLL_OK;
}

/* Scans to recurrences: the way back from what lift.c calls lifting, for scans whose every value is read.
 *
 * A reduction over all of the past, y[t] = sum x[0:t+1], is a running one: y[0] = x[0], y[t] = y[t-1] + x[t]. Over all
 * of the future, sum x[t:T], it runs against time. So do maxima, and sums with the powers of a number (returns):
 *
 *     sum_k g^k x[t+k]  over t:T     y[t] = x[t] + g y[t+1]
 *     sum_k g^k x[k]    over 0:t+1   y[t] = y[t-1] + g^t x[t]
 *
 * Work then grows with T rather than with its square, and if nothing else reads slices of x, its values live for a step
 * instead of until the end: a ring where there was the whole length. That holds for every such scan, so all are
 * rewritten. No order is lost: y[t-1] needs nothing that y[t] does not. */
#include "passes.h"
#include "poly.h"

#include <isl/space.h>
#include <math.h>
#include <string.h>

struct scan {
  atoll_rt *y;
  rt_edge slice; /* what y reads */
  int d;         /* along this dimension */
  int future;    /* t:T, else 0:t+1 */
  double factor; /* of powers; 1: none */
};

/* ---- recognising ---- */

static atoll_rt *same_point(const atoll_rt *x, int k, rt_op op) {
  atoll_rt *src = k < x->inputs ? rt_src(x->g, &x->in[k]) : NULL;
  return src && src->op == op && rt_is_identity(x->g, &x->in[k]) ? src : NULL;
}

/* Whether item is 0:t+1 or t:T for dimension d. */
static int is_past_or_future(rt_graph *g, const rt_item *item, int d, int *future) {
  const rt_dim *dim = &g->dim[d];
  int64_t v;
  *future = item->lo == dim->var;
  if (*future)
    return item->hi == dim->size;
  return rt_is_const(item->lo, &v) && v == 0 && rt_is_const(atoll_sym_sub(g->syms, item->hi, dim->var), &v) && v == 1;
}

/* Whether axis `axis` of what e reads is a dimension's past or future, which nothing else in it depends on. */
static int is_slice(struct scan *s, const rt_edge *e, int axis) {
  rt_graph *g = s->y->g;
  const atoll_rt *src = rt_src(g, e);
  int slices = 0;
  s->d = -1;
  for (int d = 0; d < g->dims; d++)
    if (rt_has(src, d) && e->item[d].hi && slices++ == axis)
      s->d = d;
  if (s->d < 0 || !rt_has(s->y, s->d) || !is_past_or_future(g, &e->item[s->d], s->d, &s->future))
    return 0;
  const unsigned bit = 1u << s->d;
  for (int d = 0; d < g->dims; d++)
    if (d != s->d && rt_has(src, d) && (rt_dims_of(g, e->item[d].lo) | rt_dims_of(g, e->item[d].hi)) & bit)
      return 0;
  for (int k = 0; k < s->y->axes; k++)
    if (rt_dims_of(g, s->y->shape[k]) & bit)
      return 0;
  s->slice = *e;
  return 1;
}

/* Input k of x as powers of a number along axis 0. */
static int is_powers(const atoll_rt *x, int k, double *factor) {
  const atoll_rt *p = same_point(x, k, RT_POW), *kept = same_point(x, k, RT_RESHAPE);
  if (kept)
    p = same_point(kept, 0, RT_POW);
  const atoll_rt *number = p ? same_point(p, 0, RT_CONST) : NULL, *at = p ? same_point(p, 1, RT_EVAL) : NULL;
  if (!number || !at || at->axes != 1 || at->expr != rt_axis(x->g, 0))
    return 0;
  for (int a = 1; kept && a < kept->axes; a++) {
    int64_t extent;
    if (!rt_is_const(kept->shape[a], &extent) || extent != 1)
      return 0;
  }
  *factor = number->value;
  return 1;
}

static int recognise(atoll_rt *y, struct scan *s) {
  *s = (struct scan){.y = y, .factor = 1};
  if (y->op != RT_MAXIMUM && (y->op != RT_SUM || !rt_is_nearly_real(y->dtype)))
    return 0;
  if (is_slice(s, &y->in[0], y->axis))
    return 1;
  const atoll_rt *m = y->op == RT_SUM && y->axis == 0 ? same_point(y, 0, RT_MUL) : NULL;
  for (int k = 0; m && k < 2; k++)
    if (is_powers(m, k, &s->factor) && is_slice(s, &m->in[1 - k], 0) &&
        rt_slices(y->g, &s->slice) + rt_src(y->g, &s->slice)->axes == m->axes)
      return 1;
  return 0;
}

/* ---- rewriting ---- */

/* The points that s->y is needed at, and those on the way to them from where its values begin. */
static atoll_err domain_of(const struct scan *s) {
  atoll_rt *y = s->y;
  if (!y->where)
    return ATOLL_OK;
  isl_ctx *ctx = rt_poly_create();
  if (!ctx)
    return atoll_fail(ATOLL_NOMEM, "scans: no memory");
  isl_set *box = rt_poly_box(ctx, y), *domain = rt_poly_domain(ctx, y);
  isl_map *way = isl_map_universe(isl_space_map_from_set(isl_set_get_space(domain)));
  for (int d = 0, k = 0; d < y->g->dims; d++) {
    if (!rt_has(y, d))
      continue;
    if (d != s->d)
      way = isl_map_equate(way, isl_dim_in, k, isl_dim_out, k);
    else if (s->future)
      way = isl_map_order_le(way, isl_dim_in, k, isl_dim_out, k);
    else
      way = isl_map_order_ge(way, isl_dim_in, k, isl_dim_out, k);
    k++;
  }
  domain = rt_poly_coalesce(isl_set_intersect(isl_set_apply(domain, way), isl_set_copy(box)));
  atoll_err err = domain ? rt_poly_condition(y, domain, box, &y->where) : rt_poly_error(ctx, "scans");
  isl_set_free(domain);
  isl_set_free(box);
  isl_ctx_free(ctx);
  return err;
}

/* What a point adds. */
static atoll_rt *term_of(const struct scan *s) {
  rt_graph *g = s->y->g;
  rt_item item[RT_DIMS];
  memcpy(item, s->slice.item, sizeof item);
  item[s->d] = (rt_item){g->dim[s->d].var, NULL};
  atoll_rt *x = rt_view(rt_src(g, &s->slice), item, s->slice.text);
  if (!x || s->factor == 1 || s->future)
    return x;
  return atoll_rt_mul(x, atoll_rt_pow(rt_number(x, s->factor), rt_eval_node(g, x->dtype, g->dim[s->d].var, 0, NULL)));
}

static int may_be_nan(atoll_dtype t) { return rt_is_nearly_real(t) || t == ATOLL_BF16; }

static atoll_err rewrite(const struct scan *s) {
  rt_graph *g = s->y->g;
  const rt_dim *dim = &g->dim[s->d];
  const atoll_sym *one = rt_int(g, 1), *first = s->future ? atoll_sym_sub(g->syms, dim->size, one) : rt_int(g, 0);
  atoll_rt *y = s->y;
  rt_item item[RT_DIMS] = {{NULL, NULL}};
  ATOLL_TRY(domain_of(s));
  for (int d = 0; d < g->dims; d++)
    if (rt_has(y, d))
      item[d].lo = g->dim[d].var;
  item[s->d].lo = s->future ? atoll_sym_add(g->syms, dim->var, one) : atoll_sym_sub(g->syms, dim->var, one);
  atoll_rt *before = rt_view(y, item, NULL), *term = term_of(s);
  if (before && s->future && s->factor != 1)
    before = atoll_rt_scale(before, s->factor);
  /* As a reduction does, a running maximum passes over NaN: neither operand that comes second ever is. */
  atoll_rt *more = y->op == RT_SUM ? atoll_rt_add(before, term) : atoll_rt_max(term, before);
  atoll_rt *begin = y->op == RT_SUM || !may_be_nan(y->dtype) ? term : atoll_rt_max(term, rt_number(y, -INFINITY));
  if (!more || !begin)
    return rt_graph_error(g);
  y->op = RT_MERGE;
  y->axis = 0;
  y->inputs = 0;
  rt_edge *e = rt_connect(y, begin);
  if (e)
    e->cond = atoll_sym_binary(g->syms, ATOLL_SYM_EQ, dim->var, first);
  e = e ? rt_connect(y, more) : NULL;
  if (e)
    e->cond = atoll_sym_bool(g->syms, 1);
  return rt_graph_error(g);
}

atoll_err rt_pass_scans(rt_graph *g) {
  const int n = g->nodes;
  int changed = 0;
  for (int i = 0; i < n; i++) {
    struct scan s;
    if (!g->node[i] || !recognise(g->node[i], &s))
      continue;
    ATOLL_TRY(rewrite(&s));
    changed = 1;
  }
  return changed ? rt_pass_simplify(g) : ATOLL_OK;
}

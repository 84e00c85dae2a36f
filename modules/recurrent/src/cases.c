/* Merge conditions: each case gets what earlier cases leave it, cases that are left nothing are mistakes in the user's
 * graph. What the conditions mean is unchanged: the first that holds counts. So a case may be an exception from a later
 * one ("t==0", then "t<P" or "true"); two of which neither is part of the other, and that both hold somewhere, say of
 * no point there what their author had in mind, and are refused. */
#include "passes.h"
#include "poly.h"

static atoll_err check_case(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int k) {
  char label[96];
  isl_set *left = isl_map_domain(rt_poly_access(ctx, x, k));
  left = isl_set_intersect_params(left, rt_poly_context(ctx, g));
  isl_bool empty = isl_set_is_empty(left);
  isl_set_free(left);
  if (empty == isl_bool_error)
    return rt_poly_error(ctx, "cases");
  if (empty)
    return atoll_fail(ATOLL_USAGE, "case '%s' of %s never applies: earlier cases or the domain leave it nothing",
                      x->in[k].text ? x->in[k].text : "", rt_label(x, label, sizeof label));
  return ATOLL_OK;
}

/* Case k and an earlier one. Most pairs are apart, or one of them is "true", before isl is asked for more. */
static atoll_err check_pair(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int i, int k) {
  isl_set *params = rt_poly_context(ctx, g);
  isl_set *first = isl_set_intersect_params(rt_poly_where(ctx, x, x->in[i].cond), isl_set_copy(params));
  isl_set *later = isl_set_intersect_params(rt_poly_where(ctx, x, x->in[k].cond), params);
  isl_set *both = isl_set_intersect(isl_set_copy(first), isl_set_copy(later));
  const isl_bool apart = isl_set_is_empty(both), part = apart ? apart : isl_set_is_subset(first, later);
  char label[96], at[200];
  atoll_err err = ATOLL_OK;
  if (part == isl_bool_error)
    err = rt_poly_error(ctx, "cases");
  else if (!part)
    err = atoll_fail(ATOLL_USAGE, "cases '%s' and '%s' of %s overlap at%s: make one a part of the other",
                     x->in[i].text ? x->in[i].text : "", x->in[k].text ? x->in[k].text : "",
                     rt_label(x, label, sizeof label), rt_poly_sample(x, both, at, sizeof at));
  isl_set_free(first);
  isl_set_free(later);
  isl_set_free(both);
  return err;
}

static atoll_err check_overlaps(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int k) {
  int64_t always;
  for (int i = 0; i < k && !rt_is_const(x->in[k].cond, &always); i++)
    ATOLL_TRY(check_pair(ctx, g, x, i, k));
  return ATOLL_OK;
}

atoll_err rt_pass_cases(rt_graph *g) {
  atoll_err err = ATOLL_OK;
  isl_ctx *ctx = rt_poly_create();
  if (!ctx)
    return atoll_fail(ATOLL_NOMEM, "cases: no memory");
  for (int i = 0; i < g->nodes && err == ATOLL_OK; i++)
    for (int k = 0; g->node[i] && g->node[i]->op == RT_MERGE && k < g->node[i]->inputs && err == ATOLL_OK; k++) {
      err = check_case(ctx, g, g->node[i], k);
      if (err == ATOLL_OK)
        err = check_overlaps(ctx, g, g->node[i], k);
    }
  isl_ctx_free(ctx);
  return err;
}

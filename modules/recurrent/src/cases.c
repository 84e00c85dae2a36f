/* Merge conditions: each case gets what earlier cases leave it, cases that are left nothing are mistakes in the user's
 * graph. What the conditions mean is unchanged: the first that holds counts. */
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

atoll_err rt_pass_cases(rt_graph *g) {
  atoll_err err = ATOLL_OK;
  isl_ctx *ctx = rt_poly_create();
  if (!ctx)
    return atoll_fail(ATOLL_NOMEM, "cases: no memory");
  for (int i = 0; i < g->nodes && err == ATOLL_OK; i++)
    for (int k = 0; g->node[i] && g->node[i]->op == RT_MERGE && k < g->node[i]->inputs && err == ATOLL_OK; k++)
      err = check_case(ctx, g, g->node[i], k);
  isl_ctx_free(ctx);
  return err;
}

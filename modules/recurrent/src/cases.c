/* Merge conditions: each case gets what earlier cases leave it. Cases that are left nothing are mistakes in the user's
 * graph when that is so whatever the bounds. With these bounds alone it is none: a definition of the first point and of
 * all others also means something for a single point. Such cases go; what the rest means is unchanged: the first that
 * holds counts. So a case may be an exception from a later one ("t==0", then "t<P" or "true"); two of which neither is
 * part of the other, and that both hold at a point that no case before them took, do not say what their author had in
 * mind there, and are refused. Bounds that are given at run make no difference: what each of their values would be
 * allowed is. "t==0" and "t==T-1" meet for T = 1 alone, where the second is left nothing. */
#include "passes.h"
#include "poly.h"

static isl_set *left_to(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int k) {
  return isl_set_intersect_params(isl_map_domain(rt_poly_access(ctx, x, k)), rt_poly_context(ctx, g));
}

static atoll_err is_left_nothing(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int k, int *nothing) {
  isl_set *left = left_to(ctx, g, x, k);
  isl_bool empty = isl_set_is_empty(left);
  isl_set_free(left);
  *nothing = empty == isl_bool_true;
  return empty == isl_bool_error ? rt_poly_error(ctx, "cases") : ATOLL_OK;
}

/* The graph with bounds that are given at run, all of them. Conditions are read again, since known bounds have become
 * numbers in them. */
static atoll_err generalize(const rt_graph *g, rt_graph **out) {
  rt_graph *any = NULL;
  atoll_err err = rt_graph_clone(g, &any);
  for (int d = 0; err == ATOLL_OK && d < any->dims; d++) {
    any->dim[d].bound = 0;
    any->dim[d].size = atoll_sym_var(any->syms, any->dim[d].bound_name, ATOLL_SYM_INT);
  }
  for (int i = 0; err == ATOLL_OK && i < any->nodes; i++)
    for (int k = 0; err == ATOLL_OK && any->node[i] && any->node[i]->op == RT_MERGE && k < any->node[i]->inputs; k++) {
      rt_edge *e = &any->node[i]->in[k];
      if (e->cond && e->text)
        err = rt_parse_expr(any, "condition", e->text, any->node[i]->dims, ATOLL_SYM_BOOL, &e->cond);
    }
  if (err != ATOLL_OK)
    rt_graph_destroy(&any);
  *out = any;
  return err;
}

/* any: the graph with any bounds, made when it is first asked for. */
static atoll_err check_case(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int k, rt_graph **any, int *nothing) {
  char label[96];
  int never = 0;
  ATOLL_TRY(is_left_nothing(ctx, g, x, k, nothing));
  if (!*nothing)
    return ATOLL_OK;
  if (!*any)
    ATOLL_TRY(generalize(g, any));
  ATOLL_TRY(is_left_nothing(ctx, *any, (*any)->node[x->id], k, &never));
  if (never)
    return atoll_fail(ATOLL_USAGE, "case '%s' of %s never applies: earlier cases or the domain leave it nothing",
                      x->in[k].text ? x->in[k].text : "", rt_label(x, label, sizeof label));
  return ATOLL_OK;
}

/* Where both hold, case k and what is left to case i, with bounds for which the latter is no part of the former and
 * neither is left nothing. */
static isl_set *disputed(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int i, int k, isl_set *first,
                         isl_set *later) {
  isl_set *bounds = isl_set_params(isl_set_subtract(isl_set_copy(first), isl_set_copy(later)));
  bounds = isl_set_intersect(bounds, isl_set_params(left_to(ctx, g, x, i)));
  bounds = isl_set_intersect(bounds, isl_set_params(left_to(ctx, g, x, k)));
  return isl_set_intersect_params(isl_set_intersect(first, later), bounds);
}

static atoll_err overlap(const atoll_rt *x, int i, int k, isl_set *where) {
  const char *one = x->in[i].text ? x->in[i].text : "", *other = x->in[k].text ? x->in[k].text : "";
  char label[96], at[200];
  return atoll_fail(ATOLL_USAGE,
                    "cases '%s' and '%s' of %s overlap at%s: let the first be a part of the second, or write the "
                    "second as '(%s) and not (%s)'",
                    one, other, rt_label(x, label, sizeof label), rt_poly_sample(x, where, at, sizeof at), other, one);
}

/* Case k and what cases before it left an earlier one. Most pairs are apart, or one is part of the other, before isl is
 * asked for more. */
static atoll_err check_pair(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int i, int k) {
  isl_set *params = rt_poly_context(ctx, g);
  isl_set *first = left_to(ctx, g, x, i);
  isl_set *later = isl_set_intersect_params(rt_poly_where(ctx, x, x->in[k].cond), params);
  const isl_bool apart = isl_set_is_disjoint(first, later), part = apart ? apart : isl_set_is_subset(first, later);
  if (part) {
    isl_set_free(first);
    isl_set_free(later);
    return part == isl_bool_error ? rt_poly_error(ctx, "cases") : ATOLL_OK;
  }
  isl_set *where = disputed(ctx, g, x, i, k, first, later);
  const isl_bool nowhere = isl_set_is_empty(where);
  atoll_err err = nowhere == isl_bool_error ? rt_poly_error(ctx, "cases") : ATOLL_OK;
  if (nowhere == isl_bool_false)
    err = overlap(x, i, k, where);
  isl_set_free(where);
  return err;
}

/* dropped: by case, those that go. */
static atoll_err check_overlaps(isl_ctx *ctx, const rt_graph *g, const atoll_rt *x, int k, const char *dropped) {
  int64_t always;
  for (int i = 0; i < k && !rt_is_const(x->in[k].cond, &always); i++)
    if (!dropped[i])
      ATOLL_TRY(check_pair(ctx, g, x, i, k));
  return ATOLL_OK;
}

static atoll_err check_cases(isl_ctx *ctx, rt_graph *g, atoll_rt *x, rt_graph **any) {
  char *dropped = rt_alloc(g, (size_t)x->inputs);
  int nothing, kept = 0;
  if (!dropped)
    return rt_graph_error(g);
  for (int k = 0; k < x->inputs; k++) {
    ATOLL_TRY(check_case(ctx, g, x, k, any, &nothing));
    dropped[k] = (char)nothing;
    if (!nothing)
      ATOLL_TRY(check_overlaps(ctx, g, x, k, dropped));
  }
  for (int k = 0; k < x->inputs; k++)
    if (!dropped[k])
      x->in[kept++] = x->in[k];
  x->inputs = kept;
  return ATOLL_OK;
}

atoll_err rt_pass_cases(rt_graph *g) {
  atoll_err err = ATOLL_OK;
  rt_graph *any = NULL;
  isl_ctx *ctx = rt_poly_create();
  if (!ctx)
    return atoll_fail(ATOLL_NOMEM, "cases: no memory");
  for (int i = 0; i < g->nodes && err == ATOLL_OK; i++)
    if (g->node[i] && g->node[i]->op == RT_MERGE)
      err = check_cases(ctx, g, g->node[i], &any);
  rt_graph_destroy(&any);
  isl_ctx_free(ctx);
  return err;
}

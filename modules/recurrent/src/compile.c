/* From a graph to something that runs. */
#include "interp.h"
#include "passes.h"

/* Gradients are part of what a program means, so the oracle has them too. */
static atoll_err expand_gradients(rt_graph *g) {
  if (g->requests == 0)
    return ATOLL_OK;
  ATOLL_TRY(rt_pass_cases(g));
  ATOLL_TRY(rt_pass_domains(g));
  return rt_pass_gradients(g);
}

atoll_err atoll_rec_interpret(atoll_rec *c, const atoll_rec_binding *bindings, int n) {
  rt_graph *g = NULL;
  rt_interp *it = NULL;
  ATOLL_TRY(rt_rec_clone(c, &g));
  atoll_err err = expand_gradients(g);
  if (err == ATOLL_OK)
    err = rt_interp_create(g, bindings, n, &it);
  if (err == ATOLL_OK)
    err = rt_interp_sinks(it);
  rt_interp_destroy(&it);
  rt_graph_destroy(&g);
  return err;
}

/* From a graph to something that runs. */
#include "interp.h"

atoll_err atoll_rec_interpret(atoll_rec *c, const atoll_rec_binding *bindings, int n) {
  rt_graph *g = NULL;
  rt_interp *it = NULL;
  ATOLL_TRY(rt_rec_clone(c, &g));
  atoll_err err = rt_interp_create(g, bindings, n, &it);
  if (err == ATOLL_OK)
    err = rt_interp_sinks(it);
  rt_interp_destroy(&it);
  rt_graph_destroy(&g);
  return err;
}

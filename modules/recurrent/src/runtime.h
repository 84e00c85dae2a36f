/* What emitted programs call: rooms for values, workspace, the user's functions, random numbers. */
#ifndef RECURRENT_RUNTIME_H
#define RECURRENT_RUNTIME_H

#include "graph.h"

struct rt_run;
typedef int (*rt_entry)(struct rt_run *r);

struct rt_device;

typedef struct rt_run_params {
  int threads;
  const char *away;         /* per node: its values are put away where the schedule says so */
  const char *folder;       /* into a file there */
  struct rt_device *device; /* where its kernels run; NULL: it has none */
} rt_run_params;

typedef struct rt_runtime rt_runtime; /* one run */

/* All that a run of the graph's emitted program can lack before it begins. The graph, what bindings point to and
 * p->away are borrowed until destroy. */
atoll_err rt_runtime_create(const rt_graph *g, const rt_run_params *p, const atoll_rec_binding *bindings, int n,
                            rt_runtime **out);
/* Once. *peak: most bytes of values at any time. */
atoll_err rt_runtime_execute(rt_runtime *rt, rt_entry program, int64_t *peak);
void rt_runtime_destroy(rt_runtime **rt);

#endif

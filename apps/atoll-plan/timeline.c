#include "timeline.h"

#include <stdlib.h>

#include "atoll/file.h"

/* A browser still opens that many. */
#define EVENTS_MOST 1000000

atoll_err timeline_make(timeline *x, const atoll_plan *plan, const atoll_plan_problem *problem, const char *title) {
  if (!x->trace_path && !x->gantt_path)
    return ATOLL_OK;
  atoll_simulate_params params;
  atoll_simulation *simulation = NULL;
  atoll_simulate_params_init(&params);
  params.events = 1;
  ATOLL_TRY(atoll_simulate(plan, problem, &params, &simulation));
  atoll_err err = ATOLL_OK;
  if (x->trace_path)
    err = atoll_simulation_trace(simulation, plan, problem->islands, EVENTS_MOST, &x->trace, &x->trace_bytes);
  if (err == ATOLL_OK && x->gantt_path)
    err = atoll_simulation_gantt(simulation, plan, problem->islands, title, &x->gantt, &x->gantt_bytes);
  atoll_simulation_destroy(&simulation);
  return err;
}

atoll_err timeline_write(const timeline *x) {
  if (x->trace)
    ATOLL_TRY(atoll_file_replace(x->trace_path, x->trace, x->trace_bytes));
  return x->gantt ? atoll_file_replace(x->gantt_path, x->gantt, x->gantt_bytes) : ATOLL_OK;
}

void timeline_destroy(timeline *x) {
  free(x->trace);
  free(x->gantt);
  x->trace = x->gantt = NULL;
}

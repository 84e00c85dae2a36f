/* The simulated step of a plan as files to look at. */
#ifndef ATOLL_APP_PLAN_TIMELINE_H
#define ATOLL_APP_PLAN_TIMELINE_H

#include "atoll/simulate.h"

typedef struct timeline {
  const char *trace_path, *gantt_path; /* NULL: not asked for */
  char *trace, *gantt;                 /* texts to write */
  size_t trace_bytes, gantt_bytes;
} timeline;

/* Makes the texts of the files that are asked for; writes nothing yet, so that a refusal leaves nothing behind. */
atoll_err timeline_make(timeline *x, const atoll_plan *plan, const atoll_plan_problem *problem, const char *title);
atoll_err timeline_write(const timeline *x);
void timeline_destroy(timeline *x);

#endif

/* Plans made by hand for the simulator: stages of one layer, times to order. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "atoll/simulate.h"
#include "plan_test.h"

/* `chunks` chunks of one layer per stage; replicas and their times are to be filled by sim_replicas. */
static inline atoll_plan *sim_plan(int pipelines, int stages, int chunks, int64_t G) {
  atoll_plan *p = calloc(1, sizeof *p);
  p->version = 1;
  strcpy(p->schedule, chunks > 1 ? "interleaved" : "1f1b");
  p->seq = 64;
  p->global_batch = p->micro_batches = G * pipelines;
  p->sum_leaves = 1;
  p->pipelines = pipelines;
  p->pipeline = calloc((size_t)pipelines, sizeof *p->pipeline);
  for (int q = 0; q < pipelines; q++) {
    atoll_plan_pipeline *pipe = &p->pipeline[q];
    pipe->first_micro_batch = q * G;
    pipe->micro_batches = G;
    pipe->stages = stages;
    pipe->stage = calloc((size_t)stages, sizeof *pipe->stage);
    for (int s = 0; s < stages; s++) {
      atoll_plan_stage *st = &pipe->stage[s];
      st->in_flight = stages - s;
      st->chunks = st->ranges = chunks;
      st->chunk = calloc((size_t)chunks, sizeof *st->chunk);
      st->range = calloc((size_t)chunks, sizeof *st->range);
      for (int c = 0; c < chunks; c++) {
        st->chunk[c] = (atoll_plan_chunk){c * stages + s, c * stages + s + 1};
        st->range[c] = (atoll_plan_range){.first = c * stages + s, .last = c * stages + s + 1, .mlp = "plain"};
      }
    }
  }
  return p;
}

/* n replicas that share the micro-batches as evenly as they can be, on ranks (and devices) from p->world on. */
static inline void sim_replicas(atoll_plan *p, int pipeline, int stage, int n, double forward, double backward) {
  atoll_plan_pipeline *pipe = &p->pipeline[pipeline];
  atoll_plan_stage *st = &pipe->stage[stage];
  st->replicas = n;
  st->replica = calloc((size_t)n, sizeof *st->replica);
  for (int k = 0; k < n; k++) {
    atoll_plan_replica *r = &st->replica[k];
    int64_t first = k * pipe->micro_batches / n, end = (k + 1) * pipe->micro_batches / n;
    r->ranks = r->tensor = r->context = r->expert = 1;
    r->rank = calloc(1, sizeof *r->rank);
    r->device = calloc(1, sizeof *r->device);
    r->rank[0] = r->device[0] = p->world++;
    r->micro_batch = 1;
    r->first_micro_batch = pipe->first_micro_batch + first;
    r->micro_batches = end - first;
    r->forward_seconds = forward;
    r->backward_seconds = backward;
  }
}

static inline atoll_simulation *sim_run(const atoll_plan *p, const atoll_plan_problem *problem,
                                        const atoll_sim_copies *copies) {
  atoll_simulate_params q;
  atoll_simulation *out = NULL;
  atoll_simulate_params_init(&q);
  q.events = 1;
  q.copies = copies;
  assert_ok(atoll_simulate(p, problem, &q, &out));
  return out;
}

static inline void assert_near(double a, double b) {
  if (!(fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b))))
    fail_msg("%.17g is not %.17g", a, b);
}

#endif

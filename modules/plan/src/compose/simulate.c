/* An event simulation of one-forward-one-backward with uneven stages.
 *
 * Every replica runs its micro-batches in a fixed order (in_flight forwards, then a backward and a forward in turn),
 * each as soon as its input has come. A message leaves when its tensor is ready and the sender's way in that direction
 * is free; sending does not hold up computing. So times follow from a recursion over (stage, micro-batch) without a
 * queue of events: sweep down and up the pipeline, each replica going on as far as its inputs allow, until all are
 * done. A closed form does not exist once stages differ: the in-flight limit, not the slowest stage, may then set the
 * pace. */
#include "compose/compose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct runner { /* one replica */
  const atoll_plan_replica *r;
  int node;
  int64_t forwards, backwards; /* done */
  int64_t warmup;
  double clock, way[2]; /* free from; the way forward and back */
} runner;

typedef struct lane { /* one stage of the pipeline at hand */
  runner *runner;
  int replicas;
  int owner_hint;
  int64_t boundary;  /* bytes a micro-batch sends on to the next stage */
  double *arrive[2]; /* [G]: when input of forward and backward is here; NaN not yet */
} lane;

static runner *owner(lane *l, int64_t g) {
  runner *r = &l->runner[l->owner_hint];
  if (g >= r->r->first_micro_batch && g < r->r->first_micro_batch + r->r->micro_batches)
    return r;
  for (int k = 0; k < l->replicas; k++)
    if (g >= l->runner[k].r->first_micro_batch &&
        g < l->runner[k].r->first_micro_batch + l->runner[k].r->micro_batches) {
      l->owner_hint = k;
      return &l->runner[k];
    }
  return NULL;
}

/* One replica as far as it can; returns how many actions it took. */
static int64_t advance(const cost_model *cost, lane *lanes, int stages, int s, runner *x, int64_t base, int sends) {
  lane *l = &lanes[s];
  int64_t n = x->r->micro_batches, first = x->r->first_micro_batch, taken = 0;
  for (;; taken++) {
    int backward = x->forwards == n || (x->forwards >= x->warmup && x->forwards - x->backwards >= x->warmup);
    if (backward && x->backwards == n)
      return taken;
    int64_t g = first + (backward ? x->backwards : x->forwards);
    double ready = l->arrive[backward][g - base];
    if (isnan(ready))
      return taken;
    x->clock = (ready > x->clock ? ready : x->clock) + (backward ? x->r->backward_seconds : x->r->forward_seconds);
    if (backward)
      x->backwards++;
    else
      x->forwards++;
    int to = backward ? s - 1 : s + 1;
    if (to == stages) { /* the head: its own backward may follow */
      l->arrive[1][g - base] = x->clock;
      continue;
    }
    if (to < 0)
      continue;
    double at = x->clock;
    if (sends) {
      runner *peer = owner(&lanes[to], g);
      at = (x->way[backward] > at ? x->way[backward] : at) +
           cost_send(cost, x->node, peer->node, lanes[backward ? to : s].boundary);
      x->way[backward] = at;
    }
    lanes[to].arrive[backward][g - base] = at;
  }
}

static atoll_err run_pipeline(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan, int p,
                              int sends, double *finish, simulated *out) {
  const atoll_plan_pipeline *pipe = &plan->pipeline[p];
  int64_t G = pipe->micro_batches, base = pipe->first_micro_batch;
  int stages = pipe->stages, total = 0;
  for (int s = 0; s < stages; s++)
    total += pipe->stage[s].replicas;
  lane *lanes = NULL;
  runner *runners = NULL;
  double *times = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)stages, sizeof *lanes, &lanes));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)total, sizeof *runners, &runners));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)stages * 2 * (size_t)G, sizeof *times, &times));
  runner *next = runners;
  for (int s = 0; s < stages; s++) {
    const atoll_plan_stage *stage = &pipe->stage[s];
    lane *l = &lanes[s];
    l->runner = next;
    l->replicas = stage->replicas;
    for (int d = 0; d < 2; d++) {
      l->arrive[d] = times + (size_t)(2 * s + d) * (size_t)G;
      for (int64_t g = 0; g < G; g++)
        l->arrive[d][g] = s == 0 && d == 0 ? 0 : NAN;
    }
    if (s + 1 < stages)
      ATOLL_TRY_GOTO(err, done,
                     cost_boundary_bytes(problem->model, stage->chunk[0].last - 1, stage->replica[0].micro_batch,
                                         plan->seq, &l->boundary));
    for (int k = 0; k < stage->replicas; k++, next++) {
      const atoll_plan_replica *r = &stage->replica[k];
      next->r = r;
      next->node = problem->topo->device[r->device[0]].node;
      next->warmup = stage->in_flight < r->micro_batches ? stage->in_flight : r->micro_batches;
      out->busy += (double)r->micro_batches * (r->forward_seconds + r->backward_seconds);
      out->replicas++;
    }
  }
  for (int64_t left = 2 * G * stages, taken = 1; left > 0; left -= taken) {
    if (taken == 0) {
      err = atoll_fail(ATOLL_INTERNAL, "plan: the schedule of pipeline %d stands still", p);
      goto done;
    }
    taken = 0;
    for (int i = 0; i < 2 * stages; i++) {
      lane *l = &lanes[i < stages ? i : 2 * stages - 1 - i];
      for (int k = 0; k < l->replicas; k++)
        taken += advance(cost, lanes, stages, (int)(l - lanes), &l->runner[k], base, sends);
    }
  }
  for (int s = 0; s < stages; s++) {
    double end = 0;
    for (int k = 0; k < lanes[s].replicas; k++)
      end = lanes[s].runner[k].clock > end ? lanes[s].runner[k].clock : end;
    if (finish)
      finish[s] = end;
    out->pipeline = end > out->pipeline ? end : out->pipeline;
  }
done:
  free(lanes);
  free(runners);
  free(times);
  return err;
}

atoll_err simulate_plan(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan, int sends,
                        double *finish, simulated *out) {
  *out = (simulated){0, 0, 0};
  for (int p = 0; p < plan->pipelines; p++) {
    ATOLL_TRY(run_pipeline(cost, problem, plan, p, sends, finish, out));
    if (finish)
      finish += plan->pipeline[p].stages;
  }
  return ATOLL_OK;
}

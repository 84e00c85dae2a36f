/* The public face: a whole step, its events and its accounts. */
#include "atoll/simulate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/flow.h"

const char *atoll_sim_stream_name(atoll_sim_stream stream) {
  static const char *const name[] = {"compute", "send", "receive", "host to device", "device to host", "collective"};
  return stream >= 0 && stream < ATOLL_SIM_STREAMS ? name[stream] : "?";
}

const char *atoll_sim_kind_name(atoll_sim_kind kind) {
  static const char *const name[] = {"forward",       "backward",     "activation", "gradient", "copy",
                                     "sum gradients", "tied tensors", "finish",     "update"};
  return kind >= 0 && kind < ATOLL_SIM_KINDS ? name[kind] : "?";
}

void atoll_simulate_params_init(atoll_simulate_params *p) { *p = (atoll_simulate_params){.sends = 1}; }

void atoll_simulation_destroy(atoll_simulation **address) {
  atoll_simulation *x = *address;
  if (!x)
    return;
  free(x->replica);
  free(x->event);
  free(x);
  *address = NULL;
}

typedef struct step { /* a simulation under way */
  const atoll_plan *plan;
  const atoll_plan_problem *problem;
  cost_model *cost; /* NULL exactly when problem is */
  atoll_simulation *out;
  flow_record record;
  atoll_sim_copies *copies; /* of what the plan keeps in host memory; NULL: nothing */
  int stages;
  int *first_stage;   /* [pipelines]: flat index of stage 0 */
  int *first_replica; /* [stages + 1], of each flat stage */
  double *finish;     /* [replicas] */
  double *end;        /* [stages]: last backward, then the end of its sums */
  double *summed;     /* [stages]: seconds of them */
} step;

static const atoll_plan_replica *replica_of(const step *x, int i) {
  const atoll_sim_replica *r = &x->out->replica[i];
  return &x->plan->pipeline[r->pipeline].stage[r->stage].replica[r->replica];
}

static atoll_err check_replica(const step *x, int p, int s, int k) {
  const atoll_plan_replica *r = &x->plan->pipeline[p].stage[s].replica[k];
  if (!(r->forward_seconds > 0) || !(r->backward_seconds > 0) || !isfinite(r->forward_seconds + r->backward_seconds))
    return atoll_fail(ATOLL_USAGE,
                      "simulate: pipeline %d stage %d replica %d has no predicted times (forward %g s, backward %g s); "
                      "plan again to predict them",
                      p, s, k, r->forward_seconds, r->backward_seconds);
  if (!(r->send_seconds >= 0) || !(r->update_seconds >= 0) || !isfinite(r->send_seconds + r->update_seconds))
    return atoll_fail(ATOLL_USAGE,
                      "simulate: pipeline %d stage %d replica %d: send %g s, update %g s; expected 0 or "
                      "more",
                      p, s, k, r->send_seconds, r->update_seconds);
  if (!x->problem)
    return ATOLL_OK;
  if (r->island < 0 || r->island >= x->problem->islands->count)
    return atoll_fail(ATOLL_MISMATCH, "simulate: pipeline %d stage %d replica %d is on island %d, there are %d", p, s,
                      k, r->island, x->problem->islands->count);
  if (r->device[0] < 0 || r->device[0] >= x->problem->topo->devices)
    return atoll_fail(ATOLL_MISMATCH, "simulate: pipeline %d stage %d replica %d is on device %d, there are %d", p, s,
                      k, r->device[0], x->problem->topo->devices);
  return ATOLL_OK;
}

static atoll_err begin_step(step *x) {
  const atoll_plan *plan = x->plan;
  int replicas = 0;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++, x->stages++)
      replicas += plan->pipeline[p].stage[s].replicas;
  ATOLL_TRY(plan_alloc(1, sizeof *x->out, &x->out));
  x->out->replicas = replicas;
  ATOLL_TRY(plan_alloc((size_t)replicas, sizeof *x->out->replica, &x->out->replica));
  ATOLL_TRY(plan_alloc((size_t)plan->pipelines, sizeof *x->first_stage, &x->first_stage));
  ATOLL_TRY(plan_alloc((size_t)x->stages + 1, sizeof *x->first_replica, &x->first_replica));
  ATOLL_TRY(plan_alloc((size_t)replicas, sizeof *x->finish, &x->finish));
  ATOLL_TRY(plan_alloc((size_t)x->stages, sizeof *x->end, &x->end));
  ATOLL_TRY(plan_alloc((size_t)x->stages, sizeof *x->summed, &x->summed));
  int at = 0, flat = 0;
  for (int p = 0; p < plan->pipelines; p++) {
    x->first_stage[p] = flat;
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      x->first_replica[flat++] = at;
      for (int k = 0; k < plan->pipeline[p].stage[s].replicas; k++) {
        const atoll_plan_replica *r = &plan->pipeline[p].stage[s].replica[k];
        ATOLL_TRY(check_replica(x, p, s, k));
        x->out->replica[at++] =
            (atoll_sim_replica){.pipeline = p, .stage = s, .replica = k, .rank = r->rank[0], .ranks = r->ranks};
      }
    }
  }
  x->first_replica[flat] = at;
  return ATOLL_OK;
}

static atoll_err run_pipelines(step *x, const atoll_simulate_params *params) {
  const atoll_sim_copies *copies = params->copies ? params->copies : x->copies;
  for (int p = 0; p < x->plan->pipelines; p++) {
    int flat = x->first_stage[p], first = x->first_replica[flat];
    flow_params q = {.cost = x->cost,
                     .slices = x->cost,
                     .problem = x->problem,
                     .plan = x->plan,
                     .sends = params->sends,
                     .copies = copies ? copies + first : NULL,
                     .record = &x->record,
                     .first_replica = first};
    ATOLL_TRY(flow_run(&q, p, x->finish + first));
  }
  for (int i = 0; i < x->stages; i++)
    for (int k = x->first_replica[i]; k < x->first_replica[i + 1]; k++) {
      x->out->replica[k].last_backward = x->finish[k];
      x->end[i] = fmax(x->end[i], x->finish[k]);
      x->out->pipeline_seconds = fmax(x->out->pipeline_seconds, x->finish[k]);
    }
  return ATOLL_OK;
}

/* ---- after the pipeline ------------------------------------------------------------------------------------------ */

static atoll_err add_collective(step *x, int stage, atoll_sim_kind kind, double begin, double end) {
  for (int k = x->first_replica[stage]; k < x->first_replica[stage + 1] && end > begin; k++) {
    const atoll_sim_event e = {.begin = begin,
                               .end = end,
                               .micro_batch = -1,
                               .replica = k,
                               .peer = -1,
                               .stream = ATOLL_SIM_COLLECTIVE,
                               .kind = (short)kind};
    ATOLL_TRY(flow_add(&x->record, &e));
  }
  return ATOLL_OK;
}

/* One pipeline: every stage sums what it holds, when all its replicas are done. */
static atoll_err sum_alone(step *x) {
  for (int s = 0; s < x->stages; s++) {
    double seconds;
    ATOLL_TRY(sync_reduce(x->cost, x->problem, x->plan, 0, s, &seconds));
    for (int k = x->first_replica[s]; k < x->first_replica[s + 1]; k++) /* a plan's own word counts */
      seconds = fmin(seconds, replica_of(x, k)->update_seconds);
    ATOLL_TRY(add_collective(x, s, ATOLL_SIM_REDUCE, x->end[s], x->end[s] + seconds));
    x->end[s] += seconds;
    x->summed[s] = seconds;
  }
  return ATOLL_OK;
}

static int holds(const atoll_plan_stage *stage, int layer) {
  for (int c = 0; c < stage->chunks; c++)
    if (layer >= stage->chunk[c].first && layer < stage->chunk[c].last)
      return 1;
  return 0;
}

static int stage_with(const atoll_plan_pipeline *pipe, int layer) {
  int s = 0;
  while (s + 1 < pipe->stages && !holds(&pipe->stage[s], layer))
    s++;
  return s;
}

/* Several pipelines: layers that are held by the same stages everywhere are summed together, in the order of layers. */
static atoll_err sum_across(step *x) {
  const atoll_plan *plan = x->plan;
  const atoll_plan_stage **member = NULL;
  int layers = atoll_model_layers(x->problem->model);
  atoll_err err = plan_alloc((size_t)plan->pipelines, sizeof *member, &member);
  for (int first = 0, last; first < layers && err == ATOLL_OK; first = last) {
    double begin = 0, seconds;
    for (int p = 0; p < plan->pipelines; p++) {
      int s = stage_with(&plan->pipeline[p], first);
      member[p] = &plan->pipeline[p].stage[s];
      begin = fmax(begin, x->end[x->first_stage[p] + s]);
    }
    int same = 1;
    for (last = first; last < layers && same; last += same)
      for (int p = 0; p < plan->pipelines; p++)
        same = same && holds(member[p], last);
    const atoll_plan_chunk run = {first, last};
    ATOLL_TRY_GOTO(err, done, sync_sum(x->cost, x->problem, plan, member, plan->pipelines, &run, 1, &seconds));
    for (int p = 0; p < plan->pipelines; p++) {
      int flat = x->first_stage[p] + (int)(member[p] - plan->pipeline[p].stage);
      ATOLL_TRY_GOTO(err, done, add_collective(x, flat, ATOLL_SIM_REDUCE, begin, begin + seconds));
      x->end[flat] = begin + seconds;
      x->summed[flat] += seconds;
    }
  }
done:
  free(member);
  return err;
}

/* Tied tensors, then one reduction of losses and norms over all. Returns when everybody may update. */
static atoll_err join(step *x, double *ready) {
  const atoll_plan *plan = x->plan;
  double last = 0;
  for (int i = 0; i < x->stages; i++)
    last = fmax(last, x->end[i]);
  for (int i = 0; i < plan->tied_count && x->cost; i++)
    for (int u = 0; u + 1 < plan->tied[i].uses; u += 2) {
      const atoll_plan_tied *t = &plan->tied[i];
      double seconds = sync_tied(x->cost, x->problem, plan, i, u);
      int a = x->first_stage[t->pipeline[u]] + t->stage[u], b = x->first_stage[t->pipeline[u + 1]] + t->stage[u + 1];
      double begin = fmax(x->end[a], x->end[b]);
      ATOLL_TRY(add_collective(x, a, ATOLL_SIM_TIED, begin, begin + seconds));
      if (b != a)
        ATOLL_TRY(add_collective(x, b, ATOLL_SIM_TIED, begin, begin + seconds));
      last = fmax(last, begin + seconds);
    }
  *ready = last;
  if (!x->cost)
    return ATOLL_OK;
  int *node = NULL;
  int ranks = 0, n = 0;
  for (int k = 0; k < x->out->replicas; k++)
    ranks += replica_of(x, k)->ranks;
  ATOLL_TRY(plan_alloc((size_t)ranks, sizeof *node, &node));
  for (int k = 0; k < x->out->replicas; k++)
    for (int i = 0; i < replica_of(x, k)->ranks; i++)
      node[n++] = x->problem->topo->device[replica_of(x, k)->device[i]].node;
  *ready += cost_finish(x->cost, node, ranks);
  free(node);
  for (int s = 0; s < x->stages; s++)
    ATOLL_TRY(add_collective(x, s, ATOLL_SIM_FINISH, last, *ready));
  return ATOLL_OK;
}

static atoll_err update(step *x, double ready) {
  x->out->step_seconds = ready;
  for (int s = 0; s < x->stages; s++)
    for (int k = x->first_replica[s]; k < x->first_replica[s + 1]; k++) {
      /* A plan's update_seconds include the sums. */
      double seconds = fmax(replica_of(x, k)->update_seconds - x->summed[s], 0);
      const atoll_sim_event e = {.begin = ready,
                                 .end = ready + seconds,
                                 .micro_batch = -1,
                                 .replica = k,
                                 .peer = -1,
                                 .stream = ATOLL_SIM_COMPUTE,
                                 .kind = ATOLL_SIM_UPDATE};
      x->out->replica[k].update = seconds;
      x->out->step_seconds = fmax(x->out->step_seconds, ready + seconds);
      if (seconds > 0)
        ATOLL_TRY(flow_add(&x->record, &e));
    }
  return ATOLL_OK;
}

/* ---- accounts ---------------------------------------------------------------------------------------------------- */

static int by_replica(const void *x, const void *y) {
  const atoll_sim_event *a = x, *b = y;
  if (a->replica != b->replica)
    return a->replica < b->replica ? -1 : 1;
  if (a->begin != b->begin)
    return a->begin < b->begin ? -1 : 1;
  if (a->stream != b->stream)
    return a->stream < b->stream ? -1 : 1;
  if (a->kind != b->kind)
    return a->kind < b->kind ? -1 : 1;
  return (a->micro_batch > b->micro_batch) - (a->micro_batch < b->micro_batch);
}

static void account(step *x) {
  double busy = 0;
  for (int64_t i = 0; i < x->record.events; i++) {
    const atoll_sim_event *e = &x->record.event[i];
    atoll_sim_replica *r = &x->out->replica[e->replica];
    double seconds = e->end - e->begin;
    if (e->stream == ATOLL_SIM_COMPUTE)
      r->compute += e->kind == ATOLL_SIM_UPDATE ? 0 : seconds;
    else if (e->stream == ATOLL_SIM_SEND)
      r->send += seconds;
    else if (e->stream == ATOLL_SIM_RECEIVE)
      r->receive += seconds;
    else if (e->stream == ATOLL_SIM_COLLECTIVE)
      r->collective += seconds;
    else
      r->copy += seconds;
  }
  for (int k = 0; k < x->out->replicas; k++) {
    atoll_sim_replica *r = &x->out->replica[k];
    r->bubble = fmax(x->out->pipeline_seconds - r->compute, 0);
    busy += r->compute;
  }
  x->out->bubble_fraction = fmax(1 - busy / (x->out->replicas * x->out->pipeline_seconds), 0);
}

atoll_err atoll_simulate(const atoll_plan *plan, const atoll_plan_problem *problem, const atoll_simulate_params *params,
                         atoll_simulation **out) {
  step x = {.plan = plan, .problem = problem};
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, begin_step(&x));
  if (problem)
    ATOLL_TRY_GOTO(err, done, cost_create(problem, &x.cost));
  if (problem && !params->copies)
    ATOLL_TRY_GOTO(err, done, copies_of_plan(x.cost, plan, x.out->replicas, &x.copies));
  ATOLL_TRY_GOTO(err, done, run_pipelines(&x, params));
  if (x.cost)
    ATOLL_TRY_GOTO(err, done, plan->pipelines == 1 ? sum_alone(&x) : sum_across(&x));
  double ready;
  ATOLL_TRY_GOTO(err, done, join(&x, &ready));
  ATOLL_TRY_GOTO(err, done, update(&x, ready));
  account(&x);
  if (params->events) {
    qsort(x.record.event, (size_t)x.record.events, sizeof *x.record.event, by_replica);
    x.out->event = x.record.event;
    x.out->events = x.record.events;
    x.record.event = NULL;
  }
  *out = x.out;
  x.out = NULL;
done:
  cost_destroy(&x.cost);
  free(x.record.event);
  free(x.copies);
  free(x.first_stage);
  free(x.first_replica);
  free(x.finish);
  free(x.end);
  free(x.summed);
  atoll_simulation_destroy(&x.out);
  return err;
}

/* Micro-batches through a pipeline with uneven stages: an event simulation without a clock.
 *
 * Every replica works through a fixed list of forwards and backwards, each as soon as its input has come. A message
 * leaves when its tensor is ready and the sender's way in that direction is free; sending does not hold up computing.
 * Since the order on every stream is fixed, an event's time follows from the ends of the events it waits for, and they
 * may be worked out in any order that respects the waiting: a replica goes on as far as its inputs allow and wakes
 * those to whom it sent (the conservative method of Chandy, Misra and Bryant, where a message is its own promise). A
 * closed form does not exist once stages differ: the in-flight limit, not the slowest stage, may then set the pace.
 *
 * Orders. With one chunk: in_flight forwards, then a backward and a forward in turn. With v > 1 chunks on S stages
 * (layers go through chunk 0 of all stages, then chunk 1, ...): micro-batches in groups of S, the last group of g with
 * what remains beyond whole groups; a group passes chunk 0, then chunk 1, and so on, backwards from the last chunk; 2
 * (S - 1 - s) + (v - 1) g + 1 forwards on stage s, then a backward and a forward in turn.
 *
 * When nobody can go on and work is left, replicas wait for each other in a circle. A plan from a file can do that
 * (stage 1 wants two forwards before its first backward, stage 0 holds one micro-batch); a run of it would hang. */
#include "simulate/flow.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct runner { /* one replica */
  const atoll_plan_replica *r;
  int stage, node, awake;
  int64_t total;               /* forwards in all: micro-batches x chunks */
  int64_t forwards, backwards; /* done */
  int64_t warmup;
  double clock, way[2], copied; /* free from; the way forward and back; copies */
  const atoll_sim_copies *copies;
  struct link {         /* last receiver by direction: it is mostly the same again */
    int peer, to;       /* runner, its stage; -1 none yet */
    int64_t first, end; /* its micro-batches */
    int64_t bytes;
    double seconds;
  } link[2];
} runner;

typedef struct lane { /* one stage of the pipeline */
  const atoll_plan_stage *stage;
  int first, replicas; /* runners */
  int owner_hint;
  double *share[2];  /* [chunks]: of a replica's forward and backward; NULL for one chunk */
  int64_t *boundary; /* [chunks]: bytes that a micro-batch sends on after the chunk */
  double *arrive;    /* [chunks][2][G]: when input of forward and backward is here; NaN not yet */
} lane;

typedef struct flow {
  const flow_params *q;
  const atoll_plan_pipeline *pipe;
  int pipeline, stages, chunks, runners;
  int64_t G;
  lane *lane;
  runner *runner;
  int awake; /* runners that may go on */
} flow;

typedef struct action {
  int backward, chunk;
  int64_t g; /* global micro-batch */
} action;

atoll_err flow_add(flow_record *record, const atoll_sim_event *event) {
  if (record->events == record->room) {
    int64_t room = record->room ? 2 * record->room : 1024;
    atoll_sim_event *grown = realloc(record->event, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "simulate: no memory for %" PRId64 " events", room);
    record->event = grown;
    record->room = room;
  }
  record->event[record->events++] = *event;
  return ATOLL_OK;
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

static int finished(const runner *x) { return x->backwards == x->total; }

/* What a replica does next. */
static action next_action(const flow *f, const runner *x) {
  int backward = x->forwards == x->total || (x->forwards >= x->warmup && x->forwards - x->backwards >= x->warmup);
  int64_t k = backward ? x->backwards : x->forwards, first = x->r->first_micro_batch;
  if (f->chunks == 1)
    return (action){backward, 0, first + k};
  int64_t n = x->r->micro_batches, size = f->stages, groups = n / size, base;
  int64_t before = groups > 0 ? (groups - 1) * size : 0; /* micro-batches of all groups but the last */
  if (k < before * f->chunks) {
    base = k / (size * f->chunks) * size;
    k %= size * f->chunks;
  } else {
    base = before;
    size = n - before;
    k -= before * f->chunks;
  }
  int chunk = (int)(k / size);
  return (action){backward, backward ? f->chunks - 1 - chunk : chunk, first + base + k % size};
}

static double *arrival(const flow *f, int stage, int chunk, int backward, int64_t g) {
  return &f->lane[stage].arrive[(2 * chunk + backward) * f->G + g - f->pipe->first_micro_batch];
}

/* Where the output of an action goes; 0: nowhere. */
static int next_place(const flow *f, int stage, const action *a, int *to, int *chunk) {
  *to = a->backward ? stage - 1 : stage + 1;
  *chunk = a->chunk;
  if (*to == f->stages) {
    *to = 0;
    (*chunk)++;
  } else if (*to < 0) {
    *to = f->stages - 1;
    (*chunk)--;
  }
  return *chunk >= 0 && *chunk < f->chunks;
}

static int owner(flow *f, int stage, int64_t g) {
  lane *l = &f->lane[stage];
  for (int i = 0, k = l->owner_hint; i < l->replicas; i++, k = k + 1 == l->replicas ? 0 : k + 1) {
    const atoll_plan_replica *r = f->runner[l->first + k].r;
    if (g >= r->first_micro_batch && g < r->first_micro_batch + r->micro_batches) {
      l->owner_hint = k;
      return l->first + k;
    }
  }
  return -1;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void wake(flow *f, runner *x) {
  f->awake += !x->awake;
  x->awake = 1;
}

/* The receiver of micro-batch g on stage `to`, and the seconds to get there. */
static const struct link *link_to(flow *f, runner *x, int to, int backward, int64_t bytes, int64_t g) {
  struct link *k = &x->link[backward];
  if (k->to == to && k->bytes == bytes && g >= k->first && g < k->end)
    return k;
  int peer = owner(f, to, g);
  const runner *y = &f->runner[peer];
  *k = (struct link){peer, to, y->r->first_micro_batch, y->r->first_micro_batch + y->r->micro_batches, bytes, 0};
  /* Without costs: send_seconds is of the boundary downstream, both ways (upstream for the last stage). */
  if (f->q->sends && to != x->stage)
    k->seconds = f->q->cost ? cost_send(f->q->cost, x->node, y->node, bytes) +
                                  cost_hand_on(f->q->cost, y->node, x->r->tensor, y->r->tensor, bytes)
                 : x->stage < y->stage ? x->r->send_seconds
                                       : y->r->send_seconds;
  return k;
}

static atoll_err note(const flow *f, const runner *x, atoll_sim_stream stream, atoll_sim_kind kind, const action *a,
                      int peer, double begin, double end) {
  if (!(end > begin))
    return ATOLL_OK;
  int base = f->q->first_replica;
  const atoll_sim_event e = {.begin = begin,
                             .end = end,
                             .micro_batch = a->g,
                             .replica = base + (int)(x - f->runner),
                             .peer = peer < 0 ? -1 : base + peer,
                             .chunk = a->chunk,
                             .stream = (short)stream,
                             .kind = (short)kind};
  return flow_add(f->q->record, &e);
}

static atoll_err send(flow *f, runner *x, const action *a, int to, int chunk) {
  int64_t bytes = f->lane[a->backward ? to : x->stage].boundary[a->backward ? chunk : a->chunk];
  const struct link *k = link_to(f, x, to, a->backward, bytes, a->g);
  runner *y = &f->runner[k->peer];
  double at = x->clock;
  if (f->q->sends && to != x->stage) {
    double begin = x->way[a->backward] > at ? x->way[a->backward] : at;
    at = begin + k->seconds;
    x->way[a->backward] = at;
    if (f->q->record) {
      atoll_sim_kind kind = a->backward ? ATOLL_SIM_GRADIENT : ATOLL_SIM_ACTIVATION;
      ATOLL_TRY(note(f, x, ATOLL_SIM_SEND, kind, a, k->peer, begin, at));
      ATOLL_TRY(note(f, y, ATOLL_SIM_RECEIVE, kind, a, (int)(x - f->runner), begin, at));
    }
  }
  *arrival(f, to, chunk, a->backward, a->g) = at;
  wake(f, y);
  return ATOLL_OK;
}

static atoll_err copy(flow *f, runner *x, const action *a, double begin) {
  double in = a->backward ? x->copies->backward_in : x->copies->forward_in,
         out = a->backward ? x->copies->backward_out : x->copies->forward_out;
  in /= f->chunks;
  out /= f->chunks;
  x->copied = fmax(begin + in, begin + out);
  if (!f->q->record)
    return ATOLL_OK;
  ATOLL_TRY(note(f, x, ATOLL_SIM_HOST_IN, ATOLL_SIM_COPY, a, -1, begin, begin + in));
  return note(f, x, ATOLL_SIM_HOST_OUT, ATOLL_SIM_COPY, a, -1, begin, begin + out);
}

/* One replica as far as it can. */
static atoll_err advance(flow *f, runner *x) {
  const lane *l = &f->lane[x->stage];
  f->awake -= x->awake;
  x->awake = 0;
  while (!finished(x)) {
    action a = next_action(f, x);
    double ready = *arrival(f, x->stage, a.chunk, a.backward, a.g);
    if (isnan(ready))
      return ATOLL_OK;
    double begin = ready > x->clock ? ready : x->clock;
    double seconds = f->q->unit ? 1 : a.backward ? x->r->backward_seconds : x->r->forward_seconds;
    if (f->chunks > 1)
      seconds *= l->share[a.backward][a.chunk];
    if (x->copies) {
      begin = begin > x->copied ? begin : x->copied;
      ATOLL_TRY(copy(f, x, &a, begin));
    }
    x->clock = begin + seconds;
    if (f->q->record)
      ATOLL_TRY(
          note(f, x, ATOLL_SIM_COMPUTE, a.backward ? ATOLL_SIM_BACKWARD : ATOLL_SIM_FORWARD, &a, -1, begin, x->clock));
    if (a.backward)
      x->backwards++;
    else
      x->forwards++;
    int to, chunk;
    if (next_place(f, x->stage, &a, &to, &chunk))
      ATOLL_TRY(send(f, x, &a, to, chunk));
    else if (!a.backward) /* the head: its own backward may follow */
      *arrival(f, x->stage, a.chunk, 1, a.g) = x->clock;
  }
  return ATOLL_OK;
}

/* ---- a circle of waiting ----------------------------------------------------------------------------------------- */

/* The replica whose output the next action of x waits for. */
static int waits_for(flow *f, const runner *x, const action *a) {
  action from = {!a->backward, a->chunk, a->g};
  int stage, chunk;
  if (!next_place(f, x->stage, &from, &stage, &chunk)) /* the head waits for its own forward */
    return (int)(x - f->runner);
  return owner(f, stage, a->g);
}

static atoll_err standstill(flow *f) {
  int k = 0, steps = 0;
  while (finished(&f->runner[k]))
    k++;
  for (; steps < f->runners; steps++) { /* into the circle */
    action a = next_action(f, &f->runner[k]);
    k = waits_for(f, &f->runner[k], &a);
  }
  char text[512];
  size_t at = 0;
  int began = k;
  text[0] = 0;
  do {
    const runner *x = &f->runner[k];
    action a = next_action(f, x);
    int next = waits_for(f, x, &a);
    if (at < sizeof text)
      at += (size_t)snprintf(text + at, sizeof text - at,
                             "%srank %d (stage %d) waits to run %s of micro-batch %" PRId64 " until rank %d",
                             at ? "; " : "", x->r->rank[0], x->stage, a.backward ? "backward" : "forward", a.g,
                             f->runner[next].r->rank[0]);
    k = next;
  } while (k != began);
  return atoll_fail(ATOLL_CORRUPT,
                    "plan: the schedule of pipeline %d stands still, every replica waits for another: %s%s",
                    f->pipeline, text, at >= sizeof text ? "..." : "");
}

/* ---- setting up -------------------------------------------------------------------------------------------------- */

/* Shares of a replica's forward and backward that fall to each chunk. */
static atoll_err fill_shares(const flow *f, lane *l) {
  const atoll_plan_stage *stage = l->stage;
  double sum[2] = {0, 0};
  int range = 0;
  for (int c = 0; c < f->chunks; c++) {
    double t[2] = {0, 0};
    for (; range < stage->ranges && stage->range[range].last <= stage->chunk[c].last; range++) {
      const atoll_plan_range *g = &stage->range[range];
      cost_slice slice = {.forward = g->last - g->first, .backward = g->last - g->first};
      atoll_mlp mlp = ATOLL_MLP_PLAIN;
      (void)atoll_mlp_parse(g->mlp, &mlp); /* of experts nothing else is known here */
      if (f->q->slices)
        ATOLL_TRY(cost_of_slice(f->q->slices, stage->replica[0].island, stage->replica[0].tensor, mlp, g->first,
                                g->last, (atoll_policy)g->policy, stage->replica[0].micro_batch, &slice));
      t[0] += slice.forward;
      t[1] += slice.backward;
    }
    for (int d = 0; d < 2; d++) {
      l->share[d][c] = t[d];
      sum[d] += t[d];
    }
  }
  for (int d = 0; d < 2; d++)
    for (int c = 0; c < f->chunks; c++)
      l->share[d][c] = sum[d] > 0 ? l->share[d][c] / sum[d] : 1.0 / f->chunks;
  return ATOLL_OK;
}

static void fill_runner(const flow *f, int stage, int index, int at) {
  const atoll_plan_stage *st = f->lane[stage].stage;
  const atoll_plan_replica *r = &st->replica[index];
  runner *x = &f->runner[at];
  *x = (runner){.r = r, .stage = stage, .awake = 1, .link = {{.to = -1}, {.to = -1}}};
  x->node = f->q->problem ? f->q->problem->topo->device[r->device[0]].node : 0;
  x->total = r->micro_batches * f->chunks;
  int64_t groups = r->micro_batches / f->stages;
  int64_t last = groups > 0 ? r->micro_batches - (groups - 1) * f->stages : r->micro_batches; /* the largest group */
  x->warmup = f->chunks == 1 ? st->in_flight : 2 * (int64_t)(f->stages - 1 - stage) + (f->chunks - 1) * last + 1;
  x->warmup = x->warmup < x->total ? x->warmup : x->total;
  x->copies = f->q->copies ? &f->q->copies[at] : NULL;
}

static atoll_err set_up(flow *f, void **block) {
  const atoll_plan_pipeline *pipe = f->pipe;
  if (f->G > FLOW_ACTIONS_MOST / f->stages / f->chunks)
    return atoll_fail(ATOLL_NOMEM, "simulate: %" PRId64 " micro-batches through %d stages of %d chunks are too many",
                      f->G, f->stages, f->chunks);
  size_t S = (size_t)f->stages, v = (size_t)f->chunks, n = (size_t)f->runners, times = S * v * 2 * (size_t)f->G;
  /* One block: searches simulate a great many small pipelines. */
  size_t size = times * sizeof(double) + 2 * S * v * sizeof(double) + S * v * sizeof(int64_t) + S * sizeof(lane) +
                n * sizeof(runner);
  ATOLL_TRY(plan_alloc(size, 1, block));
  double *arrive = *block, *share = arrive + times;
  int64_t *boundary = (int64_t *)(share + 2 * S * v);
  f->lane = (lane *)(boundary + S * v);
  f->runner = (runner *)(f->lane + S);
  for (size_t i = 0; i < times; i++)
    arrive[i] = NAN;
  for (int64_t g = 0; g < f->G; g++)
    arrive[g] = 0; /* stage 0, chunk 0, forward */
  int at = 0;
  for (int s = 0; s < f->stages; s++) {
    lane *l = &f->lane[s];
    l->stage = &pipe->stage[s];
    l->first = at;
    l->replicas = l->stage->replicas;
    l->boundary = boundary + (size_t)s * v;
    l->arrive = arrive + (size_t)s * v * 2 * (size_t)f->G;
    for (int d = 0; d < 2 && f->chunks > 1; d++)
      l->share[d] = share + (2 * (size_t)s + (size_t)d) * v;
    for (int c = 0; f->q->problem && c < f->chunks; c++)
      if (s + 1 < f->stages || c + 1 < f->chunks)
        ATOLL_TRY(cost_boundary_bytes(f->q->problem->model, l->stage->chunk[c].last - 1,
                                      l->stage->replica[0].micro_batch, f->q->plan->seq, &l->boundary[c]));
    if (f->chunks > 1)
      ATOLL_TRY(fill_shares(f, l));
    for (int k = 0; k < l->replicas; k++, at++)
      fill_runner(f, s, k, at);
  }
  f->awake = f->runners;
  return ATOLL_OK;
}

atoll_err flow_run(const flow_params *params, int pipeline, double *finish) {
  const atoll_plan_pipeline *pipe = &params->plan->pipeline[pipeline];
  flow f = {.q = params, .pipe = pipe, .pipeline = pipeline, .stages = pipe->stages, .G = pipe->micro_batches};
  f.chunks = pipe->stage[0].chunks;
  for (int s = 0; s < pipe->stages; s++)
    f.runners += pipe->stage[s].replicas;
  void *block = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, set_up(&f, &block));
  /* Down the pipeline and up again: so each finds most of what it waits for. */
  for (int back = 0; f.awake > 0; back = !back)
    for (int i = 0; i < f.runners; i++) {
      runner *x = &f.runner[back ? f.runners - 1 - i : i];
      if (x->awake)
        ATOLL_TRY_GOTO(err, done, advance(&f, x));
    }
  for (int k = 0; k < f.runners; k++) {
    if (!finished(&f.runner[k]))
      ATOLL_TRY_GOTO(err, done, standstill(&f));
    finish[k] = f.runner[k].clock;
  }
done:
  free(block);
  return err;
}

atoll_err simulate_plan(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan, int sends,
                        double *finish, simulated *out) {
  flow_params q = {.cost = cost, .problem = problem, .plan = plan, .sends = sends};
  *out = (simulated){0, 0, 0};
  for (int p = 0; p < plan->pipelines; p++) {
    const atoll_plan_pipeline *pipe = &plan->pipeline[p];
    double *end = NULL, *at;
    int n = 0;
    for (int s = 0; s < pipe->stages; s++)
      n += pipe->stage[s].replicas;
    ATOLL_TRY(plan_alloc((size_t)n, sizeof *end, &end));
    atoll_err err = flow_run(&q, p, at = end);
    for (int s = 0; s < pipe->stages && err == ATOLL_OK; s++) {
      double last = 0;
      for (int k = 0; k < pipe->stage[s].replicas; k++) {
        const atoll_plan_replica *r = &pipe->stage[s].replica[k];
        out->busy += (double)r->micro_batches * (r->forward_seconds + r->backward_seconds);
        last = *at > last ? *at : last;
        at++;
      }
      out->replicas += pipe->stage[s].replicas;
      out->pipeline = last > out->pipeline ? last : out->pipeline;
      if (finish)
        *finish++ = last;
    }
    free(end);
    ATOLL_TRY(err);
  }
  return ATOLL_OK;
}

/* One replica's share of a step: forward and backward of its micro-batches in one-forward-one-backward order, and the
 * messages to its neighbours.
 *
 * Buffers. A micro-batch in flight keeps its stage input until its backward: `slots` + 1 input buffers, so that the
 * next one can arrive early. Outputs and their gradients leave from rings of two: one travels while the next is
 * computed. Every reuse waits for an event, on the queue that would overwrite; on the CPU device those waits cost
 * nothing when the event has fired.
 *
 * No deadlock: sends do not wait for receivers on the calling thread; every replica works through its micro-batches in
 * ascending order, and stage i holds at least as many in flight as stage i + 1, so each wait is for a message of a
 * smaller or equal micro-batch. */
#include "train_impl.h"

#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/fault.h"

enum { RING = 2 };

struct flow {
  flow_params p;
  const atoll_plan_replica *replica;
  int stages, first_stage, last_stage, slots, inputs;
  int immediate;                 /* tasks run at once: waiting on the host costs nothing and tells waiting from work */
  int64_t B, S, H, first, count; /* micro-batch shape; own micro-batches */
  int64_t elements, bytes;       /* B S H, and their size */
  atoll_queue *receive;          /* messages in; exec.comm carries messages out */
  atoll_dtype dtype;             /* of the next two */
  char *x;                       /* [inputs, B, S, H] */
  char *y, *dy, *dx;             /* [RING, B, S, H] */
  float *loss;                   /* [slots, B, S] */
  int masked;                    /* samples with padding and labels: bert, roberta */
  int32_t *tokens, *targets;     /* [slots, B, S] where the first or the last layer is */
  int32_t *types;                /* [slots, B, S] where the first layer is */
  int32_t *lengths, *next;       /* [slots, B] everywhere; next is of use to the last layer */
  double targets_in_step;
  double *loss_sum; /* [G] of this step, host */
  atoll_event **events;
  atoll_event **x_got, **x_free, **slot_done, *dy_got[RING], *dy_free[RING], *y_ready[RING], *y_sent[RING],
      *dx_ready[RING], *dx_sent[RING];
  int events_count;
  int64_t x_posted, dy_posted; /* own micro-batches whose receive was posted in this pass */
  atoll_action *schedule;
};

static int at_most(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

/* Sizes of what flow_create allocates, in elements; shared with flow_bytes so that plan and run agree to the byte. */
typedef struct flow_sizes {
  int slots, inputs;
  int64_t x, ring, loss, ids, types, labels, sums;
} flow_sizes;

static flow_sizes sizes_of(const atoll_plan *plan, const atoll_model *model, int pipeline, int stage, int replica) {
  int64_t H = atoll_model_config(model)->width;
  int masked = !atoll_model_causal(model);
  const atoll_plan_pipeline *pp = &plan->pipeline[pipeline];
  const atoll_plan_replica *r = &pp->stage[stage].replica[replica];
  int first = stage == 0, last = stage == pp->stages - 1;
  int64_t BS = r->micro_batch * plan->seq;
  flow_sizes z = {.slots = at_most(pp->stage[stage].in_flight, r->micro_batches > 0 ? r->micro_batches : 1)};
  z.inputs = first ? 0 : z.slots + 1;
  z.x = z.inputs * BS * H;
  z.ring = RING * BS * H * ((first ? 0 : 1) + (last ? 0 : 2));
  z.ids = first || last ? z.slots * BS : 0;
  z.types = first && masked ? z.slots * BS : 0;
  z.labels = masked ? z.slots * r->micro_batch : 0;
  z.loss = last ? z.slots * BS : 0;
  z.sums = last ? plan->micro_batches : 0;
  return z;
}

atoll_err flow_bytes(const atoll_plan *plan, const atoll_model *model, int pipeline, int stage, int replica,
                     int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  flow_sizes z = sizes_of(plan, model, pipeline, stage, replica);
  int64_t element = (int64_t)atoll_dtype_bytes((atoll_dtype)atoll_model_config(model)->dtype);
  bytes[ATOLL_MEM_ACTIVATION] += element * z.x + (int64_t)sizeof(float) * z.loss;
  bytes[ATOLL_MEM_COMM] += element * z.ring;
  bytes[ATOLL_MEM_DATA] +=
      (int64_t)sizeof(int32_t) * (2 * z.ids + z.types + 2 * z.labels) + (int64_t)sizeof(double) * z.sums;
  return ATOLL_OK;
}

/* Global sample of the first sample of micro-batch g: micro-batches are laid out over the pipelines' first stages. */
static int64_t sample_of(const atoll_plan *plan, int64_t g) {
  int64_t sample = 0;
  for (int p = 0; p < plan->pipelines; p++)
    for (int r = 0; r < plan->pipeline[p].stage[0].replicas; r++) {
      const atoll_plan_replica *x = &plan->pipeline[p].stage[0].replica[r];
      int64_t before = g - x->first_micro_batch;
      if (before <= 0)
        continue;
      sample += (before < x->micro_batches ? before : x->micro_batches) * x->micro_batch;
    }
  return sample;
}

static atoll_err new_event(flow *x, atoll_event **slot) {
  ATOLL_TRY(atoll_event_create(slot));
  x->events[x->events_count++] = *slot;
  return ATOLL_OK;
}

static atoll_err take(flow *x, atoll_mem_category c, int64_t count, size_t size, void *slot) {
  if (count == 0)
    return ATOLL_OK;
  return atoll_mem_alloc(x->p.exec.mem, c, (size_t)count * size, slot);
}

static atoll_err make_events(flow *x) {
  int n = 2 * x->inputs + x->slots + 6 * RING;
  x->events = calloc((size_t)n, sizeof *x->events);
  x->x_got = calloc((size_t)x->inputs * 2 + (size_t)x->slots, sizeof *x->x_got);
  if (!x->events || !x->x_got)
    return atoll_fail(ATOLL_NOMEM, "events of %d slots", x->slots);
  x->x_free = x->x_got + x->inputs;
  x->slot_done = x->x_free + x->inputs;
  for (int i = 0; i < x->inputs; i++) {
    ATOLL_TRY(new_event(x, &x->x_got[i]));
    ATOLL_TRY(new_event(x, &x->x_free[i]));
  }
  for (int i = 0; i < x->slots; i++)
    ATOLL_TRY(new_event(x, &x->slot_done[i]));
  for (int i = 0; i < RING; i++) {
    ATOLL_TRY(new_event(x, &x->dy_got[i]));
    ATOLL_TRY(new_event(x, &x->dy_free[i]));
    ATOLL_TRY(new_event(x, &x->y_ready[i]));
    ATOLL_TRY(new_event(x, &x->y_sent[i]));
    ATOLL_TRY(new_event(x, &x->dx_ready[i]));
    ATOLL_TRY(new_event(x, &x->dx_sent[i]));
  }
  return ATOLL_OK;
}

atoll_err flow_create(const flow_params *p, flow **out) {
  const atoll_plan_pipeline *pp = &p->plan->pipeline[p->place.pipeline];
  flow *x = calloc(1, sizeof *x);
  if (!x)
    return atoll_fail(ATOLL_NOMEM, "pipeline state");
  x->p = *p;
  x->replica = &pp->stage[p->place.stage].replica[p->place.replica];
  x->stages = pp->stages;
  x->first_stage = p->place.stage == 0;
  x->last_stage = p->place.stage == pp->stages - 1;
  x->immediate = !strcmp(atoll_device_kind(p->exec.device), "cpu");
  x->B = x->replica->micro_batch;
  x->S = p->plan->seq;
  x->H = atoll_model_config(p->model)->width;
  x->first = x->replica->first_micro_batch;
  x->count = x->replica->micro_batches;
  x->elements = x->B * x->S * x->H;
  x->dtype = (atoll_dtype)atoll_model_config(p->model)->dtype;
  size_t element = atoll_dtype_bytes(x->dtype);
  x->bytes = x->elements * (int64_t)element;
  x->masked = !atoll_model_causal(p->model);
  flow_sizes z = sizes_of(p->plan, p->model, p->place.pipeline, p->place.stage, p->place.replica);
  x->slots = z.slots;
  x->inputs = z.inputs;
  atoll_err err = ATOLL_OK;
  int64_t ring = RING * x->elements;
  x->schedule = calloc((size_t)x->count * 2 + 1, sizeof *x->schedule);
  if (!x->schedule)
    ATOLL_TRY_GOTO(err, fail, atoll_fail(ATOLL_NOMEM, "schedule of %lld micro-batches", (long long)x->count));
  atoll_schedule_1f1b(x->slots, x->first, x->count, x->schedule);
  ATOLL_TRY_GOTO(err, fail, make_events(x));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_ACTIVATION, z.x, element, &x->x));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_ACTIVATION, z.loss, sizeof(float), &x->loss));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_COMM, x->last_stage ? 0 : ring, element, &x->y));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_COMM, x->last_stage ? 0 : ring, element, &x->dy));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_COMM, x->first_stage ? 0 : ring, element, &x->dx));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_DATA, z.ids, sizeof(int32_t), &x->tokens));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_DATA, z.ids, sizeof(int32_t), &x->targets));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_DATA, z.types, sizeof(int32_t), &x->types));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_DATA, z.labels, sizeof(int32_t), &x->lengths));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_DATA, z.labels, sizeof(int32_t), &x->next));
  ATOLL_TRY_GOTO(err, fail, take(x, ATOLL_MEM_DATA, z.sums, sizeof(double), &x->loss_sum));
  ATOLL_TRY_GOTO(err, fail, atoll_queue_create(p->exec.device, "comm", &x->receive));
  *out = x;
  return ATOLL_OK;
fail:
  flow_destroy(&x);
  return err;
}

void flow_destroy(flow **address) {
  flow *x = *address;
  if (!x)
    return;
  atoll_mem *mem = x->p.exec.mem;
  atoll_queue_destroy(&x->receive);
  for (int i = 0; i < x->events_count; i++)
    atoll_event_destroy(&x->events[i]);
  void *owned[] = {&x->x,       &x->y,     &x->dy,      &x->dx,   &x->loss,    &x->tokens,
                   &x->targets, &x->types, &x->lengths, &x->next, &x->loss_sum};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
    atoll_mem_free(mem, owned[i]);
  free(x->events);
  free(x->x_got);
  free(x->schedule);
  free(x);
  *address = NULL;
}

static const atoll_plan_replica *other(const flow *x, int stage, int64_t g) {
  const atoll_plan *plan = x->p.plan;
  int r = atoll_plan_owner(plan, x->p.place.pipeline, stage, g);
  return &plan->pipeline[x->p.place.pipeline].stage[stage].replica[r];
}

/* What crosses a boundary is the same on all tensor ranks. Of replicas of one degree each rank talks to its like, of
 * others the first to the first, which hands on what it gets. Returns -1 when this rank has nobody to talk to. */
static int peer(const flow *x, int stage, int64_t g) {
  const atoll_plan_replica *r = other(x, stage, g);
  return r->tensor == x->replica->tensor ? r->rank[x->p.place.slot] : x->p.place.slot == 0 ? r->rank[0] : -1;
}

static atoll_err hand_on(const flow *x, int stage, int64_t g, void *what) {
  const atoll_exec *e = &x->p.exec;
  if (!e->tensor || other(x, stage, g)->tensor == x->replica->tensor)
    return ATOLL_OK;
  return atoll_comm_broadcast(e->tensor, e->compute, what, x->elements, x->dtype, 0, NULL);
}

/* Tags tell directions apart; messages of one pair and tag match in order, and both sides go through micro-batches in
 * ascending order. */
enum { TAG_FORWARD = 2, TAG_BACKWARD = 3 };

/* Post receives of stage inputs up to own micro-batch `upto` (index within the replica). */
static atoll_err post_inputs(flow *x, int64_t upto) {
  if (x->first_stage)
    return ATOLL_OK;
  for (; x->x_posted < x->count && x->x_posted <= upto; x->x_posted++) {
    int k = (int)(x->x_posted % x->inputs), from = peer(x, x->p.place.stage - 1, x->first + x->x_posted);
    if (from < 0)
      continue;
    ATOLL_TRY(atoll_queue_wait(x->receive, x->x_free[k]));
    ATOLL_TRY(atoll_comm_recv(x->p.world, x->receive, x->x + k * x->bytes, x->elements, x->dtype, from, TAG_FORWARD,
                              x->x_got[k]));
  }
  return ATOLL_OK;
}

static atoll_err post_gradients(flow *x, int64_t upto) {
  if (x->last_stage)
    return ATOLL_OK;
  for (; x->dy_posted < x->count && x->dy_posted <= upto; x->dy_posted++) {
    int k = (int)(x->dy_posted % RING), from = peer(x, x->p.place.stage + 1, x->first + x->dy_posted);
    if (from < 0)
      continue;
    ATOLL_TRY(atoll_queue_wait(x->receive, x->dy_free[k]));
    ATOLL_TRY(atoll_comm_recv(x->p.world, x->receive, x->dy + k * x->bytes, x->elements, x->dtype, from, TAG_BACKWARD,
                              x->dy_got[k]));
  }
  return ATOLL_OK;
}

static atoll_err send_output(flow *x, int64_t i) {
  const atoll_exec *e = &x->p.exec;
  int k = (int)(i % RING), to = peer(x, x->p.place.stage + 1, x->first + i);
  if (to < 0)
    return ATOLL_OK;
  ATOLL_TRY(atoll_queue_record(e->compute, x->y_ready[k]));
  ATOLL_TRY(atoll_queue_wait(e->comm, x->y_ready[k]));
  return atoll_comm_send(x->p.world, e->comm, x->y + k * x->bytes, x->elements, x->dtype, to, TAG_FORWARD,
                         x->y_sent[k]);
}

/* The compute queue waits for a message, or for a buffer that one still uses. */
static atoll_err wait_for(flow *x, atoll_event *event) {
  if (x->immediate)
    ATOLL_TRY(atoll_event_sync(event));
  return atoll_queue_wait(x->p.exec.compute, event);
}

/* Forward of own micro-batch i into its slot, from what the receive or the data gave. */
static atoll_err run_forward(flow *x, const atoll_call *c, int64_t i, double *loss_sum, flow_times *t) {
  const atoll_exec *e = &x->p.exec;
  int slot = (int)(i % x->slots), k = (int)(i % RING);
  int64_t BS = x->B * x->S;
  double t0 = atoll_clock_now();
  char *in = NULL, *out = NULL;
  float *loss = x->last_stage ? x->loss + slot * BS : NULL;
  if (!x->first_stage) {
    int n = (int)(i % x->inputs);
    in = x->x + n * x->bytes;
    ATOLL_TRY(wait_for(x, x->x_got[n]));
    ATOLL_TRY(hand_on(x, x->p.place.stage - 1, x->first + i, in));
  }
  if (!x->last_stage) {
    out = x->y + k * x->bytes;
    ATOLL_TRY(wait_for(x, x->y_sent[k]));
  }
  double t1 = atoll_clock_now();
  ATOLL_TRY(atoll_stage_forward(x->p.stage, slot, c, in, x->first_stage ? x->tokens + slot * BS : NULL,
                                x->last_stage ? x->targets + slot * BS : NULL, out, loss));
  if (x->last_stage && !c->train) /* in training the head runs with the backward, which knows the gradient buffer */
    ATOLL_TRY(e->kernels->sum(e->compute, loss, BS, loss_sum));
  double t2 = atoll_clock_now();
  t->wait += t1 - t0;
  t->forward += t2 - t1;
  t->forwards++;
  return x->last_stage ? ATOLL_OK : send_output(x, i);
}

/* Where the samples of a slot go, and the part of the call that tells layers of them. */
static atoll_batch batch_of(const flow *x, int slot) {
  int64_t BS = x->B * x->S;
  return (atoll_batch){.tokens = x->tokens ? x->tokens + slot * BS : NULL,
                       .targets = x->targets ? x->targets + slot * BS : NULL,
                       .types = x->types ? x->types + slot * BS : NULL,
                       .lengths = x->lengths ? x->lengths + slot * x->B : NULL,
                       .next = x->next ? x->next + slot * x->B : NULL};
}

static int wants_samples(const flow *x) { return x->first_stage || x->last_stage || x->masked; }

static atoll_call training_call(const flow *x, int64_t step, int64_t sample, int slot) {
  atoll_batch b = batch_of(x, slot);
  return (atoll_call){.B = x->B,
                      .S = x->S,
                      .seed = x->p.seed,
                      .step = (uint64_t)step,
                      .first_sample = (uint64_t)sample,
                      .loss_scale = (float)(1.0 / x->targets_in_step),
                      .train = 1,
                      .types = b.types,
                      .lengths = b.lengths,
                      .targets = x->B * atoll_data_most_targets(x->p.train),
                      .next = b.next,
                      .next_scale = (float)(1.0 / (double)x->p.plan->global_batch)};
}

static atoll_err step_forward(flow *x, int64_t step, int64_t i, flow_times *t) {
  const flow_params *p = &x->p;
  int64_t g = x->first + i, sample = sample_of(p->plan, g);
  int slot = (int)(i % x->slots);
  atoll_fault_point("train.forward");
  double t0 = atoll_clock_now();
  if (wants_samples(x)) { /* the slot's tokens are read by its backward */
    atoll_batch to = batch_of(x, slot);
    ATOLL_TRY(atoll_event_sync(x->slot_done[slot]));
    ATOLL_TRY(atoll_data_batch(p->train, p->seed, step, p->plan->global_batch, sample, x->B, &to));
  }
  t->data += atoll_clock_now() - t0;
  atoll_call c = training_call(x, step, sample, slot);
  ATOLL_TRY(post_inputs(x, i));
  return run_forward(x, &c, i, NULL, t);
}

static atoll_err step_backward(flow *x, int64_t step, int64_t i, partials *sums, flow_times *t) {
  const flow_params *p = &x->p;
  const atoll_exec *e = &p->exec;
  int64_t g = x->first + i, sample = sample_of(p->plan, g);
  int slot = (int)(i % x->slots), k = (int)(i % RING), buffer = 0;
  atoll_fault_point("train.backward");
  atoll_call c = training_call(x, step, sample, slot);
  double t0 = atoll_clock_now();
  char *dy = NULL, *dx = NULL;
  if (!x->last_stage) {
    ATOLL_TRY(post_gradients(x, i));
    dy = x->dy + k * x->bytes;
    ATOLL_TRY(wait_for(x, x->dy_got[k]));
    ATOLL_TRY(hand_on(x, p->place.stage + 1, g, dy));
  }
  if (!x->first_stage) {
    dx = x->dx + k * x->bytes;
    ATOLL_TRY(wait_for(x, x->dx_sent[k]));
  }
  double t1 = atoll_clock_now();
  ATOLL_TRY(partials_target(sums, p->stage, g, &buffer));
  ATOLL_TRY(atoll_stage_backward(p->stage, slot, buffer, &c, dy, dx, x->dx_ready[k]));
  if (x->last_stage)
    ATOLL_TRY(e->kernels->sum(e->compute, x->loss + slot * x->B * x->S, x->B * x->S, &x->loss_sum[g]));
  ATOLL_TRY(atoll_queue_record(e->compute, x->slot_done[slot]));
  if (!x->first_stage)
    ATOLL_TRY(atoll_queue_record(e->compute, x->x_free[i % x->inputs]));
  if (!x->last_stage)
    ATOLL_TRY(atoll_queue_record(e->compute, x->dy_free[k]));
  int to = x->first_stage ? -1 : peer(x, p->place.stage - 1, g);
  if (to >= 0) {
    ATOLL_TRY(atoll_queue_wait(e->comm, x->dx_ready[k]));
    ATOLL_TRY(atoll_comm_send(p->world, e->comm, dx, x->elements, x->dtype, to, TAG_BACKWARD, x->dx_sent[k]));
  }
  ATOLL_TRY(partials_close(sums, p->stage, e, g));
  t->wait += t1 - t0;
  t->backward += atoll_clock_now() - t1;
  t->backwards++;
  return ATOLL_OK;
}

/* Tensor ranks have the same losses. */
static int tells_loss(const flow *x) { return x->last_stage && x->p.place.slot == 0; }

atoll_err flow_step(flow *x, int64_t step, partials *sums, double *losses, flow_times *times) {
  memset(times, 0, sizeof *times);
  x->x_posted = x->dy_posted = 0;
  x->targets_in_step = (double)atoll_data_targets(x->p.train, x->p.seed, step, x->p.plan->global_batch);
  ATOLL_TRY(post_inputs(x, 0));
  int64_t done = 0; /* backwards enqueued so far */
  for (int64_t a = 0; a < 2 * x->count; a++) {
    int64_t i = x->schedule[a].micro_batch - x->first;
    if (x->schedule[a].backward) {
      ATOLL_TRY(step_backward(x, step, i, sums, times));
      ATOLL_TRY(post_gradients(x, i + 1));
      done++;
    } else {
      ATOLL_TRY(step_forward(x, step, i, times));
      ATOLL_TRY(post_gradients(x, 0));
    }
    /* An input may arrive while its predecessors are in flight: one buffer more than slots. */
    ATOLL_TRY(post_inputs(x, done + x->inputs - 1));
  }
  ATOLL_TRY(atoll_queue_sync(x->p.exec.compute));
  ATOLL_TRY(atoll_queue_sync(x->p.exec.comm));
  for (int64_t g = x->first; tells_loss(x) && g < x->first + x->count; g++)
    losses[g] = x->loss_sum[g];
  atoll_data_prefetch(x->p.train, x->p.seed, step + 1, x->p.plan->global_batch, sample_of(x->p.plan, x->first),
                      x->B * x->count);
  return ATOLL_OK;
}

/* Samples of a validation into a slot; those beyond the last window have no loss. Returns how many targets there are.
 */
static atoll_err validation_samples(flow *x, int64_t w0, int64_t windows, int slot, double *targets) {
  atoll_batch to = batch_of(x, slot);
  if (!wants_samples(x))
    return ATOLL_OK;
  ATOLL_TRY(atoll_queue_sync(x->p.exec.compute));
  ATOLL_TRY(atoll_data_windows_at(x->p.validation, w0, x->B, &to));
  for (int64_t b = 0; b < x->B; b++) {
    if (w0 + b >= windows && to.next)
      to.next[b] = -1;
    for (int64_t s = 0; to.targets && s < x->S; s++) {
      if (w0 + b >= windows)
        to.targets[b * x->S + s] = -1;
      if (x->last_stage && to.targets[b * x->S + s] >= 0)
        *targets += 1;
    }
  }
  return ATOLL_OK;
}

atoll_err flow_validate(flow *x, int64_t rounds, int64_t windows, double *losses, double *tokens) {
  const flow_params *p = &x->p;
  flow_times unused = {0};
  /* Of the sum over all, divided by all targets, the next sentence is to be a mean over windows. */
  float next_scale = (float)((double)atoll_data_window_targets(p->validation, windows) / (double)windows);
  for (int64_t round = 0; round < rounds; round++) {
    x->x_posted = 0;
    for (int64_t i = 0; i < x->count; i++) {
      int64_t g = x->first + i, w0 = round * p->plan->global_batch + sample_of(p->plan, g);
      int slot = (int)(i % x->slots);
      double *sum = &losses[round * p->plan->micro_batches + g];
      ATOLL_TRY(validation_samples(x, w0, windows, slot, &tokens[round * p->plan->micro_batches + g]));
      atoll_batch b = batch_of(x, slot);
      atoll_call c = {.B = x->B,
                      .S = x->S,
                      .seed = p->seed,
                      .loss_scale = 1,
                      .types = b.types,
                      .lengths = b.lengths,
                      .targets = x->B * atoll_data_most_targets(p->validation),
                      .next = b.next,
                      .next_scale = next_scale};
      ATOLL_TRY(post_inputs(x, i));
      ATOLL_TRY(run_forward(x, &c, i, sum, &unused));
      if (!x->first_stage)
        ATOLL_TRY(atoll_queue_record(p->exec.compute, x->x_free[i % x->inputs]));
      ATOLL_TRY(post_inputs(x, i + x->inputs - 1));
    }
    ATOLL_TRY(atoll_queue_sync(p->exec.compute));
    ATOLL_TRY(atoll_queue_sync(p->exec.comm));
  }
  if (!tells_loss(x)) {
    memset(losses, 0, (size_t)(rounds * p->plan->micro_batches) * sizeof *losses);
    memset(tokens, 0, (size_t)(rounds * p->plan->micro_batches) * sizeof *tokens);
  }
  return ATOLL_OK;
}

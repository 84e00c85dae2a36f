/* Layer times of this model on each rank's device, measured with the code that will train, at the micro-batch sizes and
 * policies that a plan may use.
 *
 * Layers of one kind cost the same, so three stages are enough (field practice: profile distinct layers once). What
 * makes a figure one that a step keeps:
 *
 * - All ranks measure the same thing at the same moment, as in training, when neighbours share caches, memory and
 * cores; and since a step waits for its slowest rank, a sample of a device class is that of its slowest rank.
 * - A sample is the mean over a visit: a step adds up many pieces, and of sums it is means that add up. The profile
 *   keeps the samples of all visits, and their median is what planning uses.
 * - What disturbs a machine comes in spells of seconds. Samples of one layer taken one after the other would all lie in
 *   one spell, and the plan would compare layers of different weather. So the layers are visited in rounds until the
 *   time for probes is spent; each is measured once in any case.
 * - The first micro-batch after an update takes longer: weights are packed anew, and the optimizer has gone through the
 *   caches. A step pays that once, so it is counted with the update.
 * - The least of many noisy figures is too low, and the planner looks for the least. So it is asked twice: what its
 *   choice rests on is measured again, and only what is seen then counts (`focus`).
 *
 * Policies times sizes are too many to measure all: one policy is measured at every size, another at one, and the
 * product of the two ratios stands for the rest, marked interpolated, until it is chosen and measured. */
#include "train_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/log.h"

enum { ROUNDS = 32, PASSES = 2, SIZES = 3, KINDS = 3, LAYERS_MAX = 8, TOKENS_MAX = 8192, MLP_RANKS = 64 };

/* A stage whose layers together take less would find in the caches what a whole model has lost. */
#define ENOUGH_BYTES ((int64_t)64 << 20)

typedef struct sample { /* s per layer; forward 0: not measured */
  double forward, backward, update, leaf;
} sample;

typedef struct visit { /* what is measured at once: layers of one kind under one policy, as a stage */
  int first, count;
  atoll_policy policy;
  int64_t B;
  int packed;         /* panels of its weights are kept */
  atoll_stage *stage; /* kept from round to round while there is room */
  int given_up;       /* it does not fit this rank's memory */
  double seconds;     /* that the last one took */
} visit;

/* Stages of visits are kept while they take less than this share of what a plan may use. */
#define KEEP_SHARE 0.25

enum { VISITS = KINDS * ATOLL_POLICIES * SIZES };

typedef struct probe {
  MPI_Comm mpi;
  const atoll_model *model;
  const atoll_exec *exec; /* NULL: this rank has no device, and only keeps step */
  int64_t S, largest;
  int64_t keep; /* bytes */
  int focus;    /* few visits that count alike: rounds are whole */
  visit visit[VISITS];
  int visits, rounds;
  sample (*sample)[ROUNDS]; /* [visits] */
  void *x, *y;              /* [largest, S, H] each, with room for floats */
  float *loss;              /* [largest, S] */
  int32_t *ids;             /* [largest, S] */
} probe;

/* ---- what to measure --------------------------------------------------------------------------------------------- */

/* Micro-batch sizes worth measuring: the one that was asked for, else the smallest, a middle and the largest power of
 * two that divides the batch and gives every device one (or 4, for pipelines of fewer replicas), within what is worth
 * computing at once. Sizes between are interpolated. */
static int sizes_to_measure(const atoll_job *job, int devices, int64_t *size) {
  if (job->plan.micro_batch > 0) {
    size[0] = job->plan.micro_batch;
    return 1;
  }
  int64_t largest = 1;
  while (job->train.global_batch % (2 * largest) == 0 && 2 * largest * job->train.seq <= TOKENS_MAX &&
         (largest < 4 || 2 * largest * devices <= job->train.global_batch))
    largest *= 2;
  int64_t middle = 1;
  while (middle * middle * 4 <= largest)
    middle *= 2;
  int n = 0;
  size[n++] = 1;
  if (middle > 1)
    size[n++] = middle;
  if (largest > middle)
    size[n++] = largest;
  return n;
}

/* Layers that together are ENOUGH_BYTES. */
static int layers_to_measure(const atoll_model *m, int first, int last, int64_t B, int64_t S) {
  static const char *const names[] = {"B", "S"};
  const int64_t values[] = {B, S};
  int index[64], n = atoll_model_layer_params(m, first, index, 64), count = 1;
  int64_t bytes = 0;
  atoll_syms *pool = NULL;
  if (atoll_syms_create(&pool) == ATOLL_OK) {
    const atoll_sym *saved = atoll_layer_saved_bytes(m, pool, first, (atoll_policy)0, 1);
    if (!saved || atoll_sym_eval_int(saved, names, values, 2, &bytes) != ATOLL_OK)
      atoll_err_clear();
    atoll_syms_destroy(&pool);
  }
  for (int i = 0; i < n && i < 64; i++) {
    const atoll_model_param *p = atoll_model_param_at(m, index[i]);
    int64_t values_of = 4;
    for (int d = 0; d < p->ndim; d++)
      values_of *= p->shape[d];
    bytes += values_of;
  }
  while (count < LAYERS_MAX && count < last - first && count * bytes < ENOUGH_BYTES)
    count++;
  return count;
}

static void add_visit(probe *p, int first, int last, atoll_policy policy, int64_t B, int packed) {
  for (const visit *v = p->visit; v < p->visit + p->visits; v++)
    if (v->first == first && v->policy == policy && v->B == B && v->packed == packed)
      return;
  if (p->visits < VISITS)
    p->visit[p->visits++] = (visit){.first = first,
                                    .count = layers_to_measure(p->model, first, last, B, p->S),
                                    .policy = policy,
                                    .B = B,
                                    .packed = packed};
}

/* Of layers [first, last) blocks under a policy, and with them embedding and head, which know none. */
static void add_visits(probe *p, int first, int last, atoll_policy policy, int64_t B, int packed) {
  int blocks = atoll_model_layers(p->model) - 2;
  if (first == 0)
    add_visit(p, 0, 1, (atoll_policy)0, B, packed);
  if (blocks > 0 && first <= blocks && last > 1)
    add_visit(p, 1, 1 + blocks, policy, B, packed);
  if (last == blocks + 2)
    add_visit(p, blocks + 1, blocks + 2, (atoll_policy)0, B, packed);
  p->largest = B > p->largest ? B : p->largest;
}

/* The policy named, or those that planners may choose and that repeat no products: the others' times follow from these.
 */
/* Policies that keep all cost alike, and the others follow from exact20 and what they repeat (cost.c), so two are
 * measured where the planner is free to choose. */
static int allowed(const atoll_job *job, int policy) {
  atoll_policy named;
  if (!strcmp(job->plan.policy, "auto") || atoll_policy_parse(job->plan.policy, &named) != 0)
    return policy == ATOLL_POLICY_EAGER_FLASH || policy == ATOLL_POLICY_EXACT20;
  return policy == (int)named;
}

/* Where a plan of as many replicas as there can be keeps panels, though not of what memory allows. */
static int expects_packed(const probe *p, const atoll_job *job, int devices, int64_t B) {
  const atoll_plan_params *plan = &job->plan;
  int64_t replicas = plan->data_parallel > 0 ? plan->data_parallel : devices / (plan->stages > 1 ? plan->stages : 1);
  const atoll_stage_params sp = {.B = B, .S = p->S};
  return B * replicas < job->train.global_batch &&
         atoll_stage_packs(p->model, &sp) >= (plan->pack_weights == ATOLL_PACK_YES ? 1 : 2);
}

/* packs: panels may be kept. */
static void list_visits(probe *p, const atoll_job *job, int devices, int packs, const atoll_plan *focus) {
  int64_t size[SIZES];
  int packed[SIZES], layers = atoll_model_layers(p->model);
  int sizes = sizes_to_measure(job, devices, size), reference = 0;
  for (int i = 0; focus && i < focus->pipelines; i++)
    for (int s = 0; s < focus->pipeline[i].stages; s++) {
      const atoll_plan_stage *stage = &focus->pipeline[i].stage[s];
      for (int r = 0; r < stage->ranges; r++)
        for (int k = 0; k < stage->replicas; k++)
          add_visits(p, stage->range[r].first, stage->range[r].last, (atoll_policy)stage->range[r].policy,
                     stage->replica[k].micro_batch, stage->packed);
    }
  if (focus)
    return;
  while (!allowed(job, reference))
    reference++;
  for (int k = 0; k < sizes; k++) {
    packed[k] = packs && expects_packed(p, job, devices, size[k]);
    add_visits(p, 0, layers, (atoll_policy)reference, size[k], packed[k]);
  }
  for (int policy = reference + 1; policy < ATOLL_POLICIES; policy++)
    if (allowed(job, policy))
      add_visits(p, 0, layers, (atoll_policy)policy, size[sizes / 2], packed[sizes / 2]);
}

/* ---- one visit --------------------------------------------------------------------------------------------------- */

static atoll_err take_buffers(probe *p) {
  size_t BS = (size_t)(p->largest * p->S), H = (size_t)atoll_model_config(p->model)->width;
  const struct {
    void *at;
    size_t values;
  } buffer[] = {{&p->x, BS * H}, {&p->y, BS * H}, {&p->loss, BS}, {&p->ids, BS}};
  if (p->ids) /* the last */
    return ATOLL_OK;
  for (size_t i = 0; i < sizeof buffer / sizeof *buffer; i++) {
    atoll_mem_free(p->exec->mem, buffer[i].at); /* of an earlier try */
    ATOLL_TRY(atoll_mem_calloc(p->exec->mem, ATOLL_MEM_WORKSPACE, 4 * buffer[i].values, buffer[i].at));
  }
  atoll_rng_key key = {.seed = 1, .site = ATOLL_RNG_TEST};
  atoll_rng_fill_normal(&key, 0, BS * H, 1, p->y); /* zeros may be cheaper than numbers */
  return p->exec->kernels->copy_weights(p->exec->compute, p->y, p->x, (int64_t)(BS * H), &(atoll_rounding){0});
}

static atoll_err make_stage(const probe *p, visit *v, int packed) {
  atoll_policy policy[LAYERS_MAX];
  for (int i = 0; i < v->count; i++)
    policy[i] = v->policy;
  atoll_stage_params sp = {.first = v->first,
                           .last = v->first + v->count,
                           .policy = policy,
                           .B = v->B,
                           .S = p->S,
                           .slots = 1,
                           .partials = 2,
                           .train = 1,
                           .packed = packed};
  ATOLL_TRY(atoll_stage_create(p->model, &sp, p->exec, &v->stage));
  return atoll_stage_init(v->stage, 1);
}

static atoll_err open_visit(probe *p, visit *v) {
  if (v->stage)
    return ATOLL_OK;
  ATOLL_TRY(take_buffers(p));
  atoll_err err = make_stage(p, v, v->packed);
  for (int packed = v->packed; packed >= 0 && err == ATOLL_NOMEM; packed--) { /* alone it may fit, or without panels */
    atoll_err_clear();
    for (int i = 0; i < p->visits; i++)
      atoll_stage_destroy(&p->visit[i].stage);
    err = make_stage(p, v, packed);
  }
  return err;
}

static void close_visit(const probe *p, visit *v) {
  int64_t taken = 0;
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    taken += atoll_mem_current(p->exec->mem, (atoll_mem_category)c);
  if (taken > p->keep)
    atoll_stage_destroy(&v->stage);
}

/* One micro-batch forward and then backward, as 1F1B runs a stage: forwards in a row would find in the caches what a
 * stage has lost. A stage runs both backward calls as one, so their times come as one figure. */
static atoll_err pass(const probe *p, const visit *v, sample *sum) {
  const atoll_exec *e = p->exec;
  atoll_layer_kind kind = atoll_model_layer_kind(p->model, v->first);
  int embed = kind == ATOLL_LAYER_EMBED, head = kind == ATOLL_LAYER_HEAD;
  atoll_call c = {
      .B = v->B, .S = p->S, .seed = 1, .loss_scale = 1.0f / (float)(v->B * p->S), .train = 1, .types = p->ids};
  double t0 = atoll_clock_now();
  ATOLL_TRY(atoll_stage_forward(v->stage, 0, &c, embed ? NULL : p->x, embed ? p->ids : NULL, head ? p->ids : NULL,
                                head ? NULL : p->y, head ? p->loss : NULL));
  ATOLL_TRY(atoll_queue_sync(e->compute));
  double t1 = atoll_clock_now();
  ATOLL_TRY(atoll_stage_backward(v->stage, 0, 0, &c, head ? NULL : p->x, embed ? NULL : p->y, NULL));
  ATOLL_TRY(atoll_queue_sync(e->compute));
  sum->forward += (t1 - t0) / (PASSES * v->count);
  sum->backward += (atoll_clock_now() - t1) / (PASSES * v->count);
  return ATOLL_OK;
}

/* A step of a few micro-batches, its update first. */
static atoll_err measure_visit(probe *p, visit *v, sample *out) {
  const atoll_exec *e = p->exec;
  const atoll_adamw adam = {
      .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = 1, .bias1 = 0.1f, .bias2 = 0.05f};
  sample first = {0}, s = {0};
  int fresh = !v->stage;
  ATOLL_TRY(open_visit(p, v));
  if (fresh) { /* touches pages and packs for the first time, which a run has behind it soon */
    ATOLL_TRY(pass(p, v, &first));
    ATOLL_TRY(atoll_stage_adamw(v->stage, 0, &adam));
    ATOLL_TRY(atoll_queue_sync(e->compute));
    first = (sample){0};
  }
  double t0 = atoll_clock_now();
  ATOLL_TRY(atoll_stage_adamw(v->stage, 0, &adam));
  ATOLL_TRY(atoll_queue_sync(e->compute));
  s.update = (atoll_clock_now() - t0) / v->count;
  ATOLL_TRY(pass(p, v, &first));
  for (int i = 0; i < PASSES; i++)
    ATOLL_TRY(pass(p, v, &s));
  s.update = fmax(s.update + PASSES * (first.forward + first.backward) - s.forward - s.backward, 0);
  t0 = atoll_clock_now();
  ATOLL_TRY(e->kernels->add(e->compute, atoll_stage_flat_grad(v->stage, 1), atoll_stage_flat_grad(v->stage, 0),
                            atoll_stage_grad_elements(v->stage)));
  ATOLL_TRY(atoll_queue_sync(e->compute)); /* that a buffer counts as zero costs nothing */
  s.leaf = (atoll_clock_now() - t0) / v->count;
  *out = s;
  close_visit(p, v);
  return ATOLL_OK;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

/* All ranks in step: rank 0's clock decides what still fits the time. A rank that fails goes on keeping step. */
static atoll_err measure(probe *p, double limit) {
  atoll_err err = ATOLL_OK;
  double began = atoll_clock_now();
  for (int round = 0; round < ROUNDS; round++) {
    int any = 0, whole = p->focus && atoll_clock_now() - began < limit;
    for (int i = 0; i < p->visits; i++) {
      visit *v = &p->visit[i];
      int go = round == 0 || (p->focus ? whole : atoll_clock_now() - began + v->seconds <= limit);
      MPI_Bcast(&go, 1, MPI_INT, 0, p->mpi); /* nobody starts before rank 0 */
      if (!go)
        continue;
      any = 1;
      double start = atoll_clock_now();
      if (p->exec && !v->given_up && err == ATOLL_OK)
        err = measure_visit(p, v, &p->sample[i][round]);
      if (err == ATOLL_NOMEM) {
        atoll_warn("calibration: %s", atoll_err_message());
        v->given_up = 1;
        atoll_stage_destroy(&v->stage);
        atoll_err_clear();
        err = ATOLL_OK;
      }
      MPI_Barrier(p->mpi);
      v->seconds = atoll_clock_now() - start;
    }
    if (!any)
      break;
    p->rounds = round + 1;
  }
  return atoll_agree(p->mpi, err);
}

/* Samples of a class's slowest ranks, on every one of its ranks. */
static atoll_err keep_slowest(probe *p, MPI_Comm peers) {
  int rank, n = p->visits * p->rounds;
  struct at {
    double seconds;
    int rank;
  } *most = calloc((size_t)n, sizeof *most);
  double *all = calloc((size_t)n * 4, sizeof *all);
  MPI_Comm_rank(peers, &rank);
  atoll_err err = atoll_agree(peers, most && all ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "samples of %d visits", n));
  for (int i = 0; i < n && err == ATOLL_OK; i++) {
    const sample *s = &p->sample[i / p->rounds][i % p->rounds];
    most[i] = (struct at){s->forward + s->backward, rank};
  }
  if (err == ATOLL_OK)
    MPI_Allreduce(MPI_IN_PLACE, most, n, MPI_DOUBLE_INT, MPI_MAXLOC, peers);
  for (int i = 0; i < n && err == ATOLL_OK; i++)
    if (most[i].rank == rank)
      memcpy(&all[4 * i], &p->sample[i / p->rounds][i % p->rounds], sizeof(sample));
  if (err == ATOLL_OK)
    MPI_Allreduce(MPI_IN_PLACE, all, 4 * n, MPI_DOUBLE, MPI_SUM, peers);
  for (int i = 0; i < n && err == ATOLL_OK; i++)
    memcpy(&p->sample[i / p->rounds][i % p->rounds], &all[4 * i], sizeof(sample));
  free(most);
  free(all);
  return err;
}

typedef struct target { /* of what is added to a profile */
  atoll_profile *profile;
  const char *class_name;
  const atoll_model *model;
  const atoll_job *job;
} target;

static atoll_err add_cost(const target *t, int layer, int policy, int64_t B, const atoll_cost *cost) {
  const char *kind = atoll_layer_kind_name(atoll_model_layer_kind(t->model, layer));
  return atoll_profile_add(t->profile, t->class_name, atoll_model_digest(t->model), kind,
                           atoll_policy_name((atoll_policy)policy), t->job->train.seq, B, cost);
}

/* Embedding and head are the same under every policy that is asked for. */
static atoll_err add_samples(const probe *p, const target *t) {
  for (int i = 0; i < p->visits; i++)
    for (int k = 0; k < p->rounds; k++) {
      const visit *b = &p->visit[i];
      const sample *s = &p->sample[i][k];
      int block = atoll_model_layer_kind(p->model, b->first) == ATOLL_LAYER_BLOCK;
      const atoll_cost cost = {.forward = s->forward,
                               .backward_input = s->backward,
                               .update = s->update,
                               .leaf = s->leaf,
                               .source = ATOLL_COST_MEASURED};
      if (!(s->forward > 0))
        continue;
      if (block)
        ATOLL_TRY(add_cost(t, b->first, (int)b->policy, b->B, &cost));
      for (int policy = 0; policy < ATOLL_POLICIES && !block; policy++)
        if (allowed(t->job, policy))
          ATOLL_TRY(add_cost(t, b->first, policy, b->B, &cost));
    }
  return ATOLL_OK;
}

static atoll_err find_cost(const target *t, atoll_policy policy, int64_t B, atoll_cost *out) {
  return atoll_profile_find(t->profile, t->class_name, atoll_model_digest(t->model),
                            atoll_layer_kind_name(ATOLL_LAYER_BLOCK), atoll_policy_name(policy), t->job->train.seq, B,
                            out);
}

/* Blocks of policies that were measured at one size only: at the others, what the reference takes there times the ratio
 * of the two where both are known. */
static atoll_err fill_products(const probe *p, const target *t) {
  const visit *reference = NULL;
  for (int i = 0; i < p->visits; i++) {
    const visit *v = &p->visit[i];
    if (atoll_model_layer_kind(p->model, v->first) != ATOLL_LAYER_BLOCK)
      continue;
    reference = reference ? reference : v;
    for (int k = 0; k < p->visits && v->policy != reference->policy; k++) {
      const visit *other = &p->visit[k];
      atoll_cost mine, there, here;
      if (other->first != reference->first || other->policy != reference->policy || other->B == v->B ||
          find_cost(t, v->policy, v->B, &mine) != ATOLL_OK ||
          find_cost(t, reference->policy, v->B, &there) != ATOLL_OK ||
          find_cost(t, reference->policy, other->B, &here) != ATOLL_OK)
        continue;
      here.forward *= mine.forward / there.forward;
      here.backward_input *= mine.backward_input / there.backward_input;
      here.update = mine.update;
      here.source = ATOLL_COST_INTERPOLATED;
      ATOLL_TRY(add_cost(t, v->first, (int)v->policy, other->B, &here));
    }
  }
  atoll_err_clear();
  return ATOLL_OK;
}

/* Whether no visit of a block before had its size. */
static int is_new_size(const probe *p, const visit *v) {
  int fresh = atoll_model_layer_kind(p->model, v->first) == ATOLL_LAYER_BLOCK;
  for (const visit *u = p->visit; u < v; u++)
    fresh &= u->first != v->first || u->B != v->B;
  return fresh;
}

/* Pipelined MLPs, of what this rank's machine remembers. */
static atoll_err add_remembered(const probe *p, const target *t) {
  atoll_mlp_seconds of[SIZES * MLP_RANKS];
  int n = 0;
  for (int ranks = 2; ranks <= MLP_RANKS; ranks++)
    for (const visit *v = p->visit; v < p->visit + p->visits && n < SIZES * MLP_RANKS; v++)
      if (is_new_size(p, v) && atoll_layer_check_tensor(p->model, ranks) == ATOLL_OK)
        of[n++] = (atoll_mlp_seconds){.rows = v->B * p->S, .ranks = ranks};
  atoll_err_clear();
  (void)atoll_mlp_remembered(p->model, NULL, of, n);
  for (int i = 0; i < n; i++)
    if (of[i].pipelined > 0)
      ATOLL_TRY(atoll_profile_add_mlp(t->profile, t->class_name, atoll_model_digest(t->model), of[i].ranks,
                                      t->job->train.seq, of[i].rows / p->S, of[i].pipelined, of[i].even));
  return ATOLL_OK;
}

/* What the leading rank of each class knows reaches all. */
static atoll_err share(probe *p, const target *t, MPI_Comm peers, int fill, atoll_profile *profile) {
  char *text = NULL;
  void *all = NULL;
  int64_t *offset = NULL;
  size_t bytes = 0;
  int leader = -1, size;
  atoll_err err = ATOLL_OK;
  MPI_Comm_size(p->mpi, &size);
  if (peers != MPI_COMM_NULL) {
    MPI_Comm_rank(peers, &leader);
    err = keep_slowest(p, peers);
  }
  if (err == ATOLL_OK && leader == 0) {
    err = add_samples(p, t);
    if (err == ATOLL_OK && t->job->plan.mlp != ATOLL_MLP_PLAIN && atoll_device_host_memory(p->exec->device))
      err = add_remembered(p, t);
    if (err == ATOLL_OK && fill)
      err = fill_products(p, t);
    if (err == ATOLL_OK)
      err = atoll_profile_pack(t->profile, &text, &bytes);
  }
  err = atoll_agree(p->mpi, err);
  if (err == ATOLL_OK)
    err = atoll_gather_bytes(p->mpi, text, (int64_t)bytes, &all, &offset);
  atoll_profile *fresh = NULL;
  if (err == ATOLL_OK)
    err = atoll_profile_create(&fresh);
  for (int r = 0; err == ATOLL_OK && r < size; r++)
    if (offset[r + 1] > offset[r])
      err = atoll_profile_unpack(fresh, (const char *)all + offset[r], (size_t)(offset[r + 1] - offset[r]));
  if (err == ATOLL_OK)
    err = atoll_profile_replace(profile, fresh);
  atoll_profile_destroy(&fresh);
  free(text);
  free(all);
  free(offset);
  return err;
}

/* The island by whose name a class is known: the first of its name. */
static int class_of(const atoll_islands *islands, int island) {
  char name[256], other[256];
  atoll_island_class(islands, island, name, sizeof name);
  for (int i = 0;; i++) {
    atoll_island_class(islands, i, other, sizeof other);
    if (!strcmp(name, other))
      return i;
  }
}

static void free_probe(probe *p) {
  if (p->exec) {
    for (int i = 0; i < p->visits; i++)
      atoll_stage_destroy(&p->visit[i].stage);
    void *taken[] = {&p->x, &p->y, &p->loss, &p->ids};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
      atoll_mem_free(p->exec->mem, taken[i]);
  }
  free(p->sample);
  free(p);
}

atoll_err atoll_train_calibrate(atoll_comm *comm, const atoll_job *job, const atoll_model *model, atoll_device *device,
                                const atoll_islands *islands, const atoll_topo *topo, const atoll_plan *focus,
                                double seconds, atoll_profile *profile) {
  MPI_Comm mpi = atoll_comm_mpi(comm), peers = MPI_COMM_NULL;
  int mine = atoll_topo_device_of(topo, atoll_comm_rank(comm)), island = mine >= 0 ? islands->island_of[mine] : -1;
  atoll_mem *mem = NULL;
  atoll_profile *local = NULL;
  atoll_queue *queue = NULL;
  atoll_exec exec;
  char class_name[256] = "";
  int packs = train_packs(mpi, job, device);
  probe *p = calloc(1, sizeof *p);
  atoll_err err = p ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "calibration of %d policies", ATOLL_POLICIES);
  ATOLL_TRY_GOTO(err, agree, err);
  *p = (probe){.mpi = mpi, .model = model, .S = job->train.seq, .focus = focus != NULL};
  list_visits(p, job, atoll_comm_size(comm), packs, focus);
  p->sample = calloc((size_t)p->visits, sizeof *p->sample);
  if (!p->sample)
    ATOLL_TRY_GOTO(err, agree, atoll_fail(ATOLL_NOMEM, "samples of %d visits", p->visits));
  ATOLL_TRY_GOTO(err, agree, atoll_profile_create(&local));
  if (island >= 0) {
    /* Probes may not endanger the job: they stay within the memory a plan may use, and a size that does not fit is left
     * to the model. */
    int64_t budget = (int64_t)((double)topo->device[mine].memory * job->plan.memory_share);
    ATOLL_TRY_GOTO(err, agree, atoll_mem_create(budget > 0 ? budget : 0, 0, &mem));
    p->keep = (int64_t)(KEEP_SHARE * (double)topo->device[mine].memory);
    ATOLL_TRY_GOTO(err, agree, atoll_queue_create(device, "compute", &queue));
    const atoll_kernels *kernels;
    ATOLL_TRY_GOTO(err, agree, train_kernels(job, device, &kernels));
    exec =
        (atoll_exec){.device = device, .compute = queue, .copy = queue, .comm = queue, .mem = mem, .kernels = kernels};
    p->exec = &exec;
    atoll_island_class(islands, island, class_name, sizeof class_name);
  }
agree:
  err = atoll_agree(mpi, err);
  if (err == ATOLL_OK) {
    MPI_Comm_split(mpi, island >= 0 ? class_of(islands, island) : MPI_UNDEFINED, atoll_comm_rank(comm), &peers);
    err = measure(p, seconds);
  }
  if (err == ATOLL_OK)
    err = share(p, &(target){local, class_name, model, job}, peers, !focus, profile);
  if (peers != MPI_COMM_NULL)
    MPI_Comm_free(&peers);
  if (p)
    free_probe(p);
  atoll_queue_destroy(&queue);
  atoll_profile_destroy(&local);
  atoll_mem_destroy(&mem, NULL);
  return err;
}

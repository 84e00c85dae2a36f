/* Layer times of this model on each rank's device, measured with the code that will train, at the micro-batch sizes a
 * plan may use.
 *
 * Layers of one kind cost the same, so three stages are enough (field practice: profile distinct layers once). Every
 * rank measures at the same time, as in training, when neighbours share caches, memory and cores. The results of all
 * ranks of a device class are pooled; the profile keeps their median.
 *
 * What disturbs a machine comes in spells of seconds. Samples of one layer taken one after the other would all lie in
 * one spell, and the plan would compare layers of different weather. So the layers are visited in rounds, few samples a
 * visit, until the time for probes is spent; each is measured once in any case. */
#include "train_impl.h"

#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/log.h"

enum { REPEATS = 2, ROUNDS = 8, SIZES = 3, LAYERS_MAX = 3, TOKENS_MAX = 8192 };

typedef struct probe {
  const atoll_model *model;
  const atoll_exec *exec;
  const char *class_name;
  atoll_profile *profile;
  int64_t S;
} probe;

/* One visit to one kind of layer at one size: forward, backward and update per layer, the first repeat unused. `count`
 * equal layers and two micro-batches, each forward and then backward, as 1F1B runs a stage: one layer alone, always on
 * the same buffers, or forwards in a row would find in the caches what a stage has lost, and promise times that no
 * stage keeps. */
static atoll_err time_layers(const probe *p, int first, int count, atoll_policy policy, int64_t B, double tree_share,
                             int repeats) {
  int64_t BS = B * p->S, H = atoll_model_config(p->model)->width;
  atoll_layer_kind kind = atoll_model_layer_kind(p->model, first);
  atoll_policy policies[LAYERS_MAX];
  for (int i = 0; i < count; i++)
    policies[i] = policy;
  atoll_stage_params sp = {.first = first,
                           .last = first + count,
                           .policy = policies,
                           .B = B,
                           .S = p->S,
                           .slots = 2,
                           .partials = 2,
                           .train = 1};
  const atoll_exec *e = p->exec;
  atoll_stage *stage = NULL;
  float *x = NULL, *y = NULL, *loss = NULL;
  int32_t *ids = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, atoll_stage_create(p->model, &sp, e, &stage));
  ATOLL_TRY_GOTO(err, done, atoll_stage_init(stage, 1));
  ATOLL_TRY_GOTO(err, done, atoll_mem_calloc(e->mem, ATOLL_MEM_WORKSPACE, (size_t)(BS * H) * sizeof *x, (void **)&x));
  ATOLL_TRY_GOTO(err, done, atoll_mem_calloc(e->mem, ATOLL_MEM_WORKSPACE, (size_t)(BS * H) * sizeof *y, (void **)&y));
  ATOLL_TRY_GOTO(err, done, atoll_mem_calloc(e->mem, ATOLL_MEM_WORKSPACE, (size_t)BS * sizeof *loss, (void **)&loss));
  ATOLL_TRY_GOTO(err, done, atoll_mem_calloc(e->mem, ATOLL_MEM_WORKSPACE, (size_t)BS * sizeof *ids, (void **)&ids));
  atoll_rng_key key = {.seed = 1, .layer = (uint32_t)first, .site = ATOLL_RNG_TEST};
  atoll_rng_fill_normal(&key, 0, (size_t)(BS * H), 1, x); /* zeros may be cheaper than numbers */
  int embed = kind == ATOLL_LAYER_EMBED, head = kind == ATOLL_LAYER_HEAD;
  atoll_call c = {.B = B, .S = p->S, .seed = 1, .loss_scale = 1.0f / (float)BS, .train = 1, .types = ids};
  for (int i = -1; i < repeats; i++) { /* the first warms up */
    double forward = 0, backward = 0;
    for (int slot = 0; slot < 2; slot++) { /* one forward, one backward: what each leaves in the caches for the other */
      double t0 = atoll_clock_now();
      ATOLL_TRY_GOTO(err, done,
                     atoll_stage_forward(stage, slot, &c, embed ? NULL : x, embed ? ids : NULL, head ? ids : NULL,
                                         head ? NULL : y, head ? loss : NULL));
      ATOLL_TRY_GOTO(err, done, atoll_queue_sync(e->compute));
      double t1 = atoll_clock_now();
      ATOLL_TRY_GOTO(err, done, atoll_stage_backward(stage, slot, slot, &c, head ? NULL : x, embed ? NULL : y, NULL));
      ATOLL_TRY_GOTO(err, done, atoll_queue_sync(e->compute));
      forward += t1 - t0;
      backward += atoll_clock_now() - t1;
    }
    double t2 = atoll_clock_now();
    /* What the summation tree costs a leaf: a buffer is cleared and later added to another. */
    ATOLL_TRY_GOTO(err, done,
                   e->kernels->add(e->compute, atoll_stage_flat_grad(stage, 1), atoll_stage_flat_grad(stage, 0),
                                   atoll_stage_grad_elements(stage)));
    ATOLL_TRY_GOTO(err, done, atoll_stage_zero_grad(stage, 1));
    ATOLL_TRY_GOTO(err, done, atoll_queue_sync(e->compute));
    double t3 = atoll_clock_now();
    atoll_adamw adam = {
        .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = 1, .bias1 = 0.1f, .bias2 = 0.05f};
    ATOLL_TRY_GOTO(err, done, atoll_stage_adamw(stage, 0, &adam));
    ATOLL_TRY_GOTO(err, done, atoll_queue_sync(e->compute));
    double t4 = atoll_clock_now();
    if (i < 0)
      continue;
    /* A stage runs both backward calls as one, so their times come as one figure, booked on the input gradient. */
    atoll_cost cost = {.forward = forward / (2 * count),
                       .backward_input = backward / (2 * count) + tree_share * (t3 - t2) / count,
                       .update = (t4 - t3) / count,
                       .source = ATOLL_COST_MEASURED};
    ATOLL_TRY_GOTO(err, done,
                   atoll_profile_add(p->profile, p->class_name, atoll_model_digest(p->model),
                                     atoll_layer_kind_name(kind), atoll_policy_name(policy), p->S, B, &cost));
  }
done:
  atoll_stage_destroy(&stage);
  atoll_mem_free(e->mem, &x);
  atoll_mem_free(e->mem, &y);
  atoll_mem_free(e->mem, &loss);
  atoll_mem_free(e->mem, &ids);
  return err;
}

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

/* What one visit measures, and how long the last one took. */
typedef struct visit {
  int first, count;
  atoll_policy policy;
  int64_t B;
  double tree_share, seconds;
} visit;

/* Of the policies that planners choose among: those that repeat no products. The others follow from them. */
static int measured(atoll_policy policy) {
  return policy == ATOLL_POLICY_EAGER_FLASH || policy == ATOLL_POLICY_EXACT20;
}

static int visits_of(const probe *p, const atoll_job *job, int devices, visit *v) {
  int blocks = atoll_model_layers(p->model) - 2, n = 0, chosen = -1;
  const struct {
    int first, count;
  } kinds[] = {{0, 1}, {1, blocks < LAYERS_MAX ? blocks : LAYERS_MAX}, {blocks + 1, 1}};
  int64_t size[SIZES];
  int sizes = sizes_to_measure(job, devices, size);
  if (strcmp(job->plan.policy, "auto") != 0) {
    atoll_policy named;
    if (atoll_policy_parse(job->plan.policy, &named) == 0)
      chosen = (int)named;
  }
  for (int k = 0; k < sizes; k++) {
    int64_t micro_batches = job->train.global_batch / size[k];
    int64_t leaves = job->plan.sum_leaves > 0 ? job->plan.sum_leaves : 8;
    double tree_share = leaves < micro_batches ? (double)leaves / (double)micro_batches : 1;
    for (int d = 0; d < 3; d++)
      for (int policy = 0; kinds[d].count > 0 && policy < ATOLL_POLICIES; policy++)
        if (chosen < 0 ? measured((atoll_policy)policy) : policy == chosen)
          v[n++] = (visit){kinds[d].first, kinds[d].count, (atoll_policy)policy, size[k], tree_share, 0};
  }
  return n;
}

/* The first round takes one sample of everything, whatever it costs; later ones what the time left allows. */
static atoll_err measure(const probe *p, const atoll_job *job, int devices) {
  visit visits[SIZES * 3 * ATOLL_POLICIES];
  int n = visits_of(p, job, devices, visits);
  double began = atoll_clock_now();
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < n; i++) {
      visit *v = &visits[i];
      double start = atoll_clock_now();
      if (round > 0 && start - began + v->seconds > job->topo.probe_seconds)
        continue;
      ATOLL_TRY(time_layers(p, v->first, v->count, v->policy, v->B, v->tree_share, round > 0 ? REPEATS : 1));
      v->seconds = atoll_clock_now() - start;
      if (round == 0) /* the next has one repeat more beside the first, unused one */
        v->seconds *= (REPEATS + 1) / 2.0;
    }
  return ATOLL_OK;
}

atoll_err atoll_train_calibrate(atoll_comm *comm, const atoll_job *job, const atoll_model *model, atoll_device *device,
                                const atoll_islands *islands, const atoll_topo *topo, atoll_profile *profile) {
  MPI_Comm mpi = atoll_comm_mpi(comm);
  int mine = atoll_topo_device_of(topo, atoll_comm_rank(comm));
  int island = mine >= 0 ? islands->island_of[mine] : -1;
  atoll_mem *mem = NULL;
  atoll_profile *local = NULL;
  atoll_queue *queue = NULL;
  char *text = NULL;
  void *all = NULL;
  int64_t *offset = NULL;
  size_t bytes = 0;
  atoll_err err = ATOLL_OK;
  ATOLL_TRY_GOTO(err, agree, atoll_profile_create(&local));
  if (island >= 0) {
    /* Probes may not endanger the job: they stay within the memory a plan may use, and a size that does not fit is left
     * to the model. */
    int64_t budget = (int64_t)((double)topo->device[mine].memory * job->plan.memory_share);
    ATOLL_TRY_GOTO(err, agree, atoll_mem_create(budget > 0 ? budget : 0, 0, &mem));
    ATOLL_TRY_GOTO(err, agree, atoll_queue_create(device, "compute", &queue));
    const atoll_kernels *kernels;
    char name[ATOLL_OPT_STRING_MAX + 8];
    snprintf(name, sizeof name, strcmp(job->train.kernels, "auto") ? "%s" : "auto:%s",
             strcmp(job->train.kernels, "auto") ? job->train.kernels : atoll_device_kind(device));
    ATOLL_TRY_GOTO(err, agree, atoll_kernels_get(name, &kernels));
    atoll_exec exec = {
        .device = device, .compute = queue, .copy = queue, .comm = queue, .mem = mem, .kernels = kernels};
    char class_name[128];
    atoll_island_class(islands, island, class_name, sizeof class_name);
    probe p = {.model = model, .exec = &exec, .class_name = class_name, .profile = local, .S = job->train.seq};
    err = measure(&p, job, atoll_comm_size(comm));
    if (err == ATOLL_NOMEM) {
      atoll_warn("calibration stopped early, the rest is modelled: %s", atoll_err_message());
      err = ATOLL_OK;
    }
    if (err == ATOLL_OK)
      err = atoll_profile_pack(local, &text, &bytes);
  }
agree:
  err = atoll_agree(mpi, err);
  if (err == ATOLL_OK)
    err = atoll_gather_bytes(mpi, text, (int64_t)bytes, &all, &offset);
  for (int r = 0; err == ATOLL_OK && r < atoll_comm_size(comm); r++)
    if (offset[r + 1] > offset[r])
      err = atoll_profile_unpack(profile, (const char *)all + offset[r], (size_t)(offset[r + 1] - offset[r]));
  free(text);
  free(all);
  free(offset);
  atoll_queue_destroy(&queue);
  atoll_profile_destroy(&local);
  atoll_mem_destroy(&mem, NULL);
  return err;
}

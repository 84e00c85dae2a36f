/* The walk of the main job up to the first step: run directory, topology, device, islands, model, data, plan, stage,
 * weights.
 *
 * Each phase is named to the watch, so that a rank that never arrives is reported with the phase it is missing from;
 * each ends in an agreement, so that one rank's failure is everyone's. */
#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/fault.h"
#include "atoll/file.h"
#include "atoll/gemm.h"
#include "atoll/log.h"
#include "atoll/packed.h"

/* Name a phase, pass its fault point. */
static void phase(session *s, const char *name) {
  atoll_watch_end(s->watch);
  atoll_watch_begin(s->watch, name, 0);
  atoll_fault_point(name);
  atoll_debug("phase %s", name);
}

/* ---- run directory ------------------------------------------------------------------------------------------------
 */

static atoll_err open_run_dir(session *s) {
  const char *dir = s->job->run.dir;
  atoll_err err = ATOLL_OK;
  if (s->rank == 0) {
    err = atoll_rundir_open(dir, &s->dir);
    if (err == ATOLL_OK)
      s->attempt = atoll_rundir_attempt(s->dir);
  }
  ATOLL_TRY_ALL(s->mpi, err);
  int64_t attempt = s->attempt;
  ATOLL_TRY(atoll_comm_broadcast(s->world, s->out, &attempt, 1, ATOLL_I64, 0, NULL));
  ATOLL_TRY(atoll_queue_sync(s->out));
  s->attempt = (int)attempt;
  snprintf(s->run_dir, sizeof s->run_dir, "%s", dir);
  snprintf(s->ckpt_dir, sizeof s->ckpt_dir, "%s/ckpt", dir);
  atoll_watch_on_abort(s->watch, session_on_abort, s);
  char log_dir[ATOLL_OPT_STRING_MAX + 8];
  snprintf(log_dir, sizeof log_dir, "%s/log", dir);
  /* A node that does not share the file system learns it here. */
  if (!atoll_file_is_dir(log_dir))
    err = atoll_fail(ATOLL_IO,
                     "run directory %s made by rank 0 is not visible on rank %d: is it on a shared file system?", dir,
                     s->rank);
  else
    err = atoll_log_open(log_dir, s->rank, s->attempt);
  ATOLL_TRY_ALL(s->mpi, err);
  if (s->rank == 0)
    atoll_say("run %s , attempt %d , %d rank%s", dir, s->attempt, s->size, s->size == 1 ? "" : "s");
  return ATOLL_OK;
}

/* ---- devices ------------------------------------------------------------------------------------------------------
 */

atoll_err train_kernels(const atoll_job *job, const atoll_device *device, const atoll_kernels **out) {
  char name[ATOLL_OPT_STRING_MAX + 32];
  int any = !strcmp(job->train.kernels, "auto"), dtype = job->model.dtype;
  snprintf(name, sizeof name, "%s%s%s%s", any ? "auto:" : "", any ? atoll_device_kind(device) : job->train.kernels,
           dtype == ATOLL_F32 ? "" : ":", dtype == ATOLL_F32 ? "" : atoll_dtype_name((atoll_dtype)dtype));
  return atoll_kernels_get(name, out);
}

int train_packs(MPI_Comm comm, const atoll_job *job, const atoll_device *device) {
  const atoll_kernels *kernels;
  int packs = 0;
  if (train_kernels(job, device, &kernels) == ATOLL_OK)
    packs = job->plan.pack_weights != ATOLL_PACK_NO && atoll_packed_serves(kernels, NULL);
  else
    atoll_err_clear();
  MPI_Allreduce(MPI_IN_PLACE, &packs, 1, MPI_INT, MPI_MIN, comm);
  return packs;
}

static atoll_err open_device(session *s) {
  const atoll_train_params *t = &s->job->train;
  int bound = 0, threads = 0;
  atoll_topo_bind(s->topo, s->my_device, &threads, &bound);
  s->threads = t->threads > 0 ? (int)t->threads : threads;
  const atoll_topo_device *d = &s->topo->device[s->my_device];
  const char *kind = t->device;
  if (!strcmp(kind, "auto"))
    kind = d->kind == ATOLL_TOPO_GPU ? "cuda" : "cpu";
  atoll_device_params p;
  atoll_device_params_init(&p);
  p.threads = s->threads;
  p.seed = (uint64_t)t->seed;
  p.pci = d->pci[0] ? d->pci : NULL;
  ATOLL_TRY(atoll_device_open(kind, &p, &s->device));
  ATOLL_TRY(train_kernels(s->job, s->device, &s->kernels));
  ATOLL_TRY(atoll_queue_create(s->device, "compute", &s->compute));
  ATOLL_TRY(atoll_queue_create(s->device, "comm", &s->messages));
  atoll_debug("device %s, %d threads%s", kind, s->threads, bound ? ", bound" : "");
  return ATOLL_OK;
}

static atoll_err find_devices(session *s) {
  phase(s, "topology");
  ATOLL_TRY(atoll_topo_discover(s->world, &s->job->topo, &s->topo));
  s->my_device = atoll_topo_device_of(s->topo, s->rank);
  atoll_err err = s->my_device >= 0
                      ? ATOLL_OK
                      : atoll_fail(ATOLL_MISMATCH, "rank %d has no device in the topology (%d devices, %d ranks)",
                                   s->rank, s->topo->devices, s->size);
  ATOLL_TRY_ALL(s->mpi, err);
  ATOLL_TRY_ALL(s->mpi, open_device(s));
  atoll_gemm_choice choice;
  phase(s, "matrix products");
  ATOLL_TRY(atoll_gemm_choose(s->mpi, s->threads, NULL, &choice));
  atoll_debug("kernels %s", atoll_kernels_describe(s->kernels));
  if (s->job->topo.probe) {
    phase(s, "probe");
    ATOLL_TRY(atoll_topo_probe(s->world, &s->job->topo, s->device, s->topo));
  }
  s->ceiling = 0;
  for (int i = 0; i < s->topo->devices; i++) {
    const atoll_topo_device *d = &s->topo->device[i];
    const atoll_samples *rate = s->job->model.dtype == ATOLL_BF16 ? &d->gemm_bf16 : &d->gemm_f32;
    if (d->rank >= 0)
      s->ceiling += rate->n ? 1e9 * atoll_samples_median(rate) : NAN;
  }
  phase(s, "islands");
  ATOLL_TRY(atoll_islands_agree(s->world, s->topo, &s->job->island, &s->islands));
  atoll_digest_text(atoll_islands_identity(s->islands), s->identity);
  if (s->rank == 0 && !s->bare) {
    atoll_islands_print(s->islands, s->topo, stdout);
    fflush(stdout);
  }
  return ATOLL_OK;
}

/* ---- model and data -----------------------------------------------------------------------------------------------
 */

/* What the model's family learns from a text. */
static atoll_err set_task(session *s) {
  if (atoll_model_causal(s->model))
    return ATOLL_OK;
  atoll_data_task task =
      atoll_model_config(s->model)->family == ATOLL_FAMILY_BERT ? ATOLL_DATA_PAIRS : ATOLL_DATA_SENTENCES;
  ATOLL_TRY(atoll_data_mask(s->train, &s->job->data, task));
  return s->validation ? atoll_data_mask(s->validation, &s->job->data, task) : ATOLL_OK;
}

static atoll_err open_inputs(session *s) {
  const char *slash = strrchr(s->job->file, '/');
  if (slash)
    snprintf(s->job_folder, sizeof s->job_folder, "%.*s", (int)(slash - s->job->file), s->job->file);
  ATOLL_TRY(atoll_model_create(&s->job->model, &s->model));
  atoll_digest_text(atoll_model_weights_digest(s->model), s->model_digest);
  ATOLL_TRY(atoll_data_open(&s->job->data, s->job_folder, s->job->train.seq, atoll_model_config(s->model)->vocab,
                            &s->train, &s->validation));
  ATOLL_TRY(set_task(s));
  atoll_digest_text(atoll_data_digest(s->train), s->data_digest);
  int64_t params = atoll_model_params_count(s->model);
  s->by_param = calloc((size_t)params, sizeof *s->by_param);
  return s->by_param ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "norms of %lld parameters", (long long)params);
}

/* ---- plan ---------------------------------------------------------------------------------------------------------
 */

/* The lines of one section of options as atoll_opts_yaml() writes them; empty when there is none. */
static const char *section_of(const char *yaml, const char *title, size_t *n) {
  size_t k = strlen(title);
  const char *at = yaml;
  while (at && (strncmp(at, title, k) != 0 || at[k] != ':'))
    at = (at = strchr(at, '\n')) ? at + 1 : NULL;
  *n = 0;
  if (!at || !(at = strchr(at, '\n')))
    return "";
  const char *end = ++at;
  while (*end == ' ')
    end = strchr(end, '\n') ? strchr(end, '\n') + 1 : end + strlen(end);
  *n = (size_t)(end - at);
  return at;
}

/* Line "  key: value" of a section, without its end; NULL when the key is not there. */
static const char *line_of(const char *section, size_t n, const char *key, size_t key_bytes, size_t *length) {
  for (const char *at = section; at < section + n; at += *length + 1) {
    const char *end = memchr(at, '\n', n - (size_t)(at - section));
    *length = end ? (size_t)(end - at) : n - (size_t)(at - section);
    if (*length > key_bytes && !strncmp(at, key, key_bytes))
      return at;
  }
  return NULL;
}

/* Whether two configurations give an option of a section different values; an option that one of them does not know is
 * no difference, for programs of two versions may have written them. first receives the first that differs. */
static int section_differs(const char *a, const char *b, const char *title, char *first, size_t room) {
  size_t na, nb, la, lb;
  const char *x = section_of(a, title, &na), *y = section_of(b, title, &nb);
  for (const char *at = x; at < x + na; at += la + 1) {
    const char *end = memchr(at, '\n', na - (size_t)(at - x)), *colon = strchr(at, ':');
    la = end ? (size_t)(end - at) : na - (size_t)(at - x);
    if (!colon || colon > at + la)
      continue;
    const char *other = line_of(y, nb, at, (size_t)(colon - at) + 1, &lb);
    if (!other || (la == lb && !strncmp(at, other, la)))
      continue;
    snprintf(first, room, "%s.%.*s", title, (int)(colon - at - 2), at + 2);
    return 1;
  }
  return 0;
}

/* The plan of the checkpoint that is resumed, when it was made for these islands and with the same options of planning.
 */
static atoll_err reuse_plan(session *s, const atoll_ckpt_meta *meta) {
  atoll_plan *old = NULL;
  const atoll_train_params *t = &s->job->train;
  if (!meta || !meta->plan || s->job->plan.load[0] || strcmp(meta->identity_digest, s->identity) != 0)
    return ATOLL_OK;
  char *now = NULL, changed[64];
  ATOLL_TRY(atoll_opts_yaml(s->opts, &now));
  int differs = meta->config && section_differs(meta->config, now, "plan", changed, sizeof changed);
  free(now);
  if (differs) {
    if (s->rank == 0)
      atoll_say("%s changed since the checkpoint: planning anew", changed);
    return ATOLL_OK;
  }
  if (atoll_plan_from_text("the checkpoint's plan", meta->plan, strlen(meta->plan), &old) != ATOLL_OK ||
      atoll_plan_fits(old, s->model, s->islands, s->size) != ATOLL_OK || old->seq != t->seq ||
      old->global_batch != t->global_batch) {
    atoll_debug("plan of the checkpoint is not reused: %s", atoll_err_message());
    atoll_plan_destroy(&old);
    atoll_err_clear();
    return ATOLL_OK;
  }
  s->plan = old;
  return ATOLL_OK;
}

static atoll_err plan_by(session *s, const atoll_plan_params *params, atoll_plan **out) {
  atoll_plan_problem problem = {.model = s->model,
                                .topo = s->topo,
                                .islands = s->islands,
                                .profile = s->profile,
                                .seq = s->job->train.seq,
                                .global_batch = s->job->train.global_batch,
                                .packs = train_packs(s->mpi, s->job, s->device),
                                .extra_bytes = atoll_train_extra_bytes};
  return atoll_plan_agree(s->world, &problem, params, out, NULL);
}

static atoll_err plan_once(session *s) {
  phase(s, "plan");
  atoll_plan_destroy(&s->plan);
  return plan_by(s, &s->job->plan, &s->plan);
}

/* Measure, plan, and look again at what the plan rests on: the least of many noisy figures is too low. A plan that is
 * chosen again stands. */
static atoll_err make_plan(session *s) {
  static const double share[] = {0.5, 0.5, 0.25, 0.25}; /* of the time for probes */
  if (!s->job->train.calibrate || s->job->plan.load[0])
    return plan_once(s);
  ATOLL_TRY_ALL(s->mpi, atoll_profile_create(&s->profile));
  atoll_digest before = {0, 0}, now = {0, 0};
  for (size_t look = 0; look < sizeof share / sizeof *share && (look == 0 || !atoll_digest_equal(before, now));
       look++) {
    phase(s, "calibrate");
    ATOLL_TRY(atoll_train_calibrate(s->world, s->job, s->model, s->device, s->islands, s->topo, s->plan,
                                    share[look] * s->job->topo.probe_seconds, s->profile));
    ATOLL_TRY(plan_once(s));
    before = now;
    now = atoll_plan_digest(s->plan);
  }
  return ATOLL_OK;
}

atoll_err session_predict(session *s, double seconds, double *step_seconds) {
  const atoll_plan_pipeline *pipe = &s->plan->pipeline[0];
  atoll_plan_params params = s->job->plan; /* that leave no choice */
  atoll_plan *again = NULL;
  params.stages = pipe->stages;
  params.data_parallel = pipe->stage[0].replicas;
  params.micro_batch = pipe->stage[0].replica[0].micro_batch;
  snprintf(params.policy, sizeof params.policy, "%s", atoll_policy_name((atoll_policy)pipe->stage[0].range[0].policy));
  if (!s->profile)
    ATOLL_TRY_ALL(s->mpi, atoll_profile_create(&s->profile));
  ATOLL_TRY(
      atoll_train_calibrate(s->world, s->job, s->model, s->device, s->islands, s->topo, s->plan, seconds, s->profile));
  ATOLL_TRY(plan_by(s, &params, &again));
  atoll_err err = ATOLL_OK;
  if (!atoll_digest_equal(atoll_plan_digest(again), atoll_plan_digest(s->plan)))
    err = atoll_fail(ATOLL_UNSUPPORTED,
                     "the plan in use does not follow from its stages, replicas, micro-batch size and policy alone");
  *step_seconds = again->step_seconds;
  atoll_plan_destroy(&again);
  return err;
}

/* A plan that was loaded may keep weights packed where this job must not, or its products read none. */
static atoll_err unpack_plan(session *s) {
  int packed = 0;
  for (int p = 0; p < s->plan->pipelines; p++)
    for (int i = 0; i < s->plan->pipeline[p].stages; i++)
      packed |= s->plan->pipeline[p].stage[i].packed;
  if (train_packs(s->mpi, s->job, s->device) || !packed)
    return ATOLL_OK;
  if (s->rank == 0 && s->job->plan.pack_weights != ATOLL_PACK_NO)
    atoll_warn("packed weights of the plan are not kept: products of a rank do not use them");
  return atoll_plan_unpack(s->plan, s->model);
}

static atoll_err settle_plan(session *s, const atoll_ckpt_meta *meta) {
  phase(s, "plan");
  ATOLL_TRY_ALL(s->mpi, reuse_plan(s, meta));
  int reused = s->plan != NULL; /* by all or by none, also where environments differ */
  MPI_Allreduce(MPI_IN_PLACE, &reused, 1, MPI_INT, MPI_MIN, s->mpi);
  if (!reused)
    atoll_plan_destroy(&s->plan);
  if (!reused)
    ATOLL_TRY(make_plan(s));
  ATOLL_TRY_ALL(s->mpi, atoll_plan_check(s->plan, s->model));
  ATOLL_TRY_ALL(s->mpi, atoll_plan_fits(s->plan, s->model, s->islands, s->size));
  ATOLL_TRY_ALL(s->mpi, atoll_train_accepts(s->plan));
  ATOLL_TRY_ALL(s->mpi, unpack_plan(s));
  const atoll_train_params *t = &s->job->train;
  if (s->plan->seq != t->seq || s->plan->global_batch != t->global_batch)
    ATOLL_TRY_ALL(s->mpi,
                  atoll_fail(ATOLL_MISMATCH,
                             "the plan is for train.seq %lld and train.global_batch %lld, the job has %lld and %lld",
                             (long long)s->plan->seq, (long long)s->plan->global_batch, (long long)t->seq,
                             (long long)t->global_batch));
  atoll_digest digest = atoll_plan_digest(s->plan);
  ATOLL_TRY(atoll_agree_digest(s->mpi, "plan", digest));
  atoll_digest_text(digest, s->plan_digest);
  s->place = atoll_plan_find(s->plan, s->rank);
  if (s->rank == 0 && !s->bare) {
    char path[ATOLL_OPT_STRING_MAX + 16];
    char *text = NULL;
    size_t bytes = 0;
    atoll_say("plan %s%s", s->plan_digest, reused ? " (of the checkpoint)" : "");
    atoll_plan_print(s->plan, s->islands, stdout);
    fflush(stdout);
    snprintf(path, sizeof path, "%s/plan.yaml", s->run_dir);
    if (atoll_plan_to_text(s->plan, &text, &bytes) != ATOLL_OK || atoll_file_replace(path, text, bytes) != ATOLL_OK)
      atoll_warn("plan not saved beside the run: %s", atoll_err_message());
    free(text);
  }
  return ATOLL_OK;
}

/* ---- stage --------------------------------------------------------------------------------------------------------
 */

/* Each replica of several ranks is a group, of a colour that counts replicas. */
static atoll_err make_group(session *s) {
  int colour = -1, replicas = 0;
  for (int p = 0; p < s->plan->pipelines; p++)
    for (int i = 0; i < s->plan->pipeline[p].stages; i++) {
      const atoll_plan_stage *stage = &s->plan->pipeline[p].stage[i];
      if (s->place.pipeline == p && s->place.stage == i && stage->replica[s->place.replica].tensor > 1)
        colour = replicas + s->place.replica;
      replicas += stage->replicas;
    }
  return team_degree(s->plan, -1) > 1 ? atoll_comm_split(s->world, colour, s->place.slot, "tensor", &s->tensor)
                                      : ATOLL_OK;
}

static atoll_err make_stage(session *s) {
  const atoll_topo_device *d = &s->topo->device[s->my_device];
  int64_t budget =
      s->job->plan.memory > 0 ? s->job->plan.memory : (int64_t)((double)d->memory * s->job->plan.memory_share);
  ATOLL_TRY(atoll_mem_create(budget > 0 ? budget : 0, 0, &s->mem));
  s->exec = (atoll_exec){.device = s->device,
                         .compute = s->compute,
                         .copy = s->compute,
                         .comm = s->messages,
                         .tensor = s->tensor,
                         .mem = s->mem,
                         .kernels = s->kernels,
                         .perf = s->perf};
  size_t norms = (size_t)atoll_model_params_count(s->model) * (size_t)team_degree(s->plan, -1);
  s->shared = calloc(norms + (size_t)s->plan->micro_batches, sizeof *s->shared);
  if (!s->shared)
    return atoll_fail(ATOLL_NOMEM, "norms and losses");
  if (s->place.stage < 0)
    return ATOLL_OK;
  atoll_policy *policy = calloc((size_t)atoll_model_layers(s->model), sizeof *policy);
  if (!policy)
    return atoll_fail(ATOLL_NOMEM, "layer policies");
  atoll_stage_params p;
  atoll_err err = atoll_plan_stage_params(s->plan, s->place, &p, policy);
  s->partials = p.partials;
  if (err == ATOLL_OK)
    err = atoll_stage_create(s->model, &p, &s->exec, &s->stage);
  free(policy);
  if (err == ATOLL_OK)
    err = atoll_stage_init(s->stage, (uint64_t)s->job->train.seed);
  if (err == ATOLL_OK)
    err = session_refresh(s);
  if (err == ATOLL_OK)
    err = atoll_queue_sync(s->compute);
  return err;
}

/* What stages with mlp: auto found, each by the first rank of its replica. */
static atoll_err tell_mlp_choices(session *s) {
  char mine[256] = "";
  void *all = NULL;
  int64_t *offset = NULL;
  const char *choice = s->stage && s->place.slot == 0 ? atoll_stage_mlp_choice(s->stage) : "";
  if (*choice)
    snprintf(mine, sizeof mine, "pipeline %d stage %d replica %d : mlp %s\n", s->place.pipeline, s->place.stage,
             s->place.replica, choice);
  ATOLL_TRY(atoll_gather_bytes(s->mpi, mine, (int64_t)strlen(mine), &all, &offset));
  s->mlp_choices = calloc((size_t)offset[s->size] + 1, 1);
  if (s->mlp_choices)
    memcpy(s->mlp_choices, all, (size_t)offset[s->size]);
  free(all);
  free(offset);
  ATOLL_TRY_ALL(s->mpi, s->mlp_choices ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "choices of MLPs"));
  for (const char *at = s->mlp_choices; *at && s->rank == 0 && !s->bare; at = strchr(at, '\n') + 1)
    atoll_say("%.*s", (int)(strchr(at, '\n') - at), at);
  return ATOLL_OK;
}

static atoll_err make_flow(session *s) {
  if (s->place.stage < 0)
    return ATOLL_OK;
  flow_params p = {.plan = s->plan,
                   .place = s->place,
                   .model = s->model,
                   .stage = s->stage,
                   .exec = s->exec,
                   .world = s->world,
                   .train = s->train,
                   .validation = s->validation,
                   .seed = (uint64_t)s->job->train.seed};
  return flow_create(&p, &s->flow);
}

/* ---- resume -------------------------------------------------------------------------------------------------------
 */

/* Newest good checkpoint of this run; dir is empty when there is none. */
static atoll_err find_own(session *s, char *dir, size_t n) {
  char *report = NULL;
  atoll_err err = atoll_ckpt_find(s->mpi, s->ckpt_dir, dir, n, &report);
  if (s->rank == 0 && report && report[0] && err != ATOLL_IO) /* whose message holds it */
    atoll_warn("%s", report);
  free(report);
  if (err == ATOLL_NOINPUT) {
    dir[0] = '\0';
    atoll_err_clear();
    err = ATOLL_OK;
  }
  return err;
}

/* ckpt.resume says where a run begins. Slurm repeats the command when it requeues the job, and beginning there again
 * would throw away what was trained since: the run then goes on from a checkpoint of its own, if that was made by
 * attempts which began at the same place. */
static atoll_err find_requeued(session *s, char *dir, size_t n) {
  const char *restarts = getenv("SLURM_RESTART_COUNT");
  int64_t count = restarts ? strtoll(restarts, NULL, 10) : 0;
  dir[0] = '\0';
  ATOLL_TRY(atoll_comm_broadcast(s->world, s->out, &count, 1, ATOLL_I64, 0, NULL));
  ATOLL_TRY(atoll_queue_sync(s->out));
  if (count < 1)
    return ATOLL_OK;
  ATOLL_TRY(find_own(s, dir, n));
  if (!dir[0])
    return ATOLL_OK;
  atoll_ckpt_meta own = {0};
  char *now = NULL;
  size_t a = 0, b = 0;
  atoll_err err = atoll_ckpt_read_meta(dir, &own);
  if (err == ATOLL_OK)
    err = atoll_opts_yaml(s->opts, &now);
  int same = 0;
  if (err == ATOLL_OK) {
    const char *x = section_of(own.config, "ckpt", &a), *y = section_of(now, "ckpt", &b);
    size_t la, lb;
    x = line_of(x, a, "  resume:", 9, &la);
    y = line_of(y, b, "  resume:", 9, &lb);
    same = x && y && la == lb && !strncmp(x, y, la);
  }
  free(now);
  atoll_ckpt_meta_free(&own);
  ATOLL_TRY_ALL(s->mpi, err);
  MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, s->mpi);
  if (!same)
    dir[0] = '\0';
  else if (s->rank == 0)
    atoll_say("requeued: the run goes on from its own checkpoint instead of ckpt.resume=%s", s->job->ckpt.resume);
  return ATOLL_OK;
}

/* Checkpoints hold f32 masters whatever layers computed in, so either dtype goes on from both; a reader of the log
 * should know. Those of releases that knew f32 alone say nothing. */
static void tell_dtype(const session *s, const char *dir, const atoll_ckpt_meta *meta) {
  size_t n, length;
  const char *now = atoll_dtype_name((atoll_dtype)s->job->model.dtype), *then = "f32";
  const char *train = section_of(meta->config, "train", &n), *line = line_of(train, n, "  dtype:", 8, &length);
  if (line && length >= 4 && !strncmp(line + length - 4, "bf16", 4))
    then = "bf16";
  if (strcmp(now, then) != 0)
    atoll_say("checkpoint %s was trained in %s, the run goes on in %s from its f32 weights and moments", dir, then,
              now);
}

static atoll_err check_resumable(session *s, const char *dir, const atoll_ckpt_meta *meta) {
  if (strcmp(meta->model_digest, s->model_digest) != 0)
    return atoll_fail(ATOLL_MISMATCH,
                      "checkpoint %s is of another model (digest %s, this job's %s): change run.dir or the model", dir,
                      meta->model_digest, s->model_digest);
  if (meta->step == 0 && meta->tokens == 0) /* imported weights: seed and data are this job's own */
    return ATOLL_OK;
  if (meta->seed != (uint64_t)s->job->train.seed)
    return atoll_fail(ATOLL_MISMATCH, "checkpoint %s was trained with train.seed %llu, this job has %lld", dir,
                      (unsigned long long)meta->seed, (long long)s->job->train.seed);
  if (s->rank != 0)
    return ATOLL_OK;
  const atoll_train_params *t = &s->job->train;
  tell_dtype(s, dir, meta);
  if (strcmp(meta->data_digest, s->data_digest) != 0)
    atoll_warn("checkpoint %s was trained on other data; the run continues on data.train", dir);
  else if (meta->tokens != meta->step * t->global_batch * t->seq)
    atoll_warn("checkpoint %s has trained %lld tokens, %lld steps of train.global_batch %lld and train.seq %lld are "
               "%lld: the order of samples begins elsewhere, some of this epoch come again or not at all",
               dir, (long long)meta->tokens, (long long)meta->step, (long long)t->global_batch, (long long)t->seq,
               (long long)(meta->step * t->global_batch * t->seq));
  return ATOLL_OK;
}

static atoll_err find_checkpoint(session *s, char *dir, size_t n, atoll_ckpt_meta *meta) {
  const char *resume = s->job->ckpt.resume;
  phase(s, "find checkpoint");
  if (!strcmp(resume, "auto"))
    ATOLL_TRY(find_own(s, dir, n));
  else
    ATOLL_TRY(find_requeued(s, dir, n));
  if (!dir[0] && strcmp(resume, "auto") != 0 && strcmp(resume, "none") != 0) {
    if (snprintf(dir, n, "%s", resume) >= (int)n)
      return atoll_fail(ATOLL_USAGE, "ckpt.resume is too long a path: %s", resume);
    ATOLL_TRY_ALL(s->mpi, s->rank == 0 ? atoll_ckpt_verify(dir) : ATOLL_OK);
  }
  if (!dir[0])
    return ATOLL_OK;
  ATOLL_TRY_ALL(s->mpi, atoll_ckpt_read_meta(dir, meta));
  ATOLL_TRY_ALL(s->mpi, check_resumable(s, dir, meta));
  return ATOLL_OK;
}

static char *command_line(void) {
  char *text = NULL;
  size_t n = 0;
  if (atoll_file_read("/proc/self/cmdline", &text, &n) != ATOLL_OK) {
    atoll_err_clear();
    return strdup("");
  }
  for (size_t i = 0; i + 1 < n; i++)
    if (text[i] == '\0')
      text[i] = ' ';
  return text;
}

static atoll_err open_record(session *s, int64_t resume_step) {
  if (s->rank != 0 || s->bare)
    return ATOLL_OK;
  ATOLL_TRY(atoll_opts_yaml(s->opts, &s->options_yaml));
  size_t n = 0;
  FILE *f = open_memstream(&s->origins, &n);
  if (!f)
    return atoll_fail(ATOLL_NOMEM, "option origins");
  atoll_opts_print(s->opts, f);
  fclose(f);
  s->command = command_line();
  record_about about = {.options_yaml = s->options_yaml,
                        .options_origin = s->origins,
                        .command = s->command ? s->command : "",
                        .model_name = atoll_model_family_name(s->model),
                        .dtype = atoll_dtype_name(s->kernels->dtype),
                        .topo = s->topo,
                        .islands = s->islands,
                        .plan = s->plan,
                        .profile = s->profile,
                        .kernels = atoll_kernels_describe(s->kernels),
                        .mlp = s->mlp_choices,
                        .identity = s->identity,
                        .plan_digest = s->plan_digest,
                        .model_digest = s->model_digest,
                        .data_digest = s->data_digest,
                        .ranks = s->size};
  return record_open(s->run_dir, s->attempt, resume_step, &about, &s->record);
}

/* ---- what every rank must have read alike -------------------------------------------------------------------------
 */

/* Paths may differ from node to node, and so may what computes there; the data behind the paths is compared by digest.
 */
static int may_differ(const char *section, size_t n, const char *key, size_t k) {
  static const char *const local[] = {"run.dir",       "run.counters", "run.events",    "data.train", "data.validation",
                                      "train.threads", "train.device", "train.kernels", "topo.path"};
  for (size_t i = 0; i < sizeof local / sizeof *local; i++)
    if (strlen(local[i]) == n + 1 + k && !strncmp(local[i], section, n) && !strncmp(local[i] + n + 1, key, k))
      return 1;
  return 0;
}

/* Each rank reads the job file, its environment and its command line by itself. Ranks that disagree on the number of
 * steps or on a seed would meet in the wrong collectives, or train one model on two samples, so the first difference
 * from rank 0 ends the run. */
static atoll_err compare_options(const char *theirs, const char *mine) {
  const char *title = theirs;
  size_t title_bytes = 0, n = 0, length;
  for (const char *at = theirs; *at; at += strcspn(at, "\n"), at += *at == '\n') {
    size_t line = strcspn(at, "\n");
    const char *colon = memchr(at, ':', line);
    if (!colon)
      continue;
    if (*at != ' ') {
      title = at;
      title_bytes = (size_t)(colon - at);
      continue;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)title_bytes, title);
    const char *section = section_of(mine, name, &n);
    const char *other = line_of(section, n, at, (size_t)(colon - at) + 1, &length);
    if ((other && length == line && !strncmp(at, other, line)) ||
        may_differ(title, title_bytes, at + 2, (size_t)(colon - at) - 2))
      continue;
    return atoll_fail(ATOLL_MISMATCH, "%s.%.*s is here%.*s, on rank 0%.*s: every rank must be given the same job", name,
                      (int)(colon - at) - 2, at + 2, other ? (int)(length - (size_t)(colon + 1 - at)) : 8,
                      other ? other + (colon + 1 - at) : " unknown", (int)(at + line - colon - 1), colon + 1);
  }
  return ATOLL_OK;
}

static atoll_err agree_options(session *s) {
  char *mine = NULL;
  void *theirs = NULL;
  int64_t bytes = 0;
  ATOLL_TRY_ALL(s->mpi, atoll_opts_yaml(s->opts, &mine));
  atoll_err err = atoll_share_bytes(s->mpi, 0, mine, (int64_t)strlen(mine) + 1, &theirs, &bytes);
  if (err == ATOLL_OK)
    err = atoll_agree(s->mpi, compare_options(theirs, mine));
  free(mine);
  free(theirs);
  return err;
}

static atoll_err agree_data(session *s) {
  atoll_digest none = {0, 0};
  ATOLL_TRY(atoll_agree_digest(s->mpi, "training data (data.train)", atoll_data_digest(s->train)));
  return atoll_agree_digest(s->mpi, "held-out data (data.validation)",
                            s->validation ? atoll_data_digest(s->validation) : none);
}

static atoll_err open_perf(session *s) {
  static const char *const name[] = {
#define NAME(id, text) text,
      SESSION_REGIONS(NAME)
#undef NAME
  };
  atoll_perf_params p;
  atoll_perf_params_init(&p);
  p.counters = s->job->run.counters;
  p.events = s->job->run.events;
  ATOLL_TRY(atoll_perf_create(&p, &s->perf));
  for (int i = 0; i < SESSION_REGION_COUNT; i++)
    s->region[i] = atoll_perf_region(s->perf, name[i]);
  return s->job->run.trace ? atoll_perf_trace(s->perf, 1, 1 << 20) : ATOLL_OK;
}

static atoll_err prepare(session *s) {
  ATOLL_TRY_ALL(s->mpi, open_perf(s));
  atoll_perf_begin(s->perf, s->region[REGION_SETUP]);
  if (!s->bare) {
    phase(s, "options");
    ATOLL_TRY(agree_options(s));
    phase(s, "run directory");
    ATOLL_TRY(open_run_dir(s));
  }
  phase(s, "inputs");
  ATOLL_TRY_ALL(s->mpi, open_inputs(s));
  ATOLL_TRY(agree_data(s));
  ATOLL_TRY(find_devices(s));
  char dir[sizeof s->saved_dir];
  atoll_ckpt_meta meta = {0};
  atoll_err err;
  dir[0] = '\0';
  if (!s->bare)
    ATOLL_TRY_GOTO(err, done, find_checkpoint(s, dir, sizeof dir, &meta));
  ATOLL_TRY_GOTO(err, done, settle_plan(s, dir[0] ? &meta : NULL));
  phase(s, "stage");
  ATOLL_TRY_GOTO(err, done, make_group(s));
  ATOLL_TRY_GOTO(err, done, atoll_agree(s->mpi, make_stage(s)));
  ATOLL_TRY_GOTO(err, done, tell_mlp_choices(s));
  ATOLL_TRY_GOTO(err, done, team_create(s->world, s->plan, s->model, s->stage, &s->exec, &s->team));
  s->team_made = 1;
  ATOLL_TRY_GOTO(err, done, atoll_agree(s->mpi, make_flow(s)));
  if (dir[0]) {
    phase(s, "restore");
    ATOLL_TRY_GOTO(err, done, session_restore(s, dir));
    if (s->rank == 0)
      atoll_say("resumed %s : step %lld", dir, (long long)s->step);
  }
  ATOLL_TRY_GOTO(err, done, atoll_agree(s->mpi, open_record(s, s->step)));
  atoll_perf_end(s->perf, s->region[REGION_SETUP]);
done:
  atoll_ckpt_meta_free(&meta);
  return err;
}

atoll_err session_open(MPI_Comm comm, atoll_job *job, const atoll_opts *opts, int bare, session *s) {
  memset(s, 0, sizeof *s);
  s->bare = bare;
  s->job = job;
  s->opts = opts;
  s->mpi = comm;
  s->saved_step = -1;
  s->finite = 1;
  s->best_validation = s->validation_loss = s->last_loss = NAN;
  s->my_device = -1;
  s->place.stage = -1;
  MPI_Comm_rank(comm, &s->rank);
  MPI_Comm_size(comm, &s->size);
  s->saved_at = atoll_clock_now();
  atoll_watch_params w;
  atoll_watch_params_init(&w);
  w.silence_seconds = job->run.silence;
  w.phase_seconds = job->run.phase_limit;
  ATOLL_TRY_ALL(comm, atoll_watch_start(comm, &w, &s->watch));
  atoll_watch_begin(s->watch, "start", 0);
  atoll_err err = atoll_comm_create(comm, "world", s->watch, &s->world);
  /* Small agreements travel on a queue of their own, which needs no particular device. */
  if (err == ATOLL_OK) {
    atoll_device_params host;
    atoll_device_params_init(&host);
    err = atoll_device_open("cpu", &host, &s->host);
  }
  if (err == ATOLL_OK)
    err = atoll_queue_create(s->host, "comm", &s->out);
  err = atoll_agree(comm, err);
  if (err == ATOLL_OK)
    err = prepare(s);
  atoll_watch_end(s->watch);
  return err;
}

void session_close(session *s) {
  record_close(&s->record);
  flow_destroy(&s->flow);
  if (s->team_made)
    team_destroy(&s->team, &s->exec);
  atoll_stage_destroy(&s->stage);
  atoll_plan_destroy(&s->plan);
  atoll_profile_destroy(&s->profile);
  atoll_islands_destroy(&s->islands);
  atoll_topo_destroy(&s->topo);
  atoll_data_close(&s->train);
  atoll_data_close(&s->validation);
  atoll_model_destroy(&s->model);
  atoll_queue_destroy(&s->compute);
  atoll_queue_destroy(&s->messages);
  atoll_queue_destroy(&s->out);
  atoll_device_close(&s->device);
  atoll_device_close(&s->host);
  if (s->mem)
    atoll_mem_destroy(&s->mem, NULL);
  atoll_perf_destroy(&s->perf);
  free(s->by_param);
  free(s->shared);
  free(s->options_yaml);
  free(s->origins);
  free(s->mlp_choices);
  free(s->command);
  free(s->forward.v);
  free(s->backward.v);
  free(s->update.v);
  free(s->wait.v);
  atoll_comm_destroy(&s->tensor);
  atoll_comm_destroy(&s->world);
  atoll_rundir_close(&s->dir);
  atoll_watch_stop(&s->watch);
}

/* Learners: what stays between runs of the program. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/digest.h"
#include "atoll/rng.h"
#include "rl_impl.h"

enum { STREAM_LEARN, STREAM_EVALUATE };

struct atoll_rl {
  atoll_comm *comm;
  int rank, ranks;
  atoll_rl_params params;
  const atoll_rl_env *env;
  rl_actor actor;
  rl_memory memory;
  rl_rows rows;
  rl_account *account;
  float *running; /* of the actor, as the run begins */
  int64_t room;   /* rows */
  rl_run run;
  int64_t iteration;
  atoll_rec *context;
  atoll_rec_program *program;
  atoll_tensor tensor[RL_KINDS * RL_PARAMS + 2];
  int tensors;
};

#define RL(field) offsetof(atoll_rl_params, field)
static const atoll_opt_def defs[] = {
    {"algorithm", ATOLL_OPT_ENUM, RL(algorithm), "reinforce", "reinforce|ppo", "", "How the policy learns."},
    {"environment", ATOLL_OPT_STRING, RL(environment), "cartpole", NULL, "",
     "cartpole, grid, free, or the path of a shared object (with a slash)."},
    {"observation", ATOLL_OPT_INT, RL(observation), "4", "1..1048576", "numbers", "Size of an observation of free."},
    {"environments", ATOLL_OPT_INT, RL(environments), "32", "1..1048576", "",
     "Environments side by side, over all ranks."},
    {"group", ATOLL_OPT_INT, RL(group), "0", "0..1048576", "",
     "Environments of a rank that act and are learnt from together; 0 = as many as the caches have room for."},
    {"steps", ATOLL_OPT_INT, RL(steps), "500", "1..1048576", "steps", "Steps of an iteration in each environment."},
    {"n", ATOLL_OPT_INT, RL(n), "0", "0..1048576", "steps",
     "reinforce: steps of a return; 0 = to the end (Monte-Carlo)."},
    {"iterations", ATOLL_OPT_INT, RL(iterations), "100", "0..1000000000", "", "Iterations in all, over every attempt."},
    {"hidden", ATOLL_OPT_INT, RL(hidden), "64", "1..65536", "units", "Units of each of the two hidden layers."},
    {"epochs", ATOLL_OPT_INT, RL(epochs), "4", "1..1024", "", "ppo: updates of an iteration."},
    {"seed", ATOLL_OPT_INT, RL(seed), "1", "0..", "", "Of initial weights, actions and environments."},
    {"learning_rate", ATOLL_OPT_REAL, RL(learning_rate), "1e-3", "0..", "", "Step of Adam."},
    {"gamma", ATOLL_OPT_REAL, RL(gamma), "0.99", "0..1", "", "Discount of a step."},
    {"lambda", ATOLL_OPT_REAL, RL(lambda), "0.95", "0..1", "", "ppo: decay of generalised advantages."},
    {"clip", ATOLL_OPT_REAL, RL(clip), "0.2", "0..1", "", "ppo: how far a ratio of probabilities may lie from 1."},
    {"entropy", ATOLL_OPT_REAL, RL(entropy), "0.01", "0..", "", "ppo: weight of the policy's entropy."},
    {"normalize", ATOLL_OPT_BOOL, RL(normalize), "true", NULL, "",
     "ppo: advantages less their mean, over their standard deviation."},
    {"value", ATOLL_OPT_REAL, RL(value), "0.5", "0..", "",
     "ppo: weight of the squared error of values, as shares of 1 / (1 - gamma)."},
    {"restart", ATOLL_OPT_BOOL, RL(restart), "false", NULL, "",
     "Iterations begin with new episodes; otherwise they go on where the one before stopped."},
    {"baseline", ATOLL_OPT_BOOL, RL(baseline), "true", NULL, "",
     "reinforce: returns less their mean over all environments."},
    {"evaluate", ATOLL_OPT_INT, RL(evaluate), "100", "0..1048576", "episodes",
     "Episodes of an evaluation, with the likeliest actions; 0 = none."},
    {"evaluate_every", ATOLL_OPT_INT, RL(evaluate_every), "0", "0..", "iterations",
     "Iterations between evaluations; 0 = only at the end."},
    {"chunk", ATOLL_OPT_INT, RL(chunk), "10", "1..1000000", "iterations", "Iterations between looks at signals."},
    {"memory", ATOLL_OPT_BYTES, RL(memory), "0", "0..", "bytes",
     "Values of a rank take no more than this while it learns; 0 = no limit."},
    {"offload", ATOLL_OPT_STRING, RL(offload), "", NULL, "",
     "Folder of a file for values that rl.memory has no room for, from one use to the next."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL},
};
const atoll_opt_table atoll_rl_options = {"rl", defs};

void atoll_rl_params_init(atoll_rl_params *p) { (void)atoll_opt_defaults(&atoll_rl_options, p); }

atoll_err atoll_rl_params_check(const atoll_rl_params *p, int ranks) {
  if (p->environments % ranks)
    return atoll_fail(ATOLL_USAGE, "rl.environments %lld is not a multiple of the %d ranks", (long long)p->environments,
                      ranks);
  if (p->group && p->environments / ranks % p->group)
    return atoll_fail(ATOLL_USAGE, "the %lld environments of a rank are not a multiple of rl.group %lld",
                      (long long)(p->environments / ranks), (long long)p->group);
  if (p->offload[0] && !p->memory)
    return atoll_fail(ATOLL_USAGE, "rl.offload is given, but no rl.memory for which values would be put away");
  if (p->n > p->steps)
    return atoll_fail(ATOLL_USAGE, "rl.n %lld is beyond rl.steps %lld", (long long)p->n, (long long)p->steps);
  if (p->algorithm == ATOLL_RL_REINFORCE && p->baseline && p->environments == 1)
    return atoll_fail(ATOLL_USAGE,
                      "rl.baseline with rl.environments 1: returns less their own mean leave nothing to learn from");
  if (p->algorithm == ATOLL_RL_PPO && p->normalize && p->environments * p->steps == 1)
    return atoll_fail(ATOLL_USAGE, "rl.normalize with one step of one environment: its advantage less its own mean "
                                   "leaves nothing to learn from");
  return ATOLL_OK;
}

/* ---- memory ---- */

static int64_t count_of(const rl_memory *m, int k) { return m->shape[k][0] * m->shape[k][1]; }

static atoll_err allocate(atoll_rl *rl) {
  rl_memory *m = &rl->memory;
  int64_t states = rl->actor.n * rl->env->state;
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++) {
      m->value[kind][k] = calloc((size_t)count_of(m, k), sizeof(float));
      m->after[kind][k] = calloc((size_t)count_of(m, k), sizeof(float));
      if (!m->value[kind][k] || !m->after[kind][k])
        return atoll_fail(ATOLL_NOMEM, "%lld parameters", (long long)count_of(m, k));
    }
  m->state = calloc((size_t)states, sizeof *m->state);
  m->state_after = calloc((size_t)states, sizeof *m->state_after);
  rl->running = calloc((size_t)rl->actor.n * 2, sizeof *rl->running);
  return m->state && m->state_after && rl->running
             ? ATOLL_OK
             : atoll_fail(ATOLL_NOMEM, "states of %lld numbers", (long long)states);
}

/* Weights are normal with variance 1 / inputs, biases zero. PPO's values of states are 0 to begin with: they are in
 * units of a return of one each step, and where rewards are rare, random ones would be so much larger than returns that
 * for many iterations the policy would learn from them alone. */
static void initialize(atoll_rl *rl) {
  const rl_memory *m = &rl->memory;
  const int last = RL_PARAMS - 2;
  const int64_t width = m->shape[last][1];
  for (int k = 0; k < RL_PARAMS; k += 2) {
    const atoll_rng_key key = {.seed = (uint64_t)rl->params.seed, .sample = (uint64_t)k, .site = ATOLL_RNG_INIT};
    float deviation = 1 / sqrtf((float)m->shape[k][0]);
    atoll_rng_fill_normal(&key, 0, (size_t)count_of(m, k), deviation, m->value[0][k]);
  }
  for (int64_t j = rl->env->actions; j < width; j++)
    for (int64_t i = 0; i < m->shape[last][0]; i++)
      m->value[0][last][i * width + j] = 0;
}

/* A block of rows of all ranks' [rows, width]. */
static atoll_err add_block(atoll_rl *rl, const char *name, int64_t width, float *data) {
  atoll_tensor *t = &rl->tensor[rl->tensors++];
  const int64_t shape[2] = {rl->params.environments, width};
  ATOLL_TRY(atoll_tensor_init(t, name, ATOLL_F32, 2, shape, data));
  t->start[0] = rl->actor.first;
  t->local[0] = rl->actor.n;
  return ATOLL_OK;
}

static atoll_err list_tensors(atoll_rl *rl) {
  static const char *const prefix[RL_KINDS] = {"param", "moment1", "moment2"};
  rl_memory *m = &rl->memory;
  char name[64];
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++) {
      (void)snprintf(name, sizeof name, "%s/layer%d.%s", prefix[kind], k / 2, k % 2 ? "bias" : "weight");
      ATOLL_TRY(
          atoll_tensor_init(&rl->tensor[rl->tensors++], name, ATOLL_F32, m->axes[k], m->shape[k], m->value[kind][k]));
    }
  ATOLL_TRY(add_block(rl, "environment/state", rl->env->state, m->state));
  return add_block(rl, "environment/running", 2, rl->actor.running);
}

/* ---- life ---- */

static atoll_err first_states(atoll_rl *rl) {
  const rl_actor *a = &rl->actor;
  const int64_t shape[2] = {a->group, rl->env->state};
  for (int64_t b = 0; b < a->n / a->group; b++) {
    const int64_t point[2] = {0, b};
    const atoll_rt_view out = {ATOLL_F32, 2, shape, rl->memory.state + b * shape[0] * shape[1]};
    ATOLL_TRY(rl_start(&rl->actor, point, NULL, &out));
  }
  return ATOLL_OK;
}

static atoll_err compile(atoll_rl *rl, FILE *trace) {
  atoll_rec_params p;
  atoll_rec_params_init(&p);
  p.trace = trace;
  p.memory = rl->params.memory;
  p.offload = rl->params.offload[0] ? rl->params.offload : NULL;
  ATOLL_TRY(atoll_rec_create((uint64_t)rl->params.seed, &rl->context));
  ATOLL_TRY(rl_program_learn(&rl->run, rl->context));
  return atoll_rec_compile(rl->context, &p, &rl->program);
}

static atoll_err setup(atoll_rl *rl, FILE *trace) {
  const int64_t mine = rl->params.environments / rl->ranks;
  ATOLL_TRY(atoll_rl_params_check(&rl->params, rl->ranks));
  ATOLL_TRY(
      rl_actor_create(rl->env, rl->params.seed, STREAM_LEARN, rl->rank * mine, mine, rl->params.group, &rl->actor));
  rl->actor.awaited = rl->ranks > 1;
  rl_memory_shapes(&rl->params, rl->env, &rl->memory);
  ATOLL_TRY(allocate(rl));
  initialize(rl);
  ATOLL_TRY(first_states(rl));
  ATOLL_TRY(list_tensors(rl));
  rl->room = rl->params.chunk;
  rl->rows.loss = calloc((size_t)rl->room, sizeof(double));
  rl->rows.norm2 = calloc((size_t)rl->room, sizeof(double));
  rl->account = calloc((size_t)rl->room, sizeof *rl->account);
  if (!rl->rows.loss || !rl->rows.norm2 || !rl->account)
    return atoll_fail(ATOLL_NOMEM, "rows of %lld iterations", (long long)rl->room);
  rl->actor.account = rl->account;
  rl->run = (rl_run){&rl->params, rl->env, rl->comm, &rl->actor, &rl->memory, &rl->rows};
  return compile(rl, trace);
}

atoll_err atoll_rl_create(MPI_Comm comm, const atoll_rl_env *env, const atoll_rl_params *params, FILE *trace,
                          atoll_rl **out) {
  atoll_rl *rl = calloc(1, sizeof *rl);
  atoll_err err = rl ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "learner");
  if (rl) {
    rl->params = *params;
    rl->env = env;
  }
  ATOLL_TRY_GOTO(err, clean, atoll_agree(comm, err));
  ATOLL_TRY_GOTO(err, clean, atoll_comm_create(comm, "learners", NULL, &rl->comm));
  rl->rank = atoll_comm_rank(rl->comm);
  rl->ranks = atoll_comm_size(rl->comm);
  err = atoll_agree(comm, setup(rl, trace));
clean:
  if (err == ATOLL_OK)
    *out = rl;
  else
    atoll_rl_destroy(&rl);
  return err;
}

void atoll_rl_destroy(atoll_rl **address) {
  atoll_rl *rl = *address;
  if (!rl)
    return;
  atoll_rec_program_destroy(&rl->program);
  atoll_rec_destroy(&rl->context);
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++) {
      free(rl->memory.value[kind][k]);
      free(rl->memory.after[kind][k]);
    }
  free(rl->memory.state);
  free(rl->memory.state_after);
  free(rl->running);
  free(rl->rows.loss);
  free(rl->rows.norm2);
  free(rl->account);
  rl_actor_free(&rl->actor);
  atoll_comm_destroy(&rl->comm);
  free(rl);
  *address = NULL;
}

const atoll_tensor *atoll_rl_tensors(const atoll_rl *rl, int *n) {
  *n = rl->tensors;
  return rl->tensor;
}

int64_t atoll_rl_iteration(const atoll_rl *rl) { return rl->iteration; }
void atoll_rl_set_iteration(atoll_rl *rl, int64_t iteration) { rl->iteration = iteration; }

atoll_err atoll_rl_peak_bytes(const atoll_rl *rl, int64_t *bytes) {
  atoll_rec_binding b[RL_BINDINGS];
  int n = rl_bindings(&rl->memory, 1, 2, 0, b);
  return atoll_rec_peak_bytes(rl->program, b, n, bytes);
}

/* ---- learning ---- */

static void keep(atoll_rl *rl) {
  rl_memory *m = &rl->memory;
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++)
      memcpy(m->value[kind][k], m->after[kind][k], (size_t)count_of(m, k) * sizeof(float));
  if (!rl->params.restart)
    memcpy(m->state, m->state_after, (size_t)(rl->actor.n * rl->env->state) * sizeof(float));
}

/* Sums of all ranks; losses and norms are the same on all. */
static atoll_err tell(atoll_rl *rl, int64_t k, atoll_rl_report *report) {
  enum { SUMS = sizeof(rl_account) / sizeof(double) };
  const double steps = (double)rl->params.steps * (double)rl->params.environments;
  if (MPI_Allreduce(MPI_IN_PLACE, rl->account, (int)k * SUMS, MPI_DOUBLE, MPI_SUM, atoll_comm_mpi(rl->comm)) !=
      MPI_SUCCESS)
    return atoll_fail(ATOLL_INTERNAL, "MPI_Allreduce of %lld accounts", (long long)k);
  for (int64_t i = 0; report && i < k; i++) {
    const rl_account *a = &rl->account[i];
    report[i] = (atoll_rl_report){.iteration = rl->iteration + i + 1,
                                  .episodes = (int64_t)a->episodes,
                                  .mean_return = a->episodes > 0 ? a->returns / a->episodes : NAN,
                                  .mean_length = a->episodes > 0 ? a->lengths / a->episodes : NAN,
                                  .reward = a->reward / steps,
                                  .loss = rl->rows.loss[i],
                                  .gradient_norm = sqrt(rl->rows.norm2[i])};
  }
  return ATOLL_OK;
}

/* What environments have done wrong on any rank has brought all of them here, and so has a sum that is not finite.
 * Whatever else failed did so on this rank, and others may still be in their run. */
static atoll_err agree_on(const atoll_rl *rl, atoll_err err) {
  const MPI_Comm comm = atoll_comm_mpi(rl->comm);
  const rl_actor *a = &rl->actor;
  char why[sizeof a->why];
  if (err != ATOLL_OK && err != ATOLL_NONFINITE)
    return err;
  (void)snprintf(why, sizeof why, "%s", err == ATOLL_OK ? "" : atoll_err_message());
  ATOLL_TRY_ALL(comm, a->failed == ATOLL_OK ? ATOLL_OK : atoll_fail(a->failed, "%s", a->why));
  return atoll_agree(comm, err == ATOLL_OK ? ATOLL_OK : atoll_fail(err, "%s", why));
}

/* Elements of what a run leaves that are other numbers on this rank than on rank 0, whose numbers they become. Whether
 * they were more than rounding: *parted, and an error that names the first. */
static atoll_err take_those_of_rank_0(const atoll_rl *rl, int kind, int k, float *theirs, int *parted) {
  float *mine = rl->memory.after[kind][k];
  const int64_t n = count_of(&rl->memory, k);
  if (rl->rank == 0)
    memcpy(theirs, mine, (size_t)n * sizeof *theirs);
  if (MPI_Bcast(theirs, (int)n, MPI_FLOAT, 0, atoll_comm_mpi(rl->comm)) != MPI_SUCCESS)
    return atoll_fail(ATOLL_INTERNAL, "MPI_Bcast of %lld parameters", (long long)n);
  atoll_err err = ATOLL_OK;
  for (int64_t i = 0; i < n && !*parted; i++)
    if (!(fabsf(mine[i] - theirs[i]) <= 1e-3f * (1 + fabsf(theirs[i])))) {
      *parted = 1;
      err = atoll_fail(ATOLL_MISMATCH, "parameters have parted before iteration %lld: %s has %g where rank 0 has %g",
                       (long long)rl->iteration, rl->tensor[kind * RL_PARAMS + k].name, (double)mine[i],
                       (double)theirs[i]);
    }
  memcpy(mine, theirs, (size_t)n * sizeof *mine);
  return err;
}

static atoll_err digest_of_parameters(const atoll_rl *rl, atoll_digest *out) {
  atoll_digester *d = NULL;
  ATOLL_TRY(atoll_digester_create(&d));
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++)
      atoll_digester_add(d, rl->memory.after[kind][k], (size_t)count_of(&rl->memory, k) * sizeof(float));
  *out = atoll_digester_value(d);
  atoll_digester_destroy(&d);
  return ATOLL_OK;
}

/* Ranks move the same parameters by the same sums, so that these are the same on all, whose checkpoints are rank 0's.
 * Unlike processors may round otherwise: before that adds up over runs, all take the numbers of rank 0. What is more
 * than rounding is a MISMATCH. */
static atoll_err share_parameters(const atoll_rl *rl) {
  const MPI_Comm comm = atoll_comm_mpi(rl->comm);
  atoll_digest mine = {0, 0}, theirs;
  int differs, parted = 0;
  int64_t most = 0;
  if (rl->ranks == 1)
    return ATOLL_OK;
  ATOLL_TRY_ALL(comm, digest_of_parameters(rl, &mine));
  theirs = mine;
  MPI_Bcast(&theirs, (int)sizeof theirs, MPI_BYTE, 0, comm);
  differs = !atoll_digest_equal(mine, theirs);
  MPI_Allreduce(MPI_IN_PLACE, &differs, 1, MPI_INT, MPI_MAX, comm);
  if (!differs)
    return ATOLL_OK;
  for (int k = 0; k < RL_PARAMS; k++)
    most = count_of(&rl->memory, k) > most ? count_of(&rl->memory, k) : most;
  float *room = malloc((size_t)most * sizeof *room);
  ATOLL_TRY_ALL(comm, room ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%lld parameters", (long long)most));
  atoll_err err = ATOLL_OK;
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++) {
      atoll_err now = take_those_of_rank_0(rl, kind, k, room, &parted);
      err = err == ATOLL_OK ? now : err;
    }
  free(room);
  return atoll_agree(comm, err);
}

static atoll_err learn_chunk(atoll_rl *rl, int64_t k, atoll_rl_report *report) {
  atoll_rec_binding b[RL_BINDINGS];
  const size_t running = (size_t)rl->actor.n * 2 * sizeof *rl->running;
  int n = rl_bindings(&rl->memory, 1, k, rl->iteration, b);
  memset(rl->account, 0, (size_t)k * sizeof *rl->account);
  memcpy(rl->running, rl->actor.running, running);
  rl->actor.iteration = rl->iteration;
  rl->actor.failed = ATOLL_OK;
  atoll_err err = agree_on(rl, atoll_rec_run(rl->program, b, n));
  if (err == ATOLL_OK)
    err = share_parameters(rl);
  if (err == ATOLL_OK)
    err = tell(rl, k, report);
  if (err != ATOLL_OK) {
    memcpy(rl->actor.running, rl->running, running);
    return err;
  }
  keep(rl);
  rl->iteration += k;
  return ATOLL_OK;
}

atoll_err atoll_rl_learn(atoll_rl *rl, int64_t k, atoll_rl_report *report) {
  for (int64_t done = 0; done < k;) {
    int64_t now = k - done < rl->room ? k - done : rl->room;
    ATOLL_TRY(learn_chunk(rl, now, report ? report + done : NULL));
    done += now;
  }
  return ATOLL_OK;
}

atoll_err atoll_rl_leave_alone(const atoll_rl *rl, atoll_watch *watch, atoll_err err) {
  if (err == ATOLL_OK || err == ATOLL_NONFINITE || err == ATOLL_MISMATCH || err == ATOLL_UNAVAILABLE || rl->ranks == 1)
    return err;
  atoll_abort(watch, err);
}

/* ---- evaluation ---- */

static atoll_err play(atoll_rl *rl, rl_actor *actor, int64_t steps) {
  atoll_rec *c = NULL;
  atoll_rec_program *program = NULL;
  atoll_rec_binding b[RL_BINDINGS];
  rl_run run = rl->run;
  run.actor = actor;
  int n = rl_bindings(&rl->memory, 0, 0, 0, b);
  atoll_err err = atoll_rec_create((uint64_t)rl->params.seed, &c);
  if (err == ATOLL_OK)
    err = rl_program_evaluate(&run, c, steps);
  if (err == ATOLL_OK)
    err = atoll_rec_compile(c, NULL, &program);
  if (err == ATOLL_OK)
    err = atoll_rec_run(program, b, n);
  atoll_rec_program_destroy(&program);
  atoll_rec_destroy(&c);
  return err;
}

/* Sum of returns of this rank's part of the episodes. */
static atoll_err evaluate_part(atoll_rl *rl, int64_t first, int64_t n, double *sum) {
  const int64_t steps = rl->env->limit ? rl->env->limit : rl->params.steps;
  rl_actor actor;
  atoll_err err = rl_actor_create(rl->env, rl->params.seed, STREAM_EVALUATE, first, n, 0, &actor);
  actor.iteration = rl->iteration;
  actor.finished = malloc((size_t)n * sizeof *actor.finished);
  if (err == ATOLL_OK && !actor.finished)
    err = atoll_fail(ATOLL_NOMEM, "%lld episodes", (long long)n);
  for (int64_t k = 0; err == ATOLL_OK && k < n; k++)
    actor.finished[k] = NAN;
  if (err == ATOLL_OK)
    err = play(rl, &actor, steps);
  for (int64_t k = 0; err == ATOLL_OK && k < n; k++)
    *sum += isnan(actor.finished[k]) ? actor.running[2 * k] : actor.finished[k];
  rl_actor_free(&actor);
  return err;
}

atoll_err atoll_rl_evaluate(atoll_rl *rl, int64_t episodes, double *mean_return) {
  const int64_t first = episodes * rl->rank / rl->ranks, last = episodes * (rl->rank + 1) / rl->ranks;
  double sum = 0;
  ATOLL_TRY_ALL(atoll_comm_mpi(rl->comm), last > first ? evaluate_part(rl, first, last - first, &sum) : ATOLL_OK);
  if (MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, atoll_comm_mpi(rl->comm)) != MPI_SUCCESS)
    return atoll_fail(ATOLL_INTERNAL, "MPI_Allreduce of returns");
  *mean_return = sum / (double)episodes;
  return ATOLL_OK;
}

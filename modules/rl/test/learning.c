/* Learners do what is written in their formulas, whatever runs them: several iterations, and epochs of each, against
 * loops by hand; a run that is resumed against one that is not. */
#include <math.h>

#include "atoll/agree.h"
#include "atoll/rl.h"
#include "unit_check.h"

/* ---- an environment that remembers what was done in it: states (x, y, age, which), episodes of five steps ---- */

enum { B = 4, T = 12, S = 4, O = 2, A = 2, H = 5, EPISODE = 5, ROLLOUTS = 2 };

typedef struct rollout {
  float state[T][B][S], reward[T][B], end[T][B], last[B][S];
  int32_t action[T][B];
} rollout;

static struct {
  int steps[B];         /* of each environment */
  int most;             /* environments of a call */
  rollout of[ROLLOUTS]; /* the first ones */
} seen;

static int remember_start(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state) {
  (void)self;
  for (int64_t b = 0; b < n; b++) {
    state[b * S] = noise[b * S] - 0.5f;
    state[b * S + 1] = noise[b * S + 1] - 0.5f;
    state[b * S + 2] = 0;
    state[b * S + 3] = (float)(first + b);
  }
  return 0;
}

static int remember_step(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action,
                         float *result) {
  static rollout beyond;
  (void)self;
  seen.most = n > seen.most ? (int)n : seen.most;
  for (int64_t k = 0; k < n; k++) {
    const float *s = state + k * S;
    float *r = result + k * (S + 2);
    const int b = (int)s[3], step = seen.steps[b]++, t = step % T;
    rollout *at = step < ROLLOUTS * T ? &seen.of[step / T] : &beyond;
    r[0] = 0.8f * s[0] + (action[k] ? 0.3f : -0.2f);
    r[1] = 0.5f * s[1] - 0.4f * s[0];
    r[2] = s[2] + 1;
    r[3] = s[3];
    r[4] = r[0] - r[1];
    r[5] = r[2] >= EPISODE;
    memcpy(at->state[t][b], s, sizeof at->state[t][b]);
    at->action[t][b] = action[k];
    at->reward[t][b] = r[4];
    at->end[t][b] = r[5];
    memcpy(at->last[b], r, sizeof at->last[b]);
  }
  return 0;
}

static const atoll_rl_env remembering = {.version = ATOLL_RL_ENV_VERSION,
                                         .name = "remembering",
                                         .state = S,
                                         .observation = O,
                                         .actions = A,
                                         .limit = EPISODE,
                                         .start = remember_start,
                                         .step = remember_step};

static atoll_rl_params small(int algorithm, int64_t group) {
  atoll_rl_params p;
  atoll_rl_params_init(&p);
  p.algorithm = algorithm;
  p.environments = B;
  p.group = group;
  p.steps = T;
  p.hidden = H;
  p.epochs = 3;
  p.chunk = 2;
  p.seed = 5;
  p.learning_rate = 0.03; /* so that epochs leave the range in which ratios count */
  return p;
}

static atoll_rl *learner(const atoll_rl_params *p) {
  atoll_rl *rl = NULL;
  assert_ok(atoll_rl_create(MPI_COMM_WORLD, &remembering, p, NULL, &rl));
  return rl;
}

/* All values of a learner, one behind the other: parameters, their two moments, environments. */
enum { MOST = 4096 };

static int values(const atoll_rl *rl, float v[MOST]) {
  int n, at = 0;
  const atoll_tensor *t = atoll_rl_tensors(rl, &n);
  for (int k = 0; k < n; k++) {
    int count = (int)atoll_tensor_local_count(&t[k]);
    assert_true(at + count <= MOST);
    memcpy(v + at, t[k].data, (size_t)count * sizeof *v);
    at += count;
  }
  return at;
}

static void restore(atoll_rl *rl, const float v[MOST], int64_t iteration) {
  int n, at = 0;
  const atoll_tensor *t = atoll_rl_tensors(rl, &n);
  for (int k = 0; k < n; k++) {
    int count = (int)atoll_tensor_local_count(&t[k]);
    memcpy(t[k].data, v + at, (size_t)count * sizeof *v);
    at += count;
  }
  atoll_rl_set_iteration(rl, iteration);
}

/* ---- the formulas, by hand: losses as loops over steps, their gradients by differences ---- */

static const double *layer(const double *w, const double *x, int in, int out, int squash, double *y) {
  for (int j = 0; j < out; j++) {
    y[j] = w[in * out + j];
    for (int i = 0; i < in; i++)
      y[j] += x[i] * w[i * out + j];
    y[j] = squash ? tanh(y[j]) : y[j];
  }
  return w + in * out + out;
}

static int outputs_of(const atoll_rl_params *p) { return A + (p->algorithm == ATOLL_RL_PPO); }

static int parameters_of(const atoll_rl_params *p) { return O * H + H + H * H + H + (H + 1) * outputs_of(p); }

/* Outputs of the network for an observation; the value of a state is in units of 1 / (1 - gamma), at most T. */
static void network(const double *w, const atoll_rl_params *p, const float *observation, double y[A + 1]) {
  const double x[O] = {observation[0], observation[1]};
  double h1[H], h2[H];
  w = layer(w, x, O, H, 1, h1);
  w = layer(w, h1, H, H, 1, h2);
  (void)layer(w, h2, H, outputs_of(p), 0, y);
}

static double unit_of_values(const atoll_rl_params *p) { return fmin(1 / (1 - p->gamma), T); }

static double log_probability(const double *y, int action) { return y[action] - log(exp(y[0]) + exp(y[1])); }

/* What an iteration learns from: made with the parameters that acted. */
typedef struct lesson {
  const rollout *r;
  double advantage[T][B], target[T][B], before[T][B];
  int clipped;
} lesson;

/* n 0: to the end */
static double return_of(const rollout *r, int t, int b, int n, double gamma) {
  double g = 0, factor = 1;
  for (int k = t; k < T && (n == 0 || k < t + n); k++) {
    g += factor * r->reward[k][b];
    factor *= gamma;
    if (r->end[k][b] != 0)
      break;
  }
  return g;
}

static void reinforce_lesson(const atoll_rl_params *p, lesson *l) {
  for (int t = 0; t < T; t++) {
    double mean = 0;
    for (int b = 0; b < B; b++)
      mean += return_of(l->r, t, b, (int)p->n, p->gamma) / B;
    for (int b = 0; b < B; b++)
      l->advantage[t][b] = return_of(l->r, t, b, (int)p->n, p->gamma) - (p->baseline ? mean : 0);
  }
}

static void normalize(lesson *l) {
  double mean = 0, square = 0;
  for (int k = 0; k < T * B; k++)
    mean += l->advantage[k / B][k % B] / (T * B);
  for (int k = 0; k < T * B; k++)
    square += pow(l->advantage[k / B][k % B] - mean, 2) / (T * B);
  for (int k = 0; k < T * B; k++)
    l->advantage[k / B][k % B] = (l->advantage[k / B][k % B] - mean) / sqrt(square);
}

static void ppo_lesson(const double *w, const atoll_rl_params *p, lesson *l) {
  const rollout *r = l->r;
  const double unit = unit_of_values(p);
  double y[A + 1], following[A + 1];
  for (int b = 0; b < B; b++) {
    double advantage = 0;
    for (int t = T - 1; t >= 0; t--) {
      const double going = r->end[t][b] == 0;
      network(w, p, r->state[t][b], y);
      network(w, p, t == T - 1 ? r->last[b] : r->state[t + 1][b], following);
      double delta = r->reward[t][b] + unit * (p->gamma * going * following[A] - y[A]);
      advantage = delta + p->gamma * p->lambda * going * advantage;
      l->advantage[t][b] = advantage;
      l->target[t][b] = advantage / unit + y[A];
      l->before[t][b] = log_probability(y, r->action[t][b]);
    }
  }
  if (p->normalize)
    normalize(l);
}

static double reinforce_loss(const double *w, const atoll_rl_params *p, lesson *l) {
  double loss = 0, y[A + 1];
  for (int t = 0; t < T; t++)
    for (int b = 0; b < B; b++) {
      network(w, p, l->r->state[t][b], y);
      loss -= log_probability(y, l->r->action[t][b]) * l->advantage[t][b] / (B * T);
    }
  return loss;
}

static double ppo_loss(const double *w, const atoll_rl_params *p, lesson *l) {
  double loss = 0, y[A + 1];
  for (int t = 0; t < T; t++)
    for (int b = 0; b < B; b++) {
      network(w, p, l->r->state[t][b], y);
      double ratio = exp(log_probability(y, l->r->action[t][b]) - l->before[t][b]), a = l->advantage[t][b];
      double gain = fmin(ratio * a, fmin(fmax(ratio, 1 - p->clip), 1 + p->clip) * a), entropy = 0;
      l->clipped += gain != ratio * a;
      for (int k = 0; k < A; k++)
        entropy -= exp(log_probability(y, k)) * log_probability(y, k);
      loss += (p->value * pow(y[A] - l->target[t][b], 2) - gain - p->entropy * entropy) / (B * T);
    }
  return loss;
}

static double loss_of(const double *w, const atoll_rl_params *p, lesson *l) {
  return p->algorithm == ATOLL_RL_PPO ? ppo_loss(w, p, l) : reinforce_loss(w, p, l);
}

/* One update by Adam of parameters, first and second moments v[3][n]; update counts from 1. */
static void update(double *v, const atoll_rl_params *p, lesson *l, int update, double *loss, double *norm) {
  const int n = parameters_of(p);
  double gradient[MOST], old;
  *loss = loss_of(v, p, l);
  *norm = 0;
  for (int k = 0; k < n; k++) {
    old = v[k];
    v[k] = old + 1e-5;
    double more = loss_of(v, p, l);
    v[k] = old - 1e-5;
    gradient[k] = (more - loss_of(v, p, l)) / 2e-5;
    v[k] = old;
    *norm += gradient[k] * gradient[k];
  }
  *norm = sqrt(*norm);
  for (int k = 0; k < n; k++) {
    v[n + k] = 0.9 * v[n + k] + 0.1 * gradient[k];
    v[2 * n + k] = 0.999 * v[2 * n + k] + 0.001 * gradient[k] * gradient[k];
    v[k] -=
        p->learning_rate * (v[n + k] / (1 - pow(0.9, update))) / (sqrt(v[2 * n + k] / (1 - pow(0.999, update))) + 1e-8);
  }
}

static void expect_close(const char *what, int at, double got, double expected, double tolerance) {
  if (!(fabs(got - expected) < tolerance * (1 + fabs(expected))))
    fail_msg("%s %d is %.9g, by hand %.9g", what, at, got, expected);
}

/* Learns as many iterations as are remembered, and again by hand. */
static void follow_by_hand(atoll_rl *rl, const atoll_rl_params *p) {
  static float got[MOST];
  static double v[MOST];
  const int n = parameters_of(p), epochs = p->algorithm == ATOLL_RL_PPO ? (int)p->epochs : 1;
  atoll_rl_report report[ROLLOUTS];
  lesson l = {.clipped = 0};
  (void)values(rl, got);
  for (int k = 0; k < 3 * n; k++)
    v[k] = got[k];
  memset(&seen, 0, sizeof seen);
  assert_ok(atoll_rl_learn(rl, ROLLOUTS, report));
  for (int i = 0; i < ROLLOUTS; i++) {
    double loss, norm;
    l.r = &seen.of[i];
    if (p->algorithm == ATOLL_RL_PPO)
      ppo_lesson(v, p, &l);
    else
      reinforce_lesson(p, &l);
    for (int e = 0; e < epochs; e++)
      update(v, p, &l, i * epochs + e + 1, &loss, &norm);
    expect_close("loss of iteration", i, report[i].loss, loss, 1e-5);
    expect_close("norm of iteration", i, report[i].gradient_norm, norm, 1e-4);
    assert_true(report[i].mean_length == EPISODE);
  }
  assert_int_equal(seen.most, p->group ? p->group : B);
  (void)values(rl, got);
  for (int k = 0; k < 3 * n; k++)
    expect_close("value", k, got[k], v[k], 1e-4);
  assert_true(p->algorithm != ATOLL_RL_PPO || l.clipped > 0);
}

static void returns_are_learnt_from_by_the_formula(void **state) {
  (void)state;
  for (int way = 0; way < 4; way++) {
    const int apart = way % 2;
    atoll_rl_params p = small(ATOLL_RL_REINFORCE, apart ? B / 2 : 0);
    p.n = way < 2 ? 0 : 3;
    p.baseline = (way < 2) != apart;
    atoll_rl *rl = learner(&p);
    follow_by_hand(rl, &p);
    atoll_rl_destroy(&rl);
  }
}

/* One environment has no others whose mean return its own could be compared with. */
static void one_environment_learns_without_a_baseline(void **state) {
  (void)state;
  static float before[MOST], after[MOST];
  const atoll_rl_env *env = NULL;
  atoll_rl_params p = small(ATOLL_RL_REINFORCE, 0);
  atoll_rl_report report;
  atoll_rl *rl = NULL;
  p.environments = 1;
  assert_ok(atoll_rl_env_open("grid", 0, &env));
  assert_refused(ATOLL_USAGE, "nothing to learn from", atoll_rl_create(MPI_COMM_WORLD, env, &p, NULL, &rl));
  p.baseline = 0;
  assert_ok(atoll_rl_create(MPI_COMM_WORLD, env, &p, NULL, &rl));
  (void)values(rl, before);
  assert_ok(atoll_rl_learn(rl, 1, &report));
  (void)values(rl, after);
  assert_true(report.loss != 0 && report.gradient_norm > 0);
  for (int k = 0; k < 2 * H; k++) /* weights of the first layer, of the grid's two coordinates */
    assert_true(before[k] != after[k]);
  atoll_rl_destroy(&rl);
  atoll_rl_env_close(&env);
}

/* Several epochs on every rollout; then the learner goes on, twice: also over the ends of chunks, which are two
 * iterations long. */
static void follow_and_resume(int64_t group) {
  static float middle[MOST], v[2][MOST];
  atoll_rl_params p = small(ATOLL_RL_PPO, group);
  atoll_rl *rl = learner(&p);
  follow_by_hand(rl, &p);
  assert_ok(atoll_rl_learn(rl, 1, NULL));
  (void)values(rl, middle);
  assert_ok(atoll_rl_learn(rl, 3, NULL));
  (void)values(rl, v[0]);
  restore(rl, middle, 3);
  assert_ok(atoll_rl_learn(rl, 1, NULL));
  assert_ok(atoll_rl_learn(rl, 2, NULL));
  int n = values(rl, v[1]);
  for (int k = 0; k < n; k++)
    if (v[0][k] != v[1][k])
      fail_msg("value %d is %.9g, resumed %.9g", k, (double)v[0][k], (double)v[1][k]);
  atoll_rl_destroy(&rl);
}

static void epochs_follow_the_formula_and_resume_bit_for_bit(void **state) {
  (void)state;
  follow_and_resume(0);
  follow_and_resume(B / 2);
}

static void advantages_are_left_as_they_are_on_demand(void **state) {
  (void)state;
  atoll_rl_params p = small(ATOLL_RL_PPO, 0);
  p.normalize = 0;
  atoll_rl *rl = learner(&p);
  follow_by_hand(rl, &p);
  atoll_rl_destroy(&rl);
}

/* Random ones would drown returns that are smaller than their unit. */
static void values_begin_at_zero(void **state) {
  (void)state;
  atoll_rl_params p = small(ATOLL_RL_PPO, 0);
  atoll_rl *rl = learner(&p);
  int n;
  const atoll_tensor *t = atoll_rl_tensors(rl, &n);
  assert_string_equal(t[4].name, "param/layer2.weight");
  const float *w = t[4].data;
  for (int k = 0; k < H; k++) {
    assert_true(w[k * (A + 1) + A] == 0);
    assert_true(w[k * (A + 1)] != 0 && w[k * (A + 1) + A - 1] != 0);
  }
  atoll_rl_destroy(&rl);
}

/* An advantage less its own mean is nothing. */
static void one_step_is_learnt_from_as_it_is(void **state) {
  (void)state;
  atoll_rl_params p = small(ATOLL_RL_PPO, 0);
  p.environments = p.steps = 1;
  assert_refused(ATOLL_USAGE, "rl.normalize with one step", atoll_rl_params_check(&p, 1));
  p.normalize = 0;
  assert_ok(atoll_rl_params_check(&p, 1));
}

/* Bytes of a learner that does not run, so that it need not be compiled. */
static int64_t peak_of(const atoll_rl_params *p) {
  int64_t bytes;
  setenv("ATOLL_CC", "", 1);
  atoll_rl *rl = learner(p);
  unsetenv("ATOLL_CC");
  assert_ok(atoll_rl_peak_bytes(rl, &bytes));
  atoll_rl_destroy(&rl);
  return bytes;
}

/* In groups or not, with a mean over all of them or not. */
static void memory_grows_with_the_window(void **state) {
  (void)state;
  for (int way = 0; way < 4; way++) {
    const int groups = way % 2 ? 4 : 1;
    atoll_rl_params p = small(ATOLL_RL_REINFORCE, 8 / groups);
    p.environments = 8;
    p.n = 4;
    p.restart = 1;
    p.baseline = way / 2;
    p.steps = 48;
    int64_t bytes = peak_of(&p);
    p.steps = 96;
    assert_in_range(peak_of(&p), bytes, bytes + 48 * 8 * groups - 1); /* numbers of a step, not of environments */
  }
}

/* Without a mean over all, a group is done with before the next begins. */
static void memory_grows_with_the_group(void **state) {
  (void)state;
  atoll_rl_params p = small(ATOLL_RL_REINFORCE, 8);
  p.restart = 1;
  p.baseline = 0;
  p.environments = 16;
  int64_t bytes = peak_of(&p);
  p.environments = 64;
  assert_in_range(peak_of(&p), bytes, bytes + bytes / 8);
  p.group = 64;
  assert_true(peak_of(&p) > 3 * bytes);
}

/* With observations of 3 x 64 x 64, 64 environments and 500 steps, learning from 8 steps needs no sixteenth of what
 * learning from whole episodes needs, which keeps every observation. */
static void short_returns_take_a_sixteenth(void **state) {
  (void)state;
  enum { PIXELS = 3 * 64 * 64, STEPS = 500, COPIES = 64 };
  const atoll_rl_env *env = NULL;
  int64_t bytes[2];
  setenv("ATOLL_CC", "", 1); /* nothing runs: no need to compile */
  assert_ok(atoll_rl_env_open("free", PIXELS, &env));
  for (int way = 0; way < 2; way++) {
    atoll_rl_params p;
    atoll_rl *rl = NULL;
    atoll_rl_params_init(&p);
    (void)snprintf(p.environment, sizeof p.environment, "free");
    p.algorithm = ATOLL_RL_REINFORCE;
    p.observation = PIXELS;
    p.environments = COPIES;
    p.steps = STEPS;
    p.n = way ? 8 : 0;
    p.restart = 1;
    assert_ok(atoll_rl_create(MPI_COMM_WORLD, env, &p, NULL, &rl));
    assert_ok(atoll_rl_peak_bytes(rl, &bytes[way]));
    atoll_rl_destroy(&rl);
  }
  atoll_rl_env_close(&env);
  unsetenv("ATOLL_CC");
  print_message("%lld bytes to the end, %lld with 8 steps\n", (long long)bytes[0], (long long)bytes[1]);
  assert_true(bytes[0] >= (int64_t)STEPS * COPIES * PIXELS * 4);
  assert_true(bytes[0] >= 16 * bytes[1]);
}

/* Values that are put away between uses are those that were there. */
static void a_budget_changes_no_bit(void **state) {
  (void)state;
  static float whole[MOST], within[MOST];
  atoll_rl_params p = small(ATOLL_RL_REINFORCE, 0);
  int64_t peak;
  atoll_rl *rl = learner(&p);
  assert_ok(atoll_rl_learn(rl, 4, NULL));
  assert_ok(atoll_rl_peak_bytes(rl, &peak));
  int n = values(rl, whole);
  atoll_rl_destroy(&rl);
  p.memory = peak - peak / 8;
  rl = learner(&p);
  assert_refused(ATOLL_NOMEM, "the budget is", atoll_rl_learn(rl, 4, NULL));
  atoll_rl_destroy(&rl);
  (void)snprintf(p.offload, sizeof p.offload, ".");
  rl = learner(&p);
  assert_ok(atoll_rl_learn(rl, 4, NULL));
  assert_ok(atoll_rl_peak_bytes(rl, &peak));
  assert_true(peak <= p.memory);
  assert_int_equal(values(rl, within), n);
  assert_memory_equal(within, whole, (size_t)n * sizeof *whole);
  atoll_rl_destroy(&rl);
  p.memory = 0;
  assert_refused(ATOLL_USAGE, "no rl.memory", atoll_rl_create(MPI_COMM_WORLD, &remembering, &p, NULL, &rl));
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_budget_changes_no_bit),
      cmocka_unit_test(returns_are_learnt_from_by_the_formula),
      cmocka_unit_test(one_environment_learns_without_a_baseline),
      cmocka_unit_test(epochs_follow_the_formula_and_resume_bit_for_bit),
      cmocka_unit_test(advantages_are_left_as_they_are_on_demand),
      cmocka_unit_test(values_begin_at_zero),
      cmocka_unit_test(one_step_is_learnt_from_as_it_is),
      cmocka_unit_test(memory_grows_with_the_window),
      cmocka_unit_test(memory_grows_with_the_group),
      cmocka_unit_test(short_returns_take_a_sixteenth),
  };
  if (atoll_mpi_init(&argc, &argv) != ATOLL_OK)
    return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  MPI_Finalize();
  return failed;
}

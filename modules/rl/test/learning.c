/* Learners do what is written in their formulas, whatever runs them: losses against loops by hand, returns over all
 * steps against Monte-Carlo, a run that is resumed against one that is not. */
#include <math.h>

#include "atoll/agree.h"
#include "atoll/rl.h"
#include "unit_check.h"

/* ---- an environment that remembers what was done in it: states (x, y, age), episodes of five steps ---- */

enum { B = 3, T = 12, S = 3, O = 2, A = 2, H = 5, EPISODE = 5 };

static struct {
  int t;
  float state[T][B][S], reward[T][B], end[T][B], last[B][S];
  int32_t action[T][B];
} seen;

static int remember_start(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state) {
  (void)self;
  (void)first;
  for (int64_t b = 0; b < n; b++) {
    state[b * S] = noise[b * S] - 0.5f;
    state[b * S + 1] = noise[b * S + 1] - 0.5f;
    state[b * S + 2] = 0;
  }
  return 0;
}

static int remember_step(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action,
                         float *result) {
  (void)self;
  assert_int_equal(n, B);
  for (int64_t b = 0; b < n; b++) {
    const float *s = state + b * S;
    float *r = result + b * (S + 2);
    r[0] = 0.8f * s[0] + (action[b] ? 0.3f : -0.2f);
    r[1] = 0.5f * s[1] - 0.4f * s[0];
    r[2] = s[2] + 1;
    r[3] = r[0] - r[1];
    r[4] = r[2] >= EPISODE;
    if (seen.t < T) {
      memcpy(seen.state[seen.t][b], s, sizeof seen.state[0][0]);
      seen.action[seen.t][b] = action[b];
      seen.reward[seen.t][b] = r[3];
      seen.end[seen.t][b] = r[4];
      memcpy(seen.last[b], r, sizeof seen.last[b]);
    }
  }
  seen.t++;
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

static atoll_rl_params small(int algorithm) {
  atoll_rl_params p;
  atoll_rl_params_init(&p);
  p.algorithm = algorithm;
  p.environments = B;
  p.steps = T;
  p.hidden = H;
  p.epochs = 2;
  p.chunk = 2;
  p.seed = 5;
  return p;
}

static atoll_rl *learner(const atoll_rl_params *p) {
  atoll_rl *rl = NULL;
  assert_ok(atoll_rl_create(MPI_COMM_WORLD, &remembering, p, NULL, &rl));
  return rl;
}

/* All values of a learner, one behind the other. */
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

/* ---- the formulas, by hand ---- */

static const float *tensor_of(const atoll_rl *rl, const char *name) {
  int n;
  const atoll_tensor *t = atoll_rl_tensors(rl, &n);
  for (int k = 0; k < n; k++)
    if (!strcmp(t[k].name, name))
      return t[k].data;
  fail_msg("no tensor %s", name);
  return NULL;
}

static void layer(const float *w, const float *b, const double *x, int in, int out, int squash, double *y) {
  for (int j = 0; j < out; j++) {
    y[j] = b[j];
    for (int i = 0; i < in; i++)
      y[j] += x[i] * w[i * out + j];
    y[j] = squash ? tanh(y[j]) : y[j];
  }
}

/* Outputs of the network for an observation. */
static void network(const atoll_rl *rl, const float *observation, int outputs, double *y) {
  const double x[O] = {observation[0], observation[1]};
  double h1[H], h2[H];
  layer(tensor_of(rl, "param/layer0.weight"), tensor_of(rl, "param/layer0.bias"), x, O, H, 1, h1);
  layer(tensor_of(rl, "param/layer1.weight"), tensor_of(rl, "param/layer1.bias"), h1, H, H, 1, h2);
  layer(tensor_of(rl, "param/layer2.weight"), tensor_of(rl, "param/layer2.bias"), h2, H, outputs, 0, y);
}

static double log_probability(const double *y, int action) { return y[action] - log(exp(y[0]) + exp(y[1])); }

/* n 0: to the end */
static double return_of(int t, int b, int n, double gamma) {
  double g = 0, factor = 1;
  for (int k = t; k < T && (n == 0 || k < t + n); k++) {
    g += factor * seen.reward[k][b];
    factor *= gamma;
    if (seen.end[k][b] != 0)
      break;
  }
  return g;
}

static double reinforce_by_hand(const atoll_rl *rl, const atoll_rl_params *p) {
  double loss = 0, y[A];
  for (int t = 0; t < T; t++) {
    double mean = 0;
    for (int b = 0; b < B; b++)
      mean += return_of(t, b, (int)p->n, p->gamma) / B;
    for (int b = 0; b < B; b++) {
      network(rl, seen.state[t][b], A, y);
      double g = return_of(t, b, (int)p->n, p->gamma) - (p->baseline ? mean : 0);
      loss -= log_probability(y, seen.action[t][b]) * g / (B * T);
    }
  }
  return loss;
}

/* One iteration; the learner is then as it was before. after: its values in between. */
static atoll_rl *after_one(const atoll_rl_params *p, atoll_rl_report *report, float after[MOST]) {
  static float before[MOST];
  atoll_rl *rl = learner(p);
  (void)values(rl, before);
  seen.t = 0;
  assert_ok(atoll_rl_learn(rl, 1, report));
  (void)values(rl, after);
  restore(rl, before, 0);
  return rl;
}

/* Central differences of the loss against the gradient that the first step of Adam has left: its mean is a tenth. */
static void check_gradients(atoll_rl *rl, const atoll_rl_params *p, const float after[MOST],
                            double (*loss)(const atoll_rl *rl, const atoll_rl_params *p)) {
  enum { PARAMS = 6 };
  int n, all = 0, at = 0;
  const atoll_tensor *t = atoll_rl_tensors(rl, &n);
  for (int k = 0; k < PARAMS; k++)
    all += (int)atoll_tensor_local_count(&t[k]);
  for (int k = 0; k < PARAMS; k++)
    for (int64_t i = 0; i < atoll_tensor_local_count(&t[k]); i++, at++) {
      float *w = (float *)t[k].data + i, old = *w, up = old + 1e-2f, down = old - 1e-2f;
      *w = up;
      double more = loss(rl, p);
      *w = down;
      double difference = (more - loss(rl, p)) / ((double)up - (double)down), got = 10 * (double)after[all + at];
      *w = old;
      if (!(fabs(difference - got) < 1e-3 * (1 + fabs(difference))))
        fail_msg("%s, element %lld: gradient %.6g, by differences %.6g", t[k].name, (long long)i, got, difference);
    }
}

static void losses_are_the_formula(void **state) {
  (void)state;
  for (int way = 0; way < 2; way++) {
    atoll_rl_params p = small(ATOLL_RL_REINFORCE);
    atoll_rl_report report;
    p.n = way ? 3 : 0;
    p.baseline = !way;
    static float after[MOST];
    atoll_rl *rl = after_one(&p, &report, after);
    double expected = reinforce_by_hand(rl, &p);
    if (!(fabs(report.loss - expected) < 1e-5))
      fail_msg("way %d: loss %.9g, by hand %.9g", way, report.loss, expected);
    check_gradients(rl, &p, after, reinforce_by_hand);
    /* 12 steps hold two whole episodes of 5 */
    assert_int_equal(report.episodes, 2 * B);
    assert_true(report.mean_length == EPISODE);
    atoll_rl_destroy(&rl);
  }
}

/* What is learnt from, by the parameters that acted. */
static struct { double advantage[T][B], target[T][B], before[T][B]; } rollout;

static void advantages_by_hand(const atoll_rl *rl, const atoll_rl_params *p) {
  double y[A + 1], following[A + 1];
  for (int b = 0; b < B; b++) {
    double advantage = 0;
    for (int t = T - 1; t >= 0; t--) {
      const double going = seen.end[t][b] == 0;
      network(rl, seen.state[t][b], A + 1, y);
      network(rl, t == T - 1 ? seen.last[b] : seen.state[t + 1][b], A + 1, following);
      double delta = seen.reward[t][b] + p->gamma * going * following[A] - y[A];
      advantage = delta + p->gamma * p->lambda * going * advantage;
      rollout.advantage[t][b] = advantage;
      rollout.target[t][b] = advantage + y[A];
      rollout.before[t][b] = log_probability(y, seen.action[t][b]);
    }
  }
}

static double ppo_by_hand(const atoll_rl *rl, const atoll_rl_params *p) {
  double loss = 0, y[A + 1];
  for (int t = 0; t < T; t++)
    for (int b = 0; b < B; b++) {
      network(rl, seen.state[t][b], A + 1, y);
      double ratio = exp(log_probability(y, seen.action[t][b]) - rollout.before[t][b]), a = rollout.advantage[t][b];
      double gain = fmin(ratio * a, fmin(fmax(ratio, 1 - p->clip), 1 + p->clip) * a), entropy = 0;
      for (int k = 0; k < A; k++)
        entropy -= exp(log_probability(y, k)) * log_probability(y, k);
      loss += (p->value * pow(y[A] - rollout.target[t][b], 2) - gain - p->entropy * entropy) / (B * T);
    }
  return loss;
}

static void ppo_is_the_formula(void **state) {
  (void)state;
  static float after[MOST];
  atoll_rl_params p = small(ATOLL_RL_PPO);
  atoll_rl_report report;
  p.epochs = 1;
  atoll_rl *rl = after_one(&p, &report, after);
  advantages_by_hand(rl, &p);
  double expected = ppo_by_hand(rl, &p);
  if (!(fabs(report.loss - expected) < 1e-5))
    fail_msg("loss %.9g, by hand %.9g", report.loss, expected);
  check_gradients(rl, &p, after, ppo_by_hand);
  atoll_rl_destroy(&rl);
}

static void returns_over_all_steps_are_monte_carlo(void **state) {
  (void)state;
  static float v[2][MOST];
  int n = 0;
  for (int way = 0; way < 2; way++) {
    atoll_rl_params p = small(ATOLL_RL_REINFORCE);
    p.n = way ? T : 0;
    atoll_rl *rl = learner(&p);
    assert_ok(atoll_rl_learn(rl, 3, NULL));
    n = values(rl, v[way]);
    atoll_rl_destroy(&rl);
  }
  for (int k = 0; k < n; k++)
    assert_true(fabsf(v[0][k] - v[1][k]) < 1e-4f);
}

/* Also over the ends of chunks, which are two iterations long. */
static void resumed_runs_go_on_bit_for_bit(void **state) {
  (void)state;
  static float middle[MOST], v[2][MOST];
  atoll_rl_params p = small(ATOLL_RL_PPO);
  atoll_rl *rl = learner(&p);
  assert_ok(atoll_rl_learn(rl, 3, NULL));
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

static void memory_grows_with_the_window(void **state) {
  (void)state;
  int64_t bytes[2];
  for (int way = 0; way < 2; way++) {
    atoll_rl_params p = small(ATOLL_RL_REINFORCE);
    p.environments = 8;
    p.steps = way ? 96 : 48;
    p.n = 4;
    p.restart = 1;
    atoll_rl *rl = learner(&p);
    assert_ok(atoll_rl_peak_bytes(rl, &bytes[way]));
    atoll_rl_destroy(&rl);
  }
  assert_true(bytes[1] - bytes[0] < 48 * 8); /* at most a number a step, not values of all environments */
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_are_the_formula),
      cmocka_unit_test(ppo_is_the_formula),
      cmocka_unit_test(returns_over_all_steps_are_monte_carlo),
      cmocka_unit_test(resumed_runs_go_on_bit_for_bit),
      cmocka_unit_test(memory_grows_with_the_window),
  };
  if (atoll_mpi_init(&argc, &argv) != ATOLL_OK)
    return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  MPI_Finalize();
  return failed;
}

/* rl: acting and learning on the near-free environment, whose steps cost next to nothing, on any number of ranks, which
 * divide the environments, against the time of the matrix products alone and against what the scripts rl_*.py of peers/
 * measured with the same sizes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/clock.h"
#include "atoll/gemm.h"
#include "atoll/kernel.h"
#include "atoll/log.h"
#include "atoll/rl.h"
#include "lists.h"

enum { MOST = 32, PPO_EPOCHS = 4 };

typedef struct sizes {
  int64_t observation, hidden, n, iterations, repeats;
} sizes;

typedef struct algorithm {
  const char *name; /* as the peers call it */
  int kind;
  int windowed;
} algorithm;
static const algorithm algorithms[] = {
    {"reinforce", ATOLL_RL_REINFORCE, 0}, {"reinforce_n", ATOLL_RL_REINFORCE, 1}, {"ppo", ATOLL_RL_PPO, 0}};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

static atoll_rl_params params_of(const algorithm *a, const sizes *s, int64_t environments, int64_t length) {
  atoll_rl_params p;
  atoll_rl_params_init(&p);
  p.algorithm = a->kind;
  p.environments = environments;
  p.steps = length;
  p.n = a->windowed ? s->n : 0;
  p.hidden = s->hidden;
  p.observation = s->observation;
  p.epochs = PPO_EPOCHS;
  p.chunk = s->iterations;
  p.restart = 1;
  p.baseline = 0;
  p.normalize = 0;
  return p;
}

/* GFLOP/s of the product that programs call, of operands that the caches hold. 0: there is no memory. */
static double called_rate(int64_t m, int64_t n, int64_t k) {
  enum { TURNS = 4 };
  const double flop = 2.0 * (double)m * (double)n * (double)k;
  float *x = calloc((size_t)(m * k + n * k + m * n), sizeof *x);
  double best = 0;
  for (int turn = 0; turn < TURNS && x; turn++) {
    double began = atoll_clock_now();
    if (atoll_gemm_strided(1, m, n, k, x, k, 1, x + m * k, k, 1, x + m * k + n * k, n) == ATOLL_OK)
      best = fmax(best, 1e-9 * flop / (atoll_clock_now() - began));
  }
  free(x);
  return best;
}

/* Seconds of one product, at the best rate of any library and of the product that programs call. */
static atoll_err product(int64_t m, int64_t n, int64_t k, double *seconds) {
  const char *name;
  double best = called_rate(m, n, k), rate;
  for (int i = 0; atoll_gemm_library(i, &name); i++) {
    ATOLL_TRY(atoll_gemm_rate(name, m, n, k, 1, 3, &rate));
    if (strcmp(name, "fma-loop") != 0 && rate > best)
      best = rate;
  }
  *seconds = best > 0 ? 2e-9 * (double)m * (double)n * (double)k / best : NAN;
  return ATOLL_OK;
}

/* Products of one step of all environments: the network once to act; to learn, its weights' gradients and all but the
 * first layer's inputs'; PPO runs the network again in every epoch. */
static atoll_err products(const algorithm *a, const sizes *s, int64_t environments, double *seconds) {
  const int64_t width[] = {s->observation, s->hidden, s->hidden, a->kind == ATOLL_RL_PPO ? 3 : 2};
  double forward = 0, backward = 0, one;
  for (int k = 0; k < 3; k++) {
    ATOLL_TRY(product(environments, width[k + 1], width[k], &one));
    forward += one;
    ATOLL_TRY(product(width[k], width[k + 1], environments, &one));
    backward += one;
    if (k == 0)
      continue;
    ATOLL_TRY(product(environments, width[k], width[k + 1], &one));
    backward += one;
  }
  *seconds = a->kind == ATOLL_RL_PPO ? forward + PPO_EPOCHS * (forward + backward) : forward + backward;
  return ATOLL_OK;
}

typedef struct timing {
  double seconds[MOST], first, products;
  int64_t peak;
  double reward;
} timing;

/* Products (of one rank's environments) and learning take turns, so that both see the same machine. */
static atoll_err measure(const algorithm *a, const sizes *s, int64_t environments, int64_t length, timing *t) {
  const atoll_rl_env *env = NULL;
  const atoll_rl_params p = params_of(a, s, environments, length);
  atoll_rl_report *report = calloc((size_t)s->iterations, sizeof *report);
  atoll_rl *rl = NULL;
  double products_now = INFINITY, began = atoll_clock_now();
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  atoll_err err = report ? atoll_rl_env_open("free", s->observation, &env) : atoll_fail(ATOLL_NOMEM, "reports");
  err = atoll_agree(MPI_COMM_WORLD, err);
  if (err == ATOLL_OK)
    err = atoll_rl_create(MPI_COMM_WORLD, env, &p, NULL, &rl);
  t->first = atoll_clock_now() - began;
  t->products = INFINITY;
  for (int64_t k = 0; k <= s->repeats && err == ATOLL_OK; k++) {
    began = atoll_clock_now();
    err = atoll_rl_leave_alone(rl, NULL, atoll_rl_learn(rl, s->iterations, report));
    if (k > 0) /* the first run warms up */
      t->seconds[k - 1] = atoll_clock_now() - began;
    if (err == ATOLL_OK)
      err = atoll_agree(MPI_COMM_WORLD, products(a, s, environments / ranks, &products_now));
    t->products = fmin(t->products, products_now);
  }
  if (err == ATOLL_OK)
    err = atoll_rl_peak_bytes(rl, &t->peak);
  t->reward = report ? report[s->iterations - 1].reward : NAN;
  atoll_rl_destroy(&rl);
  atoll_rl_env_close(&env);
  free(report);
  return err;
}

static atoll_err add_row(const algorithm *a, const sizes *s, int64_t environments, int64_t length, json_t *peers,
                         json_t *rows) {
  static const char *const keys[] = {"algorithm", "environments", "T", "observation", "hidden", "n", "threads", NULL};
  timing t;
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  ATOLL_TRY(measure(a, s, environments, length, &t));
  double seconds = atoll_median(t.seconds, (size_t)s->repeats);
  double rate = (double)(environments * length * s->iterations) / seconds;
  double only = t.products * (double)(length * s->iterations);
  json_t *row =
      json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:i,s:i,s:s,s:f,s:I,s:f,s:f,s:f}", "algorithm", a->name, "environments",
                (json_int_t)environments, "T", (json_int_t)length, "observation", (json_int_t)s->observation, "hidden",
                (json_int_t)s->hidden, "n", (json_int_t)(a->windowed ? s->n : 0), "ranks", ranks, "threads", ranks,
                "dtype", "f32", "steps_per_second", rate, "peak_bytes", (json_int_t)t.peak, "products_fraction",
                only / seconds, "compile_seconds", t.first, "mean_reward", t.reward);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "row of figures");
  double best = bench_compare(row, peers, keys, "steps_per_second", 1);
  json_array_append_new(rows, row);
  char against[48];
  atoll_say("%-11s %5lld environments , T %5lld : %.3g steps/s , products alone %.2f of the time , peak %.2f MB%s",
            a->name, (long long)environments, (long long)length, rate, only / seconds, (double)t.peak / 1e6,
            bench_against(rate / best, against));
  return ATOLL_OK;
}

static atoll_err chosen(const atoll_cli *cli, int *wanted) {
  const char *text = atoll_cli_value(cli, "algorithms"), *names[ALGORITHMS];
  for (int k = 0; k < ALGORITHMS; k++) {
    names[k] = algorithms[k].name;
    wanted[k] = text == NULL;
  }
  for (const char *at = text; at && *at;) {
    char word[32];
    size_t n = strcspn(at, ",");
    int k = 0;
    (void)snprintf(word, sizeof word, "%.*s", (int)n, at);
    while (k < ALGORITHMS && strcmp(names[k], word) != 0)
      k++;
    if (k == ALGORITHMS)
      return atoll_fail(ATOLL_USAGE, "--algorithms: '%s' is none of reinforce, reinforce_n, ppo", word);
    wanted[k] = 1;
    at += n + (at[n] == ',');
  }
  return ATOLL_OK;
}

/* Before the first row takes its time. */
static atoll_err check_rows(const int *wanted, const sizes *s, const bench_list *lengths) {
  for (int k = 0; k < ALGORITHMS; k++)
    for (int l = 0; l < lengths->n && wanted[k] && algorithms[k].windowed; l++)
      if (s->n > lengths->v[l])
        return atoll_fail(ATOLL_USAGE, "--n %lld: %s has no more steps than --lengths %lld", (long long)s->n,
                          algorithms[k].name, (long long)lengths->v[l]);
  return ATOLL_OK;
}

static atoll_err sweep(const atoll_cli *cli, json_t *peers, json_t *rows) {
  bench_list environments, lengths;
  sizes s;
  int wanted[ALGORITHMS];
  ATOLL_TRY(chosen(cli, wanted));
  ATOLL_TRY(bench_numbers(cli, "environments", "128,512", 1, 1 << 20, &environments));
  ATOLL_TRY(bench_numbers(cli, "lengths", "125", 1, 1 << 20, &lengths));
  ATOLL_TRY(bench_count(cli, "observation", 4, 1, 1 << 20, &s.observation));
  ATOLL_TRY(bench_count(cli, "hidden", 64, 1, 1 << 16, &s.hidden));
  ATOLL_TRY(bench_count(cli, "n", 8, 1, 1 << 20, &s.n));
  ATOLL_TRY(bench_count(cli, "iterations", 5, 1, 1 << 20, &s.iterations));
  ATOLL_TRY(bench_count(cli, "repeats", 3, 1, MOST, &s.repeats));
  ATOLL_TRY(check_rows(wanted, &s, &lengths));
  for (int k = 0; k < ALGORITHMS; k++)
    for (int e = 0; e < environments.n && wanted[k]; e++)
      for (int l = 0; l < lengths.n; l++)
        ATOLL_TRY_ALL(MPI_COMM_WORLD, add_row(&algorithms[k], &s, environments.v[e], lengths.v[l], peers, rows));
  return ATOLL_OK;
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out) {
  json_t *peers = NULL, *rows = json_array();
  (void)job;
  (void)opts;
  atoll_err err = bench_rows(cli, "peers", &peers);
  if (err == ATOLL_OK)
    err = sweep(cli, peers, rows);
  if (err == ATOLL_OK)
    bench_tell_unmatched(peers);
  if (out)
    json_object_set(out, "rows", rows);
  json_decref(rows);
  json_decref(peers);
  return err;
}

const bench bench_rl = {"rl", "Acting and learning as one recurrent program, against products alone and peers.",
                        "peers lengths algorithms environments observation hidden n iterations repeats", run};

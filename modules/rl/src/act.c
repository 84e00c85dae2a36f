/* Environments as functions of a recurrent program.
 *
 * A step that ends an episode gives the first state of the next one, so that all environments act all the time. Random
 * numbers are keyed by iteration, step and environment among those of all ranks; a run that is resumed, or divided
 * differently, draws the same ones.
 *
 * What other environments than our own write is checked: results are filled with a mark before, which must be gone,
 * behind them lies a guard, which must be as it was, and so must the states and actions that they are given.
 *
 * A failure ends the run, unless other ranks wait for this one's sums: left alone within their run they would wait for
 * ever. It is kept then, no environment is asked again, and the reward is so large that the next sum over ranks is not
 * finite, which ends the run on all of them at once; learn.c tells it after that. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/rng.h"
#include "rl_impl.h"

enum { DRAW_ACTION, DRAW_START, DRAW_NEXT };
enum { GUARD = 64 };

static int64_t width_of(const atoll_rl_env *e) { return e->state + 2; }

/* Products of a group of this many rows are at their best rate, while what one step makes of them stays in L2. */
enum { GROUP = 128, GROUP_LEAST = 32 };

static int64_t group_of(int64_t n) {
  for (int64_t g = GROUP; g >= GROUP_LEAST; g--)
    if (n % g == 0)
      return g;
  return n;
}

atoll_err rl_actor_create(const atoll_rl_env *env, int64_t seed, uint32_t stream, int64_t first, int64_t n,
                          int64_t group, rl_actor *out) {
  const int64_t most = env->state > env->actions ? env->state : env->actions;
  rl_actor a = {.env = env, .seed = (uint64_t)seed, .stream = stream, .first = first, .n = n};
  a.group = group ? group : group_of(n);
  a.running = calloc((size_t)n * 2, sizeof *a.running);
  a.noise = malloc((size_t)(n * most) * sizeof *a.noise);
  if (!rl_is_built_in(env)) {
    a.guarded = malloc((size_t)(n * width_of(env) + GUARD) * sizeof *a.guarded);
    a.given = malloc((size_t)a.group * (size_t)(env->state + 1) * sizeof *a.given);
  }
  *out = a;
  return a.running && a.noise && ((a.guarded && a.given) || rl_is_built_in(env))
             ? ATOLL_OK
             : atoll_fail(ATOLL_NOMEM, "%lld environments", (long long)n);
}

void rl_actor_free(rl_actor *a) {
  free(a->running);
  free(a->finished);
  free(a->noise);
  free(a->guarded);
  free(a->given);
  *a = (rl_actor){.env = NULL};
}

/* ---- random numbers ---- */

static atoll_rng_key key_of(const rl_actor *a, int what, int64_t i, int64_t t) {
  return (atoll_rng_key){.seed = a->seed,
                         .step = (uint64_t)(a->iteration + i),
                         .sample = (uint64_t)t,
                         .layer = 4 * a->stream + (uint32_t)what,
                         .site = ATOLL_RNG_SAMPLE};
}

/* Uniform numbers in (0, 1), whose logarithms are finite and not zero: to [n, width] of environments from `from` of
 * this rank. */
static void draw(const rl_actor *a, int what, int64_t i, int64_t t, int64_t from, int64_t n, int64_t width, float *to) {
  const atoll_rng_key key = key_of(a, what, i, t);
  uint32_t bits[256];
  const int64_t first = (a->first + from) * width, count = n * width;
  for (int64_t at = 0; at < count; at += 256) {
    int64_t k = count - at < 256 ? count - at : 256;
    atoll_rng_fill_bits(&key, (uint64_t)(first + at), (size_t)k, bits);
    for (int64_t j = 0; j < k; j++)
      to[at + j] = ((float)(bits[j] >> 9) + 0.5f) * 0x1p-23f;
  }
}

/* The first environment of the group at a point, whose last coordinate the group is, after `before` others. */
static int64_t first_at(const rl_actor *a, const int64_t *point, int before) {
  return a->group < a->n ? point[before] * a->group : 0;
}

/* [group, actions], uniform. */
atoll_err rl_noise(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  const rl_actor *a = user;
  (void)in;
  draw(a, DRAW_ACTION, point[0], point[1], first_at(a, point, 2), a->group, a->env->actions, out->data);
  return ATOLL_OK;
}

/* ---- what environments do, checked ---- */

static atoll_err failed(const rl_actor *a, const char *what, int code) {
  return atoll_fail(ATOLL_UNAVAILABLE, "environment %s: %s failed with %d", a->env->name, what, code);
}

static const float *mark(void) {
  static const uint32_t bits = 0x7fa70c11u; /* a NaN that no arithmetic makes */
  return (const float *)&bits;
}

static void set_marks(float *v, int64_t n) {
  for (int64_t k = 0; k < n; k++)
    memcpy(&v[k], mark(), sizeof *v);
}

static int is_mark(const float *v) { return memcmp(v, mark(), sizeof *v) == 0; }

/* Rows of `width` numbers, of n environments from `from`: all of them written, finite, and nothing behind. */
static atoll_err check_rows(const rl_actor *a, const char *what, int64_t from, const float *v, int64_t n,
                            int64_t width) {
  for (int64_t k = 0; k < n * width; k++)
    if (is_mark(&v[k]))
      return atoll_fail(ATOLL_MISMATCH, "environment %s: %s left number %lld of environment %lld unwritten, of %lld",
                        a->env->name, what, (long long)(k % width), (long long)(a->first + from + k / width),
                        (long long)width);
    else if (!isfinite(v[k]))
      return atoll_fail(ATOLL_NONFINITE, "environment %s: %s made number %lld of environment %lld %g", a->env->name,
                        what, (long long)(k % width), (long long)(a->first + from + k / width), (double)v[k]);
  for (int64_t k = 0; k < GUARD; k++)
    if (!is_mark(&v[n * width + k]))
      return atoll_fail(ATOLL_MISMATCH, "environment %s: %s wrote more than %lld numbers for each of %lld environments",
                        a->env->name, what, (long long)width, (long long)n);
  return ATOLL_OK;
}

/* First states of environments from `from` of this rank; noise is drawn. */
static atoll_err begin(const rl_actor *a, int64_t from, int64_t n, float *state) {
  float *to = a->guarded ? a->guarded : state;
  const int64_t width = a->env->state;
  if (a->guarded)
    set_marks(to, n * width + GUARD);
  int code = a->env->start(a->env, a->first + from, n, a->noise, to);
  if (code)
    return failed(a, "start", code);
  if (a->guarded) {
    ATOLL_TRY(check_rows(a, "start", from, to, n, width));
    memcpy(state, to, (size_t)(n * width) * sizeof *state);
  }
  return ATOLL_OK;
}

/* What a step was given, and must leave as it is: the program uses it afterwards. */
static atoll_err check_given(const rl_actor *a, int64_t from, const float *state, const int32_t *action) {
  const int64_t width = a->env->state;
  for (int64_t b = 0; b < a->group; b++) {
    const int changed = memcmp(state + b * width, a->given + b * width, (size_t)width * sizeof *state) != 0;
    if (changed || memcmp(&action[b], &a->given[a->group * width + b], sizeof *action) != 0)
      return atoll_fail(ATOLL_MISMATCH, "environment %s: step changed the %s of environment %lld that it was given",
                        a->env->name, changed ? "state" : "action", (long long)(a->first + from + b));
  }
  return ATOLL_OK;
}

static atoll_err advance(const rl_actor *a, int64_t from, const float *state, const int32_t *action, float *result) {
  float *to = a->guarded ? a->guarded : result;
  const int64_t width = width_of(a->env), states = a->group * a->env->state;
  if (a->guarded) {
    set_marks(to, a->group * width + GUARD);
    memcpy(a->given, state, (size_t)states * sizeof *state);
    memcpy(a->given + states, action, (size_t)a->group * sizeof *action);
  }
  int code = a->env->step(a->env, a->group, state, action, to);
  if (code)
    return failed(a, "step", code);
  if (!a->guarded)
    return ATOLL_OK;
  ATOLL_TRY(check_rows(a, "step", from, to, a->group, width));
  ATOLL_TRY(check_given(a, from, state, action));
  for (int64_t b = 0; b < a->group; b++) {
    float end = to[b * width + width - 1];
    if (end != 0 && end != 1)
      return atoll_fail(ATOLL_MISMATCH, "environment %s: step says %g for the end of environment %lld, expected 0 or 1",
                        a->env->name, (double)end, (long long)(a->first + from + b));
    if (end == 1 && a->env->endless)
      return atoll_fail(ATOLL_MISMATCH, "environment %s: step says that environment %lld has ended, which is endless",
                        a->env->name, (long long)(a->first + from + b));
  }
  memcpy(result, to, (size_t)(a->group * width) * sizeof *result);
  return ATOLL_OK;
}

/* ---- functions of the program ---- */

/* Says where a failure was, or keeps it. */
static atoll_err placed(rl_actor *a, atoll_err err, int64_t i, int64_t t) {
  char why[900];
  if (err == ATOLL_OK || a->failed != ATOLL_OK)
    return ATOLL_OK;
  snprintf(why, sizeof why, "%s", atoll_err_message());
  err = atoll_fail(err, "%s (iteration %lld, step %lld)", why, (long long)(a->iteration + i), (long long)t);
  if (!a->awaited)
    return err;
  a->failed = err;
  snprintf(a->why, sizeof a->why, "%s", atoll_err_message());
  return ATOLL_OK;
}

/* What a rank whose environments have failed gives instead of states [group, S], or of results [group, S+2]. */
static void give_nothing(const rl_actor *a, int64_t width, float *data) {
  memset(data, 0, (size_t)(a->group * width) * sizeof *data);
  for (int64_t b = 0; b < a->group && width > a->env->state; b++)
    data[b * width + a->env->state] = FLT_MAX;
}

atoll_err rl_start(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  rl_actor *a = user;
  (void)in;
  const int64_t i = a->finished ? 0 : point[0], from = first_at(a, point, a->finished ? 0 : 1);
  memset(a->running + 2 * from, 0, (size_t)a->group * 2 * sizeof *a->running);
  draw(a, DRAW_START, i, 0, from, a->group, a->env->state, a->noise);
  atoll_err err = a->failed == ATOLL_OK ? begin(a, from, a->group, out->data) : ATOLL_OK;
  ATOLL_TRY(placed(a, err, i, 0));
  if (a->failed != ATOLL_OK)
    give_nothing(a, a->env->state, out->data);
  return ATOLL_OK;
}

/* Returns and lengths, and new episodes where one has ended. */
static atoll_err finish_episodes(rl_actor *a, int64_t i, int64_t t, int64_t from, float *result) {
  const int64_t states = a->env->state, width = states + 2;
  rl_account none = {0, 0, 0, 0}, *sum = a->account ? &a->account[i] : &none;
  for (int64_t b = 0; b < a->group; b++) {
    float *r = result + b * width, *running = a->running + 2 * (from + b);
    running[0] += r[states];
    running[1] += 1;
    sum->reward += r[states];
    if (r[states + 1] == 0 && a->env->limit && running[1] >= (float)a->env->limit)
      return atoll_fail(ATOLL_MISMATCH,
                        "environment %s: step has not ended environment %lld after its limit of %lld steps",
                        a->env->name, (long long)(a->first + from + b), (long long)a->env->limit);
    if (r[states + 1] == 0)
      continue;
    sum->episodes++;
    sum->returns += running[0];
    sum->lengths += running[1];
    if (a->finished && isnan(a->finished[from + b]))
      a->finished[from + b] = running[0];
    running[0] = running[1] = 0;
    draw(a, DRAW_NEXT, i, t, from + b, 1, states, a->noise);
    ATOLL_TRY(begin(a, from + b, 1, r));
  }
  return ATOLL_OK;
}

atoll_err rl_step(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  rl_actor *a = user;
  const int64_t i = a->finished ? 0 : point[0], t = a->finished ? point[0] : point[1];
  const int64_t from = first_at(a, point, a->finished ? 1 : 2);
  atoll_err err = a->failed == ATOLL_OK ? advance(a, from, in[0].data, in[1].data, out->data) : a->failed;
  if (err == ATOLL_OK)
    err = finish_episodes(a, i, t, from, out->data);
  ATOLL_TRY(placed(a, err, i, t));
  if (a->failed != ATOLL_OK)
    give_nothing(a, width_of(a->env), out->data);
  return ATOLL_OK;
}

/* The environments that are built in. */
#include <math.h>

#include "rl_impl.h"

/* ---- cartpole: a pole on a cart that is pushed left or right (Barto, Sutton and Anderson, 1983), with the constants
 * and limits by which it is usually called solved: a mean return of 475 of 500 ---- */

enum { CART_X, CART_V, POLE_ANGLE, POLE_RATE, CART_AGE, CART_STATE };
enum { CART_LIMIT = 500 };

static int cartpole_start(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state) {
  (void)self;
  (void)first;
  for (int64_t b = 0; b < n; b++) {
    for (int k = 0; k < CART_AGE; k++)
      state[b * CART_STATE + k] = 0.1f * noise[b * CART_STATE + k] - 0.05f;
    state[b * CART_STATE + CART_AGE] = 0;
  }
  return 0;
}

static void cartpole_one(const float *s, int32_t action, float *result) {
  const double gravity = 9.8, pole = 0.1, total = 1.0 + pole, half = 0.5, dt = 0.02;
  double force = action ? 10 : -10, c = cos(s[POLE_ANGLE]), sine = sin(s[POLE_ANGLE]);
  double push = (force + pole * half * s[POLE_RATE] * s[POLE_RATE] * sine) / total;
  double angular = (gravity * sine - c * push) / (half * (4.0 / 3 - pole * c * c / total));
  double acceleration = push - pole * half * angular * c / total;
  result[CART_X] = (float)(s[CART_X] + dt * s[CART_V]);
  result[CART_V] = (float)(s[CART_V] + dt * acceleration);
  result[POLE_ANGLE] = (float)(s[POLE_ANGLE] + dt * s[POLE_RATE]);
  result[POLE_RATE] = (float)(s[POLE_RATE] + dt * angular);
  result[CART_AGE] = s[CART_AGE] + 1;
  int fallen = fabsf(result[CART_X]) > 2.4f || fabsf(result[POLE_ANGLE]) > 0.2094395f;
  result[CART_STATE] = 1;
  result[CART_STATE + 1] = fallen || result[CART_AGE] >= CART_LIMIT;
}

static int cartpole_step(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action,
                         float *result) {
  (void)self;
  for (int64_t b = 0; b < n; b++)
    cartpole_one(state + b * CART_STATE, action[b], result + b * (CART_STATE + 2));
  return 0;
}

const atoll_rl_env rl_cartpole = {.version = ATOLL_RL_ENV_VERSION,
                                  .name = "cartpole",
                                  .state = CART_STATE,
                                  .observation = CART_AGE,
                                  .actions = 2,
                                  .limit = CART_LIMIT,
                                  .start = cartpole_start,
                                  .step = cartpole_step};

/* ---- grid: from anywhere to the corner of a square of 8 x 8 places, in few steps ---- */

enum { GRID_X, GRID_Y, GRID_AGE, GRID_STATE };
enum { GRID_SIDE = 8, GRID_LIMIT = 64 };

/* Places are -1 ... 1, so that they are observations as they are. */
static float place(float number) { return 2 * number / (GRID_SIDE - 1) - 1; }
static float number(float place) { return roundf((place + 1) * (GRID_SIDE - 1) / 2); }

static int grid_start(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state) {
  (void)self;
  (void)first;
  for (int64_t b = 0; b < n; b++) {
    float *s = state + b * GRID_STATE;
    s[GRID_X] = place(floorf(GRID_SIDE * noise[b * GRID_STATE]));
    s[GRID_Y] = place(floorf((GRID_SIDE - 1) * noise[b * GRID_STATE + 1])); /* never in the goal's row */
    s[GRID_AGE] = 0;
  }
  return 0;
}

static int grid_step(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action, float *result) {
  static const float dx[] = {1, -1, 0, 0}, dy[] = {0, 0, 1, -1};
  (void)self;
  for (int64_t b = 0; b < n; b++) {
    const float *s = state + b * GRID_STATE;
    float *r = result + b * (GRID_STATE + 2);
    float x = fminf(fmaxf(number(s[GRID_X]) + dx[action[b]], 0), GRID_SIDE - 1);
    float y = fminf(fmaxf(number(s[GRID_Y]) + dy[action[b]], 0), GRID_SIDE - 1);
    int there = x == GRID_SIDE - 1 && y == GRID_SIDE - 1;
    r[GRID_X] = place(x);
    r[GRID_Y] = place(y);
    r[GRID_AGE] = s[GRID_AGE] + 1;
    r[GRID_STATE] = there ? 1 : -1.0f / GRID_LIMIT;
    r[GRID_STATE + 1] = there || r[GRID_AGE] >= GRID_LIMIT;
  }
  return 0;
}

const atoll_rl_env rl_grid = {.version = ATOLL_RL_ENV_VERSION,
                              .name = "grid",
                              .state = GRID_STATE,
                              .observation = GRID_AGE,
                              .actions = 4,
                              .limit = GRID_LIMIT,
                              .start = grid_start,
                              .step = grid_step};

/* ---- free: next to nothing is computed, so that a program's own time shows ---- */

/* Element i of all environments' first states is a hash of i, which other programs can compute as well. */
static int free_start(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state) {
  (void)noise;
  for (int64_t i = 0; i < n * self->state; i++) {
    uint32_t bits = (uint32_t)(first * self->state + i) * UINT32_C(2654435761);
    state[i] = (float)(bits >> 8) / (float)(1 << 24) - 0.5f;
  }
  return 0;
}

static int free_step(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action, float *result) {
  const int64_t width = self->state;
  for (int64_t b = 0; b < n; b++) {
    const float *s = state + b * width, push = 0.1f * (float)(2 * action[b] - 1);
    float *r = result + b * (width + 2), sum = 0;
    for (int64_t k = 0; k < width; k++) {
      r[k] = 0.9f * s[k] + push;
      sum += r[k] * r[k];
    }
    r[width] = 1 - sum / (float)width;
    r[width + 1] = 0;
  }
  return 0;
}

const atoll_rl_env rl_free = {.version = ATOLL_RL_ENV_VERSION,
                              .name = "free",
                              .state = 4,
                              .observation = 4,
                              .actions = 2,
                              .endless = 1,
                              .start = free_start,
                              .step = free_step};

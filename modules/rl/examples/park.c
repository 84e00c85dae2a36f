#include <math.h>

#include "atoll/rl.h"

enum { X, V, AGE, STATE, REWARD = STATE, END, WIDTH };

static int start(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state) {
  (void)self, (void)first;
  for (int64_t b = 0; b < n; b++, noise += STATE, state += STATE) {
    state[X] = 2 * noise[X] - 1;
    state[V] = state[AGE] = 0;
  }
  return 0;
}

static int step(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action, float *result) {
  for (int64_t b = 0; b < n; b++, state += STATE, result += WIDTH) {
    result[V] = state[V] + 0.1f * (float)(action[b] - 1); /* 0, 1, 2: left, not at all, right */
    result[X] = state[X] + 0.1f * result[V];
    result[AGE] = state[AGE] + 1;
    result[REWARD] = 1 - fabsf(result[X]);
    result[END] = fabsf(result[X]) > 2 || result[AGE] >= (float)self->limit;
  }
  return 0;
}

const atoll_rl_env *atoll_rl_env_v1(void);
const atoll_rl_env *atoll_rl_env_v1(void) {
  static const atoll_rl_env env = {.version = ATOLL_RL_ENV_VERSION,
                                   .name = "park",
                                   .state = STATE,
                                   .observation = AGE,
                                   .actions = 3,
                                   .limit = 100,
                                   .start = start,
                                   .step = step};
  return &env;
}

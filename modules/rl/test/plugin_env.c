/* A shared object with an environment, right or wrong in a way that is chosen when it is compiled. */
#include <math.h>

#include "atoll/rl.h"

#ifndef WRONG
#define WRONG 0
#endif
enum { RIGHT, VERSION, NUMBER, SHORT, LONG, CODE, END, PART, ENDED, STATE, ACTION, LATE };

static int start(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state) {
  for (int64_t k = 0; k < n * self->state; k++)
    state[k] = noise[k];
  for (int64_t b = 0; b < n; b++)
    state[(b + 1) * self->state - 1] = (float)(first + b); /* which is not observed */
  return 0;
}

static int step(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action, float *result) {
  const int64_t width = self->state + 2;
  (void)action;
  for (int64_t b = 0; b < n; b++) {
    for (int64_t k = 0; k < self->state; k++)
      result[b * width + k] = WRONG == NUMBER && b == 1 ? NAN : state[b * self->state + k];
    result[b * width + width - 2] = 1;
    if (WRONG != SHORT)
      result[b * width + width - 1] = WRONG == END ? 0.5f : WRONG == ENDED;
  }
  if (WRONG == STATE)
    ((float *)state)[self->state + 1] += 1;
  if (WRONG == ACTION)
    ((int32_t *)action)[0] ^= 1;
  if (WRONG == LONG)
    result[n * width] = 1;
  /* PART: only where environments from the fifth on are */
  return WRONG == CODE || (WRONG == PART && state[self->state - 1] >= 4) ? 7 : 0;
}

const atoll_rl_env *atoll_rl_env_v1(void);
const atoll_rl_env *atoll_rl_env_v1(void) {
  static const atoll_rl_env env = {.version = WRONG == VERSION ? 99 : ATOLL_RL_ENV_VERSION,
                                   .name = "mine",
                                   .state = 3,
                                   .observation = 2,
                                   .actions = 2,
                                   .limit = WRONG == LATE ? 2 : 0,
                                   .endless = WRONG != LATE,
                                   .start = start,
                                   .step = step};
  return &env;
}

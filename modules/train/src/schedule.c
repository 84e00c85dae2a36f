/* Orders: of a replica's work within a step, and of the learning rate over steps. Pure functions. */
#include "atoll/train.h"

#include <math.h>

void atoll_schedule_1f1b(int in_flight, int64_t first, int64_t count, atoll_action *out) {
  int64_t warmup = in_flight < count ? in_flight : count, f = 0, b = 0;
  while (f < warmup)
    *out++ = (atoll_action){0, first + f++};
  while (b < count) {
    *out++ = (atoll_action){1, first + b++};
    if (f < count)
      *out++ = (atoll_action){0, first + f++};
  }
}

double atoll_learning_rate(const atoll_train_params *p, int64_t step) {
  if (step < p->warmup_steps)
    return p->learning_rate * (double)(step + 1) / (double)p->warmup_steps;
  int64_t end = p->decay_steps > 0 ? p->decay_steps : p->steps;
  if (step >= end || end <= p->warmup_steps)
    return step >= end ? p->min_learning_rate : p->learning_rate;
  double share = (double)(step - p->warmup_steps) / (double)(end - p->warmup_steps);
  return p->min_learning_rate +
         0.5 * (1 + cos(share * 3.14159265358979323846)) * (p->learning_rate - p->min_learning_rate);
}

/* Random numbers of the tests of expressions: the same in every run, the wild ones near the limits of int64. */
#ifndef ATOLL_SYM_DRAWS_H
#define ATOLL_SYM_DRAWS_H

#include "atoll/rng.h"

static atoll_rng_key key = {1, 0, 0, 0, ATOLL_RNG_TEST};
static uint64_t drawn;

static uint32_t draw(uint32_t n) { return (uint32_t)((uint64_t)atoll_rng_bits(&key, drawn++) * n >> 32); }

static int64_t draw_int(int wild) {
  switch (draw(wild ? 6 : 2)) {
  case 0:
    return (int64_t)draw(5) - 2;
  case 1:
    return (int64_t)draw(41) - 20;
  case 2:
    return (int64_t)draw(2000001) - 1000000;
  case 3:
    return (int64_t)((uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX));
  case 4:
    return draw(2) ? INT64_MAX - (int64_t)draw(3) : INT64_MIN + (int64_t)draw(3);
  default:
    return (draw(2) ? 1 : -1) * (INT64_C(1) << draw(63));
  }
}

#endif

/** bf16: the upper half of an f32. */
#ifndef ATOLL_BF16_H
#define ATOLL_BF16_H

#include <stdint.h>
#include <string.h>

/** To nearest, ties to even; NaN stays NaN. */
static inline uint16_t atoll_bf16_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  if ((u & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float atoll_bf16_float(uint16_t b) {
  uint32_t u = (uint32_t)b << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

#endif

/** Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011). A number is a pure function of its key, so it
 *  does not depend on ranks, plans or order, and nothing needs to be stored. */
#ifndef ATOLL_RNG_H
#define ATOLL_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/api.h"

ATOLL_BEGIN_C

/** The bare function: counter[4], key[2] -> out[4]. */
ATOLL_API void atoll_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/** What a number is keyed by. Distinct (key, element) with step < 2^32, sample < 2^32, layer < 2^16, site < 2^8 and
 *  element < 2^42 never share a Philox counter and key (the seed is the key); beyond that range they collide only as a
 *  64-bit hash does (rng.c). `site` tells uses apart inside a layer (see atoll_rng_site). */
typedef struct atoll_rng_key {
  uint64_t seed;
  uint64_t step;
  uint64_t sample; /* global sample index within the step, or tensor index at initialisation */
  uint32_t layer;
  uint32_t site;
} atoll_rng_key;

typedef enum atoll_rng_site {
  ATOLL_RNG_INIT = 1,
  ATOLL_RNG_DATA,
  ATOLL_RNG_DROP_EMBED,
  ATOLL_RNG_DROP_ATTENTION,
  ATOLL_RNG_DROP_PROJ,
  ATOLL_RNG_DROP_MLP,
  ATOLL_RNG_TEST,
  ATOLL_RNG_SAMPLE,
  ATOLL_RNG_RECURRENT,
  ATOLL_RNG_ROUND
} atoll_rng_site;

/** 32 random bits of global element e. */
ATOLL_API uint32_t atoll_rng_bits(const atoll_rng_key *key, uint64_t element);
/** Uniform in [0, 1) with 24 bits. */
ATOLL_API float atoll_rng_uniform(const atoll_rng_key *key, uint64_t element);
/** Elements first .. first+n-1; equal to n single calls (each Philox call serves 4 elements). */
ATOLL_API void atoll_rng_fill_bits(const atoll_rng_key *key, uint64_t first, size_t n, uint32_t *out);
/** Standard normal (Box-Muller on two elements' bits, in double, rounded once). */
ATOLL_API void atoll_rng_fill_normal(const atoll_rng_key *key, uint64_t first, size_t n, float stddev, float *out);
/** Bijection of [0, n): position -> element, a pure function of seed and epoch (cycle-walking Feistel network on
 *  Philox). */
ATOLL_API uint64_t atoll_rng_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t position);

ATOLL_END_C
#endif

/* Counter-based random numbers.
 *
 * Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011) maps a 128-bit
 * counter and a 64-bit key to 128 random bits; for a fixed key it is a bijection, so distinct counters never give the
 * same block. The fields of atoll_rng_key are laid out so that in the range below each (step, sample, layer, site,
 * block) has its own counter:
 *
 *     block     = element / 4, word = element % 4          (one call serves four elements)
 *     counter 0 = block bits 0..31
 *     counter 1 = step bits 0..31
 *     counter 2 = sample bits 0..31
 *     counter 3 = block bits 32..39 | site bits 0..7 << 8 | layer bits 0..15 << 16
 *     key       = seed, low word first
 *
 *     exact for    step < 2^32, sample < 2^32, layer < 2^16, site < 2^8, element < 2^42, any seed
 *
 * A field beyond its range is not cut off: what is left of all fields (step >> 32, and so on) is hashed by two Philox
 * calls into 64 bits and XORed to the key. With nothing left over the hash is skipped and the key is the seed itself.
 * Outside the range distinct keys therefore collide only as a 64-bit hash does.
 *
 * Filling is vectorised by hand where the CPU has AVX2 or AVX-512 (chosen at run time): each 64-bit lane holds one
 * 32-bit word, the widening multiplication ignores the upper halves, and so no masking is needed between rounds. All
 * variants give the same bits.
 *
 * Normals use logarithm and sine written out in + - * / and sqrt, which IEEE 754 rounds exactly, instead of the C
 * library's: those differ in the last bit between library versions and CPUs, and a job on mixed nodes must initialise
 * the same weights everywhere. */
#include "atoll/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define RNG_X86 1
#endif

#define M0     UINT32_C(0xD2511F53)
#define M1     UINT32_C(0xCD9E8D57)
#define W0     UINT32_C(0x9E3779B9)
#define W1     UINT32_C(0xBB67AE85)
#define ROUNDS 10

static inline void philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1,
                          uint32_t out[4]) {
  for (int r = 0; r < ROUNDS; r++) {
    uint64_t p0 = (uint64_t)M0 * c0, p1 = (uint64_t)M1 * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += W0;
    k1 += W1;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

void atoll_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  philox(counter[0], counter[1], counter[2], counter[3], key[0], key[1], out);
}

/* ---- key -> counter ---- */

#define BLOCK_BITS 40

/* Everything but counter 0; valid for blocks that share block >> 32. */
struct stream {
  uint32_t c1, c2, c3, k0, k1;
};

static struct stream stream_of(const atoll_rng_key *key, uint64_t block) {
  struct stream s;
  s.c1 = (uint32_t)key->step;
  s.c2 = (uint32_t)key->sample;
  s.c3 = (uint32_t)(block >> 32 & 0xFF) | (key->site & 0xFF) << 8 | (key->layer & 0xFFFF) << 16;
  s.k0 = (uint32_t)key->seed;
  s.k1 = (uint32_t)(key->seed >> 32);
  uint32_t step_rest = (uint32_t)(key->step >> 32), sample_rest = (uint32_t)(key->sample >> 32);
  uint32_t layer_rest = key->layer >> 16, site_rest = key->site >> 8, block_rest = (uint32_t)(block >> BLOCK_BITS);
  if (step_rest | sample_rest | layer_rest | site_rest | block_rest) {
    uint32_t h[4];
    philox(step_rest, sample_rest, layer_rest, site_rest, block_rest, UINT32_C(0x41544F4C), h);
    philox(h[0], h[1], h[2], h[3], block_rest, UINT32_C(0x4C52454D), h);
    s.k0 ^= h[0];
    s.k1 ^= h[1];
  }
  return s;
}

uint32_t atoll_rng_bits(const atoll_rng_key *key, uint64_t element) {
  uint32_t out[4];
  uint64_t block = element >> 2;
  struct stream s = stream_of(key, block);
  philox((uint32_t)block, s.c1, s.c2, s.c3, s.k0, s.k1, out);
  return out[element & 3];
}

float atoll_rng_uniform(const atoll_rng_key *key, uint64_t element) {
  return (float)(atoll_rng_bits(key, element) >> 8) * 0x1p-24f;
}

/* ---- whole blocks: counter 0 = c0 .. c0 + blocks - 1 without wrapping ---- */

typedef size_t (*fill_blocks)(const struct stream *s, uint32_t c0, size_t blocks, uint32_t *out);

static size_t fill_plain(const struct stream *s, uint32_t c0, size_t blocks, uint32_t *out) {
  for (size_t b = 0; b < blocks; b++)
    philox(c0 + (uint32_t)b, s->c1, s->c2, s->c3, s->k0, s->k1, out + 4 * b);
  return blocks;
}

#ifdef RNG_X86
/* Each variant does a multiple of its width and returns how many blocks that was. Two independent chains hide the
 * multiplier's latency. */
__attribute__((target("avx2"))) static size_t fill_avx2(const struct stream *s, uint32_t c0, size_t blocks,
                                                        uint32_t *out) {
  const __m256i m0 = _mm256_set1_epi64x((long long)M0), m1 = _mm256_set1_epi64x((long long)M1);
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFFLL), lane = _mm256_set_epi64x(3, 2, 1, 0);
  size_t b = 0;
  for (; b + 8 <= blocks; b += 8, out += 32) {
    __m256i x[2][4];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      x[h][0] = _mm256_add_epi64(_mm256_set1_epi64x((long long)c0 + (long long)b + 4 * h), lane);
      x[h][1] = _mm256_set1_epi64x((long long)s->c1);
      x[h][2] = _mm256_set1_epi64x((long long)s->c2);
      x[h][3] = _mm256_set1_epi64x((long long)s->c3);
    }
    uint32_t k0 = s->k0, k1 = s->k1;
    for (int r = 0; r < ROUNDS; r++, k0 += W0, k1 += W1) {
      const __m256i q0 = _mm256_set1_epi64x((long long)k0), q1 = _mm256_set1_epi64x((long long)k1);
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++) {
        __m256i p0 = _mm256_mul_epu32(x[h][0], m0), p1 = _mm256_mul_epu32(x[h][2], m1);
        x[h][0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), x[h][1]), q0);
        x[h][1] = p1;
        x[h][2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), x[h][3]), q1);
        x[h][3] = p0;
      }
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      __m256i a = _mm256_or_si256(_mm256_and_si256(x[h][0], low), _mm256_slli_epi64(x[h][1], 32));
      __m256i d = _mm256_or_si256(_mm256_and_si256(x[h][2], low), _mm256_slli_epi64(x[h][3], 32));
      __m256i even = _mm256_unpacklo_epi64(a, d), odd = _mm256_unpackhi_epi64(a, d);
      _mm256_storeu_si256((__m256i *)(void *)(out + 16 * h), _mm256_permute2x128_si256(even, odd, 0x20));
      _mm256_storeu_si256((__m256i *)(void *)(out + 16 * h + 8), _mm256_permute2x128_si256(even, odd, 0x31));
    }
  }
  return b;
}

__attribute__((target("avx512f"))) static size_t fill_avx512(const struct stream *s, uint32_t c0, size_t blocks,
                                                             uint32_t *out) {
  const __m512i m0 = _mm512_set1_epi64((long long)M0), m1 = _mm512_set1_epi64((long long)M1);
  const __m512i low = _mm512_set1_epi64(0xFFFFFFFFLL), lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  size_t b = 0;
  for (; b + 16 <= blocks; b += 16, out += 64) {
    __m512i x[2][4];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      x[h][0] = _mm512_add_epi64(_mm512_set1_epi64((long long)c0 + (long long)b + 8 * h), lane);
      x[h][1] = _mm512_set1_epi64((long long)s->c1);
      x[h][2] = _mm512_set1_epi64((long long)s->c2);
      x[h][3] = _mm512_set1_epi64((long long)s->c3);
    }
    uint32_t k0 = s->k0, k1 = s->k1;
    for (int r = 0; r < ROUNDS; r++, k0 += W0, k1 += W1) {
      const __m512i q0 = _mm512_set1_epi64((long long)k0), q1 = _mm512_set1_epi64((long long)k1);
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++) {
        __m512i p0 = _mm512_mul_epu32(x[h][0], m0), p1 = _mm512_mul_epu32(x[h][2], m1);
        x[h][0] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), x[h][1], q0, 0x96); /* a ^ b ^ c */
        x[h][1] = p1;
        x[h][2] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), x[h][3], q1, 0x96);
        x[h][3] = p0;
      }
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      __m512i a = _mm512_or_si512(_mm512_and_si512(x[h][0], low), _mm512_slli_epi64(x[h][1], 32));
      __m512i d = _mm512_or_si512(_mm512_and_si512(x[h][2], low), _mm512_slli_epi64(x[h][3], 32));
      _mm512_storeu_si512(out + 32 * h, _mm512_permutex2var_epi64(a, first, d));
      _mm512_storeu_si512(out + 32 * h + 16, _mm512_permutex2var_epi64(a, second, d));
    }
  }
  return b;
}
#endif

static fill_blocks fill_best(void) {
#ifdef RNG_X86
  if (__builtin_cpu_supports("avx512f"))
    return fill_avx512;
  if (__builtin_cpu_supports("avx2"))
    return fill_avx2;
#endif
  return fill_plain;
}

void atoll_rng_fill_bits(const atoll_rng_key *key, uint64_t first, size_t n, uint32_t *out) {
  for (; n && (first & 3); n--)
    *out++ = atoll_rng_bits(key, first++);
  fill_blocks fast = fill_best();
  uint64_t block = first >> 2;
  for (size_t blocks = n >> 2; blocks;) { /* one turn unless the fill passes a multiple of 2^32 blocks */
    struct stream s = stream_of(key, block);
    uint32_t c0 = (uint32_t)block;
    uint64_t room = (UINT64_C(1) << 32) - c0;
    size_t m = blocks < room ? blocks : (size_t)room;
    size_t done = fast(&s, c0, m, out);
    (void)fill_plain(&s, c0 + (uint32_t)done, m - done, out + 4 * done);
    out += 4 * m;
    block += m;
    blocks -= m;
  }
  for (size_t i = 0; i < (n & 3); i++)
    out[i] = atoll_rng_bits(key, 4 * block + i);
}

/* ---- normals ---- */

/* Contraction to FMA would make normals depend on the instruction set. GCC in ISO mode (-std=c11) does not contract;
 * clang is told. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

/* Natural logarithm of x in (0, 1], relative error below 4e-16: log(m 2^e) = e log 2 + 2 artanh((m-1)/(m+1)), m in
 * [sqrt 1/2, sqrt 2). */
static double plain_log(double x) {
  int e;
  double m = frexp(x, &e);
  if (m < 0.70710678118654752440) {
    m *= 2;
    e--;
  }
  double s = (m - 1) / (m + 1), z = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) /* |s| < 0.1716, so the first term left out is below 1e-20 */
    sum = (sum + 1.0 / k) * z;
  return e * 0.69314718055994530942 + 2 * (s + s * sum);
}

/* Cosine and sine of 2 pi b / 2^32, absolute error below 3e-16. The angle is quadrant * pi/2 + pi/4 + x with |x| <=
 * pi/4. */
static void plain_circle(uint32_t b, double *cosine, double *sine) {
  double x = ((double)(b & 0x3FFFFFFF) * 0x1p-30 - 0.5) * 1.57079632679489661923;
  double z = x * x, c = 1, s = 1;
  for (int k = 18; k >= 2; k -= 2) { /* Taylor series by Horner: cos = 1 - z/2 (1 - z/12 (1 - ...)) */
    c = 1 - z / (double)(k * (k - 1)) * c;
    s = 1 - z / (double)(k * (k + 1)) * s;
  }
  s *= x;
  const double half = 0.70710678118654752440;
  double cq = half * (c - s), sq = half * (c + s); /* of pi/4 + x */
  switch (b >> 30) {
  case 0:
    *cosine = cq, *sine = sq;
    break;
  case 1:
    *cosine = -sq, *sine = cq;
    break;
  case 2:
    *cosine = -cq, *sine = -sq;
    break;
  default:
    *cosine = sq, *sine = -cq;
    break;
  }
}

void atoll_rng_fill_normal(const atoll_rng_key *key, uint64_t first, size_t n, float stddev, float *out) {
  uint32_t bits[256];
  size_t skip = (size_t)(first & 1), done = 0;
  uint64_t e = first - skip; /* pairs start at even elements: the even one gets the cosine, the odd one the sine */
  while (done < n) {
    size_t want = n - done + skip, m = want < 256 ? (want + 1) & ~(size_t)1 : 256;
    atoll_rng_fill_bits(key, e, m, bits);
    for (size_t i = 0; i < m; i += 2) {
      double radius = sqrt(-2 * plain_log(((double)bits[i] + 1) * 0x1p-32)), c, s;
      plain_circle(bits[i + 1], &c, &s);
      if (i >= skip && done < n)
        out[done++] = (float)((double)stddev * (radius * c));
      if (done < n)
        out[done++] = (float)((double)stddev * (radius * s));
    }
    skip = 0;
    e += m;
  }
}

/* ---- permutation ----
 *
 * An unbalanced Feistel network permutes [0, 2^bits) with 2^bits < 2 n; a result outside [0, n) is fed back until it
 * falls inside (cycle walking, Black and Rogaway 2002), which keeps it a bijection of [0, n) and takes fewer than two
 * turns on average. The round function is Philox under a key derived from the seed, so that orders share no block with
 * the numbers of atoll_rng_bits(). */

#define FEISTEL_ROUNDS 8 /* even, so that the halves end where they began */

uint64_t atoll_rng_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t position) {
  assert(position < n);
  if (n < 2)
    return 0;
  int bits = 1;
  while (bits < 64 && (n - 1) >> bits)
    bits++;
  if (bits < 2)
    bits = 2; /* both halves need a bit */
  int wide[2] = {bits / 2, bits - bits / 2};
  uint32_t h[4];
  philox((uint32_t)seed, (uint32_t)(seed >> 32), 0, 0, UINT32_C(0x7065726D), UINT32_C(0x75746521), h);
  uint32_t k0 = h[0], k1 = h[1];
  uint64_t x = position;
  do {
    uint64_t right = x & ((UINT64_C(1) << wide[1]) - 1), left = x >> wide[1];
    for (int r = 0; r < FEISTEL_ROUNDS; r++) {
      uint64_t mask = (UINT64_C(1) << wide[r & 1]) - 1; /* width of what is now left */
      philox((uint32_t)right, (uint32_t)r, (uint32_t)epoch, (uint32_t)(epoch >> 32), k0, k1, h);
      uint64_t mixed = (left ^ h[0]) & mask;
      left = right;
      right = mixed;
    }
    x = left << wide[1] | right;
  } while (x >= n);
  return x;
}

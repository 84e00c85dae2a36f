/* Inside of ctapipe: products of one tile on the calling thread, written once in vector types of the compiler
 * (micro.inc) and compiled for each instruction set; the best one that the CPU has is taken at run time.
 *
 * Every element is one chain of multiply-adds in ascending k, whatever the blocks: it starts from the bias, rests in C
 * between blocks of k, and is rounded nowhere else. So the bits of a result depend neither on the tiles nor on who
 * computes which: the schedules of this module agree bit for bit because of this rule. */
#ifndef ATOLL_CTA_MICRO_H
#define ATOLL_CTA_MICRO_H

#include <stdint.h>

/* Columns of a tile, which is also the depth of one step of k in the layer that reads the tile, and the distance
 * between rows of a tile in memory: rows of a tile are neighbours, and the next tile follows. */
#define CTA_TILE 256

struct cta_micro {
  const char *name;
  int cols; /* columns of a packed panel of weights */
  /* c[m, n] = (start or c) + a[m, k] b, k at most CTA_TILE, rows of a CTA_TILE apart. b is packed: panels of `cols`
   * columns, each [k][cols], the last padded. start [n] (NULL: zeros) opens the sum when `first`; relu clips what is
   * stored. */
  void (*block)(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c, int64_t ldc, int first,
                const float *start, int relu);
  /* c[m, n] += a^T b with a [k, m], for gradients of weights; room [m, k] takes a in the order in which it is read. */
  void (*block_turned)(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                       float *room);
};

extern const struct cta_micro cta_micro_plain, cta_micro_avx2, cta_micro_avx512;
/* ATOLL_TEST_VECTORS=plain|avx2|avx512 overrides, when the CPU has it. */
const struct cta_micro *cta_micro_best(void);

/* Elements of packed weights for a step of k rows and n columns, and the packing of w(k0 + i, j) = w[(k0+i) * ks + j *
 * ns]. */
int64_t cta_packed(const struct cta_micro *micro, int64_t k, int64_t n);
void cta_pack(const struct cta_micro *micro, int64_t k, int64_t n, const float *w, int64_t ks, int64_t ns, float *out);

#endif

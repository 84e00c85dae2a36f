/** For people who add a device whose chains of GEMMs run through atoll/ctapipe.h: a plug-in (plugin.h) points its
 * member `chain` at such a table.
 *
 *  Functions are called from tasks of the device's queues and enqueue on the stream that the task was given. Numbers
 * are bf16, sums and biases f32. Matrices are row-major without gaps, their widths multiples of 8, addresses multiples
 * of 16 bytes. */
#ifndef ATOLL_CTAPIPE_DEVICE_H
#define ATOLL_CTAPIPE_DEVICE_H

#include "atoll/ctapipe.h"

ATOLL_BEGIN_C

enum { ATOLL_CHAIN_GATE = 32 };

/** One product of a launch, and what its tiles wait for and tell: c = activation(a b^T + bias), or through a slope
 * c = a b^T * slope'(at), or the gradient of weights c = a^T b. Flags are words `flag_stride` apart, one a tile of
 * tile_rows x tile_cols of products, [panels of rows, tiles of columns]; a flag is set when it is not behind the
 * launch's epoch, as signed difference.
 *
 * SwiGLU: ATOLL_CHAIN_GATE rows of V and as many of W take turns in b, n counts both, a multiple of two turns, and so
 * do columns of `before`; c is [m, n / 2]. Its slope: `at` and c are [m, 2 n] in that order. A tile of products then
 * covers half as many columns of c, or twice as many. */
typedef struct atoll_chain_gemm {
  int weight;        /* 1: the gradient */
  const void *a;     /* [m, k], of a gradient [k, m] */
  const void *b;     /* [n, k], of a gradient [k, n] */
  void *c;           /* [m, n], of a gradient f32; may be in another device's memory */
  const float *bias; /* [n]; NULL: none */
  float *column;     /* gradient: [m] sums of a's columns; NULL: not wanted */
  void *before;      /* [m, n]: what the activation is applied to, for backward; NULL: not kept */
  const void *at;    /* [m, n]: `before`, or results of a ReLU, where the slope is taken */
  int m, n, k;
  atoll_activation activation, slope;
  int from;                 /* the job of the launch that makes a; -1: a is whole */
  int own;                  /* this rank's job: it takes its tiles first */
  const uint32_t *ready_in; /* of a's tiles; NULL: a is whole */
  int ready_columns;        /* of a, that one of its tiles covers */
  uint32_t *ready_out;      /* of c's tiles, beside c; NULL: nobody waits for tiles */
  uint64_t *claim;          /* turn << 32 | tiles taken, in the job's owner's memory */
} atoll_chain_gemm;

enum { ATOLL_CHAIN_JOBS = ATOLL_CHAIN_LAYERS };

/** Every rank launches the same jobs, products before gradients. */
typedef struct atoll_chain_launch {
  const atoll_chain_gemm *job; /* [jobs], at most ATOLL_CHAIN_JOBS; read by the call alone */
  int jobs, products;
  int claims;        /* tiles of jobs that are not own are taken, too */
  int group;         /* panels that share a pass over b */
  uint32_t epoch;    /* of flags */
  uint32_t turn;     /* of claims: the word of another turn counts from zero */
  uint32_t *gave_up; /* 0; who waits looks, and ends when it is not */
} atoll_chain_launch;

typedef struct atoll_chain_device {
  const char *device; /* kind */
  int tile_rows, tile_cols, flag_stride;
  /** Blocks of `tiles` that the current device runs at the same time, and whether it may take tiles of the others it
   * sees (they have atomics on their link). */
  atoll_err (*resident)(int *blocks, int *claims);
  /** The tile kernel with `blocks` blocks. */
  atoll_err (*tiles)(void *stream, const atoll_chain_launch *l, int blocks);
  /** A product by the vendor's library, without flags; sums [m, n] is room. */
  atoll_err (*library)(void *stream, const atoll_chain_gemm *g, float *sums);
  /** The stream sets *flag when all before is done and visible to other devices ... */
  atoll_err (*write)(void *stream, uint32_t *flag, uint32_t value);
  /** ... and goes on when the flag is not behind value. */
  atoll_err (*wait)(void *stream, uint32_t *flag, uint32_t value);
} atoll_chain_device;

ATOLL_END_C
#endif

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

/** c = activation(a b^T + bias), and what it waits for and tells. Flags are words `flag_stride` apart, one a tile of
 * tile_rows x tile_cols, [panels of rows, tiles of columns]; a flag is set when it is not behind the epoch, as signed
 * difference. */
typedef struct atoll_chain_gemm {
  const void *a;     /* [m, k] */
  const void *b;     /* [n, k] */
  void *c;           /* [m, n]; may be in another device's memory */
  const float *bias; /* [n] */
  int m, n, k;
  atoll_activation activation;
  const uint32_t *ready_in; /* of a's tiles; NULL: a is whole */
  uint32_t *ready_out;      /* of c's tiles, beside c; NULL: nobody waits for tiles */
  uint32_t epoch;
  uint32_t *next;    /* 0 when the launch begins: tiles handed out */
  uint32_t *gave_up; /* 0; who waits looks, and ends when it is not */
  int group;         /* panels that share a pass over b */
  float *sums;       /* [m, n]: room for `library` */
} atoll_chain_gemm;

typedef struct atoll_chain_device {
  const char *device; /* kind */
  int tile_rows, tile_cols, flag_stride;
  /** Blocks of `tiles` that the current device runs at the same time. */
  atoll_err (*resident)(int *blocks);
  /** The tile kernel with `blocks` blocks. */
  atoll_err (*tiles)(void *stream, const atoll_chain_gemm *g, int blocks);
  /** The same product by the vendor's library, without flags. */
  atoll_err (*library)(void *stream, const atoll_chain_gemm *g);
  /** The stream sets *flag when all before is done and visible to other devices ... */
  atoll_err (*write)(void *stream, uint32_t *flag, uint32_t value);
  /** ... and goes on when the flag is not behind value. */
  atoll_err (*wait)(void *stream, uint32_t *flag, uint32_t value);
} atoll_chain_device;

ATOLL_END_C
#endif

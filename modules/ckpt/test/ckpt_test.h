/* Tensors for the tests: values are a function of name and element, so that any block can be checked alone. */
#ifndef ATOLL_CKPT_TEST_H
#define ATOLL_CKPT_TEST_H

#include "atoll/ckpt.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/file.h"

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s is false; last message: %s\n", __FILE__, __LINE__, #condition, atoll_err_message());  \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                                    \
    }                                                                                                                  \
  } while (0)

static inline float value_of(const char *name, int64_t element) {
  uint32_t h = 2166136261u;
  for (; *name; name++)
    h = (h ^ (unsigned char)*name) * 16777619u;
  return (float)((h + (uint32_t)element * 2654435761u) >> 8);
}

/* A block [start, start + count) of a logical tensor, filled (or poisoned). */
static inline void make_block(atoll_tensor *t, const char *name, int ndim, const int64_t *global, const int64_t *start,
                              const int64_t *count, int fill) {
  CHECK(atoll_tensor_init(t, name, ATOLL_F32, ndim, global, NULL) == ATOLL_OK);
  int64_t n = 1;
  for (int i = 0; i < ndim; i++) {
    t->start[i] = start ? start[i] : 0;
    t->local[i] = count ? count[i] : global[i];
    n *= t->local[i];
  }
  float *v = malloc((size_t)(n ? n : 1) * sizeof *v);
  CHECK(v != NULL);
  for (int64_t e = 0; e < n; e++) {
    int64_t rest = e, index = 0, scale = 1;
    for (int i = ndim - 1; i >= 0; i--) {
      index += (t->start[i] + rest % t->local[i]) * scale;
      rest /= t->local[i];
      scale *= t->global[i];
    }
    v[e] = fill ? value_of(name, index) : -1;
  }
  t->data = v;
}

static inline int block_is_right(const atoll_tensor *t) {
  atoll_tensor want;
  make_block(&want, t->name, t->ndim, t->global, t->start, t->local, 1);
  int same = memcmp(want.data, t->data, (size_t)atoll_tensor_local_bytes(t)) == 0;
  free(want.data);
  return same;
}

/* The test's model: a matrix, a vector, a scalar-like tensor and one of three dimensions, as `parts` row shares; the
 * last rank gives none. */
enum { TEST_TENSORS = 4 };
static inline int make_model(atoll_tensor *t, int rank, int size, int fill) {
  static const char *const name[TEST_TENSORS] = {"param/w", "param/b", "moment1/one", "moment2/cube"};
  static const int64_t shape[TEST_TENSORS][3] = {{37, 11, 0}, {101, 0, 0}, {1, 0, 0}, {5, 4, 3}};
  static const int ndim[TEST_TENSORS] = {2, 1, 1, 3};
  int givers = size > 1 ? size - 1 : 1;
  if (rank >= givers)
    return 0;
  for (int i = 0; i < TEST_TENSORS; i++) {
    atoll_tensor whole, part;
    CHECK(atoll_tensor_init(&whole, name[i], ATOLL_F32, ndim[i], shape[i], NULL) == ATOLL_OK);
    atoll_ckpt_share(&whole, rank, givers, &part);
    make_block(&t[i], name[i], ndim[i], shape[i], part.start, part.local, fill);
  }
  return TEST_TENSORS;
}

static inline void free_model(atoll_tensor *t, int n) {
  for (int i = 0; i < n; i++)
    free(t[i].data);
}

static inline atoll_err save_model(MPI_Comm comm, const char *dir, int64_t step, int attempt, int finite) {
  atoll_tensor t[TEST_TENSORS];
  int rank, size;
  char made[1024];
  atoll_ckpt_params p;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  atoll_ckpt_params_init(&p);
  int n = make_model(t, rank, size, 1);
  atoll_ckpt_meta m = {.step = step,
                       .attempt = attempt,
                       .seed = 18446744073709551615u,
                       .tokens = step * 100,
                       .finite = finite,
                       .last_loss = finite ? 7.0 / 3 : 0.0 / 0.0,
                       .best_validation = 5.0 / 3,
                       .plan = (char *)(uintptr_t) "version: 1\n",
                       .config = (char *)(uintptr_t) "train.seq: 4\n"};
  snprintf(m.model_digest, sizeof m.model_digest, "%032d", 7);
  snprintf(m.reason, sizeof m.reason, "periodic");
  atoll_err err = atoll_ckpt_save(comm, NULL, NULL, dir, &p, &m, t, n, made, sizeof made);
  free_model(t, n);
  return err;
}

#endif

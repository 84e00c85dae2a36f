/* Rows by a list of their numbers, on host memory: bytes are moved as they are, so all host tables share these. */
#include <string.h>

#include "kernel_impl.h"

typedef struct pick_args {
  const int32_t *targets;
  int32_t *index, *picked;
  int64_t R, most, skip, n;
} pick_args;

static atoll_err pick_task(void *args, void *stream) {
  const pick_args *a = args;
  int64_t seen = 0;
  (void)stream;
  for (int64_t i = 0; i < a->n; i++)
    a->index[i] = a->picked[i] = -1;
  for (int64_t r = 0; r < a->R; r++) {
    if (a->targets[r] < 0)
      continue;
    if (seen >= a->skip && seen < a->skip + a->n) {
      a->index[seen - a->skip] = (int32_t)r;
      a->picked[seen - a->skip] = a->targets[r];
    }
    seen++;
  }
  if (seen > a->most)
    return atoll_fail(ATOLL_USAGE, "%lld rows have a target, at most %lld were announced", (long long)seen,
                      (long long)a->most);
  return ATOLL_OK;
}

atoll_err kernel_pick(atoll_queue *q, const int32_t *targets, int64_t R, int64_t most, int64_t skip, int64_t n,
                      int32_t *index, int32_t *picked) {
  if (R > INT32_MAX)
    return atoll_fail(ATOLL_USAGE, "%lld rows, their numbers are counted in 32 bits", (long long)R);
  pick_args a = {targets, index, picked, R, most, skip, n};
  return atoll_queue_submit(q, pick_task, &a, sizeof a);
}

typedef struct move_args {
  int threads, scatter;
  const char *x;
  const int32_t *index;
  char *y;
  int64_t n;
  size_t bytes;
} move_args;

static atoll_err move_task(void *args, void *stream) {
  const move_args *a = args;
  (void)stream;
#pragma omp parallel for num_threads(a->threads) schedule(static)
  for (int64_t i = 0; i < a->n; i++) {
    size_t listed = (size_t)(a->index[i] < 0 ? 0 : a->index[i]) * a->bytes, here = (size_t)i * a->bytes;
    if (a->index[i] >= 0)
      memcpy(a->y + (a->scatter ? listed : here), a->x + (a->scatter ? here : listed), a->bytes);
    else if (!a->scatter)
      memset(a->y + here, 0, a->bytes);
  }
  return ATOLL_OK;
}

static atoll_err move(atoll_queue *q, int scatter, const void *x, const int32_t *index, void *y, int64_t n,
                      int64_t bytes) {
  move_args a = {atoll_device_threads(atoll_queue_device(q)), scatter, x, index, y, n, (size_t)bytes};
  return atoll_queue_submit(q, move_task, &a, sizeof a);
}

atoll_err kernel_gather(atoll_queue *q, const void *x, const int32_t *index, void *y, int64_t n, int64_t bytes) {
  return move(q, 0, x, index, y, n, bytes);
}

atoll_err kernel_scatter(atoll_queue *q, const void *x, const int32_t *index, void *y, int64_t n, int64_t bytes) {
  return move(q, 1, x, index, y, n, bytes);
}

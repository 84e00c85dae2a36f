/* Windows and batches: which tokens a (seed, step, sample) means. */
#include "atoll/data.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "atoll/rng.h"
#include "data_impl.h"

static int32_t token_at(const data_file *f, int64_t i) {
  const unsigned char *p = f->token + (size_t)(f->first + i) * (size_t)f->width;
  return f->width == 1 ? p[0] : p[0] | p[1] << 8;
}

static const data_file *file_of(const atoll_data *d, int64_t *window) {
  int lo = 0, hi = d->files - 1;
  while (lo < hi) { /* the last file whose windows start at or before it */
    int mid = (lo + hi + 1) / 2;
    if (d->file[mid].window_before <= *window)
      lo = mid;
    else
      hi = mid - 1;
  }
  *window -= d->file[lo].window_before;
  return &d->file[lo];
}

static atoll_err still_whole(const data_file *f) {
  struct stat st;
  if (fstat(f->fd, &st) != 0)
    return atoll_fail(ATOLL_IO, "data file %s: %s", f->path, strerror(errno));
  if ((size_t)st.st_size < f->bytes)
    return atoll_fail(ATOLL_CORRUPT, "data file %s was cut from %zu to %lld bytes while it was in use", f->path,
                      f->bytes, (long long)st.st_size);
  return ATOLL_OK;
}

atoll_err data_tokens(const atoll_data *d, int64_t w, int64_t first, int64_t n, int32_t *to) {
  const data_file *f = file_of(d, &w);
  int64_t at = w * d->stride + first;
  ATOLL_TRY(still_whole(f));
  for (int64_t i = 0; i < n; i++) {
    to[i] = token_at(f, at + i);
    if (to[i] >= d->vocab)
      return atoll_fail(ATOLL_CORRUPT, "data file %s: token %lld is %d, the vocabulary ends at %lld", f->path,
                        (long long)(f->first + at + i), to[i], (long long)d->vocab - 1);
  }
  return ATOLL_OK;
}

/* Sample b of `to`. */
static atoll_err window(const atoll_data *d, uint64_t seed, int64_t w, uint64_t epoch, const atoll_batch *to,
                        int64_t b) {
  if (d->task != ATOLL_DATA_NEXT)
    return masked_window(d, seed, w, epoch, to, b);
  if (!to->tokens)
    return ATOLL_OK;
  ATOLL_TRY(data_tokens(d, w, 0, d->seq, to->tokens + b * d->seq));
  return data_tokens(d, w, 1, d->seq, to->targets + b * d->seq);
}

/* Global position of a sample in the endless sequence of epochs. */
static int64_t shuffled_window(const atoll_data *d, uint64_t seed, int64_t step, int64_t global_batch, int64_t sample,
                               uint64_t *epoch) {
  uint64_t position = (uint64_t)step * (uint64_t)global_batch + (uint64_t)sample;
  uint64_t n = (uint64_t)d->windows;
  *epoch = position / n;
  return (int64_t)atoll_rng_permute(seed, *epoch, n, position % n);
}

atoll_err atoll_data_batch(const atoll_data *d, uint64_t seed, int64_t step, int64_t global_batch, int64_t first,
                           int64_t B, const atoll_batch *to) {
  for (int64_t b = 0; b < B; b++) {
    uint64_t epoch;
    int64_t w = shuffled_window(d, seed, step, global_batch, first + b, &epoch);
    ATOLL_TRY(window(d, seed, w, epoch, to, b));
  }
  return ATOLL_OK;
}

int64_t atoll_data_targets(const atoll_data *d, uint64_t seed, int64_t step, int64_t global_batch) {
  if (d->task == ATOLL_DATA_NEXT)
    return global_batch * d->seq;
  int64_t sum = 0;
  for (int64_t i = 0; i < global_batch; i++) {
    uint64_t epoch;
    int64_t w = shuffled_window(d, seed, step, global_batch, i, &epoch);
    sum += masked_targets(d, seed, w, epoch);
  }
  return sum;
}

int64_t atoll_data_window_targets(const atoll_data *d, int64_t windows) {
  if (d->task == ATOLL_DATA_NEXT)
    return windows * d->seq;
  int64_t sum = 0;
  for (int64_t w = 0; w < windows; w++)
    sum += masked_targets(d, 0, w, 0);
  return sum;
}

int64_t atoll_data_most_targets(const atoll_data *d) {
  return d->task == ATOLL_DATA_NEXT ? d->seq : masked_most_targets(d);
}

/* A sample without a loss. */
static void nothing(const atoll_data *d, const atoll_batch *to, int64_t b) {
  for (int64_t i = b * d->seq; i < (b + 1) * d->seq; i++) {
    if (to->tokens) {
      to->tokens[i] = 0;
      to->targets[i] = -1;
    }
    if (to->types)
      to->types[i] = 0;
  }
  if (to->lengths)
    to->lengths[b] = (int32_t)d->seq;
  if (to->next)
    to->next[b] = -1;
}

atoll_err atoll_data_windows_at(const atoll_data *d, int64_t w0, int64_t B, const atoll_batch *to) {
  for (int64_t b = 0; b < B; b++)
    if (w0 + b < d->windows)
      ATOLL_TRY(window(d, 0, w0 + b, 0, to, b));
    else
      nothing(d, to, b);
  return ATOLL_OK;
}

void atoll_data_prefetch(const atoll_data *d, uint64_t seed, int64_t step, int64_t global_batch, int64_t first,
                         int64_t B) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int64_t b = 0; b < B; b++) {
    uint64_t epoch;
    int64_t w = shuffled_window(d, seed, step, global_batch, first + b, &epoch);
    const data_file *f = file_of(d, &w);
    uintptr_t at = (uintptr_t)(f->token + (size_t)(f->first + w * d->stride) * (size_t)f->width);
    uintptr_t from = at & ~(page - 1);
    (void)madvise((void *)from, at - from + (size_t)d->reach * (size_t)f->width, MADV_WILLNEED);
  }
}

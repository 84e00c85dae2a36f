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

atoll_err data_window(const atoll_data *d, int64_t w, int32_t *tokens, int32_t *targets) {
  const data_file *f = file_of(d, &w);
  int64_t first = w * d->seq;
  ATOLL_TRY(still_whole(f));
  for (int64_t i = 0; i <= d->seq; i++) {
    int32_t t = token_at(f, first + i);
    if (t >= d->vocab)
      return atoll_fail(ATOLL_CORRUPT, "data file %s: token %lld is %d, the vocabulary ends at %lld", f->path,
                        (long long)(f->first + first + i), t, (long long)d->vocab - 1);
    if (i < d->seq)
      tokens[i] = t;
    if (i > 0)
      targets[i - 1] = t;
  }
  return ATOLL_OK;
}

/* Global position of a sample in the endless sequence of epochs. */
static int64_t shuffled_window(const atoll_data *d, uint64_t seed, int64_t step, int64_t global_batch, int64_t sample) {
  uint64_t position = (uint64_t)step * (uint64_t)global_batch + (uint64_t)sample;
  uint64_t n = (uint64_t)d->windows;
  return (int64_t)atoll_rng_permute(seed, position / n, n, position % n);
}

atoll_err atoll_data_batch(const atoll_data *d, uint64_t seed, int64_t step, int64_t global_batch, int64_t first,
                           int64_t B, int32_t *tokens, int32_t *targets) {
  for (int64_t b = 0; b < B; b++)
    ATOLL_TRY(data_window(d, shuffled_window(d, seed, step, global_batch, first + b), tokens + b * d->seq,
                          targets + b * d->seq));
  return ATOLL_OK;
}

atoll_err atoll_data_windows_at(const atoll_data *d, int64_t w0, int64_t B, int32_t *tokens, int32_t *targets) {
  for (int64_t b = 0; b < B; b++) {
    int32_t *x = tokens + b * d->seq, *y = targets + b * d->seq;
    if (w0 + b < d->windows) {
      ATOLL_TRY(data_window(d, w0 + b, x, y));
      continue;
    }
    for (int64_t i = 0; i < d->seq; i++) {
      x[i] = 0;
      y[i] = -1;
    }
  }
  return ATOLL_OK;
}

void atoll_data_prefetch(const atoll_data *d, uint64_t seed, int64_t step, int64_t global_batch, int64_t first,
                         int64_t B) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int64_t b = 0; b < B; b++) {
    int64_t w = shuffled_window(d, seed, step, global_batch, first + b);
    const data_file *f = file_of(d, &w);
    uintptr_t at = (uintptr_t)(f->token + (size_t)(f->first + w * d->seq) * (size_t)f->width);
    uintptr_t from = at & ~(page - 1);
    (void)madvise((void *)from, at - from + (size_t)(d->seq + 1) * (size_t)f->width, MADV_WILLNEED);
  }
}

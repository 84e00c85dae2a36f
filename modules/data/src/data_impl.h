#ifndef ATOLL_DATA_IMPL_H
#define ATOLL_DATA_IMPL_H

#include "atoll/data.h"

/* One mapped file. Tokens first .. first + tokens of the file belong to the split. */
typedef struct data_file {
  char *path;
  int fd;                   /* of the mapping, -1 none: its size is looked at before each use */
  const unsigned char *map; /* whole file */
  size_t bytes;
  const unsigned char *token; /* first token of the file (llmc: past the header) */
  int width;                  /* bytes per token: 1 text, 2 llm.c */
  int64_t first, tokens;
  int64_t windows;       /* of the split, in this file */
  int64_t window_before; /* windows of the files before it */
} data_file;

struct atoll_data {
  int files;
  data_file *file;
  int64_t seq, vocab, tokens, windows;
  int64_t stride, reach; /* tokens from a window to the next one, and that a window covers */
  atoll_digest digest;
  atoll_data_task task;
  /* Of masked tasks. */
  int dynamic;
  int64_t copies;
  double mask_share, short_share;
  int32_t pad, cls, sep, mask;
};

enum { DATA_MASKING_AUTO, DATA_MASKING_STATIC, DATA_MASKING_DYNAMIC };

/* Windows that start every `stride` tokens and cover `reach`. */
atoll_err data_count_windows(atoll_data *data, const char *what, int64_t stride, int64_t reach);
/* Tokens first .. first + n - 1 of window w. */
atoll_err data_tokens(const atoll_data *data, int64_t w, int64_t first, int64_t n, int32_t *to);
/* Sample b of `to` from window w in a masked task, and how many targets it has. */
atoll_err masked_window(const atoll_data *data, uint64_t seed, int64_t w, uint64_t epoch, const atoll_batch *to,
                        int64_t b);
int64_t masked_most_targets(const atoll_data *data);
int64_t masked_targets(const atoll_data *data, uint64_t seed, int64_t w, uint64_t epoch);

#endif

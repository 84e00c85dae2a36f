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
  atoll_digest digest;
};

/* Window w (0 .. windows-1) into tokens[seq], targets[seq]. CORRUPT names file and position of a token beyond the
 * vocabulary. */
atoll_err data_window(const atoll_data *data, int64_t w, int32_t *tokens, int32_t *targets);

#endif

/* Token files: opened as what they say to be, and as llm.c's; from what is accepted come tokens of the vocabulary
 * alone, as they are and with masked words, whatever the header said. */
#include <sys/mman.h>
#include <unistd.h>

#include "atoll/data.h"
#include "fuzz.h"

enum { VOCAB = 300, SEQ = 12, SAMPLES = 3, N = SEQ * SAMPLES };

static void samples(const atoll_data *d) {
  int32_t tokens[N], targets[N], types[N], lengths[SAMPLES], next[SAMPLES];
  const atoll_batch to = {tokens, targets, types, lengths, next};
  for (int k = 0; k < 2; k++) {
    atoll_err err = k ? atoll_data_windows_at(d, 0, SAMPLES, &to) : atoll_data_batch(d, 1, 2, SAMPLES, 0, SAMPLES, &to);
    if (err != ATOLL_OK) {
      fuzz_refused(err);
      continue;
    }
    for (int i = 0; i < N; i++)
      FUZZ_CHECK(tokens[i] >= 0 && tokens[i] < VOCAB && targets[i] >= -1 && targets[i] < VOCAB);
  }
}

static void open_as(const char *path, int format) {
  static const atoll_data_task tasks[] = {ATOLL_DATA_PAIRS, ATOLL_DATA_SENTENCES};
  atoll_data_params p;
  atoll_data *d = NULL;
  atoll_data_params_init(&p);
  snprintf(p.train, sizeof p.train, "%s", path);
  p.validation_share = 0;
  p.format = format;
  p.pad_id = 256, p.cls_id = 257, p.sep_id = 258, p.mask_id = 259;
  atoll_err err = atoll_data_open(&p, NULL, SEQ, VOCAB, &d, NULL);
  if (err != ATOLL_OK) {
    fuzz_refused(err);
    FUZZ_CHECK(!d);
    return;
  }
  FUZZ_CHECK(atoll_data_tokens(d) > SEQ && atoll_data_windows(d) > 0);
  samples(d);
  for (int i = 0; i < 2; i++) {
    err = atoll_data_mask(d, &p, tasks[i]);
    if (err == ATOLL_OK)
      samples(d);
    else
      fuzz_refused(err);
  }
  atoll_data_close(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  enum { AUTO, LLMC = 2 };
  char path[64];
  int fd = memfd_create("tokens", 0);
  FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  open_as(path, AUTO);
  open_as(path, LLMC);
  FUZZ_CHECK(close(fd) == 0);
  return 0;
}

/* Planning cases and the data they are priced with: CASE.json, a profile, the network, transfer prices and a plan in
 * the scorer's form, in this order with lines of four dashes between them; what is absent is corpus/case/all's. */
#include <unistd.h>

#include "atoll/case.h"
#include "atoll/file.h"
#include "fuzz.h"

enum { CASE, PROFILE, NETWORK, TRANSFER, PLAN, PARTS };
static const char *const file[] = {"case.json", "profiles/M.json", "network.json", "transfer_price.json"};
static char *valid; /* corpus/case/all, whose parts stand for absent ones */
static size_t valid_bytes;
static char folder[128];

static void leave(void) {
  (void)atoll_file_remove_tree(folder);
  free(valid);
}

static void path_of(int part, char path[256]) {
  FUZZ_CHECK(atoll_path_join(path, 256, folder, file[part]) == ATOLL_OK);
}

static void put(int part, const void *data, size_t bytes) {
  char path[256];
  path_of(part, path);
  FILE *f = fopen(path, "wb");
  FUZZ_CHECK(f && fwrite(data, 1, bytes, f) == bytes);
  FUZZ_CHECK(fclose(f) == 0);
}

static void enter(void) {
  char path[256];
  snprintf(folder, sizeof folder, "%s/atoll-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  FUZZ_CHECK(mkdtemp(folder));
  atexit(leave);
  FUZZ_CHECK(atoll_path_join(path, sizeof path, folder, "profiles") == ATOLL_OK);
  FUZZ_CHECK(atoll_file_mkdirs(path) == ATOLL_OK);
  FUZZ_CHECK(atoll_file_read(ATOLL_SOURCE_DIR "/regression/fuzz/corpus/case/all", &valid, &valid_bytes) == ATOLL_OK);
}

/* Part `which` of a text; an absent or empty one is NULL. */
static const char *part_of(const char *text, size_t bytes, int which, size_t *n) {
  static const char line[] = "\n----\n";
  const char *end = text + bytes;
  for (int i = 0;; i++) {
    const char *next = memmem(text, (size_t)(end - text), line, sizeof line - 1);
    *n = (size_t)((next ? next : end) - text);
    if (i == which)
      return *n > 0 ? text : NULL;
    if (!next)
      return NULL;
    text = next + sizeof line - 1;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  atoll_case *c = NULL;
  char path[256];
  const char *part[PARTS];
  size_t n[PARTS];
  if (!folder[0])
    enter();
  for (int i = 0; i < PARTS; i++) {
    part[i] = bytes ? part_of((const char *)data, bytes, i, &n[i]) : NULL;
    if (!part[i])
      part[i] = part_of(valid, valid_bytes, i, &n[i]);
    if (i < PLAN)
      put(i, part[i], n[i]);
  }
  path_of(CASE, path);
  atoll_err err = atoll_case_load(path, folder, NULL, NULL, &c);
  if (err != ATOLL_OK) {
    fuzz_refused(err);
    FUZZ_CHECK(!c);
    return 0;
  }
  atoll_case_score score;
  err = atoll_case_score_text(c, "plan.json", part[PLAN], n[PLAN], &score);
  if (err != ATOLL_OK)
    fuzz_refused(err);
  else
    FUZZ_CHECK(score.iteration_seconds > 0 && score.transfer_price >= 0);
  atoll_case_destroy(&c);
  return 0;
}

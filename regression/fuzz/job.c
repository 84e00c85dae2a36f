/* Job files: every option table there is. */
#include "atoll/train.h"
#include "fuzz.h"

/* Relative includes do not exist there. */
#define NAME "/nonexistent/job.yaml"

static void load(const char *text, size_t bytes, char **again, int first) {
  static atoll_job job;
  atoll_opts *opts = NULL;
  memset(&job, 0, sizeof job);
  FUZZ_CHECK(atoll_opts_create(&opts) == ATOLL_OK);
  FUZZ_CHECK(atoll_job_init(&job, opts) == ATOLL_OK);
  atoll_err err = atoll_opts_load_text(opts, NAME, text, bytes);
  *again = NULL;
  if (err != ATOLL_OK) {
    FUZZ_CHECK(first);
    fuzz_refused(err);
  } else {
    FUZZ_CHECK(atoll_opts_yaml(opts, again) == ATOLL_OK);
    err = atoll_job_check(&job);
    if (err != ATOLL_OK)
      fuzz_refused(err);
  }
  atoll_opts_destroy(&opts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  char *once = NULL, *twice = NULL;
  load((const char *)data, bytes, &once, 1);
  if (once) {
    load(once, strlen(once), &twice, 0);
    FUZZ_CHECK(strcmp(once, twice) == 0);
  }
  free(once);
  free(twice);
  return 0;
}

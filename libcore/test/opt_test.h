/* A sample of what modules declare, for the option tests. */
#ifndef OPT_TEST_H
#define OPT_TEST_H

#include "atoll/opt.h"
#include "unit_check.h"

#pragma GCC diagnostic ignored "-Wunused-function"

typedef struct ckpt_sample {
  int64_t every_steps, budget;
  int verify, format;
  double timeout, ratio, scale;
  char dir[ATOLL_OPT_STRING_MAX];
  atoll_opt_ints sizes;
} ckpt_sample;

typedef struct tuner_sample {
  int64_t depth;
  char name[ATOLL_OPT_STRING_MAX];
} tuner_sample;

static const atoll_opt_def ckpt_defs[] = {
    {"every_steps", ATOLL_OPT_INT, offsetof(ckpt_sample, every_steps), "100", "1..1000000000", "steps",
     "Save after so many steps."},
    {"budget", ATOLL_OPT_BYTES, offsetof(ckpt_sample, budget), "64MiB", "1KiB..", "B", "Bytes of the image."},
    {"verify", ATOLL_OPT_BOOL, offsetof(ckpt_sample, verify), "true", "", "", "Read back what was written."},
    {"format", ATOLL_OPT_ENUM, offsetof(ckpt_sample, format), "hdf5", "hdf5|safetensors|raw", "",
     "Form of the shards."},
    {"timeout", ATOLL_OPT_SECONDS, offsetof(ckpt_sample, timeout), "2min", "0..1d", "s", "Longest wait."},
    {"ratio", ATOLL_OPT_REAL, offsetof(ckpt_sample, ratio), "0.5", "0..1", "", "A share."},
    {"scale", ATOLL_OPT_REAL, offsetof(ckpt_sample, scale), "1", "0..inf", "", "A factor, possibly without bound."},
    {"dir", ATOLL_OPT_STRING, offsetof(ckpt_sample, dir), "", NULL, "", "Folder, relative to the job file."},
    {"sizes", ATOLL_OPT_INTS, offsetof(ckpt_sample, sizes), "1,2", "1..64", "ranks", "Sizes to try."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL}};
static const atoll_opt_table ckpt_table = {"ckpt", ckpt_defs};

static const atoll_opt_def tuner_defs[] = {
    {"depth", ATOLL_OPT_INT, offsetof(tuner_sample, depth), "4", "..9", "", "Depth of the search."},
    {"name", ATOLL_OPT_STRING, offsetof(tuner_sample, name), "mist", NULL, "", "Which tuner."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL}};
static const atoll_opt_table tuner_table = {"plan.tuner", tuner_defs};

struct sample {
  atoll_opts *opts;
  ckpt_sample ckpt;
  tuner_sample tuner;
};

static void sample_open(struct sample *s) {
  memset(s, 0, sizeof *s);
  assert_int_equal(atoll_opts_create(&s->opts), ATOLL_OK);
  assert_int_equal(atoll_opts_add(s->opts, &ckpt_table, &s->ckpt), ATOLL_OK);
  assert_int_equal(atoll_opts_add(s->opts, &tuner_table, &s->tuner), ATOLL_OK);
}
static void sample_close(struct sample *s) {
  atoll_opts_destroy(&s->opts);
  assert_null(s->opts);
}

static atoll_err sample_text(struct sample *s, const char *text) {
  return atoll_opts_load_text(s->opts, "job.yaml", text, strlen(text));
}

/* The error's code and every '~'-separated fragment of its message. */
static void assert_refused_naming(atoll_err err, atoll_err expected, const char *fragments) {
  char words[512];
  if (err != expected)
    fail_msg("got %s (%s), expected %s with %s", atoll_err_name(err), atoll_err_message(), atoll_err_name(expected),
             fragments);
  snprintf(words, sizeof words, "%s", fragments);
  for (char *save = NULL, *w = strtok_r(words, "~", &save); w; w = strtok_r(NULL, "~", &save))
    if (!strstr(atoll_err_message(), w))
      fail_msg("message '%s' lacks '%s'", atoll_err_message(), w);
}

static const char *origin_of(const struct sample *s, const char *key) {
  int i = atoll_opts_find(s->opts, key);
  assert_true(i >= 0);
  return atoll_opts_origin(s->opts, i);
}

#endif

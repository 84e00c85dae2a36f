/* Names of checkpoints, and which of them are kept. */
#include "ckpt_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/fault.h"
#include "atoll/file.h"

void ckpt_name(int64_t step, int attempt, char *buf, size_t n) {
  snprintf(buf, n, "step-%08lld.a%d", (long long)step, attempt);
}

int ckpt_parse_name(const char *name, int64_t *step, int *attempt) {
  long long s;
  int a, used = 0;
  char again[64];
  if (sscanf(name, "step-%lld.a%d%n", &s, &a, &used) != 2 || name[used] != '\0' || s < 0 || a < 0)
    return 0;
  ckpt_name(s, a, again, sizeof again);
  if (strcmp(again, name) != 0)
    return 0;
  *step = s;
  *attempt = a;
  return 1;
}

typedef struct entry {
  char *name;
  int64_t step;
  int attempt;
} entry;

/* The order in which they were made. Attempt first: one that was sent back to an earlier step leaves the later steps of
 * the attempts before it behind, and what it makes is newer than those. */
static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->attempt != y->attempt)
    return x->attempt < y->attempt ? -1 : 1;
  return (x->step > y->step) - (x->step < y->step);
}

atoll_err atoll_ckpt_list(const char *ckpt_dir, char ***dirs, int64_t **steps, size_t *n) {
  char **names = NULL;
  size_t count = 0, k = 0;
  *dirs = NULL;
  *steps = NULL;
  *n = 0;
  errno = 0;
  if (!atoll_file_is_dir(ckpt_dir) && (errno == 0 || errno == ENOENT))
    return ATOLL_OK;
  atoll_err err = atoll_file_list(ckpt_dir, &names, &count);
  if (err != ATOLL_OK) /* what cannot be looked into may be full */
    return err == ATOLL_NOINPUT ? ATOLL_IO : err;
  entry *found = calloc(count ? count : 1, sizeof *found);
  char **out = calloc(count ? count : 1, sizeof *out);
  int64_t *step = calloc(count ? count : 1, sizeof *step);
  if (!found || !out || !step)
    err = atoll_fail(ATOLL_NOMEM, "list of %s", ckpt_dir);
  for (size_t i = 0; i < count && err == ATOLL_OK; i++)
    if (ckpt_parse_name(names[i], &found[k].step, &found[k].attempt))
      found[k++].name = names[i];
  if (err == ATOLL_OK)
    qsort(found, k, sizeof *found, compare_entries);
  for (size_t i = 0; i < k && err == ATOLL_OK; i++) {
    size_t room = strlen(ckpt_dir) + strlen(found[i].name) + 2;
    out[i] = malloc(room);
    if (out[i])
      snprintf(out[i], room, "%s/%s", ckpt_dir, found[i].name);
    else
      err = atoll_fail(ATOLL_NOMEM, "list of %s", ckpt_dir);
    step[i] = found[i].step;
  }
  atoll_file_list_free(&names, count);
  free(found);
  if (err != ATOLL_OK) {
    for (size_t i = 0; out && i < count; i++)
      free(out[i]);
    free(out);
    free(step);
    return err;
  }
  *dirs = out;
  *steps = step;
  *n = k;
  return ATOLL_OK;
}

/* A checkpoint leaves its name before its content, so that what has a name is whole at every moment. */
static atoll_err remove_checkpoint(const char *dir) {
  char gone[1200];
  if (snprintf(gone, sizeof gone, "%s.removed", dir) >= (int)sizeof gone)
    return atoll_fail(ATOLL_INTERNAL, "path %s is too long", dir);
  ATOLL_TRY(atoll_file_rename(dir, gone));
  atoll_fault_point("ckpt.retention");
  return atoll_file_remove_tree(gone);
}

static int ends_with(const char *s, const char *suffix) {
  size_t n = strlen(s), k = strlen(suffix);
  return n >= k && !strcmp(s + n - k, suffix);
}

/* Folders that never became checkpoints, or stopped being ones, whoever left them. */
static atoll_err remove_leftovers(const char *ckpt_dir) {
  char **names = NULL, path[1200];
  size_t n = 0;
  ATOLL_TRY(atoll_file_list(ckpt_dir, &names, &n));
  atoll_err err = ATOLL_OK;
  for (size_t i = 0; i < n && err == ATOLL_OK; i++) {
    if (strncmp(names[i], "step-", 5) != 0 || !(ends_with(names[i], ".tmp") || ends_with(names[i], ".removed")))
      continue;
    err = atoll_path_join(path, sizeof path, ckpt_dir, names[i]);
    if (err == ATOLL_OK)
      err = atoll_file_remove_tree(path);
  }
  atoll_file_list_free(&names, n);
  return err;
}

static atoll_err retain(const char *ckpt_dir, int64_t keep) {
  char **dirs;
  int64_t *steps;
  size_t n;
  ATOLL_TRY(atoll_ckpt_list(ckpt_dir, &dirs, &steps, &n));
  atoll_err err = ATOLL_OK;
  size_t finite = n; /* newest whose loss was finite */
  for (size_t i = n; i-- > 0 && finite == n;) {
    manifest m;
    if (manifest_read(dirs[i], &m) == ATOLL_OK && m.meta.finite)
      finite = i;
    manifest_free(&m);
  }
  for (size_t i = 0; i < n && err == ATOLL_OK; i++)
    if (i + (size_t)keep < n && i != finite)
      err = remove_checkpoint(dirs[i]);
  for (size_t i = 0; i < n; i++)
    free(dirs[i]);
  free(dirs);
  free(steps);
  return err == ATOLL_OK ? remove_leftovers(ckpt_dir) : err;
}

atoll_err atoll_ckpt_retain(MPI_Comm comm, const char *ckpt_dir, int64_t keep, int attempt) {
  int rank;
  (void)attempt; /* the run directory's lock makes every .tmp folder a leftover */
  MPI_Comm_rank(comm, &rank);
  return atoll_agree(comm, rank == 0 ? retain(ckpt_dir, keep) : ATOLL_OK);
}

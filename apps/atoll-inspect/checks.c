/* ls, status, verify, stop: the run directory from outside. */
#include "inspect.h"

#include <stdlib.h>
#include <string.h>

#include "atoll/ckpt.h"
#include "atoll/clock.h"
#include "atoll/file.h"
#include "atoll/rundir.h"

/* ---- ls ------------------------------------------------------------------------------------------------------------
 */

typedef struct listing {
  atoll_store *store;
  json_t *datasets; /* NULL: a line of text each */
} listing;

static void list_dataset(const listing *to, const char *path, const char *dtype, const int64_t *shape, int ndim,
                         const char *units, const char *long_name) {
  json_t *sizes = json_array();
  if (!to->datasets)
    printf("%-40s %-4s [", path, dtype);
  for (int i = 0; i < ndim; i++) {
    if (!to->datasets)
      printf(i ? ", %lld" : "%lld", (long long)shape[i]);
    json_array_append_new(sizes, json_integer((json_int_t)shape[i]));
  }
  if (to->datasets)
    json_array_append_new(to->datasets,
                          json_pack("{s:o,s:s,s:O,s:o,s:o}", "path", json_text(path), "dtype", dtype, "shape", sizes,
                                    "units", json_text(units), "long_name", json_text(long_name)));
  else
    printf("] %s%s%s\n", units, *long_name ? "  " : "", long_name);
  json_decref(sizes);
}

static atoll_err list_object(void *arg, const char *path, int is_dataset) {
  const listing *to = arg;
  if (!is_dataset)
    return ATOLL_OK;
  atoll_dtype t;
  int ndim;
  int64_t shape[ATOLL_NDIM_MAX];
  char units[32] = "", text[160] = "";
  if (atoll_store_shape(to->store, path, &t, &ndim, shape) != ATOLL_OK) { /* strings and others that are not numeric */
    if (to->datasets)
      json_array_append_new(to->datasets, json_pack("{s:o}", "path", json_text(path)));
    else
      printf("%s\n", path);
    atoll_err_clear();
    return ATOLL_OK;
  }
  if (atoll_store_has_attr(to->store, path, "units"))
    ATOLL_TRY(atoll_store_get_attr_text(to->store, path, "units", units, sizeof units));
  if (atoll_store_has_attr(to->store, path, "long_name"))
    ATOLL_TRY(atoll_store_get_attr_text(to->store, path, "long_name", text, sizeof text));
  list_dataset(to, path, atoll_dtype_name(t), shape, ndim, units, text);
  return ATOLL_OK;
}

/* json: an array, or NULL for a line of text each. */
static void list_checkpoint(const char *dir, json_t *json) {
  atoll_ckpt_meta meta = {0};
  if (atoll_ckpt_read_meta(dir, &meta) != ATOLL_OK) {
    if (json)
      json_array_append_new(json,
                            json_pack("{s:o,s:o}", "path", json_text(dir), "damage", json_text(atoll_err_message())));
    else
      printf("%s : damaged: %s\n", dir, atoll_err_message());
    return;
  }
  if (json)
    json_array_append_new(json, json_pack("{s:o,s:I,s:i,s:o,s:s}", "path", json_text(dir), "step",
                                          (json_int_t)meta.step, "attempt", meta.attempt, "loss",
                                          json_number(meta.last_loss), "reason", meta.reason));
  else
    printf("%s : step %lld , attempt %d , loss %.4f , %s\n", dir, (long long)meta.step, meta.attempt, meta.last_loss,
           meta.reason);
  atoll_ckpt_meta_free(&meta);
}

static atoll_err list_checkpoints(const char *dir, json_t *json) {
  char ckpt[1200], **dirs;
  int64_t *steps;
  size_t n;
  ATOLL_TRY(atoll_path_join(ckpt, sizeof ckpt, dir, "ckpt"));
  ATOLL_TRY(atoll_ckpt_list(ckpt, &dirs, &steps, &n));
  for (size_t i = 0; i < n; i++) {
    list_checkpoint(dirs[i], json);
    free(dirs[i]);
  }
  free(dirs);
  free(steps);
  atoll_err_clear();
  return ATOLL_OK;
}

static atoll_err list_run(const char *path, json_t *root) {
  atoll_run_state state;
  atoll_exit_record r = {0};
  ATOLL_TRY(atoll_rundir_status(path, &state, &r));
  if (!root) {
    printf("%s : %s , attempt %d\n", path, atoll_run_state_name(state), r.attempt);
    return list_checkpoints(path, NULL);
  }
  json_t *checkpoints = json_array();
  json_object_set_new(root, "state", json_string(atoll_run_state_name(state)));
  json_object_set_new(root, "attempt", json_integer(r.attempt));
  json_object_set_new(root, "checkpoints", checkpoints);
  return list_checkpoints(path, checkpoints);
}

static atoll_err list_file(const char *file, json_t *root) {
  listing to = {.datasets = root ? json_array() : NULL};
  if (root) {
    json_object_set_new(root, "file", json_text(file));
    json_object_set_new(root, "datasets", to.datasets);
  }
  ATOLL_TRY(atoll_store_open(file, ATOLL_STORE_READ, &to.store));
  atoll_err err = atoll_store_visit(to.store, "/", list_object, &to);
  atoll_store_close(&to.store);
  return err;
}

static atoll_err list(const char *path, json_t *root) {
  char file[1200];
  int is_dir = atoll_file_is_dir(path);
  if (is_dir)
    ATOLL_TRY(list_run(path, root));
  atoll_err err = run_file(path, file, sizeof file);
  if (err == ATOLL_OK)
    return list_file(file, root);
  if (!is_dir)
    return err;
  if (!root) /* a run without a record yet, or a folder that is none */
    printf("%s\n", atoll_err_message());
  atoll_err_clear();
  return ATOLL_OK;
}

atoll_err inspect_ls(const char *path, const inspect_options *o) {
  if (!atoll_file_exists(path))
    return atoll_fail(ATOLL_NOINPUT, "%s does not exist", path);
  json_t *root = o->json ? json_pack("{s:o}", "path", json_text(path)) : NULL;
  atoll_err err = list(path, root);
  if (err == ATOLL_OK && root)
    err = json_print(root, stdout);
  json_decref(root);
  return err;
}

/* ---- status --------------------------------------------------------------------------------------------------------
 */

/* A run that died without a word (node lost, SIGKILL, launcher gone) may be requeued like one that stopped: what it
 * committed is whole. The job script's cap on attempts ends what dies again and again. */
static atoll_err verdict_of(atoll_run_state state, const atoll_exit_record *r) {
  switch (state) {
  case ATOLL_RUN_FINISHED:
    return ATOLL_OK;
  case ATOLL_RUN_STOPPED:
  case ATOLL_RUN_DEAD:
    return ATOLL_STOPPED;
  case ATOLL_RUN_RUNNING:
    return ATOLL_BUSY;
  case ATOLL_RUN_FAILED:
    return r->code == ATOLL_OK ? ATOLL_INTERNAL : r->code;
  case ATOLL_RUN_ABSENT:
    break;
  }
  return ATOLL_NOINPUT;
}

/* What the same command does now; committed: what to say where there is a checkpoint. */
static const char *what_follows(const char *path, const char *committed) {
  char dir[1200];
  return atoll_ckpt_locate(path, dir, sizeof dir) ? committed : "nothing was committed: the same command begins anew";
}

atoll_err inspect_status(const char *path, const inspect_options *o, atoll_err *verdict) {
  atoll_run_state state;
  atoll_exit_record r = {.last_step = -1};
  char when[32];
  ATOLL_TRY(atoll_rundir_status(path, &state, &r));
  *verdict = verdict_of(state, &r);
  int ended = state == ATOLL_RUN_FINISHED || state == ATOLL_RUN_STOPPED || state == ATOLL_RUN_FAILED;
  if (o->json) {
    json_t *root = json_pack("{s:s,s:i,s:i,s:s}", "state", atoll_run_state_name(state), "attempt", r.attempt, "status",
                             (int)*verdict, "action", *verdict == ATOLL_STOPPED ? "requeue" : "none");
    if (ended) {
      json_object_set_new(root, "code", json_string(atoll_err_name(r.code)));
      json_object_set_new(root, "reason", json_text(r.reason));
      json_object_set_new(root, "last_step", json_integer((json_int_t)r.last_step));
      json_object_set_new(root, "time", json_string(atoll_clock_iso(r.wall, when, sizeof when)));
      json_object_set_new(root, "job", json_string(r.job));
      json_object_set_new(root, "host", json_string(r.host));
    }
    atoll_err err = json_print(root, stdout);
    json_decref(root);
    return err;
  }
  printf("%s : %s , attempt %d\n", path, atoll_run_state_name(state), r.attempt);
  if (ended) {
    printf("%s : %s\n", atoll_err_name(r.code), r.reason);
    printf("ended %s , ", atoll_clock_iso(r.wall, when, sizeof when));
    if (r.last_step < 0)
      printf("%s\n", what_follows(path, "no step committed"));
    else
      printf("last committed step %lld\n", (long long)r.last_step);
  } else if (state == ATOLL_RUN_DEAD) {
    printf("attempt %d ended without a word; %s\n", r.attempt,
           what_follows(path, "the same command resumes from the last committed checkpoint"));
  }
  return ATOLL_OK;
}

/* ---- verify --------------------------------------------------------------------------------------------------------
 */

/* Whether a run file or a checkpoint is whole, said at once: reading all of a run may take long. parts: what JSON will
 * tell in the end, or NULL for a line of text. */
static atoll_err verify_part(const char *path, int is_checkpoint, json_t *parts) {
  run_table t = {0};
  char rows[40] = "";
  atoll_err err = is_checkpoint ? atoll_ckpt_verify(path) : table_load(path, 0, &t);
  if (!is_checkpoint)
    snprintf(rows, sizeof rows, " , %lld rows", (long long)t.steps.rows);
  if (parts)
    json_array_append_new(parts, json_pack("{s:o,s:b,s:o}", "path", json_text(path), "good", err == ATOLL_OK, "damage",
                                           err == ATOLL_OK ? json_null() : json_text(atoll_err_message())));
  else if (err == ATOLL_OK)
    printf("%s : good%s\n", path, rows);
  else
    printf("%s : damaged: %s\n", path, atoll_err_message());
  if (err == ATOLL_OK)
    table_free(&t);
  return err;
}

/* A run: its record and every checkpoint; all damage is listed, the first is the result. */
static atoll_err verify_run(const char *ckpt, const char *record, json_t *parts) {
  char first[1024] = "", **dirs;
  int64_t *steps;
  size_t n, bad = 0;
  if (record && verify_part(record, 0, parts) != ATOLL_OK && !bad++)
    snprintf(first, sizeof first, "%s", atoll_err_message());
  ATOLL_TRY(atoll_ckpt_list(ckpt, &dirs, &steps, &n));
  for (size_t i = 0; i < n; i++) {
    if (verify_part(dirs[i], 1, parts) != ATOLL_OK && !bad++)
      snprintf(first, sizeof first, "%s", atoll_err_message());
    free(dirs[i]);
  }
  free(dirs);
  free(steps);
  return bad ? atoll_fail(ATOLL_CORRUPT, "%zu damaged, the first: %s", bad, first) : ATOLL_OK;
}

static atoll_err verify(const char *path, json_t *parts) {
  char commit[1200], ckpt[1200], record[1200];
  if (!atoll_file_exists(path))
    return atoll_fail(ATOLL_NOINPUT, "%s does not exist", path);
  if (!atoll_file_is_dir(path))
    return verify_part(path, 0, parts);
  ATOLL_TRY(atoll_path_join(commit, sizeof commit, path, "COMMIT"));
  ATOLL_TRY(atoll_path_join(ckpt, sizeof ckpt, path, "ckpt"));
  if (atoll_file_exists(commit))
    return verify_part(path, 1, parts);
  int recorded = run_file(path, record, sizeof record) == ATOLL_OK;
  if (!recorded && !atoll_file_is_dir(ckpt))
    return atoll_fail(ATOLL_NOINPUT, "%s is neither a checkpoint (no COMMIT) nor a run (no ckpt, no run.h5)", path);
  return verify_run(ckpt, recorded ? record : NULL, parts);
}

atoll_err inspect_verify(const char *path, const inspect_options *o) {
  json_t *parts = o->json ? json_array() : NULL;
  atoll_err err = verify(path, parts), printed = ATOLL_OK;
  if (parts && (err == ATOLL_OK || json_array_size(parts)))
    printed = json_print(parts, stdout);
  json_decref(parts);
  return err != ATOLL_OK ? err : printed;
}

/* ---- stop ----------------------------------------------------------------------------------------------------------
 */

atoll_err inspect_stop(const char *path, const inspect_options *o) {
  char file[1200];
  atoll_run_state state;
  atoll_exit_record r;
  (void)o;
  ATOLL_TRY(atoll_rundir_status(path, &state, &r));
  if (state != ATOLL_RUN_RUNNING)
    return atoll_fail(ATOLL_UNAVAILABLE, "%s is not running (%s): nothing to stop", path, atoll_run_state_name(state));
  ATOLL_TRY(atoll_path_join(file, sizeof file, path, "halt"));
  ATOLL_TRY(atoll_file_replace(file, "stop\n", 5));
  printf("asked %s to stop at its next step, with a checkpoint\n", path);
  return ATOLL_OK;
}

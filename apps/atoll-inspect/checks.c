/* ls, status, verify, stop: the run directory from outside. */
#include "inspect.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/ckpt.h"
#include "atoll/clock.h"
#include "atoll/file.h"
#include "atoll/rundir.h"

/* ---- ls ------------------------------------------------------------------------------------------------------------
 */

static atoll_err print_object(void *arg, const char *path, int is_dataset) {
  atoll_store *s = arg;
  if (!is_dataset)
    return ATOLL_OK;
  atoll_dtype t;
  int ndim;
  int64_t shape[ATOLL_NDIM_MAX];
  char units[32] = "", text[160] = "";
  if (atoll_store_shape(s, path, &t, &ndim, shape) != ATOLL_OK) { /* strings and others outside the numeric types */
    printf("%s\n", path);
    atoll_err_clear();
    return ATOLL_OK;
  }
  if (atoll_store_has_attr(s, path, "units"))
    ATOLL_TRY(atoll_store_get_attr_text(s, path, "units", units, sizeof units));
  if (atoll_store_has_attr(s, path, "long_name"))
    ATOLL_TRY(atoll_store_get_attr_text(s, path, "long_name", text, sizeof text));
  printf("%-40s %-4s [", path, atoll_dtype_name(t));
  for (int i = 0; i < ndim; i++)
    printf(i ? ", %lld" : "%lld", (long long)shape[i]);
  printf("] %s%s%s\n", units, text[0] ? "  " : "", text);
  return ATOLL_OK;
}

static atoll_err list_checkpoints(const char *dir) {
  char ckpt[1200], **dirs;
  int64_t *steps;
  size_t n;
  ATOLL_TRY(atoll_path_join(ckpt, sizeof ckpt, dir, "ckpt"));
  ATOLL_TRY(atoll_ckpt_list(ckpt, &dirs, &steps, &n));
  for (size_t i = 0; i < n; i++) {
    atoll_ckpt_meta meta = {0};
    if (atoll_ckpt_read_meta(dirs[i], &meta) == ATOLL_OK) {
      printf("%s : step %lld , attempt %d , loss %.4f , %s\n", dirs[i], (long long)meta.step, meta.attempt,
             meta.last_loss, meta.reason);
      atoll_ckpt_meta_free(&meta);
    } else {
      printf("%s : damaged: %s\n", dirs[i], atoll_err_message());
    }
    free(dirs[i]);
  }
  free(dirs);
  free(steps);
  atoll_err_clear();
  return ATOLL_OK;
}

atoll_err inspect_ls(const char *path, const inspect_options *o) {
  char file[1200];
  (void)o;
  if (!atoll_file_exists(path))
    return atoll_fail(ATOLL_NOINPUT, "%s does not exist", path);
  if (atoll_file_is_dir(path)) {
    atoll_run_state state;
    atoll_exit_record r = {0};
    ATOLL_TRY(atoll_rundir_status(path, &state, &r));
    printf("%s : %s , attempt %d\n", path, atoll_run_state_name(state), r.attempt);
    ATOLL_TRY(list_checkpoints(path));
    if (run_file(path, file, sizeof file) != ATOLL_OK) {
      printf("%s\n", atoll_err_message());
      atoll_err_clear();
      return ATOLL_OK;
    }
  } else {
    ATOLL_TRY(run_file(path, file, sizeof file));
  }
  atoll_store *s = NULL;
  ATOLL_TRY(atoll_store_open(file, ATOLL_STORE_READ, &s));
  atoll_err err = atoll_store_visit(s, "/", print_object, s);
  atoll_store_close(&s);
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

atoll_err inspect_status(const char *path, const inspect_options *o, atoll_err *verdict) {
  atoll_run_state state;
  atoll_exit_record r = {.last_step = -1};
  char when[32];
  ATOLL_TRY(atoll_rundir_status(path, &state, &r));
  *verdict = verdict_of(state, &r);
  int ended = state == ATOLL_RUN_FINISHED || state == ATOLL_RUN_STOPPED || state == ATOLL_RUN_FAILED;
  if (!strcmp(o->format, "json")) {
    json_t *root = json_pack("{s:s,s:i,s:i,s:s}", "state", atoll_run_state_name(state), "attempt", r.attempt, "status",
                             (int)*verdict, "action", *verdict == ATOLL_STOPPED ? "requeue" : "none");
    if (ended) {
      json_object_set_new(root, "code", json_string(atoll_err_name(r.code)));
      json_object_set_new(root, "reason", json_string(r.reason));
      json_object_set_new(root, "last_step", json_integer((json_int_t)r.last_step));
      json_object_set_new(root, "time", json_string(atoll_clock_iso(r.wall, when, sizeof when)));
      json_object_set_new(root, "job", json_string(r.job));
      json_object_set_new(root, "host", json_string(r.host));
    }
    char *text = json_dumps(root, JSON_INDENT(1));
    printf("%s\n", text ? text : "{}");
    free(text);
    json_decref(root);
    return ATOLL_OK;
  }
  printf("%s : %s , attempt %d\n", path, atoll_run_state_name(state), r.attempt);
  if (ended) {
    printf("%s : %s\n", atoll_err_name(r.code), r.reason);
    printf("ended %s , ", atoll_clock_iso(r.wall, when, sizeof when));
    if (r.last_step < 0)
      printf("no step committed\n");
    else
      printf("last committed step %lld\n", (long long)r.last_step);
  } else if (state == ATOLL_RUN_DEAD) {
    printf("attempt %d ended without a word; the same command resumes from the last committed checkpoint\n", r.attempt);
  }
  return ATOLL_OK;
}

/* ---- verify --------------------------------------------------------------------------------------------------------
 */

static atoll_err verify_store(const char *file) {
  run_table t;
  ATOLL_TRY(table_load(file, 0, &t));
  printf("%s : good , %lld rows\n", file, (long long)t.steps.rows);
  table_free(&t);
  return ATOLL_OK;
}

atoll_err inspect_verify(const char *path, const inspect_options *o) {
  char file[1200], **dirs;
  int64_t *steps;
  size_t n, bad = 0;
  (void)o;
  if (!atoll_file_exists(path))
    return atoll_fail(ATOLL_NOINPUT, "%s does not exist", path);
  if (!atoll_file_is_dir(path))
    return verify_store(path);
  ATOLL_TRY(atoll_path_join(file, sizeof file, path, "COMMIT"));
  char ckpt[1200];
  ATOLL_TRY(atoll_path_join(ckpt, sizeof ckpt, path, "ckpt"));
  char record[1200];
  if (!atoll_file_exists(file) && !atoll_file_is_dir(ckpt) && run_file(path, record, sizeof record) != ATOLL_OK)
    return atoll_fail(ATOLL_NOINPUT, "%s is neither a checkpoint (no COMMIT) nor a run (no ckpt, no run.h5)", path);
  if (atoll_file_exists(file)) {
    ATOLL_TRY(atoll_ckpt_verify(path));
    printf("%s : good\n", path);
    return ATOLL_OK;
  }
  /* A run: its record and every checkpoint; all damage is listed, the first is the result. */
  char first[1024] = "";
  if (run_file(path, file, sizeof file) == ATOLL_OK && verify_store(file) != ATOLL_OK) {
    printf("%s : damaged: %s\n", file, atoll_err_message());
    snprintf(first, sizeof first, "%s", atoll_err_message());
    bad++;
  }
  ATOLL_TRY(atoll_ckpt_list(ckpt, &dirs, &steps, &n));
  for (size_t i = 0; i < n; i++) {
    if (atoll_ckpt_verify(dirs[i]) == ATOLL_OK) {
      printf("%s : good\n", dirs[i]);
    } else {
      printf("%s : damaged: %s\n", dirs[i], atoll_err_message());
      if (!bad++)
        snprintf(first, sizeof first, "%s", atoll_err_message());
    }
    free(dirs[i]);
  }
  free(dirs);
  free(steps);
  return bad ? atoll_fail(ATOLL_CORRUPT, "%zu damaged, the first: %s", bad, first) : ATOLL_OK;
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

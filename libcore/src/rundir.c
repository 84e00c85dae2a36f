/* The run directory: attempts, the lock, the exit record.
 *
 * An attempt's number is taken by creating attempts/aN, which fails when it exists, so a number is never used twice,
 * whoever races. The exit record belongs to an attempt; a record of an earlier attempt than the newest says nothing
 * about the newest. */
#include "atoll/rundir.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/clock.h"
#include "atoll/fault.h"
#include "atoll/file.h"
#include "atoll/log.h"

struct atoll_rundir {
  char *path;
  int attempt;
  char began[64];        /* what attempts/aN says */
  atoll_file_lock *lock; /* NULL: lost to another job */
};

static const char *const folders[] = {"ckpt", "log", "attempts"};

/* Highest N of attempts/aN; 0 when there is none. */
static atoll_err newest_attempt(const char *dir, int *attempt) {
  char path[1100], **names = NULL;
  size_t n = 0;
  *attempt = 0;
  ATOLL_TRY(atoll_path_join(path, sizeof path, dir, "attempts"));
  if (!atoll_file_is_dir(path))
    return ATOLL_OK;
  ATOLL_TRY(atoll_file_list(path, &names, &n));
  for (size_t i = 0; i < n; i++) {
    char *end;
    long k = names[i][0] == 'a' ? strtol(names[i] + 1, &end, 10) : 0;
    if (k > *attempt && *end == '\0' && k < 1000000000)
      *attempt = (int)k;
  }
  atoll_file_list_free(&names, n);
  return ATOLL_OK;
}

static atoll_err take_attempt(atoll_rundir *run) {
  char path[1150], when[32];
  ATOLL_TRY(newest_attempt(run->path, &run->attempt));
  run->attempt++;
  snprintf(path, sizeof path, "%s/attempts/a%d", run->path, run->attempt);
  atoll_clock_iso(atoll_clock_wall(), when, sizeof when);
  snprintf(run->began, sizeof run->began, "%s pid %ld", when, (long)getpid());
  return atoll_file_create(path, run->began, strlen(run->began));
}

static atoll_err make_folders(const atoll_rundir *run) {
  char path[1100];
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    ATOLL_TRY(atoll_path_join(path, sizeof path, run->path, folders[i]));
    ATOLL_TRY(atoll_file_mkdirs(path));
  }
  return ATOLL_OK;
}

atoll_err atoll_rundir_open(const char *dir, atoll_rundir **out) {
  char path[1100];
  atoll_rundir *run = calloc(1, sizeof *run);
  atoll_err err = run && (run->path = strdup(dir)) ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "run directory %s", dir);
  ATOLL_TRY_GOTO(err, fail, err);
  ATOLL_TRY_GOTO(err, fail, atoll_file_mkdirs(dir));
  ATOLL_TRY_GOTO(err, fail, atoll_path_join(path, sizeof path, dir, "lock"));
  ATOLL_TRY_GOTO(err, fail, atoll_file_lock_take(path, &run->lock));
  ATOLL_TRY_GOTO(err, fail, make_folders(run));
  /* A halt file stops the attempt that was asked, not the ones after it. */
  ATOLL_TRY_GOTO(err, fail, atoll_path_join(path, sizeof path, dir, "halt"));
  ATOLL_TRY_GOTO(err, fail, atoll_file_remove_tree(path));
  ATOLL_TRY_GOTO(err, fail, take_attempt(run));
  ATOLL_TRY_GOTO(err, fail, atoll_path_join(path, sizeof path, dir, "exit.json"));
  ATOLL_TRY_GOTO(err, fail, atoll_file_remove_tree(path));
  *out = run;
  return ATOLL_OK;
fail:
  atoll_rundir_close(&run);
  return err;
}

static atoll_err keep(atoll_rundir *run) {
  char path[1150], *text = NULL;
  size_t bytes = 0;
  int retaken, newest;
  ATOLL_TRY(atoll_file_mkdirs(run->path));
  ATOLL_TRY(atoll_file_lock_keep(&run->lock, &retaken));
  if (!retaken)
    return ATOLL_OK;
  atoll_warn("the lock of %s was removed while it was held, and is taken again", run->path);
  ATOLL_TRY(make_folders(run));
  ATOLL_TRY(newest_attempt(run->path, &newest));
  snprintf(path, sizeof path, "%s/attempts/a%d", run->path, run->attempt);
  if (!newest)
    return atoll_file_create(path, run->began, strlen(run->began));
  if (newest == run->attempt)
    ATOLL_TRY(atoll_file_read(path, &text, &bytes));
  int ours = text && strcmp(text, run->began) == 0;
  free(text);
  return ours ? ATOLL_OK : atoll_fail(ATOLL_BUSY, "%s became another job's, which ended since", run->path);
}

atoll_err atoll_rundir_keep(atoll_rundir *run) {
  if (!run->lock)
    return atoll_fail(ATOLL_BUSY, "%s has become another job's", run->path);
  atoll_err err = keep(run);
  if (err == ATOLL_BUSY) /* for good, whatever becomes of the other job */
    atoll_file_lock_release(&run->lock);
  return err;
}

int atoll_rundir_attempt(const atoll_rundir *run) { return run->attempt; }
const char *atoll_rundir_path(const atoll_rundir *run) { return run->path; }

void atoll_rundir_close(atoll_rundir **run) {
  if (!run || !*run)
    return;
  if ((*run)->lock)
    atoll_file_lock_release(&(*run)->lock);
  free((*run)->path);
  free(*run);
  *run = NULL;
}

/* ---- exit record ---------------------------------------------------------------------------------------------------
 */

static atoll_err read_exit(const char *dir, atoll_exit_record *r, int *found) {
  char path[1100], *text = NULL;
  size_t bytes = 0;
  *found = 0;
  ATOLL_TRY(atoll_path_join(path, sizeof path, dir, "exit.json"));
  if (!atoll_file_exists(path))
    return ATOLL_OK;
  ATOLL_TRY(atoll_file_read(path, &text, &bytes));
  json_error_t why;
  json_t *root = json_loadb(text, bytes, 0, &why);
  free(text);
  if (!root)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: %s", path, why.line, why.text);
  const char *code, *reason, *job, *host;
  json_int_t step, attempt;
  double wall;
  atoll_err err = ATOLL_OK;
  memset(r, 0, sizeof *r);
  if (json_unpack_ex(root, &why, 0, "{s:s,s:s,s:I,s:I,s:F,s:s,s:s}", "code", &code, "reason", &reason, "last_step",
                     &step, "attempt", &attempt, "wall", &wall, "job", &job, "host", &host))
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s", path, why.text);
  else if (atoll_err_parse(code, &r->code))
    err = atoll_fail(ATOLL_CORRUPT, "%s: code '%s' is unknown", path, code);
  if (err == ATOLL_OK) {
    snprintf(r->reason, sizeof r->reason, "%s", reason);
    snprintf(r->job, sizeof r->job, "%s", job);
    snprintf(r->host, sizeof r->host, "%s", host);
    r->last_step = step;
    r->attempt = (int)attempt;
    r->wall = wall;
    *found = 1;
  }
  json_decref(root);
  return err;
}

atoll_err atoll_rundir_write_exit(const char *dir, const atoll_exit_record *record) {
  atoll_exit_record old, r = *record;
  char path[1100];
  int found = 0;
  ATOLL_TRY(atoll_path_join(path, sizeof path, dir, "exit.json"));
  if (read_exit(dir, &old, &found) == ATOLL_OK && found && old.attempt >= r.attempt)
    return ATOLL_OK; /* another rank was first */
  r.wall = atoll_clock_wall();
  const char *job = getenv("SLURM_JOB_ID"), *restart = getenv("SLURM_RESTART_COUNT"), *node = getenv("SLURMD_NODENAME");
  snprintf(r.job, sizeof r.job, job ? "%.32s.%.16s" : "%.0s%.0s", job ? job : "", restart ? restart : "0");
  if (node)
    snprintf(r.host, sizeof r.host, "%.63s", node);
  else if (gethostname(r.host, sizeof r.host) != 0)
    snprintf(r.host, sizeof r.host, "unknown");
  r.host[sizeof r.host - 1] = '\0';
  json_t *root = json_pack("{s:s,s:i,s:s,s:I,s:i,s:f,s:s,s:s}", "code", atoll_err_name(r.code), "exit_status",
                           (int)r.code, "reason", r.reason, "last_step", (json_int_t)r.last_step, "attempt", r.attempt,
                           "wall", r.wall, "job", r.job, "host", r.host);
  if (!root) /* the reason is not UTF-8 */
    root = json_pack("{s:s,s:i,s:s,s:I,s:i,s:f,s:s,s:s}", "code", atoll_err_name(r.code), "exit_status", (int)r.code,
                     "reason", "(not printable)", "last_step", (json_int_t)r.last_step, "attempt", r.attempt, "wall",
                     r.wall, "job", r.job, "host", r.host);
  char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
  json_decref(root);
  if (!text)
    return atoll_fail(ATOLL_NOMEM, "exit record of %s", dir);
  atoll_err err = atoll_file_replace(path, text, strlen(text));
  free(text);
  return err;
}

/* ---- status --------------------------------------------------------------------------------------------------------
 */

const char *atoll_run_state_name(atoll_run_state s) {
  static const char *const names[] = {"absent", "running", "finished", "stopped", "failed", "dead"};
  return (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown";
}

atoll_err atoll_rundir_status(const char *dir, atoll_run_state *state, atoll_exit_record *record) {
  char path[1100];
  int attempt = 0, found = 0;
  atoll_exit_record r = {.last_step = -1};
  ATOLL_TRY(atoll_path_join(path, sizeof path, dir, "lock"));
  ATOLL_TRY(newest_attempt(dir, &attempt));
  int held = atoll_file_lock_probe(path) == ATOLL_BUSY;
  atoll_err_clear();
  ATOLL_TRY(read_exit(dir, &r, &found));
  if (attempt == 0 && !held) {
    *state = ATOLL_RUN_ABSENT;
  } else if (found && r.attempt == attempt) {
    *state = r.code == ATOLL_OK ? ATOLL_RUN_FINISHED : r.code == ATOLL_STOPPED ? ATOLL_RUN_STOPPED : ATOLL_RUN_FAILED;
  } else {
    *state = held ? ATOLL_RUN_RUNNING : ATOLL_RUN_DEAD;
    memset(&r, 0, sizeof r);
    r.last_step = -1;
  }
  r.attempt = attempt;
  *record = r;
  return ATOLL_OK;
}

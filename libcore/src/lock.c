/* A lock file that outlives its process and can be judged afterwards.
 *
 * Kernel locks vanish with their holder but are switched off or local on many parallel file systems, so the lock is the
 * existence of a file, whose content says who holds it:
 *
 *     host node017
 *     boot 8b0c...            boot id of the kernel      } together they name one process
 *     pids pid:[4026531836]   PID namespace              } for ever, also after PIDs were
 *     pid 4711                                           } reused or a container was copied
 *     start 88123             clock ticks after boot     }
 *     job 123456 restart 0    Slurm job, or - when there is none
 *     time 2026-01-31T12:00:00Z
 *
 * Taking. The content is written to a sibling and linked to the final name, so the lock appears whole or not at all,
 * also on NFS.
 *
 * Stale. The holder provably ended when (a) this process sees the same kernel and PID namespace and that process is
 * gone or another one has its number; (b) the same host has booted since; or (c) it belonged to an earlier run of the
 * same Slurm job (same job id, other restart count: Slurm ends all processes of a job before it requeues it). Anything
 * else is BUSY: a second job that starts while the first may still write would destroy both.
 *
 * Take-over. Two waiting processes may both find the lock stale. Each opens it, takes a flock on that file, and checks
 * that the name still leads to it; the winner renames its own content over it, so the name never disappears, and the
 * loser finds another file there and starts again. Where flock does not work the remaining window is the time between
 * check and rename. */
#include "atoll/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "atoll/clock.h"
#include "atoll/fault.h"
#include "atoll/log.h"
#include "file_impl.h"

#define TEXT_MAX 1024

struct atoll_file_lock {
  dev_t dev;
  ino_t ino;
  char text[TEXT_MAX]; /* what the file says while it is ours */
  char path[];         /* as given */
};

struct holder {
  char host[256], boot[64], pids[64], job[64], time[40];
  long pid, restart;
  unsigned long long start; /* clock ticks after boot; 0: unknown */
};

/* First line of a small system file, "" when it cannot be read. */
static void first_line(const char *path, char *buf, size_t n) {
  buf[0] = '\0';
  FILE *f = fopen(path, "re");
  if (!f)
    return;
  if (!fgets(buf, (int)n, f))
    buf[0] = '\0';
  buf[strcspn(buf, "\n")] = '\0';
  (void)fclose(f);
}

/* Start time of a process in clock ticks after boot, 0 when unknown; *ended: it is over and only waits for its parent
 * to take note, which in a container may last for ever. Its other threads may still write: the last one counts. The
 * name in field 2 may hold blanks and brackets. */
static unsigned long long start_of(long pid, int *ended) {
  char path[64], line[1024];
  (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  first_line(path, line, sizeof line);
  char *p = strrchr(line, ')');
  if (!p)
    return 0;
  p++;
  int over = p[0] == ' ' && (p[1] == 'Z' || p[1] == 'X');
  for (int field = 3; field < 22 && p; field++) {
    if (field == 20 && ended)
      *ended = over && strtol(p, NULL, 10) <= 1;
    p = strchr(p + 1, ' ');
  }
  return p ? strtoull(p, NULL, 10) : 0;
}

static void copy_word(char *to, size_t n, const char *from) {
  size_t i = 0;
  for (; from[i] && i + 1 < n; i++)
    to[i] = from[i] > ' ' && from[i] < 127 ? from[i] : '_';
  to[i] = '\0';
  if (!i)
    (void)snprintf(to, n, "-");
}

static void describe_self(struct holder *h) {
  char text[256];
  memset(h, 0, sizeof *h);
  if (gethostname(text, sizeof text))
    text[0] = '\0';
  text[sizeof text - 1] = '\0';
  copy_word(h->host, sizeof h->host, text);
  first_line("/proc/sys/kernel/random/boot_id", text, sizeof text);
  copy_word(h->boot, sizeof h->boot, text);
  ssize_t len = readlink("/proc/self/ns/pid", text, sizeof text - 1);
  text[len > 0 ? len : 0] = '\0';
  copy_word(h->pids, sizeof h->pids, text);
  h->pid = (long)getpid();
  h->start = start_of(h->pid, NULL);
  const char *job = getenv("SLURM_JOB_ID"), *restart = getenv("SLURM_RESTART_COUNT");
  copy_word(h->job, sizeof h->job, job ? job : "");
  h->restart = restart ? strtol(restart, NULL, 10) : 0;
  char iso[40];
  copy_word(h->time, sizeof h->time, atoll_clock_iso(atoll_clock_wall(), iso, sizeof iso));
}

static int holder_print(const struct holder *h, char *buf, size_t n) {
  return snprintf(buf, n, "host %s\nboot %s\npids %s\npid %ld\nstart %llu\njob %s restart %ld\ntime %s\n", h->host,
                  h->boot, h->pids, h->pid, h->start, h->job, h->restart, h->time);
}

/* 0, or -1 when the text is not a lock's. */
static int holder_parse(const char *text, struct holder *h) {
  memset(h, 0, sizeof *h);
  return sscanf(text, "host %255s boot %63s pids %63s pid %ld start %llu job %63s restart %ld time %39s", h->host,
                h->boot, h->pids, &h->pid, &h->start, h->job, &h->restart, h->time) == 8
             ? 0
             : -1;
}

enum verdict { ALIVE, UNKNOWN, ENDED };

static enum verdict judge(const struct holder *h, const struct holder *self, const char **why) {
  int same_host = strcmp(h->host, self->host) == 0;
  int known_boot = strcmp(h->boot, "-") != 0 && strcmp(self->boot, "-") != 0;
  if (same_host && known_boot && strcmp(h->boot, self->boot) != 0) {
    *why = "its host has booted since";
    return ENDED;
  }
  if (same_host && strcmp(h->boot, self->boot) == 0 && strcmp(h->pids, self->pids) == 0) {
    if (kill((pid_t)h->pid, 0) && errno == ESRCH) {
      *why = "its process is gone";
      return ENDED;
    }
    int ended = 0;
    unsigned long long start = start_of(h->pid, &ended);
    if (ended) {
      *why = "its process has ended";
      return ENDED;
    }
    if (start && h->start && start != h->start) {
      *why = "its process is gone and another has its number";
      return ENDED;
    }
    *why = "its process is running";
    return ALIVE;
  }
  if (strcmp(h->job, "-") != 0 && strcmp(h->job, self->job) == 0 && h->restart != self->restart) {
    *why = "it belongs to an earlier run of this Slurm job";
    return ENDED;
  }
  *why = "it cannot be shown that its process ended";
  return UNKNOWN;
}

static atoll_err busy(const char *path, const struct holder *h, const char *why) {
  return atoll_fail(ATOLL_BUSY,
                    "%s is held by host %s pid %ld job %s since %s (%s); remove it only if that run has ended", path,
                    h->host, h->pid, h->job, h->time, why);
}

/* The lock exists: BUSY, or OK after a take-over, or OK with *again when the name changed under us. tmp holds our
 * content. */
static atoll_err contest(const char *path, const char *tmp, const struct holder *self, int *again) {
  char text[TEXT_MAX];
  struct stat opened, named;
  atoll_err err = ATOLL_OK;
  int fd = file_open(path, O_RDWR);
  if (fd < 0 && errno == ENOENT) {
    *again = 1;
    return ATOLL_OK;
  }
  if (fd < 0)
    return file_error("open lock", path);
  atoll_fault_point("lock.opened");
  int flocked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (!flocked && (errno == EWOULDBLOCK || errno == EINTR)) {
    err = atoll_fail(ATOLL_BUSY, "%s is being taken over by another process", path);
    goto close_file;
  }
  if (fstat(fd, &opened) || file_stat(path, &named)) {
    *again = errno == ENOENT;
    err = *again ? ATOLL_OK : file_error("stat lock", path);
    goto close_file;
  }
  if (opened.st_ino != named.st_ino || opened.st_dev != named.st_dev) {
    *again = 1;
    goto close_file;
  }
  ssize_t n = file_read_some(fd, text, sizeof text - 1);
  if (n < 0) {
    err = file_error("read lock", path);
    goto close_file;
  }
  text[n] = '\0';
  struct holder h;
  const char *why = "";
  if (holder_parse(text, &h)) {
    err = atoll_fail(ATOLL_BUSY,
                     "%s exists and does not say who holds it (%zd bytes); remove it if no job uses the directory",
                     path, n);
    goto close_file;
  }
  if (judge(&h, self, &why) != ENDED) {
    err = busy(path, &h, why);
    goto close_file;
  }
  ATOLL_TRY_GOTO(err, close_file, atoll_file_rename(tmp, path));
  atoll_warn("took over the stale lock %s of host %s pid %ld job %s since %s: %s", path, h.host, h.pid, h.job, h.time,
             why);
close_file:
  (void)close(fd); /* also ends the flock */
  return err;
}

atoll_err atoll_file_lock_take(const char *path, atoll_file_lock **token) {
  char tmp[PATH_MAX], text[TEXT_MAX];
  struct holder self;
  struct stat st;
  ATOLL_TRY(file_sibling(path, "tmp", tmp));
  describe_self(&self);
  int len = holder_print(&self, text, sizeof text);
  if (len < 0 || len >= (int)sizeof text)
    return atoll_fail(ATOLL_INTERNAL, "lock text of %d bytes, room for %zu", len, sizeof text);
  atoll_file_lock *lock = malloc(sizeof *lock + strlen(path) + 1);
  if (!lock)
    return atoll_fail(ATOLL_NOMEM, "no memory for the lock %s", path);
  strcpy(lock->path, path);
  strcpy(lock->text, text);
  atoll_err err;
  ATOLL_TRY_GOTO(err, free_lock, file_fill(tmp, O_TRUNC | O_NOFOLLOW, text, (size_t)len, 1));
  if (file_stat(tmp, &st)) {
    err = file_error("stat lock", tmp);
    goto remove_tmp;
  }
  lock->dev = st.st_dev; /* both ways in keep the file, and so its number */
  lock->ino = st.st_ino;
  for (int turn = 0;; turn++) {
    int again = 0;
    if (file_link(tmp, path) == 0)
      break;
    if (errno != EEXIST) {
      if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) {
        err = file_error("create lock", path);
        goto remove_tmp;
      }
      /* No hard links here: create it in place, which is exclusive but for an instant empty. */
      if (!atoll_file_exists(path)) {
        ATOLL_TRY_GOTO(err, remove_tmp, file_fill(path, O_EXCL, text, (size_t)len, 1));
        if (file_stat(path, &st)) {
          err = file_error("stat lock", path);
          (void)file_unlink(path);
          goto remove_tmp;
        }
        lock->dev = st.st_dev;
        lock->ino = st.st_ino;
        break;
      }
    }
    ATOLL_TRY_GOTO(err, remove_tmp, contest(path, tmp, &self, &again));
    if (!again) {
      *token = lock;
      return ATOLL_OK; /* the rename consumed tmp */
    }
    if (turn == 100) {
      err = atoll_fail(ATOLL_BUSY, "%s is taken and released by others all the time", path);
      goto remove_tmp;
    }
  }
  if (file_unlink(tmp) && errno != ENOENT)
    atoll_warn("remove %s: %s", tmp, strerror(errno));
  *token = lock;
  return ATOLL_OK;

remove_tmp:
  (void)file_unlink(tmp);
free_lock:
  free(lock);
  return err;
}

atoll_err atoll_file_lock_keep(atoll_file_lock **token, int *retaken) {
  const char *path = (*token)->path;
  atoll_file_lock *again = NULL;
  char *text = NULL;
  size_t bytes = 0;
  *retaken = 0;
  if (!atoll_file_exists(path)) {
    ATOLL_TRY(atoll_file_lock_take(path, &again));
    free(*token);
    *token = again;
    *retaken = 1;
    return ATOLL_OK;
  }
  ATOLL_TRY(atoll_file_read(path, &text, &bytes));
  int ours = strcmp(text, (*token)->text) == 0;
  struct holder h;
  if (!ours && holder_parse(text, &h) == 0)
    atoll_fail(ATOLL_BUSY, "%s was removed, and taken by host %s pid %ld job %s at %s", path, h.host, h.pid, h.job,
               h.time);
  else if (!ours)
    atoll_fail(ATOLL_BUSY, "%s was replaced by something that does not say who holds it", path);
  free(text);
  return ours ? ATOLL_OK : ATOLL_BUSY;
}

void atoll_file_lock_release(atoll_file_lock **token) {
  struct stat st;
  char *text = NULL;
  size_t bytes = 0;
  if (!token || !*token)
    return;
  atoll_file_lock *lock = *token;
  /* Somebody may have removed the file by hand and another job taken the name, perhaps with the number that is free
   * again: then it is not ours to remove. */
  if (file_stat(lock->path, &st) == 0 && st.st_dev == lock->dev && st.st_ino == lock->ino &&
      atoll_file_read(lock->path, &text, &bytes) == ATOLL_OK && !strcmp(text, lock->text) && file_unlink(lock->path))
    atoll_warn("remove lock %s: %s", lock->path, strerror(errno));
  free(text);
  free(lock);
  *token = NULL;
}

atoll_err atoll_file_lock_probe(const char *path) {
  struct holder h, self;
  char *text = NULL;
  size_t bytes = 0;
  const char *why = "";
  if (!atoll_file_exists(path))
    return ATOLL_OK;
  ATOLL_TRY(atoll_file_read(path, &text, &bytes));
  int known = holder_parse(text, &h) == 0;
  free(text);
  if (!known)
    return atoll_fail(ATOLL_BUSY, "%s exists and does not say who holds it", path);
  describe_self(&self);
  return judge(&h, &self, &why) == ENDED ? ATOLL_OK : busy(path, &h, why);
}

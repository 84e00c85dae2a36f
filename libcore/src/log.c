/* The log of one process.
 *
 * Three sinks: the story (standard output of rank 0, or standard error when the program prints JSON), standard error
 * for warnings and errors of any rank, and the rank's file. One mutex orders them, so lines of different threads never
 * mix. Each line is flushed at once: a killed job must leave its last words, and a few lines per step cost nothing. A
 * log that cannot be written (full disk) never ends a run; the first failure is told on standard error and the file is
 * given up.
 *
 * A warning with the same text is shown on standard error once per process; the file receives every occurrence. */
#include "atoll/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "atoll/clock.h"
#include "atoll/digest.h"

#define SHOWN_MAX 256 /* distinct warnings remembered; later ones are always shown */

static struct {
  pthread_mutex_t lock;
  FILE *file;
  char path[4096];
  int rank;
  int level_known;
  atoll_log_level level;
  int to_stderr;
  int line_open; /* a progress line without its newline is on the terminal */
  atoll_digest shown[SHOWN_MAX];
  int shown_count;
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = ATOLL_LOG_INFO};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* The formatted text; `fixed` when it fits there, otherwise allocated. A cut line is better than none when memory is
 * gone. */
static char *format(char *fixed, size_t n, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int need = vsnprintf(fixed, n, fmt, ap);
  char *text = fixed;
  if (need < 0)
    fixed[0] = 0;
  else if ((size_t)need >= n && (text = malloc((size_t)need + 1)))
    vsnprintf(text, (size_t)need + 1, fmt, again);
  va_end(again);
  if (!text)
    text = fixed;
  for (size_t len = strlen(text); len && text[len - 1] == '\n'; len--)
    text[len - 1] = 0; /* callers may end their line or not */
  return text;
}

/* All below hold the lock. */

static void read_level(void) {
  if (logger.level_known)
    return;
  logger.level_known = 1;
  const char *word = getenv("ATOLL_LOG");
  if (!word || !*word)
    return;
  for (int i = 0; i <= ATOLL_LOG_DEBUG; i++)
    if (!strcmp(word, level_names[i])) {
      logger.level = (atoll_log_level)i;
      return;
    }
  fprintf(stderr, "warn: ATOLL_LOG is %s , expected error|warn|info|debug; info is used\n", word);
}

static void give_up_file(void) {
  int why = errno;
  fclose(logger.file);
  logger.file = NULL;
  fprintf(stderr, "warn: rank %d : log file %s cannot be written: %s; no longer logged there\n", logger.rank,
          logger.path, strerror(why));
}

static void to_file(atoll_log_level level, const char *text) {
  read_level();
  if (!logger.file || level > logger.level)
    return;
  char iso[32];
  errno = 0;
  if (fprintf(logger.file, "%s %-5s %s\n", atoll_clock_iso(atoll_clock_wall(), iso, sizeof iso), level_names[level],
              text) < 0 ||
      fflush(logger.file))
    give_up_file();
}

static FILE *story(void) { return logger.to_stderr ? stderr : stdout; }

static void close_line(void) {
  if (logger.line_open) {
    fputc('\n', story());
    fflush(story());
    logger.line_open = 0;
  }
}

/* 1 the first time this text is asked about. */
static int first_time(const char *text) {
  atoll_digest d = atoll_digest_bytes(text, strlen(text));
  for (int i = 0; i < logger.shown_count; i++)
    if (atoll_digest_equal(logger.shown[i], d))
      return 0;
  if (logger.shown_count < SHOWN_MAX)
    logger.shown[logger.shown_count++] = d;
  return 1;
}

/* ---- public ---- */

void atoll_log_set_rank(int rank) {
  pthread_mutex_lock(&logger.lock);
  logger.rank = rank;
  pthread_mutex_unlock(&logger.lock);
}

atoll_err atoll_log_open(const char *dir, int rank, int attempt) {
  char path[sizeof logger.path];
  int n = snprintf(path, sizeof path, "%s/rank-%05d.a%d.log", dir, rank, attempt);
  if (n < 0 || (size_t)n >= sizeof path)
    return atoll_fail(ATOLL_IO, "log file in %s: the path has %d bytes, limit %zu", dir, n, sizeof path - 1);
  FILE *file = fopen(path, "ae");
  if (!file)
    return atoll_fail(ATOLL_IO, "open log file %s: %s", path, strerror(errno));
  pthread_mutex_lock(&logger.lock);
  if (logger.file)
    fclose(logger.file);
  logger.file = file;
  logger.rank = rank;
  memcpy(logger.path, path, sizeof path);
  pthread_mutex_unlock(&logger.lock);
  return ATOLL_OK;
}

void atoll_log_close(void) {
  pthread_mutex_lock(&logger.lock);
  close_line();
  errno = 0;
  if (logger.file && fflush(logger.file))
    give_up_file();
  if (logger.file)
    fclose(logger.file);
  logger.file = NULL;
  pthread_mutex_unlock(&logger.lock);
}

void atoll_log_flush(void) {
  pthread_mutex_lock(&logger.lock);
  close_line();
  fflush(stdout);
  fflush(stderr);
  if (logger.file)
    fflush(logger.file);
  pthread_mutex_unlock(&logger.lock);
}

void atoll_log_set_level(atoll_log_level level) {
  pthread_mutex_lock(&logger.lock);
  logger.level = level;
  logger.level_known = 1;
  pthread_mutex_unlock(&logger.lock);
}

void atoll_log_story_to_stderr(int yes) {
  pthread_mutex_lock(&logger.lock);
  close_line();
  logger.to_stderr = yes != 0;
  pthread_mutex_unlock(&logger.lock);
}

void atoll_say(const char *fmt, ...) {
  char fixed[1024];
  va_list ap;
  va_start(ap, fmt);
  char *text = format(fixed, sizeof fixed, fmt, ap);
  va_end(ap);
  pthread_mutex_lock(&logger.lock);
  if (logger.rank == 0) {
    close_line();
    fprintf(story(), "%s\n", text);
    fflush(story());
  }
  to_file(ATOLL_LOG_INFO, text);
  pthread_mutex_unlock(&logger.lock);
  if (text != fixed)
    free(text);
}

/* Open MPI gives ranks a terminal of its own making even when its output goes to a file: then the launcher's output
 * tells. */
int atoll_log_interactive(void) {
  char link[64], target[256];
  if (!isatty(fileno(story())))
    return 0;
  if (!getenv("OMPI_COMM_WORLD_RANK"))
    return 1;
  snprintf(link, sizeof link, "/proc/%ld/fd/1", (long)getppid());
  ssize_t n = readlink(link, target, sizeof target - 1);
  target[n > 0 ? n : 0] = '\0';
  return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0;
}

void atoll_progress(const char *fmt, ...) {
  char fixed[1024];
  va_list ap;
  va_start(ap, fmt);
  char *text = format(fixed, sizeof fixed, fmt, ap);
  va_end(ap);
  pthread_mutex_lock(&logger.lock);
  if (logger.rank == 0) {
    struct winsize size = {0};
    if (atoll_log_interactive()) {
      /* Cut to the width: a line that wraps could not be rewritten. */
      int columns = !ioctl(fileno(story()), TIOCGWINSZ, &size) && size.ws_col > 1 ? size.ws_col - 1 : 79;
      fprintf(story(), "\r%.*s\033[K", columns, text);
      logger.line_open = 1;
    } else {
      fprintf(story(), "%s\n", text);
    }
    fflush(story());
  }
  to_file(ATOLL_LOG_DEBUG, text);
  pthread_mutex_unlock(&logger.lock);
  if (text != fixed)
    free(text);
}

void atoll_log(atoll_log_level level, const char *fmt, ...) {
  char fixed[1024];
  va_list ap;
  va_start(ap, fmt);
  char *text = format(fixed, sizeof fixed, fmt, ap);
  va_end(ap);
  pthread_mutex_lock(&logger.lock);
  if (level == ATOLL_LOG_ERROR || (level == ATOLL_LOG_WARN && first_time(text))) {
    close_line();
    if (logger.rank)
      fprintf(stderr, "%s: rank %d : %s\n", level_names[level], logger.rank, text);
    else
      fprintf(stderr, "%s: %s\n", level_names[level], text);
    fflush(stderr);
  }
  to_file(level, text);
  pthread_mutex_unlock(&logger.lock);
  if (text != fixed)
    free(text);
}

/* Starting is what posix_spawn() does inside: clone() that shares memory and holds us until the program is in place, so
 * that large or pinned memory is neither copied nor touched. posix_spawn() itself has no way to ask for the signal that
 * ends the program when we die, whatever kills us.
 *
 * Talking is one poll() loop: both directions are non-blocking and always served together, so that a program that
 * answers before it has read everything cannot deadlock with us. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atoll/clock.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "plan_impl.h"

#define STACK_BYTES ((size_t)65536)
#define ERROR_LINES 200 /* of its standard error that are passed on */

typedef struct buffer {
  char *data;
  size_t begin, end, room;
} buffer;

struct child {
  char name[128];
  pid_t pid;
  int in, out, err; /* our ends; -1 closed */
  buffer to, from, errors;
  size_t taken; /* bytes of `from` that the last line used */
  int reaped, status, error_lines;
};

/* ---- starting ---------------------------------------------------------------------------------------------------- */

typedef struct start {
  const char *path;
  char *const *argv;
  int in, out, err;
  pid_t parent;
  volatile int failed; /* errno */
} start;

/* Runs on its own stack in our memory until execv(): only system calls, nothing of ours is changed but s->failed. */
__attribute__((no_sanitize("address", "undefined"))) static int run(void *argument) {
  start *s = argument;
  sigset_t none;
  for (int i = 1; i < NSIG; i++)
    (void)signal(i, SIG_DFL);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != s->parent || setpgid(0, 0) != 0 || dup2(s->in, 0) < 0 ||
      dup2(s->out, 1) < 0 || dup2(s->err, 2) < 0) {
    s->failed = errno ? errno : ESRCH;
    _exit(127);
  }
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  execv(s->path, s->argv);
  s->failed = errno;
  _exit(127);
}

static atoll_err spawn(child *c, const char *path, char *const *argv, const int pipes[3][2]) {
  start s = {path, argv, pipes[0][0], pipes[1][1], pipes[2][1], getpid(), 0};
  char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED)
    return atoll_fail(ATOLL_NOMEM, "plan.extern: %s: no stack to start it from: %s", c->name, strerror(errno));
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before); /* no handler of ours may run on that stack */
  pid_t pid = clone(run, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, &s);
  int error = errno;
  sigprocmask(SIG_SETMASK, &before, NULL);
  munmap(stack, STACK_BYTES);
  if (pid < 0)
    return atoll_fail(ATOLL_UNAVAILABLE, "plan.extern: cannot start %s: %s", path, strerror(error));
  if (s.failed) {
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return atoll_fail(ATOLL_NOINPUT, "plan.extern: cannot start %s: %s", path, strerror(s.failed));
  }
  c->pid = pid;
  return ATOLL_OK;
}

/* A word with a slash is a path; another one is looked for on PATH. */
static atoll_err find_program(const char *word, char *path, size_t n) {
  if (strchr(word, '/')) {
    snprintf(path, n, "%s", word);
    return access(path, F_OK) == 0 ? ATOLL_OK : atoll_fail(ATOLL_NOINPUT, "plan.extern: %s: %s", path, strerror(errno));
  }
  const char *at = getenv("PATH");
  while (at && *at) {
    size_t length = strcspn(at, ":");
    snprintf(path, n, "%.*s/%s", length ? (int)length : 1, length ? at : ".", word);
    if (access(path, X_OK) == 0 && !atoll_file_is_dir(path))
      return ATOLL_OK;
    at += length + (at[length] == ':');
  }
  return atoll_fail(ATOLL_NOINPUT, "plan.extern: no program '%s' on PATH (a path needs a slash)", word);
}

/* Blanks part arguments, unless the whole text is the path of a file. words ends with NULL. */
static int split(const char *command, char *text, size_t n, char **words, int most) {
  int count = 0;
  snprintf(text, n, "%s", command);
  if (atoll_file_exists(text) && strchr(text, '/')) {
    words[count++] = text;
  } else {
    char *rest = text, *word;
    while (count + 1 < most && (word = strtok_r(rest, " \t", &rest)))
      words[count++] = word;
  }
  words[count] = NULL;
  return count;
}

static void close_fd(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

atoll_err child_start(const char *command, child **out) {
  char text[1024], path[2048], *words[64];
  int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
  child *c = NULL;
  if (split(command, text, sizeof text, words, 64) == 0)
    return atoll_fail(ATOLL_USAGE, "plan.extern names no program");
  ATOLL_TRY(find_program(words[0], path, sizeof path));
  ATOLL_TRY(plan_alloc(1, sizeof *c, &c));
  /* "python3 tools/uniform.py": the program without its folder, and what it was given. */
  const char *slash = strrchr(words[0], '/');
  int at = snprintf(c->name, sizeof c->name, "%.100s", slash && slash[1] ? slash + 1 : words[0]);
  for (int i = 1; words[i] && at < (int)sizeof c->name; i++)
    at += snprintf(c->name + at, sizeof c->name - (size_t)at, " %s", words[i]);
  c->in = c->out = c->err = -1;
  atoll_err err = ATOLL_OK;
  for (int i = 0; i < 3 && err == ATOLL_OK; i++)
    if (pipe2(pipes[i], O_CLOEXEC) != 0)
      err = atoll_fail(ATOLL_IO, "plan.extern: %s: pipe: %s", c->name, strerror(errno));
  /* The program's ends stay clear of 0, 1 and 2, where dup2() puts them. */
  for (int i = 0; i < 3 && err == ATOLL_OK; i++) {
    int *end = &pipes[i][i > 0], moved = fcntl(*end, F_DUPFD_CLOEXEC, 3);
    if (moved < 0)
      err = atoll_fail(ATOLL_IO, "plan.extern: %s: pipe: %s", c->name, strerror(errno));
    else {
      close_fd(end);
      *end = moved;
    }
  }
  if (err == ATOLL_OK)
    err = spawn(c, path, words, (const int(*)[2])pipes);
  if (err == ATOLL_OK) {
    c->in = pipes[0][1];
    c->out = pipes[1][0];
    c->err = pipes[2][0];
    pipes[0][1] = pipes[1][0] = pipes[2][0] = -1;
    const int ours[] = {c->in, c->out, c->err};
    for (int i = 0; i < 3; i++)
      (void)fcntl(ours[i], F_SETFL, O_NONBLOCK);
  }
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 2; k++)
      close_fd(&pipes[i][k]);
  if (err != ATOLL_OK)
    free(c);
  else
    *out = c;
  return err;
}

const char *child_name(const child *c) { return c->name; }

/* ---- talking ----------------------------------------------------------------------------------------------------- */

static atoll_err reserve(buffer *b, size_t more) {
  if (b->begin > 0) {
    memmove(b->data, b->data + b->begin, b->end - b->begin);
    b->end -= b->begin;
    b->begin = 0;
  }
  if (b->end + more + 1 <= b->room)
    return ATOLL_OK;
  size_t room = b->room ? b->room : 8192;
  while (room < b->end + more + 1)
    room *= 2;
  char *grown = realloc(b->data, room);
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "plan.extern: %zu bytes of text", room);
  b->data = grown;
  b->room = room;
  return ATOLL_OK;
}

atoll_err child_send(child *c, const char *text, size_t bytes) {
  if (c->in < 0)
    return ATOLL_OK; /* it does not listen any more; child_line() tells what became of it */
  ATOLL_TRY(reserve(&c->to, bytes));
  memcpy(c->to.data + c->to.end, text, bytes);
  c->to.end += bytes;
  return ATOLL_OK;
}

/* write() to a program that is gone raises SIGPIPE in this thread only, and we take it away again. */
static ssize_t write_quietly(int fd, const char *data, size_t bytes) {
  sigset_t pipe_only, before, pending;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
  ssize_t n = write(fd, data, bytes);
  int error = errno;
  if (n < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE)) {
    const struct timespec now = {0, 0};
    while (sigtimedwait(&pipe_only, NULL, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = error;
  return n;
}

static void feed(child *c) {
  ssize_t n = write_quietly(c->in, c->to.data + c->to.begin, c->to.end - c->to.begin);
  if (n > 0)
    c->to.begin += (size_t)n;
  else if (n < 0 && errno != EAGAIN && errno != EINTR)
    close_fd(&c->in);
}

/* Reads what there is; closes the pipe at its end. */
static atoll_err drain(int *fd, buffer *b) {
  enum { PIECE = 65536 };
  ATOLL_TRY(reserve(b, PIECE));
  ssize_t n = read(*fd, b->data + b->end, PIECE);
  if (n > 0)
    b->end += (size_t)n;
  else if (n == 0 || (errno != EAGAIN && errno != EINTR))
    close_fd(fd);
  return ATOLL_OK;
}

static void printable(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 32 || *text == 127)
      *text = ' ';
}

/* Whole lines of its standard error, and the rest when it ended or grows too long. */
static void forward_errors(child *c) {
  buffer *b = &c->errors;
  while (b->end > b->begin) {
    char *text = b->data + b->begin, *newline = memchr(text, '\n', b->end - b->begin);
    size_t n = newline ? (size_t)(newline - text) : b->end - b->begin;
    if (!newline && c->err >= 0 && n < 4096)
      break;
    n = n > 4096 ? 4096 : n;
    char line[4097];
    memcpy(line, text, n);
    line[n] = 0;
    printable(line);
    if (c->error_lines < ERROR_LINES)
      atoll_warn("%s: %s", c->name, line);
    else if (c->error_lines == ERROR_LINES)
      atoll_warn("%s: more lines of its standard error are not shown", c->name);
    c->error_lines++;
    b->begin += n + (newline == text + n);
  }
}

/* Waits for it up to `seconds`; 1 when it is gone. While it is there to be reaped its process group is still its own:
 * what it started and left behind goes too. */
static int reap(child *c, double seconds) {
  double until = atoll_clock_now() + seconds;
  while (!c->reaped) {
    siginfo_t info = {0};
    int got = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    if (got == 0 && info.si_pid == c->pid) {
      kill(-c->pid, SIGKILL);
      c->reaped = waitpid(c->pid, &c->status, 0) == c->pid || errno == ECHILD;
    } else if (got < 0 && errno == ECHILD) { /* SIGCHLD is ignored: the kernel reaped it */
      c->reaped = 1;
    } else if (atoll_clock_now() >= until) {
      break;
    } else {
      atoll_clock_sleep(0.002);
    }
  }
  return c->reaped;
}

/* What it wrote to its standard error before it went is worth reading. */
static void last_words(child *c) {
  while (c->err >= 0) {
    struct pollfd p = {c->err, POLLIN, 0};
    if (poll(&p, 1, 0) <= 0 || drain(&c->err, &c->errors) != ATOLL_OK)
      break;
    forward_errors(c);
  }
}

static atoll_err ended(child *c) {
  int gone = reap(c, 1);
  last_words(c);
  if (!gone)
    return atoll_fail(ATOLL_UNAVAILABLE, "plan.extern: %s closed its output", c->name);
  if (WIFSIGNALED(c->status))
    return atoll_fail(ATOLL_UNAVAILABLE, "plan.extern: %s was ended by signal %d (%s)", c->name, WTERMSIG(c->status),
                      strsignal(WTERMSIG(c->status)));
  return atoll_fail(ATOLL_UNAVAILABLE, "plan.extern: %s ended with exit status %d before it answered", c->name,
                    WEXITSTATUS(c->status));
}

/* A whole line in the buffer, if there is one; scanned: bytes known to hold no newline. */
static atoll_err take_line(child *c, size_t *scanned, char **line, size_t *bytes) {
  buffer *b = &c->from;
  char *text = b->data + b->begin, *newline = NULL;
  size_t have = b->end - b->begin;
  if (have > *scanned)
    newline = memchr(text + *scanned, '\n', have - *scanned);
  *scanned = have;
  size_t n = newline ? (size_t)(newline - text) : have;
  if (n > CHILD_LINE_MAX) {
    char start_of[81];
    memcpy(start_of, text, 80);
    start_of[80] = 0;
    printable(start_of);
    return atoll_fail(ATOLL_CORRUPT, "plan.extern: %s wrote a line of more than %d bytes, which begins: %s", c->name,
                      CHILD_LINE_MAX, start_of);
  }
  if (!newline)
    return ATOLL_OK;
  if (memchr(text, 0, n))
    return atoll_fail(ATOLL_CORRUPT, "plan.extern: %s wrote a line with a NUL byte, which begins: %.80s", c->name,
                      text);
  text[n] = 0;
  c->taken = n + 1;
  if (n > 0 && text[n - 1] == '\r')
    text[--n] = 0;
  *line = text;
  *bytes = n;
  return ATOLL_OK;
}

atoll_err child_line(child *c, double seconds, char **line, size_t *bytes) {
  double until = atoll_clock_now() + seconds;
  size_t scanned = 0;
  c->from.begin += c->taken;
  c->taken = 0;
  *line = NULL;
  for (;;) {
    ATOLL_TRY(take_line(c, &scanned, line, bytes));
    if (*line)
      return ATOLL_OK;
    if (c->out < 0)
      return ended(c);
    double left = until - atoll_clock_now();
    if (left <= 0)
      return atoll_fail(ATOLL_TIMEOUT, "plan.extern: %s did not answer within %g s (plan.extern_limit)", c->name,
                        seconds);
    struct pollfd p[3];
    int n = 0, at_in = -1, at_err = -1;
    p[n++] = (struct pollfd){c->out, POLLIN, 0};
    if (c->err >= 0) {
      at_err = n;
      p[n++] = (struct pollfd){c->err, POLLIN, 0};
    }
    if (c->in >= 0 && c->to.end > c->to.begin) {
      at_in = n;
      p[n++] = (struct pollfd){c->in, POLLOUT, 0};
    }
    int wait = left > 1e6 ? 1000000000 : (int)(left * 1000) + 1;
    if (poll(p, (nfds_t)n, wait) < 0) {
      if (errno == EINTR)
        continue;
      return atoll_fail(ATOLL_IO, "plan.extern: %s: poll: %s", c->name, strerror(errno));
    }
    if (at_in >= 0 && p[at_in].revents)
      feed(c);
    if (at_err >= 0 && p[at_err].revents) {
      ATOLL_TRY(drain(&c->err, &c->errors));
      forward_errors(c);
    }
    if (p[0].revents)
      ATOLL_TRY(drain(&c->out, &c->from));
  }
}

void child_stop(child **address, double grace) {
  if (!address || !*address)
    return;
  child *c = *address;
  close_fd(&c->in);
  if (!reap(c, grace)) {
    kill(-c->pid, SIGKILL);
    kill(c->pid, SIGKILL);
    while (!c->reaped && waitpid(c->pid, &c->status, 0) < 0 && errno == EINTR) {
    }
  }
  last_words(c);
  close_fd(&c->out);
  close_fd(&c->err);
  free(c->to.data);
  free(c->from.data);
  free(c->errors.data);
  free(c);
  *address = NULL;
}

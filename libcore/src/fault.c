/* Failure on purpose: see atoll/fault.h for the rules.
 *
 * Each rule counts the passages that match it and acts on one of them (or on all). Rules of other ranks are checked for
 * form and dropped, so a typing error ends the run everywhere. With no rule left the checks read one atomic flag and
 * return. */
#include "atoll/fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/log.h"

enum kind { KIND_FAIL, KIND_SHORT, KIND_KILL, KIND_STOP, KIND_NAN };

struct rule {
  enum kind kind;
  char name[64]; /* call or point; "*" matches every call */
  long nth;      /* 1 = first; 0 = every passage */
  long seen;
  int error; /* errno of KIND_FAIL and KIND_SHORT */
};

static const char *const kind_names[] = {"fail", "short", "kill", "stop", "nan"};

static const char *const call_names[] = {"open",  "read",   "write",   "fsync", "rename", "link",
                                         "mkdir", "unlink", "dirsync", "close", "stat",   "*"};

static const struct {
  const char *name;
  int value;
} errno_names[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},       {"EROFS", EROFS},   {"EACCES", EACCES}, {"EDQUOT", EDQUOT},
                   {"EFBIG", EFBIG},   {"EMFILE", EMFILE}, {"ENFILE", ENFILE}, {"ENOENT", ENOENT}, {"EEXIST", EEXIST},
                   {"EPERM", EPERM},   {"EINTR", EINTR},   {"EINVAL", EINVAL}, {"ENOMEM", ENOMEM}, {"ESTALE", ESTALE},
                   {"EXDEV", EXDEV},   {"EISDIR", EISDIR}, {"ENOSYS", ENOSYS}, {"EMLINK", EMLINK}, {"ENOLCK", ENOLCK}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int active;
static struct rule *rules;
static size_t rule_count;

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* A whole decimal number in [low, high]; 0 or -1. */
static int parse_number(const char *text, long low, long high, long *out) {
  char *end;
  errno = 0;
  long v = strtol(text, &end, 10);
  if (end == text || *end || errno || v < low || v > high)
    return -1;
  *out = v;
  return 0;
}

/* One rule, split in place at ':'. *mine tells whether it concerns this rank. */
static atoll_err parse_rule(const char *whole, char *text, int rank, struct rule *r, int *mine) {
  char *field[6];
  size_t n = 0;
  for (char *p = text; p; n++) {
    if (n == COUNT(field))
      return atoll_fail(ATOLL_USAGE, "ATOLL_FAULT rule '%s': too many fields", whole);
    field[n] = p;
    p = strchr(p, ':');
    if (p)
      *p++ = '\0';
  }
  memset(r, 0, sizeof *r);
  size_t k = 0;
  while (k < COUNT(kind_names) && strcmp(field[0], kind_names[k]) != 0)
    k++;
  if (k == COUNT(kind_names))
    return atoll_fail(ATOLL_USAGE, "ATOLL_FAULT rule '%s': found '%s', expected fail, short, kill, stop or nan", whole,
                      field[0]);
  r->kind = (enum kind)k;
  static const size_t least[] = {4, 3, 2, 2, 3}, most[] = {5, 4, 4, 4, 4};
  if (n < least[k] || n > most[k])
    return atoll_fail(ATOLL_USAGE, "ATOLL_FAULT rule '%s': %zu fields, expected %zu to %zu", whole, n, least[k],
                      most[k]);
  if (!field[1][0] || strlen(field[1]) >= sizeof r->name)
    return atoll_fail(ATOLL_USAGE, "ATOLL_FAULT rule '%s': a name of 1 to %zu characters must follow '%s:'", whole,
                      sizeof r->name - 1, kind_names[k]);
  strcpy(r->name, field[1]);
  if (r->kind == KIND_FAIL || r->kind == KIND_SHORT) {
    size_t c = 0;
    while (c < COUNT(call_names) && strcmp(r->name, call_names[c]) != 0)
      c++;
    if (c == COUNT(call_names) || (r->kind == KIND_SHORT && strcmp(r->name, "write") != 0))
      return atoll_fail(
          ATOLL_USAGE, "ATOLL_FAULT rule '%s': found call '%s', expected %s", whole, r->name,
          r->kind == KIND_SHORT ? "write" : "open read write fsync rename link mkdir unlink dirsync close stat or *");
  }
  r->nth = 1;
  if (n > 2) {
    if (r->kind == KIND_FAIL && strcmp(field[2], "*") == 0)
      r->nth = 0;
    else if (parse_number(field[2], 1, 1000000000, &r->nth))
      return atoll_fail(ATOLL_USAGE, "ATOLL_FAULT rule '%s': found passage '%s', expected 1 to 1000000000%s", whole,
                        field[2], r->kind == KIND_FAIL ? " or *" : "");
  }
  r->error = ENOSPC;
  if (r->kind == KIND_FAIL) {
    size_t e = 0;
    while (e < COUNT(errno_names) && strcmp(field[3], errno_names[e].name) != 0)
      e++;
    if (e == COUNT(errno_names))
      return atoll_fail(ATOLL_USAGE, "ATOLL_FAULT rule '%s': unknown error '%s', expected a name such as ENOSPC or EIO",
                        whole, field[3]);
    r->error = errno_names[e].value;
  }
  *mine = 1;
  if (n == most[k]) {
    long wanted;
    if (parse_number(field[n - 1], 0, 1000000000, &wanted))
      return atoll_fail(ATOLL_USAGE, "ATOLL_FAULT rule '%s': found rank '%s', expected 0 or more", whole, field[n - 1]);
    *mine = wanted == rank;
  }
  return ATOLL_OK;
}

atoll_err atoll_fault_set(const char *text, int rank) {
  struct rule *list = NULL;
  size_t n = 0;
  atoll_err err = ATOLL_OK;
  for (const char *p = text ? text : ""; *p;) {
    size_t len = strcspn(p, ";");
    if (len) {
      char whole[256], parts[256];
      if (len >= sizeof whole) {
        err = atoll_fail(ATOLL_USAGE, "ATOLL_FAULT rule of %zu characters, at most %zu", len, sizeof whole - 1);
        goto free_list;
      }
      memcpy(whole, p, len);
      whole[len] = '\0';
      memcpy(parts, whole, len + 1);
      struct rule r;
      int mine = 0;
      ATOLL_TRY_GOTO(err, free_list, parse_rule(whole, parts, rank, &r, &mine));
      if (mine) {
        struct rule *more = realloc(list, (n + 1) * sizeof *list);
        if (!more) {
          err = atoll_fail(ATOLL_NOMEM, "no memory for fault rule %zu", n + 1);
          goto free_list;
        }
        list = more;
        list[n++] = r;
      }
    }
    p += len + (p[len] == ';');
  }
  (void)pthread_mutex_lock(&lock);
  struct rule *old = rules;
  rules = list;
  rule_count = n;
  atomic_store(&active, n > 0);
  (void)pthread_mutex_unlock(&lock);
  list = old;
free_list:
  free(list);
  return err;
}

atoll_err atoll_fault_init(int rank) { return atoll_fault_set(getenv("ATOLL_FAULT"), rank); }

/* Count a passage; 1 when the rule acts on it. */
static int passes(struct rule *r) {
  r->seen++;
  return r->nth == 0 || r->seen == r->nth;
}

static int enabled(void) { return atomic_load_explicit(&active, memory_order_relaxed); }

void atoll_fault_point(const char *point) {
  if (!enabled())
    return;
  int signal_wanted = 0;
  (void)pthread_mutex_lock(&lock);
  for (size_t i = 0; i < rule_count; i++) {
    struct rule *r = &rules[i];
    if ((r->kind == KIND_KILL || r->kind == KIND_STOP) && strcmp(r->name, point) == 0 && passes(r) &&
        signal_wanted != SIGKILL)
      signal_wanted = r->kind == KIND_KILL ? SIGKILL : SIGSTOP;
  }
  (void)pthread_mutex_unlock(&lock);
  if (!signal_wanted)
    return;
  atoll_log(ATOLL_LOG_INFO, "fault: %s at point %s", signal_wanted == SIGKILL ? "SIGKILL" : "SIGSTOP", point);
  atoll_log_flush();
  (void)raise(signal_wanted); /* both act on the whole process */
}

int atoll_fault_hit(const char *point) {
  int hit = 0;
  if (!enabled())
    return 0;
  (void)pthread_mutex_lock(&lock);
  for (size_t i = 0; i < rule_count; i++)
    if (rules[i].kind == KIND_NAN && strcmp(rules[i].name, point) == 0 && passes(&rules[i]))
      hit = 1;
  (void)pthread_mutex_unlock(&lock);
  return hit;
}

int atoll_fault_call(const char *call, int *half) {
  int error = 0;
  if (half)
    *half = 0;
  if (!enabled())
    return 0;
  (void)pthread_mutex_lock(&lock);
  for (size_t i = 0; i < rule_count; i++) {
    struct rule *r = &rules[i];
    if ((r->kind == KIND_FAIL && (strcmp(r->name, "*") == 0 || strcmp(r->name, call) == 0)) ||
        (r->kind == KIND_SHORT && strcmp(call, "write") == 0)) {
      if (passes(r) && !error) {
        error = r->error;
        if (half)
          *half = r->kind == KIND_SHORT;
      }
    }
  }
  (void)pthread_mutex_unlock(&lock);
  return error;
}

/* The watch: one thread per process that notices what a blocked rank cannot.
 *
 *  A rank that died, was stopped, or took another branch leaves the others waiting in a collective for ever, without a
 *  word about who is missing. So each process runs a thread with a communicator of its own, on which the main thread
 *  never waits:
 *
 *    rank r -> 0   BEAT every heartbeat_seconds, with what the rank is doing      0 -> r   BEAT likewise
 *    rank r -> 0   EXPIRED when one of its phases passed the limit
 *    0 -> all      ASK "did you arrive at phase P, n-th time?"                    r -> 0   ANSWER
 *
 *  Rank 0 hears everybody, so it reports; everybody hears rank 0, so its silence is noticed as well. A phase is matched
 *  over ranks by its name and how often it was begun; ranks need not run the same phases. Who reports prints one line,
 *  calls the hook and MPI_Abort()s.
 *
 *  A process that was itself stopped (job suspended) finds that its own loop had a gap, and forgives everybody that
 * gap.
 *
 *  The end is a protocol too: each rank says BYE as its last message; when all did, rank 0 answers GOODBYE as its last.
 *  Messages between two ranks keep their order, so nothing is left unmatched on the communicator.
 *
 *  While communication is pending and nobody polls, the thread polls it every 0.2 to 1 ms (by how many ranks share a
 *  core); otherwise it wakes a few times per heartbeat. */
#include "atoll/agree.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agree_impl.h"
#include "atoll/clock.h"
#include "atoll/log.h"
#include "wait.h"
#include "watch_impl.h"

#define NAME_MAX_    64
#define DOING_MAX    256
#define DEPTH_MAX    16
#define NAMES_MAX    128
#define REPORT_RANKS 8
#define TAG          1
/* How long rank 0 waits for answers, and a rank for rank 0's report before it reports alone (plus the silence). */
#define ANSWER_SECONDS 2.0
#define ABORT_SECONDS  10

enum kind { BEAT = 1, EXPIRED, ASK, ANSWER, BYE, GOODBYE };

struct message {
  int32_t kind;
  int32_t arrived;
  int64_t nth;
  double limit;
  char phase[NAME_MAX_];
  char doing[DOING_MAX];
};

struct letter { /* one message on its way */
  MPI_Request request;
  struct message m;
};

struct peer {
  double heard;
  int gone; /* 1: said BYE, 2: was told GOODBYE */
  int asked, answered, arrived;
  char doing[DOING_MAX];
  struct letter beat, other;
};

struct phase {
  char name[NAME_MAX_];
  double start, limit;
  int64_t nth;
};

struct job {
  pending *p;
  double since;
  char what[96];
};

struct atoll_watch {
  MPI_Comm comm;
  int rank, size;
  atoll_watch_params params;
  double idle_tick, busy_tick;
  pthread_t thread;
  pthread_mutex_t lock; /* guards what follows up to the empty line */
  pthread_cond_t wake;
  int stopping;
  atoll_watch_hook hook;
  void *hook_arg;
  struct phase phase[DEPTH_MAX];
  int depth;
  char last[NAME_MAX_]; /* the phase ended last */
  struct {
    char name[NAME_MAX_];
    int64_t begun;
  } name[NAMES_MAX];
  int names;
  struct job *job;
  int jobs, job_cap;

  /* The thread's own. */
  struct peer *peer; /* rank 0: [size]; others: [1], rank 0 */
  double last_round, last_beat;
  int said_bye, farewell;
  struct { /* the phase asked about (rank 0) or expired (others) */
    int active;
    char name[NAME_MAX_];
    int64_t nth;
    double limit, until;
    int rank;
  } late;
};

static _Atomic(atoll_watch *) current;
static atomic_int ending;

atoll_watch *watch_current(void) { return atomic_load(&current); }

void atoll_watch_params_init(atoll_watch_params *p) {
  *p = (atoll_watch_params){.heartbeat_seconds = 0.5, .silence_seconds = 20, .phase_seconds = 600};
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t alarm_status;

static void on_alarm(int signal) {
  (void)signal;
  _exit(alarm_status);
}

/* MPI_Abort may itself hang when the network does: then the process ends by the alarm, and the launcher ends the rest.
 */
static void __attribute__((noreturn)) end_job(atoll_watch *w, atoll_err code, const char *reason) {
  if (atomic_exchange(&ending, 1)) /* another thread ends the job already */
    for (;;)
      pause();
  alarm_status = (int)code;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, NULL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  alarm(ABORT_SECONDS);
  atoll_log(ATOLL_LOG_ERROR, "%s: %s", atoll_err_name(code), reason);
  if (w) {
    pthread_mutex_lock(&w->lock);
    atoll_watch_hook hook = w->hook;
    void *arg = w->hook_arg;
    pthread_mutex_unlock(&w->lock);
    if (hook)
      hook(arg, code, reason);
  }
  atoll_log_flush();
  fflush(NULL);
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized && !finalized)
    MPI_Abort(MPI_COMM_WORLD, (int)code);
  _exit((int)code);
}

void atoll_abort(atoll_watch *watch, atoll_err code) {
  char reason[2048];
  const char *message = atoll_err_message();
  snprintf(reason, sizeof reason, "%s", *message ? message : atoll_err_text(code));
  end_job(watch, code, reason);
}

/* --- what this rank is doing -------------------------------------------------------------------------------------- */

/* Under lock. `name` is a buffer of NAME_MAX_ bytes. */
static int64_t *counter(atoll_watch *w, const char *name, int create) {
  for (int i = 0; i < w->names; i++)
    if (!strcmp(w->name[i].name, name))
      return &w->name[i].begun;
  if (!create || w->names == NAMES_MAX)
    return NULL;
  memcpy(w->name[w->names].name, name, NAME_MAX_);
  return &w->name[w->names++].begun;
}

void atoll_watch_begin(atoll_watch *w, const char *name, double seconds) {
  if (!w)
    return;
  char key[NAME_MAX_] = "";
  snprintf(key, sizeof key, "%s", name);
  pthread_mutex_lock(&w->lock);
  if (w->depth < DEPTH_MAX) {
    struct phase *p = &w->phase[w->depth];
    memcpy(p->name, key, sizeof p->name);
    int64_t *n = counter(w, key, 1);
    p->nth = n ? ++*n : 0;
    p->start = atoll_clock_now();
    p->limit = seconds > 0 ? seconds : w->params.phase_seconds;
  }
  w->depth++; /* deeper ones are counted, not watched */
  pthread_mutex_unlock(&w->lock);
}

void atoll_watch_end(atoll_watch *w) {
  if (!w)
    return;
  pthread_mutex_lock(&w->lock);
  if (w->depth > 0 && --w->depth < DEPTH_MAX)
    memcpy(w->last, w->phase[w->depth].name, sizeof w->last);
  pthread_mutex_unlock(&w->lock);
}

void atoll_watch_on_abort(atoll_watch *w, atoll_watch_hook hook, void *arg) {
  if (!w)
    return;
  pthread_mutex_lock(&w->lock);
  w->hook = hook;
  w->hook_arg = arg;
  pthread_mutex_unlock(&w->lock);
}

static void put(char *text, size_t n, const char *fmt, ...) ATOLL_PRINTF(3, 4);
static void put(char *text, size_t n, const char *fmt, ...) {
  size_t have = strlen(text);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text + have, n - have, fmt, ap);
  va_end(ap);
}

static void describe(atoll_watch *w, char *text, size_t n) {
  double now = atoll_clock_now();
  text[0] = 0;
  pthread_mutex_lock(&w->lock);
  int depth = w->depth < DEPTH_MAX ? w->depth : DEPTH_MAX;
  if (depth)
    put(text, n, "in '%s' for %.1f s", w->phase[depth - 1].name, now - w->phase[depth - 1].start);
  else if (w->last[0])
    put(text, n, "after '%s'", w->last);
  else
    put(text, n, "before any phase");
  for (int i = 0; i < w->jobs && i < 2; i++)
    put(text, n, ", %s pending for %.1f s", w->job[i].what, now - w->job[i].since);
  if (w->jobs > 2)
    put(text, n, " and %d more", w->jobs - 2);
  pthread_mutex_unlock(&w->lock);
}

static int arrived_at(atoll_watch *w, const char *name, int64_t nth) {
  pthread_mutex_lock(&w->lock);
  int64_t *n = counter(w, name, 0);
  int yes = n && *n >= nth;
  pthread_mutex_unlock(&w->lock);
  return yes;
}

/* --- letters ------------------------------------------------------------------------------------------------------ */

/* Skipped, with answer 0, while the previous one is still on its way (a stopped peer does not take it). */
static int post(atoll_watch *w, int to, struct letter *l, const struct message *m) {
  int done = 1;
  if (l->request != MPI_REQUEST_NULL && MPI_Test(&l->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
    done = 1;
  if (!done)
    return 0;
  l->m = *m;
  if (MPI_Isend(&l->m, (int)sizeof l->m, MPI_BYTE, to, TAG, w->comm, &l->request) != MPI_SUCCESS)
    l->request = MPI_REQUEST_NULL;
  return 1;
}

static int delivered(struct letter *l) {
  int done = 1;
  if (l->request != MPI_REQUEST_NULL)
    MPI_Test(&l->request, &done, MPI_STATUS_IGNORE);
  return done;
}

static struct message compose(atoll_watch *w, enum kind kind) {
  struct message m;
  memset(&m, 0, sizeof m);
  m.kind = (int32_t)kind;
  describe(w, m.doing, sizeof m.doing);
  return m;
}

static void keep_doing(struct peer *p, const struct message *m) {
  memcpy(p->doing, m->doing, sizeof p->doing);
  p->doing[sizeof p->doing - 1] = 0;
}

static void ask_all(atoll_watch *w, int rank, const struct message *about) {
  if (w->late.active)
    return;
  w->late.active = 1;
  w->late.rank = rank;
  w->late.nth = about->nth;
  w->late.limit = about->limit;
  memcpy(w->late.name, about->phase, sizeof w->late.name);
  w->late.name[NAME_MAX_ - 1] = 0;
  w->late.until = atoll_clock_now() + ANSWER_SECONDS;
  for (int r = 1; w->rank == 0 && r < w->size; r++) {
    struct peer *p = &w->peer[r];
    p->answered = p->gone;
    p->arrived = p->gone;
    p->asked = 0;
  }
}

static void take_message(atoll_watch *w, int from, const struct message *m) {
  struct peer *p = &w->peer[w->rank == 0 ? from : 0];
  p->heard = atoll_clock_now();
  if (w->rank == 0)
    keep_doing(p, m);
  switch (m->kind) {
  case EXPIRED:
    ask_all(w, from, m);
    break;
  case ANSWER:
    p->answered = 1;
    p->arrived = m->arrived;
    break;
  case BYE:
    p->gone = 1;
    p->answered = p->arrived = 1;
    break;
  case GOODBYE:
    w->farewell = 1;
    break;
  case ASK:
    if (!w->said_bye) {
      struct message a = compose(w, ANSWER);
      char name[NAME_MAX_];
      memcpy(name, m->phase, sizeof name);
      name[NAME_MAX_ - 1] = 0;
      a.arrived = arrived_at(w, name, m->nth);
      post(w, 0, &p->other, &a);
    }
    break;
  default:
    break;
  }
}

static void receive(atoll_watch *w) {
  for (;;) {
    int have = 0;
    MPI_Status status;
    struct message m;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG, w->comm, &have, &status) != MPI_SUCCESS || !have)
      return;
    if (MPI_Recv(&m, (int)sizeof m, MPI_BYTE, status.MPI_SOURCE, TAG, w->comm, &status) != MPI_SUCCESS)
      return;
    take_message(w, status.MPI_SOURCE, &m);
  }
}

static void beat(atoll_watch *w, double now) {
  if (now - w->last_beat < w->params.heartbeat_seconds || w->said_bye)
    return;
  w->last_beat = now;
  struct message m = compose(w, BEAT);
  if (w->rank)
    post(w, 0, &w->peer[0].beat, &m);
  else
    for (int r = 1; r < w->size; r++)
      post(w, r, &w->peer[r].beat, &m);
}

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

static void check_silence(atoll_watch *w, double now) {
  char text[1600] = "";
  double limit = w->params.silence_seconds;
  if (w->rank) {
    /* One after the other, so that one of them reports. */
    double turn = 0.2 * (w->rank - 1 < 10 ? w->rank - 1 : 10);
    if (now - w->peer[0].heard > limit + turn)
      put(text, sizeof text, "rank 0 gave no sign of life for %.1f s", now - w->peer[0].heard);
  } else {
    int lost = 0;
    for (int r = 1; r < w->size; r++) {
      struct peer *p = &w->peer[r];
      if (p->gone || now - p->heard <= limit)
        continue;
      if (lost++ < REPORT_RANKS)
        put(text, sizeof text, "%srank %d gave no sign of life for %.1f s (last: %s)", lost > 1 ? "; " : "", r,
            now - p->heard, p->doing[0] ? p->doing : "nothing was heard");
    }
    if (lost > REPORT_RANKS)
      put(text, sizeof text, "; and %d more", lost - REPORT_RANKS);
  }
  if (text[0]) {
    put(text, sizeof text, "; the limit is %.1f s", limit);
    end_job(w, ATOLL_PEER_LOST, text);
  }
}

static void report_late(atoll_watch *w) {
  char text[2000] = "";
  put(text, sizeof text, "phase '%s' passed its limit of %.1f s on rank %d", w->late.name, w->late.limit, w->late.rank);
  if (w->rank == 0) {
    int absent = 0, inside = 0;
    for (int pass = 0; pass < 2; pass++) {
      if (pass && absent) /* who is missing matters; who waits for them does not */
        break;
      for (int r = 0; r < w->size; r++) {
        struct peer *p = &w->peer[r];
        int arrived = r ? p->answered && p->arrived : arrived_at(w, w->late.name, w->late.nth);
        if (r == 0)
          describe(w, p->doing, sizeof p->doing);
        if (pass == arrived && (pass ? inside++ : absent++) < REPORT_RANKS)
          put(text, sizeof text, "; rank %d %s%s (%s)", r, pass ? "is there" : "never arrived",
              r && !p->answered ? " and does not answer" : "", p->doing[0] ? p->doing : "nothing was heard");
      }
    }
    int more = absent ? absent - REPORT_RANKS : inside - REPORT_RANKS;
    if (more > 0)
      put(text, sizeof text, "; and %d more", more);
    if (!absent)
      put(text, sizeof text, "; every rank arrived");
  } else {
    char doing[DOING_MAX];
    describe(w, doing, sizeof doing);
    put(text, sizeof text, "; rank 0 does not report; this rank is %s", doing);
  }
  end_job(w, ATOLL_TIMEOUT, text);
}

static void check_phases(atoll_watch *w, double now) {
  if (!w->late.active) {
    struct message m;
    int expired = 0;
    memset(&m, 0, sizeof m);
    pthread_mutex_lock(&w->lock);
    for (int i = (w->depth < DEPTH_MAX ? w->depth : DEPTH_MAX) - 1; i >= 0 && !expired; i--) {
      struct phase *p = &w->phase[i];
      if (now - p->start <= p->limit)
        continue;
      expired = 1;
      m.nth = p->nth;
      m.limit = p->limit;
      memcpy(m.phase, p->name, sizeof m.phase);
    }
    pthread_mutex_unlock(&w->lock);
    if (!expired)
      return;
    ask_all(w, w->rank, &m);
    if (w->rank && !w->said_bye) {
      describe(w, m.doing, sizeof m.doing);
      m.kind = EXPIRED;
      post(w, 0, &w->peer[0].other, &m);
      w->late.until = now + ANSWER_SECONDS + w->params.silence_seconds;
    }
  }
  if (w->rank == 0) {
    struct message m;
    memset(&m, 0, sizeof m);
    m.kind = ASK;
    m.nth = w->late.nth;
    memcpy(m.phase, w->late.name, sizeof m.phase);
    int waiting = 0;
    for (int r = 1; r < w->size; r++) {
      struct peer *p = &w->peer[r];
      if (!p->asked && !p->gone)
        p->asked = post(w, r, &p->other, &m);
      waiting += !p->answered;
    }
    if (!waiting)
      report_late(w);
  }
  if (now > w->late.until)
    report_late(w);
}

/* Whoever was stopped finds the others silent and its phases late when it wakes: forgive the gap. */
static void forgive_gap(atoll_watch *w, double now) {
  double gap = now - w->last_round, most = 2 * w->params.heartbeat_seconds;
  w->last_round = now;
  if (gap < (most > 1 ? most : 1))
    return;
  for (int i = 0; i < (w->rank ? 1 : w->size); i++)
    w->peer[i].heard = now;
  w->late.until += gap;
  pthread_mutex_lock(&w->lock);
  for (int i = 0; i < w->depth && i < DEPTH_MAX; i++)
    w->phase[i].start = w->phase[i].start + gap < now ? w->phase[i].start + gap : now;
  pthread_mutex_unlock(&w->lock);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* Under lock. */
static void drive(atoll_watch *w) {
  int kept = 0;
  for (int i = 0; i < w->jobs; i++) {
    if (pending_test(w->job[i].p))
      pending_drop(w->job[i].p);
    else
      w->job[kept++] = w->job[i];
  }
  w->jobs = kept;
}

void watch_add(atoll_watch *w, pending *p, const char *what) {
  if (!w)
    return;
  pthread_mutex_lock(&w->lock);
  if (w->jobs == w->job_cap) {
    int cap = w->job_cap ? 2 * w->job_cap : 32;
    struct job *more = realloc(w->job, (size_t)cap * sizeof *more);
    if (!more) { /* it completes all the same, only later */
      pthread_mutex_unlock(&w->lock);
      return;
    }
    w->job = more;
    w->job_cap = cap;
  }
  struct job *j = &w->job[w->jobs++];
  j->p = pending_hold(p);
  j->since = atoll_clock_now();
  snprintf(j->what, sizeof j->what, "%s", what);
  if (w->jobs == 1)
    pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->lock);
}

/* 1 when the thread may end. */
static int leave(atoll_watch *w) {
  if (w->size == 1)
    return 1;
  if (w->rank) {
    struct peer *p = &w->peer[0];
    if (!w->said_bye && delivered(&p->beat)) { /* `other` may still hold an answer */
      struct message m = compose(w, BYE);
      w->said_bye = post(w, 0, &p->other, &m);
    }
    return w->farewell && delivered(&p->beat) && delivered(&p->other);
  }
  int all = 1;
  for (int r = 1; r < w->size; r++)
    all &= w->peer[r].gone != 0;
  if (!all)
    return 0;
  struct message m = compose(w, GOODBYE);
  w->said_bye = 1; /* no beat may follow */
  for (int r = 1; r < w->size; r++) {
    struct peer *p = &w->peer[r];
    if (p->gone == 1)
      p->gone = 1 + post(w, r, &p->other, &m);
    all &= p->gone == 2 && delivered(&p->other) && delivered(&p->beat);
  }
  return all;
}

static void *watch_thread(void *arg) {
  atoll_watch *w = arg;
  for (;;) {
    pthread_mutex_lock(&w->lock);
    int stopping = w->stopping;
    int polling = atomic_load_explicit(&wait_threads, memory_order_relaxed) > 0;
    double tick = stopping ? 0.001 : w->jobs && !polling ? w->busy_tick : w->idle_tick;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(tick * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&w->wake, &w->lock, &until);
    drive(w);
    stopping = w->stopping;
    int busy = w->jobs > 0;
    pthread_mutex_unlock(&w->lock);

    double now = atoll_clock_now();
    int again = stop_abort_signal();
    if (again) {
      char text[96];
      snprintf(text, sizeof text, "a second signal, %s, on rank %d", stop_signal_name(again), w->rank);
      end_job(w, ATOLL_ABORTED, text);
    }
    if (!stopping && now - w->last_round < w->idle_tick && busy)
      continue; /* the rest need not be done at the pace of the polling */
    forgive_gap(w, now);
    if (w->size > 1) {
      receive(w);
      beat(w, now);
      check_silence(w, now);
    }
    check_phases(w, now);
    if (stopping && leave(w))
      return NULL;
  }
}

static int cores(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

atoll_err atoll_watch_start(MPI_Comm comm, const atoll_watch_params *params, atoll_watch **out) {
  atoll_watch_params defaults;
  if (!params) {
    atoll_watch_params_init(&defaults);
    params = &defaults;
  }
  atoll_err err = ATOLL_OK;
  if (!(params->heartbeat_seconds > 0) || !(params->silence_seconds > params->heartbeat_seconds) ||
      !(params->phase_seconds > 0))
    err = atoll_fail(ATOLL_USAGE, "watch: heartbeat %g s, silence %g s, phase %g s: expected 0 < heartbeat < silence",
                     params->heartbeat_seconds, params->silence_seconds, params->phase_seconds);
  if (!err && watch_current())
    err = atoll_fail(ATOLL_USAGE, "a watch is running already");
  atoll_watch *w = err ? NULL : calloc(1, sizeof *w);
  int local = 1;
  if (!err && !w)
    err = atoll_fail(ATOLL_NOMEM, "watch: %zu bytes", sizeof *w);
  if (w) {
    MPI_Comm_rank(comm, &w->rank);
    MPI_Comm_size(comm, &w->size);
    w->comm = MPI_COMM_NULL;
    w->params = *params;
    int peers = w->rank ? 1 : w->size;
    w->peer = calloc((size_t)peers, sizeof *w->peer);
    if (!w->peer)
      err = atoll_fail(ATOLL_NOMEM, "watch of %d ranks", w->size);
    for (int i = 0; w->peer && i < peers; i++)
      w->peer[i].beat.request = w->peer[i].other.request = MPI_REQUEST_NULL;
  }
  ATOLL_TRY_GOTO(err, fail, atoll_agree(comm, err));
  ATOLL_TRY_GOTO(err, fail, atoll_agree(comm, mpi_check(MPI_Comm_dup(comm, &w->comm), "MPI_Comm_dup")));
  MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
  MPI_Comm node;
  if (MPI_Comm_split_type(w->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) == MPI_SUCCESS) {
    MPI_Comm_size(node, &local);
    MPI_Comm_free(&node);
  }
  w->busy_tick = clamp(0.0002 * local / cores(), 0.0002, 0.001);
  w->idle_tick = clamp(w->params.heartbeat_seconds / 4, 0.005, 0.1);
  w->last_round = atoll_clock_now();
  for (int i = 0; i < (w->rank ? 1 : w->size); i++)
    w->peer[i].heard = w->last_round;
  pthread_mutex_init(&w->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&w->wake, &attr);
  pthread_condattr_destroy(&attr);
  /* Signals are the main thread's. */
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&w->thread, NULL, watch_thread, w);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc) { /* the others run and would wait for this one at the end: there is no quiet way back */
    atoll_fail(ATOLL_UNAVAILABLE, "no thread for the watch: %s", strerror(rc));
    atoll_abort(NULL, ATOLL_UNAVAILABLE);
  }
  atomic_store(&current, w);
  *out = w;
  return ATOLL_OK;
fail:
  if (w) {
    if (w->comm != MPI_COMM_NULL)
      MPI_Comm_free(&w->comm);
    free(w->peer);
    free(w);
  }
  return err;
}

void atoll_watch_stop(atoll_watch **watch) {
  atoll_watch *w = *watch;
  if (!w)
    return;
  pthread_mutex_lock(&w->lock);
  w->stopping = 1;
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  atomic_store(&current, NULL);
  *watch = NULL;
  for (int i = 0; i < w->jobs; i++)
    pending_drop(w->job[i].p);
  MPI_Comm_free(&w->comm);
  pthread_cond_destroy(&w->wake);
  pthread_mutex_destroy(&w->lock);
  free(w->job);
  free(w->peer);
  free(w);
}

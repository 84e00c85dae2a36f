/* Regions and counters.
 *
 * Sources are tried in order and accepted only after one start, read and stop: a container often lists events it then
 * forbids. PAPI first; else the kernel's software events through perf_event_open; else getrusage. What could not be had
 * stays in the list as unavailable, with the reason of the source that refused, so that a reader of the results sees
 * what was tried. */
#include "atoll/perf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef ATOLL_HAVE_PAPI
#include <papi.h>
#endif

#include "atoll/clock.h"

enum { REGIONS_MAX = 64, NAME_MAX_BYTES = 48 };

typedef struct region {
  char name[NAME_MAX_BYTES];
  int64_t calls;
  double seconds, counter[ATOLL_PERF_COUNTERS_MAX];
  int depth; /* a region inside itself counts once */
  double began, at_begin[ATOLL_PERF_COUNTERS_MAX];
} region;

typedef struct span {
  int region;
  double began, ended;
} span;

struct atoll_perf {
  int counters, regions;
  atoll_perf_counter counter[ATOLL_PERF_COUNTERS_MAX];
  region region[REGIONS_MAX];
  int fd[ATOLL_PERF_COUNTERS_MAX];     /* perf events, -1 none */
  int rusage[ATOLL_PERF_COUNTERS_MAX]; /* which field, -1 none */
  int papi[ATOLL_PERF_COUNTERS_MAX];   /* position in the event set, -1 none */
  int papi_set;
  int tracing;
  span *span;
  int64_t spans, spans_max, spans_lost;
};

void atoll_perf_params_init(atoll_perf_params *p) {
  p->counters = 1;
  p->events = NULL;
}

static atoll_perf_counter *add_counter(atoll_perf *p, const char *name, const char *unit, const char *source) {
  if (p->counters == ATOLL_PERF_COUNTERS_MAX)
    return NULL;
  int i = p->counters++;
  atoll_perf_counter *c = &p->counter[i];
  memset(c, 0, sizeof *c);
  snprintf(c->name, sizeof c->name, "%s", name);
  snprintf(c->unit, sizeof c->unit, "%s", unit);
  snprintf(c->source, sizeof c->source, "%s", source);
  p->fd[i] = p->rusage[i] = p->papi[i] = -1;
  return c;
}

static void refuse(atoll_perf_counter *c, const char *reason) {
  if (!c)
    return;
  c->status = ATOLL_PERF_UNAVAILABLE;
  snprintf(c->reason, sizeof c->reason, "%s", reason);
}

/* Test hook: which sources exist. "" all; "rusage": neither PAPI nor perf events; "none": not even that. */
static const char *allowed(void) {
  const char *text = getenv("ATOLL_TEST_PERF");
  return text ? text : "";
}

/* ---- PAPI ----------------------------------------------------------------------------------------------------------
 */

#ifdef ATOLL_HAVE_PAPI
/* PAPI's own words, and why its component for hardware counters is switched off. */
static void papi_reason(int code, char *buf, size_t n) {
  const char *text = PAPI_strerror(code);
  const PAPI_component_info_t *cpu = code == PAPI_ECMP_DISABLED ? PAPI_get_component_info(0) : NULL;
  snprintf(buf, n, "%s (%d)%s%.80s", text ? text : "PAPI gives no reason", code, cpu && cpu->disabled ? ": " : "",
           cpu && cpu->disabled ? cpu->disabled_reason : "");
}

static void papi_discard(int *set) {
  if (*set == PAPI_NULL)
    return;
  PAPI_cleanup_eventset(*set);
  PAPI_destroy_eventset(set);
}

/* Add what can be added, then start, read and stop once, and start for good. */
static void add_papi(atoll_perf *p, char **name, int n) {
  char reason[160] = "";
  int code = PAPI_OK, set = PAPI_NULL, used = 0, version = PAPI_VER_CURRENT;
  if (!PAPI_is_initialized() && (version = PAPI_library_init(PAPI_VER_CURRENT)) != PAPI_VER_CURRENT) {
    code = version < 0 ? version : PAPI_EINVAL;
    snprintf(reason, sizeof reason, "PAPI_library_init: %s (%d)",
             version < 0 ? PAPI_strerror(version) : "another version", version);
  }
  if (code == PAPI_OK && (code = PAPI_create_eventset(&set)) != PAPI_OK)
    papi_reason(code, reason, sizeof reason);
  int first = p->counters;
  for (int i = 0; i < n; i++) {
    atoll_perf_counter *c = add_counter(p, name[i], "count", "papi");
    int added = code == PAPI_OK && !reason[0] ? PAPI_add_named_event(set, name[i]) : code;
    if (added == PAPI_OK) {
      p->papi[p->counters - 1] = used++;
      continue;
    }
    char own[160];
    if (!reason[0])
      papi_reason(added, own, sizeof own);
    refuse(c, reason[0] ? reason : own);
  }
  long long values[ATOLL_PERF_COUNTERS_MAX];
  if (used) {
    static const char *const steps[] = {"start", "read", "stop", "start again"};
    for (int step = 0; step < 4 && code == PAPI_OK; step++) {
      code = step == 0   ? PAPI_start(set)
             : step == 1 ? PAPI_read(set, values)
             : step == 2 ? PAPI_stop(set, values)
                         : PAPI_start(set);
      if (code != PAPI_OK) {
        papi_reason(code, reason, sizeof reason);
        char text[160];
        snprintf(text, sizeof text, "%s: %.140s", steps[step], reason);
        for (int i = first; i < p->counters; i++)
          if (p->papi[i] >= 0) {
            p->papi[i] = -1;
            refuse(&p->counter[i], text);
          }
        if (step == 1 || step == 2)
          (void)PAPI_stop(set, values);
      }
    }
  }
  if (used && code == PAPI_OK)
    p->papi_set = set;
  else
    papi_discard(&set);
}
#endif

/* ---- perf events ---------------------------------------------------------------------------------------------------
 */

typedef struct event {
  const char *name, *unit;
  uint32_t type;
  uint64_t config;
  int rusage; /* what stands in for it, -1 nothing */
} event;

static const event software[] = {{"task_clock", "s", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 0},
                                 {"page_faults", "count", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 1},
                                 {"context_switches", "count", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, 2},
                                 {"cpu_migrations", "count", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, -1}};

/* Only when asked for by name. */
static const event hardware[] = {{"cycles", "count", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, -1},
                                 {"instructions", "count", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, -1},
                                 {"cache_references", "count", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES, -1},
                                 {"cache_misses", "count", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, -1},
                                 {"branch_misses", "count", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, -1}};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Opened, started, read, stopped, started for good; -1 with errno. Threads made later are counted too. */
static int open_event(const event *e) {
  struct perf_event_attr a = {.type = e->type, .size = sizeof a, .config = e->config, .disabled = 1, .inherit = 1};
  a.exclude_hv = 1;
  if (allowed()[0]) {
    errno = EACCES;
    return -1;
  }
  int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0 && (errno == EACCES || errno == EPERM)) { /* perf_event_paranoid 2 still allows the user's part */
    a.exclude_kernel = 1;
    fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  }
  uint64_t value;
  if (fd >= 0 && (ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) || read(fd, &value, sizeof value) != sizeof value ||
                  ioctl(fd, PERF_EVENT_IOC_DISABLE, 0) || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0))) {
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
  }
  return fd;
}

static void add_event(atoll_perf *p, const event *e) {
  for (int i = 0; i < p->counters; i++)
    if (!strcmp(p->counter[i].name, e->name))
      return;
  atoll_perf_counter *c = add_counter(p, e->name, e->unit, "perf");
  if (!c)
    return;
  int fd = open_event(e);
  if (fd >= 0) {
    p->fd[p->counters - 1] = fd;
    return;
  }
  char reason[160];
  snprintf(reason, sizeof reason, "perf_event_open: %s (errno %d)", strerror(errno), errno);
  if (e->rusage < 0 || !strcmp(allowed(), "none")) {
    refuse(c, reason);
    return;
  }
  snprintf(c->source, sizeof c->source, "rusage");
  snprintf(c->reason, sizeof c->reason, "%s", reason); /* why not the better source */
  p->rusage[p->counters - 1] = e->rusage;
}

static const event *find_event(const char *name) {
  for (size_t i = 0; i < COUNT(software); i++)
    if (!strcmp(software[i].name, name))
      return &software[i];
  for (size_t i = 0; i < COUNT(hardware); i++)
    if (!strcmp(hardware[i].name, name))
      return &hardware[i];
  return NULL;
}

/* The wanted names first, each by the source that knows it; then the software events. */
static atoll_err add_counters(atoll_perf *p, const char *events) {
  enum { ROOM = ATOLL_PERF_COUNTERS_MAX - (int)COUNT(software) };
  char *list = strdup(events && *events ? events : "PAPI_TOT_CYC,PAPI_TOT_INS"), *save = NULL, *papi[ROOM];
  int n = 0, papis = 0;
  if (!list)
    return atoll_fail(ATOLL_NOMEM, "no memory for the list of counters");
  for (char *name = strtok_r(list, ", \t", &save); name; name = strtok_r(NULL, ", \t", &save)) {
    if (n++ == ROOM || strlen(name) >= sizeof p->counter[0].name) {
      atoll_err err = n > ROOM ? atoll_fail(ATOLL_USAGE, "perf events '%s': more than %d names", events, ROOM)
                               : atoll_fail(ATOLL_USAGE, "perf event '%s': %zu bytes, at most %zu", name, strlen(name),
                                            sizeof p->counter[0].name - 1);
      free(list);
      return err;
    }
    int seen = 0;
    for (int i = 0; i < papis; i++)
      seen |= !strcmp(papi[i], name);
    const event *e = find_event(name);
    if (e)
      add_event(p, e);
    else if (!seen)
      papi[papis++] = name;
  }
  if (allowed()[0])
    for (int i = 0; i < papis; i++)
      refuse(add_counter(p, papi[i], "count", "papi"), "PAPI is switched off by ATOLL_TEST_PERF");
  else
#ifdef ATOLL_HAVE_PAPI
    add_papi(p, papi, papis);
#else
    for (int i = 0; i < papis; i++)
      refuse(add_counter(p, papi[i], "count", "papi"), "built without PAPI");
#endif
  for (size_t i = 0; i < COUNT(software); i++)
    add_event(p, &software[i]);
  free(list);
  return ATOLL_OK;
}

/* ---- reading -------------------------------------------------------------------------------------------------------
 */

static double rusage_value(int which) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  switch (which) {
  case 0:
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  case 1:
    return (double)u.ru_minflt + (double)u.ru_majflt;
  default:
    return (double)u.ru_nvcsw + (double)u.ru_nivcsw;
  }
}

static void read_all(const atoll_perf *p, double *out) {
#ifdef ATOLL_HAVE_PAPI
  long long papi[ATOLL_PERF_COUNTERS_MAX];
  int papi_ok = p->papi_set >= 0 && PAPI_read(p->papi_set, papi) == PAPI_OK;
#endif
  for (int i = 0; i < p->counters; i++) {
    out[i] = NAN;
    if (p->fd[i] >= 0) {
      uint64_t value;
      if (read(p->fd[i], &value, sizeof value) == sizeof value)
        out[i] = p->counter[i].unit[0] == 's' ? 1e-9 * (double)value : (double)value;
    } else if (p->rusage[i] >= 0) {
      out[i] = rusage_value(p->rusage[i]);
    }
#ifdef ATOLL_HAVE_PAPI
    if (p->papi[i] >= 0 && papi_ok)
      out[i] = (double)papi[p->papi[i]];
#endif
  }
}

/* ---- life ----------------------------------------------------------------------------------------------------------
 */

atoll_err atoll_perf_create(const atoll_perf_params *params, atoll_perf **out) {
  atoll_perf *p = calloc(1, sizeof *p);
  if (!p)
    return atoll_fail(ATOLL_NOMEM, "performance regions");
  p->papi_set = -1;
  if (params && params->counters) {
    atoll_err err = add_counters(p, params->events);
    if (err != ATOLL_OK) {
      atoll_perf_destroy(&p);
      return err;
    }
  }
  *out = p;
  return ATOLL_OK;
}

void atoll_perf_destroy(atoll_perf **perf) {
  if (!perf || !*perf)
    return;
  atoll_perf *p = *perf;
  for (int i = 0; i < p->counters; i++)
    if (p->fd[i] >= 0)
      close(p->fd[i]);
#ifdef ATOLL_HAVE_PAPI
  if (p->papi_set >= 0) {
    long long values[ATOLL_PERF_COUNTERS_MAX];
    PAPI_stop(p->papi_set, values);
    papi_discard(&p->papi_set);
  }
#endif
  free(p->span);
  free(p);
  *perf = NULL;
}

int atoll_perf_counter_count(const atoll_perf *perf) { return perf->counters; }
const atoll_perf_counter *atoll_perf_counter_at(const atoll_perf *perf, int i) {
  return i >= 0 && i < perf->counters ? &perf->counter[i] : NULL;
}

/* ---- regions -------------------------------------------------------------------------------------------------------
 */

int atoll_perf_region(atoll_perf *p, const char *name) {
  if (!p)
    return -1;
  for (int i = 0; i < p->regions; i++)
    if (!strncmp(p->region[i].name, name, NAME_MAX_BYTES - 1)) /* as stored */
      return i;
  if (p->regions == REGIONS_MAX)
    return -1;
  snprintf(p->region[p->regions].name, NAME_MAX_BYTES, "%s", name);
  return p->regions++;
}

void atoll_perf_begin(atoll_perf *p, int r) {
  if (!p || r < 0 || r >= p->regions || p->region[r].depth++ > 0)
    return;
  read_all(p, p->region[r].at_begin);
  p->region[r].began = atoll_clock_now();
}

void atoll_perf_end(atoll_perf *p, int r) {
  if (!p || r < 0 || r >= p->regions || p->region[r].depth == 0 || --p->region[r].depth > 0)
    return;
  region *x = &p->region[r];
  double now = atoll_clock_now(), value[ATOLL_PERF_COUNTERS_MAX];
  read_all(p, value);
  x->calls++;
  x->seconds += now - x->began;
  for (int i = 0; i < p->counters; i++)
    x->counter[i] += value[i] - x->at_begin[i];
  if (!p->tracing)
    return;
  if (p->spans < p->spans_max)
    p->span[p->spans++] = (span){r, x->began, now};
  else
    p->spans_lost++;
}

int atoll_perf_region_count(const atoll_perf *perf) { return perf->regions; }

void atoll_perf_read(const atoll_perf *p, int r, atoll_perf_value *out) {
  if (r < 0 || r >= p->regions) {
    *out = (atoll_perf_value){.region = ""};
    for (int i = 0; i < ATOLL_PERF_COUNTERS_MAX; i++)
      out->counter[i] = NAN;
    return;
  }
  const region *x = &p->region[r];
  *out = (atoll_perf_value){.region = x->name, .calls = x->calls, .seconds = x->seconds};
  for (int i = 0; i < ATOLL_PERF_COUNTERS_MAX; i++)
    out->counter[i] = i < p->counters && p->counter[i].status == ATOLL_PERF_OK ? x->counter[i] : NAN;
}

void atoll_perf_reset(atoll_perf *p) {
  for (int i = 0; i < p->regions; i++) {
    p->region[i].calls = 0;
    p->region[i].seconds = 0;
    memset(p->region[i].counter, 0, sizeof p->region[i].counter);
    if (p->region[i].depth > 0) { /* what is open begins anew */
      read_all(p, p->region[i].at_begin);
      p->region[i].began = atoll_clock_now();
    }
  }
}

/* ---- memory of the process -----------------------------------------------------------------------------------------
 */

static int64_t status_bytes(const char *key) {
  FILE *f = fopen("/proc/self/status", "re");
  char line[256];
  long long kib = -1;
  if (!f)
    return -1;
  while (fgets(line, sizeof line, f))
    if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), "%lld", &kib) == 1)
      break;
  fclose(f);
  return kib < 0 ? -1 : (int64_t)kib * 1024;
}

int64_t atoll_perf_rss(void) { return status_bytes("VmRSS:"); }
int64_t atoll_perf_peak_rss(void) { return status_bytes("VmHWM:"); }

/* ---- timeline ------------------------------------------------------------------------------------------------------
 */

atoll_err atoll_perf_trace(atoll_perf *p, int on, int64_t max_spans) {
  if (on && max_spans < 1)
    return atoll_fail(ATOLL_USAGE, "a timeline of %lld spans, at least 1", (long long)max_spans);
  if (on && !p->span) {
    p->span = calloc((size_t)max_spans, sizeof *p->span);
    if (!p->span)
      return atoll_fail(ATOLL_NOMEM, "timeline of %lld spans", (long long)max_spans);
    p->spans_max = max_spans;
  }
  p->tracing = on;
  return ATOLL_OK;
}

static void put_name(FILE *f, const char *s) {
  for (; *s; s++)
    if (*s == '"' || *s == '\\')
      fprintf(f, "\\%c", *s);
    else if ((unsigned char)*s < ' ')
      fprintf(f, "\\u%04x", (unsigned)*s);
    else
      fputc(*s, f);
}

atoll_err atoll_perf_trace_json(const atoll_perf *p, int rank, char **text, size_t *bytes) {
  FILE *f = open_memstream(text, bytes);
  if (!f)
    return atoll_fail(ATOLL_NOMEM, "timeline of %lld spans", (long long)p->spans);
  fprintf(f, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}", rank, rank);
  for (int64_t i = 0; i < p->spans; i++) {
    fputs(",\n{\"ph\":\"X\",\"name\":\"", f);
    put_name(f, p->region[p->span[i].region].name);
    fprintf(f, "\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f}", rank, 1e6 * p->span[i].began,
            1e6 * (p->span[i].ended - p->span[i].began));
  }
  if (p->spans_lost)
    fprintf(f,
            ",\n{\"ph\":\"i\",\"name\":\"%lld spans lost: the limit was "
            "reached\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"s\":\"p\"}",
            (long long)p->spans_lost, rank, 1e6 * atoll_clock_now());
  return fclose(f) == 0 ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "timeline of %lld spans", (long long)p->spans);
}

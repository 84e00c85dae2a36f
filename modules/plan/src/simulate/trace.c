/* Events as Chrome trace JSON. Slices of one thread must nest or be apart, so messages that overlap get threads of
 * their own. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/flow.h"

enum { LANES = 16 }; /* threads of one stream and kind */

typedef struct tracer {
  FILE *f;
  const atoll_simulation *sim;
  const atoll_plan *plan;
  int begun; /* something is written, a comma is due */
} tracer;

static void put_text(FILE *f, const char *text) {
  json_t *s = json_string(text);
  if (s)
    json_dumpf(s, f, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
  else
    fputs("\"?\"", f);
  json_decref(s);
}

static void put_meta(tracer *t, const char *what, int pid, int tid, const char *name, int order) {
  fprintf(t->f,
          "%s{\"ph\":\"M\",\"name\":\"%s_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", t->begun++ ? ",\n" : "",
          what, pid, tid);
  put_text(t->f, name);
  fprintf(t->f, "}},\n{\"ph\":\"M\",\"name\":\"%s_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
          what, pid, tid, order);
}

static void put_event(tracer *t, const atoll_sim_event *e, int pid, int tid) {
  /* Whole nanoseconds, so that neighbours still touch and never overlap. */
  int64_t begin = llround(1e9 * e->begin), end = llround(1e9 * e->end);
  fprintf(t->f, ",\n{\"ph\":\"X\",\"name\":\"%s", atoll_sim_kind_name((atoll_sim_kind)e->kind));
  if (e->micro_batch >= 0)
    fprintf(t->f, " %" PRId64, e->micro_batch);
  fprintf(t->f, "\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
          atoll_sim_stream_name((atoll_sim_stream)e->stream), pid, tid, (double)begin / 1e3,
          (double)(end - begin) / 1e3);
  const char *before = ",\"args\":{";
  if (e->peer >= 0) {
    fprintf(t->f, "%s\"%s rank\":%d", before, e->stream == ATOLL_SIM_SEND ? "to" : "from",
            t->sim->replica[e->peer].rank);
    before = ",";
  }
  const atoll_sim_replica *r = &t->sim->replica[e->replica];
  if (t->plan->pipeline[r->pipeline].stage[r->stage].chunks > 1 && e->micro_batch >= 0) {
    fprintf(t->f, "%s\"chunk\":%d", before, e->chunk);
    before = ",";
  }
  fputs(before[1] ? "}" : "}}", t->f);
}

/* Streams of a group as threads: compute first; every kind of message apart. */
static int put_group(tracer *t, const sim_group *g, int order, int64_t *left) {
  const atoll_sim_replica *r = &t->sim->replica[g->member[0]];
  double busy[ATOLL_SIM_STREAMS][ATOLL_SIM_KINDS][LANES];
  char name[320], layers[64];
  memset(busy, 0, sizeof busy);
  snprintf(name, sizeof name, "%s%s, stage %d (layers %s)%s%s", g->name, g->ranks > 1 ? " doing the same" : "",
           r->stage, sim_layers(&t->plan->pipeline[r->pipeline].stage[r->stage], layers, sizeof layers),
           g->islands[0] ? ", island " : "", g->islands);
  put_meta(t, "process", r->rank, 0, name, order);
  for (int64_t i = g->at; i < g->at + g->count; i++) {
    const atoll_sim_event *e = &t->sim->event[i];
    if ((*left)-- <= 0)
      return 0;
    /* The compute stream is one thread, the collective one too. */
    int alone = e->stream == ATOLL_SIM_COMPUTE || e->stream == ATOLL_SIM_COLLECTIVE, kind = alone ? 0 : e->kind, k = 0;
    double *lane = busy[e->stream][kind];
    while (k + 1 < LANES && lane[k] > e->begin)
      k++;
    int tid = (e->stream * ATOLL_SIM_KINDS + kind) * LANES + k;
    if (lane[k] == 0) {
      const char *stream = atoll_sim_stream_name((atoll_sim_stream)e->stream);
      snprintf(name, sizeof name, alone || e->kind == ATOLL_SIM_COPY ? "%s" : "%s %s", stream,
               atoll_sim_kind_name((atoll_sim_kind)e->kind));
      put_meta(t, "thread", r->rank, tid, name, tid);
    }
    lane[k] = e->end;
    put_event(t, e, r->rank, tid);
  }
  return 1;
}

atoll_err atoll_simulation_trace(const atoll_simulation *simulation, const atoll_plan *plan,
                                 const atoll_islands *islands, int64_t most, char **text, size_t *bytes) {
  sim_group *group = NULL;
  int groups = 0;
  char *out = NULL;
  size_t n = 0;
  ATOLL_TRY(sim_groups(simulation, plan, islands, &group, &groups));
  FILE *f = open_memstream(&out, &n);
  if (!f) {
    free(group);
    return atoll_fail(ATOLL_NOMEM, "simulate: no memory for a timeline of %" PRId64 " events", simulation->events);
  }
  tracer t = {.f = f, .sim = simulation, .plan = plan};
  int64_t all = 0, left;
  for (int g = 0; g < groups; g++)
    all += group[g].count;
  left = most > 0 && most < all ? most : all;
  fputs("{\"traceEvents\": [\n", f);
  int whole = 1;
  for (int g = 0; g < groups && whole; g++)
    whole = put_group(&t, &group[g], g, &left);
  if (!whole)
    fprintf(f,
            ",\n{\"ph\":\"i\",\"name\":\"%" PRId64 " of %" PRId64 " events left out: the limit was reached\","
            "\"pid\":%d,\"tid\":0,\"ts\":0,\"s\":\"g\"}",
            all - most, all, simulation->replica[0].rank);
  fputs("\n]}\n", f);
  free(group);
  if (fclose(f) != 0) {
    free(out);
    return atoll_fail(ATOLL_NOMEM, "simulate: no memory for a timeline of %" PRId64 " events", simulation->events);
  }
  *text = out;
  *bytes = n;
  return ATOLL_OK;
}

/* Accounts of all ranks: times, memory and counters, gathered on rank 0 for run.h5. */
#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/stats.h"
#include "atoll/log.h"

void durations_add(durations *d, double v) {
  if (!d->v && !(d->v = malloc(DURATIONS_MAX * sizeof *d->v)))
    return; /* a figure of the report, not of the run */
  d->v[d->next++ % DURATIONS_MAX] = v;
  if (d->n < DURATIONS_MAX)
    d->n++;
}

double durations_median(const durations *d) {
  if (d->n == 0)
    return NAN;
  double *copy = malloc(d->n * sizeof *copy), m;
  if (!copy)
    return NAN;
  memcpy(copy, d->v, d->n * sizeof *copy);
  m = atoll_median(copy, d->n);
  free(copy);
  return m;
}

static void fill_rank(const session *s, record_rank *r) {
  memset(r, 0, sizeof *r);
  if (s->my_device >= 0)
    snprintf(r->host, sizeof r->host, "%s", s->topo->node[s->topo->device[s->my_device].node].name);
  r->rank = s->rank;
  r->pipeline = s->place.pipeline;
  r->stage = s->place.stage;
  r->replica = s->place.replica;
  r->device = s->my_device;
  r->threads = s->threads;
  r->forward_seconds = durations_median(&s->forward);
  r->backward_seconds = durations_median(&s->backward);
  r->update_seconds = durations_median(&s->update);
  r->wait_seconds = durations_median(&s->wait);
  r->predicted_forward = r->predicted_backward = r->predicted_update = NAN;
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    r->measured[c] = (double)atoll_mem_peak(s->mem, (atoll_mem_category)c);
  r->measured_peak = (double)atoll_mem_peak_total(s->mem);
  r->rss_peak = (double)atoll_perf_peak_rss();
  r->limit = (double)atoll_mem_budget(s->mem);
  if (s->place.stage < 0)
    return;
  const atoll_plan_replica *p = &s->plan->pipeline[s->place.pipeline].stage[s->place.stage].replica[s->place.replica];
  r->predicted_forward = p->forward_seconds;
  r->predicted_backward = p->backward_seconds;
  r->predicted_update = p->update_seconds;
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    r->predicted[c] = (double)p->bytes[c];
  r->predicted_peak = (double)p->bytes_peak;
}

static const char *const region_names[] = {
#define NAME(name, text) text,
    SESSION_REGIONS(NAME)
#undef NAME
};

/* Counter sets can differ between nodes; the table has rank 0's counters, and a rank that lacks one, by name, gives
 * NaN. */
static void fill_counters(const session *s, const atoll_perf_counter *wanted, int counters, double *out) {
  for (int g = 0; g < SESSION_REGION_COUNT; g++) {
    atoll_perf_value v;
    atoll_perf_read(s->perf, s->region[g], &v);
    *out++ = (double)v.calls;
    *out++ = v.seconds;
    for (int k = 0; k < counters; k++) {
      double value = NAN;
      for (int j = 0; j < atoll_perf_counter_count(s->perf); j++)
        if (!strcmp(atoll_perf_counter_at(s->perf, j)->name, wanted[k].name) && wanted[k].status == ATOLL_PERF_OK)
          value = v.counter[j];
      *out++ = value;
    }
  }
}

atoll_err session_publish(session *s, const char *state) {
  atoll_watch_begin(s->watch, "gather accounts for run.h5", 0);
  atoll_perf_counter counter[ATOLL_PERF_COUNTERS_MAX];
  int counters = atoll_perf_counter_count(s->perf);
  for (int i = 0; i < counters; i++)
    counter[i] = *atoll_perf_counter_at(s->perf, i);
  void *shared = NULL, *ranks = NULL, *values = NULL;
  int64_t bytes = 0, *offset = NULL;
  ATOLL_TRY(atoll_share_bytes(s->mpi, 0, counter, (int64_t)((size_t)counters * sizeof *counter), &shared, &bytes));
  counters = (int)((size_t)bytes / sizeof *counter);
  record_rank mine;
  fill_rank(s, &mine);
  atoll_err err = atoll_gather_bytes(s->mpi, &mine, sizeof mine, &ranks, &offset);
  free(offset);
  offset = NULL;
  size_t n = (size_t)SESSION_REGION_COUNT * (size_t)(counters + 2);
  double *out = calloc(n, sizeof *out);
  err = atoll_agree(s->mpi, err != ATOLL_OK || out ? err : atoll_fail(ATOLL_NOMEM, "counter table"));
  if (err == ATOLL_OK) {
    fill_counters(s, shared, counters, out);
    err = atoll_gather_bytes(s->mpi, out, (int64_t)(n * sizeof *out), &values, &offset);
  }
  if (err == ATOLL_OK && s->rank == 0) {
    record_counters table = {.regions = SESSION_REGION_COUNT,
                             .counters = counters,
                             .region = region_names,
                             .counter = shared,
                             .values = values};
    /* A file system that refuses must not end the training: the rows stay in memory for the next publish. */
    if (atoll_rundir_keep(s->dir) != ATOLL_OK || record_publish(s->record, ranks, s->size, &table, state) != ATOLL_OK)
      atoll_warn("run.h5 not replaced: %s", atoll_err_message());
    atoll_err_clear();
  }
  free(out);
  free(shared);
  free(ranks);
  free(values);
  free(offset);
  atoll_watch_end(s->watch);
  return err;
}

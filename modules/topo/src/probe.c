/* How fast things are: rates of each rank's device, latency and bandwidth of the links between nodes and inside them.
 *
 * All ranks measure their devices at once, because that is how they will compute: ranks that share a memory bus share
 * it here too. Samples of the different quantities are interleaved, so that a hiccup of the machine widens the spread
 * of all instead of moving the median of one. Links are measured by ping-pong between one rank of each node, in rounds
 * of disjoint pairs (round-robin tournament; for many nodes the pairs at distances 1, 2, 4, ...), with everybody else
 * waiting. Half a round trip is one way. Every loop has a time limit; what did not fit has fewer samples, or none.
 * Nothing that is declared is measured. */
#include "topo_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/log.h"
#include "atoll/tensor.h"

#define TOURNAMENT_MAX 16
#define TAG            7701

typedef struct device_record {
  int64_t device;
  atoll_samples gemm_f32, gemm_bf16, bandwidth;
} device_record;

typedef struct pair {
  int a, b, round;
} pair;

/* --- devices --------------------------------------------------------------------------------------------------- */

/* Smallest square multiply that lasts long enough for the clock to be no part of the answer. */
static int64_t gemm_size(const atoll_rate_probe *probe, atoll_device *device, int dtype, int64_t memory, double until) {
  int64_t n = 128, limit = 4096;
  while (memory > 0 && limit > 128 && 3 * limit * limit * 4 > memory / 16)
    limit /= 2;
  for (;;) {
    double seconds = 0, flop = 0;
    if (probe->gemm(device, dtype, n, &seconds, &flop) != ATOLL_OK) {
      atoll_err_clear();
      return 0;
    }
    if (seconds > 0.004 || n * 2 > limit || atoll_clock_now() > until)
      return n;
    n *= 2;
  }
}

static void measure_device(const atoll_rate_probe *probe, atoll_device *device, const atoll_topo_device *d,
                           double seconds, device_record *rec) {
  double start = atoll_clock_now(), s = 0, work = 0;
  /* Declared quantities keep their word. */
  int f32 = probe->gemm && !(d->declared && d->gemm_f32.n), bf16 = probe->gemm && !(d->declared && d->gemm_bf16.n);
  int bandwidth = probe->memory && !(d->declared && d->bandwidth.n);
  int64_t n32 = f32 ? gemm_size(probe, device, ATOLL_F32, d->memory, start + seconds / 8) : 0;
  int64_t n16 = bf16 ? gemm_size(probe, device, ATOLL_BF16, d->memory, start + seconds / 4) : 0;
  /* Beyond the caches where memory and time allow: halved until a pass is a small part of the time. */
  int64_t bytes = bandwidth ? (d->memory > 0 ? d->memory / 256 : (int64_t)64 << 20) : 0;
  bytes = bytes > (int64_t)256 << 20 ? (int64_t)256 << 20 : bytes;
  while (bytes > (int64_t)16 << 20) {
    double before = atoll_clock_now();
    if (probe->memory(device, bytes, &s, &work) != ATOLL_OK || atoll_clock_now() - before < seconds / 30)
      break;
    bytes /= 2;
  }
  double begin = atoll_clock_now(), end = start + seconds;
  for (int k = 0; k < ATOLL_TOPO_SAMPLES; k++) {
    if (n32 && probe->gemm(device, ATOLL_F32, n32, &s, &work) == ATOLL_OK && s > 0)
      topo_samples_add(&rec->gemm_f32, work / s / 1e9);
    if (n16 && probe->gemm(device, ATOLL_BF16, n16, &s, &work) == ATOLL_OK && s > 0)
      topo_samples_add(&rec->gemm_bf16, work / s / 1e9);
    if (bytes > 0 && probe->memory(device, bytes, &s, &work) == ATOLL_OK && s > 0)
      topo_samples_add(&rec->bandwidth, work / s / 1e9);
    double now = atoll_clock_now();
    if (now + (now - begin) / (k + 1) > end)
      break;
  }
  atoll_err_clear();
}

/* --- links ------------------------------------------------------------------------------------------------------ */

/* Pairs of nodes, each round of them disjoint. Returns the number of rounds; *pairs owned. */
static int schedule(int nodes, pair **pairs, int *count) {
  *pairs = NULL;
  *count = 0;
  if (nodes < 2)
    return 0;
  int cap = nodes <= TOURNAMENT_MAX ? nodes * (nodes - 1) / 2 : 32 * nodes, rounds = 0;
  pair *p = malloc(sizeof *p * (size_t)cap);
  if (!p)
    return 0;
  int n = 0;
  if (nodes <= TOURNAMENT_MAX) { /* circle method: one seat stays, the others walk */
    int m = nodes + nodes % 2;
    for (int r = 0; r < m - 1; r++, rounds++)
      for (int i = 0; i < m / 2; i++) {
        int a = i == 0 ? m - 1 : (r + i) % (m - 1), b = (r + m - 1 - i) % (m - 1);
        if (a < nodes && b < nodes)
          p[n++] = (pair){a < b ? a : b, a < b ? b : a, rounds};
      }
  } else {
    for (int d = 1; d <= nodes / 2 && n + nodes <= cap; d *= 2) {
      /* The ring of step d falls into cycles; colour each alternately, the odd one out goes third. */
      char *seen = calloc((size_t)nodes, 1);
      if (!seen)
        break;
      int third = 0;
      for (int s = 0; s < nodes; s++) {
        int k = 0;
        for (int i = s; !seen[i]; i = (i + d) % nodes, k++) {
          seen[i] = 1;
          int j = (i + d) % nodes, last = j == s && k % 2 == 0 && k > 0;
          if (2 * d == nodes && j < i)
            continue; /* each pair once */
          third |= last;
          p[n++] = (pair){i < j ? i : j, i < j ? j : i, rounds + (last ? 2 : k % 2)};
        }
      }
      free(seen);
      rounds += 2 + third;
    }
  }
  *pairs = p;
  *count = n;
  return rounds;
}

typedef struct plan_record { /* what the leading side tells the other */
  int64_t samples, pings, bytes;
} plan_record;

static double ping(MPI_Comm mpi, int peer, int lead, void *buf, int bytes, int times) {
  double start = atoll_clock_now();
  for (int i = 0; i < times; i++) {
    if (lead) {
      MPI_Send(buf, bytes, MPI_BYTE, peer, TAG, mpi);
      MPI_Recv(buf, bytes, MPI_BYTE, peer, TAG, mpi, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(buf, bytes, MPI_BYTE, peer, TAG, mpi, MPI_STATUS_IGNORE);
      MPI_Send(buf, bytes, MPI_BYTE, peer, TAG, mpi);
    }
  }
  return (atoll_clock_now() - start) / times / 2;
}

static void measure_link(MPI_Comm mpi, int peer, int lead, double seconds, char *buf, int64_t cap,
                         atoll_topo_link *link) {
  const int warm = cap < 65536 ? (int)cap : 65536;
  (void)ping(mpi, peer, lead, buf, 8, 2);
  (void)ping(mpi, peer, lead, buf, warm, 1);
  double small = ping(mpi, peer, lead, buf, 8, 2), large = ping(mpi, peer, lead, buf, warm, 1);
  plan_record plan = {0, 0, 0};
  if (lead) {
    /* Half of the time for bandwidth in messages as large as it allows, a quarter for latency. */
    double rate = warm / (large > 1e-9 ? large : 1e-9), per = seconds / 2 / ATOLL_TOPO_SAMPLES / 2;
    plan.bytes = (int64_t)(rate * per);
    plan.bytes = plan.bytes > cap ? cap : plan.bytes < warm ? warm : plan.bytes;
    plan.samples = (int64_t)(seconds / 2 / (2 * (double)plan.bytes / rate));
    plan.samples = plan.samples < 1 ? 1 : plan.samples > ATOLL_TOPO_SAMPLES ? ATOLL_TOPO_SAMPLES : plan.samples;
    plan.pings = (int64_t)(seconds / 4 / ATOLL_TOPO_SAMPLES / (2 * (small > 1e-7 ? small : 1e-7)));
    plan.pings = plan.pings < 1 ? 1 : plan.pings > 50 ? 50 : plan.pings;
    MPI_Send(&plan, sizeof plan, MPI_BYTE, peer, TAG, mpi);
  } else {
    MPI_Recv(&plan, sizeof plan, MPI_BYTE, peer, TAG, mpi, MPI_STATUS_IGNORE);
  }
  memset(&link->latency, 0, sizeof link->latency);
  memset(&link->bandwidth, 0, sizeof link->bandwidth);
  for (int64_t k = 0; k < plan.samples; k++) {
    topo_samples_add(&link->latency, ping(mpi, peer, lead, buf, 8, (int)plan.pings));
    double s = ping(mpi, peer, lead, buf, (int)plan.bytes, 1);
    if (s > 0)
      topo_samples_add(&link->bandwidth, (double)plan.bytes / s / 1e9);
  }
}

/* First and last rank that compute on a node; -1 when there is none. */
static void ranks_of(const atoll_topo *t, int node, int *first, int *last) {
  *first = *last = -1;
  const atoll_topo_node *n = &t->node[node];
  for (int i = n->first_device; i < n->first_device + n->devices; i++) {
    int r = t->device[i].rank;
    if (r < 0)
      continue;
    if (*first < 0 || r < *first)
      *first = r;
    if (r > *last)
      *last = r;
  }
}

static int declared(const atoll_topo *t, int a, int b) {
  for (int i = 0; i < t->links; i++)
    if (t->link[i].declared && (t->link[i].a == t->link[i].b) == (a == b)) {
      if (t->link[i].a == (a < b ? a : b) && t->link[i].b == (a < b ? b : a))
        return 1;
      /* One declared link stands for all absent ones of its kind on large clusters. */
      if (t->nodes > 32 && a != b)
        return 1;
    }
  return 0;
}

static atoll_err keep(atoll_topo_link **links, int *n, const atoll_topo_link *l) {
  atoll_topo_link *more = realloc(*links, sizeof *more * (size_t)(*n + 1));
  if (!more)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d links", *n + 1);
  more[(*n)++] = *l;
  *links = more;
  return ATOLL_OK;
}

static atoll_err measure_links(atoll_comm *comm, const atoll_topo *t, double seconds, atoll_topo_link **mine,
                               int *count) {
  MPI_Comm mpi = atoll_comm_mpi(comm);
  int rank = atoll_comm_rank(comm), pairs_n = 0, inside = 0, err_rank = 0;
  pair *pairs = NULL;
  int rounds = schedule(t->nodes, &pairs, &pairs_n);
  int64_t cap = 4 << 20;
  int di = atoll_topo_device_of(t, rank);
  if (di >= 0 && t->device[di].memory > 0 && cap > t->device[di].memory / 16)
    cap = t->device[di].memory / 16 > 64 ? t->device[di].memory / 16 : 64;
  /* A pair must agree on the largest message. */
  long long low = (long long)cap;
  char *buf = NULL;
  MPI_Allreduce(MPI_IN_PLACE, &low, 1, MPI_LONG_LONG, MPI_MIN, mpi);
  cap = low;
  buf = calloc(1, (size_t)cap);
  err_rank = !buf || (t->nodes > 1 && !pairs);
  atoll_err err = atoll_agree(mpi, err_rank ? atoll_fail(ATOLL_NOMEM, "no memory to measure links") : ATOLL_OK);
  if (err != ATOLL_OK)
    goto done;
  for (int i = 0; i < t->nodes; i++) {
    int first, last;
    ranks_of(t, i, &first, &last);
    inside |= last > first && !declared(t, i, i);
  }
  int todo = inside;
  for (int r = 0; r < rounds; r++) {
    int any = 0;
    for (int i = 0; i < pairs_n; i++)
      any |= pairs[i].round == r && !declared(t, pairs[i].a, pairs[i].b);
    todo += any;
  }
  double each = todo ? seconds / todo : 0;
  if (inside) { /* all nodes at once: each stays at home */
    ATOLL_TRY_GOTO(err, done, atoll_comm_barrier(comm));
    for (int i = 0; i < t->nodes; i++) {
      int first, last;
      ranks_of(t, i, &first, &last);
      if (last <= first || declared(t, i, i) || (rank != first && rank != last))
        continue;
      atoll_topo_link l = {.a = i, .b = i};
      measure_link(mpi, rank == first ? last : first, rank == first, each, buf, cap, &l);
      if (rank == first)
        ATOLL_TRY_GOTO(err, done, keep(mine, count, &l));
    }
  }
  for (int r = 0; r < rounds; r++) {
    int any = 0;
    for (int i = 0; i < pairs_n; i++)
      any |= pairs[i].round == r && !declared(t, pairs[i].a, pairs[i].b);
    if (!any)
      continue;
    ATOLL_TRY_GOTO(err, done, atoll_comm_barrier(comm));
    for (int i = 0; i < pairs_n; i++) {
      if (pairs[i].round != r || declared(t, pairs[i].a, pairs[i].b))
        continue;
      int a, b, last;
      ranks_of(t, pairs[i].a, &a, &last);
      ranks_of(t, pairs[i].b, &b, &last);
      if (a < 0 || b < 0 || (rank != a && rank != b))
        continue;
      atoll_topo_link l = {.a = pairs[i].a, .b = pairs[i].b};
      measure_link(mpi, rank == a ? b : a, rank == a, each, buf, cap, &l);
      if (rank == a)
        ATOLL_TRY_GOTO(err, done, keep(mine, count, &l));
    }
  }
done:
  free(buf);
  free(pairs);
  return err;
}

/* --- together ---------------------------------------------------------------------------------------------------- */

static atoll_err put_link(atoll_topo *t, const atoll_topo_link *l) {
  for (int i = 0; i < t->links; i++)
    if (t->link[i].a == l->a && t->link[i].b == l->b) {
      t->link[i] = *l;
      return ATOLL_OK;
    }
  atoll_topo_link *more = realloc(t->link, sizeof *more * (size_t)(t->links + 1));
  if (!more)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d links", t->links + 1);
  t->link = more;
  more[t->links++] = *l;
  return ATOLL_OK;
}

atoll_err atoll_topo_probe(atoll_comm *comm, const atoll_topo_params *params, atoll_device *device, atoll_topo *topo) {
  MPI_Comm mpi = atoll_comm_mpi(comm);
  int rank = atoll_comm_rank(comm), di = atoll_topo_device_of(topo, rank);
  const atoll_rate_probe *probe = device ? atoll_device_probe(atoll_device_kind(device)) : NULL;
  device_record rec = {.device = -1};
  double budget = params->probe_seconds;
  ATOLL_TRY(atoll_comm_barrier(comm));
  if (di >= 0 && probe) {
    rec.device = di;
    measure_device(probe, device, &topo->device[di], budget * 0.6, &rec);
  }
  atoll_topo_link *mine = NULL;
  int links = 0;
  atoll_err err = measure_links(comm, topo, budget * 0.35, &mine, &links);
  size_t bytes = sizeof rec + sizeof *mine * (size_t)links;
  char *out = err == ATOLL_OK ? malloc(bytes) : NULL;
  if (err == ATOLL_OK && !out)
    err = atoll_fail(ATOLL_NOMEM, "no memory for %zu bytes of measurements", bytes);
  err = atoll_agree(mpi, err);
  void *all = NULL;
  int64_t *offsets = NULL;
  if (err == ATOLL_OK) {
    memcpy(out, &rec, sizeof rec);
    if (links)
      memcpy(out + sizeof rec, mine, sizeof *mine * (size_t)links);
    err = atoll_gather_bytes(mpi, out, (int64_t)bytes, &all, &offsets);
  }
  int unprobed = 0;
  for (int r = 0; r < atoll_comm_size(comm) && err == ATOLL_OK; r++) {
    const char *p = (const char *)all + offsets[r];
    memcpy(&rec, p, sizeof rec);
    if (rec.device >= 0) {
      atoll_topo_device *d = &topo->device[rec.device];
      if (rec.gemm_f32.n)
        d->gemm_f32 = rec.gemm_f32;
      if (rec.gemm_bf16.n)
        d->gemm_bf16 = rec.gemm_bf16;
      if (rec.bandwidth.n)
        d->bandwidth = rec.bandwidth;
    } else {
      unprobed++;
    }
    for (int64_t at = (int64_t)sizeof rec;
         at + (int64_t)sizeof(atoll_topo_link) <= offsets[r + 1] - offsets[r] && err == ATOLL_OK;
         at += (int64_t)sizeof(atoll_topo_link)) {
      atoll_topo_link l;
      memcpy(&l, p + at, sizeof l);
      err = put_link(topo, &l);
    }
  }
  if (err == ATOLL_OK) {
    topo_links_sort(topo);
    if (unprobed && device)
      topo_note(topo->note, sizeof topo->note, "%d ranks have no rate probe for their device", unprobed);
  }
  free(all);
  free(offsets);
  free(out);
  free(mine);
  /* A failed allocation on one rank after the gather would leave the values unequal: nobody keeps them silently. */
  ATOLL_TRY(atoll_agree(mpi, err));
  return atoll_agree_digest(mpi, "measured topology", atoll_topo_digest(topo));
}

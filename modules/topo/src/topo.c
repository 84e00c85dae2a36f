/* Discovery from end to end, and the small functions of a topology value. */
#include "atoll/topo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/stats.h"
#include "topo_impl.h"

#define BACKENDS_MAX 16
static const atoll_topo_backend *backends[BACKENDS_MAX] = {&topo_backend_live, &topo_backend_xml,
                                                           &topo_backend_synthetic};
static int backend_count = 3;

atoll_err atoll_topo_backend_register(const atoll_topo_backend *backend) {
  for (int i = 0; i < backend_count; i++)
    if (strcmp(backends[i]->name, backend->name) == 0)
      return atoll_fail(ATOLL_USAGE, "a topology backend '%s' is registered already", backend->name);
  if (backend_count == BACKENDS_MAX)
    return atoll_fail(ATOLL_USAGE, "topology backend '%s': at most %d backends", backend->name, BACKENDS_MAX);
  backends[backend_count++] = backend;
  return ATOLL_OK;
}

int atoll_topo_backend_entry(const atoll_topo_params *params, int i, const char **name, const char **why_not) {
  if (i < 0 || i >= backend_count)
    return 0;
  *name = backends[i]->name;
  *why_not = NULL;
  if (backends[i]->probe(params, why_not) != ATOLL_OK && !*why_not)
    *why_not = "it does not say why";
  return 1;
}

static atoll_err choose(const atoll_topo_params *params, const atoll_topo_backend **out) {
  static const char *const named[] = {NULL, "live", "xml", "synthetic"};
  if (params->path[0] && params->synthetic[0] && params->backend == 0)
    return atoll_fail(ATOLL_USAGE,
                      "topo.path and topo.synthetic are both set; expected one, or topo.backend to choose");
  const atoll_topo_backend *best = NULL;
  for (int i = 0; i < backend_count; i++) {
    const char *why = NULL;
    if (params->backend > 0) {
      if (strcmp(backends[i]->name, named[params->backend]) != 0)
        continue;
      if (backends[i]->probe(params, &why) != ATOLL_OK)
        return atoll_fail(ATOLL_USAGE, "topo.backend=%s: %s", backends[i]->name, why ? why : "it refuses");
      best = backends[i];
    } else if ((!best || backends[i]->priority > best->priority) && backends[i]->probe(params, &why) == ATOLL_OK) {
      best = backends[i];
    }
  }
  if (!best)
    return atoll_fail(ATOLL_UNAVAILABLE, "no topology backend is willing");
  *out = best;
  return ATOLL_OK;
}

/* Backends may have been registered by a device runtime: each gets to correct the host's GPUs. */
static atoll_err load(const atoll_topo_backend *backend, const atoll_topo_params *params, const atoll_topo_place *place,
                      atoll_topo_hosts *out) {
  ATOLL_TRY(backend->load(params, place, out));
  for (int i = 0; i < backend_count; i++)
    for (int h = 0; backends[i]->devices && h < out->count; h++)
      if (backends[i] == backend || out->host[h].read_here)
        ATOLL_TRY(backends[i]->devices(params, &out->host[h]));
  return ATOLL_OK;
}

/* Each node's lowest rank reads its node; all receive all. */
static atoll_err discover_nodes(atoll_comm *comm, const atoll_topo_backend *backend, const atoll_topo_params *params,
                                const topo_places *p, atoll_topo_hosts *hosts, int *host_of) {
  MPI_Comm mpi = atoll_comm_mpi(comm);
  int rank = atoll_comm_rank(comm), g = p->group[rank];
  char *mine = NULL;
  int64_t bytes = 0;
  atoll_err err = ATOLL_OK;
  if (p->leader[g] == rank) {
    hwloc_bitmap_t all = hwloc_bitmap_alloc(), one = hwloc_bitmap_alloc();
    char affinity[512] = "";
    for (int r = 0; r < p->ranks; r++)
      if (p->group[r] == g && topo_cpuset_parse(p->affinity[r], one) == 0)
        hwloc_bitmap_or(all, all, one);
    topo_cpuset_print(all, affinity, sizeof affinity);
    hwloc_bitmap_free(all);
    hwloc_bitmap_free(one);
    atoll_topo_place place = {affinity[0] ? affinity : NULL};
    atoll_topo_hosts own = {0};
    err = load(backend, params, &place, &own);
    if (err == ATOLL_OK && own.count != 1)
      err = atoll_fail(ATOLL_INTERNAL, "backend '%s' describes %d hosts, expected this one", backend->name, own.count);
    if (err == ATOLL_OK) {
      topo_text(own.host[0].name, sizeof own.host[0].name, p->name[rank]);
      err = topo_hosts_pack(&own, &mine, &bytes);
    }
    topo_hosts_free(&own);
  }
  err = atoll_agree(mpi, err);
  void *data = NULL;
  int64_t *offsets = NULL;
  if (err == ATOLL_OK)
    err = atoll_gather_bytes(mpi, mine, bytes, &data, &offsets);
  free(mine);
  for (int k = 0; k < p->groups && err == ATOLL_OK; k++) {
    int r = p->leader[k];
    err = topo_hosts_unpack((const char *)data + offsets[r], offsets[r + 1] - offsets[r], hosts);
  }
  free(data);
  free(offsets);
  for (int r = 0; r < p->ranks; r++)
    host_of[r] = p->group[r];
  return err;
}

/* Rank 0 reads the description of the whole cluster; all receive it. */
static atoll_err discover_cluster(atoll_comm *comm, const atoll_topo_backend *backend, const atoll_topo_params *params,
                                  const topo_places *p, atoll_topo_hosts *hosts, int *host_of) {
  MPI_Comm mpi = atoll_comm_mpi(comm);
  char *mine = NULL;
  int64_t bytes = 0;
  atoll_err err = ATOLL_OK;
  if (atoll_comm_rank(comm) == 0) {
    atoll_topo_hosts all = {0};
    err = load(backend, params, NULL, &all);
    if (err == ATOLL_OK)
      err = topo_hosts_pack(&all, &mine, &bytes);
    topo_hosts_free(&all);
  }
  err = atoll_agree(mpi, err);
  void *data = NULL;
  int64_t n = 0;
  if (err == ATOLL_OK)
    err = atoll_share_bytes(mpi, 0, mine, bytes, &data, &n);
  free(mine);
  if (err == ATOLL_OK)
    err = topo_hosts_unpack(data, n, hosts);
  free(data);
  if (err == ATOLL_OK)
    err = topo_places_match(p, hosts, host_of);
  return err;
}

static void name_source(const atoll_topo_params *params, const atoll_topo_backend *backend, atoll_topo *t) {
  topo_text(t->source, sizeof t->source,
            backend == &topo_backend_xml         ? params->path
            : backend == &topo_backend_synthetic ? params->synthetic
                                                 : "this machine");
}

static atoll_err discover_alone(const atoll_topo_backend *backend, const atoll_topo_params *params, atoll_topo **out) {
  atoll_topo_hosts hosts = {0};
  atoll_topo *t = NULL;
  atoll_err err = load(backend, params, NULL, &hosts);
  if (err == ATOLL_OK)
    err = topo_divide(params, backend->name, &hosts, NULL, NULL, &t);
  topo_hosts_free(&hosts);
  if (err == ATOLL_OK) {
    name_source(params, backend, t);
    *out = t;
  }
  return err;
}

atoll_err atoll_topo_discover(atoll_comm *comm, const atoll_topo_params *params, atoll_topo **out) {
  const atoll_topo_backend *backend = NULL;
  atoll_err err = choose(params, &backend);
  if (!comm)
    return err == ATOLL_OK ? discover_alone(backend, params, out) : err;
  MPI_Comm mpi = atoll_comm_mpi(comm);
  ATOLL_TRY(atoll_agree(mpi, err));
  topo_places p = {0};
  atoll_topo_hosts hosts = {0};
  atoll_topo *t = NULL;
  ATOLL_TRY(atoll_agree(mpi, topo_places_gather(comm, &p)));
  int *host_of = calloc((size_t)p.ranks, sizeof *host_of);
  err = atoll_agree(mpi, host_of ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "no memory for %d ranks", p.ranks));
  if (err == ATOLL_OK)
    err = atoll_agree(mpi, backend->per_node ? discover_nodes(comm, backend, params, &p, &hosts, host_of)
                                             : discover_cluster(comm, backend, params, &p, &hosts, host_of));
  if (err == ATOLL_OK)
    err = atoll_agree(mpi, topo_divide(params, backend->name, &hosts, &p, host_of, &t));
  if (err == ATOLL_OK) {
    name_source(params, backend, t);
    err = atoll_agree_digest(mpi, "topology", atoll_topo_digest(t));
  }
  free(host_of);
  topo_hosts_free(&hosts);
  topo_places_free(&p);
  if (err != ATOLL_OK)
    atoll_topo_destroy(&t);
  else
    *out = t;
  return err;
}

void atoll_topo_destroy(atoll_topo **topo) {
  if (!topo || !*topo)
    return;
  free((*topo)->node);
  free((*topo)->device);
  free((*topo)->link);
  free((*topo)->route);
  free(*topo);
  *topo = NULL;
}

static void *dup_bytes(const void *p, size_t n) {
  void *q = malloc(n ? n : 1);
  if (q && n)
    memcpy(q, p, n);
  return q;
}

atoll_err atoll_topo_copy(const atoll_topo *topo, atoll_topo **out) {
  atoll_topo *t = malloc(sizeof *t);
  if (!t)
    return atoll_fail(ATOLL_NOMEM, "no memory for a topology");
  *t = *topo;
  t->node = dup_bytes(topo->node, sizeof *t->node * (size_t)t->nodes);
  t->device = dup_bytes(topo->device, sizeof *t->device * (size_t)t->devices);
  t->link = dup_bytes(topo->link, sizeof *t->link * (size_t)t->links);
  t->route = dup_bytes(topo->route, sizeof *t->route * (size_t)t->routes);
  if (!t->node || !t->device || !t->link || !t->route) {
    atoll_topo_destroy(&t);
    return atoll_fail(ATOLL_NOMEM, "no memory for a topology of %d nodes", topo->nodes);
  }
  *out = t;
  return ATOLL_OK;
}

int atoll_topo_device_of(const atoll_topo *topo, int rank) {
  if (rank >= 0)
    for (int i = 0; i < topo->devices; i++)
      if (topo->device[i].rank == rank)
        return i;
  return -1;
}

const atoll_topo_link *atoll_topo_link_of(const atoll_topo *topo, int a, int b) {
  const atoll_topo_link *slowest = NULL;
  double least = 0;
  for (int i = 0; i < topo->links; i++) {
    const atoll_topo_link *l = &topo->link[i];
    if ((l->a == a && l->b == b) || (l->a == b && l->b == a))
      return l;
    if ((l->a == l->b) != (a == b))
      continue;
    double bandwidth = atoll_samples_median(&l->bandwidth);
    if (!slowest || bandwidth < least) {
      slowest = l;
      least = bandwidth;
    }
  }
  return slowest;
}

int atoll_topo_at(const atoll_topo_node *node, const char *end) {
  return strcmp(end, "*") == 0 || strcmp(node->zone, end) == 0 || strcmp(node->kind, end) == 0 ||
         strcmp(node->name, end) == 0;
}

void atoll_topo_reach(const atoll_topo *topo, int a, int b, double *latency, double *bandwidth, double *price) {
  const atoll_topo_node *x = &topo->node[a], *y = &topo->node[b];
  const atoll_topo_route *fast = NULL;
  double cost = 0;
  for (int i = 0; i < topo->routes && a != b; i++) {
    const atoll_topo_route *r = &topo->route[i];
    if ((atoll_topo_at(x, r->a) && atoll_topo_at(y, r->b)) || (atoll_topo_at(x, r->b) && atoll_topo_at(y, r->a))) {
      cost = r->price;
      fast = r->bandwidth > 0 ? r : fast;
    }
  }
  const atoll_topo_link *l = atoll_topo_link_of(topo, a, b);
  int own = l && ((l->a == a && l->b == b) || (l->a == b && l->b == a));
  if (latency)
    *latency = own || !fast ? (l ? atoll_samples_median(&l->latency) : 0) : fast->latency;
  if (bandwidth)
    *bandwidth = own || !fast ? (l ? atoll_samples_median(&l->bandwidth) : 0) : fast->bandwidth;
  if (price)
    *price = cost;
}

void topo_samples_sort(atoll_samples *s) { atoll_sort(s->v, (size_t)s->n); }

void topo_samples_add(atoll_samples *s, double v) {
  if (!(v > 0) || !isfinite(v) || s->n >= ATOLL_TOPO_SAMPLES)
    return;
  s->v[s->n++] = v;
  topo_samples_sort(s);
}

double atoll_samples_median(const atoll_samples *s) { return atoll_quantile(s->v, (size_t)s->n, 0.5); }

double atoll_samples_spread(const atoll_samples *s) {
  double median = atoll_samples_median(s);
  size_t n = (size_t)s->n;
  return median > 0 ? (atoll_quantile(s->v, n, 0.75) - atoll_quantile(s->v, n, 0.25)) / 2 / median : 0;
}

const char *topo_kind_name(atoll_topo_kind k) { return k == ATOLL_TOPO_GPU ? "gpu" : "cpu"; }

static int link_order(const void *a, const void *b) {
  const atoll_topo_link *x = a, *y = b;
  return x->a != y->a ? (x->a > y->a) - (x->a < y->a) : (x->b > y->b) - (x->b < y->b);
}

void topo_links_sort(atoll_topo *t) {
  if (t->links)
    qsort(t->link, (size_t)t->links, sizeof *t->link, link_order);
}

int topo_nodes_equal(const atoll_topo *t, int a, int b) {
  const atoll_topo_node *x = &t->node[a], *y = &t->node[b];
  if (!atoll_digest_equal(x->identity, y->identity) || x->devices != y->devices ||
      x->allowed_threads != y->allowed_threads || strcmp(x->kind, y->kind) != 0 || strcmp(x->zone, y->zone) != 0 ||
      x->price != y->price)
    return 0;
  for (int k = 0; k < x->devices; k++) {
    const atoll_topo_device *d = &t->device[x->first_device + k], *e = &t->device[y->first_device + k];
    if (strcmp(d->cores, e->cores) != 0 || d->memory != e->memory || d->rank >= 0 || e->rank >= 0)
      return 0;
    const atoll_samples *const s[3] = {&d->gemm_f32, &d->gemm_bf16, &d->bandwidth}, *const r[3] = {&e->gemm_f32,
                                                                                                   &e->gemm_bf16,
                                                                                                   &e->bandwidth};
    for (int q = 0; q < 3; q++)
      if (s[q]->n != r[q]->n || memcmp(s[q]->v, r[q]->v, sizeof(double) * (size_t)s[q]->n) != 0)
        return 0;
  }
  return 1;
}

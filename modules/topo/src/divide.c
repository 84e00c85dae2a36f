/* Hosts and placement -> nodes and devices. Pure: every rank computes it from the same bytes.
 *
 * CPU devices of a node: when launchers bound the ranks to disjoint sets, each rank keeps its own. Otherwise the
 * allowed cores are cut in hwloc's order: evenly inside each NUMA node when the ranks divide evenly over NUMA nodes,
 * else evenly over the whole list, so that parts are contiguous and as near as the numbers allow. More ranks than cores
 * share cores and say so. Memory is divided evenly: per-node limits by the number of CPU devices, per-process limits
 * not at all; the smallest wins and is named.
 *
 * GPUs: one rank each. A rank bound to a part of the machine takes the free GPU nearest to its cores, otherwise the
 * next by PCI address. GPUs without a rank are listed with rank -1. Ranks beyond the GPUs get cores in `auto`, and are
 * an error for device=gpu. */
#include "topo_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct split {
  int first, count;
} split;

typedef struct local { /* ranks of one host, ascending; NULL and -1 entries when nobody launched */
  int n;
  int *rank;
  hwloc_bitmap_t *own; /* per local rank: its allowed hardware threads */
  int disjoint;
} local;

static int usable_cores(const atoll_topo_host *h, int *list) {
  int n = 0;
  for (int i = 0; i < h->ncores; i++)
    if (h->core[i].allowed)
      list[n++] = i;
  return n;
}

/* Cut the n usable cores (indices into h->core, in order) into `parts` contiguous pieces. */
static void cut(const atoll_topo_host *h, const int *list, int n, int parts, split *out) {
  int numas = 0, fewest = n;
  for (int i = 0, j; i < n; i = j) {
    for (j = i; j < n && h->core[list[j]].numa == h->core[list[i]].numa; j++)
      ;
    numas++;
    fewest = j - i < fewest ? j - i : fewest;
  }
  if (n >= parts && numas > 0 && parts % numas == 0 && fewest >= parts / numas) {
    int per = parts / numas, d = 0;
    for (int i = 0, j; i < n; i = j) {
      for (j = i; j < n && h->core[list[j]].numa == h->core[list[i]].numa; j++)
        ;
      for (int k = 0; k < per; k++, d++) {
        int a = i + (int)((int64_t)(j - i) * k / per), b = i + (int)((int64_t)(j - i) * (k + 1) / per);
        out[d] = (split){a, b - a};
      }
    }
    return;
  }
  for (int d = 0; d < parts; d++) {
    int a = (int)((int64_t)n * d / parts), b = (int)((int64_t)n * (d + 1) / parts);
    out[d] = (split){a, b > a ? b - a : 1};
    if (a >= n)
      out[d] = (split){n - 1, 1};
  }
}

static void describe_cores(const atoll_topo_host *h, const int *list, int n, hwloc_const_bitmap_t only,
                           atoll_topo_device *d) {
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  int kind = -2;
  d->numa = -2;
  for (int i = 0; i < n; i++) {
    const atoll_topo_core *c = &h->core[list[i]];
    int used = 0;
    for (int j = 0; j < c->threads; j++)
      if ((c->allowed >> j & 1) && (!only || hwloc_bitmap_isset(only, (unsigned)c->pu[j]))) {
        hwloc_bitmap_set(set, (unsigned)c->pu[j]);
        used++;
      }
    if (!used)
      continue;
    d->ncores++;
    d->nthreads += used;
    d->numa = d->numa == -2 || d->numa == c->numa ? c->numa : -1;
    kind = kind == -2 || kind == c->kind ? c->kind : -1;
  }
  if (d->numa == -2)
    d->numa = -1;
  topo_cpuset_print(set, d->cores, sizeof d->cores);
  hwloc_bitmap_free(set);
  topo_text(d->model, sizeof d->model, h->model);
  /* Cores of one chip may differ (performance and efficiency cores): then they are not one piece of hardware. */
  if (h->core_kinds > 1) {
    size_t len = strlen(d->model);
    if (kind >= 0)
      snprintf(d->model + len, sizeof d->model - len, ", core kind %d of %d", kind + 1, h->core_kinds);
    else
      snprintf(d->model + len, sizeof d->model - len, ", %d core kinds", h->core_kinds);
  }
  topo_text(d->isa, sizeof d->isa, h->isa);
}

static void limit(int64_t bytes, const char *who, atoll_topo_device *d) {
  if (bytes > 0 && (d->memory == 0 || bytes < d->memory)) {
    d->memory = bytes;
    topo_text(d->memory_limit, sizeof d->memory_limit, who);
  }
}

static void cpu_memory(const atoll_topo_host *h, int parts, int64_t rlimit, atoll_topo_device *d) {
  if (h->declared_memory)
    limit(h->declared_memory / parts, "declared", d);
  else
    limit(h->memory / parts, "machine", d);
  limit(h->cgroup / parts, "cgroup", d);
  limit(h->slurm / parts, "slurm", d);
  limit(rlimit, "rlimit", d);
}

static void declare(double f32, double bf16, double bandwidth, atoll_topo_device *d) {
  topo_samples_add(&d->gemm_f32, f32);
  topo_samples_add(&d->gemm_bf16, bf16);
  topo_samples_add(&d->bandwidth, bandwidth);
  d->declared = f32 > 0 || bf16 > 0 || bandwidth > 0;
}

static void gpu_device(const atoll_topo_gpu *g, atoll_topo_device *d) {
  d->kind = ATOLL_TOPO_GPU;
  topo_text(d->model, sizeof d->model, g->model);
  topo_text(d->pci, sizeof d->pci, g->pci);
  topo_text(d->cores, sizeof d->cores, g->near_cores);
  topo_text(d->isa, sizeof d->isa, g->isa);
  d->numa = g->numa;
  limit(g->memory, "device", d);
  declare(g->gemm_f32, g->gemm_bf16, g->bandwidth, d);
}

/* Free GPU with most cores in common with `own`; ties and whole-machine ranks go by PCI address. */
static int nearest_gpu(const atoll_topo_host *h, hwloc_const_bitmap_t own, const int *taken) {
  int best = -1, most = -1;
  hwloc_bitmap_t near = hwloc_bitmap_alloc();
  for (int i = 0; i < h->ngpus; i++) {
    if (taken[i])
      continue;
    int common = 0;
    if (own && topo_cpuset_parse(h->gpu[i].near_cores, near) == 0) {
      hwloc_bitmap_and(near, near, own);
      common = hwloc_bitmap_weight(near);
    }
    if (common > most) {
      most = common;
      best = i;
    }
  }
  hwloc_bitmap_free(near);
  return best;
}

static atoll_topo_device *add_device(atoll_topo *t, int node) {
  atoll_topo_device *more = realloc(t->device, sizeof *more * (size_t)(t->devices + 1));
  if (!more)
    return NULL;
  t->device = more;
  atoll_topo_device *d = &more[t->devices++];
  memset(d, 0, sizeof *d);
  d->node = node;
  d->numa = -1;
  d->rank = -1;
  return d;
}

static atoll_err divide_host(const atoll_topo_params *params, const atoll_topo_host *h, int node, const topo_places *p,
                             const local *l, atoll_topo *t) {
  int launched = l->rank != NULL, gpu_ready = 1;
  const char *why_not = "no GPU device backend is installed";
  if (launched)
    for (int i = 0; i < l->n; i++)
      gpu_ready &= p->gpu_ready[l->rank[i]];
  int *list = malloc(sizeof *list * (size_t)(h->ncores + 1));
  int *taken = calloc((size_t)h->ngpus + 1, sizeof *taken);
  split *parts = NULL;
  atoll_err err = ATOLL_OK;
  if (!list || !taken) {
    err = atoll_fail(ATOLL_NOMEM, "no memory to divide %s", h->name);
    goto done;
  }
  int usable = usable_cores(h, list);
  if (usable == 0) {
    err = atoll_fail(ATOLL_UNAVAILABLE, "%s: none of its %d cores is allowed for this job", h->name, h->ncores);
    goto done;
  }
  int want_gpu = params->device == 2 || (params->device == 0 && h->ngpus > 0 && gpu_ready);
  if (params->device == 2 && h->ngpus == 0) {
    err = atoll_fail(ATOLL_UNAVAILABLE, "topo.device=gpu, but node %s has no GPU", h->name);
    goto done;
  }
  if (params->device == 2 && launched && !gpu_ready) {
    topo_gpu_ready(&why_not);
    err = atoll_fail(ATOLL_UNAVAILABLE, "topo.device=gpu, but no device backend drives the GPUs of node %s: %s",
                     h->name, why_not);
    goto done;
  }
  if (params->device == 0 && h->ngpus > 0 && !gpu_ready)
    topo_note(t->note, sizeof t->note,
              "%s: %d GPUs are seen, but no device backend drives them here; ranks compute on cores", h->name,
              h->ngpus);
  int on_gpu = want_gpu ? (launched ? (l->n < h->ngpus ? l->n : h->ngpus) : h->ngpus) : 0;
  if (params->device == 2 && launched && l->n > h->ngpus) {
    err = atoll_fail(ATOLL_UNAVAILABLE, "topo.device=gpu: %d ranks on node %s, which has %d GPUs", l->n, h->name,
                     h->ngpus);
    goto done;
  }
  /* GPUs in PCI order, whoever computes on them. */
  int first = t->devices;
  if (want_gpu)
    for (int i = 0; i < h->ngpus; i++) {
      atoll_topo_device *d = add_device(t, node);
      if (!d) {
        err = atoll_fail(ATOLL_NOMEM, "no memory for device %d", t->devices);
        goto done;
      }
      gpu_device(&h->gpu[i], d);
    }
  for (int k = 0; launched && k < on_gpu; k++) {
    int partial = l->own && l->own[k] && l->disjoint;
    int g = nearest_gpu(h, partial ? l->own[k] : NULL, taken);
    taken[g] = 1;
    t->device[first + g].rank = l->rank[k];
  }
  int cpus = launched                     ? l->n - on_gpu
             : want_gpu                   ? 0
             : params->ranks_per_node > 0 ? (int)params->ranks_per_node
                                          : h->declared_devices;
  if (!launched && !want_gpu && cpus == 0) { /* one per package that has usable cores */
    for (int i = 0; i < usable; i++)
      cpus += i == 0 || h->core[list[i]].package != h->core[list[i - 1]].package;
  }
  if (on_gpu && cpus)
    topo_note(t->note, sizeof t->note, "%s: %d ranks, %d GPUs; the other ranks compute on cores", h->name, l->n,
              h->ngpus);
  if (cpus > 0) {
    parts = calloc((size_t)cpus, sizeof *parts);
    if (!parts) {
      err = atoll_fail(ATOLL_NOMEM, "no memory for %d devices", cpus);
      goto done;
    }
    cut(h, list, usable, cpus, parts);
    if (cpus > usable)
      topo_note(t->note, sizeof t->note, "%s: %d ranks share %d cores; they are left unbound", h->name, cpus, usable);
    for (int k = 0; k < cpus; k++) {
      atoll_topo_device *d = add_device(t, node);
      if (!d) {
        err = atoll_fail(ATOLL_NOMEM, "no memory for device %d", t->devices);
        goto done;
      }
      int r = launched ? l->rank[on_gpu + k] : -1;
      d->kind = ATOLL_TOPO_CPU;
      d->rank = r;
      if (launched && l->disjoint && l->own && !on_gpu)
        describe_cores(h, list, usable, l->own[k], d);
      else
        describe_cores(h, list + parts[k].first, parts[k].count, NULL, d);
      cpu_memory(h, cpus, launched && h->read_here ? p->rlimit[r] : h->rlimit, d);
      declare(h->gemm_f32, h->gemm_bf16, h->bandwidth, d);
    }
  }
done:
  free(list);
  free(taken);
  free(parts);
  return err;
}

/* Local ranks of a host and what each may use. Affinity counts only where the host is the running machine. */
static atoll_err local_ranks(const atoll_topo_host *h, int host, const topo_places *p, const int *host_of, local *l) {
  memset(l, 0, sizeof *l);
  if (!p)
    return ATOLL_OK;
  l->rank = malloc(sizeof *l->rank * (size_t)(p->ranks + 1));
  l->own = calloc((size_t)p->ranks + 1, sizeof *l->own);
  if (!l->rank || !l->own)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d ranks", p->ranks);
  for (int r = 0; r < p->ranks; r++)
    if (host_of[r] == host)
      l->rank[l->n++] = r;
  if (!h->read_here || l->n < 2)
    return ATOLL_OK;
  hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), all = hwloc_bitmap_alloc();
  for (int i = 0; i < h->ncores; i++)
    for (int j = 0; j < h->core[i].threads; j++)
      if (h->core[i].allowed >> j & 1)
        hwloc_bitmap_set(allowed, (unsigned)h->core[i].pu[j]);
  l->disjoint = 1;
  for (int k = 0; k < l->n; k++) {
    l->own[k] = hwloc_bitmap_alloc();
    if (topo_cpuset_parse(p->affinity[l->rank[k]], l->own[k]) != 0)
      hwloc_bitmap_zero(l->own[k]);
    hwloc_bitmap_and(l->own[k], l->own[k], allowed);
    if (hwloc_bitmap_iszero(l->own[k]) || hwloc_bitmap_intersects(l->own[k], all))
      l->disjoint = 0;
    hwloc_bitmap_or(all, all, l->own[k]);
  }
  hwloc_bitmap_free(allowed);
  hwloc_bitmap_free(all);
  return ATOLL_OK;
}

static void local_free(local *l) {
  for (int k = 0; l->own && k < l->n; k++)
    hwloc_bitmap_free(l->own[k]);
  free(l->own);
  free(l->rank);
}

/* Several nodes of one kernel (virtual Slurm nodes): their core numbers mean the same cores. */
static int shares_kernel(const topo_places *p, const int *host_of, int host) {
  const char *boot = NULL;
  if (!p)
    return 0;
  for (int r = 0; r < p->ranks && !boot; r++)
    if (host_of[r] == host)
      boot = p->boot[r];
  for (int r = 0; boot && *boot && r < p->ranks; r++)
    if (host_of[r] != host && strcmp(p->boot[r], boot) == 0)
      return 1;
  return 0;
}

atoll_err topo_divide(const atoll_topo_params *params, const char *backend, const atoll_topo_hosts *hosts,
                      const topo_places *p, const int *host_of, atoll_topo **out) {
  atoll_topo *t = calloc(1, sizeof *t);
  if (!t)
    return atoll_fail(ATOLL_NOMEM, "no memory for a topology");
  atoll_err err = ATOLL_OK;
  topo_text(t->backend, sizeof t->backend, backend);
  topo_text(t->note, sizeof t->note, hosts->note);
  t->node = calloc((size_t)hosts->count + 1, sizeof *t->node);
  t->link = calloc((size_t)hosts->links + 1, sizeof *t->link);
  t->route = calloc((size_t)hosts->routes + 1, sizeof *t->route);
  if (!t->node || !t->link || !t->route) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %d nodes", hosts->count);
    goto fail;
  }
  for (int i = 0; i < hosts->count; i++) {
    const atoll_topo_host *h = &hosts->host[i];
    atoll_topo_node *n = &t->node[i];
    topo_text(n->name, sizeof n->name, h->name);
    topo_text(n->kind, sizeof n->kind, h->kind);
    topo_text(n->zone, sizeof n->zone, h->zone);
    n->price = h->price;
    n->sockets = h->sockets;
    n->numa_nodes = h->numa_nodes;
    n->cores = h->ncores;
    n->threads = h->threads;
    n->memory = h->memory;
    for (int c = 0; c < h->ncores; c++)
      n->allowed_threads += __builtin_popcount(h->core[c].allowed);
    n->nics = h->nnics;
    memcpy(n->nic, h->nic, sizeof n->nic);
    if (h->note[0])
      topo_note(t->note, sizeof t->note, "%s", h->note);
    n->bindable = h->read_here && !h->unbound;
    if (h->read_here && shares_kernel(p, host_of, i)) {
      n->bindable = 0;
      topo_note(t->note, sizeof t->note, "several nodes are one kernel: ranks are left unbound");
    }
    n->first_device = t->devices;
    t->nodes = i + 1;
    local l;
    err = local_ranks(h, i, p, host_of, &l);
    if (err == ATOLL_OK)
      err = divide_host(params, h, i, p, &l, t);
    local_free(&l);
    if (err != ATOLL_OK)
      goto fail;
    n = &t->node[i];
    n->devices = t->devices - n->first_device;
    err = topo_node_identity(t, i, h, &n->identity);
    if (err != ATOLL_OK)
      goto fail;
  }
  if (hosts->links)
    memcpy(t->link, hosts->link, sizeof *t->link * (size_t)hosts->links);
  t->links = hosts->links;
  if (hosts->routes)
    memcpy(t->route, hosts->route, sizeof *t->route * (size_t)hosts->routes);
  t->routes = hosts->routes;
  topo_links_sort(t);
  *out = t;
  return ATOLL_OK;
fail:
  atoll_topo_destroy(&t);
  return err;
}

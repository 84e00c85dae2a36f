#include "topo_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct diff {
  FILE *f;
  int lines;
} diff;

static void say(diff *d, const char *fmt, ...) ATOLL_PRINTF(2, 3);
static void say(diff *d, const char *fmt, ...) {
  va_list ap;
  d->lines++;
  if (!d->f)
    return;
  va_start(ap, fmt);
  vfprintf(d->f, fmt, ap);
  va_end(ap);
  fputc('\n', d->f);
}

static void text(diff *d, const char *where, const char *what, const char *a, const char *b) {
  if (strcmp(a, b) != 0)
    say(d, "%s: %s: '%s' | '%s'", where, what, a, b);
}

static void number(diff *d, const char *where, const char *what, int64_t a, int64_t b) {
  if (a != b)
    say(d, "%s: %s: %lld | %lld", where, what, (long long)a, (long long)b);
}

/* Different only when the medians are further apart than twice both spreads together, and than 5 %. */
static void samples(diff *d, const char *where, const char *what, const atoll_samples *a, const atoll_samples *b,
                    const char *unit) {
  if (!a->n && !b->n)
    return;
  double x = atoll_samples_median(a), y = atoll_samples_median(b);
  if (!a->n || !b->n) {
    say(d, "%s: %s: %s | %s", where, what, a->n ? "measured" : "not measured", b->n ? "measured" : "not measured");
    return;
  }
  double noise = 2 * (atoll_samples_spread(a) * x + atoll_samples_spread(b) * y);
  if (fabs(x - y) > noise && fabs(x - y) > 0.05 * fmax(x, y))
    say(d, "%s: %s: %.6g | %.6g %s", where, what, x, y, unit);
}

static int node_named(const atoll_topo *t, const char *name) {
  for (int i = 0; i < t->nodes; i++)
    if (strcmp(t->node[i].name, name) == 0)
      return i;
  return -1;
}

static void device(diff *d, const char *where, const atoll_topo_device *x, const atoll_topo_device *y) {
  text(d, where, "kind", topo_kind_name(x->kind), topo_kind_name(y->kind));
  text(d, where, "model", x->model, y->model);
  text(d, where, "PCI address", x->pci, y->pci);
  text(d, where, "cores", x->cores, y->cores);
  text(d, where, "instruction set", x->isa, y->isa);
  number(d, where, "memory in bytes", x->memory, y->memory);
  text(d, where, "memory limit", x->memory_limit, y->memory_limit);
  number(d, where, "rank", x->rank, y->rank);
  samples(d, where, "f32 rate", &x->gemm_f32, &y->gemm_f32, "GFLOP/s");
  samples(d, where, "bf16 rate", &x->gemm_bf16, &y->gemm_bf16, "GFLOP/s");
  samples(d, where, "memory bandwidth", &x->bandwidth, &y->bandwidth, "GB/s");
}

static const atoll_topo_link *link_at(const atoll_topo *t, const char *a, const char *b) {
  for (int i = 0; i < t->links; i++) {
    const char *x = t->node[t->link[i].a].name, *y = t->node[t->link[i].b].name;
    if ((strcmp(x, a) == 0 && strcmp(y, b) == 0) || (strcmp(x, b) == 0 && strcmp(y, a) == 0))
      return &t->link[i];
  }
  return NULL;
}

int atoll_topo_diff(const atoll_topo *a, const atoll_topo *b, FILE *f) {
  diff d = {f, 0};
  /* Nodes are matched by name; when no name is shared (two jobs on different machines) by position. */
  int shared = 0;
  for (int i = 0; i < a->nodes; i++)
    shared += node_named(b, a->node[i].name) >= 0;
  int by_name = shared > 0;
  for (int i = 0; i < a->nodes; i++) {
    const atoll_topo_node *x = &a->node[i];
    int j = by_name ? node_named(b, x->name) : i < b->nodes ? i : -1;
    if (j < 0) {
      say(&d, "node %s: only in the first", x->name);
      continue;
    }
    const atoll_topo_node *y = &b->node[j];
    char where[160];
    snprintf(where, sizeof where, by_name ? "node %s" : "node %s | %s", x->name, y->name);
    text(&d, where, "kind", x->kind, y->kind);
    number(&d, where, "sockets", x->sockets, y->sockets);
    number(&d, where, "NUMA nodes", x->numa_nodes, y->numa_nodes);
    number(&d, where, "cores", x->cores, y->cores);
    number(&d, where, "threads", x->threads, y->threads);
    number(&d, where, "allowed threads", x->allowed_threads, y->allowed_threads);
    number(&d, where, "memory in bytes", x->memory, y->memory);
    number(&d, where, "network interfaces", x->nics, y->nics);
    for (int k = 0; k < x->nics && k < y->nics; k++) {
      text(&d, where, "network interface", x->nic[k].name, y->nic[k].name);
      if (fabs(x->nic[k].speed - y->nic[k].speed) > 0)
        say(&d, "%s: speed of %s: %g | %g Gbit/s", where, x->nic[k].name, x->nic[k].speed, y->nic[k].speed);
    }
    number(&d, where, "devices", x->devices, y->devices);
    if (!atoll_digest_equal(x->identity, y->identity) && d.lines == 0)
      say(&d, "%s: the hardware identity differs (cores, caches or devices)", where);
    for (int k = 0; k < x->devices && k < y->devices; k++) {
      char at[200];
      snprintf(at, sizeof at, "%s device %d", where, k);
      device(&d, at, &a->device[x->first_device + k], &b->device[y->first_device + k]);
    }
  }
  for (int j = 0; j < b->nodes; j++)
    if (by_name ? node_named(a, b->node[j].name) < 0 : j >= a->nodes)
      say(&d, "node %s: only in the second", b->node[j].name);
  for (int i = 0; by_name && i < a->links; i++) {
    const char *x = a->node[a->link[i].a].name, *y = a->node[a->link[i].b].name;
    const atoll_topo_link *l = link_at(b, x, y);
    char where[160];
    snprintf(where, sizeof where, strcmp(x, y) == 0 ? "link inside %s" : "link %s - %s", x, y);
    if (!l) {
      if (node_named(b, x) >= 0 && node_named(b, y) >= 0)
        say(&d, "%s: only in the first", where);
      continue;
    }
    samples(&d, where, "latency", &a->link[i].latency, &l->latency, "s");
    samples(&d, where, "bandwidth", &a->link[i].bandwidth, &l->bandwidth, "GB/s");
  }
  return d.lines;
}

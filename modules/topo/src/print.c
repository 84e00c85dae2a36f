/* For people: equal nodes are told once. */
#include "topo_impl.h"

#include <stdio.h>
#include <string.h>

static const char *bytes_text(int64_t bytes, char *buf, size_t n) {
  if (bytes <= 0)
    snprintf(buf, n, "unknown");
  else if (bytes >= (int64_t)1 << 40)
    snprintf(buf, n, "%.1f TiB", (double)bytes / 0x1p40);
  else if (bytes >= (int64_t)10 << 30)
    snprintf(buf, n, "%.0f GiB", (double)bytes / 0x1p30);
  else if (bytes >= (int64_t)1 << 30)
    snprintf(buf, n, "%.1f GiB", (double)bytes / 0x1p30);
  else
    snprintf(buf, n, "%.0f MiB", (double)bytes / 0x1p20);
  return buf;
}

static void rate(FILE *f, const char *name, const atoll_samples *s, const char *unit) {
  if (!s->n)
    return;
  double m = atoll_samples_median(s);
  fprintf(f, m >= 1000 ? "  %s%s%.0f %s" : "  %s%s%.4g %s", name, name[0] ? " " : "", m, unit);
  if (s->n > 1)
    fprintf(f, " +- %.0f %%", 100 * atoll_samples_spread(s));
}

static void print_device(const atoll_topo *t, int i, FILE *f) {
  const atoll_topo_device *d = &t->device[i];
  char mem[32];
  fprintf(f, "    %s", topo_kind_name(d->kind));
  if (d->kind == ATOLL_TOPO_GPU)
    fprintf(f, " %s  %s  near cores %s", d->pci, d->model, d->cores[0] ? d->cores : "unknown");
  else
    fprintf(f, " cores %s  (%d cores, %d threads)", d->cores, d->ncores, d->nthreads);
  if (d->numa >= 0)
    fprintf(f, "  NUMA %d", d->numa);
  fprintf(f, "  %s by %s", bytes_text(d->memory, mem, sizeof mem), d->memory_limit[0] ? d->memory_limit : "nothing");
  if (d->rank >= 0)
    fprintf(f, "  rank %d", d->rank);
  rate(f, "f32", &d->gemm_f32, "GFLOP/s");
  rate(f, "bf16", &d->gemm_bf16, "GFLOP/s");
  rate(f, "memory", &d->bandwidth, "GB/s");
  fprintf(f, "%s\n", d->declared ? "  (declared)" : "");
}

void atoll_topo_print(const atoll_topo *t, FILE *f) {
  char mem[32], hex[33];
  fprintf(f, "topology from %s (%s): %d nodes, %d devices, identity %.12s\n", t->backend, t->source, t->nodes,
          t->devices, atoll_digest_text(atoll_topo_identity(t), hex));
  for (int i = 0, same; i < t->nodes; i += same) {
    const atoll_topo_node *n = &t->node[i];
    char last[96] = "";
    for (same = 1; i + same < t->nodes && topo_nodes_equal(t, i, i + same); same++)
      ;
    if (same > 1)
      snprintf(last, sizeof last, " ... %s (%d equal nodes)", t->node[i + same - 1].name, same);
    char paid[48] = "";
    if (n->price > 0)
      snprintf(paid, sizeof paid, ", %g per hour and device", n->price);
    fprintf(f, "  node %s%s%s%s%s%s: %d socket%s, %d NUMA, %d cores, %d threads (%d allowed), %s%s\n", n->name, last,
            n->kind[0] ? " kind " : "", n->kind, n->zone[0] ? " zone " : "", n->zone, n->sockets,
            n->sockets == 1 ? "" : "s", n->numa_nodes, n->cores, n->threads, n->allowed_threads,
            bytes_text(n->memory, mem, sizeof mem), paid);
    if (n->devices && t->device[n->first_device].kind == ATOLL_TOPO_CPU)
      fprintf(f, "    %s  %s\n", t->device[n->first_device].model, t->device[n->first_device].isa);
    for (int k = 0; k < n->devices; k++)
      print_device(t, n->first_device + k, f);
    for (int k = 0; k < n->nics; k++) {
      fprintf(f, "    nic %s %s", n->nic[k].name, n->nic[k].pci);
      if (n->nic[k].numa >= 0)
        fprintf(f, "  NUMA %d", n->nic[k].numa);
      if (n->nic[k].speed > 0)
        fprintf(f, "  %g Gbit/s", n->nic[k].speed);
      fprintf(f, "\n");
    }
  }
  for (int i = 0; i < t->links && i < 64; i++) {
    const atoll_topo_link *l = &t->link[i];
    if (l->a == l->b)
      fprintf(f, "  link inside %s:", t->node[l->a].name);
    else
      fprintf(f, "  link %s - %s:", t->node[l->a].name, t->node[l->b].name);
    if (l->latency.n)
      fprintf(f, "  %.3g us", 1e6 * atoll_samples_median(&l->latency));
    rate(f, "", &l->bandwidth, "GB/s");
    fprintf(f, "%s\n", l->declared ? "  (declared)" : "");
  }
  if (t->links > 64)
    fprintf(f, "  ... and %d more links\n", t->links - 64);
  for (int i = 0; i < t->routes; i++) {
    const atoll_topo_route *r = &t->route[i];
    fprintf(f, "  between nodes of %s and %s:", r->a, r->b);
    if (r->bandwidth > 0)
      fprintf(f, "  %.3g us  %.4g GB/s", 1e6 * r->latency, r->bandwidth);
    if (r->price > 0)
      fprintf(f, "  %g per GB", r->price);
    fprintf(f, "  (declared)\n");
  }
  if (t->note[0])
    fprintf(f, "  note: %s\n", t->note);
}

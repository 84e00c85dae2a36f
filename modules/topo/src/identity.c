/* What hardware is, apart from its name, its load and its mood. */
#include "topo_impl.h"

#include <string.h>

int64_t atoll_topo_installed_memory(int64_t bytes) {
  if (bytes <= 0)
    return 0;
  int64_t power = 1;
  while (power < bytes && power < (int64_t)1 << 62)
    power *= 2;
  int64_t step = power / 16 > 0 ? power / 16 : 1;
  return (bytes + step - 1) / step * step;
}

static void add_device(atoll_digester *g, const atoll_topo_device *d, int place) {
  atoll_digester_add_int(g, d->kind);
  atoll_digester_add_text(g, d->model);
  atoll_digester_add_text(g, d->isa);
  if (place)
    atoll_digester_add_text(g, d->pci);
  if (d->kind == ATOLL_TOPO_CPU) {
    atoll_digester_add_int(g, d->ncores);
    atoll_digester_add_int(g, d->nthreads);
  }
  atoll_digester_add_int(g, atoll_topo_installed_memory(d->memory));
}

atoll_err topo_node_identity(const atoll_topo *topo, int node, const atoll_topo_host *h, atoll_digest *out) {
  (void)topo;
  (void)node;
  atoll_digester *g = NULL;
  ATOLL_TRY(atoll_digester_create(&g));
  atoll_digester_add_text(g, "node");
  atoll_digester_add_text(g, h->kind);
  atoll_digester_add_text(g, h->model);
  atoll_digester_add_text(g, h->isa);
  const int counts[] = {h->sockets, h->numa_nodes, h->core_kinds, h->threads, h->ncores, h->ngpus};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
    atoll_digester_add_int(g, counts[i]);
  for (int i = 0; i < h->ncores; i++) {
    atoll_digester_add_int(g, h->core[i].package);
    atoll_digester_add_int(g, h->core[i].kind);
    atoll_digester_add_int(g, h->core[i].threads);
  }
  atoll_digester_add_int(g, atoll_topo_installed_memory(h->declared_memory ? h->declared_memory : h->memory));
  for (int i = 0; i < h->ngpus; i++) {
    atoll_digester_add_text(g, h->gpu[i].model);
    atoll_digester_add_text(g, h->gpu[i].pci);
    atoll_digester_add_text(g, h->gpu[i].isa);
    atoll_digester_add_int(g, atoll_topo_installed_memory(h->gpu[i].memory));
  }
  for (int i = 0; i < h->nnics; i++)
    atoll_digester_add_text(g, h->nic[i].pci);
  *out = atoll_digester_value(g);
  atoll_digester_destroy(&g);
  return ATOLL_OK;
}

atoll_digest atoll_topo_identity(const atoll_topo *t) {
  atoll_digest none = {0, 0};
  atoll_digester *g = NULL;
  if (atoll_digester_create(&g) != ATOLL_OK)
    return none;
  atoll_digester_add_text(g, "topology identity 1");
  atoll_digester_add_int(g, t->nodes);
  for (int i = 0; i < t->nodes; i++) {
    atoll_digester_add(g, &t->node[i].identity, sizeof t->node[i].identity);
    atoll_digester_add_int(g, t->node[i].devices);
    for (int k = 0; k < t->node[i].devices; k++)
      add_device(g, &t->device[t->node[i].first_device + k], 1);
  }
  atoll_digest d = atoll_digester_value(g);
  atoll_digester_destroy(&g);
  return d;
}

static void add_samples(atoll_digester *g, const atoll_samples *s) {
  atoll_digester_add_int(g, s->n);
  for (int i = 0; i < s->n; i++)
    atoll_digester_add_real(g, s->v[i]);
}

atoll_digest atoll_topo_digest(const atoll_topo *t) {
  atoll_digest identity = atoll_topo_identity(t), none = {0, 0};
  atoll_digester *g = NULL;
  if (atoll_digester_create(&g) != ATOLL_OK)
    return none;
  atoll_digester_add(g, &identity, sizeof identity);
  atoll_digester_add_text(g, t->backend);
  atoll_digester_add_text(g, t->source);
  atoll_digester_add_text(g, t->note);
  for (int i = 0; i < t->nodes; i++) {
    const atoll_topo_node *n = &t->node[i];
    atoll_digester_add_text(g, n->name);
    atoll_digester_add_text(g, n->kind);
    atoll_digester_add_int(g, n->allowed_threads);
    atoll_digester_add_int(g, n->memory);
    atoll_digester_add_int(g, n->bindable);
    if (n->zone[0] || n->price > 0) {
      atoll_digester_add_text(g, n->zone);
      atoll_digester_add_real(g, n->price);
    }
    for (int k = 0; k < n->nics; k++) {
      atoll_digester_add_text(g, n->nic[k].name);
      atoll_digester_add_real(g, n->nic[k].speed);
    }
  }
  for (int i = 0; i < t->devices; i++) {
    const atoll_topo_device *d = &t->device[i];
    add_device(g, d, 1);
    atoll_digester_add_text(g, d->cores);
    atoll_digester_add_int(g, d->numa);
    atoll_digester_add_int(g, d->memory);
    atoll_digester_add_text(g, d->memory_limit);
    atoll_digester_add_int(g, d->rank);
    atoll_digester_add_int(g, d->declared);
    add_samples(g, &d->gemm_f32);
    add_samples(g, &d->gemm_bf16);
    add_samples(g, &d->bandwidth);
  }
  for (int i = 0; i < t->links; i++) {
    atoll_digester_add_int(g, t->link[i].a);
    atoll_digester_add_int(g, t->link[i].b);
    atoll_digester_add_int(g, t->link[i].declared);
    add_samples(g, &t->link[i].latency);
    add_samples(g, &t->link[i].bandwidth);
  }
  for (int i = 0; i < t->routes; i++) {
    const atoll_topo_route *r = &t->route[i];
    atoll_digester_add_text(g, r->a);
    atoll_digester_add_text(g, r->b);
    atoll_digester_add_real(g, r->latency);
    atoll_digester_add_real(g, r->bandwidth);
    atoll_digester_add_real(g, r->price);
  }
  atoll_digest d = atoll_digester_value(g);
  atoll_digester_destroy(&g);
  return d;
}

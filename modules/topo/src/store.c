/* The topology in HDF5: columns for people who analyse, and the YAML text, which is what reads it back. */
#include "topo_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const char *(*text_of)(const atoll_topo *t, int i);
typedef int64_t (*int_of)(const atoll_topo *t, int i);

static const char *node_name(const atoll_topo *t, int i) { return t->node[i].name; }
static const char *node_kind(const atoll_topo *t, int i) { return t->node[i].kind; }
static int64_t node_sockets(const atoll_topo *t, int i) { return t->node[i].sockets; }
static int64_t node_numa(const atoll_topo *t, int i) { return t->node[i].numa_nodes; }
static int64_t node_cores(const atoll_topo *t, int i) { return t->node[i].cores; }
static int64_t node_threads(const atoll_topo *t, int i) { return t->node[i].threads; }
static int64_t node_allowed(const atoll_topo *t, int i) { return t->node[i].allowed_threads; }
static int64_t node_memory(const atoll_topo *t, int i) { return t->node[i].memory; }
static const char *device_kind(const atoll_topo *t, int i) { return topo_kind_name(t->device[i].kind); }
static const char *device_model(const atoll_topo *t, int i) { return t->device[i].model; }
static const char *device_pci(const atoll_topo *t, int i) { return t->device[i].pci; }
static const char *device_cores(const atoll_topo *t, int i) { return t->device[i].cores; }
static const char *device_isa(const atoll_topo *t, int i) { return t->device[i].isa; }
static const char *device_limit(const atoll_topo *t, int i) { return t->device[i].memory_limit; }
static int64_t device_node(const atoll_topo *t, int i) { return t->device[i].node; }
static int64_t device_rank(const atoll_topo *t, int i) { return t->device[i].rank; }
static int64_t device_ncores(const atoll_topo *t, int i) { return t->device[i].ncores; }
static int64_t device_nthreads(const atoll_topo *t, int i) { return t->device[i].nthreads; }
static int64_t device_numa(const atoll_topo *t, int i) { return t->device[i].numa; }
static int64_t device_memory(const atoll_topo *t, int i) { return t->device[i].memory; }
static int64_t device_declared(const atoll_topo *t, int i) { return t->device[i].declared; }
static int64_t link_a(const atoll_topo *t, int i) { return t->link[i].a; }
static int64_t link_b(const atoll_topo *t, int i) { return t->link[i].b; }

static atoll_err texts(atoll_store *s, const char *group, const char *name, const atoll_topo *t, int n, text_of get,
                       const char *long_name) {
  char path[512];
  const char **v = malloc(sizeof *v * (size_t)(n + 1));
  if (!v)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d names", n);
  for (int i = 0; i < n; i++)
    v[i] = get(t, i);
  snprintf(path, sizeof path, "%s/%s", group, name);
  atoll_err err = atoll_store_write_texts(s, path, v, (size_t)n, long_name);
  free(v);
  return err;
}

static atoll_err ints(atoll_store *s, const char *group, const char *name, const atoll_topo *t, int n, int_of get,
                      const char *units, const char *long_name) {
  char path[512];
  int64_t *v = malloc(sizeof *v * (size_t)(n + 1)), shape[1] = {n};
  if (!v)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d numbers", n);
  for (int i = 0; i < n; i++)
    v[i] = get(t, i);
  snprintf(path, sizeof path, "%s/%s", group, name);
  atoll_err err = atoll_store_write(s, path, ATOLL_I64, 1, shape, v, units, long_name);
  free(v);
  return err;
}

/* [n, ATOLL_TOPO_SAMPLES], ascending, NaN where there is no sample. which: byte offset of the samples in an element of
 * `stride` bytes. */
static atoll_err samples(atoll_store *s, const char *group, const char *name, const void *first, size_t stride,
                         size_t which, int n, const char *units, const char *long_name) {
  char path[512];
  int64_t shape[2] = {n, ATOLL_TOPO_SAMPLES};
  double *v = malloc(sizeof *v * (size_t)(n + 1) * ATOLL_TOPO_SAMPLES);
  if (!v)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d measurements", n);
  for (int i = 0; i < n; i++) {
    const atoll_samples *m = (const atoll_samples *)((const char *)first + (size_t)i * stride + which);
    for (int k = 0; k < ATOLL_TOPO_SAMPLES; k++)
      v[i * ATOLL_TOPO_SAMPLES + k] = k < m->n ? m->v[k] : NAN;
  }
  snprintf(path, sizeof path, "%s/%s", group, name);
  atoll_err err = atoll_store_write(s, path, ATOLL_F64, 2, shape, v, units, long_name);
  free(v);
  return err;
}

atoll_err atoll_topo_to_store(const atoll_topo *t, atoll_store *s, const char *group) {
  char path[400], hex[33];
  atoll_yaml_out *o = NULL;
  const char *yaml = NULL;
  ATOLL_TRY(atoll_yaml_out_create(&o));
  atoll_err err = atoll_topo_to_yaml(t, o);
  if (err == ATOLL_OK)
    err = atoll_yaml_out_text(o, &yaml);
  snprintf(path, sizeof path, "%.380s/yaml", group);
  if (err == ATOLL_OK)
    err = atoll_store_write_text(s, path, yaml, "the whole topology as YAML");
  atoll_yaml_out_destroy(&o);
  ATOLL_TRY(err);
  ATOLL_TRY(atoll_store_attr_text(s, group, "backend", t->backend));
  ATOLL_TRY(atoll_store_attr_text(s, group, "source", t->source));
  ATOLL_TRY(atoll_store_attr_text(s, group, "note", t->note));
  ATOLL_TRY(atoll_store_attr_text(s, group, "identity", atoll_digest_text(atoll_topo_identity(t), hex)));
  snprintf(path, sizeof path, "%.380s/nodes", group);
  ATOLL_TRY(texts(s, path, "name", t, t->nodes, node_name, "node name"));
  ATOLL_TRY(texts(s, path, "kind", t, t->nodes, node_kind, "declared kind of node"));
  ATOLL_TRY(ints(s, path, "sockets", t, t->nodes, node_sockets, "1", "CPU packages"));
  ATOLL_TRY(ints(s, path, "numa_nodes", t, t->nodes, node_numa, "1", "NUMA nodes"));
  ATOLL_TRY(ints(s, path, "cores", t, t->nodes, node_cores, "1", "physical cores"));
  ATOLL_TRY(ints(s, path, "threads", t, t->nodes, node_threads, "1", "hardware threads"));
  ATOLL_TRY(ints(s, path, "allowed_threads", t, t->nodes, node_allowed, "1", "hardware threads this job may use"));
  ATOLL_TRY(ints(s, path, "memory", t, t->nodes, node_memory, "byte", "memory of the machine"));
  snprintf(path, sizeof path, "%.380s/devices", group);
  ATOLL_TRY(ints(s, path, "node", t, t->devices, device_node, "1", "index of the device's node"));
  ATOLL_TRY(ints(s, path, "rank", t, t->devices, device_rank, "1", "rank that computes on the device, -1 for none"));
  ATOLL_TRY(texts(s, path, "kind", t, t->devices, device_kind, "cpu or gpu"));
  ATOLL_TRY(texts(s, path, "model", t, t->devices, device_model, "hardware model"));
  ATOLL_TRY(texts(s, path, "pci", t, t->devices, device_pci, "PCI address"));
  ATOLL_TRY(texts(s, path, "cores", t, t->devices, device_cores, "hardware threads by OS index"));
  ATOLL_TRY(texts(s, path, "isa", t, t->devices, device_isa, "instruction set"));
  ATOLL_TRY(ints(s, path, "ncores", t, t->devices, device_ncores, "1", "physical cores"));
  ATOLL_TRY(ints(s, path, "nthreads", t, t->devices, device_nthreads, "1", "hardware threads"));
  ATOLL_TRY(ints(s, path, "numa", t, t->devices, device_numa, "1", "nearest NUMA node, -1 for none"));
  ATOLL_TRY(ints(s, path, "memory", t, t->devices, device_memory, "byte", "memory the device may use, 0 when unknown"));
  ATOLL_TRY(texts(s, path, "memory_limit", t, t->devices, device_limit, "what limits the memory"));
  ATOLL_TRY(ints(s, path, "declared", t, t->devices, device_declared, "1", "1: rates come from a cluster file"));
  ATOLL_TRY(samples(s, path, "gemm_f32", t->device, sizeof *t->device, offsetof(atoll_topo_device, gemm_f32),
                    t->devices, "GFLOP s-1", "f32 matrix multiply rate, samples ascending"));
  ATOLL_TRY(samples(s, path, "gemm_bf16", t->device, sizeof *t->device, offsetof(atoll_topo_device, gemm_bf16),
                    t->devices, "GFLOP s-1", "bf16 matrix multiply rate, samples ascending"));
  ATOLL_TRY(samples(s, path, "bandwidth", t->device, sizeof *t->device, offsetof(atoll_topo_device, bandwidth),
                    t->devices, "GB s-1", "memory bandwidth, samples ascending"));
  if (!t->links)
    return ATOLL_OK;
  snprintf(path, sizeof path, "%.380s/links", group);
  ATOLL_TRY(ints(s, path, "a", t, t->links, link_a, "1", "index of one node"));
  ATOLL_TRY(ints(s, path, "b", t, t->links, link_b, "1", "index of the other node; a = b: inside the node"));
  ATOLL_TRY(samples(s, path, "latency", t->link, sizeof *t->link, offsetof(atoll_topo_link, latency), t->links, "s",
                    "one-way latency, samples ascending"));
  return samples(s, path, "bandwidth", t->link, sizeof *t->link, offsetof(atoll_topo_link, bandwidth), t->links,
                 "GB s-1", "bandwidth, samples ascending");
}

atoll_err atoll_topo_from_store(atoll_store *s, const char *group, atoll_topo **out) {
  char path[400], *text = NULL;
  atoll_yaml *root = NULL;
  snprintf(path, sizeof path, "%.380s/yaml", group);
  ATOLL_TRY(atoll_store_read_text(s, path, &text));
  atoll_err err = atoll_yaml_parse(path, text, strlen(text), &root);
  if (err == ATOLL_OK)
    err = atoll_topo_from_yaml(root, out);
  atoll_yaml_destroy(&root);
  free(text);
  return err;
}

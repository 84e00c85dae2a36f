/* cluster.yaml: what a folder of node files does not say.
 *
 *    nodes:                      required, in the order of the cluster
 *      - name: n                 matched to SLURMD_NODENAME or the host name; with count > 1: n0, n1, ...
 *        file: fast.xml          hwloc v2 XML beside this file; or
 *        synthetic: pack:1 core:8
 *        count: 4                default 1
 *        kind: fast              free text: nodes of different kinds are never one island
 *        zone: us-east1-b        free text: nodes of different zones are never one island
 *        price: 3.67             per hour and device, in any currency
 *        in_node: {latency: 2e-6, bandwidth: 240}      inside each of these nodes, instead of links.in_node
 *        devices: 2              CPU devices per node when nobody launches ranks; default one per package
 *        memory: 64GiB           per node, instead of what the file says
 *        isa: x86-64 avx512_bf16
 *        gemm_f32: 500           GFLOP/s per CPU device
 *        gemm_bf16: 1000
 *        bandwidth: 100          GB/s per CPU device, read + write
 *        gpu: {model: ..., memory: 40GiB, isa: sm_80, gemm_f32: 15000, gemm_bf16: 200000, bandwidth: 1400}
 *                                each GPU of the file
 *    links:
 *      in_node: {latency: 1e-6, bandwidth: 10}       s and GB/s, inside every node
 *      between: {latency: 2e-6, bandwidth: 12}       between any two nodes
 *      pairs:                                        exceptions; a and b are node names, kinds or zones
 *        - {a: fast, b: slow, latency: 50e-6, bandwidth: 1}
 *        - {a: us-east1-b, b: us-west1-a, latency: 30e-3, bandwidth: 0.9, price: 0.02}     price per GB carried
 *
 * Declared rates and links are taken at their word: probes measure only what is not declared. */
#include "topo_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"
#include "atoll/yaml.h"

/* A rate of zero is no rate: what is not known is left out. */
#define RATE_MIN  1e-9
#define RATE_MAX  1e12
#define PAIRS_MAX 32 /* nodes up to which every pair gets its own link */

static atoll_err read_memory(atoll_yaml *map, int64_t *out) {
  int64_t bytes = -1;
  ATOLL_TRY(atoll_yaml_bytes(map, "memory", 0, &bytes));
  if (bytes == 0)
    return atoll_fail(ATOLL_USAGE, "%s:%d: memory: found '0', expected a size above 0", atoll_yaml_file(map),
                      atoll_yaml_line(map));
  *out = bytes > 0 ? bytes : *out;
  return ATOLL_OK;
}

static atoll_err read_gpu(atoll_yaml *map, atoll_topo_host *host) {
  atoll_yaml *gpu = NULL;
  ATOLL_TRY(atoll_yaml_map(map, "gpu", 0, &gpu));
  if (!gpu)
    return ATOLL_OK;
  if (host->ngpus == 0)
    return atoll_fail(ATOLL_USAGE, "%s:%d: gpu is declared, but the node's topology has no GPU", atoll_yaml_file(gpu),
                      atoll_yaml_line(gpu));
  atoll_topo_gpu like = {0};
  ATOLL_TRY(atoll_yaml_string(gpu, "model", 0, like.model, sizeof like.model));
  ATOLL_TRY(atoll_yaml_string(gpu, "isa", 0, like.isa, sizeof like.isa));
  ATOLL_TRY(read_memory(gpu, &like.memory));
  ATOLL_TRY(atoll_yaml_real(gpu, "gemm_f32", 0, RATE_MIN, RATE_MAX, &like.gemm_f32));
  ATOLL_TRY(atoll_yaml_real(gpu, "gemm_bf16", 0, RATE_MIN, RATE_MAX, &like.gemm_bf16));
  ATOLL_TRY(atoll_yaml_real(gpu, "bandwidth", 0, RATE_MIN, RATE_MAX, &like.bandwidth));
  for (int i = 0; i < host->ngpus; i++) {
    atoll_topo_gpu *g = &host->gpu[i];
    if (like.model[0])
      topo_text(g->model, sizeof g->model, like.model);
    if (like.isa[0])
      topo_text(g->isa, sizeof g->isa, like.isa);
    if (like.memory)
      g->memory = like.memory;
    g->gemm_f32 = like.gemm_f32;
    g->gemm_bf16 = like.gemm_bf16;
    g->bandwidth = like.bandwidth;
  }
  return ATOLL_OK;
}

static int by_name(const void *a, const void *b) {
  const atoll_topo_host *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static atoll_err names_differ(const atoll_topo_hosts *hosts, const char *where) {
  const atoll_topo_host **sorted = malloc(sizeof *sorted * (size_t)(hosts->count + 1)), *twice = NULL;
  if (!sorted)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d nodes", hosts->count);
  for (int i = 0; i < hosts->count; i++)
    sorted[i] = &hosts->host[i];
  qsort(sorted, (size_t)hosts->count, sizeof *sorted, by_name);
  for (int i = 1; i < hosts->count && !twice; i++)
    twice = strcmp(sorted[i - 1]->name, sorted[i]->name) == 0 ? sorted[i] : NULL;
  atoll_err err = twice ? atoll_fail(ATOLL_USAGE, "%s: the node name '%s' is taken", where, twice->name) : ATOLL_OK;
  free(sorted);
  return err;
}

static atoll_err read_node(const char *folder, atoll_yaml *map, atoll_topo_hosts *out) {
  char name[64], file[ATOLL_OPT_STRING_MAX] = "", synthetic[ATOLL_OPT_STRING_MAX] = "", path[1400], where[600];
  int64_t count = 1, devices = 0;
  if (!atoll_yaml_is_map(map))
    return atoll_fail(ATOLL_USAGE, "%s:%d: found a scalar or list, expected a node: {name: ..., file: ...}",
                      atoll_yaml_file(map), atoll_yaml_line(map));
  ATOLL_TRY(atoll_yaml_string(map, "name", 1, name, sizeof name - 12));
  ATOLL_TRY(atoll_yaml_int(map, "count", 0, 1, 65536, &count));
  ATOLL_TRY(atoll_yaml_string(map, "file", 0, file, sizeof file));
  ATOLL_TRY(atoll_yaml_string(map, "synthetic", 0, synthetic, sizeof synthetic));
  snprintf(where, sizeof where, "%.500s:%d", atoll_yaml_file(map), atoll_yaml_line(map));
  if (!file[0] == !synthetic[0])
    return atoll_fail(ATOLL_USAGE, "%s: node '%s' has %s, expected one of 'file' and 'synthetic'", where, name,
                      file[0] ? "both 'file' and 'synthetic'" : "neither 'file' nor 'synthetic'");
  int first = out->count;
  atoll_topo_host *host;
  ATOLL_TRY(topo_hosts_add(out, &host));
  if (file[0]) {
    if (file[0] == '/')
      topo_text(path, sizeof path, file);
    else
      ATOLL_TRY(atoll_path_join(path, sizeof path, folder, file));
    if (!atoll_file_exists(path))
      return atoll_fail(ATOLL_NOINPUT, "%s: node '%s' names the file %s, which does not exist", where, name, path);
    ATOLL_TRY(topo_xml_load(path, name, host));
  } else {
    ATOLL_TRY(topo_synthetic_node(synthetic, where, name, host));
  }
  ATOLL_TRY(atoll_yaml_string(map, "kind", 0, host->kind, sizeof host->kind));
  ATOLL_TRY(atoll_yaml_string(map, "zone", 0, host->zone, sizeof host->zone));
  ATOLL_TRY(atoll_yaml_real(map, "price", 0, 0, RATE_MAX, &host->price));
  ATOLL_TRY(atoll_yaml_string(map, "isa", 0, host->isa, sizeof host->isa));
  ATOLL_TRY(read_memory(map, &host->declared_memory));
  ATOLL_TRY(atoll_yaml_int(map, "devices", 0, 1, host->ncores, &devices));
  ATOLL_TRY(atoll_yaml_real(map, "gemm_f32", 0, RATE_MIN, RATE_MAX, &host->gemm_f32));
  ATOLL_TRY(atoll_yaml_real(map, "gemm_bf16", 0, RATE_MIN, RATE_MAX, &host->gemm_bf16));
  ATOLL_TRY(atoll_yaml_real(map, "bandwidth", 0, RATE_MIN, RATE_MAX, &host->bandwidth));
  if (devices)
    host->declared_devices = (int)devices;
  ATOLL_TRY(read_gpu(map, host));
  if (count > 1)
    snprintf(host->name, sizeof host->name, "%.52s0", name);
  for (int64_t k = 1; k < count; k++) {
    ATOLL_TRY(topo_hosts_add(out, &host));
    ATOLL_TRY(topo_host_copy(&out->host[first], host));
    snprintf(host->name, sizeof host->name, "%.52s%d", name, (int)k % 1000000);
  }
  return names_differ(out, where);
  return ATOLL_OK;
}

static atoll_err read_rate(atoll_yaml *map, atoll_topo_link *link) {
  double latency = 0, bandwidth = 0;
  ATOLL_TRY(atoll_yaml_real(map, "latency", 0, 0, 3600, &latency));
  ATOLL_TRY(atoll_yaml_real(map, "bandwidth", 1, RATE_MIN, RATE_MAX, &bandwidth));
  link->declared = 1;
  memset(&link->latency, 0, sizeof link->latency);
  memset(&link->bandwidth, 0, sizeof link->bandwidth);
  topo_samples_add(&link->latency, latency);
  topo_samples_add(&link->bandwidth, bandwidth);
  return ATOLL_OK;
}

static atoll_topo_link *link_at(atoll_topo_hosts *out, int a, int b) {
  if (a > b) {
    int c = a;
    a = b;
    b = c;
  }
  for (int i = 0; i < out->links; i++)
    if (out->link[i].a == a && out->link[i].b == b)
      return &out->link[i];
  atoll_topo_link *more = realloc(out->link, sizeof *more * (size_t)(out->links + 1));
  if (!more)
    return NULL;
  out->link = more;
  atoll_topo_link *l = &more[out->links++];
  memset(l, 0, sizeof *l);
  l->a = a;
  l->b = b;
  return l;
}

static atoll_err set_link(atoll_topo_hosts *out, int a, int b, const atoll_topo_link *like) {
  atoll_topo_link *l = link_at(out, a, b);
  if (!l)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d links", out->links + 1);
  l->latency = like->latency;
  l->bandwidth = like->bandwidth;
  l->declared = 1;
  return ATOLL_OK;
}

static int named(const atoll_topo_host *h, const char *word) {
  return strcmp(h->name, word) == 0 || strcmp(h->kind, word) == 0 || strcmp(h->zone, word) == 0;
}

static atoll_err add_route(atoll_topo_hosts *out, const atoll_topo_route *route) {
  atoll_topo_route *more = realloc(out->route, sizeof *more * (size_t)(out->routes + 1));
  if (!more)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d routes", out->routes + 1);
  out->route = more;
  more[out->routes++] = *route;
  return ATOLL_OK;
}

static atoll_err read_pair(atoll_yaml *map, atoll_topo_hosts *out) {
  char a[64], b[64];
  atoll_topo_link like = {0};
  if (!atoll_yaml_is_map(map))
    return atoll_fail(ATOLL_USAGE, "%s:%d: found a scalar or list, expected {a: ..., b: ..., bandwidth: ...}",
                      atoll_yaml_file(map), atoll_yaml_line(map));
  ATOLL_TRY(atoll_yaml_string(map, "a", 1, a, sizeof a));
  ATOLL_TRY(atoll_yaml_string(map, "b", 1, b, sizeof b));
  atoll_topo_route route = {"", "", 0, 0, 0};
  ATOLL_TRY(atoll_yaml_real(map, "price", 0, 0, RATE_MAX, &route.price));
  ATOLL_TRY(read_rate(map, &like));
  const char *const word[2] = {a, b};
  int64_t ends[2] = {0, 0};
  for (int w = 0; w < 2; w++) {
    for (int i = 0; i < out->count; i++)
      ends[w] += named(&out->host[i], word[w]);
    if (!ends[w])
      return atoll_fail(ATOLL_USAGE, "%s:%d: %s: found '%s', expected the name, kind or zone of a node",
                        atoll_yaml_file(map), atoll_yaml_line(map), w ? "b" : "a", word[w]);
  }
  int few = out->count <= PAIRS_MAX || ends[0] * ends[1] == 1;
  if (!few || route.price > 0) {
    topo_text(route.a, sizeof route.a, a);
    topo_text(route.b, sizeof route.b, b);
    if (!few) {
      route.latency = atoll_samples_median(&like.latency);
      route.bandwidth = atoll_samples_median(&like.bandwidth);
    }
    ATOLL_TRY(add_route(out, &route));
  }
  for (int i = 0; i < out->count && few; i++)
    for (int j = 0; j < out->count; j++)
      if (named(&out->host[i], a) && named(&out->host[j], b) && (i != j || strcmp(out->host[i].name, a) == 0))
        ATOLL_TRY(set_link(out, i, j, &like));
  return ATOLL_OK;
}

/* in_node of `links` for all nodes, then that of each entry of `nodes`, whose hosts begin at first[]. */
static atoll_err read_inside(atoll_yaml *links, atoll_yaml *nodes, const int *first, atoll_topo_hosts *out) {
  atoll_yaml *in = NULL;
  atoll_topo_link like = {0};
  if (links)
    ATOLL_TRY(atoll_yaml_map(links, "in_node", 0, &in));
  if (in) {
    ATOLL_TRY(read_rate(in, &like));
    for (int i = 0; i < out->count; i++)
      ATOLL_TRY(set_link(out, i, i, &like));
  }
  for (size_t k = 0; k < atoll_yaml_count(nodes); k++) {
    in = NULL;
    ATOLL_TRY(atoll_yaml_map(atoll_yaml_at(nodes, k), "in_node", 0, &in));
    if (in)
      ATOLL_TRY(read_rate(in, &like));
    for (int i = first[k]; in && i < first[k + 1]; i++)
      ATOLL_TRY(set_link(out, i, i, &like));
  }
  return ATOLL_OK;
}

static atoll_err read_links(atoll_yaml *root, atoll_yaml *nodes, const int *first, atoll_topo_hosts *out) {
  atoll_yaml *links = NULL, *between = NULL, *pairs = NULL;
  ATOLL_TRY(atoll_yaml_map(root, "links", 0, &links));
  ATOLL_TRY(read_inside(links, nodes, first, out));
  if (!links)
    return ATOLL_OK;
  atoll_topo_link like = {0};
  ATOLL_TRY(atoll_yaml_map(links, "between", 0, &between));
  if (between) {
    ATOLL_TRY(read_rate(between, &like));
    const atoll_topo_route all = {"*", "*", atoll_samples_median(&like.latency), atoll_samples_median(&like.bandwidth),
                                  0};
    if (out->count > PAIRS_MAX)
      ATOLL_TRY(add_route(out, &all));
    for (int i = 0; i < out->count && out->count <= PAIRS_MAX; i++)
      for (int j = i + 1; j < out->count; j++)
        ATOLL_TRY(set_link(out, i, j, &like));
  }
  ATOLL_TRY(atoll_yaml_list(links, "pairs", 0, &pairs));
  for (size_t i = 0; pairs && i < atoll_yaml_count(pairs); i++)
    ATOLL_TRY(read_pair(atoll_yaml_at(pairs, i), out));
  return ATOLL_OK;
}

atoll_err topo_cluster_load(const char *folder, const char *yaml, atoll_topo_hosts *out) {
  atoll_yaml *root = NULL, *nodes = NULL;
  int *first = NULL;
  ATOLL_TRY(atoll_yaml_load(yaml, &root));
  atoll_err err;
  ATOLL_TRY_GOTO(err, destroy_root, atoll_yaml_list(root, "nodes", 1, &nodes));
  first = malloc(sizeof *first * (atoll_yaml_count(nodes) + 1));
  if (!first) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %zu entries", atoll_yaml_count(nodes));
    goto destroy_root;
  }
  for (size_t i = 0; i < atoll_yaml_count(nodes); i++) {
    first[i] = out->count;
    ATOLL_TRY_GOTO(err, destroy_root, read_node(folder, atoll_yaml_at(nodes, i), out));
  }
  first[atoll_yaml_count(nodes)] = out->count;
  if (out->count == 0) {
    err = atoll_fail(ATOLL_USAGE, "%s: the list 'nodes' is empty", yaml);
    goto destroy_root;
  }
  ATOLL_TRY_GOTO(err, destroy_root, read_links(root, nodes, first, out));
  err = atoll_yaml_unknown(root);
destroy_root:
  free(first);
  atoll_yaml_destroy(&root);
  return err;
}

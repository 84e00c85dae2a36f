/* Clusters and models made by hand, for tests that need no machine. */
#ifndef PLAN_TEST_H
#define PLAN_TEST_H

#include <inttypes.h>
#include <math.h>

#include "atoll/plan.h"
#include "unit_check.h"

typedef struct test_node {
  const char *model; /* of its devices */
  int devices;
  int64_t memory; /* bytes per device */
  double gflops, bandwidth;
} test_node;

typedef struct test_cluster {
  atoll_topo topo;
  atoll_islands islands;
} test_cluster;

static inline atoll_samples test_once(double v) {
  atoll_samples s = {1, {v}};
  return s;
}

/* Nodes of one model are one island, in order of first appearance; one link speed inside nodes and one between. */
static inline void test_cluster_make(test_cluster *c, const test_node *node, int nodes, double in_gbs, double out_gbs) {
  memset(c, 0, sizeof *c);
  int devices = 0;
  for (int i = 0; i < nodes; i++)
    devices += node[i].devices;
  atoll_topo *t = &c->topo;
  strcpy(t->backend, "synthetic");
  t->nodes = nodes;
  t->devices = devices;
  t->node = calloc((size_t)nodes, sizeof *t->node);
  t->device = calloc((size_t)devices, sizeof *t->device);
  t->link = calloc((size_t)(nodes * (nodes + 1) / 2), sizeof *t->link);
  atoll_islands *is = &c->islands;
  is->island = calloc((size_t)nodes, sizeof *is->island);
  is->island_of = calloc((size_t)devices, sizeof *is->island_of);
  is->devices = devices;
  int next = 0;
  for (int i = 0; i < nodes; i++) {
    snprintf(t->node[i].name, sizeof t->node[i].name, "n%d", i);
    t->node[i].first_device = next;
    t->node[i].devices = node[i].devices;
    int x = 0;
    while (x < is->count && strcmp(is->island[x].model, node[i].model) != 0)
      x++;
    atoll_island *island = &is->island[x];
    if (x == is->count) {
      is->count++;
      snprintf(island->name, sizeof island->name, "%c", 'a' + x);
      snprintf(island->model, sizeof island->model, "%s", node[i].model);
      snprintf(island->class_key, sizeof island->class_key, "%s/1c/a", node[i].model);
      island->device = calloc((size_t)devices, sizeof *island->device);
      island->memory = node[i].memory;
      island->gemm_f32 = node[i].gflops;
      island->bandwidth = node[i].bandwidth;
      island->class_id = x;
      island->key = (atoll_digest){(uint64_t)x + 1, 7};
    }
    island->nodes++;
    for (int k = 0; k < node[i].devices; k++, next++) {
      atoll_topo_device *d = &t->device[next];
      d->node = i;
      d->kind = ATOLL_TOPO_CPU;
      snprintf(d->model, sizeof d->model, "%s", node[i].model);
      d->ncores = d->nthreads = 1;
      d->memory = node[i].memory;
      d->rank = -1;
      d->gemm_f32 = test_once(node[i].gflops);
      d->bandwidth = test_once(node[i].bandwidth);
      island->device[island->devices++] = next;
      is->island_of[next] = x;
    }
    for (int k = 0; k <= i; k++) {
      atoll_topo_link *l = &t->link[t->links++];
      l->a = k;
      l->b = i;
      l->latency = test_once(k == i ? 2e-6 : 2e-5);
      l->bandwidth = test_once(k == i ? in_gbs : out_gbs);
      l->declared = 1;
    }
  }
}

static inline void test_cluster_free(test_cluster *c) {
  for (int x = 0; x < c->islands.count; x++)
    free(c->islands.island[x].device);
  free(c->islands.island);
  free(c->islands.island_of);
  free(c->topo.node);
  free(c->topo.device);
  free(c->topo.link);
}

static inline atoll_model *test_model_in(atoll_dtype dtype, int64_t layers, int64_t width) {
  atoll_model_params p;
  atoll_model *m = NULL;
  atoll_model_params_init(&p);
  p.layers = layers;
  p.width = width;
  p.heads = 4;
  p.context = 128;
  p.vocab = 256;
  p.dtype = dtype;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  return m;
}

static inline atoll_model *test_model(int64_t layers, int64_t width) { return test_model_in(ATOLL_F32, layers, width); }

static inline atoll_plan_problem test_problem(const atoll_model *m, const test_cluster *c, int64_t batch) {
  return (atoll_plan_problem){.model = m, .topo = &c->topo, .islands = &c->islands, .seq = 64, .global_batch = batch};
}

/* Whether a seed's case is to be run: ATOLL_TEST_SEED names one alone. */
static inline int test_wants(uint64_t seed) {
  const char *only = getenv("ATOLL_TEST_SEED");
  return !only || strtoull(only, NULL, 10) == seed;
}

#endif

/* Seconds and bytes of parts of a model on parts of a cluster. The terms add up: a stage is the sum of its layers, a
 * step is put together by simulate/. A source (profile or rates) is remembered for every figure. */
#ifndef ATOLL_PLAN_COST_H
#define ATOLL_PLAN_COST_H

#include "atoll/plan.h"

/* B/s, each way, of host links that nobody declares: what PCIe 3.0 x16 sustains. */
#define COST_HOST_RATE 12e9

typedef struct cost_model cost_model;

/* problem is borrowed for the life of the model. */
atoll_err cost_create(const atoll_plan_problem *problem, cost_model **out);
void cost_destroy(cost_model **cost);

/* Layers that cost the same have one class; ranges with equal sequences of classes have one representative. */
int cost_layer_class(const cost_model *cost, int layer);
int cost_range_first(const cost_model *cost, int first, int last);

/* One micro-batch of b samples through layers [first, last) of one policy on one of `tensor` devices of a node of an
 * island (Shoeybi et al., Megatron-LM, 2019): products and what is between them are divided, and a block sums its
 * output over the devices twice forward and twice backward, as layer does. Norms, residuals, embedding and head are
 * whole on every device. With a pipelined MLP a block sums what attention gives alone; its MLP takes cta_over_ideal of
 * an even share of the products, and its weights are packed every step. What was measured is of one device; divided, it
 * is at best interpolated. */
typedef struct cost_slice {
  double forward, backward; /* s */
  double update;            /* s per step: gradient norm, clip, optimizer */
  atoll_cost_source source; /* the least certain of its layers */
} cost_slice;
atoll_err cost_of_slice(cost_model *cost, int island, int tensor, atoll_mlp mlp, int first, int last,
                        atoll_policy policy, int64_t b, cost_slice *out);

/* On a tensor rank's even share of a block, without sums: what its MLP takes longer, pipelined, and packing. What a
 * machine's chooser remembers of it (atoll_profile_find_mlp()) goes before cta_over_ideal. Nothing for plain ones. */
atoll_err cost_pipeline_mlp(const cost_model *cost, int island, int layer, int tensor, atoll_mlp mlp, int64_t b,
                            cost_slice *share);

/* A stage of one policy, on one of its tensor ranks. */
typedef struct cost_stage {
  int first, last;
  atoll_policy policy;
  int64_t b; /* samples of a micro-batch */
  int slots, partials, tensor;
  atoll_mlp mlp;
} cost_stage;

/* Exact bytes by category: atoll_stage_bytes of the fullest tensor rank, and what the problem adds to every rank. */
atoll_err cost_stage_bytes(cost_model *cost, const cost_stage *stage, int64_t bytes[ATOLL_MEM_CATEGORIES]);
int64_t cost_sum_bytes(const int64_t bytes[ATOLL_MEM_CATEGORIES]);

/* Seconds for `bytes` from a device of node a to one of node b. */
double cost_send(const cost_model *cost, int a, int b, int64_t bytes);
/* Seconds to sum `bytes` of gradients over n replicas on these nodes, that hold `parts` tree nodes in all and at most
 * `most_parts` each; `bandwidth` [GB/s] is the slowest member's memory. */
double cost_reduce(const cost_model *cost, const int *node, int n, int64_t bytes, int parts, int most_parts,
                   double bandwidth);
/* The same in two steps, for many sums over the same devices. */
void cost_slowest(const cost_model *cost, const int *node, int n, double *latency, double *bytes_per_second);
double cost_reduce_over(int n, int64_t bytes, int parts, int most_parts, double bandwidth, double latency,
                        double bytes_per_second);
/* A bound for any n devices; one_node: whether some node has that many. */
double cost_reduce_least(const cost_model *cost, int n, int one_node, int64_t bytes, int parts, int most_parts,
                         double bandwidth);
/* Best rate of any link, B/s. */
double cost_most_rate(const cost_model *cost, int one_node);
/* Seconds to swap the two gradients of a tied tensor of `bytes` between nodes. */
double cost_tied(const cost_model *cost, int a, int b, int64_t bytes, double bandwidth);
/* Seconds to sum `bytes` over n devices of one node of an island, every one of them getting the sum. */
double cost_sum_in_node(const cost_model *cost, int island, int n, int64_t bytes);
/* Seconds that tensor ranks of degree `to` on a node need to hand on what came from a stage of another degree, whose
 * first rank sends to their first. */
double cost_hand_on(const cost_model *cost, int node, int from, int to, int64_t bytes);
/* Seconds of the reduction of losses and norms over all ranks that ends a step. */
double cost_finish(const cost_model *cost, const int *node, int n);
/* Seconds per summation leaf for clearing its gradient buffer and adding it to its sibling. */
double cost_leaf(const cost_model *cost, int island, int64_t gradient_bytes);
/* Relative spread of the measured times, of the island where it is largest; 0 when nothing was measured often enough.
 */
double cost_spread(const cost_model *cost);
/* Memory bandwidth of a device of an island, GB/s. */
double cost_bandwidth(const cost_model *cost, int island);

/* Bytes of the gradients of layers [first, last) on one of `tensor` ranks. */
int64_t cost_gradient_share(const cost_model *cost, int first, int last, int tensor);

/* Pure properties of the model. */
atoll_err cost_boundary_bytes(const atoll_model *model, int layer, int64_t b, int64_t seq, int64_t *bytes);
atoll_err cost_gradient_bytes(const atoll_model *model, int first, int last, int64_t *bytes);

#endif

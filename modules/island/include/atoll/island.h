/** Islands: groups of devices that are alike and near, so that an ordinary parallelizer may treat each as homogeneous
 *  (Tangram, 2026, insight 1).
 *
 *  Devices are first grouped by hardware identity and memory (a class), then classes split by repeated measurements
 *  only when the gap of medians exceeds their own spreads, then by nearness (links). Deterministic; every rank computes
 *  it from the same topology. */
#ifndef ATOLL_ISLAND_H
#define ATOLL_ISLAND_H

#include "atoll/topo.h"

ATOLL_BEGIN_C

typedef struct atoll_island {
  char name[48]; /* "a", "b", ...: by decreasing total rate; stable under measurement noise */
  char model[96];
  int devices;
  int *device;  /* topology device indices, ascending by (node, position) */
  int nodes;    /* nodes touched */
  int class_id; /* hardware class; islands of one class may differ in place or measured speed */
  int speed_id; /* among islands of like hardware: 0 = fastest; differs only where measurements or declared rates split
                 */
  char class_key[224];               /* see atoll_island_class() */
  int64_t memory;                    /* bytes per device: the smallest member's */
  double gemm_f32, gemm_bf16;        /* GFLOP/s per device, median of members' medians; 0 unknown */
  double bandwidth;                  /* GB/s per device */
  double latency_in, bandwidth_in;   /* worst link between members of one node: s, GB/s */
  double latency_out, bandwidth_out; /* worst link between nodes of the island */
  atoll_digest key;                  /* hardware identity of the island */
} atoll_island;

typedef struct atoll_islands {
  int count;
  atoll_island *island;
  int devices;
  int *island_of; /* per topology device; -1 when it takes no part */
  char **why;     /* explanation lines: why devices are together or apart */
  int why_count;
} atoll_islands;

/** Options `island.*`. */
typedef struct atoll_island_params {
  double split_gap;     /* relative gap of medians below which nothing splits, whatever the spread; 0.10 */
  double spread_factor; /* the gap must exceed this many combined spreads; 4 */
  double near_ratio;    /* a link slower than this share of the island's best separates; 0.1 */
} atoll_island_params;
extern ATOLL_API const atoll_opt_table atoll_island_options;
ATOLL_API void atoll_island_params_init(atoll_island_params *p);

/** Local and pure. */
ATOLL_API atoll_err atoll_islands_group(const atoll_topo *topo, const atoll_island_params *params, atoll_islands **out);
/** Collective: group, and compare digests over comm (MISMATCH names ranks). */
ATOLL_API atoll_err atoll_islands_agree(atoll_comm *comm, const atoll_topo *topo, const atoll_island_params *params,
                                        atoll_islands **out);
ATOLL_API void atoll_islands_destroy(atoll_islands **islands);
/** Membership and classes only; measurements enter quantised to 5 %. */
ATOLL_API atoll_digest atoll_islands_digest(const atoll_islands *islands);
/** Membership and hardware identity only: what a plan is keyed by. */
ATOLL_API atoll_digest atoll_islands_identity(const atoll_islands *islands);
/** Text key of an island's device class for profiles: hardware model, cores and speed class, no names of nodes: "AMD
 *  EPYC 9654/16c/a". */
ATOLL_API void atoll_island_class(const atoll_islands *islands, int island, char *buf, size_t n);
ATOLL_API void atoll_islands_print(const atoll_islands *islands, const atoll_topo *topo, FILE *f);
ATOLL_API void atoll_islands_explain(const atoll_islands *islands, const atoll_topo *topo, FILE *f);
ATOLL_API atoll_err atoll_islands_to_store(const atoll_islands *islands, atoll_store *store, const char *group);
ATOLL_API atoll_err atoll_islands_to_yaml(const atoll_islands *islands, atoll_yaml_out *out);

ATOLL_END_C
#endif

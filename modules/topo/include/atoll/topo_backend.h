/** For people who add a source of topology, e.g. a site's inventory service or a device runtime that knows its GPUs.
 *
 *  A backend answers with hosts: what one machine is and what of it may be used. Dividing hosts into devices, matching
 *  them to ranks and sharing them is done for it, so a backend needs no MPI. Register before atoll_topo_discover(); the
 *  highest willing priority wins unless the user names a backend. */
#ifndef ATOLL_TOPO_BACKEND_H
#define ATOLL_TOPO_BACKEND_H

#include "atoll/topo.h"

ATOLL_BEGIN_C

#define ATOLL_TOPO_SMT 8 /* hardware threads per core, at most */

typedef struct atoll_topo_core {
  int package; /* position among the node's packages */
  int numa;    /* OS index of the nearest NUMA node with memory, or -1 */
  int kind;    /* position among the node's kinds of cores, by rising efficiency; 0 when there is one, -1 mixed */
  int threads;
  int pu[ATOLL_TOPO_SMT]; /* OS indices of the hardware threads */
  unsigned allowed;       /* bit i: pu[i] may be used by this job */
} atoll_topo_core;

typedef struct atoll_topo_gpu {
  char model[96], pci[16], isa[48];
  char near_cores[512]; /* as atoll_topo_device.cores */
  int numa;
  int64_t memory;                        /* bytes; 0 unknown */
  double gemm_f32, gemm_bf16, bandwidth; /* declared, GFLOP/s and GB/s; 0 = not declared */
} atoll_topo_gpu;

/** One machine. Pointers are owned by the hosts that hold it. */
typedef struct atoll_topo_host {
  char name[64], kind[64], zone[64];
  double price;            /* declared, per hour and device; 0 = not declared */
  char model[96], isa[48]; /* of its CPUs */
  int sockets, numa_nodes, core_kinds, threads;
  int64_t memory;                        /* machine bytes; 0 unknown */
  int64_t cgroup, slurm, rlimit;         /* bytes; 0 = no limit. rlimit is per process, the others per node */
  int64_t declared_memory;               /* bytes per node; 0 = not declared */
  double gemm_f32, gemm_bf16, bandwidth; /* declared, per CPU device; 0 = not declared */
  int declared_devices;                  /* CPU devices when nobody launches ranks; 0 = one per package */
  int read_here;                         /* 1: the running machine, so its cores may be bound to */
  int unbound;                           /* 1: not even so: how many cores are allowed is known, but not which */
  int ncores, ngpus, nnics;
  atoll_topo_core *core; /* in hwloc's logical order: neighbours are near */
  atoll_topo_gpu *gpu;   /* ascending by PCI address */
  atoll_topo_nic nic[8];
  char note[256]; /* what the user should know about this host */
} atoll_topo_host;

typedef struct atoll_topo_hosts {
  int count, links, routes;
  atoll_topo_host *host;
  atoll_topo_link *link; /* declared links; a and b index host */
  atoll_topo_route *route;
  char note[256];
} atoll_topo_hosts;

/** What the ranks of the node in question may run on: OS indices in list form; NULL = the calling process's own
 *  affinity. */
typedef struct atoll_topo_place {
  const char *affinity;
} atoll_topo_place;

typedef struct atoll_topo_backend {
  const char *name; /* "live", "xml", "synthetic" */
  int priority;     /* highest willing backend wins */
  int per_node; /* 1: load describes the calling machine and is called by one rank of each node; 0: it describes all,
                   called by one rank */
  /** OK = willing; otherwise *why_not says why. Local, cheap, silent. */
  atoll_err (*probe)(const atoll_topo_params *params, const char **why_not);
  /** Fill *out (zeroed; hosts, cores, gpus, links and routes from malloc). What was filled is released on failure. */
  atoll_err (*load)(const atoll_topo_params *params, const atoll_topo_place *place, atoll_topo_hosts *out);
  /** Optional: correct or add GPUs by what a device runtime sees. NULL adds no devices. */
  atoll_err (*devices)(const atoll_topo_params *params, atoll_topo_host *host);
} atoll_topo_backend;

/** Local; borrowed for ever. USAGE for a name that is taken. */
ATOLL_API atoll_err atoll_topo_backend_register(const atoll_topo_backend *backend);
/** The i-th backend with its answer for params (NULL = willing); 0 past the end. */
ATOLL_API int atoll_topo_backend_entry(const atoll_topo_params *params, int i, const char **name, const char **why_not);

ATOLL_END_C
#endif

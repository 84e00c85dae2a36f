/** What is here: nodes, cores, NUMA nodes, GPUs, NICs, the devices that ranks compute on, and how they are linked.
 *
 *  A topology is a value: discovered or loaded once, the same on every rank, printable, exportable, comparable. Devices
 *  are keyed by hardware identity (model, PCI address, cores, memory, instruction set), never by an index that an
 *  environment may permute.
 *
 *  Backends: `live` (hwloc; only what cgroup, Slurm and binding allow), `xml` (a file, or a folder of node files with
 *  an optional cluster.yaml), `synthetic` (hwloc synthetic strings or counts). With a communicator one rank per node
 *  loads, the others receive. */
#ifndef ATOLL_TOPO_H
#define ATOLL_TOPO_H

#include <mpi.h>
#include <stdio.h>

#include "atoll/comm.h"
#include "atoll/device.h"
#include "atoll/digest.h"
#include "atoll/opt.h"
#include "atoll/store.h"
#include "atoll/yaml.h"

ATOLL_BEGIN_C

#define ATOLL_TOPO_SAMPLES 9

typedef enum atoll_topo_kind { ATOLL_TOPO_CPU, ATOLL_TOPO_GPU } atoll_topo_kind;

/** Repeated measurements of one quantity; n = 0: not measured. Sorted ascending. */
typedef struct atoll_samples {
  int n;
  double v[ATOLL_TOPO_SAMPLES];
} atoll_samples;

/** Median, and half the inter-quartile range over the median (relative spread); 0 when n = 0. */
ATOLL_API double atoll_samples_median(const atoll_samples *s);
ATOLL_API double atoll_samples_spread(const atoll_samples *s);

typedef struct atoll_topo_device {
  int node; /* index into nodes */
  atoll_topo_kind kind;
  char model[96];  /* "AMD EPYC 9654", "NVIDIA A100-SXM4-40GB", as the hardware says */
  char pci[16];    /* GPU: "0000:41:00.0"; "" for cores */
  char cores[512]; /* hardware threads by OS index, as taskset -c takes them: "0-15"; a mask "0x5555" where the list is
                      longer. CPU: those of the device; GPU: the nearest ones */
  int ncores, nthreads; /* CPU: physical cores and hardware threads of this device */
  int numa;             /* nearest NUMA node (OS index) or -1 */
  char isa[48];         /* "x86-64 avx512_bf16", "sm_90" */
  int64_t memory; /* bytes this device may use: the smallest of machine, cgroup, Slurm, rlimit; divided over the node's
                     CPU devices */
  char memory_limit[48];             /* which of them binds: "machine" "cgroup" "slurm" "rlimit" "device" "declared" */
  int rank;                          /* rank that computes on it, or -1 */
  atoll_samples gemm_f32, gemm_bf16; /* GFLOP/s */
  atoll_samples bandwidth;           /* GB/s, read + write */
  int declared;                      /* rates come from a cluster file, not a measurement */
} atoll_topo_device;

typedef struct atoll_topo_nic {
  char name[32], pci[16];
  int numa;
  double speed; /* Gbit/s, 0 = unknown */
} atoll_topo_nic;

typedef struct atoll_topo_node {
  char name[64];                           /* host name, or file name without suffix */
  char kind[64];                           /* declared kind or "" */
  char zone[64];                           /* declared place, for links and transfer prices, or "" */
  double price;                            /* declared, per hour and device; 0 = unknown */
  int sockets, numa_nodes, cores, threads; /* of the machine */
  int allowed_threads;                     /* hardware threads this job may use */
  int64_t memory;                          /* machine bytes */
  atoll_digest identity;                   /* of hardware alone: no names, no measurements; equal for equal nodes */
  int first_device, devices;               /* slice of the device array */
  int bindable; /* 0: the cores are declared, or shared with another node of the same kernel; atoll_topo_bind leaves
                   them alone */
  int nics;
  atoll_topo_nic nic[8];
} atoll_topo_node;

/** Link between two nodes' devices (or inside a node: a == b). Latency in s, bandwidth in GB/s. */
typedef struct atoll_topo_link {
  int a, b; /* node indices, a <= b */
  atoll_samples latency, bandwidth;
  int declared;
} atoll_topo_link;

/** Declared between groups of nodes, so that large clusters need no link per pair. Each end is the zone, kind or name
 * of nodes, or "*" for all; two different nodes are on the route when one is at either end. A pair's own link overrides
 * it; of several routes the last counts. */
typedef struct atoll_topo_route {
  char a[64], b[64];
  double latency, bandwidth; /* s, GB/s; bandwidth 0: only the price is declared */
  double price;              /* per GB (1e9 bytes) carried */
} atoll_topo_route;

typedef struct atoll_topo {
  char backend[16]; /* "live", "xml", "synthetic" */
  char source[256]; /* path or string */
  int nodes, devices, links;
  atoll_topo_node *node;
  atoll_topo_device *device;
  atoll_topo_link *link; /* inside each node, and between nodes: pairs measured or declared; absent pairs take the
                            slowest of their kind */
  int routes;
  atoll_topo_route *route;
  char note[512]; /* differences between what hwloc sees, what is allowed, and what the device runtime sees */
} atoll_topo;

/** Options `topo.*`. */
typedef struct atoll_topo_params {
  int backend; /* enum auto|live|xml|synthetic; auto: xml when path is set, synthetic when text is set, else live */
  char path[ATOLL_OPT_STRING_MAX];      /* xml: file or folder */
  char synthetic[ATOLL_OPT_STRING_MAX]; /* "4x(pack:2 core:8), 2x(core:4)" */
  int device;                           /* enum auto|cpu|gpu */
  int64_t ranks_per_node;               /* without a launcher: CPU devices per node; 0 = one per package */
  int probe;                            /* bool: measure rates and links */
  double probe_seconds;                 /* limit of all probes */
} atoll_topo_params;
extern ATOLL_API const atoll_opt_table atoll_topo_options;
ATOLL_API void atoll_topo_params_init(atoll_topo_params *p);

/** Collective on comm; comm NULL: a single process describes the source (atoll-plan, atoll-topo). Every rank returns
 *  the same topology, with device[i].rank set when comm has ranks. A file that cannot be read as XML is an error, never
 *  the real machine instead. With xml and a launcher, node files are matched to hosts by name (SLURMD_NODENAME first,
 *  then host name), else by order with a note. */
ATOLL_API atoll_err atoll_topo_discover(atoll_comm *comm, const atoll_topo_params *params, atoll_topo **out);
/** Collective: measure this rank's device and the links, in O(nodes) rounds; fills samples of topo on every rank.
 *  `device` may be NULL (links only). Never allocates more than 1/16 of a device's memory. */
ATOLL_API atoll_err atoll_topo_probe(atoll_comm *comm, const atoll_topo_params *params, atoll_device *device,
                                     atoll_topo *topo);
ATOLL_API void atoll_topo_destroy(atoll_topo **topo);
ATOLL_API atoll_err atoll_topo_copy(const atoll_topo *topo, atoll_topo **out);

/** Index of the device of `rank`, or -1. */
ATOLL_API int atoll_topo_device_of(const atoll_topo *topo, int rank);
/** Link of two nodes (any order); the slowest of its kind when the pair was not measured; NULL when nothing is known.
 */
ATOLL_API const atoll_topo_link *atoll_topo_link_of(const atoll_topo *topo, int a, int b);
/** What is known between two nodes, or inside one (a == b): the pair's link, else the last route it is on, else the
 * slowest link of its kind. s, GB/s and price per GB; 0 = unknown or free. Any of them may be NULL. */
ATOLL_API void atoll_topo_reach(const atoll_topo *topo, int a, int b, double *latency, double *bandwidth,
                                double *price);
/** Whether a node is at the end of a route that is named so. */
ATOLL_API int atoll_topo_at(const atoll_topo_node *node, const char *end);
/** Bind the calling process (and OpenMP's threads, one a core) to the device's cores, narrowed to what is allowed.
 *  Failure is a warning in the log and *bound = 0, never an error. threads = how many to use. */
ATOLL_API void atoll_topo_bind(const atoll_topo *topo, int device, int *threads, int *bound);

/** Order of names with numbers by value, as strcmp: n2 comes before n10. */
ATOLL_API int atoll_topo_compare_names(const char *a, const char *b);
/** What is installed where `bytes` are reported: a kernel reports somewhat less, and not the same on equal machines.
 *  Rounded up to sixteenths of the next power of two, which keeps limits that were chosen by hand exact. */
ATOLL_API int64_t atoll_topo_installed_memory(int64_t bytes);

/** Hardware identity (no names, ranks, measurements) and of everything. */
ATOLL_API atoll_digest atoll_topo_identity(const atoll_topo *topo);
ATOLL_API atoll_digest atoll_topo_digest(const atoll_topo *topo);

ATOLL_API void atoll_topo_print(const atoll_topo *topo, FILE *f);
ATOLL_API atoll_err atoll_topo_to_yaml(const atoll_topo *topo, atoll_yaml_out *out);
ATOLL_API atoll_err atoll_topo_from_yaml(atoll_yaml *root, atoll_topo **out);
ATOLL_API atoll_err atoll_topo_to_store(const atoll_topo *topo, atoll_store *store, const char *group);
ATOLL_API atoll_err atoll_topo_from_store(atoll_store *store, const char *group, atoll_topo **out);
/** An SVG one can look at: nodes, packages, NUMA nodes, devices with rates, links. *svg owned: free(). */
ATOLL_API atoll_err atoll_topo_draw(const atoll_topo *topo, char **svg, size_t *bytes);
/** Lines of difference to f; returns how many (0 = same). Measurements differ only beyond their spreads. */
ATOLL_API int atoll_topo_diff(const atoll_topo *a, const atoll_topo *b, FILE *f);

ATOLL_END_C
#endif

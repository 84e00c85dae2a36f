/* Private to modules/topo. Discovery in four steps, each its own file:
 *   read     a backend fills hosts (live.c xml.c synthetic.c, over read.c)
 *   carry    hosts travel as bytes (host.c)
 *   place    which rank sits on which host (place.c)
 *   divide   hosts + placement -> nodes and devices (divide.c); pure, so every rank gets the same */
#ifndef TOPO_IMPL_H
#define TOPO_IMPL_H

#include <hwloc.h>

#include "atoll/topo.h"
#include "atoll/topo_backend.h"

extern const atoll_topo_backend topo_backend_live, topo_backend_xml, topo_backend_synthetic;

/* host.c */
void topo_text(char *to, size_t n, const char *from); /* bounded copy, always terminated */
void topo_note(char *note, size_t n, const char *fmt, ...)
    ATOLL_PRINTF(3, 4); /* appended with "; " while it fits; repeats are dropped */
void topo_hosts_free(atoll_topo_hosts *hosts);
atoll_err topo_hosts_add(atoll_topo_hosts *hosts,
                         atoll_topo_host **host); /* one more, zeroed; pointer valid until the next add */
atoll_err topo_host_copy(const atoll_topo_host *from, atoll_topo_host *to);
atoll_err topo_hosts_pack(const atoll_topo_hosts *hosts, char **data, int64_t *bytes);
atoll_err topo_hosts_unpack(const char *data, int64_t bytes, atoll_topo_hosts *hosts); /* appends */

/* read.c */
atoll_err topo_read_hwloc(hwloc_topology_t t, const char *name, atoll_topo_host *host);
/* OS indices in list form, or as a mask where the list does not fit; parse accepts both. */
void topo_cpuset_print(hwloc_const_bitmap_t set, char *buf, size_t n);
int topo_cpuset_parse(const char *text, hwloc_bitmap_t set); /* 0 or -1 */
void topo_isa_here(char *isa, size_t n);

/* limits.c: every function takes its sources, so that tests can feed sample folders. 0 = no limit. */
int64_t topo_limit_cgroup(const char *root); /* root "" = the running system; files below root/proc and root/sys */
int64_t topo_limit_slurm(const char *(*env)(const char *), char *note, size_t n);
int64_t topo_slurm_cpus(const char *(*env)(const char *)); /* CPUs of the job on this node; 0 unknown */
int64_t topo_limit_rlimit(void);

/* xmlcheck.c */
atoll_err topo_xml_check(const char *path, const char *text, size_t bytes);
/* xml.c */
atoll_err topo_xml_load(const char *path, const char *name, atoll_topo_host *host);
/* cluster.c */
atoll_err topo_cluster_load(const char *folder, const char *yaml, atoll_topo_hosts *out);
/* synthetic.c: one node's text, "pack:2 core:8 memory=64GiB" */
atoll_err topo_synthetic_node(const char *text, const char *where, const char *name, atoll_topo_host *host);

/* place.c */
typedef struct topo_places {
  int ranks;
  char (*name)[64];  /* per rank: SLURMD_NODENAME, else host name */
  char (*alias)[64]; /* per rank: host name */
  char (*boot)[40];  /* per rank: which kernel it runs on */
  char (*affinity)[512];
  int *gpu_ready; /* per rank: a GPU runtime answers here */
  int64_t *rlimit;
  int groups;
  int *group;  /* per rank; groups are numbered by first rank */
  int *leader; /* per group: lowest rank */
} topo_places;
void topo_places_free(topo_places *p);
atoll_err topo_places_gather(atoll_comm *comm, topo_places *p);
void topo_places_group(topo_places *p);
/* Assign each rank a host: host_of[rank]. Hosts that nobody uses are dropped from *hosts. */
atoll_err topo_places_match(const topo_places *p, atoll_topo_hosts *hosts, int *host_of);
int topo_gpu_ready(const char **why_not);

/* divide.c. p and host_of NULL: nobody launched ranks. */
atoll_err topo_divide(const atoll_topo_params *params, const char *backend, const atoll_topo_hosts *hosts,
                      const topo_places *p, const int *host_of, atoll_topo **out);

/* identity.c */
atoll_err topo_node_identity(const atoll_topo *topo, int node, const atoll_topo_host *host, atoll_digest *out);

/* topo.c */
void topo_samples_sort(atoll_samples *s);
void topo_samples_add(atoll_samples *s, double v); /* ignored when full or not finite and positive */
void topo_links_sort(atoll_topo *t);               /* by a, then b: the order must not tell where links came from */
int topo_nodes_equal(const atoll_topo *t, int a, int b); /* same hardware, and no rank or rate tells them apart */
const char *topo_kind_name(atoll_topo_kind k);

#endif

/* Binding a process to its device's cores.
 *
 * The process is narrowed to the device's hardware threads within what it is allowed now; OpenMP's workers get one core
 * each. The calling thread keeps all of the device's cores: threads made later (MPI, watchdogs, larger OpenMP teams)
 * inherit its set, and must not all land on one core. A binding that fails, or that would squeeze two ranks onto one
 * core, is left out: it never ends a job. */
#include "topo_impl.h"

#include <dirent.h>
#include <errno.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/log.h"

#define CPUS_MAX 8192

static int set_thread(pid_t tid, hwloc_const_bitmap_t set) {
  size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
  cpu_set_t *cpus = CPU_ALLOC(CPUS_MAX);
  if (!cpus)
    return -1;
  CPU_ZERO_S(bytes, cpus);
  int i;
  hwloc_bitmap_foreach_begin(i, set) {
    if (i < CPUS_MAX)
      CPU_SET_S((unsigned)i, bytes, cpus);
  }
  hwloc_bitmap_foreach_end();
  int rc = sched_setaffinity(tid, bytes, cpus);
  CPU_FREE(cpus);
  return rc;
}

static int get_allowed(hwloc_bitmap_t set) {
  size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
  cpu_set_t *cpus = CPU_ALLOC(CPUS_MAX);
  int rc = cpus ? sched_getaffinity(0, bytes, cpus) : -1;
  for (unsigned i = 0; rc == 0 && i < CPUS_MAX; i++)
    if (CPU_ISSET_S(i, bytes, cpus))
      hwloc_bitmap_set(set, i);
  if (cpus)
    CPU_FREE(cpus);
  return rc;
}

static int set_process(hwloc_const_bitmap_t set) {
  DIR *d = opendir("/proc/self/task");
  if (!d)
    return set_thread(0, set);
  int rc = 0;
  for (struct dirent *e; (e = readdir(d)) != NULL;)
    if (e->d_name[0] != '.' && set_thread((pid_t)atoi(e->d_name), set) != 0 && errno != ESRCH)
      rc = -1;
  closedir(d);
  return rc;
}

/* One bitmap per core of `set`; how many, at most cap. */
static int by_core(hwloc_const_bitmap_t set, hwloc_bitmap_t *core, int cap) {
  hwloc_bitmap_t left = hwloc_bitmap_dup(set);
  int n = 0, pu;
  while (n < cap && (pu = hwloc_bitmap_first(left)) >= 0) {
    char path[96], text[256];
    core[n] = hwloc_bitmap_alloc();
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", pu);
    FILE *f = fopen(path, "r");
    if (f && fgets(text, sizeof text, f)) {
      text[strcspn(text, "\n")] = 0;
      if (topo_cpuset_parse(text, core[n]) == 0)
        hwloc_bitmap_and(core[n], core[n], set);
    }
    if (f)
      fclose(f);
    hwloc_bitmap_set(core[n], (unsigned)pu);
    hwloc_bitmap_andnot(left, left, core[n]);
    n++;
  }
  hwloc_bitmap_free(left);
  return n;
}

/* Another rank of the node computes on some of the same cores. */
static int shared(const atoll_topo *topo, int device, hwloc_const_bitmap_t set) {
  const atoll_topo_node *n = &topo->node[topo->device[device].node];
  hwloc_bitmap_t other = hwloc_bitmap_alloc();
  int yes = 0;
  for (int i = n->first_device; i < n->first_device + n->devices && !yes; i++)
    if (i != device && topo->device[i].rank >= 0 && topo->device[i].kind == ATOLL_TOPO_CPU &&
        topo_cpuset_parse(topo->device[i].cores, other) == 0)
      yes = hwloc_bitmap_intersects(other, set);
  hwloc_bitmap_free(other);
  return yes;
}

void atoll_topo_bind(const atoll_topo *topo, int device, int *threads, int *bound) {
  *bound = 0;
  if (*threads < 1)
    *threads = 1;
  if (device < 0 || device >= topo->devices)
    return;
  const atoll_topo_device *d = &topo->device[device];
  const atoll_topo_node *node = &topo->node[d->node];
  hwloc_bitmap_t want = hwloc_bitmap_alloc(), may = hwloc_bitmap_alloc();
  hwloc_bitmap_t core[1024];
  int cores = 0;
  if (d->kind == ATOLL_TOPO_CPU && d->ncores > 0)
    *threads = d->ncores;
  if (!node->bindable) {
    atoll_debug("not bound: the cores of node %s are declared, or shared with another node of this kernel", node->name);
    goto done;
  }
  if (topo_cpuset_parse(d->cores, want) != 0 || hwloc_bitmap_iszero(want) || get_allowed(may) != 0) {
    atoll_warn("not bound: '%s' is no list of hardware threads", d->cores);
    goto done;
  }
  int asked = hwloc_bitmap_weight(want);
  hwloc_bitmap_and(want, want, may);
  if (hwloc_bitmap_iszero(want)) {
    atoll_warn("not bound: none of the hardware threads %s of the device is allowed for this process", d->cores);
    goto done;
  }
  if (d->kind == ATOLL_TOPO_CPU && shared(topo, device, want)) {
    atoll_debug("not bound: ranks share cores on node %s", node->name);
    goto done;
  }
  cores = by_core(want, core, (int)(sizeof core / sizeof core[0]));
  if (d->kind == ATOLL_TOPO_CPU || *threads > cores)
    *threads = cores;
  if (hwloc_bitmap_weight(want) < asked)
    atoll_warn("%d of the device's %d hardware threads %s are allowed for this process; using %d threads",
               hwloc_bitmap_weight(want), asked, d->cores, *threads);
  if (getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY")) {
    atoll_debug("not bound: OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY decides");
    goto done;
  }
  if (set_process(want) != 0) {
    atoll_warn("not bound to %s: %s", d->cores, strerror(errno));
    goto done;
  }
  *bound = 1;
  if (d->kind == ATOLL_TOPO_CPU && *threads > 1) {
#pragma omp parallel num_threads(*threads)
    {
      int k = omp_get_thread_num();
      if (k > 0 && k < cores)
        (void)set_thread(0, core[k]);
    }
  }
done:
  for (int i = 0; i < cores; i++)
    hwloc_bitmap_free(core[i]);
  hwloc_bitmap_free(want);
  hwloc_bitmap_free(may);
}

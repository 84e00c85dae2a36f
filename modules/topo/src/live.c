/* The machine this process runs on, and what of it the job may use. */
#include "topo_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *env_of(const char *name) { return getenv(name); }

static atoll_err live_probe(const atoll_topo_params *params, const char **why_not) {
  (void)params;
  *why_not = NULL;
  return ATOLL_OK;
}

/* Mark as forbidden what none of the node's ranks is bound to. */
static void narrow(atoll_topo_host *host, hwloc_const_bitmap_t affinity) {
  for (int i = 0; i < host->ncores; i++) {
    atoll_topo_core *c = &host->core[i];
    for (int j = 0; j < c->threads; j++)
      if (!hwloc_bitmap_isset(affinity, (unsigned)c->pu[j]))
        c->allowed &= ~(1u << j);
  }
}

/* Slurm without cgroups or affinity counts CPUs and binds nobody: the job may use that many, but which ones others use
 * is not known. A Slurm CPU is a core or a hardware thread, as the site configured; taken as a core it never leaves
 * granted cores idle. */
static void count_slurm_cpus(atoll_topo_host *host) {
  int64_t cpus = getenv("SLURMD_NODENAME") ? topo_slurm_cpus(env_of) : 0;
  int usable = 0, forbidden = 0;
  for (int i = 0; i < host->ncores; i++) {
    if (!host->core[i].allowed || !cpus || usable++ < cpus)
      continue;
    host->core[i].allowed = 0;
    forbidden++;
  }
  if (forbidden) {
    host->unbound = 1;
    topo_note(host->note, sizeof host->note,
              "%s: Slurm grants %lld of %d cores and binds to none; ranks are left unbound", host->name,
              (long long)cpus, usable);
  }
}

static int64_t meminfo_total(void) {
  FILE *f = fopen("/proc/meminfo", "r");
  long long kib = 0;
  if (f) {
    if (fscanf(f, "MemTotal: %lld", &kib) != 1)
      kib = 0;
    fclose(f);
  }
  return (int64_t)kib * 1024;
}

static void notes(atoll_topo_host *host) {
  int allowed = 0;
  for (int i = 0; i < host->ncores; i++)
    allowed += __builtin_popcount(host->core[i].allowed);
  if (allowed < host->threads)
    topo_note(host->note, sizeof host->note, "%s: %d of %d hardware threads allowed", host->name, allowed,
              host->threads);
  const char *want = getenv("SLURM_CPUS_PER_TASK");
  if (want && atoi(want) > allowed)
    topo_note(host->note, sizeof host->note,
              "SLURM_CPUS_PER_TASK is %d but only %d hardware threads are usable: give srun --cpus-per-task",
              atoi(want), allowed);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible && host->ngpus) {
    int n = *visible ? 1 : 0;
    for (const char *p = visible; *p; p++)
      n += *p == ',';
    if (n != host->ngpus)
      topo_note(host->note, sizeof host->note, "hwloc sees %d GPUs, CUDA_VISIBLE_DEVICES shows %d", host->ngpus, n);
  }
}

static atoll_err live_load(const atoll_topo_params *params, const atoll_topo_place *place, atoll_topo_hosts *out) {
  (void)params;
  hwloc_topology_t t;
  if (hwloc_topology_init(&t) != 0)
    return atoll_fail(ATOLL_NOMEM, "hwloc_topology_init: %s", strerror(errno));
  atoll_err err = ATOLL_OK;
  hwloc_bitmap_t affinity = hwloc_bitmap_alloc();
  if (!affinity)
    err = atoll_fail(ATOLL_NOMEM, "no memory for a cpuset");
  if (err == ATOLL_OK) {
    /* Neither X servers nor OpenCL drivers are woken for what PCI and the GPU libraries tell as well. */
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "gl");
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "opencl");
    hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(t) != 0)
      err = atoll_fail(ATOLL_UNAVAILABLE, "hwloc cannot read this machine: %s", strerror(errno));
    else if (!hwloc_topology_is_thissystem(t))
      /* HWLOC_SYNTHETIC, HWLOC_XMLFILE and HWLOC_FSROOT divert every hwloc program, ours without being asked. */
      err = atoll_fail(ATOLL_USAGE, "topo.backend=live, but the environment (HWLOC_SYNTHETIC, HWLOC_XMLFILE or "
                                    "HWLOC_FSROOT) makes hwloc describe another machine: "
                                    "unset it, or give topo.path or topo.synthetic");
  }
  if (err == ATOLL_OK && place && place->affinity) {
    if (topo_cpuset_parse(place->affinity, affinity) != 0)
      err = atoll_fail(ATOLL_INTERNAL, "'%s' is no list of hardware threads", place->affinity);
  } else if (err == ATOLL_OK && hwloc_get_cpubind(t, affinity, HWLOC_CPUBIND_PROCESS) != 0) {
    hwloc_bitmap_fill(affinity);
  }
  atoll_topo_host *host = NULL;
  if (err == ATOLL_OK)
    err = topo_hosts_add(out, &host);
  if (err == ATOLL_OK) {
    const char *slurm = getenv("SLURMD_NODENAME");
    char name[64];
    if (slurm && *slurm)
      topo_text(name, sizeof name, slurm);
    else if (gethostname(name, sizeof name) != 0)
      topo_text(name, sizeof name, "localhost");
    name[sizeof name - 1] = 0;
    host->read_here = 1;
    err = topo_read_hwloc(t, name, host);
  }
  if (err == ATOLL_OK) {
    topo_isa_here(host->isa, sizeof host->isa);
    narrow(host, affinity);
    count_slurm_cpus(host);
    /* Some virtual machines report only a part of their memory, and a changing one, per NUMA node: the kernel's total
     * counts. */
    int64_t total = meminfo_total(), numa = host->memory;
    if (total > 0)
      host->memory = total;
    host->cgroup = topo_limit_cgroup("");
    host->slurm = topo_limit_slurm(env_of, host->note, sizeof host->note);
    host->rlimit = topo_limit_rlimit();
    notes(host);
    if (total && (numa < total - total / 16 || numa > total + total / 16))
      topo_note(host->note, sizeof host->note,
                "NUMA nodes add up to %.1f GiB of memory, /proc/meminfo says %.1f and counts", (double)numa / 0x1p30,
                (double)total / 0x1p30);
  }
  hwloc_bitmap_free(affinity);
  hwloc_topology_destroy(t);
  return err;
}

const atoll_topo_backend topo_backend_live = {
    .name = "live", .priority = 10, .per_node = 1, .probe = live_probe, .load = live_load, .devices = NULL};

/* hwloc -> host. One reader serves all backends: what they differ in is how the hwloc topology came to be.
 *
 * The topology is loaded with disallowed objects included, so that a host states the whole machine, and what this job
 * may use is a mark on each hardware thread: allowed (cgroup cpuset, hwloc's allowed set) and, for the running machine,
 * within the affinity of the node's ranks (HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING would only know the calling
 * rank's, and one rank loads for all).
 *
 * A GPU is a PCI device, never an index: hwloc's OS devices (cuda0, nvml0, opencl0d0) of one PCI parent are one GPU,
 * and whichever names the model or memory contributes it. A console VGA (Matrox, ASPEED, old ATI) is no GPU. */
#include "topo_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void topo_cpuset_print(hwloc_const_bitmap_t set, char *buf, size_t n) {
  int want = hwloc_bitmap_list_snprintf(buf, n, set);
  if (want < 0 || (size_t)want >= n)
    want = hwloc_bitmap_taskset_snprintf(buf, n, set);
  if (want < 0 || (size_t)want >= n)
    buf[0] = 0; /* 2048 hardware threads fit; a larger device binds nothing rather than the wrong ones */
}

int topo_cpuset_parse(const char *text, hwloc_bitmap_t set) {
  if (strncmp(text, "0x", 2) == 0)
    return hwloc_bitmap_taskset_sscanf(set, text);
  if (!*text) {
    hwloc_bitmap_zero(set);
    return 0;
  }
  if (strspn(text, "0123456789-,") != strlen(text))
    return -1;
  return hwloc_bitmap_list_sscanf(set, text);
}

/* x86 kernel flag -> name shown, most telling last; a device's instruction set is what its kernels may choose from. */
void topo_isa_here(char *isa, size_t n) {
  static const char *const flags[] = {"avx2",        "fma",         "avx512f",  "avx_vnni",
                                      "avx512_vnni", "avx512_bf16", "amx_bf16", NULL};
#if defined(__x86_64__)
  topo_text(isa, n, "x86-64");
#elif defined(__aarch64__)
  topo_text(isa, n, "aarch64");
#else
  topo_text(isa, n, "");
#endif
  FILE *f = fopen("/proc/cpuinfo", "r");
  if (!f)
    return;
  char *line = NULL;
  size_t cap = 0;
  while (getline(&line, &cap, f) >= 0) {
    if (strncmp(line, "flags", 5) != 0 && strncmp(line, "Features", 8) != 0)
      continue;
    for (int i = 0; flags[i]; i++) {
      const char *p = line;
      size_t len = strlen(flags[i]);
      while ((p = strstr(p, flags[i])) != NULL) {
        if (p[-1] == ' ' && (p[len] == ' ' || p[len] == '\n' || !p[len])) {
          size_t used = strlen(isa);
          if (used + len + 2 <= n)
            snprintf(isa + used, n - used, " %s", flags[i]);
          break;
        }
        p += len;
      }
    }
    break;
  }
  free(line);
  fclose(f);
}

static const char *info_of(hwloc_obj_t o, const char *name) {
  const char *v = o ? hwloc_obj_get_info_by_name(o, name) : NULL;
  return v && *v ? v : NULL;
}

/* "Intel(R) Xeon(R) CPU   E5-2650 0 @ 2.00GHz" with single spaces. */
static void squeeze(char *s) {
  char *to = s;
  for (const char *p = s; *p; p++)
    if (!(isspace((unsigned char)*p) && (to == s || to[-1] == ' ')))
      *to++ = isspace((unsigned char)*p) ? ' ' : *p;
  while (to > s && to[-1] == ' ')
    to--;
  *to = 0;
}

static void cpu_model(hwloc_topology_t t, atoll_topo_host *host) {
  hwloc_obj_t root = hwloc_get_root_obj(t), package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
  const char *m = info_of(package, "CPUModel");
  if (!m)
    m = info_of(root, "CPUModel");
  char text[96];
  if (m) {
    topo_text(host->model, sizeof host->model, m);
  } else {
    /* PowerPC and old kernels name no model; what they do name still tells machines apart. */
    const char *v = info_of(package, "CPUVendor");
    const char *r = info_of(package, "CPURevision");
    const char *a = info_of(root, "Architecture");
    const char *p = info_of(root, "PlatformModel");
    snprintf(text, sizeof text, "%s%s%s%s%s",
             v   ? v
             : p ? p
             : a ? a
                 : "unnamed CPU",
             r ? " revision " : "", r ? r : "", "", "");
    topo_text(host->model, sizeof host->model, text);
  }
  squeeze(host->model);
  const char *arch = info_of(root, "Architecture");
  if (arch)
    topo_text(host->isa, sizeof host->isa, strcmp(arch, "x86_64") == 0 ? "x86-64" : arch);
}

static int nearest_numa(hwloc_topology_t t, hwloc_const_cpuset_t cpus) {
  hwloc_obj_t numa = NULL;
  /* A core may have several local NUMA nodes (HBM and DRAM of a KNL): the largest is where its arrays go. */
  int best = -1;
  uint64_t most = 0;
  while ((numa = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, numa)) != NULL)
    if (numa->cpuset && hwloc_bitmap_intersects(numa->cpuset, cpus) &&
        (best < 0 || numa->attr->numanode.local_memory > most)) {
      best = (int)numa->os_index;
      most = numa->attr->numanode.local_memory;
    }
  return best;
}

static atoll_err read_cores(hwloc_topology_t t, atoll_topo_host *host, const char *name) {
  int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
  /* Some machines (and old kernels) show hardware threads without cores: each thread counts as a core. */
  hwloc_obj_type_t type = n > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  if (n <= 0)
    n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
  if (n <= 0)
    return atoll_fail(ATOLL_CORRUPT, "%s: the topology has no hardware threads", name);
  host->core = calloc((size_t)n, sizeof *host->core);
  if (!host->core)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d cores", n);
  hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(t);
  int kinds = hwloc_cpukinds_get_nr(t, 0);
  host->core_kinds = kinds > 1 ? kinds : 1;
  for (int i = 0; i < n; i++) {
    hwloc_obj_t o = hwloc_get_obj_by_type(t, type, (unsigned)i);
    atoll_topo_core *c = &host->core[host->ncores];
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_PACKAGE, o);
    c->package = package ? (int)package->logical_index : 0;
    c->numa = nearest_numa(t, o->cpuset);
    if (kinds > 1) {
      int kind = hwloc_cpukinds_get_by_cpuset(t, o->cpuset, 0);
      c->kind = kind >= 0 ? kind : -1; /* its threads are of several kinds */
    }
    int pu;
    hwloc_bitmap_foreach_begin(pu, o->cpuset) {
      if (c->threads < ATOLL_TOPO_SMT) {
        if (hwloc_bitmap_isset(allowed, (unsigned)pu))
          c->allowed |= 1u << c->threads;
        c->pu[c->threads++] = pu;
      }
    }
    hwloc_bitmap_foreach_end();
    host->threads += c->threads;
    if (c->threads)
      host->ncores++;
  }
  return ATOLL_OK;
}

static void pci_text(hwloc_obj_t pci, char out[16]) {
  snprintf(out, 16, "%04x:%02x:%02x.%01x", pci->attr->pcidev.domain & 0xffff, pci->attr->pcidev.bus,
           pci->attr->pcidev.dev, pci->attr->pcidev.func & 0xf);
}

static hwloc_obj_t pci_parent(hwloc_obj_t o) {
  while (o && o->type != HWLOC_OBJ_PCI_DEVICE)
    o = hwloc_obj_type_is_io(o->type) ? o->parent : NULL;
  return o;
}

static void locality(hwloc_topology_t t, hwloc_obj_t o, char *cores, size_t n, int *numa) {
  hwloc_obj_t at = hwloc_get_non_io_ancestor_obj(t, o);
  if (cores && n)
    cores[0] = 0;
  *numa = -1;
  if (!at || !at->cpuset)
    return;
  if (cores)
    topo_cpuset_print(at->cpuset, cores, n);
  /* Attached to the whole of several NUMA nodes: near none of them. */
  if (hwloc_bitmap_weight(at->nodeset) == 1)
    *numa = hwloc_bitmap_first(at->nodeset);
}

static atoll_topo_gpu *gpu_at(atoll_topo_host *host, const char *pci) {
  for (int i = 0; i < host->ngpus; i++)
    if (strcmp(host->gpu[i].pci, pci) == 0)
      return &host->gpu[i];
  atoll_topo_gpu *more = realloc(host->gpu, sizeof *more * (size_t)(host->ngpus + 1));
  if (!more)
    return NULL;
  host->gpu = more;
  atoll_topo_gpu *g = &more[host->ngpus++];
  memset(g, 0, sizeof *g);
  topo_text(g->pci, sizeof g->pci, pci);
  g->numa = -1;
  return g;
}

static int coproc_api(hwloc_obj_t o) { /* 1 CUDA, 2 NVML, 3 others that drive GPUs, 0 none */
  const char *b = info_of(o, "Backend"), *s = o->subtype;
#define IS(x) ((b && strcasecmp(b, x) == 0) || (s && strcasecmp(s, x) == 0))
  if (IS("CUDA"))
    return 1;
  if (IS("NVML"))
    return 2;
  if (IS("RSMI") || IS("LevelZero"))
    return 3;
  if (IS("OpenCL")) {
    const char *type = info_of(o, "OpenCLDeviceType");
    return type && strcmp(type, "GPU") == 0 ? 3 : 0;
  }
#undef IS
  return 0;
}

static int by_pci(const void *a, const void *b) {
  return strcmp(((const atoll_topo_gpu *)a)->pci, ((const atoll_topo_gpu *)b)->pci);
}

static atoll_err read_gpus(hwloc_topology_t t, atoll_topo_host *host) {
  hwloc_obj_t o = NULL;
  while ((o = hwloc_get_next_pcidev(t, o)) != NULL) {
    unsigned vendor = o->attr->pcidev.vendor_id, class_id = o->attr->pcidev.class_id;
    int display = class_id == 0x0302 || class_id == 0x1200 || (class_id == 0x0300 && vendor == 0x10de);
    if (!display || (vendor != 0x10de && vendor != 0x1002))
      continue;
    char pci[16];
    pci_text(o, pci);
    atoll_topo_gpu *g = gpu_at(host, pci);
    if (!g)
      return atoll_fail(ATOLL_NOMEM, "no memory for GPU %s", pci);
    const char *name = info_of(o, "PCIDevice");
    if (name)
      topo_text(g->model, sizeof g->model, name);
    else
      snprintf(g->model, sizeof g->model, "PCI device %04x:%04x", vendor, o->attr->pcidev.device_id & 0xffff);
    locality(t, o, g->near_cores, sizeof g->near_cores, &g->numa);
  }
  int homeless = 0;
  o = NULL;
  while ((o = hwloc_get_next_osdev(t, o)) != NULL) {
    int api =
        o->attr->osdev.type == HWLOC_OBJ_OSDEV_COPROC || o->attr->osdev.type == HWLOC_OBJ_OSDEV_GPU ? coproc_api(o) : 0;
    if (!api)
      continue;
    hwloc_obj_t parent = pci_parent(o->parent);
    if (!parent) {
      homeless++;
      continue;
    }
    char pci[16];
    pci_text(parent, pci);
    atoll_topo_gpu *g = gpu_at(host, pci);
    if (!g)
      return atoll_fail(ATOLL_NOMEM, "no memory for GPU %s", pci);
    locality(t, parent, g->near_cores, sizeof g->near_cores, &g->numa);
    const char *model = info_of(o, "GPUModel"), *vendor = info_of(o, "GPUVendor");
    if (model && (api == 1 || strncmp(g->model, "PCI device", 10) == 0 || !g->model[0] || api == 2)) {
      int named = strncasecmp(model, "nvidia", 6) == 0 || strncasecmp(model, "amd", 3) == 0;
      snprintf(g->model, sizeof g->model, "%s%s",
               !named && vendor && strncasecmp(vendor, "nvidia", 6) == 0 ? "NVIDIA " : "", model);
    }
    const char *kib = info_of(o, "CUDAGlobalMemorySize");
    if (!kib)
      kib = info_of(o, "LevelZeroHBMSize");
    if (!kib)
      kib = info_of(o, "RSMIVRAMSize");
    if (!kib && !g->memory)
      kib = info_of(o, "OpenCLGlobalMemorySize");
    if (kib && strtoll(kib, NULL, 10) > 0)
      g->memory = strtoll(kib, NULL, 10) * 1024;
    const char *cc = info_of(o, "CUDAComputeCapability");
    int major, minor;
    if (cc && sscanf(cc, "%d.%d", &major, &minor) == 2)
      snprintf(g->isa, sizeof g->isa, "sm_%d%d", major, minor);
  }
  if (homeless)
    topo_note(host->note, sizeof host->note, "%d GPU entries without a PCI device were left out", homeless);
  for (int i = 0; i < host->ngpus; i++)
    if (!host->gpu[i].model[0])
      topo_text(host->gpu[i].model, sizeof host->gpu[i].model, "unnamed GPU");
  if (host->ngpus)
    qsort(host->gpu, (size_t)host->ngpus, sizeof *host->gpu, by_pci);
  return ATOLL_OK;
}

/* Gbit/s of a network interface or HCA of the running machine; 0 unknown. */
static double nic_speed_here(const char *name, int fabric) {
  char path[160], text[64];
  snprintf(path, sizeof path, fabric ? "/sys/class/infiniband/%.60s/ports/1/rate" : "/sys/class/net/%.60s/speed", name);
  FILE *f = fopen(path, "r");
  if (!f)
    return 0;
  double v = 0;
  if (fgets(text, sizeof text, f) && sscanf(text, "%lf", &v) == 1)
    v = v > 0 ? (fabric ? v : v / 1000) : 0; /* "100 Gb/sec (4X EDR)" and Mbit/s; -1 = no link */
  else
    v = 0;
  fclose(f);
  return v;
}

static void read_nics(hwloc_topology_t t, atoll_topo_host *host) {
  /* Fabrics first: an HCA and its IP interface share a PCI device, and the HCA is what MPI uses. */
  int left_out = 0;
  for (int pass = 0; pass < 2; pass++) {
    hwloc_obj_t o = NULL;
    while ((o = hwloc_get_next_osdev(t, o)) != NULL) {
      int fabric = o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
      if (pass == 0 ? !fabric : o->attr->osdev.type != HWLOC_OBJ_OSDEV_NETWORK)
        continue;
      hwloc_obj_t parent = pci_parent(o->parent);
      char pci[16] = "";
      if (parent)
        pci_text(parent, pci);
      int seen = 0;
      for (int i = 0; i < host->nnics; i++)
        seen |=
            (pci[0] && strcmp(host->nic[i].pci, pci) == 0) || strcmp(host->nic[i].name, o->name ? o->name : "") == 0;
      if (seen)
        continue;
      if (host->nnics == (int)(sizeof host->nic / sizeof host->nic[0])) {
        left_out++;
        continue;
      }
      atoll_topo_nic *nic = &host->nic[host->nnics++];
      topo_text(nic->name, sizeof nic->name, o->name ? o->name : "");
      topo_text(nic->pci, sizeof nic->pci, pci);
      locality(t, o, NULL, 0, &nic->numa);
      if (host->read_here)
        nic->speed = nic_speed_here(nic->name, fabric);
    }
  }
  if (left_out)
    topo_note(host->note, sizeof host->note, "%d more network interfaces are not listed", left_out);
}

atoll_err topo_read_hwloc(hwloc_topology_t t, const char *name, atoll_topo_host *host) {
  hwloc_obj_t root = hwloc_get_root_obj(t);
  topo_text(host->name, sizeof host->name, name);
  host->sockets = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
  if (host->sockets < 1)
    host->sockets = 1;
  host->numa_nodes = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
  host->memory = (int64_t)root->total_memory;
  cpu_model(t, host);
  ATOLL_TRY(read_cores(t, host, name));
  ATOLL_TRY(read_gpus(t, host));
  read_nics(t, host);
  return ATOLL_OK;
}

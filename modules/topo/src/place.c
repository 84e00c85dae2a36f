/* Which rank sits on which host.
 *
 * A node is a name: SLURMD_NODENAME when Slurm says it, else the host name. Shared memory does not tell nodes apart
 * (several slurmd may serve one kernel, and MPI_Comm_split_type then merges them), and neither does the order of ranks.
 *
 * Recorded or made-up clusters know other names. In order of preference: every node of the job is found by name
 * (SLURMD_NODENAME, then the host name); none is, and the nodes take the recorded hosts in order; one real host stands
 * for several recorded ones, and its ranks are spread over them in blocks (a dry run of a cluster on a workstation). A
 * mixture of found and not found is an error. */
#include "topo_impl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct rank_record { /* travels as bytes */
  char name[64], alias[64], boot[40], affinity[512];
  int64_t gpu_ready, rlimit;
} rank_record;

int topo_gpu_ready(const char **why_not) {
  const char *kind, *why, *first = "no GPU device backend is installed";
  for (int i = 0; atoll_device_entry(i, &kind, &why); i++) {
    if (strcmp(kind, "cpu") == 0 || strcmp(kind, "async") == 0)
      continue;
    if (!why && atoll_device_automatic(kind))
      return 1;
    first = why ? why : "the plug-in's kernels do not cover layers; its device is used by name";
  }
  if (why_not)
    *why_not = first;
  return 0;
}

static void own_record(rank_record *r) {
  memset(r, 0, sizeof *r);
  if (gethostname(r->alias, sizeof r->alias - 1) != 0)
    topo_text(r->alias, sizeof r->alias, "localhost");
  const char *slurm = getenv("SLURMD_NODENAME");
  topo_text(r->name, sizeof r->name, slurm && *slurm ? slurm : r->alias);
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (f) {
    if (fgets(r->boot, sizeof r->boot, f))
      r->boot[strcspn(r->boot, "\n")] = 0;
    fclose(f);
  }
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  size_t bytes = CPU_ALLOC_SIZE(8192);
  cpu_set_t *cpus = CPU_ALLOC(8192);
  if (set && cpus && sched_getaffinity(0, bytes, cpus) == 0) {
    for (unsigned i = 0; i < 8192; i++)
      if (CPU_ISSET_S(i, bytes, cpus))
        hwloc_bitmap_set(set, i);
    topo_cpuset_print(set, r->affinity, sizeof r->affinity);
  }
  if (cpus)
    CPU_FREE(cpus);
  hwloc_bitmap_free(set);
  r->gpu_ready = topo_gpu_ready(NULL);
  r->rlimit = topo_limit_rlimit();
}

void topo_places_free(topo_places *p) {
  free(p->name);
  free(p->alias);
  free(p->boot);
  free(p->affinity);
  free(p->gpu_ready);
  free(p->rlimit);
  free(p->group);
  free(p->leader);
  memset(p, 0, sizeof *p);
}

void topo_places_group(topo_places *p) {
  p->groups = 0;
  for (int r = 0; r < p->ranks; r++) {
    int g = 0;
    while (g < p->groups && strcmp(p->name[p->leader[g]], p->name[r]) != 0)
      g++;
    if (g == p->groups)
      p->leader[p->groups++] = r;
    p->group[r] = g;
  }
}

atoll_err topo_places_gather(atoll_comm *comm, topo_places *p) {
  rank_record mine;
  void *data = NULL;
  int64_t *offsets = NULL;
  int size = atoll_comm_size(comm);
  own_record(&mine);
  ATOLL_TRY(atoll_gather_bytes(atoll_comm_mpi(comm), &mine, sizeof mine, &data, &offsets));
  size_t n = (size_t)size;
  memset(p, 0, sizeof *p);
  p->ranks = size;
  p->name = calloc(n, sizeof *p->name);
  p->alias = calloc(n, sizeof *p->alias);
  p->boot = calloc(n, sizeof *p->boot);
  p->affinity = calloc(n, sizeof *p->affinity);
  p->gpu_ready = calloc(n, sizeof *p->gpu_ready);
  p->rlimit = calloc(n, sizeof *p->rlimit);
  p->group = calloc(n, sizeof *p->group);
  p->leader = calloc(n, sizeof *p->leader);
  atoll_err err = ATOLL_OK;
  if (!p->name || !p->alias || !p->boot || !p->affinity || !p->gpu_ready || !p->rlimit || !p->group || !p->leader) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for the places of %d ranks", size);
  } else {
    for (int r = 0; r < size; r++) {
      rank_record rec;
      memcpy(&rec, (const char *)data + offsets[r], sizeof rec);
      memcpy(p->name[r], rec.name, sizeof rec.name);
      memcpy(p->alias[r], rec.alias, sizeof rec.alias);
      memcpy(p->boot[r], rec.boot, sizeof rec.boot);
      memcpy(p->affinity[r], rec.affinity, sizeof rec.affinity);
      p->gpu_ready[r] = (int)rec.gpu_ready;
      p->rlimit[r] = rec.rlimit;
    }
    topo_places_group(p);
  }
  free(data);
  free(offsets);
  if (err != ATOLL_OK)
    topo_places_free(p);
  return err;
}

static int host_named(const atoll_topo_hosts *hosts, const char *name) {
  for (int i = 0; i < hosts->count; i++)
    if (strcmp(hosts->host[i].name, name) == 0)
      return i;
  return -1;
}

/* "node17.cluster.example" is the recorded "node17". */
static int host_short_named(const atoll_topo_hosts *hosts, const char *name) {
  char head[64];
  topo_text(head, sizeof head, name);
  head[strcspn(head, ".")] = 0;
  return host_named(hosts, head);
}

static void keep_used(atoll_topo_hosts *hosts, int *host_of, int ranks) {
  int *to = malloc(sizeof *to * (size_t)(hosts->count + 1));
  if (!to)
    return; /* unused hosts stay listed: harmless */
  int kept = 0;
  for (int h = 0; h < hosts->count; h++) {
    int used = 0;
    for (int r = 0; r < ranks && !used; r++)
      used = host_of[r] == h;
    to[h] = used ? kept : -1;
    if (used) {
      atoll_topo_host keep = hosts->host[h];
      hosts->host[kept++] = keep;
    } else {
      free(hosts->host[h].core);
      free(hosts->host[h].gpu);
    }
  }
  int links = 0;
  for (int i = 0; i < hosts->links; i++) {
    atoll_topo_link l = hosts->link[i];
    l.a = to[l.a];
    l.b = to[l.b];
    if (l.a >= 0 && l.b >= 0)
      hosts->link[links++] = l;
  }
  hosts->count = kept;
  hosts->links = links;
  for (int r = 0; r < ranks; r++)
    host_of[r] = to[host_of[r]];
  free(to);
}

atoll_err topo_places_match(const topo_places *p, atoll_topo_hosts *hosts, int *host_of) {
  int *of_group = malloc(sizeof *of_group * (size_t)p->groups);
  if (!of_group)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d nodes", p->groups);
  int found = 0, missing = -1;
  for (int g = 0; g < p->groups; g++) {
    const char *name = p->name[p->leader[g]], *alias = p->alias[p->leader[g]];
    int h = host_named(hosts, name);
    if (h < 0)
      h = host_named(hosts, alias);
    if (h < 0)
      h = host_short_named(hosts, name);
    if (h < 0)
      h = host_short_named(hosts, alias);
    of_group[g] = h;
    found += h >= 0;
    if (h < 0 && missing < 0)
      missing = g;
  }
  atoll_err err = ATOLL_OK;
  if (found == p->groups) {
    for (int g = 0; g < p->groups && err == ATOLL_OK; g++)
      for (int k = 0; k < g; k++)
        if (of_group[k] == of_group[g])
          err = atoll_fail(ATOLL_MISMATCH, "nodes '%s' and '%s' both match the declared node '%s'",
                           p->name[p->leader[k]], p->name[p->leader[g]], hosts->host[of_group[g]].name);
    for (int r = 0; r < p->ranks; r++)
      host_of[r] = of_group[p->group[r]];
  } else if (found > 0) {
    err = atoll_fail(
        ATOLL_MISMATCH,
        "node '%s' of rank %d has no file in the cluster description, while %d other nodes of the job have one",
        p->name[p->leader[missing]], p->leader[missing], found);
  } else if (hosts->count == 1 && p->groups > 1) {
    /* One file for a cluster of equal nodes. */
    for (int g = 1; g < p->groups && err == ATOLL_OK; g++) {
      atoll_topo_host *host;
      err = topo_hosts_add(hosts, &host);
      if (err == ATOLL_OK)
        err = topo_host_copy(&hosts->host[0], host);
    }
    for (int g = 0; g < p->groups && err == ATOLL_OK; g++)
      topo_text(hosts->host[g].name, sizeof hosts->host[g].name, p->name[p->leader[g]]);
    for (int r = 0; r < p->ranks; r++)
      host_of[r] = p->group[r];
    topo_note(hosts->note, sizeof hosts->note, "one declared node describes all %d nodes of the job", p->groups);
  } else if (p->groups == 1) {
    int n = hosts->count < p->ranks ? hosts->count : p->ranks;
    for (int r = 0; r < p->ranks; r++)
      host_of[r] = (int)((int64_t)r * n / p->ranks);
    if (hosts->count > 1)
      topo_note(
          hosts->note, sizeof hosts->note,
          "all ranks are on host %s, which the cluster does not name: they are spread over %d of its %d nodes in order",
          p->name[0], n, hosts->count);
  } else if (hosts->count < p->groups) {
    err = atoll_fail(ATOLL_MISMATCH,
                     "the job has %d nodes, the cluster description %d, and none matches by name (first: '%s')",
                     p->groups, hosts->count, p->name[0]);
  } else {
    for (int r = 0; r < p->ranks; r++)
      host_of[r] = p->group[r];
    topo_note(hosts->note, sizeof hosts->note,
              "no node matches by name: the %d nodes of the job take the declared ones in order (%s is %s, ...)",
              p->groups, p->name[0], hosts->host[0].name);
  }
  free(of_group);
  if (err == ATOLL_OK)
    keep_used(hosts, host_of, p->ranks);
  return err;
}

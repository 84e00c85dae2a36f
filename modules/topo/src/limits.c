/* How many bytes a job may use, from each of the places that may say so. All of them are asked, because each is silent
 * in some common case: the cgroup tree in a container, Slurm outside a job, rlimits almost everywhere. */
#include "topo_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int64_t smaller(int64_t a, int64_t b) { return !a ? b : !b ? a : a < b ? a : b; }

/* A limit file holds "max" or a number; v1 writes a number near 2^63 for "none". */
static int64_t read_limit(const char *path) {
  FILE *f = fopen(path, "r");
  if (!f)
    return 0;
  char text[64] = "";
  int64_t v = 0;
  if (fgets(text, sizeof text, f) && text[0] >= '0' && text[0] <= '9') {
    errno = 0;
    v = strtoll(text, NULL, 10);
    if (errno || v >= (int64_t)1 << 60)
      v = 0;
  }
  fclose(f);
  return v;
}

/* The smallest limit on the way from a group up to the mount. Groups that are not visible (the path of the host seen
 * from inside a container) are skipped; the mount itself is then the container's own group. */
static int64_t walk_up(const char *mount, const char *group, const char *file) {
  char at[1024], path[2200];
  topo_text(at, sizeof at, group);
  int64_t limit = 0;
  for (;;) {
    size_t len = strlen(at);
    while (len && at[len - 1] == '/')
      at[--len] = 0;
    snprintf(path, sizeof path, "%s%s/%s", mount, at, file);
    limit = smaller(limit, read_limit(path));
    if (!len)
      return limit;
    *strrchr(at, '/') = 0;
  }
}

int64_t topo_limit_cgroup(const char *root) {
  char path[1200], mount[1200], line[2048];
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *f = fopen(path, "r");
  if (!f)
    return 0;
  int64_t limit = 0;
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
      continue;
    *group++ = 0;
    controllers++;
    if (group[0] != '/')
      continue;
    if (!*controllers) { /* v2, alone or beside v1 ("unified") */
      snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
      limit = smaller(limit, walk_up(mount, group, "memory.max"));
      snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root);
      limit = smaller(limit, walk_up(mount, group, "memory.max"));
      continue;
    }
    for (char *save = NULL, *word = strtok_r(controllers, ",", &save); word; word = strtok_r(NULL, ",", &save))
      if (strcmp(word, "memory") == 0) {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/memory", root);
        limit = smaller(limit, walk_up(mount, group, "memory.limit_in_bytes"));
      }
  }
  fclose(f);
  return limit;
}

/* Slurm writes MB and means MiB; 0 = all of the node. */
static int64_t env_mib(const char *(*env)(const char *), const char *name, char *note, size_t n) {
  const char *s = env(name);
  if (!s || !*s)
    return 0;
  char *end;
  errno = 0;
  int64_t v = strtoll(s, &end, 10);
  if (errno || end == s || *end || v < 0 || v > (int64_t)1 << 40) {
    topo_note(note, n, "%s is '%s', not a number of MB: ignored", name, s);
    return 0;
  }
  return v * 1024 * 1024;
}

/* The k-th value of Slurm's run-length list "4(x2),2"; 0 when there is none. */
static int64_t list_at(const char *list, int64_t k) {
  while (list && *list) {
    char *end;
    int64_t v = strtoll(list, &end, 10), times = 1;
    if (end == list)
      return 0;
    if (strncmp(end, "(x", 2) == 0) {
      times = strtoll(end + 2, &end, 10);
      if (*end == ')')
        end++;
    }
    if (k < times)
      return v;
    k -= times;
    list = *end == ',' ? end + 1 : end;
    if (*end && *end != ',')
      return 0;
  }
  return 0;
}

/* Inside mpirun's own step SLURM_CPUS_ON_NODE may speak of its one daemon, so the job's list is asked first;
 * SLURM_NODEID counts within the step, hence only when the step spans the job. */
int64_t topo_slurm_cpus(const char *(*env)(const char *)) {
  int64_t cpus = 0;
  const char *list = env("SLURM_JOB_CPUS_PER_NODE"), *id = env("SLURM_NODEID"), *job = env("SLURM_JOB_NODELIST"),
             *step = env("SLURM_STEP_NODELIST");
  if (list && id && (!step || (job && strcmp(job, step) == 0)))
    cpus = list_at(list, strtoll(id, NULL, 10));
  if (!cpus && list && strchr(list, ',') == NULL)
    cpus = list_at(list, 0);
  if (!cpus && env("SLURM_CPUS_ON_NODE"))
    cpus = strtoll(env("SLURM_CPUS_ON_NODE"), NULL, 10);
  return cpus > 0 ? cpus : 0;
}

int64_t topo_limit_slurm(const char *(*env)(const char *), char *note, size_t n) {
  int64_t node = env_mib(env, "SLURM_MEM_PER_NODE", note, n);
  int64_t cpu = env_mib(env, "SLURM_MEM_PER_CPU", note, n);
  if (!cpu)
    return node;
  int64_t cpus = topo_slurm_cpus(env);
  if (cpus < 1) {
    topo_note(note, n, "SLURM_MEM_PER_CPU is set but not how many CPUs: ignored");
    return node;
  }
  return smaller(node, cpu * cpus);
}

int64_t topo_limit_rlimit(void) {
  int64_t limit = 0;
  const int which[] = {RLIMIT_AS, RLIMIT_DATA};
  for (int i = 0; i < 2; i++) {
    struct rlimit r;
    if (getrlimit((__rlimit_resource_t)which[i], &r) == 0 && r.rlim_cur != RLIM_INFINITY &&
        r.rlim_cur < (rlim_t)1 << 60)
      limit = smaller(limit, (int64_t)r.rlim_cur);
  }
  return limit;
}

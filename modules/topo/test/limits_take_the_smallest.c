/* Memory limits of cgroup v1, v2 and Slurm are found where they are, and silence means none. */
#include "topo_test.h"
#include "topo_impl.h"

static void put(const char *root, const char *path, const char *text) { write_file(root, path, text, strlen(text)); }

static void cgroup_v2(void **state) {
  (void)state;
  char root[512];
  scratch("cg2", root, sizeof root);
  assert_true(topo_limit_cgroup(root) == 0); /* no /proc at all */
  put(root, "proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  assert_true(topo_limit_cgroup(root) == 0);
  put(root, "sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  assert_true(topo_limit_cgroup(root) == 0);
  put(root, "sys/fs/cgroup/slurm/job_7/memory.max", "8589934592\n"); /* the limit sits above the step */
  assert_true(topo_limit_cgroup(root) == (int64_t)8 << 30);
  put(root, "sys/fs/cgroup/slurm/job_7/step_0/memory.max", "4294967296\n");
  assert_true(topo_limit_cgroup(root) == (int64_t)4 << 30);
  put(root, "sys/fs/cgroup/memory.max", "1073741824\n");
  assert_true(topo_limit_cgroup(root) == (int64_t)1 << 30);
}

static void cgroup_v1(void **state) {
  (void)state;
  char root[512];
  scratch("cg1", root, sizeof root);
  put(root, "proc/self/cgroup", "9:cpuset:/a\n4:cpu,memory:/slurm/uid_0/job_7\n1:name=systemd:/\n");
  put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* v1's way to say none */
  assert_true(topo_limit_cgroup(root) == 0);
  put(root, "sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.limit_in_bytes", "2147483648\n");
  assert_true(topo_limit_cgroup(root) == (int64_t)2 << 30);
}

static void hybrid_and_hidden_paths(void **state) {
  (void)state;
  char root[512];
  scratch("cgh", root, sizeof root);
  /* A container: the path is the host's and not visible, the mount is the container's own group. */
  put(root, "proc/self/cgroup", "4:memory:/docker/abc\n0::/docker/abc\n");
  put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "3221225472\n");
  assert_true(topo_limit_cgroup(root) == (int64_t)3 << 30);
  put(root, "sys/fs/cgroup/unified/memory.max", "1073741824\n");
  assert_true(topo_limit_cgroup(root) == (int64_t)1 << 30);
  put(root, "proc/self/cgroup", "garbage\n::\n0:\n4:memory:relative\n");
  assert_true(topo_limit_cgroup(root) == 0);
}

static const char *vars[16][2];
static const char *fake_env(const char *name) {
  for (int i = 0; i < 16 && vars[i][0]; i++)
    if (strcmp(vars[i][0], name) == 0)
      return vars[i][1];
  return NULL;
}

#define ENV(...) memcpy(vars, (const char *[16][2]){__VA_ARGS__}, sizeof vars)

static void slurm(void **state) {
  (void)state;
  char note[256] = "";
  const int64_t MiB = 1 << 20;
  ENV({NULL, NULL});
  assert_true(topo_limit_slurm(fake_env, note, sizeof note) == 0);
  ENV({"SLURM_MEM_PER_NODE", "4096"});
  assert_true(topo_limit_slurm(fake_env, note, sizeof note) == 4096 * MiB);
  ENV({"SLURM_MEM_PER_NODE", "0"}); /* all of the node */
  assert_true(topo_limit_slurm(fake_env, note, sizeof note) == 0);
  ENV({"SLURM_MEM_PER_CPU", "256"}, {"SLURM_CPUS_ON_NODE", "8"});
  assert_true(topo_limit_slurm(fake_env, note, sizeof note) == 2048 * MiB);
  ENV({"SLURM_MEM_PER_CPU", "256"}, {"SLURM_JOB_CPUS_PER_NODE", "4(x2),2"}, {"SLURM_NODEID", "2"},
      {"SLURM_CPUS_ON_NODE", "1"});
  assert_true(topo_limit_slurm(fake_env, note, sizeof note) == 512 * MiB);
  ENV({"SLURM_MEM_PER_CPU", "256"}, {"SLURM_JOB_CPUS_PER_NODE", "4(x2)"}, {"SLURM_NODEID", "1"},
      {"SLURM_STEP_NODELIST", "n[0-1]"}, {"SLURM_JOB_NODELIST", "n[0-1]"});
  assert_true(topo_limit_slurm(fake_env, note, sizeof note) == 1024 * MiB);
  assert_string_equal(note, "");
  assert_true(topo_slurm_cpus(fake_env) == 4);
  ENV({"SLURM_JOB_CPUS_PER_NODE", "4,x"}, {"SLURM_NODEID", "1"});
  assert_true(topo_slurm_cpus(fake_env) == 0);
  ENV({"SLURM_MEM_PER_NODE", "12x"});
  assert_true(topo_limit_slurm(fake_env, note, sizeof note) == 0);
  assert_non_null(strstr(note, "SLURM_MEM_PER_NODE is '12x'"));
  ENV({"SLURM_MEM_PER_CPU", "256"});
  assert_true(topo_limit_slurm(fake_env, note, sizeof note) == 0);
  assert_non_null(strstr(note, "not how many CPUs"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cgroup_v2), cmocka_unit_test(cgroup_v1),
                                     cmocka_unit_test(hybrid_and_hidden_paths), cmocka_unit_test(slurm)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

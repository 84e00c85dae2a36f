/* Ranks find their declared node by name, else in order with a note; a mixture is an error. */
#include "topo_test.h"
#include "topo_impl.h"

static topo_places named(int n, const char *const *name, const char *const *alias) {
  topo_places p = {.ranks = n};
  size_t m = (size_t)n;
  p.name = calloc(m, sizeof *p.name);
  p.alias = calloc(m, sizeof *p.alias);
  p.boot = calloc(m, sizeof *p.boot);
  p.affinity = calloc(m, sizeof *p.affinity);
  p.gpu_ready = calloc(m, sizeof *p.gpu_ready);
  p.rlimit = calloc(m, sizeof *p.rlimit);
  p.group = calloc(m, sizeof *p.group);
  p.leader = calloc(m, sizeof *p.leader);
  for (int i = 0; i < n; i++) {
    strcpy(p.name[i], name[i]);
    strcpy(p.alias[i], alias ? alias[i] : name[i]);
  }
  topo_places_group(&p);
  return p;
}

static void match(int n, const char *const *name, const char *const *alias, const char *const *want, const char *note) {
  atoll_topo_hosts hosts = {0};
  int host_of[8];
  for (int i = 0; i < 4; i++) {
    atoll_topo_host *h;
    char own[16];
    assert_int_equal(topo_hosts_add(&hosts, &h), ATOLL_OK);
    snprintf(own, sizeof own, "n%d", i);
    assert_int_equal(topo_synthetic_node("core:1", "test", own, h), ATOLL_OK);
  }
  topo_places p = named(n, name, alias);
  atoll_err err = topo_places_match(&p, &hosts, host_of);
  if (want) {
    if (err != ATOLL_OK)
      fail_msg("%s", atoll_err_message());
    for (int i = 0; i < n; i++)
      assert_string_equal(hosts.host[host_of[i]].name, want[i]);
    if (note)
      assert_non_null(strstr(hosts.note, note));
    else
      assert_string_equal(hosts.note, "");
    /* hosts without ranks are not part of the job */
    for (int h = 0; h < hosts.count; h++) {
      int used = 0;
      for (int i = 0; i < n; i++)
        used |= host_of[i] == h;
      assert_true(used);
    }
  } else {
    assert_int_equal(err, ATOLL_MISMATCH);
    assert_non_null(strstr(atoll_err_message(), note));
  }
  topo_places_free(&p);
  topo_hosts_free(&hosts);
}

#define L(...)                                                                                                         \
  (const char *const[]) { __VA_ARGS__ }

static void by_name(void **state) {
  (void)state;
  match(4, L("n3", "n3", "n1", "n0"), NULL, L("n3", "n3", "n1", "n0"), NULL);
  match(2, L("x", "y"), L("n2", "n1"), L("n2", "n1"), NULL);                          /* host name second */
  match(2, L("n2.cluster.example", "n0.cluster.example"), NULL, L("n2", "n0"), NULL); /* domains do not count */
}

static void in_order_with_a_note(void **state) {
  (void)state;
  match(3, L("red", "blue", "red"), NULL, L("n0", "n1", "n0"), "no node matches by name");
  match(6, L("ws", "ws", "ws", "ws", "ws", "ws"), NULL, L("n0", "n0", "n1", "n2", "n2", "n3"),
        "spread over 4 of its 4 nodes");
  match(2, L("ws", "ws"), NULL, L("n0", "n1"), "spread over 2 of its 4 nodes");
}

static void mixtures_are_refused(void **state) {
  (void)state;
  match(2, L("n0", "blue"), NULL, NULL, "node 'blue' of rank 1 has no file");
  match(5, L("a", "b", "c", "d", "e"), NULL, NULL, "the job has 5 nodes, the cluster description 4");
  match(2, L("a", "b"), L("n1", "n1"), NULL, "both match the declared node 'n1'");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(by_name), cmocka_unit_test(in_order_with_a_note),
                                     cmocka_unit_test(mixtures_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

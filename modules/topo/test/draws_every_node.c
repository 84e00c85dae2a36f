/* The drawing is well-formed, and every node, device and measured link is in it. */
#include <ctype.h>

#include "topo_test.h"

/* Tags nest and close; returns the number of elements called `name`. */
static int well_formed(const char *s, const char *name) {
  char stack[64][24];
  int depth = 0, found = 0;
  while ((s = strchr(s, '<')) != NULL) {
    const char *end = strchr(s, '>');
    assert_non_null(end);
    if (s[1] == '?') {
      s = end;
      continue;
    }
    int closing = s[1] == '/';
    char tag[24];
    size_t n = 0;
    for (const char *p = s + 1 + closing; isalnum((unsigned char)*p) && n < 23; p++)
      tag[n++] = *p;
    tag[n] = 0;
    if (closing) {
      assert_true(depth > 0);
      assert_string_equal(stack[--depth], tag);
    } else {
      found += strcmp(tag, name) == 0;
      if (end[-1] != '/') {
        assert_true(depth < 64);
        strcpy(stack[depth++], tag);
      }
    }
    s = end;
  }
  assert_int_equal(depth, 0);
  return found;
}

static void cluster(void **state) {
  (void)state;
  char *svg = NULL;
  size_t bytes = 0;
  atoll_topo *t = load_topo(ATOLL_SOURCE_DIR "/inputs/clusters/a100-v100", NULL);
  strcpy(t->node[1].name, "a<1>&\"x\"");
  assert_int_equal(atoll_topo_draw(t, &svg, &bytes), ATOLL_OK);
  assert_int_equal(strlen(svg), bytes);
  (void)well_formed(svg, "rect");
  assert_non_null(strstr(svg, "a&lt;1&gt;&amp;&quot;x&quot;"));
  assert_non_null(strstr(svg, "GPU 0000:4b:00.0"));
  assert_non_null(strstr(svg, ">240<")); /* NVLink inside the node */
  assert_non_null(strstr(svg, "NVIDIA Tesla V100-PCIE-16GB"));
  free(svg);
  atoll_topo_destroy(&t);
}

static void many_equal_nodes_share_a_card(void **state) {
  (void)state;
  char *svg = NULL;
  size_t bytes = 0;
  atoll_topo *t = load_topo(NULL, "500x(core:4), 3x(core:8)");
  assert_int_equal(atoll_topo_draw(t, &svg, &bytes), ATOLL_OK);
  assert_true(bytes < 20000);
  (void)well_formed(svg, "rect");
  assert_non_null(strstr(svg, "n0 ... n499"));
  assert_non_null(strstr(svg, "n500 ... n502"));
  free(svg);
  atoll_topo_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cluster), cmocka_unit_test(many_equal_nodes_share_a_card)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Differences are lines; noise is none. */
#include "topo_test.h"

static char *diff_text(const atoll_topo *a, const atoll_topo *b, int *lines) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  *lines = atoll_topo_diff(a, b, f);
  fclose(f);
  return text;
}

static void fill(atoll_samples *s, double base, double step) {
  s->n = 9;
  for (int i = 0; i < 9; i++)
    s->v[i] = base * (1 + (i - 4) * step);
}

static void noise_is_no_difference(void **state) {
  (void)state;
  int lines;
  atoll_topo *a = load_topo(NULL, "2x(core:4)"), *b = load_topo(NULL, "2x(core:4)");
  fill(&a->device[0].gemm_f32, 100, 0.01);
  fill(&b->device[0].gemm_f32, 103, 0.01);
  char *text = diff_text(a, b, &lines);
  assert_int_equal(lines, 0);
  assert_string_equal(text, "");
  free(text);
  fill(&b->device[0].gemm_f32, 150, 0.01);
  text = diff_text(a, b, &lines);
  assert_int_equal(lines, 1);
  assert_non_null(strstr(text, "node n0 device 0: f32 rate: 100 | 150 GFLOP/s"));
  free(text);
  fill(&a->device[0].gemm_f32, 100, 0.05); /* 12 % apart, each spread 10 % */
  fill(&b->device[0].gemm_f32, 112, 0.05);
  assert_int_equal(atoll_topo_diff(a, b, NULL), 0);
  atoll_topo_destroy(&a);
  atoll_topo_destroy(&b);
}

static void hardware_is(void **state) {
  (void)state;
  int lines;
  atoll_topo *a = load_topo(NULL, "2x(core:4 memory=4GiB)"),
             *b = load_topo(NULL, "core:4 memory=4GiB, core:6 memory=2GiB, core:1");
  char *text = diff_text(a, b, &lines);
  assert_true(lines >= 5);
  assert_null(strstr(text, "node n0"));
  assert_non_null(strstr(text, "node n1: cores: 4 | 6"));
  assert_non_null(strstr(text, "node n1 device 0: cores: '0-3' | '0-5'"));
  assert_non_null(strstr(text, "node n2: only in the second"));
  free(text);
  atoll_topo_destroy(&a);
  atoll_topo_destroy(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(noise_is_no_difference), cmocka_unit_test(hardware_is)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

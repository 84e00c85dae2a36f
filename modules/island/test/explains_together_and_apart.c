/* The explanation names what holds an island together and what keeps each pair apart. */
#include "island_test.h"

static char *text_of(const char *cluster, atoll_topo **keep) {
  char *text = NULL;
  size_t n = 0;
  atoll_topo *t = load_topo(cluster);
  atoll_islands *is = group(t);
  FILE *f = open_memstream(&text, &n);
  atoll_islands_print(is, t, f);
  atoll_islands_explain(is, t, f);
  fclose(f);
  atoll_islands_destroy(&is);
  if (keep)
    *keep = t;
  else
    atoll_topo_destroy(&t);
  return text;
}

static void says(const char *cluster, const char *words) {
  char *text = text_of(cluster, NULL);
  if (!strstr(text, words))
    fail_msg("no '%s' in:\n%s", words, text);
  free(text);
}

static void sentences(void **state) {
  (void)state;
  says("3x(core:4 memory=8GiB f32=500 model=Epyc)",
       "island a: 3 devices on 3 nodes (n0 n1 n2): Epyc (4 cores), 8 GiB each, 500 GFLOP/s f32 each");
  says("3x(core:4 memory=8GiB f32=500)", "together: the same hardware, memory and declared rates");
  says("3x(core:4 memory=8GiB)", "rates are not known");
  says("core:4 model=A, core:4 model=B", "a and b are apart: model '");
  says("core:4 model=A, core:2 model=A", "4 cores against 2");
  says("core:4 memory=8GiB, core:4 memory=4GiB", "8 GiB against 4 GiB");
  says("core:4 kind=x, core:4 kind=y", "kind of node 'x' against 'y'");
  says("core:4 f32=100, core:4 f32=60",
       "apart though their hardware is the same: declared f32 rates 100 and 60 GFLOP/s, 40 % apart");
  says("20x(core:4)", "(n0 n1 n2 n3 n4 n5 ... n19)");
  says("core:4, core:4 kind=k", "2 islands");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sentences)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

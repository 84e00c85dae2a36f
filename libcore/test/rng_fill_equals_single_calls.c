/* Promise: filling gives the bits of single calls, for every start, length and CPU variant. The source is included to
 * reach variants that this machine would not choose by itself. */
#include "../src/rng.c"
#include "unit_check.h"

enum { MAX = 700 };

static void any_start_and_length(void **state) {
  (void)state;
  static uint32_t out[MAX + 1];
  static const uint64_t starts[] = {
      0, 1, 2, 3, 4, 5, 1000003, (UINT64_C(1) << 34) - 130, (UINT64_C(1) << 42) - 77, UINT64_MAX - 5000};
  static const size_t lengths[] = {0, 1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 66, 67, 127, 128, 130, 257, MAX};
  const atoll_rng_key keys[] = {{42, 7, 3, 2, ATOLL_RNG_DROP_MLP},
                                {UINT64_MAX, UINT64_C(1) << 40, UINT64_MAX, 1u << 20, 300}};
  for (size_t k = 0; k < 2; k++)
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++)
      for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        size_t n = lengths[l];
        memset(out, 0xA5, sizeof out);
        atoll_rng_fill_bits(&keys[k], starts[s], n, out);
        for (size_t i = 0; i < n; i++)
          if (out[i] != atoll_rng_bits(&keys[k], starts[s] + i))
            fail_msg("key %zu start %llu length %zu: element %zu differs", k, (unsigned long long)starts[s], n, i);
        assert_int_equal(out[n], 0xA5A5A5A5);
      }
}

static void check_variant(const char *name, fill_blocks fill) {
  static uint32_t got[4 * 200], want[4 * 200];
  const atoll_rng_key key = {UINT64_C(0x123456789abcdef), 5, 6, 7, 1};
  struct stream s = stream_of(&key, 0);
  static const uint32_t starts[] = {0, 77, UINT32_MAX - 199};
  for (size_t c = 0; c < 3; c++) {
    (void)fill_plain(&s, starts[c], 200, want);
    size_t done = fill(&s, starts[c], 200, got);
    if (done < 184 || done > 200 || memcmp(got, want, 16 * done) != 0)
      fail_msg("%s differs from the plain form at counter %u (%zu blocks)", name, (unsigned)starts[c], done);
  }
}

static void variants_agree(void **state) {
  (void)state;
  check_variant("plain", fill_plain);
#ifdef RNG_X86
  if (__builtin_cpu_supports("avx2"))
    check_variant("avx2", fill_avx2);
  if (__builtin_cpu_supports("avx512f"))
    check_variant("avx512", fill_avx512);
#endif
}

static void normals_do_not_depend_on_the_cut(void **state) {
  (void)state;
  static float whole[MAX], part[MAX];
  const atoll_rng_key key = {1, 2, 3, 4, 5};
  atoll_rng_fill_normal(&key, 10, MAX, 0.02f, whole);
  for (size_t cut = 0; cut <= MAX; cut += 37) {
    memset(part, 0, sizeof part);
    atoll_rng_fill_normal(&key, 10, cut, 0.02f, part);
    atoll_rng_fill_normal(&key, 10 + cut, MAX - cut, 0.02f, part + cut);
    assert_memory_equal(whole, part, sizeof part);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_start_and_length), cmocka_unit_test(variants_agree),
                                     cmocka_unit_test(normals_do_not_depend_on_the_cut)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

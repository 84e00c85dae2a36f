/* Promise: the tiny real Llama goes through safetensors and comes back as the file it was, weights bit for bit, and the
 * tables of cosines that its readers skip to float rounding. */
#include "weights_test.h"

#include <math.h>

static char path[2048];

static void stories(void **state) {
  (void)state;
  atoll_weights *w = NULL;
  assert_int_equal(atoll_weights_open(path, NULL, &w), ATOLL_OK);
  const atoll_weights_config *c = atoll_weights_config_of(w);
  const atoll_weights_config want = {.family = "llama",
                                     .layers = 5,
                                     .width = 64,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .ffn = 172,
                                     .context = 512,
                                     .vocab = 512,
                                     .norm_eps = 1e-5,
                                     .rope_theta = 10000};
  assert_memory_equal(c, &want, sizeof want);
  assert_int_equal(atoll_weights_count(w), 2 + 9 * 5);
  atoll_weights_source source = atoll_weights_as_source(w);
  assert_int_equal(atoll_weights_write_safetensors("tiny.tmp.safetensors", c, &source, ATOLL_F32), ATOLL_OK);
  atoll_weights_close(&w);
  assert_int_equal(atoll_weights_open("tiny.tmp.safetensors", "llama", &w), ATOLL_OK);
  source = atoll_weights_as_source(w);
  assert_int_equal(atoll_weights_write_llama2c("tiny.tmp.bin", atoll_weights_config_of(w), &source), ATOLL_OK);
  atoll_weights_close(&w);
  char *a = NULL, *b = NULL;
  size_t na = 0, nb = 0;
  assert_int_equal(atoll_file_read(path, &a, &na), ATOLL_OK);
  assert_int_equal(atoll_file_read("tiny.tmp.bin", &b, &nb), ATOLL_OK);
  assert_int_equal(na, nb);
  size_t tables = 4 * 512 * 8;
  assert_memory_equal(a, b, na - tables);
  for (size_t i = na - tables; i < na; i += 4) {
    float x, y;
    memcpy(&x, a + i, 4);
    memcpy(&y, b + i, 4);
    assert_true(fabsf(x - y) < 1e-4f); /* theirs takes the angle in float32: up to 511 x 2^-24 */
  }
  free(a);
  free(b);
  unlink("tiny.tmp.safetensors");
  unlink("tiny.tmp.bin");
}

int main(void) {
  const char *shared = getenv("ATOLL_SHARED");
  snprintf(path, sizeof path, "%s/data/stories260K.bin", shared ? shared : ATOLL_SOURCE_DIR "/../shared");
  if (!atoll_file_exists(path)) {
    printf("SKIPPED: no %s; set ATOLL_SHARED\n", path);
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(stories)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

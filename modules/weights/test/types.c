/* Promise: float16 and bfloat16 are widened exactly, for every one of their values; bfloat16 is written to nearest,
 * ties to even. */
#include "weights_test.h"

#include <math.h>

static void half_and_brain(void **state) {
  (void)state;
  for (int brain = 0; brain < 2; brain++) {
    char header[160];
    size_t n = 0;
    snprintf(header, sizeof header,
             "{\"wte.weight\":{\"dtype\":\"%s\",\"shape\":[256,256],\"data_offsets\":[0,131072]}}",
             brain ? "BF16" : "F16");
    unsigned char *file = test_safetensors(header, 131072, &n);
    for (unsigned i = 0; i < 65536; i++) {
      file[n - 131072 + 2 * i] = (unsigned char)i;
      file[n - 131072 + 2 * i + 1] = (unsigned char)(i >> 8);
    }
    atoll_weights *w = NULL;
    float *v = malloc(65536 * sizeof *v);
    assert_non_null(v);
    assert_int_equal(atoll_weights_open_bytes("w", file, n, NULL, &w), ATOLL_OK);
    assert_int_equal(atoll_weights_read(w, 0, v), ATOLL_OK);
    int exponent_bits = brain ? 8 : 5, mantissa_bits = brain ? 7 : 10, bias = brain ? 127 : 15;
    for (unsigned i = 0; i < 65536; i++) {
      int e = (int)(i >> mantissa_bits) & ((1 << exponent_bits) - 1), m = (int)i & ((1 << mantissa_bits) - 1);
      double want = e ? ldexp(1 + ldexp(m, -mantissa_bits), e - bias) : ldexp(m, 1 - bias - mantissa_bits);
      if (i >> 15)
        want = -want;
      if (e == (1 << exponent_bits) - 1) {
        assert_true(m ? isnan(v[i]) : isinf(v[i]) && (v[i] < 0) == (i >> 15));
      } else {
        assert_true((double)v[i] == want);
        assert_int_equal(signbit(v[i]) != 0, i >> 15);
      }
    }
    free(v);
    atoll_weights_close(&w);
    free(file);
  }
}

static void rounding(void **state) {
  (void)state;
  static const struct {
    float value;
    uint16_t want;
  } t[] = {{1.0f, 0x3f80},        {1.00390625f, 0x3f80}, /* half way to the next: even */
           {1.01171875f, 0x3f82},                        /* half way from an odd one: up */
           {1.00390637f, 0x3f81}, {-1.0f, 0xbf80},       {0.0f, 0}, {3.4028235e38f, 0x7f80}, {-0.0f, 0x8000}};
  test_set s = {.n = 0};
  atoll_weights_config c = {.family = "gpt2", .layers = 0, .width = 1, .vocab = 8};
  test_add(&s, "wte.weight", 8, 1);
  for (int i = 0; i < 8; i++)
    s.value[0][i] = t[i].value;
  atoll_weights_source source = test_source(&s);
  char *file = NULL;
  size_t n = 0;
  assert_int_equal(atoll_weights_write_safetensors("types.tmp", &c, &source, ATOLL_BF16), ATOLL_OK);
  assert_int_equal(atoll_file_read("types.tmp", &file, &n), ATOLL_OK);
  for (int i = 0; i < 8; i++) {
    uint16_t got;
    memcpy(&got, file + n - 16 + 2 * i, 2);
    if (got != t[i].want)
      fail_msg("%.9g is written as %04x, expected %04x", t[i].value, got, t[i].want);
  }
  unlink("types.tmp");
  free(file);
  test_set_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(half_and_brain), cmocka_unit_test(rounding)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

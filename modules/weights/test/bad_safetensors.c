/* Promise: a safetensors file that is truncated, oversized, inconsistent or of a wrong type is refused with the tensor,
 * what was found and what was expected; no byte of it is trusted. */
#include "weights_test.h"

#define WTE(begin, end) "\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[" #begin "," #end "]}"
#define LNF(begin, end) "\"ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[" #begin "," #end "]}"

static atoll_err open_bytes(const unsigned char *file, size_t n) {
  atoll_weights *w = NULL;
  unsigned char *exact = malloc(n ? n : 1); /* so that a sanitizer sees a read behind it */
  assert_non_null(exact);
  memcpy(exact, file, n);
  atoll_err err = atoll_weights_open_bytes("w.safetensors", exact, n, NULL, &w);
  assert_true((err == ATOLL_OK) == (w != NULL));
  atoll_weights_close(&w);
  free(exact);
  return err;
}

static atoll_err open_header(const char *header, size_t data) {
  size_t n = 0;
  unsigned char *file = test_safetensors(header, data, &n);
  atoll_err err = open_bytes(file, n);
  free(file);
  return err;
}

static void headers(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data;
    atoll_err code;
    const char *says;
  } bad[] = {
      {"{" WTE(0, 24) "," LNF(24, 36) "}", 35, ATOLL_CORRUPT,
       "tensor ln_f.weight lies at 24..36, the file has 35 bytes of data"},
      {"{" WTE(0, 24) "," LNF(24, 36) "}", 40, ATOLL_CORRUPT, "40 bytes of data, the header describes 36"},
      {"{" WTE(0, 24) "," LNF(20, 32) "}", 32, ATOLL_CORRUPT, "wte.weight and ln_f.weight overlap at byte 20"},
      {"{" LNF(0, 12) "," WTE(0, 24) "}", 24, ATOLL_CORRUPT, "overlap at byte 0"},
      {"{" WTE(0, 24) "," LNF(28, 40) "}", 40, ATOLL_CORRUPT, "gap of 4 bytes before tensor ln_f.weight"},
      {"{" WTE(4, 28) "}", 28, ATOLL_CORRUPT, "gap of 4 bytes before tensor wte.weight"},
      {"{" WTE(0, 20) "}", 20, ATOLL_CORRUPT, "2 x 3 of F32 are 24 bytes, data_offsets say 20"},
      {"{" WTE(0, 28) "}", 28, ATOLL_CORRUPT, "2 x 3 of F32 are 24 bytes, data_offsets say 28"},
      {"{" WTE(24, 0) "}", 24, ATOLL_CORRUPT, "lies at 24..0"},
      {"{" WTE(0, 24) "," WTE(0, 24) "}", 24, ATOLL_CORRUPT, "duplicate object key"},
      {"{\"wte.weight\":{\"dtype\":\"F31\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24, ATOLL_CORRUPT,
       "tensor wte.weight has the unknown type 'F31'"},
      {"{\"wte.weight\":{\"dtype\":\"I32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24, ATOLL_CORRUPT,
       "tensor wte.weight has type I32, expected F32, F16 or BF16"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2,-3],\"data_offsets\":[0,24]}}", 24, ATOLL_CORRUPT, "extent 1"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,24]}}", 24, ATOLL_CORRUPT, "extent 0"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
       ATOLL_CORRUPT, "exceeds 2^63 bytes"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,0]}}", 0, ATOLL_CORRUPT,
       "exceeds 2^63 bytes"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", 0, ATOLL_CORRUPT,
       "w.safetensors: header byte"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2,3]}}", 24, ATOLL_CORRUPT, "expected dtype, shape and two"},
      {"{\"wte.weight\":{\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24, ATOLL_CORRUPT, "expected dtype, shape"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":6,\"data_offsets\":[0,24]}}", 24, ATOLL_CORRUPT, "expected dtype"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,12,24]}}", 24, ATOLL_CORRUPT, "two"},
      {"{\"wte.weight\":[]}", 0, ATOLL_CORRUPT, "expected dtype"},
      {"{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
       ATOLL_UNSUPPORTED, "has 9 dimensions"},
      {"{\"h.0.mlp.c_fc.weight\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}," WTE(24, 48) "}", 48,
       ATOLL_MISMATCH, "tensor h.0.mlp.c_fc.weight is 6, expected a matrix"},
      {"{" WTE(0, 24) ",\"transformer.wte.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}}", 36,
       ATOLL_CORRUPT, "tensors wte.weight and transformer.wte.weight are both the parameter wte.weight"},
      {"{" WTE(0, 24) ",\"wte.lora_A\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}}", 36, ATOLL_MISMATCH,
       "tensor wte.lora_A has no place in family gpt2"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", 12, ATOLL_UNSUPPORTED,
       "the tensors (x, ...) are of no known architecture"},
      {"{}", 0, ATOLL_UNSUPPORTED, "the tensors (none, ...)"},
      {"[]", 0, ATOLL_CORRUPT, "no JSON object"},
      {"", 0, ATOLL_CORRUPT, "header byte 0"},
      {"{" WTE(0, 24), 24, ATOLL_CORRUPT, "header byte"},
      {"{" WTE(0, 24) "} x", 24, ATOLL_CORRUPT, "header byte"},
      {"{\"__metadata__\":3," WTE(0, 24) "}", 24, ATOLL_CORRUPT, "__metadata__ is no object"},
      {"{\"__metadata__\":{\"a\":3}," WTE(0, 24) "}", 24, ATOLL_CORRUPT, "__metadata__.a is no text"},
      {"{\"__metadata__\":{\"atoll.config\":\"{\"}," WTE(0, 24) "}", 24, ATOLL_CORRUPT, "__metadata__.atoll.config"},
      {"{\"w\\u0000te\":{}}", 0, ATOLL_CORRUPT, "header byte"},
  };
  assert_int_equal(open_header("{" WTE(0, 24) "," LNF(24, 36) "}  ", 36), ATOLL_OK);
  assert_int_equal(open_header("{" LNF(24, 36) "," WTE(0, 24) "}", 36), ATOLL_OK); /* any order */
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    test_refused(open_header(bad[i].header, bad[i].data), bad[i].code, bad[i].says);
}

/* Sizes of nothing divide nothing, and the other extent of an empty tensor may be any number. */
static void empty_tensors(void **state) {
  (void)state;
  size_t n = 0;
  unsigned char *file = test_safetensors(
      "{\"__metadata__\":{\"atoll.config\":\"{\\\"model_type\\\":\\\"llama\\\",\\\"num_attention_heads\\\":2}\"},"
      "\"embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[5,0],\"data_offsets\":[0,0]},"
      "\"layers.0.self_attn.k_proj.weight\":{\"dtype\":\"F32\",\"shape\":[1152921504606846976,0],"
      "\"data_offsets\":[0,0]}}",
      0, &n);
  atoll_weights *w = NULL;
  float none = 7;
  assert_int_equal(atoll_weights_open_bytes("w.safetensors", file, n, NULL, &w), ATOLL_OK);
  assert_int_equal(atoll_weights_read(w, 1, &none), ATOLL_OK);
  assert_true(none == 7);
  atoll_weights_close(&w);
  free(file);
  file = test_safetensors("{\"h.0.mlp.c_fc.weight\":{\"dtype\":\"F32\",\"shape\":[0,1152921504606846976],"
                          "\"data_offsets\":[0,0]},\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[0,0],"
                          "\"data_offsets\":[0,0]}}",
                          0, &n);
  assert_int_equal(atoll_weights_open_bytes("w.safetensors", file, n, NULL, &w), ATOLL_OK);
  assert_int_equal(atoll_weights_read(w, 0, &none), ATOLL_OK);
  atoll_weights_close(&w);
  free(file);
}

static void lengths(void **state) {
  (void)state;
  size_t n = 0;
  unsigned char *file = test_safetensors("{" WTE(0, 24) "}", 24, &n);
  for (size_t k = 0; k < n; k++) /* cut anywhere */
    if (open_bytes(file, k) != ATOLL_CORRUPT)
      fail_msg("%zu of %zu bytes: %s", k, n, atoll_err_message());
  test_refused(open_bytes(file, 7), ATOLL_CORRUPT, "7 bytes, a safetensors file has 10 at least");
  memset(file, 0xff, 8);
  test_refused(open_bytes(file, n), ATOLL_CORRUPT, "a header of 18446744073709551615 bytes");
  memset(file, 0, 8);
  file[3] = 8; /* 128 MiB */
  test_refused(open_bytes(file, n), ATOLL_CORRUPT, "at most 100000000 are read");
  free(file);
}

/* A header that is all there and longer than the format allows is not even parsed. */
static void too_long(void **state) {
  (void)state;
  const uint64_t header = 100000001;
  atoll_weights *w = NULL;
  unsigned char *file = calloc(1, header + 8); /* pages that nobody reads are never made */
  assert_non_null(file);
  for (int i = 0; i < 8; i++)
    file[i] = (unsigned char)(header >> 8 * i);
  test_refused(atoll_weights_open_bytes("w.safetensors", file, header + 8, NULL, &w), ATOLL_CORRUPT,
               "a header of 100000001 bytes, 100000001 follow, at most 100000000 are read");
  free(file);
}

/* Whatever one changed byte does, nothing is read outside the file; the sanitizer sees it. */
static void any_changed_byte(void **state) {
  (void)state;
  size_t n = 0;
  unsigned char *file = test_safetensors("{" WTE(0, 24) "," LNF(24, 36) "}", 36, &n);
  static const unsigned char with[] = {0, '0', '9', '"', '}', ',', '-', 0xff};
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < sizeof with; k++) {
      unsigned char was = file[i];
      file[i] = with[k];
      atoll_err err = open_bytes(file, n);
      assert_true(err == ATOLL_OK || atoll_err_message()[0]);
      file[i] = was;
    }
  free(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(headers), cmocka_unit_test(empty_tensors),
                                     cmocka_unit_test(lengths), cmocka_unit_test(too_long),
                                     cmocka_unit_test(any_changed_byte)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tokenizers: the input is llama2.c's file, or ranks or merges of a byte-level vocabulary; what is accepted encodes the
 * input itself and gives it back. */
#include "atoll/token.h"
#include "fuzz.h"

static void back_and_forth(const atoll_tokenizer *t, const uint8_t *data, size_t bytes) {
  int32_t *ids = NULL;
  size_t n = 0, at = 0;
  atoll_err err = atoll_tokenizer_encode_all(t, data, bytes, &ids, &n);
  if (err != ATOLL_OK) {
    fuzz_refused(err);
    return;
  }
  int32_t previous = atoll_tokenizer_begin(t);
  for (size_t i = 0; i < n; i++) {
    const unsigned char *s;
    size_t k;
    FUZZ_CHECK(atoll_tokenizer_decode(t, previous, ids[i], &s, &k) == ATOLL_OK);
    FUZZ_CHECK(k <= bytes - at && memcmp(s, data + at, k) == 0);
    at += k;
    previous = ids[i];
  }
  FUZZ_CHECK(at == bytes);
  free(ids);
}

/* The 256 bytes and a few words that merges may make. */
static char *vocabulary(void) {
  static const char *const words[] = {"aa", "aaaa", "ab", "abab", "th", "the", "\\u0120t", "\\u0120the"};
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  FUZZ_CHECK(f);
  for (unsigned b = 0, other = 256; b < 256; b++) {
    unsigned c = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : other++;
    fprintf(f, "%c\"\\u%04x\":%u", b ? ',' : '{', c, b);
  }
  for (unsigned i = 0; i < 8; i++)
    fprintf(f, ",\"%s\":%u", words[i], 256 + i);
  fputc('}', f);
  FUZZ_CHECK(fclose(f) == 0);
  return text;
}

/* Lines behind those of the 256 bytes. */
static void ranks(const uint8_t *data, size_t bytes) {
  static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  atoll_tokenizer *t = NULL;
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  FUZZ_CHECK(f);
  for (unsigned b = 0; b < 256; b++)
    fprintf(f, "%c%c== %u\n", digit[b >> 2], digit[(b & 3) << 4], b);
  fwrite(data, 1, bytes, f);
  FUZZ_CHECK(fclose(f) == 0);
  atoll_err err = atoll_tokenizer_open_llama3("ranks", text, n, &t);
  if (err == ATOLL_OK)
    back_and_forth(t, data, bytes);
  else
    fuzz_refused(err);
  atoll_tokenizer_close(&t);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static char *json;
  atoll_tokenizer *t = NULL;
  if (!json)
    json = vocabulary();
  atoll_err err = atoll_tokenizer_open_llama2c("tokens", data, bytes, &t);
  if (err == ATOLL_OK)
    back_and_forth(t, data, bytes);
  else
    fuzz_refused(err);
  atoll_tokenizer_close(&t);
  err = atoll_tokenizer_open_gpt2("json", json, strlen(json), "merges", (const char *)data, bytes, &t);
  if (err == ATOLL_OK)
    back_and_forth(t, data, bytes);
  else
    fuzz_refused(err);
  atoll_tokenizer_close(&t);
  ranks(data, bytes);
  err = atoll_tokenizer_open_gpt2("json", (const char *)data, bytes, "merges", "a b\n", 4, &t);
  if (err != ATOLL_OK)
    fuzz_refused(err);
  atoll_tokenizer_close(&t);
  return 0;
}

/* Families' config.json, as the metadata of a safetensors file carries it, beside the first tensor of each family. What
 * is accepted describes itself in a text that is accepted again. */
#include "atoll/weights.h"
#include "fuzz.h"

/* A file whose header holds `json` (any bytes, as a JSON string) and one tensor of 4 x 2. */
static char *file_of(const uint8_t *json, size_t n, const char *tensor, size_t *bytes) {
  char *file = NULL;
  FILE *f = open_memstream(&file, bytes);
  FUZZ_CHECK(f);
  fwrite("\0\0\0\0\0\0\0\0", 1, 8, f);
  fputs("{\"__metadata__\":{\"atoll.config\":\"", f);
  for (size_t i = 0; i < n; i++)
    fprintf(f, "\\u%04x", json[i] ? json[i] : ' ');
  fprintf(f, "\"},\"%s\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[0,32]}}", tensor);
  FUZZ_CHECK(fflush(f) == 0);
  uint64_t header = *bytes - 8;
  for (int i = 0; i < 32; i++)
    fputc(0, f);
  FUZZ_CHECK(fclose(f) == 0);
  for (int i = 0; i < 8; i++)
    file[i] = (char)(header >> (8 * i));
  return file;
}

/* 1: accepted, and *text says as what. */
static int accepted(const uint8_t *json, size_t n, const char *tensor, char **text) {
  size_t bytes = 0;
  char *file = file_of(json, n, tensor, &bytes);
  atoll_weights *w = NULL;
  atoll_err err = atoll_weights_open_bytes("config", file, bytes, NULL, &w);
  if (err == ATOLL_OK)
    FUZZ_CHECK(atoll_weights_config_json(atoll_weights_config_of(w), text) == ATOLL_OK);
  else
    fuzz_refused(err);
  atoll_weights_close(&w);
  free(file);
  return err == ATOLL_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const first[] = {"wte.weight", "model.embed_tokens.weight",
                                      "bert.embeddings.word_embeddings.weight",
                                      "roberta.embeddings.word_embeddings.weight"};
  for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
    char *text = NULL, *again = NULL;
    if (!accepted(data, bytes, first[i], &text))
      continue;
    FUZZ_CHECK(accepted((const uint8_t *)text, strlen(text), first[i], &again) && !strcmp(text, again));
    free(text);
    free(again);
  }
  return 0;
}

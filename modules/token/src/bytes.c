/* The vocabulary of the 256 bytes: what models are trained on whose data is plain text (data.train of a file that is no
 * token file). */
#include "token_impl.h"

static atoll_err encode(const atoll_tokenizer *t, const char *name, const unsigned char *text, size_t bytes,
                        atoll_token_sink sink, void *arg) {
  int32_t ids[1024];
  (void)t;
  (void)name;
  for (size_t at = 0; at < bytes;) {
    size_t n = 0;
    for (; n < sizeof ids / sizeof *ids && at < bytes; n++)
      ids[n] = text[at++];
    ATOLL_TRY(sink(arg, ids, n));
  }
  return ATOLL_OK;
}

static const token_kind kind = {"bytes", encode, NULL};

atoll_err token_open_bytes(atoll_tokenizer **out) {
  atoll_tokenizer *t = NULL;
  ATOLL_TRY(token_create(&kind, 256, 256, &t));
  for (int i = 0; i < 256; i++) {
    t->pool[i] = (unsigned char)i;
    t->string[i] = (token_string){t->pool + i, 1};
  }
  *out = t;
  return ATOLL_OK;
}

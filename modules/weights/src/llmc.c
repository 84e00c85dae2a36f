/* llm.c's model checkpoints (karpathy/llm.c, train_gpt2.c): 256 int32, then sixteen tensors, each with all its layers.
 *
 * Version 3 holds float32, version 5 bfloat16; both pad the vocabulary to a multiple of 128 rows, and what pads is not
 * part of the model. Matrices are [out, in]. The header: magic, version, positions, vocabulary, layers, heads, width,
 * padded vocabulary. */
#include "weights_impl.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 1024
#define PAD          128

/* In the order of the file. Sizes in units of the width; rows 0: the vocabulary's, -1: the positions'. */
static const struct {
  const char *name;
  int per_layer, ndim, rows, cols;
} tensors[] = {{"wte.weight", 0, 2, 0, 1},
               {"wpe.weight", 0, 2, -1, 1},
               {"h.%d.ln_1.weight", 1, 1, 1, 0},
               {"h.%d.ln_1.bias", 1, 1, 1, 0},
               {"h.%d.attn.c_attn.weight", 1, 2, 3, 1},
               {"h.%d.attn.c_attn.bias", 1, 1, 3, 0},
               {"h.%d.attn.c_proj.weight", 1, 2, 1, 1},
               {"h.%d.attn.c_proj.bias", 1, 1, 1, 0},
               {"h.%d.ln_2.weight", 1, 1, 1, 0},
               {"h.%d.ln_2.bias", 1, 1, 1, 0},
               {"h.%d.mlp.c_fc.weight", 1, 2, 4, 1},
               {"h.%d.mlp.c_fc.bias", 1, 1, 4, 0},
               {"h.%d.mlp.c_proj.weight", 1, 2, 1, 4},
               {"h.%d.mlp.c_proj.bias", 1, 1, 1, 0},
               {"ln_f.weight", 0, 1, 1, 0},
               {"ln_f.bias", 0, 1, 1, 0}};
#define TENSORS (sizeof tensors / sizeof *tensors)

static int64_t rows_of(size_t k, const atoll_weights_config *c) {
  return tensors[k].rows > 0 ? tensors[k].rows * c->width : tensors[k].rows ? c->context : c->vocab;
}

static int64_t elements_of(size_t k, const atoll_weights_config *c, int64_t padded) {
  int64_t rows = k == 0 ? padded : rows_of(k, c);
  return rows * (tensors[k].ndim > 1 ? tensors[k].cols * c->width : 1);
}

atoll_err weights_read_llmc(atoll_weights *w, weights_part *p) {
  const unsigned char *d = p->map;
  w->format = "llm.c";
  if (p->bytes < HEADER_BYTES)
    return atoll_fail(ATOLL_CORRUPT, "%s: %zu bytes, a header alone has %d", p->path, p->bytes, HEADER_BYTES);
  uint32_t version = weights_u32(d + 4);
  if (version != 3 && version != 5)
    return atoll_fail(ATOLL_CORRUPT, "%s: version %u, expected 3 (float32) or 5 (bfloat16)", p->path, version);
  weights_type type = version == 3 ? TYPE_F32 : TYPE_BF16;
  atoll_weights_config *c = &w->config;
  memcpy(c->family, "gpt2", 5);
  static const char *const what[] = {"positions", "vocabulary", "layers", "heads", "width", "padded vocabulary"};
  int64_t padded = 0, *field[] = {&c->context, &c->vocab, &c->layers, &c->heads, &c->width, &padded};
  for (int i = 0; i < 6; i++) {
    int32_t v = (int32_t)weights_u32(d + 8 + 4 * i);
    if (v < 1 || v > (i == 2 ? 65000 : i == 4 ? 1 << 20 : 1 << 24))
      return atoll_fail(ATOLL_CORRUPT, "%s: the header says %s %d", p->path, what[i], v);
    *field[i] = v;
  }
  if (padded < c->vocab || c->width % c->heads)
    return atoll_fail(ATOLL_CORRUPT, "%s: vocabulary %lld padded to %lld, width %lld of %lld heads", p->path,
                      (long long)c->vocab, (long long)padded, (long long)c->width, (long long)c->heads);
  c->kv_heads = c->heads;
  c->ffn = 4 * c->width;
  double want = 0;
  for (size_t k = 0; k < TENSORS; k++)
    want += (double)elements_of(k, c, padded) * (tensors[k].per_layer ? (double)c->layers : 1);
  want = HEADER_BYTES + want * (double)weights_type_bytes(type);
  if ((double)p->bytes != want)
    return atoll_fail(ATOLL_CORRUPT, "%s: truncated or overlong: %zu bytes, the header says %.0f", p->path, p->bytes,
                      want);
  const unsigned char *at = d + HEADER_BYTES;
  for (size_t k = 0; k < TENSORS; k++)
    for (int layer = 0; layer < (tensors[k].per_layer ? c->layers : 1); layer++) {
      ATOLL_TRY(weights_add_named(w, tensors[k].name, layer, type, tensors[k].ndim, rows_of(k, c),
                                  tensors[k].cols * c->width, at));
      at += (size_t)elements_of(k, c, padded) * weights_type_bytes(type);
    }
  return ATOLL_OK;
}

static atoll_err put_all(atoll_file_writer *f, const atoll_weights_config *c, const atoll_weights_source *s,
                         int64_t padded, atoll_dtype dtype) {
  unsigned char header[HEADER_BYTES] = {0};
  const int64_t word[] = {
      WEIGHTS_LLMC_MAGIC, dtype == ATOLL_F32 ? 3 : 5, c->context, c->vocab, c->layers, c->heads, c->width, padded};
  for (size_t i = 0; i < sizeof word / sizeof *word; i++)
    weights_put_u32(header + 4 * i, (uint32_t)word[i]);
  ATOLL_TRY(atoll_file_writer_add(f, header, sizeof header));
  static const float zeros[256];
  for (size_t k = 0; k < TENSORS; k++)
    for (int layer = 0; layer < (tensors[k].per_layer ? c->layers : 1); layer++) {
      ATOLL_TRY(weights_put_named(f, s, c, tensors[k].name, layer, tensors[k].ndim, rows_of(k, c),
                                  tensors[k].cols * c->width, dtype));
      for (int64_t left = k == 0 ? (padded - c->vocab) * c->width : 0; left > 0; left -= 256)
        ATOLL_TRY(weights_put_values(f, zeros, left < 256 ? left : 256, dtype));
    }
  return ATOLL_OK;
}

atoll_err atoll_weights_write_llmc(const char *path, const atoll_weights_config *c, const atoll_weights_source *s,
                                   atoll_dtype dtype) {
  if (strcmp(c->family, "gpt2") != 0)
    return atoll_fail(ATOLL_UNSUPPORTED, "llm.c's format holds gpt2, not %s", c->family);
  if (c->ffn != 4 * c->width)
    return atoll_fail(ATOLL_UNSUPPORTED, "llm.c's format has an MLP of 4 x width %lld, the model's is %lld",
                      (long long)c->width, (long long)c->ffn);
  if (dtype != ATOLL_F32 && dtype != ATOLL_BF16)
    return atoll_fail(ATOLL_USAGE, "type %s, expected f32 or bf16", atoll_dtype_name(dtype));
  if (c->heads < 1)
    return atoll_fail(ATOLL_USAGE, "llm.c's header wants the number of heads, which is not known");
  atoll_file_writer *f = NULL;
  ATOLL_TRY(atoll_file_writer_open(path, &f));
  atoll_err err = put_all(f, c, s, (c->vocab + PAD - 1) / PAD * PAD, dtype);
  if (err == ATOLL_OK)
    return atoll_file_writer_commit(&f);
  atoll_file_writer_discard(&f);
  return err;
}

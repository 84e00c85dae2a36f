/* llama2.c's model files, version 0 (karpathy/llama2.c, run.c): seven int32, then float32 tensors, each with all its
 * layers.
 *
 * The header: width, MLP width, layers, heads, key and value heads, vocabulary (negative when the head is a matrix of
 * its own), positions. Behind the tensors lie tables of cosines and sines that run.c skips, and then that head. Rows of
 * the query and key matrices are in the order of pairs: element 2 i of a head rotates with 2 i + 1. */
#include "weights_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 28

static const struct {
  const char *name;
  int per_layer, ndim;
  char rows, cols; /* V vocabulary, D width, K width of keys, F MLP width */
} tensors[] = {{"embed_tokens.weight", 0, 2, 'V', 'D'},
               {"layers.%d.input_layernorm.weight", 1, 1, 'D', 0},
               {"layers.%d.self_attn.q_proj.weight", 1, 2, 'D', 'D'},
               {"layers.%d.self_attn.k_proj.weight", 1, 2, 'K', 'D'},
               {"layers.%d.self_attn.v_proj.weight", 1, 2, 'K', 'D'},
               {"layers.%d.self_attn.o_proj.weight", 1, 2, 'D', 'D'},
               {"layers.%d.post_attention_layernorm.weight", 1, 1, 'D', 0},
               {"layers.%d.mlp.gate_proj.weight", 1, 2, 'F', 'D'},
               {"layers.%d.mlp.down_proj.weight", 1, 2, 'D', 'F'},
               {"layers.%d.mlp.up_proj.weight", 1, 2, 'F', 'D'},
               {"norm.weight", 0, 1, 'D', 0}};
#define TENSORS (sizeof tensors / sizeof *tensors)

static int64_t extent(char what, const atoll_weights_config *c) {
  switch (what) {
  case 'V':
    return c->vocab;
  case 'D':
    return c->width;
  case 'K':
    return c->width / c->heads * c->kv_heads;
  case 'F':
    return c->ffn;
  default:
    return 1;
  }
}

static int64_t elements_of(size_t k, const atoll_weights_config *c) {
  return extent(tensors[k].rows, c) * extent(tensors[k].cols, c);
}

/* Sizes of the header when they make sense and add up to the file. */
static int parse(const unsigned char *d, size_t bytes, atoll_weights_config *c) {
  static const int64_t most[] = {1 << 20, 1 << 22, 65000, 1 << 16, 1 << 16, 1 << 24, 1 << 24};
  int64_t v[7];
  if (bytes < HEADER_BYTES)
    return 0;
  for (int i = 0; i < 7; i++) {
    v[i] = (int32_t)weights_u32(d + 4 * i);
    int64_t size = i == 5 && v[i] < 0 ? -v[i] : v[i];
    if (size < 1 || size > most[i])
      return 0;
  }
  if (v[0] % v[3] || v[0] / v[3] % 2 || v[3] % v[4])
    return 0;
  *c = (atoll_weights_config){.family = "llama",
                              .width = v[0],
                              .ffn = v[1],
                              .layers = v[2],
                              .heads = v[3],
                              .kv_heads = v[4],
                              .vocab = v[5] < 0 ? -v[5] : v[5],
                              .untied = v[5] < 0,
                              .context = v[6],
                              .norm_eps = 1e-5,
                              .rope_theta = 10000};
  double n = (double)c->context * (double)(c->width / c->heads) + (c->untied ? (double)(c->vocab * c->width) : 0);
  for (size_t k = 0; k < TENSORS; k++)
    n += (double)elements_of(k, c) * (tensors[k].per_layer ? (double)c->layers : 1);
  return (double)bytes == HEADER_BYTES + 4 * n;
}

int weights_is_llama2c(const unsigned char *data, size_t bytes) {
  atoll_weights_config c;
  return parse(data, bytes, &c);
}

atoll_err weights_read_llama2c(atoll_weights *w, weights_part *p) {
  atoll_weights_config *c = &w->config;
  w->format = "llama2.c";
  if (!parse(p->map, p->bytes, c))
    return atoll_fail(ATOLL_CORRUPT, "%s: %zu bytes do not fit the sizes in the header", p->path, p->bytes);
  const unsigned char *at = (const unsigned char *)p->map + HEADER_BYTES;
  for (size_t k = 0; k < TENSORS; k++)
    for (int layer = 0; layer < (tensors[k].per_layer ? c->layers : 1); layer++) {
      ATOLL_TRY(weights_add_named(w, tensors[k].name, layer, TYPE_F32, tensors[k].ndim, extent(tensors[k].rows, c),
                                  extent(tensors[k].cols, c), at));
      at += 4 * (size_t)elements_of(k, c);
    }
  at += 4 * (size_t)(c->context * (c->width / c->heads));
  return c->untied ? weights_add_named(w, "lm_head.weight", 0, TYPE_F32, 2, c->vocab, c->width, at) : ATOLL_OK;
}

/* Cosines, then sines, of position times frequency: [context, size of head / 2] each. */
static atoll_err put_rotary(atoll_file_writer *f, const atoll_weights_config *c) {
  int64_t half = c->width / c->heads / 2;
  for (int sine = 0; sine < 2; sine++)
    for (int64_t t = 0; t < c->context; t++)
      for (int64_t i = 0; i < half; i++) {
        double angle = (double)t * pow(c->rope_theta, -(double)i / (double)half);
        float v = (float)(sine ? sin(angle) : cos(angle));
        ATOLL_TRY(weights_put_values(f, &v, 1, ATOLL_F32));
      }
  return ATOLL_OK;
}

static atoll_err put_all(atoll_file_writer *f, const atoll_weights_config *c, const atoll_weights_source *s) {
  unsigned char header[HEADER_BYTES];
  const int64_t word[] = {c->width,  c->ffn, c->layers, c->heads, c->kv_heads, c->untied ? -c->vocab : c->vocab,
                          c->context};
  for (int i = 0; i < 7; i++)
    weights_put_u32(header + 4 * i, (uint32_t)word[i]);
  ATOLL_TRY(atoll_file_writer_add(f, header, sizeof header));
  for (size_t k = 0; k < TENSORS; k++)
    for (int layer = 0; layer < (tensors[k].per_layer ? c->layers : 1); layer++)
      ATOLL_TRY(weights_put_named(f, s, c, tensors[k].name, layer, tensors[k].ndim, extent(tensors[k].rows, c),
                                  extent(tensors[k].cols, c), ATOLL_F32));
  ATOLL_TRY(put_rotary(f, c));
  return c->untied ? weights_put_named(f, s, c, "lm_head.weight", 0, 2, c->vocab, c->width, ATOLL_F32) : ATOLL_OK;
}

atoll_err atoll_weights_write_llama2c(const char *path, const atoll_weights_config *c, const atoll_weights_source *s) {
  if (strcmp(c->family, "llama") != 0)
    return atoll_fail(ATOLL_UNSUPPORTED, "llama2.c's format holds llama, not %s", c->family);
  if (c->rope_factor != 0 || c->rope_theta != 10000)
    return atoll_fail(ATOLL_UNSUPPORTED, "llama2.c rotates with theta 10000 and no scaling, the model with %g and %g",
                      c->rope_theta, c->rope_factor);
  if (c->heads < 1 || c->kv_heads < 1 || c->context < 1 || c->width % c->heads || c->width / c->heads % 2 ||
      c->heads % c->kv_heads)
    return atoll_fail(ATOLL_USAGE,
                      "width %lld, heads %lld, key and value heads %lld, positions %lld: expected an even size of "
                      "head that divides the width, and key heads that divide the heads",
                      (long long)c->width, (long long)c->heads, (long long)c->kv_heads, (long long)c->context);
  atoll_file_writer *f = NULL;
  ATOLL_TRY(atoll_file_writer_open(path, &f));
  atoll_err err = put_all(f, c, s);
  if (err == ATOLL_OK)
    return atoll_file_writer_commit(&f);
  atoll_file_writer_discard(&f);
  return err;
}

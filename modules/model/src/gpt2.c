/* GPT-2 (Radford et al. 2019): learnt positions, pre-norm blocks, tanh GELU, projection tied to the token embedding.
 *
 * Names are those of the published checkpoints; matrices are [out, in], row-major (the checkpoints store them
 * transposed). */
#include "atoll/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model_impl.h"

#define BLOCK_PARAMS 12

static int64_t count(const atoll_model_params *c) { return 2 + BLOCK_PARAMS * c->layers + 2; }

struct filler {
  atoll_model *m;
  int layer, n;
};

__attribute__((format(printf, 6, 7))) static void put(struct filler *f, atoll_init init, double std, int64_t rows,
                                                      int64_t cols, const char *fmt, ...) {
  atoll_model_param *p = &f->m->params[f->n++];
  va_list ap;
  va_start(ap, fmt);
  (void)vsnprintf(p->name, sizeof p->name, fmt, ap);
  va_end(ap);
  p->layer = f->layer;
  p->ndim = cols ? 2 : 1;
  p->shape[0] = rows;
  p->shape[1] = cols;
  p->init = init;
  p->init_std = std;
  p->decay = cols != 0;
  p->tied_layer = -1;
}

static atoll_err fill(atoll_model *m) {
  const atoll_model_params *c = &m->config;
  int64_t H = c->width, F = c->ffn;
  double std = c->init_std, residual = std / sqrt(2.0 * (double)c->layers);
  struct filler f = {m, 0, 0};
  put(&f, ATOLL_INIT_NORMAL, std, c->vocab, H, "wte.weight");
  m->params[0].tied_layer = (int)c->layers + 1;
  put(&f, ATOLL_INIT_NORMAL, std, c->context, H, "wpe.weight");
  for (int i = 0; i < c->layers; i++) {
    f.layer = i + 1;
    put(&f, ATOLL_INIT_ONE, 0, H, 0, "h.%d.ln_1.weight", i);
    put(&f, ATOLL_INIT_ZERO, 0, H, 0, "h.%d.ln_1.bias", i);
    put(&f, ATOLL_INIT_NORMAL, std, 3 * H, H, "h.%d.attn.c_attn.weight", i);
    put(&f, ATOLL_INIT_ZERO, 0, 3 * H, 0, "h.%d.attn.c_attn.bias", i);
    put(&f, ATOLL_INIT_NORMAL, residual, H, H, "h.%d.attn.c_proj.weight", i);
    put(&f, ATOLL_INIT_ZERO, 0, H, 0, "h.%d.attn.c_proj.bias", i);
    put(&f, ATOLL_INIT_ONE, 0, H, 0, "h.%d.ln_2.weight", i);
    put(&f, ATOLL_INIT_ZERO, 0, H, 0, "h.%d.ln_2.bias", i);
    put(&f, ATOLL_INIT_NORMAL, std, F, H, "h.%d.mlp.c_fc.weight", i);
    put(&f, ATOLL_INIT_ZERO, 0, F, 0, "h.%d.mlp.c_fc.bias", i);
    put(&f, ATOLL_INIT_NORMAL, residual, H, F, "h.%d.mlp.c_proj.weight", i);
    put(&f, ATOLL_INIT_ZERO, 0, H, 0, "h.%d.mlp.c_proj.bias", i);
  }
  f.layer = (int)c->layers + 1;
  put(&f, ATOLL_INIT_ONE, 0, H, 0, "ln_f.weight");
  put(&f, ATOLL_INIT_ZERO, 0, H, 0, "ln_f.bias");
  return f.n == m->nparams ? ATOLL_OK
                           : atoll_fail(ATOLL_INTERNAL, "gpt2: %d parameters made, %d counted", f.n, m->nparams);
}

static int layer_params(const atoll_model *m, int layer, int *index, int cap) {
  int L = (int)m->config.layers, list[BLOCK_PARAMS], n = 0;
  if (layer == 0) {
    list[n++] = 0;
    list[n++] = 1;
  } else if (layer <= L) {
    for (; n < BLOCK_PARAMS; n++)
      list[n] = 2 + BLOCK_PARAMS * (layer - 1) + n;
  } else {
    list[n++] = 0; /* tied */
    list[n++] = 2 + BLOCK_PARAMS * L;
    list[n++] = 3 + BLOCK_PARAMS * L;
  }
  for (int i = 0; i < n && i < cap; i++)
    index[i] = list[i];
  return n;
}

static int64_t matmul_elements(const atoll_model *m) {
  const atoll_model_params *c = &m->config;
  return c->layers * (4 * c->width * c->width + 2 * c->width * c->ffn) + c->vocab * c->width;
}

/* Matrices: 2 per multiply-add, the same again for each half of backward. Attention: scores and values over the causal
 * half of S x S are 2 S^2 H; its backward redoes the scores and has four products more, 2.5 times. */
static const atoll_sym *flops(const atoll_model *m, atoll_syms *pool, int layer, int backward) {
  const atoll_model_params *c = &m->config;
  const atoll_sym *B = atoll_sym_var(pool, "B", ATOLL_SYM_INT), *S = atoll_sym_var(pool, "S", ATOLL_SYM_INT);
  const atoll_sym *tokens = atoll_sym_mul(pool, B, S);
  int64_t matrix = 0;
  if (layer == c->layers + 1)
    matrix = c->vocab * c->width;
  else if (layer > 0)
    matrix = 4 * c->width * c->width + 2 * c->width * c->ffn;
  const atoll_sym *f = atoll_sym_mul(pool, tokens, atoll_sym_int(pool, (backward ? 4 : 2) * matrix));
  if (layer > 0 && layer <= c->layers)
    f = atoll_sym_add(
        pool, f,
        atoll_sym_mul(pool, atoll_sym_mul(pool, tokens, S), atoll_sym_int(pool, (backward ? 5 : 2) * c->width)));
  return f;
}

const struct model_family model_gpt2 = {"gpt2", count, fill, layer_params, matmul_elements, flops};

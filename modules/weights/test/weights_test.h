/* Files made in memory, and models of random values. */
#ifndef WEIGHTS_TEST_H
#define WEIGHTS_TEST_H

#include <unistd.h>

#include "atoll/fault.h"
#include "atoll/file.h"
#include "atoll/weights.h"
#include "unit_check.h"

static inline void test_refused(atoll_err got, atoll_err want, const char *fragment) {
  if (got != want || !strstr(atoll_err_message(), fragment))
    fail_msg("got %s '%s', wanted %s with '%s'", atoll_err_name(got), atoll_err_message(), atoll_err_name(want),
             fragment);
}

/* A safetensors file of this header and so many bytes of data, owned. */
static inline unsigned char *test_safetensors(const char *header, size_t data, size_t *bytes) {
  size_t n = strlen(header);
  *bytes = 8 + n + data;
  unsigned char *file = calloc(1, *bytes);
  assert_non_null(file);
  for (int i = 0; i < 8; i++)
    file[i] = (unsigned char)(n >> 8 * i);
  memcpy(file + 8, header, n);
  for (size_t i = 0; i < data; i++)
    file[8 + n + i] = (unsigned char)(i * 7 % 64);
  return file;
}

/* Logical tensors in memory. */
typedef struct test_set {
  atoll_weights_item item[128];
  float *value[128];
  int n;
} test_set;

static uint32_t test_seed = 1;
static inline float test_value(void) {
  test_seed = test_seed * 1664525 + 1013904223;
  uint32_t bits = (test_seed >> 9) | 0x3f800000;
  float v;
  memcpy(&v, &bits, 4);
  return (v - 1.5f) * 0.1f;
}

static inline int64_t test_elements(const atoll_weights_item *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++)
    n *= t->shape[i];
  return n;
}

static inline void test_add(test_set *s, const char *name, int64_t rows, int64_t cols) {
  assert_true(s->n < 128);
  atoll_weights_item *t = &s->item[s->n];
  memset(t, 0, sizeof *t);
  snprintf(t->name, sizeof t->name, "%s", name);
  t->ndim = cols ? 2 : 1;
  t->shape[0] = rows;
  t->shape[1] = cols;
  int64_t n = test_elements(t);
  float *v = s->value[s->n++] = malloc((size_t)n * sizeof *v);
  assert_non_null(v);
  for (int64_t i = 0; i < n; i++)
    v[i] = test_value();
}

static inline void test_set_free(test_set *s) {
  for (int i = 0; i < s->n; i++)
    free(s->value[i]);
  s->n = 0;
}

static inline atoll_err test_read(void *arg, int i, float *out) {
  test_set *s = arg;
  memcpy(out, s->value[i], (size_t)test_elements(&s->item[i]) * sizeof *out);
  return ATOLL_OK;
}

static inline atoll_weights_source test_source(test_set *s) {
  return (atoll_weights_source){s->item, s->n, test_read, s};
}

/* The parameters of the preset gpt2-test, and its sizes. */
static inline atoll_model *test_gpt2(test_set *s, atoll_weights_config *c) {
  atoll_model_params p;
  atoll_model *m = NULL;
  atoll_model_params_init(&p);
  snprintf(p.preset, sizeof p.preset, "gpt2-test");
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  s->n = 0;
  for (int i = 0; i < atoll_model_params_count(m); i++) {
    const atoll_model_param *q = atoll_model_param_at(m, i);
    test_add(s, q->name, q->shape[0], q->ndim > 1 ? q->shape[1] : 0);
  }
  const atoll_model_params *r = atoll_model_config(m);
  *c = (atoll_weights_config){.family = "gpt2",
                              .layers = r->layers,
                              .width = r->width,
                              .heads = r->heads,
                              .kv_heads = r->heads,
                              .ffn = r->ffn,
                              .context = r->context,
                              .vocab = r->vocab,
                              .norm_eps = 1e-5};
  return m;
}

/* A llama of 2 layers, 4 heads of 6 and 2 key heads. */
static inline void test_llama(test_set *s, atoll_weights_config *c, int untied) {
  *c = (atoll_weights_config){.family = "llama",
                              .layers = 2,
                              .width = 24,
                              .heads = 4,
                              .kv_heads = 2,
                              .ffn = 40,
                              .context = 16,
                              .vocab = 30,
                              .untied = untied,
                              .norm_eps = 1e-5,
                              .rope_theta = 10000};
  char name[96];
  s->n = 0;
  test_add(s, "embed_tokens.weight", 30, 24);
  for (int i = 0; i < 2; i++) {
    static const struct {
      const char *name;
      int rows, cols;
    } t[] = {{"input_layernorm", 24, 0},   {"self_attn.q_proj", 24, 24}, {"self_attn.k_proj", 12, 24},
             {"self_attn.v_proj", 12, 24}, {"self_attn.o_proj", 24, 24}, {"post_attention_layernorm", 24, 0},
             {"mlp.gate_proj", 40, 24},    {"mlp.up_proj", 40, 24},      {"mlp.down_proj", 24, 40}};
    for (size_t k = 0; k < sizeof t / sizeof *t; k++) {
      snprintf(name, sizeof name, "layers.%d.%s.weight", i, t[k].name);
      test_add(s, name, t[k].rows, t[k].cols);
    }
  }
  test_add(s, "norm.weight", 24, 0);
  if (untied)
    test_add(s, "lm_head.weight", 30, 24);
}

/* w holds exactly the set, bit for bit, or rounded to bfloat16. */
static inline void test_same(atoll_weights *w, const test_set *s, int rounded) {
  assert_int_equal(atoll_weights_count(w), s->n);
  for (int i = 0; i < s->n; i++) {
    int k = atoll_weights_find(w, s->item[i].name);
    if (k < 0)
      fail_msg("no tensor %s", s->item[i].name);
    const atoll_weights_item *t = atoll_weights_at(w, k);
    assert_int_equal(t->ndim, s->item[i].ndim);
    assert_memory_equal(t->shape, s->item[i].shape, sizeof t->shape);
    int64_t n = test_elements(t);
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    assert_int_equal(atoll_weights_read(w, k, v), ATOLL_OK);
    for (int64_t j = 0; j < n; j++) {
      float want = s->value[i][j], error = v[j] - want;
      if (rounded ? error > 0.004f * 0.05f || -error > 0.004f * 0.05f : memcmp(&v[j], &want, 4) != 0)
        fail_msg("%s[%lld] is %.9g, expected %.9g", t->name, (long long)j, v[j], want);
    }
    free(v);
  }
}

#endif

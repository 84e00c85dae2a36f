/* Elements of tensors: types, order, and the numbers of little-endian files on any machine. */
#include "weights_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t weights_u32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t weights_u64(const unsigned char *p) { return weights_u32(p) | (uint64_t)weights_u32(p + 4) << 32; }

void weights_put_u32(unsigned char *p, uint32_t v) {
  for (int i = 0; i < 4; i++)
    p[i] = (unsigned char)(v >> 8 * i);
}

size_t weights_type_bytes(weights_type t) { return t == TYPE_F32 ? 4 : 2; }

int64_t weights_elements(int ndim, const int64_t *shape) {
  int64_t n = 1;
  for (int i = 0; i < ndim; i++)
    n *= shape[i];
  return n;
}

const char *weights_shape_text(int ndim, const int64_t *shape, char *buf, size_t n) {
  size_t at = 0;
  snprintf(buf, n, "scalar");
  for (int i = 0; i < ndim && at < n; i++)
    at += (size_t)snprintf(buf + at, n - at, i ? " x %lld" : "%lld", (long long)shape[i]);
  return buf;
}

static float from_bits(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* IEEE binary16 has 5 bits of exponent and 10 of mantissa; every value, also a subnormal one, is a float. */
static float half(uint32_t h) {
  uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 31)
    return from_bits(sign | 0x7f800000 | mantissa << 13);
  if (exponent == 0) {
    float v = (float)mantissa * 0x1p-24f;
    return sign ? -v : v;
  }
  return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

void weights_decode(weights_type t, const unsigned char *from, int64_t n, float *to) {
  if (t == TYPE_F32)
    for (int64_t i = 0; i < n; i++)
      to[i] = from_bits(weights_u32(from + 4 * i));
  else
    for (int64_t i = 0; i < n; i++) {
      uint32_t v = (uint32_t)from[2 * i] | (uint32_t)from[2 * i + 1] << 8;
      to[i] = t == TYPE_BF16 ? from_bits(v << 16) : half(v);
    }
}

/* To nearest, ties to even; NaN stays NaN. */
static uint32_t to_bf16(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  if (isnan(v))
    return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

atoll_err weights_put_values(atoll_file_writer *f, const float *v, int64_t n, atoll_dtype dtype) {
  unsigned char piece[4096];
  int64_t width = dtype == ATOLL_BF16 ? 2 : 4, most = (int64_t)sizeof piece / width;
  for (int64_t at = 0; at < n;) {
    int64_t k = n - at < most ? n - at : most;
    for (int64_t i = 0; i < k; i++) {
      uint32_t bits;
      memcpy(&bits, &v[at + i], sizeof bits);
      if (dtype == ATOLL_BF16) {
        bits = to_bf16(v[at + i]);
        piece[2 * i] = (unsigned char)bits;
        piece[2 * i + 1] = (unsigned char)(bits >> 8);
      } else {
        weights_put_u32(piece + 4 * i, bits);
      }
    }
    ATOLL_TRY(atoll_file_writer_add(f, piece, (size_t)(k * width)));
    at += k;
  }
  return ATOLL_OK;
}

/* from [rows, cols] to [cols, rows], by tiles that stay in cache. */
static void transpose(int64_t rows, int64_t cols, const float *from, float *to) {
  enum { TILE = 32 };
  for (int64_t r0 = 0; r0 < rows; r0 += TILE)
    for (int64_t c0 = 0; c0 < cols; c0 += TILE)
      for (int64_t r = r0; r < rows && r < r0 + TILE; r++)
        for (int64_t c = c0; c < cols && c < c0 + TILE; c++)
          to[c * rows + r] = from[r * cols + c];
}

void weights_turn_values(weights_turn turn, int inverse, int64_t rows, int64_t cols, int64_t heads, const float *from,
                         float *to) {
  if (turn == TURN_TRANSPOSE) {
    if (inverse)
      transpose(rows, cols, from, to);
    else
      transpose(cols, rows, from, to);
    return;
  }
  int64_t size = rows / heads;
  for (int64_t r = 0; r < rows; r++) {
    int64_t i = r % size, other = r - i + (i % 2) * (size / 2) + i / 2; /* pair i/2, its first or second */
    memcpy(to + (inverse ? r : other) * cols, from + (inverse ? other : r) * cols, (size_t)cols * sizeof *to);
  }
}

int64_t weights_turn_heads(weights_turn turn, const atoll_weights_config *c) {
  return turn == TURN_ROPE_K && c->kv_heads ? c->kv_heads : c->heads;
}

/* ---- writing raw formats ---- */

atoll_err weights_source_find(const atoll_weights_source *s, const char *pattern, int layer, int ndim, int64_t rows,
                              int64_t cols, int *index) {
  char name[96], have[96], want[96];
  const int64_t shape[2] = {rows, cols};
  ATOLL_TRY(weights_rule_name(pattern, layer, name, sizeof name));
  for (int i = 0; i < s->n; i++) {
    const atoll_weights_item *t = &s->item[i];
    if (strcmp(t->name, name) != 0)
      continue;
    if (t->ndim != ndim || t->shape[0] != rows || (ndim > 1 && t->shape[1] != cols))
      return atoll_fail(ATOLL_MISMATCH, "tensor %s is %s, the sizes say %s", name,
                        weights_shape_text(t->ndim, t->shape, have, sizeof have),
                        weights_shape_text(ndim, shape, want, sizeof want));
    *index = i;
    return ATOLL_OK;
  }
  return atoll_fail(ATOLL_MISMATCH, "tensor %s is missing", name);
}

atoll_err weights_put_named(atoll_file_writer *f, const atoll_weights_source *s, const atoll_weights_config *c,
                            const char *pattern, int layer, int ndim, int64_t rows, int64_t cols, atoll_dtype dtype) {
  int i = 0, unused;
  char name[96];
  ATOLL_TRY(weights_source_find(s, pattern, layer, ndim, rows, cols, &i));
  ATOLL_TRY(weights_rule_name(pattern, layer, name, sizeof name));
  const weights_rule *rule = weights_rule_of_model(weights_family_find(c->family), name, &unused);
  weights_turn turn = rule ? rule->raw_turn : TURN_NONE;
  int64_t n = rows * (ndim > 1 ? cols : 1);
  float *v = malloc((size_t)n * sizeof *v), *turned = turn == TURN_NONE ? v : malloc((size_t)n * sizeof *v);
  atoll_err err = v && turned ? s->read(s->arg, i, v) : atoll_fail(ATOLL_NOMEM, "tensor %s", name);
  if (err == ATOLL_OK && turn != TURN_NONE)
    weights_turn_values(turn, 1, rows, cols, weights_turn_heads(turn, c), v, turned);
  if (err == ATOLL_OK)
    err = weights_put_values(f, turned, n, dtype);
  if (turned != v)
    free(turned);
  free(v);
  return err;
}

/* Operations: their nodes, with shapes and types checked, and those of the API that are composed of others.
 *
 * All follow the constructors' rule: operands that are NULL give NULL, and the first mistake stays with the graph. */
#include "graph.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void rt_shape_text(const atoll_rt *x, char *buf, size_t n) {
  size_t used = (size_t)snprintf(buf, n, "[");
  for (int k = 0; k < x->axes && used < n; k++) {
    char extent[64];
    (void)atoll_sym_print(x->shape[k], extent, sizeof extent);
    used += (size_t)snprintf(buf + used, n - used, "%s%s", k ? "," : "", extent);
  }
  if (used < n)
    (void)snprintf(buf + used, n - used, "]");
}

/* A mistake about x, whose name and shape are told. */
static void *wrong(const atoll_rt *x, const char *fmt, ...) ATOLL_PRINTF(2, 3);
static void *wrong(const atoll_rt *x, const char *fmt, ...) {
  char why[300], label[96], shape[200];
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(why, sizeof why, fmt, args);
  va_end(args);
  rt_shape_text(x, shape, sizeof shape);
  return rt_refuse(x->g, ATOLL_USAGE, "%s; %s has type %s and shape %s", why, rt_label(x, label, sizeof label),
                   atoll_dtype_name(x->dtype), shape);
}

static int in_one_graph(int n, atoll_rt *const *x) {
  for (int k = 0; k < n; k++)
    if (!x[k])
      return 0;
  for (int k = 1; k < n; k++)
    if (x[k]->g != x[0]->g) {
      (void)wrong(x[k], "operands of two contexts in one operation");
      (void)wrong(x[0], "operands of two contexts in one operation");
      return 0;
    }
  return 1;
}

/* A node over these operands, all read at the same point, of the last one's type, without a shape yet. */
static atoll_rt *over(rt_op op, int n, atoll_rt *const *x) {
  if (!in_one_graph(n, x))
    return NULL;
  atoll_rt *y = rt_node(x[0]->g, op, x[n - 1]->dtype);
  for (int k = 0; y && k < n; k++)
    if (!rt_connect(y, x[k]))
      return NULL;
  return y;
}

static int resolve_axis(const atoll_rt *x, const char *what, int axis, int axes) {
  int k = axis < 0 ? axis + axes : axis;
  if (k >= 0 && k < axes)
    return k;
  (void)wrong(x, "%s: there is no axis %d", what, axis);
  return -1;
}

/* ---- elementwise ---- */

static int is_one(const atoll_sym *e) {
  int64_t v;
  return rt_is_const(e, &v) && v == 1;
}

static int broadcast(atoll_rt *y, int n, atoll_rt *const *x) {
  for (int k = 0; k < n; k++)
    if (x[k]->axes > y->axes)
      y->axes = x[k]->axes;
  for (int a = 0; a < y->axes; a++) {
    y->shape[a] = rt_int(y->g, 1);
    for (int k = 0; k < n; k++) {
      int own = a - (y->axes - x[k]->axes);
      if (own < 0 || is_one(x[k]->shape[own]) || x[k]->shape[own] == y->shape[a])
        continue;
      if (!is_one(y->shape[a])) {
        char other[200];
        rt_shape_text(x[0], other, sizeof other);
        (void)wrong(x[k], "%s: shape does not match %s", rt_op_name(y->op), other);
        return 0;
      }
      y->shape[a] = x[k]->shape[own];
    }
  }
  return 1;
}

atoll_rt *rt_element(rt_op op, int n, atoll_rt *const *x) {
  if (!in_one_graph(n, x))
    return NULL;
  for (int k = op == RT_WHERE; k < n; k++)
    if (x[k]->dtype != x[n - 1]->dtype)
      return wrong(x[k], "%s of %s and %s: cast one of them", rt_op_name(op), atoll_dtype_name(x[k]->dtype),
                   atoll_dtype_name(x[n - 1]->dtype));
  atoll_rt *y = over(op, n, x);
  return y && broadcast(y, n, x) ? y : NULL;
}

static atoll_rt *unary(rt_op op, atoll_rt *x) { return rt_element(op, 1, &x); }
static atoll_rt *binary(rt_op op, atoll_rt *a, atoll_rt *b) { return rt_element(op, 2, (atoll_rt *[]){a, b}); }

atoll_rt *rt_number(const atoll_rt *like, double v) {
  atoll_rt *x = like ? rt_node(like->g, RT_CONST, like->dtype) : NULL;
  if (x)
    x->value = v;
  return x;
}

#define UNARY(name, op)                                                                                                \
  atoll_rt *atoll_rt_##name(atoll_rt *x) { return unary(op, x); }
UNARY(neg, RT_NEG)
UNARY(exp, RT_EXP)
UNARY(log, RT_LOG)
UNARY(sqrt, RT_SQRT)
UNARY(sin, RT_SIN)
UNARY(cos, RT_COS)
UNARY(tanh, RT_TANH)
UNARY(erf, RT_ERF)
UNARY(abs, RT_ABS)
UNARY(not, RT_NOT)
#undef UNARY
#define BINARY(name, op)                                                                                               \
  atoll_rt *atoll_rt_##name(atoll_rt *a, atoll_rt *b) { return binary(op, a, b); }
BINARY(add, RT_ADD)
BINARY(sub, RT_SUB)
BINARY(mul, RT_MUL)
BINARY(div, RT_DIV)
BINARY(pow, RT_POW)
BINARY(min, RT_MIN)
BINARY(max, RT_MAX)
BINARY(lt, RT_LT)
BINARY(le, RT_LE)
BINARY(eq, RT_EQ)
BINARY(ne, RT_NE)
BINARY(and, RT_AND)
BINARY(or, RT_OR)
#undef BINARY

atoll_rt *atoll_rt_scale(atoll_rt *x, double b) { return binary(RT_MUL, x, rt_number(x, b)); }
atoll_rt *atoll_rt_shift(atoll_rt *x, double b) { return binary(RT_ADD, x, rt_number(x, b)); }

atoll_rt *atoll_rt_where(atoll_rt *condition, atoll_rt *a, atoll_rt *b) {
  return rt_element(RT_WHERE, 3, (atoll_rt *[]){condition, a, b});
}

atoll_rt *atoll_rt_cast(atoll_rt *x, atoll_dtype dtype) {
  if (x && atoll_dtype_bytes(dtype) == 0)
    return wrong(x, "cast to type %d, which there is not", (int)dtype);
  atoll_rt *y = unary(RT_CAST, x);
  if (y)
    y->dtype = dtype;
  return y;
}

atoll_rt *atoll_rt_detach(atoll_rt *x) {
  atoll_rt *y = over(RT_DETACH, 1, &x);
  if (y)
    rt_set_shape(y, x->axes, x->shape);
  return y;
}

atoll_rt *atoll_rt_square(atoll_rt *x) { return binary(RT_MUL, x, x); }
atoll_rt *atoll_rt_relu(atoll_rt *x) { return binary(RT_MAX, x, rt_number(x, 0)); }
atoll_rt *atoll_rt_sigmoid(atoll_rt *x) {
  return binary(RT_DIV, rt_number(x, 1), atoll_rt_shift(atoll_rt_exp(atoll_rt_neg(x)), 1));
}
atoll_rt *atoll_rt_silu(atoll_rt *x) { return atoll_rt_mul(x, atoll_rt_sigmoid(x)); }
atoll_rt *atoll_rt_gelu(atoll_rt *x) {
  return atoll_rt_mul(atoll_rt_scale(x, 0.5), atoll_rt_shift(atoll_rt_erf(atoll_rt_scale(x, M_SQRT1_2)), 1));
}
atoll_rt *atoll_rt_gelu_tanh(atoll_rt *x) {
  atoll_rt *cubic = atoll_rt_scale(atoll_rt_mul(x, atoll_rt_square(x)), 0.044715);
  atoll_rt *inner = atoll_rt_scale(atoll_rt_add(x, cubic), sqrt(2 / M_PI));
  return atoll_rt_mul(atoll_rt_scale(x, 0.5), atoll_rt_shift(atoll_rt_tanh(inner), 1));
}

/* ---- reductions ---- */

static atoll_rt *reduce(rt_op op, atoll_rt *x, int axis) {
  if (!x || (axis = resolve_axis(x, rt_op_name(op), axis, x->axes)) < 0)
    return NULL;
  atoll_rt *y = over(op, 1, &x);
  if (!y)
    return NULL;
  y->axis = axis;
  for (int k = 0; k < x->axes; k++)
    if (k != axis)
      y->shape[y->axes++] = x->shape[k];
  return y;
}

atoll_rt *atoll_rt_sum(atoll_rt *x, int axis) { return reduce(RT_SUM, x, axis); }
atoll_rt *atoll_rt_maximum(atoll_rt *x, int axis) { return reduce(RT_MAXIMUM, x, axis); }

atoll_rt *atoll_rt_argmax(atoll_rt *x, int axis) {
  atoll_rt *y = reduce(RT_ARGMAX, x, axis);
  if (y)
    y->dtype = ATOLL_I32;
  return y;
}

atoll_rt *rt_eval_node(rt_graph *g, atoll_dtype dtype, const atoll_sym *e, int axes, const atoll_sym *const *shape) {
  atoll_rt *x = e ? rt_node(g, RT_EVAL, dtype) : NULL;
  if (!x)
    return NULL;
  x->expr = e;
  x->dims = rt_dims_of(g, e);
  rt_set_shape(x, axes, shape);
  for (int k = 0; k < axes; k++)
    x->dims |= rt_dims_of(g, shape[k]);
  return x;
}

/* x with an axis of extent 1 at `axis`. */
static atoll_rt *insert_axis(atoll_rt *x, int axis) {
  const atoll_sym *shape[RT_AXES];
  if (!x || x->axes == RT_AXES)
    return NULL;
  for (int k = 0; k <= x->axes; k++)
    shape[k] = k == axis ? rt_int(x->g, 1) : x->shape[k < axis ? k : k - 1];
  return rt_reshape(x, x->axes + 1, shape);
}

atoll_rt *atoll_rt_mean(atoll_rt *x, int axis) {
  atoll_rt *total = atoll_rt_sum(x, axis);
  if (!total)
    return NULL;
  return atoll_rt_div(total, rt_eval_node(x->g, x->dtype, x->shape[axis < 0 ? axis + x->axes : axis], 0, NULL));
}

atoll_rt *atoll_rt_mean_all(atoll_rt *x) {
  while (x && x->axes > 0)
    x = atoll_rt_mean(x, -1);
  return x;
}

/* value^k along the leading axis of x, with that axis alone. */
static atoll_rt *powers(atoll_rt *x, double gamma) {
  atoll_rt *k = rt_eval_node(x->g, x->dtype, rt_axis(x->g, 0), 1, x->shape);
  const atoll_sym *shape[RT_AXES];
  for (int a = 0; a < x->axes; a++)
    shape[a] = a == 0 ? x->shape[0] : rt_int(x->g, 1);
  return rt_reshape(atoll_rt_pow(rt_number(x, gamma), k), x->axes, shape);
}

atoll_rt *atoll_rt_dsum(atoll_rt *x, double gamma) {
  if (!x)
    return NULL;
  if (x->axes == 0)
    return wrong(x, "discounted sum of a scalar");
  return atoll_rt_sum(atoll_rt_mul(powers(x, gamma), x), 0);
}

/* ---- contractions ---- */

static const atoll_sym *label_extent(const atoll_rt *x, const char *labels, int n, char c) {
  for (int k = 0; k < n; k++)
    if (labels[k] == c)
      return x->shape[k];
  return NULL;
}

atoll_rt *atoll_rt_einsum(const char *spec, atoll_rt *a, atoll_rt *b) {
  atoll_rt *x[2] = {a, b};
  const char *comma = spec ? strchr(spec, ',') : NULL, *arrow = comma ? strstr(comma, "->") : NULL;
  if (!in_one_graph(2, x))
    return NULL;
  if (!arrow)
    return wrong(a, "einsum '%s': expected \"labels,labels->labels\"", spec ? spec : "");
  const char *labels[3] = {spec, comma + 1, arrow + 2};
  int n[3] = {(int)(comma - spec), (int)(arrow - comma - 1), (int)strlen(arrow + 2)};
  for (int i = 0; i < 2; i++)
    if (n[i] != x[i]->axes)
      return wrong(x[i], "einsum '%s': %d labels for operand %d, which has %d axes", spec, n[i], i, x[i]->axes);
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < n[i]; k++) {
      char c = labels[i][k];
      int in_a = memchr(labels[0], c, (size_t)n[0]) != NULL, in_b = memchr(labels[1], c, (size_t)n[1]) != NULL;
      int in_y = memchr(labels[2], c, (size_t)n[2]) != NULL;
      if (!isalpha((unsigned char)c) || memchr(labels[i] + k + 1, c, (size_t)(n[i] - k - 1)) || in_a + in_b + in_y < 2)
        return wrong(a, "einsum '%s': label '%c' is not in two of the three, is twice in one, or is no letter", spec,
                     c);
      if (in_a && in_b && label_extent(a, labels[0], n[0], c) != label_extent(b, labels[1], n[1], c)) {
        char other[200];
        rt_shape_text(b, other, sizeof other);
        return wrong(a, "einsum '%s': extents of '%c' differ, the other operand is %s", spec, c, other);
      }
    }
  if (a->dtype != b->dtype || n[2] > RT_AXES)
    return wrong(a, "einsum '%s': the other operand is %s", spec, atoll_dtype_name(b->dtype));
  atoll_rt *y = over(RT_EINSUM, 2, x);
  if (!y || !(y->spec = rt_copy_text(y->g, spec)))
    return NULL;
  y->axes = n[2];
  for (int k = 0; k < n[2]; k++) {
    const atoll_sym *e = label_extent(a, labels[0], n[0], labels[2][k]);
    y->shape[k] = e ? e : label_extent(b, labels[1], n[1], labels[2][k]);
  }
  return y;
}

atoll_rt *atoll_rt_mv(atoll_rt *w, atoll_rt *x) { return atoll_rt_einsum("oi,i->o", w, x); }
atoll_rt *atoll_rt_matmul(atoll_rt *a, atoll_rt *b) { return atoll_rt_einsum("mk,kn->mn", a, b); }

/* ---- shapes ---- */

static const atoll_sym *product(rt_graph *g, int n, const atoll_sym *const *shape) {
  const atoll_sym *p = rt_int(g, 1);
  for (int k = 0; k < n; k++)
    p = atoll_sym_mul(g->syms, p, shape[k]);
  return p;
}

static atoll_rt *shaped(rt_op op, atoll_rt *x, int axes, const atoll_sym *const *shape) {
  atoll_rt *y = over(op, 1, &x);
  if (!y)
    return NULL;
  rt_set_shape(y, axes, shape);
  for (int k = 0; k < axes; k++)
    y->dims |= rt_dims_of(y->g, shape[k]);
  return y;
}

atoll_rt *rt_reshape(atoll_rt *x, int axes, const atoll_sym *const *shape) {
  if (!x)
    return NULL;
  if (product(x->g, axes, shape) != product(x->g, x->axes, x->shape))
    return wrong(x, "reshape: the number of elements would change");
  return shaped(RT_RESHAPE, x, axes, shape);
}

atoll_rt *rt_expand(atoll_rt *x, int axes, const atoll_sym *const *shape) {
  if (!x)
    return NULL;
  for (int k = 0; k < x->axes; k++)
    if (x->axes > axes || (!is_one(x->shape[k]) && x->shape[k] != shape[axes - x->axes + k]))
      return wrong(x, "expand: the shape does not fit");
  return shaped(RT_EXPAND, x, axes, shape);
}

atoll_rt *rt_slice(atoll_rt *x, int axis, const atoll_sym *start, const atoll_sym *extent) {
  atoll_rt *y = x ? shaped(RT_SLICE, x, x->axes, x->shape) : NULL;
  if (!y)
    return NULL;
  y->axis = axis;
  y->start[0] = start;
  y->shape[axis] = extent;
  y->dims |= rt_dims_of(y->g, start) | rt_dims_of(y->g, extent);
  return y;
}

atoll_rt *atoll_rt_reshape(atoll_rt *x, atoll_rt_shape shape) {
  const atoll_sym *to[RT_AXES];
  if (!x)
    return NULL;
  if (shape.n < 0 || shape.n > RT_AXES)
    return wrong(x, "reshape: %d axes, at most %d are possible", shape.n, RT_AXES);
  for (int k = 0; k < shape.n; k++) {
    if (shape.extent[k] != ATOLL_RT_KEEP)
      to[k] = rt_int(x->g, shape.extent[k]);
    else if (k < x->axes)
      to[k] = x->shape[k];
    else
      return wrong(x, "reshape: axis %d has nothing to keep", k);
  }
  return rt_reshape(x, shape.n, to);
}

atoll_rt *atoll_rt_permute(atoll_rt *x, const int *order) {
  const atoll_sym *to[RT_AXES];
  unsigned seen = 0;
  if (!x)
    return NULL;
  for (int k = 0; k < x->axes; k++) {
    if (order[k] < 0 || order[k] >= x->axes || seen >> order[k] & 1u)
      return wrong(x, "permute: axis %d of the order is %d", k, order[k]);
    seen |= 1u << order[k];
    to[k] = x->shape[order[k]];
  }
  atoll_rt *y = shaped(RT_PERMUTE, x, x->axes, to);
  for (int k = 0; y && k < x->axes; k++)
    y->order[k] = order[k];
  return y;
}

atoll_rt *atoll_rt_concat(atoll_rt *a, atoll_rt *b, int axis) {
  if (!a || !b || (axis = resolve_axis(a, "concat", axis, a->axes)) < 0)
    return NULL;
  int fits = a->axes == b->axes && a->dtype == b->dtype;
  for (int k = 0; fits && k < a->axes; k++)
    fits = k == axis || a->shape[k] == b->shape[k];
  if (!fits)
    return wrong(b, "concat: shapes or types differ beyond axis %d", axis);
  atoll_rt *y = over(RT_CONCAT, 2, (atoll_rt *[]){a, b});
  if (!y)
    return NULL;
  y->axis = axis;
  rt_set_shape(y, a->axes, a->shape);
  y->shape[axis] = atoll_sym_add(y->g->syms, a->shape[axis], b->shape[axis]);
  return y;
}

atoll_rt *atoll_rt_slice(atoll_rt *x, int axis, int64_t start, int64_t extent) {
  int64_t whole;
  if (!x || (axis = resolve_axis(x, "slice", axis, x->axes)) < 0)
    return NULL;
  if (start < 0 || extent < 0 || start > RT_ELEMENTS_MOST || extent > RT_ELEMENTS_MOST ||
      (rt_is_const(x->shape[axis], &whole) && start + extent > whole))
    return wrong(x, "slice of axis %d: %lld elements from %lld do not lie within it", axis, (long long)extent,
                 (long long)start);
  return rt_slice(x, axis, rt_int(x->g, start), rt_int(x->g, extent));
}

static int is_integer(atoll_dtype t) { return t == ATOLL_I32 || t == ATOLL_I64 || t == ATOLL_U16 || t == ATOLL_U8; }

atoll_rt *atoll_rt_take(atoll_rt *table, atoll_rt *indices) {
  if (!table || !indices)
    return NULL;
  if (!is_integer(indices->dtype))
    return wrong(indices, "take: indices must be integers");
  if (table->axes == 0 || table->axes - 1 + indices->axes > RT_AXES)
    return wrong(table, "take: the table needs at least one axis, and not too many");
  atoll_rt *y = over(RT_TAKE, 2, (atoll_rt *[]){table, indices});
  if (!y)
    return NULL;
  y->dtype = table->dtype;
  rt_set_shape(y, indices->axes, indices->shape);
  for (int k = 1; k < table->axes; k++)
    y->shape[y->axes++] = table->shape[k];
  return y;
}

/* ---- composed ---- */

atoll_rt *atoll_rt_softmax(atoll_rt *x, int axis) {
  if (!x || (axis = resolve_axis(x, "softmax", axis, x->axes)) < 0)
    return NULL;
  atoll_rt *top = atoll_rt_detach(insert_axis(atoll_rt_maximum(x, axis), axis));
  atoll_rt *e = atoll_rt_exp(atoll_rt_sub(x, top));
  return atoll_rt_div(e, insert_axis(atoll_rt_sum(e, axis), axis));
}

atoll_rt *atoll_rt_log_softmax(atoll_rt *x, int axis) {
  if (!x || (axis = resolve_axis(x, "log_softmax", axis, x->axes)) < 0)
    return NULL;
  atoll_rt *top = atoll_rt_detach(insert_axis(atoll_rt_maximum(x, axis), axis));
  atoll_rt *d = atoll_rt_sub(x, top);
  return atoll_rt_sub(d, insert_axis(atoll_rt_log(atoll_rt_sum(atoll_rt_exp(d), axis)), axis));
}

/* x / sqrt(mean of squares over the last axis + epsilon) */
static atoll_rt *normalized(atoll_rt *x, double epsilon) {
  if (!x)
    return NULL;
  if (x->axes == 0)
    return wrong(x, "normalisation of a scalar");
  atoll_rt *mean = insert_axis(atoll_rt_mean(atoll_rt_square(x), -1), x->axes - 1);
  return atoll_rt_div(x, atoll_rt_sqrt(atoll_rt_shift(mean, epsilon)));
}

atoll_rt *atoll_rt_rmsnorm(atoll_rt *x, atoll_rt *weight, double epsilon) {
  atoll_rt *y = normalized(x, epsilon);
  return weight ? atoll_rt_mul(y, weight) : y;
}

atoll_rt *atoll_rt_layernorm(atoll_rt *x, atoll_rt *weight, atoll_rt *bias, double epsilon) {
  if (!x)
    return NULL;
  if (x->axes == 0)
    return wrong(x, "normalisation of a scalar");
  atoll_rt *centred = atoll_rt_sub(x, insert_axis(atoll_rt_mean(x, -1), x->axes - 1));
  atoll_rt *y = normalized(centred, epsilon);
  y = weight ? atoll_rt_mul(y, weight) : y;
  return bias ? atoll_rt_add(y, bias) : y;
}

atoll_rt *atoll_rt_rope(atoll_rt *x, atoll_rt *position, double theta) {
  int64_t width;
  if (!x || !position)
    return NULL;
  if (x->axes == 0 || !rt_is_const(x->shape[x->axes - 1], &width) || width % 2 || position->axes != 0)
    return wrong(x, "rope: the last axis must be even and the position a scalar");
  const int64_t half = width / 2;
  const atoll_sym *extent = rt_int(x->g, half);
  atoll_rt *k = rt_eval_node(x->g, x->dtype, rt_axis(x->g, 0), 1, &extent);
  return atoll_rt_rotate(x, position, atoll_rt_exp(atoll_rt_scale(k, -2 * log(theta) / (double)width)));
}

atoll_rt *atoll_rt_rotate(atoll_rt *x, atoll_rt *position, atoll_rt *frequency) {
  int64_t width, pairs;
  if (!x || !position || !frequency)
    return NULL;
  if (x->axes == 0 || !rt_is_const(x->shape[x->axes - 1], &width) || width % 2 || position->axes != 0)
    return wrong(x, "rope: the last axis must be even and the position a scalar");
  const int64_t half = width / 2;
  if (frequency->axes != 1 || !rt_is_const(frequency->shape[0], &pairs) || pairs != half ||
      frequency->dtype != x->dtype)
    return wrong(x, "rope: a frequency of its type for each of %lld pairs is needed", (long long)half);
  atoll_rt *angle = atoll_rt_mul(frequency, position->dtype == x->dtype ? position : atoll_rt_cast(position, x->dtype));
  atoll_rt *c = atoll_rt_cos(angle), *s = atoll_rt_sin(angle);
  atoll_rt *a = atoll_rt_slice(x, -1, 0, half), *b = atoll_rt_slice(x, -1, half, half);
  return atoll_rt_concat(atoll_rt_sub(atoll_rt_mul(a, c), atoll_rt_mul(b, s)),
                         atoll_rt_add(atoll_rt_mul(b, c), atoll_rt_mul(a, s)), -1);
}

atoll_rt *atoll_rt_normal_logp(atoll_rt *mean, atoll_rt *x) {
  atoll_rt *terms = atoll_rt_shift(atoll_rt_scale(atoll_rt_square(atoll_rt_sub(x, mean)), -0.5), -0.5 * log(2 * M_PI));
  return atoll_rt_sum(terms, -1);
}

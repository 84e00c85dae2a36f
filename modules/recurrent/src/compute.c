/* Plain definitions of the operations on dense row-major arrays. */
#include "emitted.h"
#include "interp.h"

#include <math.h>
#include <string.h>

/* ---- element types ---- */

void rt_limits(atoll_dtype t, double *least, double *most) {
  switch (t) {
  case ATOLL_I32:
    *least = INT32_MIN;
    *most = INT32_MAX;
    break;
  case ATOLL_I64: /* the largest double that is one */
    *least = -0x1p63;
    *most = 0x1p63 - 0x1p10;
    break;
  default:
    *least = 0;
    *most = t == ATOLL_U16 ? UINT16_MAX : UINT8_MAX;
  }
}

double rt_round(atoll_dtype t, double v) {
  uint32_t bits;
  float f = (float)v;
  double least, most;
  switch (t) {
  case ATOLL_F64:
    return v;
  case ATOLL_F32:
    return f;
  case ATOLL_BF16: /* to nearest even */
    if (!isfinite(f))
      return f;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    memcpy(&f, &bits, sizeof f);
    return f;
  default:
    rt_limits(t, &least, &most);
    return rt_whole(v, least, most);
  }
}

double rt_load(atoll_dtype t, const void *data, int64_t i) {
  switch (t) {
  case ATOLL_F64:
    return ((const double *)data)[i];
  case ATOLL_F32:
    return ((const float *)data)[i];
  case ATOLL_BF16: {
    uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
  }
  case ATOLL_I32:
    return ((const int32_t *)data)[i];
  case ATOLL_I64:
    return (double)((const int64_t *)data)[i];
  case ATOLL_U16:
    return ((const uint16_t *)data)[i];
  default:
    return ((const uint8_t *)data)[i];
  }
}

void rt_store(atoll_dtype t, void *data, int64_t i, double v) {
  float f = (float)v;
  uint32_t bits;
  switch (t) {
  case ATOLL_F64:
    ((double *)data)[i] = v;
    break;
  case ATOLL_F32:
    ((float *)data)[i] = f;
    break;
  case ATOLL_BF16:
    memcpy(&bits, &f, sizeof bits);
    ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    break;
  case ATOLL_I32:
    ((int32_t *)data)[i] = (int32_t)v;
    break;
  case ATOLL_I64:
    ((int64_t *)data)[i] = (int64_t)v;
    break;
  case ATOLL_U16:
    ((uint16_t *)data)[i] = (uint16_t)v;
    break;
  default:
    ((uint8_t *)data)[i] = (uint8_t)v;
  }
}

/* ---- walking indices ---- */

/* The next index of a box; 0 after the last. */
static int step(int n, const int64_t *extent, int64_t *at) {
  for (int k = n - 1; k >= 0; k--) {
    if (++at[k] < extent[k])
      return 1;
    at[k] = 0;
  }
  return 0;
}

static void strides(const rt_value *v, int64_t *stride) {
  int64_t s = 1;
  for (int k = v->axes - 1; k >= 0; k--) {
    stride[k] = s;
    s *= v->shape[k];
  }
}

/* Strides of v as broadcast to y's axes. */
static void broadcast_strides(const rt_value *v, const rt_value *y, int64_t *stride) {
  int64_t own[RT_AXES];
  strides(v, own);
  for (int k = 0; k < y->axes; k++) {
    int a = k - (y->axes - v->axes);
    stride[k] = a < 0 || v->shape[a] == 1 ? 0 : own[a];
  }
}

static int64_t dot(int n, const int64_t *a, const int64_t *b) {
  int64_t s = 0;
  for (int k = 0; k < n; k++)
    s += a[k] * b[k];
  return s;
}

/* ---- elementwise ---- */

static double element(rt_op op, const double *a) {
  switch (op) {
  case RT_NEG:
    return -a[0];
  case RT_EXP:
    return exp(a[0]);
  case RT_LOG:
    return log(a[0]);
  case RT_SQRT:
    return sqrt(a[0]);
  case RT_SIN:
    return sin(a[0]);
  case RT_COS:
    return cos(a[0]);
  case RT_TANH:
    return tanh(a[0]);
  case RT_ERF:
    return erf(a[0]);
  case RT_ABS:
    return fabs(a[0]);
  case RT_NOT:
    return a[0] == 0;
  case RT_ADD:
    return a[0] + a[1];
  case RT_SUB:
    return a[0] - a[1];
  case RT_MUL:
    return a[0] * a[1];
  case RT_DIV:
    return a[0] / a[1];
  case RT_POW:
    return pow(a[0], a[1]);
  case RT_MIN:
    return a[0] < a[1] ? a[0] : a[1];
  case RT_MAX:
    return a[0] > a[1] ? a[0] : a[1];
  case RT_LT:
    return a[0] < a[1];
  case RT_LE:
    return a[0] <= a[1];
  case RT_EQ:
    return a[0] == a[1];
  case RT_NE:
    return a[0] != a[1];
  case RT_AND:
    return a[0] != 0 && a[1] != 0;
  case RT_OR:
    return a[0] != 0 || a[1] != 0;
  case RT_WHERE:
    return a[0] != 0 ? a[1] : a[2];
  default: /* CAST and views */
    return a[0];
  }
}

static void elements(const atoll_rt *x, const rt_value *const *in, rt_value *y) {
  int64_t stride[3][RT_AXES], at[RT_AXES] = {0}, i = 0;
  for (int k = 0; k < x->inputs; k++)
    broadcast_strides(in[k], y, stride[k]);
  if (y->count == 0)
    return;
  do {
    double a[3];
    for (int k = 0; k < x->inputs; k++)
      a[k] = in[k]->data[dot(y->axes, at, stride[k])];
    y->data[i++] = rt_round(y->dtype, element(x->op, a));
  } while (step(y->axes, y->shape, at));
}

/* ---- reductions and contractions ---- */

static void reduce(const atoll_rt *x, const rt_value *a, rt_value *y) {
  int64_t inner = 1, n = a->shape[x->axis];
  for (int k = x->axis + 1; k < a->axes; k++)
    inner *= a->shape[k];
  for (int64_t i = 0; i < y->count; i++) {
    const double *p = a->data + i / inner * n * inner + i % inner;
    double sum = 0, top = -INFINITY;
    int64_t best = 0;
    for (int64_t k = 0; k < n; k++) {
      sum += p[k * inner];
      if (p[k * inner] > top) {
        top = p[k * inner];
        best = k;
      }
    }
    y->data[i] = rt_round(y->dtype, x->op == RT_SUM ? sum : x->op == RT_MAXIMUM ? top : (double)best);
  }
}

static void einsum(const atoll_rt *x, const rt_value *const *in, rt_value *y) {
  const char *comma = strchr(x->spec, ','), *arrow = strstr(comma, "->");
  const char *labels[3] = {x->spec, comma + 1, arrow + 2};
  const rt_value *v[3] = {in[0], in[1], y};
  char all[2 * RT_AXES + 1];
  int64_t extent[2 * RT_AXES], stride[3][2 * RT_AXES] = {{0}}, at[2 * RT_AXES] = {0};
  int n = 0;
  for (int i = 0; i < 3; i++) {
    int64_t own[RT_AXES];
    strides(v[i], own);
    for (int k = 0; k < v[i]->axes; k++) {
      int l = 0;
      while (l < n && all[l] != labels[i][k])
        l++;
      if (l == n) {
        all[n++] = labels[i][k];
        extent[l] = v[i]->shape[k];
      }
      stride[i][l] = own[k];
    }
  }
  for (int l = 0; l < n; l++)
    if (extent[l] == 0)
      return;
  do
    y->data[dot(n, at, stride[2])] += in[0]->data[dot(n, at, stride[0])] * in[1]->data[dot(n, at, stride[1])];
  while (step(n, extent, at));
  for (int64_t i = 0; i < y->count; i++)
    y->data[i] = rt_round(y->dtype, y->data[i]);
}

/* ---- moving data ---- */

/* y[at] = a[origin + at * stride] over the box of `extent`, written at y's origin. */
static void move(const rt_value *a, int64_t from, const int64_t *from_stride, rt_value *y, int64_t to, int axes,
                 const int64_t *extent) {
  int64_t at[RT_AXES] = {0}, to_stride[RT_AXES];
  strides(y, to_stride);
  for (int k = 0; k < axes; k++)
    if (extent[k] == 0)
      return;
  do
    y->data[to + dot(axes, at, to_stride)] = a->data[from + dot(axes, at, from_stride)];
  while (step(axes, extent, at));
}

atoll_err rt_outside(const atoll_rt *x, const int64_t point[RT_DIMS], int64_t at, int64_t extent) {
  char label[96], of[96], where[128];
  return atoll_fail(ATOLL_USAGE, "%s of %s%s: index %lld, the axis has %lld elements", rt_label(x, label, sizeof label),
                    rt_label(rt_src(x->g, &x->in[0]), of, sizeof of), rt_point_text(x, point, where, sizeof where),
                    (long long)at, (long long)extent);
}

static atoll_err slice(const atoll_rt *x, const rt_env *env, const rt_value *a, rt_value *y) {
  int64_t start, stride[RT_AXES];
  const rt_value *small = x->op == RT_SLICE ? y : a, *large = x->op == RT_SLICE ? a : y;
  ATOLL_TRY(rt_eval(x->g, x->start[0], env, &start));
  if (start < 0 || start + small->shape[x->axis] > large->shape[x->axis])
    return rt_outside(x, env->dim, start < 0 ? start : start + small->shape[x->axis] - 1, large->shape[x->axis]);
  if (x->op == RT_PAD)
    for (int64_t i = 0; i < y->count; i++)
      y->data[i] = rt_round(y->dtype, x->value);
  strides(large, stride);
  int64_t origin = start * stride[x->axis];
  strides(a, stride);
  move(a, x->op == RT_SLICE ? origin : 0, stride, y, x->op == RT_SLICE ? 0 : origin, small->axes, small->shape);
  return ATOLL_OK;
}

static void concat(const atoll_rt *x, const rt_value *const *in, rt_value *y) {
  int64_t stride[RT_AXES], to[RT_AXES];
  strides(y, to);
  for (int k = 0; k < 2; k++) {
    strides(in[k], stride);
    move(in[k], 0, stride, y, k ? in[0]->shape[x->axis] * to[x->axis] : 0, y->axes, in[k]->shape);
  }
}

static void permute(const atoll_rt *x, const rt_value *a, rt_value *y) {
  int64_t own[RT_AXES], stride[RT_AXES];
  strides(a, own);
  for (int k = 0; k < y->axes; k++)
    stride[k] = own[x->order[k]];
  move(a, 0, stride, y, 0, y->axes, y->shape);
}

/* TAKE reads rows of the table, SCATTER adds rows to it. */
static atoll_err rows(const atoll_rt *x, const rt_env *env, const rt_value *const *in, rt_value *y) {
  const rt_value *table = x->op == RT_TAKE ? in[0] : y, *index = in[1];
  int64_t width = 1;
  for (int k = 1; k < table->axes; k++)
    width *= table->shape[k];
  for (int64_t i = 0; i < index->count; i++) {
    int64_t r = (int64_t)index->data[i];
    if (r < 0 || r >= table->shape[0])
      return rt_outside(x, env->dim, r, table->shape[0]);
    for (int64_t k = 0; k < width; k++) {
      if (x->op == RT_TAKE)
        y->data[i * width + k] = table->data[r * width + k];
      else
        y->data[r * width + k] = rt_round(y->dtype, y->data[r * width + k] + in[0]->data[i * width + k]);
    }
  }
  return ATOLL_OK;
}

/* ---- values that depend on the position alone ---- */

atoll_rng_key rt_random_key(const rt_graph *g, int serial, int n, const int64_t *coordinate) {
  uint64_t h = 0;
  for (int k = 0; k < n; k++) { /* one coordinate is itself, several are mixed */
    h *= UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
    h += (uint64_t)coordinate[k];
  }
  return (atoll_rng_key){.seed = g->seed, .step = h, .sample = (uint64_t)serial, .site = ATOLL_RNG_RECURRENT};
}

static atoll_err random_value(const atoll_rt *x, const rt_env *env, double *out) {
  int64_t coordinate[RT_AXES], i;
  float f;
  for (int k = 0; k < x->picks; k++)
    ATOLL_TRY(rt_eval(x->g, x->start[k], env, &coordinate[k]));
  ATOLL_TRY(rt_eval(x->g, x->expr, env, &i));
  atoll_rng_key key = rt_random_key(x->g, x->serial, x->picks, coordinate);
  if (x->normal)
    atoll_rng_fill_normal(&key, (uint64_t)i, 1, 1.0f, &f);
  else
    f = atoll_rng_uniform(&key, (uint64_t)i);
  *out = f;
  return ATOLL_OK;
}

static atoll_err positions(const atoll_rt *x, rt_env *env, rt_value *y) {
  int64_t at[RT_AXES] = {0}, v, i = 0;
  if (y->count == 0)
    return ATOLL_OK;
  do {
    for (int k = 0; k < y->axes; k++)
      env->axis[k] = at[k];
    if (x->op == RT_RAND) {
      ATOLL_TRY(random_value(x, env, &y->data[i++]));
    } else {
      ATOLL_TRY(rt_eval(x->g, x->expr, env, &v));
      y->data[i++] = rt_round(y->dtype, (double)v);
    }
  } while (step(y->axes, y->shape, at));
  return ATOLL_OK;
}

atoll_err rt_compute(const atoll_rt *x, rt_env *env, const rt_value *const *in, rt_value *y) {
  if (rt_is_element(x->op) || x->op == RT_EXPAND) {
    elements(x, in, y);
    return ATOLL_OK;
  }
  switch (x->op) {
  case RT_CONST:
    for (int64_t i = 0; i < y->count; i++)
      y->data[i] = rt_round(y->dtype, x->value);
    return ATOLL_OK;
  case RT_EVAL:
  case RT_RAND:
    return positions(x, env, y);
  case RT_IDENT:
  case RT_DETACH:
  case RT_RESHAPE:
    memcpy(y->data, in[0]->data, (size_t)y->count * sizeof *y->data);
    return ATOLL_OK;
  case RT_SUM:
  case RT_MAXIMUM:
  case RT_ARGMAX:
    reduce(x, in[0], y);
    return ATOLL_OK;
  case RT_EINSUM:
    einsum(x, in, y);
    return ATOLL_OK;
  case RT_PERMUTE:
    permute(x, in[0], y);
    return ATOLL_OK;
  case RT_CONCAT:
    concat(x, in, y);
    return ATOLL_OK;
  case RT_SLICE:
  case RT_PAD:
    return slice(x, env, in[0], y);
  case RT_TAKE:
  case RT_SCATTER:
    return rows(x, env, in, y);
  default:
    return atoll_fail(ATOLL_INTERNAL, "operation %s is not computed by itself", rt_op_name(x->op));
  }
}

/* Loops that compute a member's value, by kind of operation. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "emitted.h"

enum { ELEMENT_WORK = 4 }; /* operations of an element of a map, roughly */

static const char *const axis_name[RT_AXES] = {"i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8", "i9"};

void rt_simd(rt_emitter *em) { rt_line(em, "_Pragma(\"omp simd\")"); }

/* Before a loop over elements of this shape, outermost or (simd) the only one: threads share it if they are many. */
static void share_elements(rt_emitter *em, int axes, const atoll_sym *const *shape, const char *vector) {
  int64_t extent, known = 1;
  for (int k = 0; k < axes; k++)
    known *= rt_is_const(shape[k], &extent) ? extent : RT_PARALLEL;
  if (known * ELEMENT_WORK < RT_PARALLEL) {
    if (*vector)
      rt_simd(em);
    return;
  }
  const char *parts = rt_text(em, "rt_parts(r, %s * %d)", rt_count(em, axes, shape, 0), ELEMENT_WORK);
  rt_line(em, "_Pragma(\"omp parallel for%s num_threads(%s) if (%s > 1)\")", vector, parts, parts);
}

/* Rows of a few elements are unrolled, and lanes are of rows. */
enum { SHORT_ROW = 8 };

static int is_short(const atoll_sym *n) {
  int64_t extent;
  return rt_is_const(n, &extent) && extent <= SHORT_ROW;
}

static void unroll(rt_emitter *em) { rt_line(em, "_Pragma(\"GCC unroll %d\")", SHORT_ROW); }

/* ---- maps: one element from elements at positions that are computed from its own ---- */

int rt_is_map(rt_op op) {
  switch (op) {
  case RT_EVAL:
  case RT_IDENT:
  case RT_DETACH:
  case RT_RESHAPE:
  case RT_EXPAND:
  case RT_PERMUTE:
  case RT_CONCAT:
  case RT_SLICE:
  case RT_PAD:
    return 1;
  default:
    return rt_is_element(op);
  }
}

int rt_is_formula(const rt_emitter *em, const atoll_rt *x, int k) {
  return rt_src(em->g, &x->in[k])->op == RT_EVAL && rt_is_map(x->op) && x->op != RT_RESHAPE;
}

int rt_is_fused(const rt_emitter *em, const atoll_rt *x, int k) {
  const atoll_rt *src = rt_src(em->g, &x->in[k]);
  if (!rt_is_member(em, &x->in[k]) || !rt_is_map(src->op) || src->op == RT_EVAL || em->alias[src->id] ||
      em->alias[x->id] || src->axes != x->axes || memcmp(src->shape, x->shape, (size_t)x->axes * sizeof *x->shape) != 0)
    return 0;
  return rt_is_element(x->op) || x->op == RT_IDENT || x->op == RT_DETACH || x->op == RT_EXPAND ||
         (x->op == RT_RESHAPE && x->axes == src->axes);
}

static const char *float_or_double(rt_emitter *em, const atoll_rt *x, const char *single, const char *twice,
                                   const char *a) {
  return rt_text(em, "%s(%s)", rt_is_single(x->dtype) ? single : twice, a);
}

/* Of elements a, b, c in the type of computation; not rounded. */
static const char *formula(rt_emitter *em, const atoll_rt *x, const char *const *a) {
  const char *one = rt_is_single(x->dtype) ? "f" : "";
  switch (x->op) {
  case RT_NEG:
    return rt_text(em, "-(%s)", a[0]);
  case RT_EXP:
    return float_or_double(em, x, "rt_expf", "exp", a[0]);
  case RT_LOG:
    return float_or_double(em, x, "rt_logf", "log", a[0]);
  case RT_SQRT:
    return float_or_double(em, x, "sqrtf", "sqrt", a[0]);
  case RT_SIN:
    return float_or_double(em, x, "sinf", "sin", a[0]);
  case RT_COS:
    return float_or_double(em, x, "cosf", "cos", a[0]);
  case RT_TANH:
    return float_or_double(em, x, "rt_tanhf", "tanh", a[0]);
  case RT_ERF:
    return float_or_double(em, x, "erff", "erf", a[0]);
  case RT_ABS:
    return float_or_double(em, x, "fabsf", "fabs", a[0]);
  case RT_NOT:
    return rt_text(em, "((%s) == 0 ? 1.0%s : 0.0%s)", a[0], one, one);
  case RT_ADD:
    return rt_text(em, "(%s) + (%s)", a[0], a[1]);
  case RT_SUB:
    return rt_text(em, "(%s) - (%s)", a[0], a[1]);
  case RT_MUL:
    return rt_text(em, "(%s) * (%s)", a[0], a[1]);
  case RT_DIV:
    return rt_text(em, "(%s) / (%s)", a[0], a[1]);
  case RT_POW:
    return rt_text(em, "pow%s(%s, %s)", one, a[0], a[1]);
  case RT_MIN:
    return rt_text(em, "((%s) < (%s) ? (%s) : (%s))", a[0], a[1], a[0], a[1]);
  case RT_MAX:
    return rt_text(em, "((%s) > (%s) ? (%s) : (%s))", a[0], a[1], a[0], a[1]);
  case RT_LT:
  case RT_LE:
  case RT_EQ:
  case RT_NE: {
    static const char *const sign[] = {"<", "<=", "==", "!="};
    return rt_text(em, "((%s) %s (%s) ? 1.0%s : 0.0%s)", a[0], sign[x->op - RT_LT], a[1], one, one);
  }
  case RT_AND:
    return rt_text(em, "((%s) != 0 && (%s) != 0 ? 1.0%s : 0.0%s)", a[0], a[1], one, one);
  case RT_OR:
    return rt_text(em, "((%s) != 0 || (%s) != 0 ? 1.0%s : 0.0%s)", a[0], a[1], one, one);
  case RT_WHERE:
    return rt_text(em, "((%s) != 0 ? (%s) : (%s))", a[0], a[1], a[2]);
  default: /* CAST and views */
    return a[0];
  }
}

/* Position in a dense array of this shape. */
static const char *linear(rt_emitter *em, int axes, const atoll_sym *const *shape, const char *const *at) {
  const char *s = axes ? at[0] : "0";
  for (int k = 1; k < axes; k++)
    s = rt_text(em, "(%s) * %s + %s", s, rt_size(em, shape[k]), at[k]);
  return s;
}

const char *rt_loaded(rt_emitter *em, rt_operand *o, const char *at) {
  if (o->kind != RT_MEMORY)
    return rt_element_text(em, o, 0, NULL);
  o->axes = 1;
  o->stride[0] = "1";
  o->shape[0] = atoll_sym_int(em->g->syms, 2); /* not 1: the index counts */
  return rt_element_text(em, o, 1, &at);
}

static const char *shifted_element(rt_emitter *em, const rt_operand *o, int axes, const char *const *at, int axis,
                                   const char *by) {
  const char *to[RT_AXES];
  for (int k = 0; k < axes; k++)
    to[k] = k == axis ? rt_text(em, "(%s + %s)", at[k], by) : at[k];
  return rt_element_text(em, o, axes, to);
}

/* The element of map x at a position, not rounded to x's type. */
static const char *map_value(rt_emitter *em, const atoll_rt *x, rt_operand *o, const char *const *at) {
  const char *a[3], *to[RT_AXES];
  switch (x->op) {
  case RT_EVAL:
    return rt_text(em, "(double)%s", rt_expression(em, x->expr, at));
  case RT_PERMUTE:
    for (int k = 0; k < x->axes; k++)
      to[x->order[k]] = at[k];
    return rt_element_text(em, &o[0], x->axes, to);
  case RT_RESHAPE:
    return o[0].kind == RT_SCALAR ? o[0].base : rt_loaded(em, &o[0], linear(em, x->axes, x->shape, at));
  case RT_SLICE:
    return shifted_element(em, &o[0], x->axes, at, x->axis, rt_expression(em, x->start[0], NULL));
  case RT_PAD: {
    const char *start = rt_expression(em, x->start[0], NULL), *i = at[x->axis];
    return rt_text(em, "(%s >= %s && %s < %s + %s ? %s : (%s)%a)", i, start, i, start, rt_size(em, o[0].shape[x->axis]),
                   shifted_element(em, &o[0], x->axes, at, x->axis, rt_text(em, "-%s", start)),
                   rt_compute_type(x->dtype), rt_round(x->dtype, x->value));
  }
  case RT_CONCAT: {
    const char *n = rt_size(em, o[0].shape[x->axis]);
    return rt_text(em, "(%s < %s ? %s : %s)", at[x->axis], n, rt_element_text(em, &o[0], x->axes, at),
                   shifted_element(em, &o[1], x->axes, at, x->axis, rt_text(em, "-%s", n)));
  }
  default:
    for (int k = 0; k < x->inputs; k++)
      a[k] = rt_element_text(em, &o[k], x->axes, at);
    return formula(em, x, a);
  }
}

/* Whether all axes can be walked as one: operands have the same shape, or a single element. */
static int is_flat(const atoll_rt *x, const rt_operand *o) {
  if (x->op != RT_RESHAPE && x->op != RT_IDENT && x->op != RT_DETACH && x->op != RT_EXPAND && !rt_is_element(x->op))
    return 0;
  for (int k = 0; k < x->inputs; k++) {
    int64_t n;
    int single = o[k].kind != RT_FORMULA;
    for (int a = 0; a < o[k].axes; a++)
      single &= rt_is_const(o[k].shape[a], &n) && n == 1;
    if (single || o[k].kind == RT_SCALAR || (x->op == RT_RESHAPE && o[k].kind == RT_MEMORY))
      continue;
    if (o[k].kind == RT_FORMULA || !o[k].dense || o[k].axes != x->axes ||
        memcmp(o[k].shape, x->shape, (size_t)x->axes * sizeof *x->shape) != 0)
      return 0;
  }
  return 1;
}

/* Operands, as if all of them had one axis. */
static void flatten(rt_emitter *em, const atoll_rt *x, rt_operand *o) {
  for (int k = 0; k < x->inputs; k++) {
    int64_t n, one = 1;
    if (o[k].kind != RT_MEMORY)
      continue;
    for (int a = 0; a < o[k].axes; a++)
      one &= rt_is_const(o[k].shape[a], &n) && n == 1;
    o[k].axes = one ? 0 : 1;
    o[k].stride[0] = "1";
    o[k].shape[0] = atoll_sym_int(em->g->syms, 2);
  }
}

static void map_statement(rt_emitter *em, const atoll_rt *x, rt_operand *o, int axes, const char *const *at, int flat) {
  atoll_dtype from = x->op == RT_EVAL ? ATOLL_F64 : x->op == RT_CAST ? o[0].dtype : x->dtype;
  const char *value;
  if (flat && x->op == RT_RESHAPE)
    value = rt_element_text(em, &o[0], axes, at);
  else if (flat) {
    const char *a[3];
    for (int k = 0; k < x->inputs; k++)
      a[k] = rt_element_text(em, &o[k], axes, at);
    value = formula(em, x, a);
  } else {
    value = map_value(em, x, o, at);
  }
  rt_line(em, "const %s v%d = %s;", rt_compute_type(x->dtype), x->id, rt_rounded(em, from, x->dtype, value));
  if (em->memory[x->id])
    rt_line(em, "%s[%s] = %s;", rt_place(em, x), flat ? (axes ? at[0] : "0") : linear(em, x->axes, x->shape, at),
            rt_stored(em, x->dtype, rt_text(em, "v%d", x->id)));
}

static const char *own_point(rt_emitter *em, const atoll_rt *x) {
  const char *own[RT_DIMS];
  for (int d = 0; d < em->g->dims; d++)
    own[d] = rt_text(em, "d%d", d);
  return rt_point_list(em, x, own);
}

static void outside(rt_emitter *em, const atoll_rt *x, const char *at, const char *extent) {
  rt_line(em, "  return r->outside(r, %d, %s, %s, %s);", x->id, own_point(em, x), at, extent);
}

/* Slices stay inside of what they cut. */
static void check_slice(rt_emitter *em, const atoll_rt *x, const rt_operand *o) {
  int64_t start, part, all;
  if (x->op != RT_SLICE && x->op != RT_PAD)
    return;
  const atoll_sym *cut = x->op == RT_SLICE ? x->shape[x->axis] : o->shape[x->axis];
  const atoll_sym *whole = x->op == RT_SLICE ? o->shape[x->axis] : x->shape[x->axis];
  if (rt_is_const(x->start[0], &start) && rt_is_const(cut, &part) && rt_is_const(whole, &all) && start >= 0 &&
      start + part <= all)
    return;
  const char *at = rt_expression(em, x->start[0], NULL), *small = rt_size(em, cut), *large = rt_size(em, whole);
  rt_line(em, "if (%s < 0 || %s + %s > %s)", at, at, small, large);
  outside(em, x, rt_text(em, "%s < 0 ? %s : %s + %s - 1", at, at, at, small), large);
}

void rt_emit_maps(rt_emitter *em, int n, const atoll_rt *const *x) {
  rt_operand(*o)[3] = calloc((size_t)n, sizeof *o);
  int flat = 1;
  if (!o) {
    em->err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
    return;
  }
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < x[i]->inputs; k++)
      o[i][k] = rt_operand_of(em, x[i], k, x[i]->op == RT_RESHAPE);
    check_slice(em, x[i], &o[i][0]);
    flat &= is_flat(x[i], o[i]);
  }
  int axes = x[0]->axes, loops = 1;
  const char *count = rt_count(em, axes, x[0]->shape, 0);
  if (em->kernels) {
    rt_kernel_begin(em);
    if (flat && axes) {
      const atoll_sym *all = x[0]->shape[0];
      for (int k = 1; k < axes; k++)
        all = atoll_sym_mul(em->g->syms, all, x[0]->shape[k]);
      axes = 1;
      rt_open_elements(em, 1, &all, axis_name, 0);
    } else {
      rt_open_elements(em, axes, x[0]->shape, axis_name, 0);
    }
  } else if (flat && axes) {
    share_elements(em, axes, x[0]->shape, " simd");
    rt_loop(em, "i0", count);
    axes = 1;
  } else {
    loops = axes;
    const int lanes = axes - 1 - (axes > 1 && is_short(x[0]->shape[axes - 1]));
    for (int k = 0; k < axes; k++) {
      if (k == 0)
        share_elements(em, axes, x[0]->shape, lanes == 0 ? " simd" : "");
      else if (k == lanes)
        rt_simd(em);
      else if (k > lanes)
        unroll(em);
      rt_loop(em, axis_name[k], rt_size(em, x[0]->shape[k]));
    }
  }
  for (int i = 0; i < n; i++) {
    if (flat && x[i]->axes)
      flatten(em, x[i], o[i]);
    map_statement(em, x[i], o[i], axes, axis_name, flat && x[i]->axes);
  }
  for (int k = 0; k < loops; k++)
    rt_close(em);
  if (em->kernels)
    rt_kernel_end(em, count);
  free(o);
}

/* ---- reductions ---- */

/* One element after the other, or, along the last axis, by the lanes of each. */
static void reduce_by_kernel(rt_emitter *em, const atoll_rt *x) {
  rt_operand o = rt_operand_of(em, x, 0, 0);
  const char *type = rt_compute_type(x->dtype), *at[RT_AXES], *n = rt_size(em, o.shape[x->axis]);
  const char *count = rt_count(em, x->axes, x->shape, 0), *one = rt_is_single(x->dtype) ? "f" : "";
  int last = x->axis == o.axes - 1, sum = x->op == RT_SUM;
  rt_kernel_begin(em);
  for (int k = 0; k < o.axes; k++)
    at[k] = k == x->axis ? "k" : axis_name[k < x->axis ? k : k - 1];
  rt_open_elements(em, x->axes, x->shape, axis_name, last);
  rt_line(em, "%s s = %s;", type, sum ? "0" : "-INFINITY");
  rt_open(em,
          last ? "for (int64_t k = rt_thread() %% RT_LANES; k < %s; k += RT_LANES)"
               : "for (int64_t k = 0; k < %s; k++)",
          n);
  const char *element = rt_element_text(em, &o, o.axes, at);
  rt_line(em, "const %s a = %s;", type, element);
  rt_line(em, sum ? "s += a;" : "s = a > s ? a : s;");
  rt_close(em);
  if (last)
    rt_line(em, "s = rt_lanes_%s%s(s);", sum ? "sum" : "max", one);
  rt_line(em, "%s[at] = %s;", rt_place(em, x), rt_stored(em, x->dtype, rt_rounded(em, x->dtype, x->dtype, "s")));
  rt_close(em);
  rt_kernel_end(em, last ? rt_text(em, "32 * %s", count) : count);
}

/* Over the last axis, in lanes; over another one, row by row. */
static void reduce(rt_emitter *em, const atoll_rt *x) {
  if (em->kernels) {
    reduce_by_kernel(em, x);
    return;
  }
  rt_operand o = rt_operand_of(em, x, 0, 0);
  const char *type = rt_compute_type(x->dtype), *y = rt_place(em, x), *at[RT_AXES];
  const char *n = rt_size(em, o.shape[x->axis]);
  int last = x->axis == o.axes - 1, sum = x->op == RT_SUM;
  for (int k = 0; k < o.axes; k++)
    at[k] = k == x->axis ? "k" : axis_name[k < x->axis ? k : k - 1];
  const char *element = rt_element_text(em, &o, o.axes, at);
  const int rows = last && x->axis > 0 && is_short(o.shape[x->axis]) ? x->axis - 1 : -1; /* whose lanes are used */
  for (int k = 0; k < x->axis; k++) {
    if (last && k == 0)
      share_elements(em, o.axes, o.shape, rows == 0 ? " simd" : "");
    else if (k == rows)
      rt_simd(em);
    rt_loop(em, axis_name[k], rt_size(em, x->shape[k]));
  }
  if (last) {
    rt_line(em, "%s s = %s;", type, sum ? "0" : "-INFINITY");
    if (rows >= 0)
      unroll(em);
    else
      rt_line(em, "_Pragma(\"omp simd reduction(%s:s)\")", sum ? "+" : "max");
    rt_loop(em, "k", n);
    if (sum)
      rt_line(em, "s += %s;", element);
    else
      rt_line(em, "s = %s > s ? %s : s;", element, element);
    rt_close(em);
    rt_line(em, "%s[%s] = %s;", y, linear(em, x->axes, x->shape, axis_name),
            rt_stored(em, x->dtype, rt_rounded(em, x->dtype, x->dtype, "s")));
  } else {
    const char *position = linear(em, x->axes, x->shape, axis_name);
    const char *inner = rt_count(em, x->axes, x->shape, x->axis);
    int w = em->names++;
    rt_line(em, "%s *t%d = (%s *)rt_space(r, %s * (int64_t)sizeof(%s));", type, w, type, inner, type);
    rt_line(em, "if (!t%d)", w);
    rt_line(em, "  return r->error(r);");
    rt_loop(em, "j", inner);
    rt_line(em, "t%d[j] = %s;", w, sum ? "0" : "-INFINITY");
    rt_close(em);
    rt_loop(em, "k", n);
    for (int k = x->axis; k < x->axes; k++) {
      if (k == x->axes - 1)
        rt_simd(em);
      rt_loop(em, axis_name[k], rt_size(em, x->shape[k]));
    }
    const char *t = rt_text(em, "t%d[%s]", w, linear(em, x->axes - x->axis, x->shape + x->axis, axis_name + x->axis));
    if (sum)
      rt_line(em, "%s += %s;", t, element);
    else
      rt_line(em, "%s = %s > %s ? %s : %s;", t, element, t, element, t);
    for (int k = x->axis; k < x->axes; k++)
      rt_close(em);
    rt_close(em);
    for (int k = x->axis; k < x->axes; k++)
      rt_loop(em, axis_name[k], rt_size(em, x->shape[k]));
    rt_line(em, "%s[%s] = %s;", y, position, rt_stored(em, x->dtype, rt_rounded(em, x->dtype, x->dtype, t)));
    for (int k = x->axis; k < x->axes; k++)
      rt_close(em);
  }
  for (int k = 0; k < x->axis; k++)
    rt_close(em);
}

static void argmax(rt_emitter *em, const atoll_rt *x) {
  rt_operand o = rt_operand_of(em, x, 0, 0);
  const char *at[RT_AXES], *n = rt_size(em, o.shape[x->axis]);
  for (int k = 0; k < o.axes; k++)
    at[k] = k == x->axis ? "k" : axis_name[k < x->axis ? k : k - 1];
  const char *count = rt_count(em, x->axes, x->shape, 0);
  if (em->kernels) {
    rt_kernel_begin(em);
    rt_open_elements(em, x->axes, x->shape, axis_name, 0);
  }
  const int rows = is_short(o.shape[x->axis]) && !em->kernels; /* their lanes are used */
  for (int k = 0; k < x->axes && !em->kernels; k++) {
    if (rows && k == x->axes - 1)
      rt_simd(em);
    rt_loop(em, axis_name[k], rt_size(em, x->shape[k]));
  }
  rt_line(em, "%s top = -INFINITY;", rt_compute_type(o.dtype));
  rt_line(em, "%s best = 0;", rows ? "int32_t" : "int64_t");
  if (rows)
    unroll(em);
  rt_loop(em, "k", n);
  rt_line(em, "const %s a = %s;", rt_compute_type(o.dtype), rt_element_text(em, &o, o.axes, at));
  if (rows) {
    rt_line(em, "best = a > top ? (int32_t)k : best;");
    rt_line(em, "top = a > top ? a : top;");
  } else {
    rt_line(em, "if (a > top) {");
    rt_line(em, "  top = a;");
    rt_line(em, "  best = k;");
    rt_line(em, "}");
  }
  rt_close(em);
  rt_line(em, "%s[%s] = (%s)best;", rt_place(em, x), linear(em, x->axes, x->shape, axis_name),
          rt_storage_type(x->dtype));
  for (int k = 0; k < x->axes && !em->kernels; k++)
    rt_close(em);
  if (em->kernels) {
    rt_close(em);
    rt_kernel_end(em, count);
  }
}

/* ---- rows of a table ---- */

/* Rows that are added to meet in the order of indices: a column is one thread's. */
static void rows_by_kernel(rt_emitter *em, const atoll_rt *x) {
  rt_operand a = rt_operand_of(em, x, 0, 1), index = rt_operand_of(em, x, 1, 1);
  const char *p = rt_pointer(em, &a), *indices = rt_pointer(em, &index), *y = rt_place(em, x);
  int take = x->op == RT_TAKE;
  const atoll_sym *const *table = take ? a.shape : x->shape;
  const char *width = rt_count(em, take ? a.axes : x->axes, table, 1), *all = rt_size(em, table[0]);
  const char *n = rt_count(em, index.axes, index.shape, 0), *threads = take ? rt_text(em, "%s * %s", n, width) : width;
  rt_operand to = {.kind = RT_MEMORY, .dtype = x->dtype, .base = y},
             from = {.kind = RT_MEMORY, .dtype = x->dtype, .base = p};
  rt_kernel_begin(em);
  rt_open(em, "for (int64_t at = rt_thread(); at < %s; at += rt_threads())", threads);
  if (!take) {
    rt_loop(em, "i", all);
    rt_line(em, "%s[i * %s + at] = 0;", y, width);
    rt_close(em);
    rt_loop(em, "i", n);
  }
  rt_line(em, "const int64_t row = (int64_t)%s[%s];", indices, take ? rt_text(em, "at / %s", width) : "i");
  rt_open(em, "if (row < 0 || row >= %s)", all);
  rt_line(em, "fault[1] = row;");
  rt_line(em, "fault[2] = %s;", all);
  for (int d = 0, k = 3; d < em->g->dims; d++)
    if (rt_has(x, d))
      rt_line(em, "fault[%d] = d%d;", k++, d);
  rt_line(em, "fault[0] = %d;", x->id + 1);
  rt_line(em, "continue;");
  rt_close(em);
  if (take) {
    rt_line(em, "%s[at] = %s[row * %s + at %% %s];", y, p, width, width);
  } else {
    const char *place = rt_text(em, "row * %s + at", width);
    const char *sum =
        rt_text(em, "%s + %s", rt_loaded(em, &to, place), rt_loaded(em, &from, rt_text(em, "i * %s + at", width)));
    rt_line(em, "%s[%s] = %s;", y, place, rt_stored(em, x->dtype, rt_rounded(em, x->dtype, x->dtype, sum)));
    rt_close(em);
  }
  rt_close(em);
  rt_kernel_end(em, threads);
}

static void rows(rt_emitter *em, const atoll_rt *x) {
  if (em->kernels) {
    rows_by_kernel(em, x);
    return;
  }
  rt_operand a = rt_operand_of(em, x, 0, 1), index = rt_operand_of(em, x, 1, 1);
  const char *p = rt_pointer(em, &a), *at = rt_pointer(em, &index), *y = rt_place(em, x);
  const char *type = rt_storage_type(x->dtype);
  int take = x->op == RT_TAKE;
  const atoll_sym *const *table = take ? a.shape : x->shape;
  const char *width = rt_count(em, take ? a.axes : x->axes, table, 1), *all = rt_size(em, table[0]);
  if (!take)
    rt_line(em, "memset(%s, 0, (size_t)%s * sizeof(%s));", y, rt_count(em, x->axes, x->shape, 0), type);
  rt_loop(em, "i", rt_count(em, index.axes, index.shape, 0));
  rt_line(em, "const int64_t row = (int64_t)%s[i];", at);
  rt_line(em, "if (row < 0 || row >= %s)", all);
  outside(em, x, "row", all);
  if (take) {
    rt_line(em, "memcpy(%s + i * %s, %s + row * %s, (size_t)%s * sizeof(%s));", y, width, p, width, width, type);
  } else {
    rt_operand to = {.kind = RT_MEMORY, .dtype = x->dtype, .base = y},
               from = {.kind = RT_MEMORY, .dtype = x->dtype, .base = p};
    rt_simd(em);
    rt_loop(em, "k", width);
    const char *place = rt_text(em, "row * %s + k", width);
    const char *sum =
        rt_text(em, "%s + %s", rt_loaded(em, &to, place), rt_loaded(em, &from, rt_text(em, "i * %s + k", width)));
    rt_line(em, "%s[%s] = %s;", y, place, rt_stored(em, x->dtype, rt_rounded(em, x->dtype, x->dtype, sum)));
    rt_close(em);
  }
  rt_close(em);
}

/* ---- the user's functions ---- */

static const char *shape_list(rt_emitter *em, int axes, const atoll_sym *const *shape) {
  const char *s = "0";
  for (int k = 0; k < axes; k++)
    s = k ? rt_text(em, "%s, %s", s, rt_size(em, shape[k])) : rt_size(em, shape[k]);
  return rt_text(em, "(const int64_t[]){%s}", s);
}

static const char *argument(rt_emitter *em, atoll_dtype t, int axes, const atoll_sym *const *shape, const char *data) {
  return rt_text(em, "{%d, %d, %s, (void *)%s}", (int)t, axes, shape_list(em, axes, shape), data);
}

static void call(rt_emitter *em, const atoll_rt *x) {
  const char *in = NULL, *out = "0";
  for (int k = 0; k < x->inputs; k++) {
    rt_operand o = rt_operand_of(em, x, k, 1);
    const char *a = argument(em, o.dtype, o.axes, o.shape, rt_pointer(em, &o));
    in = in ? rt_text(em, "%s, %s", in, a) : a;
  }
  rt_wait(em);
  rt_line(em, "const rt_arg in[] = {%s};", in ? in : "{0, 0, 0, 0}");
  if (x->op == RT_CALL) {
    rt_line(em, "const rt_arg out = %s;", argument(em, x->dtype, x->axes, x->shape, rt_place(em, x)));
    out = "&out";
  }
  rt_line(em, "const int failed = r->call(r, %d, %s, in, %s);", x->id, own_point(em, x), out);
  rt_line(em, "if (failed)");
  rt_line(em, "  return failed;");
}

/* ---- cases ---- */

static void merge(rt_emitter *em, const atoll_rt *x) {
  int always = 0;
  for (int k = 0; k < x->inputs && !always; k++) {
    const rt_edge *e = &x->in[k];
    const char *cond = e->cond ? rt_expression(em, e->cond, NULL) : NULL;
    always = !cond;
    if (cond)
      rt_open(em, "%sif (%s)", k ? "else " : "", cond);
    else
      rt_open(em, "%s", k ? "else" : "");
    rt_scope scope = rt_scope_open(em);
    rt_operand o = rt_operand_of(em, x, k, 0);
    if (o.kind == RT_MEMORY && o.dense) { /* the same when it was donated */
      const char *count = rt_count(em, x->axes, x->shape, 0);
      rt_open(em, "if (%s != %s)", rt_place(em, x), o.base);
      rt_copy(em, rt_place(em, x), o.base, rt_text(em, "%s * sizeof(%s)", count, rt_storage_type(x->dtype)));
      rt_close(em);
    } else if (em->kernels) {
      const char *count = rt_count(em, x->axes, x->shape, 0);
      rt_kernel_begin(em);
      rt_open_elements(em, x->axes, x->shape, axis_name, 0);
      rt_line(em, "%s[at] = %s;", rt_place(em, x),
              rt_stored(em, x->dtype, rt_element_text(em, &o, x->axes, axis_name)));
      rt_close(em);
      rt_kernel_end(em, count);
    } else {
      for (int a = 0; a < x->axes; a++)
        rt_loop(em, axis_name[a], rt_size(em, x->shape[a]));
      rt_line(em, "%s[%s] = %s;", rt_place(em, x), linear(em, x->axes, x->shape, axis_name),
              rt_stored(em, x->dtype, rt_element_text(em, &o, x->axes, axis_name)));
      for (int a = 0; a < x->axes; a++)
        rt_close(em);
    }
    rt_scope_close(em, scope);
    rt_close(em);
  }
  if (!always)
    rt_line(em, "else");
  if (!always)
    rt_line(em, "  return r->absent(r, %d);", x->id);
}

/* ---- random numbers: along the last axis at once where that is how they are numbered ---- */

static void random_numbers(rt_emitter *em, const atoll_rt *x) {
  rt_wait(em);
  const char *coordinates = "0";
  int last = x->axes - 1, row = x->axes > 0;
  /* elements follow each other: expr(.., i + 1) - expr(.., i) = 1, and no coordinate depends on i */
  const atoll_sym *by[RT_AXES];
  for (int k = 0; k < x->axes; k++)
    by[k] = k == last ? atoll_sym_add(em->g->syms, rt_axis((rt_graph *)em->g, k), atoll_sym_int(em->g->syms, 1))
                      : rt_axis((rt_graph *)em->g, k);
  if (row) {
    const atoll_sym *after = rt_substitute_axes((rt_graph *)em->g, x->expr, x->axes, by);
    row = atoll_sym_sub(em->g->syms, after, x->expr) == atoll_sym_int(em->g->syms, 1);
    for (int k = 0; k < x->picks; k++)
      row &= rt_substitute_axes((rt_graph *)em->g, x->start[k], x->axes, by) == x->start[k];
  }
  const char *at[RT_AXES];
  for (int k = 0; k < x->axes; k++)
    at[k] = row && k == last ? "0" : axis_name[k];
  for (int k = 0; k < x->axes - row; k++)
    rt_loop(em, axis_name[k], rt_size(em, x->shape[k]));
  for (int k = 0; k < x->picks; k++) {
    const char *c = rt_expression(em, x->start[k], at);
    coordinates = k ? rt_text(em, "%s, %s", coordinates, c) : c;
  }
  rt_line(em, "r->random(r, %d, (const int64_t[]){%s}, %s, %s, %s + %s);", x->id, coordinates,
          rt_expression(em, x->expr, at), row ? rt_size(em, x->shape[last]) : "1", rt_place(em, x),
          linear(em, x->axes, x->shape, at));
  for (int k = 0; k < x->axes - row; k++)
    rt_close(em);
}

/* ---- PICK: a sum over the points of slices, which may be ragged ---- */

struct pick {
  const rt_edge *e;
  const atoll_rt *src;
  int slices, closes;
  const char *axis[RT_AXES];   /* positions, as expressions may use them */
  const char *point[RT_DIMS];  /* of the source */
  const char *extent[RT_AXES]; /* of the source's axes at that point */
};

static void pick_points(rt_emitter *em, const atoll_rt *x, struct pick *p) {
  for (int d = 0; d < em->g->dims; d++) {
    if (!rt_has(p->src, d))
      continue;
    p->point[d] = rt_text(em, "q%d", d);
    if (!p->e->item[d].hi) {
      rt_line(em, "const int64_t q%d = %s;", d, rt_expression(em, p->e->item[d].lo, NULL));
      continue;
    }
    rt_line(em, "const int64_t lo%d = %s, hi%d = %s;", d, rt_expression(em, p->e->item[d].lo, NULL), d,
            rt_expression(em, p->e->item[d].hi, NULL));
    rt_open(em, "for (int64_t q%d = lo%d; q%d < hi%d; q%d++)", d, d, d, d, d);
    p->axis[p->slices++] = rt_text(em, "(q%d - lo%d)", d, d);
    p->closes++;
  }
  if (x->expr && p->slices == x->axis) {
    rt_line(em, "if (!%s)", rt_expression(em, x->expr, p->axis));
    rt_line(em, "  continue;");
  }
}

/* Extents of the source's axes are expressions over its own point. */
static void pick_extents(rt_emitter *em, struct pick *p) {
  for (int k = 0; k < p->src->axes; k++) {
    int64_t known;
    if (rt_is_const(p->src->shape[k], &known)) {
      p->extent[k] = rt_text(em, "%" PRId64, known);
      continue;
    }
    p->extent[k] = rt_text(em, "h%d", k);
    rt_line(em, "int64_t h%d;", k);
    rt_open(em, "%s", "");
    for (int d = 0; d < em->g->dims; d++)
      if (rt_has(p->src, d))
        rt_line(em, "const int64_t d%d = q%d;", d, d);
    rt_line(em, "h%d = %s;", k, rt_expression(em, p->src->shape[k], NULL));
    rt_close(em);
  }
}

static void pick(rt_emitter *em, const atoll_rt *x) {
  struct pick p = {.e = &x->in[0], .src = rt_src(em->g, &x->in[0])};
  const char *type = rt_compute_type(x->dtype), *count = rt_count(em, x->axes, x->shape, 0);
  int w = em->names++, member = rt_is_member(em, p.e);
  rt_wait(em);
  rt_line(em, "%s *t%d = (%s *)rt_space(r, %s * (int64_t)sizeof(%s));", type, w, type, count, type);
  rt_line(em, "if (!t%d)", w);
  rt_line(em, "  return r->error(r);");
  rt_loop(em, "i", count);
  rt_line(em, "t%d[i] = 0;", w);
  rt_close(em);
  rt_open(em, "%s", "");
  pick_points(em, x, &p);
  rt_operand o = {.kind = RT_MEMORY, .dtype = p.src->dtype};
  if (p.src->op == RT_CONST)
    o = rt_operand_of(em, x, 0, 1);
  else
    o.base = member ? rt_place(em, p.src) : rt_value_pointer(em, p.src, p.point);
  pick_extents(em, &p);
  int own = x->axis - p.slices, first = p.slices;
  for (int k = 0; k < own; k++) {
    p.axis[first + k] = rt_text(em, "a%d", k);
    rt_loop(em, p.axis[first + k], p.extent[k]);
    p.closes++;
  }
  if (x->expr && own > 0) {
    rt_line(em, "if (!%s)", rt_expression(em, x->expr, p.axis));
    rt_line(em, "  continue;");
  }
  const char *at = "0";
  for (int k = 0; k < own + x->picks; k++) {
    const char *i = k < own ? p.axis[first + k] : rt_expression(em, x->start[k - own], p.axis);
    if (k >= own) {
      rt_line(em, "if (%s < 0 || %s >= %s)", i, i, p.extent[k]);
      outside(em, x, i, p.extent[k]);
    }
    at = k ? rt_text(em, "(%s) * %s + %s", at, p.extent[k], i) : i;
  }
  rt_loop(em, "i", count);
  rt_line(em, "t%d[i] += %s;", w, rt_loaded(em, &o, rt_text(em, "(%s) * %s + i", at, count)));
  rt_close(em);
  while (p.closes-- > 0)
    rt_close(em);
  rt_close(em);
  rt_loop(em, "i", count);
  rt_line(em, "%s[i] = %s;", rt_place(em, x),
          rt_stored(em, x->dtype, rt_rounded(em, p.src->dtype, x->dtype, rt_text(em, "t%d[i]", w))));
  rt_close(em);
}

/* ---- */

void rt_declare(rt_emitter *em, const atoll_rt *x) {
  for (int k = 0; k < x->axes; k++)
    (void)rt_size(em, x->shape[k]);
  if (x->op == RT_MERGE || x->op == RT_PICK)
    return;
  int dense = x->op == RT_CALL || x->op == RT_SINK || x->op == RT_TAKE || x->op == RT_SCATTER || x->op == RT_RESHAPE;
  for (int k = 0; k < x->inputs; k++)
    if (k == rt_blocked_operand(em, x))
      (void)rt_blocks_of(em, x, k);
    else if (!rt_is_member(em, &x->in[k]))
      (void)rt_operand_of(em, x, k, dense);
}

void rt_emit_op(rt_emitter *em, const atoll_rt *x) {
  rt_scope scope = rt_scope_open(em);
  rt_open(em, "%s", "");
  switch (x->op) {
  case RT_SUM:
  case RT_MAXIMUM:
    reduce(em, x);
    break;
  case RT_ARGMAX:
    argmax(em, x);
    break;
  case RT_EINSUM:
    rt_emit_einsum(em, x);
    break;
  case RT_TAKE:
  case RT_SCATTER:
    rows(em, x);
    break;
  case RT_CALL:
  case RT_SINK:
    call(em, x);
    break;
  case RT_MERGE:
    merge(em, x);
    break;
  case RT_RAND:
    random_numbers(em, x);
    break;
  case RT_PICK:
    pick(em, x);
    break;
  default:
    em->err = atoll_fail(ATOLL_INTERNAL, "emission: operation %s", rt_op_name(x->op));
  }
  rt_close(em);
  rt_scope_close(em, scope);
}

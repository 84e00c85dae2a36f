/* Operands of emitted statements: where a value is and with which strides. A view that is not an array already, since
 * its points lie in different slots, is gathered into workspace. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"

/* ---- expressions ---- */

static const char *variable(const rt_emitter *em, const char *name, const char *const *axes) {
  rt_emitter *e = (rt_emitter *)em;
  if (name[0] == '_' && name[1] == 'c')
    return rt_text(e, "c%s", name + 2);
  if (name[0] == '_' && name[1] >= '0' && name[1] <= '9')
    return axes ? axes[atoi(name + 1)] : "0";
  for (int d = 0; d < em->g->dims; d++) {
    if (strcmp(name, em->g->dim[d].name) == 0)
      return rt_text(e, "d%d", d);
    if (strcmp(name, em->g->dim[d].bound_name) == 0)
      return rt_text(e, "b%d", d);
  }
  e->err = atoll_fail(ATOLL_INTERNAL, "emission: expression names '%s'", name);
  return "0";
}

static const char *joined(rt_emitter *em, const atoll_sym *e, const char *between, const char *const *axes) {
  const char *s = rt_expression(em, atoll_sym_arg(e, 0), axes);
  for (int k = 1; k < atoll_sym_arity(e); k++)
    s = rt_text(em, "%s %s %s", s, between, rt_expression(em, atoll_sym_arg(e, k), axes));
  return rt_text(em, "(%s)", s);
}

static const char *called(rt_emitter *em, const atoll_sym *e, const char *name, const char *const *axes) {
  const char *s = rt_expression(em, atoll_sym_arg(e, 0), axes);
  for (int k = 1; k < atoll_sym_arity(e); k++)
    s = rt_text(em, "%s(%s, %s)", name, s, rt_expression(em, atoll_sym_arg(e, k), axes));
  return s;
}

const char *rt_expression(rt_emitter *em, const atoll_sym *e, const char *const *axes) {
  atoll_sym_value v;
  if (atoll_sym_constant(e, &v))
    return rt_text(em, v.i < 0 ? "(%" PRId64 ")" : "%" PRId64, v.i);
  switch (atoll_sym_op_of(e)) {
  case ATOLL_SYM_VAR:
    return variable(em, atoll_sym_name(e), axes);
  case ATOLL_SYM_ADD:
    return joined(em, e, "+", axes);
  case ATOLL_SYM_MUL:
    return joined(em, e, "*", axes);
  case ATOLL_SYM_FLOORDIV:
    return called(em, e, "rt_div", axes);
  case ATOLL_SYM_MOD:
    return called(em, e, "rt_mod", axes);
  case ATOLL_SYM_MIN:
    return called(em, e, "rt_min", axes);
  case ATOLL_SYM_MAX:
    return called(em, e, "rt_max", axes);
  case ATOLL_SYM_LT:
    return joined(em, e, "<", axes);
  case ATOLL_SYM_LE:
    return joined(em, e, "<=", axes);
  case ATOLL_SYM_EQ:
    return joined(em, e, "==", axes);
  case ATOLL_SYM_NE:
    return joined(em, e, "!=", axes);
  case ATOLL_SYM_AND:
    return joined(em, e, "&&", axes);
  case ATOLL_SYM_OR:
    return joined(em, e, "||", axes);
  case ATOLL_SYM_NOT:
    return rt_text(em, "!%s", rt_expression(em, atoll_sym_arg(e, 0), axes));
  case ATOLL_SYM_SELECT:
    return rt_text(em, "(%s ? %s : %s)", rt_expression(em, atoll_sym_arg(e, 0), axes),
                   rt_expression(em, atoll_sym_arg(e, 1), axes), rt_expression(em, atoll_sym_arg(e, 2), axes));
  default:
    em->err = atoll_fail(ATOLL_INTERNAL, "emission: an index expression is real");
    return "0";
  }
}

const char *rt_size(rt_emitter *em, const atoll_sym *e) {
  int64_t v;
  if (rt_is_const(e, &v))
    return rt_text(em, "%" PRId64, v);
  for (int k = 0; k < em->sizes; k++)
    if (em->size[k] == e)
      return rt_text(em, "n%d", k);
  if (em->sizes == em->size_room) {
    int room = em->size_room ? 2 * em->size_room : 32;
    const atoll_sym **more = realloc(em->size, (size_t)room * sizeof *more);
    if (!more) {
      em->err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
      return "0";
    }
    em->size = more;
    em->size_room = room;
  }
  em->size[em->sizes] = e;
  rt_line(em, "const int64_t n%d = rt_max(0, %s);", em->sizes, rt_expression(em, e, NULL));
  rt_know(em, "int64_t", rt_text(em, "n%d", em->sizes));
  return rt_text(em, "n%d", em->sizes++);
}

const char *rt_count(rt_emitter *em, int axes, const atoll_sym *const *shape, int first) {
  int64_t known = 1, v;
  const char *s = NULL;
  for (int k = first; k < axes; k++) {
    if (rt_is_const(shape[k], &v))
      known *= v;
    else
      s = s ? rt_text(em, "%s * %s", s, rt_size(em, shape[k])) : rt_size(em, shape[k]);
  }
  if (!s)
    return rt_text(em, "%" PRId64, known);
  return known == 1 ? rt_text(em, "(%s)", s) : rt_text(em, "(%s * %" PRId64 ")", s, known);
}

/* ---- types ---- */

const char *rt_storage_type(atoll_dtype t) {
  static const char *const name[] = {
      [ATOLL_F32] = "float",   [ATOLL_F64] = "double",   [ATOLL_BF16] = "uint16_t", [ATOLL_I32] = "int32_t",
      [ATOLL_I64] = "int64_t", [ATOLL_U16] = "uint16_t", [ATOLL_U8] = "uint8_t"};
  return name[t];
}

int rt_is_single(atoll_dtype t) { return t == ATOLL_F32 || t == ATOLL_BF16; }

const char *rt_compute_type(atoll_dtype t) { return rt_is_single(t) ? "float" : "double"; }

const char *rt_rounded(rt_emitter *em, atoll_dtype from, atoll_dtype t, const char *v) {
  double least, most;
  switch (t) {
  case ATOLL_F32:
    return rt_is_single(from) ? v : rt_text(em, "(float)(%s)", v);
  case ATOLL_BF16:
    return rt_text(em, "rt_to_bf16((float)(%s))", v);
  case ATOLL_F64:
    return v;
  default:
    rt_limits(t, &least, &most);
    return rt_text(em, "rt_whole(%s, %.1f, %.1f)", v, least, most);
  }
}

const char *rt_stored(rt_emitter *em, atoll_dtype t, const char *v) {
  switch (t) {
  case ATOLL_F32:
  case ATOLL_F64:
    return v;
  case ATOLL_BF16:
    return rt_text(em, "rt_bf16_bits(%s)", v);
  default:
    return rt_text(em, "(%s)(%s)", rt_storage_type(t), v);
  }
}

/* ---- stores ---- */

const char *rt_slot(rt_emitter *em, const atoll_rt *x, const char *store, const char *const point[RT_DIMS]) {
  const rt_block b = rt_block_of(em->g, x);
  const char *s = "0";
  int n = 0;
  for (int d = 0; d < em->g->dims; d++)
    if (rt_has(x, d)) {
      const char *at = d == b.dim ? rt_text(em, "(%s) / %" PRId64, point[d], b.size) : point[d];
      s = rt_text(em, "%s%s(((%s) & %s->mask[%d]) << %s->shift[%d])", n ? s : "", n ? " | " : "", at, store, n, store,
                  n);
      n++;
    }
  return s;
}

const char *rt_point_list(rt_emitter *em, const atoll_rt *x, const char *const point[RT_DIMS]) {
  const char *s = NULL;
  for (int d = 0; d < em->g->dims; d++)
    if (rt_has(x, d))
      s = s ? rt_text(em, "%s, %s", s, point[d]) : point[d];
  return rt_text(em, "(const int64_t[]){%s}", s ? s : "0");
}

/* Elements before point in the dense data of an input. */
static const char *input_offset(rt_emitter *em, const atoll_rt *src, const char *const point[RT_DIMS]) {
  const char *s = NULL;
  for (int d = 0; d < em->g->dims; d++)
    if (rt_has(src, d))
      s = s ? rt_text(em, "(%s * b%d + %s)", s, d, point[d]) : point[d];
  return s ? rt_text(em, "%s * %s", s, rt_count(em, src->axes, src->shape, 0)) : "0";
}

const char *rt_value_pointer(rt_emitter *em, const atoll_rt *src, const char *const point[RT_DIMS]) {
  const char *type = rt_storage_type(src->dtype);
  int w = em->names++;
  rt_know(em, rt_text(em, "const %s *", type), rt_text(em, "w%d", w));
  if (src->op == RT_INPUT) {
    const char *offset = input_offset(em, src, point);
    rt_line(em, "const %s *w%d = (const %s *)r->input[%d] + %s;", type, w, type, src->id, offset);
  } else {
    rt_line(em, "const rt_slots *s%d = &r->store[%d];", w, src->id);
    rt_line(em, "const %s *w%d = (const %s *)s%d->data[%s];", type, w, type, w,
            rt_slot(em, src, rt_text(em, "s%d", w), point));
    const rt_block b = rt_block_of(em->g, src);
    if (b.size > 1)
      rt_line(em, "w%d = w%d ? w%d + (%s) %% %" PRId64 " * %s : 0;", w, w, w, point[b.dim], b.size,
              rt_count(em, src->axes, src->shape, 0));
    rt_line(em, "if (!RT_LIKELY(w%d != 0))", w);
    rt_line(em, "  return r->absent(r, %d);", src->id);
  }
  return rt_text(em, "w%d", w);
}

/* ---- views ---- */

int rt_is_member(const rt_emitter *em, const rt_edge *e) {
  const atoll_rt *src = rt_src(em->g, e);
  return !rt_is_free(src) && rt_head(src) == em->head && rt_is_identity(em->g, e);
}

static void dense_strides(rt_emitter *em, rt_operand *o, int first) {
  for (int k = first; k < o->axes; k++)
    o->stride[k] = rt_count(em, o->axes, o->shape, k + 1);
}

/* An input's slices need no copy: they are strides. */
static void input_view(rt_emitter *em, const rt_edge *e, const char *const point[RT_DIMS], rt_operand *o) {
  const atoll_rt *src = rt_src(em->g, e);
  int axis = 0, slices = rt_slices(em->g, e);
  o->base = rt_value_pointer(em, src, point);
  o->dense = 1;
  for (int d = 0; d < em->g->dims; d++) {
    if (!rt_has(src, d) || !e->item[d].hi)
      continue;
    const char *stride = rt_count(em, src->axes, src->shape, 0);
    int last = 1;
    for (int later = d + 1; later < em->g->dims; later++)
      if (rt_has(src, later)) {
        stride = rt_text(em, "%s * b%d", stride, later);
        last = 0;
      }
    o->stride[axis++] = rt_text(em, "(%s)", stride);
    o->dense &= last && slices == 1;
  }
  dense_strides(em, o, slices);
}

/* Copies the points of all slices into workspace. */
static void gathered_view(rt_emitter *em, const rt_edge *e, const char *point[RT_DIMS], rt_operand *o) {
  const atoll_rt *src = rt_src(em->g, e);
  const char *type = rt_storage_type(src->dtype), *all = rt_count(em, o->axes, o->shape, 0);
  const char *one = rt_count(em, o->axes, o->shape, rt_slices(em->g, e));
  int w = em->names++, nest = 0;
  rt_line(em, "%s *g%d = (%s *)rt_space(r, %s * (int64_t)sizeof(%s)), *to%d = g%d;", type, w, type, all, type, w, w);
  rt_line(em, "if (!RT_LIKELY(g%d != 0))", w);
  rt_line(em, "  return r->error(r);");
  rt_know(em, rt_text(em, "const %s *", type), rt_text(em, "g%d", w));
  for (int d = 0; d < em->g->dims; d++) {
    if (!rt_has(src, d) || !e->item[d].hi)
      continue;
    const char *q = rt_text(em, "q%d_%d", w, d);
    rt_open(em, "for (int64_t %s = %s, e%s = %s; %s < e%s; %s++)", q, point[d], q,
            rt_expression(em, e->item[d].hi, NULL), q, q, q);
    point[d] = q;
    nest++;
  }
  const char *from = rt_value_pointer(em, src, point);
  rt_copy(em, rt_text(em, "to%d", w), from, rt_text(em, "%s * sizeof(%s)", one, type));
  rt_line(em, "to%d += %s;", w, one);
  while (nest-- > 0)
    rt_close(em);
  o->base = rt_text(em, "g%d", w);
  o->dense = 1;
  dense_strides(em, o, 0);
}

/* The value at a point, or the source's padding. */
static const char *padded_pointer(rt_emitter *em, const rt_edge *e, const char *const point[RT_DIMS]) {
  const atoll_rt *src = rt_src(em->g, e);
  const char *type = rt_storage_type(src->dtype);
  int w = em->names++;
  rt_know(em, rt_text(em, "const %s *", type), rt_text(em, "w%d", w));
  rt_line(em, "const %s *w%d = (const %s *)r->pad[%d];", type, w, type, src->id);
  rt_open(em, "if (%s)", rt_expression(em, e->cond, NULL));
  rt_scope scope = rt_scope_open(em);
  rt_line(em, "w%d = %s;", w, rt_value_pointer(em, src, point));
  rt_scope_close(em, scope);
  rt_close(em);
  return rt_text(em, "w%d", w);
}

static rt_operand make_view(rt_emitter *em, const rt_edge *e, int dense) {
  const atoll_rt *src = rt_src(em->g, e);
  rt_operand o = {.kind = RT_MEMORY, .dtype = src->dtype};
  const char *point[RT_DIMS] = {NULL};
  if (src->op == RT_CONST) {
    o.kind = RT_LITERAL;
    const double value = rt_round(src->dtype, src->value);
    o.base = rt_text(em, rt_is_single(src->dtype) ? "%af" : "%a", value);
    if (!isfinite(value))
      o.base = isnan(value) ? "NAN" : value > 0 ? "INFINITY" : "-INFINITY";
    o.axes = src->axes;
    memcpy(o.shape, src->shape, sizeof o.shape);
    return o;
  }
  o.axes = rt_view_shape((rt_graph *)em->g, e, o.shape);
  if (o.axes < 0) {
    em->err = rt_graph_error(em->g);
    o.axes = 0;
  }
  for (int k = 0; k < o.axes; k++)
    (void)rt_size(em, o.shape[k]);
  for (int d = 0; d < em->g->dims; d++)
    if (rt_has(src, d))
      point[d] = rt_expression(em, e->item[d].lo, NULL);
  if (e->cond && src->padded && !rt_slices(em->g, e)) { /* of a case, too, which is only read where it holds */
    o.base = padded_pointer(em, e, point);
    o.dense = 1;
    dense_strides(em, &o, 0);
    return o;
  }
  if (src->op == RT_INPUT) {
    rt_operand strided = o;
    input_view(em, e, point, &strided);
    if (strided.dense || !dense)
      return strided;
  }
  const rt_block b = rt_block_of(em->g, src);
  if (rt_slices(em->g, e) && !rt_reads_one_block(em->g, e, &b)) {
    gathered_view(em, e, point, &o);
  } else {
    o.base = rt_value_pointer(em, src, point);
    o.dense = 1;
    dense_strides(em, &o, 0);
  }
  return o;
}

static int same_view(const rt_emitter *em, const rt_edge *a, const rt_edge *b) {
  if (a->src != b->src || a->cond != b->cond)
    return 0;
  for (int d = 0; d < em->g->dims; d++)
    if (rt_has(rt_src(em->g, a), d) && (a->item[d].lo != b->item[d].lo || a->item[d].hi != b->item[d].hi))
      return 0;
  return 1;
}

static rt_operand remember(rt_emitter *em, const rt_edge *e, int blocks,
                           rt_operand (*make)(rt_emitter *, const rt_edge *, int), int dense) {
  for (int k = 0; k < em->views; k++)
    if (same_view(em, em->view[k].edge, e) && em->view[k].blocks == blocks &&
        (!dense || em->view[k].operand.dense || em->view[k].operand.kind == RT_LITERAL))
      return em->view[k].operand;
  if (em->views == em->view_room) {
    int room = em->view_room ? 2 * em->view_room : 32;
    rt_emit_view *more = realloc(em->view, (size_t)room * sizeof *more);
    if (!more) {
      em->err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
      return (rt_operand){.base = "0"};
    }
    em->view = more;
    em->view_room = room;
  }
  rt_operand o = make(em, e, dense);
  em->view[em->views++] = (rt_emit_view){e, blocks, o};
  return o;
}

static rt_operand view(rt_emitter *em, const rt_edge *e, int dense) { return remember(em, e, 0, make_view, dense); }

/* ---- views of blocks ---- */

int rt_is_blocked(const rt_emitter *em, const atoll_rt *x, int k) {
  const rt_edge *e = &x->in[k];
  const atoll_rt *src = rt_src(em->g, e);
  const rt_block b = rt_block_of(em->g, src);
  int64_t extent;
  int wide = 0;
  for (int a = 0; a < src->axes; a++)
    wide |= !rt_is_const(src->shape[a], &extent) || extent > 1;
  return b.size > 1 && wide && rt_slices(em->g, e) == 1 && e->item[b.dim].hi && !rt_reads_one_block(em->g, e, &b);
}

/* A table of pointers to the blocks that the slice meets: those of values that are there. */
static rt_operand make_blocks(rt_emitter *em, const rt_edge *e, int dense) {
  const atoll_rt *src = rt_src(em->g, e);
  const rt_block b = rt_block_of(em->g, src);
  const char *type = rt_storage_type(src->dtype), *point[RT_DIMS] = {NULL};
  rt_operand o = {.kind = RT_BLOCKS, .dtype = src->dtype, .size = b.size, .dense = dense};
  int w = em->names++;
  o.axes = rt_view_shape((rt_graph *)em->g, e, o.shape);
  for (int k = 0; k < o.axes; k++)
    (void)rt_size(em, o.shape[k]);
  dense_strides(em, &o, 0);
  for (int d = 0; d < em->g->dims; d++)
    if (rt_has(src, d))
      point[d] = rt_expression(em, e->item[d].lo, NULL);
  o.lo = rt_text(em, "lo%d", w);
  o.base = rt_text(em, "g%d", w);
  rt_wait(em); /* kernels may still read what was where the table goes */
  rt_know(em, "int64_t", o.lo);
  rt_know(em, rt_text(em, "const %s *const *", type), o.base);
  rt_line(em, "const int64_t lo%d = %s, hi%d = lo%d + %s;", w, point[b.dim], w, w, rt_size(em, o.shape[0]));
  rt_line(em, "const %s **g%d = (const %s **)rt_space(r, (%s / %" PRId64 " + 2) * (int64_t)sizeof(%s *));", type, w,
          type, rt_size(em, o.shape[0]), b.size, type);
  rt_line(em, "if (!RT_LIKELY(g%d != 0))", w);
  rt_line(em, "  return r->error(r);");
  rt_open(em, "for (int64_t q%d = lo%d, j%d = 0; q%d < hi%d; j%d++)", w, w, w, w, w, w);
  point[b.dim] = rt_text(em, "q%d", w);
  const char *from = rt_value_pointer(em, src, point);
  rt_line(em, "g%d[j%d] = %s - q%d %% %" PRId64 " * %s;", w, w, from, w, b.size,
          rt_count(em, src->axes, src->shape, 0));
  rt_line(em, "q%d = (q%d / %" PRId64 " + 1) * %" PRId64 ";", w, w, b.size, b.size);
  rt_close(em);
  return o;
}

rt_operand rt_blocks_of(rt_emitter *em, const atoll_rt *x, int k) { return remember(em, &x->in[k], 1, make_blocks, 1); }

/* ---- operands ---- */

rt_operand rt_operand_of(rt_emitter *em, const atoll_rt *x, int k, int dense) {
  const rt_edge *e = &x->in[k];
  const atoll_rt *src = rt_src(em->g, e);
  if (!rt_is_member(em, e))
    return view(em, e, dense);
  rt_operand o = {.kind = RT_MEMORY, .dtype = src->dtype, .axes = src->axes, .dense = 1, .node = src};
  memcpy(o.shape, src->shape, sizeof o.shape);
  if (rt_is_fused(em, x, k) && em->cluster[src->id] == em->cluster[x->id]) {
    o.kind = RT_SCALAR;
    o.base = rt_text(em, "v%d", src->id);
    return o;
  }
  if (rt_is_formula(em, x, k)) {
    o.kind = RT_FORMULA;
    return o;
  }
  o.base = rt_place(em, src);
  dense_strides(em, &o, 0);
  return o;
}

static const char *offset(rt_emitter *em, const rt_operand *o, int n, const char *const *at) {
  const char *s = NULL;
  int64_t extent;
  for (int k = 0; k < o->axes; k++) {
    const char *i = at[n - o->axes + k], *stride = o->stride[k];
    if ((rt_is_const(o->shape[k], &extent) && extent == 1) || strcmp(i, "0") == 0)
      continue;
    const char *term = strcmp(stride, "1") == 0 ? i : rt_text(em, "%s * %s", i, stride);
    s = s ? rt_text(em, "%s + %s", s, term) : term;
  }
  return s ? s : "0";
}

const char *rt_element_text(rt_emitter *em, const rt_operand *o, int n, const char *const *at) {
  const char *axes[RT_AXES], *load;
  int64_t extent;
  switch (o->kind) {
  case RT_SCALAR:
  case RT_LITERAL:
    return o->base;
  case RT_FORMULA:
    for (int k = 0; k < o->axes; k++)
      axes[k] = rt_is_const(o->shape[k], &extent) && extent == 1 ? "0" : at[n - o->axes + k];
    load = rt_text(em, "(double)%s", rt_expression(em, o->node->expr, axes));
    return rt_text(em, "(%s)", rt_rounded(em, ATOLL_F64, o->dtype, load));
  default:
    load = rt_text(em, "%s[%s]", o->base, offset(em, o, n, at));
    if (o->dtype == ATOLL_F32 || o->dtype == ATOLL_F64)
      return load;
    return o->dtype == ATOLL_BF16 ? rt_text(em, "rt_from_bf16(%s)", load) : rt_text(em, "(double)%s", load);
  }
}

const char *rt_pointer(rt_emitter *em, const rt_operand *o) {
  if (o->kind != RT_LITERAL)
    return o->base;
  int w = em->names++;
  const char *type = rt_storage_type(o->dtype);
  rt_wait(em);
  rt_know(em, rt_text(em, "%s *", type), rt_text(em, "k%d", w));
  if (o->axes == 0 && !em->kernels) {
    rt_line(em, "const %s k%d[1] = {%s};", type, w, rt_stored(em, o->dtype, o->base));
    return rt_text(em, "k%d", w);
  }
  const char *n = rt_count(em, o->axes, o->shape, 0);
  rt_line(em, "%s *k%d = (%s *)rt_space(r, %s * (int64_t)sizeof(%s));", type, w, type, n, type);
  rt_line(em, "if (!k%d)", w);
  rt_line(em, "  return r->error(r);");
  rt_loop(em, "i", n);
  rt_line(em, "k%d[i] = %s;", w, rt_stored(em, o->dtype, o->base));
  rt_close(em);
  return rt_text(em, "k%d", w);
}

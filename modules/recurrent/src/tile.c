/* Tiling of attention: y = softmax(s) v, where s and v read keys and values over a slice lo:hi of dimension t, becomes
 * a recurrence over blocks of t with a running maximum m, sum l and result a (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018; Dao et al., FlashAttention, 2022):
 *
 *     m[j] = max(m[j-1], max s_j)      c = exp(m[j-1] - m[j])      e = exp(s_j - m[j])
 *     l[j] = l[j-1] c + sum e          a[j] = a[j-1] c + e v_j     y = a[last] / l[last]
 *
 * Block j holds the positions j*size to (j+1)*size of t, whatever the slice, so that blocks of keys are the same for
 * all readers; a slice uses the part of a block that is in it. Blocks are a new dimension, and the rest is left to the
 * passes and the schedule as for any other recurrence.
 *
 * Where a slice is empty there are no blocks, and y is 0.
 *
 * Placed over R ranks, j counts the blocks of one rank, which are j*R + rank; keys and values elsewhere are not read,
 * so that rt_pass_domains() finds that they are not needed. What ranks have of m, l and a is merged; a rank without a
 * block in the slice has m = -FLT_MAX and zeros. */
#include "passes.h"
#include "poly.h"

#include <ctype.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

struct attention {
  rt_graph *g;
  atoll_rt *y, *p, *e, *s; /* contraction, DIV, EXP, scores */
  const rt_edge *v;        /* of y */
  int axis;                /* of the keys in s, e, p */
  int p_first;             /* p is y's first operand */
  int t;                   /* dimension of the slice */
  const atoll_sym *lo, *hi;
  const atoll_sym *some; /* the slice is not empty; NULL: it nowhere is */
};

struct blocks {
  int j; /* the new dimension */
  int64_t size;
  const atoll_comm *comm;                    /* over whose ranks they are dealt out; NULL: all are here */
  const atoll_sym *first, *last, *from, *to; /* blocks of the slice; its part in block j */
};

/* ---- recognising ---- */

static atoll_rt *same_point(const atoll_rt *x, int k, rt_op op) {
  atoll_rt *src = k < x->inputs ? rt_src(x->g, &x->in[k]) : NULL;
  return src && src->op == op && rt_is_identity(x->g, &x->in[k]) ? src : NULL;
}

/* p = e / sum(e), e = exp(s - max(s)), over one axis. */
static int is_softmax(struct attention *a) {
  if (!(a->e = same_point(a->p, 0, RT_EXP)))
    return 0;
  const atoll_rt *kept = same_point(a->p, 1, RT_RESHAPE), *sum = kept ? same_point(kept, 0, RT_SUM) : NULL;
  const atoll_rt *d = same_point(a->e, 0, RT_SUB), *top = d ? same_point(d, 1, RT_RESHAPE) : NULL;
  const atoll_rt *max = top ? same_point(top, 0, RT_MAXIMUM) : NULL;
  if (!sum || !max || sum->in[0].src != a->e->id || max->axis != sum->axis || max->in[0].src != d->in[0].src)
    return 0;
  a->s = rt_src(a->g, &d->in[0]);
  a->axis = max->axis;
  return rt_is_identity(a->g, &d->in[0]) && rt_is_identity(a->g, &max->in[0]) && a->s->axes == a->p->axes;
}

static const char *operand_labels(const atoll_rt *y, int k) { return k ? strchr(y->spec, ',') + 1 : y->spec; }

/* The values' slice is the one that the keys' axis walks, and it disappears in y. */
static int find_slice(struct attention *a) {
  rt_graph *g = a->g;
  int slices = 0, other = a->p_first ? 1 : 0;
  char label = operand_labels(a->y, !other)[a->axis];
  a->v = &a->y->in[other];
  for (int d = 0; d < g->dims; d++) {
    if (!rt_has(rt_src(g, a->v), d) || !a->v->item[d].hi)
      continue;
    slices++;
    a->t = d;
    a->lo = a->v->item[d].lo;
    a->hi = a->v->item[d].hi;
  }
  return slices == 1 && operand_labels(a->y, other)[0] == label && !strchr(strstr(a->y->spec, "->"), label) &&
         a->s->shape[a->axis] == atoll_sym_sub(g->syms, a->hi, a->lo);
}

/* Sets `some`, where there are points of y with an empty slice. */
static atoll_err find_empty(struct attention *a) {
  rt_graph *g = a->g;
  isl_ctx *ctx = rt_poly_create();
  if (!ctx)
    return atoll_fail(ATOLL_NOMEM, "tile: no memory");
  atoll_rt probe = *a->y;
  const atoll_sym *none = atoll_sym_binary(g->syms, ATOLL_SYM_LE, a->hi, a->lo);
  probe.where = probe.where ? atoll_sym_binary(g->syms, ATOLL_SYM_AND, probe.where, none) : none;
  isl_set *points = isl_set_intersect_params(rt_poly_domain(ctx, &probe), rt_poly_context(ctx, g));
  isl_bool nowhere = isl_set_is_empty(points);
  a->some = nowhere == isl_bool_true ? NULL : atoll_sym_binary(g->syms, ATOLL_SYM_LT, a->lo, a->hi);
  atoll_err err = nowhere == isl_bool_error ? rt_poly_error(ctx, "tile") : ATOLL_OK;
  isl_set_free(points);
  isl_ctx_free(ctx);
  return err;
}

static int recognise(rt_graph *g, atoll_rt *y, struct attention *a) {
  int64_t extent;
  if (y->op != RT_EINSUM)
    return 0;
  for (int k = 0; k < 2; k++) {
    *a = (struct attention){.g = g, .y = y, .p_first = k == 0};
    a->p = same_point(y, k, RT_DIV);
    if (a->p && is_softmax(a) && find_slice(a) && !rt_is_const(a->s->shape[a->axis], &extent))
      return 1;
  }
  return 0;
}

/* ---- blocks ---- */

static const atoll_sym *op2(rt_graph *g, atoll_sym_op op, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_binary(g->syms, op, a, b);
}

static int64_t ranks_of(const struct blocks *b) { return b->comm ? atoll_comm_size(b->comm) : 1; }

/* A new dimension, of blocks of t, or -1: there is no room for it. Named "tj", or "tjj" if another has that name. */
static int add_block_dimension(rt_graph *g, int t, int64_t size) {
  char name[32];
  size_t n = (size_t)snprintf(name, sizeof name, "%s", g->dim[t].name);
  if (g->dims == RT_DIMS)
    return -1;
  for (int taken = 1; taken;) {
    name[n++] = 'j';
    name[n] = 0;
    taken = 0;
    for (int d = 0; d < g->dims; d++)
      taken |= strcmp(g->dim[d].name, name) == 0;
  }
  rt_dim *dim = &g->dim[g->dims];
  dim->name = rt_copy_text(g, name);
  for (size_t i = 0; i < n; i++)
    name[i] = (char)toupper((unsigned char)name[i]);
  dim->bound_name = rt_copy_text(g, name);
  dim->bound = -1;
  dim->var = atoll_sym_var(g->syms, dim->name, ATOLL_SYM_INT);
  dim->size = atoll_sym_ceildiv(g->syms, g->dim[t].size, rt_int(g, size));
  return dim->name && dim->bound_name && dim->var && dim->size ? g->dims++ : -1;
}

static void cut(rt_graph *g, const struct attention *a, struct blocks *b) {
  const atoll_sym *j = g->dim[b->j].var, *size = rt_int(g, b->size), *one = rt_int(g, 1);
  b->first = op2(g, ATOLL_SYM_FLOORDIV, a->lo, size);
  b->last = op2(g, ATOLL_SYM_FLOORDIV, atoll_sym_sub(g->syms, a->hi, one), size);
  if (b->comm) { /* of the blocks first ... last, those that are j*ranks + rank */
    const atoll_sym *ranks = rt_int(g, ranks_of(b)), *rank = rt_int(g, atoll_comm_rank(b->comm));
    b->first = atoll_sym_ceildiv(g->syms, atoll_sym_sub(g->syms, b->first, rank), ranks);
    b->last = op2(g, ATOLL_SYM_FLOORDIV, atoll_sym_sub(g->syms, b->last, rank), ranks);
    j = atoll_sym_add(g->syms, atoll_sym_mul(g->syms, j, ranks), rank);
  }
  b->from = atoll_sym_max(g->syms, a->lo, atoll_sym_mul(g->syms, j, size));
  b->to = op2(g, ATOLL_SYM_MIN, a->hi, atoll_sym_mul(g->syms, atoll_sym_add(g->syms, j, one), size));
}

static int cut_edge(const struct attention *a, const struct blocks *b, rt_edge *e) {
  if (!rt_has(rt_src(a->g, e), a->t) || e->item[a->t].lo != a->lo || e->item[a->t].hi != a->hi)
    return 0;
  e->item[a->t] = (rt_item){b->from, b->to};
  return 1;
}

/* What computes the scores, for the keys of one block. Nodes without the keys' axis are used as they are. */
static atoll_rt *block_scores(const struct attention *a, const struct blocks *b, const atoll_rt *x) {
  rt_graph *g = a->g;
  const atoll_sym *whole = a->s->shape[a->axis], *part = atoll_sym_sub(g->syms, b->to, b->from);
  int walks = 0;
  for (int k = 0; k < x->axes; k++)
    walks |= x->shape[k] == whole;
  if (!walks)
    return g->node[x->id];
  if (!rt_is_element(x->op) && x->op != RT_EINSUM && x->op != RT_PERMUTE && x->op != RT_IDENT)
    return NULL;
  atoll_rt *y = rt_node(g, x->op, x->dtype);
  if (!y)
    return NULL;
  const int id = y->id;
  *y = *x;
  y->id = id;
  y->group = 0;
  y->where = NULL;
  y->inputs = 0;
  y->in = NULL;
  y->dims = x->dims | 1u << b->j;
  for (int k = 0; k < x->axes; k++)
    if (x->shape[k] == whole)
      y->shape[k] = part;
  for (int k = 0; k < x->inputs; k++) {
    rt_edge e = x->in[k];
    if (!cut_edge(a, b, &e) && rt_is_identity(g, &e)) {
      atoll_rt *inner = block_scores(a, b, rt_src(g, &e));
      if (!inner || !rt_connect(y, inner))
        return NULL;
    } else if (!rt_add_edge(y, &e)) {
      return NULL;
    }
  }
  return y;
}

/* ---- the recurrence ---- */

/* Shaped like x, wherever y is needed and for all blocks of its slice. */
static atoll_rt *along_blocks(const struct attention *a, const struct blocks *b, const atoll_rt *like) {
  rt_graph *g = a->g;
  const atoll_sym *j = g->dim[b->j].var;
  atoll_rt *x = rt_node(g, RT_MERGE, like->dtype);
  if (!x)
    return NULL;
  x->dims = a->y->dims | 1u << b->j;
  x->where = op2(g, ATOLL_SYM_AND, op2(g, ATOLL_SYM_LE, b->first, j), op2(g, ATOLL_SYM_LE, j, b->last));
  if (a->y->where)
    x->where = op2(g, ATOLL_SYM_AND, a->y->where, x->where);
  if (a->some)
    x->where = op2(g, ATOLL_SYM_AND, a->some, x->where);
  rt_set_shape(x, like->axes, like->shape);
  return x;
}

static atoll_rt *at_block(const struct blocks *b, atoll_rt *x, const atoll_sym *j) {
  rt_item item[RT_DIMS] = {{NULL, NULL}};
  if (!x)
    return NULL;
  for (int d = 0; d < x->g->dims; d++)
    if (rt_has(x, d))
      item[d].lo = d == b->j ? j : x->g->dim[d].var;
  return rt_view(x, item, NULL);
}

static atoll_rt *before(const struct blocks *b, atoll_rt *x) {
  return x ? at_block(b, x, atoll_sym_sub(x->g->syms, x->g->dim[b->j].var, rt_int(x->g, 1))) : NULL;
}

static atoll_err define(const struct blocks *b, atoll_rt *x, atoll_rt *first, atoll_rt *rest) {
  rt_graph *g = x ? x->g : NULL;
  rt_edge *e = x && first && rest ? rt_connect(x, first) : NULL;
  if (!e)
    return g ? rt_graph_error(g) : ATOLL_OK;
  e->cond = op2(g, ATOLL_SYM_EQ, g->dim[b->j].var, b->first);
  if ((e = rt_connect(x, rest)))
    e->cond = atoll_sym_bool(g->syms, 1);
  return rt_graph_error(g);
}

static atoll_rt *keep_axis(atoll_rt *x, int axis) {
  const atoll_sym *shape[RT_AXES];
  if (!x)
    return NULL;
  for (int k = 0; k <= x->axes; k++)
    shape[k] = k == axis ? rt_int(x->g, 1) : x->shape[k < axis ? k : k - 1];
  return rt_reshape(x, x->axes + 1, shape);
}

/* x, with the labels of y's result, times r, with those of the scores without the keys. */
static atoll_rt *scaled(const struct attention *a, atoll_rt *x, atoll_rt *r) {
  const char *result = strstr(a->y->spec, "->") + 2, *p = operand_labels(a->y, !a->p_first);
  char spec[4 * RT_AXES], rest[RT_AXES + 1] = "";
  for (int k = 0, n = 0; k < a->p->axes; k++)
    if (k != a->axis)
      rest[n++] = p[k];
  (void)snprintf(spec, sizeof spec, "%s,%s->%s", result, rest, result);
  return atoll_rt_einsum(spec, x, r);
}

static atoll_rt *block_values(const struct attention *a, const struct blocks *b, atoll_rt *e) {
  rt_edge v = *a->v;
  if (!cut_edge(a, b, &v))
    return NULL;
  atoll_rt *values = rt_view(rt_src(a->g, &v), v.item, v.text);
  return a->p_first ? atoll_rt_einsum(a->y->spec, e, values) : atoll_rt_einsum(a->y->spec, values, e);
}

/* What x is after the slice's last block; `none` where it has no block here. */
static atoll_rt *at_last(const struct attention *a, const struct blocks *b, atoll_rt *x, double none) {
  rt_graph *g = a->g;
  atoll_rt *last = at_block(b, x, b->last), *y = last && b->comm ? rt_node(g, RT_MERGE, x->dtype) : NULL;
  if (!y)
    return last;
  y->dims = a->y->dims;
  y->where = a->y->where;
  rt_set_shape(y, x->axes, x->shape);
  rt_edge *e = rt_connect(y, last);
  if (!e)
    return NULL;
  e->cond = op2(g, ATOLL_SYM_LE, b->first, b->last);
  e = rt_connect(y, rt_expand(rt_number(x, none), x->axes, x->shape));
  if (!e)
    return NULL;
  e->cond = atoll_sym_bool(g->syms, 1);
  return y;
}

/* x where the slice is not empty, else 0. */
static atoll_rt *where_some(const struct attention *a, atoll_rt *x) {
  rt_graph *g = a->g;
  atoll_rt *y = x && a->some ? rt_node(g, RT_MERGE, x->dtype) : NULL;
  if (!y)
    return x;
  y->dims = a->y->dims;
  y->where = a->y->where;
  rt_set_shape(y, x->axes, x->shape);
  rt_edge *e = rt_connect(y, x);
  if (!e)
    return NULL;
  e->cond = a->some;
  e = rt_connect(y, rt_expand(rt_number(x, 0), x->axes, x->shape));
  if (!e)
    return NULL;
  e->cond = atoll_sym_bool(g->syms, 1);
  return y;
}

/* *done: y is made of blocks; 0 when its scores are computed in a way that does not allow it. */
static atoll_err tile(struct attention *a, const struct blocks *b, int *done) {
  rt_graph *g = a->g;
  atoll_rt *s = block_scores(a, b, a->s), *top = atoll_rt_maximum(s, a->axis);
  *done = top != NULL;
  if (!top)
    return rt_graph_error(g);
  atoll_rt *m = along_blocks(a, b, top);
  atoll_rt *l = along_blocks(a, b, top);
  atoll_rt *sum = along_blocks(a, b, a->y);
  ATOLL_TRY(define(b, m, top, atoll_rt_max(before(b, m), top)));
  atoll_rt *c = atoll_rt_exp(atoll_rt_sub(before(b, m), m));
  atoll_rt *e = atoll_rt_exp(atoll_rt_sub(s, keep_axis(m, a->axis)));
  atoll_rt *part = atoll_rt_sum(e, a->axis), *values = block_values(a, b, e);
  ATOLL_TRY(define(b, l, part, atoll_rt_add(atoll_rt_mul(before(b, l), c), part)));
  ATOLL_TRY(define(b, sum, values, atoll_rt_add(scaled(a, before(b, sum), c), values)));
  top = at_last(a, b, m, -FLT_MAX);
  part = at_last(a, b, l, 0);
  values = at_last(a, b, sum, 0);
  if (b->comm) {
    c = atoll_rt_exp(atoll_rt_sub(top, atoll_rt_rank_max(top, b->comm)));
    atoll_rt *share[2] = {atoll_rt_mul(part, c), scaled(a, values, c)};
    atoll_rt_rank_sums(2, share, b->comm, share);
    part = share[0];
    values = share[1];
  }
  atoll_rt *result = where_some(a, scaled(a, values, atoll_rt_div(rt_number(a->y, 1), part)));
  if (!result)
    return rt_graph_error(g);
  unsigned dims = a->y->dims;
  a->y->op = RT_IDENT;
  a->y->spec = NULL;
  a->y->inputs = 0;
  (void)rt_connect(a->y, result);
  a->y->dims = dims;
  return rt_graph_error(g);
}

/* Whether dimension d is in the list "b,t". */
static atoll_err is_placed(rt_graph *g, const char *place, int d, int *placed) {
  unsigned mask = 0;
  if (place)
    ATOLL_TRY(rt_parse_domain(g, place, &mask));
  *placed = (int)(mask >> d & 1u);
  return ATOLL_OK;
}

atoll_err rt_pass_tile(rt_graph *g, int64_t size, const char *place, const atoll_comm *comm) {
  int n = g->nodes, tiled = 0, dealt_out = 0;
  int blocks_of[RT_DIMS]; /* by dimension: that of its blocks, one for all slices over it; -1: none yet */
  struct attention a;
  if (place && (size <= 0 || !comm))
    return atoll_fail(ATOLL_USAGE, "placement of '%s' needs a tile and a communicator", place);
  if (size <= 0)
    return ATOLL_OK;
  for (int d = 0; d < RT_DIMS; d++)
    blocks_of[d] = -1;
  for (int i = 0; i < n; i++) {
    struct blocks b = {.size = size};
    int placed, done = 0;
    char label[96];
    if (!g->node[i] || !recognise(g, g->node[i], &a))
      continue;
    ATOLL_TRY(is_placed(g, place, a.t, &placed));
    b.comm = placed ? comm : NULL;
    if (blocks_of[a.t] < 0)
      blocks_of[a.t] = add_block_dimension(g, a.t, size * ranks_of(&b));
    b.j = blocks_of[a.t];
    if (b.j >= 0) {
      ATOLL_TRY(find_empty(&a));
      cut(g, &a, &b);
      ATOLL_TRY(tile(&a, &b, &done));
    }
    if (placed && !done)
      return atoll_fail(ATOLL_USAGE, "placement of '%s': %s over it is not made of blocks, %s", place,
                        rt_label(g->node[i], label, sizeof label),
                        b.j < 0 ? "which are a dimension more than there may be" : "since its scores cannot be");
    dealt_out |= placed;
    tiled |= done;
  }
  if (place && !dealt_out)
    return atoll_fail(ATOLL_USAGE, "placement of '%s': no attention reads slices over it", place);
  return tiled ? rt_pass_simplify(g) : ATOLL_OK;
}

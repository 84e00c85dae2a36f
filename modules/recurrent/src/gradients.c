/* Reverse-mode differentiation of a graph with recurrences.
 *
 * Every active node n (one that depends on a leaf and on which the loss depends) gets an accumulator: a node of n's
 * domain and shape whose value at a point is d loss / d n there. Accumulators exist before anything is put into them,
 * so the order in which nodes are visited does not matter and a recurrence of the program becomes one of its gradient,
 * running the other way: back-propagation through time, with nothing special about it.
 *
 * A consumer y reads n at points phi(p). Two steps give its part of n's gradient at q:
 *  1. the derivative of the operation, at the consumer's point p, for the view it reads: a node C of y's domain;
 *  2. the sum of C[p] over all p with q in phi(p), each at the element of the view that q is.
 * The set R(q) of those p is the reversed index map. Each dimension of p is either a function of q (a point) or spans
 * an interval (a slice) of R(q); when R(q) is not the whole product of these, a mask, the condition itself, says which
 * points count. Where R(q) is empty the gradient is 0, which is a case definition again. Conditions of cases and the
 * points for which y is needed at all are part of R. This serves any quasi-affine index: x[t-1], x[t//2], x[t%k],
 * x[0:t+1], x[T-1-t], x[b+t] ... */
#include "passes.h"
#include "poly.h"

#include <isl/aff.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct grad {
  rt_graph *g;
  isl_ctx *ctx;
  const rt_request *request;
  int nodes;          /* before this pass */
  const char *active; /* per node */
  atoll_rt **sum;     /* accumulators of active nodes */
  atoll_rt **total;   /* what goes into them so far, or NULL */
};

static int is_leaf(const rt_request *r, int id) {
  for (int k = 0; k < r->n; k++)
    if (r->leaf[k] == id)
      return 1;
  return 0;
}

/* ---- step 2: from a consumer's points to the source's ---- */

/* Dimension d of R(q) as an item of q. */
static atoll_err reverse_item(rt_graph *g, isl_set *readers, isl_set *where, int at, rt_item *item) {
  isl_pw_aff *least = isl_set_dim_min(isl_set_copy(readers), at), *most = isl_set_dim_max(isl_set_copy(readers), at);
  isl_bool point = isl_pw_aff_is_equal(least, most);
  least = isl_pw_aff_gist_params(rt_poly_coalesce_value(least), isl_set_copy(where));
  most = isl_pw_aff_gist_params(rt_poly_coalesce_value(most), isl_set_copy(where));
  atoll_err err = ATOLL_OK;
  *item = (rt_item){NULL, NULL};
  if (!least || !most || point == isl_bool_error)
    err = rt_poly_error(isl_set_get_ctx(readers), "gradients: reversing an index");
  if (err == ATOLL_OK)
    err = rt_poly_value(g, least, &item->lo);
  if (err == ATOLL_OK && !point)
    err = rt_poly_value(g, most, &item->hi);
  if (err == ATOLL_OK && item->hi)
    item->hi = atoll_sym_add(g->syms, item->hi, rt_int(g, 1));
  isl_pw_aff_free(least);
  isl_pw_aff_free(most);
  return err;
}

/* phi(p) holds q, y's conditions hold at p; p is given by its coordinates as functions of q and positions. */
static const atoll_sym *membership(const atoll_rt *y, int k, const atoll_sym *const p[RT_DIMS]) {
  rt_graph *g = y->g;
  const rt_edge *e = &y->in[k];
  const atoll_rt *src = rt_src(g, e);
  const atoll_sym *all = atoll_sym_bool(g->syms, 1);
  if (y->where)
    all = atoll_sym_binary(g->syms, ATOLL_SYM_AND, all, rt_substitute(g, y->where, y->dims, p));
  for (int i = 0; i <= k; i++)
    if (y->in[i].cond) {
      const atoll_sym *c = rt_substitute(g, y->in[i].cond, y->dims, p);
      all = atoll_sym_binary(g->syms, ATOLL_SYM_AND, all, i == k ? c : atoll_sym_not(g->syms, c));
    }
  for (int d = 0; d < g->dims; d++) {
    if (!rt_has(src, d))
      continue;
    const atoll_sym *lo = rt_substitute(g, e->item[d].lo, y->dims, p), *q = g->dim[d].var;
    if (!e->item[d].hi) {
      all = atoll_sym_binary(g->syms, ATOLL_SYM_AND, all, atoll_sym_binary(g->syms, ATOLL_SYM_EQ, lo, q));
      continue;
    }
    const atoll_sym *hi = rt_substitute(g, e->item[d].hi, y->dims, p);
    all = atoll_sym_binary(g->syms, ATOLL_SYM_AND, all, atoll_sym_binary(g->syms, ATOLL_SYM_LE, lo, q));
    all = atoll_sym_binary(g->syms, ATOLL_SYM_AND, all, atoll_sym_binary(g->syms, ATOLL_SYM_LT, q, hi));
  }
  return all;
}

struct reversed {
  rt_item item[RT_DIMS];           /* of the consumer's dimensions */
  const atoll_sym *point[RT_DIMS]; /* the same with positions along the slices */
  int slices;
  int exact;             /* the product of the items is R(q) */
  const atoll_sym *cond; /* where R(q) is not empty, or NULL: everywhere */
};

static atoll_err reverse(struct grad *a, const atoll_rt *y, int k, struct reversed *r) {
  rt_graph *g = a->g;
  const atoll_rt *src = rt_src(g, &y->in[k]);
  isl_set *readers = rt_poly_readers(a->ctx, y, k);
  isl_set *where = isl_set_params(isl_set_copy(readers));
  /* The gradient of a leaf may be wanted where nothing needs the leaf itself. */
  isl_set *all = is_leaf(a->request, src->id) ? rt_poly_box(a->ctx, src) : rt_poly_domain(a->ctx, src);
  isl_set *whole = rt_poly_as_parameters(src, all);
  isl_set *product = NULL;
  atoll_err err = ATOLL_OK;
  int at = 0;
  memset(r, 0, sizeof *r);
  whole = isl_set_intersect_params(whole, rt_poly_context(a->ctx, g));
  isl_bool everywhere = isl_set_is_subset(whole, where);
  if (everywhere == isl_bool_error)
    ATOLL_TRY_GOTO(err, clean, rt_poly_error(a->ctx, "gradients: reversing an index"));
  if (!everywhere) {
    isl_set *gist = isl_set_gist(isl_set_copy(where), isl_set_copy(whole));
    err = gist ? rt_poly_parameter_condition(g, gist, &r->cond) : rt_poly_error(a->ctx, "gradients");
    isl_set_free(gist);
    if (err != ATOLL_OK)
      goto clean;
  }
  for (int d = 0; d < g->dims; d++) {
    if (!rt_has(y, d))
      continue;
    ATOLL_TRY_GOTO(err, clean, reverse_item(g, readers, where, at++, &r->item[d]));
    r->point[d] = r->item[d].lo;
    if (r->item[d].hi)
      r->point[d] = atoll_sym_add(g->syms, r->item[d].lo, rt_axis(g, r->slices++));
  }
  product = isl_set_intersect_params(rt_poly_product(a->ctx, y, r->item), isl_set_copy(where));
  isl_bool exact = isl_set_is_equal(product, readers);
  if (exact == isl_bool_error)
    err = rt_poly_error(a->ctx, "gradients: reversing an index");
  r->exact = exact == isl_bool_true;
clean:
  isl_set_free(product);
  isl_set_free(readers);
  isl_set_free(where);
  isl_set_free(whole);
  return err;
}

/* x with exactly the domain `dims`, which includes its own. */
static atoll_rt *over_dims(atoll_rt *x, unsigned dims) {
  if (!x || x->dims == dims)
    return x;
  atoll_rt *y = rt_node(x->g, RT_IDENT, x->dtype);
  if (!y || !rt_connect(y, x))
    return NULL;
  rt_set_shape(y, x->axes, x->shape);
  y->dims = dims;
  return y;
}

static atoll_rt *zeros(const atoll_rt *like) { return rt_expand(rt_number(like, 0), like->axes, like->shape); }

/* `part` where the condition holds, else 0; like: the tensor whose gradient it is. */
static atoll_rt *guarded(atoll_rt *part, const atoll_sym *cond, const atoll_rt *like) {
  rt_graph *g = like->g;
  atoll_rt *y = part ? rt_node(g, RT_MERGE, like->dtype) : NULL, *zero = zeros(like);
  if (!y || !zero)
    return NULL;
  rt_set_shape(y, like->axes, like->shape);
  y->dims = like->dims;
  rt_edge *e = rt_connect(y, part);
  if (!e)
    return NULL;
  e->cond = cond;
  e = rt_connect(y, zero);
  if (!e)
    return NULL;
  e->cond = atoll_sym_bool(g->syms, 1);
  return y;
}

/* The sum over R(q), by slices and sums where the view is plain, else by PICK. */
static atoll_rt *gathered(const atoll_rt *y, int k, const struct reversed *r, atoll_rt *c) {
  rt_graph *g = y->g;
  const rt_edge *e = &y->in[k];
  const atoll_rt *src = rt_src(g, e);
  unsigned sliced = 0, ragged = 0;
  for (int d = 0; d < g->dims; d++)
    if (r->item[d].hi)
      sliced |= 1u << d;
  for (int a = 0; a < c->axes; a++)
    ragged |= rt_dims_of(g, c->shape[a]) & sliced;
  if (r->exact && !ragged && rt_slices(g, e) == 0) {
    atoll_rt *x = rt_view(c, r->item, NULL);
    for (int s = 0; s < r->slices; s++)
      x = atoll_rt_sum(x, 0);
    return x;
  }
  atoll_rt *x = rt_node(g, RT_PICK, c->dtype);
  rt_edge view = {.src = c->id};
  if (!x)
    return NULL;
  memcpy(view.item, r->item, sizeof view.item);
  x->axis = r->slices;
  x->expr = r->exact ? NULL : membership(y, k, r->point);
  for (int d = 0; d < g->dims; d++)
    if (rt_has(src, d) && e->item[d].hi)
      x->start[x->picks++] = atoll_sym_sub(g->syms, g->dim[d].var, rt_substitute(g, e->item[d].lo, y->dims, r->point));
  rt_set_shape(x, src->axes, src->shape);
  x->dims = src->dims;
  return rt_add_edge(x, &view) ? x : NULL;
}

/* Adds C, the gradient of the view that y reads through input k, to the source's accumulator. */
static atoll_err add(struct grad *a, const atoll_rt *y, int k, atoll_rt *c) {
  rt_graph *g = a->g;
  atoll_rt *src = rt_src(g, &y->in[k]);
  struct reversed r;
  if (!c)
    return rt_graph_error(g);
  isl_set *readers = rt_poly_readers(a->ctx, y, k);
  isl_bool none = isl_set_is_empty(readers);
  isl_set_free(readers);
  if (none == isl_bool_true)
    return ATOLL_OK;
  ATOLL_TRY(reverse(a, y, k, &r));
  c = over_dims(c, y->dims);
  atoll_rt *part = c ? gathered(y, k, &r, c) : NULL;
  if (part && r.cond)
    part = guarded(part, r.cond, src);
  a->total[src->id] = part && a->total[src->id] ? atoll_rt_add(a->total[src->id], part) : part;
  return part ? ATOLL_OK : rt_graph_error(g);
}

/* ---- step 1: derivatives of operations ---- */

/* What the operation reads through input k, as a tensor at its own points. */
static atoll_rt *operand(const atoll_rt *y, int k) {
  const rt_edge *e = &y->in[k];
  return rt_is_identity(y->g, e) ? rt_src(y->g, e) : rt_view(rt_src(y->g, e), e->item, e->text);
}

/* Sums c over the axes along which an operand of this shape was repeated. */
static atoll_rt *unbroadcast(atoll_rt *c, const atoll_rt *x) {
  while (c && c->axes > x->axes)
    c = atoll_rt_sum(c, 0);
  for (int k = 0; c && k < x->axes; k++) {
    if (c->shape[k] == x->shape[k])
      continue;
    const atoll_sym *shape[RT_AXES];
    memcpy(shape, c->shape, sizeof shape);
    shape[k] = rt_int(c->g, 1);
    c = rt_reshape(atoll_rt_sum(c, k), c->axes, shape);
  }
  return c;
}

static atoll_rt *expand_like(atoll_rt *c, const atoll_rt *y) {
  return c && (c->axes != y->axes || memcmp(c->shape, y->shape, (size_t)y->axes * sizeof *y->shape) != 0)
             ? rt_expand(c, y->axes, y->shape)
             : c;
}

static atoll_rt *zero_of(const atoll_rt *x) { return rt_number(x, 0); }

static atoll_rt *element_unary(const atoll_rt *y, atoll_rt *self, atoll_rt *g, atoll_rt *x) {
  switch (y->op) {
  case RT_NEG:
    return atoll_rt_neg(g);
  case RT_EXP:
    return atoll_rt_mul(g, self);
  case RT_LOG:
    return atoll_rt_div(g, x);
  case RT_SQRT:
    return atoll_rt_div(atoll_rt_scale(g, 0.5), self);
  case RT_SIN:
    return atoll_rt_mul(g, atoll_rt_cos(x));
  case RT_COS:
    return atoll_rt_neg(atoll_rt_mul(g, atoll_rt_sin(x)));
  case RT_TANH:
    return atoll_rt_mul(g, atoll_rt_shift(atoll_rt_neg(atoll_rt_square(self)), 1));
  case RT_ERF:
    return atoll_rt_mul(g, atoll_rt_scale(atoll_rt_exp(atoll_rt_neg(atoll_rt_square(x))), 2 / sqrt(M_PI)));
  case RT_ABS:
    return atoll_rt_where(atoll_rt_lt(x, zero_of(x)), atoll_rt_neg(g), g);
  default: /* CAST */
    return atoll_rt_cast(g, x->dtype);
  }
}

static atoll_rt *element_binary(const atoll_rt *y, int k, atoll_rt *self, atoll_rt *g, atoll_rt *a, atoll_rt *b) {
  atoll_rt *other = k ? a : b;
  switch (y->op) {
  case RT_ADD:
    return g;
  case RT_SUB:
    return k ? atoll_rt_neg(g) : g;
  case RT_MUL:
    return atoll_rt_mul(g, other);
  case RT_DIV:
    return k ? atoll_rt_neg(atoll_rt_div(atoll_rt_mul(g, self), b)) : atoll_rt_div(g, b);
  case RT_POW:
    if (k)
      return atoll_rt_mul(g, atoll_rt_mul(self, atoll_rt_log(a)));
    return atoll_rt_mul(g, atoll_rt_mul(b, atoll_rt_pow(a, atoll_rt_shift(b, -1))));
  case RT_MIN: /* the first operand where both are equal */
    return atoll_rt_where(atoll_rt_lt(b, a), k ? g : zero_of(g), k ? zero_of(g) : g);
  default: /* MAX */
    return atoll_rt_where(atoll_rt_lt(a, b), k ? g : zero_of(g), k ? zero_of(g) : g);
  }
}

static atoll_rt *derive_element(const atoll_rt *y, int k, atoll_rt *self, atoll_rt *g) {
  atoll_rt *x[3] = {NULL};
  for (int i = 0; i < y->inputs; i++)
    x[i] = operand(y, i);
  if (!x[0] || (y->inputs > 1 && !x[1]))
    return NULL;
  atoll_rt *c = NULL;
  if (y->op == RT_WHERE)
    c = atoll_rt_where(x[0], k == 1 ? g : zero_of(g), k == 1 ? zero_of(g) : g);
  else
    c = y->inputs == 1 ? element_unary(y, self, g, x[0]) : element_binary(y, k, self, g, x[0], x[1]);
  return unbroadcast(expand_like(c, y), x[k]);
}

/* g with an axis of extent 1 where y's reduction took one away. */
static atoll_rt *keep_axis(atoll_rt *g, int axis) {
  const atoll_sym *shape[RT_AXES];
  if (!g || g->axes == RT_AXES)
    return NULL;
  for (int k = 0; k <= g->axes; k++)
    shape[k] = k == axis ? rt_int(g->g, 1) : g->shape[k < axis ? k : k - 1];
  return rt_reshape(g, g->axes + 1, shape);
}

static atoll_rt *derive_reduction(const atoll_rt *y, atoll_rt *g) {
  atoll_rt *x = operand(y, 0), *c = keep_axis(g, y->axis);
  if (!x || !c)
    return NULL;
  if (y->op == RT_SUM)
    return rt_expand(c, x->axes, x->shape);
  atoll_rt *best = keep_axis(atoll_rt_argmax(x, y->axis), y->axis);
  atoll_rt *position = rt_eval_node(y->g, ATOLL_I32, rt_axis(y->g, y->axis), x->axes, x->shape);
  return atoll_rt_where(atoll_rt_eq(position, best), c, zero_of(c));
}

/* The derivative of a contraction is one: "oi,i->o" gives "o,i->oi" and "oi,o->i". */
static atoll_rt *derive_einsum(const atoll_rt *y, int k, atoll_rt *g) {
  const char *comma = strchr(y->spec, ','), *arrow = strstr(comma, "->");
  char spec[3 * RT_AXES + 8];
  int na = (int)(comma - y->spec), nb = (int)(arrow - comma - 1);
  if (k)
    (void)snprintf(spec, sizeof spec, "%.*s,%s->%.*s", na, y->spec, arrow + 2, nb, comma + 1);
  else
    (void)snprintf(spec, sizeof spec, "%s,%.*s->%.*s", arrow + 2, nb, comma + 1, na, y->spec);
  return k ? atoll_rt_einsum(spec, operand(y, 0), g) : atoll_rt_einsum(spec, g, operand(y, 1));
}

static atoll_rt *pad_like(atoll_rt *g, const atoll_rt *x, int axis, const atoll_sym *start) {
  atoll_rt *y = g ? rt_node(g->g, RT_PAD, g->dtype) : NULL;
  if (!y || !rt_connect(y, g))
    return NULL;
  rt_set_shape(y, x->axes, x->shape);
  y->axis = axis;
  y->start[0] = start;
  y->dims |= rt_dims_of(g->g, start) | rt_dims_of(g->g, x->shape[axis]);
  return y;
}

static atoll_rt *derive_permute(const atoll_rt *y, atoll_rt *g) {
  int inverse[RT_AXES];
  for (int k = 0; k < y->axes; k++)
    inverse[y->order[k]] = k;
  return atoll_rt_permute(g, inverse);
}

static atoll_rt *derive_concat(const atoll_rt *y, int k, atoll_rt *g) {
  const atoll_rt *a = operand(y, 0), *b = operand(y, 1);
  if (!a || !b)
    return NULL;
  return k ? rt_slice(g, y->axis, a->shape[y->axis], b->shape[y->axis])
           : rt_slice(g, y->axis, rt_int(y->g, 0), a->shape[y->axis]);
}

static atoll_rt *derive_take(const atoll_rt *y, atoll_rt *g) {
  atoll_rt *table = operand(y, 0), *index = operand(y, 1);
  atoll_rt *x = table && index && g ? rt_node(y->g, RT_SCATTER, g->dtype) : NULL;
  if (!x || !rt_connect(x, g) || !rt_connect(x, index))
    return NULL;
  rt_set_shape(x, table->axes, table->shape);
  return x;
}

static atoll_rt *refuse(const atoll_rt *y) {
  char label[96];
  return rt_refuse(y->g, ATOLL_UNSUPPORTED, "gradients: %s cannot be differentiated (a second derivative?)",
                   rt_label(y, label, sizeof label));
}

/* d loss / d (view through input k), at y's points. */
static atoll_rt *derive(const atoll_rt *y, int k, atoll_rt *self, atoll_rt *g) {
  const atoll_rt *x = rt_is_element(y->op) ? NULL : operand(y, k);
  if (rt_is_element(y->op))
    return derive_element(y, k, self, g);
  if (!x)
    return NULL;
  switch (y->op) {
  case RT_IDENT:
  case RT_MERGE:
    return g;
  case RT_SUM:
  case RT_MAXIMUM:
    return derive_reduction(y, g);
  case RT_EINSUM:
    return derive_einsum(y, k, g);
  case RT_RESHAPE:
    return rt_reshape(g, x->axes, x->shape);
  case RT_EXPAND:
    return unbroadcast(g, x);
  case RT_PERMUTE:
    return derive_permute(y, g);
  case RT_CONCAT:
    return derive_concat(y, k, g);
  case RT_SLICE:
    return pad_like(g, x, y->axis, y->start[0]);
  case RT_PAD:
    return rt_slice(g, y->axis, y->start[0], x->shape[y->axis]);
  case RT_TAKE:
    return derive_take(y, g);
  case RT_SCATTER:
    return atoll_rt_take(g, operand(y, 1));
  default:
    return refuse(y);
  }
}

/* ---- which nodes ---- */

static int is_real(atoll_dtype t) { return t == ATOLL_F32 || t == ATOLL_F64 || t == ATOLL_BF16; }

/* Whether a derivative can flow from y to its input k. */
static int passes(const atoll_rt *y, int k) {
  switch (y->op) {
  case RT_DETACH:
  case RT_CALL:
  case RT_SINK:
  case RT_GRAD:
  case RT_ARGMAX:
  case RT_NOT:
  case RT_LT:
  case RT_LE:
  case RT_EQ:
  case RT_NE:
  case RT_AND:
  case RT_OR:
    return 0;
  case RT_WHERE:
    return k > 0;
  case RT_TAKE:
  case RT_SCATTER:
    return k == 0;
  default:
    return is_real(y->dtype);
  }
}

enum { FORWARD = 1, BACKWARD = 2 };

/* forward: depends on a leaf; backward: the loss depends on it. Both by sweeps until nothing changes. constant: per
 * node, for which nothing flows into its definition; NULL: leaves alone are such. */
static void spread(const rt_graph *g, const rt_request *r, int nodes, const char *constant, char *active) {
  for (int k = 0; k < r->n; k++)
    active[r->leaf[k]] |= FORWARD;
  active[r->loss] |= BACKWARD;
  for (int changed = 1; changed;) {
    changed = 0;
    for (int i = 0; i < nodes; i++) {
      const atoll_rt *y = g->node[i];
      if (!y || is_leaf(r, i) || (constant && constant[i]))
        continue;
      for (int k = 0; k < y->inputs; k++) {
        int x = y->in[k].src;
        if (!passes(y, k))
          continue;
        if (active[x] & FORWARD && !(active[i] & FORWARD))
          changed = active[i] |= FORWARD;
        if (active[i] & BACKWARD && !(active[x] & BACKWARD))
          changed = active[x] |= BACKWARD;
      }
    }
  }
}

/* Whether what r delivers takes part in what defines x. */
static int learns(const rt_graph *g, const rt_request *r, const atoll_rt *x, char *seen) {
  if (!x || seen[x->id])
    return 0;
  seen[x->id] = 1;
  for (int k = 0; x->op == RT_GRAD && k < r->n; k++)
    if (r->grad[k] == x->id)
      return 1;
  for (int k = 0; x->op != RT_GRAD && k < x->inputs; k++)
    if (learns(g, r, rt_src(g, &x->in[k]), seen))
      return 1;
  return 0;
}

/* Leaves of other calls that are defined by their gradients: to this one they are given, as to themselves. Where its
 * own leaves act on their updates, it is their effect that is asked for, and derivatives flow on. Found before any call
 * is served, so that the order of calls does not matter. constant: [nodes], zeros. */
static void find_constants(const rt_graph *g, const rt_request *r, char *constant, char *work) {
  char *active = work, *seen = work + g->nodes;
  memset(active, 0, (size_t)g->nodes);
  spread(g, r, g->nodes, NULL, active);
  for (int i = 0; i < g->requests; i++) {
    const rt_request *other = &g->request[i];
    for (int k = 0; other != r && k < other->n; k++) {
      const atoll_rt *x = g->node[other->leaf[k]];
      int acts = 0;
      memset(seen, 0, (size_t)g->nodes);
      if (!learns(g, other, x, seen))
        continue;
      for (int j = 0; j < x->inputs; j++)
        acts |= passes(x, j) && active[x->in[j].src] & FORWARD;
      constant[x->id] = (char)!acts;
    }
  }
}

/* ---- the pass ---- */

/* The gradient of a leaf may be wanted anywhere, others have the domain of their node. */
static atoll_rt *accumulator(const atoll_rt *x, int leaf) {
  char name[64];
  atoll_rt *s = rt_node(x->g, RT_IDENT, x->dtype);
  if (!s)
    return NULL;
  rt_set_shape(s, x->axes, x->shape);
  s->dims = x->dims;
  s->where = leaf ? NULL : x->where;
  s->accumulates = 1;
  (void)snprintf(name, sizeof name, "d_%.60s", x->name ? x->name : "");
  s->name = x->name ? rt_copy_text(x->g, name) : NULL;
  return s;
}

/* Connects accumulator s to what was summed up for x. */
static atoll_err settle(const atoll_rt *x, atoll_rt *s, atoll_rt *total) {
  if (!total)
    total = zeros(x);
  return total && rt_connect(s, total) ? ATOLL_OK : rt_graph_error(x->g);
}

static atoll_err differentiate(struct grad *a, const rt_request *r) {
  rt_graph *g = a->g;
  for (int i = 0; i < a->nodes; i++)
    if (a->active[i] && !(a->sum[i] = accumulator(g->node[i], is_leaf(r, i))))
      return rt_graph_error(g);
  if (a->active[r->loss])
    a->total[r->loss] = rt_number(g->node[r->loss], 1);
  for (int i = 0; i < a->nodes; i++) {
    atoll_rt *y = g->node[i];
    if (!y || !a->active[i] || is_leaf(r, i))
      continue;
    for (int k = 0; k < y->inputs; k++)
      if (a->active[y->in[k].src] && passes(y, k))
        ATOLL_TRY(add(a, y, k, derive(y, k, y, a->sum[i])));
  }
  for (int i = 0; i < a->nodes; i++)
    if (a->active[i])
      ATOLL_TRY(settle(g->node[i], a->sum[i], a->total[i]));
  return ATOLL_OK;
}

/* A GRAD becomes a view of its leaf's accumulator. */
static atoll_err deliver(struct grad *a, const rt_request *r) {
  for (int k = 0; k < r->n; k++) {
    atoll_rt *y = a->g->node[r->grad[k]], *leaf = a->g->node[r->leaf[k]];
    if (!y)
      continue;
    y->op = RT_IDENT;
    y->inputs = 0;
    atoll_rt *value = a->active[leaf->id] ? a->sum[leaf->id] : zeros(leaf);
    if (!value || !rt_connect(y, value))
      return rt_graph_error(a->g);
  }
  return ATOLL_OK;
}

/* given: [known], constants among the nodes that there were before all calls. */
static atoll_err request(rt_graph *g, isl_ctx *ctx, const rt_request *r, int known, const char *given) {
  int n = g->nodes;
  char *active = calloc((size_t)n + 1, 1);
  char *constant = calloc((size_t)n + 1, 1);
  atoll_rt **sum = calloc((size_t)n + 1, sizeof(atoll_rt *)), **total = calloc((size_t)n + 1, sizeof(atoll_rt *));
  atoll_err err = ATOLL_OK;
  if (!active || !constant || !sum || !total) {
    err = atoll_fail(ATOLL_NOMEM, "gradients: no memory");
  } else {
    struct grad a = {g, ctx, r, n, active, sum, total};
    memcpy(constant, given, (size_t)known);
    spread(g, r, n, constant, active);
    for (int i = 0; i < n; i++)
      active[i] = active[i] == (FORWARD | BACKWARD);
    err = differentiate(&a, r);
    if (err == ATOLL_OK)
      err = deliver(&a, r);
  }
  free(active);
  free(constant);
  free(sum);
  free(total);
  return err;
}

atoll_err rt_pass_gradients(rt_graph *g) {
  const int n = g->nodes;
  char *constant = calloc((size_t)g->requests + 2, (size_t)n + 1); /* and two for work */
  isl_ctx *ctx = rt_poly_create();
  atoll_err err = ctx && constant ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "gradients: no memory");
  for (int i = 0; i < g->requests && err == ATOLL_OK; i++)
    find_constants(g, &g->request[i], constant + (size_t)i * (size_t)n, constant + (size_t)g->requests * (size_t)n);
  for (int i = 0; i < g->requests && err == ATOLL_OK; i++)
    err = request(g, ctx, &g->request[i], n, constant + (size_t)i * (size_t)n);
  g->requests = 0;
  isl_ctx_free(ctx);
  free(constant);
  return err;
}

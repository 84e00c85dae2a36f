/* Contexts, dimensions, and the tensors that are not results of operations. */
#include "graph.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct atoll_rec {
  atoll_syms *syms;
  rt_graph *g;
};

/* The thread's message becomes the graph's first mistake. */
static void *keep(rt_graph *g, atoll_err code) { return rt_refuse(g, code, "%s", atoll_err_message()); }

atoll_err atoll_rec_create(uint64_t seed, atoll_rec **out) {
  atoll_rec *c = calloc(1, sizeof *c);
  if (!c)
    return atoll_fail(ATOLL_NOMEM, "recurrent context: no memory");
  atoll_err err = atoll_syms_create(&c->syms);
  if (err == ATOLL_OK)
    err = rt_graph_create(c->syms, seed, &c->g);
  if (err != ATOLL_OK)
    atoll_rec_destroy(&c);
  else
    *out = c;
  return err;
}

void atoll_rec_destroy(atoll_rec **address) {
  atoll_rec *c = *address;
  if (!c)
    return;
  rt_graph_destroy(&c->g);
  atoll_syms_destroy(&c->syms);
  free(c);
  *address = NULL;
}

atoll_err atoll_rec_error(const atoll_rec *c) { return rt_graph_error(c->g); }

atoll_err rt_rec_clone(const atoll_rec *c, rt_graph **out) { return rt_graph_clone(c->g, out); }

atoll_err atoll_rec_print(atoll_rec *c, FILE *out) {
  ATOLL_TRY(rt_graph_error(c->g));
  rt_graph_print(c->g, out);
  return ATOLL_OK;
}

/* ---- dimensions ---- */

/* Words of isl's language, in small and in capital letters, that are none of libcore's grammar. */
static int is_reserved(const char *name) {
  static const char *const words[] = {"ceil",     "ceild", "exists", "floor", "floord", "implies",
                                      "infinity", "infty", "mod",    "nan",   "rat"};
  for (size_t k = 0; k < sizeof words / sizeof *words; k++)
    if (strcmp(name, words[k]) == 0)
      return 1;
  return 0;
}

/* Letters, then digits; in small letters so that the bound in capitals is another name. */
static int good_name(const char *name) {
  if (!name || is_reserved(name))
    return 0;
  for (const char *p = name; *p; p++)
    if (!islower((unsigned char)*p) && !(p > name && isdigit((unsigned char)*p)))
      return 0;
  return name[0] && strlen(name) < 16;
}

void atoll_rec_dim(atoll_rec *c, const char *name, int64_t bound) {
  rt_graph *g = c->g;
  char capitals[16] = "";
  if (!good_name(name) || bound < 0 || bound > RT_NUMBER_MOST || g->dims == RT_DIMS) {
    (void)rt_refuse(g, ATOLL_USAGE,
                    "dimension '%s' with bound %lld: expected small letters and digits, no word of mathematics, a "
                    "bound that is positive or 0 (given at run) and at most %lld, and at most %d dimensions",
                    name ? name : "", (long long)bound, (long long)RT_NUMBER_MOST, RT_DIMS);
    return;
  }
  for (size_t i = 0; name[i]; i++)
    capitals[i] = (char)toupper((unsigned char)name[i]);
  rt_dim *d = &g->dim[g->dims];
  for (int k = 0; k < g->dims; k++)
    if (strcmp(g->dim[k].name, name) == 0) {
      (void)rt_refuse(g, ATOLL_USAGE, "dimension '%s' is made twice", name);
      return;
    }
  d->name = rt_copy_text(g, name);
  d->bound_name = rt_copy_text(g, capitals);
  d->bound = bound;
  d->var = atoll_sym_var(g->syms, name, ATOLL_SYM_INT);
  d->size = bound ? rt_int(g, bound) : atoll_sym_var(g->syms, capitals, ATOLL_SYM_INT);
  if (!d->name || !d->bound_name || !d->var || !d->size) {
    (void)keep(g, atoll_syms_error(g->syms));
    return;
  }
  g->dims++;
}

/* ---- tensors ---- */

void atoll_rec_origin(atoll_rec *c, const char *name, int64_t first) {
  for (int d = 0; d < c->g->dims; d++)
    if (strcmp(c->g->dim[d].name, name) == 0) {
      c->g->dim[d].origin = first;
      return;
    }
  (void)rt_refuse(c->g, ATOLL_USAGE, "origin of '%s', which is no dimension", name);
}

atoll_rt *atoll_rt_name(atoll_rt *x, const char *name) {
  if (x && name)
    x->name = rt_copy_text(x->g, name);
  return x;
}

static atoll_rt *leaf(rt_graph *g, rt_op op, const char *name, atoll_dtype dtype, const char *domain,
                      atoll_rt_shape shape) {
  atoll_rt *x = rt_node(g, op, dtype);
  if (!x)
    return NULL;
  atoll_err err = rt_parse_domain(g, domain, &x->dims);
  if (err != ATOLL_OK)
    return keep(g, err);
  if (shape.n < 0 || shape.n > RT_AXES)
    return rt_refuse(g, ATOLL_USAGE, "tensor %s: %d axes, at most %d are possible", name ? name : "", shape.n, RT_AXES);
  x->name = rt_copy_text(g, name);
  x->axes = shape.n;
  int64_t elements = 1;
  for (int k = 0; k < shape.n; k++) {
    if (shape.extent[k] < 1 || shape.extent[k] > RT_ELEMENTS_MOST / elements)
      return rt_refuse(g, ATOLL_USAGE, "tensor %s: extent %lld of axis %d; at least 1, and %lld elements at most",
                       name ? name : "", (long long)shape.extent[k], k, (long long)RT_ELEMENTS_MOST);
    elements *= shape.extent[k];
    x->shape[k] = rt_int(g, shape.extent[k]);
  }
  return x;
}

atoll_rt *atoll_rec_tensor(atoll_rec *c, const char *name, atoll_dtype dtype, const char *domain,
                           atoll_rt_shape shape) {
  return leaf(c->g, RT_MERGE, name, dtype, domain, shape);
}

atoll_rt *atoll_rec_input(atoll_rec *c, const char *name, atoll_dtype dtype, const char *domain, atoll_rt_shape shape) {
  rt_graph *g = c->g;
  if (!name)
    return rt_refuse(g, ATOLL_USAGE, "an input needs a name, by which it is bound");
  for (int i = 0; g->code == ATOLL_OK && i < g->nodes; i++)
    if (g->node[i] && g->node[i]->op == RT_INPUT && strcmp(g->node[i]->name, name) == 0)
      return rt_refuse(g, ATOLL_USAGE, "input '%s' is made twice", name);
  return leaf(g, RT_INPUT, name, dtype, domain, shape);
}

atoll_rt *atoll_rec_const(atoll_rec *c, atoll_dtype dtype, double value) {
  atoll_rt *x = rt_node(c->g, RT_CONST, dtype);
  if (x)
    x->value = value;
  return x;
}

atoll_rt *atoll_rec_expr(atoll_rec *c, atoll_dtype dtype, const char *expression) {
  const atoll_sym *e = NULL;
  atoll_err err = rt_parse_expr(c->g, "expression", expression, (1u << c->g->dims) - 1, ATOLL_SYM_INT, &e);
  return err == ATOLL_OK ? rt_eval_node(c->g, dtype, e, 0, NULL) : keep(c->g, err);
}

atoll_rt *atoll_rec_iota(atoll_rec *c, atoll_dtype dtype, int64_t extent) {
  const atoll_sym *n = rt_int(c->g, extent);
  if (extent < 1 || extent > RT_ELEMENTS_MOST)
    return rt_refuse(c->g, ATOLL_USAGE, "iota: extent %lld", (long long)extent);
  return rt_eval_node(c->g, dtype, rt_axis(c->g, 0), 1, &n);
}

/* Makes x random: its key is its number among random tensors and its coordinates, an element's its position. */
static atoll_rt *randomize(atoll_rt *x, int normal) {
  if (!x)
    return NULL;
  rt_graph *g = x->g;
  x->normal = normal;
  x->serial = g->serials++;
  for (int d = 0; d < g->dims; d++)
    if (rt_has(x, d))
      x->start[x->picks++] = atoll_sym_add(g->syms, g->dim[d].var, rt_int(g, g->dim[d].origin));
  x->expr = rt_int(g, 0);
  for (int k = 0; k < x->axes; k++)
    x->expr = atoll_sym_add(g->syms, atoll_sym_mul(g->syms, x->expr, x->shape[k]), rt_axis(g, k));
  return x;
}

atoll_rt *atoll_rec_uniform(atoll_rec *c, const char *domain, atoll_rt_shape shape) {
  return randomize(leaf(c->g, RT_RAND, NULL, ATOLL_F32, domain, shape), 0);
}

atoll_rt *atoll_rec_normal(atoll_rec *c, const char *domain, atoll_rt_shape shape) {
  return randomize(leaf(c->g, RT_RAND, NULL, ATOLL_F32, domain, shape), 1);
}

atoll_rt *atoll_rt_categorical(atoll_rt *logits) {
  if (logits && logits->dtype != ATOLL_F32)
    logits = atoll_rt_cast(logits, ATOLL_F32);
  if (!logits)
    return NULL;
  atoll_rt *u = rt_node(logits->g, RT_RAND, ATOLL_F32);
  if (!u)
    return NULL;
  u->dims = logits->dims;
  rt_set_shape(u, logits->axes, logits->shape);
  /* Uniform numbers have 24 bits and may be 0; the largest must not be rounded to 1 here, whose noise is infinite. */
  u = atoll_rt_shift(atoll_rt_scale(randomize(u, 0), 1 - 0x1p-23), 0x1p-25);
  atoll_rt *gumbel = atoll_rt_neg(atoll_rt_log(atoll_rt_neg(atoll_rt_log(u))));
  return atoll_rt_argmax(atoll_rt_add(atoll_rt_detach(logits), gumbel), -1);
}

/* ---- points and cases ---- */

atoll_rt *rt_view(atoll_rt *x, const rt_item item[RT_DIMS], const char *text) {
  rt_edge e = {.src = x->id, .text = text};
  memcpy(e.item, item, sizeof e.item);
  atoll_rt *y = rt_node(x->g, RT_IDENT, x->dtype);
  if (!y || !rt_add_edge(y, &e))
    return NULL;
  y->axes = rt_view_shape(x->g, &e, y->shape);
  if (y->axes < 0)
    return NULL;
  y->dims = rt_edge_dims(x->g, &e);
  return y;
}

atoll_rt *atoll_rt_at(atoll_rt *x, const char *index) {
  rt_item item[RT_DIMS];
  if (!x)
    return NULL;
  atoll_err err = rt_parse_index(x->g, x, index, item);
  return err == ATOLL_OK ? rt_view(x, item, rt_copy_text(x->g, index)) : keep(x->g, err);
}

void atoll_rt_def(atoll_rt *x, const char *condition, atoll_rt *value) {
  if (!x || !value)
    return;
  rt_graph *g = x->g;
  char label[96];
  if (!condition) {
    (void)rt_refuse(g, ATOLL_USAGE, "%s: a case has no condition", rt_label(x, label, sizeof label));
    return;
  }
  const char *name = x->name ? x->name : "";
  const atoll_sym *cond = NULL;
  if (value->op == RT_CONST && value->g == g && value->axes == 0 && x->axes > 0)
    value = rt_expand(value, x->axes, x->shape);
  if (!value)
    return;
  if (x->op != RT_MERGE)
    (void)rt_refuse(g, ATOLL_USAGE, "%s is not defined by cases", rt_label(x, label, sizeof label));
  else if (value->g != g)
    (void)rt_refuse(g, ATOLL_USAGE, "case '%s' of %s: the value belongs to another context", condition, name);
  else if (value->dims & ~x->dims)
    (void)rt_refuse(g, ATOLL_USAGE, "case '%s' of %s: the value has dimensions that the tensor lacks", condition, name);
  else if (value->dtype != x->dtype)
    (void)rt_refuse(g, ATOLL_USAGE, "case '%s' of %s: the value is %s, the tensor %s", condition, name,
                    atoll_dtype_name(value->dtype), atoll_dtype_name(x->dtype));
  int same = value->axes == x->axes;
  for (int k = 0; same && k < x->axes; k++)
    same = value->shape[k] == x->shape[k];
  if (!same) {
    char of_value[200], own[200];
    rt_shape_text(value, of_value, sizeof of_value);
    rt_shape_text(x, own, sizeof own);
    (void)rt_refuse(g, ATOLL_USAGE, "case '%s' of %s: the value has shape %s, the tensor %s", condition, name, of_value,
                    own);
  }
  if (x->inputs == RT_CASES) /* each is compared with all before it */
    (void)rt_refuse(g, ATOLL_USAGE, "case '%s' of %s: more than %d cases", condition, name, RT_CASES);
  if (g->code != ATOLL_OK)
    return;
  char what[120];
  (void)snprintf(what, sizeof what, "condition of %s", rt_label(x, label, sizeof label));
  atoll_err err = rt_parse_expr(g, what, condition, x->dims, ATOLL_SYM_BOOL, &cond);
  if (err != ATOLL_OK) {
    (void)keep(g, err);
    return;
  }
  rt_edge *e = rt_connect(x, value);
  if (e) {
    e->cond = cond;
    e->text = rt_copy_text(g, condition);
  }
}

/* ---- functions of the user ---- */

static int connect_all(atoll_rt *x, int n, atoll_rt *const *in) {
  for (int k = 0; k < n; k++) {
    if (in[k] && in[k]->g != x->g)
      (void)rt_refuse(x->g, ATOLL_USAGE, "call of '%s': input %d belongs to another context", x->name, k);
    if (!in[k] || in[k]->g != x->g || !rt_connect(x, in[k]))
      return 0;
  }
  return 1;
}

atoll_rt *atoll_rec_call(atoll_rec *c, const char *name, atoll_rt_fn fn, void *user, const char *domain,
                         atoll_dtype dtype, atoll_rt_shape shape, int inputs, atoll_rt *const *in) {
  atoll_rt *x = leaf(c->g, RT_CALL, name, dtype, domain ? domain : "", shape);
  if (!x)
    return NULL;
  if (!fn)
    return rt_refuse(c->g, ATOLL_USAGE, "call of '%s': there is no function", name ? name : "");
  unsigned declared = x->dims;
  x->fn = fn;
  x->user = user;
  if (!connect_all(x, inputs, in))
    return NULL;
  if (domain && x->dims != declared)
    return rt_refuse(c->g, ATOLL_USAGE, "call of '%s': an input has a dimension that domain '%s' lacks", name, domain);
  return x;
}

void atoll_rt_sink(atoll_rt *x, const char *name, atoll_rt_fn fn, void *user) {
  if (x && !fn)
    (void)rt_refuse(x->g, ATOLL_USAGE, "sink '%s': there is no function", name ? name : "");
  atoll_rt *s = x ? rt_node(x->g, RT_SINK, x->dtype) : NULL;
  if (!s || !rt_connect(s, x))
    return;
  s->name = rt_copy_text(x->g, name);
  s->fn = fn;
  s->user = user;
}

/* ---- learning ---- */

void atoll_rt_gradients(atoll_rt *loss, int n, atoll_rt *const *x, atoll_rt **grad) {
  rt_graph *g = loss ? loss->g : NULL;
  for (int k = 0; k < n; k++)
    grad[k] = NULL;
  if (!loss)
    return;
  int *leaf_id = rt_alloc(g, (size_t)n * sizeof *leaf_id), *grad_id = rt_alloc(g, (size_t)n * sizeof *grad_id);
  rt_request *all = rt_alloc(g, (size_t)(g->requests + 1) * sizeof *all);
  if (!leaf_id || !grad_id || !all)
    return;
  if (loss->axes) {
    (void)rt_refuse(g, ATOLL_USAGE, "gradients: the loss must be a scalar at each point of its domain");
    return;
  }
  for (int k = 0; k < n; k++) {
    grad[k] = x[k] ? rt_node(g, RT_GRAD, x[k]->dtype) : NULL;
    if (!grad[k] || !rt_connect(grad[k], x[k]))
      return;
    rt_set_shape(grad[k], x[k]->axes, x[k]->shape);
    leaf_id[k] = x[k]->id;
    grad_id[k] = grad[k]->id;
  }
  if (g->requests)
    memcpy(all, g->request, (size_t)g->requests * sizeof *all);
  all[g->requests++] = (rt_request){loss->id, n, leaf_id, grad_id};
  g->request = all;
}

/* m[0] = (1-beta) x, m[i] = beta m[i-1] + (1-beta) x */
static atoll_rt *moving_average(atoll_rt *x, const atoll_rt *like, double beta, const char *first,
                                const char *previous) {
  atoll_rt *m = rt_node(x->g, RT_MERGE, x->dtype);
  if (!m)
    return NULL;
  m->dims = like->dims;
  rt_set_shape(m, x->axes, x->shape);
  atoll_rt *now = atoll_rt_scale(x, 1 - beta);
  atoll_rt_def(m, first, now);
  atoll_rt_def(m, "true", atoll_rt_add(atoll_rt_scale(atoll_rt_at(m, previous), beta), now));
  return m;
}

/* m / (1 - beta^(i+1)) */
static atoll_rt *unbiased(atoll_rt *m, double beta, const atoll_sym *step) {
  atoll_rt *count = m ? rt_eval_node(m->g, m->dtype, atoll_sym_add(m->g->syms, step, rt_int(m->g, 1)), 0, NULL) : NULL;
  return atoll_rt_div(m, atoll_rt_shift(atoll_rt_neg(atoll_rt_pow(rt_number(m, beta), count)), 1));
}

void atoll_rt_adam(atoll_rt *x, atoll_rt *grad, const char *step, double rate, double beta1, double beta2,
                   double epsilon) {
  char first[32], previous[48];
  const atoll_sym *var = NULL;
  if (!x || !grad)
    return;
  for (int d = 0; d < x->g->dims; d++)
    if (rt_has(x, d) && strcmp(x->g->dim[d].name, step) == 0)
      var = x->g->dim[d].var;
  if (!var) {
    (void)rt_refuse(x->g, ATOLL_USAGE, "adam: '%s' is not a dimension of %s", step, x->name ? x->name : "the tensor");
    return;
  }
  (void)snprintf(first, sizeof first, "%s==0", step);
  (void)snprintf(previous, sizeof previous, "%s=%s-1", step, step);
  atoll_rt *m = moving_average(grad, x, beta1, first, previous);
  atoll_rt *v = moving_average(atoll_rt_square(grad), x, beta2, first, previous);
  atoll_rt *length = atoll_rt_shift(atoll_rt_sqrt(unbiased(v, beta2, var)), epsilon);
  atoll_rt *move = atoll_rt_scale(atoll_rt_div(unbiased(m, beta1, var), length), -rate);
  atoll_rt_def(x, "true", atoll_rt_at(atoll_rt_add(x, move), previous));
}

/* Nodes, edges and the expressions on them. */
#include "graph.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static int grow(void **array, int *room, size_t size) {
  int n = *room ? *room * 2 : 32;
  void *p = realloc(*array, (size_t)n * size);
  if (!p)
    return 0;
  *array = p;
  *room = n;
  return 1;
}

void *rt_refuse(rt_graph *g, atoll_err code, const char *fmt, ...) {
  if (g->code == ATOLL_OK) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(g->why, sizeof g->why, fmt, args);
    va_end(args);
    g->code = code;
  }
  return NULL;
}

void *rt_alloc(rt_graph *g, size_t bytes) {
  void *p = calloc(1, bytes ? bytes : 1);
  if (!p || (g->blocks == g->block_room && !grow((void **)&g->block, &g->block_room, sizeof *g->block))) {
    free(p);
    return rt_refuse(g, ATOLL_NOMEM, "recurrent graph: no memory for %zu bytes", bytes);
  }
  return g->block[g->blocks++] = p;
}

const char *rt_copy_text(rt_graph *g, const char *text) {
  if (!text)
    return NULL;
  char *copy = rt_alloc(g, strlen(text) + 1);
  return copy ? strcpy(copy, text) : NULL;
}

atoll_err rt_graph_create(atoll_syms *syms, uint64_t seed, rt_graph **out) {
  rt_graph *g = calloc(1, sizeof *g);
  if (!g)
    return atoll_fail(ATOLL_NOMEM, "recurrent graph: no memory");
  g->syms = syms;
  g->seed = seed;
  *out = g;
  return ATOLL_OK;
}

void rt_graph_destroy(rt_graph **address) {
  rt_graph *g = *address;
  if (!g)
    return;
  for (int i = 0; i < g->blocks; i++)
    free(g->block[i]);
  free(g->block);
  free(g->node);
  free(g);
  *address = NULL;
}

atoll_err rt_graph_error(const rt_graph *g) {
  return g->code == ATOLL_OK ? ATOLL_OK : atoll_fail(g->code, "%s", g->why);
}

static int *copy_ids(rt_graph *g, const int *from, int n) {
  int *to = rt_alloc(g, (size_t)n * sizeof *to);
  if (to)
    memcpy(to, from, (size_t)n * sizeof *to);
  return to;
}

static void clone_into(rt_graph *g, const rt_graph *from) {
  g->dims = from->dims;
  memcpy(g->dim, from->dim, sizeof g->dim);
  for (int d = 0; d < g->dims; d++) {
    g->dim[d].name = rt_copy_text(g, from->dim[d].name);
    g->dim[d].bound_name = rt_copy_text(g, from->dim[d].bound_name);
  }
  g->block_size = from->block_size;
  g->serials = from->serials;
  g->valid = from->valid;
  g->valid_text = rt_copy_text(g, from->valid_text);
  for (int i = 0; i < from->nodes && g->code == ATOLL_OK; i++) {
    const atoll_rt *old = from->node[i];
    atoll_rt *x = rt_node(g, RT_CONST, ATOLL_F32);
    if (!x)
      return;
    if (!old) {
      g->node[i] = NULL;
      continue;
    }
    *x = *old;
    x->g = g;
    x->name = rt_copy_text(g, old->name);
    x->spec = rt_copy_text(g, old->spec);
    x->inputs = 0;
    x->in = NULL;
    for (int k = 0; k < old->inputs; k++) {
      rt_edge *e = rt_add_edge(x, &old->in[k]);
      if (e)
        e->text = rt_copy_text(g, e->text);
    }
  }
  g->request = rt_alloc(g, (size_t)from->requests * sizeof *g->request);
  for (int i = 0; g->request && i < from->requests; i++, g->requests++) {
    const rt_request *r = &from->request[i];
    g->request[i] = (rt_request){r->loss, r->n, copy_ids(g, r->leaf, r->n), copy_ids(g, r->grad, r->n)};
  }
}

atoll_err rt_graph_clone(const rt_graph *from, rt_graph **out) {
  rt_graph *g = NULL;
  ATOLL_TRY(rt_graph_error(from));
  ATOLL_TRY(rt_graph_create(from->syms, from->seed, &g));
  clone_into(g, from);
  atoll_err err = rt_graph_error(g);
  if (err != ATOLL_OK)
    rt_graph_destroy(&g);
  else
    *out = g;
  return err;
}

/* ---- nodes ---- */

atoll_rt *rt_node(rt_graph *g, rt_op op, atoll_dtype dtype) {
  if (g->code != ATOLL_OK)
    return NULL;
  if (atoll_dtype_bytes(dtype) == 0)
    return rt_refuse(g, ATOLL_USAGE, "type %d of a tensor: there is none", (int)dtype);
  if (g->nodes == g->room && !grow((void **)&g->node, &g->room, sizeof *g->node))
    return rt_refuse(g, ATOLL_NOMEM, "recurrent graph: no memory for node %d", g->nodes);
  atoll_rt *x = rt_alloc(g, sizeof *x);
  if (!x)
    return NULL;
  x->g = g;
  x->id = g->nodes;
  x->op = op;
  x->dtype = dtype;
  return g->node[g->nodes++] = x;
}

rt_edge *rt_add_edge(atoll_rt *x, const rt_edge *e) {
  rt_edge *in = rt_alloc(x->g, (size_t)(x->inputs + 1) * sizeof *in);
  if (!in)
    return NULL;
  if (x->inputs)
    memcpy(in, x->in, (size_t)x->inputs * sizeof *in);
  in[x->inputs] = *e;
  x->in = in;
  return &in[x->inputs++];
}

rt_edge *rt_connect(atoll_rt *x, const atoll_rt *src) {
  rt_edge e = {.src = src->id};
  for (int d = 0; d < x->g->dims; d++)
    if (rt_has(src, d))
      e.item[d].lo = x->g->dim[d].var;
  x->dims |= src->dims;
  return rt_add_edge(x, &e);
}

void rt_set_shape(atoll_rt *x, int axes, const atoll_sym *const *shape) {
  x->axes = axes;
  for (int k = 0; k < axes; k++)
    x->shape[k] = shape[k];
}

/* ---- expressions ---- */

const atoll_sym *rt_int(rt_graph *g, int64_t v) { return atoll_sym_int(g->syms, v); }

const atoll_sym *rt_axis(rt_graph *g, int k) {
  char name[8];
  (void)snprintf(name, sizeof name, "_%d", k);
  return atoll_sym_var(g->syms, name, ATOLL_SYM_INT);
}

int rt_is_const(const atoll_sym *e, int64_t *v) {
  atoll_sym_value value;
  if (!e || !atoll_sym_constant(e, &value))
    return 0;
  *v = value.i;
  return 1;
}

/* All at once: variables first get names that nothing else has. */
static const atoll_sym *substitute(rt_graph *g, const atoll_sym *e, int n, const atoll_sym *const *var,
                                   const atoll_sym *const *by) {
  const atoll_sym *temporary[RT_DIMS + RT_AXES];
  for (int k = 0; k < n; k++) {
    char name[16];
    (void)snprintf(name, sizeof name, "_old%d", k);
    temporary[k] = var[k] == by[k] ? NULL : atoll_sym_var(g->syms, name, ATOLL_SYM_INT);
    if (temporary[k])
      e = atoll_sym_substitute(g->syms, e, var[k], temporary[k]);
  }
  for (int k = 0; k < n; k++)
    if (temporary[k])
      e = atoll_sym_substitute(g->syms, e, temporary[k], by[k]);
  return e;
}

const atoll_sym *rt_substitute(rt_graph *g, const atoll_sym *e, unsigned mask, const atoll_sym *const by[RT_DIMS]) {
  const atoll_sym *var[RT_DIMS], *to[RT_DIMS];
  int n = 0;
  if (!e)
    return NULL;
  for (int d = 0; d < g->dims; d++)
    if (mask >> d & 1u) {
      var[n] = g->dim[d].var;
      to[n++] = by[d];
    }
  return substitute(g, e, n, var, to);
}

const atoll_sym *rt_substitute_axes(rt_graph *g, const atoll_sym *e, int n, const atoll_sym *const *by) {
  const atoll_sym *var[RT_AXES];
  for (int k = 0; k < n; k++)
    var[k] = rt_axis(g, k);
  return e ? substitute(g, e, n, var, by) : NULL;
}

unsigned rt_dims_of(const rt_graph *g, const atoll_sym *e) {
  unsigned mask = 0;
  if (!e)
    return 0;
  for (int d = 0; d < g->dims; d++)
    if (e == g->dim[d].var)
      mask |= 1u << d;
  for (int k = 0; k < atoll_sym_arity(e); k++)
    mask |= rt_dims_of(g, atoll_sym_arg(e, k));
  return mask;
}

unsigned rt_edge_dims(const rt_graph *g, const rt_edge *e) {
  unsigned mask = rt_dims_of(g, e->cond);
  for (int d = 0; d < g->dims; d++)
    if (rt_has(rt_src(g, e), d))
      mask |= rt_dims_of(g, e->item[d].lo) | rt_dims_of(g, e->item[d].hi);
  return mask;
}

int rt_is_identity(const rt_graph *g, const rt_edge *e) {
  for (int d = 0; d < g->dims; d++)
    if (rt_has(rt_src(g, e), d) && (e->item[d].hi || e->item[d].lo != g->dim[d].var))
      return 0;
  return 1;
}

int rt_slices(const rt_graph *g, const rt_edge *e) {
  int n = 0;
  for (int d = 0; d < g->dims; d++)
    n += rt_has(rt_src(g, e), d) && e->item[d].hi;
  return n;
}

int rt_view_shape(rt_graph *g, const rt_edge *e, const atoll_sym *shape[RT_AXES]) {
  const atoll_rt *src = rt_src(g, e);
  const atoll_sym *by[RT_DIMS];
  char label[96];
  unsigned sliced = 0;
  int n = 0;
  for (int d = 0; d < g->dims; d++) {
    by[d] = e->item[d].lo;
    if (!rt_has(src, d) || !e->item[d].hi)
      continue;
    sliced |= 1u << d;
    if (n < RT_AXES)
      shape[n] = atoll_sym_sub(g->syms, e->item[d].hi, e->item[d].lo);
    n++;
  }
  if (n + src->axes > RT_AXES) {
    (void)rt_refuse(g, ATOLL_USAGE, "index '%s' of %s: %d axes, at most %d are possible", e->text ? e->text : "",
                    rt_label(src, label, sizeof label), n + src->axes, RT_AXES);
    return -1;
  }
  for (int k = 0; k < src->axes; k++) {
    if (rt_dims_of(g, src->shape[k]) & sliced) {
      (void)rt_refuse(g, ATOLL_USAGE,
                      "index '%s' of %s: a slice over a dimension on which the shape depends has no single shape",
                      e->text ? e->text : "", rt_label(src, label, sizeof label));
      return -1;
    }
    shape[n++] = rt_substitute(g, src->shape[k], src->dims, by);
  }
  return n;
}

/* ---- evaluation ---- */

static atoll_err variable(const rt_graph *g, const char *name, const rt_env *env, int64_t *out) {
  if (name[0] == '_' && name[1] >= '0' && name[1] <= '9') {
    *out = env->axis[atoi(name + 1)];
    return ATOLL_OK;
  }
  if (name[0] == '_' && name[1] == 'c') {
    *out = env->loop[atoi(name + 2)];
    return ATOLL_OK;
  }
  for (int d = 0; d < g->dims; d++) {
    if (strcmp(name, g->dim[d].name) == 0) {
      *out = env->dim[d];
      return ATOLL_OK;
    }
    if (strcmp(name, g->dim[d].bound_name) == 0) {
      *out = env->bound[d];
      return ATOLL_OK;
    }
  }
  return atoll_fail(ATOLL_INTERNAL, "index expression names '%s', which is neither a dimension nor a bound", name);
}

/* Collects the values of the variables that occur, then lets libcore evaluate with its checks. */
static atoll_err collect(const rt_graph *g, const atoll_sym *e, const rt_env *env, atoll_sym_binding *b, int *n) {
  if (atoll_sym_op_of(e) == ATOLL_SYM_VAR) {
    for (int i = 0; i < *n; i++)
      if (b[i].name == atoll_sym_name(e))
        return ATOLL_OK;
    b[*n] = (atoll_sym_binding){atoll_sym_name(e), {ATOLL_SYM_INT, 0, 0}};
    atoll_sym_binding *mine = &b[(*n)++];
    return variable(g, mine->name, env, &mine->value.i);
  }
  for (int k = 0; k < atoll_sym_arity(e); k++)
    ATOLL_TRY(collect(g, atoll_sym_arg(e, k), env, b, n));
  return ATOLL_OK;
}

atoll_err rt_eval(const rt_graph *g, const atoll_sym *e, const rt_env *env, int64_t *out) {
  atoll_sym_binding b[2 * RT_DIMS + RT_AXES + RT_LOOPS];
  atoll_sym_value v;
  int n = 0;
  if (rt_is_const(e, out))
    return ATOLL_OK;
  ATOLL_TRY(collect(g, e, env, b, &n));
  ATOLL_TRY(atoll_sym_eval(e, b, (size_t)n, &v));
  *out = v.i;
  return ATOLL_OK;
}

/* ---- text ---- */

const char *rt_op_name(rt_op op) {
  static const char *const name[] = {
#define RT_OP_NAME(op_name, inputs) #op_name,
      RT_OP_LIST(RT_OP_NAME, RT_OP_NAME)
#undef RT_OP_NAME
  };
  return name[op];
}

const char *rt_label(const atoll_rt *x, char *buf, size_t n) {
  (void)snprintf(buf, n, "%.60s%s#%d %s%s", x->name ? x->name : "", x->name ? " (" : "", x->id, rt_op_name(x->op),
                 x->name ? ")" : "");
  return buf;
}

static void print_sym(const atoll_sym *e, FILE *out) {
  char text[512];
  (void)atoll_sym_print(e, text, sizeof text);
  fputs(text, out);
}

static void print_edge(const rt_graph *g, const rt_edge *e, FILE *out) {
  const atoll_rt *src = rt_src(g, e);
  int first = 1;
  fprintf(out, " #%d", e->src);
  if (!rt_is_identity(g, e)) {
    fputc('[', out);
    for (int d = 0; d < g->dims; d++) {
      if (!rt_has(src, d))
        continue;
      fprintf(out, "%s%s=", first ? "" : ", ", g->dim[d].name);
      first = 0;
      print_sym(e->item[d].lo, out);
      if (e->item[d].hi) {
        fputc(':', out);
        print_sym(e->item[d].hi, out);
      }
    }
    fputc(']', out);
  }
  if (e->cond) {
    fputs(" if ", out);
    print_sym(e->cond, out);
  }
}

void rt_print_node(const atoll_rt *x, FILE *out) {
  const rt_graph *g = x->g;
  int first = 1;
  fprintf(out, "#%d ", x->id);
  if (x->name)
    fprintf(out, "%s ", x->name);
  fputc('(', out);
  for (int d = 0; d < g->dims; d++)
    if (rt_has(x, d)) {
      fprintf(out, "%s%s", first ? "" : ",", g->dim[d].name);
      first = 0;
    }
  if (x->where) {
    fputs(" : ", out);
    print_sym(x->where, out);
  }
  fprintf(out, ") %s[", atoll_dtype_name(x->dtype));
  for (int k = 0; k < x->axes; k++) {
    fputs(k ? "," : "", out);
    print_sym(x->shape[k], out);
  }
  fprintf(out, "] = %s", rt_op_name(x->op));
  if (x->op == RT_CONST || x->op == RT_PAD)
    fprintf(out, " %g", x->value);
  if (x->padded)
    fprintf(out, " padded with %g", x->pad);
  if (x->spec)
    fprintf(out, " %s", x->spec);
  if (x->expr) {
    fputs(" {", out);
    print_sym(x->expr, out);
    fputc('}', out);
  }
  if (x->op == RT_SUM || x->op == RT_MAXIMUM || x->op == RT_ARGMAX || x->op == RT_CONCAT || x->op == RT_SLICE ||
      x->op == RT_PAD || x->op == RT_PICK)
    fprintf(out, " axis %d", x->axis);
  for (int k = 0; k < RT_AXES && x->start[k]; k++) {
    fputs(k ? ", " : " at ", out);
    print_sym(x->start[k], out);
  }
  for (int k = 0; x->op == RT_PERMUTE && k < x->axes; k++)
    fprintf(out, "%s%d", k ? "," : " ", x->order[k]);
  for (int k = 0; k < x->inputs; k++) {
    fputs(k ? ";" : "", out);
    print_edge(g, &x->in[k], out);
  }
  if (x->group)
    fprintf(out, " in group of #%d", rt_head(x));
  fputc('\n', out);
}

void rt_graph_print(const rt_graph *g, FILE *out) {
  for (int i = 0; i < g->nodes; i++)
    if (g->node[i])
      rt_print_node(g->node[i], out);
}

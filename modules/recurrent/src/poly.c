#include "poly.h"

#include <isl/aff.h>
#include <isl/ast.h>
#include <isl/ast_build.h>
#include <isl/id.h>
#include <isl/options.h>
#include <isl/point.h>
#include <isl/space.h>
#include <isl/val.h>
#include <stdlib.h>
#include <string.h>

isl_ctx *rt_poly_create(void) {
  isl_ctx *ctx = isl_ctx_alloc();
  if (ctx) {
    isl_options_set_on_error(ctx, ISL_ON_ERROR_CONTINUE);
    isl_options_set_ast_build_detect_min_max(ctx, 1);
  }
  return ctx;
}

atoll_err rt_poly_error(isl_ctx *ctx, const char *what) {
  const char *why = ctx ? isl_ctx_last_error_msg(ctx) : NULL;
  return atoll_fail(ATOLL_INTERNAL, "%s: isl: %s", what, why ? why : "no memory");
}

/* ---- expressions to text ---- */

static void print_list(const rt_graph *g, const atoll_sym *e, const char *open, const char *between, const char *suffix,
                       FILE *out) {
  fputs(open, out);
  for (int k = 0; k < atoll_sym_arity(e); k++) {
    fputs(k ? between : "", out);
    rt_poly_print(g, atoll_sym_arg(e, k), suffix, out);
  }
  fputc(')', out);
}

/* isl takes min and max of two. */
static void print_extremum(const rt_graph *g, const atoll_sym *e, const char *name, const char *suffix, FILE *out) {
  int n = atoll_sym_arity(e);
  for (int k = 0; k < n - 1; k++) {
    fprintf(out, "%s(", name);
    rt_poly_print(g, atoll_sym_arg(e, k), suffix, out);
    fputs(", ", out);
  }
  rt_poly_print(g, atoll_sym_arg(e, n - 1), suffix, out);
  for (int k = 0; k < n - 1; k++)
    fputc(')', out);
}

static void print_leaf(const rt_graph *g, const atoll_sym *e, const char *suffix, FILE *out) {
  atoll_sym_value v;
  if (!atoll_sym_constant(e, &v)) {
    fprintf(out, "%s%s", atoll_sym_name(e), rt_dims_of(g, e) ? suffix : "");
    return;
  }
  if (v.type == ATOLL_SYM_BOOL)
    fputs(v.i ? "(0 = 0)" : "(0 = 1)", out);
  else
    fprintf(out, "%lld", (long long)v.i);
}

/* The first choice inside of an integer expression, which isl's language has no general form for. */
static const atoll_sym *find_select(const atoll_sym *e) {
  const atoll_sym *found = NULL;
  if (atoll_sym_op_of(e) == ATOLL_SYM_SELECT)
    return e;
  for (int k = 0; k < atoll_sym_arity(e) && !found; k++)
    found = find_select(atoll_sym_arg(e, k));
  return found;
}

static const atoll_sym *replace(const rt_graph *g, const atoll_sym *e, const atoll_sym *old, const atoll_sym *by) {
  const atoll_sym *arg[2];
  if (e == old)
    return by;
  if (atoll_sym_arity(e) == 0)
    return e;
  if (atoll_sym_op_of(e) == ATOLL_SYM_SELECT)
    return atoll_sym_select(g->syms, replace(g, atoll_sym_arg(e, 0), old, by), replace(g, atoll_sym_arg(e, 1), old, by),
                            replace(g, atoll_sym_arg(e, 2), old, by));
  arg[0] = replace(g, atoll_sym_arg(e, 0), old, by);
  for (int k = 1; k < atoll_sym_arity(e); k++) {
    arg[1] = replace(g, atoll_sym_arg(e, k), old, by);
    arg[0] = atoll_sym_binary(g->syms, atoll_sym_op_of(e), arg[0], arg[1]);
  }
  return arg[0];
}

/* A comparison with a choice in it is a choice of comparisons. */
static int print_choice(const rt_graph *g, const atoll_sym *e, const char *suffix, FILE *out) {
  const atoll_sym *s = find_select(e);
  if (!s)
    return 0;
  const atoll_sym *c = atoll_sym_arg(s, 0);
  fputs("((", out);
  rt_poly_print(g, c, suffix, out);
  fputs(" and ", out);
  rt_poly_print(g, replace(g, e, s, atoll_sym_arg(s, 1)), suffix, out);
  fputs(") or (not ", out);
  rt_poly_print(g, c, suffix, out);
  fputs(" and ", out);
  rt_poly_print(g, replace(g, e, s, atoll_sym_arg(s, 2)), suffix, out);
  fputs("))", out);
  return 1;
}

static int is_comparison(atoll_sym_op op) {
  return op == ATOLL_SYM_LT || op == ATOLL_SYM_LE || op == ATOLL_SYM_EQ || op == ATOLL_SYM_NE;
}

void rt_poly_print(const rt_graph *g, const atoll_sym *e, const char *suffix, FILE *out) {
  /* isl's words for an operation: before its arguments and between them. */
  static const struct {
    const char *open, *between;
  } words[] = {
      [ATOLL_SYM_ADD] = {"(", " + "},   [ATOLL_SYM_MUL] = {"(", " * "}, [ATOLL_SYM_FLOORDIV] = {"floor(", " / "},
      [ATOLL_SYM_MOD] = {"(", " mod "}, [ATOLL_SYM_LT] = {"(", " < "},  [ATOLL_SYM_LE] = {"(", " <= "},
      [ATOLL_SYM_EQ] = {"(", " = "},    [ATOLL_SYM_NE] = {"(", " != "}, [ATOLL_SYM_AND] = {"(", " and "},
      [ATOLL_SYM_OR] = {"(", " or "},   [ATOLL_SYM_NOT] = {"(not ", ""}};
  atoll_sym_op op = atoll_sym_op_of(e);
  if (is_comparison(op) && print_choice(g, e, suffix, out))
    return;
  if (op == ATOLL_SYM_MIN || op == ATOLL_SYM_MAX)
    print_extremum(g, e, op == ATOLL_SYM_MIN ? "min" : "max", suffix, out);
  else if ((size_t)op < sizeof words / sizeof *words && words[op].open)
    print_list(g, e, words[op].open, words[op].between, suffix, out);
  else
    print_leaf(g, e, suffix, out);
}

void rt_poly_print_parameters(const rt_graph *g, FILE *out) {
  int n = 0;
  fputc('[', out);
  for (int d = 0; d < g->dims; d++)
    if (!g->dim[d].bound)
      fprintf(out, "%s%s", n++ ? "," : "", g->dim[d].bound_name);
  fputs("] -> ", out);
}

static void print_tuple(const atoll_rt *x, const char *suffix, FILE *out) {
  int n = 0;
  fprintf(out, "S%d[", x->id);
  for (int d = 0; d < x->g->dims; d++)
    if (rt_has(x, d))
      fprintf(out, "%s%s%s", n++ ? "," : "", x->g->dim[d].name, suffix);
  fputc(']', out);
}

static void print_box(const atoll_rt *x, FILE *out) {
  for (int d = 0; d < x->g->dims; d++) {
    const rt_dim *dim = &x->g->dim[d];
    if (!rt_has(x, d))
      continue;
    fprintf(out, " and 0 <= %s < ", dim->name);
    rt_poly_print(x->g, dim->size, "", out);
  }
}

/* ---- text to sets ---- */

typedef struct text {
  char *s;
  size_t n;
  FILE *f;
} text;

static int begin(text *t) { return (t->f = open_memstream(&t->s, &t->n)) != NULL; }

static isl_set *read_set(isl_ctx *ctx, text *t) {
  int ok = fclose(t->f) == 0;
  isl_set *set = ok ? isl_set_read_from_str(ctx, t->s) : NULL;
  free(t->s);
  return set;
}

static isl_map *read_map(isl_ctx *ctx, text *t) {
  int ok = fclose(t->f) == 0;
  isl_map *map = ok ? isl_map_read_from_str(ctx, t->s) : NULL;
  free(t->s);
  return map;
}

static void print_where(const atoll_rt *x, FILE *out) {
  print_box(x, out);
  if (x->where) {
    fputs(" and ", out);
    rt_poly_print(x->g, x->where, "", out);
  }
}

static isl_set *domain(isl_ctx *ctx, const atoll_rt *x, const atoll_sym *also, int box_alone) {
  text t;
  if (!begin(&t))
    return NULL;
  rt_poly_print_parameters(x->g, t.f);
  fputs("{ ", t.f);
  print_tuple(x, "", t.f);
  fputs(" : 0 = 0", t.f);
  if (box_alone)
    print_box(x, t.f);
  else
    print_where(x, t.f);
  if (also) {
    fputs(" and ", t.f);
    rt_poly_print(x->g, also, "", t.f);
  }
  fputs(" }", t.f);
  return read_set(ctx, &t);
}

isl_set *rt_poly_coalesce(isl_set *set) {
  if (isl_set_involves_locals(set) != isl_bool_true)
    return isl_set_coalesce(set);
  isl_set *fewer = isl_set_coalesce(isl_set_copy(set));
  if (isl_set_is_subset(fewer, set) == isl_bool_true) {
    isl_set_free(set);
    return fewer;
  }
  isl_set_free(fewer);
  return set;
}

isl_map *rt_poly_coalesce_map(isl_map *map) { return isl_set_unwrap(rt_poly_coalesce(isl_map_wrap(map))); }

/* Pieces that reach too far have values where there were none, or two different ones. */
isl_pw_aff *rt_poly_coalesce_value(isl_pw_aff *value) {
  if (isl_pw_aff_n_piece(value) < 2)
    return value;
  /* isl_pw_aff_coalesce() works on what a copy shares; turning the sign makes an object of its own. */
  isl_pw_aff *fewer = isl_pw_aff_coalesce(isl_pw_aff_neg(isl_pw_aff_neg(isl_pw_aff_copy(value))));
  isl_set *differ = isl_pw_aff_ne_set(isl_pw_aff_copy(value), isl_pw_aff_copy(fewer));
  isl_set *from = isl_pw_aff_domain(isl_pw_aff_copy(value)), *reach = isl_pw_aff_domain(isl_pw_aff_copy(fewer));
  const int same = isl_set_is_empty(differ) == isl_bool_true && isl_set_is_subset(reach, from) == isl_bool_true;
  isl_set_free(differ);
  isl_set_free(from);
  isl_set_free(reach);
  isl_pw_aff_free(same ? value : fewer);
  return same ? fewer : value;
}

isl_set *rt_poly_where(isl_ctx *ctx, const atoll_rt *x, const atoll_sym *also) { return domain(ctx, x, also, 0); }

isl_set *rt_poly_box(isl_ctx *ctx, const atoll_rt *x) { return domain(ctx, x, NULL, 1); }
isl_set *rt_poly_domain(isl_ctx *ctx, const atoll_rt *x) { return domain(ctx, x, NULL, 0); }

const char *rt_poly_sample(const atoll_rt *x, isl_set *set, char *buf, size_t n) {
  size_t used = 0;
  int k = 0, parameters = 0;
  buf[0] = 0;
  if (isl_set_is_empty(set) != isl_bool_false)
    return buf;
  isl_point *p = isl_set_sample_point(isl_set_copy(set));
  for (int d = 0; p && d < x->g->dims && used < n; d++) {
    if (!rt_has(x, d))
      continue;
    isl_val *v = isl_point_get_coordinate_val(p, isl_dim_set, k++);
    used += (size_t)snprintf(buf + used, n - used, "%s%s=%ld", k == 1 ? " (" : ", ", x->g->dim[d].name,
                             isl_val_get_num_si(v));
    isl_val_free(v);
  }
  if (k && used < n)
    used += (size_t)snprintf(buf + used, n - used, ")");
  for (int d = 0; p && d < x->g->dims && used < n; d++) {
    if (x->g->dim[d].bound)
      continue;
    int at = isl_set_find_dim_by_name(set, isl_dim_param, x->g->dim[d].bound_name);
    if (at < 0)
      continue;
    isl_val *v = isl_point_get_coordinate_val(p, isl_dim_param, at);
    used += (size_t)snprintf(buf + used, n - used, "%s%s=%ld", parameters++ ? ", " : " for ", x->g->dim[d].bound_name,
                             isl_val_get_num_si(v));
    isl_val_free(v);
  }
  isl_point_free(p);
  return buf;
}

isl_set *rt_poly_context(isl_ctx *ctx, const rt_graph *g) {
  text t;
  if (!begin(&t))
    return NULL;
  rt_poly_print_parameters(g, t.f);
  fputs("{ : 0 = 0", t.f);
  for (int d = 0; d < g->dims; d++)
    if (!g->dim[d].bound)
      fprintf(t.f, " and %s >= 1", g->dim[d].bound_name);
  if (g->valid) {
    fputs(" and ", t.f);
    rt_poly_print(g, g->valid, "", t.f);
  }
  fputs(" }", t.f);
  return read_set(ctx, &t);
}

/* The variable that names dimension d of the other tuple. */
static const atoll_sym *other_var(const rt_graph *g, int d) {
  char name[20];
  (void)snprintf(name, sizeof name, "%s_", g->dim[d].name);
  return atoll_sym_var(g->syms, name, ATOLL_SYM_INT);
}

/* " and lo <= v and v < hi", or " and v = lo" */
static void print_item(const rt_graph *g, const atoll_sym *v, const atoll_sym *lo, const atoll_sym *hi, FILE *out) {
  fputs(" and ", out);
  rt_poly_print(g, atoll_sym_binary(g->syms, hi ? ATOLL_SYM_LE : ATOLL_SYM_EQ, lo, v), "", out);
  if (hi) {
    fputs(" and ", out);
    rt_poly_print(g, atoll_sym_binary(g->syms, ATOLL_SYM_LT, v, hi), "", out);
  }
}

static void print_items(const rt_graph *g, const rt_edge *e, FILE *out) {
  for (int d = 0; d < g->dims; d++)
    if (rt_has(rt_src(g, e), d))
      print_item(g, other_var(g, d), e->item[d].lo, e->item[d].hi, out);
}

/* PICK reads what its mask lets through, when that depends on the points alone: axis k of the sum is t_ - lo. */
static void print_mask(const atoll_rt *x, FILE *out) {
  rt_graph *g = x->g;
  const rt_edge *e = &x->in[0];
  const atoll_sym *by[RT_AXES];
  int n = 0;
  if (x->op != RT_PICK || !x->expr || rt_slices(g, e) != x->axis)
    return;
  for (int d = 0; d < g->dims; d++) {
    if (!rt_has(rt_src(g, e), d) || !e->item[d].hi)
      continue;
    by[n++] = atoll_sym_sub(g->syms, other_var(g, d), e->item[d].lo);
  }
  fputs(" and ", out);
  rt_poly_print(g, rt_substitute_axes(g, x->expr, n, by), "", out);
}

isl_map *rt_poly_access(isl_ctx *ctx, const atoll_rt *x, int k) {
  const rt_edge *e = &x->in[k];
  text t;
  if (!begin(&t))
    return NULL;
  rt_poly_print_parameters(x->g, t.f);
  fputs("{ ", t.f);
  print_tuple(x, "", t.f);
  fputs(" -> ", t.f);
  print_tuple(rt_src(x->g, e), "_", t.f);
  fputs(" : 0 = 0", t.f);
  print_where(x, t.f);
  print_items(x->g, e, t.f);
  print_mask(x, t.f);
  fputs(" }", t.f);
  isl_map *map = read_map(ctx, &t);
  if (e->cond)
    map = isl_map_intersect_domain(map, domain(ctx, x, e->cond, 1));
  for (int i = 0; i < k && x->op == RT_MERGE; i++)
    if (x->in[i].cond)
      map = isl_map_subtract_domain(map, domain(ctx, x, x->in[i].cond, 1));
  return map;
}

/* ---- what is known ---- */

atoll_err rt_poly_known_create(isl_ctx *ctx, const rt_graph *g, rt_poly_known *k) {
  *k = (rt_poly_known){.ctx = ctx, .nodes = g->nodes};
  k->first = calloc((size_t)g->nodes + 1, sizeof *k->first);
  for (int i = 0; k->first && i < g->nodes; i++) {
    k->first[i] = k->edges;
    k->edges += g->node[i] ? g->node[i]->inputs : 0;
  }
  k->domain = calloc((size_t)g->nodes + 1, sizeof(isl_set *));
  k->access = calloc((size_t)k->edges + 1, sizeof(isl_map *));
  return k->first && k->domain && k->access ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
}

isl_set *rt_poly_known_domain(const rt_poly_known *k, const atoll_rt *x) {
  isl_set **known = &k->domain[x->id];
  if (!*known)
    *known = rt_poly_domain(k->ctx, x);
  return isl_set_copy(*known);
}

isl_map *rt_poly_known_access(const rt_poly_known *k, const atoll_rt *x, int input) {
  isl_map **known = &k->access[k->first[x->id] + input];
  if (!*known)
    *known = rt_poly_access(k->ctx, x, input);
  return isl_map_copy(*known);
}

void rt_poly_known_destroy(rt_poly_known *k) {
  for (int i = 0; k->domain && i < k->nodes; i++)
    isl_set_free(k->domain[i]);
  for (int i = 0; k->access && i < k->edges; i++)
    isl_map_free(k->access[i]);
  free(k->domain);
  free(k->first);
  free(k->access);
}

/* ---- isl's expressions to ours ---- */

/* An AST expression of 0 and 1 (a full condition may come as an integer) as BOOL. */
static const atoll_sym *as_bool(rt_graph *g, const atoll_sym *e) {
  if (!e || atoll_sym_type_of(e) == ATOLL_SYM_BOOL)
    return e;
  return atoll_sym_binary(g->syms, ATOLL_SYM_NE, e, rt_int(g, 0));
}

static const atoll_sym *operation(rt_graph *g, isl_ast_expr *e, rt_poly_variable variable, void *arg) {
  enum { LEAST = 3 };
  atoll_syms *s = g->syms;
  isl_size n = isl_ast_expr_op_get_n_arg(e);
  const atoll_sym *a[LEAST] = {NULL}, *all = NULL;
  enum isl_ast_expr_op_type op = isl_ast_expr_op_get_type(e);
  for (int k = 0; k < n; k++) {
    isl_ast_expr *part = isl_ast_expr_op_get_arg(e, k);
    const atoll_sym *p = rt_poly_sym(g, part, variable, arg);
    isl_ast_expr_free(part);
    if (!p)
      return NULL;
    if (k < LEAST)
      a[k] = p;
    if (op == isl_ast_expr_op_min || op == isl_ast_expr_op_max)
      all = all ? atoll_sym_binary(s, op == isl_ast_expr_op_min ? ATOLL_SYM_MIN : ATOLL_SYM_MAX, all, p) : p;
  }
  switch (op) {
  case isl_ast_expr_op_min:
  case isl_ast_expr_op_max:
    return all;
  case isl_ast_expr_op_and:
  case isl_ast_expr_op_and_then:
    return atoll_sym_binary(s, ATOLL_SYM_AND, as_bool(g, a[0]), as_bool(g, a[1]));
  case isl_ast_expr_op_or:
  case isl_ast_expr_op_or_else:
    return atoll_sym_binary(s, ATOLL_SYM_OR, as_bool(g, a[0]), as_bool(g, a[1]));
  case isl_ast_expr_op_minus:
    return atoll_sym_mul(s, atoll_sym_int(s, -1), a[0]);
  case isl_ast_expr_op_add:
    return atoll_sym_add(s, a[0], a[1]);
  case isl_ast_expr_op_sub:
    return atoll_sym_sub(s, a[0], a[1]);
  case isl_ast_expr_op_mul:
    return atoll_sym_mul(s, a[0], a[1]);
  case isl_ast_expr_op_div: /* known to be exact, or to round down like these */
  case isl_ast_expr_op_fdiv_q:
  case isl_ast_expr_op_pdiv_q:
    return atoll_sym_binary(s, ATOLL_SYM_FLOORDIV, a[0], a[1]);
  case isl_ast_expr_op_pdiv_r:
  case isl_ast_expr_op_zdiv_r: /* only its being zero counts */
    return atoll_sym_binary(s, ATOLL_SYM_MOD, a[0], a[1]);
  case isl_ast_expr_op_cond:
  case isl_ast_expr_op_select:
    return atoll_sym_select(s, as_bool(g, a[0]), a[1], a[2]);
  case isl_ast_expr_op_eq:
    return atoll_sym_binary(s, ATOLL_SYM_EQ, a[0], a[1]);
  case isl_ast_expr_op_le:
    return atoll_sym_binary(s, ATOLL_SYM_LE, a[0], a[1]);
  case isl_ast_expr_op_lt:
    return atoll_sym_binary(s, ATOLL_SYM_LT, a[0], a[1]);
  case isl_ast_expr_op_ge:
    return atoll_sym_binary(s, ATOLL_SYM_LE, a[1], a[0]);
  case isl_ast_expr_op_gt:
    return atoll_sym_binary(s, ATOLL_SYM_LT, a[1], a[0]);
  default:
    return NULL;
  }
}

const atoll_sym *rt_poly_sym(rt_graph *g, isl_ast_expr *e, rt_poly_variable variable, void *arg) {
  const atoll_sym *out = NULL;
  switch (isl_ast_expr_get_type(e)) {
  case isl_ast_expr_int: {
    isl_val *v = isl_ast_expr_get_val(e);
    out = rt_int(g, isl_val_get_num_si(v));
    isl_val_free(v);
    return out;
  }
  case isl_ast_expr_id: {
    isl_id *id = isl_ast_expr_get_id(e);
    out = variable(arg, isl_id_get_name(id));
    isl_id_free(id);
    return out;
  }
  case isl_ast_expr_op:
    return operation(g, e, variable, arg);
  default:
    return NULL;
  }
}

/* A bound, or dimension "t" under the name "t_". */
static const atoll_sym *parameter(void *arg, const char *name) {
  const rt_graph *g = arg;
  size_t n = strlen(name);
  for (int d = 0; d < g->dims; d++) {
    if (strcmp(name, g->dim[d].bound_name) == 0)
      return g->dim[d].size;
    if (n && name[n - 1] == '_' && strlen(g->dim[d].name) == n - 1 && strncmp(name, g->dim[d].name, n - 1) == 0)
      return g->dim[d].var;
  }
  return NULL;
}

static atoll_err converted(isl_ctx *ctx, rt_graph *g, isl_ast_expr *expr, int boolean, const atoll_sym **out) {
  const atoll_sym *e = expr ? rt_poly_sym(g, expr, parameter, g) : NULL;
  isl_ast_expr_free(expr);
  if (boolean)
    e = as_bool(g, e);
  if (!e)
    return rt_poly_error(ctx, "an index map has no closed form");
  *out = e;
  return ATOLL_OK;
}

/* Knows all parameters of what it is for (space: taken): isl 0.25 leaves those that a build does not know out of the
 * remainders that it prints. */
static isl_ast_build *build(isl_ctx *ctx, const rt_graph *g, isl_space *space) {
  return isl_ast_build_from_context(isl_set_align_params(rt_poly_context(ctx, g), space));
}

atoll_err rt_poly_value(rt_graph *g, isl_pw_aff *pa, const atoll_sym **out) {
  isl_ctx *ctx = isl_pw_aff_get_ctx(pa);
  isl_ast_build *b = build(ctx, g, isl_space_params(isl_pw_aff_get_space(pa)));
  isl_ast_expr *e = isl_ast_build_expr_from_pw_aff(b, isl_pw_aff_copy(pa));
  isl_ast_build_free(b);
  return converted(ctx, g, e, 0, out);
}

atoll_err rt_poly_parameter_condition(rt_graph *g, isl_set *set, const atoll_sym **out) {
  isl_ctx *ctx = isl_set_get_ctx(set);
  isl_ast_build *b = build(ctx, g, isl_space_params(isl_set_get_space(set)));
  isl_ast_expr *e = isl_ast_build_expr_from_set(b, isl_set_copy(set));
  isl_ast_build_free(b);
  return converted(ctx, g, e, 1, out);
}

/* The dimensions of a set of x's domain as parameters "t_". */
isl_set *rt_poly_as_parameters(const atoll_rt *x, isl_set *set) {
  unsigned at = 0;
  set = isl_set_reset_tuple_id(set);
  for (int d = 0; d < x->g->dims; d++) {
    char name[20];
    if (!rt_has(x, d))
      continue;
    (void)snprintf(name, sizeof name, "%s_", x->g->dim[d].name);
    unsigned n = (unsigned)isl_set_dim(set, isl_dim_param);
    set = isl_set_insert_dims(set, isl_dim_param, n, 1);
    set = isl_set_set_dim_name(set, isl_dim_param, n, name);
    set = isl_set_equate(set, isl_dim_param, n, isl_dim_set, (int)at++);
  }
  return isl_set_params(set);
}

atoll_err rt_poly_condition(const atoll_rt *x, isl_set *set, isl_set *known, const atoll_sym **out) {
  isl_ctx *ctx = isl_set_get_ctx(set);
  isl_set *s = isl_set_copy(set);
  *out = NULL;
  if (known) {
    isl_bool always = isl_set_is_subset(known, set);
    if (always == isl_bool_true) {
      isl_set_free(s);
      return ATOLL_OK;
    }
    s = isl_set_gist(s, isl_set_copy(known));
  }
  s = rt_poly_as_parameters(x, rt_poly_coalesce(s));
  if (!s)
    return rt_poly_error(ctx, "a domain has no closed form");
  atoll_err err = rt_poly_parameter_condition(x->g, s, out);
  isl_set_free(s);
  return err;
}

isl_set *rt_poly_readers(isl_ctx *ctx, const atoll_rt *x, int k) {
  const atoll_rt *src = rt_src(x->g, &x->in[k]);
  isl_map *map = isl_map_intersect_range(rt_poly_access(ctx, x, k), rt_poly_domain(ctx, src));
  map = isl_map_reverse(isl_map_intersect_params(map, rt_poly_context(ctx, x->g)));
  int at = 0;
  for (int d = 0; d < x->g->dims; d++) {
    char name[20];
    if (!rt_has(src, d))
      continue;
    (void)snprintf(name, sizeof name, "%s_", x->g->dim[d].name);
    unsigned n = (unsigned)isl_map_dim(map, isl_dim_param);
    map = isl_map_insert_dims(map, isl_dim_param, n, 1);
    map = isl_map_set_dim_name(map, isl_dim_param, n, name);
    map = isl_map_equate(map, isl_dim_param, (int)n, isl_dim_in, at++);
  }
  return rt_poly_coalesce(isl_map_range(map));
}

isl_set *rt_poly_product(isl_ctx *ctx, const atoll_rt *x, const rt_item item[RT_DIMS]) {
  rt_graph *g = x->g;
  const atoll_sym *other[RT_DIMS];
  unsigned all = (1u << g->dims) - 1;
  text t;
  if (!begin(&t))
    return NULL;
  fputc('[', t.f);
  for (int d = 0; d < g->dims; d++) {
    other[d] = other_var(g, d);
    fprintf(t.f, "%s%s_", d ? "," : "", g->dim[d].name);
    if (!g->dim[d].bound)
      fprintf(t.f, ",%s", g->dim[d].bound_name);
  }
  fputs("] -> { ", t.f);
  print_tuple(x, "", t.f);
  fputs(" : 0 = 0", t.f);
  for (int d = 0; d < g->dims; d++)
    if (rt_has(x, d))
      print_item(g, g->dim[d].var, rt_substitute(g, item[d].lo, all, other), rt_substitute(g, item[d].hi, all, other),
                 t.f);
  fputs(" }", t.f);
  return read_set(ctx, &t);
}

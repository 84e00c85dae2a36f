/* Order of execution from the dependences, in three steps.
 *
 * 1. Every group is a statement with the domain of its head. Dependences are the edges' index maps. shifts.c looks for
 *    loops with shifted statements; what it cannot order goes to isl (its defaults: of its options treat_coalescing=0
 * was seen to give trees that break dependences). Proximity, which asks isl to keep things close, looks at the last
 * point of a slice only, because with all points a reader of a window would not be fused with the writer that runs
 * ahead.
 * 2. The order is checked against the dependences, whoever made it.
 * 3. A value is freed right after its last reader: the time of that is the lexicographic maximum of the readers' times,
 * an exact function of the point, so frees need no part in the search and cannot be early or late.
 *
 * isl's syntax tree of that becomes our own. */
#include "schedule.h"

#include <isl/aff.h>
#include <isl/ast.h>
#include <isl/ast_build.h>
#include <isl/id.h>
#include <isl/options.h>
#include <isl/schedule.h>
#include <isl/space.h>
#include <isl/union_map.h>
#include <isl/union_set.h>
#include <isl/val.h>
#include <stdlib.h>
#include <string.h>

#include "passes.h"
#include "poly.h"
#include "shifts.h"

/* isl counts steps of its simplex. Where the numbers in it grow, 60 million took more than eight minutes. */
enum { DEFAULT_BUDGET = 5000000 };

/* ---- dependences ---- */

static int has_statement(const atoll_rt *x) { return x && !rt_is_free(x); }

/* Statement tuples are named after heads; all members of a group have the head's domain. */
static isl_map *between_statements(isl_map *access, const atoll_rt *reader, const atoll_rt *src) {
  char from[16], to[16];
  (void)snprintf(from, sizeof from, "S%d", rt_head(reader));
  (void)snprintf(to, sizeof to, "S%d", rt_head(src));
  return isl_map_set_tuple_name(isl_map_set_tuple_name(access, isl_dim_in, from), isl_dim_out, to);
}

/* Of one edge, reader -> what it reads, or NULL when the edge needs no order (*skip): members of a group come in the
 * order in which they need each other. What needs itself is no such need. */
static isl_map *dependence(const rt_poly_known *known, const rt_graph *g, const atoll_rt *x, int k, int *skip) {
  const atoll_rt *src = rt_src(g, &x->in[k]);
  *skip = !has_statement(src) || (x != src && rt_head(x) == rt_head(src) && rt_is_identity(g, &x->in[k]));
  if (*skip)
    return NULL;
  isl_map *access = isl_map_intersect_range(rt_poly_known_access(known, x, k), rt_poly_known_domain(known, src));
  return between_statements(access, x, src);
}

/* A sink sees its points in lexicographic order. */
static isl_map *sink_order(const rt_poly_known *known, const atoll_rt *x) {
  isl_set *domain = rt_poly_known_domain(known, x);
  isl_map *later = isl_map_lex_gt(isl_set_get_space(domain)); /* p -> earlier p' */
  later = isl_map_intersect_domain(later, isl_set_copy(domain));
  return isl_map_intersect_range(later, domain);
}

static isl_stat add_fewer(isl_map *map, void *user) {
  isl_union_map **sum = user;
  *sum = isl_union_map_union(*sum, isl_union_map_from_map(rt_poly_coalesce_map(map)));
  return *sum ? isl_stat_ok : isl_stat_error;
}

/* The same pairs (taken) in fewer pieces. */
static isl_union_map *fewer_pieces(isl_union_map *all) {
  isl_union_map *sum = isl_union_map_empty(isl_union_map_get_space(all));
  if (isl_union_map_foreach_map(all, add_fewer, &sum) != isl_stat_ok)
    sum = isl_union_map_free(sum);
  isl_union_map_free(all);
  return sum;
}

static atoll_err collect(struct rt_order *o, const rt_graph *g) {
  isl_ctx *ctx = o->ctx;
  isl_space *space = isl_space_params_alloc(ctx, 0);
  o->domain = isl_union_set_empty(isl_space_copy(space));
  o->needs = isl_union_map_empty(isl_space_copy(space));
  o->near = isl_union_map_empty(space);
  for (int i = 0; i < g->nodes; i++) {
    const atoll_rt *x = g->node[i];
    int skip;
    if (!has_statement(x))
      continue;
    if (rt_head(x) == x->id)
      o->domain = isl_union_set_union(o->domain, isl_union_set_from_set(rt_poly_known_domain(&o->known, x)));
    for (int k = 0; k < x->inputs; k++) {
      isl_map *d = dependence(&o->known, g, x, k, &skip);
      if (skip)
        continue;
      o->near = isl_union_map_union(o->near, isl_union_map_from_map(isl_map_lexmax(isl_map_copy(d))));
      o->needs = isl_union_map_union(o->needs, isl_union_map_from_map(d));
    }
    if (x->op == RT_SINK && x->dims)
      o->needs = isl_union_map_union(o->needs, isl_union_map_from_map(sink_order(&o->known, x)));
  }
  o->domain = isl_union_set_intersect_params(o->domain, isl_set_copy(o->context));
  o->needs = fewer_pieces(isl_union_map_intersect_params(o->needs, isl_set_copy(o->context)));
  o->near = isl_union_map_intersect_params(o->near, isl_set_copy(o->context));
  return o->domain && o->needs && o->near ? ATOLL_OK : rt_poly_error(ctx, "schedule: dependences");
}

/* ---- an order ---- */

isl_bool rt_is_legal(isl_union_map *needs, isl_union_map *time) {
  isl_union_map *pairs = isl_union_map_copy(needs); /* becomes: time of the reader -> time of what it reads */
  pairs = isl_union_map_apply_domain(pairs, isl_union_map_copy(time));
  pairs = isl_union_map_apply_range(pairs, isl_union_map_copy(time));
  if (isl_union_map_is_empty(pairs) == isl_bool_true) {
    isl_union_map_free(pairs);
    return isl_bool_true;
  }
  isl_map *m = isl_map_from_union_map(pairs);
  m = isl_map_intersect(m, isl_map_lex_le(isl_space_domain(isl_map_get_space(m))));
  isl_bool none = isl_map_is_empty(m);
  isl_map_free(m);
  return none;
}

static isl_union_map *order_by_isl(const struct rt_order *o, unsigned long budget) {
  isl_schedule_constraints *c = isl_schedule_constraints_on_domain(isl_union_set_copy(o->domain));
  c = isl_schedule_constraints_set_context(c, isl_set_copy(o->context));
  c = isl_schedule_constraints_set_validity(c, isl_union_map_reverse(isl_union_map_copy(o->needs)));
  c = isl_schedule_constraints_set_proximity(c, isl_union_map_reverse(isl_union_map_copy(o->near)));
  isl_ctx_reset_operations(o->ctx);
  isl_ctx_set_max_operations(o->ctx, budget);
  isl_schedule *s = isl_schedule_constraints_compute_schedule(c);
  isl_union_map *time =
      s ? isl_union_map_intersect_domain(isl_schedule_get_map(s), isl_union_set_copy(o->domain)) : NULL;
  isl_schedule_free(s);
  isl_ctx_set_max_operations(o->ctx, 0);
  isl_ctx_reset_operations(o->ctx);
  isl_ctx_reset_error(o->ctx);
  return time;
}

/* Shifted loops are found in a small fraction of isl's time, and on the programs at hand they keep no more values alive
 * (REINFORCE with 4-step returns: 23 kB against 58 kB). They come first unless isl is asked for; isl orders what they
 * cannot, recurrences that need skewed loops. */
static atoll_err find_order(const struct rt_order *o, const rt_graph *g, unsigned long budget, isl_union_map **time,
                            const char **method) {
  atoll_err err = ATOLL_INFEASIBLE;
  for (int k = 0; k < 2; k++) {
    int by_isl = (budget == 0) == k;
    isl_bool legal = isl_bool_false;
    *method = by_isl ? "isl" : "shifts";
    *time = NULL;
    if (by_isl)
      *time = order_by_isl(o, budget ? budget : DEFAULT_BUDGET);
    else if ((err = rt_shifts(o, g, time)) != ATOLL_OK && err != ATOLL_INFEASIBLE)
      return err;
    if (*time)
      legal = rt_is_legal(o->needs, *time);
    if (legal == isl_bool_true)
      return ATOLL_OK;
    isl_union_map_free(*time);
  }
  *time = NULL;
  return atoll_fail(ATOLL_INFEASIBLE, "schedule: no order of execution was found");
}

/* ---- frees ---- */

/* time with one more coordinate of this value. */
static isl_map *append(isl_map *time, int value) {
  unsigned n = (unsigned)isl_map_dim(time, isl_dim_out);
  time = isl_map_add_dims(time, isl_dim_out, 1);
  return isl_map_fix_si(time, isl_dim_out, n, value);
}

static isl_stat append_zero(isl_map *m, void *user) {
  isl_union_map **sum = user;
  *sum = isl_union_map_union(*sum, isl_union_map_from_map(append(m, 0)));
  return *sum ? isl_stat_ok : isl_stat_error;
}

/* The map that there is in `maps`, or NULL: they are empty. */
static isl_map *only(isl_union_map *maps) {
  if (isl_union_map_is_empty(maps) != isl_bool_true)
    return isl_map_from_union_map(maps);
  isl_union_map_free(maps);
  return NULL;
}

/* X[q] -> time of the computation of x's value at q; NULL: with bounds as large as they are here, it has none. */
static isl_map *creation(const struct rt_order *o, const atoll_rt *x, isl_union_map *time) {
  char name[16];
  isl_set *domain = isl_set_intersect_params(rt_poly_known_domain(&o->known, x), isl_set_copy(o->context));
  isl_map *self = isl_map_identity(isl_space_map_from_set(isl_set_get_space(domain)));
  (void)snprintf(name, sizeof name, "S%d", rt_head(x));
  self = isl_map_set_tuple_name(isl_map_intersect_domain(self, domain), isl_dim_out, name);
  return only(isl_union_map_apply_range(isl_union_map_from_map(self), isl_union_map_copy(time)));
}

/* X[q] -> times of all that read it; NULL: nothing does. */
static isl_map *readings(const struct rt_order *o, const rt_graph *g, const atoll_rt *x, isl_union_map *time) {
  char name[16];
  isl_set *domain = isl_set_intersect_params(rt_poly_known_domain(&o->known, x), isl_set_copy(o->context));
  isl_union_map *users = isl_union_map_empty(isl_union_map_get_space(time));
  for (int i = 0; i < g->nodes; i++) {
    const atoll_rt *y = g->node[i];
    for (int k = 0; y && k < y->inputs; k++) {
      if (y->in[k].src != x->id)
        continue;
      isl_map *use =
          isl_map_reverse(isl_map_intersect_range(rt_poly_known_access(&o->known, y, k), isl_set_copy(domain)));
      (void)snprintf(name, sizeof name, "S%d", rt_head(y));
      users = isl_union_map_union(users, isl_union_map_from_map(isl_map_set_tuple_name(use, isl_dim_out, name)));
    }
  }
  isl_set_free(domain);
  return only(isl_union_map_apply_range(users, isl_union_map_copy(time)));
}

/* Adds `when`, an order of instances, as statement <letter><id>, at coordinate `value` of the time it follows. Not
 * coalesced: pieces with different constants would become one with a coordinate that varies. */
static isl_union_map *add_statement(isl_union_map *all, char letter, int id, isl_map *when, int value) {
  char name[16];
  (void)snprintf(name, sizeof name, "%c%d", letter, id);
  when = isl_map_set_tuple_name(append(when, value), isl_dim_in, name);
  return isl_union_map_union(all, isl_union_map_from_map(when));
}

/* ---- what is put away ---- */

static isl_stat last_loop(isl_basic_map *part, void *user) {
  int *last = user, k = (int)isl_basic_map_dim(part, isl_dim_out) - 1;
  for (; k > *last; k--) {
    isl_val *v = isl_basic_map_plain_get_val_if_fixed(part, isl_dim_out, (unsigned)k);
    int fixed = isl_val_is_int(v) == isl_bool_true;
    isl_val_free(v);
    if (!fixed)
      break;
  }
  *last = k;
  isl_basic_map_free(part);
  return isl_stat_ok;
}

/* Uses of a value within one turn of their innermost loop are one visit. After a visit that is not the last one the
 * value may be put away, before one that is not the first it is brought back. when: all uses of values. Instances have
 * the value's point, and behind it the visit. */
static isl_union_map *with_offload(isl_union_map *all, const atoll_rt *x, isl_map *when) {
  int loop = -1;
  (void)isl_map_foreach_basic_map(when, last_loop, &loop);
  if (loop < 0) {
    isl_map_free(when);
    return all;
  }
  isl_map *visit = isl_map_identity(isl_space_map_from_set(isl_space_range(isl_map_get_space(when))));
  visit =
      isl_map_project_out(visit, isl_dim_out, (unsigned)loop + 1, isl_map_dim(visit, isl_dim_out) - (unsigned)loop - 1);
  visit = isl_map_reverse(isl_map_range_product(isl_map_reverse(when), visit)); /* [X[q] -> visit] -> time */
  isl_map *visits = isl_set_unwrap(isl_map_domain(isl_map_copy(visit)));
  isl_set *more = isl_map_wrap(isl_map_subtract(isl_map_copy(visits), isl_map_lexmax(isl_map_copy(visits))));
  isl_set *again = isl_map_wrap(isl_map_subtract(isl_map_copy(visits), isl_map_lexmin(isl_map_copy(visits))));
  isl_map_free(visits);
  if (isl_set_is_empty(more) == isl_bool_false) {
    isl_map *after = isl_map_lexmax(isl_map_intersect_domain(isl_map_copy(visit), isl_set_copy(more)));
    isl_map *before = isl_map_lexmin(isl_map_intersect_domain(isl_map_copy(visit), isl_set_copy(again)));
    all = add_statement(all, 'O', x->id, isl_map_flatten_domain(after), 2);
    all = add_statement(all, 'G', x->id, isl_map_flatten_domain(before), -1);
  }
  isl_set_free(more);
  isl_set_free(again);
  isl_map_free(visit);
  return all;
}

/* Executions, and around them what happens to values. */
static isl_union_map *with_memory(const struct rt_order *o, const rt_graph *g, isl_union_map *time, int offload) {
  isl_union_map *all = isl_union_map_empty(isl_union_map_get_space(time));
  (void)isl_union_map_foreach_map(time, append_zero, &all);
  for (int i = 0; i < g->nodes; i++) {
    if (!has_statement(g->node[i]) || g->node[i]->op == RT_SINK || !rt_is_read_outside(g, g->node[i]))
      continue;
    isl_map *when = creation(o, g->node[i], time), *read = when ? readings(o, g, g->node[i], time) : NULL;
    if (!when)
      continue;
    if (read && rt_is_exchange(g->node[i]))
      all = add_statement(all, 'R', i, isl_map_lexmin(isl_map_copy(read)), -1);
    when = read ? isl_map_union(when, read) : when;
    all = add_statement(all, 'F', i, isl_map_lexmax(isl_map_copy(when)), 1);
    if (offload && g->node[i]->dims && !rt_is_exchange(g->node[i]))
      all = with_offload(all, g->node[i], when);
    else
      isl_map_free(when);
  }
  return all;
}

/* ---- isl's tree to ours ---- */

struct conversion {
  rt_graph *g; /* for its pool of expressions; unchanged */
  isl_ctx *ctx;
  int depth;
  const atoll_sym *value[RT_LOOPS + 1]; /* of loop variables: themselves, or the only value */
  char name[RT_LOOPS + 1][8];
  int loops; /* loops around, also those of one iteration */
};

static const atoll_sym *variable(void *arg, const char *name) {
  const struct conversion *c = arg;
  for (int k = 0; k < c->loops; k++)
    if (strcmp(c->name[k], name) == 0)
      return c->value[k];
  for (int d = 0; d < c->g->dims; d++)
    if (strcmp(name, c->g->dim[d].bound_name) == 0)
      return c->g->dim[d].size;
  return NULL;
}

/* Takes e. */
static atoll_err expression(struct conversion *c, isl_ast_expr *e, const atoll_sym **out) {
  atoll_err err = ATOLL_OK;
  *out = e ? rt_poly_sym(c->g, e, variable, c) : NULL;
  if (!e)
    err = rt_poly_error(c->ctx, "schedule: an expression");
  else if (!*out) {
    char *text = isl_ast_expr_to_C_str(e);
    err = atoll_fail(ATOLL_INTERNAL, "schedule: expression '%s' is none of ours", text ? text : "");
    free(text);
  }
  isl_ast_expr_free(e);
  return err;
}

static atoll_err convert(struct conversion *c, isl_ast_node *node, rt_tree *parent);

static atoll_err convert_for(struct conversion *c, isl_ast_node *node, rt_tree *parent) {
  isl_ast_expr *iterator = isl_ast_node_for_get_iterator(node);
  isl_id *id = isl_ast_expr_get_id(iterator);
  const atoll_sym *first = NULL, *step = NULL;
  atoll_err err = ATOLL_OK;
  rt_tree *t = NULL;
  int once = isl_ast_node_for_is_degenerate(node) == isl_bool_true;
  if (c->loops >= RT_LOOPS)
    ATOLL_TRY_GOTO(err, clean, atoll_fail(ATOLL_INTERNAL, "schedule: more than %d loops in each other", RT_LOOPS));
  ATOLL_TRY_GOTO(err, clean, expression(c, isl_ast_node_for_get_init(node), &first));
  (void)snprintf(c->name[c->loops], sizeof c->name[0], "%s", isl_id_get_name(id));
  if (once) {
    c->value[c->loops++] = first;
  } else {
    char name[8];
    t = rt_tree_new(RT_FOR);
    if (!t)
      ATOLL_TRY_GOTO(err, clean, atoll_fail(ATOLL_NOMEM, "schedule: no memory"));
    (void)snprintf(name, sizeof name, "_c%d", c->depth);
    t->depth = c->depth;
    t->first = first;
    c->value[c->loops++] = atoll_sym_var(c->g->syms, name, ATOLL_SYM_INT);
    ATOLL_TRY_GOTO(err, left, expression(c, isl_ast_node_for_get_cond(node), &t->cond));
    ATOLL_TRY_GOTO(err, left, expression(c, isl_ast_node_for_get_inc(node), &step));
    if (!rt_is_const(step, &t->step))
      ATOLL_TRY_GOTO(err, left, atoll_fail(ATOLL_INTERNAL, "schedule: a loop's step varies"));
    c->depth++;
  }
  isl_ast_node *body = isl_ast_node_for_get_body(node);
  err = convert(c, body, once ? parent : t);
  isl_ast_node_free(body);
  c->depth -= !once;
left:
  c->loops--;
clean:
  isl_id_free(id);
  isl_ast_expr_free(iterator);
  if (err == ATOLL_OK && t)
    return rt_tree_insert(parent, parent->children, t);
  rt_tree_destroy(&t);
  return err;
}

static atoll_err convert_if(struct conversion *c, isl_ast_node *node, rt_tree *parent) {
  rt_tree *t = rt_tree_new(RT_IF);
  isl_ast_node *branch[2] = {isl_ast_node_if_get_then_node(node), NULL};
  if (isl_ast_node_if_has_else_node(node) == isl_bool_true)
    branch[1] = isl_ast_node_if_get_else_node(node);
  atoll_err err = t ? expression(c, isl_ast_node_if_get_cond(node), &t->cond) : atoll_fail(ATOLL_NOMEM, "schedule");
  for (int k = 0; k < 2; k++) {
    rt_tree *seq = err == ATOLL_OK && branch[k] ? rt_tree_new(RT_SEQ) : NULL;
    if (seq) {
      err = convert(c, branch[k], seq);
      if (err == ATOLL_OK)
        err = rt_tree_insert(t, t->children, seq);
      else
        rt_tree_destroy(&seq);
    }
    isl_ast_node_free(branch[k]);
  }
  if (err == ATOLL_OK)
    return rt_tree_insert(parent, parent->children, t);
  rt_tree_destroy(&t);
  return err;
}

/* A user node is a call: S7(point) or F7(point). */
static atoll_err convert_statement(struct conversion *c, isl_ast_node *node, rt_tree *parent) {
  rt_tree *t = rt_tree_new(RT_STATEMENT);
  isl_ast_expr *call = isl_ast_node_user_get_expr(node), *name = isl_ast_expr_op_get_arg(call, 0);
  isl_id *id = isl_ast_expr_get_id(name);
  const char *text = id ? isl_id_get_name(id) : NULL;
  atoll_err err = t && text ? ATOLL_OK : rt_poly_error(c->ctx, "schedule: a statement");
  if (err == ATOLL_OK) {
    int k = 1;
    t->node = atoi(text + 1);
    t->what = text[0] == 'F'                        ? RT_DO_FREE
              : text[0] == 'O'                      ? RT_DO_OFFLOAD
              : text[0] == 'G'                      ? RT_DO_FETCH
              : text[0] == 'R'                      ? RT_DO_RECEIVE
              : rt_is_exchange(c->g->node[t->node]) ? RT_DO_SEND
                                                    : RT_DO_EXECUTE;
    for (int d = 0; d < c->g->dims && err == ATOLL_OK; d++)
      if (rt_has(c->g->node[t->node], d))
        err = expression(c, isl_ast_expr_op_get_arg(call, k++), &t->point[d]);
  }
  isl_id_free(id);
  isl_ast_expr_free(name);
  isl_ast_expr_free(call);
  if (err == ATOLL_OK)
    return rt_tree_insert(parent, parent->children, t);
  rt_tree_destroy(&t);
  return err;
}

/* Adds what node does to parent: a SEQ, or a FOR, which gets a SEQ of its own. */
static atoll_err convert(struct conversion *c, isl_ast_node *node, rt_tree *parent) {
  atoll_err err = ATOLL_OK;
  if (parent->kind == RT_FOR) {
    rt_tree *seq = rt_tree_new(RT_SEQ);
    ATOLL_TRY(seq ? rt_tree_insert(parent, parent->children, seq) : atoll_fail(ATOLL_NOMEM, "schedule: no memory"));
    parent = seq;
  }
  switch (isl_ast_node_get_type(node)) {
  case isl_ast_node_for:
    return convert_for(c, node, parent);
  case isl_ast_node_if:
    return convert_if(c, node, parent);
  case isl_ast_node_user:
    return convert_statement(c, node, parent);
  case isl_ast_node_block: {
    isl_ast_node_list *list = isl_ast_node_block_get_children(node);
    for (int k = 0; err == ATOLL_OK && k < isl_ast_node_list_n_ast_node(list); k++) {
      isl_ast_node *child = isl_ast_node_list_get_ast_node(list, k);
      err = convert(c, child, parent);
      isl_ast_node_free(child);
    }
    isl_ast_node_list_free(list);
    return err;
  }
  default:
    return rt_poly_error(c->ctx, "schedule: syntax tree");
  }
}

/* Times as a tree of isl's: coordinates that are one number in each piece become sequences, others loops. (Given the
 * flat map instead, isl 0.25's generator was seen to put statements of different constants in the wrong order.) */
struct pieces {
  isl_map **map;
  int n, room;
  int failed;
};

static isl_stat add_piece(isl_basic_map *part, void *user) {
  struct pieces *p = user;
  if (p->n == p->room) {
    int room = p->room ? 2 * p->room : 64;
    isl_map **more = realloc(p->map, (size_t)room * sizeof(isl_map *));
    if (!more) {
      isl_basic_map_free(part);
      return isl_stat_error;
    }
    p->map = more;
    p->room = room;
  }
  p->map[p->n++] = isl_map_from_basic_map(part);
  return isl_stat_ok;
}

static isl_stat add_map(isl_map *map, void *user) {
  struct pieces *p = user;
  map = isl_map_make_disjoint(map);
  if (isl_map_foreach_basic_map(map, add_piece, p) != isl_stat_ok)
    p->failed = 1;
  isl_map_free(map);
  return isl_stat_ok;
}

/* The number that coordinate k is, if it is one. */
static int is_fixed(isl_map *m, unsigned k, long *value) {
  isl_val *v = isl_map_plain_get_val_if_fixed(m, isl_dim_out, k);
  int fixed = isl_val_is_int(v) == isl_bool_true;
  *value = fixed ? isl_val_get_num_si(v) : 0;
  isl_val_free(v);
  return fixed;
}

static isl_schedule *in_order(isl_map **piece, int n, unsigned k, unsigned length);

/* All pieces have a number at coordinate k: those with the least first. Reorders the pieces. */
static isl_schedule *sequence(isl_map **piece, int n, unsigned k, unsigned length) {
  isl_schedule *all = NULL;
  for (int from = 0; from < n;) {
    long least = 0, v;
    for (int i = from; i < n; i++)
      if (is_fixed(piece[i], k, &v) && (i == from || v < least))
        least = v;
    int to = from;
    for (int i = from; i < n; i++) {
      (void)is_fixed(piece[i], k, &v);
      if (v != least)
        continue;
      isl_map *keep = piece[to];
      piece[to++] = piece[i];
      piece[i] = keep;
    }
    isl_schedule *part = in_order(piece + from, to - from, k + 1, length);
    all = all ? isl_schedule_sequence(all, part) : part;
    from = to;
  }
  return all;
}

/* Pieces as a schedule that orders them by the coordinates from k on. */
static isl_schedule *in_order(isl_map **piece, int n, unsigned k, unsigned length) {
  long v;
  int fixed = 1;
  if (k == length) {
    isl_union_set *domain = isl_union_set_from_set(isl_map_domain(isl_map_copy(piece[0])));
    for (int i = 1; i < n; i++)
      domain = isl_union_set_union(domain, isl_union_set_from_set(isl_map_domain(isl_map_copy(piece[i]))));
    return isl_schedule_from_domain(domain);
  }
  for (int i = 0; i < n; i++)
    fixed &= is_fixed(piece[i], k, &v);
  if (fixed)
    return sequence(piece, n, k, length);
  isl_union_map *loop = isl_union_map_empty(isl_space_params(isl_map_get_space(piece[0])));
  for (int i = 0; i < n; i++) {
    isl_map *m = isl_map_project_out(isl_map_copy(piece[i]), isl_dim_out, k + 1, length - k - 1);
    loop = isl_union_map_union(loop, isl_union_map_from_map(isl_map_project_out(m, isl_dim_out, 0, k)));
  }
  isl_schedule *inner = in_order(piece, n, k + 1, length);
  return isl_schedule_insert_partial_schedule(inner, isl_multi_union_pw_aff_from_union_map(loop));
}

/* Takes time. */
static isl_schedule *schedule_of(isl_union_map *time) {
  struct pieces p = {NULL, 0, 0, 0};
  isl_schedule *s = NULL;
  if (isl_union_map_foreach_map(time, add_map, &p) == isl_stat_ok && !p.failed && p.n)
    s = in_order(p.map, p.n, 0, (unsigned)isl_map_dim(p.map[0], isl_dim_out));
  for (int i = 0; i < p.n; i++)
    isl_map_free(p.map[i]);
  free(p.map);
  isl_union_map_free(time);
  return s;
}

static atoll_err tree_of(const struct rt_order *o, const rt_graph *g, isl_union_map *time, int offload, rt_tree **out) {
  isl_ast_build *build = isl_ast_build_from_context(isl_set_copy(o->context));
  isl_ast_node *node = isl_ast_build_node_from_schedule(build, schedule_of(with_memory(o, g, time, offload)));
  isl_ast_build_free(build);
  if (!node)
    return rt_poly_error(o->ctx, "schedule: syntax tree");
  struct conversion c = {.g = (rt_graph *)g, .ctx = o->ctx};
  rt_tree *root = rt_tree_new(RT_SEQ);
  atoll_err err = root ? convert(&c, node, root) : atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  isl_ast_node_free(node);
  if (err != ATOLL_OK)
    rt_tree_destroy(&root);
  *out = root;
  return err;
}

/* ---- the whole ---- */

static isl_set *context(isl_ctx *ctx, const rt_graph *g, const rt_schedule_params *p) {
  isl_set *c = rt_poly_context(ctx, g);
  for (int d = 0; p && d < g->dims; d++) {
    int at = isl_set_find_dim_by_name(c, isl_dim_param, g->dim[d].bound_name);
    if (at >= 0 && p->least[d] > 1)
      c = isl_set_lower_bound_si(c, isl_dim_param, (unsigned)at, (int)p->least[d]);
  }
  return c;
}

atoll_err rt_schedule_create(const rt_graph *g, const rt_schedule_params *p, rt_schedule *out) {
  struct rt_order o = {.ctx = rt_poly_create()};
  rt_schedule s = {NULL, NULL};
  isl_union_map *time = NULL;
  if (!o.ctx)
    return atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  o.context = context(o.ctx, g, p);
  atoll_err err = rt_poly_known_create(o.ctx, g, &o.known);
  if (err == ATOLL_OK)
    err = collect(&o, g);
  if (err == ATOLL_OK)
    err = find_order(&o, g, p ? p->budget : 0, &time, &s.method);
  if (err == ATOLL_OK)
    err = tree_of(&o, g, time, p && p->offload, &s.tree);
  isl_union_map_free(time);
  isl_union_set_free(o.domain);
  isl_union_map_free(o.needs);
  isl_union_map_free(o.near);
  isl_set_free(o.context);
  rt_poly_known_destroy(&o.known);
  isl_ctx_free(o.ctx);
  if (err == ATOLL_OK)
    *out = s;
  return err;
}

void rt_schedule_destroy(rt_schedule *s) { rt_tree_destroy(&s->tree); }

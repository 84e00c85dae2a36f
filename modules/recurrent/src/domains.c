/* Domain reduction: the least sets of points that sinks need.
 *
 * The sets are the least solution of D(source) >= image of D(node) under the edge. Through a recurrence they could grow
 * a point at a time for ever, so after a few rounds a node is taken to be needed wherever it can be: where all that it
 * reads exists. Edges out of a domain and points without a case are found on the way. Those may be of points that only
 * that guess asked for, so when there are some the analysis is made again with a closer one: where all that it reads
 * can be, too. */
#include "passes.h"
#include "poly.h"

#include <stdlib.h>
#include <string.h>

enum { PATIENCE = 4 }; /* rounds before a growing set is widened, and of narrowing what can be */

struct analysis {
  rt_graph *g;
  isl_ctx *ctx;
  isl_set *context;
  isl_set **need;     /* per node, NULL: nothing */
  isl_set **possible; /* per node, NULL: its domain */
  int refused;        /* bool: some bounds were */
  rt_poly_known known;
  int *growths;
  char *queued;
  char *same;                   /* per node: has the condition of an earlier one */
  int *queue, head, tail, room; /* ring */
};

static isl_set *domain(const struct analysis *a, const atoll_rt *x) {
  return isl_set_intersect_params(rt_poly_known_domain(&a->known, x), isl_set_copy(a->context));
}

static isl_map *access(const struct analysis *a, const atoll_rt *x, int k) {
  return rt_poly_known_access(&a->known, x, k);
}

/* Points of `from` without a case. */
static isl_set *uncovered(const struct analysis *a, const atoll_rt *x, isl_set *from) {
  isl_set *rest = isl_set_copy(from);
  for (int k = 0; k < x->inputs; k++) {
    if (!x->in[k].cond)
      return isl_set_subtract(rest, isl_set_copy(from));
    rest = isl_set_subtract(rest, isl_map_domain(access(a, x, k)));
  }
  return rest;
}

/* Where x can be, as far as it was looked for. */
static isl_set *limits(const struct analysis *a, const atoll_rt *x) {
  return a->possible[x->id] ? isl_set_copy(a->possible[x->id]) : domain(a, x);
}

/* Where everything that x reads exists. */
static isl_set *possible(const struct analysis *a, const atoll_rt *x) {
  isl_set *all = limits(a, x);
  for (int k = 0; k < x->inputs; k++) {
    isl_set *src = limits(a, rt_src(a->g, &x->in[k]));
    all = isl_set_subtract(all, isl_map_domain(isl_map_subtract_range(access(a, x, k), src)));
  }
  if (x->op == RT_MERGE) {
    isl_set *bare = uncovered(a, x, all);
    all = isl_set_subtract(all, bare);
  }
  return all;
}

/* Narrows what can be by what that reads, round by round. Any number of rounds will do: what is left is a guess. */
static void find_possible(struct analysis *a) {
  for (int round = 0, changed = 1; changed && round < PATIENCE; round++) {
    changed = 0;
    for (int i = 0; i < a->g->nodes; i++) {
      const atoll_rt *x = a->g->node[i];
      if (!x || !x->inputs || x->op == RT_GRAD)
        continue;
      isl_set *before = limits(a, x), *now = rt_poly_coalesce(possible(a, x));
      changed |= isl_set_is_equal(before, now) != isl_bool_true;
      isl_set_free(a->possible[i]);
      a->possible[i] = now;
      isl_set_free(before);
    }
  }
}

static void enqueue(struct analysis *a, int id) {
  if (a->queued[id])
    return;
  a->queued[id] = 1;
  a->queue[a->tail] = id;
  a->tail = (a->tail + 1) % a->room;
}

/* Adds points (taken) to what is needed of x. */
static atoll_err need(struct analysis *a, const atoll_rt *x, isl_set *more) {
  isl_set *had = a->need[x->id];
  if (!more)
    return rt_poly_error(a->ctx, "domains");
  isl_bool known = had ? isl_set_is_subset(more, had) : isl_set_is_empty(more);
  if (known == isl_bool_error) {
    isl_set_free(more);
    return rt_poly_error(a->ctx, "domains");
  }
  if (known) {
    isl_set_free(more);
    return ATOLL_OK;
  }
  if (had)
    more = isl_set_union(more, had);
  int recurs = x->op == RT_MERGE || x->accumulates;
  if (++a->growths[x->id] == PATIENCE && recurs)
    more = isl_set_union(more, possible(a, x));
  a->need[x->id] = rt_poly_coalesce(more);
  enqueue(a, x->id);
  return ATOLL_OK;
}

/* Parameters for which `wrong` (taken) holds a point are not valid. When that leaves none it is a mistake, which `text`
 * tells; else runs with such bounds will be refused with it. */
static atoll_err forbid(struct analysis *a, isl_set *wrong, const char *text) {
  rt_graph *g = a->g;
  isl_bool none = isl_set_is_empty(wrong);
  isl_set *bad = isl_set_params(wrong);
  if (none == isl_bool_true) {
    isl_set_free(bad);
    return ATOLL_OK;
  }
  a->refused = 1;
  a->context = rt_poly_coalesce(isl_set_subtract(a->context, bad));
  isl_bool hopeless = isl_set_is_empty(a->context);
  if (none == isl_bool_error || hopeless == isl_bool_error)
    return rt_poly_error(a->ctx, "domains");
  if (hopeless)
    return atoll_fail(ATOLL_USAGE, "%s", text);
  if (!g->valid_text)
    g->valid_text = rt_copy_text(g, text);
  return rt_poly_parameter_condition(g, a->context, &g->valid);
}

/* Points of the source that `points` (taken) of x read at themselves. */
static isl_set *same_points(const atoll_rt *x, const atoll_rt *src, isl_set *points) {
  char name[16];
  int at = __builtin_popcount(x->dims);
  points = isl_set_reset_tuple_id(points);
  for (int d = x->g->dims - 1; d >= 0; d--) {
    if (!rt_has(x, d))
      continue;
    at--;
    if (!rt_has(src, d))
      points = isl_set_project_out(points, isl_dim_set, (unsigned)at, 1);
  }
  (void)snprintf(name, sizeof name, "S%d", src->id);
  return isl_set_set_tuple_name(points, name);
}

static atoll_err propagate(struct analysis *a, const atoll_rt *x, int k) {
  const rt_edge *e = &x->in[k];
  const atoll_rt *src = rt_src(a->g, e);
  char label[96], other[96], at[200], text[512];
  isl_set *points = isl_set_intersect_params(isl_set_copy(a->need[x->id]), isl_set_copy(a->context));
  int same = x->op != RT_MERGE && rt_is_identity(a->g, e);
  isl_set *read = same ? same_points(x, src, points) : isl_set_apply(points, access(a, x, k));
  if (same && !src->where)
    return need(a, src, read);
  isl_set *outside = isl_set_subtract(isl_set_copy(read), domain(a, src));
  (void)snprintf(text, sizeof text, "index '%s' of %s:%s is outside of its domain, read by %s", e->text ? e->text : "",
                 rt_label(src, other, sizeof other), rt_poly_sample(src, outside, at, sizeof at),
                 rt_label(x, label, sizeof label));
  atoll_err err = forbid(a, outside, text);
  if (err == ATOLL_OK)
    return need(a, src, isl_set_intersect_params(read, isl_set_copy(a->context)));
  isl_set_free(read);
  return err;
}

static atoll_err check_cover(struct analysis *a, const atoll_rt *x) {
  char label[96], at[200], text[400];
  isl_set *rest = isl_set_intersect_params(uncovered(a, x, a->need[x->id]), isl_set_copy(a->context));
  (void)snprintf(text, sizeof text, "no case defines %s at%s", rt_label(x, label, sizeof label),
                 rt_poly_sample(x, rest, at, sizeof at));
  return forbid(a, rest, text);
}

/* The oracle refuses slices that end before they begin, so nobody else takes them for empty ones. */
static atoll_err check_slices(struct analysis *a, const atoll_rt *x, int k) {
  rt_graph *g = a->g;
  const rt_edge *e = &x->in[k];
  const atoll_sym *wrong = NULL;
  char label[96], at[200], text[512];
  int64_t extent;
  for (int d = 0; e->text && d < g->dims; d++) {
    const rt_item *item = &e->item[d];
    if (!rt_has(rt_src(g, e), d) || !item->hi ||
        (rt_is_const(atoll_sym_sub(g->syms, item->hi, item->lo), &extent) && extent >= 0))
      continue;
    const atoll_sym *ends = atoll_sym_binary(g->syms, ATOLL_SYM_LT, item->hi, item->lo);
    wrong = wrong ? atoll_sym_binary(g->syms, ATOLL_SYM_OR, wrong, ends) : ends;
  }
  if (!wrong)
    return ATOLL_OK;
  isl_set *points = isl_set_intersect(rt_poly_where(a->ctx, x, wrong), isl_set_copy(a->need[x->id]));
  points = isl_set_intersect_params(points, isl_set_copy(a->context));
  (void)snprintf(text, sizeof text, "index '%s' of %s: a slice ends before it begins at%s", e->text,
                 rt_label(rt_src(g, e), label, sizeof label), rt_poly_sample(x, points, at, sizeof at));
  return forbid(a, points, text);
}

static atoll_err solve(struct analysis *a) {
  rt_graph *g = a->g;
  for (int i = 0; i < g->nodes; i++)
    if (g->node[i] && g->node[i]->op == RT_SINK)
      ATOLL_TRY(need(a, g->node[i], domain(a, g->node[i])));
  for (int i = 0; i < g->requests; i++)
    ATOLL_TRY(need(a, g->node[g->request[i].loss], domain(a, g->node[g->request[i].loss])));
  while (a->head != a->tail) {
    const atoll_rt *x = g->node[a->queue[a->head]];
    a->head = (a->head + 1) % a->room;
    a->queued[x->id] = 0;
    if (x->op == RT_MERGE)
      ATOLL_TRY(check_cover(a, x));
    for (int k = 0; x->op != RT_GRAD && k < x->inputs; k++)
      ATOLL_TRY(propagate(a, x, k));
  }
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && a->need[i] && k < g->node[i]->inputs; k++)
      ATOLL_TRY(check_slices(a, g->node[i], k));
  return ATOLL_OK;
}

static int is_leaf(const rt_graph *g, int id) {
  for (int i = 0; i < g->requests; i++)
    for (int k = 0; k < g->request[i].n; k++)
      if (g->request[i].leaf[k] == id)
        return 1;
  return 0;
}

/* Cases that no needed point uses go. Other edges to what is not needed read nothing (empty slices) or are there for
 * the shape; such sources stay, without a domain. */
static void settle_edges(struct analysis *a, atoll_rt *x) {
  rt_graph *g = a->g;
  int kept = 0;
  for (int k = 0; k < x->inputs; k++) {
    atoll_rt *src = rt_src(g, &x->in[k]);
    int needed = a->need[src->id] != NULL;
    if (x->op == RT_MERGE && !needed)
      continue;
    if (!needed && !is_leaf(g, src->id)) {
      src->inputs = 0;
      src->where = atoll_sym_bool(g->syms, 0);
      a->growths[src->id] = -1; /* marks it as kept */
    }
    x->in[kept++] = x->in[k];
  }
  x->inputs = kept;
}

/* Without the name of its node. */
static isl_set *anonymous(const isl_set *set) {
  isl_set *copy = isl_set_copy((isl_set *)set);
  return isl_set_has_tuple_name(copy) == isl_bool_true ? isl_set_reset_tuple_id(copy) : copy;
}

/* Whether an earlier node needs the same points. Then both get one condition: it is only made once, and nodes whose
 * domains are known to be equal can be fused. */
static int has_domain_of_another(struct analysis *a, atoll_rt *x) {
  isl_set *mine = anonymous(a->need[x->id]);
  int found = 0;
  for (int i = 0; i < x->id && !found; i++) {
    const atoll_rt *y = a->g->node[i];
    if (!y || !a->need[i] || y->dims != x->dims || a->same[i])
      continue;
    isl_set *other = anonymous(a->need[i]);
    found = isl_set_is_equal(mine, other) == isl_bool_true;
    isl_set_free(other);
    if (found)
      x->where = y->where;
  }
  isl_set_free(mine);
  a->same[x->id] = (char)found;
  return found;
}

static atoll_err conclude(struct analysis *a) {
  rt_graph *g = a->g;
  for (int i = 0; i < g->nodes; i++)
    if (g->node[i] && a->need[i])
      settle_edges(a, g->node[i]);
  for (int i = 0; i < g->nodes; i++) {
    atoll_rt *x = g->node[i];
    if (!x || (!a->need[i] && a->growths[i] < 0))
      continue;
    if (!a->need[i]) {
      x->inputs = 0; /* a leaf is kept for its shape alone */
      if (!is_leaf(g, i))
        g->node[i] = NULL;
      continue;
    }
    if (has_domain_of_another(a, x))
      continue;
    isl_set *box = isl_set_intersect_params(rt_poly_box(a->ctx, x), isl_set_copy(a->context));
    atoll_err err = rt_poly_condition(x, a->need[i], box, &x->where);
    isl_set_free(box);
    ATOLL_TRY(err);
  }
  return ATOLL_OK;
}

static int allocate(struct analysis *a) {
  size_t n = (size_t)a->room;
  a->need = calloc(n, sizeof(isl_set *));
  a->possible = calloc(n, sizeof(isl_set *));
  a->growths = calloc(n, sizeof *a->growths);
  a->queued = calloc(n, 1);
  a->same = calloc(n, 1);
  a->queue = calloc(n, sizeof *a->queue);
  a->ctx = rt_poly_create();
  a->context = a->ctx ? rt_poly_context(a->ctx, a->g) : NULL;
  return a->need && a->possible && a->growths && a->queued && a->same && a->queue && a->context &&
         rt_poly_known_create(a->ctx, a->g, &a->known) == ATOLL_OK;
}

static void release(struct analysis *a) {
  for (int i = 0; a->need && i < a->room; i++)
    isl_set_free(a->need[i]);
  for (int i = 0; a->possible && i < a->room; i++)
    isl_set_free(a->possible[i]);
  rt_poly_known_destroy(&a->known);
  isl_set_free(a->context);
  isl_ctx_free(a->ctx);
  free(a->need);
  free(a->possible);
  free(a->growths);
  free(a->queued);
  free(a->same);
  free(a->queue);
}

/* *refused: whether an index or a case was missed, for some bounds or for all. */
static atoll_err attempt(rt_graph *g, int closer, int *refused) {
  struct analysis a = {.g = g, .room = g->nodes + 1};
  atoll_err err = allocate(&a) ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "domains: no memory");
  if (err == ATOLL_OK && closer)
    find_possible(&a);
  if (err == ATOLL_OK)
    err = solve(&a);
  *refused = a.refused;
  if (err == ATOLL_OK && (closer || !a.refused))
    err = conclude(&a);
  release(&a);
  return err;
}

atoll_err rt_pass_domains(rt_graph *g) {
  const atoll_sym *valid = g->valid;
  const char *text = g->valid_text;
  int refused;
  atoll_err err = attempt(g, 0, &refused);
  if (!refused)
    return err;
  atoll_err_clear();
  g->valid = valid;
  g->valid_text = text;
  return attempt(g, 1, &refused);
}

/* Fusion: nodes of one domain become one statement, which computes them one after the other at each point.
 *
 * Nodes join the group of a neighbour (a source read at the same point, or another reader of that source) unless a path
 * between them leads through a node outside of the group at the same point: the group would need what needs it. Edges
 * that never connect equal points (x[t-1]) do not count. That is enough almost always; where groups leave no order at
 * all, scheduling is repeated without them. */
#include "passes.h"
#include "poly.h"

#include <stdlib.h>
#include <string.h>

struct fusion {
  rt_graph *g;
  isl_ctx *ctx;
  char **same; /* [node][input]: may read the point at which the node is computed */
  char *head;  /* per node: others have joined it */
  int *next;   /* of the same group, from its head on; -1: none */
  int *mark;   /* per node, for searches */
  int search;
  int *order; /* nodes, sources at the same point before their readers */
  int placed; /* of these, so far */
};

static int fusible(const atoll_rt *x) {
  switch (x->op) {
  case RT_INPUT:
  case RT_CONST:
  case RT_CALL:
  case RT_SINK:
  case RT_MERGE:
    return 0;
  default:
    return 1;
  }
}

/* Whether an edge can connect points that agree in all dimensions of both ends. */
static int may_be_same(isl_ctx *ctx, const atoll_rt *x, int k) {
  const rt_graph *g = x->g;
  const rt_edge *e = &x->in[k];
  const atoll_rt *src = rt_src(g, e);
  if (rt_is_identity(g, e))
    return 1;
  isl_map *access = isl_map_intersect_range(rt_poly_access(ctx, x, k), rt_poly_domain(ctx, src));
  int in = 0, out = 0;
  for (int d = 0; d < g->dims; d++) {
    if (rt_has(x, d) && rt_has(src, d))
      access = isl_map_equate(access, isl_dim_in, in, isl_dim_out, out);
    in += rt_has(x, d);
    out += rt_has(src, d);
  }
  int empty = isl_map_is_empty(access) == isl_bool_true;
  isl_map_free(access);
  return !empty;
}

/* Whether the group of x, or what it reads at the same point, is this one, by a path that leaves the group on the way.
 * Others on the way are computed as a whole, too. */
static int reaches(struct fusion *a, const atoll_rt *x, int head) {
  if (rt_head(x) == head)
    return 1;
  if (a->mark[rt_head(x)] == a->search)
    return 0;
  a->mark[rt_head(x)] = a->search;
  for (int i = rt_head(x); i >= 0; i = a->next[i]) {
    const atoll_rt *y = a->g->node[i];
    for (int k = 0; k < y->inputs; k++)
      if (a->same[i][k] && rt_head(rt_src(a->g, &y->in[k])) != rt_head(x) && reaches(a, rt_src(a->g, &y->in[k]), head))
        return 1;
  }
  return 0;
}

/* x may join when each of its sources is in the group and read at this very point, or does not lead back to the group.
 */
static int may_join(struct fusion *a, const atoll_rt *x, int head) {
  const rt_graph *g = a->g;
  a->search++;
  for (int k = 0; k < x->inputs; k++) {
    const atoll_rt *src = rt_src(g, &x->in[k]);
    if (rt_head(src) == head && rt_is_identity(g, &x->in[k]))
      continue;
    if (a->same[x->id][k] && reaches(a, src, head))
      return 0;
  }
  return 1;
}

/* And nothing in the group may read x already, which can be when edges that may connect equal points go in circles. */
static int is_read_by(struct fusion *a, const atoll_rt *x, int head) {
  a->search++;
  for (int i = head; i >= 0; i = a->next[i]) {
    const atoll_rt *y = a->g->node[i];
    for (int k = 0; k < y->inputs; k++)
      if (a->same[i][k] && rt_head(rt_src(a->g, &y->in[k])) != head && reaches(a, rt_src(a->g, &y->in[k]), x->id))
        return 1;
  }
  return 0;
}

static int try_join(struct fusion *a, atoll_rt *x, const atoll_rt *y) {
  int head = rt_head(y);
  if (y == x || !fusible(y) || y->dims != x->dims || y->where != x->where || head == x->id)
    return 0;
  if (!may_join(a, x, head) || is_read_by(a, x, head))
    return 0;
  x->group = head + 1;
  a->head[head] = 1;
  a->next[x->id] = a->next[head];
  a->next[head] = x->id;
  return 1;
}

static void place(struct fusion *a, atoll_rt *x) {
  rt_graph *g = a->g;
  for (int k = 0; k < x->inputs; k++)
    if (rt_is_identity(g, &x->in[k]) && try_join(a, x, rt_src(g, &x->in[k])))
      return;
  for (int k = 0; k < x->inputs; k++) {
    if (!rt_is_identity(g, &x->in[k]) || rt_is_free(rt_src(g, &x->in[k])))
      continue;
    for (int i = 0; i < a->placed; i++) {
      const atoll_rt *y = g->node[a->order[i]];
      for (int j = 0; j < y->inputs; j++)
        if (y->in[j].src == x->in[k].src && rt_is_identity(g, &y->in[j]) && try_join(a, x, y))
          return;
    }
  }
}

/* Gradients read nodes that were made after them, so ids are no order. */
static void put_in_order(struct fusion *a, const atoll_rt *x) {
  if (a->mark[x->id])
    return;
  a->mark[x->id] = 1;
  for (int k = 0; k < x->inputs; k++)
    if (a->same[x->id][k])
      put_in_order(a, rt_src(a->g, &x->in[k]));
  a->order[a->placed++] = x->id;
}

/* ---- values that depend on the point alone ---- */

static int depends_on_point_alone(const rt_graph *g, const atoll_rt *x) {
  if (x->op == RT_EVAL)
    return 1;
  if (!rt_is_element(x->op) && x->op != RT_RESHAPE && x->op != RT_EXPAND)
    return 0;
  for (int k = 0; k < x->inputs; k++) {
    const atoll_rt *src = rt_src(g, &x->in[k]);
    if (src->op != RT_CONST && !(rt_is_identity(g, &x->in[k]) && depends_on_point_alone(g, src)))
      return 0;
  }
  return 1;
}

/* The only reader, or one of several that have the same domain; NULL: there are others, or none has more dimensions. */
static const atoll_rt *common_reader(const rt_graph *g, const atoll_rt *x) {
  const atoll_rt *found = NULL;
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      const atoll_rt *y = g->node[i];
      if (y->in[k].src != x->id)
        continue;
      if (!rt_is_identity(g, &y->in[k]) || !fusible(y) ||
          (found && (found->dims != y->dims || found->where != y->where)))
        return NULL;
      found = y;
    }
  return found && found->dims != x->dims && !(x->dims & ~found->dims) ? found : NULL;
}

/* What costs no memory traffic to compute is computed where it is read, rather than kept for all of a reader's points.
 */
static void follow_readers(rt_graph *g) {
  for (int changed = 1; changed;) {
    changed = 0;
    for (int i = g->nodes - 1; i >= 0; i--) {
      atoll_rt *x = g->node[i];
      const atoll_rt *y = x && x->dims && depends_on_point_alone(g, x) ? common_reader(g, x) : NULL;
      if (!y)
        continue;
      x->dims = y->dims;
      x->where = y->where;
      for (int j = 0; j < g->nodes; j++)
        for (int k = 0; g->node[j] && k < g->node[j]->inputs; k++)
          for (int d = 0; d < g->dims && g->node[j]->in[k].src == i; d++)
            if (rt_has(x, d))
              g->node[j]->in[k].item[d] = (rt_item){g->dim[d].var, NULL};
      changed = 1;
    }
  }
}

/* ---- values that can wait ---- */

/* Whether a node of this group reads src at its own point. */
static int reads_here(const struct fusion *a, const atoll_rt *src, int head) {
  for (int i = head; i >= 0; i = a->next[i]) {
    const atoll_rt *y = a->g->node[i];
    for (int k = 0; k < y->inputs; k++)
      if (y->in[k].src == src->id && rt_head(y) == head && rt_is_identity(a->g, &y->in[k]))
        return 1;
  }
  return 0;
}

/* Whether all that reads x is in this group, or waits already (its mark is that of this search). */
static int is_for(const struct fusion *a, const atoll_rt *x, int head) {
  int readers = 0;
  for (int i = 0; i < a->g->nodes; i++)
    for (int k = 0; a->g->node[i] && k < a->g->node[i]->inputs; k++) {
      const atoll_rt *y = a->g->node[i];
      if (y->in[k].src != x->id)
        continue;
      if (!rt_is_identity(a->g, &y->in[k]) || (rt_head(y) != head && a->mark[i] != a->search))
        return 0;
      readers++;
    }
  return readers > 0;
}

/* Marks x, and what is computed for it alone, when all of it can be computed in this group from what the group reads
 * anyhow. */
static int can_wait(struct fusion *a, const atoll_rt *x, int head) {
  const rt_graph *g = a->g;
  const atoll_rt *to = g->node[head];
  if ((!rt_is_element(x->op) && x->op != RT_RESHAPE) || x->dims != to->dims || x->where != to->where ||
      a->head[x->id] || !is_for(a, x, head))
    return 0;
  a->mark[x->id] = a->search;
  for (int k = 0; k < x->inputs; k++) {
    const atoll_rt *src = rt_src(g, &x->in[k]);
    const int there = src->op == RT_CONST || rt_head(src) == head || a->mark[src->id] == a->search;
    if (!rt_is_identity(g, &x->in[k]) || (!there && !reads_here(a, src, head) && !can_wait(a, src, head)))
      return 0;
  }
  return 1;
}

/* A value that only another group reads is computed there, when that group reads the operands at the same point anyhow:
 * of y = tanh(x), which a gradient looks at long after it was made, 1 - y y is not kept besides. */
static void put_off(struct fusion *a) {
  rt_graph *g = a->g;
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      const int head = rt_head(g->node[i]);
      const atoll_rt *x = rt_src(g, &g->node[i]->in[k]);
      if (!a->head[head] || !x->group || rt_head(x) == head)
        continue;
      a->search++;
      if (!can_wait(a, x, head))
        continue;
      for (int j = 0; j < g->nodes; j++)
        if (g->node[j] && a->mark[j] == a->search)
          g->node[j]->group = head + 1;
    }
}

static atoll_err fuse(struct fusion *a) {
  rt_graph *g = a->g;
  follow_readers(g);
  for (int i = 0; i < g->nodes; i++) {
    atoll_rt *x = g->node[i];
    if (!x)
      continue;
    x->group = 0;
    a->next[i] = -1;
    a->same[i] = calloc((size_t)x->inputs + 1, 1);
    if (!a->same[i])
      return atoll_fail(ATOLL_NOMEM, "groups: no memory");
    for (int k = 0; k < x->inputs; k++)
      a->same[i][k] = (char)may_be_same(a->ctx, x, k);
  }
  for (int i = 0; i < g->nodes; i++)
    if (g->node[i])
      put_in_order(a, g->node[i]);
  a->search = 1; /* of mark, this was the first */
  const int n = a->placed;
  for (a->placed = 0; a->placed < n; a->placed++) {
    atoll_rt *x = g->node[a->order[a->placed]];
    if (fusible(x) && !a->head[x->id])
      place(a, x);
  }
  put_off(a);
  return ATOLL_OK;
}

atoll_err rt_pass_groups(rt_graph *g) {
  struct fusion a = {.g = g, .ctx = rt_poly_create()};
  a.same = calloc((size_t)g->nodes + 1, sizeof(char *));
  a.head = calloc((size_t)g->nodes + 1, 1);
  a.next = calloc((size_t)g->nodes + 1, sizeof *a.next);
  a.mark = calloc((size_t)g->nodes + 1, sizeof *a.mark);
  a.order = calloc((size_t)g->nodes + 1, sizeof *a.order);
  atoll_err err = a.ctx && a.same && a.mark && a.head && a.next && a.order
                      ? fuse(&a)
                      : atoll_fail(ATOLL_NOMEM, "groups: no memory");
  for (int i = 0; a.same && i < g->nodes; i++)
    free(a.same[i]);
  free(a.same);
  free(a.head);
  free(a.next);
  free(a.mark);
  free(a.order);
  isl_ctx_free(a.ctx);
  return err;
}

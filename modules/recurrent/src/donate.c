/* Donation: where a statement is followed by the frees of what it has read last, one of these values may give its
 * storage to a result of the statement. The frees stay where they are and give up the value's name only.
 *
 * Every free that follows an execution in the same sequence, or under a condition in it, is looked at. The reader must
 * be done with an element when it writes the result's at that position: it works element by element, as do other
 * members of its group that read the value, unless they are done before (an operation of another kind on the way to the
 * result). What is given as an argument to a function of the user stays as it is. A run that puts either value away
 * does without (rt_is_donated()). */
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "tree.h"

struct donation {
  const rt_graph *g;
  char *busy;           /* per node: gives or takes at the execution at hand */
  char *before, *after; /* the same, before and after a condition */
  char *seen;           /* per node, for searches */
};

static int works_by_element(const atoll_rt *x) { return rt_is_element(x->op) || x->op == RT_IDENT; }

static int same_shape(const rt_graph *g, const atoll_rt *x, const atoll_rt *s) {
  for (int k = 0; k < x->axes; k++)
    if (rt_dims_of(g, x->shape[k]))
      return 0;
  return x->axes == s->axes && memcmp(x->shape, s->shape, (size_t)x->axes * sizeof *x->shape) == 0;
}

static int64_t fixed_count(const atoll_rt *x) {
  int64_t n = 1, extent;
  for (int k = 0; k < x->axes; k++)
    n = rt_is_const(x->shape[k], &extent) ? n * extent : -1;
  return n;
}

static int same_size(const rt_graph *g, const atoll_rt *x, const atoll_rt *s) {
  if (x->dtype != s->dtype || rt_block_of(g, x).size > 1 || rt_block_of(g, s).size > 1)
    return 0;
  return same_shape(g, x, s) || (x->op == RT_RESHAPE && fixed_count(x) >= 0 && fixed_count(x) == fixed_count(s));
}

/* Whether x, of y's group, is computed from y at this point. */
static int leads_to(struct donation *a, const atoll_rt *y, const atoll_rt *x) {
  const rt_graph *g = a->g;
  if (x == y)
    return 1;
  if (a->seen[x->id])
    return 0;
  a->seen[x->id] = 1;
  for (int k = 0; k < x->inputs; k++) {
    const atoll_rt *src = rt_src(g, &x->in[k]);
    if (rt_head(src) == rt_head(y) && rt_is_identity(g, &x->in[k]) && leads_to(a, y, src))
      return 1;
  }
  return 0;
}

/* No member of the group looks at an element of s after x has written that position. */
static int is_read_before(struct donation *a, const atoll_rt *s, const atoll_rt *x) {
  const rt_graph *g = a->g;
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      const atoll_rt *y = g->node[i];
      if (y->in[k].src != s->id || rt_head(y) != rt_head(x))
        continue;
      int in_step = works_by_element(y) && same_shape(g, y, s);
      memset(a->seen, 0, (size_t)g->nodes);
      if (rt_slices(g, &y->in[k]) || (y != x && ((rt_is_map(y->op) && !in_step) || !leads_to(a, y, x))))
        return 0;
    }
  return 1;
}

/* The free is of what was there before the execution. */
static int is_older(const rt_graph *g, const rt_tree *execution, const rt_tree *f) {
  const atoll_rt *s = g->node[f->node];
  int64_t distance;
  if (rt_head(s) != execution->node)
    return 1;
  for (int d = 0; d < g->dims; d++)
    if (rt_has(s, d) && rt_is_const(atoll_sym_sub(g->syms, f->point[d], execution->point[d]), &distance) && distance)
      return 1;
  return 0;
}

/* The result that takes over, or NULL. */
static const atoll_rt *heir(struct donation *a, const rt_tree *execution, const rt_tree *f) {
  const rt_graph *g = a->g;
  const atoll_rt *s = g->node[f->node];
  if (a->busy[s->id] || !is_older(g, execution, f))
    return NULL;
  for (int i = 0; i < g->nodes; i++) {
    const atoll_rt *x = g->node[i];
    if (x && rt_head(x) == execution->node && !a->busy[i] &&
        (works_by_element(x) || x->op == RT_RESHAPE || x->op == RT_MERGE) && rt_is_read_outside(g, x) &&
        same_size(g, x, s) && is_read_before(a, s, x))
      return x;
  }
  return NULL;
}

/* Before child *at of seq, an execution, which moves on. cond: NULL, or when the value is freed. */
static atoll_err add_donation(rt_tree *seq, int *at, const rt_tree *f, const atoll_rt *x, const atoll_sym *cond) {
  rt_tree *t = rt_tree_new(RT_STATEMENT);
  if (!t)
    return atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  t->what = RT_DO_DONATE;
  t->node = f->node;
  t->to = x->id;
  memcpy(t->point, f->point, sizeof t->point);
  if (!cond)
    return rt_tree_insert(seq, (*at)++, t);
  rt_tree *last = *at ? seq->child[*at - 1] : NULL;
  if (last && last->kind == RT_IF && last->children == 1 && last->cond == cond && last->child[0]->kind == RT_SEQ)
    return rt_tree_insert(last->child[0], last->child[0]->children, t);
  rt_tree *branch = rt_tree_new(RT_IF);
  if (!branch) {
    rt_tree_destroy(&t);
    return atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  }
  branch->cond = cond;
  atoll_err err = rt_tree_insert(branch, 0, t);
  if (err == ATOLL_OK)
    return rt_tree_insert(seq, (*at)++, branch);
  rt_tree_destroy(&branch);
  return err;
}

static int is_free(const rt_tree *t) { return t->kind == RT_STATEMENT && t->what == RT_DO_FREE; }

/* What ends the lives of values, or interrupts them. */
static int only_frees(const rt_tree *t) {
  if (t->kind == RT_STATEMENT)
    return t->what == RT_DO_FREE || t->what == RT_DO_OFFLOAD;
  for (int k = 0; k < t->children; k++)
    if (!only_frees(t->child[k]))
      return 0;
  return 1;
}

static atoll_err consider(struct donation *a, rt_tree *seq, int *at, const rt_tree *f, const atoll_sym *cond) {
  const atoll_rt *x = heir(a, seq->child[*at], f);
  if (!x)
    return ATOLL_OK;
  a->busy[x->id] = a->busy[f->node] = 1;
  return add_donation(seq, at, f, x, cond);
}

/* Frees under a condition; of two branches only one happens. */
static atoll_err under_condition(struct donation *a, rt_tree *seq, int *at, const rt_tree *t) {
  const size_t n = (size_t)a->g->nodes;
  memcpy(a->before, a->busy, n);
  memcpy(a->after, a->busy, n);
  for (int b = 0; b < t->children; b++) {
    const atoll_sym *cond = b ? atoll_sym_not(a->g->syms, t->cond) : t->cond;
    memcpy(a->busy, a->before, n);
    for (int k = 0; k < t->child[b]->children; k++)
      if (is_free(t->child[b]->child[k]))
        ATOLL_TRY(consider(a, seq, at, t->child[b]->child[k], cond));
    for (size_t i = 0; i < n; i++)
      a->after[i] |= a->busy[i];
  }
  memcpy(a->busy, a->after, n);
  return ATOLL_OK;
}

/* The execution that is child *at of seq, and the frees behind it. */
static atoll_err after_execution(struct donation *a, rt_tree *seq, int *at) {
  memset(a->busy, 0, (size_t)a->g->nodes);
  for (int back = 1; *at + back < seq->children && only_frees(seq->child[*at + back]); back++) {
    const rt_tree *t = seq->child[*at + back];
    if (is_free(t))
      ATOLL_TRY(consider(a, seq, at, t, NULL));
    else if (t->kind == RT_IF)
      ATOLL_TRY(under_condition(a, seq, at, t));
  }
  return ATOLL_OK;
}

static atoll_err visit(struct donation *a, rt_tree *t) {
  for (int k = 0; k < t->children; k++) {
    rt_tree *child = t->child[k];
    if (child->kind != RT_STATEMENT)
      ATOLL_TRY(visit(a, child));
    else if (child->what == RT_DO_EXECUTE && t->kind == RT_SEQ)
      ATOLL_TRY(after_execution(a, t, &k));
  }
  return ATOLL_OK;
}

atoll_err rt_tree_donate(const rt_graph *g, rt_tree *tree) {
  const size_t n = (size_t)g->nodes + 1;
  struct donation a = {g, calloc(n, 1), calloc(n, 1), calloc(n, 1), calloc(n, 1)};
  atoll_err err =
      a.busy && a.before && a.after && a.seen ? visit(&a, tree) : atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  free(a.busy);
  free(a.before);
  free(a.after);
  free(a.seen);
  return err;
}

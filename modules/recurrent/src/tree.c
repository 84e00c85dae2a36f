#include "tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

rt_tree *rt_tree_new(rt_tree_kind kind) {
  rt_tree *t = calloc(1, sizeof *t);
  if (t)
    t->kind = kind;
  return t;
}

atoll_err rt_tree_insert(rt_tree *t, int k, rt_tree *child) {
  if (child && t->children == t->room) {
    int room = t->room ? 2 * t->room : 2;
    rt_tree **more = realloc(t->child, (size_t)room * sizeof(rt_tree *));
    if (more) {
      t->child = more;
      t->room = room;
    }
  }
  if (!child || t->children == t->room) {
    rt_tree_destroy(&child);
    return atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  }
  memmove(t->child + k + 1, t->child + k, (size_t)(t->children - k) * sizeof(rt_tree *));
  t->child[k] = child;
  t->children++;
  return ATOLL_OK;
}

void rt_tree_destroy(rt_tree **address) {
  rt_tree *t = *address;
  if (!t)
    return;
  for (int k = 0; k < t->children; k++)
    rt_tree_destroy(&t->child[k]);
  free(t->child);
  free(t);
  *address = NULL;
}

/* ---- text ---- */

static void print_sym(const atoll_sym *e, FILE *out) {
  char text[512];
  (void)atoll_sym_print(e, text, sizeof text);
  fputs(text, out);
}

static void print(const rt_graph *g, const rt_tree *t, int indent, FILE *out) {
  static const char *const what[] = {
#define RT_STATEMENT_TEXT(name, text) text,
      RT_STATEMENT_LIST(RT_STATEMENT_TEXT)
#undef RT_STATEMENT_TEXT
  };
  char label[96];
  if (t->kind == RT_FOR) {
    fprintf(out, "%*sfor _c%d = ", indent, "", t->depth);
    print_sym(t->first, out);
    fprintf(out, " by %" PRId64 " while ", t->step);
    print_sym(t->cond, out);
    fputc('\n', out);
  } else if (t->kind == RT_IF) {
    fprintf(out, "%*sif ", indent, "");
    print_sym(t->cond, out);
    fputc('\n', out);
  } else if (t->kind == RT_STATEMENT) {
    const atoll_rt *x = g->node[t->node];
    int n = 0;
    fprintf(out, "%*s%s %s [", indent, "", what[t->what], rt_label(x, label, sizeof label));
    for (int d = 0; d < g->dims; d++)
      if (rt_has(x, d)) {
        fprintf(out, "%s%s=", n++ ? ", " : "", g->dim[d].name);
        print_sym(t->point[d], out);
      }
    fputc(']', out);
    if (t->what == RT_DO_DONATE)
      fprintf(out, " to %s", rt_label(g->node[t->to], label, sizeof label));
    fputc('\n', out);
  }
  for (int k = 0; k < t->children; k++) {
    if (t->kind == RT_IF && k == 1)
      fprintf(out, "%*selse\n", indent, "");
    print(g, t->child[k], t->kind == RT_SEQ ? indent : indent + 2, out);
  }
}

void rt_tree_print(const rt_graph *g, const rt_tree *t, FILE *out) { print(g, t, 0, out); }

/* ---- walking ---- */

static atoll_err walk_for(const rt_graph *g, const rt_tree *t, rt_env *env, rt_tree_visit f, void *arg) {
  int64_t *v = &env->loop[t->depth], holds;
  ATOLL_TRY(rt_eval(g, t->first, env, v));
  for (;; *v += t->step) {
    ATOLL_TRY(rt_eval(g, t->cond, env, &holds));
    if (!holds)
      return ATOLL_OK;
    int64_t keep = *v;
    ATOLL_TRY(rt_tree_walk(g, t->child[0], env, f, arg));
    *v = keep;
  }
}

atoll_err rt_tree_walk(const rt_graph *g, const rt_tree *t, rt_env *env, rt_tree_visit f, void *arg) {
  int64_t point[RT_DIMS] = {0}, holds;
  switch (t->kind) {
  case RT_SEQ:
    for (int k = 0; k < t->children; k++)
      ATOLL_TRY(rt_tree_walk(g, t->child[k], env, f, arg));
    return ATOLL_OK;
  case RT_FOR:
    return walk_for(g, t, env, f, arg);
  case RT_IF:
    ATOLL_TRY(rt_eval(g, t->cond, env, &holds));
    if (holds)
      return rt_tree_walk(g, t->child[0], env, f, arg);
    return t->children > 1 ? rt_tree_walk(g, t->child[1], env, f, arg) : ATOLL_OK;
  default:
    for (int d = 0; d < g->dims; d++)
      if (rt_has(g->node[t->node], d))
        ATOLL_TRY(rt_eval(g, t->point[d], env, &point[d]));
    return f(arg, t, g->node[t->node], point);
  }
}

/* ---- groups ---- */

static int in_group(const rt_graph *g, int id, int head) { return g->node[id] && rt_head(g->node[id]) == head; }

static int visit_member(const rt_graph *g, int id, int head, char *seen, int *list, int n) {
  if (seen[id])
    return n;
  seen[id] = 1;
  for (int k = 0; k < g->node[id]->inputs; k++) {
    const rt_edge *e = &g->node[id]->in[k];
    if (in_group(g, e->src, head) && rt_is_identity(g, e))
      n = visit_member(g, e->src, head, seen, list, n);
  }
  list[n] = id;
  return n + 1;
}

/* 1 when something outside of its group reads the value, or the same group at another point. */
int rt_is_read_outside(const rt_graph *g, const atoll_rt *x) {
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      const rt_edge *e = &g->node[i]->in[k];
      if (e->src == x->id && (rt_head(g->node[i]) != rt_head(x) || !rt_is_identity(g, e)))
        return 1;
    }
  return 0;
}

void rt_members_destroy(rt_members *m) {
  free(m->first);
  free(m->count);
  free(m->list);
  free(m->kept);
  memset(m, 0, sizeof *m);
}

atoll_err rt_members_create(const rt_graph *g, rt_members *out) {
  size_t n = (size_t)g->nodes + 1;
  rt_members m = {calloc(n, sizeof(int)), calloc(n, sizeof(int)), calloc(n, sizeof(int)), calloc(n, 1)};
  char *seen = calloc(n, 1);
  int used = 0;
  if (!m.first || !m.count || !m.list || !m.kept || !seen) {
    free(seen);
    rt_members_destroy(&m);
    return atoll_fail(ATOLL_NOMEM, "recurrent groups: no memory");
  }
  for (int i = 0; i < g->nodes; i++) {
    if (!g->node[i])
      continue;
    m.kept[i] = (char)(g->node[i]->op != RT_SINK && rt_is_read_outside(g, g->node[i]));
    if (rt_head(g->node[i]) != i)
      continue;
    m.first[i] = used;
    for (int k = 0; k < g->nodes; k++)
      if (in_group(g, k, i))
        used = visit_member(g, k, i, seen, m.list, used);
    m.count[i] = used - m.first[i];
  }
  free(seen);
  *out = m;
  return ATOLL_OK;
}

/* ---- allocations ---- */

/* Before child *at of seq, an execution, which moves on. */
static atoll_err allocate(const rt_members *m, rt_tree *seq, int *at) {
  const rt_tree *execution = seq->child[*at];
  for (int i = 0; i < m->count[execution->node]; i++) {
    const int k = m->list[m->first[execution->node] + i];
    if (!m->kept[k])
      continue;
    rt_tree *t = rt_tree_new(RT_STATEMENT);
    if (!t)
      return atoll_fail(ATOLL_NOMEM, "schedule: no memory");
    t->what = RT_DO_ALLOCATE;
    t->node = k;
    memcpy(t->point, execution->point, sizeof t->point);
    ATOLL_TRY(rt_tree_insert(seq, (*at)++, t));
  }
  return ATOLL_OK;
}

static atoll_err allocate_all(const rt_members *m, rt_tree *t) {
  for (int k = 0; k < t->children; k++) {
    rt_tree *child = t->child[k];
    if (child->kind != RT_STATEMENT)
      ATOLL_TRY(allocate_all(m, child));
    else if (child->what == RT_DO_EXECUTE || child->what == RT_DO_SEND)
      ATOLL_TRY(allocate(m, t, &k));
  }
  return ATOLL_OK;
}

atoll_err rt_tree_allocate(const rt_graph *g, rt_tree *tree) {
  rt_members m;
  ATOLL_TRY(rt_members_create(g, &m));
  atoll_err err = allocate_all(&m, tree);
  rt_members_destroy(&m);
  return err;
}

/* ---- blocks ---- */

static int is_multiple(const atoll_sym *e, int64_t size) {
  int64_t v;
  if (rt_is_const(e, &v))
    return v % size == 0;
  if (atoll_sym_op_of(e) == ATOLL_SYM_MUL)
    return rt_is_const(atoll_sym_arg(e, 0), &v) && v % size == 0;
  int all = atoll_sym_op_of(e) == ATOLL_SYM_ADD;
  for (int i = 0; all && i < atoll_sym_arity(e); i++)
    all = is_multiple(atoll_sym_arg(e, i), size);
  return all;
}

/* The block size that a slice [lo, hi) tells: lo is, or is at least, size * k, and hi is, or is at most, size * (k +
 * 1); 1: none. */
static int64_t told_size(const rt_graph *g, const atoll_sym *lo, const atoll_sym *hi) {
  int los = atoll_sym_op_of(lo) == ATOLL_SYM_MAX ? atoll_sym_arity(lo) : 1;
  int his = atoll_sym_op_of(hi) == ATOLL_SYM_MIN ? atoll_sym_arity(hi) : 1;
  for (int i = 0; i < los; i++) {
    const atoll_sym *from = los > 1 ? atoll_sym_arg(lo, i) : lo;
    int64_t size;
    for (int k = 0; k < his; k++) {
      const atoll_sym *to = his > 1 ? atoll_sym_arg(hi, k) : hi;
      if (rt_is_const(atoll_sym_sub(g->syms, to, from), &size) && size > 1 && is_multiple(from, size))
        return size;
    }
  }
  return 1;
}

int rt_reads_one_block(const rt_graph *g, const rt_edge *e, const rt_block *b) {
  return b->size > 1 && rt_slices(g, e) == 1 && e->item[b->dim].hi &&
         told_size(g, e->item[b->dim].lo, e->item[b->dim].hi) == b->size;
}

rt_block rt_block_of(const rt_graph *g, const atoll_rt *x) {
  const rt_block none = {-1, 1};
  if (rt_is_free(x))
    return none;
  for (int k = 0; k < x->axes; k++)
    if (rt_dims_of(g, x->shape[k]))
      return none;
  int sliced = -1;
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      const rt_edge *e = &g->node[i]->in[k];
      if (e->src != x->id || rt_slices(g, e) != 1)
        continue;
      for (int d = 0; d < g->dims; d++)
        if (rt_has(x, d) && e->item[d].hi) {
          int64_t size = told_size(g, e->item[d].lo, e->item[d].hi);
          if (size > 1)
            return (rt_block){d, size};
          sliced = d;
        }
    }
  return g->block_size > 1 && sliced >= 0 ? (rt_block){sliced, g->block_size} : none;
}

void rt_blocks_destroy(rt_blocks *b) {
  for (int i = 0; b->held && i < b->g->nodes; i++)
    free(b->held[i]);
  free(b->held);
  free(b->block);
  memset(b, 0, sizeof *b);
}

atoll_err rt_blocks_create(const rt_graph *g, rt_blocks *out) {
  const size_t n = (size_t)g->nodes + 1;
  rt_blocks b = {g, calloc(n, sizeof *b.block), calloc(n, sizeof *b.held)};
  if (!b.block || !b.held) {
    rt_blocks_destroy(&b);
    return atoll_fail(ATOLL_NOMEM, "recurrent memory: no memory");
  }
  for (int i = 0; i < g->nodes; i++)
    b.block[i] = g->node[i] ? rt_block_of(g, g->node[i]) : (rt_block){-1, 1};
  *out = b;
  return ATOLL_OK;
}

atoll_err rt_blocks_count(rt_blocks *b, const atoll_rt *x, const int64_t *point, const int64_t *bound, int sign,
                          int *changes) {
  const rt_block *own = &b->block[x->id];
  int64_t at = 0, n = 1;
  *changes = 1;
  if (own->size == 1)
    return ATOLL_OK;
  for (int d = 0; d < b->g->dims; d++) {
    if (!rt_has(x, d))
      continue;
    int64_t size = d == own->dim ? own->size : 1, extent = (bound[d] + size - 1) / size;
    at = at * extent + point[d] / size;
    n *= extent;
  }
  if (!b->held[x->id] && !(b->held[x->id] = calloc((size_t)n, sizeof(int))))
    return atoll_fail(ATOLL_NOMEM, "recurrent memory: no memory");
  int *held = b->held[x->id] + at;
  *held += sign;
  *changes = *held == (sign > 0);
  return ATOLL_OK;
}

/* ---- execution and memory ---- */

struct execution {
  rt_interp *it;
  const rt_graph *g;
  const char *away;
  rt_members m;
};

/* Temporaries of a group go when it is done. */
static atoll_err execute_group(const struct execution *a, int head, const int64_t *point) {
  const int *member = a->m.list + a->m.first[head], n = a->m.count[head];
  for (int i = 0; i < n; i++)
    ATOLL_TRY(rt_interp_execute(a->it, a->g->node[member[i]], point));
  for (int i = 0; i < n; i++) {
    const atoll_rt *x = a->g->node[member[i]];
    if (x->op != RT_SINK && !a->m.kept[x->id])
      ATOLL_TRY(rt_interp_free(a->it, x, point));
  }
  return ATOLL_OK;
}

static atoll_err execute(void *arg, const rt_tree *t, const atoll_rt *x, const int64_t *point) {
  const struct execution *a = arg;
  switch (t->what) {
  case RT_DO_ALLOCATE: /* the executor's values come with memory of their own */
    return ATOLL_OK;
  case RT_DO_FREE:
    return rt_interp_free(a->it, x, point);
  case RT_DO_DONATE:
    return rt_is_donated(a->away, x->id, t->to) ? rt_interp_donate(a->it, x, point, a->g->node[t->to]) : ATOLL_OK;
  case RT_DO_SEND:
    return rt_interp_send(a->it, x, point);
  case RT_DO_RECEIVE:
    return rt_interp_receive(a->it, x, point);
  case RT_DO_OFFLOAD:
    return a->away && a->away[x->id] ? rt_interp_offload(a->it, x, point) : ATOLL_OK;
  case RT_DO_FETCH:
    return a->away && a->away[x->id] ? rt_interp_fetch(a->it, x, point) : ATOLL_OK;
  default:
    return execute_group(a, x->id, point);
  }
}

atoll_err rt_tree_execute(rt_interp *it, const rt_graph *g, const rt_tree *tree, const char *away) {
  struct execution a = {.it = it, .g = g, .away = away};
  rt_env env = {{0}, {0}, {0}, {0}};
  memcpy(env.bound, rt_interp_bounds(it), sizeof env.bound);
  rt_blocks blocks = {.g = g};
  ATOLL_TRY(rt_members_create(g, &a.m));
  atoll_err err = rt_blocks_create(g, &blocks);
  rt_interp_count(it, &a.m, &blocks);
  if (err == ATOLL_OK)
    err = rt_tree_walk(g, tree, &env, execute, &a);
  rt_interp_count(it, NULL, NULL);
  rt_blocks_destroy(&blocks);
  rt_members_destroy(&a.m);
  return err;
}

struct account {
  const rt_graph *g;
  rt_env env;
  rt_members m;
  rt_blocks blocks;
  char *gives, *takes; /* per node: a donation is under way from it, to it */
  const char *away;    /* NULL: nothing is */
  int64_t now, peak;
  int64_t *held, *at_peak; /* per node: bytes now, and when the peak was */
};

static atoll_err count(struct account *a, const atoll_rt *x, const int64_t *point, int sign) {
  int64_t bytes = (int64_t)atoll_dtype_bytes(x->dtype), extent;
  if (!a->m.kept[x->id])
    return ATOLL_OK;
  memcpy(a->env.dim, point, sizeof a->env.dim);
  for (int k = 0; k < x->axes; k++) {
    ATOLL_TRY(rt_eval(a->g, x->shape[k], &a->env, &extent));
    bytes *= extent;
  }
  int changes;
  ATOLL_TRY(rt_blocks_count(&a->blocks, x, point, a->env.bound, sign, &changes));
  if (!changes)
    return ATOLL_OK;
  bytes *= a->blocks.block[x->id].size;
  a->now += sign * bytes;
  a->held[x->id] += sign * bytes;
  if (a->now > a->peak) {
    a->peak = a->now;
    memcpy(a->at_peak, a->held, (size_t)a->g->nodes * sizeof *a->held);
  }
  return ATOLL_OK;
}

static int passed(char *mark) {
  int was = *mark;
  *mark = 0;
  return was;
}

static atoll_err account(void *arg, const rt_tree *t, const atoll_rt *x, const int64_t *point) {
  struct account *a = arg;
  if (t->what == RT_DO_RECEIVE)
    return ATOLL_OK;
  if (t->what == RT_DO_OFFLOAD || t->what == RT_DO_FETCH)
    return a->away && a->away[x->id] ? count(a, x, point, t->what == RT_DO_FETCH ? 1 : -1) : ATOLL_OK;
  if (t->what == RT_DO_DONATE) {
    a->gives[x->id] = a->takes[t->to] = (char)rt_is_donated(a->away, x->id, t->to);
    return ATOLL_OK;
  }
  if (t->what == RT_DO_FREE)
    return passed(&a->gives[x->id]) ? ATOLL_OK : count(a, x, point, -1);
  if (t->what == RT_DO_ALLOCATE)
    return passed(&a->takes[x->id]) ? ATOLL_OK : count(a, x, point, 1);
  return ATOLL_OK;
}

atoll_err rt_pad_bytes(const rt_graph *g, const int64_t bound[RT_DIMS], int64_t *bytes) {
  rt_env env = {{0}, {0}, {0}, {0}};
  memcpy(env.bound, bound, sizeof env.bound);
  *bytes = 0;
  for (int i = 0; i < g->nodes; i++) {
    const atoll_rt *x = g->node[i];
    int64_t extent, each = x ? (int64_t)atoll_dtype_bytes(x->dtype) : 0;
    if (!x || !x->padded)
      continue;
    for (int k = 0; k < x->axes; k++) {
      ATOLL_TRY(rt_eval(g, x->shape[k], &env, &extent));
      each *= extent;
    }
    *bytes += each;
  }
  return ATOLL_OK;
}

static atoll_err take_account(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS], const char *away,
                              struct account *out) {
  const size_t n = (size_t)g->nodes + 1;
  struct account a = {.g = g,
                      .away = away,
                      .gives = calloc(n, 1),
                      .takes = calloc(n, 1),
                      .held = calloc(n, sizeof *a.held),
                      .at_peak = calloc(n, sizeof *a.at_peak)};
  rt_env env = {{0}, {0}, {0}, {0}};
  memcpy(env.bound, bound, sizeof env.bound);
  memcpy(a.env.bound, bound, sizeof env.bound);
  atoll_err err =
      a.gives && a.takes && a.held && a.at_peak ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "recurrent memory: no memory");
  if (err == ATOLL_OK)
    err = rt_members_create(g, &a.m);
  if (err == ATOLL_OK)
    err = rt_blocks_create(g, &a.blocks);
  if (err == ATOLL_OK)
    err = rt_pad_bytes(g, bound, &a.now);
  a.peak = a.now;
  if (err == ATOLL_OK)
    err = rt_tree_walk(g, tree, &env, account, &a);
  rt_blocks_destroy(&a.blocks);
  rt_members_destroy(&a.m);
  free(a.gives);
  free(a.takes);
  *out = a;
  return err;
}

static void close_account(struct account *a) {
  free(a->held);
  free(a->at_peak);
}

atoll_err rt_tree_peak_bytes(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS], const char *away,
                             int64_t *peak) {
  struct account a;
  atoll_err err = take_account(g, tree, bound, away, &a);
  if (err == ATOLL_OK)
    *peak = a.peak;
  close_account(&a);
  return err;
}

int rt_tree_offloads(const rt_tree *t, int node) {
  if (t->kind == RT_STATEMENT)
    return t->what == RT_DO_OFFLOAD && t->node == node;
  for (int k = 0; k < t->children; k++)
    if (rt_tree_offloads(t->child[k], node))
      return 1;
  return 0;
}

atoll_err rt_tree_put_away(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS], int64_t memory,
                           char *away, int64_t *peak) {
  memset(away, 0, (size_t)g->nodes);
  for (;;) {
    struct account a;
    int most = -1;
    atoll_err err = take_account(g, tree, bound, away, &a);
    for (int i = 0; err == ATOLL_OK && i < g->nodes; i++)
      if (a.at_peak[i] > 0 && !away[i] && (most < 0 || a.at_peak[i] > a.at_peak[most]) && rt_tree_offloads(tree, i))
        most = i;
    *peak = a.peak;
    close_account(&a);
    if (err != ATOLL_OK || *peak <= memory || most < 0)
      return err;
    away[most] = 1;
  }
}

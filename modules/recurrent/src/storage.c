/* What a value needs is read off the schedule itself: how many are alive at once, and over which coordinates. */
#include "storage.h"

#include <stdlib.h>
#include <string.h>

/* Live coordinates of one node along one dimension: counts per coordinate, and the ends of what is not 0. */
typedef struct live {
  int64_t *count; /* [bound] */
  int64_t lo, hi; /* hi < lo: none */
  int64_t widest;
} live;

struct walk {
  const rt_graph *g;
  rt_env env;
  rt_storage *store;
  rt_blocks blocks;
  live *along; /* [node][RT_DIMS] */
  int64_t *now;
  char *kept;
  int *next; /* members of groups as lists: next id + 1 */
};

static atoll_err size_of(struct walk *w, const atoll_rt *x, const int64_t *point, int64_t *bytes) {
  int64_t extent;
  *bytes = (int64_t)atoll_dtype_bytes(x->dtype) * w->store[x->id].block;
  memcpy(w->env.dim, point, sizeof w->env.dim);
  for (int k = 0; k < x->axes; k++) {
    ATOLL_TRY(rt_eval(w->g, x->shape[k], &w->env, &extent));
    *bytes *= extent;
  }
  return ATOLL_OK;
}

static void enter(live *l, int64_t at) {
  if (l->hi < l->lo)
    l->lo = l->hi = at;
  if (at < l->lo)
    l->lo = at;
  if (at > l->hi)
    l->hi = at;
  l->count[at]++;
  if (l->hi - l->lo + 1 > l->widest)
    l->widest = l->hi - l->lo + 1;
}

static void leave(live *l, int64_t at) {
  l->count[at]--;
  while (l->lo <= l->hi && l->count[l->lo] == 0)
    l->lo++;
  while (l->hi >= l->lo && l->count[l->hi] == 0)
    l->hi--;
}

/* The coordinate of a point, or of its block. */
static int64_t coordinate(const struct walk *w, const atoll_rt *x, int d, const int64_t *point) {
  const rt_block *b = &w->blocks.block[x->id];
  return d == b->dim ? point[d] / b->size : point[d];
}

static atoll_err born(struct walk *w, const atoll_rt *x, const int64_t *point) {
  int64_t bytes;
  ATOLL_TRY(size_of(w, x, point, &bytes));
  rt_storage *s = &w->store[x->id];
  if (bytes > s->bytes)
    s->bytes = bytes;
  int changes = 0;
  if (w->kept[x->id])
    ATOLL_TRY(rt_blocks_count(&w->blocks, x, point, w->env.bound, 1, &changes));
  if (!changes)
    return ATOLL_OK;
  if (++w->now[x->id] > s->slots)
    s->slots = w->now[x->id];
  for (int d = 0; d < w->g->dims; d++)
    if (rt_has(x, d))
      enter(&w->along[x->id * RT_DIMS + d], coordinate(w, x, d, point));
  return ATOLL_OK;
}

static atoll_err visit(void *arg, const rt_tree *t, const atoll_rt *x, const int64_t *point) {
  struct walk *w = arg;
  if (t->what == RT_DO_DONATE) {
    w->store[t->to].donor = x->id;
    return ATOLL_OK;
  }
  if (t->what == RT_DO_FREE) {
    int changes;
    ATOLL_TRY(rt_blocks_count(&w->blocks, x, point, w->env.bound, -1, &changes));
    w->now[x->id] -= changes;
    for (int d = 0; d < w->g->dims && changes; d++)
      if (rt_has(x, d))
        leave(&w->along[x->id * RT_DIMS + d], coordinate(w, x, d, point));
    return ATOLL_OK;
  }
  const int computes = t->what == RT_DO_EXECUTE || t->what == RT_DO_SEND;
  for (int i = x->id; computes && i >= 0; i = w->next[i] - 1)
    if (w->g->node[i]->op != RT_SINK)
      ATOLL_TRY(born(w, w->g->node[i], point));
  return ATOLL_OK;
}

static void conclude(struct walk *w) {
  for (int i = 0; i < w->g->nodes; i++) {
    const atoll_rt *x = w->g->node[i];
    rt_storage *s = &w->store[i];
    int wide = 0;
    if (!x || !w->kept[i])
      continue;
    s->kind = RT_STORE_ONE;
    for (int d = 0; d < w->g->dims; d++)
      if (rt_has(x, d) && w->along[i * RT_DIMS + d].widest > 1) {
        wide++;
        s->dim = d;
      }
    if (wide == 1) {
      s->kind = RT_STORE_RING;
      s->slots = w->along[i * RT_DIMS + s->dim].widest;
    } else if (wide > 1) {
      s->kind = RT_STORE_POINTS;
    }
  }
}

static int allocate(struct walk *w, const int64_t *bound) {
  size_t n = (size_t)w->g->nodes + 1;
  w->store = calloc(n, sizeof *w->store);
  w->along = calloc(n * RT_DIMS, sizeof *w->along);
  w->now = calloc(n, sizeof *w->now);
  w->kept = calloc(n, 1);
  w->next = calloc(n, sizeof *w->next);
  if (!w->store || !w->along || !w->now || !w->kept || !w->next)
    return 0;
  for (int i = 0; i < w->g->nodes; i++) {
    const atoll_rt *x = w->g->node[i];
    w->store[i].donor = -1;
    w->store[i].dim = -1;
    w->store[i].block = w->blocks.block[i].size;
    if (!x)
      continue;
    w->kept[i] = (char)(!rt_is_free(x) && x->op != RT_SINK && rt_is_read_outside(w->g, x));
    if (rt_head(x) != i) {
      w->next[i] = w->next[rt_head(x)];
      w->next[rt_head(x)] = i + 1;
    }
    for (int d = 0; d < w->g->dims && w->kept[i]; d++) {
      live *l = &w->along[i * RT_DIMS + d];
      l->hi = -1;
      if (rt_has(x, d) && !(l->count = calloc((size_t)bound[d], sizeof *l->count)))
        return 0;
    }
  }
  return 1;
}

atoll_err rt_storage_choose(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS], rt_storage **out) {
  struct walk w = {.g = g};
  rt_env env = {{0}, {0}, {0}, {0}};
  memcpy(env.bound, bound, sizeof env.bound);
  memcpy(w.env.bound, bound, sizeof env.bound);
  ATOLL_TRY(rt_blocks_create(g, &w.blocks));
  atoll_err err = allocate(&w, bound) ? rt_tree_walk(g, tree, &env, visit, &w)
                                      : atoll_fail(ATOLL_NOMEM, "recurrent storage: no memory");
  if (err == ATOLL_OK) {
    conclude(&w);
    *out = w.store;
  } else {
    free(w.store);
  }
  for (int i = 0; w.along && i < g->nodes * RT_DIMS; i++)
    free(w.along[i].count);
  rt_blocks_destroy(&w.blocks);
  free(w.along);
  free(w.now);
  free(w.kept);
  free(w.next);
  return err;
}

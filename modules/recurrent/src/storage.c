/* What a value needs is read off the schedule itself: how many are alive at once, over which coordinates, and whether a
 * source always goes right after its reader was computed, so that the reader can have its place. */
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
  /* donation: what the last execute computed, and whether each candidate has always fitted */
  int last;
  int64_t last_point[RT_DIMS];
  char *donated; /* per node: its candidate was freed at this execution */
  char *giver;   /* per node: is somebody's candidate */
  int64_t *executed, *taken;
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
  w->executed[x->id]++;
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

/* No other member of the group reads it, which might come later. */
static int only_reader(const struct walk *w, int reader, int src) {
  for (int i = w->last; i >= 0; i = w->next[i] - 1)
    for (int k = 0; i != reader && k < w->g->node[i]->inputs; k++)
      if (w->g->node[i]->in[k].src == src)
        return 0;
  return 1;
}

/* A source that goes right after its reader was computed, at the same point, may give it its storage. */
static void consider(struct walk *w, const atoll_rt *freed, const int64_t *point) {
  if (w->last < 0)
    return;
  for (int i = w->last; i >= 0; i = w->next[i] - 1) {
    const atoll_rt *x = w->g->node[i];
    for (int k = 0; k < x->inputs && w->kept[i]; k++) {
      const rt_edge *e = &x->in[k];
      if (e->src != freed->id || !rt_is_identity(w->g, e) || x->dims != freed->dims ||
          memcmp(point, w->last_point, sizeof w->last_point) != 0)
        continue;
      if (w->store[i].donor < 0 && !w->giver[freed->id] && w->executed[i] == 1 && only_reader(w, i, freed->id)) {
        w->store[i].donor = freed->id;
        w->giver[freed->id] = 1;
      }
      if (w->store[i].donor == freed->id && !w->donated[i]) {
        w->donated[i] = 1;
        w->taken[i]++;
      }
    }
  }
}

static atoll_err visit(void *arg, rt_statement what, const atoll_rt *x, const int64_t *point) {
  struct walk *w = arg;
  if (what == RT_DO_FREE) {
    int changes;
    consider(w, x, point);
    ATOLL_TRY(rt_blocks_count(&w->blocks, x, point, w->env.bound, -1, &changes));
    w->now[x->id] -= changes;
    for (int d = 0; d < w->g->dims && changes; d++)
      if (rt_has(x, d))
        leave(&w->along[x->id * RT_DIMS + d], coordinate(w, x, d, point));
    return ATOLL_OK;
  }
  w->last = x->id;
  memcpy(w->last_point, point, sizeof w->last_point);
  for (int i = x->id; i >= 0; i = w->next[i] - 1) {
    w->donated[i] = 0;
    if (w->g->node[i]->op != RT_SINK)
      ATOLL_TRY(born(w, w->g->node[i], point));
  }
  return ATOLL_OK;
}

/* Only operations that read an element before they write it can work in place. */
static int works_in_place(const struct walk *w, const atoll_rt *x, const atoll_rt *from) {
  if (!rt_is_element(x->op) && x->op != RT_IDENT && x->op != RT_RESHAPE)
    return 0;
  if (w->store[x->id].block > 1 || w->store[from->id].block > 1)
    return 0;
  if (x->dtype != from->dtype || w->store[x->id].bytes != w->store[from->id].bytes)
    return 0;
  for (int k = 0; k < x->inputs; k++) /* and nothing else may look at other elements of it */
    if (x->in[k].src == from->id && from->axes != x->axes && x->op != RT_RESHAPE)
      return 0;
  return 1;
}

static void conclude(struct walk *w) {
  for (int i = 0; i < w->g->nodes; i++) {
    const atoll_rt *x = w->g->node[i];
    rt_storage *s = &w->store[i];
    int wide = 0;
    if (!x)
      continue;
    if (s->donor >= 0 && (w->taken[i] != w->executed[i] || !works_in_place(w, x, w->g->node[s->donor])))
      s->donor = -1;
    if (!w->kept[i])
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
  w->donated = calloc(n, 1);
  w->giver = calloc(n, 1);
  w->executed = calloc(n, sizeof *w->executed);
  w->taken = calloc(n, sizeof *w->taken);
  if (!w->store || !w->along || !w->now || !w->kept || !w->next || !w->donated || !w->giver || !w->executed ||
      !w->taken)
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
  struct walk w = {.g = g, .last = -1};
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
  free(w.donated);
  free(w.giver);
  free(w.executed);
  free(w.taken);
  return err;
}

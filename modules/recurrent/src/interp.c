/* Instances (node, point), their values in a hash table, and demand with an explicit stack: recursion over thousands of
 * points must not depend on the size of the C stack. */
#include "interp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tree.h"

typedef struct instance {
  struct instance *next;
  int node;
  int busy; /* on the path of demand */
  int64_t point[RT_DIMS];
  rt_value value; /* data NULL: not computed, or away */
  double *away;   /* its data, put away */
  int on_the_way; /* it is not there yet */
} instance;

struct rt_interp {
  const rt_graph *g;
  int64_t bound[RT_DIMS];
  const void **input;    /* by node */
  size_t buckets, count; /* a power of two */
  instance **bucket;
  int64_t bytes, peak;
  char *gives, *takes; /* per node: a donation is under way from it, to it */
  const char *kept;    /* per node: its values are stored; NULL: all are, each by itself */
  rt_blocks *blocks;
};

/* ---- the table ---- */

static size_t hash(int node, const int64_t *point) {
  uint64_t h = (uint64_t)node + 1;
  for (int d = 0; d < RT_DIMS; d++) {
    h = (h ^ (uint64_t)point[d]) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 32;
  }
  return (size_t)h;
}

/* The coordinates that x has; others are 0. */
static void own_point(const atoll_rt *x, const int64_t *point, int64_t *out) {
  for (int d = 0; d < RT_DIMS; d++)
    out[d] = d < x->g->dims && rt_has(x, d) ? point[d] : 0;
}

static instance **find(const rt_interp *it, const atoll_rt *x, const int64_t *point) {
  int64_t own[RT_DIMS];
  own_point(x, point, own);
  instance **p = &it->bucket[hash(x->id, own) & (it->buckets - 1)];
  while (*p && ((*p)->node != x->id || memcmp((*p)->point, own, sizeof own) != 0))
    p = &(*p)->next;
  return p;
}

static int enlarge(rt_interp *it) {
  size_t n = it->buckets * 2;
  instance **bucket = calloc(n, sizeof(instance *));
  if (!bucket)
    return 0;
  for (size_t i = 0; i < it->buckets; i++)
    for (instance *e = it->bucket[i], *after; e; e = after) {
      after = e->next;
      size_t at = hash(e->node, e->point) & (n - 1);
      e->next = bucket[at];
      bucket[at] = e;
    }
  free(it->bucket);
  it->bucket = bucket;
  it->buckets = n;
  return 1;
}

static instance *enter(rt_interp *it, const atoll_rt *x, const int64_t *point) {
  if (it->count >= it->buckets && !enlarge(it))
    return NULL;
  instance **p = find(it, x, point);
  if (!*p && (*p = calloc(1, sizeof **p))) {
    (*p)->node = x->id;
    own_point(x, point, (*p)->point);
    it->count++;
  }
  return *p;
}

static int64_t bytes_of(const rt_value *v) { return v->count * (int64_t)atoll_dtype_bytes(v->dtype); }

void rt_interp_count(rt_interp *it, const rt_members *m, rt_blocks *blocks) {
  it->kept = m ? m->kept : NULL;
  it->blocks = blocks;
}

/* A value comes into memory (sign 1) or leaves it (-1): with it, its block. */
static atoll_err count(rt_interp *it, const atoll_rt *x, const int64_t *point, const rt_value *v, int sign) {
  int64_t bytes = bytes_of(v);
  int changes = 1;
  if (rt_is_free(x) || (it->kept && !it->kept[x->id]))
    return ATOLL_OK;
  if (it->blocks) {
    ATOLL_TRY(rt_blocks_count(it->blocks, x, point, it->bound, sign, &changes));
    bytes *= it->blocks->block[x->id].size;
  }
  if (changes)
    it->bytes += sign * bytes;
  if (it->bytes > it->peak)
    it->peak = it->bytes;
  return ATOLL_OK;
}

atoll_err rt_interp_free(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]) {
  instance **p = find(it, x, point), *e = *p;
  char label[96], at[128];
  if (!e || !e->value.data)
    return atoll_fail(ATOLL_INTERNAL, "free of %s%s, which is not there", rt_label(x, label, sizeof label),
                      rt_point_text(x, point, at, sizeof at));
  if (!it->gives[x->id])
    ATOLL_TRY(count(it, x, point, &e->value, -1));
  it->gives[x->id] = 0;
  it->count--;
  *p = e->next;
  free(e->value.data);
  free(e);
  return ATOLL_OK;
}

atoll_err rt_interp_donate(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS], const atoll_rt *to) {
  char label[96], at[128];
  if (!rt_interp_value(it, x, point))
    return atoll_fail(ATOLL_INTERNAL, "donation of %s%s, which is not there", rt_label(x, label, sizeof label),
                      rt_point_text(x, point, at, sizeof at));
  it->gives[x->id] = it->takes[to->id] = 1;
  return ATOLL_OK;
}

/* From one pointer to the other, which must be NULL. */
static atoll_err move(rt_interp *it, const atoll_rt *x, const int64_t *point, int back) {
  instance *e = *find(it, x, point);
  char label[96], at[128];
  if (!e || !(back ? e->away : e->value.data))
    return atoll_fail(ATOLL_INTERNAL, "%s of %s%s, which is not there", back ? "fetch" : "offload",
                      rt_label(x, label, sizeof label), rt_point_text(x, point, at, sizeof at));
  double *data = back ? e->away : e->value.data;
  e->away = back ? NULL : data;
  e->value.data = back ? data : NULL;
  return count(it, x, point, &e->value, back ? 1 : -1);
}

atoll_err rt_interp_offload(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]) {
  return move(it, x, point, 0);
}

atoll_err rt_interp_fetch(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]) {
  return move(it, x, point, 1);
}

const rt_value *rt_interp_value(const rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]) {
  const instance *e = *find(it, x, point);
  return e && e->value.data && !e->on_the_way ? &e->value : NULL;
}

int64_t rt_interp_bytes(const rt_interp *it) { return it->bytes; }
int64_t rt_interp_peak(const rt_interp *it) { return it->peak; }
const int64_t *rt_interp_bounds(const rt_interp *it) { return it->bound; }

const char *rt_point_text(const atoll_rt *x, const int64_t point[RT_DIMS], char *buf, size_t n) {
  size_t used = 0;
  buf[0] = 0;
  for (int d = 0; d < x->g->dims && used < n; d++)
    if (rt_has(x, d))
      used += (size_t)snprintf(buf + used, n - used, "%s%s=%lld", used ? ", " : " at (", x->g->dim[d].name,
                               (long long)point[d]);
  if (used && used < n)
    (void)snprintf(buf + used, n - used, ")");
  return buf;
}

/* ---- views ---- */

static rt_env environment(const rt_interp *it, const int64_t *point) {
  rt_env env = {{0}, {0}, {0}, {0}};
  memcpy(env.dim, point, sizeof env.dim);
  memcpy(env.bound, it->bound, sizeof env.bound);
  return env;
}

/* What an edge reads at a point: [lo, hi) for each dimension of the source. */
typedef struct window {
  int64_t lo[RT_DIMS], hi[RT_DIMS];
} window;

static atoll_err out_of_domain(const atoll_rt *x, const rt_env *env, const rt_edge *e, int d, int64_t at) {
  const rt_graph *g = x->g;
  char label[96], other[96], where[128];
  return atoll_fail(ATOLL_USAGE, "index '%s' of %s: %s=%lld is outside of its domain, read by %s%s",
                    e->text ? e->text : "", rt_label(rt_src(g, e), other, sizeof other), g->dim[d].name, (long long)at,
                    rt_label(x, label, sizeof label), rt_point_text(x, env->dim, where, sizeof where));
}

static atoll_err resolve(const rt_interp *it, const atoll_rt *x, const rt_edge *e, const rt_env *env, window *w) {
  const rt_graph *g = it->g;
  const atoll_rt *src = rt_src(g, e);
  memset(w, 0, sizeof *w);
  for (int d = 0; d < g->dims; d++) {
    w->hi[d] = 1;
    if (!rt_has(src, d))
      continue;
    if (e->item[d].lo == g->dim[d].var)
      w->lo[d] = env->dim[d];
    else
      ATOLL_TRY(rt_eval(g, e->item[d].lo, env, &w->lo[d]));
    w->hi[d] = w->lo[d] + 1;
    if (e->item[d].hi)
      ATOLL_TRY(rt_eval(g, e->item[d].hi, env, &w->hi[d]));
    if (w->hi[d] < w->lo[d])
      w->hi[d] = w->lo[d];
    if (w->lo[d] < w->hi[d] && (w->lo[d] < 0 || w->hi[d] > it->bound[d]))
      return out_of_domain(x, env, e, d, w->lo[d] < 0 ? w->lo[d] : w->hi[d] - 1);
  }
  return ATOLL_OK;
}

/* Points of a window from q = lo; 0 after the last. */
static int next_point(const window *w, int64_t *q) {
  for (int d = RT_DIMS - 1; d >= 0; d--) {
    if (w->hi[d] == 0)
      continue;
    if (++q[d] < w->hi[d])
      return 1;
    q[d] = w->lo[d];
  }
  return 0;
}

static int empty(const window *w, int dims) {
  for (int d = 0; d < dims; d++)
    if (w->lo[d] >= w->hi[d])
      return 1;
  return 0;
}

/* The edges that count at this point: all, or the first case that holds. */
static atoll_err active(const rt_interp *it, const atoll_rt *x, const rt_env *env, int *first, int *last) {
  char label[96], at[128];
  *first = 0;
  *last = x->inputs;
  if (x->op != RT_MERGE)
    return ATOLL_OK;
  for (int k = 0; k < x->inputs; k++) {
    int64_t holds = 1;
    if (x->in[k].cond)
      ATOLL_TRY(rt_eval(it->g, x->in[k].cond, env, &holds));
    if (holds) {
      *first = k;
      *last = k + 1;
      return ATOLL_OK;
    }
  }
  return atoll_fail(ATOLL_USAGE, "no case defines %s%s", rt_label(x, label, sizeof label),
                    rt_point_text(x, env->dim, at, sizeof at));
}

typedef struct view {
  rt_value v;
  int owned;
} view;

static atoll_err missing(const atoll_rt *x, const rt_env *env, const atoll_rt *src, const int64_t *q) {
  char label[96], at[128], other[96], there[128];
  return atoll_fail(ATOLL_INTERNAL, "%s%s needs %s%s, which is not there", rt_label(x, label, sizeof label),
                    rt_point_text(x, env->dim, at, sizeof at), rt_label(src, other, sizeof other),
                    rt_point_text(src, q, there, sizeof there));
}

static atoll_err present(rt_interp *it, const atoll_rt *x, const rt_env *env, const atoll_rt *src, const int64_t *q,
                         const rt_value **out) {
  if (rt_is_free(src) && !rt_interp_value(it, src, q))
    ATOLL_TRY(rt_interp_execute(it, src, q));
  *out = rt_interp_value(it, src, q);
  return *out ? ATOLL_OK : missing(x, env, src, q);
}

static atoll_err allocate(rt_value *v) {
  v->count = 1;
  for (int k = 0; k < v->axes; k++)
    v->count *= v->shape[k];
  v->data = v->count < (INT64_C(1) << 34) ? calloc((size_t)(v->count ? v->count : 1), sizeof *v->data) : NULL;
  return v->data ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "no memory for a value of %lld elements", (long long)v->count);
}

/* One value of a source's padding. */
static atoll_err padding(const atoll_rt *src, const rt_env *env, view *out) {
  view y = {.owned = 1};
  y.v.dtype = src->dtype;
  y.v.axes = src->axes;
  for (int k = 0; k < src->axes; k++)
    ATOLL_TRY(rt_eval(src->g, src->shape[k], env, &y.v.shape[k]));
  ATOLL_TRY(allocate(&y.v));
  for (int64_t i = 0; i < y.v.count; i++)
    y.v.data[i] = rt_round(src->dtype, src->pad);
  *out = y;
  return ATOLL_OK;
}

static atoll_err gather(rt_interp *it, const atoll_rt *x, const rt_edge *e, const rt_env *env, view *out) {
  const atoll_rt *src = rt_src(it->g, e);
  int64_t holds = 1;
  window w;
  if (x->op != RT_MERGE && e->cond)
    ATOLL_TRY(rt_eval(it->g, e->cond, env, &holds));
  if (!holds)
    return padding(src, env, out);
  ATOLL_TRY(resolve(it, x, e, env, &w));
  const rt_value *one = NULL;
  int64_t q[RT_DIMS], i = 0;
  memcpy(q, w.lo, sizeof q);
  if (rt_slices(it->g, e) == 0) {
    ATOLL_TRY(present(it, x, env, src, q, &one));
    *out = (view){*one, 0};
    return ATOLL_OK;
  }
  view y = {.owned = 1};
  y.v.dtype = src->dtype;
  for (int d = 0; d < it->g->dims; d++)
    if (rt_has(src, d) && e->item[d].hi)
      y.v.shape[y.v.axes++] = w.hi[d] - w.lo[d];
  rt_env inner = *env;
  memcpy(inner.dim, q, sizeof inner.dim);
  for (int k = 0; k < src->axes; k++)
    ATOLL_TRY(rt_eval(it->g, src->shape[k], &inner, &y.v.shape[y.v.axes++]));
  ATOLL_TRY(allocate(&y.v));
  *out = y; /* the caller frees it, also when it cannot be filled */
  if (empty(&w, it->g->dims))
    return ATOLL_OK;
  do {
    ATOLL_TRY(present(it, x, env, src, q, &one));
    memcpy(y.v.data + i, one->data, (size_t)one->count * sizeof *one->data);
    i += one->count;
  } while (next_point(&w, q));
  return ATOLL_OK;
}

/* ---- operations that read or write outside of values ---- */

/* Views as the user's function sees them. */
static atoll_err typed(const rt_value *v, atoll_rt_view *out) {
  void *data = malloc((size_t)bytes_of(v) + 1);
  if (!data)
    return atoll_fail(ATOLL_NOMEM, "no memory for a value of %lld elements", (long long)v->count);
  for (int64_t i = 0; v->data && i < v->count; i++)
    rt_store(v->dtype, data, i, v->data[i]);
  *out = (atoll_rt_view){v->dtype, v->axes, v->shape, data};
  return ATOLL_OK;
}

static atoll_err take_results(const atoll_rt *x, const rt_env *env, const atoll_rt_view *out, rt_value *y) {
  char label[96], at[128];
  for (int64_t i = 0; i < y->count; i++) {
    y->data[i] = rt_load(y->dtype, out->data, i);
    if (!isfinite(y->data[i]))
      return atoll_fail(ATOLL_NONFINITE, "%s%s: element %lld of the result is %g", rt_label(x, label, sizeof label),
                        rt_point_text(x, env->dim, at, sizeof at), (long long)i, y->data[i]);
  }
  return ATOLL_OK;
}

atoll_err rt_call(const atoll_rt *x, const int64_t *own, const atoll_rt_view *in, const atoll_rt_view *out) {
  char label[96], at[128], why[700];
  int64_t point[RT_DIMS] = {0};
  atoll_err_clear(); /* what an earlier failure said is not this one's reason */
  const atoll_err err = x->fn(x->user, own, in, out);
  if (err == ATOLL_OK)
    return err;
  (void)snprintf(why, sizeof why, "%s", atoll_err_message()[0] ? atoll_err_message() : "the function failed");
  for (int d = 0, n = 0; d < x->g->dims; d++)
    if (rt_has(x, d))
      point[d] = own[n++];
  return atoll_fail(err, "%s, in %s%s", why, rt_label(x, label, sizeof label), rt_point_text(x, point, at, sizeof at));
}

static atoll_err call(const atoll_rt *x, const rt_env *env, const rt_value *const *in, rt_value *y) {
  int64_t point[RT_DIMS];
  int n = 0, views = 0;
  atoll_err err = ATOLL_OK;
  atoll_rt_view out = {.data = NULL}, *v = calloc((size_t)x->inputs + 1, sizeof *v);
  if (!v)
    return atoll_fail(ATOLL_NOMEM, "call of %s: no memory", x->name ? x->name : "");
  for (int d = 0; d < x->g->dims; d++)
    if (rt_has(x, d))
      point[n++] = env->dim[d];
  for (; views < x->inputs; views++)
    ATOLL_TRY_GOTO(err, clean, typed(in[views], &v[views]));
  if (x->op == RT_CALL)
    ATOLL_TRY_GOTO(err, clean, typed(y, &out));
  ATOLL_TRY_GOTO(err, clean, rt_call(x, point, v, x->op == RT_CALL ? &out : NULL));
  if (x->op == RT_CALL)
    err = take_results(x, env, &out, y);
clean:
  for (int k = 0; k < views; k++)
    free(v[k].data);
  free(v);
  free(out.data);
  return err;
}

/* One byte a node: whether a sink needs it. Until nothing changes, for tensors need themselves at other points. */
static void mark_needed(const rt_graph *g, char *needed) {
  for (int more = 1; more;) {
    more = 0;
    for (int i = g->nodes - 1; i >= 0; i--) {
      const atoll_rt *x = g->node[i];
      if (!x || !(needed[i] || x->op == RT_SINK))
        continue;
      for (int k = 0; k < x->inputs; k++) {
        char *source = &needed[x->in[k].src];
        more |= !*source && x->in[k].src > i;
        *source = 1;
      }
    }
  }
}

static const void *bound_to(const atoll_rt *x, const atoll_rec_binding *b, int n) {
  for (int k = 0; k < n; k++)
    if (b[k].data && strcmp(b[k].name, x->name) == 0)
      return b[k].data;
  return NULL;
}

atoll_err rt_bind_inputs(const rt_graph *g, const atoll_rec_binding *b, int n, const void ***input) {
  const void **data = calloc((size_t)g->nodes + 1, sizeof *data);
  char *needed = calloc((size_t)g->nodes + 1, 1);
  atoll_err err = data && needed ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  if (err == ATOLL_OK)
    mark_needed(g, needed);
  for (int i = 0; err == ATOLL_OK && i < g->nodes; i++)
    if (needed[i] && g->node[i]->op == RT_INPUT && !(data[i] = bound_to(g->node[i], b, n)))
      err = atoll_fail(ATOLL_USAGE, "input '%s' is not bound", g->node[i]->name);
  free(needed);
  if (err == ATOLL_OK)
    *input = data;
  else
    free(data);
  return err;
}

static void input(const rt_interp *it, const atoll_rt *x, const rt_env *env, rt_value *y) {
  int64_t at = 0;
  for (int d = 0; d < it->g->dims; d++)
    if (rt_has(x, d))
      at = at * it->bound[d] + env->dim[d];
  for (int64_t i = 0; i < y->count; i++)
    y->data[i] = rt_load(x->dtype, it->input[x->id], at * y->count + i);
}

/* One term of PICK: the source at q, at the position that the attributes give. */
static atoll_err add_term(const atoll_rt *x, const rt_env *env, const rt_value *v, int slices, rt_value *y) {
  char label[96];
  int64_t at = 0, index;
  for (int k = 0; k < x->axis - slices + x->picks; k++) {
    index = env->axis[slices + k];
    if (slices + k >= x->axis)
      ATOLL_TRY(rt_eval(x->g, x->start[slices + k - x->axis], env, &index));
    if (index < 0 || index >= v->shape[k])
      return atoll_fail(ATOLL_INTERNAL, "%s: element %lld of axis %d, which has %lld", rt_label(x, label, sizeof label),
                        (long long)index, k, (long long)v->shape[k]);
    at = at * v->shape[k] + index;
  }
  for (int64_t i = 0; i < y->count; i++)
    y->data[i] += v->data[at * y->count + i];
  return ATOLL_OK;
}

/* Own axes of the source that are summed. */
static atoll_err add_point(const atoll_rt *x, rt_env *env, const rt_value *v, int slices, rt_value *y) {
  int own = x->axis - slices;
  int64_t *k = env->axis + slices, holds = 1;
  memset(k, 0, (size_t)own * sizeof *k);
  for (int a = 0; a < own; a++)
    if (v->shape[a] == 0)
      return ATOLL_OK;
  for (;;) {
    if (x->expr)
      ATOLL_TRY(rt_eval(x->g, x->expr, env, &holds));
    if (holds)
      ATOLL_TRY(add_term(x, env, v, slices, y));
    int a = own - 1;
    while (a >= 0 && ++k[a] == v->shape[a])
      k[a--] = 0;
    if (a < 0)
      return ATOLL_OK;
  }
}

/* Positions of point q along the slices of an edge; returns their number. */
static int slice_positions(const rt_graph *g, const rt_edge *e, const window *w, const int64_t *q, rt_env *env) {
  int n = 0;
  for (int d = 0; d < g->dims; d++)
    if (rt_has(rt_src(g, e), d) && e->item[d].hi)
      env->axis[n++] = q[d] - w->lo[d];
  return n;
}

/* Whether x reads point q: PICK does not look at what its mask hides, when that is told by the point alone. */
static atoll_err reads(const atoll_rt *x, const rt_edge *e, const window *w, const int64_t *q, rt_env *env,
                       int64_t *out) {
  *out = 1;
  if (x->op != RT_PICK || !x->expr || slice_positions(x->g, e, w, q, env) != x->axis)
    return ATOLL_OK;
  return rt_eval(x->g, x->expr, env, out);
}

static atoll_err pick(rt_interp *it, const atoll_rt *x, rt_env *env, rt_value *y) {
  const rt_edge *e = &x->in[0];
  const atoll_rt *src = rt_src(it->g, e);
  int64_t q[RT_DIMS];
  window w;
  ATOLL_TRY(resolve(it, x, e, env, &w));
  memcpy(q, w.lo, sizeof q);
  if (empty(&w, it->g->dims))
    return ATOLL_OK;
  do {
    int64_t wanted;
    ATOLL_TRY(reads(x, e, &w, q, env, &wanted));
    if (!wanted)
      continue;
    const rt_value *v = NULL;
    ATOLL_TRY(present(it, x, env, src, q, &v));
    ATOLL_TRY(add_point(x, env, v, slice_positions(it->g, e, &w, q, env), y));
  } while (next_point(&w, q));
  for (int64_t i = 0; i < y->count; i++)
    y->data[i] = rt_round(y->dtype, y->data[i]);
  return ATOLL_OK;
}

/* ---- instances ---- */

static atoll_err compute(rt_interp *it, const atoll_rt *x, rt_env *env, rt_value *y) {
  int first, last;
  atoll_err err = ATOLL_OK;
  if (x->op == RT_PICK)
    return pick(it, x, env, y);
  if (x->op == RT_INPUT) {
    input(it, x, env, y);
    return ATOLL_OK;
  }
  ATOLL_TRY(active(it, x, env, &first, &last));
  int n = last - first;
  view *v = calloc((size_t)n + 1, sizeof *v);
  const rt_value **in = calloc((size_t)n + 1, sizeof *in);
  if (!v || !in)
    err = atoll_fail(ATOLL_NOMEM, "no memory for %d operands", n);
  for (int k = 0; err == ATOLL_OK && k < n; k++) {
    err = gather(it, x, &x->in[first + k], env, &v[k]);
    in[k] = &v[k].v;
  }
  if (err == ATOLL_OK && (x->op == RT_CALL || x->op == RT_SINK))
    err = call(x, env, in, y);
  else if (err == ATOLL_OK && x->op == RT_MERGE)
    memcpy(y->data, in[0]->data, (size_t)y->count * sizeof *y->data);
  else if (err == ATOLL_OK)
    err = rt_compute(x, env, in, y);
  for (int k = 0; v && k < n; k++)
    if (v[k].owned)
      free(v[k].v.data);
  free(in);
  free(v);
  return err;
}

/* A slice that ends before it begins is told with its index string. */
static atoll_err negative_extent(const atoll_rt *x, const int64_t *point, int axis, int64_t extent) {
  char label[96], at[128], other[96], by[256] = "";
  const rt_edge *e = x->inputs == 1 ? x->in : NULL;
  if (e && e->text && rt_slices(x->g, e) > axis)
    (void)snprintf(by, sizeof by, ", by index '%s' of %s", e->text, rt_label(rt_src(x->g, e), other, sizeof other));
  return atoll_fail(ATOLL_USAGE, "%s%s: axis %d has extent %lld%s", rt_label(x, label, sizeof label),
                    rt_point_text(x, point, at, sizeof at), axis, (long long)extent, by);
}

atoll_err rt_interp_execute(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]) {
  char label[96], at[128];
  rt_env env = environment(it, point);
  rt_value y = {.dtype = x->dtype, .axes = x->axes};
  if (rt_interp_value(it, x, point))
    return atoll_fail(ATOLL_INTERNAL, "%s%s is computed twice", rt_label(x, label, sizeof label),
                      rt_point_text(x, point, at, sizeof at));
  for (int k = 0; k < x->axes; k++) {
    ATOLL_TRY(rt_eval(it->g, x->shape[k], &env, &y.shape[k]));
    if (y.shape[k] < 0)
      return negative_extent(x, point, k, y.shape[k]);
  }
  ATOLL_TRY(allocate(&y));
  atoll_err err = compute(it, x, &env, &y);
  instance *e = err == ATOLL_OK && x->op != RT_SINK ? enter(it, x, point) : NULL;
  if (!e) {
    free(y.data);
    return err != ATOLL_OK || x->op == RT_SINK ? err : atoll_fail(ATOLL_NOMEM, "no memory for an instance");
  }
  e->value = y;
  if (!it->takes[x->id])
    ATOLL_TRY(count(it, x, point, &y, 1));
  it->takes[x->id] = 0;
  return ATOLL_OK;
}

atoll_err rt_interp_send(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]) {
  ATOLL_TRY(rt_interp_execute(it, x, point));
  (*find(it, x, point))->on_the_way = 1;
  return ATOLL_OK;
}

atoll_err rt_interp_receive(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]) {
  instance *e = *find(it, x, point);
  char label[96], at[128];
  if (!e || !e->on_the_way)
    return atoll_fail(ATOLL_INTERNAL, "%s%s is received, but was not sent", rt_label(x, label, sizeof label),
                      rt_point_text(x, point, at, sizeof at));
  e->on_the_way = 0;
  return ATOLL_OK;
}

/* ---- demand ---- */

typedef struct todo {
  const atoll_rt *x;
  int64_t point[RT_DIMS];
} todo;

typedef struct stack {
  todo *item;
  size_t n, room;
} stack;

static atoll_err push(stack *s, const atoll_rt *x, const int64_t *point) {
  if (s->n == s->room) {
    size_t room = s->room ? 2 * s->room : 64;
    todo *item = realloc(s->item, room * sizeof *item);
    if (!item)
      return atoll_fail(ATOLL_NOMEM, "no memory for %zu pending instances", room);
    s->item = item;
    s->room = room;
  }
  s->item[s->n].x = x;
  memcpy(s->item[s->n++].point, point, sizeof s->item->point);
  return ATOLL_OK;
}

static atoll_err cyclic(const atoll_rt *x, const rt_env *env, const rt_edge *e, const int64_t *q) {
  const atoll_rt *src = rt_src(x->g, e);
  char label[96], other[96], at[128], there[128];
  return atoll_fail(ATOLL_USAGE, "cyclic definition without a base case: %s%s needs %s%s through '%s', which needs it",
                    rt_label(x, label, sizeof label), rt_point_text(x, env->dim, at, sizeof at),
                    rt_label(src, other, sizeof other), rt_point_text(src, q, there, sizeof there),
                    e->text ? e->text : "");
}

/* Pushes what the instance needs and is not there. */
static atoll_err push_missing(rt_interp *it, stack *s, const atoll_rt *x, const int64_t *point) {
  rt_env env = environment(it, point);
  int first, last;
  ATOLL_TRY(active(it, x, &env, &first, &last));
  for (int k = first; k < last; k++) {
    const atoll_rt *src = rt_src(it->g, &x->in[k]);
    int64_t q[RT_DIMS];
    window w;
    ATOLL_TRY(resolve(it, x, &x->in[k], &env, &w));
    memcpy(q, w.lo, sizeof q);
    if (empty(&w, it->g->dims))
      continue;
    do {
      int64_t wanted;
      ATOLL_TRY(reads(x, &x->in[k], &w, q, &env, &wanted));
      const instance *e = *find(it, src, q);
      if (!wanted)
        continue;
      if (e && e->busy)
        return cyclic(x, &env, &x->in[k], q);
      if (!e || !e->value.data)
        ATOLL_TRY(push(s, src, q));
    } while (next_point(&w, q));
  }
  return ATOLL_OK;
}

static atoll_err demand(rt_interp *it, stack *s) {
  while (s->n) {
    todo top = s->item[s->n - 1];
    size_t before = s->n;
    instance *e = enter(it, top.x, top.point);
    if (!e)
      return atoll_fail(ATOLL_NOMEM, "no memory for an instance");
    if (!e->value.data) {
      e->busy = 1;
      ATOLL_TRY(push_missing(it, s, top.x, top.point));
      if (s->n > before)
        continue;
      ATOLL_TRY(rt_interp_execute(it, top.x, top.point));
    }
    e->busy = 0;
    s->n--;
  }
  return ATOLL_OK;
}

atoll_err rt_interp_demand(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]) {
  stack s = {NULL, 0, 0};
  atoll_err err = push(&s, x, point);
  if (err == ATOLL_OK)
    err = demand(it, &s);
  free(s.item);
  return err;
}

/* ---- runs ---- */

atoll_err rt_interp_points(rt_interp *it, const atoll_rt *x, atoll_err (*f)(void *arg, const int64_t point[RT_DIMS]),
                           void *arg) {
  window w = {{0}, {0}};
  int64_t q[RT_DIMS] = {0};
  for (int d = 0; d < it->g->dims; d++)
    w.hi[d] = rt_has(x, d) ? it->bound[d] : 1;
  do {
    rt_env env = environment(it, q);
    int64_t inside = 1;
    if (x->where)
      ATOLL_TRY(rt_eval(it->g, x->where, &env, &inside));
    if (inside)
      ATOLL_TRY(f(arg, q));
  } while (next_point(&w, q));
  return ATOLL_OK;
}

/* No part of x's expression e is further from 0; infinite where that is not known. */
static double farthest(const atoll_rt *x, const atoll_sym *e, const int64_t bound[RT_DIMS]) {
  const atoll_sym_op op = atoll_sym_op_of(e);
  double far = op == ATOLL_SYM_MUL;
  int64_t v;
  if (rt_is_const(e, &v))
    return fabs((double)v);
  for (int d = 0; d < x->g->dims && op == ATOLL_SYM_VAR; d++)
    if (e == x->g->dim[d].var || strcmp(atoll_sym_name(e), x->g->dim[d].bound_name) == 0)
      return (double)bound[d];
  for (int k = 0; k < x->axes && op == ATOLL_SYM_VAR; k++)
    if (e == rt_axis(x->g, k))
      return farthest(x, x->shape[k], bound);
  if (op == ATOLL_SYM_VAR)
    return INFINITY;
  for (int k = 0; k < atoll_sym_arity(e); k++) {
    const double part = farthest(x, atoll_sym_arg(e, k), bound);
    far = op == ATOLL_SYM_ADD || op == ATOLL_SYM_SUB ? far + part : op == ATOLL_SYM_MUL ? far * part : fmax(far, part);
  }
  return far;
}

/* The bounds given to a run, "T=8, B=2". */
static const char *bounds_text(const rt_graph *g, const int64_t bound[RT_DIMS], char *buf, size_t n) {
  size_t at = 0;
  buf[0] = 0;
  for (int d = 0; d < g->dims && at < n; d++)
    if (g->dim[d].bound == 0)
      at += (size_t)snprintf(buf + at, n - at, "%s%s=%lld", at ? ", " : "", g->dim[d].bound_name, (long long)bound[d]);
  return buf;
}

/* Compiled programs do not look whether integers overflow; indices are too small for that, expressions may not be. */
static atoll_err check_expressions(const rt_graph *g, const int64_t bound[RT_DIMS]) {
  for (int i = 0; i < g->nodes; i++) {
    const atoll_rt *x = g->node[i];
    char text[256];
    if (!x || x->op != RT_EVAL || farthest(x, x->expr, bound) < 0x1p63)
      continue;
    (void)atoll_sym_print(x->expr, text, sizeof text);
    return atoll_fail(ATOLL_USAGE, "with these bounds: expression '%s' may need more than 64 bits", text);
  }
  return ATOLL_OK;
}

atoll_err rt_bounds(const rt_graph *g, const atoll_rec_binding *b, int n, int64_t bound[RT_DIMS]) {
  rt_env env = {{0}, {0}, {0}, {0}};
  int64_t valid = 1;
  char text[256];
  for (int k = 0; k < n; k++)
    if (!b[k].name)
      return atoll_fail(ATOLL_USAGE, "binding %d has no name", k);
  for (int d = 0; d < g->dims; d++) {
    const rt_dim *dim = &g->dim[d];
    const atoll_rec_binding *given = NULL;
    if (dim->bound < 0) {
      ATOLL_TRY(rt_eval(g, dim->size, &env, &bound[d]));
      env.bound[d] = bound[d];
      continue;
    }
    bound[d] = dim->bound;
    for (int k = 0; k < n; k++) {
      if (strcmp(b[k].name, dim->bound_name) != 0)
        continue;
      if (dim->bound && dim->bound != b[k].bound)
        return atoll_fail(ATOLL_USAGE, "bound '%s' is %lld by construction, %lld is given", dim->bound_name,
                          (long long)dim->bound, (long long)b[k].bound);
      if (given && given->bound != b[k].bound)
        return atoll_fail(ATOLL_USAGE, "bound '%s' is given twice, as %lld and as %lld", dim->bound_name,
                          (long long)given->bound, (long long)b[k].bound);
      given = &b[k];
      bound[d] = given->bound;
    }
    if (bound[d] < 1 || bound[d] > RT_NUMBER_MOST)
      return atoll_fail(ATOLL_USAGE, "bound '%s' is not given, or is less than 1 or more than %lld", dim->bound_name,
                        (long long)RT_NUMBER_MOST);
    if (!dim->bound && bound[d] < g->least)
      return atoll_fail(ATOLL_USAGE, "bound '%s' is %lld, but the program was compiled for %lld at the least",
                        dim->bound_name, (long long)bound[d], (long long)g->least);
    env.bound[d] = bound[d];
  }
  if (g->valid)
    ATOLL_TRY(rt_eval(g, g->valid, &env, &valid));
  if (!valid)
    return atoll_fail(ATOLL_USAGE, "not with these bounds, %s: for example, %s",
                      bounds_text(g, bound, text, sizeof text), g->valid_text);
  return check_expressions(g, bound);
}

atoll_err rt_interp_create(const rt_graph *g, const atoll_rec_binding *b, int n, rt_interp **out) {
  rt_interp *it = calloc(1, sizeof *it);
  atoll_err err = ATOLL_OK;
  if (!it)
    return atoll_fail(ATOLL_NOMEM, "interpreter: no memory");
  it->bucket = calloc(1024, sizeof(instance *));
  it->gives = calloc((size_t)g->nodes + 1, 1);
  it->takes = calloc((size_t)g->nodes + 1, 1);
  if (!it->bucket || !it->gives || !it->takes) {
    rt_interp_destroy(&it);
    return atoll_fail(ATOLL_NOMEM, "interpreter: no memory");
  }
  it->g = g;
  it->buckets = 1024;
  err = rt_bounds(g, b, n, it->bound);
  if (err == ATOLL_OK)
    err = rt_bind_inputs(g, b, n, &it->input);
  if (err != ATOLL_OK)
    rt_interp_destroy(&it);
  *out = it;
  return err;
}

void rt_interp_destroy(rt_interp **address) {
  rt_interp *it = *address;
  if (!it)
    return;
  for (size_t i = 0; i < it->buckets; i++)
    for (instance *e = it->bucket[i], *after; e; e = after) {
      after = e->next;
      free(e->value.data);
      free(e->away);
      free(e);
    }
  free(it->bucket);
  free(it->input);
  free(it->gives);
  free(it->takes);
  free(it);
  *address = NULL;
}

struct sink_arg {
  rt_interp *it;
  const atoll_rt *sink;
};

static atoll_err run_sink(void *arg, const int64_t *point) {
  struct sink_arg *a = arg;
  return rt_interp_demand(a->it, a->sink, point);
}

atoll_err rt_interp_sinks(rt_interp *it) {
  for (int i = 0; i < it->g->nodes; i++) {
    struct sink_arg a = {it, it->g->node[i]};
    if (a.sink && a.sink->op == RT_SINK)
      ATOLL_TRY(rt_interp_points(it, a.sink, run_sink, &a));
  }
  return ATOLL_OK;
}

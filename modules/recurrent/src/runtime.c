/* Stores of values, or of blocks of them, and the pool that their memory comes from.
 *
 * A store is a table of pointers with a slot for every combination of coordinates modulo powers of two. Coordinates of
 * values that are alive at once lie in windows whose widths follow from the schedule; instead of computing them
 * beforehand, a table starts with one slot and doubles along a dimension whenever two live points meet in one slot. The
 * width of a ring is thus found within its first turn, and nothing depends on how large the bounds are.
 *
 * Memory comes from lists of free pieces by size class, four classes for each power of two: after the first turn of its
 * loops a program calls malloc() no more. What is counted is what values need, not what classes round up to. Pieces are
 * cut from slabs that grow with what there is, and large slabs ask for huge pages: of 12 to 16 MiB of keys and values,
 * a core of a shared Zen 3 reads 9 GB/s in small pages and up to 34 in huge ones. */
#include "runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "atoll/gemm.h"
#include "atoll/rng.h"
#include "away.h"
#include "device.h"
#include "emitted.h"
#include "tree.h"

enum { ALIGN = 64, CLASSES = 4 * 60, AWAY = -1, STORE_SLOTS_MAX = 1 << 30 };

_Static_assert(sizeof(rt_arg) == sizeof(atoll_rt_view) && offsetof(rt_arg, data) == offsetof(atoll_rt_view, data) &&
                   offsetof(rt_arg, shape) == offsetof(atoll_rt_view, shape),
               "emitted code passes rt_arg where users' functions take atoll_rt_view");

/* ---- pool ---- */

typedef struct piece { /* before the memory that is handed out */
  struct piece *next;
  int64_t held;    /* values that are alive in it; a donation makes one more */
  int64_t present; /* of these, those that are not put away */
  int64_t place;   /* in the file of what is away, -1: none */
  int changed;     /* since it was written there */
  int class;       /* AWAY: there is no memory behind it */
  int64_t bytes;
} piece;

_Static_assert(sizeof(piece) <= ALIGN, "pieces keep their heads in one line");

typedef struct slab { /* before its pieces */
  struct slab *next;
  int64_t used, bytes;
} slab;

_Static_assert(sizeof(slab) <= ALIGN, "slabs keep their heads in one line");

enum { SLAB_LEAST = 1 << 16, SLAB_MOST = 1 << 25, HUGE_PAGE = 1 << 21 };

typedef struct pool {
  rt_device *device; /* NULL: the host's memory, in slabs */
  piece *free[CLASSES];
  slab *slabs;  /* the last one is cut */
  int64_t held; /* bytes of slabs */
  int64_t now, peak;
} pool;

/* The least class that holds bytes: 64 2^(c/4) (1 + c%4 / 4). */
static int class_of(int64_t bytes, int64_t *room) {
  int c = 0;
  int64_t unit = ALIGN;
  while (unit * 2 < bytes) {
    unit *= 2;
    c += 4;
  }
  *room = unit;
  for (int quarter = 1; *room < bytes; quarter++, c++)
    *room = unit + quarter * unit / 4;
  return c;
}

static int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

static void *allocate(rt_device *d, int64_t bytes) {
  return d ? d->alloc(d, bytes) : aligned_alloc(ALIGN, (size_t)round_up(bytes, ALIGN));
}

static void deallocate(rt_device *d, void *p) {
  if (d)
    d->release(d, p);
  else
    free(p);
}

/* As large as all before together, within limits. */
static int add_slab(pool *p, int64_t least) {
  int64_t bytes = p->held < SLAB_LEAST ? SLAB_LEAST : p->held < SLAB_MOST ? p->held : SLAB_MOST;
  bytes = bytes < least + ALIGN ? least + ALIGN : bytes;
  const int64_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;
  bytes = round_up(bytes, page);
  slab *s = aligned_alloc((size_t)page, (size_t)bytes);
  if (!s)
    return 0;
#ifdef MADV_HUGEPAGE
  if (page == HUGE_PAGE)
    (void)madvise(s, (size_t)bytes, MADV_HUGEPAGE); /* a wish only */
#endif
  *s = (slab){p->slabs, ALIGN, bytes};
  p->slabs = s;
  p->held += bytes;
  return 1;
}

static void *cut(pool *p, int64_t bytes) {
  bytes = round_up(bytes, ALIGN);
  if ((!p->slabs || p->slabs->bytes - p->slabs->used < bytes) && !add_slab(p, bytes))
    return NULL;
  char *data = (char *)p->slabs + p->slabs->used;
  p->slabs->used += bytes;
  return data;
}

static piece *head_of(char *data) { return (piece *)(void *)(data - ALIGN); }

static char *pool_take(pool *p, int64_t bytes) {
  int64_t room;
  int c = class_of(bytes, &room);
  piece *x = c < CLASSES ? p->free[c] : NULL;
  if (x) {
    p->free[c] = x->next;
  } else if (c < CLASSES) {
    x = p->device ? allocate(p->device, room + ALIGN) : cut(p, room + ALIGN);
  }
  if (!x)
    return NULL;
  x->class = c;
  x->bytes = bytes;
  p->now += bytes;
  if (p->now > p->peak)
    p->peak = p->now;
  return (char *)x + ALIGN;
}

static void pool_give(pool *p, char *data) {
  piece *x = head_of(data);
  p->now -= x->bytes;
  x->next = p->free[x->class];
  p->free[x->class] = x;
}

static void pool_destroy(pool *p) {
  for (slab *s = p->slabs, *next; s; s = next) {
    next = s->next;
    free(s);
  }
  for (int c = 0; p->device && c < CLASSES; c++)
    for (piece *x = p->free[c], *next; x; x = next) {
      next = x->next;
      deallocate(p->device, x);
    }
}

/* ---- stores ---- */

typedef struct coordinates {
  int64_t at[RT_DIMS]; /* by position in the domain */
} coordinates;

typedef struct rt_runtime {
  rt_run r; /* first: emitted code hands it back */
  const rt_graph *g;
  rt_slots *store;
  coordinates **keys; /* [node][slot] */
  int *dims;          /* of each node's domain */
  rt_block *block;    /* per node; dim by position in the domain */
  char **gift;        /* per node: memory that its next value gets; NULL: from the pool */
  pool pool;
  rt_away *away;  /* NULL: nothing is ever put away */
  int64_t *fault; /* what kernels found */
  void **copied;  /* per node: an input's data in the device's memory */
  char *space;    /* workspace */
  char **old;     /* earlier ones, which the statement at hand may still use */
  int olds;
  int64_t bound[RT_DIMS];
  const void **input;
  void **pad; /* per node: one value of its padding */
  int64_t pad_bytes;
  atoll_err err;
} runtime;

static runtime *of(rt_run *r) { return (runtime *)(void *)r; }

static int64_t slot_of(const rt_slots *s, int dims, const int64_t *point) {
  int64_t slot = 0;
  for (int k = 0; k < dims; k++)
    slot |= (point[k] & s->mask[k]) << s->shift[k];
  return slot;
}

static int64_t slots_of(const rt_slots *s, int dims) {
  int64_t n = 1;
  for (int k = 0; k < dims; k++)
    n *= s->mask[k] + 1;
  return n;
}

/* Shifts that keep the last dimension closest together. */
static void set_shifts(rt_slots *s, int dims) {
  int shift = 0;
  for (int k = dims - 1; k >= 0; k--) {
    s->shift[k] = shift;
    for (int64_t m = s->mask[k]; m; m >>= 1)
      shift++;
  }
}

/* Twice as many slots along the dimension where a and b are closest without being equal. */
static void widen(rt_slots *s, int dims, const int64_t *a, const int64_t *b) {
  int at = -1;
  double least = 0;
  for (int k = 0; k < dims; k++) {
    double gap = fabs((double)a[k] - (double)b[k]) / (double)(s->mask[k] + 1);
    if (a[k] != b[k] && (at < 0 || gap < least)) {
      least = gap;
      at = k;
    }
  }
  s->mask[at] = 2 * s->mask[at] + 1;
  set_shifts(s, dims);
}

/* Room for point among the values that are there. */
static atoll_err enlarge(runtime *rt, int node, const int64_t *point) {
  rt_slots *s = &rt->store[node], wider = *s;
  int dims = rt->dims[node];
  int64_t n = slots_of(s, dims), slot = slot_of(s, dims, point);
  while (slot_of(&wider, dims, point) == slot_of(&wider, dims, rt->keys[node][slot].at)) {
    widen(&wider, dims, point, rt->keys[node][slot].at);
    if (slots_of(&wider, dims) > STORE_SLOTS_MAX)
      return atoll_fail(ATOLL_NOMEM, "recurrent program: a tensor with too many values alive at once");
  }
  int64_t more = slots_of(&wider, dims);
  wider.data = calloc((size_t)more, sizeof(char *));
  coordinates *keys = malloc((size_t)more * sizeof *keys);
  if (!wider.data || !keys) {
    free(wider.data);
    free(keys);
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory for %lld slots", (long long)more);
  }
  for (int64_t i = 0; i < n; i++)
    if (s->data[i]) {
      int64_t to = slot_of(&wider, dims, rt->keys[node][i].at);
      wider.data[to] = s->data[i];
      keys[to] = rt->keys[node][i];
    }
  free(s->data);
  free(rt->keys[node]);
  *s = wider;
  rt->keys[node] = keys;
  return ATOLL_OK;
}

static int is_at(const runtime *rt, int node, int64_t slot, const int64_t *point) {
  if (!rt->store[node].data[slot])
    return 0;
  for (int k = 0; k < rt->dims[node]; k++)
    if (rt->keys[node][slot].at[k] != point[k])
      return 0;
  return 1;
}

static void full_point(const runtime *rt, int node, const int64_t *own, int64_t point[RT_DIMS]) {
  for (int d = 0, k = 0; d < RT_DIMS; d++)
    point[d] = d < rt->g->dims && rt_has(rt->g->node[node], d) ? own[k++] : 0;
}

static atoll_err broken(const runtime *rt, int node, const int64_t *own, const char *what) {
  char label[96], at[128];
  int64_t point[RT_DIMS];
  full_point(rt, node, own, point);
  return atoll_fail(ATOLL_INTERNAL, "%s%s %s", rt_label(rt->g->node[node], label, sizeof label),
                    rt_point_text(rt->g->node[node], point, at, sizeof at), what);
}

/* The point of the block that holds a value, which is what slots are for; returns the value's place in the block. */
static int64_t block_point(const runtime *rt, int node, const int64_t *point, int64_t to[RT_DIMS]) {
  const rt_block *b = &rt->block[node];
  memcpy(to, point, (size_t)rt->dims[node] * sizeof *to);
  if (b->size == 1)
    return 0;
  to[b->dim] = point[b->dim] / b->size;
  return point[b->dim] % b->size;
}

static void release(runtime *rt, char *data) {
  piece *p = head_of(data);
  if (p->place >= 0)
    rt_away_release(rt->away, p->bytes, p->place);
  if (p->class == AWAY)
    free(p);
  else
    pool_give(&rt->pool, data);
}

static void give_up(runtime *rt, char *data) {
  if (--head_of(data)->held == 0)
    release(rt, data);
}

/* Before the host looks at memory, or writes it, where kernels may be at it. */
static atoll_err settle(const runtime *rt) {
  rt_device *d = rt->pool.device;
  return d ? d->wait(d) : ATOLL_OK;
}

/* The memory goes to the file and its head remains. */
static atoll_err put_away(runtime *rt, char **data) {
  piece *p = head_of(*data), *head = aligned_alloc(ALIGN, ALIGN);
  if (!head)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  atoll_err err = settle(rt);
  if (err == ATOLL_OK && p->changed)
    err = rt_away_write(rt->away, *data, p->bytes, &p->place);
  *head = *p;
  head->class = AWAY;
  head->changed = 0;
  if (err != ATOLL_OK) {
    free(head);
    return err;
  }
  pool_give(&rt->pool, *data);
  *data = (char *)head + ALIGN;
  return ATOLL_OK;
}

static atoll_err bring_back(runtime *rt, char **data) {
  piece *head = head_of(*data), *p;
  char *memory = pool_take(&rt->pool, head->bytes);
  if (!memory)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory for a value of %lld bytes", (long long)head->bytes);
  p = head_of(memory);
  p->held = head->held;
  p->present = head->present;
  p->place = head->place;
  p->changed = 0;
  free(head);
  *data = memory;
  ATOLL_TRY(settle(rt));
  return rt_away_read(rt->away, memory, p->bytes, p->place);
}

/* Where the value, or its block, is; NULL and an error when it is nowhere. */
static char **place_of(runtime *rt, int node, const int64_t *value, const char *what) {
  int64_t point[RT_DIMS];
  (void)block_point(rt, node, value, point);
  int64_t slot = slot_of(&rt->store[node], rt->dims[node], point);
  if (is_at(rt, node, slot, point))
    return &rt->store[node].data[slot];
  rt->err = broken(rt, node, point, what);
  return NULL;
}

static int offload(rt_run *r, int node, const int64_t *value) {
  runtime *rt = of(r);
  char **data = place_of(rt, node, value, "is put away, but is not there");
  if (!data)
    return rt->err;
  return --head_of(*data)->present > 0 ? 0 : (int)(rt->err = put_away(rt, data));
}

static int fetch(rt_run *r, int node, const int64_t *value) {
  runtime *rt = of(r);
  char **data = place_of(rt, node, value, "is brought back, but is nowhere");
  if (data && head_of(*data)->class == AWAY)
    rt->err = bring_back(rt, data);
  if (data)
    head_of(*data)->present++;
  return rt->err;
}

static int donate(rt_run *r, int node, const int64_t *point, int to) {
  runtime *rt = of(r);
  int64_t slot = slot_of(&rt->store[node], rt->dims[node], point);
  if (!rt_is_donated(r->away, node, to))
    return 0;
  if (!is_at(rt, node, slot, point))
    return rt->err = broken(rt, node, point, "is donated, but is not there");
  rt->gift[to] = rt->store[node].data[slot];
  head_of(rt->gift[to])->held++;
  return 0;
}

static char *take(rt_run *r, int node, const int64_t *value, int64_t bytes) {
  runtime *rt = of(r);
  rt_slots *s = &rt->store[node];
  int64_t point[RT_DIMS], place = block_point(rt, node, value, point), size = rt->block[node].size;
  int64_t slot = slot_of(s, rt->dims[node], point);
  if (s->data[slot] && size > 1 && is_at(rt, node, slot, point)) {
    if (head_of(s->data[slot])->class == AWAY && (rt->err = bring_back(rt, &s->data[slot])) != ATOLL_OK)
      return NULL;
    head_of(s->data[slot])->held++;
    head_of(s->data[slot])->present++;
    head_of(s->data[slot])->changed = 1;
    return s->data[slot] + place * bytes;
  }
  if (s->data[slot]) {
    rt->err = is_at(rt, node, slot, point) ? broken(rt, node, point, "is computed twice") : enlarge(rt, node, point);
    if (rt->err != ATOLL_OK)
      return NULL;
    slot = slot_of(s, rt->dims[node], point);
  }
  char *data = rt->gift[node];
  rt->gift[node] = NULL;
  if (!data && (data = pool_take(&rt->pool, size * bytes))) {
    head_of(data)->held = head_of(data)->present = head_of(data)->changed = 1;
    head_of(data)->place = -1;
  }
  if (!data) {
    rt->err = atoll_fail(ATOLL_NOMEM, "recurrent program: no memory for a value of %lld bytes", (long long)bytes);
    return NULL;
  }
  memcpy(rt->keys[node][slot].at, point, (size_t)rt->dims[node] * sizeof *point);
  s->data[slot] = data;
  return data + place * bytes;
}

static int drop(rt_run *r, int node, const int64_t *value) {
  runtime *rt = of(r);
  char **data = place_of(rt, node, value, "is freed, but is not there");
  if (!data)
    return rt->err;
  piece *p = head_of(*data);
  p->present--;
  if (rt->block[node].size > 1 && p->held > 1) {
    p->held--;
    return p->present > 0 ? 0 : (int)(rt->err = put_away(rt, data));
  }
  give_up(rt, *data);
  *data = NULL;
  return 0;
}

/* ---- workspace ---- */

static char *more(rt_run *r, int64_t bytes) {
  runtime *rt = of(r);
  int64_t room = 2 * (r->end - r->base) + bytes;
  char *space = allocate(rt->pool.device, room);
  char **old = realloc(rt->old, (size_t)(rt->olds + 1) * sizeof *old);
  if (old)
    rt->old = old;
  if (!space || !old) {
    deallocate(rt->pool.device, space);
    rt->err = atoll_fail(ATOLL_NOMEM, "recurrent program: no memory for %lld bytes of workspace", (long long)room);
    return NULL;
  }
  rt->old[rt->olds++] = rt->space;
  rt->space = r->base = space;
  r->end = space + room;
  r->top = space + bytes;
  return space;
}

/* ---- functions, products, random numbers, errors ---- */

static int product(rt_run *r, int threads, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_outer,
                   int64_t a_inner, const float *b, int64_t b_outer, int64_t b_inner, float *c, int64_t row) {
  return of(r)->err = atoll_gemm_strided(threads, m, n, k, a, a_outer, a_inner, b, b_outer, b_inner, c, row);
}

static int all_finite(const float *v, int64_t n) {
  enum { EXPONENT = 0x7f800000 };
  int32_t bad = 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, &v[i], sizeof bits);
    bad |= (bits & EXPONENT) == EXPONENT;
  }
  return !bad;
}

/* Results of functions are finite. */
static atoll_err check_finite(const runtime *rt, const atoll_rt *x, const int64_t *point, const void *data,
                              int64_t count) {
  char label[96], at[128];
  int64_t full[RT_DIMS];
  if (x->dtype == ATOLL_F32 && all_finite(data, count))
    return ATOLL_OK;
  for (int64_t i = 0; i < count; i++) {
    double v = rt_load(x->dtype, data, i);
    if (isfinite(v))
      continue;
    full_point(rt, x->id, point, full);
    return atoll_fail(ATOLL_NONFINITE, "%s%s: element %lld of the result is %g", rt_label(x, label, sizeof label),
                      rt_point_text(x, full, at, sizeof at), (long long)i, v);
  }
  return ATOLL_OK;
}

static int call(rt_run *r, int node, const int64_t *point, const rt_arg *in, const rt_arg *out) {
  runtime *rt = of(r);
  const atoll_rt *x = rt->g->node[node];
  const atoll_rt_view *from = (const atoll_rt_view *)(const void *)in, *to = (const atoll_rt_view *)(const void *)out;
  int64_t count = 1;
  if (rt_is_exchange(x))
    return rt->err = rt_exchange_send(x, from, to);
  rt->err = rt_call(x, point, from, to);
  if (rt->err != ATOLL_OK || !out)
    return rt->err;
  for (int k = 0; k < out->ndim; k++)
    count *= out->shape[k];
  return rt->err = check_finite(rt, x, point, out->data, count);
}

static int receive(rt_run *r, int node, const int64_t *value) {
  runtime *rt = of(r);
  const atoll_rt *x = rt->g->node[node];
  int64_t point[RT_DIMS], place = block_point(rt, node, value, point);
  char **data = place_of(rt, node, value, "is received, but was not sent");
  if (!data)
    return rt->err;
  int64_t bytes = head_of(*data)->bytes / rt->block[node].size;
  rt->err = rt_exchange_receive(x, *data + place * bytes);
  if (rt->err == ATOLL_OK)
    rt->err = check_finite(rt, x, value, *data + place * bytes, bytes / (int64_t)atoll_dtype_bytes(x->dtype));
  return rt->err;
}

static void random_numbers(const rt_run *r, int node, const int64_t *coordinate, int64_t first, int64_t n, float *out) {
  const rt_graph *g = ((const runtime *)(const void *)r)->g;
  const atoll_rt *x = g->node[node];
  atoll_rng_key key = rt_random_key(g, x->serial, x->picks, coordinate);
  if (x->normal)
    atoll_rng_fill_normal(&key, (uint64_t)first, (size_t)n, 1.0f, out);
  else
    for (int64_t i = 0; i < n; i++)
      out[i] = atoll_rng_uniform(&key, (uint64_t)(first + i));
}

static int outside(rt_run *r, int node, const int64_t *own, int64_t at, int64_t extent) {
  runtime *rt = of(r);
  int64_t point[RT_DIMS];
  full_point(rt, node, own, point);
  return rt->err = rt_outside(rt->g->node[node], point, at, extent);
}

static int absent(rt_run *r, int node) {
  runtime *rt = of(r);
  char label[96];
  return rt->err = atoll_fail(ATOLL_INTERNAL, "%s is needed where it is not there",
                              rt_label(rt->g->node[node], label, sizeof label));
}

/* ---- a device ---- */

static int launch(rt_run *r, const char *kernel, int64_t threads, int n, const void *const *arguments) {
  rt_device *d = of(r)->pool.device;
  return of(r)->err = d->launch(d, kernel, threads, n, arguments);
}

static int copy(rt_run *r, void *to, const void *from, int64_t bytes) {
  rt_device *d = of(r)->pool.device;
  return of(r)->err = d->copy(d, to, from, bytes);
}

static int wait_all(rt_run *r) {
  rt_device *d = of(r)->pool.device;
  of(r)->err = d->wait(d);
  if (of(r)->err == ATOLL_OK && r->fault[0])
    return outside(r, (int)r->fault[0] - 1, r->fault + 3, r->fault[1], r->fault[2]);
  return of(r)->err;
}

static int error(const rt_run *r) { return ((const runtime *)(const void *)r)->err; }

/* ---- runs ---- */

/* Elements of a value whose shape is the same at all points. */
static atoll_err count_elements(const runtime *rt, const atoll_rt *x, int64_t *count) {
  rt_env env = {{0}, {0}, {0}, {0}};
  int64_t extent;
  *count = 1;
  memcpy(env.bound, rt->bound, sizeof env.bound);
  for (int k = 0; k < x->axes; k++) {
    ATOLL_TRY(rt_eval(rt->g, x->shape[k], &env, &extent));
    *count *= extent;
  }
  return ATOLL_OK;
}

/* What is read beyond the points that there are, once for all of them. */
static atoll_err fill_pads(runtime *rt) {
  for (int i = 0; i < rt->g->nodes; i++) {
    const atoll_rt *x = rt->g->node[i];
    int64_t count;
    if (!x || !x->padded)
      continue;
    ATOLL_TRY(count_elements(rt, x, &count));
    rt->pad[i] = allocate(rt->pool.device, (count + 1) * (int64_t)atoll_dtype_bytes(x->dtype));
    if (!rt->pad[i])
      return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory for a value of %lld elements", (long long)count);
    rt->pad_bytes += count * (int64_t)atoll_dtype_bytes(x->dtype);
    for (int64_t k = 0; k < count; k++)
      rt_store(x->dtype, rt->pad[i], k, rt_round(x->dtype, x->pad));
  }
  return ATOLL_OK;
}

/* What a device reads is in its memory: a copy, which the run owns. */
static atoll_err copy_input(runtime *rt, const atoll_rt *x) {
  int64_t count;
  ATOLL_TRY(count_elements(rt, x, &count));
  for (int d = 0; d < rt->g->dims; d++)
    count *= rt_has(x, d) ? rt->bound[d] : 1;
  count *= (int64_t)atoll_dtype_bytes(x->dtype);
  rt->copied[x->id] = allocate(rt->pool.device, count + 1);
  if (!rt->copied[x->id])
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory for input '%s', %lld bytes", x->name,
                      (long long)count);
  memcpy(rt->copied[x->id], rt->input[x->id], (size_t)count);
  rt->input[x->id] = rt->copied[x->id];
  return ATOLL_OK;
}

static atoll_err bind_inputs(runtime *rt, const atoll_rec_binding *b, int n) {
  ATOLL_TRY(rt_bind_inputs(rt->g, b, n, &rt->input));
  for (int i = 0; rt->pool.device && i < rt->g->nodes; i++)
    if (rt->input[i])
      ATOLL_TRY(copy_input(rt, rt->g->node[i]));
  return ATOLL_OK;
}

static atoll_err prepare(runtime *rt, const rt_run_params *p, const atoll_rec_binding *bindings, int n) {
  size_t nodes = (size_t)rt->g->nodes + 1;
  int64_t room = 1 << 16;
  rt->store = calloc(nodes, sizeof *rt->store);
  rt->keys = calloc(nodes, sizeof *rt->keys);
  rt->dims = calloc(nodes, sizeof *rt->dims);
  rt->block = calloc(nodes, sizeof *rt->block);
  rt->gift = calloc(nodes, sizeof *rt->gift);
  rt->copied = calloc(nodes, sizeof *rt->copied);
  rt->pad = calloc(nodes, sizeof *rt->pad);
  rt->space = allocate(rt->pool.device, room);
  rt->fault = allocate(rt->pool.device, (3 + RT_DIMS) * sizeof *rt->fault);
  int ok =
      rt->copied && rt->pad && rt->fault && rt->store && rt->keys && rt->dims && rt->block && rt->gift && rt->space;
  for (int i = 0; ok && i < rt->g->nodes; i++) {
    const atoll_rt *x = rt->g->node[i];
    rt_block b = x ? rt_block_of(rt->g, x) : (rt_block){-1, 1};
    rt->block[i].size = b.size;
    for (int d = 0; x && d < rt->g->dims; d++) {
      if (d == b.dim)
        rt->block[i].dim = rt->dims[i];
      rt->dims[i] += rt_has(x, d);
    }
    if (x) {
      rt->store[i].data = calloc(1, sizeof(char *));
      rt->keys[i] = malloc(sizeof(coordinates));
      ok = rt->store[i].data && rt->keys[i];
    }
  }
  if (!ok)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  ATOLL_TRY(rt_bounds(rt->g, bindings, n, rt->bound));
  ATOLL_TRY(bind_inputs(rt, bindings, n));
  ATOLL_TRY(fill_pads(rt));
  rt->fault[0] = 0;
  rt->r = (rt_run){.store = rt->store,
                   .input = rt->input,
                   .bound = rt->bound,
                   .pad = (const void *const *)rt->pad,
                   .threads = p->threads,
                   .top = rt->space,
                   .end = rt->space + room,
                   .base = rt->space,
                   .take = take,
                   .drop = drop,
                   .donate = donate,
                   .away = p->away,
                   .offload = offload,
                   .fetch = fetch,
                   .receive = receive,
                   .more = more,
                   .call = call,
                   .random = random_numbers,
                   .product = product,
                   .fault = rt->fault,
                   .launch = launch,
                   .copy = copy,
                   .wait = wait_all,
                   .outside = outside,
                   .absent = absent,
                   .error = error};
  return ATOLL_OK;
}

static int abandon_exchanges(const runtime *rt) {
  int open = 0;
  for (int i = 0; i < rt->g->nodes; i++)
    open |= rt->g->node[i] && rt_exchange_abandon(rt->g->node[i]);
  return open;
}

/* After a failure others may still write to what is on the way, so that memory is lost. */
static void release_memory(runtime *rt) {
  if (abandon_exchanges(rt)) {
    rt_away_destroy(&rt->away);
    return;
  }
  for (int i = 0; i < rt->g->nodes; i++) {
    for (int64_t s = 0; rt->store && rt->store[i].data && s < slots_of(&rt->store[i], rt->dims[i]); s++)
      if (rt->store[i].data[s] && rt->block[i].size > 1)
        release(rt, rt->store[i].data[s]);
      else if (rt->store[i].data[s])
        give_up(rt, rt->store[i].data[s]);
    if (rt->gift && rt->gift[i])
      give_up(rt, rt->gift[i]);
    if (rt->store)
      free(rt->store[i].data);
    if (rt->keys)
      free(rt->keys[i]);
  }
  pool_destroy(&rt->pool);
  rt_away_destroy(&rt->away);
  for (int i = 0; rt->copied && i < rt->g->nodes; i++)
    deallocate(rt->pool.device, rt->copied[i]);
  free(rt->copied);
  for (int i = 0; rt->pad && i < rt->g->nodes; i++)
    deallocate(rt->pool.device, rt->pad[i]);
  free(rt->pad);
  for (int k = 0; k < rt->olds; k++)
    deallocate(rt->pool.device, rt->old[k]);
  free(rt->old);
  deallocate(rt->pool.device, rt->space);
  deallocate(rt->pool.device, rt->fault);
  free(rt->store);
  free(rt->keys);
  free(rt->dims);
  free(rt->block);
  free(rt->gift);
  free(rt->input);
}

void rt_runtime_destroy(rt_runtime **address) {
  if (!*address)
    return;
  release_memory(*address);
  free(*address);
  *address = NULL;
}

atoll_err rt_runtime_create(const rt_graph *g, const rt_run_params *p, const atoll_rec_binding *bindings, int n,
                            rt_runtime **out) {
  runtime *rt = calloc(1, sizeof *rt);
  if (!rt)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  rt->g = g;
  rt->pool.device = p->device;
  atoll_err err = p->device ? p->device->enter(p->device) : ATOLL_OK;
  if (err == ATOLL_OK)
    err = prepare(rt, p, bindings, n);
  if (err == ATOLL_OK && memchr(p->away, 1, (size_t)g->nodes))
    err = rt_away_create(p->folder, &rt->away);
  if (err == ATOLL_OK)
    *out = rt;
  else
    rt_runtime_destroy(&rt);
  return err;
}

atoll_err rt_runtime_execute(rt_runtime *rt, rt_entry program, int64_t *peak) {
  rt_device *device = rt->pool.device;
  atoll_err err = program(&rt->r) != 0 ? rt->err : ATOLL_OK;
  if (device && err == ATOLL_OK) {
    err = (atoll_err)wait_all(&rt->r);
  } else if (device) { /* memory goes only when nobody uses it; the first error counts */
    char message[ATOLL_MESSAGE_MAX];
    (void)snprintf(message, sizeof message, "%s", atoll_err_message());
    (void)device->wait(device);
    err = atoll_fail(err, "%s", message);
  }
  if (err == ATOLL_OK && rt->pool.now != 0)
    err = atoll_fail(ATOLL_INTERNAL, "the schedule leaves %lld bytes of values", (long long)rt->pool.now);
  *peak = rt->pool.peak + rt->pad_bytes;
  return err;
}

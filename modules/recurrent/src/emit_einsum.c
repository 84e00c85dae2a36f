/* Contractions. One that is a matrix product of some size, alone or for every value of outer labels, is the library's
 * (atoll_gemm_strided); all others are loops. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/gemm.h"
#include "emit.h"
#include "emitted.h"

struct label {
  char name;
  int summed;
  const atoll_sym *extent;
  const char *stride[3]; /* of a, b and y; NULL: not there */
};

struct contraction {
  rt_operand o[3];
  struct label label[2 * RT_AXES];
  int labels;
  int blocks; /* operand that lies in blocks, or -1 */
  int walk;   /* the label that walks over them: within a block; `first` is how far it is in the slice */
  int shared; /* the label whose values threads share, or -1 */
  int many;   /* the label whose values are taken AT_ONCE, or -1 */
  int row;    /* the label of rows that are read once for all that is taken at once, or -1, */
  int rows;   /* how many of them are taken together, */
  int ahead;  /* and which of those a copy of this is for: see of_row() */
};

int rt_blocked_operand(const rt_emitter *em, const atoll_rt *x) {
  for (int k = 0; x->op == RT_EINSUM && k < x->inputs; k++)
    if (!rt_is_member(em, &x->in[k]) && rt_is_blocked(em, x, k))
      return k;
  return -1;
}

static void add_labels(rt_emitter *em, struct contraction *c, int i, const char *names) {
  for (int k = 0; k < c->o[i].axes; k++) {
    int l = 0;
    while (l < c->labels && c->label[l].name != names[k])
      l++;
    if (l == c->labels)
      c->label[c->labels++] = (struct label){.name = names[k], .summed = 1, .extent = c->o[i].shape[k]};
    c->label[l].stride[i] = c->o[i].stride[k] ? c->o[i].stride[k] : rt_count(em, c->o[i].axes, c->o[i].shape, k + 1);
    if (i == 2)
      c->label[l].summed = 0;
  }
}

static int find_label(const struct contraction *c, char name) {
  int l = 0;
  while (c->label[l].name != name)
    l++;
  return l;
}

/* The variable of a label; `ahead` values further. */
static const char *label_at(rt_emitter *em, const struct contraction *c, int l, int i, int ahead) {
  const char *s = rt_text(em, "l%c", c->label[l].name);
  if (l == c->walk && i != c->blocks)
    s = rt_text(em, "first + %s", s);
  return ahead || l == c->walk ? rt_text(em, ahead ? "(%s + %d)" : "(%s)", s, ahead) : s;
}

/* Where an operand's element is; labels `repeated` and that of rows count from their loops' variables on. */
static const char *contraction_at(rt_emitter *em, const struct contraction *c, int i, int repeated, int ahead) {
  const char *s = NULL;
  for (int l = 0; l < c->labels; l++)
    if (c->label[l].stride[i]) {
      const int further = l == repeated ? ahead : l == c->row ? c->ahead : 0;
      const char *term = rt_text(em, "%s * %s", label_at(em, c, l, i, further), c->label[l].stride[i]);
      s = s ? rt_text(em, "%s + %s", s, term) : term;
    }
  return s ? s : "0";
}

static const char *contraction_element(rt_emitter *em, const struct contraction *c, int i, int repeated, int ahead) {
  const rt_operand *o = &c->o[i];
  rt_operand flat = *o;
  if (o->kind == RT_FORMULA) {
    em->err = atoll_fail(ATOLL_INTERNAL, "emission: a contraction of a formula");
    return "0";
  }
  if (o->kind == RT_BLOCKS) {
    flat.kind = RT_MEMORY;
    flat.base = "block";
  }
  return rt_loaded(em, &flat, contraction_at(em, c, i, repeated, ahead));
}

static int is_stride(const char *s, const char *is) { return s && strcmp(s, is) == 0; }

static int is_number(const char *s, int64_t *v) {
  char *end;
  *v = strtoll(s, &end, 10);
  return *s && !*end;
}

/* The summed label whose elements lie next to each other in both operands, or -1. */
static int dot_label(const struct contraction *c) {
  for (int l = 0; l < c->labels; l++)
    if (c->label[l].summed && is_stride(c->label[l].stride[0], "1") && is_stride(c->label[l].stride[1], "1"))
      return l;
  return -1;
}

/* The label of the result whose elements lie next to each other in it and in operands that have it, or -1. */
static int row_label(const struct contraction *c) {
  for (int l = 0; l < c->labels; l++) {
    const char *const *s = c->label[l].stride;
    if (is_stride(s[2], "1") && (!s[0] || is_stride(s[0], "1")) && (!s[1] || is_stride(s[1], "1")))
      return l;
  }
  return -1;
}

/* Elements of an operand, as far as they are known; a dynamic axis counts as 64. */
static double weight(const rt_operand *o) {
  double n = 1;
  int64_t extent;
  for (int k = 0; k < o->axes; k++)
    n *= rt_is_const(o->shape[k], &extent) ? (double)extent : 64;
  return n;
}

static int larger_operand(const struct contraction *c) {
  return c->blocks >= 0 ? c->blocks : weight(&c->o[1]) > weight(&c->o[0]);
}

static int is_unit(const struct label *l) {
  int64_t extent;
  return rt_is_const(l->extent, &extent) && extent == 1;
}

/* Outer loops: first that over blocks, then the labels of the larger operand in its order, so that it is read as it
 * lies, then the others, and inside those of one element, which are no loops. */
static int outer_order(const struct contraction *c, const char *const *names, int inner, int *order) {
  int big = larger_operand(c), n = 0;
  if (c->walk >= 0)
    order[n++] = c->walk;
  for (int k = 0; k < c->o[big].axes; k++)
    for (int l = 0; l < c->labels; l++)
      if (c->label[l].name == names[big][k] && l != inner && l != c->walk && !is_unit(&c->label[l]))
        order[n++] = l;
  for (int l = 0; l < c->labels; l++)
    if (l != inner && !c->label[l].stride[big] && !is_unit(&c->label[l]))
      order[n++] = l;
  for (int l = 0; l < c->labels; l++)
    if (l != inner && l != c->walk && is_unit(&c->label[l]))
      order[n++] = l;
  return n;
}

/* Threads share the outermost loop when it is over the result, so that each reads a part of what there is; else the
 * longest loop over the result. Small contractions are not shared: -1. */
static int shared_label(const struct contraction *c, const int *order, int n) {
  int64_t extent, work = 1, longest = 1;
  int found = -1;
  for (int l = 0; l < c->labels; l++)
    work *= rt_is_const(c->label[l].extent, &extent) ? extent : RT_PARALLEL;
  if (work < RT_PARALLEL || n == 0)
    return -1;
  if (!c->label[order[0]].summed)
    return order[0];
  for (int k = 0; k < n; k++)
    if (!c->label[order[k]].summed && rt_is_const(c->label[order[k]].extent, &extent) && extent > longest) {
      longest = extent;
      found = order[k];
    }
  return found;
}

/* An operand without the inner label is one number in the inner loop, and is read before it: as far as the compiler
 * knows, the loop could write it. */
static void hoist_factors(rt_emitter *em, const struct contraction *c, int inner, int repeated, int times,
                          const char **factor) {
  const int k = c->label[inner].stride[0] ? 1 : 0;
  if (c->label[inner].stride[k])
    return;
  const char *type = rt_is_single(c->o[k].dtype) ? "float" : "double";
  for (int u = 0; u < times; u++) {
    factor[u] = rt_text(em, "f%d", u);
    rt_line(em, "const %s %s = %s;", type, factor[u], contraction_element(em, c, k, repeated, u));
  }
}

/* factor: of the operand that is not read in the loop, or NULL. */
static const char *add_product(rt_emitter *em, const atoll_rt *x, const struct contraction *c, int inner, int repeated,
                               int ahead, const char *factor, const char *sum) {
  const char *v[2];
  for (int k = 0; k < 2; k++)
    v[k] = factor && !c->label[inner].stride[k] ? factor : contraction_element(em, c, k, repeated, ahead);
  return rt_is_single(x->dtype) ? rt_text(em, "RT_FMA(%s, %s, %s)", v[0], v[1], sum)
                                : rt_text(em, "%s + %s * %s", sum, v[0], v[1]);
}

enum { LINE = 16, PAGE = 1024 }; /* floats of a line of the caches, and of the places of their sets */

/* Blocks are read `times` places at a time, each for the length of the inner label only: too short for the processor to
 * see where that leads. So the same elements of the next places are asked for, unless places lie a page or more apart,
 * which share the few lines of one set of the first cache. */
static void fetch_next(rt_emitter *em, const struct contraction *c, int inner, int repeated, int times) {
  int64_t extent, apart;
  if (c->walk < 0 || repeated != c->walk || times == 1 || inner < 0 || c->o[c->blocks].dtype != ATOLL_F32 ||
      !is_stride(c->label[inner].stride[c->blocks], "1") || !rt_is_const(c->label[inner].extent, &extent) ||
      extent < LINE || !is_number(c->label[c->walk].stride[c->blocks], &apart) || apart >= PAGE)
    return;
  const char *l = rt_text(em, "l%c", c->label[inner].name);
  rt_open(em, "for (int64_t %s = 0; %s < %" PRId64 "; %s += %d)", l, l, extent, l, LINE);
  for (int u = 0; u < times; u++)
    rt_line(em, "RT_FETCH(block + %s);", contraction_at(em, c, c->blocks, repeated, times + u));
  rt_close(em);
}

enum { WIDEST = 16 }; /* lanes: the most that RT_WIDTH may be */

/* Whether whole vectors of floats are multiplied, wherever the text is compiled. */
static int is_in_vectors(const atoll_rt *x, const struct contraction *c, int inner) {
  int64_t extent;
  int floats = rt_is_single(x->dtype) && rt_is_const(c->label[inner].extent, &extent) && extent % WIDEST == 0;
  for (int k = 0; k < 2; k++)
    floats = floats && c->o[k].dtype == ATOLL_F32 && (c->o[k].kind == RT_MEMORY || c->o[k].kind == RT_BLOCKS);
  return floats;
}

enum { LARGE = 1 << 14 }; /* elements that the first cache does not hold */

/* Whether rows that are taken at once are read one after the other. Memory serves one sequence of addresses two to
 * three times as fast as four of them side by side (Zen 4: 31.6 and 12.5 GB/s); what the first cache holds is faster at
 * once. */
static int rows_in_turn(const struct contraction *c, int repeated, int times) {
  const int big = larger_operand(c);
  return times > 1 && c->walk < 0 && c->label[repeated].stride[big] != NULL && weight(&c->o[big]) >= LARGE;
}

/* A pass over rows that several vectors share asks for its part of rows further on: products hold up reading too long
 * for the processor to run ahead of them. Into the second cache, as the first is full of vectors. */
static void fetch_rows(rt_emitter *em, const struct contraction *c, int inner, int times) {
  enum { AHEAD = 8 };
  const int big = larger_operand(c);
  if (c->row < 0 || weight(&c->o[big]) < LARGE || !is_stride(c->label[inner].stride[big], "1"))
    return;
  const char *l = rt_text(em, "l%c", c->label[inner].name), *i = rt_text(em, "l%c", c->label[c->many].name);
  const char *n = rt_text(em, "%s * %d", rt_size(em, c->label[inner].extent), c->rows);
  const char *all = rt_size(em, c->label[c->many].extent);
  rt_open(em, "for (int64_t %s = %s * %s / %s; %s < (%s + %d) * %s / %s; %s += %d)", l, i, n, all, l, i, times, n, all,
          l, LINE);
  rt_line(em, "RT_FETCH_FAR(%s + %s);", c->o[big].base, contraction_at(em, c, big, c->row, AHEAD));
  rt_close(em);
}

/* The contraction of a row that is `ahead` rows further. */
static struct contraction of_row(const struct contraction *c, int ahead) {
  struct contraction row = *c;
  row.ahead = ahead;
  return row;
}

/* Adds to sums from..to-1 of every row, of which a row has `times`, the vectors of one pass over the inner label. */
static void add_vectors(rt_emitter *em, const struct contraction *c, int inner, int repeated, int from, int to,
                        int times) {
  const char *l = rt_text(em, "l%c", c->label[inner].name);
  rt_open(em, "for (int64_t %s = 0; %s < %s; %s += RT_WIDTH)", l, l, rt_size(em, c->label[inner].extent), l);
  for (int r = 0; r < c->rows; r++) {
    const struct contraction row = of_row(c, r);
    for (int u = from; u < to; u++)
      rt_line(em, "sum[%d] += rt_vector_at(&%s) * rt_vector_at(&%s);", r * times + u,
              contraction_element(em, &row, 0, repeated, u), contraction_element(em, &row, 1, repeated, u));
  }
  rt_close(em);
}

/* Sums over the inner label, for `times`, which are one or AT_ONCE, values of label `repeated` at once. Every sum is
 * made alike, so that it does not depend on how many are made at once. */
static void innermost_vectors(rt_emitter *em, const struct contraction *c, int inner, int repeated, int times, int w) {
  fetch_rows(em, c, inner, times);
  rt_line(em, "rt_vector sum[%d] = {};", times * c->rows);
  if (rows_in_turn(c, repeated, times))
    for (int u = 0; u < times; u++)
      add_vectors(em, c, inner, repeated, u, u + 1, times);
  else
    add_vectors(em, c, inner, repeated, 0, times, times);
  if (times > 1)
    rt_line(em, "float folded[%d];", times);
  for (int r = 0; r < c->rows; r++) {
    const struct contraction row = of_row(c, r);
    if (times > 1)
      rt_line(em, "rt_fold4(sum + %d, folded);", r * times);
    for (int u = 0; u < times; u++)
      rt_line(em, "t%d[%s] += %s;", w, contraction_at(em, &row, 2, repeated, u),
              times > 1 ? rt_text(em, "folded[%d]", u) : rt_text(em, "rt_fold(sum[%d])", r));
  }
}

/* The innermost loop, for `times` values of label `repeated` at once. */
static void innermost(rt_emitter *em, const atoll_rt *x, const struct contraction *c, int inner, int dot, int repeated,
                      int times, int w) {
  const char *reduced = NULL, *sum[8], *to[8], *factor[8] = {NULL};
  fetch_next(em, c, inner, repeated, times);
  if (dot && is_in_vectors(x, c, inner)) {
    innermost_vectors(em, c, inner, repeated, times, w);
    return;
  }
  for (int u = 0; u < times; u++) {
    to[u] = rt_text(em, "t%d[%s]", w, contraction_at(em, c, 2, repeated, u));
    sum[u] = dot ? rt_text(em, "sum%d", u) : to[u];
    reduced = u ? rt_text(em, "%s, %s", reduced, sum[u]) : sum[u];
    if (dot)
      rt_line(em, "%s %s = 0;", rt_compute_type(x->dtype), sum[u]);
  }
  if (inner >= 0 && !dot)
    hoist_factors(em, c, inner, repeated, times, factor);
  if (dot)
    rt_line(em, "_Pragma(\"omp simd reduction(+:%s)\")", reduced);
  else if (inner >= 0)
    rt_simd(em);
  if (inner >= 0)
    rt_loop(em, rt_text(em, "l%c", c->label[inner].name), rt_size(em, c->label[inner].extent));
  for (int u = 0; u < times; u++) {
    const char *value = add_product(em, x, c, inner, repeated, u, factor[u], sum[u]);
    int first = u;
    while (u + 1 < times && strcmp(sum[u + 1], sum[first]) == 0) { /* all go to one sum */
      u++;
      value = add_product(em, x, c, inner, repeated, u, factor[u], value);
    }
    rt_line(em, "%s = %s;", sum[first], value);
  }
  if (inner >= 0)
    rt_close(em);
  for (int u = 0; u < times && dot; u++)
    rt_line(em, "%s += %s;", to[u], sum[u]);
}

static void read_contraction(rt_emitter *em, const atoll_rt *x, struct contraction *c, const char *names[3]) {
  const char *comma = strchr(x->spec, ',');
  names[0] = x->spec;
  names[1] = comma + 1;
  names[2] = strstr(comma, "->") + 2;
  *c = (struct contraction){
      .labels = 0, .blocks = rt_blocked_operand(em, x), .walk = -1, .many = -1, .row = -1, .rows = 1};
  for (int k = 0; k < 2; k++)
    c->o[k] = k == c->blocks ? rt_blocks_of(em, x, k) : rt_operand_of(em, x, k, 0);
  c->o[2] = (rt_operand){.kind = RT_MEMORY, .dtype = x->dtype, .axes = x->axes};
  memcpy(c->o[2].shape, x->shape, sizeof c->o[2].shape);
  for (int i = 0; i < 3; i++)
    add_labels(em, c, i, names[i]);
  for (int l = 0; l < c->labels && c->blocks >= 0; l++)
    if (c->label[l].name == names[c->blocks][0])
      c->walk = l;
}

/* Ends of a label's loop: a thread's part of the one that threads share. */
static const char *label_from(const struct contraction *c, int l) { return l == c->shared ? "from" : "0"; }
static const char *label_to(rt_emitter *em, const struct contraction *c, int l) {
  return l == c->shared ? "to" : rt_size(em, c->label[l].extent);
}

/* The loop over blocks: in it, "block" is where one begins in memory, `first` where its part of the slice begins. */
static void open_blocks(rt_emitter *em, const struct contraction *c) {
  const rt_operand *o = &c->o[c->blocks];
  const char *one = rt_count(em, o->axes, o->shape, 1), *type = rt_storage_type(o->dtype);
  rt_line(em, "const int64_t stop = %s + %s;", o->lo, label_to(em, c, c->walk));
  rt_open(em, "for (int64_t at = %s + %s, next; at < stop; at = next)", o->lo, label_from(c, c->walk));
  rt_line(em, "next = rt_min(stop, (at / %" PRId64 " + 1) * %" PRId64 ");", o->size, o->size);
  rt_line(em, "const int64_t first = at - %s, count = next - at;", o->lo);
  rt_line(em, "const %s *block = %s[at / %" PRId64 " - %s / %" PRId64 "] + at %% %" PRId64 " * %s;", type, o->base,
          o->size, o->lo, o->size, o->size, one);
}

enum { AT_ONCE = 4 };  /* values of a label */
enum { TOGETHER = 2 }; /* rows: eight sums, which hide how long a product takes */

static int is_multiple(const struct contraction *c, int l, int of) {
  int64_t extent;
  return l != c->walk && rt_is_const(c->label[l].extent, &extent) && extent % of == 0;
}

/* Whether nothing is left when a label is taken AT_ONCE values at a time. */
static int is_even(const struct contraction *c, int l) { return is_multiple(c, l, AT_ONCE); }

/* Whether label u, around v, continues it in operand i (or is in it no more than v is). */
static int continues(const struct contraction *c, int u, int v, int i) {
  const char *outer = c->label[u].stride[i], *inner = c->label[v].stride[i];
  int64_t s, t, extent;
  if (!outer || !inner)
    return !outer && !inner;
  return is_number(outer, &s) && is_number(inner, &t) && rt_is_const(c->label[v].extent, &extent) && s == t * extent;
}

/* Which of the loops takes values AT_ONCE: returns its place. Vectors that the larger operand's rows are multiplied by,
 * where there are several, so that a row is read once for all of them, and of many vectors a vector once for two rows;
 * else the outermost. */
static int take_at_once(const atoll_rt *x, struct contraction *c, const int *order, int n, int inner, int dot) {
  int last = n - 1;
  int64_t extent;
  while (last > 0 && is_unit(&c->label[order[last]]))
    last--;
  if (n)
    c->many = order[0];
  if (!dot || c->walk >= 0 || last <= 0 || !is_in_vectors(x, c, inner))
    return 0;
  const struct label *l = &c->label[order[last]];
  if (l->summed || l->stride[larger_operand(c)] || !rt_is_const(l->extent, &extent) || extent < AT_ONCE)
    return 0;
  c->many = order[last];
  c->row = order[last - 1];
  if (extent >= 2 * AT_ONCE && is_multiple(c, c->row, TOGETHER) && continues(c, c->row, inner, larger_operand(c)))
    c->rows = TOGETHER;
  return last;
}

/* A loop of a label, `step` values at a time. */
static void open_label(rt_emitter *em, const struct contraction *c, int l, int step) {
  const char *i = rt_text(em, "l%c", c->label[l].name);
  rt_open(em, "for (int64_t %s = %s; %s < %s; %s += %d)", i, label_from(c, l), i, label_to(em, c, l), i, step);
}

/* All loops. One of them, at `place`, takes values AT_ONCE, which share what the loops inside read, and then the
 * rest. */
static void contract(rt_emitter *em, const atoll_rt *x, const struct contraction *c, const int *order, int n, int place,
                     int inner, int dot, int w) {
  const char *i = n ? rt_text(em, "l%c", c->label[c->many].name) : NULL, *to = NULL;
  if (c->walk >= 0)
    open_blocks(em, c);
  for (int k = 0; k < place; k++)
    open_label(em, c, order[k], order[k] == c->row ? c->rows : 1);
  if (n)
    to = c->walk >= 0 ? "count" : label_to(em, c, c->many);
  if (n)
    rt_line(em, "int64_t %s = %s;", i, c->walk >= 0 ? "0" : label_from(c, c->many));
  const int least = n && is_even(c, c->many) ? AT_ONCE : 1;
  for (int times = n ? AT_ONCE : 1; times >= least; times -= AT_ONCE - 1) {
    if (n)
      rt_open(em, "for (; %s + %d <= %s; %s += %d)", i, times, to, i, times);
    for (int k = place + 1; k < n; k++)
      open_label(em, c, order[k], 1);
    innermost(em, x, c, inner, dot, c->many, times, w);
    for (int k = place; k < n; k++)
      rt_close(em);
  }
  for (int k = 0; k < place; k++)
    rt_close(em);
  if (c->walk >= 0)
    rt_close(em);
}

/* ---- blocks in one sweep ----
 *
 * What comes from beyond the caches comes fastest in the order of addresses, so a block is read place by place and each
 * place from its first element to its last. What all places share, queries or sums, must stay in the first cache
 * meanwhile. Factors and results that lie along the places, such as the scores of heads, have each place's elements far
 * apart, often in one set of that cache: of more than a set has ways they are kept place by place for SWEEP places,
 * between which they are gathered or spread, a line at a time.
 *
 * One core of a Zen 4, 8 heads of 64, all of the past, T = 8192: 0.36 ms a token, 0.47 to 0.53 with four places at
 * once; a row of 16 texts, which exceeds the first cache, 1.65 instead of 0.94. */

enum { SWEEP = 16, NEAR = 1 << 14, SHARED = 1 << 11, WAYS = 8 }; /* places; bytes of what is kept; floats; lines */

struct sweep {
  int side;                         /* the factor or, 2, the result that lies along the places */
  int64_t stride[2 * RT_AXES], all; /* of its elements of one place, by label */
};

/* Its elements of one place as a dense array; 0: they are too many, or their number is not known. */
static int find_place(const struct contraction *c, struct sweep *s, const char *names) {
  s->all = 1;
  for (int k = (int)strcspn(names, ",-") - 1; k >= 0; k--) {
    int64_t extent;
    const int l = find_label(c, names[k]);
    if (l == c->walk)
      continue;
    if (!rt_is_const(c->label[l].extent, &extent) || extent > NEAR)
      return 0;
    s->stride[l] = s->all;
    s->all *= extent;
    if (s->all * SWEEP * (int64_t)sizeof(float) > NEAR)
      return 0;
  }
  return 1;
}

/* The innermost of the outer loops that is one. */
static int last_loop(const struct contraction *c, const int *order, int n) {
  int last = n - 1;
  while (last > 1 && is_unit(&c->label[order[last]]))
    last--;
  return last;
}

/* Whether a block is read as it lies: its rows one after the other and, where each is summed, AT_ONCE sums. */
static int is_sweep(const atoll_rt *x, const struct contraction *c, const char *const *names, const int *order, int n,
                    int inner, int dot, struct sweep *s) {
  *s = (struct sweep){.side = dot ? 2 : 1 - c->blocks};
  const int shared = dot ? 1 - c->blocks : 2;
  if (c->walk < 0 || inner < 0 || n < 2 || !is_in_vectors(x, c, inner) || !c->label[inner].stride[c->blocks])
    return 0;
  for (int l = 0; l < c->labels; l++)
    if (c->label[l].summed && l != (dot ? inner : c->walk))
      return 0;
  const int last = last_loop(c, order, n);
  if (c->label[c->walk].stride[shared] || weight(&c->o[shared]) > SHARED || c->label[inner].stride[s->side] ||
      !c->label[c->walk].stride[s->side] || (dot && !is_even(c, order[last])))
    return 0;
  return find_place(c, s, names[s->side]);
}

/* Where the element at hand is in "near", `ahead` values of label `repeated` further. */
static const char *near_at(rt_emitter *em, const struct contraction *c, const struct sweep *s, int repeated,
                           int ahead) {
  const char *at = rt_text(em, "row * %" PRId64, s->all);
  for (int l = 0; l < c->labels; l++)
    if (s->stride[l])
      at = rt_text(em, "%s + %s * %" PRId64, at, label_at(em, c, l, s->side, l == repeated ? ahead : 0), s->stride[l]);
  return at;
}

/* Gathers factors, or spreads results. */
static void carry(rt_emitter *em, const struct contraction *c, const struct sweep *s, int w) {
  int loops = 1;
  for (int l = 0; l < c->labels; l++)
    if (s->stride[l]) {
      open_label(em, c, l, 1);
      loops++;
    }
  rt_open(em, "for (int64_t row = 0; row < rows; row++)");
  rt_line(em, "const int64_t l%c = done + row;", c->label[c->walk].name);
  if (s->side == 2)
    rt_line(em, "t%d[%s] = near[%s];", w, contraction_at(em, c, 2, -1, 0), near_at(em, c, s, -1, 0));
  else
    rt_line(em, "near[%s] = %s;", near_at(em, c, s, -1, 0), contraction_element(em, c, s->side, -1, 0));
  while (loops-- > 0)
    rt_close(em);
}

static void contract_in_sweep(rt_emitter *em, const atoll_rt *x, const struct contraction *c, const struct sweep *s,
                              const int *order, int n, int inner, int dot, int w) {
  const int last = last_loop(c, order, n), keeps = s->all > WAYS;
  open_blocks(em, c);
  if (keeps)
    rt_line(em, "float near[%d * %" PRId64 "];", SWEEP, s->all);
  rt_open(em, "for (int64_t done = 0, rows; done < count; done += rows)");
  rt_line(em, keeps ? "rows = rt_min(count - done, %d);" : "rows = count;", SWEEP);
  if (!dot && keeps)
    carry(em, c, s, w);
  rt_open(em, "for (int64_t row = 0; row < rows; row++)");
  rt_line(em, "const int64_t l%c = done + row;", c->label[c->walk].name);
  for (int k = 1; k < n; k++)
    open_label(em, c, order[k], dot && k == last ? AT_ONCE : 1);
  if (dot) {
    rt_line(em, "rt_vector sum[%d] = {};", AT_ONCE);
    add_vectors(em, c, inner, order[last], 0, AT_ONCE, AT_ONCE);
    rt_line(em, "float folded[%d];", AT_ONCE);
    rt_line(em, "rt_fold4(sum, folded);");
    for (int u = 0; u < AT_ONCE; u++)
      rt_line(em, "%s = folded[%d];",
              keeps ? rt_text(em, "near[%s]", near_at(em, c, s, order[last], u))
                    : rt_text(em, "t%d[%s]", w, contraction_at(em, c, 2, order[last], u)),
              u);
  } else {
    const char *to = rt_text(em, "t%d[%s]", w, contraction_at(em, c, 2, -1, 0));
    rt_line(em, "const float f0 = %s;",
            keeps ? rt_text(em, "near[%s]", near_at(em, c, s, -1, 0)) : contraction_element(em, c, s->side, -1, 0));
    rt_simd(em);
    rt_loop(em, rt_text(em, "l%c", c->label[inner].name), rt_size(em, c->label[inner].extent));
    rt_line(em, "%s = %s;", to, add_product(em, x, c, inner, -1, 0, "f0", to));
    rt_close(em);
  }
  for (int k = 1; k < n; k++)
    rt_close(em);
  rt_close(em);
  if (dot && keeps)
    carry(em, c, s, w);
  rt_close(em);
  rt_close(em);
}

/* ---- on a device: every element of the result is a sum of its own ---- */

/* Where it is read from, in blocks or not. */
static const char *summand(rt_emitter *em, const struct contraction *c, int i) {
  const rt_operand *o = &c->o[i];
  const char *at = "0", *base = o->base;
  for (int l = 0; l < c->labels; l++) {
    const char *place = rt_text(em, "l%c", c->label[l].name);
    if (!c->label[l].stride[i])
      continue;
    if (o->kind == RT_BLOCKS && l == c->walk) {
      const char *slice = rt_text(em, "(%s + %s)", o->lo, place);
      base = rt_text(em, "%s[%s / %" PRId64 " - %s / %" PRId64 "]", o->base, slice, o->size, o->lo, o->size);
      place = rt_text(em, "%s %% %" PRId64, slice, o->size);
    }
    at = rt_text(em, "%s + %s * %s", at, place, c->label[l].stride[i]);
  }
  rt_operand flat = *o;
  flat.kind = o->kind == RT_BLOCKS ? RT_MEMORY : o->kind;
  flat.base = base;
  return rt_loaded(em, &flat, at);
}

/* Lanes share the sum over elements that lie next to each other. */
static void contract_by_kernel(rt_emitter *em, const atoll_rt *x, const struct contraction *c, const char *names) {
  const char *count = rt_count(em, x->axes, x->shape, 0), *type = rt_compute_type(x->dtype), *at[RT_AXES];
  int dot = dot_label(c), loops = 0;
  for (int k = 0; k < x->axes; k++)
    at[k] = rt_text(em, "l%c", names[k]);
  rt_kernel_begin(em);
  rt_open_elements(em, x->axes, x->shape, at, dot >= 0);
  rt_line(em, "%s s = 0;", type);
  for (int l = 0; l < c->labels; l++)
    if (c->label[l].summed && l != dot) {
      rt_loop(em, rt_text(em, "l%c", c->label[l].name), rt_size(em, c->label[l].extent));
      loops++;
    }
  if (dot >= 0) {
    const char *l = rt_text(em, "l%c", c->label[dot].name);
    rt_open(em, "for (int64_t %s = rt_thread() %% RT_LANES; %s < %s; %s += RT_LANES)", l, l,
            rt_size(em, c->label[dot].extent), l);
    loops++;
  }
  const char *a = summand(em, c, 0), *b = summand(em, c, 1);
  rt_line(em, rt_is_single(x->dtype) ? "s = RT_FMA(%s, %s, s);" : "s += %s * %s;", a, b);
  while (loops-- > 0)
    rt_close(em);
  if (dot >= 0)
    rt_line(em, "s = rt_lanes_sum%s(s);", rt_is_single(x->dtype) ? "f" : "");
  rt_line(em, "%s[at] = %s;", rt_place(em, x), rt_stored(em, x->dtype, rt_rounded(em, x->dtype, x->dtype, "s")));
  rt_close(em);
  rt_kernel_end(em, dot >= 0 ? rt_text(em, "32 * %s", count) : count);
}

/* ---- products of the library ---- */

/* When a call pays. Measured against the loops on two Zen 3 cores: 128 x 64 x 64 54 GFLOP/s to 40, 256 x 1536 x 512 73
 * to 41; of four rows, with 1536 x 512 weights, 14 to 10. Of few rows and short sums the loops are faster, and, where
 * both operands are read along the sum, by vectors, up to 16 rows at the least: on Zen 4, a token of 4, 8 and 16 texts,
 * with 113 MB of weights, takes 4.3, 8.0 and 18.7 ms and would take 11.3, 15.1 and 27.4. */
enum { WIDE = 32, WIDE_WORK = 1 << 15, NARROW = 4, NARROW_SUM = 256, NARROW_WORK = 1 << 19 };

static int pays(double m, double n, double k, int in_vectors) {
  double least = m < n ? m : n, work = m * n * k;
  return least >= WIDE ? work >= WIDE_WORK : !in_vectors && least >= NARROW && k >= NARROW_SUM && work >= NARROW_WORK;
}

/* Of products that stay in the caches the library packs nothing, so that few rows or columns will do for a call to pay:
 * more than a vector of either, whose elements lie side by side where there are few of the other to turn them for.
 * Sums over neighbours in both operands are loops as good. */
enum { SMALL_LANES = 16, SMALL_ROWS = 8, SMALL_WORK = 1 << 13 };

/* Labels that are walked as one index, the last fastest. */
struct index {
  int label[2 * RT_AXES], n;
};

struct product {
  struct index loop, side[2], sum; /* side[k]: labels of operand k and the result */
};

static int is_one_index(const struct contraction *c, const struct index *x) {
  for (int k = 0; k + 1 < x->n; k++)
    for (int i = 0; i < 3; i++)
      if (!continues(c, x->label[k], x->label[k + 1], i))
        return 0;
  return 1;
}

/* Leaves in x the inner labels that make one index; those around them become loops. */
static void peel(const struct contraction *c, struct index *x, struct index *loop) {
  while (!is_one_index(c, x)) {
    loop->label[loop->n++] = x->label[0];
    memmove(x->label, x->label + 1, (size_t)(--x->n) * sizeof *x->label);
  }
}

static void add_label(struct index *x, int l) {
  for (int k = 0; k < x->n; k++)
    if (x->label[k] == l)
      return;
  x->label[x->n++] = l;
}

/* As far as it is known; a dynamic extent counts as 64. */
static double length(const struct contraction *c, const struct index *x) {
  double n = 1;
  int64_t extent;
  for (int k = 0; k < x->n; k++)
    n *= rt_is_const(c->label[x->label[k]].extent, &extent) ? (double)extent : 64;
  return n;
}

/* Sorts labels into rows, columns, sums and loops; 0: it is no product. */
static int find_product(const struct contraction *c, const char *const *names, struct product *p) {
  *p = (struct product){.sum = {.n = 0}};
  for (const char *y = names[2]; *y; y++) { /* in the order of the result */
    int l = find_label(c, *y), in = (c->label[l].stride[0] != NULL) + 2 * (c->label[l].stride[1] != NULL);
    if (!is_unit(&c->label[l]))
      add_label(in == 1 ? &p->side[0] : in == 2 ? &p->side[1] : &p->loop, l);
  }
  for (int l = 0; l < c->labels; l++) {
    if (!c->label[l].summed || is_unit(&c->label[l]))
      continue;
    if (!c->label[l].stride[0] || !c->label[l].stride[1])
      return 0;
    add_label(&p->sum, l);
  }
  peel(c, &p->side[0], &p->loop);
  peel(c, &p->side[1], &p->loop);
  return p->side[0].n && p->side[1].n && p->sum.n && is_one_index(c, &p->sum);
}

static int is_known(const struct contraction *c, const struct index *x) {
  int64_t extent;
  for (int k = 0; k < x->n; k++)
    if (!rt_is_const(c->label[x->label[k]].extent, &extent))
      return 0;
  return 1;
}

static int pays_when_small(const struct contraction *c, const struct product *p, int swap) {
  const struct index *rows = &p->side[swap], *columns = &p->side[!swap];
  if (!is_known(c, rows) || !is_known(c, columns) || !is_known(c, &p->sum))
    return 0;
  const double m = length(c, rows), n = length(c, columns), k = length(c, &p->sum), least = m < n ? m : n;
  if (least < 2 || m * n * k < SMALL_WORK || m * k + n * k + m * n > ATOLL_GEMM_SMALL_FLOATS ||
      k > ATOLL_GEMM_SMALL_SUM || (dot_label(c) >= 0 && k >= SMALL_LANES))
    return 0;
  const int side_by_side = is_stride(c->label[columns->label[columns->n - 1]].stride[!swap], "1");
  return n >= SMALL_LANES ? m >= SMALL_ROWS || side_by_side : m >= SMALL_LANES;
}

/* Whether it pays, and rows of the result lie in one piece; *swap: the result's rows are operand 1's. */
static int is_product(const atoll_rt *x, const struct contraction *c, const char *const *names, struct product *p,
                      int *swap) {
  for (int k = 0; k < 2; k++)
    if (c->o[k].kind != RT_MEMORY || c->o[k].dtype != ATOLL_F32)
      return 0;
  if (x->dtype != ATOLL_F32 || !find_product(c, names, p))
    return 0;
  const int dot = dot_label(c), in_vectors = dot >= 0 && is_in_vectors(x, c, dot);
  const int large = pays(length(c, &p->side[0]), length(c, &p->side[1]), length(c, &p->sum), in_vectors);
  for (*swap = 0; *swap < 2; ++*swap) {
    const struct index *columns = &p->side[!*swap];
    if (is_stride(c->label[columns->label[columns->n - 1]].stride[2], "1"))
      return large || pays_when_small(c, p, *swap);
  }
  return 0;
}

static const char *extent_of(rt_emitter *em, const struct contraction *c, const struct index *x) {
  const char *s = rt_size(em, c->label[x->label[0]].extent);
  for (int k = 1; k < x->n; k++)
    s = rt_text(em, "%s * %s", s, rt_size(em, c->label[x->label[k]].extent));
  return s;
}

static const char *stride_of(const struct contraction *c, const struct index *x, int i) {
  return c->label[x->label[x->n - 1]].stride[i];
}

/* Where operand i begins in the loops. */
static const char *begin_of(rt_emitter *em, const struct contraction *c, const struct index *loop, int i,
                            const char *base) {
  for (int k = 0; k < loop->n; k++)
    if (c->label[loop->label[k]].stride[i])
      base = rt_text(em, "%s + l%c * %s", base, c->label[loop->label[k]].name, c->label[loop->label[k]].stride[i]);
  return base;
}

static void emit_product(rt_emitter *em, const atoll_rt *x, const struct contraction *c, const struct product *p,
                         int swap) {
  const struct index *rows = &p->side[swap], *columns = &p->side[!swap];
  const char *m = extent_of(em, c, rows), *n = extent_of(em, c, columns), *k = extent_of(em, c, &p->sum);
  for (int l = 0; l < p->loop.n; l++)
    rt_loop(em, rt_text(em, "l%c", c->label[p->loop.label[l]].name), rt_size(em, c->label[p->loop.label[l]].extent));
  rt_line(em,
          "const int failed = r->product(r, rt_parts(r, %s * %s * %s), %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);", m,
          n, k, m, n, k, begin_of(em, c, &p->loop, swap, c->o[swap].base), stride_of(c, rows, swap),
          stride_of(c, &p->sum, swap), begin_of(em, c, &p->loop, !swap, c->o[!swap].base), stride_of(c, columns, !swap),
          stride_of(c, &p->sum, !swap), begin_of(em, c, &p->loop, 2, rt_place(em, x)), stride_of(c, rows, 2));
  rt_line(em, "if (failed)");
  rt_line(em, "  return failed;");
  for (int l = 0; l < p->loop.n; l++)
    rt_close(em);
}

/* ---- ---- */

void rt_emit_einsum(rt_emitter *em, const atoll_rt *x) {
  const char *names[3], *count = rt_count(em, x->axes, x->shape, 0), *type = rt_compute_type(x->dtype);
  struct contraction c;
  int order[2 * RT_AXES];
  read_contraction(em, x, &c, names);
  struct product p;
  int swap;
  if (em->kernels) {
    contract_by_kernel(em, x, &c, names[2]);
    return;
  }
  if (is_product(x, &c, names, &p, &swap)) {
    emit_product(em, x, &c, &p, swap);
    return;
  }
  /* Sums are kept in the type of computation; where that is the type of storage, in place. */
  const char *y = rt_place(em, x);
  int own = strcmp(type, rt_storage_type(x->dtype)) != 0, w = em->names++;
  if (own) {
    rt_line(em, "%s *t%d = (%s *)rt_space(r, %s * (int64_t)sizeof(%s));", type, w, type, count, type);
    rt_line(em, "if (!t%d)", w);
    rt_line(em, "  return r->error(r);");
  } else {
    rt_line(em, "%s *t%d = %s;", type, w, y);
  }
  int dot = dot_label(&c), inner = dot >= 0 ? dot : row_label(&c), n = outer_order(&c, names, inner, order);
  struct sweep sweep;
  const int in_sweep = is_sweep(x, &c, names, order, n, inner, dot >= 0, &sweep);
  if (!in_sweep || dot < 0) { /* else each is set once */
    rt_loop(em, "i", count);
    rt_line(em, "t%d[i] = 0;", w);
    rt_close(em);
  }
  const int place = in_sweep ? 0 : take_at_once(x, &c, order, n, inner, dot >= 0);
  c.shared = shared_label(&c, order, n);
  if (c.shared >= 0) {
    const char *work = "1", *all = rt_size(em, c.label[c.shared].extent);
    for (int l = 0; l < c.labels; l++)
      work = rt_text(em, "%s * %s", work, rt_size(em, c.label[l].extent));
    rt_line(em, "const int parts = rt_parts(r, %s);", work);
    rt_line(em, "_Pragma(\"omp parallel for num_threads(parts) if (parts > 1)\")");
    rt_open(em, "for (int part = 0; part < parts; part++)");
    const int unit = c.shared == c.row ? c.rows : c.shared == c.many && is_even(&c, c.shared) ? AT_ONCE : 1;
    rt_line(em, "const int64_t from = %s / %d * part / parts * %d, to = %s / %d * (part + 1) / parts * %d;", all, unit,
            unit, all, unit, unit);
  }
  if (in_sweep)
    contract_in_sweep(em, x, &c, &sweep, order, n, inner, dot >= 0, w);
  else
    contract(em, x, &c, order, n, place, inner, dot >= 0, w);
  if (c.shared >= 0)
    rt_close(em);
  if (own) {
    rt_loop(em, "i", count);
    rt_line(em, "%s[i] = %s;", y,
            rt_stored(em, x->dtype, rt_rounded(em, x->dtype, x->dtype, rt_text(em, "t%d[i]", w))));
    rt_close(em);
  }
}

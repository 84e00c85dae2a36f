/* Symbolic expressions: pool, hash-consing and simplification.
 *
 * Promise of simplification. If an expression, evaluated as it was written, has a value, the simplified one has the
 * same value. Where the written one fails (an intermediate result beyond 64 bits, a division by zero) the simplified
 * one may still have the value of mathematics: x*2^40 - x*2^40 is 0. It never gives a wrong number and never fails
 * where the written one does not.
 *
 * Integer sums and products are therefore flat, and sym_eval.c evaluates each as a whole: a sum in 192 bits with one
 * check at the end, a product with zero factors looked at first. Reordering and collecting terms then cannot introduce
 * an overflow.
 *
 *   sum      ADD[constants..., terms...]   term = c*m, c an int64 constant, m a product without constant, an atom or an
 * opaque product; sorted by m, each m once. A total coefficient beyond 64 bits is split into pieces MAX, MAX, ...,
 * rest, so the form remains a function of the total. product  MUL[c?, factors...]           factors sorted, with
 * repetition; c times a single sum is multiplied out opaque   MUL[a, b]                     when the constant factor of
 * a*b is beyond 64 bits (such a product has a value only if MUL[c, sum]                   something is 0), or
 * multiplying out would be: kept as written
 *
 * SUB appears for reals only; an integer a - b is a + -1*b. MIN, MAX, AND and OR are flat, sorted and without
 * repetition. The order is structural (constants, variables by name, then operators), so equal expressions print alike
 * in every pool and on every rank.
 *
 * Reals are rounded, so they are only rewritten where IEEE arithmetic gives the same bits: constants folded, operands
 * of + * == sorted, x*1, x/1, x-0. No value is ever infinite or NaN.
 *
 * AND is false when an operand is false, whatever the others do, and OR is true likewise; a failing operand matters
 * only if none decides. So sorting cannot break a guard such as n != 0 and m // n > 2. SELECT evaluates the chosen
 * branch alone. */
#include "atoll/sym.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sym_impl.h"

#define PIECES_MAX           64              /* of one coefficient in a sum */
#define PRODUCT_CONSTANT_MAX ((wide)1 << 63) /* one more than fits, since a factor -1 may follow */
#define SUM_CONSTANT_MAX     ((wide)1 << 66)

struct chunk {
  struct chunk *next;
  size_t used, size;
  max_align_t data[];
};

struct atoll_syms {
  struct chunk *chunks;
  const atoll_sym **table; /* open addressing, power-of-two size, at most half full */
  size_t slots, count;
  struct sym_error error;
};

/* ---- errors ---- */

const atoll_sym *sym_refuse(atoll_syms *pool, atoll_err code, const char *fmt, ...) {
  if (pool->error.code == ATOLL_OK) {
    va_list args;
    va_start(args, fmt);
    pool->error.code = code;
    (void)vsnprintf(pool->error.text, sizeof pool->error.text, fmt, args);
    va_end(args);
  }
  return NULL;
}

atoll_err atoll_syms_error(atoll_syms *pool) {
  atoll_err code = pool->error.code;
  if (code == ATOLL_OK)
    return ATOLL_OK;
  pool->error.code = ATOLL_OK;
  return atoll_fail(code, "%s", pool->error.text);
}

void sym_error_swap(atoll_syms *pool, struct sym_error *e) {
  struct sym_error keep = pool->error;
  pool->error = *e;
  *e = keep;
}

const char *sym_type_name(atoll_sym_type t) {
  return t == ATOLL_SYM_INT ? "int" : t == ATOLL_SYM_REAL ? "real" : "bool";
}

const char *sym_op_name(atoll_sym_op op) {
  static const char *const names[] = {"constant", "variable", "+",  "-",  "*",   "//", "%",   "/",      "min", "max",
                                      "<",        "<=",       "==", "!=", "and", "or", "not", "select", "real"};
  return (unsigned)op < sizeof names / sizeof names[0] ? names[op] : "?";
}

/* ---- pool ---- */

atoll_err atoll_syms_create(atoll_syms **out) {
  atoll_syms *pool = calloc(1, sizeof *pool);
  if (!pool)
    return atoll_fail(ATOLL_NOMEM, "no memory for a pool of expressions");
  pool->error.code = ATOLL_OK;
  *out = pool;
  return ATOLL_OK;
}

void atoll_syms_destroy(atoll_syms **pool) {
  if (!pool || !*pool)
    return;
  for (struct chunk *c = (*pool)->chunks, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  free((*pool)->table);
  free(*pool);
  *pool = NULL;
}

size_t atoll_syms_count(const atoll_syms *pool) { return pool->count; }

static void *pool_alloc(atoll_syms *pool, size_t bytes) {
  bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
  if (!pool->chunks || pool->chunks->size - pool->chunks->used < bytes) {
    size_t size = bytes > 16384 ? bytes : 16384;
    struct chunk *c = malloc(sizeof *c + size);
    if (!c)
      return NULL;
    c->next = pool->chunks;
    c->used = 0;
    c->size = size;
    pool->chunks = c;
  }
  void *p = (char *)pool->chunks->data + pool->chunks->used;
  pool->chunks->used += bytes;
  return p;
}

static uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
  return h ^ h >> 29;
}

static uint64_t hash_of(const atoll_sym *key, const atoll_sym *const *args) {
  uint64_t h = mix(key->op + 1, key->type);
  if (key->op == ATOLL_SYM_VAR) {
    for (const char *p = key->v.name; *p; p++)
      h = mix(h, (unsigned char)*p);
    return h;
  }
  if (key->op == ATOLL_SYM_CONST) {
    uint64_t bits;
    memcpy(&bits, &key->v, sizeof bits);
    return mix(h, bits);
  }
  for (int i = 0; i < key->arity; i++)
    h = mix(h, args[i]->hash);
  return h;
}

static int same_node(const atoll_sym *e, const atoll_sym *key, const atoll_sym *const *args) {
  if (e->hash != key->hash || e->op != key->op || e->type != key->type || e->arity != key->arity)
    return 0;
  if (e->op == ATOLL_SYM_VAR)
    return strcmp(e->v.name, key->v.name) == 0;
  if (e->op == ATOLL_SYM_CONST)
    return memcmp(&e->v, &key->v, sizeof e->v) == 0; /* so 0.0 and -0.0 differ */
  for (int i = 0; i < e->arity; i++)
    if (e->arg[i] != args[i])
      return 0;
  return 1;
}

/* The slot that holds the node, or the free one where it belongs. The table is not empty. */
static size_t slot_find(const atoll_syms *pool, const atoll_sym *key, const atoll_sym *const *args) {
  size_t i = (size_t)key->hash & (pool->slots - 1);
  while (pool->table[i] && !same_node(pool->table[i], key, args))
    i = (i + 1) & (pool->slots - 1);
  return i;
}

static const atoll_sym *intern(atoll_syms *pool, atoll_sym *key, const atoll_sym *const *args) {
  key->hash = hash_of(key, args);
  if (2 * (pool->count + 1) > pool->slots) {
    size_t slots = pool->slots ? 2 * pool->slots : 256;
    const atoll_sym **table = calloc(slots, sizeof *table);
    if (!table)
      return sym_refuse(pool, ATOLL_NOMEM, "no memory for %zu expressions", pool->count + 1);
    for (size_t i = 0; i < pool->slots; i++)
      if (pool->table[i]) {
        size_t j = (size_t)pool->table[i]->hash & (slots - 1);
        while (table[j])
          j = (j + 1) & (slots - 1);
        table[j] = pool->table[i];
      }
    free(pool->table);
    pool->table = table;
    pool->slots = slots;
  }
  size_t slot = slot_find(pool, key, args);
  if (pool->table[slot])
    return pool->table[slot];
  key->pool = pool;
  key->depth = 1;
  key->tree = 1;
  for (int i = 0; i < key->arity; i++) {
    if (args[i]->depth >= key->depth)
      key->depth = args[i]->depth + 1;
    key->tree = key->tree > UINT64_MAX - args[i]->tree ? UINT64_MAX : key->tree + args[i]->tree;
  }
  if (key->depth > SYM_DEPTH_MAX)
    return sym_refuse(pool, ATOLL_USAGE, "expression is nested deeper than %d", SYM_DEPTH_MAX);
  size_t args_bytes = (size_t)key->arity * sizeof(atoll_sym *);
  size_t name_bytes = key->op == ATOLL_SYM_VAR ? strlen(key->v.name) + 1 : 0;
  atoll_sym *e = pool_alloc(pool, sizeof *e + args_bytes + name_bytes);
  if (!e)
    return sym_refuse(pool, ATOLL_NOMEM, "no memory for expression %zu", pool->count + 1);
  *e = *key;
  if (args_bytes)
    memcpy(e->arg, args, args_bytes);
  if (name_bytes) {
    char *name = (char *)(e->arg + e->arity);
    memcpy(name, key->v.name, name_bytes);
    e->v.name = name;
  }
  pool->table[slot] = e;
  pool->count++;
  return e;
}

static const atoll_sym *make(atoll_syms *pool, atoll_sym_op op, atoll_sym_type type, int opaque,
                             const atoll_sym *const *args, size_t n) {
  atoll_sym key;
  memset(&key, 0, sizeof key);
  if (n > INT32_MAX)
    return sym_refuse(pool, ATOLL_USAGE, "%zu operands of %s", n, sym_op_name(op));
  key.op = (uint8_t)op;
  key.type = (uint8_t)type;
  key.opaque = (uint8_t)opaque;
  key.arity = (int)n;
  return intern(pool, &key, args);
}

static const atoll_sym *make2(atoll_syms *pool, atoll_sym_op op, atoll_sym_type type, const atoll_sym *a,
                              const atoll_sym *b) {
  const atoll_sym *args[2] = {a, b};
  return make(pool, op, type, 0, args, 2);
}

static const atoll_sym *constant(atoll_syms *pool, atoll_sym_type type, int64_t i, double r) {
  atoll_sym key;
  memset(&key, 0, sizeof key);
  key.op = ATOLL_SYM_CONST;
  key.type = (uint8_t)type;
  if (type == ATOLL_SYM_REAL)
    key.v.r = r;
  else
    key.v.i = i;
  return intern(pool, &key, NULL);
}

const atoll_sym *atoll_sym_int(atoll_syms *pool, int64_t v) { return constant(pool, ATOLL_SYM_INT, v, 0); }

const atoll_sym *atoll_sym_real(atoll_syms *pool, double v) {
  if (!isfinite(v))
    return sym_refuse(pool, ATOLL_USAGE, "real constant %g is not finite", v);
  return constant(pool, ATOLL_SYM_REAL, 0, v);
}

const atoll_sym *atoll_sym_bool(atoll_syms *pool, int v) { return constant(pool, ATOLL_SYM_BOOL, v != 0, 0); }

static int letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

int sym_reserved(const char *word, size_t n) {
  static const char *const words[] = {"min", "max", "and", "or", "not", "select", "real", "ceildiv", "true", "false"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0)
      return 1;
  return 0;
}

static void var_key(atoll_sym *key, const char *name, atoll_sym_type type) {
  memset(key, 0, sizeof *key);
  key->op = ATOLL_SYM_VAR;
  key->type = (uint8_t)type;
  key->v.name = name;
}

const atoll_sym *sym_find_var(const atoll_syms *pool, const char *name) {
  if (!pool->slots)
    return NULL;
  for (int t = ATOLL_SYM_INT; t <= ATOLL_SYM_BOOL; t++) {
    atoll_sym key;
    var_key(&key, name, (atoll_sym_type)t);
    key.hash = hash_of(&key, NULL);
    const atoll_sym *e = pool->table[slot_find(pool, &key, NULL)];
    if (e)
      return e;
  }
  return NULL;
}

const atoll_sym *atoll_sym_var(atoll_syms *pool, const char *name, atoll_sym_type type) {
  size_t n = name ? strlen(name) : 0;
  int good = n > 0 && letter(name[0]) && (unsigned)type <= ATOLL_SYM_BOOL;
  for (size_t i = 1; i < n && good; i++)
    good = letter(name[i]) || (name[i] >= '0' && name[i] <= '9') || name[i] == '.';
  if (!good || sym_reserved(name, n))
    return sym_refuse(
        pool, ATOLL_USAGE,
        "'%s' cannot name a variable: expected a letter, then letters, digits, _ or ., no word of the grammar",
        name ? name : "(null)");
  const atoll_sym *known = sym_find_var(pool, name);
  if (known && known->type != type)
    return sym_refuse(pool, ATOLL_USAGE, "variable %s is %s, not %s", name, sym_type_name((atoll_sym_type)known->type),
                      sym_type_name(type));
  if (known)
    return known;
  atoll_sym key;
  var_key(&key, name, type);
  return intern(pool, &key, NULL);
}

/* ---- order ---- */

static int rank_of(const atoll_sym *e) {
  /* Sums last, so that a printed product never starts "c*(sum)*...", which would read back as multiplied out, unless
   * all are sums. */
  return e->op == ATOLL_SYM_CONST ? 0 : e->op == ATOLL_SYM_VAR ? 1 : e->op == ATOLL_SYM_ADD ? 3 : 2;
}

#define THREE_WAY(a, b) (((a) > (b)) - ((a) < (b)))

/* Structural and total; equal means the same node. Descends along one path only, since equal children are the same
 * pointer. */
static int compare(const atoll_sym *a, const atoll_sym *b) {
  while (a != b) {
    int c = THREE_WAY(rank_of(a), rank_of(b));
    c = c ? c : THREE_WAY(a->op, b->op);
    c = c ? c : THREE_WAY(a->type, b->type);
    if (c)
      return c;
    if (a->op == ATOLL_SYM_VAR)
      return strcmp(a->v.name, b->v.name);
    if (a->op == ATOLL_SYM_CONST) {
      c = a->type == ATOLL_SYM_REAL ? THREE_WAY(a->v.r, b->v.r) : THREE_WAY(a->v.i, b->v.i);
      return c ? c : memcmp(&a->v, &b->v, sizeof a->v); /* 0.0 and -0.0 */
    }
    if (a->arity != b->arity)
      return THREE_WAY(a->arity, b->arity);
    int i = 0;
    while (a->arg[i] == b->arg[i]) /* some operand differs, else hash-consing had made them one */
      i++;
    const atoll_sym *x = a->arg[i], *y = b->arg[i];
    a = x;
    b = y;
  }
  return 0;
}

static int compare_args(const void *a, const void *b) {
  return compare(*(const atoll_sym *const *)a, *(const atoll_sym *const *)b);
}

/* ---- lists that grow ---- */

struct list {
  const atoll_sym **p;
  size_t n, room;
  int failed; /* out of memory */
  const atoll_sym *few[16];
};

static void list_init(struct list *l) {
  l->p = l->few;
  l->n = 0;
  l->room = sizeof l->few / sizeof l->few[0];
  l->failed = 0;
}

static void list_add(struct list *l, const atoll_sym *e) {
  if (l->n == l->room) {
    const atoll_sym **more = malloc(2 * l->room * sizeof *more);
    if (!more) {
      l->failed = 1;
      return;
    }
    memcpy(more, l->p, l->n * sizeof *more);
    if (l->p != l->few)
      free(l->p);
    l->p = more;
    l->room *= 2;
  }
  l->p[l->n++] = e;
}

static void list_done(struct list *l) {
  if (l->p != l->few)
    free(l->p);
}

static void list_sort(struct list *l) { qsort(l->p, l->n, sizeof *l->p, compare_args); }

struct term {
  wide c;
  const atoll_sym *m; /* NULL: the constant of the sum */
};

struct terms {
  struct term *p;
  size_t n, room;
  int failed;
  struct term few[16];
};

static void terms_init(struct terms *t) {
  t->p = t->few;
  t->n = 0;
  t->room = sizeof t->few / sizeof t->few[0];
  t->failed = 0;
}

static void terms_add(struct terms *t, wide c, const atoll_sym *m) {
  if (t->n == t->room) {
    struct term *more = malloc(2 * t->room * sizeof *more);
    if (!more) {
      t->failed = 1;
      return;
    }
    memcpy(more, t->p, t->n * sizeof *more);
    if (t->p != t->few)
      free(t->p);
    t->p = more;
    t->room *= 2;
  }
  t->p[t->n++] = (struct term){c, m};
}

static void terms_done(struct terms *t) {
  if (t->p != t->few)
    free(t->p);
}

static const atoll_sym *no_memory(atoll_syms *pool) {
  return sym_refuse(pool, ATOLL_NOMEM, "no memory to simplify an expression");
}

/* ---- integer sums and products ---- */

static const atoll_sym *int_mul(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b);
static int gather(const atoll_sym *e, wide *c, struct list *l, wide limit);

/* A product of sorted factors without constant; 1 when there are none. */
static const atoll_sym *product_of(atoll_syms *pool, const atoll_sym *const *factors, size_t n) {
  return n == 0   ? atoll_sym_int(pool, 1)
         : n == 1 ? factors[0]
                  : make(pool, ATOLL_SYM_MUL, ATOLL_SYM_INT, 0, factors, n);
}

/* scale * e as terms. An error leaves t->failed or the pool's error. */
static void collect(atoll_syms *pool, const atoll_sym *e, wide scale, struct terms *t) {
  if (e->op == ATOLL_SYM_ADD) {
    for (int i = 0; i < e->arity; i++)
      collect(pool, e->arg[i], scale, t);
  } else if (sym_is_const(e)) {
    terms_add(t, scale * e->v.i, NULL);
  } else if (e->op == ATOLL_SYM_MUL && !e->opaque && sym_is_const(e->arg[0])) {
    const atoll_sym *m = product_of(pool, e->arg + 1, (size_t)e->arity - 1);
    if (m)
      terms_add(t, scale * e->arg[0]->v.i, m);
    else
      t->failed = 1;
  } else if (e->op == ATOLL_SYM_MUL && e->opaque) {
    /* A constant just beyond 64 bits is no coefficient of a product, but in a sum it may cancel or lose a part. */
    struct list l;
    wide c = 1, scaled = 0;
    list_init(&l);
    int split = gather(e, &c, &l, SUM_CONSTANT_MAX) && !wide_fits(c) && !__builtin_mul_overflow(scale, c, &scaled);
    if (split && l.n == 1 &&
        l.p[0]->op == ATOLL_SYM_ADD) /* c*(sum) is a term of its own while multiplying out is impossible */
      split = 0;
    if (split)
      list_sort(&l);
    const atoll_sym *m = !split ? e : l.n ? product_of(pool, l.p, l.n) : NULL;
    if (l.failed || (split && l.n && !m))
      t->failed = 1;
    else
      terms_add(t, split ? scaled : scale, m);
    list_done(&l);
  } else {
    terms_add(t, scale, e);
  }
}

static int compare_terms(const void *a, const void *b) {
  const struct term *x = a, *y = b;
  if (!x->m || !y->m)
    return THREE_WAY(x->m != NULL, y->m != NULL);
  return compare(x->m, y->m);
}

/* The canonical sum of the terms, which are reordered. */
static const atoll_sym *sum_of(atoll_syms *pool, struct terms *t) {
  const atoll_sym *e = NULL;
  struct list args;
again:
  list_init(&args);
  qsort(t->p, t->n, sizeof *t->p, compare_terms);
  size_t n = 0;
  for (size_t i = 0; i < t->n; i++) {
    if (n && t->p[n - 1].m == t->p[i].m)
      t->p[n - 1].c += t->p[i].c; /* at most 2^127 / 2^126 terms overflow: coefficients stem from pieces of 64 bits */
    else
      t->p[n++] = t->p[i];
  }
  t->n = n;
  for (size_t i = 0; i < n && !t->failed; i++) {
    wide c = t->p[i].c;
    for (int pieces = 0; c != 0; pieces++) {
      int64_t piece = c > INT64_MAX ? INT64_MAX : c < INT64_MIN ? INT64_MIN : (int64_t)c;
      const atoll_sym *k = pieces < PIECES_MAX ? atoll_sym_int(pool, piece)
                                               : sym_refuse(pool, ATOLL_USAGE,
                                                            "a coefficient of a sum exceeds %d times 2^63", PIECES_MAX);
      const atoll_sym *arg = !k ? NULL : t->p[i].m ? int_mul(pool, k, t->p[i].m) : k;
      if (!arg)
        goto done;
      if (arg->op == ATOLL_SYM_ADD) { /* an opaque c*(sum) that now could be multiplied out */
        t->p[i].c -= piece;
        collect(pool, arg, 1, t);
        list_done(&args);
        goto again;
      }
      list_add(&args, arg);
      c -= piece;
    }
  }
  if (args.failed || t->failed)
    e = no_memory(pool);
  else if (args.n == 0)
    e = atoll_sym_int(pool, 0);
  else
    e = args.n == 1 ? args.p[0] : make(pool, ATOLL_SYM_ADD, ATOLL_SYM_INT, 0, args.p, args.n);
done:
  list_done(&args);
  return e;
}

static const atoll_sym *int_add(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b, int sign) {
  struct terms t;
  if (sym_is_int(b, 0))
    return a;
  if (sym_is_int(a, 0) && sign > 0)
    return b;
  terms_init(&t);
  collect(pool, a, 1, &t);
  collect(pool, b, sign, &t);
  const atoll_sym *e = t.failed ? no_memory(pool) : sum_of(pool, &t);
  terms_done(&t);
  return e;
}

/* Factors of e into l, constants into *c; 0 when the constant passes the limit (at most 2^66) in magnitude, from where
 * no further factor brings it back. */
static int gather(const atoll_sym *e, wide *c, struct list *l, wide limit) {
  if (sym_is_const(e)) {
    wide p;
    if (__builtin_mul_overflow(*c, (wide)e->v.i, &p) || p > limit || p < -limit)
      return 0;
    *c = p;
    return 1;
  }
  if (e->op != ATOLL_SYM_MUL) {
    list_add(l, e);
    return 1;
  }
  for (int i = 0; i < e->arity; i++)
    if (!gather(e->arg[i], c, l, limit))
      return 0;
  return 1;
}

/* c * sum multiplied out, or as an opaque product when a coefficient would pass 64 bits. */
static const atoll_sym *scale_sum(atoll_syms *pool, int64_t c, const atoll_sym *sum) {
  struct terms t;
  terms_init(&t);
  collect(pool, sum, c, &t);
  int fits = 1;
  for (size_t i = 0; i < t.n; i++)
    fits = fits && wide_fits(t.p[i].c);
  const atoll_sym *e = NULL;
  if (t.failed)
    e = no_memory(pool);
  else if (fits)
    e = sum_of(pool, &t);
  else {
    const atoll_sym *args[2] = {atoll_sym_int(pool, c), sum};
    e = args[0] ? make(pool, ATOLL_SYM_MUL, ATOLL_SYM_INT, 1, args, 2) : NULL;
  }
  terms_done(&t);
  return e;
}

static const atoll_sym *int_mul(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b) {
  if (sym_is_int(a, 0) || sym_is_int(b, 1))
    return a;
  if (sym_is_int(b, 0) || sym_is_int(a, 1))
    return b;
  const atoll_sym *e = NULL;
  wide c = 1;
  struct list l;
  list_init(&l);
  if (!gather(a, &c, &l, PRODUCT_CONSTANT_MAX) || !gather(b, &c, &l, PRODUCT_CONSTANT_MAX) || !wide_fits(c)) {
    const atoll_sym *args[2] = {a, b};
    qsort(args, 2, sizeof args[0], compare_args);
    e = make(pool, ATOLL_SYM_MUL, ATOLL_SYM_INT, 1, args, 2);
  } else if (l.failed) {
    e = no_memory(pool);
  } else if (l.n == 0) {
    e = atoll_sym_int(pool, (int64_t)c);
  } else if (l.n == 1 && l.p[0]->op == ATOLL_SYM_ADD && c != 1) {
    e = scale_sum(pool, (int64_t)c, l.p[0]);
  } else {
    list_sort(&l);
    const atoll_sym *k = atoll_sym_int(pool, (int64_t)c);
    if (c != 1 && k) { /* the constant goes first */
      list_add(&l, k);
      if (!l.failed) {
        memmove(l.p + 1, l.p, (l.n - 1) * sizeof *l.p);
        l.p[0] = k;
      }
    }
    e = !k ? NULL : l.failed ? no_memory(pool) : product_of(pool, l.p, l.n);
  }
  list_done(&l);
  return e;
}

/* m without the factors of d (sorted, no constant); NULL when some is missing or memory is (then *failed). */
static const atoll_sym *cancel(atoll_syms *pool, const atoll_sym *m, const struct list *d, int *failed) {
  const atoll_sym *q = NULL;
  struct list f, rest;
  wide c = 1;
  list_init(&f);
  list_init(&rest);
  if (!gather(m, &c, &f, PRODUCT_CONSTANT_MAX) || c != 1 || f.failed) /* an opaque product inside: leave it */
    goto done;
  list_sort(&f);
  size_t j = 0;
  for (size_t i = 0; i < f.n; i++) {
    if (j < d->n && f.p[i] == d->p[j])
      j++;
    else
      list_add(&rest, f.p[i]);
  }
  if (j == d->n && !rest.failed) {
    q = product_of(pool, rest.p, rest.n);
    *failed = !q;
  }
done:
  list_done(&f);
  list_done(&rest);
  return q;
}

/* Divide each term of a by b where that leaves no remainder but in the constant. quotient (floor) or, with want_mod,
 * what is left. NULL without *failed: no rule applies. */
static const atoll_sym *divide_terms(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b, int want_mod,
                                     int *failed) {
  const atoll_sym *e = NULL;
  wide c = 1, rest = 0;
  struct list d;
  struct terms t, q;
  list_init(&d);
  terms_init(&t);
  terms_init(&q);
  if (!gather(b, &c, &d, PRODUCT_CONSTANT_MAX) || c == 0)
    goto done;
  list_sort(&d);
  collect(pool, a, 1, &t);
  for (size_t i = 0; i < t.n && !t.failed; i++) {
    if (!t.p[i].m) {
      if (d.n)
        goto done;
      rest += t.p[i].c;
      continue;
    }
    if (t.p[i].c % c != 0 || !wide_fits(t.p[i].c))
      goto done;
    const atoll_sym *m = cancel(pool, t.p[i].m, &d, failed);
    if (!m)
      goto done;
    if (sym_is_const(m)) /* 1: all factors went */
      terms_add(&q, t.p[i].c / c, NULL);
    else
      collect(pool, m, t.p[i].c / c, &q); /* a lone sum falls apart into its terms */
  }
  if (t.failed || q.failed || d.failed) {
    *failed = 1;
    e = no_memory(pool);
    goto done;
  }
  wide floored = wide_floordiv(rest, c);
  if (want_mod) {
    wide m = rest - floored * c;
    e = atoll_sym_int(pool, (int64_t)m);
  } else {
    terms_add(&q, floored, NULL);
    e = q.failed ? no_memory(pool) : sum_of(pool, &q);
  }
  *failed = !e;
done:
  list_done(&d);
  terms_done(&t);
  terms_done(&q);
  return e;
}

static const atoll_sym *int_floordiv(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b) {
  int failed = 0;
  if (sym_is_int(b, 1) || (sym_is_int(a, 0) && !sym_is_int(b, 0)))
    return a;
  if (sym_is_const(a) && sym_is_const(b)) {
    if (b->v.i != 0 && wide_fits(wide_floordiv(a->v.i, b->v.i)))
      return atoll_sym_int(pool, (int64_t)wide_floordiv(a->v.i, b->v.i));
    return make2(pool, ATOLL_SYM_FLOORDIV, ATOLL_SYM_INT, a, b); /* fails when evaluated */
  }
  if (a == b)
    return atoll_sym_int(pool, 1);
  const atoll_sym *e = divide_terms(pool, a, b, 0, &failed);
  if (e || failed)
    return e;
  /* (x // k) // l = x // (k l) for positive k and l */
  if (a->op == ATOLL_SYM_FLOORDIV && sym_is_const(a->arg[1]) && sym_is_const(b) && a->arg[1]->v.i > 0 && b->v.i > 0 &&
      wide_fits((wide)a->arg[1]->v.i * b->v.i)) {
    const atoll_sym *k = atoll_sym_int(pool, a->arg[1]->v.i * b->v.i);
    return k ? int_floordiv(pool, a->arg[0], k) : NULL;
  }
  return make2(pool, ATOLL_SYM_FLOORDIV, ATOLL_SYM_INT, a, b);
}

static const atoll_sym *int_mod(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b) {
  int failed = 0;
  if (sym_is_const(a) && sym_is_const(b) && b->v.i == 0)
    return make2(pool, ATOLL_SYM_MOD, ATOLL_SYM_INT, a, b);
  if (a == b || sym_is_int(b, 1) || sym_is_int(b, -1) || (sym_is_int(a, 0) && !sym_is_int(b, 0)))
    return atoll_sym_int(pool, 0);
  const atoll_sym *e = divide_terms(pool, a, b, 1, &failed);
  if (e || failed)
    return e;
  if (a->op == ATOLL_SYM_MOD && a->arg[1] == b)
    return a;
  return make2(pool, ATOLL_SYM_MOD, ATOLL_SYM_INT, a, b);
}

/* ---- comparisons, min and max ---- */

/* 1 when a - b is a constant by form, then its sign in *sign. */
static int constant_difference(const atoll_sym *a, const atoll_sym *b, int *sign) {
  const atoll_sym *const *p[2], *one[2] = {a, b};
  int n[2];
  wide c[2] = {0, 0};
  if (a->type != ATOLL_SYM_INT) {
    if (a == b)
      *sign = 0;
    else if (sym_is_const(a) && sym_is_const(b))
      *sign = a->type == ATOLL_SYM_REAL ? THREE_WAY(a->v.r, b->v.r) : THREE_WAY(a->v.i, b->v.i);
    return a == b || (sym_is_const(a) && sym_is_const(b));
  }
  for (int k = 0; k < 2; k++) {
    const atoll_sym *e = one[k];
    p[k] = e->op == ATOLL_SYM_ADD ? e->arg : &one[k];
    n[k] = e->op == ATOLL_SYM_ADD ? e->arity : 1;
    for (; n[k] && sym_is_const(p[k][0]); n[k]--, p[k]++)
      c[k] += p[k][0]->v.i;
  }
  if (n[0] != n[1])
    return 0;
  for (int i = 0; i < n[0]; i++)
    if (p[0][i] != p[1][i])
      return 0;
  *sign = THREE_WAY(c[0], c[1]);
  return 1;
}

/* Operands of a flat operator into l. */
static void flatten(const atoll_sym *e, atoll_sym_op op, struct list *l) {
  if (e->op != op) {
    list_add(l, e);
    return;
  }
  for (int i = 0; i < e->arity; i++)
    list_add(l, e->arg[i]);
}

static const atoll_sym *min_max(atoll_syms *pool, atoll_sym_op op, const atoll_sym *a, const atoll_sym *b) {
  struct list l, kept;
  list_init(&l);
  list_init(&kept);
  flatten(a, op, &l);
  flatten(b, op, &l);
  for (size_t i = 0; i < l.n; i++) {
    int sign, drop = 0;
    for (size_t j = 0; j < kept.n && !drop; j++) {
      if (!constant_difference(l.p[i], kept.p[j], &sign))
        continue;
      drop = 1; /* one of the two is always the winner */
      if (op == ATOLL_SYM_MIN ? sign < 0 : sign > 0)
        kept.p[j] = l.p[i];
    }
    if (!drop)
      list_add(&kept, l.p[i]);
  }
  list_sort(&kept);
  const atoll_sym *e = l.failed || kept.failed ? no_memory(pool)
                       : kept.n == 1           ? kept.p[0]
                                               : make(pool, op, (atoll_sym_type)a->type, 0, kept.p, kept.n);
  list_done(&l);
  list_done(&kept);
  return e;
}

static const atoll_sym *comparison(atoll_syms *pool, atoll_sym_op op, const atoll_sym *a, const atoll_sym *b) {
  int sign;
  if (constant_difference(a, b, &sign))
    return atoll_sym_bool(pool, op == ATOLL_SYM_LT   ? sign < 0
                                : op == ATOLL_SYM_LE ? sign <= 0
                                : op == ATOLL_SYM_EQ ? sign == 0
                                                     : sign != 0);
  if (op == ATOLL_SYM_EQ || op == ATOLL_SYM_NE) {
    if (compare(a, b) > 0) {
      const atoll_sym *swap = a;
      a = b;
      b = swap;
    }
    if (a->type == ATOLL_SYM_BOOL && sym_is_const(a)) /* b == true, b != false: b itself */
      return (a->v.i != 0) == (op == ATOLL_SYM_EQ) ? b : atoll_sym_not(pool, b);
  }
  return make2(pool, op, ATOLL_SYM_BOOL, a, b);
}

/* ---- logic ---- */

/* 1 when y is what atoll_sym_not(x) gives. */
static int negates(const atoll_sym *x, const atoll_sym *y) {
  switch (x->op) {
  case ATOLL_SYM_NOT:
    return x->arg[0] == y;
  case ATOLL_SYM_LT:
    return y->op == ATOLL_SYM_LE && y->arg[0] == x->arg[1] && y->arg[1] == x->arg[0];
  case ATOLL_SYM_LE:
    return y->op == ATOLL_SYM_LT && y->arg[0] == x->arg[1] && y->arg[1] == x->arg[0];
  case ATOLL_SYM_EQ:
    return y->op == ATOLL_SYM_NE && y->arg[0] == x->arg[0] && y->arg[1] == x->arg[1];
  case ATOLL_SYM_NE:
    return y->op == ATOLL_SYM_EQ && y->arg[0] == x->arg[0] && y->arg[1] == x->arg[1];
  default:
    return y->op == ATOLL_SYM_NOT && y->arg[0] == x;
  }
}

static const atoll_sym *and_or(atoll_syms *pool, atoll_sym_op op, const atoll_sym *a, const atoll_sym *b) {
  const int absorbing = op == ATOLL_SYM_OR; /* true or x, false and x */
  const atoll_sym *e = NULL;
  struct list l, kept;
  list_init(&l);
  list_init(&kept);
  flatten(a, op, &l);
  flatten(b, op, &l);
  int decided = 0;
  for (size_t i = 0; i < l.n && !decided; i++) {
    int drop = sym_is_const(l.p[i]);
    decided = drop && l.p[i]->v.i == absorbing;
    for (size_t j = 0; j < kept.n && !drop && !decided; j++) {
      drop = kept.p[j] == l.p[i];
      decided = negates(kept.p[j], l.p[i]);
    }
    if (!drop && !decided)
      list_add(&kept, l.p[i]);
  }
  if (l.failed || kept.failed)
    e = no_memory(pool);
  else if (decided || kept.n == 0)
    e = atoll_sym_bool(pool, decided ? absorbing : !absorbing);
  else {
    list_sort(&kept);
    e = kept.n == 1 ? kept.p[0] : make(pool, op, ATOLL_SYM_BOOL, 0, kept.p, kept.n);
  }
  list_done(&l);
  list_done(&kept);
  return e;
}

/* ---- reals ---- */

static const atoll_sym *real_binary(atoll_syms *pool, atoll_sym_op op, const atoll_sym *a, const atoll_sym *b) {
  if (sym_is_const(a) && sym_is_const(b) && (op != ATOLL_SYM_DIV || b->v.r != 0)) {
    double r = op == ATOLL_SYM_ADD   ? a->v.r + b->v.r
               : op == ATOLL_SYM_SUB ? a->v.r - b->v.r
               : op == ATOLL_SYM_MUL ? a->v.r * b->v.r
                                     : a->v.r / b->v.r;
    if (isfinite(r))
      return atoll_sym_real(pool, r);
  }
  int one_b = sym_is_const(b) && b->v.r == 1;
  if ((op == ATOLL_SYM_MUL || op == ATOLL_SYM_DIV) && one_b)
    return a;
  if (op == ATOLL_SYM_MUL && sym_is_const(a) && a->v.r == 1)
    return b;
  /* x - 0 and x + -0 keep the sign of a zero x, x + 0 does not. */
  if (op == ATOLL_SYM_SUB && sym_is_const(b) && b->v.r == 0 && !signbit(b->v.r))
    return a;
  if ((op == ATOLL_SYM_ADD || op == ATOLL_SYM_MUL) && compare(a, b) > 0)
    return make2(pool, op, ATOLL_SYM_REAL, b, a);
  return make2(pool, op, ATOLL_SYM_REAL, a, b);
}

/* ---- public constructors ---- */

/* 1 when all operands are usable in this pool; else an error is pending. */
static int usable(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b, const atoll_sym *c) {
  const atoll_sym *e[3] = {a, b, c};
  for (int i = 0; i < 3; i++) {
    if (!e[i]) {
      (void)sym_refuse(pool, ATOLL_USAGE, "an operand is missing (NULL)");
      return 0;
    }
    if (e[i]->pool != pool) {
      (void)sym_refuse(pool, ATOLL_USAGE, "an operand belongs to another pool");
      return 0;
    }
  }
  return 1;
}

static const atoll_sym *wrong_types(atoll_syms *pool, atoll_sym_op op, const atoll_sym *a, const atoll_sym *b) {
  char x[96], y[96];
  return sym_refuse(pool, ATOLL_USAGE, "%s takes no %s '%s' with %s '%s'", sym_op_name(op),
                    sym_type_name((atoll_sym_type)a->type), sym_brief(a, x, sizeof x),
                    sym_type_name((atoll_sym_type)b->type), sym_brief(b, y, sizeof y));
}

const atoll_sym *atoll_sym_binary(atoll_syms *pool, atoll_sym_op op, const atoll_sym *a, const atoll_sym *b) {
  if (!usable(pool, a, b, b))
    return NULL;
  int both_int = a->type == ATOLL_SYM_INT && b->type == ATOLL_SYM_INT;
  int both_real = a->type == ATOLL_SYM_REAL && b->type == ATOLL_SYM_REAL;
  int both_bool = a->type == ATOLL_SYM_BOOL && b->type == ATOLL_SYM_BOOL;
  switch (op) {
  case ATOLL_SYM_ADD:
  case ATOLL_SYM_SUB:
    if (both_int)
      return int_add(pool, a, b, op == ATOLL_SYM_ADD ? 1 : -1);
    return both_real ? real_binary(pool, op, a, b) : wrong_types(pool, op, a, b);
  case ATOLL_SYM_MUL:
    if (both_int)
      return int_mul(pool, a, b);
    return both_real ? real_binary(pool, op, a, b) : wrong_types(pool, op, a, b);
  case ATOLL_SYM_DIV:
    return both_real ? real_binary(pool, op, a, b) : wrong_types(pool, op, a, b);
  case ATOLL_SYM_FLOORDIV:
    return both_int ? int_floordiv(pool, a, b) : wrong_types(pool, op, a, b);
  case ATOLL_SYM_MOD:
    return both_int ? int_mod(pool, a, b) : wrong_types(pool, op, a, b);
  case ATOLL_SYM_MIN:
  case ATOLL_SYM_MAX:
    return both_int || both_real ? min_max(pool, op, a, b) : wrong_types(pool, op, a, b);
  case ATOLL_SYM_LT:
  case ATOLL_SYM_LE:
    return both_int || both_real ? comparison(pool, op, a, b) : wrong_types(pool, op, a, b);
  case ATOLL_SYM_EQ:
  case ATOLL_SYM_NE:
    return a->type == b->type ? comparison(pool, op, a, b) : wrong_types(pool, op, a, b);
  case ATOLL_SYM_AND:
  case ATOLL_SYM_OR:
    return both_bool ? and_or(pool, op, a, b) : wrong_types(pool, op, a, b);
  default:
    return sym_refuse(pool, ATOLL_USAGE, "operator %d (%s) does not take two operands", (int)op, sym_op_name(op));
  }
}

const atoll_sym *atoll_sym_not(atoll_syms *pool, const atoll_sym *a) {
  if (!usable(pool, a, a, a))
    return NULL;
  if (a->type != ATOLL_SYM_BOOL)
    return wrong_types(pool, ATOLL_SYM_NOT, a, a);
  switch (a->op) {
  case ATOLL_SYM_CONST:
    return atoll_sym_bool(pool, !a->v.i);
  case ATOLL_SYM_NOT:
    return a->arg[0];
  /* There is no NaN, so order is total. */
  case ATOLL_SYM_LT:
    return make2(pool, ATOLL_SYM_LE, ATOLL_SYM_BOOL, a->arg[1], a->arg[0]);
  case ATOLL_SYM_LE:
    return make2(pool, ATOLL_SYM_LT, ATOLL_SYM_BOOL, a->arg[1], a->arg[0]);
  case ATOLL_SYM_EQ:
    return make2(pool, ATOLL_SYM_NE, ATOLL_SYM_BOOL, a->arg[0], a->arg[1]);
  case ATOLL_SYM_NE:
    return make2(pool, ATOLL_SYM_EQ, ATOLL_SYM_BOOL, a->arg[0], a->arg[1]);
  default:
    return make(pool, ATOLL_SYM_NOT, ATOLL_SYM_BOOL, 0, &a, 1);
  }
}

const atoll_sym *atoll_sym_select(atoll_syms *pool, const atoll_sym *c, const atoll_sym *a, const atoll_sym *b) {
  if (!usable(pool, c, a, b))
    return NULL;
  if (c->type != ATOLL_SYM_BOOL)
    return wrong_types(pool, ATOLL_SYM_SELECT, c, a);
  if (a->type != b->type)
    return wrong_types(pool, ATOLL_SYM_SELECT, a, b);
  if (sym_is_const(c))
    return c->v.i ? a : b;
  if (a == b)
    return a;
  if (c->op == ATOLL_SYM_NOT || c->op == ATOLL_SYM_NE) {
    c = atoll_sym_not(pool, c);
    return c ? atoll_sym_select(pool, c, b, a) : NULL;
  }
  if (a->type == ATOLL_SYM_BOOL && sym_is_const(a) && sym_is_const(b))
    return a->v.i ? c : atoll_sym_not(pool, c);
  const atoll_sym *args[3] = {c, a, b};
  return make(pool, ATOLL_SYM_SELECT, (atoll_sym_type)a->type, 0, args, 3);
}

const atoll_sym *atoll_sym_to_real(atoll_syms *pool, const atoll_sym *a) {
  if (!usable(pool, a, a, a))
    return NULL;
  if (a->type == ATOLL_SYM_REAL)
    return a;
  if (a->type != ATOLL_SYM_INT)
    return wrong_types(pool, ATOLL_SYM_TO_REAL, a, a);
  if (sym_is_const(a))
    return atoll_sym_real(pool, (double)a->v.i);
  return make(pool, ATOLL_SYM_TO_REAL, ATOLL_SYM_REAL, 0, &a, 1);
}

const atoll_sym *atoll_sym_add(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_binary(pool, ATOLL_SYM_ADD, a, b);
}

const atoll_sym *atoll_sym_sub(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_binary(pool, ATOLL_SYM_SUB, a, b);
}

const atoll_sym *atoll_sym_mul(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_binary(pool, ATOLL_SYM_MUL, a, b);
}

const atoll_sym *atoll_sym_max(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_binary(pool, ATOLL_SYM_MAX, a, b);
}

/* -(-a // b): unlike (a + b - 1) // b it cannot overflow near the upper limit, and it cancels a symbolic b. */
const atoll_sym *atoll_sym_ceildiv(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b) {
  if (!usable(pool, a, b, b))
    return NULL;
  if (a->type != ATOLL_SYM_INT || b->type != ATOLL_SYM_INT)
    return wrong_types(pool, ATOLL_SYM_FLOORDIV, a, b);
  if (sym_is_const(b) && b->v.i <= 0)
    return sym_refuse(pool, ATOLL_USAGE, "ceildiv by %lld, expected a positive divisor", (long long)b->v.i);
  const atoll_sym *minus = atoll_sym_int(pool, -1);
  const atoll_sym *q = minus ? atoll_sym_mul(pool, minus, a) : NULL;
  q = q ? atoll_sym_binary(pool, ATOLL_SYM_FLOORDIV, q, b) : NULL;
  return q ? atoll_sym_mul(pool, minus, q) : NULL;
}

/* ---- inspection ---- */

atoll_sym_type atoll_sym_type_of(const atoll_sym *e) { return (atoll_sym_type)e->type; }

atoll_sym_op atoll_sym_op_of(const atoll_sym *e) { return (atoll_sym_op)e->op; }

int atoll_sym_arity(const atoll_sym *e) { return e->arity; }

const atoll_sym *atoll_sym_arg(const atoll_sym *e, int i) { return i >= 0 && i < e->arity ? e->arg[i] : NULL; }

const char *atoll_sym_name(const atoll_sym *var) { return var->op == ATOLL_SYM_VAR ? var->v.name : NULL; }

int atoll_sym_constant(const atoll_sym *e, atoll_sym_value *v) {
  if (!sym_is_const(e))
    return 0;
  if (v) {
    v->type = (atoll_sym_type)e->type;
    v->i = e->type == ATOLL_SYM_REAL ? 0 : e->v.i;
    v->r = e->type == ATOLL_SYM_REAL ? e->v.r : 0;
  }
  return 1;
}

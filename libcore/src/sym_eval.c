/* Evaluation and substitution of symbolic expressions.
 *
 * Sums and products are evaluated as a whole (see sym.c): a sum collects its terms in 192 bits, a product looks for a
 * zero factor first, and the result is checked once. Failures travel as a status with the failing node, so that AND and
 * OR can set them aside without touching the thread's error message; only the public functions record one.
 *
 * An expression is a graph; where the tree it stands for is large, values are remembered per node. */
#include "atoll/sym.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sym_impl.h"

/* Trees of at most this many nodes are walked without remembering anything. */
#define SMALL_TREE 64

enum status { DONE, OVERFLOWS, DIVIDES_BY_ZERO, UNBOUND, WRONG_TYPE, NOT_FINITE, NO_MEMORY };

struct cell {
  const atoll_sym *key;
  const atoll_sym *culprit;
  atoll_sym_value value;
  enum status status;
};

struct run {
  /* Either typed bindings or parallel names and int values. */
  const atoll_sym_binding *bindings;
  const char *const *names;
  const int64_t *ints;
  size_t n;
  const atoll_sym *culprit; /* where the failure was */
  struct cell *cells;       /* open addressing */
  size_t slots, used;
};

static enum status eval(struct run *run, const atoll_sym *e, atoll_sym_value *out);

static struct cell *cell_of(struct cell *cells, size_t slots, const atoll_sym *e) {
  size_t i = (size_t)e->hash & (slots - 1);
  while (cells[i].key && cells[i].key != e)
    i = (i + 1) & (slots - 1);
  return &cells[i];
}

static int cells_reserve(struct run *run) {
  if (2 * (run->used + 1) <= run->slots)
    return 0;
  size_t slots = run->slots ? 2 * run->slots : 128;
  struct cell *cells = calloc(slots, sizeof *cells);
  if (!cells)
    return -1;
  for (size_t i = 0; i < run->slots; i++)
    if (run->cells[i].key)
      *cell_of(cells, slots, run->cells[i].key) = run->cells[i];
  free(run->cells);
  run->cells = cells;
  run->slots = slots;
  return 0;
}

static enum status fail_at(struct run *run, const atoll_sym *e, enum status status) {
  run->culprit = e;
  return status;
}

static enum status eval_var(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  for (size_t i = 0; i < run->n; i++) {
    const char *name = run->bindings ? run->bindings[i].name : run->names[i];
    if (strcmp(name, e->v.name) != 0)
      continue;
    *out = run->bindings ? run->bindings[i].value : (atoll_sym_value){ATOLL_SYM_INT, run->ints[i], 0};
    if (out->type != e->type)
      return fail_at(run, e, WRONG_TYPE);
    if (out->type == ATOLL_SYM_REAL && !isfinite(out->r))
      return fail_at(run, e, NOT_FINITE);
    if (out->type == ATOLL_SYM_BOOL)
      out->i = out->i != 0;
    return DONE;
  }
  return fail_at(run, e, UNBOUND);
}

/* Product of the int operands from `first` on, at most `limit` in magnitude. Nonzero factors never bring an excess
 * back. */
static enum status eval_product(struct run *run, const atoll_sym *e, int first, wide limit, wide *out) {
  wide p = 1;
  int over = 0, zero = 0;
  for (int i = first; i < e->arity; i++) {
    atoll_sym_value v;
    enum status s = eval(run, e->arg[i], &v);
    if (s != DONE)
      return s;
    zero = zero || v.i == 0;
    if (!over && !zero)
      over = __builtin_mul_overflow(p, (wide)v.i, &p) || p > limit || p < -limit;
  }
  if (over && !zero)
    return fail_at(run, e, OVERFLOWS);
  *out = zero ? 0 : p;
  return DONE;
}

static enum status eval_int_mul(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  wide p;
  enum status s = eval_product(run, e, 0, (wide)1 << 63, &p);
  if (s != DONE)
    return s;
  if (!wide_fits(p))
    return fail_at(run, e, OVERFLOWS);
  out->i = (int64_t)p;
  return DONE;
}

static enum status eval_int_add(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  /* Two's complement in three limbs; each term is below 2^127, so even 2^63 of them fit. */
  uint64_t limb[3] = {0, 0, 0};
  for (int i = 0; i < e->arity; i++) {
    const atoll_sym *t = e->arg[i];
    wide v;
    if (t->op == ATOLL_SYM_MUL) {
      enum status s = eval_product(run, t, 0, (wide)1 << 126, &v);
      if (s != DONE)
        return s;
    } else {
      atoll_sym_value x;
      enum status s = eval(run, t, &x);
      if (s != DONE)
        return s;
      v = x.i;
    }
    uint64_t add[3] = {(uint64_t)v, (uint64_t)(v >> 64), v < 0 ? UINT64_MAX : 0};
    unsigned carry = 0;
    for (int k = 0; k < 3; k++) {
      uint64_t sum = limb[k] + add[k], with = sum + carry;
      carry = (sum < add[k]) | (with < sum);
      limb[k] = with;
    }
  }
  uint64_t sign = (int64_t)limb[0] < 0 ? UINT64_MAX : 0;
  if (limb[1] != sign || limb[2] != sign)
    return fail_at(run, e, OVERFLOWS);
  out->i = (int64_t)limb[0];
  return DONE;
}

static enum status eval_and_or(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  const int deciding = e->op == ATOLL_SYM_OR;
  enum status failed = DONE;
  const atoll_sym *culprit = NULL;
  for (int i = 0; i < e->arity; i++) {
    atoll_sym_value v;
    enum status s = eval(run, e->arg[i], &v);
    if (s == UNBOUND || s == WRONG_TYPE || s == NOT_FINITE || s == NO_MEMORY)
      return s; /* mistakes of the caller, not values out of range */
    if (s != DONE && failed == DONE) {
      failed = s;
      culprit = run->culprit;
    }
    if (s == DONE && (v.i != 0) == deciding) {
      out->i = deciding;
      return DONE;
    }
  }
  out->i = !deciding;
  return failed == DONE ? DONE : fail_at(run, culprit, failed);
}

static enum status eval_min_max(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  for (int i = 0; i < e->arity; i++) {
    atoll_sym_value v;
    enum status s = eval(run, e->arg[i], &v);
    if (s != DONE)
      return s;
    int less = e->type == ATOLL_SYM_REAL ? v.r < out->r : v.i < out->i;
    int more = e->type == ATOLL_SYM_REAL ? v.r > out->r : v.i > out->i;
    if (i == 0 || (e->op == ATOLL_SYM_MIN ? less : more)) {
      out->i = v.i;
      out->r = v.r;
    }
  }
  return DONE;
}

static enum status eval_two(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  atoll_sym_value a, b;
  enum status s = eval(run, e->arg[0], &a);
  if (s == DONE)
    s = eval(run, e->arg[1], &b);
  if (s != DONE)
    return s;
  int real = e->arg[0]->type == ATOLL_SYM_REAL;
  switch (e->op) {
  case ATOLL_SYM_ADD:
    out->r = a.r + b.r;
    break;
  case ATOLL_SYM_SUB:
    out->r = a.r - b.r;
    break;
  case ATOLL_SYM_MUL:
    out->r = a.r * b.r;
    break;
  case ATOLL_SYM_DIV:
    if (b.r == 0)
      return fail_at(run, e, DIVIDES_BY_ZERO);
    out->r = a.r / b.r;
    break;
  case ATOLL_SYM_FLOORDIV:
  case ATOLL_SYM_MOD: {
    if (b.i == 0)
      return fail_at(run, e, DIVIDES_BY_ZERO);
    wide q = wide_floordiv(a.i, b.i);
    if (e->op == ATOLL_SYM_FLOORDIV && !wide_fits(q))
      return fail_at(run, e, OVERFLOWS);
    out->i = (int64_t)(e->op == ATOLL_SYM_FLOORDIV ? q : a.i - q * b.i);
    break;
  }
  case ATOLL_SYM_LT:
    out->i = real ? a.r < b.r : a.i < b.i;
    break;
  case ATOLL_SYM_LE:
    out->i = real ? a.r <= b.r : a.i <= b.i;
    break;
  case ATOLL_SYM_EQ:
    out->i = real ? a.r == b.r : a.i == b.i;
    break;
  default:
    out->i = real ? a.r != b.r : a.i != b.i;
    break; /* NE */
  }
  return out->type == ATOLL_SYM_REAL && !isfinite(out->r) ? fail_at(run, e, OVERFLOWS) : DONE;
}

static enum status eval_node(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  atoll_sym_value v;
  enum status s;
  *out = (atoll_sym_value){(atoll_sym_type)e->type, 0, 0};
  switch (e->op) {
  case ATOLL_SYM_CONST:
    (void)atoll_sym_constant(e, out);
    return DONE;
  case ATOLL_SYM_VAR:
    return eval_var(run, e, out);
  case ATOLL_SYM_ADD:
    return e->type == ATOLL_SYM_INT ? eval_int_add(run, e, out) : eval_two(run, e, out);
  case ATOLL_SYM_MUL:
    return e->type == ATOLL_SYM_INT ? eval_int_mul(run, e, out) : eval_two(run, e, out);
  case ATOLL_SYM_MIN:
  case ATOLL_SYM_MAX:
    return eval_min_max(run, e, out);
  case ATOLL_SYM_AND:
  case ATOLL_SYM_OR:
    return eval_and_or(run, e, out);
  case ATOLL_SYM_NOT:
    s = eval(run, e->arg[0], &v);
    out->i = s == DONE && !v.i;
    return s;
  case ATOLL_SYM_SELECT:
    s = eval(run, e->arg[0], &v);
    return s == DONE ? eval(run, e->arg[v.i ? 1 : 2], out) : s;
  case ATOLL_SYM_TO_REAL:
    s = eval(run, e->arg[0], &v);
    out->r = s == DONE ? (double)v.i : 0;
    return s;
  default:
    return eval_two(run, e, out);
  }
}

static enum status eval(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  if (e->tree <= SMALL_TREE)
    return eval_node(run, e, out);
  if (run->slots) {
    const struct cell *known = cell_of(run->cells, run->slots, e);
    if (known->key) {
      *out = known->value;
      run->culprit = known->culprit;
      return known->status;
    }
  }
  enum status s = eval_node(run, e, out);
  if (cells_reserve(run))
    return fail_at(run, e, NO_MEMORY);
  *cell_of(run->cells, run->slots, e) = (struct cell){e, s == DONE ? NULL : run->culprit, *out, s};
  run->used++;
  return s;
}

/* "(7 * 9223372036854775807)": what the failing operator was given, as far as it has values. */
static void operands(struct run *run, const atoll_sym *e, char *buf, size_t n) {
  size_t used = 0;
  buf[0] = '\0';
  for (int i = 0; i < e->arity && used < n; i++) {
    atoll_sym_value v;
    char one[40];
    if (eval(run, e->arg[i], &v) != DONE)
      (void)snprintf(one, sizeof one, "?");
    else if (v.type == ATOLL_SYM_REAL)
      (void)snprintf(one, sizeof one, "%.17g", v.r);
    else
      (void)snprintf(one, sizeof one, "%lld", (long long)v.i);
    int k = snprintf(buf + used, n - used, "%s%s", i ? ", " : "", one);
    used += k > 0 ? (size_t)k : 0;
  }
}

static atoll_err report(struct run *run, const atoll_sym *whole, enum status s) {
  const atoll_sym *e = run->culprit;
  char text[256], all[256], given[256];
  (void)sym_brief(e, text, sizeof text);
  (void)sym_brief(whole, all, sizeof all);
  switch (s) {
  case UNBOUND:
    return atoll_fail(ATOLL_USAGE, "variable %s has no value in '%s'", e->v.name, all);
  case WRONG_TYPE:
    return atoll_fail(ATOLL_USAGE, "the value of variable %s is not %s", e->v.name,
                      sym_type_name((atoll_sym_type)e->type));
  case NOT_FINITE:
    return atoll_fail(ATOLL_USAGE, "the value of variable %s is not finite", e->v.name);
  case NO_MEMORY:
    return atoll_fail(ATOLL_NOMEM, "no memory to evaluate '%s'", all);
  default:
    operands(run, e, given, sizeof given);
    return atoll_fail(ATOLL_INTERNAL, "%s in '%s' with operands %s", s == OVERFLOWS ? "overflow" : "division by zero",
                      text, given);
  }
}

static atoll_err finish(struct run *run, const atoll_sym *e, atoll_sym_value *out) {
  atoll_sym_value v;
  enum status s = eval(run, e, &v);
  atoll_err err = s == DONE ? ATOLL_OK : report(run, e, s);
  free(run->cells);
  if (err == ATOLL_OK)
    *out = v;
  return err;
}

atoll_err atoll_sym_eval(const atoll_sym *e, const atoll_sym_binding *bindings, size_t n, atoll_sym_value *out) {
  if (!e || (n && !bindings))
    return atoll_fail(ATOLL_USAGE, "no expression or no bindings to evaluate");
  static const atoll_sym_binding none;
  struct run run = {.bindings = bindings ? bindings : &none, .n = n};
  return finish(&run, e, out);
}

atoll_err atoll_sym_eval_int(const atoll_sym *e, const char *const *names, const int64_t *values, size_t n,
                             int64_t *out) {
  if (!e || (n && (!names || !values)))
    return atoll_fail(ATOLL_USAGE, "no expression or no bindings to evaluate");
  if (e->type != ATOLL_SYM_INT)
    return atoll_fail(ATOLL_USAGE, "a %s expression has no int value", sym_type_name((atoll_sym_type)e->type));
  struct run run = {.names = names, .ints = values, .n = n};
  atoll_sym_value v;
  ATOLL_TRY(finish(&run, e, &v));
  *out = v.i;
  return ATOLL_OK;
}

/* ---- substitution ---- */

struct swap {
  const atoll_sym *key, *to;
};

struct swaps {
  atoll_syms *pool;
  const atoll_sym *var, *by;
  struct swap *p;
  size_t slots, used;
  int failed;
};

static struct swap *swap_of(struct swap *p, size_t slots, const atoll_sym *e) {
  size_t i = (size_t)e->hash & (slots - 1);
  while (p[i].key && p[i].key != e)
    i = (i + 1) & (slots - 1);
  return &p[i];
}

static const atoll_sym *substitute(struct swaps *s, const atoll_sym *e) {
  if (e == s->var)
    return s->by;
  if (e->arity == 0)
    return e;
  if (s->slots && swap_of(s->p, s->slots, e)->key)
    return swap_of(s->p, s->slots, e)->to;
  const atoll_sym *r = e, *a[3] = {NULL, NULL, NULL};
  int changed = 0;
  for (int i = 0; i < e->arity; i++) {
    const atoll_sym *x = substitute(s, e->arg[i]);
    if (!x)
      return NULL;
    changed |= x != e->arg[i];
    if (i < 3)
      a[i] = x;
  }
  if (changed)
    switch (e->op) {
    case ATOLL_SYM_SELECT:
      r = atoll_sym_select(s->pool, a[0], a[1], a[2]);
      break;
    case ATOLL_SYM_NOT:
      r = atoll_sym_not(s->pool, a[0]);
      break;
    case ATOLL_SYM_TO_REAL:
      r = atoll_sym_to_real(s->pool, a[0]);
      break;
    default: /* flat operators grow from the left; what was substituted once is remembered */
      r = a[0];
      for (int i = 1; i < e->arity && r; i++)
        r = atoll_sym_binary(s->pool, (atoll_sym_op)e->op, r, i < 3 ? a[i] : substitute(s, e->arg[i]));
    }
  if (!r)
    return NULL;
  if (2 * (s->used + 1) > s->slots) {
    size_t slots = s->slots ? 2 * s->slots : 64;
    struct swap *p = calloc(slots, sizeof *p);
    if (!p) {
      s->failed = 1;
      return NULL;
    }
    for (size_t i = 0; i < s->slots; i++)
      if (s->p[i].key)
        *swap_of(p, slots, s->p[i].key) = s->p[i];
    free(s->p);
    s->p = p;
    s->slots = slots;
  }
  *swap_of(s->p, s->slots, e) = (struct swap){e, r};
  s->used++;
  return r;
}

const atoll_sym *atoll_sym_substitute(atoll_syms *pool, const atoll_sym *e, const atoll_sym *var, const atoll_sym *by) {
  if (!e || !var || !by)
    return sym_refuse(pool, ATOLL_USAGE, "substitution with a missing (NULL) operand");
  if (e->pool != pool || var->pool != pool || by->pool != pool)
    return sym_refuse(pool, ATOLL_USAGE, "substitution with an operand of another pool");
  if (var->op != ATOLL_SYM_VAR || var->type != by->type) {
    char x[96], y[96];
    return sym_refuse(pool, ATOLL_USAGE, "cannot substitute %s '%s' by %s '%s'",
                      sym_type_name((atoll_sym_type)var->type), sym_brief(var, x, sizeof x),
                      sym_type_name((atoll_sym_type)by->type), sym_brief(by, y, sizeof y));
  }
  struct swaps s = {.pool = pool, .var = var, .by = by};
  const atoll_sym *r = substitute(&s, e);
  if (s.failed)
    r = sym_refuse(pool, ATOLL_NOMEM, "no memory to substitute %s", var->v.name);
  free(s.p);
  return r;
}

/* Promise: on random expressions the simplified form has the value of the expression as it was written, whenever that
 * has one; where it has none, the simplified form fails or has the exact mathematical value. Text reads back to the
 * same node, prints alike in another pool, and substituting all variables gives the value as a constant.
 * ATOLL_TEST_SEED chooses another sequence. */
#include <math.h>

#include "atoll/sym.h"
#include "sym_draws.h"
#include "unit_check.h"

__extension__ typedef __int128 wide;

/* ---- random trees, independent of the library ---- */

struct node {
  atoll_sym_op op;
  atoll_sym_type type;
  atoll_sym_value value; /* CONST */
  int var;               /* VAR */
  int kids;
  struct node *kid[3];
};

enum { VARS = 9, NODES = 4000 };
static const char *const var_names[VARS] = {"a", "b", "c", "d", "e", "u", "v", "p", "q"};
static const atoll_sym_type var_types[VARS] = {ATOLL_SYM_INT,  ATOLL_SYM_INT,  ATOLL_SYM_INT,
                                               ATOLL_SYM_INT,  ATOLL_SYM_INT,  ATOLL_SYM_REAL,
                                               ATOLL_SYM_REAL, ATOLL_SYM_BOOL, ATOLL_SYM_BOOL};
static struct node nodes[NODES];
static int node_count;
static atoll_sym_binding bindings[VARS];
static double draw_real(void) {
  static const double some[] = {0.0, -0.0, 1.0, -1.0, 0.5, 1e300, -1e300, 1e-300, 3.25};
  return draw(2) ? some[draw(9)] : ((double)draw(2000001) - 1000000) / 64;
}

static struct node *random_tree(atoll_sym_type type, int depth, int wild) {
  assert_true(node_count < NODES);
  struct node *n = &nodes[node_count++];
  *n = (struct node){.type = type};
  if (depth == 0 || draw(6) == 0) {
    if (draw(3)) {
      do
        n->var = (int)draw(VARS);
      while (var_types[n->var] != type);
      n->op = ATOLL_SYM_VAR;
    } else {
      n->op = ATOLL_SYM_CONST;
      n->value.type = type;
      if (type == ATOLL_SYM_REAL)
        n->value.r = draw_real();
      else
        n->value.i = type == ATOLL_SYM_INT ? draw_int(wild) : (int64_t)draw(2);
    }
    return n;
  }
  static const atoll_sym_op int_ops[] = {ATOLL_SYM_ADD,      ATOLL_SYM_ADD,   ATOLL_SYM_SUB, ATOLL_SYM_MUL,
                                         ATOLL_SYM_MUL,      ATOLL_SYM_MIN,   ATOLL_SYM_MAX, ATOLL_SYM_MOD,
                                         ATOLL_SYM_FLOORDIV, ATOLL_SYM_SELECT};
  static const atoll_sym_op real_ops[] = {ATOLL_SYM_ADD, ATOLL_SYM_SUB, ATOLL_SYM_MUL,    ATOLL_SYM_DIV,
                                          ATOLL_SYM_MIN, ATOLL_SYM_MAX, ATOLL_SYM_SELECT, ATOLL_SYM_TO_REAL};
  static const atoll_sym_op bool_ops[] = {ATOLL_SYM_LT,  ATOLL_SYM_LE, ATOLL_SYM_EQ,  ATOLL_SYM_NE,
                                          ATOLL_SYM_AND, ATOLL_SYM_OR, ATOLL_SYM_NOT, ATOLL_SYM_SELECT};
  n->op = type == ATOLL_SYM_INT ? int_ops[draw(10)] : type == ATOLL_SYM_REAL ? real_ops[draw(8)] : bool_ops[draw(8)];
  atoll_sym_type below = type;
  n->kids = 2;
  if (n->op == ATOLL_SYM_NOT || n->op == ATOLL_SYM_TO_REAL)
    n->kids = 1;
  if (n->op == ATOLL_SYM_TO_REAL)
    below = ATOLL_SYM_INT;
  if (n->op == ATOLL_SYM_LT || n->op == ATOLL_SYM_LE)
    below = draw(4) ? ATOLL_SYM_INT : ATOLL_SYM_REAL;
  if (n->op == ATOLL_SYM_EQ || n->op == ATOLL_SYM_NE)
    below = (atoll_sym_type)draw(3);
  if (n->op == ATOLL_SYM_SELECT)
    n->kids = 3;
  for (int i = 0; i < n->kids; i++)
    n->kid[i] = random_tree(n->op == ATOLL_SYM_SELECT && i == 0 ? ATOLL_SYM_BOOL : below, depth - 1, wild);
  return n;
}

static const atoll_sym *build(atoll_syms *pool, const struct node *n) {
  const atoll_sym *k[3] = {NULL, NULL, NULL};
  for (int i = 0; i < n->kids; i++)
    if (!(k[i] = build(pool, n->kid[i])))
      return NULL;
  switch (n->op) {
  case ATOLL_SYM_CONST:
    return n->type == ATOLL_SYM_INT    ? atoll_sym_int(pool, n->value.i)
           : n->type == ATOLL_SYM_REAL ? atoll_sym_real(pool, n->value.r)
                                       : atoll_sym_bool(pool, (int)n->value.i);
  case ATOLL_SYM_VAR:
    return atoll_sym_var(pool, var_names[n->var], n->type);
  case ATOLL_SYM_NOT:
    return atoll_sym_not(pool, k[0]);
  case ATOLL_SYM_TO_REAL:
    return atoll_sym_to_real(pool, k[0]);
  case ATOLL_SYM_SELECT:
    return atoll_sym_select(pool, k[0], k[1], k[2]);
  default:
    return atoll_sym_binary(pool, n->op, k[0], k[1]);
  }
}

/* ---- the naive evaluator: as written, each int in 64 bits (exact = 0) or as wide as 127 (exact = 1) ---- */

struct result {
  int known; /* 0: fails as written, or exact value out of reach */
  wide i;
  double r;
};

static struct result naive(const struct node *n, int exact) {
  const struct result unknown = {0, 0, 0};
  struct result k[3] = {unknown, unknown, unknown}, out = {1, 0, 0};
  if (n->op == ATOLL_SYM_SELECT) {
    k[0] = naive(n->kid[0], exact);
    return k[0].known ? naive(n->kid[k[0].i ? 1 : 2], exact) : unknown;
  }
  for (int i = 0; i < n->kids; i++)
    k[i] = naive(n->kid[i], exact);
  if (n->op == ATOLL_SYM_AND || n->op == ATOLL_SYM_OR) {
    int deciding = n->op == ATOLL_SYM_OR;
    for (int i = 0; i < 2; i++)
      if (k[i].known && k[i].i == deciding) {
        out.i = deciding;
        return out;
      }
    out.i = !deciding;
    return k[0].known && k[1].known ? out : unknown;
  }
  for (int i = 0; i < n->kids; i++)
    if (!k[i].known)
      return unknown;
  int real = n->kids && n->kid[0]->type == ATOLL_SYM_REAL, over = 0;
  wide a = k[0].i, b = k[1].i;
  double x = k[0].r, y = k[1].r;
  switch (n->op) {
  case ATOLL_SYM_CONST:
    out.i = n->value.i;
    out.r = n->value.r;
    break;
  case ATOLL_SYM_VAR:
    out.i = bindings[n->var].value.i;
    out.r = bindings[n->var].value.r;
    break;
  case ATOLL_SYM_ADD:
    over = __builtin_add_overflow(a, b, &out.i), out.r = x + y;
    break;
  case ATOLL_SYM_SUB:
    over = __builtin_sub_overflow(a, b, &out.i), out.r = x - y;
    break;
  case ATOLL_SYM_MUL:
    over = __builtin_mul_overflow(a, b, &out.i), out.r = x * y;
    break;
  case ATOLL_SYM_DIV:
    if (y == 0)
      return unknown;
    out.r = x / y;
    break;
  case ATOLL_SYM_FLOORDIV:
  case ATOLL_SYM_MOD: {
    if (b == 0)
      return unknown;
    wide m = a % b; /* move the remainder to the divisor's side of zero */
    if (m != 0 && ((m < 0) != (b < 0)))
      m += b;
    out.i = n->op == ATOLL_SYM_MOD ? m : (a - m) / b;
    break;
  }
  case ATOLL_SYM_MIN:
    out.i = a < b ? a : b, out.r = x < y ? x : y;
    break;
  case ATOLL_SYM_MAX:
    out.i = a > b ? a : b, out.r = x > y ? x : y;
    break;
  case ATOLL_SYM_LT:
    out.i = real ? x < y : a < b;
    break;
  case ATOLL_SYM_LE:
    out.i = real ? x <= y : a <= b;
    break;
  case ATOLL_SYM_EQ:
    out.i = real ? x == y : a == b;
    break;
  case ATOLL_SYM_NE:
    out.i = real ? x != y : a != b;
    break;
  case ATOLL_SYM_NOT:
    out.i = !a;
    break;
  case ATOLL_SYM_TO_REAL:
    if (a > INT64_MAX || a < INT64_MIN)
      return unknown;
    out.r = (double)(int64_t)a;
    break;
  default:
    fail();
  }
  if (over || (n->type == ATOLL_SYM_REAL && !isfinite(out.r)) || (!exact && (out.i > INT64_MAX || out.i < INT64_MIN)))
    return unknown;
  return out;
}

static int same(const struct result *want, const atoll_sym_value *got) {
  return got->type == ATOLL_SYM_REAL ? want->r == got->r : want->i == got->i;
}

static void random_expressions(void **state) {
  (void)state;
  enum { TREES = 20000, POINTS = 4 };
  static char text[1 << 20], again[1 << 20];
  int64_t defined = 0, rescued = 0, failed = 0, refused = 0, smaller = 0, unfolded = 0;
  atoll_syms *pool = NULL;
  for (int t = 0; t < TREES; t++) {
    if (t % 500 == 0) {
      atoll_syms_destroy(&pool);
      assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
      for (int i = 0; i < VARS; i++)
        assert_non_null(atoll_sym_var(pool, var_names[i], var_types[i]));
    }
    key.step = (uint64_t)t; /* each tree has its own numbers, so one can be repeated alone */
    drawn = 0;
    node_count = 0;
    int wild = (int)draw(3) == 0;
    struct node *tree = random_tree((atoll_sym_type)(draw(5) < 3 ? 0 : 1 + draw(2)), 2 + (int)draw(4), wild);
    const atoll_sym *e = build(pool, tree);
    if (!e) { /* only coefficients beyond any use are refused */
      assert_int_equal(atoll_syms_error(pool), ATOLL_USAGE);
      if (!strstr(atoll_err_message(), "coefficient"))
        fail_msg("tree %d: %s", t, atoll_err_message());
      refused++;
      continue;
    }
    assert_ptr_equal(build(pool, tree), e);
    assert_int_equal(atoll_sym_type_of(e), tree->type);
    smaller += atoll_sym_arity(e) < tree->kids;

    const atoll_sym *back = NULL;
    assert_true((size_t)atoll_sym_print(e, text, sizeof text) < sizeof text);
    if (atoll_sym_parse(pool, text, &back) != ATOLL_OK)
      fail_msg("tree %d: %s", t, atoll_err_message());
    if (back != e) {
      atoll_sym_print(back, again, sizeof again);
      fail_msg("tree %d: '%s' reads back as '%s'", t, text, again);
    }
    if (t % 10 == 0) {
      atoll_syms *other = NULL;
      assert_int_equal(atoll_syms_create(&other), ATOLL_OK);
      for (int i = VARS; i-- > 0;) /* another order of creation */
        assert_non_null(atoll_sym_var(other, var_names[i], var_types[i]));
      assert_int_equal(atoll_sym_parse(other, text, &back), ATOLL_OK);
      atoll_sym_print(back, again, sizeof again);
      assert_string_equal(text, again);
      atoll_syms_destroy(&other);
    }

    for (int point = 0; point < POINTS; point++) {
      for (int i = 0; i < VARS; i++) {
        bindings[i] = (atoll_sym_binding){var_names[i], {var_types[i], 0, 0}};
        if (var_types[i] == ATOLL_SYM_REAL)
          bindings[i].value.r = draw_real();
        else
          bindings[i].value.i = var_types[i] == ATOLL_SYM_INT ? draw_int(wild && point > 1) : (int64_t)draw(2);
      }
      struct result want = naive(tree, 0), exact = naive(tree, 1);
      atoll_sym_value got = {ATOLL_SYM_INT, 0, 0};
      atoll_err err = atoll_sym_eval(e, bindings, VARS, &got);
      if (want.known) {
        defined++;
        if (err != ATOLL_OK)
          fail_msg("tree %d '%s': %s", t, text, atoll_err_message());
        if (!same(&want, &got))
          fail_msg("tree %d '%s': %lld / %g, expected %lld / %g", t, text, (long long)got.i, got.r, (long long)want.i,
                   want.r);
        const atoll_sym *s = e;
        for (int i = 0; i < VARS && s; i++) {
          const atoll_sym_value *v = &bindings[i].value;
          const atoll_sym *by = v->type == ATOLL_SYM_INT    ? atoll_sym_int(pool, v->i)
                                : v->type == ATOLL_SYM_REAL ? atoll_sym_real(pool, v->r)
                                                            : atoll_sym_bool(pool, (int)v->i);
          s = atoll_sym_substitute(pool, s, atoll_sym_var(pool, var_names[i], var_types[i]), by);
        }
        atoll_sym_value folded;
        if (!s) /* intermediate coefficients may be refused */
          assert_int_equal(atoll_syms_error(pool), ATOLL_USAGE);
        else if (!atoll_sym_constant(s, &folded)) {
          /* A constant multiplied into a sum before its terms were known: kept as written, and never a wrong number. */
          unfolded++;
          if (atoll_sym_eval(s, NULL, 0, &folded) == ATOLL_OK && !same(&want, &folded))
            fail_msg("tree %d '%s' is %lld / %g after substitution", t, text, (long long)folded.i, folded.r);
        } else if (!same(&want, &folded)) {
          atoll_sym_print(s, again, sizeof again);
          fail_msg("tree %d '%s' folds to '%s'", t, text, again);
        }
      } else if (err == ATOLL_OK) {
        rescued++;
        if (exact.known && !same(&exact, &got))
          fail_msg("tree %d '%s': %lld / %g where the exact value is %lld / %g", t, text, (long long)got.i, got.r,
                   (long long)exact.i, exact.r);
      } else {
        assert_int_equal(err, ATOLL_INTERNAL);
        failed++;
      }
    }
  }
  atoll_syms_destroy(&pool);
  print_message("seed %llu: %lld values, %lld only after simplification, %lld failures, %lld refused, %lld simplified, "
                "%lld unfolded\n",
                (unsigned long long)key.seed, (long long)defined, (long long)rescued, (long long)failed,
                (long long)refused, (long long)smaller, (long long)unfolded);
  /* The test must have met everything it is about. */
  assert_true(defined > TREES && rescued > 100 && failed > 1000 && smaller > 1000 && refused < TREES / 100 &&
              unfolded < TREES / 1000);
}

int main(void) {
  const char *seed = getenv("ATOLL_TEST_SEED");
  if (seed)
    key.seed = strtoull(seed, NULL, 10);
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_expressions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Promise: malformed text is refused with USAGE, the reason, and a caret under the place; the pool stays usable. */
#include "atoll/sym.h"
#include "unit_check.h"

static void malformed(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int column; /* of the caret, from 1 */
    const char *said;
  } bad[] = {
      {"", 1, "ends where an operand"},
      {"4*B*", 5, "ends where an operand"},
      {"4*(B + 1", 9, "expected ')'"},
      {"4 B", 3, "unexpected text"},
      {"min(x)", 4, "at least 2"},
      {"max x", 5, "expected '('"},
      {"select(p, 1)", 7, "at least 3"},
      {"select(p, 1, 2, 3)", 16, "takes 3"},
      {"a + * b", 5, "expected a number"},
      {"a / b", 3, "/ takes no int 'a' with int 'b'"},
      {"1.5*a", 4, "* takes no real '1.5' with int 'a'"},
      {"a and b", 3, "and takes no int"},
      {"not a", 1, "not takes no int"},
      {"9223372036854775808", 1, "64 bits"},
      {"x + 12ab", 5, "malformed number"},
      {"1e999", 1, "too large"},
      {"a < b < c", 7, "unexpected text"},
      {"x # y", 3, "unexpected text"},
      {"max + 1", 5, "expected '('"},
      {"and", 1, "word of the grammar"},
      {"ceildiv(x, 0)", 1, "positive divisor"},
  };
  atoll_syms *pool = NULL;
  assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    const atoll_sym *e = NULL;
    atoll_err err = atoll_sym_parse(pool, bad[i].text, &e);
    assert_int_equal(err, ATOLL_USAGE);
    assert_null(e);
    const char *message = atoll_err_message(), *last = strrchr(message, '\n');
    if (!strstr(message, bad[i].said) || !last || last[strlen(last) - 1] != '^' ||
        strlen(last) != (size_t)bad[i].column + 3)
      fail_msg("'%s' gives: %s\nexpected '%s', column %d", bad[i].text, message, bad[i].said, bad[i].column);
    assert_non_null(strstr(message, bad[i].text));
  }
  assert_int_equal(atoll_syms_error(pool), ATOLL_OK); /* parse errors are returned, not left in the pool */
  /* An earlier construction error stays pending across a parse. */
  const atoll_sym *e = NULL;
  assert_null(atoll_sym_not(pool, atoll_sym_int(pool, 1)));
  assert_int_equal(atoll_sym_parse(pool, "x + 1", &e), ATOLL_OK);
  assert_int_equal(atoll_syms_error(pool), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "not takes"));
  atoll_syms_destroy(&pool);
}

static void long_and_deep_texts(void **state) {
  (void)state;
  atoll_syms *pool = NULL;
  const atoll_sym *e = NULL;
  enum { N = 100000 };
  char *text = malloc(2 * N + 2);
  assert_non_null(text);
  assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
  for (int kind = 0; kind < 3; kind++) {
    memset(text, "(-n"[kind], N);
    if (kind == 2)
      for (int i = 0; i + 4 <= N; i += 4)
        memcpy(text + i, "not ", 4);
    strcpy(text + N, "x");
    assert_int_equal(atoll_sym_parse(pool, text, &e), ATOLL_USAGE);
    assert_non_null(strstr(atoll_err_message(), "nested deeper"));
    assert_true(strlen(atoll_err_message()) < 400); /* a window of the text */
  }
  /* A long flat sum is no nesting. */
  char *p = text;
  for (int i = 0; i < 500; i++)
    p += sprintf(p, "x%d + ", i);
  strcpy(p, "1");
  assert_int_equal(atoll_sym_parse(pool, text, &e), ATOLL_OK);
  assert_int_equal(atoll_sym_arity(e), 501);
  /* Deep expressions built by calls are refused before a walk could exhaust the stack. */
  const atoll_sym *y = atoll_sym_var(pool, "y", ATOLL_SYM_INT);
  e = y;
  int depth = 0;
  while (e && depth < 100000) {
    e = atoll_sym_binary(pool, ATOLL_SYM_FLOORDIV, y, e);
    depth++;
    if (e == y) /* y // y is 1 */
      break;
    if (depth == 1)
      e = atoll_sym_binary(pool, ATOLL_SYM_MOD, y, atoll_sym_var(pool, "z", ATOLL_SYM_INT));
  }
  assert_null(e);
  assert_int_equal(atoll_syms_error(pool), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "nested deeper"));
  atoll_syms_destroy(&pool);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(malformed), cmocka_unit_test(long_and_deep_texts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

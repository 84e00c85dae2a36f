/* Text of symbolic expressions.
 *
 *   or       and (or and)*                       Precedence is Python's; // rounds down, % has the divisor's sign, / is
 * for reals. and      not (and not)* not      'not' not | compare compare  sum ((< <= > >= == !=) sum)?        no
 * chains sum      product ((+ -) product)* product  unary ((* // % /) unary)* unary    '-' unary | primary '-' before
 * digits belongs to the number, so that -2^63 can be written primary  number | name | true | false | ( or ) | min(or,
 * or ...) | max(...) | select(or, or, or) | real(or) | ceildiv(or, or)
 *
 * What is printed reads back to the same node, because each constructor gives its canonical form back when it is fed
 * the parts of that form from left to right. Parentheses stand wherever another grouping would be read. A product whose
 * factors are all sums has its constant last: "2*(a + b)*(c + d)" would be read as (2*a + 2*b)*(c + d), which is
 * another form. */
#include "atoll/sym.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sym_impl.h"

/* ---- printing ---- */

struct out {
  char *buf;
  size_t n;    /* room */
  size_t used; /* wanted, may pass n */
};

static void put(struct out *o, const char *s) {
  for (; *s; s++, o->used++)
    if (o->used + 1 < o->n)
      o->buf[o->used] = *s;
}

static void put_int(struct out *o, int64_t v) {
  char text[32];
  (void)snprintf(text, sizeof text, "%" PRId64, v);
  put(o, text);
}

/* The shortest of 15 to 17 digits that reads back, with a mark of being real. */
static void put_real(struct out *o, double v) {
  char text[40];
  for (int digits = 15; digits <= 17; digits++) {
    (void)snprintf(text, sizeof text, "%.*g", digits, v);
    if (strtod(text, NULL) == v)
      break;
  }
  put(o, text);
  if (!strpbrk(text, ".e"))
    put(o, ".0");
}

static void print(struct out *o, const atoll_sym *e);

static int is_atom(const atoll_sym *e) {
  switch (e->op) {
  case ATOLL_SYM_CONST:
  case ATOLL_SYM_VAR:
  case ATOLL_SYM_MIN:
  case ATOLL_SYM_MAX:
  case ATOLL_SYM_SELECT:
  case ATOLL_SYM_TO_REAL:
    return 1;
  default:
    return 0;
  }
}

static void print_atom(struct out *o, const atoll_sym *e) {
  if (!is_atom(e))
    put(o, "(");
  print(o, e);
  if (!is_atom(e))
    put(o, ")");
}

/* Where a product may stand bare: terms of sums and left operands of // and %. */
static void print_product_level(struct out *o, const atoll_sym *e) {
  if (e->op == ATOLL_SYM_MUL)
    print(o, e);
  else
    print_atom(o, e);
}

/* c and the factors of an integer product that is printed flat. An opaque product has its operands in parentheses. */
static int64_t split_product(const atoll_sym *e, const atoll_sym *const **f, int *n, const atoll_sym **self) {
  if (e->op == ATOLL_SYM_MUL && e->type == ATOLL_SYM_INT && !e->opaque) {
    int c = sym_is_const(e->arg[0]);
    *f = e->arg + c;
    *n = e->arity - c;
    return c ? e->arg[0]->v.i : 1;
  }
  *self = e;
  *f = self;
  *n = 1;
  return 1;
}

/* 1 when every term of e but a constant has a negative coefficient and all can be negated: then -(e // d) is a ceiling.
 */
static int is_negative(const atoll_sym *e) {
  int terms = 0;
  for (int i = 0; i < (e->op == ATOLL_SYM_ADD ? e->arity : 1); i++) {
    const atoll_sym *t = e->op == ATOLL_SYM_ADD ? e->arg[i] : e;
    if (sym_is_const(t)) {
      if (t->v.i == INT64_MIN)
        return 0;
      continue;
    }
    if (t->op != ATOLL_SYM_MUL || t->opaque || !sym_is_const(t->arg[0]) || t->arg[0]->v.i >= 0 ||
        t->arg[0]->v.i == INT64_MIN)
      return 0;
    terms++;
  }
  return terms > 0;
}

/* 1 when -e is printed as ceildiv(), which refuses a constant divisor that is not positive. */
static int is_ceiling(const atoll_sym *e) {
  return e->op == ATOLL_SYM_FLOORDIV && is_negative(e->arg[0]) && !(sym_is_const(e->arg[1]) && e->arg[1]->v.i <= 0);
}

static void print_sum(struct out *o, const atoll_sym *e, int sign);

/* sign * e for a term of a sum. After " + " and " - " the caller passes the sign that leaves c positive where that is
 * possible. */
static void print_int_product(struct out *o, const atoll_sym *e, int sign) {
  const atoll_sym *const *f, *self;
  int n, ceiling = -1;
  int64_t c = split_product(e, &f, &n, &self);
  if (c != INT64_MIN)
    c *= sign;
  if (e->op == ATOLL_SYM_MUL && e->opaque) {
    print_atom(o, e->arg[0]);
    put(o, "*");
    print_atom(o, e->arg[1]);
    return;
  }
  for (int i = 0; i < n && ceiling < 0 && c < 0 && c != INT64_MIN; i++)
    if (is_ceiling(f[i]))
      ceiling = i;
  if (ceiling >= 0)
    c = -c;
  int last = n > 0 && f[0]->op == ATOLL_SYM_ADD && c != 1; /* the constant follows the sums */
  if (!last && c == -1)
    put(o, "-");
  else if (!last && c != 1) {
    put_int(o, c);
    put(o, "*");
  }
  for (int i = 0; i < n; i++) {
    if (i)
      put(o, "*");
    if (i == ceiling) {
      put(o, "ceildiv(");
      print_sum(o, f[i]->arg[0], -1);
      put(o, ", ");
      print(o, f[i]->arg[1]);
      put(o, ")");
    } else if (n == 1 && e->op != ATOLL_SYM_MUL) {
      print(o, f[i]); /* an atom, // or %: all bind closer than the sum */
    } else {
      print_atom(o, f[i]);
    }
  }
  if (last) {
    put(o, "*");
    put_int(o, c);
  }
}

/* 1 when the term is better written after " - ". */
static int term_is_negative(const atoll_sym *t, int sign) {
  const atoll_sym *const *f, *self;
  int n;
  int64_t c;
  if (sym_is_const(t))
    return t->v.i != INT64_MIN && t->v.i * sign < 0;
  c = split_product(t, &f, &n, &self);
  if (c == INT64_MIN || c * sign >= 0)
    return 0;
  for (int i = 0; i < n; i++)
    if (is_ceiling(f[i]))
      return 0; /* printed as a positive ceiling */
  return 1;
}

static void print_term(struct out *o, const atoll_sym *t, int sign, int first) {
  int minus = !first && term_is_negative(t, sign);
  if (!first)
    put(o, minus ? " - " : " + ");
  if (sym_is_const(t))
    put_int(o, minus || sign < 0 ? (minus ? (t->v.i < 0 ? -t->v.i : t->v.i) : -t->v.i) : t->v.i);
  else
    print_int_product(o, t, minus ? -sign : sign);
}

/* An integer sum or single term, times sign; with sign -1 no coefficient is INT64_MIN. A positive term leads, constants
 * come last. */
static void print_sum(struct out *o, const atoll_sym *e, int sign) {
  if (e->op != ATOLL_SYM_ADD) {
    print_term(o, e, sign, 1);
    return;
  }
  int lead = 0;
  while (lead < e->arity && (sym_is_const(e->arg[lead]) || term_is_negative(e->arg[lead], sign)))
    lead++;
  int first = 1;
  if (lead < e->arity) {
    print_term(o, e->arg[lead], sign, 1);
    first = 0;
  }
  for (int constants = 0; constants < 2; constants++)
    for (int i = 0; i < e->arity; i++)
      if (i != lead && sym_is_const(e->arg[i]) == constants) {
        print_term(o, e->arg[i], sign, first);
        first = 0;
      }
}

static void print_list(struct out *o, const atoll_sym *e, const char *before) {
  put(o, before);
  for (int i = 0; i < e->arity; i++) {
    put(o, i ? ", " : "(");
    print(o, e->arg[i]);
  }
  put(o, ")");
}

static int is_comparison(const atoll_sym *e) {
  return e->op == ATOLL_SYM_LT || e->op == ATOLL_SYM_LE || e->op == ATOLL_SYM_EQ || e->op == ATOLL_SYM_NE;
}

/* Operand of a comparison: numbers bare, truth values in parentheses. */
static void print_compared(struct out *o, const atoll_sym *e) {
  if (e->type == ATOLL_SYM_BOOL)
    print_atom(o, e);
  else
    print(o, e);
}

static void print(struct out *o, const atoll_sym *e) {
  const char *name = sym_op_name((atoll_sym_op)e->op);
  switch (e->op) {
  case ATOLL_SYM_CONST:
    if (e->type == ATOLL_SYM_REAL)
      put_real(o, e->v.r);
    else if (e->type == ATOLL_SYM_INT)
      put_int(o, e->v.i);
    else
      put(o, e->v.i ? "true" : "false");
    break;
  case ATOLL_SYM_VAR:
    put(o, e->v.name);
    break;
  case ATOLL_SYM_ADD:
  case ATOLL_SYM_MUL:
    if (e->type == ATOLL_SYM_INT) {
      print_sum(o, e, 1);
      break;
    }
    /* fall through */
  case ATOLL_SYM_SUB:
  case ATOLL_SYM_DIV:
    print_atom(o, e->arg[0]);
    put(o, e->op == ATOLL_SYM_MUL ? "*" : e->op == ATOLL_SYM_ADD ? " + " : e->op == ATOLL_SYM_SUB ? " - " : " / ");
    print_atom(o, e->arg[1]);
    break;
  case ATOLL_SYM_FLOORDIV:
  case ATOLL_SYM_MOD:
    print_product_level(o, e->arg[0]);
    put(o, e->op == ATOLL_SYM_MOD ? " % " : " // ");
    print_atom(o, e->arg[1]);
    break;
  case ATOLL_SYM_LT:
  case ATOLL_SYM_LE:
  case ATOLL_SYM_EQ:
  case ATOLL_SYM_NE:
    print_compared(o, e->arg[0]);
    put(o, " ");
    put(o, name);
    put(o, " ");
    print_compared(o, e->arg[1]);
    break;
  case ATOLL_SYM_AND:
  case ATOLL_SYM_OR:
    for (int i = 0; i < e->arity; i++) {
      if (i) {
        put(o, " ");
        put(o, name);
        put(o, " ");
      }
      if (is_comparison(e->arg[i]) || e->arg[i]->op == ATOLL_SYM_NOT)
        print(o, e->arg[i]);
      else
        print_atom(o, e->arg[i]);
    }
    break;
  case ATOLL_SYM_NOT:
    put(o, "not ");
    print_atom(o, e->arg[0]);
    break;
  default:
    print_list(o, e, name);
    break; /* min max select real */
  }
}

int atoll_sym_print(const atoll_sym *e, char *buf, size_t n) {
  struct out o = {buf, n, 0};
  if (e)
    print(&o, e);
  else
    put(&o, "(null)");
  if (n)
    buf[o.used < n ? o.used : n - 1] = '\0';
  return o.used > INT32_MAX ? INT32_MAX : (int)o.used;
}

const char *sym_brief(const atoll_sym *e, char *buf, size_t n) {
  /* A graph can stand for a text of exponential length; print nothing that would take long. */
  if (e && e->tree > 100000)
    (void)snprintf(buf, n, "%s of %" PRIu64 " parts", sym_op_name((atoll_sym_op)e->op), e->tree);
  else if ((size_t)atoll_sym_print(e, buf, n) >= n && n > 4)
    strcpy(buf + n - 4, "...");
  return buf;
}

/* ---- parsing ---- */

#define NESTING_MAX 400

struct in {
  atoll_syms *pool;
  const char *text, *p;
  int depth;
  int failed;
  atoll_err code;
  char why[400];
  const char *where;
};

static const atoll_sym *parse_or(struct in *in);

static const atoll_sym *wrong(struct in *in, const char *where, const char *fmt, ...) ATOLL_PRINTF(3, 4);
static const atoll_sym *wrong(struct in *in, const char *where, const char *fmt, ...) {
  if (!in->failed) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(in->why, sizeof in->why, fmt, args);
    va_end(args);
    in->failed = 1;
    in->code = ATOLL_USAGE;
    in->where = where;
  }
  return NULL;
}

/* A constructor's result, its error placed at `where`. */
static const atoll_sym *built(struct in *in, const char *where, const atoll_sym *e) {
  if (e || in->failed)
    return e;
  struct sym_error error = {.code = ATOLL_OK};
  sym_error_swap(in->pool, &error);
  (void)wrong(in, where, "%s", error.code == ATOLL_OK ? "no expression" : error.text);
  if (error.code != ATOLL_OK)
    in->code = error.code;
  return NULL;
}

static void blanks(struct in *in) {
  while (*in->p == ' ' || *in->p == '\t' || *in->p == '\n' || *in->p == '\r')
    in->p++;
}

/* Consume a punctuation mark; a longer mark that begins alike is not it. */
static int mark(struct in *in, const char *m) {
  size_t n = strlen(m);
  blanks(in);
  if (strncmp(in->p, m, n) != 0)
    return 0;
  if (strcmp(m, "/") == 0 && in->p[1] == '/')
    return 0;
  in->p += n;
  return 1;
}

static int word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

static size_t word_length(const char *p) {
  size_t n = 0;
  while (word_char(p[n]))
    n++;
  return n;
}

static int word(struct in *in, const char *w) {
  blanks(in);
  if (word_length(in->p) != strlen(w) || strncmp(in->p, w, strlen(w)) != 0)
    return 0;
  in->p += strlen(w);
  return 1;
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* At a digit, or at a '.' before one. */
static const atoll_sym *parse_number(struct in *in, int negative) {
  const char *start = in->p, *p = start;
  int real = 0;
  while (is_digit(*p))
    p++;
  if (*p == '.') {
    real = 1;
    p++;
    while (is_digit(*p))
      p++;
  }
  if ((*p == 'e' || *p == 'E') && (is_digit(p[1]) || ((p[1] == '+' || p[1] == '-') && is_digit(p[2])))) {
    real = 1;
    p += 2;
    while (is_digit(*p))
      p++;
  }
  if (word_char(*p))
    return wrong(in, start, "malformed number");
  in->p = p;
  if (real) {
    double v = strtod(start, NULL);
    if (!isfinite(v))
      return wrong(in, start, "real constant is too large");
    return built(in, start, atoll_sym_real(in->pool, negative ? -v : v));
  }
  errno = 0;
  unsigned long long v = strtoull(start, NULL, 10);
  unsigned long long limit = (unsigned long long)INT64_MAX + (negative ? 1 : 0);
  if (errno || v > limit)
    return wrong(in, start, "integer constant does not fit into 64 bits");
  return built(in, start, atoll_sym_int(in->pool, negative ? (int64_t)(0 - v) : (int64_t)v));
}

/* "(" a, b ... ")" after a function name; at least `least` and at most `most` arguments. Returns the number or -1. */
static int parse_arguments(struct in *in, const char *name, int least, int most, const atoll_sym *args[3],
                           atoll_sym_op fold) {
  const char *start = in->p;
  int n = 0;
  if (!mark(in, "(")) {
    (void)wrong(in, in->p, "expected '(' after %s", name);
    return -1;
  }
  do {
    const char *at = in->p;
    const atoll_sym *e = parse_or(in);
    if (!e)
      return -1;
    if (n == most) {
      (void)wrong(in, at, "%s takes %d arguments", name, most);
      return -1;
    }
    if (fold != ATOLL_SYM_CONST && n > 0) {
      args[0] = built(in, at, atoll_sym_binary(in->pool, fold, args[0], e));
      if (!args[0])
        return -1;
    } else {
      args[n] = e;
    }
    n++;
  } while (mark(in, ","));
  if (!mark(in, ")")) {
    (void)wrong(in, in->p, "expected ',' or ')'");
    return -1;
  }
  if (n < least) {
    (void)wrong(in, start, "%s takes at least %d arguments, found %d", name, least, n);
    return -1;
  }
  return n;
}

static const atoll_sym *parse_primary(struct in *in) {
  const atoll_sym *args[3];
  blanks(in);
  const char *start = in->p;
  if (is_digit(*start) || (*start == '.' && is_digit(start[1])))
    return parse_number(in, 0);
  if (mark(in, "(")) {
    const atoll_sym *e = parse_or(in);
    if (e && !mark(in, ")"))
      return wrong(in, in->p, "expected ')'");
    return e;
  }
  if (word(in, "true"))
    return built(in, start, atoll_sym_bool(in->pool, 1));
  if (word(in, "false"))
    return built(in, start, atoll_sym_bool(in->pool, 0));
  if (word(in, "min"))
    return parse_arguments(in, "min", 2, INT32_MAX, args, ATOLL_SYM_MIN) < 0 ? NULL : args[0];
  if (word(in, "max"))
    return parse_arguments(in, "max", 2, INT32_MAX, args, ATOLL_SYM_MAX) < 0 ? NULL : args[0];
  if (word(in, "select"))
    return parse_arguments(in, "select", 3, 3, args, ATOLL_SYM_CONST) < 0
               ? NULL
               : built(in, start, atoll_sym_select(in->pool, args[0], args[1], args[2]));
  if (word(in, "real"))
    return parse_arguments(in, "real", 1, 1, args, ATOLL_SYM_CONST) < 0
               ? NULL
               : built(in, start, atoll_sym_to_real(in->pool, args[0]));
  if (word(in, "ceildiv"))
    return parse_arguments(in, "ceildiv", 2, 2, args, ATOLL_SYM_CONST) < 0
               ? NULL
               : built(in, start, atoll_sym_ceildiv(in->pool, args[0], args[1]));
  size_t n = word_length(start);
  char name[256];
  if (n == 0)
    return wrong(in, start,
                 *start ? "expected a number, a name or '('" : "the expression ends where an operand is expected");
  if (sym_reserved(start, n) || n >= sizeof name)
    return wrong(in, start, n >= sizeof name ? "name is too long" : "expected an operand, found a word of the grammar");
  memcpy(name, start, n);
  name[n] = '\0';
  in->p += n;
  const atoll_sym *known = sym_find_var(in->pool, name);
  return known ? known : built(in, start, atoll_sym_var(in->pool, name, ATOLL_SYM_INT));
}

static const atoll_sym *parse_unary(struct in *in) {
  blanks(in);
  const char *start = in->p;
  if (!mark(in, "-"))
    return parse_primary(in);
  blanks(in);
  if (is_digit(*in->p) || (*in->p == '.' && is_digit(in->p[1])))
    return parse_number(in, 1);
  if (++in->depth > NESTING_MAX)
    return wrong(in, start, "nested deeper than %d", NESTING_MAX);
  const atoll_sym *e = parse_unary(in);
  in->depth--;
  if (!e)
    return NULL;
  const atoll_sym *minus = e->type == ATOLL_SYM_REAL ? atoll_sym_real(in->pool, -1) : atoll_sym_int(in->pool, -1);
  return built(in, start, minus ? atoll_sym_mul(in->pool, minus, e) : NULL);
}

static const atoll_sym *parse_product(struct in *in) {
  static const struct {
    const char *mark;
    atoll_sym_op op;
  } ops[] = {{"*", ATOLL_SYM_MUL}, {"//", ATOLL_SYM_FLOORDIV}, {"%", ATOLL_SYM_MOD}, {"/", ATOLL_SYM_DIV}};
  const atoll_sym *e = parse_unary(in);
  while (e) {
    blanks(in);
    const char *where = in->p;
    size_t k = 0;
    while (k < 4 && !mark(in, ops[k].mark))
      k++;
    if (k == 4)
      break;
    const atoll_sym *b = parse_unary(in);
    e = b ? built(in, where, atoll_sym_binary(in->pool, ops[k].op, e, b)) : NULL;
  }
  return e;
}

static const atoll_sym *parse_sum(struct in *in) {
  const atoll_sym *e = parse_product(in);
  while (e) {
    blanks(in);
    const char *where = in->p;
    atoll_sym_op op = mark(in, "+") ? ATOLL_SYM_ADD : mark(in, "-") ? ATOLL_SYM_SUB : ATOLL_SYM_CONST;
    if (op == ATOLL_SYM_CONST)
      break;
    const atoll_sym *b = parse_product(in);
    e = b ? built(in, where, atoll_sym_binary(in->pool, op, e, b)) : NULL;
  }
  return e;
}

static const atoll_sym *parse_comparison(struct in *in) {
  static const struct {
    const char *mark;
    atoll_sym_op op;
    int swap;
  } ops[] = {{"<=", ATOLL_SYM_LE, 0}, {">=", ATOLL_SYM_LE, 1}, {"==", ATOLL_SYM_EQ, 0},
             {"!=", ATOLL_SYM_NE, 0}, {"<", ATOLL_SYM_LT, 0},  {">", ATOLL_SYM_LT, 1}};
  const atoll_sym *e = parse_sum(in);
  blanks(in);
  const char *where = in->p;
  for (size_t k = 0; e && k < sizeof ops / sizeof ops[0]; k++)
    if (mark(in, ops[k].mark)) {
      const atoll_sym *b = parse_sum(in);
      return b ? built(in, where, atoll_sym_binary(in->pool, ops[k].op, ops[k].swap ? b : e, ops[k].swap ? e : b))
               : NULL;
    }
  return e;
}

static const atoll_sym *parse_not(struct in *in) {
  blanks(in);
  const char *start = in->p;
  if (!word(in, "not"))
    return parse_comparison(in);
  if (++in->depth > NESTING_MAX)
    return wrong(in, start, "nested deeper than %d", NESTING_MAX);
  const atoll_sym *e = parse_not(in);
  in->depth--;
  return e ? built(in, start, atoll_sym_not(in->pool, e)) : NULL;
}

static const atoll_sym *parse_and(struct in *in) {
  const atoll_sym *e = parse_not(in);
  while (e) {
    blanks(in);
    const char *where = in->p;
    if (!word(in, "and"))
      break;
    const atoll_sym *b = parse_not(in);
    e = b ? built(in, where, atoll_sym_binary(in->pool, ATOLL_SYM_AND, e, b)) : NULL;
  }
  return e;
}

static const atoll_sym *parse_or(struct in *in) {
  if (++in->depth > NESTING_MAX)
    return wrong(in, in->p, "nested deeper than %d", NESTING_MAX);
  const atoll_sym *e = parse_and(in);
  while (e) {
    blanks(in);
    const char *where = in->p;
    if (!word(in, "or"))
      break;
    const atoll_sym *b = parse_and(in);
    e = b ? built(in, where, atoll_sym_binary(in->pool, ATOLL_SYM_OR, e, b)) : NULL;
  }
  in->depth--;
  return e;
}

/* The line around `where` and a caret below it. */
static atoll_err show(const struct in *in) {
  enum { BEFORE = 60, AFTER = 30 };
  size_t at = (size_t)(in->where - in->text), from = at > BEFORE ? at - BEFORE : 0;
  char line[BEFORE + AFTER + 1];
  size_t n = 0;
  for (; n < BEFORE + AFTER && in->text[from + n]; n++) {
    char c = in->text[from + n];
    line[n] = c == '\n' || c == '\t' || c == '\r' ? ' ' : c;
  }
  line[n] = '\0';
  const char *cut = from ? "..." : "";
  return atoll_fail(in->code, "expression, column %zu: %s\n  %s%s\n  %*s^", at + 1, in->why, cut, line,
                    (int)(strlen(cut) + at - from), "");
}

atoll_err atoll_sym_parse(atoll_syms *pool, const char *text, const atoll_sym **out) {
  if (!pool || !text || !out)
    return atoll_fail(ATOLL_USAGE, "no pool, text or result to parse an expression");
  struct in in = {.pool = pool, .text = text, .p = text};
  struct sym_error before = {.code = ATOLL_OK}; /* an error of earlier constructions stays pending */
  sym_error_swap(pool, &before);
  const atoll_sym *e = parse_or(&in);
  blanks(&in);
  if (e && *in.p)
    e = wrong(&in, in.p, "unexpected text after the expression");
  struct sym_error ours = before;
  sym_error_swap(pool, &ours);
  if (!e)
    return show(&in);
  *out = e;
  return ATOLL_OK;
}

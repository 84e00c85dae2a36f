/* Index strings, conditions and domains of the user, with a caret at what is wrong.
 *
 *   index   item (',' item)*            positional: one per dimension of the tensor
 *   item    [name '='] expr [':' expr]  named: the dimensions left out are unchanged
 *
 * Expressions are libcore's. Each is parsed in place, behind as many blanks as characters precede it, so that the
 * column that libcore reports is that of the whole string. */
#include "graph.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct text {
  rt_graph *g;
  const char *what, *s; /* "index", the whole string */
};

static atoll_err wrong(const struct text *t, size_t at, const char *fmt, ...) ATOLL_PRINTF(3, 4);
static atoll_err wrong(const struct text *t, size_t at, const char *fmt, ...) {
  char why[400];
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(why, sizeof why, fmt, args);
  va_end(args);
  return atoll_fail(ATOLL_USAGE, "%s, column %zu: %s\n  %s\n  %*s^", t->what, at + 1, why, t->s, (int)at, "");
}

/* libcore's message is "expression, column N: why" and two lines more. */
static atoll_err reword(const struct text *t, size_t at) {
  char why[400] = "";
  size_t column = at + 1;
  if (sscanf(atoll_err_message(), "expression, column %zu: %399[^\n]", &column, why) != 2)
    (void)snprintf(why, sizeof why, "%.390s", atoll_err_message());
  return wrong(t, column - 1, "%s", why);
}

static int find_word(const char *s, size_t from, size_t to, const char *word, size_t *at) {
  size_t n = strlen(word);
  for (size_t i = from; i + n <= to; i++)
    if (strncmp(s + i, word, n) == 0 && (i == from || (!isalnum((unsigned char)s[i - 1]) && s[i - 1] != '_')) &&
        !isalnum((unsigned char)s[i + n]) && s[i + n] != '_') {
      *at = i;
      return 1;
    }
  return 0;
}

/* Every variable is a dimension of the mask or a bound; bounds that are known become numbers. */
static atoll_err resolve(const struct text *t, size_t from, size_t to, unsigned mask, const atoll_sym *e,
                         const atoll_sym **out) {
  rt_graph *g = t->g;
  size_t at = from;
  if (atoll_sym_op_of(e) == ATOLL_SYM_VAR) {
    const char *name = atoll_sym_name(e);
    for (int d = 0; d < g->dims; d++) {
      if (strcmp(name, g->dim[d].bound_name) == 0) {
        *out = atoll_sym_substitute(g->syms, *out, e, g->dim[d].size);
        return ATOLL_OK;
      }
      if (strcmp(name, g->dim[d].name) == 0) {
        if (mask >> d & 1u)
          return ATOLL_OK;
        (void)find_word(t->s, from, to, name, &at);
        return wrong(t, at, "'%s' is not in the tensor's domain", name);
      }
    }
    (void)find_word(t->s, from, to, name, &at);
    return wrong(t, at, "'%s' is neither a dimension nor a bound", name);
  }
  for (int k = 0; k < atoll_sym_arity(e); k++)
    ATOLL_TRY(resolve(t, from, to, mask, atoll_sym_arg(e, k), out));
  return ATOLL_OK;
}

/* Why e may have no whole number that fits, or NULL. */
static const char *no_number(const atoll_sym *e) {
  int64_t v;
  if (atoll_sym_type_of(e) == ATOLL_SYM_REAL)
    return "real numbers have no place in it";
  if (rt_is_const(e, &v) && (v > RT_NUMBER_MOST || v < -RT_NUMBER_MOST))
    return "a number is too large";
  for (int k = 0; k < atoll_sym_arity(e); k++) {
    const char *why = no_number(atoll_sym_arg(e, k));
    if (why)
      return why;
  }
  return NULL;
}

static atoll_err parse(const struct text *t, size_t from, size_t to, unsigned mask, atoll_sym_type type,
                       const atoll_sym **out) {
  while (from < to && isspace((unsigned char)t->s[from]))
    from++;
  if (from == to)
    return wrong(t, from, "an expression is missing");
  char *padded = malloc(to + 1);
  if (!padded)
    return atoll_fail(ATOLL_NOMEM, "%s: no memory", t->what);
  memset(padded, ' ', from);
  memcpy(padded + from, t->s + from, to - from);
  padded[to] = 0;
  const atoll_sym *e = NULL;
  atoll_err err = atoll_sym_parse(t->g->syms, padded, &e);
  free(padded);
  if (err == ATOLL_USAGE)
    return reword(t, from);
  ATOLL_TRY(err);
  if (atoll_sym_type_of(e) != type)
    return wrong(t, from, type == ATOLL_SYM_BOOL ? "a condition is expected" : "an integer expression is expected");
  const char *why = no_number(e);
  if (why)
    return wrong(t, from, "%s", why);
  const atoll_sym *whole = e;
  ATOLL_TRY(resolve(t, from, to, mask, e, &whole));
  if (!whole)
    return atoll_syms_error(t->g->syms);
  *out = whole;
  return ATOLL_OK;
}

/* Why e is not quasi-affine, or NULL. An expression that is only computed may have products; what is divided by must
 * be a positive number in any case, so that nothing divides by 0 and emitted divisions round down (emitted.h). */
static const char *not_affine(const atoll_sym *e, int products) {
  int64_t v;
  int varying = 0;
  switch (atoll_sym_op_of(e)) {
  case ATOLL_SYM_MUL:
    for (int k = 0; k < atoll_sym_arity(e) && !products; k++)
      varying += !rt_is_const(atoll_sym_arg(e, k), &v);
    if (varying > 1)
      return "not affine: a product of two variables";
    break;
  case ATOLL_SYM_FLOORDIV:
  case ATOLL_SYM_MOD:
    if (!rt_is_const(atoll_sym_arg(e, 1), &v) || v <= 0)
      return products ? "// and % need a positive number on the right"
                      : "not affine: // and % need a positive number on the right";
    break;
  default:
    break;
  }
  for (int k = 0; k < atoll_sym_arity(e); k++) {
    const char *why = not_affine(atoll_sym_arg(e, k), products);
    if (why)
      return why;
  }
  return NULL;
}

static atoll_err parse_checked(const struct text *t, size_t from, size_t to, unsigned mask, atoll_sym_type type,
                               int products, const atoll_sym **out) {
  ATOLL_TRY(parse(t, from, to, mask, type, out));
  const char *why = not_affine(*out, products);
  return why ? wrong(t, from, "%s", why) : ATOLL_OK;
}

static atoll_err parse_affine(const struct text *t, size_t from, size_t to, unsigned mask, atoll_sym_type type,
                              const atoll_sym **out) {
  return parse_checked(t, from, to, mask, type, 0, out);
}

/* Position of the next `c` outside of parentheses in [from, to), or to. */
static size_t next(const char *s, size_t from, size_t to, char c) {
  int depth = 0;
  for (size_t i = from; i < to; i++) {
    depth += (s[i] == '(') - (s[i] == ')');
    if (s[i] == c && depth == 0)
      return i;
  }
  return to;
}

static int named_dim(const rt_graph *g, const char *s, size_t from, size_t to) {
  while (from < to && isspace((unsigned char)s[from]))
    from++;
  while (to > from && isspace((unsigned char)s[to - 1]))
    to--;
  for (int d = 0; d < g->dims; d++)
    if (strlen(g->dim[d].name) == to - from && strncmp(g->dim[d].name, s + from, to - from) == 0)
      return d;
  return -1;
}

/* The name before a single '=', if there is one. Moves *from behind it. */
static int item_name(const struct text *t, size_t *from, size_t to, int *dim) {
  size_t eq = next(t->s, *from, to, '=');
  if (eq == to || t->s[eq + 1] == '=' || eq == *from || strchr("<>=!", t->s[eq - 1]))
    return 0;
  *dim = named_dim(t->g, t->s, *from, eq);
  *from = eq + 1;
  return 1;
}

static atoll_err parse_item(const struct text *t, size_t from, size_t to, rt_item *item) {
  unsigned all = (1u << t->g->dims) - 1;
  size_t colon = next(t->s, from, to, ':');
  *item = (rt_item){NULL, NULL};
  ATOLL_TRY(parse_affine(t, from, colon, all, ATOLL_SYM_INT, &item->lo));
  if (colon < to)
    ATOLL_TRY(parse_affine(t, colon + 1, to, all, ATOLL_SYM_INT, &item->hi));
  return ATOLL_OK;
}

static int next_dim(const atoll_rt *x, int d) {
  do
    d++;
  while (d < x->g->dims && !rt_has(x, d));
  return d;
}

atoll_err rt_parse_index(rt_graph *g, const atoll_rt *x, const char *text, rt_item item[RT_DIMS]) {
  char what[120], label[96];
  (void)snprintf(what, sizeof what, "index of %s", rt_label(x, label, sizeof label));
  struct text t = {g, what, text};
  size_t end = text ? strlen(text) : 0, from = 0;
  unsigned given = 0;
  int named = 0, items = 0, d = -1;
  if (!text)
    return atoll_fail(ATOLL_USAGE, "%s: there is none", what);
  for (int k = 0; k < g->dims; k++)
    item[k] = rt_has(x, k) ? (rt_item){g->dim[k].var, NULL} : (rt_item){NULL, NULL};
  for (; end && from <= end; items++) { /* what ends in a comma has an empty item more */
    size_t to = next(text, from, end, ','), body = from;
    int dim = -1;
    if (item_name(&t, &body, to, &dim))
      named++;
    else
      dim = d = next_dim(x, d);
    if (named && named != items + 1)
      return wrong(&t, from, "items are either all named or all by position");
    if (dim < 0 || dim >= g->dims || !rt_has(x, dim))
      return wrong(&t, from, named ? "this name is not a dimension of the tensor" : "more items than dimensions");
    if (given >> dim & 1u)
      return wrong(&t, from, "dimension '%s' is indexed twice", g->dim[dim].name);
    given |= 1u << dim;
    ATOLL_TRY(parse_item(&t, body, to, &item[dim]));
    from = to + 1;
  }
  if (!named && given != x->dims)
    return wrong(&t, end, "%d items for a tensor with %d dimensions", items, __builtin_popcount(x->dims));
  return ATOLL_OK;
}

atoll_err rt_parse_expr(rt_graph *g, const char *what, const char *text, unsigned mask, atoll_sym_type type,
                        const atoll_sym **out) {
  struct text t = {g, what, text};
  if (!text)
    return atoll_fail(ATOLL_USAGE, "%s: there is none", what);
  if (type == ATOLL_SYM_BOOL)
    return parse_affine(&t, 0, strlen(text), mask, type, out);
  return parse_checked(&t, 0, strlen(text), mask, type, 1, out);
}

atoll_err rt_parse_domain(rt_graph *g, const char *text, unsigned *mask) {
  struct text t = {g, "domain", text};
  if (!text)
    return atoll_fail(ATOLL_USAGE, "domain: there is none");
  size_t end = strlen(text);
  *mask = 0;
  for (size_t from = 0; end && from <= end;) {
    size_t to = next(text, from, end, ',');
    int d = named_dim(g, text, from, to);
    if (d < 0)
      return wrong(&t, from, "'%.*s' is not a dimension", (int)(to - from), text + from);
    if (*mask >> d & 1u)
      return wrong(&t, from, "dimension '%s' is named twice", g->dim[d].name);
    *mask |= 1u << d;
    from = to + 1;
  }
  return ATOLL_OK;
}

/* What each pass does to a program, as its text before and after the pass tells: how often a part of it occurs. A pass
 * that leaves the program as it was fails here; that it keeps the meaning is what random programs look at. */
#include <ctype.h>
#include <unistd.h>

#include "recurrent_test.h"

enum { N = 3, BATCH = 2, T = 12 };

static test_log got;
static atoll_rec *c;

/* ---- programs: each is given x, f64 [N] over b and t, and tells what sinks get ---- */

static atoll_rt *equal_nodes(atoll_rt *x) { return atoll_rt_add(atoll_rt_exp(x), atoll_rt_exp(x)); }

static atoll_rt *equal_chains(atoll_rt *x) {
  return atoll_rt_mul(atoll_rt_tanh(atoll_rt_at(x, "t=0")), atoll_rt_tanh(atoll_rt_at(x, "t=0")));
}

static atoll_rt *different_nodes(atoll_rt *x) {
  return atoll_rt_sub(atoll_rt_exp(x), atoll_rt_exp(atoll_rt_at(x, "t=T-1-t")));
}

static atoll_rt *unread(atoll_rt *x) {
  (void)atoll_rt_name(atoll_rt_log(atoll_rt_sin(x)), "unread");
  return atoll_rt_cos(x);
}

/* Of y, the last point alone is needed, and of what it reads three. */
static atoll_rt *last_alone(atoll_rt *x) {
  atoll_rt *y = atoll_rt_at(atoll_rt_name(atoll_rt_exp(x), "inner"), "t=max(0,t-2):t+1");
  return atoll_rt_at(atoll_rt_name(atoll_rt_sum(y, 0), "outer"), "t=T-1");
}

static atoll_rt *negated_twice(atoll_rt *x) { return atoll_rt_exp(atoll_rt_neg(atoll_rt_neg(x))); }

static atoll_rt *neutral_numbers(atoll_rt *x) {
  atoll_rt *y = atoll_rt_div(atoll_rt_scale(atoll_rt_shift(x, 0), 1), atoll_rec_const(c, ATOLL_F64, 1));
  return atoll_rt_sqrt(atoll_rt_sub(y, atoll_rec_const(c, ATOLL_F64, 0)));
}

static atoll_rt *scaled_twice(atoll_rt *x) { return atoll_rt_exp(atoll_rt_scale(atoll_rt_scale(x, 2), 3.5)); }

/* Each factor means 0 to integers. */
static atoll_rt *whole_scaled_twice(atoll_rt *x) {
  return atoll_rt_scale(atoll_rt_scale(atoll_rt_cast(x, ATOLL_I32), 0.5), 2);
}

/* In f32 the factors together are infinite, or nothing. */
static atoll_rt *scaled_far(atoll_rt *x) {
  return atoll_rt_scale(atoll_rt_scale(atoll_rt_cast(atoll_rt_scale(x, 1e-30), ATOLL_F32), 1e25), 1e25);
}

static atoll_rt *scaled_away(atoll_rt *x) {
  return atoll_rt_scale(atoll_rt_scale(atoll_rt_cast(atoll_rt_scale(x, 1e30), ATOLL_F32), 1e-25), 1e-25);
}

static atoll_rt *whole_negated_twice(atoll_rt *x) {
  return atoll_rt_neg(atoll_rt_neg(atoll_rt_cast(atoll_rt_scale(x, 100), ATOLL_U8)));
}

static atoll_rt *rounded_numbers(atoll_rt *x) {
  atoll_rt *many = atoll_rec_const(c, ATOLL_F32, 1e8), *one = atoll_rec_const(c, ATOLL_F32, 1);
  return atoll_rt_add(atoll_rt_cast(x, ATOLL_F32), atoll_rt_sub(atoll_rt_add(many, one), many));
}

static atoll_rt *numbers_alone(atoll_rt *x) {
  atoll_rt *two = atoll_rec_const(c, ATOLL_F64, 2), *three = atoll_rec_const(c, ATOLL_F64, 3);
  return atoll_rt_mul(x, atoll_rt_div(atoll_rt_sub(atoll_rt_add(two, three), atoll_rt_mul(two, three)), two));
}

static atoll_rt *view_of_view(atoll_rt *x) {
  atoll_rt *y = atoll_rt_at(atoll_rt_at(atoll_rt_exp(x), "t=max(t-1,0)"), "t=T-1-t");
  return atoll_rt_sin(atoll_rt_at(y, "b=B-1-b"));
}

static atoll_rt *reshaped_twice(atoll_rt *x) {
  return atoll_rt_exp(atoll_rt_reshape(atoll_rt_reshape(x, ATOLL_SHAPE(N, 1)), ATOLL_SHAPE(1, N)));
}

static atoll_rt *sum_of_product(atoll_rt *x) {
  atoll_rt *w = atoll_rec_input(c, "w", ATOLL_F64, "", ATOLL_SHAPE(N, N));
  return atoll_rt_sum(atoll_rt_einsum("i,ij->ij", x, w), 0);
}

static atoll_rt *permuted_product(atoll_rt *x) {
  atoll_rt *w = atoll_rec_input(c, "w", ATOLL_F64, "", ATOLL_SHAPE(N, N));
  return atoll_rt_einsum("ij,j->i", atoll_rt_permute(w, (int[]){1, 0}), x);
}

static atoll_rt *permuted_back(atoll_rt *x) {
  atoll_rt *y = atoll_rt_mul(atoll_rt_reshape(x, ATOLL_SHAPE(N, 1)), x);
  return atoll_rt_exp(atoll_rt_permute(y, (int[]){0, 1}));
}

static atoll_rt *sum_of_permuted(atoll_rt *x) {
  atoll_rt *y = atoll_rt_sub(atoll_rt_reshape(x, ATOLL_SHAPE(N, 1)), atoll_rt_exp(x));
  return atoll_rt_sum(atoll_rt_permute(y, (int[]){1, 0}), 0);
}

static atoll_rt *expression_alone(atoll_rt *x) { return atoll_rt_add(x, atoll_rec_expr(c, ATOLL_F64, "7 // 2")); }

/* The sum over its own axis is taken before values of all t are read together. */
static atoll_rt *sum_of_slice(atoll_rt *x) {
  return atoll_rt_maximum(atoll_rt_sum(atoll_rt_at(atoll_rt_exp(x), "t=max(0,t-3):t+1"), 1), 0);
}

static atoll_rt *over_a_batch(atoll_rt *x) { return atoll_rt_sum(atoll_rt_tanh(x), 0); }

static atoll_rt *product_over_a_batch(atoll_rt *x) {
  atoll_rt *w = atoll_rec_input(c, "w", ATOLL_F64, "", ATOLL_SHAPE(N, N));
  return atoll_rt_mv(w, atoll_rt_tanh(x));
}

/* A recurrence over t that crosses the batch: the batch goes along t together. */
static atoll_rt *across_a_batch(atoll_rt *x) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt_def(h, "t==0", x);
  atoll_rt_def(h, "true", atoll_rt_tanh(atoll_rt_at(h, "b=B-1-b,t=t-1")));
  return h;
}

/* A recurrence over the batch, of functions that are needed everywhere: they stay, what reads them does not. */
static atoll_rt *along_a_batch(atoll_rt *x) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt *f = atoll_rt_tanh(atoll_rt_mul(x, atoll_rt_at(h, "b=max(b-1,0)")));
  atoll_rt_def(h, "b==0", x);
  atoll_rt_def(h, "true", f);
  return atoll_rt_sub(f, h);
}

/* Softmax attention of one head over a window. */
static atoll_rt *attention(atoll_rt *x) {
  atoll_rt *k = atoll_rt_at(atoll_rt_name(atoll_rt_tanh(x), "keys"), "t=max(0,t-4):t+1");
  return atoll_rt_einsum("n,nd->d", atoll_rt_softmax(atoll_rt_einsum("d,nd->n", x, k), -1), k);
}

/* The same without a contraction: it stays as it is. */
static atoll_rt *no_attention(atoll_rt *x) {
  atoll_rt *k = atoll_rt_at(atoll_rt_tanh(x), "t=max(0,t-4):t+1");
  return atoll_rt_sum(atoll_rt_mul(atoll_rt_softmax(k, 0), k), 0);
}

static atoll_rt *sum_over_time(atoll_rt *x) { return atoll_rt_sum(atoll_rt_at(atoll_rt_tanh(x), "t=0:T"), 0); }

/* A sum over b for each t, and one of these over t. */
static atoll_rt *sum_over_both(atoll_rt *x) {
  return atoll_rt_sum(atoll_rt_sum(atoll_rt_at(atoll_rt_tanh(x), "b=0:B,t=0:T"), 0), 0);
}

static atoll_rt *sum_over_a_part(atoll_rt *x) { return atoll_rt_sum(atoll_rt_at(atoll_rt_tanh(x), "t=0:t+1"), 0); }

/* y[t-1], or 0 before the first. */
static atoll_rt *shifted(atoll_rt *x) {
  atoll_rt *m = atoll_rec_tensor(c, "before", ATOLL_F64, "b,t", ATOLL_SHAPE(N)), *y = atoll_rt_tanh(x);
  atoll_rt_def(m, "t==0", atoll_rec_const(c, ATOLL_F64, 0.25));
  atoll_rt_def(m, "true", atoll_rt_at(y, "t=t-1"));
  return atoll_rt_add(atoll_rt_scale(m, 2), y);
}

/* Here the first is no number. */
static atoll_rt *shifted_from_another(atoll_rt *x) {
  atoll_rt *m = atoll_rec_tensor(c, "before", ATOLL_F64, "b,t", ATOLL_SHAPE(N)), *y = atoll_rt_tanh(x);
  atoll_rt_def(m, "t==0", atoll_rt_cos(x));
  atoll_rt_def(m, "true", atoll_rt_at(y, "t=t-1"));
  return atoll_rt_add(atoll_rt_scale(m, 2), y);
}

static atoll_rt *chain(atoll_rt *x) { return atoll_rt_exp(atoll_rt_sin(atoll_rt_name(atoll_rt_tanh(x), "inner"))); }

static atoll_rt *gradient(atoll_rt *x) {
  atoll_rt *grad;
  atoll_rt_gradients(atoll_rt_sum(atoll_rt_exp(x), 0), 1, &x, &grad);
  return grad;
}

/* ---- the table ---- */

enum { SEEN = 5 };

typedef struct part {
  const char *text;
  int before, after; /* how often it occurs */
} part;

static const struct expectation {
  const char *pass; /* the last one is meant; others do not run but those that must */
  atoll_rt *(*make)(atoll_rt *);
  part seen[SEEN];
} table[] = {
    /* dead code, and the points that are needed */
    {"domains", unread, {{"unread", 1, 0}, {" = SIN", 1, 0}, {" = LOG", 1, 0}, {" = COS", 1, 1}}},
    {"domains", last_alone, {{"outer (b,t)", 1, 0}, {"outer (b,t : ", 0, 1}, {"inner (b,t : ", 0, 1}}},
    {"gradients", gradient, {{" = GRAD", 1, 0}, {" = EXP", 1, 1}, {" = MUL", 0, 1}}},
    /* common subexpressions */
    {"simplify", equal_nodes, {{" = EXP", 2, 1}, {" = ADD", 1, 1}}},
    {"simplify", equal_chains, {{" = TANH", 2, 1}, {" = IDENT", 2, 0}, {" = MUL", 1, 1}}},
    {"simplify", different_nodes, {{" = EXP", 2, 2}, {" = IDENT", 1, 0}}},
    /* algebra */
    {"simplify", negated_twice, {{" = NEG", 2, 0}, {" = EXP", 1, 1}}},
    {"simplify",
     neutral_numbers,
     {{" = ADD", 1, 0}, {" = SUB", 1, 0}, {" = MUL", 1, 0}, {" = DIV", 1, 0}, {" = SQRT", 1, 1}}},
    {"simplify", scaled_twice, {{" = MUL", 2, 1}, {" = CONST 7\n", 0, 1}, {" = CONST 2\n", 1, 0}}},
    {"simplify", numbers_alone, {{" = CONST -0.5\n", 0, 1}, {" = ADD", 1, 0}, {" = DIV", 1, 0}, {" = MUL", 2, 1}}},
    {"simplify", view_of_view, {{" = IDENT", 3, 0}, {"t=max(", 1, 1}, {" = SIN", 1, 1}}},
    {"simplify", reshaped_twice, {{" = RESHAPE", 2, 1}}},
    {"simplify", sum_of_product, {{" = SUM", 1, 0}, {" = EINSUM i,ij->j ", 0, 1}}},
    {"simplify", permuted_product, {{" = PERMUTE", 1, 0}, {" = EINSUM ji,j->i ", 0, 1}}},
    {"simplify", permuted_back, {{" = PERMUTE", 1, 0}, {" = EXP", 1, 1}}},
    {"simplify", sum_of_permuted, {{" = PERMUTE", 1, 0}, {" = SUM axis 0", 1, 0}, {" = SUM axis 1", 0, 1}}},
    {"simplify", expression_alone, {{" = EVAL", 1, 0}, {" = CONST 3\n", 0, 1}}},
    {"simplify", gradient, {{" = EXPAND", 1, 0}, {" = MUL", 1, 0}, {" = EXP", 1, 1}}},
    {"simplify",
     sum_of_slice,
     {{"f64[3] = EXP", 1, 1}, {") f64[] = SUM", 0, 1}, {" = SUM axis 1", 1, 0}, {" = SUM axis 0", 0, 1}}},
    /* whole dimensions as axes */
    {"vectorize",
     over_a_batch,
     {{"(b,t) f64[3] = TANH", 1, 0}, {"(t) f64[2,3] = TANH", 0, 1}, {"(t) f64[2] = SUM axis 1", 0, 1}}},
    {"vectorize", product_over_a_batch, {{" = EINSUM oi,i->o ", 1, 0}, {"(t) f64[2,3] = EINSUM ", 0, 1}}},
    {"vectorize", across_a_batch, {{" f64[2,3] = TANH", 0, 1}, {" f64[2,3] = MERGE", 0, 1}}},
    {"vectorize",
     along_a_batch,
     {{" f64[2,3] = SUB", 0, 1}, {" f64[3] = MUL", 1, 1}, {" f64[3] = TANH", 1, 1}, {" f64[3] = MERGE", 1, 1}}},
    /* attention in blocks */
    {"simplify,tile",
     attention,
     {{" = MERGE", 0, 3},
      {"t=max(0, 4*tj, t - 4):min(t + 1, 4*tj + 4)]", 0, 2},
      {" = DIV", 1, 1},
      {" = MAXIMUM", 1, 1},
      {"t=max(0, t - 4):t + 1]", 2, 0}}},
    {"simplify,tile", no_attention, {{" = MERGE", 0, 0}, {"tj", 0, 0}, {" = DIV", 1, 1}}},
    /* scans as recurrences */
    {"simplify,lift", sum_over_time, {{" = SUM", 1, 0}, {" = MERGE", 0, 1}, {" = ADD", 0, 1}}},
    {"simplify,lift", sum_over_both, {{" = SUM", 2, 0}, {" = MERGE", 0, 2}, {" = ADD", 0, 2}}},
    {"simplify,lift", sum_over_a_part, {{" = SUM", 1, 1}, {" = MERGE", 0, 0}}},
    /* storage: pads, statements */
    {"simplify,pads", shifted, {{" = MERGE", 1, 0}, {" = TANH padded with 0.25", 0, 1}, {" if ", 2, 1}}},
    {"simplify,pads", shifted_from_another, {{" = MERGE", 1, 1}, {"padded", 0, 0}}},
    {"groups", chain, {{" in group of ", 0, 2}, {" = EXP", 1, 1}}},
};

/* Must not change anything: they say where a pass stops. */
static int is_negative(const struct expectation *e) {
  return e->make == no_attention || e->make == sum_over_a_part || e->make == shifted_from_another;
}

/* ---- texts ---- */

/* Whole words: " = SIN" is none of " = SINK". */
static int count(const char *text, const char *what) {
  const size_t length = strlen(what);
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at++)
    n += !isupper(what[length - 1]) || !isupper(at[length]);
  return n;
}

static atoll_rec *make_program(atoll_rt *(*make)(atoll_rt *)) {
  c = test_context();
  got.n = 0;
  atoll_rec_dim(c, "b", BATCH);
  atoll_rec_dim(c, "t", T);
  atoll_rt_sink(make(atoll_rec_input(c, "x", ATOLL_F64, "b,t", ATOLL_SHAPE(N))), "log", test_collect, &got);
  assert_ok(atoll_rec_error(c));
  return c;
}

/* What compiling tells, with the optional passes that are meant. */
static char *traced(atoll_rt *(*make)(atoll_rt *), const char *passes) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *trace = open_memstream(&text, &bytes);
  atoll_rec_program *p = NULL;
  atoll_rec *program = make_program(make);
  assert_non_null(trace);
  assert_ok(atoll_rec_compile(program,
                              &(atoll_rec_params){.passes = passes,
                                                  .vectorize = strstr(passes, "vectorize") ? "b" : NULL,
                                                  .tile = strstr(passes, "tile") ? 4 : 0,
                                                  .compiler = "",
                                                  .trace = trace},
                              &p));
  fclose(trace);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&program);
  return text;
}

/* The graph after this pass, and before it, out of a trace that is cut up. */
static void around(char *text, const char *pass, const char **before, const char **after) {
  char line[64];
  (void)snprintf(line, sizeof line, "== after %s\n", pass);
  char *at = strstr(text, line);
  assert_non_null(at);
  *after = at + strlen(line);
  char *end = strstr(*after, "\n== ");
  assert_non_null(end);
  end[1] = at[0] = 0;
  char *from = text;
  for (char *next = from; (next = strstr(next, "== ")); next++)
    if (next == text || next[-1] == '\n')
      from = next;
  *before = strchr(from, '\n') + 1;
}

/* Algebra that real numbers allow and a type does not. */
static void simplification_keeps_to_types(void **state) {
  (void)state;
  static atoll_rt *(*const make[])(atoll_rt *) = {whole_scaled_twice,  scaled_far,      scaled_away,
                                                  whole_negated_twice, rounded_numbers, scaled_twice};
  double x[BATCH * T * N];
  for (int k = 0; k < BATCH * T * N; k++)
    x[k] = 1 + k % 5 / 4.0;
  const atoll_rec_binding b = {"x", 0, x};
  for (size_t k = 0; k < sizeof make / sizeof *make; k++) {
    atoll_rec_program *p = NULL;
    atoll_rec *program = make_program(make[k]);
    assert_ok(atoll_rec_interpret(program, &b, 1));
    const test_log expected = got;
    assert_ok(atoll_rec_compile(program, &(atoll_rec_params){.passes = "simplify", .compiler = ""}, &p));
    got.n = 0;
    assert_ok(atoll_rec_run(p, &b, 1));
    assert_int_equal(got.n, BATCH * T * N);
    for (int i = 0; i < got.n; i++) {
      assert_true(isfinite(expected.v[i]) && (k == 0 || k == 3 || expected.v[i] != 0));
      if (!(fabs(got.v[i] - expected.v[i]) <= 1e-6 * fabs(expected.v[i])))
        fail_msg("program %zu, value %d: %g became %g", k, i, expected.v[i], got.v[i]);
    }
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&program);
  }
}

static void passes_do_what_they_are_for(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
    const struct expectation *e = &table[k];
    const char *comma = strchr(e->pass, ','), *pass = comma ? comma + 1 : e->pass;
    char *text = traced(e->make, e->pass);
    const char *before, *after;
    int changes = 0;
    around(text, pass, &before, &after);
    for (const part *p = e->seen; p < e->seen + SEEN && p->text; p++) {
      const int was = count(before, p->text), is = count(after, p->text);
      changes += was != is;
      if (was != p->before || is != p->after)
        fail_msg("program %d: '%s' occurs %d times, and %d times after %s; expected %d and %d\n%s== after\n%s", (int)k,
                 p->text, was, is, pass, p->before, p->after, before, after);
    }
    if (is_negative(e))
      assert_string_equal(before, after);
    else
      assert_true(changes > 0);
    free(text);
  }
}

/* The graph as it was built, as it is after each pass, in the order of passes, then the schedule. */
static void graphs_are_told_before_and_after_each_pass(void **state) {
  (void)state;
  static const char *const section[] = {"== program\n",         "== after cases\n",    "== after domains\n",
                                        "== after gradients\n", "== after simplify\n", "== after tile\n",
                                        "== after vectorize\n", "== after lift\n",     "== after pads\n",
                                        "== after groups\n",    "== schedule by ",     "== C\n"};
  char *text = traced(chain, atoll_rec_passes()), *at = text, *built = NULL;
  size_t bytes = 0;
  for (size_t k = 0; k < sizeof section / sizeof *section; k++) {
    char *found = strstr(at, section[k]);
    if (!found)
      fail_msg("'%s' is not told, or not in its place", section[k]);
    at = found + 1;
  }
  FILE *out = open_memstream(&built, &bytes);
  assert_non_null(out);
  atoll_rec *program = make_program(chain);
  assert_ok(atoll_rec_print(program, out));
  fclose(out);
  assert_int_equal(strncmp(text, "== program\n", 11), 0);
  assert_int_equal(strncmp(text + 11, built, strlen(built)), 0);
  assert_int_equal(strncmp(text + 11 + strlen(built), "== ", 3), 0);
  assert_int_equal(count(built, "\n"), 5); /* the input, three functions, the sink */
  atoll_rec_destroy(&program);
  free(built);
  free(text);
}

/* ---- schedules ---- */

static atoll_rt *by_time(atoll_rt *x) {
  atoll_rt *y = atoll_rt_name(atoll_rt_tanh(x), "short"), *z = atoll_rt_name(atoll_rt_exp(x), "turned");
  atoll_rt *w = atoll_rt_name(atoll_rt_sin(atoll_rt_at(z, "t=T-1-t")), "at once");
  return atoll_rt_add(atoll_rt_maximum(atoll_rt_at(y, "t=max(0,t-3):t+1"), 0), w);
}

static atoll_rt *by_both(atoll_rt *x) {
  return atoll_rt_sin(atoll_rt_at(atoll_rt_name(atoll_rt_exp(x), "turned"), "b=B-1-b,t=T-1-t"));
}

/* Text of the report of a program. */
static char *report(atoll_rt *(*make)(atoll_rt *), const atoll_rec_params *params) {
  static const double x[BATCH * T * N];
  const atoll_rec_binding b = {"x", 0, x};
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  atoll_rec_program *p = NULL;
  atoll_rec *program = make_program(make);
  assert_non_null(out);
  assert_ok(atoll_rec_compile(program, params, &p));
  assert_ok(atoll_rec_run(p, &b, 1));
  assert_ok(atoll_rec_report(p, &b, 1, out));
  fclose(out);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&program);
  return text;
}

/* The line of the report that begins with the name. */
static void assert_stored(const char *text, const char *name, const char *how) {
  const char *peak = strstr(text, "peak "), *found = NULL;
  for (const char *at = text; (at = strstr(at, name)) && at < peak; at++)
    if (at > text && at[-1] == '\n')
      found = at;
  char line[200] = "";
  if (found)
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(found, "\n"), found);
  if (how ? !strstr(line, how) : found != NULL)
    fail_msg("'%s' is not stored as %s: '%s' in\n%s", name, how ? how : "nothing", line, text);
}

static void storage_follows_from_indices(void **state) {
  (void)state;
  char *text = report(by_time, &(atoll_rec_params){.passes = "", .compiler = ""});
  assert_stored(text, "short (", "ring of t, 4,");
  assert_stored(text, "turned (", "ring of t, 12,");
  assert_stored(text, "at once (", " one, ");
  free(text);
  for (int grouped = 0; grouped < 2; grouped++) {
    text = report(chain, &(atoll_rec_params){.passes = grouped ? "groups" : "", .compiler = ""});
    assert_stored(text, "inner (", grouped ? NULL : " one, ");
    assert_int_equal(count(text, "  allocate "), grouped ? 1 : 3); /* of a group, what leaves it */
    assert_int_equal(count(text, "  free "), grouped ? 1 : 3);
    free(text);
  }
  text = report(by_time, &(atoll_rec_params){.passes = "", .compiler = "", .block = 4});
  assert_stored(text, "short (", "of blocks of 4");
  free(text);
  text = report(by_both, &(atoll_rec_params){.passes = "", .compiler = ""});
  assert_stored(text, "turned (", "points, 24,");
  free(text);
}

/* What a schedule has statements for. */
static void schedules_tell_what_happens_to_memory(void **state) {
  char folder[] = "passes-XXXXXX";
  (void)state;
  assert_non_null(mkdtemp(folder));
  for (int way = 0; way < 3; way++) {
    char *text = report(by_time, &(atoll_rec_params){.passes = way == 1 ? "donate" : "",
                                                     .compiler = "",
                                                     .memory = way == 2 ? 1 << 20 : 0,
                                                     .offload = way == 2 ? folder : NULL});
    assert_true(count(text, "allocate ") >= 3);
    assert_true(count(text, "free ") >= 3);
    assert_int_equal(count(text, "donate ") > 0, way == 1);
    assert_int_equal(count(text, "offload ") > 0, way == 2);
    assert_int_equal(count(text, "fetch ") > 0, way == 2);
    free(text);
  }
  assert_int_equal(rmdir(folder), 0);
}

/* Windows over a dimension, and what reads them, have another shape at each point of it, and have to stay as they are:
 * so vectorization changes no number, and less than all. */
static void windows_along_a_dimension_are_not_vectorized(void **state) {
  enum { L = 5 };
  static const double x[L * N] = {1, -2, 3, 0.5, -1, 4, 2, 2, -3, 1, 0, -1, 2, 0.25, 3};
  static const atoll_rec_binding b[] = {{"x", 0, x}, {"L", L, NULL}};
  static test_log expected;
  (void)state;
  got.n = 0;
  for (int way = 0; way < 2; way++) {
    atoll_rec_program *p = NULL;
    c = test_context();
    atoll_rec_dim(c, "l", 0);
    atoll_rt *y = atoll_rt_tanh(atoll_rec_input(c, "x", ATOLL_F64, "l", ATOLL_SHAPE(N)));
    atoll_rt *w = atoll_rt_exp(atoll_rt_at(y, "0:l+1"));
    atoll_rt_sink(atoll_rt_sin(atoll_rt_add(atoll_rt_maximum(w, 0), atoll_rt_sum(w, 0))), "y", test_collect,
                  way ? &got : &expected);
    if (way) {
      assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.vectorize = "l", .compiler = ""}, &p));
      char *text = test_print(p);
      assert_non_null(strstr(text, "f64[L,3] = TANH"));
      free(text);
      assert_ok(atoll_rec_run(p, b, 2));
    } else {
      assert_ok(atoll_rec_interpret(c, b, 2));
    }
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
  assert_int_equal(expected.n, L * N);
  assert_int_equal(got.n, L * N);
  for (int i = 0; i < L * N; i++)
    assert_true(fabs(expected.v[i] - got.v[i]) < 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_along_a_dimension_are_not_vectorized),
      cmocka_unit_test(passes_do_what_they_are_for),
      cmocka_unit_test(simplification_keeps_to_types),
      cmocka_unit_test(graphs_are_told_before_and_after_each_pass),
      cmocka_unit_test(storage_follows_from_indices),
      cmocka_unit_test(schedules_tell_what_happens_to_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

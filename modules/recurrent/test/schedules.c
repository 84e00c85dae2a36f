/* Who orders a program, and that whoever checks orders notices wrong ones.
 *
 * Shifted loops come first unless isl is asked for; each steps in for the other. Legality of times and the order of an
 * executed tree are checked by two things, each of which is given wrong ones here: orders backwards or at once, trees
 * with swapped, lost, doubled and late statements. */
#include <isl/aff.h>
#include <isl/point.h>
#include <isl/val.h>
#include <stdlib.h>
#include <string.h>

#include "passes.h"
#include "poly.h"
#include "recurrent_test.h"
#include "schedule.h"
#include "shifts.h"

enum { ISL = 5000000, STATES = 3 }; /* operations of isl: plenty for these programs */

/* ---- programs ---- */

typedef atoll_rec *(*program)(test_log *log);

/* Softmax attention over a window. */
static atoll_rec *window(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt *k = atoll_rt_at(atoll_rt_name(atoll_rt_tanh(x), "keys"), "max(0,t-7):t+1");
  atoll_rt *weights = atoll_rt_softmax(atoll_rt_einsum("d,nd->n", atoll_rt_sin(x), k), -1);
  atoll_rt_sink(atoll_rt_einsum("n,nd->d", weights, k), "y", test_collect, log);
  return c;
}

/* A cell with gates; what it holds and what it tells are both carried on. */
static atoll_rec *lstm(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt *held = atoll_rec_tensor(c, "held", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt *told = atoll_rec_tensor(c, "told", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt *zero = atoll_rec_const(c, ATOLL_F64, 0), *in = atoll_rt_add(x, atoll_rt_at(told, "t-1"));
  atoll_rt *keep = atoll_rt_mul(atoll_rt_sigmoid(in), atoll_rt_at(held, "t-1"));
  atoll_rt_def(held, "t==0", zero);
  atoll_rt_def(held, "true", atoll_rt_add(keep, atoll_rt_tanh(in)));
  atoll_rt_def(told, "t==0", zero);
  atoll_rt_def(told, "true", atoll_rt_mul(atoll_rt_sigmoid(atoll_rt_scale(in, 2)), atoll_rt_tanh(held)));
  atoll_rt_sink(told, "y", test_collect, log);
  return c;
}

/* A grid that is read backwards and forwards along both of its dimensions: only along 2 b + t or the like does all of
 * what is read come before. */
static atoll_rec *skewed(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "b", 6);
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(STATES));
  atoll_rt *both = atoll_rt_add(atoll_rt_at(h, "b-1,t+1"), atoll_rt_scale(atoll_rt_at(h, "b+1,t-2"), 0.5));
  atoll_rt_def(h, "b==0 or b==B-1 or t<2 or t==T-1", atoll_rt_add(x, atoll_rec_expr(c, ATOLL_F64, "b")));
  atoll_rt_def(h, "true", atoll_rt_sin(both));
  atoll_rt_sink(h, "h", test_collect, log);
  return c;
}

/* The weight's gradient has values that are there at T = 1 only. */
static atoll_rec *learnt(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rt *gradient[2];
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt *w = atoll_rec_input(c, "w", ATOLL_F64, "", ATOLL_SHAPE(STATES, STATES));
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt_def(h, "t==0", x);
  atoll_rt_def(h, "true", atoll_rt_tanh(atoll_rt_add(x, atoll_rt_mv(w, atoll_rt_at(h, "t-1")))));
  atoll_rt_gradients(atoll_rt_sum(atoll_rt_sin(h), 0), 2, (atoll_rt *[]){x, w}, gradient);
  atoll_rt_sink(gradient[1], "gradient", test_collect, log);
  return c;
}

/* Needed from 1 on, as what it reads at 0 is not there; whoever looks at its own index alone would not know. */
static atoll_rec *from_one_on(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt *y = atoll_rec_tensor(c, "y", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt_def(y, "t==T-1", x);
  atoll_rt_def(y, "true", atoll_rt_sin(atoll_rt_add(atoll_rt_at(y, "t+1"), atoll_rt_at(x, "t-1"))));
  atoll_rt_sink(atoll_rt_at(y, "1"), "y", test_collect, log);
  return c;
}

/* Sums over all that is above and left; corners and borders are cases of their own. */
static atoll_rec *table(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rt *gradient;
  atoll_rec_dim(c, "b", 6);
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(STATES));
  atoll_rt *y = atoll_rt_sin(atoll_rt_add(x, atoll_rec_expr(c, ATOLL_F64, "b")));
  atoll_rt *s = atoll_rec_tensor(c, "s", ATOLL_F64, "b,t", ATOLL_SHAPE(STATES));
  atoll_rt *above = atoll_rt_at(s, "b-1,t"), *left = atoll_rt_at(s, "b,t-1");
  atoll_rt_def(s, "b==0 and t==0", y);
  atoll_rt_def(s, "b==0", atoll_rt_add(y, left));
  atoll_rt_def(s, "t==0", atoll_rt_add(y, above));
  atoll_rt_def(s, "true", atoll_rt_sub(atoll_rt_add(y, atoll_rt_add(above, left)), atoll_rt_at(s, "b-1,t-1")));
  atoll_rt_gradients(atoll_rt_sum(atoll_rt_square(s), 0), 1, &x, &gradient);
  atoll_rt_sink(s, "s", test_collect, log);
  atoll_rt_sink(gradient, "gradient", test_collect, log);
  return c;
}

enum { T = 37 };
static double numbers[T * STATES];
static const atoll_rec_binding bindings[] = {{"T", T, NULL}, {"x", 0, numbers}, {"w", 0, numbers + 1}};

static int draw_numbers(void **state) {
  uint64_t seed = 11;
  (void)state;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    numbers[i] = (double)test_below(&seed, 2000) / 1000 - 1;
  return 0;
}

/* Runs p so by the executor of schedules, which refuses what is not in order, and compares with the definition. */
static void ordered_by(const char *who, program make, const char *what, const atoll_rec_params *given) {
  static test_log expected, got;
  atoll_rec_params params = *given;
  atoll_rec_program *p = NULL;
  char *text = NULL, line[64];
  size_t bytes = 0;
  expected.n = got.n = 0;
  atoll_rec *c = make(&expected);
  assert_ok(atoll_rec_interpret(c, bindings, 3));
  atoll_rec_destroy(&c);
  c = make(&got);
  params.compiler = "";
  params.trace = open_memstream(&text, &bytes);
  assert_non_null(params.trace);
  assert_ok(atoll_rec_compile(c, &params, &p));
  fclose(params.trace);
  (void)snprintf(line, sizeof line, "== schedule by %s\n", who);
  if (!strstr(text, line)) {
    char *said = strstr(text, "== schedule by ");
    fail_msg("%s: expected '%s', got '%.25s'", what, line, said ? said : "nothing");
  }
  if (atoll_rec_run(p, bindings, 3) != ATOLL_OK)
    fail_msg("%s: %s", what, atoll_err_message());
  assert_true(expected.n > 0);
  assert_int_equal(expected.n, got.n);
  for (int i = 0; i < got.n; i++)
    if (!(fabs(expected.v[i] - got.v[i]) < 1e-12 * fmax(1, fabs(expected.v[i]))))
      fail_msg("%s: element %d is %.17g, expected %.17g", what, i, got.v[i], expected.v[i]);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  free(text);
}

static void shifts_come_first_unless_isl_is_asked_for(void **state) {
  (void)state;
  ordered_by("shifts", window, "window", &(atoll_rec_params){.budget = 0});
  ordered_by("shifts", lstm, "lstm", &(atoll_rec_params){.budget = 0});
  ordered_by("isl", window, "window", &(atoll_rec_params){.budget = ISL});
  ordered_by("isl", lstm, "lstm", &(atoll_rec_params){.budget = ISL});
}

static void shifts_step_in_when_isl_exceeds_its_budget(void **state) {
  (void)state;
  ordered_by("shifts", window, "window", &(atoll_rec_params){.budget = 1});
  ordered_by("shifts", window, "window in blocks", &(atoll_rec_params){.budget = 1, .tile = 4, .block = 4});
  ordered_by("shifts", lstm, "lstm", &(atoll_rec_params){.budget = 1});
}

static void isl_orders_what_needs_skewed_loops(void **state) {
  (void)state;
  ordered_by("isl", skewed, "skewed", &(atoll_rec_params){.budget = 0});
  ordered_by("isl", skewed, "skewed, passes ''", &(atoll_rec_params){.passes = ""});
  /* Nobody is left. */
  static test_log log;
  atoll_rec_program *p = NULL;
  atoll_rec *c = skewed(&log);
  assert_int_equal(atoll_rec_compile(c, &(atoll_rec_params){.budget = 1, .compiler = ""}, &p), ATOLL_USAGE);
  assert_null(p);
  atoll_rec_destroy(&c);
}

/* A window that is attended to block by block and whose blocks come and go: of such programs isl 0.25 was seen to make
 * legal schedules whose syntax tree runs a block's first value before there is a block (with treat_coalescing=0). */
static void blocks_that_come_and_go_are_in_order(void **state) {
  (void)state;
  for (int size = 2; size <= 8; size *= 2)
    ordered_by("isl", window, "window in blocks", &(atoll_rec_params){.budget = ISL, .tile = size, .block = size});
}

static void bounds_of_runs_are_those_that_were_promised(void **state) {
  (void)state;
  for (int least = 1; least <= T; least += 6)
    for (int64_t budget = 0; budget <= ISL; budget += ISL) {
      ordered_by(budget ? "isl" : "shifts", lstm, "lstm", &(atoll_rec_params){.budget = budget, .least = least});
      ordered_by(budget ? "isl" : "shifts", learnt, "learnt", &(atoll_rec_params){.budget = budget, .least = least});
    }
  static test_log log;
  atoll_rec_program *p = NULL;
  atoll_rec *c = lstm(&log);
  log.n = 0;
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.least = T + 1, .compiler = ""}, &p));
  assert_refused(ATOLL_USAGE, "bound 'T' is 37, but the program was compiled for 38 at the least",
                 atoll_rec_run(p, bindings, 3));
  assert_int_equal(log.n, 0);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void what_is_not_needed_need_not_be_there(void **state) {
  (void)state;
  ordered_by("shifts", from_one_on, "from one on", &(atoll_rec_params){.budget = 0});
  ordered_by("isl", from_one_on, "from one on", &(atoll_rec_params){.budget = ISL});
}

static void borders_of_tables_are_cases(void **state) {
  (void)state;
  ordered_by("shifts", table, "table", &(atoll_rec_params){.budget = 0});
  ordered_by("isl", table, "table", &(atoll_rec_params){.budget = ISL});
}

/* ---- legality of times ---- */

static isl_bool is_legal(isl_ctx *ctx, const char *needs, const char *time) {
  isl_union_map *n = isl_union_map_read_from_str(ctx, needs), *t = isl_union_map_read_from_str(ctx, time);
  assert_non_null(n);
  assert_non_null(t);
  isl_bool legal = rt_is_legal(n, t);
  isl_union_map_free(n);
  isl_union_map_free(t);
  return legal;
}

static void illegal_times_are_noticed(void **state) {
  (void)state;
  static const struct {
    const char *needs, *time;
    isl_bool legal;
  } list[] = {
      {"[T] -> { S1[t] -> S1[t-1] : 0 < t < T }", "{ S1[t] -> [t] }", isl_bool_true},
      {"[T] -> { S1[t] -> S1[t-1] : 0 < t < T }", "{ S1[t] -> [-t] }", isl_bool_false},
      {"[T] -> { S1[t] -> S1[t-1] : 0 < t < T }", "{ S1[t] -> [0] }", isl_bool_false}, /* at once */
      {"[T] -> { S1[t] -> S1[t+1] : 0 <= t < T - 1 }", "{ S1[t] -> [-t] }", isl_bool_true},
      {"{ S2[t] -> S1[t] : 0 <= t < 9 }", "{ S1[t] -> [t, 0]; S2[t] -> [t, 1] }", isl_bool_true},
      {"{ S2[t] -> S1[t] : 0 <= t < 9 }", "{ S1[t] -> [t, 1]; S2[t] -> [t, 0] }", isl_bool_false}, /* swapped */
      {"{ S2[t] -> S1[t + 1] : 0 <= t < 9 }", "{ S1[t] -> [t, 0]; S2[t] -> [t, 1] }", isl_bool_false},
      {"{ S2[t] -> S1[t + 1] : 0 <= t < 9 }", "{ S1[t] -> [t, 0]; S2[t] -> [t + 1, 1] }", isl_bool_true},
      /* One pair of all is wrong. */
      {"{ S2[t] -> S1[t] : 0 <= t < 9; S2[8] -> S1[9] }", "{ S1[t] -> [t, 0]; S2[t] -> [t, 1] }", isl_bool_false},
      {"{ S1[b, t] -> S1[b-1, t+1] : 0 < b < 6 and 0 <= t < 8; S1[b, t] -> S1[b+1, t-2] : 0 <= b < 5 and 2 <= t < 9 }",
       "{ S1[b, t] -> [3 b + 2 t] }", isl_bool_true},
      {"{ S1[b, t] -> S1[b-1, t+1] : 0 < b < 6 and 0 <= t < 8; S1[b, t] -> S1[b+1, t-2] : 0 <= b < 5 and 2 <= t < 9 }",
       "{ S1[b, t] -> [b, t] }", isl_bool_false},
  };
  isl_ctx *ctx = rt_poly_create();
  assert_non_null(ctx);
  for (size_t k = 0; k < sizeof list / sizeof *list; k++)
    if (is_legal(ctx, list[k].needs, list[k].time) != list[k].legal)
      fail_msg("%s at times %s is taken for %s", list[k].needs, list[k].time, list[k].legal ? "illegal" : "legal");
  isl_ctx_free(ctx);
}

/* ---- sets ---- */

/* isl 0.25 adds points to the first two of these. */
static void fewer_pieces_are_the_same_set(void **state) {
  (void)state;
  static const char *const list[] = {
      "{ [t] : 0 < t <= 2 or (0 < t <= 5 and exists e: 2e = 1 + t) }",
      "{ [t, l] : (0 < t <= 2 and 0 <= l <= 2) or (0 < t <= 5 and 0 <= l <= 2 and exists e: 2e = 1 + t) }",
      "{ [t] : 0 <= t <= 5 or (0 < t <= 5 and exists e: 2e = 1 + t) }",
      "{ [t] : 0 <= t <= 5 or 4 <= t <= 9 }",
  };
  isl_ctx *ctx = rt_poly_create();
  assert_non_null(ctx);
  for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
    isl_set *set = isl_set_read_from_str(ctx, list[k]), *fewer = rt_poly_coalesce(isl_set_copy(set));
    assert_int_equal(isl_set_is_equal(set, fewer), isl_bool_true);
    if (k >= 2)
      assert_int_equal(isl_set_n_basic_set(fewer), 1);
    isl_set_free(set);
    isl_set_free(fewer);
  }
  isl_ctx_free(ctx);
}

static void fewer_pieces_are_the_same_pairs(void **state) {
  (void)state;
  static const char *const list[] = {
      "{ S1[t] -> S2[t-1] : 0 < t <= 2 or (0 < t <= 5 and exists e: 2e = 1 + t) }",
      "{ S1[t] -> S2[u] : 0 <= u < t <= 5 or 0 <= u <= t <= 4 }",
  };
  isl_ctx *ctx = rt_poly_create();
  assert_non_null(ctx);
  for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
    isl_map *map = isl_map_read_from_str(ctx, list[k]), *fewer = rt_poly_coalesce_map(isl_map_copy(map));
    assert_int_equal(isl_map_is_equal(map, fewer), isl_bool_true);
    isl_map_free(map);
    isl_map_free(fewer);
  }
  isl_ctx_free(ctx);
}

/* One value of a function at one point. */
struct look {
  isl_set *point;
  long value;
  int pieces; /* that have one there */
};

static isl_stat look_at(isl_set *where, isl_aff *value, void *user) {
  struct look *l = user;
  isl_set *here = isl_set_intersect(where, isl_set_copy(l->point));
  if (isl_set_is_empty(here) == isl_bool_false) {
    isl_val *v = isl_aff_eval(isl_aff_copy(value), isl_set_sample_point(isl_set_copy(here)));
    l->value = isl_val_get_num_si(v);
    l->pieces++;
    isl_val_free(v);
  }
  isl_set_free(here);
  isl_aff_free(value);
  return isl_stat_ok;
}

/* Of functions, isl 0.25 makes one that is both 1 and 7 at 4 and at 6 of the first of these, so that points are looked
 * at one by one. */
static void fewer_pieces_are_the_same_function(void **state) {
  enum { POINTS = 7, NONE = -1 };
  (void)state;
  static const struct {
    const char *text;
    long at[POINTS];
    int pieces;
  } list[] = {
      {"[t] -> { [(1)] : 0 < t <= 2 or (0 < t <= 5 and exists e: 2e = 1 + t); [(7)] : t = 4 or t = 6 }",
       {NONE, 1, 1, 1, 7, 1, 7},
       0},
      {"[t] -> { [(t)] : 0 <= t <= 3; [(t)] : 4 <= t <= 5 }", {0, 1, 2, 3, 4, 5, NONE}, 1},
  };
  isl_ctx *ctx = rt_poly_create();
  assert_non_null(ctx);
  for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
    isl_pw_aff *fewer = rt_poly_coalesce_value(isl_pw_aff_read_from_str(ctx, list[k].text));
    for (int t = 0; t < POINTS; t++) {
      char text[32];
      (void)snprintf(text, sizeof text, "[t] -> { : t = %d }", t);
      struct look here = {isl_set_read_from_str(ctx, text), NONE, 0};
      assert_int_equal(isl_pw_aff_foreach_piece(fewer, look_at, &here), isl_stat_ok);
      assert_int_equal(here.value, list[k].at[t]);
      assert_int_equal(here.pieces, list[k].at[t] != NONE);
      isl_set_free(here.point);
    }
    assert_true(!list[k].pieces || isl_pw_aff_n_piece(fewer) == list[k].pieces);
    isl_pw_aff_free(fewer);
  }
  isl_ctx_free(ctx);
}

/* ---- executed order ---- */

/* Graph and tree of a program, one statement for each node. */
typedef struct scheduled {
  atoll_rec *c;
  rt_graph *g;
  rt_schedule s;
} scheduled;

static scheduled schedule_of(program make, test_log *log) {
  scheduled p = {.c = make(log)};
  assert_ok(rt_rec_clone(p.c, &p.g));
  assert_ok(rt_pass_cases(p.g));
  assert_ok(rt_pass_domains(p.g));
  assert_ok(rt_schedule_create(p.g, NULL, &p.s));
  return p;
}

static void close_schedule(scheduled *p) {
  rt_schedule_destroy(&p->s);
  rt_graph_destroy(&p->g);
  atoll_rec_destroy(&p->c);
}

static atoll_err execute(const scheduled *p, test_log *log, int64_t *left) {
  rt_interp *it = NULL;
  log->n = 0;
  assert_ok(rt_interp_create(p->g, bindings, 2, &it));
  atoll_err err = rt_tree_execute(it, p->g, p->s.tree, NULL);
  *left = rt_interp_bytes(it);
  rt_interp_destroy(&it);
  return err;
}

static rt_tree *copy(const rt_tree *t) {
  rt_tree *c = rt_tree_new(t->kind);
  assert_non_null(c);
  for (int k = 0; k < t->children; k++)
    assert_ok(rt_tree_insert(c, k, copy(t->child[k])));
  const int children = c->children, room = c->room;
  rt_tree **child = c->child;
  *c = *t;
  c->children = children;
  c->room = room;
  c->child = child;
  return c;
}

/* The k-th statement of the tree, counted down in *k, with its place in its sequence. */
static rt_tree *statement(rt_tree *t, int *k, int *place) {
  for (int i = 0; i < t->children; i++) {
    if (t->kind == RT_SEQ && t->child[i]->kind == RT_STATEMENT && (*k)-- == 0) {
      *place = i;
      return t;
    }
    rt_tree *found = t->child[i]->kind == RT_STATEMENT ? NULL : statement(t->child[i], k, place);
    if (found)
      return found;
  }
  return NULL;
}

static int statements(const rt_tree *t) {
  int n = t->kind == RT_STATEMENT;
  for (int k = 0; k < t->children; k++)
    n += statements(t->child[k]);
  return n;
}

enum { SWAP, LOSE, DOUBLE, CHANGES };

/* Does the change to statement k of the tree: 0 where it cannot be done. */
static int change(rt_tree *tree, int how, int k) {
  int place = 0;
  rt_tree *seq = statement(tree, &k, &place);
  assert_non_null(seq);
  rt_tree *one = seq->child[place];
  if (how == SWAP && place + 1 == seq->children)
    return 0;
  if (how == SWAP) {
    seq->child[place] = seq->child[place + 1];
    seq->child[place + 1] = one;
  } else if (how == DOUBLE) {
    assert_ok(rt_tree_insert(seq, place, copy(one)));
  } else {
    memmove(seq->child + place, seq->child + place + 1, (size_t)(seq->children - place - 1) * sizeof(rt_tree *));
    seq->children--;
    rt_tree_destroy(&one);
  }
  return 1;
}

static int starts_late(rt_tree *t, rt_graph *g) {
  for (int k = 0; t->kind != RT_FOR && k < t->children; k++)
    if (starts_late(t->child[k], g))
      return 1;
  if (t->kind != RT_FOR)
    return 0;
  t->first = atoll_sym_add(g->syms, t->first, rt_int(g, 1));
  return 1;
}

static void assert_not_there(atoll_err err) {
  assert_int_equal(err, ATOLL_INTERNAL);
  assert_non_null(strstr(atoll_err_message(), "which is not there"));
}

/* A change of a tree is refused, leaves values behind, or is harmless (of statements that these bounds do not reach,
 * and of neighbours that do not need each other); then results are the same. */
static void wrong_trees_are_refused(program make, int refused_at_least[CHANGES]) {
  static test_log right, wrong;
  int64_t left;
  scheduled p = schedule_of(make, &wrong);
  assert_ok(execute(&p, &wrong, &left));
  assert_int_equal(left, 0);
  right = wrong;
  const int n = statements(p.s.tree);
  rt_tree *tree = p.s.tree;
  for (int how = 0; how < CHANGES; how++) {
    int refused = 0;
    for (int k = 0; k < n; k++) {
      int at = k, place;
      const rt_tree *seq = statement(tree, &at, &place);
      const int tells = p.g->node[seq->child[place]->node]->op == RT_SINK;
      p.s.tree = copy(tree);
      const int changed = change(p.s.tree, how, k);
      const atoll_err err = execute(&p, &wrong, &left);
      if (err != ATOLL_OK) {
        assert_true(changed);
        assert_int_equal(err, ATOLL_INTERNAL);
        refused++;
      } else if (how == LOSE && left > 0) {
        refused++;
      } else if (how == SWAP || !tells) { /* a sink alone may be lost, or told twice */
        assert_int_equal(left, 0);
        assert_int_equal(wrong.n, right.n);
        assert_memory_equal(wrong.v, right.v, (size_t)right.n * sizeof *right.v);
      }
      rt_tree_destroy(&p.s.tree);
    }
    print_message("%d of %d trees with change %d are refused\n", refused, n, how);
    if (refused < refused_at_least[how])
      fail_msg("of %d trees with change %d only %d were refused", n, how, refused);
  }
  p.s.tree = copy(tree);
  assert_true(starts_late(p.s.tree, p.g));
  assert_not_there(execute(&p, &wrong, &left));
  rt_tree_destroy(&p.s.tree);
  p.s.tree = tree;
  close_schedule(&p);
}

static void wrong_orders_are_refused(void **state) {
  (void)state;
  wrong_trees_are_refused(window, (int[CHANGES]){8, 8, 16});
  wrong_trees_are_refused(lstm, (int[CHANGES]){8, 8, 16});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shifts_come_first_unless_isl_is_asked_for),
      cmocka_unit_test(shifts_step_in_when_isl_exceeds_its_budget),
      cmocka_unit_test(isl_orders_what_needs_skewed_loops),
      cmocka_unit_test(blocks_that_come_and_go_are_in_order),
      cmocka_unit_test(bounds_of_runs_are_those_that_were_promised),
      cmocka_unit_test(what_is_not_needed_need_not_be_there),
      cmocka_unit_test(borders_of_tables_are_cases),
      cmocka_unit_test(illegal_times_are_noticed),
      cmocka_unit_test(fewer_pieces_are_the_same_set),
      cmocka_unit_test(fewer_pieces_are_the_same_pairs),
      cmocka_unit_test(fewer_pieces_are_the_same_function),
      cmocka_unit_test(wrong_orders_are_refused),
  };
  return cmocka_run_group_tests(tests, draw_numbers, NULL);
}

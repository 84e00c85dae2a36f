/* The dynamic program and the integer program find the least value of all choices, enumerated by other code, on random
 * inter-stage problems: by numbers of layers and by slices, with few and many micro-batches, extras of both signs,
 * equal times, and no solution at all. */
#include "interstage/interstage.h"
#include "plan_test.h"

enum { STAGES_MOST = 6, OPTIONS_MOST = 64 };

typedef struct random_problem {
  interstage_problem p;
  interstage_stage stage[STAGES_MOST];
  interstage_option option[STAGES_MOST][OPTIONS_MOST];
} random_problem;

static void make(random_problem *x, uint64_t seed) {
  memset(x, 0, sizeof *x);
  int S = 1 + test_below(&seed, 4), L = S + test_below(&seed, 7), sliced = test_below(&seed, 3),
      coarse = test_below(&seed, 3) == 0;
  double unit = test_below(&seed, 2) ? 1 : 3e-5;
  x->p = (interstage_problem){S, L, test_below(&seed, 4) ? 1 + test_below(&seed, 40) : 1, x->stage};
  for (int i = 0; i < S; i++) {
    double speed = 0.3 + test_real(&seed), offset = 2 * test_real(&seed);
    int n = 1 + test_below(&seed, 24);
    for (int k = 0; k < n; k++) {
      interstage_option *o = &x->option[i][k];
      o->layers = 1 + test_below(&seed, L - S + 1);
      o->first = sliced && (sliced == 1 || test_below(&seed, 2)) ? test_below(&seed, L - o->layers + 1) : -1;
      if (o->first >= 0 && i == 0 && test_below(&seed, 2))
        o->first = 0;
      o->t = (o->layers * speed * (0.7 + 0.6 * test_real(&seed))) * unit;
      o->d = (offset + 4 * test_real(&seed) - 1) * unit;
      if (coarse) {
        o->t = (double)test_below(&seed, 4) * unit;
        o->d = (double)(test_below(&seed, 6) - 1) * unit;
      }
    }
    x->stage[i] = (interstage_stage){n, x->option[i]};
  }
}

/* Every choice, by the formula as the header states it. */
static void enumerate(const interstage_problem *p, int i, int done, int *choice, double *best) {
  if (i == p->stages) {
    if (done != p->layers)
      return;
    double most = 0, sum = 0, extra = -INFINITY;
    for (int j = 0; j < p->stages; j++) {
      const interstage_option *o = &p->stage[j].option[choice[j]];
      double before = 0;
      for (int q = 0; q < j; q++)
        before += p->stage[q].option[choice[q]].t;
      extra = fmax(extra, o->d - before);
      sum += o->t;
      most = fmax(most, o->t);
    }
    *best = fmin(*best, (double)(p->micro_batches - 1) * most + sum + extra);
    return;
  }
  for (choice[i] = 0; choice[i] < p->stage[i].options; choice[i]++) {
    const interstage_option *o = &p->stage[i].option[choice[i]];
    if (done + o->layers <= p->layers && (o->first < 0 || o->first == done))
      enumerate(p, i + 1, done + o->layers, choice, best);
  }
}

static void same(double a, double b, const char *who, uint64_t seed) {
  if (fabs(a - b) > 1e-9 * fmax(fabs(a), fabs(b)))
    fail_msg("%s finds %.17g, the least of all choices is %.17g; seed %" PRIu64, who, a, b, seed);
}

static void covers(const interstage_problem *p, const int *choice) {
  int done = 0;
  for (int i = 0; i < p->stages; i++) {
    const interstage_option *o = &p->stage[i].option[choice[i]];
    assert_true(o->first < 0 || o->first == done);
    done += o->layers;
  }
  assert_int_equal(done, p->layers);
}

static uint64_t seeds;

static void equal_the_least_of_all(void **state) {
  (void)state;
  int solved = 0, infeasible = 0, sliced = 0, have = interstage_have_cbc();
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    random_problem x;
    int choice[STAGES_MOST] = {0}, all[STAGES_MOST];
    double best = INFINITY;
    interstage_answer a;
    make(&x, seed);
    enumerate(&x.p, 0, 0, all, &best);
    if (best == INFINITY) {
      infeasible++;
      assert_refused(ATOLL_INFEASIBLE, "adds up to", interstage_solve(&x.p, INTERSTAGE_DP, choice, &a));
      if (have) {
        assert_refused(ATOLL_INFEASIBLE, "adds up to", interstage_solve(&x.p, INTERSTAGE_CBC, choice, &a));
        assert_refused(ATOLL_INFEASIBLE, "adds up to", interstage_solve(&x.p, INTERSTAGE_BOTH, choice, &a));
      }
      continue;
    }
    solved++;
    for (int i = 0; i < x.p.stages; i++)
      sliced += x.p.stage[i].option[0].first >= 0;
    assert_ok(interstage_solve(&x.p, INTERSTAGE_DP, choice, &a));
    covers(&x.p, choice);
    same(a.value, best, "the dynamic program", seed);
    same(interstage_value(&x.p, choice, NULL, NULL), best, "its choice", seed);
    if (!have)
      continue;
    assert_ok(interstage_solve(&x.p, INTERSTAGE_CBC, choice, &a));
    assert_true(a.proved);
    covers(&x.p, choice);
    same(a.value, best, "the integer program", seed);
    if (seed % 10 == 0)
      assert_ok(interstage_solve(&x.p, INTERSTAGE_BOTH, choice, &a));
  }
  print_message("%d problems solved, %d without a solution, integer program %s\n", solved, infeasible,
                have ? "too" : "not built");
  assert_true(solved > (int)seeds / 3 && infeasible > (int)seeds / 20 && sliced > (int)seeds / 10);
}

/* As large as whole models: the two agree without an enumeration, and the dynamic program's passes stay few. */
static void agree_on_whole_models(void **state) {
  (void)state;
  enum { S = 8, L = 48, K = 3 };
  static interstage_option option[S][(L - S + 1) * K];
  static interstage_stage stage[S];
  for (uint64_t seed = 1; seed <= seeds / 50 + 1; seed++) {
    uint64_t r = seed;
    interstage_problem p = {S, L, 64, stage};
    for (int i = 0; i < S; i++) {
      int n = 0;
      double speed = 1 + 2 * test_real(&r);
      for (int l = 1; l <= L - S + 1; l++)
        for (int k = 0; k < K; k++)
          if (speed * l < 14)
            option[i][n++] = (interstage_option){-1, l, l * speed * (1 + 0.1 * k) + 0.01 * test_real(&r),
                                                 l * (3.0 - k) + test_real(&r)};
      stage[i] = (interstage_stage){n, option[i]};
    }
    int choice[S];
    interstage_answer a;
    assert_ok(interstage_solve(&p, interstage_have_cbc() ? INTERSTAGE_BOTH : INTERSTAGE_DP, choice, &a));
    covers(&p, choice);
    assert_true(a.work < 400);
  }
}

static void worked_by_hand(void **state) {
  (void)state;
  /* Two stages of 2 layers in all. With G = 4: (1, 5) then (2, 0) costs 3 * 2 + 3 + max(5, 0 - 1) = 14; the slower
   * first stage (2, 1) hides more: 3 * 2 + 4 + max(1, 0 - 2) = 11. With the second's extra 6: 14 and 6 + 4 + max(1, 4)
   * = 14. */
  interstage_option first[] = {{-1, 1, 1, 5}, {-1, 1, 2, 1}}, second[] = {{-1, 1, 2, 0}};
  interstage_stage stage[] = {{2, first}, {1, second}};
  interstage_problem p = {2, 2, 4, stage};
  interstage_answer a;
  int choice[2];
  assert_ok(interstage_solve(&p, INTERSTAGE_DP, choice, &a));
  assert_int_equal(choice[0], 1);
  assert_true(a.value == 11 && a.bottleneck == 2 && a.sum == 4 && a.proved);
  second[0].d = 6;
  assert_ok(interstage_solve(&p, INTERSTAGE_DP, choice, &a));
  assert_true(a.value == 14);
}

static void bad_input_is_named(void **state) {
  (void)state;
  interstage_option o[] = {{-1, 1, 1, 0}, {-1, 1, NAN, 0}};
  interstage_stage stage[] = {{2, o}};
  interstage_problem p = {1, 1, 1, stage};
  interstage_answer a = {.value = 7};
  int choice[1] = {9};
  assert_refused(ATOLL_USAGE, "stage 0 option 1: t nan", interstage_solve(&p, INTERSTAGE_DP, choice, &a));
  o[1].t = -1;
  assert_refused(ATOLL_USAGE, "t -1", interstage_solve(&p, INTERSTAGE_DP, choice, &a));
  o[1] = (interstage_option){0, 2, 1, 0};
  assert_refused(ATOLL_USAGE, "2 layers from 0 on, there are 1", interstage_solve(&p, INTERSTAGE_DP, choice, &a));
  o[1] = (interstage_option){-1, 1, 1, INFINITY};
  assert_refused(ATOLL_USAGE, "d inf", interstage_solve(&p, INTERSTAGE_DP, choice, &a));
  stage[0].options = 0;
  assert_refused(ATOLL_INFEASIBLE, "1 layers", interstage_solve(&p, INTERSTAGE_DP, choice, &a));
  p.micro_batches = 0;
  assert_refused(ATOLL_USAGE, "0 micro-batches", interstage_solve(&p, INTERSTAGE_DP, choice, &a));
  p.micro_batches = 1;
  if (!interstage_have_cbc())
    assert_refused(ATOLL_UNSUPPORTED, "plan.interstage=cbc", interstage_solve(&p, INTERSTAGE_CBC, choice, &a));
  assert_true(a.value == 7 && choice[0] == 9);
}

int main(int argc, char **argv) {
  seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(worked_by_hand),
      cmocka_unit_test(equal_the_least_of_all),
      cmocka_unit_test(agree_on_whole_models),
      cmocka_unit_test(bad_input_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

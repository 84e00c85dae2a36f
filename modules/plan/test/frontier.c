/* The tuner's frontier is that of the whole product of choices, written out by another program; thinning keeps a point
 * close enough to every point it drops, with the least loss for the room given. */
#include "plan_test.h"

#include "../src/tuner/tuner.h"

enum { AXES = 3 };

static void search_is_whole(void **state) {
  (void)state;
  uint64_t r = 7;
  print_message("seed %" PRIu64 "\n", r);
  for (int round = 0; round < 60; round++) {
    int64_t value[AXES][32];
    tuner_axis axes[AXES] = {{"x", 0, value[0]}, {"y", 0, value[1]}, {"z", 0, value[2]}};
    for (int a = 0; a < AXES; a++) {
      axes[a].n = 1 + (int)(test_random(&r) % 30);
      for (int i = 0; i < axes[a].n; i++)
        value[a][i] = (int64_t)(test_random(&r) % 50);
    }
    const tuner_fixed fixed[] = {{"k", {ATOLL_SYM_REAL, 0, 0.25 + (double)(test_random(&r) % 8)}},
                                 {"m", {ATOLL_SYM_INT, 1 + (int64_t)(test_random(&r) % 5), 0}}};
    atoll_syms *pool = NULL;
    tuner_expressions e = {0};
    tuner *u = NULL;
    tuner_frontier f = {.least = INT64_MAX};
    assert_ok(atoll_syms_create(&pool));
    (void)atoll_sym_var(pool, "k", ATOLL_SYM_REAL);
    assert_ok(atoll_sym_parse(pool, "not (x > 40 and y == 0)", &e.allowed));
    assert_ok(atoll_sym_parse(pool, "m*x + 3*y + z % 7", &e.bytes));
    assert_ok(atoll_sym_parse(pool, "k*real(y + 1) + real(60 - x)", &e.t));
    assert_ok(atoll_sym_parse(pool, "real(z*z) / k - real(y) + real(x % 5)", &e.d));
    assert_ok(tuner_create(&e, axes, AXES, fixed, 2, &u));
    int64_t limit = 20 + (int64_t)(test_random(&r) % 150), least = INT64_MAX, feasible = 0;
    assert_ok(tuner_search(u, axes, fixed, limit, round, &f));

    /* Every fitting candidate is no better than some point; every point is a candidate and no two rule each other out.
     */
    double k = fixed[0].value.r;
    for (int i = 0; i < axes[0].n; i++)
      for (int j = 0; j < axes[1].n; j++)
        for (int l = 0; l < axes[2].n; l++) {
          int64_t x = value[0][i], y = value[1][j], z = value[2][l];
          int64_t bytes = fixed[1].value.i * x + 3 * y + z % 7;
          if (x > 40 && y == 0)
            continue;
          least = bytes < least ? bytes : least;
          if (bytes > limit)
            continue;
          feasible++;
          double t = k * (double)(y + 1) + (double)(60 - x);
          double d = fmax((double)(z * z) / k - (double)y + (double)(x % 5), 0);
          int covered = 0;
          for (int p = 0; p < f.count; p++)
            covered = covered || (f.point[p].t <= t && f.point[p].d <= d);
          if (!covered)
            fail_msg("round %d: t %g d %g is missing", round, t, d);
        }
    assert_int_equal(f.feasible, feasible);
    assert_int_equal(f.candidates, (int64_t)axes[0].n * axes[1].n * axes[2].n);
    assert_true(f.least == least);
    for (int p = 0; p < f.count; p++) {
      const int64_t *v = f.point[p].choice;
      assert_true(f.point[p].t == k * (double)(v[1] + 1) + (double)(60 - v[0]));
      assert_true(f.point[p].bytes == fixed[1].value.i * v[0] + 3 * v[1] + v[2] % 7 && f.point[p].bytes <= limit);
      assert_int_equal(f.point[p].tag, round);
      assert_true(p == 0 || (f.point[p].t > f.point[p - 1].t && f.point[p].d < f.point[p - 1].d));
    }
    tuner_frontier_clear(&f);
    tuner_destroy(&u);
    atoll_syms_destroy(&pool);
  }
}

static void thinning_is_close(void **state) {
  (void)state;
  uint64_t r = 11;
  for (int round = 0; round < 300; round++) {
    tuner_frontier f = {.least = INT64_MAX};
    int n = 1 + (int)(test_random(&r) % 40), cap = 1 + (int)(test_random(&r) % 10);
    for (int i = 0; i < n; i++) {
      tuner_point p = {.t = 1 + (double)(test_random(&r) % 1000) / 300, .d = (double)(test_random(&r) % 1000)};
      assert_ok(tuner_frontier_add(&f, &p));
    }
    tuner_point whole[64];
    int count = f.count;
    memcpy(whole, f.point, (size_t)count * sizeof *whole);
    double epsilon;
    tuner_thin(&f, cap, &epsilon);
    assert_true(f.count <= cap && f.count >= 1);
    assert_true(count > cap || (epsilon == 0 && f.count == count));
    double worst = 0;
    for (int i = 0; i < count; i++) {
      double loss = INFINITY;
      for (int q = 0; q < f.count; q++)
        if (f.point[q].t >= whole[i].t && f.point[q].d <= whole[i].d)
          loss = fmin(loss, f.point[q].t / whole[i].t - 1);
      worst = fmax(worst, loss);
    }
    if (worst > epsilon * (1 + 1e-9))
      fail_msg("round %d: a point is %g away, epsilon says %g", round, worst, epsilon);
    /* No smaller epsilon among the ratios there are would do with so many points. */
    for (int i = 0; i < count; i++)
      for (int j = i; j < count; j++) {
        double factor = whole[j].t / whole[i].t;
        int needed = 0;
        if (factor - 1 >= epsilon * (1 - 1e-9))
          continue;
        for (int at = 0; at < count; needed++) {
          int q = at;
          while (q < count && whole[q].t <= factor * whole[at].t * (1 + 1e-13))
            q++;
          at = q;
        }
        assert_true(needed > cap);
      }
    tuner_frontier_clear(&f);
  }
}

static void failures_are_named(void **state) {
  (void)state;
  atoll_syms *pool = NULL;
  tuner_expressions e = {0};
  tuner *u = NULL;
  tuner_frontier f = {.least = INT64_MAX};
  const int64_t value[] = {1, 0};
  const tuner_axis axis = {"x", 2, value};
  assert_ok(atoll_syms_create(&pool));
  assert_ok(atoll_sym_parse(pool, "12 // x", &e.bytes));
  assert_ok(atoll_sym_parse(pool, "real(x)", &e.t));
  e.d = e.t;
  assert_ok(tuner_create(&e, &axis, 1, NULL, 0, &u));
  assert_refused(ATOLL_INTERNAL, "division by zero in '12 // x'", tuner_search(u, &axis, NULL, 100, 0, &f));
  tuner_frontier_clear(&f);
  tuner_destroy(&u);
  atoll_syms_destroy(&pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(search_is_whole), cmocka_unit_test(thinning_is_close),
                                     cmocka_unit_test(failures_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Streams that disturb each other, and the phases of a stage made of them: the expressions agree with the sums written
 * out layer by layer, and the model with what it means in cases that one can do by hand. */
#include "plan_test.h"

#include "../src/cost/phase.h"

static double random_real(uint64_t *r) { return (double)(test_random(r) % 1000000) / 1e6; }

static void neutral_streams_do_not_disturb(void **state) {
  (void)state;
  interference f;
  interference_neutral(&f);
  const double x[STREAMS] = {0.5, 2.0, 0.0, 1.5};
  assert_true(fabs(interference_seconds(&f, x) - 2.0) < 1e-12);
}

/* Two streams, factors 2 and 4: both last as long together as the shorter scaled one, the other has the rest alone. */
static void by_hand(void **state) {
  (void)state;
  interference f;
  double factor[INTERFERENCE_FACTORS];
  for (int i = 0; i < INTERFERENCE_FACTORS; i++)
    factor[i] = 1;
  factor[16] = 2; /* compute with peers */
  factor[17] = 4;
  factor[4] = 3; /* compute, peers, in */
  factor[5] = 1;
  factor[6] = 1;
  assert_ok(interference_set(&f, factor));
  const double two[STREAMS] = {1, 1, 0, 0};
  /* min(2, 4) = 2 s together; peers have done 2 / 4 = 0.5 and do 0.5 alone. */
  assert_true(fabs(interference_seconds(&f, two) - 2.5) < 1e-12);
  const double three[STREAMS] = {1, 2, 1, 0};
  /* min(3, 2, 1) = 1 s of all three; left 2/3, 1, 0. Then min(4/3, 4) = 4/3 s; peers left 1 - 1/3. */
  assert_true(fabs(interference_seconds(&f, three) - (1 + 4.0 / 3 + 2.0 / 3)) < 1e-12);
  factor[20] = 0;
  assert_refused(ATOLL_USAGE, "factor 20 is 0", interference_set(&f, factor));
}

enum {
  FORWARD,
  BACKWARD,
  UPDATE,
  GATHER,
  GATHER_UPDATED,
  SCATTER,
  REDUCE,
  IN_W,
  IN_G,
  IN_O,
  IN_S,
  IN_S1,
  OUT_W,
  OUT_G,
  OUT_O,
  OUT_S,
  OUT_S1,
  INSIDE,
  INSIDE_BACK,
  TERMS
};

typedef struct sums {
  double forward, backward, first, last;
} sums;

/* The table of phase.h, layer by layer. */
static sums written_out(const interference *f, const double *v, int l, int c) {
  sums out = {0};
  for (int special = 0; special < 2; special++) {
    double peers = v[special ? GATHER_UPDATED : GATHER], in = special ? v[IN_O] + v[IN_G] : v[IN_W];
    double compute = v[FORWARD] + (special ? v[UPDATE] : 0), state = special ? v[OUT_O] + v[OUT_W] : 0;
    double s = interference_seconds(f, (double[]){0, peers, in, 0});
    for (int i = 0; i < l; i++) {
      double drain = i == 0 ? 0 : state + v[i - 1 < c ? OUT_S1 : OUT_S];
      s += interference_seconds(f, (double[]){compute, i < l - 1 ? peers : 0, i < l - 1 ? in : 0, drain});
      s += v[INSIDE];
    }
    s += interference_seconds(f, (double[]){0, 0, 0, state + v[l - 1 < c ? OUT_S1 : OUT_S]});
    *(special ? &out.first : &out.forward) = s;

    double scatter = v[special ? REDUCE : SCATTER];
    s = interference_seconds(f, (double[]){0, v[GATHER], v[IN_W] + v[IN_G] + v[l - 1 < c ? IN_S1 : IN_S], 0});
    for (int i = l - 1; i >= 0; i--) {
      double b = v[BACKWARD] + (i < c ? v[FORWARD] : 0);
      double load = i > 0 ? v[IN_W] + v[IN_G] + v[i - 1 < c ? IN_S1 : IN_S] : 0;
      double network = (i > 0 ? v[GATHER] : 0) + (i < l - 1 ? scatter : 0);
      s += interference_seconds(f, (double[]){b, network, load, i < l - 1 ? v[OUT_G] : 0});
      s += v[INSIDE_BACK] + (i < c ? v[INSIDE] : 0);
    }
    s += interference_seconds(f, (double[]){0, scatter, 0, v[OUT_G]});
    *(special ? &out.last : &out.backward) = s;
  }
  return out;
}

static double value(const atoll_sym *e) {
  atoll_sym_value v;
  assert_non_null(e);
  assert_ok(atoll_sym_eval(e, NULL, 0, &v));
  return v.r;
}

static void phases_are_their_layers(void **state) {
  (void)state;
  uint64_t r = 20261129;
  print_message("seed %" PRIu64 "\n", r);
  for (int round = 0; round < 400; round++) {
    interference f;
    double factor[INTERFERENCE_FACTORS], v[TERMS];
    for (int i = 0; i < INTERFERENCE_FACTORS; i++)
      factor[i] = round % 2 ? 1 : 1 + 3 * random_real(&r);
    assert_ok(interference_set(&f, factor));
    assert_int_equal(f.neutral, round % 2);
    int l = 1 + (int)(test_random(&r) % 6), c = (int)(test_random(&r) % (uint64_t)(l + 1));
    atoll_syms *pool = NULL;
    assert_ok(atoll_syms_create(&pool));
    const atoll_sym *e[TERMS];
    for (int i = 0; i < TERMS; i++) {
      v[i] = test_random(&r) % 3 ? random_real(&r) : 0;
      e[i] = v[i] == 0 && i != FORWARD && i != BACKWARD ? NULL : atoll_sym_real(pool, v[i]);
    }
    const phase_layer layer = {e[FORWARD],
                               e[BACKWARD],
                               e[INSIDE],
                               e[INSIDE_BACK],
                               e[UPDATE],
                               e[GATHER],
                               e[GATHER_UPDATED],
                               e[SCATTER],
                               e[REDUCE],
                               e[IN_W],
                               e[IN_G],
                               e[IN_O],
                               {e[IN_S], e[IN_S1]},
                               e[OUT_W],
                               e[OUT_G],
                               e[OUT_O],
                               {e[OUT_S], e[OUT_S1]}};
    phase_times t;
    phase_stage(pool, &f, &layer, atoll_sym_int(pool, l), atoll_sym_int(pool, c), &t);
    assert_ok(atoll_syms_error(pool));
    sums want = written_out(&f, v, l, c);
    if (fabs(value(t.forward) - want.forward) > 1e-9 || fabs(value(t.backward) - want.backward) > 1e-9 ||
        fabs(value(t.first) - want.first) > 1e-9 || fabs(value(t.last) - want.last) > 1e-9)
      fail_msg("round %d, %d of %d layers done again: %g %g %g %g, written out %g %g %g %g", round, c, l,
               value(t.forward), value(t.backward), value(t.first), value(t.last), want.forward, want.backward,
               want.first, want.last);
    atoll_syms_destroy(&pool);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(neutral_streams_do_not_disturb), cmocka_unit_test(by_hand),
                                     cmocka_unit_test(phases_are_their_layers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

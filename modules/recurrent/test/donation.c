/* Values that go right after they are read give their storage to what was made of them, where that is safe: fewer
 * bytes, the same bits. */
#include "recurrent_test.h"

enum { N = 4, STEPS = 5 };
#define FLAGS "-O1 -ffp-contract=off -fopenmp-simd"

/* N x N numbers of step t. */
static atoll_err draw(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user;
  (void)in;
  for (int k = 0; k < N * N; k++)
    ((float *)out->data)[k] = (float)((k * 7 + (int)point[0] * 5) % 11 - 5);
  return ATOLL_OK;
}

static atoll_rt *half(atoll_rt *x) { return atoll_rt_scale(x, 0.5); }
/* Divided by a number that all elements make. */
static atoll_rt *share(atoll_rt *x) {
  return atoll_rt_div(x, atoll_rt_shift(atoll_rt_sum(atoll_rt_sum(atoll_rt_square(x), 1), 0), 1));
}
static atoll_rt *turned(atoll_rt *x) { return atoll_rt_permute(x, (int[]){1, 0}); }
/* Reads an element after it wrote another. */
static atoll_rt *both_ways(atoll_rt *x) { return atoll_rt_add(x, turned(x)); }
static atoll_rt *row(atoll_rt *x) {
  return atoll_rt_sub(x, atoll_rt_reshape(atoll_rt_slice(x, 0, 1, 1), ATOLL_SHAPE(N)));
}
/* A result, and another one which reads what the first would have written over. */
static atoll_rt *twice(atoll_rt *x) { return atoll_rt_concat(atoll_rt_exp(x), turned(x), 0); }

/* What f makes of the numbers is kept for a step, as the last of a recurrence of its own. */
static atoll_rec *make(atoll_rt *(*f)(atoll_rt *), test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", STEPS);
  atoll_rt *s = atoll_rec_call(c, "drawn", draw, NULL, "t", ATOLL_F32, ATOLL_SHAPE(N, N), 0, NULL);
  atoll_rt *y = atoll_rt_name(f(s), "made");
  atoll_rt *last =
      atoll_rec_tensor(c, "last", ATOLL_F32, "t", y ? ATOLL_SHAPE(f == twice ? 2 * N : N, N) : ATOLL_SCALAR);
  atoll_rt_def(last, "t==0", y);
  atoll_rt_def(last, "true", atoll_rt_add(atoll_rt_at(last, "t-1"), y));
  atoll_rt_sink(y, "made", test_collect, log);
  atoll_rt_sink(last, "last", test_collect, log);
  return c;
}

typedef struct outcome {
  test_log log;
  int64_t peak;
  char text[8192];
} outcome;

static void run(atoll_rt *(*f)(atoll_rt *), const char *passes, const char *compiler, outcome *o) {
  atoll_rec *c = make(f, &o->log);
  atoll_rec_program *p = NULL;
  int64_t seen;
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.passes = passes, .compiler = compiler, .flags = FLAGS}, &p));
  assert_ok(atoll_rec_run(p, NULL, 0));
  assert_ok(atoll_rec_peak_bytes(p, NULL, 0, &o->peak));
  assert_ok(atoll_rec_last_peak(p, &seen));
  assert_int_equal(seen, o->peak);
  FILE *out = fmemopen(o->text, sizeof o->text, "w");
  assert_non_null(out);
  atoll_rec_program_print(p, out);
  fclose(out);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

/* The same bits with donation and without, compiled and interpreted; what is drawn is given away or not. */
static void check(atoll_rt *(*f)(atoll_rt *), int given) {
  static outcome plain, donated, interpreted;
  plain.log.n = donated.log.n = interpreted.log.n = 0;
  run(f, "simplify,groups", NULL, &plain);
  run(f, "simplify,groups,donate", NULL, &donated);
  run(f, "simplify,groups,donate", "", &interpreted);
  assert_null(strstr(plain.text, "donate"));
  if ((strstr(donated.text, "donate drawn (") != NULL) != given)
    fail_msg("what is drawn is %sgiven in\n%s", given ? "not " : "", donated.text);
  assert_true(given ? donated.peak < plain.peak : donated.peak <= plain.peak);
  assert_int_equal(donated.log.n, plain.log.n);
  assert_int_equal(interpreted.log.n, plain.log.n);
  assert_memory_equal(donated.log.v, plain.log.v, (size_t)plain.log.n * sizeof *plain.log.v);
  for (int i = 0; i < plain.log.n; i++)
    assert_true(fabs(interpreted.log.v[i] - plain.log.v[i]) <= 1e-6 * fabs(plain.log.v[i]));
}

static void elementwise_results_take_over(void **state) {
  (void)state;
  check(half, 1);
  check(share, 1);
}

static void what_is_read_out_of_step_is_left(void **state) {
  (void)state;
  check(both_ways, 0);
  check(row, 0);
  check(twice, 0);
}

/* A value that moves on from step to step keeps its place. */
static void recurrences_stay_in_place(void **state) {
  (void)state;
  static outcome o;
  o.log.n = 0;
  run(half, NULL, NULL, &o);
  if (!strstr(o.text, "to last ("))
    fail_msg("the schedule is\n%s", o.text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise_results_take_over),
      cmocka_unit_test(what_is_read_out_of_step_is_left),
      cmocka_unit_test(recurrences_stay_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

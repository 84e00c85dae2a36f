/* Under a budget, values that are idle are put away and brought back: the same bits, at most the budget's bytes. */
#include <sys/stat.h>
#include <unistd.h>

#include "atoll/fault.h"
#include "recurrent_test.h"

enum { WIDE = 256, T = 40 };
#define FLAGS "-O1 -ffp-contract=off -fopenmp-simd"
static char folder[] = "offload-XXXXXX";

/* Returns to the end: all that was seen is looked at again, from the end on. */
static atoll_rec *returns(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "i", 2);
  atoll_rec_dim(c, "t", 0);
  atoll_rt *o = atoll_rec_tensor(c, "seen", ATOLL_F32, "i,t", ATOLL_SHAPE(WIDE));
  atoll_rt *g = atoll_rec_tensor(c, "returns", ATOLL_F32, "i,t", ATOLL_SCALAR);
  atoll_rt_def(o, "t==0", atoll_rec_normal(c, "i", ATOLL_SHAPE(WIDE)));
  atoll_rt_def(o, "true", atoll_rt_at(atoll_rt_sin(atoll_rt_shift(o, 1)), "t=t-1"));
  atoll_rt *r = atoll_rt_mean_all(o);
  atoll_rt_def(g, "t==T-1", r);
  atoll_rt_def(g, "true", atoll_rt_add(r, atoll_rt_scale(atoll_rt_at(g, "t=t+1"), 0.9)));
  atoll_rt_sink(atoll_rt_sum(atoll_rt_mul(o, g), 0), "weighted", test_collect, log);
  return c;
}

/* All keys of the past at every step, tile by tile. */
static atoll_rec *attention(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(8));
  atoll_rt *k = atoll_rt_name(atoll_rt_tanh(x), "keys");
  atoll_rt *past = atoll_rt_at(k, "0:t+1");
  atoll_rt *p = atoll_rt_softmax(atoll_rt_einsum("nd,d->n", past, x), 0);
  atoll_rt *y = atoll_rt_einsum("n,nd->d", p, past);
  atoll_rt_def(x, "t==0", atoll_rt_scale(atoll_rec_iota(c, ATOLL_F32, 8), 0.1));
  atoll_rt_def(x, "true", atoll_rt_at(atoll_rt_cos(atoll_rt_add(y, atoll_rec_expr(c, ATOLL_F32, "t"))), "t-1"));
  atoll_rt_sink(y, "out", test_collect, log);
  return c;
}

typedef atoll_rec *(*maker)(test_log *log);

static atoll_err run(maker make, const atoll_rec_params *params, test_log *log, int64_t *peak, char *report, size_t n) {
  const atoll_rec_binding b = {"T", T, NULL};
  atoll_rec_program *p = NULL;
  int64_t seen;
  log->n = 0;
  atoll_rec *c = make(log);
  atoll_err err = atoll_rec_compile(c, params, &p);
  if (err != ATOLL_OK) {
    atoll_rec_destroy(&c);
    return err;
  }
  assert_true((strncmp(atoll_rec_engine(p), "compiled", 8) == 0) == !params->compiler);
  err = atoll_rec_run(p, &b, 1);
  if (err == ATOLL_OK) {
    assert_ok(atoll_rec_peak_bytes(p, &b, 1, peak));
    assert_ok(atoll_rec_last_peak(p, &seen));
    assert_int_equal(seen, *peak);
  }
  FILE *f = err == ATOLL_OK ? fmemopen(report, n, "w") : NULL;
  if (f) {
    assert_ok(atoll_rec_report(p, &b, 1, f));
    fclose(f);
  }
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  return err;
}

/* A part of what is needed without. */
static void check(maker make, int64_t tile, int64_t part, const char *away) {
  static test_log expected, got;
  static char report[1 << 15];
  int64_t whole, peak;
  atoll_rec_params params = {.tile = tile, .flags = FLAGS};
  assert_ok(run(make, &params, &expected, &whole, report, sizeof report));
  assert_null(strstr(report, "put away"));
  params.memory = whole;
  params.offload = folder;
  assert_ok(run(make, &params, &got, &peak, report, sizeof report));
  assert_null(strstr(report, "put away")); /* nothing asks for it */
  for (int interpreted = 0; interpreted < 2; interpreted++) {
    params.memory = whole / part;
    params.compiler = interpreted ? "" : NULL;
    assert_ok(run(make, &params, &got, &peak, report, sizeof report));
    print_message("%" PRId64 " bytes, then %" PRId64 " of %" PRId64 "\n", whole, peak, params.memory);
    assert_true(peak <= params.memory);
    if (!strstr(report, "offload ") || !strstr(report, "fetch ") || !strstr(report, away))
      fail_msg("the report is\n%s", report);
    assert_int_equal(got.n, expected.n);
    for (int i = 0; i < got.n; i++)
      if (!(fabs(got.v[i] - expected.v[i]) <= (interpreted ? 1e-5 * (1 + fabs(expected.v[i])) : 0)))
        fail_msg("value %d is %.9g, kept in memory %.9g", i, got.v[i], expected.v[i]);
  }
}

static void what_was_seen_comes_back(void **state) {
  (void)state;
  check(returns, 0, 8, "put away between uses");
}

/* What is put away depends on the bounds: a short run needs nothing of it, a long one after it does. */
static void each_run_keeps_its_own_budget(void **state) {
  (void)state;
  static test_log log;
  const atoll_rec_params params = {.memory = T * WIDE * 4 / 4, .offload = folder, .compiler = ""};
  atoll_rec_program *p = NULL;
  atoll_rec *c = returns(&log);
  assert_ok(atoll_rec_compile(c, &params, &p));
  for (int k = 0; k < 2; k++) {
    int64_t peak;
    log.n = 0;
    assert_ok(atoll_rec_run(p, &(atoll_rec_binding){"T", k ? T : 3, NULL}, 1));
    assert_ok(atoll_rec_last_peak(p, &peak));
    assert_true(peak <= params.memory);
  }
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void keys_come_back_block_by_block(void **state) {
  (void)state;
  check(attention, 4, 2, "put away between uses");
}

static void failures_are_told(void **state) {
  (void)state;
  static test_log log;
  static char report[1 << 15];
  int64_t peak;
  atoll_rec_params params = {.memory = T * WIDE * 4 / 8, .offload = "not/there", .flags = FLAGS};
  assert_refused(ATOLL_IO, "no file can be made in not/there",
                 run(returns, &params, &log, &peak, report, sizeof report));
  params.offload = folder;
  assert_ok(atoll_fault_set("fail:write:5:ENOSPC", 0));
  assert_refused(ATOLL_IO, "No space left", run(returns, &params, &log, &peak, report, sizeof report));
  assert_ok(atoll_fault_set("", 0));
  params.memory = 64;
  assert_refused(ATOLL_NOMEM, "even when all that can be put away is",
                 run(returns, &params, &log, &peak, report, sizeof report));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_seen_comes_back),
      cmocka_unit_test(each_run_keeps_its_own_budget),
      cmocka_unit_test(keys_come_back_block_by_block),
      cmocka_unit_test(failures_are_told),
  };
  if (!mkdtemp(folder))
    return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return rmdir(folder) != 0 || failed; /* nothing is left there */
}

/* What a program keeps alive follows from its indices, not from how long it runs. */
#include "recurrent_test.h"

/* One head of attention that feeds itself. */
static atoll_rec *decode(const char *index, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(8));
  atoll_rt *w = atoll_rec_input(c, "w", ATOLL_F32, "", ATOLL_SHAPE(8, 8));
  atoll_rt *q = atoll_rt_mv(w, x), *k = atoll_rt_name(atoll_rt_mv(w, atoll_rt_tanh(x)), "k");
  atoll_rt *window = atoll_rt_at(k, index);
  atoll_rt *p = atoll_rt_softmax(atoll_rt_einsum("nd,d->n", window, q), 0);
  atoll_rt *y = atoll_rt_einsum("n,nd->d", p, window);
  atoll_rt_def(x, "t==0", atoll_rt_scale(atoll_rec_iota(c, ATOLL_F32, 8), 0.1));
  atoll_rt_def(x, "true", atoll_rt_at(y, "t-1"));
  atoll_rt_sink(y, "out", test_collect, log);
  return c;
}

static int64_t peak_of(atoll_rec *c, const atoll_rec_params *params, int64_t T, char **report) {
  atoll_rec_program *p = NULL;
  atoll_rec_binding b = {"T", T, NULL};
  int64_t peak = 0;
  assert_ok(atoll_rec_compile(c, params, &p));
  assert_ok(atoll_rec_peak_bytes(p, &b, 1, &peak));
  if (report)
    *report = test_report(p, &b, 1);
  atoll_rec_program_destroy(&p);
  return peak;
}

static void windows_bound_the_cache(void **state) {
  (void)state;
  static test_log log;
  char *report = NULL;
  atoll_rec *c = decode("max(0,t-15):t+1", &log);
  int64_t short_run = peak_of(c, NULL, 64, NULL), long_run = peak_of(c, NULL, 640, &report);
  assert_int_equal(short_run, long_run);
  /* 15 keys of the past and the present one, 32 bytes each */
  if (!strstr(report, "ring of t, 16, 512 bytes"))
    fail_msg("the report is\n%s", report);
  free(report);
  atoll_rec_destroy(&c);
  c = decode("0:t+1", &log);
  assert_int_equal(peak_of(c, NULL, 640, NULL) - peak_of(c, NULL, 64, NULL), (640 - 64) * 32);
  atoll_rec_destroy(&c);
}

static void budgets_are_kept(void **state) {
  (void)state;
  static test_log log;
  atoll_rec *c = decode("0:t+1", &log);
  atoll_rec_program *p = NULL;
  float w[64] = {0};
  atoll_rec_binding b[] = {{"T", 32, NULL}, {"w", 0, w}};
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.memory = 2000}, &p));
  assert_ok(atoll_rec_run(p, b, 2));
  b[0].bound = 64;
  assert_refused(ATOLL_NOMEM, "the budget is 2000; most is k (", atoll_rec_run(p, b, 2));
  assert_refused(ATOLL_NOMEM, "read by index '0:t+1'", atoll_rec_run(p, b, 2));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static atoll_err walk(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user;
  (void)point;
  for (int k = 0; k < 64; k++)
    ((float *)out->data)[k] = 0.9f * ((const float *)in[0].data)[k] + 0.1f * ((const float *)in[1].data)[0];
  return ATOLL_OK;
}

/* REINFORCE with returns over n steps (0: to the end). */
static atoll_rec *reinforce(int n, test_log *log) {
  atoll_rec *c = test_context();
  char index[32];
  atoll_rt *grad;
  atoll_rec_dim(c, "i", 2);
  atoll_rec_dim(c, "t", 0);
  atoll_rt *w = atoll_rec_tensor(c, "w", ATOLL_F32, "i", ATOLL_SHAPE(1, 64));
  atoll_rt *o = atoll_rec_tensor(c, "o", ATOLL_F32, "i,t", ATOLL_SHAPE(64));
  atoll_rt *g = atoll_rec_tensor(c, "g", ATOLL_F32, "i,t", ATOLL_SCALAR);
  atoll_rt_def(w, "i==0", atoll_rec_normal(c, "", ATOLL_SHAPE(1, 64)));
  atoll_rt *mean = atoll_rt_mv(w, o);
  atoll_rt *act = atoll_rt_detach(atoll_rt_add(mean, atoll_rec_normal(c, "i,t", ATOLL_SHAPE(1))));
  atoll_rt *step = atoll_rec_call(c, "step", walk, NULL, NULL, ATOLL_F32, ATOLL_SHAPE(64), 2, (atoll_rt *[]){o, act});
  atoll_rt_def(o, "t==0", atoll_rec_normal(c, "i", ATOLL_SHAPE(64)));
  atoll_rt_def(o, "true", atoll_rt_at(step, "t=t-1"));
  atoll_rt *r = atoll_rt_neg(atoll_rt_mean_all(atoll_rt_square(step)));
  (void)snprintf(index, sizeof index, "t=t:min(t+%d,T)", n);
  if (n) {
    atoll_rt_def(g, "true", atoll_rt_dsum(atoll_rt_at(r, index), 0.9));
  } else {
    atoll_rt_def(g, "t==T-1", r);
    atoll_rt_def(g, "true", atoll_rt_add(r, atoll_rt_scale(atoll_rt_at(g, "t=t+1"), 0.9)));
  }
  atoll_rt *logp = atoll_rt_normal_logp(mean, act);
  atoll_rt *loss = atoll_rt_neg(atoll_rt_mean_all(atoll_rt_at(atoll_rt_mul(logp, atoll_rt_detach(g)), "t=0:T")));
  atoll_rt_gradients(loss, 1, &w, &grad);
  atoll_rt_adam(w, grad, "i", 1e-2, 0.9, 0.999, 1e-8);
  atoll_rt_sink(atoll_rt_mean_all(atoll_rt_at(r, "t=0:T")), "mean", test_collect, log);
  return c;
}

static void learning_with_n_steps_forgets(void **state) {
  (void)state;
  static test_log log;
  const atoll_rec_params params = {.least = 16};
  atoll_rec *c = reinforce(4, &log);
  int64_t short_run = peak_of(c, &params, 50, NULL), long_run = peak_of(c, &params, 500, NULL);
  atoll_rec_destroy(&c);
  c = reinforce(0, &log);
  int64_t to_the_end = peak_of(c, &params, 500, NULL);
  atoll_rec_destroy(&c);
  print_message("peak bytes, 4 steps: T=50 %" PRId64 ", T=500 %" PRId64 "; to the end: T=500 %" PRId64 "\n", short_run,
                long_run, to_the_end);
  assert_int_equal(short_run, long_run);
  assert_true(to_the_end > 16 * long_run);
}

/* Sums over groups b and time t of what is made of a recurrence. with_mean: less their mean over the groups at each
 * time, so that no group can be done with before the next begins. */
static atoll_rec *grouped(int with_mean, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rec_dim(c, "b", 16);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F32, "t,b", ATOLL_SHAPE(64));
  atoll_rt_def(x, "t==0", atoll_rec_normal(c, "b", ATOLL_SHAPE(64)));
  atoll_rt_def(x, "true", atoll_rt_at(atoll_rt_sin(x), "t=t-1"));
  atoll_rt *y = with_mean ? atoll_rt_sub(x, atoll_rt_mean(atoll_rt_at(x, "b=0:16"), 0)) : x;
  atoll_rt *later = atoll_rt_mul(y, atoll_rt_sum(atoll_rt_at(atoll_rt_cos(x), "t=t:T"), 0));
  atoll_rt *sooner = atoll_rt_mul(y, atoll_rt_sum(atoll_rt_at(atoll_rt_cos(x), "t=t:min(t+3,T)"), 0));
  atoll_rt *sums = atoll_rt_sum(atoll_rt_sum(atoll_rt_at(with_mean ? sooner : later, "t=0:T,b=0:16"), 0), 0);
  atoll_rt_sink(sums, "sums", test_collect, log);
  return c;
}

/* All of time is kept for one group alone; or of time a window, for all groups. */
static void sums_over_two_dimensions_keep_one(void **state) {
  (void)state;
  enum { T = 320, BYTES = 64 * sizeof(float) };
  static test_log log;
  atoll_rec *c = grouped(0, &log);
  const int64_t of_a_group = peak_of(c, NULL, T, NULL);
  atoll_rec_destroy(&c);
  c = grouped(1, &log);
  const int64_t of_a_window = peak_of(c, NULL, T, NULL), of_a_longer_run = peak_of(c, NULL, 2 * T, NULL);
  atoll_rec_destroy(&c);
  print_message("peak bytes: %" PRId64 " for one group, %" PRId64 " for a window\n", of_a_group, of_a_window);
  assert_true(of_a_group < 3 * T * BYTES);
  assert_int_equal(of_a_window, of_a_longer_run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_bound_the_cache),
      cmocka_unit_test(budgets_are_kept),
      cmocka_unit_test(learning_with_n_steps_forgets),
      cmocka_unit_test(sums_over_two_dimensions_keep_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Programs for a device. On the host ("async": the kernels as C, run as late as they may) they agree with the
 * interpreter; NVRTC, where there is one, compiles the same kernels; and where there is a GPU they run there. */
#include <stdlib.h>
#include <string.h>

#include "random_program.h"

enum { SEEDS = 12, COMPILED = 3, D = 12, H = 4, HK = 2, DH = 4, V = 20, L = 2, B = 2, T = 11 };

#define QUICK "-O1 -ffp-contract=off"
static const char *const gpus[] = {"cuda:sm_80", "cuda:sm_90", "cuda:sm_100"};

static void agree(const char *what, const test_log *expected, const test_log *got, double tolerance) {
  assert_int_equal(expected->n, got->n);
  for (int i = 0; i < got->n; i++)
    if (!(fabs(expected->v[i] - got->v[i]) <= tolerance))
      fail_msg("%s: element %d is %.9g, expected %.9g", what, i, got->v[i], expected->v[i]);
}

/* Whether there is a library that "cuda" needs; its absence is told once. */
static int is_there(atoll_err err) {
  static int told;
  if (err != ATOLL_UNAVAILABLE)
    return 1;
  if (!told++)
    print_message("not here: %s\n", atoll_err_message());
  return 0;
}

/* ---- random programs ---- */

static void random_programs(void **state) {
  static test_log expected[SEEDS][RANDOM_LOGS], got[SEEDS][RANDOM_LOGS];
  static const atoll_rec_params choice[] = {{.device = "async", .flags = QUICK, .block = 2},
                                            {.device = "async", .flags = QUICK, .vectorize = "b,l"}};
  atoll_rec *c[SEEDS];
  atoll_rec_program *program[SEEDS];
  atoll_rec_binding b[RANDOM_BINDINGS];
  (void)state;
  for (int way = 0; way < 2; way++) {
    const int first = way * SEEDS / 2, n = SEEDS / 2;
    for (int k = first; k < first + n; k++) {
      int bindings = random_bindings((uint64_t)k, b);
      atoll_rec *oracle = random_make((uint64_t)k, expected[k]);
      assert_ok(atoll_rec_interpret(oracle, b, bindings));
      atoll_rec_destroy(&oracle);
      c[k] = random_make((uint64_t)k, got[k]);
    }
    assert_ok(atoll_rec_compile_all(n, c + first, &choice[way], program + first));
    for (int k = first; k < first + n; k++) {
      char what[32];
      (void)snprintf(what, sizeof what, "seed %d", k);
      int bindings = random_bindings((uint64_t)k, b);
      assert_ok(atoll_rec_run(program[k], b, bindings));
      for (int i = 0; i < RANDOM_LOGS; i++)
        agree(what, &expected[k][i], &got[k][i], random_tolerance((uint64_t)k));
      atoll_rec_program_destroy(&program[k]);
      atoll_rec_destroy(&c[k]);
    }
  }
}

/* ---- a small Llama: rows of tables, blocks, windows, softmax, choices ---- */

static float weights[L * V * D];

static atoll_rt *weight(atoll_rec *c, const char *name, const char *domain, atoll_rt_shape shape) {
  return atoll_rec_input(c, name, ATOLL_F32, domain, shape);
}

static atoll_rec *llama(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "b", B);
  atoll_rec_dim(c, "t", 0);
  atoll_rec_dim(c, "l", L);
  atoll_rt *emb = weight(c, "emb", "", ATOLL_SHAPE(V, D)), *wq = weight(c, "wq", "l", ATOLL_SHAPE(H * DH, D));
  atoll_rt *wk = weight(c, "wk", "l", ATOLL_SHAPE(HK * DH, D)), *wo = weight(c, "wo", "l", ATOLL_SHAPE(D, H * DH));
  atoll_rt *tok = atoll_rec_tensor(c, "tok", ATOLL_I32, "b,t", ATOLL_SCALAR);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F32, "b,t,l", ATOLL_SHAPE(D));
  atoll_rt_def(x, "l==0", atoll_rt_take(emb, tok));
  atoll_rt *n = atoll_rt_rmsnorm(x, NULL, 1e-5), *position = atoll_rec_expr(c, ATOLL_I32, "t");
  atoll_rt *q = atoll_rt_rope(atoll_rt_reshape(atoll_rt_mv(wq, n), ATOLL_SHAPE(HK, H / HK, DH)), position, 10000);
  atoll_rt *k = atoll_rt_rope(atoll_rt_reshape(atoll_rt_mv(wk, n), ATOLL_SHAPE(HK, DH)), position, 10000);
  atoll_rt *s = atoll_rt_einsum("kgd,nkd->kgn", q, atoll_rt_at(k, "t=max(0,t-4):t+1"));
  atoll_rt *y = atoll_rt_einsum("kgn,nkd->kgd", atoll_rt_softmax(s, -1), atoll_rt_at(k, "t=max(0,t-4):t+1"));
  atoll_rt *out = atoll_rt_add(x, atoll_rt_mv(wo, atoll_rt_reshape(y, ATOLL_SHAPE(H * DH))));
  atoll_rt_def(x, "true", atoll_rt_at(out, "l=l-1"));
  atoll_rt *logits = atoll_rt_mv(emb, atoll_rt_rmsnorm(atoll_rt_at(out, "l=L-1"), NULL, 1e-5));
  atoll_rt_def(tok, "t==0", atoll_rec_input(c, "prompt", ATOLL_I32, "b", ATOLL_SCALAR));
  atoll_rt_def(tok, "true", atoll_rt_at(atoll_rt_argmax(logits, -1), "t=t-1"));
  atoll_rt_sink(tok, "tokens", test_collect, &log[0]);
  atoll_rt_sink(logits, "logits", test_collect, &log[1]);
  return c;
}

static int llama_bindings(atoll_rec_binding *b, int32_t *prompt) {
  static const char *const name[] = {"emb", "wq", "wk", "wo"};
  uint64_t seed = 5;
  for (int i = 0; i < L * V * D; i++)
    weights[i] = (float)(test_below(&seed, 2000) - 1000) / 1000;
  for (int k = 0; k < 4; k++)
    b[k] = (atoll_rec_binding){name[k], 0, weights};
  b[4] = (atoll_rec_binding){"prompt", 0, prompt};
  b[5] = (atoll_rec_binding){"T", T, NULL};
  return 6;
}

static void run_llama(const atoll_rec_params *p, const test_log *expected) {
  static test_log got[2];
  int32_t prompt[B] = {3, 7};
  atoll_rec_binding b[6];
  int n = llama_bindings(b, prompt);
  atoll_rec_program *program = NULL;
  memset(got, 0, sizeof got);
  atoll_rec *c = llama(got);
  if (is_there(atoll_rec_compile(c, p, &program))) {
    assert_non_null(program);
    assert_ok(atoll_rec_run(program, b, n));
    agree(p->device, &expected[0], &got[0], 0);
    agree(p->device, &expected[1], &got[1], 1e-4);
    prompt[1] = V; /* beyond the table: a kernel finds it */
    assert_int_equal(atoll_rec_run(program, b, n), ATOLL_USAGE);
    assert_non_null(strstr(atoll_err_message(), "=0): index 20, the axis has 20 elements"));
  }
  atoll_rec_program_destroy(&program);
  atoll_rec_destroy(&c);
}

static void a_language_model(void **state) {
  static test_log expected[2];
  int32_t prompt[B] = {3, 7};
  atoll_rec_binding b[6];
  int n = llama_bindings(b, prompt);
  (void)state;
  memset(expected, 0, sizeof expected);
  atoll_rec *c = llama(expected);
  assert_ok(atoll_rec_interpret(c, b, n));
  atoll_rec_destroy(&c);
  run_llama(&(atoll_rec_params){.device = "async", .vectorize = "b", .flags = QUICK}, expected);
  run_llama(&(atoll_rec_params){.device = "async", .vectorize = "b", .block = 4, .flags = QUICK}, expected);
  run_llama(&(atoll_rec_params){.device = "cuda", .vectorize = "b", .block = 4}, expected);
}

/* ---- learning: gradients, rows that are added to, Adam, random numbers ---- */

static atoll_rec *learning(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "i", 3);
  atoll_rec_dim(c, "t", 5);
  atoll_rt *w = atoll_rec_tensor(c, "w", ATOLL_F32, "i", ATOLL_SHAPE(V, D)), *grad;
  atoll_rt_def(w, "i==0", atoll_rt_at(atoll_rec_input(c, "start", ATOLL_F32, "", ATOLL_SHAPE(V, D)), ""));
  atoll_rt *at = atoll_rec_expr(c, ATOLL_I32, "(3*t+i)%5");
  atoll_rt *x = atoll_rt_add(atoll_rt_take(w, at), atoll_rec_normal(c, "i,t", ATOLL_SHAPE(D)));
  atoll_rt *loss = atoll_rt_mean_all(atoll_rt_at(atoll_rt_square(atoll_rt_tanh(x)), "t=0:T"));
  atoll_rt_gradients(loss, 1, &w, &grad);
  atoll_rt_adam(w, grad, "i", 1e-2, 0.9, 0.999, 1e-8);
  atoll_rt_sink(loss, "loss", test_collect, &log[0]);
  atoll_rt_sink(w, "w", test_collect, &log[1]);
  return c;
}

static void learns(void **state) {
  static test_log expected[2], got[2];
  static const char *const device[] = {"async", "cuda"};
  const atoll_rec_binding b[] = {{"start", 0, weights}};
  (void)state;
  atoll_rec *c = learning(expected);
  assert_ok(atoll_rec_interpret(c, b, 1));
  atoll_rec_destroy(&c);
  for (int k = 0; k < 2; k++) {
    atoll_rec_program *program = NULL;
    memset(got, 0, sizeof got);
    c = learning(got);
    if (is_there(atoll_rec_compile(c, &(atoll_rec_params){.device = device[k], .flags = QUICK}, &program))) {
      assert_ok(atoll_rec_run(program, b, 1));
      for (int i = 0; i < 2; i++)
        agree(device[k], &expected[i], &got[i], 1e-4);
    }
    atoll_rec_program_destroy(&program);
    atoll_rec_destroy(&c);
  }
}

/* ---- NVRTC ---- */

/* Random programs, in one translation unit, and the model, for three generations of GPUs; they do not run here. */
static void nvrtc_compiles_the_kernels(void **state) {
  static test_log log[COMPILED][RANDOM_LOGS];
  (void)state;
  for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
    const atoll_rec_params params = {.device = gpus[g], .block = 2, .flags = "-O0"};
    atoll_rec *c[COMPILED + 1] = {NULL};
    atoll_rec_program *program[COMPILED + 1] = {NULL};
    for (int k = 0; k < COMPILED; k++)
      c[k] = random_make((uint64_t)k, log[k]);
    c[COMPILED] = llama(log[0]);
    int compiled = is_there(atoll_rec_compile_all(COMPILED + 1, c, &params, program));
    if (compiled && !program[0])
      fail_msg("%s: %s", gpus[g], atoll_err_message());
    if (compiled)
      assert_int_equal(atoll_rec_run(program[0], NULL, 0), ATOLL_UNAVAILABLE);
    for (int k = 0; k <= COMPILED; k++) {
      atoll_rec_program_destroy(&program[k]);
      atoll_rec_destroy(&c[k]);
    }
    if (!compiled)
      skip();
  }
}

static void unknown_devices_are_told(void **state) {
  static test_log log[2];
  atoll_rec_program *program = NULL;
  atoll_rec *c = llama(log);
  (void)state;
  assert_int_equal(atoll_rec_compile(c, &(atoll_rec_params){.device = "cudo"}, &program), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "device 'cudo'"));
  for (int k = 0; k < 3; k++) {
    static const char *const wrong[] = {"cuda:sm_90xyz", "cuda:sm_", "cuda:sm_-90"};
    assert_int_equal(atoll_rec_compile(c, &(atoll_rec_params){.device = wrong[k]}, &program), ATOLL_USAGE);
  }
  assert_int_equal(atoll_rec_compile(c, &(atoll_rec_params){.device = "async", .compiler = ""}, &program),
                   ATOLL_UNAVAILABLE);
  atoll_rec_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_programs),
      cmocka_unit_test(a_language_model),
      cmocka_unit_test(learns),
      cmocka_unit_test(nvrtc_compiles_the_kernels),
      cmocka_unit_test(unknown_devices_are_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

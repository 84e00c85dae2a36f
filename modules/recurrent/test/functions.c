/* The functions of float that emitted programs bring along, over all of float: every STRIDE-th pattern of bits, which
 * meets subnormal numbers, infinities and NaN of both signs, and every pattern near 1, where a logarithm is small
 * beside what it is made of. By the default flags, and by those of a processor that cannot add to a product without
 * rounding it. */
#include <float.h>

#include "recurrent_test.h"

enum { COUNT = 1 << 18, STRIDE = 509 };

/* emitted.h states these bounds. */
static const struct {
  const char *name;
  atoll_rt *(*made)(atoll_rt *);
  double (*exact)(double);
  double bound; /* in units of the last place */
} functions[] = {{"exp", atoll_rt_exp, exp, 1.1}, {"log", atoll_rt_log, log, 0.9}, {"tanh", atoll_rt_tanh, tanh, 7}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static float number(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* How far a result is from the exact one, in units of the last place that float has there. What is not finite when
 * rounded must be the same, and a 0 must have the sign. */
static double distance(float got, double exact) {
  const double size = fabs(exact);
  if (isnan(exact))
    return isnan(got) ? 0 : INFINITY;
  if (isinf((float)exact) || isinf(got) || exact == 0)
    return got == (float)exact && !signbit(got) == !signbit(exact) ? 0 : INFINITY;
  if (isnan(got))
    return INFINITY;
  return fabs((double)got - exact) / ldexp(1, (size < (double)FLT_MIN ? -126 : ilogb(size)) - 23);
}

static float inputs[COUNT];
static double worst[FUNCTIONS];

static atoll_err compare(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  const int k = *(const int *)user;
  const float *y = in->data;
  (void)point;
  (void)out;
  for (int i = 0; i < COUNT; i++) {
    const double exact = functions[k].exact((double)inputs[i]), far = distance(y[i], exact);
    if (!(far <= functions[k].bound))
      fail_msg("%s of %.9g (%a): %.9g is %.3f units from %.12g", functions[k].name, (double)inputs[i],
               (double)inputs[i], (double)y[i], far, exact);
    worst[k] = fmax(worst[k], far);
  }
  return ATOLL_OK;
}

static void over_all_of_float(const char *flags) {
  static int index[FUNCTIONS];
  const atoll_rec_binding b = {"x", 0, inputs};
  atoll_rec_params p;
  atoll_rec_program *program = NULL;
  atoll_rec *c = test_context();
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F32, "", ATOLL_SHAPE(COUNT));
  for (int k = 0; k < FUNCTIONS; k++) {
    index[k] = k;
    worst[k] = 0;
    atoll_rt_sink(functions[k].made(x), functions[k].name, compare, &index[k]);
  }
  atoll_rec_params_init(&p);
  p.flags = flags;
  assert_ok(atoll_rec_compile(c, &p, &program));
  const int compiled = !strncmp(atoll_rec_engine(program), "compiled", 8);
  for (uint64_t from = 0; compiled && from <= UINT32_MAX; from += (uint64_t)COUNT * STRIDE) {
    for (int i = 0; i < COUNT; i++)
      inputs[i] = number((uint32_t)(from + (uint64_t)i * STRIDE));
    assert_ok(atoll_rec_run(program, &b, 1));
  }
  for (int i = 0; i < COUNT; i++)
    inputs[i] = number(0x3f800000u - COUNT / 2 + (uint32_t)i);
  if (compiled)
    assert_ok(atoll_rec_run(program, &b, 1));
  for (int k = 0; k < FUNCTIONS; k++)
    print_message("%s: at most %.3f units of the last place\n", functions[k].name, worst[k]);
  atoll_rec_program_destroy(&program);
  atoll_rec_destroy(&c);
  if (!compiled)
    skip();
}

static void by_the_default_flags(void **state) {
  (void)state;
  over_all_of_float(NULL);
}

static void without_fused_products(void **state) {
  (void)state;
  over_all_of_float("-O2 -ffp-contract=off -fno-math-errno -fno-trapping-math");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(by_the_default_flags), cmocka_unit_test(without_fused_products)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Contractions that are matrix products go to the library, whatever the order of their labels, and agree with the
 * interpreter; those that are small, or are none, do not. Threads do not change a bit. */
#include <stdlib.h>
#include <string.h>

#include "recurrent_test.h"

typedef struct contraction {
  const char *spec;
  atoll_rt_shape a, b;
  int product;
} contraction;

static float numbers[1 << 20];

static atoll_rec *program(const contraction *x, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 2);
  atoll_rt *a = atoll_rec_input(c, "a", ATOLL_F32, "t", x->a), *b = atoll_rec_input(c, "b", ATOLL_F32, "", x->b);
  atoll_rt_sink(atoll_rt_at(atoll_rt_einsum(x->spec, a, b), "t=1"), "y", test_collect, log);
  return c;
}

static void run(const contraction *x, int threads, test_log *log, int *products) {
  const atoll_rec_binding b[] = {{"a", 0, numbers}, {"b", 0, numbers + 77}};
  char *text = NULL;
  size_t n = 0;
  FILE *trace = open_memstream(&text, &n);
  atoll_rec_program *p = NULL;
  atoll_rec *c = program(x, log);
  assert_non_null(trace);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.threads = threads, .trace = trace}, &p));
  fclose(trace);
  *products = 0;
  for (const char *at = text; (at = strstr(at, "= r->product(")); at++)
    ++*products;
  free(text);
  if (strncmp(atoll_rec_engine(p), "compiled", 8) != 0)
    fail_msg("%s", atoll_rec_engine(p));
  assert_ok(atoll_rec_run(p, b, 2));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void check(const contraction *x) {
  static test_log expected, one, more;
  const atoll_rec_binding b[] = {{"a", 0, numbers}, {"b", 0, numbers + 77}};
  int products;
  memset(&expected, 0, sizeof expected);
  memset(&one, 0, sizeof one);
  atoll_rec *c = program(x, &expected);
  assert_ok(atoll_rec_interpret(c, b, 2));
  atoll_rec_destroy(&c);
  run(x, 1, &one, &products);
  if (products != x->product)
    fail_msg("%s: %d products of the library, expected %d", x->spec, products, x->product);
  assert_int_equal(expected.n, one.n);
  for (int i = 0; i < one.n; i++)
    if (!(fabs(expected.v[i] - one.v[i]) < 1e-4))
      fail_msg("%s: element %d is %g, expected %g", x->spec, i, one.v[i], expected.v[i]);
  for (int threads = 2; threads <= 3; threads++) { /* the second divides no extent of the table evenly */
    memset(&more, 0, sizeof more);
    run(x, threads, &more, &products);
    assert_int_equal(expected.n, more.n);
    for (int i = 0; i < one.n; i++)
      if (one.v[i] != more.v[i])
        fail_msg("%s: element %d is %g with %d threads, %g with one", x->spec, i, more.v[i], threads, one.v[i]);
  }
}

static void contractions_are_products(void **state) {
  const contraction all[] = {
      {"mk,nk->mn", ATOLL_SHAPE(40, 50), ATOLL_SHAPE(48, 50), 1},
      {"mk,kn->mn", ATOLL_SHAPE(40, 50), ATOLL_SHAPE(50, 48), 1},
      {"km,kn->nm", ATOLL_SHAPE(50, 40), ATOLL_SHAPE(50, 48), 1}, /* rows are the second operand's */
      {"bmk,bnk->bmn", ATOLL_SHAPE(2, 40, 33), ATOLL_SHAPE(2, 32, 33), 1},
      {"mbk,bnk->mbn", ATOLL_SHAPE(34, 3, 33), ATOLL_SHAPE(3, 32, 33), 1}, /* rows lie apart */
      {"abk,nk->abn", ATOLL_SHAPE(5, 8, 40), ATOLL_SHAPE(40, 40), 1},      /* two labels are the rows */
      {"mab,abn->mn", ATOLL_SHAPE(40, 7, 9), ATOLL_SHAPE(7, 9, 40), 1},    /* two are summed */
      {"akb,nk->abn", ATOLL_SHAPE(2, 40, 36), ATOLL_SHAPE(40, 40), 1},     /* rows of one, a loop over the other */
      {"mk,nk->mn", ATOLL_SHAPE(5, 300), ATOLL_SHAPE(700, 300), 1},        /* few rows, long sums */
      {"mk,nk->mn", ATOLL_SHAPE(9, 512), ATOLL_SHAPE(401, 512),
       0}, /* whole vectors: a row for four at a time, and one */
      {"mk,nk->mn", ATOLL_SHAPE(16, 512), ATOLL_SHAPE(66, 512), 0},           /* two rows for four at a time, */
      {"mk,nk->mn", ATOLL_SHAPE(10, 512), ATOLL_SHAPE(66, 512), 0},           /* and one */
      {"abnk,amk->bnm", ATOLL_SHAPE(3, 8, 8, 64), ATOLL_SHAPE(3, 32, 64), 0}, /* threads share what is taken so */
      {"k,k->", ATOLL_SHAPE(512), ATOLL_SHAPE(512), 0},                       /* no loop but that of the sum */
      {"nk,mk->mn", ATOLL_SHAPE(402, 512), ATOLL_SHAPE(4, 512), 0},
      {"k,nk->n", ATOLL_SHAPE(512), ATOLL_SHAPE(403, 512), 0}, /* rows one after the other */
      {"mk,nk->mn", ATOLL_SHAPE(3, 64), ATOLL_SHAPE(31, 64), 0},
      {"mk,kn->mn", ATOLL_SHAPE(128, 64), ATOLL_SHAPE(64, 2), 1},  /* few columns, */
      {"km,kn->mn", ATOLL_SHAPE(128, 64), ATOLL_SHAPE(128, 3), 1}, /* of rows side by side */
      {"km,kn->mn", ATOLL_SHAPE(70, 3), ATOLL_SHAPE(70, 50), 1},   /* few rows */
      {"mk,nk->mn", ATOLL_SHAPE(40, 6), ATOLL_SHAPE(36, 6), 1},    /* few terms */
      {"mk,nk->mn", ATOLL_SHAPE(3, 8), ATOLL_SHAPE(400, 8), 0},    /* not worth turning */
      {"mk,nk->mn", ATOLL_SHAPE(8, 50), ATOLL_SHAPE(60, 50), 0},
      {"mab,ban->mn", ATOLL_SHAPE(40, 7, 9), ATOLL_SHAPE(9, 7, 40), 0}, /* summed in different orders */
      {"k,nk->n", ATOLL_SHAPE(500), ATOLL_SHAPE(400, 500), 0},
      {"mkb,nkb->mnb", ATOLL_SHAPE(10, 40, 4), ATOLL_SHAPE(10, 40, 4), 0}}; /* the result's rows are a loop's */
  uint64_t seed = 3;
  (void)state;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    numbers[i] = (float)test_below(&seed, 2000) / 1000 - 1;
  for (size_t k = 0; k < sizeof all / sizeof *all; k++)
    check(&all[k]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(contractions_are_products),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Programs written by hand, and sinks that collect what they compute. */
#ifndef RECURRENT_TEST_H
#define RECURRENT_TEST_H

#include <inttypes.h>
#include <math.h>

#include "atoll/recurrent.h"
#include "unit_check.h"

/* Values in the order in which a sink got them. */
typedef struct test_log {
  int n;
  double v[4096];
} test_log;

static inline double test_element(const atoll_rt_view *x, int64_t i) {
  uint32_t bits;
  float f;
  switch (x->dtype) {
  case ATOLL_BF16:
    bits = (uint32_t)((const uint16_t *)x->data)[i] << 16;
    memcpy(&f, &bits, sizeof f);
    return f;
  case ATOLL_I64:
    return (double)((const int64_t *)x->data)[i];
  case ATOLL_U16:
    return ((const uint16_t *)x->data)[i];
  case ATOLL_U8:
    return ((const uint8_t *)x->data)[i];
  case ATOLL_F32:
    return ((const float *)x->data)[i];
  case ATOLL_F64:
    return ((const double *)x->data)[i];
  case ATOLL_I32:
    return ((const int32_t *)x->data)[i];
  default:
    fail_msg("a sink got a type that tests do not use");
    return 0;
  }
}

static inline atoll_err test_collect(void *user, const int64_t *point, const atoll_rt_view *in,
                                     const atoll_rt_view *out) {
  test_log *log = user;
  int64_t count = 1;
  (void)point;
  (void)out;
  for (int k = 0; k < in->ndim; k++)
    count *= in->shape[k];
  for (int64_t i = 0; i < count; i++) {
    assert_true(log->n < (int)(sizeof log->v / sizeof *log->v));
    log->v[log->n++] = test_element(in, i);
  }
  return ATOLL_OK;
}

/* What is known of a program, as text: owned by the caller. (Inlined, GCC 12 takes the text for its pointer, which ends
 * with the function.) */
static __attribute__((noinline, unused)) char *test_report(const atoll_rec_program *p, const atoll_rec_binding *b,
                                                           int n) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  assert_non_null(f);
  assert_ok(atoll_rec_report(p, b, n, f));
  assert_int_equal(fclose(f), 0);
  return text;
}

/* Graph and schedule alone. */
static __attribute__((noinline, unused)) char *test_print(const atoll_rec_program *p) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  assert_non_null(f);
  atoll_rec_program_print(p, f);
  assert_int_equal(fclose(f), 0);
  return text;
}

static inline atoll_rec *test_context(void) {
  atoll_rec *c = NULL;
  assert_int_equal(atoll_rec_create(7, &c), ATOLL_OK);
  return c;
}

#endif

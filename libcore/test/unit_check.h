/* What unit tests begin with: cmocka, after the headers it needs, and checks of calls that say the message of the one
 * that failed. Tests on several ranks have mpi_check.h. */
#ifndef ATOLL_UNIT_CHECK_H
#define ATOLL_UNIT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "atoll/err.h"

#define assert_ok(call)                                                                                                \
  do {                                                                                                                 \
    atoll_err test_err_ = (call);                                                                                      \
    if (test_err_ != ATOLL_OK)                                                                                         \
      fail_msg("%s: %s: %s", #call, atoll_err_name(test_err_), atoll_err_message());                                   \
  } while (0)

/* The call is refused with this code and a message that has `part` in it. */
#define assert_refused(code, part, call)                                                                               \
  do {                                                                                                                 \
    atoll_err test_err_ = (call);                                                                                      \
    if (test_err_ != (code) || !strstr(atoll_err_message(), (part)))                                                   \
      fail_msg("%s: %s: %s; expected %s with '%s'", #call, atoll_err_name(test_err_), atoll_err_message(),             \
               atoll_err_name(code), (part));                                                                          \
  } while (0)

/* A small pseudo-random stream (splitmix64), so that a printed seed is a case. */
static inline uint64_t test_random(uint64_t *state) {
  *state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}
static inline int test_below(uint64_t *state, int n) { return (int)(test_random(state) % (uint64_t)n); }
static inline double test_real(uint64_t *state) { return (double)(test_random(state) >> 11) / 9007199254740992.0; }

#endif

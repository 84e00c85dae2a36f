/* Promise: a malformed rule is refused with the rule and what was expected; rules count passages and respect the rank.
 */
#include <errno.h>

#include "atoll/fault.h"
#include "unit_check.h"

static void malformed_rules(void **state) {
  (void)state;
  static const struct {
    const char *rule, *said;
  } bad[] = {
      {"boil:write:1", "expected fail, short, kill, stop or nan"},
      {"fail:write:1", "fields"},
      {"fail:write:1:EIO:0:9", "fields"},
      {"fail:write:1:EIO:0:9:9", "too many"},
      {"fail:wriet:1:EIO", "'wriet'"},
      {"fail:write:0:EIO", "passage '0'"},
      {"fail:write:x:EIO", "passage 'x'"},
      {"fail:write:1:EWHAT", "'EWHAT'"},
      {"fail:write:1:EIO:-1", "rank '-1'"},
      {"short:fsync:1", "expected write"},
      {"short:write:*", "passage '*'"},
      {"kill:", "a name"},
      {"kill", "fields"},
      {"nan:loss", "fields"},
      {"fail:open:1:EIO;kill:p:1z", "kill:p:1z"},
      {"fail:write:99999999999999999999:EIO", "passage"},
  };
  assert_int_equal(atoll_fault_set("fail:open:1:EIO", 0), ATOLL_OK);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    for (int rank = 0; rank < 2; rank++) /* a rule for another rank is checked too */
      assert_int_equal(atoll_fault_set(bad[i].rule, rank), ATOLL_USAGE);
    if (!strstr(atoll_err_message(), bad[i].said))
      fail_msg("'%s' gives '%s', which lacks '%s'", bad[i].rule, atoll_err_message(), bad[i].said);
  }
  /* A refused text leaves the rules as they were. */
  assert_int_equal(atoll_fault_call("open", NULL), EIO);
  assert_int_equal(atoll_fault_set("", 0), ATOLL_OK);
  assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
  assert_int_equal(atoll_fault_set(";fail:open:1:EIO;;", 0), ATOLL_OK);
}

static void passages_are_counted(void **state) {
  (void)state;
  int half = 9;
  assert_int_equal(atoll_fault_set("fail:write:2:EROFS;fail:fsync:*:EDQUOT;short:write:4;fail:*:7:EPERM", 0), ATOLL_OK);
  assert_int_equal(atoll_fault_call("write", &half), 0);
  assert_int_equal(half, 0);
  assert_int_equal(atoll_fault_call("write", &half), EROFS);
  assert_int_equal(half, 0);
  assert_int_equal(atoll_fault_call("write", &half), 0);
  assert_int_equal(atoll_fault_call("write", &half), ENOSPC);
  assert_int_equal(half, 1);
  assert_int_equal(atoll_fault_call("fsync", NULL), EDQUOT);
  assert_int_equal(atoll_fault_call("fsync", NULL), EDQUOT);
  assert_int_equal(atoll_fault_call("stat", NULL), EPERM); /* the seventh of any kind */
  assert_int_equal(atoll_fault_call("stat", NULL), 0);
}

static void ranks_are_respected(void **state) {
  (void)state;
  const char *rules = "fail:open:1:EIO:3;nan:loss:2:3;nan:norm:1";
  assert_int_equal(atoll_fault_set(rules, 2), ATOLL_OK);
  assert_int_equal(atoll_fault_call("open", NULL), 0);
  assert_int_equal(atoll_fault_hit("loss"), 0);
  assert_int_equal(atoll_fault_hit("loss"), 0);
  assert_int_equal(atoll_fault_hit("norm"), 1);
  assert_int_equal(atoll_fault_set(rules, 3), ATOLL_OK);
  assert_int_equal(atoll_fault_call("open", NULL), EIO);
  assert_int_equal(atoll_fault_hit("loss"), 0);
  assert_int_equal(atoll_fault_hit("loss"), 1);
  assert_int_equal(atoll_fault_hit("loss"), 0);
  assert_int_equal(atoll_fault_hit("norm"), 1);
}

static void environment_is_read(void **state) {
  (void)state;
  assert_int_equal(setenv("ATOLL_FAULT", "nan:loss:1", 1), 0);
  assert_int_equal(atoll_fault_init(0), ATOLL_OK);
  assert_int_equal(atoll_fault_hit("loss"), 1);
  assert_int_equal(setenv("ATOLL_FAULT", "nonsense", 1), 0);
  assert_int_equal(atoll_fault_init(0), ATOLL_USAGE);
  assert_int_equal(unsetenv("ATOLL_FAULT"), 0);
  assert_int_equal(atoll_fault_init(0), ATOLL_OK);
  assert_int_equal(atoll_fault_hit("loss"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(malformed_rules), cmocka_unit_test(passages_are_counted),
                                     cmocka_unit_test(ranks_are_respected), cmocka_unit_test(environment_is_read)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

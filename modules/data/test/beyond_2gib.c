/* A token file above 2 GiB is read at 64-bit offsets: a sparse file carries marks before and behind the limits of int32
 * bytes and tokens. */
#include "atoll/data.h"

#include <fcntl.h>
#include <unistd.h>

#include "unit_check.h"

static void tokens_behind_the_limit_are_found(void **state) {
  (void)state;
  const char *path = "beyond-2gib.bin";
  const int64_t tokens = (INT64_C(1) << 31) + 4097, seq = 4096;
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  if (ftruncate(fd, 1024 + 2 * tokens) != 0) {
    printf("SKIP: the file system has no sparse files of 4 GiB\n");
    close(fd);
    unlink(path);
    skip();
  }
  int32_t header[3] = {20240520, 1, (int32_t)(uint32_t)tokens};
  assert_int_equal(pwrite(fd, header, sizeof header, 0), sizeof header);
  const int64_t mark[] = {5, (INT64_C(1) << 30) + 7, (INT64_C(1) << 31) + 9};
  for (int i = 0; i < 3; i++) {
    uint16_t v = (uint16_t)(100 + i);
    assert_int_equal(pwrite(fd, &v, 2, 1024 + 2 * mark[i]), 2);
  }
  close(fd);

  atoll_data_params p;
  atoll_data_params_init(&p);
  snprintf(p.train, sizeof p.train, "%s", path);
  p.validation_share = 0;
  atoll_data *d = NULL;
  atoll_err err = atoll_data_open(&p, NULL, seq, 50257, &d, NULL);
  unlink(path);
  assert_int_equal(err, ATOLL_OK);
  assert_int_equal(atoll_data_tokens(d), tokens);
  assert_int_equal(atoll_data_windows(d), (tokens - 1) / seq);
  int32_t x[4096], y[4096];
  for (int i = 0; i < 3; i++) {
    assert_int_equal(atoll_data_windows_at(d, mark[i] / seq, 1, &(atoll_batch){.tokens = x, .targets = y}), ATOLL_OK);
    assert_int_equal(x[mark[i] % seq], 100 + i);
    assert_int_equal(y[mark[i] % seq - 1], 100 + i);
  }
  atoll_data_close(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_behind_the_limit_are_found)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Data files that are missing, empty, truncated, of wrong magic or version, too short, or hold tokens beyond the
 * vocabulary are refused by name, with what was found and what was expected. */
#include "atoll/data.h"

#include <sys/stat.h>
#include <unistd.h>

#include "unit_check.h"

static void write_file(const char *path, const void *data, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

static atoll_err open_one(const char *path, const char *format, int64_t seq, int64_t vocab, atoll_data **d) {
  atoll_data_params p;
  atoll_data_params_init(&p);
  snprintf(p.train, sizeof p.train, "%s", path);
  p.validation_share = 0;
  p.format = !strcmp(format, "auto") ? 0 : !strcmp(format, "bytes") ? 1 : 2;
  *d = NULL;
  return atoll_data_open(&p, NULL, seq, vocab, d, NULL);
}

static void expect(atoll_err got, atoll_err want, const char *fragment) {
  if (got != want || !strstr(atoll_err_message(), fragment))
    fail_msg("got %s '%s', wanted %s with '%s'", atoll_err_name(got), atoll_err_message(), atoll_err_name(want),
             fragment);
}

static void each_defect_is_named(void **state) {
  (void)state;
  atoll_data *d;
  struct {
    int32_t header[256];
    uint16_t token[100];
  } f = {{20240520, 1, 100}, {0}};
  unsigned char longer[sizeof f + 1] = {0};
  for (int i = 0; i < 100; i++)
    f.token[i] = (uint16_t)i;

  expect(open_one("bad-absent.bin", "auto", 8, 256, &d), ATOLL_NOINPUT, "bad-absent.bin: No such file");
  expect(open_one(".", "auto", 8, 256, &d), ATOLL_NOINPUT, "not a regular file");
  assert_int_equal(mkfifo("bad-fifo", 0600), 0); /* nobody will ever write to it */
  expect(open_one("bad-fifo", "auto", 8, 256, &d), ATOLL_NOINPUT, "bad-fifo: not a regular file");
  unlink("bad-fifo");
  write_file("bad-empty.txt", "", 0);
  expect(open_one("bad-empty.txt", "auto", 8, 256, &d), ATOLL_CORRUPT, "empty");
  write_file("bad-short.bin", &f, 100);
  expect(open_one("bad-short.bin", "auto", 8, 256, &d), ATOLL_CORRUPT, "100 bytes, a header alone has 1024");
  write_file("bad-cut.bin", &f, sizeof f - 10);
  expect(open_one("bad-cut.bin", "auto", 8, 256, &d), ATOLL_CORRUPT,
         "header says 100 tokens (1224 bytes), file has 1214 bytes");
  write_file("bad-odd.bin", &f, sizeof f - 1);
  expect(open_one("bad-odd.bin", "auto", 8, 256, &d), ATOLL_CORRUPT, "truncated");
  memcpy(longer, &f, sizeof f); /* half a token more: the count of whole ones is right */
  write_file("bad-odd.bin", longer, sizeof longer);
  expect(open_one("bad-odd.bin", "auto", 8, 256, &d), ATOLL_CORRUPT, "overlong");
  f.header[0] = 20240521;
  write_file("bad-magic.bin", &f, sizeof f);
  expect(open_one("bad-magic.bin", "auto", 8, 256, &d), ATOLL_CORRUPT, "magic 20240521, expected 20240520");
  write_file("bad-magic.txt", &f, sizeof f);
  expect(open_one("bad-magic.txt", "llmc", 8, 256, &d), ATOLL_CORRUPT, "magic 20240521");
  f.header[0] = 20240520;
  f.header[1] = 7;
  write_file("bad-version.bin", &f, sizeof f);
  expect(open_one("bad-version.bin", "auto", 8, 256, &d), ATOLL_CORRUPT, "version 7, expected 1");
  f.header[1] = 1;
  write_file("bad-few.bin", &f, sizeof f);
  expect(open_one("bad-few.bin", "auto", 100, 256, &d), ATOLL_USAGE, "needs 101");
  expect(open_one("", "auto", 8, 256, &d), ATOLL_USAGE, "data.train");
  unlink("bad-empty.txt"), unlink("bad-short.bin"), unlink("bad-cut.bin"), unlink("bad-odd.bin"),
      unlink("bad-magic.bin");
  unlink("bad-magic.txt"), unlink("bad-version.bin");

  /* A window wants seq + 1 tokens, so 2 seq of them give one. */
  assert_int_equal(open_one("bad-few.bin", "auto", 50, 256, &d), ATOLL_OK);
  assert_int_equal(atoll_data_windows(d), 1);
  atoll_data_close(&d);
  assert_int_equal(open_one("bad-few.bin", "auto", 99, 256, &d), ATOLL_OK); /* exactly seq + 1 */
  assert_int_equal(atoll_data_windows(d), 1);
  atoll_data_close(&d);

  int32_t x[8], y[8];
  assert_int_equal(open_one("bad-few.bin", "auto", 8, 50, &d), ATOLL_OK);
  assert_int_equal(atoll_data_windows_at(d, 0, 1, &(atoll_batch){.tokens = x, .targets = y}), ATOLL_OK);
  expect(atoll_data_windows_at(d, 6, 1, &(atoll_batch){.tokens = x, .targets = y}), ATOLL_CORRUPT,
         "token 50 is 50, the vocabulary ends at 49");
  atoll_data_close(&d);
  unlink("bad-few.bin");
}

/* Touching the mapping of a file that lost its end would end the process by SIGBUS, which names nothing. */
static void a_file_cut_in_use_is_named(void **state) {
  (void)state;
  static unsigned char text[3 * 4096]; /* beyond the page that stays */
  atoll_data *d;
  int32_t x[8], y[8];
  write_file("bad-shrinks.txt", text, sizeof text);
  assert_int_equal(open_one("bad-shrinks.txt", "bytes", 8, 256, &d), ATOLL_OK);
  assert_int_equal(atoll_data_batch(d, 1, 0, 1, 0, 1, &(atoll_batch){.tokens = x, .targets = y}), ATOLL_OK);
  assert_int_equal(truncate("bad-shrinks.txt", 100), 0);
  for (int64_t step = 0; step < 20; step++)
    expect(atoll_data_batch(d, 1, step, 1, 0, 1, &(atoll_batch){.tokens = x, .targets = y}), ATOLL_CORRUPT,
           "bad-shrinks.txt was cut from 12288 to 100 bytes");
  expect(atoll_data_windows_at(d, atoll_data_windows(d) - 1, 1, &(atoll_batch){.tokens = x, .targets = y}),
         ATOLL_CORRUPT, "bad-shrinks.txt was cut");
  write_file("bad-shrinks.txt", text, sizeof text); /* the same inode, longer again */
  assert_int_equal(atoll_data_batch(d, 1, 0, 1, 0, 1, &(atoll_batch){.tokens = x, .targets = y}), ATOLL_OK);
  atoll_data_close(&d);
  unlink("bad-shrinks.txt");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_defect_is_named),
                                     cmocka_unit_test(a_file_cut_in_use_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

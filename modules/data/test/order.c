/* Sample order is a pure function of seed, step and sample: batches do not depend on how a step is cut, every epoch
 * visits each window once, and text and token files of the same content give the same samples. */
#include "atoll/data.h"

#include <unistd.h>

#include "unit_check.h"

enum { SEQ = 7, WINDOWS = 30, TOKENS = SEQ * WINDOWS + 1 };

static char text_path[] = "order-text-XXXXXX", bin_path[64];

static int setup(void **state) {
  (void)state;
  int fd = mkstemp(text_path);
  FILE *t = fdopen(fd, "wb");
  snprintf(bin_path, sizeof bin_path, "%s.bin", text_path);
  FILE *b = fopen(bin_path, "wb");
  int32_t header[256] = {20240520, 1, TOKENS};
  fwrite(header, sizeof header, 1, b);
  for (int i = 0; i < TOKENS; i++) {
    unsigned char c = (unsigned char)(i * 31 % 251);
    uint16_t w = c;
    fputc(c, t);
    fwrite(&w, 2, 1, b);
  }
  return fclose(t) | fclose(b);
}

static int teardown(void **state) {
  (void)state;
  return unlink(text_path) | unlink(bin_path);
}

static atoll_data *open_all(const char *path, int64_t vocab) {
  atoll_data_params p;
  atoll_data_params_init(&p);
  snprintf(p.train, sizeof p.train, "%s", path);
  p.validation_share = 0;
  atoll_data *d = NULL;
  assert_int_equal(atoll_data_open(&p, NULL, SEQ, vocab, &d, NULL), ATOLL_OK);
  return d;
}

static void batches_do_not_depend_on_the_cut(void **state) {
  (void)state;
  atoll_data *d = open_all(text_path, 256);
  int32_t whole[12 * SEQ], wt[12 * SEQ], part[5 * SEQ], pt[5 * SEQ];
  for (int64_t step = 0; step < 9; step++) {
    assert_int_equal(atoll_data_batch(d, 3, step, 12, 0, 12, &(atoll_batch){.tokens = whole, .targets = wt}), ATOLL_OK);
    assert_int_equal(atoll_data_batch(d, 3, step, 12, 7, 5, &(atoll_batch){.tokens = part, .targets = pt}), ATOLL_OK);
    assert_memory_equal(part, whole + 7 * SEQ, sizeof part);
    assert_memory_equal(pt, wt + 7 * SEQ, sizeof pt);
    for (int b = 0; b < 12; b++)
      assert_memory_equal(whole + b * SEQ + 1, wt + b * SEQ,
                          (SEQ - 1) * sizeof *whole); /* targets are the next tokens */
  }
  atoll_data_close(&d);
}

static void an_epoch_visits_each_window_once(void **state) {
  (void)state;
  atoll_data *d = open_all(text_path, 256);
  assert_int_equal(atoll_data_windows(d), WINDOWS);
  int32_t x[SEQ], y[SEQ], w[SEQ], wy[SEQ];
  int order[2][WINDOWS];
  for (int epoch = 0; epoch < 2; epoch++) {
    int seen[WINDOWS] = {0};
    for (int i = 0; i < WINDOWS; i++) {
      assert_int_equal(atoll_data_batch(d, 11, epoch * WINDOWS + i, 1, 0, 1, &(atoll_batch){.tokens = x, .targets = y}),
                       ATOLL_OK);
      int which = -1;
      for (int k = 0; k < WINDOWS; k++) {
        assert_int_equal(atoll_data_windows_at(d, k, 1, &(atoll_batch){.tokens = w, .targets = wy}), ATOLL_OK);
        if (!memcmp(w, x, sizeof w))
          which = k;
      }
      assert_in_range(which, 0, WINDOWS - 1);
      seen[which]++;
      order[epoch][i] = which;
    }
    for (int k = 0; k < WINDOWS; k++)
      assert_int_equal(seen[k], 1);
  }
  assert_memory_not_equal(order[0], order[1], sizeof order[0]); /* epochs differ in order */
  atoll_data_close(&d);
}

static void text_and_token_files_agree(void **state) {
  (void)state;
  atoll_data *t = open_all(text_path, 256), *b = open_all(bin_path, 256);
  int32_t x[4 * SEQ], y[4 * SEQ], u[4 * SEQ], v[4 * SEQ];
  assert_int_equal(atoll_data_tokens(t), atoll_data_tokens(b));
  for (int step = 0; step < 5; step++) {
    assert_int_equal(atoll_data_batch(t, 1, step, 4, 0, 4, &(atoll_batch){.tokens = x, .targets = y}), ATOLL_OK);
    assert_int_equal(atoll_data_batch(b, 1, step, 4, 0, 4, &(atoll_batch){.tokens = u, .targets = v}), ATOLL_OK);
    assert_memory_equal(x, u, sizeof x);
    assert_memory_equal(y, v, sizeof y);
  }
  atoll_data_close(&t);
  atoll_data_close(&b);
}

static void the_held_out_share_is_disjoint(void **state) {
  (void)state;
  atoll_data_params p;
  atoll_data_params_init(&p);
  snprintf(p.train, sizeof p.train, "%s", text_path);
  p.validation_share = 0.25;
  atoll_data *t = NULL, *v = NULL;
  assert_int_equal(atoll_data_open(&p, NULL, SEQ, 256, &t, &v), ATOLL_OK);
  assert_int_equal(atoll_data_tokens(t) + atoll_data_tokens(v), TOKENS);
  assert_int_equal(atoll_data_tokens(v), TOKENS / 4);
  int32_t x[SEQ], y[SEQ];
  assert_int_equal(atoll_data_windows_at(v, 0, 1, &(atoll_batch){.tokens = x, .targets = y}), ATOLL_OK);
  assert_int_equal(x[0], (TOKENS - TOKENS / 4) * 31 % 251);
  /* Beyond the end: no loss. */
  assert_int_equal(atoll_data_windows_at(v, atoll_data_windows(v), 1, &(atoll_batch){.tokens = x, .targets = y}),
                   ATOLL_OK);
  for (int i = 0; i < SEQ; i++)
    assert_int_equal(y[i], -1);
  atoll_data_close(&t);
  atoll_data_close(&v);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_do_not_depend_on_the_cut),
      cmocka_unit_test(an_epoch_visits_each_window_once),
      cmocka_unit_test(text_and_token_files_agree),
      cmocka_unit_test(the_held_out_share_is_disjoint),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}

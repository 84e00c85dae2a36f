/* A plan survives YAML and HDF5: the same bytes when saved again, the same digest; unknown fields, other versions and
 * wrong types are refused with file, line and what was expected. */
#include "plan_test.h"

#include "plan_made.h"

static void round_trip(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  char *a, *b;
  size_t na, nb;
  atoll_plan *again = NULL;
  assert_ok(atoll_plan_to_text(x.plan, &a, &na));
  assert_ok(atoll_plan_from_text("a.yaml", a, na, &again));
  assert_ok(atoll_plan_to_text(again, &b, &nb));
  assert_int_equal(na, nb);
  assert_memory_equal(a, b, na);
  assert_true(atoll_digest_equal(atoll_plan_digest(x.plan), atoll_plan_digest(again)));
  atoll_plan_destroy(&again);
  free(b);

  /* Predictions are not part of what is executed; everything else is. */
  x.plan->step_seconds *= 2;
  x.plan->pipeline[0].stage[0].replica[0].bytes_peak++;
  assert_ok(atoll_plan_from_text("a.yaml", a, na, &again));
  assert_true(atoll_digest_equal(atoll_plan_digest(x.plan), atoll_plan_digest(again)));
  x.plan->pipeline[0].stage[0].range[0].policy ^= 1;
  assert_false(atoll_digest_equal(atoll_plan_digest(x.plan), atoll_plan_digest(again)));
  x.plan->pipeline[0].stage[0].range[0].policy ^= 1;
  x.plan->pipeline[0].stage[0].range[0].recompute = 1;
  assert_false(atoll_digest_equal(atoll_plan_digest(x.plan), atoll_plan_digest(again)));
  x.plan->pipeline[0].stage[0].range[0].recompute = 0;
  assert_true(atoll_digest_equal(atoll_plan_digest(x.plan), atoll_plan_digest(again)));
  x.plan->sum_leaves--;
  assert_false(atoll_digest_equal(atoll_plan_digest(x.plan), atoll_plan_digest(again)));
  atoll_plan_destroy(&again);
  free(a);
  made_end(&x);
}

static void in_hdf5(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  atoll_store *s = NULL;
  void *image;
  size_t n;
  atoll_plan *again = NULL;
  assert_ok(atoll_store_open("plan.h5", ATOLL_STORE_IMAGE, &s));
  assert_ok(atoll_plan_to_store(x.plan, s, "/plan"));
  assert_ok(atoll_store_image(s, &image, &n));
  assert_ok(atoll_store_close(&s));
  assert_ok(atoll_store_open_bytes("plan.h5", image, n, &s));
  assert_ok(atoll_plan_from_store(s, "/plan", &again));
  assert_true(atoll_digest_equal(atoll_plan_digest(x.plan), atoll_plan_digest(again)));
  int64_t first[8], count = x.plan->world - x.plan->idle_count;
  assert_ok(atoll_store_read(s, "/plan/ranks/first_layer", ATOLL_I64, NULL, &count, first));
  assert_int_equal(first[0], 0);
  assert_ok(atoll_store_close(&s));
  free(image);
  atoll_plan_destroy(&again);
  made_end(&x);
}

/* `from` replaced once by `to` in the plan's text. */
static atoll_err edited(const made *x, const char *from, const char *to) {
  char *a;
  size_t n;
  atoll_plan *p = NULL;
  assert_ok(atoll_plan_to_text(x->plan, &a, &n));
  char *at = strstr(a, from);
  if (!at)
    fail_msg("'%s' is not in the plan", from);
  size_t head = (size_t)(at - a), m = n - strlen(from) + strlen(to);
  char *b = malloc(m + 1);
  memcpy(b, a, head);
  memcpy(b + head, to, strlen(to));
  strcpy(b + head + strlen(to), at + strlen(from));
  atoll_err err = atoll_plan_from_text("edited.yaml", b, m, &p);
  free(a);
  free(b);
  atoll_plan_destroy(&p);
  return err;
}

static void refuses(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  assert_ok(edited(&x, "world:", "world:"));
  assert_ok(edited(&x, "recompute: 0\n", "\n")); /* as plans were before there was this field */
  assert_refused(ATOLL_USAGE, "recompute", edited(&x, "recompute: 0", "recompute: -1"));
  assert_refused(ATOLL_CORRUPT, "recompute is 99", edited(&x, "recompute: 0", "recompute: 99"));
  assert_refused(ATOLL_USAGE, "edited.yaml:2: plan version 2", edited(&x, "version: 1", "version: 2"));
  assert_refused(ATOLL_USAGE, "colour", edited(&x, "world:", "colour: red\nworld:"));
  assert_refused(ATOLL_USAGE, "offload_hopes",
                 edited(&x, "offload_weights: 0.0", "offload_weights: 0.0\n            offload_hopes: 0.5"));
  assert_refused(ATOLL_USAGE, "policy", edited(&x, "policy: ", "policy: x"));
  assert_refused(ATOLL_USAGE, "tensor", edited(&x, "tensor: 1", "tensor: many"));
  assert_refused(ATOLL_USAGE, "islands", edited(&x, "islands: ", "islands: 12 # "));
  assert_refused(ATOLL_USAGE, "tied", edited(&x, "\ntied:", "\ntied_up:"));
  assert_refused(ATOLL_CORRUPT, "rank", edited(&x, "ranks: [0]", "ranks: [1]"));
  assert_refused(ATOLL_USAGE, "devices", edited(&x, "devices: [0]", "devices: [0, 1]"));
  assert_refused(ATOLL_USAGE, "micro_batches", edited(&x, "micro_batches:", "micro_batches: 99999999999999999999 #"));
  made_end(&x);
}

/* Nothing crashes on a damaged file; what is accepted is a well-formed plan. */
static void mutations(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  char *a;
  size_t n;
  int accepted = 0;
  uint64_t r = 20261129;
  print_message("seed %" PRIu64 "\n", r);
  assert_ok(atoll_plan_to_text(x.plan, &a, &n));
  for (int i = 0; i < 4000; i++) {
    char *b = malloc(n + 64);
    memcpy(b, a, n + 1);
    size_t m = n;
    for (int k = 1 + (int)(test_random(&r) % 3); k > 0; k--) {
      size_t at = test_random(&r) % m;
      static const char *const words[] = {"-1", "0",   "999999999", "[",  "]",  "{", "\n",
                                          ": ", "nan", "1e400",     "&a", "*a", "- "};
      switch (test_random(&r) % 4) {
      case 0:
        b[at] = (char)(test_random(&r) % 256);
        break;
      case 1:
        b[at] = (char)('0' + test_random(&r) % 10);
        break;
      case 2:
        m = test_random(&r) % 50 ? m : at + 1;
        break;
      default: {
        const char *w = words[test_random(&r) % 13];
        size_t len = strlen(w) < m - at ? strlen(w) : m - at;
        memcpy(b + at, w, len);
      }
      }
    }
    atoll_plan *p = NULL;
    if (atoll_plan_from_text("mutated.yaml", b, m, &p) == ATOLL_OK) {
      accepted++;
      assert_ok(atoll_plan_check(p, NULL));
      (void)atoll_plan_check(p, x.model);
      (void)atoll_plan_digest(p);
      FILE *f = fopen("/dev/null", "w");
      atoll_plan_print(p, &x.cluster.islands, f);
      fclose(f);
      for (int rank = 0; rank < p->world && rank < 64; rank++)
        (void)atoll_plan_find(p, rank);
    }
    atoll_plan_destroy(&p);
    free(b);
  }
  free(a);
  print_message("%d of 4000 accepted\n", accepted);
  made_end(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(in_hdf5), cmocka_unit_test(refuses),
                                     cmocka_unit_test(mutations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Recorded plans against our model: a small machine by hand, what a file may not say, and the published cases where
 * they are: bytes within two per cent of what was predicted and allocated, every recorded plan fits, and ours is not
 * slower. */
#include "atoll/facts.h"
#include "atoll/file.h"
#include "plan_test.h"

static const char *const small =
    "{\"name\": \"small\", \"model\": {\"hidden\": 64, \"mlp_hidden\": 256, \"layers\": 4, \"heads\": 4, \"sequence\": "
    "32,\n \"vocabulary\": 512, \"flash_attention\": true}, \"global_batch\": 8,\n"
    "\"machines\": {\"nodes\": 1, \"gpus_per_node\": 2, \"gpu\": {\"type\": \"L4\", \"memory_capacity_gb\": 0.01,\n"
    "\"gpu_to_gpu\": {\"by_nodes_and_gpus_per_node\": {\"1x2\": [4.0, 0.0001]}},\n"
    "\"host_to_gpu\": {\"k_gb_per_s\": 5.0, \"b_s\": 0.0}, \"gpu_to_host\": {\"k_gb_per_s\": 5.0, \"b_s\": 0.0},\n"
    "\"interference_parameters\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}},\n"
    "\"recorded\": [{\"plan_of\": \"by hand\", \"gradient_accumulation\": 2, \"stages\": [{\"layers\": 4, \"nodes\": "
    "1, "
    "\"gpus_per_node\": 2,\n \"micro_batch\": 2, \"dp\": 2, \"tp\": 1, \"checkpointed_layers\": 1,\n"
    "\"zero_weights_gradients_optimizer\": [0, 0, 1], \"offload_weights_gradients_optimizer_activations\": [0, 0, 0.5, "
    "0]}]}]}\n";

/* `from` replaced once by `to`. */
static atoll_err load(const char *from, const char *to, atoll_facts **out) {
  char text[4096];
  const char *at = from ? strstr(small, from) : small;
  assert_non_null(at);
  snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small), small, to ? to : "", at + (from ? strlen(from) : 0));
  assert_ok(atoll_file_replace("facts.json", text, strlen(text)));
  return atoll_facts_load("facts.json", out);
}

static void by_hand(void **state) {
  (void)state;
  atoll_facts *f = NULL;
  assert_ok(load(NULL, NULL, &f));
  assert_int_equal(f->recorded, 1);
  assert_int_equal(f->candidates, 0); /* no times: no search */
  const atoll_facts_stage *s = &f->plan[0].stage[0];
  const double h = 64, block = 12 * h * h + 4 * h, edges = (512 + 32) * h + 514 * h, unit = 2 * 2 * 32 * h;
  /* W and G 2 bytes each, of the optimizer's 12 half is another rank's and half of the rest is in the host. */
  double each = 2 + 2 + 3, all = unit * (8 + 2 * 256 / h), logits = 2 * 2 * 32 * 512;
  double states = each * (4 * block + edges), saved = unit + 3 * all;
  double forward = states - 3 * block + 6 * block + saved + unit + 2 * logits;
  double backward = states + saved + unit + 2 * logits + unit + 2 * 512 * h;
  assert_true(fabs(s->peak[0] * 1048576 - forward) < 1);
  assert_true(fabs(s->peak[1] * 1048576 - backward) < 1);
  assert_true(fabs(s->fragmentation - 1.03) < 1e-12);
  assert_true(s->fits == (backward * 1.03 <= 0.01 * 1073741824));
  assert_true(f->plan[0].seconds > 0);
  atoll_facts_destroy(&f);
  assert_ok(load("0.01", "0.002", &f));
  assert_false(f->plan[0].stage[0].fits);
  int failures;
  FILE *null = fopen("/dev/null", "w");
  atoll_facts_print(f, null, &failures);
  assert_int_equal(failures, 1);
  atoll_facts_destroy(&f);
  /* With a time the tuner is asked, and what it finds fits and is not slower. */
  assert_ok(load("\"gradient_acc", "\"measured_iteration_time_s\": 0.5, \"gradient_acc", &f));
  assert_true(f->candidates > 0 && f->tuned.stages >= 1);
  for (int i = 0; i < f->tuned.stages; i++)
    assert_true(f->tuned.stage[i].fits);
  assert_true(f->tuned.seconds <= f->plan[0].seconds);
  atoll_facts_print(f, null, &failures);
  assert_int_equal(failures, 0);
  fclose(null);
  atoll_facts_destroy(&f);
}

static void refuses(void **state) {
  (void)state;
  atoll_facts *f = NULL;
  assert_refused(ATOLL_NOINPUT, "absent.json", atoll_facts_load("absent.json", &f));
  assert_refused(ATOLL_USAGE, "facts.json:1", load("{\"name\"", "\"name\"", &f));
  assert_refused(ATOLL_USAGE, "hidden", load("\"hidden\": 64", "\"hidden\": 0", &f));
  assert_refused(ATOLL_USAGE, "flash_attention", load("true", "1", &f));
  assert_refused(ATOLL_USAGE, "gpu.type", load("L4", "L5", &f));
  assert_refused(ATOLL_USAGE, "memory_capacity_gb", load("0.01", "-1", &f));
  assert_refused(ATOLL_USAGE, "by_nodes_and_gpus_per_node", load("1x2", "two", &f));
  assert_refused(ATOLL_USAGE, "a bandwidth above 0", load("4.0", "0.0", &f));
  assert_refused(ATOLL_USAGE, "a list of 28 numbers", load("[1,1,", "[1,", &f));
  assert_refused(ATOLL_USAGE, "interference factor 0 is 0", load("[1,1,", "[0,1,", &f));
  assert_refused(ATOLL_USAGE, "host_to_gpu", load("5.0", "0", &f));
  assert_refused(ATOLL_USAGE, "add up", load("\"layers\": 4, \"nodes\"", "\"layers\": 3, \"nodes\"", &f));
  assert_refused(ATOLL_USAGE, "dp x tp", load("\"tp\": 1", "\"tp\": 2", &f));
  assert_refused(ATOLL_USAGE, "global_batch", load("\"micro_batch\": 2", "\"micro_batch\": 4", &f));
  assert_refused(ATOLL_USAGE, "checkpointed_layers", load("layers\": 1", "layers\": 5", &f));
  assert_refused(ATOLL_USAGE, "eighths", load("0.5", "0.3", &f));
  assert_null(f);
}

static void published(void **state) {
  (void)state;
  static const char *const name[] = {"mist-gpt-1.3b-2xl4.json", "mist-gpt-13b-16xl4.json"};
  const char *shared = getenv("ATOLL_SHARED");
  for (int i = 0; i < 2; i++) {
    char path[512];
    int failures;
    atoll_facts *f = NULL;
    snprintf(path, sizeof path, "%s/judge/cases/%s", shared ? shared : ATOLL_SOURCE_DIR "/../shared", name[i]);
    if (!atoll_file_exists(path)) {
      print_message("no %s; set ATOLL_SHARED\n", path);
      skip();
    }
    assert_ok(atoll_facts_load(path, &f));
    atoll_facts_print(f, stdout, &failures);
    assert_int_equal(failures, 0);
    if (i == 0) {
      const atoll_facts_stage *s = &f->plan[0].stage[0];
      assert_true(fabs(s->peak[0] / 19255.25 - 1) < 0.02 && fabs(s->peak[1] / 19503.125 - 1) < 0.02);
      assert_true(f->tuned.seconds <= f->plan[1].seconds);
    }
    atoll_facts_destroy(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(refuses), cmocka_unit_test(published)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

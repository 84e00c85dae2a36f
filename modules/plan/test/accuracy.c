/* Constants are found again in runs made with them, one bad run does not move them, figures come from the other set,
 * and what is no set of runs is refused by name. */
#include <unistd.h>

#include "atoll/accuracy.h"
#include "atoll/file.h"
#include "plan_test.h"

#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))
#define GIVES(code, part, call)                                                                                        \
  do {                                                                                                                 \
    assert_int_equal((call), (code));                                                                                  \
    if (!strstr(atoll_err_message(), (part)))                                                                          \
      fail_msg("'%s' does not say '%s'", atoll_err_message(), (part));                                                 \
  } while (0)

static char folder[64], data[96], sets[96];

static void put(const char *dir, const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

/* Six layers on GPUs that compute one in 0.03 s; 4e6 bytes over a boundary at 1 GB/s are 0.004 s. The model that was
 * profiled had the first, two middle and the last layer: 100 + 2 * 50 + 30 parameters took 0.0023 s to update. */
static void make_data(void) {
  char text[2048];
  strcpy(folder, "/tmp/atoll-accuracy-XXXXXX");
  assert_non_null(mkdtemp(folder));
  snprintf(data, sizeof data, "%s/data", folder);
  snprintf(sets, sizeof sets, "%s/sets", folder);
  snprintf(text, sizeof text, "%s/profiles", data);
  assert_int_equal(atoll_file_mkdirs(text), ATOLL_OK);
  assert_int_equal(atoll_file_mkdirs(sets), ATOLL_OK);
  put(text, "m.json",
      "{\"model\":\"m\",\"layers\":6,\"gpus\":{\"g\":{\"memory_gib\":1,\"price_per_hour\":{},\"seconds\":{\"1\":{\"1\":"
      "{"
      "\"forward\":[0.01,0.01,0.01,0.01,0.01,0.01],\"backward\":[0.02,0.02,0.02,0.02,0.02,0.02],"
      "\"update\":[0.0023,0.0023,0.0023,0.0023,0.0023,0.0023]}}}}},\"values\":{\"1\":{"
      "\"parameters\":[100,50,50,50,50,30],\"output\":[1e6,1e6,1e6,1e6,1e6,1e6],"
      "\"activation\":[2e6,3e6,3e6,3e6,3e6,4e6]}}}");
  put(data, "network.json", "{\"z\":{\"g\":{\"1\":{\"z\":{\"g\":{\"1\":[1.0]}}}}}}");
  put(data, "transfer_price.json", "{\"z\":{\"z\":0}}");
}

typedef struct made_run {
  int G, stages, D; /* micro-batches of a replica; 1 stage, or 2 of three layers */
} made_run;
static const made_run kinds[] = {{4, 1, 1}, {8, 1, 1}, {4, 2, 1}, {16, 2, 1}, {4, 1, 2}, {2, 2, 2}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Worked out by hand from model.c's formulas. Stage sizes: parameters 200 and 130, activations 32e6 and 40e6 bytes. */
static double seconds_of(const made_run *r, double alpha) {
  double share = 0.0023 / 230, whole = 330 * share, half = 200 * share, ring = 2 * (4.0 * 330 / 2) / 1e9,
         half_ring = 2 * (4.0 * 200 / 2) / 1e9;
  if (r->stages == 1)
    return r->G * ((1 + alpha) * 0.18 + 12.0 / 28 * whole) + whole + (r->D > 1 ? ring + 24.0 / 28 * whole : 0);
  double first = (1 + alpha) * 0.09 + 0.008 + 12.0 / 28 * half, last = first - 12.0 / 28 * (200 - 130) * share;
  return (r->G - 1) * first + first + last + half + (r->D > 1 ? half_ring + 24.0 / 28 * half : 0);
}

static double bytes_of(const made_run *r, double psi, double rho) {
  if (r->stages == 1)
    return 20.0 * 330 + 72e6 + psi * 72e6 / 6 + rho;
  double first = 20.0 * 200 + 2 * 32e6 + psi * 32e6 / 3, last = 20.0 * 130 + 40e6 + psi * 40e6 / 3;
  return fmax(first, last) + rho;
}

static char *runs_text(double alpha, double psi, double rho, int bad) {
  char *text = calloc(1, 16384);
  size_t n = 0;
  for (int i = 0; i < KINDS; i++) {
    const made_run *r = &kinds[i];
    char stages[512];
    if (r->stages == 1)
      snprintf(stages, sizeof stages,
               "{\"layers\":[0,6],\"replicas\":[{\"gpu\":\"g\",\"zone\":\"z\",\"tp\":1,\"count\":%d}]}", r->D);
    else
      snprintf(stages, sizeof stages,
               "{\"layers\":[0,3],\"replicas\":[{\"gpu\":\"g\",\"zone\":\"z\",\"tp\":1,\"count\":%d}]},"
               "{\"layers\":[3,6],\"replicas\":[{\"gpu\":\"g\",\"zone\":\"z\",\"tp\":1,\"count\":%d}]}",
               r->D, r->D);
    n += (size_t)snprintf(text + n, 16384 - n,
                          "%s{\"cluster\":[{\"gpu\":\"g\",\"zone\":\"z\",\"count\":4,\"gpus_per_node\":1}],"
                          "\"plan\":{\"model\":\"m\",\"global_batch\":%d,\"micro_batch\":1,\"stages\":[%s]},"
                          "\"measured_iteration_time_s\":%.12g,\"measured_peak_memory_bytes\":%.12g}",
                          i ? ",\n" : "[", r->G * r->D, stages, (i == bad ? 0.8 : 1) * seconds_of(r, alpha),
                          (i == bad ? 0.7 : 1) * bytes_of(r, psi, rho));
  }
  strcat(text, "]\n");
  return text;
}

static void constants_are_found_again(void **state) {
  (void)state;
  char *same = runs_text(0.06, 2.5, 5e6, -1), *other = runs_text(0.11, 1.5, 7e6, 2), *json = NULL;
  put(sets, "a.json", same);
  put(sets, "b.json", other);
  put(sets, "notes.txt", "not a set");
  atoll_accuracy *a = NULL;
  assert_int_equal(atoll_accuracy_create(sets, data, &a), ATOLL_OK);
  assert_int_equal(atoll_accuracy_sets(a), 2);
  assert_string_equal(atoll_accuracy_set_name(a, 1), "b");
  const char *name, *unit;
  /* Exact data give exact constants; a bad run among six moves them by about the weight of one per cent. */
  assert_near(atoll_accuracy_constant(a, ATOLL_ACCURACY_TIME, 0, 0, &name, &unit), 0.06, 1e-8);
  assert_near(atoll_accuracy_constant(a, ATOLL_ACCURACY_TIME, 1, 0, &name, &unit), 0.11, 0.005);
  assert_near(atoll_accuracy_constant(a, ATOLL_ACCURACY_MEMORY, 0, 0, &name, &unit), 2.5, 1e-6);
  assert_near(atoll_accuracy_constant(a, ATOLL_ACCURACY_MEMORY, 0, 1, &name, &unit), 5e6, 10);
  assert_string_equal(unit, "bytes");
  atoll_accuracy_score s = atoll_accuracy_of(a, ATOLL_ACCURACY_TIME, ATOLL_ACCURACY_LEFT_OUT, 0, 0);
  assert_true(s.runs == KINDS && s.largest < 1e-8);
  /* Without the bad run the others are exact, so it is found a quarter too long. */
  s = atoll_accuracy_of(a, ATOLL_ACCURACY_TIME, ATOLL_ACCURACY_LEFT_OUT, 1, 0);
  assert_int_equal(s.worst, 2);
  assert_near(s.largest, 0.25, 1e-8);
  /* b's runs by a's constants: every good run is a little too short, the bad one a quarter too long. */
  s = atoll_accuracy_of(a, ATOLL_ACCURACY_TIME, ATOLL_ACCURACY_FITTED, 1, 0);
  assert_int_equal(s.worst, 2);
  double bias = 0, mean = 0;
  for (int i = 0; i < KINDS; i++) {
    double e = seconds_of(&kinds[i], 0.06) / ((i == 2 ? 0.8 : 1) * seconds_of(&kinds[i], 0.11)) - 1;
    bias += e / KINDS;
    mean += fabs(e) / KINDS;
  }
  assert_near(s.bias, bias, 1e-8);
  assert_near(s.mean, mean, 1e-8);
  assert_true(s.largest > 0.15);
  s = atoll_accuracy_of(a, ATOLL_ACCURACY_MEMORY, ATOLL_ACCURACY_FITTED, 1, 0);
  assert_near(s.largest, bytes_of(&kinds[2], 2.5, 5e6) / (0.7 * bytes_of(&kinds[2], 1.5, 7e6)) - 1, 1e-6);
  size_t bytes = 0;
  assert_int_equal(atoll_accuracy_text(a, &json, &bytes), ATOLL_OK);
  assert_int_equal(strlen(json), bytes);
  assert_non_null(strstr(json, "\"left_out\""));
  atoll_accuracy_destroy(&a);
  free(json);
  free(other);
  free(same);
}

static void try_set(const char *text, atoll_err code, const char *part) {
  atoll_accuracy *a = NULL;
  char path[128];
  snprintf(path, sizeof path, "%s/b.json", sets);
  unlink(path);
  put(sets, "a.json", text);
  GIVES(code, part, atoll_accuracy_create(sets, data, &a));
  assert_null(a);
}

static void replace(char *text, const char *old, const char *new_text) {
  char *at = strstr(text, old);
  assert_non_null(at);
  char *rest = strdup(at + strlen(old));
  strcpy(at, new_text);
  strcat(at, rest);
  free(rest);
}

static void bad_sets_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *old, *now, *says;
  } wrong[] = {
      {"\"measured_iteration_time_s\":", "\"measured_iteration_time_s\":-", "[0].measured_iteration_time_s is -"},
      {"\"measured_peak_memory_bytes\":", "\"measured_peak_memory_bytes\":\"\",\"x\":", "x"},
      {"\"measured_peak_memory_bytes\"", "\"measured_memory\"", "measured_peak_memory_bytes"},
      {"\"layers\":[0,6]", "\"layers\":[0,5]", "layer"},
      {"\"tp\":1", "\"tp\":8", "degree 8"},
      {"\"count\":4", "\"count\":0", "count"},
      {"\"micro_batch\":1", "\"micro_batch\":3", "micro-batch 3"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char *text = runs_text(0.06, 2.5, 5e6, -1);
    replace(text, wrong[i].old, wrong[i].now);
    try_set(text, ATOLL_USAGE, wrong[i].says);
    free(text);
  }
  char *text = runs_text(0.06, 2.5, 5e6, -1);
  replace(text, "\"model\":\"m\"", "\"model\":\"n\"");
  try_set(text, ATOLL_NOINPUT, "no profile of model 'n'");
  *strstr(text, "},\n") = 0;
  try_set(text, ATOLL_USAGE, "a.json");
  free(text);
  try_set("[]", ATOLL_USAGE, "list of measured runs");
  try_set("{}", ATOLL_USAGE, "list of measured runs");
  /* One run alone cannot tell workspace from reserve. */
  text = runs_text(0.06, 2.5, 5e6, -1);
  char *second = strstr(text, ",\n");
  strcpy(second, "]");
  try_set(text, ATOLL_USAGE, "too few");
  char *twice = calloc(1, 16384);
  text[strlen(text) - 1] = 0;
  snprintf(twice, 16384, "%s,%s,%s]", text, text + 1, text + 1);
  try_set(twice, ATOLL_USAGE, "differ too little");
  free(twice);
  free(text);
  atoll_accuracy *a = NULL;
  GIVES(ATOLL_NOINPUT, "no folder", atoll_accuracy_create("no-such-folder", data, &a));
  GIVES(ATOLL_NOINPUT, "holds no *.json", atoll_accuracy_create(folder, data, &a));
}

static int begin(void **state) {
  (void)state;
  make_data();
  return 0;
}

static int end(void **state) {
  (void)state;
  return atoll_file_remove_tree(folder) == ATOLL_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(constants_are_found_again),
                                     cmocka_unit_test(bad_sets_are_refused)};
  return cmocka_run_group_tests(tests, begin, end);
}

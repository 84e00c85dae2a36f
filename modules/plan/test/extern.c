/* Programs that plan slices: one that is right gives what grid gives; one that dies, hangs, answers late, twice,
 * wrongly or not at all ends in an error that names it, or in grid's plan, marked so. No process is left behind. */
#include "atoll/parallelizer_extern.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan_made.h"

/* A shell program: greets, then `answer` for each request with $id, $need (exact bytes) and $line set. */
static const char *script(const char *greeting, const char *answer) {
  static char path[512];
  snprintf(path, sizeof path, "%s/program.sh", ATOLL_TEST_BINARY_DIR);
  (void)unlink(path);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fprintf(f,
          "#!/bin/sh\nread -r hello\n%s\nwhile read -r line; do\n"
          "id=${line#*\\\"id\\\":}; id=${id%%%%,*}; need=${line#*\\\"exact_bytes\\\":\\{\\\"eager_flash\\\":}; "
          "need=${need%%%%[,\\}]*}\n"
          "%s\ndone\n",
          greeting, answer);
  assert_int_equal(fclose(f), 0);
  assert_int_equal(chmod(path, 0755), 0);
  return path;
}

#define HELLO     "echo '{\"type\":\"hello\",\"protocol\":1,\"name\":\"test\"}'"
#define POINT(kv) "{\\\"policy\\\":\\\"eager_flash\\\",\\\"data\\\":2,\\\"t\\\":0.01,\\\"d\\\":0.5" kv "}"
#define SAY(kv)   "echo \"{\\\"id\\\":$id,\\\"points\\\":[" POINT(kv) "]}\""
#define GOOD      SAY(",\\\"bytes\\\":$need")

static const atoll_slice slice = {1, 4};
static const atoll_island_shape shape = {1, 1, 2};
static const atoll_slice_context context = {.in_flight = 2, .partials = 2, .micro_batch = 2, .micro_batches = 8};

static void begin_with(made *x, const char *program) {
  made_begin(x);
  atoll_plan_params_init(&x->params);
  snprintf(x->params.policy, sizeof x->params.policy, "eager_flash");
  snprintf(x->params.extern_program, sizeof x->params.extern_program, "%s", program);
  x->params.parallelizer = 1;
  x->params.extern_limit = 30;
}

static void no_children(void) {
  errno = 0;
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
}

static atoll_err ask(made *x, atoll_slice_plan *out, int cap, int *n, double *epsilon, int64_t *missing, char *why) {
  void *state = NULL;
  atoll_err err = atoll_parallelizer_extern.begin(&x->problem, &x->params, &state);
  if (err == ATOLL_OK)
    err = atoll_parallelizer_extern.plan(state, slice, shape, &context, out, cap, n, epsilon, missing, why, 256);
  char message[1024];
  snprintf(message, sizeof message, "%s", atoll_err_message());
  atoll_parallelizer_extern.end(&state);
  atoll_err_set_message(message);
  assert_null(state);
  no_children();
  return err;
}

static void one_good_answer(void **state) {
  (void)state;
  made x;
  atoll_slice_plan p[4];
  int n;
  double epsilon;
  int64_t missing;
  begin_with(&x, script(HELLO, GOOD));
  assert_ok(ask(&x, p, 4, &n, &epsilon, &missing, NULL));
  assert_int_equal(n, 1);
  assert_true(p[0].t == 0.01 && p[0].d == 0.5 && epsilon == 0);
  assert_true(fabs(p[0].forward - 0.02 / 3) < 1e-12 && fabs(p[0].backward - 0.04 / 3) < 1e-12);
  assert_int_equal(p[0].data, 2);
  assert_int_equal(p[0].tensor * p[0].context * p[0].expert, 1);
  assert_int_equal(p[0].source, ATOLL_COST_ANALYTIC);
  atoll_slice_plan grid[4];
  void *g = NULL;
  assert_ok(atoll_parallelizer_grid.begin(&x.problem, &x.params, &g));
  assert_ok(atoll_parallelizer_grid.plan(g, slice, shape, &context, grid, 4, &n, &epsilon, &missing, NULL, 0));
  atoll_parallelizer_grid.end(&g);
  assert_memory_equal(p[0].bytes, grid[0].bytes, sizeof p[0].bytes);
  assert_int_equal(p[0].bytes_peak, grid[0].bytes_peak);
  assert_int_equal(p[0].bytes_limit, grid[0].bytes_limit);
  made_end(&x);
}

/* Each failure: the error names the program and the fact; with the fallback the answer is grid's. */
static void failures(void **state) {
  (void)state;
  static const struct {
    const char *greeting, *answer;
    atoll_err code;
    const char *part;
    int usage; /* bool: no fallback from this one */
  } cases[] = {
      {HELLO, "exit 3", ATOLL_UNAVAILABLE, "program.sh ended with exit status 3 before it answered", 0},
      {HELLO, "kill -9 $$", ATOLL_UNAVAILABLE, "program.sh was ended by signal 9", 0},
      {HELLO, "exec >&-; sleep 60", ATOLL_UNAVAILABLE, "program.sh closed its output", 0},
      {HELLO, "sleep 60", ATOLL_TIMEOUT, "program.sh did not answer within 0.3 s (plan.extern_limit)", 0},
      {HELLO, "printf '{\"id\":'; sleep 60", ATOLL_TIMEOUT, "did not answer", 0},
      {"exit 0", "", ATOLL_UNAVAILABLE, "program.sh ended with exit status 0", 0},
      {"sleep 60", "", ATOLL_TIMEOUT, "did not answer", 0},
      {"echo hello", "", ATOLL_CORRUPT, "program.sh wrote a line that is not JSON", 0},
      {"echo '{\"type\":\"hi\"}'", "", ATOLL_CORRUPT, "did not greet", 0},
      {"echo '{\"type\":\"hello\",\"protocol\":2}'", "", ATOLL_UNSUPPORTED, "speaks protocol 2, this program 1", 1},
      {HELLO, "echo Traceback", ATOLL_CORRUPT, "not JSON", 0},
      {HELLO, "echo \"{\\\"id\\\":$id,\\\"points\\\":[\"", ATOLL_CORRUPT, "not JSON", 0},
      {HELLO, "echo '[1,2]'", ATOLL_CORRUPT, "answer is a list, expected an object", 0},
      {HELLO, "echo '{\"points\":[]}'", ATOLL_CORRUPT, "id is absent", 0},
      {HELLO, "echo '{\"id\":99,\"points\":[]}'", ATOLL_CORRUPT, "answers request 99, which was not asked", 0},
      {HELLO, "head -c 1500000 /dev/zero | tr '\\000' x", ATOLL_CORRUPT, "a line of more than 1048576 bytes", 0},
      {HELLO, "printf 'a\\000b\\n'", ATOLL_CORRUPT, "NUL byte", 0},
      {HELLO, "echo \"{\\\"id\\\":$id,\\\"error\\\":\\\"out of ideas\\\"}\"", ATOLL_UNAVAILABLE,
       "has no answer for layers 1-3 on island b: out of ideas", 0},
      {HELLO, "echo \"{\\\"id\\\":$id,\\\"points\\\":[],\\\"colour\\\":1}\"", ATOLL_CORRUPT,
       "colour is there, expected no such key", 0},
      {HELLO, SAY(",\\\"bytes\\\":$need,\\\"tensor\\\":2"), ATOLL_CORRUPT,
       "data 2 x tensor 2 x context 1 x expert 1 is not the 2 devices of 1 x 2", 0},
      {HELLO, SAY(",\\\"bytes\\\":$need,\\\"zero\\\":1"), ATOLL_CORRUPT, "an axis that train does not execute", 0},
      {HELLO, SAY(",\\\"bytes\\\":$need,\\\"recompute\\\":4"), ATOLL_CORRUPT, "recompute 4 of 3 layers", 0},
      {HELLO, SAY(",\\\"bytes\\\":$((need - 1))"), ATOLL_CORRUPT, "every point claims fewer bytes than it takes", 0},
      {HELLO, SAY(",\\\"bytes\\\":-5"), ATOLL_CORRUPT, "point 0: bytes is -5, expected a whole number", 0},
      {HELLO, SAY(",\\\"bytes\\\":$need,\\\"forward\\\":-1"), ATOLL_CORRUPT, "point 0: forward is -1", 0},
      {HELLO, SAY(",\\\"bytes\\\":$need,\\\"forward\\\":NaN"), ATOLL_CORRUPT, "not JSON", 0},
      {HELLO, SAY(",\\\"bytes\\\":$need,\\\"t\\\":0.02"), ATOLL_CORRUPT, "duplicate", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    made x;
    atoll_slice_plan p[4], grid[4];
    int n = -1;
    double epsilon;
    int64_t missing;
    begin_with(&x, script(cases[i].greeting, cases[i].answer));
    x.params.extern_limit = cases[i].code == ATOLL_TIMEOUT ? 0.3 : 30;
    atoll_err err = ask(&x, p, 4, &n, &epsilon, &missing, NULL);
    if (err != cases[i].code || !strstr(atoll_err_message(), cases[i].part) ||
        !strstr(atoll_err_message(), "program.sh"))
      fail_msg("case %zu: %s: %s; expected %s with '%s'", i, atoll_err_name(err), atoll_err_message(),
               atoll_err_name(cases[i].code), cases[i].part);
    x.params.extern_fallback = 1;
    err = ask(&x, p, 4, &n, &epsilon, &missing, NULL);
    if (cases[i].usage) {
      assert_int_equal(err, cases[i].code);
    } else {
      void *g = NULL;
      int of_grid;
      if (err != ATOLL_OK)
        fail_msg("case %zu with the fallback: %s: %s", i, atoll_err_name(err), atoll_err_message());
      assert_ok(atoll_parallelizer_grid.begin(&x.problem, &x.params, &g));
      assert_ok(
          atoll_parallelizer_grid.plan(g, slice, shape, &context, grid, 4, &of_grid, &epsilon, &missing, NULL, 0));
      atoll_parallelizer_grid.end(&g);
      assert_int_equal(n, of_grid);
      for (int k = 0; k < n; k++)
        assert_true(p[k].t == grid[k].t && p[k].d == grid[k].d && p[k].bytes_peak == grid[k].bytes_peak);
    }
    made_end(&x);
  }
}

static void not_started(void **state) {
  (void)state;
  made x;
  void *s = NULL;
  char path[512];
  snprintf(path, sizeof path, "%s/not-a-program", ATOLL_TEST_BINARY_DIR);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs("just text\n", f);
  fclose(f);
  chmod(path, 0644);
  begin_with(&x, "/no/such/program");
  assert_refused(ATOLL_NOINPUT, "/no/such/program", atoll_parallelizer_extern.begin(&x.problem, &x.params, &s));
  snprintf(x.params.extern_program, sizeof x.params.extern_program, "no-such-program-on-path");
  assert_refused(ATOLL_NOINPUT, "no program 'no-such-program-on-path' on PATH",
                 atoll_parallelizer_extern.begin(&x.problem, &x.params, &s));
  snprintf(x.params.extern_program, sizeof x.params.extern_program, "%s", path);
  x.params.extern_fallback = 1; /* a wrong name is no failure of a program */
  assert_refused(ATOLL_NOINPUT, "Permission denied", atoll_parallelizer_extern.begin(&x.problem, &x.params, &s));
  x.params.extern_program[0] = 0;
  assert_refused(ATOLL_USAGE, "plan.extern names no program",
                 atoll_parallelizer_extern.begin(&x.problem, &x.params, &s));
  assert_null(s);
  no_children();
  made_end(&x);
}

/* A lie among true points is refused alone; points over the limit and dominated ones are left out; the rest comes
 * sorted. Too many are thinned, and epsilon covers every one that was dropped. */
static void points(void **state) {
  (void)state;
  made x;
  atoll_slice_plan p[8], few[2];
  int n;
  double epsilon;
  int64_t missing;
#define ONE(t, d, bytes)                                                                                               \
  "{\\\"policy\\\":\\\"eager_flash\\\",\\\"data\\\":2,\\\"t\\\":" t ",\\\"d\\\":" d ",\\\"bytes\\\":" bytes "}"
  begin_with(
      &x,
      script(HELLO, "echo \"{\\\"id\\\":$id,\\\"points\\\":[" ONE("0.03", "1", "$need") "," ONE(
                        "0.001", "0",
                        "$((need/2))") "," ONE("0.01", "4",
                                               "$need") "," ONE("0.02", "2",
                                                                "$need") "," ONE("0.025", "2.5",
                                                                                 "$((need+9))") "," ONE("0.0001", "0",
                                                                                                        "9999999999999"
                                                                                                        "9") "]}\""));
  assert_ok(ask(&x, p, 8, &n, &epsilon, &missing, NULL));
  assert_int_equal(n, 3);
  assert_true(epsilon == 0 && p[0].t == 0.01 && p[1].t == 0.02 && p[2].t == 0.03);
  assert_ok(ask(&x, few, 2, &n, &epsilon, &missing, NULL));
  assert_int_equal(n, 2);
  assert_true(epsilon > 0 && epsilon < 2);
  for (int i = 0; i < 3; i++) {
    int covered = 0;
    for (int j = 0; j < 2; j++)
      covered = covered || (few[j].t <= p[i].t * (1 + epsilon) && few[j].d <= p[i].d * (1 + epsilon));
    assert_true(covered);
  }
  made_end(&x);
}

/* With target any the other axes are open, and a lie about memory along them is seen too. */
static void all_axes(void **state) {
  (void)state;
  made x;
  atoll_slice_plan p[4];
  int n;
  double epsilon;
  int64_t missing;
#define SHARDED(bytes)                                                                                                 \
  "echo \"{\\\"id\\\":$id,\\\"points\\\":[{\\\"policy\\\":\\\"eager_flash\\\",\\\"data\\\":1,\\\"tensor\\\":2,"        \
  "\\\"t\\\":0.01,\\\"d\\\":0,\\\"bytes\\\":" bytes "}]}\""
  begin_with(&x, script(HELLO, SHARDED("$((need / 2 + need / 4))")));
  assert_refused(ATOLL_CORRUPT, "an axis that train does not execute", ask(&x, p, 4, &n, &epsilon, &missing, NULL));
  x.params.target = 1;
  assert_ok(ask(&x, p, 4, &n, &epsilon, &missing, NULL)); /* half of most, and what no tensor rank divides */
  assert_int_equal(n, 1);
  assert_true(p[0].tensor == 2 && p[0].bytes[ATOLL_MEM_WORKSPACE] == p[0].bytes_peak);
  made_end(&x);
  begin_with(&x, script(HELLO, SHARDED("$((need / 4))")));
  x.params.target = 1;
  assert_refused(ATOLL_CORRUPT, "every point claims fewer bytes", ask(&x, p, 4, &n, &epsilon, &missing, NULL));
  made_end(&x);
}

static void nothing_fits(void **state) {
  (void)state;
  made x;
  atoll_slice_plan p[4];
  int n;
  double epsilon;
  int64_t missing;
  char why[256] = "";
  begin_with(
      &x, script(HELLO, "echo \"{\\\"id\\\":$id,\\\"points\\\":[],\\\"missing\\\":77,\\\"why\\\":\\\"too big\\\"}\""));
  assert_ok(ask(&x, p, 4, &n, &epsilon, &missing, why));
  assert_int_equal(n, 0);
  assert_int_equal(missing, 77);
  assert_non_null(strstr(why, "layers 1-3 on island b"));
  assert_non_null(strstr(why, "too big"));
  made_end(&x);
  begin_with(&x, script(HELLO, SAY(",\\\"bytes\\\":1000000000")));
  assert_ok(ask(&x, p, 4, &n, &epsilon, &missing, NULL));
  assert_int_equal(n, 0);
  assert_int_equal(missing, 1000000000 - (int64_t)((double)(INT64_C(1) << 30) * 0.9));
  made_end(&x);
}

/* Many requests are on the way before the first answer, which may come in any order. */
static void many_at_once(void **state) {
  (void)state;
  made x;
  void *s = NULL;
  enum { N = 6 };
  atoll_slice slices[N];
  for (int i = 0; i < N; i++)
    slices[i] = (atoll_slice){1, 2 + i};
  begin_with(&x, script(HELLO,
                        "answers=\"{\\\"id\\\":$id,\\\"points\\\":[{\\\"policy\\\":\\\"eager_flash\\\",\\\"data\\\":2,"
                        "\\\"t\\\":$((id + 1)),\\\"d\\\":0,\\\"bytes\\\":$need}]}\n$answers\"\n"
                        "[ $id = 5 ] && printf %s \"$answers\""));
  assert_ok(atoll_parallelizer_extern.begin(&x.problem, &x.params, &s));
  assert_ok(atoll_parallelizer_extern.prepare(s, slices, N, shape, &context));
  for (int i = 0; i < N; i++) {
    atoll_slice_plan p[4];
    int n;
    double epsilon;
    int64_t missing;
    assert_ok(atoll_parallelizer_extern.plan(s, slices[i], shape, &context, p, 4, &n, &epsilon, &missing, NULL, 0));
    assert_int_equal(n, 1);
    assert_true(p[0].t == i + 1);
  }
  assert_string_equal(atoll_parallelizer_extern.source(s), "extern");
  atoll_parallelizer_extern.end(&s);
  no_children();
  made_end(&x);
}

/* An answer that comes after its time is not taken for another's, and the program goes on. */
static void late(void **state) {
  (void)state;
  made x;
  void *s = NULL;
  begin_with(&x, script(HELLO, "[ $id = 0 ] && sleep 2\n" GOOD));
  x.params.extern_fallback = 1;
  assert_ok(atoll_parallelizer_extern.begin(&x.problem, &x.params, &s));
  x.params.extern_limit = 0.4;
  atoll_slice_plan p[4];
  int n;
  double epsilon;
  int64_t missing;
  assert_ok(atoll_parallelizer_extern.plan(s, slice, shape, &context, p, 4, &n, &epsilon, &missing, NULL, 0));
  assert_true(n >= 1 && p[0].t != 0.01);
  x.params.extern_limit = 30;
  atoll_slice other = {2, 4};
  assert_ok(atoll_parallelizer_extern.plan(s, other, shape, &context, p, 4, &n, &epsilon, &missing, NULL, 0));
  assert_true(n == 1 && p[0].t == 0.01);
  assert_string_equal(atoll_parallelizer_extern.source(s), "extern+grid");
  atoll_parallelizer_extern.end(&s);
  no_children();
  made_end(&x);
}

static int digests_equal(const atoll_plan *a, const atoll_plan *b) {
  return atoll_digest_equal(atoll_plan_digest(a), atoll_plan_digest(b));
}

/* The example in Python gives grid's plan; and what a program says is what the plan says. */
static void whole_plans(void **state) {
  (void)state;
  made x;
  atoll_plan *by_grid = NULL, *by_program = NULL;
  if (system("python3 -c 'import json' >/dev/null 2>&1") != 0) {
    print_message("no python3 here\n");
    skip();
  }
  made_begin(&x);
  for (int policy = 0; policy < 2; policy++) {
    atoll_plan_params_init(&x.params);
    snprintf(x.params.policy, sizeof x.params.policy, policy ? "auto" : "exact");
    snprintf(x.params.extern_program, sizeof x.params.extern_program, "python3 %s/inputs/parallelizers/uniform.py",
             ATOLL_SOURCE_DIR);
    x.params.tensor_parallel = 1; /* the example knows no other */
    assert_ok(atoll_plan_make(&x.problem, &x.params, &by_grid, NULL));
    x.params.parallelizer = 1;
    assert_ok(atoll_plan_make(&x.problem, &x.params, &by_program, NULL));
    assert_true(digests_equal(by_grid, by_program));
    assert_true(fabs(by_grid->step_seconds / by_program->step_seconds - 1) < 1e-9);
    assert_string_equal(by_program->source, "extern+compose");
    assert_int_equal(by_program->optimal, by_grid->optimal);
    atoll_plan_destroy(&by_grid);
    atoll_plan_destroy(&by_program);
  }
  no_children();
  made_end(&x);
}

/* A program that dies in the middle: the plan is grid's and says so; without fallback there is none. */
static void dies_in_the_middle(void **state) {
  (void)state;
  made x;
  atoll_plan *by_grid = NULL, *by_program = NULL;
  begin_with(&x, script(HELLO, "exit 1"));
  x.params.parallelizer = 0;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &by_grid, NULL));
  x.params.parallelizer = 1;
  assert_refused(ATOLL_UNAVAILABLE, "exit status 1", atoll_plan_make(&x.problem, &x.params, &by_program, NULL));
  assert_null(by_program);
  no_children();
  x.params.extern_fallback = 1;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &by_program, NULL));
  assert_true(digests_equal(by_grid, by_program));
  assert_string_equal(by_program->source, "extern+grid+compose");
  no_children();
  atoll_plan_destroy(&by_grid);
  atoll_plan_destroy(&by_program);
  made_end(&x);
}

/* Times of the program decide: it finds island b, the slower one by rates, a hundred times faster. */
static void its_word_counts(void **state) {
  (void)state;
  made x;
  atoll_plan *plan = NULL;
  begin_with(&x,
             script(HELLO, "case $line in *'\"name\":\"b\"'*) t=0.001;; *) t=0.1;; esac\n"
                           "echo \"{\\\"id\\\":$id,\\\"points\\\":[{\\\"policy\\\":\\\"eager_flash\\\",\\\"data\\\":1,"
                           "\\\"t\\\":$t,\\\"d\\\":0.25,\\\"bytes\\\":$need}]}\""));
  x.params.stages = x.params.data_parallel = 1;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &plan, NULL));
  const atoll_plan_replica *r = &plan->pipeline[0].stage[0].replica[0];
  assert_string_equal(x.problem.islands->island[r->island].name, "b");
  assert_true(fabs(r->forward_seconds + r->backward_seconds - 0.001) < 1e-12);
  assert_true(r->update_seconds >= 0.25);
  assert_true(plan->step_seconds >= 0.25 + 0.001 * (double)plan->micro_batches && plan->step_seconds < 0.4);
  assert_int_equal(plan->micro_batches, 1); /* its times do not grow with the micro-batch */
  atoll_plan_destroy(&plan);
  no_children();
  made_end(&x);
}

/* Whatever ends us ends the program. */
static void dies_with_us(void **state) {
  (void)state;
  made x;
  char pid_file[512], greeting[2048];
  snprintf(pid_file, sizeof pid_file, "%s/program.pid", ATOLL_TEST_BINARY_DIR);
  (void)unlink(pid_file);
  snprintf(greeting, sizeof greeting, HELLO "\necho $$ >'%s.tmp'\nmv '%s.tmp' '%s'\nexec sleep 1000", pid_file,
           pid_file, pid_file);
  begin_with(&x, script(greeting, ""));
  pid_t us = fork();
  assert_true(us >= 0);
  if (us == 0) {
    void *s = NULL;
    if (atoll_parallelizer_extern.begin(&x.problem, &x.params, &s) != ATOLL_OK)
      _exit(1);
    for (;;)
      pause();
  }
  int program = 0;
  for (int i = 0; i < 6000 && program == 0; i++) {
    FILE *f = fopen(pid_file, "r");
    if (f) {
      assert_int_equal(fscanf(f, "%d", &program), 1);
      fclose(f);
    }
    usleep(10000);
  }
  assert_true(program > 0);
  assert_int_equal(kill(program, 0), 0);
  assert_int_equal(kill(us, SIGKILL), 0);
  assert_int_equal(waitpid(us, NULL, 0), us);
  /* Its death comes at once; in a container nobody may reap it, so that a zombie counts as gone. */
  int gone = 0;
  for (int i = 0; i < 6000 && !gone; i++) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", program);
    FILE *f = fopen(path, "r");
    gone = !f || !fgets(line, sizeof line, f) || strstr(line, ") Z ") != NULL;
    if (f)
      fclose(f);
    usleep(10000);
  }
  assert_true(gone);
  made_end(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_good_answer), cmocka_unit_test(failures),
      cmocka_unit_test(not_started),     cmocka_unit_test(points),
      cmocka_unit_test(all_axes),        cmocka_unit_test(nothing_fits),
      cmocka_unit_test(many_at_once),    cmocka_unit_test(late),
      cmocka_unit_test(whole_plans),     cmocka_unit_test(dies_in_the_middle),
      cmocka_unit_test(its_word_counts), cmocka_unit_test(dies_with_us),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

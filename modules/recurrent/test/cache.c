/* Compiled programs are kept, and whatever is wrong with compiler or cache costs time, never the run. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "atoll/cache.h"
#include "atoll/clock.h"
#include "atoll/file.h"
#include "random_program.h"

static char folder[512];

/* Takes the place of the library's: tests say which processor this is. */
static const char *processor = "this one";
const char *atoll_cache_processor(char *buf, size_t n) {
  (void)snprintf(buf, n, "%s", processor);
  return buf;
}

/* Running sums of t, by a program that is compiled with these parameters. *engine: how it ran. */
static void run(const atoll_rec_params *p, char *engine, size_t n) {
  static test_log log;
  atoll_rec_program *program = NULL;
  atoll_rec *c = test_context();
  log.n = 0;
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F64, "t", ATOLL_SCALAR), *t = atoll_rec_expr(c, ATOLL_F64, "t");
  atoll_rt_def(x, "t==0", t);
  atoll_rt_def(x, "true", atoll_rt_add(atoll_rt_at(x, "t-1"), t));
  atoll_rt_sink(x, "x", test_collect, &log);
  assert_ok(atoll_rec_compile(c, p, &program));
  assert_ok(atoll_rec_run(program, &(atoll_rec_binding){"T", 20, NULL}, 1));
  (void)snprintf(engine, n, "%s", atoll_rec_engine(program));
  assert_int_equal(log.n, 20);
  for (int i = 0; i < 20; i++)
    assert_true(log.v[i] == i * (i + 1) / 2);
  atoll_rec_program_destroy(&program);
  atoll_rec_destroy(&c);
}

#define assert_engine(p, part)                                                                                         \
  do {                                                                                                                 \
    char engine_[800];                                                                                                 \
    run(&(atoll_rec_params)p, engine_, sizeof engine_);                                                                \
    if (!strstr(engine_, (part)))                                                                                      \
      fail_msg("engine '%s', expected '%s'", engine_, (part));                                                         \
  } while (0)
#define WITH(...)                                                                                                      \
  { __VA_ARGS__ }

static void without_a_compiler_programs_are_interpreted(void **state) {
  (void)state;
  assert_engine(WITH(.compiler = ""), "interpreted: no compiler is wanted");
  assert_engine(WITH(.compiler = "no-such-compiler"), "interpreted: compiler 'no-such-compiler' does not run");
  assert_engine(WITH(.flags = "--no-such-option"), "interpreted: compiler 'cc' failed");
}

/* A program in the folder that stands for a compiler. */
static void be_compiler(const char *script, char *path, size_t n) {
  assert_ok(atoll_path_join(path, n, folder, "wrapper"));
  assert_ok(atoll_file_publish(path, script, strlen(script)));
  assert_int_equal(chmod(path, 0700), 0);
}

static void a_compiler_that_fails_is_told(void **state) {
  (void)state;
  char path[1024];
  be_compiler("#!/bin/sh\nexit 1\n", path, sizeof path);
  assert_engine(WITH(.compiler = path), "failed: it said nothing");
  be_compiler("#!/bin/sh\necho hm\necho 'x.c: error: no'\nexit 1\n", path, sizeof path);
  assert_engine(WITH(.compiler = path), "failed: x.c: error: no");
  /* It says that all is well, and makes nothing, or what is no library. */
  be_compiler("#!/bin/sh\nexit 0\n", path, sizeof path);
  assert_engine(WITH(.compiler = path), "program.so: cannot open shared object file");
  be_compiler("#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\necho garbage >\"$2\"\n", path, sizeof path);
  assert_engine(WITH(.compiler = path), "interpreted: ");
}

static void a_compiler_that_hangs_is_ended(void **state) {
  (void)state;
  char path[1024];
  struct timespec begin, end;
  be_compiler("#!/bin/sh\nexec sleep 100\n", path, sizeof path);
  setenv("ATOLL_CC_SECONDS", "0.2", 1);
  assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &begin), 0);
  assert_engine(WITH(.compiler = path), "failed: error: not done after 0.2 seconds");
  assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &end), 0);
  unsetenv("ATOLL_CC_SECONDS");
  assert_true(end.tv_sec - begin.tv_sec < 50);
}

/* Engine of a program of several translation units. */
static void make_units(const char *compiler, char *engine, size_t n) {
  enum { CONTEXTS = 12 };
  static test_log log;
  atoll_rec *c[CONTEXTS];
  atoll_rec_program *p[CONTEXTS];
  for (int k = 0; k < CONTEXTS; k++) {
    c[k] = test_context();
    atoll_rec_dim(c[k], "t", 0);
    atoll_rt_sink(atoll_rt_mean(atoll_rt_softmax(atoll_rec_uniform(c[k], "t", ATOLL_SHAPE(9)), 0), 0), "x",
                  test_collect, &log);
  }
  assert_ok(atoll_rec_compile_all(CONTEXTS, c, &(atoll_rec_params){.compiler = compiler, .flags = "-O0"}, p));
  (void)snprintf(engine, n, "%s", atoll_rec_engine(p[0]));
  for (int k = 0; k < CONTEXTS; k++) {
    atoll_rec_program_destroy(&p[k]);
    atoll_rec_destroy(&c[k]);
  }
}

/* The others would sleep for minutes. */
static void a_unit_that_fails_ends_all(void **state) {
  (void)state;
  char path[1024], engine[800];
  const double begin = atoll_clock_now();
  be_compiler("#!/bin/sh\ncase \"$*\" in *-DRT_UNIT=0*) echo error: no; exit 1 ;; esac\nexec sleep 100\n", path,
              sizeof path);
  make_units(path, engine, sizeof engine);
  assert_true(strstr(engine, "failed: error: no") != NULL);
  assert_true(atoll_clock_now() - begin < 50);
}

/* A second for units, side by side or not, and one for the library. */
static void all_of_a_compilation_has_one_limit(void **state) {
  (void)state;
  char path[1024], engine[800];
  be_compiler("#!/bin/sh\nexec sleep 1\n", path, sizeof path);
  setenv("ATOLL_CC_SECONDS", "1.5", 1);
  make_units(path, engine, sizeof engine);
  unsetenv("ATOLL_CC_SECONDS");
  assert_true(strstr(engine, "failed: error: not done after 1.5 seconds") != NULL);
}

/* A compiler that never ends, whoever asks it to, and a process that it waits for, as a driver does for what it drives.
 * Both hold a pipe open that they wrote to; its other end. */
static int be_hanging_driver(char *path, size_t n) {
  char pipe[1024];
  assert_ok(atoll_path_join(pipe, sizeof pipe, folder, "pipe"));
  (void)remove(pipe);
  assert_int_equal(mkfifo(pipe, 0600), 0);
  be_compiler("#!/bin/sh\ntrap '' TERM\nexec 3>\"${0%/*}/pipe\"\necho here >&3\nsleep 100 &\nwait\n", path, n);
  const int fd = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  assert_true(fd >= 0);
  return fd;
}

/* Until something comes out of the pipe, or (gone) until all who hold it open are gone. */
static void await(int fd, int gone) {
  char c;
  for (int k = 0; k < 2000; k++) {
    const ssize_t n = read(fd, &c, 1);
    if (gone ? n == 0 : n > 0)
      return;
    if (n <= 0)
      atoll_clock_sleep(0.01);
  }
  fail_msg("%s", gone ? "what the compiler started goes on" : "the compiler did not start");
}

static void what_a_compiler_started_is_ended_with_it(void **state) {
  (void)state;
  char path[1024];
  const int fd = be_hanging_driver(path, sizeof path);
  setenv("ATOLL_CC_SECONDS", "2", 1);
  assert_engine(WITH(.compiler = path), "failed: error: not done after 2 seconds");
  unsetenv("ATOLL_CC_SECONDS");
  await(fd, 0);
  await(fd, 1);
  assert_int_equal(close(fd), 0);
}

/* Number of folders for compiling in the tests' folder. */
static int builds(void) {
  char **name = NULL;
  size_t n = 0;
  int found = 0;
  assert_ok(atoll_file_list(folder, &name, &n));
  for (size_t k = 0; k < n; k++)
    found += strncmp(name[k], "atoll-compile-", 14) == 0;
  atoll_file_list_free(&name, n);
  return found;
}

/* Nobody would end a compiler that hangs when its program was interrupted, or remove what it was given. */
static void a_compiler_ends_with_its_program(void **state) {
  (void)state;
  char path[1024];
  const int fd = be_hanging_driver(path, sizeof path);
  const pid_t program = fork();
  assert_true(program >= 0);
  if (program == 0) {
    setenv("TMPDIR", folder, 1);
    assert_engine(WITH(.compiler = path), "");
    _exit(0);
  }
  await(fd, 0);
  assert_int_equal(kill(program, SIGKILL), 0);
  assert_int_equal(waitpid(program, NULL, 0), program);
  await(fd, 1);
  assert_int_equal(builds(), 0);
  assert_int_equal(close(fd), 0);
}

static int has(const char *name) {
  char path[1024];
  assert_ok(atoll_path_join(path, sizeof path, folder, name));
  return atoll_file_is_dir(path);
}

/* A folder for compiling, or one of another name, so old. */
static void leave_build(const char *name, time_t seconds) {
  char path[1024], file[1100];
  const struct timespec then = {.tv_sec = time(NULL) - seconds};
  assert_ok(atoll_path_join(path, sizeof path, folder, name));
  assert_int_equal(mkdir(path, 0700), 0);
  assert_ok(atoll_path_join(file, sizeof file, path, "program.c"));
  assert_ok(atoll_file_publish(file, "", 0));
  assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){then, then}, 0), 0);
}

/* What a node that went down has left is removed, not what others may be at work in. */
static void old_folders_for_compiling_are_removed(void **state) {
  (void)state;
  const char *set = getenv("TMPDIR");
  char *before = set ? strdup(set) : NULL;
  leave_build("atoll-compile-000001", 2 * 24 * 3600);
  leave_build("atoll-compile-000002", 3600);
  leave_build("atoll-results", 2 * 24 * 3600);
  setenv("TMPDIR", folder, 1);
  assert_engine(WITH(.flags = "-O0"), "compiled: compiled by");
  if (before)
    setenv("TMPDIR", before, 1);
  else
    unsetenv("TMPDIR");
  free(before);
  assert_int_equal(builds(), 1);
  assert_int_equal(has("atoll-compile-000002"), 1);
  assert_int_equal(has("atoll-results"), 1);
}

/* Folders where files should be: the program is compiled each time. */
static void a_folder_in_the_place_of_a_file_is_told(void **state) {
  char **name = NULL, path[1024];
  size_t names = 0;
  (void)state;
  assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
  assert_ok(atoll_file_list(folder, &name, &names));
  assert_true(names > 0);
  for (size_t k = 0; k < names; k++) {
    assert_ok(atoll_path_join(path, sizeof path, folder, name[k]));
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
  }
  atoll_file_list_free(&name, names);
  for (int k = 0; k < 2; k++)
    assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
}

static void what_was_compiled_is_used_again(void **state) {
  (void)state;
  assert_engine(WITH(.flags = "-O1"), "compiled: compiled by 'cc -O1'");
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");
  assert_engine(WITH(.flags = "-O0"), "compiled: compiled by 'cc -O0'");
}

/* A compiler is another one when its file is. */
static void another_compiler_compiles_anew(void **state) {
  (void)state;
  char path[1024];
  static const char script[] = "#!/bin/sh\nexec cc \"$@\"\n";
  assert_ok(atoll_path_join(path, sizeof path, folder, "wrapper"));
  assert_ok(atoll_file_publish(path, script, sizeof script - 1));
  assert_int_equal(chmod(path, 0700), 0);
  assert_engine(WITH(.compiler = path, .flags = "-O0"), "compiled: compiled by");
  assert_engine(WITH(.compiler = path, .flags = "-O0"), "compiled: from ");
  const struct timespec then = {.tv_sec = time(NULL) - 1000};
  assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){then, then}, 0), 0);
  assert_engine(WITH(.compiler = path, .flags = "-O0"), "compiled: compiled by");
  /* Of several words, all that are programs count, whatever is between them. */
  static const char *const before[] = {"env", "env A=/b C=", "nice -n 1 env"};
  for (int k = 0; k < 3; k++) {
    char words[1200];
    const struct timespec other = {.tv_sec = then.tv_sec + 1 + k};
    (void)snprintf(words, sizeof words, "%s %s", before[k], path);
    assert_engine(WITH(.compiler = words, .flags = "-O0"), "compiled: compiled by");
    assert_engine(WITH(.compiler = words, .flags = "-O0"), "compiled: from ");
    assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){other, other}, 0), 0);
    assert_engine(WITH(.compiler = words, .flags = "-O0"), "compiled: compiled by");
  }
}

/* A folder that machines share holds programs of all their processors. */
static void another_processor_compiles_anew(void **state) {
  (void)state;
  assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");
  processor = "another one";
  assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");
  processor = "this one";
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");
}

/* The superuser writes everywhere, so that is not who looks. */
static void a_folder_that_cannot_be_written_is_read(void **state) {
  char **name = NULL;
  size_t names[2] = {0, 0};
  const uid_t user = geteuid();
  (void)state;
  assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
  assert_ok(atoll_file_list(folder, &name, &names[0]));
  atoll_file_list_free(&name, names[0]);
  assert_int_equal(chmod(folder, 0555), 0);
  if (user == 0)
    assert_int_equal(seteuid(65534), 0);
  assert_int_not_equal(faccessat(AT_FDCWD, folder, W_OK, AT_EACCESS), 0);
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");
  for (int k = 0; k < 2; k++)
    assert_engine(WITH(.flags = "-O0"), "compiled: compiled by");
  assert_int_equal(seteuid(user), 0);
  assert_int_equal(chmod(folder, 0700), 0);
  assert_ok(atoll_file_list(folder, &name, &names[1]));
  atoll_file_list_free(&name, names[1]);
  assert_true(names[0] > 0);
  assert_int_equal(names[1], names[0]);
}

/* Cut short, and with a byte that is not what it was. */
static void damaged_files_are_made_again(void **state) {
  (void)state;
  assert_engine(WITH(.flags = "-O1"), "compiled: ");
  for (int way = 0; way < 2; way++) {
    char **name = NULL, path[1024], *data = NULL;
    size_t names = 0, bytes = 0;
    assert_ok(atoll_file_list(folder, &name, &names));
    assert_true(names > 0);
    for (size_t k = 0; k < names; k++) {
      assert_ok(atoll_path_join(path, sizeof path, folder, name[k]));
      assert_ok(atoll_file_read(path, &data, &bytes));
      data[bytes / 2] ^= 1;
      assert_ok(atoll_file_publish(path, data, way ? bytes : bytes / 2));
      free(data);
    }
    atoll_file_list_free(&name, names);
    assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
    assert_engine(WITH(.flags = "-O1"), "compiled: from ");
  }
}

static void without_a_folder_programs_are_compiled_each_time(void **state) {
  (void)state;
  setenv("ATOLL_CACHE", "/dev/null/none", 1);
  for (int k = 0; k < 2; k++)
    assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
}

/* A file of the cache that nobody used for some seconds. */
static void leave(const char *name, size_t bytes, int seconds, char *path, size_t n) {
  char *data = calloc(bytes, 1);
  const struct timespec then = {.tv_sec = time(NULL) - seconds};
  assert_non_null(data);
  assert_ok(atoll_path_join(path, n, folder, name));
  assert_ok(atoll_file_publish(path, data, bytes));
  assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){then, then}, 0), 0);
  free(data);
}

/* Files go by when they were used last, and only as many as must. */
static void what_is_kept_is_bounded(void **state) {
  char first[1024], second[1024], old[1024], other[1024];
  const int day = 24 * 3600;
  (void)state;
  setenv("ATOLL_CACHE_MB", "1", 1);
  assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
  leave("program-1.so", 600000, 2000, first, sizeof first);
  leave("program-2.so", 600000, 1000, second, sizeof second);
  leave("schedule-3", 10, 91 * day, old, sizeof old);
  leave("measured", 1200000, 99 * day, other, sizeof other); /* of somebody else */
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");    /* nothing is written */
  assert_true(atoll_file_exists(first) && atoll_file_exists(old));
  assert_engine(WITH(.flags = "-O0"), "compiled: compiled by");
  assert_false(atoll_file_exists(first));
  assert_false(atoll_file_exists(old));
  assert_true(atoll_file_exists(second) && atoll_file_exists(other));
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");
  setenv("ATOLL_CACHE_MB", "0", 1);
  assert_engine(WITH(.flags = "-O2"), "compiled: compiled by");
  assert_false(atoll_file_exists(second));
  assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
  unsetenv("ATOLL_CACHE_MB");
}

/* What nobody used for three months goes even where there is room; what is used again stays. */
static void what_is_used_stays(void **state) {
  (void)state;
  enum { LONG_AGO = 91 * 24 * 3600 };
  const struct timespec then = {.tv_sec = time(NULL) - LONG_AGO};
  char **name = NULL, path[1024], old[1024];
  size_t names = 0;
  assert_engine(WITH(.flags = "-O1"), "compiled: compiled by");
  assert_ok(atoll_file_list(folder, &name, &names));
  for (size_t k = 0; k < names; k++) {
    assert_ok(atoll_path_join(path, sizeof path, folder, name[k]));
    assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){then, then}, 0), 0);
  }
  atoll_file_list_free(&name, names);
  leave("program-1.so", 10, LONG_AGO, old, sizeof old);
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");
  assert_engine(WITH(.flags = "-O0"), "compiled: compiled by");
  assert_false(atoll_file_exists(old));
  assert_engine(WITH(.flags = "-O1"), "compiled: from ");
}

/* ---- schedules ---- */

static char *text_of(const atoll_rec_program *p) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  assert_non_null(f);
  atoll_rec_program_print(p, f);
  fclose(f);
  return text;
}

/* Text of the program of a seed, and with logs what its sinks get. */
static char *make_random(uint64_t seed, const char *passes, test_log *log) {
  atoll_rec_program *p = NULL;
  atoll_rec_binding b[RANDOM_BINDINGS];
  int n = random_bindings(seed, b);
  atoll_rec *c = random_make(seed, log);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.passes = passes, .compiler = ""}, &p));
  char *text = text_of(p);
  assert_ok(atoll_rec_run(p, b, n));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  return text;
}

static void kept_schedules_are_those_of_passes(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 12; seed++) {
    static test_log first[RANDOM_LOGS], again[RANDOM_LOGS];
    memset(first, 0, sizeof first);
    memset(again, 0, sizeof again);
    char *made = make_random(seed, seed % 2 ? NULL : "groups", first);
    char *kept = make_random(seed, seed % 2 ? NULL : "groups", again);
    if (strcmp(made, kept) != 0 || memcmp(first, again, sizeof first) != 0)
      fail_msg("seed %" PRIu64 ": made\n%s\nkept\n%s", seed, made, kept);
    free(made);
    free(kept);
  }
}

/* The only schedule in the folder. */
static void schedule_path(char *path, size_t n) {
  char **name = NULL;
  size_t names = 0, found = 0;
  assert_ok(atoll_file_list(folder, &name, &names));
  for (size_t k = 0; k < names; k++)
    if (strncmp(name[k], "schedule-", 9) == 0) {
      assert_ok(atoll_path_join(path, n, folder, name[k]));
      found++;
    }
  atoll_file_list_free(&name, names);
  assert_int_equal(found, 1);
}

/* Text of a program of three nodes, of which `which` says the second. */
static char *make_small(int which, int64_t least, test_log *log) {
  atoll_rec_program *p = NULL;
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_expr(c, ATOLL_F64, "t");
  atoll_rt_sink(which ? atoll_rt_cos(x) : atoll_rt_sin(x), "log", test_collect, log);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.least = least, .compiler = ""}, &p));
  char *text = text_of(p);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  return text;
}

/* A schedule under the name of another one is believed, which shows that it is read; other parameters have other
 * names. */
static void kept_schedules_are_used(void **state) {
  (void)state;
  static test_log log;
  char path[2][1024], *data = NULL;
  size_t bytes = 0;
  char *one = make_small(0, 0, &log);
  schedule_path(path[0], sizeof path[0]);
  assert_ok(atoll_file_read(path[0], &data, &bytes));
  assert_int_equal(remove(path[0]), 0);
  char *other = make_small(1, 0, &log);
  assert_string_not_equal(one, other);
  schedule_path(path[1], sizeof path[1]);
  assert_string_not_equal(path[0], path[1]);
  assert_ok(atoll_file_publish(path[1], data, bytes));
  char *read = make_small(1, 0, &log);
  assert_string_equal(read, one);
  free(read);
  read = make_small(1, 2, &log);
  assert_string_equal(read, other);
  free(read);
  free(data);
  free(one);
  free(other);
}

/* Each test starts with an empty folder. */
static int open_folder(void **state) {
  (void)state;
  (void)snprintf(folder, sizeof folder, "/tmp/atoll-test-XXXXXX");
  return mkdtemp(folder) && setenv("ATOLL_CACHE", folder, 1) == 0 ? 0 : -1;
}

static int close_folder(void **state) {
  (void)state;
  return atoll_file_remove_tree(folder) == ATOLL_OK ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_folder, close_folder)

int main(void) {
  unsetenv("ATOLL_CC");
  const struct CMUnitTest tests[] = {
      TEST(without_a_compiler_programs_are_interpreted),
      TEST(a_compiler_that_fails_is_told),
      TEST(a_compiler_that_hangs_is_ended),
      TEST(a_unit_that_fails_ends_all),
      TEST(all_of_a_compilation_has_one_limit),
      TEST(what_a_compiler_started_is_ended_with_it),
      TEST(a_compiler_ends_with_its_program),
      TEST(old_folders_for_compiling_are_removed),
      TEST(a_folder_in_the_place_of_a_file_is_told),
      TEST(what_was_compiled_is_used_again),
      TEST(another_compiler_compiles_anew),
      TEST(another_processor_compiles_anew),
      TEST(a_folder_that_cannot_be_written_is_read),
      TEST(damaged_files_are_made_again),
      TEST(what_is_kept_is_bounded),
      TEST(what_is_used_stays),
      TEST(kept_schedules_are_those_of_passes),
      TEST(kept_schedules_are_used),
      TEST(without_a_folder_programs_are_compiled_each_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The common command line: flags, operands, options in any order; help and version whatever else is wrong; one error
 * line and the exit status of the list. Each case is a child process whose output is kept. */
#include "atoll/cli.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opt_test.h"

static const atoll_cli_flag flags[] = {{"json", "FILE", "Write the result there."},
                                       {"explain", NULL, "Say why."},
                                       {"job", "FILE", "Options."},
                                       {NULL, NULL, NULL}};
static const atoll_cli_library libraries[] = {{"MPI", "4.1.4", "4.1.4"},
                                              {"HDF5", "1.10.8", "1.10.9"},
                                              {"hwloc", "2.9", NULL},
                                              {"YAML", NULL, "0.2.5"},
                                              {NULL, NULL, NULL}};

static char folder[] = "cli-XXXXXX";
static char out_text[65536], err_text[65536], job_path[64];

static int tool(int argc, char **argv, int rank) {
  atoll_cli_params p;
  atoll_cli *cli = NULL;
  ckpt_sample ckpt;
  int done = 0;
  atoll_cli_params_init(&p);
  p.program = "atoll-sample";
  p.summary = "Does nothing, politely.";
  p.operands = "[JOB.yaml] [PATH]";
  p.max_operands = 2;
  p.job_operand = 1;
  p.job_flag = "job";
  p.flags = flags;
  p.libraries = libraries;
  p.notes = "Example: atoll-sample x.yaml";
  p.rank = rank;
  atoll_err err = atoll_cli_create(&p, &cli);
  if (err == ATOLL_OK)
    err = atoll_opts_add(atoll_cli_opts(cli), &ckpt_table, &ckpt);
  if (err == ATOLL_OK)
    err = atoll_cli_parse(cli, argc, argv, &done);
  if (err == ATOLL_OK && !done) {
    printf("job=%s json=%s explain=%s operands=%d second=%s steps=%lld\n",
           atoll_cli_job(cli) ? atoll_cli_job(cli) : "-",
           atoll_cli_value(cli, "json") ? atoll_cli_value(cli, "json") : "-",
           atoll_cli_value(cli, "explain") ? "yes" : "no", atoll_cli_operand_count(cli),
           atoll_cli_operand(cli, 1) ? atoll_cli_operand(cli, 1) : "-", (long long)ckpt.every_steps);
    if (ckpt.every_steps == 75)
      err = atoll_fail(ATOLL_STOPPED, "at step 75");
  }
  atoll_cli_destroy(&cli);
  return atoll_cli_finish(err);
}

static void read_file(const char *name, char *text, size_t n) {
  char path[64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "r");
  size_t got = f ? fread(text, 1, n - 1, f) : 0;
  text[got] = 0;
  if (f)
    fclose(f);
}

static int run_to(const char *out_path, int rank, const char *words) {
  char copy[2048], path[64], *argv[32] = {"atoll-sample"};
  int argc = 1;
  snprintf(copy, sizeof copy, "%s", words);
  for (char *save = NULL, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
    argv[argc++] = w;
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    snprintf(path, sizeof path, "%s/out", folder);
    dup2(open(out_path ? out_path : path, O_WRONLY | O_CREAT | O_TRUNC, 0666), 1);
    snprintf(path, sizeof path, "%s/err", folder);
    dup2(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    _exit(tool(argc, argv, rank));
  }
  int status = -1;
  waitpid(pid, &status, 0);
  assert_true(WIFEXITED(status));
  read_file("out", out_text, sizeof out_text);
  read_file("err", err_text, sizeof err_text);
  return WEXITSTATUS(status);
}
static int run(const char *words) { return run_to(NULL, 0, words); }

static void words_in_any_order(void **state) {
  (void)state;
  char words[256], expected[256];
  snprintf(expected, sizeof expected, "job=%s json=out.json explain=yes operands=2 second=dir/a=b steps=7\n", job_path);
  static const char *const forms[] = {"--json=out.json %s dir/a=b ckpt.every_steps=7 --explain",
                                      "ckpt.every_steps=7 %s --explain --json out.json dir/a=b",
                                      "--explain --json out.json ckpt.every_steps=7 -- %s dir/a=b"};
  for (size_t i = 0; i < 3; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(words, sizeof words, forms[i], job_path);
#pragma GCC diagnostic pop
    assert_int_equal(run(words), 0);
    assert_string_equal(out_text, expected);
    assert_string_equal(err_text, "");
  }
  assert_int_equal(run(""), 0);
  assert_string_equal(out_text, "job=- json=- explain=no operands=0 second=- steps=100\n");
  assert_int_equal(run("--job=/dev/null -- --explain ckpt.every_steps=7"),
                   64); /* two operands, the first a second job file */
  assert_non_null(strstr(err_text, "the job files '--explain' and '/dev/null'"));
  snprintf(words, sizeof words, "-- %s ckpt.every_steps=7", job_path);
  assert_int_equal(run(words), 0);
  assert_non_null(strstr(out_text, "second=ckpt.every_steps=7 steps=12"));
  snprintf(words, sizeof words, "--job=%s", job_path);
  assert_int_equal(run(words), 0);
  assert_non_null(strstr(out_text, "steps=12"));
}

static void errors_are_one_line_and_a_status(void **state) {
  (void)state;
  static const struct {
    const char *words;
    int status;
    const char *line;
  } bad[] = {
      {"--jsn=x", 64, "command line: unknown flag '--jsn=x'; did you mean '--json'?"},
      {"--explian", 64, "did you mean '--explain'?"},
      {"-json=x", 64, "unknown flag '-json=x'; did you mean '--json'?"},
      {"---json=x", 64, "unknown flag '---json=x'"},
      {"--qqqqqqqq", 64, "unknown flag '--qqqqqqqq', expected one that --help lists"},
      {"--ckpt.every_steps=5", 64, "options have no dashes: ckpt.every_steps=VALUE"},
      {"--json", 64, "--json needs a value: --json=FILE"},
      {"--json --explain", 64, "--json needs a value"},
      {"--json=", 64, "--json needs a value"},
      {"--explain=1", 64, "--explain takes no value, found '1'"},
      {"--explain --explain", 64, "--explain is given again"},
      {"a b c", 64, "found 'c', expected at most 2 operands: [JOB.yaml] [PATH]"},
      {"a b ckpt.dir", 64, "found 'ckpt.dir', expected ckpt.dir=VALUE"},
      {"ckpt.evry_steps=5", 64, "unknown key 'ckpt.evry_steps'; did you mean 'ckpt.every_steps'?"},
      {"none.yaml", 66, "open none.yaml: No such file"},
      {"none.yaml --job=x", 64, "the job files 'none.yaml' and 'x', expected one"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    atoll_err code = (atoll_err)run(bad[i].words);
    char start[64];
    snprintf(start, sizeof start, "atoll-sample: error %s: ", atoll_err_name(code));
    if ((int)code != bad[i].status || !strstr(err_text, bad[i].line) || strncmp(err_text, start, strlen(start)) ||
        *out_text)
      fail_msg("'%s' gave %d and '%s'", bad[i].words, (int)code, err_text);
    assert_ptr_equal(strchr(err_text, '\n'), err_text + strlen(err_text) - 1);
  }
  assert_int_equal(run("ckpt.every_steps=75"), 75);
  assert_string_equal(err_text, "atoll-sample: STOPPED: at step 75\n");
}

static void help_lists_flags_options_and_statuses(void **state) {
  (void)state;
  atoll_err code;
  const char *name, *text;
  assert_int_equal(run("--bogus none.yaml --help"), 0);
  assert_non_null(
      strstr(out_text, "Usage: atoll-sample [flags] [JOB.yaml] [PATH] [key=value ...]\nDoes nothing, politely.\n"));
  assert_non_null(strstr(out_text, "--json=FILE"));
  assert_non_null(strstr(out_text, "--print-config"));
  assert_non_null(strstr(out_text, "ckpt.every_steps"));
  assert_non_null(strstr(out_text, "Example: atoll-sample x.yaml\n"));
  for (int i = 0; atoll_err_entry(i, &code, &name, &text); i++) {
    char line[128];
    snprintf(line, sizeof line, "  %3d %-12s %s\n", (int)code, name, text);
    assert_non_null(strstr(out_text, line));
  }
  assert_int_equal(run("-h"), 0);
  assert_non_null(strstr(out_text, "Usage:"));
}

static void version_names_compiled_and_run(void **state) {
  (void)state;
  assert_int_equal(run("--version"), 0);
  assert_int_equal(strncmp(out_text, "atoll-sample ", 13), 0);
  assert_non_null(strstr(out_text, "\nbuild "));
  assert_non_null(strstr(out_text, "\nMPI compiled 4.1.4 , run 4.1.4\n"));
  assert_non_null(strstr(out_text, "\nHDF5 compiled 1.10.8 , run 1.10.9 (they differ)\n"));
  assert_non_null(strstr(out_text, "\nhwloc compiled 2.9 , run unknown\n"));
  assert_non_null(strstr(out_text, "\nYAML run 0.2.5\n"));
}

static void print_config_shows_the_winner(void **state) {
  (void)state;
  char words[256];
  snprintf(words, sizeof words, "--print-config %s ckpt.ratio=0.25", job_path);
  assert_int_equal(run(words), 0);
  assert_non_null(strstr(out_text, "ckpt.every_steps 12 "));
  snprintf(words, sizeof words, "# %s:1; default 100", job_path);
  assert_non_null(strstr(out_text, words));
  assert_non_null(strstr(out_text, "ckpt.ratio 0.25 "));
  assert_null(strstr(out_text, "operands="));
}

static void other_ranks_stay_silent(void **state) {
  (void)state;
  assert_int_equal(run_to(NULL, 3, "--help"), 0);
  assert_string_equal(out_text, "");
  assert_int_equal(run_to(NULL, 3, "--jsn"), 64);
  assert_string_equal(err_text, "");
}

static void lost_output_is_an_error(void **state) {
  (void)state;
  assert_int_equal(run_to("/dev/full", 0, "--help"), 74);
  assert_non_null(strstr(err_text, "error IO: write to standard output: No space left"));
  assert_int_equal(run_to("/dev/full", 0, ""), 74);
}

/* What a program without standard streams prints must not go into the next file it opens. */
static void closed_streams_are_not_given_to_files(void **state) {
  (void)state;
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    char *argv[] = {"atoll-sample", NULL};
    close(0), close(1), close(2);
    int status = tool(1, argv, 0), file = open(job_path, O_RDONLY);
    _exit(file > 2 ? status : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 74);
}

static void bad_flag_tables_are_internal(void **state) {
  (void)state;
  static const atoll_cli_flag twice[] = {{"a", NULL, ""}, {"a", NULL, ""}, {NULL, NULL, NULL}};
  static const atoll_cli_flag taken[] = {{"help", NULL, ""}, {NULL, NULL, NULL}};
  static const atoll_cli_flag *const tables[] = {twice, taken};
  atoll_cli_params p;
  atoll_cli *cli = NULL;
  for (int i = 0; i < 2; i++) {
    atoll_cli_params_init(&p);
    p.flags = tables[i];
    assert_refused_naming(atoll_cli_create(&p, &cli), ATOLL_INTERNAL, "flag table");
    assert_null(cli);
  }
  atoll_cli_params_init(&p);
  p.job_flag = "job";
  assert_refused_naming(atoll_cli_create(&p, &cli), ATOLL_INTERNAL, "job flag job is not declared");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_in_any_order),
      cmocka_unit_test(errors_are_one_line_and_a_status),
      cmocka_unit_test(help_lists_flags_options_and_statuses),
      cmocka_unit_test(version_names_compiled_and_run),
      cmocka_unit_test(print_config_shows_the_winner),
      cmocka_unit_test(other_ranks_stay_silent),
      cmocka_unit_test(lost_output_is_an_error),
      cmocka_unit_test(closed_streams_are_not_given_to_files),
      cmocka_unit_test(bad_flag_tables_are_internal),
  };
  if (!mkdtemp(folder))
    return 1;
  snprintf(job_path, sizeof job_path, "%s/job.yaml", folder);
  FILE *f = fopen(job_path, "w");
  if (!f || fputs("ckpt.every_steps: 12\n", f) < 0 || fclose(f))
    return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char command[300];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) || failed;
}

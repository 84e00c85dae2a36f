#include "atoll/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/log.h"
#include "atoll/version.h"
#include "text_impl.h"

#define FLAGS_MAX 64

/* A process has one command line; what atoll_cli_finish() prints must be known even when creating it failed. */
static struct {
  char program[64];
  int rank;
} current = {"atoll", 0};

struct atoll_cli {
  atoll_cli_params params;
  atoll_opts *opts;
  const char *names[FLAGS_MAX];  /* --help, --version, --print-config and the program's */
  const char *values[FLAGS_MAX]; /* NULL: not given */
  int flags;
  char **operands, **assignments; /* pointers into argv */
  int operand_count, assignment_count;
  const char *job;
};

enum builtin { HELP, VERSION, PRINT_CONFIG, BUILTINS };
static const atoll_cli_flag builtin_flags[BUILTINS] = {
    {"help", NULL, "Print this text."},
    {"version", NULL, "Print versions and build options."},
    {"print-config", NULL, "Print every option with its value and where it comes from."}};

void atoll_cli_params_init(atoll_cli_params *params) {
  *params = (atoll_cli_params){.program = "atoll", .summary = "", .operands = ""};
}

static const atoll_cli_flag *flag_at(const atoll_cli *cli, int i) {
  return i < BUILTINS ? &builtin_flags[i] : &cli->params.flags[i - BUILTINS];
}

static int find_flag(const atoll_cli *cli, const char *name) {
  for (int i = 0; i < cli->flags; i++)
    if (!strcmp(cli->names[i], name))
      return i;
  return -1;
}

/* A program started without standard streams would give their numbers to the next files it opens, and what it prints
 * would go into them. They are opened the wrong way round, so that using them still is an error. */
static void occupy_standard_streams(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* takes the lowest free number: fd */
}

atoll_err atoll_cli_create(const atoll_cli_params *params, atoll_cli **out) {
  occupy_standard_streams();
  snprintf(current.program, sizeof current.program, "%s", params->program);
  current.rank = params->rank;
  atoll_log_set_rank(params->rank);
  atoll_cli *cli = calloc(1, sizeof *cli);
  if (!cli)
    return atoll_fail(ATOLL_NOMEM, "command line: out of memory");
  cli->params = *params;
  atoll_err err = atoll_opts_create(&cli->opts);
  for (; err == ATOLL_OK && cli->flags < BUILTINS; cli->flags++)
    cli->names[cli->flags] = builtin_flags[cli->flags].name;
  for (const atoll_cli_flag *f = params->flags; err == ATOLL_OK && f && f->name; f++) {
    if (cli->flags == FLAGS_MAX || find_flag(cli, f->name) >= 0 || f->name[0] == '-' || strchr(f->name, '='))
      err = atoll_fail(ATOLL_INTERNAL, "flag table of %s: %s is repeated, ill-formed or beyond %d flags",
                       params->program, f->name, FLAGS_MAX);
    else
      cli->names[cli->flags++] = f->name;
  }
  if (err == ATOLL_OK && params->job_flag && find_flag(cli, params->job_flag) < BUILTINS)
    err =
        atoll_fail(ATOLL_INTERNAL, "flag table of %s: job flag %s is not declared", params->program, params->job_flag);
  if (err != ATOLL_OK) {
    atoll_cli_destroy(&cli);
    return err;
  }
  *out = cli;
  return ATOLL_OK;
}

void atoll_cli_destroy(atoll_cli **cli) {
  if (!cli || !*cli)
    return;
  atoll_opts_destroy(&(*cli)->opts);
  free((*cli)->operands);
  free((*cli)->assignments);
  free(*cli);
  *cli = NULL;
}

atoll_opts *atoll_cli_opts(atoll_cli *cli) { return cli->opts; }

/* ---- words ---- */

/* ckpt.keep=3 is an option, runs/a=b is a path. */
static int is_assignment(const char *word) {
  const char *equals = strchr(word, '=');
  if (!equals)
    return 0;
  for (const char *c = word; c < equals; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '.' || *c == '_' ||
          *c == '-'))
      return 0;
  return equals != word;
}

static atoll_err unknown_flag(const atoll_cli *cli, const char *word, const char *name) {
  char found[128];
  core_quote(word, found, sizeof found);
  /* --ckpt.keep=3 and --ckpt.keep: what other programs want. */
  if (atoll_opts_find(cli->opts, name) >= 0)
    return atoll_fail(ATOLL_USAGE, "command line: unknown flag %s; options have no dashes: %s=VALUE", found, name);
  const char *near = atoll_nearest(name, cli->names, (size_t)cli->flags);
  if (near)
    return atoll_fail(ATOLL_USAGE, "command line: unknown flag %s; did you mean '--%s'?", found, near);
  return atoll_fail(ATOLL_USAGE, "command line: unknown flag %s, expected one that --help lists", found);
}

/* A word that begins with a dash; *next is the word after it, which a value flag may take. */
static atoll_err read_flag(atoll_cli *cli, const char *word, const char *next, int *taken) {
  char name[128];
  const char *start = word + strspn(word, "-"), *equals = strchr(start, '=');
  size_t n = equals ? (size_t)(equals - start) : strlen(start);
  if (n >= sizeof name)
    n = sizeof name - 1;
  memcpy(name, start, n);
  name[n] = 0;
  if (!strcmp(word, "-h") || !strcmp(word, "-V"))
    snprintf(name, sizeof name, "%s", word[1] == 'h' ? "help" : "version");
  else if (strncmp(word, "--", 2) || start != word + 2)
    return unknown_flag(cli, word, name);
  int i = find_flag(cli, name);
  if (i < 0)
    return unknown_flag(cli, word, name);
  const char *value_name = flag_at(cli, i)->value_name, *value = equals ? equals + 1 : NULL;
  if (!value_name && value)
    return atoll_fail(ATOLL_USAGE, "command line: --%s takes no value, found '%.60s'", name, value);
  if (value_name && !value && next && strncmp(next, "--", 2)) {
    value = next;
    *taken = 1;
  }
  if (value_name && (!value || !*value))
    return atoll_fail(ATOLL_USAGE, "command line: --%s needs a value: --%s=%s", name, name, value_name);
  if (cli->values[i])
    return atoll_fail(ATOLL_USAGE, "command line: --%s is given again, expected once", name);
  cli->values[i] = value_name ? value : "";
  return ATOLL_OK;
}

static atoll_err read_words(atoll_cli *cli, int argc, char **argv) {
  cli->operands = malloc(((size_t)argc + 1) * sizeof *cli->operands);
  cli->assignments = malloc(((size_t)argc + 1) * sizeof *cli->assignments);
  if (!cli->operands || !cli->assignments)
    return atoll_fail(ATOLL_NOMEM, "command line: out of memory");
  int only_operands = 0;
  for (int i = 1; i < argc; i++) {
    char *word = argv[i];
    int taken = 0;
    if (!only_operands && !strcmp(word, "--"))
      only_operands = 1;
    else if (!only_operands && word[0] == '-' && word[1])
      ATOLL_TRY(read_flag(cli, word, i + 1 < argc ? argv[i + 1] : NULL, &taken));
    else if (!only_operands && is_assignment(word))
      cli->assignments[cli->assignment_count++] = word;
    else
      cli->operands[cli->operand_count++] = word;
    i += taken;
  }
  return ATOLL_OK;
}

static atoll_err check_operands(const atoll_cli *cli) {
  const atoll_cli_params *p = &cli->params;
  char found[128];
  if (cli->operand_count > p->max_operands) {
    const char *word = cli->operands[p->max_operands];
    core_quote(word, found, sizeof found);
    if (atoll_opts_find(cli->opts, word) >= 0)
      return atoll_fail(ATOLL_USAGE, "command line: found %s, expected %s=VALUE", found, word);
    return atoll_fail(ATOLL_USAGE, "command line: found %s, expected at most %d operands: %s", found, p->max_operands,
                      *p->operands ? p->operands : "none");
  }
  if (cli->operand_count < p->min_operands)
    return atoll_fail(ATOLL_USAGE, "command line: found %d operands, expected: %s %s", cli->operand_count, p->program,
                      p->operands);
  return ATOLL_OK;
}

/* ---- what is printed ---- */

static void print_flag(const atoll_cli_flag *flag) {
  char left[96];
  snprintf(left, sizeof left, "--%s%s%s", flag->name, flag->value_name ? "=" : "",
           flag->value_name ? flag->value_name : "");
  printf("  %-24s %s\n", left, flag->help);
}

static void print_help(const atoll_cli *cli) {
  const atoll_cli_params *p = &cli->params;
  const int has_options = atoll_opts_count(cli->opts) > 0;
  atoll_err code;
  const char *name, *text;
  printf("Usage: %s [flags]%s%s%s\n%s\n\nFlags\n", p->program, *p->operands ? " " : "", p->operands,
         has_options ? " [key=value ...]" : "", p->summary);
  for (int i = BUILTINS; i < cli->flags; i++)
    print_flag(flag_at(cli, i));
  for (int i = 0; i < BUILTINS; i++)
    print_flag(&builtin_flags[i]);
  if (has_options) {
    printf("\nOptions: default, then included file, job file, environment (ATOLL_CKPT_KEEP for ckpt.keep), key=value; "
           "the last wins.\n\n");
    atoll_opts_help(cli->opts, stdout);
  }
  printf("\nEnvironment\n  ATOLL_LOG=error|warn|info|debug   what goes to the log file of each rank (default info)\n"
         "  ATOLL_CACHE=FOLDER                what was measured or compiled here before (default ~/.cache/atoll)\n"
         "  ATOLL_PLUGIN_PATH=FILE:FILE       plug-ins besides the installed ones\n");
  printf("\nExit status\n");
  for (int i = 0; atoll_err_entry(i, &code, &name, &text); i++)
    printf("  %3d %-12s %s\n", (int)code, name, text);
  if (p->notes)
    printf("\n%s%s", p->notes, *p->notes && p->notes[strlen(p->notes) - 1] == '\n' ? "" : "\n");
}

static void print_version(const atoll_cli *cli) {
  printf("%s %s\nbuild %s\n", cli->params.program, atoll_version(), atoll_version_build());
  for (const atoll_cli_library *l = cli->params.libraries; l && l->name; l++) {
    int differ = l->run && l->compiled && strcmp(l->run, l->compiled) != 0;
    if (l->compiled)
      printf("%s compiled %s , run %s%s\n", l->name, l->compiled, l->run ? l->run : "unknown",
             differ ? " (they differ)" : "");
    else
      printf("%s run %s\n", l->name, l->run ? l->run : "unknown");
  }
}

static atoll_err flush_output(void) {
  errno = 0;
  if (fflush(stdout) || ferror(stdout))
    return atoll_fail(ATOLL_IO, "write to standard output: %s", errno ? strerror(errno) : "an earlier write failed");
  return ATOLL_OK;
}

static atoll_err load_options(atoll_cli *cli) {
  const atoll_cli_params *p = &cli->params;
  if (p->job_operand && cli->operand_count)
    cli->job = cli->operands[0];
  const char *by_flag = p->job_flag ? atoll_cli_value(cli, p->job_flag) : NULL;
  if (by_flag && cli->job)
    return atoll_fail(ATOLL_USAGE, "command line: found the job files '%.200s' and '%.200s', expected one", cli->job,
                      by_flag);
  if (by_flag)
    cli->job = by_flag;
  if (cli->job)
    ATOLL_TRY(atoll_opts_load_file(cli->opts, cli->job));
  ATOLL_TRY(atoll_opts_load_env(cli->opts));
  for (int i = 0; i < cli->assignment_count; i++)
    ATOLL_TRY(atoll_opts_set(cli->opts, cli->assignments[i]));
  return ATOLL_OK;
}

atoll_err atoll_cli_parse(atoll_cli *cli, int argc, char **argv, int *done) {
  const int prints = cli->params.rank == 0;
  /* Help is given whatever else is wrong with the words. */
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
    int help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"),
        version = !strcmp(argv[i], "--version") || !strcmp(argv[i], "-V");
    if (!help && !version)
      continue;
    if (prints && help)
      print_help(cli);
    else if (prints)
      print_version(cli);
    ATOLL_TRY(flush_output());
    *done = 1;
    return ATOLL_OK;
  }
  free(cli->operands);
  free(cli->assignments);
  cli->operands = cli->assignments = NULL;
  cli->operand_count = cli->assignment_count = 0;
  cli->job = NULL;
  memset(cli->values, 0, sizeof cli->values);
  ATOLL_TRY(read_words(cli, argc, argv));
  ATOLL_TRY(check_operands(cli));
  ATOLL_TRY(load_options(cli));
  const int show = cli->values[PRINT_CONFIG] != NULL;
  if (show && prints) {
    atoll_opts_print(cli->opts, stdout);
    ATOLL_TRY(flush_output());
  }
  *done = show;
  return ATOLL_OK;
}

const char *atoll_cli_value(const atoll_cli *cli, const char *flag) {
  int i = find_flag(cli, flag);
  return i < 0 ? NULL : cli->values[i];
}

int atoll_cli_operand_count(const atoll_cli *cli) { return cli->operand_count; }
const char *atoll_cli_operand(const atoll_cli *cli, int i) {
  return i >= 0 && i < cli->operand_count ? cli->operands[i] : NULL;
}
const char *atoll_cli_job(const atoll_cli *cli) { return cli->job; }

int atoll_cli_finish(atoll_err err) {
  atoll_log_flush();
  if (err == ATOLL_OK)
    err = flush_output();
  if (err != ATOLL_OK) {
    const char *message = *atoll_err_message() ? atoll_err_message() : atoll_err_text(err);
    /* A stop with a good checkpoint is an outcome rather than an error. */
    if (current.rank == 0) {
      fprintf(stderr, "%s: %s%s: %s\n", current.program, err == ATOLL_STOPPED ? "" : "error ", atoll_err_name(err),
              message);
      fflush(stderr);
    }
    atoll_log(ATOLL_LOG_INFO, "exit %s %d : %s (%s)", atoll_err_name(err), (int)err, message, atoll_err_where());
  }
  atoll_log_close();
  return (int)err;
}

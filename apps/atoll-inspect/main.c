/* atoll-inspect: look at a run or a checkpoint; no MPI, also while the job runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/cli.h"
#include "atoll/log.h"
#include "inspect.h"

static const atoll_cli_flag flags[] = {
    {"json", NULL, "All but plot and stop: print JSON alone."},
    {"csv", NULL, "metrics, export: print CSV alone."},
    {"all", NULL, "metrics, export: rows that a later attempt replaced, too."},
    {"out", "FILE", "metrics, export, counters, memory: write there instead of standard output."},
    {"terminal", NULL, "plot: draw in the terminal (the default)."},
    {"svg", "FILE", "plot: draw an SVG."},
    {"png", "FILE", "plot: draw a PNG."},
    {"tolerance", "X", "diff: relative difference that still counts as equal; default 0, bit for bit."},
    {NULL, NULL, NULL},
};

static const char notes[] =
    "Commands:\n"
    "  ls PATH          state, checkpoints and datasets of a run, or the datasets of one file\n"
    "  status RUN       where it stands and why; exit status 0 finished, 75 requeue, 72 running, 66 absent, else what "
    "it failed with\n"
    "  verify PATH      a checkpoint directory, a run or a run file: exit status 0, or 65 and the damage in words\n"
    "  metrics RUN      one row a step\n"
    "  counters RUN     regions: minimum, mean, maximum over ranks, imbalance = maximum / mean\n"
    "  memory RUN       predicted against measured, by rank and category\n"
    "  plot RUN         loss curve (gnuplot)\n"
    "  export RUN       CSV or JSON of the metrics\n"
    "  diff RUN RUN     whether two runs trained alike: exit status 0, or 76 where they differ\n"
    "  stop RUN         ask a running job to stop with a checkpoint\n";

static const struct {
  const char *name, *flags; /* those it reads, between spaces */
} commands[] = {{"ls", " json "},
                {"status", " json "},
                {"verify", " json "},
                {"metrics", " json csv all out "},
                {"counters", " json out "},
                {"memory", " json out "},
                {"plot", " terminal svg png "},
                {"export", " json csv all out "},
                {"diff", " json tolerance "},
                {"stop", " "}};
#define COMMANDS (sizeof commands / sizeof *commands)

static atoll_err find_command(const char *name, size_t *k) {
  const char *names[COMMANDS];
  for (*k = 0; *k < COMMANDS; ++*k) {
    names[*k] = commands[*k].name;
    if (!strcmp(names[*k], name))
      return ATOLL_OK;
  }
  const char *near = atoll_nearest(name, names, COMMANDS);
  return atoll_fail(ATOLL_USAGE, "unknown command '%s'%s%s%s; --help lists them", name, near ? ", did you mean '" : "",
                    near ? near : "", near ? "'?" : "");
}

/* A flag that a command does not read would promise what does not happen; so would the first of two forms. */
static atoll_err check_flags(const atoll_cli *cli, size_t k) {
  static const char *const forms[] = {"json", "csv", "terminal", "svg", "png"};
  const char *form = NULL;
  for (const atoll_cli_flag *f = flags; f->name; f++) {
    char word[32];
    snprintf(word, sizeof word, " %s ", f->name);
    if (atoll_cli_value(cli, f->name) && !strstr(commands[k].flags, word))
      return atoll_fail(ATOLL_USAGE, "%s takes no --%s; its flags:%s", commands[k].name, f->name,
                        commands[k].flags[1] ? commands[k].flags : " none");
  }
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (!atoll_cli_value(cli, forms[i]))
      continue;
    if (form)
      return atoll_fail(ATOLL_USAGE, "found --%s and --%s, expected one of them", form, forms[i]);
    form = forms[i];
  }
  return ATOLL_OK;
}

static atoll_err run(const atoll_cli *cli, atoll_err *verdict) {
  const char *command = atoll_cli_operand(cli, 0), *path = atoll_cli_operand(cli, 1),
             *other = atoll_cli_operand(cli, 2);
  size_t k;
  ATOLL_TRY(find_command(command, &k));
  ATOLL_TRY(check_flags(cli, k));
  const char *tolerance = atoll_cli_value(cli, "tolerance");
  inspect_options o = {.out = atoll_cli_value(cli, "out"),
                       .format = "text",
                       .svg = atoll_cli_value(cli, "svg"),
                       .png = atoll_cli_value(cli, "png")};
  o.terminal = atoll_cli_value(cli, "terminal") != NULL;
  o.all = atoll_cli_value(cli, "all") != NULL;
  o.json = atoll_cli_value(cli, "json") != NULL;
  if (o.json)
    o.format = "json";
  else if (atoll_cli_value(cli, "csv"))
    o.format = "csv";
  if (tolerance && (atoll_parse_real(tolerance, &o.tolerance) != 0 || o.tolerance < 0))
    return atoll_fail(ATOLL_USAGE, "--tolerance: '%s' is not a number of at least 0", tolerance);
  if (!path)
    return atoll_fail(ATOLL_USAGE, "%s needs a path", command);
  if ((other != NULL) != !strcmp(command, "diff"))
    return atoll_fail(ATOLL_USAGE,
                      !strcmp(command, "diff") ? "diff needs two runs" : "%s takes one path, found also '%s'", command,
                      other ? other : "");
  int differences = 0;
  switch (k) {
  case 0:
    return inspect_ls(path, &o);
  case 1:
    return inspect_status(path, &o, verdict);
  case 2:
    return inspect_verify(path, &o);
  case 3:
    return inspect_metrics(path, &o);
  case 4:
    return inspect_counters(path, &o);
  case 5:
    return inspect_memory(path, &o);
  case 6:
    return inspect_plot(path, &o);
  case 7:
    return inspect_export(path, &o);
  case 8:
    ATOLL_TRY(inspect_diff(path, other, &o, &differences));
    *verdict = differences ? ATOLL_MISMATCH : ATOLL_OK;
    return ATOLL_OK;
  default:
    return inspect_stop(path, &o);
  }
}

int main(int argc, char **argv) {
  const atoll_cli_library libraries[] = {{"HDF5", NULL, atoll_store_library()}, {NULL, NULL, NULL}};
  atoll_cli_params p;
  atoll_cli *cli = NULL;
  atoll_err verdict = ATOLL_OK;
  int done = 0;
  atoll_cli_params_init(&p);
  p.program = "atoll-inspect";
  p.summary = "Look at a run or a checkpoint, also while the job runs.";
  p.operands = "COMMAND PATH [PATH]";
  p.min_operands = 1;
  p.max_operands = 3;
  p.flags = flags;
  p.libraries = libraries;
  p.notes = notes;
  atoll_err err = atoll_cli_create(&p, &cli);
  if (err == ATOLL_OK)
    err = atoll_cli_parse(cli, argc, argv, &done);
  if (err == ATOLL_OK && !done)
    err = run(cli, &verdict);
  int status = atoll_cli_finish(err);
  atoll_cli_destroy(&cli);
  return status ? status : (int)verdict; /* a verdict is an answer, not an error: it has no message */
}

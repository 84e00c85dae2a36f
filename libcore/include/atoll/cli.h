/** The common command line of every program:
 *
 *    PROGRAM [--help] [--version] [--print-config] [flags of the program] [operands] [key=value ...]
 *
 *  A program's main is always the same four steps:
 *
 *    atoll_cli_params_init(&p); p.program = "atoll-plan"; p.flags = flags; p.job_operand = 1; ...
 *    ATOLL_TRY(atoll_cli_create(&p, &cli));
 *    ATOLL_TRY(atoll_opts_add(atoll_cli_opts(cli), &atoll_plan_options, &plan_params));    (one per table)
 *    ATOLL_TRY(atoll_cli_parse(cli, argc, argv, &done));    then work unless done
 *    return atoll_cli_finish(err);                          from main alone
 *
 *  Words: `--name` and `-h`, `-V` are flags, a value follows as `--name=value` or `--name value`; `key=value` with a
 * key of letters, digits, dots and underscores is an option; everything else, and all words after `--`, are operands.
 * Flags and words may come in any order. See also: opt.h, err.h (exit statuses). */
#ifndef ATOLL_CLI_H
#define ATOLL_CLI_H

#include "atoll/err.h"
#include "atoll/opt.h"

ATOLL_BEGIN_C

typedef struct atoll_cli_flag {
  const char *name;       /* without dashes: "json"; NULL ends the table */
  const char *value_name; /* "FILE" when a value is required, NULL for a plain flag */
  const char *help;       /* one sentence */
} atoll_cli_flag;

/** A library's version when compiled and when run, for --version; NULL for the one that is not known. name NULL ends
 * the list. */
typedef struct atoll_cli_library {
  const char *name, *compiled, *run;
} atoll_cli_library;

/** Everything is borrowed for the life of the command line. */
typedef struct atoll_cli_params {
  const char *program;                /* "atoll-train" */
  const char *summary;                /* one sentence */
  const char *operands;               /* as shown in the usage line: "[JOB.yaml]", "COMMAND PATH" */
  int min_operands, max_operands;     /* default 0, 0 */
  int job_operand;                    /* 1: the first operand, when given, is a file of options */
  const char *job_flag;               /* name of a flag whose value is a file of options, or NULL */
  const atoll_cli_flag *flags;        /* may be NULL */
  const atoll_cli_library *libraries; /* may be NULL */
  const char *notes;                  /* more help: examples, files; may be NULL */
  int rank;                           /* only rank 0 prints; default 0 */
} atoll_cli_params;

typedef struct atoll_cli atoll_cli;

ATOLL_API void atoll_cli_params_init(atoll_cli_params *params);
/** Local. *cli is owned. INTERNAL when the flag table is ill-formed. */
ATOLL_API atoll_err atoll_cli_create(const atoll_cli_params *params, atoll_cli **cli);
ATOLL_API void atoll_cli_destroy(atoll_cli **cli);
/** The options of this program, empty at first; borrowed from cli. */
ATOLL_API atoll_opts *atoll_cli_opts(atoll_cli *cli);

/** Local. Read the words, then the job file, the environment and the key=value words, in that rank.
 *  argv is borrowed for the life of cli. *done is 1 after --help, --version and --print-config, which print to standard
 * output. USAGE: unknown, repeated or incomplete flag, wrong number of operands, bad option. NOINPUT: job file. IO:
 * output not written. */
ATOLL_API atoll_err atoll_cli_parse(atoll_cli *cli, int argc, char **argv, int *done);

/** Value of a flag, "" for a plain one, NULL when it was not given. Borrowed. INTERNAL use of an undeclared name gives
 * NULL. */
ATOLL_API const char *atoll_cli_value(const atoll_cli *cli, const char *flag);
ATOLL_API int atoll_cli_operand_count(const atoll_cli *cli);
/** The i-th operand, NULL past the end. Borrowed. */
ATOLL_API const char *atoll_cli_operand(const atoll_cli *cli, int i);
/** Path of the job file that was read, NULL when there was none. Borrowed. */
ATOLL_API const char *atoll_cli_job(const atoll_cli *cli);

/** What main returns: the exit status of err. Unless OK, rank 0 prints "PROGRAM: error NAME: message" to standard
 * error, once, and the other ranks write it to their log file. Flushes the log and standard output; OK becomes IO when
 * that output could not be written. */
ATOLL_API int atoll_cli_finish(atoll_err err);

ATOLL_END_C
#endif

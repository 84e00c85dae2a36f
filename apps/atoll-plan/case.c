#include "case.h"

#include <stdio.h>
#include <stdlib.h>

#include "atoll/case.h"
#include "atoll/file.h"

static atoll_err make(const char *path, const char *data, const char *lose, const char *add, atoll_case **c,
                      atoll_case_plan **plan) {
  ATOLL_TRY(atoll_case_load(path, data, lose, add, c));
  return atoll_case_make(*c, plan);
}

static atoll_err save(const atoll_case_plan *plan, const char *path) {
  char *text = NULL;
  size_t bytes = 0;
  ATOLL_TRY(atoll_case_plan_text(plan, &text, &bytes));
  atoll_err err = atoll_file_replace(path, text, bytes);
  free(text);
  return err;
}

/* What belongs to a job would be ignored. */
static atoll_err check(const atoll_cli *cli) {
  static const char *const others[] = {"islands", "yaml",    "save",     "hdf5", "trace",
                                       "gantt",   "profile", "accuracy", "json"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (atoll_cli_value(cli, others[i]))
      return atoll_fail(ATOLL_USAGE, "--%s does not go with --case", others[i]);
  if (atoll_cli_job(cli))
    return atoll_fail(ATOLL_USAGE, "--case takes no job file, '%s' was given", atoll_cli_job(cli));
  if (!atoll_cli_value(cli, "case"))
    return atoll_fail(ATOLL_USAGE, "--lose and --add belong to --case FILE");
  return atoll_cli_value(cli, "profiles")
             ? ATOLL_OK
             : atoll_fail(ATOLL_USAGE, "--case needs --profiles DIR, the folder with profiles/, network.json and "
                                       "transfer_price.json");
}

atoll_err plan_case(const atoll_cli *cli, int rank) {
  const char *path = atoll_cli_value(cli, "case"), *data = atoll_cli_value(cli, "profiles"),
             *judge = atoll_cli_value(cli, "judge"), *lose = atoll_cli_value(cli, "lose"),
             *add = atoll_cli_value(cli, "add");
  atoll_case *c = NULL, *was = NULL;
  atoll_case_plan *plan = NULL, *before = NULL;
  ATOLL_TRY(check(cli));
  if (rank > 0)
    return ATOLL_OK;
  atoll_err err = ATOLL_OK;
  if (lose || add)
    err = make(path, data, NULL, NULL, &was, &before);
  if (err == ATOLL_OK)
    err = make(path, data, lose, add, &c, &plan);
  if (err == ATOLL_OK && judge)
    err = save(plan, judge);
  if (err == ATOLL_OK) {
    atoll_case_plan_print(plan, atoll_cli_value(cli, "explain") != NULL, stdout);
    if (before) {
      printf("\n");
      atoll_case_plan_compare(before, plan, stdout);
    }
  }
  atoll_case_plan_destroy(&before);
  atoll_case_plan_destroy(&plan);
  atoll_case_destroy(&was);
  atoll_case_destroy(&c);
  return err;
}

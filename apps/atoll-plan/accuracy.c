/* atoll-plan --accuracy: costs held against runs that somebody measured. */
#include <stdio.h>
#include <stdlib.h>

#include "atoll/accuracy.h"
#include "atoll/file.h"
#include "programs.h"

atoll_err plan_accuracy(const atoll_cli *cli) {
  const char *data = atoll_cli_value(cli, "profiles"), *json = atoll_cli_value(cli, "json");
  if (!data)
    return atoll_fail(ATOLL_USAGE, "--accuracy needs --profiles DIR: the profiles of the models that were measured");
  atoll_accuracy *accuracy = NULL;
  char *text = NULL;
  size_t bytes = 0;
  ATOLL_TRY(atoll_accuracy_create(atoll_cli_value(cli, "accuracy"), data, &accuracy));
  atoll_err err = json ? atoll_accuracy_text(accuracy, &text, &bytes) : ATOLL_OK;
  if (err == ATOLL_OK)
    atoll_accuracy_print(accuracy, atoll_cli_value(cli, "explain") != NULL, stdout);
  if (err == ATOLL_OK && json)
    err = atoll_file_replace(json, text, bytes);
  free(text);
  atoll_accuracy_destroy(&accuracy);
  return err;
}

/* atoll-plan --facts: recorded plans by our model, and ours beside them. */
#include "atoll/facts.h"

#include "programs.h"

atoll_err plan_facts(const atoll_cli *cli) {
  const char *path = atoll_cli_value(cli, "facts");
  atoll_facts *facts = NULL;
  int failures;
  ATOLL_TRY(atoll_facts_load(path, &facts));
  atoll_facts_print(facts, stdout, &failures);
  atoll_facts_destroy(&facts);
  return failures ? atoll_fail(ATOLL_MISMATCH, "%s: %d figures are further off than they may be", path, failures)
                  : ATOLL_OK;
}

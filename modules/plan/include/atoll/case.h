/** Planning cases in a form that other planners are compared in, too: a cluster, a model and a batch, priced by
 * imported profiles. No topology, no job file: a case file and a folder of data are all that is read.
 *
 *  CASE.json   name, model, global_batch, objective, cluster [{gpu, zone, count, gpus_per_node}]; `recorded`,
 *              `search_seconds`, `best_known_iterations_per_s` and `note` are for people and are not read
 *  DATA/       profiles/MODEL.json, network.json, transfer_price.json
 *
 *  Cost: the additive form of the Sailor simulator (SOSP 2025) with a count of micro-batches of every stage's own; see
 *  src/cases/costs.c for the formulas. */
#ifndef ATOLL_CASE_H
#define ATOLL_CASE_H

#include <stdio.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_case atoll_case;

/** Local. Reads and checks a case and the data it needs. *out is owned: atoll_case_destroy().
 *  lose, add: devices that are gone or came since, as "GPU ZONE COUNT", several separated by commas; NULL for none.
 * Added devices of a GPU that the cluster has in another zone come in nodes like those. NOINPUT: a file is missing.
 * USAGE: malformed, an unknown or repeated key, a number out of range (names file and key), or a change the cluster
 * cannot take. */
ATOLL_API atoll_err atoll_case_load(const char *path, const char *data, const char *lose, const char *add,
                                    atoll_case **out);
ATOLL_API void atoll_case_destroy(atoll_case **c);

/** Seconds and dollars of a step. price_per_iteration is NaN when a device has no price in its zone. */
typedef struct atoll_case_score {
  int fits; /* bytes of every stage are within the device's */
  double iteration_seconds, price_per_iteration, transfer_price;
} atoll_case_score;
/** Score a plan in the scorer's form, text of `bytes` bytes; `name` is for messages. Devices are checked against the
 *  case's cluster. USAGE: not a plan of this case. INFEASIBLE: more devices than there are. */
ATOLL_API atoll_err atoll_case_score_text(const atoll_case *c, const char *name, const char *text, size_t bytes,
                                          atoll_case_score *score);

typedef struct atoll_case_plan atoll_case_plan;
/** Local and deterministic. The best plan by the case's objective, owned: atoll_case_plan_destroy(). INFEASIBLE: names
 *  the layer, its bytes and the largest device, or the limit that cannot be met. `c` is borrowed for the plan's life.
 */
ATOLL_API atoll_err atoll_case_make(const atoll_case *c, atoll_case_plan **out);
ATOLL_API void atoll_case_plan_destroy(atoll_case_plan **plan);
ATOLL_API atoll_case_score atoll_case_plan_score(const atoll_case_plan *plan);
/** The scorer's form. *text is owned: free(). */
ATOLL_API atoll_err atoll_case_plan_text(const atoll_case_plan *plan, char **text, size_t *bytes);
/** Stages, times, price and what is left idle; explain adds where time and bytes go and what was rejected. */
ATOLL_API void atoll_case_plan_print(const atoll_case_plan *plan, int explain, FILE *f);
/** What changed from `before` to `after`, stage by stage. */
ATOLL_API void atoll_case_plan_compare(const atoll_case_plan *before, const atoll_case_plan *after, FILE *f);

ATOLL_END_C
#endif

/* Devices lost or added: the cluster without them, and what changes in the plan. */
#ifndef ATOLL_APP_PLAN_CHANGE_H
#define ATOLL_APP_PLAN_CHANGE_H

#include "atoll/plan.h"

/* Islands without some devices: `text` is words, each the name of a node, of an island, or ISLAND:COUNT for the last
 * COUNT devices of one. USAGE names a word that is none of them. */
atoll_err change_islands(const atoll_topo *topo, const atoll_islands *islands, const char *text, atoll_islands **out);

/* What differs between two plans of one job; reports may be NULL. */
void change_print(const atoll_plan *before, const atoll_plan_report *before_report, const atoll_plan *after,
                  const atoll_plan_report *after_report, const atoll_islands *islands, FILE *f);

#endif

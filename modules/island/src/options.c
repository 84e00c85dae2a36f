#include "atoll/island.h"

#include <stddef.h>

#define AT(field) offsetof(atoll_island_params, field)

static const atoll_opt_def defs[] = {{"split_gap", ATOLL_OPT_REAL, AT(split_gap), "0.1", "0..1", "",
                                      "relative gap of median rates below which like devices never split"},
                                     {"spread_factor", ATOLL_OPT_REAL, AT(spread_factor), "4", "0..1000", "",
                                      "combined spreads that the gap must exceed"},
                                     {"near_ratio", ATOLL_OPT_REAL, AT(near_ratio), "0.1", "0..1", "",
                                      "a link below this share of the island's best bandwidth separates"},
                                     {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL}};

const atoll_opt_table atoll_island_options = {"island", defs};

void atoll_island_params_init(atoll_island_params *p) { (void)atoll_opt_defaults(&atoll_island_options, p); }

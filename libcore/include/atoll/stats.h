/** Order statistics of doubles, none of them NaN. */
#ifndef ATOLL_STATS_H
#define ATOLL_STATS_H

#include <stddef.h>

#include "atoll/api.h"

ATOLL_BEGIN_C

/** Ascending. */
ATOLL_API void atoll_sort(double *v, size_t n);
/** Quantile q in [0, 1] of n ascending values, on the line between neighbours (definition 7 of Hyndman and Fan, "Sample
 *  quantiles in statistical packages", 1996; numpy's default); 0 when n = 0. */
ATOLL_API double atoll_quantile(const double *v, size_t n, double q);
/** Sorts v; 0 when n = 0. */
ATOLL_API double atoll_median(double *v, size_t n);

ATOLL_END_C
#endif

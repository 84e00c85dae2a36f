#include "atoll/stats.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void atoll_sort(double *v, size_t n) {
  if (n > 1)
    qsort(v, n, sizeof *v, ascending);
}

double atoll_quantile(const double *v, size_t n, double q) {
  if (n == 0)
    return 0;
  double at = q * (double)(n - 1);
  size_t i = (size_t)at;
  return i + 1 < n ? v[i] + (at - (double)i) * (v[i + 1] - v[i]) : v[n - 1];
}

double atoll_median(double *v, size_t n) {
  atoll_sort(v, n);
  return atoll_quantile(v, n, 0.5);
}

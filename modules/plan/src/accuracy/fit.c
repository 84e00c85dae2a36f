/* Constants from measured runs: Huber's estimator (1964) of relative errors, by iteratively reweighted least squares
 * (Holland and Welsch 1977). Errors within one per cent count as squares; larger ones by their size, so that one run
 * that was measured or profiled badly does not decide for all.
 *
 * A prediction is linear in its constants once it is known which stage decides; that depends on the constants, so each
 * round also asks again. Rounds end when constants stand still; some forty are enough from anywhere, and a pair of
 * stages that takes turns ends at the limit, where either is as good. */
#include <math.h>
#include <stdlib.h>

#include "accuracy/accuracy.h"
#include "plan_impl.h"

#define SMALL_ERROR 0.01
#define ROUNDS      200
#define STANDSTILL  1e-12

/* Householder's QR; k is small and n a few dozen, so the plainest form will do. */
atoll_err accuracy_least_squares(int n, int k, double *A, double *y, double *x) {
  double size = 0;
  for (int i = 0; i < n * k; i++)
    size = fmax(size, fabs(A[i]));
  for (int j = 0; j < k; j++) {
    double norm = 0;
    for (int i = j; i < n; i++)
      norm = hypot(norm, A[i * k + j]);
    if (!(norm > 1e-10 * size))
      return atoll_fail(ATOLL_USAGE, "%d runs do not determine %d constants: they differ too little", n, k);
    double head = A[j * k + j], alpha = head > 0 ? -norm : norm, v0 = head - alpha;
    /* H = I - 2 v v' / v'v with v = column - alpha e_j, and v'v = 2 norm (norm + |head|) */
    double half = norm * (norm + fabs(head));
    A[j * k + j] = v0;
    for (int c = j + 1; c <= k; c++) { /* the last column is y */
      double *col = c < k ? A + c : y, dot = 0;
      int step = c < k ? k : 1;
      for (int i = j; i < n; i++)
        dot += A[i * k + j] * col[i * step];
      for (int i = j; i < n; i++)
        col[i * step] -= dot / half * A[i * k + j];
    }
    A[j * k + j] = alpha;
  }
  for (int j = k - 1; j >= 0; j--) {
    x[j] = y[j];
    for (int c = j + 1; c < k; c++)
      x[j] -= A[j * k + c] * x[c];
    x[j] /= A[j * k + j];
  }
  return ATOLL_OK;
}

static atoll_err fit_round(const accuracy_run *run, int runs, int without, atoll_accuracy_what what, int first,
                           double *constant, double *A, double *y, double *moved) {
  int k = accuracy_constant_count(what), n = 0;
  double next[ACCURACY_CONSTANTS], scale[ACCURACY_CONSTANTS] = {0};
  for (int r = 0; r < runs; r++) {
    double base, term[ACCURACY_CONSTANTS], measured = run[r].measured[what], error = -1;
    if (r == without)
      continue;
    accuracy_terms(&run[r], what, constant, &base, term);
    for (int i = 0; i < k; i++) {
      A[n * k + i] = term[i] / measured;
      error += A[n * k + i] * constant[i];
    }
    error += base / measured;
    double weight = first ? 1 : sqrt(1 / fmax(fabs(error), SMALL_ERROR));
    for (int i = 0; i < k; i++)
      scale[i] = fmax(scale[i], fabs(A[n * k + i] *= weight));
    y[n++] = weight * (1 - base / measured);
  }
  /* Columns of one size: bytes and ratios stand side by side. */
  for (int i = 0; i < n * k; i++)
    A[i] = scale[i % k] > 0 ? A[i] / scale[i % k] : 0;
  ATOLL_TRY(n >= k ? accuracy_least_squares(n, k, A, y, next)
                   : atoll_fail(ATOLL_USAGE, "%d runs are too few to fit %d constants", n, k));
  *moved = 0;
  for (int i = 0; i < k; i++) {
    next[i] /= scale[i];
    *moved = fmax(*moved, fabs(next[i] - constant[i]) * scale[i]);
    constant[i] = next[i];
  }
  return ATOLL_OK;
}

atoll_err accuracy_fit(const accuracy_run *run, int runs, int without, atoll_accuracy_what what,
                       double constant[ACCURACY_CONSTANTS]) {
  double *A = NULL, *y = NULL, moved = INFINITY;
  atoll_err err;
  for (int k = 0; k < accuracy_constant_count(what); k++)
    constant[k] = accuracy_constant_at(what, k)->neutral;
  ATOLL_TRY(plan_alloc((size_t)runs * ACCURACY_CONSTANTS, sizeof *A, &A));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)runs, sizeof *y, &y));
  for (int round = 0; round < ROUNDS && moved > STANDSTILL; round++)
    ATOLL_TRY_GOTO(err, done, fit_round(run, runs, without, what, round == 0, constant, A, y, &moved));
done:
  free(A);
  free(y);
  return err;
}

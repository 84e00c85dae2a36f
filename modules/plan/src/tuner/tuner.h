/* The Pareto frontier (t, d) of a product of choices under a memory limit, by evaluating expressions over all of them
 * (Zhu et al., Mist, EuroSys 2025, intra-stage tuning; there the frontier is sampled, here it is whole).
 *
 * The space is a product of axes, each a list of integers for one variable, beside variables that are fixed for a call.
 * Candidates are evaluated in blocks of columns: first the constraint and the bytes, then the times of what fits. */
#ifndef ATOLL_PLAN_TUNER_H
#define ATOLL_PLAN_TUNER_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/sym.h"

#define TUNER_AXES 12

typedef struct tuner_expressions { /* all of one pool, which outlives the tuner */
  const atoll_sym *allowed;        /* bool; NULL: everything */
  const atoll_sym *bytes;          /* int: peak of a rank */
  const atoll_sym *t, *d;          /* real: s per micro-batch, extra s per step */
} tuner_expressions;

typedef struct tuner_axis {
  const char *name; /* an int variable */
  int n;
  const int64_t *value;
} tuner_axis;

typedef struct tuner_fixed {
  const char *name;
  atoll_sym_value value;
} tuner_fixed;

typedef struct tuner_point {
  double t, d; /* d below 0 counts as 0 */
  int64_t bytes;
  int64_t choice[TUNER_AXES]; /* the value of each axis */
  int tag;                    /* which call it came from */
} tuner_point;

typedef struct tuner_frontier { /* ascending t, descending d; equal (t, d) once, the fewest bytes */
  int count, room;
  tuner_point *point;
  int64_t candidates, feasible;
  int64_t least; /* bytes of the smallest allowed candidate seen; INT64_MAX: none */
} tuner_frontier;

typedef struct tuner tuner;

/* Names and types of axes and fixed variables are those of every later call, in this order. */
atoll_err tuner_create(const tuner_expressions *e, const tuner_axis *axes, int n, const tuner_fixed *fixed, int fixeds,
                       tuner **out);
void tuner_destroy(tuner **tuner);

/* Adds what the space has to the frontier; start from {0} with least = INT64_MAX. A candidate whose expressions fail
 * (overflow, division by zero) is an error that names it. */
atoll_err tuner_search(tuner *tuner, const tuner_axis *axes, const tuner_fixed *fixed, int64_t limit, int tag,
                       tuner_frontier *frontier);

/* At most `cap` points of the frontier, such that every point p has a kept q with t_p <= t_q <= (1 + epsilon) t_p and
 * d_q <= d_p; *epsilon is the least for which that many suffice, 0 when all do.
 *
 * Then a step loses at most that factor. It takes T = (G - 1) max t_i + sum t_i + max_i (d_i - sum_{j<i} t_j) over the
 * stages. Replace every point by its q: the first two terms grow by (1 + epsilon) at most; in the third d_q <= d_p is
 * less the sums of t_q >= t_p, so it does not grow; and it is at least d_0 >= 0 for the first stage, so the sum of all
 * grows by (1 + epsilon) at most. Points of the frontier with larger t have smaller d, so q is p or one after it. */
void tuner_thin(tuner_frontier *frontier, int cap, double *epsilon);
void tuner_frontier_clear(tuner_frontier *frontier);
atoll_err tuner_frontier_add(tuner_frontier *frontier, const tuner_point *point);

#endif

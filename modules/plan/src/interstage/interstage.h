/* The inter-stage program: stages stand in a fixed order on fixed devices, each has a list of ways to do so many
 * layers, and one way is chosen for every stage so that the layers add up and a step is shortest.
 *
 * Stage i chooses an option (t_i, d_i): t seconds of one micro-batch in the steady state, sends included, and d extra
 * seconds per step (sums of gradients, update, what the first and last micro-batch cost more). A step takes
 *
 *   (G - 1) max_i t_i  +  sum_i t_i  +  max_i (d_i - sum_{j<i} t_j)
 *
 * of G micro-batches: the slowest stage sets the pace, the pipeline fills and drains once, and the extra seconds of a
 * stage hide behind the filling of the stages before it (Zhu et al., Mist, EuroSys 2025, inter-stage tuning).
 *
 * Two solvers of the one objective: an exact dynamic program (dp.c) and an integer program (cbc.c, where the library is
 * there). Local, deterministic: limits count work, not seconds. */
#ifndef ATOLL_PLAN_INTERSTAGE_H
#define ATOLL_PLAN_INTERSTAGE_H

#include <stdint.h>

#include "atoll/err.h"

typedef struct interstage_option {
  int first;  /* first layer; -1: wherever the stage begins, when only the number of layers matters */
  int layers; /* how many, 1 or more */
  double t;   /* s per micro-batch, >= 0 */
  double d;   /* s per step, any sign */
} interstage_option;

typedef struct interstage_stage {
  int options;
  const interstage_option *option; /* that fit in memory; any order, dominated ones allowed */
} interstage_stage;

typedef struct interstage_problem {
  int stages, layers;
  int64_t micro_batches;         /* G, 1 or more */
  const interstage_stage *stage; /* [stages], borrowed */
} interstage_problem;

typedef enum interstage_solver { INTERSTAGE_DP, INTERSTAGE_CBC, INTERSTAGE_BOTH } interstage_solver;

typedef struct interstage_answer {
  double value;      /* s, of the choice */
  double bottleneck; /* max t */
  double sum;        /* sum t */
  int proved;        /* 0: the integer program stopped at its limit of nodes, the choice is the best seen */
  int64_t work;      /* passes of the dynamic program, nodes of the integer program */
} interstage_answer;

/* choice [stages], filled with indices into stage[i].option; with several optimal choices solvers may differ, each is
 * deterministic. BOTH answers with the dynamic program's choice.
 *   INFEASIBLE   no choice adds up to the layers
 *   USAGE        an option is not a number, or names layers that are not there
 *   UNSUPPORTED  CBC or BOTH without the library
 *   INTERNAL     BOTH, and the values differ by more than 1e-9 of them: names both
 * Outputs untouched on failure. */
atoll_err interstage_solve(const interstage_problem *p, interstage_solver solver, int *choice, interstage_answer *out);

/* The objective of a choice; fills bottleneck and sum too. */
double interstage_value(const interstage_problem *p, const int *choice, double *bottleneck, double *sum);

/* Is the integer program's library part of this build, and loads? */
int interstage_have_cbc(void);

/* One solver each, on a problem that was checked and has a solution; called through interstage_solve. */
atoll_err interstage_dp(const interstage_problem *p, int *choice, interstage_answer *out);
atoll_err interstage_cbc(const interstage_problem *p, int *choice, interstage_answer *out);

#endif

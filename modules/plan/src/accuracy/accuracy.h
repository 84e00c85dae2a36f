/* What the files of accuracy/ share.
 *   runs     a file of measured runs, each with the parts of its plan's cost
 *   model    the refined time and memory of a run, linear in a few constants
 *   fit      constants from runs
 *   errors   sets against each other;  report: words and JSON */
#ifndef ATOLL_PLAN_ACCURACY_H
#define ATOLL_PLAN_ACCURACY_H

#include <stdint.h>

#include "atoll/accuracy.h"

enum { ACCURACY_CONSTANTS = 2 }; /* most of a kind of prediction */

typedef struct accuracy_stage { /* seconds are of the slowest replica, bytes of the fullest device */
  int layers;
  int64_t micro_batches, in_flight; /* G_i, F_i */
  double compute;                   /* forward and backward of one micro-batch */
  double messages;                  /* activations and gradients of one micro-batch, received and sent */
  double update;                    /* optimizer, once a step */
  double sum;                       /* gradients over replicas, once a step; 0 for one replica */
  double parameters;                /* values */
  double activation;                /* bytes stored for one micro-batch */
} accuracy_stage;

typedef struct accuracy_run {
  char label[96];
  double measured[2], scorer[2]; /* by atoll_accuracy_what: seconds, bytes */
  int stages;
  accuracy_stage *stage;
} accuracy_run;

typedef struct accuracy_set {
  char name[64];
  int runs;
  accuracy_run *run;
  double constant[2][ACCURACY_CONSTANTS]; /* fitted on this set */
  double *left_out[2];                    /* [runs]: predicted with constants fitted on the other runs */
} accuracy_set;

struct atoll_accuracy {
  int sets;
  accuracy_set *set;
};

/* The set of a file; `data` as for cases. */
atoll_err accuracy_read(const char *path, const char *data, accuracy_set *set);
void accuracy_free(accuracy_set *set);

typedef struct accuracy_constant {
  const char *name, *unit;
  double neutral;
} accuracy_constant;
int accuracy_constant_count(atoll_accuracy_what what);
const accuracy_constant *accuracy_constant_at(atoll_accuracy_what what, int k);
double accuracy_predict(const accuracy_run *run, atoll_accuracy_what what, const double *constant);
/* What `how` says of a run. */
double accuracy_of_run(const atoll_accuracy *accuracy, atoll_accuracy_what what, atoll_accuracy_how how, int set,
                       int fitted_on, int run);
/* The same split, at the stage that decides with these constants: the prediction is *base + sum_k term[k] constant[k].
 */
void accuracy_terms(const accuracy_run *run, atoll_accuracy_what what, const double *constant, double *base,
                    double term[ACCURACY_CONSTANTS]);

/* Constants from runs, all but run `without` (-1: from all). USAGE: they do not determine the constants. */
atoll_err accuracy_fit(const accuracy_run *run, int runs, int without, atoll_accuracy_what what,
                       double constant[ACCURACY_CONSTANTS]);
/* x of least |A x - y|, A [n][k] row-major, both overwritten. USAGE: A has no k independent columns. */
atoll_err accuracy_least_squares(int n, int k, double *A, double *y, double *x);

#endif

/** How well costs agree with runs that somebody measured.
 *
 *  A set is one file of measured runs: a plan in the neutral scorer's form, the cluster, seconds of an iteration and
 *  peak bytes of a device. Atoll's refined cost has a few constants; they are fitted on one set and judged on every
 *  other one, never on the set they come from, next to the scorer's own cost. Where only one set is there, and beside
 *  the other figures, each run is judged with constants fitted on the rest of its set.
 *
 *  The terms are described in src/accuracy/model.c. */
#ifndef ATOLL_ACCURACY_H
#define ATOLL_ACCURACY_H

#include <stddef.h>
#include <stdio.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_accuracy atoll_accuracy;

typedef enum atoll_accuracy_what { ATOLL_ACCURACY_TIME, ATOLL_ACCURACY_MEMORY } atoll_accuracy_what;

/* Whose prediction. */
typedef enum atoll_accuracy_how {
  ATOLL_ACCURACY_SCORER,   /* the neutral scorer's cost as published */
  ATOLL_ACCURACY_UNFITTED, /* the refined terms with every constant at its neutral value */
  ATOLL_ACCURACY_FITTED,   /* the refined terms, fitted on another set */
  ATOLL_ACCURACY_LEFT_OUT  /* the refined terms, for each run fitted on the other runs of its set */
} atoll_accuracy_how;

typedef struct atoll_accuracy_score { /* relative errors: predicted / measured - 1 */
  int runs;
  double mean;    /* of the absolute error */
  double bias;    /* mean error; negative: predicted too little */
  double largest; /* of the absolute error */
  int worst;      /* the run that has it */
} atoll_accuracy_score;

/** Local. Reads every *.json of the folder `runs`, in the order of their names, and the profiles in `data` (see
 *  atoll/case.h). *out is owned: atoll_accuracy_destroy(). NOINPUT: no folder, no set in it, or no profile of a run's
 *  model. USAGE: malformed, an unknown key, a number out of range (names file, run and key), or a set with too few
 *  different runs to fit the constants. */
ATOLL_API atoll_err atoll_accuracy_create(const char *runs, const char *data, atoll_accuracy **out);
ATOLL_API void atoll_accuracy_destroy(atoll_accuracy **accuracy);

ATOLL_API int atoll_accuracy_sets(const atoll_accuracy *accuracy);
/** File name without folder and ending. Borrowed. */
ATOLL_API const char *atoll_accuracy_set_name(const atoll_accuracy *accuracy, int set);
/** Errors on `set`; `fitted_on` is another set's index for ATOLL_ACCURACY_FITTED and ignored otherwise. */
ATOLL_API atoll_accuracy_score atoll_accuracy_of(const atoll_accuracy *accuracy, atoll_accuracy_what what,
                                                 atoll_accuracy_how how, int set, int fitted_on);
/** Constants fitted on `set`: how many there are; name and unit are borrowed and static. */
ATOLL_API int atoll_accuracy_constants(const atoll_accuracy *accuracy, atoll_accuracy_what what);
ATOLL_API double atoll_accuracy_constant(const atoll_accuracy *accuracy, atoll_accuracy_what what, int set, int k,
                                         const char **name, const char **unit);

/** Tables for people; `every` also lists each run. */
ATOLL_API void atoll_accuracy_print(const atoll_accuracy *accuracy, int every, FILE *f);
/** The same as JSON with every run. *text is owned: free(). */
ATOLL_API atoll_err atoll_accuracy_text(const atoll_accuracy *accuracy, char **text, size_t *bytes);

ATOLL_END_C
#endif

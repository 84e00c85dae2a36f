/** Plans that others recorded, with what they predicted and measured, held against our cost and memory model, and
 * against the plan our tuner makes for the same model and machine (JSON: see the reader in src/tuner/facts.c). */
#ifndef ATOLL_FACTS_H
#define ATOLL_FACTS_H

#include <stdint.h>
#include <stdio.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

#define ATOLL_FACTS_STAGES    64
#define ATOLL_FACTS_TOLERANCE 0.02 /* of predicted and measured allocated bytes */

typedef struct atoll_facts_stage {
  int layers, nodes, per_node; /* a mesh of devices */
  int data, tensor, redone;    /* degrees; layers done again in backward */
  int64_t micro_batch;         /* samples of a replica */
  int zero[3], offload[4]; /* weights, gradients, optimizer shared out; those and activations, eighths in the host */
  /* ours */
  double t, d;                   /* s per micro-batch, extra s per step */
  double peak[2], fragmentation; /* MiB in forward and backward; factor */
  int fits;
  /* recorded; 0 = not */
  double said[2], allocated; /* MiB: predicted forward, backward; measured */
} atoll_facts_stage;

typedef struct atoll_facts_plan {
  char name[96];
  int stages;
  int64_t accumulation; /* micro-batches per step */
  atoll_facts_stage stage[ATOLL_FACTS_STAGES];
  double seconds;                        /* ours, of a step */
  double said_seconds, measured_seconds; /* recorded; 0 = not */
} atoll_facts_plan;

typedef struct atoll_facts {
  char name[96];
  int recorded;
  atoll_facts_plan *plan; /* [recorded] */
  atoll_facts_plan tuned; /* stages 0: nothing fits, or no times were recorded */
  int64_t candidates;
  char times[96]; /* where seconds of compute come from */
} atoll_facts;

/** Read a file and evaluate every plan in it; where it has times, which alone say what a plan is worth, also search for
 * our own. *out owned. NOINPUT, USAGE (names key and
 * what was expected). */
ATOLL_API atoll_err atoll_facts_load(const char *path, atoll_facts **out);
ATOLL_API void atoll_facts_destroy(atoll_facts **facts);
/** A table of both. *failures: how many of the promises are broken: bytes within ATOLL_FACTS_TOLERANCE of what was
 * recorded, every recorded plan fits, the tuned one is not slower than the best of them by our own model. */
ATOLL_API void atoll_facts_print(const atoll_facts *facts, FILE *f, int *failures);

ATOLL_END_C
#endif

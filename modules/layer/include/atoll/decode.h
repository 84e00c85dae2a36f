/** Generating text: choosing the next token from logits.
 *
 *  What is drawn is a pure function of the logits and (seed, prompt, position), so the same prompts give the same texts
 * however they are divided over batches and ranks. */
#ifndef ATOLL_DECODE_H
#define ATOLL_DECODE_H

#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

/** How a token is drawn. The steps, in this order: logits / temperature; the top_k largest; of those the fewest whose
 * probabilities reach top_p (nucleus sampling, Holtzman et al., ICLR 2020); one of the rest by its renormalised
 * probability. Equal logits stand in the order of their ids. */
typedef struct atoll_sampling {
  double temperature; /* 0: the largest logit, no drawing */
  int64_t top_k;      /* 0: all */
  double top_p;       /* (0, 1]; 1: all */
  uint64_t seed;
} atoll_sampling;

typedef struct atoll_choice {
  int32_t id;
  double probability; /* that the model gives it: softmax of the logits, whatever the sampling */
} atoll_choice;

typedef struct atoll_sampler atoll_sampler;
/** Local; params are copied. One thread at a time uses a sampler. USAGE names the value out of range. *out owned:
 * atoll_sampler_destroy(). */
ATOLL_API atoll_err atoll_sampler_create(int64_t vocab, const atoll_sampling *params, atoll_sampler **out);
ATOLL_API void atoll_sampler_destroy(atoll_sampler **sampler);
/** logits [vocab], borrowed. prompt: index of the text among all of the run; position: of the token in its text.
 *  NONFINITE: a logit that is NaN or +infinity, with its id. */
ATOLL_API atoll_err atoll_sampler_choose(atoll_sampler *sampler, const float *logits, uint64_t prompt,
                                         uint64_t position, atoll_choice *choice);

ATOLL_END_C
#endif

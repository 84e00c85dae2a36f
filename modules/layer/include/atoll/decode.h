/** Generating text: logits of the next token, with a cache of keys and values, and choosing it.
 *
 *  A text's prompt is one forward call; then each of its tokens costs reading the weights and its part of the cache.
 * The logits of a text depend on its own tokens only, not on what is generated beside it, and what is drawn is a pure
 * function of the logits and (seed, prompt, position), so the same prompts give the same texts however they are divided
 * over batches and ranks. */
#ifndef ATOLL_DECODE_H
#define ATOLL_DECODE_H

#include <stdint.h>

#include "atoll/exec.h"
#include "atoll/kernel.h"
#include "atoll/model.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

/** A causal model with room for a number of texts. Every function is local and returns when its results are there. */
typedef struct atoll_decode atoll_decode;

typedef struct atoll_decode_params {
  int64_t slots;  /* texts at a time */
  int64_t room;   /* tokens of a text at most, the prompt's included; at most the model's context */
  int64_t prompt; /* tokens of a prompt at most */
  int64_t window; /* a token attends to this many, itself included; 0: to all before it */
} atoll_decode_params;

/** Bytes of the cache: keys and values, in every block, of `room` tokens in every slot. */
ATOLL_API int64_t atoll_decode_cache_bytes(const atoll_model *m, const atoll_decode_params *p, atoll_dtype dtype);
/** Exact bytes that atoll_decode_create() takes from mem, per category: weights in PARAMETER, the cache in ACTIVATION,
 * the rest in WORKSPACE. Errors as there. */
ATOLL_API atoll_err atoll_decode_bytes(const atoll_model *m, const atoll_decode_params *p, const atoll_kernels *kernels,
                                       int64_t bytes[ATOLL_MEM_CATEGORIES]);
/** e is copied; its members and m are borrowed for the life of *out, owned: atoll_decode_destroy(). Weights are not
 * set. USAGE: texts longer than the model's context, and other sizes that make no sense. UNSUPPORTED: a model that does
 * not predict the next token, or kernels that cannot generate. NOMEM: the budget of e->mem. */
ATOLL_API atoll_err atoll_decode_create(const atoll_model *m, const atoll_decode_params *p, const atoll_exec *e,
                                        atoll_decode **out);
ATOLL_API void atoll_decode_destroy(atoll_decode **d);
/** The weights, to be filled, in the model's order: atoll_model_params_count() of them. Borrowed. */
ATOLL_API atoll_tensor *atoll_decode_weights(atoll_decode *d);
/** A new text in slot, whatever was there: tokens [n] from position 0 in one forward call. *logits [vocab] of the token
 * that follows, borrowed until the next call. CORRUPT: a token beyond the vocabulary. USAGE: n beyond `prompt`. */
ATOLL_API atoll_err atoll_decode_prompt(atoll_decode *d, int slot, const int32_t *tokens, int64_t n,
                                        const float **logits);
/** One more token in each of n different slots: token[i] goes to slot[i]. *logits [n, vocab], borrowed until the next
 * call. USAGE: a slot that is full, empty or named twice. */
ATOLL_API atoll_err atoll_decode_next(atoll_decode *d, const int *slot, const int32_t *token, int64_t n,
                                      const float **logits);
/** Tokens in a slot so far. */
ATOLL_API int64_t atoll_decode_length(const atoll_decode *d, int slot);
/** Bytes of weights, and of cache for one more token in each slot of a call with these lengths, that
 * atoll_decode_next() must read: what bounds its speed. */
ATOLL_API int64_t atoll_decode_bytes_read(const atoll_decode *d, const int *slot, int64_t n);

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

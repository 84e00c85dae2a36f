/** Causal language models as recurrent programs.
 *
 *  Texts are a dimension b, positions t and blocks of the model l, so that a program does not grow with its layers.
 * Keys and values are what "0:t+1" or a window of positions reads; which of them are kept, and for how long, follows
 * from that index: of a window nothing older is in memory, whatever the length of the text. */
#ifndef ATOLL_RECURRENT_MODEL_H
#define ATOLL_RECURRENT_MODEL_H

#include "atoll/model.h"
#include "atoll/recurrent.h"

ATOLL_BEGIN_C

/** The token at a position of a text: called for position 0 with logits NULL, then with those [vocab] that follow from
 * the position before; in ascending order of positions for each text. What is not OK ends the run. With a comm, all of
 * its ranks call it in one order, with logits that may differ in their last bits, and it must give the same token on
 * all: what one rank has chosen. */
typedef atoll_err (*atoll_rec_choose)(void *user, int64_t text, int64_t position, const float *logits, int32_t *token);

typedef struct atoll_rec_model_params {
  int64_t texts;  /* B: positions of all advance together */
  int64_t window; /* tokens that a token attends to, itself included; 0: all before it */
  int64_t block;  /* positions of a block of keys and values in memory; 0: each for itself */
  const atoll_comm
      *comm;          /* NULL, or keys and values are dealt out over its ranks in tiles of `block` (of 128 if that is
                         0): a rank keeps its part of them, all make the same texts. Borrowed for the life of *out */
  int threads;        /* of a run; 0: one */
  const char *device; /* see atoll_rec_params; also where weights are copied to for a run */
  /* Of weights and values; with a folder `offload`, values that it has no room for are put away there, else longer runs
   * are refused. 0: no limit. The folder is borrowed for creating. */
  int64_t memory;
  const char *offload;
  FILE *trace;     /* see atoll_rec_params */
  int interpreted; /* bool: without a compiler; slow */
} atoll_rec_model_params;

typedef struct atoll_rec_model atoll_rec_model;

/** m, choose's user: borrowed for the life of *out, owned. Weights are not set. UNSUPPORTED: a family that does not
 *  predict the next token. NOMEM: weights alone need more than `memory`. Of a device:
 *  the errors of atoll_rec_compile(). */
ATOLL_API atoll_err atoll_rec_model_create(const atoll_model *m, const atoll_rec_model_params *params,
                                           atoll_rec_choose choose, void *user, atoll_rec_model **out);
ATOLL_API void atoll_rec_model_destroy(atoll_rec_model **r);
/** The weights, f32, to be filled, in the model's order: atoll_model_params_count() of them. Borrowed. */
ATOLL_API atoll_tensor *atoll_rec_model_weights(atoll_rec_model *r);
/** Positions 0 .. length-1 of all texts. Errors of choose, and those of atoll_rec_run(). */
ATOLL_API atoll_err atoll_rec_model_run(atoll_rec_model *r, int64_t length);
/** Most bytes of values in a run of that length, and those of weights, which are not among them. */
ATOLL_API atoll_err atoll_rec_model_bytes(const atoll_rec_model *r, int64_t length, int64_t *peak, int64_t *weights);
/** Borrowed: for its text, see atoll_rec_program_print(). */
ATOLL_API const atoll_rec_program *atoll_rec_model_program(const atoll_rec_model *r);

ATOLL_END_C
#endif

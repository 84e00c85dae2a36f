/* Seconds of a stage of alike layers per micro-batch, by phase and stream (Zhu et al., Mist, EuroSys 2025): while a
 * layer computes, what the next one needs is loaded and what the last one left is drained.
 *
 *   phase                    compute            peers                    in                    out
 *   forward, steady          f                  gather weights           weights               saved
 *   forward, first           f + update         gather updated weights   optimizer, gradients  optimizer, weights,
 * saved backward, steady         b (+ f if redone)  gather, scatter grads    weights, gradients,   gradients saved
 *   backward, last           b (+ f)            gather, reduce grads     the same              gradients
 *
 * The first layer's load and the last one's drain stand alone (compute empty); the first layer has nothing to drain,
 * the last nothing to load. Collectives inside a layer (tensor, context, expert parallelism) wait for its compute and
 * are waited for, so they stand outside the streams. Layers [0, c) of l are done again in backward. */
#ifndef ATOLL_PLAN_PHASE_H
#define ATOLL_PLAN_PHASE_H

#include "cost/interference.h"

/* Real expressions, seconds per layer; NULL: none. [1] are of a layer that is done again, which saves its input only.
 */
typedef struct phase_layer {
  const atoll_sym *forward, *backward;               /* compute */
  const atoll_sym *forward_inside, *backward_inside; /* collectives inside the layer, outside the streams */
  const atoll_sym *update;                           /* optimizer, norm and clip of the rank's share */
  const atoll_sym *gather_steady, *gather_updated;   /* weights over the ranks that share them */
  const atoll_sym *scatter_steady, *reduce_last;     /* gradients */
  const atoll_sym *in_weights, *in_gradients, *in_optimizer, *in_saved[2];
  const atoll_sym *out_weights, *out_gradients, *out_optimizer, *out_saved[2];
} phase_layer;

typedef struct phase_times {           /* real expressions, s */
  const atoll_sym *forward, *backward; /* steady, of one micro-batch */
  const atoll_sym *first, *last;       /* forward of the first and backward of the last micro-batch of a step */
} phase_times;

/* layers, redone: int expressions, 0 <= redone <= layers, 1 <= layers. What fails is in the pool: atoll_syms_error().
 */
void phase_stage(atoll_syms *pool, const interference *f, const phase_layer *layer, const atoll_sym *layers,
                 const atoll_sym *redone, phase_times *out);

#endif

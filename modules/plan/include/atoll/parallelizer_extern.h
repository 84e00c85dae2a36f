/** The parallelizer `extern`: any program that speaks JSON lines. For people who plug one in.
 *
 *  plan.parallelizer=extern plan.extern="PROGRAM [ARGUMENT ...]" starts it once per search and policy, on rank 0 only.
 *  Each message is one JSON object on one line, UTF-8, at most 1 MiB in the program's direction. Unknown keys of ours
 *  are the program's to ignore; unknown keys of the program are refused. Lines on its standard error become warnings.
 *  At the end its standard input is closed, and it should leave; it is killed when it does not, and when we die.
 *  inputs/parallelizers holds a complete example. N is a whole number, X any number.
 *
 *  1. We greet, and it answers within plan.extern_limit:
 *
 *    {"type":"hello","protocol":1,
 *     "model":{"family":"gpt2","seq":1024,"global_batch":512,"experts":0,"expert_top":2,
 *              "layers":[0,1,1,2],
 *              "classes":[{"kind":"embed","parameters":N,"gradient_bytes":N,"forward_flops":N,"backward_flops":N,
 *                          "boundary_bytes":N,"saved_bytes":{"eager":N,"exact":N}}]},
 *     "islands":[{"name":"a","model":"NVIDIA A100","devices":8,"nodes":2,"memory":N,"flops":X,"bytes_per_second":X,
 *                 "in_node":{"latency":X,"bytes_per_second":X},
 *                 "between_nodes":{"latency":X,"bytes_per_second":X}}],
 *     "policies":["eager"],"target":"train",
 *     "limits":{"answer_seconds":10,"line_bytes":1048576,"points":64}}
 *    <- {"type":"hello","protocol":1,"name":"free text"}
 *
 *    layers         class of each layer; layers of one class cost the same
 *    classes        FLOPs and bytes of one sample of seq tokens; saved_bytes: kept for backward, per policy
 *    islands        per device; seconds, bytes, FLOP/s; 0 where nothing is known
 *    policies       those it may use
 *    target         train: only points with tensor, context and expert 1, without ZeRO, recompute and offload; any: all
 *
 *  2. Any number of requests, many of them before the first answer. Answers may come in any order. A request is
 *
 *    {"type":"plan","id":7,"slice":{"first":0,"last":4},
 *     "island":{"index":0,"name":"a","nodes":1,"per_node":4},
 *     "context":{"in_flight":3,"partials":2,"micro_batch":4,"micro_batches":16,"data":0},
 *     "memory_limit":N,
 *     "costs":[{"class":0,"policy":"eager","forward":X,"backward":X,"update":X,"source":"measured"}],
 *     "reduce":X,"exact_bytes":{"eager":N,"exact":N}}
 *    <- {"id":7,"points":[
 *         {"policy":"eager","data":4,"tensor":1,"context":1,"expert":1,"zero":0,"sequence_parallel":false,
 *          "recompute":0,"offload":{"weights":0,"gradients":0,"optimizer":0,"activations":0},
 *          "forward":X,"backward":X,"t":X,"d":X,"bytes":N,"bytes_host":N,"source":"analytic"}]}
 *    <- {"id":7,"points":[],"missing":N,"why":"text"}     nothing fits; bytes over the limit of what came nearest
 *    <- {"id":7,"error":"text"}                           it cannot say
 *
 *    slice          layers, half-open
 *    island         the part of it to be used, whole: `nodes` nodes of `per_node` devices
 *    context        as atoll_slice_context; data above 0 asks for points of that data degree only, because neighbours
 *                   need it, and none is a fine answer
 *    memory_limit   bytes per rank; null: unlimited
 *    costs          seconds of one layer on one of these devices: a micro-batch forward and backward, a step's update
 *    reduce         seconds to sum the slice's gradients leaf by leaf and over all these devices
 *    exact_bytes    of a rank without tensor, context and expert degree, ZeRO, recompute and offload
 *    points         as atoll_slice_plan. data * tensor * context * expert is the number of devices. policy, data, t, d
 *                   and bytes are required; forward and backward default to one and two thirds of t * data, degrees to
 *                   1, source to "analytic", the rest to 0. bytes is a number, or an object by category (parameter,
 *                   gradient, optimizer, activation, workspace, comm, checkpoint, data)
 *
 *  With target train, times of a slice may not depend on in_flight and partials, which only bear on bytes. Answers that
 *  depend on anything but the request make the search wrong: each is asked for once.
 *
 *  What goes wrong is never silent:
 *
 *    NOINPUT        it cannot be started
 *    UNAVAILABLE    it ended, was killed, closed its output, or answered with an error
 *    TIMEOUT        no answer within plan.extern_limit; a later one is not used
 *    CORRUPT        text that is no answer, an unknown id, a number out of range (negative, not finite), degrees that
 *                   do not make up the shape, an axis that the target lacks, a line that is too long; with the line
 *    UNSUPPORTED    another protocol
 *
 *  plan.extern_fallback=grid plans that slice with `grid` instead, warns, and says so in the plan's source
 *  ("extern+grid+compose"); after three failures in a row the program is asked no more. A point that claims fewer bytes
 *  than a rank takes (exactly layer's where tensor, context and expert are 1, without ZeRO, recompute and offload, else
 *  as `mist` counts) is refused with a warning; an answer with nothing else is CORRUPT. */
#ifndef ATOLL_PARALLELIZER_EXTERN_H
#define ATOLL_PARALLELIZER_EXTERN_H

#include "atoll/parallelizer.h"

ATOLL_BEGIN_C

#define ATOLL_EXTERN_PROTOCOL 1
#define ATOLL_EXTERN_POINTS   64 /* of an answer at most */

extern ATOLL_API const atoll_parallelizer atoll_parallelizer_extern;

typedef struct atoll_extern_answer {
  int64_t id; /* -1: the text has none */
  int count;
  atoll_slice_plan point[ATOLL_EXTERN_POINTS];
  int by_category[ATOLL_EXTERN_POINTS]; /* bool: bytes were given by category, else bytes_peak alone is set */
  int64_t missing;                      /* INT64_MAX when not said */
  char why[256], error[256];            /* "" when not said */
} atoll_extern_answer;

/** Local and pure: one answer's text, checked as far as that needs no request. CORRUPT names program, key, what was
 * found and expected, and quotes the line's beginning; out->id is set where it could be read. */
ATOLL_API atoll_err atoll_extern_parse(const char *program, const char *line, size_t bytes, atoll_extern_answer *out);

ATOLL_END_C
#endif

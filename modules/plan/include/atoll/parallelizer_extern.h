/** The parallelizer `extern`: any program that speaks JSON lines. For people who plug one in.
 *
 *  plan.parallelizer=extern plan.extern="PROGRAM [ARGUMENT ...]" starts it once per search and policy, on rank 0 only.
 *  Each message is one JSON object on one line, UTF-8, at most 1 MiB in the program's direction. Unknown keys of ours
 *  are the program's to ignore; unknown keys of the program are refused. Lines on its standard error become warnings.
 *  At the end its standard input is closed, and it should leave; it is killed when it does not, and when we die.
 *  inputs/parallelizers holds a complete example.
 *
 *  1. We write, and it answers within plan.extern_limit:
 *
 *    {"type":"hello","protocol":1,
 *     "model":{"family":"gpt2","seq":1024,"global_batch":512,
 *              "layers":[0,1,1,2],                     class of each layer; layers of one class cost the same
 *              "classes":[{"kind":"embed","parameters":N,"gradient_bytes":N,
 *                          "forward_flops":N,"backward_flops":N,"boundary_bytes":N,    one sample of seq tokens
 *                          "saved_bytes":{"eager":N,"exact":N}}]},                      the same, per policy
 *     "islands":[{"name":"a","model":"NVIDIA A100","devices":8,"nodes":2,"memory":N,    bytes per device, 0 unknown
 *                 "flops":X,"bytes_per_second":X,                      per device; 0 unknown
 *                 "in_node":{"latency":X,"bytes_per_second":X},        links between members; 0 unknown
 *                 "between_nodes":{"latency":X,"bytes_per_second":X}}],
 *     "policies":["eager"],                            those it may use
 *     "target":"train",                                or "any"; train: tensor, context and expert 1, no ZeRO, no
 * offload "limits":{"answer_seconds":10,"line_bytes":1048576,"points":64}}
 *    <- {"type":"hello","protocol":1,"name":"free text"}
 *
 *  2. Any number of requests, many of them before the first answer. Answers may come in any order. A request is
 *
 *    {"type":"plan","id":7,"slice":{"first":0,"last":4},                            layers, half-open
 *     "island":{"index":0,"name":"a","nodes":1,"per_node":4},                       the part of it to be used, whole
 *     "context":{"in_flight":3,"partials":2,"micro_batch":4,"micro_batches":16,"data":0},   as atoll_slice_context
 *     "memory_limit":N,                                                             bytes per rank; null: unlimited
 *     "costs":[{"class":0,"policy":"eager","forward":X,"backward":X,"update":X,"source":"measured"}],
 *                         seconds of one layer on one of the devices: a micro-batch forward and backward, a step's
 * update "reduce":X,                                     seconds to sum the slice's gradients over all devices of the
 * shape "exact_bytes":{"eager":N,"exact":N}}            of a rank without tensor, context, expert degree, ZeRO, offload
 *    <- {"id":7,"points":[
 *         {"policy":"eager","data":4,"tensor":1,"context":1,"expert":1,"zero":0,"sequence_parallel":false,
 *          "recompute":0,"offload":{"weights":0,"gradients":0,"optimizer":0,"activations":0},
 *          "forward":X,"backward":X,"t":X,"d":X,"bytes":N,"bytes_host":N,"source":"analytic"}]}
 *
 *       as atoll_slice_plan. data * tensor * context * expert is the number of devices. policy, data, t, d and bytes
 * are required; forward and backward default to one and two thirds of t * data; degrees default to 1, the rest to 0,
 *       source to "analytic". bytes is a number, or an object by category (parameter, gradient, optimizer, activation,
 *       workspace, comm, checkpoint, data).
 *    <- {"id":7,"points":[],"missing":N,"why":"text"}     nothing fits; bytes over the limit of what came nearest
 *    <- {"id":7,"error":"text"}                           it cannot say
 *
 *  With target train, times of a slice may not depend on in_flight and partials, which only bear on bytes. Answers that
 *  depend on anything but the request make the search wrong: each is asked for once.
 *
 *  What goes wrong is never silent. A program that cannot be started is NOINPUT; one that ends, is killed or closes its
 *  output UNAVAILABLE; an answer later than plan.extern_limit TIMEOUT; text that is no answer, an unknown id, a number
 *  out of range (negative, not finite), degrees that do not make up the shape, a line that is too long CORRUPT, with
 * the line; another protocol UNSUPPORTED. plan.extern_fallback=grid plans that slice with `grid` instead, warns, and
 * says so in the plan's source ("extern+grid+compose"); after three failures in a row the program is asked no more. A
 * point that claims fewer bytes than layer and train take (known where tensor, context and expert are 1, without ZeRO,
 *  recompute and offload) is refused with a warning; an answer with nothing else is a failure. */
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

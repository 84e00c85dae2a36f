/* Four streams at once: compute, device to device, host to device, device to host. Each slows the others (Zhu et al.,
 * Mist, EuroSys 2025). While a set of streams is active, stream i of it takes factor f_i times as long as alone; sets
 * of four are worked off first, then of three, then of two; what one stream has left runs alone:
 *
 *   delta = min over the set of x_i f_i;   total += delta;   x_i -= delta / f_i
 *
 * Neutral factors are 1: streams do not disturb each other and the longest decides. Fits for a machine may replace
 * them. Factors are 1 or more in reality; fits below 1 are taken as they are. */
#ifndef ATOLL_PLAN_INTERFERENCE_H
#define ATOLL_PLAN_INTERFERENCE_H

#include "atoll/sym.h"

enum { STREAM_COMPUTE, STREAM_PEERS, STREAM_IN, STREAM_OUT, STREAMS };
enum { INTERFERENCE_SETS = 11, INTERFERENCE_FACTORS = 28 };

/* By set, in the order compute, peers, in, out inside a set. Sets: all four; the four of three, leaving out `out`,
 * `in`, `peers`, compute; the six of two, in the same order of streams. */
typedef struct interference {
  double factor[INTERFERENCE_FACTORS];
  int neutral; /* all are 1 */
} interference;

void interference_neutral(interference *f);
/* USAGE: not finite or not positive; names the index. */
atoll_err interference_set(interference *f, const double factor[INTERFERENCE_FACTORS]);
double interference_seconds(const interference *f, const double x[STREAMS]);
/* The same as an expression of real ones; x[i] NULL: the stream is empty. NULL as of sym's constructors. */
const atoll_sym *interference_sym(atoll_syms *pool, const interference *f, const atoll_sym *const x[STREAMS]);

#endif

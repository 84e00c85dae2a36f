/** Products and MLPs of few rows, as generating asks for them, shared by the ranks of a node: each rank computes
 * columns into memory that all see, so that a rank reads its share of the weights only.
 *
 *  An MLP is shared product by product, all ranks meeting between them, or pipelined by tiles of columns as a chain is
 * (ctapipe.h): whoever is idle takes tiles of the others' columns, flags say which hidden values are there, and each is
 * put through the activation by its maker alone. A column of few rows needs all hidden values, so its tiles wait for
 * all of them, not one by one.
 *
 *  For each shape the team finds out, at its first call, whether one of these is faster than computing all columns on
 * every rank, and does the fastest from then on. It is measured once and remembered by processor, ranks, threads and
 * shape beside the choices of chains. All give the same bits: columns are computed one by one, whoever does.
 */
#ifndef ATOLL_LINEAR_TEAM_H
#define ATOLL_LINEAR_TEAM_H

#include "atoll/comm.h"
#include "atoll/kernel.h"
#include "atoll/mem.h"

ATOLL_BEGIN_C

typedef struct atoll_linear_team atoll_linear_team;

typedef struct atoll_linear_team_params {
  int64_t most;   /* elements of the largest result that is shared */
  int64_t hidden; /* elements of the largest hidden values [R, H] of an MLP; 0, the default: the team's kernels have
                     no decode->mlp, its parts come one by one */
  const char *choices; /* the file of choices, as `path` of atoll_chain_choose(); default NULL */
  double timeout;      /* s a rank waits for another in a call; default 60 */
} atoll_linear_team_params;
ATOLL_API void atoll_linear_team_params_init(atoll_linear_team_params *p);

/** Collective on comm (borrowed), whose ranks share a node. The team's kernels do what `kernels` (borrowed, f32) do,
 * but for decode->linear and decode->mlp on `queue` (borrowed), which every rank must then call in the same order with
 * the same sizes and numbers. One team at a time in a process. UNSUPPORTED: kernels that do not generate in f32;
 * others as atoll_symmetric_create(). A call fails with TIMEOUT or PEER_LOST when a rank does not come within
 * params->timeout, and so do all that follow; USAGE: an MLP of more hidden values than the team was made for.
 */
ATOLL_API atoll_err atoll_linear_team_create(atoll_comm *comm, atoll_mem *mem, atoll_queue *queue,
                                             const atoll_kernels *kernels, const atoll_linear_team_params *params,
                                             atoll_linear_team **out);
ATOLL_API void atoll_linear_team_destroy(atoll_linear_team **team); /* collective; accepts NULL */
/** Borrowed, of the team. */
ATOLL_API const atoll_kernels *atoll_linear_team_kernels(const atoll_linear_team *team);
typedef struct atoll_linear_team_choice {
  int shapes, shared, pipelined, remembered; /* seen so far, and of these; the pipelined are shared, too */
  double alone, chosen; /* s of one call of each, summed: as every rank would alone and as chosen */
} atoll_linear_team_choice;
/** Local; the same on every rank. */
ATOLL_API atoll_linear_team_choice atoll_linear_team_choices(const atoll_linear_team *team);

ATOLL_END_C
#endif

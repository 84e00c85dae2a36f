/** Products of few rows, as generating asks for them, shared by the ranks of a node: each rank computes its columns
 * into memory that all see, so that a rank reads its share of the weights only.
 *
 *  For each shape the team finds out, at its first call, whether sharing is faster than computing all columns on every
 * rank, and does the faster one from then on. It is measured once and remembered by processor, ranks, threads and shape
 * beside the choices of chains. Both give the same bits: columns are computed one by one, whoever does.
 */
#ifndef ATOLL_LINEAR_TEAM_H
#define ATOLL_LINEAR_TEAM_H

#include "atoll/comm.h"
#include "atoll/kernel.h"
#include "atoll/mem.h"

ATOLL_BEGIN_C

typedef struct atoll_linear_team atoll_linear_team;

/** Collective on comm (borrowed), whose ranks share a node. The team's kernels do what `kernels` (borrowed, f32) do,
 * but for decode->linear on `queue` (borrowed), which every rank must then call in the same order with the same sizes
 * and numbers. `most` is the largest number of elements of a result that is shared; `choices` is the file of choices,
 * as `path` of atoll_chain_choose(). One team at a time in a process. UNSUPPORTED: kernels that do not generate in f32;
 * others as atoll_symmetric_create(). A call fails with TIMEOUT or PEER_LOST when a rank does not come within a minute.
 */
ATOLL_API atoll_err atoll_linear_team_create(atoll_comm *comm, atoll_mem *mem, atoll_queue *queue,
                                             const atoll_kernels *kernels, int64_t most, const char *choices,
                                             atoll_linear_team **out);
ATOLL_API void atoll_linear_team_destroy(atoll_linear_team **team); /* collective; accepts NULL */
/** Borrowed, of the team. */
ATOLL_API const atoll_kernels *atoll_linear_team_kernels(const atoll_linear_team *team);
typedef struct atoll_linear_team_choice {
  int shapes, shared, remembered; /* seen so far, and of these */
  double alone, chosen;           /* s of one call of each, summed: as every rank would alone and as chosen */
} atoll_linear_team_choice;
/** Local; the same on every rank. */
ATOLL_API atoll_linear_team_choice atoll_linear_team_choices(const atoll_linear_team *team);

ATOLL_END_C
#endif

/** Products of few rows, as generating asks for them, shared by the ranks of a node: each rank computes its columns
 * into memory that all see, so that a rank reads its share of the weights only.
 *
 *  For each shape the team measures, at its first call, whether sharing is faster than computing all columns on every
 * rank, and does the faster one from then on. Both give the same bits: columns are computed one by one, whoever does.
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
 * and numbers. `most` is the largest number of elements of a result that is shared. One team at a time in a process.
 *  UNSUPPORTED: kernels that do not generate in f32; others as atoll_symmetric_create(). A call fails with TIMEOUT or
 * PEER_LOST when a rank does not come within a minute. */
ATOLL_API atoll_err atoll_linear_team_create(atoll_comm *comm, atoll_mem *mem, atoll_queue *queue,
                                             const atoll_kernels *kernels, int64_t most, atoll_linear_team **out);
ATOLL_API void atoll_linear_team_destroy(atoll_linear_team **team); /* collective; accepts NULL */
/** Borrowed, of the team. */
ATOLL_API const atoll_kernels *atoll_linear_team_kernels(const atoll_linear_team *team);
/** Shapes seen so far, how many of them are shared, and seconds of one call of each, summed: as every rank would alone
 * and as chosen. Local; the same on every rank. */
ATOLL_API int atoll_linear_team_choices(const atoll_linear_team *team, int *shared, double *alone, double *chosen);

ATOLL_END_C
#endif

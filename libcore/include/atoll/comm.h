/** Typed communication on queues. Nothing above this header shows MPI_Request or assumes host memory, and no count
 * passes 2^31: larger operations are cut into equal pieces on every rank.
 *
 *  An operation starts after what is already enqueued on `queue` and completes in the background; buffers belong to it
 * until `done` fires (NULL: until the queue is synchronised). Point-to-point operations of one (peer, tag) match in
 * order. Sends never wait for the receiver on the calling thread. The watch thread, when given, makes progress while
 * the caller computes.
 *
 *  An operation does not wait for the operations before it on its queue, so a receive may be enqueued before the send;
 * a task does, and so does an operation that depends on an event. A collective operation must be enqueued in the same
 * order on every rank: use one queue per communicator for them. A refused or failed operation makes the queue's error
 * sticky; a message of another length than expected is MISMATCH. Tags run from 0 to 32766 at least. Devices whose
 * memory the host cannot reach are UNSUPPORTED by this transport. */
#ifndef ATOLL_COMM_H
#define ATOLL_COMM_H

#include <mpi.h>

#include "atoll/agree.h"
#include "atoll/device.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

typedef struct atoll_comm atoll_comm;
typedef enum atoll_comm_op { ATOLL_SUM, ATOLL_MAX, ATOLL_MIN } atoll_comm_op;

/** Collective: duplicates mpi. `watch` (borrowed, may be NULL) drives progress and deadlines. */
ATOLL_API atoll_err atoll_comm_create(MPI_Comm mpi, const char *name, atoll_watch *watch, atoll_comm **out);
/** Collective on parent; colour < 0: no group, *out = NULL. */
ATOLL_API atoll_err atoll_comm_split(atoll_comm *parent, int colour, int key, const char *name, atoll_comm **out);
/** The ranks that share this node. */
ATOLL_API atoll_err atoll_comm_split_node(atoll_comm *parent, const char *name, atoll_comm **out);
ATOLL_API void atoll_comm_destroy(atoll_comm **comm); /* collective */
ATOLL_API int atoll_comm_rank(const atoll_comm *comm);
ATOLL_API int atoll_comm_size(const atoll_comm *comm);
ATOLL_API const char *atoll_comm_name(const atoll_comm *comm);
/** For agree.h and store.h; borrowed. */
ATOLL_API MPI_Comm atoll_comm_mpi(const atoll_comm *comm);
/** MPI's type for elements of t, for calls of MPI beside those below. BF16, which MPI does not know, is UINT16: it may
 * be sent, not summed. */
ATOLL_API MPI_Datatype atoll_comm_mpi_type(atoll_dtype t);
/** How data travels, for the log: "mpi", "nccl", "host-staged mpi". */
ATOLL_API const char *atoll_comm_transport(const atoll_comm *comm);

ATOLL_API atoll_err atoll_comm_send(atoll_comm *c, atoll_queue *queue, const void *buf, int64_t count, atoll_dtype t,
                                    int peer, int tag, atoll_event *done);
ATOLL_API atoll_err atoll_comm_recv(atoll_comm *c, atoll_queue *queue, void *buf, int64_t count, atoll_dtype t,
                                    int peer, int tag, atoll_event *done);
/** In place when send == recv. Order of summation is the library's: use atoll_comm_tree_sum where bits matter. */
ATOLL_API atoll_err atoll_comm_allreduce(atoll_comm *c, atoll_queue *queue, const void *send, void *recv, int64_t count,
                                         atoll_dtype t, atoll_comm_op op, atoll_event *done);
ATOLL_API atoll_err atoll_comm_broadcast(atoll_comm *c, atoll_queue *queue, void *buf, int64_t count, atoll_dtype t,
                                         int root, atoll_event *done);
/** Every rank gives `count` elements; recv is [size, count]. In place when send == recv + rank * count. */
ATOLL_API atoll_err atoll_comm_allgather(atoll_comm *c, atoll_queue *queue, const void *send, void *recv, int64_t count,
                                         atoll_dtype t, atoll_event *done);
ATOLL_API atoll_err atoll_comm_barrier(atoll_comm *c);

/** Sum f32 vectors over a fixed binary tree whose leaves are numbered globally, so that the bits do not depend on which
 * rank holds which leaves.
 *
 *  The tree over leaves [0, leaves) splits a range [a, b) at a + (largest power of two below b - a). Each rank gives
 * `parts` vectors of `count` elements; part p is the sum, in tree order, of the leaves of one node, given by
 * first_leaf[p] and leaf_count[p]. All ranks' parts together must cover every leaf exactly once (MISMATCH otherwise,
 * checked every call). On return every rank's `out` [count] holds the root; it may alias parts[0]. Traffic per rank:
 * each element of each part is sent once to its summing rank, and the sums once back (reduce-scatter, all-gather), in
 * pieces of at most `piece` elements; workspace 'work' must hold atoll_comm_tree_sum_work() elements. Host-blocking on
 * CPU queues; the queue orders it, as a collective operation. part and the two lists are read, and borrowed for the
 * call; the vectors are read until the queue is synchronised. A rank without parts takes part (parts = 0). */
ATOLL_API atoll_err atoll_comm_tree_sum(atoll_comm *c, atoll_queue *queue, int64_t leaves, int parts,
                                        const int64_t *first_leaf, const int64_t *leaf_count, float *const *part,
                                        int64_t count, float *out, float *work, int64_t piece);
/** Elements of workspace: a bound over all ranks given the largest number of parts any rank has. */
ATOLL_API int64_t atoll_comm_tree_sum_work(int size, int max_parts, int64_t piece);
/** The canonical nodes that make up leaves [first, first + n): fills at most cap entries, returns how many there are.
 */
ATOLL_API int atoll_tree_nodes(int64_t leaves, int64_t first, int64_t n, int64_t *node_first, int64_t *node_count,
                               int cap);

ATOLL_END_C
#endif

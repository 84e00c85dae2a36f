/* How far apart the cores of two ranks are: a flag's way from one to the other and back.
 *
 * Cores that share a cache answer in less than 100 ns, those of different ones in some 500. A hypervisor may move
 * virtual cores between these while a program runs, and ways whose ranks read each other's tiles then take a different
 * time over those whose ranks do not. */
#include <sched.h>
#include <stdatomic.h>

#include "atoll/clock.h"
#include "mlp.h"

enum { ROUNDS = 20, GROUPS = 5 };

typedef struct flag {
  _Alignas(64) _Atomic uint32_t count;
} flag;

static atoll_err wait_for(flag *f, uint32_t count) {
  double since = atoll_clock_now();
  for (int64_t i = 1; atomic_load_explicit(&f->count, memory_order_acquire) != count; i++) {
    if (i % 4096)
      continue;
    (void)sched_yield(); /* ranks may outnumber the cores */
    if (atoll_clock_now() - since > 60)
      return atoll_fail(ATOLL_TIMEOUT, "a flag did not come back within 60 s");
  }
  return ATOLL_OK;
}

static atoll_err bounce(flag *mine, flag *other, int first, uint32_t *count) {
  for (int i = 0; i < ROUNDS; i++) {
    ++*count;
    if (!first)
      ATOLL_TRY(wait_for(mine, *count));
    atomic_store_explicit(&other->count, *count, memory_order_release);
    if (first)
      ATOLL_TRY(wait_for(mine, *count));
  }
  return ATOLL_OK;
}

size_t flag_bytes(void) { return sizeof(flag); }

atoll_err flag_round_trip(atoll_comm *comm, const atoll_symmetric *memory, uint32_t *count, double *seconds) {
  int rank = atoll_comm_rank(comm);
  double best = 0;
  *seconds = 0;
  if (atoll_comm_size(comm) < 2)
    return ATOLL_OK;
  MPI_Barrier(atoll_comm_mpi(comm));
  for (int g = 0; g < GROUPS && rank < 2; g++) {
    double began = atoll_clock_now();
    ATOLL_TRY(bounce(atoll_symmetric_at(memory, rank), atoll_symmetric_at(memory, !rank), rank == 0, count));
    double each = (atoll_clock_now() - began) / ROUNDS;
    best = g == 0 || each < best ? each : best;
  }
  MPI_Bcast(&best, 1, MPI_DOUBLE, 0, atoll_comm_mpi(comm));
  *seconds = best;
  return ATOLL_OK;
}

/* The negative control for communication: on the async device a send that does not wait for the task that fills its
 * buffer delivers old numbers; with the event it never does. */
#include "mpi_check.h"

#include "atoll/comm.h"

#include <stdatomic.h>

static atoll_err fill(void *args, void *stream) {
  (void)stream;
  atomic_store(*(atomic_int **)args, 7);
  return ATOLL_OK;
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  atoll_comm *comm;
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  int wrong[2] = {0, 0};
  for (uint64_t seed = 1; seed <= 40; seed++)
    for (int with_event = 0; with_event < 2; with_event++) {
      atoll_device_params p;
      atoll_device *device;
      atoll_queue *compute, *queue;
      atoll_event *filled;
      static atomic_int cell, *where = &cell;
      atoll_device_params_init(&p);
      p.seed = seed;
      CHECK_OK(atoll_device_open("async", &p, &device));
      CHECK_OK(atoll_queue_create(device, "compute", &compute));
      CHECK_OK(atoll_queue_create(device, "comm", &queue));
      CHECK_OK(atoll_event_create(&filled));
      atomic_store(&cell, 0);
      if (check_rank == 0) {
        CHECK_OK(atoll_queue_submit(compute, fill, &where, sizeof where));
        CHECK_OK(atoll_queue_record(compute, filled));
        if (with_event)
          CHECK_OK(atoll_queue_wait(queue, filled));
        CHECK_OK(atoll_comm_send(comm, queue, (void *)&cell, 1, ATOLL_I32, 1, 0, NULL));
      } else {
        CHECK_OK(atoll_comm_recv(comm, queue, (void *)&cell, 1, ATOLL_I32, 0, 0, NULL));
      }
      CHECK_OK(atoll_queue_sync(compute));
      CHECK_OK(atoll_queue_sync(queue));
      if (check_rank == 1)
        wrong[with_event] += atomic_load(&cell) != 7;
      CHECK_OK(atoll_comm_barrier(comm));
      atoll_event_destroy(&filled);
      atoll_queue_destroy(&compute);
      atoll_queue_destroy(&queue);
      atoll_device_close(&device);
    }
  if (check_rank == 1) {
    CHECK(wrong[1] == 0);
    CHECK(wrong[0] > 0);
  }
  atoll_comm_destroy(&comm);
  return check_end();
}

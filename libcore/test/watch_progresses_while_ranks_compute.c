/* A large message arrives while both ranks compute and nobody calls MPI, because the watch drives it; and a rank whose
 * main thread sleeps costs little. */
#include "mpi_check.h"

#include "atoll/clock.h"
#include "atoll/comm.h"

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  enum { N = 8 << 20 }; /* 32 MiB: a rendezvous of many fragments */
  atoll_watch *watch;
  atoll_comm *comm;
  atoll_device *device;
  atoll_queue *queue;
  float *buffer = calloc(N, sizeof *buffer);
  CHECK(buffer);
  CHECK_OK(atoll_watch_start(MPI_COMM_WORLD, NULL, &watch));
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", watch, &comm));
  CHECK_OK(atoll_device_open("cpu", NULL, &device));
  CHECK_OK(atoll_queue_create(device, "comm", &queue));
  for (int i = 0; i < N && check_rank == 0; i++)
    buffer[i] = (float)(i % 1000);
  CHECK_OK(atoll_comm_barrier(comm));
  if (check_rank == 0)
    CHECK_OK(atoll_comm_send(comm, queue, buffer, N, ATOLL_F32, 1, 0, NULL));
  else
    CHECK_OK(atoll_comm_recv(comm, queue, buffer, N, ATOLL_F32, 0, 0, NULL));
  /* The last element tells; volatile, since MPI writes it behind the compiler's back. */
  volatile float *last = &buffer[N - 1];
  double start = atoll_clock_now();
  while (check_rank == 1 && *last != (float)((N - 1) % 1000) && atoll_clock_now() < start + 20)
    atoll_clock_sleep(0.005);
  CHECK(check_rank == 0 || *last == (float)((N - 1) % 1000));
  CHECK_OK(atoll_queue_sync(queue));
  for (int i = 0; i < N; i++)
    CHECK(buffer[i] == (float)(i % 1000));
  /* Idle: heartbeats only. */
  double cpu = atoll_clock_process_cpu();
  atoll_clock_sleep(1.0);
  CHECK(atoll_clock_process_cpu() - cpu < 0.1);
  /* Pending, while nobody polls: the watch does, every millisecond at most. */
  int32_t x = 1;
  if (check_rank == 1)
    CHECK_OK(atoll_comm_recv(comm, queue, &x, 1, ATOLL_I32, 0, 1, NULL));
  cpu = atoll_clock_process_cpu();
  atoll_clock_sleep(1.0);
  CHECK(atoll_clock_process_cpu() - cpu < 0.3);
  if (check_rank == 0)
    CHECK_OK(atoll_comm_send(comm, queue, &x, 1, ATOLL_I32, 1, 1, NULL));
  CHECK_OK(atoll_queue_sync(queue));
  free(buffer);
  atoll_queue_destroy(&queue);
  atoll_device_close(&device);
  atoll_comm_destroy(&comm);
  atoll_watch_stop(&watch);
  return check_end();
}

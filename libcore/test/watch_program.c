/* A small job in which something goes wrong, for the cases that watch it from outside: watch_program MODE */
#include "mpi_check.h"

#include "atoll/clock.h"
#include "atoll/comm.h"
#include "atoll/log.h"
#include "atoll/stop.h"

#include <signal.h>
#include <unistd.h>

static void on_abort(void *arg, atoll_err code, const char *reason) {
  fprintf(stderr, "hook of rank %d: %s because %s\n", *(int *)arg, atoll_err_name(code), reason);
}

static void work(double seconds) {
  double until = atoll_clock_now() + seconds;
  while (atoll_clock_now() < until)
    atoll_clock_sleep(0.01);
}

/* Enters a phase and waits in it for everybody; rank `without` does something else first. */
static void meet(atoll_watch *watch, atoll_comm *comm, const char *name, double limit) {
  atoll_watch_begin(watch, name, limit);
  CHECK_OK(atoll_comm_barrier(comm));
  atoll_watch_end(watch);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  const char *mode = argc > 1 ? argv[1] : "";
  atoll_watch *watch = NULL;
  atoll_comm *comm;
  atoll_watch_params p;
  atoll_watch_params_init(&p);
  p.heartbeat_seconds = 0.2;
  p.silence_seconds = 2;
  if (strcmp(mode, "second-signal-poll") && strcmp(mode, "second-signal-alarm"))
    CHECK_OK(atoll_watch_start(MPI_COMM_WORLD, &p, &watch));
  atoll_watch_on_abort(watch, on_abort, &check_rank);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", watch, &comm));
  meet(watch, comm, "start", 0);

  if (!strcmp(mode, "absent")) { /* the last rank never comes to the second meeting */
    meet(watch, comm, "step", 0);
    if (check_rank == check_size - 1) {
      atoll_watch_begin(watch, "reading", 0);
      work(60);
    }
    meet(watch, comm, "step", 1.0);
  } else if (!strcmp(mode, "all-there")) { /* everybody waits for a message nobody sends */
    atoll_device *device;
    atoll_queue *queue;
    int32_t x;
    CHECK_OK(atoll_device_open("cpu", NULL, &device));
    CHECK_OK(atoll_queue_create(device, "comm", &queue));
    atoll_watch_begin(watch, "exchange", 1.0);
    CHECK_OK(atoll_comm_recv(comm, queue, &x, 1, ATOLL_I32, (check_rank + 1) % check_size, 4, NULL));
    atoll_queue_sync(queue);
  } else if (!strcmp(mode, "stopped") || !strcmp(mode, "stopped-first")) {
    if (check_rank == (strcmp(mode, "stopped") ? 0 : check_size - 1))
      raise(SIGSTOP);
    meet(watch, comm, "step", 0);
  } else if (!strcmp(mode, "killed")) {
    if (check_rank == 1)
      raise(SIGKILL);
    meet(watch, comm, "step", 0);
  } else if (!strcmp(mode, "suspended")) { /* the whole job sleeps longer than the silence, and goes on */
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    meet(watch, comm, "before", 0);
    atoll_watch_begin(watch, "sleepy", 3.0);
    work(2);
    CHECK_OK(atoll_comm_barrier(comm));
    atoll_watch_end(watch);
  } else if (!strcmp(mode, "fatal")) {
    if (check_rank == 1) {
      atoll_fail(ATOLL_CORRUPT, "shard 1 is damaged");
      atoll_abort(watch, ATOLL_CORRUPT);
    }
    meet(watch, comm, "step", 0);
  } else if (!strncmp(mode, "second-signal", 13)) {
    atoll_stop_params s;
    atoll_stop_params_init(&s);
    CHECK_OK(atoll_stop_init(&s));
    if (check_rank == 1) {
      raise(SIGUSR1);
      raise(SIGUSR1); /* within a second: the same request, delivered twice */
      work(1.2);
      atoll_stop_reason reason;
      char text[64];
      if (!strcmp(mode, "second-signal-poll"))
        CHECK(atoll_stop_pending());
      raise(SIGTERM);
      if (!strcmp(mode, "second-signal-poll"))
        atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text);
      work(60);
    }
    meet(watch, comm, "step", 0);
  } else if (!strcmp(mode, "early")) { /* ranks that are done keep quiet while the last one works on */
    if (check_rank == check_size - 1)
      work(5);
  } else if (strcmp(mode, "clean")) {
    fprintf(stderr, "unknown mode '%s'\n", mode);
    return 1;
  }
  atoll_comm_destroy(&comm);
  atoll_watch_stop(&watch);
  if (!strcmp(mode, "clean")) /* again and again, at once, and with ranks that come late */
    for (int i = 0; i < 20; i++) {
      CHECK_OK(atoll_watch_start(MPI_COMM_WORLD, &p, &watch));
      if (i % 4 == 0 && check_rank == i / 4 % check_size)
        work(0.5);
      atoll_watch_stop(&watch);
      CHECK(watch == NULL);
    }
  if (check_rank == 0)
    printf("finished\n");
  return check_end();
}

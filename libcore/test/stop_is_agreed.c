/* One rank asked is enough, and all ranks stop at the same poll, for the same reason: a signal, a deadline, a halt
 * file, a request from code. */
#include "mpi_check.h"

#include "atoll/clock.h"
#include "atoll/stop.h"

#include <signal.h>
#include <unistd.h>

static atoll_stop_reason reason;
static char text[128];

static void start(double limit, double margin, const char *halt) {
  atoll_stop_params p;
  atoll_stop_params_init(&p);
  p.time_limit = limit;
  p.margin = margin;
  p.halt_file = halt;
  CHECK_OK(atoll_stop_init(&p));
  raise(SIGPIPE); /* whoever read the story has gone: no reason to die, nor to stop */
  CHECK_OK(atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text));
  CHECK(reason == ATOLL_STOP_NONE && !text[0] && !atoll_stop_pending());
}

/* The poll at which this rank stopped must be the poll at which all did. */
static void poll_until_stopped(int rank_asked, int at, int signal) {
  int polls = 0, low, high;
  do {
    if (check_rank == rank_asked && polls == at) {
      raise(signal);
      CHECK(atoll_stop_pending());
    }
    CHECK_OK(atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text));
    polls++;
  } while (reason == ATOLL_STOP_NONE && polls < 100);
  MPI_Allreduce(&polls, &low, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&polls, &high, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  CHECK(low == high && polls == at + 1);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  unsetenv("SLURM_JOB_END_TIME");
  static const struct {
    int signal;
    const char *name;
  } known[] = {{SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}, {SIGTERM, "TERM"}, {SIGINT, "INT"}, {SIGHUP, "HUP"}};
  for (int i = 0; i < 5; i++) {
    int who = (check_size - 1 + i) % check_size; /* the last rank first */
    char want[64];
    start(0, 0, NULL);
    poll_until_stopped(who, 3, known[i].signal);
    snprintf(want, sizeof want, "signal %s on rank %d", known[i].name, who);
    CHECK(reason == ATOLL_STOP_SIGNAL && !strcmp(text, want));
    CHECK_OK(atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text)); /* asked stays asked */
    CHECK(reason == ATOLL_STOP_SIGNAL);
    atoll_stop_finish();
  }

  start(1000, 100, NULL);
  if (check_rank == 1)
    atoll_clock_advance(899);
  CHECK_OK(atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text));
  CHECK(reason == ATOLL_STOP_NONE);
  if (check_rank == 1)
    atoll_stop_set_margin(102); /* a checkpoint turned out to be slower */
  CHECK_OK(atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text));
  CHECK(reason == ATOLL_STOP_DEADLINE && strstr(text, "rank 1"));
  atoll_stop_finish();

  char end[32];
  snprintf(end, sizeof end, "%.0f", atoll_clock_wall() + (check_rank == 0 ? 50 : 5000));
  setenv("SLURM_JOB_END_TIME", end, 1);
  start(0, 10, NULL);
  if (check_rank == 0)
    atoll_clock_advance(45);
  CHECK_OK(atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text));
  CHECK(reason == ATOLL_STOP_DEADLINE);
  atoll_stop_finish();
  setenv("SLURM_JOB_END_TIME", "tomorrow", 1);
  atoll_stop_params p;
  atoll_stop_params_init(&p);
  CHECK(atoll_stop_init(&p) == ATOLL_USAGE && strstr(atoll_err_message(), "tomorrow"));
  unsetenv("SLURM_JOB_END_TIME");

  char halt[64];
  snprintf(halt, sizeof halt, "halt.%d", (int)getppid());
  start(0, 0, halt);
  FILE *f = check_rank == 0 ? fopen(halt, "w") : NULL;
  if (f)
    fclose(f);
  CHECK_OK(atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text));
  CHECK(reason == ATOLL_STOP_HALT_FILE && strstr(text, halt));
  if (check_rank == 0)
    remove(halt);
  atoll_stop_finish();

  start(0, 0, NULL);
  if (check_rank == check_size - 1)
    atoll_stop_request("validation loss reached the goal");
  CHECK_OK(atoll_stop_poll(MPI_COMM_WORLD, &reason, text, sizeof text));
  CHECK(reason == ATOLL_STOP_REQUEST && strstr(text, "validation loss reached the goal (rank"));
  atoll_stop_finish();
  return check_end();
}

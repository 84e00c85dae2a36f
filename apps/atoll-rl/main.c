/* atoll-rl: reinforcement learning as a recurrent program. Options, MPI, the exit code. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>

#include "atoll/agree.h"
#include "atoll/cli.h"
#include "atoll/log.h"
#include "atoll/store.h"
#include "run.h"

static const atoll_cli_flag flags[] = {
    {"trace", "FILE", "write the program there, before and after each pass, and its schedule"}, {NULL, NULL, NULL}};

static const char notes[] =
    "Resume is the same command: the newest good checkpoint of the run is found by itself.\n"
    "Signals TERM, INT, USR1, USR2 and HUP, the time limit and a file named halt in the run directory stop the job at\n"
    "the next chunk of iterations with a checkpoint and exit status 75; a second signal aborts.\n"
    "atoll-inspect metrics RUN prints the learning curve.\n"
    "Examples:\n"
    "  atoll-rl inputs/jobs/cartpole.yaml rl.seed=3\n"
    "  mpirun --bind-to none -np 2 atoll-rl rl.algorithm=ppo rl.environment=./mine.so run.dir=runs/mine\n"
    "An environment of your own: atoll/rl.h has the interface.\n";

static atoll_err run(rl_job *job, const atoll_opts *opts, const char *trace, atoll_err parsed) {
  ATOLL_TRY_ALL(MPI_COMM_WORLD, parsed);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_mpi_check_world(MPI_COMM_WORLD));
  FILE *f = trace ? fopen(trace, "w") : NULL;
  if (trace && !f)
    parsed = atoll_fail(ATOLL_IO, "%s cannot be written", trace);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, parsed);
  atoll_err err = job_run(job, opts, f);
  if (f && fclose(f) != 0 && err == ATOLL_OK)
    err = atoll_fail(ATOLL_IO, "%s cannot be written", trace);
  return err;
}

int main(int argc, char **argv) {
  const atoll_cli_library libraries[] = {{"HDF5", NULL, atoll_store_library()}, {NULL, NULL, NULL}};
  atoll_cli_params p;
  atoll_cli *cli = NULL;
  rl_job job;
  int done = 0, initialized = 0;
  atoll_cli_params_init(&p);
  p.program = "atoll-rl";
  p.summary = "Let a policy learn while it acts, as a recurrent program, on the ranks it is launched on.";
  p.operands = "[JOB.yaml]";
  p.max_operands = 1;
  p.job_operand = 1;
  p.flags = flags;
  p.libraries = libraries;
  p.notes = notes;
  p.rank = atoll_launched_rank();
  signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write(), not a death */
  atoll_err err = atoll_cli_create(&p, &cli);
  if (err == ATOLL_OK)
    err = job_init(&job, atoll_cli_opts(cli));
  if (err == ATOLL_OK)
    err = atoll_cli_parse(cli, argc, argv, &done);
  if (!done) {
    atoll_err parsed = err;
    err = atoll_mpi_init(&argc, &argv);
    if (err == ATOLL_OK && parsed == ATOLL_OK && atoll_cli_job(cli))
      (void)snprintf(job.file, sizeof job.file, "%s", atoll_cli_job(cli));
    if (err == ATOLL_OK)
      err = run(&job, atoll_cli_opts(cli), parsed == ATOLL_OK ? atoll_cli_value(cli, "trace") : NULL, parsed);
  }
  int status = atoll_cli_finish(err);
  atoll_log_close();
  MPI_Initialized(&initialized);
  if (initialized)
    MPI_Finalize();
  atoll_cli_destroy(&cli);
  return status;
}

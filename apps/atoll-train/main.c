/* atoll-train: the main job. Options, MPI, the walk of modules/train, the exit code. */
#include <hdf5.h>
#include <hwloc.h>
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "atoll/agree.h"
#include "atoll/cli.h"
#include "atoll/device.h"
#include "atoll/log.h"
#include "atoll/plugin.h"
#include "atoll/store.h"
#include "atoll/train.h"

static const char *hwloc_text(unsigned version, char *buf, size_t n) {
  snprintf(buf, n, "%u.%u.%u", version >> 16, version >> 8 & 0xff, version & 0xff);
  return buf;
}

static atoll_err run(atoll_job *job, const atoll_opts *opts, atoll_err parsed) {
  atoll_train_result result;
  ATOLL_TRY_ALL(MPI_COMM_WORLD, parsed);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_mpi_check_world(MPI_COMM_WORLD));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_plugins_load());
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_job_check(job));
  atoll_err err = atoll_train_run(MPI_COMM_WORLD, job, opts, &result);
  if (err == ATOLL_OK || err == ATOLL_STOPPED) {
    char loss[32] = ""; /* none before the first step */
    if (result.steps_done > 0)
      snprintf(loss, sizeof loss, " , loss %.4f", result.loss);
    atoll_say("%s : step %lld%s%s", result.reason, (long long)result.steps_done, loss,
              err == ATOLL_STOPPED ? " , requeue to continue" : "");
    if (isfinite(result.validation_loss))
      atoll_say("validation loss %.4f nat/token", result.validation_loss);
    atoll_say("results in %s/run.h5 , checkpoint %s", job->run.dir, result.checkpoint[0] ? result.checkpoint : "none");
  }
  return err;
}

int main(int argc, char **argv) {
  char compiled[32], running[32];
  const atoll_cli_library libraries[] = {{"HDF5", NULL, atoll_store_library()},
                                         {"hwloc", hwloc_text(HWLOC_API_VERSION, compiled, sizeof compiled),
                                          hwloc_text(hwloc_get_api_version(), running, sizeof running)},
                                         {NULL, NULL, NULL}};
  atoll_cli_params p;
  atoll_cli *cli = NULL;
  atoll_job job;
  int done = 0;
  atoll_cli_params_init(&p);
  p.program = "atoll-train";
  p.summary = "Train a transformer language model as a job file says, on the ranks it is launched on.";
  p.operands = "[JOB.yaml]";
  p.max_operands = 1;
  p.job_operand = 1;
  p.libraries = libraries;
  p.rank = atoll_launched_rank();
  p.notes = "Resume is the same command: the newest good checkpoint of the run is found by itself.\n"
            "Signals TERM, INT, USR1, USR2 and HUP, the time limit and a file named halt in the run directory stop the "
            "job at\n"
            "the next step with a checkpoint and exit status 75; a second signal aborts.\n";
  signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write(), not a death */
  atoll_err err = atoll_cli_create(&p, &cli);
  if (err == ATOLL_OK)
    err = atoll_job_init(&job, atoll_cli_opts(cli));
  if (err == ATOLL_OK)
    err = atoll_cli_parse(cli, argc, argv, &done);
  if (!done) {
    atoll_err parsed = err;
    err = atoll_mpi_init(&argc, &argv);
    if (err == ATOLL_OK) {
      if (parsed == ATOLL_OK && atoll_cli_job(cli))
        snprintf(job.file, sizeof job.file, "%s", atoll_cli_job(cli));
      err = run(&job, atoll_cli_opts(cli), parsed);
      int status = atoll_cli_finish(err);
      atoll_log_close();
      MPI_Finalize();
      atoll_cli_destroy(&cli);
      return status;
    }
  }
  int status = atoll_cli_finish(err);
  atoll_cli_destroy(&cli);
  return status;
}

/* predict: the step that planning predicts against the step that training takes.
 *
 * A shared machine is faster in one minute than in the next, and then a prediction tells of the minute in which layers
 * were measured. So predictions and steps take turns, and each run of steps is held against the mean of the predictions
 * before and after it: what their median ratio differs from 1 is the model's own error, not the weather's. */
#include <math.h>
#include <stdio.h>

#include "atoll/clock.h"
#include "atoll/kernel.h"
#include "atoll/log.h"
#include "bench.h"

enum { MOST_ROUNDS = 64, MOST_STEPS = 512, LEAST_STEPS = 1 };

/* Steps that take as long as a calibration; rank 0's clock decides. */
static atoll_err take_steps(atoll_trainer *t, double limit, double *median) {
  static double seconds[MOST_STEPS];
  double began = atoll_clock_now();
  int n = 0;
  for (int go = 1; go && n < MOST_STEPS; n++) {
    atoll_step_report r;
    ATOLL_TRY(atoll_trainer_step(t, &r));
    seconds[n] = r.seconds;
    go = n + 1 < LEAST_STEPS || atoll_clock_now() - began < limit;
    MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  *median = atoll_median(seconds, (size_t)n);
  return ATOLL_OK;
}

static atoll_err measure(atoll_trainer *t, int64_t rounds, double limit, double *predicted, double *measured) {
  double first;
  ATOLL_TRY(take_steps(t, 0, &first)); /* page faults and first-use choices */
  ATOLL_TRY(atoll_trainer_predict(t, limit, &predicted[0]));
  for (int64_t i = 0; i < rounds; i++) {
    ATOLL_TRY(take_steps(t, limit, &measured[i]));
    ATOLL_TRY(atoll_trainer_predict(t, limit, &predicted[i + 1]));
  }
  return ATOLL_OK;
}

static void report(const atoll_plan *plan, int64_t rounds, const double *predicted, const double *measured,
                   json_t *out) {
  double ratio[MOST_ROUNDS];
  json_t *rows = json_array();
  for (int64_t i = 0; i < rounds; i++) {
    ratio[i] = 0.5 * (predicted[i] + predicted[i + 1]) / measured[i];
    json_array_append_new(rows, json_pack("{s:f,s:f,s:f,s:f}", "predicted_before_seconds", predicted[i],
                                          "predicted_after_seconds", predicted[i + 1], "measured_seconds", measured[i],
                                          "ratio", ratio[i]));
    atoll_say("predicted %9.2f ms , then %9.2f ms ; measured %9.2f ms , ratio %.3f", 1e3 * predicted[i],
              1e3 * predicted[i + 1], 1e3 * measured[i], ratio[i]);
  }
  double median = atoll_median(ratio, (size_t)rounds), said = plan->step_seconds;
  json_object_set_new(out, "rows", rows);
  json_object_set_new(out, "ranks", json_integer(plan->world));
  json_object_set_new(out, "plan_predicted_seconds", json_real(said));
  json_object_set_new(out, "ratio", json_real(median));
  json_object_set_new(out, "ratio_least", json_real(ratio[0]));
  json_object_set_new(out, "ratio_most", json_real(ratio[rounds - 1]));
  atoll_say("predicted over measured: median %.3f , %.3f to %.3f", median, ratio[0], ratio[rounds - 1]);
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out) {
  int64_t rounds;
  double predicted[MOST_ROUNDS + 1], measured[MOST_ROUNDS];
  atoll_trainer *t = NULL;
  ATOLL_TRY(bench_count(cli, "repeats", 9, 1, MOST_ROUNDS, &rounds));
  snprintf(job->file, sizeof job->file, "%s", atoll_cli_job(cli) ? atoll_cli_job(cli) : ""); /* data lie beside it */
  ATOLL_TRY(atoll_job_check(job));
  ATOLL_TRY(atoll_trainer_open(MPI_COMM_WORLD, job, opts, &t));
  atoll_err err = measure(t, rounds, job->topo.probe_seconds / 2, predicted, measured);
  if (err == ATOLL_OK && out)
    report(atoll_trainer_plan(t), rounds, predicted, measured, out);
  atoll_trainer_close(&t);
  return err;
}

const bench bench_predict = {"predict", "the step that planning predicts against the step that training takes",
                             "job repeats dtype", run};

/* One step: pipeline, sums over ranks, the guard, the update. Every rank computes the same loss, norm and decision from
 * the same numbers.
 *
 * One reduction carries each parameter's sum of squares, by tensor rank where these divide it, and each micro-batch's
 * loss. Each entry has exactly one
 * contributor and zeros from everyone else, so the library's order of summation cannot change a bit; the totals are
 * then added in the order of the model's parameters and of the global micro-batches. */
#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/fault.h"
#include "atoll/log.h"

/* Sum of squares of this rank's share, and of its micro-batches' losses, over all ranks. */
static atoll_err share_norms(session *s, int buffer, double *norm, double *loss) {
  int params = atoll_model_params_count(s->model), degree = team_degree(s->plan, -1), norms = params * degree;
  int64_t G = s->plan->micro_batches;
  memset(s->by_param, 0, (size_t)params * sizeof *s->by_param);
  memset(s->shared, 0, (size_t)norms * sizeof *s->shared);
  if (s->stage) {
    ATOLL_TRY(atoll_stage_sum_squares(s->stage, buffer, s->by_param));
    ATOLL_TRY(atoll_queue_sync(s->compute));
  }
  for (int i = 0; i < params; i++)
    if (s->team.share[i].parts > 0 && s->team.share[i].part == 0)
      s->shared[i * degree + s->place.slot] = s->by_param[i];
  ATOLL_TRY(atoll_comm_allreduce(s->world, s->out, s->shared, s->shared, norms + G, ATOLL_F64, ATOLL_SUM, NULL));
  ATOLL_TRY(atoll_queue_sync(s->out));
  double squares = 0, sum = 0;
  for (int i = 0; i < norms; i++)
    squares += s->shared[i];
  for (int64_t g = 0; g < G; g++)
    sum += s->shared[norms + g];
  *norm = sqrt(squares);
  *loss = sum / (double)atoll_data_targets(s->train, (uint64_t)s->job->train.seed, s->step, s->plan->global_batch);
  return ATOLL_OK;
}

atoll_rounding session_rounding(const session *s, int64_t updates) {
  return (atoll_rounding){.by_chance = s->job->train.stochastic_rounding,
                          .key = {.seed = (uint64_t)s->job->train.seed, .step = (uint64_t)updates}};
}

atoll_err session_refresh(session *s) {
  atoll_rounding r = session_rounding(s, s->step - s->skipped);
  return s->stage ? atoll_stage_refresh(s->stage, &r) : ATOLL_OK;
}

static atoll_err apply_update(session *s, int buffer, double norm) {
  const atoll_train_params *t = &s->job->train;
  int64_t done = s->step - s->skipped + 1;
  double updates = (double)done;
  atoll_adamw p = {.lr = (float)atoll_learning_rate(t, s->step),
                   .beta1 = (float)t->beta1,
                   .beta2 = (float)t->beta2,
                   .eps = (float)t->eps,
                   .decay = (float)t->weight_decay,
                   .grad_scale = t->clip > 0 && norm > t->clip ? (float)(t->clip / norm) : 1.0f,
                   .bias1 = (float)(1 - pow(t->beta1, updates)),
                   .bias2 = (float)(1 - pow(t->beta2, updates)),
                   .rounding = session_rounding(s, done)};
  if (!s->stage)
    return ATOLL_OK;
  ATOLL_TRY(atoll_stage_adamw(s->stage, buffer, &p));
  return atoll_queue_sync(s->compute);
}

/* Forward, backward and the sums; *buffer is the gradient buffer that holds the total. */
static atoll_err run_pipeline(session *s, partials *sums, flow_times *times, int *buffer, atoll_step_report *report) {
  double *losses = s->shared + atoll_model_params_count(s->model) * team_degree(s->plan, -1);
  memset(losses, 0, (size_t)s->plan->micro_batches * sizeof *losses);
  double t0 = atoll_clock_now();
  atoll_perf_begin(s->perf, s->region[REGION_PIPELINE]);
  if (s->stage)
    ATOLL_TRY(flow_step(s->flow, s->step, sums, losses, times));
  atoll_perf_end(s->perf, s->region[REGION_PIPELINE]);
  double t1 = atoll_clock_now();
  report->pipeline = t1 - t0;
  atoll_fault_point("train.reduce");
  atoll_perf_begin(s->perf, s->region[REGION_REDUCE]);
  if (s->stage)
    ATOLL_TRY(team_reduce(&s->team, s->world, &s->exec, s->stage, sums, buffer, &report->tied));
  atoll_perf_end(s->perf, s->region[REGION_REDUCE]);
  report->reduce = atoll_clock_now() - t1;
  return ATOLL_OK;
}

atoll_err session_step(session *s, record_row *row, atoll_step_report *report) {
  const atoll_train_params *t = &s->job->train;
  double began = atoll_clock_now();
  partials sums;
  flow_times times = {0};
  int buffer = 0;
  double norm = 0, loss = 0;
  memset(report, 0, sizeof *report);
  atoll_perf_begin(s->perf, s->region[REGION_STEP]);
  if (s->stage)
    ATOLL_TRY(partials_begin(&sums, s->plan->sum_leaves, s->plan->micro_batches, s->partials));
  /* A rank that fails here leaves its peers waiting: the run's main turns its error into an abort of all (see run.c).
   */
  ATOLL_TRY(run_pipeline(s, &sums, &times, &buffer, report));
  if (s->stage && atoll_fault_hit("train.gradient"))
    atoll_stage_flat_grad(s->stage, buffer)[0] = NAN;
  ATOLL_TRY(share_norms(s, buffer, &norm, &loss));

  double t0 = atoll_clock_now();
  int finite = isfinite(loss) && isfinite(norm);
  atoll_fault_point("train.update");
  atoll_perf_begin(s->perf, s->region[REGION_UPDATE]);
  if (finite) {
    ATOLL_TRY(apply_update(s, buffer, norm));
    s->skipped_in_row = 0;
    s->last_loss = loss;
  } else {
    s->skipped++;
    s->skipped_in_row++;
    if (s->rank == 0)
      atoll_warn("step %lld skipped: loss %g, gradient norm %g ( %lld in a row, limit %lld )", (long long)s->step + 1,
                 loss, norm, (long long)s->skipped_in_row, (long long)t->skip_limit);
  }
  atoll_perf_end(s->perf, s->region[REGION_UPDATE]);
  s->finite = finite;
  s->step++;
  s->tokens += s->plan->global_batch * s->plan->seq;
  double now = atoll_clock_now(), seconds = now - began;
  s->step_seconds = seconds;
  atoll_perf_end(s->perf, s->region[REGION_STEP]);
  if (times.forwards > 0)
    durations_add(&s->forward, times.forward / (double)times.forwards);
  if (times.backwards > 0)
    durations_add(&s->backward, times.backward / (double)times.backwards);
  durations_add(&s->update, now - t0 + report->reduce);
  durations_add(&s->wait, times.wait);
  report->step = s->step;
  report->loss = loss;
  report->gradient_norm = norm;
  report->seconds = seconds;
  report->update = now - t0;
  report->wait = times.wait;
  report->forward = times.forwards ? times.forward / (double)times.forwards : 0;
  report->backward = times.backwards ? times.backward / (double)times.backwards : 0;
  report->skipped = !finite;
  double rate = (double)(s->plan->global_batch * s->plan->seq) / seconds;
  *row = (record_row){.step = s->step,
                      .loss = loss,
                      .learning_rate = atoll_learning_rate(t, s->step - 1),
                      .gradient_norm = norm,
                      .tokens = s->tokens,
                      .step_seconds = seconds,
                      .tokens_per_second = rate,
                      .ceiling_fraction = 6.0 * (double)atoll_model_matmul_elements(s->model) * rate / s->ceiling,
                      .skipped = !finite,
                      .attempt = s->attempt};
  if (!finite && s->skipped_in_row >= t->skip_limit)
    return atoll_fail(ATOLL_NONFINITE,
                      "%lld steps in a row had no finite loss and gradient norm (last: step %lld, loss %g, norm %g)",
                      (long long)s->skipped_in_row, (long long)s->step, loss, norm);
  return ATOLL_OK;
}

atoll_err session_validate(session *s, double *loss) {
  int64_t windows = atoll_data_windows(s->validation), limit = s->job->train.validate_windows;
  if (limit > 0 && limit < windows)
    windows = limit;
  int64_t rounds = (windows + s->plan->global_batch - 1) / s->plan->global_batch, n = rounds * s->plan->micro_batches;
  double *sums = calloc((size_t)n * 2, sizeof *sums);
  ATOLL_TRY_ALL(s->mpi, sums ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "validation of %lld windows", (long long)windows));
  atoll_fault_point("train.validate");
  atoll_perf_begin(s->perf, s->region[REGION_VALIDATE]);
  atoll_err err = ATOLL_OK;
  if (s->stage)
    err = flow_validate(s->flow, rounds, windows, sums, sums + n);
  if (err == ATOLL_OK)
    err = atoll_comm_allreduce(s->world, s->out, sums, sums, 2 * n, ATOLL_F64, ATOLL_SUM, NULL);
  if (err == ATOLL_OK)
    err = atoll_queue_sync(s->out);
  double sum = 0, tokens = 0;
  for (int64_t i = 0; i < n; i++) {
    sum += sums[i];
    tokens += sums[n + i];
  }
  free(sums);
  atoll_perf_end(s->perf, s->region[REGION_VALIDATE]);
  *loss = sum / tokens;
  return err;
}

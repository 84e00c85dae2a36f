/* step: whole training steps (forward, backward, clip, AdamW) of a job's model on random tokens.
 *
 * One rank: tokens per second against the GEMM ceiling. Several ranks: a pipeline with a stage a rank, against the time
 * that the 1F1B schedule needs with the stages' own measured times and free messages. gflops counts 6 FLOP per
 * matrix-multiplied parameter and token (tied head once) and nothing else. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/agree.h"
#include "atoll/file.h"
#include "atoll/kernel.h"
#include "atoll/log.h"
#include "atoll/perf.h"
#include "atoll/rng.h"
#include "ceiling.h"

/* A token file of random ids, so that the benchmark needs no data; speed does not depend on the values. */
static atoll_err write_tokens(const char *path, int64_t tokens, int64_t vocab) {
  size_t bytes = 1024 + (size_t)tokens * 2;
  unsigned char *data = calloc(1, bytes);
  if (!data)
    return atoll_fail(ATOLL_NOMEM, "random tokens");
  int32_t header[3] = {20240520, 1, (int32_t)tokens};
  memcpy(data, header, sizeof header);
  atoll_rng_key key = {.seed = 1, .site = ATOLL_RNG_TEST};
  for (int64_t i = 0; i < tokens; i++) {
    uint16_t id = (uint16_t)(atoll_rng_bits(&key, (uint64_t)i) % (uint32_t)(vocab < 65536 ? vocab : 65536));
    memcpy(data + 1024 + 2 * i, &id, 2);
  }
  atoll_err err = atoll_file_publish(path, data, bytes);
  free(data);
  return err;
}

/* Makespan of the schedule over stages with given times per micro-batch, messages free: each action starts when its
 * stage is free and what it needs is there. */
static double bound_1f1b(const double *forward, const double *backward, int stages, int64_t micro_batches) {
  int64_t M = micro_batches;
  double *f = calloc((size_t)(stages * M), sizeof *f), *b = calloc((size_t)(stages * M), sizeof *b), end = 0;
  atoll_action *order = calloc((size_t)(2 * M * stages), sizeof *order);
  int64_t *at = calloc((size_t)stages, sizeof *at);
  double *free_at = calloc((size_t)stages, sizeof *free_at);
  for (int s = 0; s < stages; s++)
    atoll_schedule_1f1b(stages - s, 0, M, order + 2 * M * s);
  for (int64_t i = 0; i < stages * M; i++)
    f[i] = b[i] = -1;
  for (int moved = 1; moved;) {
    moved = 0;
    for (int s = 0; s < stages; s++)
      while (at[s] < 2 * M) {
        const atoll_action *a = &order[2 * M * s + at[s]];
        int64_t m = a->micro_batch;
        double ready =
            !a->backward ? (s == 0 ? 0 : f[(s - 1) * M + m]) : (s == stages - 1 ? f[s * M + m] : b[(s + 1) * M + m]);
        if (ready < 0)
          break;
        double start = ready > free_at[s] ? ready : free_at[s];
        free_at[s] = start + (a->backward ? backward[s] : forward[s]);
        (a->backward ? b : f)[s * M + m] = free_at[s];
        end = free_at[s] > end ? free_at[s] : end;
        at[s]++;
        moved = 1;
      }
  }
  free(f), free(b), free(order), free(at), free(free_at);
  return end;
}

enum { MOST_STEPS = 256 };
typedef struct samples {
  int n;
  double peak_rss; /* before the matrices of ceiling samples: after the first step, or without these after all */
  double seconds[MOST_STEPS], pipeline[MOST_STEPS], tied[MOST_STEPS], update[MOST_STEPS], reduce[MOST_STEPS],
      forward[MOST_STEPS], backward[MOST_STEPS];
} samples;

/* c NULL: the ceiling is not wanted. */
static atoll_err sample_ceiling(ceiling *c, int times) {
  for (int i = 0; c && i < times; i++)
    ATOLL_TRY(ceiling_sample(c));
  return ATOLL_OK;
}

static atoll_err measure(atoll_trainer *t, int64_t steps, ceiling *c, samples *s) {
  atoll_step_report r;
  ATOLL_TRY(atoll_trainer_step(t, &r)); /* page faults and first-use choices */
  s->peak_rss = (double)atoll_perf_peak_rss();
  ATOLL_TRY(sample_ceiling(c, c ? ceiling_round(c) : 0));
  atoll_kernels_profile(1);
  for (s->n = 0; s->n < steps; s->n++) {
    ATOLL_TRY(atoll_trainer_step(t, &r));
    ATOLL_TRY(sample_ceiling(c, 1));
    s->seconds[s->n] = r.seconds;
    s->pipeline[s->n] = r.pipeline;
    s->tied[s->n] = r.tied;
    s->update[s->n] = r.update;
    s->reduce[s->n] = r.reduce;
    s->forward[s->n] = r.forward;
    s->backward[s->n] = r.backward;
  }
  atoll_kernels_profile(0);
  if (!c)
    s->peak_rss = (double)atoll_perf_peak_rss();
  return sample_ceiling(c, c ? ceiling_round(c) : 0);
}

static void set(json_t *out, const char *key, double v) {
  json_object_set_new(out, key, isfinite(v) ? json_real(v) : json_null());
}

/* Where a step's time goes on this rank, longest first; products with their rate. */
static json_t *breakdown(int steps, double step_seconds) {
  json_t *list = json_array();
  atoll_kernel_time e;
  double rest = step_seconds;
  for (int i = 0; atoll_kernels_profile_entry(i, &e); i++) {
    double seconds = e.seconds / steps, flop = 2.0 * (double)e.rows * (double)e.inner * (double)e.columns;
    json_t *row = json_pack("{s:s,s:f,s:f,s:f}", "kernel", e.name, "calls", (double)e.calls / steps, "seconds", seconds,
                            "share", seconds / step_seconds);
    if (e.rows > 0)
      json_object_update_new(row, json_pack("{s:I,s:I,s:I,s:f}", "rows", (json_int_t)e.rows, "inner",
                                            (json_int_t)e.inner, "columns", (json_int_t)e.columns, "gflops",
                                            1e-9 * flop * (double)e.calls / e.seconds));
    json_array_append_new(list, row);
    rest -= seconds;
  }
  json_array_append_new(
      list, json_pack("{s:s,s:f,s:f}", "kernel", "outside of kernels", "seconds", rest, "share", rest / step_seconds));
  return list;
}

static atoll_err report(const atoll_job *job, atoll_trainer *t, samples *s, const ceiling *c, json_t *out) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const atoll_plan *plan = atoll_trainer_plan(t);
  double mine[6] = {atoll_median(s->forward, (size_t)s->n), atoll_median(s->backward, (size_t)s->n),
                    atoll_median(s->tied, (size_t)s->n),    s->peak_rss,
                    atoll_median(s->update, (size_t)s->n),  atoll_median(s->reduce, (size_t)s->n)};
  double *all = calloc((size_t)size * 6, sizeof *all);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, all ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "figures of %d ranks", size));
  MPI_Gather(mine, 6, MPI_DOUBLE, all, 6, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    double seconds = atoll_median(s->seconds, (size_t)s->n),
           tokens = (double)(plan->global_batch * plan->seq) / seconds;
    double gflops = 6e-9 * (double)atoll_model_matmul_elements(atoll_trainer_model(t)) * tokens,
           top = c ? ceiling_gflops(c) : NAN;
    json_object_set_new(out, "model", json_string(job->model.preset));
    json_object_set_new(out, "dtype", json_string(atoll_dtype_name(plan->dtype)));
    json_object_set_new(out, "ranks", json_integer(size));
    json_object_set_new(out, "threads", json_integer(atoll_trainer_threads(t)));
    json_object_set_new(out, "B", json_integer((json_int_t)plan->pipeline[0].stage[0].replica[0].micro_batch));
    json_object_set_new(out, "T", json_integer((json_int_t)plan->seq));
    json_object_set_new(out, "micro_batches", json_integer((json_int_t)plan->micro_batches));
    json_object_set_new(out, "packed_weights", json_boolean(plan->pipeline[0].stage[0].packed));
    json_object_set_new(out, "steps", json_integer(s->n));
    set(out, "step_seconds", seconds);
    set(out, "tokens_per_second", tokens);
    set(out, "gflops", gflops);
    if (c)
      ceiling_report(c, out);
    set(out, "ceiling_fraction", gflops / top);
    double most = 0;
    for (int r = 0; r < size; r++)
      most = fmax(most, all[r * 6 + 3]);
    set(out, "peak_rss_bytes", most);
    set(out, "forward_seconds", mine[0]);
    set(out, "backward_seconds", mine[1]);
    set(out, "update_seconds", mine[4]);
    double mean = 0;
    for (int i = 0; i < s->n; i++)
      mean += s->seconds[i] / s->n;
    json_object_set_new(out, "breakdown", breakdown(s->n, mean));
    char of[64] = "";
    if (c)
      snprintf(of, sizeof of, " of %.1f ( %.3f )", top, gflops / top);
    atoll_say("step %.3f s , %.0f tokens/s , %.1f GFLOP/s%s , peak RSS %.2f GiB", seconds, tokens, gflops, of,
              most / (1 << 30));
    if (size > 1 && plan->pipelines == 1 && plan->pipeline[0].stages == size) {
      double f[256], b[256], tied = 0;
      json_t *stages = json_array();
      for (int i = 0; i < size && i < 256; i++) {
        const double *x = all + 6 * plan->pipeline[0].stage[i].replica[0].rank[0];
        f[i] = x[0];
        b[i] = x[1];
        tied = fmax(tied, x[2]);
        json_array_append_new(
            stages, json_pack("{s:f,s:f,s:i}", "forward_seconds", x[0], "backward_seconds", x[1], "layers",
                              plan->pipeline[0].stage[i].chunk[0].last - plan->pipeline[0].stage[i].chunk[0].first));
      }
      double bound = bound_1f1b(f, b, size, plan->micro_batches), pipeline = atoll_median(s->pipeline, (size_t)s->n);
      json_object_set_new(out, "stages", stages);
      set(out, "bound_seconds", bound);
      set(out, "pipeline_seconds", pipeline);
      set(out, "bound_ratio", bound / pipeline);
      set(out, "tied_seconds", tied);
      set(out, "step_bound_ratio", (bound + mine[4]) / seconds);
      atoll_say("1F1B bound %.3f s , schedule %.3f s , ratio %.3f , tied weights %.3f s , whole step against bound and "
                "update %.3f",
                bound, pipeline, bound / pipeline, tied, (bound + mine[4]) / seconds);
    }
  }
  free(all);
  return ATOLL_OK;
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out) {
  int rank, size, alone = atoll_cli_value(cli, "alone") != NULL;
  int64_t steps, micro_batches, B, T;
  char dir[400], path[ATOLL_OPT_STRING_MAX];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ATOLL_TRY(bench_count(cli, "steps", 5, 1, MOST_STEPS, &steps));
  ATOLL_TRY(bench_count(cli, "micro-batches", size > 1 ? 8 : 1, 1, 4096, &micro_batches));
  ATOLL_TRY(bench_count(cli, "batch", 4, 1, 4096, &B));
  ATOLL_TRY(bench_count(cli, "seq", 256, 1, 1 << 20, &T));
  ATOLL_TRY(bench_scratch(MPI_COMM_WORLD, NULL, dir, sizeof dir));
  ATOLL_TRY(atoll_path_join(path, sizeof path, dir, "tokens.bin"));
  job->train.seq = T;
  job->plan.micro_batch = B;
  job->train.global_batch = B * micro_batches;
  job->plan.stages = size;
  job->plan.data_parallel = 1;
  job->topo.probe = 0;
  job->train.calibrate = size > 1;
  job->data.validation[0] = '\0';
  job->data.validation_share = 0;
  job->data.format = 0;
  atoll_trainer *t = NULL;
  static samples s;
  ceiling c;
  snprintf(job->data.train, sizeof job->data.train, "%s", path);
  atoll_err err = atoll_job_check(job);
  if (err == ATOLL_OK && rank == 0) {
    atoll_model *m = NULL;
    err = atoll_model_create(&job->model, &m);
    if (err == ATOLL_OK)
      err = write_tokens(path, (job->train.global_batch + 1) * (T + 1) * 2, atoll_model_config(m)->vocab);
    atoll_model_destroy(&m);
  }
  err = atoll_agree(MPI_COMM_WORLD, err);
  if (err == ATOLL_OK)
    err = atoll_trainer_open(MPI_COMM_WORLD, job, opts, &t);
  if (err == ATOLL_OK) {
    ceiling_init(&c, MPI_COMM_WORLD, atoll_trainer_threads(t), atoll_trainer_plan(t)->dtype == ATOLL_BF16);
    err = measure(t, steps, alone ? NULL : &c, &s);
  }
  if (err == ATOLL_OK)
    err = report(job, t, &s, alone ? NULL : &c, out);
  atoll_trainer_close(&t);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    atoll_file_remove_tree(dir);
  return err;
}

const bench bench_step = {
    "step",
    "whole training steps of a job's model against the GEMM ceiling; several ranks: a pipeline against its 1F1B bound",
    "job steps batch seq alone micro-batches dtype", run};

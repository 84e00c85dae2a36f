/* A file of measured runs: a JSON list of {cluster, plan, measured_iteration_time_s, measured_peak_memory_bytes}. What
 * the scorer said of them (judge_iteration_time_s, judge_peak_memory_bytes) may stand beside and is computed anew. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy/accuracy.h"
#include "atoll/file.h"
#include "cases/cases.h"
#include "plan_impl.h"

/* The scorer's estimate of peak memory has another reserve than its `fits`. */
#define SCORER_STATE_BYTES  24.0
#define SCORER_PEAK_RESERVE 5.06e9
/* Blocks of the short model whose step a profile's `update` is; embedding and head come on top. */
#define PROFILED_BLOCKS 2

void accuracy_free(accuracy_set *set) {
  for (int r = 0; set->run && r < set->runs; r++)
    free(set->run[r].stage);
  free(set->run);
  free(set->left_out[0]);
  free(set->left_out[1]);
  memset(set, 0, sizeof *set);
}

static double parameters(const case_values *v, int first, int last) {
  return v->parameters[last] - v->parameters[first];
}

/* Parameters of the model that was profiled; `blocks` in the middle are alike. */
static double short_model(const case_values *v, int layers) {
  int front = 1 + PROFILED_BLOCKS;
  return layers <= front + 1 ? parameters(v, 0, layers) : parameters(v, 0, front) + parameters(v, layers - 1, layers);
}

/* The slowest pair that may talk over the boundary before layer `s->first`, one way and the other. */
static double boundary_seconds(const atoll_case *c, int b, const engine_stage *before, const engine_stage *s) {
  double bytes = c->output[s->first - 1] * (double)c->batch[b], forward = 0, backward = 0;
  for (int i = 0; i < before->groups; i++)
    for (int k = 0; k < s->groups; k++) {
      forward = fmax(forward, case_transfer_seconds(c, before->group[i].kind, s->group[k].kind, bytes));
      backward = fmax(backward, case_transfer_seconds(c, s->group[k].kind, before->group[i].kind, bytes));
    }
  return forward + backward;
}

static void read_stage(const atoll_case *c, const engine_plan *plan, int i, accuracy_stage *out) {
  const engine_stage *s = &plan->stage[i];
  int b = plan->b;
  out->layers = s->last - s->first;
  out->micro_batches = plan->time[i].G;
  out->in_flight = plan->time[i].in_flight;
  out->compute = plan->time[i].seconds;
  out->sum = plan->time[i].sync;
  if (i > 0)
    out->messages += boundary_seconds(c, b, &plan->stage[i - 1], s);
  if (i + 1 < plan->stages)
    out->messages += boundary_seconds(c, b, s, &plan->stage[i + 1]);
  for (int g = 0; g < s->groups; g++) {
    const engine_kind *kind = &c->kind[s->group[g].kind];
    const case_values *v = &c->values[kind->option];
    const case_table *t = &c->gpu[c->pool[kind->pool].gpu].table[b * c->degrees + kind->option];
    double values = parameters(v, s->first, s->last);
    out->parameters = fmax(out->parameters, values);
    out->activation =
        fmax(out->activation, 4.0 * (double)c->batch[b] * (v->activation[s->last] - v->activation[s->first]));
    out->update = fmax(out->update, t->update[s->first] * values / short_model(v, c->layers));
  }
}

static void read_parts(const atoll_case *c, const engine_plan *plan, accuracy_run *run) {
  run->scorer[ATOLL_ACCURACY_TIME] = plan->seconds;
  for (int i = 0; i < plan->stages; i++) {
    accuracy_stage *s = &run->stage[i];
    read_stage(c, plan, i, s);
    double peak = SCORER_STATE_BYTES * s->parameters + (double)s->in_flight * s->activation + SCORER_PEAK_RESERVE;
    run->scorer[ATOLL_ACCURACY_MEMORY] = fmax(run->scorer[ATOLL_ACCURACY_MEMORY], peak);
  }
  int64_t D = 0;
  for (int g = 0; g < plan->stage[0].groups; g++)
    D += plan->stage[0].group[g].count;
  snprintf(run->label, sizeof run->label, "%.40s, %" PRId64 " samples by %" PRId64 ", %d stage%s x %" PRId64, c->model,
           c->global_batch, c->batch[plan->b], plan->stages, plan->stages == 1 ? "" : "s", D);
}

static atoll_err read_plan(const atoll_case *c, const char *where, const json_t *root, accuracy_run *run) {
  atoll_case open = *c; /* runs that were measured did fit */
  case_problem_parts parts = {0};
  engine_plan *plan = NULL;
  open.ignore_memory = 1;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, case_read_plan(&open, where, root, &plan));
  ATOLL_TRY_GOTO(err, done, case_problem(&open, &parts));
  ATOLL_TRY_GOTO(err, done, engine_evaluate(&parts.problem, plan));
  if (!isfinite(plan->seconds)) {
    err = atoll_fail(ATOLL_USAGE, "%s: replicas exchange data over a link that the data does not know", where);
    goto done;
  }
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)plan->stages, sizeof *run->stage, &run->stage));
  run->stages = plan->stages;
  read_parts(&open, plan, run);
done:
  engine_plan_destroy(&plan);
  free(parts.pool);
  return err;
}

static atoll_err read_measured(const char *where, const json_t *root, const char *key, double *out) {
  const json_t *v = json_object_get(root, key);
  if (!json_is_number(v) || !(json_number_value(v) > 0) || !isfinite(json_number_value(v))) {
    char *shown = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    atoll_err err =
        atoll_fail(ATOLL_USAGE, "%s.%s is %.40s, expected a number above 0", where, key, shown ? shown : "missing");
    free(shown);
    return err;
  }
  *out = json_number_value(v);
  return ATOLL_OK;
}

static atoll_err read_run(const char *where, json_t *root, const char *data, accuracy_run *run) {
  json_t *cluster = NULL, *plan = NULL, *ignored;
  json_error_t why;
  if (json_unpack_ex(root, &why, JSON_STRICT, "{s:o,s:o,s:o,s:o,s?o,s?o}", "cluster", &cluster, "plan", &plan,
                     "measured_iteration_time_s", &ignored, "measured_peak_memory_bytes", &ignored,
                     "judge_iteration_time_s", &ignored, "judge_peak_memory_bytes", &ignored))
    return atoll_fail(ATOLL_USAGE, "%s: %s", where, why.text);
  ATOLL_TRY(read_measured(where, root, "measured_iteration_time_s", &run->measured[ATOLL_ACCURACY_TIME]));
  ATOLL_TRY(read_measured(where, root, "measured_peak_memory_bytes", &run->measured[ATOLL_ACCURACY_MEMORY]));
  /* A case whose objective nobody asks. */
  json_t *model = json_object_get(plan, "model"), *batch = json_object_get(plan, "global_batch");
  json_t *root_case = json_pack("{s:s,s:O*,s:O*,s:O,s:{s:s}}", "name", "measured", "model", model, "global_batch",
                                batch, "cluster", cluster, "objective", "maximise", "iterations_per_s");
  if (!root_case)
    return atoll_fail(ATOLL_NOMEM, "%s: no memory for its cluster", where);
  atoll_case *c = NULL;
  atoll_err err = case_from_json(where, root_case, data, &c);
  json_decref(root_case);
  if (err == ATOLL_OK)
    err = read_plan(c, where, plan, run);
  atoll_case_destroy(&c);
  return err;
}

atoll_err accuracy_read(const char *path, const char *data, accuracy_set *set) {
  json_t *root = NULL;
  ATOLL_TRY(plan_read_json(path, &root));
  atoll_err err = ATOLL_OK;
  size_t n = json_array_size(root);
  if (!n)
    err = atoll_fail(ATOLL_USAGE, "%s: expected a list of measured runs", path);
  else
    err = plan_alloc(n, sizeof *set->run, &set->run);
  for (size_t i = 0; i < n && err == ATOLL_OK; i++) {
    char where[400];
    snprintf(where, sizeof where, "%.300s: [%zu]", path, i);
    set->runs++;
    err = read_run(where, json_array_get(root, i), data, &set->run[i]);
  }
  json_decref(root);
  return err;
}

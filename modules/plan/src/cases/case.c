/* A case planned and plans of it scored. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cases/cases.h"
#include "plan_impl.h"

atoll_err case_problem(const atoll_case *c, case_problem_parts *out) {
  memset(out, 0, sizeof *out);
  engine_pool *pool = NULL;
  ATOLL_TRY(plan_alloc((size_t)c->pools, sizeof *pool, &pool));
  for (int i = 0; i < c->pools; i++)
    pool[i] =
        (engine_pool){c->pool[i].count, c->pool[i].per_node, c->pool[i].zone, c->pool[i].gpu, c->pool[i].hour / 3600};
  engine_problem *p = &out->problem;
  engine_problem_init(p);
  p->layers = c->layers;
  p->layer_class = c->layer_class;
  p->pools = c->pools;
  p->pool = out->pool = pool;
  p->kinds = c->kinds;
  p->kind = c->kind;
  p->batches = c->batches;
  p->batch = c->batch;
  p->global_batch = c->global_batch;
  case_costs(c, &p->costs);
  p->goal = c->goal;
  p->max_seconds = c->max_seconds;
  p->max_price = c->max_price;
  p->last_factor = 2;
  p->double_after = 3;
  return ATOLL_OK;
}

/* ---- score ------------------------------------------------------------------------------------------------------- */

#define NOT_A_PLAN(...) atoll_fail(ATOLL_USAGE, __VA_ARGS__)

static int find_kind(const atoll_case *c, const char *gpu, const char *zone, json_int_t degree) {
  for (int k = 0; k < c->kinds; k++) {
    const case_pool *pool = &c->pool[c->kind[k].pool];
    if (c->kind[k].devices == degree && !strcmp(c->gpu[pool->gpu].name, gpu) && !strcmp(c->zone[pool->zone], zone))
      return k;
  }
  return -1;
}

static atoll_err read_replicas(const atoll_case *c, const char *name, int i, const json_t *list, engine_stage *stage,
                               engine_group *group) {
  size_t n = json_array_size(list), at;
  json_t *r;
  stage->groups = (int)n;
  stage->group = group;
  json_array_foreach((json_t *)(uintptr_t)list, at, r) {
    const char *gpu = "", *zone = "";
    json_int_t degree = 0, count = 1;
    json_error_t why;
    if (json_unpack_ex(r, &why, JSON_STRICT, "{s:s,s:s,s:I,s?I}", "gpu", &gpu, "zone", &zone, "tp", &degree, "count",
                       &count))
      return NOT_A_PLAN("%s: stage %d: replicas[%zu]: %s", name, i, at, why.text);
    if (count < 1 || count > INT32_MAX)
      return NOT_A_PLAN("%s: stage %d: replicas[%zu]: count is %" JSON_INTEGER_FORMAT, name, i, at, count);
    int kind = find_kind(c, gpu, zone, degree);
    if (kind < 0)
      return NOT_A_PLAN("%s: stage %d: the case has no profile, size or device for %s in %s at degree "
                        "%" JSON_INTEGER_FORMAT,
                        name, i, gpu, zone, degree);
    group[at] = (engine_group){kind, (int)count};
  }
  return n ? ATOLL_OK : NOT_A_PLAN("%s: stage %d has no replicas", name, i);
}

static atoll_err read_stages(const atoll_case *c, const char *name, const json_t *stages, engine_plan **out) {
  size_t n = json_array_size(stages), groups = 0, i;
  json_t *s;
  json_array_foreach((json_t *)(uintptr_t)stages, i, s) groups += json_array_size(json_object_get(s, "replicas"));
  if (!n || !groups || groups > 1000000)
    return NOT_A_PLAN("%s: %zu stages with %zu lists of replicas", name, n, groups);
  ATOLL_TRY(engine_plan_create((int)n, (int)groups, out));
  size_t at = 0;
  json_array_foreach((json_t *)(uintptr_t)stages, i, s) {
    engine_stage *stage = &(*out)->stage[i];
    json_t *replicas = NULL;
    json_error_t why;
    if (json_unpack_ex(s, &why, JSON_STRICT, "{s:[i,i],s:o}", "layers", &stage->first, &stage->last, "replicas",
                       &replicas))
      return NOT_A_PLAN("%s: stage %zu: %s", name, i, why.text);
    ATOLL_TRY(read_replicas(c, name, (int)i, replicas, stage, (*out)->group + at));
    at += json_array_size(replicas);
  }
  return ATOLL_OK;
}

atoll_err case_read_plan(const atoll_case *c, const char *name, const json_t *root, engine_plan **out) {
  const char *model = "", *ignored;
  json_int_t global_batch = 0, b = 0;
  json_t *stages = NULL;
  json_error_t why;
  if (json_unpack_ex((json_t *)(uintptr_t)root, &why, JSON_STRICT, "{s:s,s:I,s:I,s:o,s?s,s?s}", "model", &model,
                     "global_batch", &global_batch, "micro_batch", &b, "stages", &stages, "name", &ignored, "note",
                     &ignored))
    return NOT_A_PLAN("%s: %s", name, why.text);
  if (strcmp(model, c->model) != 0 || global_batch != c->global_batch)
    return NOT_A_PLAN("%s: a plan of %s with a batch of %" JSON_INTEGER_FORMAT ", the case has %s with %" PRId64, name,
                      model, global_batch, c->model, c->global_batch);
  ATOLL_TRY(read_stages(c, name, stages, out));
  for (int i = 0; i < c->batches; i++)
    if (c->batch[i] == b) {
      (*out)->b = i;
      return ATOLL_OK;
    }
  return NOT_A_PLAN("%s: no profile of micro-batch %" JSON_INTEGER_FORMAT, name, b);
}

atoll_err atoll_case_score_text(const atoll_case *c, const char *name, const char *text, size_t bytes,
                                atoll_case_score *score) {
  atoll_case open = *c; /* the same data, without a limit of memory */
  case_problem_parts parts = {0};
  engine_plan *plan = NULL;
  json_error_t where;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
  if (!root)
    return NOT_A_PLAN("%s:%d: %s", name, where.line, where.text);
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, case_read_plan(c, name, root, &plan));
  open.ignore_memory = 1;
  ATOLL_TRY_GOTO(err, done, case_problem(&open, &parts));
  ATOLL_TRY_GOTO(err, done, engine_evaluate(&parts.problem, plan));
  if (!isfinite(plan->seconds)) {
    err = NOT_A_PLAN("%s: replicas exchange data over a link that the data does not know", name);
    goto done;
  }
  score->fits = 1;
  for (int i = 0; i < plan->stages; i++)
    for (int g = 0; g < plan->stage[i].groups; g++) {
      const engine_stage *s = &plan->stage[i];
      int kind = s->group[g].kind;
      score->fits &= case_bytes(c, plan->b, kind, s->first, s->last, plan->time[i].in_flight) <=
                     c->gpu[c->pool[c->kind[kind].pool].gpu].memory;
    }
  score->iteration_seconds = plan->seconds;
  score->price_per_iteration = plan->price;
  score->transfer_price = plan->transfer_price;
done:
  engine_plan_destroy(&plan);
  free(parts.pool);
  json_decref(root);
  return err;
}

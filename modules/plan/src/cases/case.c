/* A case planned and plans of it scored. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cases/cases.h"
#include "plan_impl.h"

/* The first pool whose devices reach one another as fast. */
static int links_of(const atoll_case *c, int pool) {
  const case_fit *own = &c->single[pool * c->pools + pool];
  for (int i = 0; i < pool; i++) {
    const case_fit *fit = &c->single[i * c->pools + i];
    if (fit->terms == own->terms && !memcmp(fit->c, own->c, (size_t)own->terms * sizeof *own->c))
      return i;
  }
  return pool;
}

atoll_err case_problem(const atoll_case *c, case_problem_parts *out) {
  memset(out, 0, sizeof *out);
  engine_pool *pool = NULL;
  ATOLL_TRY(plan_alloc((size_t)c->pools, sizeof *pool, &pool));
  for (int i = 0; i < c->pools; i++)
    pool[i] = (engine_pool){.devices = c->pool[i].count,
                            .per_node = c->pool[i].per_node,
                            .zone = c->pool[i].zone,
                            .like = c->pool[i].gpu,
                            .links = links_of(c, i),
                            .price = c->pool[i].hour / 3600};
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

/* ---- what cannot be ---------------------------------------------------------------------------------------------- */

/* Every layer has to fit somewhere, alone, with one micro-batch in flight. */
static atoll_err case_feasible(const atoll_case *c) {
  if (!c->kinds) {
    const case_pool *pool = &c->pool[0];
    return atoll_fail(ATOLL_INFEASIBLE, "%s: no device of the cluster can be planned: %s has no profile for %s in %s",
                      c->path, c->profile, c->gpu[pool->gpu].name, c->zone[pool->zone]);
  }
  for (int l = 0; l < c->layers; l++) {
    double least = INFINITY, largest = 0;
    int fits = 0, of = 0, at = 0, big = 0;
    for (int k = 0; k < c->kinds; k++) {
      const case_gpu *gpu = &c->gpu[c->pool[c->kind[k].pool].gpu];
      if (gpu->memory > largest)
        largest = gpu->memory, big = k;
      for (int b = 0; b < c->batches; b++) {
        double bytes = case_bytes(c, b, k, l, l + 1, 1);
        if (!gpu->table[b * c->degrees + c->kind[k].option].known)
          continue;
        fits |= bytes <= gpu->memory;
        if (bytes < least)
          least = bytes, of = k, at = b;
      }
    }
    if (!fits)
      return atoll_fail(ATOLL_INFEASIBLE,
                        "%s: layer %d fits nowhere: it needs at least %.0f bytes (degree %d, micro-batch %" PRId64
                        "), the largest device, %s, has %.0f",
                        c->path, l, least, c->kind[of].devices, c->batch[at],
                        c->gpu[c->pool[c->kind[big].pool].gpu].name, largest);
  }
  return ATOLL_OK;
}

/* Bytes of weights, gradients and optimizer, however they are split. */
static double least_states(const atoll_case *c) {
  double least = INFINITY;
  for (int k = 0; k < c->kinds; k++)
    least = fmin(least, (case_bytes(c, 0, k, 0, c->layers, 0) - case_bytes(c, 0, k, 0, 0, 0)) * c->kind[k].devices);
  return least;
}

/* Pairs of kinds between which the data has no bandwidth: no stage on one can follow a stage on the other. */
static int pairs_apart(const atoll_case *c) {
  int apart = 0;
  for (int i = 0; i < c->kinds * c->kinds; i++)
    apart += c->fit[i].terms == 0;
  return apart;
}

static atoll_err case_infeasible(const atoll_case *c, const engine_result *result) {
  char limit[160] = "", apart[160] = "";
  double have = 0, need = least_states(c);
  for (int i = 0; i < c->pools; i++)
    have += c->pool[i].count * c->gpu[c->pool[i].gpu].memory;
  if (need > have)
    return atoll_fail(ATOLL_INFEASIBLE,
                      "%s: %s needs %.0f bytes for weights, gradients and optimizer, all devices have %.0f", c->path,
                      c->model, need, have);
  if (c->max_price < INFINITY)
    snprintf(limit, sizeof limit, " at a price of at most %.6g per iteration", c->max_price);
  else if (c->max_seconds < INFINITY)
    snprintf(limit, sizeof limit, " with at least %.6g iterations per second", 1 / c->max_seconds);
  if (pairs_apart(c))
    snprintf(apart, sizeof apart,
             "; stages cannot be joined, for want of a bandwidth, in %d of %d pairs of GPU, zone and tp",
             pairs_apart(c), c->kinds * c->kinds);
  return atoll_fail(ATOLL_INFEASIBLE, "%s: no plan found for these devices%s%s%s", c->path, limit,
                    result && result->truncated ? " (the search was cut short)" : "", apart);
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

void atoll_case_plan_destroy(atoll_case_plan **plan) {
  if (!plan || !*plan)
    return;
  engine_result_destroy(&(*plan)->result);
  free(*plan);
  *plan = NULL;
}

atoll_err atoll_case_make(const atoll_case *c, atoll_case_plan **out) {
  case_problem_parts parts = {0};
  atoll_case_plan *plan = NULL;
  ATOLL_TRY(case_feasible(c));
  ATOLL_TRY(plan_alloc(1, sizeof *plan, &plan));
  plan->c = c;
  atoll_err err = case_problem(c, &parts);
  if (err == ATOLL_OK)
    err = engine_search(&parts.problem, &plan->result);
  if (err == ATOLL_INFEASIBLE)
    err = case_infeasible(c, plan->result);
  free(parts.pool);
  if (err != ATOLL_OK)
    atoll_case_plan_destroy(&plan);
  else
    *out = plan;
  return err;
}

atoll_case_score atoll_case_plan_score(const atoll_case_plan *plan) {
  const engine_plan *best = plan->result->best;
  return (atoll_case_score){1, best->seconds, best->price, best->transfer_price};
}

atoll_err atoll_case_plan_text(const atoll_case_plan *plan, char **text, size_t *bytes) {
  const atoll_case *c = plan->c;
  const engine_plan *best = plan->result->best;
  json_t *root = json_object(), *stages = json_array();
  json_object_set_new(root, "model", json_string(c->model));
  json_object_set_new(root, "global_batch", json_integer(c->global_batch));
  json_object_set_new(root, "micro_batch", json_integer(c->batch[best->b]));
  json_object_set_new(root, "stages", stages);
  for (int i = 0; i < best->stages; i++) {
    const engine_stage *s = &best->stage[i];
    json_t *replicas = json_array();
    for (int g = 0; g < s->groups; g++) {
      const case_pool *pool = &c->pool[c->kind[s->group[g].kind].pool];
      json_array_append_new(replicas,
                            json_pack("{s:s,s:s,s:i,s:i}", "gpu", c->gpu[pool->gpu].name, "zone", c->zone[pool->zone],
                                      "tp", c->kind[s->group[g].kind].devices, "count", s->group[g].count));
    }
    json_array_append_new(stages, json_pack("{s:[i,i],s:o}", "layers", s->first, s->last, "replicas", replicas));
  }
  char *dumped = json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
  json_decref(root);
  if (!dumped)
    return atoll_fail(ATOLL_NOMEM, "no memory for a plan in the scorer's form");
  *text = dumped;
  *bytes = strlen(dumped);
  return ATOLL_OK;
}

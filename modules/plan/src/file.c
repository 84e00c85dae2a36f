/* The plan in HDF5: the YAML text, which is what programs read back, and beside it one column per quantity with a row
 * per rank, which is what people plot. */
#include "atoll/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan_impl.h"

static int rows_of(const atoll_plan *plan) {
  int n = 0;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++)
      for (int k = 0; k < plan->pipeline[p].stage[s].replicas; k++)
        n += plan->pipeline[p].stage[s].replica[k].ranks;
  return n;
}

enum {
  RANK,
  PIPELINE,
  STAGE,
  REPLICA,
  ISLAND,
  DEVICE,
  FIRST_LAYER,
  LAST_LAYER,
  MICRO_BATCH,
  FIRST_MICRO_BATCH,
  MICRO_BATCHES,
  IN_FLIGHT,
  BYTES_PEAK,
  BYTES_LIMIT,
  WHOLE_COLUMNS
};
enum { FORWARD, BACKWARD, SEND, UPDATE, REAL_COLUMNS };

static const struct {
  const char *name, *units, *long_name;
} whole[WHOLE_COLUMNS] = {{"rank", "1", "rank"},
                          {"pipeline", "1", "pipeline of the rank"},
                          {"stage", "1", "stage of the rank"},
                          {"replica", "1", "replica of the stage"},
                          {"island", "1", "island of the rank's device"},
                          {"device", "1", "device of the topology"},
                          {"first_layer", "1", "first layer of the rank's stage"},
                          {"last_layer", "1", "one past the last layer"},
                          {"micro_batch", "samples", "samples per micro-batch"},
                          {"first_micro_batch", "1", "first global micro-batch"},
                          {"micro_batches", "1", "micro-batches per step"},
                          {"in_flight", "1", "micro-batches held at once"},
                          {"bytes_peak", "bytes", "predicted bytes"},
                          {"bytes_limit", "bytes", "bytes the plan may use"}},
  real[REAL_COLUMNS] = {{"forward_seconds", "s", "predicted forward time of a micro-batch"},
                        {"backward_seconds", "s", "predicted backward time of a micro-batch"},
                        {"send_seconds", "s", "predicted time of one boundary, one way"},
                        {"update_seconds", "s", "predicted reduction and update time of a step"}};

static void fill_rows(const atoll_plan *plan, int64_t n, int64_t *w, double *d, int64_t *bytes) {
  int64_t row = 0;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      for (int k = 0; k < stage->replicas; k++)
        for (int i = 0; i < stage->replica[k].ranks; i++, row++) {
          const atoll_plan_replica *r = &stage->replica[k];
          const int64_t v[WHOLE_COLUMNS] = {r->rank[i],
                                            p,
                                            s,
                                            k,
                                            r->island,
                                            r->device[i],
                                            stage->chunk[0].first,
                                            stage->chunk[stage->chunks - 1].last,
                                            r->micro_batch,
                                            r->first_micro_batch,
                                            r->micro_batches,
                                            stage->in_flight,
                                            r->bytes_peak,
                                            r->bytes_limit};
          const double x[REAL_COLUMNS] = {r->forward_seconds, r->backward_seconds, r->send_seconds, r->update_seconds};
          for (int c = 0; c < WHOLE_COLUMNS; c++)
            w[c * n + row] = v[c];
          for (int c = 0; c < REAL_COLUMNS; c++)
            d[c * n + row] = x[c];
          memcpy(bytes + row * ATOLL_MEM_CATEGORIES, r->bytes, sizeof r->bytes);
        }
    }
}

static atoll_err write_rows(const atoll_plan *plan, atoll_store *store, const char *group) {
  int64_t n = rows_of(plan), *w = NULL, *bytes = NULL, shape[2] = {n, ATOLL_MEM_CATEGORIES};
  double *d = NULL;
  char path[512];
  const char *category[ATOLL_MEM_CATEGORIES];
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)n * WHOLE_COLUMNS, sizeof *w, &w));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)n * REAL_COLUMNS, sizeof *d, &d));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)n * ATOLL_MEM_CATEGORIES, sizeof *bytes, &bytes));
  fill_rows(plan, n, w, d, bytes);
  for (int c = 0; c < WHOLE_COLUMNS; c++) {
    snprintf(path, sizeof path, "%s/ranks/%s", group, whole[c].name);
    ATOLL_TRY_GOTO(err, done,
                   atoll_store_write(store, path, ATOLL_I64, 1, shape, w + c * n, whole[c].units, whole[c].long_name));
  }
  for (int c = 0; c < REAL_COLUMNS; c++) {
    snprintf(path, sizeof path, "%s/ranks/%s", group, real[c].name);
    ATOLL_TRY_GOTO(err, done,
                   atoll_store_write(store, path, ATOLL_F64, 1, shape, d + c * n, real[c].units, real[c].long_name));
  }
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    category[c] = atoll_mem_category_name((atoll_mem_category)c);
  snprintf(path, sizeof path, "%s/ranks/bytes", group);
  ATOLL_TRY_GOTO(err, done,
                 atoll_store_write(store, path, ATOLL_I64, 2, shape, bytes, "bytes",
                                   "predicted bytes by category, see categories"));
  snprintf(path, sizeof path, "%s/categories", group);
  err =
      atoll_store_write_texts(store, path, category, ATOLL_MEM_CATEGORIES, "memory categories, columns of ranks/bytes");
done:
  free(w);
  free(d);
  free(bytes);
  return err;
}

atoll_err atoll_plan_to_store(const atoll_plan *plan, atoll_store *store, const char *group) {
  char path[512], hex[33], *text = NULL;
  size_t bytes;
  ATOLL_TRY(atoll_plan_to_text(plan, &text, &bytes));
  snprintf(path, sizeof path, "%s/yaml", group);
  atoll_err err =
      atoll_store_write_text(store, path, text, "the plan; everything else in this group is derived from it");
  free(text);
  ATOLL_TRY(err);
  ATOLL_TRY(write_rows(plan, store, group));
  ATOLL_TRY(atoll_store_attr_text(store, group, "digest", atoll_digest_text(atoll_plan_digest(plan), hex)));
  ATOLL_TRY(atoll_store_attr_text(store, group, "schedule", plan->schedule));
  ATOLL_TRY(atoll_store_attr_text(store, group, "cost_source", plan->cost_source));
  ATOLL_TRY(atoll_store_attr_int(store, group, "micro_batches", plan->micro_batches));
  ATOLL_TRY(atoll_store_attr_int(store, group, "sum_leaves", plan->sum_leaves));
  ATOLL_TRY(atoll_store_attr_real(store, group, "step_seconds", plan->step_seconds));
  return atoll_store_attr_real(store, group, "bubble_fraction", plan->bubble_fraction);
}

atoll_err atoll_plan_from_store(atoll_store *store, const char *group, atoll_plan **out) {
  char path[512], found[64], hex[33], *text = NULL;
  snprintf(path, sizeof path, "%s/yaml", group);
  ATOLL_TRY(atoll_store_read_text(store, path, &text));
  atoll_plan *plan = NULL;
  atoll_err err = atoll_plan_from_text(path, text, strlen(text), &plan);
  free(text);
  ATOLL_TRY(err);
  if (atoll_store_has_attr(store, group, "digest")) {
    err = atoll_store_get_attr_text(store, group, "digest", found, sizeof found);
    if (err == ATOLL_OK && strcmp(found, atoll_digest_text(atoll_plan_digest(plan), hex)) != 0)
      err = atoll_fail(ATOLL_CORRUPT, "%s: the plan's digest is %s, its attribute says %s", path, hex, found);
  }
  if (err != ATOLL_OK) {
    atoll_plan_destroy(&plan);
    return err;
  }
  *out = plan;
  return ATOLL_OK;
}

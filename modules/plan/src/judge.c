/* The neutral scorer's form: {"model", "global_batch", "micro_batch", "stages": [{"layers", "replicas": [{"gpu",
 * "zone", "tp", "count"}]}]}. It knows one pipeline, data and tensor parallelism and micro-batches dealt out in turn; a
 * plan that uses more would be scored as something it is not, so it is refused. */
#include "atoll/plan.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "plan_impl.h"

#define LACKS(...) atoll_fail(ATOLL_UNSUPPORTED, "judge's form: " __VA_ARGS__)

static atoll_err check_stage(const atoll_plan_stage *stage, int s) {
  if (stage->chunks != 1)
    return LACKS("stage %d has %d layer chunks; the form has no interleaving", s, stage->chunks);
  if (stage->packed)
    return LACKS("stage %d keeps packed weights; the form counts no bytes for them (plan.pack_weights=no)", s);
  for (int i = 0; i < stage->ranges; i++) {
    const atoll_plan_range *r = &stage->range[i];
    if (r->policy != ATOLL_POLICY_EAGER_FLASH)
      return LACKS("stage %d uses policy %s; the form has no recomputation (plan.policy=eager_flash)", s,
                   atoll_policy_name((atoll_policy)r->policy));
    if (r->recompute > 0)
      return LACKS("stage %d recomputes %d layers; the form has no recomputation", s, r->recompute);
    if (r->offload_weights > 0 || r->offload_gradients > 0 || r->offload_optimizer > 0 || r->offload_activations > 0)
      return LACKS("stage %d offloads; the form has no offload", s);
    if (strcmp(r->mlp, "plain") != 0)
      return LACKS("stage %d uses MLP algorithm %s", s, r->mlp);
  }
  for (int k = 0; k < stage->replicas; k++) {
    const atoll_plan_replica *r = &stage->replica[k];
    if (r->context > 1 || r->expert > 1)
      return LACKS("stage %d replica %d has context degree %d and expert degree %d", s, k, r->context, r->expert);
    if (r->zero)
      return LACKS("stage %d replica %d uses ZeRO stage %d", s, k, r->zero);
    if (r->sequence_parallel)
      return LACKS("stage %d replica %d uses sequence parallelism", s, k);
    /* Dealt out in turn, the first replicas get one more. */
    int64_t d = stage->replica[0].micro_batches - r->micro_batches;
    int64_t before = k ? stage->replica[k - 1].micro_batches : r->micro_batches;
    if (d < 0 || d > 1 || r->micro_batches > before)
      return LACKS("stage %d: replica %d has %" PRId64 " micro-batches, replica 0 has %" PRId64
                   "; the form deals them out evenly",
                   s, k, r->micro_batches, stage->replica[0].micro_batches);
  }
  return ATOLL_OK;
}

atoll_err atoll_plan_to_judge(const atoll_plan *plan, const char *model, const atoll_topo *topo, char **text,
                              size_t *bytes) {
  if (plan->pipelines != 1)
    return LACKS("%d pipelines; the form has one", plan->pipelines);
  const atoll_plan_pipeline *pipe = &plan->pipeline[0];
  json_t *root = json_object(), *stages = json_array();
  int64_t micro_batch = pipe->stage[0].replica[0].micro_batch;
  json_object_set_new(root, "model", json_string(model));
  json_object_set_new(root, "global_batch", json_integer(plan->global_batch));
  json_object_set_new(root, "micro_batch", json_integer(micro_batch));
  json_object_set_new(root, "stages", stages);
  atoll_err err = ATOLL_OK;
  for (int s = 0; s < pipe->stages && err == ATOLL_OK; s++) {
    const atoll_plan_stage *stage = &pipe->stage[s];
    ATOLL_TRY_GOTO(err, done, check_stage(stage, s));
    json_t *replicas = json_array(), *last = NULL;
    json_array_append_new(stages, json_pack("{s:[i,i],s:o}", "layers", stage->chunk[0].first, stage->chunk[0].last,
                                            "replicas", replicas));
    for (int k = 0; k < stage->replicas; k++) {
      const atoll_plan_replica *r = &stage->replica[k];
      if (r->micro_batch != micro_batch) {
        err = LACKS("stage %d replica %d has micro-batches of %" PRId64 " samples, others of %" PRId64, s, k,
                    r->micro_batch, micro_batch);
        goto done;
      }
      if (r->device[0] >= topo->devices) {
        err = atoll_fail(ATOLL_MISMATCH, "stage %d replica %d: device %d, the topology has %d", s, k, r->device[0],
                         topo->devices);
        goto done;
      }
      const atoll_topo_device *d = &topo->device[r->device[0]];
      const char *zone = topo->node[d->node].kind[0] ? topo->node[d->node].kind : "local";
      json_t *now = json_pack("{s:s,s:s,s:i}", "gpu", d->model, "zone", zone, "tp", r->tensor);
      json_int_t count = 1;
      if (last) {
        json_t *n = json_incref(json_object_get(last, "count"));
        json_object_del(last, "count");
        if (json_equal(last, now))
          count = json_integer_value(n) + 1;
        json_object_set_new(last, "count", n);
      }
      if (count > 1) {
        json_object_set_new(last, "count", json_integer(count));
        json_decref(now);
      } else {
        json_object_set_new(now, "count", json_integer(1));
        json_array_append_new(replicas, now);
        last = now;
      }
    }
  }
  char *dumped = json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
  if (!dumped)
    err = atoll_fail(ATOLL_NOMEM, "judge's form: no memory, or a text that is not UTF-8");
  else {
    *bytes = strlen(dumped);
    *text = dumped;
  }
done:
  json_decref(root);
  return err;
}

/* What train executes of a plan, and what it takes besides the stage. Planning asks both before a plan is chosen;
 * running asks again. */
#include "train_impl.h"

#include <stdlib.h>
#include <string.h>

static atoll_err refuse(const char *axis, int pipeline, int stage, const char *found) {
  return atoll_fail(ATOLL_UNSUPPORTED,
                    "plan: pipeline %d stage %d uses %s (%s), which this program does not execute; it executes "
                    "pipeline, data and tensor parallelism",
                    pipeline, stage, axis, found);
}

static atoll_err accept_replica(const atoll_plan_replica *r, int p, int s) {
  char found[32];
  const struct {
    const char *axis;
    int degree;
  } axes[] = {{"context parallelism", r->context}, {"expert parallelism", r->expert}};
  for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
    if (axes[i].degree > 1) {
      snprintf(found, sizeof found, "degree %d", axes[i].degree);
      return refuse(axes[i].axis, p, s, found);
    }
  if (r->sequence_parallel)
    return refuse("sequence parallelism", p, s, "on");
  if (r->zero) {
    snprintf(found, sizeof found, "stage %d", r->zero);
    return refuse("ZeRO", p, s, found);
  }
  if (r->ranks != r->tensor) {
    snprintf(found, sizeof found, "%d ranks, tensor degree %d", r->ranks, r->tensor);
    return refuse("ranks outside a tensor group", p, s, found);
  }
  return ATOLL_OK;
}

static atoll_err accept_range(const atoll_plan_range *r, int p, int s) {
  const struct {
    const char *axis;
    double share;
  } offload[] = {{"offload of weights", r->offload_weights},
                 {"offload of gradients", r->offload_gradients},
                 {"offload of optimizer state", r->offload_optimizer},
                 {"offload of activations", r->offload_activations}};
  char found[32];
  for (size_t i = 0; i < sizeof offload / sizeof *offload; i++)
    if (offload[i].share > 0) {
      snprintf(found, sizeof found, "share %g", offload[i].share);
      return refuse(offload[i].axis, p, s, found);
    }
  if (r->recompute > 0) {
    snprintf(found, sizeof found, "%d layers", r->recompute);
    return refuse("recomputation of whole layers", p, s, found);
  }
  atoll_mlp mlp;
  if (atoll_mlp_parse(r->mlp, &mlp) != 0)
    return refuse("MLP algorithm", p, s, r->mlp);
  return ATOLL_OK;
}

/* Gradients are summed over ranks that hold the same part of a layer. */
static atoll_err accept_degrees(const atoll_plan *plan, int p, int s) {
  const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
  char found[64];
  for (int r = 0; r < stage->ranges; r++)
    for (int l = stage->range[r].first; l < stage->range[r].last; l++)
      if (strcmp(stage->range[r].mlp, atoll_mlp_name(team_mlp(plan, l))) != 0) {
        snprintf(found, sizeof found, "layer %d has %s and %s", l, stage->range[r].mlp,
                 atoll_mlp_name(team_mlp(plan, l)));
        return refuse("several MLP algorithms", p, s, found);
      }
  for (int l = stage->chunk[0].first; l < stage->chunk[0].last; l++) {
    int degree = team_degree(plan, l);
    for (int r = 0; r < stage->replicas; r++)
      if (stage->replica[r].tensor != degree) {
        snprintf(found, sizeof found, "layer %d has degrees %d and %d", l, stage->replica[r].tensor, degree);
        return refuse("several tensor degrees of one layer", p, s, found);
      }
  }
  return ATOLL_OK;
}

atoll_err atoll_train_accepts(const atoll_plan *plan) {
  if (strcmp(plan->schedule, "1f1b") != 0)
    return atoll_fail(ATOLL_UNSUPPORTED, "plan: schedule %s, this program executes 1f1b", plan->schedule);
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      if (stage->chunks != 1)
        return refuse("interleaved layer chunks", p, s, "more than one chunk");
      for (int r = 0; r < stage->ranges; r++)
        ATOLL_TRY(accept_range(&stage->range[r], p, s));
      for (int r = 0; r < stage->replicas; r++)
        ATOLL_TRY(accept_replica(&stage->replica[r], p, s));
      ATOLL_TRY(accept_degrees(plan, p, s));
    }
  return ATOLL_OK;
}

/* Image buffers of a checkpoint: what session_save will hand to ckpt for this replica, by shape alone. */
static atoll_err checkpoint_bytes(const atoll_model *model, const atoll_plan *plan, int pipeline, int stage,
                                  int replica, int64_t *bytes) {
  const atoll_plan_stage *s = &plan->pipeline[pipeline].stage[stage];
  int rank = s->replica[replica].rank[0], params = atoll_model_params_count(model), n = 0;
  int *owners = calloc((size_t)plan->world + 1, sizeof *owners);
  atoll_tensor *shares = malloc((size_t)params * STAGE_STORED * ATOLL_LAYER_BLOCKS * sizeof *shares);
  atoll_err err = owners && shares ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "list of %d tensors", params);
  for (int i = 0; i < params && err == ATOLL_OK; i++) {
    team_part share;
    atoll_tensor block[ATOLL_LAYER_BLOCKS];
    int blocks = 0;
    if (!team_holds(s, atoll_model_param_at(model, i)->layer))
      continue;
    err = team_share(plan, model, i, rank, owners, plan->world, &share);
    if (err == ATOLL_OK && share.parts > 0)
      err = atoll_layer_blocks(model, i, 0, s->replica[replica].tensor,
                               team_mlp(plan, atoll_model_param_at(model, i)->layer), block, &blocks);
    for (int k = 0; k < STAGE_STORED * blocks && err == ATOLL_OK; k++)
      atoll_ckpt_share(&block[k % blocks], share.part, share.parts, &shares[n++]);
  }
  *bytes = err == ATOLL_OK && n > 0 ? atoll_ckpt_image_bytes(shares, n) : 0;
  free(owners);
  free(shares);
  return err;
}

atoll_err atoll_train_extra_bytes(const atoll_model *model, const atoll_plan *plan, int pipeline, int stage,
                                  int replica, int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  int64_t images;
  ATOLL_TRY(checkpoint_bytes(model, plan, pipeline, stage, replica, &images));
  bytes[ATOLL_MEM_CHECKPOINT] += images;
  bytes[ATOLL_MEM_COMM] += (int64_t)sizeof(float) * team_work_elements(plan, pipeline, stage);
  return flow_bytes(plan, model, pipeline, stage, replica, bytes);
}

/* Who owns what, and sums over owners.
 *
 * A layer is owned by the ranks of every replica, in every pipeline, whose stage contains it; tensor ranks of a replica
 * hold different parts, and sum with those of the same tensor rank elsewhere. Neighbouring layers with
 * the same owners form a segment; a segment's gradients are one contiguous range of each owner's flat buffer, summed
 * over the fixed tree in one call. With one pipeline a segment is a stage; pipelines that cut the model differently
 * give more and smaller segments.
 *
 * A tied tensor (the token embedding and the head) has one gradient per use. Each use is summed over its owners; then
 * ranks that hold one use get the other's sum from a partner, and everyone forms embedding + head, two terms, whose sum
 * does not depend on the order. */
#include "train_impl.h"

#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"

int team_holds(const atoll_plan_stage *stage, int layer) {
  int found = 0;
  for (int c = 0; c < stage->chunks; c++)
    found |= layer >= stage->chunk[c].first && layer < stage->chunk[c].last;
  return found;
}

int team_owners(const atoll_plan *plan, int layer, int tensor_rank, int *ranks, int cap) {
  int n = 0;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      for (int r = 0; team_holds(stage, layer) && r < stage->replicas; r++)
        for (int k = 0; k < stage->replica[r].ranks; k++)
          if (tensor_rank < 0 || k % stage->replica[r].tensor == tensor_rank) {
            if (n < cap)
              ranks[n] = stage->replica[r].rank[k];
            n++;
          }
    }
  return n;
}

atoll_mlp team_mlp(const atoll_plan *plan, int layer) {
  atoll_mlp mlp = ATOLL_MLP_PLAIN;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++)
      if (team_holds(&plan->pipeline[p].stage[s], layer))
        (void)atoll_mlp_parse(plan->pipeline[p].stage[s].range[0].mlp, &mlp);
  return mlp;
}

int team_degree(const atoll_plan *plan, int layer) {
  int most = 1;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      for (int r = 0; (layer < 0 || team_holds(stage, layer)) && r < stage->replicas; r++)
        most = stage->replica[r].tensor > most ? stage->replica[r].tensor : most;
    }
  return most;
}

static int position(const int *ranks, int n, int rank) {
  for (int i = 0; i < n; i++)
    if (ranks[i] == rank)
      return i;
  return -1;
}

/* Largest number of tree nodes that any replica ends up with. */
static int most_parts(const atoll_plan *plan) {
  int most = 1;
  int64_t G = plan->micro_batches, L = plan->sum_leaves;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++)
      for (int r = 0; r < plan->pipeline[p].stage[s].replicas; r++) {
        const atoll_plan_replica *x = &plan->pipeline[p].stage[s].replica[r];
        int64_t a = x->first_micro_batch, b = a + x->micro_batches;
        if (b == a)
          continue;
        /* Ranges begin and end on leaves (atoll_plan_check). */
        int64_t first = 0, last = 0;
        while (first * G / L < a)
          first++;
        while (last * G / L < b)
          last++;
        int n = atoll_tree_nodes(L, first, last - first, NULL, NULL, 0);
        most = n > most ? n : most;
      }
  return most;
}

/* Whether a use of a tied tensor lies on this stage while another lies elsewhere. */
static int splits_tied(const atoll_plan *plan, int pipeline, int stage) {
  for (int t = 0; t < plan->tied_count; t++) {
    const atoll_plan_tied *tied = &plan->tied[t];
    int here = 0, elsewhere = 0;
    for (int u = 0; u < tied->uses; u++) {
      if (tied->pipeline[u] == pipeline && tied->stage[u] == stage)
        here = 1;
      else
        elsewhere = 1;
    }
    if (here && elsewhere)
      return 1;
  }
  return 0;
}

int64_t team_work_elements(const atoll_plan *plan, int pipeline, int stage) {
  const atoll_plan_stage *s = &plan->pipeline[pipeline].stage[stage];
  int most = 0;
  for (int c = 0; c < s->chunks; c++)
    for (int layer = s->chunk[c].first; layer < s->chunk[c].last; layer++) {
      int n = team_owners(plan, layer, 0, NULL, 0);
      most = n > most ? n : most;
    }
  int64_t work = most > 1 ? atoll_comm_tree_sum_work(most, most_parts(plan), TRAIN_PIECE) : 0;
  int64_t tied = splits_tied(plan, pipeline, stage) ? TRAIN_PIECE : 0;
  return work > tied ? work : tied;
}

/* Where a stage keeps a layer's parameter in its flat gradient, padding included. */
static team_range range_of(atoll_stage *stage, const atoll_stage_params *sp, const atoll_model_param *mp, int param,
                           int second_use) {
  const atoll_tensor *tensors;
  const int *index;
  int n;
  int64_t all = atoll_stage_param_elements(stage);
  if (second_use && mp->layer >= sp->first && mp->layer < sp->last) /* behind the parameters, for it holds both uses */
    return (team_range){all, atoll_stage_grad_elements(stage) - all};
  if (atoll_stage_tensors(stage, ATOLL_STAGE_GRAD, &tensors, &index, &n) != ATOLL_OK)
    return (team_range){0, 0};
  const float *base = atoll_stage_flat_grad(stage, 0);
  for (int i = 0; i < n; i++)
    if (index[i] == param) {
      int64_t at = (const float *)tensors[i].data - base;
      while (i + 1 < n && index[i + 1] == param)
        i++;
      return (team_range){at, (i + 1 < n ? (const float *)tensors[i + 1].data - base : all) - at};
    }
  return (team_range){-1, 0};
}

/* Flat ranges of the segment's layers. All owners must get the same ones, also when one of them holds both uses of a
 * tied tensor and another only the second, which then stands among its parameters: so the second use is always a range
 * of its own. */
static atoll_err segment_ranges(const atoll_model *model, atoll_stage *stage, const atoll_stage_params *sp,
                                team_segment *seg) {
  int cut = 1;
  seg->ranges = 0;
  for (int layer = seg->first; layer < seg->last; layer++) {
    int used[64];
    int k = atoll_model_layer_params(model, layer, used, 64);
    for (int j = 0; j < k; j++) {
      const atoll_model_param *mp = atoll_model_param_at(model, used[j]);
      int second_use = mp->tied_layer == layer;
      team_range r = range_of(stage, sp, mp, used[j], second_use);
      team_range *last = seg->ranges > 0 ? &seg->range[seg->ranges - 1] : NULL;
      if (r.count == 0 && r.offset >= 0) /* another tensor rank has all of it */
        continue;
      if (r.count == 0)
        return atoll_fail(ATOLL_INTERNAL, "gradients: %s is not on the stage of layers %d to %d", mp->name, sp->first,
                          sp->last - 1);
      if (!cut && !second_use && last && last->offset + last->count == r.offset) {
        last->count += r.count;
      } else if (seg->ranges == TEAM_RANGES) {
        return atoll_fail(ATOLL_INTERNAL, "gradients: layers %d to %d lie in more than %d pieces", seg->first,
                          seg->last - 1, TEAM_RANGES);
      } else {
        seg->range[seg->ranges++] = r;
      }
      cut = second_use;
    }
  }
  return ATOLL_OK;
}

atoll_err team_share(const atoll_plan *plan, const atoll_model *model, int param, int rank, int *owners, int cap,
                     team_part *out) {
  int layer = atoll_model_param_at(model, param)->layer, degree = team_degree(plan, layer), n;
  int slot = atoll_plan_find(plan, rank).slot;
  out->divided = 0;
  for (int k = 0; k < degree && !out->divided; k++) {
    int64_t part = 0;
    atoll_tensor block[ATOLL_LAYER_BLOCKS];
    ATOLL_TRY(atoll_layer_blocks(model, param, k, degree, team_mlp(plan, layer), block, &n));
    for (int i = 0; i < n; i++)
      part += atoll_tensor_local_count(&block[i]);
    out->divided = part < atoll_tensor_global_count(&block[0]);
  }
  int tensor_rank = !out->divided ? -1 : slot > 0 ? slot % degree : 0;
  n = team_owners(plan, layer, tensor_rank, owners, cap);
  out->part = position(owners, n, rank);
  out->parts = out->part < 0 ? 0 : n;
  return ATOLL_OK;
}

static atoll_err find_partners(const atoll_plan *plan, const atoll_model *model, team *t, int *a, int *b) {
  t->tied_from = -1;
  for (int i = 0; i < atoll_model_params_count(model); i++) {
    const atoll_model_param *mp = atoll_model_param_at(model, i);
    if (mp->tied_layer < 0)
      continue;
    int na = team_owners(plan, mp->layer, -1, a, t->size), nb = team_owners(plan, mp->tied_layer, -1, b, t->size);
    for (int side = 0; side < 2; side++) { /* ranks that hold only x ask y's owners in turn */
      const int *x = side ? b : a, *y = side ? a : b;
      int nx = side ? nb : na, ny = side ? na : nb, asked = 0;
      for (int k = 0; k < nx; k++) {
        if (position(y, ny, x[k]) >= 0)
          continue;
        int from = y[asked++ % ny];
        if (x[k] == t->rank)
          t->tied_from = from;
        if (from != t->rank)
          continue;
        if (t->tied_tos == (int)(sizeof t->tied_to / sizeof *t->tied_to))
          return atoll_fail(ATOLL_UNSUPPORTED, "plan: more than %d ranks take the tied gradient from rank %d",
                            t->tied_tos, t->rank);
        t->tied_use[t->tied_tos] = side == 0; /* x holds the first use and wants the second */
        t->tied_to[t->tied_tos++] = x[k];
      }
    }
  }
  return ATOLL_OK;
}

atoll_err team_create(atoll_comm *world, const atoll_plan *plan, const atoll_model *model, atoll_stage *stage,
                      const atoll_exec *exec, team *t) {
  memset(t, 0, sizeof *t);
  t->rank = atoll_comm_rank(world);
  t->size = atoll_comm_size(world);
  int layers = atoll_model_layers(model), params = atoll_model_params_count(model);
  int *owners = calloc((size_t)t->size * 2, sizeof *owners), *before = owners ? owners + t->size : NULL, n_before = -1;
  t->segment = calloc((size_t)layers, sizeof *t->segment);
  t->share = calloc((size_t)params, sizeof *t->share);
  atoll_err err = owners && t->segment && t->share
                      ? ATOLL_OK
                      : atoll_fail(ATOLL_NOMEM, "groups of %d ranks and %d layers", t->size, layers);
  ATOLL_TRY_GOTO(err, done, atoll_agree(atoll_comm_mpi(world), err));

  for (int layer = 0; layer < layers; layer++) {
    int n = team_owners(plan, layer, -1, owners, t->size);
    if (n != n_before || memcmp(owners, before, (size_t)n * sizeof *owners) != 0) {
      t->segment[t->segments++].first = layer;
      memcpy(before, owners, (size_t)n * sizeof *owners);
      n_before = n;
    }
    t->segment[t->segments - 1].last = layer + 1;
  }
  for (int i = 0; i < params && err == ATOLL_OK; i++)
    err = team_share(plan, model, i, t->rank, owners, t->size, &t->share[i]);
  if (err == ATOLL_OK)
    err = find_partners(plan, model, t, owners, before);
  ATOLL_TRY_GOTO(err, done, atoll_agree(atoll_comm_mpi(world), err));

  atoll_plan_place place = atoll_plan_find(plan, t->rank);
  for (int k = 0; k < t->segments; k++) {
    team_segment *seg = &t->segment[k];
    int n = team_owners(plan, seg->first, -1, owners, t->size), mine = position(owners, n, t->rank) >= 0;
    n = team_owners(plan, seg->first, 0, NULL, 0);
    if (mine) {
      const atoll_plan_stage *ps = &plan->pipeline[place.pipeline].stage[place.stage];
      atoll_stage_params sp = {.first = ps->chunk[0].first, .last = ps->chunk[0].last};
      err = segment_ranges(model, stage, &sp, seg);
    }
    ATOLL_TRY_GOTO(err, done, atoll_agree(atoll_comm_mpi(world), err));
    if (n > 1)
      ATOLL_TRY_GOTO(err, done, atoll_comm_split(world, mine ? place.slot : -1, t->rank, "gradients", &seg->comm));
  }
  if (place.stage >= 0)
    t->work_elements = team_work_elements(plan, place.pipeline, place.stage);
  if (t->work_elements > 0)
    err = atoll_mem_alloc(exec->mem, ATOLL_MEM_COMM, (size_t)t->work_elements * sizeof(float), (void **)&t->work);
  err = atoll_agree(atoll_comm_mpi(world), err);
done:
  free(owners);
  if (err != ATOLL_OK)
    team_destroy(t, exec);
  return err;
}

void team_destroy(team *t, const atoll_exec *exec) {
  for (int k = 0; t->segment && k < t->segments; k++)
    atoll_comm_destroy(&t->segment[k].comm);
  if (t->work)
    atoll_mem_free(exec->mem, &t->work);
  free(t->segment);
  free(t->share);
  memset(t, 0, sizeof *t);
}

/* Swap the two uses' sums with partners, piece by piece, and add what came to what is here. */
static atoll_err exchange_tied(team *t, atoll_comm *world, const atoll_exec *e, atoll_stage *stage, int buffer) {
  enum { TAG = 1 };
  if (t->tied_from < 0 && t->tied_tos == 0)
    return ATOLL_OK;
  int64_t count = 0;
  int first_use = 0;
  float *own = atoll_stage_tied_grad(stage, buffer, &count, &first_use), *other = NULL;
  if (!own) { /* both uses here: a partner gets the one it lacks */
    int64_t all = atoll_stage_param_elements(stage);
    count = atoll_stage_grad_elements(stage) - all;
    own = atoll_stage_flat_grad(stage, buffer); /* the embedding's tensor comes first */
    other = own + all;
    first_use = 1;
  }
  atoll_event *sent[64] = {0}, *got = NULL;
  atoll_err err = atoll_event_create(&got);
  for (int k = 0; k < t->tied_tos && err == ATOLL_OK; k++)
    err = atoll_event_create(&sent[k]);
  for (int64_t at = 0; at < count && err == ATOLL_OK; at += TRAIN_PIECE) {
    int64_t n = count - at < TRAIN_PIECE ? count - at : TRAIN_PIECE;
    if (t->tied_from >= 0)
      err = atoll_comm_recv(world, e->comm, t->work, n, ATOLL_F32, t->tied_from, TAG, got);
    for (int k = 0; k < t->tied_tos && err == ATOLL_OK; k++) {
      const float *from = other && t->tied_use[k] == first_use ? other : own;
      err = atoll_comm_send(world, e->comm, from + at, n, ATOLL_F32, t->tied_to[k], TAG, sent[k]);
    }
    for (int k = 0; k < t->tied_tos && err == ATOLL_OK; k++)
      err = atoll_event_sync(sent[k]);
    if (t->tied_from >= 0 && err == ATOLL_OK) {
      ATOLL_TRY_GOTO(err, done, atoll_queue_wait(e->compute, got));
      ATOLL_TRY_GOTO(err, done, e->kernels->add(e->compute, t->work, own + at, n));
      err = atoll_queue_sync(e->compute); /* the piece is reused */
    }
  }
done:
  atoll_event_destroy(&got);
  for (int k = 0; k < t->tied_tos; k++)
    atoll_event_destroy(&sent[k]);
  return err;
}

atoll_err team_reduce(team *t, atoll_comm *world, const atoll_exec *e, atoll_stage *stage, partials *p, int *buffer,
                      double *tied_seconds) {
  int out = p->depth > 0 ? p->node[0].buffer : 0;
  ATOLL_TRY(atoll_queue_sync(e->compute));
  for (int k = 0; k < t->segments; k++) {
    team_segment *seg = &t->segment[k];
    if (seg->ranges > 0 && !seg->comm && !(p->depth == 1 && p->node[0].count == p->leaves))
      return atoll_fail(ATOLL_INTERNAL, "summation tree: layers %d to %d have one owner, which holds %d nodes",
                        seg->first, seg->last - 1, p->depth);
    for (int r = 0; seg->comm && r < seg->ranges; r++) {
      int64_t first[64], count[64];
      float *part[64];
      for (int i = 0; i < p->depth; i++) {
        first[i] = p->node[i].first;
        count[i] = p->node[i].count;
        part[i] = atoll_stage_flat_grad(stage, p->node[i].buffer) + seg->range[r].offset;
      }
      ATOLL_TRY(atoll_comm_tree_sum(seg->comm, e->comm, p->leaves, p->depth, first, count, part, seg->range[r].count,
                                    atoll_stage_flat_grad(stage, out) + seg->range[r].offset, t->work, TRAIN_PIECE));
    }
  }
  ATOLL_TRY(atoll_queue_sync(e->comm));
  double began = atoll_clock_now();
  ATOLL_TRY(exchange_tied(t, world, e, stage, out));
  ATOLL_TRY(atoll_stage_fold_tied(stage, out));
  ATOLL_TRY(atoll_queue_sync(e->compute));
  *tied_seconds = atoll_clock_now() - began;
  *buffer = out;
  return ATOLL_OK;
}

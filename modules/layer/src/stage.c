/* A stage: a range of layers on one device, with everything they own.
 *
 * Flat buffers: the parameters of the layers in order, each padded to 64 bytes, in one allocation; gradients, first and
 * second moments have the same layout. When the stage holds both uses of a tied tensor, the gradient of the second use
 * has a block of its own behind the others: the two uses are summed once per step (atoll_stage_fold_tied), in the order
 * a plan with the uses on two stages sums them, so that both plans give the same bits. Where layers compute in bf16,
 * all these stay float (weights are then called masters, and counted with the optimizer's state), and one more buffer
 * of the same layout holds the weights that layers read. Where many micro-batches read the same weights, the panels
 * that products make of matrices (packed.h) are kept as well, and made again after each update.
 *
 * Activations: one allocation per slot, in which layer after layer has its saved bytes; each begins with the layer's
 * input, if its policy keeps that, so the layer before writes its output there. Gradients of activations pass through
 * two buffers in turn, whatever the depth. */
#include "atoll/layer.h"

#include <stdlib.h>
#include <string.h>

#include "atoll/packed.h"
#include "layer_impl.h"

#define ALIGN_FLOATS 16

struct slot {
  char *base;    /* saved bytes of all layers */
  const void *x; /* borrowed from forward to backward, like the next three */
  const int32_t *tokens, *targets;
  float *loss;
  int64_t B, S;
  int busy; /* a training forward awaits its backward */
};

/* A parameter w [O, I] that products read, and where its panels begin: forward, and back for gradients. */
struct matrix {
  int at; /* position of the parameter */
  int64_t I, O, panels[2];
};

struct atoll_stage {
  const atoll_model *m;
  atoll_exec e;
  int first, last, slots, partials, train, packed;
  layer_way way;
  int tensor_rank;
  int64_t B, S;
  atoll_policy *policy;
  /* parameters of this stage in flat order: what this rank holds of each */
  int n;
  int *index;
  int64_t *offset, *count; /* elements */
  int64_t params, grads;
  int64_t second; /* element where second-use gradients start */
  int second_of;  /* tensor (position) whose second use that is, or -1 */
  float *param, *moment[2], **grad;
  char *fresh; /* [partials][layers]: gradients that count as zero, whatever is there */
  char *copy;  /* weights as layers read them; NULL: as they are */
  struct slot *slot;
  void *pass[2]; /* gradients (or, when not training, activations) between layers */
  char *carried;
  char *scratch; /* saved bytes of the layer at work, when not training */
  int *map;      /* [layers][LAYER_PARAMS]: position of a layer's parameter */
  int blocks;    /* a parameter is one, or several behind one another where tensor ranks divide it */
  int *block_of; /* parameter's index */
  atoll_tensor *view[4];
  layer_mlp **mlp;         /* of each layer, NULL where it is plain */
  atoll_symmetric *shared; /* gradients, where pipelined MLPs add to them on all tensor ranks; NULL: grad's own */
  struct matrix *matrix;   /* those whose panels are kept */
  int matrices;
  int64_t panel_bytes;
  char *panels;
  int changed; /* parameters, since MLPs and panels were made of them */
};

static int64_t padded_elements(int64_t n) { return (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS; }

/* Steps of GPT-2 124M on two Zen 3 cores, in turn with steps that pack for every micro-batch: with 8 of 64 rows 1.23
 * times as fast, with 4 of 128 rows 1.10, with 2 of 256 rows 1.06. */
int atoll_stage_packs(const atoll_model *m, const atoll_stage_params *p) {
  enum { ROWS = 256 };
  if (p->tensor > 1 && atoll_model_config(m)->dtype != ATOLL_F32)
    return 0;
  return p->B * p->S <= ROWS ? 2 : 1;
}

static atoll_err check(const atoll_model *m, const atoll_stage_params *p) {
  if (!m || !p)
    return atoll_fail(ATOLL_USAGE, "stage without model or parameters");
  if (p->first < 0 || p->last <= p->first || p->last > atoll_model_layers(m))
    return atoll_fail(ATOLL_USAGE, "stage of layers %d to %d, the model has 0 to %d", p->first, p->last - 1,
                      atoll_model_layers(m) - 1);
  if (p->B < 1 || p->S < 1 || p->S > atoll_model_config(m)->context)
    return atoll_fail(ATOLL_USAGE, "stage for micro-batches of %lld samples of %lld tokens; context is %lld",
                      (long long)p->B, (long long)p->S, (long long)atoll_model_config(m)->context);
  if (p->train && (p->slots < 1 || p->partials < 1))
    return atoll_fail(ATOLL_USAGE, "stage with %d slots and %d gradient buffers, at least 1 of each is needed to train",
                      p->slots, p->partials);
  if (p->tensor > 1 && (p->tensor_rank < 0 || p->tensor_rank >= p->tensor))
    return atoll_fail(ATOLL_USAGE, "stage of tensor rank %d of %d", p->tensor_rank, p->tensor);
  ATOLL_TRY(atoll_layer_check_tensor(m, p->tensor > 1 ? p->tensor : 1));
  if (atoll_mlp_pipelined(p->mlp))
    ATOLL_TRY(mlp_check(p->tensor));
  if (p->packed && !atoll_stage_packs(m, p))
    return atoll_fail(ATOLL_USAGE, "stage that keeps panels of weights, for bf16 on %d tensor ranks", p->tensor);
  for (int l = p->first; p->policy && l < p->last; l++)
    if ((unsigned)p->policy[l - p->first] >= ATOLL_POLICIES)
      return atoll_fail(ATOLL_USAGE, "layer %d: memory policy %d is unknown", l, (int)p->policy[l - p->first]);
  return ATOLL_OK;
}

/* Bytes of the stage's buffers that are not flat ones. */
struct sizes {
  int64_t slot, pass, carried, scratch, work;
  int passes;
};

/* Of a layer whose input's gradient another stage waits for. */
static int in_halves(const atoll_stage *s, int layer) { return s->first > 0 && layer == s->first; }

static struct sizes sizes_of(const atoll_stage *s) {
  struct sizes z = {0};
  z.pass = layer_element(s->m) * s->B * s->S * atoll_model_config(s->m)->width;
  for (int l = s->first; l < s->last; l++) {
    atoll_policy p = s->policy[l - s->first];
    int64_t saved = layer_saved_size(s->m, l, p, s->way, s->B, s->S);
    int64_t carried = layer_carried_size(s->m, l, p, s->way, s->B, s->S);
    int64_t work = layer_work_size(s->m, l, p, s->way, in_halves(s, l), s->B, s->S);
    z.slot += saved;
    z.carried = in_halves(s, l) ? carried : z.carried;
    z.scratch = saved > z.scratch ? saved : z.scratch;
    z.work = work > z.work ? work : z.work;
  }
  if (s->first > 0) /* its input belongs to the caller */
    z.slot -= layer_input_size(s->m, s->first, s->policy[0], s->B, s->S);
  z.passes = s->last - s->first - 1 < 2 ? s->last - s->first - 1 : 2;
  return z;
}

/* A parameter that the stage has not seen before, behind the others. */
static atoll_err add_param(atoll_stage *s, int param) {
  atoll_tensor block[ATOLL_LAYER_BLOCKS];
  int n;
  ATOLL_TRY(atoll_layer_blocks(s->m, param, s->tensor_rank, s->way.tensor, s->way.mlp, block, &n));
  s->index[s->n] = param;
  s->offset[s->n] = s->params;
  for (int i = 0; i < n; i++)
    s->count[s->n] += atoll_tensor_local_count(&block[i]);
  s->params += padded_elements(s->count[s->n++]);
  s->blocks += n;
  return ATOLL_OK;
}

/* Of the parameters of `layer` those that are not listed yet. */
static atoll_err add_matrices(atoll_stage *s, int layer) {
  int list[LAYER_PARAMS], n = layer_matrices(s->m, layer, s->way, list);
  for (int i = 0; i < n; i++) {
    struct matrix *x = &s->matrix[s->matrices];
    atoll_tensor block[ATOLL_LAYER_BLOCKS];
    int blocks, seen = 0;
    x->at = s->map[(layer - s->first) * LAYER_PARAMS + list[i]];
    for (int j = 0; j < s->matrices; j++)
      seen |= s->matrix[j].at == x->at;
    if (seen)
      continue;
    ATOLL_TRY(atoll_layer_blocks(s->m, s->index[x->at], s->tensor_rank, s->way.tensor, s->way.mlp, block, &blocks));
    x->I = block[0].local[1];
    x->O = s->count[x->at] / x->I;
    for (int back = 0; back <= s->train; back++) {
      x->panels[back] = s->panel_bytes;
      s->panel_bytes += atoll_packed_bytes(x->I, x->O, back);
    }
    s->matrices++;
  }
  return ATOLL_OK;
}

static atoll_err list_matrices(atoll_stage *s) {
  if (!s->packed)
    return ATOLL_OK;
  if (!(s->matrix = calloc((size_t)s->n, sizeof *s->matrix)))
    return atoll_fail(ATOLL_NOMEM, "no memory for a list of %d matrices", s->n);
  for (int l = s->first; l < s->last; l++)
    ATOLL_TRY(add_matrices(s, l));
  return ATOLL_OK;
}

/* The lists that depend on model, range and tensor rank only. */
static atoll_err describe(atoll_stage *s) {
  int layers = s->last - s->first, room = layers * LAYER_PARAMS;
  s->index = calloc((size_t)room, sizeof *s->index);
  s->offset = calloc((size_t)room, sizeof *s->offset);
  s->count = calloc((size_t)room, sizeof *s->count);
  s->map = calloc((size_t)room, sizeof *s->map);
  if (!s->index || !s->offset || !s->count || !s->map)
    return atoll_fail(ATOLL_NOMEM, "no memory for the lists of a stage of %d layers", layers);
  s->second_of = -1;
  for (int l = s->first; l < s->last; l++) {
    int list[LAYER_PARAMS], k = atoll_model_layer_params(s->m, l, list, LAYER_PARAMS);
    if (k > LAYER_PARAMS)
      return atoll_fail(ATOLL_INTERNAL, "layer %d has %d parameters, at most %d are handled", l, k, LAYER_PARAMS);
    for (int i = 0; i < k; i++) {
      int at = 0;
      while (at < s->n && s->index[at] != list[i])
        at++;
      if (at < s->n)
        s->second_of = at;
      else
        ATOLL_TRY(add_param(s, list[i]));
      s->map[(l - s->first) * LAYER_PARAMS + i] = at;
    }
  }
  s->second = s->params;
  s->grads = s->params;
  if (s->second_of >= 0)
    s->grads += padded_elements(s->count[s->second_of]);
  return list_matrices(s);
}

static atoll_err take(atoll_mem *mem, atoll_mem_category c, int64_t bytes, int zero, void *out) {
  void *p = NULL;
  ATOLL_TRY(zero ? atoll_mem_calloc(mem, c, (size_t)bytes, &p) : atoll_mem_alloc(mem, c, (size_t)bytes, &p));
  memcpy(out, &p, sizeof p);
  return ATOLL_OK;
}

static int shares_gradients(const atoll_stage *s, atoll_mem *mem) {
  return s->train && atoll_mlp_pipelined(s->way.mlp) && !atoll_mem_counting(mem);
}

/* Collective over tensor ranks. */
static atoll_err share_gradients(atoll_stage *s, atoll_mem *mem) {
  size_t each = (size_t)s->grads * sizeof(float);
  if (!shares_gradients(s, mem))
    return ATOLL_OK;
  ATOLL_TRY(atoll_symmetric_create(s->e.tensor, s->e.device, mem, ATOLL_MEM_GRADIENT, each * (size_t)s->partials,
                                   "of gradients", &s->shared));
  for (int i = 0; i < s->partials; i++)
    s->grad[i] = (float *)atoll_symmetric_at(s->shared, s->tensor_rank) + i * s->grads;
  return ATOLL_OK;
}

/* Every byte of a stage's accounts is taken here, for real stages and for atoll_stage_bytes() alike. */
static atoll_err allocate(atoll_stage *s, atoll_mem *mem) {
  struct sizes z = sizes_of(s);
  int apart = atoll_model_config(s->m)->dtype != ATOLL_F32;
  ATOLL_TRY(take(mem, apart ? ATOLL_MEM_OPTIMIZER : ATOLL_MEM_PARAMETER, 4 * s->params, 1, &s->param));
  if (apart)
    ATOLL_TRY(take(mem, ATOLL_MEM_PARAMETER, layer_element(s->m) * s->params, 1, &s->copy));
  if (s->packed)
    ATOLL_TRY(take(mem, ATOLL_MEM_PARAMETER, s->panel_bytes, 0, &s->panels));
  if (s->train) {
    s->grad = calloc((size_t)s->partials, sizeof *s->grad);
    s->slot = calloc((size_t)s->slots, sizeof *s->slot);
    s->fresh = calloc((size_t)(s->partials * (s->last - s->first)), sizeof *s->fresh);
    if (!s->grad || !s->slot || !s->fresh)
      return atoll_fail(ATOLL_NOMEM, "no memory for the lists of a stage");
    for (int i = 0; i < s->partials && !shares_gradients(s, mem); i++)
      ATOLL_TRY(take(mem, ATOLL_MEM_GRADIENT, 4 * s->grads, 1, &s->grad[i]));
    for (int i = 0; i < 2; i++)
      ATOLL_TRY(take(mem, ATOLL_MEM_OPTIMIZER, 4 * s->params, 1, &s->moment[i]));
    for (int i = 0; i < s->slots; i++)
      ATOLL_TRY(take(mem, ATOLL_MEM_ACTIVATION, z.slot, 0, &s->slot[i].base));
    ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, z.carried, 0, &s->carried));
  } else {
    ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, z.scratch, 0, &s->scratch));
  }
  for (int i = 0; i < z.passes; i++)
    ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, z.pass, 0, &s->pass[i]));
  return atoll_arena_create(mem, ATOLL_MEM_WORKSPACE, (size_t)z.work, &s->e.work);
}

static atoll_err views(atoll_stage *s) {
  float *const base[] = {s->param, s->train ? s->grad[0] : NULL, s->moment[0], s->moment[1]};
  s->block_of = calloc((size_t)s->blocks, sizeof *s->block_of);
  for (int k = 0; k < 4; k++)
    if (!(s->view[k] = calloc((size_t)s->blocks, sizeof **s->view)))
      return atoll_fail(ATOLL_NOMEM, "no memory for %d tensor descriptions", s->blocks);
  if (!s->block_of)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d tensor descriptions", s->blocks);
  for (int i = 0, at = 0; i < s->n; i++) {
    atoll_tensor block[ATOLL_LAYER_BLOCKS];
    int n;
    int64_t offset = s->offset[i];
    ATOLL_TRY(atoll_layer_blocks(s->m, s->index[i], s->tensor_rank, s->way.tensor, s->way.mlp, block, &n));
    for (int j = 0; j < n; j++, at++) {
      s->block_of[at] = s->index[i];
      for (int k = 0; k < 4; k++) {
        s->view[k][at] = block[j];
        s->view[k][at].data = base[k] ? base[k] + offset : NULL;
        s->view[k][at].device = s->e.device;
      }
      offset += atoll_tensor_local_count(&block[j]);
    }
  }
  return ATOLL_OK;
}

static void release(atoll_stage *s, atoll_mem *mem) {
  for (int l = 0; s->mlp && l < s->last - s->first; l++)
    mlp_destroy(&s->mlp[l]);
  free(s->mlp);
  atoll_arena_destroy(&s->e.work);
  for (int i = 0; i < 2; i++) {
    atoll_mem_free(mem, &s->pass[i]);
    atoll_mem_free(mem, &s->moment[i]);
  }
  atoll_mem_free(mem, &s->scratch);
  atoll_mem_free(mem, &s->carried);
  for (int i = 0; s->slot && i < s->slots; i++)
    atoll_mem_free(mem, &s->slot[i].base);
  for (int i = 0; s->grad && i < s->partials && !s->shared; i++)
    atoll_mem_free(mem, &s->grad[i]);
  atoll_symmetric_destroy(&s->shared);
  atoll_mem_free(mem, &s->panels);
  atoll_mem_free(mem, &s->copy);
  atoll_mem_free(mem, &s->param);
  for (int k = 0; k < 4; k++)
    free(s->view[k]);
  free(s->slot);
  free(s->fresh);
  free(s->grad);
  free(s->matrix);
  free(s->index);
  free(s->offset);
  free(s->count);
  free(s->block_of);
  free(s->map);
  free(s->policy);
  free(s);
}

static atoll_err begin(const atoll_model *m, const atoll_stage_params *p, atoll_stage **out) {
  ATOLL_TRY(check(m, p));
  atoll_stage *s = calloc(1, sizeof *s);
  if (!s)
    return atoll_fail(ATOLL_NOMEM, "no memory for a stage (%zu bytes)", sizeof *s);
  s->m = m;
  s->first = p->first, s->last = p->last;
  s->B = p->B, s->S = p->S;
  s->train = !!p->train;
  s->packed = !!p->packed;
  s->way = (layer_way){p->tensor > 1 ? p->tensor : 1, p->mlp};
  s->tensor_rank = p->tensor > 1 ? p->tensor_rank : 0;
  s->slots = s->train ? p->slots : 0;
  s->partials = s->train ? p->partials : 0;
  s->policy = calloc((size_t)(s->last - s->first), sizeof *s->policy);
  atoll_err err = s->policy ? describe(s) : atoll_fail(ATOLL_NOMEM, "no memory for %d policies", s->last - s->first);
  if (err != ATOLL_OK) {
    release(s, NULL);
    return err;
  }
  for (int l = 0; l < s->last - s->first; l++)
    s->policy[l] = p->policy ? p->policy[l] : ATOLL_POLICY_EXACT20;
  *out = s;
  return ATOLL_OK;
}

static int pipelined(const atoll_stage *s, int layer) {
  return atoll_mlp_pipelined(s->way.mlp) && atoll_model_layer_kind(s->m, layer) == ATOLL_LAYER_BLOCK;
}

static layer_mlp *first_mlp(const atoll_stage *s) {
  layer_mlp *found = NULL;
  for (int l = s->last - s->first - 1; s->mlp && l >= 0; l--)
    found = s->mlp[l] ? s->mlp[l] : found;
  return found;
}

const char *atoll_stage_mlp_choice(const atoll_stage *s) {
  const layer_mlp *mlp = first_mlp(s);
  return mlp ? mlp_choice(mlp) : "";
}

static atoll_err make_mlp(atoll_stage *s, int layer) {
  mlp_gradients g = {s->shared, s->grads, {0}};
  for (int i = 0; i < LAYER_PARAMS; i++)
    g.at[i] = s->offset[s->map[(layer - s->first) * LAYER_PARAMS + i]];
  return mlp_create(s->m, layer, s->B * s->S, s->way.mlp, &s->e, &g, first_mlp(s), &s->mlp[layer - s->first]);
}

/* Collective over tensor ranks, which have come this far all or not at all. */
static atoll_err make_mlps(atoll_stage *s) {
  s->mlp = calloc((size_t)(s->last - s->first), sizeof *s->mlp);
  if (!s->mlp)
    return atoll_fail(ATOLL_NOMEM, "no memory for a list of %d layers", s->last - s->first);
  for (int l = s->first; l < s->last; l++)
    if (pipelined(s, l))
      ATOLL_TRY(make_mlp(s, l));
  s->changed = 1;
  return ATOLL_OK;
}

atoll_err atoll_stage_bytes(const atoll_model *m, const atoll_stage_params *p, int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  atoll_stage *s = NULL;
  atoll_mem *mem = NULL;
  ATOLL_TRY(begin(m, p, &s));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, atoll_mem_create(0, 1, &mem));
  ATOLL_TRY_GOTO(err, done, allocate(s, mem));
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    bytes[c] = atoll_mem_current(mem, (atoll_mem_category)c);
  int64_t one = 0;
  for (int l = s->first; l < s->last; l++)
    if (pipelined(s, l)) {
      ATOLL_TRY_GOTO(err, done, mlp_bytes(m, s->B * s->S, s->train, s->tensor_rank, s->way.tensor, &one));
      bytes[ATOLL_MEM_COMM] += one;
    }
done:
  release(s, mem);
  atoll_mem_destroy(&mem, NULL);
  return err;
}

atoll_err atoll_stage_create(const atoll_model *m, const atoll_stage_params *p, const atoll_exec *e,
                             atoll_stage **out) {
  if (!e || !e->mem || !e->compute || !e->kernels || !out)
    return atoll_fail(ATOLL_USAGE, "stage without memory, compute queue, kernels or result");
  atoll_stage *s = NULL;
  ATOLL_TRY(begin(m, p, &s));
  if (layer_degree(e) != s->way.tensor || layer_rank(e) != s->tensor_rank) {
    atoll_err other = atoll_fail(ATOLL_USAGE, "stage of tensor rank %d of %d, its group has rank %d of %d",
                                 s->tensor_rank, s->way.tensor, layer_rank(e), layer_degree(e));
    release(s, NULL);
    return other;
  }
  if ((int)e->kernels->dtype != atoll_model_config(m)->dtype) {
    release(s, NULL);
    return atoll_fail(ATOLL_USAGE, "the model computes in %s, kernels '%s' in %s",
                      atoll_dtype_name((atoll_dtype)atoll_model_config(m)->dtype), e->kernels->name,
                      atoll_dtype_name(e->kernels->dtype));
  }
  const char *why;
  if (s->packed && !atoll_packed_serves(e->kernels, &why)) {
    release(s, NULL);
    return atoll_fail(ATOLL_UNSUPPORTED, "stage that keeps panels of weights with kernels '%s': %s", e->kernels->name,
                      why);
  }
  s->e = *e;
  s->e.work = NULL;
  atoll_err err;
  err = allocate(s, e->mem);
  if (atoll_mlp_pipelined(s->way.mlp))
    err = atoll_agree(atoll_comm_mpi(e->tensor), err);
  if (err == ATOLL_OK)
    err = share_gradients(s, e->mem);
  if (err == ATOLL_OK)
    err = views(s);
  if (atoll_mlp_pipelined(s->way.mlp))
    err = atoll_agree(atoll_comm_mpi(e->tensor), err);
  if (err == ATOLL_OK)
    err = make_mlps(s);
  if (err != ATOLL_OK)
    goto undo;
  *out = s;
  return ATOLL_OK;
undo:
  release(s, e->mem);
  return err;
}

void atoll_stage_destroy(atoll_stage **stage) {
  if (!stage || !*stage)
    return;
  if (!atoll_mem_counting((*stage)->e.mem))
    (void)atoll_queue_sync((*stage)->e.compute); /* tasks may still use the buffers */
  release(*stage, (*stage)->e.mem);
  *stage = NULL;
}

/* ---- running ---- */

static int is_head(const atoll_stage *s, int layer) { return atoll_model_layer_kind(s->m, layer) == ATOLL_LAYER_HEAD; }

static int keeps_input(const atoll_stage *s, int layer) {
  return atoll_layer_keeps_input(s->m, layer, s->policy[layer - s->first]);
}

/* Where layer's saved bytes begin in a slot, for a call of c's size. When the first layer's input is the caller's, its
 * region begins before the slot, by the room of this call's input, which layers never touch: the pieces behind that
 * room lie in the slot also when the call is smaller than the stage was made for. */
static char *saved_at(const atoll_stage *s, const struct slot *slot, int layer, const atoll_call *c) {
  uintptr_t at = (uintptr_t)slot->base;
  if (s->first > 0 && layer == s->first)
    return (char *)(at - (uintptr_t)layer_input_size(s->m, s->first, s->policy[0], c->B, c->S));
  if (s->first > 0)
    at -= (uintptr_t)layer_input_size(s->m, s->first, s->policy[0], s->B, s->S);
  for (int l = s->first; l < layer; l++)
    at += (uintptr_t)layer_saved_size(s->m, l, s->policy[l - s->first], s->way, s->B, s->S);
  return (char *)at;
}

/* What layers read of tensor `at`; NULL: the tensor itself. */
static void *copy_of(const atoll_stage *s, int at) {
  return s->copy ? s->copy + layer_element(s->m) * s->offset[at] : NULL;
}

static const void *weight_at(const atoll_stage *s, int at) {
  return s->copy ? (const void *)copy_of(s, at) : s->param + s->offset[at];
}

static void weights(const atoll_stage *s, int layer, int partial, atoll_layer_buffers *b) {
  int list[LAYER_PARAMS], k = atoll_model_layer_params(s->m, layer, list, LAYER_PARAMS);
  memset(b, 0, sizeof *b);
  b->mlp = s->mlp[layer - s->first];
  b->partial = partial;
  for (int i = 0; i < k; i++) {
    int at = s->map[(layer - s->first) * LAYER_PARAMS + i];
    b->weight[i] = weight_at(s, at);
    for (int j = 0; j < s->matrices; j++)
      for (int back = 0; back <= s->train && s->matrix[j].at == at; back++)
        b->panels[i][back] = s->panels + s->matrix[j].panels[back];
    if (partial < 0)
      continue;
    int second = at == s->second_of && atoll_model_param_at(s->m, list[i])->layer != layer;
    b->grad[i] = s->grad[partial] + (second ? s->second : s->offset[at]);
  }
}

static atoll_err check_call(const atoll_stage *s, int slot, const atoll_call *c) {
  if (!s || !c)
    return atoll_fail(ATOLL_USAGE, "stage or call missing");
  if (c->B < 1 || c->B > s->B || c->S < 1 || c->S > s->S)
    return atoll_fail(ATOLL_USAGE,
                      "stage was made for micro-batches of %lld samples of %lld tokens; the call has %lld of %lld",
                      (long long)s->B, (long long)s->S, (long long)c->B, (long long)c->S);
  if (s->train ? slot < 0 || slot >= s->slots : slot != 0)
    return atoll_fail(ATOLL_USAGE, "activation slot %d of %d", slot, s->train ? s->slots : 1);
  if (c->train && !s->train)
    return atoll_fail(ATOLL_USAGE, "a training call on a stage that was made without gradients");
  return ATOLL_OK;
}

/* Pipelined MLPs hold their weights in a form of their own, products panels of them: made once per update. */
static atoll_err refresh_forms(atoll_stage *s) {
  for (int i = 0; i < s->matrices && s->changed; i++)
    for (int back = 0; back <= s->train; back++) {
      const struct matrix *x = &s->matrix[i];
      ATOLL_TRY(atoll_packed_fill(s->e.kernels, s->e.compute, weight_at(s, x->at), s->panels + x->panels[back], x->I,
                                  x->O, back));
    }
  for (int l = s->first; l < s->last && s->changed; l++) {
    atoll_layer_buffers b;
    weights(s, l, -1, &b);
    if (b.mlp)
      ATOLL_TRY(mlp_set(&b, &s->e));
  }
  s->changed = 0;
  return ATOLL_OK;
}

atoll_err atoll_stage_forward(atoll_stage *s, int slot, const atoll_call *c, const void *x, const int32_t *tokens,
                              const int32_t *targets, void *y, float *loss) {
  ATOLL_TRY(check_call(s, slot, c));
  int head = is_head(s, s->last - 1);
  if ((s->first == 0 ? !tokens : !x) || (head ? !targets || !loss : !y))
    return atoll_fail(ATOLL_USAGE, "stage of layers %d to %d: its input or output is missing", s->first, s->last - 1);
  struct slot *sl = s->train ? &s->slot[slot] : NULL;
  if (sl && sl->busy)
    return atoll_fail(ATOLL_USAGE, "activation slot %d is in use: its backward has not been called", slot);
  ATOLL_TRY(refresh_forms(s));
  const void *in = x;
  int turn = 0;
  for (int l = s->first; l < s->last; l++) {
    if (c->train && is_head(s, l)) /* in backward: see layer.h */
      break;
    atoll_layer_buffers b;
    weights(s, l, -1, &b);
    b.saved = sl ? saved_at(s, sl, l, c) : s->scratch;
    void *out = y;
    if (l + 1 < s->last)
      out = sl && keeps_input(s, l + 1) ? saved_at(s, sl, l + 1, c) : s->pass[turn];
    ATOLL_TRY(atoll_layer_forward(s->m, l, s->policy[l - s->first], &s->e, c, &b, in, tokens, targets,
                                  is_head(s, l) ? NULL : out, loss));
    in = out;
    turn = !turn;
  }
  if (c->train)
    *sl = (struct slot){sl->base, x, tokens, targets, loss, c->B, c->S, 1};
  return ATOLL_OK;
}

struct zero_args {
  int threads;
  float *to;
  int64_t n;
};

/* By all threads: half a gigabyte is otherwise a tenth of a second, and pages then lie near the threads that use them.
 */
static atoll_err zero_task(void *args, void *stream) {
  enum { PIECE = 1 << 18 };
  const struct zero_args *a = args;
  (void)stream;
#pragma omp parallel for num_threads(a->threads) schedule(static)
  for (int64_t i = 0; i < a->n; i += PIECE)
    memset(a->to + i, 0, (size_t)(a->n - i < PIECE ? a->n - i : PIECE) * sizeof *a->to);
  return ATOLL_OK;
}

static atoll_err zero(const atoll_stage *s, float *to, int64_t n) {
  struct zero_args a = {atoll_device_threads(s->e.device), to, n};
  return atoll_device_host_memory(s->e.device) ? atoll_queue_submit(s->e.compute, zero_task, &a, sizeof a)
                                               : atoll_queue_zero(s->e.compute, to, (size_t)n * sizeof *to);
}

/* Of a layer whose gradients count as zero, products write theirs over what is there, and the others are zeroed. */
static atoll_err begin_gradients(const atoll_stage *s, int layer, int partial, atoll_layer_buffers *b) {
  char *fresh = &s->fresh[partial * (s->last - s->first) + layer - s->first];
  int list[LAYER_PARAMS], n = atoll_model_layer_params(s->m, layer, list, LAYER_PARAMS);
  b->fresh = *fresh;
  for (int i = 0; i < n && *fresh; i++)
    if (!layer_overwrites(s->m, layer, s->way, i))
      ATOLL_TRY(zero(s, b->grad[i], s->count[s->map[(layer - s->first) * LAYER_PARAMS + i]]));
  *fresh = 0;
  return ATOLL_OK;
}

atoll_err atoll_stage_backward(atoll_stage *s, int slot, int partial, const atoll_call *c, const void *dy, void *dx,
                               atoll_event *dx_ready) {
  ATOLL_TRY(check_call(s, slot, c));
  if (!s->train || !c->train)
    return atoll_fail(ATOLL_USAGE, "backward without training");
  if (partial < 0 || partial >= s->partials)
    return atoll_fail(ATOLL_USAGE, "gradient buffer %d of %d", partial, s->partials);
  struct slot *sl = &s->slot[slot];
  if (!sl->busy || sl->B != c->B || sl->S != c->S)
    return atoll_fail(ATOLL_USAGE, "activation slot %d holds no forward of %lld samples of %lld tokens", slot,
                      (long long)c->B, (long long)c->S);
  int head = is_head(s, s->last - 1);
  if ((!head && !dy) || (s->first > 0 && !dx))
    return atoll_fail(ATOLL_USAGE, "stage of layers %d to %d: a gradient of its boundary is missing", s->first,
                      s->last - 1);
  sl->busy = 0;
  const void *from = dy;
  int turn = 0;
  for (int l = s->last - 1; l >= s->first; l--) {
    atoll_policy p = s->policy[l - s->first];
    const void *x = l == s->first ? sl->x : keeps_input(s, l) ? saved_at(s, sl, l, c) : NULL;
    void *to = l == s->first ? dx : s->pass[turn];
    atoll_layer_buffers b;
    weights(s, l, partial, &b);
    ATOLL_TRY(begin_gradients(s, l, partial, &b));
    b.saved = saved_at(s, sl, l, c);
    b.carried = s->carried;
    if (is_head(s, l)) {
      ATOLL_TRY(atoll_layer_forward(s->m, l, p, &s->e, c, &b, x, NULL, sl->targets, to, sl->loss));
      from = to;
    }
    if (in_halves(s, l)) {
      ATOLL_TRY(atoll_layer_backward_input(s->m, l, p, &s->e, c, &b, x, from, to));
      if (dx_ready)
        ATOLL_TRY(atoll_queue_record(s->e.compute, dx_ready));
      ATOLL_TRY(atoll_layer_backward_weight(s->m, l, p, &s->e, c, &b, x, sl->tokens, from));
    } else {
      ATOLL_TRY(atoll_layer_backward(s->m, l, p, &s->e, c, &b, x, sl->tokens, from, to));
    }
    from = to;
    turn = !turn;
  }
  return ATOLL_OK;
}

/* ---- flat buffers ---- */

int64_t atoll_stage_param_elements(const atoll_stage *s) { return s->params; }

int64_t atoll_stage_grad_elements(const atoll_stage *s) { return s->grads; }

float *atoll_stage_flat_params(atoll_stage *s) { return s->param; }

float *atoll_stage_flat_grad(atoll_stage *s, int partial) {
  return partial >= 0 && partial < s->partials ? s->grad[partial] : NULL;
}

atoll_err atoll_stage_fold_tied(atoll_stage *s, int partial) {
  if (partial < 0 || partial >= s->partials)
    return atoll_fail(ATOLL_USAGE, "gradient buffer %d of %d", partial, s->partials);
  if (s->second_of < 0)
    return ATOLL_OK;
  float *g = s->grad[partial];
  return s->e.kernels->add(s->e.compute, g + s->second, g + s->offset[s->second_of], s->grads - s->second);
}

float *atoll_stage_tied_grad(atoll_stage *s, int partial, int64_t *count, int *is_first_use) {
  *count = 0;
  if (partial < 0 || partial >= s->partials || s->second_of >= 0)
    return NULL;
  for (int i = 0; i < s->n; i++) {
    const atoll_model_param *p = atoll_model_param_at(s->m, s->index[i]);
    if (p->tied_layer < 0)
      continue;
    *count = padded_elements(s->count[i]);
    *is_first_use = p->layer >= s->first && p->layer < s->last;
    return s->grad[partial] + s->offset[i];
  }
  return NULL;
}

/* Where other ranks add to them, at any time, they are zeroed now. */
atoll_err atoll_stage_zero_grad(atoll_stage *s, int partial) {
  if (partial < 0 || partial >= s->partials)
    return atoll_fail(ATOLL_USAGE, "gradient buffer %d of %d", partial, s->partials);
  if (s->shared)
    return zero(s, s->grad[partial], s->grads);
  memset(s->fresh + partial * (s->last - s->first), 1, (size_t)(s->last - s->first));
  return ATOLL_OK;
}

atoll_err atoll_stage_sum_squares(atoll_stage *s, int partial, double *by_param) {
  if (partial < 0 || partial >= s->partials || !by_param)
    return atoll_fail(ATOLL_USAGE, "sum of squares of gradient buffer %d of %d", partial, s->partials);
  for (int i = 0; i < s->n; i++) {
    const atoll_model_param *p = atoll_model_param_at(s->m, s->index[i]);
    if (p->layer < s->first || p->layer >= s->last) /* a tied tensor's second use: its first user counts it */
      continue;
    ATOLL_TRY(
        s->e.kernels->sum_squares(s->e.compute, s->grad[partial] + s->offset[i], s->count[i], &by_param[s->index[i]]));
  }
  return ATOLL_OK;
}

/* Chance is keyed by parameter and element, never by stage, so all owners of a tensor read the same weights. */
static atoll_rounding rounding_of(const atoll_stage *s, int at, const atoll_rounding *asked) {
  return (atoll_rounding){
      .by_chance = asked->by_chance,
      .key = {
          .seed = asked->key.seed, .step = asked->key.step, .sample = (uint64_t)s->index[at], .site = ATOLL_RNG_ROUND}};
}

atoll_err atoll_stage_adamw(atoll_stage *s, int partial, const atoll_adamw *p) {
  if (partial < 0 || partial >= s->partials || !p)
    return atoll_fail(ATOLL_USAGE, "AdamW with gradient buffer %d of %d", partial, s->partials);
  s->changed = 1;
  for (int i = 0; i < s->n; i++) {
    const atoll_model_param *mp = atoll_model_param_at(s->m, s->index[i]);
    int64_t at = s->offset[i];
    atoll_adamw mine = *p;
    mine.decay = mp->decay ? p->decay : 0;
    mine.rounding = rounding_of(s, i, &p->rounding);
    ATOLL_TRY(s->e.kernels->adamw(s->e.compute, s->param + at, s->grad[partial] + at, s->moment[0] + at,
                                  s->moment[1] + at, copy_of(s, i), s->count[i], &mine));
  }
  return ATOLL_OK;
}

atoll_err atoll_stage_refresh(atoll_stage *s, const atoll_rounding *rounding) {
  s->changed = 1;
  for (int i = 0; i < s->n && s->copy && !atoll_mem_counting(s->e.mem); i++) {
    atoll_rounding mine = rounding_of(s, i, rounding);
    ATOLL_TRY(s->e.kernels->copy_weights(s->e.compute, s->param + s->offset[i], copy_of(s, i), s->count[i], &mine));
  }
  return ATOLL_OK;
}

atoll_err atoll_stage_tensors(atoll_stage *s, atoll_stage_what what, const atoll_tensor **tensors, const int **index,
                              int *n) {
  if (!s || (unsigned)what > ATOLL_STAGE_MOMENT2 || (what != ATOLL_STAGE_PARAM && !s->train))
    return atoll_fail(ATOLL_USAGE, "stage tensors of kind %d: %s", (int)what,
                      s && !s->train ? "the stage does not train" : "unknown kind");
  *tensors = s->view[what];
  *index = s->block_of;
  *n = s->blocks;
  return ATOLL_OK;
}

/* ---- initial values ---- */

struct init_args {
  int threads;
  float *to;               /* [runs, n] */
  int64_t runs, n;         /* elements that are neighbours in the whole, so many times */
  int64_t first, distance; /* in the whole: the first element, and from one run's to the next one's */
  uint64_t seed;
  int index;
  atoll_init init;
  float std;
};

static atoll_err init_task(void *args, void *stream) {
  enum { PIECE = 1 << 16 };
  const struct init_args *a = args;
  (void)stream;
  const atoll_rng_key key = {.seed = a->seed, .sample = (uint64_t)a->index, .site = ATOLL_RNG_INIT};
  int64_t pieces = (a->n + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(a->threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < a->runs * pieces; i++) {
    int64_t run = i / pieces, at = i % pieces * PIECE, m = a->n - at < PIECE ? a->n - at : PIECE;
    float *to = a->to + run * a->n + at;
    if (a->init == ATOLL_INIT_NORMAL)
      atoll_rng_fill_normal(&key, (uint64_t)(a->first + run * a->distance + at), (size_t)m, a->std, to);
    else
      for (int64_t k = 0; k < m; k++)
        to[k] = a->init == ATOLL_INIT_ONE ? 1 : 0;
  }
  return ATOLL_OK;
}

atoll_err atoll_stage_init(atoll_stage *s, uint64_t seed) {
  if (atoll_mem_counting(s->e.mem))
    return ATOLL_OK;
  if (!atoll_device_host_memory(s->e.device))
    return atoll_fail(ATOLL_UNSUPPORTED, "initial values on device kind '%s'", atoll_device_kind(s->e.device));
  for (int i = 0; i < s->blocks; i++) {
    const atoll_tensor *t = &s->view[ATOLL_STAGE_PARAM][i];
    const atoll_model_param *p = atoll_model_param_at(s->m, s->block_of[i]);
    int rows = t->ndim == 2 && t->local[1] < t->global[1]; /* parts of rows; otherwise one run */
    int64_t width = t->global[t->ndim - 1];
    struct init_args a = {atoll_device_threads(s->e.device),
                          t->data,
                          rows ? t->local[0] : 1,
                          rows ? t->local[1] : atoll_tensor_local_count(t),
                          t->ndim == 1 ? t->start[0] : t->start[0] * width + t->start[1],
                          width,
                          seed,
                          s->block_of[i],
                          p->init,
                          (float)p->init_std};
    ATOLL_TRY(atoll_queue_submit(s->e.compute, init_task, &a, sizeof a));
  }
  return atoll_stage_refresh(s, &(atoll_rounding){0});
}

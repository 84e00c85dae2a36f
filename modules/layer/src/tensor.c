/* Tensor parallelism: which block of a parameter a rank holds, and the sums over a group.
 *
 * Method: Shoeybi et al. 2019 (Megatron-LM, 1909.08053). Of a block's matrices, those behind a norm are cut in columns
 * and those before a residual in rows, so that heads and the MLP's values are divided among the ranks and a block has
 * two sums forward (of what the row products give) and two backward (of the input's gradient of the column products).
 * Norms, residuals, embedding and head are done by every rank alike, from the same bits: each sum is made once per
 * element, over the ranks in order, and handed to all. */
#include "atoll/layer.h"

#include "program.h"
#include "schedule.h"

#include <string.h>

enum { SUM_BYTES = 4 << 20 }; /* of a sum's pieces */

int layer_degree(const atoll_exec *e) { return e->tensor ? atoll_comm_size(e->tensor) : 1; }

int layer_rank(const atoll_exec *e) { return e->tensor ? atoll_comm_rank(e->tensor) : 0; }

/* Rows of `width` elements that a sum takes at a time. */
static int64_t sum_rows(int64_t width) { return width * 4 > SUM_BYTES ? 1 : SUM_BYTES / (width * 4); }

/* A piece's width is a multiple of the degree, so its slices need no more room than itself. Where values are bf16 the
 * parts of a sum are of f32 and apart. */
void tensor_sum_pieces(const atoll_model *m, int tensor, layer_pieces *out) {
  int64_t H = atoll_model_config(m)->width;
  int apart = atoll_model_config(m)->dtype != ATOLL_F32;
  *out = (layer_pieces){.n = (tensor > 1) * (1 + apart), .row = {4 * H, 4 * H}, .max_rows = sum_rows(H)};
}

static int64_t piece_rows(const layer_call *l) { return l->R < sum_rows(l->H) ? l->R : sum_rows(l->H); }

/* part [rows, H], summed in place. */
static atoll_err sum(const layer_call *l, float *part, int64_t rows) {
  int64_t leaf = layer_rank(l->e), one = 1, piece = piece_rows(l) * l->H;
  size_t mark = atoll_arena_mark(l->e->work);
  void *work = NULL;
  ATOLL_TRY(atoll_arena_push(l->e->work, (size_t)piece * sizeof(float), &work));
  atoll_err err = atoll_comm_tree_sum(l->e->tensor, l->e->compute, layer_degree(l->e), 1, &leaf, &one, &part,
                                      rows * l->H, part, work, piece);
  atoll_arena_release(l->e->work, mark);
  return err;
}

atoll_err tensor_sum(const layer_call *l, void *at) { return l->e->tensor ? sum(l, at, l->R) : ATOLL_OK; }

int tensor_sums_apart(const layer_call *l) { return l->e->tensor && l->e->kernels->dtype != ATOLL_F32; }

atoll_err tensor_product(const layer_call *l, int back, const void *from, int64_t inner, const void *w,
                         const void *bias, void *to, int add) {
  const atoll_kernels *k = l->e->kernels;
  int64_t most = piece_rows(l), size = layer_element(l->m);
  size_t mark = atoll_arena_mark(l->e->work);
  void *part = NULL;
  atoll_err err = atoll_arena_push(l->e->work, (size_t)(most * l->H) * sizeof(float), &part);
  for (int64_t r = 0; r < l->R && err == ATOLL_OK; r += most) {
    int64_t rows = l->R - r < most ? l->R - r : most;
    const char *x = (const char *)from + r * inner * size;
    err = back ? k->linear_backward_input_part(l->e->compute, x, w, part, rows, l->H, inner)
               : k->linear_forward_part(l->e->compute, x, w, part, rows, inner, l->H);
    if (err == ATOLL_OK)
      err = sum(l, part, rows);
    if (err == ATOLL_OK)
      err = k->round_sum(l->e->compute, part, bias, (char *)to + r * l->H * size, rows, l->H, add);
  }
  atoll_arena_release(l->e->work, mark);
  return err;
}

atoll_err atoll_layer_check_tensor(const atoll_model *m, int degree) {
  const atoll_model_params *c = atoll_model_config(m);
  const struct {
    const char *what;
    int64_t n;
  } divided[] = {{"heads", c->heads}, {"key heads", c->kv_heads}, {"columns in its MLP", c->ffn}};
  if (degree < 1)
    return atoll_fail(ATOLL_USAGE, "tensor parallelism of degree %d", degree);
  for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
    if (divided[i].n % degree)
      return atoll_fail(ATOLL_USAGE, "tensor parallelism of degree %d does not divide the model's %lld %s", degree,
                        (long long)divided[i].n, divided[i].what);
  return ATOLL_OK;
}

int atoll_layer_backward_sums(const atoll_model *m, int layer, atoll_mlp mlp) {
  program p;
  int inputs = 0, columns = 0;
  if (program_make(m, layer, ATOLL_POLICY_EXACT2, (layer_way){1, mlp}, &p) != ATOLL_OK)
    return 0;
  for (int i = 0; i < p.ops; i++) {
    int cut = p.op[i].split == SPLIT_COLUMNS, seen = 0;
    for (int j = 0; j < i; j++)
      seen |= p.op[j].split == SPLIT_COLUMNS && p.op[j].in[0] == p.op[i].in[0];
    columns += cut;
    inputs += cut && !seen;
  }
  return atoll_model_config(m)->dtype == ATOLL_F32 ? inputs : columns;
}

/* The operation that has the parameter for its matrix or bias (1), or those of its second product (2); 0: none. */
static int user_of(const atoll_model *m, const program *p, int layer, int param, const program_op **user) {
  int list[LAYER_PARAMS], n = atoll_model_layer_params(m, layer, list, LAYER_PARAMS), at = 0;
  while (at < n && list[at] != param)
    at++;
  for (int i = 0; i < p->ops; i++) {
    const program_op *o = *user = &p->op[i];
    if (o->kind == OP_MLP && (o->second_weight == at || o->second_bias == at))
      return 2;
    if (o->weight == at || o->bias == at || (o->kind == OP_MLP && o->gate_weight == at))
      return 1;
  }
  return 0;
}

atoll_err atoll_layer_blocks(const atoll_model *m, int param, int rank, int degree, atoll_mlp mlp, atoll_tensor *block,
                             int *n) {
  const atoll_model_param *mp = atoll_model_param_at(m, param);
  ATOLL_TRY(atoll_tensor_init(&block[0], mp->name, ATOLL_F32, mp->ndim, mp->shape, NULL));
  *n = 1;
  if (degree <= 1 || atoll_model_layer_kind(m, mp->layer) != ATOLL_LAYER_BLOCK)
    return ATOLL_OK;
  program p;
  ATOLL_TRY(program_make(m, mp->layer, ATOLL_POLICY_EXACT2, (layer_way){degree, mlp}, &p));
  const program_op *o = NULL;
  int use = user_of(m, &p, mp->layer, param, &o);
  if (use && o->kind == OP_MLP) { /* one rank has a matrix, as in ctapipe.h */
    if (rank != (use - 1) * degree / 2)
      memset(block[0].local, 0, sizeof block[0].local);
    return ATOLL_OK;
  }
  if (!use || o->split == SPLIT_NONE || (o->split == SPLIT_ROWS && mp->ndim == 1))
    return ATOLL_OK;
  int dim = o->split == SPLIT_ROWS, parts = o->split == SPLIT_ROWS ? 1 : o->parts;
  int64_t part = mp->shape[dim] / parts, mine = part / degree;
  for (int i = 0; i < parts; i++) {
    block[i] = block[0];
    block[i].start[dim] = i * part + rank * mine;
    block[i].local[dim] = mine;
  }
  *n = parts;
  return ATOLL_OK;
}

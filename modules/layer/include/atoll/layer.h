/** Layers of a model: forward, backward in two calls, and the exact bytes each keeps, per memory policy.
 *
 *  A layer is stateless: parameters, saved activations and workspace are handed in. A stage (below) owns those for a
 * range of layers, which is what train executes and plan counts.
 *
 *  Memory policies say which values a block keeps for backward; the rest is made again, by the same kernels from the
 * same numbers, so gradients are the same to the bit. `exactN` is named after the bytes per element of B S H that a
 * GPT-2 block keeps in 16 bit (twice that in 32); the share of the block's forward products that it repeats is in
 * brackets. Statistics of norms, and log-sum-exp of attention, come on top. Dropout masks are functions of (seed, step,
 * sample, layer, site) and kept by none of these.
 *
 *    eager        what a framework keeps (2205.05198, table 2, with masks of a byte): eager_flash's, all dropout masks,
 *                 and of attention the S x S probabilities before and after dropout; 34 and 5 A B S^2 (66 and 9 in
 *                 32 bit)
 *    eager_flash  all that backward reads: block input, ln1, qkv, o, r1, ln2, f, gelu(f)
 *    exact20      block input, qkv, o, r1, f; norms and gelu again (0)
 *    tempo        (Andoorveedu et al. 2022, by forms of our own) what norms normalised instead of their input, output
 *                 and the block's input, exact for any gamma; GELU's root instead of input and output, slope within
 *                 2e-5 (kernel_keep.h); qkv; of attention its probabilities before dropout alone, in half the bits of
 *                 an element with a scale per row, and from them o again (S/(12 H) of the block's products). 18 and
 *                 A B S^2 (36 and 2 in 32 bit)
 *    tempo_flash  the same with o instead of S x S values: 20
 *    exact18      block input, qkv, o, f; also r1 again (1/12)
 *    exact16_lossy  block input, qkv, o, r1, and f in 8 bits a value with a scale per row: not exact
 *    exact12      block input, qkv, o, r1; also f (4/12)
 *    exact10      block input, qkv, o (5/12)
 *    exact6       block input, o, r1 (7/12)
 *    exact4       block input, o (8/12)
 *    exact2       block input (8/12 and attention)
 *
 * (The frontier of Korthikanti et al. 2022 and Chen et al. 2016, without masks; the last product of a block is never
 * repeated.) Where blocks fill memory, a policy's largest batch is to eager's as eager's bytes are to its own, but for
 * the rounding of small ones: with S = 128 and H = 64 A exact20's is 2.1 times eager's at most (2.2 in 16 bit),
 * exact12's 3.5. Other families keep the values of the same roles. `exact` means exact20. `eager`, `tempo` and
 * `exact16_lossy` need kernels that a table may lack: UNSUPPORTED then.
 *
 *  Largest error of a parameter's gradient, in parts of its largest element, in blocks of random weights: in f32 tempo
 * 1e-4, exact16_lossy 5e-2; in bf16, which rounds what is kept in place of other values, eager (probabilities) 2e-2,
 * tempo and exact16_lossy 5e-2. All others have the bits of exact20. */
#ifndef ATOLL_LAYER_H
#define ATOLL_LAYER_H

#include <stdint.h>

#include "atoll/exec.h"
#include "atoll/kernel.h"
#include "atoll/model.h"
#include "atoll/sym.h"

ATOLL_BEGIN_C

typedef enum atoll_policy {
  ATOLL_POLICY_EAGER_FLASH,
  ATOLL_POLICY_EXACT20,
  ATOLL_POLICY_EXACT18,
  ATOLL_POLICY_EXACT12,
  ATOLL_POLICY_EXACT10,
  ATOLL_POLICY_EXACT6,
  ATOLL_POLICY_EXACT4,
  ATOLL_POLICY_EXACT2,
  ATOLL_POLICY_EAGER,
  ATOLL_POLICY_TEMPO,
  ATOLL_POLICY_TEMPO_FLASH,
  ATOLL_POLICY_EXACT16_LOSSY,
  ATOLL_POLICIES
} atoll_policy;
ATOLL_API const char *atoll_policy_name(atoll_policy p);
ATOLL_API int atoll_policy_parse(const char *name, atoll_policy *p); /* 0 or -1 */
/** "eager_flash, exact20, ...", for messages. */
ATOLL_API const char *atoll_policy_list(void);
/** Whether a planner left free to choose should try it: eager_flash, exact20 and exact4. The ones between cost per byte
 * what a mixture of these over stages does. */
ATOLL_API int atoll_policy_automatic(atoll_policy p);

/** How blocks do their MLP: each tensor rank its columns and rows (plain), or each matrix on a rank of its own, the
 * products pipelined by tiles through memory that the ranks of a node share (ctapipe.h). With cta idle ranks take tiles
 * of each other's, for which they read each other's weights; cta_own forbids that. auto places and holds what cta does,
 * and a stage that trains measures on creation which way through these matrices is the fastest here
 * (atoll_chain_choose_training(), remembered in chains.yaml); all of them give the bits of cta. */
typedef enum atoll_mlp { ATOLL_MLP_PLAIN, ATOLL_MLP_CTA, ATOLL_MLP_CTA_OWN, ATOLL_MLP_AUTO } atoll_mlp;
static inline int atoll_mlp_pipelined(atoll_mlp mlp) { return mlp != ATOLL_MLP_PLAIN; }
ATOLL_API const char *atoll_mlp_name(atoll_mlp mlp);
ATOLL_API int atoll_mlp_parse(const char *name, atoll_mlp *mlp); /* 0 or -1 */
/** A model's MLP on so many rows and ranks, forward or, where that was measured, with backward: s pipelined, and s of
 * the row or the column split, whichever is less, their meetings included. Both 0: not measured. */
typedef struct atoll_mlp_seconds {
  int64_t rows;
  int ranks;
  double pipelined, even;
} atoll_mlp_seconds;
/** Local: what this machine's chooser of chains remembers of the `n` rows and ranks that are set in `of` (file as in
 * atoll_chain_choose(), read once; one that cannot be used knows nothing). Returns how many it knows. */
ATOLL_API int atoll_mlp_remembered(const atoll_model *m, const char *path, atoll_mlp_seconds *of, int n);

/** One micro-batch's identity: what random numbers and loss weights are keyed by. */
typedef struct atoll_call {
  int64_t B, S; /* samples of this micro-batch, tokens per sample */
  uint64_t seed, step;
  uint64_t first_sample; /* global index, within the step, of sample 0 of this micro-batch */
  float loss_scale;      /* 1 / targets of the global batch: gradients come out as those of the mean loss */
  /* Of bert and roberta only; borrowed as long as the tokens are. */
  const int32_t *types;   /* [B,S] token types */
  const int32_t *lengths; /* [B] tokens that are not padding; NULL: all S. Every layer needs them */
  int64_t targets;        /* rows of the micro-batch that have a target, at most: what the head works on; 0: all B S */
  const int32_t *next;    /* [B] label of the next-sentence loss (0: it follows), -1 none; NULL: no such loss */
  float next_scale;       /* 1 / samples of the global batch */
  int train;              /* 0: no dropout, nothing saved, no gradients */
} atoll_call;

/** Exact bytes as int expressions over variables "B", "S" of the pool, on one of `tensor` tensor ranks, MLPs plain.
 * saved: kept from forward to backward by one micro-batch; work: scratch of the larger of forward and backward
 * (arena-padded). Where backward is called in halves, carried: kept from the first to the second; half: scratch of the
 * largest of forward and these two. The saved bytes of head, and of a block whose policy keeps it, begin with room for
 * the input x [B,S,H], where a stage lets the layer before write; layer code itself finds x by its argument. A stage's
 * first layer has no such room when its x comes from another stage, which owns that buffer. */
ATOLL_API const atoll_sym *atoll_layer_saved_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy p,
                                                   int tensor);
ATOLL_API const atoll_sym *atoll_layer_carried_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy p,
                                                     int tensor);
ATOLL_API const atoll_sym *atoll_layer_work_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy p,
                                                  int tensor);
ATOLL_API const atoll_sym *atoll_layer_half_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy p,
                                                  int tensor);

/** FLOPs of matrix products and attention that backward repeats, counted as atoll_model_layer_flops() counts. */
ATOLL_API const atoll_sym *atoll_layer_recompute_flops(const atoll_model *m, atoll_syms *pool, int layer,
                                                       atoll_policy p);
/** What a block saves, in elements per row, by what tensor parallelism cuts: the rows' own values (whole on every
 * rank), those of attention (by heads, log-sum-exp included), those of the MLP (by columns). Statistics of norms are
 * not in it. */
ATOLL_API void atoll_layer_kept(const atoll_model *m, int layer, atoll_policy p, int64_t *whole, int64_t *attention,
                                int64_t *mlp);

/** Tensor parallelism (Shoeybi et al. 2019, 1909.08053): the ranks of e->tensor hold a part each of the matrices of a
 * block and do a part of its heads and of its MLP; the rest of a block, embedding and head are the same on all, to the
 * bit. Every rank makes the same calls; results differ from those of one rank by the order of sums.
 *
 * The vocabulary is not split: every rank holds the whole table with its gradients and moments, and does the head's
 * products for all rows: of the products with matrices of GPT-2 124M 31 % (V W of 12 L W^2 + V W), so two such
 * ranks do 1.31 of an even share each, four 1.9. Plans count that, and may give the head a stage without tensor ranks.
 *
 * USAGE names heads, key heads or columns that the degree does not divide. */
ATOLL_API atoll_err atoll_layer_check_tensor(const atoll_model *m, int degree);
/** What tensor rank `rank` of `degree` holds of a parameter: blocks of the whole, f32 without data, which lie behind
 * each other in a stage's buffers; n is 1, or ATOLL_LAYER_BLOCKS where one matrix has queries, keys and values. A block
 * is empty where another rank has all of a matrix. */
#define ATOLL_LAYER_BLOCKS 3
ATOLL_API atoll_err atoll_layer_blocks(const atoll_model *m, int param, int rank, int degree, atoll_mlp mlp,
                                       atoll_tensor *block, int *n);

/** Sums over tensor ranks of [B S, width] values of f32 that a block's backward makes, but for what its policy makes
 * again. A pipelined MLP sums nothing. */
ATOLL_API int atoll_layer_backward_sums(const atoll_model *m, int layer, atoll_mlp mlp);

/** Whether a layer's saved bytes hold its input. */
ATOLL_API int atoll_layer_keeps_input(const atoll_model *m, int layer, atoll_policy p);

/** Pointers of one layer. weight[i], grad[i] follow atoll_model_layer_params(). All borrowed device memory. */
typedef struct atoll_layer_buffers {
  const void *weight[16];    /* in the dtype of the kernels */
  const void *panels[16][2]; /* of weights (packed.h), for products forward and back; NULL: none */
  float *grad[16];           /* NULL entries are not wanted */
  int fresh;     /* 1: products write their gradients over what was there, the first time; the others are zero */
  int partial;   /* index of the stage's buffer of gradients that is added to; 0 outside a stage */
  void *saved;   /* saved_bytes; needed, as scratch, also when the call does not train */
  void *carried; /* carried_bytes; of no use to a backward that is whole */
  struct layer_mlp *mlp; /* a stage's, of a block whose MLP is pipelined; NULL: plain */
} atoll_layer_buffers;

/** x [B,S,H] -> y [B,S,H] (of a block not x, which is read while y is written). Embedding: tokens [B,S] instead of x.
 * Head: targets [B,S]; loss [B,S] per token (-1 targets give 0); that of the next sentence is added to a sample's
 * first, times next_scale / loss_scale, so that the sum over all is the whole loss by loss_scale. The head computes, in
 * row chunks, loss and (train) also its input gradient, which it leaves in y, and its weight gradients, which it adds:
 * its logits exist one chunk at a time and are never recomputed. All enqueued on e->compute. */
ATOLL_API atoll_err atoll_layer_forward(const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e,
                                        const atoll_call *c, const atoll_layer_buffers *b, const void *x,
                                        const int32_t *tokens, const int32_t *targets, void *y, float *loss);
/** dy [B,S,H] -> dx [B,S,H] (overwritten; not dy; NULL for the embedding), and adds to grad[]. Head: dy is what forward
 * left in y; dx may be the same. */
ATOLL_API atoll_err atoll_layer_backward(const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e,
                                         const atoll_call *c, const atoll_layer_buffers *b, const void *x,
                                         const int32_t *tokens, const void *dy, void *dx);
/** The same in halves, for somebody who waits for dx. This one gives dx; the bits are the same. */
ATOLL_API atoll_err atoll_layer_backward_input(const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e,
                                               const atoll_call *c, const atoll_layer_buffers *b, const void *x,
                                               const void *dy, void *dx);
/** Adds to grad[]; needs what backward_input left in carried, and its dy (for the embedding dy and tokens). The head
 * did this in forward. */
ATOLL_API atoll_err atoll_layer_backward_weight(const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e,
                                                const atoll_call *c, const atoll_layer_buffers *b, const void *x,
                                                const int32_t *tokens, const void *dy);

/** A stage: layers [first, last) on one device, its parameters, gradients, moments, activation slots and workspace, in
 * exact accounts of e->mem. */
typedef struct atoll_stage atoll_stage;

typedef struct atoll_stage_params {
  int first, last;            /* layers, half-open */
  const atoll_policy *policy; /* [last - first]; borrowed for the call */
  int64_t B, S;               /* largest micro-batch */
  int slots;                  /* micro-batches in flight at most */
  int partials;               /* gradient buffers: 1 + extra ones for the summation tree */
  int train;                  /* 0: parameters and workspace only */
  int tensor, tensor_rank;    /* the rank's place in e->tensor; 0, 0 without */
  atoll_mlp mlp;              /* of its blocks; pipelined on tensor ranks of one node */
  int packed; /* 1: panels of its matrices (packed.h) are made once per update and used by all micro-batches */
} atoll_stage_params;

/** Of panels of this stage: 0, products would not use them (values are bf16 and summed over tensor ranks); 1, they
 * would; 2, and it pays (micro-batches of few rows, whose packing takes as long as their products). */
ATOLL_API int atoll_stage_packs(const atoll_model *m, const atoll_stage_params *p);

/** What auto found for the MLPs of a stage, as "row_split in panels of 64 rows (remembered)"; "" where there is none.
 * Borrowed as long as the stage. */
ATOLL_API const char *atoll_stage_mlp_choice(const atoll_stage *s);

/** Exact bytes that atoll_stage_create() will take from mem, per category (array of ATOLL_MEM_CATEGORIES), without
 * allocating; also *work_peak inside. */
ATOLL_API atoll_err atoll_stage_bytes(const atoll_model *m, const atoll_stage_params *p,
                                      int64_t bytes[ATOLL_MEM_CATEGORIES]);

/** e is copied; its members and m are borrowed for the stage's life. e->work is made by the stage. UNSUPPORTED:
 * `packed` with kernels that have no panels. */
ATOLL_API atoll_err atoll_stage_create(const atoll_model *m, const atoll_stage_params *p, const atoll_exec *e,
                                       atoll_stage **out);
ATOLL_API void atoll_stage_destroy(atoll_stage **stage);
/** Fills this stage's parameters: a pure function of (seed, parameter index, element of the whole). Both owners of a
 * tied tensor get the same values. What layers read of them is rounded to nearest until the next update or refresh. */
ATOLL_API atoll_err atoll_stage_init(atoll_stage *s, uint64_t seed);

/** Forward of one micro-batch into activation slot `slot`. x: [B,S,H] from the previous stage or NULL with tokens for
 * the first stage; targets and loss [B,S] on the last stage; y [B,S,H] otherwise. x, tokens, targets and loss are kept
 * by reference until backward of the slot: they must live that long. When the call trains, the head runs in
 * atoll_stage_backward(), because its one pass over the logits yields loss and gradients together and only backward
 * knows their buffer: loss is written there. Otherwise loss is written here. */
ATOLL_API atoll_err atoll_stage_forward(atoll_stage *s, int slot, const atoll_call *c, const void *x,
                                        const int32_t *tokens, const int32_t *targets, void *y, float *loss);
/** Backward of the slot. dy NULL on the last stage, dx NULL on the first. Gradients add to partial buffer `partial`.
 * dx_ready (may be NULL) is recorded as soon as dx is complete, before the first layer's weight gradients. */
ATOLL_API atoll_err atoll_stage_backward(atoll_stage *s, int slot, int partial, const atoll_call *c, const void *dy,
                                         void *dx, atoll_event *dx_ready);

/** Flat buffers (64-byte aligned tensors, zero padding). Gradients of a tied tensor's second use on the same stage lie
 * behind the parameters' part. */
ATOLL_API int64_t atoll_stage_param_elements(const atoll_stage *s); /* flat, padded */
ATOLL_API int64_t atoll_stage_grad_elements(const atoll_stage *s);
ATOLL_API float *atoll_stage_flat_params(atoll_stage *s);
/** After parameters were written from outside (loaded): makes what layers read of them, where that is another type
 * or form; all tensor ranks call. Of `rounding` by_chance, seed and step count; step is the one that the parameters'
 * last atoll_stage_adamw() had. */
ATOLL_API atoll_err atoll_stage_refresh(atoll_stage *s, const atoll_rounding *rounding);
ATOLL_API float *atoll_stage_flat_grad(atoll_stage *s, int partial);
/** Adds the second-use gradients of a tied tensor that this stage holds both uses of (embedding use + head use, in that
 * order). */
ATOLL_API atoll_err atoll_stage_fold_tied(atoll_stage *s, int partial);
/** A tied tensor shared with another stage: its gradient block in `partial`; NULL and 0 when none. is_first_use tells
 * which term of the sum this is. */
ATOLL_API float *atoll_stage_tied_grad(atoll_stage *s, int partial, int64_t *count, int *is_first_use);
/** From here on `partial` counts as zero: backward of a layer writes there what it would add, the first time. Whoever
 * reads it before, or a part of it that no backward came to, finds what was there. */
ATOLL_API atoll_err atoll_stage_zero_grad(atoll_stage *s, int partial);
/** by_param[atoll_model_params_count]: this stage's entries are set to the sum of squares, others untouched; a tied
 * tensor only by the stage of its first use. Enqueued; valid after a sync. */
ATOLL_API atoll_err atoll_stage_sum_squares(atoll_stage *s, int partial, double *by_param);
/** AdamW on every parameter with gradient buffer `partial`; p->decay is applied where the parameter wants it. Of
 * p->rounding by_chance and the key's seed and step count; its first element and the rest of its key are the
 * parameter's. */
ATOLL_API atoll_err atoll_stage_adamw(atoll_stage *s, int partial, const atoll_adamw *p);

typedef enum atoll_stage_what {
  ATOLL_STAGE_PARAM,
  ATOLL_STAGE_GRAD,
  ATOLL_STAGE_MOMENT1,
  ATOLL_STAGE_MOMENT2
} atoll_stage_what;
/** Logical tensors as views, in the order of the flat buffers; count by n; valid for the stage's life. index[i] is the
 * model's parameter index. A parameter that is divided may have several blocks, one behind another. */
ATOLL_API atoll_err atoll_stage_tensors(atoll_stage *s, atoll_stage_what what, const atoll_tensor **tensors,
                                        const int **index, int *n);

ATOLL_END_C
#endif

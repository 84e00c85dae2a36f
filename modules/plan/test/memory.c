/* The symbolic bytes of a slice: equal to what layer allocates, to the byte, for every range, policy, micro-batch and
 * depth of a model; and along the axes that train does not execute, what sharing, sharding, offload and recomputation
 * mean for each category. */
#include "plan_test.h"

#include "../src/cost/memory.h"

enum {
  B,
  S,
  SLOTS,
  PARTIALS,
  DATA,
  TENSOR,
  CONTEXT,
  EXPERT,
  ZERO,
  SEQUENCE,
  RECOMPUTE,
  OFF_W,
  OFF_G,
  OFF_O,
  OFF_A,
  VARS
};
static const char *const names[VARS] = {"B",
                                        "S",
                                        "slots",
                                        "partials",
                                        "data",
                                        "tensor",
                                        "context",
                                        "expert",
                                        "zero",
                                        "sequence_parallel",
                                        "recompute",
                                        "offload_weights",
                                        "offload_gradients",
                                        "offload_optimizer",
                                        "offload_activations"};

typedef struct bytes {
  int64_t of[ATOLL_MEM_CATEGORIES], peak, host;
} bytes;

static bytes evaluate(const memory_model *m, const int64_t v[VARS]) {
  bytes out;
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    assert_ok(atoll_sym_eval_int(m->bytes[c], names, v, VARS, &out.of[c]));
  assert_ok(atoll_sym_eval_int(m->peak, names, v, VARS, &out.peak));
  assert_ok(atoll_sym_eval_int(m->host, names, v, VARS, &out.host));
  return out;
}

static void equals_layer_in(atoll_dtype dtype) {
  atoll_model *m = test_model_in(dtype, 3, 48);
  int layers = atoll_model_layers(m), compared = 0;
  for (int first = 0; first < layers; first++)
    for (int last = first + 1; last <= layers; last++)
      for (int policy = 0; policy < ATOLL_POLICIES; policy++) {
        atoll_syms *pool = NULL;
        memory_model model;
        atoll_policy list[8];
        for (int i = 0; i < 8; i++)
          list[i] = (atoll_policy)policy;
        assert_ok(atoll_syms_create(&pool));
        assert_ok(memory_model_make(m, pool, first, last, (atoll_policy)policy, (memory_moe){0, 0}, &model));
        for (int b = 1; b <= 3; b++)
          for (int slots = 1; slots <= 3; slots++)
            for (int partials = 1; partials <= 2; partials++) {
              const int64_t v[VARS] = {b, 29, slots, partials, 1, 1, 1, 1};
              const atoll_stage_params p = {.first = first,
                                            .last = last,
                                            .policy = list,
                                            .B = b,
                                            .S = 29,
                                            .slots = slots,
                                            .partials = partials,
                                            .train = 1};
              int64_t want[ATOLL_MEM_CATEGORIES], sum = 0;
              assert_ok(atoll_stage_bytes(m, &p, want));
              bytes got = evaluate(&model, v);
              for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++) {
                if (got.of[c] != want[c])
                  fail_msg("layers %d-%d %s b %d slots %d: %s %" PRId64 ", allocated %" PRId64, first, last - 1,
                           atoll_policy_name((atoll_policy)policy), b, slots,
                           atoll_mem_category_name((atoll_mem_category)c), got.of[c], want[c]);
                sum += want[c];
              }
              assert_int_equal(got.peak, sum);
              assert_int_equal(got.host, 0);
              compared++;
            }
        atoll_syms_destroy(&pool);
      }
  print_message("%d stages compared\n", compared);
  atoll_model_destroy(&m);
}

static void equals_layer(void **state) {
  (void)state;
  equals_layer_in(ATOLL_F32);
  equals_layer_in(ATOLL_BF16);
}

static atoll_model *family(atoll_family name, int64_t kv_heads) {
  atoll_model_params p;
  atoll_model *m = NULL;
  atoll_model_params_init(&p);
  p.family = name;
  p.layers = 3;
  p.width = 64;
  p.heads = 8;
  p.kv_heads = kv_heads;
  p.context = 128;
  p.vocab = 256;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  return m;
}

/* Whole models on one of two or four tensor ranks, of every family: what layer allocates but for the padding of
 * tensors, and, in scratch, for which call needs most of it. */
static void equals_layer_on_tensor_ranks(void **state) {
  (void)state;
  atoll_model *const models[] = {family(ATOLL_FAMILY_GPT2, 0), family(ATOLL_FAMILY_LLAMA, 4),
                                 family(ATOLL_FAMILY_LLAMA, 8), family(ATOLL_FAMILY_BERT, 0)};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    for (int policy = 0; policy < ATOLL_POLICIES; policy++)
      for (int tensor = 1; tensor <= 4; tensor *= 2) {
        atoll_model *m = models[i];
        atoll_syms *pool = NULL;
        memory_model model;
        atoll_policy list[8];
        for (int l = 0; l < atoll_model_layers(m); l++)
          list[l] = (atoll_policy)policy;
        const int64_t v[VARS] = {2, 64, 3, 1, 1, tensor, 1, 1};
        const atoll_stage_params p = {.last = atoll_model_layers(m),
                                      .policy = list,
                                      .B = 2,
                                      .S = 64,
                                      .slots = 3,
                                      .partials = 1,
                                      .train = 1,
                                      .tensor = tensor};
        int64_t want[ATOLL_MEM_CATEGORIES];
        assert_ok(atoll_syms_create(&pool));
        assert_ok(
            memory_model_make(m, pool, 0, atoll_model_layers(m), (atoll_policy)policy, (memory_moe){0, 0}, &model));
        assert_ok(atoll_stage_bytes(m, &p, want));
        bytes got = evaluate(&model, v);
        for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
          if (llabs(got.of[c] - want[c]) > (c == ATOLL_MEM_WORKSPACE ? want[c] / 10 : 4096))
            fail_msg("model %d, %s on %d ranks: %s %" PRId64 ", allocated %" PRId64, (int)i,
                     atoll_policy_name((atoll_policy)policy), tensor, atoll_mem_category_name((atoll_mem_category)c),
                     got.of[c], want[c]);
        atoll_syms_destroy(&pool);
      }
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    atoll_model *m = models[i];
    atoll_model_destroy(&m);
  }
}

/* Two blocks of width 64: numbers one can follow. */
static void other_axes(void **state) {
  (void)state;
  atoll_model *m = test_model(4, 64);
  atoll_syms *pool = NULL;
  memory_model model;
  assert_ok(atoll_syms_create(&pool));
  assert_ok(memory_model_make(m, pool, 1, 3, ATOLL_POLICY_EAGER_FLASH, (memory_moe){0, 0}, &model));
  assert_int_equal(model.blocks, 2);
  int64_t v[VARS] = {2, 32, 3, 2, 4, 1, 1, 1};
  const int64_t h = 64, matrices = 12 * h * h, columns = 7 * h, vectors = 6 * h, rows = 2 * 32, x = 4 * h * rows;
  const int64_t P = 4 * 2 * (matrices + columns + vectors); /* columns: biases of products that are cut by them */
  bytes plain = evaluate(&model, v), y;
  assert_int_equal(plain.of[ATOLL_MEM_PARAMETER], P);

  v[ZERO] = 1;
  y = evaluate(&model, v);
  assert_int_equal(y.of[ATOLL_MEM_OPTIMIZER], 2 * P / 4);
  assert_int_equal(y.of[ATOLL_MEM_GRADIENT], 2 * P);
  v[ZERO] = 3;
  y = evaluate(&model, v);
  assert_int_equal(y.of[ATOLL_MEM_PARAMETER], P / 4);
  assert_int_equal(y.of[ATOLL_MEM_GRADIENT], 2 * P / 4);
  assert_int_equal(y.of[ATOLL_MEM_COMM], 2 * P); /* two buffers of a layer each for weights and gradients */
  v[ZERO] = 0;

  v[TENSOR] = 2;
  y = evaluate(&model, v);
  assert_int_equal(y.of[ATOLL_MEM_PARAMETER], 4 * 2 * (matrices / 2 + columns / 2 + vectors));
  /* Per block x, ln1, r1, ln2 whole; q, k, v, o, f, gelu(f) and log-sum-exp by halves; mean and rstd twice whole. The
   * first block's x is the caller's. */
  int64_t heads = atoll_model_config(m)->heads, block = 4 * x + 4 * 4 * rows + (4 * x + 8 * x + 4 * heads * rows) / 2;
  assert_int_equal(y.of[ATOLL_MEM_ACTIVATION], 3 * (2 * block - x));
  v[SEQUENCE] = 1;
  y = evaluate(&model, v);
  int64_t half = (16 * x + 4 * 4 * rows + 4 * heads * rows) / 2;
  assert_int_equal(y.of[ATOLL_MEM_ACTIVATION], 3 * (2 * half - x / 2));
  v[TENSOR] = 1;
  v[SEQUENCE] = 0;

  v[RECOMPUTE] = 1;
  y = evaluate(&model, v);
  block = 16 * x + 4 * 4 * rows + 4 * heads * rows;
  assert_int_equal(plain.of[ATOLL_MEM_ACTIVATION], 3 * (2 * block - x));
  assert_int_equal(y.of[ATOLL_MEM_ACTIVATION], 3 * (block + x - x));
  assert_int_equal(y.of[ATOLL_MEM_WORKSPACE] - plain.of[ATOLL_MEM_WORKSPACE], block - x);
  v[RECOMPUTE] = 0;

  v[CONTEXT] = 2;
  assert_int_equal(evaluate(&model, v).of[ATOLL_MEM_ACTIVATION], plain.of[ATOLL_MEM_ACTIVATION] / 2);
  v[CONTEXT] = 1;

  v[OFF_A] = 4;
  y = evaluate(&model, v);
  assert_int_equal(y.of[ATOLL_MEM_ACTIVATION], 3 * (2 * block - x) / 2 + block / 2);
  assert_int_equal(y.host, 3 * (2 * block - x) / 2);
  v[OFF_A] = 0;
  v[OFF_O] = 8;
  y = evaluate(&model, v);
  assert_int_equal(y.of[ATOLL_MEM_OPTIMIZER], 2 * P / 2); /* one layer's at a time */
  assert_int_equal(y.host, 2 * P);
  v[OFF_O] = 0;
  v[OFF_W] = 2;
  y = evaluate(&model, v);
  assert_int_equal(y.of[ATOLL_MEM_PARAMETER], P - P / 4);
  assert_int_equal(y.host, P / 4);
  atoll_syms_destroy(&pool);
  atoll_model_destroy(&m);
}

static void experts(void **state) {
  (void)state;
  atoll_model *m = test_model(4, 64);
  atoll_syms *pool = NULL;
  memory_model model;
  assert_ok(atoll_syms_create(&pool));
  assert_ok(memory_model_make(m, pool, 1, 2, ATOLL_POLICY_EXACT20, (memory_moe){8, 2}, &model));
  int64_t v[VARS] = {4, 32, 1, 1, 2, 1, 1, 4};
  const int64_t h = 64, mlp = 8 * h * h + 5 * h, rest = 4 * h * h + 8 * h, rows = 32;
  bytes y = evaluate(&model, v); /* 4 expert ranks: one sample each, two of eight experts each */
  assert_int_equal(y.of[ATOLL_MEM_PARAMETER], 4 * (2 * mlp + rest));
  /* qkv, o, r1 of one sample, f twice: top 2 */
  int64_t heads = atoll_model_config(m)->heads;
  assert_int_equal(y.of[ATOLL_MEM_ACTIVATION], 4 * rows * (5 * h + 2 * 4 * h + 4 + heads));
  v[ZERO] = 3; /* equal parameters: of experts on 2 ranks, of the rest on 8 */
  y = evaluate(&model, v);
  assert_int_equal(y.of[ATOLL_MEM_PARAMETER], 4 * (2 * mlp) / 2 + 4 * rest / 8);
  atoll_syms_destroy(&pool);
  atoll_model_destroy(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equals_layer), cmocka_unit_test(equals_layer_on_tensor_ranks),
                                     cmocka_unit_test(other_axes), cmocka_unit_test(experts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

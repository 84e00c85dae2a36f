/* The bytes a stage takes are, to the byte, what atoll_stage_bytes() says and what the expressions of its layers add up
 * to, for real and for counting memory. */
#include "stage_test.h"

#include "atoll/packed.h"

static int64_t eval(const atoll_sym *e, int64_t B, int64_t S) {
  const char *const names[] = {"B", "S"};
  const int64_t values[] = {B, S};
  int64_t v = -1;
  assert_non_null(e);
  OK(atoll_sym_eval_int(e, names, values, 2, &v));
  return v;
}

static int64_t line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Panels, both ways, of a GPT-2's matrices but its positions; of the token embedding where it makes logits. */
static int64_t panels(const atoll_model *m, int first, int last) {
  int64_t sum = 0;
  for (int l = first; l < last; l++) {
    int index[16], n = atoll_model_layer_params(m, l, index, 16);
    for (int i = 0; i < n && l > 0; i++) {
      const atoll_model_param *q = atoll_model_param_at(m, index[i]);
      for (int back = 0; q->ndim == 2 && back < 2; back++)
        sum += 64 + (q->shape[back] + 31) / 32 * 32 * q->shape[!back] * 4;
    }
  }
  return sum;
}

static void one(const atoll_model *m, int first, int last, int64_t B, int64_t S, atoll_policy policy, int slots,
                int partials, int real, int packed) {
  int bf16 = atoll_model_config(m)->dtype == ATOLL_BF16;
  const atoll_model_params *c = atoll_model_config(m);
  atoll_policy policies[64];
  for (int i = 0; i < 64; i++)
    policies[i] = policy;
  atoll_stage_params p = {.first = first,
                          .last = last,
                          .policy = policies,
                          .B = B,
                          .S = S,
                          .slots = slots,
                          .partials = partials,
                          .train = 1,
                          .packed = packed};
  int64_t said[ATOLL_MEM_CATEGORIES];
  OK(atoll_stage_bytes(m, &p, said));

  atoll_syms *pool = NULL;
  OK(atoll_syms_create(&pool));
  int64_t saved = 0, carried = 0, work = 0, params = 0, tied = 0, boundary = (bf16 ? 2 : 4) * B * S * c->width;
  for (int l = first; l < last; l++) {
    saved += eval(atoll_layer_saved_bytes(m, pool, l, policy, 1), B, S);
    int halves = first > 0 && l == first; /* of backward: somebody waits for the gradient of the stage's input */
    if (halves)
      carried = eval(atoll_layer_carried_bytes(m, pool, l, policy, 1), B, S);
    int64_t v = eval((halves ? atoll_layer_half_bytes : atoll_layer_work_bytes)(m, pool, l, policy, 1), B, S);
    work = v > work ? v : work;
    int index[16], n = atoll_model_layer_params(m, l, index, 16);
    for (int i = 0; i < n; i++) {
      const atoll_model_param *q = atoll_model_param_at(m, index[i]);
      if (q->tied_layer == l && q->layer >= first)
        tied += line(4 * elements(q));
      else
        params += line(4 * elements(q));
    }
  }
  if (first > 0 && atoll_layer_keeps_input(m, first, policy))
    saved -= line(boundary);
  int between = last - first - 1 < 2 ? last - first - 1 : 2;
  assert_int_equal(said[ATOLL_MEM_PARAMETER], (bf16 ? params / 2 : params) + (packed ? panels(m, first, last) : 0));
  assert_int_equal(said[ATOLL_MEM_OPTIMIZER], (bf16 ? 3 : 2) * params);
  assert_int_equal(said[ATOLL_MEM_GRADIENT], partials * (params + tied));
  assert_int_equal(said[ATOLL_MEM_ACTIVATION], slots * saved);
  assert_int_equal(said[ATOLL_MEM_WORKSPACE], carried + work + between * boundary);
  atoll_syms_destroy(&pool);

  for (int counting = !real; counting < 2; counting++) {
    rig r = rig_open(m, "cpu", bf16 ? "cpu:bf16" : "cpu", 2, counting);
    atoll_stage *s = NULL;
    if (packed && !atoll_packed_serves(r.e.kernels, NULL)) {
      assert_int_equal(atoll_stage_create(m, &p, &r.e, &s), ATOLL_UNSUPPORTED);
      rig_close(&r);
      continue;
    }
    OK(atoll_stage_create(m, &p, &r.e, &s));
    for (int k = 0; k < ATOLL_MEM_CATEGORIES; k++)
      assert_int_equal(atoll_mem_current(r.e.mem, k), said[k]);
    assert_int_equal(4 * atoll_stage_param_elements(s), params);
    assert_int_equal(4 * atoll_stage_grad_elements(s), params + tied);
    atoll_stage_destroy(&s);
    for (int k = 0; k < ATOLL_MEM_CATEGORIES; k++)
      assert_int_equal(atoll_mem_peak(r.e.mem, k), said[k]);
    rig_close(&r);
  }
}

static void small(void **state) {
  (void)state;
  const int64_t shapes[][2] = {{1, 1}, {1, 17}, {3, 31}, {4, 40}};
  for (int kind = 0; kind < 4; kind++) {
    atoll_model *m = model_in(kind / 2 ? ATOLL_BF16 : ATOLL_F32, 3, 36, 3, 67, 40, kind % 2 * 0.1);
    const int cuts[][2] = {{0, 5}, {0, 1}, {1, 2}, {1, 5}, {2, 4}, {4, 5}, {0, 3}};
    for (int k = 0; k < 7; k++)
      for (int s = 0; s < 4; s++)
        for (int p = 0; p < ATOLL_POLICIES; p++)
          one(m, cuts[k][0], cuts[k][1], shapes[s][0], shapes[s][1], (atoll_policy)p, 1 + s, 1 + p, 1, p % 2);
    atoll_model_destroy(&m);
  }
}

/* Sizes that no test machine holds. */
static void huge(void **state) {
  (void)state;
  const char *const presets[] = {"gpt2-124m", "gpt2-1.5b"};
  for (int i = 0; i < 4; i++) {
    atoll_model_params mp;
    atoll_model_params_init(&mp);
    strcpy(mp.preset, presets[i / 2]);
    mp.dtype = i % 2 ? ATOLL_BF16 : ATOLL_F32;
    atoll_model *m = NULL;
    OK(atoll_model_create(&mp, &m));
    one(m, 0, atoll_model_layers(m), 64, 1024, ATOLL_POLICY_EXACT20, 8, 4, 0, 1);
    one(m, 3, atoll_model_layers(m), 63, 1001, ATOLL_POLICY_EAGER_FLASH, 3, 2, 0, 0);
    atoll_model_destroy(&m);
  }
}

/* Values that a block keeps per element of B S H, further bytes per element, S x S values per head in halves of an
 * element, further bytes of these, and
 * products that it repeats in twelfths of its own; of attention in halves. Statistics come on top: of norms two numbers
 * a row, or one where what they normalised is kept; a number per row and head of attention where that or its
 * log-sum-exp is kept; the row's scale of 8 bits. */
static void policies(void **state) {
  (void)state;
  enum { A = 4 };
  static const struct {
    atoll_policy policy;
    int values, bytes, square_halves, square_bytes, twelfths, attention, statistics;
  } table[] = {
      {ATOLL_POLICY_EAGER_FLASH, 16, 0, 0, 0, 0, 0, 4 + A}, {ATOLL_POLICY_EXACT20, 10, 0, 0, 0, 0, 0, 4 + A},
      {ATOLL_POLICY_EXACT18, 9, 0, 0, 0, 1, 0, 4 + A},      {ATOLL_POLICY_EXACT12, 6, 0, 0, 0, 4, 0, 4 + A},
      {ATOLL_POLICY_EXACT10, 5, 0, 0, 0, 5, 0, 4 + A},      {ATOLL_POLICY_EXACT6, 3, 0, 0, 0, 7, 0, 4 + A},
      {ATOLL_POLICY_EXACT4, 2, 0, 0, 0, 8, 0, 4 + A},       {ATOLL_POLICY_EXACT2, 1, 0, 0, 0, 8, 2, 4},
      {ATOLL_POLICY_EAGER, 16, 2, 4, 1, 0, 0, 4 + A},       {ATOLL_POLICY_TEMPO, 9, 0, 1, 0, 0, 1, 2 + A},
      {ATOLL_POLICY_TEMPO_FLASH, 10, 0, 0, 0, 0, 0, 2 + A}, {ATOLL_POLICY_EXACT16_LOSSY, 6, 4, 0, 0, 0, 0, 5 + A},
  };
  assert_int_equal(sizeof table / sizeof *table, ATOLL_POLICIES);
  const atoll_dtype dtype[] = {ATOLL_F32, ATOLL_BF16};
  for (size_t k = 0; k < 2 * sizeof table / sizeof *table; k++) {
    size_t i = k / 2;
    int64_t element = (int64_t)atoll_dtype_bytes(dtype[k % 2]);
    atoll_model *m = model_in(dtype[k % 2], 2, 64, A, 67, 64, 0.1);
    atoll_syms *pool = NULL;
    OK(atoll_syms_create(&pool));
    int64_t B = 4, S = 16, R = B * S, H = 64;
    assert_int_equal(eval(atoll_layer_saved_bytes(m, pool, 1, table[i].policy, 1), B, S),
                     (element * table[i].values + table[i].bytes) * R * H +
                         (element * table[i].square_halves / 2 + table[i].square_bytes) * A * R * S +
                         4 * table[i].statistics * R);
    assert_int_equal(eval(atoll_layer_recompute_flops(m, pool, 1, table[i].policy), B, S),
                     table[i].twelfths * 2 * R * H * H + table[i].attention * R * S * H);
    assert_int_equal(eval(atoll_layer_recompute_flops(m, pool, 0, table[i].policy), B, S), 0);
    atoll_syms_destroy(&pool);
    atoll_model_destroy(&m);
  }
}

/* Scratch of a block, in values of B S H and those of a row's heads: what each policy cannot do without. Backward of
 * the last product needs its result's gradient and its input or that one's gradient, four values wide; attention the
 * gradients of o, queries, keys and values, and where nobody kept o that as well; bert also one along the stream, which
 * gpt2 has where the block's input's will be. */
static void scratch(void **state) {
  (void)state;
  static const struct {
    atoll_policy policy;
    int gpt2, bert;
  } table[] = {{ATOLL_POLICY_EAGER, 5, 6}, {ATOLL_POLICY_EXACT20, 5, 6}, {ATOLL_POLICY_TEMPO, 5, 6}};
  for (size_t i = 0; i < 2 * sizeof table / sizeof *table; i++) {
    atoll_model_params p;
    atoll_model_params_init(&p);
    strcpy(p.preset, i % 2 ? "bert-base" : "gpt2-124m");
    p.dropout = 0.1;
    atoll_model *m = NULL;
    OK(atoll_model_create(&p, &m));
    atoll_syms *pool = NULL;
    OK(atoll_syms_create(&pool));
    int64_t B = 4, S = 16, R = B * S, values = i % 2 ? table[i / 2].bert : table[i / 2].gpt2;
    assert_int_equal(eval(atoll_layer_work_bytes(m, pool, 2, table[i / 2].policy, 1), B, S),
                     4 * R * (values * atoll_model_config(m)->width + atoll_model_config(m)->heads));
    atoll_syms_destroy(&pool);
    atoll_model_destroy(&m);
  }
}

/* A stage whose memory runs out at any allocation leaves nothing behind. */
static void no_memory(void **state) {
  (void)state;
  atoll_model *m = model_of(2, 32, 2, 67, 16, 0);
  rig r = rig_open(m, "cpu", "cpu", 1, 0);
  atoll_stage_params p = {.first = 0, .last = 4, .B = 2, .S = 16, .slots = 2, .partials = 2, .train = 1};
  int n = 0;
  for (;; n++) {
    atoll_stage *s = NULL;
    atoll_mem_fail_at(r.e.mem, n + 1);
    atoll_err err = atoll_stage_create(m, &p, &r.e, &s);
    if (err == ATOLL_OK) {
      atoll_mem_fail_at(r.e.mem, 0);
      atoll_stage_destroy(&s);
      break;
    }
    assert_int_equal(err, ATOLL_NOMEM);
    assert_null(s);
    assert_int_equal(atoll_mem_current_total(r.e.mem), 0);
  }
  assert_in_range(n, 8, 20);
  rig_close(&r);
  atoll_model_destroy(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(small), cmocka_unit_test(huge), cmocka_unit_test(policies),
                                     cmocka_unit_test(scratch), cmocka_unit_test(no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

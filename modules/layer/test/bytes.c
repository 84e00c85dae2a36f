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

/* Panels, both ways, of the matrices of blocks, and of the one that makes logits: the head's first. */
static int64_t panels(const atoll_model *m, int first, int last) {
  int64_t sum = 0;
  for (int l = first; l < last; l++) {
    int index[16], n = atoll_model_layer_params(m, l, index, 16);
    for (int i = 0; i < (l == atoll_model_layers(m) - 1 ? 1 : n) && l > 0; i++) {
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

static const struct kind {
  const char *name;
  int family, kv_heads, untied;
} kinds[] = {{"gpt2", ATOLL_FAMILY_GPT2, 0, 0},
             {"llama", ATOLL_FAMILY_LLAMA, 4, 0},
             {"llama with few key heads and a head of its own", ATOLL_FAMILY_LLAMA, 2, 1},
             {"bert", ATOLL_FAMILY_BERT, 0, 0},
             {"roberta", ATOLL_FAMILY_ROBERTA, 0, 0}};
#define KINDS (sizeof kinds / sizeof *kinds)

static atoll_model *model_like(const struct kind *k, atoll_dtype dtype, int64_t layers, int64_t width, double dropout) {
  atoll_model_params p;
  atoll_model *m = NULL;
  atoll_model_params_init(&p);
  p.family = k->family, p.dtype = dtype, p.untied = k->untied, p.dropout = dropout;
  p.layers = layers, p.width = width, p.heads = 4, p.kv_heads = k->kv_heads, p.vocab = 67, p.context = 64;
  OK(atoll_model_create(&p, &m));
  return m;
}

/* The other families, whole and cut, in sizes that leave lines of 64 bytes unfilled. */
static void families(void **state) {
  (void)state;
  const int64_t shapes[][2] = {{1, 1}, {3, 31}};
  const int cuts[][2] = {{0, 5}, {0, 2}, {1, 4}, {2, 5}, {4, 5}};
  for (size_t k = 0; k < 2 * KINDS; k++)
    for (int d = 0; d < 2; d++) {
      atoll_model *m = model_like(&kinds[k / 2], k % 2 ? ATOLL_BF16 : ATOLL_F32, 3, 40, d * 0.1);
      for (int c = 0; c < 5; c++)
        for (int s = 0; s < 2; s++)
          for (int p = 0; p < ATOLL_POLICIES; p++)
            one(m, cuts[c][0], cuts[c][1], shapes[s][0], shapes[s][1], (atoll_policy)p, 1 + s, 1 + p % 3, 1, p % 2);
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

/* What each policy keeps of a block, by the roles that layer.h names, so that it is one table for every family: the
 * block's input, norms, qkv, o, r1, the MLP before its nonlinearity (f, of Llama f and u) and after it. */
enum { X = 1, NORMS = 2, QKV = 4, O = 8, R1 = 16, F = 32, G = 64 };

static const struct {
  atoll_policy policy;
  int keeps;                         /* as elements */
  int hats, root, codes, square, f8; /* what stands in for others */
  int again;                         /* products that are repeated: QKV, R1 (the one behind attention), F */
  int attention;                     /* and of attention's two */
} policy_table[] = {
    {ATOLL_POLICY_EAGER_FLASH, X | NORMS | QKV | O | R1 | F | G, 0, 0, 0, 0, 0, 0, 0},
    {ATOLL_POLICY_EXACT20, X | QKV | O | R1 | F, 0, 0, 0, 0, 0, 0, 0},
    {ATOLL_POLICY_EXACT18, X | QKV | O | F, 0, 0, 0, 0, 0, R1, 0},
    {ATOLL_POLICY_EXACT12, X | QKV | O | R1, 0, 0, 0, 0, 0, F, 0},
    {ATOLL_POLICY_EXACT10, X | QKV | O, 0, 0, 0, 0, 0, R1 | F, 0},
    {ATOLL_POLICY_EXACT6, X | O | R1, 0, 0, 0, 0, 0, QKV | F, 0},
    {ATOLL_POLICY_EXACT4, X | O, 0, 0, 0, 0, 0, QKV | R1 | F, 0},
    {ATOLL_POLICY_EXACT2, X, 0, 0, 0, 0, 0, QKV | R1 | F, 2},
    {ATOLL_POLICY_EAGER, X | NORMS | QKV | O | R1 | F | G, 0, 0, 0, 1, 0, 0, 0},
    {ATOLL_POLICY_TEMPO, QKV, 1, 1, 1, 0, 0, 0, 1},
    {ATOLL_POLICY_TEMPO_FLASH, QKV | O, 1, 1, 0, 0, 0, 0, 0},
    {ATOLL_POLICY_EXACT16_LOSSY, X | QKV | O | R1, 0, 0, 0, 0, 1, 0, 0},
};

/* Bytes of a block with dropout, on B S = R rows: elements, masks of a byte, and numbers of four bytes per row, which
 * are two of a LayerNorm, one of an RMSNorm or of a norm that keeps what it normalised, one per head of attention where
 * its result or codes are kept, and the scale of a row in 8 bits. Eager's S x S values are probabilities, these
 * dropped, and the mask; codes have half an element's bits. */
static int64_t kept_of(const atoll_model *m, int i, int64_t R, int64_t S) {
  const atoll_model_params *c = atoll_model_config(m);
  const int keeps = policy_table[i].keeps, llama = c->family == ATOLL_FAMILY_LLAMA;
  int64_t H = c->width, A = c->heads, mlp = (1 + llama) * c->ffn, values = 0, bytes = 0, numbers, square = 0;
  int64_t element = (int64_t)atoll_dtype_bytes((atoll_dtype)c->dtype);
  values += !!(keeps & X) * H + !!(keeps & NORMS) * 2 * H + !!(keeps & QKV) * (H + 2 * c->kv_heads * H / A);
  values += !!(keeps & O) * H + !!(keeps & R1) * H + !!(keeps & F) * mlp + !!(keeps & G) * c->ffn;
  values += policy_table[i].hats * 2 * H + policy_table[i].root * mlp;
  numbers = policy_table[i].hats || llama ? 2 : 4;
  numbers += keeps & O || policy_table[i].codes ? A : 0;
  if (policy_table[i].f8)
    bytes += mlp, numbers += 1 + llama;
  if (policy_table[i].square)
    bytes += 2 * H, square = (2 * element + 1) * A;
  if (policy_table[i].codes)
    square = element / 2 * A;
  return (values * element + bytes + 4 * numbers + square * S) * R;
}

static int64_t again_of(const atoll_model *m, int i, int64_t R, int64_t S) {
  const atoll_model_params *c = atoll_model_config(m);
  const int again = policy_table[i].again, llama = c->family == ATOLL_FAMILY_LLAMA;
  int64_t H = c->width, columns = 0, half = c->family == ATOLL_FAMILY_GPT2 || llama ? 2 : 1;
  columns += !!(again & QKV) * (H + 2 * c->kv_heads * H / c->heads) + !!(again & R1) * H;
  columns += !!(again & F) * (1 + llama) * c->ffn;
  return 2 * R * H * columns + policy_table[i].attention * 2 * R * S * H / half;
}

static void policies(void **state) {
  (void)state;
  assert_int_equal(sizeof policy_table / sizeof *policy_table, ATOLL_POLICIES);
  for (size_t k = 0; k < 2 * KINDS; k++) {
    atoll_model *m = model_like(&kinds[k / 2], k % 2 ? ATOLL_BF16 : ATOLL_F32, 2, 64, 0.1);
    atoll_syms *pool = NULL;
    OK(atoll_syms_create(&pool));
    int64_t B = 4, S = 16, R = B * S; /* of whole lines */
    for (int i = 0; i < ATOLL_POLICIES; i++) {
      atoll_policy p = policy_table[i].policy;
      for (int layer = 1; layer <= 2; layer++) {
        int64_t saved = eval(atoll_layer_saved_bytes(m, pool, layer, p, 1), B, S);
        int64_t again = eval(atoll_layer_recompute_flops(m, pool, layer, p), B, S);
        if (saved != kept_of(m, i, R, S) || again != again_of(m, i, R, S))
          fail_msg("%s, %s, layer %d: keeps %lld, stated %lld; repeats %lld FLOP, stated %lld", kinds[k / 2].name,
                   atoll_policy_name(p), layer, (long long)saved, (long long)kept_of(m, i, R, S), (long long)again,
                   (long long)again_of(m, i, R, S));
      }
      assert_int_equal(eval(atoll_layer_recompute_flops(m, pool, 0, p), B, S), 0);
    }
    atoll_syms_destroy(&pool);
    atoll_model_destroy(&m);
  }
}

/* GPT-2's block in 32 and 16 bit, as the table of layer.h has it: bytes per element of B S H, and of A B S^2. */
static void names(void **state) {
  (void)state;
  static const struct {
    atoll_policy policy;
    int bsh[2], square[2];
  } table[] = {{ATOLL_POLICY_EAGER, {66, 34}, {9, 5}},       {ATOLL_POLICY_TEMPO, {36, 18}, {2, 1}},
               {ATOLL_POLICY_TEMPO_FLASH, {40, 20}, {0, 0}}, {ATOLL_POLICY_EXACT20, {40, 20}, {0, 0}},
               {ATOLL_POLICY_EXACT18, {36, 18}, {0, 0}},     {ATOLL_POLICY_EXACT16_LOSSY, {28, 16}, {0, 0}},
               {ATOLL_POLICY_EXACT12, {24, 12}, {0, 0}},     {ATOLL_POLICY_EXACT10, {20, 10}, {0, 0}},
               {ATOLL_POLICY_EXACT6, {12, 6}, {0, 0}},       {ATOLL_POLICY_EXACT4, {8, 4}, {0, 0}},
               {ATOLL_POLICY_EXACT2, {4, 2}, {0, 0}},        {ATOLL_POLICY_EAGER_FLASH, {64, 32}, {0, 0}}};
  assert_int_equal(sizeof table / sizeof *table, ATOLL_POLICIES);
  for (int d = 0; d < 2; d++) {
    atoll_model *m = model_like(&kinds[0], d ? ATOLL_BF16 : ATOLL_F32, 2, 4096, 0.1);
    atoll_syms *pool = NULL;
    OK(atoll_syms_create(&pool));
    int64_t B = 4, S = 64, H = 4096, A = 4;
    for (int i = 0; i < ATOLL_POLICIES; i++) {
      int64_t saved = eval(atoll_layer_saved_bytes(m, pool, 1, table[i].policy, 1), B, S);
      int64_t stated = table[i].bsh[d] * B * S * H + table[i].square[d] * A * B * S * S;
      assert_in_range(saved - stated, 0, B * S * 4 * (5 + A)); /* statistics on top */
    }
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(small),    cmocka_unit_test(families), cmocka_unit_test(huge),
                                     cmocka_unit_test(policies), cmocka_unit_test(names),    cmocka_unit_test(scratch),
                                     cmocka_unit_test(no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Generating with a cache against the forward without one, and what it promises of texts, bytes and limits. */
#include "atoll/decode.h"

#include "stage_test.h"

typedef struct text_rig {
  rig r;
  atoll_decode *d;
} text_rig;

/* Parameter i of the model, the same in every holder; nothing is 0 or 1. */
static void fill(const atoll_model *m, int i, const atoll_tensor *t) {
  const atoll_rng_key key = {.seed = 42, .sample = (uint64_t)i, .site = ATOLL_RNG_TEST};
  float *v = t->data;
  size_t n = (size_t)atoll_tensor_local_count(t);
  atoll_rng_fill_normal(&key, 0, n, 0.2f, v);
  for (size_t k = 0; k < n; k++)
    v[k] += atoll_model_param_at(m, i)->init == ATOLL_INIT_ONE;
}

static text_rig open_texts(const atoll_model *m, const char *device, const char *kernels, int threads, int64_t slots,
                           int64_t room, int64_t prompt, int64_t window) {
  text_rig t = {.r = rig_open(m, device, kernels, threads, 0)};
  atoll_decode_params p = {slots, room, prompt, window};
  OK(atoll_decode_create(m, &p, &t.r.e, &t.d));
  for (int i = 0; i < atoll_model_params_count(m); i++)
    fill(m, i, &atoll_decode_weights(t.d)[i]);
  return t;
}

static void close_texts(text_rig *t) {
  atoll_decode_destroy(&t->d);
  rig_close(&t->r);
}

static void make_text(int64_t n, int64_t vocab, int seed, int32_t *tokens) {
  for (int64_t i = 0; i < n; i++)
    tokens[i] = (int32_t)((i * i * 5 + 11 * i + 3 * seed) % vocab);
}

static int64_t largest(const float *x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 0; i < n; i++)
    best = x[i] > x[best] ? i : best;
  return best;
}

/* Logits are sums of rounded products in another order: a few units in the last place of the largest. */
static void same_logits(const float *got, const float *want, int64_t n, int64_t position) {
  double scale = 0;
  for (int64_t i = 0; i < n; i++)
    scale = fabs((double)want[i]) > scale ? fabs((double)want[i]) : scale;
  for (int64_t i = 0; i < n; i++)
    if (!(fabs((double)got[i] - want[i]) <= 1e-5 * scale))
      fail_msg("position %lld, logit %lld: %.9g with the cache, %.9g without", (long long)position, (long long)i,
               got[i], want[i]);
  assert_int_equal(largest(got, n), largest(want, n));
}

enum { VOCAB = 67, CONTEXT = 41 };

typedef struct kind {
  const char *name;
  int family;
  int64_t heads, kv_heads;
  int untied;
  double rope_factor; /* of positions beyond a quarter of those of the context */
} kind;

static const kind kinds[] = {{"gpt2", ATOLL_FAMILY_GPT2, 3, 0, 0, 0},
                             {"llama", ATOLL_FAMILY_LLAMA, 6, 6, 0, 0},
                             {"llama with few key heads", ATOLL_FAMILY_LLAMA, 6, 2, 0, 0},
                             {"llama 3's: scaled positions", ATOLL_FAMILY_LLAMA, 3, 3, 0, 8},
                             {"and a head of its own", ATOLL_FAMILY_LLAMA, 3, 1, 1, 8}};
#define KINDS (sizeof kinds / sizeof *kinds)

static atoll_model *model_like(const kind *k) {
  atoll_model_params p;
  atoll_model *m = NULL;
  atoll_model_params_init(&p);
  p.family = k->family, p.layers = 3, p.width = 36, p.heads = k->heads, p.kv_heads = k->kv_heads, p.vocab = VOCAB;
  p.context = CONTEXT, p.untied = k->untied;
  if (k->rope_factor > 0)
    p.rope_factor = k->rope_factor, p.rope_low = 1, p.rope_high = 4, p.rope_context = 10;
  OK(atoll_model_create(&p, &m));
  return m;
}

static void cached(const atoll_model *m, const char *device, const char *kernels, int64_t prompt, int64_t window) {
  text_rig t = open_texts(m, device, kernels, 1, 2, CONTEXT, CONTEXT, window);
  int32_t tokens[CONTEXT];
  const float *got, *want;
  float kept[VOCAB];
  make_text(CONTEXT, VOCAB, 1, tokens);
  OK(atoll_decode_prompt(t.d, 0, tokens, prompt, &got));
  for (int64_t n = prompt; n < CONTEXT; n++) {
    int slot = 0;
    OK(atoll_decode_next(t.d, &slot, &tokens[n], 1, &got));
    assert_int_equal(atoll_decode_length(t.d, 0), n + 1);
    if (n % 3 && n < CONTEXT - 2)
      continue;
    memcpy(kept, got, sizeof kept);
    OK(atoll_decode_prompt(t.d, 1, tokens, n + 1, &want));
    same_logits(kept, want, VOCAB, n);
  }
  close_texts(&t);
}

static void a_cache_changes_no_logits(void **state) {
  (void)state;
  for (size_t k = 0; k < KINDS; k++) {
    atoll_model *m = model_like(&kinds[k]);
    cached(m, "cpu", "cpu", 1, 0);
    cached(m, "cpu", "cpu", 17, 0);
    cached(m, "cpu", "ref", 6, 0);
    cached(m, "async", "cpu", CONTEXT - 1, 0);
    cached(m, "cpu", "cpu", 17, 6); /* prompts longer than the window, and texts that grow beyond it */
    cached(m, "cpu", "ref", 3, 6);
    atoll_model_destroy(&m);
  }
}

/* The loss that training's forward has at each position is that of these logits. */
static void logits_have_the_loss_of_training(void **state) {
  (void)state;
  for (size_t k = 0; k < KINDS; k++) {
    atoll_model *m = model_like(&kinds[k]);
    text_rig t = open_texts(m, "cpu", "cpu", 1, 1, CONTEXT, CONTEXT, 0);
    atoll_stage *s = NULL;
    atoll_stage_params p = {.first = 0, .last = atoll_model_layers(m), .B = 1, .S = CONTEXT};
    atoll_call call = {.B = 1, .S = CONTEXT - 1};
    int32_t tokens[CONTEXT];
    float loss[CONTEXT];
    make_text(CONTEXT, VOCAB, 1, tokens);
    OK(atoll_stage_create(m, &p, &t.r.e, &s));
    const atoll_tensor *tensor;
    const int *index;
    int tensors;
    OK(atoll_stage_tensors(s, ATOLL_STAGE_PARAM, &tensor, &index, &tensors));
    for (int i = 0; i < tensors; i++)
      fill(m, index[i], &tensor[i]);
    OK(atoll_stage_forward(s, 0, &call, NULL, tokens, tokens + 1, NULL, loss));
    OK(atoll_queue_sync(t.r.e.compute));
    for (int64_t n = 1; n < CONTEXT; n += 3) {
      const float *logits;
      double sum = 0;
      OK(atoll_decode_prompt(t.d, 0, tokens, n, &logits));
      for (int v = 0; v < VOCAB; v++)
        sum += exp((double)logits[v]);
      double want = log(sum) - logits[tokens[n]];
      if (fabs(want - loss[n - 1]) > 2e-5)
        fail_msg("%s: loss of position %lld is %.9g in training, %.9g of these logits", kinds[k].name, (long long)n,
                 loss[n - 1], want);
    }
    atoll_stage_destroy(&s);
    close_texts(&t);
    atoll_model_destroy(&m);
  }
}

/* Logits at the end of a text in a model of this kind, whose parameters are those of all models. */
static void logits_of(const kind *k, float out[VOCAB]) {
  atoll_model *m = model_like(k);
  text_rig t = open_texts(m, "cpu", "cpu", 1, 1, CONTEXT, CONTEXT, 0);
  int32_t tokens[CONTEXT];
  const float *logits;
  make_text(CONTEXT, VOCAB, 1, tokens);
  OK(atoll_decode_prompt(t.d, 0, tokens, CONTEXT, &logits));
  memcpy(out, logits, VOCAB * sizeof *out);
  close_texts(&t);
  atoll_model_destroy(&m);
}

/* Or the tests above could not tell whether anything reads them. */
static void scaled_positions_and_an_own_head_matter(void **state) {
  (void)state;
  for (size_t k = 0; k < KINDS; k++) {
    float logits[2][VOCAB];
    for (int i = 0; i < 2 && (kinds[k].untied || kinds[k].rope_factor > 0); i++) {
      kind other = kinds[k];
      if (i == 0)
        other.rope_factor = 0;
      else
        other.untied = 0;
      double most = 0;
      logits_of(&kinds[k], logits[0]);
      logits_of(&other, logits[1]);
      for (int v = 0; v < VOCAB; v++)
        most = fmax(most, fabs((double)logits[1][v] - logits[0][v]));
      assert_true((i == 0 || kinds[k].untied) == (most > 1e-2));
    }
  }
}

/* Bits of a text: alone on one thread, and in another slot beside others that come and go, on two. */
static void texts_do_not_depend_on_their_neighbours(void **state) {
  (void)state;
  enum { TEXTS = 3, STEPS = 12 };
  const int64_t prompt[TEXTS] = {5, 1, 19};
  for (size_t k = 0; k < KINDS; k++) {
    atoll_model *m = model_like(&kinds[k]);
    text_rig alone = open_texts(m, "cpu", "cpu", 1, 1, CONTEXT, 19, 0);
    text_rig beside = open_texts(m, "cpu", "cpu", 2, TEXTS + 1, CONTEXT, 19, 0);
    static float bits[TEXTS][STEPS + 1][VOCAB];
    int32_t tokens[TEXTS][CONTEXT];
    const float *logits;
    for (int i = 0; i < TEXTS; i++) {
      int slot = 0;
      make_text(CONTEXT, VOCAB, i, tokens[i]);
      OK(atoll_decode_prompt(alone.d, 0, tokens[i], prompt[i], &logits));
      memcpy(bits[i][0], logits, sizeof bits[i][0]);
      for (int j = 0; j < STEPS; j++) {
        OK(atoll_decode_next(alone.d, &slot, &tokens[i][prompt[i] + j], 1, &logits));
        memcpy(bits[i][j + 1], logits, sizeof bits[i][0]);
      }
    }
    for (int i = 0; i < TEXTS; i++) {
      OK(atoll_decode_prompt(beside.d, TEXTS - i, tokens[i], prompt[i], &logits));
      assert_memory_equal(logits, bits[i][0], sizeof bits[i][0]);
    }
    for (int j = 0; j < STEPS; j++) {
      int slot[TEXTS], n = 0, which[TEXTS];
      int32_t token[TEXTS];
      for (int i = j < 4 ? 0 : 1; i < TEXTS; i++) { /* the first one ends early */
        which[n] = i;
        slot[n] = TEXTS - i;
        token[n++] = tokens[i][prompt[i] + j];
      }
      OK(atoll_decode_next(beside.d, slot, token, n, &logits));
      for (int i = 0; i < n; i++)
        assert_memory_equal(logits + i * VOCAB, bits[which[i]][j + 1], sizeof bits[0][0]);
    }
    close_texts(&alone);
    close_texts(&beside);
    atoll_model_destroy(&m);
  }
}

static void bytes_are_exact(void **state) {
  (void)state;
  const atoll_decode_params sizes[] = {{1, 1, 1, 0}, {3, CONTEXT, 17, 0}, {7, 23, 2, 5}, {40, 9, 9, 0}};
  for (size_t k = 0; k < KINDS; k++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      atoll_model *m = model_like(&kinds[k]);
      const atoll_model_params *c = atoll_model_config(m);
      text_rig t = open_texts(m, "cpu", "cpu", 1, sizes[i].slots, sizes[i].room, sizes[i].prompt, sizes[i].window);
      int64_t bytes[ATOLL_MEM_CATEGORIES], cache;
      OK(atoll_decode_bytes(m, &sizes[i], t.r.e.kernels, bytes));
      for (int j = 0; j < ATOLL_MEM_CATEGORIES; j++)
        assert_int_equal(bytes[j], atoll_mem_current(t.r.e.mem, (atoll_mem_category)j));
      cache = 2 * c->layers * sizes[i].slots * sizes[i].room * c->kv_heads * (c->width / c->heads) * 4;
      assert_int_equal(bytes[ATOLL_MEM_ACTIVATION], cache);
      assert_int_equal(atoll_decode_cache_bytes(m, &sizes[i], ATOLL_F32), cache);
      close_texts(&t);
      atoll_model_destroy(&m);
    }
}

/* A failing allocation leaves nothing behind, whichever it is. */
static void no_memory_leaves_nothing_behind(void **state) {
  (void)state;
  atoll_model *m = model_like(&kinds[0]);
  atoll_decode_params p = {2, CONTEXT, 5, 0};
  atoll_decode *d = NULL;
  int failures = 0;
  for (int nth = 1; !d; nth++) {
    rig r = rig_open(m, "cpu", "cpu", 1, 0);
    atoll_mem_fail_at(r.e.mem, nth);
    atoll_err err = atoll_decode_create(m, &p, &r.e, &d);
    if (err == ATOLL_OK) {
      atoll_decode_destroy(&d);
      rig_close(&r);
      break;
    }
    assert_int_equal(err, ATOLL_NOMEM);
    assert_null(d);
    failures++;
    rig_close(&r); /* finds nothing held */
  }
  assert_true(failures > 5);
  atoll_model_destroy(&m);
}

#define REFUSES(code, text, call)                                                                                      \
  do {                                                                                                                 \
    assert_int_equal((call), (code));                                                                                  \
    if (!strstr(atoll_err_message(), (text)))                                                                          \
      fail_msg("'%s' does not say '%s'", atoll_err_message(), (text));                                                 \
  } while (0)

static void refuses_what_does_not_fit(void **state) {
  (void)state;
  atoll_model *m = model_like(&kinds[0]), *bert = NULL;
  atoll_model_params b;
  atoll_decode *d = NULL;
  const float *logits = NULL;
  int32_t tokens[CONTEXT];
  int slot[2] = {0, 0};
  make_text(CONTEXT, VOCAB, 0, tokens);
  text_rig t = open_texts(m, "cpu", "cpu", 1, 2, 8, 7, 0);
  REFUSES(ATOLL_USAGE, "the model's context is 41",
          atoll_decode_create(m, &(atoll_decode_params){1, CONTEXT + 1, 5, 0}, &t.r.e, &d));
  REFUSES(ATOLL_USAGE, "a prompt is part of its text",
          atoll_decode_create(m, &(atoll_decode_params){1, 5, 6, 0}, &t.r.e, &d));
  REFUSES(ATOLL_USAGE, "0 texts", atoll_decode_create(m, &(atoll_decode_params){0, 5, 5, 0}, &t.r.e, &d));
  atoll_model_params_init(&b);
  snprintf(b.preset, sizeof b.preset, "bert-tiny");
  OK(atoll_model_create(&b, &bert));
  REFUSES(ATOLL_UNSUPPORTED, "family bert", atoll_decode_create(bert, &(atoll_decode_params){1, 5, 5, 0}, &t.r.e, &d));
  assert_null(d);
  REFUSES(ATOLL_USAGE, "a prompt of 0 tokens", atoll_decode_prompt(t.d, 0, tokens, 0, &logits));
  REFUSES(ATOLL_USAGE, "expected 1 to 7", atoll_decode_prompt(t.d, 0, tokens, 8, &logits));
  REFUSES(ATOLL_USAGE, "text 2 of 2", atoll_decode_prompt(t.d, 2, tokens, 3, &logits));
  REFUSES(ATOLL_USAGE, "no prompt", atoll_decode_next(t.d, slot, tokens, 1, &logits));
  tokens[1] = VOCAB;
  REFUSES(ATOLL_CORRUPT, "67", atoll_decode_prompt(t.d, 0, tokens, 3, &logits));
  REFUSES(ATOLL_USAGE, "no prompt", atoll_decode_next(t.d, slot, tokens, 1, &logits));
  tokens[1] = 1;
  OK(atoll_decode_prompt(t.d, 0, tokens, 7, &logits));
  REFUSES(ATOLL_USAGE, "twice", atoll_decode_next(t.d, slot, tokens, 2, &logits));
  OK(atoll_decode_next(t.d, slot, tokens, 1, &logits));
  REFUSES(ATOLL_USAGE, "text 0 is full: 8 tokens", atoll_decode_next(t.d, slot, tokens, 1, &logits));
  close_texts(&t);
  atoll_model_destroy(&m);
  atoll_model_destroy(&bert);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cache_changes_no_logits),
      cmocka_unit_test(logits_have_the_loss_of_training),
      cmocka_unit_test(scaled_positions_and_an_own_head_matter),
      cmocka_unit_test(texts_do_not_depend_on_their_neighbours),
      cmocka_unit_test(bytes_are_exact),
      cmocka_unit_test(no_memory_leaves_nothing_behind),
      cmocka_unit_test(refuses_what_does_not_fit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

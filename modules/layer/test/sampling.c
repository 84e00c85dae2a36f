/* The sampler against a plain reference: sort everything, cut, draw. */
#include "unit_check.h"

#include <math.h>

#include "atoll/decode.h"
#include "atoll/rng.h"

#define V     503
#define DRAWS 400

typedef struct pair {
  double logit;
  int id;
} pair;

static int falling(const void *a, const void *b) {
  const pair *x = a, *y = b;
  return x->logit < y->logit ? 1 : x->logit > y->logit ? -1 : x->id - y->id;
}

/* Sorted tokens that may be drawn, with their probabilities; how many. */
static int reference(const float *logits, const atoll_sampling *p, pair *sorted) {
  double sum = 0, kept = 0;
  int n = V, k = 0;
  for (int v = 0; v < V; v++)
    sorted[v] = (pair){logits[v], v};
  qsort(sorted, V, sizeof *sorted, falling);
  double top = sorted[0].logit;
  if (p->top_k && p->top_k < n)
    n = (int)p->top_k;
  for (int i = 0; i < n; i++)
    sum += exp((sorted[i].logit - top) / p->temperature);
  for (; k < n && (p->top_p == 1 || kept < p->top_p * sum); k++)
    kept += exp((sorted[k].logit - top) / p->temperature);
  for (int i = 0; i < k; i++)
    sorted[i].logit = exp((sorted[i].logit - top) / p->temperature) / kept;
  return k;
}

static void make_logits(float *logits, int with_ties) {
  const atoll_rng_key key = {.seed = 3, .site = ATOLL_RNG_TEST};
  atoll_rng_fill_normal(&key, 0, V, 2, logits);
  for (int v = 0; with_ties && v < V; v++)
    logits[v] = roundf(logits[v]);
}

static void follows(atoll_sampling p, int with_ties) {
  float logits[V];
  pair sorted[V];
  atoll_sampler *s = NULL;
  make_logits(logits, with_ties);
  assert_int_equal(atoll_sampler_create(V, &p, &s), ATOLL_OK);
  int n = reference(logits, &p, sorted), seen = 0, hit[V] = {0};
  for (uint64_t position = 0; position < DRAWS; position++) {
    atoll_choice got;
    assert_int_equal(atoll_sampler_choose(s, logits, 7, position, &got), ATOLL_OK);
    int at = 0;
    while (at < n && sorted[at].id != got.id)
      at++;
    if (at == n)
      fail_msg("token %d is not among the %d that may be drawn", got.id, n);
    seen += !hit[got.id]++;
  }
  /* The expected share of the largest and of the upper half, within four standard deviations. */
  double q = sorted[0].logit;
  if (fabs(hit[sorted[0].id] - q * DRAWS) > 4 * sqrt(q * (1 - q) * DRAWS) + 1e-9)
    fail_msg("the largest came %d times of %d, its probability is %g", hit[sorted[0].id], DRAWS, q);
  double half = 0, count = 0;
  for (int i = 0; i < n && half < 0.5; i++) {
    half += sorted[i].logit;
    count += hit[sorted[i].id];
  }
  if (fabs(count - half * DRAWS) > 4 * sqrt(half * (1 - half) * DRAWS) + 1e-9)
    fail_msg("tokens of probability %g came %g times of %d", half, count, DRAWS);
  if (n > 1 && seen < 2)
    fail_msg("one token alone was drawn of %d", n);
  atoll_sampler_destroy(&s);
}

static void draws_follow_the_reference(void **state) {
  (void)state;
  for (int ties = 0; ties < 2; ties++) {
    follows((atoll_sampling){.temperature = 1, .top_p = 1, .seed = 1}, ties);
    follows((atoll_sampling){.temperature = 0.7, .top_p = 1, .seed = 1}, ties);
    follows((atoll_sampling){.temperature = 1.5, .top_k = 40, .top_p = 1, .seed = 2}, ties);
    follows((atoll_sampling){.temperature = 1, .top_k = 1, .top_p = 1, .seed = 2}, ties);
    follows((atoll_sampling){.temperature = 1, .top_k = 2 * V, .top_p = 1, .seed = 2}, ties);
    follows((atoll_sampling){.temperature = 1, .top_p = 0.9, .seed = 3}, ties);
    follows((atoll_sampling){.temperature = 3, .top_p = 0.999, .seed = 3}, ties);
    follows((atoll_sampling){.temperature = 1, .top_p = 1e-6, .seed = 3}, ties);
    follows((atoll_sampling){.temperature = 0.8, .top_k = 50, .top_p = 0.5, .seed = 4}, ties);
  }
}

/* Every token that may be drawn is, and none else: the cut is where the reference has it. */
static void the_cut_is_exact(void **state) {
  (void)state;
  float logits[V];
  pair sorted[V];
  make_logits(logits, 1);
  const atoll_sampling cuts[] = {{.temperature = 50, .top_k = 12, .top_p = 1},
                                 {.temperature = 50, .top_p = 0.02},
                                 {.temperature = 50, .top_k = 30, .top_p = 0.4}};
  for (size_t k = 0; k < 3; k++) {
    atoll_sampler *s = NULL;
    int n = reference(logits, &cuts[k], sorted), hit[V] = {0};
    assert_int_equal(atoll_sampler_create(V, &cuts[k], &s), ATOLL_OK);
    for (uint64_t position = 0; position < 2000; position++) {
      atoll_choice got;
      assert_int_equal(atoll_sampler_choose(s, logits, 0, position, &got), ATOLL_OK);
      hit[got.id]++;
    }
    for (int i = 0; i < V; i++)
      if (!hit[sorted[i].id] != (i >= n))
        fail_msg("cut %zu: token %d of rank %d came %d times, %d may be drawn", k, sorted[i].id, i, hit[sorted[i].id],
                 n);
    atoll_sampler_destroy(&s);
  }
}

static void temperature_0_takes_the_largest_and_tells_its_probability(void **state) {
  (void)state;
  float logits[V];
  double sum = 0;
  atoll_sampler *s = NULL;
  atoll_choice got;
  for (int v = 0; v < V; v++) {
    logits[v] = v == 100 || v == 200 ? 3 : 0;
    sum += exp(logits[v]);
  }
  assert_int_equal(atoll_sampler_create(V, &(atoll_sampling){.top_p = 1}, &s), ATOLL_OK);
  assert_int_equal(atoll_sampler_choose(s, logits, 0, 0, &got), ATOLL_OK);
  assert_int_equal(got.id, 100);
  assert_true(fabs(got.probability - exp(3) / sum) < 1e-12);
  atoll_sampler_destroy(&s);
}

/* What is drawn depends on seed, prompt and position, and on nothing that was drawn before. */
static void draws_are_keyed(void **state) {
  (void)state;
  float logits[V];
  atoll_sampler *a = NULL, *b = NULL;
  int other_prompt = 0, other_seed = 0;
  make_logits(logits, 0);
  assert_int_equal(atoll_sampler_create(V, &(atoll_sampling){.temperature = 1, .top_p = 0.99, .seed = 5}, &a),
                   ATOLL_OK);
  assert_int_equal(atoll_sampler_create(V, &(atoll_sampling){.temperature = 1, .top_p = 0.99, .seed = 6}, &b),
                   ATOLL_OK);
  int32_t forward[20];
  for (uint64_t i = 0; i < 20; i++) {
    atoll_choice c, d, e;
    assert_int_equal(atoll_sampler_choose(a, logits, 3, i, &c), ATOLL_OK);
    assert_int_equal(atoll_sampler_choose(a, logits, 4, i, &d), ATOLL_OK);
    assert_int_equal(atoll_sampler_choose(b, logits, 3, i, &e), ATOLL_OK);
    forward[i] = c.id;
    other_prompt += c.id != d.id;
    other_seed += c.id != e.id;
  }
  for (uint64_t i = 20; i-- > 0;) {
    atoll_choice c;
    assert_int_equal(atoll_sampler_choose(a, logits, 3, i, &c), ATOLL_OK);
    assert_int_equal(c.id, forward[i]);
  }
  assert_true(other_prompt > 10 && other_seed > 10);
  atoll_sampler_destroy(&a);
  atoll_sampler_destroy(&b);
}

static void refuses_what_makes_no_sense(void **state) {
  (void)state;
  atoll_sampler *s = NULL;
  atoll_choice c;
  assert_int_equal(atoll_sampler_create(V, &(atoll_sampling){.temperature = -1, .top_p = 1}, &s), ATOLL_USAGE);
  assert_int_equal(atoll_sampler_create(V, &(atoll_sampling){.temperature = NAN, .top_p = 1}, &s), ATOLL_USAGE);
  assert_int_equal(atoll_sampler_create(V, &(atoll_sampling){.top_k = -1, .top_p = 1}, &s), ATOLL_USAGE);
  assert_int_equal(atoll_sampler_create(V, &(atoll_sampling){.top_p = 0}, &s), ATOLL_USAGE);
  assert_int_equal(atoll_sampler_create(V, &(atoll_sampling){.top_p = 1.01}, &s), ATOLL_USAGE);
  assert_null(s);
  float logits[3] = {1, NAN, 2}, nothing[3] = {-INFINITY, -INFINITY, -INFINITY}, masked[3] = {-INFINITY, 0, -INFINITY};
  for (int temperature = 0; temperature < 2; temperature++) {
    assert_int_equal(atoll_sampler_create(3, &(atoll_sampling){.temperature = temperature, .top_p = 1}, &s), ATOLL_OK);
    assert_int_equal(atoll_sampler_choose(s, logits, 0, 0, &c), ATOLL_NONFINITE);
    assert_int_equal(atoll_sampler_choose(s, nothing, 0, 0, &c), ATOLL_NONFINITE);
    for (uint64_t position = 0; position < 50; position++) {
      assert_int_equal(atoll_sampler_choose(s, masked, 0, position, &c), ATOLL_OK);
      assert_int_equal(c.id, 1);
      assert_true(c.probability == 1);
    }
    atoll_sampler_destroy(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(draws_follow_the_reference),
      cmocka_unit_test(the_cut_is_exact),
      cmocka_unit_test(temperature_0_takes_the_largest_and_tells_its_probability),
      cmocka_unit_test(draws_are_keyed),
      cmocka_unit_test(refuses_what_makes_no_sense),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

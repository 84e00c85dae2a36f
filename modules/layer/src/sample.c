/* Drawing the next token.
 *
 * Only the kept part of the vocabulary is sorted: the candidates form a heap, and the largest is taken from it until
 * top_k or top_p is reached. What was taken lies behind the heap, so the kept ones stand in order, the largest last. */
#include "atoll/decode.h"

#include <math.h>
#include <stdlib.h>

#include "atoll/rng.h"

typedef struct candidate {
  float logit;
  int32_t id;
} candidate;

struct atoll_sampler {
  int64_t vocab;
  atoll_sampling p;
  candidate *candidate; /* [vocab] */
};

atoll_err atoll_sampler_create(int64_t vocab, const atoll_sampling *p, atoll_sampler **out) {
  if (vocab < 1 || vocab > INT32_MAX)
    return atoll_fail(ATOLL_USAGE, "sampler of %lld tokens", (long long)vocab);
  if (!(p->temperature >= 0) || isinf(p->temperature))
    return atoll_fail(ATOLL_USAGE, "temperature is %g, expected 0 or more", p->temperature);
  if (p->top_k < 0)
    return atoll_fail(ATOLL_USAGE, "top_k is %lld, expected 0 (all) or more", (long long)p->top_k);
  if (!(p->top_p > 0 && p->top_p <= 1))
    return atoll_fail(ATOLL_USAGE, "top_p is %g, expected more than 0, at most 1", p->top_p);
  atoll_sampler *s = calloc(1, sizeof *s);
  candidate *c = calloc((size_t)vocab, sizeof *c);
  if (!s || !c) {
    free(s);
    free(c);
    return atoll_fail(ATOLL_NOMEM, "sampler of %lld tokens", (long long)vocab);
  }
  *s = (atoll_sampler){vocab, *p, c};
  *out = s;
  return ATOLL_OK;
}

void atoll_sampler_destroy(atoll_sampler **sampler) {
  if (!sampler || !*sampler)
    return;
  free((*sampler)->candidate);
  free(*sampler);
  *sampler = NULL;
}

static int before(const candidate *a, const candidate *b) {
  return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sink(candidate *c, int64_t n, int64_t i) {
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    child += child + 1 < n && before(&c[child + 1], &c[child]);
    if (!before(&c[child], &c[i]))
      return;
    candidate t = c[i];
    c[i] = c[child];
    c[child] = t;
  }
}

/* Moves the first of the heap c[0..n) to c[n - 1]. */
static const candidate *take(candidate *c, int64_t n) {
  candidate first = c[0];
  c[0] = c[n - 1];
  c[n - 1] = first;
  sink(c, n - 1, 0);
  return &c[n - 1];
}

static double weight(const atoll_sampler *s, float logit, float largest) {
  return exp(((double)logit - largest) / s->p.temperature);
}

/* The kept candidates become the last of the array; returns how many, and their summed weight. */
static int64_t keep(atoll_sampler *s, const float *logits, float largest, double *sum) {
  candidate *c = s->candidate;
  int64_t V = s->vocab, most = s->p.top_k && s->p.top_k < V ? s->p.top_k : V, kept = 0;
  double total = 0;
  for (int64_t v = 0; v < V; v++) {
    c[v] = (candidate){logits[v], (int32_t)v};
    total += weight(s, logits[v], largest);
  }
  *sum = total;
  if (most == V && s->p.top_p == 1)
    return V;
  for (int64_t i = V / 2; i-- > 0;)
    sink(c, V, i);
  if (most < V) {
    total = 0;
    for (int64_t i = 0; i < most; i++)
      total += weight(s, take(c, V - i)->logit, largest);
  }
  *sum = 0;
  for (double enough = s->p.top_p * total; kept < most && (s->p.top_p == 1 || *sum < enough); kept++)
    *sum += weight(s, most < V ? c[V - 1 - kept].logit : take(c, V - kept)->logit, largest);
  return kept;
}

static int32_t draw(atoll_sampler *s, const float *logits, float largest, uint64_t prompt, uint64_t position) {
  const atoll_rng_key key = {.seed = s->p.seed, .step = position, .sample = prompt, .site = ATOLL_RNG_SAMPLE};
  double sum;
  int64_t kept = keep(s, logits, largest, &sum);
  double rest = atoll_rng_bits(&key, 0) * 0x1p-32 * sum;
  const candidate *c = s->candidate, *last = NULL;
  for (int64_t i = 0; i < kept && rest >= 0; i++) {
    const candidate *at = &c[s->vocab - 1 - i];
    double w = weight(s, at->logit, largest);
    if (w > 0)
      last = at; /* rounding may leave a rest behind the last one */
    rest -= w;
  }
  return last->id;
}

atoll_err atoll_sampler_choose(atoll_sampler *s, const float *logits, uint64_t prompt, uint64_t position,
                               atoll_choice *choice) {
  int64_t best = 0;
  double sum = 0;
  for (int64_t v = 0; v < s->vocab; v++) {
    if (isnan(logits[v]) || logits[v] == INFINITY)
      return atoll_fail(ATOLL_NONFINITE, "the logit of token %lld is %g", (long long)v, logits[v]);
    best = logits[v] > logits[best] ? v : best;
  }
  if (logits[best] == -INFINITY)
    return atoll_fail(ATOLL_NONFINITE, "the logits of all %lld tokens are -infinity", (long long)s->vocab);
  for (int64_t v = 0; v < s->vocab; v++)
    sum += exp((double)logits[v] - logits[best]);
  int32_t id = s->p.temperature > 0 ? draw(s, logits, logits[best], prompt, position) : (int32_t)best;
  *choice = (atoll_choice){id, exp((double)logits[id] - logits[best]) / sum};
  return ATOLL_OK;
}

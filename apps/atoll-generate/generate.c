/* The loop: a prompt into each free slot, then a token for every text under way, until all are done. */
#include <stdlib.h>

#include "atoll/clock.h"
#include "generate.h"

typedef struct loop {
  atoll_decode *d;
  atoll_sampler *sampler;
  const generate_params *p;
  int32_t end;
  int64_t vocab;
  texts *t;
  counts *c;
  int64_t slots, *text_of; /* [slots], -1: free */
  int *slot;               /* of the call under way */
  int32_t *token;
} loop;

/* The token that follows; 1 when the text is finished. */
static atoll_err choose(loop *l, int64_t i, const float *logits, int *finished) {
  text *x = &l->t->text[i];
  atoll_choice choice;
  ATOLL_TRY(atoll_sampler_choose(l->sampler, logits, (uint64_t)i, (uint64_t)x->n, &choice));
  x->ended = l->p->stop && choice.id == l->end;
  if (!x->ended) {
    x->probability[x->n - x->prompt] = choice.probability;
    x->token[x->n++] = choice.id;
  }
  *finished = x->ended || x->n - x->prompt >= l->p->tokens;
  return ATOLL_OK;
}

static atoll_err begin(loop *l, int64_t slot, int64_t i) {
  const text *x = &l->t->text[i];
  const float *logits;
  int finished;
  double t = atoll_clock_now();
  ATOLL_TRY(atoll_decode_prompt(l->d, (int)slot, x->token, x->prompt, &logits));
  l->c->prompt_seconds += atoll_clock_now() - t;
  l->c->prompt_tokens += x->prompt;
  ATOLL_TRY(choose(l, i, logits, &finished));
  l->text_of[slot] = finished ? -1 : i;
  return ATOLL_OK;
}

/* One token more for every text under way. */
static atoll_err advance(loop *l, int64_t *n) {
  const float *logits;
  *n = 0;
  for (int64_t s = 0; s < l->slots; s++)
    if (l->text_of[s] >= 0) {
      const text *x = &l->t->text[l->text_of[s]];
      l->slot[*n] = (int)s;
      l->token[(*n)++] = x->token[x->n - 1];
    }
  if (*n == 0)
    return ATOLL_OK;
  double t = atoll_clock_now();
  l->c->bytes_read += atoll_decode_bytes_read(l->d, l->slot, *n);
  ATOLL_TRY(atoll_decode_next(l->d, l->slot, l->token, *n, &logits));
  l->c->seconds += atoll_clock_now() - t;
  l->c->tokens += *n;
  for (int64_t k = 0; k < *n; k++) {
    int finished;
    ATOLL_TRY(choose(l, l->text_of[l->slot[k]], logits + k * l->vocab, &finished));
    if (finished)
      l->text_of[l->slot[k]] = -1;
  }
  return ATOLL_OK;
}

static atoll_err run(loop *l, int64_t first, int64_t step) {
  int64_t next = first, active = 0;
  do {
    for (int64_t s = 0; s < l->slots && next < l->t->n; s++)
      while (l->text_of[s] < 0 && next < l->t->n) {
        ATOLL_TRY(begin(l, s, next));
        next += step;
      }
    ATOLL_TRY(advance(l, &active));
  } while (active > 0 || next < l->t->n);
  return ATOLL_OK;
}

atoll_err generate_texts(atoll_decode *d, const atoll_model *m, const generate_params *p, int32_t end, int64_t first,
                         int64_t step, texts *t, counts *c) {
  const atoll_sampling sampling = {p->temperature, p->top_k, p->top_p, (uint64_t)p->seed};
  loop l = {.d = d, .p = p, .end = end, .t = t, .c = c, .slots = p->batch, .vocab = atoll_model_config(m)->vocab};
  if (p->tokens == 0)
    return ATOLL_OK;
  atoll_err err = atoll_sampler_create(l.vocab, &sampling, &l.sampler);
  l.text_of = malloc((size_t)l.slots * sizeof *l.text_of);
  l.slot = malloc((size_t)l.slots * sizeof *l.slot);
  l.token = malloc((size_t)l.slots * sizeof *l.token);
  if (err == ATOLL_OK && (!l.text_of || !l.slot || !l.token))
    err = atoll_fail(ATOLL_NOMEM, "lists of %lld texts", (long long)l.slots);
  for (int64_t s = 0; s < l.slots && err == ATOLL_OK; s++)
    l.text_of[s] = -1;
  if (err == ATOLL_OK)
    err = run(&l, first, step);
  free(l.text_of);
  free(l.slot);
  free(l.token);
  atoll_sampler_destroy(&l.sampler);
  return err;
}

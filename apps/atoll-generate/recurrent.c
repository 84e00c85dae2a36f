/* The recurrent engine: texts advance together through one program, which asks for each token. Prompts are positions
 * like others, whose tokens are known.
 *
 * Where ranks make texts together, each has all logits, but their last bits may differ between unlike processors and
 * ways to compute: with one choice between near equals the ranks' texts would part for ever. So rank 0 chooses. */
#include <mpi.h>
#include <omp.h>
#include <stdlib.h>

#include "atoll/clock.h"
#include "generate.h"

typedef struct batch {
  const generate_params *p;
  atoll_sampler *sampler;
  int32_t end;
  texts *t;
  counts *c;
  int64_t first, step, n; /* texts first, first + step ... of all; the program has room for p->batch */
  int64_t left;           /* not finished */
  int64_t longest;        /* prompt */
  int together, rank;     /* together: bool; rank in MPI_COMM_WORLD, all of which make each text then */
  double began, prompted; /* when; 0: prompts are not over */
} batch;

static int is_finished(const batch *b, const text *x) { return x->ended || x->n - x->prompt >= b->p->tokens; }

static atoll_err choose_together(const batch *b, const float *logits, uint64_t k, uint64_t at, atoll_choice *choice) {
  struct {
    atoll_choice choice;
    atoll_err err;
  } told = {{0, 0}, ATOLL_OK};
  if (b->rank == 0)
    told.err = atoll_sampler_choose(b->sampler, logits, k, at, &told.choice);
  /* The program's sums go by a communicator of their own. */
  if (MPI_Bcast(&told, (int)sizeof told, MPI_BYTE, 0, MPI_COMM_WORLD) != MPI_SUCCESS)
    return atoll_fail(ATOLL_PEER_LOST, "a token that rank 0 has chosen does not arrive");
  if (told.err != ATOLL_OK)
    return b->rank == 0 ? told.err : atoll_fail(told.err, "rank 0 could not choose a token");
  *choice = told.choice;
  return ATOLL_OK;
}

static atoll_err choose(void *user, int64_t k, int64_t position, const float *logits, int32_t *token) {
  batch *b = user;
  atoll_choice choice;
  int64_t i = b->first + k * b->step;
  text *x = k < b->n ? &b->t->text[i] : NULL;
  *token = 0;
  if (!b->prompted && position >= b->longest)
    b->prompted = atoll_clock_now();
  if (!x || (position >= x->prompt && is_finished(b, x)))
    return ATOLL_OK;
  if (position < x->prompt) {
    *token = x->token[position];
    return ATOLL_OK;
  }
  ATOLL_TRY(b->together ? choose_together(b, logits, (uint64_t)i, (uint64_t)x->n, &choice)
                        : atoll_sampler_choose(b->sampler, logits, (uint64_t)i, (uint64_t)x->n, &choice));
  *token = choice.id;
  x->ended = b->p->stop && choice.id == b->end;
  if (!x->ended) {
    x->probability[x->n - x->prompt] = choice.probability;
    x->token[x->n++] = choice.id;
  }
  b->left -= is_finished(b, x);
  /* Positions beyond would be computed for nothing. */
  return b->left > 0 ? ATOLL_OK : atoll_fail(ATOLL_STOPPED, "all texts are finished");
}

atoll_err recurrent_create(const atoll_model *m, const generate_params *p, const atoll_comm *comm, recurrent *r) {
  const atoll_rec_model_params params = {.texts = p->batch,
                                         .window = p->window,
                                         .block = p->block,
                                         .comm = comm,
                                         .device = p->device,
                                         .memory = *p->offload ? p->memory : 0,
                                         .offload = p->offload,
                                         .threads = p->threads ? (int)p->threads : omp_get_max_threads()};
  r->batch = calloc(1, sizeof *r->batch);
  if (!r->batch)
    return atoll_fail(ATOLL_NOMEM, "batch of texts");
  r->model = m;
  r->together = comm != NULL;
  return atoll_rec_model_create(m, &params, choose, r->batch, &r->program);
}

void recurrent_destroy(recurrent *r) {
  atoll_rec_model_destroy(&r->program);
  free(r->batch);
  r->batch = NULL;
}

atoll_err recurrent_bytes(const recurrent *r, const generate_params *p, int64_t longest,
                          int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  int64_t values, weights;
  ATOLL_TRY(atoll_rec_model_bytes(r->program, longest + p->tokens, &values, &weights));
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    bytes[c] = 0;
  bytes[ATOLL_MEM_PARAMETER] = weights;
  bytes[ATOLL_MEM_ACTIVATION] = values;
  if (p->memory && weights + values > p->memory)
    return atoll_fail(
        ATOLL_NOMEM,
        "generate.memory %lld bytes: weights (parameter) take %lld, values of %lld tokens (activation) %lld",
        (long long)p->memory, (long long)weights, (long long)(longest + p->tokens), (long long)values);
  return ATOLL_OK;
}

/* What bounds the speed: weights once a position, and what each text attends to. */
static int64_t bytes_read(const recurrent *r, const generate_params *p, int64_t from, int64_t to) {
  const atoll_model_params *c = atoll_model_config(r->model);
  int64_t keys = 0, each = 2 * c->layers * c->kv_heads * (c->width / c->heads);
  for (int64_t t = from; t < to; t++)
    keys += p->window && t + 1 > p->window ? p->window : t + 1;
  return (int64_t)sizeof(float) * ((to - from) * atoll_model_matmul_elements(r->model) + keys * each * p->batch);
}

static atoll_err run_batch(const recurrent *r, batch *b) {
  int64_t length = 0, made = 0;
  b->left = b->n;
  b->longest = 0;
  for (int64_t k = 0; k < b->n; k++) {
    const text *x = &b->t->text[b->first + k * b->step];
    b->longest = x->prompt > b->longest ? x->prompt : b->longest;
    length = x->prompt + b->p->tokens > length ? x->prompt + b->p->tokens : length;
  }
  b->prompted = 0;
  b->began = atoll_clock_now();
  atoll_err err = atoll_rec_model_run(r->program, length);
  double now = atoll_clock_now();
  if (err == ATOLL_STOPPED && b->left == 0) {
    atoll_err_clear();
    err = ATOLL_OK;
  }
  ATOLL_TRY(err);
  int64_t last = 0;
  for (int64_t k = 0; k < b->n; k++) {
    const text *x = &b->t->text[b->first + k * b->step];
    b->c->prompt_tokens += x->prompt;
    made += x->n - x->prompt;
    last = x->n > last ? x->n : last;
  }
  b->c->tokens += made;
  b->c->prompt_seconds += (b->prompted ? b->prompted : now) - b->began;
  b->c->seconds += b->prompted ? now - b->prompted : 0;
  b->c->bytes_read += bytes_read(r, b->p, b->longest, last);
  return ATOLL_OK;
}

atoll_err recurrent_texts(const recurrent *r, const generate_params *p, int32_t end, int64_t first, int64_t step,
                          texts *t, counts *c) {
  const atoll_sampling sampling = {p->temperature, p->top_k, p->top_p, (uint64_t)p->seed};
  batch *b = r->batch;
  if (p->tokens == 0)
    return ATOLL_OK;
  *b = (batch){.p = p, .end = end, .t = t, .c = c, .step = step, .together = r->together};
  MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
  atoll_err err = atoll_sampler_create(atoll_model_config(r->model)->vocab, &sampling, &b->sampler);
  for (int64_t i = first; i < t->n && err == ATOLL_OK; i += p->batch * step) {
    int64_t left = (t->n - i + step - 1) / step;
    b->first = i;
    b->n = left < p->batch ? left : p->batch;
    err = run_batch(r, b);
  }
  atoll_sampler_destroy(&b->sampler);
  return err;
}

/* Samples with masked words: what bert and roberta are trained on.
 *
 *   bert     [cls] A [sep] B [sep]: B follows A in the text, or (half of the time) comes from another window
 *   roberta  [cls] A [sep]
 *
 * Some samples are short and padded. Of the words of A and B a share is chosen for prediction, a fixed number per
 * length (never none); of ten chosen ones about eight show the mask, one a random word and one itself (Devlin et al.
 * 2019, appendix A). All of it is drawn from (seed, window, variant), where the variant is the epoch when masks are
 * dynamic (Liu et al. 2019) and the epoch modulo the copies of the corpus when they are static. */
#include <string.h>

#include "atoll/rng.h"
#include "data_impl.h"

/* Elements of a sample's random numbers. */
enum { DRAW_SHORT, DRAW_LENGTH, DRAW_SPLIT, DRAW_NEXT, DRAW_OTHER, DRAW_ORDER, DRAW_CHOSEN = 16 };
/* Per chosen word. */
enum { CHOSEN_KIND, CHOSEN_WORD, CHOSEN_DRAWS };

typedef struct sample_form {
  atoll_rng_key key;
  int64_t words, first; /* of A and B together, and of A */
  int64_t other;        /* window that B comes from */
  int64_t chosen;
} sample_form;

static int64_t specials(const atoll_data *d) { return d->task == ATOLL_DATA_PAIRS ? 3 : 2; }

/* A number of [0, n). */
static int64_t below(const sample_form *f, uint64_t element, int64_t n) {
  return (int64_t)(((uint64_t)atoll_rng_bits(&f->key, element) * (uint64_t)n) >> 32);
}

static int64_t chosen_of(const atoll_data *d, int64_t words) {
  int64_t chosen = (int64_t)(d->mask_share * (double)words + 0.5);
  return chosen < 1 ? 1 : chosen;
}

static sample_form form_of(const atoll_data *d, uint64_t seed, int64_t w, uint64_t epoch) {
  uint64_t variant = d->dynamic ? epoch : epoch % (uint64_t)d->copies;
  sample_form f = {.key = {.seed = seed, .step = variant, .sample = (uint64_t)w, .site = ATOLL_RNG_DATA}};
  int64_t pairs = d->task == ATOLL_DATA_PAIRS, most = d->seq - specials(d), least = pairs ? 2 : 1;
  f.words = most;
  if ((double)atoll_rng_uniform(&f.key, DRAW_SHORT) < d->short_share)
    f.words = least + below(&f, DRAW_LENGTH, most - least + 1);
  f.first = pairs ? 1 + below(&f, DRAW_SPLIT, f.words - 1) : f.words;
  f.other = w;
  if (pairs && d->windows > 1 && below(&f, DRAW_NEXT, 2))
    f.other = (w + 1 + below(&f, DRAW_OTHER, d->windows - 1)) % d->windows;
  f.chosen = chosen_of(d, f.words);
  return f;
}

int64_t masked_most_targets(const atoll_data *d) { return chosen_of(d, d->seq - specials(d)); }

/* Where word i of a sample stands. */
static int64_t place_of(const sample_form *f, int64_t i) { return i < f->first ? 1 + i : 2 + i; }

static atoll_err fill_tokens(const atoll_data *d, const sample_form *f, int64_t w, int32_t *tokens, int32_t *targets) {
  int64_t end = f->words + specials(d);
  for (int64_t i = 0; i < d->seq; i++) {
    tokens[i] = d->pad;
    targets[i] = -1;
  }
  tokens[0] = d->cls;
  ATOLL_TRY(data_tokens(d, w, 0, f->first, tokens + 1));
  tokens[f->first + 1] = tokens[end - 1] = d->sep;
  if (f->words > f->first)
    ATOLL_TRY(data_tokens(d, f->other, f->first, f->words - f->first, tokens + f->first + 2));
  uint64_t order = (uint64_t)atoll_rng_bits(&f->key, DRAW_ORDER) << 32 | atoll_rng_bits(&f->key, DRAW_ORDER + 1);
  for (int64_t k = 0; k < f->chosen; k++) {
    int64_t at = place_of(f, (int64_t)atoll_rng_permute(order, 0, (uint64_t)f->words, (uint64_t)k));
    uint64_t draw = DRAW_CHOSEN + (uint64_t)k * CHOSEN_DRAWS;
    int64_t kind = below(f, draw + CHOSEN_KIND, 10);
    targets[at] = tokens[at];
    if (kind < 8)
      tokens[at] = d->mask;
    else if (kind == 8)
      tokens[at] = (int32_t)below(f, draw + CHOSEN_WORD, d->vocab);
  }
  return ATOLL_OK;
}

atoll_err masked_window(const atoll_data *d, uint64_t seed, int64_t w, uint64_t epoch, const atoll_batch *to,
                        int64_t b) {
  sample_form f = form_of(d, seed, w, epoch);
  if (to->tokens)
    ATOLL_TRY(fill_tokens(d, &f, w, to->tokens + b * d->seq, to->targets + b * d->seq));
  for (int64_t i = 0; to->types && i < d->seq; i++)
    to->types[b * d->seq + i] = d->task == ATOLL_DATA_PAIRS && i >= f.first + 2 && i < f.words + 3;
  if (to->lengths)
    to->lengths[b] = (int32_t)(f.words + specials(d));
  if (to->next)
    to->next[b] = d->task == ATOLL_DATA_PAIRS ? f.other != w : -1;
  return ATOLL_OK;
}

int64_t masked_targets(const atoll_data *d, uint64_t seed, int64_t w, uint64_t epoch) {
  return form_of(d, seed, w, epoch).chosen;
}

/* ---- options ---- */

static atoll_err settle_id(const char *key, int64_t asked, int64_t usual, int64_t vocab, int32_t *out) {
  int64_t id = asked >= 0 ? asked : usual;
  if (id >= vocab)
    return atoll_fail(ATOLL_USAGE, "data.%s is %lld, the vocabulary ends at %lld: model.vocab of %lld has room for it",
                      key, (long long)id, (long long)vocab - 1, (long long)id + 1);
  *out = (int32_t)id;
  return ATOLL_OK;
}

/* Ids that the published vocabularies have; behind the 256 bytes of plain text. */
static atoll_err settle_ids(atoll_data *d, const atoll_data_params *p) {
  static const int64_t usual[3][4] = {{256, 257, 258, 259}, {0, 101, 102, 103}, {1, 0, 2, 50264}};
  const int64_t *id = usual[d->file[0].width == 1 ? 0 : d->task == ATOLL_DATA_PAIRS ? 1 : 2];
  ATOLL_TRY(settle_id("pad_id", p->pad_id, id[0], d->vocab, &d->pad));
  ATOLL_TRY(settle_id("cls_id", p->cls_id, id[1], d->vocab, &d->cls));
  ATOLL_TRY(settle_id("sep_id", p->sep_id, id[2], d->vocab, &d->sep));
  ATOLL_TRY(settle_id("mask_id", p->mask_id, id[3], d->vocab, &d->mask));
  if (d->mask == d->pad || d->mask == d->cls || d->mask == d->sep)
    return atoll_fail(ATOLL_USAGE, "data.mask_id is %d, as one of data.pad_id, cls_id and sep_id is: expected another",
                      (int)d->mask);
  return ATOLL_OK;
}

atoll_err atoll_data_mask(atoll_data *d, const atoll_data_params *p, atoll_data_task task) {
  d->task = task;
  int64_t least = specials(d) + (task == ATOLL_DATA_PAIRS ? 2 : 1);
  if (d->seq < least)
    return atoll_fail(ATOLL_USAGE, "train.seq is %lld, a sample with masked words has at least %lld tokens",
                      (long long)d->seq, (long long)least);
  d->dynamic = p->masking == DATA_MASKING_AUTO ? task == ATOLL_DATA_SENTENCES : p->masking == DATA_MASKING_DYNAMIC;
  d->copies = p->mask_copies;
  d->mask_share = p->mask_share;
  d->short_share = p->short_share >= 0 ? p->short_share : task == ATOLL_DATA_PAIRS ? 0.1 : 0;
  ATOLL_TRY(settle_ids(d, p));
  return data_count_windows(d, "masked", d->seq - specials(d), d->seq - specials(d));
}

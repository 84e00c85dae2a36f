/** Token sources: raw text as bytes (vocabulary 256) and llm.c `.bin` token files, memory-mapped, any size.
 *
 *  Sample order is a pure function of (seed, step, sample): it does not depend on ranks, plans, restarts or read-ahead,
 * so the position of a run is its step. A source is cut into windows of seq + 1 tokens that start every seq tokens;
 * each epoch visits every window once, in an order drawn from the seed and the epoch. */
#ifndef ATOLL_DATA_H
#define ATOLL_DATA_H

#include <stdint.h>

#include "atoll/digest.h"
#include "atoll/err.h"
#include "atoll/opt.h"

ATOLL_BEGIN_C

/** Options `data.*`. Relative paths are relative to the job file's folder, then to the working directory. */
typedef struct atoll_data_params {
  char train[ATOLL_OPT_STRING_MAX];      /* file, or several separated by ',' */
  char validation[ATOLL_OPT_STRING_MAX]; /* "" = the last validation_share of train */
  int format; /* enum auto|bytes|llmc: auto = llmc when the magic says so, or the name ends in .bin (then the magic is
                 required) */
  double validation_share; /* 0.1 */
  /* Of tasks with masked words. */
  int masking;                             /* enum auto|static|dynamic: auto = static for pairs */
  double mask_share;                       /* of the words, that are predicted: 0.15 */
  int64_t mask_copies;                     /* static: different maskings of the corpus: 10 */
  double short_share;                      /* of the samples, that are short and padded; -1 = 0.1 for pairs, else 0 */
  int64_t pad_id, cls_id, sep_id, mask_id; /* -1 = 256 to 259 for bytes, else as in the published vocabularies */
} atoll_data_params;
extern ATOLL_API const atoll_opt_table atoll_data_options;
ATOLL_API void atoll_data_params_init(atoll_data_params *p);

typedef struct atoll_data atoll_data; /* one split */

/** What is made of a window. */
typedef enum atoll_data_task {
  ATOLL_DATA_NEXT,     /* each token is followed by its target (gpt2, llama) */
  ATOLL_DATA_PAIRS,    /* two pieces of text, masked words, and whether the second follows the first (bert) */
  ATOLL_DATA_SENTENCES /* one piece of text, masked words (roberta) */
} atoll_data_task;

/** Where samples go. Of tokens and targets both or none is wanted; other members may be NULL, and are only written for
 * masked tasks. */
typedef struct atoll_batch {
  int32_t *tokens, *targets; /* [B, seq]; target -1: no loss */
  int32_t *types;            /* [B, seq]: 1 in the second piece */
  int32_t *lengths;          /* [B] tokens that are not padding */
  int32_t *next;             /* [B]: 0 the second piece follows the first, 1 it does not, -1 there is none */
} atoll_batch;

/** Local. Opens train (and validation when wanted; either may be NULL). `folder` resolves relative paths. vocab: ids at
 * or beyond it are refused when met. NOINPUT missing; CORRUPT wrong magic, version, truncated (names file, bytes found,
 * bytes expected); USAGE too short for one window. */
ATOLL_API atoll_err atoll_data_open(const atoll_data_params *params, const char *folder, int64_t seq, int64_t vocab,
                                    atoll_data **train, atoll_data **validation);
/** Makes samples those of a masked task, which are a pure function of (seed, step, sample) too. USAGE: seq too small,
 * ids beyond the vocabulary. */
ATOLL_API atoll_err atoll_data_mask(atoll_data *data, const atoll_data_params *params, atoll_data_task task);
ATOLL_API void atoll_data_close(atoll_data **data);
ATOLL_API int64_t atoll_data_tokens(const atoll_data *data);
ATOLL_API int64_t atoll_data_windows(const atoll_data *data);
/** Of the content's identity: names' base parts, sizes, format and a digest of the bytes' first and last MiB. */
ATOLL_API atoll_digest atoll_data_digest(const atoll_data *data);

/** Samples first .. first + B - 1 of a step with `global_batch` samples, shuffled by seed. CORRUPT names file and
 * position of a token beyond the vocabulary, or a file that was cut since it was opened. */
ATOLL_API atoll_err atoll_data_batch(const atoll_data *data, uint64_t seed, int64_t step, int64_t global_batch,
                                     int64_t first, int64_t B, const atoll_batch *to);
/** Targets of all samples of a step: what its mean loss is divided by. Reads no text. */
ATOLL_API int64_t atoll_data_targets(const atoll_data *data, uint64_t seed, int64_t step, int64_t global_batch);
/** The same of windows 0 .. windows - 1 in file order. */
ATOLL_API int64_t atoll_data_window_targets(const atoll_data *data, int64_t windows);
/** Targets of one sample, at most. */
ATOLL_API int64_t atoll_data_most_targets(const atoll_data *data);
/** Windows in file order, for validation: window w0 .. w0 + B - 1; those beyond the end give targets of -1 (no loss).
 * Masks are the same each time. */
ATOLL_API atoll_err atoll_data_windows_at(const atoll_data *data, int64_t w0, int64_t B, const atoll_batch *to);
/** Ask the kernel to read ahead the windows of a coming batch; a hint. */
ATOLL_API void atoll_data_prefetch(const atoll_data *data, uint64_t seed, int64_t step, int64_t global_batch,
                                   int64_t first, int64_t B);

ATOLL_END_C
#endif

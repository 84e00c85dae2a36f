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
} atoll_data_params;
extern ATOLL_API const atoll_opt_table atoll_data_options;
ATOLL_API void atoll_data_params_init(atoll_data_params *p);

typedef struct atoll_data atoll_data; /* one split */

/** Local. Opens train (and validation when wanted; either may be NULL). `folder` resolves relative paths. vocab: ids at
 * or beyond it are refused when met. NOINPUT missing; CORRUPT wrong magic, version, truncated (names file, bytes found,
 * bytes expected); USAGE too short for one window. */
ATOLL_API atoll_err atoll_data_open(const atoll_data_params *params, const char *folder, int64_t seq, int64_t vocab,
                                    atoll_data **train, atoll_data **validation);
ATOLL_API void atoll_data_close(atoll_data **data);
ATOLL_API int64_t atoll_data_tokens(const atoll_data *data);
ATOLL_API int64_t atoll_data_windows(const atoll_data *data);
/** Of the content's identity: names' base parts, sizes, format and a digest of the bytes' first and last MiB. */
ATOLL_API atoll_digest atoll_data_digest(const atoll_data *data);

/** Samples first .. first + B - 1 of a step with `global_batch` samples: tokens and targets are [B, seq]. Shuffled by
 * seed. CORRUPT names file and position of a token beyond the vocabulary, or a file that was cut since it was opened. */
ATOLL_API atoll_err atoll_data_batch(const atoll_data *data, uint64_t seed, int64_t step, int64_t global_batch,
                                     int64_t first, int64_t B, int32_t *tokens, int32_t *targets);
/** Windows in file order, for validation: window w0 .. w0 + B - 1; those beyond the end give targets of -1 (no loss).
 */
ATOLL_API atoll_err atoll_data_windows_at(const atoll_data *data, int64_t w0, int64_t B, int32_t *tokens,
                                          int32_t *targets);
/** Ask the kernel to read ahead the windows of a coming batch; a hint. */
ATOLL_API void atoll_data_prefetch(const atoll_data *data, uint64_t seed, int64_t step, int64_t global_batch,
                                   int64_t first, int64_t B);

ATOLL_END_C
#endif

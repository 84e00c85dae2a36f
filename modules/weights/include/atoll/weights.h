/** Weights in files of other programs: safetensors (one file, or a folder with config.json and an index), llm.c's model
 * checkpoints and llama2.c's model files, in and out.
 *
 *  An open file shows logical tensors: Atoll's names and layouts (model.h; matrices are [out, in]), whatever the file
 * calls and turns them. Which file name is which tensor, and how it is turned, is a table per family (src/names.c):
 *
 *    gpt2      the published checkpoints store matrices as [in, out]; the head is the token embedding
 *    llama     rotary halves: the published checkpoints rotate element i with i + head/2, llama2.c's files i with i + 1
 *    bert, roberta   published names, old ("gamma", "beta") and new
 *
 *  Values are float32 here; float16 and bfloat16 are widened exactly and bfloat16 is written rounded to nearest even.
 */
#ifndef ATOLL_WEIGHTS_H
#define ATOLL_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"
#include "atoll/model.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

/** What a file says of its model; 0 where it says nothing. */
typedef struct atoll_weights_config {
  char family[16]; /* gpt2 llama bert roberta */
  int64_t layers, width, heads, kv_heads, ffn, context, vocab, types;
  int untied;                              /* the head has a matrix of its own */
  double norm_eps, rope_theta;             /* rope_theta of llama */
  double rope_factor, rope_low, rope_high; /* llama 3's scaling; factor 0: none */
  int64_t rope_context;                    /* positions before that scaling */
} atoll_weights_config;

typedef struct atoll_weights_item {
  char name[96];
  int ndim;
  int64_t shape[ATOLL_NDIM_MAX];
} atoll_weights_item;

/** Logical tensors that can be read one by one: an open file's, or a caller's own. */
typedef struct atoll_weights_source {
  const atoll_weights_item *item;
  int n;
  atoll_err (*read)(void *arg, int i, float *out); /* all elements of tensor i, row-major */
  void *arg;
} atoll_weights_source;

typedef struct atoll_weights atoll_weights;

/** Local. path: a file, or a folder that holds model.safetensors or model.safetensors.index.json, and perhaps
 * config.json (also looked for beside a file named model.safetensors). family: NULL lets the names tell. *out owned:
 * atoll_weights_close(). Files stay mapped.
 *  NOINPUT: missing. CORRUPT: truncated, oversized header, overlapping or gapped offsets, unknown or wrong type,
 * repeated names; with file, tensor, what was found and what was expected. UNSUPPORTED: another architecture or file
 * type. MISMATCH: a tensor that the family has no place for, or a tied head that differs. */
ATOLL_API atoll_err atoll_weights_open(const char *path, const char *family, atoll_weights **out);
/** The same from memory, borrowed until close. */
ATOLL_API atoll_err atoll_weights_open_bytes(const char *name, const void *bytes, size_t n, const char *family,
                                             atoll_weights **out);
ATOLL_API void atoll_weights_close(atoll_weights **w);
/** "safetensors", "llm.c", "llama2.c". */
ATOLL_API const char *atoll_weights_format(const atoll_weights *w);
/** Borrowed. Sizes come from config.json or the header, and else from shapes; heads may be 0. */
ATOLL_API const atoll_weights_config *atoll_weights_config_of(const atoll_weights *w);
ATOLL_API int atoll_weights_count(const atoll_weights *w);
ATOLL_API const atoll_weights_item *atoll_weights_at(const atoll_weights *w, int i);
ATOLL_API int atoll_weights_find(const atoll_weights *w, const char *name); /* -1 */
/** Name and type of tensor i as the file has them, borrowed. */
ATOLL_API void atoll_weights_stored(const atoll_weights *w, int i, const char **name, const char **type);
/** out [elements of tensor i]. USAGE when heads are needed to turn it and not known. */
ATOLL_API atoll_err atoll_weights_read(atoll_weights *w, int i, float *out);
/** Says how many heads there are where the file does not; checked against the width. */
ATOLL_API atoll_err atoll_weights_set_heads(atoll_weights *w, int64_t heads);
/** w as a source, borrowed from it. */
ATOLL_API atoll_weights_source atoll_weights_as_source(atoll_weights *w);
/** Whether w holds exactly the parameters of a model: MISMATCH names the tensor, the file's shape and the model's. */
ATOLL_API atoll_err atoll_weights_check(const atoll_weights *w, const atoll_model *model);
/** The model that w holds, checked against its tensors. Options model.* of opts (whose table fills params) that are not
 * set take what the file says, so that their printed copy describes the model. *out owned: atoll_model_destroy().
 *  UNSUPPORTED: a family that this release does not compute. USAGE: sizes neither the file nor the user tells.
 * MISMATCH as from atoll_weights_check(). */
ATOLL_API atoll_err atoll_weights_model(atoll_weights *w, atoll_opts *opts, const atoll_model_params *params,
                                        atoll_model **out);
/** What a file of this model says. */
ATOLL_API void atoll_weights_config_of_model(const atoll_model *model, atoll_weights_config *config);

/** Write a file whole or not at all. dtype F32 or BF16. The source must hold the family's tensors (MISMATCH names the
 * one that is missing or odd).
 *    safetensors   published names; the sizes also stand in its metadata, so that heads survive
 *    llmc          gpt2 only; the vocabulary padded to a multiple of 128
 *    llama2c       llama only, float32 only, no scaling of rotary frequencies */
ATOLL_API atoll_err atoll_weights_write_safetensors(const char *path, const atoll_weights_config *config,
                                                    const atoll_weights_source *source, atoll_dtype dtype);
ATOLL_API atoll_err atoll_weights_write_llmc(const char *path, const atoll_weights_config *config,
                                             const atoll_weights_source *source, atoll_dtype dtype);
ATOLL_API atoll_err atoll_weights_write_llama2c(const char *path, const atoll_weights_config *config,
                                                const atoll_weights_source *source);
/** config.json as the published ones are; *text owned: free(). */
ATOLL_API atoll_err atoll_weights_config_json(const atoll_weights_config *config, char **text);

ATOLL_END_C
#endif

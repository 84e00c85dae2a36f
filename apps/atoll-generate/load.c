/* MODEL to a model, its weights and its tokenizer. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/ckpt.h"
#include "atoll/file.h"
#include "generate.h"

static atoll_err open_checkpoint(atoll_opts *opts, source *s) {
  atoll_ckpt_meta meta = {0};
  for (int i = 0; i < atoll_opts_count(opts); i++)
    if (!strncmp(atoll_opts_key(opts, i), "model.", 6) && atoll_opts_source(opts, i) != ATOLL_FROM_DEFAULT)
      return atoll_fail(ATOLL_USAGE, "%s: checkpoint %s has its own sizes", atoll_opts_key(opts, i), s->path);
  ATOLL_TRY(atoll_ckpt_verify(s->path));
  ATOLL_TRY(atoll_ckpt_read_meta(s->path, &meta));
  atoll_err err = atoll_ckpt_model(s->path, &meta, &s->model);
  atoll_ckpt_meta_free(&meta);
  s->format = "checkpoint";
  return err;
}

atoll_err source_open(const char *path, const char *family, atoll_opts *opts, const atoll_model_params *params,
                      source *s) {
  *s = (source){0};
  if (atoll_ckpt_locate(path, s->path, sizeof s->path))
    return open_checkpoint(opts, s);
  if (snprintf(s->path, sizeof s->path, "%s", path) >= (int)sizeof s->path)
    return atoll_fail(ATOLL_USAGE, "%.60s...: the path is too long", path);
  ATOLL_TRY(atoll_weights_open(path, family, &s->weights));
  s->format = atoll_weights_format(s->weights);
  return atoll_weights_model(s->weights, opts, params, &s->model);
}

static atoll_err load_checkpoint(const source *s, const atoll_tensor *weight, int n) {
  atoll_tensor *t = calloc((size_t)n, sizeof *t);
  atoll_err err = t ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "list of %d tensors", n);
  for (int i = 0; i < n && err == ATOLL_OK; i++) {
    char name[128];
    snprintf(name, sizeof name, "param/%s", weight[i].name);
    err = atoll_tensor_init(&t[i], name, ATOLL_F32, weight[i].ndim, weight[i].global, weight[i].data);
  }
  if (err == ATOLL_OK)
    err = atoll_ckpt_load(MPI_COMM_SELF, s->path, t, n);
  free(t);
  return err;
}

atoll_err source_load(const source *s, const atoll_tensor *weight) {
  int n = atoll_model_params_count(s->model);
  if (!s->weights)
    return load_checkpoint(s, weight, n);
  for (int i = 0; i < n; i++)
    ATOLL_TRY(atoll_weights_read(s->weights, atoll_weights_find(s->weights, weight[i].name), weight[i].data));
  return ATOLL_OK;
}

void source_close(source *s) {
  atoll_weights_close(&s->weights);
  atoll_model_destroy(&s->model);
}

/* ---- tokenizer ---- */

static atoll_err folder_of(const char *path, char *folder, size_t n) {
  const char *slash = strrchr(path, '/');
  if (atoll_file_is_dir(path))
    return snprintf(folder, n, "%s", path) < (int)n ? ATOLL_OK : atoll_fail(ATOLL_USAGE, "%s is too long", path);
  snprintf(folder, n, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
  return ATOLL_OK;
}

/* Files under the names that they are published with, those of the model's family; bytes for the vocabulary of bytes.
 */
static atoll_err tokenizer_beside(const char *path, const atoll_model *m, char *spec, size_t n) {
  char folder[4096], file[4200], named[64];
  int64_t vocab = atoll_model_config(m)->vocab;
  int llama = atoll_model_config(m)->family == ATOLL_FAMILY_LLAMA;
  snprintf(named, sizeof named, "tok%lld.bin", (long long)vocab);
  const char *const names[2][3] = {{"encoder.json", "vocab.json", "gpt2_encoder.json"},
                                   {named, "tokenizer.bin", "tokenizer.model"}};
  const char *const llamas[] = {"llama2c", "llama2c", "llama3"};
  ATOLL_TRY(folder_of(path, folder, sizeof folder));
  for (size_t i = 0; i < 3 && names[llama][i]; i++) {
    ATOLL_TRY(atoll_path_join(file, sizeof file, folder, names[llama][i]));
    if (atoll_file_exists(file)) {
      snprintf(spec, n, "%s:%s", llama ? llamas[i] : "gpt2", llama ? file : folder);
      return ATOLL_OK;
    }
  }
  if (vocab != 256)
    return atoll_fail(ATOLL_NOINPUT, "no tokenizer of family %s in %s (%s or %s): give --tokenizer, or --ids",
                      atoll_model_family_name(m), folder, names[llama][0], names[llama][1]);
  snprintf(spec, n, "bytes");
  return ATOLL_OK;
}

atoll_err tokenizer_of(const atoll_cli *cli, const char *path, const atoll_model *m, atoll_tokenizer **out) {
  const char *named = atoll_cli_value(cli, "tokenizer");
  char spec[4300];
  int64_t vocab = atoll_model_config(m)->vocab;
  if (atoll_cli_value(cli, "ids"))
    return named ? atoll_fail(ATOLL_USAGE, "--ids and --tokenizer: one of them") : ATOLL_OK;
  if (!named)
    ATOLL_TRY(tokenizer_beside(path, m, spec, sizeof spec));
  atoll_tokenizer *t = NULL;
  ATOLL_TRY(atoll_tokenizer_open(named ? named : spec, &t));
  /* Files are padded to round sizes: what is beyond the tokenizer is never learnt, but may be drawn by a young model.
   */
  if (atoll_tokenizer_vocab(t) > vocab) {
    atoll_err err = atoll_fail(ATOLL_MISMATCH, "tokenizer %s has %lld tokens, the model %lld", named ? named : spec,
                               (long long)atoll_tokenizer_vocab(t), (long long)vocab);
    atoll_tokenizer_close(&t);
    return err;
  }
  *out = t;
  return ATOLL_OK;
}

/* import and export: weights of other programs to checkpoints, and checkpoints, or weights, to them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/ckpt.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "convert.h"

atoll_err convert_int_flag(const convert *c, const char *flag, int64_t least, int64_t *out) {
  const char *text = atoll_cli_value(c->cli, flag);
  if (text && (atoll_parse_int(text, out) != 0 || *out < least))
    return atoll_fail(ATOLL_USAGE, "--%s: '%s' is not an integer of at least %lld", flag, text, (long long)least);
  return ATOLL_OK;
}

static void report(const convert *c, const char *from, const char *format, const atoll_weights_config *config,
                   int tensors, const char *to) {
  if (!c->json) {
    atoll_say("%s ( %s , %s , %d tensors ) -> %s", from, format, config->family, tensors, to);
    return;
  }
  json_t *root = json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:s}", "input", from, "format", format, "family",
                           config->family, "tensors", tensors, "layers", (json_int_t)config->layers, "width",
                           (json_int_t)config->width, "vocab", (json_int_t)config->vocab, "output", to);
  char *text = json_dumps(root, JSON_INDENT(2));
  puts(text ? text : "{}");
  free(text);
  json_decref(root);
}

static atoll_err read_all(atoll_weights *w, const atoll_model *model, float **value) {
  for (int i = 0; i < atoll_model_params_count(model); i++) {
    const atoll_model_param *p = atoll_model_param_at(model, i);
    size_t n = (size_t)p->shape[0] * (size_t)(p->ndim > 1 ? p->shape[1] : 1);
    value[i] = malloc(n * sizeof **value);
    if (!value[i])
      return atoll_fail(ATOLL_NOMEM, "tensor %s, %zu elements", p->name, n);
    ATOLL_TRY(atoll_weights_read(w, atoll_weights_find(w, p->name), value[i]));
  }
  return ATOLL_OK;
}

static atoll_err import_into(convert *c, atoll_weights *w, const char *from, const char *folder, int64_t seed) {
  atoll_model *model = NULL;
  float **value = NULL;
  char *config = NULL, made[4200];
  ATOLL_TRY(atoll_weights_model(w, atoll_cli_opts(c->cli), &c->model, &model));
  int n = atoll_model_params_count(model);
  atoll_err err = ATOLL_OK;
  if (!(value = calloc((size_t)n, sizeof *value)))
    err = atoll_fail(ATOLL_NOMEM, "list of %d tensors", n);
  if (err == ATOLL_OK)
    err = read_all(w, model, value);
  if (err == ATOLL_OK)
    err = atoll_opts_yaml(atoll_cli_opts(c->cli), &config);
  if (err == ATOLL_OK)
    err = checkpoint_write(folder, model, config, (uint64_t)seed, value, made, sizeof made);
  if (err == ATOLL_OK)
    report(c, from, atoll_weights_format(w), atoll_weights_config_of(w), n, made);
  for (int i = 0; value && i < n; i++)
    free(value[i]);
  free(value);
  free(config);
  atoll_model_destroy(&model);
  return err;
}

atoll_err convert_import(convert *c) {
  const char *from = atoll_cli_operand(c->cli, 1), *folder = atoll_cli_operand(c->cli, 2);
  atoll_weights *w = NULL;
  int64_t seed = 1;
  if (atoll_cli_operand_count(c->cli) != 3)
    return atoll_fail(ATOLL_USAGE, "import takes FILE or FOLDER, and the folder of checkpoints to write into");
  ATOLL_TRY(convert_int_flag(c, "seed", 0, &seed));
  ATOLL_TRY(atoll_weights_open(from, atoll_cli_value(c->cli, "family"), &w));
  atoll_err err = import_into(c, w, from, folder, seed);
  atoll_weights_close(&w);
  return err;
}

/* ---- export ---- */

static int ends(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

static atoll_err export_folder(const char *folder, const atoll_weights_config *config,
                               const atoll_weights_source *source, atoll_dtype dtype) {
  char path[4200], *text = NULL;
  ATOLL_TRY(atoll_file_mkdirs(folder));
  ATOLL_TRY(atoll_path_join(path, sizeof path, folder, "model.safetensors"));
  ATOLL_TRY(atoll_weights_write_safetensors(path, config, source, dtype));
  ATOLL_TRY(atoll_path_join(path, sizeof path, folder, "config.json"));
  ATOLL_TRY(atoll_weights_config_json(config, &text));
  atoll_err err = atoll_file_replace(path, text, strlen(text));
  free(text);
  return err;
}

static atoll_err export_to(const char *to, const atoll_weights_config *config, const atoll_weights_source *source,
                           atoll_dtype dtype) {
  if (ends(to, "/") || atoll_file_is_dir(to))
    return export_folder(to, config, source, dtype);
  if (ends(to, ".safetensors"))
    return atoll_weights_write_safetensors(to, config, source, dtype);
  if (!ends(to, ".bin"))
    return atoll_fail(ATOLL_USAGE, "export to '%s': expected FILE.safetensors, FILE.bin or FOLDER/", to);
  if (strcmp(config->family, "llama") != 0)
    return atoll_weights_write_llmc(to, config, source, dtype);
  if (dtype != ATOLL_F32)
    return atoll_fail(ATOLL_USAGE, "--dtype %s: llama2.c's files hold f32", atoll_dtype_name(dtype));
  return atoll_weights_write_llama2c(to, config, source);
}

atoll_err convert_export(convert *c) {
  const char *from = atoll_cli_operand(c->cli, 1), *to = atoll_cli_operand(c->cli, 2);
  const char *type = atoll_cli_value(c->cli, "dtype");
  char dir[4096];
  atoll_dtype dtype = ATOLL_F32;
  if (atoll_cli_operand_count(c->cli) != 3)
    return atoll_fail(ATOLL_USAGE, "export takes a checkpoint, run or file of weights, and the file to write");
  if (type && (atoll_dtype_parse(type, &dtype) != 0 || (dtype != ATOLL_F32 && dtype != ATOLL_BF16)))
    return atoll_fail(ATOLL_USAGE, "--dtype '%s', expected f32 or bf16", type);
  if (atoll_ckpt_locate(from, dir, sizeof dir)) {
    checkpoint k;
    atoll_err err = checkpoint_read(dir, 1, &k);
    if (err == ATOLL_OK) {
      atoll_weights_source source = checkpoint_source(&k);
      err = export_to(to, &k.config, &source, dtype);
    }
    if (err == ATOLL_OK)
      report(c, dir, "checkpoint", &k.config, k.n, to);
    checkpoint_free(&k);
    return err;
  }
  atoll_weights *w = NULL;
  ATOLL_TRY(atoll_weights_open(from, atoll_cli_value(c->cli, "family"), &w));
  atoll_err err = c->model.heads ? atoll_weights_set_heads(w, c->model.heads) : ATOLL_OK;
  if (err == ATOLL_OK) {
    atoll_weights_source source = atoll_weights_as_source(w);
    err = export_to(to, atoll_weights_config_of(w), &source, dtype);
  }
  if (err == ATOLL_OK)
    report(c, from, atoll_weights_format(w), atoll_weights_config_of(w), atoll_weights_count(w), to);
  atoll_weights_close(&w);
  return err;
}

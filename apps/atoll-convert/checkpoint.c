/* Checkpoints as the one end of a conversion. A written one is what a run of no steps would have saved: parameters,
 * moments of zero, step 0, attempt 0, so ckpt.resume=DIR starts a job from it. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/ckpt.h"
#include "atoll/file.h"
#include "atoll/yaml.h"
#include "convert.h"

static int is_checkpoint(const char *dir) {
  char commit[4200];
  return atoll_path_join(commit, sizeof commit, dir, "COMMIT") == ATOLL_OK && atoll_file_exists(commit);
}

static int newest(const char *folder, char *dir, size_t n) {
  char **dirs = NULL;
  int64_t *steps = NULL;
  size_t count = 0;
  int found = 0;
  if (atoll_ckpt_list(folder, &dirs, &steps, &count) == ATOLL_OK && count)
    found = snprintf(dir, n, "%s", dirs[count - 1]) < (int)n;
  for (size_t i = 0; i < count; i++)
    free(dirs[i]);
  free(dirs);
  free(steps);
  return found;
}

int checkpoint_at(const char *path, char *dir, size_t n) {
  char below[4200];
  if (!atoll_file_is_dir(path))
    return 0;
  if (is_checkpoint(path))
    return snprintf(dir, n, "%s", path) < (int)n;
  if (newest(path, dir, n))
    return 1;
  return atoll_path_join(below, sizeof below, path, "ckpt") == ATOLL_OK && newest(below, dir, n);
}

/* The section "model" of the checkpoint's options. */
static atoll_err model_of(const atoll_ckpt_meta *meta, const char *dir, atoll_model **out) {
  atoll_model_params p;
  atoll_opts *opts = NULL;
  atoll_yaml *root = NULL;
  ATOLL_TRY(atoll_opts_create(&opts));
  atoll_err err = atoll_opts_add(opts, &atoll_model_options, &p);
  if (err == ATOLL_OK)
    err = atoll_yaml_parse(dir, meta->config ? meta->config : "", meta->config ? strlen(meta->config) : 0, &root);
  atoll_yaml *model = err == ATOLL_OK ? atoll_yaml_get(root, "model") : NULL;
  if (err == ATOLL_OK && (!model || !atoll_yaml_is_map(model)))
    err = atoll_fail(ATOLL_CORRUPT, "%s: config.yaml has no section model", dir);
  for (size_t i = 0; err == ATOLL_OK && i < atoll_yaml_count(model); i++) {
    const char *text = atoll_yaml_text(atoll_yaml_at(model, i));
    char assignment[ATOLL_OPT_STRING_MAX + 80];
    if (!text)
      continue;
    snprintf(assignment, sizeof assignment, "model.%s=%s", atoll_yaml_key(model, i), text);
    err = atoll_opts_set(opts, assignment);
  }
  if (err == ATOLL_OK)
    err = atoll_model_create(&p, out);
  atoll_yaml_destroy(&root);
  atoll_opts_destroy(&opts);
  return err;
}

static void describe(const atoll_model *m, atoll_weights_config *c) {
  const atoll_model_params *p = atoll_model_config(m);
  *c = (atoll_weights_config){.layers = p->layers,
                              .width = p->width,
                              .heads = p->heads,
                              .kv_heads = p->heads,
                              .ffn = p->ffn,
                              .context = p->context,
                              .vocab = p->vocab,
                              .norm_eps = 1e-5};
  snprintf(c->family, sizeof c->family, "%s", atoll_model_family_name(m));
}

/* MPI is started once and ends with the program. Several processes would write one folder together. */
static atoll_err start_mpi(void) {
  int initialized = 0, size = 1;
  MPI_Initialized(&initialized);
  if (!initialized)
    ATOLL_TRY(atoll_mpi_init(NULL, NULL));
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size == 1 ? ATOLL_OK : atoll_fail(ATOLL_USAGE, "started as %d processes, expected one", size);
}

static atoll_err load_values(checkpoint *c) {
  atoll_tensor *t = calloc((size_t)c->n, sizeof *t);
  c->value = calloc((size_t)c->n, sizeof *c->value);
  atoll_err err = t && c->value ? start_mpi() : atoll_fail(ATOLL_NOMEM, "list of %d tensors", c->n);
  for (int i = 0; i < c->n && err == ATOLL_OK; i++) {
    char name[128];
    snprintf(name, sizeof name, "param/%s", c->item[i].name);
    err = atoll_tensor_init(&t[i], name, ATOLL_F32, c->item[i].ndim, c->item[i].shape, NULL);
    if (err == ATOLL_OK) {
      t[i].data = c->value[i] = malloc((size_t)atoll_tensor_local_bytes(&t[i]));
      err = c->value[i] ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "tensor %s of %s", c->item[i].name, c->dir);
    }
  }
  if (err == ATOLL_OK)
    err = atoll_ckpt_load(MPI_COMM_SELF, c->dir, t, c->n);
  free(t);
  return err;
}

atoll_err checkpoint_read(const char *dir, int values, checkpoint *c) {
  atoll_ckpt_meta meta = {0};
  memset(c, 0, sizeof *c);
  snprintf(c->dir, sizeof c->dir, "%s", dir);
  ATOLL_TRY(atoll_ckpt_verify(dir));
  ATOLL_TRY(atoll_ckpt_read_meta(dir, &meta));
  c->step = meta.step;
  atoll_err err = model_of(&meta, dir, &c->model);
  atoll_ckpt_meta_free(&meta);
  ATOLL_TRY(err);
  describe(c->model, &c->config);
  c->n = atoll_model_params_count(c->model);
  c->item = calloc((size_t)c->n, sizeof *c->item);
  if (!c->item)
    return atoll_fail(ATOLL_NOMEM, "list of %d tensors", c->n);
  for (int i = 0; i < c->n; i++) {
    const atoll_model_param *p = atoll_model_param_at(c->model, i);
    memcpy(c->item[i].name, p->name, sizeof p->name);
    c->item[i].ndim = p->ndim;
    memcpy(c->item[i].shape, p->shape, sizeof p->shape);
  }
  return values ? load_values(c) : ATOLL_OK;
}

static atoll_err read_value(void *arg, int i, float *out) {
  const checkpoint *c = arg;
  size_t n = 1;
  for (int d = 0; d < c->item[i].ndim; d++)
    n *= (size_t)c->item[i].shape[d];
  memcpy(out, c->value[i], n * sizeof *out);
  return ATOLL_OK;
}

atoll_weights_source checkpoint_source(checkpoint *c) { return (atoll_weights_source){c->item, c->n, read_value, c}; }

void checkpoint_free(checkpoint *c) {
  for (int i = 0; c->value && i < c->n; i++)
    free(c->value[i]);
  free(c->value);
  free(c->item);
  atoll_model_destroy(&c->model);
  memset(c, 0, sizeof *c);
}

atoll_err checkpoint_write(const char *folder, const atoll_model *model, const char *config_yaml, uint64_t seed,
                           float *const *value, char *made, size_t bytes) {
  static const char *const kinds[] = {"param", "moment1", "moment2"};
  int n = atoll_model_params_count(model);
  int64_t largest = 0;
  for (int i = 0; i < n; i++) {
    const atoll_model_param *p = atoll_model_param_at(model, i);
    int64_t count = p->shape[0] * (p->ndim > 1 ? p->shape[1] : 1);
    largest = count > largest ? count : largest;
  }
  atoll_tensor *t = calloc(3 * (size_t)n, sizeof *t);
  float *zeros = calloc((size_t)largest, sizeof *zeros); /* every moment reads the same ones */
  char *config = strdup(config_yaml), *plan = strdup("");
  atoll_err err = t && zeros && config && plan ? start_mpi() : atoll_fail(ATOLL_NOMEM, "checkpoint of %d tensors", n);
  for (int i = 0; i < 3 * n && err == ATOLL_OK; i++) {
    const atoll_model_param *p = atoll_model_param_at(model, i % n);
    char name[128];
    snprintf(name, sizeof name, "%s/%s", kinds[i / n], p->name);
    err = atoll_tensor_init(&t[i], name, ATOLL_F32, p->ndim, p->shape, i < n ? value[i] : zeros);
  }
  atoll_ckpt_params params;
  atoll_ckpt_params_init(&params);
  atoll_ckpt_meta meta = {
      .seed = seed, .last_loss = NAN, .best_validation = NAN, .finite = 1, .plan = plan, .config = config};
  atoll_digest_text(atoll_model_digest(model), meta.model_digest);
  static const atoll_digest none; /* no data, plan or machine yet */
  atoll_digest_text(none, meta.data_digest);
  atoll_digest_text(none, meta.plan_digest);
  atoll_digest_text(none, meta.identity_digest);
  snprintf(meta.reason, sizeof meta.reason, "import");
  if (err == ATOLL_OK)
    err = atoll_ckpt_save(MPI_COMM_SELF, NULL, NULL, folder, &params, &meta, t, 3 * n, made, bytes);
  free(t);
  free(zeros);
  free(config);
  free(plan);
  return err;
}

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
#include "convert.h"

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
  atoll_err err = atoll_ckpt_model(dir, &meta, &c->model);
  atoll_ckpt_meta_free(&meta);
  ATOLL_TRY(err);
  atoll_weights_config_of_model(c->model, &c->config);
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

/* A checkpoint's name is never used twice, and an import has only one: that of step 0 and attempt 0. */
static atoll_err refuse_second(const char *folder) {
  char path[4096];
  ATOLL_TRY(atoll_path_join(path, sizeof path, folder, "step-00000000.a0"));
  return atoll_file_exists(path)
             ? atoll_fail(ATOLL_USAGE, "%s is there already: name another folder, or remove it", path)
             : ATOLL_OK;
}

atoll_err checkpoint_write(const char *folder, const atoll_model *model, const char *config_yaml, uint64_t seed,
                           float *const *value, char *made, size_t bytes) {
  static const char *const kinds[] = {"param", "moment1", "moment2"};
  int n = atoll_model_params_count(model);
  int64_t largest = 0;
  ATOLL_TRY(refuse_second(folder));
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
  atoll_digest_text(atoll_model_weights_digest(model), meta.model_digest);
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

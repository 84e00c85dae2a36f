/* What the files of atoll-convert share: one command each.
 *   tokenize     text to token files
 *   weights      import and export
 *   checkpoint   parameters of Atoll's checkpoints, read and written
 *   show         what a file is */
#ifndef CONVERT_H
#define CONVERT_H

#include "atoll/cli.h"
#include "atoll/model.h"
#include "atoll/weights.h"

typedef struct convert {
  atoll_cli *cli;
  atoll_model_params model; /* options model.* */
  int json;
} convert;

atoll_err convert_tokenize(convert *c);
atoll_err convert_import(convert *c);
atoll_err convert_export(convert *c);
atoll_err convert_show(convert *c);

/* Parameters of a checkpoint in memory. */
typedef struct checkpoint {
  char dir[4096];
  int64_t step;
  atoll_model *model;
  atoll_weights_config config;
  atoll_weights_item *item;
  float **value;
  int n;
} checkpoint;

/* Verified, with values unless only shapes are wanted. Starts MPI. checkpoint_free() also after a failure. */
atoll_err checkpoint_read(const char *dir, int values, checkpoint *c);
atoll_weights_source checkpoint_source(checkpoint *c);
/* A checkpoint of step 0 below folder: parameters in the model's order, moments zero. made receives its path. */
atoll_err checkpoint_write(const char *folder, const atoll_model *model, const char *config_yaml, uint64_t seed,
                           float *const *value, char *made, size_t n);
void checkpoint_free(checkpoint *c);

/* An integer flag; *out keeps its value without it. */
atoll_err convert_int_flag(const convert *c, const char *flag, int64_t least, int64_t *out);

#endif

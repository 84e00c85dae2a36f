/* Inside of the model room: what a family fills in. */
#ifndef ATOLL_MODEL_IMPL_H
#define ATOLL_MODEL_IMPL_H

#include "atoll/model.h"

#define MODEL_LAYER_PARAMS_MAX 16 /* the width of atoll_layer_buffers */

struct atoll_model {
  atoll_model_params config; /* resolved */
  int layers;                /* embedding + blocks + head */
  int nparams;
  atoll_model_param *params;
};

/* A family: names, parameters and FLOPs of its layers. Entries are called with a resolved, checked config. */
struct model_family {
  const char *name;
  /* Fills m->params (allocated with room for `count(config)`). */
  int64_t (*count)(const atoll_model_params *config);
  atoll_err (*fill)(atoll_model *m);
  int (*layer_params)(const atoll_model *m, int layer, int *index, int cap);
  int64_t (*matmul_elements)(const atoll_model *m);
  const atoll_sym *(*flops)(const atoll_model *m, atoll_syms *pool, int layer, int backward);
};

extern const struct model_family model_gpt2;

/* A named set of sizes; 0 and negative values of the user's config take the preset's. */
struct model_preset {
  const char *name;
  int family;
  int64_t layers, width, heads, ffn, context, vocab;
};
const struct model_preset *model_preset_find(const char *name);
const struct model_preset *model_preset_at(int i); /* NULL past the end */

#endif

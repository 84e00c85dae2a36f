#include "atoll/model.h"

#include <stddef.h>
#include <string.h>

#include "model_impl.h"

#define FIELD(name) offsetof(atoll_model_params, name)

static const atoll_opt_def defs[] = {
    {"family", ATOLL_OPT_ENUM, FIELD(family), "gpt2", "gpt2", "", "model family"},
    {"preset", ATOLL_OPT_STRING, FIELD(preset), "", NULL, "",
     "named sizes: gpt2-124m gpt2-355m gpt2-774m gpt2-1.5b gpt2-small-bytes gpt2-tiny gpt2-test; sizes left at 0 take "
     "the preset's"},
    {"layers", ATOLL_OPT_INT, FIELD(layers), "0", "0..65000", "layers", "transformer blocks"},
    {"width", ATOLL_OPT_INT, FIELD(width), "0", "0..1048576", "elements", "width of the residual stream"},
    {"heads", ATOLL_OPT_INT, FIELD(heads), "0", "0..65536", "heads", "attention heads; must divide the width"},
    {"ffn", ATOLL_OPT_INT, FIELD(ffn), "0", "0..4194304", "elements",
     "width of the MLP; 0 means 4 x width, or the preset's"},
    {"context", ATOLL_OPT_INT, FIELD(context), "0", "0..16777216", "tokens", "positions the model knows"},
    {"vocab", ATOLL_OPT_INT, FIELD(vocab), "0", "0..16777216", "tokens", "token ids; 256 for bytes"},
    {"dropout", ATOLL_OPT_REAL, FIELD(dropout), "0", "0..0.99", "",
     "probability of dropping an element after the embedding, in the attention and after each projection"},
    {"init_std", ATOLL_OPT_REAL, FIELD(init_std), "0.02", "0..10", "",
     "standard deviation of initial weights; residual projections are scaled by 1/sqrt(2 layers)"},
    {0},
};

const atoll_opt_table atoll_model_options = {"model", defs};

void atoll_model_params_init(atoll_model_params *p) {
  memset(p, 0, sizeof *p);
  (void)atoll_opt_defaults(&atoll_model_options, p);
}

/* Sizes of the published models (Radford et al. 2019, as released), and small ones for byte-level text and tests. */
static const struct model_preset presets[] = {
    {"gpt2-124m", ATOLL_FAMILY_GPT2, 12, 768, 12, 3072, 1024, 50257},
    {"gpt2-355m", ATOLL_FAMILY_GPT2, 24, 1024, 16, 4096, 1024, 50257},
    {"gpt2-774m", ATOLL_FAMILY_GPT2, 36, 1280, 20, 5120, 1024, 50257},
    {"gpt2-1.5b", ATOLL_FAMILY_GPT2, 48, 1600, 25, 6400, 1024, 50257},
    {"gpt2-small-bytes", ATOLL_FAMILY_GPT2, 6, 192, 6, 768, 256, 256},
    {"gpt2-tiny", ATOLL_FAMILY_GPT2, 4, 128, 4, 512, 128, 256},
    {"gpt2-test", ATOLL_FAMILY_GPT2, 2, 32, 2, 128, 32, 64},
};

const struct model_preset *model_preset_at(int i) {
  return i >= 0 && i < (int)(sizeof presets / sizeof presets[0]) ? &presets[i] : NULL;
}

const struct model_preset *model_preset_find(const char *name) {
  const struct model_preset *p;
  for (int i = 0; (p = model_preset_at(i)); i++)
    if (!strcmp(p->name, name))
      return p;
  return NULL;
}

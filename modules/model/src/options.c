#include "atoll/model.h"

#include <stddef.h>
#include <string.h>

#include "model_impl.h"

#define FIELD(name) offsetof(atoll_model_params, name)

static const atoll_opt_def defs[] = {
    {"family", ATOLL_OPT_ENUM, FIELD(family), "auto", "auto|gpt2|llama|bert|roberta", "",
     "model family; auto is the preset's, or gpt2"},
    {"preset", ATOLL_OPT_STRING, FIELD(preset), "", NULL, "",
     "named sizes: gpt2-124m gpt2-355m gpt2-774m gpt2-1.5b gpt2-small-bytes gpt2-tiny gpt2-test llama-3.2-1b "
     "llama-3.2-3b llama-tiny llama-test bert-base bert-large bert-tiny bert-test roberta-base roberta-large "
     "roberta-tiny roberta-test; sizes left at 0 take the preset's"},
    {"layers", ATOLL_OPT_INT, FIELD(layers), "0", "0..65000", "layers", "transformer blocks"},
    {"width", ATOLL_OPT_INT, FIELD(width), "0", "0..1048576", "elements", "width of the residual stream"},
    {"heads", ATOLL_OPT_INT, FIELD(heads), "0", "0..65536", "heads", "attention heads; must divide the width"},
    {"kv_heads", ATOLL_OPT_INT, FIELD(kv_heads), "0", "0..65536", "heads",
     "heads of keys and values, which must divide heads; llama only; 0 means as many as heads, or the preset's"},
    {"ffn", ATOLL_OPT_INT, FIELD(ffn), "0", "0..4194304", "elements",
     "width of the MLP; 0 means the preset's, or 4 x width, in llama 8/3 x width rounded up to a multiple of 32"},
    {"context", ATOLL_OPT_INT, FIELD(context), "0", "0..16777216", "tokens", "tokens of a sample at most"},
    {"vocab", ATOLL_OPT_INT, FIELD(vocab), "0", "0..16777216", "tokens",
     "token ids; 256 for bytes, 260 for bytes with the special ids of bert and roberta"},
    {"types", ATOLL_OPT_INT, FIELD(types), "0", "0..1024", "types",
     "token types of bert and roberta; 0 means the family's (2 and 1)"},
    {"untied", ATOLL_OPT_BOOL, FIELD(untied), "false", NULL, "",
     "llama: the head has a matrix of its own instead of the token embedding"},
    {"dropout", ATOLL_OPT_REAL, FIELD(dropout), "0", "0..0.99", "",
     "probability of dropping an element after the embedding, in the attention and after each projection"},
    {"init_std", ATOLL_OPT_REAL, FIELD(init_std), "0.02", "0..10", "",
     "standard deviation of initial weights; residual projections of gpt2 and llama are scaled by 1/sqrt(2 layers)"},
    {"norm_eps", ATOLL_OPT_REAL, FIELD(norm_eps), "0", "0..1", "",
     "added to the variance, or mean square, in norms; 0 means the family's: 1e-5, bert 1e-12"},
    {"rope_theta", ATOLL_OPT_REAL, FIELD(rope_theta), "0", "0..1e12", "",
     "llama: base of the rotary frequencies; 0 means the preset's, or 10000"},
    {"rope_factor", ATOLL_OPT_REAL, FIELD(rope_factor), "0", "0..1e6", "",
     "llama 3's scaling: low rotary frequencies are divided by this; 0 means the preset's, or no scaling"},
    {"rope_low", ATOLL_OPT_REAL, FIELD(rope_low), "0", "0..1e6", "",
     "of that scaling: turns within rope_context below which a frequency is divided"},
    {"rope_high", ATOLL_OPT_REAL, FIELD(rope_high), "0", "0..1e6", "",
     "of that scaling: turns within rope_context above which a frequency stays"},
    {"rope_context", ATOLL_OPT_INT, FIELD(rope_context), "0", "0..16777216", "tokens",
     "of that scaling: positions that the model knew before"},
    {0},
};

const atoll_opt_table atoll_model_options = {"model", defs};

void atoll_model_params_init(atoll_model_params *p) {
  memset(p, 0, sizeof *p);
  (void)atoll_opt_defaults(&atoll_model_options, p);
}

/* Sizes of the published models (Radford et al. 2019; Devlin et al. 2019; Liu et al. 2019; Llama 3.2, as released), and
 * small ones for byte-level text and tests. */
#define GPT2    ATOLL_FAMILY_GPT2
#define LLAMA   ATOLL_FAMILY_LLAMA
#define BERT    ATOLL_FAMILY_BERT
#define ROBERTA ATOLL_FAMILY_ROBERTA
static const struct model_preset presets[] = {
    {"gpt2-124m", GPT2, 12, 768, 12, 0, 3072, 1024, 50257, 0, 0, 0, 0, 0},
    {"gpt2-355m", GPT2, 24, 1024, 16, 0, 4096, 1024, 50257, 0, 0, 0, 0, 0},
    {"gpt2-774m", GPT2, 36, 1280, 20, 0, 5120, 1024, 50257, 0, 0, 0, 0, 0},
    {"gpt2-1.5b", GPT2, 48, 1600, 25, 0, 6400, 1024, 50257, 0, 0, 0, 0, 0},
    {"gpt2-small-bytes", GPT2, 6, 192, 6, 0, 768, 256, 256, 0, 0, 0, 0, 0},
    {"gpt2-tiny", GPT2, 4, 128, 4, 0, 512, 128, 256, 0, 0, 0, 0, 0},
    {"gpt2-test", GPT2, 2, 32, 2, 0, 128, 32, 64, 0, 0, 0, 0, 0},
    {"llama-3.2-1b", LLAMA, 16, 2048, 32, 8, 8192, 131072, 128256, 500000, 32, 1, 4, 8192},
    {"llama-3.2-3b", LLAMA, 28, 3072, 24, 8, 8192, 131072, 128256, 500000, 32, 1, 4, 8192},
    {"llama-tiny", LLAMA, 4, 128, 4, 2, 352, 128, 256, 10000, 0, 0, 0, 0},
    {"llama-test", LLAMA, 2, 32, 4, 2, 96, 32, 64, 10000, 0, 0, 0, 0},
    {"bert-base", BERT, 12, 768, 12, 0, 3072, 512, 30522, 0, 0, 0, 0, 0},
    {"bert-large", BERT, 24, 1024, 16, 0, 4096, 512, 30522, 0, 0, 0, 0, 0},
    {"bert-tiny", BERT, 4, 128, 4, 0, 512, 128, 260, 0, 0, 0, 0, 0},
    {"bert-test", BERT, 2, 32, 2, 0, 128, 32, 64, 0, 0, 0, 0, 0},
    {"roberta-base", ROBERTA, 12, 768, 12, 0, 3072, 512, 50265, 0, 0, 0, 0, 0},
    {"roberta-large", ROBERTA, 24, 1024, 16, 0, 4096, 512, 50265, 0, 0, 0, 0, 0},
    {"roberta-tiny", ROBERTA, 4, 128, 4, 0, 512, 128, 260, 0, 0, 0, 0, 0},
    {"roberta-test", ROBERTA, 2, 32, 2, 0, 128, 32, 64, 0, 0, 0, 0, 0},
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

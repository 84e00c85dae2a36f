/* From what a file says to the model it holds, and from a model to what a file says. */
#include "weights_impl.h"

#include <stdio.h>
#include <string.h>

#include "atoll/log.h"

/* GPT-2 in every published size has heads of 64 elements. */
#define GPT2_HEAD      64
#define ROBERTA_OFFSET 2

void atoll_weights_config_of_model(const atoll_model *m, atoll_weights_config *c) {
  const atoll_model_params *p = atoll_model_config(m);
  *c = (atoll_weights_config){.layers = p->layers,
                              .width = p->width,
                              .heads = p->heads,
                              .kv_heads = p->kv_heads,
                              .ffn = p->ffn,
                              .context = p->context + atoll_model_position_offset(m),
                              .vocab = p->vocab,
                              .types = p->types,
                              .untied = p->untied,
                              .norm_eps = p->norm_eps,
                              .rope_theta = p->rope_theta,
                              .rope_factor = p->rope_factor,
                              .rope_low = p->rope_low,
                              .rope_high = p->rope_high,
                              .rope_context = p->rope_context};
  snprintf(c->family, sizeof c->family, "%s", atoll_model_family_name(m));
}

/* model.KEY=VALUE unless the user set it; a key that this release does not have is none. */
static atoll_err suggest(atoll_opts *opts, const char *key, const char *value) {
  char assignment[128], name[64];
  snprintf(name, sizeof name, "model.%s", key);
  int i = atoll_opts_find(opts, name);
  if (i < 0 || atoll_opts_source(opts, i) != ATOLL_FROM_DEFAULT)
    return ATOLL_OK;
  snprintf(assignment, sizeof assignment, "%s=%s", name, value);
  return atoll_opts_set(opts, assignment);
}

static atoll_err suggest_int(atoll_opts *opts, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  return value ? suggest(opts, key, text) : ATOLL_OK;
}

static atoll_err suggest_real(atoll_opts *opts, const char *key, double value) {
  char text[32];
  snprintf(text, sizeof text, "%.17g", value);
  return value != 0 ? suggest(opts, key, text) : ATOLL_OK;
}

/* Whether this release computes a family. */
static int computes(const char *family) {
  for (const atoll_opt_def *d = atoll_model_options.defs; d->name; d++)
    if (!strcmp(d->name, "family")) {
      size_t n = strlen(family);
      for (const char *s = d->range; s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL)
        if (!strncmp(s, family, n) && (s[n] == '|' || !s[n]))
          return 1;
    }
  return 0;
}

/* Heads: of the user, else of the file, else what all published models of the family have, and that is said. */
static atoll_err settle_heads(atoll_weights *w, int64_t heads) {
  const atoll_weights_config *config = &w->config;
  if (heads)
    return atoll_weights_set_heads(w, heads);
  if (config->heads)
    return ATOLL_OK;
  if (strcmp(config->family, "gpt2") != 0 || config->width % GPT2_HEAD)
    return atoll_fail(ATOLL_USAGE, "the file does not say how many heads a width of %lld has: give model.heads=N",
                      (long long)config->width);
  atoll_warn("the file does not say how many heads there are: taking %lld, of %d elements as every published GPT-2; "
             "model.heads=N says otherwise",
             (long long)(config->width / GPT2_HEAD), GPT2_HEAD);
  return atoll_weights_set_heads(w, config->width / GPT2_HEAD);
}

static atoll_err set_options(const atoll_weights_config *c, atoll_opts *opts) {
  /* roberta's table of positions has rows for the padding id and below */
  int64_t context = strcmp(c->family, "roberta") ? c->context : c->context - ROBERTA_OFFSET;
  const struct {
    const char *key;
    int64_t value;
  } sizes[] = {{"layers", c->layers},     {"width", c->width}, {"heads", c->heads},
               {"kv_heads", c->kv_heads}, {"ffn", c->ffn},     {"context", context},
               {"vocab", c->vocab},       {"types", c->types}, {"rope_context", c->rope_context}};
  const struct {
    const char *key;
    double value;
  } reals[] = {{"norm_eps", c->norm_eps},
               {"rope_theta", c->rope_theta},
               {"rope_factor", c->rope_factor},
               {"rope_low", c->rope_low},
               {"rope_high", c->rope_high}};
  ATOLL_TRY(suggest(opts, "family", c->family));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    ATOLL_TRY(suggest_int(opts, sizes[i].key, sizes[i].value));
  for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
    ATOLL_TRY(suggest_real(opts, reals[i].key, reals[i].value));
  return c->untied ? suggest(opts, "untied", "true") : ATOLL_OK;
}

atoll_err atoll_weights_model(atoll_weights *w, atoll_opts *opts, const atoll_model_params *params, atoll_model **out) {
  const atoll_weights_config *config = &w->config;
  if (!computes(config->family))
    return atoll_fail(ATOLL_UNSUPPORTED, "family %s is not computed by this release; export converts its files",
                      config->family);
  ATOLL_TRY(settle_heads(w, params->heads));
  ATOLL_TRY(set_options(config, opts));
  atoll_model *model = NULL;
  ATOLL_TRY(atoll_model_create(params, &model));
  atoll_err err = atoll_weights_check(w, model);
  if (err != ATOLL_OK)
    atoll_model_destroy(&model);
  else
    *out = model;
  return err;
}

/* From what a file says to the model it holds, and from a model to what a file says. */
#include "weights_impl.h"

#include <stdio.h>
#include <string.h>

#include "atoll/log.h"

/* GPT-2 in every published size has heads of 64 elements. */
#define GPT2_HEAD 64

void atoll_weights_config_of_model(const atoll_model *m, atoll_weights_config *c) {
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
  ATOLL_TRY(suggest(opts, "family", c->family));
  ATOLL_TRY(suggest_int(opts, "layers", c->layers));
  ATOLL_TRY(suggest_int(opts, "width", c->width));
  ATOLL_TRY(suggest_int(opts, "heads", c->heads));
  ATOLL_TRY(suggest_int(opts, "kv_heads", c->kv_heads));
  ATOLL_TRY(suggest_int(opts, "ffn", c->ffn));
  ATOLL_TRY(suggest_int(opts, "context", c->context));
  return suggest_int(opts, "vocab", c->vocab);
}

atoll_err atoll_weights_model(atoll_weights *w, atoll_opts *opts, const atoll_model_params *params, atoll_model **out) {
  const atoll_weights_config *config = &w->config;
  if (!computes(config->family))
    return atoll_fail(ATOLL_UNSUPPORTED, "family %s is not computed by this release; export converts its files",
                      config->family);
  ATOLL_TRY(settle_heads(w, params->heads));
  if (!strcmp(config->family, "gpt2") && config->norm_eps != 1e-5)
    return atoll_fail(ATOLL_UNSUPPORTED, "the model adds %g to the variance of norms, family gpt2 adds 1e-5",
                      config->norm_eps);
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

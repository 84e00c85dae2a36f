/* What programs that read a checkpoint ask first: where it is, and which model it holds. */
#include "ckpt_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"
#include "atoll/yaml.h"

static int newest(const char *folder, char *dir, size_t n) {
  char **dirs = NULL;
  int64_t *steps = NULL;
  size_t count = 0;
  int found = 0;
  if (atoll_ckpt_list(folder, &dirs, &steps, &count) != ATOLL_OK)
    atoll_err_clear();
  if (count)
    found = snprintf(dir, n, "%s", dirs[count - 1]) < (int)n;
  for (size_t i = 0; i < count; i++)
    free(dirs[i]);
  free(dirs);
  free(steps);
  return found;
}

int atoll_ckpt_locate(const char *path, char *dir, size_t n) {
  char commit[4200], below[4200];
  if (!atoll_file_is_dir(path))
    return 0;
  if (atoll_path_join(commit, sizeof commit, path, "COMMIT") == ATOLL_OK && atoll_file_exists(commit))
    return snprintf(dir, n, "%s", path) < (int)n;
  if (newest(path, dir, n))
    return 1;
  return atoll_path_join(below, sizeof below, path, "ckpt") == ATOLL_OK && newest(below, dir, n);
}

/* The section "model" of the checkpoint's options. */
atoll_err atoll_ckpt_model(const char *dir, const atoll_ckpt_meta *meta, atoll_model **out) {
  atoll_model_params p = {0};
  atoll_opts *opts = NULL;
  atoll_yaml *root = NULL;
  ATOLL_TRY(atoll_opts_create(&opts));
  atoll_err err = atoll_opts_add(opts, &atoll_model_options, &p);
  if (err == ATOLL_OK)
    err = atoll_yaml_parse(dir, meta->config ? meta->config : "", meta->config ? strlen(meta->config) : 0, &root);
  atoll_yaml *model = err == ATOLL_OK ? atoll_yaml_get(root, "model") : NULL;
  if (err == ATOLL_OK && (!model || !atoll_yaml_is_map(model)))
    err = atoll_yaml_get(root, "rl")
              ? atoll_fail(ATOLL_MISMATCH,
                           "%s holds a policy that atoll-rl has learnt; expected a transformer, as "
                           "atoll-train and atoll-convert write",
                           dir)
              : atoll_fail(ATOLL_CORRUPT, "%s: config.yaml has no section model, which says what the parameters are of",
                           dir);
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

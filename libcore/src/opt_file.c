/* Options out of YAML files.
 *
 * A file is a tree of sections; `ckpt: {keep: 3}`, `ckpt.keep: 3` and mixtures name the same key. Files it includes are
 * read first, so that it overrides them, and their values rank below those of any file that was named directly. All
 * values of a call are checked before the first is applied. */
#include "opt_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "text_impl.h"
#include "yaml_impl.h"

#define INCLUDE_DEPTH_MAX 16
#define KEY_TEXT_MAX      512

struct file_load {
  atoll_opts *opts;
  struct opt_pending pending;
  int depth;                                   /* 0: the file of the call, above: included ones */
  char real_path[INCLUDE_DEPTH_MAX][PATH_MAX]; /* files being read, against circles; "" for texts from memory */
  int *seen;                                   /* per option: line of its first mention in the file at hand, 0: none */
};

static atoll_err read_tree(struct file_load *load, atoll_yaml *root);

static const char *where(const atoll_yaml *node, char *buf, size_t n) {
  snprintf(buf, n, "%s:%d", node->document->file, node->line);
  return buf;
}

/* ---- includes ---- */

static atoll_err enter_file(struct file_load *load, const char *path, const char *from) {
  atoll_yaml *root = NULL;
  char *real = load->real_path[load->depth];
  /* What cannot be resolved cannot be opened either; atoll_yaml_load() says why. */
  if (!realpath(path, real))
    real[0] = 0;
  for (int i = 0; *real && i < load->depth; i++)
    if (!strcmp(real, load->real_path[i]))
      return atoll_fail(ATOLL_USAGE, "%s: include of %s, which is being read already: the files include each other",
                        from, path);
  atoll_err err = atoll_yaml_load(path, &root);
  if (err == ATOLL_NOINPUT && from)
    err = atoll_fail(err, "%s: include: %s", from, atoll_err_message());
  if (err == ATOLL_OK)
    err = read_tree(load, root);
  atoll_yaml_destroy(&root);
  return err;
}

static atoll_err include_one(struct file_load *load, const atoll_yaml *node) {
  char from[PATH_MAX + 32], path[PATH_MAX], found[128];
  const char *name = atoll_yaml_text(node), *file = node->document->file, *slash = strrchr(file, '/');
  where(node, from, sizeof from);
  if (!name || !*name)
    return atoll_fail(ATOLL_USAGE, "%s: include: found %s, expected a path or a list of paths", from,
                      yaml_found(node, found, sizeof found));
  if (load->depth + 1 == INCLUDE_DEPTH_MAX)
    return atoll_fail(ATOLL_USAGE, "%s: include: files nested deeper than %d", from, INCLUDE_DEPTH_MAX);
  int n = *name == '/' || !slash ? snprintf(path, sizeof path, "%s", name)
                                 : snprintf(path, sizeof path, "%.*s%s", (int)(slash - file + 1), file, name);
  if (n < 0 || (size_t)n >= sizeof path)
    return atoll_fail(ATOLL_USAGE, "%s: include: found %s, a path of %d bytes, expected at most %zu", from,
                      core_quote(name, found, sizeof found), n, sizeof path - 1);
  load->depth++;
  atoll_err err = enter_file(load, path, from);
  load->depth--;
  return err;
}

static atoll_err read_includes(struct file_load *load, atoll_yaml *root) {
  atoll_yaml *include = atoll_yaml_get(root, "include");
  if (!include)
    return ATOLL_OK;
  if (include->kind != YAML_LIST)
    return include_one(load, include);
  for (size_t i = 0; i < include->count; i++)
    ATOLL_TRY(include_one(load, include->children[i]));
  return ATOLL_OK;
}

/* ---- values ---- */

/* A YAML list as "1,2,4". */
static atoll_err list_text(const atoll_opts *opts, int index, const atoll_yaml *node, core_text *text) {
  char from[PATH_MAX + 32], expected[512], found[128];
  core_text_add(text, "", 0);
  for (size_t i = 0; i < node->count; i++) {
    const atoll_yaml *item = node->children[i];
    if (item->kind != YAML_SCALAR || strchr(item->text, ',') || !*item->text)
      return atoll_fail(ATOLL_USAGE, "%s: %s: found %s in the list, expected %s", where(item, from, sizeof from),
                        opts->keys[index], yaml_found(item, found, sizeof found),
                        opt_expected(opts->entries[index].def, expected, sizeof expected));
    if (i)
      core_text_puts(text, ",");
    core_text_puts(text, item->text);
  }
  return text->failed ? atoll_fail(ATOLL_NOMEM, "%s: out of memory", where(node, from, sizeof from)) : ATOLL_OK;
}

static atoll_err set_option(struct file_load *load, int index, const atoll_yaml *node) {
  const atoll_opts *opts = load->opts;
  const atoll_opt_def *def = opts->entries[index].def;
  const atoll_opt_source source = load->depth ? ATOLL_FROM_INCLUDE : ATOLL_FROM_FILE;
  char from[PATH_MAX + 32], expected[512], found[128];
  where(node, from, sizeof from);
  if (load->seen[index])
    return atoll_fail(ATOLL_USAGE, "%s: %s is given again, first at line %d; expected each key once", from,
                      opts->keys[index], load->seen[index]);
  load->seen[index] = node->line;
  if (node->kind == YAML_LIST && def->type == ATOLL_OPT_INTS) {
    core_text text = {0};
    atoll_err err = list_text(opts, index, node, &text);
    if (err == ATOLL_OK)
      err = opt_pending_add(opts, &load->pending, index, source, from, text.data);
    free(text.data);
    return err;
  }
  if (node->kind != YAML_SCALAR)
    return atoll_fail(ATOLL_USAGE, "%s: %s: found %s, expected %s", from, opts->keys[index],
                      yaml_found(node, found, sizeof found), opt_expected(def, expected, sizeof expected));
  return opt_pending_add(opts, &load->pending, index, source, from, node->text);
}

static atoll_err read_section(struct file_load *load, const atoll_yaml *map, const char *section) {
  char key[KEY_TEXT_MAX], from[PATH_MAX + 32], found[128];
  for (size_t i = 0; i < map->count; i++) {
    const atoll_yaml *node = map->children[i];
    if (!*section && !strcmp(node->key, "include"))
      continue;
    where(node, from, sizeof from);
    int n = snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "", node->key);
    if (n < 0 || (size_t)n >= sizeof key)
      return atoll_fail(ATOLL_USAGE, "%s: found the key %s of %d bytes, expected at most %d", from,
                        core_quote(key, found, sizeof found), n, KEY_TEXT_MAX - 1);
    int index = atoll_opts_find(load->opts, key);
    if (index >= 0) {
      ATOLL_TRY(set_option(load, index, node));
    } else if (!opt_is_section(load->opts, key)) {
      return opt_unknown_key(load->opts, from, key);
    } else if (node->kind == YAML_MAP) {
      ATOLL_TRY(read_section(load, node, key));
    } else if (node->kind == YAML_LIST || *node->text || node->quoted) {
      /* "ckpt:" with every line below it commented out is an empty section; anything else is a slip. */
      return atoll_fail(ATOLL_USAGE, "%s: %s: found %s, expected a section: keys below it, indented", from, key,
                        yaml_found(node, found, sizeof found));
    }
  }
  return ATOLL_OK;
}

static atoll_err read_tree(struct file_load *load, atoll_yaml *root) {
  char from[PATH_MAX + 32], found[128];
  if (root->kind != YAML_MAP)
    return atoll_fail(ATOLL_USAGE, "%s: found %s, expected a mapping of options", where(root, from, sizeof from),
                      yaml_found(root, found, sizeof found));
  ATOLL_TRY(read_includes(load, root));
  int *outer = load->seen;
  load->seen = calloc((size_t)load->opts->count + 1, sizeof *load->seen);
  atoll_err err =
      load->seen ? read_section(load, root, "") : atoll_fail(ATOLL_NOMEM, "%s: out of memory", root->document->file);
  free(load->seen);
  load->seen = outer;
  return err;
}

/* `text` NULL: read the file called `name`. */
static atoll_err load_from(atoll_opts *opts, const char *name, const char *text, size_t bytes) {
  struct file_load *load = calloc(1, sizeof *load);
  atoll_yaml *root = NULL;
  if (!load)
    return atoll_fail(ATOLL_NOMEM, "%s: out of memory", name);
  load->opts = opts;
  atoll_err err;
  if (text) {
    err = atoll_yaml_parse(name, text, bytes, &root);
    if (err == ATOLL_OK)
      err = read_tree(load, root);
    atoll_yaml_destroy(&root);
  } else {
    err = enter_file(load, name, NULL);
  }
  if (err == ATOLL_OK)
    opt_pending_apply(opts, &load->pending);
  opt_pending_free(&load->pending);
  free(load);
  return err;
}

atoll_err atoll_opts_load_file(atoll_opts *opts, const char *path) { return load_from(opts, path, NULL, 0); }

atoll_err atoll_opts_load_text(atoll_opts *opts, const char *name, const char *text, size_t bytes) {
  return load_from(opts, name, text ? text : "", bytes);
}

#include "atoll/yaml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "atoll/opt.h"
#include "text_impl.h"
#include "yaml_impl.h"

const char *yaml_path(const atoll_yaml *node, char *buf, size_t n) {
  const atoll_yaml *chain[YAML_MAX_DEPTH + 1];
  int depth = 0;
  size_t used = 0;
  buf[0] = 0;
  for (; node && node->parent && depth <= YAML_MAX_DEPTH; node = node->parent)
    chain[depth++] = node;
  while (depth--) {
    const atoll_yaml *at = chain[depth];
    char word[160];
    if (at->key) {
      snprintf(word, sizeof word, "%s%.*s", used ? "." : "", 120, at->key);
      for (char *c = word; *c; c++) /* keys are text of the file: one line in messages whatever they hold */
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
          *c = '?';
    } else {
      size_t i = 0;
      while (i < at->parent->count && at->parent->children[i] != at)
        i++;
      snprintf(word, sizeof word, "[%zu]", i);
    }
    size_t length = strlen(word);
    if (used + length + 1 > n)
      break;
    memcpy(buf + used, word, length + 1);
    used += length;
  }
  return buf;
}

const char *yaml_found(const atoll_yaml *node, char *buf, size_t n) {
  if (node->kind == YAML_SCALAR && (*node->text || node->quoted))
    return core_quote(node->text, buf, n);
  snprintf(buf, n, "%s", node->kind == YAML_SCALAR ? "nothing" : node->kind == YAML_MAP ? "a mapping" : "a list");
  return buf;
}

int atoll_yaml_line(const atoll_yaml *node) { return node->line; }
const char *atoll_yaml_file(const atoll_yaml *node) { return node->document->file; }
int atoll_yaml_is_map(const atoll_yaml *node) { return node->kind == YAML_MAP; }
int atoll_yaml_is_list(const atoll_yaml *node) { return node->kind == YAML_LIST; }
const char *atoll_yaml_text(const atoll_yaml *node) { return node->kind == YAML_SCALAR ? node->text : NULL; }
size_t atoll_yaml_count(const atoll_yaml *node) { return node->count; }

atoll_yaml *atoll_yaml_at(atoll_yaml *node, size_t i) {
  if (i >= node->count)
    return NULL;
  node->children[i]->read = 1;
  return node->children[i];
}

const char *atoll_yaml_key(const atoll_yaml *map, size_t i) { return i < map->count ? map->children[i]->key : NULL; }

/* Remember what a mapping was asked for: these are its known keys. Without memory a suggestion is lost, nothing else.
 */
static void remember_asked(atoll_yaml *map, const char *key) {
  for (size_t i = 0; i < map->asked_count; i++)
    if (!strcmp(map->asked[i], key))
      return;
  if (map->asked_count == map->asked_capacity) {
    size_t capacity = map->asked_capacity ? 2 * map->asked_capacity : 8;
    const char **asked = yaml_alloc(map->document, capacity * sizeof *asked);
    if (!asked)
      return;
    if (map->asked_count)
      memcpy(asked, map->asked, map->asked_count * sizeof *asked);
    map->asked = asked;
    map->asked_capacity = capacity;
  }
  char *copy = yaml_alloc(map->document, strlen(key) + 1);
  if (copy)
    map->asked[map->asked_count++] = strcpy(copy, key);
}

atoll_yaml *atoll_yaml_get(atoll_yaml *map, const char *key) {
  if (map->kind != YAML_MAP)
    return NULL;
  remember_asked(map, key);
  for (size_t i = 0; i < map->count; i++)
    if (!strcmp(map->children[i]->key, key)) {
      map->children[i]->read = 1;
      return map->children[i];
    }
  return NULL;
}

/* ---- typed children ---- */

static atoll_err lookup(atoll_yaml *map, const char *key, int required, const char *expected, atoll_yaml **node) {
  char path[512], found[128];
  if (map->kind != YAML_MAP)
    return atoll_fail(ATOLL_USAGE, "%s:%d: %s%sfound %s, expected a mapping with the key '%s'", map->document->file,
                      map->line, yaml_path(map, path, sizeof path), map->parent ? ": " : "",
                      yaml_found(map, found, sizeof found), key);
  *node = atoll_yaml_get(map, key);
  if (*node || !required)
    return ATOLL_OK;
  yaml_path(map, path, sizeof path);
  /* A misspelt key is the likely reason; only keys nobody asked for can be one. */
  for (size_t i = 0; i < map->count; i++)
    if (!map->children[i]->read && atoll_nearest(map->children[i]->key, &key, 1))
      return atoll_fail(ATOLL_USAGE, "%s:%d: the key '%s%s%s' is missing, expected %s; line %d has %s",
                        map->document->file, map->line, path, *path ? "." : "", key, expected, map->children[i]->line,
                        core_quote(map->children[i]->key, found, sizeof found));
  return atoll_fail(ATOLL_USAGE, "%s:%d: the key '%s%s%s' is missing, expected %s", map->document->file, map->line,
                    path, *path ? "." : "", key, expected);
}

static atoll_err wrong(const atoll_yaml *node, const char *expected) {
  char path[512], found[128];
  return atoll_fail(ATOLL_USAGE, "%s:%d: %s: found %s, expected %s", node->document->file, node->line,
                    yaml_path(node, path, sizeof path), yaml_found(node, found, sizeof found), expected);
}

atoll_err atoll_yaml_int(atoll_yaml *map, const char *key, int required, int64_t lo, int64_t hi, int64_t *out) {
  char expected[96] = "an integer";
  int64_t v;
  atoll_yaml *node = NULL;
  if (lo != INT64_MIN && hi != INT64_MAX)
    snprintf(expected, sizeof expected, "an integer in %lld..%lld", (long long)lo, (long long)hi);
  else if (lo != INT64_MIN)
    snprintf(expected, sizeof expected, "an integer in %lld..", (long long)lo);
  else if (hi != INT64_MAX)
    snprintf(expected, sizeof expected, "an integer in ..%lld", (long long)hi);
  ATOLL_TRY(lookup(map, key, required, expected, &node));
  if (!node)
    return ATOLL_OK;
  if (node->kind != YAML_SCALAR || atoll_parse_int(node->text, &v) || v < lo || v > hi)
    return wrong(node, expected);
  *out = v;
  return ATOLL_OK;
}

atoll_err atoll_yaml_real(atoll_yaml *map, const char *key, int required, double lo, double hi, double *out) {
  char expected[128] = "a number", low[CORE_REAL_TEXT_MAX], high[CORE_REAL_TEXT_MAX];
  double v;
  atoll_yaml *node = NULL;
  if (isfinite(lo) || isfinite(hi))
    snprintf(expected, sizeof expected, "a number in %s..%s", isfinite(lo) ? core_real_text(lo, low) : "",
             isfinite(hi) ? core_real_text(hi, high) : "");
  ATOLL_TRY(lookup(map, key, required, expected, &node));
  if (!node)
    return ATOLL_OK;
  /* A range that ends in an infinity contains it; no range contains nan. */
  if (node->kind != YAML_SCALAR || core_parse_real_any(node->text, &v) || !(v >= lo && v <= hi))
    return wrong(node, expected);
  *out = v;
  return ATOLL_OK;
}

int core_parse_bool(const char *s, int *out) {
  static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
  for (int i = 0; i < 8; i++)
    if (!strcasecmp(s, words[i])) {
      *out = i & 1;
      return 0;
    }
  return -1;
}

atoll_err atoll_yaml_bool(atoll_yaml *map, const char *key, int required, int *out) {
  atoll_yaml *node = NULL;
  ATOLL_TRY(lookup(map, key, required, "true or false", &node));
  if (node && (node->kind != YAML_SCALAR || core_parse_bool(node->text, out)))
    return wrong(node, "true or false");
  return ATOLL_OK;
}

atoll_err atoll_yaml_bytes(atoll_yaml *map, const char *key, int required, int64_t *out) {
  static const char expected[] = "a size such as 8GiB (units B kB MB GB TB KiB MiB GiB TiB)";
  atoll_yaml *node = NULL;
  ATOLL_TRY(lookup(map, key, required, expected, &node));
  if (node && (node->kind != YAML_SCALAR || atoll_parse_bytes(node->text, out)))
    return wrong(node, expected);
  return ATOLL_OK;
}

atoll_err atoll_yaml_string(atoll_yaml *map, const char *key, int required, char *out, size_t n) {
  char expected[64];
  atoll_yaml *node = NULL;
  snprintf(expected, sizeof expected, "text of at most %zu bytes", n - 1);
  ATOLL_TRY(lookup(map, key, required, expected, &node));
  if (!node)
    return ATOLL_OK;
  if (node->kind != YAML_SCALAR || strlen(node->text) >= n)
    return wrong(node, expected);
  memcpy(out, node->text, strlen(node->text) + 1);
  return ATOLL_OK;
}

atoll_err atoll_yaml_enum(atoll_yaml *map, const char *key, int required, const char *const *alternatives, int *out) {
  char expected[512] = "one of ", path[512], found[128];
  size_t used = strlen(expected), n = 0;
  for (; alternatives[n]; n++)
    if (used < sizeof expected)
      used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", n ? "|" : "", alternatives[n]);
  atoll_yaml *node = NULL;
  ATOLL_TRY(lookup(map, key, required, expected, &node));
  if (!node)
    return ATOLL_OK;
  for (size_t i = 0; node->kind == YAML_SCALAR && i < n; i++)
    if (!strcmp(node->text, alternatives[i])) {
      *out = (int)i;
      return ATOLL_OK;
    }
  const char *near = node->kind == YAML_SCALAR ? atoll_nearest(node->text, alternatives, n) : NULL;
  if (!near)
    return wrong(node, expected);
  return atoll_fail(ATOLL_USAGE, "%s:%d: %s: found %s, expected %s; did you mean '%s'?", node->document->file,
                    node->line, yaml_path(node, path, sizeof path), yaml_found(node, found, sizeof found), expected,
                    near);
}

static atoll_err child_of_kind(atoll_yaml *map, const char *key, int required, enum yaml_kind kind,
                               const char *expected, atoll_yaml **out) {
  atoll_yaml *node = NULL;
  ATOLL_TRY(lookup(map, key, required, expected, &node));
  if (!node)
    return ATOLL_OK;
  if (node->kind != kind)
    return wrong(node, expected);
  *out = node;
  return ATOLL_OK;
}

atoll_err atoll_yaml_map(atoll_yaml *map, const char *key, int required, atoll_yaml **out) {
  return child_of_kind(map, key, required, YAML_MAP, "a mapping", out);
}

atoll_err atoll_yaml_list(atoll_yaml *map, const char *key, int required, atoll_yaml **out) {
  return child_of_kind(map, key, required, YAML_LIST, "a list", out);
}

/* Depth is bounded by the reader. */
atoll_err atoll_yaml_unknown(const atoll_yaml *node) {
  char path[512];
  for (size_t i = 0; i < node->count; i++) {
    const atoll_yaml *child = node->children[i];
    if (node->kind == YAML_MAP && !child->read) {
      const char *near = atoll_nearest(child->key, node->asked, node->asked_count);
      return atoll_fail(ATOLL_USAGE, "%s:%d: unknown key '%s'%s%s%s", node->document->file, child->line,
                        yaml_path(child, path, sizeof path), near ? "; did you mean '" : "", near ? near : "",
                        near ? "'?" : "");
    }
    ATOLL_TRY(atoll_yaml_unknown(child));
  }
  return ATOLL_OK;
}

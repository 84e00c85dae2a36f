#include "opt_impl.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/yaml.h"
#include "text_impl.h"

#define VALUE_TEXT_MAX 2048 /* 64 integers of 20 digits and commas; strings are shorter */

extern char **environ;

/* ---- registry ---- */

/* Parse the default of a definition; a module whose table is wrong is found by its first test. */
static atoll_err default_value(const char *prefix, const atoll_opt_def *def, opt_value *value) {
  char why[256], expected[512];
  if (!def->default_text || opt_value_parse(def, def->default_text, value, why, sizeof why))
    return atoll_fail(ATOLL_INTERNAL, "option table: %s%s%s: default is '%s', expected %s%s", prefix,
                      *prefix ? "." : "", def->name, def->default_text ? def->default_text : "(NULL)",
                      opt_expected(def, expected, sizeof expected), why);
  return ATOLL_OK;
}

atoll_err atoll_opt_defaults(const atoll_opt_table *table, void *params) {
  opt_value value;
  for (const atoll_opt_def *def = table->defs; def->name; def++)
    ATOLL_TRY(default_value(table->prefix, def, &value));
  for (const atoll_opt_def *def = table->defs; def->name; def++) {
    ATOLL_TRY(default_value(table->prefix, def, &value));
    memcpy((char *)params + def->offset, &value, opt_value_bytes(def->type));
  }
  return ATOLL_OK;
}

atoll_err atoll_opts_create(atoll_opts **out) {
  atoll_opts *opts = calloc(1, sizeof *opts);
  if (!opts)
    return atoll_fail(ATOLL_NOMEM, "options: out of memory");
  *out = opts;
  return ATOLL_OK;
}

static void entry_free(struct opt_entry *e) {
  free(e->key);
  free(e->env);
  free(e->origin);
}

void atoll_opts_destroy(atoll_opts **opts) {
  if (!opts || !*opts)
    return;
  for (int i = 0; i < (*opts)->count; i++)
    entry_free(&(*opts)->entries[i]);
  free((*opts)->entries);
  free((*opts)->keys);
  free((*opts)->on_command);
  free(*opts);
  *opts = NULL;
}

static atoll_err reserve(atoll_opts *opts, int more) {
  int capacity = opts->count + more;
  if (capacity <= opts->capacity)
    return ATOLL_OK;
  struct opt_entry *entries = realloc(opts->entries, (size_t)capacity * sizeof *entries);
  if (entries)
    opts->entries = entries;
  const char **keys = realloc(opts->keys, (size_t)capacity * sizeof *keys);
  if (keys)
    opts->keys = keys;
  unsigned char *on_command = realloc(opts->on_command, (size_t)capacity);
  if (on_command)
    opts->on_command = on_command;
  if (!entries || !keys || !on_command)
    return atoll_fail(ATOLL_NOMEM, "options: out of memory for %d keys", capacity);
  opts->capacity = capacity;
  return ATOLL_OK;
}

static atoll_err entry_init(struct opt_entry *e, const atoll_opt_table *table, const atoll_opt_def *def, void *params) {
  size_t n = strlen(table->prefix) + strlen(def->name) + 2;
  *e = (struct opt_entry){.table = table, .def = def, .params = params, .key = malloc(n), .env = malloc(n + 6)};
  if (!e->key || !e->env) {
    entry_free(e);
    return atoll_fail(ATOLL_NOMEM, "options: out of memory for %s", def->name);
  }
  snprintf(e->key, n, "%s%s%s", table->prefix, *table->prefix ? "." : "", def->name);
  snprintf(e->env, n + 6, "ATOLL_%s", e->key);
  for (char *c = e->env; *c; c++)
    *c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
  return ATOLL_OK;
}

atoll_err atoll_opts_add(atoll_opts *opts, const atoll_opt_table *table, void *params) {
  int n = 0;
  while (table->defs[n].name)
    n++;
  ATOLL_TRY(reserve(opts, n));
  const int before = opts->count;
  atoll_err err = ATOLL_OK;
  for (int i = 0; i < n && err == ATOLL_OK; i++) {
    struct opt_entry *e = &opts->entries[opts->count];
    err = entry_init(e, table, &table->defs[i], params);
    if (err != ATOLL_OK)
      break;
    for (int j = 0; j < opts->count && err == ATOLL_OK; j++)
      if (!strcmp(opts->entries[j].key, e->key) || !strcmp(opts->entries[j].env, e->env))
        err = atoll_fail(ATOLL_INTERNAL, "option table: %s and %s have the same key or environment name",
                         opts->entries[j].key, e->key);
    if (err == ATOLL_OK && !strcmp(e->key, "include"))
      err = atoll_fail(ATOLL_INTERNAL, "option table: the key include is taken");
    if (err != ATOLL_OK) {
      entry_free(e);
      break;
    }
    opts->keys[opts->count] = e->key;
    opts->on_command[opts->count] = 0;
    opts->count++;
  }
  if (err == ATOLL_OK)
    err = atoll_opt_defaults(table, params);
  if (err != ATOLL_OK)
    while (opts->count > before)
      entry_free(&opts->entries[--opts->count]);
  return err;
}

int atoll_opts_count(const atoll_opts *opts) { return opts->count; }

int atoll_opts_find(const atoll_opts *opts, const char *key) {
  for (int i = 0; i < opts->count; i++)
    if (!strcmp(opts->keys[i], key))
      return i;
  return -1;
}

const char *atoll_opts_key(const atoll_opts *opts, int i) { return opts->keys[i]; }

const char *atoll_opts_value(const atoll_opts *opts, int i, char *buf, size_t n) {
  const struct opt_entry *e = &opts->entries[i];
  return opt_value_text(e->def, e->params + e->def->offset, buf, n);
}

atoll_opt_source atoll_opts_source(const atoll_opts *opts, int i) { return opts->entries[i].source; }

const char *atoll_opts_origin(const atoll_opts *opts, int i) {
  return opts->entries[i].origin ? opts->entries[i].origin : "default";
}

/* ---- setting ---- */

atoll_err opt_pending_add(const atoll_opts *opts, struct opt_pending *pending, int index, atoll_opt_source source,
                          const char *origin, const char *text) {
  const struct opt_entry *e = &opts->entries[index];
  opt_value value;
  char why[256], expected[512], found[128];
  memset(&value, 0, sizeof value);
  if (opt_value_parse(e->def, text, &value, why, sizeof why))
    return atoll_fail(ATOLL_USAGE, "%s: %s: found %s, expected %s%s", origin, e->key,
                      *text ? core_quote(text, found, sizeof found) : "nothing",
                      opt_expected(e->def, expected, sizeof expected), why);
  if (pending->count == pending->capacity) {
    size_t capacity = pending->capacity ? 2 * pending->capacity : 32;
    struct opt_item *items = realloc(pending->items, capacity * sizeof *items);
    if (!items)
      return atoll_fail(ATOLL_NOMEM, "%s: out of memory", origin);
    pending->items = items;
    pending->capacity = capacity;
  }
  struct opt_item item = {.index = index, .source = source, .origin = strdup(origin), .value = malloc(sizeof value)};
  if (!item.origin || !item.value) {
    free(item.origin);
    free(item.value);
    return atoll_fail(ATOLL_NOMEM, "%s: out of memory", origin);
  }
  *item.value = value;
  pending->items[pending->count++] = item;
  return ATOLL_OK;
}

void opt_pending_apply(atoll_opts *opts, struct opt_pending *pending) {
  for (size_t i = 0; i < pending->count; i++) {
    struct opt_item *item = &pending->items[i];
    struct opt_entry *e = &opts->entries[item->index];
    if (item->source < e->source) /* whatever the order of the calls, a stronger source stays */
      continue;
    memcpy(e->params + e->def->offset, item->value, opt_value_bytes(e->def->type));
    e->source = item->source;
    free(e->origin);
    e->origin = item->origin;
    item->origin = NULL;
  }
}

void opt_pending_free(struct opt_pending *pending) {
  for (size_t i = 0; i < pending->count; i++) {
    free(pending->items[i].origin);
    free(pending->items[i].value);
  }
  free(pending->items);
  *pending = (struct opt_pending){0};
}

int opt_is_section(const atoll_opts *opts, const char *section) {
  size_t n = strlen(section);
  for (int i = 0; i < opts->count; i++)
    if (!strncmp(opts->keys[i], section, n) && opts->keys[i][n] == '.')
      return 1;
  return 0;
}

/* The nearest key; else the key whose last component is meant ("evry_steps"); else the nearest section. */
static const char *suggest(const atoll_opts *opts, const char *key) {
  const char *near = atoll_nearest(key, opts->keys, (size_t)opts->count);
  const char **words = near || !opts->count ? NULL : malloc((size_t)opts->count * sizeof *words);
  if (!words)
    return near;
  for (int i = 0; i < opts->count; i++) {
    const char *dot = strrchr(opts->keys[i], '.');
    words[i] = dot ? dot + 1 : opts->keys[i];
  }
  const char *last = strrchr(key, '.'), *word = atoll_nearest(last ? last + 1 : key, words, (size_t)opts->count);
  for (int i = 0; word && i < opts->count && !near; i++)
    if (words[i] == word)
      near = opts->keys[i];
  if (!near) {
    for (int i = 0; i < opts->count; i++)
      words[i] = opts->entries[i].table->prefix;
    near = atoll_nearest(key, words, (size_t)opts->count);
  }
  free(words);
  return near;
}

atoll_err opt_unknown_key(const atoll_opts *opts, const char *origin, const char *key) {
  char found[128];
  const char *near = suggest(opts, key);
  if (!near)
    return atoll_fail(ATOLL_USAGE, "%s: unknown key %s, expected one that --help lists", origin,
                      core_quote(key, found, sizeof found));
  return atoll_fail(ATOLL_USAGE, "%s: unknown key %s; did you mean '%s'?", origin, core_quote(key, found, sizeof found),
                    near);
}

atoll_err atoll_opts_set(atoll_opts *opts, const char *assignment) {
  char found[128], key[256];
  const char *equals = strchr(assignment, '=');
  if (!equals || equals == assignment)
    return atoll_fail(ATOLL_USAGE, "command line: found %s, expected key=value",
                      core_quote(assignment, found, sizeof found));
  size_t n = (size_t)(equals - assignment);
  if (n >= sizeof key)
    return atoll_fail(ATOLL_USAGE, "command line: found the key %s of %zu bytes, expected at most %zu",
                      core_quote(assignment, found, sizeof found), n, sizeof key - 1);
  memcpy(key, assignment, n);
  key[n] = 0;
  int index = atoll_opts_find(opts, key);
  if (index < 0)
    return opt_unknown_key(opts, "command line", key);
  if (opts->on_command[index])
    return atoll_fail(ATOLL_USAGE, "command line: %s is given again, expected each key once", key);
  struct opt_pending pending = {0};
  atoll_err err = opt_pending_add(opts, &pending, index, ATOLL_FROM_COMMAND, "command line", equals + 1);
  if (err == ATOLL_OK) {
    opt_pending_apply(opts, &pending);
    opts->on_command[index] = 1;
  }
  opt_pending_free(&pending);
  return err;
}

/* ---- environment ---- */

static int starts_with(const char *s, const char *start) { return !strncmp(s, start, strlen(start)); }

/* Variables of Atoll that are not options. */
static int is_reserved(const char *name) {
  static const char *const names[] = {"ATOLL_LOG",  "ATOLL_FAULT",  "ATOLL_PLUGIN_PATH", "ATOLL_SYMMETRIC",
                                      "ATOLL_SITE", "ATOLL_SHARED", "ATOLL_ROOT"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i]))
      return 1;
  return starts_with(name, "ATOLL_TEST_");
}

/* A name under the prefix of a table is meant for us; any other ATOLL_ name may belong to somebody else. */
static int has_our_prefix(const atoll_opts *opts, const char *name) {
  for (int i = 0; i < opts->count; i++) {
    size_t n = strlen(opts->entries[i].table->prefix);
    if (n && !strncmp(name, opts->entries[i].env, 6 + n + 1))
      return 1;
  }
  return 0;
}

static atoll_err take_variable(const atoll_opts *opts, struct opt_pending *pending, const char *variable) {
  char name[256], found[128];
  const char *equals = strchr(variable, '=');
  size_t n = equals ? (size_t)(equals - variable) : 0;
  if (!n || n >= sizeof name || !starts_with(variable, "ATOLL_"))
    return ATOLL_OK;
  memcpy(name, variable, n);
  name[n] = 0;
  if (is_reserved(name))
    return ATOLL_OK;
  for (int i = 0; i < opts->count; i++)
    if (!strcmp(name, opts->entries[i].env))
      return opt_pending_add(opts, pending, i, ATOLL_FROM_ENV, name, equals + 1);
  if (!has_our_prefix(opts, name))
    return ATOLL_OK;
  const char **names = malloc((size_t)opts->count * sizeof *names), *near = NULL;
  for (int i = 0; names && i < opts->count; i++)
    names[i] = opts->entries[i].env;
  if (names)
    near = atoll_nearest(name, names, (size_t)opts->count);
  free(names);
  return atoll_fail(ATOLL_USAGE, "environment: unknown variable %s%s%s%s", core_quote(name, found, sizeof found),
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

atoll_err atoll_opts_load_env(atoll_opts *opts) {
  struct opt_pending pending = {0};
  atoll_err err = ATOLL_OK;
  for (char **variable = environ; variable && *variable && err == ATOLL_OK; variable++)
    err = take_variable(opts, &pending, *variable);
  if (err == ATOLL_OK)
    opt_pending_apply(opts, &pending);
  opt_pending_free(&pending);
  return err;
}

/* ---- showing ---- */

/* A value a reader can see the ends of: quoted when empty or when it holds blanks or control bytes. */
static void shown_value(core_text *t, const char *value) {
  int plain = *value != 0;
  for (const char *c = value; *c; c++)
    plain &= (unsigned char)*c > ' ' && *c != 0x7F && *c != '#' && *c != '"';
  if (plain || core_text_yaml_quoted(t, value))
    core_text_puts(t, plain ? value : "?");
}

static const char *range_and_unit(const atoll_opt_def *def, char *buf, size_t n) {
  const char *range = def->range ? def->range : "", *unit = def->unit ? def->unit : "";
  snprintf(buf, n, "%s%s%s", range, *range && *unit ? " " : "", unit);
  return buf;
}

void atoll_opts_print(const atoll_opts *opts, FILE *f) {
  char value[VALUE_TEXT_MAX], limits[512];
  for (int i = 0; i < opts->count; i++) {
    const struct opt_entry *e = &opts->entries[i];
    core_text line = {0};
    core_text_puts(&line, e->key);
    core_text_puts(&line, " ");
    shown_value(&line, atoll_opts_value(opts, i, value, sizeof value));
    if (line.size < 47)
      core_text_pad(&line, ' ', 47 - line.size);
    core_text_puts(&line, " # ");
    core_text_puts(&line, atoll_opts_origin(opts, i));
    core_text_puts(&line, "; default ");
    shown_value(&line, e->def->default_text);
    if (*range_and_unit(e->def, limits, sizeof limits)) {
      core_text_puts(&line, "; ");
      core_text_puts(&line, limits);
    }
    fprintf(f, "%s\n", line.failed ? "(out of memory)" : line.data);
    free(line.data);
  }
}

static const char *type_name(atoll_opt_type type) {
  static const char *const names[] = {"true|false", "integer", "number", "text", "", "bytes", "time", "integers"};
  return names[type];
}

static void print_wrapped(FILE *f, const char *text, int indent, int width) {
  int column = 0;
  while (*text) {
    int n = (int)strcspn(text, " ");
    if (column && column + 1 + n > width) {
      fputc('\n', f);
      column = 0;
    }
    if (!column) {
      fprintf(f, "%*s", indent, "");
      column = indent;
    } else {
      fputc(' ', f);
      column++;
    }
    fprintf(f, "%.*s", n, text);
    column += n;
    text += n;
    text += strspn(text, " ");
  }
  if (column)
    fputc('\n', f);
}

void atoll_opts_help(const atoll_opts *opts, FILE *f) {
  char limits[512];
  const atoll_opt_table *table = NULL;
  for (int i = 0; i < opts->count; i++) {
    const struct opt_entry *e = &opts->entries[i];
    if (e->table != table)
      fprintf(f, "%s%s\n", table ? "\n" : "", *e->table->prefix ? e->table->prefix : "general");
    table = e->table;
    core_text line = {0};
    core_text_puts(&line, e->key);
    core_text_puts(&line, " ");
    if (*type_name(e->def->type)) {
      core_text_puts(&line, " ");
      core_text_puts(&line, type_name(e->def->type));
    }
    if (*range_and_unit(e->def, limits, sizeof limits)) {
      core_text_puts(&line, " ");
      core_text_puts(&line, limits);
    }
    core_text_puts(&line, " (default ");
    shown_value(&line, e->def->default_text);
    core_text_puts(&line, ")");
    fprintf(f, "  %s\n", line.failed ? e->key : line.data);
    free(line.data);
    print_wrapped(f, e->def->help ? e->def->help : "", 6, 110);
  }
}

static void put_value(atoll_yaml_out *o, const struct opt_entry *e) {
  const char *name = e->def->name;
  const void *field = e->params + e->def->offset;
  char word[64];
  switch (e->def->type) {
  case ATOLL_OPT_BOOL:
    atoll_yaml_put_bool(o, name, *(const int *)field);
    break;
  case ATOLL_OPT_INT:
  case ATOLL_OPT_BYTES:
    atoll_yaml_put_int(o, name, *(const int64_t *)field);
    break;
  case ATOLL_OPT_REAL:
  case ATOLL_OPT_SECONDS:
    atoll_yaml_put_real(o, name, *(const double *)field);
    break;
  case ATOLL_OPT_STRING:
    atoll_yaml_put_text(o, name, field);
    break;
  case ATOLL_OPT_ENUM:
    atoll_yaml_put_text(o, name, opt_value_text(e->def, field, word, sizeof word));
    break;
  case ATOLL_OPT_INTS:
    atoll_yaml_put_ints(o, name, ((const atoll_opt_ints *)field)->v, (size_t)((const atoll_opt_ints *)field)->n);
    break;
  }
}

atoll_err atoll_opts_yaml(const atoll_opts *opts, char **text) {
  atoll_yaml_out *o = NULL;
  const char *written = NULL;
  ATOLL_TRY(atoll_yaml_out_create(&o));
  for (int i = 0; i < opts->count; i++) {
    const char *prefix = opts->entries[i].table->prefix;
    int earlier = 0;
    for (int j = 0; j < i && !earlier; j++)
      earlier = !strcmp(opts->entries[j].table->prefix, prefix);
    if (earlier)
      continue; /* written with the first of its prefix: a mapping names each section once */
    if (*prefix)
      atoll_yaml_open_map(o, prefix);
    for (int j = i; j < opts->count; j++)
      if (!strcmp(opts->entries[j].table->prefix, prefix))
        put_value(o, &opts->entries[j]);
    if (*prefix)
      atoll_yaml_close(o);
  }
  atoll_err err = atoll_yaml_out_text(o, &written);
  if (err == ATOLL_OK) {
    char *copy = strdup(written);
    if (copy)
      *text = copy;
    else
      err = atoll_fail(ATOLL_NOMEM, "options as YAML: out of memory");
  }
  atoll_yaml_out_destroy(&o);
  return err;
}

static int is_listed(const char *prefix, const char *const *prefixes) {
  if (!prefixes)
    return 1;
  for (; *prefixes; prefixes++)
    if (!strcmp(prefix, *prefixes))
      return 1;
  return 0;
}

/* Chained in the order of the keys, so that the order of registration does not matter, and without memory, so that it
 * cannot fail. */
atoll_digest atoll_opts_digest(const atoll_opts *opts, const char *const *prefixes) {
  struct {
    unsigned char before[16], key[16], value[16];
  } link;
  atoll_digest d = atoll_digest_bytes("atoll options 1", 15);
  char value[VALUE_TEXT_MAX];
  const char *last = NULL;
  for (;;) {
    int next = -1;
    for (int i = 0; i < opts->count; i++)
      if (is_listed(opts->entries[i].table->prefix, prefixes) && (!last || strcmp(opts->keys[i], last) > 0) &&
          (next < 0 || strcmp(opts->keys[i], opts->keys[next]) < 0))
        next = i;
    if (next < 0)
      return d;
    last = opts->keys[next];
    atoll_opts_value(opts, next, value, sizeof value);
    const atoll_digest parts[3] = {d, atoll_digest_bytes(last, strlen(last)), atoll_digest_bytes(value, strlen(value))};
    unsigned char *const bytes[3] = {link.before, link.key, link.value};
    for (int p = 0; p < 3; p++)
      for (int b = 0; b < 8; b++) {
        bytes[p][b] = (unsigned char)(parts[p].lo >> (8 * b));
        bytes[p][8 + b] = (unsigned char)(parts[p].hi >> (8 * b));
      }
    d = atoll_digest_bytes(&link, sizeof link);
  }
}

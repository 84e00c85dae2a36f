/** Options: one table per module declares each key, and parsing, validation, `--help`, `--print-config` and the copy
 * stored in output files all come from it.
 *
 *  A key is the C field name, dotted after the table's prefix: field `every_steps` of table "ckpt" is
 * `ckpt.every_steps`. Precedence: default < included file < file < environment (ATOLL_CKPT_EVERY_STEPS) < command line
 * (ckpt.every_steps=50). In YAML keys may be nested mappings or dotted. The top-level key `include` (a path or list of
 * paths, relative to the file that names them) reads other option files first. Unknown, repeated or ill-typed keys are
 * USAGE errors that name file, line, what was found and what was expected, and the nearest known key. */
#ifndef ATOLL_OPT_H
#define ATOLL_OPT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "atoll/digest.h"
#include "atoll/err.h"

ATOLL_BEGIN_C

typedef enum atoll_opt_type {
  ATOLL_OPT_BOOL,    /* int: true false yes no on off 1 0 */
  ATOLL_OPT_INT,     /* int64_t */
  ATOLL_OPT_REAL,    /* double */
  ATOLL_OPT_STRING,  /* char[ATOLL_OPT_STRING_MAX] */
  ATOLL_OPT_ENUM,    /* int: index into the alternatives of `range` ("a|b|c") */
  ATOLL_OPT_BYTES,   /* int64_t; accepts KiB MiB GiB TiB kB MB GB TB B */
  ATOLL_OPT_SECONDS, /* double; accepts ms s min h d and [D-]HH:MM:SS */
  ATOLL_OPT_INTS     /* atoll_opt_ints; YAML sequence or "1,2,4" */
} atoll_opt_type;

#define ATOLL_OPT_STRING_MAX 512
#define ATOLL_OPT_INTS_MAX   64

typedef struct atoll_opt_ints {
  int64_t n, v[ATOLL_OPT_INTS_MAX];
} atoll_opt_ints;

typedef struct atoll_opt_def {
  const char *name; /* field name; the key is prefix.name, or name when the prefix is "" */
  atoll_opt_type type;
  size_t offset;            /* offsetof the field in the params struct */
  const char *default_text; /* parsed like user input; "" allowed for strings and lists */
  const char *range;        /* numbers "lo..hi" (either end may be empty), enums "a|b|c", strings NULL */
  const char *unit;         /* shown in help and print-config; "" when there is none */
  const char *help;         /* one sentence */
} atoll_opt_def;

/** A module exports one: `extern const atoll_opt_table atoll_ckpt_options;` with params struct `atoll_ckpt_params`. */
typedef struct atoll_opt_table {
  const char *prefix;
  const atoll_opt_def *defs; /* ends with name == NULL */
} atoll_opt_table;

/** Fill a params struct with its defaults. Every module's `_params_init` calls this. INTERNAL if a default is
 * ill-formed. */
ATOLL_API atoll_err atoll_opt_defaults(const atoll_opt_table *table, void *params);

typedef struct atoll_opts atoll_opts;
typedef enum atoll_opt_source {
  ATOLL_FROM_DEFAULT,
  ATOLL_FROM_INCLUDE,
  ATOLL_FROM_FILE,
  ATOLL_FROM_ENV,
  ATOLL_FROM_COMMAND
} atoll_opt_source;

ATOLL_API atoll_err atoll_opts_create(atoll_opts **out);
ATOLL_API void atoll_opts_destroy(atoll_opts **opts);
/** Register a table; `params` is borrowed for the life of opts and receives defaults now, values later. */
ATOLL_API atoll_err atoll_opts_add(atoll_opts *opts, const atoll_opt_table *table, void *params);
/** Read a YAML file (local). NOINPUT when unreadable, USAGE on bad content. */
ATOLL_API atoll_err atoll_opts_load_file(atoll_opts *opts, const char *path);
/** The same from memory; `name` stands for the file in messages. Includes are relative to the directory part of `name`.
 */
ATOLL_API atoll_err atoll_opts_load_text(atoll_opts *opts, const char *name, const char *text, size_t bytes);
/** ATOLL_<KEY with dots as underscores, upper case>. Variables of Atoll that are not options (ATOLL_LOG, ATOLL_FAULT,
 *  ATOLL_TEST_*, ATOLL_PLUGIN_PATH, ATOLL_SITE, ATOLL_SHARED, ATOLL_ROOT) are ignored; any other unknown ATOLL_ name
 * whose first component is a registered prefix is an error with a suggestion. */
ATOLL_API atoll_err atoll_opts_load_env(atoll_opts *opts);
/** One `key=value` word of the command line. */
ATOLL_API atoll_err atoll_opts_set(atoll_opts *opts, const char *assignment);

/** Lookup. key_index < 0 when unknown. */
ATOLL_API int atoll_opts_count(const atoll_opts *opts);
ATOLL_API int atoll_opts_find(const atoll_opts *opts, const char *key);
ATOLL_API const char *atoll_opts_key(const atoll_opts *opts, int i);
/** Value as canonical text (bytes and seconds without unit suffix rounding: exact); into buf. */
ATOLL_API const char *atoll_opts_value(const atoll_opts *opts, int i, char *buf, size_t n);
ATOLL_API atoll_opt_source atoll_opts_source(const atoll_opts *opts, int i);
/** "command line", "ATOLL_CKPT_KEEP", "jobs/quick.yaml:12", "default". Borrowed. */
ATOLL_API const char *atoll_opts_origin(const atoll_opts *opts, int i);

/** `key value   # origin; default D; range unit`, one option a line. */
ATOLL_API void atoll_opts_print(const atoll_opts *opts, FILE *f);
/** Help text of every option, grouped by prefix. */
ATOLL_API void atoll_opts_help(const atoll_opts *opts, FILE *f);
/** Effective options as YAML that atoll_opts_load_text() reads back to the same values. *text is owned: free(). */
ATOLL_API atoll_err atoll_opts_yaml(const atoll_opts *opts, char **text);
/** Digest over keys and values of tables whose prefix is listed (NULL-terminated), or all when NULL. */
ATOLL_API atoll_digest atoll_opts_digest(const atoll_opts *opts, const char *const *prefixes);

/** Parsers used by the table, for other readers of the same forms. 0 on success, -1 otherwise. */
ATOLL_API int atoll_parse_bytes(const char *s, int64_t *out);
ATOLL_API int atoll_parse_seconds(const char *s, double *out);
ATOLL_API int atoll_parse_int(const char *s, int64_t *out);
ATOLL_API int atoll_parse_real(const char *s, double *out);
/** Nearest of n candidates by edit distance, or NULL when nothing is near. Borrowed from the list. */
ATOLL_API const char *atoll_nearest(const char *word, const char *const *candidates, size_t n);

ATOLL_END_C
#endif

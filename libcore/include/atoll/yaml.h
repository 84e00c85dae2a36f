/** A small tree over libyaml events with line numbers, for files that are data rather than options (plans, clusters).
 *
 *  Aliases and anchors are refused; a repeated key in a mapping is an error naming both lines. Every accessor records
 *  which keys were read, so that atoll_yaml_unknown() can refuse the rest. */
#ifndef ATOLL_YAML_H
#define ATOLL_YAML_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_yaml atoll_yaml; /* a node; children are borrowed from the root */

ATOLL_API atoll_err atoll_yaml_load(const char *path, atoll_yaml **root);
ATOLL_API atoll_err atoll_yaml_parse(const char *name, const char *text, size_t bytes, atoll_yaml **root);
ATOLL_API void atoll_yaml_destroy(atoll_yaml **root);

ATOLL_API int atoll_yaml_line(const atoll_yaml *node);
ATOLL_API const char *atoll_yaml_file(const atoll_yaml *node);
ATOLL_API int atoll_yaml_is_map(const atoll_yaml *node);
ATOLL_API int atoll_yaml_is_list(const atoll_yaml *node);
ATOLL_API const char *atoll_yaml_text(const atoll_yaml *node); /* scalar text, NULL when not a scalar */
ATOLL_API size_t atoll_yaml_count(const atoll_yaml *node);     /* children of a map or list */
ATOLL_API atoll_yaml *atoll_yaml_at(atoll_yaml *node, size_t i);
ATOLL_API const char *atoll_yaml_key(const atoll_yaml *map, size_t i);
/** Child by key, marked as read; NULL when absent. */
ATOLL_API atoll_yaml *atoll_yaml_get(atoll_yaml *map, const char *key);

/** Typed children. `required` 0 leaves *out untouched when the key is absent. USAGE names file, line, key, found,
 * expected. */
ATOLL_API atoll_err atoll_yaml_int(atoll_yaml *map, const char *key, int required, int64_t lo, int64_t hi,
                                   int64_t *out);
ATOLL_API atoll_err atoll_yaml_real(atoll_yaml *map, const char *key, int required, double lo, double hi, double *out);
ATOLL_API atoll_err atoll_yaml_bool(atoll_yaml *map, const char *key, int required, int *out);
ATOLL_API atoll_err atoll_yaml_bytes(atoll_yaml *map, const char *key, int required, int64_t *out);
/** Copies at most n-1 bytes; longer text is an error. */
ATOLL_API atoll_err atoll_yaml_string(atoll_yaml *map, const char *key, int required, char *out, size_t n);
/** Index into the NULL-terminated alternatives. */
ATOLL_API atoll_err atoll_yaml_enum(atoll_yaml *map, const char *key, int required, const char *const *alternatives,
                                    int *out);
ATOLL_API atoll_err atoll_yaml_map(atoll_yaml *map, const char *key, int required, atoll_yaml **out);
ATOLL_API atoll_err atoll_yaml_list(atoll_yaml *map, const char *key, int required, atoll_yaml **out);
/** USAGE naming the first key, at any depth, that no accessor asked for, with the nearest one that was. */
ATOLL_API atoll_err atoll_yaml_unknown(const atoll_yaml *root);

/** Writer: indented YAML to a growing text. Keys are written in call order. NULL key inside lists. Reals print with 17
 * digits when needed to read back exactly. */
typedef struct atoll_yaml_out atoll_yaml_out;
ATOLL_API atoll_err atoll_yaml_out_create(atoll_yaml_out **out);
ATOLL_API void atoll_yaml_out_destroy(atoll_yaml_out **out);
ATOLL_API void atoll_yaml_put_int(atoll_yaml_out *o, const char *key, int64_t v);
ATOLL_API void atoll_yaml_put_real(atoll_yaml_out *o, const char *key, double v);
ATOLL_API void atoll_yaml_put_bool(atoll_yaml_out *o, const char *key, int v);
ATOLL_API void atoll_yaml_put_text(atoll_yaml_out *o, const char *key, const char *v);
ATOLL_API void atoll_yaml_put_ints(atoll_yaml_out *o, const char *key, const int64_t *v, size_t n); /* flow [1, 2] */
ATOLL_API void atoll_yaml_open_map(atoll_yaml_out *o, const char *key);
ATOLL_API void atoll_yaml_open_list(atoll_yaml_out *o, const char *key);
ATOLL_API void atoll_yaml_close(atoll_yaml_out *o);
ATOLL_API void atoll_yaml_comment(atoll_yaml_out *o, const char *fmt, ...) ATOLL_PRINTF(2, 3);
/** The text so far; owned by the writer. NOMEM, or INTERNAL when maps and lists are unbalanced. */
ATOLL_API atoll_err atoll_yaml_out_text(atoll_yaml_out *o, const char **text);

ATOLL_END_C
#endif

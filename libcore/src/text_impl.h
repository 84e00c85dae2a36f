/* Text helpers shared by options, YAML and the command line. Private to libcore. */
#ifndef ATOLL_TEXT_IMPL_H
#define ATOLL_TEXT_IMPL_H

#include <stddef.h>
#include <stdint.h>

#define CORE_REAL_TEXT_MAX 40

/* Shortest decimal text that reads back to the same double, with a point whatever the locale. nan, inf, -inf otherwise.
 */
const char *core_real_text(double v, char buf[CORE_REAL_TEXT_MAX]);
/* Like atoll_parse_real, but also reads nan, inf, .nan, .inf with a sign. */
int core_parse_real_any(const char *s, double *out);
/* Next code point of s (n bytes left); its length, or 0 when the bytes are not UTF-8 (overlong and surrogates
 * included). */
size_t core_utf8_next(const char *s, size_t n, uint32_t *point);
/* true false yes no on off 1 0 in either case; 0 on success. */
int core_parse_bool(const char *s, int *out);
int core_utf8_valid(const char *s, size_t n);
/* 's' between quotes for messages: cut after some 60 bytes, control bytes and bad UTF-8 as \xNN. Returns buf. */
const char *core_quote(const char *s, char *buf, size_t n);

/* A text that grows. Once memory is gone `failed` is set and later additions do nothing. */
typedef struct core_text {
  char *data; /* NUL-terminated once anything was added */
  size_t size, capacity;
  int failed;
} core_text;
void core_text_add(core_text *t, const char *s, size_t n);
void core_text_puts(core_text *t, const char *s);
void core_text_pad(core_text *t, char c, size_t n);
/* s as a YAML double-quoted scalar; -1 when it is not UTF-8. */
int core_text_yaml_quoted(core_text *t, const char *s);

#endif

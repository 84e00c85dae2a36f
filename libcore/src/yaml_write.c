/* Block YAML, written forward. An opened map or list has put its "key:" or "-" on the page but no line end; the first
 * child decides whether it continues on that line ("- key: value"), and closing without a child writes {} or []. */
#include "atoll/yaml.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text_impl.h"
#include "yaml_impl.h"

struct frame {
  int is_list;
  int in_list; /* this frame is an item of a list: its first child may share the line of the "-" */
  int started; /* the opening line is ended or shared */
  size_t count;
  size_t indent; /* of its children */
};

struct atoll_yaml_out {
  core_text text;
  struct frame frames[YAML_MAX_DEPTH + 1];
  int depth;
  atoll_err error;
  const char *reason;
};

atoll_err atoll_yaml_out_create(atoll_yaml_out **out) {
  atoll_yaml_out *o = calloc(1, sizeof *o);
  if (!o)
    return atoll_fail(ATOLL_NOMEM, "YAML writer: out of memory");
  o->frames[0].started = 1;
  *out = o;
  return ATOLL_OK;
}

void atoll_yaml_out_destroy(atoll_yaml_out **out) {
  if (!out || !*out)
    return;
  free((*out)->text.data);
  free(*out);
  *out = NULL;
}

static void broken(atoll_yaml_out *o, atoll_err error, const char *reason) {
  if (o->error == ATOLL_OK) {
    o->error = error;
    o->reason = reason;
  }
}

/* Plain where every YAML reader, whatever its version, sees the same text; quoted otherwise ("no", "1e3", "~", "a: b").
 */
static int is_plain(const char *s) {
  static const char *const taken[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  if (!isalpha((unsigned char)*s) && *s != '_' && *s != '/')
    return 0;
  for (const char *c = s; *c; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || strchr("_./+-", *c)))
      return 0;
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
    if (!strcasecmp(s, taken[i]))
      return 0;
  return strlen(s) <= 120;
}

static void put_scalar(atoll_yaml_out *o, const char *s) {
  if (is_plain(s))
    core_text_puts(&o->text, s);
  else if (core_text_yaml_quoted(&o->text, s))
    broken(o, ATOLL_USAGE, "a text is not valid UTF-8");
}

/* Everything before a value: end of the opening line, indentation, "key:" or "-". */
static void begin(atoll_yaml_out *o, const char *key) {
  struct frame *f = &o->frames[o->depth];
  if (f->is_list == (key != NULL))
    broken(o, ATOLL_INTERNAL, f->is_list ? "a key inside a list" : "a mapping's value without a key");
  if (!f->started && f->in_list) {
    core_text_puts(&o->text, " ");
  } else {
    if (!f->started)
      core_text_puts(&o->text, "\n");
    core_text_pad(&o->text, ' ', f->indent);
  }
  f->started = 1;
  f->count++;
  if (f->is_list) {
    core_text_puts(&o->text, "-");
  } else {
    put_scalar(o, key ? key : "");
    core_text_puts(&o->text, ":");
  }
}

static void put_raw(atoll_yaml_out *o, const char *key, const char *value) {
  begin(o, key);
  core_text_puts(&o->text, " ");
  core_text_puts(&o->text, value);
  core_text_puts(&o->text, "\n");
}

void atoll_yaml_put_int(atoll_yaml_out *o, const char *key, int64_t v) {
  char word[32];
  snprintf(word, sizeof word, "%lld", (long long)v);
  put_raw(o, key, word);
}

void atoll_yaml_put_real(atoll_yaml_out *o, const char *key, double v) {
  char word[CORE_REAL_TEXT_MAX], full[CORE_REAL_TEXT_MAX + 4];
  if (!isfinite(v)) {
    put_raw(o, key, isnan(v) ? ".nan" : v < 0 ? "-.inf" : ".inf");
    return;
  }
  /* YAML 1.1 readers take 1e-05 for a text; 1.0e-05 is a number to all of them. */
  core_real_text(v, word);
  size_t mantissa = strcspn(word, "e");
  snprintf(full, sizeof full, "%.*s%s%s", (int)mantissa, word, memchr(word, '.', mantissa) ? "" : ".0",
           word + mantissa);
  put_raw(o, key, full);
}

void atoll_yaml_put_bool(atoll_yaml_out *o, const char *key, int v) { put_raw(o, key, v ? "true" : "false"); }

void atoll_yaml_put_text(atoll_yaml_out *o, const char *key, const char *v) {
  begin(o, key);
  core_text_puts(&o->text, " ");
  put_scalar(o, v);
  core_text_puts(&o->text, "\n");
}

void atoll_yaml_put_ints(atoll_yaml_out *o, const char *key, const int64_t *v, size_t n) {
  begin(o, key);
  core_text_puts(&o->text, " [");
  for (size_t i = 0; i < n; i++) {
    char word[32];
    snprintf(word, sizeof word, "%s%lld", i ? ", " : "", (long long)v[i]);
    core_text_puts(&o->text, word);
  }
  core_text_puts(&o->text, "]\n");
}

static void open_frame(atoll_yaml_out *o, const char *key, int is_list) {
  begin(o, key);
  if (o->depth == YAML_MAX_DEPTH) {
    broken(o, ATOLL_INTERNAL, "nested deeper than the reader accepts");
    return;
  }
  const struct frame *parent = &o->frames[o->depth];
  o->frames[o->depth + 1] =
      (struct frame){.is_list = is_list, .in_list = parent->is_list, .indent = parent->indent + 2};
  o->depth++;
}

void atoll_yaml_open_map(atoll_yaml_out *o, const char *key) { open_frame(o, key, 0); }
void atoll_yaml_open_list(atoll_yaml_out *o, const char *key) { open_frame(o, key, 1); }

void atoll_yaml_close(atoll_yaml_out *o) {
  if (!o->depth) {
    broken(o, ATOLL_INTERNAL, "more closed than opened");
    return;
  }
  const struct frame *f = &o->frames[o->depth];
  if (!f->count) {
    if (f->started)
      core_text_pad(&o->text, ' ', f->indent);
    core_text_puts(&o->text, f->is_list ? (f->started ? "[]\n" : " []\n") : (f->started ? "{}\n" : " {}\n"));
  }
  o->depth--;
}

void atoll_yaml_comment(atoll_yaml_out *o, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (n < 0)
    return;
  struct frame *f = &o->frames[o->depth];
  if (!f->started)
    core_text_puts(&o->text, "\n");
  f->started = 1;
  for (char *line = text, *next; line; line = next) {
    next = strchr(line, '\n');
    if (next)
      *next++ = 0;
    for (char *c = line; *c; c++)
      if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7F)
        *c = ' ';
    if (!core_utf8_valid(line, strlen(line))) /* also a character cut at the end of the buffer */
      for (char *c = line; *c; c++)
        if ((unsigned char)*c >= 0x80)
          *c = '?';
    core_text_pad(&o->text, ' ', f->indent);
    core_text_puts(&o->text, "# ");
    core_text_puts(&o->text, line);
    core_text_puts(&o->text, "\n");
  }
}

atoll_err atoll_yaml_out_text(atoll_yaml_out *o, const char **text) {
  core_text_add(&o->text, "", 0);
  if (o->text.failed)
    return atoll_fail(ATOLL_NOMEM, "YAML writer: out of memory at %zu bytes", o->text.size);
  if (o->error != ATOLL_OK)
    return atoll_fail(o->error, "YAML writer: %s", o->reason);
  if (o->depth)
    return atoll_fail(ATOLL_INTERNAL, "YAML writer: %d maps or lists are still open", o->depth);
  *text = o->text.data;
  return ATOLL_OK;
}

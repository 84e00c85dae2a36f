/* One parsed value and the registry of options, shared by the option sources. Private to libcore. */
#ifndef ATOLL_OPT_IMPL_H
#define ATOLL_OPT_IMPL_H

#include "atoll/opt.h"

typedef union opt_value {
  int flag; /* BOOL, ENUM */
  int64_t whole;
  double real;
  char text[ATOLL_OPT_STRING_MAX];
  atoll_opt_ints list;
} opt_value;

/* 0 and the value, or -1 and `why`: " suggestion or reason" to append after what was expected, or "". */
int opt_value_parse(const atoll_opt_def *def, const char *text, opt_value *value, char *why, size_t n);
/* "an integer in 1..9 steps". Returns buf. */
const char *opt_expected(const atoll_opt_def *def, char *buf, size_t n);
size_t opt_value_bytes(atoll_opt_type type);
/* Canonical text of the value at `field`; returns buf. */
const char *opt_value_text(const atoll_opt_def *def, const void *field, char *buf, size_t n);
/* The i-th alternative of an enumeration, NULL past the end. Returns buf. */
const char *opt_alternative(const char *range, int i, char *buf, size_t n);

struct opt_entry {
  const atoll_opt_table *table;
  const atoll_opt_def *def;
  char *params; /* borrowed: the module's struct */
  char *key;
  char *env;    /* ATOLL_CKPT_EVERY_STEPS */
  char *origin; /* NULL: default */
  atoll_opt_source source;
};

struct atoll_opts {
  struct opt_entry *entries;
  int count, capacity;
  const char **keys;         /* keys[i] = entries[i].key, for suggestions */
  unsigned char *on_command; /* set by a command line word already */
};

/* Values of one source, checked but not yet applied: a bad file leaves every option as it was. */
struct opt_pending {
  struct opt_item {
    int index;
    atoll_opt_source source;
    char *origin;
    opt_value *value;
  } * items;
  size_t count, capacity;
};

/* Check `text` for option `index` and queue it. USAGE names origin, key, found, expected. */
atoll_err opt_pending_add(const atoll_opts *opts, struct opt_pending *pending, int index, atoll_opt_source source,
                          const char *origin, const char *text);
void opt_pending_apply(atoll_opts *opts, struct opt_pending *pending);
void opt_pending_free(struct opt_pending *pending);
/* USAGE: "origin: unknown key 'x'; did you mean 'y'?" */
atoll_err opt_unknown_key(const atoll_opts *opts, const char *origin, const char *key);
/* Does any key begin with `section` and a dot? */
int opt_is_section(const atoll_opts *opts, const char *section);

#endif

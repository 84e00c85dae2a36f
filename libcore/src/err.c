#include "atoll/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_message[ATOLL_MESSAGE_MAX];
static _Thread_local char last_where[160];

static const struct {
  atoll_err code;
  const char *name, *text;
} entries[] = {
#define ENTRY(name, status, text) {ATOLL_##name, #name, text},
    ATOLL_ERR_LIST(ENTRY)
#undef ENTRY
};
#define ENTRIES ((int)(sizeof entries / sizeof entries[0]))

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

atoll_err atoll_err_record(atoll_err code, const char *file, int line, const char *fmt, ...) {
  int saved = errno;
  /* Through a second buffer: callers may wrap the message they found, atoll_fail(code, "shard 3: %s",
   * atoll_err_message()). */
  char text[ATOLL_MESSAGE_MAX];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (n < 0)
    text[0] = 0;
  if (n >= (int)sizeof text)
    memcpy(text + sizeof text - 4, "...", 4);
  memcpy(last_message, text, sizeof text);
  snprintf(last_where, sizeof last_where, "%s:%d", base_name(file), line);
  errno = saved;
  return code;
}

const char *atoll_err_name(atoll_err code) {
  for (int i = 0; i < ENTRIES; i++)
    if (entries[i].code == code)
      return entries[i].name;
  return "UNKNOWN";
}

const char *atoll_err_text(atoll_err code) {
  for (int i = 0; i < ENTRIES; i++)
    if (entries[i].code == code)
      return entries[i].text;
  return "UNKNOWN";
}

int atoll_err_parse(const char *name, atoll_err *code) {
  for (int i = 0; name && i < ENTRIES; i++)
    if (!strcmp(entries[i].name, name)) {
      *code = entries[i].code;
      return 0;
    }
  return -1;
}

int atoll_err_entry(int i, atoll_err *code, const char **name, const char **text) {
  if (i < 0 || i >= ENTRIES)
    return 0;
  *code = entries[i].code;
  *name = entries[i].name;
  *text = entries[i].text;
  return 1;
}

const char *atoll_err_message(void) { return last_message; }
const char *atoll_err_where(void) { return last_where; }

void atoll_err_set_message(const char *message) {
  char text[ATOLL_MESSAGE_MAX];
  snprintf(text, sizeof text, "%s", message ? message : "");
  memcpy(last_message, text, sizeof text);
}

void atoll_err_clear(void) {
  last_message[0] = 0;
  last_where[0] = 0;
}

#include "text_impl.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A program linked with a GUI or a plotting library may have called setlocale(); numbers in our files keep their point.
 */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

const char *core_real_text(double v, char buf[CORE_REAL_TEXT_MAX]) {
  if (isnan(v))
    return memcpy(buf, "nan", 4);
  if (isinf(v)) {
    snprintf(buf, CORE_REAL_TEXT_MAX, "%s", v < 0 ? "-inf" : "inf");
    return buf;
  }
  pthread_once(&c_locale_once, make_c_locale);
  locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(buf, CORE_REAL_TEXT_MAX, "%.*g", digits, v);
    if (strtod(buf, NULL) == v)
      break;
  }
  if (before)
    uselocale(before);
  return buf;
}

static const char *skip_digits(const char *s) {
  while (*s >= '0' && *s <= '9')
    s++;
  return s;
}

int core_parse_real_any(const char *s, double *out) {
  const char *body = s + (*s == '+' || *s == '-');
  const char *word = body + (*body == '.');
  if (!strcasecmp(word, "nan") || !strcasecmp(word, "inf")) {
    double v = strcasecmp(word, "nan") ? INFINITY : NAN;
    *out = *s == '-' ? -v : v;
    return 0;
  }
  /* The grammar is checked here, because strtod() also takes hexadecimal, leading blanks and words. */
  const char *whole_end = skip_digits(body), *end = whole_end;
  size_t digits = (size_t)(whole_end - body);
  if (*end == '.') {
    const char *fraction = end + 1;
    end = skip_digits(fraction);
    digits += (size_t)(end - fraction);
  }
  if (!digits)
    return -1;
  if (*end == 'e' || *end == 'E') {
    const char *power = end + 1 + (end[1] == '+' || end[1] == '-');
    end = skip_digits(power);
    if (end == power)
      return -1;
  }
  if (*end)
    return -1;
  pthread_once(&c_locale_once, make_c_locale);
  double v = c_locale ? strtod_l(s, NULL, c_locale) : strtod(s, NULL);
  if (isinf(v))
    return -1; /* 1e999 is a slip, not infinity */
  *out = v;
  return 0;
}

size_t core_utf8_next(const char *s, size_t n, uint32_t *point) {
  const unsigned char *b = (const unsigned char *)s;
  if (!n)
    return 0;
  if (b[0] < 0x80) {
    *point = b[0];
    return 1;
  }
  size_t len = b[0] >= 0xC2 && b[0] <= 0xDF ? 2 : (b[0] & 0xF0) == 0xE0 ? 3 : b[0] >= 0xF0 && b[0] <= 0xF4 ? 4 : 0;
  if (!len || len > n)
    return 0;
  uint32_t p = b[0] & (0xFFu >> (len + 1));
  for (size_t i = 1; i < len; i++) {
    if ((b[i] & 0xC0) != 0x80)
      return 0;
    p = p << 6 | (b[i] & 0x3Fu);
  }
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (p < least[len] || p > 0x10FFFF || (p >= 0xD800 && p <= 0xDFFF))
    return 0;
  *point = p;
  return len;
}

int core_utf8_valid(const char *s, size_t n) {
  uint32_t point;
  for (size_t i = 0, step; i < n; i += step)
    if (!(step = core_utf8_next(s + i, n - i, &point)))
      return 0;
  return 1;
}

const char *core_quote(const char *s, char *buf, size_t n) {
  enum { SHOWN = 60 };
  size_t used = 0, length = strlen(s), i = 0;
  if (n < 16) {
    if (n)
      buf[0] = 0;
    return buf;
  }
  buf[used++] = '\'';
  while (i < length && i < SHOWN && used + 12 < n) {
    uint32_t point;
    size_t step = core_utf8_next(s + i, length - i, &point);
    if (step && point >= 0x20 && point != 0x7F) {
      memcpy(buf + used, s + i, step);
      used += step;
      i += step;
    } else {
      used += (size_t)snprintf(buf + used, n - used, "\\x%02X", (unsigned char)s[i]);
      i++;
    }
  }
  snprintf(buf + used, n - used, "%s'", i < length ? "..." : "");
  return buf;
}

/* ---- growing text ---- */

void core_text_add(core_text *t, const char *s, size_t n) {
  if (t->failed)
    return;
  if (t->size + n + 1 > t->capacity) {
    size_t capacity = t->capacity ? t->capacity : 256;
    while (capacity < t->size + n + 1)
      capacity *= 2;
    char *data = realloc(t->data, capacity);
    if (!data) {
      t->failed = 1;
      return;
    }
    t->data = data;
    t->capacity = capacity;
  }
  memcpy(t->data + t->size, s, n);
  t->size += n;
  t->data[t->size] = 0;
}

void core_text_puts(core_text *t, const char *s) { core_text_add(t, s, strlen(s)); }

void core_text_pad(core_text *t, char c, size_t n) {
  while (n--)
    core_text_add(t, &c, 1);
}

/* What a YAML reader accepts unescaped and does not fold as a line break. */
static int yaml_printable(uint32_t p) {
  return (p >= 0x20 && p <= 0x7E) || (p >= 0xA0 && p <= 0xD7FF && p != 0x2028 && p != 0x2029) ||
         (p >= 0xE000 && p <= 0xFFFD && p != 0xFEFF) || p >= 0x10000;
}

int core_text_yaml_quoted(core_text *t, const char *s) {
  size_t n = strlen(s);
  if (!core_utf8_valid(s, n))
    return -1;
  core_text_puts(t, "\"");
  for (size_t i = 0, step; i < n; i += step) {
    uint32_t point = 0;
    step = core_utf8_next(s + i, n - i, &point);
    char escape[16] = "";
    if (point == '"' || point == '\\')
      snprintf(escape, sizeof escape, "\\%c", (char)point);
    else if (point == '\n')
      snprintf(escape, sizeof escape, "\\n");
    else if (point == '\t')
      snprintf(escape, sizeof escape, "\\t");
    else if (!yaml_printable(point))
      snprintf(escape, sizeof escape, point < 0x10000 ? "\\u%04X" : "\\U%08X", (unsigned)point);
    if (*escape)
      core_text_puts(t, escape);
    else
      core_text_add(t, s + i, step);
  }
  core_text_puts(t, "\"");
  return 0;
}

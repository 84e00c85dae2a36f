#include "opt_impl.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text_impl.h"

static int is_digit(char c) { return c >= '0' && c <= '9'; }

int atoll_parse_int(const char *s, int64_t *out) {
  int negative = *s == '-';
  s += *s == '-' || *s == '+';
  if (!is_digit(*s))
    return -1;
  /* Accumulated below zero, where the range is one wider. */
  int64_t v = 0;
  for (; is_digit(*s); s++)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, *s - '0', &v))
      return -1;
  if (*s || (!negative && v == INT64_MIN))
    return -1;
  *out = negative ? v : -v;
  return 0;
}

int atoll_parse_real(const char *s, double *out) {
  double v;
  if (core_parse_real_any(s, &v) || !isfinite(v))
    return -1;
  *out = v;
  return 0;
}

/* ---- sizes ---- */

static const struct {
  const char *name;
  int64_t bytes;
} byte_units[] = {
    {"B", 1},
    {"kB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", INT64_C(1000000000000)},
    {"PB", INT64_C(1000000000000000)},
    {"KiB", INT64_C(1) << 10},
    {"MiB", INT64_C(1) << 20},
    {"GiB", INT64_C(1) << 30},
    {"TiB", INT64_C(1) << 40},
    {"PiB", INT64_C(1) << 50},
};
#define BYTE_UNITS ((int)(sizeof byte_units / sizeof *byte_units))

/* Decimal fractions are taken in integers, so that 1.5GiB is the same number of bytes on every machine; the nearest
 * byte. */
int atoll_parse_bytes(const char *s, int64_t *out) {
  enum { FRACTION_DIGITS = 9 };
  int64_t whole = 0, fraction = 0, scale = 1, unit = 1;
  if (!is_digit(*s))
    return -1;
  for (; is_digit(*s); s++)
    if (__builtin_mul_overflow(whole, 10, &whole) || __builtin_add_overflow(whole, *s - '0', &whole))
      return -1;
  if (*s == '.') {
    const char *first = ++s;
    for (; is_digit(*s); s++) {
      if (s - first >= FRACTION_DIGITS)
        return -1;
      fraction = 10 * fraction + (*s - '0');
      scale *= 10;
    }
    if (s == first)
      return -1;
  }
  if (*s == ' ')
    s++;
  if (*s) {
    int i = 0;
    while (i < BYTE_UNITS && strcmp(s, byte_units[i].name))
      i++;
    if (i == BYTE_UNITS)
      return -1;
    unit = byte_units[i].bytes;
  }
  __extension__ typedef __int128 wide;
  wide total = (wide)whole * unit + ((wide)fraction * unit + scale / 2) / scale;
  if (total > INT64_MAX)
    return -1;
  *out = (int64_t)total;
  return 0;
}

/* ---- times ---- */

static const struct {
  const char *name;
  double seconds;
} second_units[] = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
#define SECOND_UNITS ((int)(sizeof second_units / sizeof *second_units))

/* [D-]HH:MM:SS, as Slurm writes limits. */
static int parse_clock_time(const char *s, double *out) {
  const char *dash = strchr(s, '-');
  int64_t part[4] = {0, 0, 0, 0}; /* days, hours, minutes, seconds */
  int first = dash ? 0 : 1;
  for (int i = first; i < 4; i++) {
    const char *start = s;
    for (; is_digit(*s) && s - start < 9; s++)
      part[i] = 10 * part[i] + (*s - '0');
    if (s == start || *s != (i == 0 ? '-' : i < 3 ? ':' : '\0'))
      return -1;
    s += i < 3;
  }
  if (part[2] > 59 || part[3] > 59 || (dash && part[1] > 23))
    return -1;
  *out = (double)(((part[0] * 24 + part[1]) * 60 + part[2]) * 60 + part[3]);
  return 0;
}

int atoll_parse_seconds(const char *s, double *out) {
  char number[64];
  double v;
  if (strchr(s, ':'))
    return parse_clock_time(s, out);
  size_t n = strcspn(s, "abcdfghijklmnopqrstuvwxyzABCDFGHIJKLMNOPQRSTUVWXYZ "); /* not e and E: exponents */
  if (n >= sizeof number)
    return -1;
  memcpy(number, s, n);
  number[n] = 0;
  const char *unit = s + n;
  unit += *unit == ' ';
  if (atoll_parse_real(number, &v) || (s[n] && !*unit))
    return -1;
  if (*unit) {
    int i = 0;
    while (i < SECOND_UNITS && strcmp(unit, second_units[i].name))
      i++;
    if (i == SECOND_UNITS)
      return -1;
    /* Division by 1000 rather than a product with 0.001: 30ms is the double nearest to 0.03. */
    v = i ? v * second_units[i].seconds : v / 1000;
  }
  if (!isfinite(v))
    return -1;
  *out = v;
  return 0;
}

/* ---- nearest word ---- */

#define WORD_MAX 96

static char folded(char c) { return c == '-' ? '_' : (char)tolower((unsigned char)c); }

/* Edits (insert, delete, replace, swap of neighbours) from a to b, at most limit + 1. */
static int edit_distance(const char *a, int na, const char *b, int nb, int limit) {
  int row[3][WORD_MAX + 1], *before = row[0], *last = row[1], *now = row[2];
  if (abs(na - nb) > limit)
    return limit + 1;
  for (int j = 0; j <= nb; j++)
    last[j] = j;
  for (int i = 1; i <= na; i++) {
    now[0] = i;
    int least = i;
    for (int j = 1; j <= nb; j++) {
      char ca = folded(a[i - 1]), cb = folded(b[j - 1]);
      int d = last[j - 1] + (ca != cb);
      if (last[j] + 1 < d)
        d = last[j] + 1;
      if (now[j - 1] + 1 < d)
        d = now[j - 1] + 1;
      if (i > 1 && j > 1 && ca == folded(b[j - 2]) && folded(a[i - 2]) == cb && before[j - 2] + 1 < d)
        d = before[j - 2] + 1;
      now[j] = d;
      if (d < least)
        least = d;
    }
    if (least > limit)
      return limit + 1;
    int *free_row = before;
    before = last;
    last = now;
    now = free_row;
  }
  return last[nb] > limit ? limit + 1 : last[nb];
}

const char *atoll_nearest(const char *word, const char *const *candidates, size_t n) {
  size_t length = strlen(word);
  const char *best = NULL;
  if (!length || length > WORD_MAX)
    return NULL;
  int limit = ((int)length + 2) / 3;
  for (size_t i = 0; i < n; i++) {
    size_t candidate_length = candidates[i] ? strlen(candidates[i]) : 0;
    if (!candidate_length || candidate_length > WORD_MAX)
      continue;
    int d = edit_distance(word, (int)length, candidates[i], (int)candidate_length, limit);
    /* Everything replaced is no likeness, however short the word. */
    if (d <= limit && d < (int)candidate_length && d < (int)(length > candidate_length ? length : candidate_length)) {
      best = candidates[i];
      limit = d - 1; /* only a nearer one may follow */
      if (limit < 0)
        break;
    }
  }
  /* A beginning of exactly one candidate, as people abbreviate. */
  if (!best && length >= 2) {
    for (size_t i = 0; i < n; i++)
      if (candidates[i] && !strncmp(word, candidates[i], length)) {
        if (best)
          return NULL;
        best = candidates[i];
      }
  }
  return best;
}

/* ---- values of an option ---- */

const char *opt_alternative(const char *range, int i, char *buf, size_t n) {
  const char *s = range ? range : "";
  for (; i > 0; i--) {
    s = strchr(s, '|');
    if (!s)
      return NULL;
    s++;
  }
  size_t length = strcspn(s, "|");
  if (!length || length >= n)
    return NULL;
  memcpy(buf, s, length);
  buf[length] = 0;
  return buf;
}

static int read_number(const atoll_opt_def *def, const char *text, int64_t *whole, double *real) {
  switch (def->type) {
  case ATOLL_OPT_INT:
  case ATOLL_OPT_INTS:
    return atoll_parse_int(text, whole);
  case ATOLL_OPT_BYTES:
    return atoll_parse_bytes(text, whole);
  case ATOLL_OPT_SECONDS:
    return core_parse_real_any(text, real) ? atoll_parse_seconds(text, real) : 0;
  default:
    return core_parse_real_any(text, real);
  }
}

/* 1 inside, 0 outside, -1 when the range itself is ill-formed. */
static int in_range(const atoll_opt_def *def, int64_t whole, double real) {
  const int is_real = def->type == ATOLL_OPT_REAL || def->type == ATOLL_OPT_SECONDS;
  if (is_real && isnan(real))
    return 0;
  if (!def->range || !*def->range)
    return !is_real || isfinite(real);
  const char *dots = strstr(def->range, "..");
  char end[64];
  if (!dots || (size_t)(dots - def->range) >= sizeof end)
    return -1;
  int64_t w;
  double r;
  memcpy(end, def->range, (size_t)(dots - def->range));
  end[dots - def->range] = 0;
  if (*end) {
    if (read_number(def, end, &w, &r))
      return -1;
    if (is_real ? real < r : whole < w)
      return 0;
  } else if (is_real && real == -INFINITY) {
    return 0;
  }
  if (dots[2]) {
    if (read_number(def, dots + 2, &w, &r))
      return -1;
    if (is_real ? real > r : whole > w)
      return 0;
  } else if (is_real && real == INFINITY) {
    return 0; /* an open end is not leave to be infinite; "0..inf" is */
  }
  return 1;
}

const char *opt_expected(const atoll_opt_def *def, char *buf, size_t n) {
  const char *range = def->range ? def->range : "", *unit = def->unit ? def->unit : "";
  const char *what = "";
  switch (def->type) {
  case ATOLL_OPT_BOOL:
    snprintf(buf, n, "true or false");
    return buf;
  case ATOLL_OPT_STRING:
    snprintf(buf, n, "text of at most %d bytes", ATOLL_OPT_STRING_MAX - 1);
    return buf;
  case ATOLL_OPT_ENUM:
    snprintf(buf, n, "one of %s", range);
    return buf;
  case ATOLL_OPT_INT:
    what = "an integer";
    break;
  case ATOLL_OPT_REAL:
    what = "a number";
    break;
  case ATOLL_OPT_BYTES:
    what = "a size such as 8GiB (units B kB MB GB TB KiB MiB GiB TiB)";
    break;
  case ATOLL_OPT_SECONDS:
    what = "a time such as 90, 1.5h or 1-12:00:00 (units ms s min h d)";
    break;
  case ATOLL_OPT_INTS:
    what = "a list of integers such as [1, 2, 4]";
    break;
  }
  if (def->type == ATOLL_OPT_BYTES || def->type == ATOLL_OPT_SECONDS)
    unit = "";
  snprintf(buf, n, "%s%s%s%s%s", what, *range ? (def->type == ATOLL_OPT_INTS ? ", each in " : " in ") : "", range,
           *unit ? " " : "", unit);
  return buf;
}

/* "12steps", "8 gib": a number followed by letters. Returns the letters, or NULL. */
static const char *trailing_word(const char *text) {
  const char *s = text + (*text == '-' || *text == '+');
  if (!is_digit(*s))
    return NULL;
  while (is_digit(*s) || *s == '.')
    s++;
  s += *s == ' ';
  if (!isalpha((unsigned char)*s) || strlen(s) > 16)
    return NULL;
  for (const char *c = s; *c; c++)
    if (!isalpha((unsigned char)*c))
      return NULL;
  return s;
}

/* Other programs' spellings of our units; by edits alone, 5m would be taken for 5ms. */
static const char *usual_time_unit(const char *word) {
  static const char *const spellings[][2] = {{"milli", "ms"}, {"msec", "ms"},    {"m", "min"}, {"M", "min"},
                                             {"mins", "min"}, {"minute", "min"}, {"sec", "s"}, {"hour", "h"},
                                             {"hr", "h"},     {"H", "h"},        {"day", "d"}, {"D", "d"}};
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    size_t n = strlen(spellings[i][0]);
    if (!strncmp(word, spellings[i][0], n) && (n > 1 || !word[1]))
      return spellings[i][1];
  }
  return NULL;
}

static void explain(const atoll_opt_def *def, const char *text, char *why, size_t n) {
  const char *near = NULL, *word = trailing_word(text), *names[16];
  size_t count = 0;
  if (def->type == ATOLL_OPT_ENUM) {
    char buf[64][64];
    const char *alternatives[64];
    while (count < 64 && (alternatives[count] = opt_alternative(def->range, (int)count, buf[count], sizeof buf[count])))
      count++;
    near = atoll_nearest(text, alternatives, count);
    if (near)
      snprintf(why, n, "; did you mean '%s'?", near);
    return;
  }
  if (!word)
    return;
  if (def->type == ATOLL_OPT_INT || def->type == ATOLL_OPT_REAL) {
    snprintf(why, n, "; the unit '%s' is not accepted here", word);
    return;
  }
  if (def->type == ATOLL_OPT_BYTES)
    for (; count < (size_t)BYTE_UNITS; count++)
      names[count] = byte_units[count].name;
  else if (def->type == ATOLL_OPT_SECONDS)
    for (; count < (size_t)SECOND_UNITS; count++)
      names[count] = second_units[count].name;
  else
    return;
  for (size_t i = 0; i < count; i++)
    if (!strcmp(word, names[i]))
      return; /* the unit is right, the number is not */
  near = def->type == ATOLL_OPT_SECONDS ? usual_time_unit(word) : NULL;
  if (!near)
    near = atoll_nearest(word, names, count);
  snprintf(why, n, near ? "; unknown unit '%s', did you mean '%s'?" : "; unknown unit '%s'", word, near);
}

static int parse_ints(const atoll_opt_def *def, const char *text, atoll_opt_ints *list, char *why, size_t n) {
  size_t length = strlen(text);
  list->n = 0;
  if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
    text++;
    length -= 2;
  }
  const char *end = text + length;
  for (const char *s = text; length;) {
    const char *comma = memchr(s, ',', (size_t)(end - s)), *stop = comma ? comma : end;
    char word[32];
    while (s < stop && *s == ' ')
      s++;
    while (stop > s && stop[-1] == ' ')
      stop--;
    if ((size_t)(stop - s) >= sizeof word || list->n == ATOLL_OPT_INTS_MAX) {
      if (list->n == ATOLL_OPT_INTS_MAX)
        snprintf(why, n, "; at most %d of them", ATOLL_OPT_INTS_MAX);
      return -1;
    }
    memcpy(word, s, (size_t)(stop - s));
    word[stop - s] = 0;
    int64_t v;
    if (atoll_parse_int(word, &v) || in_range(def, v, 0) != 1)
      return -1;
    list->v[list->n++] = v;
    if (!comma)
      break;
    s = comma + 1;
  }
  return 0;
}

int opt_value_parse(const atoll_opt_def *def, const char *text, opt_value *value, char *why, size_t n) {
  int64_t whole = 0;
  double real = 0;
  why[0] = 0;
  switch (def->type) {
  case ATOLL_OPT_BOOL:
    return core_parse_bool(text, &value->flag);
  case ATOLL_OPT_STRING:
    if (strlen(text) >= ATOLL_OPT_STRING_MAX) {
      snprintf(why, n, "; it has %zu", strlen(text));
      return -1;
    }
    if (!core_utf8_valid(text, strlen(text))) {
      snprintf(why, n, "; it is not UTF-8");
      return -1;
    }
    memset(value->text, 0, sizeof value->text);
    memcpy(value->text, text, strlen(text));
    return 0;
  case ATOLL_OPT_ENUM: {
    char word[64];
    for (int i = 0; opt_alternative(def->range, i, word, sizeof word); i++)
      if (!strcmp(word, text)) {
        value->flag = i;
        return 0;
      }
    explain(def, text, why, n);
    return -1;
  }
  case ATOLL_OPT_INTS:
    memset(&value->list, 0, sizeof value->list);
    return parse_ints(def, text, &value->list, why, n);
  default:
    if (read_number(def, text, &whole, &real)) {
      explain(def, text, why, n);
      return -1;
    }
    if (in_range(def, whole, real) != 1)
      return -1;
    if (def->type == ATOLL_OPT_REAL || def->type == ATOLL_OPT_SECONDS)
      value->real = real;
    else
      value->whole = whole;
    return 0;
  }
}

size_t opt_value_bytes(atoll_opt_type type) {
  switch (type) {
  case ATOLL_OPT_BOOL:
  case ATOLL_OPT_ENUM:
    return sizeof(int);
  case ATOLL_OPT_INT:
  case ATOLL_OPT_BYTES:
    return sizeof(int64_t);
  case ATOLL_OPT_REAL:
  case ATOLL_OPT_SECONDS:
    return sizeof(double);
  case ATOLL_OPT_STRING:
    return ATOLL_OPT_STRING_MAX;
  case ATOLL_OPT_INTS:
    return sizeof(atoll_opt_ints);
  }
  return 0;
}

const char *opt_value_text(const atoll_opt_def *def, const void *field, char *buf, size_t n) {
  if (!n)
    return buf;
  buf[0] = 0;
  switch (def->type) {
  case ATOLL_OPT_BOOL:
    snprintf(buf, n, "%s", *(const int *)field ? "true" : "false");
    break;
  case ATOLL_OPT_ENUM: {
    char word[64];
    snprintf(buf, n, "%s", opt_alternative(def->range, *(const int *)field, word, sizeof word) ? word : "?");
    break;
  }
  case ATOLL_OPT_INT:
  case ATOLL_OPT_BYTES:
    snprintf(buf, n, "%lld", (long long)*(const int64_t *)field);
    break;
  case ATOLL_OPT_REAL:
  case ATOLL_OPT_SECONDS: {
    char word[CORE_REAL_TEXT_MAX];
    snprintf(buf, n, "%s", core_real_text(*(const double *)field, word));
    break;
  }
  case ATOLL_OPT_STRING:
    snprintf(buf, n, "%s", (const char *)field);
    break;
  case ATOLL_OPT_INTS: {
    const atoll_opt_ints *list = field;
    size_t used = 0;
    for (int64_t i = 0; i < list->n && used < n; i++)
      used += (size_t)snprintf(buf + used, n - used, "%s%lld", i ? "," : "", (long long)list->v[i]);
    break;
  }
  }
  return buf;
}

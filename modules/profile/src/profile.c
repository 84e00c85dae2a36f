/* A table of measured layer times. Entries are kept sorted by key, so that packing, digests and files do not depend on
 * the order of adding; each keeps its samples, so that merging two ranks' tables keeps a true median. */
#include "atoll/profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/stats.h"

#define SAMPLES_MAX 32
#define TEXT_MAX    256

enum { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, UPDATE, LEAF, VALUES };

typedef struct key {
  char device_class[TEXT_MAX], kind[48], policy[48];
  atoll_digest model;
  int64_t S, B;
} key;

typedef struct entry {
  key k;
  atoll_cost_source source;
  int n;
  double v[SAMPLES_MAX][VALUES];
} entry;

struct atoll_profile {
  entry *entry;
  int count, room;
};

const char *atoll_cost_source_name(atoll_cost_source s) {
  static const char *const names[] = {"measured", "interpolated", "imported", "analytic"};
  return (unsigned)s <= ATOLL_COST_ANALYTIC ? names[s] : "unknown";
}

atoll_err atoll_profile_create(atoll_profile **out) {
  atoll_profile *p = calloc(1, sizeof *p);
  if (!p)
    return atoll_fail(ATOLL_NOMEM, "no memory for a profile");
  *out = p;
  return ATOLL_OK;
}

void atoll_profile_destroy(atoll_profile **profile) {
  if (!profile || !*profile)
    return;
  free((*profile)->entry);
  free(*profile);
  *profile = NULL;
}

int atoll_profile_count(const atoll_profile *p) { return p->count; }

static int order(int64_t a, int64_t b) { return (a > b) - (a < b); }
static int order_u(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

/* All of the key but B, then B: what is interpolated lies side by side. */
static int compare_family(const key *a, const key *b) {
  int c = strcmp(a->device_class, b->device_class);
  c = c ? c : order_u(a->model.hi, b->model.hi);
  c = c ? c : order_u(a->model.lo, b->model.lo);
  c = c ? c : strcmp(a->kind, b->kind);
  c = c ? c : strcmp(a->policy, b->policy);
  return c ? c : order(a->S, b->S);
}

static int compare(const key *a, const key *b) {
  int c = compare_family(a, b);
  return c ? c : order(a->B, b->B);
}

static atoll_err copy_text(const char *what, const char *from, char *to, size_t n) {
  if (!from || !from[0] || strlen(from) >= n || strpbrk(from, "\t\n\r"))
    return atoll_fail(ATOLL_USAGE, "profile: %s is '%s', expected 1..%zu characters without tabs and line ends", what,
                      from ? from : "", n - 1);
  strcpy(to, from);
  return ATOLL_OK;
}

static atoll_err make_key(const char *device_class, atoll_digest model, const char *kind, const char *policy, int64_t S,
                          int64_t B, key *k) {
  memset(k, 0, sizeof *k);
  ATOLL_TRY(copy_text("device class", device_class, k->device_class, sizeof k->device_class));
  ATOLL_TRY(copy_text("layer kind", kind, k->kind, sizeof k->kind));
  ATOLL_TRY(copy_text("policy", policy, k->policy, sizeof k->policy));
  if (S < 1 || B < 1)
    return atoll_fail(ATOLL_USAGE, "profile: S is %" PRId64 " and B %" PRId64 ", expected 1 or more", S, B);
  k->model = model;
  k->S = S;
  k->B = B;
  return ATOLL_OK;
}

/* First entry not below k. */
static int lower(const atoll_profile *p, const key *k) {
  int lo = 0, hi = p->count;
  while (lo < hi) {
    int mid = lo + (hi - lo) / 2;
    if (compare(&p->entry[mid].k, k) < 0)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* The entry of k, empty if there was none. */
static atoll_err find_or_insert(atoll_profile *p, const key *k, entry **out) {
  int at = lower(p, k);
  if (at == p->count || compare(&p->entry[at].k, k) != 0) {
    if (p->count == p->room) {
      int room = p->room ? 2 * p->room : 16;
      entry *grown = realloc(p->entry, (size_t)room * sizeof *grown);
      if (!grown)
        return atoll_fail(ATOLL_NOMEM, "profile: no memory for %d entries", room);
      p->entry = grown;
      p->room = room;
    }
    memmove(&p->entry[at + 1], &p->entry[at], (size_t)(p->count - at) * sizeof *p->entry);
    memset(&p->entry[at], 0, sizeof p->entry[at]);
    p->entry[at].k = *k;
    p->count++;
  }
  *out = &p->entry[at];
  return ATOLL_OK;
}

atoll_err atoll_profile_add(atoll_profile *p, const char *device_class, atoll_digest model, const char *kind,
                            const char *policy, int64_t S, int64_t B, const atoll_cost *cost) {
  key k;
  ATOLL_TRY(make_key(device_class, model, kind, policy, S, B, &k));
  const double v[VALUES] = {cost->forward, cost->backward_input, cost->backward_weight, cost->update, cost->leaf};
  for (int i = 0; i < VALUES; i++)
    if (!(v[i] >= 0 && v[i] < INFINITY) || (i == 0 && v[i] == 0)) /* a forward that takes no time was not measured */
      return atoll_fail(ATOLL_USAGE, "profile: %s %s at B %" PRId64 " takes %g s, expected a time %s", kind, policy, B,
                        v[i], i == 0 ? "above 0" : "of 0 or more");
  if ((unsigned)cost->source > ATOLL_COST_ANALYTIC)
    return atoll_fail(ATOLL_USAGE, "profile: cost source %d is unknown", (int)cost->source);
  entry *e = NULL;
  ATOLL_TRY(find_or_insert(p, &k, &e));
  if (e->n > 0 && cost->source > e->source)
    return ATOLL_OK; /* better is known */
  if (cost->source < e->source)
    e->n = 0;
  e->source = cost->source;
  if (e->n == SAMPLES_MAX) { /* keep the latest ones */
    memmove(e->v[0], e->v[1], sizeof e->v - sizeof e->v[0]);
    e->n--;
  }
  memcpy(e->v[e->n++], v, sizeof v);
  return ATOLL_OK;
}

atoll_err atoll_profile_replace(atoll_profile *p, const atoll_profile *from) {
  for (int i = 0; i < from->count; i++) {
    entry *e = NULL;
    ATOLL_TRY(find_or_insert(p, &from->entry[i].k, &e));
    *e = from->entry[i];
  }
  return ATOLL_OK;
}

static double median(const entry *e, int value) {
  double v[SAMPLES_MAX];
  for (int i = 0; i < e->n; i++)
    v[i] = e->v[i][value];
  return atoll_median(v, (size_t)e->n);
}

static double spread(const entry *e) {
  double v[SAMPLES_MAX];
  for (int i = 0; i < e->n; i++)
    v[i] = e->v[i][FORWARD] + e->v[i][BACKWARD_INPUT] + e->v[i][BACKWARD_WEIGHT];
  size_t n = (size_t)e->n;
  double middle = atoll_median(v, n);
  return 0.5 * (atoll_quantile(v, n, 0.75) - atoll_quantile(v, n, 0.25)) / middle;
}

/* Through two measurements. Beyond them noise would tilt the line without limit, so a smaller micro-batch is taken to
 * cost at least its share, and a larger one at least as much. */
static double line(double x0, double y0, double x1, double y1, double x) {
  double y = y0 + (y1 - y0) * ((x - x0) / (x1 - x0)), least = x < x0 ? y0 * (x / x0) : x > x1 ? y1 : 0;
  return y > least ? y : least;
}

atoll_err atoll_profile_find(const atoll_profile *p, const char *device_class, atoll_digest model, const char *kind,
                             const char *policy, int64_t S, int64_t B, atoll_cost *cost) {
  key k;
  ATOLL_TRY(make_key(device_class, model, kind, policy, S, B, &k));
  int at = lower(p, &k);
  const entry *e = &p->entry[at];
  if (at < p->count && compare(&e->k, &k) == 0) {
    *cost = (atoll_cost){.forward = median(e, FORWARD),
                         .backward_input = median(e, BACKWARD_INPUT),
                         .backward_weight = median(e, BACKWARD_WEIGHT),
                         .update = median(e, UPDATE),
                         .leaf = median(e, LEAF),
                         .source = e->source,
                         .spread = spread(e)};
    return ATOLL_OK;
  }
  int above = at < p->count && compare_family(&e->k, &k) == 0;
  int below = at > 0 && compare_family(&p->entry[at - 1].k, &k) == 0;
  if (!above && !below)
    return atoll_fail(ATOLL_NOINPUT, "profile: nothing about %s %s of this model on %s at %" PRId64 " tokens", kind,
                      policy, device_class, S);
  int a = at - 1, b = at; /* the two points of the line */
  if (!above && at >= 2 && compare_family(&p->entry[at - 2].k, &k) == 0) {
    a = at - 2;
    b = at - 1;
  } else if (!below && at + 1 < p->count && compare_family(&p->entry[at + 1].k, &k) == 0) {
    a = at;
    b = at + 1;
  } else if (!above || !below) {
    a = b = above ? at : at - 1;
  }
  const entry *x = &p->entry[a], *y = &p->entry[b];
  double v[VALUES];
  for (int i = 0; i < VALUES; i++)
    v[i] = a == b ? median(x, i) * ((double)B / (double)x->k.B)
                  : line((double)x->k.B, median(x, i), (double)y->k.B, median(y, i), (double)B);
  /* Optimizer and sums do not see the micro-batch: the nearest measurement. */
  const entry *near = B - x->k.B <= y->k.B - B ? x : y;
  atoll_cost_source source = x->source > y->source ? x->source : y->source;
  *cost = (atoll_cost){.forward = v[FORWARD],
                       .backward_input = v[BACKWARD_INPUT],
                       .backward_weight = v[BACKWARD_WEIGHT],
                       .update = median(near, UPDATE),
                       .leaf = median(near, LEAF),
                       .source = source > ATOLL_COST_INTERPOLATED ? source : ATOLL_COST_INTERPOLATED,
                       .spread = fmax(spread(x), spread(y))};
  return ATOLL_OK;
}

/* Two entries of a kind of their own. */
static const char *mlp_policy(char *text, size_t n, const char *what, int ranks) {
  snprintf(text, n, "%s over %d", what, ranks);
  return text;
}

atoll_err atoll_profile_add_mlp(atoll_profile *p, const char *device_class, atoll_digest model, int ranks, int64_t S,
                                int64_t B, double pipelined, double even) {
  char policy[32];
  const atoll_cost cta = {.forward = pipelined, .source = ATOLL_COST_MEASURED},
                   share = {.forward = even, .source = ATOLL_COST_MEASURED};
  mlp_policy(policy, sizeof policy, "cta", ranks);
  ATOLL_TRY(atoll_profile_add(p, device_class, model, "mlp", policy, S, B, &cta));
  mlp_policy(policy, sizeof policy, "even", ranks);
  return atoll_profile_add(p, device_class, model, "mlp", policy, S, B, &share);
}

atoll_err atoll_profile_find_mlp(const atoll_profile *p, const char *device_class, atoll_digest model, int ranks,
                                 int64_t S, int64_t B, double *over) {
  char policy[32];
  atoll_cost cta, share;
  mlp_policy(policy, sizeof policy, "cta", ranks);
  ATOLL_TRY(atoll_profile_find(p, device_class, model, "mlp", policy, S, B, &cta));
  mlp_policy(policy, sizeof policy, "even", ranks);
  ATOLL_TRY(atoll_profile_find(p, device_class, model, "mlp", policy, S, B, &share));
  *over = cta.forward / share.forward;
  return ATOLL_OK;
}

double atoll_profile_spread(const atoll_profile *p, const char *device_class, atoll_digest model) {
  double *v = calloc((size_t)p->count + 1, sizeof *v), middle = 0;
  int n = 0;
  for (int i = 0; v && i < p->count; i++) {
    const entry *e = &p->entry[i];
    if (e->n >= 3 && e->source == ATOLL_COST_MEASURED && !strcmp(e->k.device_class, device_class) &&
        atoll_digest_equal(e->k.model, model))
      v[n++] = spread(e);
  }
  if (v)
    middle = atoll_median(v, (size_t)n);
  free(v);
  return middle;
}

/* ---- as text, digest, file --------------------------------------------------------------------------------------- */

/* One line per sample: class, model, kind, policy, S, B, source, then the values in hexadecimal floating point, which
 * reads back exactly. */
enum { FIELDS = 7 + VALUES };

atoll_err atoll_profile_pack(const atoll_profile *p, char **text, size_t *bytes) {
  char *buf = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&buf, &n);
  if (!f)
    return atoll_fail(ATOLL_NOMEM, "profile: no memory to pack %d entries", p->count);
  for (int i = 0; i < p->count; i++)
    for (int s = 0; s < p->entry[i].n; s++) {
      const entry *e = &p->entry[i];
      char hex[33];
      fprintf(f, "%s\t%s\t%s\t%s\t%" PRId64 "\t%" PRId64 "\t%d", e->k.device_class, atoll_digest_text(e->k.model, hex),
              e->k.kind, e->k.policy, e->k.S, e->k.B, (int)e->source);
      for (int k = 0; k < VALUES; k++)
        fprintf(f, "\t%a", e->v[s][k]);
      fputc('\n', f);
    }
  if (fclose(f) != 0) {
    free(buf);
    return atoll_fail(ATOLL_NOMEM, "profile: no memory to pack %d entries", p->count);
  }
  *text = buf;
  *bytes = n;
  return ATOLL_OK;
}

static atoll_cost cost_of(const double v[VALUES], int source) {
  return (atoll_cost){.forward = v[FORWARD],
                      .backward_input = v[BACKWARD_INPUT],
                      .backward_weight = v[BACKWARD_WEIGHT],
                      .update = v[UPDATE],
                      .leaf = v[LEAF],
                      .source = (atoll_cost_source)source};
}

static atoll_err unpack_line(atoll_profile *p, char *text, int number) {
  char *field[FIELDS], *at = text;
  int n = 0;
  while (n < FIELDS && at) {
    field[n++] = at;
    at = strchr(at, '\t');
    if (at)
      *at++ = 0;
  }
  atoll_digest model;
  int64_t v[3];
  double x[VALUES];
  int bad = n != FIELDS || at || atoll_digest_parse(field[1], &model) != 0;
  char *end;
  for (int i = 0; i < 3 && !bad; i++) {
    v[i] = strtoll(field[4 + i], &end, 10);
    bad = end == field[4 + i] || *end;
  }
  for (int i = 0; i < VALUES && !bad; i++) {
    x[i] = strtod(field[7 + i], &end);
    bad = end == field[7 + i] || *end;
  }
  if (bad || v[2] < 0 || v[2] > ATOLL_COST_ANALYTIC)
    return atoll_fail(ATOLL_CORRUPT,
                      "profile text, line %d: expected %d fields: class, model, kind, policy, S, B, source, %d times",
                      number, FIELDS, VALUES);
  atoll_cost c = cost_of(x, (int)v[2]);
  return atoll_profile_add(p, field[0], model, field[2], field[3], v[0], v[1], &c);
}

atoll_err atoll_profile_unpack(atoll_profile *p, const char *text, size_t bytes) {
  size_t at = 0;
  for (int number = 1; at < bytes; number++) {
    const char *end = memchr(text + at, '\n', bytes - at);
    char line_text[1024];
    size_t n = end ? (size_t)(end - (text + at)) : 0;
    if (!end || n >= sizeof line_text || memchr(text + at, 0, n))
      return atoll_fail(ATOLL_CORRUPT, "profile text, line %d: %s", number,
                        end ? "too long, or with a NUL byte" : "cut off");
    memcpy(line_text, text + at, n);
    line_text[n] = 0;
    ATOLL_TRY(unpack_line(p, line_text, number));
    at += n + 1;
  }
  return ATOLL_OK;
}

atoll_digest atoll_profile_digest(const atoll_profile *p) {
  char *text = NULL;
  size_t bytes = 0;
  atoll_digest none = {0, 0};
  if (atoll_profile_pack(p, &text, &bytes) != ATOLL_OK)
    return none;
  atoll_digest d = atoll_digest_bytes(text, bytes);
  free(text);
  return d;
}

static const char *const text_column[] = {"device_class", "model", "kind", "policy"};
static const char *const whole_column[] = {"S", "B", "source"};
static const char *const value_column[] = {"forward", "backward_input", "backward_weight", "update", "leaf"};

atoll_err atoll_profile_to_store(const atoll_profile *p, atoll_store *store, const char *group) {
  int64_t rows = 0, at = 0, one = 1;
  for (int i = 0; i < p->count; i++)
    rows += p->entry[i].n;
  char path[512], (*hex)[33] = calloc((size_t)p->count + 1, sizeof *hex);
  const char **texts = calloc((size_t)rows * 4 + 1, sizeof *texts);
  int64_t *whole = calloc((size_t)rows * 3 + 1, sizeof *whole);
  double *value = calloc((size_t)rows * VALUES + 1, sizeof *value);
  atoll_err err =
      hex && texts && whole && value ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "profile: %" PRId64 " rows", rows);
  for (int i = 0; err == ATOLL_OK && i < p->count; i++)
    for (int s = 0; s < p->entry[i].n; s++, at++) {
      const entry *e = &p->entry[i];
      const char *t[] = {e->k.device_class, atoll_digest_text(e->k.model, hex[i]), e->k.kind, e->k.policy};
      const int64_t w[] = {e->k.S, e->k.B, (int64_t)e->source};
      for (int c = 0; c < 4; c++)
        texts[c * rows + at] = t[c];
      for (int c = 0; c < 3; c++)
        whole[c * rows + at] = w[c];
      for (int c = 0; c < VALUES; c++)
        value[c * rows + at] = e->v[s][c];
    }
  if (err == ATOLL_OK) {
    snprintf(path, sizeof path, "%s/rows", group);
    err = atoll_store_write(store, path, ATOLL_I64, 1, &one, &rows, "1",
                            "number of measurements, the length of the columns");
  }
  for (int c = 0; err == ATOLL_OK && rows > 0 && c < 4; c++) {
    snprintf(path, sizeof path, "%s/%s", group, text_column[c]);
    err = atoll_store_write_texts(store, path, texts + c * rows, (size_t)rows, text_column[c]);
  }
  for (int c = 0; err == ATOLL_OK && rows > 0 && c < 3; c++) {
    static const char *const units[] = {"tokens", "samples", "1"};
    static const char *const names[] = {"tokens per sample", "samples per micro-batch",
                                        "0 measured, 1 interpolated, 2 imported, 3 analytic"};
    snprintf(path, sizeof path, "%s/%s", group, whole_column[c]);
    err = atoll_store_write(store, path, ATOLL_I64, 1, &rows, whole + c * rows, units[c], names[c]);
  }
  for (int c = 0; err == ATOLL_OK && rows > 0 && c < VALUES; c++) {
    snprintf(path, sizeof path, "%s/%s", group, value_column[c]);
    err = atoll_store_write(store, path, ATOLL_F64, 1, &rows, value + c * rows, "s",
                            c == UPDATE ? "time of the optimizer per step"
                            : c == LEAF ? "time per leaf of the summation tree"
                                        : "time per micro-batch");
  }
  free(hex);
  free(texts);
  free(whole);
  free(value);
  return err;
}

/* A one-dimensional column of exactly `rows`. */
static atoll_err read_column(atoll_store *store, const char *group, const char *name, atoll_dtype t, int64_t rows,
                             void *out) {
  char path[512];
  atoll_dtype found;
  int ndim;
  int64_t shape[ATOLL_NDIM_MAX] = {0};
  snprintf(path, sizeof path, "%s/%s", group, name);
  ATOLL_TRY(atoll_store_shape(store, path, &found, &ndim, shape));
  if (ndim != 1 || shape[0] != rows)
    return atoll_fail(ATOLL_CORRUPT, "%s has %" PRId64 " entries, expected %" PRId64, path, ndim == 1 ? shape[0] : -1,
                      rows);
  return atoll_store_read(store, path, t, NULL, &rows, out);
}

atoll_err atoll_profile_from_store(atoll_store *store, const char *group, atoll_profile **out) {
  int64_t rows = 0, *whole = NULL;
  double *value = NULL;
  char path[512], **text[4] = {NULL};
  size_t count[4] = {0};
  atoll_profile *p = NULL;
  ATOLL_TRY(read_column(store, group, "rows", ATOLL_I64, 1, &rows));
  if (rows < 0 || rows > 100000000)
    return atoll_fail(ATOLL_CORRUPT, "%s/rows is %" PRId64 ", expected 0..100000000", group, rows);
  atoll_err err = atoll_profile_create(&p);
  whole = calloc((size_t)rows * 3 + 1, sizeof *whole);
  value = calloc((size_t)rows * VALUES + 1, sizeof *value);
  if (err == ATOLL_OK && (!whole || !value))
    err = atoll_fail(ATOLL_NOMEM, "profile: %" PRId64 " rows", rows);
  for (int c = 0; err == ATOLL_OK && rows > 0 && c < 4; c++) {
    snprintf(path, sizeof path, "%s/%s", group, text_column[c]);
    err = atoll_store_read_texts(store, path, &text[c], &count[c]);
    if (err == ATOLL_OK && (int64_t)count[c] != rows)
      err = atoll_fail(ATOLL_CORRUPT, "%s has %zu entries, expected %" PRId64, path, count[c], rows);
  }
  for (int c = 0; err == ATOLL_OK && rows > 0 && c < 3; c++)
    err = read_column(store, group, whole_column[c], ATOLL_I64, rows, whole + c * rows);
  for (int c = 0; err == ATOLL_OK && rows > 0 && c < VALUES; c++)
    err = read_column(store, group, value_column[c], ATOLL_F64, rows, value + c * rows);
  for (int64_t r = 0; err == ATOLL_OK && r < rows; r++) {
    atoll_digest model;
    if (atoll_digest_parse(text[1][r], &model) != 0) {
      err = atoll_fail(ATOLL_CORRUPT, "%s/model, row %" PRId64 ": '%s' is not a digest", group, r, text[1][r]);
      break;
    }
    if (whole[2 * rows + r] < 0 || whole[2 * rows + r] > ATOLL_COST_ANALYTIC) {
      err = atoll_fail(ATOLL_CORRUPT, "%s/source, row %" PRId64 ": %" PRId64, group, r, whole[2 * rows + r]);
      break;
    }
    double v[VALUES];
    for (int k = 0; k < VALUES; k++)
      v[k] = value[k * rows + r];
    atoll_cost c = cost_of(v, (int)whole[2 * rows + r]);
    err = atoll_profile_add(p, text[0][r], model, text[2][r], text[3][r], whole[r], whole[rows + r], &c);
    if (err == ATOLL_USAGE)
      err = ATOLL_CORRUPT;
  }
  for (int c = 0; c < 4; c++)
    if (text[c])
      atoll_store_texts_free(&text[c], count[c]);
  free(whole);
  free(value);
  if (err != ATOLL_OK)
    atoll_profile_destroy(&p);
  else
    *out = p;
  return err;
}

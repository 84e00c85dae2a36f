/* Opening token sources: mapping, format, split into training and validation windows.
 *
 * Files are mapped, not read: sizes are 64 bit and a corpus may exceed memory. Touching what a file lost since it was
 * mapped raises SIGBUS, which names nothing; so the files stay open, and each window looks at the size first. */
#include "atoll/data.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_impl.h"

enum { FORMAT_AUTO, FORMAT_BYTES, FORMAT_LLMC };

#define LLMC_MAGIC        20240520
#define LLMC_VERSION      1
#define LLMC_HEADER_BYTES (256 * 4)

static const atoll_opt_def data_defs[] = {
    {"train", ATOLL_OPT_STRING, offsetof(atoll_data_params, train), "", NULL, "",
     "Training text or token file; several are separated by commas."},
    {"validation", ATOLL_OPT_STRING, offsetof(atoll_data_params, validation), "", NULL, "",
     "Held-out file; empty takes the last validation_share of the training source."},
    {"format", ATOLL_OPT_ENUM, offsetof(atoll_data_params, format), "auto", "auto|bytes|llmc", "",
     "bytes: raw text, one token a byte; llmc: llm.c token file; auto decides by name and magic."},
    {"validation_share", ATOLL_OPT_REAL, offsetof(atoll_data_params, validation_share), "0.1", "0..0.9", "",
     "Share of the training source held out when no validation file is given."},
    {"masking", ATOLL_OPT_ENUM, offsetof(atoll_data_params, masking), "auto", "auto|static|dynamic", "",
     "Masks of bert and roberta: static ones repeat after mask_copies epochs, dynamic ones are new in each; auto is "
     "static for bert, dynamic for roberta."},
    {"mask_share", ATOLL_OPT_REAL, offsetof(atoll_data_params, mask_share), "0.15", "0..1", "",
     "Share of a sample's words that bert and roberta predict."},
    {"mask_copies", ATOLL_OPT_INT, offsetof(atoll_data_params, mask_copies), "10", "1..", "copies",
     "Different static maskings of the corpus."},
    {"short_share", ATOLL_OPT_REAL, offsetof(atoll_data_params, short_share), "-1", "-1..1", "",
     "Share of the samples of bert and roberta that are short and padded; -1 means 0.1 for bert, 0 for roberta."},
    {"pad_id", ATOLL_OPT_INT, offsetof(atoll_data_params, pad_id), "-1", "-1..16777215", "",
     "Token of padding; -1 means 256 in plain text, else the published vocabulary's."},
    {"cls_id", ATOLL_OPT_INT, offsetof(atoll_data_params, cls_id), "-1", "-1..16777215", "",
     "Token that begins a sample; -1 means 257 in plain text, else the published vocabulary's."},
    {"sep_id", ATOLL_OPT_INT, offsetof(atoll_data_params, sep_id), "-1", "-1..16777215", "",
     "Token that ends a piece of text; -1 means 258 in plain text, else the published vocabulary's."},
    {"mask_id", ATOLL_OPT_INT, offsetof(atoll_data_params, mask_id), "-1", "-1..16777215", "",
     "Token that hides a word; -1 means 259 in plain text, else the published vocabulary's."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL},
};

const atoll_opt_table atoll_data_options = {"data", data_defs};

void atoll_data_params_init(atoll_data_params *p) { atoll_opt_defaults(&atoll_data_options, p); }

static uint32_t read_u32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void unmap_file(data_file *f) {
  if (f->map)
    munmap((void *)(uintptr_t)f->map, f->bytes);
  if (f->fd >= 0)
    (void)close(f->fd);
  free(f->path);
  memset(f, 0, sizeof *f);
}

void atoll_data_close(atoll_data **data) {
  if (!data || !*data)
    return;
  for (int i = 0; i < (*data)->files; i++)
    unmap_file(&(*data)->file[i]);
  free((*data)->file);
  free(*data);
  *data = NULL;
}

int64_t atoll_data_tokens(const atoll_data *data) { return data->tokens; }

int64_t atoll_data_windows(const atoll_data *data) { return data->windows; }

atoll_digest atoll_data_digest(const atoll_data *data) { return data->digest; }

/* What changes samples beside the text. */
static void add_task(const atoll_data *d, atoll_digester *to) {
  const int64_t numbers[] = {d->task, d->dynamic, d->copies, d->pad, d->cls, d->sep, d->mask};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    atoll_digester_add_int(to, numbers[i]);
  atoll_digester_add_real(to, d->mask_share);
  atoll_digester_add_real(to, d->short_share);
}

static int has_suffix(const char *s, const char *suffix) {
  size_t n = strlen(s), k = strlen(suffix);
  return n >= k && strcmp(s + n - k, suffix) == 0;
}

/* The path as given, or below the job file's folder when it is relative and stands there. */
static char *resolve_path(const char *folder, const char *name) {
  if (name[0] != '/' && folder && folder[0]) {
    size_t n = strlen(folder) + strlen(name) + 2;
    char *joined = malloc(n);
    if (!joined)
      return NULL;
    snprintf(joined, n, "%s/%s", folder, name);
    if (access(joined, F_OK) == 0)
      return joined;
    free(joined);
  }
  return strdup(name);
}

static atoll_err parse_llmc(data_file *f) {
  if (f->bytes < LLMC_HEADER_BYTES)
    return atoll_fail(ATOLL_CORRUPT, "token file %s: %zu bytes, a header alone has %d", f->path, f->bytes,
                      LLMC_HEADER_BYTES);
  uint32_t magic = read_u32(f->map), version = read_u32(f->map + 4), count = read_u32(f->map + 8);
  if (magic != LLMC_MAGIC)
    return atoll_fail(ATOLL_CORRUPT, "token file %s: magic %u, expected %d (llm.c tokens)", f->path, magic, LLMC_MAGIC);
  if (version != LLMC_VERSION)
    return atoll_fail(ATOLL_CORRUPT, "token file %s: version %u, expected %d", f->path, version, LLMC_VERSION);
  /* The header's count is 32 bits wide, so files beyond 2^32 tokens carry it modulo 2^32: the size rules, and must
   * agree. */
  size_t body = f->bytes - LLMC_HEADER_BYTES;
  uint64_t there = body / 2;
  if (body % 2 || (uint32_t)there != count)
    return atoll_fail(ATOLL_CORRUPT,
                      "token file %s: truncated or overlong: header says %u tokens (%.0f bytes), file has %zu bytes",
                      f->path, count, (double)LLMC_HEADER_BYTES + 2.0 * count, f->bytes);
  f->token = f->map + LLMC_HEADER_BYTES;
  f->width = 2;
  f->tokens = (int64_t)there;
  return ATOLL_OK;
}

static atoll_err map_file(const char *folder, const char *name, int format, data_file *f) {
  *f = (data_file){.fd = -1};
  f->path = resolve_path(folder, name);
  if (!f->path)
    return atoll_fail(ATOLL_NOMEM, "path of %s", name);
  f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused below rather than waited for */
  if (f->fd < 0)
    return atoll_fail(ATOLL_NOINPUT, "open data file %s: %s", f->path, strerror(errno));
  struct stat st;
  if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode))
    return atoll_fail(ATOLL_NOINPUT, "data file %s: not a regular file", f->path);
  if (st.st_size == 0)
    return atoll_fail(ATOLL_CORRUPT, "data file %s is empty", f->path);
  void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, f->fd, 0);
  if (map == MAP_FAILED)
    return atoll_fail(ATOLL_NOINPUT, "map data file %s (%lld bytes): %s", f->path, (long long)st.st_size,
                      strerror(errno));
  f->map = map;
  f->bytes = (size_t)st.st_size;
  int magic = f->bytes >= 4 && read_u32(f->map) == LLMC_MAGIC;
  if (format == FORMAT_LLMC || (format == FORMAT_AUTO && (magic || has_suffix(f->path, ".bin"))))
    return parse_llmc(f);
  f->token = f->map;
  f->width = 1;
  f->tokens = (int64_t)f->bytes;
  return ATOLL_OK;
}

static atoll_err open_files(const char *folder, const char *list, int format, atoll_data **out) {
  atoll_data *d = calloc(1, sizeof *d);
  char *copy = strdup(list), *save = NULL;
  atoll_err err = ATOLL_OK;
  if (!d || !copy) {
    err = atoll_fail(ATOLL_NOMEM, "data source %s", list);
    goto done;
  }
  for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
    name += strspn(name, " \t");
    for (size_t n = strlen(name); n && (name[n - 1] == ' ' || name[n - 1] == '\t'); n--)
      name[n - 1] = '\0';
    if (!*name)
      continue;
    data_file *grown = realloc(d->file, (size_t)(d->files + 1) * sizeof *grown);
    if (!grown) {
      err = atoll_fail(ATOLL_NOMEM, "data source %s", list);
      goto done;
    }
    d->file = grown;
    err = map_file(folder, name, format, &d->file[d->files]);
    d->files++; /* also after a failure, so that close releases what the entry holds */
    if (err != ATOLL_OK)
      goto done;
  }
  if (d->files == 0)
    err = atoll_fail(ATOLL_USAGE, "data.train names no file");
done:
  free(copy);
  if (err != ATOLL_OK)
    atoll_data_close(&d);
  *out = d;
  return err;
}

atoll_err data_count_windows(atoll_data *d, const char *what, int64_t stride, int64_t reach) {
  d->stride = stride;
  d->reach = reach;
  d->tokens = d->windows = 0;
  atoll_digester *digester;
  ATOLL_TRY(atoll_digester_create(&digester));
  for (int i = 0; i < d->files; i++) {
    data_file *f = &d->file[i];
    f->windows = f->tokens >= reach ? (f->tokens - reach) / stride + 1 : 0;
    f->window_before = d->windows;
    d->windows += f->windows;
    d->tokens += f->tokens;
    const char *base = strrchr(f->path, '/');
    size_t edge = f->bytes < ((size_t)1 << 20) ? f->bytes : (size_t)1 << 20;
    atoll_digester_add_text(digester, base ? base + 1 : f->path);
    atoll_digester_add_int(digester, (int64_t)f->bytes);
    atoll_digester_add_int(digester, f->width);
    atoll_digester_add_int(digester, f->first);
    atoll_digester_add_int(digester, f->tokens);
    atoll_digester_add(digester, f->map, edge);
    atoll_digester_add(digester, f->map + f->bytes - edge, edge);
  }
  if (d->task != ATOLL_DATA_NEXT)
    add_task(d, digester);
  d->digest = atoll_digester_value(digester);
  atoll_digester_destroy(&digester);
  if (d->windows == 0)
    return atoll_fail(ATOLL_USAGE, "%s data has %lld tokens, one window of train.seq %lld needs %lld", what,
                      (long long)d->tokens, (long long)d->seq, (long long)reach);
  return ATOLL_OK;
}

/* Windows start every seq tokens and need one token more, the last one's target. */
static atoll_err count_windows(atoll_data *d, const char *what, int64_t seq, int64_t vocab) {
  d->seq = seq;
  d->vocab = vocab;
  return data_count_windows(d, what, seq, seq + 1);
}

/* Keep tokens [first, first + tokens) of the source as a whole, counted over its files. */
static void keep_range(atoll_data *d, int64_t first, int64_t tokens) {
  int64_t before = 0;
  for (int i = 0; i < d->files; i++) {
    data_file *f = &d->file[i];
    int64_t lo = first > before ? first - before : 0, hi = first + tokens - before;
    int64_t all = f->tokens;
    if (hi > all)
      hi = all;
    f->first = lo < all ? lo : all;
    f->tokens = hi > f->first ? hi - f->first : 0;
    before += all;
  }
}

atoll_err atoll_data_open(const atoll_data_params *params, const char *folder, int64_t seq, int64_t vocab,
                          atoll_data **train, atoll_data **validation) {
  if (seq < 1 || vocab < 1)
    return atoll_fail(ATOLL_USAGE, "data wants seq and vocab of at least 1, got %lld and %lld", (long long)seq,
                      (long long)vocab);
  if (!params->train[0] && (train || !params->validation[0]))
    return atoll_fail(ATOLL_USAGE, "data.train is not set: name a text or token file");
  atoll_data *t = NULL, *v = NULL;
  atoll_err err = ATOLL_OK;
  int share = !params->validation[0] && params->validation_share > 0;
  if (train)
    ATOLL_TRY_GOTO(err, fail, open_files(folder, params->train, params->format, &t));
  if (validation && (params->validation[0] || share))
    ATOLL_TRY_GOTO(err, fail,
                   open_files(folder, params->validation[0] ? params->validation : params->train, params->format, &v));
  if (share) {
    const atoll_data *any = t ? t : v;
    int64_t total = 0;
    for (int i = 0; any && i < any->files; i++)
      total += any->file[i].tokens;
    int64_t held = (int64_t)((double)total * params->validation_share);
    if (t)
      keep_range(t, 0, total - held);
    if (v)
      keep_range(v, total - held, held);
  }
  if (t)
    ATOLL_TRY_GOTO(err, fail, count_windows(t, "training", seq, vocab));
  if (v)
    ATOLL_TRY_GOTO(err, fail, count_windows(v, "validation", seq, vocab));
  if (train)
    *train = t;
  if (validation)
    *validation = v;
  return ATOLL_OK;
fail:
  atoll_data_close(&t);
  atoll_data_close(&v);
  return err;
}

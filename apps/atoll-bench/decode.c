/* decode: attention of one token after the other, causal or over a window, as a recurrent program, against a padded
 * cache with the best kernel that we can write for one, and against what the scripts decode_*.py of peers/ measured.
 *
 * Inputs repeat after PERIOD tokens, and are made so that programs in any language can make them: see peers/peer.py.
 * On several ranks keys and values are dealt out over them in tiles, and every rank does all of the padded cache.
 *
 * The sum over all tokens' outputs is compared between the two ways, and is the checksum that peers print and that
 * decode_sweep.py compares. */
#include "decode.h"

#include <hwloc.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "atoll/agree.h"
#include "atoll/clock.h"
#include "atoll/log.h"
#include "atoll/recurrent.h"
#include "lists.h"

enum { PERIOD = 64, HEADS = 8, WIDTH = 64, MOST = 32, TILE = 128 };
static const double tolerance = 1e-3; /* of sums of T outputs, relative to the largest */

typedef struct problem {
  int64_t length, window, batch, block, threads, memory;
  const atoll_comm *comm; /* over whose ranks keys and values are dealt out; NULL: there is one */
  float *table;           /* [3, PERIOD, batch, HEADS, WIDTH] */
  float *total;           /* [batch, HEADS, WIDTH] */
} problem;

static int64_t row_of(const problem *p) { return p->batch * HEADS * WIDTH; }

static void fill(problem *p) {
  for (int64_t i = 0; i < 3 * PERIOD * row_of(p); i++) {
    uint32_t bits = (uint32_t)i * UINT32_C(2654435761);
    p->table[i] = (float)(bits >> 8) / (float)(1 << 24) - 0.5f;
  }
}

/* Large memory, in huge pages where there are any, as programs have it: rates depend on that. Freed by free(). */
static float *large(int64_t count) {
  enum { HUGE_PAGE = 1 << 21 };
  const size_t bytes = (size_t)count * sizeof(float) + 64;
  float *x =
      bytes < HUGE_PAGE ? malloc(bytes) : aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
#ifdef MADV_HUGEPAGE
  if (x && bytes >= HUGE_PAGE)
    (void)madvise(x, bytes, MADV_HUGEPAGE); /* a wish only */
#endif
  return x;
}

/* ---- padded: a cache of all T places, scores of all of them, a mask ---- */

/* Compiled for what the processor has, as programs are. */
#if defined __x86_64__ && defined __GLIBC__ && defined __GNUC__ && !defined __clang__ &&                               \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define FAST __attribute__((target_clones("arch=haswell", "default"), optimize("O3")))
#else
#define FAST
#endif

FAST static void attend_padded(const problem *p, int64_t t, const float *q, const float *keys, const float *values,
                               float *score, float *y) {
  const float scale = 1 / sqrtf(WIDTH);
  float most = -INFINITY, sum = 0;
  for (int64_t s = 0; s < p->length; s++) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int d = 0; d < WIDTH; d++)
      dot += q[d] * keys[s * WIDTH + d];
    int seen = s <= t && (p->window == 0 || s > t - p->window);
    score[s] = seen ? dot * scale : -INFINITY;
    most = score[s] > most ? score[s] : most;
  }
  float out[WIDTH] = {0};
  for (int64_t s = 0; s < p->length; s++) {
    float e = expf(score[s] - most);
    sum += e;
    for (int d = 0; d < WIDTH; d++)
      out[d] += e * values[s * WIDTH + d];
  }
  for (int d = 0; d < WIDTH; d++)
    y[d] += out[d] / sum;
}

/* Tokens begin .. end-1 of all; `cache` holds keys and values of the tokens before. */
static void run_padded(const problem *p, int64_t begin, int64_t end, float *cache, float *score, float *total) {
  const int64_t row = row_of(p), heads = p->batch * HEADS, half = heads * p->length * WIDTH;
  for (int64_t t = begin; t < end; t++)
#pragma omp parallel for num_threads(p->threads) if (p->threads > 1)
    for (int64_t h = 0; h < heads; h++) {
      const float *q = p->table + (t % PERIOD) * row + h * WIDTH;
      float *keys = cache + h * p->length * WIDTH, *values = keys + half;
      memcpy(keys + t * WIDTH, q + PERIOD * row, WIDTH * sizeof *keys);
      memcpy(values + t * WIDTH, q + 2 * PERIOD * row, WIDTH * sizeof *values);
      attend_padded(p, t, q, keys, values, score + h * p->length, total + h * WIDTH);
    }
}

/* A cached place costs the same whether it is seen or not, so a part of the tokens is enough: milliseconds of one. */
static atoll_err time_padded(const problem *p, int64_t tokens, float *total, double *ms) {
  const int64_t half = p->batch * HEADS * p->length * WIDTH;
  float *cache = large(2 * half), *score = malloc((size_t)(p->batch * HEADS * p->length) * sizeof *score);
  if (!cache || !score) {
    free(cache);
    free(score);
    return atoll_fail(ATOLL_NOMEM, "a cache of %lld places", (long long)p->length);
  }
  /* Written, so that each page is memory of its own: those of calloc() are all one page, which caches hold. */
  memset(cache, 0, (size_t)(2 * half) * sizeof *cache);
  double began = atoll_clock_now();
  run_padded(p, 0, tokens, cache, score, total);
  *ms = 1e3 * (atoll_clock_now() - began) / (double)tokens;
  free(cache);
  free(score);
  return ATOLL_OK;
}

/* ---- tiled: the recurrent program ---- */

static atoll_err keep_total(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  const problem *p = user;
  (void)out;
  (void)point;
  memcpy(p->total, in->data, (size_t)row_of(p) * sizeof(float));
  return ATOLL_OK;
}

static atoll_rt *repeated(atoll_rec *c, const char *name) {
  atoll_rt *x = atoll_rec_input(c, name, ATOLL_F32, "p,b", ATOLL_SHAPE(HEADS, WIDTH));
  return atoll_rt_at(x, "p=t%64");
}

static atoll_err build(const problem *p, atoll_rec **out) {
  char index[64] = "t=0:t+1";
  ATOLL_TRY(atoll_rec_create(1, out));
  atoll_rec *c = *out;
  atoll_rec_dim(c, "p", PERIOD);
  atoll_rec_dim(c, "b", p->batch);
  atoll_rec_dim(c, "t", 0);
  if (p->window)
    (void)snprintf(index, sizeof index, "t=max(0,t-%lld):t+1", (long long)p->window - 1);
  atoll_rt *q = atoll_rt_scale(repeated(c, "queries"), 1 / sqrt(WIDTH));
  atoll_rt *k = atoll_rt_at(atoll_rt_name(repeated(c, "k"), "keys"), index);
  atoll_rt *v = atoll_rt_at(atoll_rt_name(repeated(c, "v"), "values"), index);
  atoll_rt *y = atoll_rt_einsum("hn,nhd->hd", atoll_rt_softmax(atoll_rt_einsum("hd,nhd->hn", q, k), -1), v);
  atoll_rt *total = atoll_rec_tensor(c, "total", ATOLL_F32, "b,t", ATOLL_SHAPE(HEADS, WIDTH));
  atoll_rt_def(total, "t==0", y);
  atoll_rt_def(total, "true", atoll_rt_add(atoll_rt_at(total, "t=t-1"), y));
  atoll_rt_sink(atoll_rt_at(total, "b=0:B,t=T-1"), "total", keep_total, (void *)(uintptr_t)p);
  return atoll_rec_error(c);
}

typedef struct tiled {
  atoll_rec *context;
  atoll_rec_program *program;
  double compile_seconds;
  int64_t peak, kept; /* bytes of all values; of keys and values */
  char engine[256];
} tiled;

enum { BINDINGS = 4 };

static void bindings(const problem *p, atoll_rec_binding b[BINDINGS]) {
  const int64_t part = PERIOD * row_of(p);
  b[0] = (atoll_rec_binding){"T", p->length, NULL};
  b[1] = (atoll_rec_binding){"queries", 0, p->table};
  b[2] = (atoll_rec_binding){"k", 0, p->table + part};
  b[3] = (atoll_rec_binding){"v", 0, p->table + 2 * part};
}

/* Bytes of keys and values in the program's report: "keys ... , N bytes". */
static int64_t kept_bytes(const char *report) {
  int64_t sum = 0;
  for (const char *line = report; *line;) {
    size_t n = strcspn(line, "\n");
    char text[512];
    (void)snprintf(text, sizeof text, "%.*s", (int)n, line);
    const char *bytes = strstr(text, " bytes");
    if (bytes && (!strncmp(text, "keys ", 5) || !strncmp(text, "values ", 7))) {
      while (bytes > text && bytes[-1] >= '0' && bytes[-1] <= '9')
        bytes--;
      sum += strtoll(bytes, NULL, 10);
    }
    line += n + (line[n] == '\n');
  }
  return sum;
}

static atoll_err account(const problem *p, tiled *t) {
  atoll_rec_binding b[BINDINGS];
  char *text = NULL;
  size_t n = 0;
  bindings(p, b);
  ATOLL_TRY(atoll_rec_peak_bytes(t->program, b, BINDINGS, &t->peak));
  FILE *f = open_memstream(&text, &n);
  if (!f)
    return atoll_fail(ATOLL_NOMEM, "report");
  atoll_err err = atoll_rec_report(t->program, b, BINDINGS, f);
  fclose(f);
  if (err == ATOLL_OK)
    t->kept = kept_bytes(text);
  free(text);
  return err;
}

static atoll_err compile(const problem *p, tiled *t) {
  atoll_rec_params params;
  atoll_rec_params_init(&params);
  params.block = p->block;
  params.threads = (int)p->threads;
  params.vectorize = "b"; /* texts advance together, as they do where tokens are chosen */
  params.least = p->length < 512 ? 1 : 512;
  params.memory = p->memory;
  params.comm = p->comm;
  if (p->comm) {
    params.tile = p->block ? p->block : TILE;
    params.place = "t";
  }
  double began = atoll_clock_now();
  ATOLL_TRY(build(p, &t->context));
  ATOLL_TRY(atoll_rec_compile(t->context, &params, &t->program));
  t->compile_seconds = atoll_clock_now() - began;
  (void)snprintf(t->engine, sizeof t->engine, "%s", atoll_rec_engine(t->program));
  return account(p, t);
}

static void release(tiled *t) {
  atoll_rec_program_destroy(&t->program);
  atoll_rec_destroy(&t->context);
}

static atoll_err time_tiled(const problem *p, const tiled *t, double *ms) {
  atoll_rec_binding b[BINDINGS];
  bindings(p, b);
  double began = atoll_clock_now();
  ATOLL_TRY(atoll_rec_run(t->program, b, BINDINGS));
  *ms = 1e3 * (atoll_clock_now() - began) / (double)p->length;
  return ATOLL_OK;
}

/* ---- what memory gives ---- */

static float sink;

FAST static float add_up(const float *x, int64_t n) {
  float sum[32] = {0}, all = 0;
  for (int64_t i = 0; i + 32 <= n; i += 32)
    for (int k = 0; k < 32; k++)
      sum[k] += x[i + k];
  for (int k = 0; k < 32; k++)
    all += sum[k];
  return all;
}

/* Bytes a second that threads read from a buffer of this size, each its part. */
atoll_err decode_read_rate(int64_t bytes, int threads, double *rate) {
  int64_t n = bytes / (int64_t)sizeof(float), rounds = (INT64_C(256) << 20) / bytes + 1;
  float *x = large(n);
  if (!x)
    return atoll_fail(ATOLL_NOMEM, "a buffer of %lld bytes", (long long)bytes);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(i & 7);
  double began = atoll_clock_now();
#pragma omp parallel num_threads(threads)
  {
    const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), from = n * me / all;
    for (int64_t r = 0; r < rounds; r++) {
      float sum = add_up(x + from, n * (me + 1) / all - from);
#pragma omp atomic
      sink += sum;
    }
  }
  *rate = (double)(rounds * n * (int64_t)sizeof *x) / (atoll_clock_now() - began);
  free(x);
  return ATOLL_OK;
}

/* Bytes of keys and values that token t sees. */
static int64_t seen_bytes(const problem *p, int64_t t) {
  return 2 * (int64_t)sizeof(float) * row_of(p) * (p->window && t + 1 > p->window ? p->window : t + 1);
}

/* The least milliseconds that a token's reads take, on average over a text: a text's working set grows through the
 * caches, whose rates differ several times, so that rates are measured for some lengths and tokens in between take the
 * time of both. *rate: bytes a second that this is. */
static atoll_err read_bound(const problem *p, double *ms, double *rate) {
  enum { SAMPLES = 8, LEAST = 1 << 16, MOST_BYTES = 1 << 29 };
  const int64_t grown = p->window && p->window < p->length ? p->window : p->length; /* after these all see the same */
  double seconds = 0, bytes = 0, before = 0;
  for (int k = 1; k <= SAMPLES; k++) {
    double r;
    const int64_t from = grown * (k - 1) / SAMPLES, to = grown * k / SAMPLES, most = seen_bytes(p, to - 1);
    ATOLL_TRY(decode_read_rate(most < LEAST ? LEAST : most < MOST_BYTES ? most : MOST_BYTES, (int)p->threads, &r));
    before = before > 0 ? before : r;
    for (int64_t t = from; t < to; t++) {
      const double far = (double)(t + 1 - from) / (double)(to - from);
      seconds += (double)seen_bytes(p, t) * ((1 - far) / before + far / r);
      bytes += (double)seen_bytes(p, t);
    }
    before = r;
  }
  seconds += (double)(p->length - grown) * (double)seen_bytes(p, grown) / before;
  bytes += (double)(p->length - grown) * (double)seen_bytes(p, grown);
  *ms = 1e3 * seconds / (double)p->length;
  *rate = bytes / seconds;
  return ATOLL_OK;
}

/* ---- rows ---- */

int64_t decode_l3_bytes(void) {
  static int64_t bytes = -1;
  hwloc_topology_t t;
  if (bytes >= 0 || hwloc_topology_init(&t) != 0)
    return bytes > 0 ? bytes : 0;
  bytes = 0;
  hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE); /* no devices to ask: it takes milliseconds */
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_L3CACHE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(t) == 0) {
    const hwloc_obj_t l3 = hwloc_get_obj_by_type(t, HWLOC_OBJ_L3CACHE, 0);
    bytes = l3 ? (int64_t)l3->attr->cache.size : 0;
  }
  hwloc_topology_destroy(t);
  return bytes;
}

typedef struct figures {
  double tiled[MOST], padded[MOST];
  double bound, rate, dram; /* milliseconds; bytes a second */
  double error;
} figures;

static double largest_difference(const float *a, const float *b, int64_t n) {
  double most = 0, scale = 0;
  for (int64_t i = 0; i < n; i++) {
    most = fmax(most, fabs((double)a[i] - b[i]));
    scale = fmax(scale, fabs((double)b[i]));
  }
  return scale > 0 ? most / scale : most;
}

/* Places that a padded cache computes in a measured run, so that long texts do not take minutes. */
static const double padded_places = 4e7;

static atoll_err measure(problem *p, const tiled *t, int64_t repeats, figures *f) {
  const double places = (double)p->length * (double)p->batch * HEADS;
  int64_t tokens = (int64_t)fmin((double)p->length, fmax(8, padded_places / places));
  float *total = calloc((size_t)row_of(p), sizeof *total);
  double ms = 0;
  atoll_err err = total ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "a row of outputs");
  f->error = NAN;
  for (int64_t k = 0; k <= repeats && err == ATOLL_OK; k++) { /* the first round warms up */
    memset(total, 0, (size_t)row_of(p) * sizeof *total);
    err = time_tiled(p, t, &ms);
    f->tiled[k ? k - 1 : 0] = ms;
    if (err == ATOLL_OK)
      err = time_padded(p, tokens, total, &f->padded[k ? k - 1 : 0]);
    if (err == ATOLL_OK && tokens == p->length)
      f->error = largest_difference(p->total, total, row_of(p));
  }
  if (err == ATOLL_OK)
    err = read_bound(p, &f->bound, &f->rate);
  if (err == ATOLL_OK)
    err = decode_read_rate(INT64_C(512) << 20, (int)p->threads, &f->dram);
  if (err == ATOLL_OK && f->error > tolerance)
    err = atoll_fail(ATOLL_INTERNAL, "T %lld, window %lld: outputs differ by %.3g from those of a padded cache",
                     (long long)p->length, (long long)p->window, f->error);
  free(total);
  return err;
}

static double checksum(const problem *p) {
  double sum = 0;
  for (int64_t i = 0; i < row_of(p); i++)
    sum += p->total[i];
  return sum;
}

static void set(json_t *row, const char *key, double v) {
  json_object_set_new(row, key, isfinite(v) ? json_real(v) : json_null());
}

static atoll_err tell(const problem *p, const tiled *t, figures *f, int64_t repeats, json_t *peers, json_t *rows) {
  static const char *const keys[] = {"layers", "T", "window", "batch", "threads", NULL}; /* models have layers */
  double ms = atoll_median(f->tiled, (size_t)repeats), padded = atoll_median(f->padded, (size_t)repeats);
  double fraction = f->bound / ms;
  json_t *row =
      json_pack("{s:I,s:I,s:I,s:I,s:s,s:i,s:i,s:s}", "T", (json_int_t)p->length, "window", (json_int_t)p->window,
                "batch", (json_int_t)p->batch, "block", (json_int_t)p->block, "dtype", "f32", "threads",
                (int)p->threads, "ranks", p->comm ? atoll_comm_size(p->comm) : 1, "engine", t->engine);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "row of figures");
  set(row, "ms_per_token_tiled", ms);
  set(row, "ms_per_token_padded", padded);
  set(row, "speedup", padded / ms);
  set(row, "peak_kv_bytes", (double)t->kept);
  set(row, "peak_bytes", (double)t->peak);
  set(row, "bandwidth_fraction", fraction);
  set(row, "read_bytes_per_second", f->rate);
  set(row, "dram_bytes_per_second", f->dram);
  set(row, "l3_bytes", decode_l3_bytes() ? (double)decode_l3_bytes() : NAN);
  set(row, "compile_seconds", t->compile_seconds);
  set(row, "checksum", checksum(p));
  set(row, "difference", f->error);
  double best = bench_compare(row, peers, keys, "ms_per_token", 0);
  json_array_append_new(rows, row);
  char against[48];
  atoll_say(
      "T %6lld , window %5lld , batch %2lld : %.4f ms a token , padded %.4f ( %.2f x ) , keys and values %.2f MB , "
      "%.2f of the bandwidth%s",
      (long long)p->length, (long long)p->window, (long long)p->batch, ms, padded, padded / ms, (double)t->kept / 1e6,
      fraction, bench_against(best / ms, against));
  return ATOLL_OK;
}

/* What one rank refuses, as when it holds more tiles than its memory takes, all do not begin. */
static atoll_err together(const problem *p, atoll_err err) {
  return p->comm ? atoll_agree(atoll_comm_mpi(p->comm), err) : err;
}

static atoll_err one(problem *p, int64_t repeats, json_t *peers, json_t *rows) {
  figures f;
  tiled t = {NULL, NULL, 0, 0, 0, ""};
  p->table = malloc((size_t)(3 * PERIOD * row_of(p)) * sizeof *p->table);
  p->total = calloc((size_t)row_of(p), sizeof *p->total);
  atoll_err err =
      p->table && p->total ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "inputs of %lld texts", (long long)p->batch);
  if (err == ATOLL_OK) {
    fill(p);
    err = compile(p, &t);
  }
  err = together(p, err);
  if (err == ATOLL_OK)
    err = together(p, measure(p, &t, repeats, &f));
  if (err == ATOLL_OK)
    err = tell(p, &t, &f, repeats, peers, rows);
  release(&t);
  free(p->table);
  free(p->total);
  return err;
}

static atoll_err sweep(const atoll_cli *cli, const atoll_comm *comm, json_t *peers, json_t *rows) {
  bench_list lengths, windows, batches;
  int64_t repeats, block, threads, memory;
  ATOLL_TRY(bench_numbers(cli, "lengths", "512,2048", 2, 1 << 20, &lengths));
  ATOLL_TRY(bench_numbers(cli, "windows", "0,512", 0, 1 << 20, &windows));
  ATOLL_TRY(bench_numbers(cli, "batches", "1,4", 1, 1024, &batches));
  ATOLL_TRY(bench_count(cli, "repeats", 3, 1, MOST, &repeats));
  ATOLL_TRY(bench_count(cli, "block", 128, 0, 1 << 20, &block));
  ATOLL_TRY(bench_count(cli, "threads", 1, 1, 1024, &threads));
  ATOLL_TRY(bench_count(cli, "memory", 0, 0, INT64_C(1) << 50, &memory));
  for (int l = 0; l < lengths.n; l++)
    for (int w = 0; w < windows.n; w++)
      for (int b = 0; b < batches.n; b++) {
        if (bench_sees_the_same(&windows, w, lengths.v[l])) {
          if (b == 0)
            atoll_say("T %lld: window %lld is all tokens again and left out", (long long)lengths.v[l],
                      (long long)windows.v[w]);
          continue;
        }
        problem p = {.length = lengths.v[l],
                     .window = windows.v[w],
                     .batch = batches.v[b],
                     .block = block,
                     .threads = threads,
                     .memory = memory,
                     .comm = comm};
        ATOLL_TRY(one(&p, repeats, peers, rows));
      }
  return ATOLL_OK;
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out) {
  int size;
  json_t *peers = NULL, *rows = json_array();
  atoll_comm *comm = NULL;
  const char *part = atoll_cli_value(cli, "part");
  (void)job;
  (void)opts;
  if (part && strcmp(part, "attention") != 0 && strcmp(part, "model") != 0 && strcmp(part, "compile") != 0)
    return atoll_fail(ATOLL_USAGE, "--part %s: expected attention, model or compile", part);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  atoll_err err = size > 1 ? atoll_comm_create(MPI_COMM_WORLD, "keys", NULL, &comm) : ATOLL_OK;
  if (err == ATOLL_OK)
    err = atoll_agree(MPI_COMM_WORLD, bench_rows(cli, "peers", &peers));
  if (err == ATOLL_OK && (!part || strcmp(part, "attention") == 0))
    err = sweep(cli, comm, peers, rows);
  if (out)
    json_object_set(out, "rows", rows);
  if (err == ATOLL_OK && size == 1) /* the model is one rank's */
    err = decode_models(cli, part, peers, out);
  if (err == ATOLL_OK)
    bench_tell_unmatched(peers);
  if (comm)
    atoll_comm_destroy(&comm);
  json_decref(rows);
  json_decref(peers);
  return err;
}

const bench bench_decode = {
    "decode", "Attention and models token by token as recurrent programs, and their compile times.",
    "peers lengths windows batches part model-lengths layers threads block memory repeats", run};

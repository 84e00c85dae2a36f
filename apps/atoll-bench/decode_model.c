/* A small Llama as a recurrent program: how long a token takes, and how long the program takes to compile, from nothing
 * and from what was kept, over the number of layers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/recurrent_model.h"
#include "decode.h"
#include "lists.h"

enum { WIDTH = 512, HEADS = 8, KV_HEADS = 2, FFN = 1536, VOCAB = 8192, LAYERS = 8, MOST = 32 };

/* The next token of a text is a function of its position alone, so that nothing but the program is timed. */
static atoll_err choose(void *user, int64_t text, int64_t position, const float *logits, int32_t *token) {
  double *sum = user;
  *token = (int32_t)((position * 7 + text * 13) % VOCAB);
  *sum += logits ? logits[0] : 0;
  return ATOLL_OK;
}

typedef struct llama {
  atoll_model *m;
  atoll_rec_model *program;
  double compile_seconds, sum;
} llama;

static void release(llama *x) {
  atoll_rec_model_destroy(&x->program);
  atoll_model_destroy(&x->m);
}

static atoll_err create(int64_t layers, const atoll_rec_model_params *p, llama *x) {
  atoll_model_params mp;
  atoll_model_params_init(&mp);
  mp.family = ATOLL_FAMILY_LLAMA;
  mp.layers = layers;
  mp.width = WIDTH;
  mp.heads = HEADS;
  mp.kv_heads = KV_HEADS;
  mp.ffn = FFN;
  mp.vocab = VOCAB;
  mp.context = 1 << 20;
  ATOLL_TRY(atoll_model_create(&mp, &x->m));
  double began = atoll_clock_now();
  ATOLL_TRY(atoll_rec_model_create(x->m, p, choose, &x->sum, &x->program));
  x->compile_seconds = atoll_clock_now() - began;
  return ATOLL_OK;
}

static void fill(llama *x) {
  atoll_tensor *w = atoll_rec_model_weights(x->program);
  for (int k = 0; k < atoll_model_params_count(x->m); k++) {
    float *v = w[k].data;
    for (int64_t i = 0, n = atoll_tensor_local_count(&w[k]); i < n; i++)
      v[i] = (float)((uint32_t)i * UINT32_C(2654435761) >> 8) / (float)(1 << 24) * 0.1f - 0.05f;
  }
}

/* Bytes of weights and of keys and values that a token of all texts reads, on average over a text. */
static double seen_bytes(const llama *x, int64_t length, const atoll_rec_model_params *p) {
  double places = 0, row = 2.0 * LAYERS * KV_HEADS * WIDTH / HEADS;
  for (int64_t t = 0; t < length; t++)
    places += (double)(p->window && t + 1 > p->window ? p->window : t + 1);
  return sizeof(float) * ((double)atoll_model_matmul_elements(x->m) + row * (double)p->texts * places / (double)length);
}

/* bytes that a token reads, of `rate` a second at most; sum: of the first logits of all tokens but the last. */
static atoll_err tell(int64_t length, const atoll_rec_model_params *p, double ms, double bytes, double rate, double sum,
                      json_t *peers, json_t *rows) {
  static const char *const keys[] = {"layers", "T", "window", "batch", "threads", NULL};
  const double fraction = bytes / (1e-3 * ms) / rate;
  char against[48];
  json_t *row =
      json_pack("{s:I,s:I,s:I,s:i,s:i,s:I,s:f,s:f,s:f,s:f}", "T", (json_int_t)length, "window", (json_int_t)p->window,
                "batch", (json_int_t)p->texts, "layers", LAYERS, "threads", p->threads, "block", (json_int_t)p->block,
                "ms_per_token", ms, "bandwidth_fraction", fraction, "read_bytes_per_second", rate, "checksum", sum);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "row of figures");
  const double best = bench_compare(row, peers, keys, "ms_per_token", 0);
  json_array_append_new(rows, row);
  atoll_say("Llama of %d layers , T %6lld , window %5lld , batch %2lld : %.3f ms a token , %.2f of the bandwidth%s",
            LAYERS, (long long)length, (long long)p->window, (long long)p->texts, ms, fraction,
            bench_against(best / ms, against));
  return ATOLL_OK;
}

static atoll_err time_tokens(int64_t length, int64_t repeats, const atoll_rec_model_params *p, json_t *peers,
                             json_t *rows) {
  llama x = {NULL, NULL, 0, 0};
  double v[MOST], rate = 0;
  atoll_err err = create(LAYERS, p, &x);
  if (err == ATOLL_OK)
    fill(&x);
  for (int64_t k = 0; k <= repeats && err == ATOLL_OK; k++) {
    double began = atoll_clock_now();
    x.sum = 0;
    err = atoll_rec_model_run(x.program, length);
    v[k ? k - 1 : 0] = 1e3 * (atoll_clock_now() - began) / (double)length;
  }
  double bytes = err == ATOLL_OK ? seen_bytes(&x, length, p) : 1;
  if (err == ATOLL_OK)
    err = decode_read_rate((int64_t)fmin(bytes, 1 << 30), p->threads, &rate);
  if (err == ATOLL_OK)
    err = tell(length, p, atoll_median(v, (size_t)repeats), bytes, rate, x.sum, peers, rows);
  release(&x);
  return err;
}

static atoll_err sweep(const atoll_cli *cli, const atoll_rec_model_params *given, json_t *peers, json_t *rows) {
  bench_list lengths, windows, batches;
  int64_t repeats;
  ATOLL_TRY(bench_numbers(cli, "model-lengths", "512", 2, 1 << 20, &lengths));
  ATOLL_TRY(bench_numbers(cli, "windows", "0,512", 0, 1 << 20, &windows));
  ATOLL_TRY(bench_numbers(cli, "batches", "1,4", 1, 1024, &batches));
  ATOLL_TRY(bench_count(cli, "repeats", 3, 1, MOST, &repeats));
  for (int l = 0; l < lengths.n; l++)
    for (int w = 0; w < windows.n; w++)
      for (int b = 0; b < batches.n; b++) {
        if (bench_sees_the_same(&windows, w, lengths.v[l])) {
          if (b == 0)
            atoll_say("Llama , T %lld: window %lld is all tokens again and left out", (long long)lengths.v[l],
                      (long long)windows.v[w]);
          continue;
        }
        atoll_rec_model_params p = *given;
        p.window = windows.v[w];
        p.texts = batches.v[b];
        ATOLL_TRY(time_tokens(lengths.v[l], repeats, &p, peers, rows));
      }
  return ATOLL_OK;
}

/* From an empty cache, and from what that has left. */
static atoll_err time_compiling(int64_t layers, const atoll_rec_model_params *p, json_t *rows) {
  double seconds[2] = {0, 0};
  for (int k = 0; k < 2; k++) {
    llama x = {NULL, NULL, 0, 0};
    atoll_err err = create(layers, p, &x);
    seconds[k] = x.compile_seconds;
    release(&x);
    ATOLL_TRY(err);
  }
  json_array_append_new(rows,
                        json_pack("{s:I,s:I,s:I,s:I,s:f,s:f}", "layers", (json_int_t)layers, "window",
                                  (json_int_t)p->window, "batch", (json_int_t)p->texts, "block", (json_int_t)p->block,
                                  "cold_seconds", seconds[0], "cached_seconds", seconds[1]));
  atoll_say("Llama of %2lld layers , window %5lld , batch %2lld : compiled in %.3f s , from the cache in %.4f s",
            (long long)layers, (long long)p->window, (long long)p->texts, seconds[0], seconds[1]);
  return ATOLL_OK;
}

static atoll_err compile_sweep(const atoll_cli *cli, const atoll_rec_model_params *given, json_t *rows) {
  bench_list layers;
  ATOLL_TRY(bench_numbers(cli, "layers", "4,64", 1, 4096, &layers));
  for (int w = 0; w < 2; w++)
    for (int l = 0; l < layers.n; l++) {
      atoll_rec_model_params p = *given;
      p.window = w ? 512 : 0;
      p.texts = 1;
      ATOLL_TRY(time_compiling(layers.v[l], &p, rows));
    }
  return ATOLL_OK;
}

/* Runs f with a cache of its own, which is empty. */
static atoll_err with_empty_cache(const atoll_cli *cli, const atoll_rec_model_params *p, json_t *rows) {
  char folder[512], *before = getenv("ATOLL_CACHE");
  ATOLL_TRY(bench_scratch(MPI_COMM_WORLD, NULL, folder, sizeof folder));
  before = before ? strdup(before) : NULL;
  setenv("ATOLL_CACHE", folder, 1);
  atoll_err err = compile_sweep(cli, p, rows);
  if (before)
    setenv("ATOLL_CACHE", before, 1);
  else
    unsetenv("ATOLL_CACHE");
  free(before);
  atoll_err removed = atoll_file_remove_tree(folder);
  return err != ATOLL_OK ? err : removed;
}

atoll_err decode_models(const atoll_cli *cli, const char *part, json_t *peers, json_t *out) {
  int64_t block, threads;
  ATOLL_TRY(bench_count(cli, "block", 128, 0, 1 << 20, &block));
  ATOLL_TRY(bench_count(cli, "threads", 1, 1, 1024, &threads));
  const atoll_rec_model_params p = {.block = block, .threads = (int)threads};
  json_t *model = json_array(), *compile = json_array();
  atoll_err err = ATOLL_OK;
  if (!part || strcmp(part, "model") == 0)
    err = sweep(cli, &p, peers, model);
  if (err == ATOLL_OK && (!part || strcmp(part, "compile") == 0))
    err = with_empty_cache(cli, &p, compile);
  if (out) {
    json_object_set(out, "model", model);
    json_object_set(out, "compile", compile);
  }
  json_decref(model);
  json_decref(compile);
  return err;
}

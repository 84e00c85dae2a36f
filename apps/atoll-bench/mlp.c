/* mlp: two or more dependent GEMMs over ranks of one node, every way of running them.
 *
 * Each rank is one thread on one core. First every setting of every way is tried, and the better ones of each way
 * again, some times; then the ways take turns in their best settings, many and short, in rotating order, until
 * --seconds are spent. Of two calls back to back the second is timed, from the first rank's start to the last one's
 * end; of one that takes long, and finds no cache of use, the first, so that there are twice as many. Layers but the
 * last have a ReLU, with --gated a SiLU gate: two matrices, as the MLP of Llama. On a shared
 * machine speed drifts, so ways are compared within each turn: `cta_over` holds median and quartiles of these ratios,
 * `spread` quartiles of the times, of which the *_us are medians. ideal_us is sequential_us over the ranks. The BLAS
 * row, of f32 without gates, multiplies with a library instead of Atoll's packed products, over the same MPI messages.
 * The chosen row is what atoll_chain_choose() finds by measurements of its own, against the least of all ways. */
#include "mlp.h"

#include <cblas.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/bf16.h"
#include "atoll/clock.h"
#include "atoll/log.h"
#include "atoll/plugin.h"
#include "atoll/rng.h"
#include "ceiling.h"
#include "mlp_stage.h"

enum { MOST_TURNS = 500, SETTINGS = 256, AGAIN = 3, MOST_AGAIN = 9, BLAS = ATOLL_CHAIN_WAYS, CHOSEN, ROWS };

static const shape mlp_shapes[] = {
    {2, 32, {1024, 4096, 1024}},   {2, 64, {1024, 1024, 1024}},   {2, 256, {1024, 1024, 1024}},
    {2, 1024, {1024, 1024, 1024}}, {2, 4096, {512, 512, 512}},    {2, 512, {1024, 4096, 1024}},
    {2, 256, {4096, 4096, 4096}},  {2, 2048, {2048, 2048, 2048}}, {2, 1024, {512, 2048, 2048}},
    {2, 1024, {2048, 2048, 512}},
};

/* One way in one setting. */
typedef struct setting {
  int way;     /* atoll_chain_way, or BLAS */
  int library; /* BLAS: of libraries[] */
  atoll_chain_cut cut;
  double trial; /* s */
} setting;

typedef struct world {
  atoll_comm *comm;
  atoll_mem *mem;
  int rank, ranks;
  int repeats;             /* turns at least ... */
  double seconds;          /* ... and until so many are spent on a shape */
  atoll_device *device;    /* NULL: the host's cores */
  int gated;               /* layers but the last have two matrices and a gate */
  atoll_dtype dtype;       /* of x and weights on the host */
  const char *trace, *svg; /* files for the timeline of the next shape; NULL: none */
  const char *choices;     /* the chooser's file; "": none */
  atoll_device *host;
  atoll_symmetric *flags; /* for flag_round_trip() */
  uint32_t *count;        /* likewise */
} world;

typedef struct problem {
  shape s;
  atoll_chain *chain;
  float *x, *w[ATOLL_CHAIN_LAYERS];          /* w: own layers */
  float *v[ATOLL_CHAIN_LAYERS];              /* and of gates */
  uint16_t *half;                            /* x in bf16; NULL in f32 */
  float *blas_in, *blas[ATOLL_CHAIN_LAYERS]; /* inputs from another rank, and outputs of own layers */
  float *want;                               /* the sequential result */
} problem;

typedef struct quartiles {
  double first, median, third;
} quartiles;

typedef struct figures {
  int turns;
  double seconds[ROWS][MOST_TURNS]; /* sorted at last */
  quartiles time[ROWS];             /* s */
  quartiles over_ideal[ROWS];       /* ratios, turn by turn */
  quartiles cta_over[ROWS];         /* of the pipelined way's time to the row's, likewise */
  double trips[MOST_TURNS];         /* s of a flag there and back at the turn's start */
  quartiles trip;
  struct {
    int turns;
    double cta, rows; /* medians over the ideal of the pipelined way and of the row split */
  } at[2];            /* near, far: a flag took up to twice as long as in the best turn, or longer */
  double loss;        /* of the chooser's pick over the best way */
} figures;

/* --- BLAS micro-batching ------------------------------------------------------------------------------------------ */

static void by_openblas(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)M, (blasint)N, (blasint)K, 1, A, (blasint)K, B,
              (blasint)N, 0, C, (blasint)N);
}

static void by_onednn(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
  (void)dnnl_sgemm('N', 'N', M, N, K, 1, A, K, B, N, 0, C, N);
}

static const struct library {
  const char *name;
  void (*gemm)(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C);
} libraries[] = {{"openblas", by_openblas}, {"onednn", by_onednn}};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static void relu(float *c, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    c[i] = c[i] > 0 ? c[i] : 0;
}

static int owner_of(const world *w, const problem *q, int layer) {
  return layer < 0 || layer >= q->s.layers ? -1 : layer * w->ranks / q->s.layers;
}

/* Rows [r0, r1) through this rank's layers [first, last). */
static const float *blas_chunk(problem *q, const struct library *lib, int first, int last, int64_t r0, int64_t r1) {
  const float *from = (first == 0 ? q->x : q->blas_in) + r0 * q->s.width[first];
  for (int l = first; l < last; l++) {
    float *to = q->blas[l] + r0 * q->s.width[l + 1];
    lib->gemm(r1 - r0, q->s.width[l + 1], q->s.width[l], from, q->w[l], to);
    if (l + 1 < q->s.layers)
      relu(to, (r1 - r0) * q->s.width[l + 1]);
    from = to;
  }
  return from;
}

static atoll_err run_blas(const world *w, problem *q, const setting *t) {
  enum { MOST = 64 };
  MPI_Request in[MOST], out[MOST];
  MPI_Comm comm = atoll_comm_mpi(w->comm);
  int first = q->s.layers, last = 0, chunks = (int)t->cut.chunks;
  for (int l = 0; l < q->s.layers; l++)
    if (owner_of(w, q, l) == w->rank) {
      first = l < first ? l : first;
      last = l + 1;
    }
  int before = owner_of(w, q, first - 1), after = owner_of(w, q, last);
  for (int i = 0; i < chunks && last > 0; i++) {
    int64_t r0 = q->s.M * i / chunks, r1 = q->s.M * (i + 1) / chunks, n = q->s.width[first];
    in[i] = out[i] = MPI_REQUEST_NULL;
    if (before >= 0)
      MPI_Irecv(q->blas_in + r0 * n, (int)((r1 - r0) * n), MPI_FLOAT, before, i, comm, &in[i]);
  }
  for (int i = 0; i < chunks && last > 0; i++) {
    int64_t r0 = q->s.M * i / chunks, r1 = q->s.M * (i + 1) / chunks;
    MPI_Wait(&in[i], MPI_STATUS_IGNORE);
    const float *y = blas_chunk(q, &libraries[t->library], first, last, r0, r1);
    if (after >= 0)
      MPI_Isend(y, (int)((r1 - r0) * q->s.width[last]), MPI_FLOAT, after, i, comm, &out[i]);
  }
  if (last > 0)
    MPI_Waitall(chunks, out, MPI_STATUSES_IGNORE);
  return ATOLL_OK;
}

static const double long_call = 0.05; /* s */

/* --- one measurement ---------------------------------------------------------------------------------------------- */

static atoll_err call(const world *w, problem *q, const setting *t, const float **y) {
  if (t->way == BLAS)
    return run_blas(w, q, t);
  return atoll_chain_run(q->chain, (atoll_chain_way)t->way, &t->cut, q->s.M, q->half ? (void *)q->half : q->x, y);
}

static atoll_err measure_call(const world *w, problem *q, const setting *t, double *seconds) {
  const float *y = NULL;
  MPI_Comm comm = atoll_comm_mpi(w->comm);
  double span[2] = {0, 0};
  MPI_Barrier(comm);
  span[0] = -atoll_clock_now();
  ATOLL_TRY(call(w, q, t, &y));
  span[1] = atoll_clock_now();
  if (w->device) { /* without x and y on their way */
    span[0] = 0;
    span[1] = atoll_chain_device_seconds(q->chain);
  }
  MPI_Allreduce(MPI_IN_PLACE, span, 2, MPI_DOUBLE, MPI_MAX, comm);
  *seconds = span[0] + span[1];
  return ATOLL_OK;
}

static atoll_err measure(const world *w, problem *q, const setting *t, double *seconds) {
  ATOLL_TRY(measure_call(w, q, t, seconds));
  return *seconds > long_call ? ATOLL_OK : measure_call(w, q, t, seconds);
}

/* --- a shape ------------------------------------------------------------------------------------------------------ */

static atoll_err numbers(uint64_t what, int64_t n, float std, float **out) {
  atoll_rng_key key = {.seed = 5, .sample = what, .site = ATOLL_RNG_TEST};
  *out = aligned_alloc(64, ((size_t)n * sizeof **out + 64) / 64 * 64);
  if (!*out)
    return atoll_fail(ATOLL_NOMEM, "%lld numbers", (long long)n);
  if (std > 0)
    atoll_rng_fill_normal(&key, 0, (size_t)n, std, *out);
  else
    memset(*out, 0, (size_t)n * sizeof **out);
  return ATOLL_OK;
}

/* n of x in bf16; free(). */
static atoll_err rounded(const float *x, int64_t n, uint16_t **out) {
  *out = malloc((size_t)n * sizeof **out);
  if (!*out)
    return atoll_fail(ATOLL_NOMEM, "%lld numbers in bf16", (long long)n);
  for (int64_t i = 0; i < n; i++)
    (*out)[i] = atoll_bf16_of(x[i]);
  return ATOLL_OK;
}

static int has_gate(const world *w, const problem *q, int layer) { return w->gated && layer + 1 < q->s.layers; }

static void close_problem(problem *q) {
  if (q->chain)
    atoll_chain_destroy(&q->chain);
  free(q->x), free(q->half), free(q->want), free(q->blas_in);
  for (int l = 0; l < ATOLL_CHAIN_LAYERS; l++)
    free(q->w[l]), free(q->v[l]), free(q->blas[l]);
}

static atoll_err fill_problem(const world *w, problem *q) {
  int64_t widest = 0;
  ATOLL_TRY(numbers(0, q->s.M * q->s.width[0], 1, &q->x));
  if (w->dtype == ATOLL_BF16)
    ATOLL_TRY(rounded(q->x, q->s.M * q->s.width[0], &q->half));
  for (int l = 0; l <= q->s.layers; l++)
    widest = q->s.width[l] > widest ? q->s.width[l] : widest;
  ATOLL_TRY(numbers(0, q->s.M * widest, 0, &q->blas_in));
  ATOLL_TRY(numbers(0, q->s.M * q->s.width[q->s.layers], 0, &q->want));
  for (int l = 0; l < q->s.layers; l++) {
    int64_t in = q->s.width[l], out = q->s.width[l + 1];
    if (owner_of(w, q, l) != w->rank)
      continue;
    ATOLL_TRY(numbers(1 + (uint64_t)l, in * out, 1 / (float)in, &q->w[l]));
    if (has_gate(w, q, l))
      ATOLL_TRY(numbers(100 + (uint64_t)l, in * out, 1 / (float)in, &q->v[l]));
    ATOLL_TRY(numbers(0, q->s.M * out, 0, &q->blas[l]));
  }
  return ATOLL_OK;
}

/* which: 0 for V of a gate, 1 for the layer's other matrix. Ranks that do not own the layer give nothing. */
static atoll_err set_matrix(const world *w, problem *q, int layer, int which) {
  int64_t in = q->s.width[layer], out = q->s.width[layer + 1];
  const float *from = which ? q->w[layer] : q->v[layer];
  uint16_t *half = NULL;
  atoll_err err = w->dtype == ATOLL_BF16 && from ? rounded(from, in * out, &half) : ATOLL_OK;
  ATOLL_TRY_ALL(atoll_comm_mpi(w->comm), err);
  err = which ? atoll_chain_set_layer(q->chain, layer, half ? (void *)half : from, out, 1, NULL)
              : atoll_chain_set_gate(q->chain, layer, half ? (void *)half : from, out, 1);
  free(half);
  return err;
}

static atoll_err open_problem(const world *w, problem *q) {
  atoll_chain_params p;
  atoll_chain_params_init(&p);
  p.rows = q->s.M;
  p.layers = q->s.layers;
  p.device = w->device;
  p.dtype = w->dtype;
  for (int l = 0; l < p.layers; l++)
    p.layer[l] = (atoll_chain_layer){q->s.width[l], q->s.width[l + 1],
                                     has_gate(w, q, l)  ? ATOLL_ACTIVATION_SWIGLU
                                     : l + 1 < p.layers ? ATOLL_ACTIVATION_RELU
                                                        : ATOLL_ACTIVATION_NONE,
                                     0};
  ATOLL_TRY_ALL(atoll_comm_mpi(w->comm), fill_problem(w, q));
  ATOLL_TRY(atoll_chain_create(w->comm, w->mem, &p, &q->chain));
  for (int l = 0; l < p.layers; l++)
    for (int which = !has_gate(w, q, l); which < 2; which++)
      ATOLL_TRY(set_matrix(w, q, l, which));
  return ATOLL_OK;
}

static int settings_of(const world *w, const problem *q, setting *all) {
  static atoll_chain_setting list[SETTINGS];
  int n = atoll_chain_settings(q->chain, q->s.M, 0, list, SETTINGS);
  for (int i = 0; i < n; i++)
    all[i] = (setting){(int)list[i].way, 0, list[i].cut, 0};
  int plain = !w->device && !w->gated && w->dtype == ATOLL_F32;
  for (int library = 0; library < LIBRARIES && plain; library++)
    for (int64_t chunks = 1; chunks <= 32 && chunks * 8 <= q->s.M && n < SETTINGS; chunks *= 2)
      all[n++] = (setting){BLAS, library, {0, chunks}, 0};
  return n;
}

/* Ways that sum in another order than the sequential one. */
static int other_bits(int way) {
  return way == ATOLL_CHAIN_TP_ALLREDUCE || way == ATOLL_CHAIN_TP_FLAGS || way == ATOLL_CHAIN_BLAS_CHUNKS;
}

/* Bits of every way in its best setting against the sequential one's; the error of those with other bits. */
static atoll_err check_bits(const world *w, problem *q, const setting *best, int *identical, double *error) {
  const float *y = NULL;
  int64_t n = q->s.M * q->s.width[q->s.layers];
  ATOLL_TRY(call(w, q, &best[ATOLL_CHAIN_SEQUENTIAL], &y));
  memcpy(q->want, y, (size_t)n * sizeof *y);
  *identical = 1;
  *error = 0;
  for (int way = 0; way < ATOLL_CHAIN_WAYS; way++) {
    double scale = 1e-30, worst = 0;
    if (best[way].way != way)
      continue;
    ATOLL_TRY(call(w, q, &best[way], &y));
    for (int64_t i = 0; i < n; i++) {
      double e = y[i] - q->want[i], v = q->want[i];
      scale = v > scale ? v : -v > scale ? -v : scale;
      worst = e > worst ? e : -e > worst ? -e : worst;
    }
    if (other_bits(way))
      *error = worst / scale > *error ? worst / scale : *error;
    else
      *identical &= !memcmp(y, q->want, (size_t)n * sizeof *y);
  }
  MPI_Allreduce(MPI_IN_PLACE, identical, 1, MPI_INT, MPI_MIN, atoll_comm_mpi(w->comm));
  return ATOLL_OK;
}

static const char *row_name(int row) {
  return row == BLAS ? "microbatch_blas" : row == CHOSEN ? "chosen" : atoll_chain_way_name((atoll_chain_way)row);
}

static int by_way_and_trial(const void *a, const void *b) {
  const setting *x = a, *y = b;
  return x->way != y->way ? x->way - y->way : (x->trial > y->trial) - (x->trial < y->trial);
}

/* How often a setting that took so long is measured again: the quick ones are the noisy ones. */
static int times_again(double seconds) { return seconds > long_call ? 1 : seconds > 0.0125 ? 4 : MOST_AGAIN; }

/* Tries every setting, then the first AGAIN of each way in turn; of those the medians count, of the long ones, which
 * are few, the lesser of both times. */
static atoll_err try_settings(const world *w, problem *q, setting *best) {
  static setting all[SETTINGS];
  static double again[SETTINGS][MOST_AGAIN];
  int n = settings_of(w, q, all), kept = 0;
  for (int i = 0; i < n; i++)
    ATOLL_TRY(measure(w, q, &all[i], &all[i].trial));
  qsort(all, (size_t)n, sizeof *all, by_way_and_trial);
  for (int i = 0, place = 0, way = -1; i < n; i++) {
    place = all[i].way == way ? place + 1 : 0;
    way = all[i].way;
    if (place < AGAIN)
      all[kept++] = all[i];
  }
  for (int k = 0; k < MOST_AGAIN; k++)
    for (int i = 0; i < kept; i++)
      if (k < times_again(all[i].trial))
        ATOLL_TRY(measure(w, q, &all[i], &again[i][k]));
  for (int i = 0; i < kept; i++) {
    int times = times_again(all[i].trial);
    atoll_sort(again[i], (size_t)times);
    double median = again[i][(times - 1) / 2];
    all[i].trial = times > 1 || median < all[i].trial ? median : all[i].trial;
    setting *b = &best[all[i].way];
    if (b->way < 0 || all[i].trial < b->trial)
      *b = all[i];
  }
  return ATOLL_OK;
}

/* Sorts v. */
static quartiles quartiles_of(double *v, int n) {
  atoll_sort(v, (size_t)n);
  return (quartiles){v[n / 4], v[n / 2], v[3 * n / 4]};
}

/* Of one row's time over another's, turn by turn, from turn `from` on every `step`-th. */
static quartiles ratio_in(const figures *f, int row, int over, int from, int step) {
  static double ratio[MOST_TURNS];
  int n = 0;
  for (int i = from; i < f->turns; i += step)
    ratio[n++] = f->seconds[row][i] / f->seconds[over][i];
  return quartiles_of(ratio, n);
}

static quartiles ratio_of(const figures *f, int row, int over, double times) {
  quartiles r = ratio_in(f, row, over, 0, 1);
  return (quartiles){times * r.first, times * r.median, times * r.third};
}

/* The turns of near and of far cores apart: within seconds a hypervisor moves virtual ones between caches. */
static void split_by_distance(const world *w, const setting *best, figures *f) {
  static double cta[MOST_TURNS], rows[MOST_TURNS];
  double least = f->trips[0];
  for (int i = 0; i < f->turns; i++)
    least = f->trips[i] < least ? f->trips[i] : least;
  for (int far = 0; far < 2; far++) {
    int n = 0;
    for (int i = 0; i < f->turns; i++) {
      double ideal = f->seconds[ATOLL_CHAIN_SEQUENTIAL][i] / w->ranks;
      if ((f->trips[i] > 2 * least) != far)
        continue;
      cta[n] = f->seconds[ATOLL_CHAIN_CTA][i] / ideal;
      rows[n++] = best[ATOLL_CHAIN_ROW_SPLIT].way < 0 ? 0 : f->seconds[ATOLL_CHAIN_ROW_SPLIT][i] / ideal;
    }
    f->at[far].turns = n;
    f->at[far].cta = n ? quartiles_of(cta, n).median : 0;
    f->at[far].rows = n ? quartiles_of(rows, n).median : 0;
  }
}

/* What the chooser's pick costs over the best way. The best of many noisy figures looks better than it is, so every
 * other turn says which way is best, and the turns between what it gains; then the other way round. */
static double loss_of(const figures *f, const setting *best) {
  double sum = 0;
  for (int half = 0; half < 2 && f->turns > 1; half++) {
    int row = CHOSEN;
    for (int i = 0; i < ATOLL_CHAIN_WAYS; i++)
      row = best[i].way >= 0 && ratio_in(f, row, i, half, 2).median > 1 ? i : row;
    sum += ratio_in(f, CHOSEN, row, !half, 2).median - 1;
  }
  return sum / 2;
}

/* Times are the same on all ranks, so these end together. */
static atoll_err take_turns(const world *w, problem *q, const setting *best, figures *f) {
  double spent = 0;
  for (f->turns = 0; f->turns < MOST_TURNS && (f->turns < w->repeats || spent < w->seconds); f->turns++) {
    ATOLL_TRY(flag_round_trip(w->comm, w->flags, w->count, &f->trips[f->turns]));
    for (int i = 0; i < ROWS; i++) {
      int row = (i + f->turns) % ROWS;
      if (best[row].way < 0)
        continue;
      ATOLL_TRY(measure(w, q, &best[row], &f->seconds[row][f->turns]));
      spent += (f->seconds[row][f->turns] > long_call ? 1 : 2) * f->seconds[row][f->turns];
    }
  }
  return ATOLL_OK;
}

/* best[row].way is -1 where the shape has no such row. */
static atoll_err measure_shape(const world *w, problem *q, setting *best, figures *f) {
  for (int row = 0; row < ROWS; row++)
    best[row].way = -1;
  ATOLL_TRY(try_settings(w, q, best));
  atoll_chain_choice choice;
  ATOLL_TRY(atoll_chain_choose(q->chain, q->s.M, 0, w->choices, &choice));
  const atoll_chain_cut cut = choice.setting.cut;
  setting *same = &best[choice.setting.way];
  int found = same->cut.panel == cut.panel && same->cut.chunks == cut.chunks; /* then its times are the row's */
  best[CHOSEN] = found ? (setting){.way = -1} : (setting){(int)choice.setting.way, 0, cut, 0};
  ATOLL_TRY(take_turns(w, q, best, f));
  if (found) {
    best[CHOSEN] = *same;
    memcpy(f->seconds[CHOSEN], f->seconds[choice.setting.way], sizeof f->seconds[CHOSEN]);
  }
  for (int row = 0; row < ROWS; row++)
    f->over_ideal[row] = best[row].way < 0 ? (quartiles){0, 0, 0} : ratio_of(f, row, ATOLL_CHAIN_SEQUENTIAL, w->ranks);
  for (int row = 0; row < ROWS; row++)
    f->cta_over[row] = best[row].way < 0 ? (quartiles){0, 0, 0} : ratio_of(f, ATOLL_CHAIN_CTA, row, 1);
  f->loss = loss_of(f, best);
  split_by_distance(w, best, f);
  for (int row = 0; row < ROWS; row++)
    f->time[row] = best[row].way < 0 ? (quartiles){0, 0, 0} : quartiles_of(f->seconds[row], f->turns);
  f->trip = quartiles_of(f->trips, f->turns);
  return ATOLL_OK;
}

static void tell_row(const world *w, const shape *s, const setting *best, const figures *f, double ideal) {
  char text[512];
  size_t at = (size_t)snprintf(text, sizeof text, "%lld x %lld", (long long)s->M, (long long)s->width[0]);
  for (int l = 1; l <= s->layers && at < sizeof text; l++)
    at += (size_t)snprintf(text + at, sizeof text - at, " x %lld", (long long)s->width[l]);
  if (at < sizeof text)
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", w->gated ? " gated" : "",
                           w->dtype == ATOLL_BF16 ? " in bf16" : "");
  for (int row = 0; row < ROWS && at < sizeof text; row++)
    if (best[row].way >= 0)
      at += (size_t)snprintf(text + at, sizeof text - at, " , %s %.3f", row_name(row), f->over_ideal[row].median);
  const quartiles *cta = &f->over_ideal[ATOLL_CHAIN_CTA];
  atoll_say("%s of the ideal %.0f us", text, ideal * 1e6);
  if (cta->median > 0)
    atoll_say("  half of %d turns had cta within %.3f .. %.3f , a flag there and back within %.0f .. %.0f ns", f->turns,
              cta->first, cta->third, f->trip.first * 1e9, f->trip.third * 1e9);
  for (int far = 0; far < 2 && cta->median > 0 && f->at[0].turns && f->at[1].turns; far++)
    atoll_say("  in %d turns on cores %s: cta %.3f , row_split %.3f of the ideal", f->at[far].turns,
              far ? "farther apart" : "near each other", f->at[far].cta, f->at[far].rows);
  atoll_say("  the chooser takes %s, panels of %lld rows: %.1f %% over the best way",
            atoll_chain_way_name((atoll_chain_way)best[CHOSEN].way), (long long)best[CHOSEN].cut.panel, 100 * f->loss);
}

/* Best of every setting's modelled seconds. */
static atoll_err model_way(const problem *q, atoll_chain_way way, double sequential, double *best) {
  static atoll_chain_setting list[SETTINGS];
  int n = atoll_chain_settings(q->chain, q->s.M, 1, list, SETTINGS);
  *best = 0;
  for (int i = 0; i < n; i++) {
    double t = 0;
    if (list[i].way != way)
      continue;
    ATOLL_TRY(atoll_chain_model(q->chain, way, &list[i].cut, q->s.M, sequential, &t));
    *best = *best == 0 || t < *best ? t : *best;
  }
  return ATOLL_OK;
}

/* What the pipelined way and micro-batching would take with a core for every rank. */
static atoll_err model_row(const world *w, const problem *q, double sequential, json_t *row) {
  double cta = 0, batches = 0, ideal = sequential / w->ranks;
  if (w->device || w->ranks == 1)
    return ATOLL_OK;
  ATOLL_TRY(model_way(q, ATOLL_CHAIN_CTA, sequential, &cta));
  ATOLL_TRY(model_way(q, ATOLL_CHAIN_MICROBATCH, sequential, &batches));
  atoll_say("  modelled with a core for each of %d ranks: cta %.3f , microbatch %.3f of the ideal", w->ranks,
            cta / ideal, batches / ideal);
  json_object_set_new(row, "modelled_cta_us", json_real(cta * 1e6));
  json_object_set_new(row, "modelled_microbatch_us", json_real(batches * 1e6));
  return ATOLL_OK;
}

static json_t *quartiles_json(const quartiles *t, const char *unit, double scale) {
  static const char *const names[] = {"first_quartile", "median", "third_quartile"};
  const double values[] = {t->first, t->median, t->third};
  json_t *o = json_object();
  char key[64];
  for (int i = 0; i < 3; i++) {
    snprintf(key, sizeof key, "%s%s", names[i], unit);
    json_object_set_new(o, key, json_real(values[i] * scale));
  }
  return o;
}

static json_t *row_json(const world *w, const problem *q, const setting *best, const figures *f, int identical,
                        double tp_error) {
  const shape *s = &q->s;
  size_t weights = 0, bytes = atoll_chain_bytes(q->chain, &weights);
  double ideal = f->time[ATOLL_CHAIN_SEQUENTIAL].median / w->ranks;
  char key[64];
  json_t *row = json_object(), *widths = json_array(), *cuts = json_object(), *spread = json_object(),
         *over = json_object();
  json_object_set_new(row, "M", json_integer(s->M));
  for (int l = 0; l <= s->layers; l++)
    json_array_append_new(widths, json_integer(s->width[l]));
  if (s->layers == 2) {
    json_object_set_new(row, "K", json_integer(s->width[0]));
    json_object_set_new(row, "N", json_integer(s->width[1]));
    json_object_set_new(row, "P", json_integer(s->width[2]));
  }
  json_object_set_new(row, "widths", widths);
  json_object_set_new(row, "dtype", json_string(w->device ? "bf16" : atoll_dtype_name(w->dtype)));
  json_object_set_new(row, "gated", json_boolean(w->gated));
  json_object_set_new(row, "ideal_us", json_real(ideal * 1e6));
  for (int i = 0; i < ROWS; i++) {
    if (best[i].way < 0)
      continue;
    snprintf(key, sizeof key, "%s_us", row_name(i));
    json_object_set_new(row, key, json_real(f->time[i].median * 1e6));
    json_object_set_new(spread, row_name(i), quartiles_json(&f->time[i], "_us", 1e6));
    if (i != ATOLL_CHAIN_CTA)
      json_object_set_new(over, row_name(i), quartiles_json(&f->cta_over[i], "", 1));
    json_object_set_new(
        cuts, row_name(i),
        json_pack("{s:I,s:I}", "panel", (json_int_t)best[i].cut.panel, "chunks", (json_int_t)best[i].cut.chunks));
  }
  json_object_set_new(row, "settings", cuts);
  json_object_set_new(over, "ideal", quartiles_json(&f->over_ideal[ATOLL_CHAIN_CTA], "", 1));
  json_object_set_new(row, "turns", json_integer(f->turns));
  json_object_set_new(row, "spread", spread);
  json_object_set_new(row, "flag_round_trip", quartiles_json(&f->trip, "_ns", 1e9));
  for (int far = 0; far < 2; far++)
    json_object_set_new(row, far ? "far" : "near",
                        json_pack("{s:i,s:f,s:f}", "turns", f->at[far].turns, "cta_over_ideal", f->at[far].cta,
                                  "row_split_over_ideal", f->at[far].rows));
  json_object_set_new(row, "cta_over", over);
  json_object_set_new(row, "transport", json_string(atoll_chain_transport(q->chain)));
  json_object_set_new(row, "ranks", json_integer(w->ranks));
  json_object_set_new(row, "chosen", json_string(atoll_chain_way_name((atoll_chain_way)best[CHOSEN].way)));
  json_object_set_new(row, "chosen_over_best", json_real(1 + f->loss));
  if (best[BLAS].way >= 0)
    json_object_set_new(row, "blas", json_string(libraries[best[BLAS].library].name));
  json_object_set_new(row, "bit_identical", json_boolean(identical));
  json_object_set_new(row, "tp_relative_error", json_real(tp_error));
  json_object_set_new(row, "exposed_bytes_of_rank_0", json_integer((json_int_t)bytes));
  json_object_set_new(row, "exposed_weight_bytes_of_rank_0", json_integer((json_int_t)weights));
  return row;
}

/* --- the benchmark ------------------------------------------------------------------------------------------------ */

static atoll_err one_shape(const world *w, const shape *s, json_t *rows, int *identical) {
  static setting best[ROWS];
  static figures f;
  double tp_error = 0;
  int same = 1;
  problem q = {.s = *s};
  atoll_err err = open_problem(w, &q);
  if (err == ATOLL_OK)
    err = measure_shape(w, &q, best, &f);
  if (err == ATOLL_OK)
    err = check_bits(w, &q, best, &same, &tp_error);
  if (err == ATOLL_OK && (w->trace || w->svg))
    err = timeline_write(w->comm, q.chain, &best[ATOLL_CHAIN_CTA].cut, s, q.half ? (void *)q.half : q.x, w->trace,
                         w->svg);
  if (err == ATOLL_OK && w->rank == 0) {
    double sequential = f.time[ATOLL_CHAIN_SEQUENTIAL].median;
    json_t *row = row_json(w, &q, best, &f, same, tp_error);
    tell_row(w, s, best, &f, sequential / w->ranks);
    json_array_append_new(rows, row);
    err = model_row(w, &q, sequential, row);
  }
  err = atoll_agree(atoll_comm_mpi(w->comm), err);
  *identical &= same;
  close_problem(&q);
  return err;
}

/* "MxKxNxP...": rows, then widths, up to the end or a comma, which *text is left at. */
static atoll_err parse_shape(const char **text, shape *s) {
  char *end = NULL;
  const char *at = *text;
  memset(s, 0, sizeof *s);
  for (int i = 0; i <= WIDTHS; i++) {
    long long v = strtoll(at, &end, 10);
    if (end == at || v < 1 || v > 1 << 20 || (*end && *end != 'x' && *end != ','))
      break;
    if (i == 0)
      s->M = v;
    else
      s->width[s->layers = i - 1] = v;
    at = end + (*end == 'x');
    if (*end != 'x' && i >= 2) {
      *text = end;
      return ATOLL_OK;
    }
  }
  return atoll_fail(ATOLL_USAGE, "--shape '%s': expected MxKxNxP, with at most %d widths after M", *text, WIDTHS);
}

/* The rank's own core, when there are enough: migrating ranks would measure the scheduler. */
static void pin(const world *w) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < w->ranks)
    return;
  for (int cpu = 0, i = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && i++ == w->rank) {
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      (void)sched_setaffinity(0, sizeof one, &one);
    }
}

/* Of the table and of chains one shape is drawn, 256 rows; of shapes named the first. */
static void draw(const atoll_cli *cli, world *w, int wanted) {
  w->trace = wanted ? atoll_cli_value(cli, "trace") : NULL;
  w->svg = wanted ? atoll_cli_value(cli, "svg") : NULL;
}

static atoll_err next_shape(const atoll_cli *cli, world *w, const shape *s, int drawn, json_t *rows, int *identical) {
  draw(cli, w, drawn);
  return one_shape(w, s, rows, identical);
}

static atoll_err run_named(const atoll_cli *cli, world *w, const char *text, json_t *rows, int *identical) {
  shape s;
  for (const char *at = text; at; at = *at ? at + 1 : NULL) {
    int first = at == text;
    ATOLL_TRY(parse_shape(&at, &s));
    ATOLL_TRY(next_shape(cli, w, &s, first, rows, identical));
  }
  return ATOLL_OK;
}

static atoll_err run_chains(const atoll_cli *cli, world *w, int layers, json_t *rows, int *identical) {
  int64_t only;
  ATOLL_TRY(bench_count(cli, "rows", 0, 1, 1 << 20, &only));
  for (int64_t M = only ? only : 256; M <= (only ? only : 1024); M *= 4) {
    shape s = {.layers = layers, .M = M};
    for (int l = 0; l <= layers; l++)
      s.width[l] = 1024;
    ATOLL_TRY(next_shape(cli, w, &s, only || M == 256, rows, identical));
  }
  return ATOLL_OK;
}

static atoll_err run_shapes(const atoll_cli *cli, world *w, json_t *out) {
  const char *text = atoll_cli_value(cli, "shape");
  int64_t layers;
  int identical = 1;
  json_t *rows = out ? json_array() : NULL;
  if (out)
    json_object_set_new(out, "rows", rows); /* owned there from now on, whatever happens */
  ATOLL_TRY(bench_count(cli, "chain", 2, 1, ATOLL_CHAIN_LAYERS, &layers));
  if (text)
    ATOLL_TRY(run_named(cli, w, text, rows, &identical));
  else if (layers != 2)
    ATOLL_TRY(run_chains(cli, w, (int)layers, rows, &identical));
  for (size_t i = 0; !text && layers == 2 && i < sizeof mlp_shapes / sizeof *mlp_shapes; i++)
    ATOLL_TRY(next_shape(cli, w, &mlp_shapes[i], i == 2, rows, &identical));
  if (out)
    json_object_set_new(out, "bit_identical", json_boolean(identical));
  return ATOLL_OK;
}

/* --device: NULL for the host's cores. UNAVAILABLE says why a device is not there. */
static atoll_err open_device(const atoll_cli *cli, atoll_device **out) {
  const char *wanted = atoll_cli_value(cli, "device"), *kind, *path, *why = NULL;
  const atoll_plugin *p;
  int known = 0;
  if (!wanted || !strcmp(wanted, "cpu"))
    return ATOLL_OK;
  for (int i = 0; atoll_device_entry(i, &kind, &why); i++)
    known |= !strcmp(kind, wanted);
  if (known)
    return atoll_device_open(wanted, NULL, out);
  for (int i = 0; atoll_plugin_entry(i, &p, &path, &why); i++)
    if (strstr(path, wanted) && why)
      return atoll_fail(ATOLL_UNAVAILABLE, "device kind %s: %s: %s", wanted, path, why);
  return atoll_fail(ATOLL_UNAVAILABLE, "device kind %s: no plug-in brings it", wanted);
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out) {
  (void)job, (void)opts;
  world w = {0};
  ceiling c;
  int64_t repeats, seconds;
  const char *stage = atoll_cli_value(cli, "stage"), *choices = atoll_cli_value(cli, "choices"),
             *dtype = atoll_cli_value(cli, "dtype");
  if (atoll_cli_value(cli, "merge"))
    return atoll_agree(MPI_COMM_WORLD, out ? mlp_merge(cli, out) : ATOLL_OK);
  ATOLL_TRY(bench_count(cli, "repeats", 9, 1, MOST_TURNS, &repeats));
  ATOLL_TRY(bench_count(cli, "seconds", 5, 0, 3600, &seconds));
  w.repeats = (int)repeats;
  w.seconds = (double)seconds;
  w.choices = choices ? choices : "";
  w.gated = atoll_cli_value(cli, "gated") != NULL;
  w.dtype = dtype && !strcmp(dtype, "bf16") ? ATOLL_BF16 : ATOLL_F32; /* the command line took no other */
  ATOLL_TRY(atoll_comm_create(MPI_COMM_WORLD, "mlp", NULL, &w.comm));
  w.rank = atoll_comm_rank(w.comm);
  w.ranks = atoll_comm_size(w.comm);
  pin(&w);
  omp_set_num_threads(1);
  openblas_set_num_threads(1);
  uint32_t count = 0;
  w.count = &count;
  atoll_err err = atoll_agree(MPI_COMM_WORLD, open_device(cli, &w.device));
  if (err == ATOLL_OK)
    err = atoll_agree(MPI_COMM_WORLD, atoll_device_open("cpu", NULL, &w.host));
  if (err == ATOLL_OK)
    err = atoll_symmetric_create(w.comm, w.host, NULL, ATOLL_MEM_COMM, flag_bytes(), "of flags", &w.flags);
  if (err == ATOLL_OK)
    err = atoll_agree(MPI_COMM_WORLD, atoll_mem_create(0, 0, &w.mem));
  if (err == ATOLL_OK)
    err = stage ? mlp_stage(w.comm, stage, w.repeats, out) : run_shapes(cli, &w, out);
  ceiling_init(&c, MPI_COMM_WORLD, 1, 0);
  /* Nobody reads it without the file; a quick look and a slice need not try every library and shape. */
  int samples = !atoll_cli_value(cli, "json")                  ? 0
                : repeats < 3 || atoll_cli_value(cli, "shape") ? 2
                                                               : ceiling_round(&c);
  for (int i = 0; i < samples && err == ATOLL_OK; i++)
    err = ceiling_sample(&c);
  if (err == ATOLL_OK && out) {
    json_object_set_new(out, "dtype", json_string(w.device ? "bf16" : atoll_dtype_name(w.dtype)));
    json_object_set_new(out, "ranks", json_integer(w.ranks));
    json_object_set_new(out, "openblas_kernel", json_string(openblas_get_corename()));
    ceiling_report(&c, out);
  }
  atoll_symmetric_destroy(&w.flags);
  atoll_mem_destroy(&w.mem, NULL);
  atoll_comm_destroy(&w.comm);
  atoll_device_close(&w.host);
  atoll_device_close(&w.device);
  return err;
}

const bench bench_mlp = {
    "mlp", "dependent GEMMs over ranks of a node, CTA-pipelined and every other way; starts 2 ranks when alone",
    "dtype repeats chain rows shape gated seconds choices merge stage trace svg device", run};

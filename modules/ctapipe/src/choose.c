/* The fastest way of a shape on this machine: measured once, remembered in a small YAML file, which products of a team
 * (linear_team.c) are remembered in, too.
 *
 * All settings are tried, twice if that is quick, the faster half again, and so on until FINALISTS are left; so far the
 * least time of each counts, as other load only adds to it. The best setting of each way that plans compare (`led`)
 * joins these, however slow: a plan must learn that, too. The finalists then take turns, and the medians of their
 * shares in a turn decide: a median is what a user sees, and it is not moved by the one turn in which a neighbour was
 * idle. After every few turns those leave that are behind beyond doubt (racing, Maron and Moore 1997, here by the order
 * statistics of the ratios within turns), so that the time goes into the close ones, and it goes on until the first is
 * known to cost no more than 2 % over any that is left, or time is up. Of those that are then as good as the first the
 * steadiest is taken. What is remembered is what every rank then uses, as rank 0 read or wrote it. The file is a
 * convenience: one that cannot be read or written costs a measurement, never the run. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/bf16.h"
#include "atoll/cache.h"
#include "atoll/clock.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/rng.h"
#include "atoll/stats.h"
#include "atoll/yaml.h"
#include "chain_impl.h"

enum {
  SETTINGS = 256,
  FINALISTS = 8,
  LED = 3,
  ROUND = 7,
  TURNS_LEAST = 3,
  TURNS_MOST = 15 * ROUND,
  ENTRIES = 4096,
  KEY = 512
};
static const double enough_seconds = 2, decide_seconds = 20; /* of trying all, and of the finalists' turns */
static const double long_run = 0.05;
static const double shared_work = 32768; /* multiply-adds: a core needs no longer for less than ranks to meet */
static const double settled = 1.02;      /* times any other: what the first one takes at most, when nothing is open */
static const double as_good = 1.01;      /* times the first one's median */

/* --- settings ----------------------------------------------------------------------------------------------------- */

/* What is timed: `rows` rows of x, and with `to` backward, too, of dy = x. */
struct work {
  int64_t rows;
  int same_bits;
  const void *x;
  const atoll_chain_gradients *to;
};

static int allowed(const atoll_chain *c, atoll_chain_way way, int same_bits) {
  int tensor = way == ATOLL_CHAIN_TP_ALLREDUCE || way == ATOLL_CHAIN_TP_FLAGS;
  const struct cta_view *v = &c->view;
  if (cta_is_on_device(c)) /* one rank may own several layers, which overlap */
    return way == ATOLL_CHAIN_SEQUENTIAL || way == ATOLL_CHAIN_MICROBATCH || way == ATOLL_CHAIN_CTA ||
           (way == ATOLL_CHAIN_BLAS_CHUNKS && !same_bits);
  if (way == ATOLL_CHAIN_BLAS_CHUNKS || (v->ranks == 1 && way != ATOLL_CHAIN_SEQUENTIAL))
    return 0;
  if (!v->claims && (tensor || way == ATOLL_CHAIN_ROW_SPLIT || way == ATOLL_CHAIN_COLUMN_SHARED))
    return 0; /* they read every layer's weights */
  return !tensor || (!same_bits && !v->rounds && v->steps == 3 && v->step[2].activation == ATOLL_ACTIVATION_NONE);
}

/* Multiply-adds. */
static double work_of(const atoll_chain *c, int64_t rows) {
  double work = 0;
  for (int i = 1; i < c->view.steps; i++)
    work += (double)rows * (double)c->view.step[i].in * (double)c->view.step[i].out * cta_factors(&c->view.step[i]);
  return work;
}

int atoll_chain_settings(const atoll_chain *chain, int64_t rows, int same_bits, atoll_chain_setting *list, int most) {
  static const int64_t panels[] = {16, 32, 64, 128, 256};
  double work = work_of(chain, rows);
  int n = 0;
  for (int way = 0; way < ATOLL_CHAIN_WAYS; way++)
    for (size_t i = 0; i < sizeof panels / sizeof *panels && allowed(chain, (atoll_chain_way)way, same_bits); i++) {
      /* One panel of fewer rows than that is enough, and low panels read the weights too often to pay where there is
       * much to do. */
      if ((i > 0 && (panels[i] > rows || cta_is_on_device(chain))) ||
          (panels[i] < 64 && work > 2e9 && !cta_is_on_device(chain)))
        continue;
      int chunked = way == ATOLL_CHAIN_MICROBATCH || way == ATOLL_CHAIN_BLAS_CHUNKS;
      for (int64_t chunks = 1; chunks <= (chunked ? 32 : 1); chunks *= 2)
        if ((chunks == 1 || chunks * panels[i] <= rows) && n < most)
          list[n++] = (atoll_chain_setting){(atoll_chain_way)way, {panels[i], chunks}};
    }
  return n;
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

/* One run, from the first rank's start to the last one's end. */
static atoll_err time_run(atoll_chain *c, const atoll_chain_setting *s, const struct work *k, double *seconds) {
  const float *y, *dx;
  double span[2] = {0, 0}, device = 0;
  ATOLL_TRY(cta_meet(&c->view));
  span[0] = -atoll_clock_now();
  ATOLL_TRY(atoll_chain_run(c, s->way, &s->cut, k->rows, k->x, &y));
  device = atoll_chain_device_seconds(c);
  if (k->to)
    ATOLL_TRY(atoll_chain_backward(c, s->way, k->x, k->to, &dx));
  span[1] = atoll_clock_now();
  if (cta_is_on_device(c)) { /* without x and y on their way */
    span[0] = k->to ? device : 0;
    span[1] = atoll_chain_device_seconds(c);
  }
  MPI_Allreduce(MPI_IN_PLACE, span, 2, MPI_DOUBLE, MPI_MAX, atoll_comm_mpi(c->comm));
  *seconds = span[0] + span[1];
  return ATOLL_OK;
}

/* The second of two runs, whose weights the first has put into caches, unless that took so long that none holds them.
 */
static atoll_err time_setting(atoll_chain *c, const atoll_chain_setting *s, const struct work *k, double *seconds,
                              double *spent) {
  ATOLL_TRY(time_run(c, s, k, seconds));
  *spent += *seconds;
  if (*seconds > long_run)
    return ATOLL_OK;
  ATOLL_TRY(time_run(c, s, k, seconds));
  *spent += *seconds;
  return ATOLL_OK;
}

/* Ways whose times plans compare, and how many settings there are at the end when all finalists are of others. */
static const atoll_chain_way led[LED] = {ATOLL_CHAIN_ROW_SPLIT, ATOLL_CHAIN_COLUMN_SHARED, ATOLL_CHAIN_CTA};
enum { LAST_MOST = FINALISTS + LED };

struct tried {
  atoll_chain_setting setting;
  double seconds; /* the least; a finalist's middling ones */
};

static int by_seconds(const void *a, const void *b) {
  double x = ((const struct tried *)a)->seconds, y = ((const struct tried *)b)->seconds;
  return (x > y) - (x < y);
}

static atoll_err try_each(atoll_chain *c, const struct work *k, struct tried *tried, int n, double *spent) {
  for (int i = 0; i < n; i++) {
    double seconds;
    ATOLL_TRY(time_setting(c, &tried[i].setting, k, &seconds, spent));
    tried[i].seconds = tried[i].seconds > 0 && tried[i].seconds < seconds ? tried[i].seconds : seconds;
  }
  qsort(tried, (size_t)n, sizeof *tried, by_seconds);
  return ATOLL_OK;
}

/* A finalist, with what it took each turn. */
struct finalist {
  struct tried tried;
  double seconds[TURNS_MOST];
};

static int by_median(const void *a, const void *b) {
  return by_seconds(&((const struct finalist *)a)->tried, &((const struct finalist *)b)->tried);
}

/* Ranks them by the medians of their shares in each of `turns` turns: a spell in which the machine is slow is one for
 * all. Seconds are these shares of a middling turn. */
static void rank_finalists(struct finalist *f, int n, int turns) {
  double share[TURNS_MOST], turn[TURNS_MOST];
  for (int t = 0; t < turns; t++) {
    turn[t] = 1e-9; /* the clock may stand still */
    for (int i = 0; i < n; i++)
      turn[t] += f[i].seconds[t];
  }
  for (int i = 0; i < n; i++) {
    for (int t = 0; t < turns; t++)
      share[t] = f[i].seconds[t] / turn[t];
    f[i].tried.seconds = atoll_median(share, (size_t)turns);
  }
  double middling = atoll_median(turn, (size_t)turns);
  for (int i = 0; i < n; i++)
    f[i].tried.seconds *= middling;
  qsort(f, (size_t)n, sizeof *f, by_median);
}

/* One finalist's time over another's: the ratios of their turns, sorted. */
static void ratios(const struct finalist *a, const struct finalist *b, int turns, double *out) {
  for (int t = 0; t < turns; t++)
    out[t] = (a->seconds[t] + 1e-9) / (b->seconds[t] + 1e-9);
  atoll_sort(out, (size_t)turns);
}

/* Bounds of a median by order statistics, some 95 of 100 of which hold it whatever the distribution: 0.98 sqrt(n)
 * places on either side of the middle. With few values they are the extremes. */
static int places_from_end(int n) {
  int k = (int)(n / 2.0 - 0.98 * sqrt(n));
  return k > 0 ? k : 0;
}

/* Those behind the first beyond doubt go to the end; how many stay. */
static int survivors(struct finalist *f, int n, int turns) {
  double ratio[TURNS_MOST];
  int stay = n;
  for (int i = n - 1; i > 0 && turns >= ROUND - 1; i--) {
    ratios(&f[i], &f[0], turns, ratio);
    if (ratio[places_from_end(turns)] <= 1)
      continue;
    struct finalist leaves = f[i];
    memmove(&f[i], &f[i + 1], (size_t)(--stay - i) * sizeof *f);
    f[stay] = leaves;
  }
  return stay;
}

/* Nothing is open: the first one takes at most so much longer than any that is left. */
static int is_settled(const struct finalist *f, int n, int turns) {
  double ratio[TURNS_MOST];
  for (int i = 1; i < n; i++) {
    ratios(&f[0], &f[i], turns, ratio);
    if (turns < ROUND - 1 || ratio[turns - 1 - places_from_end(turns)] > settled)
      return 0;
  }
  return 1;
}

/* Of those as good as the first, the one with the least third quartile goes to the front: what is left to wait for
 * others suffers from them more. */
static void steadiest_first(struct finalist *f, int n, int turns) {
  double v[TURNS_MOST], least = 0;
  int best = 0;
  for (int i = 0; i < n && f[i].tried.seconds <= as_good * f[0].tried.seconds; i++) {
    memcpy(v, f[i].seconds, (size_t)turns * sizeof *v);
    atoll_sort(v, (size_t)turns);
    double third = v[3 * turns / 4];
    if (i == 0 || third < least) {
      least = third;
      best = i;
    }
  }
  struct finalist steady = f[best];
  memmove(&f[1], &f[0], (size_t)best * sizeof *f);
  f[0] = steady;
}

/* For those who wonder about a choice: the last ones, the chosen first. */
static void tell_finalists(const struct finalist *f, int n, int turns) {
  for (int i = 0; i < n; i++) {
    double ratio[TURNS_MOST];
    ratios(&f[i], &f[0], turns, ratio);
    atoll_debug("chain: %s in panels of %lld rows, %d turns: %.1f us, %.3f %.3f %.3f of the first",
                atoll_chain_way_name(f[i].tried.setting.way), (long long)f[i].tried.setting.cut.panel, turns,
                f[i].tried.seconds * 1e6, ratio[turns / 4], ratio[turns / 2], ratio[3 * turns / 4]);
  }
}

/* Every rank sees the same times, so all end after the same turn. Those that leave keep how far they were behind. */
static atoll_err decide(atoll_chain *c, const struct work *k, struct tried *tried, int n) {
  struct finalist f[LAST_MOST];
  double spent = 0;
  int alive = n, turns = 0;
  for (int i = 0; i < n; i++)
    f[i].tried = tried[i];
  do {
    for (int end = turns + ROUND; turns < end && (turns < TURNS_LEAST || spent < decide_seconds); turns++)
      for (int i = 0; i < alive; i++) {
        int now = (i + turns) % alive;
        ATOLL_TRY(time_setting(c, &f[now].tried.setting, k, &f[now].seconds[turns], &spent));
      }
    rank_finalists(f, alive, turns);
    for (int stay = survivors(f, alive, turns); alive > stay; alive--)
      f[alive - 1].tried.seconds /= f[0].tried.seconds;
  } while (!is_settled(f, alive, turns) && turns < TURNS_MOST && spent < decide_seconds);
  rank_finalists(f, alive, turns);
  double best = f[0].tried.seconds;
  steadiest_first(f, alive, turns);
  if (c->view.rank == 0)
    tell_finalists(f, alive, turns);
  f[0].tried.seconds = best; /* what is chosen counts as the best: as good as that is what it was found */
  for (int i = 0; i < n; i++) {
    tried[i] = f[i].tried;
    tried[i].seconds *= i < alive ? 1 : f[0].tried.seconds;
  }
  qsort(tried + 1, (size_t)n - 1, sizeof *tried, by_seconds);
  return ATOLL_OK;
}

/* The best of the way joins the first `alive`, which lack it: of those behind them it is the first, as whoever left
 * later lies before. */
static int join_way(struct tried *tried, int n, int alive, atoll_chain_way way) {
  int best = 0;
  while (best < n && tried[best].setting.way != way)
    best++;
  if (best == n || best < alive)
    return alive;
  struct tried joins = tried[best];
  tried[best] = tried[alive];
  tried[alive] = joins;
  return alive + 1;
}

static atoll_err measure(atoll_chain *c, const struct work *k, atoll_chain_choice *out) {
  atoll_chain_setting list[SETTINGS];
  struct tried tried[SETTINGS];
  int listed = atoll_chain_settings(c, k->rows, k->same_bits, list, SETTINGS), n = 0;
  int small = !cta_is_on_device(c) && work_of(c, k->rows) < shared_work;
  for (int i = 0; i < listed; i++)
    if ((!small || list[i].way == ATOLL_CHAIN_SEQUENTIAL) && (!k->to || cta_goes_back(c, list[i].way)))
      tried[n++] = (struct tried){list[i], 0};
  int alive = n;
  double spent = 0;
  for (int turn = 0; turn < 2 && spent < enough_seconds; turn++)
    ATOLL_TRY(try_each(c, k, tried, n, &spent));
  while (alive > FINALISTS) {
    alive = (alive + 1) / 2;
    ATOLL_TRY(try_each(c, k, tried, alive, &spent));
  }
  for (int i = 0; i < LED; i++)
    alive = join_way(tried, n, alive, led[i]);
  ATOLL_TRY(decide(c, k, tried, alive));
  memset(out, 0, sizeof *out);
  out->setting = tried[0].setting;
  /* By rising medians. The least of few turns of the others is no figure beside them. */
  for (int i = 0; i < alive; i++) {
    double *best = &out->seconds[tried[i].setting.way];
    *best = *best == 0 ? tried[i].seconds : *best;
  }
  return ATOLL_OK;
}

/* --- remembering -------------------------------------------------------------------------------------------------- */

struct entry {
  char key[KEY];
  atoll_chain_choice choice;
};

static void make_key(const atoll_chain *c, int64_t rows, const char *bits, char *key) {
  char cpu[128];
  (void)atoll_cache_processor(cpu, sizeof cpu);
  size_t at = (size_t)snprintf(key, KEY, "%s, %s%s, %d ranks, %s, %s: %" PRId64, cpu, atoll_chain_vectors(c),
                               c->view.rounds ? " bf16" : "", c->view.ranks, c->view.claims ? "claims" : "no claims",
                               bits, rows);
  for (int l = 0; l < c->params.layers && at < KEY; l++)
    at += (size_t)snprintf(key + at, KEY - at, " x %" PRId64 "%s", c->params.layer[l].in,
                           c->params.layer[l].activation == ATOLL_ACTIVATION_SWIGLU ? " gate"
                           : c->params.layer[l].activation                          ? " act"
                                                                                    : "");
  if (at < KEY)
    snprintf(key + at, KEY - at, " x %" PRId64, c->params.layer[c->params.layers - 1].out);
}

static atoll_err read_entry(atoll_yaml *map, struct entry *e) {
  static const char *const ways[] = {
#define WAY_NAME(name, text) text,
      ATOLL_CHAIN_WAY_LIST(WAY_NAME)
#undef WAY_NAME
          NULL};
  int way = 0;
  atoll_yaml *seconds = NULL;
  memset(e, 0, sizeof *e);
  ATOLL_TRY(atoll_yaml_string(map, "chain", 1, e->key, sizeof e->key));
  ATOLL_TRY(atoll_yaml_enum(map, "way", 1, ways, &way));
  ATOLL_TRY(atoll_yaml_int(map, "panel", 1, CTA_PANEL_MIN, CTA_GROUP, &e->choice.setting.cut.panel));
  ATOLL_TRY(atoll_yaml_int(map, "chunks", 1, 1, 1 << 20, &e->choice.setting.cut.chunks));
  ATOLL_TRY(atoll_yaml_map(map, "seconds", 1, &seconds));
  for (int w = 0; w < ATOLL_CHAIN_WAYS; w++)
    ATOLL_TRY(atoll_yaml_real(seconds, ways[w], 0, 0, 1e9, &e->choice.seconds[w]));
  e->choice.setting.way = (atoll_chain_way)way;
  return ATOLL_OK;
}

static atoll_err read_entries(const char *path, struct entry **out, size_t *n) {
  atoll_yaml *root = NULL, *list = NULL;
  ATOLL_TRY(atoll_yaml_load(path, &root));
  atoll_err err = atoll_yaml_list(root, "chains", 1, &list);
  size_t have = err == ATOLL_OK ? atoll_yaml_count(list) : 0;
  struct entry *e = err == ATOLL_OK ? calloc(have + 1, sizeof *e) : NULL;
  if (err == ATOLL_OK && !e)
    err = atoll_fail(ATOLL_NOMEM, "%s: %zu remembered chains", path, have);
  for (size_t i = 0; i < have && err == ATOLL_OK; i++)
    err = read_entry(atoll_yaml_at(list, i), &e[i]);
  atoll_yaml_destroy(&root);
  if (err != ATOLL_OK) {
    free(e);
    return err;
  }
  *out = e;
  *n = have;
  return ATOLL_OK;
}

static void put_entry(atoll_yaml_out *o, const struct entry *e) {
  const atoll_chain_choice *c = &e->choice;
  atoll_yaml_open_map(o, NULL);
  atoll_yaml_put_text(o, "chain", e->key);
  atoll_yaml_put_text(o, "way", atoll_chain_way_name(c->setting.way));
  atoll_yaml_put_int(o, "panel", c->setting.cut.panel);
  atoll_yaml_put_int(o, "chunks", c->setting.cut.chunks);
  atoll_yaml_open_map(o, "seconds");
  for (int w = 0; w < ATOLL_CHAIN_WAYS; w++)
    if (c->seconds[w] > 0)
      atoll_yaml_put_real(o, atoll_chain_way_name((atoll_chain_way)w), c->seconds[w]);
  atoll_yaml_close(o);
  atoll_yaml_close(o);
}

/* What other programs remembered meanwhile is kept, but for what they add between our reading and replacing: that is
 * measured again one day. */
static atoll_err remember(const char *path, const struct entry *mine) {
  struct entry *all = NULL;
  size_t n = 0;
  atoll_yaml_out *o = NULL;
  const char *text;
  if (atoll_file_exists(path) && read_entries(path, &all, &n) != ATOLL_OK)
    n = 0;
  atoll_err err = atoll_yaml_out_create(&o);
  if (err == ATOLL_OK) {
    atoll_yaml_comment(o, "Fastest way of each chain of GEMMs, measured once. Remove the file to measure again.");
    atoll_yaml_open_list(o, "chains");
    put_entry(o, mine);
    for (size_t i = 0; i < n && i < ENTRIES; i++)
      if (strcmp(all[i].key, mine->key) != 0)
        put_entry(o, &all[i]);
    atoll_yaml_close(o);
    err = atoll_yaml_out_text(o, &text);
  }
  if (err == ATOLL_OK)
    err = atoll_file_publish(path, text, strlen(text));
  atoll_yaml_out_destroy(&o);
  free(all);
  return err;
}

void cta_remember(const char *file, const char *key, const atoll_chain_choice *choice) {
  struct entry e = {.choice = *choice};
  snprintf(e.key, sizeof e.key, "%s", key);
  if (!*file || remember(file, &e) == ATOLL_OK)
    return;
  atoll_log(ATOLL_LOG_WARN, "%s: the choice is not remembered", atoll_err_message());
  atoll_err_clear();
}

void cta_choices_file(const char *path, char *file, size_t n) {
  if (path)
    snprintf(file, n, "%s", path);
  else
    atoll_cache_path(file, n, "chains.yaml");
}

struct atoll_chain_choices {
  struct entry *entry;
  size_t n;
};

void atoll_chain_choices_close(atoll_chain_choices **choices) {
  if (*choices)
    free((*choices)->entry);
  free(*choices);
  *choices = NULL;
}

atoll_err atoll_chain_choices_open(const char *path, atoll_chain_choices **out) {
  char file[4096];
  cta_choices_file(path, file, sizeof file);
  *out = calloc(1, sizeof **out);
  if (!*out)
    return atoll_fail(ATOLL_NOMEM, "%s: %zu bytes", file, sizeof **out);
  atoll_err err = *file && atoll_file_exists(file) ? read_entries(file, &(*out)->entry, &(*out)->n) : ATOLL_OK;
  if (err != ATOLL_OK)
    atoll_chain_choices_close(out);
  return err;
}

static int find_entry(const atoll_chain_choices *choices, const char *key, atoll_chain_choice *out) {
  for (size_t i = 0; i < choices->n; i++)
    if (!strcmp(choices->entry[i].key, key)) {
      *out = choices->entry[i].choice;
      return out->remembered = 1;
    }
  return 0;
}

int cta_recall(const char *path, const char *key, atoll_chain_choice *out) {
  atoll_chain_choices *all = NULL;
  if (atoll_chain_choices_open(path, &all) != ATOLL_OK) {
    atoll_log(ATOLL_LOG_WARN, "%s: not used, measuring again", atoll_err_message());
    atoll_err_clear();
    return 0;
  }
  int found = find_entry(all, key, out);
  atoll_chain_choices_close(&all);
  return found;
}

/* --- choosing ----------------------------------------------------------------------------------------------------- */

static const char *const with_backward = "with backward"; /* in the place of what is said of bits */

static const char *name_of_bits(int same_bits) { return same_bits ? "same bits" : "any bits"; }

static atoll_err measure_run(atoll_chain *c, int64_t rows, int same_bits, atoll_chain_choice *out) {
  int64_t n = rows * c->params.layer[0].in;
  atoll_rng_key key = {.seed = 1, .site = ATOLL_RNG_TEST};
  float *x = NULL;
  ATOLL_TRY_ALL(atoll_comm_mpi(c->comm),
                atoll_mem_alloc(c->mem, ATOLL_MEM_WORKSPACE, (size_t)n * sizeof *x, (void **)&x));
  atoll_rng_fill_normal(&key, 0, (size_t)n, 1, x);
  for (int64_t i = 0; c->view.rounds && i < n; i++) {
    uint16_t half = atoll_bf16_of(x[i]);
    memcpy((char *)x + i * (int64_t)sizeof half, &half, sizeof half);
  }
  const struct work k = {rows, same_bits, x, NULL};
  atoll_err err = measure(c, &k, out);
  atoll_mem_free(c->mem, &x);
  return err;
}

/* Zeros lie where the tensor-parallel ways, which are not among these, have their sums. */
static atoll_err measure_training(atoll_chain *c, int64_t rows, const atoll_chain_gradients *to,
                                  atoll_chain_choice *out) {
  const atoll_chain_layer *a = c->params.layer;
  float *room = cta_is_on_device(c) || a[0].in > a[1].out ? NULL : c->partial[c->view.rank], *own = NULL;
  int64_t n = rows * (a[0].in > a[1].out ? a[0].in : a[1].out);
  if (!room)
    ATOLL_TRY_ALL(atoll_comm_mpi(c->comm),
                  atoll_mem_alloc(c->mem, ATOLL_MEM_WORKSPACE, (size_t)n * sizeof *own, (void **)&own));
  room = room ? room : own;
  memset(room, 0, (size_t)n * sizeof *room);
  const struct work k = {rows, 1, room, to};
  atoll_err err = measure(c, &k, out);
  atoll_mem_free(c->mem, &own);
  return err;
}

/* `to` NULL: of runs alone. */
static atoll_err choose(atoll_chain *chain, int64_t rows, int same_bits, const atoll_chain_gradients *to,
                        const char *path, atoll_chain_choice *out) {
  atoll_chain_choice mine;
  char file[4096], key[KEY];
  int rank = chain->view.rank, found = 0;
  MPI_Comm mpi = atoll_comm_mpi(chain->comm);
  memset(&mine, 0, sizeof mine);
  if (rows < 0 || rows > chain->params.rows)
    return atoll_fail(ATOLL_USAGE, "choice for %" PRId64 " rows, made for 0..%" PRId64, rows, chain->params.rows);
  if (rank == 0) {
    cta_choices_file(path, file, sizeof file);
    make_key(chain, rows, to ? with_backward : name_of_bits(same_bits), key);
    found = cta_recall(file, key, &mine);
  }
  MPI_Bcast(&found, 1, MPI_INT, 0, mpi);
  if (!found)
    ATOLL_TRY(to ? measure_training(chain, rows, to, &mine) : measure_run(chain, rows, same_bits, &mine));
  if (!found && rank == 0)
    cta_remember(file, key, &mine);
  MPI_Bcast(&mine, (int)sizeof mine, MPI_BYTE, 0, mpi); /* medians are the same, but one rank speaks */
  *out = mine;
  return ATOLL_OK;
}

atoll_err atoll_chain_choose(atoll_chain *chain, int64_t rows, int same_bits, const char *path,
                             atoll_chain_choice *out) {
  return choose(chain, rows, same_bits, NULL, path, out);
}

atoll_err atoll_chain_choose_training(atoll_chain *chain, int64_t rows, const atoll_chain_gradients *to,
                                      const char *path, atoll_chain_choice *out) {
  if (!chain->params.backward)
    return atoll_fail(ATOLL_USAGE, "choice for training of a chain made without backward");
  return choose(chain, rows, 1, to, path, out);
}

static int remembered(const atoll_chain_choices *choices, const atoll_chain_params *params, int ranks, int64_t rows,
                      const char *bits, atoll_chain_choice *out) {
  char key[KEY];
  atoll_chain *c = NULL;
  if (cta_sketch(params, 0, ranks, &c) != ATOLL_OK) {
    atoll_err_clear();
    return 0;
  }
  make_key(c, rows, bits, key);
  free(c);
  return find_entry(choices, key, out);
}

int atoll_chain_remembered(const atoll_chain_choices *choices, const atoll_chain_params *params, int ranks,
                           int64_t rows, int same_bits, atoll_chain_choice *out) {
  return remembered(choices, params, ranks, rows, name_of_bits(same_bits), out);
}

int atoll_chain_remembered_training(const atoll_chain_choices *choices, const atoll_chain_params *params, int ranks,
                                    int64_t rows, atoll_chain_choice *out) {
  return remembered(choices, params, ranks, rows, with_backward, out);
}

/* A table of kernels has no place for a team, so the one team of the process is found by the queue of the call.
 *
 * A shared call is two tasks: this rank's columns by the kernels' own product, and the exchange: columns into the
 * result that all see, meet, all of it out again. Two results are used in turn; a rank writes one again only after the
 * meeting of the call between, which nobody enters before it has read. */
#include "atoll/linear_team.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/cache.h"
#include "atoll/clock.h"
#include "team_impl.h"

enum { TURNS = 5, KEY = 512 };

static atoll_linear_team *the_team;

/* --- one product -------------------------------------------------------------------------------------------------- */

static int64_t share_begin(const struct team_call *c, int rank) {
  int64_t units = (c->O + TEAM_UNIT - 1) / TEAM_UNIT;
  return cta_least(c->O, units * rank / c->team->view.ranks * TEAM_UNIT);
}

static atoll_err exchange_task(void *args, void *stream) {
  const struct team_call *c = args;
  atoll_linear_team *t = c->team;
  int64_t begin = share_begin(c, t->view.rank), n = share_begin(c, t->view.rank + 1) - begin;
  float *all = t->result[t->parity ^= 1];
  (void)stream;
  for (int64_t r = 0; r < c->R && n > 0; r++)
    memcpy(all + r * c->O + begin, t->own + r * n, (size_t)n * sizeof *all);
  ATOLL_TRY(cta_meet(&t->view));
  memcpy(c->y, all, (size_t)(c->R * c->O) * sizeof *all);
  return ATOLL_OK;
}

atoll_err team_shared(const struct team_call *c) {
  const atoll_linear_team *t = c->team;
  int64_t begin = share_begin(c, t->view.rank), end = share_begin(c, t->view.rank + 1);
  if (begin < end)
    ATOLL_TRY(t->plain->decode->linear(t->queue, c->x, c->w + begin * c->I, c->b ? c->b + begin : NULL, t->own, c->R,
                                       c->I, end - begin));
  return atoll_queue_submit(t->queue, exchange_task, c, sizeof *c);
}

atoll_err team_alone(const struct team_call *c) {
  return c->team->plain->decode->linear(c->team->queue, c->x, c->w, c->b, c->y, c->R, c->I, c->O);
}

/* --- which way ---------------------------------------------------------------------------------------------------- */

/* Rank 0 remembers as ways of a chain: the sequential one for every rank alone, the column split for sharing, cta for
 * an MLP's pipelined. */
enum { WAYS = 3 };
static const atoll_chain_way ways[WAYS] = {ATOLL_CHAIN_SEQUENTIAL, ATOLL_CHAIN_COLUMN_SHARED, ATOLL_CHAIN_CTA};
static const char *const test_names[WAYS] = {"alone", "shared", "pipelined"}; /* ATOLL_TEST_TEAM, whatever is faster */

static int ways_of(const struct team_call *c) { return c->H ? WAYS : WAYS - 1; }

static atoll_err run_way(const struct team_call *c, atoll_chain_way way) {
  switch (way) {
  case ATOLL_CHAIN_CTA:
    return team_mlp_pipelined(c);
  case ATOLL_CHAIN_COLUMN_SHARED:
    return c->H ? team_mlp_shared(c) : team_shared(c);
  default:
    return c->H ? team_mlp_alone(c) : team_alone(c);
  }
}

static atoll_err time_one(const struct team_call *c, atoll_chain_way way, double *least) {
  ATOLL_TRY(cta_meet(&c->team->view));
  double begin = atoll_clock_now();
  ATOLL_TRY(run_way(c, way));
  ATOLL_TRY(atoll_queue_sync(c->team->queue));
  *least = fmin(*least, atoll_clock_now() - begin);
  return ATOLL_OK;
}

/* The slowest rank's best of some turns of each way. */
static atoll_err measure(const struct team_call *c, double *seconds) {
  atoll_linear_team *t = c->team;
  double *mine = t->seconds[t->view.rank];
  int n = ways_of(c);
  for (int w = 0; w < n; w++)
    mine[ways[w]] = INFINITY;
  ATOLL_TRY(atoll_queue_sync(t->queue));
  for (int i = 0; i < TURNS; i++)
    for (int w = 0; w < n; w++)
      ATOLL_TRY(time_one(c, ways[w], &mine[ways[w]]));
  ATOLL_TRY(cta_meet(&t->view));
  for (int w = 0; w < n; w++)
    for (int r = 0; r < t->view.ranks; r++)
      seconds[ways[w]] = fmax(seconds[ways[w]], t->seconds[r][ways[w]]);
  return ATOLL_OK;
}

static void make_key(const struct team_call *c, char *key) {
  static const char *const names[] = {"none", "relu", "gelu", "gelu_erf", "swiglu"};
  const atoll_linear_team *t = c->team;
  char cpu[128];
  (void)atoll_cache_processor(cpu, sizeof cpu);
  int n =
      snprintf(key, KEY, "%s, kernels %s, %d ranks, %d threads, a team's %s: %" PRId64 " x %" PRId64, cpu,
               t->plain->name, t->view.ranks, atoll_device_threads(t->device), c->H ? "MLP" : "product", c->R, c->I);
  if (c->H)
    n += snprintf(key + n, KEY - (size_t)n, " x %" PRId64, c->H);
  n += snprintf(key + n, KEY - (size_t)n, " x %" PRId64, c->O);
  if (c->H)
    snprintf(key + n, KEY - (size_t)n, ", %s", names[c->activation]);
}

static atoll_chain_way fastest(const struct team_call *c, const double *seconds) {
  int best = 0;
  for (int w = 1; w < ways_of(c); w++)
    best = seconds[ways[w]] < seconds[ways[best]] ? w : best;
  return ways[best];
}

/* What a test asks for; a product has nothing to pipeline and is shared then. -1: nothing. */
static int asked(const struct team_call *c) {
  const char *test = getenv("ATOLL_TEST_TEAM");
  for (int w = 0; test && w < WAYS; w++)
    if (!strcmp(test, test_names[w]))
      return (int)ways[w < ways_of(c) ? w : w - 1];
  return -1;
}

/* By shared memory: meetings are bounded, MPI's collectives are not. */
static atoll_err choose(const struct team_call *c, struct team_shape *s) {
  atoll_linear_team *t = c->team;
  int test = asked(c);
  char key[KEY] = "";
  ATOLL_TRY(cta_meet(&t->view)); /* nobody reads what rank 0 said of another shape any more */
  if (t->view.rank == 0) {
    *t->word = (struct team_word){.choice = {.setting = {ways[1], {CTA_PANEL_MIN, 1}}}};
    if (test < 0) {
      make_key(c, key);
      t->word->remembered = cta_recall(t->choices, key, &t->word->choice);
    }
  }
  ATOLL_TRY(cta_meet(&t->view));
  atoll_chain_choice choice = t->word->choice;
  s->remembered = t->word->remembered;
  if (!s->remembered) {
    ATOLL_TRY(measure(c, choice.seconds));
    choice.setting.way = fastest(c, choice.seconds);
    if (*key)
      cta_remember(t->choices, key, &choice);
  }
  s->way = test >= 0 ? (atoll_chain_way)test : choice.setting.way;
  s->alone = choice.seconds[ways[0]];
  s->chosen = choice.seconds[s->way];
  return ATOLL_OK;
}

/* NULL: more shapes than are remembered, or a result that is too large. The same on every rank. */
static atoll_err shape_of(const struct team_call *c, const struct team_shape **out) {
  atoll_linear_team *t = c->team;
  *out = NULL;
  for (int i = 0; i < t->shapes && !*out; i++) {
    const struct team_shape *s = &t->shape[i];
    if (s->R == c->R && s->I == c->I && s->H == c->H && s->O == c->O && s->activation == (int)c->activation)
      *out = s;
  }
  if (*out || t->shapes == TEAM_SHAPES || c->R * c->O > t->most)
    return ATOLL_OK;
  struct team_shape *s = &t->shape[t->shapes];
  *s = (struct team_shape){.R = c->R, .I = c->I, .H = c->H, .O = c->O, .activation = (int)c->activation};
  ATOLL_TRY(choose(c, s));
  t->shapes++;
  *out = s;
  return ATOLL_OK;
}

static atoll_err by_choice(const struct team_call *c, const atoll_queue *q) {
  const struct team_shape *s;
  if (!the_team || the_team->queue != q)
    return atoll_fail(ATOLL_USAGE, "a product of a team on a queue that is not the team's");
  ATOLL_TRY(shape_of(c, &s));
  return run_way(c, s ? s->way : ATOLL_CHAIN_SEQUENTIAL);
}

static atoll_err team_linear(atoll_queue *q, const void *x, const void *w, const void *b, void *y, int64_t R, int64_t I,
                             int64_t O) {
  const struct team_call c = {.team = the_team, .x = x, .w = w, .b = b, .y = y, .R = R, .I = I, .O = O};
  return by_choice(&c, q);
}

static atoll_err team_mlp(atoll_queue *q, const atoll_decode_mlp *m) {
  const struct team_call c = {.team = the_team,
                              .x = m->x,
                              .w = m->w,
                              .b = m->b,
                              .y = m->y,
                              .R = m->R,
                              .I = m->C,
                              .O = m->C,
                              .H = m->H,
                              .gate = m->gate,
                              .w2 = m->w2,
                              .b2 = m->b2,
                              .activation = m->gate  ? ATOLL_ACTIVATION_SWIGLU
                                            : m->erf ? ATOLL_ACTIVATION_GELU_ERF
                                                     : ATOLL_ACTIVATION_GELU};
  if (the_team && (m->H < 1 || m->R * m->H > the_team->room))
    return atoll_fail(ATOLL_USAGE,
                      "an MLP of %" PRId64 " x %" PRId64 " hidden values, its team was made for 1..%" PRId64, m->R,
                      m->H, the_team->room);
  return by_choice(&c, q);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

void atoll_linear_team_params_init(atoll_linear_team_params *p) { *p = (atoll_linear_team_params){.timeout = 60}; }

static void lay_out(atoll_linear_team *t, struct cta_layout *l) {
  struct cta_view *v = &t->view;
  size_t most = (size_t)t->most * sizeof(float);
  v->abort = cta_lay(l, 0, sizeof *v->abort, 64);
  t->word = cta_lay(l, 0, sizeof *t->word, 64);
  for (int r = 0; r < v->ranks; r++) {
    v->done[r] = cta_lay(l, r, sizeof *v->done[r], 64);
    t->seconds[r] = cta_lay(l, r, ATOLL_CHAIN_WAYS * sizeof *t->seconds[r], 64);
    t->claim[r] = cta_lay(l, r, 2 * sizeof *t->claim[r], 64);
  }
  t->flag = cta_lay(l, 0, (size_t)(v->ranks * TEAM_TILES) * sizeof *t->flag, 64);
  for (int i = 0; i < 2; i++)
    t->result[i] = cta_lay(l, 0, most, 4096);
  t->shared_hidden = cta_lay(l, 0, (size_t)t->room * sizeof(float), 4096);
}

static atoll_err open_tools(atoll_linear_team *t) {
  atoll_device_params p;
  atoll_device_params_init(&p);
  p.threads = atoll_device_threads(t->device);
  ATOLL_TRY(atoll_device_open("cpu", &p, &t->at_once));
  ATOLL_TRY(atoll_queue_create(t->at_once, "compute", &t->inner));
  ATOLL_TRY(atoll_mem_alloc(t->mem, ATOLL_MEM_WORKSPACE, (size_t)t->most * sizeof *t->own, (void **)&t->own));
  for (int i = 0; i < 2 && t->room; i++)
    ATOLL_TRY(atoll_mem_alloc(t->mem, ATOLL_MEM_WORKSPACE, (size_t)t->room * sizeof(float), (void **)&t->hidden[i]));
  return ATOLL_OK;
}

static atoll_err prepare(atoll_comm *comm, atoll_mem *mem, atoll_queue *queue, const atoll_kernels *kernels,
                         const atoll_linear_team_params *params, atoll_linear_team **out) {
  int64_t most = params->most > params->hidden ? params->most : params->hidden;
  if (params->most < 0 || params->hidden < 0 || !(params->timeout > 0))
    return atoll_fail(ATOLL_USAGE,
                      "a team for %" PRId64 " elements, %" PRId64 " hidden ones (at least 0), timeout %g s (above 0)",
                      params->most, params->hidden, params->timeout);
  if (atoll_comm_size(comm) > CTA_RANKS || kernels->dtype != ATOLL_F32 || !kernels->decode || the_team)
    return atoll_fail(ATOLL_UNSUPPORTED, "a team of %d ranks (at most %d) on kernels %s%s: it needs f32 and generating",
                      atoll_comm_size(comm), CTA_RANKS, kernels->name, the_team ? " beside another team" : "");
  atoll_linear_team *t = calloc(1, sizeof *t);
  if (!t)
    return atoll_fail(ATOLL_NOMEM, "a team: %zu bytes", sizeof *t);
  *out = t;
  t->comm = comm;
  t->mem = mem;
  t->queue = queue;
  t->device = atoll_queue_device(queue);
  t->plain = kernels;
  t->kernels = *kernels;
  t->decode = *kernels->decode;
  t->decode.linear = team_linear;
  t->decode.mlp = params->hidden ? team_mlp : NULL;
  t->kernels.decode = &t->decode;
  t->most = (most + 15) / 16 * 16;
  t->room = (params->hidden + 15) / 16 * 16;
  t->view.rank = atoll_comm_rank(comm);
  t->view.ranks = atoll_comm_size(comm);
  t->view.timeout = params->timeout;
  return open_tools(t);
}

static void team_free(atoll_linear_team *t) {
  if (!t)
    return;
  atoll_symmetric_destroy(&t->symmetric);
  for (int i = 0; i < 2; i++)
    atoll_mem_free(t->mem, &t->hidden[i]);
  atoll_mem_free(t->mem, &t->own);
  atoll_queue_destroy(&t->inner);
  if (t->at_once)
    atoll_device_close(&t->at_once);
  free(t);
}

atoll_err atoll_linear_team_create(atoll_comm *comm, atoll_mem *mem, atoll_queue *queue, const atoll_kernels *kernels,
                                   const atoll_linear_team_params *params, atoll_linear_team **out) {
  atoll_linear_team *t = NULL;
  struct cta_layout l = {{0}, NULL};
  atoll_err err = atoll_agree(atoll_comm_mpi(comm), prepare(comm, mem, queue, kernels, params, &t));
  if (err == ATOLL_OK) {
    lay_out(t, &l);
    err =
        atoll_symmetric_create(comm, t->device, mem, ATOLL_MEM_COMM, l.used[t->view.rank], "of a team", &t->symmetric);
  }
  if (err != ATOLL_OK) {
    team_free(t);
    return err;
  }
  l = (struct cta_layout){{0}, t->symmetric};
  lay_out(t, &l);
  if (t->view.rank == 0)
    cta_choices_file(params->choices, t->choices, sizeof t->choices);
  the_team = *out = t;
  return ATOLL_OK;
}

void atoll_linear_team_destroy(atoll_linear_team **team) {
  if (!team || !*team)
    return;
  the_team = NULL;
  team_free(*team);
  *team = NULL;
}

const atoll_kernels *atoll_linear_team_kernels(const atoll_linear_team *team) { return &team->kernels; }

atoll_linear_team_choice atoll_linear_team_choices(const atoll_linear_team *team) {
  atoll_linear_team_choice c = {.shapes = team->shapes};
  for (int i = 0; i < team->shapes; i++) {
    const struct team_shape *s = &team->shape[i];
    c.shared += s->way != ways[0];
    c.pipelined += s->way == ATOLL_CHAIN_CTA;
    c.remembered += s->remembered;
    c.alone += s->alone;
    c.chosen += s->chosen;
  }
  return c;
}

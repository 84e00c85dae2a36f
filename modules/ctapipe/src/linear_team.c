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
#include "chain_impl.h"

/* Columns that the kernels compute together: a share that begins elsewhere might give other bits. */
enum { UNIT = 32, SHAPES = 64, TURNS = 5, KEY = 512 };

struct shape {
  int64_t R, I, O;
  int shared, remembered;
  double alone, chosen; /* s */
};

struct atoll_linear_team {
  atoll_comm *comm;
  atoll_mem *mem;
  atoll_queue *queue;
  atoll_device *device;
  atoll_symmetric *symmetric;
  const atoll_kernels *plain;
  atoll_kernels kernels;
  atoll_decode_kernels decode;
  struct cta_view view; /* for its meetings alone */
  float *result[2], *own;
  int64_t most;
  char choices[4096]; /* file; rank 0's */
  int parity, shapes;
  struct shape shape[SHAPES];
};

static atoll_linear_team *the_team;

struct product {
  atoll_linear_team *team;
  const float *x, *w, *b;
  float *y;
  int64_t R, I, O;
};

/* --- one product -------------------------------------------------------------------------------------------------- */

static int64_t share_begin(const struct product *p, int rank) {
  int64_t units = (p->O + UNIT - 1) / UNIT;
  return cta_least(p->O, units * rank / p->team->view.ranks * UNIT);
}

static atoll_err exchange_task(void *args, void *stream) {
  const struct product *p = args;
  atoll_linear_team *t = p->team;
  int64_t begin = share_begin(p, t->view.rank), n = share_begin(p, t->view.rank + 1) - begin;
  float *all = t->result[t->parity ^= 1];
  (void)stream;
  for (int64_t r = 0; r < p->R && n > 0; r++)
    memcpy(all + r * p->O + begin, t->own + r * n, (size_t)n * sizeof *all);
  ATOLL_TRY(cta_meet(&t->view));
  memcpy(p->y, all, (size_t)(p->R * p->O) * sizeof *all);
  return ATOLL_OK;
}

static atoll_err shared(const struct product *p) {
  const atoll_linear_team *t = p->team;
  int64_t begin = share_begin(p, t->view.rank), end = share_begin(p, t->view.rank + 1);
  if (begin < end)
    ATOLL_TRY(t->plain->decode->linear(t->queue, p->x, p->w + begin * p->I, p->b ? p->b + begin : NULL, t->own, p->R,
                                       p->I, end - begin));
  return atoll_queue_submit(t->queue, exchange_task, p, sizeof *p);
}

static atoll_err alone(const struct product *p) {
  return p->team->plain->decode->linear(p->team->queue, p->x, p->w, p->b, p->y, p->R, p->I, p->O);
}

/* --- which way ---------------------------------------------------------------------------------------------------- */

static atoll_err time_one(const struct product *p, atoll_err (*way)(const struct product *), double *least) {
  ATOLL_TRY(cta_meet(&p->team->view));
  double begin = atoll_clock_now();
  ATOLL_TRY(way(p));
  ATOLL_TRY(atoll_queue_sync(p->team->queue));
  *least = fmin(*least, atoll_clock_now() - begin);
  return ATOLL_OK;
}

/* The slowest rank's best of some turns each: alone, shared. */
static atoll_err measure(const struct product *p, double least[2]) {
  least[0] = least[1] = INFINITY;
  ATOLL_TRY(atoll_queue_sync(p->team->queue));
  for (int i = 0; i < TURNS; i++) {
    ATOLL_TRY(time_one(p, alone, &least[0]));
    ATOLL_TRY(time_one(p, shared, &least[1]));
  }
  int rc = MPI_Allreduce(MPI_IN_PLACE, least, 2, MPI_DOUBLE, MPI_MAX, atoll_comm_mpi(p->team->comm));
  return rc == MPI_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_IO, "MPI_Allreduce of a team's times failed with %d", rc);
}

static void make_key(const struct product *p, char *key) {
  const atoll_linear_team *t = p->team;
  char cpu[128];
  (void)atoll_cache_processor(cpu, sizeof cpu);
  snprintf(key, KEY, "%s, kernels %s, %d ranks, %d threads, a team's product: %" PRId64 " x %" PRId64 " x %" PRId64,
           cpu, t->plain->name, t->view.ranks, atoll_device_threads(t->device), p->R, p->I, p->O);
}

/* Rank 0 remembers as ways of a chain: the sequential one for every rank alone, the column split for sharing. */
static atoll_err choose(const struct product *p, struct shape *s) {
  const atoll_chain_way by_one = ATOLL_CHAIN_SEQUENTIAL, by_all = ATOLL_CHAIN_COLUMN_SHARED;
  const atoll_linear_team *t = p->team;
  const char *test = getenv("ATOLL_TEST_TEAM"); /* "shared" or "alone", whatever is faster */
  char key[KEY] = "";
  double least[2];
  atoll_chain_choice c = {.setting = {by_all, {CTA_PANEL_MIN, 1}}};
  if (t->view.rank == 0 && !test) {
    make_key(p, key);
    s->remembered = cta_recall(t->choices, key, &c);
  }
  int rc = MPI_Bcast(&s->remembered, 1, MPI_INT, 0, atoll_comm_mpi(t->comm));
  if (rc == MPI_SUCCESS && s->remembered)
    rc = MPI_Bcast(&c, (int)sizeof c, MPI_BYTE, 0, atoll_comm_mpi(t->comm));
  if (rc != MPI_SUCCESS)
    return atoll_fail(ATOLL_IO, "MPI_Bcast of a team's choice failed with %d", rc);
  if (!s->remembered) {
    ATOLL_TRY(measure(p, least));
    c.seconds[by_one] = least[0], c.seconds[by_all] = least[1];
    c.setting.way = least[1] < least[0] ? by_all : by_one;
    if (*key)
      cta_remember(t->choices, key, &c);
  }
  s->shared = test ? !strcmp(test, "shared") : c.setting.way == by_all;
  s->alone = c.seconds[by_one];
  s->chosen = s->shared ? c.seconds[by_all] : c.seconds[by_one];
  return ATOLL_OK;
}

/* NULL: more shapes than are remembered, or a result that is too large. The same on every rank. */
static atoll_err shape_of(const struct product *p, const struct shape **out) {
  atoll_linear_team *t = p->team;
  *out = NULL;
  for (int i = 0; i < t->shapes && !*out; i++)
    if (t->shape[i].R == p->R && t->shape[i].I == p->I && t->shape[i].O == p->O)
      *out = &t->shape[i];
  if (*out || t->shapes == SHAPES || p->R * p->O > t->most)
    return ATOLL_OK;
  struct shape *s = &t->shape[t->shapes];
  *s = (struct shape){.R = p->R, .I = p->I, .O = p->O};
  ATOLL_TRY(choose(p, s));
  t->shapes++;
  *out = s;
  return ATOLL_OK;
}

static atoll_err team_linear(atoll_queue *q, const void *x, const void *w, const void *b, void *y, int64_t R, int64_t I,
                             int64_t O) {
  const struct product p = {the_team, x, w, b, y, R, I, O};
  const struct shape *s;
  if (!the_team || the_team->queue != q)
    return atoll_fail(ATOLL_USAGE, "a product of a team on a queue that is not the team's");
  ATOLL_TRY(shape_of(&p, &s));
  return s && s->shared ? shared(&p) : alone(&p);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void lay_out(atoll_linear_team *t, const atoll_symmetric *s) {
  struct cta_view *v = &t->view;
  char *first = atoll_symmetric_at(s, 0);
  for (int r = 0; r < v->ranks; r++)
    v->done[r] = atoll_symmetric_at(s, r);
  v->abort = (cta_abort *)(void *)(first + sizeof *v->done[0]);
  for (int i = 0; i < 2; i++)
    t->result[i] = (float *)(void *)(first + 4096 + (size_t)(i * t->most) * sizeof(float));
}

static size_t segment_bytes(const atoll_linear_team *t) {
  return 4096 + (t->view.rank == 0 ? 2 * (size_t)t->most * sizeof(float) : 0);
}

static atoll_err prepare(atoll_comm *comm, atoll_mem *mem, atoll_queue *queue, const atoll_kernels *kernels,
                         int64_t most, atoll_linear_team **out) {
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
  t->kernels.decode = &t->decode;
  t->most = (most + 15) / 16 * 16;
  t->view.rank = atoll_comm_rank(comm);
  t->view.ranks = atoll_comm_size(comm);
  t->view.timeout = 60;
  return atoll_mem_alloc(mem, ATOLL_MEM_WORKSPACE, (size_t)t->most * sizeof *t->own, (void **)&t->own);
}

static void team_free(atoll_linear_team *t) {
  if (!t)
    return;
  atoll_symmetric_destroy(&t->symmetric);
  atoll_mem_free(t->mem, &t->own);
  free(t);
}

atoll_err atoll_linear_team_create(atoll_comm *comm, atoll_mem *mem, atoll_queue *queue, const atoll_kernels *kernels,
                                   int64_t most, const char *choices, atoll_linear_team **out) {
  atoll_linear_team *t = NULL;
  atoll_err err = atoll_agree(atoll_comm_mpi(comm), prepare(comm, mem, queue, kernels, most, &t));
  if (err == ATOLL_OK)
    err = atoll_symmetric_create(comm, t->device, mem, ATOLL_MEM_COMM, segment_bytes(t), "of a team", &t->symmetric);
  if (err != ATOLL_OK) {
    team_free(t);
    return err;
  }
  lay_out(t, t->symmetric);
  if (t->view.rank == 0)
    cta_choices_file(choices, t->choices, sizeof t->choices);
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
    c.shared += team->shape[i].shared;
    c.remembered += team->shape[i].remembered;
    c.alone += team->shape[i].alone;
    c.chosen += team->shape[i].chosen;
  }
  return c;
}

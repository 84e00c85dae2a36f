/* Chains with random numbers, and the plainest way to compute them. */
#ifndef ATOLL_CHAIN_TEST_H
#define ATOLL_CHAIN_TEST_H

#include <math.h>

#include "atoll/ctapipe.h"
#include "atoll/rng.h"
#include "mpi_check.h"

struct problem {
  atoll_chain_params p;
  float *x, *w[ATOLL_CHAIN_LAYERS], *b[ATOLL_CHAIN_LAYERS]; /* w [in, out] */
  float *v[ATOLL_CHAIN_LAYERS];                             /* [in, out] of a gate, else NULL */
  float *want;                                              /* [rows, out], computed in double */
  int64_t out;
};

static inline float *random_floats(uint64_t what, int64_t n, float std) {
  atoll_rng_key key = {.seed = 11, .sample = what, .site = ATOLL_RNG_TEST};
  float *p = malloc(((size_t)n + 1) * sizeof *p);
  CHECK(p);
  atoll_rng_fill_normal(&key, 0, (size_t)n, std, p);
  return p;
}

static inline double silu(double v) { return v / (1 + exp(-v)); }

/* Of one product; a gate's second one is multiplied with silu() of the first. */
static inline double activated(atoll_activation a, double v) {
  if (a == ATOLL_ACTIVATION_RELU)
    return v > 0 ? v : 0;
  if (a == ATOLL_ACTIVATION_GELU_ERF)
    return 0.5 * v * (1 + erf(v * 0.7071067811865476));
  return a == ATOLL_ACTIVATION_GELU ? 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))) : v;
}

/* Layers between widths [layers + 1]; each has activation `a` but the last, which has none. */
static inline struct problem make_problem(int64_t rows, int layers, const int64_t *width, atoll_activation a) {
  struct problem q;
  memset(&q, 0, sizeof q);
  atoll_chain_params_init(&q.p);
  q.p.rows = rows;
  q.p.layers = layers;
  q.out = width[layers];
  q.x = random_floats(1, rows * width[0], 1);
  double *from = malloc(((size_t)(rows * width[0]) + 1) * sizeof *from);
  CHECK(from);
  for (int64_t i = 0; i < rows * width[0]; i++)
    from[i] = q.x[i];
  for (int l = 0; l < layers; l++) {
    int64_t in = width[l], out = width[l + 1];
    int gate = a == ATOLL_ACTIVATION_SWIGLU && l + 1 < layers;
    q.p.layer[l] = (atoll_chain_layer){in, out, l + 1 < layers ? a : ATOLL_ACTIVATION_NONE, !gate};
    q.v[l] = gate ? random_floats(40 + (uint64_t)l, in * out, in ? 1 / sqrtf((float)in) : 1) : NULL;
    q.w[l] = random_floats(2 + 2 * (uint64_t)l, in * out, in ? 1 / sqrtf((float)in) : 1);
    q.b[l] = random_floats(3 + 2 * (uint64_t)l, out, 1);
    double *to = malloc(((size_t)(rows * out) + 1) * sizeof *to);
    CHECK(to);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < out; j++) {
        double sum = gate ? 0 : q.b[l][j], other = 0;
        for (int64_t k = 0; k < in; k++) {
          sum += from[i * in + k] * q.w[l][k * out + j];
          other += gate ? from[i * in + k] * q.v[l][k * out + j] : 0;
        }
        to[i * out + j] = gate ? silu(other) * sum : activated(q.p.layer[l].activation, sum);
      }
    free(from);
    from = to;
  }
  q.want = malloc(((size_t)(rows * q.out) + 1) * sizeof *q.want);
  CHECK(q.want);
  for (int64_t i = 0; i < rows * q.out; i++)
    q.want[i] = (float)from[i];
  free(from);
  return q;
}

static inline void drop_problem(struct problem *q) {
  free(q->x), free(q->want);
  for (int l = 0; l < q->p.layers; l++)
    free(q->w[l]), free(q->b[l]), free(q->v[l]);
}

static inline atoll_chain *open_chain(atoll_comm *comm, atoll_mem *mem, const struct problem *q) {
  atoll_chain *c = NULL;
  CHECK_OK(atoll_chain_create(comm, mem, &q->p, &c));
  for (int l = 0; l < q->p.layers; l++) {
    int own = atoll_chain_owner(c, l) == check_rank;
    CHECK_OK(atoll_chain_set_layer(c, l, own ? q->w[l] : NULL, q->p.layer[l].out, 1, q->b[l]));
    if (q->v[l])
      CHECK_OK(atoll_chain_set_gate(c, l, own ? q->v[l] : NULL, q->p.layer[l].out, 1));
  }
  return c;
}

/* A chain whose waits are bounded by the least time, from half a second on, in which this machine, as busy as it is,
 * makes a first run: on `hurried` that time, on other ranks `patience` times as long. */
static inline atoll_chain *open_hurried(atoll_comm *comm, atoll_mem *mem, struct problem *q, atoll_chain_way way,
                                        int hurried, double patience) {
  for (double bound = 0.5; bound < 100; bound *= 4) {
    const float *y = NULL;
    q->p.timeout = check_rank == hurried ? bound : bound * patience;
    atoll_chain *c = open_chain(comm, mem, q);
    int late = atoll_chain_run(c, way, NULL, q->p.rows, q->x, &y) != ATOLL_OK;
    MPI_Allreduce(MPI_IN_PLACE, &late, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!late)
      return c;
    atoll_chain_destroy(&c);
  }
  CHECK(!"a first run in time");
  return NULL;
}

/* Relative to the largest element: rounding of a sum is relative to its terms. */
static inline double worst_error(const struct problem *q, const float *y) {
  double scale = 1e-30, worst = 0;
  for (int64_t i = 0; i < q->p.rows * q->out; i++)
    scale = fmax(scale, fabs((double)q->want[i]));
  for (int64_t i = 0; i < q->p.rows * q->out; i++) {
    double e = fabs((double)y[i] - q->want[i]) / scale;
    worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
  }
  return worst;
}

/* Every tile of the chain becomes NaN, so that a tile read too early shows in the next run. */
static inline void poison(atoll_chain *c, const struct problem *q) {
  int64_t n = q->p.rows * q->p.layer[0].in;
  const float *y;
  float *x = malloc(((size_t)n + 1) * sizeof *x);
  CHECK(x);
  for (int64_t i = 0; i < n; i++)
    x[i] = NAN;
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_SEQUENTIAL, NULL, q->p.rows, x, &y));
  int passes = 1; /* an empty layer lets nothing through */
  for (int l = 0; l < q->p.layers; l++)
    passes &= q->p.layer[l].in > 0;
  for (int64_t i = 0; passes && i < q->p.rows * q->out; i++)
    CHECK(isnan(y[i]));
  free(x);
}

#endif

#include "ceiling.h"

#include <string.h>

#include "atoll/agree.h"
#include "atoll/gemm.h"
#include "atoll/kernel.h"

static const int64_t shapes[][3] = {
    {1024, 2304, 768}, {1024, 3072, 768}, {1024, 768, 3072}, {1024, 4096, 1024}, {2048, 2048, 2048}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Library i of those that are compared, or NULL. */
static const char *library(const ceiling *c, int i) {
  static const char *const by_units[] = {"packed", "fma-loop"};
  const char *name;
  if (c->by_units)
    return i < 2 ? by_units[i] : NULL;
  return i < 16 && atoll_gemm_library(i, &name) ? name : NULL;
}

int ceiling_round(const ceiling *c) {
  int n = 0;
  while (library(c, n))
    n++;
  return n * SHAPES;
}

void ceiling_init(ceiling *c, MPI_Comm comm, int threads, int bf16) {
  memset(c, 0, sizeof *c);
  c->comm = comm;
  c->threads = threads;
  c->bf16 = bf16;
  c->by_units = bf16 && atoll_gemm_bf16_units();
}

/* The best of some turns of all ranks at once, since they share cores, caches and memory; added up. */
static atoll_err rate_of_ranks(const ceiling *c, const char *name, const int64_t *shape, int turns, double *sum) {
  double rate = 0;
  MPI_Barrier(c->comm);
  ATOLL_TRY_ALL(c->comm, (c->by_units ? atoll_gemm_bf16_rate : atoll_gemm_rate)(name, shape[0], shape[1], shape[2],
                                                                                c->threads, turns, &rate));
  MPI_Allreduce(&rate, sum, 1, MPI_DOUBLE, MPI_SUM, c->comm);
  return ATOLL_OK;
}

/* A library at less than half the best rate is no ceiling, however often it is asked. */
atoll_err ceiling_sample(ceiling *c) {
  enum { TURNS = 6 };
  int at = c->next / SHAPES;
  const int64_t *shape = shapes[c->next % SHAPES];
  const char *name = library(c, at);
  double sum = 0, more = 0;
  c->next = (c->next + 1) % ceiling_round(c);
  ATOLL_TRY(rate_of_ranks(c, name, shape, 1, &sum));
  if (sum > 0.5 * ceiling_gflops(c))
    ATOLL_TRY(rate_of_ranks(c, name, shape, TURNS - 1, &more));
  sum = more > sum ? more : sum;
  if (sum > c->best[at])
    c->best[at] = sum;
  if (!strcmp(name, "fma-loop") && sum > c->peak)
    c->peak = sum;
  return ATOLL_OK;
}

double ceiling_gflops(const ceiling *c) {
  const char *name;
  double best = 0.9 * c->peak;
  for (int i = 0; (name = library(c, i)); i++)
    if (strcmp(name, "fma-loop") != 0 && c->best[i] > best)
      best = c->best[i];
  return best;
}

void ceiling_report(const ceiling *c, json_t *out) {
  const char *name;
  json_t *by = json_object();
  for (int i = 0; (name = library(c, i)); i++)
    json_object_set_new(by, name, json_real(c->best[i]));
  json_object_set_new(out, "ceiling_gflops", json_real(ceiling_gflops(c)));
  json_object_set_new(out, "ceiling_by_library", by);
  json_object_set_new(out, "ceiling_of",
                      json_string(!c->bf16      ? "f32 products"
                                  : c->by_units ? "bf16 products by the processor's bf16 units"
                                                : "f32 products, as the processor multiplies no bf16"));
}

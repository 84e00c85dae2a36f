#include "ceiling.h"

#include <string.h>

#include "atoll/agree.h"
#include "atoll/gemm.h"
#include "atoll/kernel.h"

static const int64_t shapes[][3] = {
    {1024, 2304, 768}, {1024, 3072, 768}, {1024, 768, 3072}, {1024, 4096, 1024}, {2048, 2048, 2048}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int libraries(void) {
  const char *name;
  int n = 0;
  while (n < 16 && atoll_gemm_library(n, &name))
    n++;
  return n;
}

int ceiling_round(void) { return libraries() * SHAPES; }

void ceiling_init(ceiling *c, MPI_Comm comm, int threads) {
  memset(c, 0, sizeof *c);
  c->comm = comm;
  c->threads = threads;
}

atoll_err ceiling_sample(ceiling *c) {
  const char *name = NULL;
  int library = c->next / SHAPES, shape = c->next % SHAPES;
  double rate = 0, sum = 0;
  c->next = (c->next + 1) % ceiling_round();
  atoll_gemm_library(library, &name);
  MPI_Barrier(c->comm); /* ranks share cores, caches and memory: they must run at once */
  ATOLL_TRY_ALL(c->comm,
                atoll_gemm_rate(name, shapes[shape][0], shapes[shape][1], shapes[shape][2], c->threads, 6, &rate));
  MPI_Allreduce(&rate, &sum, 1, MPI_DOUBLE, MPI_SUM, c->comm);
  if (sum > c->best[library])
    c->best[library] = sum;
  if (!strcmp(name, "fma-loop") && sum > c->peak)
    c->peak = sum;
  return ATOLL_OK;
}

double ceiling_gflops(const ceiling *c) {
  const char *name;
  double best = 0.9 * c->peak;
  for (int i = 0; i < 16 && atoll_gemm_library(i, &name); i++)
    if (strcmp(name, "fma-loop") != 0 && c->best[i] > best)
      best = c->best[i];
  return best;
}

void ceiling_report(const ceiling *c, int bf16, json_t *out) {
  const char *name;
  json_t *by = json_object();
  for (int i = 0; i < 16 && atoll_gemm_library(i, &name); i++)
    json_object_set_new(by, name, json_real(c->best[i]));
  json_object_set_new(out, "ceiling_gflops", json_real(ceiling_gflops(c)));
  json_object_set_new(out, "ceiling_by_library", by);
  json_object_set_new(out, "ceiling_of",
                      json_string(!bf16                     ? "f32 products"
                                  : atoll_gemm_bf16_units() ? "f32 products; the processor's bf16 units could do more"
                                                            : "f32 products, as the processor multiplies no bf16"));
}

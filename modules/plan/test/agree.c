/* Ranks get one plan: the same digest whatever computes it, from a file too; a rank with another model is named, and a
 * plan for more ranks than there are is refused on every rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan_test.h"

#include "atoll/file.h"

static int rank;
#define CHECK(x)                                                                                                       \
  do {                                                                                                                 \
    if (!(x)) {                                                                                                        \
      fprintf(stderr, "rank %d: %s:%d: not so: %s (%s)\n", rank, __FILE__, __LINE__, #x, atoll_err_message());         \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                                    \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static atoll_model *model_of(int64_t width) {
  atoll_model_params p;
  atoll_model *m = NULL;
  atoll_model_params_init(&p);
  p.layers = 4, p.width = width, p.heads = 4, p.context = 128, p.vocab = 256;
  CHECK(atoll_model_create(&p, &m) == ATOLL_OK);
  return m;
}

int main(int argc, char **argv) {
  int size;
  CHECK(atoll_mpi_init(&argc, &argv) == ATOLL_OK);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  atoll_comm *comm = NULL;
  CHECK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm) == ATOLL_OK);
  test_cluster c;
  const test_node node[] = {{"fast", size - 1, INT64_C(1) << 30, 100, 20}, {"slow", 1, INT64_C(1) << 30, 40, 10}};
  test_cluster_make(&c, node, 2, 5, 1);
  for (int i = 0; i < size; i++)
    c.topo.device[i].rank = i;
  atoll_model *m = model_of(64), *other = model_of(96);
  atoll_plan_problem problem = test_problem(m, &c, 8);
  atoll_plan_params params;
  atoll_plan_params_init(&params);
  atoll_plan *alone = NULL, *plan = NULL, *loaded = NULL, *none = NULL;
  atoll_plan_report *report = NULL;
  CHECK(atoll_plan_make(&problem, &params, &alone, NULL) == ATOLL_OK);
  CHECK(atoll_plan_agree(comm, &problem, &params, &plan, &report) == ATOLL_OK);
  CHECK(atoll_digest_equal(atoll_plan_digest(alone), atoll_plan_digest(plan)));
  CHECK(plan->step_seconds == alone->step_seconds);
  CHECK((report != NULL) == (rank == 0));
  CHECK(plan->world == size);
  atoll_plan_report_destroy(&report);

  /* Through a file. */
  char path[64];
  snprintf(path, sizeof path, "agree-%d.yaml", size);
  if (rank == 0) {
    char *text;
    size_t n;
    CHECK(atoll_plan_to_text(plan, &text, &n) == ATOLL_OK);
    CHECK(atoll_file_replace(path, text, n) == ATOLL_OK);
    free(text);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  snprintf(params.load, sizeof params.load, "%s", path);
  CHECK(atoll_plan_agree(comm, &problem, &params, &loaded, NULL) == ATOLL_OK);
  CHECK(atoll_digest_equal(atoll_plan_digest(loaded), atoll_plan_digest(plan)));

  /* One rank fewer than the plan was made for. */
  atoll_comm *fewer = NULL;
  CHECK(atoll_comm_split(comm, rank == size - 1 ? -1 : 0, rank, "fewer", &fewer) == ATOLL_OK);
  if (fewer) {
    CHECK(atoll_plan_agree(fewer, &problem, &params, &none, NULL) == ATOLL_MISMATCH);
    char want[64];
    snprintf(want, sizeof want, "made for %d ranks, the job has %d", size, size - 1);
    CHECK(strstr(atoll_err_message(), want));
  }
  atoll_comm_destroy(&fewer);

  /* The last rank has another model. */
  params.load[0] = 0;
  problem.model = rank == size - 1 ? other : m;
  CHECK(atoll_plan_agree(comm, &problem, &params, &none, NULL) == ATOLL_MISMATCH);
  CHECK(strstr(atoll_err_message(), "inputs of the plan") && !none);
  problem.model = m;
  snprintf(params.load, sizeof params.load, "absent.yaml");
  CHECK(atoll_plan_agree(comm, &problem, &params, &none, NULL) == ATOLL_NOINPUT && !none);
  params.load[0] = 0;
  params.memory = 1000;
  CHECK(atoll_plan_agree(comm, &problem, &params, &none, NULL) == ATOLL_INFEASIBLE && !none);
  CHECK(strstr(atoll_err_message(), "missing"));

  if (rank == 0)
    unlink(path);
  atoll_plan_destroy(&alone);
  atoll_plan_destroy(&plan);
  atoll_plan_destroy(&loaded);
  atoll_model_destroy(&m);
  atoll_model_destroy(&other);
  test_cluster_free(&c);
  atoll_comm_destroy(&comm);
  MPI_Finalize();
  return 0;
}

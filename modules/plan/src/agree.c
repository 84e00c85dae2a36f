/* One plan for all ranks. Rank 0 plans or reads the file, the others receive the text: they get the same bytes, parse
 * and check them against their own model and islands, and compare digests. Inputs are compared first, so that a rank
 * with another model, cluster or profile is named instead of silently following. */
#include "atoll/plan.h"

#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/file.h"
#include "atoll/parallelizer_extern.h"
#include "compose/compose.h"

static atoll_digest digest_inputs(const atoll_plan_problem *p) {
  atoll_digester *d = NULL;
  atoll_digest none = {0, 0}, m = atoll_model_digest(p->model), i = atoll_islands_digest(p->islands);
  if (atoll_digester_create(&d) != ATOLL_OK)
    return none;
  atoll_digest f = p->profile ? atoll_profile_digest(p->profile) : none;
  const uint64_t v[] = {m.lo, m.hi, i.lo, i.hi, f.lo, f.hi, (uint64_t)p->seq, (uint64_t)p->global_batch};
  for (size_t k = 0; k < sizeof v / sizeof *v; k++)
    atoll_digester_add_int(d, (int64_t)v[k]);
  none = atoll_digester_value(d);
  atoll_digester_destroy(&d);
  return none;
}

/* Text on rank 0. An extern program is one process, so its answers are rank 0's alone. */
static atoll_err obtain(MPI_Comm comm, const atoll_plan_problem *problem, const atoll_plan_params *params, int world,
                        char **text, size_t *n, atoll_plan_report **report) {
  atoll_plan *plan = NULL;
  int rank, alone = plan_parallelizer(params) == &atoll_parallelizer_extern;
  MPI_Comm_rank(comm, &rank);
  if (rank > 0 && (params->load[0] || alone))
    return ATOLL_OK;
  if (params->load[0])
    return atoll_file_read(params->load, text, n);
  atoll_err err = compose_make(problem, params, world, alone ? MPI_COMM_NULL : comm, &plan, report);
  if (rank == 0)
    err = compose_say_batch(problem, params, world, err);
  if (err == ATOLL_OK && plan)
    err = atoll_plan_to_text(plan, text, n);
  atoll_plan_destroy(&plan);
  return err;
}

static atoll_err agree(atoll_comm *comm, int world, const atoll_plan_problem *problem, const atoll_plan_params *params,
                       atoll_plan **out, atoll_plan_report **report) {
  MPI_Comm mpi = atoll_comm_mpi(comm);
  char *text = NULL, *shared = NULL;
  size_t n = 0;
  int64_t bytes = 0;
  void *data = NULL;
  atoll_plan *plan = NULL;
  if (report)
    *report = NULL;
  ATOLL_TRY(atoll_agree_digest(mpi, "inputs of the plan (model, islands, profile, batch)", digest_inputs(problem)));
  atoll_err err = atoll_agree(mpi, obtain(mpi, problem, params, world, &text, &n, report));
  if (err == ATOLL_OK)
    err = atoll_share_bytes(mpi, 0, text, (int64_t)n, &data, &bytes);
  free(text);
  ATOLL_TRY(err);
  shared = data;
  const char *name = params->load[0] ? params->load : "plan";
  err = atoll_plan_from_text(name, shared, (size_t)bytes, &plan);
  free(shared);
  if (err == ATOLL_OK && params->load[0])
    err = atoll_plan_fits(plan, problem->model, problem->islands, world);
  if (err == ATOLL_OK)
    err = atoll_plan_check(plan, problem->model);
  err = atoll_agree(mpi, err);
  if (err == ATOLL_OK)
    err = atoll_agree_digest(mpi, "plan", atoll_plan_digest(plan));
  if (err != ATOLL_OK) {
    atoll_plan_destroy(&plan);
    return err;
  }
  *out = plan;
  return ATOLL_OK;
}

atoll_err atoll_plan_agree(atoll_comm *comm, const atoll_plan_problem *problem, const atoll_plan_params *params,
                           atoll_plan **out, atoll_plan_report **report) {
  return agree(comm, atoll_comm_size(comm), problem, params, out, report);
}

atoll_err atoll_plan_search(atoll_comm *comm, const atoll_plan_problem *problem, const atoll_plan_params *params,
                            atoll_plan **out, atoll_plan_report **report) {
  int world = 0;
  for (int i = 0; i < problem->islands->devices; i++)
    world += problem->islands->island_of[i] >= 0;
  return agree(comm, world, problem, params, out, report);
}

/* Several ranks make each text together: all do the same, but products and MLPs are shared out by columns
 * (atoll/linear_team.h).
 * For latency: with as many texts as ranks it is better to divide the texts. */
#include <omp.h>
#include <sched.h>
#include <stdlib.h>

#include "atoll/agree.h"
#include "atoll/log.h"
#include "generate.h"

/* Elements of the largest product for `rows` texts. */
static int64_t largest_product(const atoll_model *m, int64_t rows) {
  int64_t widest = 0;
  for (int i = 0; i < atoll_model_params_count(m); i++) {
    const atoll_model_param *p = atoll_model_param_at(m, i);
    widest = p->ndim == 2 && p->shape[0] > widest ? p->shape[0] : widest;
  }
  return rows * widest;
}

/* Ranks that may run on the same cores would, with a thread for each core, wait for each other's turns. */
static void share_cores(int ranks) {
  cpu_set_t own, all, any;
  if (getenv("OMP_NUM_THREADS") || sched_getaffinity(0, sizeof own, &own) != 0)
    return;
  MPI_Allreduce(&own, &all, (int)sizeof own, MPI_BYTE, MPI_BAND, MPI_COMM_WORLD);
  MPI_Allreduce(&own, &any, (int)sizeof own, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
  if (CPU_EQUAL(&all, &any))
    omp_set_num_threads(CPU_COUNT(&own) / ranks > 1 ? CPU_COUNT(&own) / ranks : 1);
}

int team_wanted(const generate_params *p, int64_t n, int ranks) {
  return ranks > 1 && n > 0 && (p->together == GENERATE_YES || (p->together == GENERATE_AUTO && n < ranks));
}

atoll_err team_form(const generate_params *p, const atoll_model *m, atoll_exec *e, atoll_comm **comm,
                    atoll_linear_team **team) {
  ATOLL_TRY(atoll_comm_create(MPI_COMM_WORLD, "team", NULL, comm));
  atoll_linear_team_params sizes;
  atoll_linear_team_params_init(&sizes);
  sizes.most = largest_product(m, p->batch);
  sizes.hidden = p->batch * atoll_model_config(m)->ffn;
  atoll_err err = atoll_linear_team_create(*comm, e->mem, e->compute, e->kernels, &sizes, team);
  if (err == ATOLL_UNSUPPORTED && p->together == GENERATE_AUTO) {
    atoll_say("%s: each text is made by one rank", atoll_err_message());
    atoll_err_clear();
    atoll_comm_destroy(comm);
    return ATOLL_OK;
  }
  ATOLL_TRY(err);
  e->kernels = atoll_linear_team_kernels(*team);
  if (!p->threads)
    share_cores(atoll_comm_size(*comm));
  return ATOLL_OK;
}

team_report team_tell(const atoll_comm *comm, const atoll_linear_team *team) {
  team_report r = {atoll_comm_size(comm), atoll_linear_team_choices(team)};
  const char *known = r.of.remembered == r.of.shapes ? ", as was remembered" : "";
  if (r.of.shared)
    atoll_say("%d ranks make each text: %d of %d products and MLPs are shared, %d of these pipelined; a round of them "
              "takes %.0f us instead of %.0f%s",
              r.ranks, r.of.shared, r.of.shapes, r.of.pipelined, r.of.chosen * 1e6, r.of.alone * 1e6, known);
  else
    atoll_say("%d ranks make each text as one would: sharing is slower for all %d products and MLPs%s", r.ranks,
              r.of.shapes, known);
  return r;
}

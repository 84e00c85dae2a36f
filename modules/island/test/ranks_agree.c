/* Every rank forms the same islands; a rank whose topology differs is named and nobody goes on. */
#include "island_test.h"

#include "atoll/agree.h"
#include "atoll/comm.h"

static atoll_comm *world;

static void same_and_different(void **state) {
  (void)state;
  atoll_island_params p;
  atoll_island_params_init(&p);
  atoll_islands *is = NULL;
  atoll_topo *t = load_topo("2x(core:4 memory=8GiB), core:2 memory=8GiB");
  for (int i = 0; i < 3; i++)
    t->device[i].rank = i;
  assert_int_equal(atoll_islands_agree(world, t, &p, &is), ATOLL_OK);
  assert_int_equal(is->count, 2);
  assert_int_equal(atoll_agree_digest(MPI_COMM_WORLD, "islands", atoll_islands_digest(is)), ATOLL_OK);
  atoll_islands_destroy(&is);
  if (atoll_comm_rank(world) == 2)
    t->device[1].ncores = 3;
  assert_int_equal(atoll_islands_agree(world, t, &p, &is), ATOLL_MISMATCH);
  assert_non_null(strstr(atoll_err_message(), "2"));
  assert_null(is);
  atoll_topo_destroy(&t);
}

int main(int argc, char **argv) {
  if (atoll_mpi_init(&argc, &argv) != ATOLL_OK || atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &world) != ATOLL_OK)
    return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_and_different)};
  if (cmocka_run_group_tests(tests, NULL, NULL))
    MPI_Abort(MPI_COMM_WORLD, 1);
  atoll_comm_destroy(&world);
  MPI_Finalize();
  return 0;
}

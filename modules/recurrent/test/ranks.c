/* A batch divided among ranks: sums over all of it, and random numbers, are those of one rank that has it whole. */
#include <mpi.h>

#include "atoll/comm.h"
#include "recurrent_test.h"

enum { PART = 3, T = 5 };

/* Sums over the batch at each time, of noise that is kept and decays; comm NULL: all of the batch is here. */
static void run(const atoll_comm *comm, int batch, int64_t first, test_log *log) {
  atoll_rec_program *p = NULL;
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "b", batch);
  atoll_rec_dim(c, "t", T);
  atoll_rec_origin(c, "b", first);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F32, "b,t", ATOLL_SHAPE(2));
  atoll_rt *noise = atoll_rec_uniform(c, "b,t", ATOLL_SHAPE(2));
  atoll_rt_def(x, "t==0", noise);
  atoll_rt_def(x, "true", atoll_rt_add(atoll_rt_scale(atoll_rt_at(x, "t=t-1"), 0.5), noise));
  atoll_rt *sum = atoll_rt_sum(atoll_rt_at(x, "b=0:B"), 0), *top = atoll_rt_maximum(atoll_rt_at(x, "b=0:B"), 0);
  atoll_rt_sink(comm ? atoll_rt_rank_sum(sum, comm) : sum, "sum", test_collect, log);
  atoll_rt_sink(comm ? atoll_rt_rank_max(top, comm) : top, "top", test_collect, log);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.vectorize = "b", .compiler = ""}, &p));
  assert_ok(atoll_rec_run(p, NULL, 0));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void a_divided_batch_is_the_whole(void **state) {
  (void)state;
  static test_log whole, divided;
  atoll_comm *comm = NULL;
  assert_ok(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  int rank = atoll_comm_rank(comm), size = atoll_comm_size(comm);
  run(NULL, PART * size, 0, &whole);
  run(comm, PART, PART * rank, &divided);
  atoll_comm_destroy(&comm);
  assert_int_equal(whole.n, 2 * T * 2);
  assert_int_equal(divided.n, whole.n);
  for (int i = 0; i < whole.n; i++) /* sums of a few numbers below 2, in another order */
    assert_true(fabs(whole.v[i] - divided.v[i]) < 1e-5);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_divided_batch_is_the_whole),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  MPI_Finalize();
  return failed;
}

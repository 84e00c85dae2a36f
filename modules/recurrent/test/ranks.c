/* A batch divided among ranks: sums over all of it, and random numbers, are those of one rank that has it whole. */
#include <malloc.h>
#include <mpi.h>
#include <unistd.h>

#include "atoll/comm.h"
#include "atoll/file.h"
#include "recurrent_test.h"

enum { PART = 3, T = 5, WIDTH = 4, LONG = 67 };

/* Whether the program's text has this. */
static int says(const atoll_rec_program *p, const char *what) {
  static char text[1 << 16];
  FILE *f = fmemopen(text, sizeof text, "w");
  assert_non_null(f);
  atoll_rec_program_print(p, f);
  fclose(f);
  return strstr(text, what) != NULL;
}

/* Sums over the batch at each time, of noise that is kept and decays; comm NULL: all of the batch is here. Without a
 * compiler ("") the program is interpreted. */
static void run(const atoll_comm *comm, const char *compiler, int batch, int64_t first, test_log *log) {
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
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.vectorize = "b", .compiler = compiler}, &p));
  assert_ok(atoll_rec_run(p, NULL, 0));
  assert_int_equal(says(p, "send rank_sum ("), comm != NULL);
  assert_int_equal(says(p, "receive rank_max ("), comm != NULL);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

/* Also where some ranks have a compiler and others none. */
static void a_divided_batch_is_the_whole(void **state) {
  (void)state;
  static test_log whole, divided, mixed;
  atoll_comm *comm = NULL;
  assert_ok(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  int rank = atoll_comm_rank(comm), size = atoll_comm_size(comm);
  run(NULL, "", PART * size, 0, &whole);
  run(comm, "", PART, PART * rank, &divided);
  run(comm, rank % 2 ? "" : NULL, PART, PART * rank, &mixed);
  atoll_comm_destroy(&comm);
  assert_int_equal(whole.n, 2 * T * 2);
  assert_int_equal(divided.n, whole.n);
  assert_int_equal(mixed.n, whole.n);
  for (int i = 0; i < whole.n; i++) { /* sums of a few numbers below 2, in another order */
    assert_true(fabs(whole.v[i] - divided.v[i]) < 1e-5);
    assert_true(fabs(whole.v[i] - mixed.v[i]) < 1e-5);
  }
}

/* One head that attends to all of the past, or to a window, and feeds itself; its state depends on what it attended to.
 */
static atoll_rec *decode(const char *index, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(2, WIDTH));
  atoll_rt *w = atoll_rec_input(c, "w", ATOLL_F32, "", ATOLL_SHAPE(WIDTH, WIDTH));
  atoll_rt *k = atoll_rt_name(atoll_rt_einsum("hd,de->he", x, w), "k"), *v = atoll_rt_name(atoll_rt_tanh(x), "v");
  /* Scores far below zero: what a rank without keys has must not count as a maximum. */
  atoll_rt *p = atoll_rt_softmax(
      atoll_rt_shift(atoll_rt_scale(atoll_rt_einsum("nhd,hd->hn", atoll_rt_at(k, index), x), 2), -150), 1);
  atoll_rt *y = atoll_rt_einsum("hn,nhd->hd", p, atoll_rt_at(v, index));
  atoll_rt *turned = atoll_rt_cos(atoll_rt_add(y, atoll_rec_expr(c, ATOLL_F32, "t")));
  atoll_rt_def(x, "t==0",
               atoll_rt_reshape(atoll_rt_scale(atoll_rec_iota(c, ATOLL_F32, 2 * WIDTH), 0.1), ATOLL_SHAPE(2, WIDTH)));
  atoll_rt_def(x, "true", atoll_rt_at(turned, "t-1"));
  atoll_rt_sink(y, "out", test_collect, log);
  return c;
}

/* Keys and values of tiled attention are dealt out in blocks of 4: a budget that one rank's keys and values exceed
 * suffices when ranks divide them, and every rank gets what one has that keeps everything. */
static void keys_and_values_divide_among_ranks(void **state) {
  (void)state;
  static const char *const index[] = {"0:t+1", "max(0,t-9):t+1", "0:t", "max(0,t-9):t"};
  float w[WIDTH * WIDTH];
  uint64_t seed = 3;
  for (int i = 0; i < WIDTH * WIDTH; i++)
    w[i] = (float)test_below(&seed, 2000) / 1000 - 1;
  const atoll_rec_binding b[] = {{"T", LONG, NULL}, {"w", 0, w}};
  atoll_comm *comm = NULL;
  assert_ok(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  for (int i = 0; i < 4; i++) {
    static test_log expected, got;
    atoll_rec_params params = {.tile = 4, .memory = i ? 0 : LONG * 2 * 2 * WIDTH * 4 * 3 / 4};
    atoll_rec_program *p = NULL;
    expected.n = got.n = 0;
    atoll_rec *c = decode(index[i], &expected);
    assert_ok(atoll_rec_interpret(c, b, 2));
    if (i == 0) {
      assert_ok(atoll_rec_compile(c, &params, &p));
      assert_refused(ATOLL_NOMEM, "the budget is", atoll_rec_run(p, b, 2));
    }
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
    params.comm = comm;
    c = decode(index[i], &got);
    params.place = "q";
    if (i == 0)
      assert_refused(ATOLL_USAGE, "'q'", atoll_rec_compile(c, &params, &p));
    params.place = "t";
    if (i == 0) { /* by the program that is made, and by what was kept of it */
      assert_ok(atoll_rec_compile(c, &params, &p));
      atoll_rec_program_destroy(&p);
    }
    assert_ok(atoll_rec_compile(c, &params, &p));
    assert_ok(atoll_rec_run(p, b, 2));
    assert_true(says(p, "send rank_max (") && says(p, "receive rank_max ("));
    assert_int_equal(got.n, expected.n);
    for (int k = 0; k < got.n; k++) /* sums in another order, fed back LONG times */
      if (!(fabs(got.v[k] - expected.v[k]) < 1e-4))
        fail_msg("value %d is %.9g, of one rank %.9g", k, got.v[k], expected.v[k]);
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
  atoll_comm_destroy(&comm);
}

/* Placement that is asked for is done or refused: without, every rank would keep everything. */
static void placement_is_not_forgotten(void **state) {
  (void)state;
  static const char *const other[] = {"a", "c", "d", "e", "f", "g", "h"};
  atoll_comm *comm = NULL;
  assert_ok(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  for (int scores = 0; scores < 2; scores++) {
    test_log log = {0};
    atoll_rec_program *p = NULL;
    atoll_rec *c = test_context();
    atoll_rec_dim(c, "t", 0);
    for (int d = 0; d < 7 && !scores; d++)
      atoll_rec_dim(c, other[d], 2);
    atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(WIDTH));
    atoll_rt *k = atoll_rt_at(atoll_rt_sin(x), "t=0:t+1"), *v = atoll_rt_at(atoll_rt_tanh(x), "t=0:t+1");
    atoll_rt *s = scores ? atoll_rt_maximum(atoll_rt_mul(k, x), 1) : atoll_rt_einsum("nd,d->n", k, x);
    atoll_rt_sink(atoll_rt_einsum("n,nd->d", atoll_rt_softmax(s, 0), v), "out", test_collect, &log);
    assert_refused(ATOLL_USAGE, scores ? "since its scores cannot be" : "a dimension more than there may be",
                   atoll_rec_compile(c, &(atoll_rec_params){.tile = 4, .place = "t", .comm = comm}, &p));
    atoll_rec_destroy(&c);
  }
  atoll_comm_destroy(&comm);
}

/* Schedules in a folder, once all ranks have written theirs. */
static int schedules_in(const char *folder) {
  char **name = NULL;
  size_t names = 0;
  int found = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  assert_ok(atoll_file_list(folder, &name, &names));
  for (size_t k = 0; k < names; k++)
    found += strncmp(name[k], "schedule-", 9) == 0;
  atoll_file_list_free(&name, names);
  MPI_Barrier(MPI_COMM_WORLD);
  return found;
}

/* The first time each rank writes the schedule of its part, and afterwards none. */
static void programs_that_are_dealt_out_are_kept(void **state) {
  (void)state;
  static test_log log;
  char folder[] = "/tmp/atoll-test-XXXXXX", *set = getenv("ATOLL_CACHE"), *before = set ? strdup(set) : NULL;
  atoll_comm *comm = NULL;
  assert_ok(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  if (atoll_comm_rank(comm) == 0)
    assert_non_null(mkdtemp(folder));
  MPI_Bcast(folder, (int)sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD);
  setenv("ATOLL_CACHE", folder, 1);
  for (int k = 0; k < 2; k++) {
    atoll_rec_program *p = NULL;
    atoll_rec *c = decode("0:t+1", &log);
    assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.tile = 4, .place = "t", .comm = comm, .compiler = ""}, &p));
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
    assert_int_equal(schedules_in(folder), atoll_comm_size(comm));
  }
  if (atoll_comm_rank(comm) == 0)
    assert_ok(atoll_file_remove_tree(folder));
  if (before)
    setenv("ATOLL_CACHE", before, 1);
  else
    unsetenv("ATOLL_CACHE");
  free(before);
  atoll_comm_destroy(&comm);
}

static int64_t bytes_in_use(void) {
  struct mallinfo2 m = mallinfo2();
  return (int64_t)(m.uordblks + m.hblkhd);
}

/* user: a number of a point, or -1. */
static atoll_err fail_at(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)in;
  *(float *)out->data = 0;
  return point[0] == *(const int *)user ? atoll_fail(ATOLL_UNAVAILABLE, "at %d", (int)point[0]) : ATOLL_OK;
}

/* A run ends on all ranks while sums are on their way; what it sent neither disturbs later runs nor keeps their memory.
 */
static void runs_after_a_failure_keep_no_memory(void **state) {
  (void)state;
  enum { LARGE = 1 << 16, RUNS = 10 };
  static test_log log;
  int at = T - 1;
  atoll_comm *comm = NULL;
  atoll_rec_program *p = NULL;
  assert_ok(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", T);
  atoll_rt *x = atoll_rec_uniform(c, "t", ATOLL_SHAPE(LARGE));
  atoll_rt *sum = atoll_rt_rank_sum(atoll_rt_shift(atoll_rt_scale(x, 0), 1), comm);
  atoll_rt *trip = atoll_rec_call(c, "trip", fail_at, &at, "t", ATOLL_F32, ATOLL_SCALAR, 0, NULL);
  atoll_rt *late = atoll_rec_tensor(c, "late", ATOLL_F32, "t", ATOLL_SHAPE(LARGE)); /* received one step later */
  atoll_rt_def(late, "t==0", x);
  atoll_rt_def(late, "true", atoll_rt_at(sum, "t-1"));
  atoll_rt_sink(atoll_rt_mean(atoll_rt_add(late, trip), 0), "mean", test_collect, &log);
  assert_ok(atoll_rec_compile(c, NULL, &p));
  assert_refused(ATOLL_UNAVAILABLE, "at 4", atoll_rec_run(p, NULL, 0));
  at = -1;
  for (int64_t k = 0, before = 0; k < RUNS; k++) {
    log.n = 0;
    assert_ok(atoll_rec_run(p, NULL, 0));
    assert_int_equal(log.n, T);
    assert_true(log.v[T - 1] == atoll_comm_size(comm));
    before = k == 0 ? bytes_in_use() : before;
    assert_true(bytes_in_use() - before < LARGE);
  }
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  atoll_comm_destroy(&comm);
}

/* A sum and a maximum, one of the other, at each time; the last rank: in the other order, or for another number of
 * times. By a compiled program, by an interpreted one, or as it is defined. */
enum { COMPILED, INTERPRETED, DEFINED, WAYS };

static atoll_err run_apart(const atoll_comm *comm, int way, int swapped, int more) {
  static test_log log;
  atoll_rec_program *p = NULL;
  atoll_rec *c = test_context();
  const int last = atoll_comm_rank(comm) == atoll_comm_size(comm) - 1;
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_uniform(c, "t", ATOLL_SHAPE(2));
  x = last && swapped ? atoll_rt_rank_sum(atoll_rt_rank_max(x, comm), comm)
                      : atoll_rt_rank_max(atoll_rt_rank_sum(x, comm), comm);
  atoll_rt_sink(x, "x", test_collect, &log);
  log.n = 0;
  if (way != DEFINED)
    assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = way == INTERPRETED ? "" : NULL}, &p));
  const atoll_rec_binding b = {"T", last && more ? T + 1 : T, NULL};
  atoll_err err = p ? atoll_rec_run(p, &b, 1) : atoll_rec_interpret(c, &b, 1);
  assert_int_equal(log.n, err == ATOLL_OK ? 2 * T : 0);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  return err;
}

/* Ranks whose programs are not the same would take one sum for another, or wait for ever. */
static void orders_of_sums_are_compared(void **state) {
  (void)state;
  atoll_comm *comm = NULL;
  assert_ok(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  for (int way = 0; way < WAYS; way++) {
    assert_ok(run_apart(comm, way, 0, 0));
    assert_refused(ATOLL_MISMATCH, "order of sums over ranks", run_apart(comm, way, 1, 0));
    assert_refused(ATOLL_MISMATCH, "order of sums over ranks", run_apart(comm, way, 0, 1));
  }
  atoll_comm_destroy(&comm);
}

/* What the last rank lacks, and the others do not. */
static const struct lack {
  atoll_err err;
  const char *told;
  int first, bindings; /* of those that it gives */
  int64_t bound;
} lacks[] = {{ATOLL_USAGE, "bound 'T' is not given", 1, 1, T},
             {ATOLL_USAGE, "input 'x' is not bound", 0, 1, T},
             {ATOLL_NOMEM, "the budget is", 0, 2, LONG}};

static atoll_rec *running_mean(const atoll_comm *comm, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *sum = atoll_rt_rank_sum(atoll_rec_input(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(WIDTH)), comm);
  atoll_rt_sink(atoll_rt_mean_all(atoll_rt_cos(atoll_rt_at(sum, "0:t+1"))), "mean", test_collect, log);
  return c;
}

/* Fails on all ranks, then succeeds on all: with a program, or by the definition. */
static void check_lack(const struct lack *l, int last, atoll_rec *c, atoll_rec_program *p, test_log *log) {
  static const float x[LONG * WIDTH];
  const atoll_rec_binding all[] = {{"T", T, NULL}, {"x", 0, x}}, some[] = {{"T", l->bound, NULL}, {"x", 0, x}};
  const atoll_rec_binding *b = last ? some + l->first : all;
  const int n = last ? l->bindings : 2;
  log->n = 0;
  assert_refused(l->err, l->told, p ? atoll_rec_run(p, b, n) : atoll_rec_interpret(c, b, n));
  assert_int_equal(log->n, 0);
  assert_ok(p ? atoll_rec_run(p, all, 2) : atoll_rec_interpret(c, all, 2));
  assert_int_equal(log->n, T);
}

/* In a program's first run and in later ones: the others would wait for ever. */
static void ranks_begin_together(void **state) {
  (void)state;
  static test_log log;
  atoll_comm *comm = NULL;
  assert_ok(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  const int last = atoll_comm_rank(comm) == atoll_comm_size(comm) - 1;
  for (int way = 0; way < 2; way++)
    for (size_t k = 0; k < sizeof lacks / sizeof *lacks; k++) {
      atoll_rec_program *p = NULL;
      atoll_rec *c = running_mean(comm, &log);
      assert_ok(atoll_rec_compile(
          c, &(atoll_rec_params){.compiler = way ? "" : NULL, .memory = LONG * WIDTH * 4, .passes = "groups"}, &p));
      check_lack(&lacks[k], last, c, p, &log);
      check_lack(&lacks[k], last, c, p, &log);
      if (lacks[k].err != ATOLL_NOMEM) /* definitions have no budget */
        check_lack(&lacks[k], last, c, NULL, &log);
      atoll_rec_program_destroy(&p);
      atoll_rec_destroy(&c);
    }
  atoll_comm_destroy(&comm);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_divided_batch_is_the_whole),
      cmocka_unit_test(keys_and_values_divide_among_ranks),
      cmocka_unit_test(placement_is_not_forgotten),
      cmocka_unit_test(programs_that_are_dealt_out_are_kept),
      cmocka_unit_test(runs_after_a_failure_keep_no_memory),
      cmocka_unit_test(orders_of_sums_are_compared),
      cmocka_unit_test(ranks_begin_together),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  MPI_Finalize();
  return failed;
}

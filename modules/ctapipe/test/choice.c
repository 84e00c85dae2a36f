/* A choice is measured once, is the fastest of what was measured, is remembered for its shape alone, and is the same on
 * every rank; a damaged or unwritable file costs a measurement and nothing else; what is too small to share is left to
 * one rank, whatever a busy machine would measure. */
#include "chain_test.h"

#include <unistd.h>

#include "atoll/file.h"

static atoll_comm *comm;
static atoll_mem *mem;

static atoll_chain_choice choose(atoll_chain *c, int64_t rows, const char *path) {
  atoll_chain_choice a, all;
  CHECK_OK(atoll_chain_choose(c, rows, 1, path, &a));
  all = a;
  MPI_Bcast(&all, sizeof all, MPI_BYTE, 0, MPI_COMM_WORLD);
  CHECK(!memcmp(&a, &all, sizeof a));
  CHECK(a.seconds[ATOLL_CHAIN_TP_ALLREDUCE] == 0); /* other bits */
  for (int w = 0; w < ATOLL_CHAIN_WAYS; w++)
    CHECK(a.seconds[a.setting.way] > 0 && (a.seconds[w] == 0 || a.seconds[a.setting.way] <= a.seconds[w]));
  return a;
}

static void small_ones_are_not_shared(void) {
  struct problem q = make_problem(8, 2, (const int64_t[]){16, 128, 16}, ATOLL_ACTIVATION_GELU); /* 32768 in all */
  const float *y;
  atoll_chain *c = open_chain(comm, mem, &q);
  atoll_chain_choice small = choose(c, 7, ""), enough = choose(c, 8, "");
  CHECK(small.setting.way == ATOLL_CHAIN_SEQUENTIAL);
  for (int w = 0, ways = 0; w < ATOLL_CHAIN_WAYS; w++) {
    CHECK(w == ATOLL_CHAIN_SEQUENTIAL || small.seconds[w] == 0);
    ways += enough.seconds[w] > 0;
    CHECK(w + 1 < ATOLL_CHAIN_WAYS || ways > 1);
  }
  CHECK_OK(atoll_chain_run(c, small.setting.way, &small.setting.cut, 8, q.x, &y));
  CHECK(worst_error(&q, y) < 1e-5);
  atoll_chain_destroy(&c);
  drop_problem(&q);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  struct problem q = make_problem(48, 2, (const int64_t[]){200, 300, 100}, ATOLL_ACTIVATION_GELU);
  char path[64] = "choice.yaml", damaged[] = "chains: [{way: sideways}]\n";
  const float *y;
  unlink(path);
  MPI_Barrier(MPI_COMM_WORLD);
  atoll_chain *c = open_chain(comm, mem, &q);
  atoll_chain_choice first = choose(c, 48, path), again = choose(c, 48, path), other = choose(c, 16, path);
  CHECK(!first.remembered && again.remembered && !other.remembered);
  first.remembered = 1;
  CHECK(first.setting.way == again.setting.way && first.setting.cut.panel == again.setting.cut.panel);
  for (int w = 0; w < ATOLL_CHAIN_WAYS; w++)
    CHECK(fabs(first.seconds[w] - again.seconds[w]) <= 1e-12);
  CHECK(choose(c, 48, path).remembered && choose(c, 16, path).remembered); /* one entry does not displace another */
  atoll_chain_choice known;
  atoll_chain_choices *file = NULL;
  CHECK_OK(atoll_chain_choices_open(path, &file));
  CHECK(atoll_chain_remembered(file, &q.p, 2, 48, 1, &known) && known.setting.way == again.setting.way);
  CHECK(!atoll_chain_remembered(file, &q.p, 2, 47, 1, &known) && !atoll_chain_remembered(file, &q.p, 3, 48, 1, &known));
  q.p.claims = 0;
  CHECK(!atoll_chain_remembered(file, &q.p, 2, 48, 1, &known) && !atoll_chain_remembered(file, &q.p, 2, 48, 0, &known));
  q.p.claims = 1;
  CHECK(!atoll_chain_remembered(file, &q.p, 2, 48, 0, &known));
  atoll_chain_choices_close(&file);
  CHECK_OK(atoll_chain_run(c, again.setting.way, &again.setting.cut, 48, q.x, &y));
  CHECK(worst_error(&q, y) < 1e-5);
  MPI_Barrier(MPI_COMM_WORLD);
  if (check_rank == 0)
    CHECK_OK(atoll_file_replace(path, damaged, sizeof damaged - 1));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(!choose(c, 48, path).remembered && choose(c, 48, path).remembered);
  CHECK(!choose(c, 48, "no/such/folder/choice.yaml").remembered);
  CHECK(!choose(c, 0, path).remembered); /* nothing to do is a shape, too */
  small_ones_are_not_shared();
  atoll_chain_destroy(&c);
  drop_problem(&q);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}

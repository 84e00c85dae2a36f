/* Products shared by a team have the bits of the kernels' own, for any numbers of rows, columns and ranks, whichever
 * way was found faster; results too large to share are computed all the same; kernels that cannot are refused. */
#include "chain_test.h"

#include "atoll/linear_team.h"

int main(int argc, char **argv) {
  enum { MOST = 16 * 700 };
  static const int64_t sizes[][3] = {{1, 64, 700}, {16, 300, 700}, {3, 1, 1}, {5, 33, 31}, {2, 40, 65}, {17, 8, 700}};
  atoll_comm *comm;
  atoll_mem *mem;
  atoll_device *device;
  atoll_queue *queue;
  const atoll_kernels *plain = NULL, *bf16 = NULL;
  atoll_linear_team *team = NULL, *second = NULL;
  int shared = -1;
  double alone, chosen;
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  CHECK_OK(atoll_device_open("cpu", NULL, &device));
  CHECK_OK(atoll_queue_create(device, "compute", &queue));
  CHECK_OK(atoll_kernels_get("cpu", &plain));
  CHECK_OK(atoll_kernels_get("cpu:bf16", &bf16));
  CHECK(atoll_linear_team_create(comm, mem, queue, bf16, MOST, &team) == ATOLL_UNSUPPORTED && team == NULL);
  CHECK_OK(atoll_linear_team_create(comm, mem, queue, plain, MOST, &team));
  CHECK(atoll_linear_team_create(comm, mem, queue, plain, MOST, &second) == ATOLL_UNSUPPORTED);
  const atoll_kernels *k = atoll_linear_team_kernels(team);
  for (int turn = 0; turn < 3; turn++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      int64_t R = sizes[i][0], I = sizes[i][1], O = sizes[i][2];
      float *x = random_floats(1, R * I, 1), *w = random_floats(2, I * O, 1), *b = random_floats(3, O, 1);
      float *y = random_floats(4, R * O, 1), *want = random_floats(5, R * O, 1);
      CHECK_OK(plain->decode->linear(queue, x, w, turn ? b : NULL, want, R, I, O));
      CHECK_OK(k->decode->linear(queue, x, w, turn ? b : NULL, y, R, I, O));
      CHECK_OK(atoll_queue_sync(queue));
      CHECK(!memcmp(y, want, (size_t)(R * O) * sizeof *y));
      free(x), free(w), free(b), free(y), free(want);
    }
  CHECK(atoll_linear_team_choices(team, &shared, &alone, &chosen) == 5); /* the last is too large */
  const char *test = getenv("ATOLL_TEST_TEAM");
  CHECK(test ? shared == (strcmp(test, "shared") ? 0 : 5) : shared >= 0 && shared <= 5 && chosen <= alone);
  atoll_linear_team_destroy(&team);
  CHECK(team == NULL && atoll_mem_current_total(mem) == 0);
  atoll_queue_destroy(&queue);
  atoll_device_close(&device);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}

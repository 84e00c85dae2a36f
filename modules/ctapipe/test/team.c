/* Products shared by a team have the bits of the kernels' own, for any numbers of rows, columns and ranks, whichever
 * way was found faster; what was found is remembered for the next team, but not what a test asked for; results too
 * large to share are computed all the same; kernels that cannot are refused. */
#include "chain_test.h"

#include <unistd.h>

#include "atoll/linear_team.h"

enum { MOST = 16 * 700 };

static void products(const atoll_kernels *plain, const atoll_kernels *k, atoll_queue *queue, int turns) {
  static const int64_t sizes[][3] = {{1, 64, 700}, {16, 300, 700}, {3, 1, 1}, {5, 33, 31}, {2, 40, 65}, {17, 8, 700}};
  for (int turn = 0; turn < turns; turn++)
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
}

int main(int argc, char **argv) {
  atoll_comm *comm;
  atoll_mem *mem;
  atoll_device *device;
  atoll_queue *queue;
  const atoll_kernels *plain = NULL, *bf16 = NULL;
  atoll_linear_team *team = NULL, *second = NULL;
  const char *path = "team.yaml";
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  unlink(path);
  CHECK_OK(atoll_device_open("cpu", NULL, &device));
  CHECK_OK(atoll_queue_create(device, "compute", &queue));
  CHECK_OK(atoll_kernels_get("cpu", &plain));
  CHECK_OK(atoll_kernels_get("cpu:bf16", &bf16));
  CHECK(atoll_linear_team_create(comm, mem, queue, bf16, MOST, path, &team) == ATOLL_UNSUPPORTED && team == NULL);
  CHECK_OK(atoll_linear_team_create(comm, mem, queue, plain, MOST, path, &team));
  CHECK(atoll_linear_team_create(comm, mem, queue, plain, MOST, path, &second) == ATOLL_UNSUPPORTED);
  products(plain, atoll_linear_team_kernels(team), queue, 3);
  const char *test = getenv("ATOLL_TEST_TEAM");
  atoll_linear_team_choice first = atoll_linear_team_choices(team), again;
  CHECK(first.shapes == 5 && first.remembered == 0); /* the last is too large */
  CHECK(test ? first.shared == (strcmp(test, "shared") ? 0 : 5)
             : first.shared >= 0 && first.shared <= 5 && first.chosen <= first.alone);
  atoll_linear_team_destroy(&team);
  CHECK(team == NULL);
  CHECK_OK(atoll_linear_team_create(comm, mem, queue, plain, MOST, path, &team));
  products(plain, atoll_linear_team_kernels(team), queue, 1);
  again = atoll_linear_team_choices(team);
  CHECK(again.shapes == 5 && again.remembered == (test ? 0 : 5) && again.shared == first.shared);
  CHECK(test || fabs(again.chosen - first.chosen) < 1e-9);
  atoll_linear_team_destroy(&team);
  CHECK(atoll_mem_current_total(mem) == 0);
  atoll_queue_destroy(&queue);
  atoll_device_close(&device);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}

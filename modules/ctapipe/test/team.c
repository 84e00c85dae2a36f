/* Products and MLPs shared by a team have the bits of the kernels' own, for any numbers of rows, columns and ranks,
 * whichever way was found faster; what was found is remembered for the next team, but not what a test asked for;
 * results too large to share are computed all the same; kernels that cannot are refused. A rank that does not come is
 * named within the bound, and all leave. */
#include "chain_test.h"

#include <unistd.h>

#include "atoll/clock.h"
#include "atoll/linear_team.h"

enum { MOST = 16 * 700, HIDDEN = 16 * 900, PRODUCTS = 5, MLPS = 6 }; /* shapes to share */

static void products(const atoll_kernels *plain, const atoll_kernels *k, atoll_queue *queue, int turns) {
  static const int64_t sizes[][3] = {{1, 64, 700}, {16, 300, 700}, {3, 1, 1}, {5, 33, 31}, {2, 40, 65}, {21, 8, 700}};
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

/* Parts of an MLP by the kernels' own: y [R, C]; h and g [R, H] are room. */
static void by_parts(const atoll_kernels *k, atoll_queue *q, const atoll_decode_mlp *m, float *h, float *g, float *y) {
  CHECK_OK(k->decode->linear(q, m->x, m->w, m->b, h, m->R, m->C, m->H));
  if (m->gate) {
    CHECK_OK(k->decode->linear(q, m->x, m->gate, NULL, g, m->R, m->C, m->H));
    CHECK_OK(k->swiglu_forward(q, g, h, h, m->R * m->H));
  } else {
    CHECK_OK((m->erf ? k->gelu_erf_forward : k->gelu_forward)(q, h, h, m->R * m->H));
  }
  CHECK_OK(k->decode->linear(q, h, m->w2, m->b2, y, m->R, m->H, m->C));
  CHECK_OK(atoll_queue_sync(q));
}

static void mlps(const atoll_kernels *plain, const atoll_kernels *k, atoll_queue *queue, int turns) {
  static const int64_t sizes[MLPS][5] = {{1, 64, 256, 0, 0}, {1, 64, 256, 1, 0}, {1, 60, 300, 0, 1},
                                         {3, 33, 77, 0, 0},  {2, 1, 1, 1, 0},    {16, 40, 900, 0, 1}};
  for (int turn = 0; turn < turns; turn++)
    for (int i = 0; i < MLPS; i++) {
      int64_t R = sizes[i][0], C = sizes[i][1], H = sizes[i][2], gate = sizes[i][4];
      float *part[] = {random_floats(1, R * C, 1), random_floats(2, C * H, 0.1f), random_floats(3, H, 1),
                       random_floats(4, C * H, 1), random_floats(5, C * H, 0.1f), random_floats(6, C, 1),
                       random_floats(7, R * C, 1), random_floats(8, R * C, 1),    random_floats(9, R * H, 1),
                       random_floats(10, R * H, 1)};
      const atoll_decode_mlp m = {
          part[0], part[1], gate ? NULL : part[2], gate ? part[3] : NULL, part[4], part[5], part[6], R,
          C,       H,       (int)sizes[i][3]};
      by_parts(plain, queue, &m, part[8], part[9], part[7]);
      CHECK_OK(k->decode->mlp(queue, &m));
      CHECK_OK(atoll_queue_sync(queue));
      CHECK(!memcmp(part[6], part[7], (size_t)(R * C) * sizeof **part));
      for (size_t j = 0; j < sizeof part / sizeof *part; j++)
        free(part[j]);
    }
  const atoll_decode_mlp large = {.R = 17, .C = 1, .H = 900};
  CHECK(k->decode->mlp(queue, &large) == ATOLL_USAGE && strstr(atoll_err_message(), "17 x 900 hidden"));
}

/* The last rank comes when the others have given up: at once, at a shape's first call or at one whose way is known. */
static void absent_rank_is_named(atoll_comm *comm, atoll_mem *mem, atoll_queue *queue, const atoll_kernels *plain,
                                 int known) {
  atoll_linear_team_params p;
  atoll_linear_team *team = NULL;
  float x[4] = {1, 2, 3, 4}, w[64 * 4] = {1}, y[64];
  char said[64];
  int none = 0, absent = check_size - 1;
  atoll_linear_team_params_init(&p);
  p.most = 64;
  for (p.timeout = 0.25; !team;) { /* as busy as the machine is */
    p.timeout *= 4;
    CHECK(p.timeout < 100);
    CHECK_OK(atoll_linear_team_create(comm, mem, queue, plain, &p, &team));
    CHECK(!atoll_linear_team_kernels(team)->decode->mlp); /* made for none */
    int late = known && atoll_linear_team_kernels(team)->decode->linear(queue, x, w, NULL, y, 1, 4, 64) != ATOLL_OK;
    late |= atoll_queue_sync(queue) != ATOLL_OK;
    MPI_Allreduce(MPI_IN_PLACE, &late, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (late)
      atoll_linear_team_destroy(&team);
  }
  const atoll_kernels *k = atoll_linear_team_kernels(team);
  snprintf(said, sizeof said, "waited %g s for the arrival of rank %d", p.timeout, absent);
  double start = atoll_clock_now();
  for (int r = 0; check_rank == absent && r < absent; r++)
    MPI_Recv(&none, 0, MPI_INT, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int again = 0; again < 2; again++) {
    atoll_err err = k->decode->linear(queue, x, w, NULL, y, 1, 4, 64), ran = atoll_queue_sync(queue);
    err = err == ATOLL_OK ? ran : err;
    CHECK(err == ATOLL_PEER_LOST || (err == ATOLL_TIMEOUT && check_rank != absent));
    CHECK(strstr(atoll_err_message(), said));
    if (!again && check_rank != absent)
      MPI_Send(&none, 0, MPI_INT, absent, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  CHECK(atoll_clock_now() - start < 2 * p.timeout + 60); /* loose: the machine may be busy */
  atoll_linear_team_destroy(&team);
}

int main(int argc, char **argv) {
  atoll_comm *comm;
  atoll_mem *mem;
  atoll_device *device;
  atoll_queue *queue;
  const atoll_kernels *plain = NULL, *bf16 = NULL;
  atoll_linear_team *team = NULL, *second = NULL;
  const char *path = "team.yaml";
  atoll_linear_team_params p;
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  unlink(path);
  CHECK_OK(atoll_device_open("cpu", NULL, &device));
  CHECK_OK(atoll_queue_create(device, "compute", &queue));
  CHECK_OK(atoll_kernels_get("cpu", &plain));
  CHECK_OK(atoll_kernels_get("cpu:bf16", &bf16));
  atoll_linear_team_params_init(&p);
  p.most = MOST, p.hidden = HIDDEN, p.choices = path;
  CHECK(atoll_linear_team_create(comm, mem, queue, bf16, &p, &team) == ATOLL_UNSUPPORTED && team == NULL);
  CHECK_OK(atoll_linear_team_create(comm, mem, queue, plain, &p, &team));
  CHECK(atoll_linear_team_create(comm, mem, queue, plain, &p, &second) == ATOLL_UNSUPPORTED);
  p.timeout = 0;
  CHECK(atoll_linear_team_create(comm, mem, queue, plain, &p, &second) == ATOLL_USAGE);
  p.timeout = 60;
  products(plain, atoll_linear_team_kernels(team), queue, 3);
  mlps(plain, atoll_linear_team_kernels(team), queue, 3);
  const char *test = getenv("ATOLL_TEST_TEAM");
  atoll_linear_team_choice first = atoll_linear_team_choices(team), again;
  enum { ALL = PRODUCTS + MLPS };
  CHECK(first.shapes == ALL && first.remembered == 0); /* the last product is too large */
  CHECK(test ? first.shared == (strcmp(test, "alone") ? ALL : 0) &&
                   first.pipelined == (strcmp(test, "pipelined") ? 0 : MLPS)
             : first.shared >= first.pipelined && first.shared <= ALL && first.chosen <= first.alone);
  atoll_linear_team_destroy(&team);
  CHECK(team == NULL);
  CHECK_OK(atoll_linear_team_create(comm, mem, queue, plain, &p, &team));
  products(plain, atoll_linear_team_kernels(team), queue, 1);
  mlps(plain, atoll_linear_team_kernels(team), queue, 1);
  again = atoll_linear_team_choices(team);
  CHECK(again.shapes == ALL && again.remembered == (test ? 0 : ALL) && again.shared == first.shared &&
        again.pipelined == first.pipelined);
  CHECK(test || fabs(again.chosen - first.chosen) < 1e-9);
  atoll_linear_team_destroy(&team);
  for (int known = 0; known < 2 && test && check_size > 1; known++)
    absent_rank_is_named(comm, mem, queue, plain, known);
  CHECK(atoll_mem_current_total(mem) == 0);
  atoll_queue_destroy(&queue);
  atoll_device_close(&device);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}

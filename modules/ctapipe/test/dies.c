/* dies WHEN VICTIM CLAIMS: a chain of a layer a rank (two with backward) runs until rank VICTIM is killed amid its
 * work, between making a tile and saying so; the others must learn of it. Each says with which code it leaves and why,
 * and leaves by itself: a group that lacks a rank cannot finalize. Nobody else ends the job when the launcher goes on
 * without the dead (dies.sh). */
#include "atoll/symmetric.h"
#include "chain_test.h"

#include <unistd.h>

#include "atoll/fault.h"

enum { RUNS = 1000, ROWS = 64, WIDTH = 300 };

static atoll_chain_gradients places(atoll_symmetric *memory) {
  float *at = atoll_symmetric_at(memory, 0);
  int64_t matrix = WIDTH * WIDTH;
  return (atoll_chain_gradients){{at, at + matrix}, {at + 2 * matrix, at + 2 * matrix + WIDTH}, NULL};
}

int main(int argc, char **argv) {
  atoll_comm *comm;
  atoll_mem *mem;
  atoll_device *device;
  atoll_symmetric *memory;
  int64_t width[ATOLL_CHAIN_LAYERS + 1];
  const float *y, *dx;
  const atoll_chain_cut cut = {8, 0};
  atoll_err err = ATOLL_OK;
  check_begin(&argc, &argv);
  CHECK(argc == 4);
  int backward = !strcmp(argv[1], "backward"), victim = atoi(argv[2]), layers = backward ? 2 : check_size;
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  CHECK_OK(atoll_device_open("cpu", NULL, &device));
  CHECK_OK(atoll_symmetric_create(comm, device, mem, ATOLL_MEM_COMM, (2 * WIDTH * WIDTH + 2 * WIDTH) * sizeof(float),
                                  "of gradients", &memory));
  for (int l = 0; l <= layers; l++)
    width[l] = WIDTH;
  struct problem q = make_problem(ROWS, layers, width, ATOLL_ACTIVATION_GELU);
  q.p.claims = atoi(argv[3]);
  q.p.backward = backward;
  q.p.timeout = 300; /* s: longer than dies.sh has patience */
  atoll_chain *c = open_chain(comm, mem, &q);
  const atoll_chain_gradients to = places(memory);
  for (int i = 0; i < RUNS && err == ATOLL_OK; i++) {
    const char *rule = i < 2 ? NULL : "kill:chain.tile:4";
    CHECK_OK(atoll_fault_set(backward || check_rank != victim ? NULL : rule, check_rank));
    err = atoll_chain_run(c, ATOLL_CHAIN_CTA, &cut, ROWS, q.x, &y);
    CHECK_OK(atoll_fault_set(!backward || check_rank != victim ? NULL : rule, check_rank));
    if (err == ATOLL_OK && backward)
      err = atoll_chain_backward(c, ATOLL_CHAIN_CTA, q.x, &to, &dx);
  }
  printf("rank %d leaves with %d: %s\n", check_rank, (int)err, atoll_err_message());
  fflush(stdout);
  _exit((int)err);
}

/* What the chooser of chains measured for the shape of a model's MLP is found again for the model, and for nothing
 * else. Sixteen rows are one panel, so that every way is measured to the end. */
#include <unistd.h>

#include "atoll/ctapipe.h"
#include "atoll/layer.h"
#include "mpi_check.h"

enum { WIDTH = 64, ROWS = 16 };

static atoll_chain_choice choose(atoll_comm *comm, atoll_mem *mem, int64_t ffn, const char *path) {
  atoll_chain_params p;
  atoll_chain_choice choice;
  atoll_chain *c = NULL;
  atoll_chain_params_init(&p);
  p.rows = ROWS, p.layers = 2;
  p.layer[0] = (atoll_chain_layer){WIDTH, ffn, ATOLL_ACTIVATION_GELU, 1};
  p.layer[1] = (atoll_chain_layer){ffn, WIDTH, ATOLL_ACTIVATION_NONE, 1};
  CHECK_OK(atoll_chain_create(comm, mem, &p, &c));
  CHECK_OK(atoll_chain_choose(c, ROWS, 1, path, &choice));
  atoll_chain_destroy(&c);
  MPI_Barrier(MPI_COMM_WORLD);
  return choice;
}

int main(int argc, char **argv) {
  const char *path = "remembered.yaml";
  atoll_comm *comm = NULL;
  atoll_mem *mem = NULL;
  atoll_model *m = NULL;
  atoll_model_params c;
  double pipelined = 0, even = 0;
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  atoll_model_params_init(&c);
  c.layers = 1, c.width = WIDTH, c.heads = 2, c.context = ROWS, c.vocab = 32;
  CHECK_OK(atoll_model_create(&c, &m));
  unlink(path);
  MPI_Barrier(MPI_COMM_WORLD);
  (void)choose(comm, mem, 2 * WIDTH, path); /* another model's */
  CHECK(!atoll_mlp_remembered(m, ROWS, 2, path, &pipelined, &even));
  MPI_Barrier(MPI_COMM_WORLD);
  const atoll_chain_choice known = choose(comm, mem, 4 * WIDTH, path);
  double rows = known.seconds[ATOLL_CHAIN_ROW_SPLIT], columns = known.seconds[ATOLL_CHAIN_COLUMN_SHARED];
  CHECK(rows > 0 && columns > 0 && atoll_mlp_remembered(m, ROWS, 2, path, &pipelined, &even));
  CHECK(pipelined == known.seconds[ATOLL_CHAIN_CTA] && even == (rows < columns ? rows : columns));
  CHECK(!atoll_mlp_remembered(m, ROWS - 1, 2, path, &pipelined, &even));
  CHECK(!atoll_mlp_remembered(m, ROWS, 4, path, &pipelined, &even));
  atoll_model_destroy(&m);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}

/* What the chooser of chains measured for the shape of a model's MLP is found again for the model, and for nothing
 * else, of all settings of several panels; what a choice of the same bits lacks is found in one of any; one made for
 * training goes before them. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/ctapipe.h"
#include "atoll/file.h"
#include "atoll/layer.h"
#include "atoll/symmetric.h"
#include "mpi_check.h"

enum { WIDTH = 64, ROWS = 256 };

static const char *const path = "remembered.yaml";

static atoll_chain_choice choose(atoll_comm *comm, atoll_mem *mem, int64_t ffn, int same_bits) {
  atoll_chain_params p;
  atoll_chain_choice choice;
  atoll_chain *c = NULL;
  atoll_chain_params_init(&p);
  p.rows = ROWS, p.layers = 2;
  p.layer[0] = (atoll_chain_layer){WIDTH, ffn, ATOLL_ACTIVATION_GELU, 1};
  p.layer[1] = (atoll_chain_layer){ffn, WIDTH, ATOLL_ACTIVATION_NONE, 1};
  CHECK_OK(atoll_chain_create(comm, mem, &p, &c));
  CHECK_OK(atoll_chain_choose(c, ROWS, same_bits, path, &choice));
  atoll_chain_destroy(&c);
  MPI_Barrier(MPI_COMM_WORLD);
  return choice;
}

/* With backward, of which the places lie on rank 0. */
static atoll_chain_choice choose_training(atoll_comm *comm, atoll_mem *mem, int64_t ffn) {
  atoll_chain_params p;
  atoll_chain_choice choice;
  atoll_chain *c = NULL;
  atoll_device *host = NULL;
  atoll_symmetric *s = NULL;
  int64_t n = WIDTH * ffn;
  atoll_chain_params_init(&p);
  p.rows = ROWS, p.layers = 2, p.backward = 1;
  p.layer[0] = (atoll_chain_layer){WIDTH, ffn, ATOLL_ACTIVATION_GELU, 1};
  p.layer[1] = (atoll_chain_layer){ffn, WIDTH, ATOLL_ACTIVATION_NONE, 1};
  CHECK_OK(atoll_device_open("cpu", NULL, &host));
  CHECK_OK(atoll_symmetric_create(comm, host, mem, ATOLL_MEM_GRADIENT, (size_t)(2 * n + WIDTH + ffn) * sizeof(float),
                                  "of a test", &s));
  float *at = atoll_symmetric_at(s, 0);
  const atoll_chain_gradients to = {{at, at + n}, {at + 2 * n, at + 2 * n + ffn}, NULL};
  CHECK_OK(atoll_chain_create(comm, mem, &p, &c));
  CHECK_OK(atoll_chain_choose_training(c, ROWS, &to, path, &choice));
  atoll_chain_destroy(&c);
  atoll_symmetric_destroy(&s);
  atoll_device_close(&host);
  MPI_Barrier(MPI_COMM_WORLD);
  return choice;
}

static int same(const atoll_mlp_seconds *s, const atoll_chain_choice *of) {
  double rows = of->seconds[ATOLL_CHAIN_ROW_SPLIT], columns = of->seconds[ATOLL_CHAIN_COLUMN_SHARED];
  return rows > 0 && columns > 0 && s->pipelined > 0 && s->pipelined == of->seconds[ATOLL_CHAIN_CTA] &&
         s->even == (rows < columns ? rows : columns);
}

/* As files of before have it: the first entry, which is of the same bits, without a figure of cta. */
static void forget_cta(void) {
  char *text = NULL;
  size_t n = 0;
  CHECK_OK(atoll_file_read(path, &text, &n));
  char *entry = strstr(text, "same bits"), *at = entry ? strstr(entry, " cta: ") : NULL;
  CHECK(at != NULL);
  for (; at && *at && *at != '\n'; at++)
    *at = isdigit((unsigned char)*at) ? '0' : *at;
  CHECK_OK(atoll_file_replace(path, text, n));
  free(text);
}

int main(int argc, char **argv) {
  atoll_comm *comm = NULL;
  atoll_mem *mem = NULL;
  atoll_model *m = NULL;
  atoll_model_params c;
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  atoll_model_params_init(&c);
  c.layers = 1, c.width = WIDTH, c.heads = 2, c.context = ROWS, c.vocab = 32;
  CHECK_OK(atoll_model_create(&c, &m));
  unlink(path);
  MPI_Barrier(MPI_COMM_WORLD);
  atoll_mlp_seconds of[] = {{ROWS, 2, 1, 1}, {ROWS - 1, 2, 1, 1}, {ROWS, 4, 1, 1}};
  CHECK(atoll_mlp_remembered(m, path, of, 3) == 0 && of[0].pipelined == 0 && of[0].even == 0);
  (void)choose(comm, mem, 2 * WIDTH, 1); /* another model's */
  CHECK(atoll_mlp_remembered(m, path, of, 3) == 0);
  MPI_Barrier(MPI_COMM_WORLD);
  const atoll_chain_choice any = choose(comm, mem, 4 * WIDTH, 0);
  CHECK(atoll_mlp_remembered(m, path, of, 3) == 1 && same(&of[0], &any));
  MPI_Barrier(MPI_COMM_WORLD);
  const atoll_chain_choice known = choose(comm, mem, 4 * WIDTH, 1);
  CHECK(atoll_mlp_remembered(m, path, of, 3) == 1 && same(&of[0], &known));
  CHECK(of[1].pipelined == 0 && of[2].pipelined == 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (check_rank == 0)
    forget_cta();
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(atoll_mlp_remembered(m, path, of, 3) == 1 && same(&of[0], &any));
  MPI_Barrier(MPI_COMM_WORLD);
  const atoll_chain_choice trained = choose_training(comm, mem, 4 * WIDTH);
  CHECK(atoll_mlp_remembered(m, path, of, 3) == 1 && same(&of[0], &trained));
  MPI_Barrier(MPI_COMM_WORLD);
  if (check_rank == 0)
    CHECK_OK(atoll_file_replace(path, "chains: [{}]\n", 13));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(atoll_mlp_remembered(m, path, of, 3) == 0 && atoll_err_message()[0] == 0);
  atoll_model_destroy(&m);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}

/* An MLP-heavy stage in training on two ranks: two blocks of GPT-2, forward and backward of some micro-batches and the
 * update, with MLPs pipelined by tiles, tensor parallel, as a pipeline of one block a rank, and with MLPs by the way
 * that the chooser takes. The ways take turns; figures are medians of the slower rank. */
#include "mlp_stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/clock.h"
#include "atoll/layer.h"
#include "atoll/log.h"
#include "atoll/rng.h"

enum { BLOCKS = 2, MICRO_BATCHES = 4, SLOTS = 2, REPEATS = 99, WAYS = 4, TAG = 5 };

static const struct {
  const char *name;
  int tensor;
  atoll_mlp mlp;
} ways[WAYS] = {{"cta", 1, ATOLL_MLP_CTA},
                {"tensor", 1, ATOLL_MLP_PLAIN},
                {"pipeline", 0, ATOLL_MLP_PLAIN},
                {"auto", 1, ATOLL_MLP_AUTO}};

/* One way's stage on this rank. */
typedef struct part {
  atoll_exec e;
  atoll_stage *stage;
  atoll_comm *comm;
  int rank, pipeline;
  int64_t rows, n;        /* of a micro-batch; elements */
  float *x, *dy, *y, *dx; /* [MICRO_BATCHES, rows, width] */
} part;

static atoll_err open_part(atoll_comm *comm, const atoll_model *m, int way, int64_t rows, part *p) {
  const atoll_model_params *c = atoll_model_config(m);
  atoll_device_params d;
  atoll_device_params_init(&d);
  d.threads = 1;
  p->comm = comm;
  p->rank = atoll_comm_rank(comm);
  p->pipeline = !ways[way].tensor;
  p->rows = rows;
  p->n = rows * c->width;
  ATOLL_TRY(atoll_device_open("cpu", &d, &p->e.device));
  ATOLL_TRY(atoll_queue_create(p->e.device, "compute", &p->e.compute));
  ATOLL_TRY(atoll_queue_create(p->e.device, "comm", &p->e.comm));
  ATOLL_TRY(atoll_mem_create(0, 0, &p->e.mem));
  ATOLL_TRY(atoll_kernels_get("cpu", &p->e.kernels));
  p->e.tensor = ways[way].tensor ? comm : NULL;
  atoll_stage_params s = {.first = p->pipeline ? 1 + p->rank : 1,
                          .last = p->pipeline ? 2 + p->rank : 1 + BLOCKS,
                          .B = 1,
                          .S = rows,
                          .slots = SLOTS,
                          .partials = 1,
                          .train = 1,
                          .tensor = ways[way].tensor ? atoll_comm_size(comm) : 0,
                          .tensor_rank = ways[way].tensor ? p->rank : 0,
                          .mlp = ways[way].mlp};
  ATOLL_TRY(atoll_stage_create(m, &s, &p->e, &p->stage));
  ATOLL_TRY(atoll_stage_init(p->stage, 1));
  float **buffer[] = {&p->x, &p->dy, &p->y, &p->dx};
  for (int i = 0; i < 4; i++) {
    void *at = NULL;
    ATOLL_TRY(atoll_mem_calloc(p->e.mem, ATOLL_MEM_ACTIVATION, (size_t)(MICRO_BATCHES * p->n) * sizeof(float), &at));
    *buffer[i] = at;
    const atoll_rng_key key = {.seed = 3, .step = (uint64_t)i, .site = ATOLL_RNG_TEST};
    if (i < 2)
      atoll_rng_fill_normal(&key, 0, (size_t)(MICRO_BATCHES * p->n), 1, at);
  }
  return atoll_queue_sync(p->e.compute);
}

static void close_part(part *p) {
  atoll_stage_destroy(&p->stage);
  float **buffer[] = {&p->x, &p->dy, &p->y, &p->dx};
  for (int i = 0; i < 4 && p->e.mem; i++)
    atoll_mem_free(p->e.mem, buffer[i]);
  atoll_queue_destroy(&p->e.comm);
  atoll_queue_destroy(&p->e.compute);
  atoll_device_close(&p->e.device);
  if (p->e.mem)
    atoll_mem_destroy(&p->e.mem, NULL);
}

/* Forward or backward of micro-batch i. In the pipeline rank 0 sends what comes out and rank 1 the gradient back;
 * every micro-batch has buffers of its own, so nobody waits to use them. */
static atoll_err act(part *p, int backward, int64_t i, uint64_t step) {
  atoll_call c = {
      .B = 1, .S = p->rows, .seed = 1, .step = step, .first_sample = (uint64_t)i, .loss_scale = 1, .train = 1};
  int slot = (int)(i % SLOTS), takes = p->pipeline && p->rank != backward, gives = p->pipeline && !takes;
  float *in = (backward ? p->dy : p->x) + i * p->n, *out = (backward ? p->dx : p->y) + i * p->n;
  if (takes) {
    ATOLL_TRY(atoll_comm_recv(p->comm, p->e.comm, in, p->n, ATOLL_F32, !p->rank, TAG, NULL));
    ATOLL_TRY(atoll_queue_sync(p->e.comm));
  }
  if (backward)
    ATOLL_TRY(atoll_stage_backward(p->stage, slot, 0, &c, in, out, NULL));
  else
    ATOLL_TRY(atoll_stage_forward(p->stage, slot, &c, in, NULL, NULL, out, NULL));
  ATOLL_TRY(atoll_queue_sync(p->e.compute));
  return gives ? atoll_comm_send(p->comm, p->e.comm, out, p->n, ATOLL_F32, !p->rank, TAG, NULL) : ATOLL_OK;
}

static atoll_err one_step(part *p, uint64_t step, double *seconds) {
  atoll_action list[2 * MICRO_BATCHES];
  const atoll_adamw adamw = {
      .lr = 1e-6f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = 1, .bias1 = 1, .bias2 = 1};
  atoll_schedule_1f1b(p->pipeline && p->rank == 0 ? SLOTS : 1, 0, MICRO_BATCHES, list);
  ATOLL_TRY(atoll_comm_barrier(p->comm));
  double began = atoll_clock_now();
  atoll_err err = atoll_stage_zero_grad(p->stage, 0);
  for (int i = 0; i < 2 * MICRO_BATCHES && err == ATOLL_OK; i++)
    err = act(p, list[i].backward, list[i].micro_batch, step);
  if (err == ATOLL_OK)
    err = atoll_stage_adamw(p->stage, 0, &adamw);
  if (err == ATOLL_OK)
    err = atoll_queue_sync(p->e.compute);
  if (err == ATOLL_OK)
    err = atoll_queue_sync(p->e.comm);
  *seconds = atoll_clock_now() - began;
  ATOLL_TRY(atoll_agree(atoll_comm_mpi(p->comm), err));
  MPI_Allreduce(MPI_IN_PLACE, seconds, 1, MPI_DOUBLE, MPI_MAX, atoll_comm_mpi(p->comm));
  return ATOLL_OK;
}

/* Of what comes out of the first micro-batch, before any update. */
static double difference(const part *a, const part *b) {
  double worst = 0, scale = 0;
  for (int64_t i = 0; i < a->n; i++) {
    worst = fmax(worst, fabs((double)a->y[i] - b->y[i]));
    scale = fmax(scale, fabs(b->y[i]));
  }
  return worst / scale;
}

static atoll_err measure(part *p, int repeats, double *median, double *error) {
  static double seconds[WAYS][REPEATS];
  for (int i = 0; i <= repeats; i++) /* the first finds pages and packs weights */
    for (int w = 0; w < WAYS; w++) {
      double s;
      ATOLL_TRY(one_step(&p[w], (uint64_t)i, &s));
      if (i > 0)
        seconds[w][i - 1] = s;
      if (i == 0 && w == 1)
        *error = difference(&p[0], &p[1]);
    }
  for (int w = 0; w < WAYS; w++)
    median[w] = atoll_median(seconds[w], (size_t)repeats);
  return ATOLL_OK;
}

atoll_err mlp_stage(atoll_comm *comm, const char *text, int repeats, json_t *out) {
  long long width = 0, rows = 0;
  char end = 0;
  part p[WAYS];
  double median[WAYS], error = 0;
  atoll_model_params c;
  atoll_model *m = NULL;
  if (sscanf(text, "%lldx%lld%c", &width, &rows, &end) != 2 || width < 2 || width > 1 << 16 || rows < 1 ||
      rows > 1 << 20)
    return atoll_fail(ATOLL_USAGE, "--stage '%s': expected WIDTHxROWS", text);
  if (atoll_comm_size(comm) != 2)
    return atoll_fail(ATOLL_USAGE, "--stage compares ways of two ranks; there are %d", atoll_comm_size(comm));
  memset(p, 0, sizeof p);
  atoll_model_params_init(&c);
  c.layers = BLOCKS, c.width = width, c.heads = width % 128 ? 2 : width / 64, c.context = rows, c.vocab = 256;
  atoll_err err = atoll_model_create(&c, &m);
  for (int w = 0; w < WAYS && err == ATOLL_OK; w++)
    err = atoll_agree(atoll_comm_mpi(comm), open_part(comm, m, w, rows, &p[w]));
  if (err == ATOLL_OK)
    err = measure(p, repeats < REPEATS ? repeats : REPEATS, median, &error);
  if (err == ATOLL_OK && out) {
    json_t *o = json_pack("{s:I, s:I, s:i, s:i, s:f}", "width", (json_int_t)width, "rows", (json_int_t)rows, "blocks",
                          BLOCKS, "micro_batches", MICRO_BATCHES, "relative_error", error);
    char name[32];
    const char *chosen = atoll_stage_mlp_choice(p[WAYS - 1].stage);
    json_object_set_new(o, "chosen", json_string(chosen));
    atoll_say("the chooser takes %s", chosen);
    for (int w = 0; w < WAYS; w++) {
      snprintf(name, sizeof name, "%s_s", ways[w].name);
      json_object_set_new(o, name, json_real(median[w]));
      atoll_say("training step of %d blocks, width %lld , %d x %lld rows: %s %.3f s", BLOCKS, width, MICRO_BATCHES,
                rows, ways[w].name, median[w]);
    }
    json_object_set_new(out, "training", o);
  }
  for (int w = 0; w < WAYS; w++)
    close_part(&p[w]);
  atoll_model_destroy(&m);
  return err;
}

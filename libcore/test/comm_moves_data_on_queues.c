/* Every operation gives the right numbers on both host devices, with and without a watch, for every element type, in
 * one piece and in many (ATOLL_TEST_COMM_LIMIT), for empty messages, and for both orders of send and receive. */
#include "mpi_check.h"

#include "atoll/comm.h"

static atoll_device *device;
static atoll_queue *compute, *queue;
static atoll_comm *comm;

static double value(atoll_dtype t, const void *p, int64_t i) {
  switch (t) {
  case ATOLL_F32:
    return ((const float *)p)[i];
  case ATOLL_F64:
    return ((const double *)p)[i];
  case ATOLL_I32:
    return ((const int32_t *)p)[i];
  case ATOLL_I64:
    return (double)((const int64_t *)p)[i];
  case ATOLL_U16:
    return ((const uint16_t *)p)[i];
  case ATOLL_U8:
    return ((const uint8_t *)p)[i];
  default: {
    uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
  }
  }
}

static void set(atoll_dtype t, void *p, int64_t i, int v) {
  switch (t) {
  case ATOLL_F32:
    ((float *)p)[i] = (float)v;
    break;
  case ATOLL_F64:
    ((double *)p)[i] = v;
    break;
  case ATOLL_I32:
    ((int32_t *)p)[i] = v;
    break;
  case ATOLL_I64:
    ((int64_t *)p)[i] = v;
    break;
  case ATOLL_U16:
    ((uint16_t *)p)[i] = (uint16_t)v;
    break;
  case ATOLL_U8:
    ((uint8_t *)p)[i] = (uint8_t)v;
    break;
  default: {
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, 4);
    ((uint16_t *)p)[i] = (uint16_t)(u >> 16);
  }
  }
}

/* Small integers: exact in every type. */
static int element(int rank, int64_t i) { return (int)((i * 7 + rank * 5) % 29); }

static void collectives(atoll_dtype t, int64_t n) {
  size_t bytes = atoll_dtype_bytes(t);
  char *a = malloc((size_t)n * bytes + 1), *b = malloc((size_t)n * bytes + 1),
       *all = malloc((size_t)n * bytes * check_size + 1);
  atoll_event *e;
  CHECK_OK(atoll_event_create(&e));
  for (atoll_comm_op op = ATOLL_SUM; op <= ATOLL_MIN; op++)
    for (int in_place = 0; in_place < 2; in_place++) {
      char *from = in_place ? b : a;
      for (int64_t i = 0; i < n; i++)
        set(t, from, i, element(check_rank, i));
      CHECK_OK(atoll_comm_allreduce(comm, queue, from, b, n, t, op, e));
      CHECK_OK(atoll_event_sync(e));
      for (int64_t i = 0; i < n; i++) {
        int want = element(0, i);
        for (int r = 1; r < check_size; r++) {
          int v = element(r, i);
          want = op == ATOLL_SUM ? want + v : op == ATOLL_MAX ? (v > want ? v : want) : (v < want ? v : want);
        }
        CHECK(value(t, b, i) == want);
      }
    }
  for (int root = 0; root < check_size; root++) {
    for (int64_t i = 0; i < n; i++)
      set(t, a, i, element(check_rank, i));
    CHECK_OK(atoll_comm_broadcast(comm, queue, a, n, t, root, NULL));
    CHECK_OK(atoll_queue_sync(queue));
    for (int64_t i = 0; i < n; i++)
      CHECK(value(t, a, i) == element(root, i));
  }
  for (int in_place = 0; in_place < 2; in_place++) {
    char *from = in_place ? all + (size_t)n * bytes * check_rank : a;
    memset(all, 0, (size_t)n * bytes * check_size);
    for (int64_t i = 0; i < n; i++)
      set(t, from, i, element(check_rank, i));
    CHECK_OK(atoll_comm_allgather(comm, queue, from, all, n, t, e));
    CHECK_OK(atoll_event_sync(e));
    for (int r = 0; r < check_size; r++)
      for (int64_t i = 0; i < n; i++)
        CHECK(value(t, all, r * n + i) == element(r, i));
  }
  CHECK_OK(atoll_queue_sync(queue));
  atoll_event_destroy(&e);
  free(a);
  free(b);
  free(all);
}

/* Around the ring, the receive enqueued first or second; large enough that no buffer of MPI takes the message. */
static void ring(int64_t n, int receive_first) {
  int next = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
  float *out = malloc((size_t)n * sizeof *out + 1), *in = malloc((size_t)n * sizeof *in + 1);
  for (int64_t i = 0; i < n; i++) {
    out[i] = (float)element(check_rank, i);
    in[i] = -1;
  }
  if (receive_first)
    CHECK_OK(atoll_comm_recv(comm, queue, in, n, ATOLL_F32, before, 3, NULL));
  CHECK_OK(atoll_comm_send(comm, queue, out, n, ATOLL_F32, next, 3, NULL));
  if (!receive_first)
    CHECK_OK(atoll_comm_recv(comm, queue, in, n, ATOLL_F32, before, 3, NULL));
  CHECK_OK(atoll_queue_sync(queue));
  for (int64_t i = 0; i < n; i++)
    CHECK(in[i] == (float)element(before, i));
  free(out);
  free(in);
}

struct increment {
  int64_t *cell;
};

static atoll_err increment(void *args, void *stream) {
  (void)stream;
  ++*((struct increment *)args)->cell;
  return ATOLL_OK;
}

/* recv -> task on another queue -> send, ordered by events alone: each rank adds one. */
static void relay(int rounds) {
  int64_t cell = 0;
  atoll_event *received, *added;
  CHECK_OK(atoll_event_create(&received));
  CHECK_OK(atoll_event_create(&added));
  struct increment args = {&cell};
  for (int i = 0; i < rounds; i++) {
    if (check_rank || i) {
      CHECK_OK(atoll_queue_wait(queue, added)); /* the cell is free */
      CHECK_OK(
          atoll_comm_recv(comm, queue, &cell, 1, ATOLL_I64, (check_rank + check_size - 1) % check_size, i, received));
      CHECK_OK(atoll_queue_wait(compute, received));
    }
    CHECK_OK(atoll_queue_submit(compute, increment, &args, sizeof args));
    CHECK_OK(atoll_queue_record(compute, added));
    CHECK_OK(atoll_queue_wait(queue, added));
    int next = (check_rank + 1) % check_size;
    if (next || i + 1 < rounds)
      CHECK_OK(atoll_comm_send(comm, queue, &cell, 1, ATOLL_I64, next, next ? i : i + 1, added));
  }
  CHECK_OK(atoll_queue_sync(queue));
  CHECK_OK(atoll_queue_sync(compute));
  CHECK(cell == (int64_t)(rounds - 1) * check_size + check_rank + 1);
  atoll_event_destroy(&received);
  atoll_event_destroy(&added);
}

static void messages_keep_order(void) {
  enum { N = 20 };
  int32_t got[N], out[N];
  if (check_rank == 0)
    for (int i = 0; i < N; i++) {
      out[i] = i;
      CHECK_OK(atoll_comm_send(comm, queue, &out[i], 1, ATOLL_I32, 1, 5, NULL));
    }
  if (check_rank == 1)
    for (int i = 0; i < N; i++)
      CHECK_OK(atoll_comm_recv(comm, queue, &got[i], 1, ATOLL_I32, 0, 5, NULL));
  CHECK_OK(atoll_queue_sync(queue));
  for (int i = 0; check_rank == 1 && i < N; i++)
    CHECK(got[i] == i);
}

static void groups(void) {
  atoll_comm *part = (atoll_comm *)1, *node;
  int last = check_rank == check_size - 1;
  CHECK_OK(atoll_comm_split(comm, last ? -1 : 0, -check_rank, "part", &part));
  CHECK(last ? part == NULL : part != NULL);
  if (part) {
    CHECK(atoll_comm_size(part) == check_size - 1);
    CHECK(atoll_comm_rank(part) == check_size - 2 - check_rank); /* by key */
    CHECK(!strcmp(atoll_comm_name(part), "part") && !strcmp(atoll_comm_transport(part), "mpi"));
    int32_t sum = check_rank + 1;
    CHECK_OK(atoll_comm_allreduce(part, queue, &sum, &sum, 1, ATOLL_I32, ATOLL_SUM, NULL));
    CHECK_OK(atoll_queue_sync(queue));
    CHECK(sum == check_size * (check_size - 1) / 2);
  }
  atoll_comm_destroy(&part);
  CHECK_OK(atoll_comm_split_node(comm, "node", &node));
  CHECK(atoll_comm_size(node) == check_size); /* one host */
  CHECK_OK(atoll_comm_barrier(node));
  atoll_comm_destroy(&node);
  CHECK(!node);
}

static void bad_requests(void) {
  float x[4] = {0};
  CHECK(atoll_comm_send(comm, queue, x, 1, ATOLL_F32, check_size, 0, NULL) == ATOLL_USAGE);
  CHECK(atoll_comm_send(comm, queue, x, 1, ATOLL_F32, 0, -1, NULL) == ATOLL_USAGE);
  CHECK(atoll_comm_recv(comm, queue, x, -1, ATOLL_F32, 0, 1, NULL) == ATOLL_USAGE);
  CHECK(atoll_comm_broadcast(comm, queue, x, 1, ATOLL_F32, -1, NULL) == ATOLL_USAGE);
  CHECK(atoll_comm_allgather(comm, queue, x, x, 1, (atoll_dtype)99, NULL) == ATOLL_USAGE);
  CHECK(atoll_comm_allreduce(comm, NULL, x, x, 1, ATOLL_F32, ATOLL_SUM, NULL) == ATOLL_USAGE);
  CHECK_OK(atoll_queue_sync(queue));
  /* A message of another length: shorter and longer than expected. */
  for (int64_t sent = 1; sent <= 3; sent += 2) {
    if (check_rank == 0) {
      CHECK_OK(atoll_comm_send(comm, queue, x, sent, ATOLL_F32, 1, 9, NULL));
      CHECK_OK(atoll_queue_sync(queue));
    } else if (check_rank == 1) {
      atoll_event *e;
      int32_t n = 0;
      struct increment args = {(int64_t *)&n};
      CHECK_OK(atoll_event_create(&e));
      CHECK_OK(atoll_comm_recv(comm, queue, x, 2, ATOLL_F32, 0, 9, e));
      CHECK(atoll_event_sync(e) == ATOLL_MISMATCH);
      CHECK(strstr(atoll_err_message(), "recv from 0 tag 9 on world"));
      atoll_queue_wait(compute, e); /* what depends on it does not run */
      atoll_queue_submit(compute, increment, &args, sizeof args);
      CHECK(atoll_queue_sync(compute) == ATOLL_MISMATCH);
      CHECK(n == 0);
      CHECK(atoll_queue_sync(queue) == ATOLL_MISMATCH);
      atoll_event_destroy(&e);
    }
  }
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK(check_size >= 2);
  int small = getenv("ATOLL_TEST_COMM_LIMIT") != NULL;
  for (int with_watch = 0; with_watch < 2; with_watch++) {
    atoll_watch *watch = NULL;
    if (with_watch)
      CHECK_OK(atoll_watch_start(MPI_COMM_WORLD, NULL, &watch));
    CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", watch, &comm));
    CHECK(atoll_comm_rank(comm) == check_rank && atoll_comm_size(comm) == check_size);
    for (int k = 0; k < 2; k++) {
      atoll_device_params p;
      atoll_device_params_init(&p);
      p.seed = 11 + (uint64_t)check_rank;
      CHECK_OK(atoll_device_open(k ? "async" : "cpu", &p, &device));
      CHECK_OK(atoll_queue_create(device, "comm", &queue));
      CHECK_OK(atoll_queue_create(device, "compute", &compute));
      const int64_t counts[] = {0, 1, 16, 17, 100};
      for (int t = 0; t < ATOLL_DTYPES; t++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
          if (k == 0 || i % 2 == 0) /* the delays of the async device add up */
            collectives((atoll_dtype)t, counts[i]);
      for (int first = 0; first < 2; first++) {
        ring(0, first);
        ring(33, first);
        ring(small ? 1000 : 1 << 20, first);
      }
      relay(10);
      messages_keep_order();
      groups();
      bad_requests();
      atoll_queue_destroy(&queue);
      atoll_queue_destroy(&compute);
      atoll_device_close(&device);
    }
    atoll_comm_destroy(&comm);
    atoll_watch_stop(&watch);
  }
  return check_end();
}

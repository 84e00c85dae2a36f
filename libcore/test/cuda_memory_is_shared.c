/* The CUDA backends over run time calls on the host (fake_cuda.h): every rank reads what every other stored, through
 * CUDA IPC and through NCCL windows; a failure of one rank's call is everybody's refusal, names the call, and leaves
 * nothing open; memory is freed only when nobody has it open; a machine without a driver and an NCCL that is too old
 * are told by name. */
#include "mpi_check.h"

#include "atoll/symmetric.h"
#include "fake_cuda.h"

static atoll_comm *comm;
static atoll_device *device;
static atoll_mem *mem;

static size_t size_of(int rank) { return rank == 1 ? 0 : 4096 * (size_t)(rank + 1) + 24; }

static void set(const char *name, const char *value, int here) {
  if (value && here)
    setenv(name, value, 1);
  else
    unsetenv(name);
}

static void moved(void *to, const void *from, size_t bytes) {
  atoll_queue *q = NULL;
  CHECK_OK(atoll_queue_create(device, "copy", &q));
  CHECK_OK(atoll_queue_copy(q, to, from, bytes));
  CHECK_OK(atoll_queue_sync(q));
  atoll_queue_destroy(&q);
}

static void shared(const char *transport) {
  atoll_symmetric *s = NULL;
  char line[64], all[3 * 64] = {0};
  set("ATOLL_SYMMETRIC", transport, 1);
  CHECK_OK(atoll_symmetric_create(comm, device, mem, ATOLL_MEM_COMM, size_of(check_rank), "shared", &s));
  CHECK(!strcmp(atoll_symmetric_transport(s), transport));
  CHECK(atoll_mem_current(mem, ATOLL_MEM_COMM) == (int64_t)size_of(check_rank));
  for (int r = 0; r < check_size; r++) {
    CHECK(atoll_symmetric_bytes(s, r) == size_of(r));
    if (size_of(r)) {
      moved(all, atoll_symmetric_at(s, r), sizeof all);
      for (size_t i = 0; i < sizeof all; i++)
        CHECK(all[i] == 0);
    }
  }
  CHECK_OK(atoll_comm_barrier(comm));
  memset(line, 'a' + check_rank, sizeof line);
  for (int r = 0; r < check_size; r++)
    if (size_of(r))
      moved((char *)atoll_symmetric_at(s, r) + 64 * check_rank, line, sizeof line);
  CHECK_OK(atoll_comm_barrier(comm));
  for (int r = 0; r < check_size; r++)
    if (size_of(r)) {
      moved(all, atoll_symmetric_at(s, r), sizeof all);
      for (size_t i = 0; i < 64 * (size_t)check_size; i++)
        CHECK(all[i] == (char)('a' + i / 64));
    }
  atoll_symmetric_destroy(&s);
  CHECK(fake_open() == 0 && fake_wrong() == 0 && atoll_mem_current(mem, ATOLL_MEM_COMM) == 0);
}

/* `what` fails on the last rank. */
static void refused(const char *transport, const char *what, atoll_err code, const char *said) {
  atoll_symmetric *s = NULL;
  set("ATOLL_SYMMETRIC", transport, 1);
  set("ATOLL_TEST_FAKE_CUDA", what, check_rank == check_size - 1);
  CHECK(atoll_symmetric_create(comm, device, mem, ATOLL_MEM_COMM, 4096, "refused", &s) == code);
  CHECK(s == NULL && strstr(atoll_err_message(), said));
  CHECK(fake_open() == 0 && fake_wrong() == 0 && atoll_mem_current(mem, ATOLL_MEM_COMM) == 0);
  set("ATOLL_TEST_FAKE_CUDA", NULL, 0);
}

/* A backend that one rank lacks is nobody's. */
static void chosen(void) {
  atoll_symmetric *s = NULL;
  set("ATOLL_SYMMETRIC", NULL, 0);
  CHECK_OK(atoll_symmetric_create(comm, device, NULL, ATOLL_MEM_COMM, 64, "any", &s));
  CHECK(!strcmp(atoll_symmetric_transport(s), "cuda ipc"));
  atoll_symmetric_destroy(&s);
  refused("nccl window", "no-nccl", ATOLL_UNSUPPORTED, "no backend for device cuda on every rank");
  set("ATOLL_SYMMETRIC", "nccl window", 1);
  set("ATOLL_TEST_FAKE_CUDA", "nccl=22605", 1);
  CHECK(atoll_symmetric_create(comm, device, NULL, ATOLL_MEM_COMM, 64, "old", &s) == ATOLL_UNSUPPORTED);
  CHECK(strstr(atoll_err_message(), "nccl window: NCCL 2.26.5 is too old: 2.28"));
  set("ATOLL_TEST_FAKE_CUDA", NULL, 0);
}

static void device_says_why(void) {
  atoll_device *d = NULL;
  atoll_queue *q = NULL;
  atoll_device_params p;
  atoll_device_params_init(&p);
  set("ATOLL_TEST_FAKE_CUDA", "driver", 1);
  CHECK(atoll_device_open("cuda", &p, &d) == ATOLL_UNAVAILABLE);
  CHECK(strstr(atoll_err_message(), "no GPU here: the driver is too old, or absent"));
  set("ATOLL_TEST_FAKE_CUDA", NULL, 0);
  p.pci = "0000:99:00.0";
  CHECK(atoll_device_open("cuda", &p, &d) == ATOLL_UNAVAILABLE && strstr(atoll_err_message(), "0000:99:00.0"));
  p.pci = "0000:01:00.0";
  CHECK_OK(atoll_device_open("cuda", &p, &d));
  CHECK(!atoll_device_automatic("cuda") && atoll_device_automatic("cpu"));
  CHECK_OK(atoll_queue_create(d, "compute", &q));
  char to[4] = "", from[4] = "abc";
  set("ATOLL_TEST_FAKE_CUDA", "memcpy_async", 1);
  CHECK(atoll_queue_copy(q, to, from, sizeof to) == ATOLL_IO && strstr(atoll_err_message(), "cudaMemcpyAsync"));
  set("ATOLL_TEST_FAKE_CUDA", NULL, 0);
  CHECK(atoll_queue_zero(q, to, sizeof to) == ATOLL_IO); /* sticky ... */
  CHECK(atoll_queue_sync(q) == ATOLL_IO && strstr(atoll_err_message(), "cudaMemcpyAsync"));
  CHECK_OK(atoll_queue_copy(q, to, from, sizeof to)); /* ... until it was told */
  atoll_event *e = NULL;
  CHECK_OK(atoll_event_create(&e));
  CHECK_OK(atoll_queue_record(q, e));
  CHECK_OK(atoll_queue_wait(q, e));
  CHECK_OK(atoll_event_sync(e));
  CHECK(atoll_event_done(e) && !strcmp(to, "abc"));
  atoll_event_destroy(&e);
  atoll_queue_destroy(&q);
  atoll_device_close(&d);
}

int main(int argc, char **argv) {
  atoll_device_params p;
  check_begin(&argc, &argv);
  atoll_device_params_init(&p);
  CHECK_OK(atoll_device_backend_register(&cuda_device));
  CHECK_OK(atoll_symmetric_backend_register(&nccl_window));
  CHECK_OK(atoll_symmetric_backend_register(&cuda_ipc));
  CHECK_OK(atoll_device_open("cuda", &p, &device));
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  device_says_why();
  shared("cuda ipc");
  shared("nccl window");
  refused("cuda ipc", "malloc", ATOLL_NOMEM, "cudaMalloc");
  refused("cuda ipc", "ipc_get", ATOLL_UNSUPPORTED, "cudaIpcGetMemHandle");
  if (check_size > 1)
    refused("cuda ipc", "ipc_open", ATOLL_UNSUPPORTED, "cudaIpcOpenMemHandle");
  refused("cuda ipc", "memset_async", ATOLL_IO, "cudaMemsetAsync");
  refused("nccl window", "malloc", ATOLL_NOMEM, "ncclMemAlloc");
  refused("nccl window", "comm_init_rank", ATOLL_UNAVAILABLE, "ncclCommInitRank");
  refused("nccl window", "peer_pointer", ATOLL_UNSUPPORTED, "ncclGetLsaPointer");
  chosen();
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  atoll_device_close(&device);
  return check_end();
}

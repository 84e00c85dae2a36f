/* Every rank reads what every other wrote, segments differ in size, one is empty; only the own segment is charged; a
 * request that cannot be held is refused on all ranks, naming bytes and limit. */
#include "mpi_check.h"

#include <sched.h>
#include <stdatomic.h>

#include "atoll/symmetric.h"

static size_t size_of(int rank) { return rank == 1 ? 0 : 4096 * (size_t)(rank + 1) + 24; }

static void shared(atoll_comm *comm, atoll_device *device, atoll_mem *mem) {
  atoll_symmetric *s = NULL;
  CHECK_OK(atoll_symmetric_create(comm, device, mem, ATOLL_MEM_COMM, size_of(check_rank), "shared", &s));
  CHECK(!strcmp(atoll_symmetric_transport(s), "mpi shared window"));
  CHECK(atoll_mem_current(mem, ATOLL_MEM_COMM) == (int64_t)size_of(check_rank));
  for (int r = 0; r < check_size; r++) {
    CHECK(atoll_symmetric_bytes(s, r) == size_of(r));
    const char *p = atoll_symmetric_at(s, r);
    for (size_t i = 0; i < size_of(r); i++)
      CHECK(p[i] == 0);
    CHECK(size_of(r) == 0 || (uintptr_t)p % 64 == 0);
  }
  CHECK_OK(atoll_comm_barrier(comm));
  for (int r = 0; r < check_size; r++) /* everyone writes a line of each segment */
    if (size_of(r))
      memset((char *)atoll_symmetric_at(s, r) + 64 * check_rank, 'a' + check_rank, 64);
  CHECK_OK(atoll_comm_barrier(comm));
  for (int r = 0; r < check_size; r++)
    for (size_t i = 0; size_of(r) && i < 64 * (size_t)check_size; i++)
      CHECK(((char *)atoll_symmetric_at(s, r))[i] == (char)('a' + i / 64));
  atoll_symmetric_destroy(&s);
  CHECK(s == NULL && atoll_mem_current(mem, ATOLL_MEM_COMM) == 0);
  atoll_symmetric_destroy(&s);
}

/* Without MPI calls between: rank 0's release store is seen by its neighbour's acquire load. */
static void ordered(atoll_comm *comm, atoll_device *device) {
  struct cell {
    _Atomic uint32_t flag;
    uint32_t value;
  } * c;
  atoll_symmetric *s = NULL;
  CHECK_OK(atoll_symmetric_create(comm, device, NULL, ATOLL_MEM_COMM, sizeof *c, "flags", &s));
  int before = (check_rank + check_size - 1) % check_size;
  for (uint32_t i = 1; i <= 100; i++) {
    c = atoll_symmetric_at(s, (check_rank + 1) % check_size); /* the consumer's memory */
    c->value = i * 3 + (uint32_t)check_rank;
    atomic_store_explicit(&c->flag, i, memory_order_release);
    c = atoll_symmetric_at(s, check_rank);
    while (atomic_load_explicit(&c->flag, memory_order_acquire) < i)
      sched_yield();
    CHECK(c->value == i * 3 + (uint32_t)before);
    CHECK_OK(atoll_comm_barrier(comm));
  }
  atoll_symmetric_destroy(&s);
}

static void refused(atoll_comm *comm, atoll_device *device, atoll_mem *mem) {
  atoll_symmetric *s = NULL;
  size_t huge = (size_t)1 << 46;
  CHECK(atoll_symmetric_create(comm, device, NULL, ATOLL_MEM_COMM, huge, "huge", &s) == ATOLL_NOMEM);
  char bytes[32];
  snprintf(bytes, sizeof bytes, "%zu", huge * (size_t)check_size);
  CHECK(s == NULL && strstr(atoll_err_message(), "huge") && strstr(atoll_err_message(), bytes) &&
        strstr(atoll_err_message(), "left"));
  atoll_mem_fail_at(mem, check_rank == check_size - 1); /* one rank's budget is every rank's refusal */
  CHECK(atoll_symmetric_create(comm, device, mem, ATOLL_MEM_COMM, 64, "small", &s) == ATOLL_NOMEM);
  CHECK(s == NULL && atoll_mem_current(mem, ATOLL_MEM_COMM) == 0);
}

int main(int argc, char **argv) {
  atoll_device_params p;
  atoll_device *device;
  atoll_comm *comm;
  atoll_mem *mem;
  check_begin(&argc, &argv);
  atoll_device_params_init(&p);
  CHECK_OK(atoll_device_open("cpu", &p, &device));
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  shared(comm, device, mem);
  ordered(comm, device);
  refused(comm, device, mem);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  atoll_device_close(&device);
  return check_end();
}

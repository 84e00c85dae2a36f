#include "fake_cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 256, PAGE = 4096, RANKS = 16, ARGS = 4096 };

/* --- what fails --------------------------------------------------------------------------------------------------- */

static int fails(const char *name) {
  const char *set = getenv("ATOLL_TEST_FAKE_CUDA");
  return set && !strcmp(set, name) ? FAKE_ERROR : 0;
}

static const char *text(int code) { return code == 35 ? "the driver is too old, or absent" : "made to fail"; }

/* --- memory: a page of bookkeeping, then the bytes ---------------------------------------------------------------- */

struct head {
  char name[64];
  atomic_int users; /* mappings by other processes */
};

static struct block {
  char *base; /* NULL: free entry */
  size_t bytes;
  int own;
} blocks[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int wrong;

static struct block *find(const void *p) {
  for (int i = 0; i < BLOCKS; i++)
    if (p ? blocks[i].base && blocks[i].base + PAGE == (const char *)p : !blocks[i].base)
      return &blocks[i];
  return NULL;
}

static int map(const char *name, int make, size_t bytes, void **p) {
  int fd = shm_open(name, make ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
  if (fd < 0)
    return FAKE_ERROR;
  off_t end = make ? (off_t)(bytes + PAGE) : lseek(fd, 0, SEEK_END);
  char *base =
      make && ftruncate(fd, end) ? MAP_FAILED : mmap(NULL, (size_t)end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  (void)close(fd);
  if (base == MAP_FAILED)
    return FAKE_ERROR;
  pthread_mutex_lock(&lock);
  *find(NULL) = (struct block){base, (size_t)end, make};
  pthread_mutex_unlock(&lock);
  *p = base + PAGE;
  return 0;
}

static int unmap(void *p, int own) {
  pthread_mutex_lock(&lock);
  struct block *b = p ? find(p) : NULL;
  if (!b || b->own != own) {
    wrong++;
    pthread_mutex_unlock(&lock);
    return FAKE_ERROR;
  }
  struct head *h = (struct head *)(void *)b->base;
  if (own && atomic_load(&h->users))
    wrong++; /* a peer still has it open */
  if (own)
    (void)shm_unlink(h->name);
  else
    atomic_fetch_sub(&h->users, 1);
  (void)munmap(b->base, b->bytes);
  b->base = NULL;
  pthread_mutex_unlock(&lock);
  return 0;
}

static int allocate(void **p, size_t bytes) {
  static atomic_int number;
  char name[64];
  if (fails("malloc"))
    return FAKE_ERROR;
  snprintf(name, sizeof name, "/atoll-fake-%d-%d", (int)getpid(), atomic_fetch_add(&number, 1));
  if (map(name, 1, bytes, p))
    return FAKE_ERROR;
  struct head *h = (struct head *)(void *)((char *)*p - PAGE);
  memcpy(h->name, name, sizeof name);
  memset(*p, 0xA5, bytes < 1 << 20 ? bytes : 1 << 20); /* nobody promised zeros */
  return 0;
}
static int release(void *p) { return unmap(p, 1); }

static int ipc_get(cuda_ipc_handle *handle, void *p) {
  if (fails("ipc_get"))
    return FAKE_ERROR;
  memcpy(handle->bytes, (char *)p - PAGE, sizeof handle->bytes);
  return 0;
}
static int ipc_open(void **p, cuda_ipc_handle handle) {
  if (fails("ipc_open") || map(handle.bytes, 0, 0, p))
    return FAKE_ERROR;
  atomic_fetch_add(&((struct head *)(void *)((char *)*p - PAGE))->users, 1);
  return 0;
}
static int ipc_close(void *p) { return unmap(p, 0); }

int fake_open(void) {
  int n = 0;
  for (int i = 0; i < BLOCKS; i++)
    n += blocks[i].base != NULL;
  return n;
}
int fake_wrong(void) { return wrong; }

/* --- streams ------------------------------------------------------------------------------------------------------ */

struct work {
  struct work *next;
  void (*run)(void *args);
  _Alignas(16) char args[ARGS];
};
struct stream {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct work *first, **last;
  int busy, end;
};

static void *stream_main(void *arg) {
  struct stream *s = arg;
  pthread_mutex_lock(&s->lock);
  while (!s->end || s->first) {
    struct work *w = s->first;
    if (!w) {
      pthread_cond_wait(&s->changed, &s->lock);
      continue;
    }
    s->first = w->next;
    s->last = s->first ? s->last : &s->first;
    s->busy = 1;
    pthread_mutex_unlock(&s->lock);
    w->run(w->args);
    free(w);
    pthread_mutex_lock(&s->lock);
    s->busy = 0;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

void fake_launch(void *stream, void (*kernel)(void *args), const void *args, size_t bytes) {
  struct stream *s = stream;
  struct work *w = calloc(1, sizeof *w);
  if (!w || bytes > ARGS)
    abort();
  w->run = kernel;
  memcpy(w->args, args, bytes);
  pthread_mutex_lock(&s->lock);
  *s->last = w;
  s->last = &w->next;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

static int stream_create(void **stream) {
  struct stream *s = calloc(1, sizeof *s);
  if (fails("stream_create") || !s) {
    free(s);
    return FAKE_ERROR;
  }
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  s->last = &s->first;
  *stream = s;
  return pthread_create(&s->thread, NULL, stream_main, s);
}
static int stream_sync(void *stream) {
  struct stream *s = stream;
  pthread_mutex_lock(&s->lock);
  while (s->first || s->busy)
    pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
  return fails("stream_sync");
}
static int stream_destroy(void *stream) {
  struct stream *s = stream;
  pthread_mutex_lock(&s->lock);
  s->end = 1;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  free(s);
  return 0;
}

struct copy {
  void *to;
  const void *from; /* NULL: `value` */
  int value;
  size_t bytes;
};
static void copy_run(void *args) {
  struct copy *c = args;
  if (c->from)
    memcpy(c->to, c->from, c->bytes);
  else
    memset(c->to, c->value, c->bytes);
}
static int memcpy_async(void *to, const void *from, size_t bytes, void *stream) {
  struct copy c = {to, from, 0, bytes};
  fake_launch(stream, copy_run, &c, sizeof c);
  return fails("memcpy_async");
}
static int memset_async(void *p, int value, size_t bytes, void *stream) {
  struct copy c = {p, NULL, value, bytes};
  fake_launch(stream, copy_run, &c, sizeof c);
  return fails("memset_async");
}

/* --- events: how often recorded, and how often reached ------------------------------------------------------------ */

/* As with CUDA, an event may be destroyed while streams have yet to reach it: the last user frees it. */
struct event {
  atomic_int recorded, reached, users;
};
static void drop(struct event *e) {
  if (atomic_fetch_sub(&e->users, 1) == 1)
    free(e);
}
struct mark {
  struct event *event;
  int turn;
};
static void reach_run(void *args) {
  struct mark *m = args;
  atomic_store(&m->event->reached, m->turn);
  drop(m->event);
}
static void await_run(void *args) {
  struct mark *m = args;
  while (atomic_load(&m->event->reached) < m->turn)
    sched_yield();
  drop(m->event);
}
static int event_create(void **event) {
  struct event *e = calloc(1, sizeof *e);
  if (!e)
    return FAKE_ERROR;
  atomic_store(&e->users, 1);
  *event = e;
  return 0;
}
static int event_destroy(void *event) {
  drop(event);
  return 0;
}
static int event_record(void *event, void *stream) {
  struct event *e = event;
  struct mark m = {e, atomic_fetch_add(&e->recorded, 1) + 1};
  atomic_fetch_add(&e->users, 1);
  fake_launch(stream, reach_run, &m, sizeof m);
  return 0;
}
static int stream_wait_event(void *stream, void *event) {
  struct event *e = event;
  struct mark m = {e, atomic_load(&e->recorded)};
  atomic_fetch_add(&e->users, 1);
  fake_launch(stream, await_run, &m, sizeof m);
  return 0;
}
static int event_query(void *event) {
  struct event *e = event;
  return atomic_load(&e->reached) < atomic_load(&e->recorded) ? CUDA_NOT_READY : 0;
}
static int event_sync(void *event) {
  while (event_query(event) == CUDA_NOT_READY)
    sched_yield();
  return 0;
}

/* --- the device --------------------------------------------------------------------------------------------------- */

static int device_count(int *n) {
  *n = 1;
  return fails("driver") ? 35 : 0;
}
static int device_by_pci(int *device, const char *pci) {
  *device = 0;
  return strcmp(pci, "0000:01:00.0") ? FAKE_ERROR : 0;
}
static int set_device(int device) { return device == 0 ? fails("set_device") : FAKE_ERROR; }

const struct cuda_calls cuda_rt = {text,        device_count,      device_by_pci, set_device,    allocate,
                                   release,     memcpy_async,      memset_async,  stream_create, stream_destroy,
                                   stream_sync, stream_wait_event, event_create,  event_destroy, event_record,
                                   event_sync,  event_query,       ipc_get,       ipc_open,      ipc_close};

/* --- NCCL: ranks meet in a page whose name is the id -------------------------------------------------------------- */

struct meeting {
  atomic_int came[RANKS];
  cuda_ipc_handle handle[RANKS];
};
struct comm {
  struct meeting *m;
  int rank, size, windows;
  char id[128];
};
struct window {
  void *at[RANKS];
  int rank, size;
};

static int get_version(int *version) {
  const char *set = getenv("ATOLL_TEST_FAKE_CUDA");
  *version = set && !strncmp(set, "nccl=", 5) ? atoi(set + 5) : 22809;
  return 0;
}
static int get_unique_id(nccl_id *id) {
  static int number;
  snprintf(id->bytes, sizeof id->bytes, "/atoll-fake-nccl-%d-%d", (int)getpid(), number++);
  return fails("get_unique_id");
}
static int comm_init_rank(void **out, int size, nccl_id id, int rank) {
  struct comm *c = calloc(1, sizeof *c);
  int fd = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
  if (fails("comm_init_rank") || !c || fd < 0 || size > RANKS || ftruncate(fd, sizeof *c->m)) {
    free(c);
    return FAKE_ERROR;
  }
  c->m = mmap(NULL, sizeof *c->m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  (void)close(fd);
  c->rank = rank;
  c->size = size;
  memcpy(c->id, id.bytes, sizeof c->id);
  *out = c;
  return c->m == MAP_FAILED ? FAKE_ERROR : 0;
}
static void meet(struct comm *c) {
  int turn = atomic_fetch_add(&c->m->came[c->rank], 1) + 1;
  for (int r = 0; r < c->size; r++)
    while (atomic_load(&c->m->came[r]) < turn)
      sched_yield();
}
static int comm_destroy(void *comm) {
  struct comm *c = comm;
  wrong += c->windows;
  if (c->rank == 0)
    (void)shm_unlink(c->id);
  (void)munmap(c->m, sizeof *c->m);
  free(c);
  return 0;
}
static int window_register(void *comm, void *p, size_t bytes, void **window) {
  struct comm *c = comm;
  struct window *w = calloc(1, sizeof *w);
  (void)bytes;
  if (fails("window_register") || !w) {
    free(w);
    return FAKE_ERROR;
  }
  w->rank = c->rank;
  w->size = c->size;
  c->windows++;
  (void)ipc_get(&c->m->handle[c->rank], p);
  meet(c);
  for (int r = 0; r < c->size; r++)
    if (r != c->rank)
      (void)ipc_open(&w->at[r], c->m->handle[r]);
  w->at[c->rank] = p;
  *window = w;
  return 0;
}
static int window_deregister(void *comm, void *window) {
  struct comm *c = comm;
  struct window *w = window;
  for (int r = 0; r < w->size; r++)
    if (r != w->rank)
      (void)ipc_close(w->at[r]);
  meet(c);
  c->windows--;
  free(w);
  return 0;
}
static int peer_pointer(void *window, int peer, void **p) {
  *p = ((struct window *)window)->at[peer];
  return fails("peer_pointer");
}

const struct nccl_calls *nccl_load(const char **why_not) {
  static const struct nccl_calls calls = {text,     get_version, get_unique_id,   comm_init_rank,    comm_destroy,
                                          allocate, release,     window_register, window_deregister, peer_pointer};
  *why_not = "there is no NCCL";
  return fails("no-nccl") ? NULL : &calls;
}

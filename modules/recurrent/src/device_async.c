/* A device whose kernels, those of CUDA as C, run on the host when they are waited for and not before: a program that
 * looks at a value too early, or writes where a kernel has yet to read, computes something else. */
#include <stdlib.h>
#include <string.h>

#include "device.h"

typedef struct task {
  void (*kernel)(const void *const *arguments); /* NULL: a copy */
  int64_t argument[3];                          /* of a copy: to, from, bytes */
  int64_t *more;                                /* of a kernel, owned */
  int n;
} task;

typedef struct async {
  rt_device d; /* first */
  const rt_native *lib;
  task *task;
  int tasks, room;
} async;

static void *alloc(rt_device *d, int64_t bytes) {
  void *p = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
  (void)d;
  if (p)
    memset(p, 0xff, (size_t)bytes); /* not numbers */
  return p;
}

static void release(rt_device *d, void *p) {
  (void)d;
  free(p);
}

static task *next(async *a) {
  if (a->tasks == a->room) {
    int room = a->room ? 2 * a->room : 64;
    task *more = realloc(a->task, (size_t)room * sizeof *more);
    if (!more)
      return NULL;
    a->task = more;
    a->room = room;
  }
  a->task[a->tasks] = (task){.n = 0};
  return &a->task[a->tasks++];
}

static atoll_err launch(rt_device *d, const char *kernel, int64_t threads, int n, const void *const *arguments) {
  async *a = (async *)(void *)d;
  char name[64];
  (void)threads;
  (void)snprintf(name, sizeof name, "rt_call_%s", kernel);
  task *t = next(a);
  if (!t || !(t->more = malloc((size_t)(n + 1) * sizeof *t->more)))
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  *(void **)&t->kernel = rt_native_symbol(a->lib, name);
  if (!t->kernel)
    return atoll_fail(ATOLL_INTERNAL, "no kernel %s", name);
  for (t->n = 0; t->n < n; t->n++)
    memcpy(&t->more[t->n], arguments[t->n], sizeof *t->more);
  return ATOLL_OK;
}

static atoll_err copy(rt_device *d, void *to, const void *from, int64_t bytes) {
  task *t = next((async *)(void *)d);
  if (!t)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  t->argument[0] = (int64_t)(intptr_t)to;
  t->argument[1] = (int64_t)(intptr_t)from;
  t->argument[2] = bytes;
  return ATOLL_OK;
}

static atoll_err carry_out(const task *t) {
  const void **a = calloc((size_t)t->n + 1, sizeof *a);
  if (!a)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  for (int k = 0; k < t->n; k++)
    a[k] = &t->more[k];
  if (t->kernel)
    t->kernel(a);
  else
    memcpy((void *)(intptr_t)t->argument[0], (const void *)(intptr_t)t->argument[1], (size_t)t->argument[2]);
  free(a);
  return ATOLL_OK;
}

static atoll_err enter(rt_device *d) {
  (void)d;
  return ATOLL_OK;
}

static atoll_err wait_all(rt_device *d) {
  async *a = (async *)(void *)d;
  atoll_err err = ATOLL_OK;
  for (int k = 0; k < a->tasks; k++) {
    if (err == ATOLL_OK)
      err = carry_out(&a->task[k]);
    free(a->task[k].more);
  }
  a->tasks = 0;
  return err;
}

static void destroy(rt_device *d) {
  async *a = (async *)(void *)d;
  for (int k = 0; k < a->tasks; k++)
    free(a->task[k].more);
  free(a->task);
  free(a);
}

atoll_err rt_device_create_async(const rt_native *lib, rt_device **out) {
  async *a = calloc(1, sizeof *a);
  if (!a)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  a->d = (rt_device){0, enter, alloc, release, launch, copy, wait_all, destroy};
  a->lib = lib;
  *out = &a->d;
  return ATOLL_OK;
}

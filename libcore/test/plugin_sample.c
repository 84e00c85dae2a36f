/* A plug-in for the test: built twice, once with a version nobody loads. Its device refuses with a reason until
 * ATOLL_SAMPLE_HERE is set; its memory is not the host's. */
#include "atoll/plugin.h"

#include <stdlib.h>
#include <string.h>

#ifndef SAMPLE_VERSION
#define SAMPLE_VERSION ATOLL_PLUGIN_VERSION
#endif

static atoll_err sample_probe(const char **why_not) {
  if (getenv("ATOLL_SAMPLE_HERE"))
    return ATOLL_OK;
  *why_not = "no sample card in this machine";
  return ATOLL_UNAVAILABLE;
}

static atoll_err sample_open(const atoll_device_params *params, void **self) {
  (void)params;
  *self = NULL;
  return ATOLL_OK;
}
static atoll_err sample_alloc(void *self, size_t bytes, void **p) {
  (void)self;
  *p = malloc(bytes);
  return *p ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "sample: %zu bytes", bytes);
}
static void sample_free(void *self, void *p) {
  (void)self;
  free(p);
}
static atoll_err sample_queue_create(void *self, const char *role, void **q) {
  (void)self, (void)role;
  *q = calloc(1, 1);
  return ATOLL_OK;
}
static atoll_err sample_submit(void *q, atoll_task task, const void *args, size_t bytes) {
  _Alignas(max_align_t) char copy[512];
  memcpy(copy, args, bytes);
  return task(copy, q);
}
static atoll_err sample_copy(void *q, void *to, const void *from, size_t bytes) {
  (void)q;
  memcpy(to, from, bytes);
  return ATOLL_OK;
}
static atoll_err sample_zero(void *q, void *to, size_t bytes) {
  (void)q;
  memset(to, 0, bytes);
  return ATOLL_OK;
}
static atoll_err sample_two(void *q, void *e) {
  (void)q, (void)e;
  return ATOLL_OK;
}
static atoll_err sample_one(void *q) {
  (void)q;
  return ATOLL_OK;
}
static atoll_err sample_event_create(void *self, void **e) {
  (void)self;
  *e = calloc(1, 1);
  return ATOLL_OK;
}
static int sample_event_done(void *e) {
  (void)e;
  return 1;
}

static const atoll_device_backend device = {
    .kind = "sample",
    .priority = 10,
    .probe = sample_probe,
    .open = sample_open,
    .alloc = sample_alloc,
    .free = sample_free,
    .queue_create = sample_queue_create,
    .queue_destroy = free,
    .submit = sample_submit,
    .copy = sample_copy,
    .zero = sample_zero,
    .record = sample_two,
    .wait = sample_two,
    .sync = sample_one,
    .event_create = sample_event_create,
    .event_destroy = free,
    .event_sync = sample_one,
    .event_done = sample_event_done,
};

static const atoll_plugin plugin = {.version = SAMPLE_VERSION, .name = "sample", .device = &device};

ATOLL_API const atoll_plugin *atoll_plugin_v1(void);
const atoll_plugin *atoll_plugin_v1(void) { return &plugin; }

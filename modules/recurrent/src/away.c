/* Places in the file are given out one behind the other; those that were released are given to the next value of the
 * same size. A program has few sizes. */
#include "away.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/fault.h"

struct released {
  int64_t bytes;
  int64_t *place;
  size_t n, room;
};

struct rt_away {
  int file;
  int64_t end;
  struct released *list; /* one per size */
  int sizes;
  char folder[512];
};

atoll_err rt_away_create(const char *folder, rt_away **out) {
  char name[600];
  rt_away *a = calloc(1, sizeof *a);
  if (!a)
    return atoll_fail(ATOLL_NOMEM, "offload: no memory");
  (void)snprintf(a->folder, sizeof a->folder, "%s", folder);
  (void)snprintf(name, sizeof name, "%s/atoll-values-XXXXXX", a->folder);
  a->file = mkstemp(name);
  if (a->file < 0) {
    free(a);
    return atoll_fail(ATOLL_IO, "offload: no file can be made in %s: %s", folder, strerror(errno));
  }
  (void)unlink(name);
  *out = a;
  return ATOLL_OK;
}

void rt_away_destroy(rt_away **address) {
  rt_away *a = *address;
  if (!a)
    return;
  for (int k = 0; k < a->sizes; k++)
    free(a->list[k].place);
  free(a->list);
  (void)close(a->file);
  free(a);
  *address = NULL;
}

static struct released *of_size(rt_away *a, int64_t bytes) {
  for (int k = 0; k < a->sizes; k++)
    if (a->list[k].bytes == bytes)
      return &a->list[k];
  struct released *more = realloc(a->list, (size_t)(a->sizes + 1) * sizeof *more);
  if (!more)
    return NULL;
  a->list = more;
  a->list[a->sizes] = (struct released){.bytes = bytes};
  return &a->list[a->sizes++];
}

static int64_t new_place(rt_away *a, int64_t bytes) {
  struct released *r = of_size(a, bytes);
  if (r && r->n)
    return r->place[--r->n];
  a->end += bytes;
  return a->end - bytes;
}

/* Without memory to note it down the place is not used again. */
void rt_away_release(rt_away *a, int64_t bytes, int64_t place) {
  struct released *r = of_size(a, bytes);
  if (r && r->n == r->room) {
    size_t room = r->room ? 2 * r->room : 64;
    int64_t *more = realloc(r->place, room * sizeof *more);
    if (!more)
      return;
    r->place = more;
    r->room = room;
  }
  if (r)
    r->place[r->n++] = place;
}

static atoll_err failed(const rt_away *a, const char *what, ssize_t n, int64_t bytes) {
  return atoll_fail(ATOLL_IO, "offload: %lld bytes cannot be %s a file in %s, which has %lld: %s", (long long)bytes,
                    what, a->folder, (long long)a->end, n < 0 ? strerror(errno) : "it ends");
}

atoll_err rt_away_write(rt_away *a, const void *data, int64_t bytes, int64_t *place) {
  if (*place < 0)
    *place = new_place(a, bytes);
  int half = 0, refused = atoll_fault_call("write", &half);
  for (int64_t at = 0; at < bytes;) {
    errno = refused;
    ssize_t n = refused ? -1 : pwrite(a->file, (const char *)data + at, (size_t)(bytes - at), (off_t)(*place + at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return failed(a, "written to", n, bytes);
    at += n;
  }
  return ATOLL_OK;
}

atoll_err rt_away_probe(const char *folder) {
  static const char page[4096];
  rt_away *a = NULL;
  int64_t place = -1;
  ATOLL_TRY(rt_away_create(folder, &a));
  atoll_err err = rt_away_write(a, page, sizeof page, &place);
  rt_away_destroy(&a);
  return err;
}

atoll_err rt_away_read(const rt_away *a, void *data, int64_t bytes, int64_t place) {
  for (int64_t at = 0; at < bytes;) {
    ssize_t n = pread(a->file, (char *)data + at, (size_t)(bytes - at), (off_t)(place + at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return failed(a, "read from", n, bytes);
    at += n;
  }
  return ATOLL_OK;
}

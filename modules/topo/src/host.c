#include "topo_impl.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void topo_text(char *to, size_t n, const char *from) {
  size_t len = from ? strlen(from) : 0;
  if (len >= n)
    len = n - 1;
  if (len)
    memcpy(to, from, len);
  to[len] = 0;
}

void topo_note(char *note, size_t n, const char *fmt, ...) {
  char line[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  if (strstr(note, line))
    return;
  size_t len = strlen(note), more = strlen(line);
  if (len + (len ? 2 : 0) + more + 1 > n) {
    /* A note cut in the middle misleads; say that there is more. */
    if (len + 7 <= n && (len < 5 || strcmp(note + len - 5, "; ...") != 0))
      memcpy(note + len, "; ...", 6);
    return;
  }
  if (len) {
    memcpy(note + len, "; ", 2);
    len += 2;
  }
  memcpy(note + len, line, more + 1);
}

int atoll_topo_compare_names(const char *a, const char *b) {
  while (*a && *b) {
    if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
      const char *p = a, *q = b;
      while (*p == '0')
        p++;
      while (*q == '0')
        q++;
      size_t m = strspn(p, "0123456789"), n = strspn(q, "0123456789");
      if (m != n)
        return m < n ? -1 : 1;
      int c = strncmp(p, q, m);
      if (c)
        return c;
      a = p + m;
      b = q + n;
    } else {
      if (*a != *b)
        return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
      a++;
      b++;
    }
  }
  return *a ? 1 : *b ? -1 : 0;
}

static void host_free(atoll_topo_host *h) {
  free(h->core);
  free(h->gpu);
  h->core = NULL;
  h->gpu = NULL;
}

void topo_hosts_free(atoll_topo_hosts *hosts) {
  for (int i = 0; i < hosts->count; i++)
    host_free(&hosts->host[i]);
  free(hosts->host);
  free(hosts->link);
  free(hosts->route);
  memset(hosts, 0, sizeof *hosts);
}

atoll_err topo_hosts_add(atoll_topo_hosts *hosts, atoll_topo_host **host) {
  atoll_topo_host *more = realloc(hosts->host, sizeof *more * (size_t)(hosts->count + 1));
  if (!more)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d topology hosts", hosts->count + 1);
  hosts->host = more;
  *host = &more[hosts->count++];
  memset(*host, 0, sizeof **host);
  return ATOLL_OK;
}

static void *copy_of(const void *p, size_t bytes) {
  void *q = malloc(bytes ? bytes : 1);
  if (q && bytes)
    memcpy(q, p, bytes);
  return q;
}

atoll_err topo_host_copy(const atoll_topo_host *from, atoll_topo_host *to) {
  atoll_topo_host h = *from;
  h.core = copy_of(from->core, sizeof *h.core * (size_t)h.ncores);
  h.gpu = copy_of(from->gpu, sizeof *h.gpu * (size_t)h.ngpus);
  if (!h.core || !h.gpu) {
    host_free(&h);
    return atoll_fail(ATOLL_NOMEM, "no memory for a topology host of %d cores", h.ncores);
  }
  *to = h;
  return ATOLL_OK;
}

/* The bytes travel between ranks of one job, which run one program; each host is its struct followed by its arrays. The
 * length words let unpack refuse bytes of another build. */
typedef struct packed_head {
  int64_t magic, host_bytes, link_bytes, count, links, routes;
  char note[256];
} packed_head;
#define PACKED_MAGIC 0x41544f4c4c544f50

atoll_err topo_hosts_pack(const atoll_topo_hosts *hosts, char **data, int64_t *bytes) {
  size_t n = sizeof(packed_head) + sizeof(atoll_topo_link) * (size_t)hosts->links +
             sizeof(atoll_topo_route) * (size_t)hosts->routes;
  for (int i = 0; i < hosts->count; i++)
    n += sizeof(atoll_topo_host) + sizeof(atoll_topo_core) * (size_t)hosts->host[i].ncores +
         sizeof(atoll_topo_gpu) * (size_t)hosts->host[i].ngpus;
  char *p = malloc(n);
  if (!p)
    return atoll_fail(ATOLL_NOMEM, "no memory for %zu bytes of topology", n);
  packed_head head = {
      PACKED_MAGIC, sizeof(atoll_topo_host), sizeof(atoll_topo_link), hosts->count, hosts->links, hosts->routes, ""};
  topo_text(head.note, sizeof head.note, hosts->note);
  size_t at = 0;
#define PUT(src, len)                                                                                                  \
  do {                                                                                                                 \
    size_t put_ = (len);                                                                                               \
    if (put_)                                                                                                          \
      memcpy(p + at, (src), put_);                                                                                     \
    at += put_;                                                                                                        \
  } while (0)
  PUT(&head, sizeof head);
  PUT(hosts->link, sizeof(atoll_topo_link) * (size_t)hosts->links);
  PUT(hosts->route, sizeof(atoll_topo_route) * (size_t)hosts->routes);
  for (int i = 0; i < hosts->count; i++) {
    const atoll_topo_host *h = &hosts->host[i];
    PUT(h, sizeof *h);
    PUT(h->core, sizeof *h->core * (size_t)h->ncores);
    PUT(h->gpu, sizeof *h->gpu * (size_t)h->ngpus);
  }
#undef PUT
  *data = p;
  *bytes = (int64_t)n;
  return ATOLL_OK;
}

atoll_err topo_hosts_unpack(const char *data, int64_t bytes, atoll_topo_hosts *hosts) {
  packed_head head;
  size_t left = (size_t)bytes;
  if (left < sizeof head)
    return atoll_fail(ATOLL_INTERNAL, "topology record of %zu bytes, needs %zu", left, sizeof head);
  memcpy(&head, data, sizeof head);
  data += sizeof head;
  left -= sizeof head;
  if (head.magic != PACKED_MAGIC || head.host_bytes != sizeof(atoll_topo_host) ||
      head.link_bytes != sizeof(atoll_topo_link))
    return atoll_fail(ATOLL_MISMATCH, "ranks run different builds: topology records of %lld and %zu bytes a host",
                      (long long)head.host_bytes, sizeof(atoll_topo_host));
  size_t want = sizeof(atoll_topo_link) * (size_t)head.links;
  if (left < want)
    return atoll_fail(ATOLL_INTERNAL, "topology record ends inside its links");
  if (head.links) {
    atoll_topo_link *more = realloc(hosts->link, sizeof *more * (size_t)(hosts->links + head.links));
    if (!more)
      return atoll_fail(ATOLL_NOMEM, "no memory for %lld links", (long long)head.links);
    memcpy(more + hosts->links, data, want);
    for (int64_t i = 0; i < head.links; i++) {
      more[hosts->links + i].a += hosts->count;
      more[hosts->links + i].b += hosts->count;
    }
    hosts->link = more;
    hosts->links += (int)head.links;
  }
  data += want;
  left -= want;
  want = sizeof(atoll_topo_route) * (size_t)head.routes;
  if (left < want)
    return atoll_fail(ATOLL_INTERNAL, "topology record ends inside its routes");
  if (head.routes) {
    atoll_topo_route *more = realloc(hosts->route, sizeof *more * (size_t)(hosts->routes + head.routes));
    if (!more)
      return atoll_fail(ATOLL_NOMEM, "no memory for %lld routes", (long long)head.routes);
    memcpy(more + hosts->routes, data, want);
    hosts->route = more;
    hosts->routes += (int)head.routes;
  }
  data += want;
  left -= want;
  if (head.note[0])
    topo_note(hosts->note, sizeof hosts->note, "%s", head.note);
  for (int64_t i = 0; i < head.count; i++) {
    atoll_topo_host h;
    if (left < sizeof h)
      return atoll_fail(ATOLL_INTERNAL, "topology record ends inside a host");
    memcpy(&h, data, sizeof h);
    size_t cores = sizeof *h.core * (size_t)h.ncores, gpus = sizeof *h.gpu * (size_t)h.ngpus;
    if (left < sizeof h + cores + gpus)
      return atoll_fail(ATOLL_INTERNAL, "topology record ends inside the cores of %s", h.name);
    h.core = copy_of(data + sizeof h, cores);
    h.gpu = copy_of(data + sizeof h + cores, gpus);
    data += sizeof h + cores + gpus;
    left -= sizeof h + cores + gpus;
    atoll_topo_host *slot = NULL;
    atoll_err err =
        h.core && h.gpu ? topo_hosts_add(hosts, &slot) : atoll_fail(ATOLL_NOMEM, "no memory for %d cores", h.ncores);
    if (err != ATOLL_OK) {
      host_free(&h);
      return err;
    }
    *slot = h;
  }
  return ATOLL_OK;
}

/* The topology as YAML, whole: what is written reads back to the same digest. Samples are one text of numbers, sorted.
 */
#include "topo_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1

static void put_samples(atoll_yaml_out *o, const char *key, const atoll_samples *s) {
  char text[ATOLL_TOPO_SAMPLES * 26 + 1] = "";
  if (!s->n)
    return;
  for (int i = 0; i < s->n; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.17g", i ? " " : "", s->v[i]);
  atoll_yaml_put_text(o, key, text);
}

static void put_device(atoll_yaml_out *o, const atoll_topo_device *d) {
  atoll_yaml_open_map(o, NULL);
  atoll_yaml_put_text(o, "kind", topo_kind_name(d->kind));
  atoll_yaml_put_text(o, "model", d->model);
  if (d->pci[0])
    atoll_yaml_put_text(o, "pci", d->pci);
  atoll_yaml_put_text(o, "cores", d->cores);
  atoll_yaml_put_int(o, "ncores", d->ncores);
  atoll_yaml_put_int(o, "nthreads", d->nthreads);
  atoll_yaml_put_int(o, "numa", d->numa);
  atoll_yaml_put_text(o, "isa", d->isa);
  atoll_yaml_put_int(o, "memory", d->memory);
  atoll_yaml_put_text(o, "memory_limit", d->memory_limit);
  atoll_yaml_put_int(o, "rank", d->rank);
  atoll_yaml_put_bool(o, "declared", d->declared);
  put_samples(o, "gemm_f32", &d->gemm_f32);
  put_samples(o, "gemm_bf16", &d->gemm_bf16);
  put_samples(o, "bandwidth", &d->bandwidth);
  atoll_yaml_close(o);
}

atoll_err atoll_topo_to_yaml(const atoll_topo *t, atoll_yaml_out *o) {
  char hex[33];
  atoll_yaml_put_int(o, "version", VERSION);
  atoll_yaml_put_text(o, "backend", t->backend);
  atoll_yaml_put_text(o, "source", t->source);
  atoll_yaml_put_text(o, "identity", atoll_digest_text(atoll_topo_identity(t), hex));
  if (t->note[0])
    atoll_yaml_put_text(o, "note", t->note);
  atoll_yaml_comment(
      o, "memory in bytes, gemm_* in GFLOP/s, bandwidth in GB/s, latency in s; repeated measurements ascending");
  atoll_yaml_open_list(o, "nodes");
  for (int i = 0; i < t->nodes; i++) {
    const atoll_topo_node *n = &t->node[i];
    atoll_yaml_open_map(o, NULL);
    atoll_yaml_put_text(o, "name", n->name);
    if (n->kind[0])
      atoll_yaml_put_text(o, "kind", n->kind);
    if (n->zone[0])
      atoll_yaml_put_text(o, "zone", n->zone);
    if (n->price > 0)
      atoll_yaml_put_real(o, "price", n->price);
    atoll_yaml_put_int(o, "sockets", n->sockets);
    atoll_yaml_put_int(o, "numa_nodes", n->numa_nodes);
    atoll_yaml_put_int(o, "cores", n->cores);
    atoll_yaml_put_int(o, "threads", n->threads);
    atoll_yaml_put_int(o, "allowed_threads", n->allowed_threads);
    atoll_yaml_put_int(o, "memory", n->memory);
    atoll_yaml_put_text(o, "identity", atoll_digest_text(n->identity, hex));
    atoll_yaml_put_bool(o, "bindable", n->bindable);
    if (n->nics) {
      atoll_yaml_open_list(o, "nics");
      for (int k = 0; k < n->nics; k++) {
        atoll_yaml_open_map(o, NULL);
        atoll_yaml_put_text(o, "name", n->nic[k].name);
        atoll_yaml_put_text(o, "pci", n->nic[k].pci);
        atoll_yaml_put_int(o, "numa", n->nic[k].numa);
        atoll_yaml_put_real(o, "speed", n->nic[k].speed);
        atoll_yaml_close(o);
      }
      atoll_yaml_close(o);
    }
    atoll_yaml_open_list(o, "devices");
    for (int k = 0; k < n->devices; k++)
      put_device(o, &t->device[n->first_device + k]);
    atoll_yaml_close(o);
    atoll_yaml_close(o);
  }
  atoll_yaml_close(o);
  if (t->links) {
    atoll_yaml_open_list(o, "links");
    for (int i = 0; i < t->links; i++) {
      const atoll_topo_link *l = &t->link[i];
      atoll_yaml_open_map(o, NULL);
      atoll_yaml_put_int(o, "a", l->a);
      atoll_yaml_put_int(o, "b", l->b);
      atoll_yaml_put_bool(o, "declared", l->declared);
      put_samples(o, "latency", &l->latency);
      put_samples(o, "bandwidth", &l->bandwidth);
      atoll_yaml_close(o);
    }
    atoll_yaml_close(o);
  }
  if (t->routes) {
    atoll_yaml_open_list(o, "routes");
    for (int i = 0; i < t->routes; i++) {
      const atoll_topo_route *r = &t->route[i];
      atoll_yaml_open_map(o, NULL);
      atoll_yaml_put_text(o, "a", r->a);
      atoll_yaml_put_text(o, "b", r->b);
      atoll_yaml_put_real(o, "latency", r->latency);
      atoll_yaml_put_real(o, "bandwidth", r->bandwidth);
      atoll_yaml_put_real(o, "price", r->price);
      atoll_yaml_close(o);
    }
    atoll_yaml_close(o);
  }
  return ATOLL_OK;
}

static atoll_err get_samples(atoll_yaml *map, const char *key, atoll_samples *s) {
  char text[ATOLL_TOPO_SAMPLES * 26 + 1] = "";
  ATOLL_TRY(atoll_yaml_string(map, key, 0, text, sizeof text));
  s->n = 0;
  for (char *p = text, *end; *p; p = end) {
    errno = 0;
    double v = strtod(p, &end);
    if (end == p || errno || !(v > 0) || s->n == ATOLL_TOPO_SAMPLES)
      return atoll_fail(ATOLL_USAGE, "%s:%d: %s: found '%s', expected at most %d numbers above 0", atoll_yaml_file(map),
                        atoll_yaml_line(map), key, text, ATOLL_TOPO_SAMPLES);
    s->v[s->n++] = v;
    end += strspn(end, " ");
  }
  topo_samples_sort(s);
  return ATOLL_OK;
}

static atoll_err get_int(atoll_yaml *map, const char *key, int lo, int64_t hi, int *out) {
  int64_t v = *out;
  ATOLL_TRY(atoll_yaml_int(map, key, 1, lo, hi, &v));
  *out = (int)v;
  return ATOLL_OK;
}

static atoll_err get_device(atoll_yaml *map, int node, atoll_topo_device *d) {
  static const char *const kinds[] = {"cpu", "gpu", NULL};
  int kind = 0;
  memset(d, 0, sizeof *d);
  d->node = node;
  ATOLL_TRY(atoll_yaml_enum(map, "kind", 1, kinds, &kind));
  d->kind = kind ? ATOLL_TOPO_GPU : ATOLL_TOPO_CPU;
  ATOLL_TRY(atoll_yaml_string(map, "model", 1, d->model, sizeof d->model));
  ATOLL_TRY(atoll_yaml_string(map, "pci", 0, d->pci, sizeof d->pci));
  ATOLL_TRY(atoll_yaml_string(map, "cores", 1, d->cores, sizeof d->cores));
  ATOLL_TRY(get_int(map, "ncores", 0, 1 << 20, &d->ncores));
  ATOLL_TRY(get_int(map, "nthreads", 0, 1 << 20, &d->nthreads));
  ATOLL_TRY(get_int(map, "numa", -1, 1 << 20, &d->numa));
  ATOLL_TRY(atoll_yaml_string(map, "isa", 1, d->isa, sizeof d->isa));
  ATOLL_TRY(atoll_yaml_int(map, "memory", 1, 0, INT64_MAX, &d->memory));
  ATOLL_TRY(atoll_yaml_string(map, "memory_limit", 1, d->memory_limit, sizeof d->memory_limit));
  ATOLL_TRY(get_int(map, "rank", -1, INT32_MAX, &d->rank));
  ATOLL_TRY(atoll_yaml_bool(map, "declared", 1, &d->declared));
  ATOLL_TRY(get_samples(map, "gemm_f32", &d->gemm_f32));
  ATOLL_TRY(get_samples(map, "gemm_bf16", &d->gemm_bf16));
  return get_samples(map, "bandwidth", &d->bandwidth);
}

static atoll_err get_node(atoll_yaml *map, int i, atoll_topo *t) {
  atoll_topo_node *n = &t->node[i];
  char hex[40];
  ATOLL_TRY(atoll_yaml_string(map, "name", 1, n->name, sizeof n->name));
  ATOLL_TRY(atoll_yaml_string(map, "kind", 0, n->kind, sizeof n->kind));
  ATOLL_TRY(atoll_yaml_string(map, "zone", 0, n->zone, sizeof n->zone));
  ATOLL_TRY(atoll_yaml_real(map, "price", 0, 0, 1e9, &n->price));
  ATOLL_TRY(get_int(map, "sockets", 1, 1 << 20, &n->sockets));
  ATOLL_TRY(get_int(map, "numa_nodes", 0, 1 << 20, &n->numa_nodes));
  ATOLL_TRY(get_int(map, "cores", 1, 1 << 20, &n->cores));
  ATOLL_TRY(get_int(map, "threads", 1, 1 << 20, &n->threads));
  ATOLL_TRY(get_int(map, "allowed_threads", 0, 1 << 20, &n->allowed_threads));
  ATOLL_TRY(atoll_yaml_int(map, "memory", 1, 0, INT64_MAX, &n->memory));
  ATOLL_TRY(atoll_yaml_string(map, "identity", 1, hex, sizeof hex));
  if (atoll_digest_parse(hex, &n->identity) != 0)
    return atoll_fail(ATOLL_USAGE, "%s:%d: identity: found '%s', expected 32 hexadecimal digits", atoll_yaml_file(map),
                      atoll_yaml_line(map), hex);
  ATOLL_TRY(atoll_yaml_bool(map, "bindable", 1, &n->bindable));
  atoll_yaml *nics = NULL, *devices = NULL;
  ATOLL_TRY(atoll_yaml_list(map, "nics", 0, &nics));
  for (size_t k = 0; nics && k < atoll_yaml_count(nics); k++) {
    atoll_yaml *m = atoll_yaml_at(nics, k);
    if (k == sizeof n->nic / sizeof n->nic[0])
      return atoll_fail(ATOLL_USAGE, "%s:%d: more than %zu network interfaces", atoll_yaml_file(m), atoll_yaml_line(m),
                        k);
    ATOLL_TRY(atoll_yaml_string(m, "name", 1, n->nic[k].name, sizeof n->nic[k].name));
    ATOLL_TRY(atoll_yaml_string(m, "pci", 1, n->nic[k].pci, sizeof n->nic[k].pci));
    ATOLL_TRY(get_int(m, "numa", -1, 1 << 20, &n->nic[k].numa));
    ATOLL_TRY(atoll_yaml_real(m, "speed", 1, 0, 1e9, &n->nic[k].speed));
    n->nics++;
  }
  ATOLL_TRY(atoll_yaml_list(map, "devices", 1, &devices));
  n->first_device = t->devices;
  n->devices = (int)atoll_yaml_count(devices);
  atoll_topo_device *more = realloc(t->device, sizeof *more * (size_t)(t->devices + n->devices + 1));
  if (!more)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d devices", t->devices + n->devices);
  t->device = more;
  for (int k = 0; k < n->devices; k++) {
    ATOLL_TRY(get_device(atoll_yaml_at(devices, (size_t)k), i, &t->device[t->devices]));
    t->devices++;
  }
  return ATOLL_OK;
}

atoll_err atoll_topo_from_yaml(atoll_yaml *root, atoll_topo **out) {
  atoll_topo *t = calloc(1, sizeof *t);
  if (!t)
    return atoll_fail(ATOLL_NOMEM, "no memory for a topology");
  int64_t version = 0;
  char hex[40];
  atoll_digest identity;
  atoll_yaml *nodes = NULL, *links = NULL, *routes = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, fail, atoll_yaml_int(root, "version", 1, 1, INT32_MAX, &version));
  if (version != VERSION) {
    err = atoll_fail(ATOLL_UNSUPPORTED, "%s: topology version %lld; this program reads %d", atoll_yaml_file(root),
                     (long long)version, VERSION);
    goto fail;
  }
  ATOLL_TRY_GOTO(err, fail, atoll_yaml_string(root, "backend", 1, t->backend, sizeof t->backend));
  ATOLL_TRY_GOTO(err, fail, atoll_yaml_string(root, "source", 1, t->source, sizeof t->source));
  ATOLL_TRY_GOTO(err, fail, atoll_yaml_string(root, "note", 0, t->note, sizeof t->note));
  ATOLL_TRY_GOTO(err, fail, atoll_yaml_string(root, "identity", 1, hex, sizeof hex));
  ATOLL_TRY_GOTO(err, fail, atoll_yaml_list(root, "nodes", 1, &nodes));
  t->nodes = (int)atoll_yaml_count(nodes);
  t->node = calloc((size_t)t->nodes + 1, sizeof *t->node);
  if (!t->node) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %d nodes", t->nodes);
    goto fail;
  }
  for (int i = 0; i < t->nodes; i++)
    ATOLL_TRY_GOTO(err, fail, get_node(atoll_yaml_at(nodes, (size_t)i), i, t));
  ATOLL_TRY_GOTO(err, fail, atoll_yaml_list(root, "links", 0, &links));
  int n = links ? (int)atoll_yaml_count(links) : 0;
  t->link = calloc((size_t)n + 1, sizeof *t->link);
  if (!t->link) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %d links", n);
    goto fail;
  }
  for (; t->links < n; t->links++) {
    atoll_topo_link *l = &t->link[t->links];
    atoll_yaml *m = atoll_yaml_at(links, (size_t)t->links);
    ATOLL_TRY_GOTO(err, fail, get_int(m, "a", 0, t->nodes - 1, &l->a));
    ATOLL_TRY_GOTO(err, fail, get_int(m, "b", l->a, t->nodes - 1, &l->b));
    ATOLL_TRY_GOTO(err, fail, atoll_yaml_bool(m, "declared", 1, &l->declared));
    ATOLL_TRY_GOTO(err, fail, get_samples(m, "latency", &l->latency));
    ATOLL_TRY_GOTO(err, fail, get_samples(m, "bandwidth", &l->bandwidth));
  }
  ATOLL_TRY_GOTO(err, fail, atoll_yaml_list(root, "routes", 0, &routes));
  n = routes ? (int)atoll_yaml_count(routes) : 0;
  t->route = calloc((size_t)n + 1, sizeof *t->route);
  if (!t->route) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %d routes", n);
    goto fail;
  }
  for (; t->routes < n; t->routes++) {
    atoll_topo_route *r = &t->route[t->routes];
    atoll_yaml *m = atoll_yaml_at(routes, (size_t)t->routes);
    ATOLL_TRY_GOTO(err, fail, atoll_yaml_string(m, "a", 1, r->a, sizeof r->a));
    ATOLL_TRY_GOTO(err, fail, atoll_yaml_string(m, "b", 1, r->b, sizeof r->b));
    ATOLL_TRY_GOTO(err, fail, atoll_yaml_real(m, "latency", 1, 0, 3600, &r->latency));
    ATOLL_TRY_GOTO(err, fail, atoll_yaml_real(m, "bandwidth", 1, 0, 1e12, &r->bandwidth));
    ATOLL_TRY_GOTO(err, fail, atoll_yaml_real(m, "price", 1, 0, 1e9, &r->price));
  }
  /* The identity is derived; a file whose words and identity disagree was edited by hand or damaged. */
  if (atoll_digest_parse(hex, &identity) != 0 || !atoll_digest_equal(identity, atoll_topo_identity(t))) {
    char own[33];
    err = atoll_fail(ATOLL_CORRUPT, "%s: the identity says %s, the devices in it %s", atoll_yaml_file(root), hex,
                     atoll_digest_text(atoll_topo_identity(t), own));
    goto fail;
  }
  *out = t;
  return ATOLL_OK;
fail:
  atoll_topo_destroy(&t);
  return err;
}

/* Made-up machines from one line of text:
 *
 *    text  := group { "," group }
 *    group := [ COUNT "x" ] ( "(" node ")" | node )
 *    node  := words of hwloc's synthetic form ("pack:2 numa:2 core:8 pu:2") and of ours, which hold '=':
 *             memory=64GiB kind=fast zone=east price=3.5 model=Epyc isa=... devices=2
 *             f32=500 bf16=1000 bandwidth=100              GFLOP/s and GB/s per CPU device
 *             gpus=4 gpu_model=A100 gpu_memory=40GiB gpu_f32=15000 gpu_bf16=200000 gpu_bandwidth=1400
 *
 * Nodes are named n0, n1, ... Without memory= hwloc's own default (1 GiB per NUMA node) holds. */
#include "topo_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atoll_err rate(const char *where, const char *word, const char *value, double *out) {
  if (atoll_parse_real(value, out) != 0 || !(*out > 0))
    return atoll_fail(ATOLL_USAGE, "%s: '%s': found '%s', expected a rate above 0", where, word, value);
  return ATOLL_OK;
}

static atoll_err add_gpus(atoll_topo_host *host, const atoll_topo_gpu *like, int64_t n) {
  host->gpu = calloc((size_t)n, sizeof *host->gpu);
  if (!host->gpu)
    return atoll_fail(ATOLL_NOMEM, "no memory for %lld GPUs", (long long)n);
  host->ngpus = (int)n;
  for (int i = 0; i < host->ngpus; i++) {
    atoll_topo_gpu *g = &host->gpu[i];
    *g = *like;
    snprintf(g->pci, sizeof g->pci, "0000:%02x:00.0", (16 + i) & 0xff);
    /* Spread over the packages in order, as real machines do. */
    int core = (int)((int64_t)i * host->ncores / n);
    g->numa = host->ncores ? host->core[core].numa : -1;
  }
  return ATOLL_OK;
}

#define NODE_THREADS 65536 /* hwloc would build as many objects as it is told, memory permitting */

/* Product of the counts of hwloc's words "type:count" or "count", read as hwloc reads them: -1 is a large number. */
static double threads_of(const char *hw) {
  double n = 1;
  for (const char *c = hw; *c; c++) {
    const char *count = *c == ':' ? c + 1 : c;
    char *end = NULL;
    if (*c != ':' && c > hw && c[-1] != ' ')
      continue;
    unsigned long k = strtoul(count, &end, 0);
    if (end > count)
      n *= (double)k;
  }
  return n;
}

atoll_err topo_synthetic_node(const char *text, const char *where, const char *name, atoll_topo_host *host) {
  char words[1024], hw[1024] = "";
  if (strlen(text) >= sizeof words - 16)
    return atoll_fail(ATOLL_USAGE, "%s: the text of one node is %zu characters long, at most %zu are read", where,
                      strlen(text), sizeof words - 16);
  topo_text(words, sizeof words, text);
  int64_t gpus = 0, memory = 0, devices = 0;
  atoll_topo_gpu gpu = {.model = "synthetic GPU", .numa = -1};
  atoll_topo_host h = {.model = "synthetic CPU"};
  for (char *save = NULL, *word = strtok_r(words, " \t\n", &save); word; word = strtok_r(NULL, " \t\n", &save)) {
    char *value = strchr(word, '=');
    if (!value) {
      snprintf(hw + strlen(hw), sizeof hw - strlen(hw), "%s%s", hw[0] ? " " : "", word);
      continue;
    }
    *value++ = 0;
    static const char *const keys[] = {"memory",    "kind",          "model", "isa",       "f32",        "bf16",
                                       "bandwidth", "devices",       "gpus",  "gpu_model", "gpu_memory", "gpu_f32",
                                       "gpu_bf16",  "gpu_bandwidth", "zone",  "price"};
    int k = 0;
    while (k < 16 && strcmp(word, keys[k]) != 0)
      k++;
    switch (k) {
    case 0:
    case 10:
      if (atoll_parse_bytes(value, k ? &gpu.memory : &memory) != 0 || (k ? gpu.memory : memory) <= 0)
        return atoll_fail(ATOLL_USAGE, "%s: %s: found '%s', expected a size such as 64GiB", where, word, value);
      break;
    case 1:
      topo_text(h.kind, sizeof h.kind, value);
      break;
    case 2:
      topo_text(h.model, sizeof h.model, value);
      break;
    case 3:
      topo_text(h.isa, sizeof h.isa, value);
      break;
    case 4:
      ATOLL_TRY(rate(where, word, value, &h.gemm_f32));
      break;
    case 5:
      ATOLL_TRY(rate(where, word, value, &h.gemm_bf16));
      break;
    case 6:
      ATOLL_TRY(rate(where, word, value, &h.bandwidth));
      break;
    case 7:
    case 8:
      if (atoll_parse_int(value, k == 7 ? &devices : &gpus) != 0 || (k == 7 ? devices : gpus) < 1 ||
          (k == 7 ? devices : gpus) > 64)
        return atoll_fail(ATOLL_USAGE, "%s: %s: found '%s', expected 1..64", where, word, value);
      break;
    case 9:
      topo_text(gpu.model, sizeof gpu.model, value);
      break;
    case 11:
      ATOLL_TRY(rate(where, word, value, &gpu.gemm_f32));
      break;
    case 12:
      ATOLL_TRY(rate(where, word, value, &gpu.gemm_bf16));
      break;
    case 13:
      ATOLL_TRY(rate(where, word, value, &gpu.bandwidth));
      break;
    case 14:
      topo_text(h.zone, sizeof h.zone, value);
      break;
    case 15:
      ATOLL_TRY(rate(where, word, value, &h.price));
      break;
    default: {
      const char *near = atoll_nearest(word, keys, 16);
      return atoll_fail(ATOLL_USAGE, "%s: unknown word '%s='%s%s%s", where, word, near ? "; did you mean '" : "",
                        near ? near : "", near ? "='?" : "");
    }
    }
  }
  if (!hw[0])
    return atoll_fail(ATOLL_USAGE, "%s: '%s' says no cores, expected hwloc's synthetic form such as 'pack:2 core:8'",
                      where, text);
  if (!strstr(hw, "pu:") && !strstr(hw, "PU:"))
    snprintf(hw + strlen(hw), sizeof hw - strlen(hw), " pu:1");
  if (!(threads_of(hw) <= NODE_THREADS))
    return atoll_fail(ATOLL_USAGE, "%s: '%s' has %.0f hardware threads a node, expected at most %d", where, hw,
                      threads_of(hw), NODE_THREADS);
  hwloc_topology_t t;
  if (hwloc_topology_init(&t) != 0)
    return atoll_fail(ATOLL_NOMEM, "hwloc_topology_init: %s", strerror(errno));
  atoll_err err = ATOLL_OK;
  if (hwloc_topology_set_synthetic(t, hw) != 0 || hwloc_topology_load(t) != 0)
    err = atoll_fail(ATOLL_USAGE, "%s: hwloc does not understand '%s', expected e.g. 'pack:2 core:8'", where, hw);
  else
    err = topo_read_hwloc(t, name, host);
  hwloc_topology_destroy(t);
  ATOLL_TRY(err);
  topo_text(host->model, sizeof host->model, h.model);
  topo_text(host->kind, sizeof host->kind, h.kind);
  topo_text(host->zone, sizeof host->zone, h.zone);
  host->price = h.price;
  topo_text(host->isa, sizeof host->isa, h.isa);
  host->gemm_f32 = h.gemm_f32;
  host->gemm_bf16 = h.gemm_bf16;
  host->bandwidth = h.bandwidth;
  host->declared_devices = (int)devices;
  if (memory)
    host->memory = memory;
  return gpus ? add_gpus(host, &gpu, gpus) : ATOLL_OK;
}

static atoll_err synthetic_probe(const atoll_topo_params *params, const char **why_not) {
  *why_not = params->synthetic[0] ? NULL : "topo.synthetic is not set";
  return params->synthetic[0] ? ATOLL_OK : ATOLL_UNAVAILABLE;
}

static atoll_err synthetic_load(const atoll_topo_params *params, const atoll_topo_place *place, atoll_topo_hosts *out) {
  (void)place;
  const char *s = params->synthetic;
  if (!*s)
    return atoll_fail(ATOLL_USAGE, "topo.backend=synthetic needs topo.synthetic, e.g. \"4x(pack:2 core:8)\"");
  int item = 0;
  while (*s) {
    char where[64], body[1024], name[64];
    snprintf(where, sizeof where, "topo.synthetic, group %d", ++item);
    s += strspn(s, " \t\n");
    int64_t times = 1;
    size_t digits = strspn(s, "0123456789");
    if (digits && s[digits] == 'x') {
      times = strtoll(s, NULL, 10);
      if (times < 1 || times > 65536)
        return atoll_fail(ATOLL_USAGE, "%s: %lld nodes, expected 1..65536", where, (long long)times);
      s += digits + 1;
      s += strspn(s, " ");
    }
    const char *end;
    if (*s == '(') {
      end = strchr(++s, ')');
      if (!end)
        return atoll_fail(ATOLL_USAGE, "%s: '(' is not closed: '%s'", where, s - 1);
    } else {
      end = s + strcspn(s, ",");
    }
    if ((size_t)(end - s) >= sizeof body)
      return atoll_fail(ATOLL_USAGE, "%s: more than %zu characters", where, sizeof body - 1);
    topo_text(body, (size_t)(end - s) + 1, s);
    s = *end == ')' ? end + 1 : end;
    s += strspn(s, " \t\n");
    if (*s && *s != ',')
      return atoll_fail(ATOLL_USAGE, "%s: found '%s', expected ',' or the end", where, s);
    int more = *s == ',';
    s += more;
    if (more && !*(s + strspn(s, " \t\n")))
      return atoll_fail(ATOLL_USAGE, "%s: nothing follows the last ','", where);
    int first = out->count;
    for (int64_t k = 0; k < times; k++) {
      atoll_topo_host *host;
      ATOLL_TRY(topo_hosts_add(out, &host));
      snprintf(name, sizeof name, "n%d", out->count - 1);
      if (k == 0) {
        ATOLL_TRY(topo_synthetic_node(body, where, name, host));
      } else {
        ATOLL_TRY(topo_host_copy(&out->host[first], host));
        topo_text(host->name, sizeof host->name, name);
      }
    }
  }
  return ATOLL_OK;
}

const atoll_topo_backend topo_backend_synthetic = {.name = "synthetic",
                                                   .priority = 20,
                                                   .per_node = 0,
                                                   .probe = synthetic_probe,
                                                   .load = synthetic_load,
                                                   .devices = NULL};

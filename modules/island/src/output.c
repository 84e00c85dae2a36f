/* Islands for people and for files. */
#include "island_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void atoll_islands_print(const atoll_islands *is, const atoll_topo *t, FILE *f) {
  char hex[33];
  fprintf(f, "%d island%s, digest %.12s\n", is->count, is->count == 1 ? "" : "s",
          atoll_digest_text(atoll_islands_digest(is), hex));
  for (int k = 0; k < is->count; k++) {
    const atoll_island *i = &is->island[k];
    fprintf(f, "  %s  %d x %s", i->name, i->devices, i->model);
    if (i->memory > 0)
      fprintf(f, "  %.4g GiB", (double)i->memory / 0x1p30);
    if (i->gemm_f32 > 0)
      fprintf(f, i->gemm_f32 >= 1000 ? "  %.0f GFLOP/s" : "  %.4g GFLOP/s", i->gemm_f32);
    fprintf(f, "  %d node%s", i->nodes, i->nodes == 1 ? "" : "s");
    if (i->bandwidth_out > 0)
      fprintf(f, "  %.3g GB/s between", i->bandwidth_out);
    int shown = 0;
    for (int m = 0; m < i->devices; m++)
      if (t->device[i->device[m]].rank >= 0 && shown++ < 16)
        fprintf(f, "%s%d", shown == 1 ? "  ranks " : " ", t->device[i->device[m]].rank);
    fprintf(f, "%s\n", shown > 16 ? " ..." : "");
  }
}

atoll_err atoll_islands_to_yaml(const atoll_islands *is, atoll_yaml_out *o) {
  char hex[33];
  atoll_yaml_put_text(o, "digest", atoll_digest_text(atoll_islands_digest(is), hex));
  atoll_yaml_put_text(o, "identity", atoll_digest_text(atoll_islands_identity(is), hex));
  atoll_yaml_open_list(o, "islands");
  for (int k = 0; k < is->count; k++) {
    const atoll_island *i = &is->island[k];
    int64_t *v = malloc(sizeof *v * (size_t)(i->devices + 1));
    if (!v)
      return atoll_fail(ATOLL_NOMEM, "no memory for %d devices", i->devices);
    for (int m = 0; m < i->devices; m++)
      v[m] = i->device[m];
    atoll_yaml_open_map(o, NULL);
    atoll_yaml_put_text(o, "name", i->name);
    atoll_yaml_put_text(o, "model", i->model);
    atoll_yaml_put_text(o, "class", i->class_key);
    atoll_yaml_put_ints(o, "devices", v, (size_t)i->devices);
    atoll_yaml_put_int(o, "nodes", i->nodes);
    atoll_yaml_put_int(o, "memory", i->memory);
    atoll_yaml_put_real(o, "gemm_f32", i->gemm_f32);
    atoll_yaml_put_real(o, "gemm_bf16", i->gemm_bf16);
    atoll_yaml_put_real(o, "bandwidth", i->bandwidth);
    atoll_yaml_put_real(o, "latency_in", i->latency_in);
    atoll_yaml_put_real(o, "bandwidth_in", i->bandwidth_in);
    atoll_yaml_put_real(o, "latency_out", i->latency_out);
    atoll_yaml_put_real(o, "bandwidth_out", i->bandwidth_out);
    atoll_yaml_put_text(o, "key", atoll_digest_text(i->key, hex));
    atoll_yaml_close(o);
    free(v);
  }
  atoll_yaml_close(o);
  atoll_yaml_open_list(o, "why");
  for (int i = 0; i < is->why_count; i++)
    atoll_yaml_put_text(o, NULL, is->why[i]);
  atoll_yaml_close(o);
  return ATOLL_OK;
}

typedef struct column {
  const char *name, *units, *long_name;
  size_t at;
} column;

atoll_err atoll_islands_to_store(const atoll_islands *is, atoll_store *s, const char *group) {
  static const column columns[] = {
      {"gemm_f32", "GFLOP s-1", "f32 matrix multiply rate per device", offsetof(atoll_island, gemm_f32)},
      {"gemm_bf16", "GFLOP s-1", "bf16 matrix multiply rate per device", offsetof(atoll_island, gemm_bf16)},
      {"bandwidth", "GB s-1", "memory bandwidth per device", offsetof(atoll_island, bandwidth)},
      {"latency_in", "s", "worst latency between members of one node", offsetof(atoll_island, latency_in)},
      {"bandwidth_in", "GB s-1", "worst bandwidth between members of one node", offsetof(atoll_island, bandwidth_in)},
      {"latency_out", "s", "worst latency between nodes of the island", offsetof(atoll_island, latency_out)},
      {"bandwidth_out", "GB s-1", "worst bandwidth between nodes of the island",
       offsetof(atoll_island, bandwidth_out)}};
  char path[512], hex[33];
  size_t n = (size_t)is->count;
  int64_t shape[1] = {is->count};
  const char **text = malloc(sizeof *text * (n + (size_t)is->devices + 1));
  double *real = malloc(sizeof *real * (n + 1));
  int64_t *whole = malloc(sizeof *whole * (n + (size_t)is->devices + 1));
  atoll_err err = text && real && whole ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "no memory for %zu islands", n);
#define WRITE(suffix, call)                                                                                            \
  do {                                                                                                                 \
    snprintf(path, sizeof path, "%.480s/" suffix, group);                                                              \
    ATOLL_TRY_GOTO(err, done, call);                                                                                   \
  } while (0)
  if (err != ATOLL_OK)
    goto done;
  for (size_t k = 0; k < n; k++)
    text[k] = is->island[k].name;
  WRITE("name", atoll_store_write_texts(s, path, text, n, "island name, by falling total rate"));
  for (size_t k = 0; k < n; k++)
    text[k] = is->island[k].model;
  WRITE("model", atoll_store_write_texts(s, path, text, n, "hardware model"));
  for (size_t k = 0; k < n; k++)
    text[k] = is->island[k].class_key;
  WRITE("class", atoll_store_write_texts(s, path, text, n, "device class, the key of profiles"));
  for (size_t k = 0; k < n; k++)
    whole[k] = is->island[k].devices;
  WRITE("devices", atoll_store_write(s, path, ATOLL_I64, 1, shape, whole, "1", "number of devices"));
  for (size_t k = 0; k < n; k++)
    whole[k] = is->island[k].memory;
  WRITE("memory",
        atoll_store_write(s, path, ATOLL_I64, 1, shape, whole, "byte", "memory per device, the smallest member's"));
  for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
    for (size_t k = 0; k < n; k++) {
      double v;
      memcpy(&v, (const char *)&is->island[k] + columns[c].at, sizeof v);
      real[k] = v > 0 ? v : NAN; /* unknown is not zero */
    }
    snprintf(path, sizeof path, "%.480s/%s", group, columns[c].name);
    ATOLL_TRY_GOTO(err, done,
                   atoll_store_write(s, path, ATOLL_F64, 1, shape, real, columns[c].units, columns[c].long_name));
  }
  for (int i = 0; i < is->devices; i++)
    whole[i] = is->island_of[i];
  shape[0] = is->devices;
  WRITE("island_of", atoll_store_write(s, path, ATOLL_I64, 1, shape, whole, "1",
                                       "island of each device of the topology, -1 for none"));
  WRITE("why", atoll_store_write_texts(s, path, (const char *const *)is->why, (size_t)is->why_count,
                                       "why devices are together or apart"));
#undef WRITE
  ATOLL_TRY_GOTO(err, done,
                 atoll_store_attr_text(s, group, "digest", atoll_digest_text(atoll_islands_digest(is), hex)));
  ATOLL_TRY_GOTO(err, done,
                 atoll_store_attr_text(s, group, "identity", atoll_digest_text(atoll_islands_identity(is), hex)));
done:
  free(text);
  free(real);
  free(whole);
  return err;
}

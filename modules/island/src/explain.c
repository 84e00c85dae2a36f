/* Why devices are together or apart, in sentences. */
#include "island_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atoll_err add(atoll_islands *is, const char *fmt, ...) ATOLL_PRINTF(2, 3);
static atoll_err add(atoll_islands *is, const char *fmt, ...) {
  char line[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  char **more = realloc(is->why, sizeof *more * (size_t)(is->why_count + 1));
  char *copy = more ? strdup(line) : NULL;
  if (more)
    is->why = more;
  if (!copy)
    return atoll_fail(ATOLL_NOMEM, "no memory for explanations");
  is->why[is->why_count++] = copy;
  return ATOLL_OK;
}

static const char *memory_text(int64_t bytes, char *buf, size_t n) {
  if (bytes <= 0)
    snprintf(buf, n, "unknown memory");
  else if (bytes >= (int64_t)1 << 30)
    snprintf(buf, n, "%.4g GiB", (double)bytes / 0x1p30);
  else
    snprintf(buf, n, "%.4g MiB", (double)bytes / 0x1p20);
  return buf;
}

/* "n0 n1 n2" or "n0 ... n15 (16 nodes)". */
static void node_names(const atoll_island *i, const atoll_topo *t, char *buf, size_t n) {
  int shown = 0, last = -1;
  buf[0] = 0;
  for (int k = 0; k < i->devices && shown < 6; k++) {
    int node = t->device[i->device[k]].node;
    if (node == last)
      continue;
    last = node;
    size_t len = strlen(buf);
    snprintf(buf + len, n - len, "%s%s", len ? " " : "", t->node[node].name);
    shown++;
  }
  size_t len = strlen(buf);
  if (i->nodes > shown)
    snprintf(buf + len, n - len, " ... %s", t->node[t->device[i->device[i->devices - 1]].node].name);
}

/* Lowest and highest median among the members. */
static int range(const atoll_island *i, const atoll_topo *t, double *lo, double *hi) {
  int n = 0;
  for (int k = 0; k < i->devices; k++) {
    double m = atoll_samples_median(&t->device[i->device[k]].gemm_f32);
    if (!(m > 0))
      continue;
    *lo = n == 0 || m < *lo ? m : *lo;
    *hi = n == 0 || m > *hi ? m : *hi;
    n++;
  }
  return n;
}

static double typical_spread(const atoll_island *i, const atoll_topo *t) {
  double sum = 0;
  int n = 0;
  for (int k = 0; k < i->devices; k++)
    if (t->device[i->device[k]].gemm_f32.n) {
      sum += atoll_samples_spread(&t->device[i->device[k]].gemm_f32);
      n++;
    }
  return n ? sum / n : 0;
}

static atoll_err together(atoll_islands *is, const atoll_island *i, const atoll_topo *t,
                          const atoll_island_params *params) {
  double lo = 0, hi = 0;
  if (i->devices < 2)
    return ATOLL_OK;
  int n = range(i, t, &lo, &hi);
  if (n < 2)
    return add(is, "  together: the same hardware and memory (rates are not known)");
  double gap = (hi - lo) / hi;
  int declared = 1;
  for (int k = 0; k < i->devices; k++)
    declared &= t->device[i->device[k]].declared;
  if (declared && gap == 0)
    return add(is, "  together: the same hardware, memory and declared rates");
  if (gap <= params->split_gap)
    return add(is,
               "  together: the same hardware and memory; median f32 rates are within %.1f %% of each other, and only "
               "gaps above %.0f %% split",
               100 * gap, 100 * params->split_gap);
  for (int k = 0; k < i->devices; k++)
    if (t->device[i->device[k]].gemm_f32.n < ISLAND_SAMPLES_MIN)
      return add(is,
                 "  together: the same hardware and memory; median f32 rates lie between %.4g and %.4g GFLOP/s, but "
                 "fewer than %d samples never split",
                 lo, hi, ISLAND_SAMPLES_MIN);
  return add(is,
             "  together: the same hardware and memory; median f32 rates lie between %.4g and %.4g GFLOP/s, but no gap "
             "between neighbours exceeds %.0f %% and %g times the spread of %.1f %%",
             lo, hi, 100 * params->split_gap, params->spread_factor, 100 * typical_spread(i, t));
}

static void differ_text(char *buf, size_t n, const char *what, const char *a, const char *b) {
  size_t len = strlen(buf);
  if (strcmp(a, b) != 0)
    snprintf(buf + len, n - len, "%s%s '%s' against '%s'", len ? "; " : "", what, a, b);
}

static atoll_err apart(atoll_islands *is, int x, int y, const atoll_topo *t, const atoll_island_params *params) {
  const atoll_island *a = &is->island[x], *b = &is->island[y];
  const atoll_topo_device *d = &t->device[a->device[0]], *e = &t->device[b->device[0]];
  char text[700] = "", m1[48], m2[48];
  if (a->class_id != b->class_id) {
    differ_text(text, sizeof text, "kind of node", t->node[d->node].kind, t->node[e->node].kind);
    differ_text(text, sizeof text, "zone", t->node[d->node].zone, t->node[e->node].zone);
    differ_text(text, sizeof text, "model", d->model, e->model);
    differ_text(text, sizeof text, "instruction set", d->isa, e->isa);
    size_t len = strlen(text);
    if (d->ncores != e->ncores)
      snprintf(text + len, sizeof text - len, "%s%d cores against %d", len ? "; " : "", d->ncores, e->ncores);
    else if (d->nthreads != e->nthreads)
      snprintf(text + len, sizeof text - len, "%s%d hardware threads against %d", len ? "; " : "", d->nthreads,
               e->nthreads);
    len = strlen(text);
    if (atoll_topo_installed_memory(d->memory) != atoll_topo_installed_memory(e->memory))
      snprintf(text + len, sizeof text - len, "%s%s against %s", len ? "; " : "", memory_text(d->memory, m1, sizeof m1),
               memory_text(e->memory, m2, sizeof m2));
    len = strlen(text);
    if (t->node[d->node].price != t->node[e->node].price)
      snprintf(text + len, sizeof text - len, "%s%g an hour against %g", len ? "; " : "", t->node[d->node].price,
               t->node[e->node].price);
    return add(is, "%s and %s are apart: %s", a->name, b->name, text);
  }
  if (a->speed_id != b->speed_id) {
    double fast = a->gemm_f32 > b->gemm_f32 ? a->gemm_f32 : b->gemm_f32,
           slow = a->gemm_f32 > b->gemm_f32 ? b->gemm_f32 : a->gemm_f32;
    if (fast > 0 && (fast - slow) / fast > params->split_gap)
      return add(is,
                 "%s and %s are apart though their hardware is the same: %s f32 rates %.4g and %.4g GFLOP/s, %.0f %% "
                 "apart; spreads %.1f %% and %.1f %%",
                 a->name, b->name, d->declared && e->declared ? "declared" : "measured", a->gemm_f32, b->gemm_f32,
                 100 * (fast - slow) / fast, 100 * typical_spread(a, t), 100 * typical_spread(b, t));
    return add(
        is,
        "%s and %s are apart though their hardware is the same: bf16 %.4g and %.4g GFLOP/s, memory %.4g and %.4g GB/s",
        a->name, b->name, a->gemm_bf16, b->gemm_bf16, a->bandwidth, b->bandwidth);
  }
  /* Alike, so place separates: name the slow link. */
  const atoll_topo_link *slow = NULL;
  double best = 0;
  for (int i = 0; i < t->links; i++) {
    const atoll_topo_link *l = &t->link[i];
    if (l->a == l->b)
      continue;
    int in_a = 0, in_b = 0, cross = 0;
    for (int k = 0; k < a->devices; k++) {
      in_a |= t->device[a->device[k]].node == l->a ? 1 : 0;
      in_a |= t->device[a->device[k]].node == l->b ? 2 : 0;
    }
    for (int k = 0; k < b->devices; k++) {
      in_b |= t->device[b->device[k]].node == l->a ? 1 : 0;
      in_b |= t->device[b->device[k]].node == l->b ? 2 : 0;
    }
    cross = in_a && in_b;
    double bandwidth = atoll_samples_median(&l->bandwidth);
    if ((in_a | in_b) == 3 && bandwidth > best)
      best = bandwidth;
    if (cross && (!slow || bandwidth < atoll_samples_median(&slow->bandwidth)))
      slow = l;
  }
  if (slow)
    return add(is,
               "%s and %s are apart though their hardware is the same: the link %s - %s carries %.3g GB/s, less than "
               "%.0f %% of the best between such nodes",
               a->name, b->name, t->node[slow->a].name, t->node[slow->b].name, atoll_samples_median(&slow->bandwidth),
               100 * params->near_ratio);
  return add(is, "%s and %s are apart: slow links lie between them", a->name, b->name);
}

atoll_err island_reasons(atoll_islands *is, const atoll_topo *t, const atoll_island_params *params,
                         const island_place *place) {
  char names[512], mem[48], rate[64];
  for (int k = 0; k < is->count; k++) {
    const atoll_island *i = &is->island[k];
    const atoll_topo_device *d = &t->device[i->device[0]];
    node_names(i, t, names, sizeof names);
    if (i->gemm_f32 > 0)
      snprintf(rate, sizeof rate, i->gemm_f32 >= 1000 ? ", %.0f GFLOP/s f32 each" : ", %.4g GFLOP/s f32 each",
               i->gemm_f32);
    else
      rate[0] = 0;
    char cores[48] = "";
    if (d->kind == ATOLL_TOPO_CPU)
      snprintf(cores, sizeof cores, " (%d core%s)", d->ncores, d->ncores == 1 ? "" : "s");
    ATOLL_TRY(add(is, "island %s: %d device%s on %d node%s (%s): %s%s, %s each%s", i->name, i->devices,
                  i->devices == 1 ? "" : "s", i->nodes, i->nodes == 1 ? "" : "s", names, i->model, cores,
                  memory_text(i->memory, mem, sizeof mem), rate));
    ATOLL_TRY(together(is, i, t, params));
  }
  /* Every pair while they are few, else each against its predecessor. */
  for (int y = 1; y < is->count; y++)
    for (int x = is->count <= 5 ? 0 : y - 1; x < y; x++)
      ATOLL_TRY(apart(is, x, y, t, params));
  int idle = 0;
  for (int i = 0; i < t->devices; i++)
    idle += !place[i].takes_part;
  if (idle)
    ATOLL_TRY(add(is, "%d device%s take%s no part: no rank computes on %s", idle, idle == 1 ? "" : "s",
                  idle == 1 ? "s" : "", idle == 1 ? "it" : "them"));
  return ATOLL_OK;
}

void atoll_islands_explain(const atoll_islands *is, const atoll_topo *topo, FILE *f) {
  (void)topo;
  for (int i = 0; i < is->why_count; i++)
    fprintf(f, "%s\n", is->why[i]);
}

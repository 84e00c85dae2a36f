/* From devices to islands: class, speed, place, then order and names.
 *
 * Order: by falling total rate, but only where totals are far apart (twice the gap that splits); otherwise by hardware
 * and then by node name. So neither noise nor the order of nodes decides who is called "a", and indices into islands
 * are as stable as their names. */
#include "atoll/island.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/stats.h"
#include "island_impl.h"

static const char *kind_of(const atoll_topo *t, int i) { return t->node[t->device[i].node].kind; }

/* What the text key of profiles shows: speeds are numbered within it, so that one key never means two speeds. */
static int same_cost(const atoll_topo *t, int i, int j) {
  const atoll_topo_device *a = &t->device[i], *b = &t->device[j];
  return a->kind == b->kind && strcmp(a->model, b->model) == 0 && a->ncores == b->ncores &&
         strcmp(kind_of(t, i), kind_of(t, j)) == 0 && strcmp(t->node[a->node].zone, t->node[b->node].zone) == 0 &&
         t->node[a->node].price == t->node[b->node].price;
}

static int same_class(const atoll_topo *t, int i, int j) {
  const atoll_topo_device *a = &t->device[i], *b = &t->device[j];
  return same_cost(t, i, j) && strcmp(a->isa, b->isa) == 0 && a->nthreads == b->nthreads &&
         atoll_topo_installed_memory(t->device[i].memory) == atoll_topo_installed_memory(t->device[j].memory);
}

static atoll_digest key_of(const atoll_topo *t, int i) {
  const atoll_topo_device *d = &t->device[i];
  atoll_digest none = {0, 0};
  atoll_digester *g = NULL;
  if (atoll_digester_create(&g) != ATOLL_OK)
    return none;
  atoll_digester_add_int(g, d->kind);
  atoll_digester_add_text(g, d->model);
  atoll_digester_add_text(g, d->isa);
  atoll_digester_add_int(g, d->ncores);
  atoll_digester_add_int(g, d->nthreads);
  atoll_digester_add_text(g, kind_of(t, i));
  atoll_digester_add_int(g, atoll_topo_installed_memory(d->memory));
  if (t->node[d->node].zone[0])
    atoll_digester_add_text(g, t->node[d->node].zone);
  none = atoll_digester_value(g);
  atoll_digester_destroy(&g);
  return none;
}

static void letters(int i, char *out, size_t n) {
  char text[16];
  int len = 0;
  do {
    text[len++] = (char)('a' + i % 26);
    i = i / 26 - 1;
  } while (i >= 0 && len < 15);
  size_t k = 0;
  while (len > 0 && k + 1 < n)
    out[k++] = text[--len];
  out[k] = 0;
}

/* --- classes, speeds, places ----------------------------------------------------------------------------------------
 */

/* Number the devices by the first one that is alike. Classes are few, so the search stays short. */
static void number_classes(const atoll_topo *t, island_place *p) {
  int n = t->devices, costs = 0, classes = 0;
  for (int i = 0; i < n; i++) {
    p[i].cost = p[i].cls = -1;
    if (!p[i].takes_part)
      continue;
    for (int j = i - 1; j >= 0 && p[i].cls < 0; j--) {
      if (!p[j].takes_part)
        continue;
      if (p[i].cost < 0 && same_cost(t, i, j))
        p[i].cost = p[j].cost;
      if (same_class(t, i, j))
        p[i].cls = p[j].cls;
    }
    if (p[i].cost < 0)
      p[i].cost = costs++;
    if (p[i].cls < 0)
      p[i].cls = classes++;
  }
}

static atoll_err number_speeds(const atoll_topo *t, const atoll_island_params *params, island_place *p) {
  int n = t->devices;
  int *list = malloc(sizeof *list * (size_t)(n + 1)), *speed = malloc(sizeof *speed * (size_t)(n + 1));
  atoll_err err = list && speed ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "no memory to group %d devices", n);
  for (int c = 0, found = 1; err == ATOLL_OK && found; c++) {
    island_members g = {0, list};
    for (int i = 0; i < n; i++)
      if (p[i].takes_part && p[i].cost == c)
        list[g.n++] = i;
    found = g.n > 0;
    if (island_split(t, params, &g, speed) < 0)
      err = atoll_fail(ATOLL_NOMEM, "no memory to compare %d devices", g.n);
    for (int k = 0; err == ATOLL_OK && k < g.n; k++)
      p[list[k]].speed = speed[k];
  }
  free(list);
  free(speed);
  return err;
}

static atoll_err number_islands(const atoll_topo *t, const atoll_island_params *params, island_place *p, int *count) {
  int n = t->devices, islands = 0;
  int *list = malloc(sizeof *list * (size_t)(n + 1)), *near = malloc(sizeof *near * (size_t)(n + 1));
  atoll_err err = list && near ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "no memory to group %d devices", n);
  for (int i = 0; i < n; i++)
    p[i].island = -1;
  for (int i = 0; i < n && err == ATOLL_OK; i++) {
    if (!p[i].takes_part || p[i].island >= 0)
      continue;
    island_members g = {0, list};
    for (int j = i; j < n; j++)
      if (p[j].takes_part && p[j].cls == p[i].cls && p[j].speed == p[i].speed)
        list[g.n++] = j;
    err = island_near(t, params, &g, near);
    for (int k = 0; k < g.n && err == ATOLL_OK; k++) {
      p[list[k]].near = near[k];
      for (int m = 0; m < k && p[list[k]].island < 0; m++)
        if (near[m] == near[k])
          p[list[k]].island = p[list[m]].island;
      if (p[list[k]].island < 0)
        p[list[k]].island = islands++;
    }
  }
  free(list);
  free(near);
  *count = islands;
  return err;
}

/* --- describing one island -------------------------------------------------------------------------------------------
 */

static double median_of(const atoll_topo *t, const atoll_island *is, size_t which, double *work) {
  int n = 0;
  for (int i = 0; i < is->devices; i++) {
    const atoll_samples *s = (const atoll_samples *)((const char *)&t->device[is->device[i]] + which);
    if (s->n)
      work[n++] = atoll_samples_median(s);
  }
  return atoll_median(work, (size_t)n);
}

static void worst(const atoll_topo_link *l, double *latency, double *bandwidth) {
  double s = atoll_samples_median(&l->latency), b = atoll_samples_median(&l->bandwidth);
  if (s > *latency)
    *latency = s;
  if (b > 0 && (*bandwidth == 0 || b < *bandwidth))
    *bandwidth = b;
}

static atoll_err describe(const atoll_topo *t, const island_place *p, int id, atoll_island *is) {
  int *members = calloc((size_t)t->nodes + 1, sizeof *members);
  double *work = malloc(sizeof *work * (size_t)(t->devices + 1));
  is->device = malloc(sizeof *is->device * (size_t)(t->devices + 1));
  if (!members || !work || !is->device) {
    free(members);
    free(work);
    return atoll_fail(ATOLL_NOMEM, "no memory to describe an island");
  }
  for (int i = 0; i < t->devices; i++)
    if (p[i].island == id) {
      const atoll_topo_device *d = &t->device[i];
      if (is->devices == 0 || d->memory < is->memory)
        is->memory = d->memory;
      is->device[is->devices++] = i;
      is->nodes += members[d->node]++ == 0;
    }
  int first = is->device[0];
  const atoll_topo_device *d = &t->device[first];
  memcpy(is->model, d->model, sizeof is->model);
  is->class_id = p[first].cls;
  is->speed_id = p[first].speed;
  is->key = key_of(t, first);
  is->gemm_f32 = median_of(t, is, offsetof(atoll_topo_device, gemm_f32), work);
  is->gemm_bf16 = median_of(t, is, offsetof(atoll_topo_device, gemm_bf16), work);
  is->bandwidth = median_of(t, is, offsetof(atoll_topo_device, bandwidth), work);
  for (int n = 0; n < t->nodes; n++)
    if (members[n] > 1) {
      const atoll_topo_link *l = atoll_topo_link_of(t, n, n);
      if (l)
        worst(l, &is->latency_in, &is->bandwidth_in);
    }
  int known = 0;
  for (int i = 0; i < t->links; i++)
    if (t->link[i].a != t->link[i].b && members[t->link[i].a] && members[t->link[i].b]) {
      worst(&t->link[i], &is->latency_out, &is->bandwidth_out);
      known = 1;
    }
  if (!known && is->nodes > 1) {
    atoll_topo_reach(t, d->node, t->device[is->device[is->devices - 1]].node, &is->latency_out, &is->bandwidth_out,
                     NULL);
  }
  char speed[16], cores[24] = "";
  letters(is->speed_id, speed, sizeof speed);
  if (d->kind == ATOLL_TOPO_CPU)
    snprintf(cores, sizeof cores, "/%dc", d->ncores);
  const char *kind = kind_of(t, first);
  snprintf(is->class_key, sizeof is->class_key, "%s%s%s%s/%s", d->model, cores, kind[0] ? "/" : "", kind, speed);
  free(members);
  free(work);
  return ATOLL_OK;
}

/* --- order
 * ------------------------------------------------------------------------------------------------------------ */

typedef struct ranked {
  atoll_island island;
  double total; /* GFLOP/s of all members */
  int declared, tier;
  int64_t nominal; /* what the hardware promises: GPUs before cores, then how many */
  const char *first_name, *kind;
} ranked;

static int by_total(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  return x->total != y->total ? (x->total < y->total) - (x->total > y->total)
                              : x->island.device[0] - y->island.device[0];
}

static int by_tier(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->tier != y->tier)
    return x->tier - y->tier;
  const atoll_island *i = &x->island, *j = &y->island;
  if (x->nominal != y->nominal)
    return x->nominal < y->nominal ? 1 : -1;
  if (i->memory != j->memory && atoll_topo_installed_memory(i->memory) != atoll_topo_installed_memory(j->memory))
    return i->memory < j->memory ? 1 : -1;
  int c = atoll_topo_compare_names(x->kind, y->kind);
  if (!c)
    c = atoll_topo_compare_names(i->model, j->model);
  if (c)
    return c;
  if (i->key.hi != j->key.hi)
    return i->key.hi < j->key.hi ? -1 : 1;
  if (i->key.lo != j->key.lo)
    return i->key.lo < j->key.lo ? -1 : 1;
  if (i->speed_id != j->speed_id)
    return i->speed_id - j->speed_id;
  c = atoll_topo_compare_names(x->first_name, y->first_name);
  return c ? c : i->device[0] - j->device[0];
}

static void order(const atoll_topo *t, const atoll_island_params *params, ranked *r, int n, double *work) {
  int m = 0;
  for (int i = 0; i < n; i++) {
    const atoll_topo_device *one = &t->device[r[i].island.device[0]];
    r[i].declared = 1;
    r[i].kind = t->node[one->node].kind;
    r[i].nominal = one->kind == ATOLL_TOPO_GPU ? ((int64_t)1 << 40) * r[i].island.devices
                                               : (int64_t)one->ncores * r[i].island.devices;
    for (int k = 0; k < r[i].island.devices; k++) {
      const atoll_topo_device *d = &t->device[r[i].island.device[k]];
      const char *name = t->node[d->node].name;
      if (!r[i].first_name || atoll_topo_compare_names(name, r[i].first_name) < 0)
        r[i].first_name = name;
      if (d->gemm_f32.n)
        work[m++] = atoll_samples_spread(&d->gemm_f32);
      r[i].declared &= d->declared;
    }
    r[i].total = r[i].island.gemm_f32 * r[i].island.devices;
  }
  /* One spread for all: that of an island of two devices is itself too noisy to decide by. */
  atoll_sort(work, (size_t)m);
  double spread = m ? work[m / 2] : 0;
  qsort(r, (size_t)n, sizeof *r, by_total);
  for (int i = 1; i < n; i++) {
    double x = r[i - 1].total, y = r[i].total, gap = x - y;
    double noise = spread * sqrt(x * x + y * y);
    int apart = gap > params->split_gap * x &&
                ((r[i - 1].declared && r[i].declared) || gap > 2 * params->spread_factor * noise);
    r[i].tier = r[i - 1].tier + apart;
  }
  qsort(r, (size_t)n, sizeof *r, by_tier);
}

/* --- all together
 * ------------------------------------------------------------------------------------------------------- */

atoll_err atoll_islands_group(const atoll_topo *t, const atoll_island_params *params, atoll_islands **out) {
  island_place *p = calloc((size_t)t->devices + 1, sizeof *p);
  atoll_islands *is = calloc(1, sizeof *is);
  ranked *r = NULL;
  double *work = malloc(sizeof *work * (size_t)(t->devices + 1));
  int count = 0, described = 0, ranks = 0;
  atoll_err err = ATOLL_OK;
  if (!p || !is || !work) {
    err = atoll_fail(ATOLL_NOMEM, "no memory to group %d devices", t->devices);
    goto done;
  }
  /* Where ranks were launched, a device without one takes no part. */
  for (int i = 0; i < t->devices; i++)
    ranks += t->device[i].rank >= 0;
  int parts = 0;
  for (int i = 0; i < t->devices; i++)
    parts += p[i].takes_part = ranks == 0 || t->device[i].rank >= 0;
  if (parts == 0) {
    err = atoll_fail(ATOLL_USAGE, "the topology has no device to group");
    goto done;
  }
  number_classes(t, p);
  ATOLL_TRY_GOTO(err, done, number_speeds(t, params, p));
  ATOLL_TRY_GOTO(err, done, number_islands(t, params, p, &count));
  r = calloc((size_t)count, sizeof *r);
  is->island = calloc((size_t)count, sizeof *is->island);
  is->island_of = malloc(sizeof *is->island_of * (size_t)(t->devices + 1));
  if (!r || !is->island || !is->island_of) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %d islands", count);
    goto done;
  }
  for (; described < count; described++)
    ATOLL_TRY_GOTO(err, done, describe(t, p, described, &r[described].island));
  order(t, params, r, count, work);
  is->devices = t->devices;
  for (int i = 0; i < t->devices; i++)
    is->island_of[i] = -1;
  /* Classes are numbered anew in the order of islands: numbers by first device would depend on the order of nodes. */
  for (int k = 0; k < count; k++) {
    is->island[k] = r[k].island;
    letters(k, is->island[k].name, sizeof is->island[k].name);
    for (int m = 0; m < is->island[k].devices; m++)
      is->island_of[is->island[k].device[m]] = k;
  }
  is->count = count;
  described = 0;
  for (int k = 0, next = 0; k < count; k++) {
    int old = r[k].island.class_id, seen = -1;
    for (int m = 0; m < k && seen < 0; m++)
      if (r[m].island.class_id == old)
        seen = is->island[m].class_id;
    is->island[k].class_id = seen >= 0 ? seen : next++;
  }
  err = island_reasons(is, t, params, p);
done:
  for (int k = 0; r && k < described; k++)
    free(r[k].island.device);
  free(r);
  free(p);
  free(work);
  if (err != ATOLL_OK)
    atoll_islands_destroy(&is);
  else
    *out = is;
  return err;
}

void atoll_islands_destroy(atoll_islands **islands) {
  if (!islands || !*islands)
    return;
  atoll_islands *is = *islands;
  for (int i = 0; i < is->count; i++)
    free(is->island[i].device);
  free(is->island);
  free(is->island_of);
  for (int i = 0; i < is->why_count; i++)
    free(is->why[i]);
  free(is->why);
  free(is);
  *islands = NULL;
}

atoll_err atoll_islands_agree(atoll_comm *comm, const atoll_topo *topo, const atoll_island_params *params,
                              atoll_islands **out) {
  MPI_Comm mpi = atoll_comm_mpi(comm);
  atoll_islands *is = NULL;
  ATOLL_TRY(atoll_agree(mpi, atoll_islands_group(topo, params, &is)));
  atoll_err err = atoll_agree_digest(mpi, "islands", atoll_islands_digest(is));
  if (err != ATOLL_OK)
    atoll_islands_destroy(&is);
  else
    *out = is;
  return err;
}

static int64_t quantised(double rate) { return rate > 0 ? (int64_t)floor(log(rate) / log(1.05)) : INT64_MIN; }

static atoll_digest digest(const atoll_islands *is, int measured) {
  atoll_digest d = {0, 0};
  atoll_digester *g = NULL;
  if (atoll_digester_create(&g) != ATOLL_OK)
    return d;
  atoll_digester_add_int(g, is->count);
  atoll_digester_add_int(g, is->devices);
  for (int k = 0; k < is->count; k++) {
    const atoll_island *i = &is->island[k];
    atoll_digester_add_int(g, (int64_t)i->key.lo);
    atoll_digester_add_int(g, (int64_t)i->key.hi);
    atoll_digester_add_int(g, i->devices);
    for (int m = 0; m < i->devices; m++)
      atoll_digester_add_int(g, i->device[m]);
    if (measured) {
      atoll_digester_add_int(g, i->class_id);
      atoll_digester_add_int(g, i->speed_id);
      atoll_digester_add_int(g, quantised(i->gemm_f32));
      atoll_digester_add_int(g, quantised(i->gemm_bf16));
      atoll_digester_add_int(g, quantised(i->bandwidth));
    }
  }
  d = atoll_digester_value(g);
  atoll_digester_destroy(&g);
  return d;
}

atoll_digest atoll_islands_digest(const atoll_islands *islands) { return digest(islands, 1); }
atoll_digest atoll_islands_identity(const atoll_islands *islands) { return digest(islands, 0); }

void atoll_island_class(const atoll_islands *islands, int island, char *buf, size_t n) {
  if (n)
    snprintf(buf, n, "%s", island >= 0 && island < islands->count ? islands->island[island].class_key : "");
}

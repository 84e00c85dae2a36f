/* The additive cost of the neutral scorer, per slice, boundary and stage. b samples per micro-batch, 4 bytes per value.
 *
 *   slice    sum of forward + backward; extra: the update of its first layer
 *   bytes    24 w + 4 b F a + reserve, where w and a are the parameters and stored activations of one GPU of the
 *            replica, F micro-batches are in flight, and the reserve is 2e9 for degree 1 and 3e9 above
 *   x(n)     (n / 1e9) / max(P(log2(n / 1e6)), 0.01), P the fit of the ordered pair (zone, GPU, degree)
 *   send     x(4 b o): forward the output o of the layer before the boundary, backward that of the layer behind it
 *   sync     for two neighbours in a stage of D replicas: 2 (D - 1) x(m / D) summed over buckets m of 5e8 bytes of the
 *            gradients, 4 w / min(4, least degree), with the fit of one GPU on each side; the slowest pair counts
 *   money    4 b o over every boundary, both ways, for every micro-batch; in a stage 2 (D - 1) / D of the unsharded
 *            weights over each pair of neighbours in the closed ring
 *
 * What the data does not know takes forever, so no plan uses it. */
#include <math.h>
#include <string.h>

#include "cases/cases.h"

#define STATE_BYTES      24.0
#define VALUE_BYTES      4.0
#define BUCKET_BYTES     5e8
#define SLOWEST_GB_PER_S 0.01
#define RESERVE_ONE      2e9
#define RESERVE_TENSOR   3e9

static double transfer_seconds(const case_fit *fit, double bytes) {
  if (bytes <= 0)
    return 0;
  if (fit->terms == 0)
    return INFINITY;
  double x = log2(bytes / 1e6), rate = 0;
  for (int i = 0; i < fit->terms; i++)
    rate = rate * x + fit->c[i];
  return bytes / 1e9 / fmax(rate, SLOWEST_GB_PER_S);
}

double case_bytes(const atoll_case *c, int b, int kind, int first, int last, int64_t in_flight) {
  const case_values *v = &c->values[c->kind[kind].option];
  double reserve = c->degree[c->kind[kind].option] == 1 ? RESERVE_ONE : RESERVE_TENSOR;
  return (v->parameters[last] - v->parameters[first]) * STATE_BYTES +
         (v->activation[last] - v->activation[first]) * (double)c->batch[b] * VALUE_BYTES * (double)in_flight + reserve;
}

static const case_table *table_of(const atoll_case *c, int b, int kind) {
  return &c->gpu[c->pool[c->kind[kind].pool].gpu].table[b * c->degrees + c->kind[kind].option];
}

static int slice(void *context, int b, int kind, int first, int last, engine_point *point) {
  const atoll_case *c = context;
  const case_table *t = table_of(c, b, kind);
  if (!t->known)
    return 0;
  double memory = c->gpu[c->pool[c->kind[kind].pool].gpu].memory, one = case_bytes(c, b, kind, first, last, 0),
         each = case_bytes(c, b, kind, first, last, 1) - one;
  int64_t in_flight = INT32_MAX;
  if (!c->ignore_memory) {
    if (!(one + each <= memory))
      return 0;
    if (each > 0 && (memory - one) / each < (double)in_flight)
      in_flight = (int64_t)((memory - one) / each);
    while (case_bytes(c, b, kind, first, last, in_flight) > memory) /* rounding */
      in_flight--;
    while (in_flight < INT32_MAX && case_bytes(c, b, kind, first, last, in_flight + 1) <= memory)
      in_flight++;
  }
  point[0] = (engine_point){t->seconds[last] - t->seconds[first], t->update[first], in_flight};
  return 1;
}

double case_transfer_seconds(const atoll_case *c, int from, int to, double bytes) {
  return transfer_seconds(&c->fit[(size_t)from * (size_t)c->kinds + (size_t)to], bytes);
}

static double send(void *context, int b, int layer, int from, int to, int backward) {
  const atoll_case *c = context;
  double bytes = c->output[backward ? layer : layer - 1] * (double)c->batch[b];
  return case_transfer_seconds(c, from, to, bytes);
}

static double ring_seconds(const case_fit *fit, double bytes, int64_t D) {
  double whole = floor(bytes / BUCKET_BYTES), rest = bytes - whole * BUCKET_BYTES;
  return 2.0 * (double)(D - 1) *
         (whole * transfer_seconds(fit, BUCKET_BYTES / (double)D) + transfer_seconds(fit, rest / (double)D));
}

static double sync_seconds(void *context, int b, const engine_stage *s) {
  const atoll_case *c = context;
  (void)b;
  int share = 4;
  int64_t D = 0;
  for (int g = 0; g < s->groups; g++) {
    int degree = c->degree[c->kind[s->group[g].kind].option];
    share = degree < share ? degree : share;
    D += s->group[g].count;
  }
  if (D == 1)
    return 0;
  double bytes = (c->weight[s->last] - c->weight[s->first]) / share, worst = 0;
  for (int g = 0; g < s->groups; g++) {
    size_t p = (size_t)c->kind[s->group[g].kind].pool * (size_t)c->pools;
    if (s->group[g].count > 1)
      worst = fmax(worst, ring_seconds(&c->single[p + (size_t)c->kind[s->group[g].kind].pool], bytes, D));
    if (g + 1 < s->groups)
      worst = fmax(worst, ring_seconds(&c->single[p + (size_t)c->kind[s->group[g + 1].kind].pool], bytes, D));
  }
  return worst;
}

static double transfer_price(const atoll_case *c, int a, int b) {
  return c->transfer[c->pool[c->kind[a].pool].zone * c->zones + c->pool[c->kind[b].pool].zone];
}

static double stage_money(void *context, int b, const engine_stage *s) {
  const atoll_case *c = context;
  (void)b;
  int64_t D = 0;
  double sum = 0;
  for (int g = 0; g < s->groups; g++) {
    int kind = s->group[g].kind;
    D += s->group[g].count;
    sum += (s->group[g].count - 1) * transfer_price(c, kind, kind) +
           transfer_price(c, kind, s->group[(g + 1) % s->groups].kind);
  }
  return sum * (c->weight[s->last] - c->weight[s->first]) / (double)D * 2 * (double)(D - 1) / 1e9;
}

/* $ per byte that goes over a boundary both ways, summed over micro-batches: n rounds of all replicas when the widths
 * are equal, else `total` micro-batches dealt out in turn. */
static double boundary_money(const atoll_case *c, int b, const engine_stage *left, const engine_stage *right,
                             int64_t rounds, int64_t total) {
  int64_t D = 0, E = 0;
  for (int g = 0; g < left->groups; g++)
    D += left->group[g].count;
  for (int g = 0; g < right->groups; g++)
    E += right->group[g].count;
  int64_t n = D == E ? D : total, rb = 0, ra = 0;
  double sum = 0;
  int i = 0, j = 0;
  for (int64_t k = 0; k < n;) { /* runs of micro-batches between the same two groups */
    int64_t run = left->group[i].count - ra, other = right->group[j].count - rb;
    if (left->groups == 1 && right->groups == 1)
      run = n;
    else if (left->groups == 1)
      run = other;
    else if (right->groups > 1)
      run = run < other ? run : other;
    run = run < n - k ? run : n - k;
    sum += (double)run * (transfer_price(c, left->group[i].kind, right->group[j].kind) +
                          transfer_price(c, right->group[j].kind, left->group[i].kind));
    k += run;
    ra += run;
    if (left->groups == 1)
      ra = 0;
    else if (ra == left->group[i].count)
      ra = 0, i = (i + 1) % left->groups;
    rb += run;
    if (right->groups == 1)
      rb = 0;
    else if (rb == right->group[j].count)
      rb = 0, j = (j + 1) % right->groups;
  }
  return (D == E ? (double)rounds * sum : sum) * c->output[right->first - 1] * (double)c->batch[b] / 1e9;
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static double send_money(void *context, int b, const engine_stage *left, const engine_stage *right) {
  const atoll_case *c = context;
  int64_t total = divide_up(c->global_batch, c->batch[b]), D = 0;
  for (int g = 0; g < left->groups; g++)
    D += left->group[g].count;
  return boundary_money(c, b, left, right, divide_up(total, D), total);
}

/* The scorer counts the rounds of equal widths by the first stage. */
static double money(void *context, int b, int stages, const engine_stage *stage) {
  const atoll_case *c = context;
  int64_t total = divide_up(c->global_batch, c->batch[b]), D = 0;
  double sum = 0;
  for (int g = 0; g < stage[0].groups; g++)
    D += stage[0].group[g].count;
  for (int i = 0; i + 1 < stages; i++)
    sum += boundary_money(c, b, &stage[i], &stage[i + 1], divide_up(total, D), total);
  for (int i = 0; i < stages; i++)
    sum += stage_money(context, b, &stage[i]);
  return sum;
}

void case_costs(const atoll_case *c, engine_costs *out) {
  *out = (engine_costs){.context = (void *)(uintptr_t)c,
                        .slice = slice,
                        .send = send,
                        .sync = sync_seconds,
                        .money = money,
                        .stage_money = stage_money,
                        .send_money = send_money};
}

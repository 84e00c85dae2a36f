/* Bounds. In a node every stage has (G - 1)(t + p) <= high, so a stage of layers [f, l) on kind k has at least the
 * width D(k, f, l) at which that holds for the least p there is, and it adds at least t + p to the sum. A stage of
 * several kinds takes the time of its slowest, so its width is no less than that of any of its kinds alone.
 *
 * Sum and rent. A[l] = min over f, k of (t + p)(k, f, l) + A[f] is the least sum of layers [0, l); R[l] the same for
 * price x devices x width. No plan has less.
 *
 * Sum against devices. With weights w of the devices and mu >= 0, let C[l] = min over f, k of (t + p) + mu w_k
 * devices_k D(k, f, l) + C[f]. A completion that uses u devices has sum + mu (w . u) >= C[l]: for a stage of several
 * kinds sum and width bound its term from below for the kind whose weighted devices are least. As u is at most what is
 * left, sum
 * >= C[l] - mu (w . left). This holds for every w and mu (Lagrange); a few that are good for the whole node are kept.
 *
 * Memory. A stage with s stages behind it holds at least s + 1 micro-batches, and so does every stage before it. The
 * rows A and C are kept for some numbers of micro-batches, over the slices that hold so many.
 *
 * Price. The same with w the rent: sum + mu rent >= C[l]. (T + sum)(R + rent) is concave along that line, so its least
 * is at an end, where either sum or rent is at its own bound. */
#include <string.h>

#include "engine/search.h"

static const int flights[FLIGHTS] = {1, 3, 5, 8, 12, 18}; /* micro-batches that a row of bounds asks slices to hold */

#define SLICES_MANY 30000
#define SLICES_WORK 64 /* slices looked at that count as one label's work */

/* Least exposed sends of kind k on layers [f, l). */
static double least_send(search *s, int b, int kind, int f, int l) {
  double act = 0, grad = 0;
  if (l < s->layers) {
    act = INFINITY;
    for (int o = 0; o < s->unit_kinds; o++)
      act = fmin(act, space_send(s, b, l, kind, o, 0));
  }
  if (f > 0) {
    grad = INFINITY;
    for (int o = 0; o < s->unit_kinds; o++)
      grad = fmin(grad, space_send(s, b, f, o, kind, 1));
    if (l == s->layers)
      grad *= s->problem->last_factor;
  }
  return act + grad;
}

/* Least sync of a stage with a replica of kind k and at least this width. Of more replicas than kinds two of one kind
 * are neighbours, of whichever kind that is quickest. */
static double least_sync(search *s, int b, int kind, int f, int l, int64_t width) {
  double least = INFINITY;
  if (s->merged || (s->mixed && width <= GROUPS))
    return 0;
  for (int k = s->mixed ? 0 : kind; k < (s->mixed ? s->unit_kinds : kind + 1); k++)
    if (s->mixed || width * s->kind[k].devices <= s->unit[s->kind[k].unit].devices)
      least = fmin(least, space_sync(s, b, k, f, l, width));
  return least < INFINITY ? least : 0;
}

/* Seconds and width of every kind on every slice; INFINITY where it cannot be. Independent of low and high but for the
 * width, so seconds are kept while b stays. */
static void fill_costs(search *s, const node *n) {
  size_t L1 = (size_t)s->layers + 1;
  int tight = 0;
  for (int k = 0; k < s->unit_kinds; k++)
    for (int f = 0; f < s->layers; f++)
      for (int l = f + 1; l <= s->layers; l++) {
        size_t at = ((size_t)k * L1 + (size_t)f) * L1 + (size_t)l;
        if (s->cost_b != n->b) {
          const engine_point *point;
          int points = space_points(s, n->b, k, f, l, &point);
          double seconds = points ? point[0].seconds : INFINITY;
          int64_t flight = points ? point[points - 1].in_flight : 0;
          s->cost_flight[at] = (int)(flight < INT32_MAX ? flight : INT32_MAX);
          tight |= points && flight <= s->layers;
          s->cost_seconds[at] = seconds < INFINITY ? seconds + least_send(s, n->b, k, f, l) : INFINITY;
        }
        double seconds = s->cost_seconds[at];
        int64_t width = -1;
        if (seconds < INFINITY && !n->width)
          width = least_width(s->problem, n->b, seconds, n->high);
        else if (seconds < INFINITY &&
                 (double)(engine_rounds(s->problem, n->b, n->width) - 1) * seconds <= n->high * WITHIN)
          width = n->width;
        if (width > 0 && n->sync_most < INFINITY && least_sync(s, n->b, k, f, l, width) > n->sync_most * WITHIN)
          width = -1;
        s->cost_width[at] = (int)width;
      }
  if (s->cost_b != n->b)
    s->flights = tight ? FLIGHTS : 1;
  s->cost_b = n->b;
}

/* out[l] for every l; out[(k + 1) (L + 1) + l]: the same when the last of the stages is of kind k. Slices that do not
 * hold `flight` micro-batches are left out. */
static void best_splits(search *s, double sums, const double *per_replica, int flight, double *out) {
  size_t L1 = (size_t)s->layers + 1;
  out[0] = 0;
  for (int k = 0; k < s->unit_kinds; k++)
    out[(size_t)(k + 1) * L1] = INFINITY;
  for (int l = 1; l <= s->layers; l++) {
    double least = INFINITY;
    for (int k = 0; k < s->unit_kinds; k++) {
      const unit_kind *kind = &s->kind[k];
      double each = per_replica ? per_replica[k] : 0, least_k = INFINITY;
      int most = s->mixed ? INT32_MAX : s->unit[kind->unit].devices / kind->devices;
      for (int f = 0; f < l; f++) {
        size_t at = ((size_t)k * L1 + (size_t)f) * L1 + (size_t)l;
        if (s->cost_width[at] < 0 || s->cost_width[at] > most || s->cost_flight[at] < flight)
          continue;
        double v = sums * s->cost_seconds[at] + each * s->cost_width[at] + out[f];
        least_k = v < least_k ? v : least_k;
      }
      out[(size_t)(k + 1) * L1 + (size_t)l] = least_k;
      least = least_k < least ? least_k : least;
    }
    out[l] = least;
  }
}

static void weigh(const search *s, const double *weight, double mu, double *per_replica) {
  for (int k = 0; k < s->unit_kinds; k++)
    per_replica[k] = mu * weight[s->kind[k].unit] * s->kind[k].devices;
}

/* Devices of a unit weigh what they can do: the reciprocal of the least device-seconds for all layers. */
static void natural_weights(const search *s, double *weight) {
  size_t L1 = (size_t)s->layers + 1;
  for (int u = 0; u < s->units; u++) {
    double least = INFINITY;
    for (int k = s->unit[u].first_kind; k < s->unit[u].first_kind + s->unit[u].kinds; k++) {
      double seconds = 0;
      for (int l = 0; l < s->layers; l++)
        seconds += s->cost_seconds[((size_t)k * L1 + (size_t)l) * L1 + (size_t)l + 1];
      least = fmin(least, seconds * s->kind[k].devices);
    }
    weight[u] = least < INFINITY && least > 0 ? 1 / least : 0;
  }
}

static void keep_pair(search *s, const double *weight, double mu, double gain, double *gains) {
  int at = s->pairs;
  if (at == KEPT) { /* replace the weakest, if weaker */
    at = 0;
    for (int i = 1; i < KEPT; i++)
      if (gains[i] < gains[at])
        at = i;
    if (gains[at] >= gain)
      return;
  } else {
    s->pairs++;
  }
  gains[at] = gain;
  s->pair_mu[at] = mu;
  memcpy(s->pair_weight[at], weight, DIMS * sizeof *weight);
  memcpy(s->pair_value[at], s->scratch, ((size_t)s->unit_kinds + 1) * ((size_t)s->layers + 1) * sizeof *s->scratch);
}

/* Good pairs of weights and mu for the node. */
static double choose_pairs(search *s) {
  static const double mus[] = {0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 8, 30, 200};
  static const double tilts[] = {1, 0.6, 1.6};
  double natural[DIMS] = {0}, gains[KEPT], per[DIMS * 16], best = s->least_sum[s->layers];
  natural_weights(s, natural);
  double all = 0;
  for (int u = 0; u < s->units; u++)
    all += natural[u] * s->capacity[s->unit[u].dim];
  s->pairs = 0;
  if (!(all > 0) || s->unit_kinds > DIMS * 16)
    return best;
  /* A bound of many slices is worth fewer pairs. */
  int64_t slices = (int64_t)s->unit_kinds * s->layers * s->layers / 2;
  size_t every = slices > SLICES_MANY ? 3 : 1;
  int most_tilted = s->units > 1 && every == 1 ? s->units : 1;
  for (int tilted = 0; tilted < most_tilted; tilted++)
    for (int t = 0; t < 3; t++) {
      if ((t == 0 && tilted > 0) || (t > 0 && (s->units == 1 || every > 1)))
        continue;
      double weight[DIMS] = {0}, left = 0;
      memcpy(weight, natural, sizeof natural);
      weight[tilted] *= tilts[t];
      for (int u = 0; u < s->units; u++)
        left += weight[u] * s->capacity[s->unit[u].dim];
      for (size_t m = 0; m < sizeof mus / sizeof *mus; m += every) {
        double mu = mus[m] * s->least_sum[s->layers] / left;
        s->work += slices / SLICES_WORK;
        weigh(s, weight, mu, per);
        best_splits(s, 1, per, 1, s->scratch);
        double v = s->scratch[s->layers] - mu * left;
        keep_pair(s, weight, mu, v, gains);
        best = fmax(best, v);
      }
    }
  return best;
}

static double price_bound(const search *s, int l, double seconds, double rent) {
  double sum = s->least_sum[l], more = s->least_rent[l], least = (seconds + sum) * (rent + more);
  for (int i = 0; i < s->price_pairs; i++) {
    double mu = s->price_mu[i], c = s->price_value[i][l];
    double a = (seconds + fmax(sum, c - mu * more)) * (rent + more),
           b = (seconds + sum) * (rent + fmax(more, (c - sum) / mu));
    least = fmax(least, fmin(a, b));
  }
  return least;
}

static void choose_price_pairs(search *s) {
  static const double mus[KEPT] = {0.03, 0.1, 0.3, 1, 3, 10};
  double per[DIMS * 16], weight[DIMS] = {0};
  s->price_pairs = 0;
  if (!s->priced || s->unit_kinds > DIMS * 16 || !(s->least_rent[s->layers] > 0))
    return;
  for (int u = 0; u < s->units; u++)
    weight[u] = s->unit[u].price;
  for (int i = 0; i < KEPT; i++) {
    double mu = mus[i] * s->least_sum[s->layers] / s->least_rent[s->layers];
    weigh(s, weight, mu, per);
    best_splits(s, 1, per, 1, s->price_value[i]);
    s->price_mu[i] = mu;
    s->price_pairs++;
  }
}

double bound_least_bottleneck(search *s, int b, int width, double most) {
  double low = 0, per[DIMS * 16], natural[DIMS] = {0};
  node n = {.b = b, .width = width, .high = most, .sync_most = INFINITY};
  if (s->unit_kinds > DIMS * 16)
    return 0;
  for (int i = 0; i < 24; i++) {
    double left = 0;
    n.high = i ? (low + most) / 2 : most;
    fill_costs(s, &n);
    if (!i)
      natural_weights(s, natural);
    weigh(s, natural, 1, per);
    best_splits(s, 0, per, 1, s->scratch);
    for (int u = 0; u < s->units; u++)
      left += natural[u] * s->capacity[s->unit[u].dim];
    if (s->scratch[s->layers] > left * (1 + 1e-9)) {
      if (!i)
        return INFINITY;
      low = n.high;
    } else {
      most = n.high;
    }
  }
  return low;
}

/* The kept rows again for stages with others behind them, which hold more micro-batches. */
static void fill_flights(search *s) {
  double per[DIMS * 16];
  size_t rows = ((size_t)s->unit_kinds + 1) * ((size_t)s->layers + 1);
  for (int t = 1; t < s->flights; t++) {
    best_splits(s, 1, NULL, flights[t], s->least_sum + (size_t)t * rows);
    for (int i = 0; i < s->pairs; i++) {
      weigh(s, s->pair_weight[i], s->pair_mu[i], per);
      best_splits(s, 1, per, flights[t], s->pair_value[i] + (size_t)t * rows);
    }
  }
}

double bound_node(search *s, node *n) {
  double per[DIMS * 16] = {0};
  fill_costs(s, n);
  best_splits(s, 1, NULL, 1, s->least_sum);
  if (!(s->least_sum[s->layers] < INFINITY))
    return n->bound = INFINITY;
  for (int k = 0; s->priced && k < s->unit_kinds; k++)
    per[k] = s->unit[s->kind[k].unit].price * s->kind[k].devices;
  if (s->priced)
    best_splits(s, 0, per, 1, s->least_rent);
  double seconds = n->low + n->sync_least + choose_pairs(s), price = 0;
  fill_flights(s);
  choose_price_pairs(s);
  if (s->priced)
    price = fmax(price_bound(s, s->layers, n->low + n->sync_least, 0), seconds * s->least_rent[s->layers]);
  return n->bound = search_value(s, seconds, price);
}

/* Of a row of best_splits, when the stage that ends at the label's layer has its choice. */
static double row_value(const search *s, const double *row, const label *l) {
  int t = s->flights - 1;
  while (flights[t] > l->stages + 1)
    t--;
  row += (size_t)t * ((size_t)s->unit_kinds + 1) * ((size_t)s->layers + 1);
  if (l->next < 0)
    return row[l->layer];
  const choice *c = &s->choice[l->next];
  size_t L1 = (size_t)s->layers + 1;
  double least = INFINITY;
  for (int g = 0; g < c->groups; g++) {
    double v = row[(size_t)(c->kind[g] + 1) * L1 + (size_t)l->layer];
    least = v < least ? v : least;
  }
  return least;
}

int bound_closes(const search *s, const node *n, const label *l, int f) {
  const choice *c = &s->choice[l->next];
  size_t L1 = (size_t)s->layers + 1;
  double seconds = 0;
  int width = c->width;
  for (int g = 0; g < c->groups; g++) {
    size_t at = ((size_t)c->kind[g] * L1 + (size_t)f) * L1 + (size_t)l->layer;
    if (s->cost_width[at] < 0 || (c->width && c->width < s->cost_width[at]) || s->cost_flight[at] <= l->stages)
      return 0;
    seconds = fmax(seconds, s->cost_seconds[at]);
    width = s->cost_width[at] > width ? s->cost_width[at] : width;
  }
  label closed = *l;
  closed.layer = (int16_t)f;
  closed.stages++;
  closed.next = -1;
  closed.sum += seconds;
  for (int g = 0; g < c->groups; g++) {
    const unit *u = &s->unit[s->kind[c->kind[g]].unit];
    int used = closed.used[u->dim] + s->kind[c->kind[g]].devices * (c->width ? c->count[g] : width);
    if (used > s->capacity[u->dim])
      return 0;
    closed.used[u->dim] = (uint16_t)used;
  }
  return bound_label(s, n, &closed) < s->best_value * (1 - ENGINE_EQUAL);
}

double bound_label(const search *s, const node *n, const label *l) {
  double so_far = fmax(l->bottleneck, n->low) + l->sum + fmax(l->sync, n->sync_least) +
                  (s->problem->extra_hidden && l->layer > 0 ? 0 : l->extra);
  double rest = row_value(s, s->least_sum, l);
  for (int i = 0; i < s->pairs; i++) {
    double left = 0;
    for (int u = 0; u < s->units; u++)
      left += s->pair_weight[i][u] * (s->capacity[s->unit[u].dim] - l->used[s->unit[u].dim]);
    double v = row_value(s, s->pair_value[i], l) - s->pair_mu[i] * left;
    rest = v > rest ? v : rest;
  }
  double price = 0;
  if (s->priced) {
    double rent = 0;
    for (int u = 0; u < s->units; u++)
      rent += s->unit[u].price * l->used[s->unit[u].dim];
    price = fmax(price_bound(s, l->layer, so_far, rent), (so_far + rest) * (rent + s->least_rent[l->layer])) + l->money;
  }
  return search_value(s, so_far + rest, price);
}

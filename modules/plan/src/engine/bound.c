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
 * The stages behind a C[L] are a plan where they need no more devices than there are: the node's path.
 *
 * Memory. A stage with s stages behind it holds at least s + 1 micro-batches, and so does every stage before it. Layers
 * [l, L) take at least behind(l) stages in the node, the least number of slices that cover them, each holding what
 * those behind it demand; so a stage that ends at l has at least so many behind it. The rows A and C are kept for some
 * numbers of micro-batches, over the slices that hold so many, or what lies behind their end demands, and by the
 * seconds that they take then.
 *
 * Price. The same with w the rent: sum + mu rent >= C[l]. (T + sum)(R + rent) is concave along that line, so its least
 * is at an end, where either sum or rent is at its own bound. */
#include <string.h>

#include "engine/search.h"

static const int flights[FLIGHTS] = {1, 3, 5, 8, 12, 18}; /* micro-batches that a row of bounds asks slices to hold */

#define SLICES_MANY 30000
#define SPLITS_WORK 256 /* ends of stages looked at that count as one label's work */
#define RANGES_WORK 8   /* ranges likewise */
#define CLIMBS      12  /* steps along the subgradient */

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

/* Least sync of a stage with a replica of kind k and at least this width. Of more replicas than pools two in one pool
 * are neighbours, whichever pool that is quickest in. */
static double least_sync(search *s, int b, int kind, int f, int l, int64_t width) {
  double least = INFINITY;
  if (width <= (s->mixed ? s->all_pools : s->unit[s->kind[kind].unit].pools))
    return 0;
  for (int k = s->mixed ? 0 : kind; k < (s->mixed ? s->unit_kinds : kind + 1); k++)
    least = fmin(least, space_sync_inside(s, b, k, f, l, width));
  return least < INFINITY ? least : 0;
}

/* The row of bounds for stages that hold so many micro-batches, or more. */
static int row_of(const search *s, int flight) {
  int t = s->flights - 1;
  while (flights[t] > flight)
    t--;
  return t;
}

/* The same of stages that end at layer l and hold `flight` or more. */
static int row_at_end(const search *s, int l, int flight) {
  return row_of(s, s->behind[l] >= flight ? s->behind[l] + 1 : flight);
}

static size_t ranges(const search *s) { return (size_t)s->unit_kinds * (size_t)s->reps; }

/* Least number of stages that layers [l, L) take, for every l. */
static void fill_behind(search *s) {
  s->work += (int64_t)s->unit_kinds * s->layers * s->layers / SPLITS_WORK;
  s->behind[s->layers] = 0;
  for (int f = s->layers - 1; f >= 0; f--) {
    s->behind[f] = s->layers - f; /* where nothing fits, no bound either */
    for (int l = s->layers; l > f; l--) {
      const double *seconds = s->cost_seconds + (size_t)row_at_end(s, l, 1) * ranges(s);
      for (int k = 0; k < s->unit_kinds && s->behind[l] + 1 < s->behind[f]; k++) {
        size_t at = (size_t)k * (size_t)s->reps + (size_t)space_range(s, f, l);
        if (s->cost_width[at] > 0 && seconds[at] < INFINITY)
          s->behind[f] = s->behind[l] + 1;
      }
    }
  }
}

/* Seconds and width of every kind on every range; no width where it cannot be. Independent of low and high but for the
 * width, so seconds are kept while b stays. */
static void fill_costs(search *s, const node *n) {
  int tight = 0;
  s->work += (int64_t)s->unit_kinds * s->reps / RANGES_WORK;
  for (int k = 0; k < s->unit_kinds; k++)
    for (int r = 0; r < s->reps; r++) {
      size_t at = (size_t)k * (size_t)s->reps + (size_t)r;
      int f = s->range[r].first, l = s->range[r].last;
      if (s->cost_b != n->b) {
        const engine_point *point;
        int points = space_points(s, n->b, k, f, l, &point);
        int64_t flight = points ? point[points - 1].in_flight : 0;
        double send = points ? least_send(s, n->b, k, f, l) : 0;
        s->cost_flight[at] = (int)(flight < INT32_MAX ? flight : INT32_MAX);
        tight |= points && (flight <= s->layers || points > 1);
        for (int t = 0, i = 0; t < FLIGHTS; t++) {
          while (i < points && point[i].in_flight < flights[t])
            i++;
          s->cost_seconds[(size_t)t * ranges(s) + at] = i < points ? point[i].seconds + send : INFINITY;
        }
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
  fill_behind(s);
}

static double least4(double a, double b, double c, double d) {
  a = a < b ? a : b;
  c = c < d ? c : d;
  return a < c ? a : c;
}

/* Least of cost[rep of [f, l)] + before[f] over f < l. */
static double least_split(const double *cost, const int *rep, const double *before, int l) {
  double a = INFINITY, b = INFINITY, c = INFINITY, d = INFINITY;
  int f = 0;
  for (; f + 4 <= l; f += 4) { /* four chains: one would wait for itself */
    double v0 = cost[rep[f]] + before[f], v1 = cost[rep[f + 1]] + before[f + 1], v2 = cost[rep[f + 2]] + before[f + 2],
           v3 = cost[rep[f + 3]] + before[f + 3];
    a = v0 < a ? v0 : a;
    b = v1 < b ? v1 : b;
    c = v2 < c ? v2 : c;
    d = v3 < d ? v3 : d;
  }
  for (; f < l; f++)
    a = cost[rep[f]] + before[f] < a ? cost[rep[f]] + before[f] : a;
  return least4(a, b, c, d);
}

/* What each kind's ranges cost by sums * seconds + each * width in a row; INFINITY where a range is impossible. */
static void fill_weighed(search *s, double sums, const double *per_replica, int t) {
  const double *seconds = s->cost_seconds + (size_t)t * ranges(s);
  double *cost = s->cost + (size_t)t * ranges(s);
  for (int k = 0; k < s->unit_kinds; k++) {
    size_t row = (size_t)k * (size_t)s->reps;
    double each = per_replica ? per_replica[k] : 0;
    int most = s->mixed ? INT32_MAX : s->unit[s->kind[k].unit].devices / s->kind[k].devices;
    for (size_t r = row; r < row + (size_t)s->reps; r++)
      cost[r] = s->cost_width[r] < 0 || s->cost_width[r] > most || !(seconds[r] < INFINITY)
                    ? INFINITY
                    : sums * seconds[r] + each * s->cost_width[r];
  }
}

/* out[l (K + 1)] for every l; out[l (K + 1) + k + 1]: the same when the last of the stages is of kind k. All hold at
 * least `flight` micro-batches. */
static double best_splits(search *s, double sums, const double *per_replica, int flight, double *out) {
  size_t L1 = (size_t)s->layers + 1, row = (size_t)s->unit_kinds + 1;
  s->work += (int64_t)s->unit_kinds * s->layers * s->layers / SPLITS_WORK;
  unsigned filled = 0; /* rows */
  s->split[0] = out[0] = 0;
  for (size_t k = 1; k < row; k++)
    out[k] = INFINITY;
  for (int l = 1; l <= s->layers; l++) {
    const int *rep = s->rep + (size_t)l * L1;
    int t = row_at_end(s, l, flight);
    const double *cost = s->cost + (size_t)t * ranges(s);
    if (!(filled & 1U << t))
      fill_weighed(s, sums, per_replica, t);
    filled |= 1U << t;
    double least = INFINITY, *at = out + (size_t)l * row;
    for (int k = 0; k < s->unit_kinds; k++) {
      at[k + 1] = least_split(cost + (size_t)k * (size_t)s->reps, rep, s->split, l);
      least = at[k + 1] < least ? at[k + 1] : least;
    }
    s->split[l] = at[0] = least;
  }
  return s->split[s->layers];
}

double bound_sum(const search *s) { return s->least_sum[(size_t)s->layers * ((size_t)s->unit_kinds + 1)]; }
static double least_rent(const search *s) { return s->least_rent[(size_t)s->layers * ((size_t)s->unit_kinds + 1)]; }

static void weigh(const search *s, const double *weight, double mu, double *per_replica) {
  for (int k = 0; k < s->unit_kinds; k++)
    per_replica[k] = mu * weight[s->kind[k].unit] * s->kind[k].devices;
}

/* Devices of a unit weigh what they can do: the reciprocal of the least device-seconds for all layers. */
static void natural_weights(const search *s, double *weight) {
  for (int u = 0; u < s->units; u++) {
    double least = INFINITY;
    for (int k = s->unit[u].first_kind; k < s->unit[u].first_kind + s->unit[u].kinds; k++) {
      double seconds = 0;
      for (int l = 0; l < s->layers; l++)
        seconds += s->cost_seconds[(size_t)k * (size_t)s->reps + (size_t)space_range(s, l, l + 1)];
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

/* The stages behind the value of the last best_splits, and the devices of each unit that they use. Kept as the node's
 * path when the devices suffice and its sum is the least. */
static void trace(search *s, double *used) {
  size_t L1 = (size_t)s->layers + 1, row = (size_t)s->unit_kinds + 1;
  int n = 0, dims[DIMS] = {0}, fits = 1;
  double sum = 0;
  memset(used, 0, DIMS * sizeof *used);
  for (int l = s->layers; l > 0;) {
    const double *at = s->scratch + (size_t)l * row;
    int k = 0, f = 0;
    while (at[k + 1] > at[0])
      k++;
    size_t from = (size_t)row_at_end(s, l, 1) * ranges(s) + (size_t)k * (size_t)s->reps;
    const double *cost = s->cost + from;
    const int *rep = s->rep + (size_t)l * L1;
    while (cost[rep[f]] + s->split[f] > at[k + 1])
      f++;
    int width = s->cost_width[(size_t)k * (size_t)s->reps + (size_t)rep[f]];
    sum += s->cost_seconds[from + (size_t)rep[f]];
    used[s->kind[k].unit] += (double)s->kind[k].devices * width;
    for (int d = 0; d < s->dims; d++) {
      fits &= width <= s->capacity[d];
      dims[d] += s->kind[k].use[d] * (fits ? width : 0);
    }
    s->trial[n++] = (path_stage){f, l, k, width};
    l = f;
  }
  for (int d = 0; d < s->dims; d++)
    fits &= dims[d] <= s->capacity[d];
  if (!fits || (s->path_stages && s->path_sum <= sum))
    return;
  s->path_stages = n;
  s->path_sum = sum;
  for (int i = 0; i < n; i++)
    s->path[i] = s->trial[n - 1 - i];
}

/* The bound with these prices of a device of each unit. */
static double priced_bound(search *s, const double *weight, double mu, double *used) {
  double per[KINDS_BOUNDED], all = 0;
  weigh(s, weight, mu, per);
  for (int u = 0; u < s->units; u++)
    all += weight[u] * s->capacity[s->unit[u].dim];
  double v = best_splits(s, 1, per, 1, s->scratch);
  if (v < INFINITY)
    trace(s, used);
  return v - mu * all;
}

/* Prices of devices that make the bound better still: along the subgradient, what is used beyond what there is, by the
 * step that would lead to `target` (Polyak), halved when it went too far. */
static double climb(search *s, double *at, double best, double target, double *gains) {
  double step = 1, used[DIMS], first = best;
  priced_bound(s, at, 1, used);
  for (int i = 0; i < CLIMBS && target > best; i++) {
    double next[DIMS] = {0}, over[DIMS], square = 0, was[DIMS];
    for (int u = 0; u < s->units; u++) {
      over[u] = used[u] - s->capacity[s->unit[u].dim];
      over[u] = over[u] < 0 && !(at[u] > 0) ? 0 : over[u];
      square += over[u] * over[u];
    }
    if (!(square > 0))
      break;
    for (int u = 0; u < s->units; u++)
      next[u] = fmax(0, at[u] + step * (target - best) / square * over[u]);
    memcpy(was, used, sizeof was);
    double v = priced_bound(s, next, 1, used);
    if (v > best) {
      best = v;
      memcpy(at, next, sizeof next);
    } else {
      step /= 2;
      memcpy(used, was, sizeof used);
    }
  }
  if (best > first) { /* once more, to keep it */
    best = priced_bound(s, at, 1, used);
    keep_pair(s, at, 1, best, gains);
  }
  return best;
}

/* Good pairs of weights and mu for the node: multiples of what devices can do, as it is and tilted, and what better
 * prices are found from the best of them. */
static double choose_pairs(search *s, const node *n) {
  static const double mus[] = {0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 8, 30, 200};
  static const double tilts[] = {1, 0.6, 1.6};
  double natural[DIMS] = {0}, gains[KEPT], used[DIMS], sum = bound_sum(s), best = sum, all = 0, from[DIMS] = {0};
  natural_weights(s, natural);
  for (int u = 0; u < s->units; u++)
    all += natural[u] * s->capacity[s->unit[u].dim];
  s->pairs = s->path_stages = 0;
  if (!(all > 0) || s->unit_kinds > KINDS_BOUNDED)
    return best;
  /* A bound of many slices is worth fewer pairs. */
  size_t every = (int64_t)s->unit_kinds * s->layers * s->layers / 2 > SLICES_MANY ? 3 : 1;
  int most_tilted = s->units > 1 && every == 1 ? s->units : 1;
  for (int tilted = 0; tilted < most_tilted; tilted++)
    for (int t = 0; t < 3; t++) {
      if ((t == 0 && tilted > 0) || (t > 0 && (s->units == 1 || every > 1)))
        continue;
      double weight[DIMS], left = 0;
      memcpy(weight, natural, sizeof natural);
      weight[tilted] *= tilts[t];
      for (int u = 0; u < s->units; u++)
        left += weight[u] * s->capacity[s->unit[u].dim];
      for (size_t m = 0; m < sizeof mus / sizeof *mus; m += every) {
        double mu = mus[m] * sum / left, v = priced_bound(s, weight, mu, used);
        keep_pair(s, weight, mu, v, gains);
        for (int u = 0; v > best && u < s->units; u++)
          from[u] = mu * weight[u];
        best = fmax(best, v);
      }
    }
  double target = s->best ? s->best->seconds - n->low - n->sync_least : INFINITY;
  return best > sum ? climb(s, from, best, fmin(target, 1.2 * best), gains) : best;
}

static double price_bound(const search *s, int l, double seconds, double rent) {
  size_t at = (size_t)l * ((size_t)s->unit_kinds + 1);
  double sum = s->least_sum[at], more = s->least_rent[at], least = (seconds + sum) * (rent + more);
  for (int i = 0; i < s->price_pairs; i++) {
    double mu = s->price_mu[i], c = s->price_value[i][at];
    double a = (seconds + fmax(sum, c - mu * more)) * (rent + more),
           b = (seconds + sum) * (rent + fmax(more, (c - sum) / mu));
    least = fmax(least, fmin(a, b));
  }
  return least;
}

static void choose_price_pairs(search *s) {
  static const double mus[KEPT] = {0.03, 0.1, 0.3, 1, 3, 10};
  double per[KINDS_BOUNDED], weight[DIMS] = {0};
  s->price_pairs = 0;
  if (!s->priced || s->unit_kinds > KINDS_BOUNDED || !(least_rent(s) > 0))
    return;
  for (int u = 0; u < s->units; u++)
    weight[u] = s->unit[u].price;
  for (int i = 0; i < KEPT; i++) {
    double mu = mus[i] * bound_sum(s) / least_rent(s);
    weigh(s, weight, mu, per);
    best_splits(s, 1, per, 1, s->price_value[i]);
    s->price_mu[i] = mu;
    s->price_pairs++;
  }
}

double bound_least_bottleneck(search *s, int b, int width, double most) {
  double low = 0, per[KINDS_BOUNDED], natural[DIMS] = {0};
  node n = {.b = b, .width = width, .high = most, .sync_most = INFINITY};
  if (s->unit_kinds > KINDS_BOUNDED)
    return 0;
  for (int i = 0; i < 24; i++) {
    double left = 0;
    n.high = i ? (low + most) / 2 : most;
    fill_costs(s, &n);
    if (!i)
      natural_weights(s, natural);
    weigh(s, natural, 1, per);
    for (int u = 0; u < s->units; u++)
      left += natural[u] * s->capacity[s->unit[u].dim];
    if (best_splits(s, 0, per, 1, s->scratch) > left * (1 + 1e-9)) {
      if (!i)
        return INFINITY;
      low = n.high;
    } else {
      most = n.high;
    }
  }
  return low;
}

double bound_node(search *s, node *n) {
  double per[KINDS_BOUNDED] = {0};
  fill_costs(s, n);
  if (!(best_splits(s, 1, NULL, 1, s->least_sum) < INFINITY))
    return n->bound = INFINITY;
  for (int k = 0; s->priced && k < s->unit_kinds && k < KINDS_BOUNDED; k++)
    per[k] = s->unit[s->kind[k].unit].price * s->kind[k].devices;
  if (s->priced)
    best_splits(s, 0, per, 1, s->least_rent);
  double seconds = n->seconds = n->low + n->sync_least + choose_pairs(s, n), price = 0;
  choose_price_pairs(s);
  if (s->priced)
    price = fmax(price_bound(s, s->layers, n->low + n->sync_least, 0), seconds * least_rent(s));
  return n->bound = search_value(s, seconds, price);
}

/* The kept rows again for stages with others behind them, which hold more micro-batches. */
void bound_prepare(search *s) {
  double per[KINDS_BOUNDED];
  size_t rows = ((size_t)s->unit_kinds + 1) * ((size_t)s->layers + 1);
  for (int t = 1; t < s->flights; t++)
    best_splits(s, 1, NULL, flights[t], s->least_sum + (size_t)t * rows);
  for (int i = 0; i < s->pairs; i++) {
    weigh(s, s->pair_weight[i], s->pair_mu[i], per);
    memcpy(s->pair_each[i], per, (size_t)s->unit_kinds * sizeof *per);
    s->pair_all[i] = 0;
    for (int u = 0; u < s->units; u++)
      s->pair_all[i] += s->pair_mu[i] * s->pair_weight[i][u] * s->capacity[s->unit[u].dim];
    for (int t = 1; t < s->flights; t++)
      best_splits(s, 1, per, flights[t], s->pair_value[i] + (size_t)t * rows);
  }
}

/* Of rows of best_splits: where the bounds of a label's layer begin. */
static size_t row_at(const search *s, int stages, int layer) {
  int t = row_of(s, stages + 1);
  return ((size_t)t * ((size_t)s->layers + 1) + (size_t)layer) * ((size_t)s->unit_kinds + 1);
}

spent bound_spent(const search *s, const node *n, const label *l) {
  spent o = {.seconds = fmax(l->bottleneck, n->low) + l->sum + fmax(l->sync, n->sync_least) +
                        (s->problem->extra_hidden && l->layer > 0 ? 0 : l->extra) +
                        (l->stages > 0 && l->layer > 0 ? space_ends(s, -1, l->tail) : 0)};
  for (int u = 0; u < s->units; u++) {
    double used = l->used[s->unit[u].dim];
    o.rent += s->priced ? s->unit[u].price * used : 0;
    for (int i = 0; i < s->pairs; i++)
      o.weighed[i] += s->pair_mu[i] * s->pair_weight[i][u] * used;
  }
  return o;
}

static double value_of(const search *s, const spent *o, const label *l, double rest) {
  double price = 0;
  if (s->priced)
    price = fmax(price_bound(s, l->layer, o->seconds, o->rent),
                 (o->seconds + rest) * (o->rent + s->least_rent[(size_t)l->layer * ((size_t)s->unit_kinds + 1)])) +
            l->money;
  return search_value(s, o->seconds + rest, price);
}

double bound_next(const search *s, const spent *o, const label *l, int next) {
  static const choice any = {.groups = 1, .kind = {-1}};
  const choice *c = next < 0 ? &any : &s->choice[next];
  size_t row = row_at(s, l->stages, l->layer);
  double least = INFINITY;
  for (int g = 0; g < c->groups; g++) {
    size_t at = row + (size_t)(c->kind[g] + 1);
    double rest = s->least_sum[at];
    for (int i = 0; i < s->pairs; i++) {
      double v = s->pair_value[i][at] - s->pair_all[i] + o->weighed[i];
      rest = v > rest ? v : rest;
    }
    least = rest < least ? rest : least;
  }
  return value_of(s, o, l, least);
}

double bound_label(const search *s, const node *n, const label *l) {
  spent o = bound_spent(s, n, l);
  return bound_next(s, &o, l, l->next);
}

int bound_closes(const search *s, const spent *so_far, const label *l, int f) {
  const choice *c = &s->choice[l->next];
  size_t range = (size_t)space_range(s, f, l->layer), row = (size_t)row_of(s, l->stages + 1);
  double seconds = 0;
  int width = c->width;
  for (int g = 0; g < c->groups; g++) {
    size_t at = (size_t)c->kind[g] * (size_t)s->reps + range;
    if (s->cost_width[at] < 0 || (c->width && c->width < s->cost_width[at]) || s->cost_flight[at] <= l->stages)
      return 0;
    seconds = fmax(seconds, s->cost_seconds[row * ranges(s) + at]);
    width = s->cost_width[at] > width ? s->cost_width[at] : width;
  }
  label closed = {.layer = (int16_t)f, .stages = (int16_t)(l->stages + 1), .money = l->money};
  spent o = *so_far;
  o.seconds += seconds;
  for (int g = 0; g < c->groups; g++) {
    const unit_kind *k = &s->kind[c->kind[g]];
    int count = c->width ? c->count[g] : width, dim = s->unit[k->unit].dim;
    if (l->used[dim] + k->devices * count > s->capacity[dim])
      return 0;
    o.rent += s->priced ? s->unit[k->unit].price * k->devices * count : 0;
    for (int i = 0; i < s->pairs; i++)
      o.weighed[i] += s->pair_each[i][c->kind[g]] * count;
  }
  return bound_next(s, &o, &closed, -1) < s->best_value * (1 - ENGINE_EQUAL);
}

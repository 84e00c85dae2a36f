/* The best chain of stages on parts of islands is the best of all of them, enumerated without pruning by other code, on
 * random small clusters: every micro-batch and data degree, contiguous split, island, tensor degree and policy of every
 * stage, for each objective. Seconds and bytes of a slice are the narrow API's, links the cost model's; what fits into
 * islands, how micro-batches are shared and what a step takes are written here again. */
#include "plan_test.h"

#include "atoll/parallelizer.h"
#include "cost/cost.h"

enum { ISLANDS = 4, DEGREES = 3, LAYERS = 12, DEPTH = 12 };
#define EVALUATIONS_MOST 800000

typedef struct answer { /* of a slice on a kind under a policy */
  int asked, fits;
  double seconds, extra;
} answer;

typedef struct world {
  const atoll_plan_problem *problem;
  cost_model *cost;
  void *state[ATOLL_POLICIES];
  int L, islands, devices[ISLANDS], share[ISLANDS], first_node[ISLANDS], last_node[ISLANDS]; /* or parts of islands */
  int home[ISLANDS];     /* the island that holds it */
  double price[ISLANDS]; /* per second and device */
  /* of the micro-batch size and data degree at hand */
  int64_t b, G, most;
  int D, partials, leaves; /* the last two: most of any column */
  int64_t boundary;        /* bytes */
  double send[ISLANDS][ISLANDS], swap[ISLANDS][ISLANDS];
  answer memo[ISLANDS][DEGREES][ATOLL_POLICIES][LAYERS][LAYERS + 1][DEPTH + 1];
  /* limits and results */
  int cheapest;
  double max_seconds, max_price, best;
  int64_t evaluated;
} world;

/* Devices of each node of an island divide by the tensor degrees 1, 2, 4; an island of one node only has to hold them.
 */
static int degree(const world *w, int x, int i) {
  int t = 1 << i;
  if (t > w->share[x] || (w->share[x] % t && w->share[x] < w->devices[x]) ||
      atoll_model_config(w->problem->model)->heads % t)
    return 0;
  return t;
}

static const answer *ask(world *w, int x, int i, int policy, int first, int last, int64_t in_flight) {
  answer *a = &w->memo[x][i][policy][first][last][in_flight];
  if (a->asked)
    return a;
  int devices = w->D * degree(w, x, i), per_node = w->share[x] < devices ? w->share[x] : devices, n = 0;
  while (devices % per_node || per_node % degree(w, x, i))
    per_node--;
  atoll_slice_context context = {.in_flight = (int)in_flight,
                                 .partials = w->partials,
                                 .leaves = w->leaves,
                                 .micro_batch = w->b,
                                 .micro_batches = w->G,
                                 .data = w->D};
  atoll_slice_plan point[16];
  double epsilon;
  int64_t missing;
  assert_ok(atoll_parallelizer_grid.plan(w->state[policy], (atoll_slice){first, last},
                                         (atoll_island_shape){w->home[x], devices / per_node, per_node}, &context,
                                         point, 16, &n, &epsilon, &missing, NULL, 0));
  *a = (answer){.asked = 1, .fits = n > 0};
  if (n > 0) {
    assert_int_equal(n, 1);
    assert_int_equal(point[0].tensor, degree(w, x, i));
    a->seconds = point[0].forward + point[0].backward;
    a->extra = point[0].d;
  }
  return a;
}

typedef struct chain { /* stages from the first on */
  int S;
  int island[DEPTH], degree[DEPTH], policy[DEPTH], cut[DEPTH + 1];
} chain;

static void evaluate(world *w, const chain *c) {
  double sum = 0, most = 0, extra = -INFINITY, rent = 0;
  w->evaluated++;
  for (int i = 0; i < c->S; i++) {
    int x = c->island[i];
    int64_t in_flight = c->S - i < w->most ? c->S - i : w->most;
    const answer *a = ask(w, x, c->degree[i], c->policy[i], c->cut[i], c->cut[i + 1], in_flight);
    if (!a->fits)
      return;
    double t = a->seconds;
    if (i + 1 < c->S) {
      int y = c->island[i + 1], here = degree(w, x, c->degree[i]), there = degree(w, y, c->degree[i + 1]);
      t += w->send[x][y] + cost_hand_on(w->cost, w->first_node[y], here, there, w->boundary) +
           cost_hand_on(w->cost, w->first_node[x], there, here, w->boundary);
    }
    extra = fmax(extra, a->extra - sum);
    sum += t;
    most = fmax(most, t);
    rent += w->price[x] * w->D * degree(w, x, c->degree[i]);
  }
  double seconds = (double)(w->most - 1) * most + sum + extra;
  if (c->S > 1)
    seconds += w->swap[c->island[0]][c->island[c->S - 1]];
  double price = seconds * rent;
  if (seconds > w->max_seconds || price > w->max_price)
    return;
  w->best = fmin(w->best, w->cheapest ? price : seconds);
}

static void over_stages(world *w, chain *c, int *left) {
  int i = c->S, first = c->cut[i];
  if (w->evaluated > EVALUATIONS_MOST)
    return;
  for (int x = 0; x < w->islands; x++)
    for (c->degree[i] = 0; c->degree[i] < DEGREES; c->degree[i]++) {
      int width = w->D * degree(w, x, c->degree[i]);
      if (!width || width > left[x])
        continue;
      left[x] -= width;
      c->island[i] = x;
      for (c->policy[i] = 0; c->policy[i] < ATOLL_POLICIES; c->policy[i]++)
        if (atoll_policy_automatic((atoll_policy)c->policy[i]))
          for (int last = first + 1; last <= w->L; last++) {
            int degree_here = c->degree[i], policy_here = c->policy[i];
            c->cut[i + 1] = last;
            c->S = i + 1;
            if (last == w->L)
              evaluate(w, c);
            else if (c->S < DEPTH)
              over_stages(w, c, left);
            c->S = i;
            c->island[i] = x;
            c->degree[i] = degree_here;
            c->policy[i] = policy_here;
          }
      left[x] += width;
    }
}

/* Leaves of the summation tree and the micro-batches of the busiest column. */
static void share_out(world *w) {
  int64_t leaves = w->D;
  while (leaves < 8)
    leaves += w->D;
  leaves = leaves < w->G ? leaves : w->G;
  atoll_plan tree = {.micro_batches = w->G, .sum_leaves = leaves};
  w->most = 0;
  w->partials = 1;
  w->leaves = (int)((leaves + w->D - 1) / w->D);
  for (int64_t d = 0, leaf = 0; d < w->D; d++) {
    int64_t share = leaves / w->D + (d < leaves % w->D), first = leaf * w->G / leaves;
    int64_t n = (leaf + share) * w->G / leaves - first;
    int partials = atoll_plan_partials(&tree, first, n);
    w->most = n > w->most ? n : w->most;
    w->partials = partials > w->partials ? partials : w->partials;
    leaf += share;
  }
}

static void enumerate(world *w) {
  int64_t batch = w->problem->global_batch;
  int widest = 0;
  for (int x = 0; x < w->islands; x++)
    widest = w->devices[x] > widest ? w->devices[x] : widest;
  for (w->b = 1; w->b <= batch; w->b++)
    for (w->D = 1; w->D <= widest && w->D <= batch / w->b && batch % w->b == 0; w->D++) {
      w->G = batch / w->b;
      share_out(w);
      memset(w->memo, 0, sizeof w->memo);
      assert_ok(cost_boundary_bytes(w->problem->model, 0, w->b, w->problem->seq, &w->boundary));
      for (int x = 0; x < w->islands; x++)
        for (int y = 0; y < w->islands; y++) {
          int other = x == y ? w->last_node[x] : w->first_node[y];
          const atoll_model_params *m = atoll_model_config(w->problem->model);
          w->send[x][y] = 2 * cost_send(w->cost, w->first_node[x], other, w->boundary);
          w->swap[x][y] = cost_tied(w->cost, w->first_node[x], other, 4 * m->vocab * m->width,
                                    fmin(cost_bandwidth(w->cost, w->home[x]), cost_bandwidth(w->cost, w->home[y])));
        }
      chain c = {0};
      int left[ISLANDS];
      memcpy(left, w->devices, sizeof left);
      over_stages(w, &c, left);
    }
}

static int common(int a, int b) { return b ? common(b, a % b) : a; }

/* Islands as they are, or cut into parts of nodes with equally many devices. 0: there is nothing to cut. */
static int look_at(world *w, const test_cluster *c, int cut, double scale) {
  const atoll_topo *t = &c->topo;
  int uneven = 0;
  w->islands = 0;
  for (int i = 0; i < t->nodes; i++) {
    int x = 0, home = c->islands.island_of[t->node[i].first_device], n = t->node[i].devices;
    while (x < w->islands && (w->home[x] != home || (cut && w->share[x] != n)))
      x++;
    if (x == w->islands) {
      w->islands++;
      w->home[x] = home;
      w->devices[x] = w->share[x] = 0;
      w->first_node[x] = i;
      w->price[x] = scale * (1 + home) / 3600;
    }
    uneven |= w->share[x] && w->share[x] != n;
    w->share[x] = common(w->share[x], n);
    w->devices[x] += n;
    w->last_node[x] = i;
    t->node[i].price = scale * (1 + home);
  }
  return uneven;
}

/* The best of what both ways to see the cluster allow; parts are left to the search device by device where it is made.
 */
static void enumerate_all(world *w, const test_cluster *c, int cut, double scale) {
  w->best = INFINITY;
  w->evaluated = 0;
  int uneven = look_at(w, c, 0, scale);
  enumerate(w);
  if (uneven && cut) {
    look_at(w, c, 1, scale);
    enumerate(w);
  }
}

typedef struct tally {
  int cases, feasible, tensor, skipped;
  int64_t evaluated;
} tally;

static void compare(world *w, const test_cluster *c, double scale, uint64_t seed, const char *what,
                    atoll_plan_params *params, tally *t) {
  atoll_plan *plan = NULL;
  atoll_plan_report *report = NULL;
  enumerate_all(w, c, params->objective == 1 || params->max_price > 0, scale);
  if (w->evaluated > EVALUATIONS_MOST) {
    t->skipped++;
    return;
  }
  atoll_err err = atoll_plan_make(w->problem, params, &plan, &report);
  t->cases++;
  t->evaluated += w->evaluated;
  if (err != ATOLL_OK && err != ATOLL_INFEASIBLE)
    fail_msg("seed %" PRIu64 ", %s: %s", seed, what, atoll_err_message());
  double got = report ? report->composed : NAN;
  if (isnan(got) != isinf(w->best) || (!isnan(got) && fabs(got / w->best - 1) > 1e-9))
    fail_msg("seed %" PRIu64 ", %s: %.17g, enumerated %.17g (%" PRId64 " chains): %s", seed, what, got, w->best,
             w->evaluated, err == ATOLL_OK ? "" : atoll_err_message());
  if (plan) {
    assert_ok(atoll_plan_check(plan, w->problem->model));
    assert_ok(atoll_plan_fits(plan, w->problem->model, w->problem->islands, plan->world));
    t->feasible++;
    t->tensor += plan->pipeline[0].stage[0].replica[0].tensor > 1;
  }
  atoll_plan_destroy(&plan);
  atoll_plan_report_destroy(&report);
}

static void one(uint64_t seed, tally *t) {
  static world w;
  uint64_t r = seed;
  test_node node[4];
  int nodes = 1 + (int)(test_random(&r) % 4), left = 3 + (int)(test_random(&r) % 10);
  char names[3][2] = {"p", "q", "r"};
  for (int i = 0; i < nodes; i++) {
    int kind = (int)(test_random(&r) % 3);
    node[i] = (test_node){names[kind], 1 + (int)(test_random(&r) % 4),
                          (int64_t)((400 + test_random(&r) % 4000) << 10) * (test_random(&r) % 3 ? 4 : 1),
                          2 + (double)(test_random(&r) % 30), 1 + (double)(test_random(&r) % 10)};
    for (int k = 0; k < i; k++)
      if (node[k].model == node[i].model) {
        node[i].memory = node[k].memory;
        node[i].gflops = node[k].gflops;
        node[i].bandwidth = node[k].bandwidth;
      }
    node[i].devices = node[i].devices < left ? node[i].devices : left > 0 ? left : 1;
    left -= node[i].devices;
  }
  int64_t width = 32 + 16 * (int64_t)(test_random(&r) % 3);
  double in = 0.5 + (double)(test_random(&r) % 10), out = 0.001 * pow(2, (double)(test_random(&r) % 10));
  const int64_t batches[] = {2, 4, 6, 8, 12};
  int64_t batch = batches[test_random(&r) % 5], fixed = (int64_t)(test_random(&r) % 100) << 10;
  double scale = 1 + (double)(test_random(&r) % 5);
  for (int64_t blocks = 1 + (int64_t)(test_random(&r) % (LAYERS - 2)); blocks >= 1; blocks--) {
    atoll_model *m = test_model(blocks, width);
    test_cluster c;
    test_cluster_make(&c, node, nodes, in, out);
    atoll_plan_problem problem = test_problem(m, &c, batch);
    problem.fixed_bytes = fixed;
    atoll_plan_params params;
    atoll_plan_params_init(&params);
    params.target = 1; /* of grid the same axes as for train, but never device by device */
    memset(&w, 0, sizeof w);
    w.problem = &problem;
    w.L = atoll_model_layers(m);
    w.max_seconds = w.max_price = INFINITY;
    assert_ok(cost_create(&problem, &w.cost));
    atoll_plan_params named[ATOLL_POLICIES]; /* borrowed until the end of each state */
    for (int p = 0; p < ATOLL_POLICIES; p++) {
      named[p] = params;
      snprintf(named[p].policy, sizeof named[p].policy, "%s", atoll_policy_name((atoll_policy)p));
      assert_ok(atoll_parallelizer_grid.begin(&problem, &named[p], &w.state[p]));
    }
    int before = t->skipped;
    compare(&w, &c, scale, seed, "throughput", &params, t);
    double fastest = w.best;
    if (t->skipped == before && fastest < INFINITY) {
      w.cheapest = params.objective = 1;
      w.max_seconds = 1.5 * fastest;
      params.min_throughput = (double)(batch * problem.seq) / w.max_seconds;
      compare(&w, &c, scale, seed, "price", &params, t);
      double price = w.best;
      w.cheapest = params.objective = 0;
      params.min_throughput = 0;
      w.max_seconds = INFINITY;
      params.max_price = w.max_price = 1.2 * price;
      compare(&w, &c, scale, seed, "throughput under a price", &params, t);
    }
    for (int p = 0; p < ATOLL_POLICIES; p++)
      atoll_parallelizer_grid.end(&w.state[p]);
    cost_destroy(&w.cost);
    atoll_model_destroy(&m);
    test_cluster_free(&c);
    if (t->skipped == before)
      return;
  }
}

static uint64_t seeds;

static void test(void **state) {
  (void)state;
  tally t = {0, 0, 0, 0, 0};
  int n = 0;
  for (uint64_t seed = 1; seed <= seeds; seed++)
    if (test_wants(seed)) {
      one(seed, &t);
      n++;
    }
  print_message("%d problems on %d clusters, %d with a plan, %d of them with tensor parallelism, %" PRId64
                " chains enumerated\n",
                t.cases, n, t.feasible, t.tensor, t.evaluated);
  assert_true(n == 1 || (t.cases > 2 * n && t.feasible > n && t.feasible < t.cases && t.tensor > n / 20));
}

int main(int argc, char **argv) {
  seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 40;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

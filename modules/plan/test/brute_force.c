/* The composer's plan is as fast as the fastest of all plans, enumerated without pruning by other code, on random small
 * clusters: every micro-batch, depth, width, sequence of islands per replica, tensor degree per stage, sharing of the
 * summation tree's leaves, contiguous split, policy per stage and way of placing columns on nodes. Only the costs of a
 * layer, a message and a sum are the room's own; schedule, memory and enumeration are written here again. */
#include "plan_test.h"

#include "atoll/comm.h"
#include "cost/cost.h"

enum { MOST = 6, LAYERS_MOST = 8, G_MOST = 16 };

typedef struct world {
  const atoll_plan_problem *problem;
  cost_model *cost;
  double share; /* plan.memory_share */
  int L, islands, devices[MOST], device[MOST][MOST];
  double best;
  int tensor; /* of the best: some stage is divided */
  int64_t evaluated, fit;
} world;

typedef struct plan_at { /* one complete plan */
  int64_t b, G, leaves;
  int S, D;
  int island[MOST][MOST]; /* [column][stage] */
  int tensor[MOST];       /* [stage] */
  int64_t share[MOST];
  int cut[MOST + 1], policy[MOST], layout;
} plan_at;

/* A node for each replica, all of whose devices stand there: of stages of the largest degree first, each on the first
 * node of its island with room. 0: there is none. */
static int place(const world *w, const plan_at *p, int node[MOST][MOST]) {
  const atoll_topo *t = w->problem->topo;
  int left[MOST][MOST] = {{0}}; /* [island][node] */
  for (int x = 0; x < w->islands; x++)
    for (int i = 0; i < w->devices[x]; i++)
      left[x][t->device[w->device[x][i]].node]++;
  for (int degree = MOST; degree >= 1; degree--)
    for (int i = 0; i < p->S * p->D; i++) {
      int c = p->layout ? i % p->D : i / p->S, s = p->layout ? i / p->D : i % p->S, n = 0;
      if (p->tensor[s] != degree)
        continue;
      while (n < t->nodes && left[p->island[c][s]][n] < degree)
        n++;
      if (n == t->nodes)
        return 0;
      left[p->island[c][s]][n] -= degree;
      node[c][s] = n;
    }
  return 1;
}

static int64_t held_by_rank(const atoll_model *m, int first, int last, int tensor) {
  int64_t values = 0;
  for (int l = first; l < last; l++) {
    int index[32], n = atoll_model_layer_params(m, l, index, 32);
    for (int i = 0; i < n; i++) {
      atoll_tensor block[ATOLL_LAYER_BLOCKS];
      int blocks;
      assert_ok(atoll_layer_blocks(m, index[i], 0, tensor, ATOLL_MLP_PLAIN, block, &blocks));
      for (int k = 0; k < blocks; k++)
        values += atoll_tensor_local_count(&block[k]);
    }
  }
  return 4 * values;
}

/* Finish of every stage of one column, by relaxation to a fixed point: nothing of the room's way of sweeping. */
static void column_times(int S, int n, const double *f, const double *b, double *const send[2], double *finish) {
  static double ready[2][MOST][G_MOST], done[2][MOST][G_MOST];
  for (int d = 0; d < 2; d++)
    for (int s = 0; s < S; s++)
      for (int g = 0; g < n; g++)
        ready[d][s][g] = done[d][s][g] = 0;
  for (int changed = 1; changed;) {
    changed = 0;
    for (int s = 0; s < S; s++) {
      int w = S - s < n ? S - s : n;
      double clock = 0;
      for (int k = 0, nf = 0, nb = 0; k < 2 * n; k++) {
        int back = !(nf < n && nf < w + nb); /* w forwards ahead of the backwards at most */
        int g = back ? nb++ : nf++;
        double input = back ? (s == S - 1 ? done[0][s][g] : ready[1][s][g]) : ready[0][s][g];
        clock = fmax(clock, input) + (back ? b[s] : f[s]);
        changed |= done[back][s][g] != clock;
        done[back][s][g] = clock;
      }
      double way[2] = {0, 0};
      for (int g = 0; g < n; g++)
        for (int back = 0; back < 2; back++) {
          int to = back ? s - 1 : s + 1;
          if (to < 0 || to >= S)
            continue;
          way[back] = fmax(way[back], done[back][s][g]) + send[back][back ? to : s];
          changed |= ready[back][to][g] != way[back];
          ready[back][to][g] = way[back];
        }
    }
  }
  for (int s = 0; s < S; s++)
    finish[s] = done[1][s][n - 1];
}

static void evaluate(world *w, const plan_at *p) {
  int node[MOST][MOST], all[MOST], n_all = 0, divided = 0;
  w->evaluated++;
  if (!place(w, p, node))
    return;
  for (int c = 0; c < p->D; c++)
    for (int s = 0; s < p->S; s++)
      for (int k = 0; k < p->tensor[s]; k++)
        all[n_all++] = node[c][s];
  atoll_plan tree = {.micro_batches = p->G, .sum_leaves = p->leaves};
  double end[MOST] = {0}, update = 0, last = 0, leaf_most[MOST] = {0}, bandwidth[MOST];
  int parts = 0, most_parts = 1;
  int64_t leaf = 0, boundary, gradient[MOST];
  assert_ok(cost_boundary_bytes(w->problem->model, 0, p->b, w->problem->seq, &boundary));
  for (int s = 0; s < p->S; s++) {
    bandwidth[s] = INFINITY;
    gradient[s] = held_by_rank(w->problem->model, p->cut[s], p->cut[s + 1], p->tensor[s]);
    divided |= p->tensor[s] > 1;
  }
  for (int c = 0; c < p->D; c++) {
    int64_t first = leaf * p->G / p->leaves, n = (leaf + p->share[c]) * p->G / p->leaves - first;
    int left = atoll_tree_nodes(p->leaves, leaf, p->share[c], NULL, NULL, 0),
        partials = atoll_plan_partials(&tree, first, n);
    double f[MOST], b[MOST], there[MOST], back[MOST], *const send[] = {there, back}, finish[MOST];
    parts += left;
    most_parts = left > most_parts ? left : most_parts;
    leaf += p->share[c];
    for (int s = 0; s < p->S; s++) {
      int x = p->island[c][s];
      atoll_policy policy[LAYERS_MOST];
      for (int l = 0; l < LAYERS_MOST; l++)
        policy[l] = (atoll_policy)p->policy[s];
      atoll_stage_params sp = {.first = p->cut[s],
                               .last = p->cut[s + 1],
                               .policy = policy,
                               .B = p->b,
                               .S = w->problem->seq,
                               .slots = p->S - s < n ? p->S - s : (int)n,
                               .partials = partials,
                               .train = 1,
                               .tensor = p->tensor[s]};
      int64_t bytes[ATOLL_MEM_CATEGORIES] = {0}, sum = w->problem->checkpoint_bytes + w->problem->fixed_bytes;
      assert_ok(atoll_stage_bytes(w->problem->model, &sp, bytes));
      for (int k = 0; k < ATOLL_MEM_CATEGORIES; k++)
        sum += bytes[k];
      if (sum > (int64_t)((double)w->problem->islands->island[x].memory * w->share))
        return;
      cost_slice t;
      assert_ok(
          cost_of_slice(w->cost, x, p->tensor[s], ATOLL_MLP_PLAIN, p->cut[s], p->cut[s + 1], policy[0], p->b, &t));
      f[s] = t.forward;
      b[s] = t.backward;
      update = fmax(update, t.update);
      bandwidth[s] = fmin(bandwidth[s], cost_bandwidth(w->cost, x));
      leaf_most[s] = fmax(leaf_most[s], (double)p->share[c] * cost_leaf(w->cost, x, gradient[s]));
      if (s + 1 < p->S)
        there[s] = back[s] = cost_send(w->cost, node[c][s], node[c][s + 1], boundary);
      if (s + 1 < p->S) { /* ranks hand on what comes from a stage with more or fewer of them */
        there[s] += cost_hand_on(w->cost, node[c][s + 1], p->tensor[s], p->tensor[s + 1], boundary);
        back[s] += cost_hand_on(w->cost, node[c][s], p->tensor[s + 1], p->tensor[s], boundary);
      }
    }
    column_times(p->S, (int)n, f, b, send, finish);
    for (int s = 0; s < p->S; s++)
      end[s] = fmax(end[s], finish[s]);
  }
  for (int s = 0; s < p->S; s++) {
    int members[MOST];
    for (int c = 0; c < p->D; c++)
      members[c] = node[c][s];
    end[s] += leaf_most[s] + cost_reduce(w->cost, members, p->D, gradient[s], parts, most_parts, bandwidth[s]);
    last = fmax(last, end[s]);
  }
  if (p->S > 1) {
    double most = 0;
    const atoll_model_params *m = atoll_model_config(w->problem->model);
    int a = p->tensor[0], z = p->tensor[p->S - 1], turns = a > z ? (a + z - 1) / z : (z + a - 1) / a;
    for (int c = 0; c < p->D; c++)
      most = fmax(most, turns * cost_tied(w->cost, node[c][0], node[c][p->S - 1], 4 * m->vocab * m->width,
                                          fmin(cost_bandwidth(w->cost, p->island[c][0]),
                                               cost_bandwidth(w->cost, p->island[c][p->S - 1]))));
    last = fmax(last, fmax(end[0], end[p->S - 1]) + most);
  }
  w->fit++;
  double seconds = last + cost_finish(w->cost, all, n_all) + update;
  if (seconds < w->best) {
    w->best = seconds;
    w->tensor = divided;
  }
}

static void over_policies(world *w, plan_at *p, int s) {
  for (p->policy[s] = 0; p->policy[s] < ATOLL_POLICIES; p->policy[s]++) {
    if (!atoll_policy_automatic((atoll_policy)p->policy[s]))
      continue;
    if (s + 1 < p->S)
      over_policies(w, p, s + 1);
    else
      for (p->layout = 0; p->layout < 2; p->layout++)
        evaluate(w, p);
  }
  p->policy[s] = 0;
}

static void over_cuts(world *w, plan_at *p, int s) {
  if (s == p->S) {
    if (p->cut[s] == w->L)
      over_policies(w, p, 0);
    return;
  }
  for (p->cut[s + 1] = p->cut[s] + 1; p->cut[s + 1] <= w->L; p->cut[s + 1]++)
    over_cuts(w, p, s + 1);
}

static void over_shares(world *w, plan_at *p, int c, int64_t left) {
  if (c == p->D - 1) {
    p->share[c] = left;
    over_cuts(w, p, 0);
    return;
  }
  for (p->share[c] = 1; p->share[c] <= left - (p->D - 1 - c); p->share[c]++)
    over_shares(w, p, c + 1, left - p->share[c]);
}

/* Columns in ascending order of their sequences; devices of an island are alike, and a stage has one degree. */
static void over_columns(world *w, plan_at *p, int c, int s, int *left) {
  if (c == p->D) {
    over_shares(w, p, 0, p->leaves);
    return;
  }
  if (s == p->S) {
    if (c > 0)
      for (int i = 0; i < p->S && p->island[c][i] <= p->island[c - 1][i]; i++)
        if (p->island[c][i] < p->island[c - 1][i])
          return;
    over_columns(w, p, c + 1, 0, left);
    return;
  }
  for (int t = c ? p->tensor[s] : 1; t <= (c ? p->tensor[s] : MOST); t++)
    for (int x = 0; x < w->islands && atoll_layer_check_tensor(w->problem->model, t) == ATOLL_OK; x++)
      if (left[x] >= t) {
        left[x] -= t;
        p->island[c][s] = x;
        p->tensor[s] = t;
        over_columns(w, p, c, s + 1, left);
        left[x] += t;
      }
  atoll_err_clear();
}

static void brute_force(world *w) {
  int devices = 0;
  for (int x = 0; x < w->islands; x++)
    devices += w->devices[x];
  for (int64_t b = 1; b <= w->problem->global_batch; b++)
    for (int S = 1; S <= devices && S <= w->L && w->problem->global_batch % b == 0; S++)
      for (int D = 1; D * S <= devices; D++) {
        plan_at p = {.b = b, .G = w->problem->global_batch / b, .S = S, .D = D};
        int left[MOST];
        memcpy(left, w->devices, sizeof left);
        p.leaves = p.G < 8 ? p.G : 8;
        if (D <= p.leaves)
          over_columns(w, &p, 0, 0, left);
      }
}

static void one(uint64_t seed, int *feasible, int *divided) {
  uint64_t r = seed;
  test_node node[3];
  int nodes = 1 + (int)(test_random(&r) % 3), devices = 0;
  char names[3][2] = {"p", "q", "r"};
  atoll_model *m = test_model(1 + (int64_t)(test_random(&r) % 3), 32 + 16 * (int64_t)(test_random(&r) % 3));
  for (int i = 0; i < nodes; i++) {
    int kind = (int)(test_random(&r) % 2);
    node[i] =
        (test_node){names[kind], 1 + (int)(test_random(&r) % 2), 0, kind ? 2 + (double)(test_random(&r) % 30) : 20,
                    kind ? 1 + (double)(test_random(&r) % 10) : 5};
    node[i].memory = (int64_t)((400 + test_random(&r) % 3000) << 10) * (test_random(&r) % 3 ? 4 : 1);
    for (int k = 0; k < i; k++)
      if (node[k].model == node[i].model) {
        node[i].memory = node[k].memory;
        node[i].gflops = node[k].gflops;
        node[i].bandwidth = node[k].bandwidth;
      }
    devices += node[i].devices;
    if (devices > 4) {
      devices -= --node[i].devices;
      node[i].devices = 1;
    }
  }
  test_cluster c;
  test_cluster_make(&c, node, nodes, 0.5 + (double)(test_random(&r) % 10),
                    0.001 * pow(2, (double)(test_random(&r) % 10)));
  const int64_t batches[] = {2, 3, 4, 6, 8};
  atoll_plan_problem problem = test_problem(m, &c, batches[test_random(&r) % 5]);
  problem.fixed_bytes = (int64_t)(test_random(&r) % 100) << 10;
  atoll_plan_params params;
  atoll_plan_params_init(&params);
  world w = {.problem = &problem,
             .share = params.memory_share,
             .L = atoll_model_layers(m),
             .islands = c.islands.count,
             .best = INFINITY};
  for (int x = 0; x < w.islands; x++) {
    w.devices[x] = c.islands.island[x].devices;
    memcpy(w.device[x], c.islands.island[x].device, (size_t)w.devices[x] * sizeof(int));
  }
  assert_ok(cost_create(&problem, &w.cost));
  brute_force(&w);
  atoll_plan *plan = NULL;
  atoll_err err = atoll_plan_make(&problem, &params, &plan, NULL);
  if (err == ATOLL_INFEASIBLE) {
    if (w.fit)
      fail_msg("seed %" PRIu64 ": no plan (%s), but %" PRId64 " of %" PRId64 " fit", seed, atoll_err_message(), w.fit,
               w.evaluated);
  } else {
    if (err != ATOLL_OK)
      fail_msg("seed %" PRIu64 ": %s", seed, atoll_err_message());
    if (fabs(plan->step_seconds / w.best - 1) > 2e-9 || !plan->optimal)
      fail_msg("seed %" PRIu64 ": %.17g s, brute force %.17g s (%" PRId64 " plans), optimal %d", seed,
               plan->step_seconds, w.best, w.evaluated, plan->optimal);
    assert_ok(atoll_plan_check(plan, m));
    assert_ok(atoll_plan_fits(plan, m, &c.islands, plan->world));
    ++*feasible;
    *divided += w.tensor;
  }
  atoll_plan_destroy(&plan);
  cost_destroy(&w.cost);
  atoll_model_destroy(&m);
  test_cluster_free(&c);
}

static uint64_t seeds;

static void test(void **state) {
  (void)state;
  int feasible = 0, divided = 0, n = 0;
  for (uint64_t seed = 1; seed <= seeds; seed++)
    if (test_wants(seed)) {
      one(seed, &feasible, &divided);
      n++;
    }
  print_message("%d clusters, %d with a plan, %d of them with tensor parallelism\n", n, feasible, divided);
  assert_true(n == 1 || (feasible > n / 2 && feasible < n && divided > n / 20)); /* all answers were tried */
}

int main(int argc, char **argv) {
  seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 60;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

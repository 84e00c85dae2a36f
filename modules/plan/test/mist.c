/* The mist parallelizer on small shapes: points are real choices that fit and do not rule each other out, the memory it
 * says is missing is exactly what is missing, thinning keeps its promise, experts are planned, pipelined MLPs cost
 * what they cost elsewhere, and for train it proposes what grid does. */
#include "plan_test.h"

#include "atoll/parallelizer.h"
#include "../src/parallelizers/mist/mist.h"

enum { CAP = 256 };

typedef struct world {
  test_cluster cluster;
  atoll_model *model;
  atoll_plan_problem problem;
  atoll_plan_params params;
  void *state;
  atoll_slice_plan point[CAP];
  int n;
  double epsilon;
  int64_t missing;
  char why[256];
} world;

static void begin(world *w, int nodes, int devices, int64_t memory) {
  test_node node[8];
  for (int i = 0; i < nodes; i++)
    node[i] = (test_node){"G", devices, memory, 10000, 600};
  memset(w, 0, sizeof *w);
  test_cluster_make(&w->cluster, node, nodes, 50, 2);
  for (int i = 0; i < w->cluster.topo.devices; i++)
    w->cluster.topo.device[i].kind = ATOLL_TOPO_GPU;
  for (int i = 0; i < nodes; i++)
    w->cluster.topo.node[i].memory = INT64_C(1) << 34;
  w->model = test_model(6, 64);
  w->problem = test_problem(w->model, &w->cluster, 64);
  atoll_plan_params_init(&w->params);
  w->params.target = 1;
  w->params.memory_share = 1;
}

static void end(world *w) {
  atoll_parallelizer_mist.end(&w->state);
  atoll_model_destroy(&w->model);
  test_cluster_free(&w->cluster);
}

static void ask(world *w, int first, int last, int nodes, int per_node, int cap) {
  const atoll_slice_context x = {.in_flight = 3, .partials = 1, .micro_batch = 4, .micro_batches = 16};
  if (w->state)
    atoll_parallelizer_mist.end(&w->state);
  assert_ok(atoll_parallelizer_mist.begin(&w->problem, &w->params, &w->state));
  assert_ok(atoll_parallelizer_mist.plan(w->state, (atoll_slice){first, last}, (atoll_island_shape){0, nodes, per_node},
                                         &x, w->point, cap, &w->n, &w->epsilon, &w->missing, w->why, sizeof w->why));
}

static void check_points(const world *w, int devices) {
  for (int i = 0; i < w->n; i++) {
    const atoll_slice_plan *p = &w->point[i];
    int64_t sum = 0;
    assert_int_equal(p->data * p->tensor * p->context * p->expert, devices);
    assert_true(p->zero >= 0 && p->zero <= 3 && p->recompute >= 0);
    for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
      sum += p->bytes[c];
    assert_int_equal(sum, p->bytes_peak);
    assert_true(p->bytes_peak <= p->bytes_limit);
    assert_true(p->t > 0 && p->d >= 0 && p->forward > 0 && p->backward > 0);
    assert_true(fabs(p->t - (p->forward + p->backward) / p->data) < 1e-12 * p->t);
    assert_true(i == 0 || (p->t > w->point[i - 1].t && p->d < w->point[i - 1].d));
  }
}

static void plenty_of_memory(void **state) {
  (void)state;
  world w;
  begin(&w, 2, 4, INT64_C(1) << 36);
  ask(&w, 1, 5, 2, 4, CAP);
  assert_true(w.n >= 1 && w.epsilon == 0);
  check_points(&w, 8);
  for (int i = 0; i < w.n; i++) {
    const atoll_slice_plan *p = &w.point[i];
    assert_true(p->recompute == 0 && p->offload_weights == 0 && p->offload_activations == 0 && p->bytes_host == 0);
  }
  /* Without replicas there is nothing to wait for between devices: one device does what its layers cost. */
  ask(&w, 1, 5, 1, 1, CAP);
  assert_int_equal(w.point[0].data, 1);
  assert_int_equal(w.point[0].zero, 0);
  double t = w.point[0].t;
  ask(&w, 1, 3, 1, 1, CAP);
  assert_true(fabs(t - 2 * w.point[0].t) < 1e-9 * t);
  end(&w);
}

/* What is missing is the least that lets something fit, to the byte; on the way there are plans that shard, offload and
 * do layers again. */
static void tight_memory(void **state) {
  (void)state;
  world w;
  int redone = 0, offloaded = 0, sharded = 0;
  begin(&w, 1, 2, INT64_C(1) << 36);
  w.params.memory = 1000;
  ask(&w, 0, 8, 1, 2, CAP);
  assert_int_equal(w.n, 0);
  assert_true(w.missing > 0);
  assert_non_null(strstr(w.why, "layers 0-7 on island"));
  int64_t least = w.params.memory + w.missing;
  w.params.memory = least - 1;
  ask(&w, 0, 8, 1, 2, CAP);
  assert_int_equal(w.n, 0);
  assert_int_equal(w.missing, 1);
  for (int k = 0; k < 12; k++) {
    w.params.memory = least + least * k / 4;
    ask(&w, 0, 8, 1, 2, CAP);
    assert_true(w.n >= 1);
    check_points(&w, 2);
    for (int i = 0; i < w.n; i++) {
      const atoll_slice_plan *p = &w.point[i];
      redone += p->recompute > 0;
      offloaded += p->offload_weights + p->offload_gradients + p->offload_optimizer + p->offload_activations > 0;
      sharded += p->zero > 0;
      assert_true(p->offload_weights == 0 || p->offload_gradients > 0);
      assert_true((p->offload_optimizer > 0) <= (p->bytes_host > 0));
    }
  }
  print_message("%d points do layers again, %d offload, %d shard\n", redone, offloaded, sharded);
  assert_true(redone > 0 && offloaded > 0 && sharded > 0);
  /* A CPU has nowhere to offload to. */
  for (int i = 0; i < w.cluster.topo.devices; i++)
    w.cluster.topo.device[i].kind = ATOLL_TOPO_CPU;
  w.params.memory = least;
  ask(&w, 0, 8, 1, 2, CAP);
  assert_int_equal(w.n, 0);
  end(&w);
}

static void thinned(void **state) {
  (void)state;
  world w;
  int tried = 0;
  begin(&w, 2, 2, INT64_C(1) << 36);
  w.params.memory = 1000;
  ask(&w, 0, 8, 2, 2, CAP);
  int64_t least = w.params.memory + w.missing;
  for (int k = 0; k < 8; k++) {
    w.params.memory = least + least * k / 3;
    ask(&w, 0, 8, 2, 2, CAP);
    atoll_slice_plan whole[CAP];
    int n = w.n;
    memcpy(whole, w.point, (size_t)n * sizeof *whole);
    ask(&w, 0, 8, 2, 2, 2);
    assert_true(w.n <= 2 && (n <= 2) == (w.epsilon == 0));
    check_points(&w, 4);
    tried += n > 2;
    for (int i = 0; i < n; i++) {
      int near = 0;
      for (int q = 0; q < w.n; q++)
        near = near || (w.point[q].t <= (1 + w.epsilon) * whole[i].t * (1 + 1e-12) && w.point[q].t >= whole[i].t &&
                        w.point[q].d <= whole[i].d);
      assert_true(near);
    }
  }
  print_message("%d frontiers thinned\n", tried);
  assert_true(tried > 0);
  end(&w);
}

/* Seconds of a step of two stages, this one in either place. */
static double step(double u, double d, double v, double e, double G, int second) {
  double pace = (G - 1) * fmax(u, v) + u + v;
  return pace + (second ? fmax(e, d - v) : fmax(d, e - u));
}

/* A request stops at what fits with nothing offloaded or done again. Evaluating everything finds points of less d, but
 * no step of any length beside any other stage is shorter for them. */
static void stopping_early_loses_no_step(void **state) {
  (void)state;
  world w;
  uint64_t r = 5;
  int more = 0;
  begin(&w, 1, 1, INT64_C(1) << 36);
  snprintf(w.params.policy, sizeof w.params.policy, "eager_flash");
  ask(&w, 0, 4, 1, 1, CAP);
  static const int64_t range[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const int node[] = {0};
  const atoll_slice_context x = {.in_flight = 3, .partials = 1, .micro_batch = 4, .micro_batches = 16};
  interference neutral;
  mist_slice *slice = NULL;
  mist_mesh mesh = {.data = 1, .tensor = 1, .context = 1, .expert = 1};
  tuner_frontier all = {.least = INT64_MAX};
  cost_model *cost = NULL;
  interference_neutral(&neutral);
  assert_ok(cost_create(&w.problem, &cost));
  const mist_place place = {&w.problem, cost, {0, 1, 1}, node, INT64_C(1) << 34, 12e9, {0, 0}, ATOLL_MLP_PLAIN};
  assert_ok(mist_slice_make(w.model, 0, 4, ATOLL_POLICY_EAGER_FLASH, (memory_moe){0, 0}, &neutral, &slice));
  assert_ok(mist_mesh_price(&place, slice, &x, &mesh));
  const tuner_axis axes[MIST_AXES] = {{NULL, 1, range}, {NULL, 4, range}, {NULL, 9, range},
                                      {NULL, 9, range}, {NULL, 9, range}, {NULL, 9, range}};
  assert_ok(tuner_search(slice->tuner, axes, mesh.fixed, INT64_MAX, 0, &all));
  for (int i = 0; i < 2000; i++) {
    double G = 1 + (double)(test_random(&r) % 40), v = w.point[0].t * (double)(test_random(&r) % 400) / 200;
    double e = w.point[0].d * (double)(test_random(&r) % 400) / 200, best = INFINITY, ours = INFINITY;
    int second = (int)(test_random(&r) % 2);
    for (int p = 0; p < all.count; p++)
      best = fmin(best, step(all.point[p].t, all.point[p].d, v, e, G, second));
    for (int p = 0; p < w.n; p++)
      ours = fmin(ours, step(w.point[p].t, w.point[p].d, v, e, G, second));
    assert_true(ours <= best * (1 + 1e-12));
    more = more > all.count ? more : all.count;
  }
  print_message("%d points for all choices, %d asked for\n", more, w.n);
  tuner_frontier_clear(&all);
  mist_slice_destroy(&slice);
  cost_destroy(&cost);
  end(&w);
}

static double of(const mist_mesh *m, int fixed) { return m->fixed[fixed].value.r; }

static double value(const mist_mesh *m, const atoll_sym *e, int zero) {
  atoll_sym_binding b[MIST_FIXED + MIST_AXES];
  atoll_sym_value v;
  for (int i = 0; i < MIST_FIXED; i++)
    b[i] = (atoll_sym_binding){mist_fixed_name[i], m->fixed[i].value};
  for (int i = 0; i < MIST_AXES; i++)
    b[MIST_FIXED + i] = (atoll_sym_binding){mist_axis_name[i], {ATOLL_SYM_INT, i == AXIS_ZERO ? zero : 0, 0}};
  assert_ok(atoll_sym_eval(e, b, MIST_FIXED + MIST_AXES, &v));
  return v.type == ATOLL_SYM_INT ? (double)v.i : v.r;
}

/* Each of two ranks has a matrix of [64, 256] of four blocks packed for both directions, and tiles. */
static void check_room(const mist_slice *s, const mist_mesh mesh[2], int tensor) {
  double more = value(&mesh[1], s->memory.peak, 0) - value(mesh, s->memory.peak, 0);
  assert_true(tensor > 1 ? more > 4 * 2 * 4 * 64 * 256 : more == 0);
  assert_true(value(&mesh[1], s->memory.bytes[ATOLL_MEM_COMM], 0) - value(mesh, s->memory.bytes[ATOLL_MEM_COMM], 0) ==
              more);
}

/* Every rank packs all it has, whatever of the optimizer is dealt out. */
static void check_packing(const mist_slice *s, const mist_mesh *m) {
  mist_mesh longer = *m;
  longer.fixed[FIX_DATA].value.i = 2;
  for (int zero = 0; zero <= 1; zero++) {
    longer.fixed[FIX_PACK].value.r = 1;
    double one = value(&longer, s->phase.first, zero);
    longer.fixed[FIX_PACK].value.r = 2;
    assert_true(fabs(value(&longer, s->phase.first, zero) - one - 4) < 1e-9);
  }
}

static void pipelined_mlps(void **state) {
  (void)state;
  world w;
  const int node[] = {0, 0};
  const atoll_slice_context x = {.in_flight = 3, .partials = 1, .micro_batch = 4, .micro_batches = 16};
  interference neutral;
  mist_slice *slice = NULL;
  cost_model *cost = NULL;
  begin(&w, 1, 2, INT64_C(1) << 36);
  interference_neutral(&neutral);
  assert_ok(cost_create(&w.problem, &cost));
  assert_ok(mist_slice_make(w.model, 1, 5, ATOLL_POLICY_EAGER_FLASH, (memory_moe){0, 0}, &neutral, &slice));
  for (int tensor = 1; tensor <= 2; tensor++) {
    mist_mesh mesh[2];
    for (int k = 0; k < 2; k++) {
      const mist_place place = {&w.problem,       cost, {0, 1, 2}, node,
                                INT64_C(1) << 34, 12e9, {0, 0},    k ? ATOLL_MLP_CTA : ATOLL_MLP_PLAIN};
      mesh[k] = (mist_mesh){.data = 2 / tensor, .tensor = tensor, .context = 1, .expert = 1};
      assert_ok(mist_mesh_price(&place, slice, &x, &mesh[k]));
    }
    cost_slice want = {.forward = of(mesh, FIX_FORWARD), .backward = of(mesh, FIX_BACKWARD)};
    if (tensor > 1)
      assert_ok(cost_pipeline_mlp(cost, 0, 1, tensor, ATOLL_MLP_CTA, 4, &want));
    assert_true(of(&mesh[1], FIX_FORWARD) == want.forward && of(&mesh[1], FIX_BACKWARD) == want.backward &&
                of(&mesh[1], FIX_UPDATE) == of(mesh, FIX_UPDATE) && of(&mesh[1], FIX_PACK) == want.update);
    check_room(slice, mesh, tensor);
    check_packing(slice, &mesh[1]);
    assert_true((of(&mesh[1], FIX_FORWARD) > of(mesh, FIX_FORWARD)) == (tensor > 1));
    for (int inside = FIX_FORWARD_INSIDE; inside <= FIX_BACKWARD_INSIDE; inside++) /* one sum of two */
      assert_true((of(mesh, inside) > 0) == (tensor > 1) && of(&mesh[1], inside) == of(mesh, inside) / 2);
  }
  mist_slice_destroy(&slice);
  cost_destroy(&cost);
  end(&w);
}

static void experts(void **state) {
  (void)state;
  world w;
  begin(&w, 1, 4, INT64_C(1) << 36);
  ask(&w, 1, 5, 1, 4, CAP);
  double plain = w.point[0].t;
  int64_t parameters = w.point[0].bytes[ATOLL_MEM_PARAMETER];
  w.params.experts = 8;
  w.params.expert_top = 2;
  w.params.memory = 1000;
  ask(&w, 1, 5, 1, 4, CAP);
  int64_t least = w.params.memory + w.missing;
  w.params.memory = 0;
  ask(&w, 1, 5, 1, 4, CAP);
  check_points(&w, 4);
  assert_true(w.point[0].t > plain);
  assert_true(w.point[0].expert > 1 || w.point[0].bytes[ATOLL_MEM_PARAMETER] > 4 * parameters);
  /* Eight experts hardly fit unless they are dealt out. */
  int dealt = 0;
  w.params.memory = least + least / 2;
  ask(&w, 1, 5, 1, 4, CAP);
  check_points(&w, 4);
  for (int i = 0; i < w.n; i++) {
    assert_true(8 % w.point[i].expert == 0);
    dealt = dealt || w.point[i].expert > 1;
  }
  assert_true(dealt);
  w.params.target = 0;
  void *none = NULL;
  assert_refused(ATOLL_USAGE, "train does not execute", atoll_parallelizer_mist.begin(&w.problem, &w.params, &none));
  w.params.target = 1;
  w.params.experts = 1;
  assert_refused(ATOLL_USAGE, "plan.expert_top is 2 of plan.experts 1",
                 atoll_parallelizer_mist.begin(&w.problem, &w.params, &none));
  end(&w);
}

/* From options to a plan: experts are in it by name, so that who cannot execute them refuses it. */
static void whole_plans(void **state) {
  (void)state;
  world w;
  atoll_plan *plan = NULL;
  begin(&w, 2, 4, INT64_C(1) << 36);
  w.params.parallelizer = 2;
  w.problem.global_batch = 32;
  assert_ok(atoll_plan_make(&w.problem, &w.params, &plan, NULL));
  assert_non_null(strstr(plan->source, "mist"));
  assert_string_equal(plan->pipeline[0].stage[0].range[0].mlp, "plain");
  double plain = plan->step_seconds;
  atoll_plan_destroy(&plan);
  w.params.experts = 4;
  assert_ok(atoll_plan_make(&w.problem, &w.params, &plan, NULL));
  assert_ok(atoll_plan_check(plan, w.model));
  assert_string_equal(plan->pipeline[0].stage[0].range[0].mlp, "moe-4-2");
  assert_true(plan->step_seconds > plain);
  atoll_plan_destroy(&plan);
  w.params.parallelizer = 0;
  assert_refused(ATOLL_USAGE, "plan.experts is 4", atoll_plan_make(&w.problem, &w.params, &plan, NULL));
  w.params.parallelizer = 2;
  w.params.target = 0;
  assert_refused(ATOLL_USAGE, "plan.experts is 4", atoll_plan_make(&w.problem, &w.params, &plan, NULL));
  end(&w);
}

static void for_train_it_is_grid(void **state) {
  (void)state;
  world w;
  begin(&w, 1, 2, INT64_C(1) << 36);
  w.params.target = 0;
  ask(&w, 0, 8, 1, 2, CAP);
  const atoll_slice_context x = {.in_flight = 3, .partials = 1, .micro_batch = 4, .micro_batches = 16};
  atoll_slice_plan point[CAP];
  void *grid = NULL;
  int n;
  double epsilon;
  int64_t missing;
  assert_ok(atoll_parallelizer_grid.begin(&w.problem, &w.params, &grid));
  assert_ok(atoll_parallelizer_grid.plan(grid, (atoll_slice){0, 8}, (atoll_island_shape){0, 1, 2}, &x, point, CAP, &n,
                                         &epsilon, &missing, NULL, 0));
  assert_true(n >= 1 && n == w.n);
  for (int i = 0; i < n; i++)
    assert_true(w.point[i].t == point[i].t && w.point[i].d == point[i].d && w.point[i].tensor == point[i].tensor &&
                w.point[i].zero == 0 && w.point[i].recompute == 0);
  atoll_parallelizer_grid.end(&grid);
  end(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plenty_of_memory), cmocka_unit_test(tight_memory),
                                     cmocka_unit_test(thinned),          cmocka_unit_test(stopping_early_loses_no_step),
                                     cmocka_unit_test(pipelined_mlps),   cmocka_unit_test(experts),
                                     cmocka_unit_test(whole_plans),      cmocka_unit_test(for_train_it_is_grid)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

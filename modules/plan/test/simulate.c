/* The simulator against closed forms, steps worked by hand, an independent recursion on random plans, and the planner's
 * own predictions; its events keep the rules of streams; a schedule that stands still is an error. */
#include "plan_made.h"
#include "sim_plan.h"

/* ---- closed forms ------------------------------------------------------------------------------------------------ */

/* Equal stages, free messages: (S - 1 + G) (f + b) (Narayanan et al., 2019). */
static void equal_stages_take_the_closed_form(void **state) {
  (void)state;
  for (int S = 1; S <= 6; S++)
    for (int64_t G = 1; G <= 17; G += 4) {
      atoll_plan *p = sim_plan(1, S, 1, G);
      for (int s = 0; s < S; s++)
        sim_replicas(p, 0, s, 1, 0.25, 0.625);
      atoll_simulation *x = sim_run(p, NULL, NULL);
      assert_near(x->pipeline_seconds, (double)(S - 1 + G) * 0.875);
      assert_near(x->step_seconds, x->pipeline_seconds);
      assert_near(1 - x->bubble_fraction, (double)G / (double)(S - 1 + G));
      atoll_simulation_destroy(&x);
      atoll_plan_destroy(&p);
    }
}

/* v chunks per stage, G a multiple of S: the bubble shrinks v times, (S - 1) (f + b) / v (Narayanan et al., 2021). */
static void interleaved_chunks_divide_the_bubble(void **state) {
  (void)state;
  for (int S = 2; S <= 5; S++)
    for (int v = 2; v <= 4; v++)
      for (int64_t G = S; G <= 4 * S; G += S) {
        atoll_plan *p = sim_plan(1, S, v, G);
        for (int s = 0; s < S; s++)
          sim_replicas(p, 0, s, 1, 1, 2);
        atoll_simulation *x = sim_run(p, NULL, NULL);
        assert_near(x->pipeline_seconds, (double)G * 3 + (S - 1) * 3.0 / v);
        for (int s = 0; s < S; s++) { /* forwards before the first backward, which is what memory must hold */
          int64_t i = s * 2 * v * G, expected = 2 * (S - 1 - s) + (v - 1) * S + 1;
          while (x->event[i].kind == ATOLL_SIM_FORWARD)
            i++;
          assert_int_equal(i - s * 2 * v * G, expected < v * G ? expected : v * G);
        }
        atoll_simulation_destroy(&x);
        atoll_plan_destroy(&p);
      }
}

/* Any number of micro-batches ends, and no sooner than the work of a stage. */
static void interleaved_takes_any_number_of_micro_batches(void **state) {
  (void)state;
  for (int S = 1; S <= 5; S++)
    for (int v = 2; v <= 4; v++)
      for (int64_t G = 1; G <= 3 * S + 2; G++) {
        atoll_plan *p = sim_plan(1, S, v, G);
        for (int s = 0; s < S; s++)
          sim_replicas(p, 0, s, 1, 1, 2);
        atoll_simulation *x = sim_run(p, NULL, NULL);
        assert_true(x->pipeline_seconds > (double)G * 3 - 1e-9);
        assert_int_equal(x->events, 2 * G * S * v);
        atoll_simulation_destroy(&x);
        atoll_plan_destroy(&p);
      }
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static const atoll_sim_event *find(const atoll_simulation *x, int replica, int stream, int kind, int64_t g) {
  for (int64_t i = 0; i < x->events; i++)
    if (x->event[i].replica == replica && x->event[i].stream == stream && x->event[i].kind == kind &&
        x->event[i].micro_batch == g)
      return &x->event[i];
  fail_msg("no %s %d on replica %d", atoll_sim_kind_name((atoll_sim_kind)kind), (int)g, replica);
  return NULL;
}

/* Two stages, f 1 2, b 2 3, a message 0.5, three micro-batches, updates 1 2.
 *   stage 0  F0 0-1   F1 1-2                 B0 7-9 (stage 1's B0 ends 6.5)   F2 9-10  B1 ...
 *   stage 1  F0 1.5-3.5  B0 3.5-6.5  F1 6.5-8.5  B1 8.5-11.5  F2 11.5-13.5  B2 13.5-16.5
 *   stage 0  B0 7-9, F2 9-10, B1 12-14, B2 17-19; updates from 19 on, the longer until 21. */
static void two_stages_by_hand(void **state) {
  (void)state;
  atoll_plan *p = sim_plan(1, 2, 1, 3);
  sim_replicas(p, 0, 0, 1, 1, 2);
  sim_replicas(p, 0, 1, 1, 2, 3);
  p->pipeline[0].stage[0].replica[0].send_seconds = p->pipeline[0].stage[1].replica[0].send_seconds = 0.5;
  p->pipeline[0].stage[0].replica[0].update_seconds = 1;
  p->pipeline[0].stage[1].replica[0].update_seconds = 2;
  atoll_simulation *x = sim_run(p, NULL, NULL);
  assert_near(find(x, 1, ATOLL_SIM_COMPUTE, ATOLL_SIM_FORWARD, 0)->begin, 1.5);
  assert_near(find(x, 1, ATOLL_SIM_COMPUTE, ATOLL_SIM_BACKWARD, 0)->end, 6.5);
  assert_near(find(x, 0, ATOLL_SIM_COMPUTE, ATOLL_SIM_BACKWARD, 0)->begin, 7);
  assert_near(find(x, 0, ATOLL_SIM_COMPUTE, ATOLL_SIM_FORWARD, 2)->begin, 9);
  assert_near(find(x, 0, ATOLL_SIM_COMPUTE, ATOLL_SIM_BACKWARD, 1)->begin, 12);
  assert_near(find(x, 0, ATOLL_SIM_COMPUTE, ATOLL_SIM_BACKWARD, 2)->begin, 17);
  assert_near(find(x, 0, ATOLL_SIM_RECEIVE, ATOLL_SIM_GRADIENT, 2)->begin, 16.5);
  assert_near(find(x, 0, ATOLL_SIM_COMPUTE, ATOLL_SIM_UPDATE, -1)->begin, 19);
  assert_near(x->pipeline_seconds, 19);
  assert_near(x->step_seconds, 21);
  assert_near(x->replica[0].compute, 9);
  assert_near(x->replica[0].bubble, 10);
  assert_near(x->replica[0].send, 1.5);
  assert_near(x->replica[0].receive, 1.5);
  assert_near(x->replica[1].update, 2);
  assert_near(x->bubble_fraction, 1 - 24 / 38.0);
  /* A free network. */
  atoll_simulate_params q;
  atoll_simulation *y = NULL;
  atoll_simulate_params_init(&q);
  q.sends = 0;
  assert_ok(atoll_simulate(p, NULL, &q, &y));
  assert_near(y->pipeline_seconds, 18);
  assert_null(y->event);
  atoll_simulation_destroy(&x);
  atoll_simulation_destroy(&y);
  atoll_plan_destroy(&p);
}

/* Copies beside compute are free until they are longer; then the next computation waits. */
static void copies_delay_what_follows(void **state) {
  (void)state;
  atoll_plan *p = sim_plan(1, 1, 1, 4);
  sim_replicas(p, 0, 0, 1, 1, 2);
  const atoll_sim_copies within = {1, 0.5, 2, 2}, longer = {1.5, 0.5, 2, 2.25};
  atoll_simulation *x = sim_run(p, NULL, &within);
  assert_near(x->pipeline_seconds, 12);
  assert_near(x->replica[0].copy, 4 * 5.5);
  atoll_simulation_destroy(&x);
  x = sim_run(p, NULL, &longer);
  assert_near(x->pipeline_seconds, 4 * 1.5 + 3 * 2.25 + 2); /* nothing follows the last */
  assert_near(find(x, 0, ATOLL_SIM_HOST_OUT, ATOLL_SIM_COPY, 0)->end, 0.5);
  atoll_simulation_destroy(&x);
  atoll_plan_destroy(&p);
}

/* ---- an independent recursion ------------------------------------------------------------------------------------ */

enum { S_MOST = 5, D_MOST = 4, G_MOST = 24 };

/* Ends of every backward by relaxation to a fixed point, for one pipeline of one chunk. */
static double relax(const atoll_plan *p, double end[S_MOST]) {
  static double ready[2][S_MOST][G_MOST], done[2][S_MOST][G_MOST];
  const atoll_plan_pipeline *pipe = &p->pipeline[0];
  int S = pipe->stages;
  memset(ready, 0, sizeof ready);
  memset(done, 0, sizeof done);
  for (int changed = 1; changed;) {
    changed = 0;
    for (int s = 0; s < S; s++)
      for (int k = 0; k < pipe->stage[s].replicas; k++) {
        const atoll_plan_replica *r = &pipe->stage[s].replica[k];
        int64_t n = r->micro_batches, w = pipe->stage[s].in_flight < n ? pipe->stage[s].in_flight : n, nf = 0, nb = 0;
        double clock = 0, way[2] = {0, 0};
        while (nb < n) {
          int back = !(nf < n && nf < w + nb);
          int64_t g = r->first_micro_batch + (back ? nb++ : nf++);
          double input = back ? (s == S - 1 ? done[0][s][g] : ready[1][s][g]) : ready[0][s][g];
          clock = fmax(clock, input) + (back ? r->backward_seconds : r->forward_seconds);
          changed |= done[back][s][g] != clock;
          done[back][s][g] = clock;
        }
        for (int64_t g = r->first_micro_batch; g < r->first_micro_batch + n; g++)
          for (int back = 0; back < 2; back++) {
            int to = back ? s - 1 : s + 1;
            if (to < 0 || to >= S)
              continue;
            const atoll_plan_stage *upper = &pipe->stage[back ? to : s];
            int q = 0;
            while (g >= upper->replica[q].first_micro_batch + upper->replica[q].micro_batches)
              q++;
            way[back] = fmax(way[back], done[back][s][g]) + upper->replica[q].send_seconds;
            changed |= ready[back][to][g] != way[back];
            ready[back][to][g] = way[back];
          }
      }
  }
  double last = 0;
  for (int s = 0; s < S; s++) {
    end[s] = 0;
    for (int64_t g = 0; g < pipe->micro_batches; g++)
      end[s] = fmax(end[s], done[1][s][g]);
    last = fmax(last, end[s]);
  }
  return last;
}

static atoll_plan *random_plan(uint64_t *seed) {
  int S = 1 + test_below(seed, S_MOST);
  int64_t G = 1 + test_below(seed, G_MOST);
  atoll_plan *p = sim_plan(1, S, 1, G);
  for (int s = 0; s < S; s++) {
    int D = 1 + test_below(seed, G < D_MOST ? (int)G : D_MOST);
    sim_replicas(p, 0, s, D, 0, 0);
    p->pipeline[0].stage[s].in_flight = S - s + test_below(seed, 2);
    for (int k = 0; k < D; k++) {
      atoll_plan_replica *r = &p->pipeline[0].stage[s].replica[k];
      r->forward_seconds = 0.1 + test_real(seed);
      r->backward_seconds = 0.1 + 2 * test_real(seed);
      r->send_seconds = test_below(seed, 2) ? test_real(seed) : 0;
      if (k > 0 && r[-1].micro_batches > 1 && test_below(seed, 2)) { /* unequal shares */
        r[-1].micro_batches--;
        r->first_micro_batch--;
        r->micro_batches++;
      }
    }
  }
  for (int s = 1; s < S; s++) /* never more in flight than the stage before, which would stand still */
    if (p->pipeline[0].stage[s].in_flight > p->pipeline[0].stage[s - 1].in_flight)
      p->pipeline[0].stage[s].in_flight = p->pipeline[0].stage[s - 1].in_flight;
  return p;
}

static int stream_class(const atoll_sim_event *e) {
  return e->stream == ATOLL_SIM_COMPUTE || e->stream == ATOLL_SIM_COLLECTIVE ? e->stream
                                                                             : e->stream * ATOLL_SIM_KINDS + e->kind;
}

/* Nothing overlaps on compute or on one direction of sends; everything is computed once and after its input. */
static void keeps_the_rules(const atoll_simulation *x, const atoll_plan *p) {
  double busy[ATOLL_SIM_STREAMS * ATOLL_SIM_KINDS + ATOLL_SIM_KINDS];
  int64_t forwards = 0, backwards = 0, sends = 0, receives = 0;
  for (int64_t i = 0; i < x->events; i++) {
    const atoll_sim_event *e = &x->event[i];
    if (i == 0 || e->replica != e[-1].replica)
      memset(busy, 0, sizeof busy);
    else
      assert_true(e->begin >= e[-1].begin);
    if (e->stream != ATOLL_SIM_RECEIVE) {
      assert_true(e->begin >= busy[stream_class(e)]);
      busy[stream_class(e)] = e->end;
    }
    forwards += e->kind == ATOLL_SIM_FORWARD;
    backwards += e->kind == ATOLL_SIM_BACKWARD;
    sends += e->stream == ATOLL_SIM_SEND;
    receives += e->stream == ATOLL_SIM_RECEIVE;
    if (e->stream == ATOLL_SIM_RECEIVE) {
      const atoll_sim_event *s = find(x, e->peer, ATOLL_SIM_SEND, e->kind, e->micro_batch);
      assert_true(s->begin == e->begin && s->end == e->end && s->peer == e->replica);
      int kind = e->kind == ATOLL_SIM_ACTIVATION ? ATOLL_SIM_FORWARD : ATOLL_SIM_BACKWARD;
      assert_true(find(x, e->replica, ATOLL_SIM_COMPUTE, kind, e->micro_batch)->begin >= e->end);
      assert_true(find(x, e->peer, ATOLL_SIM_COMPUTE, kind, e->micro_batch)->end <= e->begin);
    }
  }
  assert_int_equal(forwards, p->micro_batches * p->pipeline[0].stages);
  assert_int_equal(backwards, forwards);
  assert_int_equal(sends, receives);
}

static void random_plans_agree_with_a_recursion(void **state) {
  (void)state;
  int uneven = 0;
  for (uint64_t i = 1; i <= 400; i++) {
    uint64_t seed = i;
    atoll_plan *p = random_plan(&seed);
    double end[S_MOST], last = relax(p, end);
    atoll_simulation *x = sim_run(p, NULL, NULL);
    if (fabs(last - x->pipeline_seconds) > 1e-12 * last)
      fail_msg("seed %" PRIu64 ": %.17g, the recursion says %.17g", i, x->pipeline_seconds, last);
    double mine[S_MOST] = {0};
    for (int k = 0; k < x->replicas; k++)
      mine[x->replica[k].stage] = fmax(mine[x->replica[k].stage], x->replica[k].last_backward);
    for (int s = 0; s < p->pipeline[0].stages; s++)
      assert_near(mine[s], end[s]);
    keeps_the_rules(x, p);
    uneven += p->pipeline[0].stage[0].replicas != p->pipeline[0].stage[p->pipeline[0].stages - 1].replicas;
    atoll_simulation_destroy(&x);
    atoll_plan_destroy(&p);
  }
  assert_true(uneven > 50);
}

/* ---- with the costs of a cluster --------------------------------------------------------------------------------- */

/* A plan's own prediction is found again, over random clusters and models. */
static void predictions_are_found_again(void **state) {
  (void)state;
  for (uint64_t i = 1; i <= 25; i++) {
    uint64_t seed = i;
    const test_node node[] = {{"fast", 1 + test_below(&seed, 3), INT64_C(1) << 30, 100, 20},
                              {"slow", 1 + test_below(&seed, 3), INT64_C(1) << 30, 20 + test_below(&seed, 60), 10}};
    test_cluster c;
    atoll_plan_params params;
    atoll_plan *plan = NULL;
    test_cluster_make(&c, node, 2, 5, 0.2 + test_real(&seed));
    atoll_model *m = test_model(3 + test_below(&seed, 6), 64);
    atoll_plan_problem problem = test_problem(m, &c, 16);
    atoll_plan_params_init(&params);
    params.stages = test_below(&seed, 3);
    params.micro_batch = 1 << test_below(&seed, 3);
    params.target = i % 2; /* both searches: no update before all sums */
    atoll_err err = atoll_plan_make(&problem, &params, &plan, NULL);
    if (err == ATOLL_OK) {
      atoll_simulation *x = sim_run(plan, &problem, NULL);
      assert_near(x->step_seconds, plan->step_seconds);
      assert_true(fabs(x->bubble_fraction - plan->bubble_fraction) < 1e-9);
      atoll_simulation_destroy(&x);
    } else {
      assert_int_equal(err, ATOLL_USAGE);
    }
    atoll_plan_destroy(&plan);
    atoll_model_destroy(&m);
    test_cluster_free(&c);
  }
}

/* Sums follow the slowest replica of a stage, tied tensors both stages, updates everybody. */
static void sums_wait_for_all(void **state) {
  (void)state;
  made m;
  made_begin(&m);
  atoll_simulation *x = sim_run(m.plan, &m.problem, NULL);
  int sums = 0, tied = 0;
  double last = 0, finish = 0;
  for (int64_t i = 0; i < x->events; i++) {
    const atoll_sim_event *e = &x->event[i];
    const atoll_sim_replica *r = &x->replica[e->replica];
    for (int k = 0; k < x->replicas; k++)
      if (e->kind == ATOLL_SIM_REDUCE && x->replica[k].stage == r->stage)
        assert_true(e->begin >= x->replica[k].last_backward);
    sums += e->kind == ATOLL_SIM_REDUCE;
    tied += e->kind == ATOLL_SIM_TIED;
    last = e->kind == ATOLL_SIM_REDUCE || e->kind == ATOLL_SIM_TIED ? fmax(last, e->end) : last;
    finish = e->kind == ATOLL_SIM_FINISH ? e->end : finish;
  }
  assert_int_equal(sums, 4);
  assert_int_equal(tied, 4);
  for (int k = 0; k < x->replicas; k++) {
    assert_true(find(x, k, ATOLL_SIM_COLLECTIVE, ATOLL_SIM_FINISH, -1)->begin >= last);
    assert_true(find(x, k, ATOLL_SIM_COMPUTE, ATOLL_SIM_UPDATE, -1)->begin == finish);
  }
  atoll_simulation_destroy(&x);
  made_end(&m);
}

/* Tensor ranks hold tied tensors whole: swapped side by side where the degrees are equal, in turns where they are not.
 */
static void tied_tensors_are_whole_on_tensor_ranks(void **state) {
  (void)state;
  made m;
  double seconds[3];
  made_begin(&m);
  for (int wide = 0; wide < 3; wide++) {
    for (int s = 0; s < 2; s++)
      for (int k = 0; k < 2; k++) /* degrees alone: the ranks stay where they are */
        m.plan->pipeline[0].stage[s].replica[k].tensor = wide == 1 || (wide == 2 && s == 0) ? 2 : 1;
    atoll_simulation *x = sim_run(m.plan, &m.problem, NULL);
    const atoll_sim_event *e = find(x, 0, ATOLL_SIM_COLLECTIVE, ATOLL_SIM_TIED, -1);
    seconds[wide] = e->end - e->begin;
    atoll_simulation_destroy(&x);
  }
  made_end(&m);
  assert_true(fabs(seconds[1] / seconds[0] - 1) < 1e-9 && fabs(seconds[2] / seconds[0] - 2) < 1e-9);
}

/* Shares in host memory are copied, per micro-batch, and take their time where they are long. */
static void offloaded_shares_are_copied(void **state) {
  (void)state;
  made m;
  made_begin(&m);
  atoll_simulation *x = sim_run(m.plan, &m.problem, NULL), *y;
  for (int k = 0; k < x->replicas; k++)
    assert_true(x->replica[k].copy == 0);
  atoll_plan_stage *stage = &m.plan->pipeline[0].stage[1];
  stage->range[0].offload_weights = 0.5;
  stage->range[0].offload_gradients = 0.25;
  double bytes = 0; /* 4 per parameter of the layers */
  for (int i = 0; i < atoll_model_params_count(m.model); i++) {
    const atoll_model_param *p = atoll_model_param_at(m.model, i);
    double n = 4;
    for (int d = 0; d < p->ndim; d++)
      n *= (double)p->shape[d];
    if ((p->layer >= stage->range[0].first && p->layer < stage->range[0].last) ||
        (p->tied_layer >= stage->range[0].first && p->tied_layer < stage->range[0].last))
      bytes += n;
  }
  y = sim_run(m.plan, &m.problem, NULL);
  for (int k = 0; k < y->replicas; k++) {
    const atoll_plan_replica *r = &stage->replica[y->replica[k].replica];
    double expected = y->replica[k].stage == 1 ? (double)r->micro_batches * bytes * (0.5 + 0.75 + 0.25) / 12e9 : 0;
    assert_true(fabs(y->replica[k].copy - expected) <= 1e-9 * expected);
  }
  double without = y->replica[y->replicas - 1].copy;
  atoll_simulation_destroy(&y);
  stage->range[0].offload_activations = 1;
  y = sim_run(m.plan, &m.problem, NULL);
  assert_true(y->replica[y->replicas - 1].copy > without);
  assert_true(y->step_seconds >= x->step_seconds);
  atoll_simulation_destroy(&x);
  atoll_simulation_destroy(&y);
  made_end(&m);
}

/* Two pipelines cut differently: what each layer's owners hold is summed over both, after the slower one. */
static void pipelines_sum_layers_together(void **state) {
  (void)state;
  const test_node node[] = {{"n", 5, INT64_C(1) << 30, 100, 20}};
  test_cluster c;
  test_cluster_make(&c, node, 1, 5, 1);
  atoll_model *m = test_model(2, 64); /* embedding, two blocks, head */
  atoll_plan_problem problem = test_problem(m, &c, 8);
  atoll_plan *p = sim_plan(2, 2, 1, 4);
  const int cut[] = {1, 3};
  for (int q = 0; q < 2; q++) {
    sim_replicas(p, q, 0, 1, 1e-3, 1e-3 * (1 + q));
    sim_replicas(p, q, 1, 1, 1e-3, 1e-3);
    p->pipeline[q].stage[0].chunk[0] = (atoll_plan_chunk){0, cut[q]};
    p->pipeline[q].stage[1].chunk[0] = (atoll_plan_chunk){cut[q], 4};
  }
  p->sum_leaves = 2;
  atoll_simulation *x = sim_run(p, &problem, NULL);
  int sums[4] = {0};
  double slow = x->replica[2].last_backward, busy[4] = {0};
  assert_true(slow > x->replica[0].last_backward);
  for (int64_t i = 0; i < x->events; i++)
    if (x->event[i].kind == ATOLL_SIM_REDUCE) {
      sums[x->event[i].replica]++;
      assert_true(x->event[i].begin >= busy[x->event[i].replica]);
      busy[x->event[i].replica] = x->event[i].end;
      assert_true(x->event[i].begin >= slow || x->event[i].replica % 2); /* stage 0 of both with the slower one */
    }
  /* Layer 0 | layers 1 2 | layer 3: the second with stage 1 of pipeline 0 and stage 0 of pipeline 1. */
  const int expected[] = {1, 2, 2, 1};
  assert_memory_equal(sums, expected, sizeof sums);
  assert_true(x->step_seconds > slow);
  atoll_simulation_destroy(&x);
  atoll_plan_destroy(&p);
  atoll_model_destroy(&m);
  test_cluster_free(&c);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refuses_and_names(void **state) {
  (void)state;
  atoll_simulate_params q;
  atoll_simulate_params_init(&q);
  atoll_simulation *x = NULL;
  char *text = NULL;
  size_t n = 0;
  atoll_plan *p = sim_plan(1, 2, 1, 4);
  sim_replicas(p, 0, 0, 1, 1, 2);
  sim_replicas(p, 0, 1, 1, 1, 2);
  /* Stage 1 wants two forwards before its first backward, stage 0 holds one micro-batch. */
  p->pipeline[0].stage[0].in_flight = 1;
  p->pipeline[0].stage[1].in_flight = 2;
  assert_refused(ATOLL_CORRUPT,
                 "rank 0 (stage 0) waits to run backward of micro-batch 0 until rank 1; "
                 "rank 1 (stage 1) waits to run forward of micro-batch 1 until rank 0",
                 atoll_simulate(p, NULL, &q, &x));
  assert_refused(ATOLL_CORRUPT, "stands still", atoll_plan_check(p, NULL));
  p->pipeline[0].stage[0].in_flight = 2;
  assert_ok(atoll_plan_check(p, NULL));
  assert_ok(atoll_simulate(p, NULL, &q, &x));
  assert_refused(ATOLL_USAGE, "no events", atoll_simulation_trace(x, p, NULL, 0, &text, &n));
  assert_refused(ATOLL_USAGE, "no events", atoll_simulation_gantt(x, p, NULL, "", &text, &n));
  atoll_simulation_destroy(&x);
  p->pipeline[0].stage[1].replica[0].backward_seconds = 0;
  assert_refused(ATOLL_USAGE, "pipeline 0 stage 1 replica 0 has no predicted times", atoll_simulate(p, NULL, &q, &x));
  p->pipeline[0].stage[1].replica[0].backward_seconds = NAN;
  assert_refused(ATOLL_USAGE, "backward nan s", atoll_simulate(p, NULL, &q, &x));
  p->pipeline[0].stage[1].replica[0].backward_seconds = 1;
  p->pipeline[0].stage[1].replica[0].send_seconds = -1;
  assert_refused(ATOLL_USAGE, "send -1 s", atoll_simulate(p, NULL, &q, &x));
  assert_null(x);
  atoll_plan_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_stages_take_the_closed_form),
      cmocka_unit_test(interleaved_chunks_divide_the_bubble),
      cmocka_unit_test(interleaved_takes_any_number_of_micro_batches),
      cmocka_unit_test(two_stages_by_hand),
      cmocka_unit_test(copies_delay_what_follows),
      cmocka_unit_test(random_plans_agree_with_a_recursion),
      cmocka_unit_test(predictions_are_found_again),
      cmocka_unit_test(sums_wait_for_all),
      cmocka_unit_test(tied_tensors_are_whole_on_tensor_ranks),
      cmocka_unit_test(offloaded_shares_are_copied),
      cmocka_unit_test(pipelines_sum_layers_together),
      cmocka_unit_test(refuses_and_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

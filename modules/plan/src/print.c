/* Tables for people. A number stands between spaces with its unit, so that a double-click selects it. */
#include "atoll/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "plan_impl.h"

const char *plan_bytes_text(int64_t bytes, char *buf, size_t n) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double v = (double)bytes;
  int u = 0;
  while (fabs(v) >= 1024 && u < 6) {
    v /= 1024;
    u++;
  }
  snprintf(buf, n, u == 0 ? "%.0f %s" : fabs(v) < 10 ? "%.2f %s" : fabs(v) < 100 ? "%.1f %s" : "%.0f %s", v, unit[u]);
  return buf;
}

const char *plan_seconds_text(double s, char *buf, size_t n) {
  double a = fabs(s);
  if (!(a < INFINITY))
    snprintf(buf, n, "unknown");
  else if (a >= 1)
    snprintf(buf, n, "%.3g s", s);
  else if (a >= 1e-3 || a == 0)
    snprintf(buf, n, "%.3g ms", s * 1e3);
  else
    snprintf(buf, n, "%.3g us", s * 1e6);
  return buf;
}

static const char *island_name(const atoll_islands *islands, int i) {
  return islands && i >= 0 && i < islands->count ? islands->island[i].name : "?";
}

/* "0-3 8 9" */
static void print_ranks(const int *rank, int n, FILE *f) {
  for (int i = 0; i < n;) {
    int k = i;
    while (k + 1 < n && rank[k + 1] == rank[k] + 1)
      k++;
    if (k > i)
      fprintf(f, "%s%d-%d", i ? " " : "", rank[i], rank[k]);
    else
      fprintf(f, "%s%d", i ? " " : "", rank[i]);
    i = k + 1;
  }
}

static int same_shape(const atoll_plan_replica *a, const atoll_plan_replica *b) {
  return a->island == b->island && a->ranks == b->ranks && a->tensor == b->tensor && a->context == b->context &&
         a->expert == b->expert && a->zero == b->zero && a->micro_batch == b->micro_batch &&
         a->micro_batches == b->micro_batches && a->bytes_peak == b->bytes_peak && a->bytes_limit == b->bytes_limit;
}

static void policies_text(const atoll_plan_stage *s, char *buf, size_t n) {
  size_t at = 0;
  buf[0] = 0;
  for (int i = 0; i < s->ranges && at + 1 < n; i++) {
    const char *name = atoll_policy_name((atoll_policy)s->range[i].policy);
    if (i > 0 && s->range[i].policy == s->range[i - 1].policy)
      continue;
    at += (size_t)snprintf(buf + at, n - at, "%s%s", i ? "+" : "", name);
  }
}

static void print_share(double share, const char *what, int *any, FILE *f) {
  if (share > 0)
    fprintf(f, "%s%.3g %% of %s in host memory", (*any)++ ? ", " : "", 100 * share, what);
}

/* Whatever a stage does beyond one device per replica that keeps its layers as they are; nothing otherwise. */
static void print_axes(const atoll_plan_stage *s, const atoll_plan_replica *r, FILE *f) {
  const struct {
    const char *name;
    int degree;
  } degrees[] = {{"tensor", r->tensor}, {"context", r->context}, {"expert", r->expert}};
  int any = 0;
  char head[] = "        with ";
  for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
    if (degrees[i].degree > 1)
      fprintf(f, "%s%s degree %d", any++ ? ", " : head, degrees[i].name, degrees[i].degree);
  if (r->sequence_parallel)
    fprintf(f, "%ssequence parallel", any++ ? ", " : head);
  if (r->zero)
    fprintf(f, "%sZeRO %d", any++ ? ", " : head, r->zero);
  if (s->packed)
    fprintf(f, "%spacked weights", any++ ? ", " : head);
  for (int i = 0; i < s->ranges; i++) {
    const atoll_plan_range *g = &s->range[i];
    int plain = !strcmp(g->mlp, "plain") || !g->mlp[0];
    if (!g->recompute && plain && g->offload_weights <= 0 && g->offload_gradients <= 0 && g->offload_optimizer <= 0 &&
        g->offload_activations <= 0)
      continue;
    fprintf(f, "%slayers %d-%d ( ", any++ ? ", " : head, g->first, g->last - 1);
    int inner = 0;
    if (g->recompute)
      fprintf(f, "%sfirst %d done again in backward", inner++ ? ", " : "", g->recompute);
    if (!plain)
      fprintf(f, "%smlp %s", inner++ ? ", " : "", g->mlp);
    print_share(g->offload_weights, "weights", &inner, f);
    print_share(g->offload_gradients, "gradients", &inner, f);
    print_share(g->offload_optimizer, "optimizer", &inner, f);
    print_share(g->offload_activations, "activations", &inner, f);
    fprintf(f, " )");
  }
  if (any)
    fprintf(f, "\n");
}

static int busy_ranks(const atoll_plan *plan) { return plan->world - plan->idle_count; }

void atoll_plan_print(const atoll_plan *plan, const atoll_islands *islands, FILE *f) {
  char a[32], b[32], c[32], d[32], policy[48];
  fprintf(f, "  %d of %d ranks, %d pipeline%s, %" PRId64 " micro-batches per step, schedule %s, in %s, by %s\n",
          busy_ranks(plan), plan->world, plan->pipelines, plan->pipelines == 1 ? "" : "s", plan->micro_batches,
          plan->schedule, atoll_dtype_name(plan->dtype), plan->source);
  fprintf(f, "  %-5s %-11s %-12s %-8s %-5s %-16s %-14s %-10s %-10s %s\n", "stage", "layers", "policy", "in flight",
          "island", "ranks", "micro-batches", "forward", "backward", "memory of limit");
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      policies_text(stage, policy, sizeof policy);
      for (int k = 0; k < stage->replicas;) {
        const atoll_plan_replica *r = &stage->replica[k];
        int e = k + 1;
        while (e < stage->replicas && same_shape(r, &stage->replica[e]))
          e++;
        char layers[48], stage_text[24], ranks[64], work[64];
        int at = 0;
        for (int i = 0; i < stage->chunks && at < (int)sizeof layers; i++)
          at += snprintf(layers + at, sizeof layers - (size_t)at, "%s%d-%d", i ? "," : "", stage->chunk[i].first,
                         stage->chunk[i].last - 1);
        snprintf(stage_text, sizeof stage_text, plan->pipelines > 1 ? "%d.%d" : "%.0d%d", plan->pipelines > 1 ? p : 0,
                 s);
        if (e - k == 1 && r->ranks == 1)
          snprintf(ranks, sizeof ranks, "%d", r->rank[0]);
        else
          snprintf(ranks, sizeof ranks, "%d..%d (%d)", r->rank[0], stage->replica[e - 1].rank[r->ranks - 1],
                   (e - k) * r->ranks);
        snprintf(work, sizeof work, "%" PRId64 " x %" PRId64, r->micro_batches, r->micro_batch);
        fprintf(f, "  %-5s %-11s %-12s %-9d %-6s %-16s %-14s %-10s %-10s %s of %s\n", k ? "" : stage_text,
                k ? "" : layers, k ? "" : policy, stage->in_flight, island_name(islands, r->island), ranks, work,
                plan_seconds_text(r->forward_seconds, a, sizeof a), plan_seconds_text(r->backward_seconds, b, sizeof b),
                plan_bytes_text(r->bytes_peak, c, sizeof c), plan_bytes_text(r->bytes_limit, d, sizeof d));
        print_axes(stage, r, f);
        k = e;
      }
    }
  if (plan->idle_count) {
    fprintf(f, "  idle: rank ");
    print_ranks(plan->idle, plan->idle_count, f);
    fprintf(f, "\n");
  }
  if (plan->step_seconds > 0)
    fprintf(f, "  predicted: step %s ( %.0f tokens/s ), bubble %.1f %%, costs %s%s\n",
            plan_seconds_text(plan->step_seconds, a, sizeof a),
            (double)plan->global_batch * (double)plan->seq / plan->step_seconds, 100 * plan->bubble_fraction,
            plan->cost_source, plan->optimal ? ", best of all plans considered" : "");
  if (plan->step_seconds > 0 && !plan->optimal)
    fprintf(f, "  within %.1f %% of a bound for every plan of the space that was searched\n", 100 * plan->gap);
}

/* ---- explain ----------------------------------------------------------------------------------------------------- */

static void explain_memory(const atoll_plan *plan, const atoll_islands *islands, FILE *f) {
  char a[32];
  fprintf(f, "\nMemory per rank, fullest replica of each stage\n  %-6s %-8s", "stage", "island");
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    fprintf(f, "%-12s", atoll_mem_category_name((atoll_mem_category)c));
  fprintf(f, "%-12s%-12s%s\n", "sum", "limit", "free");
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      const atoll_plan_replica *r = &stage->replica[0];
      for (int k = 1; k < stage->replicas; k++)
        if (stage->replica[k].bytes_limit - stage->replica[k].bytes_peak < r->bytes_limit - r->bytes_peak)
          r = &stage->replica[k];
      fprintf(f, "  %-6d %-8s", s, island_name(islands, r->island));
      for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
        fprintf(f, "%-12s", plan_bytes_text(r->bytes[c], a, sizeof a));
      fprintf(f, "%-12s", plan_bytes_text(r->bytes_peak, a, sizeof a));
      fprintf(f, "%-12s", plan_bytes_text(r->bytes_limit, a, sizeof a));
      fprintf(f, "%.0f %%\n",
              r->bytes_limit > 0 ? 100.0 * (double)(r->bytes_limit - r->bytes_peak) / (double)r->bytes_limit : 0);
    }
}

static void explain_time(const atoll_plan *plan, const atoll_plan_problem *problem, FILE *f) {
  char a[32], b[32], c[32], d[32], e[32];
  fprintf(f, "\nTime of a step, busiest replica of each stage\n  %-6s %-8s %-14s %-12s %-12s %-12s %-12s %-12s %s\n",
          "stage", "island", "micro-batches", "compute", "one send", "sends", "sum+update", "waiting", "busy");
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      const atoll_plan_replica *r = &stage->replica[0];
      double most = -1;
      for (int k = 0; k < stage->replicas; k++) {
        const atoll_plan_replica *x = &stage->replica[k];
        double t = (double)x->micro_batches * (x->forward_seconds + x->backward_seconds);
        if (t > most) {
          most = t;
          r = x;
        }
      }
      double wait = plan->step_seconds - most - r->update_seconds;
      int boundaries = (s > 0) + (s + 1 < plan->pipeline[p].stages);
      fprintf(f, "  %-6d %-8s %-14" PRId64 " %-12s %-12s %-12s %-12s %-12s %.0f %%\n", s,
              island_name(problem->islands, r->island), r->micro_batches, plan_seconds_text(most, a, sizeof a),
              plan_seconds_text(r->send_seconds, b, sizeof b),
              plan_seconds_text(r->send_seconds * (double)(boundaries * r->micro_batches), e, sizeof e),
              plan_seconds_text(r->update_seconds, c, sizeof c), plan_seconds_text(wait > 0 ? wait : 0, d, sizeof d),
              plan->step_seconds > 0 ? 100 * (most + r->update_seconds) / plan->step_seconds : 0);
    }
  fprintf(f, "  Sends run beside compute; 'waiting' is the bubble: filling and draining the pipeline, slower stages, "
             "and data on\n"
             "  its way. 'sum+update' is the gradients' sum over replicas and the optimizer.\n");
}

static int offloads(const atoll_plan *plan) {
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++)
      for (int i = 0; i < plan->pipeline[p].stage[s].ranges; i++) {
        const atoll_plan_range *r = &plan->pipeline[p].stage[s].range[i];
        if (r->offload_weights + r->offload_gradients + r->offload_optimizer + r->offload_activations > 0)
          return 1;
      }
  return 0;
}

/* Where the rates of messages and copies come from. */
static void explain_links(const atoll_plan *plan, const atoll_topo *topo, FILE *f) {
  int measured = 0, declared = 0;
  for (int i = 0; i < topo->links; i++) {
    measured += !topo->link[i].declared && topo->link[i].bandwidth.n > 0;
    declared += topo->link[i].declared && topo->link[i].bandwidth.n > 0;
  }
  fprintf(f, "  rates of links: %d measured, %d declared; %s\n", measured, declared + topo->routes,
          measured + declared + topo->routes ? "pairs in neither list take the slowest of their kind"
                                             : "all are assumed (analytic)");
  if (offloads(plan))
    fprintf(f, "  copies to and from host memory: %.0f GB/s each way, assumed (analytic)\n", COST_HOST_RATE / 1e9);
}

static void explain_traffic(const atoll_plan *plan, const atoll_plan_problem *problem, FILE *f) {
  char a[32], b[32], c[32];
  fprintf(f, "\nTraffic per step\n");
  explain_links(plan, problem->topo, f);
  for (int p = 0; p < plan->pipelines; p++) {
    const atoll_plan_pipeline *pipe = &plan->pipeline[p];
    for (int s = 0; s < pipe->stages; s++) {
      const atoll_plan_stage *stage = &pipe->stage[s];
      int64_t boundary = 0, grads = 0;
      (void)cost_boundary_bytes(problem->model, stage->chunk[0].last - 1, stage->replica[0].micro_batch, plan->seq,
                                &boundary);
      (void)cost_gradient_bytes(problem->model, stage->chunk[0].first, stage->chunk[0].last, &grads);
      if (s + 1 < pipe->stages)
        fprintf(f, "  stage %d to %d: %s per micro-batch and direction, %s in all", s, s + 1,
                plan_bytes_text(boundary, a, sizeof a),
                plan_bytes_text(2 * boundary * pipe->micro_batches, b, sizeof b));
      else
        fprintf(f, "  stage %d is the last", s);
      if (stage->replicas > 1)
        fprintf(f, "; gradients of %s summed over %d replicas, about %s per rank\n",
                plan_bytes_text(grads, a, sizeof a), stage->replicas,
                plan_bytes_text((int64_t)(2.0 * (double)grads * (stage->replicas - 1) / stage->replicas), c, sizeof c));
      else
        fprintf(f, "; one replica, no gradients to sum\n");
    }
    for (int t = 0; t < plan->tied_count; t++)
      if (plan->tied[t].uses > 1 && plan->tied[t].stage[0] != plan->tied[t].stage[1])
        fprintf(f, "  %s is used by stages %d and %d: both keep a copy and swap gradients once a step\n",
                atoll_model_param_at(problem->model, plan->tied[t].param)->name, plan->tied[t].stage[0],
                plan->tied[t].stage[1]);
  }
}

/* Several equal copies of the pipeline: where each is, and its micro-batches. */
static void explain_copies(const atoll_plan *plan, const atoll_islands *islands, int copies, FILE *f) {
  const atoll_plan_pipeline *pipe = &plan->pipeline[0];
  if (copies < 2)
    return;
  fprintf(f,
          "\nCopies\n  %d equal copies of the pipeline, each on islands of its own: activations stay inside a copy, "
          "gradients are summed\n  over all copies once a step\n",
          copies);
  for (int c = 0; c < copies; c++) {
    int each = pipe->stage[0].replicas / copies;
    const atoll_plan_replica *first = &pipe->stage[0].replica[c * each], *last = first + each - 1;
    fprintf(f, "  copy %d: micro-batches %" PRId64 "-%" PRId64 ", islands", c, first->first_micro_batch,
            last->first_micro_batch + last->micro_batches - 1);
    for (int s = 0; s < pipe->stages; s++) {
      int island = pipe->stage[s].replica[c * each].island, seen = 0;
      for (int e = 0; e < s && !seen; e++)
        seen = pipe->stage[e].replica[c * each].island == island;
      if (!seen)
        fprintf(f, " %s", island_name(islands, island));
    }
    fprintf(f, "\n");
  }
}

static void explain_price(const atoll_plan_report *report, const atoll_plan *plan, FILE *f) {
  if (isnan(report->price))
    return;
  double tokens = (double)plan->global_batch * (double)plan->seq;
  fprintf(f,
          "\nPrice\n  a step costs %.4g: %.4g rent of the devices in use, %.4g for what moves between zones; %.4g per "
          "million tokens\n",
          report->price, report->price - report->transfer_price, report->transfer_price, 1e6 * report->price / tokens);
}

static void explain_idle(const atoll_plan *plan, const atoll_plan_report *report, FILE *f) {
  if (!plan->idle_count)
    return;
  if (report && report->idle_count) {
    fprintf(f, "\nIdle\n");
    for (int i = 0; i < report->idle_count; i++)
      fprintf(f, "  %s\n", report->idle[i]);
    return;
  }
  fprintf(f, "\nIdle\n  rank ");
  print_ranks(plan->idle, plan->idle_count, f);
  fprintf(f,
          ": every plan considered that uses %s is predicted to be slower, does not fit, or has fewer micro-batches\n"
          "  (%" PRId64 ") or layers than it would need.\n",
          plan->idle_count == 1 ? "it" : "them", plan->micro_batches);
}

void atoll_plan_explain(const atoll_plan *plan, const atoll_plan_problem *problem, const atoll_plan_report *report,
                        FILE *f) {
  char a[32];
  atoll_plan_print(plan, problem->islands, f);
  explain_time(plan, problem, f);
  explain_memory(plan, problem->islands, f);
  explain_traffic(plan, problem, f);
  if (report)
    explain_copies(plan, problem->islands, report->copies, f);
  explain_idle(plan, report, f);
  if (report)
    explain_price(report, plan, f);
  fprintf(f, "\nCosts are %s: %s\n", plan->cost_source,
          !strcmp(plan->cost_source, "measured") ? "layer times of a profile, at these micro-batch sizes."
          : !strcmp(plan->cost_source, "interpolated")
              ? "layer times of a profile, between or beyond measured micro-batch sizes."
          : !strcmp(plan->cost_source, "imported")
              ? "layer times that another program measured for this model on devices of the same name."
              : "FLOPs over the devices' rates, since no profile covers them (atoll-train measures one).");
  if (!report)
    return;
  fprintf(f, "\nSearched %" PRId64 " plans, %" PRId64 " did not fit. ", report->considered, report->infeasible);
  if (report->alike > 0)
    fprintf(
        f,
        "A bound for all others is %.1f %% better, but measured\ntimes are spread by %.1f %%, and plans closer than "
        "that count as equally fast: of these fewer stages come first,\nthen larger micro-batches, then the first "
        "policy, so that a plan stays what it is from one calibration to the next.\n",
        100 * plan->gap, 100 * report->alike);
  else if (plan->optimal)
    fprintf(f, "No other plan of the searched space is faster.\n");
  else
    fprintf(f, "Not proved best: a bound for all plans left out is %.1f %% better.\n", 100 * plan->gap);
  if (report->count)
    fprintf(f, "Runners-up and why they lost\n");
  for (int i = 0; i < report->count; i++) {
    const atoll_plan_rejected *r = &report->rejected[i];
    if (isnan(r->step_seconds))
      fprintf(f, "  does not fit  %s\n", r->text);
    else
      fprintf(f, "  %-8s %+5.1f %%  %s\n", plan_seconds_text(r->step_seconds, a, sizeof a),
              plan->step_seconds > 0 ? 100 * (r->step_seconds / plan->step_seconds - 1) : 0, r->text);
  }
}

/* A case's plan in words. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cases/cases.h"
#include "plan_impl.h"

static const case_pool *pool_of(const atoll_case *c, int kind) { return &c->pool[c->kind[kind].pool]; }

/* Replicas of two kinds that read alike: their devices came in pools of their own. */
static int reads_alike(const atoll_case *c, int a, int b) {
  const case_pool *x = pool_of(c, a), *y = pool_of(c, b);
  return x->gpu == y->gpu && x->zone == y->zone && c->kind[a].devices == c->kind[b].devices;
}

/* "16 x tp2 A100-40 us-central1-a": replicas x devices of each; groups that read alike are told as one. */
static void staff_text(const atoll_case *c, const engine_stage *s, char *buf, size_t n) {
  size_t at = 0;
  buf[0] = 0;
  for (int g = 0; g < s->groups && at < n; g++) {
    int kind = s->group[g].kind, count = 0, told = 0;
    for (int k = 0; k < s->groups; k++)
      if (reads_alike(c, s->group[k].kind, kind)) {
        told |= k < g;
        count += s->group[k].count;
      }
    if (!told)
      at += (size_t)snprintf(buf + at, n - at, "%s%d x tp%d %s %s", g ? " + " : "", count, c->kind[kind].devices,
                             c->gpu[pool_of(c, kind)->gpu].name, c->zone[pool_of(c, kind)->zone]);
  }
}

static void layers_text(const engine_stage *s, char *buf, size_t n) {
  if (s->last - s->first == 1)
    snprintf(buf, n, "%d", s->first);
  else
    snprintf(buf, n, "%d-%d", s->first, s->last - 1);
}

static int used_of(const atoll_case *c, const engine_plan *plan, int pool) {
  int used = 0;
  for (int i = 0; i < plan->stages; i++)
    for (int g = 0; g < plan->stage[i].groups; g++) {
      const engine_kind *kind = &c->kind[plan->stage[i].group[g].kind];
      used += kind->pool == pool ? kind->devices * plan->stage[i].group[g].count : 0;
    }
  return used;
}

static void print_head(const atoll_case_plan *p, FILE *f) {
  const atoll_case *c = p->c;
  const engine_plan *best = p->result->best;
  int devices = 0, used = 0;
  for (int i = 0; i < c->pools; i++) {
    devices += c->pool[i].count;
    used += used_of(c, best, i);
  }
  fprintf(f, "%s: %s, %" PRId64 " samples per iteration, %d of %d devices\n", c->name, c->model, c->global_batch, used,
          devices);
  fprintf(f, "%.6g iterations per s, %.6g s per iteration", 1 / best->seconds, best->seconds);
  if (!isnan(best->price))
    fprintf(f, ", $ %.6g per iteration (%.6g of it for transfers)", best->price, best->transfer_price);
  fprintf(f, "\nmicro-batch %" PRId64 ", %d stage%s", c->batch[best->b], best->stages, best->stages == 1 ? "" : "s");
  const engine_result *r = p->result;
  if (r->proved)
    fprintf(f, "; proved optimal: contiguous splits, any widths, degrees and mixes\n");
  else if (r->uniform)
    fprintf(
        f,
        "; no plan with one kind of device per stage is better; mixing kinds in a stage was tried and cannot give more "
        "than %.2g %%\n",
        100 * r->gap / (1 - r->gap));
  else if (r->truncated)
    fprintf(f, "; not proved: the search was cut short; no plan is more than %.2g %% better\n",
            100 * r->gap / (1 - r->gap));
  else
    fprintf(f, "; not proved: like pools were filled one after the other; no plan is more than %.2g %% better\n",
            100 * r->gap / (1 - r->gap));
}

static void print_stages(const atoll_case_plan *p, FILE *f) {
  const atoll_case *c = p->c;
  const engine_plan *best = p->result->best;
  fprintf(f, "\n  %5s  %-7s %9s %11s %9s %8s %9s  %s\n", "stage", "layers", "rounds", "compute s", "send s", "sync s",
          "in flight", "replicas");
  for (int i = 0; i < best->stages; i++) {
    char layers[32], staff[1024];
    const struct engine_stage_time *t = &best->time[i];
    layers_text(&best->stage[i], layers, sizeof layers);
    staff_text(c, &best->stage[i], staff, sizeof staff);
    fprintf(f, "%s %5d  %-7s %9" PRId64 " %11.5f %9.5f %8.4f %9" PRId64 "  %s\n", i == best->limiting ? "*" : " ", i,
            layers, t->G, t->seconds, t->send, t->sync, t->in_flight, staff);
  }
  const struct engine_stage_time *slow = &best->time[best->limiting];
  fprintf(f, "* the bottleneck: %" PRId64 " more rounds of %.5f s behind the first take %.4f s\n", slow->G - 1,
          slow->seconds + slow->send, best->bottleneck);
}

static void print_time(const atoll_case_plan *p, FILE *f) {
  const engine_plan *best = p->result->best;
  double compute = 0, send = 0;
  for (int i = 0; i < best->stages; i++) {
    compute += best->time[i].seconds;
    send += best->time[i].send;
  }
  const struct {
    const char *what;
    double seconds;
  } part[] = {{"bottleneck stage, all rounds but one", best->bottleneck},
              {"one micro-batch through all stages", compute},
              {"its sends", send},
              {"gradient sums", best->sync},
              {"update", best->extra}};
  fprintf(f, "\nTime of an iteration\n");
  for (size_t i = 0; i < sizeof part / sizeof *part; i++)
    fprintf(f, "  %-38s %9.4f s %5.1f %%\n", part[i].what, part[i].seconds, 100 * part[i].seconds / best->seconds);
}

static void print_bytes(const atoll_case_plan *p, FILE *f) {
  const atoll_case *c = p->c;
  const engine_plan *best = p->result->best;
  fprintf(f, "\nMemory of a device\n  %5s %-24s %12s %12s %12s %12s\n", "stage", "device", "states", "activations",
          "reserve", "of");
  for (int i = 0; i < best->stages; i++)
    for (int g = 0; g < best->stage[i].groups; g++) {
      const engine_stage *s = &best->stage[i];
      int kind = s->group[g].kind, told = 0;
      for (int k = 0; k < g; k++)
        told |= reads_alike(c, s->group[k].kind, kind);
      if (told)
        continue;
      char states[32], activations[32], reserve[32], of[32], device[160];
      double fixed = case_bytes(c, best->b, kind, 0, 0, 0), none = case_bytes(c, best->b, kind, s->first, s->last, 0),
             all = case_bytes(c, best->b, kind, s->first, s->last, best->time[i].in_flight);
      snprintf(device, sizeof device, "%s tp%d", c->gpu[pool_of(c, kind)->gpu].name, c->kind[kind].devices);
      fprintf(f, "  %5d %-24s %12s %12s %12s %12s\n", i, device,
              plan_bytes_text((int64_t)(none - fixed), states, sizeof states),
              plan_bytes_text((int64_t)(all - none), activations, sizeof activations),
              plan_bytes_text((int64_t)fixed, reserve, sizeof reserve),
              plan_bytes_text((int64_t)c->gpu[pool_of(c, kind)->gpu].memory, of, sizeof of));
    }
}

static void print_idle(const atoll_case_plan *p, FILE *f) {
  const atoll_case *c = p->c;
  const char *why =
      c->goal == ENGINE_CHEAPEST || c->max_price < INFINITY
          ? "using them costs more than the objective allows, or saves nothing"
          : "no plan found is faster with them: more replicas or stages cost more in sends, gradient sums "
            "and filling than they save";
  for (int i = 0; i < c->pools; i++) {
    int idle = c->pool[i].count - used_of(c, p->result->best, i), kinds = 0;
    for (int k = 0; k < c->kinds; k++)
      kinds += c->kind[k].pool == i;
    if (idle)
      fprintf(f, "idle: %d of %d %s in %s: %s\n", idle, c->pool[i].count, c->gpu[c->pool[i].gpu].name,
              c->zone[c->pool[i].zone], kinds ? why : "the data has no profile or transfer price for them");
  }
}

static void describe(const atoll_case *c, const engine_plan *plan, char *buf, size_t n) {
  size_t at = (size_t)snprintf(buf, n, "micro-batch %" PRId64, c->batch[plan->b]);
  for (int i = 0; i < plan->stages && at < n; i++) {
    char layers[32], staff[512];
    layers_text(&plan->stage[i], layers, sizeof layers);
    staff_text(c, &plan->stage[i], staff, sizeof staff);
    at += (size_t)snprintf(buf + at, n - at, "%s %s on %s", i ? " |" : ", layers", layers, staff);
  }
}

static void print_rejected(const atoll_case_plan *p, FILE *f) {
  const engine_result *r = p->result;
  const engine_plan *best = r->best;
  char text[2048], last[2048] = "";
  if (r->rejected)
    fprintf(f, "\nRunners-up and why they lost\n");
  describe(p->c, best, last, sizeof last);
  for (int i = 0; i < r->rejected; i++) {
    const engine_plan *other = r->reject[i];
    double sum = other->seconds - other->bottleneck - other->sync - other->extra,
           own = best->seconds - best->bottleneck - best->sync - best->extra;
    describe(p->c, other, text, sizeof text);
    if (!strcmp(text, last))
      continue; /* the same plan on other devices of the same kind */
    snprintf(last, sizeof last, "%s", text);
    fprintf(f, "  %9.4f s", other->seconds);
    if (!isnan(other->price))
      fprintf(f, " $ %8.5f", other->price);
    fprintf(f, "  bottleneck %+.3f, filling %+.3f, gradient sums %+.3f s: %s\n", other->bottleneck - best->bottleneck,
            sum - own, other->sync - best->sync, text);
  }
}

void atoll_case_plan_print(const atoll_case_plan *plan, int explain, FILE *f) {
  print_head(plan, f);
  print_stages(plan, f);
  print_idle(plan, f);
  if (!explain)
    return;
  print_time(plan, f);
  print_bytes(plan, f);
  print_rejected(plan, f);
  fprintf(f, "\nsearched with %" PRId64 " units of work (bounds looked at) over %" PRId64 " slices\n",
          plan->result->labels, plan->result->slices);
}

void atoll_case_plan_compare(const atoll_case_plan *before, const atoll_case_plan *after, FILE *f) {
  const engine_plan *a = before->result->best, *b = after->result->best;
  fprintf(f, "%-16s %14s %14s\n", "", "before", "after");
  fprintf(f, "%-16s %14.6g %14.6g  %+.2f %%\n", "iterations per s", 1 / a->seconds, 1 / b->seconds,
          100 * (a->seconds / b->seconds - 1));
  if (!isnan(a->price) && !isnan(b->price))
    fprintf(f, "%-16s %14.6g %14.6g  %+.2f %%\n", "$ per iteration", a->price, b->price,
            100 * (b->price / a->price - 1));
  fprintf(f, "%-16s %14" PRId64 " %14" PRId64 "\n", "micro-batch", before->c->batch[a->b], after->c->batch[b->b]);
  fprintf(f, "%-16s %14d %14d\n", "stages", a->stages, b->stages);
  for (int i = 0; i < a->stages || i < b->stages; i++) {
    char was[600] = "-", is[600] = "-", layers[32], staff[512];
    if (i < a->stages) {
      layers_text(&a->stage[i], layers, sizeof layers);
      staff_text(before->c, &a->stage[i], staff, sizeof staff);
      snprintf(was, sizeof was, "layers %s on %s", layers, staff);
    }
    if (i < b->stages) {
      layers_text(&b->stage[i], layers, sizeof layers);
      staff_text(after->c, &b->stage[i], staff, sizeof staff);
      snprintf(is, sizeof is, "layers %s on %s", layers, staff);
    }
    if (!strcmp(was, is))
      fprintf(f, "  stage %d  %s\n", i, is);
    else
      fprintf(f, "- stage %d  %s\n+ stage %d  %s\n", i, was, i, is);
  }
}

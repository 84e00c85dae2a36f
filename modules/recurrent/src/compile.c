/* From a graph to something that runs. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "away.h"
#include "emit.h"
#include "kept.h"
#include "passes.h"
#include "program.h"
#include "storage.h"

/* ---- the oracle ---- */

/* Gradients are part of what a program means, so the oracle has them too. */
static atoll_err expand_gradients(rt_graph *g) {
  if (g->requests == 0)
    return ATOLL_OK;
  ATOLL_TRY(rt_pass_cases(g));
  ATOLL_TRY(rt_pass_domains(g));
  return rt_pass_gradients(g);
}

/* A program without sinks would compute nothing, which nobody means. */
static atoll_err check_sinks(const rt_graph *g) {
  for (int i = 0; i < g->nodes; i++)
    if (g->node[i] && g->node[i]->op == RT_SINK)
      return ATOLL_OK;
  return atoll_fail(ATOLL_USAGE, "recurrent program: nothing is computed, since it has no sink");
}

atoll_err atoll_rec_interpret(atoll_rec *c, const atoll_rec_binding *bindings, int n) {
  rt_graph *g = NULL;
  rt_interp *it = NULL;
  ATOLL_TRY(rt_rec_clone(c, &g));
  atoll_err err = check_sinks(g);
  if (err == ATOLL_OK)
    err = expand_gradients(g);
  if (err == ATOLL_OK)
    err = rt_interp_create(g, bindings, n, &it);
  err = rt_exchanges_begin(g, err);
  if (err == ATOLL_OK)
    err = rt_exchanges_agree(g, NULL, rt_interp_bounds(it));
  if (err == ATOLL_OK)
    err = rt_interp_sinks(it);
  rt_interp_destroy(&it);
  rt_graph_destroy(&g);
  return err;
}

/* ---- passes ---- */

typedef struct pass {
  const char *name;
  int optional;
  atoll_err (*run)(rt_graph *g, const atoll_rec_params *p);
} pass;

#define PASS(name)                                                                                                     \
  static atoll_err run_##name(rt_graph *g, const atoll_rec_params *p) {                                                \
    (void)p;                                                                                                           \
    return rt_pass_##name(g);                                                                                          \
  }
PASS(cases)
PASS(domains)
PASS(simplify)
PASS(scans)
PASS(lift)
PASS(pads)
PASS(groups)
#undef PASS
static atoll_err run_gradients(rt_graph *g, const atoll_rec_params *p) {
  (void)p;
  if (g->requests == 0)
    return ATOLL_OK;
  ATOLL_TRY(rt_pass_gradients(g));
  return rt_pass_domains(g);
}
static atoll_err run_tile(rt_graph *g, const atoll_rec_params *p) {
  return rt_pass_tile(g, p->tile, p->place, p->comm);
}
static atoll_err run_vectorize(rt_graph *g, const atoll_rec_params *p) { return rt_pass_vectorize(g, p->vectorize); }

static const pass passes[] = {
    {"cases", 0, run_cases},         {"domains", 0, run_domains}, {"gradients", 0, run_gradients},
    {"simplify", 1, run_simplify},   {"tile", 1, run_tile},       {"scans", 1, run_scans},
    {"vectorize", 1, run_vectorize}, {"lift", 1, run_lift},       {"pads", 1, run_pads},
    {"groups", 1, run_groups},
};
enum { PASSES = sizeof passes / sizeof *passes };

const char *atoll_rec_passes(void) { return "simplify,tile,scans,vectorize,lift,pads,groups,donate"; }

void atoll_rec_params_init(atoll_rec_params *p) { memset(p, 0, sizeof *p); }

static int listed(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
    if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == 0))
      return 1;
  return 0;
}

static int is_pass(const char *name) {
  for (int k = 0; k < PASSES; k++)
    if (strcmp(name, passes[k].name) == 0)
      return 1;
  return strcmp(name, "donate") == 0;
}

/* Words of a list, all of which must be passes; those that always run may be named, too. */
static atoll_err check_passes(const char *list) {
  for (int more = list && *list; more;) {
    const size_t n = strcspn(list, ",");
    char word[32];
    (void)snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), list);
    if (n >= sizeof word || !is_pass(word))
      return atoll_fail(ATOLL_USAGE, "pass '%.*s': there are %s", (int)n, list, atoll_rec_passes());
    more = list[n] == ',';
    list += n + (size_t)more;
  }
  return ATOLL_OK;
}

static atoll_err check_params(const atoll_rec_params *p) {
  const struct {
    const char *name;
    int64_t value, most;
  } number[] = {{"tile", p->tile, RT_NUMBER_MOST},
                {"block", p->block, RT_NUMBER_MOST},
                {"least", p->least, RT_NUMBER_MOST - 1},
                {"threads", p->threads, INT32_MAX},
                {"memory", p->memory, INT64_MAX}};
  for (size_t k = 0; k < sizeof number / sizeof *number; k++)
    if (number[k].value < 0 || number[k].value > number[k].most)
      return atoll_fail(ATOLL_USAGE, "recurrent program: %s %lld, expected 0 to %lld", number[k].name,
                        (long long)number[k].value, (long long)number[k].most);
  return check_passes(p->passes);
}

static atoll_err run_passes(rt_graph *g, const atoll_rec_params *p) {
  if (p->trace) {
    fputs("== program\n", p->trace);
    rt_graph_print(g, p->trace);
  }
  for (int k = 0; k < PASSES; k++) {
    if (passes[k].optional && p->passes && !listed(p->passes, passes[k].name))
      continue;
    ATOLL_TRY(passes[k].run(g, p));
    ATOLL_TRY(rt_graph_error(g));
    if (p->trace) {
      fprintf(p->trace, "== after %s\n", passes[k].name);
      rt_graph_print(g, p->trace);
    }
  }
  return ATOLL_OK;
}

/* ---- programs ---- */

/* Whether node `from`, or what it reads, is `to`. */
static int reads(const rt_graph *g, int from, int to, char *seen) {
  if (from == to)
    return 1;
  if (seen[from])
    return 0;
  seen[from] = 1;
  for (int k = 0; k < g->node[from]->inputs; k++)
    if (reads(g, g->node[from]->in[k].src, to, seen))
      return 1;
  return 0;
}

static int reads_itself(const rt_graph *g, int i, char *seen) {
  int found = 0;
  memset(seen, 0, (size_t)g->nodes);
  for (int k = 0; k < g->node[i]->inputs && !found; k++)
    found = reads(g, g->node[i]->in[k].src, i, seen);
  return found;
}

/* No order exists: tells the indices by which tensors lead back to themselves; where passes have made those into
 * others, the tensors. */
static atoll_err needs_itself(const rt_graph *g) {
  char text[512] = "", label[96], *seen = calloc((size_t)g->nodes + 1, 1);
  for (int i = 0; seen && i < g->nodes; i++)
    for (int k = 0; g->node[i] && g->node[i]->op != RT_MERGE && k < g->node[i]->inputs; k++) {
      const rt_edge *e = &g->node[i]->in[k];
      memset(seen, 0, (size_t)g->nodes);
      if (!e->text || !reads(g, e->src, i, seen))
        continue;
      size_t n = strlen(text);
      (void)snprintf(text + n, sizeof text - n, "%s '%s' of %s", n ? "," : "; by index", e->text,
                     rt_label(rt_src(g, e), label, sizeof label));
    }
  for (int i = 0, told = text[0] != 0; seen && !told && i < g->nodes; i++) {
    if (!g->node[i] || !g->node[i]->name || !reads_itself(g, i, seen))
      continue;
    size_t n = strlen(text);
    (void)snprintf(text + n, sizeof text - n, "%s %s", n ? "," : ": that of",
                   rt_label(g->node[i], label, sizeof label));
  }
  free(seen);
  return atoll_fail(ATOLL_USAGE, "no order of execution exists: a definition needs itself%s", text);
}

/* Groups may have left no order, which nodes alone have. */
static atoll_err schedule(rt_graph *g, const rt_schedule_params *p, rt_schedule *out) {
  atoll_err err = rt_schedule_create(g, p, out);
  if (err != ATOLL_INFEASIBLE)
    return err;
  for (int i = 0; i < g->nodes; i++)
    if (g->node[i])
      g->node[i]->group = 0;
  err = rt_schedule_create(g, p, out);
  return err == ATOLL_INFEASIBLE ? needs_itself(g) : err;
}

/* Passes and schedule of what the user made, or what was kept of them. */
static atoll_err obtain(const atoll_rec_params *p, rt_graph *made, atoll_rec_program *program) {
  rt_schedule_params s = {.budget = p->budget, .offload = program->offload != NULL};
  char path[4096] = "";
  for (int d = 0; d < RT_DIMS; d++)
    s.least[d] = p->least;
  if (!p->trace && (!p->place || p->comm))
    rt_kept_path(made, p, path, sizeof path);
  if (*path && rt_kept_read(path, made, p->comm, &program->graph, &program->schedule))
    return ATOLL_OK;
  ATOLL_TRY(rt_graph_clone(made, &program->graph));
  program->graph->block_size = p->block;
  ATOLL_TRY(run_passes(program->graph, p));
  ATOLL_TRY(schedule(program->graph, &s, &program->schedule));
  if (!p->passes || listed(p->passes, "donate"))
    ATOLL_TRY(rt_tree_donate(program->graph, program->schedule.tree));
  ATOLL_TRY(rt_tree_allocate(program->graph, program->schedule.tree));
  if (*path)
    rt_kept_write(path, made, p->comm, program->graph, &program->schedule);
  return ATOLL_OK;
}

/* Asking OpenMP also keeps its library loaded: its threads outlive the program that made them. */
static int threads_of(const atoll_rec_params *p) {
  int limit = omp_get_thread_limit();
  return p->threads < 1 ? 1 : p->threads < limit ? p->threads : limit;
}

static atoll_err transform(atoll_rec *c, const atoll_rec_params *p, atoll_rec_program **out) {
  rt_graph *made = NULL;
  atoll_rec_program *program = calloc(1, sizeof *program);
  if (!program)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  *out = program;
  program->memory = p->memory;
  if (p->memory && p->offload && !(program->offload = strdup(p->offload)))
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  /* Told now, while no rank waits for another one. */
  if (program->offload)
    ATOLL_TRY(rt_away_probe(program->offload));
  program->threads = threads_of(p);
  program->last_peak = -1;
  ATOLL_TRY(rt_rec_clone(c, &made));
  atoll_err err = check_sinks(made);
  if (err == ATOLL_OK)
    err = obtain(p, made, program);
  rt_graph_destroy(&made);
  ATOLL_TRY(err);
  program->graph->least = p->least;
  if (p->trace) {
    fprintf(p->trace, "== schedule by %s\n", program->schedule.method);
    rt_tree_print(program->graph, program->schedule.tree, p->trace);
  }
  return ATOLL_OK;
}

/* The text of all programs: the host's part, and (of a device) kernels. */
typedef struct texts {
  char *host, *kernels;
  size_t host_bytes, kernel_bytes;
} texts;

static atoll_err emit(int n, atoll_rec_program *const *program, const atoll_rec_params *p, texts *t) {
  const int device = p->device && strcmp(p->device, "cpu") != 0;
  char *parts = NULL;
  size_t bytes = 0;
  FILE *host = open_memstream(&t->host, &t->host_bytes), *statements = open_memstream(&parts, &bytes);
  FILE *kernels = device ? open_memstream(&t->kernels, &t->kernel_bytes) : NULL;
  int failed = !host || !statements || (device && !kernels);
  atoll_err err = ATOLL_OK;
  if (kernels)
    rt_emit_prelude(kernels);
  for (int k = 0; k < n && err == ATOLL_OK && !failed; k++)
    err = rt_emit(program[k]->graph, program[k]->schedule.tree, k, statements, kernels);
  failed |= statements && fclose(statements) != 0;
  failed |= kernels && fclose(kernels) != 0;
  if (host && !failed) {
    if (rt_device_is_async(p->device))
      fputs(t->kernels, host);
    else
      rt_emit_prelude(host);
    fputs(parts, host);
  }
  failed |= host && fclose(host) != 0;
  free(parts);
  return err != ATOLL_OK || !failed ? err : atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
}

static atoll_err load(const texts *t, int n, atoll_rec_program *const *program, const atoll_rec_params *p) {
  char why[640] = "";
  rt_native *lib = NULL;
  atoll_err err = rt_native_create(t->host, t->host_bytes, p->compiler, p->flags, p->threads > 1,
                                   !rt_device_is_async(p->device), &lib, why, sizeof why);
  for (int k = 0; k < n && err == ATOLL_OK; k++) {
    program[k]->native = rt_native_share(lib);
    program[k]->entry = lib ? rt_native_entry(lib, k) : NULL;
    if (t->kernels)
      err = rt_device_create(p->device, t->kernels, t->kernel_bytes, lib, &program[k]->device);
    (void)snprintf(program[k]->engine, sizeof program[k]->engine, "%s%s%s: %s", lib ? "compiled" : "interpreted",
                   t->kernels ? " for " : "", t->kernels ? p->device : "", why);
  }
  rt_native_destroy(&lib);
  return err;
}

/* All programs as one library. */
static atoll_err build(int n, atoll_rec_program *const *program, const atoll_rec_params *p) {
  texts t = {NULL, NULL, 0, 0};
  atoll_err err = emit(n, program, p, &t);
  if (err == ATOLL_OK && p->trace && t.kernels && !rt_device_is_async(p->device))
    fprintf(p->trace, "== kernels\n%s", t.kernels);
  if (err == ATOLL_OK && p->trace)
    fprintf(p->trace, "== C\n%s", t.host);
  if (err == ATOLL_OK)
    err = load(&t, n, program, p);
  free(t.host);
  free(t.kernels);
  return err;
}

atoll_err atoll_rec_compile_all(int n, atoll_rec *const *c, const atoll_rec_params *given, atoll_rec_program **out) {
  atoll_rec_params p = {.passes = NULL};
  atoll_rec_program **program = calloc((size_t)n + 1, sizeof(atoll_rec_program *));
  atoll_err err = program ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  if (given)
    p = *given;
  if (err == ATOLL_OK)
    err = check_params(&p);
  for (int k = 0; k < n && err == ATOLL_OK; k++)
    err = transform(c[k], &p, &program[k]);
  if (err == ATOLL_OK)
    err = build(n, program, &p);
  for (int k = 0; program && k < n; k++) {
    if (err == ATOLL_OK)
      out[k] = program[k];
    else
      atoll_rec_program_destroy(&program[k]);
  }
  free(program);
  return err;
}

atoll_err atoll_rec_compile(atoll_rec *c, const atoll_rec_params *p, atoll_rec_program **out) {
  return atoll_rec_compile_all(1, &c, p, out);
}

const char *atoll_rec_engine(const atoll_rec_program *program) { return program->engine; }

void atoll_rec_program_destroy(atoll_rec_program **address) {
  atoll_rec_program *program = *address;
  if (!program)
    return;
  rt_device_destroy(&program->device);
  rt_native_destroy(&program->native);
  rt_schedule_destroy(&program->schedule);
  rt_graph_destroy(&program->graph);
  free(program->offload);
  free(program->away);
  free(program);
  *address = NULL;
}

void atoll_rec_program_print(const atoll_rec_program *program, FILE *out) {
  rt_graph_print(program->graph, out);
  rt_tree_print(program->graph, program->schedule.tree, out);
}

/* The slice by which a value is read, as its user wrote it: it is what keeps values alive. */
static const char *kept_by(const rt_graph *g, int node) {
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      const rt_edge *e = &g->node[i]->in[k];
      if (e->src == node && e->text && rt_slices(g, e))
        return e->text;
    }
  return "";
}

static atoll_err does_not_fit(const atoll_rec_program *program, const int64_t *bound, int64_t peak) {
  const rt_graph *g = program->graph;
  rt_storage *s = NULL;
  char label[96];
  int most = -1;
  ATOLL_TRY(rt_storage_choose(g, program->schedule.tree, bound, &s));
  for (int i = 0; i < g->nodes; i++)
    if (g->node[i] && s[i].kind != RT_STORE_NONE &&
        (most < 0 || s[i].slots * s[i].bytes > s[most].slots * s[most].bytes))
      most = i;
  int64_t bytes = most < 0 ? 0 : s[most].slots * s[most].bytes;
  free(s);
  const char *by = most < 0 ? "" : kept_by(g, most);
  return atoll_fail(ATOLL_NOMEM,
                    "recurrent program: values need %lld bytes%s, the budget is %lld; most is %s with %lld%s%s%s",
                    (long long)peak, program->offload ? " even when all that can be put away is" : "",
                    (long long)program->memory, most < 0 ? "" : rt_label(g->node[most], label, sizeof label),
                    (long long)bytes, *by ? ", read by index '" : "", by, *by ? "'" : "");
}

/* How a run with these bounds keeps within the budget. *away: [nodes], owned, what it puts away between uses; *peak:
 * with that. NOMEM names what takes most when nothing helps. */
static atoll_err fit(const atoll_rec_program *program, const atoll_rec_binding *bindings, int n, char **away,
                     int64_t *peak) {
  const rt_graph *g = program->graph;
  int64_t bound[RT_DIMS] = {0};
  char *chosen = calloc((size_t)g->nodes + 1, 1);
  atoll_err err = chosen ? rt_bounds(g, bindings, n, bound) : atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  if (err == ATOLL_OK && program->memory && peak)
    err = rt_tree_put_away(g, program->schedule.tree, bound, program->memory, chosen, peak);
  else if (err == ATOLL_OK && peak)
    err = rt_tree_peak_bytes(g, program->schedule.tree, bound, NULL, peak);
  if (err == ATOLL_OK && program->memory && peak && *peak > program->memory)
    err = does_not_fit(program, bound, *peak);
  if (err == ATOLL_OK)
    *away = chosen;
  else
    free(chosen);
  return err;
}

static atoll_err interpret(const atoll_rec_program *program, rt_interp *it, int64_t *peak) {
  int64_t pads = 0;
  atoll_err err = rt_tree_execute(it, program->graph, program->schedule.tree, program->away);
  if (err == ATOLL_OK)
    err = rt_pad_bytes(program->graph, rt_interp_bounds(it), &pads);
  *peak = rt_interp_peak(it) + pads;
  if (err == ATOLL_OK && rt_interp_bytes(it) != 0)
    err = atoll_fail(ATOLL_INTERNAL, "the schedule leaves %lld bytes of values", (long long)rt_interp_bytes(it));
  return err;
}

/* Without a budget nothing needs to be known before. Under one, finding out walks the schedule several times, which
 * runs with the same bounds need not do again. */
static atoll_err prepare_run(atoll_rec_program *program, const atoll_rec_binding *bindings, int n) {
  int64_t bound[RT_DIMS] = {0}, peak;
  char *away;
  ATOLL_TRY(rt_bounds(program->graph, bindings, n, bound));
  if (program->away && memcmp(program->bound, bound, sizeof bound) == 0)
    return ATOLL_OK;
  ATOLL_TRY(fit(program, bindings, n, &away, program->memory ? &peak : NULL));
  free(program->away);
  program->away = away;
  memcpy(program->bound, bound, sizeof bound);
  return ATOLL_OK;
}

static atoll_err agree_on_order(atoll_rec_program *program) {
  if (program->agreed)
    return ATOLL_OK;
  ATOLL_TRY(rt_exchanges_agree(program->graph, program->schedule.tree, program->bound));
  program->agreed = 1;
  return ATOLL_OK;
}

/* A run that has all that it needs: of the compiled program, or by the interpreter. */
typedef struct execution {
  rt_runtime *compiled;
  rt_interp *interpreted;
} execution;

static atoll_err begin(atoll_rec_program *program, const atoll_rec_binding *bindings, int n, execution *e) {
  if (program->device && program->device->absent)
    return atoll_fail(ATOLL_UNAVAILABLE, "recurrent program: its kernels are for a device that is not here");
  ATOLL_TRY(prepare_run(program, bindings, n));
  const rt_run_params p = {program->threads, program->away, program->offload, program->device};
  if (program->entry)
    return rt_runtime_create(program->graph, &p, bindings, n, &e->compiled);
  return rt_interp_create(program->graph, bindings, n, &e->interpreted);
}

/* What one rank lacks no rank begins without: the others would wait for its sums. Ranks agree on that in each run, for
 * each may be given something else. */
atoll_err atoll_rec_run(atoll_rec_program *program, const atoll_rec_binding *bindings, int n) {
  execution e = {NULL, NULL};
  int64_t peak = 0;
  atoll_err err = rt_exchanges_begin(program->graph, begin(program, bindings, n, &e));
  if (err == ATOLL_OK)
    err = agree_on_order(program);
  if (err == ATOLL_OK)
    err = e.compiled ? rt_runtime_execute(e.compiled, program->entry, &peak) : interpret(program, e.interpreted, &peak);
  rt_runtime_destroy(&e.compiled);
  rt_interp_destroy(&e.interpreted);
  if (err == ATOLL_OK)
    program->last_peak = peak;
  return err;
}

atoll_err atoll_rec_last_peak(const atoll_rec_program *program, int64_t *peak) {
  if (program->last_peak < 0)
    return atoll_fail(ATOLL_USAGE, "recurrent program: it has not run");
  *peak = program->last_peak;
  return ATOLL_OK;
}

atoll_err atoll_rec_peak_bytes(const atoll_rec_program *program, const atoll_rec_binding *bindings, int n,
                               int64_t *peak) {
  char *away = NULL;
  atoll_err err = fit(program, bindings, n, &away, peak);
  free(away);
  return err;
}

static void report_node(const rt_graph *g, const rt_storage *s, const atoll_rt *x, int away, FILE *out) {
  char label[96];
  fprintf(out, "%s %s ", rt_label(x, label, sizeof label), atoll_dtype_name(x->dtype));
  switch (s->kind) {
  case RT_STORE_RING:
    fprintf(out, "ring of %s, %lld", g->dim[s->dim].name, (long long)s->slots);
    break;
  case RT_STORE_POINTS:
    fprintf(out, "points, %lld", (long long)s->slots);
    break;
  default:
    fputs("one", out);
  }
  if (s->block > 1)
    fprintf(out, " of blocks of %lld", (long long)s->block);
  fprintf(out, ", %lld bytes", (long long)(s->slots * s->bytes));
  if (s->donor >= 0)
    fprintf(out, ", in place of %s", rt_label(g->node[s->donor], label, sizeof label));
  if (away)
    fputs(", put away between uses", out);
  fputc('\n', out);
}

atoll_err atoll_rec_report(const atoll_rec_program *program, const atoll_rec_binding *bindings, int n, FILE *out) {
  const rt_graph *g = program->graph;
  rt_storage *s = NULL;
  char *away = NULL;
  int64_t bound[RT_DIMS] = {0}, peak = 0, pads = 0;
  ATOLL_TRY(rt_bounds(g, bindings, n, bound));
  ATOLL_TRY(rt_pad_bytes(g, bound, &pads));
  ATOLL_TRY(fit(program, bindings, n, &away, &peak));
  atoll_err err = rt_storage_choose(g, program->schedule.tree, bound, &s);
  if (err == ATOLL_OK)
    atoll_rec_program_print(program, out);
  for (int i = 0; err == ATOLL_OK && i < g->nodes; i++)
    if (g->node[i] && s[i].kind != RT_STORE_NONE)
      report_node(g, &s[i], g->node[i], away[i], out);
  if (err == ATOLL_OK && pads)
    fprintf(out, "pads %lld bytes\n", (long long)pads);
  if (err == ATOLL_OK)
    fprintf(out, "peak %lld bytes\n", (long long)peak);
  free(away);
  free(s);
  return err;
}

/* The inter-stage objective as an integer program (Zhu et al., Mist, EuroSys 2025), for CBC.
 *
 * A binary z for every option of every stage, and two reals M (the bottleneck) and X (the extra time):
 *
 *   minimise  (G - 1) M + sum t z + X
 *   sum over the options of a stage of z = 1
 *   sum over all of layers z = L                         when options fit wherever a stage begins; else
 *   flow: at every (stage, layer), as many stages end there as begin, and an option that fits anywhere has a binary
 *         for every layer at which its stage can begin
 *   M >= sum t z                                         of each stage
 *   X >= sum d z - sum over earlier stages of t z        of each stage
 *
 * Times are scaled so that the largest is 1000, because the library's tolerances are absolute. The library is loaded
 * when it is first asked for, and privately: see AtollPackages.cmake. */
#include "interstage/interstage.h"

#ifndef ATOLL_CBC_FILE

int interstage_have_cbc(void) { return 0; }

atoll_err interstage_cbc(const interstage_problem *p, int *choice, interstage_answer *out) {
  (void)p;
  (void)choice;
  (void)out;
  return atoll_fail(ATOLL_UNSUPPORTED, "this build has no CBC");
}

#else

#include <Cbc_C_Interface.h>
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MOST "10000"

typedef struct column {
  int stage, index, first; /* first: -1 without flow */
} column;

typedef struct program {
  const interstage_problem *p;
  int flow;
  double scale;
  column *column;
  int columns, rows, entries;
  CoinBigIndex *start;
  int *row;
  double *value, *low, *high, *objective, *row_low, *row_high;
} program;

static struct library {
  void *handle;
  Cbc_Model *(*create)(void);
  void (*destroy)(Cbc_Model *);
  void (*load)(Cbc_Model *, int, int, const CoinBigIndex *, const int *, const double *, const double *, const double *,
               const double *, const double *, const double *);
  void (*set_integer)(Cbc_Model *, int);
  void (*set_parameter)(Cbc_Model *, const char *, const char *);
  int (*solve)(Cbc_Model *);
  int (*proven)(Cbc_Model *);
  const double *(*solution)(Cbc_Model *);
  int (*nodes)(Cbc_Model *);
} cbc;

int interstage_have_cbc(void) {
  struct {
    const char *name;
    void *slot;
  } const entry[] = {
      {"Cbc_newModel", &cbc.create},        {"Cbc_deleteModel", &cbc.destroy},        {"Cbc_loadProblem", &cbc.load},
      {"Cbc_setInteger", &cbc.set_integer}, {"Cbc_setParameter", &cbc.set_parameter}, {"Cbc_solve", &cbc.solve},
      {"Cbc_isProvenOptimal", &cbc.proven}, {"Cbc_bestSolution", &cbc.solution},      {"Cbc_getNodeCount", &cbc.nodes}};
  if (cbc.handle)
    return 1;
  void *handle = dlopen(ATOLL_CBC_FILE, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return 0;
  for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
    void *symbol = dlsym(handle, entry[i].name);
    if (!symbol) {
      dlclose(handle);
      return 0;
    }
    memcpy(entry[i].slot, &symbol, sizeof symbol); /* ISO C has no cast from objects to functions; POSIX does */
  }
  cbc.handle = handle;
  return 1;
}

static int row_one(int i) { return i; }
static int row_most(const program *x, int i) { return x->p->stages + i; }
static int row_extra(const program *x, int i) { return 2 * x->p->stages + i; }
/* Between stages i - 1 and i at layer a; 0 < i < stages, 0 < a < L. Without flow one row for all. */
static int row_flow(const program *x, int i, int a) { return 3 * x->p->stages + (i - 1) * (x->p->layers - 1) + a - 1; }

static void put(program *x, int row, double v) {
  x->row[x->entries] = row;
  x->value[x->entries++] = v;
}

/* Where may stage i begin? The others need a layer each. */
static int fits(const program *x, int i, int first, int layers) {
  int S = x->p->stages, end = first + layers;
  return first >= i && (i > 0 || first == 0) && end <= x->p->layers - (S - 1 - i) && (i < S - 1 || end == x->p->layers);
}

static void add_column(program *x, int i, int k, int first) {
  const interstage_option *o = &x->p->stage[i].option[k];
  double t = o->t * x->scale, d = o->d * x->scale;
  int S = x->p->stages, c = x->columns++;
  x->column[c] = (column){i, k, first};
  x->start[c] = x->entries;
  x->low[c] = 0;
  x->high[c] = 1;
  x->objective[c] = t;
  put(x, row_one(i), 1);
  put(x, row_most(x, i), -t);
  put(x, row_extra(x, i), -d);
  for (int j = i + 1; j < S; j++)
    put(x, row_extra(x, j), t);
  if (!x->flow)
    put(x, 3 * S, o->layers);
  if (x->flow && i > 0)
    put(x, row_flow(x, i, first), -1);
  if (x->flow && i < S - 1)
    put(x, row_flow(x, i + 1, first + o->layers), 1);
}

static void add_real(program *x, double weight, double low, int first_row) {
  int c = x->columns++;
  x->start[c] = x->entries;
  x->low[c] = low;
  x->high[c] = DBL_MAX;
  x->objective[c] = weight;
  for (int i = 0; i < x->p->stages; i++)
    put(x, first_row + i, 1);
}

static atoll_err build(program *x) {
  const interstage_problem *p = x->p;
  int S = p->stages, L = p->layers;
  double most = 0;
  size_t columns = 2, entries = 2 * (size_t)S;
  for (int i = 0; i < S; i++)
    for (int k = 0; k < p->stage[i].options; k++)
      x->flow |= p->stage[i].option[k].first >= 0;
  for (int i = 0; i < S; i++)
    for (int k = 0; k < p->stage[i].options; k++) {
      const interstage_option *o = &p->stage[i].option[k];
      size_t n = x->flow && o->first < 0 ? (size_t)L : 1;
      columns += n;
      entries += n * (size_t)(S - i + 5);
      most = fmax(most, fmax(o->t, fabs(o->d)));
    }
  x->scale = most > 0 ? 1000 / most : 1;
  x->rows = 3 * S + (x->flow ? (S - 1) * (L - 1) : 1);
  x->column = calloc(columns, sizeof *x->column);
  x->start = calloc(columns + 1, sizeof *x->start);
  x->low = calloc(columns, sizeof *x->low);
  x->high = calloc(columns, sizeof *x->high);
  x->objective = calloc(columns, sizeof *x->objective);
  x->row = calloc(entries, sizeof *x->row);
  x->value = calloc(entries, sizeof *x->value);
  x->row_low = calloc((size_t)x->rows, sizeof *x->row_low);
  x->row_high = calloc((size_t)x->rows, sizeof *x->row_high);
  if (!x->column || !x->start || !x->low || !x->high || !x->objective || !x->row || !x->value || !x->row_low ||
      !x->row_high)
    return atoll_fail(ATOLL_NOMEM, "inter-stage: no memory for an integer program of %zu columns", columns);
  for (int i = 0; i < S; i++)
    for (int k = 0; k < p->stage[i].options; k++) {
      const interstage_option *o = &p->stage[i].option[k];
      if (!x->flow)
        add_column(x, i, k, -1);
      for (int a = 0; x->flow && a < L; a++)
        if ((o->first < 0 || o->first == a) && fits(x, i, a, o->layers))
          add_column(x, i, k, a);
    }
  add_real(x, (double)(p->micro_batches - 1), 0, row_most(x, 0));
  add_real(x, 1, -DBL_MAX, row_extra(x, 0));
  x->start[x->columns] = x->entries;
  for (int i = 0; i < S; i++) {
    x->row_low[row_one(i)] = x->row_high[row_one(i)] = 1;
    x->row_high[row_most(x, i)] = x->row_high[row_extra(x, i)] = DBL_MAX;
  }
  if (!x->flow)
    x->row_low[3 * S] = x->row_high[3 * S] = L;
  return ATOLL_OK;
}

static atoll_err read_answer(const program *x, Cbc_Model *m, int *choice, interstage_answer *out) {
  const interstage_problem *p = x->p;
  int proved = cbc.proven(m);
  const double *z = cbc.solution(m);
  if (!z)
    return atoll_fail(ATOLL_TIMEOUT, "inter-stage: the integer program found no choice within %s nodes", NODES_MOST);
  int taken = 0, at = 0;
  for (int c = 0; c < x->columns - 2; c++) {
    if (z[c] < 0.5)
      continue;
    if (x->column[c].stage != taken || (x->flow && x->column[c].first != at))
      return atoll_fail(ATOLL_INTERNAL, "inter-stage: the integer program's answer takes stage %d out of turn",
                        x->column[c].stage);
    choice[taken] = x->column[c].index;
    at += p->stage[taken].option[choice[taken]].layers;
    taken++;
  }
  if (taken != p->stages || at != p->layers)
    return atoll_fail(ATOLL_INTERNAL, "inter-stage: the integer program's answer has %d of %d stages, %d of %d layers",
                      taken, p->stages, at, p->layers);
  out->value = interstage_value(p, choice, &out->bottleneck, &out->sum);
  out->proved = proved;
  out->work = cbc.nodes(m);
  return ATOLL_OK;
}

atoll_err interstage_cbc(const interstage_problem *p, int *choice, interstage_answer *out) {
  program x = {.p = p};
  Cbc_Model *m = NULL;
  atoll_err err = build(&x);
  if (err != ATOLL_OK)
    goto done;
  m = cbc.create();
  if (!m) {
    err = atoll_fail(ATOLL_NOMEM, "inter-stage: no memory for an integer program of %d columns", x.columns);
    goto done;
  }
  cbc.load(m, x.columns, x.rows, x.start, x.row, x.value, x.low, x.high, x.objective, x.row_low, x.row_high);
  for (int c = 0; c < x.columns - 2; c++)
    cbc.set_integer(m, c);
  cbc.set_parameter(m, "logLevel", "0");
  cbc.set_parameter(m, "slogLevel", "0");
  cbc.set_parameter(m, "ratioGap", "0");
  cbc.set_parameter(m, "allowableGap", "0");
  cbc.set_parameter(m, "maxNodes", NODES_MOST);
  (void)cbc.solve(m);
  err = read_answer(&x, m, choice, out);
done:
  if (m)
    cbc.destroy(m);
  free(x.column);
  free(x.start);
  free(x.low);
  free(x.high);
  free(x.objective);
  free(x.row);
  free(x.value);
  free(x.row_low);
  free(x.row_high);
  return err;
}

#endif

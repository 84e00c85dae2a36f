/* Evaluation of expressions over columns of candidates.
 *
 * A program is the graph of its outputs in topological order, every distinct node once. It runs over blocks of lanes:
 * one operation over a whole block at a time, so that its cost is the arithmetic. Every value of a block has a status
 * per lane beside it. All branches are computed in all lanes; SELECT, AND and OR then take the status of what the
 * scalar evaluation would have looked at, so a lane fails exactly when atoll_sym_eval() does, and for the same reason.
 *
 * The exactness of the scalar evaluation (a sum collects its terms in 192 bits, a product looks for a zero first) is
 * kept without its price: integer sums and products run in 64 bits with overflow detected per lane, and the few lanes
 * where anything overflowed or failed are done again exactly. A sum's terms that are products are then multiplied
 * again, in 128 bits, from their factors, whose registers therefore live until the sum. */
#include "atoll/sym.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sym_impl.h"

/* Lanes of a block: a register with its statuses is 2.25 KiB, so some ten stay in the first-level cache. */
#define LANES 256

enum kind { CONSTANT, COLUMN, RESULT };

struct value { /* one distinct node */
  const atoll_sym *e;
  enum kind kind;
  int at;   /* column, or register (constants, results and copied columns); -1: read in place */
  int ins;  /* RESULT: which instruction */
  int last; /* instruction that reads it last */
};

struct ins {
  uint8_t op, real; /* real: of the operands */
  int value;        /* what it makes */
  int first, n;     /* into arg */
};

struct atoll_sym_program {
  int columns, outputs;
  char **name; /* [columns] */
  atoll_sym_type *type;
  const atoll_sym **expr; /* [outputs]: for messages */
  int *output;            /* [outputs]: value */
  struct value *value;
  int values, value_room;
  struct ins *ins;
  int count, ins_room;
  int *arg; /* values */
  int args, arg_room;
  int registers;
};

/* ---- compiling --------------------------------------------------------------------------------------------------- */

struct compiler {
  atoll_sym_program *p;
  int *slot; /* open addressing: value + 1 */
  size_t slots;
};

static int grow(void *array, int used, int *room, size_t size) {
  if (used < *room)
    return 0;
  if (*room > INT32_MAX / 4)
    return -1;
  int n = *room ? 2 * *room : 64;
  void *p = realloc(*(void **)array, (size_t)n * size);
  if (!p)
    return -1;
  *(void **)array = p;
  *room = n;
  return 0;
}

static size_t place(const struct compiler *c, const atoll_sym *e) {
  size_t i = (size_t)e->hash & (c->slots - 1);
  while (c->slot[i] && c->p->value[c->slot[i] - 1].e != e)
    i = (i + 1) & (c->slots - 1);
  return i;
}

static int rehash(struct compiler *c) {
  size_t old = c->slots;
  if (old && 2 * ((size_t)c->p->values + 1) <= old)
    return 0;
  size_t slots = old ? 2 * old : 256;
  int *p = calloc(slots, sizeof *p);
  if (!p)
    return -1;
  free(c->slot);
  c->slot = p;
  c->slots = slots;
  for (int v = 0; v < c->p->values; v++)
    c->slot[place(c, c->p->value[v].e)] = v + 1;
  return 0;
}

static atoll_err no_memory(void) { return atoll_fail(ATOLL_NOMEM, "no memory to compile expressions"); }

static atoll_err column_of(const atoll_sym_program *p, const atoll_sym *e, int *out) {
  for (int i = 0; i < p->columns; i++)
    if (strcmp(p->name[i], e->v.name) == 0) {
      if (p->type[i] != (atoll_sym_type)e->type)
        return atoll_fail(ATOLL_USAGE, "column %s is %s, the expression has it as %s", p->name[i],
                          sym_type_name(p->type[i]), sym_type_name((atoll_sym_type)e->type));
      *out = i;
      return ATOLL_OK;
    }
  return atoll_fail(ATOLL_USAGE, "no column for variable %s", e->v.name);
}

static atoll_err compile(struct compiler *c, const atoll_sym *e, int *out) {
  atoll_sym_program *p = c->p;
  if (c->slots) {
    int known = c->slot[place(c, e)];
    if (known) {
      *out = known - 1;
      return ATOLL_OK;
    }
  }
  int *args = NULL;
  struct value v = {.e = e, .kind = e->op == ATOLL_SYM_CONST ? CONSTANT : e->op == ATOLL_SYM_VAR ? COLUMN : RESULT};
  if (v.kind == COLUMN)
    ATOLL_TRY(column_of(p, e, &v.at));
  if (v.kind == RESULT) {
    args = malloc((size_t)e->arity * sizeof *args);
    if (!args)
      return no_memory();
    for (int i = 0; i < e->arity; i++) {
      atoll_err err = compile(c, e->arg[i], &args[i]);
      if (err != ATOLL_OK) {
        free(args);
        return err;
      }
    }
    struct ins ins = {.op = e->op, .real = e->arg[0]->type == ATOLL_SYM_REAL, .first = p->args, .n = e->arity};
    ins.value = p->values;
    v.ins = p->count;
    int failed = grow(&p->ins, p->count, &p->ins_room, sizeof *p->ins);
    for (int i = 0; i < e->arity && !failed; i++) {
      failed = grow(&p->arg, p->args, &p->arg_room, sizeof *p->arg);
      if (!failed)
        p->arg[p->args++] = args[i];
    }
    free(args);
    if (failed)
      return no_memory();
    p->ins[p->count++] = ins;
  }
  if (grow(&p->value, p->values, &p->value_room, sizeof *p->value) || rehash(c))
    return no_memory();
  c->slot[place(c, e)] = p->values + 1;
  *out = p->values;
  p->value[p->values++] = v;
  return ATOLL_OK;
}

static int is_int_product(const struct value *v) {
  return v->kind == RESULT && v->e->op == ATOLL_SYM_MUL && v->e->type == ATOLL_SYM_INT;
}

static int is_int_sum(const struct ins *i) { return i->op == ATOLL_SYM_ADD && !i->real; }

/* Registers: results give theirs back after their last reader; constants, copied columns and outputs keep theirs. A
 * result never takes a register of its own operands, because lanes may be done twice. */
static int assign_registers(atoll_sym_program *p) {
  int *spare = malloc((size_t)(p->values + 1) * sizeof *spare), spares = 0;
  if (!spare)
    return -1;
  for (int i = 0; i < p->count; i++)
    for (int k = 0; k < p->ins[i].n; k++) {
      struct value *a = &p->value[p->arg[p->ins[i].first + k]];
      a->last = i;
      if (is_int_sum(&p->ins[i]) && is_int_product(a))
        for (int f = 0; f < p->ins[a->ins].n; f++)
          p->value[p->arg[p->ins[a->ins].first + f]].last = i;
    }
  for (int o = 0; o < p->outputs; o++)
    p->value[p->output[o]].last = p->count;
  for (int v = 0; v < p->values; v++)
    if (p->value[v].kind == CONSTANT)
      p->value[v].at = p->registers++;
  for (int i = 0; i < p->count; i++) {
    struct value *made = &p->value[p->ins[i].value];
    made->at = spares > 0 ? spare[--spares] : p->registers++;
    /* Sweep what ends here: only operands, and factors of operands, can. */
    for (int k = 0; k < p->ins[i].n; k++) {
      struct value *a = &p->value[p->arg[p->ins[i].first + k]];
      if (is_int_sum(&p->ins[i]) && is_int_product(a))
        for (int f = 0; f < p->ins[a->ins].n; f++) {
          struct value *b = &p->value[p->arg[p->ins[a->ins].first + f]];
          if (b->kind == RESULT && b->last == i) {
            b->last = -1; /* once */
            spare[spares++] = b->at;
          }
        }
      if (a->kind == RESULT && a->last == i) {
        a->last = -1;
        spare[spares++] = a->at;
      }
    }
  }
  free(spare);
  return 0;
}

void atoll_sym_program_destroy(atoll_sym_program **address) {
  if (!address || !*address)
    return;
  atoll_sym_program *p = *address;
  for (int i = 0; p->name && i < p->columns; i++)
    free(p->name[i]);
  free(p->name);
  free(p->type);
  free(p->expr);
  free(p->output);
  free(p->value);
  free(p->ins);
  free(p->arg);
  free(p);
  *address = NULL;
}

static atoll_err take_names(atoll_sym_program *p, const char *const *names, const atoll_sym_type *types) {
  for (int i = 0; i < p->columns; i++) {
    size_t n = strlen(names[i]) + 1;
    p->name[i] = malloc(n);
    if (!p->name[i])
      return no_memory();
    memcpy(p->name[i], names[i], n);
    p->type[i] = types ? types[i] : ATOLL_SYM_INT;
  }
  return ATOLL_OK;
}

atoll_err atoll_sym_compile(const atoll_sym *const *outputs, int n, const char *const *names,
                            const atoll_sym_type *types, int columns, atoll_sym_program **out) {
  if (n < 1 || !outputs || columns < 0 || (columns && !names))
    return atoll_fail(ATOLL_USAGE, "%d expressions and %d columns to compile", n, columns);
  for (int i = 0; i < n; i++)
    if (!outputs[i])
      return atoll_fail(ATOLL_USAGE, "expression %d to compile is missing (NULL)", i);
  atoll_sym_program *p = calloc(1, sizeof *p);
  if (!p)
    return no_memory();
  struct compiler c = {.p = p};
  atoll_err err = ATOLL_OK;
  p->columns = columns;
  p->outputs = n;
  p->name = calloc((size_t)columns + 1, sizeof *p->name);
  p->type = calloc((size_t)columns + 1, sizeof *p->type);
  p->expr = calloc((size_t)n, sizeof *p->expr);
  p->output = calloc((size_t)n, sizeof *p->output);
  if (!p->name || !p->type || !p->expr || !p->output)
    err = no_memory();
  if (err == ATOLL_OK)
    err = take_names(p, names, types);
  for (int i = 0; i < n && err == ATOLL_OK; i++) {
    p->expr[i] = outputs[i];
    err = compile(&c, outputs[i], &p->output[i]);
  }
  if (err == ATOLL_OK && assign_registers(p))
    err = no_memory();
  free(c.slot);
  if (err != ATOLL_OK)
    atoll_sym_program_destroy(&p);
  else
    *out = p;
  return err;
}

int atoll_sym_program_size(const atoll_sym_program *p) { return p->count; }

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct reg { /* one value over the lanes of a block */
  const int64_t *i;
  const double *r;
  const uint8_t *status; /* meaningful when failed */
  int failed;            /* some lane has a status */
};

struct run {
  const atoll_sym_program *p;
  struct reg *reg;  /* [values] */
  int64_t *storage; /* [registers][LANES], ints or the bits of doubles */
  uint8_t *status;  /* [registers][LANES] */
  int64_t over[LANES];
  uint8_t doubt[LANES];
};

static const struct reg *operand(const struct run *run, const struct ins *ins, int k) {
  return &run->reg[run->p->arg[ins->first + k]];
}

static uint8_t status_at(const struct reg *a, int lane) { return a->failed ? a->status[lane] : ATOLL_SYM_LANE_OK; }

/* As the scalar eval_product: the factors of one lane, at most `limit` in magnitude. */
static uint8_t product_at(const struct run *run, const struct ins *ins, int lane, wide limit, wide *out) {
  wide product = 1;
  int over = 0, zero = 0;
  for (int k = 0; k < ins->n; k++) {
    const struct reg *a = operand(run, ins, k);
    uint8_t s = status_at(a, lane);
    if (s)
      return s;
    zero = zero || a->i[lane] == 0;
    if (!over && !zero)
      over = __builtin_mul_overflow(product, (wide)a->i[lane], &product) || product > limit || product < -limit;
  }
  if (over && !zero)
    return ATOLL_SYM_LANE_OVERFLOW;
  *out = zero ? 0 : product;
  return ATOLL_SYM_LANE_OK;
}

/* As the scalar eval_int_add: two's complement in three limbs. */
static uint8_t sum_at(const struct run *run, const struct ins *ins, int lane, int64_t *out) {
  uint64_t limb[3] = {0, 0, 0};
  for (int k = 0; k < ins->n; k++) {
    const struct value *t = &run->p->value[run->p->arg[ins->first + k]];
    const struct reg *a = operand(run, ins, k);
    wide v;
    uint8_t s;
    if (is_int_product(t)) {
      s = product_at(run, &run->p->ins[t->ins], lane, (wide)1 << 126, &v);
    } else {
      s = status_at(a, lane);
      v = a->i[lane];
    }
    if (s)
      return s;
    uint64_t add[3] = {(uint64_t)v, (uint64_t)(v >> 64), v < 0 ? UINT64_MAX : 0};
    unsigned carry = 0;
    for (int i = 0; i < 3; i++) {
      uint64_t sum = limb[i] + add[i], with = sum + carry;
      carry = (sum < add[i]) | (with < sum);
      limb[i] = with;
    }
  }
  uint64_t sign = (int64_t)limb[0] < 0 ? UINT64_MAX : 0;
  if (limb[1] != sign || limb[2] != sign)
    return ATOLL_SYM_LANE_OVERFLOW;
  *out = (int64_t)limb[0];
  return ATOLL_SYM_LANE_OK;
}

/* Lanes in which an operand failed. */
static int doubts(struct run *run, const struct ins *ins, int n) {
  int any = 0;
  for (int k = 0; k < ins->n; k++) {
    const struct reg *a = operand(run, ins, k);
    if (!a->failed)
      continue;
    if (!any)
      memset(run->doubt, 0, (size_t)n);
    any = 1;
    for (int i = 0; i < n; i++)
      run->doubt[i] |= a->status[i];
  }
  return any;
}

static int int_sum(struct run *run, const struct ins *ins, int n, int64_t *restrict out, uint8_t *restrict status) {
  int64_t *restrict over = run->over;
  const int64_t *restrict x = operand(run, ins, 0)->i;
  memcpy(out, x, (size_t)n * sizeof *out);
  memset(over, 0, (size_t)n * sizeof *over);
  for (int k = 1; k < ins->n; k++) {
    const int64_t *restrict y = operand(run, ins, k)->i;
    for (int i = 0; i < n; i++) {
      int64_t s = (int64_t)((uint64_t)out[i] + (uint64_t)y[i]);
      over[i] |= (out[i] ^ s) & (y[i] ^ s);
      out[i] = s;
    }
  }
  int failed = 0, doubt = doubts(run, ins, n);
  int64_t any = 0;
  for (int i = 0; i < n; i++)
    any |= over[i];
  if (!doubt && any >= 0)
    return 0;
  for (int i = 0; i < n; i++) {
    status[i] = ATOLL_SYM_LANE_OK;
    if (over[i] < 0 || (doubt && run->doubt[i])) {
      int64_t v = 0;
      status[i] = sum_at(run, ins, i, &v);
      out[i] = v;
      failed |= status[i];
    }
  }
  return failed != 0;
}

static int int_product(struct run *run, const struct ins *ins, int n, int64_t *restrict out, uint8_t *restrict status) {
  int64_t *restrict over = run->over;
  int64_t any = 0;
  memcpy(out, operand(run, ins, 0)->i, (size_t)n * sizeof *out);
  memset(over, 0, (size_t)n * sizeof *over);
  for (int k = 1; k < ins->n; k++) {
    const int64_t *restrict y = operand(run, ins, k)->i;
    for (int i = 0; i < n; i++) {
      int64_t v;
      over[i] |= __builtin_mul_overflow(out[i], y[i], &v);
      out[i] = v;
    }
  }
  int failed = 0, doubt = doubts(run, ins, n);
  for (int i = 0; i < n; i++)
    any |= over[i];
  if (!doubt && !any)
    return 0;
  for (int i = 0; i < n; i++) {
    status[i] = ATOLL_SYM_LANE_OK;
    if (over[i] || (doubt && run->doubt[i])) {
      wide v = 0;
      status[i] = product_at(run, ins, i, (wide)1 << 63, &v);
      if (!status[i] && !wide_fits(v))
        status[i] = ATOLL_SYM_LANE_OVERFLOW;
      out[i] = status[i] ? 0 : (int64_t)v;
      failed |= status[i];
    }
  }
  return failed != 0;
}

/* Status of an operation whose operands are all looked at, in order. */
static int inherit(const struct run *run, const struct ins *ins, int n, uint8_t *restrict status) {
  int failed = 0;
  memset(status, 0, (size_t)n);
  for (int k = 0; k < ins->n; k++) {
    const struct reg *a = operand(run, ins, k);
    if (!a->failed)
      continue;
    failed = 1;
    for (int i = 0; i < n; i++)
      status[i] = status[i] ? status[i] : a->status[i];
  }
  return failed;
}

static void int_divide(const struct ins *ins, int n, const int64_t *restrict a, const int64_t *restrict b,
                       int64_t *restrict out, uint8_t *restrict status, int *failed) {
  for (int i = 0; i < n; i++) {
    int64_t x = a[i], y = b[i];
    uint8_t s = y == 0                                                                ? ATOLL_SYM_LANE_ZERO_DIVISOR
                : y == -1 && x == INT64_MIN && ins->op == (uint8_t)ATOLL_SYM_FLOORDIV ? ATOLL_SYM_LANE_OVERFLOW
                                                                                      : ATOLL_SYM_LANE_OK;
    if (y == 0 || y == -1) { /* -1 apart: the machine's division of INT64_MIN by it traps */
      out[i] = ins->op == (uint8_t)ATOLL_SYM_MOD || s ? 0 : -x;
    } else {
      int64_t q = x / y, r = x % y;
      int down = r != 0 && (r < 0) != (y < 0);
      out[i] = ins->op == (uint8_t)ATOLL_SYM_MOD ? r + (down ? y : 0) : q - down;
    }
    if (s && !status[i]) {
      status[i] = s;
      *failed = 1;
    }
  }
}

static void int_two(const struct ins *ins, int n, const int64_t *restrict a, const int64_t *restrict b,
                    int64_t *restrict out) {
  switch (ins->op) {
  case ATOLL_SYM_LT:
    for (int i = 0; i < n; i++)
      out[i] = a[i] < b[i];
    break;
  case ATOLL_SYM_LE:
    for (int i = 0; i < n; i++)
      out[i] = a[i] <= b[i];
    break;
  case ATOLL_SYM_EQ:
    for (int i = 0; i < n; i++)
      out[i] = a[i] == b[i];
    break;
  default: /* NE */
    for (int i = 0; i < n; i++)
      out[i] = a[i] != b[i];
  }
}

static void real_compare(const struct ins *ins, int n, const double *restrict a, const double *restrict b,
                         int64_t *restrict out) {
  switch (ins->op) {
  case ATOLL_SYM_LT:
    for (int i = 0; i < n; i++)
      out[i] = a[i] < b[i];
    break;
  case ATOLL_SYM_LE:
    for (int i = 0; i < n; i++)
      out[i] = a[i] <= b[i];
    break;
  case ATOLL_SYM_EQ:
    for (int i = 0; i < n; i++)
      out[i] = a[i] == b[i];
    break;
  default: /* NE */
    for (int i = 0; i < n; i++)
      out[i] = a[i] != b[i];
  }
}

static void real_two(const struct ins *ins, int n, const double *restrict a, const double *restrict b,
                     double *restrict out, uint8_t *restrict status, int *failed) {
  switch (ins->op) {
  case ATOLL_SYM_ADD:
    for (int i = 0; i < n; i++)
      out[i] = a[i] + b[i];
    break;
  case ATOLL_SYM_SUB:
    for (int i = 0; i < n; i++)
      out[i] = a[i] - b[i];
    break;
  case ATOLL_SYM_MUL:
    for (int i = 0; i < n; i++)
      out[i] = a[i] * b[i];
    break;
  default: /* DIV */
    for (int i = 0; i < n; i++)
      out[i] = a[i] / (b[i] == 0 ? 1.0 : b[i]);
  }
  /* x - x is 0 unless x is infinite or NaN, and so is the sum of them: one test for the usual block. A failed operand
   * is 0, which may add a division by zero to a lane that has its reason already. */
  double bad = 0;
  int zero = 0;
  for (int i = 0; i < n; i++)
    bad += out[i] - out[i];
  if (ins->op == (uint8_t)ATOLL_SYM_DIV)
    for (int i = 0; i < n; i++)
      zero |= b[i] == 0;
  if (bad == 0 && !zero)
    return;
  for (int i = 0; i < n; i++) {
    atoll_sym_lane s = ins->op == (uint8_t)ATOLL_SYM_DIV && b[i] == 0 ? ATOLL_SYM_LANE_ZERO_DIVISOR
                       : isfinite(out[i])                             ? ATOLL_SYM_LANE_OK
                                                                      : ATOLL_SYM_LANE_OVERFLOW;
    if (s) {
      out[i] = 0;
      status[i] = status[i] ? status[i] : (uint8_t)s;
      *failed = 1;
    }
  }
}

static void min_max(const struct run *run, const struct ins *ins, int n, int64_t *restrict out, double *restrict real) {
  int max = ins->op == (uint8_t)ATOLL_SYM_MAX;
  if (ins->real)
    memcpy(real, operand(run, ins, 0)->r, (size_t)n * sizeof *real);
  else
    memcpy(out, operand(run, ins, 0)->i, (size_t)n * sizeof *out);
  for (int k = 1; k < ins->n; k++)
    if (ins->real) {
      const double *restrict x = operand(run, ins, k)->r;
      for (int i = 0; i < n; i++)
        real[i] = (max ? x[i] > real[i] : x[i] < real[i]) ? x[i] : real[i];
    } else {
      const int64_t *restrict x = operand(run, ins, k)->i;
      for (int i = 0; i < n; i++)
        out[i] = (max ? x[i] > out[i] : x[i] < out[i]) ? x[i] : out[i];
    }
}

/* A deciding operand wins over failures, wherever it stands; else the first failure counts. */
static int and_or(const struct run *run, const struct ins *ins, int n, int64_t *restrict out,
                  uint8_t *restrict status) {
  const int deciding = ins->op == (uint8_t)ATOLL_SYM_OR;
  int any = 0;
  for (int i = 0; i < n; i++)
    out[i] = !deciding;
  memset(status, 0, (size_t)n);
  for (int k = 0; k < ins->n; k++) {
    const struct reg *a = operand(run, ins, k);
    if (!a->failed) {
      for (int i = 0; i < n; i++)
        out[i] = a->i[i] == deciding ? deciding : out[i];
      continue;
    }
    any = 1;
    for (int i = 0; i < n; i++) {
      if (!a->status[i] && a->i[i] == deciding)
        out[i] = deciding;
      status[i] = status[i] ? status[i] : a->status[i];
    }
  }
  if (!any)
    return 0;
  int failed = 0;
  for (int i = 0; i < n; i++) {
    status[i] = out[i] == deciding ? ATOLL_SYM_LANE_OK : status[i];
    failed |= status[i];
  }
  return failed != 0;
}

static int choose(const struct run *run, const struct ins *ins, atoll_sym_type type, int n, int64_t *restrict out,
                  double *restrict real, uint8_t *restrict status) {
  const struct reg *c = operand(run, ins, 0), *a = operand(run, ins, 1), *b = operand(run, ins, 2);
  if (type == ATOLL_SYM_REAL)
    for (int i = 0; i < n; i++)
      real[i] = c->i[i] ? a->r[i] : b->r[i];
  else
    for (int i = 0; i < n; i++)
      out[i] = c->i[i] ? a->i[i] : b->i[i];
  if (!c->failed && !a->failed && !b->failed)
    return 0;
  int failed = 0;
  for (int i = 0; i < n; i++) {
    uint8_t s = status_at(c, i);
    status[i] = s ? s : status_at(c->i[i] ? a : b, i);
    failed |= status[i];
  }
  return failed != 0;
}

static void run_ins(struct run *run, const struct ins *ins, int n) {
  const struct value *v = &run->p->value[ins->value];
  struct reg *made = &run->reg[ins->value];
  atoll_sym_type type = (atoll_sym_type)v->e->type;
  int64_t *out = run->storage + (size_t)v->at * LANES;
  double *real = (double *)(void *)out;
  uint8_t *status = run->status + (size_t)v->at * LANES;
  const struct reg *a = operand(run, ins, 0), *b = ins->n > 1 ? operand(run, ins, 1) : a;
  int failed = 0;
  if (is_int_sum(ins)) {
    failed = int_sum(run, ins, n, out, status);
  } else if (ins->op == (uint8_t)ATOLL_SYM_MUL && !ins->real) {
    failed = int_product(run, ins, n, out, status);
  } else if (ins->op == (uint8_t)ATOLL_SYM_AND || ins->op == (uint8_t)ATOLL_SYM_OR) {
    failed = and_or(run, ins, n, out, status);
  } else if (ins->op == (uint8_t)ATOLL_SYM_SELECT) {
    failed = choose(run, ins, type, n, out, real, status);
  } else {
    failed = inherit(run, ins, n, status);
    if (ins->op == (uint8_t)ATOLL_SYM_MIN || ins->op == (uint8_t)ATOLL_SYM_MAX)
      min_max(run, ins, n, out, real);
    else if (ins->op == (uint8_t)ATOLL_SYM_NOT)
      for (int i = 0; i < n; i++)
        out[i] = !a->i[i];
    else if (ins->op == (uint8_t)ATOLL_SYM_TO_REAL)
      for (int i = 0; i < n; i++)
        real[i] = (double)a->i[i];
    else if (ins->op == (uint8_t)ATOLL_SYM_FLOORDIV || ins->op == (uint8_t)ATOLL_SYM_MOD)
      int_divide(ins, n, a->i, b->i, out, status, &failed);
    else if (type == ATOLL_SYM_REAL)
      real_two(ins, n, a->r, b->r, real, status, &failed);
    else if (ins->real)
      real_compare(ins, n, a->r, b->r, out);
    else
      int_two(ins, n, a->i, b->i, out);
  }
  *made = (struct reg){out, real, status, failed};
}

static atoll_err check_columns(const atoll_sym_program *p, const atoll_sym_column *column, size_t lanes) {
  for (int v = 0; v < p->values; v++) {
    if (p->value[v].kind != COLUMN)
      continue;
    int c = p->value[v].at;
    size_t n = column[c].same ? 1 : lanes;
    if (p->type[c] != ATOLL_SYM_REAL ? !column[c].i : !column[c].r)
      return atoll_fail(ATOLL_USAGE, "column %s has no %s values", p->name[c], sym_type_name(p->type[c]));
    for (size_t i = 0; p->type[c] == ATOLL_SYM_REAL && i < n; i++)
      if (!isfinite(column[c].r[i]))
        return atoll_fail(ATOLL_USAGE, "column %s is %g in lane %zu", p->name[c], column[c].r[i], i);
  }
  return ATOLL_OK;
}

/* Columns that cannot be read where they are: one value for all lanes, and bools, which may be any nonzero number. */
static int copied(const atoll_sym_program *p, const atoll_sym_column *column, int c) {
  return column[c].same || p->type[c] == ATOLL_SYM_BOOL;
}

static void load_column(struct reg *reg, const atoll_sym_program *p, const atoll_sym_column *column, int c, size_t base,
                        int n, int64_t *copy) {
  const atoll_sym_column *from = &column[c];
  *reg = (struct reg){0};
  if (!copied(p, column, c)) {
    reg->i = from->i ? from->i + base : NULL;
    reg->r = from->r ? from->r + base : NULL;
    return;
  }
  reg->i = copy;
  reg->r = (double *)(void *)copy;
  if (from->same && base > 0)
    return;
  for (int i = 0; i < (from->same ? LANES : n); i++)
    if (p->type[c] == ATOLL_SYM_REAL)
      ((double *)(void *)copy)[i] = from->r[from->same ? 0 : base + (size_t)i];
    else if (p->type[c] == ATOLL_SYM_BOOL)
      copy[i] = from->i[from->same ? 0 : base + (size_t)i] != 0;
    else
      copy[i] = from->i[0];
}

static void load_constants(struct run *run, size_t lanes) {
  for (int v = 0; v < run->p->values; v++) {
    const struct value *x = &run->p->value[v];
    if (x->kind != CONSTANT)
      continue;
    int64_t *to = run->storage + (size_t)x->at * LANES;
    for (size_t i = 0; i < LANES && i < lanes; i++)
      if (x->e->type == ATOLL_SYM_REAL)
        ((double *)(void *)to)[i] = x->e->v.r;
      else
        to[i] = x->e->v.i;
    run->reg[v] = (struct reg){to, (double *)(void *)to, NULL, 0};
  }
}

static void store_output(const struct run *run, int o, size_t base, int n, const atoll_sym_results *out) {
  const struct reg *r = &run->reg[run->p->output[o]];
  if (run->p->expr[o]->type == ATOLL_SYM_REAL) {
    if (out->r)
      memcpy(out->r + base, r->r, (size_t)n * sizeof *out->r);
  } else if (out->i) {
    memcpy(out->i + base, r->i, (size_t)n * sizeof *out->i);
  }
  for (int i = 0; i < n; i++) {
    uint8_t s = status_at(r, i);
    if (out->status)
      out->status[base + (size_t)i] = s;
    if (s && run->p->expr[o]->type == ATOLL_SYM_REAL && out->r)
      out->r[base + (size_t)i] = 0;
    else if (s && run->p->expr[o]->type != ATOLL_SYM_REAL && out->i)
      out->i[base + (size_t)i] = 0;
  }
}

atoll_err atoll_sym_program_run(const atoll_sym_program *p, const atoll_sym_column *columns, size_t lanes,
                                const atoll_sym_results *results) {
  if (!p || !results || (p->columns && !columns))
    return atoll_fail(ATOLL_USAGE, "no program, columns or room for results");
  ATOLL_TRY(check_columns(p, columns, lanes));
  struct run *run = calloc(1, sizeof *run);
  size_t rows = (size_t)p->registers + (size_t)p->columns + 1;
  int64_t *copies;
  atoll_err err = ATOLL_OK;
  if (!run)
    return atoll_fail(ATOLL_NOMEM, "no memory to evaluate expressions");
  run->p = p;
  run->reg = calloc((size_t)p->values, sizeof *run->reg);
  run->storage = malloc(rows * LANES * sizeof *run->storage);
  run->status = malloc(((size_t)p->registers + 1) * LANES);
  if (!run->reg || !run->storage || !run->status) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %zu registers of %d lanes", rows, LANES);
    goto done;
  }
  copies = run->storage + (size_t)p->registers * LANES;
  load_constants(run, lanes);
  for (size_t base = 0; base < lanes; base += LANES) {
    int n = lanes - base < LANES ? (int)(lanes - base) : LANES;
    for (int v = 0; v < p->values; v++)
      if (p->value[v].kind == COLUMN)
        load_column(&run->reg[v], p, columns, p->value[v].at, base, n, copies + (size_t)p->value[v].at * LANES);
    for (int i = 0; i < p->count; i++)
      run_ins(run, &p->ins[i], n);
    for (int o = 0; o < p->outputs; o++)
      store_output(run, o, base, n, &results[o]);
  }
done:
  free(run->reg);
  free(run->storage);
  free(run->status);
  free(run);
  return err;
}

atoll_err atoll_sym_program_explain(const atoll_sym_program *p, const atoll_sym_column *columns, size_t lane,
                                    int output) {
  if (!p || output < 0 || output >= p->outputs || (p->columns && !columns))
    return atoll_fail(ATOLL_USAGE, "output %d of a program to explain", output);
  atoll_sym_binding *b = calloc((size_t)p->columns + 1, sizeof *b);
  if (!b)
    return atoll_fail(ATOLL_NOMEM, "no memory to explain a lane");
  size_t n = 0;
  for (int c = 0; c < p->columns; c++) {
    size_t at = columns[c].same ? 0 : lane;
    if (p->type[c] == ATOLL_SYM_REAL ? !columns[c].r : !columns[c].i)
      continue;
    b[n++] = (atoll_sym_binding){p->name[c],
                                 {p->type[c], p->type[c] == ATOLL_SYM_REAL ? 0 : columns[c].i[at],
                                  p->type[c] == ATOLL_SYM_REAL ? columns[c].r[at] : 0}};
  }
  atoll_sym_value value;
  atoll_err err = atoll_sym_eval(p->expr[output], b, n, &value);
  free(b);
  return err;
}

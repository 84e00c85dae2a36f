/** Hash-consed typed expressions: exact int64 (+ - * floordiv mod min max, comparisons, and/or/not, select) and real.
 *
 *  Layers state bytes and FLOPs in them; the planner evaluates them over candidates; recurrent tensors index with them.
 *  Within one pool equal expressions are one pointer. Constructors simplify (constants, neutral and absorbing elements,
 *  x-x, like terms, sorted commutative operands, exact divisions) and never cross types: int stays int; mixing int and
 *  real needs atoll_sym_to_real(). int64 overflow and division by zero are errors of evaluation, not wrong numbers.
 *  Where the expression as written has a value, the simplified one has the same; where it fails on an intermediate
 *  result, the simplified one may succeed with the exact value. floordiv rounds to minus infinity; mod has the sign of
 *  the divisor. AND (OR) is false (true) when any operand is, even if another one fails, so a guard works in any order;
 *  SELECT evaluates the chosen branch only. No real is infinite or NaN.
 *
 *  What a walk over arguments meets: int ADD and MUL, and MIN MAX AND OR, are flat with two or more operands (constants
 *  first); SUB and DIV are real only (int a-b is a + -1*b).
 *
 *  Constructors return NULL on a type error or lack of memory and the pool remembers the first reason, so that a whole
 *  expression can be built before one check: `if (!e) return atoll_syms_error(pool);`. NULL operands give NULL.
 *  All functions are local. A pool is used by one thread at a time; finished expressions may be evaluated and printed
 *  by many. */
#ifndef ATOLL_SYM_H
#define ATOLL_SYM_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_syms atoll_syms; /* the pool; owns every expression */
typedef struct atoll_sym atoll_sym;   /* immutable; borrowed from the pool */

typedef enum atoll_sym_type { ATOLL_SYM_INT, ATOLL_SYM_REAL, ATOLL_SYM_BOOL } atoll_sym_type;
typedef enum atoll_sym_op {
  ATOLL_SYM_CONST,
  ATOLL_SYM_VAR,
  ATOLL_SYM_ADD,
  ATOLL_SYM_SUB,
  ATOLL_SYM_MUL,
  ATOLL_SYM_FLOORDIV,
  ATOLL_SYM_MOD,
  ATOLL_SYM_DIV, /* real only */
  ATOLL_SYM_MIN,
  ATOLL_SYM_MAX,
  ATOLL_SYM_LT,
  ATOLL_SYM_LE,
  ATOLL_SYM_EQ,
  ATOLL_SYM_NE,
  ATOLL_SYM_AND,
  ATOLL_SYM_OR,
  ATOLL_SYM_NOT,
  ATOLL_SYM_SELECT,
  ATOLL_SYM_TO_REAL
} atoll_sym_op;

typedef struct atoll_sym_value {
  atoll_sym_type type;
  int64_t i; /* INT and BOOL */
  double r;  /* REAL */
} atoll_sym_value;

ATOLL_API atoll_err atoll_syms_create(atoll_syms **pool);
ATOLL_API void atoll_syms_destroy(atoll_syms **pool);
/** OK, or the first construction error of this pool (USAGE or NOMEM), which is then cleared. */
ATOLL_API atoll_err atoll_syms_error(atoll_syms *pool);
ATOLL_API size_t atoll_syms_count(const atoll_syms *pool);

ATOLL_API const atoll_sym *atoll_sym_int(atoll_syms *pool, int64_t v);
ATOLL_API const atoll_sym *atoll_sym_real(atoll_syms *pool, double v);
ATOLL_API const atoll_sym *atoll_sym_bool(atoll_syms *pool, int v);
/** A name has one type per pool. */
ATOLL_API const atoll_sym *atoll_sym_var(atoll_syms *pool, const char *name, atoll_sym_type type);
ATOLL_API const atoll_sym *atoll_sym_binary(atoll_syms *pool, atoll_sym_op op, const atoll_sym *a, const atoll_sym *b);
ATOLL_API const atoll_sym *atoll_sym_not(atoll_syms *pool, const atoll_sym *a);
ATOLL_API const atoll_sym *atoll_sym_select(atoll_syms *pool, const atoll_sym *c, const atoll_sym *a,
                                            const atoll_sym *b);
ATOLL_API const atoll_sym *atoll_sym_to_real(atoll_syms *pool, const atoll_sym *a);
/* Short forms of binary. */
ATOLL_API const atoll_sym *atoll_sym_add(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b);
ATOLL_API const atoll_sym *atoll_sym_sub(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b);
ATOLL_API const atoll_sym *atoll_sym_mul(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b);
ATOLL_API const atoll_sym *atoll_sym_max(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b);
/** Ceiling of a / b for b > 0. Minus the floordiv of -a by b, which does not overflow near the upper limit. */
ATOLL_API const atoll_sym *atoll_sym_ceildiv(atoll_syms *pool, const atoll_sym *a, const atoll_sym *b);
/** Parse "4*B*S*H + max(x, y)" with + - * // % / min max < <= > >= == != and or not select(c,a,b) real(x) ceildiv(a,b)
 *  true false, integer and real literals. Names (letters, digits, _ and .) must be variables of the pool or are created
 *  as INT. USAGE shows the text with a caret. */
ATOLL_API atoll_err atoll_sym_parse(atoll_syms *pool, const char *text, const atoll_sym **out);

ATOLL_API atoll_sym_type atoll_sym_type_of(const atoll_sym *e);
ATOLL_API atoll_sym_op atoll_sym_op_of(const atoll_sym *e);
ATOLL_API int atoll_sym_arity(const atoll_sym *e);
ATOLL_API const atoll_sym *atoll_sym_arg(const atoll_sym *e, int i);
ATOLL_API const char *atoll_sym_name(const atoll_sym *var);
/** 1 and the value when e is a constant. */
ATOLL_API int atoll_sym_constant(const atoll_sym *e, atoll_sym_value *v);
/** Text that atoll_sym_parse() reads back to the same pointer; needs at most n bytes, returns the length wanted
 *  (snprintf). */
ATOLL_API int atoll_sym_print(const atoll_sym *e, char *buf, size_t n);
ATOLL_API const atoll_sym *atoll_sym_substitute(atoll_syms *pool, const atoll_sym *e, const atoll_sym *var,
                                                const atoll_sym *by);

typedef struct atoll_sym_binding {
  const char *name;
  atoll_sym_value value;
} atoll_sym_binding;

/** Evaluate. USAGE for an unbound name or wrong type, INTERNAL for overflow or division by zero (names the
 *  subexpression). */
ATOLL_API atoll_err atoll_sym_eval(const atoll_sym *e, const atoll_sym_binding *bindings, size_t n,
                                   atoll_sym_value *out);
/** The common case: int expression, int bindings. */
ATOLL_API atoll_err atoll_sym_eval_int(const atoll_sym *e, const char *const *names, const int64_t *values, size_t n,
                                       int64_t *out);

/* ---- many candidates at once ---- */

/** Expressions compiled for evaluation over columns: lane k of every column together is one candidate. Subexpressions
 * that outputs share are computed once. The expressions' pool must outlive the program. */
typedef struct atoll_sym_program atoll_sym_program;

typedef struct atoll_sym_column { /* borrowed for the call; i for INT and BOOL, r for REAL */
  const int64_t *i;
  const double *r;
  int same; /* 1: the first entry holds for all lanes */
} atoll_sym_column;

typedef enum atoll_sym_lane { ATOLL_SYM_LANE_OK, ATOLL_SYM_LANE_OVERFLOW, ATOLL_SYM_LANE_ZERO_DIVISOR } atoll_sym_lane;

typedef struct atoll_sym_results { /* [lanes] each; NULL: not wanted */
  int64_t *i;                      /* INT and BOOL; 0 where the lane failed */
  double *r;                       /* REAL; likewise */
  uint8_t *status;                 /* atoll_sym_lane */
} atoll_sym_results;

/** n expressions over named columns. types [columns]: NULL means all INT. USAGE for a variable without a column or of
 * another type. *out: owned. */
ATOLL_API atoll_err atoll_sym_compile(const atoll_sym *const *outputs, int n, const char *const *names,
                                      const atoll_sym_type *types, int columns, atoll_sym_program **out);
ATOLL_API void atoll_sym_program_destroy(atoll_sym_program **program);
/** Operations per lane. */
ATOLL_API int atoll_sym_program_size(const atoll_sym_program *program);
/** results [n]. Each lane has the value or the failure that atoll_sym_eval() would give it; a failed lane does not end
 * the call. USAGE for a column without values or a real one that is not finite. Threads may share a program. */
ATOLL_API atoll_err atoll_sym_program_run(const atoll_sym_program *program, const atoll_sym_column *columns,
                                          size_t lanes, const atoll_sym_results *results);
/** Evaluates one output of one lane alone: OK, or the error that names the failing subexpression and its operands. */
ATOLL_API atoll_err atoll_sym_program_explain(const atoll_sym_program *program, const atoll_sym_column *columns,
                                              size_t lane, int output);

ATOLL_END_C
#endif

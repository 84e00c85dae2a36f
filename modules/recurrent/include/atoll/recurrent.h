/** Recurrent tensors: computations written once, for one point in time, with symbolic indices into past and future.
 *
 *  A context has dimensions ("t", with the bound "T"). A tensor has a domain (a set of dimensions), and at each point
 * of the domain a value of some shape. Every operation is written for one point; where an operand is needed at another
 *  point, atoll_rt_at() says which:
 *
 *      "t-1"                  one point of the past; the tensor's shape is unchanged
 *      "0:t+1"                all the past and the present: a leading axis of extent t+1 (half open, as in Python)
 *      "t:min(t+8,T)"         a window of the future
 *
 *  An index string has one item per dimension of the indexed tensor, separated by commas, in the order in which the
 *  dimensions were made; or items "t=t-1" by name, where the dimensions left out stay as they are. Items that are
 * slices become leading axes in that same order. Items are integer expressions as of atoll/sym.h over dimensions and
 * bounds, and must be quasi-affine: products only with constants, // and % only by positive constants, and no number
 * above 2^31.
 *
 *  A tensor made by atoll_rec_tensor() is defined by cases, of which the first that holds counts:
 *
 *      atoll_rt_def(x, "t==0", first);
 *      atoll_rt_def(x, "true", atoll_rt_add(atoll_rt_at(x, "t-1"), step));
 *
 *  Nothing is computed while a program is being built. Constructors never abort: on a mistake they return NULL,
 * operands that are NULL give NULL, and the first mistake is kept by the context and told by whoever needs a sound
 * program (atoll_rec_error(), atoll_rec_compile(), atoll_rec_interpret()). All functions are local; a context is used
 * by one thread at a time. Handles are borrowed from their context.
 *
 *  The model of tensors with symbolic temporal indices is that of Silvestre and Pietzuch, "Tempo: Compiled Dynamic Deep
 *  Learning with Symbolic Dependence Graphs", SOSP 2025. */
#ifndef ATOLL_RECURRENT_H
#define ATOLL_RECURRENT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "atoll/comm.h"
#include "atoll/err.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

#define ATOLL_RT_DIMS 8  /* dimensions of a context */
#define ATOLL_RT_AXES 10 /* axes of a value */

typedef struct atoll_rec atoll_rec;                 /* a program under construction */
typedef struct atoll_rt atoll_rt;                   /* a recurrent tensor */
typedef struct atoll_rec_program atoll_rec_program; /* a compiled program */

typedef struct atoll_rt_shape {
  int n;
  int64_t extent[ATOLL_RT_AXES];
} atoll_rt_shape;
#define ATOLL_SCALAR     ((atoll_rt_shape){0, {0}})
#define ATOLL_SHAPE(...) ((atoll_rt_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define ATOLL_RT_KEEP                                                                                                  \
  (-1) /* in a shape given to atoll_rt_reshape(): the extent that this axis has, also a dynamic one */

/* ---- contexts and dimensions ---- */

/** *c: owned. seed: of all random numbers of the program. */
ATOLL_API atoll_err atoll_rec_create(uint64_t seed, atoll_rec **c);
/** Programs compiled from it must be gone. */
ATOLL_API void atoll_rec_destroy(atoll_rec **c);
/** OK, or the first mistake, with the index string and a caret where there is one. */
ATOLL_API atoll_err atoll_rec_error(const atoll_rec *c);
/** A dimension with 0 <= name < bound. The bound's symbol is the name in capitals ("t": "T"). bound 0: given when the
 *  program runs. A bound is always at least 1, and at most 2^31. */
ATOLL_API void atoll_rec_dim(atoll_rec *c, const char *name, int64_t bound);
/** Coordinates of dimension `name` count from `first` as far as random numbers are concerned that are made afterwards:
 * a rank with part of a batch draws what a rank with all of it would draw there. */
ATOLL_API void atoll_rec_origin(atoll_rec *c, const char *name, int64_t first);
/** For messages and for the text of a program; the name is copied. Returns x. */
ATOLL_API atoll_rt *atoll_rt_name(atoll_rt *x, const char *name);

/* ---- tensors ---- */

/** Defined by cases. domain: "b,t"; "" has a single point. */
ATOLL_API atoll_rt *atoll_rec_tensor(atoll_rec *c, const char *name, atoll_dtype dtype, const char *domain,
                                     atoll_rt_shape shape);
/** One more case. condition: over the dimensions of x's domain, or "true". value: its domain within x's, of x's shape
 *  and type; a constant stands for a tensor of it. A case that earlier cases leave nothing, whatever the bounds, is
 * refused when the program is compiled, and so are two cases that both hold at a point which no case before them took
 * unless the earlier one is a part of the later one, an exception from it: "t==0", then "t<P". What each value of a
 * bound that is given at run would be allowed is: "t==0", "t==T-1" meet for T = 1 alone, where the second is left
 * nothing. At most 100 cases. */
ATOLL_API void atoll_rt_def(atoll_rt *x, const char *condition, atoll_rt *value);
/** x at other points. The result's domain is what the index mentions. */
ATOLL_API atoll_rt *atoll_rt_at(atoll_rt *x, const char *index);
/** Data bound by name when the program runs: dense, [bounds of the domain..., shape...], row-major. */
ATOLL_API atoll_rt *atoll_rec_input(atoll_rec *c, const char *name, atoll_dtype dtype, const char *domain,
                                    atoll_rt_shape shape);
ATOLL_API atoll_rt *atoll_rec_const(atoll_rec *c, atoll_dtype dtype, double value);
/** The value of an integer expression at each point, e.g. the position "t". It need not be affine, as in "t*t"; what //
 * and % divide by must be a positive number. USAGE: a number in it, or what numbers in it make together, is beyond
 * 2^31; larger ones are atoll_rec_const()s that are added or multiplied. A run with bounds for which it may need more
 * than 64 bits is refused, too. */
ATOLL_API atoll_rt *atoll_rec_expr(atoll_rec *c, atoll_dtype dtype, const char *expression);
/** 0, 1, ... along a new axis of a static extent. */
ATOLL_API atoll_rt *atoll_rec_iota(atoll_rec *c, atoll_dtype dtype, int64_t extent);
/** f32 random numbers, a pure function of (seed, order of creation among random tensors, point, element): Philox
 * 4x32-10. Uniform in [0, 1); standard normal. */
ATOLL_API atoll_rt *atoll_rec_uniform(atoll_rec *c, const char *domain, atoll_rt_shape shape);
ATOLL_API atoll_rt *atoll_rec_normal(atoll_rec *c, const char *domain, atoll_rt_shape shape);

/* ---- functions of the user ---- */

typedef struct atoll_rt_view {
  atoll_dtype dtype;
  int ndim;
  const int64_t *shape;
  void *data; /* dense, row-major; borrowed for the call */
} atoll_rt_view;
/** Called once per point, in an order that respects data dependences. point: one coordinate per dimension of the
 *  function's domain, in the order in which dimensions were made. out is NULL for sinks. What is not OK ends the run;
 *  what atoll_fail() was told is the reason in its message, which adds the function and the point. */
typedef atoll_err (*atoll_rt_fn)(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out);

/** A tensor computed by fn: a source of data, a step of an environment. domain: NULL for that of the inputs together.
 *  user: borrowed while programs run. Results that are not finite end the run with NONFINITE and name tensor and point.
 *  Several results: one vector, taken apart by atoll_rt_slice(). Gradients do not pass. */
ATOLL_API atoll_rt *atoll_rec_call(atoll_rec *c, const char *name, atoll_rt_fn fn, void *user, const char *domain,
                                   atoll_dtype dtype, atoll_rt_shape shape, int inputs, atoll_rt *const *in);
/** fn gets x at each point, in lexicographic order of its domain. Sinks are what a program computes; it has
 * at least one. */
ATOLL_API void atoll_rt_sink(atoll_rt *x, const char *name, atoll_rt_fn fn, void *user);

/* ---- elementwise; shapes are broadcast from the trailing axes as in NumPy ----
 *
 * Results are rounded to their type after each operation, sums and products of matrices once; f32 and bf16 are computed
 * as f32, all others as f64. Integers are cut off toward zero and end at the limits of their type: 300 as u8 is 255, as
 * is 1/0, NaN is 0. Integers beyond 2^53 are inexact. */

ATOLL_API atoll_rt *atoll_rt_neg(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_exp(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_log(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_sqrt(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_sin(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_cos(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_tanh(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_erf(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_abs(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_not(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_sigmoid(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_relu(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_silu(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_gelu(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_gelu_tanh(atoll_rt *x);
ATOLL_API atoll_rt *atoll_rt_square(atoll_rt *x);
/** x itself, but gradients stop. */
ATOLL_API atoll_rt *atoll_rt_detach(atoll_rt *x);
/* Comparisons, and, or give 0 or 1 in the operands' type. */
ATOLL_API atoll_rt *atoll_rt_add(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_sub(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_mul(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_div(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_pow(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_min(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_max(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_lt(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_le(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_eq(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_ne(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_and(atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_or(atoll_rt *a, atoll_rt *b);
/** b*x and x + b for a number b. */
ATOLL_API atoll_rt *atoll_rt_scale(atoll_rt *x, double b);
ATOLL_API atoll_rt *atoll_rt_shift(atoll_rt *x, double b);
/* min(a, b) is a < b ? a : b, max(a, b) is a > b ? a : b, also where one of them is NaN; relu(x) is max(x, 0). Where
 * both are equal all of the gradient is a's: that of relu at 0 is 1. That of abs at 0 is 1. */
/** condition != 0 ? a : b. The gradient is that one's; the other one gets 0, which its own derivative multiplies: NaN
 * where that is infinite, as that of log at 0. Choose before, as in log(where(...)). */
ATOLL_API atoll_rt *atoll_rt_where(atoll_rt *condition, atoll_rt *a, atoll_rt *b);
/** To integers: toward zero, within their limits. */
ATOLL_API atoll_rt *atoll_rt_cast(atoll_rt *x, atoll_dtype dtype);

/* ---- reductions; axis from the front, or negative from the back; the axis disappears ---- */

ATOLL_API atoll_rt *atoll_rt_sum(atoll_rt *x, int axis);
/** Both pass over elements that are NaN: of none else the maximum is -infinity, at 0. The gradient is that of argmax.
 */
ATOLL_API atoll_rt *atoll_rt_maximum(atoll_rt *x, int axis);
ATOLL_API atoll_rt *atoll_rt_argmax(atoll_rt *x, int axis); /* i32; the first of equals */
/** Mean over one axis, and over all. */
ATOLL_API atoll_rt *atoll_rt_mean(atoll_rt *x, int axis);
ATOLL_API atoll_rt *atoll_rt_mean_all(atoll_rt *x);
/** sum of gamma^k x[k] over the leading axis. */
ATOLL_API atoll_rt *atoll_rt_dsum(atoll_rt *x, double gamma);

/* ---- contractions ---- */

/** "oi,i->o": products summed over the labels that the result lacks. Each label of an operand is in the other or in the
 *  result, and no label twice in one operand. */
ATOLL_API atoll_rt *atoll_rt_einsum(const char *spec, atoll_rt *a, atoll_rt *b);
ATOLL_API atoll_rt *atoll_rt_mv(atoll_rt *w, atoll_rt *x);     /* [O,I] [I] -> [O] */
ATOLL_API atoll_rt *atoll_rt_matmul(atoll_rt *a, atoll_rt *b); /* [M,K] [K,N] -> [M,N] */

/* ---- shapes ---- */

ATOLL_API atoll_rt *atoll_rt_reshape(atoll_rt *x, atoll_rt_shape shape);
ATOLL_API atoll_rt *atoll_rt_permute(atoll_rt *x, const int *order);
ATOLL_API atoll_rt *atoll_rt_concat(atoll_rt *a, atoll_rt *b, int axis);
ATOLL_API atoll_rt *atoll_rt_slice(atoll_rt *x, int axis, int64_t start, int64_t extent);
/** table [V, ...] at integer indices [...]: [indices..., ...]. */
ATOLL_API atoll_rt *atoll_rt_take(atoll_rt *table, atoll_rt *indices);

/* ---- composed of the above ---- */

ATOLL_API atoll_rt *atoll_rt_softmax(atoll_rt *x, int axis);
ATOLL_API atoll_rt *atoll_rt_log_softmax(atoll_rt *x, int axis);
/** Over the last axis; weight and bias may be NULL. */
ATOLL_API atoll_rt *atoll_rt_rmsnorm(atoll_rt *x, atoll_rt *weight, double epsilon);
ATOLL_API atoll_rt *atoll_rt_layernorm(atoll_rt *x, atoll_rt *weight, atoll_rt *bias, double epsilon);
/** Rotary embedding of the last axis of x [..., D], halves paired (x[i], x[i+D/2]), at an integer or real position. */
ATOLL_API atoll_rt *atoll_rt_rope(atoll_rt *x, atoll_rt *position, double theta);
/** The same with any frequencies [D / 2], in radians per position, of x's type: pair i turns by position x
 * frequency[i]. Of scaled ones see atoll_rope_frequency() in atoll/kernel.h. */
ATOLL_API atoll_rt *atoll_rt_rotate(atoll_rt *x, atoll_rt *position, atoll_rt *frequency);
/** An index drawn with probabilities softmax(logits) over the last axis, as argmax of logits + Gumbel noise, in f32. */
ATOLL_API atoll_rt *atoll_rt_categorical(atoll_rt *logits);
/** Log of the density of a normal with this mean and standard deviation 1 at x, summed over the last axis. */
ATOLL_API atoll_rt *atoll_rt_normal_logp(atoll_rt *mean, atoll_rt *x);

/* ---- learning ---- */

/** Gradients of the sum of loss over its domain: grad[k] gets a tensor with the domain, shape and type of x[k].
 *  The x are leaves: nothing flows on into their own definitions, so that x[i+1] may be defined by the gradient at i.
 *  Where that is so, x is a leaf in all other calls, too, in whatever order they are: two that learn see each other as
 *  given. Only calls whose own x act on those updates, as a rate does, differentiate through them.
 *  Everything else that the loss depends on is differentiated, through recurrences too (back-propagation through time);
 *  definitions may follow until the program is compiled. */
ATOLL_API void atoll_rt_gradients(atoll_rt *loss, int n, atoll_rt *const *x, atoll_rt **grad);
/** Adam (Kingma and Ba, 2015) with bias correction. x is made by atoll_rec_tensor(), has dimension `step` ("i") in its
 *  domain and a case for step 0; this defines it at all later steps from its gradient. */
ATOLL_API void atoll_rt_adam(atoll_rt *x, atoll_rt *grad, const char *step, double rate, double beta1, double beta2,
                             double epsilon);

/* ---- several ranks ---- */

/** x added up over all ranks of comm, or its maximum: every rank gets the result. Each rank runs the same program with
 * equal bounds of x's domain, so that all call together; order of summation is MPI's. f32, f64, i32, i64; of fixed
 * shape. Gradients do not pass: add up gradients instead. comm: borrowed while programs run. */
ATOLL_API atoll_rt *atoll_rt_rank_sum(atoll_rt *x, const atoll_comm *comm);
ATOLL_API atoll_rt *atoll_rt_rank_max(atoll_rt *x, const atoll_comm *comm);
/** Sums of n tensors of one type by one message; sum[n] may be x. */
ATOLL_API void atoll_rt_rank_sums(int n, atoll_rt *const *x, const atoll_comm *comm, atoll_rt **sum);

/* ---- running ---- */

/** What a run needs: the value of a bound ("T") or the data of an input. Borrowed for the run. */
typedef struct atoll_rec_binding {
  const char *name;
  int64_t bound;
  const void *data;
} atoll_rec_binding;

/** Computes all sinks by the definition, each point when it is first needed, keeping everything: slow, and the oracle
 * of all that is faster. USAGE: a mistake of construction; an index outside of a domain, a point that no case covers, a
 *  definition that needs itself (tensor, point and index string are named); a missing binding. NONFINITE, see
 *  atoll_rec_call(). */
ATOLL_API atoll_err atoll_rec_interpret(atoll_rec *c, const atoll_rec_binding *bindings, int n);
/** The graph as text, one node a line. */
ATOLL_API atoll_err atoll_rec_print(atoll_rec *c, FILE *out);

typedef struct atoll_rec_params {
  /** Names of the optional passes that run, separated by commas; NULL: all of them (atoll_rec_passes()). Their order is
   * always the same. USAGE: there is no such pass. */
  const char *passes;
  /** Dimensions, separated by commas, that "vectorize" turns into axes; NULL: none. */
  const char *vectorize;
  /** Positions in a block when "tile" turns softmax attention over a slice into a recurrence over blocks with a running
   *  maximum and sum; 0: it does not. Attention to nothing, an empty slice, is 0. */
  int64_t tile;
  /** Dimensions, separated by commas, whose blocks are dealt out over the ranks of comm (NULL: none): of R ranks, rank
   *  r keeps what tiled attention reads of blocks r, r + R ..., attends to these, and gets the result over all by two
   *  messages: the maximum and then the sum of what belongs to it. All ranks run the same program with the same
   *  bindings; every rank gets every result. USAGE: attention over them that cannot be cut into blocks. comm: borrowed
   *  while programs run. */
  const char *place;
  const atoll_comm *comm;
  /** Values that are read over slices of a dimension are stored in blocks of so many points of it, next to each other,
   * and contractions read them where they lie; 0: each value by itself, and slices are copied together. A window then
   * takes its length and at most one block more. */
  int64_t block;
  /** Bounds given at run are at least this; 0: 1. Larger values leave out code for small bounds. A run with a smaller
   *  one is refused: USAGE. */
  int64_t least;
  /** 0: loops with shifted statements, where they give an order, else isl. Not 0: isl first, with at most so many of
   * its operations. */
  unsigned long budget;
  /** That large operations divide among; 0: one. Results do not depend on it. */
  int threads;
  /** Where values are computed: "cpu" (NULL), or "cuda": by kernels that NVRTC compiles from what the same printer
   * prints; functions of the user, random numbers and the order of all stay with the host, values are in memory that
   * both see. "async", for tests: those kernels on the host, as late as they may run. */
  const char *device;
  /** Runs whose values would need more bytes are refused before they start, with NOMEM; 0: no limit. */
  int64_t memory;
  /** A folder. Runs that need more than `memory` put values away into a file there, from one use to the next, as few
   * tensors as suffice; results are the same. IO: the folder cannot be written, which compiling tells, or its disk is
   * full; a rank that fails so in a run leaves others waiting for its sums, so the job must end. NULL: such runs are
   * refused. Borrowed for compiling. */
  const char *offload;
  /** What compiles the C that a program becomes: a command, as in "gcc-12" or "ccache cc"; "": nothing does, the
   * schedule is interpreted, slowly. NULL: that of the environment's ATOLL_CC, else "cc". When a compilation, all its
   * units together, takes longer than ATOLL_CC_SECONDS (600), it is ended and has failed. */
  const char *compiler;
  /** Its options; NULL: those of ATOLL_CFLAGS, else "-O3 -march=native -ffp-contract=off ...". */
  const char *flags;
  /** The graph before and after each pass, the schedule and the C go here; NULL: nowhere. */
  FILE *trace;
} atoll_rec_params;

/** All optional passes in their order. */
ATOLL_API const char *atoll_rec_passes(void);
ATOLL_API void atoll_rec_params_init(atoll_rec_params *p);
/** Checks, transforms, schedules, and compiles to a library that is kept in ATOLL_CACHE (XDG_CACHE_HOME/atoll,
 * ~/.cache/atoll) for the next time. Without a compiler, or when it fails, a warning tells so and the schedule is
 * interpreted (atoll_rec_engine()); a cache that is damaged or cannot be written costs a compilation. USAGE: a mistake
 * of construction; an index outside of a domain (for every bound), a point that no case covers, a case that never
 * applies whatever the bounds, a definition that needs itself: no order exists. *out: owned; borrows the context's
 * expressions and the users of functions. */
ATOLL_API atoll_err atoll_rec_compile(atoll_rec *c, const atoll_rec_params *p, atoll_rec_program **out);
/** The same for several contexts, whose programs become one library: one start of the compiler. out[n]: all, or none
 * on failure. */
ATOLL_API atoll_err atoll_rec_compile_all(int n, atoll_rec *const *c, const atoll_rec_params *p,
                                          atoll_rec_program **out);
ATOLL_API void atoll_rec_program_destroy(atoll_rec_program **program);
/** Graph and schedule as text. */
ATOLL_API void atoll_rec_program_print(const atoll_rec_program *program, FILE *out);
/** How it runs: "compiled ..." or "interpreted: " and why. Borrowed from the program. */
ATOLL_API const char *atoll_rec_engine(const atoll_rec_program *program);
/** Executes the schedule. Errors as of atoll_rec_interpret(). The results of a program depend on its bindings alone;
 * compiled and interpreted ones agree but for rounding: see atoll_rec_params.flags. Collective where the program sums
 * over ranks, which all begin it or none: what one lacks, a bound or memory, is told by all. MISMATCH, in the first
 * run: theirs would come to other sums, or to the same ones in another order. A rank without a program must tell the
 * others before they run theirs, and one that fails later leaves them waiting, so that the job must end. */
ATOLL_API atoll_err atoll_rec_run(atoll_rec_program *program, const atoll_rec_binding *bindings, int n);
/** Most bytes that values occupy at any time of a run, exactly, by walking the schedule: in blocks where values are
 * stored in blocks, pads among them; without inputs, and without the workspace of the statement at hand. */
ATOLL_API atoll_err atoll_rec_peak_bytes(const atoll_rec_program *program, const atoll_rec_binding *bindings, int n,
                                         int64_t *peak);
/** The same as counted by the last run that succeeded, interpreted or not; USAGE before one. */
ATOLL_API atoll_err atoll_rec_last_peak(const atoll_rec_program *program, int64_t *peak);

/** Graph, schedule, and one line for each tensor that is stored: name, type and shape, where it lives ("one", "ring of
 * t, 16", "points, 40"; "... of blocks of 128" counts blocks), bytes of all its slots, and the tensor whose storage it
 * takes over, if any; the bytes of pads, if any; then the exact peak. */
ATOLL_API atoll_err atoll_rec_report(const atoll_rec_program *program, const atoll_rec_binding *bindings, int n,
                                     FILE *out);

ATOLL_END_C
#endif

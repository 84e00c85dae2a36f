/* The dependence graph of a recurrent program.
 *
 * A node is an operation with a domain: the box of its dimensions, 0 <= d < bound, cut down by `where`. At point p of
 * its domain its value is f(views of its inputs); the view through an edge is the source at the points that the edge's
 * items give, as functions of p. An item is a point or a slice; slices become leading axes, in order of dimensions. A
 * point has one coordinate for every dimension of the graph; those that a node lacks are 0.
 *
 * Expressions are libcore's, over the variables d (dimensions, "t"), bounds ("T", only those given at run; others are
 * constants) and positions along axes ("_0", "_1" ...; in EVAL, PICK and RAND).
 *
 * Of a MERGE the first input whose condition holds is the value. Any other edge that has a condition reads the source's
 * padding where it does not hold (pads.c).
 *
 * Passes change a clone of the user's graph in place. Nodes never move; ids are positions in `node`, NULL where a node
 * was removed. Memory of nodes, names and edges belongs to the graph until it is destroyed. */
#ifndef RECURRENT_GRAPH_H
#define RECURRENT_GRAPH_H

#include "atoll/recurrent.h"
#include "atoll/sym.h"

/* Largest bound, and largest number in an index: products of both, and sums of such, fit 64 bits with room. Elements
 * of a value whose shape is known, so that its bytes do. */
#define RT_NUMBER_MOST   ((int64_t)1 << 31)
#define RT_ELEMENTS_MOST ((int64_t)1 << 40)

enum { RT_DIMS = ATOLL_RT_DIMS, RT_AXES = ATOLL_RT_AXES, RT_LOOPS = 24, RT_CASES = 100 };

/* Name and number of inputs (-1: any). ELEMENT marks those that work element by element. */
#define RT_OP_LIST(X, ELEMENT)                                                                                         \
  X(CONST, 0)  /* value */                                                                                             \
  X(EVAL, 0)   /* expr over dimensions, bounds and the position along each axis */                                     \
  X(INPUT, 0)  /* bound by name */                                                                                     \
  X(RAND, 0)   /* uniform, or normal (normal != 0): element expr of key (serial, start[0 .. picks-1]) */               \
  X(CALL, -1)  /* the user's function */                                                                               \
  X(SINK, 1)   /* the user's function, no value */                                                                     \
  X(MERGE, -1) /* cases */                                                                                             \
  X(IDENT, 1)  /* the view itself */                                                                                   \
  X(DETACH, 1) /* the same, but gradients stop */                                                                      \
  X(GRAD, 1)   /* asked for: replaced by the gradient pass. input: the leaf */                                         \
  X(SUM, 1)    /* over axis */                                                                                         \
  X(MAXIMUM, 1)                                                                                                        \
  X(ARGMAX, 1)                                                                                                         \
  X(EINSUM, 2) /* spec */                                                                                              \
  X(RESHAPE, 1)                                                                                                        \
  X(EXPAND, 1)  /* broadcast from the trailing axes to shape */                                                        \
  X(PERMUTE, 1) /* axis k of the result is axis order[k] of the input */                                               \
  X(CONCAT, 2)  /* axis */                                                                                             \
  X(SLICE, 1)   /* along axis from start[0] */                                                                         \
  X(PAD, 1)     /* with value; the input lies at start[0] along axis */                                                \
  X(TAKE, 2)    /* table, indices */                                                                                   \
  X(SCATTER, 2) /* rows, indices: zeros of shape to which rows are added; the adjoint of TAKE */                       \
  X(PICK, 1)    /* sum over the first `axis` axes, where expr holds (NULL: everywhere), of the element start[k] of     \
                   each of the next `picks` axes. The view may be ragged beyond the first axes */                      \
  ELEMENT(NEG, 1)                                                                                                      \
  ELEMENT(EXP, 1)                                                                                                      \
  ELEMENT(LOG, 1)                                                                                                      \
  ELEMENT(SQRT, 1)                                                                                                     \
  ELEMENT(SIN, 1)                                                                                                      \
  ELEMENT(COS, 1)                                                                                                      \
  ELEMENT(TANH, 1)                                                                                                     \
  ELEMENT(ERF, 1)                                                                                                      \
  ELEMENT(ABS, 1)                                                                                                      \
  ELEMENT(NOT, 1)                                                                                                      \
  ELEMENT(CAST, 1)                                                                                                     \
  ELEMENT(ADD, 2)                                                                                                      \
  ELEMENT(SUB, 2)                                                                                                      \
  ELEMENT(MUL, 2)                                                                                                      \
  ELEMENT(DIV, 2)                                                                                                      \
  ELEMENT(POW, 2)                                                                                                      \
  ELEMENT(MIN, 2)                                                                                                      \
  ELEMENT(MAX, 2)                                                                                                      \
  ELEMENT(LT, 2) ELEMENT(LE, 2) ELEMENT(EQ, 2) ELEMENT(NE, 2) ELEMENT(AND, 2) ELEMENT(OR, 2) ELEMENT(WHERE, 3)

typedef enum rt_op {
#define RT_OP_ENUM(name, inputs) RT_##name,
  RT_OP_LIST(RT_OP_ENUM, RT_OP_ENUM)
#undef RT_OP_ENUM
      RT_OPS
} rt_op;

/* Types whose operations are those of real numbers but for rounding, so that passes may reorder them. Integers cut off
 * after each operation, and bf16 has so few digits that its rounding is part of what a program means: a sum of ones
 * that is rounded after each does not get beyond 256. */
static inline int rt_is_nearly_real(atoll_dtype t) { return t == ATOLL_F32 || t == ATOLL_F64; }

static inline int rt_is_element(rt_op op) { return op >= RT_NEG; }

typedef struct rt_item {
  const atoll_sym *lo; /* the point, or the first of the slice */
  const atoll_sym *hi; /* one past the last; NULL for a point */
} rt_item;

typedef struct rt_edge {
  int src;
  rt_item item[RT_DIMS]; /* for the dimensions of the source's domain */
  const atoll_sym *cond; /* of a case, or of a padded source; NULL elsewhere */
  const char *text;      /* the index or condition as the user wrote it, or NULL; for messages */
} rt_edge;

typedef struct rt_graph rt_graph;

struct atoll_rt {
  rt_graph *g;
  int id;
  rt_op op;
  const char *name; /* or NULL */
  atoll_dtype dtype;
  unsigned dims;          /* bit d: dimension d is in the domain */
  const atoll_sym *where; /* BOOL over dims and bounds, or NULL */
  int axes;
  const atoll_sym *shape[RT_AXES];
  int inputs;
  rt_edge *in;
  /* attributes, see RT_OP_LIST */
  double value;
  const atoll_sym *expr;
  const atoll_sym *start[RT_AXES];
  int order[RT_AXES];
  int axis, picks;
  int normal, serial;
  int accumulates; /* made by differentiation; like cases, where recurrences pass */
  int padded;      /* edges read pad beyond the points that it has: one value of that number is stored besides */
  double pad;
  const char *spec;
  int group; /* 1 + id of the node whose statement computes this one; 0: its own. See groups.c */
  atoll_rt_fn fn;
  void *user;
};

typedef struct rt_dim {
  const char *name, *bound_name;
  int64_t bound;               /* 0: given at run; -1: size is an expression over other bounds */
  int64_t origin;              /* added to coordinates in keys of random numbers */
  const atoll_sym *var, *size; /* size: a constant, or the variable of the bound */
} rt_dim;

/* One call of atoll_rt_gradients(). */
typedef struct rt_request {
  int loss, n;
  const int *leaf, *grad;
} rt_request;

struct rt_graph {
  atoll_syms *syms; /* borrowed from the context */
  uint64_t seed;
  int64_t block_size; /* points of a block in which values that slices read are stored; 0: one by one */
  int64_t least;      /* bounds given at run that the schedule is for are no less; 0: all */
  int dims;
  rt_dim dim[RT_DIMS];
  int nodes, room;
  atoll_rt **node;
  int requests;
  rt_request *request;
  int serials;            /* random tensors so far */
  const atoll_sym *valid; /* bounds for which every index is inside of its domain; NULL: all */
  const char *valid_text; /* what goes wrong for others */
  atoll_err code;         /* first mistake of construction */
  char why[1024];
  void **block; /* everything else that is owned */
  int blocks, block_room;
};

/* Values of all bounds: by construction, or bound by name. USAGE: missing, contradictory, or not valid. */
atoll_err rt_bounds(const rt_graph *g, const atoll_rec_binding *b, int n, int64_t bound[RT_DIMS]);

/* ---- construction (graph.c). Like constructors of the API: NULL after the first mistake, which the graph keeps ----
 */

atoll_err rt_graph_create(atoll_syms *syms, uint64_t seed, rt_graph **out);
void rt_graph_destroy(rt_graph **g);
/* A copy with the same ids, over the same pool of expressions. */
atoll_err rt_graph_clone(const rt_graph *g, rt_graph **out);
/* The context's graph, for passes: a clone of it. */
atoll_err rt_rec_clone(const atoll_rec *c, rt_graph **out);
atoll_err rt_graph_error(const rt_graph *g);
/* Records the first mistake; returns NULL. */
void *rt_refuse(rt_graph *g, atoll_err code, const char *fmt, ...) ATOLL_PRINTF(3, 4);
void *rt_alloc(rt_graph *g, size_t bytes); /* zeroed */
const char *rt_copy_text(rt_graph *g, const char *text);
/* A node without inputs and a point domain. */
atoll_rt *rt_node(rt_graph *g, rt_op op, atoll_dtype dtype);
/* One more input, read at the same point; the domain grows by the source's dimensions. NULL on failure. The edge stays
 * where it is until the next one is added. */
rt_edge *rt_connect(atoll_rt *node, const atoll_rt *src);
rt_edge *rt_add_edge(atoll_rt *node, const rt_edge *e);
void rt_set_shape(atoll_rt *node, int axes, const atoll_sym *const *shape);

static inline atoll_rt *rt_src(const rt_graph *g, const rt_edge *e) { return g->node[e->src]; }
/* The node whose statement computes x. */
static inline int rt_head(const atoll_rt *x) { return x->group ? x->group - 1 : x->id; }
/* Values that are always there: no statement computes or frees them. */
static inline int rt_is_free(const atoll_rt *x) { return x->op == RT_INPUT || x->op == RT_CONST; }
static inline int rt_has(const atoll_rt *x, int d) { return (int)(x->dims >> d & 1u); }

const char *rt_op_name(rt_op op);
/* "kv (#12 IDENT)", for messages; buf of at least 96 bytes. */
const char *rt_label(const atoll_rt *x, char *buf, size_t n);
/* "[8,T]" */
void rt_shape_text(const atoll_rt *x, char *buf, size_t n);
void rt_print_node(const atoll_rt *x, FILE *out);
void rt_graph_print(const rt_graph *g, FILE *out);

/* ---- expressions ---- */

const atoll_sym *rt_int(rt_graph *g, int64_t v);
const atoll_sym *rt_axis(rt_graph *g, int k); /* "_k" */
int rt_is_const(const atoll_sym *e, int64_t *v);
/* e with each dimension d of mask replaced by by[d], all at once. */
const atoll_sym *rt_substitute(rt_graph *g, const atoll_sym *e, unsigned mask, const atoll_sym *const by[RT_DIMS]);
/* e with axis k replaced by by[k] for k < n, all at once. */
const atoll_sym *rt_substitute_axes(rt_graph *g, const atoll_sym *e, int n, const atoll_sym *const *by);
/* Dimensions that occur in e (NULL: none). */
unsigned rt_dims_of(const rt_graph *g, const atoll_sym *e);
/* Dimensions that the edge's items and condition mention. */
unsigned rt_edge_dims(const rt_graph *g, const rt_edge *e);
int rt_is_identity(const rt_graph *g, const rt_edge *e);
int rt_slices(const rt_graph *g, const rt_edge *e);
/* The shape of the view through an edge; returns its axes, or -1 (too many, or a slice over a dimension on which the
 * source's shape depends) with a mistake recorded. */
int rt_view_shape(rt_graph *g, const rt_edge *e, const atoll_sym *shape[RT_AXES]);

typedef struct rt_env {
  int64_t dim[RT_DIMS], bound[RT_DIMS], axis[RT_AXES];
  int64_t loop[RT_LOOPS]; /* of a schedule: "_c0" ... */
} rt_env;
atoll_err rt_eval(const rt_graph *g, const atoll_sym *e, const rt_env *env, int64_t *out);

/* ---- exchange with other ranks (ranks.c): a sum or maximum over all, which is on its way between two statements ----
 */

int rt_is_exchange(const atoll_rt *x);
/* As numbers for keeping (kept.c): which reduction an exchange is, over comm if it is that one; 0: none. */
int rt_exchange_number(const atoll_rt *x, const atoll_comm *comm);
/* x, a CALL without a function, becomes the exchange with this number; 0: there is none. */
int rt_exchange_restore(atoll_rt *x, int number, const atoll_comm *comm);
/* Begins to make `out` of `in`, which may go afterwards. */
atoll_err rt_exchange_send(const atoll_rt *x, const atoll_rt_view *in, const atoll_rt_view *out);
/* A run is over: forgets what it sent and, having failed, did not receive. 1: others may still write to that memory. */
int rt_exchange_abandon(const atoll_rt *x);
/* Waits for what was sent to this memory. */
atoll_err rt_exchange_receive(const atoll_rt *x, const void *data);

/* ---- index strings (index.c) ---- */

/* Items of "b,0:t+1" or "t=t-1" for x; USAGE with a caret. */
atoll_err rt_parse_index(rt_graph *g, const atoll_rt *x, const char *text, rt_item item[RT_DIMS]);
/* A condition or an integer expression over dimensions (of mask) and bounds. */
atoll_err rt_parse_expr(rt_graph *g, const char *what, const char *text, unsigned mask, atoll_sym_type type,
                        const atoll_sym **out);
/* "b,t" as a mask. */
atoll_err rt_parse_domain(rt_graph *g, const char *text, unsigned *mask);

/* ---- operations over nodes of any graph (ops.c); shapes are checked ---- */

atoll_rt *rt_element(rt_op op, int n, atoll_rt *const *x);
atoll_rt *rt_number(const atoll_rt *like, double v); /* a constant of that type */
atoll_rt *rt_expand(atoll_rt *x, int axes, const atoll_sym *const *shape);
atoll_rt *rt_reshape(atoll_rt *x, int axes, const atoll_sym *const *shape);
atoll_rt *rt_slice(atoll_rt *x, int axis, const atoll_sym *start, const atoll_sym *extent);
/* x read through these items; the result's domain is what they mention. text: borrowed, or NULL. */
atoll_rt *rt_view(atoll_rt *x, const rt_item item[RT_DIMS], const char *text);
/* Expression over dimensions and axes as a tensor. */
atoll_rt *rt_eval_node(rt_graph *g, atoll_dtype dtype, const atoll_sym *e, int axes, const atoll_sym *const *shape);

#endif

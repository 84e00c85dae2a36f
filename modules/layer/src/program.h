/* A block as data: values, the operations that make them, and which values a policy keeps.
 *
 * A program is made per model, layer and policy (programs.c). Everything a block does follows from it: schedule.c works
 * out in which order operations run forward and backward, what is made again, and where each value lies; ops.c knows
 * what each kind of operation needs and calls the kernels; walk.c runs a schedule; bytes.c turns the same places into
 * expressions. So what is counted, what is laid out and what is used cannot disagree. */
#ifndef ATOLL_LAYER_PROGRAM_H
#define ATOLL_LAYER_PROGRAM_H

#include "layer_impl.h"

enum { PROGRAM_VALUES = 40, PROGRAM_OPS = 24 };

typedef enum value_type {
  VALUE_MODEL, /* the element type of the kernels */
  VALUE_FLOAT, /* statistics, whatever the element type */
  VALUE_CODE,  /* half of that */
  VALUE_BYTE
} value_type;

/* What a value is for; policies keep values by role, so that they mean the same in every family. */
typedef enum value_role {
  ROLE_X,      /* the block's input */
  ROLE_NORM,   /* what a norm gives */
  ROLE_QKV,    /* queries, keys and values */
  ROLE_O,      /* what attention gives */
  ROLE_STREAM, /* a sum inside the block */
  ROLE_F,      /* the MLP before its nonlinearity */
  ROLE_G,      /* and after it */
  ROLE_STAT,   /* a few numbers per row, written beside another value and kept with it, or always if a norm's */
  ROLE_KEPT,   /* exists only to be kept, in place of others */
  ROLE_PASSING /* never kept */
} value_role;

typedef struct program_value {
  value_role role;
  value_type type;
  int64_t width;   /* elements per row ... */
  int64_t width_s; /* ... plus this many per token of the sample */
} program_value;

typedef enum op_kind {
  OP_NORM,       /* LayerNorm; without a bias RMSNorm */
  OP_LINEAR,     /* and then, with turned_heads, rotary positions */
  OP_ATTENTION,  /* of in[0..2]: queries, keys, values; or of one value with all three in each row */
  OP_ACTIVATION, /* GELU */
  OP_GATE,       /* SwiGLU: in[0] through its nonlinearity, times in[1] */
  OP_DROP,
  OP_RESIDUAL,
  OP_MLP, /* two products and the GELU or gate between them, pipelined; second: those of the second product */
  /* what policies put in place of these, or beside them (kernel_keep.h) */
  OP_NORM_HAT,        /* a norm that keeps what it normalised: extra[0], and 1/deviation: extra[1] */
  OP_AFFINE,          /* and its result from that */
  OP_ATTENTION_KEPT,  /* attention that keeps S x S values: extra[1] probabilities, extra[2..3] those dropped, the mask
                       */
  OP_ATTENTION_CODED, /* attention that keeps probabilities as codes: extra[1] these, extra[0] units */
  OP_ATTENTION_AGAIN, /* and its result from these: in[0] codes, in[1] units, and in[2] values */
  OP_GELU_ROOT,       /* GELU that keeps its root: extra[0] */
  OP_SQUARE,          /* and its result from that */
  OP_RESIDUAL_MASK,   /* a residual that keeps its dropout's mask: extra[0] */
  OP_PACK,            /* 8 bits of in[0]; extra[0]: scale of the row */
  OP_UNPACK,
  OP_KINDS
} op_kind;

#define NO_VALUE (-1)
enum { OP_INPUTS = 3, OP_EXTRAS = 4 };

/* How tensor parallelism (Shoeybi et al. 2019, 1909.08053) divides a matrix product among ranks: what it gives, whose
 * columns are rows of its matrix, or what it sums over. A product cut in columns needs all of its input and gives
 * every rank its part of the input's gradient; one cut in rows gives every rank its part of the sum. */
typedef enum op_split { SPLIT_NONE, SPLIT_COLUMNS, SPLIT_ROWS } op_split;

typedef struct program_op {
  op_kind kind;
  int in[OP_INPUTS], out; /* values; residual: in[0] the stream, in[1] what dropout acts on */
  int extra[OP_EXTRAS];   /* written beside out: mean and 1/deviation of a norm, log-sum-exp of attention */
  int scratch;            /* a value that only lives while its backward runs */
  int weight, bias;       /* positions in atoll_model_layer_params(), or -1 */
  int second_weight, second_bias, gate_weight; /* of OP_MLP; a gate's is what goes through its nonlinearity */
  atoll_rng_site site;                         /* of its dropout */
  int drops;                                   /* whether the model has dropout here */
  int erf;                                     /* GELU by the error function instead of tanh */
  int64_t turned_heads;
  op_split split;
  int parts; /* of SPLIT_COLUMNS: matrices above each other in its matrix, each of which is divided: 3 of queries, keys
                and values in one */
} program_op;

/* How a policy wants operations to keep what backward needs. */
enum {
  STYLE_SOFTMAX = 1, /* attention: probabilities, as elements */
  STYLE_MASKS = 2,   /* dropout: masks, and what attention's made of the probabilities */
  STYLE_HAT = 4,     /* norms: what they normalised, instead of input and output */
  STYLE_ROOT = 8,    /* GELU: its root, instead of input and output */
  STYLE_PACK = 16,   /* the MLP before its nonlinearity: in 8 bits */
  STYLE_CODES = 32   /* attention: probabilities as codes of half the bits, instead of its result */
};

typedef struct program {
  unsigned style;
  /* Values between products cut in columns and in rows are divided among tensor ranks; widths are one's. */
  layer_way way;
  int64_t element;                     /* bytes of a VALUE_MODEL */
  int values, ops, agains;             /* operations that only make values again are counted apart */
  program_value value[PROGRAM_VALUES]; /* value 0 is the block's input */
  program_op op[PROGRAM_OPS];          /* in forward order, the last of `ops` makes the block's output; from the array's
                                          end on, those that only make values again */
  int maker[PROGRAM_VALUES];           /* op that makes a value; -1 for the input */
  int again[PROGRAM_VALUES];           /* op that makes it again: the same, or one that starts from what is kept */
  int kept[PROGRAM_VALUES];
} program;

enum { PROGRAM_X = 0 };

/* The program of a block on one rank. INTERNAL: the family has none. */
atoll_err program_make(const atoll_model *m, int layer, atoll_policy policy, layer_way way, program *out);

static inline int program_y(const program *p) { return p->op[p->ops - 1].out; }

#endif

/* Schedules: what one call of a block does, step by step, and where everything lies meanwhile. */
#ifndef ATOLL_LAYER_SCHEDULE_H
#define ATOLL_LAYER_SCHEDULE_H

#include "layer_impl.h"
#include "program.h"

/* Ids: values, then their gradients. */
enum { IDS = 2 * PROGRAM_VALUES, STEPS_MAX = 3 * PROGRAM_OPS };
#define GRAD(value) (PROGRAM_VALUES + (value))

typedef enum step_kind { STEP_FORWARD, STEP_INPUT, STEP_WEIGHT, STEP_KINDS } step_kind;
/* Calls on a block: by the kind of steps they are for, and both halves of backward at once. */
enum { CALL_BACKWARD = STEP_KINDS, CALLS };

typedef struct step {
  step_kind kind;
  int op;
  int add[OP_INPUTS]; /* STEP_INPUT: the gradient of in[i] has a part already, so this one is added */
} step;

typedef enum place_kind {
  PLACE_NONE,
  PLACE_X,
  PLACE_Y,
  PLACE_DY,
  PLACE_DX,
  PLACE_SAVED,
  PLACE_CARRIED,
  PLACE_WORK
} place_kind;

typedef struct place {
  place_kind kind;
  int piece; /* of the saved, carried or work pieces */
} place;

typedef struct schedule {
  int n;
  step step[STEPS_MAX];
  place at[IDS];
  layer_pieces work;
} schedule;

/* A block worked out: its program and the three calls on it. */
typedef struct block_plan {
  program p;
  layer_pieces saved, carried;
  schedule call[CALLS]; /* backward ones also make values again, by forward steps */
} block_plan;

/* Saved pieces alone are cheaper to work out. Piece 0 is the room for the block's input, when the policy keeps it. */
void block_saved(const program *p, layer_pieces *out);
atoll_err block_make(const atoll_model *m, int layer, atoll_policy policy, layer_way way, block_plan *out);

/* ---- what schedules ask of the kinds of operations (ops.c) ---- */

enum { NEED_IN = 1, NEED_OUT = 2, NEED_EXTRA = 4 };

typedef struct op_run op_run;

typedef struct op_type {
  int costly;   /* a matrix product is behind it: what it gives is carried rather than made a third time */
  int in_place; /* what it gives may take the place of its input, and the gradient of its input that of its output */
  int input_needs, weight_needs; /* NEED_*: values that the halves of backward read */
  atoll_err (*forward)(const op_run *r);
  atoll_err (*input)(const op_run *r);
  atoll_err (*weight)(const op_run *r); /* NULL: no parameters */
} op_type;

extern const op_type op_types[OP_KINDS];

/* One step of one call. */
struct op_run {
  const layer_call *l;
  const block_plan *b;
  const schedule *s;
  const program_op *op;
  const step *step;
  void *at[IDS]; /* NULL where there is nothing */
};

/* This step and `next` as one, where products and what follows them can be (*joined); else nothing is done. */
atoll_err op_join(const op_run *r, const step *next, int *joined);

/* One call on a block (walk.c). Arguments that the call has not are NULL. */
atoll_err block_run(const layer_call *l, int call, const void *x, void *y, const void *dy, void *dx);

#endif

/* A scheduled program as C11: one function of its own for every statement, and one for the tree. See emit.c. */
#ifndef RECURRENT_EMIT_H
#define RECURRENT_EMIT_H

#include "tree.h"

/* Of a text's functions: how many translation units it can become, of the same text with RT_UNITS defined as their
 * number and RT_UNIT as which one it is. */
enum { RT_PARTS = 4 };
/* What emitted code has in common, as text. */
void rt_emit_prelude(FILE *out);
/* The program as "int rt_program_<number>(rt_run *r)". kernels, for a device: there the loops go that compute values,
 * as functions of their own that CUDA C and C share, and the program launches them (emit_kernel.c); NULL: it has the
 * loops itself. */
atoll_err rt_emit(const rt_graph *g, const rt_tree *tree, int number, FILE *out, FILE *kernels);

/* ---- within emission (emit.c and emit_*.c) ---- */

/* How a statement gets at an operand. Strides are texts, in elements; NULL where they are those of a dense array. */
typedef enum rt_operand_kind {
  RT_SCALAR,  /* a variable, computed in the same loop */
  RT_MEMORY,  /* base[...] */
  RT_BLOCKS,  /* base[block][...]: the first axis is a slice over blocks; of contractions only */
  RT_LITERAL, /* a constant */
  RT_FORMULA  /* of EVAL: an expression over positions */
} rt_operand_kind;

typedef struct rt_operand {
  rt_operand_kind kind;
  atoll_dtype dtype;
  const char *base; /* variable, pointer or literal */
  int axes;
  const atoll_sym *shape[RT_AXES];
  const char *stride[RT_AXES];
  int dense;
  const atoll_rt *node; /* of FORMULA */
  const char *lo;       /* of BLOCKS: the slice's first point */
  int64_t size;         /* of BLOCKS: points of a block */
} rt_operand;

typedef struct rt_emit_view {
  const rt_edge *edge;
  int blocks; /* not an array, but where its blocks are */
  rt_operand operand;
} rt_emit_view;

typedef struct rt_known {
  const char *type, *name;
} rt_known;

/* What is declared in a block, and ends with it. */
typedef struct rt_scope {
  int sizes, views, knowns;
} rt_scope;

typedef struct rt_emitter {
  const rt_graph *g;
  FILE *out;
  atoll_err err;
  int number, depth;
  long part[RT_PARTS]; /* bytes of each so far */
  rt_members members;
  char **text; /* what rt_text() made */
  int texts, text_room;
  /* of the statement at hand */
  int head;
  int names; /* variables so far */
  const atoll_sym **size;
  int sizes, size_room;
  rt_emit_view *view;
  int views, view_room;
  int *cluster; /* per node: loops in which members are computed; -1: none */
  char *memory; /* per node: the member's value is in memory */
  char *alias;  /* per node: RESHAPE of what is in memory already */
  /* of a device */
  FILE *kernels;
  int made;        /* kernels so far */
  rt_known *known; /* variables that a kernel may name */
  int knowns, known_room;
  struct {
    FILE *out; /* the statement's; NULL: no kernel is being written */
    char *text;
    size_t bytes;
    int depth;
    rt_scope scope;
  } kernel;
} rt_emitter;

/* A text that lives as long as the emitter. */
const char *rt_text(rt_emitter *em, const char *fmt, ...) ATOLL_PRINTF(2, 3);
/* A line, indented. */
void rt_line(rt_emitter *em, const char *fmt, ...) ATOLL_PRINTF(2, 3);
void rt_open(rt_emitter *em, const char *fmt, ...) ATOLL_PRINTF(2, 3); /* "... {" */
void rt_close(rt_emitter *em);
/* e in C; axes: texts of "_0", "_1" ..., or NULL. */
const char *rt_expression(rt_emitter *em, const atoll_sym *e, const char *const *axes);
/* The name of a variable that has e's value, or a number; declared here if it is new. */
const char *rt_size(rt_emitter *em, const atoll_sym *e);
/* Number of elements of axes first ... of a shape. */
const char *rt_count(rt_emitter *em, int axes, const atoll_sym *const *shape, int first);
const char *rt_storage_type(atoll_dtype t);
const char *rt_compute_type(atoll_dtype t);
int rt_is_single(atoll_dtype t); /* computed as float */
/* v of the type of computation of `from`, rounded to type t, in t's type of computation. */
const char *rt_rounded(rt_emitter *em, atoll_dtype from, atoll_dtype t, const char *v);
/* What assigns a rounded value to memory of type t. */
const char *rt_stored(rt_emitter *em, atoll_dtype t, const char *v);

/* Operand k of a member of the statement at hand; dense: it must be one dense array in memory, or a literal. */
rt_operand rt_operand_of(rt_emitter *em, const atoll_rt *x, int k, int dense);
/* The same for an operand that rt_is_blocked(). */
rt_operand rt_blocks_of(rt_emitter *em, const atoll_rt *x, int k);
/* Whether the view's only slice is over blocks, and of values that are not single numbers. */
int rt_is_blocked(const rt_emitter *em, const atoll_rt *x, int k);
/* The value at positions at[0 .. n-1], to which the operand's trailing axes are broadcast, in its type of computation.
 */
const char *rt_element_text(rt_emitter *em, const rt_operand *o, int n, const char *const *at);
/* The element at a linear position of memory; the operand has one axis from then on. */
const char *rt_loaded(rt_emitter *em, rt_operand *o, const char *at);
/* A pointer to a dense array; a literal gets one. */
const char *rt_pointer(rt_emitter *em, const rt_operand *o);
/* A pointer to the value of src at this point (texts by dimension); "p12" in a member's own group is not looked for. */
const char *rt_value_pointer(rt_emitter *em, const atoll_rt *src, const char *const point[RT_DIMS]);
/* The slot of a point in a store that expression `store` points to. */
const char *rt_slot(rt_emitter *em, const atoll_rt *x, const char *store, const char *const point[RT_DIMS]);
/* "(int64_t[]){d0, d2}" of x's dimensions. */
const char *rt_point_list(rt_emitter *em, const atoll_rt *x, const char *const point[RT_DIMS]);
/* Whether member x can use its input k as a variable, when both are computed in one loop. */
int rt_is_fused(const rt_emitter *em, const atoll_rt *x, int k);
/* Whether it is EVAL's and computed where it is used. */
int rt_is_formula(const rt_emitter *em, const atoll_rt *x, int k);
int rt_is_member(const rt_emitter *em, const rt_edge *e);
/* Operations whose elements are computed one by one. */
int rt_is_map(rt_op op);
/* Declares views and sizes of a member, at the top of a statement. */
void rt_declare(rt_emitter *em, const atoll_rt *x);
/* A loop nest that computes members (maps of one shape). */
void rt_emit_maps(rt_emitter *em, int n, const atoll_rt *const *x);
rt_scope rt_scope_open(const rt_emitter *em);
void rt_scope_close(rt_emitter *em, rt_scope scope);

/* ---- kernels (emit_kernel.c) ---- */

/* A variable of the statement, of eight bytes. */
void rt_know(rt_emitter *em, const char *type, const char *name);
/* What is printed in between is a kernel, which gets the variables that it names; `threads` of them have work. */
void rt_kernel_begin(rt_emitter *em);
void rt_kernel_end(rt_emitter *em, const char *threads);
/* The loop over elements of a shape: "at", by position in a dense array, and at[0 .. axes-1]; lanes: the threads that
 * run together take the same element. */
void rt_open_elements(rt_emitter *em, int axes, const atoll_sym *const *shape, const char *const *at, int lanes);
/* Of a device, where statements compute values themselves, or tell others of them: after all kernels so far. */
void rt_wait(rt_emitter *em);
/* Bytes go from dense array to dense array, in the order of kernels if there are any. */
void rt_copy(rt_emitter *em, const char *to, const char *from, const char *bytes);

/* Any other operation. */
void rt_emit_op(rt_emitter *em, const atoll_rt *x);
/* A contraction: loops, or a product of the library (emit_einsum.c). */
void rt_emit_einsum(rt_emitter *em, const atoll_rt *x);
/* The operand of a contraction that is read from its blocks, or -1: at most one. */
int rt_blocked_operand(const rt_emitter *em, const atoll_rt *x);
void rt_simd(rt_emitter *em); /* the next loop has no dependences */
/* "p12": where member x's value is. */
const char *rt_place(rt_emitter *em, const atoll_rt *x);
/* for (int64_t i = 0; i < n; i++) { */
void rt_loop(rt_emitter *em, const char *i, const char *n);

#endif

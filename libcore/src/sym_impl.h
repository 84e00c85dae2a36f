/* Nodes and pool of symbolic expressions, shared by sym.c (construction), sym_eval.c and sym_text.c. */
#ifndef ATOLL_SYM_IMPL_H
#define ATOLL_SYM_IMPL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "atoll/sym.h"

__extension__ typedef __int128 wide; /* holds any product of two int64 and any sum of a few of them */

struct atoll_sym {
  uint64_t hash;
  const atoll_syms *pool;
  uint64_t tree;  /* nodes when written as a tree, saturating */
  uint32_t depth; /* leaves 1 */
  uint8_t op, type;
  uint8_t opaque; /* MUL that could not be made flat, see sym.c */
  int arity;
  union {
    int64_t i; /* CONST of INT and BOOL */
    double r;  /* CONST of REAL */
    const char *name;
  } v;
  const atoll_sym *arg[];
};

/* Deeper expressions are refused: every walk is recursive. */
#define SYM_DEPTH_MAX 10000

static inline int sym_is_const(const atoll_sym *e) { return e->op == ATOLL_SYM_CONST; }

static inline int sym_is_int(const atoll_sym *e, int64_t v) {
  return e->op == ATOLL_SYM_CONST && e->type == ATOLL_SYM_INT && e->v.i == v;
}

static inline int wide_fits(wide v) { return v >= INT64_MIN && v <= INT64_MAX; }

/* Floor division and modulus of mathematics; b is not 0. */
static inline wide wide_floordiv(wide a, wide b) {
  wide q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/* Remember the first construction error of the pool; returns NULL. */
const atoll_sym *sym_refuse(atoll_syms *pool, atoll_err code, const char *fmt, ...) ATOLL_PRINTF(3, 4);
const char *sym_type_name(atoll_sym_type t);
/* "+", "//", "min" ... as in text. */
const char *sym_op_name(atoll_sym_op op);
/* Text cut to the buffer, with "..." at the end when it did not fit; returns buf. For messages. */
const char *sym_brief(const atoll_sym *e, char *buf, size_t n);
/* 1 when the word cannot name a variable because the grammar uses it. */
int sym_reserved(const char *word, size_t n);
/* The variable of this name, or NULL. */
const atoll_sym *sym_find_var(const atoll_syms *pool, const char *name);

/* The first construction error, put aside while text is parsed. */
struct sym_error {
  atoll_err code;
  char text[512];
};
void sym_error_swap(atoll_syms *pool, struct sym_error *e);

#endif

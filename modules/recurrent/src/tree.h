/* A schedule: loops, conditions and statements, in the order of execution. Expressions are over bounds and the loops'
 * variables "_c0", "_c1" ... of the loops around (rt_env.loop[0], [1] ...). */
#ifndef RECURRENT_TREE_H
#define RECURRENT_TREE_H

#include "graph.h"
#include "interp.h"

typedef enum rt_tree_kind { RT_SEQ, RT_FOR, RT_IF, RT_STATEMENT } rt_tree_kind;

#define RT_STATEMENT_LIST(X)                                                                                           \
  X(EXECUTE, "execute")   /* all nodes of a group, at one point */                                                     \
  X(ALLOCATE, "allocate") /* room for one node's value, which the next execution makes, unless one is donated to it */ \
  X(FREE, "free")         /* one node's value at one point: nothing reads it any more */                               \
  X(DONATE, "donate")     /* the value's storage becomes that of what the next execution makes of `to`; it is freed    \
                             right after that */                                                                       \
  X(OFFLOAD, "offload")   /* the value is not needed for a while: put away, if the run has to put values away */       \
  X(FETCH, "fetch")       /* and brought back */                                                                       \
  X(SEND, "send")         /* an execution whose value comes from all ranks: this one's part leaves */                  \
  X(RECEIVE, "receive")   /* and the value is there, before it is read first */

typedef enum rt_statement {
#define RT_STATEMENT_ENUM(name, text) RT_DO_##name,
  RT_STATEMENT_LIST(RT_STATEMENT_ENUM)
#undef RT_STATEMENT_ENUM
} rt_statement;

typedef struct rt_tree rt_tree;
struct rt_tree {
  rt_tree_kind kind;
  int children, room;
  rt_tree **child;        /* SEQ: any; FOR: the body; IF: then, and else if there are two */
  int depth;              /* FOR: number of its variable */
  int to;                 /* DONATE: the node that takes over */
  const atoll_sym *first; /* FOR: value of the variable at first */
  const atoll_sym *cond;  /* FOR: while this holds; IF */
  int64_t step;
  rt_statement what; /* STATEMENT */
  int node;          /* of the group's head, or of the value */
  const atoll_sym *point[RT_DIMS];
};

rt_tree *rt_tree_new(rt_tree_kind kind);
/* Child k of t from now on; takes it, also when there is no memory. */
atoll_err rt_tree_insert(rt_tree *t, int k, rt_tree *child);
void rt_tree_destroy(rt_tree **tree);
void rt_tree_print(const rt_graph *g, const rt_tree *tree, FILE *out);

/* Calls f for every statement t in order, with its node and point; env->bound must be set. */
typedef atoll_err (*rt_tree_visit)(void *arg, const rt_tree *t, const atoll_rt *x, const int64_t point[RT_DIMS]);
atoll_err rt_tree_walk(const rt_graph *g, const rt_tree *tree, rt_env *env, rt_tree_visit f, void *arg);

/* Members of all groups, in an order of execution, and which values leave theirs. */
typedef struct rt_members {
  int *first, *count; /* per head: its members are list[first] ... */
  int *list;
  char *kept; /* per node: something outside of its group reads it, or the same group at another point */
} rt_members;

atoll_err rt_members_create(const rt_graph *g, rt_members *out);
void rt_members_destroy(rt_members *m);
int rt_is_read_outside(const rt_graph *g, const atoll_rt *x);

/* Storage in blocks: of a value that is read over slices of dimension dim, the values of a block of `size` points,
 * which begins at a multiple of it, lie next to each other and are allocated together. Sizes are told by slices that
 * stay within one block, or by graph->block_size. */
typedef struct rt_block {
  int dim;
  int64_t size; /* 1: no blocks */
} rt_block;

rt_block rt_block_of(const rt_graph *g, const atoll_rt *x);
/* Values that are alive in each block, while a schedule is walked. */
typedef struct rt_blocks {
  const rt_graph *g;
  rt_block *block; /* per node */
  int **held;      /* per node with blocks: by the block's point */
} rt_blocks;

atoll_err rt_blocks_create(const rt_graph *g, rt_blocks *out);
void rt_blocks_destroy(rt_blocks *b);
/* A value comes (sign 1) or goes (-1). *changes: whether memory does: the value is the first of its block, or the last,
 * or has none. */
atoll_err rt_blocks_count(rt_blocks *b, const atoll_rt *x, const int64_t *point, const int64_t *bound, int sign,
                          int *changes);
/* Whether the edge's only slice is over b.dim and within one block. */
int rt_reads_one_block(const rt_graph *g, const rt_edge *e, const rt_block *b);

/* Adds the allocations: before each execution those of the values that leave it. Wants to be the last change of the
 * tree. */
atoll_err rt_tree_allocate(const rt_graph *g, rt_tree *tree);

/* Adds the donations that the tree's order allows: a value that is freed right after an execution which reads it gives
 * its storage to a result of it, where an element is read before that of the result is written. */
atoll_err rt_tree_donate(const rt_graph *g, rt_tree *tree);
/* Whether a run carries a donation out: not when one of the two is put away. away: NULL, or per node. */
static inline int rt_is_donated(const char *away, int from, int to) { return !away || (!away[from] && !away[to]); }

/* Runs the tree by the reference executor, which refuses a statement whose inputs are not there. away: per node,
 * whether its values are put away where the tree says so. */
atoll_err rt_tree_execute(rt_interp *it, const rt_graph *g, const rt_tree *tree, const char *away);
/* Collective on the communicators over which the graph's nodes sum. mine: whether this rank can begin to run the graph;
 * returns the code of one that cannot on all that share a communicator with it. */
atoll_err rt_exchanges_begin(const rt_graph *g, atoll_err mine);
/* Collective in the same way. MISMATCH: its ranks would come to their sums in other orders in a run with these bounds,
 * or to other sums. tree: NULL when all is computed by demand, so that orders are the same where the sums are. */
atoll_err rt_exchanges_agree(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS]);
/* Of the values that pads are (atoll_rt.pad), which a run keeps all the time. */
atoll_err rt_pad_bytes(const rt_graph *g, const int64_t bound[RT_DIMS], int64_t *bytes);
/* Most bytes of values at any time, by walking the schedule: pads, and values or blocks of them, without temporaries
 * inside of groups, and without what is away. */
atoll_err rt_tree_peak_bytes(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS], const char *away,
                             int64_t *peak);
/* Which nodes' values must be put away for the peak to be at most `memory`: none if it is anyway. Those that take most
 * where the peak is come first. away: [nodes]; *peak: with them, above `memory` when nothing helps. */
atoll_err rt_tree_put_away(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS], int64_t memory,
                           char *away, int64_t *peak);
/* Whether the tree says when values of this node could be put away. */
int rt_tree_offloads(const rt_tree *tree, int node);

#endif

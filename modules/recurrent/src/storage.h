/* Where values live, by walking a schedule with its bounds: exact, and linear in the statements executed. */
#ifndef RECURRENT_STORAGE_H
#define RECURRENT_STORAGE_H

#include "tree.h"

typedef enum rt_storage_kind {
  RT_STORE_NONE,  /* never leaves its group: a temporary */
  RT_STORE_ONE,   /* one value at a time */
  RT_STORE_RING,  /* slots by coordinate `dim` modulo `slots`; one value per slot */
  RT_STORE_POINTS /* several dimensions are alive at once: at most `slots` values, by point */
} rt_storage_kind;

typedef struct rt_storage {
  rt_storage_kind kind;
  int dim;
  int64_t block; /* points of a block (rt_block_of()); slots, coordinates and bytes are those of blocks; 1: none */
  int64_t slots; /* most values alive at once; RING: width of the window of live coordinates */
  int64_t bytes; /* of the largest value */
  int donor;     /* node whose storage a value takes over at times (DONATE); -1: none */
} rt_storage;

/* *out: one per node, owned by the caller (free). */
atoll_err rt_storage_choose(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS], rt_storage **out);

#endif

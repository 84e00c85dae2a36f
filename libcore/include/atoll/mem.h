/** Memory with exact accounts.
 *
 *  One atoll_mem per rank counts, to the byte, what is held and what was held at most, by category, against a budget.
 *  Every buffer of the training path comes from it. Sizes are counted as asked (not rounded), alignment is 64 bytes.
 *  An arena is one allocation handed out as a stack. All functions are local; an atoll_mem is thread-safe. */
#ifndef ATOLL_MEM_H
#define ATOLL_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

#define ATOLL_MEM_LIST(X)                                                                                              \
  X(PARAMETER, "parameter")                                                                                            \
  X(GRADIENT, "gradient")                                                                                              \
  X(OPTIMIZER, "optimizer")                                                                                            \
  X(ACTIVATION, "activation")                                                                                          \
  X(WORKSPACE, "workspace")                                                                                            \
  X(COMM, "comm")                                                                                                      \
  X(CHECKPOINT, "checkpoint")                                                                                          \
  X(DATA, "data")

typedef enum atoll_mem_category {
#define ATOLL_MEM_ENUM(name, text) ATOLL_MEM_##name,
  ATOLL_MEM_LIST(ATOLL_MEM_ENUM)
#undef ATOLL_MEM_ENUM
      ATOLL_MEM_CATEGORIES
} atoll_mem_category;

typedef struct atoll_mem atoll_mem;
typedef struct atoll_arena atoll_arena;

ATOLL_API const char *atoll_mem_category_name(atoll_mem_category c);

/** budget in bytes; 0 means no limit. A counting memory (counting != 0) keeps the accounts but returns no usable
 *  storage: pointers are distinct and must not be read or written. It runs real allocation sequences without memory. */
ATOLL_API atoll_err atoll_mem_create(int64_t budget, int counting, atoll_mem **out);
/** `held` (may be NULL) receives the bytes still held, and the caller judges them; without it, builds with assertions
 *  fail loudly when there are any. What is still held is released. */
ATOLL_API void atoll_mem_destroy(atoll_mem **mem, int64_t *held);

/** Uninitialised, 64-byte aligned. Zero bytes give a non-NULL pointer. NOMEM names category, bytes asked, held and
 *  budget. */
ATOLL_API atoll_err atoll_mem_alloc(atoll_mem *mem, atoll_mem_category category, size_t bytes, void **out);
ATOLL_API atoll_err atoll_mem_calloc(atoll_mem *mem, atoll_mem_category category, size_t bytes, void **out);
/** Accepts NULL; clears *p. */
ATOLL_API void atoll_mem_free(atoll_mem *mem, void *p_address);

/** Account for `bytes` that somebody else allocates, such as a segment of shared memory: limits, peaks and errors as of
 * an allocation. *token is owned and is not memory; discharge takes the bytes off the account and clears it. */
ATOLL_API atoll_err atoll_mem_charge(atoll_mem *mem, atoll_mem_category category, size_t bytes, void **token);
ATOLL_API void atoll_mem_discharge(atoll_mem *mem, void **token);

ATOLL_API int64_t atoll_mem_current(const atoll_mem *mem, atoll_mem_category c);
ATOLL_API int64_t atoll_mem_peak(const atoll_mem *mem, atoll_mem_category c);
ATOLL_API int64_t atoll_mem_current_total(const atoll_mem *mem);
/** Peak of the sum, which is at most the sum of the peaks. */
ATOLL_API int64_t atoll_mem_peak_total(const atoll_mem *mem);
ATOLL_API int64_t atoll_mem_budget(const atoll_mem *mem);
ATOLL_API void atoll_mem_reset_peak(atoll_mem *mem);
ATOLL_API int atoll_mem_counting(const atoll_mem *mem);
/** Test hook: the nth allocation from now (1 = next) of this memory fails with NOMEM; 0 switches it off. */
ATOLL_API void atoll_mem_fail_at(atoll_mem *mem, int64_t nth);

/** Stack arena: each block is padded to 64 bytes. */
ATOLL_API atoll_err atoll_arena_create(atoll_mem *mem, atoll_mem_category category, size_t capacity, atoll_arena **out);
ATOLL_API void atoll_arena_destroy(atoll_arena **arena);
ATOLL_API atoll_err atoll_arena_push(atoll_arena *arena, size_t bytes, void **out);
ATOLL_API size_t atoll_arena_mark(const atoll_arena *arena);
ATOLL_API void atoll_arena_release(atoll_arena *arena, size_t mark);
ATOLL_API size_t atoll_arena_peak(const atoll_arena *arena);
/** Bytes a block of `bytes` occupies in an arena. */
ATOLL_API size_t atoll_arena_padded(size_t bytes);

ATOLL_END_C
#endif

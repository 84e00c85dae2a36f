/* Memory with exact accounts.
 *
 * Every block is entered in a table (address -> bytes, category), for real and for counting memories alike. The table
 * makes a wrong or double free detectable instead of fatal, lets a leak be described, and needs no header in front of a
 * block, so that the 64-byte alignment costs nothing. One mutex guards accounts and table; nothing on the training path
 * allocates per element, so it is not contended.
 *
 * Blocks of LARGE bytes and more are mapped one by one: malloc would keep freed ones in its heap once its adaptive
 * threshold has risen, and the resident size would no longer follow the accounts. Fresh mappings are zero already,
 * which makes calloc of a large block free, and the kernel may back them with huge pages.
 *
 * A counting memory hands out addresses from a range that no process can map (bit 55 set: not canonical on x86-64,
 * above the user range on arm64 and power), so that a use of such a pointer faults at once. */
#include "atoll/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "atoll/log.h"

#define ALIGN         ((size_t)64)
#define LARGE         ((size_t)2 << 20)
#define COUNTING_BASE (UINT64_C(1) << 55)

struct block {
  uintptr_t address; /* 0: free slot */
  int64_t bytes;
  atoll_mem_category category;
  int external; /* charged: the storage is somebody else's, the address a token */
};

struct atoll_mem {
  pthread_mutex_t lock;
  int64_t budget; /* bytes, 0: none */
  int counting;
  int64_t fail_at; /* allocations left until the one that fails, 0: off */
  uint64_t next_counted;
  int64_t current[ATOLL_MEM_CATEGORIES], peak[ATOLL_MEM_CATEGORIES];
  int64_t current_total, peak_total;
  /* Open addressing, linear probing, power-of-two size, at most half full. */
  struct block *table;
  size_t slots, used;
};

static const char *const category_names[] = {
#define CATEGORY_NAME(name, text) text,
    ATOLL_MEM_LIST(CATEGORY_NAME)
#undef CATEGORY_NAME
};

const char *atoll_mem_category_name(atoll_mem_category c) {
  return (unsigned)c < ATOLL_MEM_CATEGORIES ? category_names[c] : "unknown";
}

/* ---- table ---- */

static size_t slot_of(uintptr_t address, size_t slots) {
  return (size_t)(((uint64_t)address >> 6) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (slots - 1);
}

static struct block *table_find(const atoll_mem *mem, uintptr_t address) {
  if (!mem->slots)
    return NULL;
  for (size_t i = slot_of(address, mem->slots);; i = (i + 1) & (mem->slots - 1)) {
    if (mem->table[i].address == address)
      return &mem->table[i];
    if (!mem->table[i].address)
      return NULL;
  }
}

static void table_put(struct block *table, size_t slots, struct block b) {
  size_t i = slot_of(b.address, slots);
  while (table[i].address)
    i = (i + 1) & (slots - 1);
  table[i] = b;
}

/* Room for one more entry; 0 or -1. */
static int table_reserve(atoll_mem *mem) {
  if (2 * (mem->used + 1) <= mem->slots)
    return 0;
  size_t slots = mem->slots ? 2 * mem->slots : 64;
  struct block *table = calloc(slots, sizeof *table);
  if (!table)
    return -1;
  for (size_t i = 0; i < mem->slots; i++)
    if (mem->table[i].address)
      table_put(table, slots, mem->table[i]);
  free(mem->table);
  mem->table = table;
  mem->slots = slots;
  return 0;
}

/* Removal by shifting later members of the probe run back, so that no tombstones collect. */
static void table_remove(atoll_mem *mem, struct block *b) {
  size_t mask = mem->slots - 1, hole = (size_t)(b - mem->table);
  for (size_t i = (hole + 1) & mask; mem->table[i].address; i = (i + 1) & mask) {
    size_t home = slot_of(mem->table[i].address, mem->slots);
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      mem->table[hole] = mem->table[i];
      hole = i;
    }
  }
  mem->table[hole].address = 0;
  mem->used--;
}

/* ---- storage ---- */

static void *storage_get(size_t bytes) {
  if (bytes >= LARGE) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* a wish only */
#endif
    return p;
  }
  return aligned_alloc(ALIGN, bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN);
}

static void storage_put(void *p, size_t bytes) {
  if (bytes >= LARGE)
    (void)munmap(p, bytes);
  else
    free(p);
}

/* ---- public ---- */

atoll_err atoll_mem_create(int64_t budget, int counting, atoll_mem **out) {
  if (!out || budget < 0)
    return atoll_fail(ATOLL_USAGE, "memory budget %lld bytes, expected 0 (none) or more", (long long)budget);
  atoll_mem *mem = calloc(1, sizeof *mem);
  if (!mem)
    return atoll_fail(ATOLL_NOMEM, "no memory for the memory accounts (%zu bytes)", sizeof *mem);
  if (pthread_mutex_init(&mem->lock, NULL)) {
    free(mem);
    return atoll_fail(ATOLL_NOMEM, "no mutex for the memory accounts");
  }
  mem->budget = budget;
  mem->counting = !!counting;
  mem->next_counted = COUNTING_BASE;
  *out = mem;
  return ATOLL_OK;
}

void atoll_mem_destroy(atoll_mem **mem_address, int64_t *held) {
  atoll_mem *mem = mem_address ? *mem_address : NULL;
  if (held)
    *held = mem ? mem->current_total : 0;
  if (!mem)
    return;
  if (mem->used && !held) {
    for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
      if (mem->current[c])
        atoll_log(ATOLL_LOG_ERROR, "memory destroyed with %lld bytes of category %s still held",
                  (long long)mem->current[c], category_names[c]);
    assert(!"memory destroyed while blocks are held");
  }
  if (!mem->counting)
    for (size_t i = 0; i < mem->slots; i++)
      if (mem->table[i].address && !mem->table[i].external)
        storage_put((void *)mem->table[i].address, (size_t)mem->table[i].bytes);
  free(mem->table);
  (void)pthread_mutex_destroy(&mem->lock);
  free(mem);
  *mem_address = NULL;
}

/* Limits, the test hook and room in the table. Called with the lock held. */
static atoll_err admit(atoll_mem *mem, atoll_mem_category category, size_t bytes) {
  const char *name = category_names[category];
  if (mem->fail_at > 0 && --mem->fail_at == 0)
    return atoll_fail(ATOLL_NOMEM, "%s: %zu bytes refused on purpose (held %lld, budget %lld)", name, bytes,
                      (long long)mem->current_total, (long long)mem->budget);
  if (bytes > (size_t)(INT64_MAX - mem->current_total))
    return atoll_fail(ATOLL_NOMEM, "%s: %zu bytes asked with %lld held exceed 63 bits", name, bytes,
                      (long long)mem->current_total);
  if (mem->budget && (int64_t)bytes > mem->budget - mem->current_total)
    return atoll_fail(ATOLL_NOMEM, "%s: %zu bytes asked, %lld held, budget %lld: %lld missing", name, bytes,
                      (long long)mem->current_total, (long long)mem->budget,
                      (long long)((int64_t)bytes - (mem->budget - mem->current_total)));
  if (table_reserve(mem))
    return atoll_fail(ATOLL_NOMEM, "%s: no memory for the table of %zu blocks", name, mem->used);
  return ATOLL_OK;
}

static void account(atoll_mem *mem, atoll_mem_category c, int64_t bytes) {
  mem->current[c] += bytes;
  mem->current_total += bytes;
  if (mem->current[c] > mem->peak[c])
    mem->peak[c] = mem->current[c];
  if (mem->current_total > mem->peak_total)
    mem->peak_total = mem->current_total;
}

/* An address of the unmappable range. Called with the lock held. */
static void *counted_address(atoll_mem *mem, size_t bytes) {
  void *p = (void *)(uintptr_t)mem->next_counted;
  mem->next_counted += bytes / ALIGN * ALIGN + ALIGN;
  return p;
}

static atoll_err obtain(atoll_mem *mem, atoll_mem_category category, size_t bytes, int external, void **out) {
  if (!mem || !out || (unsigned)category >= ATOLL_MEM_CATEGORIES)
    return atoll_fail(ATOLL_USAGE, "allocation of %zu bytes without memory, result or valid category (%d)", bytes,
                      (int)category);
  (void)pthread_mutex_lock(&mem->lock);
  void *p = NULL;
  atoll_err err = admit(mem, category, bytes);
  if (err != ATOLL_OK)
    goto unlock;
  if (mem->counting || external) {
    p = counted_address(mem, external ? 0 : bytes);
  } else {
    p = storage_get(bytes);
    if (!p) {
      err = atoll_fail(ATOLL_NOMEM, "%s: the system refused %zu bytes (held %lld, budget %lld)",
                       category_names[category], bytes, (long long)mem->current_total, (long long)mem->budget);
      goto unlock;
    }
  }
  table_put(mem->table, mem->slots, (struct block){(uintptr_t)p, (int64_t)bytes, category, external});
  mem->used++;
  account(mem, category, (int64_t)bytes);
unlock:
  (void)pthread_mutex_unlock(&mem->lock);
  if (err == ATOLL_OK)
    *out = p;
  return err;
}

atoll_err atoll_mem_alloc(atoll_mem *mem, atoll_mem_category category, size_t bytes, void **out) {
  return obtain(mem, category, bytes, 0, out);
}

atoll_err atoll_mem_charge(atoll_mem *mem, atoll_mem_category category, size_t bytes, void **token) {
  return obtain(mem, category, bytes, 1, token);
}

void atoll_mem_discharge(atoll_mem *mem, void **token) { atoll_mem_free(mem, token); }

atoll_err atoll_mem_calloc(atoll_mem *mem, atoll_mem_category category, size_t bytes, void **out) {
  void *p = NULL;
  ATOLL_TRY(atoll_mem_alloc(mem, category, bytes, &p));
  if (!mem->counting && bytes < LARGE)
    memset(p, 0, bytes);
  *out = p;
  return ATOLL_OK;
}

void atoll_mem_free(atoll_mem *mem, void *p_address) {
  void *p = NULL;
  if (!p_address)
    return;
  memcpy(&p, p_address, sizeof p); /* p_address is the address of a pointer of any type */
  if (!p)
    return;
  assert(mem);
  (void)pthread_mutex_lock(&mem->lock);
  struct block *b = table_find(mem, (uintptr_t)p);
  struct block found = b ? *b : (struct block){0};
  if (b) {
    account(mem, b->category, -b->bytes);
    table_remove(mem, b);
  }
  (void)pthread_mutex_unlock(&mem->lock);
  if (!b) {
    atoll_log(ATOLL_LOG_ERROR, "free of %p, which this memory does not hold (freed twice?)", p);
    assert(!"free of a block that is not held");
  } else if (!mem->counting && !found.external) {
    storage_put(p, (size_t)found.bytes);
  }
  p = NULL;
  memcpy(p_address, &p, sizeof p);
}

static int64_t locked_read(const atoll_mem *mem, const int64_t *what) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&mem->lock; /* reading an account does not change the memory */
  (void)pthread_mutex_lock(lock);
  int64_t v = *what;
  (void)pthread_mutex_unlock(lock);
  return v;
}

int64_t atoll_mem_current(const atoll_mem *mem, atoll_mem_category c) {
  return (unsigned)c < ATOLL_MEM_CATEGORIES ? locked_read(mem, &mem->current[c]) : 0;
}

int64_t atoll_mem_peak(const atoll_mem *mem, atoll_mem_category c) {
  return (unsigned)c < ATOLL_MEM_CATEGORIES ? locked_read(mem, &mem->peak[c]) : 0;
}

int64_t atoll_mem_current_total(const atoll_mem *mem) { return locked_read(mem, &mem->current_total); }

int64_t atoll_mem_peak_total(const atoll_mem *mem) { return locked_read(mem, &mem->peak_total); }

int64_t atoll_mem_budget(const atoll_mem *mem) { return mem->budget; }

void atoll_mem_reset_peak(atoll_mem *mem) {
  (void)pthread_mutex_lock(&mem->lock);
  memcpy(mem->peak, mem->current, sizeof mem->peak);
  mem->peak_total = mem->current_total;
  (void)pthread_mutex_unlock(&mem->lock);
}

int atoll_mem_counting(const atoll_mem *mem) { return mem->counting; }

void atoll_mem_fail_at(atoll_mem *mem, int64_t nth) {
  (void)pthread_mutex_lock(&mem->lock);
  mem->fail_at = nth > 0 ? nth : 0;
  (void)pthread_mutex_unlock(&mem->lock);
}

/* ---- arena ---- */

struct atoll_arena {
  atoll_mem *mem; /* borrowed, outlives the arena */
  atoll_mem_category category;
  void *base;
  size_t capacity, top, peak; /* bytes, all multiples of ALIGN */
};

size_t atoll_arena_padded(size_t bytes) {
  return bytes > SIZE_MAX - (ALIGN - 1) ? SIZE_MAX / ALIGN * ALIGN : (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

atoll_err atoll_arena_create(atoll_mem *mem, atoll_mem_category category, size_t capacity, atoll_arena **out) {
  if (!mem || !out)
    return atoll_fail(ATOLL_USAGE, "arena of %zu bytes without memory or result", capacity);
  atoll_arena *arena = calloc(1, sizeof *arena);
  if (!arena)
    return atoll_fail(ATOLL_NOMEM, "no memory for an arena's account (%zu bytes)", sizeof *arena);
  arena->mem = mem;
  arena->category = category;
  arena->capacity = atoll_arena_padded(capacity);
  atoll_err err = atoll_mem_alloc(mem, category, arena->capacity, &arena->base);
  if (err != ATOLL_OK) {
    free(arena);
    return err;
  }
  *out = arena;
  return ATOLL_OK;
}

void atoll_arena_destroy(atoll_arena **arena) {
  if (!arena || !*arena)
    return;
  atoll_mem_free((*arena)->mem, &(*arena)->base);
  free(*arena);
  *arena = NULL;
}

atoll_err atoll_arena_push(atoll_arena *arena, size_t bytes, void **out) {
  size_t need = atoll_arena_padded(bytes);
  if (need < bytes || need > arena->capacity - arena->top)
    return atoll_fail(ATOLL_NOMEM, "%s arena: %zu bytes asked, %zu of %zu in use",
                      atoll_mem_category_name(arena->category), bytes, arena->top, arena->capacity);
  *out = (void *)((uintptr_t)arena->base + arena->top); /* by integer: the base of a counting memory is no object */
  arena->top += need;
  if (arena->top > arena->peak)
    arena->peak = arena->top;
  return ATOLL_OK;
}

size_t atoll_arena_mark(const atoll_arena *arena) { return arena->top; }

void atoll_arena_release(atoll_arena *arena, size_t mark) {
  assert(mark <= arena->top && mark % ALIGN == 0);
  if (mark < arena->top)
    arena->top = mark;
}

size_t atoll_arena_peak(const atoll_arena *arena) { return arena->peak; }

/* Merging the pairs of one piece, best first and leftmost among equals (Sennrich et al. 2016).
 *
 * The tokens of the piece form a doubly linked list; a heap holds every pair of neighbours that has a merge. Taking the
 * best one joins two tokens and offers the two new pairs, so a piece of n symbols costs n log n where rescanning it
 * costs n^2. Candidates are never removed: one whose tokens have changed meanwhile is dropped when it is met.
 *
 * It equals the published method, which takes the best pair of the whole piece, and all its occurrences from the left,
 * because a pair that a merge makes possible never goes before that merge: in GPT-2's list a token is made before it is
 * used (checked when the list is read), and scored vocabularies take one pair at a time anyhow. */
#include "token_impl.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static size_t hash_pair(int32_t left, int32_t right) {
  uint64_t x = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  x ^= x >> 31;
  x *= UINT64_C(0x9e3779b97f4a7c15);
  return (size_t)(x ^ x >> 29);
}

static merge_pair *slot_of(const merge_table *m, int32_t left, int32_t right) {
  size_t i = hash_pair(left, right) & (m->slots - 1);
  while (m->slot[i].left >= 0 && (m->slot[i].left != left || m->slot[i].right != right))
    i = (i + 1) & (m->slots - 1);
  return &m->slot[i];
}

static atoll_err grow_table(merge_table *m) {
  merge_table larger = {.slots = m->slots ? 2 * m->slots : 1024, .used = m->used};
  larger.slot = malloc(larger.slots * sizeof *larger.slot);
  if (!larger.slot)
    return atoll_fail(ATOLL_NOMEM, "table of %zu merges", larger.slots);
  for (size_t i = 0; i < larger.slots; i++)
    larger.slot[i].left = -1;
  for (size_t i = 0; i < m->slots; i++)
    if (m->slot[i].left >= 0)
      *slot_of(&larger, m->slot[i].left, m->slot[i].right) = m->slot[i];
  free(m->slot);
  *m = larger;
  return ATOLL_OK;
}

atoll_err merge_add(merge_table *m, int32_t left, int32_t right, int32_t merged, double priority) {
  if (2 * (m->used + 1) > m->slots)
    ATOLL_TRY(grow_table(m));
  merge_pair *p = slot_of(m, left, right);
  if (p->left >= 0)
    return ATOLL_OK; /* two vocabulary entries with one string: the first stays */
  *p = (merge_pair){left, right, merged, priority};
  m->used++;
  return ATOLL_OK;
}

const merge_pair *merge_find(const merge_table *m, int32_t left, int32_t right) {
  if (!m->slots)
    return NULL;
  const merge_pair *p = slot_of(m, left, right);
  return p->left >= 0 ? p : NULL;
}

void merge_free(merge_table *m) {
  free(m->slot);
  memset(m, 0, sizeof *m);
}

/* ---- one piece ---- */

static atoll_err grow(void **p, size_t *room, size_t item, size_t want) {
  if (want <= *room)
    return ATOLL_OK;
  size_t more = 2 * *room > want ? 2 * *room : want + 62;
  void *grown = more < SIZE_MAX / item ? realloc(*p, more * item) : NULL;
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "a piece of text of %zu symbols", want);
  *p = grown;
  *room = more;
  return ATOLL_OK;
}

atoll_err merge_push(merge_work *w, int32_t id) {
  if (w->n >= INT32_MAX)
    return atoll_fail(ATOLL_UNSUPPORTED, "a piece of text of more than %d symbols without a place to divide it",
                      INT32_MAX);
  ATOLL_TRY(grow((void **)&w->symbol, &w->symbols, sizeof *w->symbol, w->n + 1));
  int32_t at = (int32_t)w->n++;
  w->symbol[at] = (merge_symbol){id, at - 1, -1};
  if (at > 0)
    w->symbol[at - 1].next = at;
  return ATOLL_OK;
}

static int before(const merge_candidate *a, const merge_candidate *b) {
  return a->priority > b->priority || (a->priority == b->priority && a->at < b->at);
}

static atoll_err offer(const merge_table *m, merge_work *w, int32_t at) {
  int32_t right = at < 0 ? -1 : w->symbol[at].next;
  if (right < 0)
    return ATOLL_OK;
  const merge_pair *p = merge_find(m, w->symbol[at].id, w->symbol[right].id);
  if (!p)
    return ATOLL_OK;
  ATOLL_TRY(grow((void **)&w->heap, &w->heap_size, sizeof *w->heap, w->candidates + 1));
  merge_candidate c = {p->priority, at, p->left, p->right};
  size_t i = w->candidates++;
  for (; i > 0 && before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
    w->heap[i] = w->heap[(i - 1) / 2];
  w->heap[i] = c;
  return ATOLL_OK;
}

static merge_candidate take_best(merge_work *w) {
  merge_candidate best = w->heap[0], last = w->heap[--w->candidates];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < w->candidates; i = child) {
    if (child + 1 < w->candidates && before(&w->heap[child + 1], &w->heap[child]))
      child++;
    if (!before(&w->heap[child], &last))
      break;
    w->heap[i] = w->heap[child];
  }
  w->heap[i] = last;
  return best;
}

atoll_err merge_run(const merge_table *m, merge_work *w, size_t *n) {
  merge_symbol *s = w->symbol;
  w->candidates = 0;
  for (size_t i = 0; i + 1 < w->n; i++)
    ATOLL_TRY(offer(m, w, (int32_t)i));
  while (w->candidates) {
    merge_candidate c = take_best(w);
    int32_t right = s[c.at].next;
    if (s[c.at].id != c.left || right < 0 || s[right].id != c.right)
      continue;
    s[c.at].id = merge_find(m, c.left, c.right)->merged;
    s[c.at].next = s[right].next;
    s[right].id = -1;
    if (s[right].next >= 0)
      s[s[right].next].previous = c.at;
    ATOLL_TRY(offer(m, w, s[c.at].previous));
    ATOLL_TRY(offer(m, w, c.at));
  }
  ATOLL_TRY(grow((void **)&w->ids, &w->id_room, sizeof *w->ids, w->n));
  *n = 0;
  for (int32_t i = w->n ? 0 : -1; i >= 0; i = s[i].next)
    w->ids[(*n)++] = s[i].id;
  w->n = 0;
  return ATOLL_OK;
}

void merge_work_free(merge_work *w) {
  free(w->symbol);
  free(w->heap);
  free(w->ids);
  memset(w, 0, sizeof *w);
}

/* The sum of f32 vectors over a fixed tree, wherever its leaves are.
 *
 *  Floating-point addition does not associate, so a sum that follows the ranks changes its bits with the plan. Here the
 *  order of additions is a property of the leaves alone: a range [a, b) is the sum of [a, m) and [m, b) with
 *  m = a + the largest power of two below b - a. A rank may have added up any whole node before; what remains is the
 * top of the tree, whose lower ends are the parts.
 *
 *  Work is divided by elements: of each piece, rank r sums the r-th slice of all parts (reduce-scatter), then the
 * slices are gathered. Every element of every part travels once, every sum once. The gathering of one piece overlaps
 * with the sending of the next.
 *
 *  The layout (who has which parts) is checked on every call, but usually it is the last call's: one all-gather of a
 *  digest per rank shows that, and the sorted slots and the list of additions are used again. Every rank sees the same
 *  digests, so all take the same way. */
#include "comm_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/digest.h"

struct leaf_range {
  int64_t first, count;
};

struct slot {
  int64_t first, count;
  int rank, part;
};

struct addition {
  int to, from;
};

struct tree_layout {
  atoll_digest key; /* of all ranks' heads */
  int slots;
  int *slot_of;  /* [slots], in order of rank, then part: the place in order of leaves */
  int *first_of; /* [size + 1]: where a rank's parts begin in slot_of */
  int additions;
  struct addition *addition;
};

/* What each rank says first. */
struct head {
  int64_t failed, parts, leaves, count, piece;
  uint64_t lo, hi; /* of its list of nodes */
};

struct request {
  pending base;
  atoll_comm *comm;
  int64_t leaves, count, piece;
  int parts;
  struct leaf_range *node; /* [parts] */
  float **part;            /* [parts] */
  float *out, *work;
  atoll_err failed; /* found before it was enqueued; told to the others */
  char message[PENDING_MSG];
};

void tree_layout_destroy(struct tree_layout *l) {
  if (!l)
    return;
  free(l->slot_of);
  free(l->first_of);
  free(l->addition);
  free(l);
}

/* Where a node of n >= 2 leaves splits. */
static int64_t split_at(int64_t n) {
  int64_t half = 1;
  while (half <= (n - 1) / 2)
    half *= 2;
  return half;
}

static int visit_nodes(int64_t a, int64_t b, int64_t first, int64_t end, int64_t *node_first, int64_t *node_count,
                       int cap, int have) {
  while (first < b && end > a) {
    if (first <= a && b <= end) {
      if (have < cap) {
        node_first[have] = a;
        node_count[have] = b - a;
      }
      return have + 1;
    }
    int64_t middle = a + split_at(b - a);
    have = visit_nodes(a, middle, first, end, node_first, node_count, cap, have);
    a = middle;
  }
  return have;
}

int atoll_tree_nodes(int64_t leaves, int64_t first, int64_t n, int64_t *node_first, int64_t *node_count, int cap) {
  if (leaves < 1 || n < 1 || first < 0 || first >= leaves || n > leaves - first)
    return 0;
  return visit_nodes(0, leaves, first, first + n, node_first, node_count, cap, 0);
}

int64_t atoll_comm_tree_sum_work(int size, int max_parts, int64_t piece) {
  if (size < 1 || max_parts < 1 || piece < 1)
    return 0;
  return (int64_t)size * max_parts * (piece / size + (piece % size > 0));
}

/* --- layout ------------------------------------------------------------------------------------------------------- */

static int by_leaf(const void *a, const void *b) {
  const struct slot *x = a, *y = b;
  if (x->first != y->first)
    return x->first < y->first ? -1 : 1;
  return x->rank != y->rank ? x->rank - y->rank : x->part - y->part;
}

/* The parts cover each leaf once? They are sorted. */
static atoll_err check_cover(const struct slot *slot, int slots, int64_t leaves, const char *name) {
  int64_t next = 0;
  int owner = -1;
  for (int i = 0; i < slots; i++) {
    const struct slot *s = &slot[i];
    if (s->first < 0 || s->count < 1 || s->first >= leaves || s->count > leaves - s->first)
      return atoll_fail(ATOLL_MISMATCH,
                        "tree sum on %s: rank %d gives %" PRId64 " leaves from %" PRId64 ", of %" PRId64 " in all",
                        name, s->rank, s->count, s->first, leaves);
    if (s->first < next)
      return atoll_fail(ATOLL_MISMATCH, "tree sum on %s: leaf %" PRId64 " is given by rank %d and by rank %d", name,
                        s->first, owner, s->rank);
    if (s->first > next)
      break;
    next = s->first + s->count;
    owner = s->rank;
  }
  if (next < leaves)
    return atoll_fail(ATOLL_MISMATCH, "tree sum on %s: no rank gives leaf %" PRId64 " of %" PRId64, name, next, leaves);
  return ATOLL_OK;
}

/* Adds what makes up node [a, b); its sum ends in slot *at, which moves past its parts. */
static atoll_err plan_additions(struct tree_layout *l, const struct slot *slot, int *at, int64_t a, int64_t b,
                                const char *name) {
  const struct slot *s = &slot[*at];
  int left = *at;
  if (s->first == a && s->count == b - a) {
    ++*at;
    return ATOLL_OK;
  }
  if (b - a == 1 || s->count > b - a)
    return atoll_fail(ATOLL_MISMATCH,
                      "tree sum on %s: rank %d gives the sum of leaves %" PRId64 "..%" PRId64
                      ", which is no node of the tree",
                      name, s->rank, s->first, s->first + s->count - 1);
  int64_t middle = a + split_at(b - a);
  ATOLL_TRY(plan_additions(l, slot, at, a, middle, name));
  int right = *at;
  ATOLL_TRY(plan_additions(l, slot, at, middle, b, name));
  l->addition[l->additions++] = (struct addition){left, right};
  return ATOLL_OK;
}

static atoll_err make_layout(const atoll_comm *c, const struct head *head, const struct leaf_range *node,
                             struct tree_layout **out) {
  struct tree_layout *l = calloc(1, sizeof *l);
  struct slot *slot = NULL;
  int64_t slots = 0;
  atoll_err err = ATOLL_OK;
  for (int r = 0; r < c->size; r++)
    slots += head[r].parts;
  if (l) {
    l->slots = (int)slots;
    l->slot_of = malloc((size_t)(slots + 1) * sizeof *l->slot_of);
    l->first_of = malloc(((size_t)c->size + 1) * sizeof *l->first_of);
    l->addition = malloc((size_t)(slots + 1) * sizeof *l->addition);
    slot = malloc((size_t)(slots + 1) * sizeof *slot);
  }
  if (!slot || !l->slot_of || !l->first_of || !l->addition) {
    err = atoll_fail(ATOLL_NOMEM, "tree sum on %s: layout of %" PRId64 " parts", c->name, slots);
    goto fail;
  }
  int n = 0, at = 0;
  for (int r = 0; r < c->size; r++) {
    l->first_of[r] = n;
    for (int p = 0; p < head[r].parts; p++, n++)
      slot[n] = (struct slot){node[n].first, node[n].count, r, p};
  }
  l->first_of[c->size] = n;
  qsort(slot, (size_t)n, sizeof *slot, by_leaf);
  ATOLL_TRY_GOTO(err, fail, check_cover(slot, n, head[0].leaves, c->name));
  ATOLL_TRY_GOTO(err, fail, plan_additions(l, slot, &at, 0, head[0].leaves, c->name));
  for (int i = 0; i < n; i++)
    l->slot_of[l->first_of[slot[i].rank] + slot[i].part] = i;
  free(slot);
  *out = l;
  return ATOLL_OK;
fail:
  free(slot);
  tree_layout_destroy(l);
  return err;
}

/* c->layout becomes the layout of this call, or all ranks fail alike. */
static atoll_err agree_layout(struct request *q) {
  atoll_comm *c = q->comm;
  struct head mine = {
      .failed = q->failed, .parts = q->parts, .leaves = q->leaves, .count = q->count, .piece = q->piece};
  atoll_digest list = atoll_digest_bytes(q->node, (size_t)q->parts * sizeof *q->node);
  mine.lo = list.lo;
  mine.hi = list.hi;
  struct head *head = malloc((size_t)c->size * sizeof *head);
  int *counts = malloc(2 * (size_t)c->size * sizeof *counts);
  struct leaf_range *node = NULL;
  struct tree_layout *made = NULL;
  MPI_Request request;
  atoll_err err = ATOLL_OK;
  if (!head || !counts) { /* nothing can be said without them, and the others wait */
    free(head);
    free(counts);
    atoll_fail(ATOLL_NOMEM, "tree sum on %s: %d ranks", c->name, c->size);
    atoll_abort(c->watch, ATOLL_NOMEM);
  }
  int rc = MPI_Iallgather(&mine, (int)sizeof mine, MPI_BYTE, head, (int)sizeof mine, MPI_BYTE, c->queued, &request);
  ATOLL_TRY_GOTO(err, out, mpi_finish(rc, &request, "tree sum"));
  int64_t slots = 0;
  for (int r = 0; r < c->size; r++) {
    if (head[r].failed) {
      atoll_err_set_message(q->message);
      err = atoll_agree(c->queued, q->failed);
      goto out;
    }
    slots += head[r].parts;
  }
  for (int r = 1; r < c->size && !err; r++)
    if (head[r].leaves != head[0].leaves || head[r].count != head[0].count || head[r].piece != head[0].piece)
      err = atoll_fail(ATOLL_MISMATCH,
                       "tree sum on %s: rank 0 sums %" PRId64 " leaves of %" PRId64 " elements in pieces of %" PRId64
                       ", rank %d %" PRId64 " of %" PRId64 " in %" PRId64,
                       c->name, head[0].leaves, head[0].count, head[0].piece, r, head[r].leaves, head[r].count,
                       head[r].piece);
  if (!err && slots > 1 << 24)
    err = atoll_fail(ATOLL_USAGE, "tree sum on %s: %" PRId64 " parts", c->name, slots);
  if (err)
    goto out;
  /* Layouts do not depend on the number of elements. */
  for (int r = 0; r < c->size; r++)
    head[r].count = head[r].piece = 0;
  atoll_digest key = atoll_digest_bytes(head, (size_t)c->size * sizeof *head);
  if (c->layout && atoll_digest_equal(key, c->layout->key))
    goto out;
  node = malloc((size_t)(slots + 1) * sizeof *node);
  if (!node)
    err = atoll_fail(ATOLL_NOMEM, "tree sum on %s: %" PRId64 " parts", c->name, slots);
  ATOLL_TRY_GOTO(err, out, atoll_agree(c->queued, err));
  for (int r = 0, at = 0; r < c->size; r++) {
    counts[r] = 2 * (int)head[r].parts;
    counts[c->size + r] = at;
    at += counts[r];
  }
  rc = MPI_Iallgatherv(q->node, 2 * q->parts, MPI_INT64_T, node, counts, counts + c->size, MPI_INT64_T, c->queued,
                       &request);
  ATOLL_TRY_GOTO(err, out, mpi_finish(rc, &request, "tree sum"));
  ATOLL_TRY_GOTO(err, out, atoll_agree(c->queued, make_layout(c, head, node, &made)));
  made->key = key;
  tree_layout_destroy(c->layout);
  c->layout = made;
  made = NULL;
out:
  tree_layout_destroy(made);
  free(node);
  free(head);
  free(counts);
  return err;
}

/* --- the sum ------------------------------------------------------------------------------------------------------ */

static void add(float *restrict to, const float *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    to[i] += from[i];
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The part of a piece of n elements that rank r sums. */
static void slice(int64_t n, int size, int r, int64_t *first, int64_t *count) {
  int64_t width = n / size + (n % size > 0);
  *first = least(r * width, n);
  *count = least(width, n - *first);
}

static atoll_err sum_pieces(struct request *q) {
  atoll_comm *c = q->comm;
  const struct tree_layout *l = c->layout;
  int64_t piece = least(least(q->piece, comm_limit_bytes() / (int64_t)sizeof(float)), q->count);
  int64_t stride = piece / c->size + (piece % c->size > 0);
  int tag = c->tag_top, most = l->slots + q->parts * c->size, pending_gather = 0;
  MPI_Request *request = malloc(((size_t)most + 1) * sizeof *request), gather = MPI_REQUEST_NULL;
  int *counts = malloc(4 * (size_t)c->size * sizeof *counts); /* two sets: one may still be in use */
  if (!request || !counts) {
    free(request);
    free(counts);
    atoll_fail(ATOLL_NOMEM, "tree sum on %s: %d requests", c->name, most);
    atoll_abort(c->watch, ATOLL_NOMEM);
  }
  atoll_err err = ATOLL_OK;
  for (int64_t at = 0, turn = 0; at < q->count && !err; at += piece, turn++) {
    int64_t n = least(piece, q->count - at), my_first, my_count, first, count;
    int requests = 0, rc = MPI_SUCCESS;
    slice(n, c->size, c->rank, &my_first, &my_count);
    for (int r = 0; r < c->size && my_count; r++) {
      if (r == c->rank)
        continue;
      for (int i = l->first_of[r]; i < l->first_of[r + 1] && rc == MPI_SUCCESS; i++)
        rc = MPI_Irecv(q->work + l->slot_of[i] * stride, (int)my_count, MPI_FLOAT, r, tag, c->queued,
                       &request[requests++]);
    }
    for (int step = 1; step < c->size && q->parts; step++) { /* each rank begins with its neighbour */
      int r = (c->rank + step) % c->size;
      slice(n, c->size, r, &first, &count);
      for (int p = 0; p < q->parts && count && rc == MPI_SUCCESS; p++)
        rc = MPI_Isend(q->part[p] + at + first, (int)count, MPI_FLOAT, r, tag, c->queued, &request[requests++]);
    }
    for (int p = 0; p < q->parts; p++)
      memcpy(q->work + l->slot_of[l->first_of[c->rank] + p] * stride, q->part[p] + at + my_first,
             (size_t)my_count * sizeof(float));
    err = mpi_check(rc, "tree sum");
    if (!err)
      err = mpi_finish_all(requests, request, "tree sum");
    if (err)
      break;
    for (int i = 0; i < l->additions; i++)
      add(q->work + l->addition[i].to * stride, q->work + l->addition[i].from * stride, my_count);
    if (pending_gather)
      ATOLL_TRY_GOTO(err, out, mpi_finish_all(1, &gather, "tree sum"));
    /* Everything of this piece has left parts[0], so out may take its place. */
    memcpy(q->out + at + my_first, q->work, (size_t)my_count * sizeof(float));
    int *set = counts + (turn % 2) * 2 * c->size;
    for (int r = 0; r < c->size; r++) {
      slice(n, c->size, r, &first, &count);
      set[r] = (int)count;
      set[c->size + r] = (int)first;
    }
    rc = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, q->out + at, set, set + c->size, MPI_FLOAT, c->queued, &gather);
    err = mpi_check(rc, "tree sum");
    pending_gather = 1;
  }
  if (!err && pending_gather)
    err = mpi_finish_all(1, &gather, "tree sum");
out:
  free(request);
  free(counts);
  return err;
}

static atoll_err request_start(pending *p) {
  struct request *q = (struct request *)p;
  ATOLL_TRY(agree_layout(q));
  return sum_pieces(q);
}

static int request_test(pending *p, atoll_err *err) {
  (void)p, (void)err;
  return 1; /* all was done by start */
}

static void request_destroy(pending *p) {
  struct request *q = (struct request *)p;
  free(q->node);
  free(q->part);
  free(q);
}

atoll_err atoll_comm_tree_sum(atoll_comm *c, atoll_queue *queue, int64_t leaves, int parts, const int64_t *first_leaf,
                              const int64_t *leaf_count, float *const *part, int64_t count, float *out, float *work,
                              int64_t piece) {
  if (!queue || !queue_takes_pending(queue))
    return atoll_fail(queue ? ATOLL_UNSUPPORTED : ATOLL_USAGE, "tree sum on %s: %s", c->name,
                      queue ? "mpi cannot reach the memory of this device" : "no queue");
  struct request *q = calloc(1, sizeof *q);
  atoll_err failed = ATOLL_OK;
  if (leaves < 1 || parts < 0 || count < 0 || piece < 1) {
    failed = atoll_fail(ATOLL_USAGE,
                        "tree sum on %s: %" PRId64 " leaves, %d parts, %" PRId64 " elements, pieces of %" PRId64,
                        c->name, leaves, parts, count, piece);
    parts = 0;
  }
  if (q) {
    q->node = malloc(((size_t)parts + 1) * sizeof *q->node);
    q->part = malloc(((size_t)parts + 1) * sizeof *q->part);
  }
  if (!q || !q->node || !q->part) { /* the others wait for this rank's word */
    atoll_fail(ATOLL_NOMEM, "tree sum on %s: %d parts", c->name, parts);
    atoll_abort(c->watch, ATOLL_NOMEM);
  }
  pending_init(&q->base);
  q->base.start = request_start;
  q->base.test = request_test;
  q->base.destroy = request_destroy;
  q->comm = c;
  q->leaves = leaves;
  q->count = count;
  q->piece = piece;
  q->parts = parts;
  q->out = out;
  q->work = work;
  for (int p = 0; p < parts; p++) {
    q->node[p] = (struct leaf_range){first_leaf[p], leaf_count[p]};
    q->part[p] = part[p];
  }
  q->failed = failed;
  snprintf(q->message, sizeof q->message, "%s", failed ? atoll_err_message() : "");
  atoll_err err = queue_post(queue, &q->base, NULL);
  pending_drop(&q->base);
  return err;
}

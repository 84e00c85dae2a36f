/* Programs on several ranks: every rank runs the same program over its own part of a dimension. What is needed of
 * others is a function that all ranks call, in the same order if their schedules are the same, which is compared before
 * a program's first run: sums in other orders would be of wrong things, or never end. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "graph.h"
#include "tree.h"

struct on_the_way {
  struct on_the_way *next;
  const void *data;
  MPI_Request request;
};

struct reduction {
  const atoll_comm *comm;
  MPI_Op op;
  struct on_the_way *sent;
};

static int can_reduce(atoll_dtype t) { return t == ATOLL_F32 || t == ATOLL_F64 || t == ATOLL_I32 || t == ATOLL_I64; }

/* In place, since an operand may be a copy that the next statement overwrites. */
static atoll_err send(struct reduction *r, const atoll_rt_view *in, const atoll_rt_view *out) {
  struct on_the_way *s = malloc(sizeof *s);
  int64_t count = 1;
  if (!s)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  for (int k = 0; k < in->ndim; k++)
    count *= in->shape[k];
  memcpy(out->data, in->data, (size_t)count * atoll_dtype_bytes(in->dtype));
  if (MPI_Iallreduce(MPI_IN_PLACE, out->data, (int)count, atoll_comm_mpi_type(in->dtype), r->op,
                     atoll_comm_mpi(r->comm), &s->request) != MPI_SUCCESS) {
    free(s);
    return atoll_fail(ATOLL_PEER_LOST, "recurrent program: a sum over ranks failed");
  }
  s->data = out->data;
  s->next = r->sent;
  r->sent = s;
  return ATOLL_OK;
}

static atoll_err receive(struct reduction *r, const void *data) {
  struct on_the_way **at = &r->sent, *s;
  while (*at && (*at)->data != data)
    at = &(*at)->next;
  if (!(s = *at))
    return atoll_fail(ATOLL_INTERNAL, "recurrent program: a sum over ranks is waited for that was not sent");
  *at = s->next;
  int code = MPI_Wait(&s->request, MPI_STATUS_IGNORE);
  free(s);
  return code == MPI_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_PEER_LOST, "recurrent program: a sum over ranks failed");
}

/* As the interpreter calls it. The same collective as that of compiled programs: one rank may have no compiler. */
static atoll_err over_ranks(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)point;
  ATOLL_TRY(send(user, in, out));
  return receive(user, out->data);
}

int rt_is_exchange(const atoll_rt *x) { return x->op == RT_CALL && x->fn == over_ranks; }

int rt_exchange_number(const atoll_rt *x, const atoll_comm *comm) {
  const struct reduction *r = rt_is_exchange(x) ? x->user : NULL;
  return !r || r->comm != comm ? 0 : r->op == MPI_SUM ? 1 : 2;
}

int rt_exchange_restore(atoll_rt *x, int number, const atoll_comm *comm) {
  struct reduction *r = comm && (number == 1 || number == 2) ? rt_alloc(x->g, sizeof *r) : NULL;
  if (!r)
    return 0;
  *r = (struct reduction){comm, number == 1 ? MPI_SUM : MPI_MAX, NULL};
  x->fn = over_ranks;
  x->user = r;
  return 1;
}

atoll_err rt_exchange_send(const atoll_rt *x, const atoll_rt_view *in, const atoll_rt_view *out) {
  return send(x->user, in, out);
}

atoll_err rt_exchange_receive(const atoll_rt *x, const void *data) { return receive(x->user, data); }

int rt_exchange_abandon(const atoll_rt *x) {
  struct reduction *r = rt_is_exchange(x) ? x->user : NULL;
  int open = 0;
  while (r && r->sent) {
    struct on_the_way *s = r->sent;
    int done = 0;
    open |= MPI_Test(&s->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done;
    r->sent = s->next;
    free(s);
  }
  return open;
}

/* ---- orders of ranks ---- */

enum { COMPARED = 1 << 16 }; /* sends: schedules are loops, whose orders differ early if they do */

typedef struct order {
  const rt_graph *g;
  const atoll_comm *comm;
  rt_env env;
  atoll_digester *digest;
  int64_t sends;
} order;

static int has_sends(const order *o, const rt_tree *t) {
  if (t->kind == RT_STATEMENT)
    return t->what == RT_DO_SEND && rt_exchange_number(o->g->node[t->node], o->comm);
  for (int k = 0; k < t->children; k++)
    if (has_sends(o, t->child[k]))
      return 1;
  return 0;
}

static atoll_err add_node(order *o, const atoll_rt *x) {
  int64_t count = 1, value;
  atoll_digester_add_int(o->digest, rt_exchange_number(x, o->comm));
  atoll_digester_add_int(o->digest, x->dtype);
  for (int k = 0; k < x->axes; k++, count *= value)
    ATOLL_TRY(rt_eval(o->g, x->shape[k], &o->env, &value));
  atoll_digester_add_int(o->digest, count);
  return ATOLL_OK;
}

static atoll_err add_send(order *o, const rt_tree *t) {
  const atoll_rt *x = o->g->node[t->node];
  int64_t value;
  ATOLL_TRY(add_node(o, x));
  for (int d = 0; d < o->g->dims; d++)
    if (rt_has(x, d)) {
      ATOLL_TRY(rt_eval(o->g, t->point[d], &o->env, &value));
      atoll_digester_add_int(o->digest, value);
    }
  o->sends++;
  return ATOLL_OK;
}

/* Sends in the order in which a run comes to them; what has none is passed over. */
static atoll_err follow(order *o, const rt_tree *t) {
  int64_t holds;
  if (o->sends >= COMPARED || !has_sends(o, t))
    return ATOLL_OK;
  if (t->kind == RT_STATEMENT)
    return add_send(o, t);
  if (t->kind == RT_SEQ) {
    for (int k = 0; k < t->children; k++)
      ATOLL_TRY(follow(o, t->child[k]));
    return ATOLL_OK;
  }
  if (t->kind == RT_IF) {
    ATOLL_TRY(rt_eval(o->g, t->cond, &o->env, &holds));
    return holds || t->children > 1 ? follow(o, t->child[holds ? 0 : 1]) : ATOLL_OK;
  }
  int64_t *v = &o->env.loop[t->depth], now;
  ATOLL_TRY(rt_eval(o->g, t->first, &o->env, &now));
  for (; o->sends < COMPARED; now += t->step) {
    *v = now;
    ATOLL_TRY(rt_eval(o->g, t->cond, &o->env, &holds));
    if (!holds)
      return ATOLL_OK;
    ATOLL_TRY(follow(o, t->child[0]));
  }
  return ATOLL_OK;
}

/* What there is to be sent, and for how many points. */
static atoll_err add_nodes(order *o) {
  for (int i = 0; i < o->g->nodes; i++) {
    const atoll_rt *x = o->g->node[i];
    if (!x || !rt_exchange_number(x, o->comm))
      continue;
    ATOLL_TRY(add_node(o, x));
    for (int d = 0; d < o->g->dims; d++)
      if (rt_has(x, d))
        atoll_digester_add_int(o->digest, o->env.bound[d]);
  }
  return ATOLL_OK;
}

/* err: of what was before, which then becomes that of all. */
static atoll_err compare_orders(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS],
                                const atoll_comm *comm, atoll_err err) {
  order o = {.g = g, .comm = comm};
  atoll_digest mine = {0, 0};
  memcpy(o.env.bound, bound, sizeof o.env.bound);
  if (err == ATOLL_OK)
    err = atoll_digester_create(&o.digest);
  if (err == ATOLL_OK)
    err = tree ? follow(&o, tree) : add_nodes(&o);
  if (err == ATOLL_OK)
    mine = atoll_digester_value(o.digest);
  atoll_digester_destroy(&o.digest);
  ATOLL_TRY_ALL(atoll_comm_mpi(comm), err);
  return atoll_agree_digest(atoll_comm_mpi(comm), "recurrent program: order of sums over ranks", mine);
}

/* That of node i, if it has others than this rank and no node before sums over it; or NULL. */
static const atoll_comm *first_over(const rt_graph *g, int i) {
  if (!g->node[i] || !rt_is_exchange(g->node[i]))
    return NULL;
  const atoll_comm *comm = ((const struct reduction *)g->node[i]->user)->comm;
  int seen = atoll_comm_size(comm) == 1;
  for (int k = 0; k < i && !seen; k++)
    seen = g->node[k] && rt_exchange_number(g->node[k], comm) != 0;
  return seen ? NULL : comm;
}

/* Here and below: one that failed still takes part over its other communicators, whose ranks wait for it. */
atoll_err rt_exchanges_agree(const rt_graph *g, const rt_tree *tree, const int64_t bound[RT_DIMS]) {
  atoll_err err = ATOLL_OK;
  for (int i = 0; i < g->nodes; i++) {
    const atoll_comm *comm = first_over(g, i);
    if (comm)
      err = compare_orders(g, tree, bound, comm, err);
  }
  return err;
}

atoll_err rt_exchanges_begin(const rt_graph *g, atoll_err mine) {
  for (int i = 0; i < g->nodes; i++) {
    const atoll_comm *comm = first_over(g, i);
    if (comm)
      mine = atoll_agree(atoll_comm_mpi(comm), mine);
  }
  return mine;
}

/* ---- what programs say ---- */

/* Elements of x; -1: not fixed, which is refused. */
static int64_t fixed_count(const atoll_rt *x, const char *name) {
  int64_t count = 1, extent;
  char label[96];
  for (int k = 0; k < x->axes; k++) {
    if (!rt_is_const(x->shape[k], &extent)) {
      (void)rt_refuse(x->g, ATOLL_USAGE, "%s of %s: axis %d has no fixed extent", name,
                      rt_label(x, label, sizeof label), k);
      return -1;
    }
    count *= extent;
  }
  return count;
}

static atoll_rt *reduce(atoll_rt *x, const atoll_comm *comm, const char *name, MPI_Op op) {
  char label[96];
  int64_t count = x ? fixed_count(x, name) : -1;
  if (count < 0)
    return NULL;
  if (count > INT32_MAX || !can_reduce(x->dtype))
    return rt_refuse(x->g, ATOLL_USAGE, "%s of %s: %lld elements of type %s", name, rt_label(x, label, sizeof label),
                     (long long)count, atoll_dtype_name(x->dtype));
  struct reduction *r = rt_alloc(x->g, sizeof *r);
  atoll_rt *y = r ? rt_node(x->g, RT_CALL, x->dtype) : NULL;
  if (!y || !rt_connect(y, x))
    return NULL;
  *r = (struct reduction){comm, op, NULL};
  rt_set_shape(y, x->axes, x->shape);
  y->name = rt_copy_text(x->g, name);
  y->fn = over_ranks;
  y->user = r;
  return y;
}

atoll_rt *atoll_rt_rank_sum(atoll_rt *x, const atoll_comm *comm) { return reduce(x, comm, "rank_sum", MPI_SUM); }
atoll_rt *atoll_rt_rank_max(atoll_rt *x, const atoll_comm *comm) { return reduce(x, comm, "rank_max", MPI_MAX); }

void atoll_rt_rank_sums(int n, atoll_rt *const *x, const atoll_comm *comm, atoll_rt **sum) {
  atoll_rt *all = NULL;
  int64_t at = 0;
  for (int k = 0; k < n; k++) {
    int64_t count = x[k] ? fixed_count(x[k], "rank_sums") : -1;
    atoll_rt *flat = count < 0 ? NULL : atoll_rt_reshape(x[k], ATOLL_SHAPE(count));
    all = k ? atoll_rt_concat(all, flat, 0) : flat;
  }
  all = atoll_rt_rank_sum(all, comm);
  for (int k = 0; k < n; k++) {
    int64_t count = all ? fixed_count(x[k], "rank_sums") : 0;
    atoll_rt *part = all ? atoll_rt_slice(all, 0, at, count) : NULL;
    sum[k] = part ? rt_reshape(part, x[k]->axes, x[k]->shape) : NULL;
    at += count;
  }
}

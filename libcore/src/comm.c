/* Typed operations on queues over MPI.
 *
 *  An operation becomes a `pending`: it is posted, non-blocking, when the queue reaches it, and is complete when all
 * its pieces are. Who needs the result polls it; the watch polls it too, so that it proceeds while everybody computes.
 */
#include "comm_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/bf16.h"

enum kind { SEND, RECV, ALLREDUCE, BROADCAST, ALLGATHER };

struct operation {
  pending base; /* first: a pending is freed through it */
  enum kind kind;
  atoll_comm *comm;
  const void *send;
  void *recv;
  int64_t count;
  atoll_dtype type;
  atoll_comm_op op;
  int peer, tag;
  int pieces;
  MPI_Request *request;
  MPI_Status *status; /* RECV only */
  char what[96];
};

/* --- element types ------------------------------------------------------------------------------------------------ */

MPI_Datatype atoll_comm_mpi_type(atoll_dtype t) {
  switch (t) {
  case ATOLL_F32:
    return MPI_FLOAT;
  case ATOLL_F64:
    return MPI_DOUBLE;
  case ATOLL_I32:
    return MPI_INT32_T;
  case ATOLL_I64:
    return MPI_INT64_T;
  case ATOLL_U8:
    return MPI_UINT8_T;
  default: /* U16, and BF16, which MPI does not know */
    return MPI_UINT16_T;
  }
}

#define BF16_OP(name, expr)                                                                                            \
  static void name(void *in, void *inout, int *n, MPI_Datatype *type) {                                                \
    uint16_t *x = in, *y = inout;                                                                                      \
    (void)type;                                                                                                        \
    for (int i = 0; i < *n; i++) {                                                                                     \
      float a = atoll_bf16_float(x[i]), b = atoll_bf16_float(y[i]);                                                    \
      y[i] = atoll_bf16_of(expr);                                                                                      \
    }                                                                                                                  \
  }
BF16_OP(bf16_sum, a + b)
BF16_OP(bf16_max, a > b ? a : b)
BF16_OP(bf16_min, a < b ? a : b)

static pthread_once_t ops_once = PTHREAD_ONCE_INIT;
static MPI_Op bf16_ops[3];
static int ops_rc;

static void make_ops(void) {
  MPI_User_function *f[3] = {bf16_sum, bf16_max, bf16_min};
  for (int i = 0; i < 3 && ops_rc == MPI_SUCCESS; i++)
    ops_rc = MPI_Op_create(f[i], 1, &bf16_ops[i]);
}

static MPI_Op mpi_op(atoll_dtype t, atoll_comm_op op) {
  if (t == ATOLL_BF16)
    return bf16_ops[op];
  return op == ATOLL_SUM ? MPI_SUM : op == ATOLL_MAX ? MPI_MAX : MPI_MIN;
}

/* --- communicators ------------------------------------------------------------------------------------------------ */

static void comm_free(atoll_comm *c) {
  if (!c)
    return;
  if (c->queued != MPI_COMM_NULL)
    MPI_Comm_free(&c->queued);
  if (c->mpi != MPI_COMM_NULL)
    MPI_Comm_free(&c->mpi);
  tree_layout_destroy(c->layout);
  free(c);
}

static atoll_err comm_alloc(const char *name, atoll_watch *watch, atoll_comm **out) {
  atoll_comm *c = calloc(1, sizeof *c);
  if (!c)
    return atoll_fail(ATOLL_NOMEM, "communicator %s: %zu bytes", name, sizeof *c);
  c->mpi = c->queued = MPI_COMM_NULL;
  c->watch = watch;
  snprintf(c->name, sizeof c->name, "%s", name);
  *out = c;
  return ATOLL_OK;
}

/* c->mpi is there. Collective on it. */
static atoll_err comm_complete(atoll_comm *c) {
  void *top;
  int have = 0;
  ATOLL_TRY(mpi_check(MPI_Comm_set_errhandler(c->mpi, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  ATOLL_TRY(mpi_check(MPI_Comm_dup(c->mpi, &c->queued), "MPI_Comm_dup"));
  ATOLL_TRY(mpi_check(MPI_Comm_rank(c->mpi, &c->rank), "MPI_Comm_rank"));
  ATOLL_TRY(mpi_check(MPI_Comm_size(c->mpi, &c->size), "MPI_Comm_size"));
  ATOLL_TRY(mpi_check(MPI_Comm_get_attr(c->mpi, MPI_TAG_UB, &top, &have), "MPI_Comm_get_attr"));
  c->tag_top = have ? *(int *)top : 32767;
  MPI_Comm_set_name(c->mpi, c->name);
  pthread_once(&ops_once, make_ops);
  return mpi_check(ops_rc, "MPI_Op_create");
}

atoll_err atoll_comm_create(MPI_Comm mpi, const char *name, atoll_watch *watch, atoll_comm **out) {
  atoll_comm *c = NULL;
  atoll_err err = atoll_agree(mpi, comm_alloc(name, watch, &c));
  if (!err)
    err = atoll_agree(mpi, mpi_check(MPI_Comm_dup(mpi, &c->mpi), "MPI_Comm_dup"));
  if (!err)
    err = atoll_agree(mpi, comm_complete(c));
  if (err) {
    comm_free(c);
    return err;
  }
  *out = c;
  return ATOLL_OK;
}

static atoll_err split(atoll_comm *parent, int node, int colour, int key, const char *name, atoll_comm **out) {
  atoll_comm *c = NULL;
  int part = node || colour >= 0;
  atoll_err err = atoll_agree(parent->mpi, part ? comm_alloc(name, parent->watch, &c) : ATOLL_OK);
  if (!err) {
    MPI_Comm made = MPI_COMM_NULL;
    int rc = node ? MPI_Comm_split_type(parent->mpi, MPI_COMM_TYPE_SHARED, parent->rank, MPI_INFO_NULL, &made)
                  : MPI_Comm_split(parent->mpi, part ? colour : MPI_UNDEFINED, key, &made);
    if (c)
      c->mpi = made;
    err = atoll_agree(parent->mpi, mpi_check(rc, "MPI_Comm_split"));
  }
  if (!err)
    err = atoll_agree(parent->mpi, c ? comm_complete(c) : ATOLL_OK);
  if (err) {
    comm_free(c);
    return err;
  }
  *out = c;
  return ATOLL_OK;
}

atoll_err atoll_comm_split(atoll_comm *parent, int colour, int key, const char *name, atoll_comm **out) {
  return split(parent, 0, colour, key, name, out);
}

atoll_err atoll_comm_split_node(atoll_comm *parent, const char *name, atoll_comm **out) {
  return split(parent, 1, 0, 0, name, out);
}

void atoll_comm_destroy(atoll_comm **comm) {
  comm_free(*comm);
  *comm = NULL;
}

int atoll_comm_rank(const atoll_comm *comm) { return comm->rank; }
int atoll_comm_size(const atoll_comm *comm) { return comm->size; }
const char *atoll_comm_name(const atoll_comm *comm) { return comm->name; }
MPI_Comm atoll_comm_mpi(const atoll_comm *comm) { return comm->mpi; }
const char *atoll_comm_transport(const atoll_comm *comm) {
  (void)comm;
  return "mpi";
}

atoll_err atoll_comm_barrier(atoll_comm *c) {
  MPI_Request request;
  int rc = MPI_Ibarrier(c->mpi, &request);
  return mpi_finish(rc, &request, "MPI_Ibarrier");
}

/* --- operations --------------------------------------------------------------------------------------------------- */

/* One block of `n` elements per rank, the blocks `stride` elements apart. */
static int allgather_piece(struct operation *o, const char *send, char *recv, int n, MPI_Request *request) {
  MPI_Datatype type = atoll_comm_mpi_type(o->type), run, block;
  int rc = MPI_Type_contiguous(n, type, &run);
  if (rc != MPI_SUCCESS)
    return rc;
  rc = MPI_Type_create_resized(run, 0, (MPI_Aint)(o->count * (int64_t)atoll_dtype_bytes(o->type)), &block);
  MPI_Type_free(&run);
  if (rc != MPI_SUCCESS)
    return rc;
  rc = MPI_Type_commit(&block);
  if (rc == MPI_SUCCESS && o->send == (char *)o->recv + o->comm->rank * o->count * (int64_t)atoll_dtype_bytes(o->type))
    rc = MPI_Iallgather(MPI_IN_PLACE, 0, type, recv, 1, block, o->comm->queued, request);
  else if (rc == MPI_SUCCESS)
    rc = MPI_Iallgather(send, n, type, recv, 1, block, o->comm->queued, request);
  MPI_Type_free(&block); /* the operation keeps what it needs */
  return rc;
}

static atoll_err operation_start(pending *p) {
  struct operation *o = (struct operation *)p;
  MPI_Comm comm = o->comm->queued;
  MPI_Datatype type = atoll_comm_mpi_type(o->type);
  int64_t bytes = (int64_t)atoll_dtype_bytes(o->type), limit = comm_limit_bytes() / bytes;
  const char *send = o->send;
  char *recv = o->recv;
  for (int i = 0; i < o->pieces; i++) {
    int64_t at = i * limit, left = o->count - at;
    int n = (int)(left < limit ? left : limit), rc = MPI_SUCCESS;
    MPI_Request *r = &o->request[i];
    switch (o->kind) {
    case SEND:
      rc = MPI_Isend(send + at * bytes, n, type, o->peer, o->tag, comm, r);
      break;
    case RECV:
      rc = MPI_Irecv(recv + at * bytes, n, type, o->peer, o->tag, comm, r);
      break;
    case ALLREDUCE:
      rc = MPI_Iallreduce(send == recv ? MPI_IN_PLACE : send + at * bytes, recv + at * bytes, n, type,
                          mpi_op(o->type, o->op), comm, r);
      break;
    case BROADCAST:
      rc = MPI_Ibcast(recv + at * bytes, n, type, o->peer, comm, r);
      break;
    case ALLGATHER:
      rc = allgather_piece(o, send + at * bytes, recv + at * bytes, n, r);
      break;
    }
    ATOLL_TRY(mpi_check(rc, o->what));
  }
  return ATOLL_OK;
}

static int operation_test(pending *p, atoll_err *err) {
  struct operation *o = (struct operation *)p;
  int done = 0, rc = MPI_Testall(o->pieces, o->request, &done, o->status ? o->status : MPI_STATUSES_IGNORE);
  if (rc != MPI_SUCCESS) {
    if (rc == MPI_ERR_IN_STATUS && o->status)
      for (int i = 0; i < o->pieces; i++)
        if (o->status[i].MPI_ERROR != MPI_SUCCESS && o->status[i].MPI_ERROR != MPI_ERR_PENDING)
          rc = o->status[i].MPI_ERROR;
    *err = mpi_check(rc, o->what);
    return 1;
  }
  if (!done)
    return 0;
  if (o->kind == RECV) {
    int64_t got = 0;
    for (int i = 0; i < o->pieces; i++) {
      int n = 0;
      MPI_Get_count(&o->status[i], atoll_comm_mpi_type(o->type), &n);
      got += n;
    }
    if (got != o->count)
      *err = atoll_fail(ATOLL_MISMATCH, "%s: %" PRId64 " elements of %s expected, %" PRId64 " came", o->what, o->count,
                        atoll_dtype_name(o->type), got);
  }
  return 1;
}

static void operation_destroy(pending *p) {
  struct operation *o = (struct operation *)p;
  free(o->request);
  free(o->status);
  free(o);
}

/* Posts *args. The calls check what they were given; a count that differs between ranks cannot be seen here. */
static atoll_err operate(const struct operation *args, atoll_queue *queue, atoll_event *done, const char *verb) {
  atoll_comm *c = args->comm;
  int point = args->kind == SEND || args->kind == RECV, rooted = args->kind == BROADCAST;
  if (!queue || !queue_takes_pending(queue))
    return atoll_fail(queue ? ATOLL_UNSUPPORTED : ATOLL_USAGE, "%s on %s: %s", verb, c->name,
                      queue ? "mpi cannot reach the memory of this device" : "no queue");
  if (args->count < 0 || (int)args->type < 0 || args->type >= ATOLL_DTYPES)
    return atoll_fail(ATOLL_USAGE, "%s on %s: %" PRId64 " elements of type %d", verb, c->name, args->count,
                      (int)args->type);
  if ((point || rooted) && (args->peer < 0 || args->peer >= c->size))
    return atoll_fail(ATOLL_USAGE, "%s on %s: rank %d of %d", verb, c->name, args->peer, c->size);
  if (point && (args->tag < 0 || args->tag >= c->tag_top))
    return atoll_fail(ATOLL_USAGE, "%s on %s: tag %d, expected 0..%d", verb, c->name, args->tag, c->tag_top - 1);
  int64_t limit = comm_limit_bytes() / (int64_t)atoll_dtype_bytes(args->type);
  int64_t pieces = args->count / limit + (args->count % limit > 0);
  if (!pieces && point) /* an empty message still orders */
    pieces = 1;
  if (pieces > 1 << 20)
    return atoll_fail(ATOLL_USAGE, "%s on %s: %" PRId64 " elements are too many", verb, c->name, args->count);
  struct operation *o = malloc(sizeof *o);
  MPI_Request *request = malloc(((size_t)pieces + 1) * sizeof *request);
  MPI_Status *status = args->kind == RECV ? malloc((size_t)pieces * sizeof *status) : NULL;
  if (!o || !request || (args->kind == RECV && !status)) {
    free(o);
    free(request);
    free(status);
    return atoll_fail(ATOLL_NOMEM, "%s on %s: no memory for %" PRId64 " requests", verb, c->name, pieces);
  }
  *o = *args;
  pending_init(&o->base);
  o->base.start = operation_start;
  o->base.test = operation_test;
  o->base.destroy = operation_destroy;
  o->pieces = (int)pieces;
  o->request = request;
  o->status = status;
  for (int64_t i = 0; i < pieces; i++)
    request[i] = MPI_REQUEST_NULL;
  if (point)
    snprintf(o->what, sizeof o->what, "%s %s %d tag %d on %s", verb, args->kind == SEND ? "to" : "from", args->peer,
             args->tag, c->name);
  else
    snprintf(o->what, sizeof o->what, "%s on %s", verb, c->name);
  atoll_err err = queue_post(queue, &o->base, done);
  if (!err)
    watch_add(c->watch, &o->base, o->what);
  pending_drop(&o->base);
  return err;
}

atoll_err atoll_comm_send(atoll_comm *c, atoll_queue *queue, const void *buf, int64_t count, atoll_dtype t, int peer,
                          int tag, atoll_event *done) {
  struct operation o = {.kind = SEND, .comm = c, .send = buf, .count = count, .type = t, .peer = peer, .tag = tag};
  return operate(&o, queue, done, "send");
}

atoll_err atoll_comm_recv(atoll_comm *c, atoll_queue *queue, void *buf, int64_t count, atoll_dtype t, int peer, int tag,
                          atoll_event *done) {
  struct operation o = {.kind = RECV, .comm = c, .recv = buf, .count = count, .type = t, .peer = peer, .tag = tag};
  return operate(&o, queue, done, "recv");
}

atoll_err atoll_comm_allreduce(atoll_comm *c, atoll_queue *queue, const void *send, void *recv, int64_t count,
                               atoll_dtype t, atoll_comm_op op, atoll_event *done) {
  if ((int)op < 0 || op > ATOLL_MIN)
    return atoll_fail(ATOLL_USAGE, "allreduce on %s: operation %d", c->name, (int)op);
  struct operation o = {.kind = ALLREDUCE, .comm = c, .send = send, .recv = recv, .count = count, .type = t, .op = op};
  return operate(&o, queue, done, "allreduce");
}

atoll_err atoll_comm_broadcast(atoll_comm *c, atoll_queue *queue, void *buf, int64_t count, atoll_dtype t, int root,
                               atoll_event *done) {
  struct operation o = {.kind = BROADCAST, .comm = c, .recv = buf, .count = count, .type = t, .peer = root};
  return operate(&o, queue, done, "broadcast");
}

atoll_err atoll_comm_allgather(atoll_comm *c, atoll_queue *queue, const void *send, void *recv, int64_t count,
                               atoll_dtype t, atoll_event *done) {
  struct operation o = {.kind = ALLGATHER, .comm = c, .send = send, .recv = recv, .count = count, .type = t};
  return operate(&o, queue, done, "allgather");
}

#include "tuner/half.h"

#include <string.h>

const char *const half_fixed_name[HALF_FIXED] = {
    "b",      "data",    "tensor",   "extra",       "layers",       "forward",     "backward",     "inside",
    "gather", "scatter", "reduce",   "edge_gather", "edge_scatter", "edge_reduce", "edge_forward", "edge_backward",
    "send",   "in_rate", "out_rate", "in_latency",  "out_latency",  "capacity"};
const char *const half_axis_name[HALF_AXES] = {"wre", "gre", "ore", "redone", "ow", "og", "oo", "oa"};

int64_t half_block_values(const half_shape *s) {
  return 4 * s->hidden * s->hidden + 2 * s->hidden * s->mlp + 4 * s->hidden;
}
int64_t half_pre_values(const half_shape *s) { return (s->vocab + s->seq) * s->hidden; }
int64_t half_post_values(const half_shape *s) { return (s->vocab + 2) * s->hidden; }

typedef struct builder {
  atoll_syms *pool;
  const half_shape *s;
  half_where where;
  const atoll_sym *fixed[HALF_FIXED], *axis[HALF_AXES];
} builder;

static const atoll_sym *integer(const builder *k, int64_t v) { return atoll_sym_int(k->pool, v); }
static const atoll_sym *real(const builder *k, double v) { return atoll_sym_real(k->pool, v); }
static const atoll_sym *add(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_add(k->pool, a, b);
}
static const atoll_sym *sub(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_sub(k->pool, a, b);
}
static const atoll_sym *mul(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_mul(k->pool, a, b);
}
static const atoll_sym *scale(const builder *k, int64_t c, const atoll_sym *a) { return mul(k, integer(k, c), a); }
static const atoll_sym *most(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_max(k->pool, a, b);
}
static const atoll_sym *when(const builder *k, const atoll_sym *c, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_select(k->pool, c, a, b);
}
static const atoll_sym *positive(const builder *k, const atoll_sym *a) {
  return atoll_sym_binary(k->pool, ATOLL_SYM_LT, integer(k, 0), a);
}
static const atoll_sym *either(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_binary(k->pool, ATOLL_SYM_OR, positive(k, a), positive(k, b));
}
static const atoll_sym *per(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_ceildiv(k->pool, a, b);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

typedef struct kinds { /* W, G, O of something */
  const atoll_sym *full[3], *part[3];
} kinds;

/* `each` bytes a value; vectors are few enough to be counted as cut over tensor ranks like the rest. */
static kinds states(const builder *k, int64_t values) {
  static const int64_t each[3] = {2, 2, 12};
  static const int flag[3] = {HALF_WRE, HALF_GRE, HALF_ORE}, off[3] = {HALF_OW, HALF_OG, HALF_OO};
  kinds out;
  for (int i = 0; i < 3; i++) {
    const atoll_sym *x = per(k, integer(k, values * each[i]), k->fixed[HALF_TENSOR]);
    const atoll_sym *dealt = when(k, positive(k, k->axis[flag[i]]), per(k, x, k->fixed[HALF_DATA]), x);
    out.full[i] = x;
    out.part[i] = per(k, mul(k, dealt, sub(k, integer(k, 8), k->axis[off[i]])), integer(k, 8));
  }
  return out;
}

static const atoll_sym *sum(const builder *k, const kinds *x) {
  return add(k, add(k, x->part[0], x->part[1]), x->part[2]);
}

typedef struct sizes {
  const atoll_sym *unit;                              /* b s h values of fp16 */
  const atoll_sym *scores;                            /* b a / T s^2 values */
  const atoll_sym *logits;                            /* b s v / T values */
  const atoll_sym *all, *input;                       /* A0, A1 */
  const atoll_sym *layer_forward[2], *layer_backward; /* most of one layer while it runs; [1]: to be done again */
  const atoll_sym *head_forward, *head_backward;
} sizes;

static sizes sizes_of(const builder *k) {
  const half_shape *s = k->s;
  sizes z;
  z.unit = scale(k, 2 * s->seq * s->hidden, k->fixed[HALF_B]);
  const atoll_sym *T = k->fixed[HALF_TENSOR], *none = integer(k, 0);
  z.scores = s->flash ? none : per(k, scale(k, 2 * s->heads * s->seq * s->seq, k->fixed[HALF_B]), T);
  z.logits = per(k, scale(k, 2 * s->seq * s->vocab, k->fixed[HALF_B]), T);
  const atoll_sym *mlp = per(k, scale(k, 2 * s->seq * s->mlp, k->fixed[HALF_B]), T);
  const atoll_sym *qkv = per(k, scale(k, 3, z.unit), T), *mixed = per(k, z.unit, T);
  z.input = z.unit;
  z.all = add(k, add(k, scale(k, 4, z.unit), add(k, qkv, mixed)), add(k, scale(k, 2, mlp), z.scores));
  /* Nothing is kept of a layer that will be done again: at most the probabilities with q, k, v, or the MLP's width. */
  z.layer_forward[0] = z.all;
  z.layer_forward[1] = most(k, add(k, add(k, scale(k, 2, z.unit), qkv), scale(k, 2, z.scores)),
                            add(k, scale(k, 2, z.unit), scale(k, 2, mlp)));
  /* The MLP's backward has all of it kept, and gradients of its width and its output. When attention's turn comes the
   * MLP's tensors are gone: probabilities, their gradient and that of the scores, beside q, k, v, what they came from,
   * their mixture, and two gradients of the stream. */
  z.layer_backward = most(k, add(k, z.all, add(k, z.unit, mlp)),
                          add(k, scale(k, 3, z.scores), add(k, scale(k, 3, z.unit), add(k, qkv, mixed))));
  /* Logits and their exponentials; backward turns these into gradients, beside that of the norm's output and of the
   * projection's weights before they are added. */
  z.head_forward = add(k, z.unit, scale(k, 2, z.logits));
  z.head_backward = add(k, add(k, z.head_forward, z.unit), per(k, integer(k, 2 * s->vocab * s->hidden), T));
  return z;
}

static const atoll_sym *stays(const builder *k, const atoll_sym *x) { /* of activations */
  return per(k, mul(k, x, sub(k, integer(k, 8), k->axis[HALF_OA])), integer(k, 8));
}

static void bytes_of(const builder *k, half_stage *out) {
  const atoll_sym *l = k->fixed[HALF_LAYERS], *c = k->axis[HALF_REDONE], *p = k->fixed[HALF_EXTRA];
  const atoll_sym *none = integer(k, 0), *one = integer(k, 1);
  kinds layer = states(k, half_block_values(k->s)), pre = states(k, half_pre_values(k->s)),
        post = states(k, half_post_values(k->s));
  sizes z = sizes_of(k);
  const atoll_sym *largest[2] = {layer.full[0], layer.full[1]}, *edges = none;
  for (int i = 0; i < 2; i++) {
    largest[i] = k->where.pre ? most(k, largest[i], pre.full[i]) : largest[i];
    largest[i] = k->where.post ? most(k, largest[i], post.full[i]) : largest[i];
  }
  edges = k->where.pre ? add(k, edges, sum(k, &pre)) : edges;
  edges = k->where.post ? add(k, edges, sum(k, &post)) : edges;
  const atoll_sym *buffers = when(k, either(k, k->axis[HALF_WRE], k->axis[HALF_OW]), scale(k, 2, largest[0]), none);
  buffers = add(k, buffers, when(k, either(k, k->axis[HALF_GRE], k->axis[HALF_OG]), scale(k, 2, largest[1]), none));
  const atoll_sym *turn =
      when(k, positive(k, k->axis[HALF_ORE]), per(k, layer.full[2], k->fixed[HALF_DATA]), layer.full[2]);
  const atoll_sym *common = add(k, add(k, buffers, edges), mul(k, l, add(k, layer.part[0], layer.part[1])));
  const atoll_sym *forward = add(k, common, add(k, turn, mul(k, sub(k, l, one), layer.part[2])));
  const atoll_sym *backward = add(k, common, mul(k, l, layer.part[2]));

  const atoll_sym *kept = sub(k, l, c), *all_redone = atoll_sym_binary(k->pool, ATOLL_SYM_LE, l, c);
  const atoll_sym *whole = add(k, mul(k, c, stays(k, z.input)), mul(k, kept, stays(k, z.all)));
  const atoll_sym *last = when(k, all_redone, stays(k, z.input), stays(k, z.all));
  const atoll_sym *earlier = mul(k, p, whole);
  const atoll_sym *others = add(k, earlier, sub(k, whole, last));
  /* The last layer's saved bytes are on their way to the host. */
  const atoll_sym *moving = when(k, all_redone, sub(k, z.input, stays(k, z.input)), sub(k, z.all, stays(k, z.all)));
  const atoll_sym *scores = z.scores, *boundary = mul(k, scale(k, 2, p), z.unit);
  const atoll_sym *first = when(k, all_redone, z.layer_forward[1], z.layer_forward[0]);
  const atoll_sym *f = add(k, others, first), *b = add(k, others, z.layer_backward);
  if (k->where.post) {
    f = most(k, f, add(k, add(k, earlier, whole), z.head_forward));
    b = most(k, b, add(k, add(k, earlier, whole), z.head_backward));
  }
  const atoll_sym *rest = add(k, moving, add(k, scores, boundary));
  out->peak_forward = add(k, add(k, forward, f), rest);
  out->peak_backward = add(k, add(k, backward, b), rest);
  if (k->where.pipelined)
    out->peak_backward = add(k, out->peak_backward, scale(k, 2, z.unit));
  out->peak = most(k, out->peak_forward, out->peak_backward);
}

/* What an allocator with size classes loses, as Mist estimates it. */
static void fragmentation_of(const builder *k, half_stage *out) {
  static const struct {
    int axis;
    double share;
  } term[] = {{HALF_OW, .025}, {HALF_OG, .025}, {HALF_OO, .03}, {HALF_OA, .04}, {HALF_WRE, .025}, {HALF_GRE, .025}};
  double h = (double)k->s->hidden / 2048 - 1, s = (double)k->s->seq / 2048 - 1;
  double base = 1 + .005 * (h > 0 ? h : 0) + .045 * (s > 0 ? s : 0);
  base += k->where.pipelined ? .025 : 0;
  base += k->where.middle ? .01 : 0;
  const atoll_sym *phi = real(k, base);
  for (size_t i = 0; i < sizeof term / sizeof *term; i++)
    phi = add(k, phi, when(k, positive(k, k->axis[term[i].axis]), real(k, term[i].share), real(k, 0)));
  phi = add(k, phi, when(k, positive(k, sub(k, k->fixed[HALF_TENSOR], integer(k, 1))), real(k, .04), real(k, 0)));
  phi = add(k, phi, when(k, positive(k, sub(k, k->fixed[HALF_B], integer(k, 3))), real(k, .01), real(k, 0)));
  out->fragmentation = phi;
  out->fits = atoll_sym_binary(k->pool, ATOLL_SYM_LE, mul(k, atoll_sym_to_real(k->pool, out->peak), phi),
                               k->fixed[HALF_CAPACITY]);
}

/* ---- seconds ----------------------------------------------------------------------------------------------------- */

static const atoll_sym *div_real(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_binary(k->pool, ATOLL_SYM_DIV, a, b);
}

/* The offloaded eighths of x bytes over the host link. */
static const atoll_sym *moved(const builder *k, const atoll_sym *x, int axis, int rate, int latency) {
  const atoll_sym *bytes = atoll_sym_to_real(k->pool, mul(k, x, k->axis[axis]));
  const atoll_sym *seconds = add(k, div_real(k, mul(k, bytes, real(k, 0.125)), k->fixed[rate]), k->fixed[latency]);
  return when(k, positive(k, k->axis[axis]), seconds, real(k, 0));
}

static void seconds_of(const builder *k, const interference *f, half_stage *out) {
  kinds layer = states(k, half_block_values(k->s));
  sizes z = sizes_of(k);
  const atoll_sym *none = real(k, 0), *wre = positive(k, k->axis[HALF_WRE]), *gre = positive(k, k->axis[HALF_GRE]),
                  *ore = positive(k, k->axis[HALF_ORE]), *share[3];
  static const int flag[3] = {HALF_WRE, HALF_GRE, HALF_ORE};
  for (int i = 0; i < 3; i++)
    share[i] = when(k, positive(k, k->axis[flag[i]]), per(k, layer.full[i], k->fixed[HALF_DATA]), layer.full[i]);
  phase_layer y = {.forward = k->fixed[HALF_FORWARD],
                   .backward = k->fixed[HALF_BACKWARD],
                   .forward_inside = k->fixed[HALF_INSIDE],
                   .backward_inside = k->fixed[HALF_INSIDE],
                   .gather_steady = when(k, wre, k->fixed[HALF_GATHER], none),
                   .gather_updated = when(k, ore, k->fixed[HALF_GATHER], none),
                   .scatter_steady = when(k, gre, k->fixed[HALF_SCATTER], none),
                   .reduce_last = when(k, ore, k->fixed[HALF_SCATTER], k->fixed[HALF_REDUCE]),
                   .in_weights = moved(k, share[0], HALF_OW, HALF_IN_RATE, HALF_IN_LATENCY),
                   .in_gradients = moved(k, share[1], HALF_OG, HALF_IN_RATE, HALF_IN_LATENCY),
                   .in_optimizer = moved(k, share[2], HALF_OO, HALF_IN_RATE, HALF_IN_LATENCY),
                   .in_saved = {moved(k, z.all, HALF_OA, HALF_IN_RATE, HALF_IN_LATENCY),
                                moved(k, z.input, HALF_OA, HALF_IN_RATE, HALF_IN_LATENCY)},
                   .out_weights = moved(k, share[0], HALF_OW, HALF_OUT_RATE, HALF_OUT_LATENCY),
                   .out_gradients = moved(k, share[1], HALF_OG, HALF_OUT_RATE, HALF_OUT_LATENCY),
                   .out_optimizer = moved(k, share[2], HALF_OO, HALF_OUT_RATE, HALF_OUT_LATENCY),
                   .out_saved = {moved(k, z.all, HALF_OA, HALF_OUT_RATE, HALF_OUT_LATENCY),
                                 moved(k, z.input, HALF_OA, HALF_OUT_RATE, HALF_OUT_LATENCY)}};
  phase_times p;
  phase_stage(k->pool, f, &y, k->fixed[HALF_LAYERS], k->axis[HALF_REDONE], &p);
  const atoll_sym *edge = add(k, k->fixed[HALF_EDGE_FORWARD], k->fixed[HALF_EDGE_BACKWARD]);
  const atoll_sym *steady = add(k, p.forward, p.backward);
  out->t = add(k, add(k, steady, edge), k->fixed[HALF_SEND]);
  out->t = add(k, out->t, when(k, wre, add(k, k->fixed[HALF_EDGE_GATHER], k->fixed[HALF_EDGE_GATHER]), none));
  out->t = add(k, out->t, when(k, gre, k->fixed[HALF_EDGE_SCATTER], none));
  out->d = sub(k, add(k, p.first, p.last), steady);
  out->d = add(k, out->d,
               when(k, atoll_sym_binary(k->pool, ATOLL_SYM_AND, ore, atoll_sym_not(k->pool, wre)),
                    k->fixed[HALF_EDGE_GATHER], none));
  out->d = add(k, out->d, when(k, gre, none, when(k, ore, k->fixed[HALF_EDGE_SCATTER], k->fixed[HALF_EDGE_REDUCE])));
}

atoll_err half_stage_make(atoll_syms *pool, const half_shape *shape, half_where where, const interference *f,
                          half_stage *out) {
  builder made = {.pool = pool, .s = shape, .where = where}, *k = &made;
  memset(out, 0, sizeof *out);
  for (int i = 0; i < HALF_FIXED; i++)
    k->fixed[i] = atoll_sym_var(pool, half_fixed_name[i], i < HALF_INTS ? ATOLL_SYM_INT : ATOLL_SYM_REAL);
  for (int i = 0; i < HALF_AXES; i++)
    k->axis[i] = atoll_sym_var(pool, half_axis_name[i], ATOLL_SYM_INT);
  bytes_of(k, out);
  fragmentation_of(k, out);
  seconds_of(k, f, out);
  if (!out->fits || !out->t || !out->d)
    return atoll_syms_error(pool) != ATOLL_OK ? ATOLL_INTERNAL
                                              : atoll_fail(ATOLL_INTERNAL, "plan: a stage without sums");
  return ATOLL_OK;
}

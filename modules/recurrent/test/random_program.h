/* Small legal programs drawn from a seed: recurrences in both directions, windows, points elsewhere, cases, several
 * dimensions, user functions that only look. One program in four is of f32, the others of f64. All values are bounded,
 * so results compare closely whatever the order of operations. */
#ifndef RANDOM_PROGRAM_H
#define RANDOM_PROGRAM_H

#include "recurrent_test.h"

enum { RANDOM_T = 6, RANDOM_B = 2, RANDOM_L = 3, RANDOM_N = 3, RANDOM_TENSORS = 40, RANDOM_LOGS = 5 };

/* What came late to the generator; a test counts the programs with each of them where a sink depends on it. */
typedef enum random_feature {
  RANDOM_BOUND,  /* the bound of b is given at run */
  RANDOM_SINGLE, /* f32 */
  RANDOM_LAYERS, /* a window over l */
  RANDOM_PAIRS,  /* a window over t and l */
  RANDOM_BATCH,  /* a window over b */
  RANDOM_ROW,    /* taken where a vector is largest */
  RANDOM_PLACE,  /* taken where a window is largest */
  RANDOM_WHOLE,  /* sums over all of several dimensions */
  RANDOM_FEATURES
} random_feature;
static const char *const random_feature_name[] = {"b bound at run",
                                                  "f32",
                                                  "window over l",
                                                  "window over t and l",
                                                  "window over b",
                                                  "element at argmax",
                                                  "point of a window at argmax",
                                                  "sums over all of several dimensions"};

typedef struct random_tensor {
  atoll_rt *x;
  int vector;   /* shape [RANDOM_N], else scalar */
  int t, b, l;  /* in the domain */
  unsigned has; /* bit by random_feature */
} random_tensor;

typedef struct random_program {
  atoll_rec *c;
  uint64_t state;
  random_tensor pool[RANDOM_TENSORS];
  int n;
  atoll_dtype dtype;
  unsigned has; /* of what the operation at hand is made of */
} random_program;

/* Steps of a program: `least`, and fewer than `more` besides. What compiling costs grows faster than they do. */
typedef struct random_range {
  int least, more;
} random_range;
static random_range random_steps = {3, 8};
enum {
  RANDOM_BINDINGS = 5,
  RANDOM_X = RANDOM_B * RANDOM_T * RANDOM_N,
  RANDOM_Y = RANDOM_T,
  RANDOM_W = RANDOM_L * RANDOM_N * RANDOM_N
};
static double random_x[RANDOM_X], random_y[RANDOM_Y], random_w[RANDOM_W];
static float random_fx[RANDOM_X], random_fy[RANDOM_Y], random_fw[RANDOM_W];
static unsigned random_has; /* features on which sinks of the program made last depend */

static inline int random_below(random_program *p, int n) { return test_below(&p->state, n); }
static inline random_tensor random_any(random_program *p) {
  const random_tensor *r = &p->pool[random_below(p, p->n)];
  p->has |= r->has;
  return *r;
}

static inline int random_is_single(uint64_t seed) {
  uint64_t state = seed ^ 0x32323232;
  return test_below(&state, 4) == 0;
}

/* How far results of the program of a seed may be apart, whose values are below 1 and gradients below some tens. Of f32
 * each operation rounds to 2^-24, and slopes of long chains multiply that. */
static inline double random_tolerance(uint64_t seed) { return random_is_single(seed) ? 2e-4 : 1e-9; }

static inline random_tensor random_keep(random_program *p, random_tensor r) {
  r.x = atoll_rt_tanh(r.x);
  r.has = p->has;
  p->has = 0;
  if (p->n < RANDOM_TENSORS)
    p->pool[p->n++] = r;
  return r;
}

static inline random_tensor random_join(random_tensor a, random_tensor b, atoll_rt *x) {
  return (random_tensor){x, a.vector | b.vector, a.t | b.t, a.b | b.b, a.l | b.l, 0};
}

static inline random_tensor random_pair(random_program *p) {
  random_tensor a = random_any(p), b = random_any(p);
  switch (random_below(p, 5)) {
  case 0:
    return random_join(a, b, atoll_rt_sub(a.x, b.x));
  case 1:
    return random_join(a, b, atoll_rt_mul(a.x, b.x));
  case 2:
    return random_join(a, b, atoll_rt_max(a.x, b.x));
  case 3:
    return random_join(a, b, atoll_rt_where(atoll_rt_lt(a.x, b.x), atoll_rt_scale(a.x, 0.5), b.x));
  default:
    return random_join(a, b, atoll_rt_add(a.x, b.x));
  }
}

static inline random_tensor random_shape(random_program *p) {
  random_tensor a = random_any(p), x = p->pool[0];
  if (!a.vector)
    return (random_tensor){atoll_rt_sin(a.x), 0, a.t, a.b, a.l, 0};
  switch (random_below(p, 5)) {
  case 0:
    return (random_tensor){atoll_rt_sum(a.x, 0), 0, a.t, a.b, a.l, 0};
  case 1:
    return (random_tensor){atoll_rt_softmax(a.x, 0), 1, a.t, a.b, a.l, 0};
  case 2: {
    atoll_rt *m = atoll_rt_mul(atoll_rt_reshape(a.x, ATOLL_SHAPE(RANDOM_N, 1)), a.x);
    return (random_tensor){atoll_rt_mean(atoll_rt_permute(m, (int[]){1, 0}), 0), 1, a.t, a.b, a.l, 0};
  }
  case 3: { /* where given numbers are largest, so that rounding has no say */
    random_tensor y = random_join(a, x, atoll_rt_take(a.x, atoll_rt_argmax(x.x, 0)));
    p->has |= 1u << RANDOM_ROW;
    y.vector = 0;
    return y;
  }
  default: {
    atoll_rt *twice = atoll_rt_concat(a.x, atoll_rt_neg(a.x), 0);
    return (random_tensor){atoll_rt_slice(twice, 0, 2, RANDOM_N), 1, a.t, a.b, a.l, 0};
  }
  }
}

/* Over all points, one dimension after the other, in any order. */
static inline random_tensor random_whole(random_program *p, random_tensor a) {
  const int windows = 1 + a.b + a.l;
  char index[64];
  if (windows > 1)
    p->has |= 1u << RANDOM_WHOLE;
  (void)snprintf(index, sizeof index, "t=0:T%s%s", a.b ? ",b=0:B" : "", a.l ? ",l=0:L" : "");
  a.x = atoll_rt_at(a.x, index);
  for (int left = windows; left > 0; left--)
    a.x = left % 2 ? atoll_rt_mean(a.x, random_below(p, left)) : atoll_rt_sum(a.x, random_below(p, left));
  return (random_tensor){a.x, a.vector, 0, 0, 0, 0};
}

/* Over t, over t and l, or over l or b alone. */
static inline random_tensor random_window(random_program *p) {
  enum { OVER_T = 6 };
  static const char *const windows[OVER_T] = {"t=0:t+1",        "t=t:T", "t=max(0,t-2):t+1",
                                              "t=t:min(t+3,T)", "t=0:T", "t=max(0,t-1):min(t+2,T)"};
  enum { PAIRS, LAYERS, BATCH, PLACE, WHOLE, OTHERS = 7 };
  random_tensor a = random_any(p);
  const int k = random_below(p, OVER_T), other = random_below(p, OTHERS);
  if ((other == PAIRS || other == LAYERS) && !a.l)
    a = p->pool[2];
  if (other == BATCH && !a.b)
    a = p->pool[0];
  if (!a.t)
    return (random_tensor){atoll_rt_cos(a.x), a.vector, 0, a.b, a.l, 0};
  if (other == WHOLE)
    return random_whole(p, a);
  char index[64];
  const int elsewhere = other >= PLACE && a.l && random_below(p, 3) == 0, layers = a.l && !elsewhere;
  (void)snprintf(index, sizeof index, "%s%s", windows[k], elsewhere ? ",l=t%3" : "");
  a.t = k != 4 || elsewhere || other == LAYERS || other == BATCH;
  a.l = layers;
  if (other == PAIRS) {
    p->has |= 1u << RANDOM_PAIRS;
    (void)snprintf(index, sizeof index, "%s,l=%s", windows[k], k % 2 ? "0:l+1" : "l:min(l+2,L)");
    a.x = atoll_rt_mean(atoll_rt_dsum(atoll_rt_at(a.x, index), 0.7), 0);
    return a;
  }
  if (other == PLACE) { /* where given numbers are largest, as in random_shape() */
    random_tensor y = p->pool[1];
    p->has |= 1u << RANDOM_PLACE;
    a.x = atoll_rt_take(atoll_rt_at(a.x, index), atoll_rt_argmax(atoll_rt_at(y.x, windows[k]), 0));
    return a;
  }
  if (other == LAYERS) {
    p->has |= 1u << RANDOM_LAYERS;
    (void)snprintf(index, sizeof index, "l=%s", k % 2 ? "0:l+1" : "l:L");
  } else if (other == BATCH) {
    p->has |= 1u << RANDOM_BATCH;
    (void)snprintf(index, sizeof index, "b=%s", k % 2 ? "0:b+1" : "b:B");
  }
  atoll_rt *v = atoll_rt_at(a.x, index), *own = a.x;
  switch (random_below(p, 6)) {
  case 0:
    a.x = atoll_rt_dsum(v, 0.6);
    break;
  case 1:
    a.x = atoll_rt_maximum(v, 0);
    break;
  case 2:
    a.x = atoll_rt_mean(v, 0);
    break;
  case 3: /* attention, which may become one over blocks */
    a.t = 1;
    a.l = layers;
    v = a.vector ? atoll_rt_einsum("d,nd->n", own, v) : atoll_rt_mul(own, v);
    a.x = atoll_rt_einsum(a.vector ? "n,nd->d" : "n,n->", atoll_rt_softmax(v, 0), atoll_rt_at(own, index));
    break;
  case 4: /* the same with the values first */
    a.x = atoll_rt_einsum(a.vector ? "nd,n->d" : "n,n->", v,
                          atoll_rt_softmax(a.vector ? atoll_rt_sum(v, 1) : atoll_rt_cos(v), 0));
    break;
  default:
    a.x = atoll_rt_sum(atoll_rt_mul(atoll_rt_softmax(v, 0), v), 0);
    break;
  }
  return a;
}

static inline random_tensor random_elsewhere(random_program *p) {
  static const char *const places[] = {"t=T-1-t", "t=t//2", "t=t%3", "t=0", "t=T-1", "t=min(t+1,T-1)"};
  random_tensor a = random_any(p);
  if (a.b && random_below(p, 3) == 0)
    return (random_tensor){atoll_rt_sum(atoll_rt_at(a.x, "b=0:B"), 0), a.vector, a.t, 0, a.l, 0};
  if (a.l && random_below(p, 2) == 0)
    return (random_tensor){atoll_rt_at(a.x, "l=L-1"), a.vector, a.t, a.b, 0, 0};
  if (!a.t)
    return (random_tensor){atoll_rt_neg(a.x), a.vector, 0, a.b, a.l, 0};
  int k = random_below(p, 6);
  return (random_tensor){atoll_rt_at(a.x, places[k]), a.vector, k != 3 && k != 4, a.b, a.l, 0};
}

/* Another tensor's neighbours, and a number where there are none: pads. */
static inline random_tensor random_pad(random_program *p) {
  static const struct {
    const char *none, *neighbour;
  } ways[] = {{"t==0", "t=t-1"}, {"t==T-1", "t=t+1"}, {"t<2", "t=t-2"}, {"l==0", "l=l-1"}};
  random_tensor a = random_any(p);
  if (!a.t)
    return (random_tensor){atoll_rt_abs(a.x), a.vector, 0, a.b, a.l, 0};
  int k = random_below(p, a.l ? 4 : 3);
  atoll_rt *x =
      atoll_rec_tensor(p->c, NULL, p->dtype, a.l ? "b,t,l" : "b,t", a.vector ? ATOLL_SHAPE(RANDOM_N) : ATOLL_SCALAR);
  atoll_rt_def(x, ways[k].none, atoll_rec_const(p->c, p->dtype, random_below(p, 3) * 0.5));
  atoll_rt_def(x, "true", atoll_rt_at(a.x, ways[k].neighbour));
  return (random_tensor){x, a.vector, 1, 1, a.l, 0};
}

/* A tensor of the whole domain, defined by cases through itself. */
static inline random_tensor random_recurrence(random_program *p) {
  static const struct {
    const char *first, *again;
  } ways[] = {{"t==0", "t=t-1"},          {"t==T-1", "t=t+1"}, {"t<2", "t=t-2"},
              {"b==0", "b=b-1"},          {"l==0", "l=l-1"},   {"t==0 or l==0", "t=t-1,l=l-1"},
              {"t==T-1", "t=t+1,l=L-1-l"}};
  random_tensor base = random_any(p), step = random_any(p);
  int k = random_below(p, 7), layered = k >= 4 || base.l || step.l;
  int vector = base.vector | step.vector;
  atoll_rt *x =
      atoll_rec_tensor(p->c, NULL, p->dtype, layered ? "b,t,l" : "b,t", vector ? ATOLL_SHAPE(RANDOM_N) : ATOLL_SCALAR);
  atoll_rt *ones = atoll_rt_scale(p->pool[vector ? 0 : 1].x, 0.1); /* gives the shape */
  atoll_rt *before = atoll_rt_at(x, ways[k].again);
  atoll_rt_def(x, ways[k].first, atoll_rt_add(base.x, ones));
  if (random_below(p, 3) == 0) { /* the first case is an exception from the second */
    char second[48];
    (void)snprintf(second, sizeof second, "t%%2==1 or %s", ways[k].first);
    atoll_rt_def(x, second, atoll_rt_sub(ones, before));
  }
  atoll_rt_def(x, "true", atoll_rt_tanh(atoll_rt_add(atoll_rt_mul(step.x, before), ones)));
  return (random_tensor){x, vector, 1, 1, layered, 0};
}

/* log [RANDOM_LOGS]: what the sinks get. Every third program has gradients. */
static inline atoll_rec *random_make(uint64_t seed, test_log *log) {
  random_program p = {.c = test_context(), .state = seed, .dtype = random_is_single(seed) ? ATOLL_F32 : ATOLL_F64};
  const int at_run = random_below(&p, 3) == 0;
  random_has = (unsigned)at_run << RANDOM_BOUND | (unsigned)random_is_single(seed) << RANDOM_SINGLE;
  atoll_rec_dim(p.c, "b", at_run ? 0 : RANDOM_B);
  atoll_rec_dim(p.c, "t", seed % 2 ? RANDOM_T : 0);
  atoll_rec_dim(p.c, "l", RANDOM_L);
  atoll_rt *w = atoll_rec_input(p.c, "w", p.dtype, "l", ATOLL_SHAPE(RANDOM_N, RANDOM_N));
  p.pool[p.n++] = (random_tensor){atoll_rec_input(p.c, "x", p.dtype, "b,t", ATOLL_SHAPE(RANDOM_N)), 1, 1, 1, 0, 0};
  p.pool[p.n++] = (random_tensor){atoll_rec_input(p.c, "y", p.dtype, "t", ATOLL_SCALAR), 0, 1, 0, 0, 0};
  random_keep(&p, (random_tensor){atoll_rt_mv(w, p.pool[0].x), 1, 1, 1, 1, 0});
  int steps = random_steps.least + random_below(&p, random_steps.more);
  for (int k = 0; k < steps; k++) {
    random_tensor (*const make[])(random_program *) = {random_pair,      random_shape,      random_window,
                                                       random_elsewhere, random_recurrence, random_pad};
    random_keep(&p, make[random_below(&p, 6)](&p));
  }
  for (int k = 0; k < 3; k++) {
    const random_tensor *r = &p.pool[p.n - 1 - random_below(&p, p.n < 5 ? p.n : 5)];
    random_has |= r->has;
    atoll_rt_sink(r->x, "log", test_collect, &log[k]);
  }
  if (seed % 3 == 0) {
    atoll_rt *leaf[2] = {p.pool[0].x, w}, *grad[2];
    random_tensor last = p.pool[p.n - 1];
    random_has |= last.has;
    atoll_rt_gradients(last.vector ? atoll_rt_dsum(last.x, 0.5) : last.x, 2, leaf, grad);
    for (int k = 0; k < 2; k++)
      atoll_rt_sink(grad[k], "gradient", test_collect, &log[3 + k]);
  }
  return p.c;
}

static inline void random_numbers(uint64_t *state, int n, double *v, float *f) {
  for (int i = 0; i < n; i++) {
    f[i] = (float)(test_below(state, 2000) / 1000.0 - 1);
    v[i] = (double)f[i];
  }
}

/* b: [RANDOM_BINDINGS] */
static inline int random_bindings(uint64_t seed, atoll_rec_binding *b) {
  uint64_t state = seed ^ 0x5555;
  const int single = random_is_single(seed);
  random_numbers(&state, RANDOM_X, random_x, random_fx);
  random_numbers(&state, RANDOM_Y, random_y, random_fy);
  random_numbers(&state, RANDOM_W, random_w, random_fw);
  b[0] = (atoll_rec_binding){"x", 0, single ? (const void *)random_fx : random_x};
  b[1] = (atoll_rec_binding){"y", 0, single ? (const void *)random_fy : random_y};
  b[2] = (atoll_rec_binding){"w", 0, single ? (const void *)random_fw : random_w};
  b[3] = (atoll_rec_binding){"T", RANDOM_T, NULL};
  b[4] = (atoll_rec_binding){"B", RANDOM_B, NULL};
  return RANDOM_BINDINGS;
}

/* Programs made so far with each feature, counted by whoever interprets them. */
static int random_seen[RANDOM_FEATURES];
static inline void random_count(void) {
  for (int k = 0; k < RANDOM_FEATURES; k++)
    random_seen[k] += (int)(random_has >> k & 1u);
}

/* Each feature is seen at least `least` times. */
static inline void random_saw(int least) {
  for (int k = 0; k < RANDOM_FEATURES; k++) {
    print_message("%s: in %d programs\n", random_feature_name[k], random_seen[k]);
    if (random_seen[k] < least)
      fail_msg("%s: in %d programs, expected %d", random_feature_name[k], random_seen[k], least);
  }
}

#endif

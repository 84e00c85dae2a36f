/* Small legal programs drawn from a seed: recurrences in both directions, windows, points elsewhere, cases, several
 * dimensions, user functions that only look. All values are f64 and bounded, so results compare closely whatever the
 * order of operations. */
#ifndef RANDOM_PROGRAM_H
#define RANDOM_PROGRAM_H

#include "recurrent_test.h"

enum { RANDOM_T = 6, RANDOM_B = 2, RANDOM_L = 3, RANDOM_N = 3, RANDOM_TENSORS = 40, RANDOM_LOGS = 5 };

typedef struct random_tensor {
  atoll_rt *x;
  int vector;  /* shape [RANDOM_N], else scalar */
  int t, b, l; /* in the domain */
} random_tensor;

typedef struct random_program {
  atoll_rec *c;
  uint64_t state;
  random_tensor pool[RANDOM_TENSORS];
  int n;
} random_program;

/* Steps of a program: `least`, and fewer than `more` besides. What compiling costs grows faster than they do. */
typedef struct random_range {
  int least, more;
} random_range;
static random_range random_steps = {3, 8};
static double random_x[RANDOM_B * RANDOM_T * RANDOM_N], random_y[RANDOM_T], random_w[RANDOM_L * RANDOM_N * RANDOM_N];

static inline int random_below(random_program *p, int n) { return test_below(&p->state, n); }
static inline random_tensor random_any(random_program *p) { return p->pool[random_below(p, p->n)]; }

static inline random_tensor random_keep(random_program *p, random_tensor r) {
  r.x = atoll_rt_tanh(r.x);
  if (p->n < RANDOM_TENSORS)
    p->pool[p->n++] = r;
  return r;
}

static inline random_tensor random_join(random_tensor a, random_tensor b, atoll_rt *x) {
  return (random_tensor){x, a.vector | b.vector, a.t | b.t, a.b | b.b, a.l | b.l};
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
  random_tensor a = random_any(p);
  if (!a.vector)
    return (random_tensor){atoll_rt_sin(a.x), 0, a.t, a.b, a.l};
  switch (random_below(p, 4)) {
  case 0:
    return (random_tensor){atoll_rt_sum(a.x, 0), 0, a.t, a.b, a.l};
  case 1:
    return (random_tensor){atoll_rt_softmax(a.x, 0), 1, a.t, a.b, a.l};
  case 2: {
    atoll_rt *m = atoll_rt_mul(atoll_rt_reshape(a.x, ATOLL_SHAPE(RANDOM_N, 1)), a.x);
    return (random_tensor){atoll_rt_mean(atoll_rt_permute(m, (int[]){1, 0}), 0), 1, a.t, a.b, a.l};
  }
  default: {
    atoll_rt *twice = atoll_rt_concat(a.x, atoll_rt_neg(a.x), 0);
    return (random_tensor){atoll_rt_slice(twice, 0, 2, RANDOM_N), 1, a.t, a.b, a.l};
  }
  }
}

static inline random_tensor random_window(random_program *p) {
  static const char *const windows[] = {"t=0:t+1",        "t=t:T", "t=max(0,t-2):t+1",
                                        "t=t:min(t+3,T)", "t=0:T", "t=max(0,t-1):min(t+2,T)"};
  random_tensor a = random_any(p);
  if (!a.t)
    return (random_tensor){atoll_rt_cos(a.x), a.vector, 0, a.b, a.l};
  char index[64];
  const int k = random_below(p, 6), layers = a.l, elsewhere = a.l && random_below(p, 3) == 0;
  (void)snprintf(index, sizeof index, "%s%s", windows[k], elsewhere ? ",l=t%3" : "");
  atoll_rt *v = atoll_rt_at(a.x, index), *own = a.x;
  a.t = k != 4 || elsewhere;
  a.l = layers && !elsewhere;
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
    return (random_tensor){atoll_rt_sum(atoll_rt_at(a.x, "b=0:B"), 0), a.vector, a.t, 0, a.l};
  if (a.l && random_below(p, 2) == 0)
    return (random_tensor){atoll_rt_at(a.x, "l=L-1"), a.vector, a.t, a.b, 0};
  if (!a.t)
    return (random_tensor){atoll_rt_neg(a.x), a.vector, 0, a.b, a.l};
  int k = random_below(p, 6);
  return (random_tensor){atoll_rt_at(a.x, places[k]), a.vector, k != 3 && k != 4, a.b, a.l};
}

/* Another tensor's neighbours, and a number where there are none: pads. */
static inline random_tensor random_pad(random_program *p) {
  static const struct {
    const char *none, *neighbour;
  } ways[] = {{"t==0", "t=t-1"}, {"t==T-1", "t=t+1"}, {"t<2", "t=t-2"}, {"l==0", "l=l-1"}};
  random_tensor a = random_any(p);
  if (!a.t)
    return (random_tensor){atoll_rt_abs(a.x), a.vector, 0, a.b, a.l};
  int k = random_below(p, a.l ? 4 : 3);
  atoll_rt *x =
      atoll_rec_tensor(p->c, NULL, ATOLL_F64, a.l ? "b,t,l" : "b,t", a.vector ? ATOLL_SHAPE(RANDOM_N) : ATOLL_SCALAR);
  atoll_rt_def(x, ways[k].none, atoll_rec_const(p->c, ATOLL_F64, random_below(p, 3) * 0.5));
  atoll_rt_def(x, "true", atoll_rt_at(a.x, ways[k].neighbour));
  return (random_tensor){x, a.vector, 1, 1, a.l};
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
      atoll_rec_tensor(p->c, NULL, ATOLL_F64, layered ? "b,t,l" : "b,t", vector ? ATOLL_SHAPE(RANDOM_N) : ATOLL_SCALAR);
  atoll_rt *ones = atoll_rt_scale(p->pool[vector ? 0 : 1].x, 0.1); /* gives the shape */
  atoll_rt *before = atoll_rt_at(x, ways[k].again);
  atoll_rt_def(x, ways[k].first, atoll_rt_add(base.x, ones));
  if (random_below(p, 3) == 0)
    atoll_rt_def(x, "t%2==1", atoll_rt_sub(ones, before));
  atoll_rt_def(x, "true", atoll_rt_tanh(atoll_rt_add(atoll_rt_mul(step.x, before), ones)));
  return (random_tensor){x, vector, 1, 1, layered};
}

/* log [RANDOM_LOGS]: what the sinks get. Every third program has gradients. */
static inline atoll_rec *random_make(uint64_t seed, test_log *log) {
  random_program p = {.c = test_context(), .state = seed};
  atoll_rec_dim(p.c, "b", RANDOM_B);
  atoll_rec_dim(p.c, "t", seed % 2 ? RANDOM_T : 0);
  atoll_rec_dim(p.c, "l", RANDOM_L);
  atoll_rt *w = atoll_rec_input(p.c, "w", ATOLL_F64, "l", ATOLL_SHAPE(RANDOM_N, RANDOM_N));
  p.pool[p.n++] = (random_tensor){atoll_rec_input(p.c, "x", ATOLL_F64, "b,t", ATOLL_SHAPE(RANDOM_N)), 1, 1, 1, 0};
  p.pool[p.n++] = (random_tensor){atoll_rec_input(p.c, "y", ATOLL_F64, "t", ATOLL_SCALAR), 0, 1, 0, 0};
  random_keep(&p, (random_tensor){atoll_rt_mv(w, p.pool[0].x), 1, 1, 1, 1});
  int steps = random_steps.least + random_below(&p, random_steps.more);
  for (int k = 0; k < steps; k++) {
    random_tensor (*const make[])(random_program *) = {random_pair,      random_shape,      random_window,
                                                       random_elsewhere, random_recurrence, random_pad};
    random_keep(&p, make[random_below(&p, 6)](&p));
  }
  for (int k = 0; k < 3; k++)
    atoll_rt_sink(p.pool[p.n - 1 - random_below(&p, p.n < 5 ? p.n : 5)].x, "log", test_collect, &log[k]);
  if (seed % 3 == 0) {
    atoll_rt *leaf[2] = {p.pool[0].x, w}, *grad[2];
    random_tensor last = p.pool[p.n - 1];
    atoll_rt_gradients(last.vector ? atoll_rt_dsum(last.x, 0.5) : last.x, 2, leaf, grad);
    for (int k = 0; k < 2; k++)
      atoll_rt_sink(grad[k], "gradient", test_collect, &log[3 + k]);
  }
  return p.c;
}

static inline int random_bindings(uint64_t seed, atoll_rec_binding *b) {
  uint64_t state = seed ^ 0x5555;
  for (size_t i = 0; i < sizeof random_x / sizeof *random_x; i++)
    random_x[i] = (double)test_below(&state, 2000) / 1000 - 1;
  for (size_t i = 0; i < sizeof random_y / sizeof *random_y; i++)
    random_y[i] = (double)test_below(&state, 2000) / 1000 - 1;
  for (size_t i = 0; i < sizeof random_w / sizeof *random_w; i++)
    random_w[i] = (double)test_below(&state, 2000) / 1000 - 1;
  b[0] = (atoll_rec_binding){"x", 0, random_x};
  b[1] = (atoll_rec_binding){"y", 0, random_y};
  b[2] = (atoll_rec_binding){"w", 0, random_w};
  b[3] = (atoll_rec_binding){"T", RANDOM_T, NULL};
  return 4;
}

#endif

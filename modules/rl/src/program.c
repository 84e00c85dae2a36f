/* The policy, its losses and its learning as a recurrent program.
 *
 * Dimensions: iterations i, epochs e of PPO, steps t, groups b of environments of this rank. Values are of a group at
 * once, [G, ...]: all of one step that belongs to a group is done before the next, so that it stays in the caches.
 * The policy is the same recurrence for both algorithms: parameters at (i, e) are those of the epoch before, moved by
 * Adam, and actions of iteration i are taken with those of its first epoch. REINFORCE has one epoch, and no dimension
 * for it.
 *
 * What is kept follows from the indices: returns to the end of the rollout need all of it before anything is learnt,
 * returns over n steps need n steps of it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rl_impl.h"

static const char *const kinds[RL_KINDS] = {"value", "mean", "square"};

typedef struct policy { /* weights [inputs, outputs] and biases [outputs], in turn */
  atoll_rt *p[RL_PARAMS];
} policy;

typedef struct builder {
  const rl_run *r;
  const atoll_rl_params *params;
  const atoll_rl_env *env;
  atoll_rec *c;
  int64_t envs; /* of a group */
  int64_t groups;
  int ppo;
  policy begin[RL_KINDS], now[RL_KINDS], after[RL_KINDS];
  atoll_rt *observation, *chosen;  /* (i,t,b): [G, O]; one at the action taken, [G, A] */
  atoll_rt *output;                /* (i,t,b): the network's, [G, A or A+1] */
  atoll_rt *next, *reward, *going; /* (i,t,b): states after; rewards; 0 where the episode has ended, else 1 */
} builder;

static int64_t outputs(const atoll_rl_params *p, const atoll_rl_env *env) {
  return env->actions + (p->algorithm == ATOLL_RL_PPO); /* one more: the value of a state */
}

/* Steps that count in a return. The network tells values in this unit: as sums of rewards they would be so large that
 * their errors drown the policy in the layers that both share, and that they stay wrong for hundreds of updates, while
 * advantages take the differences between wrong values for those between actions. */
static double horizon(const atoll_rl_params *p) { return 1 / fmax(1 - p->gamma, 1 / (double)p->steps); }

void rl_memory_shapes(const atoll_rl_params *p, const atoll_rl_env *env, rl_memory *m) {
  const int64_t width[RL_LAYERS + 1] = {env->observation, p->hidden, p->hidden, outputs(p, env)};
  for (int k = 0; k < RL_LAYERS; k++) {
    m->axes[2 * k] = 2;
    m->shape[2 * k][0] = width[k];
    m->shape[2 * k][1] = m->shape[2 * k + 1][0] = width[k + 1];
    m->axes[2 * k + 1] = m->shape[2 * k + 1][1] = 1;
  }
}

static atoll_rt_shape shape_of(const rl_memory *m, int k) {
  return (atoll_rt_shape){m->axes[k], {m->shape[k][0], m->shape[k][1]}};
}

enum { NAME = 24 }; /* characters of an input's name */

static const char *input_name(int kind, int k, char *buf, size_t n) {
  (void)snprintf(buf, n, "%s%d", kinds[kind], k);
  return buf;
}

int rl_bindings(const rl_memory *m, int learning, int64_t iterations, int64_t done, atoll_rec_binding b[RL_BINDINGS]) {
  static char name[RL_KINDS * RL_PARAMS][NAME];
  int n = 0;
  for (int kind = 0; kind < (learning ? RL_KINDS : 1); kind++)
    for (int k = 0; k < RL_PARAMS; k++, n++)
      b[n] = (atoll_rec_binding){input_name(kind, k, name[n], sizeof name[n]), 0, m->value[kind][k]};
  if (!learning)
    return n;
  b[n++] = (atoll_rec_binding){"state", 0, m->state};
  b[n++] = (atoll_rec_binding){"I", iterations, NULL};
  b[n++] = (atoll_rec_binding){"S", done + 1, NULL};
  return n;
}

/* A domain or an index that ends in that of groups, or this without them: a single group is no dimension. */
static const char *grouped(const builder *b, const char *with, const char *without) {
  return b->groups > 1 ? with : without;
}
static const char *of_steps(const builder *b) { return grouped(b, "i,t,b", "i,t"); }
static const char *whole_rollout(const builder *b) { return grouped(b, "t=0:T,b=0:B", "t=0:T"); }

static void declare_groups(const builder *b) {
  if (b->groups > 1)
    atoll_rec_dim(b->c, "b", b->groups);
}

/* ---- the network ---- */

static atoll_rt *network(const policy *w, atoll_rt *x) {
  for (int k = 0; k < RL_LAYERS; k++) {
    x = atoll_rt_add(atoll_rt_matmul(x, w->p[2 * k]), w->p[2 * k + 1]);
    x = k < RL_LAYERS - 1 ? atoll_rt_tanh(x) : x;
  }
  return x;
}

/* Columns of [G, n], and one of them as [G]. */
static atoll_rt *columns(atoll_rt *x, int64_t first, int64_t n) { return atoll_rt_slice(x, 1, first, n); }
static atoll_rt *column(const builder *b, atoll_rt *x, int64_t k) {
  return atoll_rt_reshape(columns(x, k, 1), ATOLL_SHAPE(b->envs));
}

static atoll_rt *logits(const builder *b, atoll_rt *output) {
  return b->ppo ? columns(output, 0, b->env->actions) : output;
}

/* [G, A] of ones at these actions [G], zeros elsewhere. */
static atoll_rt *one_hot(const builder *b, atoll_rt *action) {
  atoll_rt *rows = atoll_rt_reshape(atoll_rt_cast(action, ATOLL_F32), ATOLL_SHAPE(b->envs, 1));
  return atoll_rt_eq(rows, atoll_rec_iota(b->c, ATOLL_F32, b->env->actions));
}

static atoll_rt *observed(const builder *b, atoll_rt *state) {
  return b->env->observation < b->env->state ? columns(state, 0, b->env->observation) : state;
}

/* ---- parameters ---- */

/* Parameters and moments at the beginning of iterations, and before each update; learn() defines both by those after
 * an update. Two tensors, since acting needs the first and what is learnt from it makes the second: one would have to
 * be ordered before and after all acting of an iteration. */
static void declare_parameters(builder *b) {
  const rl_memory *m = b->r->memory;
  char name[32];
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++) {
      (void)snprintf(name, sizeof name, "%s%d.begin", kinds[kind], k);
      b->begin[kind].p[k] = atoll_rec_tensor(b->c, name, ATOLL_F32, "i", shape_of(m, k));
      (void)snprintf(name, sizeof name, "%s%d.now", kinds[kind], k);
      b->now[kind].p[k] = b->ppo ? atoll_rec_tensor(b->c, name, ATOLL_F32, "i,e", shape_of(m, k)) : b->begin[kind].p[k];
    }
}

static void define_parameters(builder *b) {
  char name[NAME];
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++) {
      atoll_rt *begin = b->begin[kind].p[k], *after = b->after[kind].p[k];
      atoll_rt_def(
          begin, "i==0",
          atoll_rec_input(b->c, input_name(kind, k, name, sizeof name), ATOLL_F32, "", shape_of(b->r->memory, k)));
      atoll_rt_def(begin, "true", atoll_rt_at(after, b->ppo ? "i=i-1,e=E-1" : "i=i-1"));
      if (!b->ppo)
        continue;
      atoll_rt_def(b->now[kind].p[k], "e==0", begin);
      atoll_rt_def(b->now[kind].p[k], "true", atoll_rt_at(after, "e=e-1"));
    }
}

/* m / (1 - beta^updates) */
static atoll_rt *unbiased(const builder *b, atoll_rt *m, double beta, atoll_rt *updates) {
  atoll_rt *left = atoll_rt_pow(atoll_rec_const(b->c, ATOLL_F32, beta), updates);
  return atoll_rt_div(m, atoll_rt_shift(atoll_rt_neg(left), 1));
}

/* Adam (Kingma and Ba, 2015). Written out, because its moments are part of checkpoints. */
static void adam(builder *b, int k, atoll_rt *grad, atoll_rt *updates) {
  const double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  atoll_rt *m = atoll_rt_add(atoll_rt_scale(b->now[1].p[k], beta1), atoll_rt_scale(grad, 1 - beta1));
  atoll_rt *v = atoll_rt_add(atoll_rt_scale(b->now[2].p[k], beta2), atoll_rt_scale(atoll_rt_square(grad), 1 - beta2));
  atoll_rt *length = atoll_rt_shift(atoll_rt_sqrt(unbiased(b, v, beta2, updates)), epsilon);
  atoll_rt *move = atoll_rt_div(unbiased(b, m, beta1, updates), length);
  b->after[1].p[k] = m;
  b->after[2].p[k] = v;
  b->after[0].p[k] = atoll_rt_sub(b->now[0].p[k], atoll_rt_scale(move, b->params->learning_rate));
}

/* Means over ranks, by one message. */
static void average(const builder *b, int n, atoll_rt **x) {
  if (atoll_comm_size(b->r->comm) == 1)
    return;
  atoll_rt_rank_sums(n, x, b->r->comm, x);
  for (int k = 0; k < n; k++)
    x[k] = atoll_rt_scale(x[k], 1.0 / atoll_comm_size(b->r->comm));
}

/* ---- acting ---- */

/* Of uniform numbers. The greatest of logits + these is drawn with probabilities softmax(logits) (Gumbel, 1954). */
static atoll_rt *gumbel(atoll_rt *uniform) { return atoll_rt_neg(atoll_rt_log(atoll_rt_neg(atoll_rt_log(uniform)))); }

/* States, actions and rewards. noise: uniform numbers, or NULL: the likeliest actions. */
static void act(builder *b, const policy *w, const char *domain, atoll_rt *state, atoll_rt *noise) {
  const int64_t states = b->env->state;
  b->observation = observed(b, state);
  b->output = network(w, b->observation);
  atoll_rt *preference = atoll_rt_detach(logits(b, b->output));
  atoll_rt *action = atoll_rt_argmax(noise ? atoll_rt_add(preference, gumbel(noise)) : preference, 1);
  atoll_rt *step = atoll_rt_name(atoll_rec_call(b->c, "step", rl_step, b->r->actor, domain, ATOLL_F32,
                                                ATOLL_SHAPE(b->envs, states + 2), 2, (atoll_rt *[]){state, action}),
                                 "step");
  b->chosen = one_hot(b, action);
  b->next = columns(step, 0, states);
  b->reward = column(b, step, states);
  b->going = b->env->endless ? NULL : atoll_rt_shift(atoll_rt_neg(column(b, step, states + 1)), 1);
  atoll_rt_def(state, "true", atoll_rt_at(b->next, "t=t-1"));
}

/* x where an episode goes on, else 0. */
static atoll_rt *while_going(const builder *b, atoll_rt *x) { return b->going ? atoll_rt_mul(x, b->going) : x; }

static void act_and_learn(builder *b) {
  const int64_t states = b->env->state;
  const atoll_rt_shape shape = ATOLL_SHAPE(b->envs, states);
  const char *of_starts = grouped(b, "i,b", "i");
  atoll_rt *state = atoll_rec_tensor(b->c, "state.now", ATOLL_F32, of_steps(b), shape);
  atoll_rt *noise = atoll_rec_call(b->c, "noise", rl_noise, b->r->actor, of_steps(b), ATOLL_F32,
                                   ATOLL_SHAPE(b->envs, b->env->actions), 0, NULL);
  if (b->params->restart) {
    atoll_rt_def(state, "t==0",
                 atoll_rec_call(b->c, "start", rl_start, b->r->actor, of_starts, ATOLL_F32, shape, 0, NULL));
    act(b, &b->begin[0], of_steps(b), state, noise);
    return;
  }
  atoll_rt *before = atoll_rec_tensor(b->c, "state.before", ATOLL_F32, of_starts, shape);
  atoll_rt_def(state, "i==0 and t==0", atoll_rec_input(b->c, "state", ATOLL_F32, grouped(b, "b", ""), shape));
  /* Cases are tried in order, so this one is added before act() adds the last. */
  atoll_rt_def(state, "t==0", before);
  act(b, &b->begin[0], of_steps(b), state, noise);
  atoll_rt_def(before, "true", atoll_rt_at(b->next, "i=i-1,t=T-1"));
}

/* ---- losses ---- */

/* sum over k of gamma^k r[t+k] until the episode or the rollout ends, or n steps are over (0: never); (i,t,b): [G] */
static atoll_rt *returns(const builder *b) {
  const double gamma = b->params->gamma;
  char window[48];
  if (b->params->n == 0) {
    atoll_rt *g = atoll_rec_tensor(b->c, "returns", ATOLL_F32, of_steps(b), ATOLL_SHAPE(b->envs));
    atoll_rt_def(g, "t==T-1", b->reward);
    atoll_rt_def(g, "true", atoll_rt_add(b->reward, while_going(b, atoll_rt_scale(atoll_rt_at(g, "t=t+1"), gamma))));
    return g;
  }
  (void)snprintf(window, sizeof window, "t=t:min(t+%lld,T)", (long long)b->params->n);
  if (!b->going)
    return atoll_rt_dsum(atoll_rt_at(b->reward, window), gamma);
  /* Steps of the same episode are those with as many ends before them. */
  atoll_rt *ended = atoll_rec_tensor(b->c, "ended", ATOLL_F32, of_steps(b), ATOLL_SHAPE(b->envs));
  atoll_rt_def(ended, "t==0", atoll_rt_scale(b->reward, 0));
  atoll_rt_def(
      ended, "true",
      atoll_rt_add(atoll_rt_at(ended, "t=t-1"), atoll_rt_at(atoll_rt_shift(atoll_rt_neg(b->going), 1), "t=t-1")));
  atoll_rt *same = atoll_rt_eq(atoll_rt_at(ended, window), ended);
  return atoll_rt_dsum(atoll_rt_mul(atoll_rt_at(b->reward, window), same), gamma);
}

/* (i,t): mean of g (i,t,b), [G], over the environments of all ranks. Returns to the end are there all at once, and one
 * message takes those of all steps; returns over n steps come one by one, and waiting for all of them would keep the
 * rollout.
 */
static atoll_rt *baseline(const builder *b, atoll_rt *g) {
  atoll_rt *m = atoll_rt_mean_all(b->groups > 1 ? atoll_rt_at(atoll_rt_detach(g), "b=0:B") : atoll_rt_detach(g));
  if (atoll_comm_size(b->r->comm) == 1)
    return m;
  if (!b->params->n)
    m = atoll_rt_at(m, "t=0:T");
  average(b, 1, &m);
  return b->params->n ? m : atoll_rt_take(m, atoll_rec_expr(b->c, ATOLL_I32, "t"));
}

/* Log of the probability of the actions taken, [G], and of all, [G, A]. */
static atoll_rt *log_probability(const builder *b, atoll_rt *output, atoll_rt **all) {
  atoll_rt *logs = atoll_rt_log_softmax(logits(b, output), 1);
  if (all)
    *all = logs;
  return atoll_rt_sum(atoll_rt_mul(logs, b->chosen), 1);
}

/* (i) */
static atoll_rt *reinforce_loss(const builder *b) {
  atoll_rt *g = returns(b);
  if (b->params->baseline)
    g = atoll_rt_sub(g, baseline(b, g));
  atoll_rt *gain = atoll_rt_mul(log_probability(b, b->output, NULL), atoll_rt_detach(g));
  return atoll_rt_neg(atoll_rt_mean_all(atoll_rt_at(gain, whole_rollout(b))));
}

static atoll_rt *value_of(const builder *b, atoll_rt *output) {
  return atoll_rt_scale(column(b, output, b->env->actions), horizon(b->params));
}

/* Generalised advantages (i,t,b): [G]. value: (i,t,b), [G]. */
static atoll_rt *advantages(const builder *b, const policy *w, atoll_rt *value) {
  const double gamma = b->params->gamma, decay = gamma * b->params->lambda;
  atoll_rt *following = atoll_rec_tensor(b->c, "following", ATOLL_F32, of_steps(b), ATOLL_SHAPE(b->envs));
  atoll_rt *last = value_of(b, network(w, observed(b, b->next)));
  atoll_rt_def(following, "t==T-1", last);
  atoll_rt_def(following, "true", atoll_rt_at(value, "t=t+1"));
  atoll_rt *delta = atoll_rt_add(b->reward, while_going(b, atoll_rt_scale(following, gamma)));
  delta = atoll_rt_sub(delta, value);
  atoll_rt *a = atoll_rec_tensor(b->c, "advantage", ATOLL_F32, of_steps(b), ATOLL_SHAPE(b->envs));
  atoll_rt_def(a, "t==T-1", delta);
  atoll_rt_def(a, "true", atoll_rt_add(delta, while_going(b, atoll_rt_scale(atoll_rt_at(a, "t=t+1"), decay))));
  return a;
}

/* (i): mean of x (i,t,b), [G], over all steps and the environments of all ranks. */
static atoll_rt *mean_of_rollout(const builder *b, atoll_rt *x) {
  atoll_rt *m = atoll_rt_mean_all(atoll_rt_at(x, whole_rollout(b)));
  average(b, 1, &m);
  return m;
}

/* x less its mean, over its standard deviation: what is learnt, and what the entropy counts beside it, depend on the
 * unit of rewards no more. */
static atoll_rt *normalized(const builder *b, atoll_rt *x) {
  x = atoll_rt_sub(x, mean_of_rollout(b, x));
  atoll_rt *deviation = atoll_rt_sqrt(mean_of_rollout(b, atoll_rt_square(x)));
  return atoll_rt_div(x, atoll_rt_shift(deviation, 1e-8)); /* they may all be equal */
}

static atoll_rt *clamp(const builder *b, atoll_rt *x, double lo, double hi) {
  x = atoll_rt_max(x, atoll_rec_const(b->c, ATOLL_F32, lo));
  return atoll_rt_min(x, atoll_rec_const(b->c, ATOLL_F32, hi));
}

/* (i,e) */
static atoll_rt *ppo_loss(const builder *b) {
  const atoll_rl_params *p = b->params;
  atoll_rt *value = value_of(b, b->output), *logs;
  atoll_rt *advantage = atoll_rt_detach(advantages(b, &b->begin[0], value));
  atoll_rt *target = atoll_rt_detach(atoll_rt_scale(atoll_rt_add(advantage, value), 1 / horizon(p)));
  if (p->normalize)
    advantage = atoll_rt_detach(normalized(b, advantage));
  atoll_rt *before = atoll_rt_detach(log_probability(b, b->output, NULL));
  atoll_rt *output = network(&b->now[0], b->observation); /* (i,e,t,b) */
  atoll_rt *ratio = atoll_rt_exp(atoll_rt_sub(log_probability(b, output, &logs), before));
  atoll_rt *gain =
      atoll_rt_min(atoll_rt_mul(ratio, advantage), atoll_rt_mul(clamp(b, ratio, 1 - p->clip, 1 + p->clip), advantage));
  atoll_rt *entropy = atoll_rt_neg(atoll_rt_sum(atoll_rt_mul(atoll_rt_exp(logs), logs), 1));
  atoll_rt *error = atoll_rt_square(atoll_rt_sub(column(b, output, b->env->actions), target));
  gain = atoll_rt_add(gain, atoll_rt_scale(entropy, p->entropy));
  return atoll_rt_mean_all(atoll_rt_at(atoll_rt_sub(atoll_rt_scale(error, p->value), gain), whole_rollout(b)));
}

/* ---- what leaves the program ---- */

static atoll_err copy_out(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  size_t bytes = sizeof(float);
  (void)point;
  (void)out;
  for (int k = 0; k < in->ndim; k++)
    bytes *= (size_t)in->shape[k];
  memcpy(user, in->data, bytes);
  return ATOLL_OK;
}

/* To group b of all. */
static atoll_err copy_group(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  return copy_out((float *)user + point[0] * in->shape[0] * in->shape[1], point, in, out);
}

/* A number of iteration i. */
static atoll_err note(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)out;
  ((double *)user)[point[0]] = ((const float *)in->data)[0];
  return ATOLL_OK;
}

static void sinks(const builder *b, atoll_rt *loss, atoll_rt *const *grad) {
  const char *last = b->ppo ? "i=I-1,e=E-1" : "i=I-1";
  const rl_memory *m = b->r->memory;
  atoll_rt *norm = NULL;
  for (int kind = 0; kind < RL_KINDS; kind++)
    for (int k = 0; k < RL_PARAMS; k++)
      atoll_rt_sink(atoll_rt_at(b->after[kind].p[k], last), kinds[kind], copy_out, m->after[kind][k]);
  if (!b->params->restart)
    atoll_rt_sink(atoll_rt_at(b->next, "i=I-1,t=T-1"), "state", b->groups > 1 ? copy_group : copy_out, m->state_after);
  for (int k = 0; k < RL_PARAMS; k++) {
    atoll_rt *g = atoll_rt_reshape(grad[k], ATOLL_SHAPE(m->shape[k][0] * m->shape[k][1]));
    atoll_rt *sum = atoll_rt_sum(atoll_rt_square(g), 0);
    norm = norm ? atoll_rt_add(norm, sum) : sum;
  }
  atoll_rt_sink(b->ppo ? atoll_rt_at(loss, "e=E-1") : loss, "loss", note, b->r->rows->loss);
  atoll_rt_sink(b->ppo ? atoll_rt_at(norm, "e=E-1") : norm, "norm", note, b->r->rows->norm2);
}

/* ---- programs ---- */

static builder begin(const rl_run *r, atoll_rec *c) {
  builder b = {.r = r, .params = r->params, .env = r->env, .c = c, .envs = r->actor->group};
  b.groups = r->actor->n / r->actor->group;
  b.ppo = r->params->algorithm == ATOLL_RL_PPO;
  return b;
}

atoll_err rl_program_learn(const rl_run *r, atoll_rec *c) {
  builder b = begin(r, c);
  atoll_rt *grad[RL_PARAMS + 1]; /* and the loss */
  atoll_rec_dim(c, "s", 0);      /* its bound is one more than the iterations done before the run */
  atoll_rec_dim(c, "i", 0);
  if (b.ppo)
    atoll_rec_dim(c, "e", b.params->epochs);
  atoll_rec_dim(c, "t", b.params->steps);
  declare_groups(&b);
  declare_parameters(&b);
  act_and_learn(&b);
  atoll_rt *loss = b.ppo ? ppo_loss(&b) : reinforce_loss(&b);
  atoll_rt_gradients(loss, RL_PARAMS, b.now[0].p, grad);
  grad[RL_PARAMS] = loss;
  average(&b, RL_PARAMS + 1, grad);
  atoll_rt *updates = atoll_rec_expr(c, ATOLL_F32, b.ppo ? "(i+S-1)*E+e+1" : "i+S");
  for (int k = 0; k < RL_PARAMS; k++)
    adam(&b, k, grad[k], updates);
  define_parameters(&b);
  sinks(&b, grad[RL_PARAMS], grad);
  return atoll_rec_error(c);
}

static atoll_err look(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user;
  (void)point;
  (void)in;
  (void)out;
  return ATOLL_OK;
}

atoll_err rl_program_evaluate(const rl_run *r, atoll_rec *c, int64_t steps) {
  builder b = begin(r, c);
  char name[NAME];
  policy w;
  const atoll_rt_shape shape = ATOLL_SHAPE(b.envs, b.env->state);
  atoll_rec_dim(c, "t", steps);
  declare_groups(&b);
  for (int k = 0; k < RL_PARAMS; k++)
    w.p[k] = atoll_rec_input(c, input_name(0, k, name, sizeof name), ATOLL_F32, "", shape_of(r->memory, k));
  atoll_rt *state = atoll_rec_tensor(c, "state.now", ATOLL_F32, grouped(&b, "t,b", "t"), shape);
  atoll_rt_def(state, "t==0",
               atoll_rec_call(c, "start", rl_start, r->actor, grouped(&b, "b", ""), ATOLL_F32, shape, 0, NULL));
  act(&b, &w, grouped(&b, "t,b", "t"), state, NULL);
  atoll_rt_sink(atoll_rt_at(b.reward, "t=T-1"), "last", look, NULL);
  return atoll_rec_error(c);
}

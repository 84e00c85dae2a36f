/* What the files of the room share.
 *   envs       the environments that are built in
 *   plugin     names and shared objects to environments
 *   act        environments as functions of a recurrent program: noise, first states, steps, their checks and accounts
 *   program    the policy, its losses and its learning as a recurrent program
 *   learn      learners: state between runs of the program */
#ifndef RL_IMPL_H
#define RL_IMPL_H

#include "atoll/recurrent.h"
#include "atoll/rl.h"

enum { RL_LAYERS = 3, RL_PARAMS = 2 * RL_LAYERS, RL_KINDS = 3 }; /* weights and biases; themselves and two moments */

/* An environment as opened: the table, and what must be given back. */
typedef struct rl_opened {
  atoll_rl_env env; /* first: the public pointer is that of the whole */
  void *object;     /* NULL: built in */
} rl_opened;

extern const atoll_rl_env rl_cartpole, rl_grid, rl_free;
int rl_is_built_in(const atoll_rl_env *env);

/* Sums over what ended in an iteration. */
typedef struct rl_account {
  double episodes, returns, lengths, reward;
} rl_account;

/* The environments of this rank. */
typedef struct rl_actor {
  const atoll_rl_env *env;
  uint64_t seed;
  uint32_t stream;     /* tells learning and evaluation apart */
  int64_t first, n;    /* of all environments, those of this rank */
  int64_t group;       /* of them, those that act and are learnt from together */
  int64_t iteration;   /* that the run begins with */
  float *running;      /* [n, 2]: return and length of the episode under way */
  float *finished;     /* [n]: return of the first episode that ended, NaN before; NULL: not asked for */
  rl_account *account; /* per iteration of the run; NULL: none is kept */
  float *noise;        /* [n, max(S, A)] */
  float *guarded;      /* [n, S+2] and GUARD more, for results to be checked; NULL for what is built in */
  float *given;        /* [group, S] and [group] actions: what a step is given; NULL as above */
  int awaited;         /* bool: other ranks wait for this one within the run */
  atoll_err failed;    /* what environments have done wrong in a run that is awaited: */
  char why[1024];
} rl_actor;

atoll_err rl_actor_create(const atoll_rl_env *env, int64_t seed, uint32_t stream, int64_t first, int64_t n,
                          int64_t group, rl_actor *out);
void rl_actor_free(rl_actor *a);
/* Functions of the program; user is the actor, points are (i, t, b), (i, b) and (i, t, b), those of evaluation (t, b),
 * (b) and (t, b).
 */
atoll_err rl_noise(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out);
atoll_err rl_start(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out);
atoll_err rl_step(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out);

/* Where values go to and come from between runs: parameters and moments, first states. */
typedef struct rl_memory {
  int64_t shape[RL_PARAMS][2]; /* biases: [1], in shape[k][0] */
  int axes[RL_PARAMS];
  float *value[RL_KINDS][RL_PARAMS]; /* before the run */
  float *after[RL_KINDS][RL_PARAMS];
  float *state, *state_after; /* [n, S] */
} rl_memory;

typedef struct rl_rows { /* by iteration of the run */
  double *loss, *norm2;
} rl_rows;

typedef struct rl_run { /* borrowed by the program */
  const atoll_rl_params *params;
  const atoll_rl_env *env;
  const atoll_comm *comm; /* over whose ranks environments are divided */
  rl_actor *actor;
  rl_memory *memory;
  rl_rows *rows;
} rl_run;

void rl_memory_shapes(const atoll_rl_params *p, const atoll_rl_env *env, rl_memory *m);
/* Acting and learning, over I iterations given at run. Inputs are bound by rl_bindings(). */
atoll_err rl_program_learn(const rl_run *r, atoll_rec *c);
/* The likeliest actions for `steps` steps. */
atoll_err rl_program_evaluate(const rl_run *r, atoll_rec *c, int64_t steps);
enum { RL_BINDINGS = RL_KINDS * RL_PARAMS + 3 };
/* For learning (parameters, moments, states, I and S, one more than the iterations done), or evaluation (parameters).
 */
int rl_bindings(const rl_memory *m, int learning, int64_t iterations, int64_t done, atoll_rec_binding b[RL_BINDINGS]);

#endif

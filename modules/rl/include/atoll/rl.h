/** Reinforcement learning with recurrent tensors: environments, and policies that learn while they act.
 *
 *  One iteration lets B environments act for T steps and improves the policy, a network of two hidden layers of tanh.
 *  Acting and learning are one recurrent program over iterations i and steps t (and, for PPO, epochs e), in which
 *  parameters are a recurrence over i; what is kept in memory follows from its indices. */
#ifndef ATOLL_RL_H
#define ATOLL_RL_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

#include "atoll/agree.h"
#include "atoll/err.h"
#include "atoll/opt.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

/* ---- environments ---- */

#define ATOLL_RL_ENV_VERSION 1

/** n environments side by side, all of whose memory is their state. Arrays are row-major; functions return 0, or a
 * number that ends the run with UNAVAILABLE. A shared object that adds an environment exports `const atoll_rl_env
 * *atoll_rl_env_v1(void)`. */
typedef struct atoll_rl_env atoll_rl_env;
struct atoll_rl_env {
  int version; /* ATOLL_RL_ENV_VERSION; others are refused by name */
  const char *name;
  int64_t state;       /* numbers of a state S */
  int64_t observation; /* O: the policy sees the first O numbers of a state */
  int64_t actions;     /* A: an action is a number below */
  int64_t limit;       /* steps after which step ends an episode at the latest; 0: it may last for ever */
  int endless;         /* no episode ever ends: step says so of none */
  /** First states of environments first .. first+n-1. noise: uniform in (0, 1), [n, S]; state: [n, S]. */
  int (*start)(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state);
  /** state [n, S], action [n] -> result [n, S+2]: the state after, the reward, 1 when the episode has ended, else 0. */
  int (*step)(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action, float *result);
};

/** "cartpole", "grid", "free" (a few operations a step, states of `observation` numbers), or the path of a shared
 * object, told by a slash in it. *env owned. USAGE: unknown name (the nearest is told), sizes or functions that are
 * missing; NOINPUT: an object that cannot be loaded; MISMATCH: one of another version. */
ATOLL_API atoll_err atoll_rl_env_open(const char *name, int64_t observation, const atoll_rl_env **env);
ATOLL_API void atoll_rl_env_close(const atoll_rl_env **env);

/* ---- learners ---- */

typedef enum atoll_rl_algorithm { ATOLL_RL_REINFORCE, ATOLL_RL_PPO } atoll_rl_algorithm;

/** Options `rl.*`. */
typedef struct atoll_rl_params {
  int algorithm;                          /* atoll_rl_algorithm */
  char environment[ATOLL_OPT_STRING_MAX]; /* see atoll_rl_env_open() */
  int64_t observation;                    /* of "free" */
  int64_t environments;                   /* B, over all ranks */
  int64_t group;      /* of the environments of a rank, acting and learning side by side; 0: chosen */
  int64_t steps;      /* T of an iteration */
  int64_t n;          /* REINFORCE: steps of a return; 0: to the end (Monte-Carlo) */
  int64_t iterations; /* in all */
  int64_t hidden;     /* units of each of two layers */
  int64_t epochs;     /* PPO: updates of an iteration */
  int64_t seed;
  double learning_rate, gamma, lambda, clip, entropy, value;
  int restart;      /* bool: iterations begin with new episodes; otherwise they go on with those of the one before */
  int baseline;     /* bool: REINFORCE: returns less their mean over all environments, of which there are two or more */
  int normalize;    /* bool: PPO: advantages less their mean, over their standard deviation, both of the iteration */
  int64_t evaluate; /* episodes at the end, with the likeliest actions; 0: none */
  int64_t evaluate_every;
  int64_t chunk;                      /* iterations between looks at signals */
  int64_t memory;                     /* bytes that values may take while learning; 0: no limit */
  char offload[ATOLL_OPT_STRING_MAX]; /* folder of a file for values beyond it; empty: NOMEM instead */
} atoll_rl_params;
extern ATOLL_API const atoll_opt_table atoll_rl_options;
ATOLL_API void atoll_rl_params_init(atoll_rl_params *p);

/** USAGE: options that do not go together, or not with so many ranks. */
ATOLL_API atoll_err atoll_rl_params_check(const atoll_rl_params *p, int ranks);

typedef struct atoll_rl atoll_rl;

/** What an iteration has shown, over all ranks. */
typedef struct atoll_rl_report {
  int64_t iteration;               /* done after this one */
  int64_t episodes;                /* ended in it */
  double mean_return, mean_length; /* of those; NaN when there are none */
  double reward;                   /* mean over steps and environments */
  double loss, gradient_norm;      /* of the last update */
} atoll_rl_report;

/** Collective on comm, over whose ranks the environments are divided evenly. env: borrowed until destroyed.
 *  trace: the graph of the program before and after each pass, NULL: nowhere. *out owned.
 *  The algorithms are REINFORCE (Williams, 1992) with returns to the end of the episode or over n steps, and PPO
 *  (Schulman et al., 2017) with generalised advantages (Schulman et al., 2016), the whole rollout being one batch. */
ATOLL_API atoll_err atoll_rl_create(MPI_Comm comm, const atoll_rl_env *env, const atoll_rl_params *params, FILE *trace,
                                    atoll_rl **out);
/** Collective. */
ATOLL_API void atoll_rl_destroy(atoll_rl **rl);
/** Collective. k more iterations, in runs of at most params->chunk; report: [k], or NULL. A failure leaves the learner
 * as it was before the run that failed. Parameters are the same on all ranks, to the bit, after each run. NONFINITE,
 * MISMATCH or UNAVAILABLE, on every rank, name the environment, iteration and step that went wrong. What else fails
 * (NOMEM; IO of params->offload) may do so on one rank alone, while others wait for it within their run: programs hand
 * the code to atoll_rl_leave_alone(). */
ATOLL_API atoll_err atoll_rl_learn(atoll_rl *rl, int64_t k, atoll_rl_report *report);
/** Local, right after atoll_rl_learn(): returns its code where every rank has it, so that ranks leave together. Where
 * others may wait for this rank, it ends the job by atoll_abort(); watch: borrowed, may be NULL. */
ATOLL_API atoll_err atoll_rl_leave_alone(const atoll_rl *rl, atoll_watch *watch, atoll_err err);
/** Collective. Mean return of `episodes` episodes with the likeliest actions; those that do not end are cut at the
 *  environment's limit, or after T steps where it has none. */
ATOLL_API atoll_err atoll_rl_evaluate(atoll_rl *rl, int64_t episodes, double *mean_return);
/** What a checkpoint holds: parameters, moments, and this rank's block of the environments. Borrowed; filling them and
 *  atoll_rl_set_iteration() resumes, bit for bit on the same ranks. */
ATOLL_API const atoll_tensor *atoll_rl_tensors(const atoll_rl *rl, int *n);
ATOLL_API int64_t atoll_rl_iteration(const atoll_rl *rl);
ATOLL_API void atoll_rl_set_iteration(atoll_rl *rl, int64_t iteration);
/** Most bytes of values that learning holds at a time. */
ATOLL_API atoll_err atoll_rl_peak_bytes(const atoll_rl *rl, int64_t *bytes);

ATOLL_END_C
#endif

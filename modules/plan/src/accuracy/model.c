/* The refined cost of a run: the scorer's additive form, with what the published trainer really does put in where the
 * scorer leaves it out. What can be derived from the profile and the network is; a constant stands only for what
 * neither knows.
 *
 *   t_i  = (1 + alpha) c_i + m_i + a_i          one micro-batch on stage i
 *   T    = max_i (G_i - 1) t_i + sum_i t_i + max_i u_i + max_i (y_i + f_i)
 *   M    = max_i 20 w_i + F_i A_i + psi A_i / l_i + rho
 *
 *   c  forward and backward as profiled; m  messages; u  update; y  ring over replicas; w  parameters of a device
 *   A  stored activations of one micro-batch; F  micro-batches in flight; G  micro-batches; l  layers
 *
 * Messages m. A stage is at both ends of them: it receives activations and sends gradients at its front, sends
 * activations and receives gradients at its back, and the trainer's sends and receives are not overlapped with its own
 * compute (PyTorch send and recv between steps of the 1F1B schedule). So every boundary of a stage counts twice; the
 * scorer counts a middle stage's boundaries once.
 *
 * Update u. The `update` of a profile is the optimizer step of the short model that was profiled (embedding, two
 * blocks, head: the profiler runs --num_prof_layers 2), repeated for each layer. Read so, fused Adam's 28 bytes per
 * parameter (gradient, two moments and weight read, three written) pass at 2.7 TB/s on GH200, 1.24 on A100-40 and 0.75
 * on V100, 70 to 85 % of their memories' rates, at every degree and for both models; read as one layer's it would be a
 * tenth. Hence u_i = update * parameters of the stage / parameters of the short model.
 *
 * Gradients beyond the first micro-batch a = 12/28 u: adding to a gradient reads two values and writes one. The profile
 * does not have it, as it ran one micro-batch per step. Flat copies f = 24/28 u where there are replicas: the trainer
 * copies gradients into one buffer, scales it, and copies the sums back, two passes each.
 *
 * alpha. Layers of a whole model in a steady pipeline against two layers profiled alone, one micro-batch a step: lower
 * clocks under sustained load, launch gaps between layers that per-layer timers do not see, reading of samples.
 *
 * Memory. 20 bytes per parameter: weight, gradient and two moments of Adam, and the flat gradients; the copies made at
 * start are gone before activations peak. psi: what the backward of a layer holds beside what forward stored (its
 * gradients, temporaries, the allocator's rounding), in stored activations of a mean layer. rho: what the runtime keeps
 * outside tensors (context, kernels, communicators, allocator); unfitted, the 5.06e9 of the published estimate.
 *
 * Which terms there are was decided knowing all 25 published GH200 runs; the constants never come from the runs they
 * are judged by. */
#include <math.h>
#include <string.h>

#include "accuracy/accuracy.h"

#define UPDATE_PASSES     28.0 /* bytes per parameter */
#define ACCUMULATE_PASSES 12.0
#define FLATTEN_PASSES    24.0
#define STATE_BYTES       20.0

static const accuracy_constant time_constants[] = {
    {"compute in a whole run over the profile, less one (alpha)", "1", 0}};
static const accuracy_constant memory_constants[] = {
    {"backward's workspace in activations of a mean layer (psi)", "1", 0},
    {"kept outside tensors (rho)", "bytes", 5.06e9}};

int accuracy_constant_count(atoll_accuracy_what what) { return what == ATOLL_ACCURACY_TIME ? 1 : 2; }

const accuracy_constant *accuracy_constant_at(atoll_accuracy_what what, int k) {
  return what == ATOLL_ACCURACY_TIME ? &time_constants[k] : &memory_constants[k];
}

/* One micro-batch on a stage without alpha's part. */
static double plain(const accuracy_stage *s) {
  return s->compute + s->messages + ACCUMULATE_PASSES / UPDATE_PASSES * s->update;
}

static void time_terms(const accuracy_run *run, const double *constant, double *base, double *term) {
  double most = -1, update = 0, sum = 0;
  *base = term[0] = 0;
  const accuracy_stage *slowest = run->stage;
  for (int i = 0; i < run->stages; i++) {
    const accuracy_stage *s = &run->stage[i];
    double steady = (double)(s->micro_batches - 1) * (plain(s) + constant[0] * s->compute);
    if (steady > most)
      most = steady, slowest = s;
    *base += plain(s);
    term[0] += s->compute;
    update = fmax(update, s->update);
    if (s->sum > 0)
      sum = fmax(sum, s->sum + FLATTEN_PASSES / UPDATE_PASSES * s->update);
  }
  *base += (double)(slowest->micro_batches - 1) * plain(slowest) + update + sum;
  term[0] += (double)(slowest->micro_batches - 1) * slowest->compute;
}

static void memory_terms(const accuracy_run *run, const double *constant, double *base, double *term) {
  double most = -INFINITY;
  for (int i = 0; i < run->stages; i++) {
    const accuracy_stage *s = &run->stage[i];
    double fixed = STATE_BYTES * s->parameters + (double)s->in_flight * s->activation,
           layer = s->activation / s->layers;
    if (fixed + constant[0] * layer > most) {
      most = fixed + constant[0] * layer;
      *base = fixed;
      term[0] = layer;
    }
  }
  term[1] = 1;
}

void accuracy_terms(const accuracy_run *run, atoll_accuracy_what what, const double *constant, double *base,
                    double term[ACCURACY_CONSTANTS]) {
  memset(term, 0, ACCURACY_CONSTANTS * sizeof *term);
  if (what == ATOLL_ACCURACY_TIME)
    time_terms(run, constant, base, term);
  else
    memory_terms(run, constant, base, term);
}

double accuracy_predict(const accuracy_run *run, atoll_accuracy_what what, const double *constant) {
  double base, term[ACCURACY_CONSTANTS];
  accuracy_terms(run, what, constant, &base, term);
  for (int k = 0; k < accuracy_constant_count(what); k++)
    base += term[k] * constant[k];
  return base;
}

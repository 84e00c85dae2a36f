/* What both solvers share: the objective, the checks, and the comparison. */
#include "interstage/interstage.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AGREE 1e-9 /* relative */

double interstage_value(const interstage_problem *p, const int *choice, double *bottleneck, double *sum) {
  double most = 0, total = 0, extra = -INFINITY;
  for (int i = 0; i < p->stages; i++) {
    const interstage_option *o = &p->stage[i].option[choice[i]];
    extra = o->d - total > extra ? o->d - total : extra;
    most = o->t > most ? o->t : most;
    total += o->t;
  }
  if (bottleneck)
    *bottleneck = most;
  if (sum)
    *sum = total;
  return (double)(p->micro_batches - 1) * most + total + extra;
}

static atoll_err check(const interstage_problem *p) {
  if (p->stages < 1 || p->layers < 1 || p->micro_batches < 1)
    return atoll_fail(ATOLL_USAGE, "inter-stage: %d stages, %d layers, %" PRId64 " micro-batches; expected 1 or more",
                      p->stages, p->layers, p->micro_batches);
  for (int i = 0; i < p->stages; i++)
    for (int k = 0; k < p->stage[i].options; k++) {
      const interstage_option *o = &p->stage[i].option[k];
      if (o->layers < 1 || o->layers > p->layers || o->first < -1 || o->first > p->layers - o->layers)
        return atoll_fail(ATOLL_USAGE, "inter-stage: stage %d option %d: %d layers from %d on, there are %d", i, k,
                          o->layers, o->first, p->layers);
      if (!(o->t >= 0) || !isfinite(o->t) || !isfinite(o->d))
        return atoll_fail(ATOLL_USAGE,
                          "inter-stage: stage %d option %d: t %g s, d %g s; expected numbers, t not negative", i, k,
                          o->t, o->d);
    }
  return ATOLL_OK;
}

/* Is there any choice at all? Asked before either solver starts. */
static atoll_err check_reach(const interstage_problem *p) {
  size_t width = (size_t)p->layers + 1;
  unsigned char *reach = calloc((size_t)p->stages + 1, width);
  if (!reach)
    return atoll_fail(ATOLL_NOMEM, "inter-stage: no memory for %d stages of %d layers", p->stages, p->layers);
  reach[0] = 1;
  for (int i = 0; i < p->stages; i++) {
    const unsigned char *at = reach + (size_t)i * width;
    unsigned char *next = reach + ((size_t)i + 1) * width;
    for (int k = 0; k < p->stage[i].options; k++) {
      const interstage_option *o = &p->stage[i].option[k];
      for (int a = o->first < 0 ? 0 : o->first; a <= (o->first < 0 ? p->layers - o->layers : o->first); a++)
        next[a + o->layers] |= at[a];
    }
  }
  int any = reach[(size_t)p->stages * width + (size_t)p->layers];
  free(reach);
  return any ? ATOLL_OK
             : atoll_fail(ATOLL_INFEASIBLE, "inter-stage: no choice of options of %d stages adds up to %d layers",
                          p->stages, p->layers);
}

static atoll_err solve_both(const interstage_problem *p, int *choice, interstage_answer *out) {
  interstage_answer other;
  int *theirs = calloc((size_t)p->stages, sizeof *theirs);
  if (!theirs)
    return atoll_fail(ATOLL_NOMEM, "inter-stage: no memory for %d stages", p->stages);
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, interstage_dp(p, choice, out));
  ATOLL_TRY_GOTO(err, done, interstage_cbc(p, theirs, &other));
  if (other.proved && fabs(other.value - out->value) > AGREE * fmax(fabs(other.value), fabs(out->value)))
    err = atoll_fail(ATOLL_INTERNAL, "inter-stage: the dynamic program finds %.17g s, the integer program %.17g s",
                     out->value, other.value);
done:
  free(theirs);
  return err;
}

atoll_err interstage_solve(const interstage_problem *p, interstage_solver solver, int *choice, interstage_answer *out) {
  ATOLL_TRY(check(p));
  if (solver != INTERSTAGE_DP && !interstage_have_cbc())
    return atoll_fail(
        ATOLL_UNSUPPORTED,
        "plan.interstage=%s needs the CBC library, which this build or machine lacks; dp finds plans as fast",
        solver == INTERSTAGE_CBC ? "cbc" : "both");
  ATOLL_TRY(check_reach(p));
  interstage_answer answer;
  int *mine = calloc((size_t)p->stages, sizeof *mine);
  if (!mine)
    return atoll_fail(ATOLL_NOMEM, "inter-stage: no memory for %d stages", p->stages);
  atoll_err err = solver == INTERSTAGE_DP    ? interstage_dp(p, mine, &answer)
                  : solver == INTERSTAGE_CBC ? interstage_cbc(p, mine, &answer)
                                             : solve_both(p, mine, &answer);
  if (err == ATOLL_OK) {
    memcpy(choice, mine, (size_t)p->stages * sizeof *mine);
    *out = answer;
  }
  free(mine);
  return err;
}

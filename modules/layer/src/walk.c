/* Runs a schedule: finds where everything lies, and does the steps in order. */
#include <string.h>

#include "schedule.h"

typedef struct bases {
  const void *x, *dy;
  void *y, *dx, *work;
} bases;

static void *locate(const layer_call *l, const block_plan *b, const schedule *s, place at, const bases *base) {
  void *arg = NULL;
  switch (at.kind) {
  case PLACE_X:
    memcpy(&arg, &base->x, sizeof arg); /* read only, in a table of places that mostly are not */
    return arg;
  case PLACE_DY:
    memcpy(&arg, &base->dy, sizeof arg);
    return arg;
  case PLACE_Y:
    return base->y;
  case PLACE_DX:
    return base->dx;
  case PLACE_SAVED:
    return piece(&b->saved, l->b->saved, at.piece, l->c->B, l->c->S);
  case PLACE_CARRIED:
    return piece(&b->carried, l->b->carried, at.piece, l->c->B, l->c->S);
  case PLACE_WORK:
    return piece(&s->work, base->work, at.piece, l->c->B, l->c->S);
  default:
    return NULL;
  }
}

static atoll_err run_step(const op_run *r) {
  const op_type *t = &op_types[r->op->kind];
  switch (r->step->kind) {
  case STEP_FORWARD:
    return t->forward(r);
  case STEP_INPUT:
    return t->input(r);
  default:
    return r->l->b->grad[r->op->weight] ? t->weight(r) : ATOLL_OK;
  }
}

/* An MLP whole is one operation, that of the pipelined one. */
static layer_way way_of(const layer_call *l) {
  int whole = l->b->mlp || (l->cache && l->cache->single && l->e->kernels->decode->mlp);
  return (layer_way){layer_degree(l->e), whole ? ATOLL_MLP_CTA : ATOLL_MLP_PLAIN};
}

/* Scratch is released when the call that uses it is enqueued: later users are behind it in the same queue. */
atoll_err block_run(const layer_call *l, int call, const void *x, void *y, const void *dy, void *dx) {
  block_plan b;
  ATOLL_TRY(block_make(l->m, l->layer, l->policy, way_of(l), &b));
  const schedule *s = &b.call[call];
  if (!x && b.p.kept[PROGRAM_X])
    return atoll_fail(ATOLL_USAGE, "layer %d: input missing", l->layer);
  if (b.p.style && !l->e->kernels->keep)
    return atoll_fail(ATOLL_UNSUPPORTED, "layer %d: memory policy %s needs kernels that '%s' lacks", l->layer,
                      atoll_policy_name(l->policy), l->e->kernels->name);
  bases base = {x, dy, y, dx, NULL};
  size_t mark = atoll_arena_mark(l->e->work);
  ATOLL_TRY(atoll_arena_push(l->e->work, (size_t)pieces_bytes(&s->work, l->c->B, l->c->S), &base.work));
  op_run r = {.l = l, .b = &b, .s = s};
  for (int id = 0; id < IDS; id++)
    r.at[id] = locate(l, &b, s, s->at[id], &base);
  atoll_err err = ATOLL_OK;
  for (int i = 0, joined; i < s->n && err == ATOLL_OK; i += 1 + joined) {
    r.step = &s->step[i];
    r.op = &b.p.op[r.step->op];
    joined = 0;
    if (i + 1 < s->n)
      err = op_join(&r, &s->step[i + 1], &joined);
    if (err == ATOLL_OK && !joined)
      err = run_step(&r);
  }
  atoll_arena_release(l->e->work, mark);
  return err;
}

/* Folding pads into storage. A tensor that is a constant at some points and elsewhere a view of another,
 *
 *     m[t==0] = 0;  m[true] = h[t-1]        or        h[t==0] = 0;  h[true] = y;   read as h[t-1]
 *
 * costs a copy of each value. Where all readers come to the other tensor's points by a shift, they read these, or one
 * value of the constant, which is stored once for a run: a choice of a pointer, outside of their loops; m is not
 * computed any more. Reads over slices stay: a slice ends where the tensor does, so that nothing is padded for it, and
 * tiles of slices (tile.c) are cut at the slice's ends instead of masked. */
#include <string.h>

#include "passes.h"

/* Operations that read an operand through a pointer to one dense value. */
static int reads_by_pointer(const atoll_rt *x) {
  return rt_is_element(x->op) || x->op == RT_EINSUM || x->op == RT_SUM || x->op == RT_MAXIMUM;
}

/* Of cases "constant, else a view", or the other way round. */
struct pad {
  const atoll_rt *m;
  const rt_edge *view;
  atoll_rt *src;         /* of the view */
  double value;          /* of the constant */
  const atoll_sym *cond; /* when it is the view */
};

/* Whether all elements of x are one number. */
static int is_number(const rt_graph *g, const atoll_rt *x, double *v) {
  while (x->op == RT_EXPAND || x->op == RT_RESHAPE || x->op == RT_IDENT)
    x = rt_src(g, &x->in[0]);
  *v = x->value;
  return x->op == RT_CONST;
}

static int is_padded(rt_graph *g, const atoll_rt *m, struct pad *p) {
  if (m->op != RT_MERGE || m->inputs != 2 || !m->in[0].cond)
    return 0;
  double other;
  const int first = is_number(g, rt_src(g, &m->in[0]), &other); /* the constant */
  *p = (struct pad){.m = m, .view = &m->in[first], .src = rt_src(g, &m->in[first])};
  p->cond = first ? atoll_sym_not(g->syms, m->in[0].cond) : m->in[0].cond;
  if (!is_number(g, rt_src(g, &m->in[!first]), &p->value) || is_number(g, p->src, &other) || p->src == m ||
      rt_slices(g, p->view) || (p->src->padded && memcmp(&p->src->pad, &p->value, sizeof p->value) != 0))
    return 0;
  for (int k = 0; k < p->src->axes; k++)
    if (rt_dims_of(g, p->src->shape[k]))
      return 0;
  return 1;
}

/* The reader's edge to m as one to what m pads; 0: it cannot be. */
static int folded(rt_graph *g, const struct pad *p, const atoll_rt *reader, const rt_edge *e, rt_edge *out) {
  const atoll_sym *point[RT_DIMS];
  if (!reads_by_pointer(reader) || e->cond || rt_slices(g, e) || !rt_compose(g, e, p->m, p->view, out) ||
      rt_is_identity(g, out))
    return 0;
  for (int d = 0; d < g->dims; d++)
    point[d] = e->item[d].lo;
  out->cond = rt_substitute(g, p->cond, p->m->dims, point);
  return 1;
}

/* Whether all readers can; `change`: they do. */
static int fold(rt_graph *g, const struct pad *p, int change) {
  int readers = 0;
  for (int i = 0; i < g->nodes; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      rt_edge *e = &g->node[i]->in[k], out;
      if (e->src != p->m->id)
        continue;
      if (!folded(g, p, g->node[i], e, &out))
        return 0;
      readers++;
      if (change)
        *e = out;
    }
  return readers;
}

atoll_err rt_pass_pads(rt_graph *g) {
  int changed = 0;
  for (int i = 0; i < g->nodes; i++) {
    struct pad p;
    if (!g->node[i] || !is_padded(g, g->node[i], &p) || !fold(g, &p, 0))
      continue;
    (void)fold(g, &p, 1);
    p.src->padded = 1;
    p.src->pad = p.value;
    changed = 1;
  }
  ATOLL_TRY(rt_graph_error(g));
  return changed ? rt_pass_domains(g) : ATOLL_OK;
}

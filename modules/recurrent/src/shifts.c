/* Loops by levels. At each level the statements' strongly connected components are taken in the order of dependences;
 * as many as possible share a loop over one dimension, in one direction, where shifts allow it: with theta(S) = +-p_d +
 * shift(S), an edge whose least distance along the dimension is m wants shift(reader) >= shift(source) - m, a system of
 * difference constraints that Bellman and Ford's algorithm solves or proves to have none. Edges that come out strictly
 * satisfied are done, the rest goes to the next level. (Allen and Kennedy's loop distribution with shifted fusion.) */
#include "shifts.h"

#include <isl/constraint.h>
#include <isl/id.h>
#include <isl/ilp.h>
#include <isl/local_space.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>
#include <stdlib.h>
#include <string.h>

#include "poly.h"

enum { ENTRIES = 2 * RT_DIMS + 2 };

typedef struct entry { /* one coordinate of a statement's time */
  int dim;             /* -1: shift alone */
  int sign;
  int64_t shift;
} entry;

typedef struct statement {
  int node; /* of the group's head */
  entry time[ENTRIES];
  int entries;
  unsigned used; /* dimensions that have a loop */
  int64_t shift; /* at the level that is being tried */
  int component, visit, low;
} statement;

typedef struct edge {
  int reader, src; /* statements */
  isl_map *map;    /* pairs that are not ordered yet */
  int both;        /* mask: dimensions of both */
  int64_t least[RT_DIMS][2];
  char bounded[RT_DIMS][2]; /* for the direction + and - */
  int done;
} edge;

struct shifts {
  const rt_graph *g;
  statement *s;
  int statements;
  edge *e;
  int edges, room;
  isl_ctx *ctx;
  atoll_err err;
};

/* ---- edges ---- */

static int position(const atoll_rt *x, int dim) { return __builtin_popcount(x->dims & ((1u << dim) - 1)); }

/* Least of out - in and of in - out along one dimension. */
static void distance(edge *e, isl_map *map, const atoll_rt *reader, const atoll_rt *src, int d) {
  isl_map *m = isl_map_copy(map);
  int in = position(reader, d), out = position(src, d);
  unsigned n = (unsigned)isl_map_dim(m, isl_dim_in);
  m = isl_map_reset_tuple_id(isl_map_reset_tuple_id(m, isl_dim_in), isl_dim_out);
  m = isl_map_project_out(m, isl_dim_in, (unsigned)in + 1, n - (unsigned)in - 1);
  m = isl_map_project_out(m, isl_dim_in, 0, (unsigned)in);
  n = (unsigned)isl_map_dim(m, isl_dim_out);
  m = isl_map_project_out(m, isl_dim_out, (unsigned)out + 1, n - (unsigned)out - 1);
  m = isl_map_project_out(m, isl_dim_out, 0, (unsigned)out);
  m = isl_map_project_out(m, isl_dim_param, 0, (unsigned)isl_map_dim(m, isl_dim_param));
  isl_set *delta = isl_map_deltas(m); /* source - reader */
  isl_val *most = isl_set_dim_max_val(isl_set_copy(delta), 0), *least = isl_set_dim_min_val(delta, 0);
  e->bounded[d][0] = isl_val_is_int(most) == isl_bool_true;
  e->bounded[d][1] = isl_val_is_int(least) == isl_bool_true;
  e->least[d][0] = e->bounded[d][0] ? -isl_val_get_num_si(most) : 0;
  e->least[d][1] = e->bounded[d][1] ? isl_val_get_num_si(least) : 0;
  isl_val_free(most);
  isl_val_free(least);
}

static void measure(const struct shifts *a, edge *e) {
  const atoll_rt *reader = a->g->node[a->s[e->reader].node], *src = a->g->node[a->s[e->src].node];
  e->done = isl_map_is_empty(e->map) == isl_bool_true;
  for (int d = 0; d < a->g->dims && !e->done; d++)
    if (e->both >> d & 1)
      distance(e, e->map, reader, src, d);
}

/* Leaves the pairs that the loop over d gives the same time. */
static void restrict_to_ties(const struct shifts *a, edge *e, int d, int direction) {
  const statement *r = &a->s[e->reader], *q = &a->s[e->src];
  int sign = direction ? -1 : 1;
  isl_constraint *c = isl_constraint_alloc_equality(isl_local_space_from_space(isl_map_get_space(e->map)));
  c = isl_constraint_set_coefficient_si(c, isl_dim_in, position(a->g->node[r->node], d), sign);
  c = isl_constraint_set_coefficient_si(c, isl_dim_out, position(a->g->node[q->node], d), -sign);
  c = isl_constraint_set_constant_si(c, (int)(r->shift - q->shift));
  e->map = isl_map_add_constraint(e->map, c);
  measure(a, e);
}

static int find(const struct shifts *a, const char *tuple) {
  int id = atoi(tuple + 1);
  for (int i = 0; i < a->statements; i++)
    if (a->s[i].node == id)
      return i;
  return -1;
}

static isl_stat add_edge(isl_map *map, void *user) {
  struct shifts *a = user;
  if (a->edges == a->room) {
    int room = a->room ? 2 * a->room : 32;
    edge *more = realloc(a->e, (size_t)room * sizeof *more);
    if (!more) {
      a->err = atoll_fail(ATOLL_NOMEM, "schedule: no memory");
      isl_map_free(map);
      return isl_stat_error;
    }
    a->e = more;
    a->room = room;
  }
  edge *e = &a->e[a->edges++];
  memset(e, 0, sizeof *e);
  e->reader = find(a, isl_map_get_tuple_name(map, isl_dim_in));
  e->src = find(a, isl_map_get_tuple_name(map, isl_dim_out));
  e->both = (int)(a->g->node[a->s[e->reader].node]->dims & a->g->node[a->s[e->src].node]->dims);
  e->map = map;
  measure(a, e);
  return isl_stat_ok;
}

/* ---- components (Tarjan); numbered so that sources come first ---- */

struct search {
  struct shifts *a;
  const int *in; /* per statement: part of this level */
  int *stack, n, visits, components;
};

static void connect(struct search *c, int v) {
  statement *s = c->a->s;
  s[v].visit = s[v].low = ++c->visits;
  s[v].component = -1;
  c->stack[c->n++] = v;
  for (int k = 0; k < c->a->edges; k++) {
    const edge *e = &c->a->e[k];
    if (e->done || e->reader != v || !c->in[e->src])
      continue;
    int w = e->src;
    if (!s[w].visit)
      connect(c, w);
    if (s[w].component < 0 && s[w].low < s[v].low)
      s[v].low = s[w].low;
  }
  if (s[v].low != s[v].visit)
    return;
  for (int w = -1; w != v;) {
    w = c->stack[--c->n];
    s[w].component = c->components;
  }
  c->components++;
}

/* ---- one loop ---- */

/* Shifts for the statements of the components in `cluster` along d; 0 when there are none. */
static int try_loop(struct shifts *a, const int *in, const char *cluster, int d, int direction) {
  statement *s = a->s;
  int count = 0;
  for (int i = 0; i < a->statements; i++) {
    if (!in[i] || !cluster[s[i].component])
      continue;
    if (!rt_has(a->g->node[s[i].node], d) || s[i].used >> d & 1u)
      return 0;
    s[i].shift = 0;
    count++;
  }
  for (int round = 0; round <= count; round++) {
    int changed = 0;
    for (int k = 0; k < a->edges; k++) {
      const edge *e = &a->e[k];
      const statement *r = &s[e->reader], *q = &s[e->src];
      if (e->done || !in[e->reader] || !in[e->src] || !cluster[r->component] || !cluster[q->component])
        continue;
      if (!e->bounded[d][direction])
        return 0;
      int64_t least = q->shift - e->least[d][direction];
      if (r->shift < least) {
        s[e->reader].shift = least;
        changed = 1;
      }
    }
    if (!changed)
      return 1;
  }
  return 0;
}

static void put(statement *s, int dim, int sign, int64_t shift) {
  s->time[s->entries++] = (entry){dim, sign, shift};
  if (dim >= 0)
    s->used |= 1u << dim;
}

static atoll_err level(struct shifts *a, const int *in);

/* The cluster gets this loop, then the next level. */
static atoll_err descend(struct shifts *a, const int *in, const char *cluster, int d, int direction) {
  statement *s = a->s;
  int *inner = calloc((size_t)a->statements + 1, sizeof *inner);
  if (!inner)
    return atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  for (int i = 0; i < a->statements; i++)
    if (in[i] && cluster[s[i].component]) {
      inner[i] = 1;
      put(&s[i], d, direction ? -1 : 1, s[i].shift);
    }
  for (int k = 0; k < a->edges; k++) {
    edge *e = &a->e[k];
    if (!e->done && inner[e->reader] && inner[e->src])
      restrict_to_ties(a, e, d, direction);
  }
  atoll_err err = level(a, inner);
  free(inner);
  return err;
}

static int is_read(const struct shifts *a, const int *in, int i) {
  for (int k = 0; k < a->edges; k++)
    if (!a->e[k].done && a->e[k].src == i && in[a->e[k].reader])
      return 1;
  return 0;
}

static int find_components(struct shifts *a, const int *in, int *stack) {
  struct search c = {.a = a, .in = in, .stack = stack};
  for (int i = 0; i < a->statements; i++)
    a->s[i].visit = 0;
  /* From what nothing reads, so that a source comes right before its first reader and not as early as it could. */
  for (int i = 0; i < a->statements; i++)
    if (in[i] && !a->s[i].visit && !is_read(a, in, i))
      connect(&c, i);
  for (int i = 0; i < a->statements; i++)
    if (in[i] && !a->s[i].visit)
      connect(&c, i);
  return c.components;
}

/* A component of one statement without an edge to itself needs no loop for the order's sake. */
static int has_cycle(const struct shifts *a, const int *in, int component) {
  for (int k = 0; k < a->edges; k++) {
    const edge *e = &a->e[k];
    if (!e->done && in[e->reader] && in[e->src] && a->s[e->reader].component == component &&
        a->s[e->src].component == component)
      return 1;
  }
  return 0;
}

/* Whether component c reads one that is marked. */
static int reads_marked(const struct shifts *a, const int *in, int c, const char *marked) {
  for (int k = 0; k < a->edges; k++) {
    const edge *e = &a->e[k];
    if (!e->done && in[e->reader] && in[e->src] && a->s[e->reader].component == c && marked[a->s[e->src].component])
      return 1;
  }
  return 0;
}

/* Collects what can share a loop over d: components are taken in order, one that cannot join is passed over, and with
 * it all that depend on it. Returns their number. */
static int gather(struct shifts *a, const int *in, int components, const char *placed, const char *late, int d, int way,
                  char *cluster, char *passed) {
  int n = 0;
  memset(cluster, 0, (size_t)components);
  memset(passed, 0, (size_t)components);
  for (int c = 0; c < components; c++) {
    if (placed[c])
      continue;
    if (late[c]) {
      passed[c] = 1;
      continue;
    }
    cluster[c] = 1;
    if (!reads_marked(a, in, c, passed) && try_loop(a, in, cluster, d, way)) {
      n++;
      continue;
    }
    cluster[c] = 0;
    passed[c] = 1;
    if (n == 0) /* the first must be in it */
      return 0;
  }
  return n;
}

/* The largest cluster with the first component that has no place yet; none: dim stays -1 and it is alone. */
static void choose(struct shifts *a, const int *in, int components, const char *placed, const char *late, char *cluster,
                   char *passed, int *dim, int *direction) {
  int best = 0, first = 0;
  *dim = -1;
  for (int d = 0; d < a->g->dims; d++)
    for (int way = 0; way < 2; way++) {
      int n = gather(a, in, components, placed, late, d, way, cluster, passed);
      if (n > best) {
        best = n;
        *dim = d;
        *direction = way;
      }
    }
  if (*dim >= 0) {
    (void)gather(a, in, components, placed, late, *dim, *direction, cluster, passed);
    return;
  }
  while (placed[first] || late[first])
    first++;
  memset(cluster, 0, (size_t)components);
  cluster[first] = 1;
}

struct level {
  char *placed, *late, *early, *cluster, *passed;
  int *stack, *component;
};

/* Whether component c reads another that is not done. */
static int waits(const struct shifts *a, const int *in, int c, const char *done) {
  for (int k = 0; k < a->edges; k++) {
    const edge *e = &a->e[k];
    const int src = a->s[e->src].component;
    if (!e->done && in[e->reader] && in[e->src] && a->s[e->reader].component == c && src != c && !done[src])
      return 1;
  }
  return 0;
}

/* Dimensions of statements without a place, by number of statements. */
static void count_dimensions(const struct shifts *a, const int *in, const char *placed, int count[RT_DIMS]) {
  memset(count, 0, RT_DIMS * sizeof *count);
  for (int i = 0; i < a->statements; i++)
    for (int d = 0; d < a->g->dims && in[i] && !placed[a->s[i].component]; d++)
      count[d] += rt_has(a->g->node[a->s[i].node], d) && !(a->s[i].used >> d & 1u);
}

/* Components that can share a loop over d when all that lacks d and needs nothing that has it is done before. */
static int gather_later(struct shifts *a, const int *in, int components, const struct level *l, int d) {
  int most = 0;
  char *lacks = l->late, *early = l->early;
  memset(lacks, 1, (size_t)components);
  for (int i = 0; i < a->statements; i++)
    if (in[i] && rt_has(a->g->node[a->s[i].node], d))
      lacks[a->s[i].component] = 0;
  memcpy(early, l->placed, (size_t)components);
  for (int c = 0; c < components; c++) /* sources have lower numbers */
    early[c] = l->placed[c] || (lacks[c] && !waits(a, in, c, early));
  memset(l->late, 0, (size_t)components);
  for (int way = 0; way < 2; way++) {
    int n = gather(a, in, components, early, l->late, d, way, l->cluster, l->passed);
    most = n > most ? n : most;
  }
  return most;
}

/* The dimension over which most components can share a loop; where only one is left, that. */
static int widest_dimension(struct shifts *a, const int *in, int components, const struct level *l) {
  int count[RT_DIMS], found = 0, widest = 0, most = -1;
  count_dimensions(a, in, l->placed, count);
  for (int d = 0; d < a->g->dims; d++)
    if (count[d]) {
      found++;
      widest = d;
    }
  for (int d = 0; d < a->g->dims && found > 1; d++) {
    int n = count[d] ? gather_later(a, in, components, l, d) : 0;
    if (n > most) {
      widest = d;
      most = n;
    }
  }
  return widest;
}

/* The widest dimension is left for last: what lacks it and can come now would else stand between statements that could
 * share its loop. */
static void postpone(struct shifts *a, const int *in, int components, const struct level *l) {
  const int widest = widest_dimension(a, in, components, l);
  int ready = 0;
  memset(l->late, 0, (size_t)components);
  for (int i = 0; i < a->statements; i++)
    if (in[i] && rt_has(a->g->node[a->s[i].node], widest))
      l->late[a->s[i].component] = 1;
  for (int c = 0; c < components; c++) {
    if (l->placed[c] || l->late[c])
      continue;
    l->late[c] = (char)waits(a, in, c, l->placed);
    ready |= !l->late[c];
  }
  if (!ready)
    memset(l->late, 0, (size_t)components);
}

static atoll_err order_level(struct shifts *a, const int *in, struct level *l) {
  int components = find_components(a, in, l->stack), left = components;
  for (int i = 0; i < a->statements; i++)
    l->component[i] = a->s[i].component;
  for (int index = 0; left > 0; index++) {
    int d = -1, direction = 0;
    for (int i = 0; i < a->statements; i++) /* deeper levels number components anew */
      a->s[i].component = l->component[i];
    postpone(a, in, components, l);
    choose(a, in, components, l->placed, l->late, l->cluster, l->passed, &d, &direction);
    for (int c = 0; c < components; c++) {
      if (!l->cluster[c])
        continue;
      if (d < 0 && has_cycle(a, in, c))
        return atoll_fail(ATOLL_INFEASIBLE, "schedule: no loop over one dimension orders a recurrence");
      l->placed[c] = 1;
      left--;
    }
    for (int i = 0; i < a->statements; i++)
      if (in[i] && l->cluster[a->s[i].component])
        put(&a->s[i], -1, 0, index);
    if (d >= 0 && try_loop(a, in, l->cluster, d, direction))
      ATOLL_TRY(descend(a, in, l->cluster, d, direction));
  }
  return ATOLL_OK;
}

static atoll_err level(struct shifts *a, const int *in) {
  size_t n = (size_t)a->statements + 1;
  struct level l = {calloc(n, 1), calloc(n, 1),           calloc(n, 1),          calloc(n, 1),
                    calloc(n, 1), calloc(n, sizeof(int)), calloc(n, sizeof(int))};
  atoll_err err = ATOLL_OK;
  if (l.placed && l.late && l.early && l.cluster && l.passed && l.stack && l.component)
    err = order_level(a, in, &l);
  else
    err = atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  free(l.placed);
  free(l.late);
  free(l.early);
  free(l.cluster);
  free(l.passed);
  free(l.stack);
  free(l.component);
  return err;
}

/* ---- the result ---- */

static isl_union_map *read_times(const struct shifts *a) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  int length = 0;
  if (!f)
    return NULL;
  for (int i = 0; i < a->statements; i++)
    if (a->s[i].entries > length)
      length = a->s[i].entries;
  rt_poly_print_parameters(a->g, f);
  fputs("{ ", f);
  for (int i = 0; i < a->statements; i++) {
    const statement *s = &a->s[i];
    const atoll_rt *x = a->g->node[s->node];
    int k = 0;
    fprintf(f, "%sS%d[", i ? "; " : "", s->node);
    for (int d = 0; d < a->g->dims; d++)
      if (rt_has(x, d))
        fprintf(f, "%s%s", k++ ? "," : "", a->g->dim[d].name);
    fputs("] -> [", f);
    for (k = 0; k < length; k++) {
      const entry *t = k < s->entries ? &s->time[k] : &(entry){-1, 0, 0};
      fprintf(f, "%s%lld", k ? ", " : "", (long long)t->shift);
      if (t->dim >= 0)
        fprintf(f, " %c %s", t->sign < 0 ? '-' : '+', a->g->dim[t->dim].name);
    }
    fputs("]", f);
  }
  fputs(" }", f);
  isl_union_map *map = fclose(f) == 0 ? isl_union_map_read_from_str(a->ctx, text) : NULL;
  free(text);
  return map;
}

static int collect_statements(struct shifts *a) {
  a->s = calloc((size_t)a->g->nodes + 1, sizeof *a->s);
  for (int i = 0; a->s && i < a->g->nodes; i++) {
    const atoll_rt *x = a->g->node[i];
    if (x && !rt_is_free(x) && (x->group == 0 || x->group - 1 == i))
      a->s[a->statements++].node = i;
  }
  return a->s != NULL;
}

atoll_err rt_shifts(const struct rt_order *o, const rt_graph *g, isl_union_map **time) {
  struct shifts a = {.g = g, .ctx = o->ctx, .err = ATOLL_OK};
  int *in = calloc((size_t)g->nodes + 1, sizeof *in);
  if (!in || !collect_statements(&a))
    a.err = atoll_fail(ATOLL_NOMEM, "schedule: no memory");
  if (a.err == ATOLL_OK)
    (void)isl_union_map_foreach_map(o->needs, add_edge, &a);
  for (int i = 0; in && i < a.statements; i++)
    in[i] = 1;
  if (a.err == ATOLL_OK)
    a.err = level(&a, in);
  if (a.err == ATOLL_OK && !(*time = isl_union_map_intersect_domain(read_times(&a), isl_union_set_copy(o->domain))))
    a.err = rt_poly_error(o->ctx, "schedule: shifts");
  free(in);
  free(a.s);
  for (int k = 0; k < a.edges; k++)
    isl_map_free(a.e[k].map);
  free(a.e);
  return a.err;
}

/* A scheduled program as C11, to be compiled where it runs.
 *
 * The tree becomes loops, and every statement (a group at a point) a function of its own: it declares the sizes and
 * views that its members need, takes room for the values that leave the group, and then computes the members in an
 * order of dependence. Members whose elements are computed one by one from elements at the same position share a loop
 * ("cluster"), where they are variables rather than arrays; an array is made only of what leaves the group or what an
 * operation of another kind reads. Arrays that do not leave the group are workspace, which each statement starts anew.
 *
 * The program knows nothing of storage but rt_slots (emitted.h): where a value lies is a matter of the run. */
#include "emit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_BYTES = 4096 }; /* smaller temporaries are arrays of the function */

/* ---- text ---- */

static const char *keep(rt_emitter *em, char *s) {
  if (s && em->texts == em->text_room) {
    int room = em->text_room ? 2 * em->text_room : 1024;
    char **more = realloc(em->text, (size_t)room * sizeof *more);
    if (more) {
      em->text = more;
      em->text_room = room;
    } else {
      free(s);
      s = NULL;
    }
  }
  if (!s) {
    em->err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
    return "0";
  }
  return em->text[em->texts++] = s;
}

const char *rt_text(rt_emitter *em, const char *fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, args);
  char *s = malloc((size_t)n + 1);
  if (s)
    (void)vsnprintf(s, (size_t)n + 1, fmt, again);
  va_end(again);
  va_end(args);
  return keep(em, s);
}

static void put(rt_emitter *em, const char *fmt, va_list args, const char *end) {
  fprintf(em->out, "%*s", 2 * em->depth, "");
  (void)vfprintf(em->out, fmt, args);
  fputs(end, em->out);
}

void rt_line(rt_emitter *em, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  put(em, fmt, args, "\n");
  va_end(args);
}

void rt_open(rt_emitter *em, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  put(em, fmt, args, *fmt && strcmp(fmt, "%s") != 0 ? " {\n" : "{\n");
  va_end(args);
  em->depth++;
}

void rt_close(rt_emitter *em) {
  em->depth--;
  rt_line(em, "}");
}

void rt_loop(rt_emitter *em, const char *i, const char *n) {
  rt_open(em, "for (int64_t %s = 0; %s < %s; %s++)", i, i, n, i);
}

const char *rt_place(rt_emitter *em, const atoll_rt *x) { return rt_text(em, "p%d", x->id); }

/* ---- members ---- */

static const atoll_rt *member(const rt_emitter *em, int i) {
  return em->g->node[em->members.list[em->members.first[em->head] + i]];
}

static int member_count(const rt_emitter *em) { return em->members.count[em->head]; }
static int is_kept(const rt_emitter *em, const atoll_rt *x) { return em->members.kept[x->id]; }

/* A temporary RESHAPE is another name of its operand. */
static void find_aliases(rt_emitter *em) {
  for (int i = 0; i < member_count(em); i++) {
    const atoll_rt *x = member(em, i);
    em->memory[x->id] = (char)is_kept(em, x);
    em->alias[x->id] = (char)(x->op == RT_RESHAPE && !is_kept(em, x) && rt_src(em->g, &x->in[0])->op != RT_CONST);
  }
}

static int same_shape(const atoll_rt *x, const atoll_rt *y) {
  return x->axes == y->axes && memcmp(x->shape, y->shape, (size_t)x->axes * sizeof *x->shape) == 0;
}

/* The first cluster in which x can be: those of its operands, or later ones. */
static int earliest(const rt_emitter *em, const atoll_rt *x) {
  int least = 0;
  for (int k = 0; k < x->inputs; k++)
    if (rt_is_member(em, &x->in[k]) && !rt_is_formula(em, x, k)) {
      int c = em->cluster[x->in[k].src] + !rt_is_fused(em, x, k);
      least = c > least ? c : least;
    }
  return least;
}

/* Whether cluster c, as members before i make it, is of maps of x's shape. */
static int fits_cluster(const rt_emitter *em, const atoll_rt *x, int i, int c) {
  for (int j = 0; j < i; j++) {
    const atoll_rt *y = member(em, j);
    if (em->cluster[y->id] == c && !em->alias[y->id])
      return rt_is_map(x->op) && rt_is_map(y->op) && same_shape(x, y);
  }
  return 0;
}

/* Members get the numbers of their clusters; returns how many there are. */
static int make_clusters(rt_emitter *em) {
  int n = 0;
  for (int i = 0; i < member_count(em); i++) {
    const atoll_rt *x = member(em, i);
    int at = earliest(em, x);
    if (em->alias[x->id]) {
      em->cluster[x->id] = at - 1;
      continue;
    }
    while (at < n && !fits_cluster(em, x, i, at))
      at++;
    em->cluster[x->id] = at;
    n = at == n ? n + 1 : n;
  }
  return n;
}

/* What is read other than as a variable of the same loop, or as a formula by maps, is in memory. */
static void find_memory(rt_emitter *em) {
  for (int i = member_count(em) - 1; i >= 0; i--) {
    const atoll_rt *x = member(em, i);
    for (int k = 0; k < x->inputs; k++) {
      const atoll_rt *src = rt_src(em->g, &x->in[k]);
      if (!rt_is_member(em, &x->in[k]))
        continue;
      int fused = rt_is_fused(em, x, k) && em->cluster[src->id] == em->cluster[x->id];
      if (!fused && !rt_is_formula(em, x, k))
        em->memory[src->id] = 1;
    }
  }
}

/* The cluster of all that reads x as a variable, or -1. */
static int readers_cluster(const rt_emitter *em, const atoll_rt *x) {
  int found = -1;
  for (int i = 0; i < member_count(em); i++) {
    const atoll_rt *y = member(em, i);
    for (int k = 0; k < y->inputs; k++) {
      if (y->in[k].src != x->id)
        continue;
      if (!rt_is_fused(em, y, k) || (found >= 0 && found != em->cluster[y->id]))
        return -1;
      found = em->cluster[y->id];
    }
  }
  return found;
}

/* Whether x can be computed in a later cluster without a value in memory that would not be there otherwise. */
static int can_wait(const rt_emitter *em, const atoll_rt *x) {
  for (int k = 0; k < x->inputs; k++) {
    const atoll_rt *src = rt_src(em->g, &x->in[k]);
    if (!rt_is_member(em, &x->in[k]) || em->memory[src->id] || em->alias[src->id] || rt_is_formula(em, x, k))
      continue;
    if (readers_cluster(em, src) != em->cluster[x->id] || !can_wait(em, src))
      return 0;
    for (int i = 0; i < member_count(em); i++) /* of these, x alone moves */
      for (int j = 0; member(em, i) != x && j < member(em, i)->inputs; j++)
        if (member(em, i)->in[j].src == src->id)
          return 0;
  }
  return 1;
}

static void move(rt_emitter *em, const atoll_rt *x, int to) {
  for (int k = 0; k < x->inputs; k++) {
    const atoll_rt *src = rt_src(em->g, &x->in[k]);
    if (rt_is_fused(em, x, k) && !em->memory[src->id] && em->cluster[src->id] == em->cluster[x->id])
      move(em, src, to);
  }
  em->cluster[x->id] = to;
}

/* What is in memory only because a later loop reads it is computed there instead, from what is in memory anyhow: the
 * derivative 1 - y y of y = tanh(x) goes to the loop that multiplies by it. */
static void put_off(rt_emitter *em) {
  for (int i = member_count(em) - 1; i >= 0; i--) {
    const atoll_rt *x = member(em, i);
    if (!em->memory[x->id] || is_kept(em, x) || em->alias[x->id] || !rt_is_map(x->op) || x->op == RT_EVAL)
      continue;
    int to = readers_cluster(em, x);
    if (to <= em->cluster[x->id] || !can_wait(em, x))
      continue;
    move(em, x, to);
    em->memory[x->id] = 0;
  }
}

/* ---- statements ---- */

static void declare_result(rt_emitter *em, const atoll_rt *x, const char *const point[RT_DIMS]) {
  const char *type = rt_storage_type(x->dtype), *count = rt_count(em, x->axes, x->shape, 0);
  int64_t n = 1, extent;
  int known = 1;
  if (em->alias[x->id]) {
    rt_operand o = rt_operand_of(em, x, 0, 1);
    rt_line(em, "const %s *p%d = %s;", type, x->id, o.base);
    rt_know(em, rt_text(em, "const %s *", type), rt_place(em, x));
    return;
  }
  rt_know(em, rt_text(em, "%s *", type), rt_place(em, x));
  if (is_kept(em, x)) {
    rt_line(em, "%s *p%d = (%s *)r->take(r, %d, %s, %s * (int64_t)sizeof(%s));", type, x->id, type, x->id,
            rt_point_list(em, x, point), count, type);
  } else {
    for (int k = 0; k < x->axes; k++) {
      known &= rt_is_const(x->shape[k], &extent);
      n *= known ? extent : 1;
    }
    if (!em->kernels && known && n * 8 <= LOCAL_BYTES) {
      rt_line(em, "%s p%d[%" PRId64 "];", type, x->id, n > 0 ? n : 1);
      return;
    }
    rt_line(em, "%s *p%d = (%s *)rt_space(r, %s * (int64_t)sizeof(%s));", type, x->id, type, count, type);
  }
  rt_line(em, "if (!RT_LIKELY(p%d != 0))", x->id);
  rt_line(em, "  return r->error(r);");
}

static void emit_cluster(rt_emitter *em, int c) {
  const atoll_rt **maps = calloc((size_t)member_count(em), sizeof *maps);
  int n = 0;
  if (!maps) {
    em->err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
    return;
  }
  for (int i = 0; i < member_count(em); i++) {
    const atoll_rt *x = member(em, i);
    if (em->cluster[x->id] != c || em->alias[x->id])
      continue;
    if (!rt_is_map(x->op))
      rt_emit_op(em, x);
    else if (x->op != RT_EVAL || em->memory[x->id])
      maps[n++] = x;
  }
  if (n) {
    rt_open(em, "%s", "");
    rt_emit_maps(em, n, maps);
    rt_close(em);
  }
  free(maps);
}

/* Functions go to parts of about the same length, which may be compiled side by side: #if RT_HERE(part). */
static int open_part(rt_emitter *em) {
  int least = 0;
  for (int k = 1; k < RT_PARTS; k++)
    least = em->part[k] < em->part[least] ? k : least;
  fprintf(em->out, "#if RT_HERE(%d)\n", least);
  em->part[least] -= ftell(em->out);
  return least;
}

static void close_part(rt_emitter *em, int part) {
  em->part[part] += ftell(em->out);
  fputs("#endif\n", em->out);
}

static void emit_statement(rt_emitter *em, const atoll_rt *head) {
  const char *point[RT_DIMS], *parameters = "rt_run *r";
  em->head = head->id;
  em->names = em->sizes = em->views = em->knowns = 0;
  for (int d = 0; d < em->g->dims; d++) {
    point[d] = rt_text(em, "d%d", d);
    rt_know(em, "int64_t", rt_text(em, "b%d", d));
    if (!rt_has(head, d))
      continue;
    rt_know(em, "int64_t", point[d]);
    parameters = rt_text(em, "%s, int64_t d%d", parameters, d);
  }
  char label[96];
  const char *declaration = rt_text(em, "RT_FUNCTION int s%d_%d(%s)", em->number, head->id, parameters);
  rt_line(em, "/* %s */", rt_label(head, label, sizeof label));
  rt_line(em, "%s;", declaration);
  const int part = open_part(em);
  rt_open(em, "%s", declaration);
  for (int d = 0; d < em->g->dims; d++)
    rt_line(em, "const int64_t b%d = r->bound[%d];", d, d);
  rt_line(em, "r->top = r->base;");
  if (em->kernels) {
    rt_line(em, "int64_t *const fault = r->fault;");
    rt_line(em, "(void)fault;");
    rt_know(em, "int64_t *", "fault");
  }
  find_aliases(em);
  int clusters = make_clusters(em);
  find_memory(em);
  put_off(em);
  for (int i = 0; i < member_count(em); i++)
    rt_declare(em, member(em, i));
  for (int i = 0; i < member_count(em); i++)
    if (member(em, i)->op != RT_SINK && (em->memory[member(em, i)->id] || em->alias[member(em, i)->id]))
      declare_result(em, member(em, i), point);
  for (int c = 0; c < clusters; c++)
    emit_cluster(em, c);
  for (int d = 0; d < em->g->dims; d++)
    rt_line(em, "(void)b%d;", d);
  rt_line(em, "return 0;");
  rt_close(em);
  close_part(em, part);
}

/* ---- the tree ---- */

static void emit_tree(rt_emitter *em, const rt_tree *t) {
  const atoll_rt *x;
  const char *point[RT_DIMS], *arguments = "r";
  switch (t->kind) {
  case RT_SEQ:
    for (int k = 0; k < t->children; k++)
      emit_tree(em, t->child[k]);
    return;
  case RT_FOR:
    rt_open(em, "for (int64_t c%d = %s; %s; c%d += %" PRId64 ")", t->depth, rt_expression(em, t->first, NULL),
            rt_expression(em, t->cond, NULL), t->depth, t->step);
    emit_tree(em, t->child[0]);
    rt_close(em);
    return;
  case RT_IF:
    rt_open(em, "if (%s)", rt_expression(em, t->cond, NULL));
    emit_tree(em, t->child[0]);
    rt_close(em);
    if (t->children > 1) {
      rt_open(em, "else");
      emit_tree(em, t->child[1]);
      rt_close(em);
    }
    return;
  default:
    if (t->what == RT_DO_ALLOCATE) /* a statement's function asks for the storage of what it makes */
      return;
    x = em->g->node[t->node];
    for (int d = 0; d < em->g->dims; d++)
      if (rt_has(x, d)) {
        point[d] = rt_expression(em, t->point[d], NULL);
        arguments = rt_text(em, "%s, %s", arguments, point[d]);
      }
    if (t->what == RT_DO_FREE)
      rt_line(em, "if ((e = r->drop(r, %d, %s)) != 0)", x->id, rt_point_list(em, x, point));
    else if (t->what == RT_DO_OFFLOAD || t->what == RT_DO_FETCH)
      rt_line(em, "if (r->away[%d] && (e = r->%s(r, %d, %s)) != 0)", x->id,
              t->what == RT_DO_FETCH ? "fetch" : "offload", x->id, rt_point_list(em, x, point));
    else if (t->what == RT_DO_RECEIVE)
      rt_line(em, "if ((e = r->receive(r, %d, %s)) != 0)", x->id, rt_point_list(em, x, point));
    else if (t->what == RT_DO_DONATE)
      rt_line(em, "if ((e = r->donate(r, %d, %s, %d)) != 0)", x->id, rt_point_list(em, x, point), t->to);
    else
      rt_line(em, "if ((e = s%d_%d(%s)) != 0)", em->number, x->id, arguments);
    rt_line(em, "  return e;");
  }
}

static void emit_program(rt_emitter *em, const rt_tree *tree) {
  for (int i = 0; i < em->g->nodes && em->err == ATOLL_OK; i++)
    if (em->g->node[i] && !rt_is_free(em->g->node[i]) && rt_head(em->g->node[i]) == i)
      emit_statement(em, em->g->node[i]);
  const int part = open_part(em);
  rt_open(em, "int rt_program_%d(rt_run *r)", em->number);
  rt_line(em, "int e = 0;");
  for (int d = 0; d < em->g->dims; d++)
    rt_line(em, "const int64_t b%d = r->bound[%d];", d, d);
  emit_tree(em, tree);
  for (int d = 0; d < em->g->dims; d++)
    rt_line(em, "(void)b%d;", d);
  rt_line(em, "return e;");
  rt_close(em);
  close_part(em, part);
}

atoll_err rt_emit(const rt_graph *g, const rt_tree *tree, int number, FILE *out, FILE *kernels) {
  size_t n = (size_t)g->nodes + 1;
  rt_emitter em = {.g = g, .out = out, .kernels = kernels, .number = number, .err = ATOLL_OK};
  em.cluster = calloc(n, sizeof *em.cluster);
  em.memory = calloc(n, 1);
  em.alias = calloc(n, 1);
  if (!em.cluster || !em.memory || !em.alias)
    em.err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
  if (em.err == ATOLL_OK)
    em.err = rt_members_create(g, &em.members);
  if (em.err == ATOLL_OK)
    emit_program(&em, tree);
  rt_members_destroy(&em.members);
  for (int k = 0; k < em.texts; k++)
    free(em.text[k]);
  free(em.text);
  free(em.size);
  free(em.view);
  free(em.known);
  free(em.cluster);
  free(em.memory);
  free(em.alias);
  return em.err;
}

/* ---- the prelude ---- */

extern const char *const rt_prelude[]; /* the lines of emitted.h, by CMake */

void rt_emit_prelude(FILE *out) {
  for (int k = 0; rt_prelude[k]; k++) {
    fputs(rt_prelude[k], out);
    fputc('\n', out);
  }
}

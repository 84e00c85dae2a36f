/* Graphs and trees as bytes. Expressions are texts, each once; all else are numbers of 64 bits and texts in the order
 * of the structures' fields. The digest of a user's graph in this form is the name under which its result is kept, so
 * two graphs that differ in anything have different names. Functions of the user are told by the first node that has
 * them; what placement adds, sums over ranks, by which reduction it is.
 *
 * Files are for one machine and one build: nothing here is a format. Reading trusts the seal (sealed.h), but not
 * so far that a file of another build could make it crash. */
#include "kept.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "atoll/cache.h"
#include "atoll/digest.h"
#include "atoll/version.h"
#include "sealed.h"

/* Where one of these fails, a field was added: write and read it below. */
#define SAME_SIZE(type, bytes)                                                                                         \
  _Static_assert(sizeof(void *) != 8 || sizeof(type) == (bytes), #type " has a field that kept.c does not know")
SAME_SIZE(struct atoll_rt, 344);
SAME_SIZE(rt_edge, 152);
SAME_SIZE(rt_dim, 48);
SAME_SIZE(rt_tree, 128);

/* ---- both ways at once: `reading` decides which way fields go ---- */

typedef struct stream {
  int reading, failed;
  rt_graph *g; /* whose pool of expressions */
  const rt_graph *made;
  const atoll_comm *comm; /* of placement */
  /* writing */
  FILE *out;
  const atoll_sym **known; /* by hash of the pointer; NULL: free */
  int64_t *number;
  size_t slots;
  /* reading */
  const char *at, *end;
  const atoll_sym **sym;
  int64_t syms, sym_room;
} stream;

static void fail(stream *f) { f->failed = 1; }

static void raw(stream *f, void *data, size_t bytes) {
  if (f->failed)
    return;
  if (!f->reading) {
    f->failed = fwrite(data, 1, bytes, f->out) != bytes;
  } else if ((size_t)(f->end - f->at) < bytes) {
    fail(f);
  } else {
    memcpy(data, f->at, bytes);
    f->at += bytes;
  }
  if (f->failed)
    memset(data, 0, bytes);
}

static int64_t number(stream *f, int64_t v) {
  raw(f, &v, sizeof v);
  return v;
}

#define NUMBER(f, field) ((field) = (__typeof__(field))number(f, (int64_t)(field)))

/* A number of things of at least a byte each. */
static int counted(stream *f, int n, int most) {
  int64_t v = number(f, n);
  if (f->failed || v < 0 || v > most) {
    fail(f);
    return 0;
  }
  return (int)v;
}

static const char *text(stream *f, const char *s) {
  int64_t n = number(f, s ? (int64_t)strlen(s) : -1);
  if (f->failed || n < 0)
    return NULL;
  if (!f->reading) {
    f->failed = fwrite(s, 1, (size_t)n, f->out) != (size_t)n;
    return s;
  }
  char *copy = n <= f->end - f->at ? rt_alloc(f->g, (size_t)n + 1) : NULL;
  if (!copy)
    fail(f);
  else
    raw(f, copy, (size_t)n);
  return copy;
}

/* ---- expressions ---- */

/* The number of e among those written, or the next one. */
static int64_t look_up(stream *f, const atoll_sym *e, int *is_new) {
  if (2 * ((size_t)f->syms + 1) > f->slots) {
    size_t slots = f->slots ? 2 * f->slots : 1024;
    const atoll_sym **known = calloc(slots, sizeof(*known));
    int64_t *numbers = calloc(slots, sizeof *numbers);
    if (!known || !numbers) {
      free(known);
      free(numbers);
      fail(f);
      return 0;
    }
    for (size_t i = 0; i < f->slots; i++)
      if (f->known[i]) {
        size_t to = (uintptr_t)f->known[i] / 16 % slots;
        while (known[to])
          to = (to + 1) % slots;
        known[to] = f->known[i];
        numbers[to] = f->number[i];
      }
    free(f->known);
    free(f->number);
    f->known = known;
    f->number = numbers;
    f->slots = slots;
  }
  size_t at = (uintptr_t)e / 16 % f->slots;
  while (f->known[at] && f->known[at] != e)
    at = (at + 1) % f->slots;
  *is_new = !f->known[at];
  if (*is_new) {
    f->known[at] = e;
    f->number[at] = f->syms++;
  }
  return f->number[at];
}

static void write_sym(stream *f, const atoll_sym *e) {
  int is_new = 0;
  int64_t n = e ? look_up(f, e, &is_new) : -1;
  (void)number(f, n);
  if (!is_new || f->failed)
    return;
  int length = atoll_sym_print(e, NULL, 0);
  char *s = malloc((size_t)length + 1);
  if (s) {
    (void)atoll_sym_print(e, s, (size_t)length + 1);
    (void)text(f, s);
  } else {
    fail(f);
  }
  free(s);
}

static const atoll_sym *read_sym(stream *f) {
  const atoll_sym *e = NULL;
  int64_t n = number(f, 0);
  if (f->failed || n < 0)
    return NULL;
  if (n < f->syms)
    return f->sym[n];
  const char *s = n == f->syms ? text(f, NULL) : NULL;
  if (f->syms == f->sym_room) {
    int64_t room = f->sym_room ? 2 * f->sym_room : 1024;
    const atoll_sym **more = realloc(f->sym, (size_t)room * sizeof(*more));
    if (!more) {
      fail(f);
      return NULL;
    }
    f->sym = more;
    f->sym_room = room;
  }
  if (!s || atoll_sym_parse(f->g->syms, s, &e) != ATOLL_OK) {
    fail(f);
    return NULL;
  }
  return f->sym[f->syms++] = e;
}

#define SYM(f, field)                                                                                                  \
  do {                                                                                                                 \
    if ((f)->reading)                                                                                                  \
      (field) = read_sym(f);                                                                                           \
    else                                                                                                               \
      write_sym(f, field);                                                                                             \
  } while (0)

/* ---- graphs ---- */

static void dimension(stream *f, rt_dim *d) {
  d->name = text(f, d->name);
  d->bound_name = text(f, d->bound_name);
  NUMBER(f, d->bound);
  NUMBER(f, d->origin);
  SYM(f, d->var);
  SYM(f, d->size);
}

static void edge(stream *f, rt_edge *e) {
  NUMBER(f, e->src);
  for (int d = 0; d < f->g->dims; d++) {
    SYM(f, e->item[d].lo);
    SYM(f, e->item[d].hi);
  }
  SYM(f, e->cond);
  e->text = text(f, e->text);
}

/* The first node of the user's graph that has x's function; -1: x has none; else below: OF_PLACEMENT less the number of
 * an exchange, or of 0 when nobody knows the function. */
enum { OF_PLACEMENT = -2 };
static int owner(const stream *f, const atoll_rt *x) {
  if (!x->fn)
    return -1;
  for (int i = 0; i < f->made->nodes; i++) {
    const atoll_rt *y = f->made->node[i];
    if (y && y->fn == x->fn && y->user == x->user)
      return i;
  }
  return OF_PLACEMENT - rt_exchange_number(x, f->comm);
}

static void function(stream *f, atoll_rt *x) {
  int64_t from = number(f, f->reading ? 0 : owner(f, x));
  const atoll_rt *y = from >= 0 && from < f->made->nodes ? f->made->node[from] : NULL;
  if (from == -1 || (!f->reading && from < OF_PLACEMENT))
    return;
  if (from < OF_PLACEMENT && rt_exchange_restore(x, (int)(OF_PLACEMENT - from), f->comm))
    return;
  if (!y) {
    fail(f);
    return;
  }
  x->fn = y->fn;
  x->user = y->user;
}

static void node(stream *f, atoll_rt *x) {
  x->name = text(f, x->name);
  NUMBER(f, x->dims);
  SYM(f, x->where);
  x->axes = counted(f, x->axes, RT_AXES);
  for (int k = 0; k < x->axes; k++)
    SYM(f, x->shape[k]);
  raw(f, &x->value, sizeof x->value);
  SYM(f, x->expr);
  for (int k = 0; k < RT_AXES; k++)
    SYM(f, x->start[k]);
  for (int k = 0; k < RT_AXES; k++)
    NUMBER(f, x->order[k]);
  NUMBER(f, x->axis);
  NUMBER(f, x->picks);
  NUMBER(f, x->normal);
  NUMBER(f, x->serial);
  NUMBER(f, x->accumulates);
  NUMBER(f, x->padded);
  raw(f, &x->pad, sizeof x->pad);
  x->spec = text(f, x->spec);
  NUMBER(f, x->group);
  function(f, x);
  int inputs = counted(f, x->inputs, 1 << 20);
  for (int k = 0; k < inputs && !f->failed; k++) {
    rt_edge e = {.src = 0};
    if (!f->reading)
      e = x->in[k];
    edge(f, &e);
    if (f->reading && !rt_add_edge(x, &e))
      fail(f);
  }
}

static void nodes(stream *f) {
  rt_graph *g = f->g;
  int n = counted(f, g->nodes, 1 << 24);
  for (int i = 0; i < n && !f->failed; i++) {
    atoll_rt *x = f->reading ? rt_node(g, RT_CONST, ATOLL_F32) : g->node[i];
    int there = (int)number(f, x != NULL);
    if (!there && f->reading && x)
      g->node[i] = NULL;
    if (!there)
      continue;
    if (!x) {
      fail(f);
      return;
    }
    NUMBER(f, x->op);
    NUMBER(f, x->dtype);
    node(f, x);
  }
  for (int i = 0; f->reading && i < g->nodes && !f->failed; i++)
    for (int k = 0; g->node[i] && k < g->node[i]->inputs; k++) {
      int src = g->node[i]->in[k].src;
      if (src < 0 || src >= g->nodes || !g->node[src])
        fail(f);
    }
}

/* Requests of gradients are no more when passes are done. */
static void requests(stream *f) {
  const rt_graph *g = f->g;
  (void)number(f, g->requests);
  for (int i = 0; i < g->requests; i++) {
    (void)number(f, g->request[i].loss);
    (void)number(f, g->request[i].n);
    for (int k = 0; k < g->request[i].n; k++) {
      (void)number(f, g->request[i].leaf[k]);
      (void)number(f, g->request[i].grad[k]);
    }
  }
}

static void graph(stream *f) {
  rt_graph *g = f->g;
  g->dims = counted(f, g->dims, RT_DIMS);
  for (int d = 0; d < g->dims; d++)
    dimension(f, &g->dim[d]);
  NUMBER(f, g->block_size);
  NUMBER(f, g->serials);
  SYM(f, g->valid);
  g->valid_text = text(f, g->valid_text);
  nodes(f);
}

/* ---- trees ---- */

static int is_node(const rt_graph *g, int id) { return id >= 0 && id < g->nodes && g->node[id]; }

static void tree(stream *f, rt_tree **address) {
  rt_tree *t = *address;
  if (f->reading && !(t = *address = calloc(1, sizeof *t))) {
    fail(f);
    return;
  }
  NUMBER(f, t->kind);
  NUMBER(f, t->depth);
  SYM(f, t->first);
  SYM(f, t->cond);
  NUMBER(f, t->step);
  NUMBER(f, t->what);
  NUMBER(f, t->node);
  NUMBER(f, t->to);
  for (int d = 0; d < f->g->dims; d++)
    SYM(f, t->point[d]);
  int n = counted(f, t->children, 1 << 24);
  if (f->reading && n && !(t->child = calloc((size_t)n, sizeof(rt_tree *)))) {
    fail(f);
    return;
  }
  if (f->reading)
    t->room = n;
  if (t->kind == RT_STATEMENT && (!is_node(f->g, t->node) || (t->what == RT_DO_DONATE && !is_node(f->g, t->to))))
    fail(f);
  for (int k = 0; k < n && !f->failed; k++) {
    if (f->reading)
      t->children = k + 1;
    tree(f, &t->child[k]);
  }
}

static void schedule(stream *f, rt_schedule *s) {
  static const char *const methods[] = {"shifts", "isl"};
  int by_isl = !f->reading && strcmp(s->method, methods[1]) == 0;
  s->method = methods[number(f, by_isl) == 1];
  tree(f, &s->tree);
}

/* ---- files ---- */

/* When the library was built that this address belongs to: passes and the algebra of expressions may change. */
static void add_library(atoll_digester *d, const void *address) {
  Dl_info info;
  struct stat s;
  if (!dladdr(address, &info) || !info.dli_fname || stat(info.dli_fname, &s) != 0)
    return;
  atoll_digester_add_int(d, (int64_t)s.st_mtim.tv_sec);
  atoll_digester_add_int(d, (int64_t)s.st_mtim.tv_nsec);
  atoll_digester_add_int(d, (int64_t)s.st_size);
}

static int begin_writing(stream *f, char **data, size_t *bytes) { return (f->out = open_memstream(data, bytes)) != 0; }

/* 1 when all of it could be written. */
static int end_writing(stream *f) {
  int whole = fclose(f->out) == 0 && !f->failed;
  free(f->known);
  free(f->number);
  return whole;
}

void rt_kept_path(const rt_graph *made, const atoll_rec_params *p, char *path, size_t n) {
  static const char here = 0;
  stream f = {.g = (rt_graph *)made, .made = made};
  atoll_digester *d = NULL;
  char *data = NULL, digest[33], name[64];
  size_t bytes = 0;
  *path = 0;
  if (atoll_digester_create(&d) != ATOLL_OK || !begin_writing(&f, &data, &bytes)) {
    atoll_digester_destroy(&d);
    atoll_err_clear();
    return;
  }
  graph(&f);
  requests(&f);
  if (end_writing(&f)) {
    atoll_digester_add(d, data, bytes);
    atoll_digester_add_text(d, p->passes);
    atoll_digester_add_text(d, p->vectorize);
    atoll_digester_add_int(d, p->tile);
    atoll_digester_add_text(d, p->place);
    atoll_digester_add_int(d, p->place ? atoll_comm_rank(p->comm) : 0);
    atoll_digester_add_int(d, p->place ? atoll_comm_size(p->comm) : 1);
    atoll_digester_add_int(d, p->block);
    atoll_digester_add_int(d, p->least);
    atoll_digester_add_int(d, (int64_t)p->budget);
    atoll_digester_add_int(d, p->memory && p->offload);
    atoll_digester_add_text(d, atoll_version());
    add_library(d, &here);
    add_library(d, (const void *)(uintptr_t)atoll_sym_parse);
    (void)snprintf(name, sizeof name, "schedule-%s", atoll_digest_text(atoll_digester_value(d), digest));
    atoll_cache_path(path, n, name);
  }
  free(data);
  atoll_digester_destroy(&d);
}

void rt_kept_write(const char *path, const rt_graph *made, const atoll_comm *comm, const rt_graph *g,
                   const rt_schedule *s) {
  stream f = {.g = (rt_graph *)g, .made = made, .comm = comm};
  rt_schedule copy = *s;
  char *data = NULL;
  size_t bytes = 0;
  if (!begin_writing(&f, &data, &bytes))
    return;
  graph(&f);
  schedule(&f, &copy);
  if (end_writing(&f))
    rt_sealed_write(path, data, bytes);
  free(data);
}

int rt_kept_read(const char *path, const rt_graph *made, const atoll_comm *comm, rt_graph **g, rt_schedule *s) {
  char *data = NULL;
  size_t bytes = 0;
  rt_schedule read = {NULL, NULL};
  if (!rt_sealed_read(path, &data, &bytes))
    return 0;
  stream f = {.reading = 1, .made = made, .comm = comm, .at = data, .end = data + bytes};
  if (rt_graph_create(made->syms, made->seed, &f.g) == ATOLL_OK) {
    graph(&f);
    schedule(&f, &read);
  } else {
    fail(&f);
  }
  free(f.sym);
  free(data);
  if (!f.failed && f.at == f.end && rt_graph_error(f.g) == ATOLL_OK) {
    *g = f.g;
    *s = read;
    return 1;
  }
  rt_schedule_destroy(&read);
  rt_graph_destroy(&f.g);
  atoll_err_clear();
  (void)atoll_syms_error(made->syms);
  atoll_err_clear();
  return 0;
}

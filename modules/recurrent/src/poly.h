/* Domains and edges of the graph as sets and maps of isl, and back.
 *
 * isl's failures are NULL pointers that travel: rt_poly_error() turns the last one into our error. Tuples are named
 * "S7" after the node with id 7, their dimensions are those of the node's domain in order. Bounds given at run are
 * parameters, at least 1. Where a source's point is a parameter too, dimension "t" of it is named "t_". */
#ifndef RECURRENT_POLY_H
#define RECURRENT_POLY_H

#include <isl/aff.h>
#include <isl/ctx.h>
#include <isl/map.h>
#include <isl/set.h>

#include "graph.h"

/* One per thread; free with isl_ctx_free(). */
isl_ctx *rt_poly_create(void);
atoll_err rt_poly_error(isl_ctx *ctx, const char *what);

/* Printing: a condition or value in isl's language, with every dimension's name followed by `suffix`. */
void rt_poly_print(const rt_graph *g, const atoll_sym *e, const char *suffix, FILE *out);
/* "[T,...] -> " */
void rt_poly_print_parameters(const rt_graph *g, FILE *out);

/* The same set (taken) in fewer pieces. isl 0.25's isl_set_coalesce() makes { t : 0 < t <= 6 } of { t : 0 < t <= 2 or
 * (0 < t <= 5 and t odd) }, so what it makes of sets with divisions is checked. */
isl_set *rt_poly_coalesce(isl_set *set);
/* The same for maps, and for functions of parameters, whose pieces' sets isl makes fewer in the same way. */
isl_map *rt_poly_coalesce_map(isl_map *map);
isl_pw_aff *rt_poly_coalesce_value(isl_pw_aff *value);

/* The box of x's dimensions, and the domain: the box where `where` holds. */
isl_set *rt_poly_box(isl_ctx *ctx, const atoll_rt *x);
isl_set *rt_poly_domain(isl_ctx *ctx, const atoll_rt *x);
/* Points of the domain where a condition holds besides. */
isl_set *rt_poly_where(isl_ctx *ctx, const atoll_rt *x, const atoll_sym *also);
/* A point of a set of x's domain as " (t=0) for T=3"; "" of an empty one. */
const char *rt_poly_sample(const atoll_rt *x, isl_set *set, char *buf, size_t n);
/* From points of x (in its domain, and where no earlier case holds) to the points of the source that input k reads,
 * which may be outside of the source's domain. */
isl_map *rt_poly_access(isl_ctx *ctx, const atoll_rt *x, int k);
/* Domains and accesses of a graph that stays as it is, each made when it is first asked for. */
typedef struct rt_poly_known {
  isl_ctx *ctx;
  isl_set **domain; /* by node */
  int *first;       /* by node: its first edge among all edges */
  isl_map **access; /* by edge */
  int nodes, edges;
} rt_poly_known;

atoll_err rt_poly_known_create(isl_ctx *ctx, const rt_graph *g, rt_poly_known *k);
isl_set *rt_poly_known_domain(const rt_poly_known *k, const atoll_rt *x);
isl_map *rt_poly_known_access(const rt_poly_known *k, const atoll_rt *x, int input);
void rt_poly_known_destroy(rt_poly_known *k);

/* For a point of the source in its domain, as parameters "t_": the points of x that read it through input k. */
isl_set *rt_poly_readers(isl_ctx *ctx, const atoll_rt *x, int k);
/* Points of x's box with items of the source's point: lo <= t < hi or t = lo for each dimension of x, where dimensions
 * in expressions are those of the source and become parameters "t_". */
isl_set *rt_poly_product(isl_ctx *ctx, const atoll_rt *x, const rt_item item[RT_DIMS]);
/* A set of x's domain as a condition on parameters "t_" (taken). */
isl_set *rt_poly_as_parameters(const atoll_rt *x, isl_set *set);
/* Parametric bounds at least 1, and valid. */
isl_set *rt_poly_context(isl_ctx *ctx, const rt_graph *g);

/* Back to expressions. set: one of x's domain; *out: when it holds within `known` (both kept; known may be NULL), NULL
 * when that is always. */
atoll_err rt_poly_condition(const atoll_rt *x, isl_set *set, isl_set *known, const atoll_sym **out);
/* The quasi-affine pieces of pa, a function of parameters alone (kept). Parameters "t_" become dimensions. */
atoll_err rt_poly_value(rt_graph *g, isl_pw_aff *pa, const atoll_sym **out);
/* The same for a condition on parameters (kept). */
atoll_err rt_poly_parameter_condition(rt_graph *g, isl_set *set, const atoll_sym **out);

/* An expression of isl's syntax trees (kept); the name of an identifier is looked up by `variable`. */
typedef const atoll_sym *(*rt_poly_variable)(void *arg, const char *name);
struct isl_ast_expr;
const atoll_sym *rt_poly_sym(rt_graph *g, struct isl_ast_expr *e, rt_poly_variable variable, void *arg);

#endif

/* The reference executor: one instance (node, point) at a time, every value kept as doubles that are rounded to the
 * node's type. By demand it is the oracle of all passes; driven by a schedule it checks the executed order, because an
 * instance whose inputs are not there is refused. */
#ifndef RECURRENT_INTERP_H
#define RECURRENT_INTERP_H

#include "atoll/rng.h"
#include "graph.h"

typedef struct rt_value {
  atoll_dtype dtype;
  int axes;
  int64_t shape[RT_AXES], count;
  double *data;
} rt_value;

typedef struct rt_interp rt_interp;
struct rt_members;
struct rt_blocks;

/* The graph and what is bound are borrowed until destroy. */
atoll_err rt_interp_create(const rt_graph *g, const atoll_rec_binding *b, int n, rt_interp **out);
void rt_interp_destroy(rt_interp **it);
/* The instance, and before it whatever it needs and is not there. */
atoll_err rt_interp_demand(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]);
/* The instance alone; INTERNAL when it was computed before or an input is missing. */
atoll_err rt_interp_execute(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]);
/* INTERNAL when it is not there. */
atoll_err rt_interp_free(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]);
/* The next value of `to` is counted as having the storage of this one, which is freed after it was computed. */
atoll_err rt_interp_donate(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS], const atoll_rt *to);
/* As rt_interp_execute(), but the value is there only when it is received. */
atoll_err rt_interp_send(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]);
atoll_err rt_interp_receive(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]);
/* Puts a value away, and brings it back: in between it is not there. */
atoll_err rt_interp_offload(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]);
atoll_err rt_interp_fetch(rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]);
/* NULL when it is not there. */
const rt_value *rt_interp_value(const rt_interp *it, const atoll_rt *x, const int64_t point[RT_DIMS]);
/* From now on values count as a schedule stores them: those that leave their groups, in blocks (borrowed); NULL: each
 * by itself, as at first. */
void rt_interp_count(rt_interp *it, const struct rt_members *m, struct rt_blocks *blocks);
/* Bytes of the values held now and at most, as their types have them. */
int64_t rt_interp_bytes(const rt_interp *it);
int64_t rt_interp_peak(const rt_interp *it);
const int64_t *rt_interp_bounds(const rt_interp *it);
/* What is bound to the inputs that sinks need: by node, *input owned. USAGE: to one of them nothing is. */
atoll_err rt_bind_inputs(const rt_graph *g, const atoll_rec_binding *b, int n, const void ***input);
/* Calls x's function at a point of x's own dimensions; a failure that it does not explain is told here. */
atoll_err rt_call(const atoll_rt *x, const int64_t *own, const atoll_rt_view *in, const atoll_rt_view *out);
/* All sinks by demand, in order of creation. */
atoll_err rt_interp_sinks(rt_interp *it);
/* Every point of x's domain in lexicographic order, until f fails. */
atoll_err rt_interp_points(rt_interp *it, const atoll_rt *x, atoll_err (*f)(void *arg, const int64_t point[RT_DIMS]),
                           void *arg);

/* ---- compute.c ---- */

/* y (shape set, data zeroed) from the views of the inputs. Every operation but INPUT, CALL, SINK, MERGE and PICK. */
atoll_err rt_compute(const atoll_rt *x, rt_env *env, const rt_value *const *in, rt_value *y);
/* Of an integer type, as doubles. */
void rt_limits(atoll_dtype t, double *least, double *most);
/* The nearest value of a type; of an integer type toward zero, and within its limits. */
double rt_round(atoll_dtype t, double v);
/* USAGE: x at this point takes, or slices, a place of its input that is not there. */
atoll_err rt_outside(const atoll_rt *x, const int64_t point[RT_DIMS], int64_t at, int64_t extent);
double rt_load(atoll_dtype t, const void *data, int64_t i);
void rt_store(atoll_dtype t, void *data, int64_t i, double v);
/* Of a random tensor at these coordinates. */
atoll_rng_key rt_random_key(const rt_graph *g, int serial, int n, const int64_t *coordinate);
/* " (b=0, t=3)" */
const char *rt_point_text(const atoll_rt *x, const int64_t point[RT_DIMS], char *buf, size_t n);

#endif

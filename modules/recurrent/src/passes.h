/* Passes: each changes a graph in place and leaves it with the same meaning for the points that sinks need. Each is a
 * file of the same name. A pass that fails leaves the graph unusable. */
#ifndef RECURRENT_PASSES_H
#define RECURRENT_PASSES_H

#include "graph.h"

/* Cases: USAGE for one that earlier ones leave nothing. */
atoll_err rt_pass_cases(rt_graph *g);
/* Which points of each node sinks (and losses) need: `where` of every node becomes that, nodes that nothing needs go.
 * USAGE: an index outside of the source's domain, a point that no case defines. */
atoll_err rt_pass_domains(rt_graph *g);
/* Replaces each GRAD by the gradient. Wants rt_pass_domains() before it. */
atoll_err rt_pass_gradients(rt_graph *g);

/* Folds views into edges, shares equal nodes, applies algebra; ends with rt_pass_domains(). */
atoll_err rt_pass_simplify(rt_graph *g);
/* e, which reads m, as an edge to what m's input f reads; 0 when that is not one edge. */
int rt_compose(rt_graph *g, const rt_edge *e, const atoll_rt *m, const rt_edge *f, rt_edge *out);
/* Dimensions, separated by commas (NULL: none), become leading axes where that is possible; each ends with simplify. */
atoll_err rt_pass_vectorize(rt_graph *g, const char *dims);
/* Sums and maxima over all of the past or future become recurrences; ends with simplify. */
atoll_err rt_pass_scans(rt_graph *g);
/* Sums over whole dimensions become running sums; ends with simplify. */
atoll_err rt_pass_lift(rt_graph *g);
/* Attention over slices as recurrences over blocks of so many positions (0: not); ends with simplify. Blocks of the
 * dimensions `place` (NULL: none) are dealt out over the ranks of comm. */
atoll_err rt_pass_tile(rt_graph *g, int64_t size, const char *place, const atoll_comm *comm);
/* Cases of a shifted read and a constant become padding of what is read; ends with rt_pass_domains(). */
atoll_err rt_pass_pads(rt_graph *g);
/* Sets `group` of nodes that become one statement. */
atoll_err rt_pass_groups(rt_graph *g);

#endif

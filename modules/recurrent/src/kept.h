/* Transformed graphs and their schedules, kept in the cache: passes and isl are the larger part of compiling. */
#ifndef RECURRENT_KEPT_H
#define RECURRENT_KEPT_H

#include "schedule.h"

/* Where what becomes of `made`, a graph as its user made it, is kept: by a digest of the graph, of the parameters that
 * passes and schedule look at, and of the library that has them. "": nowhere. */
void rt_kept_path(const rt_graph *made, const atoll_rec_params *p, char *path, size_t n);
/* 1, *g and *s owned, when it is there; functions and their users are those of `made`, and sums over ranks that are not
 * among them are those of placement, over comm (of atoll_rec_params). */
int rt_kept_read(const char *path, const rt_graph *made, const atoll_comm *comm, rt_graph **g, rt_schedule *s);
void rt_kept_write(const char *path, const rt_graph *made, const atoll_comm *comm, const rt_graph *g,
                   const rt_schedule *s);

#endif

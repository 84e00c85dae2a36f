/* A file for values that are put away while nothing needs them. It has no name, so nothing is left behind by a crash.
 */
#ifndef RECURRENT_AWAY_H
#define RECURRENT_AWAY_H

#include "graph.h"

typedef struct rt_away rt_away;

/* In this folder, which must be there. IO: it cannot be written. */
atoll_err rt_away_create(const char *folder, rt_away **out);
void rt_away_destroy(rt_away **a);
/* Whether files can be made and written there. */
atoll_err rt_away_probe(const char *folder);
/* *place: -1, or where these bytes were written before. IO: the disk is full, or broken. */
atoll_err rt_away_write(rt_away *a, const void *data, int64_t bytes, int64_t *place);
atoll_err rt_away_read(const rt_away *a, void *data, int64_t bytes, int64_t place);
/* The place may be used again. */
void rt_away_release(rt_away *a, int64_t bytes, int64_t place);

#endif

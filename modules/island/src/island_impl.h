/* Private to modules/island. */
#ifndef ISLAND_IMPL_H
#define ISLAND_IMPL_H

#include "atoll/island.h"

#define ISLAND_SAMPLES_MIN 5 /* measured rates with fewer samples never split */

/* What is known of each device while grouping. */
typedef struct island_place {
  int takes_part;
  int cost;   /* like hardware for cost: kind of node, model, cores */
  int cls;    /* hardware class: cost, instruction set, hardware threads and memory */
  int speed;  /* 0 = fastest of its cost class */
  int near;   /* component of links inside (cls, speed) */
  int island; /* before ordering */
} island_place;

/* split.c: cut the devices of one group where their rates are really apart. Devices get speed[i] = 0, 1, ... by falling
 * rate. */
typedef struct island_members {
  int n;
  int *device;
} island_members;
int island_split(const atoll_topo *topo, const atoll_island_params *params, const island_members *group, int *speed);
/* The rule itself: is `fast` really faster than `slow`? pooled: the group's typical spread. */
int island_apart(const atoll_island_params *params, const atoll_samples *fast, const atoll_samples *slow, double pooled,
                 int declared);

/* near.c: components of the devices' nodes under links; near[i] per member. */
atoll_err island_near(const atoll_topo *topo, const atoll_island_params *params, const island_members *group,
                      int *near);

/* explain.c */
atoll_err island_reasons(atoll_islands *islands, const atoll_topo *topo, const atoll_island_params *params,
                         const island_place *place);

#endif

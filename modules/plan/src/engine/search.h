/* The search's objects.
 *   space    units, resources, ways to staff a stage, remembered slices and sends
 *   bound    what no completion of a partial plan can beat
 *   labels   the dynamic program over partial plans at one bound of the bottleneck
 *   search   which bounds are tried, and when to stop
 *   sweep    first plans whose stages are single replicas
 *   improve  small changes to good plans */
#ifndef ATOLL_PLAN_ENGINE_SEARCH_H
#define ATOLL_PLAN_ENGINE_SEARCH_H

#include <math.h>

#include "engine/engine_impl.h"

#define DIMS          16  /* resources of a partial plan */
#define PLACED        64  /* most groups of a stage once placed */
#define GROUPS        4   /* most kinds in a stage */
#define KINDS_BOUNDED 128 /* with more kinds only the plain sum bounds */
#define FLIGHTS       6   /* rows of bounds by micro-batches in flight */
#define KEPT          6   /* of them, kept for partial plans */
#define ENGINE_EQUAL  1e-12
#define WITHIN        (1 + 1e-12) /* rounding allowed in comparisons with a limit */
#define REJECTED_KEPT 12
#define BUCKETS_FEW   400 /* with more, first tries look at fewer ends of stages */
#define EVALUATED     16  /* labels' work of an evaluation */

typedef struct unit { /* pools that count as one: their devices are taken in order */
  int pools, *pool;   /* [pools] */
  int first_kind, kinds;
  int dim; /* its devices */
  int devices;
  double price; /* the least of its pools, $ per s and device */
} unit;

typedef struct unit_kind {
  int unit, kind, like_kind; /* kind on the unit's first pool; like_kind: the first with the same slices */
  int devices;
  int use[DIMS]; /* of each resource, by one replica */
} unit_kind;

typedef struct choice { /* how a stage is staffed; count 0: as many as the bottleneck needs */
  int groups;
  int kind[GROUPS], count[GROUPS]; /* kind: into unit_kinds */
  int width;                       /* sum of counts */
  int need[DIMS];                  /* at least */
} choice;

typedef struct layer_range { /* [first, last) */
  int first, last;
} layer_range;

typedef struct slice_entry {
  int at, n; /* points [at, at + n); n -1: not asked yet */
} slice_entry;

typedef struct node { /* plans of micro-batch b whose bottleneck is in (low, high] and whose sync is in [least, most] */
  int b, width;       /* width: replicas of every stage; 0: free */
  double low, high, sync_least, sync_most, bound, seconds; /* no plan in it has less value, or takes less */
} node;

typedef struct path_stage { /* layers [first, last) on `width` replicas of a unit's kind */
  int first, last, kind, width;
} path_stage;

typedef struct label { /* the stages behind layer l; the stage that ends at l has its choice, not yet its first layer */
  double sum, extra, sync, money, bottleneck, act;
  double bound;
  int32_t parent, behind; /* replicas behind */
  uint16_t used[DIMS];
  int16_t stages, layer, next, tail; /* next: choice of the stage that ends at layer; tail: of the last, once closed */
  uint16_t count[GROUPS];            /* of the stage [layer, parent's layer) */
} label;

typedef struct rival { /* what decides between labels of a bucket; ascending by sum */
  double sum, bottleneck, sync, extra, act, money;
  uint16_t used[DIMS];
  int32_t behind, label;
  int16_t stages, tail;
} rival;

typedef struct bucket {
  rival *label;
  int n, room;
} bucket;

#define SYNC_MEMO_BITS 16
typedef struct sync_memo { /* a table where the newer entry wins */
  uint64_t key;
  double seconds;
} sync_memo;

typedef struct search {
  const engine_problem *problem;
  int layers, units, unit_kinds, dims, choices;
  unit *unit;
  unit_kind *kind;
  int capacity[DIMS];
  choice *choice;
  uint16_t *routes; /* [batches][choices][choices] when counts are given: bit a * GROUPS + b */
  int priced;       /* 1: the objective needs prices */
  int merged;       /* 1: some unit has several pools */
  int *pool_kind;   /* [pools]: the first kind of each */
  int all_pools;    /* of all units */
  int64_t devices;  /* likewise */
  int mixed;        /* 1: stages may have several kinds */
  /* slices */
  int reps, *rep;     /* [layers + 1][layers + 1]: of [f, l) at [l][f]; ask space_range */
  layer_range *range; /* [reps]: the first range of each number */
  int like_kinds;
  slice_entry *slice; /* [batches][like_kinds][reps] */
  engine_point *point;
  int points, point_room;
  int moves;    /* 1: money is spent on moving data */
  double *send; /* [2][layers][unit_kinds][unit_kinds] of the batch send_b; NaN: not asked */
  int send_b;
  /* bound of the node at hand */
  double *least_sum, *least_rent; /* [unit_kinds + 1][layers + 1]; the first [FLIGHTS] of them */
  double *pair_value[KEPT];       /* [FLIGHTS][unit_kinds + 1][layers + 1] */
  double pair_weight[KEPT][DIMS], pair_mu[KEPT];
  int pairs;
  double *scratch, *cost_seconds;        /* [FLIGHTS][unit_kinds][reps]: INFINITY when it cannot hold so many */
  int *cost_width, *cost_flight;         /* [unit_kinds][reps] */
  int *behind;                           /* [layers + 1]: least number of stages of the layers from here on */
  double *cost, *split;                  /* room for best_splits: [FLIGHTS][unit_kinds][reps], [layers + 1] */
  double pair_each[KEPT][KINDS_BOUNDED]; /* mu (w . devices) of a replica of each kind */
  double pair_all[KEPT];                 /* the same of all devices there are */
  path_stage *path, *trial;              /* [layers]; path: a plan that bound_node came across, if path_stages > 0 */
  int path_stages;
  double path_sum;
  int flights; /* rows in use: 1 when memory never limits a pipeline */
  int cost_b;  /* batch of cost_seconds; -1: none */
  double *price_value[KEPT], price_mu[KEPT];
  int price_pairs;
  double *ends;       /* [unit_kinds][unit_kinds]: least by the kinds of the first stage and the last; NULL: none */
  double *least_ends; /* [unit_kinds]: with the last on this kind */
  sync_memo *memo;    /* [1 << SYNC_MEMO_BITS] */
  /* labels of the node at hand */
  label *label;
  int64_t labels, label_room;
  bucket *bucket;    /* [layers + 1][choices] */
  int beam, thinned; /* labels kept per bucket, 0: all; 1: some were dropped */
  /* outcome */
  engine_plan *best;
  double best_value;
  engine_plan *reject[REJECTED_KEPT];
  int rejects;
  int64_t work, work_limit;
  int truncated;
  int bounding;  /* 1: no plans are looked for any more */
  int misplaced; /* whole plans that could not be placed */
} search;

/* ---- space ------------------------------------------------------------------------------------------------------- */

atoll_err space_create(search *s);
void space_destroy(search *s);
/* Choices: stages of one kind, as wide as need be. */
atoll_err space_choices(search *s);
/* Choices: every staffing by count, when there are at most `most`; else *done is 0 and the choices stay. */
atoll_err space_enumerate(search *s, int most, int *done);
static inline int space_range(const search *s, int first, int last) {
  return s->rep[(size_t)last * ((size_t)s->layers + 1) + (size_t)first];
}
int space_points(search *s, int b, int kind, int first, int last, const engine_point **points);
double space_send(search *s, int b, int layer, int left, int right, int backward);
/* Least of what comes last in a pipeline that ends with choice `tail` and begins with `first`; -1: with any. */
double space_ends(const search *s, int first, int tail);
double space_send_choices(search *s, int b, int layer, int left, int right, int backward);
/* Groups of `count` replicas of a unit's kind, its first `used` devices being taken. */
int space_place(const search *s, int kind, int used, int count, engine_group *group, int room);

/* ---- bound ------------------------------------------------------------------------------------------------------- */

/* Least width at which a stage of `seconds` per micro-batch stays within the bottleneck. */
static inline int64_t least_width(const engine_problem *p, int b, double seconds, double high) {
  int64_t rounds = engine_rounds(p, b, 1);
  double most = high / seconds + 1 + 1e-11;
  if (most < (double)rounds)
    rounds = (int64_t)most;
  int64_t samples = rounds * p->batch[b];
  return (p->global_batch + samples - 1) / samples;
}

/* Seconds of sync of a stage of one kind, devices taken from the first. */
double space_sync(search *s, int b, int kind, int first, int last, int64_t width);
/* The same inside the unit's pool where it takes least, however many devices that has. */
double space_sync_inside(search *s, int b, int kind, int first, int last, int64_t width);

/* Prepares the bounds of a node and gives it its own; INFINITY: no plan is in it. May leave a plan in s->path. */
double bound_node(search *s, node *n);
/* Least sum of (t + p) in the node that bound_node has seen last. */
double bound_sum(const search *s);
/* No plan with micro-batch b has a lower bottleneck; INFINITY: none up to `most`. */
double bound_least_bottleneck(search *s, int b, int width, double most);
/* Makes ready the bounds of partial plans in a node that bound_node has seen last. */
void bound_prepare(search *s);
typedef struct spent { /* what a partial plan has used up, as its bounds need it */
  double seconds, rent;
  double weighed[KEPT]; /* mu (w . used) of each pair */
} spent;
spent bound_spent(const search *s, const node *n, const label *l);
/* No completion of a partial plan is better; next: the choice of its open stage; -1: any. */
double bound_next(const search *s, const spent *so_far, const label *l, int next);
/* The same for the label as it is. */
double bound_label(const search *s, const node *n, const label *l);
/* 0: closing the label's stage at layer f cannot lead to a better plan, whatever its neighbour and width. */
int bound_closes(const search *s, const spent *so_far, const label *l, int f);

/* ---- labels ------------------------------------------------------------------------------------------------------ */

/* Runs the program on a node whose bounds are prepared. beam: most labels of a bucket; 0: all. *least: the least sum +
 * extra + sync of a whole plan in the node among those that could be better than the best; INFINITY: there is none.
 * *whole: 0 when labels were dropped for want of room. */
atoll_err labels_run(search *s, const node *n, int beam, double *least, int *whole);

/* ---- search ------------------------------------------------------------------------------------------------------ */

/* What the objective makes of seconds and dollars; INFINITY outside the limits. */
double search_value(const search *s, double seconds, double price);
/* The value of an evaluated plan: its limits are exact. */
double search_plan_value(const search *s, const engine_plan *plan);
/* Takes an evaluated plan: the best, or one of the rejected, or none. */
void search_keep(search *s, engine_plan **plan);
/* Takes a plan to be evaluated, whatever becomes of it; *fits 0: its devices or memory do not suffice. */
atoll_err search_take(search *s, engine_plan **plan, int *fits);
/* A whole plan of labels: evaluated, and kept when it is the best so far. */
atoll_err search_offer(search *s, const node *n, const label *final);

/* ---- sweep ------------------------------------------------------------------------------------------------------- */

/* First plans whose stages are one replica each. */
atoll_err sweep_chains(search *s);

/* ---- improve ----------------------------------------------------------------------------------------------------- */

/* Small changes to the best plans, as long as one helps. */
atoll_err improve_plans(search *s);

#endif

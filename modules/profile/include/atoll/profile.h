/** Costs of layers per device class: measured by a run, loaded from a file, or modelled from rates; and which of these
 * it was. A missing entry is interpolated or modelled and marked so, never a crash. Times in seconds. */
#ifndef ATOLL_PROFILE_H
#define ATOLL_PROFILE_H

#include "atoll/digest.h"
#include "atoll/store.h"

ATOLL_BEGIN_C

/** From the most to the least certain. Imported: another program's measurement of the same model on a device of the
 * same name. */
typedef enum atoll_cost_source {
  ATOLL_COST_MEASURED,
  ATOLL_COST_INTERPOLATED,
  ATOLL_COST_IMPORTED,
  ATOLL_COST_ANALYTIC
} atoll_cost_source;
ATOLL_API const char *atoll_cost_source_name(atoll_cost_source s);

/** One layer kind on one device class at one micro-batch size. */
typedef struct atoll_cost {
  double forward, backward_input, backward_weight; /* s */
  double update; /* s per step: clip, optimizer, and what the first micro-batch after it takes longer */
  atoll_cost_source source;
  double leaf;   /* s per leaf of the summation tree: a gradient buffer cleared and added to another; 0 unknown */
  double spread; /* found: half the interquartile range of forward + backward over their median. Not read by add */
} atoll_cost;

typedef struct atoll_profile atoll_profile;

ATOLL_API atoll_err atoll_profile_create(atoll_profile **out);
ATOLL_API void atoll_profile_destroy(atoll_profile **profile);
/** device_class: text key of a device class (model and island name); model: digest of the model's layer shapes; kind:
 * layer kind name; policy name; S tokens, B samples. Repeated adds of one key keep the latest 32; those of
 * a more certain source replace others. */
ATOLL_API atoll_err atoll_profile_add(atoll_profile *p, const char *device_class, atoll_digest model, const char *kind,
                                      const char *policy, int64_t S, int64_t B, const atoll_cost *cost);
/** All that `from` has takes the place of what p has under the same keys. */
ATOLL_API atoll_err atoll_profile_replace(atoll_profile *p, const atoll_profile *from);
/** Medians: exact, else linear between or beyond measured B (at least one point: proportional), else NOINPUT so that
 * the caller models it. */
ATOLL_API atoll_err atoll_profile_find(const atoll_profile *p, const char *device_class, atoll_digest model,
                                       const char *kind, const char *policy, int64_t S, int64_t B, atoll_cost *cost);
/** How far measured times of one class are off: the median spread of its measured entries that have three samples or
 * more; 0 when there are none. */
ATOLL_API double atoll_profile_spread(const atoll_profile *p, const char *device_class, atoll_digest model);
/** Of the MLP of B samples over so many ranks that share memory: s pipelined by tiles, and s of an even share (of
 * rows or of columns, meetings included), both as the chooser of a machine of the class remembers them. */
ATOLL_API atoll_err atoll_profile_add_mlp(atoll_profile *p, const char *device_class, atoll_digest model, int ranks,
                                          int64_t S, int64_t B, double pipelined, double even);
/** Pipelined over even, each between or beyond the B that are known as in atoll_profile_find(); NOINPUT: there are
 * none.
 */
ATOLL_API atoll_err atoll_profile_find_mlp(const atoll_profile *p, const char *device_class, atoll_digest model,
                                           int ranks, int64_t S, int64_t B, double *over);
ATOLL_API int atoll_profile_count(const atoll_profile *p);
ATOLL_API atoll_digest atoll_profile_digest(const atoll_profile *p);
ATOLL_API atoll_err atoll_profile_to_store(const atoll_profile *p, atoll_store *store, const char *group);
ATOLL_API atoll_err atoll_profile_from_store(atoll_store *store, const char *group, atoll_profile **out);
/** Text form for sharing between ranks; owned: free(). */
ATOLL_API atoll_err atoll_profile_pack(const atoll_profile *p, char **text, size_t *bytes);
ATOLL_API atoll_err atoll_profile_unpack(atoll_profile *p, const char *text, size_t bytes); /* adds */

ATOLL_END_C
#endif

/** Layer times that another program measured, for plans of our own models. */
#ifndef ATOLL_PLAN_IMPORT_H
#define ATOLL_PLAN_IMPORT_H

#include "atoll/plan.h"

ATOLL_BEGIN_C

/** Local. Adds to profile, marked imported, the layer times that the JSON file `path` has for devices of the islands.
 * Its form is the one of atoll-plan --profiles: gpus.NAME.seconds.B.DEGREE.{forward, backward, update} of every layer;
 * used are those of degree 1 under a NAME that is an island's hardware model, for the policy that keeps everything
 * (what another policy adds is modelled). Samples are of `seq` tokens. MISMATCH: the file is of another model (it names
 * layer, parameters found and expected), of samples of another length, or of other devices. USAGE: not of this form.
 * The profile is untouched on failure. */
ATOLL_API atoll_err atoll_plan_import(const char *path, const atoll_model *model, const atoll_islands *islands,
                                      int64_t seq, atoll_profile *profile);

ATOLL_END_C
#endif

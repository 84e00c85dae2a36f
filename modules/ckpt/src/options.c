#include "atoll/ckpt.h"

#include <stddef.h>

#define C(field) offsetof(atoll_ckpt_params, field)
static const atoll_opt_def ckpt_defs[] = {
    {"every_steps", ATOLL_OPT_INT, C(every_steps), "0", "0..1000000000", "steps",
     "Steps between checkpoints; 0 = only at the end and when stopped."},
    {"every_seconds", ATOLL_OPT_SECONDS, C(every_seconds), "0", "0..", "s",
     "Time between checkpoints; 0 = off. Whichever of the two comes first."},
    {"keep", ATOLL_OPT_INT, C(keep), "2", "1..1000000", "checkpoints",
     "Newest good ones kept; the last with a finite loss is never removed."},
    {"verify", ATOLL_OPT_BOOL, C(verify), "true", NULL, "", "Read each shard back before the checkpoint counts."},
    {"resume", ATOLL_OPT_STRING, C(resume), "auto", NULL, "",
     "auto: the newest good checkpoint of the run; none; or a checkpoint's directory, also of another run."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL},
};
const atoll_opt_table atoll_ckpt_options = {"ckpt", ckpt_defs};

void atoll_ckpt_params_init(atoll_ckpt_params *p) { atoll_opt_defaults(&atoll_ckpt_options, p); }

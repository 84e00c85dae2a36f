/** Files that are a convenience: what was measured or compiled once on a machine. Whatever is in there can be made
 * again; nobody may depend on it. */
#ifndef ATOLL_CACHE_H
#define ATOLL_CACHE_H

#include <stddef.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

/** "FOLDER/name" into buf, FOLDER being ATOLL_CACHE, else XDG_CACHE_HOME/atoll, else ~/.cache/atoll, which is made if
 * need be. "" when there is none, it cannot be made, or the path does not fit. Local. */
ATOLL_API void atoll_cache_path(char *buf, size_t n, const char *name);
/** What results are good for: the processor's model and a digest of its instruction sets. Local; never fails. */
ATOLL_API const char *atoll_cache_processor(char *buf, size_t n);

ATOLL_END_C
#endif

/** What was built: for `--version`, logs and the provenance attributes of every output file. */
#ifndef ATOLL_VERSION_H
#define ATOLL_VERSION_H

#include "atoll/api.h"

ATOLL_BEGIN_C

/** "0.1.0". Local; borrowed, static. */
ATOLL_API const char *atoll_version(void);
/** One line: build type, compiler, optional packages and their state. Local; borrowed, static. */
ATOLL_API const char *atoll_version_build(void);

ATOLL_END_C
#endif

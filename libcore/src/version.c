#include "atoll/version.h"

const char *atoll_version(void) { return ATOLL_VERSION; }

const char *atoll_version_build(void) { return ATOLL_BUILD_OPTIONS; }

/* The backends of symmetric memory. */
#ifndef ATOLL_SYMMETRIC_IMPL_H
#define ATOLL_SYMMETRIC_IMPL_H

#include "atoll/plugin.h"

extern const atoll_symmetric_backend symmetric_window;

#endif

/* Files of the cache that end with a digest of their bytes: what a crash or a full disk has cut short must not be
 * loaded. */
#ifndef RECURRENT_SEALED_H
#define RECURRENT_SEALED_H

#include <stddef.h>

/* 1, and the bytes without their seal (*data: owned, free(); may be NULL: not wanted); 0 when there is no such file,
 * or, with a warning, when it is damaged. */
int rt_sealed_read(const char *path, char **data, size_t *bytes);
/* A failure is a warning: the cache is a convenience. Of sealed files in the folder, those that were not used for
 * longest go while they are larger than ATOLL_CACHE_MB (default 512) together, and those that nobody used for 90 days.
 * Other processes may be at the same folder: who finds a file gone makes it again. */
void rt_sealed_write(const char *path, const char *data, size_t bytes);

#endif

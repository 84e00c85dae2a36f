/* Checked system calls shared by file.c and lock.c; each can be made to fail through atoll/fault.h. */
#ifndef ATOLL_FILE_IMPL_H
#define ATOLL_FILE_IMPL_H

#include <limits.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "atoll/err.h"

/* 0 or a value, or -1 with errno, as the system calls. */
int file_open(const char *path, int flags);
int file_write_all(int fd, const void *data, size_t bytes);
ssize_t file_read_some(int fd, void *data, size_t bytes);
int file_close(int fd);
int file_link(const char *from, const char *to);
int file_unlink(const char *path);
int file_stat(const char *path, struct stat *st);

/* IO with verb, path and the present errno. */
atoll_err file_error(const char *verb, const char *path);
/* path.TAG-PID into buf. */
atoll_err file_sibling(const char *path, const char *tag, char buf[PATH_MAX]);
/* Create path with this content; removed again on failure. */
atoll_err file_fill(const char *path, int flags, const void *data, size_t bytes, int sync);

#endif

/** Files that are either whole or absent: write a sibling, check every call, sync, rename, sync the directory.
 *  All local. Every operation can be made to fail through fault.h. Errors are IO (NOINPUT for a missing input) and name
 *  path and errno. */
#ifndef ATOLL_FILE_H
#define ATOLL_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/digest.h"
#include "atoll/err.h"

ATOLL_BEGIN_C

/** A symbolic link to a file stays, and the file is replaced; a device or a pipe (/dev/stdout) is written into.
 *
 *  Write `path.tmp-PID`, fsync, rename to path, fsync the directory. The previous content of path survives any failure
 *  (without hard links a failed directory sync alone cannot be undone: path then holds the new content, whole). */
ATOLL_API atoll_err atoll_file_replace(const char *path, const void *data, size_t bytes);
/** The same without fsync: for files that are a convenience (progress, metrics snapshots). Still atomic for readers. */
ATOLL_API atoll_err atoll_file_publish(const char *path, const void *data, size_t bytes);
/** New file: data written and synced; fails with IO (EEXIST) when path exists. Removes the partial file on failure. */
ATOLL_API atoll_err atoll_file_create(const char *path, const void *data, size_t bytes);
/** A new file in two steps, so that many can be on their way to the disk at once: begin writes it and starts the
 * transfer, settle syncs and closes. begin fails as atoll_file_create(); *fd is owned until settle, which must be
 * called once; after a failure the file is gone. The directory's entry is the caller's to sync. */
ATOLL_API atoll_err atoll_file_begin(const char *path, const void *data, size_t bytes, int *fd);
ATOLL_API atoll_err atoll_file_settle(const char *path, int *fd);
/** A file written in pieces that has its name only when it is whole: open begins a sibling, add appends (buffered), put
 * writes over bytes added before, commit syncs, renames and syncs the directory as atoll_file_replace() does. *w is
 * owned until commit, which ends it also when it fails, or discard (accepts NULL), which removes what was written.
 * Devices and pipes are refused. */
typedef struct atoll_file_writer atoll_file_writer;
ATOLL_API atoll_err atoll_file_writer_open(const char *path, atoll_file_writer **w);
ATOLL_API atoll_err atoll_file_writer_add(atoll_file_writer *w, const void *data, size_t bytes);
ATOLL_API atoll_err atoll_file_writer_put(atoll_file_writer *w, int64_t offset, const void *data, size_t bytes);
ATOLL_API atoll_err atoll_file_writer_commit(atoll_file_writer **w);
ATOLL_API void atoll_file_writer_discard(atoll_file_writer **w);
/** A whole file mapped for reading, of any size: *bytes is owned, atoll_file_unmap(); it is NULL for an empty file. The
 * file must not shrink meanwhile. NOINPUT: absent, unreadable, not a regular file. */
ATOLL_API atoll_err atoll_file_map(const char *path, const void **bytes, size_t *n);
ATOLL_API void atoll_file_unmap(const void **bytes, size_t n);
/** Append with one write() per call; creates the file. */
ATOLL_API atoll_err atoll_file_append(const char *path, const void *data, size_t bytes);
ATOLL_API atoll_err atoll_file_sync_dir(const char *dir);
ATOLL_API atoll_err atoll_file_rename(const char *from, const char *to);
/** Before a file that could not be read is written anew: renames it to the first free name of path.unreadable,
 * path.unreadable.2 and so on, and warns with both names and the thread's error message, which is the reason. */
ATOLL_API atoll_err atoll_file_set_aside(const char *path);
/** Whole file into memory; a NUL follows the last byte. *data is owned: free(). Of a pipe or a device at most 256 MiB.
 */
ATOLL_API atoll_err atoll_file_read(const char *path, char **data, size_t *bytes);
/** Digest of a file's bytes, read in pieces. */
ATOLL_API atoll_err atoll_file_digest(const char *path, atoll_digest *digest, int64_t *bytes);
/** mkdir -p with mode 0777 & ~umask; existing directories are fine. */
ATOLL_API atoll_err atoll_file_mkdirs(const char *dir);
ATOLL_API int atoll_file_exists(const char *path);
ATOLL_API int atoll_file_is_dir(const char *path);
/** Removes a file, or a directory and what is in it (never follows symbolic links). Missing is fine. */
ATOLL_API atoll_err atoll_file_remove_tree(const char *path);
/** Bytes a non-root user may still write in the file system of dir. */
ATOLL_API atoll_err atoll_file_space(const char *dir, int64_t *bytes);
/** Names in a directory, sorted, without . and ..; owned: atoll_file_list_free(). */
ATOLL_API atoll_err atoll_file_list(const char *dir, char ***names, size_t *n);
ATOLL_API void atoll_file_list_free(char ***names, size_t n);
/** Exclusive lock file with host, boot, pid, job and time inside. BUSY names the holder. A stale lock is taken over
 *  with a warning when its holder provably ended: its process on this host is gone, its host booted since, or it
 *  belonged to an earlier run of the same Slurm job (same job id, other restart count). *token is owned; release frees
 *  it and removes the file if it is still ours. */
typedef struct atoll_file_lock atoll_file_lock;
ATOLL_API atoll_err atoll_file_lock_take(const char *path, atoll_file_lock **token);
ATOLL_API void atoll_file_lock_release(atoll_file_lock **token);
/** Looks whether the lock is still ours, for somebody may have removed it. Nobody's: taken again, and *retaken is 1.
 * Another's: BUSY, and what it protects must not be written any more; the token stays to be released. */
ATOLL_API atoll_err atoll_file_lock_keep(atoll_file_lock **token, int *retaken);
/** Only looks: OK when nobody holds the lock or its holder provably ended, else BUSY. */
ATOLL_API atoll_err atoll_file_lock_probe(const char *path);
/** dir/name into buf; USAGE when it does not fit. */
ATOLL_API atoll_err atoll_path_join(char *buf, size_t n, const char *dir, const char *name);

ATOLL_END_C
#endif

/* Files that are either whole or absent.
 *
 * Problem. A run may lose its power, its disk space or its process at any instruction, and what is found under a final
 * name afterwards must be usable. open() and write() succeeding proves nothing: space may run out in write(), fsync()
 * or close(), and a name is durable only when its directory was synced.
 *
 * Method. Content goes to a sibling `path.tmp-PID`, every call is checked, the sibling is synced and renamed over the
 * final name, and the directory is synced. The previous file is kept under a second link `path.old-PID` until the
 * directory is synced, so that even a failure of that last sync is undone: the caller that sees an error also sees the
 * old content. (File systems without hard links lose only this last step: after a failed directory sync they show the
 * new content, which is whole.)
 *
 * Invariant. At every instant `path` is absent, or the whole old content, or the whole new content. A failed call
 * removes its siblings as far as the system allows; a killed process leaves at most `path.tmp-PID` and `path.old-PID`,
 * which nobody reads.
 *
 * Each system call passes through a wrapper that can be made to fail (atoll/fault.h); clean-up passes through the same
 * wrappers.
 *
 * A process that may meet RLIMIT_FSIZE must ignore SIGXFSZ, else the kernel ends it before write() can report EFBIG;
 * programs do that when they install their signal handlers. */
#include "atoll/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "atoll/fault.h"
#include "atoll/log.h"
#include "file_impl.h"

/* ---- wrappers: 0 or a value, or -1 with errno, as the system calls ---- */

static int refused(const char *call) {
  int error = atoll_fault_call(call, NULL);
  if (error)
    errno = error;
  return error != 0;
}

int file_open(const char *path, int flags) {
  if (refused("open"))
    return -1;
  int fd;
  do
    fd = open(path, flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

int file_write_all(int fd, const void *data, size_t bytes) {
  const char *p = data;
  do {
    size_t piece = bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30; /* Linux stops at 2 GiB anyway */
    int half = 0, error = atoll_fault_call("write", &half);
    if (error) {
      if (half && write(fd, p, piece / 2) < 0)
        return -1;
      errno = error;
      return -1;
    }
    ssize_t n = write(fd, p, piece);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return -1;
    if (n == 0 && piece) { /* POSIX leaves this open for devices; looping would never end */
      errno = EIO;
      return -1;
    }
    p += n;
    bytes -= (size_t)n;
  } while (bytes);
  return 0;
}

ssize_t file_read_some(int fd, void *data, size_t bytes) {
  if (refused("read"))
    return -1;
  ssize_t n;
  do
    n = read(fd, data, bytes);
  while (n < 0 && errno == EINTR);
  return n;
}

static int file_fsync(int fd) {
  if (refused("fsync"))
    return -1;
  int rc;
  do
    rc = fsync(fd);
  while (rc && errno == EINTR);
  return rc;
}

/* The descriptor is gone whatever close() answers. */
int file_close(int fd) {
  int error = refused("close") ? errno : 0;
  if (close(fd) && errno != EINTR && !error)
    error = errno;
  errno = error;
  return error ? -1 : 0;
}

static int file_rename(const char *from, const char *to) { return refused("rename") ? -1 : rename(from, to); }

int file_link(const char *from, const char *to) { return refused("link") ? -1 : link(from, to); }

int file_unlink(const char *path) { return refused("unlink") ? -1 : unlink(path); }

int file_stat(const char *path, struct stat *st) { return refused("stat") ? -1 : stat(path, st); }

static int file_mkdir(const char *path) { return refused("mkdir") ? -1 : mkdir(path, 0777); }

static int file_dirsync(const char *dir) {
  if (refused("dirsync"))
    return -1;
  int fd;
  do
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  if (fd < 0)
    return -1;
  int rc;
  do
    rc = fsync(fd);
  while (rc && errno == EINTR);
  int error = rc ? errno : 0;
  (void)close(fd); /* nothing was written through it */
  /* Some network file systems cannot sync a directory and say so; their renames are durable or never will be. */
  if (error == EINVAL || error == EOPNOTSUPP)
    error = 0;
  errno = error;
  return error ? -1 : 0;
}

atoll_err file_error(const char *verb, const char *path) {
  int error = errno;
  return atoll_fail(ATOLL_IO, "%s %s: %s (errno %d)", verb, path, strerror(error), error);
}

static atoll_err input_error(const char *verb, const char *path) {
  int error = errno;
  int missing = error == ENOENT || error == ENOTDIR || error == EACCES || error == EISDIR;
  return atoll_fail(missing ? ATOLL_NOINPUT : ATOLL_IO, "%s %s: %s (errno %d)", verb, path, strerror(error), error);
}

/* ---- names ---- */

atoll_err atoll_path_join(char *buf, size_t n, const char *dir, const char *name) {
  size_t len = strlen(dir);
  const char *between = len && dir[len - 1] != '/' ? "/" : "";
  int want = snprintf(buf, n, "%s%s%s", dir, between, name);
  if (want < 0 || (size_t)want >= n)
    return atoll_fail(ATOLL_USAGE, "path %s%s%s has %d characters, room for %zu", dir, between, name, want,
                      n ? n - 1 : 0);
  return ATOLL_OK;
}

/* The directory that holds path. */
static atoll_err parent_of(const char *path, char buf[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  size_t len = slash ? (size_t)(slash - path) : 0;
  if (len >= PATH_MAX)
    return atoll_fail(ATOLL_USAGE, "path of %zu characters, at most %d", strlen(path), PATH_MAX - 1);
  if (!slash)
    strcpy(buf, ".");
  else if (!len)
    strcpy(buf, "/");
  else {
    memcpy(buf, path, len);
    buf[len] = '\0';
  }
  return ATOLL_OK;
}

atoll_err file_sibling(const char *path, const char *tag, char buf[PATH_MAX]) {
  int want = snprintf(buf, PATH_MAX, "%s.%s-%ld", path, tag, (long)getpid());
  if (!path[0] || want < 0 || want >= PATH_MAX)
    return atoll_fail(ATOLL_USAGE, "path '%s' is empty or too long for a temporary sibling (%d of %d characters)", path,
                      want, PATH_MAX - 1);
  return ATOLL_OK;
}

/* ---- writing ---- */

/* A file at path with this content; flags choose between new (O_EXCL) and overwritten (O_TRUNC). Removed again on
 * failure, unless it was there before us. */
atoll_err file_fill(const char *path, int flags, const void *data, size_t bytes, int sync) {
  int fd = file_open(path, O_WRONLY | O_CREAT | flags);
  if (fd < 0)
    return file_error("create", path);
  atoll_err err = ATOLL_OK;
  if (file_write_all(fd, data, bytes))
    err = file_error("write", path);
  else if (sync && file_fsync(fd))
    err = file_error("sync", path);
  if (file_close(fd) && err == ATOLL_OK)
    err = file_error("close", path);
  if (err != ATOLL_OK)
    (void)file_unlink(path);
  return err;
}

/* Rename tmp over path and sync the directory; on failure path is what it was and neither sibling is left. */
static atoll_err install_durably(const char *tmp, const char *path) {
  char old[PATH_MAX], dir[PATH_MAX];
  atoll_err err;
  int kept = 0, absent = 0;
  ATOLL_TRY_GOTO(err, remove_tmp, file_sibling(path, "old", old));
  ATOLL_TRY_GOTO(err, remove_tmp, parent_of(path, dir));
  if (file_link(path, old) == 0) {
    kept = 1;
  } else if (errno == EEXIST) { /* left by a killed process that had our number */
    if (file_unlink(old) || file_link(path, old)) {
      err = file_error("keep the previous content as", old);
      goto remove_tmp;
    }
    kept = 1;
  } else if (errno == ENOENT) {
    absent = 1;
  } else if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK) {
    err = file_error("keep the previous content as", old);
    goto remove_tmp;
  }
  if (file_rename(tmp, path)) {
    err = file_error("rename to", path);
    goto remove_old;
  }
  if (file_dirsync(dir)) {
    err = file_error("sync directory", dir);
    goto roll_back;
  }
  if (kept && file_unlink(old)) {
    err = file_error("remove", old);
    goto roll_back;
  }
  return ATOLL_OK;

roll_back:
  if (kept)
    (void)file_rename(old, path);
  else if (absent)
    (void)file_unlink(path);
  return err;
remove_old:
  if (kept)
    (void)file_unlink(old);
remove_tmp:
  (void)file_unlink(tmp);
  return err;
}

/* Where the file of this name is, behind a symbolic link if that is one, and its temporary sibling. *stream: what
 * stands there is no file but a device or a pipe, such as /dev/stdout; root's rename would put a file in its place, for
 * everybody. */
static atoll_err destination(const char *name, char path[PATH_MAX], char tmp[PATH_MAX], int *stream) {
  struct stat st;
  ATOLL_TRY(file_sibling(name, "tmp", tmp)); /* refuses what is empty or too long */
  *stream = stat(name, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
  if (!*stream && lstat(name, &st) == 0 && S_ISLNK(st.st_mode) && realpath(name, path))
    return file_sibling(path, "tmp", tmp);
  strcpy(path, name);
  return ATOLL_OK;
}

static atoll_err write_into(const char *path, const void *data, size_t bytes) {
  int fd = file_open(path, O_WRONLY | O_NOCTTY);
  if (fd < 0)
    return file_error("open", path);
  atoll_err err = file_write_all(fd, data, bytes) ? file_error("write", path) : ATOLL_OK;
  if (file_close(fd) && err == ATOLL_OK)
    err = file_error("close", path);
  return err;
}

atoll_err atoll_file_replace(const char *name, const void *data, size_t bytes) {
  char path[PATH_MAX], tmp[PATH_MAX];
  int stream;
  ATOLL_TRY(destination(name, path, tmp, &stream));
  if (stream)
    return write_into(path, data, bytes);
  ATOLL_TRY(file_fill(tmp, O_TRUNC | O_NOFOLLOW, data, bytes, 1));
  return install_durably(tmp, path);
}

atoll_err atoll_file_publish(const char *name, const void *data, size_t bytes) {
  char path[PATH_MAX], tmp[PATH_MAX];
  int stream;
  ATOLL_TRY(destination(name, path, tmp, &stream));
  if (stream)
    return write_into(path, data, bytes);
  ATOLL_TRY(file_fill(tmp, O_TRUNC | O_NOFOLLOW, data, bytes, 0));
  if (file_rename(tmp, path)) {
    atoll_err err = file_error("rename to", path);
    (void)file_unlink(tmp);
    return err;
  }
  return ATOLL_OK;
}

atoll_err atoll_file_create(const char *path, const void *data, size_t bytes) {
  char dir[PATH_MAX];
  ATOLL_TRY(parent_of(path, dir));
  ATOLL_TRY(file_fill(path, O_EXCL, data, bytes, 1));
  if (file_dirsync(dir)) {
    atoll_err err = file_error("sync directory", dir);
    (void)file_unlink(path);
    return err;
  }
  return ATOLL_OK;
}

atoll_err atoll_file_begin(const char *path, const void *data, size_t bytes, int *fd) {
  int f = file_open(path, O_WRONLY | O_CREAT | O_EXCL);
  if (f < 0)
    return file_error("create", path);
  if (file_write_all(f, data, bytes)) {
    atoll_err err = file_error("write", path);
    (void)file_close(f);
    (void)file_unlink(path);
    return err;
  }
  /* A hint: the disk works while the caller prepares the next file. Errors show at the sync. */
  (void)sync_file_range(f, 0, 0, SYNC_FILE_RANGE_WRITE);
  *fd = f;
  return ATOLL_OK;
}

atoll_err atoll_file_settle(const char *path, int *fd) {
  atoll_err err = file_fsync(*fd) ? file_error("sync", path) : ATOLL_OK;
  if (file_close(*fd) && err == ATOLL_OK)
    err = file_error("close", path);
  *fd = -1;
  if (err != ATOLL_OK)
    (void)file_unlink(path);
  return err;
}

/* ---- in pieces ---- */

#define WRITER_BYTES ((size_t)1 << 20)

struct atoll_file_writer {
  char path[PATH_MAX], tmp[PATH_MAX];
  int fd;
  int64_t flushed; /* bytes in the file */
  size_t held;     /* bytes in the buffer, behind them */
  char buffer[WRITER_BYTES];
};

atoll_err atoll_file_writer_open(const char *path, atoll_file_writer **out) {
  atoll_file_writer *w = malloc(sizeof *w);
  if (!w)
    return atoll_fail(ATOLL_NOMEM, "writer of %s", path);
  atoll_err err;
  int stream;
  ATOLL_TRY_GOTO(err, free_writer, destination(path, w->path, w->tmp, &stream));
  if (stream) {
    err = atoll_fail(ATOLL_IO, "create %s: it exists and is not a regular file", path);
    goto free_writer;
  }
  w->flushed = 0;
  w->held = 0;
  w->fd = file_open(w->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (w->fd < 0) {
    err = file_error("create", w->tmp);
    goto free_writer;
  }
  *out = w;
  return ATOLL_OK;
free_writer:
  free(w);
  return err;
}

static atoll_err writer_flush(atoll_file_writer *w) {
  if (w->held && file_write_all(w->fd, w->buffer, w->held))
    return file_error("write", w->tmp);
  w->flushed += (int64_t)w->held;
  w->held = 0;
  return ATOLL_OK;
}

atoll_err atoll_file_writer_add(atoll_file_writer *w, const void *data, size_t bytes) {
  if (w->held + bytes > sizeof w->buffer)
    ATOLL_TRY(writer_flush(w));
  if (bytes < sizeof w->buffer) {
    if (bytes)
      memcpy(w->buffer + w->held, data, bytes);
    w->held += bytes;
    return ATOLL_OK;
  }
  if (file_write_all(w->fd, data, bytes))
    return file_error("write", w->tmp);
  w->flushed += (int64_t)bytes;
  return ATOLL_OK;
}

atoll_err atoll_file_writer_put(atoll_file_writer *w, int64_t offset, const void *data, size_t bytes) {
  ATOLL_TRY(writer_flush(w));
  if (offset < 0 || offset > w->flushed || (int64_t)bytes > w->flushed - offset)
    return atoll_fail(ATOLL_INTERNAL, "%s: %zu bytes put at %lld of %lld", w->path, bytes, (long long)offset,
                      (long long)w->flushed);
  if (lseek(w->fd, offset, SEEK_SET) < 0 || file_write_all(w->fd, data, bytes) || lseek(w->fd, 0, SEEK_END) < 0)
    return file_error("write", w->tmp);
  return ATOLL_OK;
}

atoll_err atoll_file_writer_commit(atoll_file_writer **writer) {
  atoll_file_writer *w = *writer;
  *writer = NULL;
  atoll_err err = writer_flush(w);
  if (err == ATOLL_OK && file_fsync(w->fd))
    err = file_error("sync", w->tmp);
  if (file_close(w->fd) && err == ATOLL_OK)
    err = file_error("close", w->tmp);
  if (err == ATOLL_OK)
    err = install_durably(w->tmp, w->path);
  else
    (void)file_unlink(w->tmp);
  free(w);
  return err;
}

void atoll_file_writer_discard(atoll_file_writer **writer) {
  if (!writer || !*writer)
    return;
  (void)file_close((*writer)->fd);
  (void)file_unlink((*writer)->tmp);
  free(*writer);
  *writer = NULL;
}

atoll_err atoll_file_map(const char *path, const void **bytes, size_t *n) {
  struct stat st;
  int fd = file_open(path, O_RDONLY | O_NONBLOCK);
  if (fd < 0)
    return input_error("open", path);
  atoll_err err = ATOLL_OK;
  void *map = NULL;
  if (fstat(fd, &st))
    err = input_error("stat", path);
  else if (!S_ISREG(st.st_mode))
    err = atoll_fail(ATOLL_NOINPUT, "%s is not a regular file", path);
  else if (st.st_size > 0 && (map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
    err = input_error("map", path);
  (void)file_close(fd); /* the map holds the file */
  ATOLL_TRY(err);
  *bytes = map;
  *n = (size_t)st.st_size;
  return ATOLL_OK;
}

void atoll_file_unmap(const void **bytes, size_t n) {
  if (*bytes)
    (void)munmap((void *)(uintptr_t)*bytes, n);
  *bytes = NULL;
}

atoll_err atoll_file_append(const char *path, const void *data, size_t bytes) {
  int fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND);
  if (fd < 0)
    return file_error("open", path);
  atoll_err err = ATOLL_OK;
  int half = 0, error = atoll_fault_call("write", &half);
  ssize_t n;
  do
    n = error && !half ? -1 : write(fd, data, half ? bytes / 2 : bytes);
  while (n < 0 && !error && errno == EINTR);
  if (error)
    errno = error;
  if (error || n < 0)
    err = file_error("append to", path);
  else if ((size_t)n != bytes) /* a second write() could be torn apart by another writer's */
    err = atoll_fail(ATOLL_IO, "append to %s: %zd of %zu bytes written", path, n, bytes);
  if (file_close(fd) && err == ATOLL_OK)
    err = file_error("close", path);
  return err;
}

atoll_err atoll_file_sync_dir(const char *dir) {
  return file_dirsync(dir) ? file_error("sync directory", dir) : ATOLL_OK;
}

atoll_err atoll_file_rename(const char *from, const char *to) {
  if (file_rename(from, to)) {
    int error = errno;
    return atoll_fail(ATOLL_IO, "rename %s to %s: %s (errno %d)", from, to, strerror(error), error);
  }
  return ATOLL_OK;
}

atoll_err atoll_file_set_aside(const char *path) {
  char aside[PATH_MAX];
  int n = snprintf(aside, sizeof aside, "%s.unreadable", path);
  for (int k = 2; n < (int)sizeof aside && atoll_file_exists(aside); k++)
    n = snprintf(aside, sizeof aside, "%s.unreadable.%d", path, k);
  if (n >= (int)sizeof aside)
    return atoll_fail(ATOLL_USAGE, "path too long: %s", path);
  char *why = strdup(atoll_err_message());
  atoll_err err = why ? atoll_file_rename(path, aside) : atoll_fail(ATOLL_NOMEM, "reason why %s is set aside", path);
  if (err == ATOLL_OK)
    atoll_warn("%s cannot be read and is kept as %s: %s", path, aside, why);
  free(why);
  return err;
}

/* ---- reading ---- */

#define STREAM_BYTES ((size_t)256 << 20) /* a pipe may hold a file; /dev/zero would fill the memory */

atoll_err atoll_file_read(const char *path, char **data, size_t *bytes) {
  int fd = file_open(path, O_RDONLY);
  if (fd < 0)
    return input_error("open", path);
  atoll_err err = ATOLL_OK;
  char *buf = NULL;
  size_t used = 0, room = 0;
  struct stat st;
  int known = fstat(fd, &st) == 0, endless = known && !S_ISREG(st.st_mode);
  size_t hint = known && st.st_size > 0 ? (size_t)st.st_size : 0; /* /proc says 0 */
  for (;;) {
    if (endless && used > STREAM_BYTES) {
      err = atoll_fail(ATOLL_NOINPUT, "read %s: no end after %zu bytes, and it is not a regular file", path, used);
      break;
    }
    if (used + 1 >= room) {
      size_t more = room ? 2 * room : hint + 2; /* one byte to see the end, one for the NUL */
      if (more < 4096)
        more = 4096;
      char *grown = more > room ? realloc(buf, more) : NULL;
      if (!grown) {
        err = atoll_fail(ATOLL_NOMEM, "no memory to read %s (%zu bytes)", path, more);
        break;
      }
      buf = grown;
      room = more;
    }
    size_t piece = room - used - 1 < ((size_t)1 << 30) ? room - used - 1 : (size_t)1 << 30;
    ssize_t n = file_read_some(fd, buf + used, piece);
    if (n < 0)
      err = input_error("read", path);
    if (n <= 0)
      break;
    used += (size_t)n;
  }
  (void)close(fd); /* read only: nothing to lose */
  if (err != ATOLL_OK) {
    free(buf);
    return err;
  }
  buf[used] = '\0';
  *data = buf;
  if (bytes)
    *bytes = used;
  return ATOLL_OK;
}

atoll_err atoll_file_digest(const char *path, atoll_digest *digest, int64_t *bytes) {
  const size_t piece = (size_t)1 << 20;
  atoll_err err = ATOLL_OK;
  atoll_digester *d = NULL;
  int64_t total = 0;
  int fd = file_open(path, O_RDONLY);
  if (fd < 0)
    return input_error("open", path);
  char *buf = malloc(piece);
  if (!buf) {
    err = atoll_fail(ATOLL_NOMEM, "no memory to read %s (%zu bytes)", path, piece);
    goto close_file;
  }
  ATOLL_TRY_GOTO(err, free_buf, atoll_digester_create(&d));
  for (;;) {
    ssize_t n = file_read_some(fd, buf, piece);
    if (n < 0) {
      err = input_error("read", path);
      break;
    }
    if (n == 0)
      break;
    atoll_digester_add(d, buf, (size_t)n);
    total += n;
  }
  if (err == ATOLL_OK) {
    *digest = atoll_digester_value(d);
    if (bytes)
      *bytes = total;
  }
  atoll_digester_destroy(&d);
free_buf:
  free(buf);
close_file:
  (void)close(fd);
  return err;
}

/* ---- directories ---- */

int atoll_file_exists(const char *path) {
  struct stat st;
  return file_stat(path, &st) == 0;
}

int atoll_file_is_dir(const char *path) {
  struct stat st;
  return file_stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

atoll_err atoll_file_mkdirs(const char *dir) {
  char path[PATH_MAX];
  size_t len = strlen(dir);
  if (!len || len >= sizeof path)
    return atoll_fail(ATOLL_USAGE, "directory name of %zu characters, expected 1 to %zu", len, sizeof path - 1);
  memcpy(path, dir, len + 1);
  for (size_t i = 1; i <= len; i++) {
    if (path[i] != '/' && path[i] != '\0')
      continue;
    char end = path[i];
    path[i] = '\0';
    /* Look first: mkdir of an existing directory answers EACCES or EROFS on some systems. */
    if (!atoll_file_is_dir(path) && file_mkdir(path)) {
      if (errno == EEXIST && atoll_file_is_dir(path)) {
        /* another rank was quicker */
      } else if (errno == EEXIST) {
        return atoll_fail(ATOLL_IO, "create directory %s: it exists and is not a directory", path);
      } else {
        return file_error("create directory", path);
      }
    }
    path[i] = end;
  }
  return ATOLL_OK;
}

/* Remove name inside the open directory at. shown is the path for messages. */
static atoll_err remove_at(int at, const char *name, const char *shown) {
  if (refused("unlink"))
    return file_error("remove", shown);
  if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
    return ATOLL_OK;
  int error = errno; /* a directory gives EISDIR on Linux and EPERM elsewhere */
  int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    int missing = errno == ENOENT;
    if (errno == ENOTDIR || errno == ELOOP)
      errno = error;
    return missing ? ATOLL_OK : file_error("remove", shown);
  }
  DIR *stream = fdopendir(fd);
  if (!stream) {
    atoll_err err = file_error("read directory", shown);
    (void)close(fd);
    return err;
  }
  atoll_err err = ATOLL_OK;
  struct dirent *entry;
  while (err == ATOLL_OK && (errno = 0, entry = readdir(stream))) {
    char below[PATH_MAX];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
      continue;
    if (atoll_path_join(below, sizeof below, shown, entry->d_name) != ATOLL_OK)
      strcpy(below, entry->d_name);
    err = remove_at(fd, entry->d_name, below);
  }
  if (err == ATOLL_OK && errno)
    err = file_error("read directory", shown);
  (void)closedir(stream);
  if (err == ATOLL_OK && unlinkat(at, name, AT_REMOVEDIR) && errno != ENOENT)
    err = file_error("remove directory", shown);
  return err;
}

atoll_err atoll_file_remove_tree(const char *path) {
  char name[PATH_MAX];
  size_t len = strlen(path);
  while (len > 1 && path[len - 1] == '/') /* "link/" would follow the link */
    len--;
  if (!len || len >= sizeof name || (len == 1 && path[0] == '/'))
    return atoll_fail(ATOLL_USAGE, "refusing to remove the tree '%s'", path);
  memcpy(name, path, len);
  name[len] = '\0';
  return remove_at(AT_FDCWD, name, name);
}

atoll_err atoll_file_space(const char *dir, int64_t *bytes) {
  struct statvfs st;
  if (refused("stat") || statvfs(dir, &st))
    return file_error("ask the free space of", dir);
  uint64_t unit = st.f_frsize ? st.f_frsize : st.f_bsize;
  uint64_t space = (uint64_t)st.f_bavail;
  *bytes = unit && space > (uint64_t)INT64_MAX / unit ? INT64_MAX : (int64_t)(space * unit);
  return ATOLL_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

atoll_err atoll_file_list(const char *dir, char ***names, size_t *n) {
  DIR *stream = refused("open") ? NULL : opendir(dir);
  if (!stream)
    return input_error("open directory", dir);
  atoll_err err = ATOLL_OK;
  char **list = NULL;
  size_t used = 0, room = 0;
  struct dirent *entry;
  while ((errno = refused("read") ? errno : 0) == 0 && (entry = readdir(stream))) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
      continue;
    if (used == room) {
      char **more = realloc(list, (room ? 2 * room : 32) * sizeof *list);
      if (!more) {
        err = atoll_fail(ATOLL_NOMEM, "no memory for the names in %s", dir);
        goto close_stream;
      }
      list = more;
      room = room ? 2 * room : 32;
    }
    list[used] = strdup(entry->d_name);
    if (!list[used]) {
      err = atoll_fail(ATOLL_NOMEM, "no memory for the names in %s", dir);
      goto close_stream;
    }
    used++;
  }
  if (errno)
    err = file_error("read directory", dir);
close_stream:
  (void)closedir(stream);
  if (err != ATOLL_OK) {
    atoll_file_list_free(&list, used);
    return err;
  }
  if (used)
    qsort(list, used, sizeof *list, by_name);
  *names = list;
  *n = used;
  return ATOLL_OK;
}

void atoll_file_list_free(char ***names, size_t n) {
  if (!names || !*names)
    return;
  for (size_t i = 0; i < n; i++)
    free((*names)[i]);
  free(*names);
  *names = NULL;
}

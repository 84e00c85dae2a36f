/* Opening, closing and the errors of HDF5.
 *
 * What HDF5 does not promise decides the shape of this file. A close succeeds over a full disk, so checkpoints and
 * snapshots are images in memory that file.h writes. A close that fails leaves the library with dirty state on which
 * its exit handler crashes, so the handler is not installed. Its global state has no lock in most builds, so all calls
 * share one. Damaged metadata can crash or hang the library where it has no checksum, so every file is written in the
 * 1.10 format, small data is kept inside checked structures, and what is still open is checked here (store_check.c)
 * before the library sees it. A killed writer leaves a mark that refuses readers; such a file is read into memory and
 * the mark cleared there, never on disk. */
#include "atoll/store.h"
#include "store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "atoll/clock.h"
#include "atoll/fault.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/version.h"

#define CORE_STEP ((size_t)1 << 20)

/* ---- the library --------------------------------------------------------------------------------------------- */

static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;
static int started;

void store_lock(void) {
  (void)pthread_mutex_lock(&library);
  if (!started) {
    started = 1;
    H5dont_atexit();
    H5open();
  }
  /* Thread-safe builds keep one setting per thread. */
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void store_unlock(void) { (void)pthread_mutex_unlock(&library); }

const char *atoll_store_library(void) {
  static char text[64];
  store_lock();
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  snprintf(text, sizeof text, "%u.%u.%u (compiled %d.%d.%d)", major, minor, release, H5_VERS_MAJOR, H5_VERS_MINOR,
           H5_VERS_RELEASE);
  store_unlock();
  return text;
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

struct innermost {
  char *buf;
  size_t n;
};

static herr_t take_innermost(unsigned depth, const H5E_error2_t *error, void *arg) {
  struct innermost *in = arg;
  if (depth == 0)
    snprintf(in->buf, in->n, "%s", error->desc ? error->desc : "");
  return 0;
}

const char *store_reason(char *buf, size_t n, int *system_error) {
  struct innermost in = {buf, n};
  buf[0] = '\0';
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &in);
  H5Eclear2(H5E_DEFAULT);
  /* "file write failed: time = ..., filename = ..., errno = 28, error message = '...', ..." is cut to its core. */
  char *number = strstr(buf, "errno = ");
  if (system_error)
    *system_error = number != NULL;
  if (number) {
    int code = (int)strtol(number + strlen("errno = "), NULL, 10);
    size_t verb = strcspn(buf, ":,");
    char text[160];
    snprintf(text, sizeof text, "%.*s: %s (errno %d)", (int)(verb < 80 ? verb : 80), buf, strerror(code), code);
    snprintf(buf, n, "%s", text);
  }
  if (!buf[0])
    snprintf(buf, n, "HDF5 gives no reason");
  return buf;
}

atoll_err store_error(const atoll_store *s, const char *what, const char *object) {
  char reason[400];
  int system_error = 0;
  store_reason(reason, sizeof reason, &system_error);
  return atoll_fail(s->writable || system_error ? ATOLL_IO : ATOLL_CORRUPT, "%s: %s %s: %s", s->path, what, object,
                    reason);
}

atoll_err store_done(atoll_store *s, atoll_err err, int change) {
  if (change && err != ATOLL_OK && err != ATOLL_USAGE && s->first == ATOLL_OK) {
    s->first = err;
    snprintf(s->first_message, sizeof s->first_message, "%s", atoll_err_message());
  }
  store_unlock();
  return err;
}

atoll_err store_may_change(atoll_store *s, const char *object) {
  if (!s->writable)
    return atoll_fail(ATOLL_USAGE, "%s: open for reading, cannot write %s", s->path, object);
  if (s->first != ATOLL_OK)
    return atoll_fail(s->first, "%s", s->first_message);
  return ATOLL_OK;
}

atoll_err store_check_path(const atoll_store *s, const char *path) {
  size_t n = path ? strlen(path) : 0;
  if (!n || path[0] != '/' || (n > 1 && path[n - 1] == '/') || strstr(path, "//"))
    return atoll_fail(ATOLL_USAGE, "%s: '%s' is not an absolute path inside the file", s->path, path ? path : "");
  return ATOLL_OK;
}

int store_exists(const atoll_store *s, const char *path) {
  if (!strcmp(path, "/"))
    return 1;
  /* Each link on the way: H5Lexists fails on a missing group. */
  char *copy = strdup(path);
  int found = copy != NULL;
  for (char *slash = copy ? strchr(copy + 1, '/') : NULL; found && slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    found = H5Lexists(s->file, copy, H5P_DEFAULT) > 0 && H5Oexists_by_name(s->file, copy, H5P_DEFAULT) > 0;
    *slash = '/';
  }
  found = found && H5Lexists(s->file, path, H5P_DEFAULT) > 0 && H5Oexists_by_name(s->file, path, H5P_DEFAULT) > 0;
  free(copy);
  H5Eclear2(H5E_DEFAULT);
  return found;
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* File access: objects close with the file, 1.10 format. use_locks: -1 leaves the library's default. */
static hid_t access_list(int use_locks) {
  hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
  if (fapl < 0)
    return fapl;
  H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG);
  H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110);
#if H5_VERSION_GE(1, 10, 7)
  if (use_locks >= 0)
    H5Pset_file_locking(fapl, (hbool_t)use_locks, 1);
#else
  (void)use_locks; /* only the variable HDF5_USE_FILE_LOCKING decides */
#endif
  return fapl;
}

/* Every API call clears the error stack on its way in; the reason of a failed open is put back. */
static void close_list(hid_t list) {
  if (list < 0)
    return;
  hid_t reason = H5Eget_current_stack();
  H5Pclose(list);
  if (reason >= 0)
    H5Eset_current_stack(reason); /* also closes it */
}

static hid_t creation_list(void) {
  hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
  if (fcpl >= 0)
    H5Pset_obj_track_times(fcpl, 0); /* the same content gives the same bytes */
  return fcpl;
}

/* HDF5 takes two core files of one name for the same file. */
static void unique_name(char *buf, size_t n, const char *path) {
  static unsigned long serial;
  snprintf(buf, n, "%s (image %lu of process %ld)", path, ++serial, (long)getpid());
}

/* Lend the caller's bytes to the core driver instead of copying them twice. The file is read only, so nothing writes
 * there. */
static void *lend_malloc(size_t size, H5FD_file_image_op_t op, void *udata) {
  (void)op;
  const atoll_store *s = udata;
  return size <= s->byte_count ? (void *)(uintptr_t)s->bytes : NULL;
}
static void *lend_memcpy(void *dest, const void *src, size_t size, H5FD_file_image_op_t op, void *udata) {
  (void)src, (void)size, (void)op, (void)udata;
  return dest;
}
static void *lend_realloc(void *ptr, size_t size, H5FD_file_image_op_t op, void *udata) {
  (void)op;
  const atoll_store *s = udata;
  return size <= s->byte_count ? ptr : NULL;
}
static herr_t lend_free(void *ptr, H5FD_file_image_op_t op, void *udata) {
  (void)ptr, (void)op, (void)udata;
  return 0;
}
static void *lend_udata_copy(void *udata) { return udata; }
static herr_t lend_udata_free(void *udata) {
  (void)udata;
  return 0;
}

static hid_t open_memory(atoll_store *s, const char *name) {
  char unique[4200];
  unique_name(unique, sizeof unique, name);
  hid_t fapl = access_list(-1);
  H5FD_file_image_callbacks_t lend = {
      lend_malloc, lend_memcpy, lend_realloc, lend_free, lend_udata_copy, lend_udata_free, s};
  hid_t file = -1;
  if (fapl >= 0 && H5Pset_fapl_core(fapl, CORE_STEP, 0) >= 0 && H5Pset_file_image_callbacks(fapl, &lend) >= 0 &&
      H5Pset_file_image(fapl, (void *)(uintptr_t)s->bytes, s->byte_count) >= 0)
    file = H5Fopen(unique, H5F_ACC_RDONLY, fapl);
  close_list(fapl);
  return file;
}

/* The file of a writer that died: a copy in memory, opened for writing there, which lets HDF5 clear the mark. */
static hid_t open_abandoned(atoll_store *s) {
  char unique[4200];
  char *data = NULL;
  size_t n = 0;
  hbool_t clear = 1;
  hid_t file = -1;
  if (atoll_file_read(s->path, &data, &n) != ATOLL_OK)
    return -1;
  unique_name(unique, sizeof unique, s->path);
  hid_t fapl = access_list(-1);
  if (fapl >= 0 && H5Pset_fapl_core(fapl, CORE_STEP, 0) >= 0 && H5Pset_file_image(fapl, data, n) >= 0 &&
      H5Pset(fapl, "clear_status_flags", &clear) >= 0)
    file = H5Fopen(unique, H5F_ACC_RDWR, fapl);
  free(data);
  close_list(fapl);
  return file;
}

static hid_t open_once(const char *path, unsigned flags, int use_locks) {
  hid_t fapl = access_list(use_locks);
  hid_t file = fapl >= 0 ? H5Fopen(path, flags, fapl) : -1;
  close_list(fapl);
  return file;
}

static atoll_err open_read(atoll_store *s) {
  char reason[400], other[400];
  struct stat st;
  int half = 0, code = atoll_fault_call("open", &half);
  int fd = code ? -1 : open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (code)
    errno = code;
  if (fd < 0)
    return atoll_fail(errno == EIO ? ATOLL_IO : ATOLL_NOINPUT, "open %s: %s", s->path, strerror(errno));
  int bad = fstat(fd, &st);
  (void)close(fd);
  if (bad || !S_ISREG(st.st_mode))
    return atoll_fail(ATOLL_NOINPUT, "%s is %s, expected an HDF5 file", s->path,
                      !bad && S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
  if (st.st_size > 0 && st.st_size <= STORE_CHECK_MAX) {
    char *data = NULL;
    size_t n = 0;
    ATOLL_TRY(atoll_file_read(s->path, &data, &n));
    atoll_err err = store_check_bytes(s->path, data, n);
    free(data);
    ATOLL_TRY(err);
  }
  s->file = open_once(s->path, H5F_ACC_RDONLY, 1);
  if (s->file >= 0)
    return ATOLL_OK;
  int system_error = 0;
  store_reason(reason, sizeof reason, &system_error);
  /* Refused for a lock or for the mark of a writer; everything else is final. */
  if (!strstr(reason, "lock") && !strstr(reason, "already open"))
    return atoll_fail(system_error ? ATOLL_IO : ATOLL_CORRUPT, "%s: open: %s (%" PRId64 " bytes)", s->path, reason,
                      (int64_t)st.st_size);
  const struct {
    unsigned flags;
    int use_locks;
    const char *how;
  } ways[] = {{H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, 1, "following its writer"},
              {H5F_ACC_RDONLY, 0, "without locks"},
              {H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, 0, "following its writer, without locks"}};
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    s->file = open_once(s->path, ways[i].flags, ways[i].use_locks);
    H5Eclear2(H5E_DEFAULT);
    if (s->file >= 0) {
      s->swmr_reader = (ways[i].flags & H5F_ACC_SWMR_READ) != 0;
      atoll_debug("%s: opened %s, since: %s", s->path, ways[i].how, reason);
      return ATOLL_OK;
    }
  }
  s->file = open_abandoned(s);
  if (s->file >= 0) {
    atoll_debug("%s: opened as a copy in memory, its writer did not close it", s->path);
    return ATOLL_OK;
  }
  store_reason(other, sizeof other, &system_error);
  return atoll_fail(system_error ? ATOLL_IO : ATOLL_CORRUPT, "%s: open: %s; as the file of a killed writer: %s",
                    s->path, reason, other);
}

/* The core driver builds its image in the caller's buffer, which always has room for a seal more. */
static void *build_realloc(void *ptr, size_t size, H5FD_file_image_op_t op, void *udata) {
  (void)ptr, (void)op;
  atoll_store_buffer *b = ((atoll_store *)udata)->buffer;
  if (size > SIZE_MAX / 2)
    return NULL;
  if (size + STORE_SEAL_BYTES > b->capacity) {
    size_t capacity = size + STORE_SEAL_BYTES; /* the driver asks in steps */
    void *grown = realloc(b->bytes, capacity);
    if (!grown)
      return NULL;
    b->bytes = grown;
    b->capacity = capacity;
  }
  return b->bytes;
}
static void *build_malloc(size_t size, H5FD_file_image_op_t op, void *udata) {
  return build_realloc(NULL, size, op, udata);
}
static void *build_memcpy(void *dest, const void *src, size_t size, H5FD_file_image_op_t op, void *udata) {
  (void)op, (void)udata;
  return memcpy(dest, src, size);
}

static atoll_err create_image(atoll_store *s) {
  char unique[4200];
  unique_name(unique, sizeof unique, s->path);
  hid_t fapl = access_list(-1), fcpl = creation_list();
  H5FD_file_image_callbacks_t build = {
      build_malloc, build_memcpy, build_realloc, lend_free, lend_udata_copy, lend_udata_free, s};
  if (fapl >= 0 && fcpl >= 0 && H5Pset_fapl_core(fapl, CORE_STEP, 0) >= 0 &&
      (!s->buffer || H5Pset_file_image_callbacks(fapl, &build) >= 0))
    s->file = H5Fcreate(unique, H5F_ACC_EXCL, fcpl, fapl);
  atoll_err err = s->file < 0 ? store_error(s, "create", "image") : ATOLL_OK;
  close_list(fapl);
  close_list(fcpl);
  return err;
}

static atoll_err create_follow(atoll_store *s) {
  struct stat st;
  int half = 0, code = atoll_fault_call("open", &half);
  if (code || stat(s->path, &st) == 0)
    return atoll_fail(ATOLL_IO, "create %s: %s", s->path, strerror(code ? code : EEXIST));
  atoll_err err = ATOLL_OK;
  for (int use_locks = 1; use_locks >= 0 && s->file < 0; use_locks--) {
    hid_t fapl = access_list(use_locks), fcpl = creation_list();
    if (fapl >= 0 && fcpl >= 0)
      s->file = H5Fcreate(s->path, H5F_ACC_EXCL, fcpl, fapl);
    if (s->file < 0)
      err = store_error(s, "create", "file");
    else if (!use_locks)
      atoll_debug("%s: created without locks, since: %s", s->path, atoll_err_message());
    close_list(fapl);
    close_list(fcpl);
    if (s->file < 0 && !strstr(atoll_err_message(), "lock"))
      break;
    /* The name was made by the refused try. */
    if (s->file < 0 && use_locks)
      (void)unlink(s->path);
  }
  return s->file < 0 ? err : ATOLL_OK;
}

static atoll_err store_new(const char *path, atoll_store **out) {
  if (!path || !*path || strlen(path) >= 4096)
    return atoll_fail(ATOLL_USAGE, "a store needs a path of 1 to 4095 bytes");
  atoll_store *s = calloc(1, sizeof *s);
  if (s)
    s->path = strdup(path);
  if (!s || !s->path) {
    free(s);
    return atoll_fail(ATOLL_NOMEM, "no memory for the store %s", path);
  }
  s->file = -1;
  *out = s;
  return ATOLL_OK;
}

static void store_free(atoll_store *s) {
  free(s->series);
  free(s->path);
  free(s);
}

atoll_err atoll_store_open(const char *path, atoll_store_mode mode, atoll_store **out) {
  atoll_store *s;
  ATOLL_TRY(store_new(path, &s));
  store_lock();
  atoll_err err;
  switch (mode) {
  case ATOLL_STORE_READ:
    err = open_read(s);
    break;
  case ATOLL_STORE_IMAGE:
    s->writable = s->image = 1;
    err = create_image(s);
    break;
  case ATOLL_STORE_FOLLOW:
    s->writable = 1;
    err = create_follow(s);
    break;
  default:
    err = atoll_fail(ATOLL_USAGE, "%s: store mode %d", path, (int)mode);
  }
  store_unlock();
  if (err == ATOLL_OK)
    *out = s;
  else
    store_free(s);
  return err;
}

atoll_err atoll_store_open_image(const char *name, atoll_store_buffer *buffer, atoll_store **out) {
  atoll_store *s;
  ATOLL_TRY(store_new(name, &s));
  store_lock();
  s->writable = s->image = 1;
  s->buffer = buffer;
  atoll_err err = create_image(s);
  store_unlock();
  if (err == ATOLL_OK)
    *out = s;
  else
    store_free(s);
  return err;
}

void atoll_store_buffer_free(atoll_store_buffer *buffer) {
  free(buffer->bytes);
  *buffer = (atoll_store_buffer){0};
}

atoll_err atoll_store_open_bytes(const char *name, const void *bytes, size_t n, atoll_store **out) {
  atoll_store *s;
  ATOLL_TRY(store_new(name, &s));
  if (!bytes || !n) {
    store_free(s);
    return atoll_fail(ATOLL_CORRUPT, "%s: open: 0 bytes are not an HDF5 file", name);
  }
  s->bytes = bytes;
  s->byte_count = n;
  atoll_err checked = store_check_bytes(name, bytes, n);
  if (checked != ATOLL_OK) {
    store_free(s);
    return checked;
  }
  store_lock();
  s->file = open_memory(s, name);
  atoll_err err = ATOLL_OK;
  if (s->file < 0) {
    char reason[400];
    err = atoll_fail(ATOLL_CORRUPT, "%s: open: %s (%zu bytes)", name, store_reason(reason, sizeof reason, NULL), n);
  }
  store_unlock();
  if (err == ATOLL_OK)
    *out = s;
  else
    store_free(s);
  return err;
}

atoll_err atoll_store_close(atoll_store **store) {
  if (!store || !*store)
    return ATOLL_OK;
  atoll_store *s = *store;
  *store = NULL;
  store_lock();
  atoll_err err = s->first;
  store_series_close(s);
  if (H5Fclose(s->file) < 0 && s->writable && (!s->image || s->buffer) && err == ATOLL_OK)
    err = store_error(s, "close", "file");
  else if (err != ATOLL_OK)
    err = atoll_fail(err, "%s", s->first_message);
  H5Eclear2(H5E_DEFAULT);
  store_unlock();
  store_free(s);
  return err;
}

static uint32_t rotate(uint32_t x, int k) { return (x << k) | (x >> (32 - k)); }

/* Bob Jenkins' lookup3 (hashlittle, public domain, seed 0) over a length that is not a multiple of 12: HDF5's checksum
 * of metadata. */
static uint32_t metadata_checksum(const unsigned char *p, size_t n) {
  uint32_t a = 0xdeadbeef + (uint32_t)n, b = a, c = a, w[3];
  for (;; p += 12, n -= 12) {
    unsigned char last[12] = {0};
    memcpy(last, p, n < 12 ? n : 12);
    for (int i = 0; i < 3; i++)
      w[i] = (uint32_t)last[4 * i] | (uint32_t)last[4 * i + 1] << 8 | (uint32_t)last[4 * i + 2] << 16 |
             (uint32_t)last[4 * i + 3] << 24;
    a += w[0], b += w[1], c += w[2];
    if (n <= 12)
      break;
    a -= c, a ^= rotate(c, 4), c += b;
    b -= a, b ^= rotate(a, 6), a += c;
    c -= b, c ^= rotate(b, 8), b += a;
    a -= c, a ^= rotate(c, 16), c += b;
    b -= a, b ^= rotate(a, 19), a += c;
    c -= b, c ^= rotate(b, 4), b += a;
  }
  c ^= b, c -= rotate(b, 14);
  a ^= c, a -= rotate(c, 11);
  b ^= a, b -= rotate(a, 25);
  c ^= b, c -= rotate(b, 16);
  a ^= c, a -= rotate(c, 4);
  b ^= a, b -= rotate(a, 14);
  c ^= b, c -= rotate(b, 24);
  return c;
}

/* HDF5 1.10 clears the writer's mark in the image of a version 3 superblock without renewing its checksum, and then
 * refuses what it gave. An older superblock would avoid that, with metadata that has no checksums at all. */
enum { VERSION = 8, OFFSET_BYTES = 9, END_OF_FILE = 28, CHECKSUM = 44 }; /* offsets in the superblock */

static void mend_superblock(unsigned char *image, size_t n) {
  if (n < CHECKSUM + 4 || image[VERSION] < 2 || image[OFFSET_BYTES] != 8)
    return;
  uint32_t sum = metadata_checksum(image, CHECKSUM);
  for (int i = 0; i < 4; i++)
    image[CHECKSUM + i] = (unsigned char)(sum >> 8 * i);
}

atoll_err atoll_store_image(atoll_store *s, void **bytes, size_t *n) {
  store_lock();
  atoll_err err = store_may_change(s, "an image");
  void *buf = NULL;
  ssize_t size = 0;
  if (err == ATOLL_OK && !s->image)
    err = atoll_fail(ATOLL_USAGE, "%s: not an image in memory", s->path);
  if (err == ATOLL_OK && (H5Fflush(s->file, H5F_SCOPE_GLOBAL) < 0 || (size = H5Fget_file_image(s->file, NULL, 0)) <= 0))
    err = store_error(s, "take image of", "file");
  if (err == ATOLL_OK && !(buf = malloc((size_t)size + STORE_SEAL_BYTES)))
    err = atoll_fail(ATOLL_NOMEM, "%s: no memory for an image of %zd bytes", s->path, size);
  if (err == ATOLL_OK && H5Fget_file_image(s->file, buf, (size_t)size) != size)
    err = store_error(s, "take image of", "file");
  if (err == ATOLL_OK) {
    mend_superblock(buf, (size_t)size);
    store_seal(buf, (size_t)size);
    *bytes = buf;
    *n = (size_t)size + STORE_SEAL_BYTES;
  } else {
    free(buf);
  }
  return store_done(s, err, 1);
}

atoll_err atoll_store_publish(atoll_store **store, atoll_err so_far, const char *path) {
  void *bytes = NULL;
  size_t n = 0;
  char failed[1024] = "";
  if (so_far == ATOLL_OK)
    so_far = atoll_store_image(*store, &bytes, &n);
  if (so_far != ATOLL_OK)
    snprintf(failed, sizeof failed, "%s", atoll_err_message());
  atoll_err err = atoll_store_close(store);
  if (so_far != ATOLL_OK) {
    atoll_err_set_message(failed); /* the first failure is the one to tell */
    err = so_far;
  }
  if (err == ATOLL_OK)
    err = atoll_file_replace(path, bytes, n);
  free(bytes);
  return err;
}

/* Where HDF5 ended the file that it built; 0 when the superblock is not of the kind that says so here. */
static size_t end_of_image(const atoll_store_buffer *b) {
  const unsigned char *image = b->bytes;
  uint64_t end = 0;
  if (b->capacity < CHECKSUM + 4 || image[VERSION] < 2 || image[OFFSET_BYTES] != 8)
    return 0;
  for (int i = 7; i >= 0; i--)
    end = end << 8 | image[END_OF_FILE + i];
  return end >= CHECKSUM + 4 && end <= b->capacity - STORE_SEAL_BYTES ? (size_t)end : 0;
}

atoll_err atoll_store_finish_image(atoll_store **store, const void **bytes, size_t *n) {
  atoll_store_buffer *b = (*store)->buffer;
  char *name = strdup((*store)->path);
  atoll_err err = b ? ATOLL_OK : atoll_fail(ATOLL_USAGE, "%s: not an image in a buffer", (*store)->path);
  atoll_err closed = atoll_store_close(store);
  err = err != ATOLL_OK ? err : closed;
  size_t end = 0;
  if (err == ATOLL_OK && !(end = end_of_image(b)))
    err = atoll_fail(ATOLL_INTERNAL, "%s: HDF5 left an image of unknown length", name ? name : "image");
  if (err == ATOLL_OK) {
    mend_superblock(b->bytes, end);
    store_seal(b->bytes, end);
    *bytes = b->bytes;
    *n = end + STORE_SEAL_BYTES;
  }
  free(name);
  return err;
}

atoll_err atoll_store_flush(atoll_store *s) {
  store_lock();
  atoll_err err = ATOLL_OK;
  if (s->writable) {
    err = store_may_change(s, "file");
    int half = 0, code = err == ATOLL_OK && !s->image ? atoll_fault_call("write", &half) : 0;
    if (code)
      err = atoll_fail(ATOLL_IO, "%s: flush file: %s (errno %d)", s->path, strerror(code), code);
    if (err == ATOLL_OK && H5Fflush(s->file, H5F_SCOPE_GLOBAL) < 0)
      err = store_error(s, "flush", "file");
  }
  return store_done(s, err, 1);
}

atoll_err atoll_store_start_following(atoll_store *s) {
  store_lock();
  atoll_err err = store_may_change(s, "file");
  if (err == ATOLL_OK && !s->image && !s->following) {
    if (H5Fflush(s->file, H5F_SCOPE_GLOBAL) < 0) {
      err = store_error(s, "flush", "file");
    } else {
      char reason[400];
      if (H5Fstart_swmr_write(s->file) < 0)
        atoll_debug("%s: readers cannot follow it while it grows: %s", s->path,
                    store_reason(reason, sizeof reason, NULL));
      s->following = 1;
    }
  }
  return store_done(s, err, 1);
}

atoll_err atoll_store_stamp(atoll_store *s, const char *format, int format_version) {
  char date[40], machine[512];
  struct utsname u;
  if (uname(&u))
    return atoll_fail(ATOLL_INTERNAL, "uname: %s", strerror(errno));
  snprintf(machine, sizeof machine, "%s %s %s", u.sysname, u.release, u.machine);
  ATOLL_TRY(atoll_store_attr_text(s, "/", "format", format));
  ATOLL_TRY(atoll_store_attr_int(s, "/", "format_version", format_version));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "Conventions", "CF-1.8"));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "software", "Atoll"));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "softwareVersion", atoll_version()));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "date", atoll_clock_iso(atoll_clock_wall(), date, sizeof date)));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "hostname", u.nodename));
  return atoll_store_attr_text(s, "/", "machine", machine);
}

/* ---- visiting ------------------------------------------------------------------------------------------------ */

struct found {
  char *path;
  int is_dataset;
};

struct collection {
  const char *group;
  struct found *list;
  size_t n, room;
  int nomem;
};

static herr_t collect(hid_t object, const char *name, const H5O_info_t *info, void *arg) {
  struct collection *c = arg;
  (void)object;
  if (!strcmp(name, ".") || (info->type != H5O_TYPE_GROUP && info->type != H5O_TYPE_DATASET))
    return 0;
  if (c->n == c->room) {
    size_t room = c->room ? 2 * c->room : 64;
    struct found *list = realloc(c->list, room * sizeof *list);
    if (!list) {
      c->nomem = 1;
      return -1;
    }
    c->list = list;
    c->room = room;
  }
  size_t length = strlen(c->group) + strlen(name) + 2;
  char *path = malloc(length);
  if (!path) {
    c->nomem = 1;
    return -1;
  }
  snprintf(path, length, "%s/%s", strcmp(c->group, "/") ? c->group : "", name);
  c->list[c->n++] = (struct found){path, info->type == H5O_TYPE_DATASET};
  return 0;
}

/* Collected first: the callback may use the store, whose lock is held meanwhile. */
atoll_err atoll_store_visit(atoll_store *s, const char *group, atoll_store_visitor visit, void *arg) {
  struct collection c = {.group = group};
  store_lock();
  atoll_err err = store_check_path(s, group);
  if (err == ATOLL_OK && !store_exists(s, group))
    err = atoll_fail(ATOLL_NOINPUT, "%s: no group %s", s->path, group);
  if (err == ATOLL_OK && H5Ovisit_by_name(s->file, group, H5_INDEX_NAME, H5_ITER_INC, collect, &c, H5P_DEFAULT) < 0)
    err = c.nomem ? atoll_fail(ATOLL_NOMEM, "%s: no memory for the list of %s", s->path, group)
                  : store_error(s, "list", group);
  err = store_done(s, err, 0);
  for (size_t i = 0; i < c.n; i++) {
    if (err == ATOLL_OK)
      err = visit(arg, c.list[i].path, c.list[i].is_dataset);
    free(c.list[i].path);
  }
  free(c.list);
  return err;
}

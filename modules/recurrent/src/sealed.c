#include "sealed.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "atoll/digest.h"
#include "atoll/file.h"
#include "atoll/log.h"

enum { SEAL = 40, KEPT_MB = 512, KEPT_DAYS = 90 };

static void seal(const char *data, size_t n, char end[SEAL]) {
  char digest[33];
  memset(end, 0, SEAL);
  (void)snprintf(end, SEAL, "%s atoll", atoll_digest_text(atoll_digest_bytes(data, n), digest));
  end[SEAL - 1] = '\n';
}

int rt_sealed_read(const char *path, char **out, size_t *bytes) {
  char *data = NULL, end[SEAL];
  size_t n = 0;
  int whole = 0;
  if (!atoll_file_exists(path))
    return 0;
  if (atoll_file_read(path, &data, &n) == ATOLL_OK && n > SEAL) {
    seal(data, n - SEAL, end);
    whole = memcmp(data + n - SEAL, end, SEAL) == 0;
  }
  if (!whole) {
    atoll_warn("%s: damaged, compiling again", path);
    atoll_err_clear();
  }
  if (whole)
    (void)utimensat(AT_FDCWD, path, NULL, 0); /* it was used: see trim() */
  if (whole && out) {
    *out = data;
    *bytes = n - SEAL;
  } else {
    free(data);
  }
  return whole;
}

/* ---- what is kept ---- */

typedef struct kept {
  char name[64];
  int64_t bytes;
  struct timespec used;
} kept;

static int is_sealed(const char *name) {
  return strncmp(name, "program-", 8) == 0 || strncmp(name, "schedule-", 9) == 0 || strncmp(name, "kernels-", 8) == 0;
}

static int by_use(const void *a, const void *b) {
  const struct timespec *x = &((const kept *)a)->used, *y = &((const kept *)b)->used;
  if (x->tv_sec != y->tv_sec)
    return x->tv_sec < y->tv_sec ? -1 : 1;
  return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Sealed files of a folder; the caller frees them. */
static kept *list_kept(DIR *folder, size_t *n) {
  kept *all = NULL;
  size_t room = 0;
  *n = 0;
  for (const struct dirent *e; (e = readdir(folder));) {
    struct stat s;
    if (!is_sealed(e->d_name) || strlen(e->d_name) >= sizeof all->name ||
        fstatat(dirfd(folder), e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode))
      continue;
    if (*n == room) {
      room = room ? 2 * room : 64;
      kept *more = realloc(all, room * sizeof *more);
      if (!more)
        break;
      all = more;
    }
    all[*n] = (kept){.bytes = (int64_t)s.st_size, .used = s.st_mtim};
    strcpy(all[(*n)++].name, e->d_name);
  }
  return all;
}

static void trim(const char *path) {
  const char *limit = getenv("ATOLL_CACHE_MB"), *slash = strrchr(path, '/');
  char name[4096];
  const int64_t most = (limit && *limit ? strtoll(limit, NULL, 10) : KEPT_MB) * INT64_C(1000000);
  int64_t all = 0;
  size_t n = 0;
  (void)snprintf(name, sizeof name, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
  DIR *folder = opendir(name);
  if (!folder)
    return;
  kept *file = list_kept(folder, &n);
  for (size_t k = 0; k < n; k++)
    all += file[k].bytes;
  if (n)
    qsort(file, n, sizeof *file, by_use);
  const time_t oldest = time(NULL) - (time_t)KEPT_DAYS * 24 * 3600;
  for (size_t k = 0; k + 1 < n && (all > most || file[k].used.tv_sec < oldest); k++) { /* the last one is in use */
    (void)unlinkat(dirfd(folder), file[k].name, 0);
    all -= file[k].bytes;
  }
  free(file);
  (void)closedir(folder);
}

void rt_sealed_write(const char *path, const char *data, size_t n) {
  char *sealed = malloc(n + SEAL);
  atoll_err err = sealed ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%s: no memory for %zu bytes", path, n);
  if (err == ATOLL_OK) {
    memcpy(sealed, data, n);
    seal(data, n, sealed + n);
    err = atoll_file_publish(path, sealed, n + SEAL);
  }
  if (err == ATOLL_OK)
    trim(path);
  free(sealed);
  if (err != ATOLL_OK) {
    atoll_warn("%s; a compiled program is not kept", atoll_err_message());
    atoll_err_clear();
  }
}

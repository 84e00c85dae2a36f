#include "sealed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/digest.h"
#include "atoll/file.h"
#include "atoll/log.h"

enum { SEAL = 40 };

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
  if (whole && out) {
    *out = data;
    *bytes = n - SEAL;
  } else {
    free(data);
  }
  return whole;
}

void rt_sealed_write(const char *path, const char *data, size_t n) {
  char *sealed = malloc(n + SEAL);
  atoll_err err = sealed ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%s: no memory for %zu bytes", path, n);
  if (err == ATOLL_OK) {
    memcpy(sealed, data, n);
    seal(data, n, sealed + n);
    err = atoll_file_publish(path, sealed, n + SEAL);
  }
  free(sealed);
  if (err != ATOLL_OK) {
    atoll_warn("%s; a compiled program is not kept", atoll_err_message());
    atoll_err_clear();
  }
}

#include "atoll/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/digest.h"
#include "atoll/file.h"

void atoll_cache_path(char *buf, size_t n, const char *name) {
  const char *own = getenv("ATOLL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char folder[3072] = "";
  if (own && *own)
    snprintf(folder, sizeof folder, "%s", own);
  else if (xdg && *xdg)
    snprintf(folder, sizeof folder, "%s/atoll", xdg);
  else if (home && *home)
    snprintf(folder, sizeof folder, "%s/.cache/atoll", home);
  *buf = 0;
  if (!*folder)
    return;
  if (atoll_file_mkdirs(folder) != ATOLL_OK || atoll_path_join(buf, n, folder, name) != ATOLL_OK) {
    atoll_err_clear();
    *buf = 0;
  }
}

/* The value of the first line "key : value" into text. */
static void first_line(FILE *f, const char *key, char *text, size_t n) {
  char line[8192];
  rewind(f);
  while (fgets(line, sizeof line, f))
    if (!strncmp(line, key, strlen(key)) && strchr(line, ':')) {
      const char *value = strchr(line, ':') + 1;
      value += *value == ' ';
      snprintf(text, n, "%.*s", (int)strcspn(value, "\n"), value);
      return;
    }
}

const char *atoll_cache_processor(char *buf, size_t n) {
  char model[128] = "unknown processor", features[8192] = "", digest[33];
  FILE *f = fopen("/proc/cpuinfo", "r");
  if (f) {
    first_line(f, "model name", model, sizeof model);
    first_line(f, "flags", features, sizeof features); /* x86 */
    if (!*features)
      first_line(f, "Features", features, sizeof features); /* Arm */
    fclose(f);
  }
  atoll_digest_text(atoll_digest_bytes(features, strlen(features)), digest);
  snprintf(buf, n, "%s, %.8s", model, digest);
  return buf;
}

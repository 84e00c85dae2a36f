/* Shared by the tests of this room. */
#ifndef TOPO_TEST_H
#define TOPO_TEST_H

#include "atoll/file.h"
#include "atoll/topo.h"
#include "unit_check.h"

#define DATA ATOLL_TEST_SOURCE_DIR "/data/"

/* A fresh empty folder of this test. */
static inline const char *scratch(const char *name, char *buf, size_t n) {
  snprintf(buf, n, "%s/scratch-%s", ATOLL_TEST_BINARY_DIR, name);
  assert_int_equal(atoll_file_remove_tree(buf), ATOLL_OK);
  assert_int_equal(atoll_file_mkdirs(buf), ATOLL_OK);
  return buf;
}

static inline void write_file(const char *folder, const char *name, const char *text, size_t bytes) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  char *slash = strrchr(path, '/');
  *slash = 0;
  assert_int_equal(atoll_file_mkdirs(path), ATOLL_OK);
  *slash = '/';
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, bytes, f), bytes);
  assert_int_equal(fclose(f), 0);
}

static inline atoll_topo_params params_of(const char *path, const char *synthetic) {
  atoll_topo_params p;
  atoll_topo_params_init(&p);
  assert_true(!path || strlen(path) < sizeof p.path);
  strcpy(p.path, path ? path : "");
  strcpy(p.synthetic, synthetic ? synthetic : "");
  return p;
}

static inline atoll_topo *load_topo(const char *path, const char *synthetic) {
  atoll_topo_params p = params_of(path, synthetic);
  atoll_topo *t = NULL;
  atoll_err err = atoll_topo_discover(NULL, &p, &t);
  if (err != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  return t;
}

/* The call must fail with code and a message that holds every word of the NULL-terminated list. */
static inline void refuses(const char *path, const char *synthetic, atoll_err code, const char *word) {
  atoll_topo_params p = params_of(path, synthetic);
  atoll_topo *t = NULL;
  atoll_err err = atoll_topo_discover(NULL, &p, &t);
  if (err != code || (word && !strstr(atoll_err_message(), word)))
    fail_msg("%s%s: found %s '%s', expected %s with '%s'", path ? path : "", synthetic ? synthetic : "",
             atoll_err_name(err), err ? atoll_err_message() : "", atoll_err_name(code), word ? word : "");
  assert_null(t);
}

#endif

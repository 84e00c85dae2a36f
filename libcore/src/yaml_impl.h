/* The tree behind atoll/yaml.h, shared by its reader, its accessors and the option files. Private to libcore. */
#ifndef ATOLL_YAML_IMPL_H
#define ATOLL_YAML_IMPL_H

#include "atoll/yaml.h"

#define YAML_MAX_BYTES ((size_t)16 << 20)
#define YAML_MAX_DEPTH 64
#define YAML_MAX_NODES ((size_t)2 << 20)

enum yaml_kind { YAML_SCALAR, YAML_MAP, YAML_LIST };

/* One block of memory for a whole document: nothing is freed alone. */
struct yaml_chunk;
struct yaml_document {
  const char *file;
  struct yaml_chunk *chunks;
  size_t nodes;
};

struct atoll_yaml {
  enum yaml_kind kind;
  int line;   /* of the key in a mapping, of the value elsewhere; from 1 */
  int quoted; /* a scalar in quotes or a block: "" given on purpose */
  int read;   /* an accessor asked for this key */
  struct yaml_document *document;
  struct atoll_yaml *parent;
  const char *key;  /* NULL outside mappings */
  const char *text; /* scalars */
  struct atoll_yaml **children;
  size_t count, capacity;
  const char **asked; /* keys accessors asked a mapping for, present or not */
  size_t asked_count, asked_capacity;
};

/* Memory of the document, 16-byte aligned; NULL when there is none. */
void *yaml_alloc(struct yaml_document *document, size_t bytes);
/* Whole file of at most YAML_MAX_BYTES; *data is owned: free(). */
atoll_err yaml_read_file(const char *path, char **data, size_t *bytes);
/* "plan.stages[1].layers" of a node, "" for the root. Returns buf. */
const char *yaml_path(const atoll_yaml *node, char *buf, size_t n);
/* "a mapping", "a list" or the quoted scalar. Returns buf. */
const char *yaml_found(const atoll_yaml *node, char *buf, size_t n);

#endif

/* JSON files of the planner's inputs. */
#include <jansson.h>
#include <stdlib.h>

#include "atoll/file.h"
#include "plan_impl.h"

atoll_err plan_read_json(const char *path, struct json_t **root) {
  char *text = NULL;
  size_t bytes = 0;
  json_error_t where;
  ATOLL_TRY(atoll_file_read(path, &text, &bytes));
  *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
  free(text);
  return *root ? ATOLL_OK : atoll_fail(ATOLL_USAGE, "%s:%d: %s", path, where.line, where.text);
}

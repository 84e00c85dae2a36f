/* Feeds files, or all files of folders, to a fuzz target, each as a heap block of its exact size. For compilers without
 * libFuzzer, and as a test: a target without inputs fails. */
#include <dirent.h>
#include <sys/stat.h>

#include "atoll/file.h"
#include "fuzz.h"

static int replay_file(const char *path) {
  char *text = NULL;
  size_t n = 0;
  if (atoll_file_read(path, &text, &n) != ATOLL_OK) {
    fprintf(stderr, "%s: %s\n", path, atoll_err_message());
    return -1;
  }
  unsigned char *exact = malloc(n ? n : 1);
  if (!exact) {
    free(text);
    return -1;
  }
  memcpy(exact, text, n);
  free(text);
  fprintf(stderr, "%s: %zu bytes\n", path, n);
  (void)LLVMFuzzerTestOneInput(exact, n);
  free(exact);
  return 1;
}

static int replay(const char *path) {
  if (!atoll_file_is_dir(path))
    return replay_file(path);
  char **names = NULL, child[4096];
  size_t n = 0;
  int done = 0;
  if (atoll_file_list(path, &names, &n) != ATOLL_OK) {
    fprintf(stderr, "%s: %s\n", path, atoll_err_message());
    return -1;
  }
  for (size_t i = 0; i < n && done >= 0; i++) {
    int got = atoll_path_join(child, sizeof child, path, names[i]) == ATOLL_OK ? replay(child) : -1;
    done = got < 0 ? -1 : done + got;
  }
  atoll_file_list_free(&names, n);
  return done;
}

int main(int argc, char **argv) {
  int files = 0;
  for (int i = 1; i < argc; i++) {
    int got = replay(argv[i]);
    if (got < 0)
      return 1;
    files += got;
  }
  printf("%d inputs\n", files);
  return files > 0 ? 0 : 1;
}

#include "atoll/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PLUGINS_MAX 32

struct loaded {
  const atoll_plugin *plugin; /* NULL when it could not be loaded */
  char *path;
  char why_not[512]; /* "" when it is in use */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded plugins[PLUGINS_MAX];
static int plugin_count, loaded_once;

/* Objects stay loaded for ever: their tables are borrowed for ever. */
static void load(const char *path) {
  if (plugin_count == PLUGINS_MAX)
    return;
  struct loaded *l = &plugins[plugin_count];
  l->path = strdup(path);
  if (!l->path)
    return;
  plugin_count++;
  void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!object) {
    const char *why = dlerror();
    snprintf(l->why_not, sizeof l->why_not, "%s", why ? why : "it cannot be loaded");
    return;
  }
  const atoll_plugin *(*entry)(void) = NULL;
  *(void **)&entry = dlsym(object, "atoll_plugin_v1");
  if (!entry) {
    snprintf(l->why_not, sizeof l->why_not, "it has no atoll_plugin_v1");
    dlclose(object);
    return;
  }
  const atoll_plugin *p = entry();
  if (!p || p->version != ATOLL_PLUGIN_VERSION) {
    snprintf(l->why_not, sizeof l->why_not, "its interface has version %d, this build loads %d", p ? p->version : -1,
             ATOLL_PLUGIN_VERSION);
    dlclose(object);
    return;
  }
  l->plugin = p;
  atoll_err err = p->device ? atoll_device_backend_register(p->device) : ATOLL_OK;
  for (int i = 0; p->symmetric && p->symmetric[i] && err == ATOLL_OK; i++)
    err = atoll_symmetric_backend_register(p->symmetric[i]);
  if (err != ATOLL_OK) {
    snprintf(l->why_not, sizeof l->why_not, "%s", atoll_err_message());
    l->plugin = NULL;
    return;
  }
  const char *why = NULL;
  if (p->device && p->device->probe && p->device->probe(&why) != ATOLL_OK)
    snprintf(l->why_not, sizeof l->why_not, "%s", why ? why : "its probe gave no reason");
}

static int filter_any(const struct dirent *d) {
  size_t n = strlen(d->d_name);
  return n > 3 && !strcmp(d->d_name + n - 3, ".so");
}

/* In the library folder the suite's own libraries lie beside the plug-ins. */
static int filter_own(const struct dirent *d) {
  return !strcmp(d->d_name, "libatoll_cuda.so") || (!strncmp(d->d_name, "libatoll_plugin_", 16) && filter_any(d));
}

static atoll_err load_folder(const char *folder, int (*filter)(const struct dirent *)) {
  struct dirent **found = NULL;
  int n = scandir(folder, &found, filter, alphasort);
  if (n < 0)
    return atoll_fail(ATOLL_NOINPUT, "plug-in folder %s: %s", folder, strerror(errno));
  for (int i = 0; i < n; i++) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name) < (int)sizeof path)
      load(path);
    free(found[i]);
  }
  free(found);
  return ATOLL_OK;
}

static atoll_err load_from_env(const char *list) {
  char *copy = strdup(list), *rest = NULL;
  if (!copy)
    return atoll_fail(ATOLL_NOMEM, "ATOLL_PLUGIN_PATH");
  atoll_err err = ATOLL_OK;
  for (char *item = strtok_r(copy, ":", &rest); item && !err; item = strtok_r(NULL, ":", &rest)) {
    struct stat st;
    if (stat(item, &st) != 0)
      err = atoll_fail(ATOLL_NOINPUT, "ATOLL_PLUGIN_PATH: %s: %s", item, strerror(errno));
    else if (S_ISDIR(st.st_mode))
      err = load_folder(item, filter_any);
    else
      load(item);
  }
  free(copy);
  return err;
}

atoll_err atoll_plugins_load(void) {
  atoll_err err = ATOLL_OK;
  pthread_mutex_lock(&lock);
  if (!loaded_once) {
    loaded_once = 1;
    const char *list = getenv("ATOLL_PLUGIN_PATH");
    Dl_info self;
    if (list && *list) {
      err = load_from_env(list);
    } else if (dladdr((void *)&plugins, &self) && self.dli_fname) {
      char folder[4096];
      snprintf(folder, sizeof folder, "%s", self.dli_fname);
      char *slash = strrchr(folder, '/');
      if (slash) {
        *slash = 0;
        err = load_folder(folder, filter_own);
      }
    }
  }
  pthread_mutex_unlock(&lock);
  return err;
}

int atoll_plugin_entry(int i, const atoll_plugin **plugin, const char **path, const char **why_not) {
  pthread_mutex_lock(&lock);
  int have = i >= 0 && i < plugin_count;
  if (have) {
    *plugin = plugins[i].plugin;
    *path = plugins[i].path;
    *why_not = plugins[i].why_not[0] ? plugins[i].why_not : NULL;
  }
  pthread_mutex_unlock(&lock);
  return have;
}

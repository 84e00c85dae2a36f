/* Names and shared objects to environments. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "rl_impl.h"

static const atoll_rl_env *const built_in[] = {&rl_cartpole, &rl_grid, &rl_free};
enum { BUILT_IN = sizeof built_in / sizeof *built_in };

int rl_is_built_in(const atoll_rl_env *env) {
  for (int k = 0; k < BUILT_IN; k++)
    if (env->step == built_in[k]->step)
      return 1;
  return 0;
}

static atoll_err check(const char *path, const atoll_rl_env *e) {
  if (!e)
    return atoll_fail(ATOLL_NOINPUT, "%s: atoll_rl_env_v1() gives no environment", path);
  if (e->version != ATOLL_RL_ENV_VERSION)
    return atoll_fail(ATOLL_MISMATCH, "%s: an environment of version %d, this program has %d", path, e->version,
                      ATOLL_RL_ENV_VERSION);
  if (!e->name || !e->start || !e->step)
    return atoll_fail(ATOLL_USAGE, "%s: environment %s lacks its %s", path, e->name ? e->name : "",
                      !e->name   ? "name"
                      : e->start ? "step"
                                 : "start");
  if (e->observation < 1 || e->state < e->observation || e->actions < 2 || e->limit < 0)
    return atoll_fail(
        ATOLL_USAGE,
        "%s: environment %s has states of %lld numbers, observations of %lld, %lld actions and limit %lld; "
        "expected 1 <= observation <= state, 2 actions or more, no negative limit",
        path, e->name, (long long)e->state, (long long)e->observation, (long long)e->actions, (long long)e->limit);
  return ATOLL_OK;
}

static atoll_err load(const char *path, rl_opened *o) {
  const atoll_rl_env *(*get)(void);
  o->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!o->object)
    return atoll_fail(ATOLL_NOINPUT, "environment %s: %s", path, dlerror());
  void *symbol = dlsym(o->object, "atoll_rl_env_v1");
  if (!symbol)
    return atoll_fail(ATOLL_MISMATCH, "%s has no function atoll_rl_env_v1: it is not an environment of version %d",
                      path, ATOLL_RL_ENV_VERSION);
  memcpy(&get, &symbol, sizeof get); /* the form in which C allows it */
  const atoll_rl_env *e = get();
  ATOLL_TRY(check(path, e));
  o->env = *e;
  return ATOLL_OK;
}

static atoll_err find(const char *name, int64_t observation, rl_opened *o) {
  const char *names[BUILT_IN];
  for (int k = 0; k < BUILT_IN; k++) {
    names[k] = built_in[k]->name;
    if (strcmp(name, names[k]) != 0)
      continue;
    o->env = *built_in[k];
    if (built_in[k] == &rl_free)
      o->env.state = o->env.observation = observation;
    return ATOLL_OK;
  }
  const char *near = atoll_nearest(name, names, BUILT_IN);
  return atoll_fail(ATOLL_USAGE,
                    "environment '%s' is not built in (cartpole, grid, free)%s%s%s; a shared object is named by a path "
                    "with a slash",
                    name, near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
}

atoll_err atoll_rl_env_open(const char *name, int64_t observation, const atoll_rl_env **env) {
  rl_opened *o = calloc(1, sizeof *o);
  if (!o)
    return atoll_fail(ATOLL_NOMEM, "environment %s", name);
  atoll_err err = strchr(name, '/') ? load(name, o) : find(name, observation, o);
  const atoll_rl_env *opened = &o->env;
  if (err == ATOLL_OK)
    *env = opened;
  else
    atoll_rl_env_close(&opened);
  return err;
}

void atoll_rl_env_close(const atoll_rl_env **env) {
  rl_opened *o = (rl_opened *)(uintptr_t)*env;
  if (o && o->object)
    dlclose(o->object);
  free(o);
  *env = NULL;
}

/* A library is looked for in the cache by a digest of all that it depends on: source, compiler with its version, flags,
 * processor. A file that is damaged, which its seal tells, is made again; a cache that cannot be written costs a
 * compilation each time. Without a compiler, or when it fails, there is no library, and programs are interpreted. */
#include "native.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atoll/cache.h"
#include "atoll/digest.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "sealed.h"

extern char **environ;

/* -ffp-contract=off: elementwise operations round as those of the interpreter do. The other two only say that nobody
 * looks at errno or floating-point traps. */
#define DEFAULT_FLAGS "-O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math "

enum { WORDS = 64 };

struct rt_native {
  void *object;
  int users;
};

/* ---- other programs ---- */

struct command {
  char *copy, *word[WORDS];
  int n;
};

static void add_words(struct command *c, char *text) {
  char *state = NULL;
  for (char *w = strtok_r(text, " \t", &state); w && c->n < WORDS - 8; w = strtok_r(NULL, " \t", &state))
    c->word[c->n++] = w;
}

/* Runs it with both outputs going to a file; 0 when it ends well. */
static int run(struct command *c, const char *output) {
  posix_spawn_file_actions_t actions;
  pid_t pid;
  int status = -1;
  c->word[c->n] = NULL;
  if (c->n == 0 || posix_spawn_file_actions_init(&actions) != 0)
    return -1;
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  int failed = posix_spawnp(&pid, c->word[0], &actions, NULL, c->word, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed)
    return -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  return status;
}

/* ---- a folder for one compilation ---- */

struct build {
  char folder[512], source[560], object[560], output[560];
  const char *compiler, *flags;
};

static int open_build(struct build *b) {
  const char *tmp = getenv("TMPDIR");
  (void)snprintf(b->folder, sizeof b->folder, "%.480s/atoll-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (!mkdtemp(b->folder))
    return 0;
  (void)snprintf(b->source, sizeof b->source, "%s/program.c", b->folder);
  (void)snprintf(b->object, sizeof b->object, "%s/program.so", b->folder);
  (void)snprintf(b->output, sizeof b->output, "%s/output", b->folder);
  return 1;
}

static void close_build(const struct build *b) { (void)atoll_file_remove_tree(b->folder); }

/* What the compiler said first, or why there is nothing. */
static void first_words(const struct build *b, char *why, size_t n) {
  char *text = NULL;
  size_t bytes;
  *why = 0;
  if (atoll_file_read(b->output, &text, &bytes) == ATOLL_OK && text) {
    const char *from = strstr(text, "error");
    while (from && from > text && from[-1] != '\n')
      from--;
    from = from ? from : text;
    (void)snprintf(why, n, "%.*s", (int)strcspn(from, "\n"), from);
  } else {
    atoll_err_clear();
  }
  free(text);
}

static int ask_version(const struct build *b, char **text) {
  size_t bytes;
  struct command c = {.copy = strdup(b->compiler)};
  if (!c.copy)
    return 0;
  add_words(&c, c.copy);
  c.word[c.n++] = (char *)"--version";
  int ok = run(&c, b->output) == 0 && atoll_file_read(b->output, text, &bytes) == ATOLL_OK;
  free(c.copy);
  return ok;
}

static int compile(const struct build *b) {
  struct command c = {.copy = malloc(strlen(b->compiler) + strlen(b->flags) + 2)};
  if (!c.copy)
    return 0;
  strcpy(c.copy, b->compiler);
  char *flags = c.copy + strlen(b->compiler) + 1;
  strcpy(flags, b->flags);
  add_words(&c, c.copy);
  add_words(&c, flags);
  const char *const more[] = {"-std=gnu11", "-fPIC", "-shared", "-o", b->object, b->source, "-lm"};
  for (size_t k = 0; k < sizeof more / sizeof *more; k++)
    c.word[c.n++] = (char *)more[k];
  int ok = run(&c, b->output) == 0;
  free(c.copy);
  return ok;
}

/* ---- the cache ---- */

static void publish(const char *path, const char *object) {
  char *data = NULL;
  size_t n = 0;
  if (atoll_file_read(object, &data, &n) == ATOLL_OK)
    rt_sealed_write(path, data, n);
  else
    atoll_err_clear();
  free(data);
}

static atoll_err cache_name(const struct build *b, const char *version, const char *source, size_t bytes, char *path,
                            size_t n) {
  atoll_digester *d = NULL;
  char processor[192], digest[33], name[64];
  ATOLL_TRY(atoll_digester_create(&d));
  atoll_digester_add_text(d, b->compiler);
  atoll_digester_add_text(d, version);
  atoll_digester_add_text(d, b->flags);
  atoll_digester_add_text(d, atoll_cache_processor(processor, sizeof processor));
  atoll_digester_add(d, source, bytes);
  (void)snprintf(name, sizeof name, "program-%s.so", atoll_digest_text(atoll_digester_value(d), digest));
  atoll_digester_destroy(&d);
  atoll_cache_path(path, n, name);
  return ATOLL_OK;
}

/* ---- ---- */

static void *load(const char *path, char *why, size_t n) {
  void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!object)
    (void)snprintf(why, n, "%s", dlerror());
  return object;
}

static void *obtain(const struct build *b, const char *source, size_t bytes, char *why, size_t n) {
  char path[4096] = "", *version = NULL;
  void *object = NULL;
  if (!ask_version(b, &version)) {
    (void)snprintf(why, n, "compiler '%s' does not run", b->compiler);
    free(version);
    return NULL;
  }
  if (cache_name(b, version, source, bytes, path, sizeof path) != ATOLL_OK)
    *path = 0;
  free(version);
  if (*path && rt_sealed_read(path, NULL, NULL) && (object = load(path, why, n))) {
    (void)snprintf(why, n, "from %s", path);
    return object;
  }
  if (atoll_file_publish(b->source, source, bytes) != ATOLL_OK) {
    (void)snprintf(why, n, "%s", atoll_err_message());
    return NULL;
  }
  if (!compile(b)) {
    char words[400];
    first_words(b, words, sizeof words);
    (void)snprintf(why, n, "compiler '%s' failed: %s", b->compiler, words);
    return NULL;
  }
  object = load(b->object, why, n);
  if (object && *path)
    publish(path, b->object);
  if (object)
    (void)snprintf(why, n, "compiled by '%s %s'", b->compiler, b->flags);
  return object;
}

static const char *chosen(const char *given, const char *variable, const char *otherwise) {
  const char *set = getenv(variable);
  return given ? given : set ? set : otherwise;
}

atoll_err rt_native_create(const char *source, size_t bytes, const char *compiler, const char *flags, int threads,
                           rt_native **out, char *why, size_t n) {
  struct build b = {
      .compiler = chosen(compiler, "ATOLL_CC", "cc"),
      .flags = chosen(flags, "ATOLL_CFLAGS", threads ? DEFAULT_FLAGS "-fopenmp" : DEFAULT_FLAGS "-fopenmp-simd")};
  *out = NULL;
  if (!*b.compiler) {
    (void)snprintf(why, n, "no compiler is wanted");
    return ATOLL_OK;
  }
  rt_native *lib = calloc(1, sizeof *lib);
  if (!lib)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  if (open_build(&b)) {
    lib->object = obtain(&b, source, bytes, why, n);
    close_build(&b);
  } else {
    (void)snprintf(why, n, "no folder for compiling: %s", strerror(errno));
  }
  atoll_err_clear();
  lib->users = 1;
  if (lib->object) {
    *out = lib;
    return ATOLL_OK;
  }
  atoll_warn("recurrent program: %s; it is interpreted, slowly", why);
  free(lib);
  return ATOLL_OK;
}

rt_native *rt_native_share(rt_native *lib) {
  if (lib)
    lib->users++;
  return lib;
}

void rt_native_destroy(rt_native **address) {
  rt_native *lib = *address;
  *address = NULL;
  if (!lib || --lib->users > 0)
    return;
  (void)dlclose(lib->object);
  free(lib);
}

void *rt_native_symbol(const rt_native *lib, const char *name) { return dlsym(lib->object, name); }

rt_entry rt_native_entry(const rt_native *lib, int number) {
  char name[32];
  rt_entry entry = NULL;
  (void)snprintf(name, sizeof name, "rt_program_%d", number);
  *(void **)&entry = rt_native_symbol(lib, name);
  return entry;
}

/* A library is looked for in the cache by a digest of all that it depends on: source, compiler, flags, processor. A
 * compiler is what its words are on this machine: paths, sizes and times, for asking it would take longer than all
 * else. What a wrapper runs is seen only where it is a word too: that of "ccache gcc" is, that of a cc that links to
 * ccache is not, so whoever replaces the latter's compiler empties the cache. A file that is damaged, which its seal
 * tells, is made again; a cache that cannot be written costs a compilation each time. Without a compiler, or when it
 * fails, there is no library, and programs are interpreted. */
#include "native.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <omp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "atoll/cache.h"
#include "atoll/clock.h"
#include "atoll/digest.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "emit.h"
#include "sealed.h"

extern char **environ;

/* -ffp-contract=off: elementwise operations round as those of the interpreter do. The other two only say that nobody
 * looks at errno or floating-point traps. */
#define DEFAULT_FLAGS "-O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math "

enum { WORDS = 64, UNIT = 10000 /* bytes of source, and the first ones are emitted.h */ };

struct rt_native {
  void *object;
  int users;
};

/* ---- the compiler ---- */

struct command {
  char *copy, *word[WORDS];
  int n;
};

static void add_words(struct command *c, char *text) {
  char *state = NULL;
  for (char *w = strtok_r(text, " \t", &state); w && c->n < WORDS - 12; w = strtok_r(NULL, " \t", &state))
    c->word[c->n++] = w;
}

/* The file that a word names, on PATH if it has no slash, without links; 0: none that can be executed. */
static int find_program(const char *word, char path[PATH_MAX]) {
  const char *at = strchr(word, '/') ? "" : getenv("PATH");
  for (char name[PATH_MAX]; at;) {
    size_t n = strcspn(at, ":");
    (void)snprintf(name, sizeof name, "%.*s%s%s", (int)n, at, n ? "/" : "", word);
    if (access(name, X_OK) == 0 && !atoll_file_is_dir(name) && realpath(name, path))
      return 1;
    at = at[n] == ':' ? at + n + 1 : NULL;
  }
  return 0;
}

/* All words that are programs tell which compiler it is: in "nice -n 5 env A=b ccache cc", four. 0: the first one is
 * none. */
static int identify(const char *compiler, atoll_digester *d) {
  struct command c = {.copy = strdup(compiler)};
  int runs = 0;
  if (!c.copy)
    return 0;
  add_words(&c, c.copy);
  for (int k = 0; k < c.n; k++) {
    char path[PATH_MAX];
    struct stat s;
    if (c.word[k][0] == '-' || strchr(c.word[k], '=') || !find_program(c.word[k], path) || stat(path, &s) != 0)
      continue;
    const int64_t file[] = {(int64_t)s.st_size, (int64_t)s.st_mtim.tv_sec, (int64_t)s.st_mtim.tv_nsec};
    atoll_digester_add_text(d, path);
    atoll_digester_add(d, file, sizeof file);
    runs |= k == 0;
  }
  free(c.copy);
  return runs;
}

/* ---- a folder for one compilation ---- */

struct build {
  char folder[512], source[560], object[560], unit[RT_PARTS][560], output[RT_PARTS + 1][560];
  const char *compiler, *flags;
  int units; /* translation units */
};

#define BUILDS "atoll-compile-"

/* Folders that nothing can be at work in any more: of programs that ended together with what watches over compilers. */
static void remove_old_builds(const char *tmp) {
  const time_t oldest = time(NULL) - 24 * 3600;
  char **name = NULL, path[PATH_MAX];
  size_t n = 0;
  struct stat s;
  if (atoll_file_list(tmp, &name, &n) == ATOLL_OK)
    for (size_t k = 0; k < n; k++)
      if (strncmp(name[k], BUILDS, strlen(BUILDS)) == 0 &&
          atoll_path_join(path, sizeof path, tmp, name[k]) == ATOLL_OK && lstat(path, &s) == 0 && S_ISDIR(s.st_mode) &&
          s.st_uid == geteuid() && s.st_mtim.tv_sec < oldest)
        (void)atoll_file_remove_tree(path);
  atoll_file_list_free(&name, n);
  atoll_err_clear();
}

static int open_build(struct build *b) {
  const char *set = getenv("TMPDIR"), *tmp = set && *set ? set : "/tmp";
  char folder[sizeof b->folder]; /* apart: gcc with sanitizers takes a member of *b for one that overlaps */
  remove_old_builds(tmp);
  (void)snprintf(folder, sizeof folder, "%.480s/" BUILDS "XXXXXX", tmp);
  const int made = mkdtemp(folder) != NULL;
  memcpy(b->folder, folder, sizeof folder);
  if (!made)
    return 0;
  (void)snprintf(b->source, sizeof b->source, "%s/program.c", folder);
  (void)snprintf(b->object, sizeof b->object, "%s/program.so", folder);
  for (int k = 0; k < RT_PARTS; k++)
    (void)snprintf(b->unit[k], sizeof b->unit[k], "%s/unit-%d.o", folder, k);
  for (int k = 0; k <= RT_PARTS; k++)
    (void)snprintf(b->output[k], sizeof b->output[k], "%s/output-%d", folder, k);
  return 1;
}

static void close_build(const struct build *b) { (void)atoll_file_remove_tree(b->folder); }

/* What a compiler said first. */
static void first_words(const char *output, char *why, size_t n) {
  char *text = NULL;
  size_t bytes;
  (void)snprintf(why, n, "it said nothing");
  if (atoll_file_read(output, &text, &bytes) == ATOLL_OK && bytes > 0) {
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

/* ---- the compiler's processes ---- */

/* What a compiler starts is ended with it: all are one process group. Neither an interrupt from the terminal nor a
 * launcher that kills a program's group reaches that group, and one interrupts just when a compiler hangs.
 * So its first member is a shell that reads a pipe which nobody writes to: when we are gone, however we ended, it sees
 * the pipe's end, asks the others to end, so that they remove files of their own, removes our folder, and kills the
 * group. What is still being written makes the first removal fail at most. A stop from the terminal does not stop a
 * compiler, which does no harm. */
struct group {
  pid_t leader;
  int open;              /* our end of the pipe */
  double seconds, until; /* that all of a compilation may take; the end of them */
};

/* A process that reads `in`, -1: nothing, with both outputs going to a file. group: 0 for one of its own. -1: it did
 * not start. */
static pid_t spawn(char *const *word, int in, const char *output, pid_t group) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  pid_t pid;
  if (posix_spawn_file_actions_init(&actions) != 0)
    return -1;
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&actions);
    return -1;
  }
  if (in < 0)
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  else
    posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_setpgroup(&attributes, group);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int failed = posix_spawnp(&pid, word[0], &actions, &attributes, word, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failed ? -1 : pid;
}

static void reap(pid_t pid) {
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
    ;
}

static int open_group(struct group *g, const char *folder) {
  const char *set = getenv("ATOLL_CC_SECONDS");
  static char script[] = "trap '' TERM INT HUP; read gone; kill 0; rm -rf \"$0\" || rm -rf \"$0\"; kill -9 0";
  char *const leader[] = {"sh", "-c", script, (char *)folder, NULL};
  int end[2];
  g->seconds = set && atof(set) > 0 ? atof(set) : 600;
  g->until = atoll_clock_now() + g->seconds;
  if (pipe2(end, O_CLOEXEC) != 0)
    return 0;
  g->leader = spawn(leader, end[0], "/dev/null", 0);
  g->open = end[1];
  (void)close(end[0]);
  if (g->leader < 0)
    (void)close(g->open);
  return g->leader >= 0;
}

/* Until it is closed the leader's number, which is the group's, is nobody else's. */
static void kill_group(const struct group *g) { (void)kill(-g->leader, SIGKILL); }

/* What a compiler left running on purpose, as a server for the next time, stays. */
static void close_group(const struct group *g) {
  (void)kill(g->leader, SIGKILL);
  reap(g->leader);
  (void)close(g->open);
}

/* The compiler with its flags and what follows, up to NULL. */
static pid_t start(const struct build *b, const struct group *g, const char *const *more, const char *output) {
  struct command c = {.copy = malloc(strlen(b->compiler) + strlen(b->flags) + 2)};
  if (!c.copy)
    return -1;
  strcpy(c.copy, b->compiler);
  char *flags = c.copy + strlen(b->compiler) + 1;
  strcpy(flags, b->flags);
  add_words(&c, c.copy);
  add_words(&c, flags);
  for (; *more; more++)
    c.word[c.n++] = (char *)*more;
  c.word[c.n] = NULL;
  pid_t pid = spawn(c.word, -1, output, g->leader);
  free(c.copy);
  return pid;
}

static pid_t start_unit(const struct build *b, const struct group *g, int k) {
  char units[32], unit[32];
  (void)snprintf(units, sizeof units, "-DRT_UNITS=%d", b->units);
  (void)snprintf(unit, sizeof unit, "-DRT_UNIT=%d", k);
  return start(b, g, (const char *[]){"-std=gnu11", "-fPIC", "-c", units, unit, "-o", b->unit[k], b->source, NULL},
               b->output[k]);
}

/* Of the units, or of the source when there is one. */
static pid_t start_library(const struct build *b, const struct group *g) {
  const char *more[RT_PARTS + 8] = {"-std=gnu11", "-fPIC", "-shared", "-o", b->object};
  int n = 5;
  for (int k = 0; k < b->units; k++)
    more[n++] = b->units > 1 ? b->unit[k] : b->source;
  more[n] = "-lm";
  return start(b, g, more, b->output[b->units]);
}

/* 0: it runs, 1: it ended well, -1: it did not, or never began. */
static int state_of(pid_t pid) {
  int status = 0;
  const pid_t ended = pid < 0 ? -1 : waitpid(pid, &status, WNOHANG);
  return ended == 0 ? 0 : ended == pid && status == 0 ? 1 : -1;
}

/* Takes out those of pid[n] that ended, which become 0; the first of them that failed, or -1. */
static int take_ended(pid_t *pid, int n, int *running) {
  for (int k = 0; k < n; k++) {
    const int state = pid[k] ? state_of(pid[k]) : 0;
    if (!state)
      continue;
    pid[k] = 0;
    --*running;
    if (state < 0)
      return k;
  }
  return -1;
}

static void end_all(const struct group *g, const pid_t *pid, int n) {
  kill_group(g);
  for (int k = 0; k < n; k++)
    if (pid[k] > 0)
      reap(pid[k]);
}

/* What is told of a compiler is its output. */
static void tell(const char *output, const char *why) { (void)atoll_file_publish(output, why, strlen(why)); }

static void tell_late(const struct group *g, const char *output) {
  char why[64];
  (void)snprintf(why, sizeof why, "error: not done after %g seconds\n", g->seconds);
  tell(output, why);
}

/* Starts first ... last - 1, units and then the library, as many at a time as there are processors. Once one has failed
 * or the time is over no more is started, and what runs is ended. The output of what failed, or NULL. Looks often at
 * first: a small program takes some hundredths of a second. */
static const char *run(const struct build *b, const struct group *g, int first, int last) {
  const double longest = 5e-3;
  const int most = omp_get_num_procs();
  pid_t pid[RT_PARTS + 1] = {0};
  double pause = 5e-4;
  int begun = first, running = 0, failed = -1, late = 0;
  while (failed < 0 && (begun < last || running > 0)) {
    for (; begun < last && running < most; begun++, running++)
      pid[begun] = begun < b->units ? start_unit(b, g, begun) : start_library(b, g);
    failed = take_ended(pid, last, &running);
    late = failed < 0 && running > 0 && atoll_clock_now() > g->until;
    failed = late ? first : failed;
    if (failed < 0 && running > 0)
      atoll_clock_sleep(pause);
    pause = pause * 1.25 < longest ? pause * 1.25 : longest;
  }
  if (failed >= 0)
    end_all(g, pid, last);
  if (late)
    tell_late(g, b->output[first]);
  return failed < 0 ? NULL : b->output[failed];
}

static const char *compile(const struct build *b) {
  struct group g;
  if (!open_group(&g, b->folder)) {
    tell(b->output[0], "error: not started, for there is no 'sh' to watch over it\n");
    return b->output[0];
  }
  const char *failed = b->units > 1 ? run(b, &g, 0, b->units) : NULL;
  if (!failed)
    failed = run(b, &g, b->units, b->units + 1);
  close_group(&g);
  return failed;
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

/* 0: there is no such compiler. */
static int cache_name(const struct build *b, const char *source, size_t bytes, char *path, size_t n) {
  atoll_digester *d = NULL;
  char processor[192], digest[33], name[64];
  if (atoll_digester_create(&d) != ATOLL_OK)
    return 0;
  const int known = identify(b->compiler, d);
  const int32_t units = b->units;
  atoll_digester_add_text(d, b->compiler);
  atoll_digester_add_text(d, b->flags);
  atoll_digester_add_text(d, atoll_cache_processor(processor, sizeof processor));
  atoll_digester_add(d, &units, sizeof units);
  atoll_digester_add(d, source, bytes);
  (void)snprintf(name, sizeof name, "program-%s.so", atoll_digest_text(atoll_digester_value(d), digest));
  atoll_digester_destroy(&d);
  if (known)
    atoll_cache_path(path, n, name);
  return known;
}

/* ---- ---- */

static void *load(const char *path, char *why, size_t n) {
  void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!object)
    (void)snprintf(why, n, "%s", dlerror());
  return object;
}

/* Compiled anew, and kept at path if there is one. */
static void *make(struct build *b, const char *source, size_t bytes, const char *path, char *why, size_t n) {
  char words[400];
  void *object = NULL;
  const char *failed;
  if (!open_build(b)) {
    (void)snprintf(why, n, "no folder %s for compiling: %s", b->folder, strerror(errno));
    return NULL;
  }
  if (atoll_file_publish(b->source, source, bytes) != ATOLL_OK) {
    (void)snprintf(why, n, "%s", atoll_err_message());
  } else if ((failed = compile(b))) {
    first_words(failed, words, sizeof words);
    (void)snprintf(why, n, "compiler '%s' failed: %s", b->compiler, words);
  } else {
    object = load(b->object, why, n);
  }
  if (object && *path)
    publish(path, b->object);
  if (object)
    (void)snprintf(why, n, "compiled by '%s %s' in %d unit%s", b->compiler, b->flags, b->units,
                   b->units > 1 ? "s" : "");
  close_build(b);
  return object;
}

static void *obtain(struct build *b, const char *source, size_t bytes, char *why, size_t n) {
  char path[4096] = "";
  void *object;
  if (!cache_name(b, source, bytes, path, sizeof path)) {
    (void)snprintf(why, n, "compiler '%s' does not run", b->compiler);
    return NULL;
  }
  if (*path && rt_sealed_read(path, NULL, NULL) && (object = load(path, why, n))) {
    (void)snprintf(why, n, "from %s", path);
    return object;
  }
  return make(b, source, bytes, path, why, n);
}

static const char *chosen(const char *given, const char *variable, const char *otherwise) {
  const char *set = getenv(variable);
  return given ? given : set ? set : otherwise;
}

/* By the text alone, not by how many processors there are: what a compiler inlines and clones depends on what it sees
 * together, and with it how sums are cut into lanes. So ranks that are bound to more or fewer cores, and whoever filled
 * the cache that they share, have the same last bits. */
static int units_of(size_t bytes) {
  const size_t units = bytes / UNIT;
  return units < 1 ? 1 : units < RT_PARTS ? (int)units : RT_PARTS;
}

atoll_err rt_native_create(const char *source, size_t bytes, const char *compiler, const char *flags, int threads,
                           int divide, rt_native **out, char *why, size_t n) {
  struct build b = {
      .units = divide ? units_of(bytes) : 1,
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
  lib->object = obtain(&b, source, bytes, why, n);
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

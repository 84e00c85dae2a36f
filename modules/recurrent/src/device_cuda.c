/* CUDA through its driver and NVRTC, both found at run time: nothing of CUDA is needed to build, and a machine without
 * it is told so. Code is kept in the cache, by a digest of source, architecture and NVRTC's version. Values are in
 * managed memory. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/cache.h"
#include "atoll/digest.h"
#include "device.h"
#include "sealed.h"

/* ---- NVRTC ---- */

typedef void *nvrtc_program;

static struct {
  int (*version)(int *major, int *minor);
  int (*create)(nvrtc_program *p, const char *source, const char *name, int headers, const char *const *header,
                const char *const *include);
  int (*destroy)(nvrtc_program *p);
  int (*compile)(nvrtc_program p, int options, const char *const *option);
  int (*code_size)(nvrtc_program p, size_t *n);
  int (*code)(nvrtc_program p, char *to);
  int (*log_size)(nvrtc_program p, size_t *n);
  int (*log)(nvrtc_program p, char *to);
} nvrtc;

typedef struct symbol {
  const char *name;
  void *to; /* a pointer to a function */
} symbol;

/* What the library lacks, or NULL. */
static const char *find(void *library, const symbol *s, int n) {
  for (int k = 0; k < n; k++) {
    void *p = dlsym(library, s[k].name);
    if (!p)
      return s[k].name;
    memcpy(s[k].to, &p, sizeof p);
  }
  return NULL;
}

/* The first of these names that there is; a folder before one, or NULL: where the system looks. */
static void *open_library(const char *const *name) {
  static const char *const folder[] = {NULL, "/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/lib/cuda/lib64"};
  const char *home = getenv("CUDA_HOME");
  char path[4096];
  void *library = NULL;
  for (const char *const *n = name; *n && !library; n++) {
    if (home) {
      (void)snprintf(path, sizeof path, "%s/lib64/%s", home, *n);
      library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t k = 0; !library && k < sizeof folder / sizeof *folder; k++) {
      (void)snprintf(path, sizeof path, "%s%s%s", folder[k] ? folder[k] : "", folder[k] ? "/" : "", *n);
      library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
  }
  return library;
}

static atoll_err open_nvrtc(void) {
  static const char *const name[] = {"libnvrtc.so",      "libnvrtc.so.13",   "libnvrtc.so.12",
                                     "libnvrtc.so.11.8", "libnvrtc.so.11.2", NULL};
  static void *library; /* for the life of the process */
  const symbol symbols[] = {{"nvrtcVersion", &nvrtc.version},
                            {"nvrtcCreateProgram", &nvrtc.create},
                            {"nvrtcDestroyProgram", &nvrtc.destroy},
                            {"nvrtcCompileProgram", &nvrtc.compile},
                            {"nvrtcGetCUBINSize", &nvrtc.code_size},
                            {"nvrtcGetCUBIN", &nvrtc.code},
                            {"nvrtcGetProgramLogSize", &nvrtc.log_size},
                            {"nvrtcGetProgramLog", &nvrtc.log}};
  if (!library)
    library = open_library(name);
  if (!library)
    return atoll_fail(ATOLL_UNAVAILABLE, "device 'cuda': there is no libnvrtc.so (CUDA_HOME tells where CUDA is)");
  const char *missing = find(library, symbols, sizeof symbols / sizeof *symbols);
  return missing ? atoll_fail(ATOLL_UNAVAILABLE, "device 'cuda': libnvrtc.so has no %s", missing) : ATOLL_OK;
}

static atoll_err refused(nvrtc_program p, int status) {
  char *text = NULL;
  size_t n = 0;
  if (nvrtc.log_size(p, &n) == 0 && (text = malloc(n + 1)) && nvrtc.log(p, text) == 0)
    text[n] = 0;
  atoll_err err = atoll_fail(ATOLL_INTERNAL, "NVRTC refuses the kernels (%d): %.600s", status, text ? text : "");
  free(text);
  return err;
}

enum { NVRTC_INVALID_OPTION = 5 };

static atoll_err compile(nvrtc_program p, int arch, char **code, size_t *n) {
  char option[64];
  /* elementwise operations round as those of the interpreter do; sums say fmaf() */
  const char *const options[] = {option, "--std=c++17", "--device-as-default-execution-space", "--fmad=false"};
  (void)snprintf(option, sizeof option, "--gpu-architecture=sm_%d", arch);
  int status = nvrtc.compile(p, sizeof options / sizeof *options, options);
  if (status == NVRTC_INVALID_OPTION) /* the only one that varies */
    return atoll_fail(ATOLL_UNAVAILABLE, "device 'cuda': this NVRTC does not know sm_%d", arch);
  if (status != 0 || nvrtc.code_size(p, n) != 0)
    return refused(p, status);
  if (!(*code = malloc(*n + 1)))
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  if (nvrtc.code(p, *code) == 0)
    return ATOLL_OK;
  free(*code);
  *code = NULL;
  return atoll_fail(ATOLL_INTERNAL, "NVRTC gives no code for sm_%d", arch);
}

static void code_path(const char *source, size_t bytes, int arch, char *path, size_t n) {
  atoll_digester *d = NULL;
  char digest[33], name[64];
  int major = 0, minor = 0;
  *path = 0;
  (void)nvrtc.version(&major, &minor);
  if (atoll_digester_create(&d) != ATOLL_OK) {
    atoll_err_clear();
    return;
  }
  atoll_digester_add_int(d, major);
  atoll_digester_add_int(d, minor);
  atoll_digester_add_int(d, arch);
  atoll_digester_add(d, source, bytes);
  (void)snprintf(name, sizeof name, "kernels-%s.cubin", atoll_digest_text(atoll_digester_value(d), digest));
  atoll_digester_destroy(&d);
  atoll_cache_path(path, n, name);
}

static atoll_err obtain(const char *source, size_t bytes, int arch, char **code, size_t *n) {
  char path[4096];
  nvrtc_program p = NULL;
  ATOLL_TRY(open_nvrtc());
  code_path(source, bytes, arch, path, sizeof path);
  if (*path && rt_sealed_read(path, code, n))
    return ATOLL_OK;
  int status = nvrtc.create(&p, source, "program.cu", 0, NULL, NULL);
  if (status != 0)
    return atoll_fail(ATOLL_INTERNAL, "NVRTC makes no program (%d)", status);
  atoll_err err = compile(p, arch, code, n);
  (void)nvrtc.destroy(&p);
  if (err == ATOLL_OK && *path)
    rt_sealed_write(path, *code, *n);
  return err;
}

/* ---- the driver ---- */

enum {
  BLOCK = 128,
  BLOCKS_OF_A_PROCESSOR = 16,
  MANAGED_GLOBAL = 1,
  PROCESSORS = 16,
  MAJOR = 75,
  MINOR = 76,
  CONCURRENT_MANAGED = 89
};

static struct {
  int (*init)(unsigned flags);
  int (*device)(int *device, int ordinal);
  int (*attribute)(int *value, int attribute, int device);
  int (*retain)(void **context, int device);
  int (*release)(int device);
  int (*current)(void *context);
  int (*load)(void **module, const void *code);
  int (*unload)(void *module);
  int (*function)(void **function, void *module, const char *name);
  int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, void *stream, void **arguments, void **extra);
  int (*alloc)(unsigned long long *p, size_t bytes, unsigned flags);
  int (*free)(unsigned long long p);
  int (*copy)(unsigned long long to, unsigned long long from, size_t bytes, void *stream);
  int (*wait)(void *stream);
  int (*error)(int status, const char **text);
} cu;

typedef struct cuda {
  rt_device d; /* first */
  int device, processors;
  void *context, *module;
} cuda;

static atoll_err open_driver(void) {
  static const char *const name[] = {"libcuda.so.1", "libcuda.so", NULL};
  static void *library;
  const symbol symbols[] = {{"cuInit", &cu.init},
                            {"cuDeviceGet", &cu.device},
                            {"cuDeviceGetAttribute", &cu.attribute},
                            {"cuDevicePrimaryCtxRetain", &cu.retain},
                            {"cuDevicePrimaryCtxRelease_v2", &cu.release},
                            {"cuCtxSetCurrent", &cu.current},
                            {"cuModuleLoadData", &cu.load},
                            {"cuModuleUnload", &cu.unload},
                            {"cuModuleGetFunction", &cu.function},
                            {"cuLaunchKernel", &cu.launch},
                            {"cuMemAllocManaged", &cu.alloc},
                            {"cuMemFree_v2", &cu.free},
                            {"cuMemcpyAsync", &cu.copy},
                            {"cuStreamSynchronize", &cu.wait},
                            {"cuGetErrorString", &cu.error}};
  if (!library)
    library = open_library(name);
  if (!library)
    return atoll_fail(ATOLL_UNAVAILABLE, "device 'cuda': there is no libcuda.so.1, a GPU's driver");
  const char *missing = find(library, symbols, sizeof symbols / sizeof *symbols);
  return missing ? atoll_fail(ATOLL_UNAVAILABLE, "device 'cuda': libcuda.so.1 has no %s", missing) : ATOLL_OK;
}

static atoll_err checked(int status, const char *what) {
  const char *text = NULL;
  if (status == 0)
    return ATOLL_OK;
  (void)cu.error(status, &text);
  return atoll_fail(ATOLL_INTERNAL, "CUDA: %s: %s (%d)", what, text ? text : "unknown", status);
}

static atoll_err enter(rt_device *d) {
  const cuda *c = (const cuda *)(const void *)d;
  return checked(cu.current(c->context), "context");
}

static void *alloc(rt_device *d, int64_t bytes) {
  unsigned long long p = 0;
  (void)d;
  return cu.alloc(&p, (size_t)(bytes > 0 ? bytes : 1), MANAGED_GLOBAL) == 0 ? (void *)(uintptr_t)p : NULL;
}

static void release(rt_device *d, void *p) {
  (void)d;
  if (p)
    (void)cu.free((uintptr_t)p);
}

static atoll_err launch(rt_device *d, const char *kernel, int64_t threads, int n, const void *const *arguments) {
  const cuda *c = (const cuda *)(const void *)d;
  const int64_t most = (int64_t)c->processors * BLOCKS_OF_A_PROCESSOR, wanted = (threads + BLOCK - 1) / BLOCK;
  void *function = NULL;
  (void)n;
  if (threads <= 0)
    return ATOLL_OK;
  ATOLL_TRY(checked(cu.function(&function, c->module, kernel), kernel));
  return checked(cu.launch(function, (unsigned)(wanted < most ? wanted : most), 1, 1, BLOCK, 1, 1, 0, NULL,
                           (void **)(uintptr_t)arguments, NULL),
                 kernel);
}

static atoll_err copy(rt_device *d, void *to, const void *from, int64_t bytes) {
  (void)d;
  return bytes > 0 ? checked(cu.copy((uintptr_t)to, (uintptr_t)from, (size_t)bytes, NULL), "copy") : ATOLL_OK;
}

static atoll_err wait_all(rt_device *d) {
  (void)d;
  return checked(cu.wait(NULL), "wait");
}

static void destroy(rt_device *d) {
  cuda *c = (cuda *)(void *)d;
  if (c->module && cu.current(c->context) == 0)
    (void)cu.unload(c->module);
  if (c->context)
    (void)cu.release(c->device);
  free(c);
}

static atoll_err start(cuda *c, const char *source, size_t bytes) {
  char *code = NULL;
  size_t n = 0;
  int major = 0, minor = 0, shared = 0;
  if (cu.init(0) != 0 || cu.device(&c->device, 0) != 0)
    return atoll_fail(ATOLL_UNAVAILABLE, "device 'cuda': the driver finds no GPU");
  ATOLL_TRY(checked(cu.attribute(&major, MAJOR, c->device), "architecture"));
  ATOLL_TRY(checked(cu.attribute(&minor, MINOR, c->device), "architecture"));
  ATOLL_TRY(checked(cu.attribute(&c->processors, PROCESSORS, c->device), "processors"));
  ATOLL_TRY(checked(cu.attribute(&shared, CONCURRENT_MANAGED, c->device), "managed memory"));
  if (!shared)
    return atoll_fail(ATOLL_UNAVAILABLE, "device 'cuda': host and GPU cannot use managed memory at the same time here");
  ATOLL_TRY(checked(cu.retain(&c->context, c->device), "context"));
  ATOLL_TRY(checked(cu.current(c->context), "context"));
  ATOLL_TRY(obtain(source, bytes, 10 * major + minor, &code, &n));
  atoll_err err = checked(cu.load(&c->module, code), "load kernels");
  free(code);
  return err;
}

/* Compiles for a GPU that need not be here. */
static atoll_err prepare(cuda *c, const char *source, size_t bytes, int arch) {
  char *code = NULL;
  size_t n = 0;
  c->d.absent = 1;
  atoll_err err = obtain(source, bytes, arch, &code, &n);
  free(code);
  return err;
}

atoll_err rt_device_create_cuda(const char *source, size_t bytes, int arch, rt_device **out) {
  ATOLL_TRY(open_nvrtc());
  if (arch == 0)
    ATOLL_TRY(open_driver());
  cuda *c = calloc(1, sizeof *c);
  if (!c)
    return atoll_fail(ATOLL_NOMEM, "recurrent program: no memory");
  c->d = (rt_device){0, enter, alloc, release, launch, copy, wait_all, destroy};
  atoll_err err = arch ? prepare(c, source, bytes, arch) : start(c, source, bytes);
  if (err == ATOLL_OK)
    *out = &c->d;
  else
    destroy(&c->d);
  return err;
}

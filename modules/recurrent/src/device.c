#include "device.h"

#include <stdlib.h>
#include <string.h>

int rt_device_is_async(const char *kind) { return kind && strcmp(kind, "async") == 0; }

atoll_err rt_device_create(const char *kind, const char *source, size_t bytes, const rt_native *lib, rt_device **out) {
  if (!lib)
    return atoll_fail(ATOLL_UNAVAILABLE, "device '%s': without a C compiler there is no program that drives it", kind);
  if (rt_device_is_async(kind))
    return rt_device_create_async(lib, out);
  static const char other[] = "cuda:sm_";
  const char *digits = strncmp(kind, other, sizeof other - 1) == 0 ? kind + sizeof other - 1 : "";
  const size_t n = strspn(digits, "0123456789");
  const int arch = n > 0 && n < 5 && !digits[n] ? atoi(digits) : 0;
  if (arch > 0 || strcmp(kind, "cuda") == 0)
    return rt_device_create_cuda(source, bytes, arch, out);
  return atoll_fail(ATOLL_USAGE, "device '%s': known are cpu, cuda, cuda:sm_<architecture> and async", kind);
}

void rt_device_destroy(rt_device **d) {
  if (*d)
    (*d)->destroy(*d);
  *d = NULL;
}

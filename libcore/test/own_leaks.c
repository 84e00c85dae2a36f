/* For every sanitized executable: what MPI allocates while it starts, and leaves behind when it ends, is not told as a
 * leak of ours, nor what hwloc's PCI plugin keeps. Suppressions by name would do the same, but each lost block then has
 * its whole stack looked up, most of it in components that MPI has unloaded by the end, at a cost of a second for every
 * rank; and only the slow unwinder, at every allocation, sees names in libraries without frame pointers. So nothing
 * that is allocated in MPI_Init counts, and what MPI_Finalize closes stays loaded: its statics still hold what they
 * held. */
#include <dlfcn.h>
#include <mpi.h>
#include <sanitizer/lsan_interface.h>

static _Thread_local int ending;

int MPI_Init(int *argc, char ***argv) {
  __lsan_disable();
  const int rc = PMPI_Init(argc, argv);
  __lsan_enable();
  return rc;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  __lsan_disable();
  const int rc = PMPI_Init_thread(argc, argv, required, provided);
  __lsan_enable();
  return rc;
}

int MPI_Finalize(void) {
  ending = 1;
  const int rc = PMPI_Finalize();
  ending = 0;
  return rc;
}

/* The function that ours hides. */
static void *hidden(const char *name) { return dlsym(RTLD_NEXT, name); }

int dlclose(void *handle) {
  int (*close)(void *) = NULL;
  if (ending)
    return 0;
  *(void **)&close = hidden("dlclose");
  return close(handle);
}

/* The PCI plugin keeps a list of devices, and is unloaded. A topology that is never destroyed still shows: its own
 * block is there before. */
int hwloc_topology_load(void *topology);

int hwloc_topology_load(void *topology) {
  int (*load)(void *) = NULL;
  *(void **)&load = hidden("hwloc_topology_load");
  __lsan_disable();
  const int rc = load(topology);
  __lsan_enable();
  return rc;
}

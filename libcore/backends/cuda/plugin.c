/* libatoll_cuda.so. Rooms add their sources to it (backends/cuda); it loads on machines without a driver and then says
 * so. */
#include "cuda_calls.h"

extern const struct atoll_chain_device cuda_chain; /* modules/ctapipe/backends/cuda */

static const atoll_symmetric_backend *const symmetric[] = {&cuda_ipc, &nccl_window, NULL};
static const atoll_plugin plugin = {.version = ATOLL_PLUGIN_VERSION,
                                    .name = "cuda",
                                    .device = &cuda_device,
                                    .symmetric = symmetric,
                                    .chain = &cuda_chain};

ATOLL_API const atoll_plugin *atoll_plugin_v1(void);
const atoll_plugin *atoll_plugin_v1(void) { return &plugin; }

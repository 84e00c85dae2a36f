/* The table of cuda_calls.h over CUDA's run time, which is linked statically and finds the driver by itself. */
#include <cuda_runtime.h>
#include <string.h>

#include "cuda_calls.h"

static_assert(sizeof(cuda_ipc_handle) == sizeof(cudaIpcMemHandle_t), "handles travel as they are");
static_assert(CUDA_NOT_READY == (int)cudaErrorNotReady, "the tables know no CUDA header");

static const char *text(int code) { return cudaGetErrorString((cudaError_t)code); }
static int device_count(int *n) { return cudaGetDeviceCount(n); }
static int device_by_pci(int *device, const char *pci) { return cudaDeviceGetByPCIBusId(device, pci); }
static int set_device(int device) { return cudaSetDevice(device); }
static int allocate(void **p, size_t bytes) { return cudaMalloc(p, bytes); }
static int release(void *p) { return cudaFree(p); }
static int memcpy_async(void *to, const void *from, size_t bytes, void *stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream);
}
static int memset_async(void *p, int value, size_t bytes, void *stream) {
  return cudaMemsetAsync(p, value, bytes, (cudaStream_t)stream);
}
static int stream_create(void **stream) {
  return cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking);
}
static int stream_destroy(void *stream) { return cudaStreamDestroy((cudaStream_t)stream); }
static int stream_sync(void *stream) { return cudaStreamSynchronize((cudaStream_t)stream); }
static int stream_wait_event(void *stream, void *event) {
  return cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0);
}
static int event_create(void **event) { return cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming); }
static int event_destroy(void *event) { return cudaEventDestroy((cudaEvent_t)event); }
static int event_record(void *event, void *stream) { return cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream); }
static int event_sync(void *event) { return cudaEventSynchronize((cudaEvent_t)event); }
static int event_query(void *event) { return cudaEventQuery((cudaEvent_t)event); }
static int ipc_get(cuda_ipc_handle *handle, void *p) { return cudaIpcGetMemHandle((cudaIpcMemHandle_t *)handle, p); }
static int ipc_open(void **p, cuda_ipc_handle handle) {
  cudaIpcMemHandle_t h;
  memcpy(&h, &handle, sizeof h);
  return cudaIpcOpenMemHandle(p, h, cudaIpcMemLazyEnablePeerAccess);
}
static int ipc_close(void *p) { return cudaIpcCloseMemHandle(p); }

extern "C" const struct cuda_calls cuda_rt = {
    text,         device_count,  device_by_pci,  set_device,  allocate,          release,      memcpy_async,
    memset_async, stream_create, stream_destroy, stream_sync, stream_wait_event, event_create, event_destroy,
    event_record, event_sync,    event_query,    ipc_get,     ipc_open,          ipc_close};

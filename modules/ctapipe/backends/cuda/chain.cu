/* Chains of GEMMs on CUDA GPUs: the table of atoll/ctapipe_device.h over the tile kernel, cuBLAS and stream memory
 * operations. cuBLAS is looked for when a chain first asks for it; the driver's functions are asked of CUDA's run time,
 * so nothing here needs a driver to load. */
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "atoll/ctapipe_device.h"
#include "chain_gemm.cuh"

static atoll_err check(cudaError_t rc, const char *call) {
  return rc == cudaSuccess ? ATOLL_OK
                           : atoll_fail(ATOLL_IO, "%s: %s (error %d)", call, cudaGetErrorString(rc), (int)rc);
}

/* Of the current device with every other one this process sees; of those it does not see nothing is known. */
static atoll_err link_has_atomics(int device, int *yes) {
  int devices = 0;
  ATOLL_TRY(check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount"));
  *yes = 1;
  for (int i = 0; i < devices; i++) {
    int has = 1;
    if (i != device)
      ATOLL_TRY(check(cudaDeviceGetP2PAttribute(&has, cudaDevP2PAttrNativeAtomicSupported, device, i),
                      "cudaDeviceGetP2PAttribute"));
    *yes &= has;
  }
  return ATOLL_OK;
}

static atoll_err resident(int *blocks, int *claims) {
  int device = 0, processors = 0, each = 0;
  ATOLL_TRY(check(cudaGetDevice(&device), "cudaGetDevice"));
  ATOLL_TRY(
      check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute"));
  ATOLL_TRY(check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, cta_tile_gemm, CTA_THREADS, 0),
                  "cudaOccupancyMaxActiveBlocksPerMultiprocessor"));
  *blocks = processors * each;
  return link_has_atomics(device, claims);
}

static atoll_err tiles(void *stream, const atoll_chain_launch *l, int blocks) {
  cta_tile_gemm<<<(unsigned)blocks, CTA_THREADS, 0, (cudaStream_t)stream>>>(cta_chain_of(l));
  return check(cudaGetLastError(), "launch of cta_tile_gemm");
}

/* --- cuBLAS ------------------------------------------------------------------------------------------------------- */

static struct {
  cublasHandle_t handle; /* of the thread that made it, on its device: a rank has one */
  cublasStatus_t (*create)(cublasHandle_t *);
  cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                         const void *, cudaDataType, int, const void *, cudaDataType, int, const void *, void *,
                         cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
} blas;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static atoll_err open_blas(void) {
  char name[32];
  snprintf(name, sizeof name, "libcublas.so.%d", CUDART_VERSION / 1000);
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return atoll_fail(ATOLL_UNAVAILABLE, "cuBLAS: %s", dlerror());
  *(void **)&blas.create = dlsym(library, "cublasCreate_v2");
  *(void **)&blas.set_stream = dlsym(library, "cublasSetStream_v2");
  *(void **)&blas.gemm = dlsym(library, "cublasGemmEx");
  if (!blas.create || !blas.set_stream || !blas.gemm)
    return atoll_fail(ATOLL_UNAVAILABLE, "cuBLAS: %s lacks cublasCreate, cublasSetStream or cublasGemmEx", name);
  cublasStatus_t rc = blas.create(&blas.handle);
  return rc == CUBLAS_STATUS_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_UNAVAILABLE, "cublasCreate: status %d", (int)rc);
}

__global__ void cta_finish_kernel(struct cta_job p, const float *sums, int64_t n) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
    cta_finish(&p, sums, i);
}

/* Row-major a b^T is, by columns, b a^T turned. */
static atoll_err multiply(void *stream, const atoll_chain_gemm *g, float *sums) {
  const float one = 1, zero = 0;
  cublasStatus_t rc = blas.set_stream(blas.handle, (cudaStream_t)stream);
  if (rc == CUBLAS_STATUS_SUCCESS)
    rc = blas.gemm(blas.handle, CUBLAS_OP_T, CUBLAS_OP_N, g->n, g->m, g->k, &one, g->b, CUDA_R_16BF, g->k, g->a,
                   CUDA_R_16BF, g->k, &zero, sums, CUDA_R_32F, g->n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  return rc == CUBLAS_STATUS_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_IO, "cublasGemmEx: status %d", (int)rc);
}

/* Sums stay in own memory; what goes to the next GPU is written once, in whole lines, by the kernel behind. */
static atoll_err library(void *stream, const atoll_chain_gemm *g, float *sums) {
  pthread_mutex_lock(&lock);
  atoll_err err = blas.handle ? ATOLL_OK : open_blas();
  if (err == ATOLL_OK)
    err = multiply(stream, g, sums);
  pthread_mutex_unlock(&lock);
  ATOLL_TRY(err);
  struct cta_job job = cta_job_of(g);
  cta_finish_kernel<<<256, 256, 0, (cudaStream_t)stream>>>(job, sums, cta_finish_count(&job));
  return check(cudaGetLastError(), "launch of cta_finish_kernel");
}

/* --- stream memory operations ------------------------------------------------------------------------------------- */

typedef CUresult (*memory_operation)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

static atoll_err operation(const char *name, memory_operation *found) {
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (*found)
    return ATOLL_OK;
#if CUDART_VERSION >= 12050
  cudaError_t rc = cudaGetDriverEntryPointByVersion(name, (void **)found, 12000, cudaEnableDefault, &result);
#else
  cudaError_t rc = cudaGetDriverEntryPoint(name, (void **)found, cudaEnableDefault, &result);
#endif
  ATOLL_TRY(check(rc, name));
  return result == cudaDriverEntryPointSuccess ? ATOLL_OK
                                               : atoll_fail(ATOLL_UNSUPPORTED, "this driver has no %s", name);
}

/* The default form of a write is ordered behind everything that the stream wrote before. */
static atoll_err write_flag(void *stream, uint32_t *flag, uint32_t value) {
  static memory_operation call;
  ATOLL_TRY(operation("cuStreamWriteValue32", &call));
  CUresult rc = call((CUstream)stream, (CUdeviceptr)flag, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  return rc == CUDA_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_IO, "cuStreamWriteValue32: error %d", (int)rc);
}

static atoll_err wait_flag(void *stream, uint32_t *flag, uint32_t value) {
  static memory_operation call;
  ATOLL_TRY(operation("cuStreamWaitValue32", &call));
  CUresult rc = call((CUstream)stream, (CUdeviceptr)flag, value, CU_STREAM_WAIT_VALUE_GEQ);
  return rc == CUDA_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_IO, "cuStreamWaitValue32: error %d", (int)rc);
}

extern "C" const struct atoll_chain_device cuda_chain = {"cuda", CTA_BM,  CTA_BN,     CTA_FLAG_STRIDE, resident,
                                                         tiles,  library, write_flag, wait_flag};

/* What tile_gemm.cuh asks of a GPU, in PTX. Memory order: PTX ISA, "Memory Consistency Model"; the scope is the system,
 * as the other end may be another GPU or a host thread. */
#ifndef ATOLL_CTA_DEVICE_WORDS_CUH
#define ATOLL_CTA_DEVICE_WORDS_CUH

typedef __nv_bfloat16 bf16;

#define CTA_UNROLL             _Pragma("unroll")
#define CTA_DEVICE             __device__ __forceinline__
#define CTA_KERNEL             extern "C" __global__ __launch_bounds__(128)
#define CTA_PARAM(T)           const __grid_constant__ T /* read in place: its jobs are picked by index */
#define CTA_SHARED(T, name, n) __shared__ __align__(16) T name[n]

static CTA_DEVICE uint32_t cta_load_acquire(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
static CTA_DEVICE uint32_t cta_load_relaxed(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
static CTA_DEVICE void cta_store_release(uint32_t *p, uint32_t v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
static CTA_DEVICE void cta_fence(void) { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
static CTA_DEVICE uint64_t cta_load_word(const uint64_t *p) {
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
/* 1: the word was `from` and is `to`. */
static CTA_DEVICE int cta_swap_word(uint64_t *p, uint64_t from, uint64_t to) {
  uint64_t was;
  asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;" : "=l"(was) : "l"(p), "l"(from), "l"(to) : "memory");
  return was == from;
}
/* Of a whole warp: whether all say so, and what its first lane says. */
static CTA_DEVICE int cta_all(int yes) { return __all_sync(0xffffffffu, yes); }
static CTA_DEVICE uint32_t cta_first(uint32_t v) { return __shfl_sync(0xffffffffu, v, 0); }
static CTA_DEVICE void cta_sync(void) { __syncthreads(); }
static CTA_DEVICE void cta_pause(void) { __nanosleep(20); }
static CTA_DEVICE bf16 cta_to_bf16(float v) { return __float2bfloat16(v); }
static CTA_DEVICE float cta_from_bf16(bf16 v) { return __bfloat162float(v); }
static CTA_DEVICE void cta_store16(void *to, const void *from) { *(uint4 *)to = *(const uint4 *)from; }

static CTA_DEVICE uint32_t cta_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
/* `bytes` of 16 are read, the rest is zero. */
static CTA_DEVICE void cta_copy16(bf16 *to, const bf16 *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(cta_shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
}
static CTA_DEVICE void cta_copy_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
static CTA_DEVICE void cta_copy_wait(int groups) {
  if (groups == 0)
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  else
    asm volatile("cp.async.wait_group 2;" ::: "memory");
}
static CTA_DEVICE void cta_ldmatrix(uint32_t *r, const bf16 *p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(cta_shared_address(p))
               : "memory");
}
/* Each matrix turned. */
static CTA_DEVICE void cta_ldmatrix_turned(uint32_t *r, const bf16 *p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(cta_shared_address(p))
               : "memory");
}
static CTA_DEVICE void cta_mma(float *d, const uint32_t *a, const uint32_t *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

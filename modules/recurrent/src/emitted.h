/* What emitted programs and the runtime share. Its text opens every emitted translation unit, so it includes nothing of
 * ours and compiles alone.
 *
 * Elements are computed in `float` where they are f32 or bf16, else in `double`, and rounded to their type after every
 * operation, as by the reference executor. Sums (contractions, reductions) are the exception: they stay in the type of
 * computation and are cut into lanes by the compiler, so that their last bits depend on the processor and the flags,
 * not on the run. */
#ifndef RECURRENT_EMITTED_H
#define RECURRENT_EMITTED_H

#ifdef __CUDACC_RTC__ /* has no headers */
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN      __int_as_float(0x7fc00000)
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

/* Values of one node. Alive points have distinct slots: coordinates modulo powers of two, which grow when two meet. */
typedef struct rt_slots {
  char **data;     /* by slot; NULL: nothing there */
  int64_t mask[8]; /* by position of the dimension in the node's domain */
  int shift[8];
} rt_slots;

/* As atoll_rt_view. */
typedef struct rt_arg {
  int dtype, ndim;
  const int64_t *shape;
  void *data;
} rt_arg;

typedef struct rt_run rt_run;
struct rt_run {
  const rt_slots *store;    /* by node */
  const void *const *input; /* by node */
  const int64_t *bound;     /* by dimension */
  const void *const *pad;   /* by node: one value of its padding */
  int threads;
  char *top, *end, *base; /* workspace of the statement at hand */
  /* All of these return 0, or an error that ends the run; take and more NULL after one. */
  char *(*take)(rt_run *r, int node, const int64_t *point, int64_t bytes); /* room for a value */
  int (*drop)(rt_run *r, int node, const int64_t *point);
  const char *away; /* by node: its values are put away where the schedule says so */
  int (*offload)(rt_run *r, int node, const int64_t *point);
  int (*fetch)(rt_run *r, int node, const int64_t *point);
  int (*receive)(rt_run *r, int node, const int64_t *point);        /* what was sent by call, before */
  int (*donate)(rt_run *r, int node, const int64_t *point, int to); /* its room is what is taken next for `to` */
  char *(*more)(rt_run *r, int64_t bytes);                          /* workspace beyond end */
  int (*call)(rt_run *r, int node, const int64_t *point, const rt_arg *in, const rt_arg *out);
  void (*random)(const rt_run *r, int node, const int64_t *coordinate, int64_t first, int64_t n, float *out);
  /* atoll_gemm_strided() */
  int (*product)(rt_run *r, int threads, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_outer,
                 int64_t a_inner, const float *b, int64_t b_outer, int64_t b_inner, float *c, int64_t row);
  /* Of a device: kernels and copies are carried out in order, some time before wait() returns. Arguments of kernels
   * have eight bytes each. What a kernel finds wrong is in fault: node + 1, index, extent, point. */
  int64_t *fault;
  int (*launch)(rt_run *r, const char *kernel, int64_t threads, int n, const void *const *arguments);
  int (*copy)(rt_run *r, void *to, const void *from, int64_t bytes);
  int (*wait)(rt_run *r);
  int (*outside)(rt_run *r, int node, const int64_t *point, int64_t at, int64_t extent); /* an index beyond its axis */
  int (*absent)(rt_run *r, int node); /* a value that is not there, no case that holds */
  int (*error)(const rt_run *r);      /* after take or more failed */
};

#if defined __GNUC__
#define RT_LIKELY(x)    __builtin_expect(!!(x), 1)
#define RT_FETCH(p)     __builtin_prefetch(p)
#define RT_FETCH_FAR(p) __builtin_prefetch(p, 0, 2)
#else
#define RT_LIKELY(x)    (x)
#define RT_FETCH(p)     ((void)(p))
#define RT_FETCH_FAR(p) ((void)(p))
#endif

/* ---- parts of a text, of which a translation unit may have some only ---- */

#if !defined RT_UNITS || RT_UNITS == 1
#define RT_HERE(part) 1
#define RT_FUNCTION   static
#else
#define RT_HERE(part) ((part) % RT_UNITS == RT_UNIT)
#if defined __GNUC__
#define RT_FUNCTION __attribute__((visibility("hidden")))
#else
#define RT_FUNCTION
#endif
#endif

/* ---- workspace ---- */

static inline char *rt_space(rt_run *r, int64_t bytes) {
  char *p = r->top;
  bytes = (bytes + 63) & -64;
  if (!RT_LIKELY(bytes <= r->end - p))
    return r->more(r, bytes);
  r->top = p + bytes;
  return p;
}

/* ---- threads: each has a part of what results there are, so these do not depend on how many there are ---- */

enum { RT_PARALLEL = 1 << 16 }; /* less work than this many operations is not divided */

static inline int rt_parts(const rt_run *r, int64_t work) { return work < RT_PARALLEL ? 1 : r->threads; }

/* ---- index arithmetic, as of atoll/sym.h; divisors are positive constants ---- */

static inline int64_t rt_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static inline int64_t rt_mod(int64_t a, int64_t b) { return a % b < 0 ? a % b + b : a % b; }
static inline int64_t rt_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t rt_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- types ---- */

static inline float rt_from_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline float rt_to_bf16(float f) { /* rounded to nearest even, still a float */
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if ((bits & 0x7f800000u) != 0x7f800000u)
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline uint16_t rt_bf16_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* To an integer type from least to most: toward zero; what is beyond becomes the end that it is beyond, NaN 0. */
static inline double rt_whole(double v, double least, double most) {
  v = v < least ? least : v > most ? most : trunc(v);
  return v == v ? v : 0;
}

/* ---- mathematics of float, in lanes ---- */

#if defined __CUDACC__
#define RT_FMA(a, b, c) fmaf(a, b, c)
#elif defined __FP_FAST_FMAF
#define RT_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define RT_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* Sums of products of neighbouring elements. Compilers add up what such a loop reduces one lane after the other; here
 * four sums are folded together, in the order in which one is, so that a result does not depend on its neighbours. */
#if defined __CUDACC__ || !defined __GNUC__
#define RT_WIDTH 1
typedef float rt_vector;
static inline rt_vector rt_vector_at(const float *p) { return *p; }
static inline float rt_fold(rt_vector v) { return v; }
static inline void rt_fold4(const rt_vector v[4], float *s) {
  for (int i = 0; i < 4; i++)
    s[i] = v[i];
}
#else
#if defined __AVX512F__
#define RT_WIDTH 16
#elif defined __AVX__
#define RT_WIDTH 8
#else
#define RT_WIDTH 4
#endif
typedef float rt_vector __attribute__((vector_size(4 * RT_WIDTH)));
typedef float rt_vector_any __attribute__((vector_size(4 * RT_WIDTH), aligned(4), may_alias));
typedef float rt_four __attribute__((vector_size(16)));
typedef int32_t rt_pick __attribute__((vector_size(16)));
#if defined __clang__
#define RT_PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define RT_PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (rt_pick){i, j, k, l})
#endif

static inline rt_vector rt_vector_at(const float *p) { return *(const rt_vector_any *)p; }

/* Lanes four apart. */
static inline rt_four rt_quarters(rt_vector v) {
#if RT_WIDTH == 4
  return v;
#elif defined __clang__ || __GNUC__ >= 12
#if RT_WIDTH == 16
  typedef float half __attribute__((vector_size(32)));
  half h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  rt_vector h = v;
#endif
  return __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
#else
  rt_four q[RT_WIDTH / 4];
  memcpy(q, &v, sizeof q);
  return RT_WIDTH == 16 ? (q[0] + q[2 % (RT_WIDTH / 4)]) + (q[1] + q[3 % (RT_WIDTH / 4)]) : q[0] + q[1];
#endif
}

static inline void rt_fold4(const rt_vector v[4], float *s) {
  rt_four q[4], a, b, r;
  for (int i = 0; i < 4; i++)
    q[i] = rt_quarters(v[i]);
  a = RT_PICK(q[0], q[1], 0, 4, 1, 5) + RT_PICK(q[0], q[1], 2, 6, 3, 7);
  b = RT_PICK(q[2], q[3], 0, 4, 1, 5) + RT_PICK(q[2], q[3], 2, 6, 3, 7);
  r = RT_PICK(a, b, 0, 1, 4, 5) + RT_PICK(a, b, 2, 3, 6, 7);
  memcpy(s, &r, sizeof r);
}

static inline float rt_fold(rt_vector v) {
  rt_four q = rt_quarters(v);
  return (q[0] + q[2]) + (q[1] + q[3]);
}
#endif

/* exp by 2^n and a polynomial on [-ln 2 / 2, ln 2 / 2] (coefficients of Cephes): 2 units in the last place. */
static inline float rt_expf(float x) {
  float c = x < -104.0f ? -104.0f : x, k, p, s;
  int32_t n;
  uint32_t bits;
  c = c > 89.0f ? 89.0f : c; /* NaN stays: comparisons with it are false */
  k = c * 1.44269504088896341f + 12582912.0f;
  k -= 12582912.0f;
  p = RT_FMA(k, -0.693359375f, c);
  p = RT_FMA(k, 2.12194440e-4f, p);
  s = RT_FMA(p, 1.9875691500e-4f, 1.3981999507e-3f);
  s = RT_FMA(s, p, 8.3334519073e-3f);
  s = RT_FMA(s, p, 4.1665795894e-2f);
  s = RT_FMA(s, p, 1.6666665459e-1f);
  s = RT_FMA(s, p, 5.0000001201e-1f);
  s = RT_FMA(s, p * p, p) + 1.0f;
  n = (int32_t)(k == k ? k : 0.0f);
  bits = (uint32_t)((n >> 1) + 127) << 23; /* in two steps: 2^n may be beyond what float can have */
  memcpy(&p, &bits, sizeof p);
  bits = (uint32_t)(n - (n >> 1) + 127) << 23;
  memcpy(&k, &bits, sizeof k);
  return s * p * k;
}

/* log: x = 2^n m with m from sqrt(1/2) on, and a polynomial in m - 1 (coefficients of Cephes): 2 units in the last
 * place. */
static inline float rt_logf(float x) {
  const float y = x < 1.17549435e-38f ? x * 8388608.0f : x; /* 2^23: numbers without all their bits get them */
  const uint32_t half_root = 0x3f3504f3u;
  float m, z, p, n;
  uint32_t bits;
  memcpy(&bits, &y, sizeof bits);
  bits -= half_root;
  n = (float)((int32_t)bits >> 23) - (x < 1.17549435e-38f ? 23.0f : 0.0f);
  bits = (bits & 0x007fffffu) + half_root;
  memcpy(&m, &bits, sizeof m);
  m -= 1.0f;
  z = m * m;
  p = RT_FMA(m, 7.0376836292e-2f, -1.1514610310e-1f);
  p = RT_FMA(p, m, 1.1676998740e-1f);
  p = RT_FMA(p, m, -1.2420140846e-1f);
  p = RT_FMA(p, m, 1.4249322787e-1f);
  p = RT_FMA(p, m, -1.6668057665e-1f);
  p = RT_FMA(p, m, 2.0000714765e-1f);
  p = RT_FMA(p, m, -2.4999993993e-1f);
  p = RT_FMA(p, m, 3.3333331174e-1f);
  p = RT_FMA(n, -2.12194440e-4f, p * m * z);
  p = RT_FMA(z, -0.5f, p);
  p = RT_FMA(n, 0.693359375f, m + p);
  p = x < INFINITY ? p : x; /* NaN stays: comparisons with it are false */
  return x > 0.0f ? p : x == 0.0f ? -INFINITY : NAN;
}

/* tanh: x P(x^2) / Q(x^2), the quotient of polynomials of degree 4 of least relative error (2.1e-8) up to where float
 * has only 1: 6 units in the last place, never beyond 1. Magnitudes are bounded as whole numbers, for which processors
 * have an instruction that compilers use without being told that there is no NaN. */
static inline float rt_tanhf(float x) {
  float c, z, p, q;
  uint32_t bits, sign;
  memcpy(&bits, &x, sizeof bits);
  sign = bits & 0x80000000u;
  bits &= 0x7fffffffu;
  bits = bits < 0x411051ecu ? bits : 0x411051ecu; /* 9.02 */
  memcpy(&c, &bits, sizeof c);
  z = c * c;
  p = RT_FMA(z, 1.331881383e-08f, 2.058329034e-05f);
  p = RT_FMA(p, z, 3.494022920e-03f);
  p = RT_FMA(p, z, 1.337970819e-01f);
  p = RT_FMA(p, z, 9.999999790e-01f);
  q = RT_FMA(z, 7.761912180e-07f, 3.283073794e-04f);
  q = RT_FMA(q, z, 2.587102903e-02f);
  q = RT_FMA(q, z, 4.671302344e-01f);
  q = RT_FMA(q, z, 1.0f);
  p = c * p / q;
  memcpy(&bits, &p, sizeof bits);
  bits = (bits < 0x3f800000u ? bits : 0x3f800000u) | sign; /* 1 */
  memcpy(&p, &bits, sizeof p);
  return x == x ? p : x;
}

/* ---- kernels: threads take elements in turn, or lanes of as many as run together share the sum of one ---- */

#ifdef __CUDACC__
#define RT_KERNEL extern "C" __global__ void
enum { RT_LANES = 32 };
static inline int64_t rt_thread(void) { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static inline int64_t rt_threads(void) { return (int64_t)gridDim.x * blockDim.x; }
#define RT_LANES_SHARE(type, name, s, with)                                                                            \
  static inline type name(type s) {                                                                                    \
    for (int far = RT_LANES / 2; far > 0; far /= 2) {                                                                  \
      const type t = __shfl_xor_sync(0xffffffffu, s, far);                                                             \
      s = with;                                                                                                        \
    }                                                                                                                  \
    return s;                                                                                                          \
  }
RT_LANES_SHARE(float, rt_lanes_sumf, s, s + t)
RT_LANES_SHARE(double, rt_lanes_sum, s, s + t)
RT_LANES_SHARE(float, rt_lanes_maxf, s, t > s ? t : s)
RT_LANES_SHARE(double, rt_lanes_max, s, t > s ? t : s)
#else
#define RT_KERNEL static void
enum { RT_LANES = 1 };
static inline int64_t rt_thread(void) { return 0; }
static inline int64_t rt_threads(void) { return 1; }
static inline float rt_lanes_sumf(float s) { return s; }
static inline double rt_lanes_sum(double s) { return s; }
static inline float rt_lanes_maxf(float s) { return s; }
static inline double rt_lanes_max(double s) { return s; }
#endif

#endif

/* The GPU kernel's source, run on the host by a shim: a producer and a consumer grid at the same time, the consumer
 * first. Right numbers for sizes that divide nothing, the same bits as one grid after the other, for many epochs
 * without reset; without flags the result is wrong; a producer that never comes ends the wait. Under ThreadSanitizer it
 * is clean, and reports a race when the release is relaxed: then the program, which runs itself, expects status 66. */
#include "host_grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { M = 70, K = 40, N = 136, P = 72, BLOCKS = 2, PANELS = 2, TILES = 3 };

static bf16 x[M * K], w1[N * K], w2[P * N], y[M * N], z[M * P];
static float b1[N];
static uint32_t flags[PANELS * TILES * CTA_FLAG_STRIDE], next1, next2, gave_up;

#define CHECK(c)                                                                                                       \
  do {                                                                                                                 \
    if (!(c)) {                                                                                                        \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #c);                                                  \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static struct grid *launch(struct cta_gemm gemm) { return grid_launch(&gemm, BLOCKS); }

static struct cta_gemm first(uint32_t epoch) {
  struct cta_gemm g = {};
  g.A = x, g.B = w1, g.C = y, g.bias = b1, g.M = M, g.N = N, g.K = K, g.activation = CTA_RELU;
  g.ready_out = flags, g.epoch = epoch, g.next = &next1, g.next_base = next1, g.gave_up = &gave_up, g.group = 2;
  return g;
}

static struct cta_gemm second(uint32_t epoch) {
  struct cta_gemm g = {};
  g.A = y, g.B = w2, g.C = z, g.M = M, g.N = P, g.K = N, g.ready_in = flags, g.epoch = epoch;
  g.next = &next2, g.next_base = next2, g.gave_up = &gave_up, g.group = 2;
  return g;
}

static void poison(bf16 *p, int n) {
  for (int i = 0; i < n; i++)
    p[i].bits = 0x7fc0;
}

static void fill(bf16 *p, int n, int mod, float scale) {
  for (int i = 0; i < n; i++)
    p[i] = cta_to_bf16((float)(i % mod - mod / 2) * scale);
}

/* In double, with y rounded as the kernel rounds it. */
static double worst_error(void) {
  static float h[M * N];
  double worst = 0, scale = 1e-30;
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      double sum = b1[j];
      for (int k = 0; k < K; k++)
        sum += (double)cta_from_bf16(x[i * K + k]) * cta_from_bf16(w1[j * K + k]);
      h[i * N + j] = cta_from_bf16(cta_to_bf16(sum > 0 ? (float)sum : 0));
    }
  for (int i = 0; i < M; i++)
    for (int j = 0; j < P; j++) {
      double sum = 0;
      for (int k = 0; k < N; k++)
        sum += (double)h[i * N + k] * cta_from_bf16(w2[j * N + k]);
      double e = fabs(cta_from_bf16(z[i * P + j]) - sum);
      scale = fabs(sum) > scale ? fabs(sum) : scale;
      worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
    }
  return worst / scale;
}

static void together(uint32_t epoch) {
  poison(y, M * N);
  poison(z, M * P);
  struct grid *consumer = launch(second(epoch)), *producer = launch(first(epoch));
  grid_join(producer);
  grid_join(consumer);
}

static int run(void) {
  static bf16 alone[M * P];
  fill(x, M * K, 23, 1.0f / 8);
  fill(w1, N * K, 19, 1.0f / 16);
  fill(w2, P * N, 17, 1.0f / 16);
  for (int i = 0; i < N; i++)
    b1[i] = (float)(i % 5 - 2) / 4;
  grid_join(launch(first(1)));
  grid_join(launch(second(1)));
  CHECK(worst_error() < 1.0 / 128); /* a bf16 has 8 bits */
  memcpy(alone, z, sizeof z);
  for (uint32_t epoch = 2; epoch < 4; epoch++) {
    together(epoch);
    CHECK(!gave_up && !memcmp(alone, z, sizeof z));
  }
  poison(y, M * N); /* no flags: nobody waits */
  struct cta_gemm blind = second(5);
  blind.ready_in = NULL;
  grid_join(launch(blind));
  CHECK(memcmp(alone, z, sizeof z) != 0);
  struct cta_gemm lonely = second(9); /* its producer never comes */
  lonely.spins = 100;
  grid_join(launch(lonely));
  CHECK(gave_up == 1);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1)
    return run();
  setenv("TSAN_OPTIONS", "exitcode=66:halt_on_error=1", 1);
  pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", argv[0], "run", (char *)NULL);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  int got = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  printf("exit status %d, expected %d\n", got, EXPECTED_STATUS);
  return got != EXPECTED_STATUS;
}

/* The schedule with threads for ranks, gradients of weights included, under ThreadSanitizer: clean as it is, and a race
 * is reported when the release of a finished tile, the acquire before its use, or that of a meeting is relaxed (which
 * x86 would forgive). The program runs itself and looks at the sanitizer's exit status, EXPECTED_STATUS. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "view.h"

enum { RANKS = 3, STEPS = 4, M = 40, K = 300, N = 520, P = 70 };
enum { PANELS = M / CTA_PANEL_MIN, LINES = PANELS * 4 };

/* Many tiles; and so few that a rank takes a gradient while its factor is being made. */
static const struct size {
  int64_t rows, inner;
  uint32_t epochs;
} sizes[] = {{M, N, 20}, {CTA_PANEL_MIN, 200, 200}};
static const struct size *size;

static cta_line lines[2][LINES], done[RANKS];
static cta_claim claims[STEPS];
static cta_abort stop;
static _Alignas(64) float tiles[2][M * 4 * CTA_TILE], output[2][M * P];
static float x[M * K], *packed[2], w1[K * N], w2[N * P], dw[N * K], db[N];
static _Alignas(64) float scratch[RANKS][2 * CTA_TILE * CTA_TILE];
static int failures;

static void *rank_main(void *arg) {
  const struct cta_micro *micro = cta_micro_best();
  struct cta_view v = {.rank = (int)(intptr_t)arg,
                       .ranks = RANKS,
                       .steps = STEPS,
                       .products = 3,
                       .abort = &stop,
                       .claims = 1,
                       .timeout = 60,
                       .micro = micro,
                       .scratch = scratch[(int)(intptr_t)arg]};
  v.step[0] = (struct cta_step){.in = K, .out = K, .tiles = tiles[0], .flag = lines[0]};
  v.step[1] = (struct cta_step){.kind = CTA_PRODUCT,
                                .in = K,
                                .out = size->inner,
                                .w = packed[0],
                                .tiles = tiles[1],
                                .flag = lines[1],
                                .activation = ATOLL_ACTIVATION_RELU};
  v.step[2] = (struct cta_step){.kind = CTA_PRODUCT, .in = size->inner, .out = P, .owner = 1, .w = packed[1]};
  v.step[3] = (struct cta_step){
      .kind = CTA_WEIGHT, .in = K, .out = size->inner, .left = tiles[0], .right = 1, .dw = {dw}, .db = db};
  for (int s = 0; s < STEPS; s++) {
    v.step[s].claim = &claims[s];
    v.step[s].ks = cta_tiles(v.step[s].in);
    v.step[s].nt = cta_tiles(v.step[s].out);
  }
  for (int r = 0; r < RANKS; r++)
    v.done[r] = &done[r];
  for (uint32_t e = 1; e <= size->epochs; e++) {
    v.epoch = e;
    cta_begin(&v, size->rows, CTA_PANEL_MIN, x, output[e % 2]);
    if (cta_run_pipelined(&v) != ATOLL_OK || cta_meet(&v) != ATOLL_OK)
      __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

static float *pack(const float *w, int64_t in, int64_t out) {
  const struct cta_micro *micro = cta_micro_best();
  float *to = aligned_alloc(64, (size_t)(cta_packed(micro, in, out) * 4 + 63) / 64 * 64);
  for (int64_t k = 0; k < cta_tiles(in); k++)
    cta_pack(micro, cta_tile_cols(in, k), out, w + k * CTA_TILE * out, out, 1,
             to + k * cta_packed(micro, CTA_TILE, out));
  return to;
}

static int run_threads(void) {
  pthread_t thread[RANKS];
  memset(lines, 0, sizeof lines), memset(done, 0, sizeof done), memset(claims, 0, sizeof claims);
  for (int i = 0; i < M * K; i++)
    x[i] = (float)(i % 23 - 11) / 16;
  for (int i = 0; i < K * N; i++)
    w1[i] = (float)(i % 19 - 9) / 64;
  for (int i = 0; i < N * P; i++)
    w2[i] = (float)(i % 17 - 8) / 64;
  packed[0] = pack(w1, K, size->inner);
  packed[1] = pack(w2, size->inner, P);
  for (intptr_t r = 0; r < RANKS; r++)
    pthread_create(&thread[r], NULL, rank_main, (void *)r);
  for (int r = 0; r < RANKS; r++)
    pthread_join(thread[r], NULL);
  free(packed[0]), free(packed[1]);
  return failures || memcmp(output[0], output[1], sizeof output[0]) != 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "run")) {
    int wrong = 0;
    for (size = sizes; size < sizes + sizeof sizes / sizeof *sizes; size++)
      wrong |= run_threads();
    return wrong;
  }
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

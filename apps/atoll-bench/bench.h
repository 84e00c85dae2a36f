/* atoll-bench: speed and memory, never tests. Variants are interleaved in one run, figures are medians, and the
 * machine's measured ceiling stands beside them. */
#ifndef ATOLL_BENCH_H
#define ATOLL_BENCH_H

#include <jansson.h>

#include "atoll/cli.h"
#include "atoll/stats.h"
#include "atoll/train.h"

typedef struct bench {
  const char *name, *summary;
  const char *flags; /* that it reads besides --json, separated by blanks; others are refused */
  /* Collective. Adds its figures to `out` on rank 0 (out is an object there, NULL elsewhere) and tells them. */
  atoll_err (*run)(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out);
} bench;

extern const bench bench_step, bench_io, bench_calibrate, bench_predict, bench_layers, bench_mlp, bench_rl,
    bench_decode;

/* Of a long benchmark: what `out` has so far to the file of --json, which is whole at any time. */
atoll_err bench_write(const atoll_cli *cli, const json_t *out);
/* A flag's value as a whole number in [lo, hi], or `otherwise` when it was not given. */
atoll_err bench_count(const atoll_cli *cli, const char *flag, int64_t otherwise, int64_t lo, int64_t hi, int64_t *out);
/* A folder of this run's own below TMPDIR; rank 0 makes it, all ranks know it. */
atoll_err bench_scratch(MPI_Comm comm, const char *parent, char *dir, size_t n);

#endif

/* io: checkpoint write rate against a plain write and fsync of the same bytes in the same folder, interleaved. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/agree.h"
#include "atoll/clock.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/rng.h"

enum { MOST = 64, TENSORS = 8 };

static atoll_err plain(const char *dir, int rank, const void *data, size_t bytes) {
  char path[1200];
  snprintf(path, sizeof path, "%s/plain-%d", dir, rank);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0)
    return atoll_fail(ATOLL_IO, "open %s: %s", path, strerror(errno));
  atoll_err err = ATOLL_OK;
  for (size_t at = 0; at < bytes && err == ATOLL_OK;) {
    ssize_t n = write(fd, (const char *)data + at, bytes - at);
    if (n < 0)
      err = atoll_fail(ATOLL_IO, "write %s: %s", path, strerror(errno));
    else
      at += (size_t)n;
  }
  if (err == ATOLL_OK && fsync(fd) != 0)
    err = atoll_fail(ATOLL_IO, "fsync %s: %s", path, strerror(errno));
  close(fd);
  unlink(path);
  return err;
}

static atoll_err save_once(const char *dir, int verify, const atoll_tensor *t, int n, int step) {
  char ckpt[1100], made[1200];
  atoll_ckpt_params p;
  atoll_ckpt_params_init(&p);
  p.verify = verify;
  atoll_ckpt_meta meta = {.step = step, .attempt = 1, .finite = 1};
  snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
  return atoll_ckpt_save(MPI_COMM_WORLD, NULL, NULL, ckpt, &p, &meta, t, n, made, sizeof made);
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out) {
  int rank, size;
  int64_t mib, repeats;
  char dir[1024];
  (void)opts;
  (void)job;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ATOLL_TRY(bench_count(cli, "mib", 512, 1, 1 << 20, &mib));
  ATOLL_TRY(bench_count(cli, "repeats", 5, 1, MOST, &repeats));
  ATOLL_TRY(bench_scratch(MPI_COMM_WORLD, atoll_cli_value(cli, "dir"), dir, sizeof dir));
  /* mib in all, TENSORS a rank. */
  int64_t rows = (mib << 20) / size / TENSORS / 4096;
  rows = rows < 1 ? 1 : rows;
  size_t bytes = (size_t)rows * 4096 * TENSORS;
  float *data = malloc(bytes);
  atoll_tensor t[TENSORS];
  atoll_err err = data ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%zu bytes of tensors", bytes);
  atoll_rng_key key = {.seed = 1, .sample = (uint64_t)rank, .site = ATOLL_RNG_TEST};
  if (data)
    atoll_rng_fill_bits(&key, 0, bytes / 4, (uint32_t *)(void *)data);
  for (int i = 0; i < TENSORS && err == ATOLL_OK; i++) {
    char name[96];
    int64_t shape[2] = {rows, 1024};
    snprintf(name, sizeof name, "param/rank%d.tensor%d", rank, i);
    err = atoll_tensor_init(&t[i], name, ATOLL_F32, 2, shape, data + (size_t)i * (size_t)rows * 1024);
  }
  err = atoll_agree(MPI_COMM_WORLD, err);
  double seconds[3][MOST], ratio[2][MOST];
  for (int r = 0; r < repeats && err == ATOLL_OK; r++)
    for (int k = 0; k < 3 && err == ATOLL_OK; k++) {
      int variant = (k + r) % 3; /* no variant always comes first */
      MPI_Barrier(MPI_COMM_WORLD);
      double t0 = atoll_clock_now();
      err = variant == 0 ? atoll_agree(MPI_COMM_WORLD, plain(dir, rank, data, bytes))
                         : save_once(dir, variant == 1, t, TENSORS, r * 3 + k);
      seconds[variant][r] = atoll_clock_now() - t0;
      if (rank == 0) {
        char ckpt[1100];
        snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
        atoll_file_remove_tree(ckpt);
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
  if (err == ATOLL_OK && rank == 0) {
    double total = (double)bytes * size;
    for (int r = 0; r < repeats; r++)
      for (int k = 0; k < 2; k++)
        ratio[k][r] = seconds[0][r] / seconds[k + 1][r];
    double base = atoll_median(seconds[0], (size_t)repeats), checked = atoll_median(seconds[1], (size_t)repeats),
           bare = atoll_median(seconds[2], (size_t)repeats);
    json_object_set_new(out, "bytes", json_real(total));
    json_object_set_new(out, "ranks", json_integer(size));
    json_object_set_new(out, "plain_bytes_per_second", json_real(total / base));
    json_object_set_new(out, "checkpoint_bytes_per_second", json_real(total / bare));
    json_object_set_new(out, "checkpoint_verified_bytes_per_second", json_real(total / checked));
    json_object_set_new(out, "ratio", json_real(atoll_median(ratio[1], (size_t)repeats)));
    json_object_set_new(out, "ratio_verified", json_real(atoll_median(ratio[0], (size_t)repeats)));
    atoll_say("%.0f MB : plain write and fsync %.0f MB/s , checkpoint %.0f MB/s ( ratio %.2f ) , read back as well "
              "%.0f MB/s ( ratio %.2f )",
              total / 1e6, total / base / 1e6, total / bare / 1e6, ratio[1][repeats / 2], total / checked / 1e6,
              ratio[0][repeats / 2]);
  }
  free(data);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    atoll_file_remove_tree(dir);
  return err;
}

const bench bench_io = {"io", "checkpoint write rate against a plain write and fsync of the same bytes",
                        "mib repeats dir", run};

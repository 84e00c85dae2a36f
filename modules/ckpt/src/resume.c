/* Finding, verifying and reading checkpoints. Reading goes by hyperslab: what a rank wants of a tensor is cut out of
 * whatever blocks hold it, so a checkpoint of any plan and rank count can be read by any other. */
#include "ckpt_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"
#include "atoll/store.h"

/* ---- verify --------------------------------------------------------------------------------------------------------
 */

atoll_err ckpt_check_file(const char *dir, const manifest_file *f) {
  char path[1200];
  atoll_digest digest;
  int64_t bytes;
  ATOLL_TRY(atoll_path_join(path, sizeof path, dir, f->name));
  if (!atoll_file_exists(path) && errno == ENOENT) /* what cannot be looked at may come back */
    return atoll_fail(ATOLL_CORRUPT, "%s: shard %s is missing", dir, f->name);
  ATOLL_TRY(atoll_file_digest(path, &digest, &bytes));
  if (bytes != f->bytes)
    return atoll_fail(ATOLL_CORRUPT, "%s: %s has %lld bytes, COMMIT says %lld", dir, f->name, (long long)bytes,
                      (long long)f->bytes);
  if (!atoll_digest_equal(digest, f->digest))
    return atoll_fail(ATOLL_CORRUPT, "%s: %s does not match its checksum", dir, f->name);
  return ATOLL_OK;
}

static atoll_err as_damage(atoll_err err) { /* stored data that does not add up */
  return err == ATOLL_INTERNAL ? atoll_fail(ATOLL_CORRUPT, "%s", atoll_err_message()) : err;
}

atoll_err atoll_ckpt_verify(const char *dir) {
  manifest m;
  if (!atoll_file_is_dir(dir))
    return atoll_fail(ATOLL_NOINPUT, "%s is not a directory", dir);
  ATOLL_TRY(manifest_read(dir, &m));
  atoll_err err = as_damage(manifest_check_cover(&m));
  for (int i = 0; i < m.files && err == ATOLL_OK; i++)
    err = ckpt_check_file(dir, &m.file[i]);
  manifest_free(&m);
  return err;
}

/* ---- find ----------------------------------------------------------------------------------------------------------
 */

/* COMMIT as rank 0 reads it, for all: they must judge the same text. */
static atoll_err share_manifest(MPI_Comm comm, int rank, const char *dir, manifest *m) {
  char path[1200], *text = NULL;
  size_t bytes = 0;
  void *shared = NULL;
  int64_t n = 0;
  memset(m, 0, sizeof *m);
  atoll_err err = atoll_path_join(path, sizeof path, dir, "COMMIT");
  if (err == ATOLL_OK && rank == 0)
    err = atoll_file_exists(path) || errno != ENOENT ? atoll_file_read(path, &text, &bytes)
                                                     : atoll_fail(ATOLL_CORRUPT, "%s is missing", path);
  err = atoll_agree(comm, err);
  if (err == ATOLL_OK)
    err = atoll_share_bytes(comm, 0, text, (int64_t)bytes, &shared, &n);
  if (err == ATOLL_OK)
    err = atoll_agree(comm, manifest_from_commit(path, shared, (size_t)n, m));
  free(text);
  free(shared);
  return err;
}

static atoll_err check_together(MPI_Comm comm, int rank, int size, const char *dir) {
  manifest m;
  ATOLL_TRY(share_manifest(comm, rank, dir, &m));
  atoll_err err = as_damage(manifest_check_cover(&m));
  for (int i = rank; i < m.files && err == ATOLL_OK; i += size)
    err = ckpt_check_file(dir, &m.file[i]);
  manifest_free(&m);
  return atoll_agree(comm, err);
}

static void add_line(char **report, const char *dir, const char *why) {
  size_t old = *report ? strlen(*report) : 0, room = old + strlen(dir) + strlen(why) + 32;
  char *grown = realloc(*report, room);
  if (!grown)
    return;
  snprintf(grown + old, room - old, "%sskipped checkpoint %s: %s", old ? "\n" : "", dir, why);
  *report = grown;
}

/* Rank 0's list, newest first, each ended by a NUL: a path may hold any other byte. */
static atoll_err share_list(MPI_Comm comm, int rank, const char *ckpt_dir, char **list, int64_t *list_bytes) {
  char **dirs = NULL, *lines = NULL;
  int64_t *steps = NULL;
  size_t n = 0, length = 0;
  void *shared = NULL;
  atoll_err err = rank == 0 ? atoll_ckpt_list(ckpt_dir, &dirs, &steps, &n) : ATOLL_OK;
  FILE *f = open_memstream(&lines, &length);
  if (f) {
    for (size_t i = n; i-- > 0;)
      fwrite(dirs[i], 1, strlen(dirs[i]) + 1, f);
    fclose(f);
  } else if (err == ATOLL_OK) {
    err = atoll_fail(ATOLL_NOMEM, "list of checkpoints");
  }
  for (size_t i = 0; i < n; i++)
    free(dirs[i]);
  free(dirs);
  free(steps);
  err = atoll_agree(comm, err);
  if (err == ATOLL_OK)
    err = atoll_share_bytes(comm, 0, lines, (int64_t)length, &shared, list_bytes);
  free(lines);
  ATOLL_TRY(err);
  *list = shared;
  return ATOLL_OK;
}

atoll_err atoll_ckpt_find(MPI_Comm comm, const char *ckpt_dir, char *dir, size_t n, char **report) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  char *list = NULL;
  int64_t bytes = 0;
  *report = NULL;
  ATOLL_TRY(share_list(comm, rank, ckpt_dir, &list, &bytes));
  atoll_err found = ATOLL_NOINPUT;
  int damaged = 0, unread = 0;
  for (const char *one = list; one < list + bytes && found != ATOLL_OK; one += strlen(one) + 1) {
    atoll_err err = check_together(comm, rank, size, one);
    if (err == ATOLL_OK) {
      snprintf(dir, n, "%s", one);
      found = ATOLL_OK;
    } else {
      add_line(report, one, atoll_err_message());
      damaged += err == ATOLL_CORRUPT;
      unread += err != ATOLL_CORRUPT;
    }
  }
  free(list);
  /* A disk that answers again tomorrow must not cost what was trained until today. */
  if (found != ATOLL_OK && unread > 0)
    return atoll_fail(ATOLL_IO, "%d checkpoint%s in %s cannot be read, %d damaged, none is good: %s", unread,
                      unread == 1 ? "" : "s", ckpt_dir, damaged, *report ? *report : "");
  if (found != ATOLL_OK)
    return atoll_fail(ATOLL_NOINPUT, "no good checkpoint in %s%s", ckpt_dir,
                      *report ? " (damaged ones were skipped)" : "");
  atoll_err_clear();
  return ATOLL_OK;
}

atoll_err atoll_ckpt_read_meta(const char *dir, atoll_ckpt_meta *meta) {
  manifest m;
  char path[1200];
  size_t bytes;
  ATOLL_TRY(manifest_read(dir, &m));
  atoll_ckpt_meta x = m.meta;
  x.plan = x.config = NULL;
  manifest_free(&m);
  atoll_err err = atoll_path_join(path, sizeof path, dir, "plan.yaml");
  if (err == ATOLL_OK)
    err = atoll_file_read(path, &x.plan, &bytes);
  if (err == ATOLL_OK)
    err = atoll_path_join(path, sizeof path, dir, "config.yaml");
  if (err == ATOLL_OK)
    err = atoll_file_read(path, &x.config, &bytes);
  if (err != ATOLL_OK) {
    atoll_ckpt_meta_free(&x);
    return err;
  }
  *meta = x;
  return ATOLL_OK;
}

/* ---- load ----------------------------------------------------------------------------------------------------------
 */

/* Copy a dense block [count] into its place inside a dense block [shape] that starts at `at`. */
static void place_block(char *to, const int64_t *shape, const int64_t *at, const char *from, const int64_t *count,
                        int ndim, size_t item) {
  if (ndim == 0) {
    memcpy(to, from, item);
    return;
  }
  int64_t inner_to = 1, inner_from = 1;
  for (int i = 1; i < ndim; i++) {
    inner_to *= shape[i];
    inner_from *= count[i];
  }
  for (int64_t r = 0; r < count[0]; r++) {
    char *row = to + (size_t)((at[0] + r) * inner_to) * item;
    if (ndim == 1 || inner_from == inner_to)
      memcpy(row, from + (size_t)(r * inner_from) * item, (size_t)inner_from * item);
    else
      place_block(row, shape + 1, at + 1, from + (size_t)(r * inner_from) * item, count + 1, ndim - 1, item);
  }
}

static atoll_err check_shape(const atoll_tensor *t, const manifest_block *b) {
  char want[96] = "", have[96] = "";
  int a = 0, c = 0, same = t->ndim == b->ndim;
  for (int i = 0; i < t->ndim; i++) {
    a += snprintf(want + a, sizeof want - (size_t)a, i ? " x %lld" : "%lld", (long long)t->global[i]);
    same = same && t->global[i] == b->global[i];
  }
  for (int i = 0; i < b->ndim; i++)
    c += snprintf(have + c, sizeof have - (size_t)c, i ? " x %lld" : "%lld", (long long)b->global[i]);
  if (!same || t->dtype != b->dtype)
    return atoll_fail(ATOLL_MISMATCH, "tensor %s: the checkpoint has %s %s, wanted %s %s", t->name,
                      atoll_dtype_name(b->dtype), have, atoll_dtype_name(t->dtype), want);
  return ATOLL_OK;
}

/* The part of block b that tensor t wants, read straight into place. *elements counts what was filled. */
static atoll_err load_part(atoll_store *s, const manifest_block *b, atoll_tensor *t, int64_t *elements) {
  int64_t start[ATOLL_NDIM_MAX] = {0}, count[ATOLL_NDIM_MAX] = {0}, at[ATOLL_NDIM_MAX] = {0}, n = 1;
  ATOLL_TRY(check_shape(t, b));
  for (int i = 0; i < t->ndim; i++) {
    int64_t lo = b->start[i] > t->start[i] ? b->start[i] : t->start[i];
    int64_t b_end = b->start[i] + b->count[i], t_end = t->start[i] + t->local[i], hi = b_end < t_end ? b_end : t_end;
    if (hi <= lo)
      return ATOLL_OK;
    start[i] = lo - b->start[i];
    at[i] = lo - t->start[i];
    count[i] = hi - lo;
    n *= count[i];
  }
  char path[100];
  snprintf(path, sizeof path, "/%s", t->name);
  size_t item = atoll_dtype_bytes(t->dtype);
  int whole_rows = 1;
  for (int i = 1; i < t->ndim; i++)
    whole_rows = whole_rows && count[i] == t->local[i];
  *elements += n;
  if (whole_rows) {
    int64_t row = t->ndim ? n / count[0] : 1;
    return atoll_store_read(s, path, t->dtype, start, count,
                            (char *)t->data + (size_t)((t->ndim ? at[0] : 0) * row) * item);
  }
  void *piece = malloc((size_t)n * item);
  if (!piece)
    return atoll_fail(ATOLL_NOMEM, "part of %s, %lld elements", t->name, (long long)n);
  atoll_err err = atoll_store_read(s, path, t->dtype, start, count, piece);
  if (err == ATOLL_OK)
    place_block(t->data, t->local, at, piece, count, t->ndim, item);
  free(piece);
  return err;
}

static atoll_err load_file(const char *dir, const manifest_file *f, atoll_tensor *tensors, int n, int64_t *filled) {
  char path[1200];
  atoll_store *s = NULL;
  atoll_err err = atoll_path_join(path, sizeof path, dir, f->name);
  for (int k = 0; k < f->blocks && err == ATOLL_OK; k++)
    for (int i = 0; i < n && err == ATOLL_OK; i++) {
      if (strcmp(f->block[k].name, tensors[i].name) != 0)
        continue;
      if (!s)
        err = atoll_store_open(path, ATOLL_STORE_READ, &s);
      if (err == ATOLL_OK)
        err = load_part(s, &f->block[k], &tensors[i], &filled[i]);
    }
  if (s)
    atoll_store_close(&s);
  return err;
}

static atoll_err load_tensors(const char *dir, const manifest *m, atoll_tensor *tensors, int n) {
  int64_t *filled = calloc((size_t)(n ? n : 1), sizeof *filled);
  atoll_err err = filled ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%d tensors", n);
  for (int i = 0; i < m->files && err == ATOLL_OK; i++)
    err = load_file(dir, &m->file[i], tensors, n, filled);
  for (int i = 0; i < n && err == ATOLL_OK; i++)
    if (filled[i] != atoll_tensor_local_count(&tensors[i]))
      err = atoll_fail(ATOLL_MISMATCH, "%s holds %lld of the %lld elements wanted of tensor %s", dir,
                       (long long)filled[i], (long long)atoll_tensor_local_count(&tensors[i]), tensors[i].name);
  free(filled);
  return err;
}

atoll_err atoll_ckpt_load(MPI_Comm comm, const char *dir, atoll_tensor *tensors, int n) {
  int rank;
  manifest m;
  MPI_Comm_rank(comm, &rank);
  ATOLL_TRY(share_manifest(comm, rank, dir, &m));
  atoll_err err = load_tensors(dir, &m, tensors, n);
  manifest_free(&m);
  return atoll_agree(comm, err);
}

/* A rank's blocks as HDF5 images of bounded size.
 *
 * Images are built in memory and written with plain calls, because HDF5 closes a file contentedly over a full disk:
 * here a refusal arrives as an ordinary errno. Blocks that exceed an image are cut by rows, so the memory of a save
 * does not grow with the model. */
#include "ckpt_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/fault.h"
#include "atoll/file.h"
#include "atoll/store.h"

void atoll_ckpt_share(const atoll_tensor *whole, int part, int parts, atoll_tensor *block) {
  *block = *whole;
  if (whole->ndim == 0 || parts <= 1) {
    if (part > 0)
      for (int i = 0; i < whole->ndim; i++)
        block->local[i] = 0;
    return;
  }
  int64_t rows = whole->local[0], a = rows * part / parts, b = rows * (part + 1) / parts, row = 1;
  for (int i = 1; i < whole->ndim; i++)
    row *= whole->local[i];
  block->start[0] = whole->start[0] + a;
  block->local[0] = b - a;
  if (whole->data)
    block->data = (char *)whole->data + (size_t)(a * row) * atoll_dtype_bytes(whole->dtype);
}

int64_t atoll_ckpt_image_bytes(const atoll_tensor *tensors, int n) {
  int64_t all = 0, largest_row = 0;
  for (int i = 0; i < n; i++) {
    int64_t bytes = atoll_tensor_local_bytes(&tensors[i]);
    all += bytes;
    if (tensors[i].local[0] > 0 && bytes / tensors[i].local[0] > largest_row)
      largest_row = bytes / tensors[i].local[0];
  }
  int64_t payload = all < CKPT_PAYLOAD_BYTES           ? all
                    : CKPT_PAYLOAD_BYTES > largest_row ? CKPT_PAYLOAD_BYTES
                                                       : largest_row;
  return payload + (ATOLL_CKPT_IMAGE_BYTES - CKPT_PAYLOAD_BYTES);
}

enum { OPEN_MAX_FILES = 32 };

typedef struct begun { /* a file on its way to the disk */
  char path[1200];
  int fd;
  size_t bytes;
  atoll_digest digest;
} begun;

typedef struct writer {
  atoll_mem *mem;
  begun *file; /* [OPEN_MAX_FILES] */
  int begun;
  const char *dir;
  int rank, verify, part;
  manifest *m;
  atoll_store_buffer buffer;
  atoll_store *store; /* open image, in buffer */
  int64_t payload;
  manifest_file pending; /* blocks of the open image */
} writer;

static atoll_err open_image(writer *w) {
  char name[64];
  snprintf(name, sizeof name, "shard-%04d-%03d.h5", w->rank, w->part++);
  memset(&w->pending, 0, sizeof w->pending);
  snprintf(w->pending.name, sizeof w->pending.name, "%s", name);
  w->payload = 0;
  atoll_fault_point("ckpt.shard.open");
  ATOLL_TRY(atoll_store_open_image(name, &w->buffer, &w->store));
  return atoll_store_stamp(w->store, "atoll-checkpoint-shard", ATOLL_CKPT_VERSION);
}

static atoll_err check_written(const char *path, atoll_digest want, size_t bytes) {
  atoll_digest got;
  int64_t n;
  ATOLL_TRY(atoll_file_digest(path, &got, &n));
  if (n != (int64_t)bytes || !atoll_digest_equal(got, want))
    return atoll_fail(ATOLL_IO, "%s: read back %lld bytes that differ from the %zu written", path, (long long)n, bytes);
  return ATOLL_OK;
}

/* Wait until every file that was begun is on the disk, and look at what is there. All are settled, also after a
 * failure. */
static atoll_err settle_files(writer *w) {
  atoll_err err = ATOLL_OK;
  for (int i = 0; i < w->begun; i++) {
    atoll_err one = atoll_file_settle(w->file[i].path, &w->file[i].fd);
    if (one == ATOLL_OK && err == ATOLL_OK) {
      atoll_fault_point("ckpt.shard.written");
      if (w->verify)
        one = check_written(w->file[i].path, w->file[i].digest, w->file[i].bytes);
    }
    err = err == ATOLL_OK ? one : err;
  }
  w->begun = 0;
  return err;
}

static atoll_err close_image(writer *w) {
  if (!w->store)
    return ATOLL_OK;
  const void *bytes = NULL;
  size_t n = 0;
  char path[1200];
  manifest_file *f;
  atoll_err err = atoll_store_finish_image(&w->store, &bytes, &n);
  if (err == ATOLL_OK)
    err = atoll_path_join(path, sizeof path, w->dir, w->pending.name);
  if (err == ATOLL_OK && w->begun == OPEN_MAX_FILES)
    err = settle_files(w);
  begun *b = &w->file[w->begun];
  if (err == ATOLL_OK)
    err = atoll_file_begin(path, bytes, n, &b->fd);
  if (err == ATOLL_OK) {
    snprintf(b->path, sizeof b->path, "%s", path);
    b->bytes = n;
    b->digest = atoll_digest_bytes(bytes, n);
    w->begun++;
    err = manifest_add_file(w->m, w->pending.name, (int64_t)n, b->digest, &f);
    if (err == ATOLL_OK) {
      f->blocks = w->pending.blocks;
      f->block = w->pending.block;
      w->pending.block = NULL;
    }
  }
  free(w->pending.block);
  w->pending.block = NULL;
  return err;
}

static atoll_err write_rows(writer *w, const atoll_tensor *t, int64_t first, int64_t rows) {
  manifest_block b = {.dtype = t->dtype, .ndim = t->ndim};
  int64_t row = 1;
  snprintf(b.name, sizeof b.name, "%s", t->name);
  for (int i = 0; i < t->ndim; i++) {
    b.global[i] = t->global[i];
    b.start[i] = t->start[i];
    b.count[i] = t->local[i];
    if (i > 0)
      row *= t->local[i];
  }
  if (t->ndim > 0) {
    b.start[0] += first;
    b.count[0] = rows;
  }
  const char *data = (const char *)t->data + (size_t)(first * row) * atoll_dtype_bytes(t->dtype);
  char path[100], place[128];
  snprintf(path, sizeof path, "/%s", t->name);
  ATOLL_TRY(atoll_store_write(w->store, path, t->dtype, t->ndim, b.count, data, "1", t->name));
  for (int k = 0; k < 2; k++) { /* a stranger with one shard sees where its blocks belong */
    const int64_t *v = k ? b.global : b.start;
    int at = 0;
    place[0] = '\0';
    for (int i = 0; i < t->ndim; i++)
      at += snprintf(place + at, sizeof place - (size_t)at, i ? ",%lld" : "%lld", (long long)v[i]);
    ATOLL_TRY(atoll_store_attr_text(w->store, path, k ? "global_shape" : "start", place));
  }
  w->payload += b.count[0] * row * (int64_t)atoll_dtype_bytes(t->dtype);
  return manifest_add_block(&w->pending, &b);
}

/* Datasets are named after tensors, so a file has one block of each. */
static int has_block(const writer *w, const atoll_tensor *t) {
  for (int i = 0; i < w->pending.blocks; i++)
    if (!strcmp(w->pending.block[i].name, t->name))
      return 1;
  return 0;
}

static atoll_err write_tensor(writer *w, const atoll_tensor *t) {
  int64_t bytes = atoll_tensor_local_bytes(t), rows = t->ndim ? t->local[0] : 1;
  if (bytes == 0)
    return ATOLL_OK;
  int64_t row_bytes = bytes / rows;
  for (int64_t at = 0; at < rows;) {
    int64_t room = (CKPT_PAYLOAD_BYTES - w->payload) / row_bytes, left = rows - at;
    if (w->store && (room < 1 || has_block(w, t))) {
      ATOLL_TRY(close_image(w));
      continue;
    }
    if (!w->store) {
      ATOLL_TRY(open_image(w));
      continue;
    }
    int64_t n = room < 1 ? 1 : room < left ? room : left;
    ATOLL_TRY(write_rows(w, t, at, n));
    at += n;
  }
  return ATOLL_OK;
}

atoll_err shard_write(atoll_mem *mem, const char *dir, int rank, int verify, const atoll_tensor *tensors, int n,
                      manifest *m) {
  writer w = {.mem = mem, .dir = dir, .rank = rank, .verify = verify, .m = m};
  void *account = NULL;
  /* HDF5 allocates its images itself. The account is charged by an allocation of the same size that is never touched,
   * so the budget holds and no page is used twice. */
  if (mem && n > 0)
    ATOLL_TRY(atoll_mem_alloc(mem, ATOLL_MEM_CHECKPOINT, (size_t)atoll_ckpt_image_bytes(tensors, n), &account));
  w.file = calloc(OPEN_MAX_FILES, sizeof *w.file);
  atoll_err err = w.file ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "list of shards");
  for (int i = 0; i < n && err == ATOLL_OK; i++)
    err = write_tensor(&w, &tensors[i]);
  if (err == ATOLL_OK)
    err = close_image(&w);
  char failed[1024];
  snprintf(failed, sizeof failed, "%s", err == ATOLL_OK ? "" : atoll_err_message());
  atoll_err settled = settle_files(&w);
  if (err == ATOLL_OK)
    err = settled;
  else
    atoll_err_set_message(failed); /* the first failure is the one to tell */
  free(w.file);
  if (w.store)
    atoll_store_close(&w.store);
  atoll_store_buffer_free(&w.buffer);
  free(w.pending.block);
  if (account)
    atoll_mem_free(mem, &account);
  return err;
}

/* What the files of ckpt share.
 *   shard      a rank's blocks as HDF5 images
 *   manifest   COMMIT: what a checkpoint consists of, as text
 *   commit     the protocol that makes one exist
 *   resume     finding, verifying and reading one
 *   list       names, retention */
#ifndef ATOLL_CKPT_IMPL_H
#define ATOLL_CKPT_IMPL_H

#include "atoll/ckpt.h"

#include "atoll/digest.h"

/* Payload of one image; the rest up to ATOLL_CKPT_IMAGE_BYTES is HDF5's own. */
#define CKPT_PAYLOAD_BYTES (ATOLL_CKPT_IMAGE_BYTES - (INT64_C(4) << 20))

typedef struct manifest_block { /* a hyperslab of a logical tensor, stored whole as dataset "/name" of its file */
  char name[96];
  atoll_dtype dtype;
  int ndim;
  int64_t global[ATOLL_NDIM_MAX], start[ATOLL_NDIM_MAX], count[ATOLL_NDIM_MAX];
} manifest_block;

typedef struct manifest_file {
  char name[64];
  int64_t bytes;
  atoll_digest digest;
  int blocks;
  manifest_block *block;
} manifest_file;

typedef struct manifest {
  atoll_ckpt_meta meta; /* plan and config NULL: they are files of their own */
  int files;
  manifest_file *file;
} manifest;

void manifest_free(manifest *m);
atoll_err manifest_add_file(manifest *m, const char *name, int64_t bytes, atoll_digest digest, manifest_file **file);
atoll_err manifest_add_block(manifest_file *f, const manifest_block *block);
/* The files' part alone, to carry from rank to rank; and the whole COMMIT with its own digest in the last line. *text
 * owned: free(). */
atoll_err manifest_pack_files(const manifest *m, char **text, size_t *bytes);
atoll_err manifest_unpack_files(manifest *m, const char *name, const char *text, size_t bytes);
atoll_err manifest_to_commit(const manifest *m, char **text, size_t *bytes);
/* CORRUPT for anything wrong with the text. */
atoll_err manifest_from_commit(const char *path, const char *text, size_t bytes, manifest *m);
atoll_err manifest_read(const char *dir, manifest *m);
/* Every element of every tensor in exactly one block. */
atoll_err manifest_check_cover(const manifest *m);

/* Local: writes this rank's blocks into dir, adding files to m. */
atoll_err shard_write(atoll_mem *mem, const char *dir, int rank, int verify, const atoll_tensor *tensors, int n,
                      manifest *m);

/* step-00000100.a1 */
void ckpt_name(int64_t step, int attempt, char *buf, size_t n);
/* 1 and the numbers when name is a committed checkpoint's name. */
int ckpt_parse_name(const char *name, int64_t *step, int *attempt);
/* Local: one file of a checkpoint against its length and digest. */
atoll_err ckpt_check_file(const char *dir, const manifest_file *f);

#endif

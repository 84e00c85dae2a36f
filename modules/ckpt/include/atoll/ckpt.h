/** Checkpoints that exist only when whole.
 *
 *    RUN/ckpt/step-00000100.a1/  shard-RRRR-PPP.h5 ... model.h5 COMMIT     (names are never reused; written as
 * step-....tmp first)
 *
 *  Every rank writes its blocks of logical tensors as HDF5 images of at most 64 MiB through file.h; all agree; rank 0
 * writes model.h5 (virtual datasets over the shards) and then COMMIT: lengths, checksums, plan digest. Only COMMIT
 * makes a checkpoint exist. The previous good one survives any single failure. Resume walks back past whatever fails
 * its checks and says what it skipped and why. Reading is by hyperslab, so any plan and rank count can read what any
 * other wrote.
 *
 *  Named fault points: ckpt.begin ckpt.shard.open ckpt.shard.written ckpt.shards.agreed ckpt.model.written
 * ckpt.commit.before ckpt.commit.written ckpt.renamed ckpt.retention. */
#ifndef ATOLL_CKPT_H
#define ATOLL_CKPT_H

#include <mpi.h>

#include "atoll/agree.h"
#include "atoll/mem.h"
#include "atoll/model.h"
#include "atoll/opt.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

#define ATOLL_CKPT_IMAGE_BYTES (INT64_C(64) << 20)
#define ATOLL_CKPT_VERSION     1

/** Options `ckpt.*`. */
typedef struct atoll_ckpt_params {
  int64_t every_steps;               /* 0 = only at the end and when stopped */
  double every_seconds;              /* 0 = off; whichever comes first */
  int64_t keep;                      /* newest good ones kept; the last whose loss was finite is never removed */
  int verify;                        /* bool: read back and check each shard before COMMIT */
  char resume[ATOLL_OPT_STRING_MAX]; /* "auto" newest good one of the run; "none"; or a checkpoint directory (also of
                                        another run) */
} atoll_ckpt_params;
extern ATOLL_API const atoll_opt_table atoll_ckpt_options;
ATOLL_API void atoll_ckpt_params_init(atoll_ckpt_params *p);

/** Everything besides tensors. Text fields owned by the struct when loaded: atoll_ckpt_meta_free(). */
typedef struct atoll_ckpt_meta {
  int64_t step; /* steps done: the next to run */
  int attempt;
  uint64_t seed;
  int64_t tokens;                  /* trained so far */
  int64_t skipped, skipped_in_row; /* guard state */
  double last_loss, best_validation;
  int finite;          /* 1: the last applied loss and norm were finite */
  char *plan, *config; /* plan text; effective options (YAML) */
  char model_digest[33], data_digest[33], plan_digest[33], identity_digest[33];
  char reason[64]; /* "periodic" "stop" "final" */
} atoll_ckpt_meta;
ATOLL_API void atoll_ckpt_meta_free(atoll_ckpt_meta *meta);

/** Collective. tensors: this rank's blocks (names "param/wte.weight", "moment1/...", "moment2/..."); together all
 * ranks' blocks must cover each logical tensor exactly once (checked: INTERNAL). A rank with none still calls. Host
 * memory. Image buffers come from mem category CHECKPOINT. *dir_out (n bytes) receives the final path. IO (all ranks
 * the same) leaves nothing with a final name. Free space is checked first. */
ATOLL_API atoll_err atoll_ckpt_save(MPI_Comm comm, atoll_watch *watch, atoll_mem *mem, const char *ckpt_dir,
                                    const atoll_ckpt_params *params, const atoll_ckpt_meta *meta,
                                    const atoll_tensor *tensors, int n, char *dir_out, size_t dir_bytes);
/** Bytes of image buffer one save needs at most on a rank with these tensors. */
ATOLL_API int64_t atoll_ckpt_image_bytes(const atoll_tensor *tensors, int n);
/** Row block `part` of `parts` of a tensor (first dimension), for replicas that share the writing. Count 0 possible. */
ATOLL_API void atoll_ckpt_share(const atoll_tensor *whole, int part, int parts, atoll_tensor *block);

/** Collective. Newest good checkpoint (of the newest attempt, then of the largest step) below ckpt_dir (every shard's
 * length and checksum verified, work divided over ranks); skipped ones are reported in `report` (owned text: free();
 * empty when none). *dir is filled (n bytes). NOINPUT when there is none, or only damaged ones; IO when none is good
 * and some cannot be read now: beginning anew would throw away what may come back, so the message names them. */
ATOLL_API atoll_err atoll_ckpt_find(MPI_Comm comm, const char *ckpt_dir, char *dir, size_t n, char **report);
/** Local. Reads COMMIT and meta of one directory. */
ATOLL_API atoll_err atoll_ckpt_read_meta(const char *dir, atoll_ckpt_meta *meta);
/** Collective on comm (may be MPI_COMM_SELF). Fills every block of `tensors` (host memory) from a checkpoint of any
 * layout. CORRUPT or MISMATCH name tensor, file shape and wanted shape. */
ATOLL_API atoll_err atoll_ckpt_load(MPI_Comm comm, const char *dir, atoll_tensor *tensors, int n);
/** Local, no MPI needed. Every check on one directory, also when moved elsewhere. OK, or the damage in words. */
ATOLL_API atoll_err atoll_ckpt_verify(const char *dir);
/** Collective. Removes what `keep` does not protect, oldest first, and leftovers of dead attempts (*.tmp of other
 * attempts). */
ATOLL_API atoll_err atoll_ckpt_retain(MPI_Comm comm, const char *ckpt_dir, int64_t keep, int attempt);
/** Local. Committed checkpoints in the order they were made (by attempt, then step); owned: free both. */
ATOLL_API atoll_err atoll_ckpt_list(const char *ckpt_dir, char ***dirs, int64_t **steps, size_t *n);
/** Local. 1 when path is a checkpoint, a folder of checkpoints or a run directory; its newest one into dir (n bytes).
 */
ATOLL_API int atoll_ckpt_locate(const char *path, char *dir, size_t n);
/** Local. The model of the checkpoint in dir, from the options that meta holds. *out owned: atoll_model_destroy().
 * MISMATCH when they are of a policy (atoll-rl), CORRUPT when they have no section model otherwise. */
ATOLL_API atoll_err atoll_ckpt_model(const char *dir, const atoll_ckpt_meta *meta, atoll_model **out);

ATOLL_END_C
#endif

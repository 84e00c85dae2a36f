/* The protocol that makes a checkpoint exist.
 *
 * Problem: a job can die at any instruction, on any node, with a file system that is full, read-only or lying. Whatever
 * happens, a name that exists must be a whole checkpoint, and the previous one must survive.
 *
 * Method: everything is written below step-S.aN.tmp. (1) Every rank writes its shards, each synced and, if asked, read
 * back. (2) All agree. (3) Rank 0 gathers the list of files and blocks, checks that blocks cover every tensor once, and
 * writes model.h5, plan.yaml, config.yaml. (4) Rank 0 writes COMMIT, the list with lengths and digests. (5) The folder
 * is synced and renamed to step-S.aN, and its parent synced. Before (5) there is only a .tmp folder, which nobody reads
 * and a later attempt removes. Attempts never share a number, so a name is never used twice.
 *
 * What it survives: SIGKILL of any rank at any point (tests kill at each named one), a write, sync or rename that fails
 * at any call, a disk that fills up. What it relies on: rename within a folder is atomic, and fsync is honest. */
#include "ckpt_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/fault.h"
#include "atoll/file.h"
#include "atoll/store.h"

static atoll_err add_written(manifest *m, const char *dir, const char *name, const void *data, size_t bytes) {
  char path[1200];
  ATOLL_TRY(atoll_path_join(path, sizeof path, dir, name));
  ATOLL_TRY(atoll_file_create(path, data, bytes));
  return manifest_add_file(m, name, (int64_t)bytes, atoll_digest_bytes(data, bytes), NULL);
}

/* ---- model.h5 ------------------------------------------------------------------------------------------------------
 */

typedef struct placed {
  const manifest_block *block;
  const char *file;
} placed;

static int compare_placed(const void *a, const void *b) {
  return strcmp(((const placed *)a)->block->name, ((const placed *)b)->block->name);
}

static atoll_err view_tensor(atoll_store *s, const placed *p, int n) {
  atoll_store_piece *piece = calloc((size_t)n, sizeof *piece);
  char(*dataset)[100] = calloc((size_t)n, sizeof *dataset);
  atoll_err err = piece && dataset ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "view of %s", p->block->name);
  for (int i = 0; i < n && err == ATOLL_OK; i++) {
    snprintf(dataset[i], sizeof *dataset, "/%s", p[i].block->name);
    piece[i].file = p[i].file;
    piece[i].dataset = dataset[i];
    memcpy(piece[i].start, p[i].block->start, sizeof piece[i].start);
    memcpy(piece[i].count, p[i].block->count, sizeof piece[i].count);
  }
  if (err == ATOLL_OK)
    err = atoll_store_virtual(s, dataset[0], p->block->dtype, p->block->ndim, p->block->global, piece, (size_t)n, "1",
                              p->block->name);
  free(piece);
  free(dataset);
  return err;
}

static atoll_err fill_model(atoll_store *s, const manifest *m) {
  int n = 0;
  for (int i = 0; i < m->files; i++)
    n += m->file[i].blocks;
  placed *all = malloc((size_t)(n ? n : 1) * sizeof *all);
  if (!all)
    return atoll_fail(ATOLL_NOMEM, "view of %d blocks", n);
  int k = 0;
  for (int i = 0; i < m->files; i++)
    for (int j = 0; j < m->file[i].blocks; j++)
      all[k++] = (placed){&m->file[i].block[j], m->file[i].name};
  qsort(all, (size_t)n, sizeof *all, compare_placed);
  atoll_err err = ATOLL_OK;
  for (int a = 0, b; a < n && err == ATOLL_OK; a = b) {
    for (b = a + 1; b < n && !strcmp(all[a].block->name, all[b].block->name); b++)
      ;
    err = view_tensor(s, all + a, b - a);
  }
  free(all);
  return err;
}

static atoll_err stamp_model(atoll_store *s, const atoll_ckpt_meta *x) {
  ATOLL_TRY(atoll_store_stamp(s, "atoll-checkpoint", ATOLL_CKPT_VERSION));
  ATOLL_TRY(atoll_store_attr_int(s, "/", "step", x->step));
  ATOLL_TRY(atoll_store_attr_int(s, "/", "attempt", x->attempt));
  ATOLL_TRY(atoll_store_attr_int(s, "/", "tokens", x->tokens));
  ATOLL_TRY(atoll_store_attr_int(s, "/", "skipped", x->skipped));
  ATOLL_TRY(atoll_store_attr_real(s, "/", "last_loss", x->last_loss));
  ATOLL_TRY(atoll_store_attr_real(s, "/", "best_validation", x->best_validation));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "model_digest", x->model_digest));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "plan_digest", x->plan_digest));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "data_digest", x->data_digest));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "topology_identity", x->identity_digest));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "reason", x->reason));
  ATOLL_TRY(atoll_store_write_text(s, "/plan", x->plan ? x->plan : "", "plan of the run, YAML"));
  return atoll_store_write_text(s, "/config", x->config ? x->config : "", "effective options of the run, YAML");
}

static atoll_err write_model(const char *dir, const atoll_ckpt_meta *meta, manifest *m) {
  atoll_store *s = NULL;
  void *bytes = NULL;
  size_t n = 0;
  ATOLL_TRY(atoll_store_open("model.h5", ATOLL_STORE_IMAGE, &s));
  atoll_err err = stamp_model(s, meta);
  if (err == ATOLL_OK)
    err = fill_model(s, m);
  if (err == ATOLL_OK)
    err = atoll_store_image(s, &bytes, &n);
  atoll_err closed = atoll_store_close(&s);
  err = err != ATOLL_OK ? err : closed;
  if (err == ATOLL_OK)
    err = add_written(m, dir, "model.h5", bytes, n);
  free(bytes);
  return err;
}

/* ---- the steps of the protocol --------------------------------------------------------------------------------------
 */

static atoll_err prepare_folder(const char *ckpt_dir, const char *tmp, const char *final) {
  ATOLL_TRY(atoll_file_mkdirs(ckpt_dir));
  if (atoll_file_exists(final))
    return atoll_fail(ATOLL_INTERNAL, "checkpoint %s exists already: a name is never used twice", final);
  ATOLL_TRY(atoll_file_remove_tree(tmp)); /* left by a save of this attempt that failed */
  return atoll_file_mkdirs(tmp);
}

static atoll_err check_space(MPI_Comm comm, int rank, const char *dir, const atoll_tensor *tensors, int n) {
  double mine = 0, all = 0;
  for (int i = 0; i < n; i++)
    mine += (double)atoll_tensor_local_bytes(&tensors[i]);
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, comm);
  int64_t space = 0;
  atoll_err err = ATOLL_OK;
  if (rank == 0) {
    err = atoll_file_space(dir, &space);
    /* A file system that cannot tell is tried; one that tells is believed. */
    if (err == ATOLL_OK && (double)space < all)
      err = atoll_fail(ATOLL_IO, "checkpoint needs %.0f bytes, %s has %lld free", all, dir, (long long)space);
  }
  return atoll_agree(comm, err);
}

/* Every rank's list of files, joined on rank 0. */
static atoll_err gather_files(MPI_Comm comm, int rank, int size, const manifest *mine, manifest *all) {
  char *text = NULL;
  size_t bytes = 0;
  void *data = NULL;
  int64_t *offset = NULL;
  ATOLL_TRY_ALL(comm, manifest_pack_files(mine, &text, &bytes));
  atoll_err err = atoll_gather_bytes(comm, text, (int64_t)bytes, &data, &offset);
  free(text);
  for (int r = 0; r < size && rank == 0 && err == ATOLL_OK; r++)
    err = manifest_unpack_files(all, "file list", (const char *)data + offset[r], (size_t)(offset[r + 1] - offset[r]));
  free(data);
  free(offset);
  return atoll_agree(comm, err);
}

static atoll_err write_rest(const char *tmp, const char *final, const char *ckpt_dir, const atoll_ckpt_meta *meta,
                            manifest *m) {
  char *text = NULL, path[1200];
  size_t bytes = 0;
  ATOLL_TRY(manifest_check_cover(m));
  ATOLL_TRY(add_written(m, tmp, "plan.yaml", meta->plan ? meta->plan : "", meta->plan ? strlen(meta->plan) : 0));
  ATOLL_TRY(
      add_written(m, tmp, "config.yaml", meta->config ? meta->config : "", meta->config ? strlen(meta->config) : 0));
  ATOLL_TRY(write_model(tmp, meta, m));
  atoll_fault_point("ckpt.model.written");
  m->meta = *meta;
  m->meta.plan = m->meta.config = NULL;
  ATOLL_TRY(manifest_to_commit(m, &text, &bytes));
  atoll_fault_point("ckpt.commit.before");
  atoll_err err = atoll_path_join(path, sizeof path, tmp, "COMMIT");
  if (err == ATOLL_OK)
    err = atoll_file_create(path, text, bytes);
  free(text);
  ATOLL_TRY(err);
  ATOLL_TRY(atoll_file_sync_dir(tmp));
  atoll_fault_point("ckpt.commit.written");
  ATOLL_TRY(atoll_file_rename(tmp, final));
  err = atoll_file_sync_dir(ckpt_dir);
  if (err != ATOLL_OK) { /* a save that failed leaves no name, or the next one at this step would meet it */
    char *message = strdup(atoll_err_message());
    (void)atoll_file_rename(final, tmp);
    atoll_err_set_message(message ? message : "");
    free(message);
    return err;
  }
  atoll_fault_point("ckpt.renamed");
  return ATOLL_OK;
}

static void leave_hint(const char *ckpt_dir, const char *name) {
  char path[1200], line[80];
  int n = snprintf(line, sizeof line, "%s\n", name);
  if (atoll_path_join(path, sizeof path, ckpt_dir, "LATEST") != ATOLL_OK ||
      atoll_file_publish(path, line, (size_t)n) != ATOLL_OK)
    atoll_err_clear(); /* a hint for people, never the truth */
}

atoll_err atoll_ckpt_save(MPI_Comm comm, atoll_watch *watch, atoll_mem *mem, const char *ckpt_dir,
                          const atoll_ckpt_params *params, const atoll_ckpt_meta *meta, const atoll_tensor *tensors,
                          int n, char *dir_out, size_t dir_bytes) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  char name[64], final[1100], tmp[1110];
  ckpt_name(meta->step, meta->attempt, name, sizeof name);
  ATOLL_TRY_ALL(comm, atoll_path_join(final, sizeof final, ckpt_dir, name));
  snprintf(tmp, sizeof tmp, "%s.tmp", final);
  atoll_fault_point("ckpt.begin");
  ATOLL_TRY_ALL(comm, rank == 0 ? prepare_folder(ckpt_dir, tmp, final) : ATOLL_OK);
  manifest mine = {0}, all = {0};
  atoll_err err;
  ATOLL_TRY_GOTO(err, fail, check_space(comm, rank, ckpt_dir, tensors, n));
  atoll_watch_begin(watch, "checkpoint shards", 0);
  err = atoll_agree(comm, shard_write(mem, tmp, rank, params->verify, tensors, n, &mine));
  atoll_watch_end(watch);
  if (err != ATOLL_OK)
    goto fail;
  atoll_fault_point("ckpt.shards.agreed");
  ATOLL_TRY_GOTO(err, fail, gather_files(comm, rank, size, &mine, &all));
  atoll_watch_begin(watch, "checkpoint commit", 0);
  err = atoll_agree(comm, rank == 0 ? write_rest(tmp, final, ckpt_dir, meta, &all) : ATOLL_OK);
  atoll_watch_end(watch);
  if (err != ATOLL_OK)
    goto fail;
  if (rank == 0)
    leave_hint(ckpt_dir, name);
  snprintf(dir_out, dir_bytes, "%s", final);
  manifest_free(&mine);
  manifest_free(&all);
  return ATOLL_OK;
fail:
  manifest_free(&mine);
  manifest_free(&all);
  if (rank == 0) { /* give the space back; the message stays that of the failure */
    char *message = strdup(atoll_err_message());
    atoll_file_remove_tree(tmp);
    atoll_err_set_message(message ? message : "");
    free(message);
  }
  MPI_Barrier(comm);
  return err;
}

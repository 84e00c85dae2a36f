/* Checkpoints of a session: parameters and moments as logical tensors, and the state that is not a tensor. */
#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/log.h"

static const struct {
  atoll_stage_what what;
  const char *prefix;
} stored[STAGE_STORED] = {
    {ATOLL_STAGE_PARAM, "param"}, {ATOLL_STAGE_MOMENT1, "moment1"}, {ATOLL_STAGE_MOMENT2, "moment2"}};

/* Which block of its parameter tensor i is. */
static int block_number(const int *index, int i) {
  int n = 0;
  while (i > 0 && index[i - 1] == index[i])
    i--, n++;
  return n;
}

/* This rank's tensors under their logical names. whole: all it holds (to load); otherwise its share of what it owns (to
 * save): first block of each, then second ones, because an image has one block of a tensor at most. */
static atoll_err list_tensors(session *s, int whole, atoll_tensor **out, int *n) {
  *out = NULL;
  *n = 0;
  if (!s->stage)
    return ATOLL_OK;
  for (int pass = 0; pass < STAGE_STORED * ATOLL_LAYER_BLOCKS; pass++) {
    int k = pass % STAGE_STORED, number = pass / STAGE_STORED;
    const atoll_tensor *tensors;
    const int *index;
    int count;
    ATOLL_TRY(atoll_stage_tensors(s->stage, stored[k].what, &tensors, &index, &count));
    atoll_tensor *grown = realloc(*out, (size_t)(*n + count + 1) * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "list of %d tensors", *n + count);
    *out = grown;
    for (int i = 0; i < count; i++) {
      const team_part *share = &s->team.share[index[i]];
      if (block_number(index, i) != number || (!whole && share->parts == 0))
        continue;
      atoll_tensor t = tensors[i];
      const char *name = atoll_model_param_at(s->model, index[i])->name;
      if (snprintf(t.name, sizeof t.name, "%s/%s", stored[k].prefix, name) >= (int)sizeof t.name)
        return atoll_fail(ATOLL_INTERNAL, "tensor name %s is too long", name);
      if (whole)
        grown[(*n)++] = t;
      else
        atoll_ckpt_share(&t, share->part, share->parts, &grown[(*n)++]);
    }
  }
  return ATOLL_OK;
}

/* Tensor ranks compute what they do not divide alike, to the bit. Were it otherwise on one of them, its model would be
 * another one, and the loss would hide it for long. */
static atoll_err check_alike(session *s) {
  atoll_digester *d = NULL;
  const atoll_tensor *tensors;
  const int *index;
  int n;
  if (!s->tensor)
    return ATOLL_OK;
  ATOLL_TRY(atoll_stage_tensors(s->stage, ATOLL_STAGE_PARAM, &tensors, &index, &n));
  ATOLL_TRY(atoll_digester_create(&d));
  for (int i = 0; i < n; i++)
    if (!s->team.share[index[i]].divided)
      atoll_digester_add(d, tensors[i].data, (size_t)atoll_tensor_local_bytes(&tensors[i]));
  atoll_digest mine = atoll_digester_value(d);
  atoll_digester_destroy(&d);
  return atoll_agree_digest(atoll_comm_mpi(s->tensor), "parameters that tensor ranks do not divide", mine);
}

atoll_err session_save(session *s, const char *reason) {
  double began = atoll_clock_now();
  char *plan = NULL;
  size_t plan_bytes = 0;
  atoll_tensor *tensors = NULL;
  int n = 0;
  atoll_perf_begin(s->perf, s->region[REGION_CHECKPOINT]);
  atoll_err err = atoll_plan_to_text(s->plan, &plan, &plan_bytes);
  if (err == ATOLL_OK)
    err = list_tensors(s, 0, &tensors, &n);
  ATOLL_TRY_GOTO(err, done, atoll_agree(s->mpi, err));
  err = check_alike(s);
  if (err == ATOLL_OK && s->dir)
    err = atoll_rundir_keep(s->dir);
  ATOLL_TRY_GOTO(err, done, atoll_agree(s->mpi, err));
  atoll_ckpt_meta meta = {.step = s->step,
                          .attempt = s->attempt,
                          .seed = (uint64_t)s->job->train.seed,
                          .tokens = s->tokens,
                          .skipped = s->skipped,
                          .skipped_in_row = s->skipped_in_row,
                          .last_loss = s->last_loss,
                          .best_validation = s->best_validation,
                          .finite = s->finite,
                          .plan = plan,
                          .config = s->options_yaml};
  snprintf(meta.model_digest, sizeof meta.model_digest, "%s", s->model_digest);
  snprintf(meta.data_digest, sizeof meta.data_digest, "%s", s->data_digest);
  snprintf(meta.plan_digest, sizeof meta.plan_digest, "%s", s->plan_digest);
  snprintf(meta.identity_digest, sizeof meta.identity_digest, "%s", s->identity);
  snprintf(meta.reason, sizeof meta.reason, "%s", reason);
  char dir[sizeof s->saved_dir];
  ATOLL_TRY_GOTO(
      err, done,
      atoll_ckpt_save(s->mpi, s->watch, s->mem, s->ckpt_dir, &s->job->ckpt, &meta, tensors, n, dir, sizeof dir));
  s->save_seconds = atoll_clock_now() - began;
  s->saved_at = atoll_clock_now();
  s->saved_step = s->step;
  snprintf(s->saved_dir, sizeof s->saved_dir, "%s", dir);
  double bytes = 0;
  for (int i = 0; i < n; i++)
    bytes += (double)atoll_tensor_local_bytes(&tensors[i]);
  ATOLL_TRY_GOTO(err, done, atoll_comm_allreduce(s->world, s->out, &bytes, &bytes, 1, ATOLL_F64, ATOLL_SUM, NULL));
  ATOLL_TRY_GOTO(err, done, atoll_queue_sync(s->out));
  if (s->rank == 0) {
    const char *name = strrchr(dir, '/');
    record_checkpoint(s->record, s->step, name ? name + 1 : dir, s->save_seconds, bytes);
    atoll_say("checkpoint %s : %.1f MB in %.2f s", dir, bytes / 1e6, s->save_seconds);
  }
  /* What cannot be removed only costs space. */
  if (atoll_ckpt_retain(s->mpi, s->ckpt_dir, s->job->ckpt.keep, s->attempt) != ATOLL_OK && s->rank == 0)
    atoll_warn("old checkpoints stay: %s", atoll_err_message());
done:
  atoll_perf_end(s->perf, s->region[REGION_CHECKPOINT]);
  free(tensors);
  free(plan);
  return err;
}

atoll_err session_restore(session *s, const char *dir) {
  atoll_tensor *tensors = NULL;
  int n = 0;
  atoll_err err = list_tensors(s, 1, &tensors, &n);
  ATOLL_TRY_GOTO(err, done, atoll_agree(s->mpi, err));
  ATOLL_TRY_GOTO(err, done, atoll_ckpt_load(s->mpi, dir, tensors, n));
  atoll_ckpt_meta meta = {0};
  ATOLL_TRY_GOTO(err, done, atoll_agree(s->mpi, atoll_ckpt_read_meta(dir, &meta)));
  s->step = meta.step;
  s->tokens = meta.tokens;
  s->skipped = meta.skipped;
  s->skipped_in_row = meta.skipped_in_row;
  s->last_loss = meta.last_loss;
  s->best_validation = meta.best_validation;
  s->finite = meta.finite;
  s->saved_step = meta.step;
  ATOLL_TRY_GOTO(err, free_meta, session_refresh(s));
  snprintf(s->saved_dir, sizeof s->saved_dir, "%s", dir);
free_meta:
  atoll_ckpt_meta_free(&meta);
done:
  free(tensors);
  return err;
}

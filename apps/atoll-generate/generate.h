/* What the files of atoll-generate share.
 *   load       MODEL to a model, its weights and its tokenizer
 *   prompts    the texts to continue
 *   generate   the loop: prompts into free slots, then a token for every text
 *   team       several ranks make each text together
 *   recurrent  the same texts by a recurrent program
 *   report     what rank 0 prints */
#ifndef GENERATE_H
#define GENERATE_H

#include <jansson.h>

#include "atoll/cli.h"
#include "atoll/decode.h"
#include "atoll/linear_team.h"
#include "atoll/mem.h"
#include "atoll/recurrent_model.h"
#include "atoll/token.h"
#include "atoll/weights.h"

typedef struct generate_params {
  int64_t tokens, samples, batch, seed, top_k, threads, memory;
  int64_t window, block;
  char device[ATOLL_OPT_STRING_MAX], offload[ATOLL_OPT_STRING_MAX]; /* with block, of the recurrent engine */
  double temperature, top_p;
  int stop, together; /* GENERATE_AUTO ... */
} generate_params;
enum { GENERATE_AUTO, GENERATE_YES, GENERATE_NO };
extern const atoll_opt_table generate_options;

/* Where the weights are. */
typedef struct source {
  char path[4096];        /* of the checkpoint or the file */
  const char *format;     /* "checkpoint", or that of the file */
  atoll_weights *weights; /* NULL: a checkpoint */
  atoll_model *model;
} source;

atoll_err source_open(const char *path, const char *family, atoll_opts *opts, const atoll_model_params *params,
                      source *s);
/* All values into the weights of an engine, in the model's order. */
atoll_err source_load(const source *s, const atoll_tensor *weight);
void source_close(source *s);

/* The tokenizer that is named, or lies beside the model, or fits its vocabulary; *out NULL when `ids` stand for text.
 */
atoll_err tokenizer_of(const atoll_cli *cli, const char *path, const atoll_model *m, atoll_tokenizer **out);

/* A text: its prompt, then what is made. */
typedef struct text {
  int32_t *token; /* prompt, then the new ones */
  double *probability;
  int64_t prompt, n;
  int ended; /* by the end of text */
} text;

typedef struct texts {
  int64_t n; /* all of the run, the same on every rank */
  text *text;
} texts;

/* Collective: rank 0 reads the prompts; every rank gets all, `samples` texts for each. */
atoll_err texts_read(const atoll_cli *cli, const atoll_tokenizer *t, const generate_params *p, texts *out);
void texts_free(texts *t);
/* Every text and its new tokens fit the context, and every id the vocabulary. */
atoll_err texts_check(const texts *t, const generate_params *p, const atoll_model *m, int64_t *longest);

typedef struct counts {
  int64_t prompt_tokens, tokens, bytes_read;
  double prompt_seconds, seconds;
} counts;

/* The texts first, first + step, ... of this rank. */
atoll_err generate_texts(atoll_decode *d, const atoll_model *m, const generate_params *p, int32_t end, int64_t first,
                         int64_t step, texts *t, counts *c);

/* What a team of ranks did, for the story and the report. */
typedef struct team_report {
  int ranks;
  atoll_linear_team_choice of;
} team_report;
/* Whether `ranks` ranks are to make each of n texts together. */
int team_wanted(const generate_params *p, int64_t n, int ranks);
/* Collective: e gets the team's kernels. *team stays NULL, and why is told, where `auto` cannot have one. */
atoll_err team_form(const generate_params *p, const atoll_model *m, atoll_exec *e, atoll_comm **comm,
                    atoll_linear_team **team);
team_report team_tell(const atoll_comm *comm, const atoll_linear_team *team);

typedef struct recurrent {
  const atoll_model *model;
  atoll_rec_model *program;
  struct batch *batch; /* under way */
  int together;        /* bool: all ranks make each text */
} recurrent;

/* m and p are borrowed until destroyed, and so is comm: of all ranks, which make each text together, or NULL. */
atoll_err recurrent_create(const atoll_model *m, const generate_params *p, const atoll_comm *comm, recurrent *r);
void recurrent_destroy(recurrent *r);
/* Exact bytes by category for prompts of `longest` tokens; NOMEM when they are beyond generate.memory. */
atoll_err recurrent_bytes(const recurrent *r, const generate_params *p, int64_t longest,
                          int64_t bytes[ATOLL_MEM_CATEGORIES]);
atoll_err recurrent_texts(const recurrent *r, const generate_params *p, int32_t end, int64_t first, int64_t step,
                          texts *t, counts *c);

typedef struct report {
  const source *source;
  const atoll_tokenizer *tokenizer;
  const generate_params *params;
  const int64_t *bytes;    /* ATOLL_MEM_CATEGORIES */
  double memory_rate;      /* bytes a second that this rank's device moves; 0: not measured */
  int makers;              /* the first ranks, which made the texts in turn */
  const team_report *team; /* NULL: each on its own */
  int json;
} report;

/* Collective: what the ranks made comes together on rank 0, which prints it. */
atoll_err report_texts(const report *r, const texts *t, const counts *mine);

#endif

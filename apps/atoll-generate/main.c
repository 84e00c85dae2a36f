/* atoll-generate: continue texts with a model. Options, MPI, the walk from prompts to texts. */
#include <math.h>
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/device.h"
#include "atoll/log.h"
#include "atoll/plugin.h"
#include "generate.h"

#define FIELD(name) offsetof(generate_params, name)
static const atoll_opt_def defs[] = {
    {"tokens", ATOLL_OPT_INT, FIELD(tokens), "64", "0..16777216", "tokens", "tokens to make for each text at most"},
    {"temperature", ATOLL_OPT_REAL, FIELD(temperature), "0", "0..1000", "",
     "logits are divided by this before drawing; 0 takes the likeliest token"},
    {"top_k", ATOLL_OPT_INT, FIELD(top_k), "0", "0..16777216", "tokens", "draw from the likeliest only; 0 from all"},
    {"top_p", ATOLL_OPT_REAL, FIELD(top_p), "1", "1e-9..1", "",
     "draw from the fewest tokens whose probabilities reach this"},
    {"seed", ATOLL_OPT_INT, FIELD(seed), "1", "0..", "",
     "of the draws; a text depends on this and its place among all"},
    {"samples", ATOLL_OPT_INT, FIELD(samples), "1", "1..65536", "texts", "texts to make from each prompt"},
    {"batch", ATOLL_OPT_INT, FIELD(batch), "8", "1..65536", "texts", "texts that a rank makes at a time"},
    {"stop", ATOLL_OPT_BOOL, FIELD(stop), "true", NULL, "", "a text ends at the vocabulary's end of text"},
    {"together", ATOLL_OPT_ENUM, FIELD(together), "auto", "auto|yes|no", "",
     "ranks of a node share the products of each text instead of dividing the texts; auto: of fewer texts than ranks; "
     "recurrent engine: keys and values of each text are dealt out over the ranks; auto: no"},
    {"threads", ATOLL_OPT_INT, FIELD(threads), "0", "0..4096", "threads", "of a rank; 0 as many as OpenMP says"},
    {"memory", ATOLL_OPT_BYTES, FIELD(memory), "0", "0..", "bytes", "a rank takes no more than this; 0 sets no limit"},
    {"window", ATOLL_OPT_INT, FIELD(window), "0", "0..16777216", "tokens",
     "a token attends to this many, itself included; 0 to all before it"},
    {"block", ATOLL_OPT_INT, FIELD(block), "0", "0..1048576", "tokens",
     "recurrent engine: keys and values are stored in blocks of so many; 0 each for itself"},
    {"device", ATOLL_OPT_STRING, FIELD(device), "cpu", NULL, "",
     "recurrent engine: where values are computed, cpu or cuda"},
    {"offload", ATOLL_OPT_STRING, FIELD(offload), "", NULL, "",
     "recurrent engine: a folder for values that are idle and that generate.memory has no room for"},
    {0},
};
const atoll_opt_table generate_options = {"generate", defs};

static const atoll_cli_flag flags[] = {
    {"prompt", "TEXT", "the text to continue"},
    {"prompt-file", "FILE", "a file that holds it"},
    {"prompts", "FILE", "a file with a prompt in each line; empty lines are left out"},
    {"tokenizer", "SPEC",
     "gpt2:DIR, gpt2:ENCODER.json,VOCAB.bpe, llama2c:FILE, llama3:FILE or bytes; found beside MODEL otherwise"},
    {"ids", NULL, "prompts and texts are token ids instead of text"},
    {"family", "NAME", "of a file of weights whose names do not tell: gpt2 or llama"},
    {"engine", "NAME", "plain, or recurrent: the model as a compiled recurrent program; default plain"},
    {"json", NULL, "print JSON alone: texts, tokens, probabilities, bytes and speeds"},
    {NULL, NULL, NULL}};

static const char notes[] =
    "MODEL is a checkpoint, a run, a folder with model.safetensors, an llm.c checkpoint or a llama2.c model.\n"
    "Without a prompt among the flags, standard input is the prompt. Texts go to standard output, speed to standard\n"
    "error. Under mpirun the texts are divided over the ranks; fewer texts than ranks are made by all of them "
    "together.\n"
    "Texts do not depend on the number of ranks. A text and its prompt fit the model's context, or nothing is begun.\n"
    "Examples:\n"
    "  atoll-generate runs/quick --prompt 'And God said' generate.tokens=60\n"
    "  atoll-generate gpt2/ --prompt-file story.txt generate.temperature=0.8 generate.top_p=0.95 generate.samples=4\n"
    "  mpirun --bind-to none -np 4 atoll-generate stories260K.bin --prompts lines.txt --json\n";

typedef struct work {
  atoll_cli *cli;
  generate_params p;
  atoll_model_params model;
  source source;
  atoll_tokenizer *tokenizer;
  texts texts;
  atoll_exec e;
  atoll_decode *decode;
  atoll_comm *comm;
  atoll_linear_team *team; /* NULL: texts are divided over the ranks */
  int by_program;          /* --engine recurrent */
  recurrent recurrent;
  int64_t longest; /* prompt */
  int rank, size, makers;
} work;

static atoll_err open_device(work *w) {
  atoll_device_params dp;
  atoll_device_params_init(&dp);
  dp.threads = (int)w->p.threads;
  ATOLL_TRY(atoll_kernels_get("auto:cpu", &w->e.kernels));
  ATOLL_TRY(atoll_device_open("cpu", &dp, &w->e.device));
  ATOLL_TRY(atoll_queue_create(w->e.device, "compute", &w->e.compute));
  return atoll_mem_create(w->p.memory, 0, &w->e.mem);
}

static atoll_err choose_engine(work *w) {
  static const char *const names[] = {"plain", "recurrent"};
  const char *name = atoll_cli_value(w->cli, "engine");
  w->by_program = name && !strcmp(name, names[1]);
  if (name && !w->by_program && strcmp(name, names[0]) != 0)
    return atoll_fail(ATOLL_USAGE, "--engine: '%s' is neither plain nor recurrent", name);
  if (!w->by_program && w->p.block)
    return atoll_fail(ATOLL_USAGE, "generate.block needs --engine recurrent");
  if (!w->by_program && (*w->p.offload || strcmp(w->p.device, "cpu") != 0))
    return atoll_fail(ATOLL_USAGE, "generate.device and generate.offload need --engine recurrent");
  if (*w->p.offload && !w->p.memory)
    return atoll_fail(ATOLL_USAGE, "generate.offload needs generate.memory, the budget that it helps to keep");
  return ATOLL_OK;
}

static atoll_err create_engine(work *w, int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  const atoll_decode_params sizes = {w->p.batch, w->longest + w->p.tokens, w->longest, w->p.window};
  if (w->by_program) {
    ATOLL_TRY(recurrent_create(w->source.model, &w->p, w->comm, &w->recurrent));
    return recurrent_bytes(&w->recurrent, &w->p, w->longest, bytes);
  }
  ATOLL_TRY(atoll_decode_create(w->source.model, &sizes, &w->e, &w->decode));
  for (int i = 0; i < ATOLL_MEM_CATEGORIES; i++)
    bytes[i] = atoll_mem_current(w->e.mem, (atoll_mem_category)i);
  return ATOLL_OK;
}

/* Everything that can be refused is, before the weights are read. */
static atoll_err prepare(work *w, int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  const char *path = atoll_cli_operand(w->cli, 0);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, choose_engine(w));
  ATOLL_TRY_ALL(MPI_COMM_WORLD,
                source_open(path, atoll_cli_value(w->cli, "family"), atoll_cli_opts(w->cli), &w->model, &w->source));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, tokenizer_of(w->cli, path, w->source.model, &w->tokenizer));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, texts_read(w->cli, w->tokenizer, &w->p, &w->texts));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, texts_check(&w->texts, &w->p, w->source.model, &w->longest));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, open_device(w));
  w->makers = w->size;
  if (!w->by_program && team_wanted(&w->p, w->texts.n, w->size)) {
    ATOLL_TRY(team_form(&w->p, w->source.model, &w->e, &w->comm, &w->team));
    w->makers = w->team ? 1 : w->size;
  }
  if (w->by_program && w->p.together == GENERATE_YES && w->size > 1) {
    ATOLL_TRY(atoll_comm_create(MPI_COMM_WORLD, "keys", NULL, &w->comm));
    w->makers = 1;
  }
  int64_t mine = (w->texts.n + w->makers - 1) / w->makers;
  w->p.batch = w->p.batch < mine ? w->p.batch : mine;
  ATOLL_TRY_ALL(MPI_COMM_WORLD, create_engine(w, bytes));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, source_load(&w->source, w->by_program ? atoll_rec_model_weights(w->recurrent.program)
                                                                      : atoll_decode_weights(w->decode)));
  return ATOLL_OK;
}

/* The better of three passes over 128 MiB. */
static double measure_memory(const work *w) {
  const atoll_rate_probe *probe = atoll_device_probe(atoll_device_kind(w->e.device));
  double best = 0, seconds, moved;
  for (int i = 0; probe && i < 3; i++)
    if (probe->memory(w->e.device, INT64_C(128) << 20, &seconds, &moved) == ATOLL_OK && seconds > 0)
      best = fmax(best, moved / seconds);
  return best;
}

static atoll_err make_texts(work *w, counts *c) {
  const int32_t end = w->tokenizer ? atoll_tokenizer_end(w->tokenizer) : -1;
  const int64_t first = w->comm ? 0 : w->rank;
  atoll_err err = w->by_program
                      ? recurrent_texts(&w->recurrent, &w->p, end, first, w->makers, &w->texts, c)
                      : generate_texts(w->decode, w->source.model, &w->p, end, first, w->makers, &w->texts, c);
  if (err != ATOLL_OK && w->comm) /* others may wait for this rank's part */
    atoll_abort(NULL, err);
  return err;
}

static atoll_err run(work *w) {
  counts c = {0};
  int64_t bytes[ATOLL_MEM_CATEGORIES];
  ATOLL_TRY(prepare(w, bytes));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, make_texts(w, &c));
  team_report team = {0};
  if (w->team)
    team = team_tell(w->comm, w->team);
  if (w->comm && w->rank != 0) /* did the same */
    c = (counts){0};
  int json = atoll_cli_value(w->cli, "json") != NULL;
  const report r = {&w->source, w->tokenizer,           &w->p, bytes, json ? measure_memory(w) : 0,
                    w->makers,  w->team ? &team : NULL, json};
  return report_texts(&r, &w->texts, &c);
}

static void release(work *w) {
  atoll_decode_destroy(&w->decode);
  atoll_linear_team_destroy(&w->team);
  if (w->comm)
    atoll_comm_destroy(&w->comm);
  recurrent_destroy(&w->recurrent);
  atoll_queue_destroy(&w->e.compute);
  atoll_device_close(&w->e.device);
  atoll_mem_destroy(&w->e.mem, NULL);
  texts_free(&w->texts);
  atoll_tokenizer_close(&w->tokenizer);
  source_close(&w->source);
}

static atoll_err start(work *w, int *argc, char ***argv, atoll_err parsed) {
  ATOLL_TRY(atoll_mpi_init(argc, argv));
  MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &w->size);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, parsed);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_mpi_check_world(MPI_COMM_WORLD));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_plugins_load());
  return run(w);
}

int main(int argc, char **argv) {
  work w = {0};
  int done = 0, initialized = 0;
  atoll_cli_params p;
  atoll_cli_params_init(&p);
  p.program = "atoll-generate";
  p.summary = "Continue texts with a model.";
  p.operands = "MODEL";
  p.min_operands = 1;
  p.max_operands = 1;
  p.flags = flags;
  p.notes = notes;
  p.rank = atoll_launched_rank();
  atoll_log_set_rank(p.rank);
  atoll_log_story_to_stderr(1);
  atoll_err err = atoll_cli_create(&p, &w.cli);
  if (err == ATOLL_OK)
    err = atoll_opts_add(atoll_cli_opts(w.cli), &generate_options, &w.p);
  if (err == ATOLL_OK)
    err = atoll_opts_add(atoll_cli_opts(w.cli), &atoll_model_options, &w.model);
  if (err == ATOLL_OK)
    err = atoll_cli_parse(w.cli, argc, argv, &done);
  if (!done)
    err = start(&w, &argc, &argv, err);
  int status = atoll_cli_finish(err);
  release(&w);
  MPI_Initialized(&initialized);
  if (initialized)
    MPI_Finalize();
  atoll_cli_destroy(&w.cli);
  return status;
}

/* atoll-convert: text to tokens, weights to checkpoints and back. One process; MPI only where a checkpoint is read or
 * written, as one rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/cli.h"
#include "atoll/log.h"
#include "convert.h"

static const atoll_cli_flag flags[] = {
    {"json", NULL, "print JSON alone"},
    {"tokenizer", "SPEC", "tokenize: gpt2:DIR, gpt2:ENCODER.json,VOCAB.bpe, llama2c:FILE or bytes"},
    {"documents", "RULE",
     "tokenize: a mark before each document: none (default), file, blank (ends behind an empty "
     "line) or line"},
    {"held-out", "N", "tokenize: the first N tokens go to --held-out-to"},
    {"held-out-to", "FILE", "tokenize: where they go"},
    {"family", "NAME", "import, export, show: gpt2, llama, bert or roberta, where names do not tell"},
    {"dtype", "TYPE", "export: f32 (default) or bf16"},
    {"seed", "N", "import: train.seed of the job that will start from the checkpoint; default 1"},
    {NULL, NULL, NULL}};

static const char notes[] =
    "Commands:\n"
    "  tokenize --tokenizer SPEC TEXT ... OUT.bin   texts to llm.c's token file, of any size\n"
    "  import FILE|FOLDER CKPT                      weights to a checkpoint of step 0 in folder CKPT\n"
    "  export CKPT|RUN|FILE OUT                     to OUT.safetensors, OUT.bin (llm.c for gpt2, llama2.c for llama)\n"
    "                                               or FOLDER/ (model.safetensors and config.json)\n"
    "  show PATH                                    what a file, checkpoint or tokenizer holds\n"
    "Weights are read from safetensors (one file, or a folder with an index), llm.c checkpoints and llama2.c models.\n"
    "Sizes the file does not tell come from model.*.\n"
    "Examples:\n"
    "  atoll-convert tokenize --tokenizer gpt2:vocabulary corpus.txt corpus.bin\n"
    "  atoll-convert import gpt2/model.safetensors runs/tuned/ckpt\n"
    "  mpirun --bind-to none -np 2 atoll-train job.yaml run.dir=runs/tuned   starts from the imported weights\n"
    "  atoll-convert export runs/tuned tuned/                    for programs that read published checkpoints\n";

static atoll_err run(convert *c) {
  static const char *const names[] = {"tokenize", "import", "export", "show"};
  static atoll_err (*const commands[])(convert *) = {convert_tokenize, convert_import, convert_export, convert_show};
  const char *command = atoll_cli_operand(c->cli, 0);
  size_t n = sizeof names / sizeof *names;
  for (size_t i = 0; i < n; i++)
    if (!strcmp(names[i], command))
      return commands[i](c);
  const char *near = atoll_nearest(command, names, n);
  return atoll_fail(ATOLL_USAGE, "unknown command '%s'%s%s%s; --help lists them", command,
                    near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int main(int argc, char **argv) {
  convert c = {0};
  int done = 0, initialized = 0;
  atoll_cli_params p;
  atoll_cli_params_init(&p);
  p.program = "atoll-convert";
  p.summary = "Turn text into tokens, and weights of other programs into checkpoints and back.";
  p.operands = "COMMAND PATH ...";
  p.min_operands = 1;
  p.max_operands = 4096;
  p.flags = flags;
  p.notes = notes;
  atoll_err err = atoll_cli_create(&p, &c.cli);
  if (err == ATOLL_OK)
    err = atoll_opts_add(atoll_cli_opts(c.cli), &atoll_model_options, &c.model);
  if (err == ATOLL_OK)
    err = atoll_cli_parse(c.cli, argc, argv, &done);
  if (err == ATOLL_OK && !done) {
    c.json = atoll_cli_value(c.cli, "json") != NULL;
    if (c.json)
      atoll_log_story_to_stderr(1);
    err = run(&c);
  }
  int status = atoll_cli_finish(err);
  MPI_Initialized(&initialized);
  if (initialized)
    MPI_Finalize();
  atoll_cli_destroy(&c.cli);
  return status;
}

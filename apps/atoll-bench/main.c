/* atoll-bench: benchmarks. See bench.h for what they have in common. */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/agree.h"
#include "atoll/file.h"
#include "atoll/gemm.h"
#include "atoll/kernel.h"
#include "atoll/log.h"
#include "atoll/plugin.h"
#include "atoll/version.h"
#include "bench.h"

static const bench *const benches[] = {&bench_step,   &bench_io,  &bench_calibrate, &bench_predict,
                                       &bench_layers, &bench_mlp, &bench_rl,        &bench_decode};
enum { BENCHES = sizeof benches / sizeof *benches };

static const atoll_cli_flag flags[] = {
    {"json", "FILE", "Write the figures there; '-' prints JSON alone on standard output."},
    {"job", "JOB.yaml", "step, calibrate, predict: the job whose model is trained."},
    {"out", "FILE.h5", "calibrate: write the layer times there; atoll-plan --profile FILE.h5 plans with them."},
    {"steps", "N", "step: measured steps; default 5."},
    {"batch", "B", "step: samples per micro-batch; default 4. calibrate: the only one; default what a plan may use."},
    {"seq", "T", "step, calibrate: tokens per sample; default 256, calibrate: the job's. layers: only this length."},
    {"alone", NULL, "step: no ceiling beside the steps; for turns with other programs."},
    {"micro-batches", "M", "step: micro-batches per step; default 1, with several ranks 8."},
    {"dtype", "TYPE",
     "step, calibrate: f32 or bf16; default train.dtype of the job. layers: only this; bf16 is not timed otherwise. "
     "mlp: f32 or bf16; default f32."},
    {"mib", "N", "io: MiB of tensors over all ranks; default 512."},
    {"repeats", "N", "io: repetitions of each variant; default 5. mlp, predict: default 9. rl, decode: default 3."},
    {"chain", "N", "mlp: layers of a chain of 1024 columns; default 2, which is the table of shapes."},
    {"rows", "M", "mlp: of chains; default 256 and 1024."},
    {"shape", "MxKxNxP,...", "mlp: only these shapes; more widths make a longer chain."},
    {"gated", NULL, "mlp: layers but the last have two matrices and a SiLU gate, as the MLP of Llama."},
    {"seconds", "N", "mlp: spent on the turns of a shape; default 5, and no fewer than --repeats turns."},
    {"choices", "FILE", "mlp: the chooser remembers there; default: it measures anew."},
    {"merge", "FILES",
     "mlp: measures nothing; the rows of these --json files, separated by commas, with their spread."},
    {"stage", "WIDTHxROWS", "mlp: training of two blocks on two ranks instead: cta, tensor parallel, pipeline, auto."},
    {"trace", "FILE", "mlp: timeline of one pipelined run (256 rows, or --shape's) in Chrome trace format."},
    {"svg", "FILE", "mlp: the same as a picture."},
    {"device", "KIND", "mlp: cpu (default), or cuda: each layer on its owner's GPU, bf16."},
    {"preset", "NAME", "layers: only this model."},
    {"policy", "NAME", "layers: only this memory policy, beside eager; a real step at its largest batch."},
    {"budget", "GIB", "layers: memory to fit a batch into; default 11."},
    {"count", NULL, "layers: bytes and batches only, no time."},
    {"full", NULL, "layers: all models, and BERT-Large's real steps in both types at both lengths."},
    {"peers", "FILES", "rl, decode: rows that scripts of apps/atoll-bench/peers wrote, separated by commas."},
    {"lengths", "LIST", "rl, decode: steps, or tokens; default 125, or 512,2048."},
    {"algorithms", "LIST", "rl: of reinforce, reinforce_n and ppo; default all."},
    {"environments", "LIST", "rl: side by side; default 128,512."},
    {"observation", "N", "rl: numbers of an observation; default 4."},
    {"hidden", "N", "rl: units of a hidden layer; default 64."},
    {"n", "N", "rl: steps of the returns of reinforce_n; default 8."},
    {"iterations", "N", "rl: of one timed run; default 5."},
    {"windows", "LIST", "decode: tokens that a token attends to, 0: all before it; default 0,512."},
    {"batches", "LIST", "decode: texts at a time; default 1,4."},
    {"part", "NAME", "decode: only attention, model (a small Llama) or compile (its compile times)."},
    {"model-lengths", "LIST", "decode: tokens of a small Llama; default 512."},
    {"layers", "LIST", "decode: layers of the small Llama whose compilation is timed; default 4,64."},
    {"threads", "N", "decode: of each row; default 1."},
    {"block", "N", "decode: keys and values of a block in memory; default 128."},
    {"memory", "BYTES", "decode: a rank's values may take; more is refused; default 0, no limit."},
    {"dir", "FOLDER", "io: the file system to measure; default TMPDIR."},
    {NULL, NULL, NULL},
};

atoll_err bench_count(const atoll_cli *cli, const char *flag, int64_t otherwise, int64_t lo, int64_t hi, int64_t *out) {
  const char *text = atoll_cli_value(cli, flag);
  *out = otherwise;
  if (text && (atoll_parse_int(text, out) != 0 || *out < lo || *out > hi))
    return atoll_fail(ATOLL_USAGE, "--%s: '%s' is not a whole number in %lld..%lld", flag, text, (long long)lo,
                      (long long)hi);
  return ATOLL_OK;
}

atoll_err bench_scratch(MPI_Comm comm, const char *parent, char *dir, size_t n) {
  int rank;
  atoll_err err = ATOLL_OK;
  MPI_Comm_rank(comm, &rank);
  const char *tmp = parent ? parent : getenv("TMPDIR") && *getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  snprintf(dir, n, "%s/atoll-bench-XXXXXX", tmp);
  if (rank == 0 && !mkdtemp(dir))
    err = atoll_fail(ATOLL_IO, "cannot make a folder in %s", tmp);
  MPI_Bcast(dir, (int)n, MPI_CHAR, 0, comm);
  return atoll_agree(comm, err);
}

/* Sites pin OpenBLAS to a kernel that is safe everywhere; a benchmark wants the fastest. The library reads the
 * variables when it is loaded, so the program starts itself again without them. */
static int clear_pins(char **argv) {
  static const char *const pins[] = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"};
  int found = 0;
  for (size_t i = 0; i < sizeof pins / sizeof *pins; i++)
    if (getenv(pins[i])) {
      unsetenv(pins[i]);
      found = 1;
    }
  if (found) {
    setenv("ATOLL_TEST_PINS_CLEARED", "1", 1);
    execv("/proc/self/exe", argv);
  }
  return getenv("ATOLL_TEST_PINS_CLEARED") != NULL;
}

/* mlp needs ranks: started alone, the program starts itself again under mpirun. */
static void start_ranks(int argc, char **argv) {
  static const char *const launched[] = {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
  static const char *const before[] = {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"};
  enum { BEFORE = sizeof before / sizeof *before };
  int wanted = 0, at = 0;
  for (int i = 1; i < argc; i++) {
    wanted |= !strcmp(argv[i], bench_mlp.name);
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "--version"))
      return;
  }
  for (size_t i = 0; i < sizeof launched / sizeof *launched; i++)
    wanted = wanted && !getenv(launched[i]);
  static char self[4096];
  char **args = wanted ? calloc((size_t)argc + BEFORE + 1, sizeof *args) : NULL;
  if (!args || readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
    return;
  for (int i = 0; i < BEFORE; i++)
    args[at++] = (char *)(uintptr_t)before[i];
  args[at++] = self;
  for (int i = 1; i < argc; i++)
    args[at++] = argv[i];
  if (geteuid() == 0) { /* who runs the program as root, in a container, means it */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
  execvp(args[0], args);
  free(args); /* no mpirun: one rank then, whose figures say so */
}

static atoll_err write_figures(const atoll_cli *cli, const json_t *out, int last) {
  const char *path = atoll_cli_value(cli, "json");
  if (!path || (!last && !strcmp(path, "-")))
    return ATOLL_OK;
  char *text = json_dumps(out, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  if (!text)
    return atoll_fail(ATOLL_NOMEM, "JSON of the figures");
  atoll_err err = ATOLL_OK;
  if (!strcmp(path, "-"))
    puts(text);
  else
    err = atoll_file_replace(path, text, strlen(text));
  free(text);
  return err;
}

atoll_err bench_write(const atoll_cli *cli, const json_t *out) { return write_figures(cli, out, 0); }

static atoll_err set_dtype(const atoll_cli *cli, atoll_opts *opts) {
  char assignment[64];
  const char *dtype = atoll_cli_value(cli, "dtype");
  if (!dtype)
    return ATOLL_OK;
  snprintf(assignment, sizeof assignment, "train.dtype=%s", dtype);
  return atoll_opts_set(opts, assignment);
}

/* Before anything is measured; said in the figures. */
static atoll_err choose_products(json_t *out) {
  const atoll_kernels *kernels;
  atoll_gemm_choice c;
  const char *name;
  ATOLL_TRY(atoll_gemm_choose(MPI_COMM_WORLD, omp_get_max_threads(), NULL, &c));
  ATOLL_TRY(atoll_kernels_get("auto:cpu", &kernels));
  if (!out)
    return ATOLL_OK;
  json_object_set_new(out, "kernels", json_string(atoll_kernels_describe(kernels)));
  json_t *gflops = json_object();
  for (int i = 0; i < atoll_gemm_ways() && atoll_gemm_library(i, &name); i++)
    json_object_set_new(gflops, name, c.gflops[i] > 0 ? json_real(c.gflops[i]) : json_null());
  (void)atoll_gemm_library(c.way, &name);
  json_object_set_new(out, "products",
                      json_pack("{s:s,s:b,s:o}", "by", name, "remembered", c.remembered, "gflops", gflops));
  return ATOLL_OK;
}

static int reads(const bench *b, const char *flag) {
  const size_t n = strlen(flag);
  if (!strcmp(flag, "json"))
    return 1;
  for (const char *at = b->flags; *at; at += strcspn(at, " "), at += *at == ' ')
    if (strcspn(at, " ") == n && !strncmp(at, flag, n))
      return 1;
  return 0;
}

/* "a, b": the names of benchmarks, of those that read a flag when it is not NULL. */
static void list_benches(const char *flag, char *text, size_t n) {
  size_t at = 0;
  text[0] = '\0';
  for (int i = 0; i < BENCHES; i++)
    if ((!flag || reads(benches[i], flag)) && at < n)
      at += (size_t)snprintf(text + at, n - at, "%s%s", at ? ", " : "", benches[i]->name);
}

static atoll_err check_flags(const bench *b, const atoll_cli *cli) {
  char names[256];
  for (const atoll_cli_flag *f = flags; f->name; f++) {
    if (!atoll_cli_value(cli, f->name) || reads(b, f->name))
      continue;
    list_benches(f->name, names, sizeof names);
    return atoll_fail(ATOLL_USAGE, "%s does not read --%s, which is for: %s", b->name, f->name, names);
  }
  return ATOLL_OK;
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, int cleared) {
  const char *name = atoll_cli_operand(cli, 0), *names[BENCHES];
  const bench *b = NULL;
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < BENCHES; i++) {
    names[i] = benches[i]->name;
    b = !strcmp(names[i], name) ? benches[i] : b;
  }
  if (!b) {
    const char *near = atoll_nearest(name, names, BENCHES);
    char all[256];
    list_benches(NULL, all, sizeof all);
    return atoll_fail(ATOLL_USAGE, "unknown benchmark '%s'%s%s%s; there are: %s", name, near ? ", did you mean '" : "",
                      near ? near : "", near ? "'?" : "", all);
  }
  ATOLL_TRY(check_flags(b, cli));
  ATOLL_TRY(atoll_mpi_check_world(MPI_COMM_WORLD));
  ATOLL_TRY(atoll_plugins_load());
  json_t *out = rank == 0 ? json_object() : NULL;
  if (cleared)
    atoll_say("OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE were set and are cleared for this benchmark");
  if (out) {
    json_object_set_new(out, "benchmark", json_string(b->name));
    json_object_set_new(out, "program", json_string("atoll-bench"));
    json_object_set_new(out, "version", json_string(atoll_version()));
    json_object_set_new(out, "openblas_pins_cleared", json_boolean(cleared));
  }
  ATOLL_TRY(choose_products(out));
  atoll_err err = b->run(cli, job, atoll_cli_opts((atoll_cli *)(uintptr_t)cli), out);
  if (err == ATOLL_OK && rank == 0)
    err = write_figures(cli, out, 1);
  json_decref(out);
  return atoll_agree(MPI_COMM_WORLD, err);
}

int main(int argc, char **argv) {
  int cleared = clear_pins(argv), done = 0;
  start_ranks(argc, argv);
  char notes[2048];
  size_t at = (size_t)snprintf(notes, sizeof notes, "Benchmarks:\n");
  for (int i = 0; i < BENCHES; i++)
    at += (size_t)snprintf(notes + at, sizeof notes - at, "  %-9s %s\n", benches[i]->name, benches[i]->summary);
  snprintf(notes + at, sizeof notes - at,
           "Examples:\n"
           "  atoll-bench step --job inputs/jobs/gpt2-124m.yaml          the job's shapes; its data is not read\n"
           "  atoll-bench mlp --shape 256x1024x1024x1024 --json mlp.json  starts its own two ranks\n"
           "  atoll-bench layers --preset bert-large --count\n"
           "  atoll-bench decode --part attention --lengths 512\n"
           "  atoll-bench rl --algorithms ppo --environments 128\n"
           "  mpirun --bind-to none -n 2 atoll-bench calibrate --job JOB.yaml --out times.h5");
  const char *rank_text = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("SLURM_PROCID");
  atoll_cli_params p;
  atoll_cli *cli = NULL;
  atoll_job job;
  atoll_cli_params_init(&p);
  p.program = "atoll-bench";
  p.summary = "Measure speed and memory against the machine's own ceiling.";
  p.operands = "BENCHMARK";
  p.min_operands = p.max_operands = 1;
  p.job_flag = "job";
  p.flags = flags;
  p.notes = notes;
  p.rank = rank_text ? atoi(rank_text) : 0;
  atoll_err err = atoll_cli_create(&p, &cli);
  if (err == ATOLL_OK)
    err = atoll_job_init(&job, atoll_cli_opts(cli));
  if (err == ATOLL_OK)
    err = atoll_cli_parse(cli, argc, argv, &done);
  if (err == ATOLL_OK && !done)
    err = set_dtype(cli, atoll_cli_opts(cli));
  if (done || err != ATOLL_OK) {
    int status = atoll_cli_finish(err);
    atoll_cli_destroy(&cli);
    return status;
  }
  err = atoll_mpi_init(&argc, &argv);
  const char *json = atoll_cli_value(cli, "json");
  atoll_log_story_to_stderr(json && !strcmp(json, "-"));
  if (err == ATOLL_OK)
    err = run(cli, &job, cleared);
  int status = atoll_cli_finish(err);
  atoll_cli_destroy(&cli);
  MPI_Finalize();
  return status;
}

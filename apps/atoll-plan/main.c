/* atoll-plan: how a job would be cut over a cluster, and why. Needs no devices: a job file and a description of the
 * cluster are enough. Under mpirun or srun the ranks agree on the plan as atoll-train does. Rank 0 writes all output,
 * and nothing is written unless there is a whole plan. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/cli.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/plan_import.h"
#include "atoll/plugin.h"
#include "atoll/store.h"
#include "atoll/train.h"

#include "case.h"
#include "change.h"
#include "timeline.h"
#include "programs.h"

static const atoll_cli_flag flags[] = {
    {"explain", NULL, "also print bytes and time by cause, traffic, and what was rejected and why"},
    {"islands", NULL, "also print the islands"},
    {"yaml", NULL, "print the plan as YAML and nothing else"},
    {"save", "FILE", "write the plan as YAML; plan.load=FILE uses it again"},
    {"hdf5", "FILE", "write the plan, topology and islands to an HDF5 file"},
    {"judge", "FILE", "write the plan as JSON, the form that cases have (atoll/case.h)"},
    {"trace", "FILE", "write the predicted step as Chrome trace JSON, for Perfetto"},
    {"gantt", "FILE", "write the predicted step as a chart (SVG): ranks down, time to the right"},
    {"whole", NULL, "plan for every device described, however many ranks were launched: these share the search"},
    {"without", "TEXT", "plan without these devices (words: NODE, ISLAND or ISLAND:COUNT) and show what changes"},
    {"with", "TEXT", "take these devices as new (words as above) and show what they change"},
    {"profile", "FILE",
     "layer times of a run (its run.h5) or, as .json, of another program, instead of FLOPs over rates"},
    {"accuracy", "DIR", "hold costs against the measured runs in DIR and print the errors; needs --profiles"},
    {"profiles", "DIR", "data of cases and of measured runs: profiles/MODEL.json, network.json, transfer_price.json"},
    {"case", "FILE",
     "plan a case of the Sailor simulator's form (atoll/case.h) instead of a job; needs --profiles, --judge writes the "
     "plan"},
    {"lose", "TEXT", "case: plan without \"GPU ZONE COUNT\" (more after commas) and show what changes"},
    {"add", "TEXT", "case: plan with \"GPU ZONE COUNT\" more (more after commas) and show what changes"},
    {"facts", "FILE", "hold plans that others recorded against our model, and our tuner's plan against them"},
    {"json", "FILE", "accuracy: write the figures as JSON"},
    {NULL, NULL, NULL}};

typedef struct work {
  atoll_cli *cli;
  atoll_job job;
  atoll_comm *comm; /* NULL without a launcher */
  int rank;
  atoll_topo *topo;
  atoll_islands *islands, *fewer; /* fewer: without some devices */
  atoll_model *model;
  atoll_profile *profile;
  atoll_plan *plan;
  atoll_plan_report *report;
} work;

/* A run's file keeps its profile in /profile; JSON is another program's. */
static atoll_err load_profile(work *w, const char *path) {
  atoll_store *s = NULL;
  size_t n = strlen(path);
  if (n > 5 && !strcmp(path + n - 5, ".json")) {
    ATOLL_TRY(atoll_profile_create(&w->profile));
    return atoll_plan_import(path, w->model, w->islands, w->job.train.seq, w->profile);
  }
  ATOLL_TRY(atoll_store_open(path, ATOLL_STORE_READ, &s));
  atoll_err err = atoll_store_has(s, "/profile/rows")
                      ? atoll_profile_from_store(s, "/profile", &w->profile)
                      : atoll_fail(ATOLL_NOINPUT,
                                   "%s has no /profile: expected the run.h5 of a run that measured its layers", path);
  atoll_err closed = atoll_store_close(&s);
  return err != ATOLL_OK ? err : closed;
}

/* A profile of another model or other devices would silently leave everything to the analytic model. */
static void warn_unused_profile(const work *w) {
  if (w->profile && w->plan && !strcmp(w->plan->cost_source, "analytic"))
    atoll_warn("the profile says nothing about this model on these devices at %lld tokens: costs are analytic",
               (long long)w->job.train.seq);
}

static atoll_err load_plan(const work *w, atoll_plan **out) {
  char *text = NULL;
  size_t n = 0;
  atoll_plan *plan = NULL;
  ATOLL_TRY(atoll_file_read(w->job.plan.load, &text, &n));
  atoll_err err = atoll_plan_from_text(w->job.plan.load, text, n, &plan);
  free(text);
  int world = 0;
  for (int i = 0; i < w->islands->devices; i++)
    world += w->islands->island_of[i] >= 0;
  if (err == ATOLL_OK)
    err = atoll_plan_fits(plan, w->model, w->islands, world);
  if (err == ATOLL_OK)
    err = atoll_plan_check(plan, w->model);
  if (err != ATOLL_OK)
    atoll_plan_destroy(&plan);
  else
    *out = plan;
  return err;
}

static atoll_err plan_one(work *w, const atoll_plan_problem *problem, atoll_plan **plan, atoll_plan_report **report) {
  if (w->comm)
    return atoll_cli_value(w->cli, "whole") ? atoll_plan_search(w->comm, problem, &w->job.plan, plan, report)
                                            : atoll_plan_agree(w->comm, problem, &w->job.plan, plan, report);
  if (w->job.plan.load[0])
    return load_plan(w, plan);
  return atoll_plan_make(problem, &w->job.plan, plan, report);
}

/* With --without or --with two plans, and the difference on top. */
static atoll_err plan_job(work *w, atoll_plan_problem *problem) {
  const char *without = atoll_cli_value(w->cli, "without"), *with = atoll_cli_value(w->cli, "with");
  if (!without && !with)
    return plan_one(w, problem, &w->plan, &w->report);
  if (w->job.plan.load[0] || (without && with))
    return atoll_fail(ATOLL_USAGE, without && with ? "--without and --with exclude each other"
                                                   : "--without and --with plan anew: they exclude plan.load");
  atoll_plan *other = NULL;
  atoll_plan_report *report = NULL;
  atoll_plan_problem fewer = *problem;
  ATOLL_TRY(change_islands(w->topo, w->islands, without ? without : with, &w->fewer));
  fewer.islands = w->fewer;
  atoll_err err = plan_one(w, problem, without ? &other : &w->plan, without ? &report : &w->report);
  if (err == ATOLL_OK)
    err = plan_one(w, &fewer, without ? &w->plan : &other, without ? &w->report : &report);
  if (err == ATOLL_OK && w->rank == 0 && !atoll_cli_value(w->cli, "yaml"))
    change_print(other, report, w->plan, w->report, w->islands, stdout);
  if (without) { /* everything below is about what is left */
    atoll_islands *all = w->islands;
    w->islands = w->fewer;
    w->fewer = all;
    problem->islands = w->islands;
  }
  atoll_plan_destroy(&other);
  atoll_plan_report_destroy(&report);
  return err;
}

static atoll_err write_hdf5(const work *w, const char *path) {
  atoll_store *s = NULL;
  ATOLL_TRY(atoll_store_open(path, ATOLL_STORE_IMAGE, &s));
  atoll_err err;
  ATOLL_TRY_GOTO(err, close_store, atoll_store_stamp(s, "atoll-plan", 1));
  ATOLL_TRY_GOTO(err, close_store, atoll_plan_to_store(w->plan, s, "/plan"));
  ATOLL_TRY_GOTO(err, close_store, atoll_topo_to_store(w->topo, s, "/topology"));
  err = atoll_islands_to_store(w->islands, s, "/islands");
close_store:
  return atoll_store_publish(&s, err, path);
}

static atoll_err write_outputs(const work *w, const atoll_plan_problem *problem) {
  const atoll_cli *cli = w->cli;
  const char *save = atoll_cli_value(cli, "save"), *hdf5 = atoll_cli_value(cli, "hdf5"),
             *judge = atoll_cli_value(cli, "judge");
  char *judged = NULL, *text = NULL, hex[33];
  size_t n_judged = 0, n = 0;
  timeline line = {.trace_path = atoll_cli_value(cli, "trace"), .gantt_path = atoll_cli_value(cli, "gantt")};
  /* Everything that can be refused comes before anything is written. */
  if (judge) {
    const atoll_model_params *m = atoll_model_config(w->model);
    ATOLL_TRY(atoll_plan_to_judge(w->plan, m->preset[0] ? m->preset : atoll_model_family_name(w->model), w->topo,
                                  &judged, &n_judged));
  }
  char title[160];
  snprintf(title, sizeof title, "%s on %d devices, plan %.8s", atoll_model_family_name(w->model), w->plan->world,
           atoll_digest_text(atoll_plan_digest(w->plan), hex));
  atoll_err err = timeline_make(&line, w->plan, problem, title);
  if (err == ATOLL_OK)
    err = atoll_plan_to_text(w->plan, &text, &n);
  if (err == ATOLL_OK && atoll_cli_value(cli, "yaml")) {
    fwrite(text, 1, n, stdout);
  } else if (err == ATOLL_OK) {
    if (atoll_cli_value(cli, "islands"))
      atoll_islands_print(w->islands, w->topo, stdout);
    printf("%s, %lld parameters, %lld samples of %lld tokens per step, on %d device%s in %d island%s\n",
           atoll_model_family_name(w->model), (long long)atoll_model_elements(w->model),
           (long long)w->job.train.global_batch, (long long)w->job.train.seq, w->plan->world,
           w->plan->world == 1 ? "" : "s", w->islands->count, w->islands->count == 1 ? "" : "s");
    printf("plan %s%s\n", atoll_digest_text(atoll_plan_digest(w->plan), hex), w->job.plan.load[0] ? " (loaded)" : "");
    if (atoll_cli_value(cli, "explain"))
      atoll_plan_explain(w->plan, problem, w->report, stdout);
    else
      atoll_plan_print(w->plan, w->islands, stdout);
  }
  if (err == ATOLL_OK && save)
    err = atoll_file_replace(save, text, n);
  if (err == ATOLL_OK && hdf5)
    err = write_hdf5(w, hdf5);
  if (err == ATOLL_OK && judge)
    err = atoll_file_replace(judge, judged, n_judged);
  if (err == ATOLL_OK)
    err = timeline_write(&line);
  timeline_destroy(&line);
  free(text);
  free(judged);
  return err;
}

/* When nothing fits, what came nearest is what somebody wants to know. */
static void print_rejected(const work *w) {
  for (int i = 0; w->report && i < w->report->count; i++)
    fprintf(stderr, "  does not fit: %s\n", w->report->rejected[i].text);
}

static atoll_err body(work *w) {
  const char *profile = atoll_cli_value(w->cli, "profile");
  ATOLL_TRY(atoll_job_check(&w->job));
  int whole = w->comm && atoll_cli_value(w->cli, "whole");
  ATOLL_TRY(whole ? atoll_agree(atoll_comm_mpi(w->comm), atoll_topo_discover(NULL, &w->job.topo, &w->topo))
                  : atoll_topo_discover(w->comm, &w->job.topo, &w->topo));
  ATOLL_TRY(w->comm ? atoll_islands_agree(w->comm, w->topo, &w->job.island, &w->islands)
                    : atoll_islands_group(w->topo, &w->job.island, &w->islands));
  ATOLL_TRY(atoll_model_create(&w->job.model, &w->model));
  if (profile) {
    atoll_err err = load_profile(w, profile);
    ATOLL_TRY(w->comm ? atoll_agree(atoll_comm_mpi(w->comm), err) : err);
  }
  atoll_plan_problem problem = {.model = w->model,
                                .topo = w->topo,
                                .islands = w->islands,
                                .profile = w->profile,
                                .seq = w->job.train.seq,
                                .global_batch = w->job.train.global_batch,
                                .extra_bytes = atoll_train_extra_bytes};
  if (w->rank == 0 && w->job.plan.pack_weights == ATOLL_PACK_YES && !w->job.plan.load[0])
    atoll_warn(
        "plan.pack_weights=yes: products are known where the job runs; a plan made here keeps no packed weights");
  atoll_err err = plan_job(w, &problem);
  if (err == ATOLL_INFEASIBLE && w->rank == 0 && atoll_cli_value(w->cli, "explain"))
    print_rejected(w);
  ATOLL_TRY(err);
  if (w->rank == 0)
    warn_unused_profile(w);
  err = w->rank == 0 ? write_outputs(w, &problem) : ATOLL_OK;
  return w->comm ? atoll_agree(atoll_comm_mpi(w->comm), err) : err;
}

/* Started by mpirun or srun: then the ranks plan together. */
static int launched(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALNRANKS"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i]))
      return 1;
  return 0;
}

static atoll_err start_mpi(work *w, int *argc, char ***argv, atoll_err parsed) {
  ATOLL_TRY(atoll_mpi_init(argc, argv));
  MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
  atoll_log_set_rank(w->rank);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, parsed);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_mpi_check_world(MPI_COMM_WORLD));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_plugins_load());
  return atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &w->comm);
}

int main(int argc, char **argv) {
  work w = {0};
  int done = 0, initialized = 0;
  const atoll_cli_library libraries[] = {{"HDF5", NULL, atoll_store_library()}, {NULL, NULL, NULL}};
  atoll_cli_params p;
  atoll_cli_params_init(&p);
  p.program = "atoll-plan";
  p.summary = "Plan a job over a cluster: which ranks run which layers, with what memory and time, and why.";
  p.operands = "[JOB.yaml]";
  p.max_operands = 1;
  p.job_operand = 1;
  p.flags = flags;
  p.libraries = libraries;
  p.rank = atoll_launched_rank();
  p.notes = "The cluster is this machine, or topo.path (XML files) or topo.synthetic; no device is used.\n"
            "Examples:\n"
            "  atoll-plan JOB.yaml --explain topo.path=inputs/clusters/a100-v100\n"
            "  atoll-plan JOB.yaml --save plan.yaml topo.synthetic='4x(pack:1 core:8 memory=64GiB)'\n"
            "  atoll-plan JOB.yaml --profile runs/quick/run.h5 --explain\n"
            "  atoll-plan JOB.yaml --without 'v0 a:2' topo.path=inputs/clusters/a100-v100\n"
            "  mpirun -n 4 atoll-plan JOB.yaml\n"
            "  mpirun -n 4 atoll-plan JOB.yaml --whole topo.path=CLUSTER";
  signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write(), not a death */
  w.rank = p.rank;
  atoll_log_set_rank(w.rank);
  atoll_err err = atoll_cli_create(&p, &w.cli);
  if (err == ATOLL_OK)
    err = atoll_job_init(&w.job, atoll_cli_opts(w.cli));
  if (err == ATOLL_OK)
    err = atoll_cli_parse(w.cli, argc, argv, &done);
  if (err == ATOLL_OK && !done && atoll_cli_job(w.cli))
    snprintf(w.job.file, sizeof w.job.file, "%s", atoll_cli_job(w.cli));
  if (err == ATOLL_OK && !done &&
      (atoll_cli_value(w.cli, "case") || atoll_cli_value(w.cli, "lose") || atoll_cli_value(w.cli, "add"))) {
    err = plan_case(w.cli, w.rank);
    done = 1;
  }
  if (err == ATOLL_OK && !done && atoll_cli_value(w.cli, "facts")) {
    err = w.rank == 0 ? plan_facts(w.cli) : ATOLL_OK;
    done = 1;
  }
  if (err == ATOLL_OK && !done && atoll_cli_value(w.cli, "accuracy")) {
    err = w.rank == 0 ? plan_accuracy(w.cli) : ATOLL_OK;
    done = 1;
  }
  if (!done && launched())
    err = start_mpi(&w, &argc, &argv, err);
  if (err == ATOLL_OK && !done)
    err = body(&w);
  atoll_plan_report_destroy(&w.report);
  atoll_plan_destroy(&w.plan);
  atoll_profile_destroy(&w.profile);
  atoll_model_destroy(&w.model);
  atoll_islands_destroy(&w.islands);
  atoll_islands_destroy(&w.fewer);
  atoll_topo_destroy(&w.topo);
  if (w.comm)
    atoll_comm_destroy(&w.comm);
  int status = atoll_cli_finish(err);
  MPI_Initialized(&initialized);
  if (initialized)
    MPI_Finalize();
  atoll_cli_destroy(&w.cli);
  return status;
}

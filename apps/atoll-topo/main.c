/* atoll-topo: what is here, and how it groups.
 *
 * Alone it describes the machine or a recorded cluster. Under mpirun or srun every rank gets its device, and --probe
 * measures them and their links together. Rank 0 writes all output. */
#include <hwloc.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/cli.h"
#include "atoll/comm.h"
#include "atoll/device.h"
#include "atoll/file.h"
#include "atoll/island.h"
#include "atoll/kernel.h"
#include "atoll/log.h"
#include "atoll/plugin.h"
#include "atoll/store.h"
#include "atoll/topo.h"
#include "atoll/yaml.h"

static const atoll_cli_flag flags[] = {{"yaml", NULL, "print the topology as YAML instead of text"},
                                       {"hdf5", "FILE", "write topology and islands to an HDF5 file"},
                                       {"svg", "FILE", "draw the topology"},
                                       {"islands", NULL, "print the islands"},
                                       {"explain", NULL, "print why devices are together or apart"},
                                       {"probe", NULL, "measure rates and links (topo.probe_seconds)"},
                                       {"diff", "OTHER", "compare SOURCE with OTHER; exit status 76 when they differ"},
                                       {NULL, NULL, NULL}};

typedef struct work {
  atoll_cli *cli;
  atoll_topo_params topo;
  atoll_island_params island;
  atoll_comm *comm;
  int rank, size, differs;
} work;

static int ends(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

/* What atoll-topo --yaml or --hdf5 wrote, or a run's file; or anything topo.path takes. */
static atoll_err open_source(const atoll_topo_params *params, const char *path, atoll_topo **out) {
  if (ends(path, ".h5")) {
    atoll_store *s = NULL;
    ATOLL_TRY(atoll_store_open(path, ATOLL_STORE_READ, &s));
    atoll_err err = atoll_topo_from_store(s, "/topology", out);
    atoll_err closed = atoll_store_close(&s);
    return err != ATOLL_OK ? err : closed;
  }
  if (ends(path, ".yaml") && !atoll_file_is_dir(path)) {
    atoll_yaml *root = NULL;
    ATOLL_TRY(atoll_yaml_load(path, &root));
    atoll_err err = ATOLL_OK;
    int recorded = atoll_yaml_is_map(root) && atoll_yaml_get(root, "identity") != NULL;
    if (recorded)
      err = atoll_topo_from_yaml(root, out);
    atoll_yaml_destroy(&root);
    if (err != ATOLL_OK || recorded)
      return err;
  }
  atoll_topo_params p = *params;
  p.backend = 2;
  p.synthetic[0] = 0;
  if (strlen(path) >= sizeof p.path)
    return atoll_fail(ATOLL_USAGE, "the path '%.60s...' has %zu characters, at most %zu are read", path, strlen(path),
                      sizeof p.path - 1);
  strcpy(p.path, path);
  return atoll_topo_discover(NULL, &p, out);
}

static atoll_err discover(work *w, atoll_topo **topo) {
  const char *source = atoll_cli_operand(w->cli, 0);
  int recorded = source && (ends(source, ".h5") || (ends(source, ".yaml") && !ends(source, "cluster.yaml")));
  if (source && (w->topo.path[0] || w->topo.synthetic[0]))
    return atoll_fail(ATOLL_USAGE, "'%s' is given, and topo.path or topo.synthetic as well; expected one of them",
                      source);
  if (w->comm && recorded)
    return atoll_fail(ATOLL_USAGE, "%s is a recorded topology: read it without a launcher", source);
  if (!w->comm && source)
    return open_source(&w->topo, source, topo);
  if (source) {
    if (strlen(source) >= sizeof w->topo.path)
      return atoll_fail(ATOLL_USAGE, "the path '%.60s...' has %zu characters, at most %zu are read", source,
                        strlen(source), sizeof w->topo.path - 1);
    strcpy(w->topo.path, source);
  }
  return atoll_topo_discover(w->comm, &w->topo, topo);
}

/* Open the device this rank was given, bind to it, measure. */
static atoll_err probe(work *w, atoll_topo *topo) {
  int di = atoll_topo_device_of(topo, w->rank), threads = 1, bound = 0;
  const atoll_kernels *kernels = NULL;
  atoll_device *device = NULL;
  atoll_err err = ATOLL_OK;
  if (di >= 0) {
    const atoll_topo_device *d = &topo->device[di];
    atoll_topo_bind(topo, di, &threads, &bound);
    atoll_device_params p;
    atoll_device_params_init(&p);
    p.threads = threads;
    p.pci = d->kind == ATOLL_TOPO_GPU ? d->pci : NULL;
    err = atoll_device_open(d->kind == ATOLL_TOPO_GPU ? "auto" : "cpu", &p, &device);
    if (err == ATOLL_OK && d->kind == ATOLL_TOPO_CPU)
      err = atoll_kernels_get("auto:cpu", &kernels);
  }
  err = atoll_agree(atoll_comm_mpi(w->comm), err);
  if (err == ATOLL_OK)
    err = atoll_topo_probe(w->comm, &w->topo, device, topo);
  atoll_device_close(&device);
  return err;
}

static atoll_err write_svg(const char *path, const atoll_topo *topo) {
  char *svg = NULL;
  size_t bytes = 0;
  ATOLL_TRY(atoll_topo_draw(topo, &svg, &bytes));
  atoll_err err = atoll_file_replace(path, svg, bytes);
  free(svg);
  return err;
}

static atoll_err write_hdf5(const char *path, const atoll_topo *topo, const atoll_islands *islands) {
  atoll_store *s = NULL;
  ATOLL_TRY(atoll_store_open(path, ATOLL_STORE_IMAGE, &s));
  atoll_err err = atoll_store_stamp(s, "atoll-topology", 1);
  if (err == ATOLL_OK)
    err = atoll_topo_to_store(topo, s, "/topology");
  if (err == ATOLL_OK)
    err = atoll_islands_to_store(islands, s, "/islands");
  return atoll_store_publish(&s, err, path);
}

static atoll_err print_yaml(const atoll_topo *topo) {
  atoll_yaml_out *o = NULL;
  const char *text = NULL;
  ATOLL_TRY(atoll_yaml_out_create(&o));
  atoll_err err = atoll_topo_to_yaml(topo, o);
  if (err == ATOLL_OK)
    err = atoll_yaml_out_text(o, &text);
  if (err == ATOLL_OK)
    fputs(text, stdout);
  atoll_yaml_out_destroy(&o);
  return err;
}

/* Rank 0 only. */
static atoll_err report(work *w, const atoll_topo *topo, const atoll_islands *islands) {
  const atoll_cli *cli = w->cli;
  const char *other = atoll_cli_value(cli, "diff"), *svg = atoll_cli_value(cli, "svg"),
             *hdf5 = atoll_cli_value(cli, "hdf5");
  if (other) {
    atoll_topo *b = NULL;
    ATOLL_TRY(open_source(&w->topo, other, &b));
    w->differs = atoll_topo_diff(topo, b, stdout) > 0;
    if (!w->differs)
      printf("no difference\n");
    atoll_topo_destroy(&b);
  } else if (atoll_cli_value(cli, "yaml")) {
    ATOLL_TRY(print_yaml(topo));
  } else if (!svg && !hdf5 && !atoll_cli_value(cli, "islands") && !atoll_cli_value(cli, "explain")) {
    atoll_topo_print(topo, stdout);
  }
  if (atoll_cli_value(cli, "islands"))
    atoll_islands_print(islands, topo, stdout);
  if (atoll_cli_value(cli, "explain"))
    atoll_islands_explain(islands, topo, stdout);
  if (svg)
    ATOLL_TRY(write_svg(svg, topo));
  if (hdf5)
    ATOLL_TRY(write_hdf5(hdf5, topo, islands));
  return ATOLL_OK;
}

static atoll_err body(work *w) {
  atoll_topo *topo = NULL;
  atoll_islands *islands = NULL;
  ATOLL_TRY(discover(w, &topo));
  atoll_err err = ATOLL_OK;
  if (atoll_cli_value(w->cli, "probe") && w->comm)
    err = probe(w, topo);
  if (err == ATOLL_OK)
    err = w->comm ? atoll_islands_agree(w->comm, topo, &w->island, &islands)
                  : atoll_islands_group(topo, &w->island, &islands);
  if (err == ATOLL_OK && w->rank == 0)
    err = report(w, topo, islands);
  atoll_islands_destroy(&islands);
  atoll_topo_destroy(&topo);
  return err;
}

/* Launched by mpirun or srun, or asked to measure: then MPI is needed. A plain description starts nothing. */
static int launched(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALNRANKS"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (getenv(names[i]))
      return 1;
  return 0;
}

int main(int argc, char **argv) {
  work w = {0};
  char compiled[32], run[32], library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0, done = 0, mpi = 0, initialized = 0;
  unsigned v = hwloc_get_api_version();
  snprintf(compiled, sizeof compiled, "%d.%d.%d", HWLOC_API_VERSION >> 16, HWLOC_API_VERSION >> 8 & 255,
           HWLOC_API_VERSION & 255);
  snprintf(run, sizeof run, "%u.%u.%u", v >> 16, v >> 8 & 255, v & 255);
  MPI_Get_library_version(library, &length);
  library[strcspn(library, ",\n")] = 0;
  const atoll_cli_library libraries[] = {
      {"hwloc", compiled, run}, {"MPI", NULL, library}, {"HDF5", NULL, atoll_store_library()}, {NULL, NULL, NULL}};
  atoll_cli_params p;
  atoll_cli_params_init(&p);
  p.program = "atoll-topo";
  p.summary = "Show the machines a job has: nodes, cores, GPUs, links, and the islands they form.";
  p.operands = "[SOURCE]";
  p.max_operands = 1;
  p.flags = flags;
  p.libraries = libraries;
  p.notes = "SOURCE is an hwloc v2 XML file, a folder of them, a cluster.yaml, or what --yaml or --hdf5 wrote; "
            "default: this machine.\n"
            "Examples:\n"
            "  atoll-topo                                       this machine\n"
            "  atoll-topo inputs/clusters/a100-v100 --explain   a recorded cluster, and its islands\n"
            "  atoll-topo topo.synthetic='4x(pack:2 core:8)'    a made-up one\n"
            "  mpirun --bind-to none -n 4 atoll-topo --probe    devices of 4 ranks, measured";
  atoll_err err = atoll_cli_create(&p, &w.cli);
  if (err == ATOLL_OK)
    err = atoll_opts_add(atoll_cli_opts(w.cli), &atoll_topo_options, &w.topo);
  if (err == ATOLL_OK)
    err = atoll_opts_add(atoll_cli_opts(w.cli), &atoll_island_options, &w.island);
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!rank)
    rank = getenv("PMIX_RANK");
  w.rank = rank ? atoi(rank) : 0;
  atoll_log_set_rank(w.rank);
  if (err == ATOLL_OK)
    err = atoll_cli_parse(w.cli, argc, argv, &done);
  mpi = err == ATOLL_OK && !done && (launched() || atoll_cli_value(w.cli, "probe"));
  if (mpi)
    err = atoll_mpi_init(&argc, &argv);
  MPI_Initialized(&initialized);
  if (mpi && err == ATOLL_OK) {
    MPI_Comm_rank(MPI_COMM_WORLD, &w.rank);
    atoll_log_set_rank(w.rank);
    err = atoll_mpi_check_world(MPI_COMM_WORLD);
    if (err == ATOLL_OK)
      err = atoll_agree(MPI_COMM_WORLD, atoll_plugins_load());
    if (err == ATOLL_OK)
      err = atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &w.comm);
  }
  if (err == ATOLL_OK && !done)
    err = body(&w);
  if (w.comm)
    atoll_comm_destroy(&w.comm);
  int status = atoll_cli_finish(err);
  if (initialized) {
    if (err == ATOLL_OK)
      MPI_Bcast(&w.differs, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
  }
  atoll_cli_destroy(&w.cli);
  return status ? status : w.differs ? (int)ATOLL_MISMATCH : 0; /* an answer, not an error: it has no message */
}

/* calibrate: times of a job's layers on every class of devices that the ranks stand on, as planning wants them.
 *
 * What atoll-train measures before it plans, without the training: all ranks measure at once, a class keeps the median
 * of its ranks. --out writes HDF5 keyed by device class, which `atoll-plan --profile` reads. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/store.h"

typedef struct here {
  atoll_comm *comm;
  atoll_topo *topo;
  atoll_islands *islands;
  atoll_device *device;
  atoll_model *model;
  atoll_profile *profile;
} here;

static atoll_err open_device(const atoll_job *job, here *x) {
  int mine = atoll_topo_device_of(x->topo, atoll_comm_rank(x->comm)), threads = 0, bound = 0;
  if (mine < 0)
    return atoll_fail(ATOLL_MISMATCH, "rank %d has no device in the topology (%d devices, %d ranks)",
                      atoll_comm_rank(x->comm), x->topo->devices, atoll_comm_size(x->comm));
  const atoll_topo_device *d = &x->topo->device[mine];
  const char *kind = job->train.device;
  if (!strcmp(kind, "auto"))
    kind = d->kind == ATOLL_TOPO_GPU ? "cuda" : "cpu";
  atoll_topo_bind(x->topo, mine, &threads, &bound);
  atoll_device_params p;
  atoll_device_params_init(&p);
  p.threads = job->train.threads > 0 ? (int)job->train.threads : threads;
  p.pci = d->pci[0] ? d->pci : NULL;
  return atoll_device_open(kind, &p, &x->device);
}

/* The walk of atoll-train up to its plan. */
static atoll_err measure(const atoll_job *job, here *x) {
  ATOLL_TRY(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &x->comm));
  ATOLL_TRY(atoll_topo_discover(x->comm, &job->topo, &x->topo));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, open_device(job, x));
  if (job->topo.probe)
    ATOLL_TRY(atoll_topo_probe(x->comm, &job->topo, x->device, x->topo));
  ATOLL_TRY(atoll_islands_agree(x->comm, x->topo, &job->island, &x->islands));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_model_create(&job->model, &x->model));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_profile_create(&x->profile));
  return atoll_train_calibrate(x->comm, job, x->model, x->device, x->islands, x->topo, NULL, job->topo.probe_seconds,
                               x->profile);
}

static atoll_err write_file(const here *x, const char *path) {
  atoll_store *s = NULL;
  ATOLL_TRY(atoll_store_open(path, ATOLL_STORE_IMAGE, &s));
  atoll_err err;
  ATOLL_TRY_GOTO(err, close_store, atoll_store_stamp(s, "atoll-bench", 1));
  ATOLL_TRY_GOTO(err, close_store, atoll_profile_to_store(x->profile, s, "/profile"));
  ATOLL_TRY_GOTO(err, close_store, atoll_topo_to_store(x->topo, s, "/topology"));
  err = atoll_islands_to_store(x->islands, s, "/islands");
close_store:
  return atoll_store_publish(&s, err, path);
}

/* One row per class, kind, policy and micro-batch: medians over ranks. */
static atoll_err report(const atoll_job *job, const here *x, json_t *out) {
  json_t *rows = json_array();
  json_object_set_new(out, "model", json_string(job->model.preset));
  json_object_set_new(out, "dtype", json_string(atoll_dtype_name((atoll_dtype)job->model.dtype)));
  json_object_set_new(out, "ranks", json_integer(atoll_comm_size(x->comm)));
  json_object_set_new(out, "T", json_integer((json_int_t)job->train.seq));
  json_object_set_new(out, "rows", rows);
  atoll_digest model = atoll_model_digest(x->model);
  for (int i = 0; i < x->islands->count; i++) {
    char name[256];
    int seen = 0;
    atoll_island_class(x->islands, i, name, sizeof name);
    for (int k = 0; k < i && !seen; k++) {
      char other[256];
      atoll_island_class(x->islands, k, other, sizeof other);
      seen = strcmp(name, other) == 0;
    }
    for (int kind = 0; kind < ATOLL_LAYER_KINDS && !seen; kind++)
      for (int policy = 0; policy < ATOLL_POLICIES; policy++)
        for (int64_t B = 1; B <= job->train.global_batch; B++) {
          const char *kind_name = atoll_layer_kind_name((atoll_layer_kind)kind),
                     *policy_name = atoll_policy_name((atoll_policy)policy);
          atoll_cost c;
          atoll_err err = atoll_profile_find(x->profile, name, model, kind_name, policy_name, job->train.seq, B, &c);
          if (err == ATOLL_NOINPUT)
            break;
          ATOLL_TRY(err);
          if (c.source != ATOLL_COST_MEASURED)
            continue;
          double backward = c.backward_input + c.backward_weight;
          json_array_append_new(rows, json_pack("{s:s,s:s,s:s,s:I,s:f,s:f,s:f}", "device_class", name, "kind",
                                                kind_name, "policy", policy_name, "B", (json_int_t)B, "forward_seconds",
                                                c.forward, "backward_seconds", backward, "update_seconds", c.update));
          atoll_say("%-28s %-6s %-13s micro-batch %-4lld forward %9.3f ms , backward %9.3f ms , update %9.3f ms", name,
                    kind_name, policy_name, (long long)B, 1e3 * c.forward, 1e3 * backward, 1e3 * c.update);
        }
  }
  atoll_err_clear();
  return json_array_size(rows) > 0
             ? ATOLL_OK
             : atoll_fail(ATOLL_NOMEM, "no layer could be measured in the memory that a plan may use");
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out) {
  const char *path = atoll_cli_value(cli, "out");
  here x = {0};
  (void)opts;
  ATOLL_TRY(bench_count(cli, "seq", job->train.seq, 1, 1 << 20, &job->train.seq));
  ATOLL_TRY(bench_count(cli, "batch", job->plan.micro_batch, 1, 4096, &job->plan.micro_batch));
  ATOLL_TRY(atoll_job_check(job));
  atoll_err err = measure(job, &x);
  if (err == ATOLL_OK)
    err = atoll_agree(MPI_COMM_WORLD, out ? report(job, &x, out) : ATOLL_OK);
  if (err == ATOLL_OK)
    err = atoll_agree(MPI_COMM_WORLD, out && path ? write_file(&x, path) : ATOLL_OK);
  atoll_profile_destroy(&x.profile);
  atoll_model_destroy(&x.model);
  atoll_islands_destroy(&x.islands);
  atoll_device_close(&x.device);
  atoll_topo_destroy(&x.topo);
  if (x.comm)
    atoll_comm_destroy(&x.comm);
  return err;
}

const bench bench_calibrate = {"calibrate", "times of a job's layers per class of devices; --out: for atoll-plan",
                               "job out batch seq dtype", run};

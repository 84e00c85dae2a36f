#include "atoll/agree.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agree_impl.h"
#include "atoll/fault.h"
#include "atoll/log.h"
#include "atoll/store.h"
#include "wait.h"

/* --- waiting ---------------------------------------------------------------------------------------------------- */

atoll_err mpi_check(int rc, const char *call) {
  if (rc == MPI_SUCCESS)
    return ATOLL_OK;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0, class = rc;
  MPI_Error_string(rc, text, &length);
  MPI_Error_class(rc, &class);
  return atoll_fail(class == MPI_ERR_TRUNCATE || class == MPI_ERR_COUNT ? ATOLL_MISMATCH : ATOLL_INTERNAL, "%s: %s",
                    call, text);
}

atoll_err mpi_finish_all(int n, MPI_Request *requests, const char *call) {
  int done = 0, rc = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
  if (rc == MPI_SUCCESS && !done) {
    waiter w = wait_begin();
    while (rc == MPI_SUCCESS && !done) {
      wait_step(&w);
      rc = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
    }
    wait_end(&w);
  }
  return mpi_check(rc, call);
}

atoll_err mpi_finish(int rc, MPI_Request *request, const char *call) {
  ATOLL_TRY(mpi_check(rc, call));
  return mpi_finish_all(1, request, call);
}

int64_t comm_limit_bytes(void) {
  static _Atomic int64_t limit;
  int64_t value = atomic_load(&limit);
  if (!value) {
    const char *text = getenv("ATOLL_TEST_COMM_LIMIT");
    value = text ? strtoll(text, NULL, 10) : 0;
    if (value < 8 || value > INT64_C(1) << 30)
      value = INT64_C(1) << 30;
    value -= value % 8;
    atomic_store(&limit, value);
  }
  return value;
}

/* --- start ------------------------------------------------------------------------------------------------------ */

/* A process without a launcher gives itself these variables in MPI_Init, so they are read before it. */
static int launcher_known, launcher_size = -1;

static int env_int(const char *name) {
  const char *text = getenv(name);
  if (!text || !*text)
    return -1;
  char *end;
  errno = 0;
  long v = strtol(text, &end, 10);
  return errno || *end || v < 0 || v > INT_MAX ? -1 : (int)v;
}

int atoll_launched_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *text = getenv(names[i]);
    if (text && *text)
      return atoi(text);
  }
  return 0;
}

#define START_SECONDS 900 /* ten times what the largest machines need */

static void on_start_limit(int signal) {
  static const char text[] = "error TIMEOUT: MPI_Init does not end: a rank, or the way to it, does not answer\n";
  (void)signal;
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(ATOLL_TIMEOUT);
}

/* Until MPI is there nobody watches the other ranks: one that hangs would hold the allocation to its end. */
static int start_within_limit(int *argc, char ***argv, int *provided) {
  struct sigaction action, before;
  int limit = env_int("ATOLL_TEST_START_LIMIT");
  memset(&action, 0, sizeof action);
  action.sa_handler = on_start_limit;
  sigaction(SIGALRM, &action, &before);
  alarm(limit > 0 ? (unsigned)limit : START_SECONDS);
  int rc = MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided);
  alarm(0);
  sigaction(SIGALRM, &before, NULL);
  return rc;
}

atoll_err atoll_mpi_init(int *argc, char ***argv) {
  static const struct {
    int level;
    const char *name;
  } levels[] = {
      {MPI_THREAD_SINGLE, "SINGLE"}, {MPI_THREAD_FUNNELED, "FUNNELED"}, {MPI_THREAD_SERIALIZED, "SERIALIZED"}};
  int started, provided, rank;
  ATOLL_TRY(mpi_check(MPI_Initialized(&started), "MPI_Initialized"));
  if (!started) {
    launcher_size = env_int("OMPI_COMM_WORLD_SIZE");
    if (launcher_size < 0)
      launcher_size = env_int("PMI_SIZE");
    launcher_known = 1;
    /* HDF5 that starts after MPI is ended by MPI_Finalize, which crashes after a write refused by a full disk. */
    (void)atoll_store_library();
    ATOLL_TRY(mpi_check(start_within_limit(argc, argv, &provided), "MPI_Init_thread"));
  } else {
    ATOLL_TRY(mpi_check(MPI_Query_thread(&provided), "MPI_Query_thread"));
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    const char *name = "?";
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
      if (levels[i].level == provided)
        name = levels[i].name;
    return atoll_fail(ATOLL_UNAVAILABLE, "MPI gives thread level %s, MULTIPLE is needed: use an MPI built with threads",
                      name);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  atoll_log_set_rank(rank);
  return atoll_fault_init(rank);
}

atoll_err atoll_mpi_check_world(MPI_Comm comm) {
  int size, expected = -1;
  const char *source = "OMPI_COMM_WORLD_SIZE or PMI_SIZE";
  ATOLL_TRY(mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size"));
  /* What mpirun says counts first: inside its daemons SLURM_STEP_NUM_TASKS is the number of daemons. */
  if (launcher_known)
    expected = launcher_size;
  if (expected < 0) {
    source = "SLURM_STEP_NUM_TASKS";
    expected = env_int(source);
  }
  /* A batch script carries SLURM_NTASKS too, and may well run a single process; only in a step it must be the world. */
  if (expected < 0 && (getenv("SLURM_STEP_ID") || getenv("SLURM_STEPID"))) {
    source = "SLURM_NTASKS";
    expected = env_int(source);
  }
  atoll_err err = ATOLL_OK;
  /* In a heterogeneous job the numbers are those of one component, the world may join several. */
  int joined = env_int("SLURM_HET_SIZE") > 1;
  if (expected > 0 && (joined ? size < expected : size != expected))
    err = atoll_fail(ATOLL_MISMATCH,
                     "the launcher started %d tasks (%s) but MPI sees a world of %d%s: use srun --mpi=pmix or mpirun",
                     expected, source, size, size == 1 ? ", so each task runs alone" : "");
  return atoll_agree(comm, err);
}

/* --- agreeing --------------------------------------------------------------------------------------------------- */

struct note {
  int32_t code;
  char message[ATOLL_MESSAGE_MAX];
};

static atoll_err broadcast_small(MPI_Comm comm, int root, void *data, int bytes) {
  MPI_Request request;
  int rc = MPI_Ibcast(data, bytes, MPI_BYTE, root, comm, &request);
  return mpi_finish(rc, &request, "MPI_Ibcast");
}

atoll_err atoll_agree(MPI_Comm comm, atoll_err mine) {
  int rank, size;
  ATOLL_TRY(mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank"));
  ATOLL_TRY(mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size"));
  if (size == 1)
    return mine;
  int failed = mine == ATOLL_OK ? INT_MAX : rank, lowest = INT_MAX;
  MPI_Request request;
  int rc = MPI_Iallreduce(&failed, &lowest, 1, MPI_INT, MPI_MIN, comm, &request);
  ATOLL_TRY(mpi_finish(rc, &request, "MPI_Iallreduce"));
  if (lowest == INT_MAX)
    return ATOLL_OK;
  struct note note;
  memset(&note, 0, sizeof note);
  if (rank == lowest) {
    int n = 0;
    const char *message = atoll_err_message();
    note.code = mine;
    if (!*message)
      message = atoll_err_text(mine);
    /* The message of a rank that only passes on what was agreed already keeps the rank it names. */
    if (!(sscanf(message, "rank %*d:%n", &n) == 0 && n > 0))
      n = snprintf(note.message, sizeof note.message, "rank %d: ", rank);
    else
      n = 0;
    snprintf(note.message + n, sizeof note.message - (size_t)n, "%s", message);
  }
  ATOLL_TRY(broadcast_small(comm, lowest, &note, (int)sizeof note));
  note.message[ATOLL_MESSAGE_MAX - 1] = 0;
  atoll_err_set_message(note.message);
  return (atoll_err)note.code;
}

atoll_err atoll_agree_digest(MPI_Comm comm, const char *what, atoll_digest mine) {
  int size;
  ATOLL_TRY(mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size"));
  uint64_t own[2] = {mine.lo, mine.hi};
  uint64_t *all = malloc((size_t)size * sizeof own);
  atoll_err err = all ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "digests of %d ranks", size);
  err = atoll_agree(comm, err);
  if (err) {
    free(all);
    return err;
  }
  MPI_Request request;
  int rc = MPI_Iallgather(own, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, comm, &request);
  err = mpi_finish(rc, &request, "MPI_Iallgather");
  if (!err) {
    char list[256] = "", text[33];
    size_t n = 0;
    int differ = 0;
    for (int r = 1; r < size; r++) {
      if (all[2 * r] == all[0] && all[2 * r + 1] == all[1])
        continue;
      if (differ++ < 8)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", n ? ", " : "", r);
    }
    if (differ) {
      if (differ > 8)
        snprintf(list + n, sizeof list - n, " and %d more", differ - 8);
      err = atoll_fail(ATOLL_MISMATCH, "%s: rank 0 has digest %s; %s %s %s another", what,
                       atoll_digest_text((atoll_digest){all[0], all[1]}, text), differ > 1 ? "ranks" : "rank", list,
                       differ > 1 ? "have" : "has");
    }
  }
  free(all);
  return err;
}

static atoll_err broadcast_large(MPI_Comm comm, int root, char *data, int64_t bytes) {
  int64_t limit = comm_limit_bytes();
  for (int64_t at = 0; at < bytes; at += limit)
    ATOLL_TRY(broadcast_small(comm, root, data + at, (int)(bytes - at < limit ? bytes - at : limit)));
  return ATOLL_OK;
}

atoll_err atoll_share_bytes(MPI_Comm comm, int root, const void *mine, int64_t bytes, void **data, int64_t *out_bytes) {
  int rank, size;
  ATOLL_TRY(mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank"));
  ATOLL_TRY(mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size"));
  if (root < 0 || root >= size)
    return atoll_fail(ATOLL_USAGE, "share from rank %d of %d", root, size);
  int64_t total = rank == root ? bytes : 0;
  ATOLL_TRY(broadcast_small(comm, root, &total, (int)sizeof total));
  if (total < 0)
    return atoll_fail(ATOLL_USAGE, "rank %d shares %" PRId64 " bytes", root, total);
  char *copy = malloc(total ? (size_t)total : 1);
  atoll_err err = copy ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%" PRId64 " bytes shared by rank %d", total, root);
  err = atoll_agree(comm, err);
  if (!err) {
    if (rank == root && total)
      memcpy(copy, mine, (size_t)total);
    err = broadcast_large(comm, root, copy, total);
  }
  if (err) {
    free(copy);
    return err;
  }
  *data = copy;
  *out_bytes = total;
  return ATOLL_OK;
}

atoll_err atoll_gather_bytes(MPI_Comm comm, const void *mine, int64_t bytes, void **data, int64_t **offsets) {
  int rank, size;
  ATOLL_TRY(mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank"));
  ATOLL_TRY(mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size"));
  int64_t *at = malloc(((size_t)size + 1) * sizeof *at);
  int *counts = malloc(2 * (size_t)size * sizeof *counts);
  char *all = NULL;
  atoll_err err = ATOLL_OK;
  if (!at || !counts)
    err = atoll_fail(ATOLL_NOMEM, "sizes of %d ranks", size);
  else if (bytes < 0)
    err = atoll_fail(ATOLL_USAGE, "gather of %" PRId64 " bytes", bytes);
  ATOLL_TRY_GOTO(err, out, atoll_agree(comm, err));
  MPI_Request request;
  int rc = MPI_Iallgather(&bytes, 1, MPI_INT64_T, at + 1, 1, MPI_INT64_T, comm, &request);
  ATOLL_TRY_GOTO(err, out, mpi_finish(rc, &request, "MPI_Iallgather"));
  at[0] = 0;
  for (int r = 0; r < size; r++) {
    if (at[r + 1] > INT64_MAX - at[r]) { /* the same numbers everywhere, so every rank leaves here */
      err = atoll_fail(ATOLL_USAGE, "the gathered bytes pass 2^63");
      goto out;
    }
    at[r + 1] += at[r];
  }
  all = malloc(at[size] ? (size_t)at[size] : 1);
  if (!all)
    err = atoll_fail(ATOLL_NOMEM, "%" PRId64 " gathered bytes", at[size]);
  ATOLL_TRY_GOTO(err, out, atoll_agree(comm, err));
  if (at[size] <= comm_limit_bytes()) {
    for (int r = 0; r < size; r++) {
      counts[r] = (int)(at[r + 1] - at[r]);
      counts[size + r] = (int)at[r];
    }
    rc = MPI_Iallgatherv(mine, (int)bytes, MPI_BYTE, all, counts, counts + size, MPI_BYTE, comm, &request);
    ATOLL_TRY_GOTO(err, out, mpi_finish(rc, &request, "MPI_Iallgatherv"));
  } else {
    if (bytes)
      memcpy(all + at[rank], mine, (size_t)bytes);
    for (int r = 0; r < size; r++)
      ATOLL_TRY_GOTO(err, out, broadcast_large(comm, r, all + at[r], at[r + 1] - at[r]));
  }
  *data = all;
  *offsets = at;
  free(counts);
  return ATOLL_OK;
out:
  free(all);
  free(at);
  free(counts);
  return err;
}

/* Who computes products, by measurement; remembered per processor. */
#include "atoll/gemm.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/cache.h"
#include "atoll/clock.h"
#include "atoll/digest.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/yaml.h"
#include "gemm_impl.h"

/* A linear layer of `ROWS` tokens: small enough to be timed in a fifth of a second, large enough to be what training
 * spends its time on. */
enum { ROWS = 256, INNER = 768, COLUMNS = 2304, PRODUCTS = 3, TURNS = 5, KEY = 320, FILE_NAME = 4096 };

static const char *const *names(void) {
  static const char *list[GEMM_WAYS + 1];
  for (int i = 0; i < GEMM_WAYS; i++)
    (void)atoll_gemm_library(i, &list[i]);
  return list;
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

typedef struct layer {
  float *x, *w, *y; /* [ROWS, INNER], [COLUMNS, INNER], [ROWS, COLUMNS] */
} layer;

static atoll_err product(int way, int threads, int which, const layer *l) {
  switch (which) {
  case 0: /* y = x w' */
    return gemm_by(way, threads, 0, 1, ROWS, COLUMNS, INNER, l->x, INNER, l->w, INNER, 0, l->y, COLUMNS, NULL, NULL);
  case 1: /* x = y w */
    return gemm_by(way, threads, 0, 0, ROWS, INNER, COLUMNS, l->y, COLUMNS, l->w, INNER, 0, l->x, INNER, NULL, NULL);
  default: /* w = y' x */
    return gemm_by(way, threads, 1, 0, COLUMNS, INNER, ROWS, l->y, COLUMNS, l->x, INNER, 0, l->w, INNER, NULL, NULL);
  }
}

/* Numbers that no product makes large: each sums up to COLUMNS terms. */
static void refresh(layer *l) {
  float *const all[] = {l->x, l->w, l->y};
  static const int size[] = {ROWS * INNER, COLUMNS * INNER, ROWS * COLUMNS};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < size[k]; i++)
      all[k][i] = (float)(i % 17 - 8) * 0.0625f;
}

static atoll_err time_ways(int threads, layer *l, double seconds[GEMM_WAYS][PRODUCTS]) {
  for (int turn = 0; turn <= TURNS; turn++) { /* the first pays page faults and code generation */
    for (int way = 0; way < GEMM_WAYS; way++) {
      refresh(l);
      for (int which = 0; which < PRODUCTS; which++) {
        double t = atoll_clock_now();
        ATOLL_TRY(product(way, threads, which, l));
        t = atoll_clock_now() - t;
        double *least = &seconds[way][which];
        *least = turn == 0 || (turn > 1 && *least < t) ? *least : t;
      }
    }
  }
  return ATOLL_OK;
}

static atoll_err measure(int threads, atoll_gemm_choice *out) {
  layer l = {cpu_alloc(sizeof(float) * ROWS * INNER), cpu_alloc(sizeof(float) * COLUMNS * INNER),
             cpu_alloc(sizeof(float) * ROWS * COLUMNS)};
  double seconds[GEMM_WAYS][PRODUCTS] = {{0}};
  const double flop = 2.0 * PRODUCTS * ROWS * INNER * COLUMNS, clearly = 1.05;
  atoll_err err = l.x && l.w && l.y ? time_ways(threads, &l, seconds)
                                    : atoll_fail(ATOLL_NOMEM, "no memory to measure matrix products");
  free(l.x);
  free(l.w);
  free(l.y);
  ATOLL_TRY(err);
  memset(out, 0, sizeof *out);
  out->way = gemm_rule();
  for (int way = 0; way < GEMM_WAYS; way++) {
    double sum = 0;
    for (int which = 0; which < PRODUCTS; which++)
      sum += seconds[way][which];
    out->gflops[way] = 1e-9 * flop / sum;
  }
  double least = out->gflops[out->way] * clearly;
  for (int way = 0; way < GEMM_WAYS; way++)
    if (out->gflops[way] > least) {
      out->way = way;
      least = out->gflops[way];
    }
  return ATOLL_OK;
}

/* --- remembering -------------------------------------------------------------------------------------------------- */

static const char *key_of(char *key);

/* The machine code that this file was linked into: it is mapped as it lies in the library, the same for all ranks. */
static int find_code(struct dl_phdr_info *object, size_t bytes, void *out) {
  (void)bytes;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    uintptr_t begin = (uintptr_t)(object->dlpi_addr + segment->p_vaddr), here = (uintptr_t)key_of;
    if (segment->p_type == PT_LOAD && here >= begin && here - begin < segment->p_memsz) {
      *(atoll_digest *)out = atoll_digest_bytes((const void *)begin, segment->p_memsz);
      return 1;
    }
  }
  return 0;
}

/* Code of our own counts as libraries do: what was measured of another build says little of this one. */
static const char *key_of(char *key) {
  char cpu[160], text[33];
  atoll_digest code = {0, 0};
  (void)dl_iterate_phdr(find_code, &code);
  (void)snprintf(key, KEY, "code %.8s; %s; %s", atoll_digest_text(code, text), atoll_cache_processor(cpu, sizeof cpu),
                 gemm_versions());
  return key;
}

static atoll_err read_choice(const char *path, const char *key, atoll_gemm_choice *out) {
  char found[KEY];
  atoll_yaml *root = NULL, *gflops = NULL;
  atoll_gemm_choice c = {.remembered = 1};
  ATOLL_TRY(atoll_yaml_load(path, &root));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, atoll_yaml_string(root, "processor", 1, found, sizeof found));
  if (strcmp(found, key) != 0) {
    err = atoll_fail(ATOLL_MISMATCH, "%s was made for '%s', this is '%s'", path, found, key);
    goto done;
  }
  ATOLL_TRY_GOTO(err, done, atoll_yaml_enum(root, "products", 1, names(), &c.way));
  ATOLL_TRY_GOTO(err, done, atoll_yaml_map(root, "gflops", 1, &gflops));
  for (int i = 0; i < GEMM_WAYS; i++)
    ATOLL_TRY_GOTO(err, done, atoll_yaml_real(gflops, names()[i], 1, 1e-9, 1e9, &c.gflops[i]));
  ATOLL_TRY_GOTO(err, done, atoll_yaml_unknown(root));
  *out = c;
done:
  atoll_yaml_destroy(&root);
  return err;
}

static atoll_err remember(const char *path, const char *key, const atoll_gemm_choice *c) {
  atoll_yaml_out *o = NULL;
  const char *text;
  ATOLL_TRY(atoll_yaml_out_create(&o));
  atoll_yaml_comment(o, "Who computes matrix products fastest, measured once. Remove the file to measure again.");
  atoll_yaml_put_text(o, "processor", key);
  atoll_yaml_put_text(o, "products", names()[c->way]);
  atoll_yaml_open_map(o, "gflops");
  for (int i = 0; i < GEMM_WAYS; i++)
    atoll_yaml_put_real(o, names()[i], c->gflops[i]);
  atoll_yaml_close(o);
  atoll_err err = atoll_yaml_out_text(o, &text);
  if (err == ATOLL_OK)
    err = atoll_file_publish(path, text, strlen(text));
  atoll_yaml_out_destroy(&o);
  return err;
}

static void tell(const char *then) {
  atoll_log(ATOLL_LOG_WARN, "%s: %s", atoll_err_message(), then);
  atoll_err_clear();
}

static atoll_err recall_or_measure(int threads, const char *path, const char *key, atoll_gemm_choice *out) {
  char file[FILE_NAME], name[64], digest[33];
  (void)snprintf(name, sizeof name, "gemm-%.8s.yaml", atoll_digest_text(atoll_digest_bytes(key, strlen(key)), digest));
  if (path)
    (void)snprintf(file, sizeof file, "%s", path);
  else
    atoll_cache_path(file, sizeof file, name);
  if (*file && atoll_file_exists(file)) {
    if (read_choice(file, key, out) == ATOLL_OK)
      return ATOLL_OK;
    tell("not used, measuring again");
  }
  ATOLL_TRY(measure(threads, out));
  if (*file && remember(file, key, out) != ATOLL_OK)
    tell("the choice is not remembered");
  return ATOLL_OK;
}

/* --- choosing ----------------------------------------------------------------------------------------------------- */

/* The ranks whose key is this one's, in the order of comm. */
static atoll_err alike(MPI_Comm comm, const char *key, MPI_Comm *out) {
  int rank, size, first = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  atoll_digest mine = atoll_digest_bytes(key, strlen(key)), *all = calloc((size_t)size, sizeof *all);
  ATOLL_TRY_ALL(comm, all ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "digests of %d processors", size));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, comm);
  while (first < rank && !atoll_digest_equal(all[first], mine))
    first++;
  free(all);
  MPI_Comm_split(comm, first, rank, out);
  return ATOLL_OK;
}

atoll_err atoll_gemm_choose(MPI_Comm comm, int threads, const char *path, atoll_gemm_choice *out) {
  char key[KEY];
  int rank;
  MPI_Comm same = MPI_COMM_NULL;
  atoll_gemm_choice choice = {.way = gemm_rule()};
  atoll_err err = ATOLL_OK;
  ATOLL_TRY(alike(comm, key_of(key), &same));
  MPI_Comm_rank(same, &rank);
  if (rank == 0 && !gemm_forced())
    err = recall_or_measure(threads, path, key, &choice);
  MPI_Bcast(&choice, sizeof choice, MPI_BYTE, 0, same);
  MPI_Comm_free(&same);
  ATOLL_TRY_ALL(comm, err);
  gemm_use(&choice);
  *out = choice;
  return ATOLL_OK;
}

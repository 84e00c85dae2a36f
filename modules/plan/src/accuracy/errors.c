/* Sets against each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy/accuracy.h"
#include "atoll/file.h"
#include "plan_impl.h"

static const char ending[] = ".json";

static int is_set(const char *name) {
  size_t n = strlen(name);
  return n > sizeof ending - 1 && !strcmp(name + n - (sizeof ending - 1), ending);
}

static atoll_err fit_set(accuracy_set *set) {
  for (int what = 0; what < 2; what++) {
    atoll_err err = accuracy_fit(set->run, set->runs, -1, (atoll_accuracy_what)what, set->constant[what]);
    ATOLL_TRY(plan_alloc((size_t)set->runs, sizeof **set->left_out, &set->left_out[what]));
    for (int r = 0; r < set->runs && err == ATOLL_OK; r++) {
      double constant[ACCURACY_CONSTANTS];
      err = accuracy_fit(set->run, set->runs, r, (atoll_accuracy_what)what, constant);
      if (err == ATOLL_OK)
        set->left_out[what][r] = accuracy_predict(&set->run[r], (atoll_accuracy_what)what, constant);
    }
    if (err != ATOLL_OK) {
      char why[256];
      snprintf(why, sizeof why, "%.200s", atoll_err_message());
      return atoll_fail(err, "measured runs %s: %s", set->name, why);
    }
  }
  return ATOLL_OK;
}

static atoll_err create(atoll_accuracy *a, const char *runs, const char *data, char *const *name, size_t names) {
  int sets = 0;
  for (size_t i = 0; i < names; i++)
    sets += is_set(name[i]);
  if (!sets)
    return atoll_fail(ATOLL_NOINPUT, "%s holds no *%s: expected files of measured runs", runs, ending);
  ATOLL_TRY(plan_alloc((size_t)sets, sizeof *a->set, &a->set));
  for (size_t i = 0; i < names; i++) {
    char path[1024];
    if (!is_set(name[i]))
      continue;
    accuracy_set *set = &a->set[a->sets++];
    snprintf(set->name, sizeof set->name, "%.*s", (int)(strlen(name[i]) - (sizeof ending - 1)), name[i]);
    ATOLL_TRY(atoll_path_join(path, sizeof path, runs, name[i]));
    ATOLL_TRY(accuracy_read(path, data, set));
    ATOLL_TRY(fit_set(set));
  }
  return ATOLL_OK;
}

static int by_name(const void *x, const void *y) { return strcmp(*(char *const *)x, *(char *const *)y); }

atoll_err atoll_accuracy_create(const char *runs, const char *data, atoll_accuracy **out) {
  char **name = NULL;
  size_t names = 0;
  atoll_accuracy *a = NULL;
  if (!atoll_file_is_dir(runs))
    return atoll_fail(ATOLL_NOINPUT, "%s is no folder: expected one with files of measured runs", runs);
  ATOLL_TRY(atoll_file_list(runs, &name, &names));
  qsort(name, names, sizeof *name, by_name);
  atoll_err err = plan_alloc(1, sizeof *a, &a);
  if (err == ATOLL_OK)
    err = create(a, runs, data, name, names);
  atoll_file_list_free(&name, names);
  if (err != ATOLL_OK)
    atoll_accuracy_destroy(&a);
  else
    *out = a;
  return err;
}

void atoll_accuracy_destroy(atoll_accuracy **accuracy) {
  atoll_accuracy *a = accuracy ? *accuracy : NULL;
  if (!a)
    return;
  for (int i = 0; i < a->sets; i++)
    accuracy_free(&a->set[i]);
  free(a->set);
  free(a);
  *accuracy = NULL;
}

int atoll_accuracy_sets(const atoll_accuracy *a) { return a->sets; }
const char *atoll_accuracy_set_name(const atoll_accuracy *a, int set) { return a->set[set].name; }
int atoll_accuracy_constants(const atoll_accuracy *a, atoll_accuracy_what what) {
  (void)a;
  return accuracy_constant_count(what);
}

double atoll_accuracy_constant(const atoll_accuracy *a, atoll_accuracy_what what, int set, int k, const char **name,
                               const char **unit) {
  *name = accuracy_constant_at(what, k)->name;
  *unit = accuracy_constant_at(what, k)->unit;
  return a->set[set].constant[what][k];
}

double accuracy_of_run(const atoll_accuracy *a, atoll_accuracy_what what, atoll_accuracy_how how, int set,
                       int fitted_on, int r) {
  const accuracy_run *run = &a->set[set].run[r];
  double neutral[ACCURACY_CONSTANTS];
  switch (how) {
  case ATOLL_ACCURACY_SCORER:
    return run->scorer[what];
  case ATOLL_ACCURACY_LEFT_OUT:
    return a->set[set].left_out[what][r];
  case ATOLL_ACCURACY_FITTED:
    return accuracy_predict(run, what, a->set[fitted_on].constant[what]);
  case ATOLL_ACCURACY_UNFITTED:
    break;
  }
  for (int k = 0; k < accuracy_constant_count(what); k++)
    neutral[k] = accuracy_constant_at(what, k)->neutral;
  return accuracy_predict(run, what, neutral);
}

atoll_accuracy_score atoll_accuracy_of(const atoll_accuracy *a, atoll_accuracy_what what, atoll_accuracy_how how,
                                       int set, int fitted_on) {
  atoll_accuracy_score s = {.runs = a->set[set].runs};
  for (int r = 0; r < s.runs; r++) {
    double e = accuracy_of_run(a, what, how, set, fitted_on, r) / a->set[set].run[r].measured[what] - 1;
    s.mean += fabs(e) / s.runs;
    s.bias += e / s.runs;
    if (fabs(e) > s.largest) {
      s.largest = fabs(e);
      s.worst = r;
    }
  }
  return s;
}

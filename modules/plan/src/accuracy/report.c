/* What the figures are, in words and as JSON. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy/accuracy.h"

static const char *const what_name[] = {"time", "memory"}, *const what_title[] = {"Seconds of a step",
                                                                                  "Peak memory of a device"};

static void print_score(const atoll_accuracy *a, atoll_accuracy_what what, atoll_accuracy_how how, int set,
                        int fitted_on, const char *name, FILE *f) {
  atoll_accuracy_score s = atoll_accuracy_of(a, what, how, set, fitted_on);
  fprintf(f, "  %-44s %5.2f %% %+6.2f %% %6.2f %%   %s\n", name, 100 * s.mean, 100 * s.bias, 100 * s.largest,
          a->set[set].run[s.worst].label);
}

static void print_set(const atoll_accuracy *a, atoll_accuracy_what what, int set, FILE *f) {
  fprintf(f, "  on %s (%d runs)\n", a->set[set].name, a->set[set].runs);
  print_score(a, what, ATOLL_ACCURACY_SCORER, set, 0, "the neutral scorer's cost", f);
  print_score(a, what, ATOLL_ACCURACY_UNFITTED, set, 0, "Atoll's terms, nothing fitted", f);
  for (int other = 0; other < a->sets; other++) {
    char name[100];
    snprintf(name, sizeof name, "Atoll's, fitted on %.60s", a->set[other].name);
    if (other != set)
      print_score(a, what, ATOLL_ACCURACY_FITTED, set, other, name, f);
  }
  print_score(a, what, ATOLL_ACCURACY_LEFT_OUT, set, 0, "Atoll's, each run by the others of its set", f);
}

static void print_constants(const atoll_accuracy *a, atoll_accuracy_what what, FILE *f) {
  for (int k = 0; k < accuracy_constant_count(what); k++) {
    const accuracy_constant *c = accuracy_constant_at(what, k);
    fprintf(f, "  %s", c->name);
    for (int set = 0; set < a->sets; set++)
      fprintf(f, "%s %.4g%s%s (from %s)", set ? "," : ":", a->set[set].constant[what][k],
              strcmp(c->unit, "1") ? " " : "", strcmp(c->unit, "1") ? c->unit : "", a->set[set].name);
    fprintf(f, "\n");
  }
}

static void print_runs(const atoll_accuracy *a, FILE *f) {
  for (int set = 0; set < a->sets; set++) {
    int other = a->sets > 1 ? (set + 1) % a->sets : set;
    atoll_accuracy_how how = a->sets > 1 ? ATOLL_ACCURACY_FITTED : ATOLL_ACCURACY_LEFT_OUT;
    fprintf(f, "\n%s, constants from %s\n", a->set[set].name, a->sets > 1 ? a->set[other].name : "its other runs");
    fprintf(f, "  measured s  predicted          measured GB  predicted\n");
    for (int r = 0; r < a->set[set].runs; r++) {
      const accuracy_run *run = &a->set[set].run[r];
      double t = accuracy_of_run(a, ATOLL_ACCURACY_TIME, how, set, other, r),
             m = accuracy_of_run(a, ATOLL_ACCURACY_MEMORY, how, set, other, r);
      fprintf(f, "  %10.4f %10.4f %+6.1f %%  %11.2f %10.2f %+6.1f %%   %s\n", run->measured[0], t,
              100 * (t / run->measured[0] - 1), run->measured[1] / 1e9, m / 1e9, 100 * (m / run->measured[1] - 1),
              run->label);
    }
  }
}

void atoll_accuracy_print(const atoll_accuracy *a, int every, FILE *f) {
  for (int what = 0; what < 2; what++) {
    fprintf(f, "%s%-46s %s\n", what ? "\n" : "", what_title[what], "mean error   bias  largest   at");
    for (int set = 0; set < a->sets; set++)
      print_set(a, (atoll_accuracy_what)what, set, f);
    print_constants(a, (atoll_accuracy_what)what, f);
  }
  if (a->sets == 1)
    fprintf(f, "\nOne set alone: nothing was fitted on another.\n");
  if (every)
    print_runs(a, f);
}

static json_t *score_json(const atoll_accuracy *a, int what, atoll_accuracy_how how, int set, int fitted_on) {
  atoll_accuracy_score s = atoll_accuracy_of(a, (atoll_accuracy_what)what, how, set, fitted_on);
  return json_pack("{s:f,s:f,s:f,s:s}", "mean_absolute_error", s.mean, "bias", s.bias, "largest", s.largest,
                   "largest_at", a->set[set].run[s.worst].label);
}

static json_t *what_json(const atoll_accuracy *a, int set, int what) {
  json_t *fitted = json_object(), *constants = json_array(), *runs = json_array();
  for (int other = 0; other < a->sets; other++)
    if (other != set)
      json_object_set_new(fitted, a->set[other].name, score_json(a, what, ATOLL_ACCURACY_FITTED, set, other));
  for (int k = 0; k < accuracy_constant_count((atoll_accuracy_what)what); k++) {
    const accuracy_constant *c = accuracy_constant_at((atoll_accuracy_what)what, k);
    json_array_append_new(constants, json_pack("{s:s,s:s,s:f}", "name", c->name, "unit", c->unit, "value",
                                               a->set[set].constant[what][k]));
  }
  for (int r = 0; r < a->set[set].runs; r++) {
    const accuracy_run *run = &a->set[set].run[r];
    json_t *by = json_object();
    for (int other = 0; other < a->sets; other++)
      if (other != set)
        json_object_set_new(
            by, a->set[other].name,
            json_real(accuracy_of_run(a, (atoll_accuracy_what)what, ATOLL_ACCURACY_FITTED, set, other, r)));
    json_array_append_new(runs, json_pack("{s:s,s:f,s:f,s:o,s:f}", "run", run->label, "measured", run->measured[what],
                                          "scorer", run->scorer[what], "fitted_on", by, "left_out",
                                          a->set[set].left_out[what][r]));
  }
  return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "scorer", score_json(a, what, ATOLL_ACCURACY_SCORER, set, 0),
                   "unfitted", score_json(a, what, ATOLL_ACCURACY_UNFITTED, set, 0), "fitted_on", fitted, "left_out",
                   score_json(a, what, ATOLL_ACCURACY_LEFT_OUT, set, 0), "constants_of_this_set", constants, "runs",
                   runs);
}

atoll_err atoll_accuracy_text(const atoll_accuracy *a, char **text, size_t *bytes) {
  json_t *root = json_object();
  for (int set = 0; set < a->sets; set++)
    json_object_set_new(root, a->set[set].name,
                        json_pack("{s:o,s:o}", what_name[0], what_json(a, set, 0), what_name[1], what_json(a, set, 1)));
  char *dump = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  json_decref(root);
  if (!dump)
    return atoll_fail(ATOLL_NOMEM, "no memory for the accuracy of %d sets as JSON", a->sets);
  *text = dump;
  *bytes = strlen(dump);
  return ATOLL_OK;
}

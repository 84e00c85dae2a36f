/* Curves by gnuplot, which draws PNG, SVG and text from one script and is on every cluster. Data goes through a pipe;
 * no temporary files. */
#include "inspect.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atoll/file.h"

static void quote(FILE *f, const char *s) { /* gnuplot's single quotes double themselves */
  fputc('\'', f);
  for (; *s; s++) {
    if (*s == '\'')
      fputc('\'', f);
    fputc(*s, f);
  }
  fputc('\'', f);
}

static void data_block(FILE *f, const char *name, const table *t, const char *x, const char *y) {
  const column *a = table_find(t, x), *b = table_find(t, y);
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t i = 0; a && b && i < t->rows; i++)
    if (isfinite(b->v[i]))
      fprintf(f, "%.17g %.17g\n", a->v[i], b->v[i]);
  fputs("EOD\n", f);
}

static int has_finite(const table *t, const char *y) {
  const column *b = table_find(t, y);
  for (int64_t i = 0; b && i < t->rows; i++)
    if (isfinite(b->v[i]))
      return 1;
  return 0;
}

/* What a run of either program draws: its measure, that of validations, and its speed. */
typedef struct curves {
  const char *measure, *label, *held, *held_label, *rate, *rate_label;
} curves;
static const curves trained = {"loss",     "loss / nat per token", "validation_loss",
                               "held out", "tokens_per_second",    "tokens / s"};
static const curves acted = {"mean_return",       "mean return",      "validation_return",
                             "likeliest actions", "steps_per_second", "steps / s"};

static const curves *curves_of(const run_table *t) { return table_find(&t->steps, acted.measure) ? &acted : &trained; }

static void write_script(FILE *f, const run_table *t, const char *title, const char *terminal, const char *out) {
  int text = !strncmp(terminal, "dumb", 4);
  const curves *c = curves_of(t);
  data_block(f, "train", &t->steps, "step", c->measure);
  data_block(f, "held", &t->validations, "validation_step", c->held);
  data_block(f, "rate", &t->steps, "step", c->rate);
  fprintf(f, "set terminal %s\n", terminal);
  if (out) {
    fputs("set output ", f);
    quote(f, out);
    fputc('\n', f);
  }
  fputs("set key top right\nset grid\nset xlabel 'step'\n", f);
  if (!text)
    fputs("set multiplot layout 2,1 title ", f), quote(f, title), fputc('\n', f);
  else
    fputs("set title ", f), quote(f, title), fputc('\n', f);
  fprintf(f, "set ylabel '%s'\n", c->label);
  fprintf(f, "plot $train using 1:2 with %s title 'training'", text ? "points pt '.'" : "lines lc rgb '#8888cc'");
  if (has_finite(&t->validations, c->held))
    fprintf(f, ", $held using 1:2 with %s title '%s'",
            text ? "points pt 'V'" : "linespoints lw 2 pt 7 lc rgb '#cc4444'", c->held_label);
  fputc('\n', f);
  if (!text)
    fprintf(f,
            "unset title\nset ylabel '%s'\nset yrange [0:*]\nplot $rate using 1:2 with lines lc rgb '#448844' "
            "notitle\nunset multiplot\n",
            c->rate_label);
}

static atoll_err run_gnuplot(const char *script, size_t bytes) {
  signal(SIGPIPE, SIG_IGN);
  FILE *p = popen("gnuplot", "w");
  if (!p)
    return atoll_fail(ATOLL_UNAVAILABLE, "start gnuplot: %s", strerror(errno));
  size_t written = fwrite(script, 1, bytes, p);
  int status = pclose(p);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return atoll_fail(ATOLL_UNAVAILABLE,
                      "gnuplot is not installed (INSTALL names its package); atoll-inspect export gives the numbers");
  if (written != bytes || status != 0)
    return atoll_fail(ATOLL_IO, "gnuplot ended with status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  return ATOLL_OK;
}

/* gnuplot would complain of a file it cannot create, and go on into standard output. */
static atoll_err try_output(const char *path, int *made) {
  int new = !atoll_file_exists(path);
  FILE *f = fopen(path, "ab");
  if (!f)
    return atoll_fail(ATOLL_IO, "create %s: %s", path, strerror(errno));
  fclose(f);
  *made = new;
  return ATOLL_OK;
}

atoll_err inspect_plot(const char *path, const inspect_options *o) {
  run_table t;
  char *script = NULL, terminal[64];
  size_t bytes = 0;
  const char *out = o->svg ? o->svg : o->png ? o->png : NULL, *wide = getenv("COLUMNS");
  int columns = wide ? atoi(wide) : 0, made = 0;
  struct stat st;
  if (o->svg)
    snprintf(terminal, sizeof terminal, "svg size 900,700 enhanced");
  else if (o->png)
    snprintf(terminal, sizeof terminal, "png size 900,700");
  else
    snprintf(terminal, sizeof terminal, "dumb size %d,24", columns > 40 && columns < 1000 ? columns : 79);
  ATOLL_TRY(table_load(path, 1, &t));
  atoll_err err = has_finite(&t.steps, curves_of(&t)->measure)
                      ? ATOLL_OK
                      : atoll_fail(ATOLL_NOINPUT, "%s has no finite %s to draw yet", path, curves_of(&t)->measure);
  if (err == ATOLL_OK && out)
    err = try_output(out, &made);
  FILE *f = err == ATOLL_OK ? open_memstream(&script, &bytes) : NULL;
  if (err == ATOLL_OK && !f)
    err = atoll_fail(ATOLL_NOMEM, "plot");
  if (f) {
    write_script(f, &t, path, terminal, out);
    fclose(f);
    err = run_gnuplot(script, bytes);
    free(script);
  }
  table_free(&t);
  if (err == ATOLL_OK && out && (stat(out, &st) || (S_ISREG(st.st_mode) && !st.st_size)))
    err = atoll_fail(ATOLL_IO, "gnuplot left no drawing in %s", out);
  if (err != ATOLL_OK && made)
    (void)remove(out);
  return err;
}

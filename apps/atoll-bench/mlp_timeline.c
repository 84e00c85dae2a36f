/* The timeline of a pipelined run: which rank had which tile when. */
#include "mlp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/file.h"

typedef struct timeline {
  const shape *s;
  int ranks;
  const atoll_chain_event *event; /* by rank */
  int64_t *first;                 /* [ranks + 1] */
  double begin, end;              /* s */
} timeline;

static void name_of(const atoll_chain_event *e, char *text, size_t n) {
  if (e->layer < 0)
    snprintf(text, n, "copy x");
  else
    snprintf(text, n, "layer %d", e->layer);
}

static void find_span(timeline *t) {
  t->begin = INFINITY;
  t->end = -INFINITY;
  for (int64_t i = 0; i < t->first[t->ranks]; i++) {
    t->begin = fmin(t->begin, t->event[i].begin);
    t->end = fmax(t->end, t->event[i].end);
  }
}

/* --- Chrome trace ------------------------------------------------------------------------------------------------- */

static atoll_err trace_text(const timeline *t, char **text) {
  json_t *events = json_array();
  for (int r = 0; r < t->ranks; r++)
    for (int64_t i = t->first[r]; i < t->first[r + 1]; i++) {
      const atoll_chain_event *e = &t->event[i];
      char name[64];
      name_of(e, name, sizeof name);
      json_array_append_new(events,
                            json_pack("{s:s,s:s,s:f,s:f,s:i,s:i,s:{s:I,s:I}}", "name", name, "ph", "X", "ts",
                                      (e->begin - t->begin) * 1e6, "dur", (e->end - e->begin) * 1e6, "pid", 0, "tid", r,
                                      "args", "row", (json_int_t)e->row, "column", (json_int_t)e->col));
    }
  json_t *root = json_pack("{s:o,s:s}", "traceEvents", events, "displayTimeUnit", "ms");
  *text = root ? json_dumps(root, JSON_REAL_PRECISION(9)) : NULL;
  json_decref(root);
  return *text ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "JSON of the timeline");
}

/* --- picture ------------------------------------------------------------------------------------------------------ */

enum { LEFT = 70, TOP = 60, WIDTH = 900, LANE = 44, GAP = 14 };

/* Neighbouring layers differ in light as well as in colour. */
static const char *colour_of(int layer) {
  static const char *const colours[] = {"#2f6f9f", "#e0a03c", "#5a9a5a", "#b45f8c", "#7a6fb0", "#c9c04a"};
  return layer < 0 ? "#9aa0a6" : colours[layer % (int)(sizeof colours / sizeof *colours)];
}

static double place(const timeline *t, double seconds) {
  return LEFT + (seconds - t->begin) / fmax(t->end - t->begin, 1e-12) * WIDTH;
}

static void draw_lane(FILE *f, const timeline *t, int rank) {
  int y = TOP + rank * (LANE + GAP);
  double busy = 0;
  for (int64_t i = t->first[rank]; i < t->first[rank + 1]; i++) {
    const atoll_chain_event *e = &t->event[i];
    char name[64];
    name_of(e, name, sizeof name);
    double x = place(t, e->begin), w = place(t, e->end) - x;
    busy += e->end - e->begin;
    fprintf(f,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"#fff\" "
            "stroke-width=\"0.5\"><title>%s, row %lld, column %lld: %.0f us</title></rect>\n",
            x, y, fmax(w, 0.3), LANE, colour_of(e->layer), name, (long long)e->row, (long long)e->col,
            (e->end - e->begin) * 1e6);
  }
  fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">rank %d</text>\n", LEFT - 8, y + LANE / 2 + 4, rank);
  fprintf(f, "<text x=\"%d\" y=\"%d\">%.0f %%</text>\n", LEFT + WIDTH + 8, y + LANE / 2 + 4,
          100 * busy / fmax(t->end - t->begin, 1e-12));
}

/* Ticks of 1, 2 or 5 times a power of ten, five to ten of them. */
static void draw_axis(FILE *f, const timeline *t) {
  double span = (t->end - t->begin) * 1e3, step = pow(10, floor(log10(fmax(span, 1e-6) / 5)));
  step *= span / step > 25 ? 5 : span / step > 10 ? 2 : 1;
  int y = TOP + t->ranks * (LANE + GAP);
  for (double at = 0; at <= span * 1.0001; at += step) {
    double x = LEFT + at / span * WIDTH;
    fprintf(f, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#bbb\"/>\n", x, TOP - 6, x, y);
    fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", x, y + 14, at);
  }
  fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">ms</text>\n", LEFT + WIDTH / 2, y + 30);
}

static void draw_legend(FILE *f, const timeline *t) {
  fprintf(f, "<text x=\"%d\" y=\"20\" font-weight=\"bold\">%lld x %lld", LEFT, (long long)t->s->M,
          (long long)t->s->width[0]);
  for (int l = 1; l <= t->s->layers; l++)
    fprintf(f, " x %lld", (long long)t->s->width[l]);
  fprintf(f, ", tiles as their inputs appear; right: share of the time at work</text>\n");
  for (int l = -1, x = LEFT; l < t->s->layers; l++, x += 90) {
    char name[64];
    name_of(&(atoll_chain_event){.layer = l}, name, sizeof name);
    fprintf(f, "<rect x=\"%d\" y=\"30\" width=\"12\" height=\"12\" fill=\"%s\"/>", x, colour_of(l));
    fprintf(f, "<text x=\"%d\" y=\"40\">%s</text>\n", x + 17, name);
  }
}

static atoll_err svg_text(const timeline *t, char **text) {
  size_t bytes = 0;
  FILE *f = open_memstream(text, &bytes);
  if (!f)
    return atoll_fail(ATOLL_NOMEM, "picture of the timeline");
  int width = LEFT + WIDTH + 60, height = TOP + t->ranks * (LANE + GAP) + 40;
  fprintf(f,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
          "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<rect width=\"100%%\" height=\"100%%\" "
          "fill=\"#fff\"/>\n",
          width, height, width, height);
  draw_legend(f, t);
  draw_axis(f, t);
  for (int r = 0; r < t->ranks; r++)
    draw_lane(f, t, r);
  fprintf(f, "</svg>\n");
  int failed = ferror(f);
  if (fclose(f) != 0 || failed) {
    free(*text);
    *text = NULL;
    return atoll_fail(ATOLL_NOMEM, "picture of the timeline");
  }
  return ATOLL_OK;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static atoll_err write_one(const char *path, const timeline *t, atoll_err (*make)(const timeline *, char **)) {
  char *text = NULL;
  atoll_err err = path ? make(t, &text) : ATOLL_OK;
  if (err == ATOLL_OK && path)
    err = atoll_file_replace(path, text, strlen(text));
  free(text);
  return err;
}

atoll_err timeline_write(atoll_comm *comm, atoll_chain *chain, const atoll_chain_cut *cut, const shape *s,
                         const void *x, const char *trace, const char *svg) {
  const float *y;
  const atoll_chain_event *events;
  void *all = NULL;
  MPI_Comm mpi = atoll_comm_mpi(comm);
  timeline t = {.s = s, .ranks = atoll_comm_size(comm)};
  ATOLL_TRY_ALL(mpi, atoll_chain_trace(chain, 1));
  for (int turn = 0; turn < 2; turn++)
    ATOLL_TRY(atoll_chain_run(chain, ATOLL_CHAIN_CTA, cut, s->M, x, &y));
  int64_t n = atoll_chain_events(chain, &events);
  ATOLL_TRY(atoll_gather_bytes(mpi, events, n * (int64_t)sizeof *events, &all, &t.first));
  ATOLL_TRY(atoll_chain_trace(chain, 0));
  t.event = all;
  for (int r = 0; r <= t.ranks; r++)
    t.first[r] /= (int64_t)sizeof *events;
  find_span(&t);
  atoll_err err = ATOLL_OK;
  if (atoll_comm_rank(comm) == 0) {
    err = write_one(trace, &t, trace_text);
    if (err == ATOLL_OK)
      err = write_one(svg, &t, svg_text);
  }
  free(all);
  free(t.first);
  return atoll_agree(mpi, err);
}

/* A chart of one step: time to the right, a row for every group of ranks that do the same. The upper, wide band of a
 * row is what it computes and sums; the thin ones below are its messages forward and back, and its copies. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/flow.h"

enum {
  LEFT = 250, /* labels */
  WIDE = 1150,
  RIGHT = 30,
  TOP = 76,
  ROWS_MOST = 128,
  TIPS_MOST = 6000 /* events in all, up to which each says what it is under the mouse */
};
#define HAIR 0.4 /* what is narrower is drawn once for all that fall there */

static const struct {
  const char *name, *color;
  int dark; /* text on it is white */
} look[ATOLL_SIM_KINDS] = {
    [ATOLL_SIM_FORWARD] = {"forward", "#56b4e9", 0},
    [ATOLL_SIM_BACKWARD] = {"backward", "#0072b2", 1},
    [ATOLL_SIM_ACTIVATION] = {"activations sent or received", "#009e73", 1},
    [ATOLL_SIM_GRADIENT] = {"gradients sent or received", "#cc79a7", 0},
    [ATOLL_SIM_COPY] = {"copies from and to host memory", "#8c6d31", 1},
    [ATOLL_SIM_REDUCE] = {"sum of gradients over replicas", "#d55e00", 1},
    [ATOLL_SIM_TIED] = {"sum over tied tensors", "#e69f00", 0},
    [ATOLL_SIM_FINISH] = {"sum of losses and norms", "#555555", 1},
    [ATOLL_SIM_UPDATE] = {"update", "#f0e442", 0},
};

typedef struct chart {
  FILE *f;
  const atoll_simulation *sim;
  const atoll_plan *plan;
  double per_second; /* px */
  double row;        /* px */
  int tips;
} chart;

static void put_text(FILE *f, const char *text) {
  for (; *text; text++)
    switch (*text) {
    case '&':
      fputs("&amp;", f);
      break;
    case '<':
      fputs("&lt;", f);
      break;
    case '>':
      fputs("&gt;", f);
      break;
    default:
      if ((unsigned char)*text >= ' ')
        fputc(*text, f);
    }
}

/* A distance between marks of the time axis: 1, 2 or 5 times a power of ten, 6 to 12 of them. */
static double axis_step(double seconds) {
  double raw = seconds / 10, ten = pow(10, floor(log10(raw))), m = raw / ten;
  return ten * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

static void put_axis(const chart *c, double bottom) {
  double seconds = c->sim->step_seconds, step = axis_step(seconds);
  double unit = seconds >= 2 ? 1 : seconds >= 2e-3 ? 1e3 : 1e6;
  const char *name = seconds >= 2 ? "s" : seconds >= 2e-3 ? "ms" : "us";
  for (int i = 0; i * step <= seconds * (1 + 1e-9); i++) {
    double x = LEFT + i * step * c->per_second;
    fprintf(c->f, "<path class=\"grid\" d=\"M%.1f %d V%.1f\"/><text class=\"axis\" x=\"%.1f\" y=\"%d\">%.6g</text>\n",
            x, TOP, bottom, x, TOP - 8, i * step * unit);
  }
  fprintf(c->f, "<text class=\"small\" x=\"%d\" y=\"%d\" text-anchor=\"end\">time [%s]</text>\n", LEFT - 14, TOP - 8,
          name);
}

/* A dashed line that says what ends here. */
static void put_mark(const chart *c, double at, const char *what, double bottom) {
  double x = LEFT + at * c->per_second;
  fprintf(c->f,
          "<path class=\"mark\" d=\"M%.1f %d V%.1f\"/><text class=\"small\" x=\"%.1f\" y=\"%.1f\" "
          "text-anchor=\"end\">%s</text>\n",
          x, TOP, bottom + 6, x - 3, bottom + 12, what);
}

static void put_tip(const chart *c, const atoll_sim_event *e) {
  char a[32], b[32];
  fprintf(c->f, "<title>%s", atoll_sim_kind_name((atoll_sim_kind)e->kind));
  if (e->micro_batch >= 0)
    fprintf(c->f, " of micro-batch %" PRId64, e->micro_batch);
  if (e->peer >= 0)
    fprintf(c->f, " %s rank %d", e->stream == ATOLL_SIM_SEND ? "to" : "from", c->sim->replica[e->peer].rank);
  fprintf(c->f, ", at %s for %s</title>", plan_seconds_text(e->begin, a, sizeof a),
          plan_seconds_text(e->end - e->begin, b, sizeof b));
}

/* Bands of a row, as shares of its height. */
static void band_of(const atoll_sim_event *e, int *band, double *y, double *h) {
  static const double top[4] = {0.08, 0.68, 0.77, 0.86}, height[4] = {0.56, 0.07, 0.07, 0.07};
  *band = e->stream == ATOLL_SIM_COMPUTE || e->stream == ATOLL_SIM_COLLECTIVE ? 0
          : e->kind == ATOLL_SIM_ACTIVATION                                   ? 1
          : e->kind == ATOLL_SIM_GRADIENT                                     ? 2
                                                                              : 3;
  *y = top[*band];
  *h = height[*band];
}

static void put_row(const chart *c, const sim_group *g, double y0) {
  const atoll_sim_replica *r = &c->sim->replica[g->member[0]];
  const atoll_plan_stage *stage = &c->plan->pipeline[r->pipeline].stage[r->stage];
  double drawn[4] = {-1, -1, -1, -1};
  for (int64_t i = g->at; i < g->at + g->count; i++) {
    const atoll_sim_event *e = &c->sim->event[i];
    int band;
    double y, h, x = e->begin * c->per_second, w = (e->end - e->begin) * c->per_second;
    band_of(e, &band, &y, &h);
    if (x + w < drawn[band] + HAIR)
      continue;
    drawn[band] = x + w;
    w = w > HAIR ? w : HAIR;
    double shade = stage->chunks > 1 && band == 0 && e->micro_batch >= 0 ? 1 - 0.5 * e->chunk / (stage->chunks - 1) : 1;
    fprintf(c->f, "<rect class=\"k%d\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"", e->kind, LEFT + x,
            y0 + y * c->row, w, h * c->row);
    if (shade < 1)
      fprintf(c->f, " fill-opacity=\"%.2f\"", shade);
    if (c->tips) {
      fputs(">", c->f);
      put_tip(c, e);
      fputs("</rect>\n", c->f);
    } else {
      fputs("/>\n", c->f);
    }
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, e->micro_batch);
    if (band == 0 && e->micro_batch >= 0 && w > 7 * (double)strlen(number) + 3 && c->row >= 26)
      fprintf(c->f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
              look[e->kind].dark && shade > 0.7 ? "num white" : "num", LEFT + x + w / 2, y0 + 0.36 * c->row + 4,
              number);
  }
}

static void put_label(const chart *c, const sim_group *g, double y0, int stripe) {
  static const char *const color[] = {"#7f7f7f", "#e15759", "#59a14f", "#b07aa1", "#9c755f", "#edc948", "#76b7b2"};
  const atoll_sim_replica *r = &c->sim->replica[g->member[0]];
  char layers[64], name[40];
  fprintf(c->f, "<rect x=\"8\" y=\"%.1f\" width=\"5\" height=\"%.1f\" fill=\"%s\"/>", y0 + 0.06 * c->row, 0.88 * c->row,
          color[stripe % (int)(sizeof color / sizeof *color)]);
  snprintf(name, sizeof name, "%.38s", g->name);
  fprintf(c->f, "<text class=\"name\" x=\"18\" y=\"%.1f\">", y0 + (c->row >= 26 ? 0.42 : 0.7) * c->row);
  put_text(c->f, name);
  if (g->ranks > 1)
    fprintf(c->f, " <tspan class=\"small\">%d alike</tspan>", g->ranks);
  if (c->row < 26) { /* one line for all */
    fprintf(c->f, " <tspan class=\"small\">stage %d %s", r->stage, g->islands[0] ? "on " : "");
    put_text(c->f, g->islands);
    fputs("</tspan>", c->f);
  }
  fputs("</text>\n", c->f);
  if (c->row < 26)
    return;
  fprintf(c->f, "<text class=\"small\" x=\"18\" y=\"%.1f\">", y0 + 0.82 * c->row);
  if (c->plan->pipelines > 1)
    fprintf(c->f, "pipeline %d ", r->pipeline);
  fprintf(c->f, "stage %d, layers %s%s", r->stage,
          sim_layers(&c->plan->pipeline[r->pipeline].stage[r->stage], layers, sizeof layers),
          g->islands[0] ? ", island " : "");
  put_text(c->f, g->islands);
  fputs("</text>\n", c->f);
}

static void put_legend(const chart *c, double y) {
  int used[ATOLL_SIM_KINDS] = {0};
  double x = LEFT;
  for (int64_t i = 0; i < c->sim->events; i++)
    used[c->sim->event[i].kind] = 1;
  for (int k = 0; k < ATOLL_SIM_KINDS; k++) {
    if (!used[k])
      continue;
    double w = 26 + 6.1 * (double)strlen(look[k].name);
    if (x + w > LEFT + WIDE) {
      x = LEFT;
      y += 18;
    }
    fprintf(c->f,
            "<rect class=\"k%d\" x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"10\"/><text class=\"small\" x=\"%.1f\" "
            "y=\"%.1f\">%s</text>\n",
            k, x, y, x + 17, y + 9, look[k].name);
    x += w;
  }
}

static void put_head(const chart *c, const char *title, int groups, double width, double height) {
  char a[32];
  double planned = c->plan->step_seconds;
  int ranks = 0;
  for (int k = 0; k < c->sim->replicas; k++)
    ranks += c->sim->replica[k].ranks;
  fprintf(
      c->f,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n<style>\n"
      ".grid{stroke:#dddddd;stroke-width:1}.mark{stroke:#222222;stroke-width:1;stroke-dasharray:4 3;fill:none}\n"
      ".axis{font-size:11px;text-anchor:middle;fill:#444444}.small{font-size:10.5px;fill:#444444}\n"
      ".name{font-size:12px;fill:#111111}.num{font-size:10px;text-anchor:middle;fill:#102030}.white{fill:#ffffff}\n",
      width, height, width, height);
  for (int k = 0; k < ATOLL_SIM_KINDS; k++)
    fprintf(c->f, ".k%d{fill:%s;stroke:#ffffff;stroke-width:.3}\n", k, look[k].color);
  fprintf(c->f,
          "</style>\n<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n"
          "<text x=\"8\" y=\"24\" font-size=\"16\" font-weight=\"bold\">",
          width, height);
  put_text(c->f, title);
  fprintf(
      c->f,
      "</text>\n<text x=\"8\" y=\"43\" font-size=\"12\" fill=\"#333333\">One step as simulated: %s, bubble %.1f %%, "
      "%" PRId64 " micro-batches, schedule ",
      plan_seconds_text(c->sim->step_seconds, a, sizeof a), 100 * c->sim->bubble_fraction, c->plan->micro_batches);
  put_text(c->f, c->plan->schedule);
  if (groups < ranks)
    fprintf(c->f, "; %d ranks in %d rows: ranks that do the same at the same times share one", ranks, groups);
  if (planned > 0 && fabs(c->sim->step_seconds - planned) > 0.002 * planned)
    fprintf(c->f, "; the plan itself says %s", plan_seconds_text(planned, a, sizeof a));
  for (int k = 0, chunks = 1; k < c->plan->pipelines && chunks == 1; k++)
    if ((chunks = c->plan->pipeline[k].stage[0].chunks) > 1)
      fputs("; the paler, the later the chunk of a stage", c->f);
  if (groups > ROWS_MOST)
    fprintf(c->f, "; the first %d rows are drawn", ROWS_MOST);
  fputs("</text>\n", c->f);
}

static void put_chart(chart *c, const sim_group *group, int groups, const char *title) {
  int rows = groups < ROWS_MOST ? groups : ROWS_MOST, stripe = 0;
  c->row = rows <= 16 ? 46 : rows <= 40 ? 32 : 18;
  double bottom = TOP + rows * c->row;
  put_head(c, title, groups, LEFT + WIDE + RIGHT, bottom + 72);
  put_axis(c, bottom);
  for (int g = 0; g < rows; g++) {
    double y = TOP + g * c->row;
    /* Rows of one island in a run have one colour; which is said in the labels. */
    for (stripe = 0; stripe < g && strcmp(group[stripe].islands, group[g].islands) != 0;)
      stripe++;
    int distinct = 0;
    for (int k = 0; k < stripe; k++) {
      int first = 0;
      while (strcmp(group[first].islands, group[k].islands) != 0)
        first++;
      distinct += first == k;
    }
    fprintf(c->f, "<path class=\"grid\" d=\"M8 %.1f H%d\"/>\n", y, LEFT + WIDE);
    put_label(c, &group[g], y, distinct);
    put_row(c, &group[g], y);
  }
  put_mark(c, c->sim->pipeline_seconds, "last backward", bottom);
  put_mark(c, c->sim->step_seconds, "", bottom);
  put_legend(c, bottom + 32);
  fputs("</svg>\n", c->f);
}

atoll_err atoll_simulation_gantt(const atoll_simulation *simulation, const atoll_plan *plan,
                                 const atoll_islands *islands, const char *title, char **text, size_t *bytes) {
  sim_group *group = NULL;
  int groups = 0;
  char *out = NULL;
  size_t n = 0;
  ATOLL_TRY(sim_groups(simulation, plan, islands, &group, &groups));
  FILE *f = open_memstream(&out, &n);
  if (!f) {
    free(group);
    return atoll_fail(ATOLL_NOMEM, "simulate: no memory for a chart of %d rows", groups);
  }
  int64_t drawn = 0;
  for (int g = 0; g < groups; g++)
    drawn += group[g].count;
  chart c = {.f = f,
             .sim = simulation,
             .plan = plan,
             .per_second = WIDE / simulation->step_seconds,
             .tips = drawn <= TIPS_MOST};
  put_chart(&c, group, groups, title);
  free(group);
  if (fclose(f) != 0) {
    free(out);
    return atoll_fail(ATOLL_NOMEM, "simulate: no memory for a chart of %d rows", groups);
  }
  *text = out;
  *bytes = n;
  return ATOLL_OK;
}

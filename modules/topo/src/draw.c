/* A drawing of the topology as SVG, for eyes: one card per node (equal neighbours share a card), NUMA nodes as frames
 * inside it, devices as boxes in them, coloured by hardware class; below, a matrix of the links, whose shade is the
 * bandwidth on a logarithmic scale. Everything is laid out from the counts alone, so a drawing is the same wherever it
 * is made. */
#include "topo_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOX_W      148
#define BOX_H      76
#define GAP        10
#define CARDS_MAX  48
#define MATRIX_MAX 32

typedef struct canvas {
  char *text;
  size_t n, cap;
  int failed;
} canvas;

static void put(canvas *c, const char *fmt, ...) ATOLL_PRINTF(2, 3);
static void put(canvas *c, const char *fmt, ...) {
  for (;;) {
    va_list ap;
    va_start(ap, fmt);
    size_t room = c->cap - c->n;
    int want = vsnprintf(c->text ? c->text + c->n : NULL, room, fmt, ap);
    va_end(ap);
    if (want >= 0 && (size_t)want < room) {
      c->n += (size_t)want;
      return;
    }
    char *more = c->failed ? NULL : realloc(c->text, c->cap * 2 + (size_t)want + 4096);
    if (!more) {
      c->failed = 1;
      return;
    }
    c->cap = c->cap * 2 + (size_t)want + 4096;
    c->text = more;
  }
}

/* XML text, cut to `most` characters with an ellipsis. */
static const char *escaped(const char *s, int most, char *buf, size_t n) {
  size_t at = 0;
  int shown = 0, cut = (int)strlen(s) > most;
  for (; *s && shown < (cut ? most - 1 : most) && at + 8 < n; s++, shown++) {
    const char *e = *s == '&' ? "&amp;" : *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '"' ? "&quot;" : NULL;
    if (e)
      at += (size_t)snprintf(buf + at, n - at, "%s", e);
    else
      buf[at++] = (unsigned char)*s < 32 ? ' ' : *s;
  }
  buf[at] = 0;
  if (cut && at + 4 < n)
    memcpy(buf + at, "\xe2\x80\xa6", 4);
  return buf;
}

static void label(canvas *c, double x, double y, const char *cls, int most, const char *fmt, ...) ATOLL_PRINTF(6, 7);
static void label(canvas *c, double x, double y, const char *cls, int most, const char *fmt, ...) {
  char line[512], safe[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"%s\">%s</text>\n", x, y, cls, escaped(line, most, safe, sizeof safe));
}

static const char *bytes_text(int64_t b, char *buf, size_t n) {
  double v = (double)b;
  if (b <= 0)
    snprintf(buf, n, "memory unknown");
  else if (v >= 0x1p40)
    snprintf(buf, n, "%.3g TiB", v / 0x1p40);
  else if (v >= 0x1p30)
    snprintf(buf, n, "%.3g GiB", v / 0x1p30);
  else
    snprintf(buf, n, "%.3g MiB", v / 0x1p20);
  return buf;
}

static const char *rate_text(double gflops, char *buf, size_t n) {
  if (gflops >= 10000)
    snprintf(buf, n, "%.3g TFLOP/s", gflops / 1000);
  else
    snprintf(buf, n, "%.3g GFLOP/s", gflops);
  return buf;
}

/* Fill and edge per hardware class. */
static const char *const fills[] = {"#cfe3f7", "#fde0c5", "#d3ecd0", "#ead7f2",
                                    "#f9d5da", "#f3ecc2", "#cdeeee", "#e3dcd2"};
static const char *const edges[] = {"#2f6fb0", "#c46a1c", "#3d8b40", "#8445a3",
                                    "#c0394f", "#9a8a14", "#1f8a8a", "#7a6a55"};
#define COLOURS 8

static int class_of(const atoll_topo *t, int i) {
  int next = 0;
  for (int j = 0; j <= i; j++) {
    int seen = 0;
    for (int k = 0; k < j && !seen; k++)
      seen = strcmp(t->device[k].model, t->device[j].model) == 0 &&
             strcmp(t->node[t->device[k].node].kind, t->node[t->device[j].node].kind) == 0;
    int same = strcmp(t->device[i].model, t->device[j].model) == 0 &&
               strcmp(t->node[t->device[i].node].kind, t->node[t->device[j].node].kind) == 0;
    if (same)
      return next;
    next += !seen;
  }
  return next;
}

typedef struct card {
  int node, count;           /* first node, how many equal ones follow it */
  int columns, frames, wide; /* wide: width of a device box */
  double w, h, x, y;
} card;

/* Devices of the k-th NUMA frame of a node, in order; returns how many and the NUMA number. */
static int frame(const atoll_topo *t, int node, int k, int *list, int *numa) {
  const atoll_topo_node *n = &t->node[node];
  int found = -1, last = -3, m = 0;
  for (int i = 0; i < n->devices; i++) {
    int v = t->device[n->first_device + i].numa;
    int seen = 0;
    for (int j = 0; j < i && !seen; j++)
      seen = t->device[n->first_device + j].numa == v;
    if (!seen && ++found == k)
      last = v;
  }
  *numa = last;
  for (int i = 0; i < n->devices && last > -3; i++)
    if (t->device[n->first_device + i].numa == last)
      list[m++] = n->first_device + i;
  return m;
}

static void draw_device(canvas *c, const atoll_topo *t, int i, double x, double y, int w, int ranks) {
  const atoll_topo_device *d = &t->device[i];
  char a[64], b[64];
  int colour = class_of(t, i) % COLOURS, idle = ranks && d->rank < 0;
  put(c, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" stroke=\"%s\"%s/>\n", x, y, w,
      BOX_H, idle ? "#f2f2f2" : fills[colour], idle ? "#aaaaaa" : edges[colour],
      idle ? " stroke-dasharray=\"4 3\"" : "");
  if (d->kind == ATOLL_TOPO_GPU)
    label(c, x + 8, y + 17, "dev", 20, "GPU %s", d->pci);
  else
    label(c, x + 8, y + 17, "dev", d->rank >= 0 ? 14 : 20,
          strncmp(d->cores, "0x", 2) == 0 ? "%d cores"
          : d->ncores == 1                ? "%d core: %s"
                                          : "%d cores: %s",
          d->ncores, d->cores);
  if (d->rank >= 0) {
    int wide = d->rank > 9 ? d->rank > 99 ? 62 : 54 : 46;
    put(c, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"17\" rx=\"8\" fill=\"%s\"/>\n", x + w - wide - 5,
        y + 5 + (d->kind == ATOLL_TOPO_GPU) * 50.0, wide, edges[colour]);
    put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"rank\">rank %d</text>\n", x + w - 5 - wide / 2.0,
        y + 17 + (d->kind == ATOLL_TOPO_GPU) * 50.0, d->rank);
  }
  label(c, x + 8, y + 34, "small", 24, "%s%s%s", bytes_text(d->memory, a, sizeof a),
        d->memory_limit[0] && strcmp(d->memory_limit, "device") != 0 ? ", " : "",
        strcmp(d->memory_limit, "device") != 0 ? d->memory_limit : "");
  double f32 = atoll_samples_median(&d->gemm_f32), bf16 = atoll_samples_median(&d->gemm_bf16),
         gb = atoll_samples_median(&d->bandwidth);
  if (f32 > 0)
    label(c, x + 8, y + 50, "small", 26, "f32 %s%s", rate_text(f32, a, sizeof a), d->declared ? "" : " *");
  if (bf16 > 0)
    label(c, x + 8, y + 66, "small", d->rank >= 0 && d->kind == ATOLL_TOPO_GPU ? 17 : 26, "bf16 %s",
          rate_text(bf16, b, sizeof b));
  else if (gb > 0)
    label(c, x + 8, y + 66, "small", 26, "memory %.3g GB/s", gb);
}

static void draw_card(canvas *c, const atoll_topo *t, const card *k, int *list, int ranks) {
  const atoll_topo_node *n = &t->node[k->node];
  char a[64], count[32] = "";
  put(c, "<g>\n");
  /* A plain second rectangle as shadow: filters are not drawn by every viewer. */
  for (int top = 0; top < 2; top++)
    put(c, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"9\" fill=\"%s\" stroke=\"%s\"/>\n",
        k->x + 2 * !top, k->y + 3 * !top, k->w, k->h, top ? "#ffffff" : "#e4e8ec", top ? "#9aa4ae" : "none");
  if (k->count > 1)
    snprintf(count, sizeof count, " ... %.16s", t->node[k->node + k->count - 1].name);
  label(c, k->x + 12, k->y + 23, "name", (int)(k->w / 10), "%s%s%s%s", n->name, count, n->kind[0] ? "  \xc2\xb7  " : "",
        n->kind);
  if (k->count > 1)
    put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"times\">\xc3\x97 %d</text>\n", k->x + k->w - 12, k->y + 24, k->count);
  const atoll_topo_device *d = n->devices ? &t->device[n->first_device] : NULL;
  label(c, k->x + 12, k->y + 41, "small", (int)(k->w / 6.2), "%s", d ? d->model : "no device");
  label(c, k->x + 12, k->y + 56, "small", (int)(k->w / 6.2), "%d package%s, %d NUMA, %d/%d threads, %s", n->sockets,
        n->sockets == 1 ? "" : "s", n->numa_nodes, n->allowed_threads, n->threads, bytes_text(n->memory, a, sizeof a));
  double y = k->y + 68;
  for (int f = 0; f < k->frames; f++) {
    int numa, m = frame(t, k->node, f, list, &numa), rows = (m + k->columns - 1) / k->columns;
    double h = rows * (BOX_H + GAP) + GAP + 14;
    put(c,
        "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"5\" fill=\"#f6f8fa\" stroke=\"#d4dae0\"/>\n",
        k->x + GAP, y, k->w - 2 * GAP, h);
    if (numa >= 0)
      label(c, k->x + GAP + 8, y + 14, "frame", 30, "NUMA %d", numa);
    else
      label(c, k->x + GAP + 8, y + 14, "frame", 30, "across NUMA nodes");
    for (int i = 0; i < m; i++)
      draw_device(c, t, list[i], k->x + 2 * GAP + (i % k->columns) * (BOX_W + GAP),
                  y + 20 + (int)(i / k->columns) * (BOX_H + GAP), k->wide, ranks);
    y += h + GAP;
  }
  for (int i = 0; i < n->nics; i++) {
    const atoll_topo_nic *nic = &n->nic[i];
    int per = k->columns * 2 > 0 ? k->columns * 2 : 2, w = (int)((k->w - 2 * GAP - (per - 1) * 6) / per);
    double x = k->x + GAP + (i % per) * (w + 6), at = y + (int)(i / per) * 26;
    char speed[32] = "";
    if (nic->speed > 0)
      snprintf(speed, sizeof speed, " %g Gb/s", nic->speed);
    put(c, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"21\" rx=\"10\" fill=\"#eef1f4\" stroke=\"#b5bec7\"/>\n",
        x, at, w);
    label(c, x + 9, at + 14, "nic", w / 6, "%s%s", nic->name, speed);
  }
  put(c, "</g>\n");
}

static const char *shade(double t, char buf[8]) { /* 0 = pale, 1 = deep blue */
  const double lo[3] = {236, 242, 249}, hi[3] = {23, 78, 140};
  snprintf(buf, 8, "#%02x%02x%02x", (int)(lo[0] + t * (hi[0] - lo[0])), (int)(lo[1] + t * (hi[1] - lo[1])),
           (int)(lo[2] + t * (hi[2] - lo[2])));
  return buf;
}

static double draw_links(canvas *c, const atoll_topo *t, double x0, double y0) {
  int n = t->nodes < MATRIX_MAX ? t->nodes : MATRIX_MAX, any = 0;
  char safe[512], other[512];
  double lo = 0, hi = 0;
  for (int i = 0; i < t->links; i++) {
    double b = atoll_samples_median(&t->link[i].bandwidth);
    if (b > 0) {
      lo = !any || b < lo ? b : lo;
      hi = !any || b > hi ? b : hi;
      any = 1;
    }
  }
  if (!any)
    return 0;
  int cell = n <= 4 ? 96 : n <= 8 ? 72 : n <= 16 ? 46 : 26, h = n <= 8 ? 46 : n <= 16 ? 32 : 22;
  label(c, x0, y0 + 16, "name", 80, "Links: bandwidth in GB/s%s", n <= 8 ? ", latency in \xc2\xb5s" : "");
  label(c, x0, y0 + 33, "small", 120, "on the diagonal inside a node; dashes: not measured%s",
        n < t->nodes ? "; the first nodes only" : "");
  double x = x0 + 110, y = y0 + 62;
  for (int i = 0; i < n; i++) {
    if (n <= 16)
      put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"axis\" text-anchor=\"middle\">%s</text>\n", x + i * cell + cell / 2.0,
          y - 6, escaped(t->node[i].name, 10, safe, sizeof safe));
    put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"axis\" text-anchor=\"end\">%s</text>\n", x - 8, y + i * h + h / 2.0 + 4,
        escaped(t->node[i].name, 16, safe, sizeof safe));
  }
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      const atoll_topo_link *l = NULL;
      for (int k = 0; k < t->links && !l; k++)
        if ((t->link[k].a == i && t->link[k].b == j) || (t->link[k].a == j && t->link[k].b == i))
          l = &t->link[k];
      double b = l ? atoll_samples_median(&l->bandwidth) : 0, s = l ? atoll_samples_median(&l->latency) : 0;
      double deep = b > 0 ? hi > lo * 1.001 ? 0.12 + 0.88 * log(b / lo) / log(hi / lo) : 0.5 : 0;
      char colour[8];
      put(c,
          "<rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#ffffff\" "
          "stroke-width=\"2\"/>\n",
          x + i * cell, y + j * h, cell, h, b > 0 ? shade(deep, colour) : "#f3f3f3");
      const char *ink = deep > 0.45 ? "light" : "dark";
      double mx = x + i * cell + cell / 2.0, my = y + j * h + h / 2.0 + 4;
      if (!(b > 0)) {
        if (n <= 16)
          put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"cell dark\">\xe2\x80\x93</text>\n", mx, my);
      } else if (n <= 8 && s > 0) {
        put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"cell %s\">%.3g</text>\n", mx, my - 6, ink, b);
        put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"cell2 %s\">%.3g \xc2\xb5s</text>\n", mx, my + 11, ink, 1e6 * s);
      } else if (n <= 16) {
        put(c, "<text x=\"%.0f\" y=\"%.0f\" class=\"cell %s\">%.3g</text>\n", mx, my, ink, b);
      } else {
        put(c, "<title>%s - %s: %.3g GB/s</title>\n", escaped(t->node[i].name, 60, safe, sizeof safe),
            escaped(t->node[j].name, 60, other, sizeof other), b);
      }
    }
  return 62 + n * h + 20;
}

static double links_width(const atoll_topo *t) {
  int n = t->nodes < MATRIX_MAX ? t->nodes : MATRIX_MAX;
  return t->links ? 110 + n * (n <= 4 ? 96 : n <= 8 ? 72 : n <= 16 ? 46 : 26) : 0;
}

atoll_err atoll_topo_draw(const atoll_topo *t, char **svg, size_t *bytes) {
  canvas c = {0};
  char hex[33], safe[512], mem[64];
  card *cards = calloc((size_t)t->nodes + 1, sizeof *cards);
  int *list = malloc(sizeof *list * (size_t)(t->devices + 1));
  if (!cards || !list) {
    free(cards);
    free(list);
    return atoll_fail(ATOLL_NOMEM, "no memory to draw %d nodes", t->nodes);
  }
  int count = 0, hidden = 0, ranks = 0;
  for (int i = 0; i < t->devices; i++)
    ranks |= t->device[i].rank >= 0;
  for (int i = 0; i < t->nodes;) {
    int same = 1;
    /* Few nodes are all shown; of many, equal neighbours share a card. */
    while (t->nodes > 8 && i + same < t->nodes && topo_nodes_equal(t, i, i + same))
      same++;
    if (count == CARDS_MAX) {
      hidden += same;
    } else {
      cards[count].node = i;
      cards[count++].count = same;
    }
    i += same;
  }
  /* Card sizes, then rows of cards in a page about as wide as a screen. */
  const double page = 1520, margin = 28;
  double x = margin, y = 92, row = 0, width = 640;
  for (int k = 0; k < count; k++) {
    const atoll_topo_node *n = &t->node[cards[k].node];
    int numa, most = 0, height = 0;
    cards[k].frames = 0;
    for (int f = 0, m; (m = frame(t, cards[k].node, f, list, &numa)) > 0; f++, cards[k].frames++)
      most = m > most ? m : most;
    cards[k].columns = most <= 2 ? 2 : most <= 4 ? most == 3 ? 3 : 4 : most <= 16 ? 4 : 6;
    cards[k].wide = most <= 1 ? 2 * BOX_W + GAP : BOX_W; /* a lone device takes the width of the card */
    for (int f = 0; f < cards[k].frames; f++) {
      int m = frame(t, cards[k].node, f, list, &numa);
      height += (m + cards[k].columns - 1) / cards[k].columns * (BOX_H + GAP) + GAP + 14 + GAP;
    }
    int per = cards[k].columns * 2;
    cards[k].w = cards[k].columns * (BOX_W + GAP) + 3 * GAP;
    cards[k].h = 68 + height + (n->nics + per - 1) / per * 26 + (n->nics ? 4 : 0);
    if (x > margin && x + cards[k].w > page) {
      x = margin;
      y += row + 18;
      row = 0;
    }
    cards[k].x = x;
    cards[k].y = y;
    x += cards[k].w + 18;
    row = cards[k].h > row ? cards[k].h : row;
    width = x > width ? x : width;
  }
  y += row + 36;
  if (links_width(t) + 2 * margin > width)
    width = links_width(t) + 2 * margin;
  width += margin - 18;
  put(&c, "<g>\n");
  label(&c, margin, 38, "title", (int)(width / 13), "%s", t->source[0] ? t->source : "topology");
  label(&c, margin, 60, "sub", (int)(width / 6.4), "%s  \xc2\xb7  %d node%s, %d device%s  \xc2\xb7  identity %.12s%s",
        t->backend, t->nodes, t->nodes == 1 ? "" : "s", t->devices, t->devices == 1 ? "" : "s",
        atoll_digest_text(atoll_topo_identity(t), hex), ranks ? "" : "  \xc2\xb7  no ranks");
  put(&c, "</g>\n");
  for (int k = 0; k < count; k++)
    draw_card(&c, t, &cards[k], list, ranks);
  if (hidden) {
    label(&c, margin, y, "sub", 100, "... and %d more nodes", hidden);
    y += 24;
  }
  /* Legend: one line per hardware class. */
  int classes = 0, measured = 0;
  for (int i = 0; i < t->devices; i++) {
    measured |= t->device[i].gemm_f32.n && !t->device[i].declared;
    if (class_of(t, i) != classes)
      continue;
    int same = 0;
    for (int j = i; j < t->devices; j++)
      same += class_of(t, j) == classes;
    put(&c, "<rect x=\"%.0f\" y=\"%.0f\" width=\"16\" height=\"16\" rx=\"4\" fill=\"%s\" stroke=\"%s\"/>\n", margin,
        y - 12, fills[classes % COLOURS], edges[classes % COLOURS]);
    const char *kind = t->node[t->device[i].node].kind;
    label(&c, margin + 25, y + 1, "sub", (int)(width / 6.8), "%d \xc3\x97 %s%s%s  \xc2\xb7  %s%s%s%s", same,
          t->device[i].model, kind[0] ? "  \xc2\xb7  " : "", kind, bytes_text(t->device[i].memory, mem, sizeof mem),
          t->device[i].memory > 0 ? " each" : "", t->device[i].isa[0] ? "  \xc2\xb7  " : "", t->device[i].isa);
    y += 24;
    classes++;
    if (classes == 24)
      break;
  }
  if (measured) {
    label(&c, margin, y, "small", 80, "* measured: median of up to %d samples", ATOLL_TOPO_SAMPLES);
    y += 20;
  }
  y += 8;
  y += draw_links(&c, t, margin, y);
  if (t->note[0]) {
    /* Notes are wrapped at spaces: they are the part a reader must not miss. */
    const char *p = t->note;
    size_t most = (size_t)(width / 6.6);
    while (*p) {
      size_t len = strlen(p);
      if (len > most) {
        len = most;
        while (len > most / 2 && p[len] != ' ')
          len--;
      }
      char line[512];
      topo_text(line, len + 1 < sizeof line ? len + 1 : sizeof line, p);
      put(&c, "<text x=\"%.0f\" y=\"%.0f\" class=\"note\">%s%s</text>\n", margin, y, p == t->note ? "Note: " : "",
          escaped(line, 500, safe, sizeof safe));
      y += 17;
      p += len;
      p += strspn(p, " ");
    }
  }
  y += 14;
  canvas page_out = {0};
  put(&page_out,
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n"
      "<style>text{font-family:'DejaVu "
      "Sans',Verdana,Helvetica,sans-serif;fill:#1f2933}.title{font-size:20px;font-weight:bold}.sub{font-size:13px;fill:"
      "#52606d}"
      ".name{font-size:15px;font-weight:bold}.times{font-size:15px;font-weight:bold;text-anchor:end;fill:#52606d}."
      "small{font-size:11px;fill:#3e4c59}"
      ".dev{font-size:12px;font-weight:bold}.rank{font-size:11px;font-weight:bold;text-anchor:middle;fill:#ffffff}."
      "frame{font-size:10px;fill:#7b8794}"
      ".nic{font-size:10px;fill:#52606d}.axis{font-size:11px}.cell{font-size:12px;text-anchor:middle}.cell2{font-size:"
      "10px;text-anchor:middle}"
      ".light{fill:#ffffff}.dark{fill:#1f2933}.note{font-size:12px;fill:#8a5a00}</style>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#fbfcfd\"/>\n%s</svg>\n",
      width, y, width, y, c.text ? c.text : "");
  free(cards);
  free(list);
  free(c.text);
  if (c.failed || page_out.failed) {
    free(page_out.text);
    return atoll_fail(ATOLL_NOMEM, "no memory for the drawing");
  }
  *svg = page_out.text;
  *bytes = page_out.n;
  return ATOLL_OK;
}

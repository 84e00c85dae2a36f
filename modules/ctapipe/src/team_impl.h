/* The inside of a team, for linear_team.c and team_mlp.c. */
#ifndef ATOLL_CTA_TEAM_IMPL_H
#define ATOLL_CTA_TEAM_IMPL_H

#include "atoll/linear_team.h"
#include "chain_impl.h"

/* UNIT: columns that the kernels compute together; a share that begins elsewhere might give other bits. TILES: of a
 * rank's share of an MLP's layer, so that what one rank lags behind another can take. */
enum { TEAM_UNIT = 32, TEAM_SHAPES = 64, TEAM_TILES = 8 };

struct team_shape {
  int64_t R, I, H, O; /* H 0: a product */
  int activation;     /* of an MLP */
  atoll_chain_way way;
  int remembered;
  double alone, chosen; /* s */
};

/* What rank 0 knows of a shape, for the others. */
struct team_word {
  int remembered;
  atoll_chain_choice choice;
};

struct atoll_linear_team {
  atoll_comm *comm;
  atoll_mem *mem;
  atoll_queue *queue;
  atoll_device *device;
  atoll_device *at_once; /* for kernels that a task calls ... */
  atoll_queue *inner;    /* ... on this queue */
  atoll_symmetric *symmetric;
  const atoll_kernels *plain;
  atoll_kernels kernels;
  atoll_decode_kernels decode;
  struct cta_view view; /* for its meetings, waits and epochs */
  struct team_word *word;
  double *seconds[CTA_RANKS];       /* [ATOLL_CHAIN_WAYS], written by that rank */
  cta_claim *claim[CTA_RANKS];      /* [2]: tiles taken of its share of each layer of an MLP */
  cta_line *flag;                   /* [ranks * TEAM_TILES]: tiles of hidden values */
  float *result[2], *own;           /* [most]; results are all ranks' */
  float *shared_hidden, *hidden[2]; /* [room]; the first is all ranks' */
  int64_t most, room;
  char choices[4096]; /* file; rank 0's */
  int parity, shapes;
  struct team_shape shape[TEAM_SHAPES];
};

/* y [R, O] = x [R, I] w^T + b, w [O, I]; or with H > 0 an MLP: w, b, gate of H columns, then w2 [O, H], b2. */
struct team_call {
  atoll_linear_team *team;
  const float *x, *w, *b;
  float *y;
  int64_t R, I, O, H;
  const float *gate, *w2, *b2;
  atoll_activation activation;
};

/* By every rank alone, and each product's columns divided. */
atoll_err team_alone(const struct team_call *c);
atoll_err team_shared(const struct team_call *c);

/* MLPs (team_mlp.c). */
atoll_err team_mlp_alone(const struct team_call *c);
atoll_err team_mlp_shared(const struct team_call *c);
atoll_err team_mlp_pipelined(const struct team_call *c);

#endif

/* The two norms behind one interface. */
#include "layer_impl.h"

#define KERNELS (n->l->e->kernels)
#define QUEUE   (n->l->e->compute)

atoll_err layer_norm_forward(const layer_norm *n, const void *x, void *y) {
  float eps = (float)n->l->config->norm_eps;
  if (!n->beta)
    return KERNELS->rmsnorm_forward(QUEUE, x, n->gamma, y, n->rstd, n->rows, n->C, eps);
  return KERNELS->layernorm_forward(QUEUE, x, n->gamma, n->beta, y, n->mean, n->rstd, n->rows, n->C, eps);
}

atoll_err layer_norm_apply(const layer_norm *n, const void *x, void *y) {
  if (!n->beta)
    return KERNELS->rmsnorm_apply(QUEUE, x, n->rstd, n->gamma, y, n->rows, n->C);
  return KERNELS->layernorm_apply(QUEUE, x, n->mean, n->rstd, n->gamma, n->beta, y, n->rows, n->C);
}

atoll_err layer_norm_input(const layer_norm *n, const void *dy, const void *x, void *dx, int accumulate) {
  if (!n->beta)
    return KERNELS->rmsnorm_backward_input(QUEUE, dy, x, n->rstd, n->gamma, dx, n->rows, n->C, accumulate);
  return KERNELS->layernorm_backward_input(QUEUE, dy, x, n->mean, n->rstd, n->gamma, dx, n->rows, n->C, accumulate);
}

atoll_err layer_norm_weight(const layer_norm *n, const void *dy, const void *x, float *dgamma, float *dbeta) {
  if (!n->beta)
    return KERNELS->rmsnorm_backward_weight(QUEUE, dy, x, n->rstd, dgamma, n->rows, n->C);
  return KERNELS->layernorm_backward_weight(QUEUE, dy, x, n->mean, n->rstd, dgamma, dbeta, n->rows, n->C);
}

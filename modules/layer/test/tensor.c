/* Two and four tensor ranks against one, by small models of each family with dropout and padding: losses and every
 * gradient agree but for the order of sums, what no rank divides has the same bits on all of them, initial values are
 * those of one rank, and bytes are what was said; and so with a pipelined MLP. Also: heads that the degree does not
 * divide are refused. */
#include "stage_test.h"

#include "mpi_check.h"

enum { L = 2, H = 32, V = 29, B = 2, S = 11, MICRO = 2, N = B * S * MICRO };

/* Of the largest gradient of a parameter; of a hundredth of the largest of all where that is more, for keys' biases
 * have none but rounding. Sums of some hundred terms in another order: measured below 8e-6. */
static const double tolerances[] = {[ATOLL_F32] = 2e-5, [ATOLL_BF16] = 0.05};

static atoll_model *make(int family, atoll_dtype dtype) {
  atoll_model_params p;
  atoll_model_params_init(&p);
  p.family = family, p.dtype = (int)dtype;
  p.layers = L, p.width = H, p.vocab = V, p.context = S + 1, p.dropout = 0.2, p.heads = 4, p.init_std = 0.2;
  if (family == ATOLL_FAMILY_LLAMA)
    p.ffn = 40, p.heads = 8, p.kv_heads = 4;
  atoll_model *m = NULL;
  CHECK_OK(atoll_model_create(&p, &m));
  return m;
}

static samples sample(const atoll_model *m) {
  static int32_t tokens[N], targets[N], types[N];
  static const int32_t lengths[] = {11, 7, 1, 11}, next[] = {0, 1, -1, 1};
  ids(N, V, tokens, targets);
  samples s = {.tokens = tokens, .targets = targets, .loss_scale = 1.0f / N};
  if (atoll_model_causal(m))
    return s;
  for (int i = 0; i < N; i++)
    types[i] = i % S > 5 && atoll_model_config(m)->types > 1;
  s.types = types, s.lengths = lengths, s.next = next, s.next_scale = 0.25f;
  return s;
}

/* Whether ranks have a part each, or one of them all of it. */
static int divided(const atoll_model *m, int param, int degree, atoll_mlp mlp) {
  atoll_tensor block[ATOLL_LAYER_BLOCKS];
  int n, apart = 0;
  int64_t sum = 0, all = elements(atoll_model_param_at(m, param));
  for (int k = 0; k < degree; k++) {
    int64_t mine = 0;
    CHECK_OK(atoll_layer_blocks(m, param, k, degree, mlp, block, &n));
    for (int i = 0; i < n; i++)
      mine += atoll_tensor_local_count(&block[i]);
    apart |= mine < all;
    sum += mine;
  }
  CHECK(sum == (apart ? all : degree * all));
  return apart;
}

static void compare(const atoll_model *m, atoll_comm *group, atoll_mlp mlp, result *got, const result *want) {
  int degree = atoll_comm_size(group), matrices = 0;
  const double tolerance = tolerances[atoll_model_config(m)->dtype];
  for (int64_t i = 0; i < want->losses; i++)
    CHECK(fabs(got->loss[i] - want->loss[i]) <= tolerance * (1 + fabs(want->loss[i])));
  CHECK_OK(atoll_agree_digest(atoll_comm_mpi(group), "losses",
                              atoll_digest_bytes(got->loss, (size_t)got->losses * sizeof *got->loss)));
  int64_t at = 0;
  double all = 0, worst = 0;
  for (int64_t e = 0; e < want->n; e++)
    all = fmax(all, fabs(want->grad[e]));
  for (int p = 0; p < atoll_model_params_count(m); p++) {
    int64_t n = elements(atoll_model_param_at(m, p));
    float *g = got->grad + at;
    if (divided(m, p, degree, mlp)) {
      MPI_Allreduce(MPI_IN_PLACE, g, (int)n, MPI_FLOAT, MPI_SUM, atoll_comm_mpi(group));
      matrices++;
    } else {
      CHECK_OK(atoll_agree_digest(atoll_comm_mpi(group), atoll_model_param_at(m, p)->name,
                                  atoll_digest_bytes(g, (size_t)n * sizeof *g)));
    }
    double largest = all / 100;
    for (int64_t e = 0; e < n; e++)
      largest = fmax(largest, fabs(want->grad[at + e]));
    for (int64_t e = 0; e < n; e++) {
      double error = fabs(g[e] - want->grad[at + e]) / largest;
      worst = fmax(worst, error);
      if (!(error <= tolerance)) {
        fprintf(stderr, "%s element %lld on %d ranks: %.9g, on one %.9g\n", atoll_model_param_at(m, p)->name,
                (long long)e, degree, g[e], want->grad[at + e]);
        CHECK(0);
      }
    }
    at += n;
  }
  CHECK(matrices > 4 * L);
  if (getenv("ATOLL_TEST_VERBOSE") && check_rank == 0)
    printf("%s on %d: %.1e\n", atoll_model_family_name(m), degree, worst);
}

/* Biases are 0 to begin with, and then it does not matter who adds them. */
static void set_vectors(const atoll_model *m, int param, float *values, int64_t n) {
  for (int64_t e = 0; atoll_model_param_at(m, param)->ndim == 1 && e < n; e++)
    values[e] += 0.1f * (float)(param % 5 - 2);
}

static void gradients(atoll_comm *group, int family, atoll_dtype dtype, atoll_mlp mlp, const char *device,
                      atoll_policy policy, const int *cuts, int stages) {
  atoll_model *m = make(family, dtype);
  const char *kernels = dtype == ATOLL_BF16 ? "cpu:bf16" : "cpu";
  samples given = sample(m);
  rig one = rig_open(m, "cpu", kernels, 1, 0), many = rig_open(m, device, kernels, 1, 0);
  many.e.tensor = group;
  many.mlp = mlp;
  result want = run_samples(&one, cuts, stages, policy, B, S, MICRO, set_vectors, &given);
  result got = run_samples(&many, cuts, stages, policy, B, S, MICRO, set_vectors, &given);
  compare(m, group, mlp, &got, &want);
  result_free(&want);
  result_free(&got);
  rig_close(&one);
  rig_close(&many);
  atoll_model_destroy(&m);
}

/* A stage of this rank, with its bytes. */
static atoll_stage *stage_of(const rig *r, atoll_comm *group, atoll_mlp mlp, int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  atoll_stage *s = NULL;
  atoll_stage_params p = {.last = L + 2, .B = B, .S = S, .slots = 1, .partials = 1, .train = 1};
  if (group) {
    p.tensor = atoll_comm_size(group);
    p.tensor_rank = atoll_comm_rank(group);
    p.mlp = mlp;
  }
  CHECK_OK(atoll_stage_bytes(r->m, &p, bytes));
  CHECK_OK(atoll_stage_create(r->m, &p, &r->e, &s));
  CHECK_OK(atoll_stage_init(s, 7));
  CHECK_OK(atoll_queue_sync(r->e.compute));
  return s;
}

static void values_and_bytes(atoll_comm *group, int family, atoll_dtype dtype, atoll_mlp mlp) {
  atoll_model *m = make(family, dtype);
  const char *kernels = dtype == ATOLL_BF16 ? "cpu:bf16" : "cpu";
  rig one = rig_open(m, "cpu", kernels, 1, 0), many = rig_open(m, "cpu", kernels, 1, 0);
  many.e.tensor = group;
  int64_t whole[ATOLL_MEM_CATEGORIES], part[ATOLL_MEM_CATEGORIES];
  atoll_stage *a = stage_of(&one, NULL, mlp, whole), *b = stage_of(&many, group, mlp, part);
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    CHECK(atoll_mem_current(many.e.mem, (atoll_mem_category)c) == part[c]);
  CHECK(!*atoll_stage_mlp_choice(a) && !*atoll_stage_mlp_choice(b) == (mlp != ATOLL_MLP_AUTO));
  CHECK(part[ATOLL_MEM_PARAMETER] < whole[ATOLL_MEM_PARAMETER] &&
        part[ATOLL_MEM_ACTIVATION] < whole[ATOLL_MEM_ACTIVATION]);
  const atoll_tensor *x, *y;
  const int *xi, *yi;
  int nx, ny, equal = 0;
  CHECK_OK(atoll_stage_tensors(a, ATOLL_STAGE_PARAM, &x, &xi, &nx));
  CHECK_OK(atoll_stage_tensors(b, ATOLL_STAGE_PARAM, &y, &yi, &ny));
  for (int i = 0; i < nx; i++)
    for (int k = 0; k < ny; k++)
      for (int64_t e = 0; xi[i] == yi[k] && e < atoll_tensor_local_count(&y[k]); e++, equal++)
        CHECK(((float *)y[k].data)[e] == ((float *)x[i].data)[whole_element(&y[k], e)]);
  int64_t bytes = (int64_t)equal * (int64_t)atoll_dtype_bytes(dtype); /* of what layers read; masters are equal */
  CHECK(bytes <= part[ATOLL_MEM_PARAMETER] && bytes > part[ATOLL_MEM_PARAMETER] / 2);
  atoll_stage_destroy(&a);
  atoll_stage_destroy(&b);
  rig_close(&one);
  rig_close(&many);
  atoll_model_destroy(&m);
}

static void refusals(void) {
  atoll_model *m = model_of(L, 30, 3, V, S, 0);
  CHECK(atoll_layer_check_tensor(m, 2) == ATOLL_USAGE);
  CHECK(strstr(atoll_err_message(), "degree 2") && strstr(atoll_err_message(), "3 heads"));
  atoll_stage_params p = {.last = L + 2, .B = B, .S = S, .slots = 1, .partials = 1, .train = 1, .tensor = 2};
  int64_t bytes[ATOLL_MEM_CATEGORIES];
  CHECK(atoll_stage_bytes(m, &p, bytes) == ATOLL_USAGE);
  atoll_model_destroy(&m);
  m = make(ATOLL_FAMILY_LLAMA, ATOLL_F32);
  CHECK(atoll_layer_check_tensor(m, 4) == ATOLL_OK);
  CHECK(atoll_layer_check_tensor(m, 8) == ATOLL_USAGE && strstr(atoll_err_message(), "4 key heads"));
  rig r = rig_open(m, "cpu", "cpu", 1, 0);
  atoll_stage *s = NULL;
  CHECK(atoll_stage_create(m, &p, &r.e, &s) == ATOLL_USAGE && strstr(atoll_err_message(), "rank 0 of 1"));
  p.mlp = ATOLL_MLP_CTA;
  p.tensor = 0;
  CHECK(atoll_stage_bytes(m, &p, bytes) == ATOLL_USAGE && strstr(atoll_err_message(), "cta"));
  rig_close(&r);
  atoll_model_destroy(&m);
}

int main(int argc, char **argv) {
  static const int families[] = {ATOLL_FAMILY_GPT2, ATOLL_FAMILY_LLAMA, ATOLL_FAMILY_BERT, ATOLL_FAMILY_ROBERTA};
  static const int whole[] = {0, L + 2}, halves[] = {0, 2, L + 2};
  check_begin(&argc, &argv);
  atoll_comm *world = NULL, *group = NULL;
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &world));
  setenv("ATOLL_CACHE", ".", 1);
  for (int degree = 2; degree <= check_size; degree *= 2) {
    CHECK_OK(atoll_comm_split(world, check_rank / degree, check_rank, "tensor", &group));
    for (int i = 0; i < 4; i++) {
      for (int d = 0; d < 2; d++) {
        atoll_dtype dtype = d ? ATOLL_BF16 : ATOLL_F32;
        for (int mlp = ATOLL_MLP_PLAIN; mlp <= ATOLL_MLP_CTA; mlp++) {
          gradients(group, families[i], dtype, (atoll_mlp)mlp, "cpu", ATOLL_POLICY_EXACT20, whole, 1);
          gradients(group, families[i], dtype, (atoll_mlp)mlp, "async", ATOLL_POLICY_EAGER, whole, 1);
          gradients(group, families[i], dtype, (atoll_mlp)mlp, "cpu", ATOLL_POLICY_EXACT4, halves, 2);
          values_and_bytes(group, families[i], dtype, (atoll_mlp)mlp);
        }
        gradients(group, families[i], dtype, ATOLL_MLP_CTA_OWN, "cpu", ATOLL_POLICY_EXACT20, whole, 1);
        if (degree == 2 && i < 2 && d == 0) { /* measures, then remembers */
          gradients(group, families[i], dtype, ATOLL_MLP_AUTO, "cpu", ATOLL_POLICY_EXACT20, whole, 1);
          gradients(group, families[i], dtype, ATOLL_MLP_AUTO, "async", ATOLL_POLICY_EXACT4, halves, 2);
          values_and_bytes(group, families[i], dtype, ATOLL_MLP_AUTO);
        }
      }
    }
    atoll_comm_destroy(&group);
  }
  refusals();
  atoll_comm_destroy(&world);
  return check_end();
}

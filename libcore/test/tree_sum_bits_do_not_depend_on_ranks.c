/* The sum over the tree has the bits of a serial walk of the tree, for any distribution of its leaves over the ranks:
 * whole nodes or single leaves, one rank with nothing, any number of elements and any size of piece. */
#include "mpi_check.h"

#include "atoll/comm.h"

/* The same sequence on every rank. */
static uint64_t random_state = 12345;
static int64_t below(int64_t n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((random_state >> 33) % (uint64_t)n);
}

/* Values of very different sizes, so that another order of additions has other bits. */
static float leaf_value(int64_t leaf, int64_t i, int salt) {
  uint64_t z = (uint64_t)leaf * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u + (uint64_t)salt;
  z = (z ^ (z >> 31)) * 0x94d049bb133111ebu;
  z ^= z >> 29;
  return (float)((double)(int64_t)(z >> 20) / 1e9 - 8796.0) * (z & 1 ? 1.0f : 1e-4f);
}

/* The oracle, written from the definition: split [a, b) at a + the largest power of two below b - a. */
static float tree(int64_t a, int64_t b, int64_t i, int salt) {
  if (b - a == 1)
    return leaf_value(a, i, salt);
  int64_t p = 1;
  while (p * 2 < b - a)
    p *= 2;
  float left = tree(a, a + p, i, salt), right = tree(a + p, b, i, salt);
  return left + right;
}

static atoll_comm *comm;
static atoll_queue *queue;

static void one(int64_t leaves, int64_t count, int64_t piece, int mode, int salt) {
  enum { PARTS = 256 };
  static int64_t first[PARTS], n[PARTS];
  int64_t *owner_cut = calloc((size_t)check_size + 1, sizeof *owner_cut);
  int parts = 0, widest = 1;
  int idle = check_size > 1 && mode != 3 ? (int)below(check_size) : -1; /* the same on all ranks */
  if (mode == 0 || mode == 3) {                                         /* contiguous ranges as maximal nodes */
    for (int r = 1; r < check_size; r++)
      owner_cut[r] = below(leaves + 1);
    owner_cut[check_size] = leaves;
    for (int i = 1; i < check_size; i++) /* sort */
      for (int j = i; j > 1 && owner_cut[j] < owner_cut[j - 1]; j--) {
        int64_t t = owner_cut[j];
        owner_cut[j] = owner_cut[j - 1];
        owner_cut[j - 1] = t;
      }
    parts = atoll_tree_nodes(leaves, owner_cut[check_rank], owner_cut[check_rank + 1] - owner_cut[check_rank], first, n,
                             PARTS);
  } else { /* single leaves dealt out at random, given in descending order */
    for (int64_t leaf = 0; leaf < leaves; leaf++) {
      int owner = (int)below(check_size);
      if (owner == idle)
        owner = (owner + 1) % check_size;
      if (owner == check_rank) {
        for (int k = parts; k > 0; k--) {
          first[k] = first[k - 1];
        }
        first[0] = leaf;
        n[parts++] = 1;
      }
    }
  }
  CHECK(parts <= PARTS);
  MPI_Allreduce(&parts, &widest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  int64_t work_n = atoll_comm_tree_sum_work(check_size, widest > 0 ? widest : 1, piece);
  float *part[PARTS], *out = NULL;
  float *work = malloc((size_t)(work_n + 1) * sizeof *work), guard = 1.25f;
  work[work_n] = guard; /* the bound holds */
  for (int p = 0; p < parts; p++) {
    part[p] = malloc((size_t)(count + 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++)
      part[p][i] = tree(first[p], first[p] + n[p], i, salt);
  }
  int alias = parts && mode % 2 == 0;
  out = alias ? part[0] : malloc((size_t)(count + 1) * sizeof *out);
  CHECK_OK(atoll_comm_tree_sum(comm, queue, leaves, parts, first, n, part, count, out, work, piece));
  CHECK_OK(atoll_queue_sync(queue));
  for (int64_t i = 0; i < count; i++) {
    float want = tree(0, leaves, i, salt);
    CHECK(!memcmp(&want, &out[i], sizeof want));
  }
  for (int p = alias; p < parts; p++) /* parts are only read */
    for (int64_t i = 0; i < count; i++) {
      float want = tree(first[p], first[p] + n[p], i, salt);
      CHECK(!memcmp(&want, &part[p][i], sizeof want));
    }
  CHECK(work[work_n] == guard);
  for (int p = 0; p < parts; p++)
    free(part[p]);
  if (!alias)
    free(out);
  free(work);
  free(owner_cut);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "data", NULL, &comm));
  for (int k = 0; k < 2; k++) {
    atoll_device *device;
    CHECK_OK(atoll_device_open(k ? "async" : "cpu", NULL, &device));
    CHECK_OK(atoll_queue_create(device, "comm", &queue));
    /* Serial order has other bits somewhere, or the test shows nothing. */
    int differs = 0;
    for (int64_t i = 0; i < 50; i++) {
      float s = 0;
      for (int64_t l = 0; l < 11; l++)
        s += leaf_value(l, i, 0);
      differs += s != tree(0, 11, i, 0);
    }
    CHECK(differs > 0);
    const int64_t counts[] = {0, 1, 2, 7, 64, 101};
    for (int round = 0; round < 60; round++) {
      int64_t leaves = 1 + below(round < 10 ? 4 : 40), count = counts[below(6)], piece = 1 + below(130);
      one(leaves, count, piece, (int)below(3), round);
    }
    /* The same layout again and again, then another: the remembered one is used and replaced. */
    for (int i = 0; i < 4; i++) {
      uint64_t saved = random_state;
      one(13, 33, 10, 3, i);
      if (i != 2)
        random_state = saved;
    }
    atoll_queue_destroy(&queue);
    atoll_device_close(&device);
  }
  atoll_comm_destroy(&comm);
  return check_end();
}

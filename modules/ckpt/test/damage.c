/* COMMIT in a thousand mutations and truncations: each is refused as CORRUPT, none crashes. A flipped bit in any file
 * of a checkpoint is found. */
#include "ckpt_test.h"

#include "ckpt_impl.h"

static uint64_t state = 99;
static uint32_t next(void) { return (uint32_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33); }

static void mutate_commit(const char *dir) {
  char path[1200], *text;
  size_t bytes;
  snprintf(path, sizeof path, "%s/COMMIT", dir);
  CHECK(atoll_file_read(path, &text, &bytes) == ATOLL_OK);
  manifest m;
  CHECK(manifest_from_commit(path, text, bytes, &m) == ATOLL_OK);
  manifest_free(&m);
  for (size_t n = 0; n < bytes; n++) { /* every truncation */
    CHECK(manifest_from_commit(path, text, n, &m) == ATOLL_CORRUPT);
  }
  char *copy = malloc(bytes);
  for (int i = 0; i < 1000;
       i++) { /* mutations below the digest's notice: it is made anew, as a writer with a bug would */
    memcpy(copy, text, bytes);
    for (uint32_t k = 0; k < 1 + next() % 4; k++)
      copy[next() % (bytes - 45)] = (char)(next() % 2 ? "0123456789:-[]{},\n '\"#&*|>%"[next() % 28] : (int)next());
    char hex[33];
    memcpy(copy + bytes - 33, atoll_digest_text(atoll_digest_bytes(copy, bytes - 43), hex), 32);
    atoll_err err = manifest_from_commit(path, copy, bytes, &m);
    CHECK(err == ATOLL_OK || err == ATOLL_CORRUPT);
    if (err == ATOLL_OK)
      manifest_free(&m);
    copy[next() % (bytes - 45)] ^= 1; /* and with the old digest */
    CHECK(manifest_from_commit(path, copy, bytes, &m) == ATOLL_CORRUPT);
  }
  free(copy);
  free(text);
}

static void flip_each_file(const char *dir) {
  char **names, path[1200];
  size_t n;
  CHECK(atoll_file_list(dir, &names, &n) == ATOLL_OK);
  CHECK(n >= 5);
  for (size_t i = 0; i < n; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    FILE *f = fopen(path, "r+b");
    CHECK(f != NULL);
    fseek(f, 0, SEEK_END);
    long at = ftell(f) / 2;
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 4, f);
    fclose(f);
    CHECK(atoll_ckpt_verify(dir) == ATOLL_CORRUPT);
    CHECK(strstr(atoll_err_message(), names[i]) != NULL);
    f = fopen(path, "r+b");
    fseek(f, at, SEEK_SET);
    fputc(c, f);
    fclose(f);
    CHECK(atoll_ckpt_verify(dir) == ATOLL_OK);
  }
  atoll_file_list_free(&names, n);
}

int main(int argc, char **argv) {
  CHECK(atoll_mpi_init(&argc, &argv) == ATOLL_OK);
  CHECK(atoll_file_remove_tree("ckpt-damage") == ATOLL_OK);
  CHECK(save_model(MPI_COMM_WORLD, "ckpt-damage", 1, 1, 1) == ATOLL_OK);
  mutate_commit("ckpt-damage/step-00000001.a1");
  flip_each_file("ckpt-damage/step-00000001.a1");
  CHECK(atoll_ckpt_verify("ckpt-damage/absent") == ATOLL_NOINPUT);
  CHECK(atoll_file_remove_tree("ckpt-damage") == ATOLL_OK);
  MPI_Finalize();
  return 0;
}

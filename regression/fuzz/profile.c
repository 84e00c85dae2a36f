/* Profiles in the text form that ranks exchange. */
#include "atoll/profile.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  atoll_profile *p = NULL, *again = NULL;
  char *once = NULL, *twice = NULL;
  size_t n = 0, m = 0;
  FUZZ_CHECK(atoll_profile_create(&p) == ATOLL_OK && atoll_profile_create(&again) == ATOLL_OK);
  atoll_err err = atoll_profile_unpack(p, (const char *)data, bytes);
  if (err != ATOLL_OK) {
    fuzz_refused(err);
  } else {
    FUZZ_CHECK(atoll_profile_pack(p, &once, &n) == ATOLL_OK);
    FUZZ_CHECK(atoll_profile_unpack(again, once, n) == ATOLL_OK);
    FUZZ_CHECK(atoll_profile_pack(again, &twice, &m) == ATOLL_OK);
    FUZZ_CHECK(n == m && memcmp(once, twice, n) == 0);
  }
  free(once);
  free(twice);
  atoll_profile_destroy(&p);
  atoll_profile_destroy(&again);
  return 0;
}

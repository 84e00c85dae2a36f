/* What a program outside this tree does with the installed libraries: hash, name errors, read a plan. */
#include <stdio.h>
#include <string.h>

#include "atoll/digest.h"
#include "atoll/plan.h"
#include "atoll/version.h"

int main(void) {
  char text[33];
  atoll_digest digest = atoll_digest_bytes("atoll", 5), again;
  if (atoll_digest_parse(atoll_digest_text(digest, text), &again) != 0 || !atoll_digest_equal(digest, again)) {
    fprintf(stderr, "a digest does not survive its own text %s\n", text);
    return 1;
  }
  atoll_plan *plan = NULL;
  const char *broken = "version: 999\n";
  atoll_err err = atoll_plan_from_text("broken", broken, strlen(broken), &plan);
  if (err == ATOLL_OK || plan != NULL) {
    fprintf(stderr, "a plan of version 999 was accepted\n");
    return 1;
  }
  printf("consumer: atoll %s, digest %s, plan refused: %s\n", atoll_version(), text, atoll_err_message());
  return 0;
}

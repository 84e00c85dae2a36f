#define CTA_NAME  "plain"
#define CTA_TABLE cta_micro_plain
#define LANES     4
#define ROWS      4
#include "micro.inc"

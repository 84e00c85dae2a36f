#define CTA_NAME  "avx2"
#define CTA_TABLE cta_micro_avx2
#define LANES     8
#define ROWS      6
#include "micro.inc"

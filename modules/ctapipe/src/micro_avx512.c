#define CTA_NAME  "avx512"
#define CTA_TABLE cta_micro_avx512
#define LANES     16
#define ROWS      8
#include "micro.inc"

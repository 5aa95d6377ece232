#define GANTRY_PRODUCT multiply_baseline
#include "kernels/sim/linalg/matrix_product.inl"

#define GANTRY_PRODUCT multiply_baseline
#include "kernels/sim/matrix_product.inl"

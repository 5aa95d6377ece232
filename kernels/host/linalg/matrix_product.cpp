#define GANTRY_PRODUCT multiply_baseline
#include "kernels/host/linalg/matrix_product.inl"

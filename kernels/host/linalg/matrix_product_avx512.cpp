// Compiled for AVX-512: Note [One library for several processors].
#define Eigen EigenForAvx512  // NOLINT(readability-identifier-naming)
#define GANTRY_PRODUCT multiply_avx512
#include "kernels/host/linalg/matrix_product.inl"

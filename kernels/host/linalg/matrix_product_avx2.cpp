// Compiled with -mavx2 -mfma: Note [One library for several processors].
#define Eigen EigenForAvx2  // NOLINT(readability-identifier-naming)
#define GANTRY_PRODUCT multiply_avx2
#include "kernels/host/linalg/matrix_product.inl"

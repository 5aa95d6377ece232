#include "tests/kernels/own_kernels.inl"

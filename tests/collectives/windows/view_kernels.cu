#include "tests/collectives/windows/view_kernels.inl"

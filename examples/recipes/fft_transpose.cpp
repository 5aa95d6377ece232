// A Fourier transform of a matrix whose rows are spread over the ranks.
//
// Run: glaunch fft_transpose    (without a GPU: export GANTRY_SIM_DEVICES=4)
// The number of ranks divides 64.
//
// Each rank transforms its rows, all_to_all() transposes the matrix, and each rank transforms its
// rows again. Complex numbers are two floats in the last dimension.
#include <gantry/gantry.hpp>

#include <cmath>
#include <iostream>

namespace {

using namespace gantry;

constexpr std::int64_t kSize = 64;

// 1. A row for each block: a transform in shared memory, with a thread for each pair of elements.
struct RowFft {
  float* rows;           // [rows, n, 2], transformed in place
  const float* twiddle;  // [n / 2, 2]: cosine and sine of -2 pi k / n
  std::uint32_t n;

  GANTRY_HD void operator()(Block& block) const {
    float* row = rows + std::int64_t{block.index().x} * n * 2;
    float* work = block.shared<float>(2 * n);
    const std::uint32_t me = block.thread().x;
    for (std::uint32_t i = me; i < n; i += n / 2) {  // in the order of reversed bits
      std::uint32_t reversed = 0;
      for (std::uint32_t bit = 1; bit < n; bit *= 2) reversed = reversed * 2 + ((i & bit) != 0);
      work[2 * reversed] = row[2 * i];
      work[2 * reversed + 1] = row[2 * i + 1];
    }
    for (std::uint32_t half = 1; half < n; half *= 2) {
      block.barrier();
      const std::uint32_t k = me % half, at = 2 * (me - k) + k;
      const float* w = twiddle + 2 * (k * (n / (2 * half)));
      float* a = work + 2 * at;
      float* b = a + 2 * half;
      const float re = w[0] * b[0] - w[1] * b[1], im = w[0] * b[1] + w[1] * b[0];
      b[0] = a[0] - re, b[1] = a[1] - im;
      a[0] += re, a[1] += im;
    }
    block.barrier();
    for (std::uint32_t i = me; i < 2 * n; i += n / 2) row[i] = work[i];
  }
};

void transform_rows(const Tensor& rows, const Tensor& twiddle) {
  launch(Stream::current(rows.device()), rows.size(0),
         BlockSize(kSize / 2).with_shared(2 * kSize * sizeof(float)), uses(twiddle).writes(rows),
         RowFft{rows.data_ptr<float>(), twiddle.data_ptr<float>(), kSize});
}

// 2. Block r of the result of permute() goes to rank r: its columns of my rows, as rows.
Tensor transpose(const Communicator& group, const Tensor& rows) {
  const std::int64_t ranks = group.size(), own = kSize / ranks;
  const Tensor blocks = rows.view({own, ranks, own, 2}).permute({1, 2, 0, 3}).contiguous();
  const Tensor exchanged = group.all_to_all(blocks);  // [from, column, row, 2]
  return exchanged.permute({1, 0, 2, 3}).reshape({own, kSize, 2});
}

// The transform with both dimensions, by matrices [n, n] of cosines and sines: [n, n, 2].
Tensor by_definition(const Tensor& matrix) {
  const Tensor numbers = arange(kSize, {.dtype = f32, .device = matrix.device()});
  const Tensor angles = outer(numbers, numbers).remainder(kSize) * (-2 * M_PI / kSize);
  const Tensor c = angles.cos(), s = angles.sin();
  Tensor re = matrix.select(2, 0), im = matrix.select(2, 1);
  for (int dim = 0; dim < 2; ++dim) {
    const Tensor next = matmul(re, c) - matmul(im, s);
    im = (matmul(re, s) + matmul(im, c)).t();
    re = next.t();
  }
  return stack({re, im}, 2);
}

}  // namespace

int main() {
  const Communicator world = Communicator::world();
  const Device device = world.device();
  if (kSize % world.size() != 0) {
    std::cout << world.size() << " ranks do not divide " << kSize << " rows\n";
    return 77;
  }
  const Tensor angles = arange(kSize / 2, {.dtype = f32, .device = device}) * (-2 * M_PI / kSize);
  const Tensor twiddle = stack({angles.cos(), angles.sin()}, 1);
  manual_seed(5);  // all ranks draw the same matrix, and take their rows
  const Tensor whole = randn({kSize, kSize, 2}, device);
  const std::int64_t own = kSize / world.size(), first = own * world.rank();

  Tensor rows = whole.narrow(0, first, own).clone();
  transform_rows(rows, twiddle);
  rows = transpose(world, rows);
  transform_rows(rows, twiddle);
  rows = transpose(world, rows);

  const Tensor difference = rows - by_definition(whole).narrow(0, first, own);
  const Tensor worst = difference.abs().amax();
  world.all_reduce(worst, ReduceOp::max);
  const bool is_close = worst.item<float>() < 1e-3F;
  if (world.rank() == 0) std::cout << "equals the definition: " << is_close << "\n";
  return is_close ? 0 : 1;
}
// Output:
// [0] equals the definition: 1

// Reductions: one number, one per row, running ones, and what makes their bits the same everywhere.
#include <gantry/gantry.hpp>

#include <iostream>

int main() {
  using namespace gantry;
  const Device device = Device::cuda(0);
  const Tensor t = tensor({{3, 1, 2}, {9, 7, 9}}, device);

  // 1. All elements, one dim, or several; keepdim leaves a dim of size 1 to broadcast with.
  std::cout << "sum " << t.sum().item<int>() << ", of rows " << t.sum(1) << "\n";
  std::cout << "shares\n" << t.to(f32).div(t.sum(1, true)) << "\n";

  // 2. Extremes with their places. Of equal elements it is the first.
  const auto [values, indices] = t.max(1);
  std::cout << "max " << values << "\nat " << indices << "\n";

  // 3. Small types add up in wider ones: u8 in i64, f16 in f32, rounded once.
  const Tensor small = full({1000}, 200, {.dtype = u8, .device = device});
  std::cout << "1000 x 200: " << small.sum().item<std::int64_t>() << "\n";

  // 4. The order of additions depends on the length alone. So the sum has the same bits here, on
  //    the CPU, and in every run.
  manual_seed_all(3);
  const Tensor random = rand({100'000}, device);
  std::cout << "same bits as the CPU: " << random.sum().cpu().equal(random.cpu().sum()) << "\n";

  // 5. Running sums and maxima.
  std::cout << "cumsum\n" << t.cumsum(1) << "\ncummax " << cummax(t, 1).values[0] << "\n";

  // 6. Statistics of a dim, and a softmax whose rows add up to one.
  const auto [deviation, mean] = std_mean(t.to(f64), {.dims = 1});
  std::cout << "mean " << mean << "\ndeviation " << deviation << "\n";
  std::cout << "softmax rows "
            << softmax(t.to(f64), 1).sum(1).allclose(ones({2}, {.dtype = f64, .device = device}))
            << "\n";
}
// Output:
// sum 31, of rows [ 6, 25]
// [2] i64 cuda:0
// shares
// [[0.5000, 0.1667, 0.3333],
//  [0.3600, 0.2800, 0.3600]]
// [2, 3] f32 cuda:0
// max [3, 9]
// [2] i64 cuda:0
// at [0, 0]
// [2] i64 cuda:0
// 1000 x 200: 200000
// same bits as the CPU: 1
// cumsum
// [[ 3,  4,  6],
//  [ 9, 16, 25]]
// [2, 3] i64 cuda:0
// cummax [3, 3, 3]
// [3] i64 cuda:0
// mean [2.0000, 8.3333]
// [2] f64 cuda:0
// deviation [1.0000, 1.1547]
// [2] f64 cuda:0
// softmax rows 1

// Mixed indexing: integers, slices, None, Ellipsis, positions and masks in one list.
//
// The rules are PyTorch's: positions next to each other leave their dims in place; with a slice
// between them, their dims come first.
#include <gantry/gantry.hpp>

#include <iostream>

int main() {
  using namespace gantry;
  const Device device = Device::cuda(0);
  const Tensor t = arange(24, device).view({2, 3, 4});
  const Tensor positions = tensor({0, 2}, device);
  const Tensor columns = tensor({3, -1}, device);  // -1 is the last one

  // 1. Integers remove a dim, None adds one, Ellipsis stands for as many as are left.
  std::cout << "views: " << t.index({1, Ellipsis, 0}) << " " << t.index({0, None, 2}).sizes()
            << "\n";

  // 2. Positions of two neighbouring dims are one list; the dim in front stays in front.
  std::cout << "in place\n" << t.index({Slice(), positions, columns}) << "\n";

  // 3. A slice between them: their dim comes first.
  std::cout << "in front\n" << t.index({tensor({1, 0}, device), Slice(0, 2), columns}) << "\n";

  // 4. Positions broadcast: 2 x 1 rows and 2 columns give 2 x 2 elements.
  const Tensor rows = positions.unsqueeze(1);
  std::cout << "grid\n" << t.index({0, rows, columns.sub(1)}) << "\n";

  // 5. A mask over the first two dims; the last one stays.
  const Tensor mask = gt(t.sum(2), 40);
  std::cout << "masked " << t.index({mask, Slice(None, None, 3)}) << "\n";

  // 6. The same lists write. Values broadcast to the shape that a read would have.
  t.index_put_({Slice(), positions, 1}, tensor({-1, -2}, device));
  t.index_put_({lt(t, 0)}, 100, true);
  std::cout << "written\n" << t.index({Ellipsis, 1}) << "\n";
}
// Output:
// views: [12, 16, 20]
// [3] i64 cuda:0 [1, 4]
// in place
// [[ 3, 11],
//  [15, 23]]
// [2, 2] i64 cuda:0
// in front
// [[15, 19],
//  [ 3,  7]]
// [2, 2] i64 cuda:0
// grid
// [[ 2,  2],
//  [10, 10]]
// [2, 2] i64 cuda:0
// masked [[12, 15],
//  [16, 19],
//  [20, 23]]
// [3, 2] i64 cuda:0
// written
// [[99,  5, 98],
//  [99, 17, 98]]
// [2, 3] i64 cuda:0

// Index lists, and what gantry does with them.
//
// An index list is parsed into a plan of one of five kinds: View, Gather, Scatter, Copy and Fill.
// explain() and explain_put() print the plan, its shape, and the bytes that it moves.
#include <gantry/gantry.hpp>

#include <iostream>

int main() {
  using namespace gantry;
  const Device device = Device::cuda(0);
  const Tensor t = arange(12, device).view({3, 4});
  const Tensor rows = tensor({2, 0}, device);
  const Tensor columns = tensor({-1, 1}, device);
  const Tensor mask = gt(t, 8);

  // 1. Integers, slices, None and Ellipsis read a view: nothing moves.
  std::cout << explain(t, {1, Slice(None, None, 2)});

  // 2. A tensor of positions reads a copy. The other dims stay.
  std::cout << explain(t, {rows}) << t.index({rows, Slice(0, 2)}) << "\n";

  // 3. Several tensors are one list of coordinates; their offsets are added up first.
  std::cout << explain(t, {rows, columns}) << t.index({rows, columns}) << "\n";

  // 4. A mask selects elements in row-major order. The host waits for their number.
  std::cout << explain(t, {mask}) << t.index({mask}) << "\n";

  // 5. Writes to views copy or fill.
  std::cout << explain_put(t, {0}, ones({4}, device)) << explain_put(t, {0}, 7);

  // 6. A number behind a mask fills, too: no element is counted, and the host does not wait.
  std::cout << explain_put(t, {mask}, -1);
  t.index_put_({mask}, -1);

  // 7. Other writes scatter. Duplicates add up in their order; without accumulate, the last wins.
  const Tensor twice = tensor({1, 1}, device);
  std::cout << explain_put(t, {twice, 0}, 10, true);
  t.index_put_({twice, 0}, 10, true);
  std::cout << t << "\n";
}
// Output:
// View [2] i64 on cuda:0
//   strides [2], offset 4
//   moves 0 bytes, temporaries 0 bytes
// Gather [2, 4] i64 on cuda:0
//   dim 0 by i64 [2]
//   moves 144 bytes, temporaries 0 bytes
// [[8, 9],
//  [0, 1]]
// [2, 2] i64 cuda:0
// Gather [2] i64 on cuda:0
//   dim 0 by i64 [2]
//   dim 1 by i64 [2]
//   moves 96 bytes, temporaries 16 bytes
// [11,  1]
// [2] i64 cuda:0
// Gather [3] i64 on cuda:0
//   dims 0 to 1 by a mask of 12, 3 selected
//   moves 92 bytes, temporaries 16 bytes
// [ 9, 10, 11]
// [3] i64 cuda:0
// Copy [4] i64 on cuda:0
//   moves 48 bytes, temporaries 0 bytes
// Fill [4] i64 on cuda:0
//   moves 32 bytes, temporaries 0 bytes
// Fill [3, 4] i64 on cuda:0
//   where a mask of 12 is set
//   moves 204 bytes, temporaries 0 bytes
// Scatter [2] i64 on cuda:0
//   dim 0 by i64 [2]
//   accumulates
//   moves 64 bytes, temporaries 8 bytes
// [[ 0,  1,  2,  3],
//  [24,  5,  6,  7],
//  [ 8, -1, -1, -1]]
// [3, 4] i64 cuda:0

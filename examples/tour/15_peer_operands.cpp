// Operands of two devices without a copy: a kernel of one GPU reads the memory of another.
//
// It needs peer access between the two. The streams of both devices are ordered: the kernel waits
// for the other device's work, and that device's later work waits for the kernel.
#include <gantry/gantry.hpp>

#include <iostream>

int main() {
  using namespace gantry;
  if (device_count() < 2 || !can_access_peer("cuda:0", "cuda:1")) {
    std::cout << "this example needs two devices with peer access\n";
    return 77;
  }
  const Tensor near = ones({4}, {.dtype = f32, .device = "cuda:0"});
  Tensor far = arange(4, {.dtype = f32, .device = "cuda:1"});

  // 1. Outside of the scope, operands on two devices are an error.
  try {
    (void)(near + far);
  } catch (const DeviceMismatchError&) {
    std::cout << "refused\n";
  }

  // 2. Within it, the operation runs where its first operand is, and so does the result.
  const PeerOperands peers;
  const Tensor sum = near + far;
  std::cout << "far + near is on " << (far + near).device() << "\n" << sum << "\n";

  // 3. No host wait is needed before the other device writes its tensor again.
  far.fill_(100);
  std::cout << "after far.fill_(100): " << sum.sum().item<float>() << "\n";

  // 4. Every operation does so: indices, masks and factors may be elsewhere, too.
  const Tensor rows = arange(6, {.dtype = f32, .device = "cuda:0"}).view({3, 2});
  const Tensor picks = tensor({2, 0}, "cuda:1");
  std::cout << "rows: " << rows.index_select(0, picks) << "\n";

  // 5. A memory that is used there may be freed at once: it is reused after the kernel.
  const Tensor product = near * full({4}, 3, {.dtype = f32, .device = "cuda:1"});
  std::cout << "product: " << product.sum().item<float>() << "\n";
}
// Output:
// refused
// far + near is on cuda:1
// [1., 2., 3., 4.]
// [4] f32 cuda:0
// after far.fill_(100): 10
// rows: [[4., 5.],
//  [0., 1.]]
// [2, 2] f32 cuda:0
// product: 12

// Batching: one kernel over many rows instead of one kernel for each row.
//
// Every launch costs the host some microseconds, however little it computes. Broadcasting and
// batched operations replace loops over small tensors.
#include <gantry/gantry.hpp>

#include <iostream>
#include <vector>

int main() {
  using namespace gantry;
  manual_seed_all(7);
  const Tensor rows = rand({64, 32}, "cuda:0");
  const Tensor scale = arange(1, 33, 1, {.dtype = f32, .device = "cuda:0"});

  // 1. The loop: three launches for each row.
  std::vector<Tensor> results;
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    results.push_back(((rows[i] - rows[i].mean()) * scale).sum());
  }
  const Tensor looped = stack(results);

  // 2. The batch: three launches for all rows. mean keeps the dimension, so that it broadcasts.
  const Tensor batched = ((rows - rows.mean(1, true)) * scale).sum(1);
  std::cout << "same results: " << allclose(looped, batched) << "\n";

  // 3. Many small matrix products are one batched product.
  const Tensor a = rand({16, 4, 8}, "cuda:0");
  const Tensor b = rand({16, 8, 2}, "cuda:0");
  const Tensor products = a.matmul(b);
  std::cout << "products: " << products.size(0) << " of " << products.size(1) << " x "
            << products.size(2) << "\n";
  std::cout << "as one by one: " << allclose(products[3], a[3].matmul(b[3])) << "\n";

  // 4. One transfer of many values, instead of item() in a loop, which waits each time.
  const std::vector<float> on_host = batched.to_vector<float>();
  std::cout << "values on the host: " << on_host.size() << "\n";
}
// Output:
// same results: 1
// products: 16 of 4 x 2
// as one by one: 1
// values on the host: 64

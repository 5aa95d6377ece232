// A pool that releases its memory: a model that is not needed for a while keeps only its addresses.
//
// A MemPool's blocks share no memory with other pools. Its physical memory can go back to the
// driver as a whole, for another program or another phase of this one.
#include <gantry/gantry.hpp>

#include <iostream>

int main() {
  using namespace gantry;
  constexpr std::size_t kMiB = std::size_t{1} << 20;

  // 1. Allocations of this scope come from the pool.
  memory::MemPool pool("cuda:0");
  Tensor weights;
  {
    const memory::MemPoolGuard guard(pool);
    weights = full({16 * 1024 * 1024}, 3, {.dtype = f32, .device = "cuda:0"});
  }
  const void* address = weights.data_ptr();
  std::cout << "blocks in the pool: " << pool.use_count() << "\n";

  // 2. Contents that are still needed go to the host first.
  const Tensor backup = weights.cpu();

  // 3. The driver has the memory back, the tensor keeps its address.
  const std::size_t free_before = memory::mem_get_info("cuda:0").free;
  pool.release_physical();
  const std::size_t free_after = memory::mem_get_info("cuda:0").free;
  std::cout << "released: " << (free_after - free_before) / kMiB << " MiB\n";
  std::cout << "has memory: " << pool.has_physical() << "\n";

  // 4. Meanwhile, others use it.
  { const Tensor other = zeros({8 * 1024 * 1024}, {.dtype = f32, .device = "cuda:0"}); }
  memory::empty_cache();

  // 5. Back again, at the same address. Graphs and pointers into the tensor stay valid.
  pool.restore_physical();
  weights.copy_(backup);
  std::cout << "same address: " << (weights.data_ptr() == address) << "\n";
  std::cout << "same values: " << (weights == 3).all().item<bool>() << "\n";
}
// Output:
// blocks in the pool: 1
// released: 64 MiB
// has memory: 0
// same address: 1
// same values: 1

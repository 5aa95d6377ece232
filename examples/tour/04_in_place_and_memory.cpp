// In-place operations, and the growth of memory.
//
// An operation allocates its result. An in-place operation, whose name ends with `_`, or one with
// an output does not. Freed memory stays in the allocator's cache and serves the next request.
#include <gantry/gantry.hpp>

#include <iostream>

namespace {

using namespace gantry;

constexpr std::int64_t kMiB = 1 << 20;

void tell(const char* what) {
  std::cout << what << ": " << memory::allocated("cuda:0") / kMiB << " MiB live, peak "
            << memory::max_allocated("cuda:0") / kMiB << " MiB\n";
  memory::reset_peak_stats("cuda:0");
}

}  // namespace

int main() {
  // 1. Sixteen MiB.
  Tensor x = ones({4 * kMiB}, {.dtype = f32, .device = "cuda:0"});
  tell("one tensor");

  // 2. Out of place: the result and the temporary live beside x.
  x = (x * 2) + 1;
  tell("x = (x * 2) + 1");

  // 3. In place: no new memory.
  x.mul_(2).add_(1);
  tell("x.mul_(2).add_(1)");

  // 4. Into an existing tensor: the allocation happens once, not in every step.
  Tensor y = empty_like(x);
  for (int step = 0; step < 10; ++step) add_out(y, x, x);
  tell("add_out, ten times");

  // 5. A view shares memory, and keeps all of it alive.
  Tensor head = x.slice(0, 0, 16);
  x = Tensor();
  y = Tensor();
  tell("a view of 64 bytes is left");
  head = head.clone();
  tell("a clone of it");

  // 6. The cache still holds the memory. The driver has it back after empty_cache().
  const std::size_t held = memory::reserved("cuda:0");
  memory::empty_cache();
  std::cout << "empty_cache released memory: " << (memory::reserved("cuda:0") < held) << "\n";
  std::cout << "the values are right: " << (head == 7).all().item<bool>() << "\n";
}
// Output:
// one tensor: 16 MiB live, peak 16 MiB
// x = (x * 2) + 1: 16 MiB live, peak 48 MiB
// x.mul_(2).add_(1): 16 MiB live, peak 16 MiB
// add_out, ten times: 32 MiB live, peak 32 MiB
// a view of 64 bytes is left: 16 MiB live, peak 32 MiB
// a clone of it: 0 MiB live, peak 16 MiB
// empty_cache released memory: 1
// the values are right: 1

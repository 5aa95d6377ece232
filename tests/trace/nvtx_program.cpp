// Calls of gantry::nvtx, for nvtx_test.
#include <gantry/gantry.hpp>

int main() {
  using namespace gantry;
  nvtx::mark("begin");
  nvtx::range_push("outer");
  { nvtx::Range range("inner"); }
  nvtx::range_pop();
  const auto id = nvtx::range_start("free");
  nvtx::range_end(id);
  const Tensor a = ones({2, 3}, "cuda:0");
  const Tensor b = ones({3}, "cuda:0");
  nvtx::annotate_ops();
  (void)a.add(b);
  (void)a.sum(1);
  nvtx::annotate_ops(false);
  (void)a.mul(b);
  nvtx::mark("end");
}

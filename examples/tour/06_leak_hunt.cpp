// A leak hunt: the history of the allocator names the line that keeps memory.
#include <gantry/gantry.hpp>

#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace gantry;

// The leak: every step leaves its activations here.
std::vector<Tensor> forgotten;

Tensor forward(const Tensor& input) {
  Tensor activations = (input * 2).relu();
  forgotten.push_back(activations);
  return activations.sum();
}

}  // namespace

int main() {
  // 1. From here on every allocation keeps the first function outside of gantry.
  memory::record_history({.stacks = memory::HistoryOptions::Stacks::call_site});
  const Tensor input = ones({256, 1024}, "cuda:0");

  // 2. Live bytes grow by the same amount in every step: a leak.
  const std::size_t start = memory::allocated("cuda:0");
  std::size_t before = start;
  for (int step = 0; step < 3; ++step) {
    std::cout << "loss " << forward(input).item<float>();
    const std::size_t now = memory::allocated("cuda:0");
    std::cout << ", " << (now - before) / 1024 << " KiB more\n";
    before = now;
  }

  // 3. The snapshot has all live blocks. They are added up by their call site.
  std::map<std::string, std::size_t> live;
  for (const memory::SegmentInfo& segment : memory::snapshot().segments) {
    for (const memory::BlockInfo& block : segment.blocks) {
      if (block.state != memory::BlockState::active_allocated) continue;
      const memory::Frame* site = block.frames.call_site();
      if (site != nullptr) live[site->name] += block.requested;
    }
  }
  for (const auto& [function, bytes] : live) {
    if (function.find("forward") != std::string::npos) {
      std::cout << "forward keeps " << bytes / 1024 << " KiB\n";
    }
  }

  // 4. memory::save_snapshot("run.html") writes the same as a page with a timeline.
  forgotten.clear();
  std::cout << "after the repair: " << memory::allocated("cuda:0") - start << " bytes more\n";
  memory::record_history({.enabled = false});
}
// Output:
// loss 524288, 1024 KiB more
// loss 524288, 1024 KiB more
// loss 524288, 1024 KiB more
// forward keeps 3072 KiB
// after the repair: 0 bytes more

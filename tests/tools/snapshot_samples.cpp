// Writes snapshots for the browser test into the folder of its argument: NAME.json.
#include "tests/snapshots/snapshot_samples.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include <gantry/memory/snapshot.hpp>

namespace {

// More segments than the page has rows for.
gantry::memory::Snapshot crowded_snapshot() {
  constexpr std::size_t kBytes = 2 << 20;
  gantry::memory::Snapshot snapshot;
  for (std::uintptr_t i = 0; i < 4000; ++i) {
    const std::uintptr_t address = 0x7f0000000000 + i * 2 * kBytes;
    snapshot.segments.push_back({.address = address,
                                 .total_bytes = kBytes,
                                 .small = true,
                                 .blocks = {{.address = address,
                                             .bytes = kBytes,
                                             .requested = 0,
                                             .state = gantry::memory::BlockState::inactive}}});
  }
  return snapshot;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  using namespace gantry;
  memory::save_snapshot(testing::awkward_snapshot(), folder / "awkward.json");
  memory::save_snapshot(testing::random_snapshot(9, 2000), folder / "random.json");
  memory::save_snapshot(crowded_snapshot(), folder / "crowded.json");
  memory::save_snapshot(memory::Snapshot{}, folder / "empty.json");
  return 0;
}

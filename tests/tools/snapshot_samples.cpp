// Writes snapshots for the browser test into the folder of its argument: NAME.json.
#include "tests/memory/snapshot_samples.hpp"

#include <filesystem>

#include <gantry/memory/snapshot.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  using namespace gantry;
  memory::save_snapshot(testing::awkward_snapshot(), folder / "awkward.json");
  memory::save_snapshot(testing::random_snapshot(9, 2000), folder / "random.json");
  memory::save_snapshot(memory::Snapshot{}, folder / "empty.json");
  return 0;
}

// A leak hunt in a long run: two snapshots, and the lines whose memory has grown between them.
//
// Run: leak_report    (without a GPU: export GANTRY_SIM_DEVICES=4)
//
// It writes to the current folder: leak.html, a page with a timeline; leak.pickle for memory_viz of
// PyTorch; leak.json for load_snapshot(). Lines need debug information, -g or -g1. gantry-snapshot,
// which writes the page, is beside the library or in PATH.
#include <gantry/gantry.hpp>

#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace gantry;

// 1. A service with two leaks. The cache has no limit, and a row of the result, which is a view,
//    keeps the memory of the whole result.
class Service {
 public:
  void handle(std::int64_t request) {
    const Tensor features = full({256, 256}, request, {.dtype = f32, .device = "cuda:0"});
    cache_[request] = features.mul(2);
    const Tensor result = cache_[request].add(1).relu();
    last_rows_.push_back(result[-1]);
  }
  void repair() {
    cache_.clear();
    for (Tensor& row : last_rows_) row = row.clone();
  }

 private:
  std::map<std::int64_t, Tensor> cache_;
  std::vector<Tensor> last_rows_;
};

struct Live {
  std::int64_t blocks = 0, bytes = 0;
};

// 2. The live blocks of a snapshot, by the lines of the program that allocated them.
std::map<std::string, Live> live_by_line(const memory::Snapshot& snapshot) {
  std::map<std::string, Live> result;
  for (const memory::SegmentInfo& segment : snapshot.segments) {
    for (const memory::BlockInfo& block : segment.blocks) {
      if (block.state != memory::BlockState::active_allocated) continue;
      const memory::Frame* site = block.frames.call_site();
      std::string line = "before the history began";
      if (site != nullptr) {
        const std::string file = std::filesystem::path(site->filename).filename();
        line = file + ":" + std::to_string(site->line);
      }
      Live& live = result[line];
      ++live.blocks;
      live.bytes += static_cast<std::int64_t>(block.requested);
    }
  }
  return result;
}

// 3. What has grown from one snapshot to another.
std::map<std::string, Live> growth(const memory::Snapshot& from, const memory::Snapshot& to) {
  std::map<std::string, Live> before = live_by_line(from), result;
  for (const auto& [line, live] : live_by_line(to)) {
    const Live grown{live.blocks - before[line].blocks, live.bytes - before[line].bytes};
    if (grown.bytes > 0) result[line] = grown;
  }
  return result;
}

}  // namespace

int main() {
  memory::record_history({.stacks = memory::HistoryOptions::Stacks::call_site});
  Service service;
  for (std::int64_t request = 0; request < 10; ++request) service.handle(request);
  const memory::Snapshot early = memory::snapshot();
  for (std::int64_t request = 10; request < 30; ++request) service.handle(request);
  const memory::Snapshot late = memory::snapshot();

  std::int64_t leaked = 0;
  const std::map<std::string, Live> leaks = growth(early, late);
  for (const auto& [line, live] : leaks) {
    std::cout << line << ": " << live.blocks << " more blocks, " << live.bytes << " bytes\n";
    leaked += live.bytes;
  }

  // 4. The same in files. A program that runs for days saves one now and then.
  for (const char* path : {"leak.html", "leak.pickle", "leak.json"}) {
    memory::save_snapshot(late, path);
  }
  const bool is_same = memory::load_snapshot("leak.json").segments == late.segments;

  service.repair();
  const std::size_t live = memory::allocated("cuda:0");
  std::cout << "after the repair: " << live << " bytes are live\n";
  return leaked == 10'485'760 && is_same && live == 30'720 ? 0 : 1;
}
// Output:
// leak_report.cpp:26: 20 more blocks, 5242880 bytes
// leak_report.cpp:27: 20 more blocks, 5242880 bytes
// after the repair: 30720 bytes are live

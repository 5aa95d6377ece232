#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/memory/snapshot.hpp>

#include "core/json.hpp"
#include "tests/memory/snapshot_samples.hpp"

namespace gantry::memory {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What the page's script sees, read back in C++ as viewer/data.js does.
class PageReader {
 public:
  explicit PageReader(const std::string& page)
      : names(Json::parse(between(page, "id=\"names\">"))),
        bytes_(from_base64(between(page, "id=\"numbers\">"))) {}

  [[nodiscard]] static std::string between(const std::string& page, std::string_view begin) {
    const auto from = page.find(begin);
    if (from == std::string::npos) throw std::runtime_error("the page has no data");
    const auto to = page.find("</script>", from);
    return page.substr(from + begin.size(), to - from - begin.size());
  }

  std::uint8_t byte() { return static_cast<std::uint8_t>(bytes_.at(at_++)); }
  std::uint64_t natural() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const std::uint8_t next = byte();
      value |= std::uint64_t{next & 127U} << shift;
      if (next < 128) return value;
    }
  }
  std::uint64_t step() {
    const std::uint64_t value = natural();
    return value >> 1 ^ (0 - (value & 1));
  }
  void go_to(std::size_t at) { at_ = at; }
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }

  [[nodiscard]] Frames stack(std::uint64_t number) const {
    std::vector<Frame> frames;
    for (const Json& index : names.at("stacks").at(number).elements()) {
      const Json& frame = names.at("frames").at(index.as<std::size_t>());
      frames.push_back({frame.at(1).as<std::string>(), frame.at(2).as<int>(),
                        frame.at(0).as<std::string>(), frame.at(3) == 1});
    }
    return frames;
  }
  [[nodiscard]] std::uint64_t stream(std::uint64_t number) const {
    return std::stoull(names.at("streams").at(number).as<std::string>());
  }

  Json names;

 private:
  static std::string from_base64(const std::string& text) {
    static const std::string kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
      if (c == '=') break;
      bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(c));
      count += 6;
      if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xFF);
    }
    return bytes;
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

class SnapshotViewerTest : public ::testing::Test {
 protected:
  std::string page_of(const Snapshot& snapshot) {
    save_snapshot(snapshot, folder_ / "x.html");
    return testing::content_of(folder_ / "x.html");
  }

  testing::TemporaryFolder folder_;
};

TEST_F(SnapshotViewerTest, IsCompleteInOneFile) {
  const std::string page = page_of(testing::random_snapshot(1, 300));
  for (const char* foreign :
       {"http:", "https:", "src=", "<link", "@import", "fetch(", "XMLHttpRequest", "import(",
        "/*STYLE*/", "/*SCRIPT*/", "<!--SNAPSHOT-->"}) {
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  }
  EXPECT_THAT(page, HasSubstr("<title>gantry memory snapshot</title>"));
  EXPECT_THAT(page, HasSubstr("class DeviceModel"));
  EXPECT_THAT(page, HasSubstr("class SegmentMap"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
}

TEST_F(SnapshotViewerTest, TextsCannotLeaveTheirElement) {
  const std::string page = page_of(testing::awkward_snapshot());
  EXPECT_EQ(PageReader::between(page, "id=\"names\">").find('<'), std::string::npos);
  std::size_t scripts = 0;
  for (std::size_t at = 0; (at = page.find("</script>", at)) != std::string::npos; ++at) ++scripts;
  EXPECT_EQ(scripts, 3U);
  const PageReader reader(page);
  EXPECT_EQ(reader.names.at("metadata").at(1), "</script>'\"\t");
  EXPECT_EQ(reader.names.at("annotations").at(0).at("values").at("name"), "a\"b");
  EXPECT_EQ(reader.names.at("settings").at("backend"), "vmm");
}

TEST_F(SnapshotViewerTest, NumbersAreThoseOfTheSnapshot) {
  for (Snapshot snapshot :
       {testing::awkward_snapshot(), testing::random_snapshot(9, 2000), Snapshot{}}) {
    PageReader reader(page_of(snapshot));
    // The page shows blocks; what was asked for is told of those that are there in the end.
    for (auto& trace : snapshot.device_traces) {
      for (TraceEntry& entry : trace) entry.requested = 0;
    }
    Snapshot read;
    read.device_traces.resize(snapshot.device_traces.size());
    for (const Json& device : reader.names.at("devices").elements()) {
      reader.go_to(device.at("offset").as<std::size_t>());
      const std::uint64_t base = std::stoull(device.at("base").as<std::string>());
      std::uint64_t address = base;
      auto time = device.at("start_us").as<std::int64_t>();
      for (std::size_t i = 0; i < device.at("events").as<std::size_t>(); ++i) {
        TraceEntry entry;
        entry.action = static_cast<TraceAction>(reader.byte());
        time += static_cast<std::int64_t>(reader.step());
        entry.time_us = time;
        const bool has_address =
            entry.action != TraceAction::oom && entry.action != TraceAction::snapshot;
        entry.address = has_address ? (address += reader.step()) : reader.natural();
        entry.bytes = reader.natural();
        entry.stream = reader.stream(reader.natural());
        entry.frames = reader.stack(reader.natural());
        entry.user_metadata = reader.names.at("metadata").at(reader.natural()).as<std::string>();
        read.device_traces.at(device.at("device").as<std::size_t>()).push_back(entry);
      }
      address = base;
      for (std::size_t i = 0; i < device.at("segments").as<std::size_t>(); ++i) {
        SegmentInfo segment;
        segment.device = device.at("device").as<int>();
        segment.address = address += reader.step();
        segment.total_bytes = reader.natural();
        segment.stream = reader.stream(reader.natural());
        const std::uint8_t flags = reader.byte();
        segment.small = (flags & 1) != 0;
        segment.is_expandable = (flags & 2) != 0;
        segment.pool_id.first = static_cast<std::int64_t>(reader.step());
        segment.pool_id.second = static_cast<std::int64_t>(reader.step());
        segment.frames = reader.stack(reader.natural());
        std::uintptr_t at = segment.address;
        for (std::uint64_t blocks = reader.natural(); blocks > 0; --blocks) {
          BlockInfo block;
          block.address = at;
          at += block.bytes = reader.natural();
          block.requested = reader.natural();
          block.state = static_cast<BlockState>(reader.byte());
          block.stream = reader.stream(reader.natural());
          block.frames = reader.stack(reader.natural());
          segment.allocated_bytes += block.state == BlockState::active_allocated ? block.bytes : 0;
          segment.active_bytes += block.state != BlockState::inactive ? block.bytes : 0;
          segment.requested_bytes += block.requested;
          segment.blocks.push_back(block);
        }
        read.segments.push_back(segment);
      }
    }
    EXPECT_TRUE(reader.at_end());
    EXPECT_EQ(read.device_traces, snapshot.device_traces);
    EXPECT_EQ(read.segments, snapshot.segments);
  }
}

TEST_F(SnapshotViewerTest, AnEventTakesFewBytes) {
  const Snapshot snapshot = testing::random_snapshot(4, 20'000);
  const std::size_t events = snapshot.device_traces[0].size() + snapshot.device_traces[1].size();
  const std::string page = page_of(snapshot);
  EXPECT_LT(PageReader::between(page, "id=\"numbers\">").size(), 24 * events);
}

}  // namespace
}  // namespace gantry::memory

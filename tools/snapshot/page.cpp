// The page's data: names as JSON, numbers as variable-length integers in base64.
#include "tools/snapshot/page.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "core/text/json.hpp"
#include "snapshots/snapshot_json.hpp"
#include "tools/program/content_policy.hpp"
#include "tools/snapshot/page_template.hpp"

namespace gantry::snapshot {
namespace {

using memory::Annotation;
using memory::BlockInfo;
using memory::Frame;
using memory::SegmentInfo;
using memory::Snapshot;
using memory::SnapshotStacks;
using memory::TraceAction;
using memory::TraceEntry;

// Seven bits a byte, low ones first; the high bit says that more follow.
class ByteStream {
 public:
  void byte(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void natural(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  /// A difference modulo 2^64, small for small steps in both directions.
  void step(std::uint64_t from, std::uint64_t to) { whole(static_cast<std::int64_t>(to - from)); }
  void whole(std::int64_t value) {
    natural(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void write_base64(const std::string& bytes, std::ostream& out) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve(bytes.size() / 3 * 4 + 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) -> std::uint32_t {
      return k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0;
    };
    const std::uint32_t bits = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    text += kDigits[bits >> 18];
    text += kDigits[bits >> 12 & 63];
    text += i + 1 < bytes.size() ? kDigits[bits >> 6 & 63] : '=';
    text += i + 2 < bytes.size() ? kDigits[bits & 63] : '=';
  }
  out << text;
}

// Numbers for values that are named once.
template <class Value>
class Numbering {
 public:
  std::uint64_t number_of(const Value& value) {
    const auto [known, is_new] = numbers_.try_emplace(value, values_.size());
    if (is_new) values_.push_back(value);
    return known->second;
  }
  [[nodiscard]] const std::vector<Value>& values() const { return values_; }

 private:
  std::map<Value, std::size_t> numbers_;
  std::vector<Value> values_;
};

class PageData {
 public:
  explicit PageData(const Snapshot& snapshot) : snapshot_(snapshot), stacks_(snapshot) {
    metadata_.number_of("");
    std::set<std::size_t> devices;
    for (std::size_t i = 0; i < snapshot.device_traces.size(); ++i) devices.insert(i);
    for (const SegmentInfo& segment : snapshot.segments) {
      devices.insert(static_cast<std::size_t>(segment.device));
    }
    for (const std::size_t device : devices) add_device(device);
  }

  [[nodiscard]] const std::string& bytes() const { return out_.bytes(); }

  [[nodiscard]] Json names() const {
    Json frames = Json::array();
    for (const Frame* frame : stacks_.frames()) {
      frames.push_back(
          Json::array({frame->name, frame->filename, frame->line, frame->is_internal ? 1 : 0}));
    }
    Json streams = Json::array();
    for (const std::uint64_t stream : streams_.values()) streams.push_back(std::to_string(stream));
    Json settings = Json::object();
    for (const auto& [name, value] : snapshot_.settings) {
      settings.set(name, std::visit([](const auto& content) { return Json(content); }, value));
    }
    Json annotations = Json::array();
    for (const Annotation& note : snapshot_.annotations) {
      annotations.push_back(Json::object(
          {{"device", note.device}, {"time_us", note.time_us}, {"values", note.values}}));
    }
    return Json::object({{"version", 1},
                         {"settings", std::move(settings)},
                         {"annotations", std::move(annotations)},
                         {"frames", std::move(frames)},
                         {"stacks", stacks_.stacks()},
                         {"streams", std::move(streams)},
                         {"metadata", metadata_.values()},
                         {"devices", devices_}});
  }

 private:
  void add_device(std::size_t device) {
    static const std::vector<TraceEntry> kNone;
    const auto& traces = snapshot_.device_traces;
    const std::vector<TraceEntry>& trace = device < traces.size() ? traces[device] : kNone;
    std::vector<const SegmentInfo*> segments;
    for (const SegmentInfo& segment : snapshot_.segments) {
      if (static_cast<std::size_t>(segment.device) == device) segments.push_back(&segment);
    }
    if (trace.empty() && segments.empty()) return;

    // Addresses are counted from the lowest one: JavaScript's numbers have 53 bits.
    std::uintptr_t base = std::numeric_limits<std::uintptr_t>::max();
    for (const SegmentInfo* segment : segments) base = std::min(base, segment->address);
    for (const TraceEntry& entry : trace) {
      if (has_address(entry)) base = std::min(base, entry.address);
    }
    if (base == std::numeric_limits<std::uintptr_t>::max()) base = 0;
    const std::int64_t start = trace.empty() ? 0 : trace.front().time_us;
    devices_.push_back(Json::object({{"device", device},
                                     {"base", std::to_string(base)},
                                     {"start_us", start},
                                     {"offset", out_.bytes().size()},
                                     {"events", trace.size()},
                                     {"segments", segments.size()}}));
    add_events(trace, base, start);
    std::uintptr_t previous = base;
    for (const SegmentInfo* segment : segments) {
      add_segment(*segment, previous);
      previous = segment->address;
    }
  }

  [[nodiscard]] static bool has_address(const TraceEntry& entry) {
    return entry.action != TraceAction::oom && entry.action != TraceAction::snapshot;
  }

  void add_events(const std::vector<TraceEntry>& trace, std::uintptr_t base, std::int64_t start) {
    std::uintptr_t address = base;
    std::int64_t time = start;
    for (const TraceEntry& entry : trace) {
      out_.byte(static_cast<std::uint8_t>(entry.action));
      out_.whole(entry.time_us - time);
      time = entry.time_us;
      if (has_address(entry)) {
        out_.step(address, entry.address);
        address = entry.address;
      } else {
        out_.natural(entry.address);
      }
      out_.natural(entry.bytes);
      out_.natural(streams_.number_of(entry.stream));
      out_.natural(stacks_.number_of(entry.frames));
      out_.natural(metadata_.number_of(entry.user_metadata));
    }
  }

  void add_segment(const SegmentInfo& segment, std::uintptr_t previous) {
    out_.step(previous, segment.address);
    out_.natural(segment.total_bytes);
    out_.natural(streams_.number_of(segment.stream));
    out_.byte(static_cast<std::uint8_t>((segment.small ? 1 : 0) | (segment.is_expandable ? 2 : 0)));
    out_.whole(segment.pool_id.first);
    out_.whole(segment.pool_id.second);
    out_.natural(stacks_.number_of(segment.frames));
    out_.natural(segment.blocks.size());
    for (const BlockInfo& block : segment.blocks) {
      out_.natural(block.bytes);
      out_.natural(block.requested);
      out_.byte(static_cast<std::uint8_t>(block.state));
      out_.natural(streams_.number_of(block.stream));
      out_.natural(stacks_.number_of(block.frames));
    }
  }

  const Snapshot& snapshot_;
  SnapshotStacks stacks_;
  Numbering<std::uint64_t> streams_;
  Numbering<std::string> metadata_;
  ByteStream out_;
  Json devices_ = Json::array();
};

}  // namespace

void write_page(const Snapshot& snapshot, std::ostream& out) {
  const PageData data(snapshot);
  std::string names = data.names().dump();
  // Inside a script element "<" could end it.
  for (std::size_t at = 0; (at = names.find('<', at)) != std::string::npos;) {
    names.replace(at, 1, "\\u003c");
  }
  constexpr std::string_view kPolicy = "<!--POLICY-->";
  const std::size_t policy = kPageHead.find(kPolicy);
  out << kPageHead.substr(0, policy) << content_policy({kPageHead, kPageTail})
      << kPageHead.substr(policy + kPolicy.size())
      << "<script type=\"application/json\" id=\"names\">" << names
      << "</script>\n<script type=\"text/plain\" id=\"numbers\">";
  write_base64(data.bytes(), out);
  out << "</script>" << kPageTail;
}

}  // namespace gantry::snapshot

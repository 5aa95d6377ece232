#include "tools/snapshot/torch_pickle.hpp"

#include <array>
#include <unordered_map>
#include <variant>

#include "snapshots/snapshot_json.hpp"
#include "tools/snapshot/pickle_writer.hpp"

namespace gantry::snapshot {
namespace {

using memory::Annotation;
using memory::BlockInfo;
using memory::Frame;
using memory::Frames;
using memory::SegmentInfo;
using memory::SettingValue;
using memory::Snapshot;
using memory::TraceAction;
using memory::TraceEntry;

// Keys of torch's allocator_settings; its tools expect no others.
constexpr std::array<std::string_view, 9> kSettings = {
    "PYTORCH_CUDA_ALLOC_CONF",       "max_split_size",
    "garbage_collection_threshold",  "expandable_segments",
    "pinned_num_register_threads",   "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register", "graph_capture_record_stream_reuse",
    "roundup_power2_divisions"};

class SnapshotPickle {
 public:
  explicit SnapshotPickle(std::ostream& out) : pickle_(out) {}

  void write(const Snapshot& snapshot) {
    pickle_.begin();
    dictionary([&] {
      key("segments");
      pickle_.list_of(snapshot.segments, [&](const SegmentInfo& info) { segment(info); });
      key("device_traces");
      pickle_.list_of(snapshot.device_traces, [&](const std::vector<TraceEntry>& trace) {
        pickle_.list_of(trace, [&](const TraceEntry& event) { entry(event); });
      });
      key("allocator_settings");
      settings(snapshot.settings);
      key("external_annotations");
      pickle_.list_of(snapshot.annotations, [&](const Annotation& note) { annotation(note); });
    });
    pickle_.end();
  }

 private:
  template <class Write>
  void dictionary(Write&& write) {
    pickle_.dictionary();
    pickle_.open();
    write();
    pickle_.set_items();
  }

  void key(std::string_view name) { pickle_.text(name); }
  void item(std::string_view name, std::uint64_t value) {
    key(name);
    pickle_.natural(value);
  }
  void item(std::string_view name, std::string_view value) {
    key(name);
    pickle_.text(value);
  }

  // Equal stacks are one object: a large history stays small here and in the reader.
  void frames(const Frames& stack) {
    key("frames");
    const auto known = stacks_.find(stack.identity());
    if (known != stacks_.end()) return pickle_.recall(known->second);
    pickle_.list_of(stack, [&](const Frame& frame) {
      dictionary([&] {
        item("filename", std::string_view(frame.filename));
        key("line");
        pickle_.integer(frame.line);
        item("name", std::string_view(frame.name));
      });
    });
    stacks_.emplace(stack.identity(), pickle_.remember());
  }

  void segment(const SegmentInfo& info) {
    dictionary([&] {
      key("device");
      pickle_.integer(info.device);
      item("address", info.address);
      item("total_size", info.total_bytes);
      item("allocated_size", info.allocated_bytes);
      item("active_size", info.active_bytes);
      item("requested_size", info.requested_bytes);
      item("stream", info.stream);
      item("segment_type", std::string_view(info.small ? "small" : "large"));
      key("segment_pool_id");
      pickle_.integer(info.pool_id.first);
      pickle_.integer(info.pool_id.second);
      pickle_.pair();
      key("is_expandable");
      pickle_.boolean(info.is_expandable);
      frames(info.frames);
      key("blocks");
      pickle_.list_of(info.blocks, [&](const BlockInfo& block) {
        dictionary([&] {
          item("address", block.address);
          item("size", block.bytes);
          item("requested_size", block.requested);
          item("state", name_of(block.state));
          frames(block.frames);
        });
      });
    });
  }

  void entry(const TraceEntry& event) {
    dictionary([&] {
      item("action", name_of(event.action));
      item(event.action == TraceAction::oom ? "device_free" : "addr", event.address);
      // Of blocks, torch writes what was asked for, and its viewer counts with that.
      item("size", event.requested != 0 ? event.requested : event.bytes);
      item("stream", event.stream);
      key("time_us");
      pickle_.integer(event.time_us);
      item("compile_context", std::string_view("N/A"));
      item("user_metadata", std::string_view(event.user_metadata));
      frames(event.frames);
    });
  }

  void annotation(const Annotation& note) {
    dictionary([&] {
      for (const auto& [name, value] : note.values) item(name, std::string_view(value));
      key("device");
      pickle_.integer(note.device);
      key("time_us");
      pickle_.integer(note.time_us);
    });
  }

  void settings(const std::map<std::string, SettingValue>& values) {
    dictionary([&] {
      for (const std::string_view name : kSettings) {
        const auto found = values.find(std::string(name));
        if (found == values.end()) continue;
        key(name);
        std::visit([&](const auto& value) { setting(value); }, found->second);
      }
    });
  }

  void setting(bool value) { pickle_.boolean(value); }
  void setting(std::int64_t value) { pickle_.integer(value); }
  void setting(double value) { pickle_.real(value); }
  void setting(const std::string& value) { pickle_.text(value); }
  void setting(const std::map<std::string, std::int64_t>& values) {
    dictionary([&] {
      for (const auto& [name, value] : values) {
        key(name);
        pickle_.integer(value);
      }
    });
  }

  PickleWriter pickle_;
  std::unordered_map<const void*, std::uint32_t> stacks_;
};

}  // namespace

void write_pickle(const Snapshot& snapshot, std::ostream& out) {
  SnapshotPickle(out).write(snapshot);
}

}  // namespace gantry::snapshot

#include <fmt/format.h>

#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include <gantry/core/error.hpp>

#include "tools/replay/log_file.hpp"

namespace gantry::replay {
namespace {

using snapshot::JsonDocument;
using snapshot::ValueId;

enum class Action { alloc, free_requested, free_completed };

// One allocation or free of the history.
struct Event {
  Action action = Action::alloc;
  std::int64_t address = 0;
  std::uint64_t bytes = 0;
  std::int64_t stream = 0;
};

// A block that was there before the history began.
struct Resident {
  std::int64_t address = 0;
  std::uint64_t bytes = 0;
  std::int64_t stream = 0;
};

std::uint64_t positive(std::int64_t bytes, std::string_view what) {
  if (bytes < 0) {
    throw InvalidArgument(fmt::format("{}: a size is at least 0, but got {}", what, bytes));
  }
  return static_cast<std::uint64_t>(bytes);
}

// The index of the device to replay.
std::size_t choose_device(const JsonDocument& tree, const JsonDocument::List& traces,
                          std::optional<int> device) {
  if (device) {
    if (*device < 0 || static_cast<std::size_t>(*device) >= traces.size()) {
      throw InvalidArgument(
          fmt::format("snapshot: it has {} devices, but not device {}", traces.size(), *device));
    }
    return static_cast<std::size_t>(*device);
  }
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const JsonDocument::List* trace = tree.list(&tree.at(traces[i]));
    if (trace != nullptr && !trace->empty()) return i;
  }
  throw InvalidArgument(
      "snapshot: no device has a history; start it with record_history before the work");
}

// A free_completed follows its free_requested when streams are done: the allocator's business, not
// the program's. Histories without requests have completions alone, which then are the frees.
std::vector<Event> without_completions(const std::vector<Event>& events) {
  bool has_requests = false;
  for (const Event& event : events) {
    has_requests = has_requests || event.action == Action::free_requested;
  }
  std::unordered_map<std::int64_t, int> requested;  // frees that are not complete, by address
  std::unordered_set<std::int64_t> live;
  std::vector<Event> frees_once;
  for (const Event& event : events) {
    switch (event.action) {
      case Action::alloc:
        live.insert(event.address);
        break;
      case Action::free_requested:
        ++requested[event.address];
        live.erase(event.address);
        break;
      case Action::free_completed: {
        const auto request = requested.find(event.address);
        if (request != requested.end()) {
          if (--request->second == 0) requested.erase(request);
          continue;
        }
        // The request of a block that is not live was before the history.
        if (live.erase(event.address) == 0 && has_requests) continue;
        break;
      }
    }
    frees_once.push_back(event);
  }
  return frees_once;
}

std::vector<Event> read_events(const JsonDocument& tree, const JsonDocument::List& trace) {
  constexpr std::string_view kWhat = "snapshot, trace entry";
  std::vector<Event> events;
  for (const ValueId id : trace) {
    const JsonDocument::Value& entry = tree.at(id);
    const std::string& action = tree.text(entry, "action", kWhat);
    Event event;
    if (action == "free_requested") {
      event.action = Action::free_requested;
    } else if (action == "free_completed") {
      event.action = Action::free_completed;
    } else if (action != "alloc") {
      continue;
    }
    // Where both are there, `size` is the block's, which an allocator has rounded up.
    const bool knows_request = tree.find(entry, "requested_size") != nullptr;
    const char* size = knows_request ? "requested_size" : "size";
    event.bytes = positive(tree.integer(entry, size, kWhat), kWhat);
    if (event.bytes == 0) continue;
    event.address = tree.integer(entry, "addr", kWhat);
    event.stream = tree.integer(entry, "stream", kWhat);
    events.push_back(event);
  }
  return without_completions(events);
}

// Live blocks of the snapshot that the history does not explain.
std::vector<Resident> read_residents(const JsonDocument& tree, std::size_t device,
                                     const std::unordered_set<std::int64_t>& explained) {
  std::vector<Resident> residents;
  const JsonDocument::List* segments = tree.list(tree.find(tree.at(tree.root()), "segments"));
  if (segments == nullptr) return residents;
  for (const ValueId id : *segments) {
    const JsonDocument::Value& segment = tree.at(id);
    if (tree.integer(segment, "device", "snapshot, segment") != static_cast<std::int64_t>(device)) {
      continue;
    }
    const std::int64_t stream = tree.integer(segment, "stream", "snapshot, segment");
    std::int64_t address = tree.integer(segment, "address", "snapshot, segment");
    const JsonDocument::List* blocks = tree.list(tree.find(segment, "blocks"));
    if (blocks == nullptr) continue;
    for (const ValueId block_id : *blocks) {
      const JsonDocument::Value& block = tree.at(block_id);
      const std::int64_t size = tree.integer(block, "size", "snapshot, block");
      // Old snapshots name the first address only; blocks follow each other without holes.
      if (tree.find(block, "address") != nullptr) {
        address = tree.integer(block, "address", "snapshot, block");
      }
      if (tree.text(block, "state", "snapshot, block") == "active_allocated" &&
          !explained.contains(address)) {
        const bool knows_request = tree.find(block, "requested_size") != nullptr;
        const std::int64_t bytes =
            knows_request ? tree.integer(block, "requested_size", "snapshot, block") : size;
        if (bytes > 0) residents.push_back({address, positive(bytes, "snapshot, block"), stream});
      }
      address += size;
    }
  }
  return residents;
}

class StreamNumbers {
 public:
  StreamNumbers() { numbers_[0] = 0; }
  std::uint16_t operator()(std::int64_t stream) {
    const auto next = static_cast<std::uint16_t>(numbers_.size());
    const auto [found, added] = numbers_.try_emplace(stream, next);
    if (added && numbers_.size() > std::numeric_limits<std::uint16_t>::max()) {
      throw InvalidArgument("snapshot: more than 65,534 streams are not supported");
    }
    return found->second;
  }

 private:
  std::map<std::int64_t, std::uint16_t> numbers_;
};

}  // namespace

AllocationSequence read_snapshot(const JsonDocument& document, const std::string& name,
                                 std::optional<int> device) {
  const JsonDocument::List* traces =
      document.list(document.find(document.at(document.root()), "device_traces"));
  if (traces == nullptr) {
    throw InvalidArgument("snapshot: expected a dictionary with a list 'device_traces'");
  }
  const std::size_t index = choose_device(document, *traces, device);
  const JsonDocument::List* trace = document.list(&document.at((*traces)[index]));
  if (trace == nullptr) throw InvalidArgument("snapshot: a device's history is no list");
  const std::vector<Event> events = read_events(document, *trace);

  // Blocks that were live before: freed here without an allocation here, or live in the end without
  // one.
  std::unordered_set<std::int64_t> allocated;
  std::vector<Resident> residents;
  for (const Event& event : events) {
    if (event.action == Action::alloc) {
      allocated.insert(event.address);
    } else if (allocated.insert(event.address).second) {
      residents.push_back({event.address, event.bytes, event.stream});
    }
  }
  const std::vector<Resident> silent = read_residents(document, index, allocated);
  residents.insert(residents.end(), silent.begin(), silent.end());

  AllocationSequence sequence;
  sequence.name = name;
  struct Live {
    std::uint32_t block;
    std::uint16_t stream;
  };
  std::unordered_map<std::int64_t, Live> live;
  StreamNumbers streams;
  const auto allocate = [&](std::int64_t address, std::uint64_t bytes, std::int64_t stream) {
    const std::uint16_t number = streams(stream);
    live[address] = {sequence.allocate(bytes, number), number};
  };
  for (const Resident& block : residents) allocate(block.address, block.bytes, block.stream);
  for (const Event& event : events) {
    const auto found = live.find(event.address);
    if (event.action == Action::alloc) {
      if (found != live.end()) {
        throw InvalidArgument(fmt::format(
            "snapshot: the history allocates 0x{:x} twice without a free between", event.address));
      }
      allocate(event.address, event.bytes, event.stream);
    } else if (found == live.end()) {
      ++sequence.unmatched_frees;
    } else {
      sequence.free(found->second.block, found->second.stream);
      live.erase(found);
    }
  }
  return sequence;
}

}  // namespace gantry::replay

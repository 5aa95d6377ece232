#include "collectives/p2p/registrations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/ipc/ipc.hpp>

#include "core/assert.hpp"
#include "job/flight_file.hpp"

namespace gantry {

struct Registrations::Entry {
  Storage mine;
  std::vector<memory::ImportedBlock> others;
  std::vector<std::byte*> bases;     // by rank
  std::vector<std::byte*> at_peers;  // of `mine`, by rank: at that rank's addresses
};

namespace {

// A rank's message to the others: the size of its memory and, if they open it, its handle.
std::string export_of(const Storage& storage, bool opens) {
  const std::uint64_t bytes = storage.bytes();
  std::string exported(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  if (!opens) return exported;
  const memory::IpcHandle handle = memory::export_ipc(*storage.block());
  return exported.append(reinterpret_cast<const char*>(handle.bytes.data()), handle.bytes.size());
}

std::uint64_t bytes_of(const std::string& exported) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, exported.data(), sizeof bytes);
  return bytes;
}

memory::IpcHandle handle_of(const std::string& exported) {
  const auto* data = reinterpret_cast<const std::byte*>(exported.data());
  return {{data + sizeof(std::uint64_t), data + exported.size()}};
}

// A rank's last message: where it has the memory of all ranks open.
std::string text_of(const std::vector<std::byte*>& bases) {
  std::string text = "opened";
  return text.append(reinterpret_cast<const char*>(bases.data()), bases.size() * sizeof bases[0]);
}

std::byte* base_in(const std::string& text, int rank) {
  std::byte* base = nullptr;
  const std::size_t at = sizeof "opened" - 1 + static_cast<std::size_t>(rank) * sizeof base;
  std::memcpy(&base, text.data() + at, sizeof base);
  return base;
}

}  // namespace

Registrations::Registrations(int rank, Device device, bool opens)
    : rank_(rank), device_(device), opens_(opens) {}
Registrations::~Registrations() = default;

void Registrations::add(Bootstrap& bootstrap, const Storage& storage, std::string_view op) {
  // A failure on one rank must reach the others: they wait in the exchange.
  auto entry = std::make_unique<Entry>();
  entry->mine = storage;
  std::string exported;
  std::exception_ptr failure;
  try {
    if (std::ranges::any_of(entries_, [&](const auto& e) { return e && e->mine == storage; })) {
      throw InvalidArgument(fmt::format("{}: expected memory that is not registered yet", op));
    }
    if (opens_ && storage.block() == nullptr) {
      throw NotSupported(
          fmt::format("{}: expected memory of a device allocator, but got {}", op,
                      storage.bytes() == 0 ? "an empty tensor" : "foreign or imported memory"),
          device_.str());
    }
    exported = export_of(storage, opens_);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::vector<std::string> exports = bootstrap.all_gather(exported);
  try {
    if (failure) std::rethrow_exception(failure);
    for (std::size_t peer = 0; peer < exports.size(); ++peer) {
      if (exports[peer].empty()) {
        throw InvalidArgument(fmt::format("{}: rank {} could not share its memory", op, peer));
      }
      if (bytes_of(exports[peer]) != storage.bytes()) {
        throw InvalidArgument(
            fmt::format("{}: expected memory of one size on all ranks, but rank {} has {} bytes "
                        "and rank {} has {}",
                        op, rank_, storage.bytes(), peer, bytes_of(exports[peer])));
      }
    }
    for (std::size_t peer = 0; opens_ && peer < exports.size(); ++peer) {
      if (static_cast<int>(peer) == rank_) {
        entry->bases.push_back(static_cast<std::byte*>(storage.data()));
        continue;
      }
      entry->others.push_back(memory::import_ipc(handle_of(exports[peer]), device_));
      entry->bases.push_back(static_cast<std::byte*>(entry->others.back().data()));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  // It counts only if everyone has it.
  const std::vector<std::string> states =
      bootstrap.all_gather(failure ? "" : text_of(entry->bases));
  if (failure) std::rethrow_exception(failure);
  if (const auto failed = std::ranges::find(states, ""); failed != states.end()) {
    throw InvalidArgument(
        fmt::format("{}: rank {} could not open the others' memory", op, failed - states.begin()));
  }
  GANTRY_ASSERT(!opens_ || entry->bases.size() == exports.size(),
                "registered memory is not open on every rank");
  for (const std::string& state : states) {
    if (opens_) entry->at_peers.push_back(base_in(state, rank_));
  }
  const auto free = std::ranges::find_if(entries_, [](const auto& e) { return e == nullptr; });
  if (free != entries_.end()) {
    *free = std::move(entry);
  } else {
    entries_.push_back(std::move(entry));
  }
}

void Registrations::remove(const Storage& storage) {
  const auto found = std::ranges::find_if(
      entries_, [&](const auto& entry) { return entry && entry->mine == storage; });
  if (found == entries_.end()) {
    throw InvalidArgument("deregister_memory: expected registered memory");
  }
  found->reset();
}

void Registrations::record_stream(const Stream& stream) const {
  for (const auto& entry : entries_) {
    if (!entry) continue;
    for (const memory::ImportedBlock& other : entry->others) other.record_stream(stream);
  }
}

bool Registrations::empty() const {
  return std::ranges::all_of(entries_, [](const auto& entry) { return entry == nullptr; });
}

std::size_t Registrations::number_of(const void* data, std::int64_t bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i]) continue;
    const auto base = reinterpret_cast<std::uintptr_t>(entries_[i]->mine.data());
    if (at >= base && at + static_cast<std::uint64_t>(bytes) <= base + entries_[i]->mine.bytes()) {
      return i + 1;
    }
  }
  return 0;
}

std::uint64_t Registrations::find(const void* data, std::int64_t bytes) const {
  const std::size_t number = number_of(data, bytes);
  if (number == 0) return 0;
  const auto* base = static_cast<const std::byte*>(entries_[number - 1]->mine.data());
  const std::ptrdiff_t offset = static_cast<const std::byte*>(data) - base;
  return flight::pack_window_offset(number, static_cast<std::uint64_t>(offset));
}

bool Registrations::find_at_peers(const void* data, std::int64_t bytes,
                                  std::span<std::byte*> places) const {
  const std::size_t number = number_of(data, bytes);
  if (number == 0) return false;
  const Entry& entry = *entries_[number - 1];
  const auto* base = static_cast<const std::byte*>(entry.mine.data());
  const std::ptrdiff_t offset = static_cast<const std::byte*>(data) - base;
  std::ranges::transform(entry.at_peers, places.begin(),
                         [&](std::byte* place) { return place + offset; });
  return true;
}

std::byte* Registrations::address(std::uint64_t window_offset, int rank) const {
  GANTRY_ASSERT(flight::registration_of(window_offset) - 1 < entries_.size() &&
                    entries_[flight::registration_of(window_offset) - 1] != nullptr,
                "an address is asked for memory that is not registered");
  const Entry& entry = *entries_[flight::registration_of(window_offset) - 1];
  GANTRY_ASSERT(static_cast<std::size_t>(rank) < entry.bases.size(),
                "an address is asked of a rank that the group does not have");
  return entry.bases[static_cast<std::size_t>(rank)] + flight::offset_of(window_offset);
}

}  // namespace gantry

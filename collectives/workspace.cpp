#include "collectives/workspace.hpp"

#include <cstring>
#include <exception>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

namespace gantry {

namespace {

constexpr std::size_t kTotalBytes =
    Workspace::kSlots * (Workspace::kSlotBytes + Workspace::kResultBytes);

// What a rank sends about its part; all fields are bytes or fixed-width, so there is no padding.
struct Offer {
  NativeMemoryHandle memory;
  NativeEventHandle events[Workspace::kEvents];
};

}  // namespace

Workspace::Workspace(Bootstrap& bootstrap, int rank, int size, int device)
    : rank_(rank),
      device_(device),
      memory_(static_cast<std::size_t>(size), nullptr),
      events_(static_cast<std::size_t>(size)) {
  const auto mine = static_cast<std::size_t>(rank);
  // A failure on one rank must reach the others: they wait in the exchange.
  std::string offer_bytes;
  std::exception_ptr failure;
  try {
    memory_[mine] = driver().allocate(device, kTotalBytes);
    if (memory_[mine] == nullptr) {
      throw OutOfMemoryError(
          fmt::format("Failed allocating the communicator's workspace of {} MiB on cuda:{}",
                      kTotalBytes >> 20, device),
          MemoryBreakdown{.requested = static_cast<std::int64_t>(kTotalBytes)},
          Device::cuda(device).str());
    }
    Offer offer;
    offer.memory = driver().export_memory(memory_[mine]);
    for (int i = 0; i < kEvents; ++i) {
      events_[mine].push_back(driver().create_event(device, {.interprocess = true}));
      offer.events[i] = driver().export_event(events_[mine].back());
    }
    offer_bytes.assign(reinterpret_cast<const char*>(&offer), sizeof offer);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::vector<std::string> offers = bootstrap.all_gather(offer_bytes);
  std::string opened = "opened";
  if (!failure) {
    try {
      for (int peer = 0; peer < size; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        if (peer == rank) continue;
        if (offers[at].size() != sizeof(Offer)) {
          throw PeerLostError(fmt::format("rank {} could not make its workspace", peer), peer);
        }
        Offer offer;
        std::memcpy(&offer, offers[at].data(), sizeof offer);
        memory_[at] = driver().open_memory(device, offer.memory);
        for (const NativeEventHandle& handle : offer.events) {
          events_[at].push_back(driver().open_event(device, handle));
        }
      }
    } catch (...) {
      failure = std::current_exception();
      opened = "failed";
    }
  } else {
    opened = "failed";
  }
  // Nobody uses, or takes away, memory before everyone has opened everything.
  const std::vector<std::string> states = bootstrap.all_gather(opened);
  if (!failure) {
    for (int peer = 0; peer < size; ++peer) {
      if (states[static_cast<std::size_t>(peer)] == "opened") continue;
      failure = std::make_exception_ptr(PeerLostError(
          fmt::format("rank {} could not open the workspaces of the other ranks", peer), peer));
      break;
    }
  }
  if (failure) {
    release();
    std::rethrow_exception(failure);
  }
}

Workspace::~Workspace() { release(); }

void Workspace::release() noexcept {
  try {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      for (const NativeEvent event : events_[rank]) driver().destroy_event(event);
      events_[rank].clear();
      if (memory_[rank] == nullptr) continue;
      if (static_cast<int>(rank) == rank_) {
        driver().deallocate(device_, memory_[rank]);
      } else {
        driver().close_memory(memory_[rank]);
      }
      memory_[rank] = nullptr;
    }
  } catch (const std::exception& error) {
    logging::warn(fmt::format("releasing a communicator's workspace: {}", error.what()));
  }
}

void* Workspace::staging(int rank, int slot) const {
  return static_cast<std::byte*>(memory_[static_cast<std::size_t>(rank)]) +
         static_cast<std::size_t>(slot) * kSlotBytes;
}

void* Workspace::result(int rank, int slot) const {
  return static_cast<std::byte*>(memory_[static_cast<std::size_t>(rank)]) + kSlots * kSlotBytes +
         static_cast<std::size_t>(slot) * kResultBytes;
}

NativeEvent Workspace::event(int rank, int index) const {
  return events_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(index)];
}

}  // namespace gantry

#include "ipc/open_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "core/processes/background_thread.hpp"
#include "device/drivers/background_calls.hpp"
#include "ipc/offered_ranges.hpp"
#include "ipc/peer.hpp"
#include "memory/arenas/chunk_store.hpp"

namespace gantry::memory {
namespace {

using namespace std::chrono_literals;

// A member that is stopped keeps memory that was withdrawn: recovery goes on without it.
constexpr auto kWithdrawalTimeout = 1s;
// As long for a capture, which then goes without.
constexpr auto kCaptureTimeout = 10s;
// The blocks of which it is known that they cannot be offered; others are looked at once more.
constexpr std::size_t kMostClosed = 1024;

// The offer or withdrawal of a part.
IpcOffer packet_of(const RangePart& part, IpcRequest::Kind kind) {
  IpcOffer packet;
  packet.request.kind = kind;
  packet.range = part.range;
  packet.range_bytes = part.range_bytes;
  packet.offset = part.run.begin;
  packet.bytes = part.run.bytes();
  return packet;
}

void log_failure(const std::exception& error) {
  logging::debug(fmt::format("memory for other processes: {}", error.what()));
}

}  // namespace

/// The memory of a member, shared with the background thread, which may outlive the OpenMemory.
class OpenMemory::State : public std::enable_shared_from_this<State> {
 public:
  State(int rank, std::vector<MirrorPlace> places)
      : rank_(static_cast<std::size_t>(rank)),
        places_(std::move(places)),
        peers_(places_.size()),
        ranges_(places_.size()) {}

  [[nodiscard]] bool find(const Block& block, const std::byte* data, std::size_t bytes, Use use,
                          std::span<std::byte*> addresses);
  /// Chunks have come to their addresses. False if a graph needs them to be open, and they are not.
  [[nodiscard]] bool open_kept(const MappedChunks& mapped) noexcept;
  /// Chunks leave their addresses.
  void withdraw(std::byte* address, std::size_t bytes) noexcept;
  /// Waits for a while until all members have unmapped what was withdrawn. False if they did not.
  [[nodiscard]] bool await_withdrawals();
  void end() noexcept;

 private:
  /// A withdrawal has no chunks.
  using Job = ChunkOffer;

  [[nodiscard]] bool offer(const Block& block);
  [[nodiscard]] bool find_for_graph(std::unique_lock<std::mutex>& lock, const Block& block,
                                    const std::byte* data, std::size_t bytes,
                                    std::span<std::byte*> addresses);
  void add(Job job);
  // The thread, and what it alone calls.
  void run();
  void perform_offer(const Job& job);
  void perform_withdrawal(const Job& job);
  [[nodiscard]] std::vector<UniqueFd> export_chunks(const Job& job);
  [[nodiscard]] std::vector<std::byte*> send_to_all(const Job& job,
                                                    std::span<const UniqueFd> descriptors);
  void withdraw_from_all(const Job& job) noexcept;
  std::byte* send(const IpcOffer& offer, std::size_t rank, std::span<const int> descriptors);

  const std::size_t rank_;
  const std::vector<MirrorPlace> places_;
  std::vector<std::shared_ptr<IpcPeer>> peers_;  ///< by rank; the thread's

  std::mutex mutex_;
  std::condition_variable changed_;
  OfferedRanges ranges_;
  std::set<const void*> closed_;  ///< beginnings of blocks that cannot be offered
  std::deque<Job> jobs_;
  bool has_thread_ = false;
  bool is_exporting_ = false;  ///< the thread uses chunks, which must stay in this process
  bool is_lost_ = false;       ///< a member is lost, or there was no memory
  bool has_ended_ = false;
};

bool OpenMemory::State::find(const Block& block, const std::byte* data, std::size_t bytes, Use use,
                             std::span<std::byte*> addresses) {
  std::unique_lock lock(mutex_);
  if (use == Use::in_graph) return find_for_graph(lock, block, data, bytes, addresses);
  if (ranges_.find(data, bytes, addresses)) return true;
  if (is_lost_ || closed_.contains(block.data)) return false;
  lock.unlock();
  static_cast<void>(offer(block));
  return false;
}

bool OpenMemory::State::find_for_graph(std::unique_lock<std::mutex>& lock, const Block& block,
                                       const std::byte* data, std::size_t bytes,
                                       std::span<std::byte*> addresses) {
  const auto deadline = std::chrono::steady_clock::now() + kCaptureTimeout;
  while (!ranges_.find(data, bytes, addresses)) {
    if (is_lost_ || closed_.contains(block.data)) return false;
    lock.unlock();
    const bool is_offered = offer(block);
    lock.lock();
    if (!is_offered && !ranges_.is_in_transition(data, bytes)) break;
    const auto is_settled = [&] { return is_lost_ || !ranges_.is_in_transition(data, bytes); };
    if (!changed_.wait_until(lock, deadline, is_settled)) return false;
  }
  if (!ranges_.find(data, bytes, addresses)) return false;
  ranges_.keep(data, bytes);
  return true;
}

// Offers the chunks of a block that are unknown to the others. False if there are none.
bool OpenMemory::State::offer(const Block& block) {
  auto* allocator = dynamic_cast<ExportableAllocator*>(block.allocator);
  if (allocator == nullptr) return false;
  BlockExtent extent;
  try {
    extent = allocator->pin(block);
    // The block is live: its chunks stay, or leave by withdraw().
    allocator->unpin(block);
  } catch (const Error& error) {
    log_failure(error);
  }
  const std::lock_guard lock(mutex_);
  if (extent.range == nullptr) {  // memory of the driver, or of another allocator
    if (closed_.size() >= kMostClosed) closed_.clear();
    closed_.insert(block.data);
    return false;
  }
  auto offers = ranges_.offer(extent, static_cast<std::byte*>(block.data) - extent.offset);
  for (ChunkOffer& one : offers) add(std::move(one));
  return !offers.empty();
}

void OpenMemory::State::add(Job job) {
  jobs_.push_back(std::move(job));
  if (!has_thread_) {
    start_background_thread("gantry-open", [state = shared_from_this()] { state->run(); }).detach();
    has_thread_ = true;
  }
  changed_.notify_all();
}

bool OpenMemory::State::open_kept(const MappedChunks& mapped) noexcept try {
  std::unique_lock lock(mutex_);
  const std::size_t bytes = mapped.bytes();
  // The kernels of a lost group access nothing.
  if (is_lost_ || !ranges_.has_kept(mapped.address, bytes)) return true;
  BlockExtent extent;
  extent.range = mapped.range;
  extent.range_bytes = mapped.range_bytes;
  for (const Chunk& chunk : mapped.chunks) extent.chunks.push_back({chunk.native, chunk.bytes});
  const auto is_settled = [&] {
    return is_lost_ || !ranges_.is_in_transition(mapped.address, bytes);
  };
  changed_.wait(lock, is_settled);  // the chunks before them are withdrawn
  for (ChunkOffer& one : ranges_.offer(extent, mapped.address)) add(std::move(one));
  changed_.wait(lock, is_settled);
  return is_lost_ || !ranges_.has_kept_closed(mapped.address, bytes);
} catch (const std::exception& error) {
  log_failure(error);
  return false;
}

void OpenMemory::State::withdraw(std::byte* address, std::size_t bytes) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !is_exporting_; });
  try {
    for (const RangePart& part : ranges_.withdraw(address, bytes)) add({part, {}});
  } catch (const std::exception& error) {
    log_failure(error);
    // Addresses must not be given out for chunks that have left.
    is_lost_ = true;
    ranges_.clear();
    changed_.notify_all();
  }
}

bool OpenMemory::State::await_withdrawals() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kWithdrawalTimeout, [this] { return !ranges_.has_withdrawn(); });
}

void OpenMemory::State::end() noexcept {
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

void OpenMemory::State::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return has_ended_ || !jobs_.empty(); });
      if (has_ended_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      job.chunks.empty() ? perform_withdrawal(job) : perform_offer(job);
    } catch (const std::exception& error) {
      log_failure(error);
      const std::lock_guard lock(mutex_);
      is_lost_ = true;
    }
    changed_.notify_all();
  }
}

// Throws: PeerLostError if a member is lost; std::bad_alloc.
void OpenMemory::State::perform_offer(const Job& job) {
  std::vector<std::byte*> mirrors;
  try {
    const std::vector<UniqueFd> descriptors = export_chunks(job);
    if (descriptors.empty()) return;
    mirrors = send_to_all(job, descriptors);
  } catch (const PeerLostError&) {
    throw;
  } catch (const std::exception& error) {
    log_failure(error);
    withdraw_from_all(job);
    const std::lock_guard lock(mutex_);
    return ranges_.refuse(job.part);
  }
  // Some chunks may have left meanwhile: their withdrawal is a later job.
  const std::lock_guard lock(mutex_);
  ranges_.accept(job.part, std::move(mirrors));
}

// Returns none if a chunk has left its addresses: the others may be offered again.
std::vector<UniqueFd> OpenMemory::State::export_chunks(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    if (!ranges_.is_offered(job.part)) {
      ranges_.drop(job.part);
      return {};
    }
    is_exporting_ = true;
  }
  std::vector<UniqueFd> descriptors;
  std::exception_ptr failure;
  try {
    const ExitLock::Shared held(background_calls());
    for (const Chunk& chunk : job.chunks) {
      if (held) descriptors.push_back(driver().export_chunk(chunk.native));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    is_exporting_ = false;
  }
  changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
  return descriptors;
}

// Returns where each member has the range.
std::vector<std::byte*> OpenMemory::State::send_to_all(const Job& job,
                                                       std::span<const UniqueFd> descriptors) {
  IpcOffer offer = packet_of(job.part, IpcRequest::Kind::offer);
  offer.count = static_cast<std::uint32_t>(job.chunks.size());
  std::ranges::transform(job.chunks, offer.chunks, &Chunk::bytes);
  std::vector<int> numbers;
  for (const UniqueFd& descriptor : descriptors) numbers.push_back(descriptor.get());
  std::vector<std::byte*> mirrors;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    const bool is_local = places_[rank].process == places_[rank_].process;
    mirrors.push_back(is_local ? job.part.base : send(offer, rank, numbers));
  }
  return mirrors;
}

// A member that does not reply has ended, or keeps its mapping until it closes its mirrors.
void OpenMemory::State::withdraw_from_all(const Job& job) noexcept {
  const IpcOffer withdrawal = packet_of(job.part, IpcRequest::Kind::withdrawal);
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (peers_[rank] == nullptr) continue;  // a local one, or one that was offered nothing
    try {
      send(withdrawal, rank, {});
    } catch (const std::exception& error) {
      log_failure(error);
    }
  }
}

std::byte* OpenMemory::State::send(const IpcOffer& offer, std::size_t rank,
                                   std::span<const int> descriptors) {
  if (peers_[rank] == nullptr) {
    IpcHandleFields fields;
    fields.exporter = places_[rank].process;
    fields.nonce = places_[rank].nonce;
    peers_[rank] = IpcPeer::of(fields);
  }
  IpcOffer addressed = offer;
  addressed.mirrors = places_[rank].mirrors;
  return peers_[rank]->send_offer(addressed, descriptors);
}

void OpenMemory::State::perform_withdrawal(const Job& job) {
  withdraw_from_all(job);
  const std::lock_guard lock(mutex_);
  ranges_.forget(job.part);
}

/// The open memory of this process, for its allocators.
class OpenMemory::Registry {
 public:
  /// Never destroyed: memory is unmapped while the process exits.
  static Registry& instance() {
    static auto& registry = *new Registry();
    return registry;
  }

  void add(std::shared_ptr<State> state) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(state));
  }
  void remove(const std::shared_ptr<State>& state) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(all_, state);
  }

 private:
  Registry() {
    MappingCallbacks::instance().mapped.add([](const MappedChunks& mapped) noexcept {
      return instance().all_agree([&](State& state) { return state.open_kept(mapped); });
    });
    MappingCallbacks::instance().unmapping.add([](std::byte* address, std::size_t bytes) noexcept {
      if (in_bad_fork()) return;
      const std::lock_guard lock(instance().mutex_);
      for (const auto& state : instance().all_) state->withdraw(address, bytes);
    });
    MappingCallbacks::instance().released.add([]() noexcept {
      instance().all_agree([](State& state) { return state.await_withdrawals(); });
    });
  }

  /// True if `visit` is true for each state; visits all, without the lock. False without memory
  /// for it.
  template <class Visit>
  bool all_agree(const Visit& visit) noexcept try {
    std::vector<std::shared_ptr<State>> states;
    {
      const std::lock_guard lock(mutex_);
      states = all_;
    }
    bool agree = true;
    for (const auto& state : states) agree = visit(*state) && agree;
    return agree;
  } catch (const std::exception&) {
    return false;
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<State>> all_;
};

OpenMemory::OpenMemory(int rank, std::vector<MirrorPlace> places)
    : state_(std::make_shared<State>(rank, std::move(places))) {
  Registry::instance().add(state_);
}

OpenMemory::~OpenMemory() {
  Registry::instance().remove(state_);
  state_->end();
}

bool OpenMemory::find(const Block& block, const void* data, std::size_t bytes, Use use,
                      std::span<std::byte*> addresses) {
  return state_->find(block, static_cast<const std::byte*>(data), bytes, use, addresses);
}

}  // namespace gantry::memory

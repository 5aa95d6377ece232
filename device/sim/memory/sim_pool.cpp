#include "device/sim/memory/sim_pool.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "core/assert.hpp"
#include "device/sim/devices/sim_error.hpp"

namespace gantry::sim {

namespace {

bool is_done(const SimStream& stream, std::uint64_t ticket) { return stream.done(ticket); }

void protect(void* data, std::size_t bytes, int access) {
  if (::mprotect(data, bytes, access) == 0) return;
  throw std::runtime_error(fmt::format("the protection of {} bytes at {} cannot be changed: {}",
                                       bytes, data, std::strerror(errno)));
}

}  // namespace

void* MemoryPool::allocate(SimStream& stream, std::size_t bytes) {
  if (bytes == 0) {
    fail(kInvalidValue, "allocating 0 bytes on " + stream.name(), device_.index());
  }
  // Past this no rounding overflows.
  if (bytes > device_.memory_info().total) return nullptr;
  Piece before;
  void* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto piece = take(stream, round_to_pages(bytes));
    if (piece == pieces_.end()) return nullptr;
    data = piece->first;
    before = piece->second;
    piece->second = {.bytes = before.bytes};
    usage_.used += before.bytes;
    usage_.used_high = std::max(usage_.used_high, usage_.used);
    memory_.set_pooled(data, true);
  }
  const SimStream* other = before.freed_on == &stream ? nullptr : before.freed_on;
  stream.submit([data, size = before.bytes] { protect(data, size, PROT_READ | PROT_WRITE); },
                {.always = true, .after = {other, before.ticket}});
  return data;
}

void MemoryPool::deallocate(void* data, SimStream& stream) {
  Pieces::iterator piece;
  {
    const std::lock_guard lock(mutex_);
    piece = pieces_.find(data);
    if (piece == pieces_.end() || !piece->second.live) {
      fail(kInvalidValue, fmt::format("freeing {} on {}", data, stream.name()), device_.index(),
           "the address is no live stream-ordered memory of this device");
    }
    GANTRY_ASSERT(usage_.used >= piece->second.bytes, "more bytes of a pool are freed than used");
    piece->second.live = false;
    usage_.used -= piece->second.bytes;
    memory_.set_pooled(data, false);
  }
  const std::size_t bytes = piece->second.bytes;
  const std::uint64_t ticket = stream.submit([data, bytes] { protect(data, bytes, PROT_NONE); },
                                             {.always = true, .mark = true});
  const std::lock_guard lock(mutex_);
  piece->second.freed_on = &stream;
  piece->second.ticket = ticket;
  free_.emplace(bytes, piece);
}

MemoryPool::FreePieces::iterator MemoryPool::find_exact(const SimStream& stream,
                                                        std::size_t bytes) {
  const auto [begin, end] = free_.equal_range(bytes);
  auto found = free_.end();
  for (auto it = begin; it != end; ++it) {
    const Piece& piece = it->second->second;
    if (piece.freed_on == &stream) return it;
    if (found == free_.end() && is_done(*piece.freed_on, piece.ticket)) found = it;
  }
  return found;
}

MemoryPool::Pieces::iterator MemoryPool::take(SimStream& stream, std::size_t bytes) {
  auto found = find_exact(stream, bytes);
  if (found == free_.end()) {
    auto made = map(bytes);
    if (made == pieces_.end()) {
      release_done(0);
      made = map(bytes);
    }
    if (made != pieces_.end()) return made;
    // The work on the pieces left is not done: the new owner waits for it.
    found = free_.lower_bound(bytes);
    if (found == free_.end()) return pieces_.end();
  }
  const auto piece = found->second;
  GANTRY_ASSERT(!piece->second.live && piece->second.bytes == found->first,
                "the list of free pieces has one in use, or of another size");
  free_.erase(found);
  return piece;
}

// A piece that is closed and not counted as used yet; end() without capacity.
MemoryPool::Pieces::iterator MemoryPool::map(std::size_t bytes) {
  if (!device_.take(bytes)) return pieces_.end();
  void* data = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    const int reason = errno;
    device_.give_back(bytes);
    fail(kOperatingSystem, fmt::format("allocating {} bytes in order of a stream", bytes),
         device_.index(), std::strerror(reason));
  }
  memory_.add_pooled(data, bytes, device_.index());
  usage_.reserved += bytes;
  usage_.reserved_high = std::max(usage_.reserved_high, usage_.reserved);
  return pieces_.emplace(data, Piece{.bytes = bytes}).first;
}

void MemoryPool::release_done(std::size_t bytes_to_keep) {
  for (auto it = free_.begin(); it != free_.end() && usage_.reserved > bytes_to_keep;) {
    const auto piece = it->second;
    if (!is_done(*piece->second.freed_on, piece->second.ticket)) {
      ++it;
      continue;
    }
    piece->second.freed_on->acquire(piece->second.ticket);
    GANTRY_ASSERT(!piece->second.live, "a pool releases a piece in use");
    GANTRY_ASSERT(usage_.reserved >= it->first, "a pool releases more bytes than it holds");
    memory_.remove_pooled(piece->first);
    device_.give_back(it->first);
    usage_.reserved -= it->first;
    pieces_.erase(piece);
    it = free_.erase(it);
  }
}

void MemoryPool::trim(std::size_t bytes_to_keep) {
  const std::lock_guard lock(mutex_);
  release_done(bytes_to_keep);
}

NativePoolMemory MemoryPool::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void MemoryPool::reset_peaks() {
  const std::lock_guard lock(mutex_);
  usage_.used_high = usage_.used;
  usage_.reserved_high = usage_.reserved;
}

}  // namespace gantry::sim

// The tables through which exporters and importers agree about lifetimes.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <gantry/core/error.hpp>

#include "memory/ipc/socket.hpp"

namespace gantry::memory {

/// Note [Lifetime of shared blocks]
/// An exporter has one table of slots, one per exported block: its generation and whether it may be
/// imported (open) and was freed (limbo). Each importer has a table of its own for that exporter:
/// how many references it holds to each slot. Both are shared memory, the exporter's for reading
/// only; who dies leaves only numbers
/// behind that belong to it alone, and the exporter forgets an importer's table with the importer.
///
/// Taking a reference: count it, then look whether the slot is open in the generation wanted; else
/// take it back. Freeing: close the slot, then add up the references; if there are any, open it
/// again as limbo. All sequentially consistent, so of two that meet at least one sees the other.
/// Giving back: count down, then look at the slot; if it is in limbo, tell the exporter, who looks
/// at that slot again. A lost message costs time, not memory: sweeps look at the tables.
inline constexpr std::size_t kIpcSlots = std::size_t{1} << 20;

/// A slot of an exporter's table as one word.
struct SlotState {
  std::uint64_t generation = 0;
  bool is_open = false;
  bool in_limbo = false;

  [[nodiscard]] std::uint64_t word() const {
    return generation << 2 | (is_open ? 1u : 0u) | (in_limbo ? 2u : 0u);
  }
  [[nodiscard]] static SlotState of(std::uint64_t word) {
    return {word >> 2, (word & 1) != 0, (word & 2) != 0};
  }
};

/// Who writes a table beside the process that made it.
enum class TableWriters { maker, others };

/// An array of kIpcSlots atomic numbers that several processes map; zero at first. Only the pages
/// that are used take memory.
template <class T, TableWriters kWriters>
class SharedTable {
 public:
  /// A new one. Throws: Error.
  SharedTable() : descriptor_(::memfd_create("gantry ipc", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (!descriptor_ || ::ftruncate(descriptor_.get(), kBytes) != 0) fail("make", errno);
    map(PROT_READ | PROT_WRITE);
    // Nobody can make another process fault by shortening it. Kernels before 5.1 do not know the
    // seal that leaves this mapping the only writable one.
    if (kWriters == TableWriters::maker) {
      (void)::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    }
    (void)::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  }
  /// One that another process sent. Throws: Error.
  explicit SharedTable(UniqueFd descriptor) : descriptor_(std::move(descriptor)) {
    struct stat status {};
    const int seals = ::fcntl(descriptor_.get(), F_GET_SEALS);
    if (seals < 0 || ::fstat(descriptor_.get(), &status) != 0) fail("open", errno);
    if (status.st_size != off_t{kBytes} || (seals & F_SEAL_SHRINK) == 0) fail("open", EINVAL);
    map(kWriters == TableWriters::maker ? PROT_READ : PROT_READ | PROT_WRITE);
  }
  ~SharedTable() { ::munmap(data_, kBytes); }
  SharedTable(const SharedTable&) = delete;
  SharedTable& operator=(const SharedTable&) = delete;

  [[nodiscard]] std::atomic<T>& operator[](std::size_t slot) const {
    return static_cast<std::atomic<T>*>(data_)[slot];
  }
  [[nodiscard]] const UniqueFd& descriptor() const { return descriptor_; }

 private:
  static_assert(std::atomic<T>::is_always_lock_free && sizeof(std::atomic<T>) == sizeof(T));
  static constexpr std::size_t kBytes = kIpcSlots * sizeof(T);

  void map(int protection) {
    data_ = ::mmap(nullptr, kBytes, protection, MAP_SHARED, descriptor_.get(), 0);
    if (data_ == MAP_FAILED) fail("map", errno);
  }
  [[noreturn]] static void fail(const char* verb, int error) {
    throw Error(std::string("ipc: failed to ") + verb +
                " a table in shared memory: " + std::strerror(error) + remedy_for(error));
  }

  UniqueFd descriptor_;
  void* data_ = nullptr;
};

using SlotTable = SharedTable<std::uint64_t, TableWriters::maker>;
using ReferenceTable = SharedTable<std::uint32_t, TableWriters::others>;

}  // namespace gantry::memory

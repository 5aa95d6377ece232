// The tables in shared memory that carry the lifetimes of exported blocks.
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

#include "core/files/sealed_file.hpp"
#include "ipc/socket.hpp"

namespace gantry::memory {

/// Note [Lifetime of shared blocks]
/// An exporter has a table with one slot per exported block. A slot holds the block's generation
/// and two flags: open (it can be imported) and limbo (it was freed). Each importer has a table for
/// each exporter, with its number of references to each slot. Both tables are shared memory;
/// importers map the exporter's table read-only. A process that dies leaves only its own counts
/// behind. The exporter drops an importer's table together with the importer.
///
/// Acquire: increment the count, then read the slot. If the slot is not open in the expected
/// generation, decrement again.
/// Free: close the slot, then add up the counts. If there are references, open the slot again, in
/// limbo.
/// All accesses are sequentially consistent. Of a concurrent acquire and free, at least one
/// therefore sees the other.
/// Release: decrement, then read the slot. If it is in limbo, send a request to the exporter, which
/// checks that slot again. A lost request delays the free only until the next sweep.
inline constexpr std::size_t kIpcSlots = std::size_t{1} << 20;

/// A slot of an exporter's table, stored as one word.
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

/// The processes that may write a table: its creator, or every process that maps it.
enum class TableWriters { creator, all };

/// An array of kIpcSlots atomic numbers that several processes map, initially zero. Only pages in
/// use take memory.
template <class T, TableWriters kWriters>
class SharedTable {
 public:
  /// Creates a table. Throws: Error.
  SharedTable() : descriptor_(::memfd_create("gantry ipc", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (!descriptor_ || ::ftruncate(descriptor_.get(), kBytes) != 0) fail("create", errno);
    map(PROT_READ | PROT_WRITE);
    // The seals keep other processes from shrinking the table, which would fault its readers.
    // F_SEAL_FUTURE_WRITE leaves this mapping the only writable one; kernels before 5.1 lack it.
    if (kWriters == TableWriters::creator) {
      (void)::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    }
    (void)::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  }
  /// Maps a table that another process sent. Throws: Error.
  explicit SharedTable(UniqueFd descriptor) : descriptor_(std::move(descriptor)) {
    struct stat status {};
    if (::fstat(descriptor_.get(), &status) != 0) fail("open", errno);
    if (status.st_size != off_t{kBytes} || !is_sealed(descriptor_.get())) fail("open", EINVAL);
    map(kWriters == TableWriters::creator ? PROT_READ : PROT_READ | PROT_WRITE);
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

using SlotTable = SharedTable<std::uint64_t, TableWriters::creator>;
using ReferenceTable = SharedTable<std::uint32_t, TableWriters::all>;

}  // namespace gantry::memory

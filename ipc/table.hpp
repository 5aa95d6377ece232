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

/// Exported blocks of a process at one time.
inline constexpr std::size_t kIpcSlots = std::size_t{1} << 20;

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

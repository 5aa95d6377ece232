// Bytes between the ranks of a communicator, through memory that their processes share.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace simulated_nccl {

/// A FIFO from one rank to another.
struct Fifo {
  static constexpr std::uint64_t kCapacity = 64 << 10;

  std::atomic<std::uint64_t> written;
  std::atomic<std::uint64_t> read;
  std::byte bytes[kCapacity];

  /// Move what there is room for, and return how many bytes that was.
  std::size_t put(const std::byte* from, std::size_t count) {
    const std::uint64_t at = written.load(std::memory_order_relaxed);
    const std::uint64_t room = kCapacity - (at - read.load(std::memory_order_acquire));
    const std::size_t moved = std::min<std::size_t>(count, room);
    copy_around(at, moved, [&](std::size_t place, std::size_t offset, std::size_t part) {
      std::memcpy(bytes + place, from + offset, part);
    });
    written.store(at + moved, std::memory_order_release);
    return moved;
  }
  std::size_t take(std::byte* to, std::size_t count) {
    const std::uint64_t at = read.load(std::memory_order_relaxed);
    const std::uint64_t there = written.load(std::memory_order_acquire) - at;
    const std::size_t moved = std::min<std::size_t>(count, there);
    copy_around(at, moved, [&](std::size_t place, std::size_t offset, std::size_t part) {
      std::memcpy(to + offset, bytes + place, part);
    });
    read.store(at + moved, std::memory_order_release);
    return moved;
  }

 private:
  template <class Copy>
  static void copy_around(std::uint64_t at, std::size_t count, Copy copy) {
    const auto place = static_cast<std::size_t>(at % kCapacity);
    const std::size_t first = std::min<std::size_t>(count, kCapacity - place);
    if (first > 0) copy(place, 0, first);
    if (count > first) copy(0, first, count - first);
  }
};

/// The memory of one communicator.
struct Mail {
  static constexpr int kMostRanks = 8;

  std::atomic<int> joined;
  Fifo fifos[kMostRanks][kMostRanks];  // [sender][receiver]
};

/// This process's mapping of a Mail.
class Mailbox {
 public:
  /// A new one, whose path other processes of this user open while this one lives.
  static std::string make() {
    const int file = ::memfd_create("simulated-nccl", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, sizeof(Mail)) != 0) return {};
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file);
  }

  Mailbox(const std::string& path, int rank) : rank_(rank) {
    file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file_ < 0) return;
    void* const memory =
        ::mmap(nullptr, sizeof(Mail), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) return;
    mail_ = static_cast<Mail*>(memory);
    // Held until this process ends.
    struct flock lock = lock_of(rank);
    (void)::fcntl(file_, F_OFD_SETLK, &lock);
  }
  ~Mailbox() {
    if (mail_ != nullptr) ::munmap(mail_, sizeof(Mail));
    if (file_ >= 0) ::close(file_);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  explicit operator bool() const { return mail_ != nullptr; }
  Mail& operator*() const { return *mail_; }
  Mail* operator->() const { return mail_; }
  /// True if the process of `rank` has ended, or has closed its mapping.
  bool has_ended(int rank) const {
    if (rank == rank_) return false;
    struct flock lock = lock_of(rank);
    return ::fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }

 private:
  static struct flock lock_of(int rank) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
  }

  int rank_;
  int file_ = -1;
  Mail* mail_ = nullptr;
};

}  // namespace simulated_nccl

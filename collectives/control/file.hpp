#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "core/processes/process_stamp.hpp"
#include "job/flight_file.hpp"

namespace gantry {

// The facts that each rank exchanges, so that the others can watch it and open rank 0's file.
struct FileHandshake {
  std::int32_t pid = 0;
  std::int32_t descriptor = -1;
  std::uint64_t start_time = 0;
  std::uint64_t bytes = 0;
  std::uint64_t inode = 0;
  std::uint64_t number = 0;  // of the file, in the process that created it; from 1
  char path[160] = {};
  char failure[160] = {};
};

// Copies `text` into a field of zeros, cut so that it ends with one.
template <std::size_t Size>
void put_text(char (&field)[Size], std::string_view text) {
  std::memcpy(field, text.data(), std::min(Size - 1, text.size()));
}

// Creates a file of `size` ranks with a complete header. `failure` tells why there is none. The
// caller closes the descriptor.
FileHandshake create_control_file(int size, std::chrono::milliseconds timeout,
                                  std::string_view group);

// Opens rank 0's file through /proc, which only needs the same user, or by its name. Returns −1
// with the reason in errno if that is not the file.
int open_control_file(const FileHandshake& owner);

// Returns the path of a new file of this process in the folder of flight files.
std::string new_control_path();

// Writes the header of a file whose other words are zero. Readers accept the file afterwards.
void write_control_header(void* base, int size, std::chrono::milliseconds timeout,
                          std::string_view group, std::string_view path);

// The flight file of a group, mapped by one of its ranks. It has a name in the user's folder of
// flight files, so that other processes can read it, also after a crash. It has no name if that
// folder cannot be used.
//
// Note [Files that are taken over]
// A process with several ranks keeps the words of ended groups page-locked: see Note [Freeing
// beside waiting kernels]. Page-locked words cannot go to another file. The next group of as many
// ranks therefore takes over the whole file, if all ranks were in this process and left in order.
// Until then the file has a name that readers do not list. Rank 0 of the next group makes all words
// zero, writes a new header, and gives the file a new name. The other ranks take over their
// mappings. The exit of the process removes the names of files that are kept. The names of a
// process that was killed go with the stale files. A file without a name is never taken over, nor
// one whose folder is not the present one.
class ControlFile {
 public:
  // Callbacks of a rank: `begin` after the file is mapped, `end` to undo it if another rank fails.
  struct Use {
    std::function<void(const flight::View&)> begin;
    std::function<void(const flight::View&)> end;  // throws nothing
  };

  // Collective over `bootstrap`: every rank maps the file and calls use.begin(), or every rank
  // throws. Throws: PeerLostError, TimeoutError, Error.
  ControlFile(Bootstrap& bootstrap, int rank, int size, std::chrono::milliseconds timeout,
              std::string_view group, const Use& use);
  ~ControlFile();
  ControlFile(const ControlFile&) = delete;
  ControlFile& operator=(const ControlFile&) = delete;

  const flight::View& view() const { return view_; }
  // The processes of the ranks, in rank order.
  const std::vector<ProcessStamp>& processes() const { return processes_; }
  // Order writes to the file before the word that publishes them, and reads after it. Ranks of one
  // process map the file at different addresses, where race detectors see no order.
  static void publish() noexcept { order_.fetch_add(1, std::memory_order_release); }
  static void acquire() noexcept { (void)order_.load(std::memory_order_acquire); }
  // Takes the file's name away when the group has ended in order. Mappings stay valid.
  void retire() noexcept;
  // Unlinks the name of a file that is kept for a later group. Does nothing in a child of a fork.
  void remove_retired() noexcept;
  // True if a group of `ranks` ranks may take the file over.
  bool is_reusable(int ranks) const;
  // Tells apart files of groups whose ranks were all in this process; else 0.
  std::uint64_t number() const { return number_; }

 private:
  // Makes this file of an ended group the file of a new one. Returns an empty path if its name
  // cannot be changed.
  FileHandshake renew(int size, std::chrono::milliseconds timeout, std::string_view group);
  // Maps rank 0's file, or takes over a mapping that was kept. Returns why that failed, or "".
  std::string map(const FileHandshake& owner, int rank, std::shared_ptr<ControlFile> kept);
  bool is_retired() const noexcept;
  std::string_view path() const noexcept;

  static constinit std::atomic<std::uint64_t> order_;

  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  flight::View view_;
  std::vector<ProcessStamp> processes_;
  std::uint64_t inode_ = 0;
  std::uint64_t number_ = 0;
  std::int32_t owner_;      // a child of a fork has another number
  bool is_locked_ = false;  // use.begin() was called for this mapping
};

}  // namespace gantry

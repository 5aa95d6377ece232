#include "job/flight_copy.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "job/flight_file.hpp"

namespace gantry::flight {

namespace {

// More than a group of View's largest number of ranks takes.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 29;

// False if the file is too short by now.
bool read_at(int descriptor, void* to, std::size_t bytes, std::uint64_t offset) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

// Note [Copying an entry while it is written]
// A copy is not atomic: its words may be of different moments. So a ring is copied three times.
// Ticket numbers only increase. If an entry has the same ticket in the first and in the third copy,
// it had that ticket all the time in between. Its words in the second copy therefore belong to that
// ticket.
bool copy_ring(int descriptor, const View& view, int rank) {
  constexpr std::size_t kBytes = kRing * sizeof(Entry);
  Entry* const ring = view.ring(rank);
  const std::uint64_t offset = view.header().rings_at + static_cast<std::uint64_t>(rank) * kBytes;
  std::vector<std::byte> before(kBytes);
  std::vector<std::byte> after(kBytes);
  if (!read_at(descriptor, before.data(), kBytes, offset) ||
      !read_at(descriptor, static_cast<void*>(ring), kBytes, offset) ||
      !read_at(descriptor, after.data(), kBytes, offset)) {
    return false;
  }
  for (std::size_t i = 0; i < kRing; ++i) {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::memcpy(&first, before.data() + i * sizeof(Entry), sizeof first);
    std::memcpy(&last, after.data() + i * sizeof(Entry), sizeof last);
    if (first != last) ring[i].clear();
  }
  return true;
}

// The ends of calls are older than their beginnings, so that a call that ends meanwhile counts as
// under way.
bool copy_words(int descriptor, const View& view, int rank) {
  Words ends{};
  Words& words = view.words(rank);
  const std::uint64_t offset =
      view.header().words_at + static_cast<std::uint64_t>(rank) * view.header().page_bytes;
  if (!read_at(descriptor, &ends, sizeof ends, offset) ||
      !read_at(descriptor, &words, sizeof words, offset)) {
    return false;
  }
  words.finished = ends.finished;
  std::memcpy(words.message_finished, ends.message_finished, sizeof words.message_finished);
  return true;
}

bool copy_ranks(int descriptor, const View& view) {
  const Header& header = view.header();
  return read_at(descriptor, static_cast<void*>(&view.rank(0)),
                 static_cast<std::size_t>(header.ranks) * sizeof(Rank), header.ranks_at);
}

// What a call's number in the words of a device stands for is recorded before, so words come
// first, then how much is recorded, then the records.
bool copy_rest(int descriptor, const View& view, bool whole) {
  const int ranks = view.header().ranks;
  for (int rank = 0; whole && rank < ranks; ++rank) {
    if (!copy_words(descriptor, view, rank)) return false;
  }
  if (!copy_ranks(descriptor, view)) return false;
  for (int rank = 0; whole && rank < ranks; ++rank) {
    if (!copy_ring(descriptor, view, rank)) return false;
  }
  return true;
}

}  // namespace

std::optional<Copy> copy_file(int descriptor, bool whole) {
  struct stat facts {};
  alignas(Header) std::byte front[sizeof(Header)];
  if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) ||
      !read_at(descriptor, front, sizeof front, 0) ||
      !View::is_valid(front, static_cast<std::size_t>(facts.st_size))) {
    return std::nullopt;
  }
  // This copy of the header has the layout, whatever becomes of the file's.
  const std::uint64_t bytes = reinterpret_cast<const Header*>(front)->bytes;
  if (bytes > kMostBytes) return std::nullopt;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return std::nullopt;
  const Copy copy{base, bytes};
  std::memcpy(base, front, sizeof front);
  if (copy_rest(descriptor, View(base), whole)) return copy;
  free_copy(copy);
  return std::nullopt;
}

void free_copy(const Copy& copy) noexcept { munmap(copy.base, copy.bytes); }

}  // namespace gantry::flight

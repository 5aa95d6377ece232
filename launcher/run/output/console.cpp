#include "launcher/run/output/console.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "core/processes/background_thread.hpp"

namespace gantry::launcher {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{256} << 10;

// Writes everything; else why it cannot (errno): EPIPE if the reader is gone.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {  // another process made it non-blocking
      pollfd entry{fd, POLLOUT, 0};
      poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

std::string gap(std::uint64_t bytes) {
  return fmt::format("\nglaunch: {} bytes of output are missing here: the disk is full\n", bytes);
}

}  // namespace

struct Console::State {
  int fd;
  std::size_t memory_limit;
  std::string spill_directory;
  int drained_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

  mutable std::mutex mutex;  // reapers what follows
  std::condition_variable changed;
  std::string memory;  // oldest text, followed by what is in the spill file
  int spill_fd = -1;
  std::int64_t spill_read = 0;
  std::int64_t spill_written = 0;
  std::uint64_t dropped = 0;
  bool busy = false;
  int failure = 0;  // why nothing is written any more (errno)
  bool stop = false;

  State(int descriptor, std::size_t limit, std::string directory)
      : fd(descriptor), memory_limit(limit), spill_directory(std::move(directory)) {}
  ~State() {
    close(drained_fd);
    if (spill_fd >= 0) close(spill_fd);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool empty() const { return memory.empty() && spill_read == spill_written && dropped == 0; }

  void put(std::string_view text) {
    const std::lock_guard lock(mutex);
    if (failure != 0) return;
    // The sentence about a gap stands in the gap, in front of the text behind it.
    const std::string behind_gap = dropped == 0 ? "" : gap(dropped).append(text);
    if (keep(dropped == 0 ? text : behind_gap)) {
      dropped = 0;
    } else {
      dropped += text.size();
    }
    changed.notify_one();
  }

  // Appends to what waits; false if there is no place for it.
  bool keep(std::string_view text) {
    if (spill_read == spill_written && memory.size() + text.size() <= memory_limit) {
      memory += text;
      return true;
    }
    return spill(text);
  }

  // Appends to the spill file; false if the disk does not take it.
  bool spill(std::string_view text) {
    if (spill_fd < 0) {
      spill_fd = open(spill_directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
      if (spill_fd < 0) {
        std::string path = spill_directory + "/console-XXXXXX";
        spill_fd = mkostemp(path.data(), O_CLOEXEC);
        if (spill_fd >= 0) unlink(path.c_str());
      }
      if (spill_fd < 0) return false;
    }
    std::int64_t at = spill_written;
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t count = pwrite(spill_fd, rest.data(), rest.size(), at);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      rest.remove_prefix(static_cast<std::size_t>(count));
      at += count;
    }
    spill_written = at;
    return true;
  }

  // Takes the oldest text out. The caller holds the lock.
  std::string take() {
    if (!memory.empty()) return std::exchange(memory, {});
    if (spill_read != spill_written) {
      std::string text(std::min<std::size_t>(kChunkBytes, spill_written - spill_read), '\0');
      const ssize_t got = pread(spill_fd, text.data(), text.size(), spill_read);
      if (got <= 0) {
        dropped += static_cast<std::uint64_t>(spill_written - spill_read);
        spill_read = spill_written;
        return {};
      }
      text.resize(static_cast<std::size_t>(got));
      spill_read += got;
      if (spill_read == spill_written) {
        spill_read = spill_written = 0;
        if (ftruncate(spill_fd, 0) != 0) return text;
      }
      return text;
    }
    return gap(std::exchange(dropped, 0));
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stop || !empty(); });
      if (empty()) return;
      const std::string text = take();
      busy = true;
      lock.unlock();
      const int error = write_all(fd, text);
      lock.lock();
      busy = false;
      if (error != 0) {
        failure = error;
        memory.clear();
        spill_read = spill_written;
        dropped = 0;
      }
      if (empty()) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto count = ::write(drained_fd, &one, sizeof one);
      }
    }
  }
};

Console::Console(int fd, std::string spill_directory, std::size_t memory_bytes)
    : state_(std::make_shared<State>(fd, memory_bytes, std::move(spill_directory))) {
  start_background_thread("glaunch-output", [state = state_] { state->run(); }).detach();
}

Console::~Console() {
  const std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_one();
}

void Console::put(std::string_view text) { state_->put(text); }

void Console::write(int owner, std::string_view prefix, std::string_view text, bool ends_line) {
  if (line_owner_ != owner) end_line();
  std::string piece;
  if (line_owner_ == kNobody) piece = prefix;
  piece += text;
  put(piece);
  line_owner_ = ends_line ? kNobody : owner;
}

void Console::end_line_of(int owner) {
  if (line_owner_ == owner) end_line();
}

void Console::end_line() {
  if (line_owner_ != kNobody) put("\n");
  line_owner_ = kNobody;
}

bool Console::drained() const {
  const std::lock_guard lock(state_->mutex);
  return state_->empty() && !state_->busy;
}

int Console::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

int Console::drained_fd() const { return state_->drained_fd; }

void Console::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = read(state_->drained_fd, &count, sizeof count);
}

}  // namespace gantry::launcher

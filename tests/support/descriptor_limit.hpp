// A process that runs out of descriptors.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

namespace gantry::testing {

/// Open descriptors of a process, by default of this one.
inline int count_descriptors(const std::string& process = "self") {
  const std::filesystem::directory_iterator all("/proc/" + process + "/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

/// While it lives, this process can open `free` more descriptors. With 0, also not those that other
/// threads close meanwhile.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(int free = 0) {
    getrlimit(RLIMIT_NOFILE, &before_);
    if (free == 0) {
      set(STDERR_FILENO + 1);  // the numbers that nobody closes
      return;
    }
    // The lowest numbers come first, so no hole is left below the last one.
    constexpr int kFillers = 64;
    for (int i = 0; i < kFillers; ++i) {
      if (!fill()) throw std::system_error(errno, std::generic_category(), "DescriptorLimit");
    }
    set(fillers_.back() + 1);
    while (fill()) {
      // Another thread closed one meanwhile.
    }
    for (; free > 0; --free) {
      close(fillers_.back());
      fillers_.pop_back();
    }
  }
  ~DescriptorLimit() {
    for (const int filler : fillers_) close(filler);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  bool fill() {
    const int filler = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (filler >= 0) fillers_.push_back(filler);
    return filler >= 0;
  }

  void set(int descriptors) const {
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(descriptors);
    setrlimit(RLIMIT_NOFILE, &limit);
  }

  rlimit before_{};
  std::vector<int> fillers_;
};

}  // namespace gantry::testing

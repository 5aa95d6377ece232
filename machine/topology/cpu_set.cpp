#include <gantry/machine/cpu_set.hpp>

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <ostream>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

namespace gantry::machine {
namespace {

constexpr int kMaxCpu = 65535;

}  // namespace

CpuSet::CpuSet(std::initializer_list<int> cpus) : CpuSet(std::vector<int>(cpus)) {}

CpuSet::CpuSet(std::vector<int> cpus) : cpus_(std::move(cpus)) {
  for (const int cpu : cpus_) {
    if (cpu < 0 || cpu > kMaxCpu) {
      throw InvalidArgument(
          fmt::format("CpuSet: expected CPUs from 0 to {}, but got {}", kMaxCpu, cpu));
    }
  }
  std::sort(cpus_.begin(), cpus_.end());
  cpus_.erase(std::unique(cpus_.begin(), cpus_.end()), cpus_.end());
}

CpuSet CpuSet::parse(std::string_view list) {
  const auto fail = [&]() {
    return InvalidArgument(
        fmt::format("CpuSet: expected a list such as 0-3,8, but got '{}'", list));
  };
  while (!list.empty() && (list.back() == '\n' || list.back() == ' ')) list.remove_suffix(1);
  std::vector<int> cpus;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc{}) throw fail();
    at = read.ptr;
    int last = first;
    if (at != end && *at == '-') {
      read = std::from_chars(at + 1, end, last);
      if (read.ec != std::errc{}) throw fail();
      at = read.ptr;
    }
    if (first < 0 || last < first || last > kMaxCpu) throw fail();
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at == end) break;
    if (*at != ',' || at + 1 == end) throw fail();
    ++at;
  }
  return CpuSet(std::move(cpus));
}

std::string CpuSet::str() const {
  std::string text;
  for (std::size_t i = 0; i < cpus_.size();) {
    std::size_t last = i;
    while (last + 1 < cpus_.size() && cpus_[last + 1] == cpus_[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? std::to_string(cpus_[i]) : fmt::format("{}-{}", cpus_[i], cpus_[last]);
    i = last + 1;
  }
  return text;
}

bool CpuSet::contains(int cpu) const noexcept {
  return std::binary_search(cpus_.begin(), cpus_.end(), cpu);
}

bool CpuSet::is_subset_of(const CpuSet& other) const noexcept {
  return std::includes(other.cpus_.begin(), other.cpus_.end(), cpus_.begin(), cpus_.end());
}

bool CpuSet::intersects(const CpuSet& other) const noexcept {
  return std::any_of(cpus_.begin(), cpus_.end(), [&](int cpu) { return other.contains(cpu); });
}

CpuSet operator&(const CpuSet& a, const CpuSet& b) {
  std::vector<int> cpus;
  std::set_intersection(a.cpus().begin(), a.cpus().end(), b.cpus().begin(), b.cpus().end(),
                        std::back_inserter(cpus));
  return CpuSet(std::move(cpus));
}

CpuSet operator|(const CpuSet& a, const CpuSet& b) {
  std::vector<int> cpus;
  std::set_union(a.cpus().begin(), a.cpus().end(), b.cpus().begin(), b.cpus().end(),
                 std::back_inserter(cpus));
  return CpuSet(std::move(cpus));
}

CpuSet operator-(const CpuSet& a, const CpuSet& b) {
  std::vector<int> cpus;
  std::set_difference(a.cpus().begin(), a.cpus().end(), b.cpus().begin(), b.cpus().end(),
                      std::back_inserter(cpus));
  return CpuSet(std::move(cpus));
}

std::ostream& operator<<(std::ostream& out, const CpuSet& set) { return out << set.str(); }

CpuSet current_cpus() {
  // The kernel refuses a mask that is smaller than its own.
  for (std::size_t count = CPU_SETSIZE; count <= kMaxCpu + 1U; count *= 2) {
    cpu_set_t* const mask = CPU_ALLOC(count);
    if (mask == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, mask);
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    const bool is_small = !known && errno == EINVAL;
    std::vector<int> cpus;
    for (std::size_t i = 0; known && i < count; ++i) {
      if (CPU_ISSET_S(i, bytes, mask)) cpus.push_back(static_cast<int>(i));
    }
    CPU_FREE(mask);
    if (known) return CpuSet(std::move(cpus));
    if (!is_small) break;
  }
  std::vector<int> cpus;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    cpus.push_back(static_cast<int>(i));
  }
  return CpuSet(std::move(cpus));
}

}  // namespace gantry::machine

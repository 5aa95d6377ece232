#include "collectives/control/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <new>
#include <string>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "collectives/call_style.hpp"
#include "collectives/peers/process.hpp"
#include "core/text/escaped_text.hpp"
#include "job/flight_folder.hpp"

namespace gantry {

namespace {

// The number and age of flight files that are kept for `glaunch dump` after their jobs.
constexpr std::size_t kStaleFiles = 16;
constexpr auto kStaleAge = std::chrono::hours(24);

// The facts that each rank exchanges, so that the others can watch it and open rank 0's file.
struct FileHandshake {
  std::int32_t pid = 0;
  std::int32_t descriptor = -1;
  std::uint64_t start_time = 0;
  std::uint64_t bytes = 0;
  std::uint64_t inode = 0;
  char path[160] = {};
  char failure[160] = {};
};

template <std::size_t Size>
void put(char (&field)[Size], std::string_view text) {
  std::memcpy(field, text.data(), std::min(Size - 1, text.size()));
}

void put(flight::Name& field, std::string_view text, std::uint8_t style) {
  put(field.text, text);
  field.style = style;
}

// Returns the job's name as a part of a file name.
std::string job_name() {
  std::string job = env::get("GANTRY_JOB_ID").value_or("").substr(0, 48);
  std::erase_if(job, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; });
  return job.empty() ? "job" : job;
}

// Returns the rank of the job as flight::Rank::job_rank stores it.
std::uint32_t job_rank_number() {
  const std::string text = env::get("GANTRY_RANK").value_or("");
  std::uint32_t rank = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return status == std::errc{} && end == text.data() + text.size() && rank < INT_MAX ? rank + 1 : 0;
}

void fill_header(flight::Header& header, std::chrono::milliseconds timeout, std::string_view group,
                 std::string_view path) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  header.version = flight::kVersion;
  header.created_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  header.timeout_ms = timeout.count();
  put(header.boot, boot_id());
  put(header.job, env::get("GANTRY_JOB_ID").value_or(""));
  put(header.group, group);
  put(header.path, path);
  for (int i = 0; i < kCollectiveKinds; ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    put(header.kinds[i], name(kind), style_of(kind));
  }
  for (int i = 0; i <= static_cast<int>(ReduceOp::bxor); ++i) {
    put(header.ops[i], name(static_cast<ReduceOp>(i)), 0);
  }
  for (int i = 0; i <= static_cast<int>(Algorithm::host); ++i) {
    put(header.algorithms[i], name(static_cast<Algorithm>(i)), 0);
  }
}

// False if the kernel may refuse to page-lock the file, because it is on a disk.
bool is_lockable(int descriptor) {
  struct statfs facts {};
  return platform() != Platform::cuda ||
         (fstatfs(descriptor, &facts) == 0 &&
          (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC));
}

// Logs that there is no flight file: one warning if the user chose the folder, else information.
void log_no_recorder(const std::string& why) {
  static std::atomic<bool> has_warned{false};
  const std::string text = fmt::format("no flight recorder for glaunch dump: {}", why);
  const bool was_chosen = !env::get("GANTRY_FLIGHT_DIR").value_or("").empty();
  was_chosen && !has_warned.exchange(true) ? logging::warn(text) : logging::info(text);
}

// Creates the file with a complete header; called by rank 0 before the exchange.
FileHandshake create(int size, std::chrono::milliseconds timeout, std::string_view group) {
  static std::atomic<int> groups{0};
  FileHandshake mine;
  flight::Header layout{};
  mine.bytes = flight::View::lay_out(layout, size, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  flight::remove_stale_files(kStaleFiles, kStaleAge);
  const ProcessStamp self = this_process();
  const std::string name =
      fmt::format("{}.{}.{}.{}", job_name(), self.pid, self.start_time, groups.fetch_add(1));
  flight::NewFile file = flight::create_file(name, mine.bytes);
  const auto refuse = [&](std::string_view why) {
    flight::remove_file(file.path);
    close(std::exchange(file.descriptor, -1));
    file.failure = fmt::format("{} {}", file.path, why);
  };
  if (file.descriptor >= 0 && file.path.size() >= sizeof mine.path) {
    refuse("is too long a name");
  } else if (file.descriptor >= 0 && !is_lockable(file.descriptor)) {
    refuse("is on a disk, and devices need it in memory");
  }
  if (file.descriptor < 0) {
    log_no_recorder(file.failure);
    file.path.clear();
    file.descriptor = memfd_create("gantry-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file.descriptor >= 0 && ftruncate(file.descriptor, static_cast<off_t>(mine.bytes)) != 0) {
      close(std::exchange(file.descriptor, -1));
    }
    // Sealed, so that no rank can make the others fault by truncating it.
    if (file.descriptor >= 0) {
      (void)fcntl(file.descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    }
  }
  mine.descriptor = file.descriptor;
  put(mine.path, file.path);  // the path to unlink if a rank fails
  void* base = file.descriptor < 0 ? MAP_FAILED
                                   : mmap(nullptr, mine.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                          file.descriptor, 0);
  struct stat facts {};
  if (base == MAP_FAILED || fstat(file.descriptor, &facts) != 0) {
    put(mine.failure, std::strerror(errno));
    if (base != MAP_FAILED) munmap(base, mine.bytes);
    return mine;
  }
  mine.inode = facts.st_ino;
  // All other words are zero, which is a valid value of each.
  auto& header = *static_cast<flight::Header*>(base);
  flight::View::lay_out(header, size, static_cast<std::size_t>(layout.page_bytes));
  fill_header(header, timeout, group, file.path);
  header.magic.store(flight::kMagic, std::memory_order_release);
  munmap(base, mine.bytes);
  return mine;
}

// Opens rank 0's file through /proc, which only needs the same user, or by its name.
int open_file(const FileHandshake& owner) {
  const auto checked = [&](int descriptor) {
    struct stat facts {};
    if (descriptor < 0) return -1;
    if (fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
        facts.st_ino == owner.inode && facts.st_size == static_cast<off_t>(owner.bytes)) {
      return descriptor;
    }
    close(descriptor);
    errno = ESTALE;
    return -1;
  };
  const std::string link = fmt::format("/proc/{}/fd/{}", owner.pid, owner.descriptor);
  const int direct = checked(open(link.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (direct >= 0 || owner.path[0] == '\0') return direct;
  return checked(flight::open_own_file(owner.path));
}

}  // namespace

ControlFile::ControlFile(Bootstrap& bootstrap, int rank, int size,
                         std::chrono::milliseconds timeout, std::string_view group,
                         const Use& use) {
  FileHandshake mine;
  if (rank == 0) mine = create(size, timeout, group);
  mine.pid = this_process().pid;
  mine.start_time = this_process().start_time;
  // Rank 0 keeps its descriptor open until all ranks have mapped the file.
  const auto close_mine = [&] {
    if (mine.descriptor >= 0) close(std::exchange(mine.descriptor, -1));
  };
  std::string outcome = "ready";
  bool is_used = false;
  try {
    const std::vector<std::string> all =
        bootstrap.all_gather(std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
    std::vector<FileHandshake> peers(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].size() != sizeof(FileHandshake)) {
        throw Error(fmt::format("Communicator: rank {} runs another version of gantry", i));
      }
      std::memcpy(&peers[i], all[i].data(), sizeof(FileHandshake));
      processes_.push_back({peers[i].pid, peers[i].start_time});
    }
    const FileHandshake& owner = peers.at(0);
    if (owner.failure[0] != '\0') {
      outcome = fmt::format("rank 0 cannot make it: {}", escaped_field(owner.failure));
    } else if (const int descriptor = open_file(owner); descriptor < 0) {
      outcome = fmt::format("rank {} cannot open that of rank 0: {}", rank, std::strerror(errno));
    } else {
      bytes_ = owner.bytes;
      void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
      if (base == MAP_FAILED) {
        outcome = fmt::format("rank {} cannot map it: {}", rank, std::strerror(errno));
      } else {
        base_ = base;
        view_ = flight::View(base);
        flight::Rank& facts = view_.rank(rank);
        // The process id last: it publishes the other facts.
        facts.start_time = mine.start_time;
        facts.job_rank = job_rank_number();
        __atomic_store_n(&facts.pid, mine.pid, __ATOMIC_RELEASE);
        char host[sizeof facts.host] = {};
        gethostname(host, sizeof host - 1);
        put(facts.host, host);
        facts.heartbeat_ns.store(flight::monotonic_ns());
        try {
          use.begin(view_);
          is_used = true;
        } catch (const std::exception& error) {
          outcome = fmt::format("rank {}: {}", rank, error.what());
        }
      }
      close(descriptor);
    }
    for (const std::string& other : bootstrap.all_gather(outcome)) {
      if (other == "ready") continue;
      throw Error(fmt::format("Communicator: failed to share the control segment: {}",
                              escape_control_characters(other, LineEnds::keep)));
    }
  } catch (...) {
    close_mine();
    if (rank == 0 && mine.path[0] != '\0') flight::remove_file(mine.path);
    if (is_used) use.end(view_);
    if (base_ != nullptr) munmap(base_, bytes_);
    throw;
  }
  close_mine();
}

ControlFile::~ControlFile() { munmap(base_, bytes_); }

void ControlFile::remove() noexcept {
  const char* const path = view_.header().path;
  if (path[0] != '\0') flight::remove_file({path, strnlen(path, sizeof view_.header().path)});
}

}  // namespace gantry

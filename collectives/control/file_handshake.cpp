#include "collectives/control/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "collectives/selection/descriptor.hpp"
#include "core/env/settings.hpp"
#include "core/files/sealed_file.hpp"
#include "core/processes/process_stamp.hpp"
#include "job/flight_file.hpp"
#include "job/flight_folder.hpp"

namespace gantry {

namespace {

// The number and age of flight files that are kept for `glaunch dump` after their jobs.
constexpr std::size_t kStaleFiles = 16;
constexpr auto kStaleAge = std::chrono::hours(24);

void put(flight::Name& field, std::string_view text, std::uint8_t style) {
  put_text(field.text, text);
  field.style = style;
}

// Returns the job's name as a part of a file name.
std::string job_name() {
  std::string job = env::kJobId.text().substr(0, 48);
  std::erase_if(job, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; });
  return job.empty() ? "job" : job;
}

void fill_header(flight::Header& header, std::chrono::milliseconds timeout, std::string_view group,
                 std::string_view path) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  header.version = flight::kVersion;
  header.created_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  header.timeout_ms = timeout.count();
  put_text(header.boot, boot_id());
  put_text(header.job, env::kJobId.text());
  put_text(header.group, group);
  put_text(header.path, path);
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
  const bool was_chosen = !env::kFlightDir.text().empty();
  was_chosen && !has_warned.exchange(true) ? logging::warn(text) : logging::info(text);
}

// A number for every file that this process creates, from 1.
std::uint64_t next_number() {
  static std::atomic<std::uint64_t> newest{0};
  return ++newest;
}

// A name for a new file of this process.
std::string new_name() {
  static std::atomic<int> groups{0};
  const ProcessStamp self = this_process();
  return fmt::format("{}.{}.{}.{}", job_name(), self.pid, self.start_time, groups.fetch_add(1));
}

}  // namespace

std::string new_control_path() {
  return fmt::format("{}/{}{}", flight::folder(), new_name(), flight::kSuffix);
}

void write_control_header(void* base, int size, std::chrono::milliseconds timeout,
                          std::string_view group, std::string_view path) {
  auto& header = *static_cast<flight::Header*>(base);
  flight::View::lay_out(header, size, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  fill_header(header, timeout, group, path);
  header.magic.store(flight::kMagic, std::memory_order_release);
}

FileHandshake create_control_file(int size, std::chrono::milliseconds timeout,
                                  std::string_view group) {
  FileHandshake mine;
  mine.number = next_number();
  flight::Header layout{};
  mine.bytes = flight::View::lay_out(layout, size, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  flight::remove_stale_files(kStaleFiles, kStaleAge);
  flight::NewFile file = flight::create_file(new_name(), mine.bytes);
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
    if (file.descriptor >= 0 &&
        fcntl(file.descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      const int error = errno;
      close(std::exchange(file.descriptor, -1));
      errno = error;
    }
  }
  mine.descriptor = file.descriptor;
  put_text(mine.path, file.path);  // the path to unlink if a rank fails
  void* base = file.descriptor < 0 ? MAP_FAILED
                                   : mmap(nullptr, mine.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                          file.descriptor, 0);
  struct stat facts {};
  if (base == MAP_FAILED || fstat(file.descriptor, &facts) != 0) {
    put_text(mine.failure, std::strerror(errno));
    if (base != MAP_FAILED) munmap(base, mine.bytes);
    return mine;
  }
  mine.inode = facts.st_ino;
  // All other words are zero, which is a valid value of each.
  write_control_header(base, size, timeout, group, file.path);
  munmap(base, mine.bytes);
  return mine;
}

// Files with a name cannot be sealed. Processes of this user alone can open them: Note [Trusting
// the flight folder].
int open_control_file(const FileHandshake& owner) {
  const auto checked = [&](int descriptor) {
    struct stat facts {};
    if (descriptor < 0) return -1;
    if (fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
        facts.st_ino == owner.inode && facts.st_size == static_cast<off_t>(owner.bytes) &&
        (owner.path[0] != '\0' || is_sealed(descriptor))) {
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

}  // namespace gantry

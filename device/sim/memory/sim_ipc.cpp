#include "device/sim/memory/sim_ipc.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>

#include "device/sim/devices/sim_error.hpp"

namespace gantry::sim {

namespace {

constexpr std::uint64_t kMemoryMagic = 0x6d'79'72'74'6e'61'67'01;

// Without padding, so that equal handles have equal bytes.
struct HandleBytes {
  std::uint64_t magic;
  std::uint64_t start_time;
  std::int32_t pid;
  std::int32_t descriptor;
  std::uint64_t inode;
  std::uint64_t bytes;
};
static_assert(std::has_unique_object_representations_v<HandleBytes>);

std::optional<struct stat> status_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return status;
}

}  // namespace

void require_exporter(const ProcessStamp& process, const std::string& doing, int device) {
  if (!has_ended(process)) return;
  fail(kInvalidResourceHandle, doing, device,
       fmt::format("the process that exported it ({}) is gone", process.pid));
}

FileName name_file(int descriptor) {
  const auto status = status_of(descriptor);
  return {this_process(), descriptor, status ? status->st_ino : 0};
}

int open_file(const FileName& file, const std::string& doing, int device) {
  require_exporter(file.process, doing, device);
  const std::string path = fmt::format("/proc/{}/fd/{}", file.process.pid, file.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const int reason = errno;
  // The number may have gone to another process before the file was opened.
  const auto status = status_of(descriptor);
  const bool is_it = status && status->st_ino == file.inode;
  // Root can open the files of every user.
  const bool is_own = is_it && status->st_uid == ::geteuid();
  if (is_own && !has_ended(file.process)) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  require_exporter(file.process, doing, device);
  if (is_it && !is_own) {
    fail(kOperatingSystem, doing, device, fmt::format("it belongs to user {}", status->st_uid));
  }
  const bool was_freed = descriptor >= 0 || reason == ENOENT;
  fail(was_freed ? kInvalidResourceHandle : kOperatingSystem, doing, device,
       was_freed ? "the exporter has freed it" : std::strerror(reason));
}

NativeMemoryHandle encode(const MemoryName& name) {
  const HandleBytes content{kMemoryMagic,          name.file.process.start_time,
                            name.file.process.pid, name.file.descriptor,
                            name.file.inode,       name.bytes};
  NativeMemoryHandle handle;
  static_assert(sizeof content <= sizeof handle.bytes);
  std::memcpy(handle.bytes.data(), &content, sizeof content);
  return handle;
}

MemoryName decode(const NativeMemoryHandle& handle, const std::string& doing, int device) {
  HandleBytes content{};
  std::memcpy(&content, handle.bytes.data(), sizeof content);
  if (content.magic != kMemoryMagic || content.bytes == 0) {
    fail(kInvalidValue, doing, device, "the bytes are no memory handle of a simulated device");
  }
  return {{{content.pid, content.start_time}, content.descriptor, content.inode}, content.bytes};
}

}  // namespace gantry::sim

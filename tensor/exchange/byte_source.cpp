#include "tensor/exchange/byte_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/files/regular_file.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry::detail {

ByteSource::ByteSource(std::string_view op, std::string_view object)
    : prefix_(fmt::format("{}: failed to read {}: ", op, object)) {}

std::string ByteSource::text(std::uint64_t offset, std::size_t bytes) const {
  std::string result(bytes, '\0');
  read(offset, result.data(), bytes);
  return result;
}

FileSource::FileSource(std::string_view op, const std::filesystem::path& path)
    : ByteSource(op, fmt::format("'{}'", escape_control_characters(path.native()))) {
  // Devices may do something when they are opened, so the name is looked at before.
  if (const std::string problem = why_not_regular(path.native()); !problem.empty()) fail(problem);
  file_ = UniqueFd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!file_ || fstat(file_.get(), &status) != 0) fail(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("no regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void FileSource::read(std::uint64_t offset, void* out, std::size_t bytes) const {
  auto* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(file_.get(), next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(std::strerror(errno));
    if (got == 0) fail("the file became shorter while it was read");
    next += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

MemorySource::MemorySource(std::string_view op, std::span<const std::byte> bytes)
    : ByteSource(op, "the given bytes"), bytes_(bytes) {
  size_ = bytes.size();
}

void MemorySource::read(std::uint64_t offset, void* out, std::size_t bytes) const {
  if (bytes > 0) std::memcpy(out, bytes_.data() + offset, bytes);
}

}  // namespace gantry::detail

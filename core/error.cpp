#include <gantry/core/error.hpp>

#include "core/error_payload.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

struct Error::Context {
  std::string device;
  std::string where;
};

namespace {

// The path below the source root is what a reader wants; the build machine's directories are not.
std::string position(const std::source_location& where) {
  std::string_view file = where.file_name();
  if (const auto slash = file.rfind('/'); slash != std::string_view::npos) {
    const auto parent = file.rfind('/', slash - 1);
    file.remove_prefix(parent == std::string_view::npos ? 0 : parent + 1);
  }
  return std::string(file) + ":" + std::to_string(where.line());
}

}  // namespace

Error::Error(const std::string& message, std::string_view device, std::source_location where)
    : std::runtime_error(escape_control_characters(message, LineEnds::keep)),
      context_(std::make_shared<const Context>(Context{std::string(device), position(where)})) {}

const std::string& Error::device() const noexcept {
  return detail::payload_or_empty(context_).device;
}
std::string_view Error::where() const noexcept { return detail::payload_or_empty(context_).where; }

CudaError::CudaError(const std::string& message, int code, std::string_view name,
                     std::string_view device, std::source_location where)
    : Error(message, device, where),
      code_(code),
      name_(std::make_shared<const std::string>(name)) {}

std::string_view CudaError::name() const noexcept { return detail::payload_or_empty(name_); }

OutOfMemoryError::OutOfMemoryError(const std::string& message, const OomReport& breakdown,
                                   std::string_view device, std::source_location where)
    : Error(message, device, where), breakdown_(breakdown) {}

PeerLostError::PeerLostError(const std::string& message, int rank, std::string_view device,
                             std::source_location where)
    : Error(message, device, where), rank_(rank) {}

TimeoutError::TimeoutError(const std::string& message, std::vector<int> ranks,
                           std::string_view device, std::source_location where)
    : Error(message, device, where),
      ranks_(std::make_shared<const std::vector<int>>(std::move(ranks))) {}

const std::vector<int>& TimeoutError::ranks() const noexcept {
  return detail::payload_or_empty(ranks_);
}

}  // namespace gantry

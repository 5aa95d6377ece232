#include "launcher/run/processes/job_context.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include <gantry/core/env.hpp>

namespace gantry::launcher {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// A port without a listener now. torch-style programs want a number before they start; what
// gantry itself uses is the unix socket, which no other process can take.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, raw, length) != 0 || getsockname(fd, raw, &length) != 0) {
    fail("no free port for MASTER_PORT");
  }
  close(fd);
  return ntohs(address.sin_port);
}

// Random hexadecimal digits, 16 a word.
std::string random_digits(std::size_t words) {
  std::string digits;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number) fail("getrandom");
    digits += fmt::format("{:016x}", number);
  }
  return digits;
}

}  // namespace

JobContext::JobContext(const OutputOptions& options) {
  first_job_id_ = random_digits(1);
  job_id_ = first_job_id_;
  store_name_ = random_digits(1);
  store_token_ = random_digits(2);

  const std::string temporary = env::get("TMPDIR").value_or("");
  // Absolute, since ranks and the reaper may have another working directory.
  scratch_ = fmt::format("{}/glaunch-{}",
                         std::filesystem::absolute(temporary.empty() ? "/tmp" : temporary).string(),
                         job_id_);
  error_prefix_ = scratch_ + "/rank";
  if (options.log_dir) {
    error_prefix_ = std::filesystem::absolute(*options.log_dir).string() + "/rank";
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe2");
  liveness_read_ = ends[0];
  liveness_write_ = ends[1];
}

JobContext::~JobContext() {
  close(liveness_read_);
  close(liveness_write_);
  remove_scratch_directory();
}

void JobContext::renew() {
  ++restarts_;
  job_id_ = fmt::format("{}.{}", first_job_id_, restarts_);
  store_name_ = random_digits(1);
  store_token_ = random_digits(2);
}

void JobContext::make_scratch_directory() {
  if (mkdir(scratch_.c_str(), 0700) != 0) fail("cannot make a directory " + scratch_);
  has_scratch_ = true;
}

void JobContext::remove_scratch_directory() {
  std::error_code ignored;
  if (std::exchange(has_scratch_, false)) std::filesystem::remove_all(scratch_, ignored);
}

std::string JobContext::store_address() const {
  return fmt::format("unix:@gantry-{}-{}", geteuid(), store_name_);
}

std::string JobContext::error_file(int rank) const {
  return fmt::format("{}{}.error", error_prefix_, rank);
}

JobValues JobContext::values() const {
  return {job_id_,       store_address(),
          store_token_,  std::to_string(liveness_read_),
          error_prefix_, std::to_string(free_port()),
          restarts_};
}

}  // namespace gantry::launcher

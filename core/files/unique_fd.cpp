#include <gantry/extend/unique_fd.hpp>

#include <unistd.h>

namespace gantry {

void UniqueFd::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace gantry

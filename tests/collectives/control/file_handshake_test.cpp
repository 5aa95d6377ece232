// Which files of another rank are mapped as a control segment.
#include "collectives/control/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include <gantry/extend/unique_fd.hpp>

#include "core/processes/process_stamp.hpp"

namespace gantry {
namespace {

constexpr std::size_t kBytes = 8192;

// A file without a name, as a rank makes it where no flight file is possible.
UniqueFd make_file(int seals) {
  UniqueFd file(memfd_create("file-handshake", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), kBytes), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

FileHandshake handshake_of(const UniqueFd& file) {
  struct stat facts {};
  EXPECT_EQ(fstat(file.get(), &facts), 0);
  FileHandshake owner;
  owner.pid = this_process().pid;
  owner.start_time = this_process().start_time;
  owner.descriptor = file.get();
  owner.inode = facts.st_ino;
  owner.bytes = kBytes;
  return owner;
}

TEST(FileHandshakeTest, OpensAFileThatKeepsItsSize) {
  const UniqueFd file = make_file(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_TRUE(UniqueFd(open_control_file(handshake_of(file))));
}

TEST(FileHandshakeTest, RefusesAFileThatARankCanShorten) {
  const UniqueFd file = make_file(F_SEAL_GROW);
  EXPECT_FALSE(UniqueFd(open_control_file(handshake_of(file))));
  EXPECT_EQ(errno, ESTALE);
}

TEST(FileHandshakeTest, RefusesAFileOfAnotherSize) {
  const UniqueFd file = make_file(F_SEAL_SHRINK);
  FileHandshake owner = handshake_of(file);
  owner.bytes = 2 * kBytes;
  EXPECT_FALSE(UniqueFd(open_control_file(owner)));
}

}  // namespace
}  // namespace gantry

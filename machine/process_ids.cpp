#include "machine/process_ids.hpp"

#include <sys/stat.h>

namespace gantry::machine {

bool has_host_process_ids() {
  // Linux gives the first namespace of processes this inode number.
  constexpr ino_t kFirstNamespace = 0xEFFFFFFC;
  struct stat facts {};
  return stat("/proc/self/ns/pid", &facts) == 0 && facts.st_ino == kFirstNamespace;
}

}  // namespace gantry::machine

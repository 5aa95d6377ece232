// A library that leaves a mark where it is loaded.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

// Run by the loader.
[[gnu::constructor]] void leave_mark() {
  const char* const mark = std::getenv("GANTRY_TEST_DECOY_MARK");
  const int file = mark == nullptr ? -1 : open(mark, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (file < 0) return;
  Dl_info info{};
  const char* name = "a decoy";
  if (dladdr(reinterpret_cast<const void*>(&leave_mark), &info) != 0) name = info.dli_fname;
  (void)!write(file, name, std::strlen(name));
  (void)!write(file, "\n", 1);
  close(file);
}

}  // namespace

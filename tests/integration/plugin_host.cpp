// A program that does not link gantry: it loads the libraries that it is told, calls the plug-in,
// which is the last one, from two threads, and unloads all of them while the second thread lives.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 2;

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

int fail(const char* what) {
  const char* const reason = dlerror();
  std::fprintf(stderr, "plugin_host: %s: %s\n", what, reason != nullptr ? reason : "unknown");
  return 1;
}

// Every library's loading, two calls and unloading.
int visit(int count, char** paths) {
  std::vector<void*> libraries;
  for (int i = 0; i < count; ++i) {
    void* const library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail("dlopen");
    libraries.push_back(library);
  }
  auto* const devices = find<int()>(libraries.back(), "plugin_device_count");
  auto* const all_reduce = find<int(int)>(libraries.back(), "plugin_all_reduce");
  if (devices == nullptr || all_reduce == nullptr) return fail("dlsym");
  const int ranks = std::min(devices(), kRanks);
  if (ranks == 0) return fail("no device is visible");
  if (all_reduce(ranks) != 0) return 1;

  std::promise<int> called;
  std::promise<void> unloaded;
  std::thread other([&] {
    called.set_value(all_reduce(ranks));
    unloaded.get_future().wait();  // what gantry keeps for this thread ends with it
  });
  const int code = called.get_future().get();
  std::reverse(libraries.begin(), libraries.end());
  for (void* const library : libraries) {
    if (dlclose(library) != 0) {
      unloaded.set_value();
      other.join();
      return fail("dlclose");
    }
  }
  unloaded.set_value();
  other.join();
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fail("no library was named");
  for (int round = 0; round < 2; ++round) {
    if (const int code = visit(argc - 1, argv + 1); code != 0) return code;
  }
  std::puts("unloaded");
  return 0;
}

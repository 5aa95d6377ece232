#include "core/processes/background_thread.hpp"

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace gantry {

namespace {

// The running threads of the library. Never destroyed: some of them outlive static objects.
struct RunningThreads {
  std::mutex mutex;
  std::set<pid_t> ids;
};
RunningThreads& running_threads() {
  static auto& threads = *new RunningThreads();
  return threads;
}

class RunningThread {
 public:
  RunningThread() {
    RunningThreads& threads = running_threads();
    const std::lock_guard lock(threads.mutex);
    threads.ids.insert(gettid());
  }
  ~RunningThread() {
    RunningThreads& threads = running_threads();
    const std::lock_guard lock(threads.mutex);
    threads.ids.erase(gettid());
  }
  RunningThread(const RunningThread&) = delete;
  RunningThread& operator=(const RunningThread&) = delete;
};

bool is_of_cuda(pid_t id) {
  std::ifstream file("/proc/self/task/" + std::to_string(id) + "/comm");
  std::string name;
  return std::getline(file, name) && name.starts_with("cuda");
}

}  // namespace

bool is_only_thread_of_program() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  if (!tasks) return false;
  RunningThreads& threads = running_threads();
  const std::lock_guard lock(threads.mutex);
  while (const dirent* entry = readdir(tasks.get())) {
    const pid_t id = std::atoi(entry->d_name);
    if (id <= 0 || id == gettid() || threads.ids.contains(id) || is_of_cuda(id)) continue;
    return false;
  }
  return true;
}

BlockedSignals::BlockedSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

BlockedSignals::~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::thread start_background_thread(const char* name, std::function<void()> body) {
  const BlockedSignals blocked;
  // A thread names itself by one system call. Another thread's name is a file in /proc.
  return std::thread([body = std::move(body), name = std::string(name)] {
    pthread_setname_np(pthread_self(), name.c_str());
    const RunningThread running;
    body();
  });
}

void abandon_after_fork(std::thread thread) {
  // Never destroyed: that would end the process.
  static auto& kept = *new std::list<std::thread>();
  if (thread.joinable()) kept.push_back(std::move(thread));
}

}  // namespace gantry

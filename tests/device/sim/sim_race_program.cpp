// Two streams use one buffer. ThreadSanitizer must find the missing wait, and nothing else.
//
// sim_race_program <case>; the names of the racing cases begin with "unordered".
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "device/sim/sim_driver.hpp"
#include "device/sim/streams/sim_launch.hpp"

namespace {

using namespace gantry;

constexpr std::size_t kBytes = 4096;

struct Machine {
  std::unique_ptr<Driver> driver = make_sim_driver(2);
  NativeStream first = driver->create_stream(0, 0);
  NativeStream second = driver->create_stream(0, 0);
  NativeStream other = driver->create_stream(1, 0);
  void* data = driver->allocate(0, kBytes);
  void* unrelated = driver->allocate(0, kBytes);
  void* unrelated_too = driver->allocate(0, kBytes);

  void write(NativeStream stream, void* where, std::uint8_t value) const {
    driver->fill(where, value, kBytes, stream);
  }
  void wait(NativeStream waiting, NativeStream for_this) const {
    NativeEvent event = driver->create_event(for_this.device, {});
    driver->record_event(event, for_this);
    driver->wait_event(waiting, event);
    driver->destroy_event(event);
  }
  void finish() const {
    driver->synchronize_stream(first);
    driver->synchronize_stream(second);
    driver->synchronize_stream(other);
  }
  // Lets the first stream's work come to its end without learning so from it.
  void let_time_pass() const {
    for (int i = 0; i < 200; ++i) {
      write(first, unrelated, 3);
      write(second, unrelated_too, 4);
      if (i % 16 == 0) {
        NativeEvent event = driver->create_event(0, {});
        driver->record_event(event, first);
        driver->destroy_event(event);
        driver->deallocate_pinned(nullptr);
        sim::check_device_access(0, unrelated, kBytes);
      }
    }
  }
};

void ordered(const Machine& m) {
  m.write(m.first, m.data, 1);
  m.wait(m.second, m.first);
  m.write(m.second, m.data, 2);
}

void ordered_across_devices(const Machine& m) {
  m.driver->enable_peer_access(1, 0);
  m.write(m.first, m.data, 1);
  m.wait(m.other, m.first);
  m.write(m.other, m.data, 2);
  m.wait(m.second, m.other);
  m.write(m.second, m.data, 3);
}

void ordered_by_host(const Machine& m) {
  m.write(m.first, m.data, 1);
  m.driver->synchronize_stream(m.first);
  m.write(m.second, m.data, 2);
}

void ordered_by_query(const Machine& m) {
  m.write(m.first, m.data, 1);
  while (!m.driver->query_stream(m.first)) {
  }
  m.write(m.second, m.data, 2);
}

void ordered_by_event_query(const Machine& m) {
  NativeEvent event = m.driver->create_event(0, {});
  m.write(m.first, m.data, 1);
  m.driver->record_event(event, m.first);
  while (!m.driver->query_event(event)) {
  }
  m.write(m.second, m.data, 2);
  m.driver->destroy_event(event);
}

void ordered_by_word(const Machine& m) {
  auto* word = static_cast<std::uint32_t*>(m.driver->allocate_pinned(sizeof(std::uint32_t)));
  m.driver->wait_for_word(m.second, word, 1);
  m.write(m.second, m.data, 2);
  m.write(m.first, m.data, 1);
  sim::launch(m.first, [word] { __atomic_store_n(word, 1, __ATOMIC_RELEASE); });
  m.finish();
  m.driver->deallocate_pinned(word);
}

void ordered_many(const Machine& m) {
  for (int i = 0; i < 600; ++i) {
    m.write(m.first, m.data, 1);
    m.wait(m.second, m.first);
    m.write(m.second, m.data, 2);
    m.wait(m.first, m.second);
  }
}

void unordered(const Machine& m) {
  m.write(m.first, m.data, 1);
  m.write(m.second, m.data, 2);
}

void unordered_busy_host(const Machine& m) {
  m.write(m.first, m.data, 1);
  m.let_time_pass();
  m.write(m.second, m.data, 2);
}

// The wait comes first, so it covers an older record only.
void unordered_early_wait(const Machine& m) {
  NativeEvent event = m.driver->create_event(0, {});
  m.driver->record_event(event, m.first);
  m.driver->wait_event(m.second, event);
  m.write(m.first, m.data, 1);
  m.driver->record_event(event, m.first);
  m.write(m.second, m.data, 2);
  m.driver->destroy_event(event);
}

// The event is reached, and the write behind it is over as well; but nobody waited for it.
void unordered_behind_event(const Machine& m) {
  NativeEvent event = m.driver->create_event(0, {});
  m.driver->record_event(event, m.first);
  m.write(m.first, m.data, 1);
  for (int i = 0; i < 50; ++i) m.write(m.second, m.unrelated, 3);
  m.driver->synchronize_event(event);
  m.write(m.second, m.data, 2);
  m.driver->destroy_event(event);
}

// A query that says "not done" orders nothing, however long after it the work ends.
void unordered_failed_query(const Machine& m) {
  static std::atomic<bool> gate{false};
  sim::launch(m.first, [] {
    while (!gate.load(std::memory_order_relaxed)) {
    }
  });
  m.write(m.first, m.data, 1);
  if (m.driver->query_stream(m.first)) std::abort();
  gate.store(true, std::memory_order_relaxed);
  m.write(m.second, m.data, 2);
}

// The host reads what a stream writes.
void unordered_host_read(const Machine& m) {
  void* pinned = m.driver->allocate_pinned(kBytes);
  m.driver->copy(pinned, m.data, kBytes, m.first);
  m.let_time_pass();
  std::printf("%d\n", static_cast<unsigned char*>(pinned)[17]);
  m.driver->deallocate_pinned(pinned);
}

// Destroying a stream is no synchronization.
void unordered_destroyed_stream(const Machine& m) {
  const NativeStream brief = m.driver->create_stream(0, 0);
  m.write(brief, m.data, 1);
  m.driver->destroy_stream(brief);
  m.let_time_pass();
  m.write(m.second, m.data, 2);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(const Machine&)>> cases{
      {"ordered", ordered},
      {"ordered_across_devices", ordered_across_devices},
      {"ordered_by_event_query", ordered_by_event_query},
      {"ordered_by_host", ordered_by_host},
      {"ordered_by_query", ordered_by_query},
      {"ordered_by_word", ordered_by_word},
      {"ordered_many", ordered_many},
      {"unordered", unordered},
      {"unordered_behind_event", unordered_behind_event},
      {"unordered_busy_host", unordered_busy_host},
      {"unordered_destroyed_stream", unordered_destroyed_stream},
      {"unordered_early_wait", unordered_early_wait},
      {"unordered_failed_query", unordered_failed_query},
      {"unordered_host_read", unordered_host_read},
  };
  const auto found = cases.find(argc == 2 ? argv[1] : "");
  if (found == cases.end()) {
    for (const auto& [name, body] : cases) std::printf("%s\n", name.c_str());
    return 2;
  }
  const Machine machine;
  found->second(machine);
  machine.finish();
  std::printf("done\n");
  return 0;
}

// A benchmark: how long an operation takes on the device and on the host, and what limits it.
//
// Calls return before the device has finished. So a clock around a call measures the launch, and
// events measure the device. The first calls load kernels and grow memory: they do not count.
#include <gantry/gantry.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Times {
  double host_us;
  double device_us;
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

Times measure(const std::function<void()>& call) {
  const gantry::Stream stream = gantry::Stream::current();
  for (int i = 0; i < 3; ++i) call();
  stream.synchronize();
  std::vector<double> host;
  std::vector<double> device;
  for (int i = 0; i < 20; ++i) {
    gantry::Event begin({.timing = true});
    gantry::Event end({.timing = true});
    begin.record(stream);
    const Clock::time_point start = Clock::now();
    call();
    host.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    end.record(stream);
    end.synchronize();
    device.push_back(1000 * begin.elapsed_ms(end));
  }
  return {median(host), median(device)};
}

}  // namespace

int main() {
  using namespace gantry;
  const Tensor x = ones({1 << 20}, Device::cuda(0));
  const Tensor y = ones({1 << 20}, Device::cuda(0));
  Tensor out = empty({1 << 20}, Device::cuda(0));
  struct Row {
    const char* name;
    int tensors;  // read or written
    std::function<void()> call;
  };
  const std::vector<Row> rows = {{"fill_", 1, [&] { out.fill_(1); }},
                                 {"copy_", 2, [&] { out.copy_(x); }},
                                 {"add_out", 3, [&] { add_out(out, x, y); }},
                                 {"add", 3, [&] { static_cast<void>(x + y); }}};
  for (const Row& row : rows) {
    memory::reset_peak_stats();
    const std::size_t before = memory::allocated();
    const Times times = measure(row.call);
    const double bytes = 4.0 * static_cast<double>(x.numel()) * row.tensors;
    // Times differ from run to run, so they are not part of the output that is compared.
    std::fprintf(stderr, "%-8s device %8.1f us, %6.0f GB/s; host %6.1f us\n", row.name,
                 times.device_us, bytes / times.device_us / 1000, times.host_us);
    std::cout << row.name << " moves " << bytes / (1 << 20) << " MiB, allocates "
              << ((memory::max_allocated() - before) >> 20) << " MiB\n";
  }
}
// Output:
// fill_ moves 4 MiB, allocates 0 MiB
// copy_ moves 8 MiB, allocates 0 MiB
// add_out moves 12 MiB, allocates 0 MiB
// add moves 12 MiB, allocates 4 MiB

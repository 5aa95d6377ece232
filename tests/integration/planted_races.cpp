// Programs that lack a wait, or with the argument `waits` have it.
//
//   planted_races              lists their names
//   planted_races NAME [waits] runs one; 0: its numbers are right, 1: they are wrong
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

namespace gantry {
namespace {

constexpr std::int64_t kCount = 512;

const Device kDevice = Device::cuda(0);
const Device kOther = Device::cuda(1);

/// Two streams of cuda:0 and the value that a program computes on them.
struct Run {
  bool waits = false;  ///< the program has the wait
  Stream first = Stream::from_pool(kDevice);
  Stream second = Stream::from_pool(kDevice);

  template <class F>
  static void on(const Stream& stream, F&& work) {
    const StreamGuard guard(stream);
    work();
  }
};

Tensor filled(double value, Device device = kDevice) {
  Tensor tensor = full({kCount}, value, {.dtype = f32, .device = device});
  synchronize(device);
  return tensor;
}

Tensor pinned(double value) { return full({kCount}, value, {.dtype = f32, .pinned = true}); }

// The result, once everything is done that can change it.
double first_of(const Tensor& tensor) {
  synchronize(tensor.device());
  for (int i = 0; i < device_count(); ++i) synchronize(Device::cuda(i));
  return tensor.slice(0, 0, 1).cpu().item<float>();
}

struct Race {
  const char* name;
  double right;
  double (*run)(Run&);
};

const std::vector<Race> kRaces{
    {"read_before_write", 3,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0);
       Run::on(r.first, [&] { x.fill_(2); });
       if (r.waits) r.second.wait(r.first);
       Run::on(r.second, [&] { add_out(y, x, 1); });
       return first_of(y);
     }},
    {"write_before_read", 2,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0);
       Run::on(r.first, [&] { add_out(y, x, 1); });
       if (r.waits) r.second.wait(r.first);
       Run::on(r.second, [&] { x.fill_(9); });
       return first_of(y);
     }},
    {"write_before_write", 2,
     [](Run& r) {
       Tensor x = filled(0);
       Run::on(r.first, [&] { x.fill_(1); });
       if (r.waits) r.second.wait(r.first);
       Run::on(r.second, [&] { x.fill_(2); });
       return first_of(x);
     }},
    {"copy_on_a_side_stream", 6,
     [](Run& r) {
       Tensor x = filled(5);
       Tensor y = filled(0);
       Run::on(r.first, [&] { y.copy_(x); });
       if (r.waits) Stream::current(kDevice).wait(r.first);
       y.add_(1.0);
       return first_of(y);
     }},
    {"pinned_memory_overwritten", 4,
     [](Run& r) {
       Tensor host = pinned(4);
       Tensor x = filled(0);
       x.copy_(host, {.non_blocking = true});
       if (r.waits) Stream::current(kDevice).synchronize();
       host.fill_(9);
       return first_of(x);
     }},
    {"pinned_memory_read_early", 4,
     [](Run& r) {
       Tensor x = filled(4);
       Tensor host = pinned(0);
       host.copy_(x, {.non_blocking = true});
       if (r.waits) Stream::current(kDevice).synchronize();
       return double{host.data_ptr<float>()[0]};
     }},
    {"to_host_read_early", 4,
     [](Run& r) {
       Tensor x = filled(1);
       x.add_(3.0);
       Tensor host = pinned(0);
       Run::on(r.first, [&] {
         r.first.wait(Stream::default_stream(kDevice));
         host.copy_(x, {.non_blocking = true});
       });
       if (r.waits) r.first.synchronize();
       const double seen = host.data_ptr<float>()[kCount - 1];
       synchronize(kDevice);
       return seen;
     }},
    {"freed_without_record_stream", 2,
     [](Run& r) {
       Tensor y = filled(0);
       Tensor x = filled(1);
       Run::on(r.first, [&] { add_out(y, x, 1); });
       if (r.waits) x.record_stream(r.first);
       x = Tensor();
       Tensor reused = full({kCount}, 7.0, {.dtype = f32, .device = kDevice});
       return first_of(y);
     }},
    {"event_recorded_early", 3,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0);
       Event ready = r.first.record();
       Run::on(r.first, [&] { x.fill_(2); });
       if (r.waits) r.first.record(ready);
       r.second.wait(ready);
       Run::on(r.second, [&] { add_out(y, x, 1); });
       return first_of(y);
     }},
    {"wait_in_the_wrong_direction", 3,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0);
       Run::on(r.first, [&] { x.fill_(2); });
       r.first.wait(r.second);
       if (r.waits) r.second.wait(r.first);
       Run::on(r.second, [&] { add_out(y, x, 1); });
       return first_of(y);
     }},
    {"wait_for_another_stream", 3,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0);
       Run::on(r.first, [&] { x.fill_(2); });
       r.second.wait(r.waits ? r.first : Stream::default_stream(kDevice));
       Run::on(r.second, [&] { add_out(y, x, 1); });
       return first_of(y);
     }},
    {"buffer_refilled_while_in_use", 1 + 2 + 3 + 4,
     [](Run& r) {
       // The copy stream fills a buffer for each step; the other one adds it up.
       Tensor sum = filled(0);
       Tensor buffer = filled(0);
       Event filled_event, used_event;
       for (int step = 1; step <= 4; ++step) {
         if (r.waits && step > 1) r.first.wait(used_event);
         Run::on(r.first, [&] { buffer.fill_(step); });
         r.first.record(filled_event);
         r.second.wait(filled_event);
         Run::on(r.second, [&] { sum.add_(buffer); });
         r.second.record(used_event);
       }
       return first_of(sum);
     }},
    {"copy_between_devices", 2,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0, kOther);
       Run::on(r.first, [&] { x.fill_(2); });
       if (r.waits) Stream::current(kDevice).wait(r.first);
       y.copy_(x);
       return first_of(y);
     }},
    {"copied_to_a_device_and_used_there", 3,
     [](Run& r) {
       Tensor x = filled(2);
       Tensor y = filled(0, kOther);
       const Stream side = Stream::from_pool(kOther);
       y.copy_(x);
       if (r.waits) side.wait(Stream::current(kOther));
       Run::on(side, [&] { y.add_(1.0); });
       return first_of(y);
     }},
    {"graph_input_overwritten", 2,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0);
       Graph graph;
       {
         const GraphCapture capture(graph);
         add_out(y, x, 1);
       }
       Run::on(r.first, [&] { graph.replay(); });
       if (r.waits) r.second.wait(r.first);
       Run::on(r.second, [&] { x.fill_(9); });
       return first_of(y);
     }},
    {"graph_result_read_early", 3,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0);
       Tensor z = filled(0);
       Graph graph;
       {
         const GraphCapture capture(graph);
         add_out(y, x, 1);
       }
       Run::on(r.first, [&] { graph.replay(); });
       if (r.waits) r.second.wait(r.first);
       Run::on(r.second, [&] { add_out(z, y, 1); });
       return first_of(z);
     }},
    {"all_reduce_used_on_another_stream", 4,
     [](Run& r) {
       std::vector<Communicator> ranks = Communicator::local({kDevice, kOther});
       std::vector<Tensor> values{filled(1), filled(2, kOther)};
       Tensor y = filled(0);
       Work done;
       for (std::size_t i = 0; i < 2; ++i) {
         const Work work = ranks[i].all_reduce(values[i]);
         if (i == 0) done = work;
       }
       Run::on(r.first, [&] {
         if (r.waits) done.wait();
         add_out(y, values[0], 1);
       });
       return first_of(y);
     }},
    {"broadcast_used_on_another_stream", 6,
     [](Run& r) {
       const Tensor x = filled(5);
       std::vector<Tensor> out{filled(0), filled(0, kOther)};
       Tensor y = filled(0, kOther);
       const Stream side = Stream::from_pool(kOther);
       comm::broadcast(x, out);
       if (r.waits) side.wait(Stream::current(kOther));
       Run::on(side, [&] { add_out(y, out[1], 1); });
       return first_of(y);
     }},
    {"gathered_to_the_host_and_read", 3,
     [](Run& r) {
       Tensor out = full({2 * kCount}, 0.0, {.dtype = f32, .pinned = true});
       comm::gather({filled(3), filled(3, kOther)}, out);
       if (r.waits) {
         synchronize(kDevice);
         synchronize(kOther);
       }
       const double seen = out.data_ptr<float>()[0];
       synchronize(kDevice);
       synchronize(kOther);
       return seen;
     }},
    // Right by luck where the device is late.
    {"early:wait_before_the_record", 3,
     [](Run& r) {
       Tensor x = filled(1);
       Tensor y = filled(0);
       Event ready;
       const auto produce = [&] {
         Run::on(r.first, [&] { x.fill_(2); });
         r.first.record(ready);
       };
       if (r.waits) produce();
       r.second.wait(ready);
       Run::on(r.second, [&] { add_out(y, x, 1); });
       if (!r.waits) produce();
       return first_of(y);
     }},
    {"early:pinned_memory_filled_late", 4,
     [](Run& r) {
       Tensor host = pinned(0);
       Tensor x = filled(0);
       if (r.waits) host.fill_(4);
       x.copy_(host, {.non_blocking = true});
       host.fill_(4);
       return first_of(x);
     }},
    {"early:pinned_result_cleared_late", 4,
     [](Run& r) {
       Tensor host = pinned(9);
       const Tensor x = filled(4);
       if (r.waits) host.zero_();
       host.copy_(x, {.non_blocking = true});
       if (!r.waits) host.zero_();
       synchronize(kDevice);
       return double{host.data_ptr<float>()[0]};
     }},
};

int main_of(int argc, char** argv) {
  if (argc < 2) {
    for (const Race& race : kRaces) std::cout << race.name << "\n";
    return 0;
  }
  for (const Race& race : kRaces) {
    if (std::strcmp(race.name, argv[1]) != 0) continue;
    Run run{.waits = argc > 2};
    const double got = race.run(run);
    std::cout << race.name << ": expected " << race.right << ", got " << got << "\n";
    return got == race.right ? 0 : 1;
  }
  std::cerr << "planted_races: expected the name of a race, but got " << argv[1] << "\n";
  return 2;
}

}  // namespace
}  // namespace gantry

int main(int argc, char** argv) { return gantry::main_of(argc, argv); }

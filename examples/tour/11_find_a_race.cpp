// The stream sanitizer finds a race: two streams use one memory, and nothing orders them.
//
// The numbers may be right in every run on this machine. The sanitizer looks at orders, not at
// luck. GANTRY_SANITIZER=warn does the same for a program that is already built.
#include <gantry/gantry.hpp>

#include <iostream>

int main() {
  using namespace gantry;

  // 1. From here on, a race is an error of its second operation, before that is submitted.
  sanitizer::enable(sanitizer::Mode::throw_);
  const Stream main_stream = Stream::current("cuda:0");
  const Stream side = Stream::from_pool("cuda:0");
  const Tensor data = ones({1000}, "cuda:0");
  Tensor doubled;

  // 2. The bug: the side stream reads what the main stream may still be writing.
  try {
    const StreamGuard guard(side);
    doubled = data * 2;
  } catch (const RaceError&) {
    const sanitizer::Race race = sanitizer::report().races.at(0);
    std::cout << "race: " << race.first.operation << " of one stream, " << race.second.operation
              << " of another\n";
    std::cout << "the first one writes: " << race.first.is_write << "\n";
    std::cout << "call sites are known: " << !race.second.call_site.empty() << "\n";
  }

  // 3. The repair: an order on the device. The host still waits for nothing.
  sanitizer::clear();
  side.wait(main_stream);
  {
    const StreamGuard guard(side);
    doubled = data * 2;
  }
  // 4. Back on the main stream, the result needs an order, too.
  main_stream.wait(side);
  doubled.record_stream(main_stream);
  std::cout << "sum: " << doubled.sum().item<float>() << "\n";
  std::cout << "races: " << sanitizer::report().races.size() << "\n";
  sanitizer::enable(sanitizer::Mode::off);
}
// Output:
// race: fill of one stream, mul of another
// the first one writes: 1
// call sites are known: 1
// sum: 2000
// races: 0

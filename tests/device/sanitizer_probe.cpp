// A program that is instrumented, maybe against a library that is not: makes the driver, twice.
#include <cstdio>

#include <gantry/device/device.hpp>

int main() {
  gantry::init();
  gantry::init();
  std::printf("%d devices\n", gantry::device_count());
}

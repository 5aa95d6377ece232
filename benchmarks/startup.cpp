// A program that ends at once, for startup.py. Built twice: with libgantry and without it.
#ifdef GANTRY_STARTUP_LINKED
#include <gantry/device/device.hpp>
#endif

int main(int argc, char**) {
#ifdef GANTRY_STARTUP_LINKED
  if (argc > 1) return gantry::device_count();
#endif
  return argc > 1 ? 1 : 0;
}

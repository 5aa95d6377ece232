// A library that is no profiler.
extern "C" int gantry_test_stranger() { return 1; }

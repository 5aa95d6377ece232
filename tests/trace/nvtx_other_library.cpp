// A library that is no profiler.
extern "C" int gantry_test_other_library() { return 1; }

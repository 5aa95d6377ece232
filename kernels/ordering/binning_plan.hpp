#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/dtype.hpp>

namespace gantry::kernels {

// The plan of searchsorted. A POD.
struct SearchPlan {
  DType dtype = DType::f32;
  const void* sequences = nullptr;
  const void* values = nullptr;
  void* out = nullptr;
  std::int64_t length = 0;        // of a sequence
  std::int64_t count = 0;         // values
  std::int64_t per_sequence = 0;  // values that are looked up in one sequence
  bool is_wide = true;            // out is i64, else i32
  bool right = false;
};

// The plan of count_values and count_bins. A POD.
struct CountPlan {
  DType dtype = DType::f32;
  const void* in = nullptr;
  std::int64_t n = 0;
  std::int64_t* counts = nullptr;
  std::int64_t bins = 0;
  double low = 0;  // count_bins of floating elements
  double high = 0;
  std::int64_t whole_low = 0;  // of integers
  std::int64_t whole_high = 0;
};

// The plan of run_starts. A POD.
struct RunPlan {
  const std::int64_t* runs = nullptr;
  const std::int64_t* order = nullptr;
  std::int64_t* starts = nullptr;
  std::int64_t* inverse = nullptr;
  std::int64_t n = 0;
};

// The plan of first_of_runs. A POD.
struct FirstsPlan {
  DType dtype = DType::f32;
  const void* in = nullptr;
  void* out = nullptr;
  std::int64_t* count = nullptr;
  std::int64_t n = 0;
};

namespace host {
void searchsorted(const SearchPlan& plan);
void count_values(const CountPlan& plan);
void count_bins(const CountPlan& plan);
void run_starts(const RunPlan& plan);
void first_of_runs(const FirstsPlan& plan);
}  // namespace host

namespace cuda {
void searchsorted(void* stream, const SearchPlan& plan);
void count_values(void* stream, const CountPlan& plan);
void count_bins(void* stream, const CountPlan& plan);
void run_starts(void* stream, const RunPlan& plan);
[[nodiscard]] std::size_t first_of_runs_bytes(const FirstsPlan& plan);
void first_of_runs(void* stream, const FirstsPlan& plan, void* scratch);
}  // namespace cuda

}  // namespace gantry::kernels

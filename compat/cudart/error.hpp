// CUDA's error numbers, and the calling thread's last one.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace gantry::cudart_api {

// Ends a call of the CUDA runtime with `number`.
class Refusal : public std::runtime_error {
 public:
  Refusal(cudaError_t number, const std::string& why) : std::runtime_error(why), number_(number) {}
  [[nodiscard]] cudaError_t number() const noexcept { return number_; }

 private:
  cudaError_t number_;
};

// Throws: Refusal with `number` unless `condition`.
inline void expect(bool condition, cudaError_t number, const char* why) {
  if (!condition) throw Refusal(number, why);
}
// Throws: Refusal with cudaErrorInvalidValue for a null pointer.
inline void expect_place(const void* place) {
  expect(place != nullptr, cudaErrorInvalidValue, "expected a place for the result, but got null");
}

// Makes the number of `error` the calling thread's last error, logs its text, and returns it.
cudaError_t fail(const char* function, const std::exception_ptr& error) noexcept;
// Makes `number` the calling thread's last error and returns it.
cudaError_t fail(cudaError_t number) noexcept;

// Runs the body of a call of the CUDA runtime. A success leaves the last error as it is.
template <class Body>
cudaError_t guarded(const char* function, Body body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return cudaSuccess;
    } else {
      const cudaError_t number = body();
      return number == cudaSuccess ? number : fail(number);
    }
  } catch (...) {
    return fail(function, std::current_exception());
  }
}

}  // namespace gantry::cudart_api

// Texts that are compiled at run time, around the user's function.
#include "kernels/jit/program.hpp"

namespace gantry::kernels::jit {

namespace {

// Both prologues declare what shared_headers() and runtime() use of the standard library.
constexpr std::string_view kHostPrologue = R"code(
#include <math.h>
#include <string.h>
#include <algorithm>
#include <cstdint>
#include <type_traits>
#define GANTRY_HD
#define GANTRY_GPU_ARCH 0
#define GANTRY_PTX(...) static_cast<void>(0)
using std::max;
using std::min;
)code";

constexpr std::string_view kCudaPrologue = R"code(
#define GANTRY_HD __device__
#define GANTRY_GPU_ARCH __CUDA_ARCH__
#define GANTRY_PTX(...) asm(__VA_ARGS__)
namespace std {
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = decltype(sizeof(0));
template <class A, class B> inline constexpr bool is_same_v = false;
template <class A> inline constexpr bool is_same_v<A, A> = true;
template <class T> inline constexpr bool is_floating_point_v =
    is_same_v<T, float> || is_same_v<T, double>;
template <class T> inline constexpr bool is_integral_v =
    is_same_v<T, bool> || is_same_v<T, char> || is_same_v<T, signed char> ||
    is_same_v<T, unsigned char> || is_same_v<T, short> || is_same_v<T, unsigned short> ||
    is_same_v<T, int> || is_same_v<T, unsigned> || is_same_v<T, long> ||
    is_same_v<T, unsigned long> || is_same_v<T, long long> || is_same_v<T, unsigned long long>;
template <class T> inline constexpr bool is_arithmetic_v =
    is_integral_v<T> || is_floating_point_v<T>;
template <class T> inline constexpr bool is_signed_v = is_arithmetic_v<T> && T(-1) < T(0);
}  // namespace std
)code";

constexpr std::string_view kRuntime = R"code(
namespace gantry_jit {

using gantry::kernels::convert;

constexpr int kMaxDims = 8;
constexpr int kMaxOperands = 16;

struct Parameters {
  std::int64_t numel;
  std::int64_t ndim;
  std::int64_t sizes[kMaxDims];
  std::int64_t strides[kMaxDims][kMaxOperands];
  void* data[kMaxOperands];
  std::uint64_t numbers[kMaxOperands];
  std::uint32_t divisors[kMaxDims][3];
};

// Bool memory is read as bytes: a byte other than 0 and 1 is no valid bool.
template <class S> struct StoredOf { using type = S; };
template <> struct StoredOf<bool> { using type = unsigned char; };

template <class T, class S>
GANTRY_HD inline T value_of(typename StoredOf<S>::type stored) {
  if constexpr (std::is_same_v<S, bool>) {
    return convert<T>(stored != 0);
  } else {
    return convert<T>(stored);
  }
}

template <class T, class S>
GANTRY_HD inline T load(const void* data, std::int64_t i) {
  return value_of<T, S>(static_cast<const typename StoredOf<S>::type*>(data)[i]);
}

template <class T>
GANTRY_HD inline T number(const Parameters& p, int operand) {
  T value;
  memcpy(&value, &p.numbers[operand], sizeof value);
  return value;
}

template <class S, class V>
GANTRY_HD inline void store(void* data, std::int64_t i, V value) {
  static_cast<S*>(data)[i] = convert<S>(value);
}

template <class S, int V>
struct alignas(sizeof(S) * V < 16 ? sizeof(S) * V : 16) Pack {
  typename StoredOf<S>::type values[V];
};

template <class S, int V>
GANTRY_HD inline Pack<S, V> load_pack(const void* data, std::int64_t pack) {
  return static_cast<const Pack<S, V>*>(data)[pack];
}

template <class S, int V>
GANTRY_HD inline void store_pack(void* data, std::int64_t pack, const Pack<S, V>& value) {
  static_cast<Pack<S, V>*>(data)[pack] = value;
}

template <class S, int V, class X>
GANTRY_HD inline void set(Pack<S, V>& pack, int i, X value) {
  pack.values[i] = static_cast<typename StoredOf<S>::type>(convert<S>(value));
}


}  // namespace gantry_jit
)code";

constexpr std::string_view kCudaRuntime = R"code(
namespace gantry_jit {

constexpr int kThreads = 256;
__device__ inline std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ inline std::int64_t index_step() {
  return static_cast<std::int64_t>(gridDim.x) * kThreads;
}
template <int N>
__device__ inline void offsets_of(const Parameters& p, std::uint32_t index, std::int64_t (&at)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) at[k] = 0;
#pragma unroll
  for (int dim = 0; dim < kMaxDims; ++dim) {
    if (dim == p.ndim - 1) {
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += static_cast<std::int64_t>(index) * p.strides[dim][k];
      return;
    }
    const std::uint32_t quotient = static_cast<std::uint32_t>(
        (((static_cast<std::uint64_t>(p.divisors[dim][1]) * index) >> 32) + index) >>
        p.divisors[dim][2]);
    const std::uint32_t rest = index - quotient * p.divisors[dim][0];
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] += static_cast<std::int64_t>(rest) * p.strides[dim][k];
    index = quotient;
  }
}

}  // namespace gantry_jit
)code";

}  // namespace

std::string_view prologue(Language language) {
  return language == Language::host ? kHostPrologue : kCudaPrologue;
}

std::string_view runtime() { return kRuntime; }

std::string_view cuda_runtime() { return kCudaRuntime; }

}  // namespace gantry::kernels::jit

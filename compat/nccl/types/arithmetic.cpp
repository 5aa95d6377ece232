// nvcc compiles this file where there is one.
#include "compat/nccl/types/arithmetic.hpp"

#include <cstring>
#include <limits>
#include <type_traits>

#include <gantry/core/error.hpp>
#include <gantry/core/float16.hpp>
#include <gantry/core/float8.hpp>
#include <gantry/kernels/launch.hpp>

namespace gantry::nccl_api {

namespace {

// The elements of a type, and the type in which they are multiplied.
template <class T>
struct Element {
  using Stored = T;
  using Wide = T;
  GANTRY_HD static Wide load(T value) { return value; }
  GANTRY_HD static T store(Wide value) { return value; }
};
template <class T>
struct NarrowElement {
  using Stored = T;
  using Wide = float;
  GANTRY_HD static float load(T value) { return static_cast<float>(value); }
  GANTRY_HD static T store(float value) { return static_cast<T>(value); }
};
// An 8-bit float, which takes the largest number for every larger one, as NCCL's types do.
template <class F>
struct Float8Element {
  using Stored = F;
  using Wide = float;
  GANTRY_HD static float load(F value) { return value; }
  GANTRY_HD static F store(float value) {
    const float largest = std::numeric_limits<F>::max();
    return F(value > largest ? largest : value < -largest ? -largest : value);
  }
};

template <class E>
struct Multiply {
  const typename E::Stored* in;
  typename E::Stored* out;
  const typename E::Stored* on_device;
  typename E::Stored value;

  GANTRY_HD void operator()(std::int64_t i) const {
    const typename E::Stored factor = on_device != nullptr ? *on_device : value;
    out[i] = E::store(static_cast<typename E::Wide>(E::load(in[i]) * E::load(factor)));
  }
};

template <class T>
struct Divide {
  T* data;
  std::int64_t divisor;

  // The number of ranks may be one that T does not have.
  GANTRY_HD void operator()(std::int64_t i) const {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    data[i] = static_cast<T>(static_cast<Wide>(data[i]) / static_cast<Wide>(divisor));
  }
};

template <class F>
struct Widen {
  const F* in;
  float* out;

  GANTRY_HD void operator()(std::int64_t i) const { out[i] = in[i]; }
};

template <class F>
struct Narrow {
  const float* in;
  F* out;

  GANTRY_HD void operator()(std::int64_t i) const { out[i] = Float8Element<F>::store(in[i]); }
};

template <class E>
void multiply_as(const Stream& stream, const void* in, void* out, std::int64_t count,
                 const Factor& factor) {
  using T = typename E::Stored;
  Multiply<E> functor{static_cast<const T*>(in), static_cast<T*>(out),
                      static_cast<const T*>(factor.on_device), T{}};
  std::memcpy(static_cast<void*>(&functor.value), &factor.bits, sizeof(T));
  parallel_for(stream, count, functor);
}

template <class T>
void divide_as(const Stream& stream, void* data, std::int64_t count, std::int64_t divisor) {
  parallel_for(stream, count, Divide<T>{static_cast<T*>(data), divisor});
}

}  // namespace

void multiply(const Stream& stream, const void* in, void* out, std::int64_t count,
              ncclDataType_t type, const Factor& factor) {
  const auto as = [&]<class E>(E) { multiply_as<E>(stream, in, out, count, factor); };
  // Products of signed and of unsigned numbers have the same bits, and unsigned ones may wrap.
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return as(Element<std::uint8_t>{});
    case ncclInt32:
    case ncclUint32:
      return as(Element<std::uint32_t>{});
    case ncclInt64:
    case ncclUint64:
      return as(Element<std::uint64_t>{});
    case ncclFloat16:
      return as(NarrowElement<float16>{});
    case ncclBfloat16:
      return as(NarrowElement<bfloat16>{});
    case ncclFloat32:
      return as(Element<float>{});
    case ncclFloat64:
      return as(Element<double>{});
    case ncclFloat8e4m3:
      return as(Float8Element<float8_e4m3>{});
    case ncclFloat8e5m2:
      return as(Float8Element<float8_e5m2>{});
    default:
      throw InvalidArgument("expected a type of NCCL's to multiply");
  }
}

void divide(const Stream& stream, void* data, std::int64_t count, ncclDataType_t type,
            std::int64_t divisor) {
  switch (type) {
    case ncclInt8:
      return divide_as<std::int8_t>(stream, data, count, divisor);
    case ncclUint8:
      return divide_as<std::uint8_t>(stream, data, count, divisor);
    case ncclInt32:
      return divide_as<std::int32_t>(stream, data, count, divisor);
    case ncclUint32:
      return divide_as<std::uint32_t>(stream, data, count, divisor);
    case ncclInt64:
      return divide_as<std::int64_t>(stream, data, count, divisor);
    case ncclUint64:
      return divide_as<std::uint64_t>(stream, data, count, divisor);
    default:
      throw InvalidArgument("expected whole numbers to divide");
  }
}

void widen(const Stream& stream, const void* in, float* out, std::int64_t count,
           ncclDataType_t type) {
  if (type == ncclFloat8e4m3) {
    using F = float8_e4m3;
    parallel_for(stream, count, Widen<F>{static_cast<const F*>(in), out});
  } else {
    using F = float8_e5m2;
    parallel_for(stream, count, Widen<F>{static_cast<const F*>(in), out});
  }
}

void narrow(const Stream& stream, const float* in, void* out, std::int64_t count,
            ncclDataType_t type) {
  if (type == ncclFloat8e4m3) {
    using F = float8_e4m3;
    parallel_for(stream, count, Narrow<F>{in, static_cast<F*>(out)});
  } else {
    using F = float8_e5m2;
    parallel_for(stream, count, Narrow<F>{in, static_cast<F*>(out)});
  }
}

}  // namespace gantry::nccl_api

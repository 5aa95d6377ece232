// nvcc compiles this file where there is one.
#include "compat/nccl/arithmetic.hpp"

#include <cstring>
#include <type_traits>

#include <gantry/core/error.hpp>
#include <gantry/core/float16.hpp>
#include <gantry/kernels/launch.hpp>

#include "compat/nccl/float8.hpp"

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
template <class F>
struct Float8Element {
  using Stored = std::uint8_t;
  using Wide = float;
  GANTRY_HD static float load(std::uint8_t value) { return F::to_float(value); }
  GANTRY_HD static std::uint8_t store(float value) { return F::from_float(value); }
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
struct FlipSign {
  const T* in;
  T* out;

  GANTRY_HD void operator()(std::int64_t i) const {
    out[i] = in[i] ^ T { 1 } << (8 * sizeof(T) - 1);
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
  const std::uint8_t* in;
  float* out;

  GANTRY_HD void operator()(std::int64_t i) const { out[i] = F::to_float(in[i]); }
};

template <class F>
struct Narrow {
  const float* in;
  std::uint8_t* out;

  GANTRY_HD void operator()(std::int64_t i) const { out[i] = F::from_float(in[i]); }
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
      return as(Float8Element<Float8E4m3>{});
    case ncclFloat8e5m2:
      return as(Float8Element<Float8E5m2>{});
    default:
      throw InvalidArgument("expected a type of NCCL's to multiply");
  }
}

void flip_sign(const Stream& stream, const void* in, void* out, std::int64_t count,
               std::size_t bytes) {
  if (bytes == sizeof(std::uint32_t)) {
    using T = std::uint32_t;
    parallel_for(stream, count, FlipSign<T>{static_cast<const T*>(in), static_cast<T*>(out)});
  } else {
    using T = std::uint64_t;
    parallel_for(stream, count, FlipSign<T>{static_cast<const T*>(in), static_cast<T*>(out)});
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
  const auto* bytes = static_cast<const std::uint8_t*>(in);
  if (type == ncclFloat8e4m3) {
    parallel_for(stream, count, Widen<Float8E4m3>{bytes, out});
  } else {
    parallel_for(stream, count, Widen<Float8E5m2>{bytes, out});
  }
}

void narrow(const Stream& stream, const float* in, void* out, std::int64_t count,
            ncclDataType_t type) {
  auto* bytes = static_cast<std::uint8_t*>(out);
  if (type == ncclFloat8e4m3) {
    parallel_for(stream, count, Narrow<Float8E4m3>{in, bytes});
  } else {
    parallel_for(stream, count, Narrow<Float8E5m2>{in, bytes});
  }
}

}  // namespace gantry::nccl_api

#include <gantry/core/dims.hpp>

#include <gantry/core/error.hpp>

namespace gantry {

namespace {

[[noreturn]] void throw_too_many(std::size_t count) {
  throw ShapeError("Expected at most " + std::to_string(kMaxDims) + " dimensions, but got " +
                   std::to_string(count));
}

std::string join(const Dims& dims, std::string_view separator) {
  std::string text;
  for (int i = 0; i < dims.size(); ++i) {
    if (i > 0) text += separator;
    text += std::to_string(dims[i]);
  }
  return text;
}

}  // namespace

Dims Dims::filled(int count, std::int64_t value) {
  Dims result;
  for (int i = 0; i < count; ++i) result.push_back(value);
  return result;
}

void Dims::assign(const std::int64_t* values, std::size_t count) {
  if (count > kMaxDims) throw_too_many(count);
  std::copy_n(values, count, values_);
  size_ = static_cast<int>(count);
}

void Dims::push_back(std::int64_t value) { insert(size_, value); }

void Dims::insert(int at, std::int64_t value) {
  if (size_ == kMaxDims) throw_too_many(kMaxDims + 1);
  std::copy_backward(values_ + at, values_ + size_, values_ + size_ + 1);
  values_[at] = value;
  ++size_;
}

void Dims::erase(int at) {
  std::copy(values_ + at + 1, values_ + size_, values_ + at);
  --size_;
}

std::int64_t Dims::product() const noexcept {
  std::int64_t result = 1;
  for (const std::int64_t value : *this) result *= value;
  return result;
}

std::string Dims::str() const { return "[" + join(*this, ", ") + "]"; }
std::string Dims::str_x() const { return join(*this, "x"); }

std::ostream& operator<<(std::ostream& out, const Dims& dims) { return out << dims.str(); }

}  // namespace gantry

#include "tensor/exchange/safetensors_schema.hpp"

#include <fmt/format.h>

#include <utility>

#include <gantry/core/error.hpp>

#include "core/text/json.hpp"

namespace gantry::detail {

namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMostDims = 64;  // of tensors that gantry only lists
constexpr std::size_t kShownCharacters = 200;

// As the reference implementation, it leaves out unknown fields of a tensor, whatever they hold.
class Schema : public JsonHandler {
 public:
  StoredHeader take() { return std::move(header_); }

  void null() override {
    const bool is_metadata = at_ == At::root && key_ == kMetadata;
    if (!skips() && !is_metadata) refuse("null");
  }
  void boolean(bool) override {
    if (!skips()) refuse("a bool");
  }
  void large_integer(std::uint64_t) override {
    if (!skips()) refuse("a number of 2^63 or more");
  }
  void number(double) override {
    if (!skips()) refuse("a number with a fraction");
  }

  void integer(std::int64_t value) override {
    if (skips()) return;
    if (at_ != At::shape && at_ != At::offsets) refuse("a number");
    if (value < 0) refuse("a negative number");
    std::vector<std::int64_t>& list = at_ == At::shape ? tensor_->sizes : offsets_;
    if (list.size() == (at_ == At::shape ? kMostDims : 2)) refuse("more numbers");
    list.push_back(value);
  }

  void string(std::string value) override {
    if (skips()) return;
    if (at_ == At::metadata) {
      if (!header_.metadata.emplace(key_, std::move(value)).second) refuse_twice(key_);
    } else if (at_ == At::tensor && key_ == "dtype") {
      tensor_->dtype = std::move(value);
    } else {
      refuse("a string");
    }
  }

  void begin_array() override {
    if (begin_skipped()) return;
    if (at_ != At::tensor || key_ == "dtype") refuse("an array");
    at_ = key_ == "shape" ? At::shape : At::offsets;
  }
  void end_array() override {
    if (end_skipped()) return;
    if (at_ == At::offsets && offsets_.size() != 2) refuse("one number or none");
    at_ = At::tensor;
  }

  void begin_object() override {
    if (begin_skipped()) return;
    if (at_ == At::start) {
      at_ = At::root;
    } else if (at_ == At::root && key_ == kMetadata) {
      at_ = At::metadata;
    } else if (at_ == At::root) {
      at_ = At::tensor;
      tensor_ = &header_.tensors[key_];
      seen_ = 0;
      offsets_.clear();
    } else {
      refuse("an object");
    }
  }
  void end_object() override {
    if (end_skipped()) return;
    if (at_ == At::tensor) {
      if (seen_ != 7) {
        throw InvalidArgument(fmt::format(
            "expected \"dtype\", \"shape\" and \"data_offsets\" of '{}', but one is missing",
            name_.substr(0, kShownCharacters)));
      }
      tensor_->begin = static_cast<std::uint64_t>(offsets_[0]);
      tensor_->end = static_cast<std::uint64_t>(offsets_[1]);
    }
    at_ = At::root;
  }

  void key(std::string key) override {
    if (depth_ > 0) return;
    key_ = std::move(key);
    if (at_ == At::root) {
      name_ = key_;
      const bool is_metadata = key_ == kMetadata;
      if (is_metadata ? std::exchange(has_metadata_, true) : header_.tensors.contains(key_)) {
        refuse_twice(key_);
      }
    } else if (at_ == At::tensor) {
      const unsigned bit = key_ == "dtype"          ? 1
                           : key_ == "shape"        ? 2
                           : key_ == "data_offsets" ? 4
                                                    : 0;
      is_unknown_ = bit == 0;
      if ((seen_ & bit) != 0) refuse_twice(key_);
      seen_ |= bit;
    }
  }

 private:
  // True for a value of an unknown field, or within one.
  bool skips() { return std::exchange(is_unknown_, false) || depth_ > 0; }
  bool begin_skipped() {
    if (!skips()) return false;
    ++depth_;
    return true;
  }
  bool end_skipped() {
    if (depth_ == 0) return false;
    --depth_;
    return true;
  }

  enum class At { start, root, metadata, tensor, shape, offsets };

  [[noreturn]] void refuse(std::string_view actual) const {
    const char* expected = at_ == At::start      ? "an object"
                           : at_ == At::root     ? "an object for each tensor"
                           : at_ == At::metadata ? "strings in \"__metadata__\""
                           : at_ == At::tensor   ? "\"dtype\", \"shape\" and \"data_offsets\""
                           : at_ == At::shape    ? "up to 64 sizes"
                                                 : "two data_offsets";
    throw InvalidArgument(fmt::format("expected {} in the header, but got {} in '{}'", expected,
                                      actual, name_.substr(0, kShownCharacters)));
  }
  [[noreturn]] void refuse_twice(std::string_view key) const {
    throw InvalidArgument(fmt::format("expected each name once in the header, but got '{}' twice",
                                      key.substr(0, kShownCharacters)));
  }

  StoredHeader header_;
  At at_ = At::start;
  std::string name_;                   // of the member of the root
  std::string key_;                    // the last one
  StoredTensor* tensor_ = nullptr;     // that is read
  unsigned seen_ = 0;                  // its members: 1, 2 and 4
  std::vector<std::int64_t> offsets_;  // of it
  bool has_metadata_ = false;
  bool is_unknown_ = false;  // the last key of a tensor, until its value begins
  std::size_t depth_ = 0;    // of the unknown value that is read
};

}  // namespace

StoredHeader parse_safetensors_schema(std::string_view text) {
  Schema schema;
  parse_json(text, schema);
  return schema.take();
}

}  // namespace gantry::detail

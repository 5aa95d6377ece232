// Index lists that PyTorch has answered: tests/tensor/data/pytorch_index_answers.txt describes its
// lines.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/index.hpp>

#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::elements;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> result;
  if (text.empty()) return result;
  for (const std::string& part : split(text, ',')) result.push_back(std::stoll(part));
  return result;
}

std::vector<double> values(const std::string& text) {
  const std::vector<std::int64_t> all = numbers(text);
  return {all.begin(), all.end()};
}

std::optional<std::int64_t> bound(const std::string& text) {
  if (text.empty()) return {};
  return std::stoll(text);
}

Index entry(const std::string& text, Device device) {
  const std::vector<std::string> parts = split(text, ':');
  switch (text[0]) {
    case 'n':
      return None;
    case 'e':
      return Ellipsis;
    case 'i':
      return std::stoll(parts[1]);
    case 'b':
      return parts[1] == "1";
    case 's':
      return Slice(bound(parts[1]), bound(parts[2]), bound(parts[3]));
    default:
      break;
  }
  const DType dtype = text[0] == 'l' ? i64 : text[0] == 'j' ? i32 : text[0] == 'm' ? bool_ : u8;
  return tensor(numbers(parts[2]), {.dtype = dtype}).view(Shape(numbers(parts[1]))).to(device);
}

std::vector<std::string> answers() {
  std::ifstream file(GANTRY_INDEX_ANSWERS);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.front() != '#') lines.push_back(line);
  }
  return lines;
}

class PytorchIndexAnswersTest : public testing::PlacedTest {};

GANTRY_TEST_PLACES(PytorchIndexAnswersTest);

TEST_P(PytorchIndexAnswersTest, EveryListHasPytorchsAnswer) {
  const std::vector<std::string> lines = answers();
  ASSERT_GE(lines.size(), 200u);
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    const std::vector<std::string> fields = split(line, '|');
    const Shape sizes(numbers(fields[0]));
    const Tensor t = arange(sizes.product(), {.device = device_}).view(sizes);
    std::vector<Index> list;
    const auto parse = [&] {
      for (const std::string& text : split(fields[1], ' ')) {
        if (!text.empty()) list.push_back(entry(text, device_));
      }
    };
    parse();
    if (fields[2].starts_with("error")) {
      // On a device, an index out of range shows when the host waits.
      EXPECT_THROW(elements(t.index(list)), IndexError);
      Tensor target = zeros_like(t);
      EXPECT_THROW(
          {
            target.index_put_(list, 7);
            (void)elements(target);
          },
          IndexError);
      if (!device_.is_cpu()) continue;
      EXPECT_EQ(elements(target), std::vector<double>(target.numel(), 0.0));
      continue;
    }
    const Tensor result = t.index(list);
    EXPECT_EQ(result.sizes(), Shape(numbers(fields[2])));
    EXPECT_EQ(elements(result), values(fields[3]));
    const Tensor sums = zeros_like(t);
    sums.index_put_(
        list, arange(1, 1 + result.numel(), 1, {.device = device_}).view(result.sizes()), true);
    EXPECT_EQ(elements(sums), values(fields[4]));
  }
}

}  // namespace
}  // namespace gantry

#include <gantry/tensor/print.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using ::testing::ThrowsMessage;

class PrintTest : public ::testing::Test {
 protected:
  void TearDown() override { set_print_options({}); }
};

TEST_F(PrintTest, WritesNestedBracketsAndAFooter) {
  EXPECT_EQ(arange(6).view({2, 3}).str(), "[[0, 1, 2],\n [3, 4, 5]]\n[2, 3] i64 cpu");
  EXPECT_EQ(tensor({1, -20}).str(), "[  1, -20]\n[2] i64 cpu");
  EXPECT_EQ(tensor({1.0, 2.0}).str(), "[1., 2.]\n[2] f32 cpu");
  EXPECT_EQ(tensor({1.5, -2.25}).str(), "[ 1.5000, -2.2500]\n[2] f32 cpu");
  EXPECT_EQ(tensor({true, false}).str(), "[ True, False]\n[2] bool cpu");
  EXPECT_EQ(scalar_tensor(2.5).str(), "2.5000\n[] f32 cpu");
  EXPECT_EQ(zeros({0, 3}).str(), "[]\n[0, 3] f32 cpu");
  EXPECT_EQ(Tensor().str(), "[undefined tensor]");
  EXPECT_EQ(arange(8).view({2, 2, 2}).str(),
            "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]\n[2, 2, 2] i64 cpu");
}

TEST_F(PrintTest, ChoosesTheNotationOfNumbers) {
  EXPECT_EQ(tensor({1.0, 20000.0}).str(), "[1.0000e+00, 2.0000e+04]\n[2] f32 cpu");
  EXPECT_EQ(tensor({0.00001, 0.00002}, {.dtype = f64}).str(),
            "[1.0000e-05, 2.0000e-05]\n[2] f64 cpu");
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(tensor({std::nan(""), inf, -inf, 1.0}).str(), "[nan, inf, -inf, 1.]\n[4] f32 cpu");
  EXPECT_EQ(tensor({(std::int64_t{1} << 53) + 1}).str(), "[9007199254740993]\n[1] i64 cpu");
  EXPECT_EQ(tensor({0.5}, {.dtype = bf16}).str(), "[0.5000]\n[1] bf16 cpu");
}

TEST_F(PrintTest, SummarizesLargeTensors) {
  EXPECT_EQ(arange(1001).str(), "[   0,    1,    2,  ...,  998,  999, 1000]\n[1001] i64 cpu");
  set_print_options({.threshold = 10, .edge_items = 1});
  EXPECT_EQ(arange(12).view({3, 4}).str(),
            "[[ 0,  ...,  3],\n ...,\n [ 8,  ..., 11]]\n[3, 4] i64 cpu");
  EXPECT_EQ(arange(12).view({2, 6}).str(), "[[ 0,  ...,  5],\n [ 6,  ..., 11]]\n[2, 6] i64 cpu");
}

TEST_F(PrintTest, BreaksLongLines) {
  set_print_options({.line_width = 12});
  EXPECT_EQ(arange(6).str(), "[0, 1, 2, 3,\n 4, 5]\n[6] i64 cpu");
  set_print_options({.precision = 1});
  EXPECT_EQ(tensor({1.25}).str(), "[1.2]\n[1] f32 cpu");
}

// One tensor of printed_tensors.dat.
class Recorded {
 public:
  // Reads the header line without "# ".
  explicit Recorded(const std::string& header) {
    std::istringstream in(header);
    std::string dtype, sizes, sci_mode;
    in >> dtype >> sizes >> options.precision >> options.threshold >> options.edge_items >>
        options.line_width >> sci_mode >> elements_;
    static const std::map<std::string, DType> dtypes{
        {"bool", bool_}, {"u8", u8},   {"i8", i8},     {"i16", i16}, {"i32", i32},
        {"i64", i64},    {"f16", f16}, {"bf16", bf16}, {"f32", f32}, {"f64", f64}};
    dtype_ = dtypes.at(dtype);
    if (sci_mode != "auto") options.sci_mode = sci_mode == "on";
    std::istringstream list(sizes == "-" ? "" : sizes);
    for (std::string size; std::getline(list, size, ',');) sizes_.push_back(std::stoll(size));
  }

  Tensor tensor() const {
    const std::string formula = "arange*";
    if (elements_.starts_with(formula)) {
      const std::size_t slash = elements_.find('/');
      const Tensor counted = arange(sizes_.product(), f64);
      const double numerator = std::stod(elements_.substr(formula.size(), slash));
      return (counted * numerator / std::stod(elements_.substr(slash + 1))).to(dtype_).view(sizes_);
    }
    const Tensor result = empty(sizes_, dtype_);
    auto* bytes = static_cast<unsigned char*>(result.data());
    for (std::size_t i = 0; i < result.nbytes(); ++i) {
      bytes[i] = static_cast<unsigned char>(std::stoi(elements_.substr(2 * i, 2), nullptr, 16));
    }
    return result;
  }

  std::string footer() const {
    std::ostringstream out;
    out << sizes_.str() << ' ' << dtype_ << " cpu";
    return out.str();
  }

  PrintOptions options;
  std::string text;

 private:
  DType dtype_ = f32;
  Shape sizes_;
  std::string elements_;
};

TEST_F(PrintTest, WritesTheElementsAsPytorchDoes) {
  std::ifstream file(GANTRY_TEST_DATA_DIR "/printed_tensors.dat");
  ASSERT_TRUE(file);
  std::vector<Recorded> all;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("# ")) {
      all.emplace_back(line.substr(2));
    } else if (!all.empty()) {
      all.back().text += line + "\n";
    }
  }
  EXPECT_GE(all.size(), 300u);
  for (const Recorded& recorded : all) {
    set_print_options(recorded.options);
    EXPECT_EQ(recorded.tensor().str(), recorded.text + recorded.footer());
  }
}

TEST_F(PrintTest, WritesDeviceTensorsInAnyLayout) {
  for (const Device place : testing::all_places()) {
    std::ostringstream out;
    out << arange(6, {.device = place}).view({2, 3}).t();
    EXPECT_EQ(out.str(), "[[0, 3],\n [1, 4],\n [2, 5]]\n[3, 2] i64 " + place.str());
  }
}

TEST_F(PrintTest, RejectsInvalidOptions) {
  EXPECT_THAT([] { set_print_options({.edge_items = 0}); },
              ThrowsMessage<InvalidArgument>(
                  "set_print_options: expected edge_items of at least 1, but got 0"));
  EXPECT_EQ(print_options().edge_items, 3);
}

}  // namespace
}  // namespace gantry

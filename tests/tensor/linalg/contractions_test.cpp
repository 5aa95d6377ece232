#include <gantry/tensor/contractions.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

// A sum of products by its definition. Digits are the dims of the ellipsis.
class Oracle {
 public:
  Oracle(std::vector<std::string> operands, const std::vector<Tensor>& tensors, std::string output)
      : labels_(std::move(operands)), output_(std::move(output)) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      values_.push_back(tensors[i].to_vector<double>());
      shapes_.push_back(tensors[i].sizes());
      for (std::size_t d = 0; d < labels_[i].size(); ++d) {
        std::int64_t& size = sizes_.try_emplace(labels_[i][d], 1).first->second;
        if (shapes_[i][static_cast<int>(d)] != 1) size = shapes_[i][static_cast<int>(d)];
      }
    }
  }

  Shape shape() const {
    Shape result;
    for (const char label : output_) result.push_back(sizes_.at(label));
    return result;
  }

  std::vector<double> result() const {
    std::vector<double> sums(static_cast<std::size_t>(shape().product()), 0);
    std::map<char, std::int64_t> at;
    std::int64_t count = 1;
    for (const auto& [label, size] : sizes_) count *= size;
    for (std::int64_t n = 0; n < count; ++n) {
      std::int64_t rest = n;
      for (const auto& [label, size] : sizes_) {
        at[label] = rest % size;
        rest /= size;
      }
      double product = 1;
      for (std::size_t i = 0; i < values_.size(); ++i) {
        product *= values_[i][offset(labels_[i], shapes_[i], at)];
      }
      sums[offset(output_, shape(), at)] += product;
    }
    return sums;
  }

 private:
  static std::size_t offset(const std::string& labels, const Shape& shape,
                            const std::map<char, std::int64_t>& at) {
    std::int64_t result = 0;
    for (std::size_t d = 0; d < labels.size(); ++d) {
      const std::int64_t size = shape[static_cast<int>(d)];
      result = result * size + (size == 1 ? 0 : at.at(labels[d]));
    }
    return static_cast<std::size_t>(result);
  }

  std::vector<std::string> labels_;
  std::string output_;
  std::vector<std::vector<double>> values_;
  std::vector<Shape> shapes_;
  std::map<char, std::int64_t> sizes_;
};

class ContractionsTest : public testing::PlacedTest {
 protected:
  void SetUp() override {
    PlacedTest::SetUp();
    if (IsSkipped()) return;
    a_ = on(arange(6, f32)).view({2, 3});
    b_ = on(arange(12, f32)).view({3, 4});
    v_ = on(arange(3, f32));
  }
  Tensor whole_numbers(const Shape& sizes, DType dtype) {
    return on(randint(-3, 4, sizes)).to(dtype);
  }

  Tensor a_, b_, v_;
};

GANTRY_TEST_PLACES(ContractionsTest);

// A random equation over small tensors of whole numbers, whose sums are exact in every dtype.
struct Statement {
  std::string equation;
  std::vector<std::string> labels;  // of each operand, with digits for the ellipsis
  std::string output;
  std::vector<Shape> shapes;
};

class Statements {
 public:
  explicit Statements(unsigned seed) : random_(seed) {}

  Statement next() {
    Statement result;
    std::map<char, std::int64_t> sizes;
    const std::string letters = "aBcZe";
    for (const char label : letters + "012") sizes[label] = below(12) == 0 ? 0 : 1 + below(3);
    const bool has_ellipsis = below(3) == 0;
    const int most = has_ellipsis ? below(3) : 0;
    const int count = 1 + below(4);
    bool any_ellipsis = false;
    int widest = 0;
    for (int i = 0; i < count; ++i) {
      std::string labels;
      const int dims = below(4);
      for (int d = 0; d < dims; ++d) labels += letters[static_cast<std::size_t>(below(5))];
      std::string text = labels;
      if (has_ellipsis && below(4) != 0) {
        any_ellipsis = true;
        const int own = below(most + 1);
        widest = std::max(widest, own);
        const auto at = static_cast<std::size_t>(below(dims + 1));
        text.insert(at, "...");
        labels.insert(at, std::string("012").substr(static_cast<std::size_t>(3 - own)));
      }
      Shape shape;
      std::map<char, std::int64_t> here;
      for (const char label : labels) {
        // Some operands have size 1 in a dim that is larger elsewhere.
        if (!here.contains(label)) here[label] = below(5) == 0 ? 1 : sizes[label];
        shape.push_back(here[label]);
      }
      result.labels.push_back(labels);
      result.shapes.push_back(shape);
      if (below(3) == 0) text.insert(static_cast<std::size_t>(0), " ");
      result.equation += (i == 0 ? "" : ",") + text;
    }
    const std::string ellipsis = std::string("012").substr(static_cast<std::size_t>(3 - widest));
    std::map<char, int> seen;
    for (const std::string& labels : result.labels) {
      for (const char label : labels) ++seen[label];
    }
    if (below(2) == 0) {
      std::string output;
      for (const auto& [label, times] : seen) {
        if (label > '9' && below(2) == 0) output += label;
      }
      std::shuffle(output.begin(), output.end(), random_);
      std::string text = output;
      if (any_ellipsis && below(3) != 0) {
        const auto at = static_cast<std::size_t>(below(static_cast<int>(output.size()) + 1));
        text.insert(at, "...");
        output.insert(at, ellipsis);
      }
      result.output = output;
      result.equation += "->" + text;
    } else {
      result.output = ellipsis;
      for (const auto& [label, times] : seen) {  // in the order of the code: A to Z, a to z
        if (label > '9' && times == 1) result.output += label;
      }
    }
    return result;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  std::mt19937 random_;
};

TEST_P(ContractionsTest, EinsumIsTheSumOfProducts) {
  manual_seed_all(5);
  Statements statements(20);
  const std::array dtypes{f64, f32, i64, i32};
  for (int n = 0; n < 400; ++n) {
    const Statement statement = statements.next();
    const DType dtype = dtypes[static_cast<std::size_t>(n) % dtypes.size()];
    SCOPED_TRACE(::testing::Message() << n << ": " << statement.equation << " of " << dtype);
    std::vector<Tensor> operands;
    for (const Shape& shape : statement.shapes) {
      Tensor operand = whole_numbers(shape, dtype);
      if (n % 3 == 0 && operand.dim() > 1) {  // another layout
        operand = operand.transpose(0, -1).contiguous().transpose(0, -1);
      }
      operands.push_back(operand);
    }
    const Oracle oracle(statement.labels, operands, statement.output);
    const Tensor result = einsum(statement.equation, operands);
    EXPECT_EQ(result.dtype(), dtype);
    ASSERT_EQ(result.sizes(), oracle.shape());
    EXPECT_EQ(result.to_vector<double>(), oracle.result());
  }
}

TEST_P(ContractionsTest, EinsumOfOneOperandIsAView) {
  const Tensor square = on(arange(9, f32)).view({3, 3});
  EXPECT_TRUE(einsum("ij->ji", square).is_view_of(square));
  EXPECT_EQ(einsum("ij->ji", square).strides(), square.t().strides());
  EXPECT_TRUE(einsum("ii->i", square).is_view_of(square));
  EXPECT_EQ(einsum("ii", square).item<float>(), 12);
  EXPECT_EQ(einsum("", on(tensor(2.5))).item<float>(), 2.5f);
  const Tensor flags = on(tensor({true, false}));
  EXPECT_THAT(einsum("i->i", flags).to_vector<bool>(), ElementsAre(true, false));
}

TEST_P(ContractionsTest, EinsumAcceptsSeparateOperands) {
  EXPECT_TRUE(einsum("ij,jk", a_, b_).equal(mm(a_, b_)));
  EXPECT_TRUE(einsum("ij,jk->ki", std::array{a_, b_}).equal(mm(a_, b_).t()));
  EXPECT_TRUE(einsum("...i,...j", a_, v_).equal(a_.unsqueeze(2) * v_));
  const Tensor half = a_.to(f16);
  EXPECT_EQ(einsum("ij,kj", half, half).dtype(), f16);
}

TEST_P(ContractionsTest, EinsumRejectsMalformedEquations) {
  const auto refuses = [&](std::string_view equation, const std::vector<Tensor>& operands,
                           const std::string& text) {
    SCOPED_TRACE(equation);
    EXPECT_ERROR(einsum(equation, operands), InvalidArgument, text);
  };
  refuses("i->ii", {v_}, "output subscript i appears more than once in the output");
  refuses("ij->ik", {a_}, "output subscript k does not appear in the equation for any input");
  refuses("ij,1", {a_, b_}, "invalid subscript given at index 3 in the equation string");
  refuses("ij->i->j", {a_}, "invalid subscript given at index 5");
  refuses("ij->i,j", {a_}, "invalid subscript given at index 5");
  refuses("ij->j-", {a_}, "invalid subscript given at index 5");
  refuses("ij>j", {a_}, "invalid subscript given at index 2");
  refuses("ij,", {a_}, "fewer operands were provided than specified in the equation");
  refuses("ij", {a_, b_}, "more operands were provided than specified in the equation");
  refuses("..i", {a_}, "found '.' for operand 0 that is not part of any ellipsis");
  refuses("i....", {a_}, "found '.' for operand 0 for which an ellipsis was already found");
  refuses("ij->...i...", {a_}, "for which an ellipsis was already found");
  refuses("", {}, "must provide at least one operand");
  EXPECT_ERROR(einsum("ij", v_), ShapeError,
               "the number of subscripts in the equation (2) does not match the number of "
               "dimensions (1) for operand 0 and no ellipsis was given");
  EXPECT_ERROR(einsum("...ij", v_), ShapeError, "is more than the number of dimensions (1)");
  EXPECT_ERROR(einsum("ij,jk", a_, a_), ShapeError,
               "subscript j has size 2 for operand 1 which does not broadcast with previously seen "
               "size 3");
  EXPECT_ERROR(einsum("i...,i...->...", a_, on(zeros({2, 3, 4}))), ShapeError,
               "a dimension of the ellipsis has size 4 for operand 1");
  EXPECT_ERROR(einsum("ii->i", a_), ShapeError,
               "subscript i is repeated for operand 0 but the sizes don't match, 3 != 2");
  EXPECT_ERROR(einsum("i,i", v_, v_.to(f64)), DTypeError, "expected operands of one dtype");
  EXPECT_ERROR(einsum("i,i", v_ > 0, v_ > 0), DTypeError, "expected operands of one dtype");
  EXPECT_ERROR(einsum("i", Tensor()), InvalidArgument, "einsum: expected a defined tensor");
}

TEST_P(ContractionsTest, TensordotContractsPairsOfDims) {
  manual_seed_all(6);
  for (const DType dtype : {f32, f64, i64, i16}) {
    SCOPED_TRACE(::testing::Message() << dtype);
    const Tensor x = whole_numbers({2, 3, 4}, dtype);
    const Tensor y = whole_numbers({4, 3, 5}, dtype);
    EXPECT_TRUE(tensordot(x, y, Dims{2, 1}, Dims{0, 1}).equal(einsum("abc,cbd->ad", x, y)));
    EXPECT_TRUE(tensordot(x, y, Dims{-1}, Dims{0}).equal(einsum("abc,cde->abde", x, y)));
    EXPECT_TRUE(tensordot(x, y, Dims{}, Dims{}).equal(einsum("abc,def->abcdef", x, y)));
    EXPECT_TRUE(tensordot(x, y, 1).equal(einsum("abc,cde", x, y)));
    EXPECT_TRUE(tensordot(x, x, 0).equal(einsum("abc,def", x, x)));
    EXPECT_TRUE(
        tensordot(x, x.permute({1, 2, 0})).equal(einsum("abc,bcd", x, x.permute({1, 2, 0}))));
    EXPECT_EQ(tensordot(x, y, 1).dtype(), dtype);
  }
  EXPECT_THAT(tensordot(a_, on(ones({1, 2})), 1).view({4}).to_vector<float>(),
              ElementsAre(3, 3, 12, 12));
  EXPECT_ERROR(tensordot(a_, b_, Dims{1}, Dims{0, 1}), InvalidArgument,
               "both dimension lists should have same length");
  EXPECT_ERROR(tensordot(a_, b_, Dims{1, 1}, Dims{0, 1}), InvalidArgument, "multiple times");
  EXPECT_ERROR(tensordot(a_, b_, 2), ShapeError,
               "contracted dimensions need to match, but first has size 2 in dim 0 and second has "
               "size 3 in dim 0");
  EXPECT_ERROR(tensordot(a_, b_, 5), InvalidArgument, "but got dims=5");
  EXPECT_ERROR(tensordot(a_, b_, -1), InvalidArgument, "but got dims=-1");
  EXPECT_ERROR(tensordot(a_, b_, Dims{2}, Dims{0}), IndexError, "tensordot: Dimension out of");
  EXPECT_ERROR(tensordot(a_, b_.to(f64), 1), DTypeError, "tensordot: expected both tensors");
}

TEST_P(ContractionsTest, InnerContractsTheLastDims) {
  EXPECT_TRUE(inner(a_, a_).equal(mm(a_, a_.t())));
  EXPECT_THAT(inner(a_, v_).to_vector<float>(), ElementsAre(5, 14));
  EXPECT_EQ(inner(v_, v_).item<float>(), 5);
  EXPECT_EQ(vdot(v_, v_).item<float>(), 5);
  EXPECT_THAT(inner(v_, on(tensor(2.0))).to_vector<float>(), ElementsAre(0, 2, 4));
  EXPECT_THAT(inner(a_.to(i64), v_.to(i64)).to_vector<int>(), ElementsAre(5, 14));
  EXPECT_EQ(inner(on(zeros({2, 0})), on(zeros({3, 0}))).sizes(), (Shape{2, 3}));
  EXPECT_ERROR(inner(a_, b_), ShapeError,
               "inner() the last dimension must match on both input tensors but got shapes [2, 3] "
               "and [3, 4]");
  EXPECT_ERROR(vdot(a_, v_), ShapeError, "1D tensors expected");
}

TEST_P(ContractionsTest, KronRepeatsTheSecondTensor) {
  const Tensor product = kron(on(tensor({1, 2})), on(tensor({1, 10})));
  EXPECT_THAT(product.to_vector<int>(), ElementsAre(1, 10, 2, 20));
  const Tensor matrix = kron(a_, v_);
  ASSERT_EQ(matrix.sizes(), (Shape{2, 9}));
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 9; ++j) {
      EXPECT_EQ(matrix.index({i, j}).item<int>(), (3 * i + j / 3) * (j % 3));
    }
  }
  EXPECT_EQ(kron(on(tensor(3)), a_).sizes(), a_.sizes());
  EXPECT_EQ(kron(a_.to(i64), v_).dtype(), f32);
  EXPECT_EQ(kron(on(ones({2, 3, 4, 5})), on(ones({2, 1, 1, 2}))).sizes(), (Shape{4, 3, 4, 10}));
  EXPECT_ERROR(kron(on(ones({1, 1, 1, 1, 1})), v_), ShapeError,
               "kron: expected tensors of at most");
}

TEST_P(ContractionsTest, AddrAddsAnOuterProduct) {
  const Tensor u = on(tensor({1.0, 2.0}));
  EXPECT_TRUE(addr(a_, u, v_).equal(a_ + outer(u, v_)));
  EXPECT_TRUE(addr(on(tensor(1.0)), u, v_, 0.5, 2).equal(0.5 + 2 * outer(u, v_)));
  EXPECT_TRUE(addr(on(tensor(NAN)), u, v_, 0).equal(outer(u, v_)));
  EXPECT_TRUE(addr(a_.to(i64), u.to(i64), v_.to(i64), 2, 3)
                  .equal(2 * a_.to(i64) + 3 * outer(u.to(i64), v_.to(i64))));
  EXPECT_EQ(addr(a_.to(f16), u, v_).dtype(), f32);
  Tensor own = a_.clone();
  addr_out(own, own, u, v_, 2);
  EXPECT_TRUE(own.equal(2 * a_ + outer(u, v_)));
  EXPECT_ERROR(addr(a_, v_, v_), ShapeError,
               "addr: The expanded size of the tensor (3) must match");
  EXPECT_ERROR(addr(a_, a_, v_), ShapeError, "addr: Expected 1-D argument vec1 and vec2");
  EXPECT_ERROR(addr(a_.to(i64), u.to(i64), v_.to(i64), 1, 0.5), DTypeError, "addr: For integral");
  Tensor small = on(zeros({2, 2}));
  EXPECT_ERROR(addr_out(small, a_, u, v_), ShapeError, "addr: expected an output of shape [2, 3]");
}

TEST_P(ContractionsTest, ChainMatmulMultipliesAll) {
  manual_seed_all(8);
  std::vector<Tensor> matrices;
  const std::vector<std::int64_t> sizes{10, 2, 30, 1, 4, 7};
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    matrices.push_back(whole_numbers({sizes[i], sizes[i + 1]}, f64));
  }
  Tensor expected = matrices[0];
  for (std::size_t i = 1; i < matrices.size(); ++i) expected = mm(expected, matrices[i]);
  EXPECT_TRUE(chain_matmul(matrices).equal(expected));
  // The order of the fewest multiplications shows in the rounding.
  const Tensor tall = on(randn({40, 2}));
  const Tensor flat = on(randn({2, 50}));
  const Tensor column = on(randn({50, 1}));
  ASSERT_FALSE(mm(mm(tall, flat), column).equal(mm(tall, mm(flat, column))));
  EXPECT_TRUE(chain_matmul({tall, flat, column}).equal(mm(tall, mm(flat, column))));
  EXPECT_TRUE(
      chain_matmul({column.t(), flat.t(), tall.t()}).equal(mm(mm(column.t(), flat.t()), tall.t())));
  EXPECT_TRUE(chain_matmul({a_}).equal(a_));
  EXPECT_FALSE(chain_matmul({a_}).is_view_of(a_));
  EXPECT_ERROR(chain_matmul(std::vector<Tensor>{}), InvalidArgument, "at least one matrix");
  EXPECT_ERROR(chain_matmul({a_, v_}), ShapeError, "chain_matmul: Tensor dimension is 1");
  EXPECT_ERROR(chain_matmul({a_, a_}), ShapeError, "cannot be multiplied (2x3 and 2x3)");
  EXPECT_ERROR(chain_matmul({a_, b_.to(f64)}), DTypeError, "matrices of one floating type");
}

class Tf32Test : public testing::DeviceTest {
 protected:
  void TearDown() override { set_allow_tf32(false); }
};

TEST_F(Tf32Test, OnlyThePermissionChangesProducts) {
  EXPECT_FALSE(allow_tf32());
  const Tensor a = rand({256, 256}, {.device = "cuda:0"});
  const Tensor exact = mm(a.to(f64), a.to(f64)).to(f32);
  const Tensor before = mm(a, a);
  EXPECT_TRUE(before.allclose(exact, 1e-5));
  set_allow_tf32(true);
  EXPECT_TRUE(allow_tf32());
  const Tensor rounded = mm(a, a);
  EXPECT_TRUE(rounded.allclose(exact, 4e-3));
  EXPECT_TRUE(mm(a.to(f64), a.to(f64)).to(f32).equal(exact));
  set_allow_tf32(false);
  EXPECT_TRUE(mm(a, a).equal(before));
}

}  // namespace
}  // namespace gantry

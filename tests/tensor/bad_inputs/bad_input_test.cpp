// Calls of every public function with bad arguments. Asserts the class and text of the error, and
// that neither the operands nor the allocator have changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/memory/stats.hpp>

#include "tests/tensor/bad_inputs/bad_inputs.hpp"
#include "tests/tensor/raw_tensor.hpp"
#include "tests/tensor/refusal.hpp"

namespace gantry {
namespace {

using testing::all_places;
using testing::BadInput;
using testing::Operands;

class BadInputTest : public ::testing::TestWithParam<BadInput> {};

std::size_t live_bytes(Device place) { return place.is_cpu() ? 0 : memory::allocated(place); }

TEST_P(BadInputTest, ThrowsAndChangesNothing) {
  const BadInput& row = GetParam();
  for (const Device place : all_places()) {
    if (place.is_cuda() && place.index > 0) continue;
    if (row.needs_devices > device_count()) continue;
    if (row.needs_devices > 0 && place.is_cpu()) continue;
    SCOPED_TRACE(place);
    Operands operands(place);
    const std::vector<Tensor> watched = operands.all();
    std::vector<std::vector<double>> before;
    for (const Tensor& tensor : watched) before.push_back(testing::elements(tensor));
    const std::size_t bytes = live_bytes(place);
    const auto [kind, text, device] = testing::refusal_of([&] { row.call(operands); });
    EXPECT_EQ(kind, row.kind);
    EXPECT_THAT(text, ::testing::HasSubstr(row.text));
    EXPECT_FALSE(place.is_cuda() && row.names_device() && device.empty()) << text;
    EXPECT_EQ(live_bytes(place), bytes);
    for (std::size_t i = 0; i < watched.size(); ++i) {
      EXPECT_EQ(testing::elements(watched[i]), before[i]) << "operand " << i;
    }
  }
}

std::vector<BadInput> all_rows() {
  std::vector<BadInput> rows = testing::bad_factory_inputs();
  for (BadInput& row : rows) row.without_tensors = true;
  for (const auto& part :
       {testing::bad_view_inputs(), testing::bad_copy_inputs(), testing::bad_elementwise_inputs(),
        testing::bad_math_inputs(), testing::bad_index_inputs(), testing::bad_sorting_inputs(),
        testing::bad_function_inputs()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, BadInputTest, ::testing::ValuesIn(all_rows()),
                         [](const auto& info) {
                           return std::to_string(info.index) + "_" + info.param.function;
                         });

}  // namespace
}  // namespace gantry

// What is said of a choice of the user that an operation cannot take.
#pragma once

#include <string_view>

namespace gantry {

// Warns, once in this process for each choice and operation: "GANTRY_COLL_ALGO=nccl: comm::scatter
// goes by p2p: <why>". `source` is the variable, `value` what it says.
void tell_ignored_choice(std::string_view source, std::string_view value,
                         std::string_view operation, std::string_view instead,
                         std::string_view why) noexcept;

// GANTRY_COLL_ALGO as an operation of comm::* takes it.
enum class CommChoice { automatic, p2p, nccl };

// Of another algorithm, which these operations do not have, it says so. Throws: InvalidArgument for
// a word that means nothing.
[[nodiscard]] CommChoice comm_choice(std::string_view operation);
// Says that `operation` does without NCCL, if NCCL was asked for.
void tell_without_nccl(std::string_view operation, std::string_view why);
// Why, for what only moves elements between devices of one process.
inline constexpr std::string_view kOwnCopies =
    "inside one process kernels and copy engines of gantry carry it";

}  // namespace gantry

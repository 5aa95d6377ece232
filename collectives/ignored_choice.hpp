// Warnings about algorithm choices of the user that an operation ignores.
#pragma once

#include <string_view>

namespace gantry {

// Warns, once in this process for each choice and operation: "GANTRY_COLL_ALGO=nccl: comm::scatter
// goes by p2p: <why>". `source` is the variable, `value` its value.
void warn_ignored_choice(std::string_view source, std::string_view value,
                         std::string_view operation, std::string_view instead,
                         std::string_view why) noexcept;

// The values of GANTRY_COLL_ALGO for operations of comm::*.
enum class CommChoice { automatic, p2p, nccl };

// Returns the choice for `operation`. Warns about an algorithm that comm::* does not have.
// Throws: InvalidArgument for an unknown value.
[[nodiscard]] CommChoice comm_choice(std::string_view operation);
// Warns that `operation` does not use NCCL, if the user chose NCCL.
void warn_without_nccl(std::string_view operation, std::string_view why);
// The reason for operations that only copy between devices of one process.
inline constexpr std::string_view kOwnCopies =
    "inside one process kernels and copy engines of gantry carry it";

}  // namespace gantry

// Reads pickles that hold data, and nothing else.
#pragma once

#include <string_view>

#include "tools/snapshot/json_document.hpp"

namespace gantry::snapshot {

/// True if `bytes` begin as pickles of protocol 2 to 5 do.
[[nodiscard]] bool is_pickle(std::string_view bytes);

/// Reads a pickle of protocol 2 to 5 made of None, bools, numbers, texts, bytes (as texts), lists,
/// tuples, sets (as lists) and dictionaries. Nothing is ever executed: an opcode that names a class
/// or calls something (GLOBAL, STACK_GLOBAL, REDUCE, BUILD, INST, OBJ, NEWOBJ, EXT, PERSID …) is
/// refused. Throws: InvalidArgument with the opcode and its position; also for text that ends
/// early, a stack that does not fit, or whole numbers over 64 bits.
[[nodiscard]] JsonDocument read_pickle(std::string_view bytes);

}  // namespace gantry::snapshot

// Moved-from readers of files.
#pragma once

#include <vector>

#include <gantry/gantry.hpp>

#include "tests/integration/moved_from.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {

template <>
struct Movable<SafetensorsReader> {
  static constexpr std::string_view kRefusal =
      "SafetensorsReader: expected an open file, but got a moved-from reader";
  static SafetensorsReader make() {
    const TemporaryFolder folder;
    save_safetensors(folder / "t", {{"a", ones({2})}});
    return SafetensorsReader(folder / "t");  // the open file outlives its name
  }
  static bool works(SafetensorsReader& o) { return o.load("a").numel() == 2; }
  static std::vector<MovedFromCall<SafetensorsReader>> calls() {
    return {REFUSES(names, o.names()),    REFUSES(contains, o.contains("a")),
            REFUSES(entry, o.entry("a")), REFUSES(metadata, o.metadata()),
            REFUSES(load, o.load("a")),   REFUSES(load_bytes, o.load_bytes("a"))};
  }
};

}  // namespace gantry::testing

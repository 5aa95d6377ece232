# Joins the shipped tables to one JSON list and writes it as C++: cmake -DSOURCE_DIR=… -DOUTPUT=… -P embed.cmake
set(tables "")
foreach(name h200 simulated)  # the first device's tables also serve unknown ones
  file(READ "${SOURCE_DIR}/${name}.json" text)
  string(STRIP "${text}" text)
  # Lists are joined to one.
  string(REGEX REPLACE "^\\[(.*)\\]$" "\\1" text "${text}")
  if(tables)
    string(APPEND tables ",\n")
  endif()
  string(APPEND tables "${text}")
endforeach()
file(WRITE "${OUTPUT}" "// Made from collectives/selection/tables by embed.cmake.
#include \"collectives/selection/selector.hpp\"

namespace gantry {

const std::string_view kShippedTables = R\"tables([${tables}])tables\";

}  // namespace gantry
")

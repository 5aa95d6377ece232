# Precompiled headers of the layers, the launcher and the tools. The tests have their own: tests/CMakeLists.txt.
#
# A file still includes what it uses: preset release compiles without them (CMAKE_DISABLE_PRECOMPILE_HEADERS).
set(GANTRY_PRECOMPILED
  <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <deque> <functional> <map> <memory> <mutex> <optional> <span> <string>
  <string_view> <thread> <unordered_map> <utility> <vector> <fmt/format.h>)

# What every user of a precompiled header must have in common.
function(_gantry_prepare_precompiled target)
  target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # for ccache
endfunction()

# An object library, since it has the flags of a library: -fPIC.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/precompiled.cpp" CONTENT "")
add_library(gantry_precompiled OBJECT "${PROJECT_BINARY_DIR}/precompiled.cpp")
target_link_libraries(gantry_precompiled PRIVATE gantry_flags Threads::Threads)
target_precompile_headers(gantry_precompiled PRIVATE ${GANTRY_PRECOMPILED})
_gantry_prepare_precompiled(gantry_precompiled)

# gantry_precompile(<library> [OWN])
#
# Gives a library the common precompiled header, or with OWN, which its own flags need, one of its own.
function(gantry_precompile target)
  _gantry_prepare_precompiled(${target})
  if("OWN" IN_LIST ARGN)
    target_precompile_headers(${target} PRIVATE ${GANTRY_PRECOMPILED})
  else()
    target_precompile_headers(${target} REUSE_FROM gantry_precompiled)
  endif()
endfunction()

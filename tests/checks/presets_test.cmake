# Every preset that needs no CUDA toolkit configures, and so do builds with other options.
#
#   cmake -D SOURCE_DIR=… -D WORK_DIR=… -P presets_test.cmake
#
# Nobody builds with a sanitizer each day. A line that only such a build reads may be broken for long.
cmake_minimum_required(VERSION 3.25)

# expect(<name> <status> <text> <arguments of cmake…>): the configuration ends so, and says this.
function(expect name wanted_status text)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE_DIR}" -B "${WORK_DIR}/${name}" -D GANTRY_CUDA=OFF ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " line "${output}")
  if(NOT status EQUAL wanted_status OR NOT line MATCHES "${text}")
    message(SEND_ERROR "${name}: expected ${wanted_status} and '${text}', but got ${status}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
foreach(preset sim asan tsan demo)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" --preset ${preset} -B "${WORK_DIR}/${preset}" -D GANTRY_CUDA=OFF
    WORKING_DIRECTORY "${SOURCE_DIR}" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "preset ${preset} does not configure:\n${output}")
  endif()
endforeach()

expect("static library" 0 "-- tools ON -- tests ON .*Build files have been written" -D BUILD_SHARED_LIBS=OFF)
expect("without tools" 0 "-- tools OFF -- tests OFF -- benchmarks OFF -- examples ON " -D GANTRY_BUILD_TOOLS=OFF)
file(READ "${WORK_DIR}/without tools/build.ninja" rules)
file(READ "${WORK_DIR}/without tools/cmake_install.cmake" installed)
if("${rules}${installed}" MATCHES "build bin/(glaunch|gantry)|gantry_launcher|gantry_command_line|/(tools|launcher)/[^\n]*cmake_install")
  message(SEND_ERROR "without tools: expected no rule for a tool, but got '${CMAKE_MATCH_0}'")
endif()
foreach(part TESTS BENCHMARKS)
  expect("${part} without tools" 1 "GANTRY_BUILD_TOOLS=OFF: GANTRY_BUILD_${part}=OFF expected" -D GANTRY_BUILD_TOOLS=OFF -D GANTRY_BUILD_${part}=ON)
endforeach()

# A ccache that does not start, and one that does not compile.
foreach(line "exit 127" "test \"$1\" = --version")
  file(WRITE "${WORK_DIR}/ccache" "#!/bin/sh\n${line}\n")
  file(CHMOD "${WORK_DIR}/ccache" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  expect("broken ccache" 0 "/ccache does not work, so gantry is built without it.* ccache none "
    -D "GANTRY_CCACHE=${WORK_DIR}/ccache" -D GANTRY_BUILD_TOOLS=OFF)
endforeach()
file(REMOVE_RECURSE "${WORK_DIR}")

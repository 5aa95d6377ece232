# Every preset that needs no CUDA toolkit configures.
#
#   cmake -D SOURCE_DIR=… -D WORK_DIR=… -P presets_test.cmake
#
# Nobody builds with a sanitizer each day. A line that only such a build reads may be broken for long.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK_DIR}")
foreach(preset sim asan tsan demo)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" --preset ${preset} -B "${WORK_DIR}/${preset}" -D GANTRY_CUDA=OFF
    WORKING_DIRECTORY "${SOURCE_DIR}" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "preset ${preset} does not configure:\n${output}")
  endif()
endforeach()
file(REMOVE_RECURSE "${WORK_DIR}")

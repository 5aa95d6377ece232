# Builds consumer/ against gantry's install tree (INSTALL=ON) or build tree, runs it and checks what it prints.
cmake_minimum_required(VERSION 3.25)

function(run_step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
  set(step_output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
if(INSTALL)
  run_step("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/prefix")
  file(GLOB private_headers "${WORK_DIR}/prefix/include/*")
  if(NOT private_headers STREQUAL "${WORK_DIR}/prefix/include/gantry")
    message(FATAL_ERROR "only include/gantry must be installed, but got ${private_headers}")
  endif()
  set(where "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix")
else()
  set(where "-Dgantry_DIR=${BUILD_DIR}")
endif()

set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
run_step("${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${CONSUMER_DIR}" -B "${WORK_DIR}/build"
  "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_CXX_FLAGS=${flags}"
  "-DEXPECTED_VERSION=${VERSION}" "${where}")
run_step("${CMAKE_COMMAND}" --build "${WORK_DIR}/build")
run_step("${WORK_DIR}/build/consumer")

set(expected "2 devices, cuda:0 holds 10, cuda:1 holds 10\n")
if(NOT step_output STREQUAL expected)
  message(FATAL_ERROR "the program should print '${expected}', but printed '${step_output}'")
endif()

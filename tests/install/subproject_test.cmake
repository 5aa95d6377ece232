# Builds subproject/, which takes gantry's sources as a static library. Then installs gantry from there, and builds consumer/ against that.
cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/run_step.cmake")

# The flags that a source below <folder> is compiled with.
function(compile_command result ending)
  file(READ "${WORK_DIR}/build/compile_commands.json" commands)
  string(JSON last LENGTH "${commands}")
  math(EXPR last "${last} - 1")
  foreach(at RANGE ${last})
    string(JSON file GET "${commands}" ${at} file)
    if(file MATCHES "${ending}$")
      string(JSON command GET "${commands}" ${at} command)
      set(${result} "${command}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "no source ${ending} is compiled")
endfunction()

# A program with a tensor on two devices.
function(check_program program)
  run_step("${program}")
  set(expected "2 devices, cuda:0 holds 10, cuda:1 holds 10\n")
  if(NOT step_output STREQUAL expected)
    message(FATAL_ERROR "${program} should print '${expected}', but printed '${step_output}'")
  endif()
endfunction()

# An MPI job, for which the program loads libgantry_mpi.so.
function(check_mpi_job program)
  if(MPIEXEC)
    run_step("${CMAKE_COMMAND}" -E env GANTRY_LOG=debug OMPI_MCA_rmaps_base_oversubscribe=1 "${MPIEXEC}" -n 2 "${program}")
    if(NOT step_output MATCHES "2 ranks, sum 3\n" OR NOT step_output MATCHES "loaded [^\n]*libgantry_mpi")
      message(FATAL_ERROR "the job should load libgantry_mpi.so and print '2 ranks, sum 3', but printed '${step_output}'")
    endif()
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
# Optimization takes most of the time of a build, and the test asks for none of it.
set(release_flags "-O0")
set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${CMAKE_CURRENT_LIST_DIR}/subproject" -B "${WORK_DIR}/build"
  "-DGANTRY_SOURCE_DIR=${SOURCE_DIR}" "-DCONSUMER_DIR=${CMAKE_CURRENT_LIST_DIR}/consumer"
  "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_CXX_FLAGS_RELEASE=${release_flags}"
  -DGANTRY_CUDA=OFF "-DGANTRY_MPI=${MPI}")
run_step(${configure})
run_step(${configure} -DIS_STATIC=ON)
if(NOT step_output MATCHES "CMAKE_BUILD_TYPE is empty, so gantry alone is compiled with the flags of Release\n")
  message(FATAL_ERROR "the configuration should say with which flags gantry is compiled, but said:\n${step_output}")
endif()
compile_command(of_gantry "/core/error.cpp")
compile_command(of_program "/main.cpp")
if(NOT of_gantry MATCHES " ${release_flags} " OR of_program MATCHES " ${release_flags} ")
  message(FATAL_ERROR "gantry alone should be compiled with ${release_flags}, but got\n${of_gantry}\n${of_program}")
endif()

if(NOT DEFINED ENV{CMAKE_BUILD_PARALLEL_LEVEL})
  run_step("${SOURCE_DIR}/scripts/jobs")
  string(STRIP "${step_output}" jobs)
  set(ENV{CMAKE_BUILD_PARALLEL_LEVEL} "${jobs}")
endif()
run_step("${CMAKE_COMMAND}" --build "${WORK_DIR}/build")
check_program("${WORK_DIR}/build/embedded")
check_mpi_job("${WORK_DIR}/build/ranks")

run_step("${CMAKE_COMMAND}" --install "${WORK_DIR}/build" --prefix "${WORK_DIR}/prefix")
file(GLOB installed RELATIVE "${WORK_DIR}/prefix" "${WORK_DIR}/prefix/*" "${WORK_DIR}/prefix/share/*")
if(NOT installed STREQUAL "include;${LIBRARY_TOP_FOLDER};share;share/doc")
  message(FATAL_ERROR "gantry as a subproject should install its library and no programs, but installed '${installed}'")
endif()
run_step("${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${WORK_DIR}/consumer"
  "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DEXPECTED_VERSION=${VERSION}" "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix")
run_step("${CMAKE_COMMAND}" --build "${WORK_DIR}/consumer")
check_program("${WORK_DIR}/consumer/consumer")
check_mpi_job("${WORK_DIR}/consumer/ranks")

file(REMOVE_RECURSE "${WORK_DIR}")

# Test registration. Test programs go to one folder, so that a test finds the helpers it starts.
set(GANTRY_TEST_BIN_DIR "${CMAKE_BINARY_DIR}/tests/bin")

set(GANTRY_TEST_ENVIRONMENT
  "ASAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1"
  "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1"
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0"
  "TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp"
  "GANTRY_JIT_CACHE="
  "OMPI_ALLOW_RUN_AS_ROOT=1" "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
if(GANTRY_SANITIZE)
  set(GANTRY_TEST_TIMEOUT_FACTOR 4)
else()
  set(GANTRY_TEST_TIMEOUT_FACTOR 1)
endif()

# Quick tests of work on streams, of memory and of collectives: label fast. scripts/schedules runs them under many schedules.
set(GANTRY_FAST_TESTS
  sim_capture sim_device sim_event sim_memory sim_stream
  batched_copy event graph stream stream_clock_capture stream_clock_race stream_guard
  allocator allocator_faults allocator_oracle async_pool buffer caching_allocator capture_pools foreign_streams magazines mem_pool native_heap
  native_recovery memory_pressure pinned_allocator pinned_heap transfer_wait vmm_heap vmm_recovery
  captured_random graphed overlap peerless_copy random storage tensor tensor_faults
  comm comm_broadcast comm_capture comm_chunks comm_closed_memory graph_overlap rank_ordered registered_copies)

# What a test or helper links: libgantry, as a user does, or with INTERNAL the archive of a layer and those on its left. The layer is `layer`
# or the folder's name; all of them in any other folder. From the layer with the kernels on, gantry_internal has them all, unless `libs` has a
# library of gantry's that links archives.
function(_gantry_tested result is_internal layer libs)
  if(NOT layer)
    get_filename_component(layer "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  endif()
  if(NOT layer IN_LIST GANTRY_LAYERS)
    set(layer collectives)
  endif()
  list(FIND GANTRY_LAYERS ${layer} at)
  list(FIND GANTRY_LAYERS kernels with_kernels)
  if(NOT is_internal)
    set(${result} gantry::gantry PARENT_SCOPE)
  elseif(at LESS with_kernels OR libs MATCHES "gantry_")
    set(${result} gantry_${layer} PARENT_SCOPE)
  else()
    set(${result} gantry_internal PARENT_SCOPE)
  endif()
endfunction()

# gantry_add_program(<name> [INTERNAL] SOURCES … [LIBS …] [LAYER layer])
#
# A helper executable that tests start (see PROGRAMS below); it is no test itself. The arguments are as for gantry_add_test.
function(gantry_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INTERNAL" "LAYER" "SOURCES;LIBS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "gantry_add_program(${name}): SOURCES expected, but got '${ARGN}'")
  endif()
  _gantry_tested(tested "${arg_INTERNAL}" "${arg_LAYER}" "${arg_LIBS}")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_LIBS} ${tested} gantry_flags Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${GANTRY_TEST_BIN_DIR}")
endfunction()

# gantry_add_test([<folder>/]<noun> [INTERNAL] [SOURCES …] [LIBS …] [PROGRAMS …] [ENVIRONMENT VAR=value…] [SIM_ONLY] [ALONE] [DEVICES n]
#                 [TIMEOUT seconds] [LAYER layer])
#
# Builds <noun>_test from <noun>_test.cpp in that folder below the current one (or from SOURCES) and registers it as
#   <noun>.sim   label sim, on DEVICES (4) simulated devices; label fast, too, if it is in GANTRY_FAST_TESTS
#   <noun>.cuda  label gpu, on the visible GPUs; skipped as a whole where there is none; not with SIM_ONLY or without CUDA
# GANTRY_SANITIZER=throw in front of ctest runs them under the stream sanitizer; a free that races fails the test, though it only warns.
# GPU tests run beside each other, one for every 8 of ctest's jobs. ALONE: not this one, which counts the devices' free memory.
# Tests in tests/core and tests/job have the first entry only.
# INTERNAL: the test uses names that libgantry does not export. It links the archives of LAYER, which is the folder's name unless given.
# LIBS: what is linked besides.
# PROGRAMS are targets of gantry_add_program or of the project; the test finds them in GANTRY_TEST_PROGRAM_DIR.
function(gantry_add_test path)
  get_filename_component(noun "${path}" NAME)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INTERNAL;SIM_ONLY;ALONE" "DEVICES;TIMEOUT;LAYER" "SOURCES;LIBS;PROGRAMS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gantry_add_test(${noun}): unknown arguments '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${path}_test.cpp)
  endif()
  if(NOT arg_DEVICES)
    set(arg_DEVICES 4)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${GANTRY_TEST_TIMEOUT_FACTOR}")

  _gantry_tested(tested "${arg_INTERNAL}" "${arg_LAYER}" "${arg_LIBS}")
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set(main gantry_test_main)
  if(folder MATCHES "^(core|job)$")  # which know no devices
    set(main GTest::gtest_main)
    set(arg_SIM_ONLY ON)
  endif()

  set(target ${noun}_test)
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${main} gantry_test_support ${arg_LIBS} ${tested})
  target_compile_definitions(${target} PRIVATE GANTRY_TEST_PROGRAM_DIR="${GANTRY_TEST_BIN_DIR}")
  target_precompile_headers(${target} REUSE_FROM gantry_test_pch)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${GANTRY_TEST_BIN_DIR}")
  if(arg_PROGRAMS)
    add_dependencies(${target} ${arg_PROGRAMS})
  endif()

  set(labels sim)
  if(noun IN_LIST GANTRY_FAST_TESTS)
    list(APPEND labels fast)
  endif()
  add_test(NAME ${noun}.sim COMMAND ${target})
  set_tests_properties(${noun}.sim PROPERTIES
    LABELS "${labels}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77 FAIL_REGULAR_EXPRESSION "free: expected an order after"
    ENVIRONMENT "GANTRY_SIM_DEVICES=${arg_DEVICES};${GANTRY_TEST_ENVIRONMENT};${arg_ENVIRONMENT}")
  if(GANTRY_WITH_CUDA AND NOT arg_SIM_ONLY)
    add_test(NAME ${noun}.cuda COMMAND ${target})
    set_tests_properties(${noun}.cuda PROPERTIES
      LABELS gpu TIMEOUT ${timeout} SKIP_RETURN_CODE 77 FAIL_REGULAR_EXPRESSION "free: expected an order after" PROCESSORS 8 RUN_SERIAL "${arg_ALONE}"
      ENVIRONMENT "GANTRY_TEST_PLATFORM=cuda;${GANTRY_TEST_ENVIRONMENT};${arg_ENVIRONMENT}"
      ENVIRONMENT_MODIFICATION "GANTRY_SIM_DEVICES=unset:")
  endif()
endfunction()

# Headers of CCCL for a test. They are in the toolkit; CUDA 13 has them in a folder of their own.
function(gantry_test_uses_cccl target)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
    if(IS_DIRECTORY "${folder}/cccl")
      target_include_directories(${target} SYSTEM BEFORE PRIVATE "${folder}/cccl")
    endif()
  endforeach()
endfunction()

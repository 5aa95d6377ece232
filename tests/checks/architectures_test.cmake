# What GANTRY_CUDA_ARCHITECTURES becomes, with programs that play nvcc and nvidia-smi.
#
#   cmake -D SOURCE_DIR=… -D WORK_DIR=… -P architectures_test.cmake
cmake_minimum_required(VERSION 3.25)
include("${SOURCE_DIR}/cmake/GantryArchitectures.cmake")

function(write_program path output status)
  file(WRITE "${path}" "#!/bin/sh\nprintf '${output}'\nexit ${status}\n")
  file(CHMOD "${path}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

# expect(<value> <GPUs that nvidia-smi shows, or none> <wanted>)
function(expect value gpus wanted)
  set(nvidia_smi "")
  if(NOT gpus STREQUAL "none")
    set(nvidia_smi "${WORK_DIR}/nvidia-smi")
    write_program("${nvidia_smi}" "${gpus}" 0)
  endif()
  gantry_resolve_architectures(got "${value}" "${WORK_DIR}/nvcc" "${nvidia_smi}")
  if(NOT got STREQUAL wanted)
    message(SEND_ERROR "${value} with GPUs '${gpus}': expected '${wanted}', but got '${got}'")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
# In nvcc's own order, which is not the order of the numbers.
write_program("${WORK_DIR}/nvcc" "compute_75\\ncompute_80\\ncompute_86\\ncompute_90\\ncompute_110\\ncompute_100\\ncompute_120\\n" 0)
if(CASE STREQUAL "native without a GPU")
  expect(native none "")
elseif(CASE STREQUAL "no list")
  write_program("${WORK_DIR}/nvcc" "" 1)
  expect(all none "")
endif()
if(CASE)
  return()
endif()

set(all_major "75-real;80-real;90-real;100-real;110-real;120")
expect(auto none "${all_major}")
expect(auto "" "${all_major}")
expect(auto "9.0\\n9.0\\n" "90")
expect(auto "10.0\\n8.0\\n" "80;100")
expect(auto:90 none "90")
expect("auto:80-real;90" none "80-real;90")
expect(auto:90 "8.0\\n" "80")
expect(native "8.9\\n" "86-real")       # newer than what nvcc knows of this major version
expect(native "13.0\\n" "120-virtual")  # newer than everything that nvcc knows
expect(auto "6.1\\n9.0\\n" "90")        # the older one gets a warning
expect(all-major "9.0\\n" "${all_major}")
expect(all none "75-real;80-real;86-real;90-real;100-real;110-real;120")
expect("80-real;90" "10.0\\n" "80-real;90")

write_program("${WORK_DIR}/nvidia-smi" "NVIDIA-SMI has failed\\n" 9)
gantry_resolve_architectures(got auto:90 "${WORK_DIR}/nvcc" "${WORK_DIR}/nvidia-smi")
if(NOT got STREQUAL "90")
  message(SEND_ERROR "nvidia-smi without a driver: expected '90', but got '${got}'")
endif()

foreach(case_and_text "native without a GPU|native needs a GPU" "no list|needs an nvcc that lists")
  string(REPLACE "|" ";" pair "${case_and_text}")
  list(GET pair 0 case)
  list(GET pair 1 text)
  execute_process(COMMAND "${CMAKE_COMMAND}" -D "SOURCE_DIR=${SOURCE_DIR}" -D "WORK_DIR=${WORK_DIR}/case" -D "CASE=${case}"
    -P "${CMAKE_CURRENT_LIST_FILE}" RESULT_VARIABLE status ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(status EQUAL 0 OR NOT output MATCHES "GANTRY_CUDA_ARCHITECTURES: .*${text}")
    message(SEND_ERROR "${case}: expected an error with '${text}', but got ${status}: ${output}")
  endif()
endforeach()

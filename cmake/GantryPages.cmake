# gantry_install_pages(<program>)
#
# Makes the manual page and the completion scripts of a program from its option tables, as part of the build, and installs them.
include(GNUInstallDirs)
function(gantry_install_pages program)
  if(CMAKE_CROSSCOMPILING)  # the program cannot run here
    return()
  endif()
  set(folder "${PROJECT_BINARY_DIR}/pages")
  set(pages "")
  foreach(entry IN ITEMS "man|man/man1/${program}.1" "bash|bash-completion/completions/${program}" "zsh|zsh/site-functions/_${program}")
    string(REPLACE "|" ";" entry "${entry}")
    list(GET entry 0 kind)
    list(GET entry 1 path)
    cmake_path(GET path PARENT_PATH parent)
    add_custom_command(OUTPUT "${folder}/${path}"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}/${parent}"
      COMMAND ${program} --generate ${kind} > "${folder}/${path}"
      DEPENDS ${program} VERBATIM)
    list(APPEND pages "${folder}/${path}")
    if(kind STREQUAL "man")
      install(FILES "${folder}/${path}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT tools)
    else()
      install(FILES "${folder}/${path}" DESTINATION "${CMAKE_INSTALL_DATADIR}/${parent}" COMPONENT tools)
    endif()
  endforeach()
  add_custom_target(${program}-pages ALL DEPENDS ${pages})
endfunction()

# Joins the viewer's sources to one page and writes it as C++: cmake -DSOURCE_DIR=… -DOUTPUT=… -P embed.cmake
set(script "")
foreach(name format data model surface overview timeline segment_map details main)
  file(READ "${SOURCE_DIR}/${name}.js" text)
  string(APPEND script "${text}\n")
endforeach()
file(READ "${SOURCE_DIR}/style.css" style)
file(READ "${SOURCE_DIR}/page.html" page)
string(REPLACE "/*STYLE*/" "${style}" page "${page}")
string(REPLACE "/*SCRIPT*/" "${script}" page "${page}")

set(marker "<!--SNAPSHOT-->")
string(FIND "${page}" "${marker}" at)
if(at EQUAL -1 OR page MATCHES "\\)gantry_page\"")
  message(FATAL_ERROR "the viewer's page cannot be embedded")
endif()
string(LENGTH "${marker}" length)
math(EXPR after "${at} + ${length}")
string(SUBSTRING "${page}" 0 ${at} head)
string(SUBSTRING "${page}" ${after} -1 tail)

file(WRITE "${OUTPUT}" "// Made from tools/snapshot/viewer by embed.cmake.
#include \"tools/snapshot/page_template.hpp\"

namespace gantry::snapshot {

const std::string_view kPageHead = R\"gantry_page(${head})gantry_page\";
const std::string_view kPageTail = R\"gantry_page(${tail})gantry_page\";

}  // namespace gantry::snapshot
")

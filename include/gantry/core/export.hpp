#pragma once

#include <gantry/core/macros.hpp>

/// Marks a name that libgantry.so exports. The library hides every other name.
///
/// It precedes the return type of a function, or the name of a class: `class GANTRY_API Stream`.
/// The members of a class are exported with it. The attribute means the same in the library and in
/// a program that includes the header.
#define GANTRY_API __attribute__((visibility("default")))

/// Hides a type inside an exported class: `class GANTRY_LOCAL Impl;`. Nested types are exported
/// with their class otherwise.
#define GANTRY_LOCAL __attribute__((visibility("hidden")))

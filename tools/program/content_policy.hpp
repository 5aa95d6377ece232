// The permissions of a page in a browser.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace gantry {

/// The meta element that lets a page load nothing, and run and apply only the inline scripts and
/// styles of `parts`, which are known by their SHA-256 digests. It is the second fence: texts of
/// users are escaped in the first place. Counted are elements that begin with "<script>" and
/// "<style>"; data in "<script type=…>" is no script.
[[nodiscard]] std::string content_policy(std::initializer_list<std::string_view> parts);

}  // namespace gantry

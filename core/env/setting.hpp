// A variable of the environment that reads, checks and describes itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::env {

/// One environment variable that gantry reads: its name, its values, and its meaning.
///
/// All read the environment anew at each call. An empty value counts as none. In a program with
/// more rights than its caller all are unset.
class Setting {
 public:
  constexpr Setting(const char* name, std::string_view values, std::string_view meaning)
      : name_(name), values_(values), meaning_(meaning) {}
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  [[nodiscard]] const char* name() const { return name_; }
  /// The accepted values for a reader, with the default in parentheses: "off|on (off)".
  [[nodiscard]] std::string_view values() const { return values_; }
  /// One sentence.
  [[nodiscard]] std::string_view meaning() const { return meaning_; }
  /// The value as it was typed; empty if unset.
  [[nodiscard]] std::string text() const;
  /// Throws: InvalidArgument that names the variable, its value and what it expects.
  virtual void check() const = 0;

 protected:
  ~Setting() = default;

 private:
  const char* name_;
  std::string_view values_;
  std::string_view meaning_;
};

/// Any text, which `checks` may refuse.
class TextSetting final : public Setting {
 public:
  using Check = void (*)(const char* name, const std::string& text);

  constexpr TextSetting(const char* name, std::string_view values, std::string_view meaning,
                        Check checks = nullptr)
      : Setting(name, values, meaning), checks_(checks) {}

  void check() const override;

 private:
  Check checks_;
};

/// A whole decimal number in [least, most].
class NumberSetting final : public Setting {
 public:
  constexpr NumberSetting(const char* name, std::int64_t least, std::int64_t most,
                          std::string_view values, std::string_view meaning)
      : Setting(name, values, meaning), least_(least), most_(most) {}

  /// None if unset. Throws: as check().
  [[nodiscard]] std::optional<std::int64_t> get() const;
  void check() const override { static_cast<void>(get()); }
  [[nodiscard]] std::int64_t most() const { return most_; }

 private:
  std::int64_t least_;
  std::int64_t most_;
};

/// A number of bytes, such as 512M: see env::get_bytes().
class BytesSetting final : public Setting {
 public:
  using Setting::Setting;

  /// None if unset. Throws: as check().
  [[nodiscard]] std::optional<std::size_t> get() const;
  void check() const override { static_cast<void>(get()); }
};

/// On or off: see env::get_bool().
class SwitchSetting final : public Setting {
 public:
  constexpr SwitchSetting(const char* name, bool fallback, std::string_view values,
                          std::string_view meaning)
      : Setting(name, values, meaning), fallback_(fallback) {}

  /// Throws: as check().
  [[nodiscard]] bool get() const;
  void check() const override { static_cast<void>(get()); }

 private:
  bool fallback_;
};

/// One of the few words that values() names: "off|warn|error (off)".
class ChoiceSetting final : public Setting {
 public:
  using Setting::Setting;

  /// The word; the one in parentheses if unset. Throws: as check().
  [[nodiscard]] std::string get() const;
  void check() const override { static_cast<void>(get()); }
  [[nodiscard]] std::vector<std::string_view> choices() const;
};

}  // namespace gantry::env

#include "kernels/jit/program.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gantry::kernels::jit {

namespace {

const char* stored_type(DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return "bool";
    case DType::u8:
      return "std::uint8_t";
    case DType::i8:
      return "std::int8_t";
    case DType::i16:
      return "std::int16_t";
    case DType::i32:
      return "std::int32_t";
    case DType::i64:
      return "std::int64_t";
    case DType::f16:
      return "gantry::float16";
    case DType::bf16:
      return "gantry::bfloat16";
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::f8e4m3:
    case DType::f8e5m2:
      break;
  }
  return "";
}

const char* compute_type(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? "float" : stored_type(dtype);
}

// A text that is made line by line.
class Text {
 public:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }
  [[nodiscard]] const std::string& str() const { return text_; }

 private:
  std::string text_;
};

class Generator {
 public:
  Generator(const Signature& signature, const Specialization& types)
      : signature_(signature),
        types_(types),
        outputs_(types.outputs.size()),
        inputs_(types.inputs.size()) {}

  std::string function() {
    text_.line("namespace gantry_jit {{");
    text_.line("static_assert(sizeof(Parameters) == {});", sizeof(Parameters));
    text_.line("using T = {};", compute_type(types_.compute));
    text_.line("struct Results {{");
    for (std::size_t k = 0; k < outputs_; ++k) text_.line("  {} r{}{{}};", result_type(k), k);
    text_.line("}};");
    text_.line("GANTRY_HD inline void compute(const T (&v)[{}], Results& r) {{", inputs_);
    std::string arguments;
    for (std::size_t k = 0; k < inputs_; ++k) arguments += fmt::format("{}v[{}]", k ? ", " : "", k);
    if (signature_.returns) {
      text_.line("  r.r0 = gantry_user::{}<T>({});", signature_.name, arguments);
    } else {
      for (std::size_t k = 0; k < outputs_; ++k) arguments += fmt::format(", r.r{}", k);
      text_.line("  gantry_user::{}<T>({});", signature_.name, arguments);
    }
    text_.line("}}");
    one("GANTRY_HD inline void one(const Parameters& p, const std::int64_t (&at)[{}]) {{");
    return text_.str() + "}  // namespace gantry_jit\n";
  }

  // Rows along the innermost dim: dense ones, which the compiler vectorizes, and any others.
  std::string host() {
    text_ = {};
    const std::size_t count = outputs_ + inputs_;
    text_.line("namespace gantry_jit {{");
    text_.line(
        "inline void dense_row(const Parameters& p, std::int64_t n, "
        "const std::int64_t (&at)[{}]) {{",
        count);
    for (std::size_t k = 0; k < outputs_; ++k) {
      text_.line("  auto* const o{0} = static_cast<{1}*>(p.data[{0}]) + at[{0}];", k,
                 stored_type(types_.outputs[k]));
    }
    for (std::size_t k = 0; k < inputs_; ++k) {
      if (types_.inputs[k].is_number) {
        text_.line("  const T i{} = number<T>(p, {});", k, outputs_ + k);
      } else {
        text_.line(
            "  const auto* const i{0} = static_cast<const typename StoredOf<{1}>::type*>"
            "(p.data[{2}]) + at[{2}];",
            k, input_type(k), outputs_ + k);
      }
    }
    text_.line("  for (std::int64_t x = 0; x < n; ++x) {{");
    text_.line("    T v[{}];", inputs_);
    for (std::size_t k = 0; k < inputs_; ++k) {
      if (types_.inputs[k].is_number) {
        text_.line("    v[{0}] = i{0};", k);
      } else {
        text_.line("    v[{0}] = value_of<T, {1}>(i{0}[x]);", k, input_type(k));
      }
    }
    text_.line("    Results r;\n    compute(v, r);");
    for (std::size_t k = 0; k < outputs_; ++k) {
      text_.line("    o{0}[x] = convert<{1}>(r.r{0});", k, stored_type(types_.outputs[k]));
    }
    text_.line("  }}\n}}\n}}  // namespace gantry_jit");
    text_.line(
        "extern \"C\" __attribute__((visibility(\"default\"))) void {}"
        "(const gantry_jit::Parameters* parameters) {{",
        kHostFunction);
    text_.line("  using namespace gantry_jit;\n  const Parameters& p = *parameters;");
    text_.line("  std::int64_t index[kMaxDims] = {{}};\n  std::int64_t at[{}] = {{}};", count);
    text_.line("  const std::int64_t row = p.sizes[0];\n  bool is_dense = true;");
    for (std::size_t k = 0; k < count; ++k) {
      if (is_memory(k)) text_.line("  is_dense = is_dense && p.strides[0][{}] == 1;", k);
    }
    text_.line("  for (std::int64_t done = 0; done < p.numel; done += row) {{");
    text_.line("    if (is_dense) {{\n      dense_row(p, row, at);\n    }} else {{");
    text_.line("      std::int64_t e[{}];", count);
    text_.line("      for (std::int64_t x = 0; x < row; ++x) {{");
    text_.line("        for (int k = 0; k < {}; ++k) e[k] = at[k] + x * p.strides[0][k];", count);
    text_.line("        one(p, e);\n      }}\n    }}");
    text_.line("    for (int dim = 1; dim < p.ndim; ++dim) {{");
    text_.line("      for (int k = 0; k < {}; ++k) at[k] += p.strides[dim][k];", count);
    text_.line("      if (++index[dim] < p.sizes[dim]) break;");
    text_.line("      for (int k = 0; k < {}; ++k) at[k] -= p.strides[dim][k] * p.sizes[dim];",
               count);
    text_.line("      index[dim] = 0;\n    }}\n  }}\n}}");
    return text_.str();
  }

  std::string cuda() {
    text_ = {};
    const std::size_t count = outputs_ + inputs_;
    kernel(kDenseKernel);
    text_.line("  constexpr int V = {};", pack_size(types_));
    for (std::size_t k = 0; k < inputs_; ++k) {
      if (types_.inputs[k].is_number) {
        text_.line("  const T i{} = number<T>(p, {});", k, outputs_ + k);
      }
    }
    text_.line("  const std::int64_t packs = p.numel / V;");
    text_.line("  for (std::int64_t x = first_index(); x < packs; x += index_step()) {{");
    for (std::size_t k = 0; k < inputs_; ++k) {
      if (types_.inputs[k].is_number) continue;
      text_.line("    const auto i{} = load_pack<{}, V>(p.data[{}], x);", k, input_type(k),
                 outputs_ + k);
    }
    for (std::size_t k = 0; k < outputs_; ++k) {
      text_.line("    Pack<{}, V> o{};", stored_type(types_.outputs[k]), k);
    }
    text_.line("#pragma unroll\n    for (int j = 0; j < V; ++j) {{\n      T v[{}];", inputs_);
    for (std::size_t k = 0; k < inputs_; ++k) {
      if (types_.inputs[k].is_number) {
        text_.line("      v[{0}] = i{0};", k);
      } else {
        text_.line("      v[{0}] = value_of<T, {1}>(i{0}.values[j]);", k, input_type(k));
      }
    }
    text_.line("      Results r;\n      compute(v, r);");
    for (std::size_t k = 0; k < outputs_; ++k) text_.line("      set(o{0}, j, r.r{0});", k);
    text_.line("    }}");
    for (std::size_t k = 0; k < outputs_; ++k)
      text_.line("    store_pack(p.data[{0}], x, o{0});", k);
    text_.line("  }}\n  const std::int64_t x = packs * V + first_index();");
    text_.line(
        "  if (x < p.numel) {{\n    std::int64_t at[{0}];\n"
        "    for (int k = 0; k < {0}; ++k) at[k] = x;\n    one(p, at);\n  }}\n}}",
        count);
    kernel(kStridedKernel);
    text_.line("  const auto n = static_cast<std::uint32_t>(p.numel);");
    text_.line("  for (std::int64_t x = first_index(); x < n; x += index_step()) {{");
    text_.line("    std::int64_t at[{}];", count);
    text_.line("    offsets_of(p, static_cast<std::uint32_t>(x), at);\n    one(p, at);\n  }}\n}}");
    return text_.str();
  }

 private:
  [[nodiscard]] bool is_memory(std::size_t operand) const {
    return operand < outputs_ || !types_.inputs[operand - outputs_].is_number;
  }
  [[nodiscard]] const char* input_type(std::size_t k) const {
    return stored_type(types_.inputs[k].dtype);
  }
  [[nodiscard]] const char* result_type(std::size_t k) const {
    return signature_.outputs[k] == OutputKind::boolean ? "bool" : "T";
  }

  void kernel(const char* name) {
    text_.line(
        "extern \"C\" __global__ void __launch_bounds__(256) {}"
        "(const __grid_constant__ gantry_jit::Parameters p) {{",
        name);
    text_.line("  using namespace gantry_jit;");
  }

  // Element `at[k]` of every operand k.
  void one(fmt::format_string<std::size_t> head) {
    text_.line(head, outputs_ + inputs_);
    text_.line("  T v[{}];", inputs_);
    for (std::size_t k = 0; k < inputs_; ++k) {
      const std::size_t operand = outputs_ + k;
      if (types_.inputs[k].is_number) {
        text_.line("  v[{}] = number<T>(p, {});", k, operand);
      } else {
        text_.line("  v[{0}] = load<T, {1}>(p.data[{2}], at[{2}]);", k, input_type(k), operand);
      }
    }
    text_.line("  Results r;\n  compute(v, r);");
    for (std::size_t k = 0; k < outputs_; ++k) {
      text_.line("  store<{1}>(p.data[{0}], at[{0}], r.r{0});", k, stored_type(types_.outputs[k]));
    }
    text_.line("}}");
  }

  const Signature& signature_;
  const Specialization& types_;
  std::size_t outputs_;
  std::size_t inputs_;
  Text text_;
};

}  // namespace

// As the built-in kernels: 16 bytes of the narrowest operand, at least 4 elements, but at most 64
// bytes of the widest.
int pack_size(const Specialization& types) {
  std::size_t widest = 1;
  std::size_t narrowest = 8;
  const auto add = [&](DType dtype) {
    widest = std::max(widest, element_size(dtype));
    narrowest = std::min(narrowest, element_size(dtype));
  };
  for (const InputKind& input : types.inputs) {
    if (!input.is_number) add(input.dtype);
  }
  for (const DType dtype : types.outputs) add(dtype);
  const std::size_t wanted = std::max<std::size_t>(16 / narrowest, 4);
  return static_cast<int>(wanted * widest > 64 ? 64 / widest : wanted);
}

std::string type_text(DType compute) { return fmt::format("T = {}", compute_type(compute)); }

std::string program_text(Language language, const Signature& signature,
                         const Specialization& types) {
  Generator generator(signature, types);
  std::string text;
  text += prologue(language);
  text += shared_headers();
  text += runtime();
  if (language == Language::cuda) text += cuda_runtime();
  text += fmt::format("namespace gantry_user {{\n#include \"{}\"\n}}\n", kSourceFile);
  text += generator.function();
  text += language == Language::host ? generator.host() : generator.cuda();
  return text;
}

}  // namespace gantry::kernels::jit

"""Proves that every check of this folder can fail, and passes where nothing is wrong."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import nccl_exports
import package_recipes
import tests_by_name
import torch_map

HERE = pathlib.Path(__file__).parent
COMPILER = sys.argv[1:] or ["c++"]
CLEAN = {
    "include/gantry/core/error.hpp": "#pragma once\n#include <string>\n",
    "include/gantry/device/device.hpp": "#pragma once\n#include <gantry/core/error.hpp>\n",
    "include/gantry/gantry.hpp": "#pragma once\n#include <gantry/device/device.hpp>\n",
    "memory/heap.cpp": '#include "memory/heap.hpp"\n#include <fmt/format.h>\n#include <gantry/core/error.hpp>\n',
    "memory/heap.hpp": "#pragma once\n",
    "launcher/main.cpp": '#include <gantry/core/error.hpp>\n#include "machine/topology/tree.hpp"\n'
                         "#include <gantry/machine/visible_devices.hpp>\n",
}


class CheckTest(unittest.TestCase):
    def run_check(self, name, changes, *arguments):
        """Exit code and output of a check over the clean tree with some files added or replaced."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {**CLEAN, **changes}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            mode = ["--mode", arguments[1]] if arguments[:1] == ("--mode",) else []
            target = root / "include" if arguments else root
            command = [sys.executable, HERE / f"{name}.py", *mode, target, *arguments[len(mode):]]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            return result.returncode, result.stdout + result.stderr

    def assert_passes(self, name, changes=None, *arguments):
        code, output = self.run_check(name, changes or {}, *arguments)
        self.assertEqual(code, 0, output)

    def assert_fails(self, name, changes, text, *arguments):
        code, output = self.run_check(name, changes, *arguments)
        self.assertEqual(code, 1, output)
        self.assertIn(text, output)

    def test_direct_allocations(self):
        self.assert_passes("direct_allocations")
        for line in ("void* data = driver().allocate(0, 1);", "driver()\t.create_chunk(0, 1);", "driver_->allocate_pinned(1);",
                     "if (!driver().register_host(a, 1)) {", "cudaMalloc(&data, 1);", "cuMemCreate(&a, 1, &b, 0);"):
            self.assert_fails("direct_allocations", {"kernels/gemm.cpp": f"int a;\n{line}\n"},
                              f"kernels/gemm.cpp:2: {line}: use memory/driver_memory.hpp")
            self.assert_passes("direct_allocations", {"memory/driver_memory.cpp": line, "device/cuda/memory.cpp": line})

    def test_environment_reads(self):
        for line in ('auto a = std::getenv("PATH");', 'if (getenv (name) != nullptr) {'):
            self.assert_fails("environment_reads", {"tools/a.cpp": line}, f"tools/a.cpp:1: {line}: use env::get()")
            self.assert_passes("environment_reads", {"tests/a_test.cpp": line, "examples/a.cpp": line})
        self.assert_passes("environment_reads", {"core/a.cpp": "secure_getenv(name);  // not getenv(name)"})
        settings = {"core/env/settings.hpp": "extern const TextSetting kTrace;\nextern const NumberSetting kRank;", "core/env/settings.cpp": "&kTrace"}
        self.assert_fails("environment_reads", settings, "core/env/settings.hpp:2: kRank is not in settings()")
        self.assert_passes("environment_reads", settings | {"core/env/settings.cpp": "&kTrace, &kRank"})

    def test_inline_state(self):
        self.assert_passes("inline_state", {"core/a.hpp": "inline constexpr int kA = 1;\ninline int f(int a = 1) { return a; }\n"
                                            "class A {\n  static std::atomic<int> count_;\n  static constinit thread_local A* innermost;\n"
                                            "  static const int kB = 2;\n  static A make();\n};\n",
                                            "core/a.cpp": "  static int calls = 0;\n"})
        for line in ("inline std::atomic<int> calls{0};", "inline constinit A* first = nullptr;", "  static inline thread_local int depth = 0;",
                     "  static std::mutex lock;", "  static auto& all = *new A();", "  static thread_local constinit bool runs = false;"):
            self.assert_fails("inline_state", {"core/a.hpp": f"int a;\n{line}\n"}, "core/a.hpp:2: ")

    def test_output_files(self):
        self.assert_passes("output_files")
        for line in ("std::ofstream out(path);", "std::FILE* f = std::fopen(path, mode);", "freopen(path, mode, stdout);",
                     "open(path, O_WRONLY | O_CREAT, 0600);", "open(path, O_RDWR | O_TRUNC);", "std::fstream both(path);"):
            self.assert_fails("output_files", {"launcher/a.cpp": f"int a;\n{line}\n"},
                              f"launcher/a.cpp:2: {line}: use open_output() of core/files/output_file.hpp")
            self.assert_passes("output_files", {"core/files/output_file.cpp": line, "tests/a_test.cpp": line, "examples/a.cpp": line})
        self.assert_passes("output_files", {"tools/a.cpp": "open(\"/dev/null\", O_WRONLY);\n// an ofstream\n"})

    def test_docs_lines(self):
        long = "word " * 30
        self.assert_passes("docs_lines", {"docs/a.md": f"| {long} |\n> {long}\n```sh\n{long}\n```\n<!-- {long}\n{long}\n-->\n", "README.md": "short\n"})
        self.assert_fails("docs_lines", {"docs/how-to/a.md": f"# A\n\n{long}\n"}, "docs/how-to/a.md:3: 150 characters")
        self.assert_fails("docs_lines", {"README.md": f"- {long}\n"}, "README.md:1: 152 characters")

    def test_tests_by_name(self):
        listed = "tests/checks/tests_by_name.txt"
        classes = "".join(f"{name} tests/all_test.cpp\n" for name in tests_by_name.CLASSES)
        tests = {f"tests/{noun}_test.cpp": "" for noun in ("all", "error", "device", "gantry", "core/dims")}
        tree = {**tests, "include/gantry/core/dims.hpp": "", "include/gantry/core/axes.hpp": "",
                listed: f"# Others.\ncore/axes.hpp tests/core/dims_test.cpp\n{classes}"}
        self.assert_passes("tests_by_name", tree)
        self.assert_fails("tests_by_name", {**tree, listed: classes}, "core/axes.hpp: no axes_test below tests/")
        self.assert_fails("tests_by_name", {**tree, listed: tree[listed].replace("PoolSet tests/all_test.cpp\n", "")}, "PoolSet: no pool_set_test")
        self.assert_fails("tests_by_name", {**tree, "tests/axes_test.cpp": ""}, "core/axes.hpp has a test of its name and needs no line")
        self.assert_fails("tests_by_name", {**tree, listed: tree[listed] + "core/gone.hpp tests/all_test.cpp\n"}, "core/gone.hpp is no public header")
        self.assert_fails("tests_by_name", {**tree, listed: tree[listed] + "core/dims.hpp tests/gone.cpp\n"}, "tests/gone.cpp does not exist")

    def test_torch_map(self):
        row = "| `device_count` | `device_count()` | Count |"
        names = "# torch 99.0: names\n"  # newer than the torch of any machine
        tree = {"docs/reference/torch-cuda-map.md": f"# Map\n\n| torch | gantry | test |\n|---|---|---|\n{row}\n| `sparse` | | gantry has none. |\n",
                "tests/checks/torch_map_names.txt": f"{names}device_count\nsparse\n",
                "tests/torch_map/a_test.cpp": "TEST_F(Map, Count) {\n  EXPECT_EQ(device_count(\n      ), 1);\n}\n"}
        self.assert_passes("torch_map")
        self.assert_passes("torch_map", tree)
        self.assert_fails("torch_map", {**tree, "tests/torch_map/a_test.cpp": "TEST_F(Map, Count) {\n  // device_count()\n}\n"},
                          "torch-cuda-map.md:5: `device_count()` does not stand in test Count")
        self.assert_fails("torch_map", {**tree, "tests/torch_map/a_test.cpp": ""}, "there is no test Count in tests/torch_map")
        self.assert_fails("torch_map", {**tree, "tests/checks/torch_map_names.txt": f"{names}device_count\nsparse\ninit\n"}, "no row has torch's `init`")
        self.assert_fails("torch_map", {**tree, "tests/checks/torch_map_names.txt": f"{names}device_count\n"}, "`sparse` is not in")
        page = tree["docs/reference/torch-cuda-map.md"]
        self.assert_fails("torch_map", {**tree, "docs/reference/torch-cuda-map.md": page.replace("gantry has none.", "")}, "needs a sentence")
        for installed, words in ((None, None), ("2.14.1", None), ("2.15.0+cu130", None), ("2.16.0a0", "names are those of torch 2.15"),
                                 ("3.0", "but this machine has 3.0")):
            problem = torch_map.age_complaint("# torch 2.15: names", installed)
            self.assertEqual(problem is None, words is None, problem)
            self.assertIn(words or "", problem or "")
        self.assertIn("expected the version of torch", torch_map.age_complaint("# names", "2.15.0"))
        more = tree["tests/torch_map/a_test.cpp"] + "TEST_F(Map, Other) {\n}\n"
        self.assert_fails("torch_map", {**tree, "tests/torch_map/a_test.cpp": more}, "no row names test Other")

    def test_name_tables(self):
        page = "docs/how-to/from-libtorch.md"
        table = "## Devices\n\n| `c10` | gantry |\n|---|---|\n| `a()` | `b( 1)` and more |\n"
        self.assert_passes("name_tables")
        self.assert_passes("name_tables", {page: f"{table}\n```cpp\nint x =\n  b(1);\n```\n"})
        self.assert_passes("name_tables", {page: f"{table}\n```sh\nb\n```\n## Other\n\n```cpp\nint x;\n```\n"})
        self.assert_fails("name_tables", {page: f"{table}\n```cpp\nint x = b(2);  // b(1)\n```\n"}, f"{page}:5: no program of the section has `b( 1)`")
        self.assert_fails("name_tables", {page: f"{table}\n```cpp\nint x;\n```\n\n## Other\n\n```cpp\nb(1);\n```\n"}, f"{page}:5: no program")

    def test_readme_figures(self):
        page = "| operation | µs | ratio |\n|---|---|---|\n| sum, 1 KiB | 4 | 1.50 (2.00) |\n- [2026-11-29-4xh200-sums.json](a.json)\n"
        item = "- text\n- NCCL takes **1.50 ×** for\n  [sum, 1 KiB](docs/performance.md#sums) (4 × H200, 2026-11-29).\n"
        tree = {"docs/performance.md": page, "README.md": item}
        self.assert_passes("readme_figures")
        self.assert_passes("readme_figures", tree)
        for old, new, words in (("1.50", "2.00", "README.md:2: row 'sum, 1 KiB' of docs/performance.md has no 2.00"),
                                ("sum, 1", "sum, 2", "row 'sum, 2 KiB' of docs/performance.md has no 1.50"),
                                ("4 × H200", "8 × H200", "docs/performance.md names no file 2026-11-29-8xh200-…"),
                                ("11-29", "11-28", "names no file 2026-11-28-4xh200-…"),
                                ("(4 × H200, 2026-11-29)", "", "a figure needs one link to a row, and one machine"),
                                ("- text", "**1.50 ×** everywhere", "a figure stands outside of the list items")):
            self.assert_fails("readme_figures", {**tree, "README.md": item.replace(old, new)}, words)

    def test_mutants(self):
        tree = {"tests/CMakeLists.txt": "gantry_add_test(heap)\n",
                "tests/mutants/memory.toml": "[[mutant]]\nname = 'No include'\nbreaks = 'all'\nfile = 'memory/heap.cpp'\n"
                                             "old = '#include <fmt/format.h>'\nnew = ''\ntests = ['heap.sim']\n"}
        self.assert_passes("mutants", tree)
        self.assert_fails("mutants", {**tree, "memory/heap.cpp": ""}, "memory.toml: 'No include': memory/heap.cpp has its old text 0 times")
        self.assert_fails("mutants", {**tree, "tests/CMakeLists.txt": ""}, "memory.toml: 'No include': no test is called heap.sim")

    def test_docs_links(self):
        pages = {"docs/index.md": "# Index\n\n[one](a/one.md#a-heading-of-one) [out](https://example.org/x)\n",
                 "docs/a/one.md": "# A heading of `one`\n\nsee [the\nindex](../index.md#index), [here](#a-heading-of-one)\n"
                                  "```sh\n# no heading\necho [x](missing.md)\n```\n"}
        source = "// docs/a/one.md has the rules.\n"
        self.assert_passes("docs_links", {**pages, "memory/rules.hpp": source})
        for text, words in {"[x](missing.md)": "docs/b.md:1: missing.md: no such file", "[x](a/one.md#no-heading)": "no such heading",
                            "text\n[x](#index)": "docs/b.md:2: #index: no such heading", "text": "docs/b.md:1: no link leads here"}.items():
            self.assert_fails("docs_links", {**pages, "docs/b.md": f"{text}\n"}, words)
        self.assert_fails("docs_links", {**pages, "memory/rules.hpp": source.replace("one", "two")},
                          "memory/rules.hpp:1: docs/a/two.md: no such page")

    def test_package_recipes(self):
        tree = {name: (HERE.parents[1] / name).read_text(encoding="utf-8") for name in {*package_recipes.WHOLE, *package_recipes.OTHERS}}
        version = package_recipes.VERSION.search(tree["CMakeLists.txt"])[0].rpartition(" ")[2]
        self.assert_passes("package_recipes")
        self.assert_passes("package_recipes", tree)
        for name in package_recipes.WHOLE:
            self.assert_fails("package_recipes", {**tree, name: tree[name].replace(version, "9.9.9")}, f"{name}:1: expected the version")
        for name, old, new, words in ((package_recipes.CONDA, "    - fmt\n", "", "no dependency is called fmt"),
                                      (package_recipes.CONAN, "GANTRY_BUILD_TESTS", "GANTRY_TESTS", "the build has no option GANTRY_TESTS"),
                                      ("packaging/docker/Dockerfile", "-G Ninja", "", "expected the command of README.md"),
                                      (".devcontainer/devcontainer.json", '"tools"', '"no"', "has no stage no"),
                                      (package_recipes.VCPKG, ",", "", "vcpkg.json:1: ")):
            self.assert_fails("package_recipes", {**tree, name: tree[name].replace(old, new)}, words)

    def test_instruction_budgets(self):
        load, add = "/*0010*/ LDG.E.128 R4, desc[UR4][R2.64] ;", "/*{:04x}*/ FADD R0, R0, R4 ;"
        branch = "/*0100*/ @P0 BRA 0x10 ;"
        loop = [load, *(add.format(0x20 + 16 * i) for i in range(4)), branch]
        row = "sum.cu.o | sum_kernel | LDG.E.128 | 4 | 2 | 32 | 0 | 272 | a reason\n"
        for code, usage, text, words in (
                (loop, "REG:32 STACK:0", row, None),
                ([*loop[:5], *(add.format(0x60 + 16 * i) for i in range(3)), branch], "REG:32 STACK:0", row, "but got 2.25; a reason"),
                (loop, "REG:33 STACK:0", row, "expected at most 32 registers, but got 33"),
                (loop, "REG:32 STACK:8", row, "expected at most 0 bytes of stack, but got 8"),
                (loop, "REG:32 STACK:0", row.replace("272", "256"), "expected at most 256 bytes of code, but got 272"),
                ([*loop[:5], "/*0060*/ LDL R1, [R1] ;", branch], "REG:32 STACK:0", row, "got LDL or STL"),
                (loop[:5], "REG:32 STACK:0", row, "expected a loop with LDG.E.128"),
                (loop, "REG:32 STACK:0", row.replace("sum_kernel", "max_kernel"), "expected one kernel of the name, but got 0"),
                (loop, "REG:32 STACK:0", row.replace(" | a reason", ""), "expected 9 cells")):
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "sum.cu.o").write_text("")
                (root / "table.txt").write_text(f"# a comment\n{text}")
                (root / "sass").write_text("\t\tFunction : sum_kernel\n" + "\n".join(code) + "\n")
                (root / "usage").write_text(f"Function sum_kernel:\n  {usage} SHARED:0\n")
                tool = root / "cuobjdump"
                tool.write_text(f'#!/bin/sh\ncase "$3" in -sass) cat "{root}/sass";; *) cat "{root}/usage";; esac\n')
                tool.chmod(0o755)
                command = [sys.executable, HERE / "instruction_budgets.py", tool, root / "empty", root, "--table", root / "table.txt"]
                result = subprocess.run(command, capture_output=True, text=True, check=False)
                output = result.stdout + result.stderr
                if words is None:
                    self.assertEqual(result.returncode, 0, output)
                    missing = subprocess.run([*command[:2], "no-cuobjdump", *command[3:]], capture_output=True, text=True, check=False)
                    self.assertEqual(missing.returncode, 77, missing.stdout)
                else:
                    self.assertEqual(result.returncode, 1, output)
                    self.assertIn(words, output)

    def test_vocabulary(self):
        self.assert_passes("vocabulary")
        for line in ("int culprit = 0;", "class JobSite {", "// says Goodbye", "void say_goodbye();", "job_site.hpp"):
            self.assert_fails("vocabulary", {"core/stats.cpp": f"int a;\n{line}\n"}, "core/stats.cpp:2: '")
        self.assert_passes("vocabulary", {"core/env/env.cpp": '"GANTRY_LIFELINE_FD"', "memory/source/arena.cpp": "int victim;"})

    def test_layering(self):
        self.assert_passes("layering")
        wrong = {
            '#include <gantry/tensor/tensor.hpp>': "memory must not know tensor",
            '#include "kernels/launch.hpp"': "memory must not know kernels",
            '#include "launcher/worker.hpp"': "memory must not know launcher",
            '  #  include "tensor/x.hpp"  // why': "memory must not know tensor",
            '#include "../core/x.hpp"': "an include of the project is written from the repository root",
            '#include "heap.hpp"': "an include of the project is written from the repository root",
            '#include <gantry/gantry.hpp>': "the umbrella header is for users",
        }
        for line, text in wrong.items():
            self.assert_fails("layering", {"memory/stats.cpp": f"int a;\n{line}\n"}, f"memory/stats.cpp:2: {line.strip()}: {text}")
        for line in ['#include "ipc/exporter.hpp"', "#include <gantry/ipc/ipc.hpp>"]:
            self.assert_fails("layering", {"memory/heap/a.cpp": f"{line}\n"}, f"{line}: memory must not know ipc")
            self.assert_passes("layering", {"ipc/a.cpp": f'{line}\n#include "memory/heap/b.hpp"\n', "tensor/a.cpp": f"{line}\n"})
        self.assert_fails("layering", {"ipc/a.cpp": '#include "kernels/launch.hpp"\n'}, "ipc must not know kernels")
        self.assert_fails("layering", {"include/gantry/core/up.hpp": "#include <gantry/device/device.hpp>\n"},
                          "core must not know device")
        self.assert_fails("layering", {"core/a.cpp": "#include <gantry/extend/driver.hpp>\n"}, "core must not know device")
        self.assert_fails("layering", {"launcher/a.cpp": "#include <gantry/device/device.hpp>\n"},
                          "launcher must not know device")
        self.assert_passes("layering", {"launcher/a.cpp": "#include <gantry/machine/topology.hpp>\n"})
        self.assert_passes("layering", {"compat/nccl/a.cpp": '#include <gantry/collectives/window.hpp>\n#include "compat/nccl/b.hpp"\n'})
        self.assert_fails("layering", {"compat/nccl/a.cpp": '#include "collectives/window.hpp"\n'}, "compat knows public headers alone")
        self.assert_fails("layering", {"tensor/a.cpp": '#include "compat/nccl/types/api.hpp"\n'}, "tensor must not know compat")
        self.assert_fails("layering", {"command_line/a.cpp": '#include "job/flight_file.hpp"\n'}, "command_line must not know job")
        self.assert_fails("layering", {"memory/a.cpp": '#include "command_line/command_line.hpp"\n'}, "memory must not know command_line")
        self.assert_fails("layering", {"device/a.cpp": '#include "job/flight_file.hpp"\n'}, "device must not know job")
        self.assert_fails("layering", {"device/a.cpp": "#include <gantry/extend/store.hpp>\n"}, "device must not know job")
        self.assert_fails("layering", {"job/a.cpp": "#include <gantry/device/device.hpp>\n"}, "job must not know device")
        self.assert_fails("layering", {"include/gantry/extend/odd.hpp": "#pragma once\n"}, "no layer implements this header")
        self.assert_passes("layering", {"collectives/a.cpp": '#include "job/flight_file.hpp"\n#include <gantry/extend/store.hpp>\n',
                                        "core/a.hpp": "#include <gantry/core/a.hpp>\n"})
        circle = {"core/a.hpp": '#include "core/b.hpp"\n', "core/b.hpp": '#include "core/a.hpp"\n'}
        self.assert_fails("layering", circle, 'circle of includes: "core/a.hpp → "core/b.hpp → "core/a.hpp')

    def test_layering_of_folders(self):
        down = {"memory/heap/a.cpp": '#include "memory/source/b.hpp"\n#include <gantry/memory/stats.hpp>\n',
                "memory/source/b.hpp": '#include "memory/blocks/c.hpp"\n', "memory/blocks/c.hpp": "#pragma once\n",
                "memory/a.cpp": '#include "memory/heap/d.hpp"\n', "tensor/heap/a.cpp": '#include "memory/heap/d.hpp"\n'}
        self.assert_passes("layering", down)
        self.assert_fails("layering", {**down, "memory/source/e.cpp": '#include "memory/heap/d.hpp"\n'},
                          "circle of folders: memory/heap → memory/source → memory/heap: memory/heap/a.cpp includes memory/source/b.hpp, "
                          "memory/source/e.cpp includes memory/heap/d.hpp")
        self.assert_fails("layering", {**down, "memory/blocks/e.inl": '#include "memory/heap/d.hpp"\n'},
                          "circle of folders: memory/heap → memory/source → memory/blocks → memory/heap: ")
        self.assert_fails("layering", {**down, "memory/heap/e.cu": '#include "memory/f.hpp"\n'},
                          "circle of folders: memory → memory/heap → memory: ")
        self.assert_fails("layering", {**down, "include/gantry/memory/stats.hpp": '#include "memory/heap/d.hpp"\n'},
                          "circle of folders: include/gantry/memory → memory/heap → include/gantry/memory: ")

    def test_file_size(self):
        self.assert_passes("file_size", {"memory/long.cpp": "\n" * 500})
        self.assert_fails("file_size", {"memory/long.cpp": "\n" * 501}, "memory/long.cpp: 501 lines")
        self.assert_fails("file_size", {"tests/memory/long_test.cpp": "\n" * 501}, "long_test.cpp: 501 lines")
        self.assert_fails("file_size", {"scripts/test": "\n" * 501}, "scripts/test: 501 lines")

    def test_public_headers(self):
        self.assert_passes("public_headers", {"include/gantry/core/macros.hpp": "#pragma once\n#ifdef __CUDACC__\n#endif\n"})
        for line in ["#include <cuda_runtime.h>", "#include <fmt/format.h>", '#include "memory/heap.hpp"', "#include <mpi.h>"]:
            self.assert_fails("public_headers", {"include/gantry/core/bad.hpp": f"#pragma once\n{line}\n"}, f"bad.hpp:2: {line}")
        self.assert_passes("public_headers", {"include/gantry/collectives/mpi.hpp": "#pragma once\n#include <mpi.h>\n"})
        self.assert_fails("public_headers", {"include/gantry/collectives/mpi.hpp": "#pragma once\n#include <nccl.h>\n"}, "mpi.hpp:2: ")
        self.assert_fails("public_headers", {"include/gantry/core/bad.hpp": "int a;\n"}, "#pragma once is missing")
        self.assert_fails("public_headers", {"memory/heap.hpp": "#ifdef GANTRY_WITH_CUDA\n#endif\n"}, "memory/heap.hpp:1: #ifdef")
        self.assert_fails("public_headers", {"memory/heap.hpp": "# if X\n#endif\n"}, "memory/heap.hpp:1: # if X")

    def test_movable_types(self):
        header = ("#pragma once\nclass Pool {\n public:\n  Pool(Pool&& other) : data_(other.data_) {}\n"
                  "  [[nodiscard]] int id(int base = size(1)) const { return data_.of(base); }\n"
                  "  Pool& park_() const;\n\n private:\n  void grow();\n  int data_ = 0;\n};\n")
        calls = "template <>\nstruct Movable<memory::Pool> {\n  REFUSES(id, o.id()), ANSWERS(park_, o.park_())\n};\n"
        test = "tests/integration/moved_from_test.cpp"
        pool = "include/gantry/memory/pool.hpp"
        self.assert_passes("movable_types", {pool: header, test: calls})
        self.assert_passes("movable_types", {pool: header, test: "NOT_MOVABLE(memory::Pool);\n"})
        self.assert_passes("movable_types", {pool: "#pragma once\nstruct Options {\n  int a = 0;\n};\nclass Later;\n"})
        self.assert_fails("movable_types", {pool: header}, "pool.hpp: class Pool is neither in tests/integration/")
        self.assert_fails("movable_types", {pool: header, test: calls.replace("REFUSES(id", "REFUSES(name")},
                          "pool.hpp: Pool::id is not called by")
        self.assert_fails("movable_types", {pool: header.replace("class", "struct")}, "class Pool is neither in")
        self.assert_fails("movable_types", {pool: header.replace("class", "class GANTRY_API")}, "class Pool is neither in")

    def test_self_contained(self):
        self.assert_passes("self_contained", None, *COMPILER)
        self.assert_passes("self_contained", {"include/gantry/core/good.hpp": "#pragma once\n#include <mpi.h>\nint rank(MPI_Comm);\n"}, *COMPILER)
        bad = {"include/gantry/core/bad.hpp": "#pragma once\ninline std::string name() { return {}; }\n"}
        self.assert_fails("self_contained", bad, "--- gantry/core/bad.hpp", *COMPILER)

    def test_outdated(self):
        guard = '#if __cplusplus < 202002L\n#include "gantry needs C++20"\n#endif\n'
        macros = {"include/gantry/core/macros.hpp": "#pragma once\n" + guard}
        macros["include/gantry/core/error.hpp"] = "#pragma once\n#include <gantry/core/macros.hpp>\n"
        self.assert_passes("self_contained", macros, "--mode", "outdated", *COMPILER)
        free = {**macros, "include/gantry/core/bad.hpp": "#pragma once\n"}
        self.assert_fails("self_contained", free, "--- gantry/core/bad.hpp\nexpected one error, but got 0", "--mode", "outdated", *COMPILER)
        noisy = {**macros, "include/gantry/core/bad.hpp": "#pragma once\n#error another\n#include <gantry/core/macros.hpp>\n"}
        self.assert_fails("self_contained", noisy, "--- gantry/core/bad.hpp\nexpected one error, but got 2", "--mode", "outdated", *COMPILER)

    def test_static_objects(self):
        kept = "#include <string>\nconst std::string& a() { static const auto& kept = *new std::string(\"a\"); return kept; }\n"
        destroyed = "#include <string>\nconst std::string& a() { static const std::string kText(\"a\"); return kText; }\n"
        streams = "#include <iostream>\n"  # as CUB has it
        for text, code in ((kept, 0), (destroyed, 1), (streams + kept, 0), (streams + destroyed, 1)):
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "a.cpp").write_text(text, encoding="utf-8")
                subprocess.run([*COMPILER, "-fPIC", "-c", root / "a.cpp", "-o", root / "a.o"], check=True)
                (root / "objects.txt").write_text(f"{root / 'a.o'}\n\n", encoding="utf-8")
                result = subprocess.run([sys.executable, HERE / "static_objects.py", "objdump", root / "objects.txt"],
                                        capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, code, result.stdout + result.stderr)
                if code == 1:
                    self.assertIn("exit() destroys a[abi:cxx11]()::kText", result.stdout)

    def test_expose(self):
        expose = [sys.executable, HERE.parents[1] / "cmake" / "expose.py"]
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            texts = {"own": "namespace gantry {\nstatic int local() { return 1; }\nint hidden() { return local(); }\n"
                            "inline int shared() { static int calls; return ++calls; }\nint use() { return shared(); }\n}\n",
                     "other": "namespace other {\nint hidden() { return 2; }\n}\n"}
            for name, text in texts.items():
                (root / f"{name}.cpp").write_text(text, encoding="utf-8")
                subprocess.run([*COMPILER, "-fPIC", "-fvisibility=hidden", "-c", root / f"{name}.cpp", "-o", root / f"{name}.o"], check=True)
            subprocess.run([*COMPILER, "-r", "-nostdlib", "-o", root / "all.o", root / "own.o", root / "other.o"], check=True)
            subprocess.run([*expose, root / "all.o"], check=True)
            symbols = subprocess.run(["readelf", "-sW", root / "all.o"], capture_output=True, text=True, check=True).stdout
            found = {line.split()[-1]: line.split()[-3] for line in symbols.splitlines() if "_Z" in line}
            self.assertEqual(found["_ZN6gantry6hiddenEv"], "DEFAULT")
            self.assertEqual(found["_ZN6gantry6sharedEv"], "DEFAULT")
            self.assertEqual(found["_ZN5other6hiddenEv"], "HIDDEN")
            if " UNIQUE " in symbols:  # which not all linkers bind to this library
                self.assertEqual(found["_ZZN6gantry6sharedEvE5calls"], "HIDDEN")
            subprocess.run([*COMPILER, "-shared", "-Wl,-Bsymbolic", "-o", root / "all.so", root / "all.o"], check=True)
            result = subprocess.run([*expose, root / "other.o"], capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stderr), (1, f"{root / 'other.o'}: no hidden name of gantry\n"))

    def test_cuda_stubs(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "cuda").mkdir()
            declared = "namespace cuda {\nvoid copy();\nvoid fill();\n}\n"
            sources = {"host": f"{declared}void run() {{ cuda::copy(); cuda::fill(); }}\n",
                       "cuda/kernels": f"{declared}void cuda::copy() {{}}\nvoid cuda::fill() {{}}\n",
                       "all": f"{declared}void cuda::copy() {{}}\nvoid cuda::fill() {{}}\n",
                       "few": f"{declared}void cuda::copy() {{}}\n"}
            for name, text in sources.items():
                (root / f"{name}.cpp").write_text(text, encoding="utf-8")
                subprocess.run([*COMPILER, "-c", root / f"{name}.cpp", "-o", root / f"{name}.o"], check=True)
            (root / "objects.txt").write_text(f"{root}/host.o\n{root}/cuda/kernels.o\n", encoding="utf-8")
            for stubs, expected in (("all", (0, "")), ("few", (1, "cuda::fill() has no stub for builds without CUDA or NCCL\n"))):
                (root / "stubs.txt").write_text(f"{root}/{stubs}.o\n", encoding="utf-8")
                command = [sys.executable, HERE / "cuda_stubs.py", "nm", root / "objects.txt", root / "stubs.txt"]
                result = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual((result.returncode, result.stdout + result.stderr), expected)

    def test_nccl_exports(self):
        header = "/* ncclNone(int); */\n#define ncclMacro(x) x\nncclResult_t  ncclOne(int* a);\nconst char* pncclTwo(int a,\n  int b);\n"
        self.assertEqual(nccl_exports.missing(header, []), ["ncclOne", "pncclTwo"])
        self.assertEqual(nccl_exports.missing(header, ["ncclOne", "pncclTwo", "ncclMore"]), [])

    def exported_symbols(self, header, source, *flags):
        """Exit code and output of the check of a small library with one public header."""
        includes = "#include <memory>\n#include <ostream>\n#include <string>\n"
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "include/gantry").mkdir(parents=True)
            (root / "include/gantry/work.hpp").write_text(f"{includes}namespace gantry {{\n{header}}}\n", encoding="utf-8")
            (root / "work.cpp").write_text(f"#include <gantry/work.hpp>\nnamespace gantry {{\n{source}}}\n", encoding="utf-8")
            library = root / "libgantry.so"
            api = '-DGANTRY_API=__attribute__((visibility("default")))'
            subprocess.run([*COMPILER, "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", api, f"-I{root / 'include'}", *flags,
                            root / "work.cpp", "-o", library], check=True)
            command = [sys.executable, HERE / "exported_symbols.py", library, root / "include"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            return result.returncode, result.stdout + result.stderr

    def test_exported_symbols(self):
        header = """class Work;
GANTRY_API Work made();
class GANTRY_API Work {
 public:
  Work();
  virtual ~Work();
  [[nodiscard]] std::string name(int first = int{1}) const;
  struct Place {
    int row() const;
  };

 private:
  friend Work made();
  struct HIDDEN State;
  std::shared_ptr<State> state_{};
};
class GANTRY_API Failure : public std::exception {};
struct Options {
  int (*callback)(int) = nullptr;
  std::string name = std::string("none");
  [[nodiscard]] bool empty() const { return callback == nullptr; }
};
GANTRY_API extern int count;
[[nodiscard]] GANTRY_API std::string text(const Options& options = {});
GANTRY_API std::ostream& operator<<(std::ostream& out, const Work& work);
template <class T>
GANTRY_API T twice(T value);
template <class T = int>
T same(T value) {
  return value;
}
GANTRY_API int after(int value); extern "C" { GANTRY_API int gantry_malloc(int bytes); }
template <class T>
inline constexpr std::string_view kName = [] { return "work"; }();
"""
        source = """struct Work::State {
  void run();
};
void Work::State::run() { throw Failure(); }
Work::Work() : state_(std::make_shared<State>()) {}
Work made() { return {}; }
Work::~Work() { state_->run(); }
std::string Work::name(int) const { return {}; }
int Work::Place::row() const { return 0; }
struct Internal {
  void run();
};
void Internal::run() {}
int count = 0;
std::string text(const Options&) { return {}; }
std::ostream& operator<<(std::ostream& out, const Work&) { return out; }
template <class T>
T twice(T value) {
  return value + value;
}
template int twice(int);
int after(int value) { return kName<int>.empty() ? same(0) : value; } int gantry_malloc(int bytes) { return bytes; }
"""
        script = f"-Wl,--version-script={HERE.parent.parent / 'cmake/gantry.map'}"
        hide = '-DHIDDEN=__attribute__((visibility("hidden")))'
        self.assertEqual(self.exported_symbols(header, source, hide, script), (0, ""))

        def assert_fails(text, new_header=header, new_source=source, *flags):
            code, output = self.exported_symbols(new_header, new_source, *(flags or (hide, script)))
            self.assertEqual(code, 1, output)
            self.assertIn(text, output)

        assert_fails("gantry::Internal::run() is exported, but no public header declares it", header, source, hide, script,
                     "-fvisibility=default")
        assert_fails("gantry::Work::State::run() is exported, but no public header declares it", header, source, "-DHIDDEN=", script)
        assert_fails("typeinfo for std::", header, source, hide)
        assert_fails("helper is exported, but", header, source + 'extern "C" GANTRY_API void helper() {}\n', hide)
        for name in ("count", "text", "operator<<", "twice", "after"):
            assert_fails(f"gantry::{name} has GANTRY_API, but the library does not export it", header,
                         f"#define {name} other\n{source}" if name != "operator<<" else source.replace(name, "operator>>"))
        assert_fails("gantry::Failure has GANTRY_API, but the library does not export it", header, source.replace("throw Failure();", ""))
        assert_fails("gantry::text is declared without GANTRY_API", header.replace("GANTRY_API std::string", "std::string"))
        assert_fails("gantry::count is declared without GANTRY_API", header.replace("GANTRY_API extern", "extern"))
        assert_fails("gantry::Work::name() is declared, but its class has no GANTRY_API", header.replace("class GANTRY_API Work", "class Work"))
        friend = " private:\n  friend void touch(Work& work);\n"
        assert_fails("gantry::Work::touch is a friend without GANTRY_API", header.replace(" private:\n", friend))

    def test_every_check_is_listed(self):
        checks = sorted(path.stem for path in HERE.glob("*.py") if "run_check(__doc__" in path.read_text(encoding="utf-8"))
        self.assertEqual((HERE / "source_checks.txt").read_text(encoding="utf-8").split(), [name for name in checks if name != "checks_test"])

    def test_a_tree_without_code_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ["layering", "file_size", "public_headers"]:
                result = subprocess.run([sys.executable, HERE / f"{name}.py", folder], capture_output=True, text=True, check=False)
                self.assertEqual((result.returncode, "no code file was found" in result.stderr), (1, True))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

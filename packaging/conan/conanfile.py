"""gantry for Conan 2, from the repository around this recipe: `conan create packaging/conan --build=missing`."""
import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.gnu import PkgConfigDeps

SOURCES = ("CMakeLists.txt", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "cmake/*", "collectives/*",
           "command_line/*", "compat/*", "core/*", "device/*", "docs/*", "examples/*", "include/*", "ipc/*", "job/*", "kernels/*",
           "launcher/*", "machine/*", "memory/*", "scripts/*", "snapshots/*", "streams/*", "tensor/*", "tools/*")


class GantryConan(ConanFile):
    name = "gantry"
    version = "0.2.0"
    description = "Multi-GPU runtime layer for C++20"
    license = "Apache-2.0"
    topics = ("gpu", "cuda", "collectives", "tensors", "allocator", "launcher")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "with_tools": [True, False], "with_hwloc": [True, False], "with_cuda": [True, False]}
    default_options = {"shared": True, "with_tools": True, "with_hwloc": True, "with_cuda": False}

    def export_sources(self):
        root = os.path.normpath(os.path.join(self.recipe_folder, "..", ".."))
        for pattern in SOURCES:
            copy(self, pattern, src=root, dst=self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("gantry needs Linux")
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("fmt/[>=9 <13]")
        self.requires("pugixml/[>=1.12 <2]")
        self.requires("openssl/[>=3 <4]")
        self.requires("spdlog/[>=1.10 <2]", visible=False)
        self.requires("nlohmann_json/[>=3.11 <4]", visible=False)
        self.requires("eigen/[>=3.4 <4]", visible=False)
        if self.options.with_tools:
            self.requires("cli11/[>=2.3 <3]", visible=False)
        if self.options.with_hwloc:
            self.requires("hwloc/[>=2.9 <3]")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25 <5]")
        self.tool_requires("ninja/[>=1.10 <2]")
        if self.options.with_hwloc:
            self.tool_requires("pkgconf/[>=2 <3]")

    def generate(self):
        toolchain = CMakeToolchain(self, generator="Ninja")
        # CUDA and MPI are the machine's own: Conan has neither.
        toolchain.cache_variables.update({
            "BUILD_SHARED_LIBS": bool(self.options.shared), "GANTRY_BUILD_TOOLS": bool(self.options.with_tools),
            "GANTRY_BUILD_TESTS": False, "GANTRY_BUILD_BENCHMARKS": False, "GANTRY_BUILD_EXAMPLES": False,
            "GANTRY_CUDA": "ON" if self.options.with_cuda else "OFF", "GANTRY_MPI": "AUTO",
            "CMAKE_DISABLE_FIND_PACKAGE_PkgConfig": not self.options.with_hwloc})
        toolchain.generate()
        CMakeDeps(self).generate()
        if self.options.with_hwloc:
            PkgConfigDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # Programs find gantry by its own package files, as after `cmake --install`.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "gantry"))
        self.cpp_info.set_property("pkg_config_name", "gantry")
        self.cpp_info.libs = ["gantry"]
        self.cpp_info.system_libs = ["pthread", "dl", "rt"]

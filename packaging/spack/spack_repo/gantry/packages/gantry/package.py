# gantry for Spack, from the repository around this recipe:
#
#     spack repo add packaging/spack/spack_repo/gantry && spack install gantry
from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Gantry(CMakePackage, CudaPackage):
    """Multi-GPU runtime layer for C++20: devices, streams, memory, tensors, graphs, collectives,
    and a launcher. It needs no GPU: simulated devices run the same programs."""

    git = Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0", checked_by="gantry")

    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    variant("shared", default=True, description="Build libgantry as a shared library")
    variant("tools", default=True, description="Build glaunch and the other programs")
    variant("mpi", default=True, description="Serve jobs of mpirun and srun")
    variant("hwloc", default=True, description="Describe machines by hwloc")
    variant("nccl", default=False, when="+cuda", description="Let NCCL carry large operations")

    depends_on("cxx", type="build")
    depends_on("c", type="build", when="+mpi")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build", when="+hwloc")

    depends_on("fmt@9:")
    depends_on("pugixml")
    depends_on("openssl@3:")
    depends_on("spdlog", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("eigen@3.4:", type="build")
    depends_on("cli11", type="build", when="+tools")
    depends_on("hwloc", when="+hwloc")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12.4:", when="+cuda")
    depends_on("nccl@2.18:", when="+nccl")

    conflicts("platform=darwin", msg="gantry needs Linux")
    conflicts("platform=windows", msg="gantry needs Linux")
    conflicts("%gcc@:11", msg="gantry is C++20, as g++ 12 has it")
    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs: cuda_arch=90")

    generator("ninja")

    def cmake_args(self):
        def switch(variant):
            return "ON" if self.spec.satisfies(f"+{variant}") else "OFF"

        args = [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("GANTRY_BUILD_TOOLS", "tools"),
            self.define("GANTRY_BUILD_TESTS", False),
            self.define("GANTRY_BUILD_BENCHMARKS", False),
            self.define("GANTRY_BUILD_EXAMPLES", False),
            self.define("GANTRY_CUDA", switch("cuda")),
            self.define("GANTRY_NCCL", switch("nccl")),
            self.define("GANTRY_MPI", switch("mpi")),
            self.define("CMAKE_DISABLE_FIND_PACKAGE_PkgConfig", self.spec.satisfies("~hwloc")),
        ]
        if self.spec.satisfies("+cuda"):
            architectures = ";".join(self.spec.variants["cuda_arch"].value)
            args.append(self.define("GANTRY_CUDA_ARCHITECTURES", architectures))
        return args

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_launcher(self):
        if self.spec.satisfies("+tools"):
            with set_env(GANTRY_SIM_DEVICES="2"):
                glaunch = Executable(self.prefix.bin.glaunch)
                glaunch(self.prefix.bin.join("gantry-bench"), "-o", "all_reduce", "-e", "1K", "-n", "1")

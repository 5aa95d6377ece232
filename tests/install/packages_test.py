#!/usr/bin/env python3
"""The packages for Debian: what is in them, what they depend on, and programs that use their files.

Usage: packages_test.py BUILD WORK VERSION COMPILER

Unpacks them into a folder, so that it needs no root. Exit code 77 where dpkg or pkg-config is not there.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

BUILD, WORK, VERSION, COMPILER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
MINOR = VERSION.rpartition(".")[0]
RUNTIME, DEVELOPMENT, TOOLS = f"libgantry{MINOR}", "libgantry-dev", "gantry-tools"
ROOT = WORK / "root"
# The loader finds them where their owners put them: CUDA's toolkit, and the MPI of a job.
FOREIGN = re.compile(r"lib(cud|cublas|nv|nccl|mpi|open-|hwloc|event|ucp|z\.so)|ld-linux")
PROGRAM = """
#include <gantry/gantry.hpp>

#include <iostream>

int main() {
  auto world = gantry::Communicator::world();
  gantry::Tensor ranks = gantry::full({4}, world.rank() + 1.0, {.device = world.device()});
  world.all_reduce(ranks);
  std::cout << ranks[0].item<float>() << std::endl;
}
"""


def output(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def names(depends):
    return {part.split()[0] for part in depends.split(",") if part.strip()}


def owner(file):
    """The package of the distribution that has a file, or nothing."""
    for path in (file, os.path.realpath(file), f"/usr{file}"):
        found = subprocess.run(["dpkg-query", "-S", path], text=True, capture_output=True, check=False).stdout
        if found:
            return re.split(r"[:,]", found)[0]
    return ""


def unowned(folder, depends):
    """Libraries that files of a folder load and that come from no package of `depends`."""
    bad = []
    for file in folder.rglob("*"):
        if file.is_symlink() or not file.is_file() or file.read_bytes()[:4] != b"\x7fELF":
            continue
        needed = re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", file))
        paths = dict(re.findall(r"(\S+) => (/\S+)", output("ldd", file, env=dict(os.environ, LD_LIBRARY_PATH=f"{ROOT}/usr/lib"))))
        for name in needed:
            if name.startswith("libgantry") or FOREIGN.match(name):
                continue
            if owner(paths.get(name, name)) not in depends:
                bad.append(f"{file.name} needs {name} of '{owner(paths.get(name, name))}'")
    return bad


def main():
    for program in ("dpkg-deb", "dpkg-query", "pkg-config", "objdump"):
        if shutil.which(program) is None:
            sys.exit(77)
    shutil.rmtree(WORK, ignore_errors=True)
    output("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", WORK / "made", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
    packages = {file.name.partition("_")[0]: file for file in (WORK / "made").glob("*.deb")}
    assert set(packages) == {RUNTIME, DEVELOPMENT, TOOLS}, packages
    fields = {}
    for name, file in packages.items():
        output("dpkg-deb", "-x", file, ROOT)
        fields[name] = dict(re.findall(r"^([\w-]+): (.*)$", output("dpkg-deb", "-f", file), re.M))
        assert fields[name]["Version"] == VERSION, fields[name]
    for name in (DEVELOPMENT, TOOLS):
        assert f"{RUNTIME} (= {VERSION})" in fields[name]["Depends"], fields[name]

    library = ROOT / "usr" / "lib"
    for file in (f"libgantry.so.{VERSION}", "libgantry.so", "pkgconfig/gantry.pc", "cmake/gantry/gantryConfig.cmake"):
        assert (library / file).exists(), file
    runtime_only = output("dpkg-deb", "-c", packages[RUNTIME])
    assert "include/" not in runtime_only and "/bin/" not in runtime_only, runtime_only
    depends = names(fields[RUNTIME]["Depends"]) | names(fields[TOOLS]["Depends"])
    bad = unowned(ROOT / "usr", depends)
    assert not bad, bad

    (WORK / "sum.cpp").write_text(PROGRAM, encoding="utf-8")
    flags = output("pkg-config", "--cflags", "--libs", "gantry", env=dict(os.environ, PKG_CONFIG_PATH=str(library / "pkgconfig"))).split()
    assert output("pkg-config", "--modversion", library / "pkgconfig" / "gantry.pc").strip() == VERSION
    output(COMPILER, WORK / "sum.cpp", "-o", WORK / "sum", *flags)
    environment = dict(os.environ, LD_LIBRARY_PATH=str(library), GANTRY_SIM_DEVICES="2")
    lines = output(ROOT / "usr" / "bin" / "glaunch", "-n", "2", WORK / "sum", env=environment).splitlines()
    assert [line.split()[-1] for line in lines] == ["3", "3"], lines
    for program in ("glaunch", "gantry-bench", "gantry-top"):
        assert output(ROOT / "usr" / "bin" / program, "--version", env=environment).strip() == f"{program} {VERSION}"
    print(f"{', '.join(sorted(packages))}: {sum(file.stat().st_size for file in packages.values()) >> 20} MiB")


main()

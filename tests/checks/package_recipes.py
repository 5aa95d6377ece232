"""Fails on a recipe of packaging/ with another version, option or list of libraries than the build has, on a container that is
made by other commands than README.md shows, and on a page with another version."""

import ast
import json
import re

from source_tree import run_check

CONAN, SPACK = "packaging/conan/conanfile.py", "packaging/spack/spack_repo/gantry/packages/gantry/package.py"
VCPKG, PORT = "packaging/vcpkg/gantry/vcpkg.json", "packaging/vcpkg/gantry/portfile.cmake"
CONDA = "packaging/conda/recipe.yaml"
RECIPES = (CONAN, SPACK, VCPKG, CONDA)
DOCKERFILE, DEVCONTAINER = "packaging/docker/Dockerfile", ".devcontainer/devcontainer.json"
OPTIONS = "cmake/GantryOptions.cmake"
LIBRARIES = "cmake/GantryDependencies.cmake"
VERSION = re.compile(r"project\(gantry VERSION (\d+)\.(\d+)\.(\d+)")
# Everywhere that a version stands: the whole one, or its major and minor number.
WHOLE = {CONAN: r'^    version = "([^"]+)"$', SPACK: r'^    version\("(\d[^"]*)", tag="v\1"\)$', VCPKG: r'"version": "([^"]+)"',
         CONDA: r'^  version: "([^"]+)"$', "docs/reference/build.md": r"_(\d+\.\d+\.\d+)_amd64\.deb"}
MINOR = {"docs/reference/build.md": r"find_package\(gantry (\d+\.\d+) REQUIRED\)|libgantry(\d+\.\d+)_"}
OTHERS = (*RECIPES, PORT, DOCKERFILE, DEVCONTAINER, OPTIONS, LIBRARIES, "README.md", "CMakeLists.txt")
NOT_LINKED = {"Threads", "GTest"}
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def letters(name):
    """`name` as all package managers spell it: Eigen3 is eigen3 and eigen, nlohmann_json is nlohmann-json."""
    return re.sub(r"[^a-z]", "", name.lower())


def wrong_versions(texts, version):
    minor = version.rpartition(".")[0]
    for patterns, expected in ((WHOLE, version), (MINOR, minor)):
        for name, pattern in patterns.items():
            found = [next(filter(None, match.groups())) for match in re.finditer(pattern, texts[name], re.MULTILINE)]
            if not found:
                yield f"{name}:1: expected the version {expected}, but found none"
            for other in sorted(set(found) - {expected}):
                yield f"{name}:1: expected the version {expected}, but got {other}"


def wrong_libraries(texts):
    required = {letters(name) for name in re.findall(r"find_package\((\w+)[^)]* REQUIRED", texts[LIBRARIES])
                if name not in NOT_LINKED}
    for name in RECIPES:
        words = {letters(word) for word in re.findall(r"[\w-]+", texts[name])}
        for library in sorted(required | {"hwloc"}):
            if not words & {library, f"lib{library}"}:
                yield f"{name}:1: no dependency is called {library}"


def wrong_options(texts):
    known = set(re.findall(r"\bGANTRY_\w+", texts[OPTIONS]))
    known |= {f"GANTRY_{name}" for name in re.search(r"foreach\(_option ([A-Z ]+)\)", texts[OPTIONS])[1].split()} | {"GANTRY_SIM_DEVICES"}
    for name in (*RECIPES, PORT, DOCKERFILE):
        for option in sorted(set(re.findall(r"\bGANTRY_[A-Z_]+", texts[name])) - known):
            yield f"{name}:1: the build has no option {option}"


def wrong_commands(texts):
    steps = " ".join(texts[DOCKERFILE].replace("\\\n", " ").split())
    lines = [line for block in SHELL.findall(texts["README.md"]) for line in block.splitlines() if line.startswith("cmake ")]
    if not lines:
        yield "README.md:1: no command begins with cmake"
    for line in [*(line for line in lines if "build/package" in line), "scripts/setup"]:
        if line not in steps:
            yield f"{DOCKERFILE}:1: expected the command of README.md, but found none: {line}"
    container = json.loads(texts[DEVCONTAINER])["build"]
    if (f"FROM ${{BASE}} AS {container['target']}\n") not in texts[DOCKERFILE]:
        yield f"{DEVCONTAINER}:1: {DOCKERFILE} has no stage {container['target']}"


def violations(root):
    if not (root / "packaging").exists():
        return []
    names = {*WHOLE, *OTHERS}
    if lost := sorted(name for name in names if not (root / name).exists()):
        return [f"{name}:1: no such file" for name in lost]
    texts = {name: (root / name).read_text(encoding="utf-8") for name in names}
    found = []
    for name, parse in ((CONAN, ast.parse), (SPACK, ast.parse), (VCPKG, json.loads), (DEVCONTAINER, json.loads)):
        try:
            parse(texts[name])
        except (SyntaxError, ValueError) as error:
            found.append(f"{name}:1: {error}")
    if found:
        return found
    version = ".".join(VERSION.search(texts["CMakeLists.txt"]).groups())
    return [*wrong_versions(texts, version), *wrong_libraries(texts), *wrong_options(texts), *wrong_commands(texts)]


if __name__ == "__main__":
    run_check(__doc__, violations)

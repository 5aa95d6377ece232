"""The files of benchmarks/results: each has its machine, date and commands."""
import json
import pathlib
import shlex

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent
RESULTS = HERE / "results"
SCHEMA = "gantry-results-1"
KINDS = ("collectives", "process", "allocator", "sequences", "startup", "cpu", "sweep", "twins")
KEYS = {"schema", "kind", "date", "commit", "machine", "devices", "peer", "how", "commands", "rows"}
PROGRAMS = {"bench", "gantry-bench", "gantry-tune", "gantry-replay", "peer_nccl", "communicator_ready", "rendezvous"}  # built by the project


def require(condition, path, text):
    if not condition:
        raise ValueError(f"{path}: {text}")


def check_command(path, command):
    """Raises ValueError unless the command's program is part of the project."""
    words = [word for word in shlex.split(command) if "=" not in word or word.startswith("-")]
    if words[0] == "mpirun":
        words = words[3:]  # mpirun -n N
    program = words[0]
    require(program in PROGRAMS or (PROJECT / program).is_file(), path, f"expected a program of the project, but got {program}")


def check_result(path, result):
    """Raises ValueError unless `result` is complete; `path` is its file in the error."""
    missing = KEYS - result.keys()
    require(not missing, path, f"expected the keys {', '.join(sorted(KEYS))}, but {', '.join(sorted(missing))} are missing")
    require(result["schema"] == SCHEMA, path, f"expected schema {SCHEMA}, but got {result['schema']}")
    require(result["kind"] in KINDS, path, f"expected a kind of {', '.join(KINDS)}, but got {result['kind']}")
    require(result["rows"] and result["commands"], path, "expected rows and commands, but got none")
    for command in result["commands"]:
        check_command(path, command)


def read_results(folder=RESULTS):
    """The files of `folder`, oldest first. Raises ValueError for a file that is not a complete result."""
    results = []
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        check_result(path, result)
        results.append({**result, "name": path.name})
    return sorted(results, key=lambda result: (result["date"], result["name"]))

"""Fails on words that the project has retired.

One concept has one word, which is the field's. A row names the retired words of one concept, the word that is used instead,
and the folders in which that holds: elsewhere the same word may mean something else.
"""

import re

from source_tree import CODE_FOLDERS, CODE_SUFFIXES, LAYERS, code_files, read_lines, run_check

TEXT_SUFFIXES = CODE_SUFFIXES | {".md", ".py", ".txt", ".cmake"}
EVERYWHERE = [*CODE_FOLDERS, "docs", "cmake", "scripts"]
JOB = ["include/gantry/core", "include/gantry/collectives", "core", "collectives", "launcher", "tests/core", "tests/collectives", "tests/launcher"]
IPC = ["ipc"]
MEMORY = ["include/gantry/memory", "memory", "tests/memory"]
STREAMS = ["include/gantry/streams", "streams", "tests/streams"]
LAUNCHER = ["launcher", "tests/launcher"]
COLLECTIVES = ["include/gantry/collectives", "collectives", "tests/collectives"]
HOST_SIDE = [f"collectives/{folder}" for folder in ("bootstrap", "comm", "control", "host", "nccl", "peers")]

# Retired (regular expressions of words, as words_of() gives them), used, folders.
WORDS = [
    ("(?:was|were) expected", "expected X, but got Y", EVERYWHERE),
    ("clock_(?:marks?|rows?)|(?:borrow|next|begin)_mark|device_mark", "timestamp, vector clock, sequence number", EVERYWHERE),
    ("order_(?:before|ticket)", "make_wait", EVERYWHERE),
    ("tickets?|flights?", "sequence number, pending event", STREAMS),
    ("copy_runs?", "batched copy, CopyRegion", EVERYWHERE),
    ("shortages?", "out-of-memory recovery, memory pressure", EVERYWHERE),
    ("harvest(?:s|ed|ing)?", "reclaim", EVERYWHERE),
    ("standstill|heap_core|usage_account|memory_breakdown", "AllCachesPaused, HeapState, StatsDelta, OomReport", EVERYWHERE),
    ("(?:un)?park(?:s|ed|ing)?", "release_physical, restore_physical", [*MEMORY, "docs"]),
    ("shel(?:f|ves)", "NumaFreeList, free list", EVERYWHERE),
    ("opens_to_peers", "is_peer_accessible", EVERYWHERE),
    ("settle[sd]?|unsettled|fix_marks|is_over|standing", "promote completed, incomplete, freeze uses", ["memory"]),
    ("(?:give|gave|take|took|put)_back|blanks?|movers?", "free, release, recycle, transfer", ["memory"]),
    ("patience", "SuspendAwareTimeout, timeout", EVERYWHERE),
    ("leave_to_parent", "abandon_after_fork", EVERYWHERE),
    ("goodbyes?", "deregister", EVERYWHERE),
    ("nonsense", "malformed", [*LAYERS, "launcher", "docs"]),
    ("culprits?", "root failure, failed rank", EVERYWHERE),
    ("verdicts?", "diagnosis, PeerReachability, summary", EVERYWHERE),
    ("judges?", "diagnose", LAUNCHER),
    ("job_site", "JobContext", EVERYWHERE),
    ("lifeline(?!_fd)", "liveness pipe", EVERYWHERE),  # GANTRY_LIFELINE_FD is public
    ("fates?", "exit reason", LAUNCHER),
    ("victims?", "secondary failure", LAUNCHER),
    ("value_tree", "JsonDocument", EVERYWHERE),
    ("forced_choice", "AlgorithmOverride", EVERYWHERE),
    ("rank_part", "rank slice", ["tools", "tests/tools"]),
    ("curves?", "line, line chart", ["tools"]),
    ("quantit(?:y|ies)", "format", ["tools"]),
    ("gates?|gate_words?", "semaphore, wait", IPC),
    ("losses", "PeerFaults", IPC),
    ("origins?|walls?", "ProcessScope", IPC),
    ("strangers?", "unauthenticated connection", IPC),
    ("greets?|hello", "handshake", IPC),
    ("hangs?.up|hung.up", "disconnect", IPC),
    ("asks?|asked|questions?|answers?|answered", "request, reply", IPC),
    ("bystanders?", "pre-existing child", EVERYWHERE),
    ("control_?blocks?|control blocks?", "control segment", EVERYWHERE),
    ("breakdowns?", "link error", ["collectives"]),
    ("blame[sd]?(?![\"`])", "mark failed, failed rank, cause", EVERYWHERE),  # "blames" is a key of glaunch's report
    ("meetings?", "rendezvous", COLLECTIVES),
    ("fold(?:s|ed|ings?|_\\w+)?", "rank-ordered reduction, reduce", EVERYWHERE),
    ("combinations?", "NaryReduction, ReducePlan", COLLECTIVES),
    ("lanes?(?!\")|all_lanes", "operation queue, track", ["core", "job", "streams", *HOST_SIDE, "launcher/run/failures", "launcher/dump", "tools/top"]),
    ("fan_(?:out|shared|group)s?", "multicast", COLLECTIVES),
    ("sharers?", "helper device", COLLECTIVES),
    ("hubs?", "root stream", COLLECTIVES),
    ("shel(?:f|ves)|fresh_outputs?|spare_outputs?", "output cache, cached output", COLLECTIVES),
    ("notices?", "control message", ["collectives/host"]),
    ("channels?|letters?|pieces?|conversations?|converse", "connection, message, chunk, ExchangeHandler", ["collectives/host"]),
    ("pieces?", "chunk", ["collectives/hierarchical"]),
    ("tell_\\w+|tells_\\w+|teller", "report", HOST_SIDE),
    ("strangers?", "unauthenticated connection", ["collectives", "docs/explanation/several-machines.md"]),
]
EXEMPT = {"tests/checks/vocabulary.py", "tests/checks/checks_test.py"}


HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words_of(line):
    """The line in lower case, with the words of an identifier apart: JobSite becomes job_site."""
    return HUMP.sub("_", line).lower()


def violations(root):
    found = []
    for word, used, folders in WORDS:
        pattern = re.compile(rf"(?<![a-z])(?:{word})(?![a-z])")
        for path in code_files(root, folders, TEXT_SUFFIXES):
            if path.as_posix() in EXEMPT:
                continue
            for number, line in enumerate(read_lines(root / path), 1):
                if match := pattern.search(words_of(line)):
                    found.append(f"{path}:{number}: '{match[0]}' is retired: use {used}")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)

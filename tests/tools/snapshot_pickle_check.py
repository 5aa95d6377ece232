"""Compares a snapshot's pickle with its JSON: snapshot_pickle_check.py x.pickle x.json; prints what it saw."""

import io
import json
import pickle
import pickletools
import sys

SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "garbage_collection_threshold", "expandable_segments",
    "pinned_num_register_threads", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register",
    "graph_capture_record_stream_reuse", "roundup_power2_divisions",
}
BLOCK_EVENTS = {"alloc", "free_requested", "free_completed"}


def expected(root):
    """What torch's schema says for the content of our JSON."""
    # torch's frames do not say whose they are.
    for frame in root["frames"]:
        del frame["is_internal"]
    stacks = [[root["frames"][number] for number in stack] for stack in root["stacks"]]

    def with_frames(item, *left_out):
        kept = {key: value for key, value in item.items() if key not in ("stack", *left_out)}
        return {**kept, "frames": stacks[item["stack"]]}

    segments = []
    for segment in root["segments"]:
        segment = with_frames(segment)
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
        segment["blocks"] = [with_frames(block, "stream") for block in segment["blocks"]]
        segments.append(segment)
    def entry_of(entry):
        entry = {**with_frames(entry), "compile_context": "N/A"}
        asked = entry.pop("requested_size", entry["size"])
        assert asked <= entry["size"] and (asked == entry["size"] or entry["action"] in BLOCK_EVENTS), entry
        return {**entry, "size": asked}

    traces = [[entry_of(entry) for entry in trace] for trace in root["device_traces"]]
    notes = [{**note["values"], "device": note["device"], "time_us": note["time_us"]} for note in root["external_annotations"]]
    settings = {key: value for key, value in root["allocator_settings"].items() if key in SETTINGS}
    return {"segments": segments, "device_traces": traces, "allocator_settings": settings, "external_annotations": notes}


def check_opcodes(data):
    """Only what small unpicklers know, and no long runs of arguments."""
    known = {
        "PROTO", "STOP", "MARK", "EMPTY_DICT", "SETITEMS", "EMPTY_LIST", "APPENDS", "BININT", "BININT1", "BININT2", "LONG1",
        "BINFLOAT", "NEWTRUE", "NEWFALSE", "BINUNICODE", "TUPLE2", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
    }
    for opcode, argument, _ in pickletools.genops(data):
        assert opcode.name in known, opcode.name
        assert opcode.name != "LONG1" or argument != 0
    pickletools.dis(data, out=io.StringIO())  # checks stack and memo


def main(pickle_path, json_path):
    with open(pickle_path, "rb") as file:
        data = file.read()
    check_opcodes(data)
    seen = pickle.loads(data)
    with open(json_path, encoding="utf-8") as file:
        wanted = expected(json.load(file))
    for key, value in wanted.items():
        assert seen[key] == value, f"{key}:\n{seen[key]}\ninstead of\n{value}"
    assert seen.keys() == wanted.keys(), seen.keys()
    for name, value in seen["allocator_settings"].items():
        assert type(value) is type(wanted["allocator_settings"][name]), name
    print(len(seen["segments"]), [len(trace) for trace in seen["device_traces"]])


if __name__ == "__main__":
    main(*sys.argv[1:])

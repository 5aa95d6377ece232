#!/usr/bin/env python3
"""The page of gantry-snapshot in a real browser: its data, what it shows, and what clicks and keys do.

Usage: snapshot_browser_test.py --samples PROGRAM --tool GANTRY_SNAPSHOT --chromium PROGRAM; exits with 77 without Chromium.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from chromium import Chromium

ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
           "snapshot", "oom"]
STATES = ["active_allocated", "active_pending_free", "inactive"]

# All numbers of the page, with addresses, streams and stacks as the JSON file has them.
READ_DATA = """(() => {
  const snapshot = readSnapshot();
  const stackOf = (number) => snapshot.stacks[number].map((f) => {
    const {name, file, line, internal} = snapshot.frames[f];
    return [name, file, line, internal];
  });
  return snapshot.devices.map(({device, base, startUs, events, segments}) => ({
    device,
    events: Array.from({length: events.count}, (_, k) => [
      events.action[k], startUs + events.time[k],
      String((events.action[k] >= ACTION.snapshot ? 0n : base) + BigInt(events.address[k])),
      String(BigInt(events.bytes[k])), snapshot.streams[events.stream[k]], stackOf(events.stack[k]),
      snapshot.metadata[events.metadata[k]]]),
    segments: segments.map((segment) => [
      String(base + BigInt(segment.address)), segment.bytes, snapshot.streams[segment.stream], segment.small,
      segment.expandable, segment.pool, stackOf(segment.stack), segment.blocks.map((block) => [
        String(base + BigInt(block.address)), block.bytes, block.requested, block.state, snapshot.streams[block.stream],
        stackOf(block.stack)])]),
  }));
})()"""

# A point of the page inside the widest block of a state (0: live) that has a call stack.
FIND_BLOCK = """((wanted) => {
  const {map, model} = app;
  map.scroller.scrollIntoView({block: 'center'});
  const corner = map.scroller.getBoundingClientRect();
  let best = null;
  for (const piece of map.pieces) {
    for (const i of map.members) {
      const from = Math.max(model.blocks.address[i], piece.address);
      const to = Math.min(model.blocks.address[i] + model.blocks.bytes[i], piece.address + piece.bytes);
      const width = (to - from) * piece.perByte;
      if (from >= to || model.stateOfBlock(i, app.state) !== wanted || model.blocks.stack[i] === 0) continue;
      if (best && best.width >= width) continue;
      best = {width, x: corner.left + piece.x + (from - piece.address) * piece.perByte + width / 2,
              y: corner.top + piece.row * (ROW_HEIGHT + ROW_GAP) + 4 + ROW_HEIGHT / 2 - map.scroller.scrollTop,
              address: String(model.data.base + BigInt(model.blocks.address[i]))};
    }
  }
  return best;
})"""

CARDS = """Object.fromEntries([...document.querySelectorAll('#numbers-row .card')].map((card) =>
  [card.querySelector('span').textContent, [card.querySelector('strong').textContent, card.querySelector('small').textContent]]))"""
LEGEND = """[...document.querySelectorAll('#legend .entry')].map((row) =>
  [row.querySelector('b').textContent, row.querySelector('small').textContent, row.querySelector('.value').textContent])"""
STACK = """[...document.querySelectorAll('#details .stack li')].map((item) =>
  [item.querySelector('b').textContent, item.querySelector('span').textContent])"""
FACTS = """Object.fromEntries([...document.querySelectorAll('#details dt')].map((name) =>
  [name.textContent, name.nextElementSibling.textContent]))"""
COLORS = """((id) => {
  const canvas = document.getElementById(id);
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
})"""


def bytes_text(count):
    unit = 0
    while count >= 1024 and unit < 4:
        count /= 1024
        unit += 1
    if unit == 0:
        return f"{count} B"
    return f"{count:.{2 if count < 10 else 1 if count < 100 else 0}f} {['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}"


def amount(count, noun):
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class Device:
    """What a JSON snapshot says about one device."""

    def __init__(self, root, number):
        self.number = number
        self.stacks = [[root["frames"][f] for f in stack] for stack in root["stacks"]]
        traces = root["device_traces"]
        self.events = traces[number] if number < len(traces) else []
        self.segments = [segment for segment in root["segments"] if segment["device"] == number]
        self.blocks = {block["address"]: block for segment in self.segments for block in segment["blocks"]}

    def bytes_in(self, state):
        return sum(block["size"] for block in self.blocks.values() if block["state"] == state)

    def reserved(self):
        return sum(segment["total_size"] for segment in self.segments)

    def largest_free(self):
        return max((block["size"] for block in self.blocks.values() if block["state"] == "inactive"), default=0)

    def bytes_over_time(self, change_of):
        """Bytes before the first event and after each one: change_of gives the sign by action. The history begins without memory."""
        totals = [0]
        for event in self.events:
            totals.append(totals[-1] + change_of.get(event["action"], 0) * event["size"])
        return totals

    def live(self):
        return self.bytes_over_time({"alloc": 1, "free_requested": -1})

    def peak(self):
        return max(self.live())

    def place_of(self, stack):
        """The text of a call site: function and line of the innermost frame that is not internal."""
        frames = self.stacks[stack]
        frame = next((frame for frame in frames if not frame["is_internal"]), frames[0] if frames else None)
        if frame is None:
            return None
        file = frame["filename"].rsplit("/", 1)[-1]
        return f"{file}:{frame['line']}" if frame["line"] > 0 else file

    def frames(self, stack):
        return [[frame["name"], frame["filename"], frame["line"], frame["is_internal"]] for frame in self.stacks[stack]]

    def data(self):
        """The same as READ_DATA."""
        return {
            "device": self.number,
            "events": [[ACTIONS.index(event["action"]), event["time_us"],
                        str(event["device_free" if event["action"] == "oom" else "addr"]), str(event["size"]),
                        str(event["stream"]), self.frames(event["stack"]), event["user_metadata"]] for event in self.events],
            "segments": [[str(segment["address"]), segment["total_size"], str(segment["stream"]),
                          segment["segment_type"] == "small", segment["is_expandable"], segment["segment_pool_id"],
                          self.frames(segment["stack"]),
                          [[str(block["address"]), block["size"], block["requested_size"], STATES.index(block["state"]),
                            str(block["stream"]), self.frames(block["stack"])] for block in segment["blocks"]]]
                         for segment in self.segments],
        }


class SnapshotPage(unittest.TestCase):
    """One page: `name` is the sample's."""

    name = None
    browser = None
    folder = None

    def setUp(self):
        with open(self.folder / f"{self.name}.json", encoding="utf-8") as file:
            self.root = json.load(file)
        self.page = self.browser.open(self.folder / f"{self.name}.html")
        self.page.wait_for("document.documentElement?.dataset.loadMs !== undefined")
        self.page.paint()

    def tearDown(self):
        self.assertEqual(self.page.errors(), [])

    def devices(self):
        count = max([len(self.root["device_traces"]), *(segment["device"] + 1 for segment in self.root["segments"])])
        all_devices = [Device(self.root, number) for number in range(count)]
        return [device for device in all_devices if device.events or device.segments]

    def cards(self):
        return self.page.evaluate(CARDS)

    def text(self, selector):
        return self.page.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")

    def check_numbers(self, device):
        live, waiting = device.bytes_in("active_allocated"), device.bytes_in("active_pending_free")
        used = sum(1 for block in device.blocks.values() if block["state"] != "inactive")
        cards = self.cards()
        self.assertEqual(cards["Live"][0], bytes_text(live))
        self.assertEqual(cards["Waiting"][0], bytes_text(waiting))
        self.assertEqual(cards["Reserved"], [bytes_text(device.reserved()), amount(len(device.segments), "segment")])
        self.assertEqual(cards["Free"], [bytes_text(device.reserved() - live - waiting),
                                         f"largest {bytes_text(device.largest_free())}"])
        self.assertEqual(cards["Blocks"], [f"{used:,}", amount(len(device.events), "event")])

    def click_block(self, device, state):
        """Clicks the widest block of a state, and compares what the page says about it with the file."""
        place = self.page.evaluate(f"{FIND_BLOCK}({STATES.index(state)})")
        self.page.click(place["x"], place["y"])
        block = device.blocks[int(place["address"])]
        facts = self.page.evaluate(FACTS)
        self.assertEqual(int(facts["Address"], 16), block["address"])
        self.assertTrue(facts["Size"].startswith(bytes_text(block["size"])), facts)
        self.assertTrue(facts["Requested"].startswith(bytes_text(block["requested_size"])), facts)
        self.assertEqual(facts["Stream"], str(block["stream"]))
        expected = [[name, f"{file}:{line}" if line > 0 else file] for name, file, line, _ in device.frames(block["stack"])]
        self.assertEqual(self.page.evaluate(STACK), expected)
        return facts


class RandomPage(SnapshotPage):
    name = "random"

    def shown(self):
        """The device with the most events, which the page shows first."""
        return max(self.devices(), key=lambda device: len(device.events))

    def test_data_is_that_of_the_file(self):
        self.assertEqual(self.page.evaluate(READ_DATA), [device.data() for device in self.devices()])

    def test_shows_totals(self):
        device = self.shown()
        self.assertEqual(self.text("#devices [aria-selected=true]"), f"cuda:{device.number}")
        self.check_numbers(device)
        self.assertEqual(self.cards()["Live"][1], f"peak {bytes_text(device.peak())}")

    def test_shows_each_device(self):
        for index, device in enumerate(self.devices(), 1):
            self.page.click_element(f"#devices :nth-child({index})")
            self.check_numbers(device)

    def test_every_moment_has_its_totals(self):
        for index, device in enumerate(self.devices(), 1):
            self.page.click_element(f"#devices :nth-child({index})")
            self.assertEqual(self.page.evaluate("[...app.model.live]"), device.live())
            self.assertEqual(self.page.evaluate("[...app.model.tops.at(-1)]"),
                             device.bytes_over_time({"alloc": 1, "free_completed": -1}))
            self.assertEqual(self.page.evaluate("[...app.model.reserved]"), device.bytes_over_time({"segment_alloc": 1}))

    def test_legend_names_call_sites(self):
        device = self.shown()
        blocks = collections.Counter(device.place_of(event["stack"]) for event in device.events if event["action"] == "alloc")
        rows = self.page.evaluate(LEGEND)
        self.assertEqual(rows[0][:2], ["Waiting", "freed, used by other streams"])
        shown = dict(place.split(" · ") for _, place, _ in rows[1:])
        self.assertEqual(shown, {place: amount(count, "block") for place, count in blocks.items()})
        names = {(device.place_of(number), frame["name"]) for number, stack in enumerate(device.stacks) for frame in stack}
        for label, place, _ in rows[1:]:
            self.assertTrue(any(at == place.split(" · ")[0] and label in name for at, name in names), (label, place, names))

    def test_draws(self):
        for canvas in ("timeline", "overview", "map"):
            self.assertGreater(self.page.evaluate(f"{COLORS}('{canvas}')"), 3, canvas)

    def test_click_on_a_block_shows_its_stack(self):
        facts = self.click_block(self.shown(), "active_allocated")
        self.assertEqual(facts["Freed"], "not yet")
        self.assertRegex(facts["Allocated"], r"^event [\d,]+, ")
        self.assertTrue(self.text("#details h3").startswith("Live · "))
        self.assertFalse(self.page.evaluate("document.getElementById('tooltip').hidden"))
        facts = self.click_block(self.shown(), "active_pending_free")
        self.assertTrue(self.text("#details h3").startswith("Freed, waits for other streams · "))
        self.assertRegex(facts["Freed"], r"^event [\d,]+, ")

    def test_moments_lead_back_to_the_begin(self):
        device = Device(self.root, 0)  # the one that ran out of memory
        self.page.click_element("#devices :nth-child(1)")
        count = len(device.events)
        self.assertTrue(self.text("#moment-text").startswith(f"{count:,} of {count:,} · "))
        self.page.press("ArrowLeft")
        self.assertRegex(self.text("#moment-text"),
                         rf"^{count - 1:,} of {count:,} · .* · out of memory: 1.00 TiB requested, 12.1 KiB free$")
        self.page.click_element("#previous")
        self.assertTrue(self.text("#moment-text").startswith(f"{count - 2:,} of {count:,} · "))
        self.page.click_element("#peak")
        self.assertEqual(self.cards()["Live"][0], bytes_text(device.peak()))
        self.page.click_element("#first")
        self.assertEqual(self.text("#moment-text"), "before the first event")
        cards = self.cards()
        self.assertEqual([cards[name][0] for name in ("Live", "Waiting", "Free", "Reserved", "Blocks")],
                         ["0 B", "0 B", "0 B", "0 B", "0"])
        self.page.click_element("#last")
        self.check_numbers(device)

    def test_call_sites_can_be_dimmed(self):
        faded = "document.querySelectorAll('#legend .faded').length"
        rows = self.page.evaluate("document.querySelectorAll('#legend .entry').length")
        self.page.click_element("#legend .entry")
        self.assertEqual(self.page.evaluate(faded), rows - 1)
        self.page.click_element("#legend .entry")
        self.assertEqual(self.page.evaluate(faded), 0)

    def test_controls(self):
        background = "getComputedStyle(document.body).backgroundColor"
        before = self.page.evaluate(background)
        self.page.click_element("#theme")
        self.assertNotEqual(self.page.evaluate(background), before)
        per_row = self.text("#map-scale")
        self.page.evaluate("(() => { const zoom = document.getElementById('map-zoom'); zoom.value = 3;"
                           " zoom.dispatchEvent(new Event('input')); })()")
        self.page.paint()
        self.assertNotEqual(self.text("#map-scale"), per_row)
        for axis in ("event", "time"):
            self.page.evaluate(f"(() => {{ const axis = document.getElementById('axis'); axis.value = '{axis}';"
                               " axis.dispatchEvent(new Event('change')); })()")
            self.page.paint()
        self.page.click_element("#timeline")
        self.assertEqual(re.sub(r"[\d,]+", "N", self.text("#details h3")), "Event N")


class AwkwardPage(SnapshotPage):
    name = "awkward"

    def test_data_is_that_of_the_file(self):
        self.assertEqual(self.page.evaluate(READ_DATA), [device.data() for device in self.devices()])

    def test_shows_texts_as_they_are(self):
        self.assertEqual(self.text("#settings"), 'backend vmm · a:"b"')
        self.assertEqual(self.page.evaluate("readSnapshot().settings"), self.root["allocator_settings"])
        self.page.click_element("#devices :nth-child(2)")
        device = Device(self.root, 1)
        self.check_numbers(device)
        self.page.evaluate("app.map.setZoom(10)")
        self.page.paint()
        facts = self.click_block(device, "active_allocated")
        self.assertEqual(facts["Segment"], "2.00 MiB at 0xffffffffffe00000, mapped range, pool -1.1099511627776")


class CrowdedPage(SnapshotPage):
    name = "crowded"

    def test_rows_scroll_where_segments_need_more_than_are_in_view(self):
        device, = self.devices()
        self.check_numbers(device)
        widths = self.page.evaluate("app.map.pieces.map((piece) => piece.bytes * piece.perByte)")
        self.assertEqual(len(widths), len(device.segments))
        self.assertGreater(min(widths), 3)
        self.assertTrue(self.page.evaluate("app.map.scroller.scrollHeight > app.map.scroller.clientHeight"))


class EmptyPage(SnapshotPage):
    name = "empty"

    def test_says_that_there_is_nothing(self):
        self.assertEqual(self.page.evaluate(READ_DATA), [])
        visible = "getComputedStyle(document.querySelector('{}')).display !== 'none'"
        self.assertTrue(self.page.evaluate(visible.format(".if-empty")))
        self.assertFalse(self.page.evaluate(visible.format("main")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("samples", "tool", "chromium"):
        parser.add_argument(f"--{name}", required=name != "chromium", default="")
    options, rest = parser.parse_known_args()
    if not options.chromium:
        print("Chromium was not found")
        return 77
    with tempfile.TemporaryDirectory() as folder, Chromium(options.chromium) as browser:
        SnapshotPage.folder, SnapshotPage.browser = pathlib.Path(folder), browser
        subprocess.run([options.samples, folder], check=True, env={**os.environ, "GANTRY_SIM_DEVICES": "4"})
        for sample in ("random", "awkward", "crowded", "empty"):
            subprocess.run([options.tool, f"{folder}/{sample}.json", "-o", f"{folder}/{sample}.html"], check=True)
        return 0 if unittest.main(argv=[sys.argv[0], *rest], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())

// The embedded snapshot, decoded to typed arrays.

const ACTION = {
  alloc: 0, freeRequested: 1, freeCompleted: 2, segmentAlloc: 3, segmentFree: 4,
  segmentMap: 5, segmentUnmap: 6, snapshot: 7, oom: 8,
};
const ACTION_NAMES = [
  'alloc', 'free requested', 'free completed', 'segment alloc', 'segment free',
  'segment map', 'segment unmap', 'snapshot', 'out of memory',
];
const STATE = {live: 0, pending: 1, free: 2};

/** Reads the numbers that the C++ side wrote, seven bits a byte. */
class ByteReader {
  constructor(bytes, offset) {
    this.bytes = bytes;
    this.at = offset;
  }
  byte() {
    return this.bytes[this.at++];
  }
  natural() {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  }
  whole() {
    const value = this.natural();
    return value % 2 === 1 ? -(value + 1) / 2 : value / 2;
  }
}

function readEvents(reader, count) {
  const events = {
    count,
    action: new Uint8Array(count),
    time: new Float64Array(count),     // µs since the first event
    address: new Float64Array(count),  // from the device's base; oom: the driver's free bytes
    bytes: new Float64Array(count),
    stream: new Uint32Array(count),
    stack: new Uint32Array(count),
    metadata: new Uint32Array(count),
  };
  let time = 0;
  let address = 0;
  for (let i = 0; i < count; ++i) {
    const action = reader.byte();
    events.action[i] = action;
    events.time[i] = time += reader.whole();
    events.address[i] = action === ACTION.snapshot || action === ACTION.oom
      ? reader.natural() : (address += reader.whole());
    events.bytes[i] = reader.natural();
    events.stream[i] = reader.natural();
    events.stack[i] = reader.natural();
    events.metadata[i] = reader.natural();
  }
  return events;
}

function readSegments(reader, count) {
  const segments = [];
  let address = 0;
  for (let i = 0; i < count; ++i) {
    address += reader.whole();
    const segment = {address, bytes: reader.natural(), stream: reader.natural()};
    const flags = reader.byte();
    segment.small = (flags & 1) !== 0;
    segment.expandable = (flags & 2) !== 0;
    segment.pool = [reader.whole(), reader.whole()];
    segment.stack = reader.natural();
    segment.blocks = [];
    const blocks = reader.natural();
    let at = address;
    for (let k = 0; k < blocks; ++k) {
      const block = {
        address: at, bytes: reader.natural(), requested: reader.natural(), state: reader.byte(),
        stream: reader.natural(), stack: reader.natural(),
      };
      at += block.bytes;
      segment.blocks.push(block);
    }
    segments.push(segment);
  }
  return segments;
}

/** Everything in the page; devices without events and segments are left out. */
function readSnapshot() {
  const names = JSON.parse(document.getElementById('names').textContent);
  const text = atob(document.getElementById('numbers').textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);

  const devices = names.devices.map((entry) => {
    const reader = new ByteReader(bytes, entry.offset);
    return {
      device: entry.device,
      base: BigInt(entry.base),
      startUs: entry.start_us,
      events: readEvents(reader, entry.events),
      segments: readSegments(reader, entry.segments),
      annotations: names.annotations.filter((note) => note.device === entry.device),
    };
  });
  const frames = names.frames.map(([name, file, line, internal]) => ({name, file, line, internal: internal === 1}));
  return {
    devices, frames, stacks: names.stacks, streams: names.streams, metadata: names.metadata,
    settings: names.settings,
  };
}

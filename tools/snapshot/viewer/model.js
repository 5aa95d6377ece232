// What a device's memory was at every moment.
//
// State s is what holds after event s - 1; state 0 is before the first event. A block is live in the
// states [start, freed) and waits for other streams in [freed, done).

const TOP_SITES = 9;

/** Intervals of blocks or of memory from the driver, in growing typed arrays. */
class Intervals {
  constructor(capacity) {
    this.count = 0;
    this.address = new Float64Array(capacity);
    this.bytes = new Float64Array(capacity);
    this.requested = new Float64Array(capacity);
    this.stream = new Uint32Array(capacity);
    this.stack = new Uint32Array(capacity);
    this.start = new Int32Array(capacity);
    this.freed = new Int32Array(capacity);
    this.done = new Int32Array(capacity);
  }
  add(address, bytes, stream, stack, end) {
    const i = this.count++;
    this.address[i] = address;
    this.bytes[i] = bytes;
    this.requested[i] = -1;
    this.stream[i] = stream;
    this.stack[i] = stack;
    this.freed[i] = this.done[i] = end;
    return i;
  }
}

class DeviceModel {
  constructor(data, snapshot) {
    this.data = data;
    this.snapshot = snapshot;
    this.states = data.events.count + 1;
    this.walkBack();
    this.findSites();
    this.addUp();
    this.findScopes();
    this.findTimes();
  }

  // Note [From the end to the begin]
  // The segments say exactly what exists at the end; undoing the
  // events gives what existed before, also blocks that are older than the recorded history.
  walkBack() {
    const {events, segments} = this.data;
    const end = this.states;
    let blockCount = events.count;
    for (const segment of segments) blockCount += segment.blocks.length;
    const blocks = this.blocks = new Intervals(blockCount);
    const openBlocks = new Map();  // address -> interval
    this.ranges = [];
    let openRanges = [];  // sorted by address, disjoint

    for (const segment of segments) {
      openRanges.push({...segment, blocks: null, start: 0, end});
      for (const block of segment.blocks) {
        if (block.state === STATE.free) continue;
        const i = blocks.add(block.address, block.bytes, block.stream, block.stack, end);
        blocks.requested[i] = block.requested;
        if (block.state === STATE.pending) blocks.freed[i] = 0;
        openBlocks.set(block.address, i);
      }
    }
    openRanges.sort((a, b) => a.address - b.address);

    for (let k = events.count - 1; k >= 0; --k) {
      const address = events.address[k];
      const bytes = events.bytes[k];
      switch (events.action[k]) {
        case ACTION.alloc: {
          let i = openBlocks.get(address);
          if (i === undefined) i = blocks.add(address, bytes, events.stream[k], events.stack[k], end);
          blocks.start[i] = k + 1;
          if (events.stack[k] !== 0) blocks.stack[i] = events.stack[k];
          openBlocks.delete(address);
          break;
        }
        case ACTION.freeRequested: {
          let i = openBlocks.get(address);
          if (i === undefined) {
            i = blocks.add(address, bytes, events.stream[k], events.stack[k], end);
            openBlocks.set(address, i);
          }
          blocks.freed[i] = k + 1;
          break;
        }
        case ACTION.freeCompleted: {
          const i = blocks.add(address, bytes, events.stream[k], events.stack[k], k + 1);
          blocks.freed[i] = 0;  // until its request is seen
          openBlocks.set(address, i);
          break;
        }
        case ACTION.segmentAlloc:
        case ACTION.segmentMap:
          openRanges = this.closeRanges(openRanges, address, address + bytes, k + 1);
          break;
        case ACTION.segmentFree:
        case ACTION.segmentUnmap:
          openRanges.push({
            address, bytes, stream: events.stream[k], stack: events.stack[k], start: 0, end: k + 1,
            expandable: events.action[k] === ACTION.segmentUnmap, small: false, pool: null,
          });
          openRanges.sort((a, b) => a.address - b.address);
          break;
        default:
          break;
      }
    }
    this.ranges.push(...openRanges);
    this.ranges.sort((a, b) => a.address - b.address);
    // A stack of the free says who freed it; who allocated it is unknown for old blocks.
    for (let i = 0; i < blocks.count; ++i) {
      if (blocks.freed[i] < blocks.start[i]) blocks.freed[i] = blocks.start[i];
    }
  }

  // Memory [begin, end) came with the event before state `state`.
  closeRanges(open, begin, end, state) {
    const left = [];
    for (const range of open) {
      const last = range.address + range.bytes;
      if (last <= begin || range.address >= end) {
        left.push(range);
        continue;
      }
      const from = Math.max(begin, range.address);
      const to = Math.min(end, last);
      if (range.address < from) left.push({...range, bytes: from - range.address});
      this.ranges.push({...range, address: from, bytes: to - from, start: state});
      if (to < last) left.push({...range, address: to, bytes: last - to});
    }
    return left;
  }

  // Layers: the call sites with the highest peaks; the rest is one.
  findSites() {
    const {stacks, frames} = this.snapshot;
    const siteOfStack = new Int32Array(stacks.length);
    const sites = [];
    const known = new Map();
    stacks.forEach((stack, s) => {
      const frame = callerIn(stack.map((f) => frames[f]));
      const key = frame ? `${frame.name}\n${frame.file}\n${frame.line}` : '';
      if (!known.has(key)) {
        known.set(key, sites.length);
        sites.push({
          label: frame ? shortFunctionName(frame.name) : 'Unknown call site',
          place: frame ? frameLocation(frame) : 'allocated while history was not recorded',
          stack: s, peak: 0, live: 0, blocks: 0, area: 0, changed: 0,
        });
      }
      siteOfStack[s] = known.get(key);
    });
    const {events} = this.data;
    const {blocks} = this;
    this.changes = this.changesOf();
    for (let i = 0; i < blocks.count; ++i) ++sites[siteOfStack[blocks.stack[i]]].blocks;
    for (let s = 0; s <= events.count; ++s) {
      this.changes.each(s, (i, kind) => {
        if (kind === 'done') return;
        const site = sites[siteOfStack[blocks.stack[i]]];
        site.area += site.live * (s - site.changed);
        site.changed = s;
        if (kind === 'start') site.peak = Math.max(site.peak, site.live += blocks.bytes[i]);
        if (kind === 'freed') site.live -= blocks.bytes[i];
      });
    }
    for (const site of sites) site.area += site.live * (this.states - site.changed);
    const order = sites.map((_, i) => i).filter((i) => sites[i].peak > 0)
      .sort((a, b) => sites[b].peak - sites[a].peak);
    const shown = order.length <= TOP_SITES + 1 ? order.slice() : order.slice(0, TOP_SITES);
    // The steady ones go to the bottom, where they do not ride on what comes and goes.
    shown.sort((a, b) => sites[b].area / sites[b].peak - sites[a].area / sites[a].peak);
    const layerOfSite = new Int32Array(sites.length).fill(shown.length);
    shown.forEach((site, layer) => { layerOfSite[site] = layer; });
    this.layers = shown.map((i) => sites[i]);
    if (shown.length < order.length) {
      const rest = order.slice(TOP_SITES);
      this.layers.push({
        label: 'Other call sites', place: `${formatCount(rest.length)} of them`, stack: 0, other: true,
        blocks: rest.reduce((sum, i) => sum + sites[i].blocks, 0),
      });
    }
    this.sites = sites;
    this.siteOfStack = siteOfStack;
    this.layerOfStack = siteOfStack.map((site) => layerOfSite[site]);
  }

  // The blocks that change with each state, bucketed by state.
  changesOf() {
    const {blocks, states} = this;
    const kinds = {start: blocks.start, freed: blocks.freed, done: blocks.done};
    const buckets = Object.entries(kinds).map(([kind, at]) => {
      const first = new Int32Array(states + 2);
      for (let i = 0; i < blocks.count; ++i) if (at[i] < states) ++first[at[i] + 1];
      for (let s = 0; s <= states; ++s) first[s + 1] += first[s];
      const fill = first.slice();
      const members = new Int32Array(first[states]);
      for (let i = 0; i < blocks.count; ++i) if (at[i] < states) members[fill[at[i]]++] = i;
      return {kind, first, members};
    });
    return {
      each(state, visit) {
        for (const {kind, first, members} of buckets) {
          for (let m = first[state]; m < first[state + 1]; ++m) visit(members[m], kind);
        }
      },
    };
  }

  // Bytes of every layer in every state, each on top of the layers before; then pending bytes.
  addUp() {
    const {blocks, states, layers} = this;
    const count = layers.length;
    this.tops = Array.from({length: count + 1}, () => new Float64Array(states));
    this.live = new Float64Array(states);
    this.reserved = new Float64Array(states);
    const bytes = new Float64Array(count + 1);
    for (let s = 0; s < states; ++s) {
      this.changes.each(s, (i, kind) => {
        const layer = this.layerOfStack[blocks.stack[i]];
        if (kind === 'start') bytes[layer] += blocks.bytes[i];
        if (kind === 'freed') { bytes[layer] -= blocks.bytes[i]; bytes[count] += blocks.bytes[i]; }
        if (kind === 'done') bytes[count] -= blocks.bytes[i];
      });
      let sum = 0;
      for (let layer = 0; layer <= count; ++layer) {
        if (layer === count) this.live[s] = sum;
        this.tops[layer][s] = sum += bytes[layer];
      }
    }
    for (const range of this.ranges) {
      this.reserved[range.start] += range.bytes;
      if (range.end < states) this.reserved[range.end] -= range.bytes;
    }
    for (let s = 1; s < states; ++s) this.reserved[s] += this.reserved[s - 1];
    this.peakState = this.live.reduce((best, value, s) => (value > this.live[best] ? s : best), 0);
    layers.forEach((layer, i) => {
      let peak = 0;
      for (let s = 0; s < states; ++s) {
        peak = Math.max(peak, this.tops[i][s] - (i > 0 ? this.tops[i - 1][s] : 0));
      }
      layer.peak = peak;
    });
  }

  bytesOfLayer(layer, state) {
    return this.tops[layer][state] - (layer > 0 ? this.tops[layer - 1][state] : 0);
  }

  // Scopes that the program named; those without an end reach to the last event.
  findScopes() {
    const {annotations, startUs, events} = this.data;
    const last = events.count > 0 ? events.time[events.count - 1] : 0;
    this.scopes = [];
    const open = new Map();
    for (const note of annotations) {
      const name = note.values.name ?? Object.values(note.values).join(' ');
      const time = note.time_us - startUs;
      if (note.values.stage === 'END') {
        const scope = open.get(name)?.pop();
        if (scope) scope.to = time;
      } else {
        const scope = {name, from: time, to: note.values.stage === 'START' ? last : time};
        this.scopes.push(scope);
        if (note.values.stage === 'START') open.set(name, [...(open.get(name) ?? []), scope]);
      }
    }
  }

  // Note [Where the time axis ends]
  // Marks of a snapshot and of a shortage come when names are looked up, which takes longer than many
  // a run. The axis ends with the last event that changed memory; later marks lie at its end.
  findTimes() {
    const {events} = this.data;
    this.endUs = 0;
    this.longestPauseUs = 0;
    let before = 0;
    for (let k = 0; k < events.count; ++k) {
      if (events.action[k] === ACTION.snapshot || events.action[k] === ACTION.oom) continue;
      this.longestPauseUs = Math.max(this.longestPauseUs, events.time[k] - before);
      this.endUs = before = events.time[k];
    }
    if (this.endUs === 0 && events.count > 0) this.endUs = events.time[events.count - 1];
  }

  /** The axis that shows most: by time, unless one pause takes most of it. */
  initialAxis() {
    return this.longestPauseUs > this.endUs / 2 ? 'event' : 'time';
  }

  /** Time of the event that led to a state, in µs since the first event. */
  timeOf(state) {
    return state > 0 ? this.data.events.time[state - 1] : 0;
  }

  /** Memory held in a state: contiguous mapped ranges joined, by address. */
  rangesAt(state) {
    const joined = [];
    for (const range of this.ranges) {
      if (state < range.start || state >= range.end) continue;
      const before = joined.at(-1);
      if (before && before.expandable && range.expandable
          && before.address + before.bytes === range.address) {
        before.bytes += range.bytes;
      } else {
        joined.push({...range});
      }
    }
    return joined;
  }

  /** Indices of the blocks that are live or pending in a state, by address. */
  blocksAt(state) {
    const {blocks} = this;
    const found = [];
    for (let i = 0; i < blocks.count; ++i) {
      if (blocks.start[i] <= state && state < blocks.done[i]) found.push(i);
    }
    return found.sort((a, b) => blocks.address[a] - blocks.address[b]);
  }

  stateOfBlock(i, state) {
    return state < this.blocks.freed[i] ? STATE.live : STATE.pending;
  }
}

/** The program's place: the innermost function that is neither gantry's nor the C++ library's. */
function callerIn(frames) {
  return frames.find(({internal}) => !internal) ?? frames[0];
}

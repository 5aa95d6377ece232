// The memory held from the driver at one moment, as rows of addresses.

const ROW_HEIGHT = 20;
const ROW_GAP = 6;
const MAP_LEFT = 132;
const MAP_RIGHT = 12;
const SEGMENT_GAP = 6;

class SegmentMap {
  /** `scroller` lies over the canvas and is as long as all rows; the canvas shows those in view. */
  constructor(app, canvas, scroller, spacer) {
    this.app = app;
    this.scroller = scroller;
    this.spacer = spacer;
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h));
    this.zoom = 0;  // doublings of the automatic scale
    this.hovered = null;
    scroller.addEventListener('scroll', () => this.surface.request());
    scroller.addEventListener('pointermove', (event) => this.hover(event));
    scroller.addEventListener('pointerleave', () => this.hover(null));
    scroller.addEventListener('click', () => { if (this.hovered) app.inspect(this.hovered); });
    new ResizeObserver(() => this.layOut()).observe(scroller);
  }

  /** Shows another state or device. */
  update() {
    const {model, state} = this.app;
    this.ranges = model.rangesAt(state);
    this.members = model.blocksAt(state);
    this.layOut();
  }
  setZoom(zoom) {
    this.zoom = zoom;
    this.layOut();
  }

  // Rows of `rowBytes`; a range that does not fit into the rest of a row starts a new one.
  layOut() {
    if (!this.ranges) return;
    const width = this.scroller.clientWidth - MAP_LEFT - MAP_RIGHT;
    const rowsInView = Math.max(4, Math.floor(this.scroller.clientHeight / (ROW_HEIGHT + ROW_GAP)));
    let scale = 512 * 1024;  // then 1, 1.5, 2, 3, 4, 6, … MiB
    // Many segments need more rows for their gaps than are in view, at any scale. The rows scroll before
    // the average segment is narrower than a gap.
    const average = this.ranges.reduce((sum, range) => sum + range.bytes, 0) / this.ranges.length;
    const most = average * Math.max(1, width / SEGMENT_GAP);
    while (scale < most && this.rowsFor(scale, width) > rowsInView) scale *= Number.isInteger(Math.log2(scale)) ? 1.5 : 4 / 3;
    this.rowBytes = Math.max(4096, scale / 2 ** this.zoom);
    this.pieces = this.place(this.rowBytes, width);
    const rows = this.pieces.length > 0 ? this.pieces.at(-1).row + 1 : 0;
    this.spacer.style.height = `${rows * (ROW_HEIGHT + ROW_GAP) + 8}px`;
    this.app.mapScaled(this.rowBytes);
    this.surface.request();
  }

  rowsFor(rowBytes, width) {
    let rows = 1;
    let used = 0;
    const gap = SEGMENT_GAP / width * rowBytes;
    for (const range of this.ranges) {
      if (used > 0 && used + range.bytes > rowBytes) { ++rows; used = 0; }
      rows += Math.max(0, Math.ceil(range.bytes / rowBytes) - 1);
      used = (range.bytes > rowBytes ? range.bytes % rowBytes || rowBytes : used + range.bytes) + gap;
    }
    return rows;
  }

  place(rowBytes, width) {
    const pieces = [];
    const perByte = width / rowBytes;
    let row = 0;
    let x = 0;
    for (const range of this.ranges) {
      if (x > 0 && x + range.bytes * perByte > width + 0.5) { ++row; x = 0; }
      for (let done = 0; done < range.bytes; done += rowBytes) {
        if (done > 0) { ++row; x = 0; }
        const bytes = Math.min(rowBytes, range.bytes - done);
        pieces.push({range, row, x: MAP_LEFT + x, address: range.address + done, bytes,
                     width: Math.max(1.5, bytes * perByte), perByte,
                     isFirst: done === 0, isLast: done + bytes === range.bytes});
        x += bytes * perByte;
      }
      x += SEGMENT_GAP;
    }
    return pieces;
  }

  draw(context, width, height) {
    if (!this.pieces) return;
    const {theme} = this.app;
    const top = this.scroller.scrollTop;
    const pending = stripes(context, theme.pending, theme.pendingBack);
    context.font = theme.font;
    context.textBaseline = 'middle';
    if (this.pieces.length === 0) {
      context.textAlign = 'center';
      context.fillStyle = theme.muted;
      context.fillText('No memory is held at this moment.', width / 2, height / 2);
      return;
    }
    let labelled = -1;
    for (const piece of this.pieces) {
      const y = piece.row * (ROW_HEIGHT + ROW_GAP) + 4 - top;
      if (y > height) break;
      if (y + ROW_HEIGHT < 0) continue;
      if (piece.row !== labelled) {
        labelled = piece.row;
        context.textAlign = 'right';
        context.fillStyle = theme.muted;
        context.font = theme.monospace;
        context.fillText(formatAddress(this.app.model.data.base, piece.address), MAP_LEFT - 10, y + ROW_HEIGHT / 2);
      }
      this.drawPiece(context, piece, y, pending);
    }
    this.drawHovered(context, top);
  }

  drawPiece(context, piece, y, pending) {
    const {model, theme, state, focus} = this.app;
    const {blocks} = model;
    context.fillStyle = theme.free;
    context.fillRect(piece.x, y, piece.width, ROW_HEIGHT);
    const end = piece.address + piece.bytes;
    let painted = piece.x;  // blocks thinner than half a pixel share one
    for (let m = this.firstMember(piece.address); m < this.members.length; ++m) {
      const i = this.members[m];
      if (blocks.address[i] >= end) break;
      const from = Math.max(blocks.address[i], piece.address);
      const to = Math.min(blocks.address[i] + blocks.bytes[i], end);
      const left = piece.x + (from - piece.address) * piece.perByte;
      const right = piece.x + (to - piece.address) * piece.perByte;
      if (right < painted + 0.4) continue;
      const layer = model.layerOfStack[blocks.stack[i]];
      const isLive = model.stateOfBlock(i, state) === STATE.live;
      const shade = isLive ? layer : model.layers.length;
      context.globalAlpha = focus === null || focus === shade ? 1 : 0.18;
      context.fillStyle = isLive ? theme.colorOf(model.layers[layer], layer) : pending;
      const gap = right - left > 4 ? 1 : 0;
      context.fillRect(Math.max(left, painted), y, Math.max(0.6, right - Math.max(left, painted) - gap), ROW_HEIGHT);
      painted = right;
    }
    context.globalAlpha = 1;
    context.strokeStyle = theme.line;
    context.beginPath();
    const [left, right] = [piece.x - 0.5, piece.x + piece.width + 0.5];
    context.moveTo(left, y - 0.5);
    context.lineTo(right, y - 0.5);
    if (piece.isLast) context.lineTo(right, y + ROW_HEIGHT + 0.5); else context.moveTo(right, y + ROW_HEIGHT + 0.5);
    context.lineTo(left, y + ROW_HEIGHT + 0.5);
    if (piece.isFirst) context.lineTo(left, y - 0.5);
    context.stroke();
  }

  // The first member that ends behind an address; members are disjoint and sorted.
  firstMember(address) {
    const {blocks} = this.app.model;
    let low = 0;
    let high = this.members.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const i = this.members[middle];
      if (blocks.address[i] + blocks.bytes[i] <= address) low = middle + 1; else high = middle;
    }
    return low;
  }

  drawHovered(context, top) {
    const {hovered} = this;
    if (!hovered) return;
    context.strokeStyle = this.app.theme.text;
    context.lineWidth = 2;
    for (const piece of this.pieces) {
      const from = Math.max(hovered.address, piece.address);
      const to = Math.min(hovered.address + hovered.bytes, piece.address + piece.bytes);
      if (from >= to) continue;
      const y = piece.row * (ROW_HEIGHT + ROW_GAP) + 4 - top;
      const x = piece.x + (from - piece.address) * piece.perByte;
      context.strokeRect(x, y, Math.max(2, (to - from) * piece.perByte - 1), ROW_HEIGHT);
    }
    context.lineWidth = 1;
  }

  /** The block or the free space at a point of the canvas; null outside of memory. */
  find(x, y) {
    const {model, state} = this.app;
    const {blocks} = model;
    const row = Math.floor((y + this.scroller.scrollTop - 4) / (ROW_HEIGHT + ROW_GAP));
    const piece = this.pieces.find((p) => p.row === row && x >= p.x - 1 && x < p.x + p.width + 1);
    if (!piece) return null;
    const address = piece.address + Math.max(0, Math.min((x - piece.x) / piece.perByte, piece.bytes - 1));
    const m = this.firstMember(address);
    const i = this.members[m];
    if (i !== undefined && blocks.address[i] <= address) {
      return {kind: 'block', block: i, state: model.stateOfBlock(i, state), range: piece.range,
              address: blocks.address[i], bytes: blocks.bytes[i]};
    }
    const before = this.members[m - 1];
    const from = before === undefined ? piece.range.address
      : Math.max(piece.range.address, blocks.address[before] + blocks.bytes[before]);
    const to = Math.min(piece.range.address + piece.range.bytes, i === undefined ? Infinity : blocks.address[i]);
    return {kind: 'free', range: piece.range, address: from, bytes: to - from, state: STATE.free};
  }

  hover(event) {
    const box = this.scroller.getBoundingClientRect();
    this.hovered = event && this.pieces ? this.find(event.clientX - box.left, event.clientY - box.top) : null;
    this.app.hover(this.hovered, event);
    this.surface.request();
  }
}

// Live bytes over time, stacked by call site.

const AXIS_LEFT = 72;
const AXIS_BOTTOM = 24;
const SCOPE_HEIGHT = 18;

class Timeline {
  /** `app` has model, theme, state, axis, focus, showReserved and select(), hover(), changed(). */
  constructor(app, canvas, overview) {
    this.app = app;
    this.main = new Surface(canvas, (c, w, h) => this.draw(c, w, h));
    this.overview = new Overview(this, overview);
    this.pointer = null;  // {x, y} over the plot
    this.drag = null;     // {from, to} while a range is drawn
    this.listen(canvas);
  }

  /** Shows a new device or another axis. */
  reset() {
    const {model, axis} = this.app;
    const {events} = model.data;
    this.positions = new Float64Array(model.states);
    for (let s = 1; s < model.states; ++s) {
      this.positions[s] = axis === 'time' ? Math.min(events.time[s - 1], model.endUs) : s;
    }
    const last = this.positions[model.states - 1];
    this.full = [0, last > 0 ? last * 1.002 : 1];
    this.view = [...this.full];
    this.request();
  }
  request() {
    this.main.request();
    this.overview.request();
  }
  setView(from, to) {
    const span = Math.min(this.full[1], Math.max(to - from, this.app.axis === 'time' ? 1 : 8));
    const begin = Math.max(0, Math.min(from, this.full[1] - span));
    this.view = [begin, begin + span];
    this.request();
  }
  /** Moves the view so that a state is in it. */
  reveal(state) {
    const x = this.positions[state];
    const [from, to] = this.view;
    if (x < from || x > to) this.setView(x - (to - from) / 2, x + (to - from) / 2);
  }

  /** The last state that begins at or before a position. */
  stateAt(position) {
    let low = 0;
    let high = this.positions.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.positions[middle] <= position) low = middle; else high = middle;
    }
    return low;
  }

  plotBox(width, height) {
    const top = this.app.model.scopes.length > 0 ? SCOPE_HEIGHT + 8 : 8;
    return {left: AXIS_LEFT, top, width: width - AXIS_LEFT - 12, height: height - top - AXIS_BOTTOM};
  }

  // For every pixel column the state with the most bytes in it: peaks stay visible at every zoom.
  columnsOf(from, to, count) {
    const top = this.app.model.tops.at(-1);
    const columns = new Int32Array(count);
    let state = this.stateAt(from);
    const step = (to - from) / count;
    for (let x = 0; x < count; ++x) {
      let best = state;
      const end = from + (x + 1) * step;
      while (state + 1 < this.positions.length && this.positions[state + 1] < end) {
        ++state;
        if (top[state] > top[best]) best = state;
      }
      columns[x] = best;
    }
    return columns;
  }

  draw(context, width, height) {
    const {model, theme, showReserved} = this.app;
    const box = this.box = this.plotBox(width, height);
    const [from, to] = this.view;
    const columns = this.columns = this.columnsOf(from, to, Math.max(1, Math.round(box.width)));
    let max = 1;
    for (const s of columns) {
      max = Math.max(max, model.tops.at(-1)[s], showReserved ? model.reserved[s] : 0);
    }
    max *= 1.06;
    this.max = max;
    const yOf = (bytes) => box.top + box.height * (1 - bytes / max);

    this.drawGrid(context, box, max, yOf);
    this.drawLayers(context, box, columns, yOf);
    if (showReserved) this.drawReserved(context, box, columns, yOf);
    this.drawTimeAxis(context, box);
    this.drawMarks(context, box);
    this.drawPointer(context, box);
  }

  drawGrid(context, box, max, yOf) {
    const {theme} = this.app;
    context.font = theme.font;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const tick of byteTicks(max, Math.max(2, box.height / 50))) {
      const y = Math.round(yOf(tick)) + 0.5;
      context.strokeStyle = theme.grid;
      context.beginPath();
      context.moveTo(box.left, y);
      context.lineTo(box.left + box.width, y);
      context.stroke();
      context.fillStyle = theme.muted;
      context.fillText(formatBytes(tick), box.left - 8, y);
    }
  }

  drawLayers(context, box, columns, yOf) {
    const {model, theme, focus} = this.app;
    const count = model.layers.length;
    const step = box.width / columns.length;
    for (let layer = 0; layer <= count; ++layer) {
      const top = model.tops[layer];
      const bottom = layer > 0 ? model.tops[layer - 1] : null;
      context.beginPath();
      for (let x = 0; x < columns.length; ++x) {
        const y = yOf(top[columns[x]]);
        context.lineTo(box.left + x * step, y);
        context.lineTo(box.left + (x + 1) * step, y);
      }
      for (let x = columns.length - 1; x >= 0; --x) {
        const y = yOf(bottom ? bottom[columns[x]] : 0);
        context.lineTo(box.left + (x + 1) * step, y);
        context.lineTo(box.left + x * step, y);
      }
      context.closePath();
      context.globalAlpha = focus === null || focus === layer ? 1 : 0.18;
      context.fillStyle = layer < count ? theme.colorOf(model.layers[layer], layer)
        : stripes(context, theme.pending, theme.pendingBack);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  drawReserved(context, box, columns, yOf) {
    const {model, theme} = this.app;
    const step = box.width / columns.length;
    context.strokeStyle = theme.text;
    context.lineWidth = 1.25;
    context.setLineDash([5, 3]);
    context.beginPath();
    for (let x = 0; x < columns.length; ++x) {
      const y = yOf(model.reserved[columns[x]]);
      context.lineTo(box.left + x * step, y);
      context.lineTo(box.left + (x + 1) * step, y);
    }
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
  }

  drawTimeAxis(context, box) {
    const {theme, axis} = this.app;
    const [from, to] = this.view;
    const y = box.top + box.height;
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(box.left, y + 0.5);
    context.lineTo(box.left + box.width, y + 0.5);
    context.stroke();
    context.fillStyle = theme.muted;
    context.textBaseline = 'top';
    const ticks = decimalTicks(from, to, Math.max(2, box.width / 110));
    for (const tick of ticks.values) {
      const x = Math.round(this.xOf(tick, box)) + 0.5;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x, y + 4);
      context.stroke();
      const label = axis === 'time' ? formatTime(tick, ticks.step) : formatCount(Math.round(tick));
      const half = context.measureText(label).width / 2;
      context.textAlign = 'center';
      context.fillText(label, Math.min(x, box.left + box.width - half), y + 7);
    }
  }

  xOf(position, box = this.box) {
    const [from, to] = this.view;
    return box.left + box.width * (position - from) / (to - from);
  }
  positionAt(x) {
    const [from, to] = this.view;
    return from + (to - from) * (x - this.box.left) / this.box.width;
  }

  // Named scopes above the plot, out-of-memory events, the chosen moment.
  drawMarks(context, box) {
    const {model, theme, state} = this.app;
    context.save();
    context.beginPath();
    context.rect(box.left, 0, box.width, box.top + box.height);
    context.clip();
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    model.scopes.forEach((scope, i) => {
      const [a, b] = [scope.from, scope.to].map((time) => this.xOf(this.positionOfTime(time)));
      if (b < box.left || a > box.left + box.width) return;
      const left = Math.max(a, box.left);
      const width = Math.max(2, Math.min(b, box.left + box.width) - left - 1);
      context.fillStyle = i % 2 === 0 ? theme.scope : theme.scopeOdd;
      context.fillRect(left, 2, width, SCOPE_HEIGHT - 2);
      if (width > context.measureText(scope.name).width + 10) {
        context.fillStyle = theme.muted;
        context.fillText(scope.name, left + 5, 2 + (SCOPE_HEIGHT - 2) / 2);
      }
    });
    const {events} = model.data;
    context.fillStyle = context.strokeStyle = theme.alarm;
    for (let k = 0; k < events.count; ++k) {
      if (events.action[k] !== ACTION.oom) continue;
      const x = this.xOf(this.positions[k + 1]);
      context.beginPath();
      context.moveTo(x, box.top);
      context.lineTo(x, box.top + box.height);
      context.stroke();
      context.beginPath();
      context.moveTo(x - 5, box.top);
      context.lineTo(x + 5, box.top);
      context.lineTo(x, box.top + 7);
      context.fill();
    }
    const x = Math.round(this.xOf(this.positions[state])) + 0.5;
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, box.top - 4);
    context.lineTo(x, box.top + box.height);
    context.stroke();
    context.fillStyle = theme.accent;
    context.beginPath();
    context.arc(x, box.top - 4, 4, 0, 7);
    context.fill();
    context.lineWidth = 1;
    context.restore();
  }

  positionOfTime(time) {
    if (this.app.axis === 'time') return time;
    const {events} = this.app.model.data;
    let low = 0;
    let high = events.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (events.time[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  drawPointer(context, box) {
    const {theme} = this.app;
    if (this.drag) {
      const [a, b] = [this.drag.from, this.drag.to].sort((p, q) => p - q);
      context.fillStyle = theme.selection;
      context.fillRect(a, box.top, b - a, box.height);
    } else if (this.pointer) {
      const x = Math.round(this.pointer.x) + 0.5;
      context.strokeStyle = theme.muted;
      context.setLineDash([2, 3]);
      context.beginPath();
      context.moveTo(x, box.top);
      context.lineTo(x, box.top + box.height);
      context.stroke();
      context.setLineDash([]);
    }
  }

  inPlot({x, y}) {
    const box = this.box;
    return box && x >= box.left && x <= box.left + box.width && y >= 0 && y <= box.top + box.height;
  }

  listen(canvas) {
    const at = (event) => ({x: event.offsetX, y: event.offsetY});
    canvas.addEventListener('pointermove', (event) => {
      const point = at(event);
      if (this.drag) {
        this.drag.to = Math.max(this.box.left, Math.min(point.x, this.box.left + this.box.width));
      } else {
        this.pointer = this.inPlot(point) ? point : null;
        this.hover(event);
      }
      this.main.request();
    });
    canvas.addEventListener('pointerleave', () => {
      this.pointer = null;
      this.app.hover(null);
      this.main.request();
    });
    canvas.addEventListener('pointerdown', (event) => {
      if (!this.inPlot(at(event))) return;
      canvas.setPointerCapture(event.pointerId);
      this.drag = {from: event.offsetX, to: event.offsetX};
    });
    canvas.addEventListener('pointerup', () => {
      if (!this.drag) return;
      const {from, to} = this.drag;
      this.drag = null;
      if (Math.abs(to - from) > 4) {
        this.setView(this.positionAt(Math.min(from, to)), this.positionAt(Math.max(from, to)));
      } else {
        this.app.select(this.stateUnder(from));
      }
      this.request();
    });
    canvas.addEventListener('pointercancel', () => {
      this.drag = null;
      this.main.request();
    });
    canvas.addEventListener('dblclick', () => this.setView(...this.full));
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const [from, to] = this.view;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const shift = (to - from) * event.deltaX / 1000;
        return this.setView(from + shift, to + shift);
      }
      const center = this.positionAt(event.offsetX);
      const factor = Math.exp(event.deltaY / 400);
      return this.setView(center - (center - from) * factor, center + (to - center) * factor);
    }, {passive: false});
  }

  /** The state that the column at x shows. */
  stateUnder(x) {
    const column = Math.floor((x - this.box.left) / this.box.width * this.columns.length);
    return this.columns[Math.max(0, Math.min(column, this.columns.length - 1))];
  }

  hover(event) {
    if (!this.pointer) return this.app.hover(null);
    const {model} = this.app;
    const state = this.stateUnder(this.pointer.x);
    const bytes = this.max * (1 - (this.pointer.y - this.box.top) / this.box.height);
    const layer = model.tops.findIndex((top) => bytes <= top[state]);
    return this.app.hover({kind: 'time', state, layer: bytes < 0 ? -1 : layer}, event);
  }
}

// The page: one device at one moment, in two pictures.

const PALETTE = ['#4269d0', '#efb118', '#3ca951', '#ff725c', '#a463f2', '#6cc5b0', '#ff8ab7', '#9c6b4e', '#97bbf5', '#7a8b2f'];

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const theme = {font: '12px system-ui, sans-serif', monospace: '11px ui-monospace, "DejaVu Sans Mono", monospace'};
  for (const name of ['text', 'muted', 'grid', 'line', 'accent', 'alarm', 'pending', 'free', 'scope',
    'selection', 'sunken', 'overview', 'veil', 'other']) {
    theme[name] = color(name);
  }
  theme.pendingBack = color('pending-back');
  theme.scopeOdd = color('scope-odd');
  theme.colorOf = (site, layer) => (site.other ? theme.other : PALETTE[layer % PALETTE.length]);
  return theme;
}

class App {
  constructor() {
    this.byId = (id) => document.getElementById(id);
    this.snapshot = readSnapshot();
    this.theme = readTheme();
    this.axis = null;  // of the first device until the user chooses
    this.focus = null;
    this.showReserved = true;
    this.models = new Map();
    if (this.snapshot.devices.length === 0) {
      document.body.classList.add('empty');
      return;
    }
    this.details = new Details(this, this.byId('tooltip'), this.byId('details'));
    this.timeline = new Timeline(this, this.byId('timeline'), this.byId('overview'));
    this.map = new SegmentMap(this, this.byId('map'), this.byId('map-scroll'), this.byId('map-spacer'));
    this.makeDevices();
    this.listen();
    this.showDevice(this.snapshot.devices.reduce((best, device, i, all) =>
      (device.events.count > all[best].events.count ? i : best), 0));
  }

  makeDevices() {
    const tabs = this.byId('devices');
    this.snapshot.devices.forEach((data, i) => {
      const tab = element('button', 'tab', `cuda:${data.device}`);
      tab.addEventListener('click', () => this.showDevice(i));
      tabs.append(tab);
    });
    const {settings} = this.snapshot;
    this.byId('settings').textContent = [
      settings.backend ? `backend ${settings.backend}` : null,
      settings.PYTORCH_CUDA_ALLOC_CONF || null,
    ].filter(Boolean).join(' · ');
  }

  showDevice(index) {
    const data = this.snapshot.devices[index];
    if (!this.models.has(index)) this.models.set(index, new DeviceModel(data, this.snapshot));
    this.model = this.models.get(index);
    if (this.axis === null) this.byId('axis').value = this.axis = this.model.initialAxis();
    [...this.byId('devices').children].forEach((tab, i) => tab.setAttribute('aria-selected', i === index));
    this.focus = null;
    this.state = this.model.states - 1;
    this.byId('moment').max = this.model.states - 1;
    this.timeline.reset();
    this.makeLegend();
    this.select(this.state);
    this.byId('details').replaceChildren(
      element('p', 'note', 'Click a block in the map, or a moment in the timeline, to see its call stack here.'));
  }

  makeLegend() {
    const legend = this.byId('legend');
    const {model, theme} = this;
    const entry = (layer, color, label, place, value) => {
      const row = element('button', 'entry');
      const swatch = element('i', layer === model.layers.length ? 'swatch striped' : 'swatch');
      swatch.style.setProperty('--swatch', color);
      const text = element('span', 'label');
      text.append(element('b', '', label), element('small', '', place));
      row.append(swatch, text, element('span', 'value', value));
      row.title = `${label}\n${place}`;
      row.addEventListener('click', () => this.setFocus(this.focus === layer ? null : layer));
      return row;
    };
    const rows = model.layers.map((site, layer) => entry(layer, theme.colorOf(site, layer), site.label,
      `${site.place} · ${formatAmount(site.blocks, 'block')}`, formatBytes(site.peak)));
    const waiting = model.tops.at(-1).reduce((max, top, s) => Math.max(max, top - model.live[s]), 0);
    rows.push(entry(model.layers.length, theme.pending, 'Waiting', 'freed, used by other streams', formatBytes(waiting)));
    legend.replaceChildren(...rows.reverse());  // as they lie on each other
    this.markFocus();
  }

  setFocus(layer) {
    this.focus = layer;
    this.markFocus();
    this.timeline.request();
    this.map.surface.request();
  }
  markFocus() {
    [...this.byId('legend').children].reverse().forEach((row, layer) =>
      row.classList.toggle('faded', this.focus !== null && this.focus !== layer));
  }

  /** Chooses the moment that the map shows. */
  select(state) {
    this.state = Math.max(0, Math.min(state, this.model.states - 1));
    this.byId('moment').value = this.state;
    this.timeline.reveal(this.state);
    this.timeline.request();
    this.map.update();
    this.showNumbers();
  }

  showNumbers() {
    const {model, state} = this;
    const live = model.live[state];
    const pending = model.tops.at(-1)[state] - live;
    const reserved = model.reserved[state];
    const free = Math.max(0, reserved - live - pending);
    const largest = this.largestFree();
    const numbers = [
      ['Live', formatBytes(live), `peak ${formatBytes(model.live[model.peakState])}`],
      ['Waiting', formatBytes(pending), 'for other streams'],
      ['Free', formatBytes(free), `largest ${formatBytes(largest)}`],
      ['Reserved', formatBytes(reserved), formatAmount(this.map.ranges.length, 'segment')],
      ['Fragmentation', formatPercent(free > 0 ? 1 - largest / free : 0), 'of the free memory'],
      ['Blocks', formatCount(this.map.members.length), formatAmount(model.states - 1, 'event')],
    ];
    this.byId('numbers-row').replaceChildren(...numbers.map(([name, value, note]) => {
      const card = element('div', 'card');
      card.append(element('span', '', name), element('strong', '', value), element('small', '', note));
      return card;
    }));
    this.byId('moment-text').textContent = this.eventText();
  }

  largestFree() {
    const {ranges, members} = this.map;
    const {blocks} = this.model;
    let largest = 0;
    let m = 0;
    for (const range of ranges) {
      let at = range.address;
      const end = range.address + range.bytes;
      for (; m < members.length && blocks.address[members[m]] < end; ++m) {
        largest = Math.max(largest, blocks.address[members[m]] - at);
        at = blocks.address[members[m]] + blocks.bytes[members[m]];
      }
      largest = Math.max(largest, end - at);
    }
    return largest;
  }

  eventText() {
    const {model, state, snapshot} = this;
    const {events, base} = model.data;
    if (state === 0) return 'before the first event';
    const k = state - 1;
    const action = events.action[k];
    const position = `${formatCount(state)} of ${formatCount(events.count)} · ${formatTime(events.time[k])}`;
    if (action === ACTION.snapshot) return `${position} · snapshot`;
    if (action === ACTION.oom) {
      return `${position} · out of memory: ${formatBytes(events.bytes[k])} requested, ${formatBytes(events.address[k])} free`;
    }
    return `${position} · ${ACTION_NAMES[action]} ${formatBytes(events.bytes[k])} at ${formatAddress(base, events.address[k])}`
      + ` · stream ${snapshot.streams[events.stream[k]]}`;
  }

  hover(target, event) {
    this.details.showTooltip(target, event);
  }
  inspect(target) {
    this.details.inspect(target);
  }
  mapScaled(rowBytes) {
    this.byId('map-scale').textContent = `${formatBytes(rowBytes)} per row`;
  }

  listen() {
    const on = (id, type, action) => this.byId(id).addEventListener(type, action);
    on('moment', 'input', (event) => this.select(Number(event.target.value)));
    on('first', 'click', () => this.select(0));
    on('previous', 'click', () => this.select(this.state - 1));
    on('next', 'click', () => this.select(this.state + 1));
    on('last', 'click', () => this.select(this.model.states - 1));
    on('peak', 'click', () => this.select(this.model.peakState));
    on('reserved', 'change', (event) => { this.showReserved = event.target.checked; this.timeline.request(); });
    on('axis', 'change', (event) => { this.axis = event.target.value; this.timeline.reset(); });
    on('map-zoom', 'input', (event) => this.map.setZoom(Number(event.target.value)));
    on('timeline', 'click', () => this.inspectMoment());
    on('theme', 'click', () => this.switchTheme());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.repaint());
    document.addEventListener('keydown', (event) => {
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!step || event.target.tagName === 'INPUT' || event.target.tagName === 'SELECT') return;
      event.preventDefault();
      this.select(this.state + step * (event.shiftKey ? 100 : 1));
    });
  }

  inspectMoment() {
    const {pointer} = this.timeline;
    if (!pointer) return;
    const bytes = this.timeline.max * (1 - (pointer.y - this.timeline.box.top) / this.timeline.box.height);
    const layer = this.model.tops.findIndex((top) => bytes <= top[this.state]);
    this.inspect({kind: 'time', state: this.state, layer});
  }

  switchTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = isDark ? 'light' : 'dark';
    this.repaint();
  }
  repaint() {
    this.theme = readTheme();
    this.makeLegend();
    this.timeline.request();
    this.map.surface.request();
  }
}

const started = performance.now();
const app = new App();
requestAnimationFrame(() => requestAnimationFrame(() => {
  document.documentElement.dataset.loadMs = (performance.now() - started).toFixed(1);
}));

// Texts about what the pointer or a click is at.

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function facts(rows) {
  const list = element('dl', 'facts');
  for (const [name, value] of rows) {
    if (value === null || value === undefined) continue;
    list.append(element('dt', '', name), element('dd', '', value));
  }
  return list;
}

const STATE_NAMES = ['Live', 'Freed, waits for other streams', 'Free'];

class Details {
  constructor(app, tooltip, panel) {
    this.app = app;
    this.tooltip = tooltip;
    this.panel = panel;
  }

  /** The floating box; null hides it. */
  showTooltip(target, event) {
    const {tooltip} = this;
    if (!target) {
      tooltip.hidden = true;
      return;
    }
    tooltip.replaceChildren(...this.describe(target, 4));
    tooltip.hidden = false;
    const {width, height} = tooltip.getBoundingClientRect();
    const x = event.clientX + 16 + width > window.innerWidth ? event.clientX - width - 16 : event.clientX + 16;
    const y = Math.max(8, Math.min(event.clientY + 16, window.innerHeight - height - 8));
    tooltip.style.transform = `translate(${Math.max(8, x)}px, ${y}px)`;
  }

  /** The panel at the side, with the whole stack. */
  inspect(target) {
    this.panel.replaceChildren(...this.describe(target, Infinity));
  }

  describe(target, maxFrames) {
    if (target.kind === 'time') return this.describeTime(target, maxFrames);
    return target.kind === 'block' ? this.describeBlock(target, maxFrames) : this.describeFree(target);
  }

  describeTime({state, layer}, maxFrames) {
    const {model} = this.app;
    const site = model.layers[layer];
    const parts = [
      element('h3', '', state > 0 ? `Event ${formatCount(state)}` : 'Before the first event'),
      facts([
        ['Time', formatTime(model.timeOf(state))],
        ['Live', formatBytes(model.live[state])],
        ['Waiting', formatBytes(model.tops.at(-1)[state] - model.live[state])],
        ['Reserved', formatBytes(model.reserved[state])],
      ]),
    ];
    if (site) {
      const title = element('h3', 'site', site.label);
      title.style.setProperty('--swatch', this.app.theme.colorOf(site, layer));
      parts.push(title, facts([['Live here', formatBytes(model.bytesOfLayer(layer, state))], ['At', site.place]]));
      if (!site.other) parts.push(...this.stack(site.stack, maxFrames));
    } else if (layer === model.layers.length) {
      parts.push(element('p', 'note', 'Freed memory that work of other streams still uses.'));
    }
    return parts;
  }

  describeBlock({block, state, range}, maxFrames) {
    const {model, snapshot} = this.app;
    const {blocks} = model;
    const from = blocks.start[block];
    const until = blocks.freed[block];
    const requested = blocks.requested[block];
    const site = model.layers[model.layerOfStack[blocks.stack[block]]];
    const title = element('h3', 'site', `${STATE_NAMES[state]} · ${formatBytes(blocks.bytes[block])}`);
    title.style.setProperty('--swatch', state === STATE.live
      ? this.app.theme.colorOf(site, model.layerOfStack[blocks.stack[block]]) : this.app.theme.pending);
    return [
      title,
      facts([
        ['Address', formatAddress(model.data.base, blocks.address[block])],
        ['Size', formatBytesExactly(blocks.bytes[block])],
        ['Requested', requested < 0 ? null : `${formatBytesExactly(requested)}`],
        ['Rounded up', requested < 0 ? null : formatBytes(blocks.bytes[block] - requested)],
        ['Stream', snapshot.streams[blocks.stream[block]]],
        ['Allocated', from > 0 ? `event ${formatCount(from)}, ${formatTime(model.timeOf(from))}` : 'before the history'],
        ['Freed', until < model.states ? `event ${formatCount(until)}, ${formatTime(model.timeOf(until))}` : 'not yet'],
        ['Metadata', from > 0 ? snapshot.metadata[model.data.events.metadata[from - 1]] || null : null],
        ['Segment', this.segmentText(range)],
      ]),
      ...this.stack(blocks.stack[block], maxFrames),
    ];
  }

  describeFree({address, bytes, range}) {
    const title = element('h3', 'site', `Free · ${formatBytes(bytes)}`);
    title.style.setProperty('--swatch', this.app.theme.line);
    return [title, facts([
      ['Address', formatAddress(this.app.model.data.base, address)],
      ['Size', formatBytesExactly(bytes)],
      ['Segment', this.segmentText(range)],
    ])];
  }

  segmentText(range) {
    const {model} = this.app;
    const pool = range.pool && (range.pool[0] !== 0 || range.pool[1] !== 0) ? `, pool ${range.pool.join('.')}` : '';
    const kind = range.expandable ? 'mapped range' : range.small ? 'for small blocks' : 'for large blocks';
    return `${formatBytes(range.bytes)} at ${formatAddress(model.data.base, range.address)}, ${kind}${pool}`;
  }

  stack(number, maxFrames) {
    const {snapshot} = this.app;
    const numbers = snapshot.stacks[number];
    if (numbers.length === 0) return [element('p', 'note', 'No call stack was recorded.')];
    const list = element('ol', 'stack');
    for (const frame of numbers.slice(0, maxFrames).map((f) => snapshot.frames[f])) {
      const item = element('li', frame.internal ? 'internal' : '');
      item.append(element('b', '', maxFrames === Infinity ? frame.name : shortFunctionName(frame.name)));
      item.append(element('span', '', maxFrames === Infinity
        ? `${frame.file}${frame.line > 0 ? `:${frame.line}` : ''}` : frameLocation(frame)));
      list.append(item);
    }
    const more = numbers.length - maxFrames;
    return more > 0 ? [list, element('p', 'note', `and ${more} more: click to see all`)] : [list];
  }
}

// Numbers and names as people read them.
'use strict';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

function unitOf(bytes) {
  let unit = 0;
  for (let size = Math.abs(bytes); size >= 1024 && unit < UNITS.length - 1; size /= 1024) ++unit;
  return unit;
}

/** "1.50 GiB": three digits, whole bytes below 1 KiB. */
function formatBytes(bytes) {
  const unit = unitOf(bytes);
  const value = bytes / 1024 ** unit;
  if (unit === 0) return `${Math.round(value)} B`;
  return `${value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

/** "1.50 GiB (1,610,612,736 bytes)". */
function formatBytesExactly(bytes) {
  return bytes < 1024 ? formatBytes(bytes) : `${formatBytes(bytes)} (${formatCount(bytes)} bytes)`;
}

function formatCount(count) {
  return count.toLocaleString('en-US');
}

/** "1 block", "2,000 blocks". */
function formatAmount(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** Microseconds as "12.345 s", with as many digits as a step of `stepUs` needs. */
function formatTime(us, stepUs = 0) {
  const [scale, unit] = Math.abs(us) >= 1e6 || stepUs >= 1e6 ? [1e6, 's']
    : Math.abs(us) >= 1e3 || stepUs >= 1e3 ? [1e3, 'ms'] : [1, 'µs'];
  const step = stepUs > 0 ? stepUs / scale : Math.abs(us) / scale / 1000 || 1;
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  return `${(us / scale).toFixed(digits)} ${unit}`;
}

function formatPercent(share) {
  return `${(100 * share).toFixed(share !== 0 && share < 0.0995 ? 1 : 0)} %`;
}

/** An address: the device's base plus an offset. */
function formatAddress(base, offset) {
  return `0x${(base + BigInt(offset)).toString(16)}`;
}

/** Steps of an axis over [0, max]: about `count` round values, in bytes. */
function byteTicks(max, count) {
  const unit = 1024 ** unitOf(max);
  const raw = max / unit / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power * unit;
  return range(0, max, step);
}

function decimalTicks(from, to, count) {
  const raw = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  return {step, values: range(Math.ceil(from / step) * step, to, step)};
}

function range(from, to, step) {
  const values = [];
  for (let i = 0; from + i * step <= to * (1 + 1e-12); ++i) values.push(from + i * step);
  return values;
}

/** "train_step" from "void app::train_step<float>(gantry::Tensor const&, int)". */
function shortFunctionName(name) {
  const text = name.replaceAll('(anonymous namespace)::', '').replaceAll('{anonymous}::', '')
    .replace(/\[clone [^\]]*\]/g, '').trim();
  let depth = 0;
  let begin = 0;
  let end = text.length;
  for (let i = 0; i < text.length; ++i) {
    const c = text[i];
    if (text.startsWith('operator', i)) {  // operator(), operator<, …
      i += 8;
      while (i < text.length && '()<>=-+*/!&|^%~[],'.includes(text[i]) && !(text[i] === '(' && text[i + 1] !== ')')) ++i;
      --i;
    } else if (c === '<') {
      ++depth;
    } else if (c === '>') {
      --depth;
    } else if (depth === 0 && c === '(') {
      end = i;
      break;
    } else if (depth === 0 && c === ' ') {
      begin = i + 1;
    }
  }
  let core = text.slice(begin, end) || text;
  if (core.length > 48) core = core.replace(/<.*>/, '<…>');
  return core;
}

function shortFileName(path) {
  return path.slice(path.lastIndexOf('/') + 1);
}

function frameLocation(frame) {
  return frame.line > 0 ? `${shortFileName(frame.file)}:${frame.line}` : shortFileName(frame.file);
}

// Canvases and their patterns.

/** A canvas as large as its box; draw(context, width, height) works in CSS pixels. */
class Surface {
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.draw = draw;
    this.context = canvas.getContext('2d');
    this.pending = false;
    new ResizeObserver(() => this.request()).observe(canvas.parentElement);
  }
  request() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }
  paint() {
    const {canvas, context} = this;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (width === 0 || height === 0) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.draw(context, width, height);
  }
}

/** Stripes for memory that waits for other streams. */
function stripes(context, color, background) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const c = tile.getContext('2d');
  c.fillStyle = background;
  c.fillRect(0, 0, 8, 8);
  c.strokeStyle = color;
  c.lineWidth = 2.5;
  for (const x of [-8, 0, 8]) {
    c.beginPath();
    c.moveTo(x, 8);
    c.lineTo(x + 8, 0);
    c.stroke();
  }
  const pattern = context.createPattern(tile, 'repeat');
  const ratio = window.devicePixelRatio || 1;
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

// The whole history below the timeline, with the part that the timeline shows.

class Overview {
  /** `timeline` has positions, the full range and the part in view. */
  constructor(timeline, canvas) {
    this.timeline = timeline;
    this.surface = new Surface(canvas, (c, w, h) => this.draw(c, w, h));
    this.listen(canvas);
  }
  request() {
    this.surface.request();
  }

  draw(context, width, height) {
    const {timeline} = this;
    const {model, theme, state} = timeline.app;
    const left = AXIS_LEFT;
    const span = width - AXIS_LEFT - 12;
    const columns = timeline.columnsOf(...timeline.full, Math.max(1, Math.round(span)));
    const top = model.tops.at(-1);
    const max = columns.reduce((best, s) => Math.max(best, top[s]), 1);
    context.fillStyle = theme.sunken;
    context.fillRect(left, 0, span, height);
    context.fillStyle = theme.overview;
    context.beginPath();
    context.moveTo(left, height);
    columns.forEach((s, x) => {
      const y = height - (height - 4) * top[s] / max;
      context.lineTo(left + x * span / columns.length, y);
      context.lineTo(left + (x + 1) * span / columns.length, y);
    });
    context.lineTo(left + span, height);
    context.fill();
    const [a, b] = timeline.view.map((x) => left + span * x / timeline.full[1]);
    context.fillStyle = theme.veil;
    context.fillRect(left, 0, a - left, height);
    context.fillRect(b, 0, left + span - b, height);
    context.strokeStyle = theme.accent;
    context.strokeRect(a + 0.5, 0.5, Math.max(2, b - a - 1), height - 1);
    const x = left + span * timeline.positions[state] / timeline.full[1];
    context.fillStyle = theme.accent;
    context.fillRect(x - 1, 0, 2, height);
  }

  listen(canvas) {
    const {timeline} = this;
    const move = (event) => {
      const span = canvas.clientWidth - AXIS_LEFT - 12;
      const center = (event.offsetX - AXIS_LEFT) / span * timeline.full[1];
      const half = (timeline.view[1] - timeline.view[0]) / 2;
      timeline.setView(center - half, center + half);
    };
    let down = false;
    canvas.addEventListener('pointerdown', (event) => {
      down = true;
      canvas.setPointerCapture(event.pointerId);
      move(event);
    });
    canvas.addEventListener('pointermove', (event) => { if (down) move(event); });
    for (const type of ['pointerup', 'pointercancel']) canvas.addEventListener(type, () => { down = false; });
    canvas.addEventListener('dblclick', () => timeline.setView(...timeline.full));
  }
}

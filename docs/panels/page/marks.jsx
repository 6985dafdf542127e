// Marks over a plot of Grafana's: exemplars and annotations. Drawn by us, since the server's code for them is not published.
import { useLayoutEffect } from 'react';

const DOT = 'rgba(31, 120, 193, 0.9)';

/** `dots`: time and value of each; `lines`: time and colour of each. */
export function Marks({ builder, scaleKey, dots, lines, theme }) {
  useLayoutEffect(() => {
    builder.addHook('draw', (plot) => {
      const { ctx, bbox } = plot;
      const ratio = window.devicePixelRatio;
      const within = ([t]) => plot.scales.x.min <= t && t <= plot.scales.x.max;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      for (const [t, colour] of lines.filter(within)) {
        const x = plot.valToPos(t, 'x', true);
        ctx.strokeStyle = theme.visualization.getColorByName(colour);
        ctx.lineWidth = ratio;
        ctx.setLineDash([3 * ratio, 3 * ratio]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.setLineDash([]);
      for (const [t, value] of dots.filter(within)) {
        const [x, y] = [plot.valToPos(t, 'x', true), plot.valToPos(value, scaleKey(), true)];
        const size = 3.5 * ratio;
        ctx.fillStyle = DOT;
        ctx.beginPath();
        ctx.moveTo(x, y - size);
        ctx.lineTo(x + size, y);
        ctx.lineTo(x, y + size);
        ctx.lineTo(x - size, y);
        ctx.fill();
      }
      ctx.restore();
    });
  }, [builder]);
  return null;
}

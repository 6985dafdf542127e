// Heatmap, status history and state timeline: cells of ours on Grafana's plot, axes and colours. What draws them in a
// Grafana server is not published as a package.
import { getFieldDisplayName, getValueFormat, formattedValueToString } from '@grafana/data';
import { AxisPlacement, ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { measureText, UPlotChart, UPlotConfigBuilder } from '@grafana/ui';
import { interpolateOranges } from 'd3-scale-chromatic';
import { useMemo } from 'react';

import { Marks } from './marks.jsx';

const FONT_PX = 12;
const TICK_PX = 30;

/** Buckets upwards, darker where little is; the scheme of the panel's colours, which a dark theme turns round. */
export function Heat({ panel, frames, exemplars, marks, theme, timeRange, width, height }) {
  const [time, ...buckets] = frames[0].fields;
  const bounds = buckets.map(({ name }) => Number(name));
  const most = Math.max(...buckets.flatMap(({ values }) => values));
  const format = getValueFormat(panel.options.yAxis.unit);
  const every = Math.max(1, Math.ceil((bounds.length * TICK_PX) / height));
  const ticks = bounds.map((bound, row) => [row + 1, bound]).filter(([, bound]) => Number.isFinite(bound));
  const shown = ticks.filter((_, place) => place % every === 0);
  const { exponent } = panel.options.color;
  const cells = buckets.flatMap(({ values }, row) =>
    values.map((value, place) => ({ from: time.values[place], row, value })),
  );
  return (
    <Cells
      ticks={shown.map(([at, bound]) => [at, formattedValueToString(format(bound))])}
      rows={bounds.length}
      cells={cells
        .filter(({ value }) => value > panel.options.filterValues.le)
        .map(({ from, row, value }) => ({
          from,
          to: from + stepOf(time),
          row,
          colour: interpolateOranges(1 - 0.9 * (value / most) ** exponent),
        }))}
      gap={panel.options.cellGap}
      fill={1}
      dots={exemplars.map(([t, value]) => [t, heightOf(value, bounds)])}
      {...{ marks, theme, timeRange, width, height }}
    />
  );
}

/** A row for each series, a cell for each value. */
export function Grid({ panel, frames, marks, theme, timeRange, width, height }) {
  return (
    <Cells
      {...rowsOf(frames, (field, time) =>
        field.values.map((value, place) => ({
          from: time.values[place],
          to: time.values[place] + stepOf(time),
          colour: field.display(value).color,
        })),
      )}
      gap={1}
      fill={panel.options.rowHeight}
      dots={[]}
      {...{ marks, theme, timeRange, width, height }}
    />
  );
}

/** A row for each series, a bar with its name for each stretch of one state. */
export function States({ panel, frames, marks, theme, timeRange, width, height }) {
  return (
    <Cells
      {...rowsOf(frames, (field, time) =>
        stretches(field.values, time).map(({ from, to, value }) => {
          const { color, text } = field.display(value);
          return { from, to, colour: color, text };
        }),
      )}
      gap={0}
      fill={panel.options.rowHeight}
      dots={[]}
      {...{ marks, theme, timeRange, width, height }}
    />
  );
}

/** Names and cells, the first series on top. */
function rowsOf(frames, cellsOf) {
  const rows = frames.map((frame) => ({ frame, time: frame.fields[0], field: frame.fields[1] }));
  const row = (place) => rows.length - 1 - place;
  return {
    rows: rows.length,
    ticks: rows.map(({ frame, field }, place) => [row(place) + 0.5, getFieldDisplayName(field, frame, frames)]),
    cells: rows.flatMap(({ field, time }, place) =>
      cellsOf(field, time).map((cell) => ({ ...cell, row: row(place) })),
    ),
  };
}

function stretches(values, time) {
  const found = [];
  values.forEach((value, place) => {
    const from = time.values[place];
    const last = found.at(-1);
    if (last && last.value === value && last.to >= from) {
      last.to = from + stepOf(time);
    } else {
      found.push({ from, to: from + stepOf(time), value });
    }
  });
  return found;
}

function stepOf(time) {
  return time.config.interval ?? Math.min(...time.values.slice(1).map((t, place) => t - time.values[place]));
}

/** Where a value lies among buckets that are all as high. */
function heightOf(value, bounds) {
  const row = bounds.findIndex((bound) => value <= bound);
  const below = row > 0 ? bounds[row - 1] : 0;
  return Number.isFinite(bounds[row]) ? row + (value - below) / (bounds[row] - below) : row + 0.5;
}

/** `ticks`: height and text of each; `cells`: from, to (milliseconds), row from below, colour, and perhaps a text. */
function Cells({ ticks, rows, cells, gap, fill, dots, marks, theme, timeRange, width, height }) {
  const builder = useMemo(() => {
    const found = new UPlotConfigBuilder('utc');
    const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
    const widest = Math.max(0, ...ticks.map(([, text]) => measureText(text, FONT_PX).width));
    found.addScale({
      scaleKey: 'x',
      isTime: true,
      orientation: ScaleOrientation.Horizontal,
      direction: ScaleDirection.Right,
      range: () => [from, to],
    });
    found.addScale({
      scaleKey: 'y',
      isTime: false,
      orientation: ScaleOrientation.Vertical,
      direction: ScaleDirection.Up,
      range: () => [0, rows],
    });
    found.addAxis({
      scaleKey: 'x',
      isTime: true,
      placement: AxisPlacement.Bottom,
      timeZone: 'utc',
      theme,
      grid: { show: false },
    });
    found.addAxis({
      scaleKey: 'y',
      placement: AxisPlacement.Left,
      theme,
      size: Math.min(widest + 16, width / 2),
      splits: () => ticks.map(([at]) => at),
      values: () => ticks.map(([, text]) => text),
      grid: { show: false },
      ticks: { show: false },
    });
    found.addSeries({ scaleKey: 'y', theme, show: true, pathBuilder: () => null, pointsBuilder: () => false });
    found.addHook('draw', (plot) => paint(plot, cells, gap, fill, theme));
    return found;
  }, []);
  const ends = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  return (
    <UPlotChart config={builder} data={[ends, [0, rows]]} width={width} height={height}>
      <Marks builder={builder} scaleKey={() => 'y'} dots={dots} lines={marks} theme={theme} />
    </UPlotChart>
  );
}

function paint(plot, cells, gap, fill, theme) {
  const { ctx, bbox } = plot;
  const ratio = window.devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = `${FONT_PX * ratio}px ${theme.typography.fontFamily}`;
  ctx.textAlign = 'left';
  ctx.textBaseline = 'middle';
  for (const { from, to, row, colour, text } of cells) {
    const [left, right] = [plot.valToPos(from, 'x', true), plot.valToPos(to, 'x', true)];
    const margin = (1 - fill) / 2;
    const [top, bottom] = [plot.valToPos(row + 1 - margin, 'y', true), plot.valToPos(row + margin, 'y', true)];
    ctx.fillStyle = colour;
    ctx.fillRect(left, top, right - left - gap * ratio, bottom - top - gap * ratio);
    if (text && ctx.measureText(text).width + 8 * ratio < right - left) {
      ctx.fillStyle = theme.colors.getContrastText(colour);
      ctx.fillText(text, Math.max(left, bbox.left) + 4 * ratio, (top + bottom) / 2);
    }
  }
  ctx.restore();
}

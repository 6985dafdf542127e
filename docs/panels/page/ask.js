// What a panel asks of Prometheus, and the answers as the frames that Grafana's Prometheus data source makes of them.
import { FieldType, toDataFrame } from '@grafana/data';

/** A text with its `$name` and `${name}` filled in; what is not a variable of the board stays. */
export function filled(text, variables) {
  return text.replace(/\$(?:\{(\w+)\}|(\w+))/g, (whole, braced, bare) => variables[braced ?? bare] ?? whole);
}

/** One frame for each series, or one for all of them where the target wants a table. */
export async function framesOf(target, asked) {
  const series = target.instant ? await atEnd(target, asked) : await overTime(target, asked);
  if (target.format === 'table') {
    return series.length ? [asTable(target, series, asked.panel.targets.length > 1)] : [];
  }
  if (target.format === 'heatmap') {
    return series.length ? [asBuckets(target, series)] : [];
  }
  return series.map((each) => asLine(target, each, asked.stepS));
}

/** Time and value of exemplars: of all within one of so many parts of the time the highest, as Grafana shows but some. */
export async function exemplarsOf(target, { variables, fromS, toS }, parts = 40) {
  const query = { query: filled(target.expr, variables), start: fromS, end: toS };
  const found = await prometheus('query_exemplars', query);
  const highest = new Map();
  for (const { timestamp, value } of found.flatMap((series) => series.exemplars)) {
    const part = Math.floor(((timestamp - fromS) / (toS - fromS)) * parts);
    if (!highest.has(part) || highest.get(part)[1] < Number(value)) {
      highest.set(part, [timestamp * 1000, Number(value)]);
    }
  }
  return [...highest.values()];
}

/** When a mark begins: the first moment of each stretch in which its query has an answer. */
export async function beginningsOf(annotation, shown) {
  const stepS = Number.parseInt(annotation.step, 10);
  const series = await overTime(annotation, { ...shown, stepS });
  return series.flatMap(({ values }) =>
    values.filter(([t], place) => place === 0 || t - values[place - 1][0] > stepS).map(([t]) => t * 1000),
  );
}

async function atEnd({ expr }, { variables, toS }) {
  const found = await prometheus('query', { query: filled(expr, variables), time: toS });
  return found.result.map(({ metric, value }) => ({ metric, values: [value] }));
}

async function overTime({ expr }, { variables, fromS, toS, stepS }) {
  const range = { start: Math.ceil(fromS / stepS) * stepS, end: toS, step: stepS };
  const found = await prometheus('query_range', { query: filled(expr, variables), ...range });
  return found.result;
}

async function prometheus(what, query) {
  const answer = await fetch(`/api/v1/${what}?${new URLSearchParams(query)}`);
  const said = await answer.json();
  if (said.status !== 'success') {
    throw new Error(`Prometheus answers ${answer.status} to ${query.query}: ${said.error}`);
  }
  return said.data;
}

function asLine({ refId, legendFormat }, { metric, values }, stepS) {
  const name = named(legendFormat, metric);
  return toDataFrame({
    refId,
    name,
    fields: [
      {
        name: 'Time',
        type: FieldType.time,
        values: values.map(([t]) => t * 1000),
        config: { interval: stepS * 1000 },
      },
      {
        name: 'Value',
        type: FieldType.number,
        labels: metric,
        values: values.map(([, value]) => number(value)),
        config: name ? { displayNameFromDS: name } : {},
      },
    ],
  });
}

/** Nothing where there is no number, so that a line breaks there. */
function number(text) {
  const found = Number(text);
  return Number.isFinite(found) ? found : null;
}

/** Without a legend of its own, Grafana names a series by its labels. */
function named(legend, labels) {
  return legend === '__auto' ? '' : legend.replace(/{{\s*(\w+)\s*}}/g, (_, label) => labels[label] ?? '');
}

function asTable({ refId }, series, oneOfSeveral) {
  const labels = [...new Set(series.flatMap(({ metric }) => Object.keys(metric)))].sort();
  return toDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: series.map(({ values: [[t]] }) => t * 1000) },
      ...labels.map((name) => ({
        name,
        type: FieldType.string,
        values: series.map(({ metric }) => metric[name] ?? ''),
      })),
      {
        name: oneOfSeveral ? `Value #${refId}` : 'Value',
        type: FieldType.number,
        values: series.map(({ values: [[, value]] }) => Number(value)),
      },
    ],
  });
}

/** A field for each bucket, lowest first, with what is in it alone: Prometheus' buckets hold those below, too. */
function asBuckets({ refId }, series) {
  const bound = ({ metric }) => (metric.le === '+Inf' ? Infinity : Number(metric.le));
  const sorted = [...series].sort((one, other) => bound(one) - bound(other));
  const times = [...new Set(sorted.flatMap(({ values }) => values.map(([t]) => t)))].sort((a, b) => a - b);
  const upTo = sorted.map(({ values }) => new Map(values.map(([t, value]) => [t, Number(value)])));
  const within = (place, t) => (upTo[place].get(t) ?? 0) - (place ? (upTo[place - 1].get(t) ?? 0) : 0);
  return toDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: times.map((t) => t * 1000) },
      ...sorted.map((each, place) => ({
        name: String(bound(each)),
        type: FieldType.number,
        values: times.map((t) => within(place, t)),
      })),
    ],
  });
}

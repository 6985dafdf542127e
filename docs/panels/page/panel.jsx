// One panel in Grafana's frame: it asks, has the answers configured, and draws them.
import { dateTime } from '@grafana/data';
import { PanelChrome } from '@grafana/ui';
import { useEffect, useState } from 'react';

import { exemplarsOf, filled, framesOf } from './ask.js';
import { Grid, Heat, States } from './cells.jsx';
import { configured, transformed } from './fields.js';
import { Bars, Stat } from './figures.jsx';
import { Lines } from './lines.jsx';
import { TableOf } from './table.jsx';

const DRAWN_BY = {
  bargauge: Bars,
  heatmap: Heat,
  'state-timeline': States,
  stat: Stat,
  'status-history': Grid,
  table: TableOf,
  timeseries: Lines,
};

export function Panel({ panel, shown, marks, theme, width, height, onDrawn }) {
  const [answers, setAnswers] = useState(null);
  const replace = (text) => filled(text, shown.variables);
  useEffect(() => {
    answersOf(panel, shown, theme, replace)
      .then(setAnswers)
      .catch((error) => onDrawn(`${panel.title}: ${error.message}`));
  }, []);
  useEffect(() => {
    if (answers) {
      onDrawn('');
    }
  }, [answers]);
  const Drawn = DRAWN_BY[panel.type];
  const timeRange = rangeOf(shown);
  return (
    <PanelChrome title={replace(panel.title)} description={panel.description} width={width} height={height}>
      {(innerWidth, innerHeight) => {
        if (!answers) {
          return null;
        }
        if (!answers.frames.length && panel.type !== 'stat') {
          return <Nothing text={panel.fieldConfig.defaults.noValue} height={innerHeight} />;
        }
        const given = { panel, theme, replace, marks, timeRange, ...answers };
        return <Drawn {...given} width={innerWidth} height={innerHeight} />;
      }}
    </PanelChrome>
  );
}

async function answersOf(panel, shown, theme, replace) {
  if (!(panel.type in DRAWN_BY)) {
    throw new Error(`expected one of ${Object.keys(DRAWN_BY).join(', ')}, found ${panel.type}: docs/panels can't draw it`);
  }
  const stepS = Math.max(1, Math.ceil((shown.toS - shown.fromS) / (panel.maxDataPoints ?? 300)));
  const asked = { ...shown, panel, stepS };
  const found = await Promise.all(panel.targets.map((target) => framesOf(target, asked)));
  const dotted = panel.targets.filter(({ exemplar }) => exemplar);
  const exemplars = await Promise.all(dotted.map((target) => exemplarsOf(target, asked)));
  const frames = found.flat();
  const wanted = frames.length ? await transformed(panel, frames) : frames;
  return { frames: configured(panel, wanted, theme, replace), exemplars: exemplars.flat() };
}

function rangeOf({ fromS, toS }) {
  const [from, to] = [dateTime(fromS * 1000), dateTime(toS * 1000)];
  return { from, to, raw: { from, to } };
}

/** As Grafana says it where an answer is empty. */
function Nothing({ text, height }) {
  return (
    <div className="nothing" style={{ height }}>
      {text ?? 'No data'}
    </div>
  );
}

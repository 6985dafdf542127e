// Time series: Grafana's own plot and legend. A line breaks where a series has no value.
import { applyNullInsertThreshold } from '@grafana/data';
import { TimeSeries } from '@grafana/ui';

import { Marks } from './marks.jsx';

export function Lines({ panel, frames, exemplars, marks, theme, timeRange, width, height }) {
  const [refFieldPseudoMin, refFieldPseudoMax] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const broken = frames.map((frame) => applyNullInsertThreshold({ frame, refFieldPseudoMin, refFieldPseudoMax }));
  return (
    <TimeSeries
      frames={broken}
      width={width}
      height={height}
      timeRange={timeRange}
      timeZone="utc"
      legend={panel.options.legend}
      options={panel.options}
    >
      {(builder) => (
        <Marks
          builder={builder}
          scaleKey={() => builder.getSeries()[0].props.scaleKey}
          dots={exemplars}
          lines={marks}
          theme={theme}
        />
      )}
    </TimeSeries>
  );
}

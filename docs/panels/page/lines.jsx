// Time series: Grafana's own plot and legend.
import { TimeSeries } from '@grafana/ui';

import { Marks } from './marks.jsx';

export function Lines({ panel, frames, exemplars, marks, theme, timeRange, width, height }) {
  return (
    <TimeSeries
      frames={frames}
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

// Table: Grafana's own, of one frame.
import { TableNG } from '@grafana/ui/unstable';

export function TableOf({ panel, frames, timeRange, width, height }) {
  return (
    <div style={{ width, height }}>
      <TableNG
        data={frames[0]}
        width={width}
        height={height}
        timeRange={timeRange}
        cellHeight={panel.options.cellHeight}
        noHeader={!panel.options.showHeader}
        fieldConfig={panel.fieldConfig}
        noValue={panel.fieldConfig.defaults.noValue}
        enableVirtualization={false}
      />
    </div>
  );
}

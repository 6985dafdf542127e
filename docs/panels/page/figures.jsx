// Stat and bar gauge: Grafana's own figures, one for each field.
import { getDisplayValueAlignmentFactors, getFieldDisplayValues, VizOrientation } from '@grafana/data';
import { BarGaugeNamePlacement } from '@grafana/schema';
import { BarGauge, BigValue, VizRepeater } from '@grafana/ui';

export function Stat({ panel, frames, theme, replace, width, height }) {
  const { options } = panel;
  return (
    <VizRepeater
      getValues={() => valuesOf(panel, frames, theme, replace, options.graphMode !== 'none')}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={(each) => (
        <BigValue
          theme={theme}
          width={each.width}
          height={each.height}
          count={each.count}
          value={each.value.display}
          sparkline={each.value.sparkline}
          alignmentFactors={each.alignmentFactors}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
          text={options.text}
        />
      )}
      source={frames}
      renderCounter={0}
      orientation={options.orientation}
      autoGrid
      width={width}
      height={height}
    />
  );
}

export function Bars({ panel, frames, theme, replace, width, height }) {
  const { options } = panel;
  return (
    <VizRepeater
      getValues={() => valuesOf(panel, frames, theme, replace, false)}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={(each) => (
        <BarGauge
          theme={theme}
          width={each.width}
          height={each.height}
          value={each.value.display}
          field={each.value.field}
          display={each.value.view?.getFieldDisplayProcessor(each.value.colIndex)}
          alignmentFactors={each.alignmentFactors}
          orientation={VizOrientation.Horizontal}
          displayMode={options.displayMode}
          namePlacement={options.namePlacement ?? BarGaugeNamePlacement.Auto}
          showUnfilled={options.showUnfilled}
          valueDisplayMode={options.valueMode}
        />
      )}
      source={frames}
      renderCounter={0}
      orientation={options.orientation}
      minVizWidth={options.minVizWidth}
      minVizHeight={options.minVizHeight}
      width={width}
      height={height}
    />
  );
}

function valuesOf(panel, frames, theme, replaceVariables, sparkline) {
  const { fieldConfig, options } = panel;
  const { reduceOptions } = options;
  const asked = { data: frames, fieldConfig, reduceOptions, replaceVariables, sparkline, theme, timeZone: 'utc' };
  return getFieldDisplayValues(asked);
}

// Transformations and field config of a panel, both applied by Grafana's own code.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  FieldConfigOptionsRegistry,
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

const { mergeTransformer, organizeFieldsTransformer, renameByRegexTransformer } = standardTransformers;
standardTransformersRegistry.setInit(() =>
  [mergeTransformer, organizeFieldsTransformer, renameByRegexTransformer].map((each) => ({
    id: each.id,
    name: each.name,
    transformation: () => Promise.resolve(each),
  })),
);

/** The frames as the panel wants them. */
export function transformed(panel, frames) {
  const context = { interpolate: (text) => text };
  return firstValueFrom(transformDataFrame(panel.transformations ?? [], frames, context));
}

/** The frames with units, thresholds, mappings, names and overrides of the panel. */
export function configured(panel, frames, theme, replaceVariables) {
  const found = applyFieldOverrides({
    data: frames,
    fieldConfig: panel.fieldConfig,
    fieldConfigRegistry: registryOf(panel.fieldConfig),
    replaceVariables,
    theme,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(found);
  return found;
}

/** A Grafana server registers the properties that a panel's plugin knows; here they are those that the panel sets. */
function registryOf({ defaults, overrides }) {
  const { custom = {}, ...standard } = defaults;
  const ids = new Set([
    ...Object.keys(standard),
    ...Object.keys(custom).map((key) => `custom.${key}`),
    ...overrides.flatMap(({ properties }) => properties.map(({ id }) => id)),
  ]);
  return new FieldConfigOptionsRegistry(() => [...ids].map(property));
}

function property(id) {
  const isCustom = id.startsWith('custom.');
  return {
    id,
    name: id,
    path: isCustom ? id.slice('custom.'.length) : id,
    isCustom,
    process: (value) => value,
    shouldApply: () => true,
  };
}

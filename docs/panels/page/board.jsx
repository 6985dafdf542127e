// A board of pushscope, with its panels where their gridPos says. `/job.json` says which, and for which time;
// `window.drawn` is set when all panels are there, to a list of what went wrong.
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import './board.css';
import { createTheme, dateTimeFormat } from '@grafana/data';
import { GlobalStyles, Icon, ThemeContext } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import { beginningsOf } from './ask.js';
import { Panel } from './panel.jsx';

const [COLUMNS, UNIT_PX, MARGIN_PX, HEAD_PX] = [24, 30, 8, 44];

const job = await (await fetch('/job.json')).json();
const { board, variables } = job.boards[new URLSearchParams(location.search).get('board')];
const shown = { variables, fromS: job.fromS, toS: job.toS };
const theme = createTheme({ colors: { mode: 'dark' } });

const panels = board.panels.filter(({ type }) => type !== 'row');
const wrong = [];
let missing = panels.length;
function onDrawn(error) {
  missing -= 1;
  if (error) {
    wrong.push(error);
  }
  if (missing === 0) {
    setTimeout(() => Object.assign(window, { drawn: wrong }), 500);
  }
}

/** In pixels, as Grafana's grid has it. */
function place({ x, y, w, h }) {
  const column = (job.widthPx - MARGIN_PX) / COLUMNS;
  return {
    left: MARGIN_PX + x * column,
    top: HEAD_PX + y * (UNIT_PX + MARGIN_PX),
    width: w * column - MARGIN_PX,
    height: h * (UNIT_PX + MARGIN_PX) - MARGIN_PX,
  };
}

function Board({ marks }) {
  const bottom = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const time = (s) => dateTimeFormat(s * 1000, { timeZone: 'utc', format: 'YYYY-MM-DD HH:mm:ss' });
  return (
    <div className="board" style={{ width: job.widthPx, height: place({ x: 0, y: bottom, w: 0, h: 0 }).top }}>
      <div className="title">
        {board.title}
        <small>
          {time(shown.fromS)} to {time(shown.toS)} UTC
        </small>
      </div>
      {board.panels.map((each) => {
        const style = place(each.gridPos);
        if (each.type === 'row') {
          return (
            <div key={each.id} className="heading" style={style}>
              <Icon name="angle-down" /> {each.title}
            </div>
          );
        }
        return (
          <div key={each.id} style={style} data-panel={each.title}>
            <Panel
              panel={each}
              shown={shown}
              marks={marks}
              theme={theme}
              width={style.width}
              height={style.height}
              onDrawn={onDrawn}
            />
          </div>
        );
      })}
    </div>
  );
}

const marks = await Promise.all(
  board.annotations.list
    .filter(({ expr }) => expr)
    .map(async (each) => {
      const times = await beginningsOf(each, shown);
      return times.map((t) => [t, each.iconColor]);
    }),
);
await Promise.all([400, 500].map((weight) => document.fonts.load(`${weight} 14px Inter`))); // before any text is measured
createRoot(document.getElementById('board')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles isExtensionSidebarOpen={false} hackNoBackdropBlur={false} />
    <Board marks={marks.flat()} />
  </ThemeContext.Provider>,
);

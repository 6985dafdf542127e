// Draws boards with Grafana's own panel code, in headless Chromium, of what a Prometheus has:
//
//   node draw.mjs JOB.json FOLDER
//
// JOB.json: {prometheus: URL, fromS, toS, widthPx, boards: {NAME: {board: the JSON, variables: {…}, pieces: 2}}}. Writes
// FOLDER/NAME-1.png, …: a board cut above the headings of rows. Says what went wrong, and exits with 1.
import { createReadStream } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';

import { build } from 'esbuild';
import { chromium } from 'playwright-core';

const HERE = import.meta.dirname;
const KINDS = { '.css': 'text/css', '.html': 'text/html', '.js': 'text/javascript', '.svg': 'image/svg+xml' };
const SETTLE_MS = 500;
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** The page and all that it needs, below a folder. */
async function bundle(folder) {
  await build({
    entryPoints: { board: path.join(HERE, 'page/board.jsx') },
    outdir: folder,
    bundle: true,
    splitting: true,
    format: 'esm',
    jsx: 'automatic',
    target: 'es2022',
    define: { 'process.env.NODE_ENV': '"production"' },
    loader: Object.fromEntries(['.svg', '.png', '.gif', '.woff', '.woff2', '.ttf'].map((kind) => [kind, 'dataurl'])),
    logLevel: 'error',
  });
}

/** Serves the page, Grafana's icons, the job, and what Prometheus answers. */
function serve(folder, job) {
  const icons = path.join(HERE, 'node_modules/@grafana/ui/dist/public/img/icons');
  const places = { '/': path.join(HERE, 'page/index.html') };
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    if (pathname === '/job.json') {
      response.setHeader('content-type', 'application/json').end(JSON.stringify(job));
    } else if (pathname.startsWith('/api/v1/')) {
      const asked = http.get(job.prometheus + request.url, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
      asked.on('error', (error) => response.writeHead(502).end(JSON.stringify({ error: error.message })));
    } else {
      const [, icon] = pathname.match(/^\/public\/build\/img\/icons(\/.+)$/) ?? [];
      const file = places[pathname] ?? (icon ? path.join(icons, icon) : path.join(folder, pathname));
      const sent = createReadStream(file);
      sent.on('error', () => response.writeHead(404).end());
      sent.on('open', () => {
        response.setHeader('content-type', KINDS[path.extname(file)] ?? 'application/octet-stream');
        sent.pipe(response);
      });
    }
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(server));
  });
}

/** Heights at which a board is cut into so many pieces of much the same height, each above a row. */
function cuts(rows, height, pieces) {
  const between = Array.from({ length: pieces - 1 }, (_, place) => {
    const ideal = (height * (place + 1)) / pieces;
    return rows.reduce((best, top) => (Math.abs(top - ideal) < Math.abs(best - ideal) ? top : best));
  });
  return [0, ...between, height];
}

async function draw(browser, url, name, { pieces }, widthPx, out) {
  const page = await browser.newPage({ viewport: { width: widthPx, height: 1000 } });
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(error.message));
  await page.goto(`${url}/?board=${encodeURIComponent(name)}`);
  try {
    await page.waitForFunction('window.drawn', null, { timeout: 120_000 });
    wrong.push(...(await page.evaluate('window.drawn')));
  } catch {
    wrong.push('expected the board to be drawn within 120 s');
  }
  const rows = await page.locator('.heading').evaluateAll((found) => found.map((row) => row.offsetTop));
  const height = await page.locator('.board').evaluate((found) => found.offsetHeight);
  await page.setViewportSize({ width: widthPx, height });
  await page.waitForTimeout(SETTLE_MS);
  const edges = cuts(rows, height, pieces);
  for (let place = 0; place < pieces; place += 1) {
    const clip = { x: 0, y: edges[place], width: widthPx, height: edges[place + 1] - edges[place] };
    await page.screenshot({ path: path.join(out, `${name}-${place + 1}.png`), clip });
  }
  await page.close();
  return wrong.map((text) => `${name}: ${text}`);
}

async function main([file, out]) {
  if (!file || !out) {
    throw new Error('expected a job and a folder: node draw.mjs JOB.json FOLDER');
  }
  const job = JSON.parse(await readFile(file, 'utf8'));
  const folder = await mkdtemp(path.join(tmpdir(), 'pushscope-panels-'));
  await bundle(folder);
  const server = await serve(folder, job);
  const url = `http://127.0.0.1:${server.address().port}`;
  const quiet = ['--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-component-update'];
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-sync', ...quiet] });
  const wrong = [];
  for (const [name, board] of Object.entries(job.boards)) {
    wrong.push(...(await draw(browser, url, name, board, job.widthPx, out)));
  }
  await browser.close();
  server.close();
  await rm(folder, { recursive: true });
  wrong.forEach((text) => console.error(text));
  process.exitCode = wrong.length ? 1 : 0;
}

await main(process.argv.slice(2));

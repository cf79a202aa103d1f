// npm packages for a test, in a temporary folder that is removed after it.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

// The exit status that CTest counts as skipped.
const SKIPPED = 77;

// Installs packages; returns their folder. If npm cannot install them, prints a line and skips the test.
export function install(...packages) {
  const folder = mkdtempSync(join(tmpdir(), 'triptych-npm-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const options = ['--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error',
    '--fetch-retries=1', '--fetch-retry-mintimeout=1000'];
  const npm = spawnSync('npm', ['install', '--prefix', folder, ...options, ...packages],
    { encoding: 'utf8', timeout: 120_000 });
  if (npm.status === 0) return join(folder, 'node_modules');
  const why = npm.error?.message ?? npm.stderr.split('\n')[0];
  console.log(`skipped ${basename(process.argv[1])}: npm cannot install ${packages.join(' ')}: ${why}`);
  process.exit(SKIPPED);
}

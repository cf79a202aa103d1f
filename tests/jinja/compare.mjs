// compare.mjs RENDER PYTHON [PATH...]: compares renderings of published chat templates with those of
// Python's jinja2, which is right where they differ, and of @huggingface/jinja. The templates come from
// npm; PATHs are more: files, or folders with .jinja files. RENDER is the program of render.cc.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { install } from '../server/npm_packages.mjs';
import { conversations } from './conversations.mjs';
import { PACKAGE, publishedTemplates } from './published_templates.mjs';

const [render, python, ...paths] = process.argv.slice(2);
process.env.TZ = 'UTC';
const NOW = Math.floor(Date.now() / 1000);

const packages = install('@huggingface/jinja@0.5.11', PACKAGE);
const { Template } = await import(join(packages, '@huggingface/jinja/dist/index.js'));
const templates = await publishedTemplates(packages);
for (const path of paths) {
  const files = statSync(path).isDirectory()
    ? readdirSync(path).filter((file) => file.endsWith('.jinja')).map((file) => join(path, file))
    : [path];
  for (const file of files) templates.push({ name: file, template: readFileSync(file, 'utf8') });
}

function ask(program, args, lines) {
  const input = lines.map((line) => JSON.stringify(line) + '\n').join('');
  const { status, stdout, stderr } =
    spawnSync(program, args, { input, encoding: 'utf8', maxBuffer: 1 << 30 });
  if (status === 77) return null;
  assert.equal(status, 0, stderr);
  return stdout.trimEnd().split('\n').map((line) => JSON.parse(line));
}

function askHuggingFace(template, { variables, own }) {
  try {
    return { text: template.render({ ...variables, ...own }) };
  } catch (error) {
    return { error: error.message };
  }
}

const own = { bos_token: '<s>', eos_token: '</s>' };
let failed = 0;
let count = 0;
let errors = 0;
let others = 0;
let hasJinja2 = true;
for (const { name, template } of templates) {
  const lines = conversations.map((variables) => ({ template, variables, own, now: NOW }));
  const ours = ask(render, [], lines);
  const jinja2 = ask(python, [join(dirname(fileURLToPath(import.meta.url)), 'render_jinja2.py')], lines);
  hasJinja2 = jinja2 !== null;
  let parsed = null;  // a template that the package cannot parse counts as refused
  try { parsed = new Template(template); } catch { /* below */ }
  for (const [i, line] of lines.entries()) {
    const answer = ours[i];
    const other = askHuggingFace(parsed, line);
    const right = hasJinja2 ? jinja2[i] : other;
    ++count;
    if (answer.error !== undefined) ++errors;
    if (other.text !== right.text) ++others;
    if (answer.text === right.text) continue;
    if (++failed > 20) continue;
    console.log(`${name}, conversation ${i}: ${JSON.stringify(line.variables)}\n` +
      `  expected: ${JSON.stringify(right)}\n  rendered: ${JSON.stringify(answer)}`);
  }
}
console.log(`${templates.length} templates, ${count} renderings, ${errors} of them refused; compared with ` +
  `${hasJinja2 ? `jinja2, from which @huggingface/jinja differs in ${others}` : '@huggingface/jinja'}`);
assert.equal(failed, 0, `${failed} renderings differ`);

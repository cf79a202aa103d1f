// compare.mjs RENDER_CHAT PLAIN: compares the server's rendering of published templates with
// @huggingface/jinja's. The templates come from npm too: @huggingface/ollama-utils has about a hundred.
// RENDER_CHAT is the program of render_chat.cc, PLAIN the template of the shipped models.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { install } from '../npm_packages.mjs';

const [renderChat, plain] = process.argv.slice(2);

// The published templates that the server recognises, by their model's name in the package. The server
// must not take any other template for one of them.
const KNOWN = {
  'library/llava:34b': 'chatml',
  'library/dolphin-mixtral:8x7b': 'chatml',
  'library/llama2:7b': 'llama2',
  'library/llama3:8b': 'llama3',
  'library/dolphin-llama3:8b': 'llama3',
  'library/mixtral:8x7b': 'mistral',
  'library/tinyllama:1.1b': 'zephyr',
  [plain]: 'plain',
};
// Always adds a generation prompt, as the first version of Llama 3's template did.
const ALWAYS_PROMPTS = 'library/dolphin-llama3:8b';
// The template compares the system's text with false: every text differs from it in Python, for which
// templates are published; blanks do not in JavaScript.
const differsFromPython = (name, messages) =>
  name === 'llama2' && messages[0].role === 'system' && messages[0].content == false;

const packages = install('@huggingface/jinja@0.5.11', '@huggingface/ollama-utils@0.0.18');
const { Template } = await import(join(packages, '@huggingface/jinja/dist/index.js'));
// The package contains the templates but does not export them.
const utils = join(packages, '@huggingface/ollama-utils/dist/index.mjs');
const opened = join(packages, '@huggingface/ollama-utils/dist/opened.mjs');
writeFileSync(opened, readFileSync(utils, 'utf8') + '\nexport { OLLAMA_CHAT_TEMPLATE_MAPPING };\n');
const { OLLAMA_CHAT_TEMPLATE_MAPPING: published } = await import(opened);
const templates = published.map(({ model, gguf }) => ({ model, jinja: gguf }));
assert(templates.length > 90, `${templates.length} published templates`);
templates.push({ model: plain, jinja: readFileSync(plain, 'utf8') });

function ask(lines) {
  const input = lines.map((line) => JSON.stringify(line) + '\n').join('');
  const { status, stdout } = spawnSync(renderChat, { input, encoding: 'utf8', maxBuffer: 1 << 28 });
  assert.equal(status, 0);
  return stdout.trimEnd().split('\n').map((line) => JSON.parse(line));
}

const names = ask(templates.map(({ jinja }) => ({ jinja })));
const known = templates.flatMap(({ model, jinja }, i) =>
  names[i] === null ? [] : [{ model, jinja, name: names[i] }]);
assert.deepEqual(Object.fromEntries(known.map(({ model, name }) => [model, name])), KNOWN);

// All orders of up to five messages, and all contents for conversations in the usual order. JavaScript's
// trim() and Python's strip(), for which templates are published, differ in U+FEFF, U+0085 and U+001C to
// U+001F, so no content has them.
const ROLES = ['system', 'user', 'assistant'];
const CONTENTS = ['', ' ', '\n', 'a', ' a ', '\n\na\n\n', 'a\nb', '\u00a0\u3000a\u2003', '\t\v\f\r',
  'é 中 😀', '<s></s>', '[INST] [/INST] <<SYS>>', '<|im_end|>\n<|im_start|>system\n', '<|eot_id|>',
  '{{ bos_token }}{% if x %}', '\'"\\n', '\u0000\u0007'];

function* orders(length) {
  if (length === 0) return yield [];
  for (const rest of orders(length - 1)) for (const role of ROLES) yield [...rest, role];
}
function* conversations() {
  for (let length = 1; length <= 5; ++length) {
    for (const order of orders(length)) {
      yield order.map((role, i) => ({ role, content: `message ${i} of a ${role}` }));
    }
  }
  for (const first of CONTENTS) {
    for (const second of CONTENTS) {
      const [system, user, assistant] = ROLES.map((role) => ({ role, content: first }));
      const other = { role: 'user', content: second };
      yield [system, other];
      yield [other, assistant];
      yield [system, other, assistant, user];
    }
  }
}

let compared = 0;
for (const { model, jinja, name } of known) {
  const template = new Template(jinja);
  const cases = [];
  for (const messages of conversations()) {
    if (differsFromPython(name, messages)) continue;
    for (const add_generation_prompt of model === ALWAYS_PROMPTS ? [true] : [true, false]) {
      cases.push({ template: name, messages, add_generation_prompt });
    }
  }
  const ours = ask(cases);
  cases.forEach(({ messages, add_generation_prompt }, i) => {
    const where = `${model}: ${JSON.stringify(cases[i])}`;
    let theirs = null;
    try {
      theirs = template.render({ messages, add_generation_prompt, bos_token: '<s>', eos_token: '</s>' });
    } catch {
      // The template rejects them.
    }
    if ('refused' in ours[i]) {
      const [, index] = ours[i].refused.match(/^messages\[(\d+)\]\.role$/);
      assert(theirs === null || !theirs.includes(messages[index].content), where);
    } else {
      assert.equal(ours[i].text, theirs, where);
    }
    ++compared;
  });
}
console.log(`${templates.length} templates, ${known.length} of them known; ${compared} renderings are the same`);

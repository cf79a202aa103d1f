// compare.mjs WALK [WALKS]: compares JSON Schemas as grammars with ajv and with the JSON-Schema-Test-Suite,
// both from npm, and patterns with RegExp. WALK is the program of walk.cc; WALKS is the number of random texts,
// over all schemas.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { install } from '../server/npm_packages.mjs';
import { schemas } from './schemas.mjs';

const [walk, walks = '100000'] = process.argv.slice(2);
const packages = install('ajv@8.20.0', 'ajv-formats@3.0.1', 'json-schema-test-suite@0.0.10');
const require = createRequire(join(packages, 'x.js'));
const Ajv = require('ajv/dist/2020').default;

function ask(lines) {
  const input = lines.map((line) => JSON.stringify(line) + '\n').join('');
  const { status, stdout, stderr } = spawnSync(walk, [], { input, encoding: 'utf8', maxBuffer: 1 << 30 });
  assert.equal(status, 0, stderr);
  return stdout.trimEnd().split('\n').map((line) => JSON.parse(line));
}

// Every text that a grammar generates is valid.
// ajv divides in float64 to tell multiples: 0.07 / 0.01 is no integer.
const ajv = new Ajv({ strict: false, allErrors: true, multipleOfPrecision: 3 });
require('ajv-formats')(ajv);
const each = Math.ceil(walks / schemas.length);
let texts = 0;
ask(schemas.map((schema) => ({ schema: JSON.stringify(schema), texts: [], walks: each })))
  .forEach((answer, i) => {
    const shown = JSON.stringify(schemas[i]);
    assert(!answer.refused, `${shown}: ${answer.refused}`);
    const validate = ajv.compile(schemas[i]);
    for (const text of answer.walks) {
      let value;
      assert.doesNotThrow(() => { value = JSON.parse(text); }, `${shown} accepts ${text}`);
      assert(validate(value), `${shown} accepts ${text}: ${ajv.errorsText(validate.errors)}`);
      ++texts;
    }
  });
console.log(`${texts} texts of ${schemas.length} schemas are valid`);

// Random patterns accept the texts that RegExp finds them in.
let seed = 1;
const draw = (choices) => {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return choices[(seed >>> 16) % choices.length];
};
const several = (most, make) => Array.from({ length: draw([...Array(most).keys()]) }, make).join('');
const repetition = () => draw(['', '', '', '*', '+', '?', '{2}', '{1,2}?', '{2,}']);
const atom = (depth) => draw([
  () => draw(['^', '$', '\\b', '\\B']),
  () => draw(['a', 'b', 'K', '_', ' ', '1', '\\n', '\\u00e9', '\\u{1F600}', '\\cM', '\\x41', '(?:\\0)']) + repetition(),
  () => draw(['[ab]', '[^a]', '[]', '[^]', '[\\w-]', '[\\b\\s]', '\\d', '\\D', '\\w', '\\W', '\\s', '\\S', '.', '\\p{Lu}',
    '\\P{L}', '\\p{Script=Greek}', '[\\p{sc=Greek}\\p{Nd}]', '\\p{C}']) + repetition(),
  () => draw(['(', '(?:']) + (depth > 0 ? alternatives(depth - 1) : 'a') + ')' + repetition(),
])();
const alternatives = (depth) => several(4, () => atom(depth)) + draw(['', '', '|' + several(3, () => atom(depth))]);
const values = () => Array.from({ length: 20 }, () => several(6, () => draw([
  'a', 'b', 'A', 'K', '_', ' ', '\n', '\r', '\0', '\b', '1', '-', '\u00e9', '\u2028', '\u03b1', '\ufeff', '\u{1F600}', '\u{e0080}'])));
const patterns = Array.from({ length: 3000 }, () => ({ pattern: alternatives(2), values: values() }));
// V8 finds \B also between the units of a pair of surrogates.
for (const one of patterns.filter(({ pattern }) => pattern.includes('\\B'))) {
  one.values = one.values.map((value) => value.replace(/[\u{10000}-\u{10ffff}]/gu, '-'));
}
let found = 0;
ask(patterns.map(({ pattern, values }) => ({
  schema: JSON.stringify({ type: 'string', pattern }), texts: values.map((value) => JSON.stringify(value)), walks: 0,
}))).forEach((answer, i) => {
  const { pattern, values } = patterns[i];
  if (answer.refused) assert.match(answer.refused, /has no finite text/, pattern);
  values.forEach((value, j) => {
    const expected = new RegExp(pattern, 'u').test(value);
    assert.equal(answer.refused ? false : answer.accepted[j], expected, `${pattern} in ${JSON.stringify(value)}`);
    found += expected ? 1 : 0;
  });
});
console.log(`${patterns.length} patterns are found as by RegExp, in ${found} texts`);
assert(found > 10000, `${found} texts with a match`);

// The texts of a value with its members in every order: a grammar has one. Inner members keep theirs.
function textsOf(value) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [JSON.stringify(value)];
  const orders = (names) => names.length < 2 ? [names]
    : names.flatMap((name) => orders(names.filter((other) => other !== name)).map((rest) => [name, ...rest]));
  const names = Object.keys(value);
  const member = (name) => `${JSON.stringify(name)}:${JSON.stringify(value[name])}`;
  return (names.length > 4 ? [names] : orders(names)).map((order) => `{${order.map(member).join()}}`);
}

// The instances of a schema that compiles are accepted and refused as the suite says. Returns their number.
function compareSuite(name, files) {
  const cases = files.flatMap((file) =>
    JSON.parse(readFileSync(file, 'utf8')).map((group) => ({ file: basename(file), ...group })));
  const refused = [];
  let compared = 0;
  ask(cases.map(({ schema, tests }) => ({
    schema: JSON.stringify(schema),
    texts: tests.flatMap(({ data }) => textsOf(data)),
    walks: 0,
  }))).forEach((answer, i) => {
    const { file, description, tests, schema } = cases[i];
    if (answer.refused) return refused.push(`${file}: ${description}: ${answer.refused}`);
    tests.forEach(({ description: test, valid, data }) => {
      const what = `${file}: ${description}: ${test}: ${JSON.stringify(schema)} ${JSON.stringify(data)}`;
      const accepted = answer.accepted.splice(0, textsOf(data).length);
      assert.equal(accepted.includes(true), valid, what);
      ++compared;
    });
  });
  console.log(`${name}: ${compared} instances of ${cases.length - refused.length} schemas are accepted and refused as the `
    + `suite says; ${refused.length} schemas are not supported:`);
  for (const one of refused) console.log(`  ${one}`);
  return compared;
}
const filesOf = (folder) => readdirSync(folder).filter((file) => file.endsWith('.json')).map((file) => join(folder, file));

// In draft 4, some keywords have other meanings or names; those schemas are refused.
const draft4 = compareSuite('draft 4', filesOf(join(packages, 'json-schema-test-suite/tests/draft4')));
assert(draft4 > 150, 'most schemas compile');

// No package has the suite of draft 2020-12. A checkout of json-schema-org/JSON-Schema-Test-Suite is data outside of
// the repository. Its format.json takes `format` as a comment, and vocabulary.json has another meta-schema.
const data = process.env.TRIPTYCH_SHARED_DATA ?? fileURLToPath(new URL('../../../shared/data', import.meta.url));
const suite = join(data, 'JSON-Schema-Test-Suite/tests/draft2020-12');
if (existsSync(suite)) {
  const others = ['format.json', 'vocabulary.json'];
  const newest = compareSuite('draft 2020-12', filesOf(suite).filter((file) => !others.includes(basename(file))));
  assert(newest > 500, 'most schemas compile');
} else {
  console.log(`draft 2020-12 is not compared: there is no folder ${suite}`);
}

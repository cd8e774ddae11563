// SPDX-License-Identifier: Apache-2.0
// Writes tests/unit/data/hugging_face_ids.json: ids that Hugging Face's library gives to texts, for
// small tokenizers that have each construct of tokenizer.json once. It is run by hand:
//
//   npm install tokenizers && node make_hugging_face_ids.js [TEXTS] > hugging_face_ids.json
//
// TEXTS, 24 unless given, are made from characters on which rules of Unicode differ.
'use strict';
const {Tokenizer} = require('tokenizers');

let seed = 20261128;
function below(n) {  // xorshift32
  seed ^= seed << 13;
  seed >>>= 0;
  seed ^= seed >>> 17;
  seed ^= seed << 5;
  seed >>>= 0;
  return seed % n;
}

const atoms = [
  'a', 'b', 'c', 'ab', 'abc', 'A', 'B', 'Ab', ' ', ' ', '  ', '\t', '\n', '\u00a0', '\u3000', '\u2028',
  '\u0085', '\u180e', '\u200b', '\u200d', '\u200c', '1', '12', '123', '\u0663', '\u00bd', '\u2167', '.', ',',
  '!', '-', '_', '$', '+', '^', '`', '~', '(', ')', '\u00ab', '\u2014', '\u3002', '\u00e9', 'e\u0301',
  '\u0130', '\u1e9e', '\u00df', '\u03a3', '\u03c3\u03a3 ', '\ufb01', '\u2460', '\uff21', '\u0939\u093f',
  '\u4e2d', '\ud83d\ude00', '<x>', '<Y>', 'word', '\u2581', '\u0307', '\u200f', '\u00ad'];

function text() {
  let made = '';
  for (let left = 1 + below(12); left > 0; --left) made += atoms[below(atoms.length)];
  return made;
}

const count = Number(process.argv[2] || 24);
const texts = ['', ' ', 'ab', ' ab  abc '];
while (texts.length < count) texts.push(text());

// What bytes are written as (GPT-2's encoder.py).
function spelled(byte) {
  const itself = b => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  for (let b = 0; b < byte; ++b) next += itself(b) ? 0 : 1;
  return String.fromCodePoint(itself(byte) ? byte : next);
}

const added = [  // ids are those behind the vocabulary's
  {content: '<x>', special: true, normalized: false, lstrip: false, rstrip: false, single_word: false},
  {content: '<Y>', special: false, normalized: true, lstrip: false, rstrip: false, single_word: false}];

function model(tokens, merges, more) {
  const vocab = {};
  tokens.forEach((token, id) => { vocab[token] = id; });
  return {type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null,
          end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: false,
          vocab, merges, ...more};
}
const merges = [['a', 'b'], ['ab', 'c'], ['1', '2'], ['\u2581', 'ab'], [' ', ' '], ['.', '.']];
const characters = ['[UNK]', ...'abcdefgow ABY123.,!-_$+^`~()<>x\u2581\u0939\u00e9\u03c3\u00df\u4e2d\n\t',
                    'ab', 'abc', '12', '\u2581ab', '  ', '..'];
const unknown = model(characters, merges, {unk_token: '[UNK]'});
const fused = model(characters, merges, {unk_token: '[UNK]', fuse_unk: true});
const bytes = Array.from({length: 256}, (_, b) => '<0x' + b.toString(16).toUpperCase().padStart(2, '0') + '>');
const fallback = model([...characters, ...bytes], merges, {unk_token: '[UNK]', fuse_unk: true, byte_fallback: true});
const space = spelled(32);
const ofBytes = model([...Array.from({length: 256}, (_, b) => spelled(b)), 'ab', 'abc', space + 'ab', '12'],
                      [['a', 'b'], ['ab', 'c'], [space, 'ab'], ['1', '2']]);
const byteLevel = {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false};

const cases = [];
function add(name, parts) {
  const tokenizer = {version: '1.0', truncation: null, padding: null, added_tokens: added,
    normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, model: unknown, ...parts};
  const first = Object.keys(tokenizer.model.vocab).length;
  tokenizer.added_tokens = tokenizer.added_tokens.map((token, index) => ({id: first + index, ...token}));
  cases.push({name, tokenizer});
}
const sequence = (...normalizers) => ({type: 'Sequence', normalizers});
const split = (pattern, behavior, invert = false) => ({type: 'Split', pattern, behavior, invert});
const steps = (...pretokenizers) => ({type: 'Sequence', pretokenizers});

add('nothing', {});
add('fuse_unk', {model: fused});
add('byte_fallback', {model: fallback});
for (const type of ['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase', 'StripAccents']) {
  add(type, {normalizer: {type}, model: fallback});
}
add('Strip', {normalizer: {type: 'Strip', strip_left: true, strip_right: true}, model: fallback});
add('Strip of the left', {normalizer: {type: 'Strip', strip_left: true, strip_right: false}, model: fallback});
add('Replace of a string', {normalizer: {type: 'Replace', pattern: {String: 'ab'}, content: '-'}});
add('Replace of a pattern', {normalizer: {type: 'Replace', pattern: {Regex: '\\s+'}, content: ' '}, model: fallback});
add('Replace of nothing', {normalizer: {type: 'Replace', pattern: {Regex: 'a*'}, content: '-'}, model: fallback});
add('Sequence', {normalizer: sequence({type: 'NFKD'}, {type: 'StripAccents'}, {type: 'Lowercase'},
  {type: 'Strip', strip_left: true, strip_right: true}, {type: 'Prepend', prepend: '\u2581'}), model: fallback});
add('empty Sequence', {normalizer: sequence()});
for (const behavior of ['Isolated', 'Removed', 'Contiguous', 'MergedWithPrevious', 'MergedWithNext']) {
  add('Split by a string ' + behavior, {pre_tokenizer: split({String: ' '}, behavior)});
  add('Split by a pattern ' + behavior, {pre_tokenizer: split({Regex: '[0-9a]|$'}, behavior)});
  add('inverted Split ' + behavior, {pre_tokenizer: split({Regex: '\\w+'}, behavior, true)});
  add('Punctuation ' + behavior, {pre_tokenizer: {type: 'Punctuation', behavior}, model: fused});
}
for (const alone of [true, false]) {
  add('Digits ' + alone, {pre_tokenizer: {type: 'Digits', individual_digits: alone}, model: fused});
}
add('Whitespace', {pre_tokenizer: {type: 'Whitespace'}, model: fused});
add('WhitespaceSplit', {pre_tokenizer: {type: 'WhitespaceSplit'}, model: fused});
add('CharDelimiterSplit', {pre_tokenizer: {type: 'CharDelimiterSplit', delimiter: '-'}});
for (const scheme of ['always', 'first', 'never']) {
  for (const cuts of [true, false]) {
    add('Metaspace ' + scheme + ' ' + cuts, {pre_tokenizer:
      {type: 'Metaspace', replacement: '\u2581', prepend_scheme: scheme, split: cuts}, model: fallback});
  }
}
add('WhitespaceSplit and Metaspace', {pre_tokenizer: steps({type: 'WhitespaceSplit'},
  {type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always', split: true}), model: fused});
add('WhitespaceSplit, Punctuation, Digits', {pre_tokenizer: steps({type: 'WhitespaceSplit'},
  {type: 'Punctuation', behavior: 'Isolated'}, {type: 'Digits', individual_digits: true}), model: fused});
add('ByteLevel', {pre_tokenizer: {...byteLevel, use_regex: true}, model: ofBytes});
add('ByteLevel behind Splits', {normalizer: {type: 'Lowercase'}, pre_tokenizer: steps(
  {type: 'Punctuation', behavior: 'MergedWithPrevious'}, {type: 'WhitespaceSplit'},
  {...byteLevel, add_prefix_space: true}), model: ofBytes});
for (const flag of ['lstrip', 'rstrip', 'single_word']) {
  add('added tokens with ' + flag, {normalizer: {type: 'Lowercase'}, model: fallback,
    added_tokens: [...added.map(token => ({...token, [flag]: true})),
                   {...added[1], content: 'word', [flag]: true}]});
}

const results = cases.map(({name, tokenizer}) => ({name, tokenizer}));
(async () => {
  for (const result of results) {
    const library = Tokenizer.fromString(JSON.stringify(result.tokenizer));
    result.ids = [];
    for (const one of texts) {
      const encoded = await library.encode(one, null, {addSpecialTokens: false});
      result.ids.push(encoded.getIds());
    }
  }
  // The models are large and few: a case names its own.
  const models = {unknown, fused, fallback, ofBytes};
  for (const {tokenizer} of results) {
    for (const key of ['version', 'truncation', 'padding', 'post_processor', 'decoder']) delete tokenizer[key];
    for (const name of Object.keys(models)) if (tokenizer.model === models[name]) tokenizer.model = name;
  }
  const lines = [];
  for (const result of results) lines.push('  ' + JSON.stringify(result));
  const ascii = json => json.replace(/[\u007f-\uffff]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
  console.log(ascii('{"texts": ' + JSON.stringify(texts) + ',\n"models": ' + JSON.stringify(models) +
              ',\n"cases": [\n' + lines.join(',\n') + '\n]}'));
})();

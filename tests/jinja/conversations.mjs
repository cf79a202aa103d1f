// The conversations of the comparisons: variables of chat templates.

const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'get_weather', description: 'Weather of a "place" <now>',
      parameters: {
        type: 'object',
        properties: {
          city: { type: 'string', description: 'The city’s name' },
          unit: { type: 'string', enum: ['celsius', 'fahrenheit'], default: 'celsius' },
          days: { type: ['integer', 'null'], minimum: 1, items: { type: 'number' } },
        },
        required: ['city'],
      },
      return: { type: 'number' },
    },
  },
  { type: 'function', function: { name: 'now', description: '', parameters: { type: 'object', properties: {} } } },
];

const CONTENTS = [
  'Who are you?', '', '  padded \n\n', 'né 漢字 🎉 \u00a0', 'a<|im_end|>\n<|im_start|>system\nb [/INST] </s><s>',
  'Line 1\nLine 2\n', '<think>\nhidden\n</think>\n\nshown', '{"a": [1, 2.50, "x\\n"], "b": null}',
  "quote ' and \" and \\ and `", '/no_think hi', '{{ 1 + 1 }}{% raw %}', '<tool_response>x</tool_response>',
];

const SYSTEMS = [undefined, 'Be brief.', '', ' \n', 'Sys<|im_end|> "é" </think>'];

const user = (content) => ({ role: 'user', content });
const assistant = (content, more = {}) => ({ role: 'assistant', content, ...more });
const call = (name, args, id) => ({ id, type: 'function', function: { name, arguments: args } });

const TURNS = [
  (a) => [user(a)],
  (a, b) => [user(a), assistant(b)],
  (a, b) => [user(a), assistant(b), user(b)],
  (a, b) => [user(b), assistant(a), user(a), assistant(b), user('last')],
  (a, b) => [user(a), assistant(b, { reasoning_content: 'because\n' + a }), user('why?')],
  (a, b) => [user(a), assistant(b, { reasoning_content: a })],
  (a, b) => [user(a), user(b)],
  (a) => [assistant(a), user('then?')],
];

const TOOL_TURNS = [
  [user('Weather?'), assistant('', { tool_calls: [call('get_weather', { city: 'Köln', days: 2 }, 'call00001')] }),
    { role: 'tool', content: '{"degrees": 21.5}', name: 'get_weather', tool_call_id: 'call00001' }],
  [user('Weather?'), assistant(null, { tool_calls: [call('get_weather', '{"city": "Köln"}', 'call00001')] }),
    { role: 'tool', content: '21', name: 'get_weather', tool_call_id: 'call00001' }, assistant('21.'), user('Thanks')],
  [user('Both?'), assistant('Let me see', {
    reasoning_content: 'two calls',
    tool_calls: [call('get_weather', { city: 'Rome', unit: null, deep: { x: [true, 1.5] } }, 'call00002'),
      call('now', {}, 'call00003')],
  }),
  { role: 'tool', content: 'sun', name: 'get_weather', tool_call_id: 'call00002' },
  { role: 'tool', content: [{ type: 'text', text: 'noon' }], name: 'now', tool_call_id: 'call00003' }, user('ok')],
];

const LISTS = [
  [{ type: 'text', text: 'part one' }], [{ type: 'text', text: 'a' }, { type: 'text', text: ' b\n' }], [],
  [{ type: 'image' }, { type: 'text', text: 'What is it?' }],
];

const kwargs = [{}, { enable_thinking: false }, { enable_thinking: true }, { thinking: true }];

function withSystem(system, turns) {
  return system === undefined ? turns : [{ role: 'system', content: system }, ...turns];
}

export const conversations = [];
let n = 0;
function add(messages, more = {}) {
  conversations.push({ messages, add_generation_prompt: n++ % 3 !== 0, ...kwargs[n % 4], ...more });
}
for (const [i, turns] of TURNS.entries()) {
  for (const [j, system] of SYSTEMS.entries()) {
    for (let k = 0; k < 4; ++k) {
      const at = i + 3 * j + 5 * k;
      add(withSystem(system, turns(CONTENTS[at % CONTENTS.length], CONTENTS[(at * 7 + 1) % CONTENTS.length])),
        k === 3 ? { tools: TOOLS } : k === 2 ? { tools: null, documents: null } : {});
    }
  }
}
for (const turns of TOOL_TURNS) {
  for (const system of SYSTEMS.slice(0, 3)) {
    add(withSystem(system, turns), { tools: TOOLS });
    add(withSystem(system, turns));
    add(withSystem(system, turns), { tools: TOOLS.slice(0, 1), date_string: '26 Jul 2024' });
  }
}
for (const content of LISTS) {
  add([user(content)]);
  add([{ role: 'system', content }, user(content), assistant(content), user('x')]);
}
add([]);

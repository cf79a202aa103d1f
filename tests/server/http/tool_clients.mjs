// tool_clients.mjs SERVER MODEL: lets a model of the directory MODEL call a function through the clients of
// OpenAI, LangChain, the AI SDK and Anthropic. Each asks for a call, runs the function, and sends its result
// for an answer.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { install } from '../npm_packages.mjs';
import { serve } from './serve.mjs';

const [serverProgram, model] = process.argv.slice(2);
const packages = install('openai@6.30.1', '@langchain/openai@1.6.0', '@langchain/core@1.4.0',
  '@ai-sdk/openai-compatible@3.0.92', 'ai@7.0.173', '@anthropic-ai/sdk@1.14.0');
const resolve = createRequire(join(packages, 'package.json')).resolve;
const load = (name) => import(pathToFileURL(resolve(name)));
const { default: OpenAI } = await load('openai');
const { ChatOpenAI } = await load('@langchain/openai');
const { tool: langChainTool } = await load('@langchain/core/tools');
const { concat } = await load('@langchain/core/utils/stream');
const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
const { generateText, streamText, tool, jsonSchema, stepCountIs } = await load('ai');
const { default: Anthropic } = await load('@anthropic-ai/sdk');

// A short template: the model's context is small.
const folder = mkdtempSync(join(tmpdir(), 'triptych-template-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const template = join(folder, 'tools.jinja');
writeFileSync(template, `{% for t in tools or [] %}{{ t.function.name }}
{% endfor %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}
{% endfor %}`);

const { server, address } = await serve(serverProgram, 'mla', `${model},chat-template=${template}`);
const baseURL = `http://${address}/v1`;
const QUESTION = 'What is the sum?';
const PARAMETERS = {
  type: 'object',
  properties: { a: { type: 'integer', minimum: 1, maximum: 9 }, b: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['a', 'b'],
  additionalProperties: false,
};
let sums = [];  // of the function's calls
function add({ a, b }) {
  assert(Number.isInteger(a) && a >= 1 && a <= 9, `a is ${a}`);
  assert(Number.isInteger(b) && b >= 1 && b <= 9, `b is ${b}`);
  sums.push(a + b);
  return String(a + b);
}
const takeSums = () => sums.splice(0);

const tests = {
  async openAI() {
    const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
    const definition = { name: 'add', description: 'Adds.', parameters: PARAMETERS };
    for (const stream of [false, true]) {
      const runner = client.chat.completions.runTools({ model: 'mla', stream, temperature: 0,
        messages: [{ role: 'user', content: QUESTION }],
        tools: [{ type: 'function', function: { ...definition, function: add, parse: JSON.parse } }],
        tool_choice: { type: 'function', function: { name: 'add' } } });
      await runner.done();
      const [sum, ...more] = takeSums();
      assert.equal(more.length, 0);
      const [, call, result] = runner.messages;
      assert.equal(call.tool_calls[0].id, result.tool_call_id);
      assert.equal(result.content, String(sum));
      const answer = await client.chat.completions.create({ model: 'mla', messages: runner.messages,
        tools: [{ type: 'function', function: definition }], tool_choice: 'none', temperature: 0, max_tokens: 5 });
      assert.equal(answer.choices[0].message.tool_calls, undefined);
      assert(answer.choices[0].message.content.length > 0);
    }
    // A strict function leaves the choice to the model; a helper parses calls.
    const parsed = await client.chat.completions.parse({ model: 'mla', temperature: 0, tool_choice: 'required',
      parallel_tool_calls: false, messages: [{ role: 'user', content: QUESTION }],
      tools: [{ type: 'function', function: { ...definition, strict: true } }] });
    assert.equal(parsed.choices[0].finish_reason, 'tool_calls');
    add(parsed.choices[0].message.tool_calls[0].function.parsed_arguments);
    assert.equal(takeSums().length, 1);
  },

  async openAIResponses() {
    const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
    const asked = { model: 'mla', temperature: 0, input: [{ role: 'user', content: QUESTION }],
      tools: [{ type: 'function', name: 'add', parameters: PARAMETERS, strict: true }] };
    const choice = { tool_choice: { type: 'function', name: 'add' } };
    const stream = client.responses.stream({ ...asked, ...choice });
    let pieces = '';
    stream.on('response.function_call_arguments.delta', (event) => { pieces += event.delta; });
    const called = await stream.finalResponse();
    const [call] = called.output;
    assert.equal(call.type, 'function_call');
    assert.equal(call.arguments, pieces);
    const output = add(JSON.parse(call.arguments));
    const whole = await client.responses.create({ ...asked, ...choice });
    assert.equal(whole.output[0].name, 'add');
    const answer = await client.responses.create({ ...asked, tool_choice: 'none', max_output_tokens: 5,
      input: [...asked.input, ...called.output,
        { type: 'function_call_output', call_id: call.call_id, output }] });
    assert(answer.output_text.length > 0);
    takeSums();
  },

  async langChain() {
    const client = new ChatOpenAI({ model: 'mla', apiKey: 'none', maxRetries: 0, temperature: 0, maxTokens: 400,
      configuration: { baseURL } });
    const sum = langChainTool(add, { name: 'add', description: 'Adds.', schema: PARAMETERS });
    const asking = client.bindTools([sum], { tool_choice: 'add' });
    const messages = [['human', QUESTION]];
    const whole = await asking.invoke(messages);
    assert.equal(whole.tool_calls.length, 1);
    let streamed;
    for await (const chunk of await asking.stream(messages)) {
      streamed = streamed === undefined ? chunk : concat(streamed, chunk);
    }
    for (const called of [whole, streamed]) {
      assert.equal(called.tool_calls[0].name, 'add');
      const result = await sum.invoke(called.tool_calls[0]);
      assert.equal(result.content, String(takeSums()[0]));
      const answer = await client.bindTools([sum], { tool_choice: 'none' })
        .invoke([...messages, called, result]);
      assert.equal(answer.tool_calls.length, 0);
      assert(answer.text.length > 0);
    }
  },

  async aiSdk() {
    const provider = createOpenAICompatible({ name: 'triptych', baseURL });
    const asked = { model: provider('mla'), prompt: QUESTION, maxRetries: 0, temperature: 0, maxOutputTokens: 400,
      tools: { add: tool({ description: 'Adds.', inputSchema: jsonSchema(PARAMETERS), execute: add }) },
      stopWhen: stepCountIs(2),
      prepareStep: ({ stepNumber }) =>
        ({ toolChoice: stepNumber === 0 ? { type: 'tool', toolName: 'add' } : 'none' }) };
    const whole = await generateText(asked);
    assert.deepEqual(whole.steps.map((step) => step.toolCalls.length), [1, 0]);
    assert.equal(whole.steps[0].finishReason, 'tool-calls');
    assert.equal(whole.steps[0].toolResults[0].output, String(takeSums()[0]));
    assert(whole.text.length > 0);
    const stream = streamText(asked);
    await stream.consumeStream();
    const steps = await stream.steps;
    assert.equal(steps[0].toolResults[0].output, String(takeSums()[0]));
    assert(steps[1].text.length > 0);
  },

  async anthropic() {
    const client = new Anthropic({ baseURL: `http://${address}`, apiKey: 'none', maxRetries: 0 });
    const asked = { model: 'mla', max_tokens: 400, temperature: 0, messages: [{ role: 'user', content: QUESTION }],
      tools: [{ name: 'add', description: 'Adds.', input_schema: PARAMETERS }] };
    const choice = { tool_choice: { type: 'tool', name: 'add' } };
    const whole = await client.messages.create({ ...asked, ...choice });
    const streamed = await client.messages.stream({ ...asked, ...choice }).finalMessage();
    for (const called of [whole, streamed]) {
      assert.equal(called.stop_reason, 'tool_use');
      const [use] = called.content;
      assert.deepEqual([use.type, use.name], ['tool_use', 'add']);
      const result = { type: 'tool_result', tool_use_id: use.id, content: add(use.input) };
      const answer = await client.messages.create({ ...asked, max_tokens: 5, tool_choice: { type: 'none' },
        messages: [...asked.messages, { role: 'assistant', content: called.content },
          { role: 'user', content: [result] }] });
      assert.equal(answer.content[0].type, 'text');
    }
    assert.equal(takeSums().length, 2);
  },
};

for (const [name, test] of Object.entries(tests)) {
  await test();
  console.log(`${name}: passed`);
}
server.kill('SIGTERM');
assert.equal((await once(server, 'exit'))[0], 0);

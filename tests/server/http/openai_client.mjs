// openai_client.mjs SERVER MODEL: tests a server of the model in directory MODEL with OpenAI's official
// client, once without and once with the model's own chat template.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import { install } from '../npm_packages.mjs';
import { serve } from './serve.mjs';

const [serverProgram, model] = process.argv.slice(2);
const packages = install('openai@6.30.1');
const { default: OpenAI } = await import(join(packages, 'openai/index.mjs'));

const { server, address } = await serve(serverProgram, 'mla', model);
const url = `http://${address}`;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
const PROMPT = 'KING HENRY:\n';
const MESSAGES = [{ role: 'system', content: 'A play.' }, { role: 'user', content: 'Who is there?' }];

async function fails(call, error) {
  await assert.rejects(call, (e) => {
    for (const [name, value] of Object.entries(error)) assert.equal(e[name], value, String(e));
    return e instanceof OpenAI.APIError;
  });
}

// Waits until the caches are empty, for at most a minute.
async function idle() {
  const end = Date.now() + 60_000;
  while (Date.now() < end) {
    const { models } = await (await fetch(`${url}/v1/kv-cache`)).json();
    if (models.every((one) => Number(one.allocated_bytes) === 0)) return;
  }
  assert.fail('the caches still hold something');
}

const tests = {
  async models() {
    const list = [];
    for await (const one of client.models.list()) list.push(one);
    assert.deepEqual(list.map((one) => [one.id, one.object]), [['mla', 'model']]);
    assert.equal((await client.models.retrieve('mla')).id, 'mla');
    await fails(client.models.retrieve('nobody'), { status: 404, code: 'model_not_found' });
  },

  async completions() {
    const asked = { model: 'mla', prompt: PROMPT, max_tokens: 20, temperature: 0.8, seed: 4 };
    const whole = await client.completions.create({ ...asked, n: 2, logprobs: 1 });
    assert.equal(whole.object, 'text_completion');
    assert.equal(whole.choices.length, 2);
    assert.equal(whole.usage.completion_tokens, 40);
    assert(whole.usage.kv_cache.used_bytes > 0);
    assert.equal(whole.choices[0].logprobs.tokens.join(''), whole.choices[0].text);
    const texts = ['', ''];
    let usage;
    const stream = await client.completions.create(
      { ...asked, n: 2, stream: true, stream_options: { include_usage: true } });
    for await (const event of stream) {
      for (const choice of event.choices) texts[choice.index] += choice.text;
      usage = event.usage ?? usage;
    }
    assert.deepEqual(texts, whole.choices.map((choice) => choice.text));
    assert.equal(usage.completion_tokens, 40);
    const stopped = await client.completions.create(
      { ...asked, logit_bias: { 120: 500 }, stop: ['xxx'], max_tokens: null, max_completion_tokens: 9 });
    assert.deepEqual([stopped.choices[0].text, stopped.choices[0].finish_reason], ['', 'stop']);
    const penalised = await client.completions.create({ ...asked, temperature: 0, max_tokens: 3,
      logit_bias: { 120: 500, 121: 490 }, presence_penalty: 6, frequency_penalty: 6 });
    assert.equal(penalised.choices[0].text, 'xyx');
  },

  async chat() {
    const asked = { model: 'mla', messages: MESSAGES, temperature: 0.8, seed: 4 };
    const whole = await client.chat.completions.create({ ...asked, max_completion_tokens: 20, n: 2,
      logprobs: true, top_logprobs: 2 });
    assert.equal(whole.object, 'chat.completion');
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
    assert(whole.usage.kv_cache.used_bytes > 0);
    assert.equal(typeof whole.usage.prompt_tokens_details.cached_tokens, 'number');
    const { message, logprobs, finish_reason } = whole.choices[0];
    assert.equal(message.role, 'assistant');
    assert(['stop', 'length'].includes(finish_reason));
    const bytes = logprobs.content.flatMap((token) => token.bytes ?? []);
    assert(Buffer.from(bytes).toString().startsWith(message.content));
    assert(logprobs.content.every((token) => token.top_logprobs.length === 2));
    const texts = ['', ''];
    const roles = [0, 0];
    let usage;
    const stream = await client.chat.completions.create({ ...asked, max_tokens: 20, n: 2,
      stream: true, stream_options: { include_usage: true } });
    for await (const event of stream) {
      for (const { index, delta } of event.choices) {
        texts[index] += delta.content ?? '';
        roles[index] += delta.role === 'assistant' ? 1 : 0;
      }
      usage = event.usage ?? usage;
    }
    assert.deepEqual(texts, whole.choices.map((choice) => choice.message.content));
    assert.deepEqual(roles, [1, 1]);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
    assert.equal(usage.kv_cache.used_bytes, whole.usage.kv_cache.used_bytes);
    // The client's own assembly of a stream, and a conversation with several turns.
    const final = await client.chat.completions.stream({ ...asked, max_tokens: 20 }).finalMessage();
    assert.equal(final.content, texts[0]);
    const next = await client.chat.completions.create({ ...asked, max_tokens: 5,
      messages: [...MESSAGES, message, { role: 'user', content: [{ type: 'text', text: 'And?' }] }] });
    assert(next.usage.prompt_tokens > whole.usage.prompt_tokens);
  },

  async severalPrompts() {
    const asked = { model: 'mla', max_tokens: 5, temperature: 0 };
    const both = await client.completions.create({ ...asked, prompt: [PROMPT, 'To be'] });
    const texts = await Promise.all([PROMPT, 'To be'].map(async (prompt) =>
      (await client.completions.create({ ...asked, prompt })).choices[0].text));
    assert.deepEqual(both.choices.map((choice) => choice.text), texts);
  },

  async responses() {
    const asked = { model: 'mla', instructions: 'A play.', input: 'Who is there?',
      temperature: 0, max_output_tokens: 20 };
    const chat = await client.chat.completions.create(
      { model: 'mla', messages: MESSAGES, temperature: 0, max_tokens: 20 });
    const whole = await client.responses.create(asked);
    assert.equal(whole.output_text, chat.choices[0].message.content);
    assert.equal(whole.usage.input_tokens, chat.usage.prompt_tokens);
    // The client's own assembly of the events.
    const stream = client.responses.stream(asked);
    let text = '';
    stream.on('response.output_text.delta', (event) => { text += event.delta; });
    const final = await stream.finalResponse();
    assert.equal(text, whole.output_text);
    assert.equal(final.output[0].content[0].text, whole.output_text);
    const next = await client.responses.create({ ...asked, max_output_tokens: 5,
      input: [{ role: 'user', content: 'Who is there?' }, ...whole.output,
        { role: 'user', content: [{ type: 'input_text', text: 'And?' }] }] });
    assert(next.usage.input_tokens > whole.usage.input_tokens);
    await fails(client.responses.create({ ...asked, input: 'a'.repeat(600) }),
      { status: 400, code: 'context_length_exceeded', param: 'input' });
  },

  async tools() {
    // Its loop of calls sends tool_choice beside an empty list.
    const runner = client.chat.completions.runTools(
      { model: 'mla', messages: MESSAGES, tools: [], max_tokens: 9, stop: ['yx'],
        logit_bias: { 120: 500, 121: 490 }, presence_penalty: 20, temperature: 0 });
    assert.equal(await runner.finalContent(), 'x');
  },

  async errors() {
    const asked = { model: 'mla', messages: MESSAGES };
    const bad = { status: 400, type: 'invalid_request_error', code: 'invalid_field' };
    await fails(client.chat.completions.create({ ...asked, temperature: 1000 }),
      { ...bad, param: 'temperature' });
    await fails(client.chat.completions.create({ ...asked, tools: [{ type: 'function' }] }),
      { ...bad, param: 'tools[0].function' });
    const image = [{ type: 'image_url', image_url: { url: 'data:,' } }];
    await fails(client.chat.completions.create({ ...asked, messages: [{ role: 'user', content: image }] }),
      { ...bad, param: 'messages[0].content[0].type' });
    await fails(client.chat.completions.create({ ...asked, model: 'nobody' }),
      { status: 404, code: 'model_not_found', param: 'model' });
    await fails(client.chat.completions.create({ ...asked, max_tokens: 0, stream: true }),
      { ...bad, param: 'max_tokens' });
    await fails(client.completions.create({ model: 'mla', prompt: 'a', n: 17 }), { ...bad, param: 'n' });
    await fails(client.completions.create({ model: 'mla', prompt: 'a'.repeat(600) }),
      { ...bad, param: 'prompt', code: 'context_length_exceeded' });
  },

  async cancellation() {
    const stream = await client.chat.completions.create(
      { model: 'mla', messages: MESSAGES, logit_bias: { 120: 500 }, stream: true });
    for await (const event of stream) {
      assert.equal(event.choices[0].delta.role, 'assistant');
      break;  // closes the connection
    }
    await idle();
  },
};

for (const [name, test] of Object.entries(tests)) {
  await test();
  console.log(`${name}: passed`);
}
server.kill('SIGTERM');
assert.equal((await once(server, 'exit'))[0], 0);

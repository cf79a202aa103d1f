// other_clients.mjs SERVER MODEL: tests a server of the model in directory MODEL with clients of other
// libraries: LangChain, the AI SDK, and Anthropic's and Ollama's clients.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { install } from '../npm_packages.mjs';
import { serve } from './serve.mjs';

const [serverProgram, model] = process.argv.slice(2);
const packages = install('@langchain/openai@1.6.0', '@langchain/core@1.4.0',
  '@ai-sdk/openai-compatible@3.0.92', 'ai@7.0.173', '@anthropic-ai/sdk@1.14.0',
  'ollama@0.6.3');
const resolve = createRequire(join(packages, 'package.json')).resolve;
const load = (name) => import(pathToFileURL(resolve(name)));
const { ChatOpenAI, OpenAI } = await load('@langchain/openai');
const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
const { generateText, streamText } = await load('ai');
const { default: Anthropic } = await load('@anthropic-ai/sdk');
const { Ollama } = await load('ollama');

// A name as clients are configured with.
const NAME = 'org/shakespeare:mla';
const { server, address } = await serve(serverProgram, NAME, model);
const baseURL = `http://${address}/v1`;
const SYSTEM = 'A play.';
const QUESTION = 'Who is there?';

const post = async (path, body) => (await fetch(`${baseURL}/${path}`, { method: 'POST',
  headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) })).json();
const chat = await post('chat/completions', { model: NAME, temperature: 0, max_tokens: 20,
  messages: [{ role: 'system', content: SYSTEM }, { role: 'user', content: QUESTION }] });
const REPLY = chat.choices[0].message.content;

const tests = {
  async langChain() {
    const settings = { model: NAME, apiKey: 'none', temperature: 0, maxTokens: 20, maxRetries: 0,
      configuration: { baseURL } };
    const messages = [['system', SYSTEM], ['human', QUESTION]];
    for (const useResponsesApi of [false, true]) {
      const client = new ChatOpenAI({ ...settings, useResponsesApi });
      const whole = await client.invoke(messages);
      assert.equal(whole.text, REPLY);
      assert.equal(whole.usage_metadata.output_tokens, 20);
      let text = '';
      for await (const chunk of await client.stream(messages)) text += chunk.text;
      assert.equal(text, REPLY);
      const [first, second] = await client.batch([messages, messages]);
      assert.deepEqual([first.text, second.text], [REPLY, REPLY]);
    }
    const completions = new OpenAI(settings);
    const { generations } = await completions.generate(['KING HENRY:', 'To be']);
    assert.equal(generations.length, 2);
    assert.equal(generations[1][0].text, await completions.invoke('To be'));
  },

  async aiSdk() {
    const provider = createOpenAICompatible({ name: 'triptych', baseURL, includeUsage: true });
    const asked = { model: provider(NAME), system: SYSTEM, prompt: QUESTION, temperature: 0,
      maxOutputTokens: 20, maxRetries: 0 };
    const whole = await generateText(asked);
    assert.equal(whole.text, REPLY);
    assert.equal(whole.finishReason, 'length');
    const stream = streamText(asked);
    let text = '';
    for await (const delta of stream.textStream) text += delta;
    assert.equal(text, REPLY);
    assert.equal((await stream.usage).outputTokens, 20);
  },

  async ollama() {
    const client = new Ollama({ host: `http://${address}` });
    const options = { temperature: 0, num_predict: 20 };
    const messages = [{ role: 'system', content: SYSTEM }, { role: 'user', content: QUESTION }];
    const whole = await client.chat({ model: NAME, messages, options });
    assert.equal(whole.message.content, REPLY);
    assert.deepEqual([whole.done_reason, whole.eval_count], ['length', 20]);
    assert.ok(whole.total_duration >= whole.eval_duration && whole.eval_duration > 0);
    let text = '';
    for await (const part of await client.chat({ model: NAME, messages, options, stream: true })) {
      text += part.message.content;
    }
    assert.equal(text, REPLY);
    const generated = await client.generate({ model: NAME, system: SYSTEM, prompt: QUESTION, options });
    assert.equal(generated.response, REPLY);
    text = '';
    for await (const part of await client.generate({ model: NAME, system: SYSTEM, prompt: QUESTION,
      options, stream: true })) text += part.response;
    assert.equal(text, REPLY);
    const { models } = await client.list();
    assert.deepEqual(models.map((one) => one.model), [NAME]);
    assert.equal((await client.ps()).models[0].name, NAME);
    const shown = await client.show({ model: NAME });
    assert.ok(shown.model_info['triptych.context_length'] > 0);
    assert.match((await client.version()).version, /^[0-9]/);
    await assert.rejects(client.chat({ model: 'other', messages }), /other/);
  },

  async anthropic() {
    const client = new Anthropic({ baseURL: `http://${address}`, apiKey: 'none', maxRetries: 0 });
    const asked = { model: NAME, system: SYSTEM, max_tokens: 20, temperature: 0,
      messages: [{ role: 'user', content: [{ type: 'text', text: QUESTION,
        cache_control: { type: 'ephemeral' } }] }] };
    const whole = await client.messages.create(asked);
    assert.deepEqual([whole.content[0].text, whole.stop_reason], [REPLY, 'max_tokens']);
    const stream = client.messages.stream(asked);
    let text = '';
    stream.on('text', (delta) => { text += delta; });
    const final = await stream.finalMessage();
    assert.equal(text, REPLY);
    assert.equal(final.content[0].text, REPLY);
    assert.equal(final.usage.output_tokens, 20);
    const { max_tokens, temperature, ...counted } = asked;
    const count = await client.messages.countTokens(counted);
    assert.equal(count.input_tokens, chat.usage.prompt_tokens);
    await assert.rejects(client.messages.create({ ...asked, temperature: 1000 }), (error) =>
      error instanceof Anthropic.BadRequestError && error.error.error.type === 'invalid_request_error');
  },
};

for (const [name, test] of Object.entries(tests)) {
  await test();
  console.log(`${name}: passed`);
}
server.kill('SIGTERM');
assert.equal((await once(server, 'exit'))[0], 0);

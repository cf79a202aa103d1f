// Published chat templates, from npm.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const PACKAGE = '@huggingface/ollama-utils@0.0.18';

// [{ name, template }] of the installed package; names may come again.
export async function publishedTemplates(packages) {
  // The package contains the templates but does not export them.
  const utils = join(packages, '@huggingface/ollama-utils/dist/index.mjs');
  const opened = join(packages, '@huggingface/ollama-utils/dist/opened.mjs');
  writeFileSync(opened, readFileSync(utils, 'utf8') + '\nexport { OLLAMA_CHAT_TEMPLATE_MAPPING };\n');
  const { OLLAMA_CHAT_TEMPLATE_MAPPING: published } = await import(opened);
  const templates = published.map(({ model, gguf }) => ({ name: model, template: gguf }));
  assert(templates.length > 90, `${templates.length} published templates`);
  return templates;
}

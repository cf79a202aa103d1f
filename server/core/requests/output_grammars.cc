#include "server/core/requests/output_grammars.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/request_limits.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/expressions.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex.h"
#include "server/core/chat/chat_template.h"
#include "server/core/tools/call_grammar.h"

namespace triptych::server {
namespace {

constexpr size_t kMaxEntries = 16;

grammar::Expression Parse(const OutputForm& form, grammar::Expressions& expressions) {
  switch (form.kind) {
    case OutputForm::Kind::kJsonObject:
      return grammar::AnyJsonObject(expressions);
    case OutputForm::Kind::kJsonSchema:
      return grammar::ParseJsonSchema(expressions, form.text);
    case OutputForm::Kind::kRegex:
      return grammar::ParseRegex(expressions, form.text);
    case OutputForm::Kind::kGrammar:
      return grammar::ParseGbnf(expressions, form.text);
    case OutputForm::Kind::kChoice:
      break;
  }
  std::vector<grammar::Expression> choices;
  for (const std::string& choice : form.choices) choices.push_back(expressions.Literal(choice));
  return expressions.Choice(std::move(choices));
}

// Likewise; errors have the whole path.
grammar::Expression ParseAt(const OutputForm& form, grammar::Expressions& expressions) {
  try {
    return Parse(form, expressions);
  } catch (const grammar::GrammarError& error) {
    throw grammar::GrammarError(error.what(), form.field + error.path());
  }
}

grammar::Expression ParseOutput(const std::optional<OutputForm>& form, const CallForm* calls,
                                grammar::Expressions& expressions) {
  std::optional<grammar::Expression> answer;
  if (form) answer = ParseAt(*form, expressions);
  return calls == nullptr ? *answer : ParseCallForm(expressions, *calls, answer);
}

// A text that is the same for equal output alone.
std::string KeyText(const std::optional<OutputForm>& form, const CallForm* calls) {
  std::string text = calls == nullptr ? "" : calls->Key();
  text = std::to_string(text.size()) + ':' + text;
  if (!form) return text;
  text += std::to_string(static_cast<int>(form->kind)) + ':';
  text += form->text;
  for (const std::string& choice : form->choices) {
    text += std::to_string(choice.size()) + ':' + choice;
  }
  return text;
}

std::optional<Error> CheckForm(const OutputForm& form) {
  size_t bytes = form.text.size();
  for (const std::string& choice : form.choices) bytes += choice.size();
  if (bytes > limits::kMaxGrammarBytes) {
    return InvalidArgument(form.field, "is " + std::to_string(bytes) +
                                           " bytes long; allowed: at most " +
                                           std::to_string(limits::kMaxGrammarBytes));
  }
  if (form.kind != OutputForm::Kind::kChoice) return std::nullopt;
  if (!limits::kOutputChoices.Contains(form.choices.size())) {
    return InvalidArgument(form.field,
                           "has " + std::to_string(form.choices.size()) +
                               " choices; allowed: " + std::to_string(limits::kOutputChoices.low) +
                               " to " + std::to_string(limits::kOutputChoices.high));
  }
  return std::nullopt;
}

// The special tokens that mark calls of functions.
std::span<const int32_t> MarkerTokens(const ModelInfo& model) {
  if (model.chat_template == nullptr) return {};
  return model.chat_template->tools().marker_tokens;
}

}  // namespace

OutputGrammars::OutputGrammars(const ModelRegistry& models)
    : models_(models), vocabularies_(2 * models.models().size()) {}

std::shared_ptr<const grammar::Vocabulary> OutputGrammars::VocabularyOf(size_t model,
                                                                        bool with_markers) {
  const MutexLock lock(vocabularies_mutex_);
  std::shared_ptr<const grammar::Vocabulary>& vocabulary = vocabularies_[2 * model + with_markers];
  if (vocabulary) return vocabulary;
  const Tokenizer& tokenizer = *models_.models()[model].tokenizer;
  std::vector<std::string> texts(tokenizer.vocab_size());
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    texts[token] = tokenizer.Decode(token);
  }
  if (with_markers) {
    for (const int32_t token : MarkerTokens(models_.models()[model])) {
      texts[token] = tokenizer.SpecialText(token);
    }
  }
  for (const int32_t token : tokenizer.end_tokens()) texts[token].clear();
  vocabulary = std::make_shared<grammar::Vocabulary>(texts);
  return vocabulary;
}

Result<std::shared_ptr<const grammar::TokenGrammar>> OutputGrammars::Find(
    const std::optional<OutputForm>& form, const CallForm* calls, size_t model) {
  if (form) {
    if (const auto error = CheckForm(*form)) return *error;
  }
  Key key(model, KeyText(form, calls));
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.key == key; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return entries_.front().grammar;
    }
  }
  std::shared_ptr<const grammar::TokenGrammar> compiled;
  try {
    grammar::Expressions expressions;
    const grammar::Expression start = ParseOutput(form, calls, expressions);
    compiled = std::make_shared<grammar::TokenGrammar>(
        std::make_shared<grammar::Grammar>(grammar::Compile(expressions, start)),
        VocabularyOf(model, calls != nullptr && !MarkerTokens(models_.models()[model]).empty()));
  } catch (const grammar::GrammarError& error) {
    // The grammar as a whole has no path.
    const std::string whole = calls != nullptr ? calls->field : form->field;
    return InvalidArgument(error.path().empty() ? whole : error.path(), error.what());
  }
  const MutexLock lock(mutex_);
  entries_.push_front({std::move(key), compiled});
  if (entries_.size() > kMaxEntries) entries_.pop_back();
  return compiled;
}

}  // namespace triptych::server

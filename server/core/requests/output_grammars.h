// Grammars of requested output, compiled once.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_OUTPUT_GRAMMARS_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_OUTPUT_GRAMMARS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/grammar/token_grammar.h"
#include "server/core/error.h"
#include "server/core/model_registry.h"
#include "server/core/requests/request_params.h"

namespace triptych::server {

// Keeps the grammars used last, of all clients, by their text. Thread-safe. The models must outlive
// it.
class OutputGrammars {
 public:
  explicit OutputGrammars(const ModelRegistry& models);

  // The grammar of a form for the tokens of a model; an error names the form's field.
  Result<std::shared_ptr<const grammar::TokenGrammar>> Find(const OutputForm& form, size_t model)
      TRIPTYCH_EXCLUDES(mutex_);

 private:
  using Key = std::tuple<size_t, OutputForm::Kind, std::string>;  // model, kind, text
  struct Entry {
    Key key;
    std::shared_ptr<const grammar::TokenGrammar> grammar;
  };

  std::shared_ptr<const grammar::Vocabulary> VocabularyOf(size_t model)
      TRIPTYCH_EXCLUDES(vocabularies_mutex_);

  const ModelRegistry& models_;
  Mutex vocabularies_mutex_;
  // [model]; made when first needed
  std::vector<std::shared_ptr<const grammar::Vocabulary>> vocabularies_
      TRIPTYCH_GUARDED_BY(vocabularies_mutex_);
  Mutex mutex_;
  std::list<Entry> entries_ TRIPTYCH_GUARDED_BY(mutex_);  // used last first
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_OUTPUT_GRAMMARS_H_

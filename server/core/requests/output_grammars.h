// Grammars of requested output, compiled once.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_OUTPUT_GRAMMARS_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_OUTPUT_GRAMMARS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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

  // The grammar, for the tokens of a model, of a form, of calls, or of either (GenerateParams); an
  // error names the field. REQUIRES: a form or calls.
  Result<std::shared_ptr<const grammar::TokenGrammar>> Find(const std::optional<OutputForm>& form,
                                                            const CallForm* calls, size_t model)
      TRIPTYCH_EXCLUDES(mutex_);

 private:
  using Key = std::pair<size_t, std::string>;  // model, text
  struct Entry {
    Key key;
    std::shared_ptr<const grammar::TokenGrammar> grammar;
  };

  // `with_markers`: the special tokens that mark calls of functions have their texts.
  std::shared_ptr<const grammar::Vocabulary> VocabularyOf(size_t model, bool with_markers)
      TRIPTYCH_EXCLUDES(vocabularies_mutex_);

  const ModelRegistry& models_;
  Mutex vocabularies_mutex_;
  // [2 * model + with_markers]; made when first needed
  std::vector<std::shared_ptr<const grammar::Vocabulary>> vocabularies_
      TRIPTYCH_GUARDED_BY(vocabularies_mutex_);
  Mutex mutex_;
  std::list<Entry> entries_ TRIPTYCH_GUARDED_BY(mutex_);  // used last first
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_OUTPUT_GRAMMARS_H_

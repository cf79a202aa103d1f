// The normalizer and the pre-tokenizer of a tokenizer.json.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_PIPELINE_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_PIPELINE_H_

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"

namespace triptych::checkpoint {

// The steps before byte pair encoding.
struct TextPipeline {
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool byte_level = false;  // pieces are in the alphabet of byte_level.h
};

// Append the steps of a section; null has none. `source` names it in messages. Throw LoadError.
void ParseNormalizer(Json json, const std::string& source, TextPipeline& pipeline);
void ParsePreTokenizer(Json json, const std::string& source, TextPipeline& pipeline);

// prepend_scheme of a Metaspace; older files have add_prefix_space instead, or besides. Throws
// LoadError.
PrependScheme TakePrependScheme(JsonFields& fields);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_PIPELINE_H_

// Parsers for option values: sizes, addresses, and models with their settings. The Parse and Check
// functions throw std::invalid_argument with a message of one line.
#ifndef TRIPTYCH_SERVER_OPTION_VALUES_H_
#define TRIPTYCH_SERVER_OPTION_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/base/range.h"
#include "engine/model/conversion_spec.h"
#include "server/core/chat/built_in_templates.h"
#include "server/resources.h"

namespace triptych::server {

inline constexpr size_t kMaxModelNameBytes = 128;

struct ModelOptions {
  std::string name;
  std::filesystem::path checkpoint;                    // directory or GGUF file
  std::optional<int64_t> kv_cache_bytes;               // absent: an equal share of the rest
  std::optional<ConversionSpec> conversion = {};       // absent: served as it is
  std::optional<ChatTemplateText> chat_template = {};  // absent: the checkpoint's
  std::optional<int64_t> max_positions = {};           // absent: --max-model-len
  std::optional<std::string> draft_model = {};         // absent: --draft-model
};

// Parses NAME=PATH[,SETTING=VALUE...]. PATH is an existing directory or .gguf file, without a
// comma. Settings, each at most once and in any order:
//   kv-cache-bytes=SIZE                             as in ParseByteSize
//   attention=mha | attention=gqa,groups=G | attention=mla[,rank=R][,rope-head-dim=N]
//   chat-template=TEMPLATE                          as in ReadChatTemplateText
//   max-model-len=N, or context=N
//   draft-model=NAME
ModelOptions ParseModelOptions(const std::string& text,
                               int64_t memory_bytes = AvailableResources().memory_bytes);

// The chat template of a built-in name, or "own" or "own:NAME" of the checkpoint's, or otherwise of
// a file.
ChatTemplateText ReadChatTemplateText(const std::string& text);

// Parses a size, at least 1 byte: "1073741824", "512MiB", "1.5GiB", "1GB", or "25%" of
// `memory_bytes`.
int64_t ParseByteSize(const std::string& text, int64_t memory_bytes);

// Parses "auto" (absent), "never" (kNeverExpand) or a position, for BackendOptions::expand_from.
std::optional<int64_t> ParseExpandFrom(const std::string& text);

// Bounds of a served context, in positions.
inline constexpr Range<int64_t> kServedPositions{2, 1 << 24};

// Throws unless `text` is HOST:PORT or [IPV6]:PORT.
void CheckAddress(const std::string& text);

// Throws unless `text` is a host name without a port.
void CheckHostName(const std::string& text);

// Throws unless `text` is the origin of web pages, or "*".
void CheckOrigin(const std::string& text);

// True if only this machine can reach an address with that host, as ParseAddress returns it.
bool IsLoopbackHost(const std::string& host);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_OPTION_VALUES_H_

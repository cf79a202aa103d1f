// The texts that options take: sizes, addresses and models with their settings. Every function
// throws std::invalid_argument with one clear line.
#ifndef TRIPTYCH_SERVER_OPTION_VALUES_H_
#define TRIPTYCH_SERVER_OPTION_VALUES_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/model/conversion_spec.h"
#include "server/core/chat/chat_template.h"
#include "server/resources.h"

namespace triptych::server {

struct ModelOptions {
  std::string name;
  std::filesystem::path checkpoint;                // a directory or a GGUF file
  std::optional<int64_t> kv_cache_bytes;           // its own; a share of the rest if absent
  std::optional<ConversionSpec> conversion = {};   // as the checkpoint is, if absent
  std::optional<ChatTemplate> chat_template = {};  // its own, if absent
};

// NAME=PATH[,SETTING=VALUE...]; PATH is of a directory or ends in .gguf, and holds no comma. The
// settings, each at most once and in any order:
//   kv-cache-bytes=SIZE                             perhaps a percentage of `memory_bytes`
//   attention=mha | attention=gqa,groups=G | attention=mla[,rank=R][,rope-head-dim=N]
//   chat-template=NAME
ModelOptions ParseModelOptions(const std::string& text,
                               int64_t memory_bytes = AvailableResources().memory_bytes);

// "1073741824", "512MiB", "1.5GiB", "1GB", or "25%" of `memory_bytes`.
int64_t ParseByteSize(const std::string& text, int64_t memory_bytes);

// "auto", which is absent, "never" or a position, as BackendOptions has it.
std::optional<int64_t> ParseExpandFrom(const std::string& text);

// Throws unless it is HOST:PORT or [IPV6]:PORT.
void CheckAddress(const std::string& text);

// Throws unless it is a host's name, without a port.
void CheckHostName(const std::string& text);

// Whether only this machine can reach what listens on that host, as ParseAddress has it.
bool IsLoopbackHost(const std::string& host);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_OPTION_VALUES_H_

#include "server/option_values.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>

#include "engine/backend/model_backend.h"
#include "engine/base/address.h"
#include "engine/base/file.h"
#include "engine/base/parse.h"
#include "engine/base/quantities.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/chat_templates.h"
#include "engine/jinja/template.h"

namespace triptych::server {
namespace {

constexpr size_t kMaxHostNameBytes = 253;  // DNS names as text

using Settings = std::map<std::string, std::string>;

template <typename... Args>
[[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw std::invalid_argument(fmt::format(format, std::forward<Args>(args)...));
}

// `others`: allowed characters besides letters and digits.
bool IsName(const std::string& name, size_t most_bytes, std::string_view others) {
  return !name.empty() && name.size() <= most_bytes &&
         std::all_of(name.begin(), name.end(), [=](unsigned char c) {
           return std::isalnum(c) || others.find(static_cast<char>(c)) != others.npos;
         });
}

// Parses SETTING=VALUE[,SETTING=VALUE...] of a model.
Settings SplitSettings(const std::string& text, const std::string& model) {
  const std::set<std::string> keys = {"kv-cache-bytes", "attention",  "rank",
                                      "rope-head-dim",  "groups",     "chat-template",
                                      "max-model-len",  "draft-model"};
  Settings settings;
  for (size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    const std::string setting = text.substr(begin, end - begin);
    const size_t equals = setting.find('=');
    std::string key = setting.substr(0, equals);
    if (key == "context") key = "max-model-len";
    if (equals == std::string::npos || !keys.contains(key)) {
      Refuse(
          "\"{}\" of model {} is not a setting; allowed: kv-cache-bytes=SIZE, attention=KIND, "
          "rank=R, rope-head-dim=N, groups=G, chat-template=FILE|NAME, max-model-len=N, "
          "draft-model=NAME",
          setting, model);
    }
    const std::string value = setting.substr(equals + 1);
    if (!settings.emplace(key, value).second) {
      Refuse("{} of model {}: \"{}\" is a second value; allowed: one value", key, model, value);
    }
  }
  return settings;
}

// The value of a setting that is valid only with attention=`kind`; 0 if it is absent.
int64_t ParseCount(const Settings& settings, const std::string& key, const std::string& kind,
                   const std::string& model) {
  const auto found = settings.find(key);
  if (found == settings.end()) return 0;
  const std::string& value = found->second;
  const std::optional<int64_t> count = ParseNumber<int64_t>(value, 1, INT64_MAX);
  if (!count) {
    Refuse("{} of model {}: \"{}\" is not a count; allowed: integers from 1 to {}", key, model,
           value, INT64_MAX);
  }
  const auto attention = settings.find("attention");
  if (attention == settings.end() || attention->second != kind) {
    Refuse("{} of model {}: \"{}\" is allowed only with attention={}", key, model, value, kind);
  }
  return *count;
}

// The conversion at load that the settings ask for; absent if none.
std::optional<ConversionSpec> ParseConversion(const Settings& settings, const std::string& model) {
  ConversionSpec conversion;
  const auto attention = settings.find("attention");
  if (attention != settings.end()) {
    const auto kind = Names<AttentionKind>().find(attention->second);
    if (kind == Names<AttentionKind>().end()) {
      Refuse("attention of model {}: \"{}\" is not a kind; allowed: mha, gqa, mla", model,
             attention->second);
    }
    conversion.attention = kind->second;
  }
  conversion.groups = ParseCount(settings, "groups", "gqa", model);
  conversion.rank = ParseCount(settings, "rank", "mla", model);
  conversion.rope_head_dim = ParseCount(settings, "rope-head-dim", "mla", model);
  if (attention == settings.end()) return std::nullopt;
  if (conversion.attention == AttentionKind::kGqa && conversion.groups == 0) {
    Refuse("attention of model {}: \"gqa\" is allowed only with groups=G", model);
  }
  return conversion;
}

std::optional<int64_t> ParseOwnCache(const Settings& settings, int64_t memory_bytes,
                                     const std::string& model) {
  const auto size = settings.find("kv-cache-bytes");
  if (size == settings.end()) return std::nullopt;
  try {
    return ParseByteSize(size->second, memory_bytes);
  } catch (const std::invalid_argument& e) {
    Refuse("kv-cache-bytes of model {}: {}", model, e.what());
  }
}

std::optional<ChatTemplateText> ParseChatTemplate(const Settings& settings,
                                                  const std::string& model) {
  const auto setting = settings.find("chat-template");
  if (setting == settings.end()) return std::nullopt;
  try {
    return ReadChatTemplateText(setting->second);
  } catch (const std::invalid_argument& e) {
    Refuse("chat-template of model {}: {}", model, e.what());
  }
}

std::optional<int64_t> ParseContext(const Settings& settings, const std::string& model) {
  const auto setting = settings.find("max-model-len");
  if (setting == settings.end()) return std::nullopt;
  const auto& [low, high, above_low] = kServedPositions;
  const std::optional<int64_t> positions = ParseNumber<int64_t>(setting->second, low, high);
  if (!positions) {
    Refuse("max-model-len of model {}: \"{}\" is not a context; allowed: integers from {} to {}",
           model, setting->second, low, high);
  }
  return positions;
}

}  // namespace

ModelOptions ParseModelOptions(const std::string& text, int64_t memory_bytes) {
  const size_t equals = text.find('=');
  const size_t comma = text.find(',');
  ModelOptions model;
  if (equals == std::string::npos || equals > comma) {
    Refuse("\"{}\" is not NAME=PATH[,SETTING=VALUE...]", text);
  }
  model.name = text.substr(0, equals);
  if (!IsName(model.name, kMaxModelNameBytes, "-_./:@+")) {
    Refuse(
        "\"{}\" is not a model name; allowed: 1 to {} letters, digits, '-', '_', '.', '/', ':', "
        "'@' and '+'",
        model.name, kMaxModelNameBytes);
  }
  model.checkpoint = text.substr(equals + 1, comma - equals - 1);
  if (!checkpoint::MayBeCheckpoint(model.checkpoint)) {
    Refuse("\"{}\" of model {} is not a directory or a .gguf file", model.checkpoint.string(),
           model.name);
  }
  if (comma == std::string::npos) return model;
  const Settings settings = SplitSettings(text.substr(comma + 1), model.name);
  model.kv_cache_bytes = ParseOwnCache(settings, memory_bytes, model.name);
  model.conversion = ParseConversion(settings, model.name);
  model.chat_template = ParseChatTemplate(settings, model.name);
  model.max_positions = ParseContext(settings, model.name);
  if (const auto draft = settings.find("draft-model"); draft != settings.end()) {
    model.draft_model = draft->second;
  }
  return model;
}

ChatTemplateText ReadChatTemplateText(const std::string& text) {
  if (auto built_in = BuiltInTemplate(text)) return *std::move(built_in);
  if (auto own = OwnTemplateChoice(text)) return *std::move(own);
  std::string why = "it is no file";
  try {
    if (Exists(text)) {
      std::string jinja = ReadText(text, checkpoint::kMaxTemplateBytes);
      const jinja::Template checked(jinja);  // throws if it cannot be used
      return {std::filesystem::path(text).filename(), std::move(jinja)};
    }
  } catch (const std::runtime_error& e) {
    why = e.what();
  }
  Refuse("\"{}\" is not a template: {}; allowed: a file of Jinja, own:NAME, or one of {}", text,
         why, BuiltInTemplateNames());
}

int64_t ParseByteSize(const std::string& text, int64_t memory_bytes) {
  std::optional<int64_t> bytes = ParseBytes(text);
  if (text.ends_with('%')) {
    const auto share =
        ParseNumber<double>(std::string_view(text).substr(0, text.size() - 1), 0, 100);
    const double part = share.value_or(0) * static_cast<double>(memory_bytes) / 100;
    if (part >= 1) bytes = static_cast<int64_t>(part);
  }
  if (!bytes) {
    Refuse("\"{}\" is not a size; allowed: {}, or a percentage of memory such as 25%", text,
           kBytesAllowed);
  }
  return *bytes;
}

std::optional<int64_t> ParseExpandFrom(const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "never") return kNeverExpand;
  const std::optional<int64_t> position = ParseNumber<int64_t>(text, 0, INT64_MAX);
  if (!position) {
    Refuse("\"{}\" is not a position; allowed: auto, never, integers from 0 to {}", text,
           INT64_MAX);
  }
  return position;
}

void CheckAddress(const std::string& text) {
  if (ParseAddress(text)) return;
  Refuse("\"{}\" is not an address; allowed: HOST:PORT, [IPV6]:PORT, with ports from 0 to 65535",
         text);
}

void CheckHostName(const std::string& text) {
  if (IsName(text, kMaxHostNameBytes, "-_.")) return;
  Refuse(
      "\"{}\" is not a host name; allowed: 1 to {} letters, digits, '-', '_' and '.', without a "
      "port",
      text, kMaxHostNameBytes);
}

void CheckOrigin(const std::string& text) {
  const std::string_view whole = text;
  const size_t scheme = whole.find("://");
  const std::string_view host = whole.substr(std::min(scheme + 3, whole.size()));
  const bool is_origin = scheme != whole.npos && IsName(text.substr(0, scheme), 32, "-+.") &&
                         IsName(std::string(host), kMaxHostNameBytes + 8, "-_.:[]");
  if (text == "*" || is_origin) return;
  Refuse("\"{}\" is not an origin; allowed: SCHEME://HOST[:PORT] without a path, or *", text);
}

bool IsLoopbackHost(const std::string& host) {
  if (host == "localhost" || host == "[::1]") return true;
  // A host name may also begin with "127."; only an address consists of digits and dots.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos;
}

}  // namespace triptych::server
